"""queue: a work queue while one snapshot stays open."""

from __future__ import annotations

from ferrite_bench.load import Sysbench
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import HISTORY, HISTORY_BYTES, P99, TPS, Case, Data, Experiment, Setup, Timeline
from ferrite_bench.workloads.common import simple_case, under_snapshot

CASE = "snapshot open"


def build(session: Session) -> None:
    """A thousand jobs."""
    session.prepare("queue", own=True)


def _setups(size: Size) -> list[Setup]:
    quiet = size.pick(2, 5, 10)
    needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=2)
    data = Data("queue", build, 64, 1)
    cases = (
        simple_case("no snapshot", Sysbench("queue", 4, quiet, own=True)),
        open_case(*size.pick((1, 4), (3, 20), (10, 130))),
    )
    return [Setup("queue", needs, data, cases, rounds=size.pick(1, 1, 3))]


def open_case(begin: float, end: float) -> Case:
    """A snapshot from `begin` to `end`, and a while without it afterwards."""
    load = Sysbench("queue", 4, end + min(8, begin * 2), own=True)
    return under_snapshot(CASE, load, begin, end, "SELECT COUNT(*), SUM(id) FROM job")


CHARTS = (
    Timeline("Transactions and history over time, snapshot open", CASE, (TPS, HISTORY)),
    Timeline("Latency and bytes of history", CASE, (P99, HISTORY_BYTES)),
)
FIGURES = ("tps_first", "tps_last", "kept", "tps_after")
EXPERIMENT = Experiment(
    name="queue",
    title="A queue while a snapshot stays open",
    question="Jobs are put at the tail of a table and taken from its head. Another session opens a REPEATABLE READ snapshot "
    "and does nothing with it. How does that affect the queue?",
    method="4 threads; each event inserts one row at the tail, then locks and deletes the one at the head; 1,000 rows wait. "
    "Commits are written but flushed once a second. The picture shows one run; the dashed lines show when the snapshot "
    "was opened and closed.",
    story="The oldest complaint about InnoDB and XtraDB: deleted rows accumulate at the head as long as a snapshot might "
    "need them, and every worker scans them.",
    setups=_setups,
    charts=CHARTS,
    headline="tps_last",
    headline_cases=(CASE,),
    extra_figures=FIGURES,
)
