"""secondary-churn: updates of an indexed column under a snapshot, then a covering scan by somebody new."""

from __future__ import annotations

from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import HISTORY, TPS, Bars, Case, Experiment, Panel, Setup, Timeline
from ferrite_bench.workloads.common import oltp, oltp_data, simple_case, snapshot_figures

CASE = "snapshot open"


def _scan(session: Session, rows: int) -> float:
    """Milliseconds of the best of three covering scans of the middle half of the index."""
    sql = f"SELECT COUNT(*) FROM sbtest1 FORCE INDEX (k_1) WHERE k BETWEEN {rows // 4} AND {rows * 3 // 4}"
    return min(session.timed_sql(sql) for _ in range(3)) * 1e3


def _case(rows: int, seconds: int) -> Case:
    def run(session: Session) -> None:
        session.figure("scan_before", _scan(session, rows), "ms", "lower")
        with session.snapshot() as connection:
            load = oltp("oltp_update_index", 4, seconds, rows)
            outcome = session.load(load, 0, [session.open_snapshot(connection, 0.5)])
            snapshot_figures(session, outcome, 1, seconds)
            session.figure("scan_after", _scan(session, rows), "ms", "lower")

    return Case(CASE, run, seconds + 3)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 100_000, 1_000_000)
    return [
        Setup(
            "churn",
            Needs(pool_mb=size.pick(64, 512, 2048), flush=2),
            oltp_data(rows),
            (
                simple_case("no snapshot", oltp("oltp_update_index", 4, size.pick(2, 6, 30), rows)),
                _case(rows, size.pick(3, 16, 600)),
            ),
            rounds=1,
        )
    ]


EXPERIMENT = Experiment(
    name="secondary-churn",
    title="Secondary index churn under a snapshot",
    question="Every update moves an entry of a secondary index. With an old snapshot open, what do the old entries cost "
    "a new reader of that index?",
    method="sysbench oltp_update_index, 4 threads, commits flushed once a second; a covering range scan over half of the "
    "index by a new transaction before the load and after it, the snapshot still open.",
    setups=_setups,
    charts=(
        Timeline("Updates and history under the snapshot", CASE, (TPS, HISTORY)),
        Bars("The covering scan when the churn is over", "scan_after", (CASE,)),
        Timeline("Size of the data directory", CASE, (Panel("disk_bytes", "size on disk", "bytes"),)),
    ),
    headline="tps_last",
    headline_cases=(CASE,),
    extra_figures=("kept", "scan_before", "scan_after"),
)
