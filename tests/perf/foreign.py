"""What foreign keys cost, on two engines in turn: children inserted, a hot parent, many rows in one statement, large cascades."""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, stop_on_signals
from lib.sysbench import Figures, side_by_side, sysbench

SCRIPT = str(Path(__file__).with_name("foreign.lua"))
PARTS = ("insert", "hot", "count", "bulk", "cascade")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test perf foreign", description=__doc__)
    parser.add_argument("--engines", default="innodb,ferrite", help="reference, engine under test")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--time", type=int, default=10, help="seconds of one run")
    parser.add_argument("--children", type=int, default=1_000_000, help="rows of one statement, or one cascade")
    parser.add_argument("--threads", type=int, default=64, help="sessions that insert children of one parent")
    parser.add_argument("--only", default="", help=", ".join(PARTS))
    return parser.parse_args()


def _options(kind: Any) -> list[str]:
    common = ["--performance-schema=OFF", "--skip-log-bin", "--max-connections=200"]
    return [kind.pool("1G"), kind.flush(2), kind.lock_wait(50), *common]


def _told(held: bool, text: str) -> bool:
    load = " ".join(f"{n:.1f}" for n in os.getloadavg())
    print(f"{text}: {'held' if held else 'MISSED'} (load average {load})", flush=True)
    return held


# ---- many sessions -----------------------------------------------------------------------------


def _load(server: Server, load: str, threads: int, foreign: bool, seconds: int) -> Figures:
    options = (f"--load={load}", f"--foreign={'on' if foreign else 'off'}", f"--threads={threads}")
    sysbench(server, SCRIPT, "prepare", *options)
    done = sysbench(server, SCRIPT, "run", *options, f"--time={seconds}", "--mysql-ignore-errors=1213")
    if done.failed or not done.tps:
        sys.exit(f"{server.engine.name} failed:\n{done.text[-2000:]}")
    return done


def _compare_loads(servers: list[Server], arguments: argparse.Namespace, load: str, threads: int) -> bool:
    """With the foreign key at least 0.95 of the throughput without it, and no deadlock."""
    ratios: dict[str, list[float]] = {s.engine.name: [] for s in servers}
    deadlocks = dict.fromkeys(ratios, 0)
    for number in range(1, arguments.pairs + 1):
        for server in servers:
            order = (False, True) if number % 2 else (True, False)
            done = {foreign: _load(server, load, threads, foreign, arguments.time) for foreign in order}
            name = server.engine.name
            ratios[name].append(done[True].tps / done[False].tps)
            deadlocks[name] += done[True].ignored_errors
            print(
                f"  {load} {number}: {name} {done[False].tps:.0f} tps without, {done[True].tps:.0f} with, p95 {done[False].p95:.2f} and"
                f" {done[True].p95:.2f} ms, {done[True].ignored_errors} deadlocks",
                flush=True,
            )
    medians = {name: statistics.median(r) for name, r in ratios.items()}
    ours = servers[-1].engine.name
    theirs = servers[0].engine.name
    text = (
        f"{load}: {threads} threads keep {medians[ours]:.3f} of the throughput (0.95), {theirs} {medians[theirs]:.3f}"
    )
    held = medians[ours] >= 0.95 and not deadlocks[ours]
    return _told(held, f"{text}; deadlocks {deadlocks[ours]} (0), {theirs} {deadlocks[theirs]}")


# ---- one statement -------------------------------------------------------------------------------


@contextlib.contextmanager
def _cursor(server: Server) -> Iterator[Any]:
    connection = server.connect(database="sbtest", autocommit=True, ssl_disabled=True)
    try:
        with connection.cursor() as cursor:
            yield cursor
    finally:
        connection.close()


def _seconds(cursor: Any, sql: str) -> float:
    begun = time.monotonic()
    cursor.execute(sql)
    return time.monotonic() - begun


def _tables(cursor: Any, name: str, foreign: bool, actions: str = "") -> None:
    cursor.execute("DROP TABLE IF EXISTS child")
    cursor.execute("DROP TABLE IF EXISTS parent")
    cursor.execute(f"CREATE TABLE parent (id INT PRIMARY KEY, n INT) ENGINE={name}")
    cursor.execute("INSERT INTO parent SELECT seq, 0 FROM seq_1_to_10000")
    key = f", FOREIGN KEY (parent) REFERENCES parent (id) {actions}" if foreign else ""
    cursor.execute(
        f"CREATE TABLE child (id INT PRIMARY KEY, parent INT, n INT, KEY parent (parent){key}) ENGINE={name}"
    )


