"""The test suites of Django and SQLAlchemy, which nobody here wrote, on InnoDB and on Ferrite: what passes on the one passes on
the other, but for the differences that table.py explains."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from lib.engines import engine
from lib.places import Places, find_places
from lib.server import stop_on_signals
from suites.compare import Difference, differences
from suites.fetch import NotHere, unpacked
from suites.run import Failed, Outcomes, run, server_for
from suites.table import SUITES, Suite

SKIPPED = 77


def main() -> int:
    """Entry point."""
    arguments = _arguments()
    stop_on_signals()
    places = find_places()
    chosen = [suite for suite in SUITES if arguments.only in (None, suite.name) and (suite.short or not arguments.ci)]
    results = [_suite(places, suite, arguments) for suite in chosen]
    if not all(result in (0, SKIPPED) for result in results):
        return 1
    return 0 if 0 in results else SKIPPED


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test suites", description=__doc__)
    parser.add_argument("--ci", action="store_true", help="only a few modules, with foreign keys")
    parser.add_argument("--only", choices=[suite.name for suite in SUITES], help="one of the suites")
    parser.add_argument("--engines", default="innodb,ferrite", help="reference engine, engine under test; or just one")
    parser.add_argument("--tests", metavar="NAME", action="append", help="only these: a module or test of the suite")
    parser.add_argument("--logs", metavar="DIR", type=Path, help="keep output and outcomes here")
    return parser.parse_args()


def _suite(places: Places, suite: Suite, arguments: argparse.Namespace) -> int:
    try:
        root = unpacked(places.cache, suite)
    except NotHere as e:
        print(f"{suite.name}: left out: {e}", flush=True)
        return SKIPPED
    what = arguments.tests or list(suite.short if arguments.ci else suite.all)
    done: list[Outcomes] = []
    for name in arguments.engines.split(","):
        logs = (arguments.logs or places.cache / "suites" / "logs") / f"{suite.name}-{name}"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        kind = engine(name)
        try:
            outcomes = run(server_for(places, suite, kind), suite, root, what, logs)
        except Failed as e:
            print(f"FAILED: {suite.name} {suite.version} on {kind.name}: {e}", flush=True)
            return 1
        print(f"{suite.name} {suite.version} on {kind.name}: {outcomes.line()}", flush=True)
        done.append(outcomes)
    return _compared(suite, done) if len(done) == 2 else 0


def _compared(suite: Suite, done: list[Outcomes]) -> int:
    """Print what differs; 1 if some of it is not explained."""
    one, two = done
    found = differences(suite, one, two)
    for difference in found:
        print(difference.text(), flush=True)
    unexplained = [x for x in found if x.counts]
    both = sum(two.tests.get(test) == outcome == "failed" for test, outcome in one.tests.items())
    print(
        f"{suite.name}: {len(unexplained)} differences without an explanation, {_rest(found)}; {both} tests fail on both"
    )
    if not any(outcome == "passed" for outcome in one.tests.values()):
        print(f"FAILED: {suite.name}: no test passed with the reference engine")
        return 1
    return 1 if unexplained else 0


def _rest(found: list[Difference]) -> str:
    better = sum(x.better for x in found)
    return f"{sum(not x.counts and not x.better for x in found)} explained, {better} that only the engine under test passes"


if __name__ == "__main__":
    sys.exit(main())
