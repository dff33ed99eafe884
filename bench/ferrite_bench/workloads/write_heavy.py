"""write-heavy: a load in the manner of dbSTRESS, steadily."""

from __future__ import annotations

from ferrite_bench.load import Sysbench
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import (
    HISTORY,
    HISTORY_BYTES,
    P99,
    TPS,
    Data,
    Experiment,
    Panel,
    Setup,
    Timeline,
)  # fmt: skip
from ferrite_bench.workloads.common import simple_case

PLAIN, SPLIT = "32 sessions", "32 sessions, history in 16 partitions"

CHARTS = (
    Timeline("Transactions and history over time", PLAIN, (TPS, HISTORY)),
    Timeline("Latency and bytes of history", PLAIN, (P99, HISTORY_BYTES)),
    Timeline(
        "What is still to be written, and the device",
        PLAIN,
        (
            Panel("checkpoint_age", "checkpoint age", "bytes"),
            Panel("dev_write_bytes", "written to the device", "bytes/s"),
        ),
    ),
)
VARIANTS = {
    "innodb": (("1 purge thread", ("--innodb-purge-threads=1",)), ("4 purge threads", ("--innodb-purge-threads=4",)))
}
"""InnoDB with one purge thread and with four."""
FIGURES = ("worst_second", "history_peak")


def _data(objects: int, history: int, partitions: int) -> Data:
    def build(session: Session) -> None:
        session.prepare(
            "stress", f"--objects={objects}", f"--history={history}", f"--partitions={partitions}", own=True
        )

    rows = objects * (history + 1)
    return Data(f"stress-{partitions}", build, rows // 2500 + 64, 1 + rows / 60_000)


def setups(size: Size, full_seconds: int = 600) -> list[Setup]:
    """The load; with the full size also on a history table of 16 partitions."""
    objects, history = size.pick((500, 5), (10_000, 10), (200_000, 10))
    seconds = size.pick(2, 16, full_seconds)
    needs = Needs(pool_mb=size.pick(64, 512, 2048), flush=2, sessions=40)
    options = (f"--objects={objects}", f"--history={history}")
    load = Sysbench("stress", 32, seconds, options, own=True)
    found = [Setup("stress", needs, _data(objects, history, 0), (simple_case(PLAIN, load),), rounds=1)]
    if size.name == "full":
        short = Sysbench("stress", 32, 120, options, own=True)
        found.append(Setup("stress, partitions", needs, _data(objects, history, 16), (simple_case(SPLIT, short),), 1))
    return found


EXPERIMENT = Experiment(
    name="write-heavy",
    title="Constant heavy writes",
    question="Thirty-two sessions write without a pause. Is the last minute as fast as the first, and does purge "
    "keep pace?",
    method="Objects in sections of zones with a history of states each; one reading transaction (point join, or the list "
    "of an object's history) for each writing one (update, delete and insert of history rows); no think time; commits "
    "flushed once a second. InnoDB runs with 1 and with 4 purge threads. The full size adds a history table hashed into "
    "16 partitions.",
    story="After a measurement of 2009 on XtraDB: with one thread for everything the history list grows; four purge "
    "threads gave 60% more throughput over the last 300 seconds, steadily.",
    setups=setups,
    charts=CHARTS,
    variants=VARIANTS,
    extra_figures=FIGURES,
)  # fmt: skip
