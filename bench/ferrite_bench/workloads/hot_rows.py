"""hot-rows: many updates of few rows, on two servers of each engine in turn: one with a snapshot open, one without."""

from __future__ import annotations

import time
from typing import Any

from ferrite_bench.load import Sysbench
from ferrite_bench.session import Session
from ferrite_bench.terms import OPEN, Needs, Size
from ferrite_bench.workloads.base import (
    HISTORY_BYTES,
    P99,
    TPS,
    Bars,
    Case,
    Data,
    Experiment,
    Panel,
    Setup,
    Timeline,
)  # fmt: skip
from ferrite_bench.workloads.common import SnapshotReads

CASE = "hot rows"
PLAIN, SNAPSHOT = "no snapshot", "snapshot open"
SCAN = "SELECT COUNT(*), SUM(n), SUM(CRC32(CONCAT(id, note, n))) FROM counter"
READS, SCANS = 400, 9


def _timed(connection: Any, sql: str, times: int) -> float:
    """Seconds of a statement at its fastest: what stands in its way on a shared machine does not count."""
    seconds = []
    with connection.cursor() as cursor:
        for _ in range(times):
            begun = time.monotonic()
            cursor.execute(sql)
            cursor.fetchall()
            seconds.append(time.monotonic() - begun)
    return min(seconds)


def _reads(session: Session, when: str) -> None:
    """What a new transaction pays for a primary-key read and for 100 rows of a secondary index."""
    with session.snapshot() as fresh:
        key = _timed(fresh, "SELECT n FROM counter WHERE id = 500", READS)
        wide = _timed(fresh, "SELECT SUM(n) FROM counter FORCE INDEX (by_kind) WHERE kind BETWEEN 401 AND 500", READS)
    session.figure(f"read_key_{when}", key * 1e6, "us", "lower")
    session.figure(f"read_range_{when}", wide * 1e6, "us", "lower")


class OldSnapshot:
    """A snapshot that stays open over all rounds of one contestant."""

    def __init__(self, session: Session) -> None:
        self.connection = session.server.connect(database="bench")
        session.begin_snapshot(self.connection)
        self.reads = SnapshotReads(self.connection, SCAN)
        self.before = self._fastest()

    def finish(self, session: Session) -> None:
        """Read once more, compare, close."""
        session.figure("snapshot_scan_before", self.before * 1e3, "ms", "lower")
        session.figure("snapshot_scan_after", self._fastest() * 1e3, "ms", "lower")
        self.connection.close()
        self.reads.check()

    def _fastest(self) -> float:
        for _ in range(SCANS):
            self.reads.read()
        return min(self.reads.seconds[-SCANS:])


def _case(load: Sysbench, short: Sysbench) -> Case:
    plain: dict[tuple[str, int], float] = {}
    snapshots: dict[str, OldSnapshot] = {}

    def with_snapshot(session: Session) -> None:
        engine, number = session.engine, session.place.round
        if number == 1:
            _reads(session, "before")
            snapshots[engine] = OldSnapshot(session)
            session.mark_now(OPEN)
        outcome = session.load(load, 1)
        tps = outcome.average("tps", 1)
        if plain.get((engine, number)):
            session.figure("kept", tps / plain[engine, number], "x")
        session.figure("chain_p99", outcome.peak("chain_p99"), "versions", "lower")
        session.figure("history_memory", outcome.peak("history_memory"), "bytes", "lower")
        if session.last_round:
            _reads(session, "after")
            snapshots.pop(engine).finish(session)

    def run(session: Session) -> None:
        with session.one_series():
            if session.server.contestant.variant == SNAPSHOT:
                with_snapshot(session)
            else:
                outcome = session.load(short, 1)
                plain[session.engine, session.place.round] = outcome.average("tps", 1)

    return Case(CASE, run, load.seconds + 1)


def _build(session: Session) -> None:
    session.prepare("hot_rows", own=True)


def _setups(size: Size) -> list[Setup]:
    load = Sysbench("hot_rows", 16, size.pick(2, 4, 20), own=True)
    short = Sysbench("hot_rows", 16, size.pick(2, 4, 8), own=True)
    needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=2)
    return [
        Setup("hot rows", needs, Data("hot rows", _build, 64, 1), (_case(load, short),), rounds=size.pick(1, 3, 30))
    ]


VARIANTS = ((PLAIN, ()), (SNAPSHOT, ()))
EXPERIMENT = Experiment(
    name="hot-rows",
    title="Hot rows under a snapshot",
    question="Sixteen threads count on 1,000 rows while one old snapshot is open. Does every update and every read of a row "
    "have to read all the versions that no snapshot needs?",
    method="Single-row updates of 1,000 rows, 16 threads, commits flushed once a second, on two servers of each engine in "
    "turn: one without a snapshot, one with a snapshot that stays open over all rounds (full size: 30 rounds of 20 s, so ten "
    "minutes of updates) and must read the same at the end. 'Kept' compares the two servers of one engine within a round. "
    "Before and after, a new transaction reads by primary key and 100 rows by a secondary index.",
    setups=_setups,
    charts=(
        Bars("Updates per second", "tps"),
        Bars("The snapshot's own scan of the table, at the end", "snapshot_scan_after"),
        Timeline("Updates, history and processor time", CASE,
                 (TPS, HISTORY_BYTES, Panel("server_cpu", "server processors busy", "CPUs"))),
        Timeline("Latency", CASE, (P99,)),
    ),
    headline_cases=(CASE,),
    variants={"ferrite": VARIANTS, "innodb": VARIANTS, "rocksdb": VARIANTS},
    extra_figures=(
        "kept", "chain_p99", "history_memory", "read_key_before", "read_key_after", "read_range_before", "read_range_after",
        "snapshot_scan_before", "snapshot_scan_after",
    ),
)  # fmt: skip
