"""point-read: rows by primary key, everything in memory."""

from __future__ import annotations

from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Curve, Experiment, Setup
from ferrite_bench.workloads.common import oltp, oltp_data, simple_case, turns


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 100_000, 1_000_000)
    seconds, rounds = turns(size)
    cases = tuple(
        simple_case(f"{n} {'client' if n == 1 else 'clients'}", oltp("oltp_point_select", n, seconds, rows), "", n)
        for n in size.pick((1, 4), (1, 4, 16), (1, 2, 4, 16, 64))
    )
    return [Setup("cached", Needs(pool_mb=size.pick(64, 512, 2048), sessions=72), oltp_data(rows), cases, rounds)]


EXPERIMENT = Experiment(
    name="point-read",
    title="One row by primary key",
    question="The simplest statement there is, all data in memory: what does the engine add to the cost of the SQL layer?",
    method="sysbench oltp_point_select with prepared statements.",
    setups=_setups,
    charts=(
        Curve("Point selects per second", "tps", "clients"),
        Curve("p99 latency", "p99", "clients"),
        Curve("Server processor time per select", "server_cpu_per_txn", "clients"),
    ),
    ceiling=True,
)
