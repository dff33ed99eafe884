"""What a workload holds in its hands: one contestant's running server, loads to put on it, figures to record."""

from __future__ import annotations

import contextlib
import dataclasses
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from ferrite_bench import children
from ferrite_bench.errors import DiskFull, LoadFailed
from ferrite_bench.load import (
    GoTpc,
    Load,
    Output,
    Summary,
    Sysbench,
    failure_of,
    summary_of_seconds,
    wait_until,
)  # fmt: skip
from ferrite_bench.machine import Process, free_mb, table_bytes
from ferrite_bench.progress import Progress
from ferrite_bench.sample import Probe, Reading, merge
from ferrite_bench.server import Server
from ferrite_bench.stats import mean
from ferrite_bench.store import Place, Writer
from ferrite_bench.terms import CLOSED, OPEN, Size

DISK_RESERVE_MB = 512
Action = tuple[float, str, Callable[[], None]]
"""Seconds from the start of the load, a mark for the picture (may be empty), what is done."""


@dataclass
class Outcome:
    """What one load on one server came to."""

    summary: Summary
    seconds: list[dict[str, float]] = field(default_factory=list)
    """Samples, the first one ends one second after the start."""
    speeds: dict[int, float] = field(default_factory=dict)
    """Second, from 1 on -> transactions in it, as the load generator itself counted them."""

    def average(self, metric: str, begin: float = 0, end: float = 1e9) -> float:
        """Mean of a measure over a stretch of seconds."""
        return mean([s[metric] for i, s in enumerate(self.seconds) if metric in s and begin <= i < end])

    def peak(self, metric: str) -> float | None:
        """Greatest value of a measure."""
        return max((s[metric] for s in self.seconds if metric in s), default=None)

    def last(self, metric: str) -> float | None:
        """Latest value of a measure."""
        return next((s[metric] for s in reversed(self.seconds) if metric in s), None)


