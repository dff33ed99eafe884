"""group-commit: mariadb-slap writes at growing concurrency, binlog on and off."""

from __future__ import annotations

from ferrite_bench.load import Slap
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Case, Curve, Data, Experiment, Setup


def _nothing(_session: Session) -> None:
    """mariadb-slap makes its own tables."""


def _case(threads: int, queries: int, series: str) -> Case:
    def run(session: Session) -> None:
        session.load(Slap(threads, queries))

    return Case(
        f"{threads} connections, {series}", run, queries / (1500 + 250 * min(threads, 20)) + 0.2, series, threads
    )


def _setups(size: Size) -> list[Setup]:
    crowd = size.pick((1, 5), (1, 10, 30), (1, 5, 10, 20, 30, 50))
    setups = []
    for series, binlog in (("binlog off", None), ("binlog on", 1)):
        cases = []
        for threads in crowd:
            queries = size.pick(200, 1500 + 200 * min(threads, 30), 3000 + 400 * min(threads, 20))
            cases.append(_case(threads, queries, series))
        needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=1, binlog=binlog, binlog_mb=256)
        setups.append(Setup(series, needs, Data("slap", _nothing, 512, 0), tuple(cases), size.pick(1, 7, 10)))
    return setups


EXPERIMENT = Experiment(
    name="group-commit",
    title="Group commit",
    question="Many connections commit at the same time, each durably. How many of them share one flush, "
    "with and without the binlog?",
    method="mariadb-slap --auto-generate-sql-load-type=write (single-row inserts into a table without a primary key), every "
    "commit durable; binlog with sync_binlog=1. Flushes are those that the block device saw.",
    story="The measurement of 2009 on InnoDB Plugin 1.0.4: 6.1 times the throughput at 30 connections with the binlog on, "
    "200,251 flushes down to 26,092 for the same work.",
    setups=_setups,
    charts=(
        Curve("Commits per second, binlog off", "tps", "connections", ("binlog off",), log_x=False),
        Curve("Commits per second, binlog on", "tps", "connections", ("binlog on",), log_x=False),
        Curve("Device flushes per commit, binlog off", "flushes_per_txn", "connections", ("binlog off",), log_x=False),
        Curve("Device flushes per commit, binlog on", "flushes_per_txn", "connections", ("binlog on",), log_x=False),
    ),
    extra_figures=("flushes_per_txn", "log_flushes_per_txn"),
)
