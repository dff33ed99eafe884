"""Pieces that several workloads share: sysbench's own tables and scripts, pairs of cases, figures of a snapshot."""

from __future__ import annotations

import time
from typing import Any

from ferrite_bench.errors import LoadFailed
from ferrite_bench.load import Sysbench
from ferrite_bench.session import Outcome, Session
from ferrite_bench.terms import Size
from ferrite_bench.workloads.base import Case, Data

SBTEST_SUM = "SELECT COUNT(*), SUM(CRC32(CONCAT_WS(',', id, k, c, pad))) FROM sbtest1"
ROW_MB = 1 / 4000
"""What a row of sysbench's table takes on disk, generously."""


def oltp_data(rows: int, tables: int = 1, settled: bool = False) -> Data:
    """sysbench's tables, loaded by sysbench itself; settled: MyRocks' memtables are flushed after loading."""

    def build(session: Session) -> None:
        # The ceiling has one index and cannot rebuild a table.
        plain = ("--create-secondary=off",) if session.engine == "CEILING" else ()
        options = (*plain, f"--tables={tables}", f"--table-size={rows // tables}")
        session.prepare("oltp_read_write", *options, threads=min(tables, 4))
        if settled:
            session.settle()

    return Data(f"oltp-{rows}-{tables}", build, int(rows * ROW_MB * 2) + 64, 1.0 + rows / 60_000)


def oltp(
    script: str, threads: int, seconds: float, rows: int, *options: str, tables: int = 1, uniform: bool = False
) -> Sysbench:
    """One of sysbench's scripts on those tables."""
    extra = ("--rand-type=uniform",) if uniform else ()
    return Sysbench(
        script, threads, seconds, (f"--tables={tables}", f"--table-size={rows // tables}", *extra, *options)
    )


def turns(size: Size) -> tuple[int, int]:
    """Seconds and rounds of a case whose data are in memory.

    The speed of a shared machine wanders: two neighbouring seconds differ by as much as two neighbouring half minutes. So
    the median ratio of many short turns is much surer than that of a few long ones.
    """
    return size.pick((1, 1), (1, 8), (2, 10))


def warmup_of(seconds: float) -> int:
    """Seconds at the start that do not count."""
    return min(10, int(seconds) // 4)


def simple_case(name: str, load: Sysbench, series: str = "", x: float | None = None) -> Case:
    """Nothing but a load."""

    def run(session: Session) -> None:
        session.load(load, warmup_of(load.seconds))

    return Case(name, run, load.seconds + 0.3, series, x)


def under_snapshot(name: str, load: Sysbench, begin: float, end: float, scan: str) -> Case:
    """A load with an idle snapshot open from `begin` to `end`, which must read the same at both ends."""

    def run(session: Session) -> None:
        with session.snapshot() as connection:
            seen = SnapshotReads(connection, scan)
            actions = [
                session.open_snapshot(connection, begin),
                (begin, "", seen.read),
                (end, "", seen.read),
                session.close_snapshot(connection, end),
            ]
            outcome = session.load(load, 0, actions)
            snapshot_figures(session, outcome, begin, end)
            seen.check()

    return Case(name, run, load.seconds + 1)


class SnapshotReads:
    """What one snapshot reads, each time the same statement; the seconds that each took."""

    def __init__(self, connection: Any, scan: str) -> None:
        self.connection = connection
        self.scan = scan
        self.rows: list[Any] = []
        self.seconds: list[float] = []

    def read(self) -> None:
        """Read once more."""
        begun = time.monotonic()
        with self.connection.cursor() as cursor:
            cursor.execute(self.scan)
            self.rows.append(cursor.fetchall())
        self.seconds.append(time.monotonic() - begun)

    def check(self) -> None:
        """Complain unless all of them were equal."""
        if any(rows != self.rows[0] for rows in self.rows):
            raise LoadFailed(f"WRONG RESULT: the snapshot read {self.rows[0]} at its start and {self.rows[-1]} later")


def snapshot_figures(session: Session, outcome: Outcome, begin: float, end: float) -> None:
    """How much of the speed is left when the snapshot has been open for long."""
    stretch = min(10.0, max(1.0, (end - begin) / 4))
    first = outcome.average("tps", begin, begin + stretch)
    last = outcome.average("tps", end - stretch, end)
    session.figure("tps_first", first, "1/s")
    session.figure("tps_last", last, "1/s")
    if first:
        session.figure("kept", last / first, "x")
    if end < len(outcome.seconds):
        session.figure("tps_after", outcome.average("tps", end + 1), "1/s")
