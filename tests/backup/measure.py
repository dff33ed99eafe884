"""What a hot backup at 200 MB/s costs those who work beside it: commits a second with and without, and the longest commit, also
beside `./ferrite backup` itself. Beside it a program that only reads and writes as many bytes, on the same disk: what the disk leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from backup.load import Load, fill_wide
from backup.tool import beside_the_tool
from lib.engines import engine
from lib.places import Places
from lib.server import Server

ROWS = 1_000_000
FEW_ROWS = 50_000
"""With --ci."""
CLIENTS = 16
PAIRS = 3
RATE = 200_000_000
"""Bytes a second that are copied."""
SECONDS = 6
"""How long the clients are watched without a backup, and beside the program that only copies."""
AIM_COMMITS = 0.9
"""At least this share of the commits remains."""
AIM_LONGEST_MS = 10.0
"""No commit beside a backup takes longer."""


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
    result = load.rate(since), load.longest_ms(), speed
    shutil.rmtree(to)
    return result


def _watched(load: Load) -> tuple[float, float]:
    """Commits a second, and the longest in ms."""
    since = load.now()
    time.sleep(SECONDS)
    return load.rate(since), load.longest_ms()


def _beside_a_copy(load: Load, home: Path) -> float:
    """Commits a second beside a program that only copies."""
    words = [sys.executable, "-m", "backup.copier", home / "from", home / "copy", str(RATE), str(SECONDS + 2)]
    with subprocess.Popen(words) as copier:
        time.sleep(1)
        rate, _ = _watched(load)
        copier.wait()
    return rate


def _pairs(server: Server, home: Path, rows: int, clients: int, pairs: int, say: Any) -> tuple[float, float]:
    """Of the commits the share that remains beside a backup, and the longest of them in ms."""
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        fill_wide(cursor, rows)
        cursor.execute(f"SET GLOBAL ferrite_backup_max_rate = {RATE}")
        with open(home / "from", "wb") as file:
            for _ in range(512):
                file.write(os.urandom(1 << 20))
        load = Load(server, clients, rows)
        try:
            time.sleep(5)
            ratios, of_copies, longest_of_all = [], [], 0.0
            for pair in range(pairs):
                without, longest = _watched(load)
                with_, longest_with, speed = _backup(cursor, load, home / "to")
                again, _ = _watched(load)
                copy = _beside_a_copy(load, home)
                ratios.append(with_ / without)
                of_copies.append(copy / again)
                longest_of_all = max(longest_of_all, longest_with)
                say(
                    f"pair {pair}: {without:.0f} commits/s, longest {longest:.1f} ms; with a backup at {speed:.0f} MB/s"
                    f" {with_:.0f} commits/s ({ratios[-1]:.2f}), longest {longest_with:.1f} ms; beside a program that"
                    f" only copies {copy:.0f} of {again:.0f} ({of_copies[-1]:.2f})"
                )
        finally:
            load.stop()
    say(f"commits: median {statistics.median(ratios):.2f}, beside a copy {statistics.median(of_copies):.2f}")
    return statistics.median(ratios), longest_of_all


def measure(places: Places, say: Any, short: bool, clients: int) -> int:
    """Pairs of without and with, in turns; then beside the program. The exit code: 1 when an aim is missed, unless this is `short`."""
    rows, pairs, clients = FEW_ROWS if short else ROWS, 1 if short else PAIRS, clients or CLIENTS
    home = Path(tempfile.mkdtemp(prefix="ferrite-backup-measure-", dir="/var/tmp"))
    server = Server(places, engine("ferrite"), ["--ferrite-buffer-pool-size=128M", "--ferrite-log-budget=256M"], home)
    try:
        server.start()
        share, longest_ms = _pairs(server, home, rows, clients, pairs, say)
        server.stop()
    finally:
        server.remove()
    beside = beside_the_tool(clients, rows)
    say(str(beside))
    missed = []
    if share < AIM_COMMITS:
        missed.append(f"{share:.2f} of the commits remain beside a backup (at least {AIM_COMMITS})")
    for what, ms in (("a backup", longest_ms), ("./ferrite backup", beside.longest_ms)):
        if ms > AIM_LONGEST_MS:
            missed.append(f"the longest commit beside {what} took {ms:.1f} ms (at most {AIM_LONGEST_MS:.0f})")
    for line in missed:
        say(f"missed: {line}")
    return 1 if missed and not short else 0
