"""hot-rows: many updates of few rows under a snapshot."""

from __future__ import annotations

import time

from ferrite_bench.errors import LoadFailed
from ferrite_bench.load import Sysbench
from ferrite_bench.session import Session
from ferrite_bench.workloads.base import (
    HISTORY_BYTES,
    P99,
    TPS,
    Case,
    Data,
    Experiment,
    Needs,
    Panel,
    Setup,
    Size,
    Timeline,
)  # fmt: skip
from ferrite_bench.workloads.common import simple_case, snapshot_figures

CASE = "snapshot open"
SCAN = "SELECT COUNT(*), SUM(n), SUM(CRC32(CONCAT(id, note, n))) FROM counter"
PK_READS = 200


def _timed(connection: object, sql: str, times: int = 1) -> tuple[float, tuple[object, ...]]:
    begun = time.monotonic()
    row: tuple[object, ...] = ()
    with connection.cursor() as cursor:  # type: ignore[attr-defined]
        for _ in range(times):
            cursor.execute(sql)
            row = cursor.fetchone() or ()
    return (time.monotonic() - begun) / times, row


def _reads(session: Session, when: str) -> None:
    """What a new transaction pays for a primary-key read and for 100 rows of a secondary index."""
    with session.snapshot() as fresh:
        key, _ = _timed(fresh, "SELECT n FROM counter WHERE id = 500", PK_READS)
        wide, _ = _timed(fresh, "SELECT SUM(n) FROM counter FORCE INDEX (by_kind) WHERE kind BETWEEN 401 AND 500", 20)
    session.figure(f"read_key_{when}", key * 1e6, "us", "lower")
    session.figure(f"read_range_{when}", wide * 1e6, "us", "lower")


def _case(load: Sysbench) -> Case:
    def run(session: Session) -> None:
        _reads(session, "before")
        with session.snapshot() as old:
            with old.cursor() as cursor:
                cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            first, seen = _timed(old, SCAN)
            outcome = session.load(load)
            snapshot_figures(session, outcome, 1, load.seconds)
            _reads(session, "after")
            last, seen_again = _timed(old, SCAN)
        session.figure("snapshot_scan_before", first * 1e3, "ms", "lower")
        session.figure("snapshot_scan_after", last * 1e3, "ms", "lower")
        if seen != seen_again:
            raise LoadFailed(f"WRONG RESULT: the snapshot read {seen} at its start and {seen_again} at its end")

    return Case(CASE, run, load.seconds + 2)


def _build(session: Session) -> None:
    session.prepare("hot_rows", own=True)


def _setups(size: Size) -> list[Setup]:
    seconds = size.pick(3, 30, 600)
    return [
        Setup(
            "hot rows",
            Needs(pool_mb=size.pick(64, 512, 1024), flush=2),
            Data("hot rows", _build, 64, 1),
            (
                simple_case("no snapshot", Sysbench("hot_rows", 16, size.pick(2, 6, 120), own=True)),
                _case(Sysbench("hot_rows", 16, seconds, own=True)),
            ),
            rounds=size.pick(1, 1, 3),
        )
    ]


EXPERIMENT = Experiment(
    name="hot-rows",
    title="Hot rows under a snapshot",
    question="Sixteen threads count on 1,000 rows while one old snapshot is open. Does every read of a row have to walk "
    "past all the versions that nobody needs?",
    method="Single-row updates of 1,000 rows, 16 threads, commits flushed once a second; the snapshot is opened before "
    "the load and read again after it: it must see what it saw at the start. Before and after, a new transaction reads by "
    "primary key and 100 rows by a secondary index.",
    setups=_setups,
    charts=(
        Timeline("Updates, history and processor time under the snapshot", CASE,
                 (TPS, HISTORY_BYTES, Panel("server_cpu", "server processors busy", "CPUs"))),
        Timeline("Latency", CASE, (P99,)),
    ),
    headline="tps_last",
    headline_cases=(CASE,),
    extra_figures=(
        "kept", "read_key_before", "read_key_after", "read_range_before", "read_range_after",
        "snapshot_scan_before", "snapshot_scan_after",
    ),
)  # fmt: skip
