"""What a hot backup costs those who work beside it: commits a second with and without, and the longest commit."""

from __future__ import annotations

import contextlib
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from lib.engines import engine
from lib.places import Places
from lib.server import Server

ROWS = 300_000
CLIENTS = 4
PAIRS = 3


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
    """Commits a second while it runs, the longest commit in ms, MiB a second copied."""
    since = load.now()
    cursor.execute(f"SET GLOBAL ferrite_backup_dir = '{to}'")
    for stage in ("START", "BLOCK_COMMIT", "END"):
        cursor.execute(f"BACKUP STAGE {stage}")
    begun = time.monotonic()
    while (state := _row(cursor, "SELECT state, copied_bytes, error FROM information_schema.FERRITE_BACKUP"))[
        0
    ] == "COPYING":
        time.sleep(0.02)
    assert state[0] == "COMPLETE", state
    speed = state[1] / 2**20 / (time.monotonic() - begun)
    result = load.rate(since), max(load.longest) * 1000, speed
    shutil.rmtree(to)
    return result


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
            load = Load(server)
            try:
                time.sleep(5)
                ratios = []
                for pair in range(PAIRS):
                    since = load.now()
                    time.sleep(5)
                    without, longest = load.rate(since), max(load.longest) * 1000
                    with_, longest_with, speed = _backup(cursor, load, home / "to")
                    ratios.append(with_ / without)
                    say(
                        f"pair {pair}: {without:.0f} commits/s, longest {longest:.1f} ms; with a backup at {speed:.0f} MiB/s"
                        f" {with_:.0f} commits/s, longest {longest_with:.1f} ms"
                    )
            finally:
                load.stop()
            say(f"ratio of commits: median {statistics.median(ratios):.2f}")
        server.stop()
    finally:
        server.remove()
