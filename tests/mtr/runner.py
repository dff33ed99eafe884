"""One mtr invocation: the command, its output read line by line, the outcome of every test."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lib.engines import Engine
from mtr.alone import possible, wrapped
from mtr.tree import Tree

LINE = re.compile(r"^(\S+\.\S+)(?: '([^']*)')?\s+(?:w\d+ )?\[ ([a-z-]+) \]\s*(.*)$")
OVERLAY_NAME = re.compile(r"^(storage_engine(?:/\w+)?)-\w+\.")
BAD = ("fail", "retry-fail", "exp-fail")


@dataclass
class Outcome:
    """What happened to one test in one combination."""

    name: str
    combination: str
    state: str
    note: str = ""


@dataclass
class Result:
    """All outcomes of one suite."""

    suite: str
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    log: str = ""
    complete: bool = True

    def counts(self) -> Counter[str]:
        """How many of each state."""
        return Counter(o.state for o in self.outcomes)


def engine_options(kind: Engine) -> list[str]:
    """mtr options that load the engine into every server it starts."""
    if not kind.plugin:
        return []
    options = [f"--mysqld=--plugin-load-add={kind.plugin}", "--mysqld=--plugin-maturity=experimental"]
    if kind.prefix == "ferrite":
        options.append("--mysqld=--loose-ferrite-use-direct-io=0")
    return options


def run_mtr(
    tree: Tree, suite: str, arguments: Iterable[str], parallel: int = 1, quiet: bool = False, disk: bool = True
) -> Result:
    """Run mtr and collect the outcomes."""
    var = tree.var(re.sub(r"[^a-z_]", "-", suite), disk)
    shutil.rmtree(var, ignore_errors=True)
    log_path = tree.home / f"var-{re.sub(r'[^a-z_]', '-', suite)}.log"
    command = [
        "perl",
        "./mysql-test-run.pl",
        f"--vardir={var}",
        f"--parallel={parallel}",
        "--force",
        "--max-test-fail=0",
    ]
    command += ["--retry=0", "--testcase-timeout=5", "--suite-timeout=120", "--max-save-core=0", *arguments]
    command, switch = _in_private(tree, command)
    result = Result(suite, log=str(log_path))
    begun = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=tree.mtr,
        env=tree.child_env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        **switch,  # type: ignore[call-overload]
    )
    assert process.stdout
    try:
        with log_path.open("w", encoding="utf-8") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                _read(line, result, quiet)
        process.wait()
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if var.parent != tree.home:
        _leave_memory(var, tree.home / f"{log_path.stem}-logs")
    result.seconds = time.monotonic() - begun
    result.complete = bool(result.outcomes)
    return result


def _in_private(tree: Tree, command: list[str]) -> tuple[list[str], dict[str, object]]:
    """The command where nobody else reaches its servers, which let everybody in; and keywords for subprocess."""
    account = tree.account
    if possible(account.uid, account.gid):
        return wrapped(account.uid, account.gid, command), {}
    print("  no network namespace can be had here: servers have no network, and replication is not tested", flush=True)
    return [*command, "--mysqld=--skip-networking", "--skip-rpl"], account.switch


def _leave_memory(var: Path, keep: Path) -> None:
    """Keep the servers' logs and give the memory back."""
    shutil.rmtree(keep, ignore_errors=True)
    if (var / "log").exists():
        shutil.copytree(
            var / "log", keep, symlinks=True, ignore=shutil.ignore_patterns("*.sock", "core*", "ib*", "mysqld.*.data")
        )
    shutil.rmtree(var.parent, ignore_errors=True)


def _read(line: str, result: Result, quiet: bool) -> None:
    found = LINE.match(line)
    if not found:
        return
    name, combination, state, note = found.groups()
    name = OVERLAY_NAME.sub(r"\1.", name)
    outcome = Outcome(name, combination or "", state, note.strip())
    result.outcomes.append(outcome)
    if not quiet and state in BAD:
        print(f"  fail: {name}{' ' + combination if combination else ''} {note}", flush=True)
    if not quiet and len(result.outcomes) % 25 == 0:
        print(f"  ... {len(result.outcomes)} tests of {result.suite}: {dict(result.counts())}", flush=True)
