"""MariaDB's own test suites on Ferrite: counts per suite, and a failure for every test that fails and is not listed."""

from __future__ import annotations

import argparse
import sys
import time

from lib.engines import Engine, engine
from lib.places import Places, find_places
from lib.server import stop_on_signals
from mtr.derive import DERIVED, derive_all, port_name
from mtr.expected import expectations, judge
from mtr.oracle import SUITES, oracle, test_names
from mtr.rr_trx import Stress
from mtr.runner import Result, engine_options, run_mtr
from mtr.tree import Tree, runner_account

ENGINES_SUITES = ("engines/iuds", "engines/funcs", "engines/rr_trx")
ALL = ("storage_engine", *ENGINES_SUITES, *DERIVED)
CI = ("storage_engine", "engines/iuds")
OVERLAYS = {"innodb": "innobase", "ferrite": "ferrite", "rocksdb": "rocksdb"}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test mtr", description=__doc__)
    parser.add_argument("suites", nargs="*", help=f"of {', '.join(ALL)}; default: all")
    parser.add_argument("--engine", default="ferrite")
    parser.add_argument("--ci", action="store_true", help=f"only {', '.join(CI)}")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument(
        "--disk", action="store_true", help="put data directories on disk instead of in memory (/dev/shm)"
    )
    parser.add_argument("--nowarnings", action="store_true", help="do not look for warnings in the servers' logs")
    parser.add_argument("--tests", default="", help="only these tests, comma-separated, of the suites named")
    parser.add_argument("--seconds", type=float, default=60, help="how long engines/rr_trx runs")
    arguments = parser.parse_args()
    known = {s.rpartition("/")[2]: s for s in ALL} | {port_name(s): s for s in DERIVED}
    chosen = [known.get(s, s) for s in arguments.suites] or list(CI if arguments.ci else ALL)
    wrong = [s for s in chosen if s not in ALL]
    if wrong:
        parser.error(f"no such suite: {', '.join(wrong)}")
    arguments.suites = chosen
    return arguments


class Suites:
    """Runs suites on one engine."""

    def __init__(self, arguments: argparse.Namespace, tree: Tree, places: Places, kind: Engine) -> None:
        self.arguments = arguments
        self.tree = tree
        self.places = places
        self.kind = kind
        self.derived: dict[str, list[str]] = {}
        self.only = [t for t in arguments.tests.split(",") if t]

    def run(self, suite: str) -> list[Result]:
        """One suite; storage_engine is three."""
        print(f"mtr: {suite} on {self.kind.name}", flush=True)
        if suite == "storage_engine":
            return [self._storage_engine(s) for s in SUITES]
        if suite == "engines/rr_trx":
            return [Stress(self.tree, self.places, self.kind, self.arguments.seconds).run()]
        if suite in ENGINES_SUITES:
            return [self._engines(suite)]
        return [self._derived(suite)]

    def _mtr(self, label: str, suite: str, names: list[str], *more: str) -> Result:
        if self.only:
            names = [n for n in names if n in self.only] if names else self.only
        if not names and self.only:
            return Result(label)
        if self.arguments.nowarnings:
            more += ("--nowarnings",)
        arguments = [f"--suite={suite}", *engine_options(self.kind), *more, *names]
        parallel = 1 if label.startswith("storage_engine") else self.arguments.parallel  # a result holds the path
        return run_mtr(self.tree, label, arguments, parallel, disk=self.arguments.disk)

    def _storage_engine(self, suite: str) -> Result:
        overlay = OVERLAYS[self.arguments.engine]
        return self._mtr(suite, f"{suite}-{overlay}", test_names(self.tree, suite), "--enable-disabled")

    def _engines(self, suite: str) -> Result:
        lower = self.kind.name.lower()
        block = f"[{lower}]\ninnodb\ndefault-storage-engine={lower}\npartition\n"
        directory = self.tree.mtr / "suite" / suite
        self.tree.write(directory / "combinations", block)
        if lower != "innodb":  # results that name the engine
            for found in (directory / "r").glob("*,innodb.rdiff"):
                text = found.read_text(encoding="utf-8", errors="surrogateescape").replace("InnoDB", self.kind.name)
                self.tree.write(found.with_name(found.name.replace(",innodb", f",{lower}")), text)
        return self._mtr(suite, suite, [])

    def _derived(self, suite: str) -> Result:
        if not self.derived:
            self.derived = derive_all(self.tree, self.kind)
        names = self.derived[suite]
        print(f"  {len(names)} portable tests", flush=True)
        return self._mtr(port_name(suite), port_name(suite), names)


def main() -> int:
    """Run; 0 when nothing failed that is not listed."""
    arguments = _arguments()
    stop_on_signals()
    places = find_places()
    tree = Tree(places, runner_account())
    held = tree.lock()
    tree.prepare()
    if "storage_engine" in arguments.suites:
        oracle(tree)
    suites = Suites(arguments, tree, places, engine(arguments.engine))
    listed = expectations() if arguments.engine == "ferrite" else {}
    begun = time.monotonic()
    failed = 0
    table = []
    for suite in arguments.suites:
        for result in suites.run(suite):
            verdict = judge(result, listed)
            failed += len(verdict.unexpected) + (not result.complete and not arguments.tests)
            table.append(_row(result, len(verdict.known)))
            _tell(result, verdict.unexpected, verdict.recovered)
    print(f"\n{'suite':28} {'pass':>5} {'fail':>5} {'listed':>6} {'skip':>5} {'off':>4} {'s':>6}")
    print("\n".join(table))
    held.close()
    print(f"{failed} unexpected failures, {time.monotonic() - begun:.0f} s in all")
    return 1 if failed else 0


def _row(result: Result, known: int) -> str:
    counts = result.counts()
    bad = counts["fail"] + counts["retry-fail"] + counts["exp-fail"]
    passed = counts["pass"] + counts["retry-pass"]
    return f"{result.suite:28} {passed:5} {bad:5} {known:6} {counts['skipped']:5} {counts['disabled']:4} {result.seconds:6.0f}"


def _tell(result: Result, unexpected: list[str], recovered: list[str]) -> None:
    if not result.complete:
        print(f"  mtr ran no test of {result.suite}; its words are in {result.log}")
    if unexpected:
        print(f"  unexpected failures of {result.suite} (details in {result.log}): {' '.join(unexpected)}")
    if recovered:
        print(f"  these pass and are listed as failures: {' '.join(recovered)}")


if __name__ == "__main__":
    sys.exit(main())
