"""big-transaction: one UPDATE of every row, far beyond memory, and what it does to everybody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pymysql

from ferrite_bench.errors import LoadFailed
from ferrite_bench.session import Outcome, Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import (
    HISTORY_BYTES,
    P99,
    TPS,
    Bars,
    Case,
    Data,
    Experiment,
    Panel,
    Setup,
    Timeline,
)  # fmt: skip
from ferrite_bench.workloads.common import oltp, oltp_data

CASE = "UPDATE of every row"
NEIGHBOURS, NEIGHBOUR_ROWS = 8, 20_000
CHUNK = 500_000
UPDATE = "UPDATE big SET n = n + 1"


class Statement(threading.Thread):
    """Statements on a connection of their own; the seconds that each took, or why they ended."""

    def __init__(self, session: Session, statements: tuple[str, ...]) -> None:
        super().__init__(daemon=True)
        self.connection = session.server.connect(database="bench")
        self.statements = statements
        self.seconds: list[float] = []
        self.error: Exception | None = None

    def run(self) -> None:
        """Execute them in order."""
        try:
            with self.connection.cursor() as cursor:
                for statement in self.statements:
                    begun = time.monotonic()
                    cursor.execute(statement)
                    self.seconds.append(time.monotonic() - begun)
        except (pymysql.err.Error, OSError) as error:
            self.error = error

    def done(self) -> bool:
        """Whether the last one has ended."""
        return not self.is_alive()


def _data(rows: int) -> Data:
    small = oltp_data(NEIGHBOUR_ROWS)

    def build(session: Session) -> None:
        small.build(session)
        session.sql(
            "CREATE TABLE big (id INT NOT NULL PRIMARY KEY, n INT NOT NULL, note CHAR(60) NOT NULL) "
            f"ENGINE={session.engine}"
        )
        for first in range(1, rows + 1, CHUNK):
            last = min(first + CHUNK - 1, rows)
            session.sql(f"INSERT INTO big SELECT seq, 0, MD5(seq) FROM seq_{first}_to_{last}")
        session.settle()

    return Data(f"big-{rows}", build, rows // 2500 + 128, 3 + rows / 60_000)


def _neighbours(session: Session, seconds: float, until: Callable[[], bool] | None = None) -> Outcome:
    """Eight sessions at a steady pace, far from saturation: their latency shows who stands in their way."""
    load = oltp("oltp_read_write", NEIGHBOURS, seconds, NEIGHBOUR_ROWS, "--rate=60")
    outcome = session.load(load, until=until, usual=False)
    session.offset += len(outcome.seconds)
    return outcome


def _beside(session: Session, name: str, *statements: str) -> tuple[list[float], Outcome]:
    """Run statements while the neighbours work; their latency meanwhile."""
    work = Statement(session, statements)
    session.writer.mark(session.place, session.offset, name)
    work.start()
    outcome = _neighbours(session, 3600, work.done)
    if work.error is not None:
        raise LoadFailed(f"{name}: {work.error}")
    session.figure(f"p99_{name}", _p99(outcome), "ms", "lower")
    session.figure(f"rss_{name}", outcome.peak("server_rss"), "bytes", "lower")
    return work.seconds, outcome


def _p99(outcome: Outcome) -> float | None:
    """The median of the seconds' p99; a first second in which sessions begin does not count."""
    values = [s["p99"] for s in outcome.seconds[1:] if "p99" in s]
    return median(values) if values else None


def _killed(session: Session, after: float) -> None:
    """kill -9 in the middle of a third UPDATE; how long until the rows can be read.

    Without neighbours a short one may be over by then: its transaction is not.
    """
    work = Statement(session, ("BEGIN", UPDATE, "DO SLEEP(3600)"))
    work.start()
    time.sleep(after)
    if work.done():
        raise LoadFailed(f"the transaction was over before it could be killed: {work.error}")
    session.server.kill()
    begun = time.monotonic()
    session.server.start()
    session.figure("first_answer", time.monotonic() - begun, "s", "lower")
    session.sql(f"SELECT COUNT(*) FROM sbtest1 WHERE id <= {NEIGHBOUR_ROWS}")
    session.figure("first_row", time.monotonic() - begun, "s", "lower")
    _expect(session, 1)
    session.figure("all_rows_again", time.monotonic() - begun, "s", "lower")


def _expect(session: Session, n: int) -> None:
    """Every row has that count: one update committed, nothing of the others."""
    seen: tuple[Any, ...] = session.sql("SELECT MIN(n), MAX(n) FROM big")[0]
    if seen != (n, n):
        raise LoadFailed(f"WRONG RESULT: the rows of the table count {seen[0]} to {seen[1]}, all should be at {n}")


def _case(rows: int, quiet: float) -> Case:
    def run(session: Session) -> None:
        before = _neighbours(session, quiet)
        session.figure("p99_before", _p99(before), "ms", "lower")
        seconds, _ = _beside(session, "update", UPDATE)
        session.figure("update_seconds", seconds[0], "s", "lower")
        _expect(session, 1)
        seconds, _ = _beside(session, "rollback", "BEGIN", UPDATE, "ROLLBACK")
        session.figure("rollback_seconds", seconds[2], "s", "lower")
        _expect(session, 1)
        _killed(session, seconds[1] / 3)

    return Case(CASE, run, quiet + rows / 15_000)


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(100_000, 200_000, 5_000_000)
    quiet = size.pick(3, 6, 60)
    needs = Needs(pool_mb=size.pick(16, 16, 128), flush=2)
    return [Setup("big", needs, _data(rows), (_case(rows, quiet),), rounds=1)]


EXPERIMENT = Experiment(
    name="big-transaction",
    title="One transaction changes every row",
    question="A single UPDATE changes all rows of a table several times the size of memory; a second one is rolled back; the "
    "server is killed in the middle of a third. How long does this take, and how does it affect other sessions?",
    method="128 MiB of cache, 64 MiB of ring for Ferrite's versions, 5 million rows; beside it eight sessions at a steady "
    "pace of 60 sysbench oltp_read_write transactions a second on a table of their own. Latencies are the medians of the "
    "seconds' p99.",
    setups=_setups,
    charts=(
        Timeline("The other sessions during update and rollback", CASE, (P99, TPS)),
        Timeline("Memory and history", CASE, (Panel("server_rss", "resident memory", "bytes"), HISTORY_BYTES)),
        Bars("Seconds of the UPDATE", "update_seconds"),
        Bars("Seconds of the ROLLBACK", "rollback_seconds"),
        Bars("Seconds from the restart to the first rows, killed in the middle", "first_row"),
    ),
    variants={"ferrite": (("", ("--ferrite-history-ring-size=64M",)),)},
    headline="update_seconds",
    extra_figures=(
        "p99_before", "p99_update", "p99_rollback", "update_seconds", "rollback_seconds", "rss_update", "rss_rollback",
        "first_answer", "first_row", "all_rows_again",
    ),
)  # fmt: skip
