"""ferrite-top: what the storage engine Ferrite is doing, on one screen of a terminal."""