class Session:
    """One contestant in one setup."""

    def __init__(self, server: Server, size: Size, writer: Writer, place: Place, progress: Progress) -> None:
        self.server = server
        self.size = size
        self.writer = writer
        self.place = place
        self.progress = progress
        self.places = server.places
        self.offset = 0.0
        """Where on a case's time axis the next load begins; for cases with several."""
        self.last_round = True
        """Whether this round is the case's last one."""
        self._series: float | None = None
        self._sampled: Place | None = None

    @property
    def engine(self) -> str:
        """The word after ENGINE=."""
        return self.server.contestant.engine.sql_name

    # ---- statements -------------------------------------------------------------------------

    def sql(self, *statements: str, database: str | None = "bench") -> list[tuple[Any, ...]]:
        """Run statements on a connection of their own; the rows of the last one."""
        connection = self.server.connect(database=database)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def timed_sql(self, statement: str) -> float:
        """The seconds that a statement takes, to its last row; connecting is not counted."""
        connection = self.server.connect(database="bench")
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                begun = time.monotonic()
                cursor.execute(statement)
                cursor.fetchall()
                return time.monotonic() - begun
        finally:
            connection.close()

    def fresh_database(self) -> None:
        """An empty database `bench`."""
        self.sql("DROP DATABASE IF EXISTS bench", "CREATE DATABASE bench", database=None)

    def settle(self) -> None:
        """After loading: put what still stands in memory only where it will stand in the long run."""
        if self.server.contestant.engine.key == "rocksdb":
            self.sql("SET GLOBAL rocksdb_force_flush_memtable_now = 1")

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Any]:
        """A connection that can hold a REPEATABLE READ snapshot; it ends with the block."""
        connection = self.server.connect(database="bench")
        try:
            yield connection
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    @staticmethod
    def begin_snapshot(connection: Any) -> None:
        """Opens it, now."""
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    @staticmethod
    def open_snapshot(connection: Any, begin: float) -> Action:
        """An action that opens it."""
        return (begin, OPEN, lambda: Session.begin_snapshot(connection))

    @staticmethod
    def close_snapshot(connection: Any, at: float) -> Action:
        """An action that closes it."""
        return (at, CLOSED, connection.commit)

    @contextlib.contextmanager
    def one_series(self) -> Iterator[None]:
        """Draws the rounds of a case as one time series, not each on a time axis of its own."""
        self._series = self.offset = self._series or 0.0
        before, self._sampled = self._sampled, dataclasses.replace(self.place, round=1)
        try:
            yield
        finally:
            self._sampled = before
            self._series = self.offset

    def mark_now(self, text: str) -> None:
        """A mark where the next load begins."""
        self.writer.mark(self._sampled or self.place, self.offset, text)

    # ---- loads ------------------------------------------------------------------------------

    def prepare(self, script: str, *options: str, own: bool = False, threads: int = 1) -> None:
        """Run a script's prepare and wait for it."""
        load = Sysbench(script, threads, 0, options, own)
        self._finish(load.command(self.places.sysbench, self._lua(load), self.server.socket, self.engine, "prepare"))

    def prepare_go_tpc(self, load: GoTpc) -> None:
        """Run go-tpc's prepare and wait for it."""
        self._finish(load.command(self.places.go_tpc, self.server.port, self.server.password, "prepare"))

    def _finish(self, command: list[str]) -> None:
        child = children.start(command, self.places.child_env(), subprocess.PIPE)
        output = Output()
        reader = self._follow(child, output)
        while child.poll() is None:
            self.server.check()
            self._check_disk()
            self.progress.tick()
            time.sleep(0.1)
        reader.join(5)
        children.kill(child)
        failure = failure_of(output.text(), child.returncode)
        if failure:
            self.server.check()
            raise LoadFailed(f"preparing the data failed:\n{failure}")

    def load(
        self,
        load: Load,
        warmup: float = 0,
        actions: Sequence[Action] = (),
        until: Callable[[], bool] | None = None,
        usual: bool = True,
    ) -> Outcome:
        """Put a load on the server, watch both each second, record samples and (usual) the usual figures.

        `until` ends it early: the result is then what the load generator said of each second.
        """
        command = self._command(load)
        self.writer.command(self.place, self._shown(command))
        probe = Probe(self.server)
        probe.connect()
        output = Output()
        counters = probe.engine_counters()
        before = probe.read()
        child = children.start(command, self.places.child_env(), subprocess.PIPE)
        try:
            reader = self._follow(child, output)
            probe.client = Process(child.pid)
            if isinstance(load, Sysbench):
                wait_until(output.running, 60, self.server.check)
            seconds, after = self._watch(load, child, output, probe, list(actions), until)
            reader.join(5)
            self.writer.counters(self.place, counters, probe.engine_counters())
        finally:
            children.kill(child)
            probe.close()
        cut = until is not None and until()
        failure = "" if cut else failure_of(output.text(), child.returncode)
        summary = summary_of_seconds(output) if cut else load.summarize(output.text(), after.at - before.at)
        if failure or summary is None:
            self.server.check()
            raise LoadFailed(failure or f"the load generator printed no result:\n{output.text()[-600:]}")
        outcome = Outcome(summary, seconds, {n: s.tps for n, s in output.seconds.items()})
        if usual:
            self._usual_figures(outcome, before, after, warmup)
        if self._sampled is not None:
            self.offset += len(seconds)
        return outcome

    def _command(self, load: Load) -> list[str]:
        if isinstance(load, GoTpc):
            return load.command(self.places.go_tpc, self.server.port, self.server.password)
        program = self.places.sysbench if isinstance(load, Sysbench) else self.places.program("mariadb-slap")
        return load.command(program, self._lua(load), self.server.socket, self.engine)

    def _lua(self, load: Load) -> Path:
        return self.places.own_lua if isinstance(load, Sysbench) and load.own else self.places.sysbench_lua

    def _shown(self, command: list[str]) -> str:
        """A command for the reader: with names instead of this machine's paths."""
        shown = []
        for word in command:
            word = word.replace(self.server.socket, "SOCKET").replace(self.server.password, "PASSWORD")
            word = word.replace(f"{self.places.own_lua}/", "bench/lua/").replace(f"{self.places.sysbench_lua}/", "")
            shown.append(Path(word).name if word == command[0] else word)
        return " ".join(shown)

    @staticmethod
    def _follow(child: subprocess.Popen[Any], output: Output) -> threading.Thread:
        reader = threading.Thread(target=output.follow, args=(cast(IO[bytes], child.stdout),), daemon=True)
        reader.start()
        return reader

    def _watch(
        self,
        load: Load,
        child: subprocess.Popen[Any],
        output: Output,
        probe: Probe,
        actions: list[Action],
        until: Callable[[], bool] | None,
    ) -> tuple[list[dict[str, float]], Reading]:
        """Sample until the load ends; samples taken before a failure are kept."""
        samples: list[dict[str, float]] = []
        pending: list[dict[str, float]] = []
        try:
            self._tick_until_end(
                load, child, probe, actions, pending, lambda: self._flush(pending, samples, output, load, 1), until
            )
            after = probe.read()
        finally:
            time.sleep(0.05)  # the reader thread takes the last lines
            # Seconds that the load generator counted after the last sample was taken.
            pending += [{} for _ in range(max(output.seconds, default=0) - len(pending))]
            self._flush(pending, samples, output, load, 0)
        return samples, after

    def _tick_until_end(
        self,
        load: Load,
        child: subprocess.Popen[Any],
        probe: Probe,
        actions: list[Action],
        pending: list[dict[str, float]],
        flush: Callable[[], float | None],
        until: Callable[[], bool] | None,
    ) -> None:
        begun = time.monotonic()
        waiting = sorted(actions, key=lambda a: a[0])
        last = probe.read()
        while child.poll() is None and not (until is not None and until()):
            now = time.monotonic() - begun
            if waiting and now >= waiting[0][0]:
                at, text, act = waiting.pop(0)
                act()
                if text:
                    self.writer.mark(self.place, self.offset + at, text)
            elif now >= len(pending) + 1:
                reading = probe.read()
                pending.append(reading.since(last))
                last = reading
                self.progress.tick(flush())
                self.server.check()
                self._check_disk()
                if now > load.limit:
                    raise LoadFailed(f"the load generator hangs: no end after {now:.0f} s")
            else:
                time.sleep(0.02)
        reading = probe.read()
        if reading.at - last.at > 0.5:
            pending.append(reading.since(last))

    def _flush(
        self, pending: list[dict[str, float]], samples: list[dict[str, float]], output: Output, load: Load, keep: int
    ) -> float | None:
        """Write the samples whose second the load generator has had time to speak of; the latest speed."""
        while len(samples) < len(pending) - keep:
            index = len(samples)
            sample = merge(pending[index], output, index + 1, not isinstance(load, Sysbench))
            samples.append(sample)
            self.writer.sample(self._sampled or self.place, self.offset + index + 1, sample)
        return samples[-1].get("tps") if samples else None

    def _check_disk(self) -> None:
        free = free_mb(self.server.home)
        if free < DISK_RESERVE_MB:
            raise DiskFull(f"only {free:.0f} MB of disk are left, stopped before it is full")

    # ---- figures ----------------------------------------------------------------------------

    def figure(self, name: str, value: float | None, unit: str, direction: str = "higher") -> None:
        """Record one figure of the current case; None is not recorded."""
        if value is not None:
            self.writer.figure(self.place, name, value, unit, direction)

    def _usual_figures(self, outcome: Outcome, before: Reading, after: Reading, warmup: float) -> None:
        summary = outcome.summary
        tps = [speed for second, speed in outcome.speeds.items() if second > warmup]
        self.figure("tps", mean(tps) if tps else summary.tps, "1/s")
        if len(tps) >= 2:
            self.figure("worst_second", min(tps), "1/s")
        for name in ("p50", "p95", "p99", "p999", "max"):
            self.figure(name, summary.latency.get(name), "ms", "lower")
        if summary.errors:
            self.figure("errors", summary.errors, "1/s", "lower")
        count = max(summary.transactions, 1)
        for name, counter, unit, factor in (
            ("flushes_per_txn", "dev_flushes", "flushes", 1.0),
            ("log_flushes_per_txn", "log_flushes", "flushes", 1.0),
            ("writes_per_txn", "dev_writes", "requests", 1.0),
            ("written_per_txn", "dev_write_bytes", "bytes", 1.0),
            ("reads_per_txn", "dev_reads", "requests", 1.0),
            ("read_per_txn", "dev_read_bytes", "bytes", 1.0),
            ("switches_per_txn", "server_switches", "switches", 1.0),
            ("server_cpu_per_txn", "server_cpu", "us", 1e6),
        ):
            total = after.total(before, counter)
            self.figure(name, None if total is None else total * factor / count, unit, "lower")
        if outcome.seconds and mean(tps):
            self.figure("client_cpu_per_txn", outcome.average("client_cpu", warmup) * 1e6 / mean(tps), "us", "lower")
        for name, value, unit in (
            ("history_peak", outcome.peak("history"), "transactions"),
            ("history_bytes_peak", outcome.peak("history_bytes"), "bytes"),
            ("rss_peak", outcome.peak("server_rss"), "bytes"),
            ("stolen_peak", outcome.peak("stolen"), "CPUs"),
            ("disk_size", after.values.get("disk_bytes"), "bytes"),
            ("table_size", float(table_bytes(self.server.datadir)), "bytes"),
        ):
            self.figure(name, value, unit, "lower")
