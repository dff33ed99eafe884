"""Schemas of real applications, from packages: loaded with both engines, they give the same tables, keys and foreign keys,
the same statements fail, and a dump of them can be loaded again. Then go-tpc's TPC-C and TPC-H (tpc.py)."""

from __future__ import annotations

import argparse
import sys
import time

from applications import tpc
from applications.fetch import NotHere, unpacked
from applications.schemas import Failed, Loader, statements
from applications.table import APPLICATIONS, Application
from lib.places import Places, find_places
from lib.server import stop_on_signals

SKIPPED = 77


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="./ferrite test applications", description=__doc__)
    parser.add_argument("--engine", default="ferrite", choices=["ferrite"])
    parser.add_argument("--ci", action="store_true", help="only the few with the most foreign keys, and no go-tpc")
    parser.add_argument("--only", metavar="NAME", help="those whose name contains this")
    parser.add_argument("--whole", action="store_true", help="go-tpc with 10 warehouses and all of scale factor 1")
    args = parser.parse_args()
    stop_on_signals()
    only = (args.only or "").lower()
    chosen = [a for a in APPLICATIONS if (a.short or not args.ci) and only in a.name.lower()]
    benchmarks = [name for name in tpc.BENCHMARKS if not args.ci and only in name.lower()]
    results = []
    if chosen:
        results.append(schemas(find_places(), chosen))
    if benchmarks:
        results.append(tpc.run(find_places(), benchmarks, tpc.WHOLE if args.whole else tpc.SMALL))
    if any(result not in (0, SKIPPED) for result in results):
        return 1
    return 0 if 0 in results else SKIPPED


def schemas(places: Places, chosen: list[Application]) -> int:
    """Load them one after the other; the sums at the end."""
    loader = Loader(places)
    begun = time.monotonic()
    done, failed, absent, tables, wanted, refused = 0, 0, 0, 0, 0, 0
    try:
        loader.server.start()
        for application in chosen:
            try:
                roots = [unpacked(places.cache / "applications", source) for source in application.sources]
                result = loader.one(application, statements(roots, application))
            except NotHere as e:
                print(f"{application.name}: left out: {e}", flush=True)
                absent += 1
                continue
            except Failed as e:
                print(f"FAILED: {e}", flush=True)
                failed += 1
                continue
            print(result.line(), flush=True)
            done += 1
            tables += len(result.found.tables)
            wanted += len(result.wanted.tables)
            refused += len(result.refused)
    finally:
        loader.server.remove()
    print(
        f"{done} schemas as on InnoDB, {failed} not, {absent} left out: {tables} of InnoDB's {wanted} tables,"
        f" {refused} with FULLTEXT or SPATIAL indexes; {time.monotonic() - begun:.0f} s"
    )
    # Some can be had, so the network is there: the others are missing for another reason.
    if failed or (done and absent > len(chosen) // 4):
        return 1
    return 0 if done else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
