"""long-snapshot: sysbench OLTP with a consistent snapshot from the start to the middle."""

from __future__ import annotations

from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import HISTORY, HISTORY_BYTES, P99, TPS, Experiment, Setup, Timeline
from ferrite_bench.workloads.common import oltp, oltp_data, simple_case, under_snapshot

CASE = "snapshot open"


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 100_000, 1_000_000)
    quiet = size.pick(2, 5, 20)
    total, end = size.pick((4, 2), (22, 11), (180, 90))
    return [
        Setup(
            "oltp",
            Needs(pool_mb=size.pick(64, 512, 2048), flush=2),
            oltp_data(rows),
            (
                simple_case("no snapshot", oltp("oltp_read_write", 16, quiet, rows)),
                under_snapshot(
                    CASE, oltp("oltp_read_write", 16, total, rows), 0.5, end, "SELECT COUNT(*) FROM sbtest1"
                ),
            ),
            rounds=1,
        )
    ]


EXPERIMENT = Experiment(
    name="long-snapshot",
    title="A long snapshot over an OLTP load",
    question="A consistent snapshot is opened when the load begins and closed in the middle, as a dump does. How fast is "
    "the load meanwhile, how long is the history, and what does catching up cost afterwards?",
    method="sysbench oltp_read_write on one table, 16 threads, commits flushed once a second.",
    story="After a measurement of 2011 on XtraDB and MySQL 5.6.2 with 1 to 8 purge threads: more threads shrink the list "
    "faster, at a cost in throughput also once it has shrunk.",
    setups=_setups,
    charts=(
        Timeline("Transactions and history over time", CASE, (TPS, HISTORY)),
        Timeline("Latency and bytes of history", CASE, (P99, HISTORY_BYTES)),
    ),
    headline_cases=(CASE,),
    extra_figures=("tps_first", "tps_last", "kept", "tps_after"),
)
