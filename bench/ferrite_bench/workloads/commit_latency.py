"""commit-latency: one durable change at a time, alone and in company."""

from __future__ import annotations

from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Curve, Experiment, Setup
from ferrite_bench.workloads.common import oltp, oltp_data, simple_case, turns


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 100_000, 1_000_000)
    seconds, rounds = turns(size)
    cases = []
    for threads in size.pick((1, 4), (1, 16, 64), (1, 4, 16, 64)):
        for script, series in (("oltp_update_non_index", "update"), ("oltp_insert", "insert")):
            if size.name == "quick" and series == "insert" and threads != 16:
                continue
            load = oltp(script, threads, seconds, rows)
            cases.append(
                simple_case(f"{series}, {threads} {'client' if threads == 1 else 'clients'}", load, series, threads)
            )
    return [
        Setup(
            "durable",
            Needs(pool_mb=size.pick(64, 512, 2048), flush=1, sessions=72),
            oltp_data(rows),
            tuple(cases),
            rounds,
        )
    ]


EXPERIMENT = Experiment(
    name="commit-latency",
    title="Latency of a durable commit",
    question="How long does a client wait for one durable single-row change, single and concurrent?",
    method="sysbench oltp_update_non_index and oltp_insert, autocommit, no binlog, every commit flushed.",
    setups=_setups,
    charts=(
        Curve("Durable updates per second", "tps", "clients", ("update",)),
        Curve("Median latency of an update", "p50", "clients", ("update",)),
        Curve("p99 latency of an update", "p99", "clients", ("update",)),
        Curve("Device flushes per update", "flushes_per_txn", "clients", ("update",)),
        Curve("Context switches per update", "switches_per_txn", "clients", ("update",)),
    ),
    ceiling=True,
    extra_figures=("flushes_per_txn",),
)
