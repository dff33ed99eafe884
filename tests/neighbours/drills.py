"""The drills of docs/operating/guide.md on an instance of ./ferrite: a backup restored beside the server, the copy killed while
clients write to it, then damaged, salvaged, and loaded into a new server."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pymysql

from neighbours import shop
from neighbours.fleet import Fleet
from neighbours.place import Failed, Session, expect, free_port

FAULTS = 1
"""ferrite-check's exit code when something is damaged or missing."""


class _Place:
    """Where the drill's instances are, as the server's own account can reach them, and how to say so to the page's commands."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.work = Path(tempfile.mkdtemp(prefix="ferrite-drill-", dir="/var/tmp"))
        self.work.chmod(0o711)
        self.root = Path(os.environ["FERRITE_ROOT"])
        self.port = free_port()

    def ferrite(self, *words: str) -> None:
        """The launcher."""
        self._shell(" ".join(["./ferrite", *words]))

    def _shell(self, script: str, good: int = 0) -> str:
        path = f"{os.environ['FERRITE_TOOLS']}:{os.environ['PATH']}"
        run = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.root,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        said = run.stdout + run.stderr
        expect(run.returncode == good, f"exit code {run.returncode}, not {good}, of\n{script}\n", said[-3000:])
        return said

    def run(self, block: str, words: tuple[str, ...], good: int = 0) -> str:
        """A block of the page: its words `/srv`, `/backup` and 3399 are places of the test's own."""
        own = {
            "/srv": str(self.work),
            "/backup/drill": f"{self.work}/backup",
            "3399": str(self.port),
            "./ferrite backup": f"./ferrite backup --dir {self.work}/source",
        }
        return self._shell(self.fleet.page.block(block, {word: own[word] for word in words}), good)

    def connect(self, name: str, **more: Any) -> Any:
        """As the account that has started the server."""
        settings = {"unix_socket": str(self.work / name / "ferrite.sock"), "user": getpass.getuser(), **more}
        return pymysql.connect(autocommit=True, read_timeout=60, **settings)

    def remove(self) -> None:
        """Shut down what runs, remove all of it."""
        for name in ("source", "drill"):
            if (self.work / name).exists():
                self.ferrite("down", "--dir", str(self.work / name))
        shutil.rmtree(self.work, ignore_errors=True)


def drills(fleet: Fleet) -> str:
    """Backup, crash, corruption, one after the other."""
    place = _Place(fleet)
    try:
        copied = _backup(place)
        crashed = _crash(place)
        return f"{copied}; {crashed}; {_corruption(place)}"
    finally:
        place.remove()


def _backup(place: _Place) -> str:
    """A backup beside writers, restored and started."""
    source = place.work / "source"
    place.ferrite("up", "--dir", str(source), "--port", str(free_port()), "--socket", f"{source}.sock")
    session = Session(place.connect("source"))
    shop.fill(session)
    with shop.Writers(lambda: place.connect("source")) as writers:
        writers.work(50)
        before = writers.acknowledged()
        place.run("drill_backup", ("/srv", "/backup/drill", "3399", "./ferrite backup"))
        writers.stop()
    said = place.run("drill_look", ("/srv",))
    expect(said.count("OK") == 2, "CHECK TABLE of the copy", said)
    copy = Session(place.connect("drill"))
    shop.consistent(copy, before)
    shop.whole(copy)
    place.ferrite("down", "--dir", str(source))
    return f"restored with {copy.value('SELECT COUNT(*) FROM shop.entry')} transactions"


def _crash(place: _Place) -> str:
    """The copy is killed under writers. It has no binary log, without which no transaction over two engines survives that as a whole."""
    Session(place.connect("drill")).run("ALTER TABLE shop.visit ENGINE=FERRITE")
    with shop.Writers(lambda: place.connect("drill"), shop.GONE) as writers:
        writers.work(100)
        before = writers.acknowledged()
        said = place.run("drill_crash", ("/srv", "3399"))
        writers.work(20)
        writers.stop()
    session = Session(place.connect("drill"))
    shop.consistent(session, {**before, **writers.acknowledged()})
    shop.whole(session)
    took = dict(line.split()[:2] for line in said.splitlines() if line.startswith("Ferrite_recovery"))
    expect(int(took.get("Ferrite_recovery_log_bytes", 0)) > 0, "recovery after kill -9", said)
    return f"recovered in {took['Ferrite_recovery_time']} ms"


def _corruption(place: _Place) -> str:
    """Pages of the copy are overwritten: it is noticed, and what can be read comes back."""
    session = Session(place.connect("drill"))
    tables = [row[0] for row in session.run("SHOW TABLES FROM shop WHERE Tables_in_shop NOT IN ('rich', 'visit')")]
    had = {t: session.value(f"SELECT COUNT(*) FROM shop.{t}") for t in tables}
    said = place.run("drill_damage", ("/srv",), FAULTS)
    if "store.0000" not in said:
        raise Failed(f"ferrite-check does not name the file:\n{said[-2000:]}")
    place.run("drill_salvage", ("/srv",), FAULTS)
    target = place.fleet.started(6)
    script = place.fleet.page.block("drill_load", {"/srv": str(place.work)})
    place.fleet.programs.run(script, target.home)
    session = target.session()
    there = {row[0] for row in session.run("SHOW TABLES FROM shop")}
    has = {t: session.value(f"SELECT COUNT(*) FROM shop.{t}") if t in there else 0 for t in tables}
    expect(all(has[t] <= had[t] for t in tables), "more rows than there were", (has, had))
    expect(sum(has.values()) > 0, "salvaged rows", (has, had))
    target.remove()
    return f"{sum(has.values())} of {sum(had.values())} rows salvaged"
