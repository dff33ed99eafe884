"""Everything that tests Ferrite from outside, through a running server."""
