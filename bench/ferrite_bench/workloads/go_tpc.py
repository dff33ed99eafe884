"""go-tpc: TPC-C by a load generator of others, as a check on the lab's own script."""

from __future__ import annotations

from ferrite_bench.load import GoTpc
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Bars, Case, Data, Experiment, Panel, Setup, Timeline

CASE = "16 clients"


def _setups(size: Size) -> list[Setup]:
    load = GoTpc(16, size.pick(3, 20, 600), size.pick(1, 1, 10))

    def build(session: Session) -> None:
        session.prepare_go_tpc(GoTpc(4, 0, load.warehouses))

    def run(session: Session) -> None:
        session.load(load)

    data = Data("go-tpc", build, load.warehouses * 250 + 64, load.warehouses * 60)
    needs = Needs(pool_mb=size.pick(256, 512, 4096), flush=1, tcp=True)
    return [Setup("in memory", needs, data, (Case(CASE, run, load.seconds + 1),))]


EXPERIMENT = Experiment(
    name="go-tpc",
    title="TPC-C by go-tpc",
    question="The nine tables and five transactions of TPC-C, driven by a program that is not ours: does it say the same as "
    "the lab's own script?",
    method="go-tpc 1.0.5 over TCP on the loopback interface, no keying and think time, tables at full size, commits durable, "
    "no binlog. Counted are all five transactions; latencies are those of new orders. The time series counts statements "
    "as the server does. Not part of `all`, because loading takes minutes.",
    setups=_setups,
    charts=(
        Bars("Transactions per second", "tps"),
        Timeline(
            "Statements over time",
            CASE,
            (Panel("statements", "statements per second", "/s"), Panel("server_cpu", "server processors busy", "CPUs")),
        ),
    ),
    apart=True,
)