def compare_bulk(servers: list[Server], arguments: argparse.Namespace) -> bool:
    """INSERT ... SELECT: nothing but rows. At least the share of its speed that the reference keeps."""
    ratios: dict[str, list[float]] = {s.engine.name: [] for s in servers}
    fill = f"INSERT INTO child SELECT seq, 1 + seq * 7919 % 10000, 0 FROM seq_1_to_{arguments.children}"
    for number in range(1, arguments.pairs + 1):
        for server in servers:
            name = server.engine.name
            took = {}
            for foreign in (False, True):
                with _cursor(server) as cursor:
                    _tables(cursor, name, foreign)
                    took[foreign] = _seconds(cursor, fill)
            ratios[name].append(took[False] / took[True])
            print(f"  bulk {number}: {name} {took[False]:.2f} s without, {took[True]:.2f} s with", flush=True)
    theirs, ours = (statistics.median(ratios[s.engine.name]) for s in servers)
    return _told(
        ours >= theirs, f"bulk: {arguments.children} rows of one statement keep {ours:.3f} of the speed ({theirs:.3f})"
    )


class _Memory:
    """The most memory a server has had meanwhile, in MiB above what it had before."""

    def __init__(self, server: Server) -> None:
        assert server.child
        self.status = Path(f"/proc/{server.child.pid}/statm")
        self.over = threading.Event()
        self.before = self.most = self._now()
        self.thread = threading.Thread(target=self._watch)

    def _now(self) -> float:
        return int(self.status.read_text().split()[1]) * 4096 / (1 << 20)

    def _watch(self) -> None:
        while not self.over.wait(0.02):
            self.most = max(self.most, self._now())

    def __enter__(self) -> _Memory:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    @property
    def grown(self) -> float:
        """Of it."""
        return self.most - self.before


def _cascade(server: Server, children: int, statement: str) -> tuple[float, float]:
    """Seconds and MiB of a cascade over so many children, the pool warm."""
    with _cursor(server) as cursor:
        _tables(cursor, server.engine.name, True, "ON DELETE CASCADE ON UPDATE CASCADE")
        for first in range(1, children + 1, 100_000):
            cursor.execute(f"INSERT INTO child SELECT seq, 1, seq FROM seq_{first}_to_{min(first + 99_999, children)}")
        cursor.execute("SELECT SUM(n) FROM child")
        with _Memory(server) as memory:
            took = _seconds(cursor, statement)
        cursor.execute("SELECT COUNT(*) FROM child WHERE parent = 1")
        if cursor.fetchone()[0]:
            sys.exit(f"{server.engine.name}: not all has followed")
    return took, memory.grown


def compare_cascades(servers: list[Server], arguments: argparse.Namespace) -> bool:
    """At most the reference's time, and at most 256 MiB besides what the pool takes."""
    held = True
    for statement in ("DELETE FROM parent WHERE id = 1", "UPDATE parent SET id = 20000 WHERE id = 1"):
        ratios, most = [], 0.0
        for number in range(1, arguments.pairs + 1):
            pair = [_cascade(server, arguments.children, statement) for server in servers]
            ratios.append(pair[1][0] / pair[0][0])
            most = max(most, pair[1][1])
            text = ", ".join(
                f"{s.engine.name} {x:.2f} s, {mib:.0f} MiB" for s, (x, mib) in zip(servers, pair, strict=True)
            )
            print(f"  cascade {number}: {text}", flush=True)
        ratio = statistics.median(ratios)
        text = f"cascade: {statement.split()[0]} with {arguments.children} children takes {ratio:.2f} of the reference's time (1.0)"
        held = _told(ratio <= 1.0 and most <= 256, f"{text}, {most:.0f} MiB (256)") and held
    return held


def main() -> int:
    """Run; 0 when every figure holds."""
    arguments = _arguments()
    stop_on_signals()
    chosen = arguments.only.split(",") if arguments.only else list(PARTS)
    kinds = [engine(name) for name in arguments.engines.split(",")]
    servers = [Server(find_places(), kind, _options(kind)) for kind in kinds]
    held = True
    with side_by_side(servers):
        for part in chosen:
            if part == "bulk":
                held = compare_bulk(servers, arguments) and held
            elif part == "cascade":
                held = compare_cascades(servers, arguments) and held
            elif part == "insert":
                held = _compare_loads(servers, arguments, part, 1) and held
                held = _compare_loads(servers, arguments, part, 8) and held
            else:
                threads = arguments.threads + (8 if part == "hot" else 0)
                held = _compare_loads(servers, arguments, part, threads) and held
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
