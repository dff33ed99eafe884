"""Scenarios of bugs that were fixed, on a running server: crashes, hangs, wrong rows, lost space, wrong errors."""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

from corners.env import Env, Scenario
from lib.server import stop_on_signals

FRAME = {"__init__", "env", "main", "make_database", "replicas"}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test corners", description=__doc__)
    parser.add_argument("--engine", default="ferrite", choices=["ferrite"])
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="a module, or scenarios whose name has NAME in it; may be given again",
    )
    parser.add_argument("--list", action="store_true", help="print the names of all scenarios")
    parser.add_argument(
        "--time", type=float, default=0, help="seconds for each scenario that goes on for as long as is wished"
    )
    parser.add_argument("--ci", action="store_true", help="without those marked slow, two modules at a time")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="modules at a time (1, with --ci 2)")
    parser.add_argument("--make-database", default="", metavar="NAME", help="create a database for upgrade.py")
    parser.add_argument("--killed", action="store_true", help="kill the server of that database under load")
    return parser.parse_args()


def _modules() -> list[ModuleType]:
    names = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in FRAME)
    return [importlib.import_module(f"corners.{name}") for name in names]


def _scenarios(module: ModuleType, arguments: argparse.Namespace) -> list[tuple[str, Scenario]]:
    """Names and functions, in the order of the file."""
    short = module.__name__.rsplit(".", 1)[1]
    found = []
    for name, function in vars(module).items():
        if not name.startswith("scenario_") or arguments.ci and getattr(function, "is_slow", False):
            continue
        title = f"{short}.{name.removeprefix('scenario_')}"
        if not arguments.only or any(name == short or name in title for name in arguments.only):
            found.append((title, function))
    return found


class Runner:
    """Runs scenarios and counts."""

    def __init__(self) -> None:
        self.env: Env | None = None
        self.passed = 0
        self.failed: list[str] = []

    def module(self, module: ModuleType, scenarios: list[tuple[str, Scenario]]) -> None:
        """All scenarios of a module: on a shared server, or on their own."""
        shared = list(getattr(module, "OPTIONS", []))
        for title, scenario in scenarios:
            own = getattr(scenario, "own_options", None)
            if own is not None:
                self.close()
            self._one(title, scenario, shared if own is None else own)
            if own is not None:
                self.close()
        self.close()

    def _one(self, title: str, scenario: Scenario, server_options: list[str]) -> None:
        begun = time.monotonic()
        try:
            self.env = self.env or Env(server_options)
            self.env.fresh_database()
            scenario(self.env)
            self.env.check_alive()
            self.env.close_sessions()
            if self.env.down_on_purpose:
                self.env.start()
        except Exception as e:  # whatever it is, the next scenario has its chance
            self._failed(title, e)
            return
        self.passed += 1
        print(f"{title}: passed, {time.monotonic() - begun:.1f} s", flush=True)

    def _failed(self, title: str, error: Exception) -> None:
        self.failed.append(title)
        where = traceback.extract_tb(error.__traceback__)
        mine = [f for f in where if "/corners/" in f.filename and not f.filename.endswith(("env.py", "main.py"))]
        place = f" ({Path(mine[-1].filename).name}:{mine[-1].lineno})" if mine else ""
        notes = "".join(f"\n  {note}" for note in getattr(error, "__notes__", []))
        print(f"{title}: FAILED{place}: {type(error).__name__}: {error}{notes}", flush=True)
        if self.env and not self.env.server.alive():
            print("the server is gone; end of its error log:\n" + self.env.server.log_tail(25), flush=True)
        self.close()

    def close(self) -> None:
        """The server and its directory go."""
        if self.env:
            self.env.server.remove()
        self.env = None


def _run_module(name: str, arguments: argparse.Namespace) -> tuple[int, list[str]]:
    """The scenarios of one module: how many passed, and which failed."""
    Env.seconds = arguments.time
    runner = Runner()
    try:
        module = importlib.import_module(f"corners.{name}")
        if scenarios := _scenarios(module, arguments):
            runner.module(module, scenarios)
    finally:
        runner.close()
    return runner.passed, runner.failed


def _run(arguments: argparse.Namespace) -> tuple[int, list[str]]:
    """All that is asked for. Half of it is waiting, for locks and for servers, so two modules get along on two cores."""
    names = [m.__name__.rsplit(".", 1)[1] for m in _modules() if _scenarios(m, arguments)]
    jobs = [(name, arguments) for name in names]
    at_once = arguments.jobs or (2 if arguments.ci else 1)
    if at_once == 1 or len(jobs) < 2:
        results = [_run_module(*job) for job in jobs]
    else:
        with multiprocessing.get_context("fork").Pool(at_once, stop_on_signals) as pool:
            results = pool.starmap(_run_module, jobs, chunksize=1)
    return sum(passed for passed, _ in results), [title for _, failed in results for title in failed]


def main() -> int:
    """Entry point."""
    arguments = _arguments()
    stop_on_signals()
    if arguments.make_database:
        importlib.import_module("corners.make_database").make(arguments.make_database, arguments.killed)
        return 0
    if arguments.list:
        print("\n".join(title for module in _modules() for title, _ in _scenarios(module, arguments)))
        return 0
    passed, failed = _run(arguments)
    if not passed and not failed:
        print(f"no scenario is called {' or '.join(arguments.only)}")
        return 2
    print(f"{passed} scenarios passed, {len(failed)} failed" + "".join(f"\n  {title}" for title in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
