"""What is told while the server works: one line per step, and how far an ALTER TABLE has come, from the process list."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from ferrite_migrate.errors import Problem
from ferrite_migrate.server import Login, Session

TERMINAL_SECONDS, FILE_SECONDS = 1.0, 30.0


def say(text: str) -> None:
    """A line for the user, at once."""
    print(text, flush=True)


def size(count: int) -> str:
    """Bytes for people."""
    return (
        f"{-(-count // 1024)} KiB"
        if count < 1 << 20
        else f"{-(-count >> 20)} MiB"
        if count < 1 << 33
        else f"{count / 2**30:.0f} GiB"
    )


def duration(seconds: float) -> str:
    """Seconds for people."""
    return (
        f"{max(1, round(seconds))} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


class Watch:
    """Tells how far another session's statement is: each second on a terminal, each half minute elsewhere."""

    def __init__(self, login: Login, watched: int, expected_seconds: float) -> None:
        self.login, self.watched, self.expected = login, watched, expected_seconds
        self.ended = threading.Event()
        self.began = time.monotonic()

    def _line(self, session: Session) -> str:
        rows = session.run(
            f"SELECT IFNULL(STATE, ''), MAX_STAGE, PROGRESS FROM information_schema.PROCESSLIST WHERE ID={self.watched}"
        )
        if not rows:
            return ""
        state, stages, percent = rows[0]
        passed = time.monotonic() - self.began
        told = f"{state or 'working'}, {percent:.0f}%" if stages else str(state or "working")
        left = f", about {duration(self.expected - passed)} left" if self.expected - passed > 1 else ""
        return f"    {told}, {duration(passed)}{left}"

    def run(self) -> None:
        """Until the statement has ended."""
        terminal = sys.stdout.isatty()
        if self.ended.wait(TERMINAL_SECONDS if terminal else FILE_SECONDS):
            return
        with contextlib.suppress(Problem):
            session = Session(self.login)
            while not self.ended.is_set():
                line = self._line(session)
                if terminal:
                    print(f"\r\033[K{line}", end="", flush=True)
                else:
                    say(line)
                self.ended.wait(TERMINAL_SECONDS if terminal else FILE_SECONDS)
            session.close()
            if terminal:
                print("\r\033[K", end="", flush=True)


@contextlib.contextmanager
def watching(login: Login, watched: int, expected_seconds: float) -> Iterator[None]:
    """Tell what the session `watched` does meanwhile."""
    watch = Watch(login, watched, expected_seconds)
    thread = threading.Thread(target=watch.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.ended.set()
        thread.join(5)
