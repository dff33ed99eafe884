"""What can go wrong in a run, as types: each carries the text that the user reads."""

from __future__ import annotations


class BenchError(Exception):
    """Something the run reports and survives, or ends with; never a traceback."""


class ServerDied(BenchError):
    """A server ended by itself or did not start; carries the end of its error log."""


class LoadFailed(BenchError):
    """A load generator failed or hung while its server lives."""


class DiskFull(BenchError):
    """Too little space to begin, or nearly none left while running."""


class Usage(BenchError):
    """The command line asks for something that does not exist."""
