"""What a hot backup at 200 MB/s costs those who work beside it: commits a second with and without, and the longest commit.
Beside it a program that only reads and writes as many bytes, on the same disk: what the disk leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from lib.engines import engine
from lib.places import Places
from lib.server import Server

ROWS = 1_000_000
CLIENTS = 4
PAIRS = 3
RATE = 200_000_000
"""Bytes a second that are copied."""
SECONDS = 6
"""How long the clients are watched without a backup, and beside the program that only copies."""


class Load:
    """Clients that update one row a transaction; counts commits, and the longest since it was last asked."""

    def __init__(self, server: Server) -> None:
        self.stopping = threading.Event()
        self.commits = [0] * CLIENTS
        self.longest = [0.0] * CLIENTS
        self.threads = [threading.Thread(target=self._work, args=(server, n)) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def _work(self, server: Server, number: int) -> None:
        rng = Random(number)
        connection = server.connect(database="test", autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            while not self.stopping.is_set():
                begun = time.monotonic()
                cursor.execute(f"UPDATE wide SET v = v + 1 WHERE n = {rng.randrange(ROWS)}")
                self.longest[number] = max(self.longest[number], time.monotonic() - begun)
                self.commits[number] += 1

    def rate(self, begun: tuple[float, int]) -> float:
        """Commits a second since then."""
        return (sum(self.commits) - begun[1]) / (time.monotonic() - begun[0])

    def now(self) -> tuple[float, int]:
        """A moment for `rate`; the longest commit is forgotten."""
        self.longest = [0.0] * CLIENTS
        return time.monotonic(), sum(self.commits)

    def stop(self) -> None:
        """End it."""
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def _row(cursor: Any, sql: str) -> Any:
    cursor.execute(sql)
    return cursor.fetchone()


def _backup(cursor: Any, load: Load, to: Path) -> tuple[float, float, float]:
    """Commits a second while it runs, the longest commit in ms, MB a second copied."""
    since = load.now()
    cursor.execute(f"SET GLOBAL ferrite_backup_dir = '{to}'")
    for stage in ("START", "BLOCK_COMMIT", "END"):
        cursor.execute(f"BACKUP STAGE {stage}")
    begun = time.monotonic()
    while (state := _row(cursor, "SELECT state, copied_bytes, error FROM information_schema.FERRITE_BACKUP"))[
        0
    ] == "COPYING":
        time.sleep(0.1)
    assert state[0] == "COMPLETE", state
    speed = state[1] / 1e6 / (time.monotonic() - begun)
    result = load.rate(since), max(load.longest) * 1000, speed
    shutil.rmtree(to)
    return result


def _watched(load: Load) -> tuple[float, float]:
    """Commits a second, and the longest in ms."""
    since = load.now()
    time.sleep(SECONDS)
    return load.rate(since), max(load.longest) * 1000


def _beside_a_copy(load: Load, home: Path) -> float:
    """Commits a second beside a program that only copies."""
    words = [sys.executable, "-m", "backup.copier", home / "from", home / "copy", str(RATE), str(SECONDS + 2)]
    with subprocess.Popen(words) as copier:
        time.sleep(1)
        rate, _ = _watched(load)
        copier.wait()
    return rate


def measure(places: Places, say: Any) -> None:
    """Pairs of without and with, in turns."""
    home = Path(tempfile.mkdtemp(prefix="ferrite-backup-measure-", dir="/var/tmp"))
    server = Server(places, engine("ferrite"), ["--ferrite-buffer-pool-size=128M", "--ferrite-log-budget=256M"], home)
    try:
        server.start()
        connection = server.connect(database="test", autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("CREATE TABLE wide (n INT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(1000))")
            cursor.execute(f"INSERT INTO wide SELECT seq, 0, REPEAT(CHAR(65 + seq % 26), 900) FROM seq_0_to_{ROWS - 1}")
            cursor.execute(f"SET GLOBAL ferrite_backup_max_rate = {RATE}")
            with open(home / "from", "wb") as file:
                for _ in range(512):
                    file.write(os.urandom(1 << 20))
            load = Load(server)
            try:
                time.sleep(5)
                ratios, of_copies = [], []
                for pair in range(PAIRS):
                    without, longest = _watched(load)
                    with_, longest_with, speed = _backup(cursor, load, home / "to")
                    again, _ = _watched(load)
                    copy = _beside_a_copy(load, home)
                    ratios.append(with_ / without)
                    of_copies.append(copy / again)
                    say(
                        f"pair {pair}: {without:.0f} commits/s, longest {longest:.1f} ms; with a backup at {speed:.0f} MB/s"
                        f" {with_:.0f} commits/s ({ratios[-1]:.2f}), longest {longest_with:.1f} ms; beside a program that"
                        f" only copies {copy:.0f} of {again:.0f} ({of_copies[-1]:.2f})"
                    )
            finally:
                load.stop()
            say(f"commits: median {statistics.median(ratios):.2f}, beside a copy {statistics.median(of_copies):.2f}")
        server.stop()
    finally:
        server.remove()
