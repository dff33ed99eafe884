"""steady-writes: a write load without old snapshots; does purge keep up, and what does it cost?"""

from __future__ import annotations

import os

from ferrite_bench.session import Outcome, Session
from ferrite_bench.stats import mean
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import (
    HISTORY,
    HISTORY_BYTES,
    P99,
    TPS,
    Case,
    Experiment,
    Panel,
    Setup,
    Timeline,
)  # fmt: skip
from ferrite_bench.workloads.common import oltp, oltp_data, warmup_of

CASE, HELD = "purge", "purge paused at times"
LAG = Panel("purge_lag", "purge lag", "ms")
STOLEN = Panel("stolen", "processor time stolen by the host", "CPUs")


def _steady(rows: int, seconds: float) -> Case:
    def run(session: Session) -> None:
        warmup = warmup_of(seconds)
        outcome = session.load(oltp("oltp_write_only", 16, seconds, rows), warmup)
        speeds = [speed for second, speed in outcome.speeds.items() if second > warmup]
        if speeds:
            session.figure("worst_share", min(speeds) / mean(speeds), "x")
            session.figure("worst_share_given", _worst_share_given(outcome, warmup), "x")
        session.figure("lag_peak", outcome.peak("purge_lag"), "ms", "lower")

    return Case(CASE, run, seconds + 1)


def _worst_share_given(outcome: Outcome, warmup: float) -> float | None:
    """The slowest second's share of the mean, relative to the processor time that the host left this machine."""
    processors = os.cpu_count() or 1
    speeds = []
    for i, sample in enumerate(outcome.seconds):
        speed = outcome.speeds.get(i + 1)
        if speed is not None and i + 1 > warmup and "stolen" in sample:
            speeds.append(speed / max(processors - sample["stolen"], 0.1))
    return min(speeds) / mean(speeds) if speeds else None


def _held(rows: int, slice_seconds: float, pairs: int) -> Case:
    """Short stretches with and without purge in turn, so that a noisy machine does both the same harm."""

    def run(session: Session) -> None:
        if session.server.contestant.engine.key != "ferrite":
            return
        tps: dict[int, list[float]] = {0: [], 1: []}
        for _ in range(pairs):
            for paused in (0, 1):
                session.sql(f"SET GLOBAL ferrite_purge_paused = {paused}")
                outcome = session.load(oltp("oltp_write_only", 16, slice_seconds, rows), usual=False)
                session.offset += slice_seconds
                # A short stretch on a busy machine may have no sample behind its first second.
                tps[paused].append(outcome.average("tps", 1) or outcome.summary.tps)
        session.sql("SET GLOBAL ferrite_purge_paused = 0")
        session.figure("tps", mean(tps[0]), "1/s")
        session.figure("tps_held", mean(tps[1]), "1/s")
        session.figure("held_ratio", mean(tps[0]) / mean(tps[1]), "x")

    return Case(HELD, run, 2 * pairs * slice_seconds)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 100_000, 1_000_000)
    seconds, stretch, pairs = size.pick((4, 2, 1), (10, 3, 2), (600, 15, 4))
    needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=2)
    return [Setup("steady", needs, oltp_data(rows), (_steady(rows, seconds), _held(rows, stretch, pairs)), rounds=1)]


EXPERIMENT = Experiment(
    name="steady-writes",
    title="Purge under constant writes",
    question="An OLTP write load without old snapshots: does purge lag, does throughput drop in any second, and what "
    "share of the throughput does purge cost?",
    method="sysbench oltp_write_only, 16 threads, commits flushed once a second. Then, Ferrite only, alternating periods with purge "
    "active and paused (ferrite_purge_paused).",
    setups=_setups,
    charts=(
        Timeline("Transactions and history", CASE, (TPS, HISTORY)),
        Timeline("Latency, bytes of history, lag", CASE, (P99, HISTORY_BYTES, LAG)),
        Timeline("The machine", CASE, (TPS, Panel("server_cpu", "server processors busy", "CPUs"), STOLEN)),
    ),
    headline_cases=(CASE,),
    extra_figures=("worst_share", "worst_share_given", "stolen_peak", "lag_peak", "tps_held", "held_ratio"),
)
