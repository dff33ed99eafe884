"""size-after-churn: what the files grow to, and what comes back."""

from __future__ import annotations

import time

from ferrite_bench.load import Sysbench
from ferrite_bench.machine import table_bytes
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import TPS, Bars, Case, Data, Experiment, Panel, Setup, Timeline

CHURN = "after churn"


def _closed_size(session: Session) -> float:
    """Bytes of the files of a server that has been shut down: nothing is in memory or in a log only."""
    session.server.stop()
    size = table_bytes(session.server.datadir)
    session.server.start()
    return float(size)


def _size(name: str, seconds: float, before: float, act: str = "", load: Sysbench | None = None) -> Case:
    def run(session: Session) -> None:
        if load is not None:
            session.load(load)
        if act:
            session.sql(act)
        time.sleep(before)
        session.figure("table_size", _closed_size(session), "bytes", "lower")

    return Case(name, run, seconds + before + 2)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 60_000, 500_000)
    seconds, calm = size.pick(2, 10, 75), size.pick(0.5, 2, 10)

    def build(session: Session) -> None:
        session.prepare("churn", f"--rows={rows}", own=True)

    churn = Sysbench("churn", 4, seconds, (f"--rows={rows}",), own=True)
    cases = (
        _size("freshly loaded", 0, calm),
        _size(CHURN, seconds, calm, load=churn),
        _size("after DELETE of 90%", rows / 100_000, calm, act="DELETE FROM document WHERE id DIV 2 % 10 <> 0"),
    )
    needs = Needs(pool_mb=size.pick(64, 256, 512), flush=2)
    return [Setup("churn", needs, Data("churn", build, rows // 500 + 256, 1 + rows / 20_000), cases, 1)]


EXPERIMENT = Experiment(
    name="size-after-churn",
    title="Size after churn",
    question="Rows change their length, are deleted and inserted again; their number stays the same. How much larger do the "
    "files get, and is space returned when most rows are deleted?",
    method="4 threads of updates with new lengths and of moves to a neighbouring key, for a while; then 90% of the rows "
    "are deleted. Each size is that of the files of a server that has been shut down, so that nothing is in memory only; "
    "logs are not counted, they have the size that the settings give them.",
    setups=_setups,
    charts=(
        Bars("Size on disk", "table_size"),
        Timeline("While the churn goes on", CHURN, (TPS, Panel("disk_bytes", "data directory", "bytes"))),
    ),
    headline="table_size",
    extra_figures=("table_size",),
)
