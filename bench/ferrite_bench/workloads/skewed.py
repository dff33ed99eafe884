"""skewed: few rows are hot, scattered over data much larger than the cache."""

from __future__ import annotations

from ferrite_bench.load import Sysbench
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Bars, Experiment, Setup
from ferrite_bench.workloads.common import oltp_data, simple_case


def _setups(size: Size) -> list[Setup]:
    rows, pool = size.pick((5_000, 32), (120_000, 6), (4_000_000, 48))
    seconds = size.pick(2, 2, 60)

    def load(*options: str) -> Sysbench:
        return Sysbench("skewed", 16, seconds, (f"--table-size={rows}", *options), own=True)

    cases = (simple_case("point select", load()), simple_case("update", load("--change=on")))
    return [Setup("large", Needs(pool_mb=pool, flush=2), oltp_data(rows, settled=True), cases, size.pick(1, 1, 2))]


EXPERIMENT = Experiment(
    name="skewed",
    title="Hot rows scattered over data bigger than memory",
    question="Some rows are used much more often than others, and there is at most one of them on a page. What is a cache worth that "
    "holds pages?",
    method="Own script on sysbench's table, 16 threads, keys by Zipf's law with the exponent 0.9, scattered over data twenty times the "
    "cache, direct I/O, commits flushed once a second.",
    setups=_setups,
    charts=(
        Bars("Statements per second", "tps"),
        Bars("Read requests per statement", "reads_per_txn"),
        Bars("Bytes written per statement", "written_per_txn"),
    ),
    extra_figures=("written_per_txn", "reads_per_txn"),
)
