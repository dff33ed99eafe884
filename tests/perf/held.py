"""Large numbers of locks, versions and snapshots, on two engines in turn: ranges, values of an old snapshot, rows, a queue, snapshots."""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, stop_on_signals
from lib.sysbench import side_by_side, sysbench

QUEUE = str(Path(__file__).resolve().parents[2] / "bench" / "lua" / "queue.lua")
PARTS = ("ranges", "values", "rows", "queue", "snapshots")
SCANNED = 90
"""Rows of one range."""
APART = 100
"""Rows from the start of one range to the next: ranges that touch would become one."""
VALUE_BYTES = 8300
"""Longer than a row that lies in one page."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test perf held", description=__doc__)
    parser.add_argument("--engines", default="innodb,ferrite", help="reference, engine under test")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--ranges", type=int, default=4000, help="ranges that one transaction locks")
    parser.add_argument("--values", type=int, default=45000, help="out-of-line values that an old snapshot needs")
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows that one statement locks")
    parser.add_argument("--consumers", type=int, default=16, help="of a queue, with SKIP LOCKED")
    parser.add_argument("--snapshots", default="50,1000", help="snapshots open during a load, in turn")
    parser.add_argument("--time", type=int, default=20, help="seconds of one run, and in which snapshots are opened")
    parser.add_argument("--only", default="", help=", ".join(PARTS))
    return parser.parse_args()


def _options(kind: Any, arguments: argparse.Namespace) -> list[str]:
    most = max(int(n) for n in arguments.snapshots.split(",")) + 100
    common = ["--performance-schema=OFF", "--skip-log-bin", f"--max-connections={most}", "--max-allowed-packet=64M"]
    return [kind.pool("1G"), kind.flush(2), kind.lock_wait(100), *common]


@contextlib.contextmanager
def _session(server: Server, autocommit: bool = True) -> Iterator[tuple[Any, Any]]:
    connection = server.connect(database="sbtest", autocommit=autocommit, ssl_disabled=True)
    try:
        with connection.cursor() as cursor:
            yield connection, cursor
    finally:
        connection.close()


def _resident_bytes(server: Server) -> int:
    assert server.child
    pages = int(Path(f"/proc/{server.child.pid}/statm").read_text().split()[1])
    return pages * 4096


# ---- ranges ------------------------------------------------------------------------------------


def ranges(server: Server, arguments: argparse.Namespace) -> float:
    """Seconds in which one transaction locks so many ranges, from the last to the first and then from the first."""
    rows = arguments.ranges * APART
    with _session(server, autocommit=False) as (connection, cursor):
        cursor.execute(f"CREATE OR REPLACE TABLE held (id INT PRIMARY KEY, n INT) ENGINE={server.engine.name}")
        cursor.execute(f"INSERT INTO held SELECT seq, 0 FROM seq_1_to_{rows}")
        connection.commit()
        cursor.execute(
            f"""CREATE OR REPLACE PROCEDURE lock_ranges() BEGIN
            DECLARE i INT DEFAULT 0; DECLARE found INT;
            WHILE i < {arguments.ranges} DO
                SELECT COUNT(n) INTO found FROM held
                    WHERE id BETWEEN i * 1237 % {arguments.ranges} * {APART} + 1
                    AND i * 1237 % {arguments.ranges} * {APART} + {SCANNED} FOR UPDATE;
                SET i = i + 1;
            END WHILE; END"""
        )
        begun = time.monotonic()
        cursor.execute("CALL lock_ranges()")
        connection.commit()
        return time.monotonic() - begun


# ---- values of an old snapshot -------------------------------------------------------------------


def values(server: Server, arguments: argparse.Namespace) -> float:
    """The longest commit, in ms, while a snapshot keeps so many deleted values."""
    with _session(server) as (_, cursor), _session(server, autocommit=False) as (old, reader):
        cursor.execute(f"CREATE OR REPLACE TABLE blobs (id INT PRIMARY KEY, b TEXT) ENGINE={server.engine.name}")
        cursor.execute(f"CREATE OR REPLACE TABLE beside (id INT PRIMARY KEY, n INT) ENGINE={server.engine.name}")
        cursor.execute(f"INSERT INTO blobs SELECT seq, REPEAT('x', {VALUE_BYTES}) FROM seq_1_to_{arguments.values}")
        cursor.execute("INSERT INTO beside VALUES (1, 0)")
        reader.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("DELETE FROM blobs")
        longest = 0.0
        end = time.monotonic() + arguments.time
        while time.monotonic() < end:
            begun = time.monotonic()
            cursor.execute("UPDATE beside SET n = n + 1")
            longest = max(longest, time.monotonic() - begun)
        reader.execute("SELECT COUNT(*), SUM(LENGTH(b)) FROM blobs")
        kept = reader.fetchone()
        if kept != (arguments.values, VALUE_BYTES * arguments.values):
            sys.exit(f"{server.engine.name}: the snapshot finds {kept}")
        old.rollback()
    return longest * 1000


# ---- rows of one statement -----------------------------------------------------------------------


def rows(server: Server, arguments: argparse.Namespace) -> tuple[float, float, float]:
    """Seconds to lock all rows, MiB of memory that it takes, seconds to release them."""
    with _session(server, autocommit=False) as (connection, cursor):
        cursor.execute("SHOW TABLES LIKE 'many'")
        if not cursor.fetchall():
            cursor.execute(f"CREATE TABLE many (id INT PRIMARY KEY, n INT) ENGINE={server.engine.name}")
            for first in range(1, arguments.rows + 1, 500_000):
                last = min(first + 499_999, arguments.rows)
                cursor.execute(f"INSERT INTO many SELECT seq, 0 FROM seq_{first}_to_{last}")
                connection.commit()
        cursor.execute("SELECT SUM(n) FROM many")
        connection.commit()
        before = _resident_bytes(server)
        begun = time.monotonic()
        cursor.execute("SELECT SUM(n) FROM many FOR UPDATE")
        locked = time.monotonic()
        taken = _resident_bytes(server) - before
        connection.commit()
        released = time.monotonic()
    return locked - begun, taken / (1 << 20), released - locked


# ---- a queue ---------------------------------------------------------------------------------------


def queue(server: Server, arguments: argparse.Namespace) -> float:
    """Jobs a second through a queue."""
    options = ("--jobs=20000", f"--threads={arguments.consumers}")
    sysbench(server, QUEUE, "prepare", *options)
    done = sysbench(server, QUEUE, "run", *options, f"--time={arguments.time}", "--mysql-ignore-errors=1213")
    if not done.tps:
        sys.exit(f"{server.engine.name} failed:\n{done.text[-2000:]}")
    return done.tps


# ---- snapshots -------------------------------------------------------------------------------------


LOAD = ("--tables=1", "--table-size=20000", "--threads=4")
TURN_SECONDS = 3
"""The machine's speed drifts: who is compared takes turns as short as this."""
TURNS = 6
"""Of each of the two, in one pair."""


