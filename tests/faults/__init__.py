"""Faults of the disk under the real server."""
