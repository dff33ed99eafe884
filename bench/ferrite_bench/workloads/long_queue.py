"""long-queue: the queue of `queue`, its snapshot open for twelve minutes."""

from __future__ import annotations

from ferrite_bench.workloads.base import (
    HISTORY,
    HISTORY_BYTES,
    P99,
    TPS,
    Data,
    Experiment,
    Needs,
    Setup,
    Size,
    Timeline,
)
from ferrite_bench.workloads.queue import CASE, build, open_case


def _setups(size: Size) -> list[Setup]:
    begin, end = size.pick((1, 4), (5, 65), (10, 730))
    needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=2)
    return [Setup("queue", needs, Data("queue", build, 64, 1), (open_case(begin, end),), rounds=1)]


EXPERIMENT = Experiment(
    name="long-queue",
    title="A queue while a snapshot stays open for long",
    question="The experiment `queue` shows what an old snapshot does to a queue within two minutes. And later on?",
    method="As `queue`: 4 threads; each event inserts one row at the tail, then locks and deletes the one at the head.",
    setups=_setups,
    charts=(
        Timeline("Transactions and history over time, snapshot open", CASE, (TPS, HISTORY)),
        Timeline("Latency and bytes of history", CASE, (P99, HISTORY_BYTES)),
    ),
    headline="tps_last",
    headline_cases=(CASE,),
    extra_figures=("tps_first", "tps_last", "kept", "tps_after"),
    apart=True,
)
