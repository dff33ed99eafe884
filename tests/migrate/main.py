"""Tests of `./ferrite migrate` on a private server: tables of every kind there and back, under writers, with the program and the
server killed at every point and at random moments, with wrong input.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lib.server import stop_on_signals
from migrate import deaths, inputs, moves, stops
from migrate.env import Env

Scenario = Callable[[Env], None]
AT_A_TIME = 2
"""Each has a server of its own, and mostly waits."""
LONG = ("program_killed", "server_killed", "writers_and_deaths")
"""They begin first."""


def _scenarios() -> dict[str, Scenario]:
    found: dict[str, Scenario] = {}
    for module in (moves, deaths, inputs, stops):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("scenario_"):
                found[name.removeprefix("scenario_")] = function
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test migrate", description=__doc__)
    parser.add_argument("--ci", action="store_true", help="the short form, under a minute")
    parser.add_argument("--only", action="append", metavar="NAME", help="this scenario; can be repeated")
    parser.add_argument("--list", action="store_true", help="name the scenarios")
    parser.add_argument("--rounds", type=int, default=20, help="rounds with kills at random moments")
    parser.add_argument("--engine", default="ferrite", help="for the common interface of the tests; no other has a way")
    arguments = parser.parse_args()
    arguments.rounds = 2 if arguments.ci else arguments.rounds
    return arguments


def _play(name: str, scenario: Scenario, arguments: argparse.Namespace) -> bool:
    began = time.monotonic()
    options = getattr(scenario, "options", ())
    env = Env(arguments.rounds, arguments.ci, *options, plugin=getattr(scenario, "plugin", True))
    try:
        scenario(env)
    except Exception:
        print(f"{name}: FAILED", flush=True)
        traceback.print_exc()
        print(env.server.log_tail())
        return False
    finally:
        env.close()
    print(f"{name}: ok, {time.monotonic() - began:.1f} s", flush=True)
    return True


def main() -> int:
    """Exit code 0 if all went well."""
    arguments = _arguments()
    stop_on_signals()
    scenarios = _scenarios()
    if arguments.list:
        print("\n".join(scenarios))
        return 0
    unknown = set(arguments.only or []) - set(scenarios)
    if unknown or arguments.engine != "ferrite":
        print(f"unknown: {', '.join(unknown) or arguments.engine}")
        return 2
    names = [x for x in scenarios if not (arguments.ci and getattr(scenarios[x], "slow", False))]
    names = arguments.only or sorted(names, key=lambda x: x not in LONG)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        played = pool.map(lambda name: _play(name, scenarios[name], arguments), names)
        failed = [name for name, good in zip(names, played, strict=True) if not good]
    print(f"{len(names) - len(failed)} passed, {len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
