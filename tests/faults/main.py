"""Faults under a real server: a sync that fails once, a disk that becomes full and has space again, a death at each step
of DDL, a clock that is set back, an XA COMMIT that the binary log refuses."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

from faults import clock, ddl, load, xa
from faults.shimmed import Failed, Shimmed, say
from lib.engines import engine
from lib.places import Places, find_places
from lib.server import Server, home_in_memory, stop_on_signals

CLIENTS = 8
SKIPPED = 77
DISK_BYTES = 900 << 20


def _wait(what: str, seconds: float, done: object) -> None:
    until = time.monotonic() + seconds
    while not done():  # type: ignore[operator]
        if time.monotonic() > until:
            raise Failed(f"waited {seconds} s for: {what}")
        time.sleep(0.05)


def _sync_fails_once(places: Places, shim: Path, file: str) -> None:
    """The server stops, says why, and restarts with everything that was acknowledged."""
    options = ["--ferrite-buffer-pool-size=16M", "--ferrite-log-budget=256M"]
    server = Shimmed(places, engine("ferrite"), options, home_in_memory())
    trigger = server.home / "trigger"
    server.environment = (f"LD_PRELOAD={shim}", f"FAULT_TRIGGER={trigger}", f"FAULT_FILE=#ferrite/{file}")
    try:
        server.start()
        load.create(server, CLIENTS)
        writers = load.start(server, CLIENTS)
        _wait("commits before the fault", 60, lambda: sum(w.commits for w in writers) > 500)
        trigger.touch()
        _wait(f"a sync of {file}*", 60, lambda: not trigger.exists())
        _wait("the server's end", 30, lambda: not server.alive())
        load.finish(writers)
        said = [line for line in server.log_tail(200).splitlines() if "Ferrite" in line and "sync" in line]
        if not said or file not in said[-1]:
            raise Failed(f"no line of the error log says that the sync of {file}* failed:\n{server.log_tail()}")
        server.start()
        faults = load.check(server, writers)
        if faults:
            raise Failed(f"after a failed sync of {file}*: {faults[:5]}")
        commits = sum(w.commits for w in writers)
        say(f"failed sync of {file}*: {commits} commits, none missing; the server said: {said[-1][-160:]}")
    finally:
        server.remove()


def _fill(directory: Path) -> Path:
    """A file that takes all that is free."""
    filler = directory / "filler"
    with filler.open("wb", buffering=0) as f:
        try:
            for size in (1 << 20, 4096):
                while f.write(bytes(size)) == size:
                    pass
        except OSError:
            pass
    return filler


def _disk_fills(places: Places, times: int) -> None:
    """Writes are refused while the disk is full and go on when it is not; the server never ends."""
    options = ["--ferrite-buffer-pool-size=16M", "--ferrite-log-budget=256M"]
    server = Server(places, engine("ferrite"), options, home_in_memory())
    server.create()
    disk = server.datadir / "#ferrite"
    disk.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mount.returncode:
        server.remove()
        say(f"skipped: no small file system can be mounted here: {mount.stderr.decode().strip()}")
        sys.exit(SKIPPED)
    try:
        server.start()
        load.create(server, CLIENTS)
        writers = load.start(server, CLIENTS)
        for cycle in range(1, times + 1):
            time.sleep(0.5)
            filler = _fill(disk)
            acknowledged, refusal = load.grow(server, 60)
            if not refusal:
                raise Failed(f"cycle {cycle}: the disk is full and {len(acknowledged)} large rows went in")
            time.sleep(1)
            filler.unlink()
            faults = load.check_grown(server, acknowledged)
            if faults:
                raise Failed(f"cycle {cycle}: {faults[:5]}")
            before = sum(w.commits for w in writers)
            try:
                _wait(
                    f"commits after full disk {cycle}", 60, lambda b=before: sum(w.commits for w in writers) > b + 100
                )
            except Failed as e:
                said = next((w.last_refusal for w in writers if w.last_refusal), "nothing")
                free = os.statvfs(disk).f_bavail >> 8
                raise Failed(f"{e}; clients hear: {said}; {free} MiB free; log:\n{server.log_tail(10)}") from None
            if not server.alive():
                raise Failed(f"the server ended in cycle {cycle}:\n{server.log_tail()}")
        load.finish(writers)
        faults = load.check(server, writers)
        if faults:
            raise Failed(f"after {times} times a full disk: {faults[:5]}")
        server.kill()
        server.start()
        faults = load.check(server, writers)
        if faults:
            raise Failed(f"after {times} times a full disk, and kill -9: {faults[:5]}")
        commits, refused = sum(w.commits for w in writers), sum(w.refused for w in writers)
        say(f"full disk {times} times: {commits} commits, none missing; {refused} refused; large rows: {refusal}")
    finally:
        server.kill()
        subprocess.run(["umount", "-l", str(disk)], check=False)
        server.remove()


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="./ferrite test faults", description=__doc__)
    parser.add_argument("--engine", default="ferrite", choices=["ferrite"])
    parser.add_argument("--times", type=int, default=20, help="how often the disk fills")
    parser.add_argument("--only", choices=("sync", "full", "ddl", "clock", "xa"), help="one kind of fault")
    parser.add_argument(
        "--statement", default="", metavar="PART", help="of DDL, only statements that have PART in them"
    )
    parser.add_argument("--ci", action="store_true", help="the disk fills 3 times, and only ALTER in place is killed")
    arguments = parser.parse_args()
    stop_on_signals()
    places = find_places()
    try:
        if arguments.only in (None, "sync"):
            for file in ("redo.", "store.", "map.", "checkpoint."):
                _sync_fails_once(places, Path(os.environ["FAULT_SHIM"]), file)
        if arguments.only in (None, "ddl"):
            ddl.run(places, Path(os.environ["DDL_SHIM"]), arguments.ci, arguments.statement)
        if arguments.only in (None, "xa"):
            xa.run(places, Path(os.environ["FAULT_SHIM"]))
        if arguments.only in (None, "clock"):
            clock.run(places, Path(os.environ["CLOCK_SHIM"]))
        if arguments.only in (None, "full"):
            _disk_fills(places, 3 if arguments.ci else arguments.times)
    except Failed as e:
        say(f"FAILED: {e}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
