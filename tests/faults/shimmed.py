"""A server with a library in front of the system's calls."""

from __future__ import annotations

from lib.server import Server


class Failed(Exception):
    """The server did not do what it must."""


class Shimmed(Server):
    """Its calls can be made to fail."""

    environment: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """The full command line."""
        return ["env", *self.environment, *super().command()]


def say(text: str) -> None:
    """A line of the report, at once."""
    print(text, flush=True)
