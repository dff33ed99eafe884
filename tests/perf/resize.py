"""The buffer pool grows and shrinks under load, on two engines in turn: the slowest second beside the median, and the memory of the
server's process before and after."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import threading
import time

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, stop_on_signals
from lib.sysbench import check_tables, side_by_side, sysbench

MIB = 1 << 20
SCRIPT = "oltp_read_write"
IGNORED = "1020,1205,1206,1213"
"""Errors after which a client goes on. 1206: InnoDB counts its locks against the pool's size while that changes."""
AIM = 0.7
"""No second is slower than this share of the median."""
AIM_MEMORY = 1.15
"""Afterwards the process has at most so many times the memory that it had before."""
WARM_UP_S = 10
SECONDS_TO_SHRINK = 60.0
"""Ferrite's pool gets smaller in the background."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test perf resize", description=__doc__)
    parser.add_argument("--engines", default="innodb,ferrite", help="reference, engine under test")
    parser.add_argument("--times", type=int, default=10, help="there and back")
    parser.add_argument("--every", type=float, default=5, help="seconds at each size")
    parser.add_argument("--small", type=int, default=128, help="MiB")
    parser.add_argument("--large", type=int, default=1024, help="MiB")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rows", type=int, default=300_000, help="rows of each of two tables")
    return parser.parse_args()


def _options(kind: object, arguments: argparse.Namespace) -> list[str]:
    common = ["--performance-schema=OFF", "--skip-log-bin"]
    return [kind.pool(f"{arguments.small}M"), kind.flush(2), *common]  # type: ignore[attr-defined]


def _resident_mib(server: Server) -> float:
    """Memory of the server's process."""
    connection = server.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@pid_file")
        (pid_file,) = cursor.fetchone()
    connection.close()
    with open(pid_file, encoding="utf-8") as file:
        pid = int(file.read())
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) / 1024  # type: ignore[union-attr]


def _back(server: Server) -> float:
    """Memory of the server's process once the pool has got as small as it is to be, or does not get there."""
    connection = server.connect(autocommit=True)
    until = time.monotonic() + SECONDS_TO_SHRINK
    with connection.cursor() as cursor:
        while time.monotonic() < until:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Ferrite_buffer_pool_pages_leaving'")
            row = cursor.fetchone()
            if row is None or int(row[1]) == 0:
                break
            time.sleep(0.1)
    connection.close()
    return _resident_mib(server)


def _breathe(server: Server, arguments: argparse.Namespace, slowest: list[float]) -> None:
    """There and back; how long the slowest SET GLOBAL took."""
    connection = server.connect(autocommit=True)
    name = f"{server.engine.prefix}_buffer_pool_size"
    with connection.cursor() as cursor:
        for _ in range(arguments.times):
            for mib in (arguments.large, arguments.small):
                time.sleep(arguments.every)
                begun = time.monotonic()
                cursor.execute(f"SET GLOBAL {name} = {mib * MIB}")
                slowest.append(time.monotonic() - begun)
    connection.close()


def run(server: Server, arguments: argparse.Namespace) -> tuple[float, float]:
    """The slowest second as a share of the median, and the memory afterwards as a share of that before."""
    size = ["--tables=2", f"--table-size={arguments.rows}", f"--threads={arguments.threads}"]
    sysbench(server, SCRIPT, "prepare", *size)
    seconds = int(2 * arguments.times * arguments.every + 5)
    more = ["--rand-type=pareto", f"--mysql-ignore-errors={IGNORED}"]
    # What the load itself needs, row versions and sessions, belongs to both.
    sysbench(server, SCRIPT, "run", *size, f"--time={WARM_UP_S}", *more)
    before = _resident_mib(server)
    statements: list[float] = []
    beside = threading.Thread(target=_breathe, args=(server, arguments, statements))
    beside.start()
    figures = sysbench(server, SCRIPT, "run", *size, f"--time={seconds}", "--report-interval=1", *more)
    beside.join()
    if figures.failed:
        raise SystemExit(f"{server.engine.name}: {figures.text}")
    rates = [float(rate) for rate in re.findall(r"\]\s+thds: \d+ tps: ([\d.]+)", figures.text)][2:]
    median = statistics.median(rates)
    share = min(rates) / median
    after = _back(server)
    print(
        f"{server.engine.name}: {len(rates)} s, median {median:.0f} transactions/s, slowest second {share:.2f} of it, slowest statement"
        f" {max(statements):.2f} s, {figures.ignored_errors} errors, memory {before:.0f} MiB before, {after:.0f} MiB after",
        flush=True,
    )
    wrong = check_tables(server)
    if wrong:
        raise SystemExit(f"{server.engine.name}: {wrong}")
    return share, after / before


def main() -> int:
    """Run; 0 when Ferrite's slowest second is fast enough, and its memory comes back."""
    arguments = _arguments()
    stop_on_signals()
    kinds = [engine(name) for name in arguments.engines.split(",")]
    servers = [Server(find_places(), kind, _options(kind, arguments)) for kind in kinds]
    with side_by_side(servers):
        share, memory = [run(server, arguments) for server in servers][-1]
    missed = []
    if share < AIM:
        missed.append(f"the slowest second is {share:.2f} of the median (at least {AIM})")
    if memory > AIM_MEMORY:
        missed.append(f"the process has {memory:.2f} times the memory that it had before (at most {AIM_MEMORY})")
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
