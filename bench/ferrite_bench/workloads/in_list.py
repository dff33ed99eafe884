"""in-list: many keys in one statement."""

from __future__ import annotations

from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Curve, Experiment, Setup
from ferrite_bench.workloads.common import oltp, oltp_data, simple_case, turns


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 100_000, 1_000_000)
    seconds, rounds = turns(size)
    cases = tuple(
        simple_case(
            f"{n} {'key' if n == 1 else 'keys'}",
            oltp("select_random_points", 4, seconds, rows, f"--random-points={n}", uniform=True),
            "",
            n,
        )
        for n in size.pick((10, 100), (1, 10, 100, 1000), (1, 10, 100, 1000, 5000))
    )
    return [Setup("cached", Needs(pool_mb=size.pick(64, 512, 2048)), oltp_data(rows), cases, rounds)]


EXPERIMENT = Experiment(
    name="in-list",
    title="IN with many keys",
    question="SELECT ... WHERE k IN (...) with 1 to thousands of keys: what does each further key cost?",
    method="sysbench select_random_points on the secondary index, uniform keys, 4 threads, all data in memory.",
    setups=_setups,
    charts=(
        Curve("Statements per second", "tps", "keys in the list", log_y=True),
        Curve("Median latency of a statement", "p50", "keys in the list", log_y=True),
    ),
)
