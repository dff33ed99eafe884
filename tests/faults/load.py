"""Writing clients that know what was acknowledged."""

from __future__ import annotations

import threading
import time
from random import Random
from typing import Any

import pymysql

from lib.server import Server

ROWS = 40
PAD = 3000


class Writer(threading.Thread):
    """Counts up in rows of its own, one commit each; remembers the last acknowledged value of every row."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__(daemon=True)
        self.server, self.number = server, number
        self.rng = Random(number)
        self.acknowledged = [0] * ROWS
        self.tried = [0] * ROWS
        self.commits = 0
        self.refused = 0
        self.last_refusal = ""
        self.stop = threading.Event()

    def run(self) -> None:
        while not self.stop.is_set():
            try:
                connection = self.server.connect(database="test", autocommit=True)
            except pymysql.err.MySQLError:
                time.sleep(0.05)
                continue
            self._write(connection)

    def _write(self, connection: Any) -> None:
        try:
            with connection.cursor() as cursor:
                while not self.stop.is_set():
                    self._step(cursor)
        except (pymysql.err.InterfaceError, OSError, AttributeError):
            pass
        except pymysql.err.OperationalError as e:
            if e.args[0] not in (2006, 2013, 1053):
                self._refused(e)

    def _step(self, cursor: Any) -> None:
        row = self.rng.randrange(ROWS)
        value = max(self.tried[row], self.acknowledged[row]) + 1
        self.tried[row] = value
        pad = chr(97 + value % 26) * self.rng.randrange(PAD)
        try:
            cursor.execute(
                "UPDATE counter SET value = %s, pad = %s WHERE client = %s AND n = %s", (value, pad, self.number, row)
            )
        except pymysql.err.MySQLError as e:
            if e.args[0] in (2006, 2013, 1053):
                raise
            # Refused, and nothing of it remains: the next value must still be above what was acknowledged.
            self._refused(e)
            time.sleep(0.01)
            return
        self.acknowledged[row] = value
        self.commits += 1

    def _refused(self, e: Exception) -> None:
        self.refused += 1
        self.last_refusal = str(e)


def grow(server: Server, seconds: float) -> tuple[set[int], str]:
    """Insert large rows until one is refused: ids that were acknowledged, and the refusal."""
    connection = server.connect(database="test", autocommit=True)
    acknowledged: set[int] = set()
    until = time.monotonic() + seconds
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE IF NOT EXISTS grown (id INT PRIMARY KEY, b LONGBLOB)")
        for n in range(1_000_000):
            if time.monotonic() > until:
                break
            try:
                cursor.execute("INSERT INTO grown VALUES (%s, REPEAT(MD5(%s), 8000))", (n, n))
            except pymysql.err.MySQLError as e:
                return acknowledged, str(e)
            acknowledged.add(n)
    return acknowledged, ""


def check_grown(server: Server, acknowledged: set[int]) -> list[str]:
    """Rows that are missing or damaged; then the table is dropped."""
    connection = server.connect(database="test", autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM grown WHERE b = REPEAT(MD5(id), 8000)")
        missing = acknowledged - {row[0] for row in cursor.fetchall()}
        cursor.execute("DROP TABLE grown")
    return [f"large row {n} is missing or damaged" for n in sorted(missing)]


def create(server: Server, clients: int) -> None:
    """The table and its rows."""
    connection = server.connect(database="test", autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE counter (client INT, n INT, value BIGINT, pad VARCHAR(4000), PRIMARY KEY (client, n), KEY (value))"
        )
        rows = [(c, n) for c in range(clients) for n in range(ROWS)]
        cursor.executemany("INSERT INTO counter VALUES (%s, %s, 0, '')", rows)


def start(server: Server, clients: int) -> list[Writer]:
    """Begin to write."""
    writers = [Writer(server, n) for n in range(clients)]
    for writer in writers:
        writer.start()
    return writers


def finish(writers: list[Writer]) -> None:
    """End all writers."""
    for writer in writers:
        writer.stop.set()
    for writer in writers:
        writer.join(60)


def check(server: Server, writers: list[Writer]) -> list[str]:
    """What is missing or too much, and what CHECK TABLE says."""
    faults = []
    connection = server.connect(database="test", autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT client, n, value FROM counter")
        found = {(client, n): value for client, n, value in cursor.fetchall()}
        for writer in writers:
            for n in range(ROWS):
                value = found.get((writer.number, n), -1)
                if not writer.acknowledged[n] <= value <= writer.tried[n]:
                    faults.append(
                        f"client {writer.number} row {n}: {value}, acknowledged {writer.acknowledged[n]}, "
                        f"tried {writer.tried[n]}"
                    )
        cursor.execute("CHECK TABLE counter")
        faults += [str(row) for row in cursor.fetchall() if row[2:] != ("status", "OK")]
    return faults
