"""engines/rr_trx: repeatable-read tests run again and again by several clients at once on shared tables.

The suite was made for a stress driver that today's mtr no longer has, so this is a small one: it initialises the tables,
lets clients run random tests of run.txt with the server's test client, and counts results that differ. The suite's text is
older than the server: `rows` is a word of SQL by now, CONNECTION_ID() is unsigned, INSERT IGNORE warns.
"""

from __future__ import annotations

import random
import re
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

from lib.engines import Engine
from lib.places import Places
from lib.server import Server
from mtr.runner import Outcome, Result
from mtr.tree import Tree

CLIENTS = 10


class Stress:
    """One run of the suite."""

    def __init__(self, tree: Tree, places: Places, kind: Engine, seconds: float) -> None:
        self.tree = tree
        self.suite = tree.mtr / "suite" / "engines" / "rr_trx"
        self.places = places
        self.kind = kind
        self.seconds = seconds
        self.passed: Counter[str] = Counter()
        self.failed: dict[str, list[str]] = {}
        self.lock = threading.Lock()

    def run(self) -> Result:
        """Initialise, stress, check."""
        begun = time.monotonic()
        old_name = self.tree.mtr / "suite" / "stress_tx_rr"
        if not old_name.exists():
            old_name.symlink_to("engines/rr_trx")
        result = Result("engines/rr_trx", log=str(self.tree.home / "rr_trx.log"))
        server = Server(
            self.places,
            self.kind,
            [self.kind.lock_wait(2), "--sql-mode=no_engine_substitution,no_unsigned_subtraction"],
        )
        try:
            server.start()
            with server.connect() as connection, connection.cursor() as cursor:
                cursor.execute("CREATE DATABASE IF NOT EXISTS test")
            self._init(server)
            self._stress(server)
        finally:
            server.remove()
        for name in sorted(set(self.passed) | set(self.failed)):
            state = "fail" if name in self.failed else "pass"
            note = f"{self.passed[name]} times passed, {len(self.failed.get(name, []))} failed"
            result.outcomes.append(Outcome(f"engines/rr_trx.{name}", "", state, note))
        Path(result.log).write_text("\n".join(f"{n}:\n{t[0]}" for n, t in self.failed.items()), encoding="utf-8")
        for name, texts in self.failed.items():
            print(f"  fail: engines/rr_trx.{name}: {texts[0][-600:]}", flush=True)
        result.seconds = time.monotonic() - begun
        return result

    def _client(self, server: Server, test: Path, expected: Path | None, directory: Path) -> str:
        """One run of one test; the text of what is wrong, or nothing."""
        directory.mkdir(exist_ok=True)
        command = [
            str(self.places.basedir / "bin" / "mariadb-test"),
            "--no-defaults",
            f"--socket={server.socket}",
            "--user=root",
        ]
        command += [
            "--database=test",
            f"--basedir={self.tree.mtr}",
            f"--test-file={test}",
            f"--logdir={directory}",
            "--silent",
        ]
        command.append(f"--prologue={server.home / 'quiet.inc'}")
        if expected:
            command.append(f"--result-file={expected}")
        run = subprocess.run(
            command,
            env=self.places.child_env(),
            cwd=self.tree.mtr,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if run.returncode in (0, 62) or "ER_AUTOINC_READ_FAILED" in run.stderr + run.stdout:
            return ""  # 62: skipped; the error comes on InnoDB too, from ON DUPLICATE KEY UPDATE under these clients
        return (run.stdout + run.stderr) or f"status {run.returncode}"

    def _init(self, server: Server) -> None:
        source = (self.suite / "t" / "init_innodb.test").read_text()
        source = re.sub(r"--source include/have_innodb.inc\n", "", source).replace("InnoDB", self.kind.name)
        included = (self.suite / "include" / "rr_init.test").read_text()
        included = re.sub(r"\brows\b(?= INT|$)", "row_count", included, flags=re.MULTILINE)
        (server.home / "rr_init.test").write_text(included)
        (server.home / "quiet.inc").write_text("--disable_warnings\nlet $query_count= 0;\n")
        source = source.replace("suite/engines/rr_trx/include/rr_init.test", str(server.home / "rr_init.test"))
        test = server.home / "init.test"
        test.write_text(source)
        wrong = self._client(server, test, None, server.home / "init")
        if wrong:
            self.failed["init"] = [wrong]
        else:
            self.passed["init"] += 1

    def _stress(self, server: Server) -> None:
        names = [n for n in (self.suite / "run.txt").read_text().split() if n]
        until = time.monotonic() + self.seconds
        threads = [
            threading.Thread(target=self._loop, args=(server, number, names, until)) for number in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not server.alive():
            self.failed.setdefault("server", []).append("the server died:\n" + server.log_tail())

    def _loop(self, server: Server, number: int, names: list[str], until: float) -> None:
        rng = random.Random(number)
        while time.monotonic() < until and server.alive():
            name = rng.choice(names)
            expected = self.suite / "r" / f"{name}.result"
            # mariadb-test writes a .reject file beside the result: each client gets a copy of its own.
            directory = server.home / f"client-{number}"
            directory.mkdir(exist_ok=True)
            own = directory / expected.name
            own.write_bytes(expected.read_bytes())
            wrong = self._client(server, self.suite / "t" / f"{name}.test", own, directory)
            with self.lock:
                if wrong:
                    self.failed.setdefault(name, []).append(wrong)
                else:
                    self.passed[name] += 1
