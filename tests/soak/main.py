"""Soak test: a constant load whose clients connect and disconnect in every way; memory and disk use must not grow.

Each client connects, works through a few short tasks (rows with long values, snapshots, temporary tables, XA, savepoints, failing
statements, prepared statements) and leaves: politely, in the middle of a transaction, or by dropping the line. Tables have a
steady number of rows, so whatever grows from one part of the run to the next is a leak.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pymysql

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, stop_on_signals

ROWS = 400
COMPARED_SHARE = 0.7
"""Part of the run that is compared. Caches, ring buffers and the allocator's arenas fill before: until as many tasks are done,
and memory is at rest, however fast the machine is."""
WARM_UP_TASKS = 2000
WARM_UP_SECONDS = 300
REST_SECONDS = 10
REST_PERCENT = 1
STALL_SHARE = 0.25
EXPECTED = (1020, 1062, 1205, 1213, 1317, 1412, 1440, 1402)
GONE = (0, 2006, 2013, 2055, 1927)
Cursor = Any


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test soak", description=__doc__)
    parser.add_argument("--engine", default="ferrite")
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth-percent", type=float, default=6, help="growth of resident memory that is allowed")
    parser.add_argument("--ci", action="store_true", help="one minute")
    arguments = parser.parse_args()
    if arguments.ci:
        arguments.minutes, arguments.growth_percent = 1, 15
    return arguments


@dataclass
class Tally:
    """What the clients met."""

    connections: int = 0
    tasks: int = 0
    unexpected: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def error(self, error: Exception) -> None:
        """Counts an error that is not part of the plan."""
        code = error.args[0] if error.args else 0
        if code in EXPECTED or code in GONE:
            return
        with self.lock:
            self.unexpected[str(error)] = self.unexpected.get(str(error), 0) + 1


class Visitor(threading.Thread):
    """One client after another, until told to stop."""

    def __init__(self, server: Server, number: int, seed: int, tally: Tally, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.server, self.number, self.tally, self.stopped = server, number, tally, stop
        self.rng = Random(f"{seed}:{number}")
        self.xids = 0

    def run(self) -> None:
        """Visits."""
        while not self.stopped.is_set():
            try:
                self.visit()
            except (pymysql.err.MySQLError, OSError) as error:
                self.tally.error(error)

    def visit(self) -> None:
        """One connection from its start to its end."""
        connection = self.server.connect(database="soak", read_timeout=60)
        self.tally.connections += 1
        tasks: list[Callable[[Cursor], None]] = [
            self.change,
            self.change,
            self.fail,
            self.snapshot,
            self.temporary,
            self.distributed,
            self.savepoints,
        ]
        with connection.cursor() as cursor:
            for _ in range(self.rng.randint(1, 12)):
                if self.stopped.is_set():
                    break
                try:
                    self.rng.choice(tasks)(cursor)
                except pymysql.err.MySQLError as error:
                    self.tally.error(error)
                    with contextlib.suppress(pymysql.err.MySQLError):
                        cursor.execute("ROLLBACK")
                self.tally.tasks += 1
            if self.rng.random() < 0.3:
                with contextlib.suppress(pymysql.err.MySQLError):
                    cursor.execute("BEGIN")
                    self.change(cursor)
        if self.rng.random() < 0.5:
            connection.close()
        else:
            connection._force_close()

    # -- tasks

    def row(self) -> int:
        """A row's id."""
        return self.rng.randint(1, ROWS)

    def value(self) -> str:
        """A long or a short value."""
        size = self.rng.choice((10, 100, 900, 3000, 20000, 60000))
        return f"REPEAT('{self.rng.randint(0, 9)}', {size})"

    def change(self, cursor: Cursor) -> None:
        """Rows are replaced, changed, deleted and put back."""
        n = self.row()
        cursor.execute(f"REPLACE INTO t VALUES ({n}, {n}, {self.rng.randint(0, 50)}, {self.value()})")
        cursor.execute(f"UPDATE t SET k = k + 1, v = {self.value()} WHERE id BETWEEN {n} AND {n + 2}")
        cursor.execute(f"DELETE FROM t WHERE id = {self.row()}")

    def fail(self, cursor: Cursor) -> None:
        """Statements that meet a duplicate after their values were written."""
        n, other = self.row(), self.row()
        cursor.execute(f"INSERT IGNORE INTO t VALUES ({n}, {other}, 1, {self.value()})")
        cursor.execute(f"INSERT INTO t VALUES ({n}, {n}, 1, {self.value()}) ON DUPLICATE KEY UPDATE v = {self.value()}")
        cursor.execute(f"INSERT INTO t VALUES ({ROWS + 1}, {other}, 1, {self.value()}), ({n}, {n}, 1, 'x')")

    def snapshot(self, cursor: Cursor) -> None:
        """A read view for a moment."""
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute(f"SELECT id, LENGTH(v) FROM t WHERE id > {self.row()} LIMIT 20")
        time.sleep(self.rng.random() * 0.2)
        cursor.execute(f"SELECT id, MD5(v) FROM t WHERE k < {self.rng.randint(0, 50)} LIMIT 5")
        cursor.execute("COMMIT")

    def temporary(self, cursor: Cursor) -> None:
        """A temporary table, now and then left for the end of the connection."""
        name = f"tt{self.rng.randint(1, 1000000)}"
        cursor.execute(f"CREATE TEMPORARY TABLE {name} (PRIMARY KEY (id)) SELECT id, v FROM t LIMIT 10")
        cursor.execute(f"UPDATE {name} SET v = {self.value()}")
        if self.rng.random() < 0.7:
            cursor.execute(f"DROP TEMPORARY TABLE {name}")

    def distributed(self, cursor: Cursor) -> None:
        """XA, decided by the same client."""
        self.xids += 1
        xid = f"'c{self.number}-{self.xids}'"
        cursor.execute(f"XA START {xid}")
        try:
            n = self.row()
            cursor.execute(f"UPDATE t SET v = {self.value()} WHERE id = {n}")
            cursor.execute(f"XA END {xid}")
            cursor.execute(f"XA PREPARE {xid}")
            cursor.execute(f"{self.rng.choice(('XA COMMIT', 'XA ROLLBACK'))} {xid}")
        except pymysql.err.MySQLError:
            with contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute(f"XA END {xid}")
            with contextlib.suppress(pymysql.err.MySQLError):
                cursor.execute(f"XA ROLLBACK {xid}")
            raise

    def savepoints(self, cursor: Cursor) -> None:
        """A transaction that goes forth and back."""
        cursor.execute("BEGIN")
        for _ in range(3):
            cursor.execute("SAVEPOINT a")
            cursor.execute(f"UPDATE t SET v = {self.value()} WHERE id = {self.row()}")
            if self.rng.random() < 0.5:
                cursor.execute("ROLLBACK TO SAVEPOINT a")
        cursor.execute(self.rng.choice(("COMMIT", "ROLLBACK")))


