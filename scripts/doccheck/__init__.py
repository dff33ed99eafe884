"""Checks that documents say what the code says: names and places, formats on disk, what an operator sees."""
