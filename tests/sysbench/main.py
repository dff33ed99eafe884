"""Every bundled OLTP script with 1 and 16 threads: no error, and CHECK TABLE ... EXTENDED is OK after each."""

from __future__ import annotations

import argparse
import sys

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, stop_on_signals
from lib.sysbench import OLTP, check_tables, make_database, sysbench


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test sysbench", description=__doc__)
    parser.add_argument("--engine", default="ferrite")
    parser.add_argument("--time", type=int, default=30, help="seconds for each run")
    parser.add_argument("--threads", default="1,16")
    parser.add_argument("--rows", type=int, default=100000)
    parser.add_argument("--tables", type=int, default=2)
    parser.add_argument("--only", default="", help="comma-separated scripts")
    parser.add_argument("--ci", action="store_true", help="3 seconds each, 20,000 rows")
    arguments = parser.parse_args()
    if arguments.ci:
        arguments.time, arguments.rows = 3, 20000
    return arguments


def _errors(text: str) -> str:
    """The lines that say what went wrong."""
    lines = [x for x in text.splitlines() if "FATAL" in x or "error" in x.lower() and "errors:" not in x]
    return "\n      ".join(lines[:6])


def one_script(server: Server, script: str, arguments: argparse.Namespace) -> int:
    """Prepare, run with each number of threads, check; the number of things that failed."""
    make_database(server)
    size = [] if script == "bulk_insert" else [f"--tables={arguments.tables}", f"--table-size={arguments.rows}"]
    failed = 0
    for threads in (int(t) for t in arguments.threads.split(",")):
        if script == "bulk_insert" or not failed and threads == int(arguments.threads.split(",")[0]):
            if script == "bulk_insert":
                make_database(server)
            prepared = sysbench(
                server, script, "prepare", f"--threads={threads if script == 'bulk_insert' else 1}", *size
            )
            if prepared.failed:
                print(f"  {script}: prepare FAILED\n      {_errors(prepared.text)}", flush=True)
                return failed + 1
        run = sysbench(server, script, "run", *size, f"--threads={threads}", f"--time={arguments.time}", "--events=0")
        wrong = check_tables(server) if server.alive() else ["the server died:\n" + server.log_tail()]
        state = "ok" if not run.failed and not wrong else "FAILED"
        print(
            f"  {script:24} {threads:3} threads {run.tps:10.0f} tps  p95 {run.p95:8.2f} ms  ignored errors {run.ignored_errors}  {state}",
            flush=True,
        )
        if run.failed:
            print(f"      {_errors(run.text)}")
        for text in wrong:
            print(f"      {text}")
        failed += state != "ok"
        if not server.alive():
            server.start()
    return failed


def main() -> int:
    """Run; 0 when every script ran and every table was OK."""
    arguments = _arguments()
    stop_on_signals()
    kind = engine(arguments.engine)
    server = Server(
        find_places(),
        kind,
        [kind.pool("1G"), kind.flush(1), "--max-connections=200", "--max-prepared-stmt-count=100000"],
    )
    failed = 0
    try:
        server.start()
        print(f"sysbench's scripts on {kind.name}, {arguments.time} s each")
        for script in [s for s in arguments.only.split(",") if s] or OLTP:
            failed += one_script(server, script, arguments)
    finally:
        server.remove()
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
