"""What can go wrong, as values with words for the user."""

from __future__ import annotations

LOCK_WAIT_TIMEOUT = 1205
QUERY_INTERRUPTED = 1317
NO_SUCH_TABLE = 1146
UNKNOWN_DATABASE = 1049
LOST = (0, 2006, 2013, 2055, 1927, 1053, 4031)
"""Numbers with which a connection ends."""


class Problem(Exception):
    """Something that cannot be done; the text names the cause and, where there is one, the remedy."""


class Refused(Problem):
    """The server refused a statement."""

    def __init__(self, code: int, message: str, reasons: list[str] | None = None) -> None:
        self.code = code
        text = f"error {code}: {message.rstrip('.')}"
        super().__init__("; ".join([text, *(reasons or [])]))


class ConnectionLost(Problem):
    """The server, or the way to it, is gone."""


class Mismatch(Problem):
    """A table has other contents after the move than before."""


class Busy(Problem):
    """Other sessions did not let go of a table in time."""
