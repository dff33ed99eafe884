"""insert-benchmark: inserts into a table with three secondary indexes that outgrow memory."""

from __future__ import annotations

from ferrite_bench.load import Sysbench
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import TPS, Data, Experiment, Panel, Setup, Timeline
from ferrite_bench.workloads.common import simple_case

CASE = "4 clients, 20 rows a statement"


def _build(session: Session) -> None:
    session.prepare("purchases", own=True)


def _setups(size: Size) -> list[Setup]:
    seconds = size.pick(2, 20, 240)
    needs = Needs(pool_mb=size.pick(32, 32, 128), flush=2)
    data = Data("purchases", _build, size.pick(64, 1500, 20_000), 1)
    return [Setup("inserts", needs, data, (simple_case(CASE, Sysbench("purchases", 4, seconds, own=True)),), 1)]


EXPERIMENT = Experiment(
    name="insert-benchmark",
    title="The insert benchmark",
    question="Rows arrive in order of time, their three secondary indexes in random order. What happens when the indexes "
    "no longer fit in memory?",
    method="4 threads, 20 rows a statement, small cache, direct I/O, commits flushed once a second.",
    setups=_setups,
    charts=(
        Timeline("Statements per second as the table grows", CASE, (TPS, Panel("disk_bytes", "size on disk", "bytes"))),
        Timeline("The device", CASE,
                 (Panel("dev_write_bytes", "written", "bytes/s"), Panel("dev_reads", "reads", "requests/s"))),
    ),
    extra_figures=("worst_second", "written_per_txn", "table_size"),
)  # fmt: skip