@contextlib.contextmanager
def _old_readers(server: Server, number: int, seconds: int) -> Iterator[None]:
    """So many snapshots, opened one after the other beside the load."""
    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(_session(server, autocommit=False))[1] for _ in range(number)]
        opened = threading.Event()

        def open_them() -> None:
            for reader in readers:
                reader.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                time.sleep(seconds / number)
            opened.set()

        thread = threading.Thread(target=open_them)
        thread.start()
        while not opened.is_set():
            sysbench(server, "oltp_write_only", "run", *LOAD, "--time=2")
        thread.join()
        yield


def snapshots(pair: list[Server], number: int, arguments: argparse.Namespace) -> list[tuple[float, float]]:
    """Transactions a second of a server without snapshots and of its twin with so many, in turns."""
    found = []
    for server in pair:
        sysbench(server, "oltp_write_only", "prepare", *LOAD)
    sysbench(pair[0], "oltp_write_only", "run", *LOAD, f"--time={arguments.time}")
    with _old_readers(pair[1], number, arguments.time):
        for turn in range(arguments.pairs * TURNS):
            tps = {}
            for server in pair if turn % 2 else reversed(pair):
                tps[server] = sysbench(server, "oltp_write_only", "run", *LOAD, f"--time={TURN_SECONDS}").tps
            found.append((tps[pair[0]], tps[pair[1]]))
    for server in pair:
        sysbench(server, "oltp_write_only", "cleanup", *LOAD)
    return found


# ---- both engines in turn --------------------------------------------------------------------------


