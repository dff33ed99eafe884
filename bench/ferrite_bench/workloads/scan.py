"""scan: whole tables and indexes, from memory and from disk."""

from __future__ import annotations

from statistics import median

from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Bars, Case, Experiment, Setup
from ferrite_bench.workloads.common import oltp_data

SCANS = (
    ("whole table", "SELECT SUM(LENGTH(pad)) FROM sbtest1 FORCE INDEX (PRIMARY)"),
    ("count by primary key", "SELECT COUNT(*) FROM sbtest1 FORCE INDEX (PRIMARY)"),
    ("covering secondary index", "SELECT COUNT(*) FROM sbtest1 FORCE INDEX (k_1) WHERE k > 0"),
    ("secondary index with rows", "SELECT SUM(LENGTH(c)) FROM (SELECT c FROM sbtest1 FORCE INDEX (k_1) ORDER BY k LIMIT {tenth}) t"),
)  # fmt: skip


def _case(name: str, sql: str, rows: int, times: int) -> Case:
    counted = rows // 10 if "{tenth}" in sql else rows
    sql = sql.format(tenth=rows // 10)

    def run(session: Session) -> None:
        seconds = median(session.timed_sql(sql) for _ in range(times))
        session.figure("seconds", seconds, "s", "lower")
        session.figure("rows_per_second", counted / seconds, "1/s")

    return Case(name, run, times * (0.05 + rows / 4_000_000), ceiling="FORCE INDEX (PRIMARY)" in sql)


# What is read after a restart, each with nothing in memory. No row of the second is delivered: its order costs no sort.
COLD = (
    ("whole table, after a restart", SCANS[0][1], 1),
    (
        "whole table, after a restart, descending",
        "SELECT id FROM sbtest1 FORCE INDEX (PRIMARY) WHERE LENGTH(pad) = 0 ORDER BY id DESC",
        1,
    ),
    ("secondary index with rows, after a restart", SCANS[3][1], 10),
)


def _cold_case(name: str, sql: str, part: int, rows: int) -> Case:
    counted = rows // part
    sql = sql.format(tenth=counted)

    def run(session: Session) -> None:
        session.server.stop()
        session.server.start()
        seconds = session.timed_sql(sql)
        session.figure("seconds", seconds, "s", "lower")
        session.figure("rows_per_second", counted / seconds, "1/s")

    return Case(name, run, 3 + counted / 500_000, ceiling=False)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 300_000, 2_000_000)
    cases = tuple(_case(name, sql, rows, size.pick(1, 5, 3)) for name, sql in SCANS)
    needs, data = Needs(pool_mb=size.pick(64, 512, 4096)), oltp_data(rows)
    # Quick runs of all experiments have to fit into an hour.
    cold = size.pick(COLD, (COLD[0], COLD[2]), COLD)
    return [
        Setup("cached", needs, data, cases, size.pick(1, 7, 10)),
        Setup("cold", needs, data, tuple(_cold_case(*case, rows) for case in cold), size.pick(1, 2, 5)),
    ]


EXPERIMENT = Experiment(
    name="scan",
    title="Scans",
    question="How many rows per second does one session read when it reads all of them, by primary key, by a secondary "
    "index alone, and through a secondary index?",
    method="One session on sysbench's table; median of several per round; the last cases after a restart, when nothing is in "
    "the engine's memory (direct I/O, so the system's cache does not help).",
    setups=_setups,
    charts=(Bars("Rows per second", "rows_per_second"), Bars("Seconds", "seconds")),
    headline="rows_per_second",
    ceiling=True,
    extra_figures=("rows_per_second", "seconds"),
)
