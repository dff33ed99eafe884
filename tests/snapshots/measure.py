"""What twenty kept snapshots cost those who work: commits a second without and with, in turns. Then rewinds of the whole database
to some of them, until the server answers again."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from backup.load import Load, fill_wide
from lib.engines import engine
from lib.places import Places
from lib.server import Server

ROWS = 5_500_000
"""They take a little more than 5 GB."""
FEW_ROWS = 50_000
"""With --ci."""
SUMMED_ROWS = 200_000
CLIENTS = 4
KEPT = 20
PAIRS = 3
SLICE_S = 8.0
REWINDS = 5
AIM_COMMITS = 0.95
"""At least this share of the commits remains while all are kept."""
AIM_REWIND_S = 10.0
"""From the stopped server to one that answers."""


def _rate(load: Load) -> float:
    since = load.now()
    time.sleep(SLICE_S)
    return load.rate(since)


def _drop_all(cursor: Any) -> None:
    cursor.execute("SELECT name FROM information_schema.FERRITE_KEPT_SNAPSHOTS")
    for (name,) in cursor.fetchall():
        cursor.execute(f"SET GLOBAL ferrite_snapshot_drop = '{name}'")


def _pairs(server: Server, rows: int, pairs: int, say: Any) -> float:
    """Of the commits the share that remains. As many snapshots as are to be rewound to are left, with changes between them."""
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        fill_wide(cursor, rows)
        load = Load(server, CLIENTS, rows)
        ratios = []
        try:
            time.sleep(SLICE_S)
            for pair in range(pairs):
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
            for number in range(REWINDS):
                cursor.execute(f"SET GLOBAL ferrite_snapshot_create = 'r{number}'")
                time.sleep(SLICE_S / 4)
        finally:
            load.stop()
        say(f"ratio of commits: median {statistics.median(ratios):.2f}")
    return statistics.median(ratios)


def _size_bytes(server: Server) -> int:
    return sum(f.stat().st_blocks * 512 for f in (server.datadir / "#ferrite").iterdir())


def _sum(server: Server) -> int:
    """It grows by each update of the rows at the table's beginning."""
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(f"SELECT SUM(v) FROM wide WHERE n < {SUMMED_ROWS}")
        return int(cursor.fetchone()[0])


def _rewinds(server: Server, say: Any) -> float:
    """To each of them in turn, the latest first, and forth again to the present: seconds of the slowest until the server answers."""
    slowest, sums = 0.0, [_sum(server)]
    for turn, to in enumerate([*(f"r{n}" for n in reversed(range(REWINDS))), "p0"]):
        server.stop()
        begun = time.monotonic()
        command = [os.environ["FERRITE_REWIND"], str(server.datadir), to, "--keep-as", f"p{turn}"]
        subprocess.run(command, check=True)
        took = time.monotonic() - begun
        started = server.start()
        slowest = max(slowest, took + started)
        sums.append(_sum(server))
        say(
            f"rewind to {to} of {_size_bytes(server) / 1e9:.1f} GB: {took + started:.1f} s until the server answers, {started:.1f} s of it its start"
        )
    # Earlier moments have had fewer updates, each of which adds one.
    assert sums[:-1] == sorted(sums[:-1], reverse=True) and sums[-1] == sums[0], sums
    return slowest


def measure(places: Places, say: Any, short: bool, rows: int) -> int:
    """Pairs of without and with, in turns; then rewinds. The exit code: 1 when an aim is missed, unless this is `short`."""
    rows, pairs = rows or (FEW_ROWS if short else ROWS), 1 if short else PAIRS
    home = Path(tempfile.mkdtemp(prefix="ferrite-snapshots-measure-", dir="/var/tmp"))
    server = Server(places, engine("ferrite"), ["--ferrite-buffer-pool-size=128M", "--ferrite-log-budget=256M"], home)
    try:
        server.start()
        share = _pairs(server, rows, pairs, say)
        slowest = _rewinds(server, say)
        server.stop()
    finally:
        server.remove()
    missed = []
    if share < AIM_COMMITS:
        missed.append(f"{share:.2f} of the commits remain with {KEPT} snapshots kept (at least {AIM_COMMITS})")
    if slowest > AIM_REWIND_S:
        missed.append(f"the slowest rewind took {slowest:.1f} s until the server answered (at most {AIM_REWIND_S:.0f})")
    for line in missed:
        say(f"missed: {line}")
    return 1 if missed and not short else 0