def _pairs(
    servers: list[Server], arguments: argparse.Namespace, name: str, unit: str, one: Callable[..., float]
) -> float:
    """The median ratio of the engine under test to the reference."""
    found = []
    for number in range(1, arguments.pairs + 1):
        pair = [one(server, arguments) for server in servers]
        found.append(pair[1] / pair[0])
        text = ", ".join(f"{s.engine.name} {x:.2f} {unit}" for s, x in zip(servers, pair, strict=True))
        print(f"  {name} {number}: {text}", flush=True)
    return statistics.median(found)


def _told(held: bool, text: str) -> bool:
    print(f"{text}: {'held' if held else 'MISSED'}", flush=True)
    return held


def compare_ranges(servers: list[Server], arguments: argparse.Namespace) -> bool:
    """At most 1.5 times the reference's time."""
    ratio = _pairs(servers, arguments, "ranges", "s", ranges)
    return _told(
        ratio <= 1.5, f"ranges: {arguments.ranges} in one transaction, time {ratio:.2f} of the reference (1.5)"
    )


def compare_values(servers: list[Server], arguments: argparse.Namespace) -> bool:
    """No commit above 50 ms."""
    worst = []
    for number in range(1, arguments.pairs + 1):
        pair = [values(server, arguments) for server in servers]
        worst.append(pair[1])
        text = ", ".join(f"{s.engine.name} {x:.1f} ms" for s, x in zip(servers, pair, strict=True))
        print(f"  values {number}: longest commit {text}", flush=True)
    longest = max(worst)
    return _told(
        longest <= 50, f"values: {arguments.values} deleted under a snapshot, longest commit {longest:.1f} ms (50)"
    )


def compare_rows(servers: list[Server], arguments: argparse.Namespace) -> bool:
    """At most 64 MiB, released in under a second."""
    worst_mib, worst_s = 0.0, 0.0
    for number in range(1, arguments.pairs + 1):
        for server in servers:
            lock_s, mib, release_s = rows(server, arguments)
            print(
                f"  rows {number}: {server.engine.name} locked in {lock_s:.1f} s, {mib:.1f} MiB, released in {release_s:.3f} s",
                flush=True,
            )
            if server is servers[-1]:
                worst_mib, worst_s = max(worst_mib, mib), max(worst_s, release_s)
    text = f"rows: {arguments.rows} locked by one statement, {worst_mib:.1f} MiB (64), released in {worst_s:.3f} s (1)"
    return _told(worst_mib <= 64 and worst_s < 1, text)


def compare_queues(servers: list[Server], arguments: argparse.Namespace) -> bool:
    """At least 1.5 times the reference's throughput."""
    ratio = _pairs(servers, arguments, "queue", "jobs/s", queue)
    return _told(ratio >= 1.5, f"queue: {arguments.consumers} consumers, {ratio:.2f} of the reference (1.5)")


def compare_snapshots(servers: list[Server], arguments: argparse.Namespace) -> bool:
    """What 50 cost is less than 10% of the throughput, what more cost less than 20%."""
    held = True
    for server in servers:
        with side_by_side([Server(server.places, server.engine, server.options)]) as twin:
            for count in (int(n) for n in arguments.snapshots.split(",")):
                turns = snapshots([server, *twin], count, arguments)
                ratios = sorted(beside / alone for alone, beside in turns)
                ratio = statistics.median(ratios)
                quarter = len(ratios) // 4
                print(
                    f"  {count} snapshots: {server.engine.name} {statistics.median(t[0] for t in turns):.0f} tps without,"
                    f" {statistics.median(t[1] for t in turns):.0f} with; of {len(turns)} pairs of turns half gave"
                    f" {ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f} of the throughput, the median {ratio:.2f}",
                    flush=True,
                )
                if server is servers[-1]:
                    least = 0.9 if count <= 50 else 0.8
                    text = f"snapshots: {count} leave {ratio:.2f} of the throughput ({least})"
                    held = _told(ratio >= least, text) and held
    return held


COMPARE = dict(
    zip(PARTS, (compare_ranges, compare_values, compare_rows, compare_queues, compare_snapshots), strict=True)
)


def main() -> int:
    """Run; 0 when every figure holds."""
    arguments = _arguments()
    stop_on_signals()
    chosen = arguments.only.split(",") if arguments.only else list(PARTS)
    kinds = [engine(name) for name in arguments.engines.split(",")]
    servers = [Server(find_places(), kind, _options(kind, arguments)) for kind in kinds]
    held = True
    with side_by_side(servers):
        for part in chosen:
            held = COMPARE[part](servers, arguments) and held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
