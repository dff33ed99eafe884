"""What twenty kept snapshots cost those who work: commits a second without and with, in turns; time of a rewind."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from backup.measure import ROWS, Load
from lib.engines import engine
from lib.places import Places
from lib.server import Server

KEPT = 20
PAIRS = 3
SLICE_S = 8.0


def _rate(load: Load) -> float:
    since = load.now()
    time.sleep(SLICE_S)
    return load.rate(since)


def _drop_all(cursor: Any) -> None:
    cursor.execute("SELECT name FROM information_schema.FERRITE_KEPT_SNAPSHOTS")
    for (name,) in cursor.fetchall():
        cursor.execute(f"SET GLOBAL ferrite_snapshot_drop = '{name}'")


def _pairs(server: Server, say: Any) -> None:
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE wide (n INT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(1000))")
        cursor.execute(f"INSERT INTO wide SELECT seq, 0, REPEAT(CHAR(65 + seq % 26), 900) FROM seq_0_to_{ROWS - 1}")
        load = Load(server)
        ratios = []
        try:
            time.sleep(SLICE_S)
            for pair in range(PAIRS):
                without = _rate(load)
                for number in range(KEPT):
                    cursor.execute(f"SET GLOBAL ferrite_snapshot_create = 'm{pair}_{number}'")
                    time.sleep(0.2)
                with_ = _rate(load)
                cursor.execute("SHOW GLOBAL STATUS LIKE 'Ferrite_kept_snapshots_bytes'")
                kept = int(cursor.fetchone()[1]) >> 20
                # The one before and the one after stand for the same.
                _drop_all(cursor)
                after = _rate(load)
                ratios.append(with_ / ((without + after) / 2))
                say(
                    f"pair {pair}: {without:.0f}, {after:.0f} commits/s; with {KEPT} kept, {kept} MiB, {with_:.0f} commits/s"
                )
            cursor.execute("SET GLOBAL ferrite_snapshot_create = 'there'")
            time.sleep(SLICE_S)
        finally:
            load.stop()
        say(f"ratio of commits: median {statistics.median(ratios):.2f}")


def measure(places: Places, say: Any) -> None:
    """Pairs of without and with, in turns; then a rewind."""
    home = Path(tempfile.mkdtemp(prefix="ferrite-snapshots-measure-", dir="/var/tmp"))
    server = Server(places, engine("ferrite"), ["--ferrite-buffer-pool-size=128M", "--ferrite-log-budget=256M"], home)
    try:
        server.start()
        _pairs(server, say)
        server.stop()
        bytes_ = sum(f.stat().st_blocks * 512 for f in (server.datadir / "#ferrite").iterdir())
        begun = time.monotonic()
        subprocess.run([os.environ["FERRITE_REWIND"], str(server.datadir), "there"], check=True)
        took = time.monotonic() - begun
        started = server.start()
        say(f"rewind of {bytes_ >> 20} MiB: {took:.1f} s, and {started:.1f} s to start the server")
        server.stop()
    finally:
        server.remove()
