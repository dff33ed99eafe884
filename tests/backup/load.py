"""Clients that commit all the time, and how long the longest of their commits took."""

from __future__ import annotations

import contextlib
import threading
import time
from random import Random
from typing import Any, Protocol

CHUNK_ROWS = 250_000
"""Rows of one transaction that fills the table."""


class Connects(Protocol):
    """A server."""

    def connect(self, **keywords: Any) -> Any:
        """A connection."""


def fill_wide(cursor: Any, rows: int) -> None:
    """The table that the clients change: a million rows are one gigabyte."""
    cursor.execute("CREATE TABLE wide (n INT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(1000)) ENGINE=FERRITE")
    for first in range(0, rows, CHUNK_ROWS):
        last = min(first + CHUNK_ROWS, rows) - 1
        cursor.execute(f"INSERT INTO wide SELECT seq, 0, REPEAT(CHAR(65 + seq % 26), 900) FROM seq_{first}_to_{last}")


class Load:
    """Clients that update one row a transaction; counts commits, and the longest since it was last asked."""

    def __init__(self, server: Connects, clients: int, rows: int) -> None:
        self.rows = rows
        self.stopping = threading.Event()
        self.commits = [0] * clients
        self.longest = [0.0] * clients
        self.error: BaseException | None = None
        self.threads = [threading.Thread(target=self._work, args=(server, n)) for n in range(clients)]
        for thread in self.threads:
            thread.start()

    def _work(self, server: Connects, number: int) -> None:
        try:
            self._update(server, number)
        except BaseException as e:
            self.error = e

    def _update(self, server: Connects, number: int) -> None:
        rng = Random(number)
        connection = server.connect(database="test", autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            while not self.stopping.is_set():
                begun = time.monotonic()
                cursor.execute(f"UPDATE wide SET v = v + 1 WHERE n = {rng.randrange(self.rows)}")
                self.longest[number] = max(self.longest[number], time.monotonic() - begun)
                self.commits[number] += 1

    def rate(self, begun: tuple[float, int]) -> float:
        """Commits a second since then."""
        return (sum(self.commits) - begun[1]) / (time.monotonic() - begun[0])

    def longest_ms(self) -> float:
        """The longest commit since `now`, in ms."""
        return max(self.longest) * 1000

    def now(self) -> tuple[float, int]:
        """A moment for `rate`; the longest commit is forgotten."""
        self.longest = [0.0] * len(self.commits)
        return time.monotonic(), sum(self.commits)

    def stop(self) -> None:
        """End it; the first error of a client is raised."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        if self.error:
            raise self.error
