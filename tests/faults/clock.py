"""A clock that was ahead and is set right: the schedule of snapshots goes on."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from faults.shimmed import Failed, Shimmed, say
from lib.engines import engine
from lib.places import Places
from lib.server import home_in_memory

AHEAD_S = 3600
INTERVAL_S = 1
"""Between two snapshots of the schedule."""
ENOUGH_S = 15
COUNT = "SELECT COUNT(*) FROM information_schema.FERRITE_KEPT_SNAPSHOTS WHERE scheduled = 'YES'"


def _count(server: Shimmed) -> int:
    with contextlib.closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute(COUNT)
        return int(cursor.fetchone()[0])


def _wait_for_more(server: Shimmed, when: str, more: int = 2) -> None:
    wanted, until = _count(server) + more, time.monotonic() + ENOUGH_S
    while _count(server) < wanted:
        if time.monotonic() > until:
            raise Failed(f"no snapshots of the schedule for {ENOUGH_S} s, {when}")
        time.sleep(0.1)


def run(places: Places, shim: Path) -> None:
    """Set right while the server runs, and while it is stopped."""
    options = ["--ferrite-buffer-pool-size=16M", f"--ferrite-snapshot-interval={INTERVAL_S}"]
    server = Shimmed(places, engine("ferrite"), options, home_in_memory())
    clock = server.home / "clock"
    server.environment = (f"LD_PRELOAD={shim}", f"FAULT_CLOCK={clock}")
    clock.write_text(str(AHEAD_S))
    try:
        server.start()
        _wait_for_more(server, "with a clock that is ahead")
        clock.write_text("0")
        _wait_for_more(server, "after the clock was set right")
        clock.write_text(str(AHEAD_S))
        _wait_for_more(server, "with a clock that is ahead again")
        server.stop()
        clock.write_text("0")
        server.start()
        _wait_for_more(server, "after a start with the right clock")
        told = server.error_log.read_text(errors="replace").count("the clock has gone back")
        if told != 2:
            raise Failed(f"the log says {told} times, not twice, that the clock has gone back:\n{server.log_tail()}")
        say("a clock that was an hour ahead, set right in a running and in a stopped server: the schedule goes on")
    finally:
        server.remove()
