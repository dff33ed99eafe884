"""Programs that stand beside a server, at their real work on Ferrite tables beside writing clients, by the commands that
docs/operating/neighbours.md shows; what they leave is compared with what it must be.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lib.places import find_places
from lib.server import ServerFailed, stop_on_signals
from neighbours import drills, dumps, percona, proxy, upgrade
from neighbours.fleet import Fleet
from neighbours.page import Page
from neighbours.place import Failed, Programs

SKIPPED = 77


@dataclass(frozen=True)
class Scenario:
    """One neighbour, and whether continuous integration looks at it."""

    name: str
    program: str
    play: Callable[[Fleet], str]
    short: bool = False


SCENARIOS = [
    Scenario("mariadb-dump", "mariadb-dump", dumps.mariadb_dump, short=True),
    Scenario("mydumper", "mydumper", dumps.mydumper),
    Scenario("pt-online-schema-change", "pt-online-schema-change", percona.schema_change, short=True),
    Scenario("pt-archiver", "pt-archiver", percona.archiver, short=True),
    Scenario("pt-table-checksum", "pt-table-checksum", percona.table_checksum),
    Scenario("mariadb-upgrade", "mariadb-upgrade", upgrade.mariadb_upgrade),
    Scenario("drills", "mariadb", drills.drills),
    # The last one: primary and replica have changed places.
    Scenario("haproxy", "haproxy", proxy.failover),
]


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="./ferrite test neighbours", description=__doc__)
    parser.add_argument("--engine", default="ferrite", choices=["ferrite"])
    parser.add_argument("--ci", action="store_true", help="the three that take least and do most")
    parser.add_argument("--only", metavar="NAME", action="append", help="those whose name contains this")
    args = parser.parse_args()
    stop_on_signals()
    chosen = [s for s in SCENARIOS if (s.short or not args.ci) and any(o in s.name for o in args.only or [""])]
    places, found = find_places(), os.environ.get("FERRITE_NEIGHBOURS", "")
    programs = Programs(Path(found) if found else None, places)
    if programs.root:
        print("; ".join((programs.root / "packages").read_text().splitlines()), flush=True)
    fleet = None
    try:
        fleet = Fleet(places, programs, Page(Path(os.environ["FERRITE_ROOT"])))
        left_out = [s.name for s in chosen if not _played(fleet, s)]
        if chosen == SCENARIOS and not left_out and fleet.page.unused():
            raise Failed(f"blocks of the page that nothing has run: {fleet.page.unused()}")
    except (Failed, ServerFailed) as e:
        print(f"FAILED: {e}", flush=True)
        return 1
    finally:
        if fleet:
            fleet.close()
    return SKIPPED if len(left_out) == len(chosen) else 0


def _played(fleet: Fleet, scenario: Scenario) -> bool:
    """Whether the program is there; what its scenario says."""
    if not fleet.programs.have(scenario.program):
        print(
            f"{scenario.name}: left out: the packages of this Debian that can be had have no {scenario.program}",
            flush=True,
        )
        return False
    begun = time.monotonic()
    try:
        said = scenario.play(fleet)
    except Failed as e:
        raise Failed(f"{scenario.name}: {e}") from None
    print(f"{scenario.name}: {said}; {time.monotonic() - begun:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
