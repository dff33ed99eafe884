"""size-after-churn: what the files grow to, and what comes back."""

from __future__ import annotations

import time

from ferrite_bench.load import Sysbench
from ferrite_bench.machine import disk_bytes
from ferrite_bench.session import Session
from ferrite_bench.workloads.base import TPS, Bars, Case, Data, Experiment, Needs, Panel, Setup, Size, Timeline

CHURN = "after churn"
LOGS = ("ib_logfile*", "redo.[0-9]*", "[0-9]*.log")
"""InnoDB's, Ferrite's and MyRocks' logs."""


def _table_bytes(session: Session) -> float:
    """The data directory without redo logs, whose size is a setting."""
    total = disk_bytes(session.server.datadir)
    return float(total - sum(p.stat().st_blocks * 512 for name in LOGS for p in session.server.datadir.rglob(name)))


def _size(name: str, seconds: float, before: float, act: str = "", load: Sysbench | None = None) -> Case:
    def run(session: Session) -> None:
        if load is not None:
            session.load(load)
        if act:
            session.sql(act)
        time.sleep(before)
        session.figure("table_size", _table_bytes(session), "bytes", "lower")

    return Case(name, run, seconds + before)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 60_000, 1_000_000)
    seconds, calm = size.pick(2, 15, 150), size.pick(0.5, 3, 20)

    def build(session: Session) -> None:
        session.prepare("churn", f"--rows={rows}", own=True)

    churn = Sysbench("churn", 4, seconds, (f"--rows={rows}",), own=True)
    cases = (
        _size("freshly loaded", 0, calm),
        _size(CHURN, seconds, calm, load=churn),
        _size("after DELETE of 90%", rows / 100_000, calm, act="DELETE FROM document WHERE id % 20 <> 0"),
    )
    needs = Needs(pool_mb=size.pick(64, 256, 512), flush=2)
    return [Setup("churn", needs, Data("churn", build, rows // 500 + 256, 1 + rows / 20_000), cases, 1)]


EXPERIMENT = Experiment(
    name="size-after-churn",
    title="Size after churn",
    question="Rows change their length, go and come back; their number stays the same. How much larger do the files get, "
    "and is space given back when most rows are deleted?",
    method="4 threads of updates with new lengths and of moves to a neighbouring key, for a while; then 90% of the rows "
    "are deleted. Redo logs are not counted: they have the size that the settings give them.",
    setups=_setups,
    charts=(
        Bars("Size on disk", "table_size"),
        Timeline("While the churn goes on", CHURN, (TPS, Panel("disk_bytes", "data directory", "bytes"))),
    ),
    headline="table_size",
    extra_figures=("table_size",),
)
