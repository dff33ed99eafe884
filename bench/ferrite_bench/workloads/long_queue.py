"""long-queue: the queue of `queue`, its snapshot open for twelve minutes."""

from __future__ import annotations

from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Data, Experiment, Setup
from ferrite_bench.workloads.queue import CASE, CHARTS, FIGURES, build, open_case


def _setups(size: Size) -> list[Setup]:
    begin, end = size.pick((1, 4), (5, 65), (10, 730))
    needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=2)
    return [Setup("queue", needs, Data("queue", build, 64, 1), (open_case(begin, end),), rounds=1)]


EXPERIMENT = Experiment(
    name="long-queue",
    title="A queue while a snapshot stays open for a long time",
    question="The experiment `queue` shows what an old snapshot does to a queue within two minutes. What happens after that?",
    method="As `queue`: 4 threads; each event inserts one row at the tail, then locks and deletes the one at the head.",
    setups=_setups,
    charts=CHARTS,
    headline="tps_last",
    headline_cases=(CASE,),
    extra_figures=FIGURES,
    apart=True,
)
