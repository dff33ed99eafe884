"""many-snapshots: fifty snapshots of different ages under a load, each read at its start and at the end."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from ferrite_bench.session import Action, Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import (
    HISTORY,
    HISTORY_BYTES,
    P99,
    TPS,
    Case,
    Experiment,
    Setup,
    Timeline,
)  # fmt: skip
from ferrite_bench.workloads.common import SBTEST_SUM, SnapshotReads, oltp, oltp_data, snapshot_figures

CASE = "one more snapshot each second"


def _opening(session: Session, connection: Any, at: float, seen: SnapshotReads) -> Action:
    """Opens it and reads it; on a thread of its own, so that the clock goes on."""

    def read() -> None:
        session.begin_snapshot(connection)
        seen.read()

    return (at, "", threading.Thread(target=read, daemon=True).start)


def _case(snapshots: int, rows: int, seconds: float) -> Case:
    def run(session: Session) -> None:
        with contextlib.ExitStack() as stack:
            connections = [stack.enter_context(session.snapshot()) for _ in range(snapshots)]
            seen = [SnapshotReads(c, SBTEST_SUM) for c in connections]
            actions = [_opening(session, c, 1.0 + i, s) for i, (c, s) in enumerate(zip(connections, seen, strict=True))]
            outcome = session.load(oltp("oltp_write_only", 4, seconds, rows), 0, actions)
            snapshot_figures(session, outcome, 1, seconds)
            session.figure("chain_p99", outcome.peak("chain_p99"), "versions", "lower")
            for one in seen:
                one.read()
                one.check()

    return Case(CASE, run, seconds + snapshots / 4)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(1_000, 10_000, 20_000)
    snapshots, seconds = size.pick((3, 5), (8, 11), (50, 70))
    needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=2, sessions=64)
    return [Setup("snapshots", needs, oltp_data(rows), (_case(snapshots, rows, seconds),), rounds=1)]


EXPERIMENT = Experiment(
    name="many-snapshots",
    title="Fifty snapshots of different age",
    question="Each second one more reader opens a snapshot and keeps it. What does this cost the load, and does each reader "
    "still read what it read at first?",
    method="sysbench oltp_write_only, 4 threads, commits flushed once a second; each snapshot reads a sum over all rows when "
    "it opens and again at the end, and must get the same.",
    setups=_setups,
    charts=(
        Timeline("Transactions and history", CASE, (TPS, HISTORY)),
        Timeline("Latency and bytes of history", CASE, (P99, HISTORY_BYTES)),
    ),
    headline="tps_last",
    headline_cases=(CASE,),
    extra_figures=("tps_first", "tps_last", "kept", "chain_p99"),
)
