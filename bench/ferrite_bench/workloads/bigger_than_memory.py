"""bigger-than-memory: random reads and updates on data several times the cache."""

from __future__ import annotations

from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Bars, Experiment, Setup
from ferrite_bench.workloads.common import oltp, oltp_data, simple_case

SCRIPTS = (
    ("point select", "oltp_point_select"),
    ("update", "oltp_update_non_index"),
    ("update of the index", "oltp_update_index"),
)


def _setups(size: Size) -> list[Setup]:
    rows, pool = size.pick((5_000, 32), (400_000, 32), (4_000_000, 128))
    seconds = size.pick(2, 6, 20)
    cases = tuple(simple_case(name, oltp(script, 16, seconds, rows, uniform=True)) for name, script in SCRIPTS)
    return [Setup("large", Needs(pool_mb=pool, flush=2), oltp_data(rows, settled=True), cases, size.pick(1, 1, 2))]


EXPERIMENT = Experiment(
    name="bigger-than-memory",
    title="Data bigger than memory",
    question="The buffer pool holds a small part of the data, and all keys are equally likely. How many requests and "
    "bytes does a statement need on the device?",
    method="sysbench, 16 threads, uniform keys, data several times the cache, direct I/O, commits flushed once a second.",
    setups=_setups,
    charts=(
        Bars("Statements per second", "tps"),
        Bars("Bytes written per statement", "written_per_txn"),
        Bars("Read requests per statement", "reads_per_txn"),
        Bars("Size without logs", "table_size"),
    ),
    extra_figures=("written_per_txn", "reads_per_txn", "table_size"),
)
