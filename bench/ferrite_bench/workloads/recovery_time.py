"""recovery-time: kill -9 under load, then how long until the first answer and until the old speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pymysql

from ferrite_bench.errors import LoadFailed, ServerDied
from ferrite_bench.session import Session
from ferrite_bench.stats import mean
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import TPS, Bars, Case, Experiment, Setup, Timeline
from ferrite_bench.workloads.common import oltp, oltp_data

CASE = "kill -9 under load"
KILL_AFTER_S = 2.0
"""Seconds of load before the kill, after the load whose speed is measured."""
SMALL = "kill -9 under load, cache smaller than the data"


def _kill_after(session: Session, threads: int, seconds: float, rows: int) -> None:
    """A write load that the server's death ends."""
    killer = threading.Timer(seconds, session.server.kill)
    killer.start()
    try:
        session.load(oltp("oltp_write_only", threads, seconds + 30, rows, uniform=True))
    except (LoadFailed, ServerDied, OSError, pymysql.err.Error):
        # It may die while it is asked for its counters, too.
        pass
    finally:
        killer.cancel()
        session.server.kill()


def _down(session: Session, begin: float, end: float) -> None:
    """Nothing was done between the kill and the first answer: a zero each second."""
    second = begin
    while second < end:
        session.writer.sample(session.place, second, {"tps": 0.0})
        second += 1
    session.writer.sample(session.place, end, {"tps": 0.0})


def _first(values: list[float | None], fits: Callable[[float], bool]) -> int | None:
    """The first second, from 1 on, whose value is as it should be."""
    return next((n for n, value in enumerate(values, 1) if value is not None and fits(value)), None)


def _case(name: str, rows: int, seconds: float, after: float) -> Case:
    def run(session: Session) -> None:
        origin = time.monotonic()
        before = session.load(oltp("oltp_write_only", 16, seconds, rows, uniform=True), usual=False)
        session.offset = time.monotonic() - origin
        _kill_after(session, 16, KILL_AFTER_S, rows)
        begun = time.monotonic()
        session.writer.mark(session.place, begun - origin, "killed")
        session.server.start()
        answered = time.monotonic() - begun
        session.figure("first_answer", answered, "s", "lower")
        session.writer.mark(session.place, time.monotonic() - origin, "answers")
        _down(session, begun - origin, time.monotonic() - origin)
        session.sql("SELECT COUNT(*) FROM sbtest1 WHERE id BETWEEN 1 AND 100")
        session.figure("first_row", time.monotonic() - begun, "s", "lower")
        session.offset = time.monotonic() - origin
        loaded = time.monotonic() - begun
        outcome = session.load(oltp("oltp_write_only", 16, after, rows, uniform=True))
        session.figure("tps_after_restart", outcome.average("tps"), "1/s")
        # Engines that redo all pages before they answer report no pages that are left.
        left = [sample.get("redo_pages_left") for sample in outcome.seconds]
        done = _first(left, lambda pages: pages == 0)
        redone = (loaded + done if done else None) if any(n is not None for n in left) else answered
        session.figure("all_redone", redone, "s", "lower")
        speed = before.average("tps", begin=seconds / 2)
        session.figure("tps_before", speed, "1/s")
        speeds = [sample.get("tps", 0.0) for sample in outcome.seconds]
        again = _first([mean(speeds[n : n + 3]) for n in range(len(speeds) - 2)], lambda tps: tps >= 0.9 * speed)
        session.figure("as_fast_again", loaded + again if again else None, "s", "lower")

    return Case(name, run, seconds + KILL_AFTER_S + after + 6)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 200_000, 4_000_000)
    seconds, after = size.pick(2, 5, 60), size.pick(2, 4, 40)
    rounds = size.pick(1, 1, 2)

    def setup(word: str, name: str, pool_mb: int) -> Setup:
        needs = Needs(pool_mb=pool_mb, flush=1)
        return Setup(word, needs, oltp_data(rows), (_case(name, rows, seconds, after),), rounds)

    setups = [setup("crash", CASE, size.pick(64, 512, 2048))]
    if size.pick(False, False, True):
        setups.append(setup("crash-small-cache", SMALL, 256))
    return setups


EXPERIMENT = Experiment(
    name="recovery-time",
    title="Restart after a crash",
    question="The server is killed under heavy writes. How long does it take until it answers, and how fast is it then?",
    method="sysbench oltp_write_only, 16 threads, uniform keys, durable commits; kill -9; restart; the clock runs from the "
    "start of the new process to the first answer, to the first rows read, to the second in which no page is left to be redone (while "
    "the load goes on), and to the first three seconds with 0.9 of the speed of before. Once with the data in the cache; in full runs also with a "
    "cache that holds a part of them. The picture shows the load before and after.",
    setups=_setups,
    charts=(
        Bars("Seconds to the first answer", "first_answer"),
        Bars("Seconds to the first rows", "first_row"),
        Timeline("The load before the crash and after", CASE, (TPS,)),
    ),
    headline="first_row",
    extra_figures=("first_answer", "first_row", "all_redone", "as_fast_again", "tps_before", "tps_after_restart"),
)
