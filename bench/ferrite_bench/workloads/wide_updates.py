"""wide-updates: every row of a large table changes under one snapshot, and what comes back when it ends."""

from __future__ import annotations

import time

from ferrite_bench.sample import Probe
from ferrite_bench.session import Session
from ferrite_bench.terms import CLOSED, Needs, Size
from ferrite_bench.workloads.base import (
    HISTORY_BYTES,
    P99,
    TPS,
    Case,
    Experiment,
    Panel,
    Setup,
    Timeline,
)  # fmt: skip
from ferrite_bench.workloads.common import SBTEST_SUM, SnapshotReads, oltp, oltp_data, snapshot_figures

CASE = "snapshot open, then closed"
RELEASE_SECONDS = 20
RING = 32 << 20
DELTA = 120
"""Bytes that an update of sysbench's column c replaces."""


def _released(session: Session) -> None:
    """The snapshot has just been closed: how long until history is within the ring again? For engines with a ring."""
    if "history_memory" not in session.server.contestant.engine.counters:
        return
    probe = Probe(session.server)
    probe.connect()
    begun = time.monotonic()
    while time.monotonic() - begun < RELEASE_SECONDS:
        if probe.read().values["history_bytes"] <= RING:
            break
        time.sleep(0.1)
    probe.close()
    session.figure("released_seconds", time.monotonic() - begun, "s", "lower")


def _case(rows: int, seconds: float, more: float) -> Case:
    def run(session: Session) -> None:
        process = session.server.process
        assert process is not None
        with session.snapshot() as connection:
            session.begin_snapshot(connection)
            seen = SnapshotReads(connection, SBTEST_SUM)
            seen.read()
            load = oltp("oltp_update_non_index", 8, seconds, rows, uniform=True)
            outcome = session.load(load)
            snapshot_figures(session, outcome, 1, seconds)
            seen.read()
            seen.check()
            session.figure("snapshot_scan_before", seen.seconds[0], "s", "lower")
            session.figure("snapshot_scan_after", seen.seconds[-1], "s", "lower")
            before = process.rss_bytes()
        session.figure("history_bound", RING + 1.5 * rows * (DELTA + 48), "bytes", "lower")
        session.offset = seconds
        session.writer.mark(session.place, seconds, CLOSED)
        _released(session)
        time.sleep(2)
        session.figure("released_rss", before - process.rss_bytes(), "bytes")
        disk = outcome.last("disk_bytes")
        session.figure("disk_before", disk, "bytes", "lower")
        again = session.load(oltp("oltp_update_non_index", 8, more, rows, uniform=True), usual=False)
        session.figure("disk_after", again.last("disk_bytes"), "bytes", "lower")
        session.figure("tps_after", again.average("tps", 2), "1/s")

    return Case(CASE, run, seconds + more + 4)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 100_000, 1_000_000)
    seconds, more = size.pick((3, 2), (12, 4), (600, 40))
    needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=2)
    return [Setup("wide", needs, oltp_data(rows), (_case(rows, seconds, more),), rounds=1)]


EXPERIMENT = Experiment(
    name="wide-updates",
    title="Every row changes under a snapshot",
    question="Uniform updates touch all rows of a large table, again and again, while one snapshot is open. Does the history "
    "grow with the updates or with the rows? And how much space is returned when the snapshot ends?",
    method="sysbench oltp_update_non_index, 8 threads, uniform keys, commits flushed once a second, the snapshot opened "
    "before the load and read in full before and after it. History is Ferrite's versions in memory and in scratch files, "
    "InnoDB's undo pages. Then the snapshot is closed and the load goes on.",
    setups=_setups,
    charts=(
        Timeline("Updates and history", CASE, (TPS, HISTORY_BYTES)),
        Timeline("Latency, memory and size on disk", CASE,
                 (P99, Panel("server_rss", "resident memory", "bytes"), Panel("disk_bytes", "size on disk", "bytes"))),
    ),
    headline="tps_last",
    headline_cases=(CASE,),
    extra_figures=(
        "tps_first", "tps_last", "kept", "history_bound", "snapshot_scan_before", "snapshot_scan_after",
        "released_seconds", "released_rss", "disk_before", "disk_after", "tps_after",
    ),
)  # fmt: skip
