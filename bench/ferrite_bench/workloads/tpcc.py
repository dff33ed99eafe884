"""tpcc: a load like TPC-C, in memory and durable."""

from __future__ import annotations

from ferrite_bench.load import Sysbench
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import P99, TPS, Bars, Data, Experiment, Panel, Setup, Timeline
from ferrite_bench.workloads.common import simple_case


def _setups(size: Size) -> list[Setup]:
    warehouses, items, customers = size.pick((1, 500, 30), (2, 10_000, 300), (5, 100_000, 3000))
    options = (f"--warehouses={warehouses}", f"--items={items}", f"--customers={customers}")

    def build(session: Session) -> None:
        session.prepare("warehouse", *options, own=True)

    total = warehouses * items // 900 + 1
    seconds, rounds = size.pick((2, 1), (2, 6), (4, 8))
    cases = tuple(
        simple_case(f"{n} clients", Sysbench("warehouse", n, seconds, options, own=True), "", n)
        for n in size.pick((16,), (4, 16), (4, 16, 32))
    )
    data = Data("warehouses", build, total * 4 + 64, 1 + total / 6)
    return [Setup("in memory", Needs(pool_mb=size.pick(64, 512, 4096), flush=1), data, cases, rounds)]


EXPERIMENT = Experiment(
    name="tpcc",
    title="A TPC-C-like load",
    question="Orders, payments, deliveries: a mix of long and short transactions on nine tables. How many per second, and "
    "how evenly?",
    method="The lab's own script: the nine tables and five transactions of TPC-C in the usual mix, no think time; smaller "
    "tables in the quick size. All data in memory, commits durable, no binlog. These are not tpmC figures.",
    setups=_setups,
    charts=(
        Timeline("16 clients", "16 clients", (TPS, P99, Panel("server_cpu", "server processors busy", "CPUs"))),
        Bars("Transactions per second", "tps"),
        Bars("p99 latency", "p99"),
        Bars("Bytes written to the device per transaction", "written_per_txn"),
    ),
    extra_figures=("worst_second",),
)