def resident_bytes(server: Server) -> int:
    """Resident memory of the server."""
    assert server.child is not None
    text = Path(f"/proc/{server.child.pid}/status").read_text(encoding="ascii", errors="replace")
    line = next(x for x in text.splitlines() if x.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def disk_bytes(server: Server) -> int:
    """Bytes that the engine's files take: of those that are not renamed between their listing and the look at them."""
    taken = 0
    for file in (server.datadir / "#ferrite").rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            taken += file.stat().st_blocks * 512
    return taken


def prepare(server: Server) -> None:
    """The table and its first rows."""
    connection = server.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE soak")
        cursor.execute("CREATE TABLE soak.t (id INT PRIMARY KEY, u INT, k INT, v LONGTEXT, UNIQUE KEY (u), KEY (k))")
        rows = ", ".join(f"({n}, {n}, {n % 50}, REPEAT('x', 20000))" for n in range(1, ROWS + 1))
        cursor.execute(f"INSERT INTO soak.t VALUES {rows}")
    connection.close()


def watch(server: Server, seconds: float) -> list[tuple[float, int, int]]:
    """Time, resident memory and disk, once a second."""
    seen = []
    begun = time.monotonic()
    while time.monotonic() - begun < seconds and server.alive():
        time.sleep(1)
        seen.append((time.monotonic() - begun, resident_bytes(server), disk_bytes(server)))
    return seen


def windows(looks: list[int]) -> tuple[list[int], list[int]]:
    """The last looks, one a second, and those before them."""
    return looks[-2 * REST_SECONDS : -REST_SECONDS], looks[-REST_SECONDS:]


def is_at_rest(memory: list[int]) -> bool:
    """Whether memory has hardly risen of late."""
    before, last = windows(memory)
    return len(before) == REST_SECONDS and max(last) < max(before) * (1 + REST_PERCENT / 100)


def is_at_work(tasks: list[int]) -> bool:
    """Whether the clients have done about as much of late as ever: where they stall, memory is at rest, too."""
    done = [now - then for then, now in itertools.pairwise([0, *tasks])]
    least = REST_SECONDS * STALL_SHARE * sum(done) / len(done)
    return all(sum(window) >= least for window in windows(done))


def warm_up(server: Server, tally: Tally) -> bool:
    """Until what the clients do takes no more memory than before; False if it always takes more, which is a leak."""
    memory: list[int] = []
    tasks: list[int] = []
    while len(memory) < WARM_UP_SECONDS and server.alive():
        time.sleep(1)
        memory.append(resident_bytes(server))
        tasks.append(tally.tasks)
        if tally.tasks >= WARM_UP_TASKS and is_at_rest(memory) and is_at_work(tasks):
            return True
    # A stall at the very end is no leak.
    return is_at_rest(memory)


def growth_percent(seen: list[int]) -> float:
    """How much the highest of the last third is above that of the first third."""
    third = max(1, len(seen) // 3)
    first, last = max(seen[:third]), max(seen[-third:])
    return 100.0 * (last - first) / first if first else 0.0


def settle_prepared(server: Server) -> None:
    """Rolls back what clients left prepared."""
    connection = server.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("XA RECOVER FORMAT='SQL'")
        for row in cursor.fetchall():
            cursor.execute(f"XA ROLLBACK {row[3]}")
        cursor.execute("CHECK TABLE soak.t EXTENDED")
        verdict = cursor.fetchall()
    connection.close()
    if verdict[-1][-1] != "OK":
        raise SystemExit(f"CHECK TABLE: {verdict}")


def soak(server: Server, arguments: argparse.Namespace) -> int:
    """The run; 0 when nothing grew and nothing unexpected happened."""
    prepare(server)
    tally, stop = Tally(), threading.Event()
    visitors = [Visitor(server, n, arguments.seed, tally, stop) for n in range(arguments.clients)]
    for visitor in visitors:
        visitor.start()
    begun = time.monotonic()
    rests = warm_up(server, tally)
    warm = time.monotonic() - begun
    seen = watch(server, arguments.minutes * 60 * COMPARED_SHARE)
    stop.set()
    for visitor in visitors:
        visitor.join(30)
    if not server.alive():
        print(f"the server died:\n{server.log_tail()}")
        return 1
    settle_prepared(server)
    memory, disk = (growth_percent([x[column] for x in seen]) for column in (1, 2))
    peak = max(x[1] for x in seen) >> 20
    print(
        f"{tally.connections} connections, {tally.tasks} tasks in {warm + seen[-1][0]:.0f} s; after {warm:.0f} s resident memory "
        f"{seen[0][1] >> 20} MiB, at most {peak} MiB, growth {memory:+.1f}%; files {seen[-1][2] >> 20} MiB, growth {disk:+.1f}%"
    )
    for text, count in tally.unexpected.items():
        print(f"unexpected, {count} times: {text}")
    grew = memory > arguments.growth_percent or disk > 5 * arguments.growth_percent
    if grew:
        print(f"more than {arguments.growth_percent}% of memory or {5 * arguments.growth_percent}% of files: a leak")
    if not rests:
        print(f"memory still rose after {warm:.0f} s: a leak")
    return int(grew or not rests or bool(tally.unexpected))


def main() -> int:
    """Run."""
    arguments = _arguments()
    stop_on_signals()
    kind = engine(arguments.engine)
    options = [
        kind.flush(2),
        kind.pool("64M"),
        kind.lock_wait(2),
        "--loose-ferrite-log-budget=64M",
        "--max-connections=200",
    ]
    server = Server(find_places(), kind, options)
    server.start()
    try:
        return soak(server, arguments)
    finally:
        server.remove()


if __name__ == "__main__":
    sys.exit(main())
