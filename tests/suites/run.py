"""One suite on one engine: a private server, the suite's process, the outcome of every test."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lib.engines import Engine
from lib.places import Places
from lib.server import Server, ServerFailed, home_in_memory
from suites.fetch import python
from suites.table import NO_SUBSTITUTION, Suite

INSIDE = Path(__file__).resolve().parent / "inside"
ZONES = Path("/usr/share/zoneinfo")
WORST_LAST = ("passed", "skipped", "failed")


class Failed(Exception):
    """The suite did not come to its end."""


@dataclass
class Outcomes:
    """What became of every test."""

    tests: dict[str, str]
    reasons: dict[str, str]
    seconds: float

    def line(self) -> str:
        """The counts."""
        count = Counter(self.tests.values())
        counts = ", ".join(f"{count[what]:,} {what}" for what in WORST_LAST)
        return f"{len(self.tests):,} tests: {counts}; {self.seconds:.0f} s"


def server_for(places: Places, suite: Suite, engine: Engine) -> Server:
    """A server in memory, the same for both engines."""
    options = ["--character-set-server=utf8mb4", "--max-connections=300", "--max-allowed-packet=64M"]
    options += [engine.flush(2), engine.pool("512M"), "--lock-wait-timeout=300"]
    if suite.enforced:
        options += [f"--enforce-storage-engine={engine.name}", f"--sql-mode={NO_SUBSTITUTION}"]
    return Server(places, engine, options, home_in_memory())


def run(server: Server, suite: Suite, root: Path, what: list[str], logs: Path) -> Outcomes:
    """Start the server, run the suite or the parts of it that are named, remove the server."""
    outcomes = logs / "outcomes.jsonl"
    outcomes.unlink(missing_ok=True)
    begun = time.monotonic()
    try:
        server.start()
        _prepare(server)
        with _left_as_it_was(root):
            _process(server, suite, root, what, logs)
        server.check()
    except ServerFailed as e:
        raise Failed(str(e)) from None
    finally:
        server.remove()
    return read(outcomes, time.monotonic() - begun)


def read(path: Path, seconds: float) -> Outcomes:
    """The lines that the suite's process has written; of several lines of one test the worst counts."""
    tests: dict[str, str] = {}
    reasons: dict[str, str] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in lines:
        entry = json.loads(line)
        test, outcome = entry["test"], entry["outcome"]
        if WORST_LAST.index(outcome) >= WORST_LAST.index(tests.get(test, "passed")):
            tests[test] = outcome
            reasons[test] = entry["why"]
    return Outcomes(tests, reasons, seconds)


@contextlib.contextmanager
def _left_as_it_was(root: Path) -> Iterator[None]:
    """What a suite leaves beside its tests goes: of a name of Django's tests it would be taken for them by the next run."""
    before = {entry.name for entry in root.iterdir()}
    try:
        yield
    finally:
        for entry in [entry for entry in root.iterdir() if entry.name not in before]:
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def _prepare(server: Server) -> None:
    """Databases that SQLAlchemy wants beside its own; the time zones of this machine, if it has any."""
    client = [str(server.places.program("mariadb")), "--no-defaults", f"--socket={server.socket}", "-uroot", "mysql"]
    sql = "CREATE DATABASE test_schema; CREATE DATABASE test_schema_2; ALTER DATABASE test CHARACTER SET utf8mb4;"
    if ZONES.exists():
        sql += _said([str(server.places.program("mariadb-tzinfo-to-sql")), str(ZONES)], server)
    _said(client, server, sql)


def _said(words: list[str], server: Server, feed: str = "") -> str:
    done = subprocess.run(words, input=feed, env=server.places.child_env(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{Path(words[0]).name}: {done.stderr[-1000:]}")
    return done.stdout


def _process(server: Server, suite: Suite, root: Path, what: list[str], logs: Path) -> None:
    uri = f"mysql+pymysql://root@localhost/test?unix_socket={server.socket}&charset=utf8mb4"
    left_out = [f"--deselect={one.tests}" for one in suite.left_out]
    words = [python(), *[word.replace("{uri}", uri) for word in suite.command], *left_out, *what]
    keep = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    environment = {
        **keep,
        "PYTHONPATH": os.pathsep.join([str(INSIDE), *[str(root / path) for path in suite.paths]]),
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(server.home),
        "FERRITE_SUITE_SOCKET": server.socket,
        "FERRITE_SUITE_OUTCOMES": str(logs / "outcomes.jsonl"),
    }
    with (logs / "output.txt").open("w", encoding="utf-8") as output:
        try:
            done = subprocess.run(
                words,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=suite.limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"not done after {suite.limit:.0f} s; its last words are in {logs}") from None
    if done.returncode not in (0, 1):  # 1: tests failed
        raise Failed(f"ended with exit code {done.returncode}; its last words are in {logs}")
