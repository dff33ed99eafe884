"""binlog: what the binary log costs, by sync_binlog and by the share of the data that fits in memory."""

from __future__ import annotations

from ferrite_bench.load import Sysbench
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import P99, TPS, Bars, Case, Data, Experiment, Setup, Timeline
from ferrite_bench.workloads.common import warmup_of

WAREHOUSE_MB = 100
"""A full-size warehouse in InnoDB, with its indexes."""
SMALL_MB = 11
"""A warehouse with a tenth of the items and customers."""
OFF = "binlog off"


def _case(threads: int, seconds: int, options: tuple[str, ...], pool: int, sync: int | None) -> Case:
    what = OFF if sync is None else f"sync_binlog={sync}"

    def run(session: Session) -> None:
        if sync is not None:
            session.sql(f"SET GLOBAL sync_binlog = {sync}")
        session.load(Sysbench("warehouse", threads, seconds, options, own=True), warmup_of(seconds))

    return Case(f"pool {pool}%, {what}", run, seconds + 1, f"pool {pool}%")


def _setups(size: Size) -> list[Setup]:
    warehouses, items, customers, each = size.pick(
        (1, 500, 30, 2), (2, 10_000, 300, SMALL_MB), (8, 100_000, 3000, WAREHOUSE_MB)
    )
    options = (f"--warehouses={warehouses}", f"--items={items}", f"--customers={customers}")
    threads, seconds = size.pick(4, 16, 32), size.pick(2, 3, 12)

    def build(session: Session) -> None:
        session.prepare("warehouse", *options, own=True)

    total = warehouses * each
    data = Data("warehouses", build, total * 4 + size.pick(64, 512, 4_000), 1 + total / 6)
    setups = []
    for pool in size.pick((100,), (60, 100), (60, 100)):
        memory = max(24, total * pool // 100)
        for binlog in (None, 1):
            modes = (None,) if binlog is None else size.pick((1,), (0, 1, 1000), (0, 1, 1000, 10000))
            needs = Needs(pool_mb=memory, flush=1, binlog=binlog, binlog_mb=size.pick(4, 8, 16), sessions=threads)
            cases = tuple(_case(threads, seconds, options, pool, sync) for sync in modes)
            setups.append(
                Setup(f"pool {pool}%, {'no ' if binlog is None else ''}binlog", needs, data, cases, size.pick(1, 1, 2))
            )
    return setups


EXPERIMENT = Experiment(
    name="binlog",
    title="The cost of the binary log",
    question="How much slower does a load become when its changes are also written to the binlog, synchronized never, "
    "always, or sometimes; and does anything stall when a binlog file is full?",
    method="A TPC-C-like load (our own script; no think time), cache at 60 to 100% of InnoDB's data size, every commit "
    "durable in the engine. Binlog files are small enough to be rotated during a run.",
    story="After measurements of 2018: the binlog cost 13% in Percona Server 5.7 and up to 30% in MySQL 8.0; with "
    "sync_binlog=0 the load fell to zero for a second or two at each rotation.",
    setups=_setups,
    charts=(
        Bars("Transactions per second by binlog setting", "tps"),
        Bars("Worst second", "worst_second"),
        Timeline("sync_binlog=1, all data in memory", "pool 100%, sync_binlog=1", (TPS, P99)),
    ),
    extra_figures=("worst_second",),
)
