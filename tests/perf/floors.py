"""Minimum performance ratios: each workload in alternating pairs on two engines with equal settings, the median ratio and its spread."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lib.engines import Engine, engine
from lib.places import find_places
from lib.server import Server, stop_on_signals
from lib.sysbench import make_database, sysbench

SECTOR = 512
LATE_S = 2.0
"""A run that ends so much later than it was to end stood still: sysbench waits for its last transactions."""


@dataclass(frozen=True)
class Floor:
    """One workload and the least ratio it must reach."""

    name: str
    script: str
    threads: int
    ratio: float
    rows: int = 1_000_000
    pool: str = "4G"
    flush: int = 1
    bytes_ratio: float | None = None
    """At most this share of the reference engine's bytes written per transaction, by the block device's counters:
    the process's own miss what the kernel writes for it through io_uring. Nothing else may write meanwhile."""
    options: tuple[str, ...] = ()

    @property
    def group(self) -> tuple[int, str, int]:
        """Workloads of one group share the loaded servers."""
        return (self.rows, self.pool, self.flush)


FLOORS = (
    Floor("point_select", "oltp_point_select", 4, 0.97),
    Floor("update_non_index", "oltp_update_non_index", 16, 1.1),
    Floor("update_index", "oltp_update_index", 16, 1.1),
    Floor("insert", "oltp_insert", 16, 1.1),
    Floor("write_only", "oltp_write_only", 16, 1.1),
    Floor("large_update", "oltp_update_non_index", 16, 1.0, 4_000_000, "128M", 2, 0.5, ("--rand-type=uniform",)),
)


@dataclass
class Sample:
    """One run of one engine."""

    engine: str
    tps: float
    p95: float
    bytes_per_txn: float
    device_bytes_per_txn: float
    switches_per_txn: float
    cpu_us_per_txn: float
    late: float
    """Seconds that the run took longer than it was to take."""
    longest: float
    """The longest transaction, ms."""


@dataclass
class Measured:
    """All pairs of one floor."""

    floor: str
    samples: list[Sample] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    bytes_ratios: list[float] = field(default_factory=list)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test perf", description=__doc__)
    parser.add_argument("--engines", default="innodb,ferrite", help="reference, engine under test")
    parser.add_argument("--only", default="", help=f"comma-separated, of {', '.join(f.name for f in FLOORS)}")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--time", type=int, default=30)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--rows", type=int, default=0, help="fewer rows, to test the test itself")
    parser.add_argument("--json", default="", help="append the figures to this file, one JSON object a line")
    parser.add_argument("--dir", default="", help="where the data directories go (a real disk)")
    return parser.parse_args()


def server_options(kind: Engine, floor: Floor) -> list[str]:
    """Equal memory, redo log and durability; InnoDB tuned well."""
    options = [
        kind.pool(floor.pool),
        kind.flush(floor.flush),
        "--performance-schema=OFF",
        "--skip-log-bin",
        "--max-connections=300",
    ]
    options += ["--table-open-cache=4000", "--max-prepared-stmt-count=100000", "--query-cache-type=0"]
    if kind.prefix == "innodb":
        options += ["--innodb-flush-method=O_DIRECT", "--innodb-log-file-size=2G", "--innodb-doublewrite=1"]
        options += ["--innodb-io-capacity=10000", "--innodb-io-capacity-max=20000", "--innodb-purge-threads=4"]
        options += ["--innodb-buffer-pool-dump-at-shutdown=0", "--innodb-buffer-pool-load-at-startup=0"]
    else:
        options += ["--innodb-buffer-pool-size=16M", "--loose-ferrite-log-budget=2G"]
    if kind.prefix == "rocksdb":
        options += ["--rocksdb-use-direct-reads=1", "--rocksdb-use-direct-io-for-flush-and-compaction=1"]
    return options


@dataclass
class Usage:
    """Counters of the server process and of its disk at one moment."""

    written: int
    device: int
    switches: int
    cpu: float

    @staticmethod
    def now(server: Server) -> Usage:
        """Read them from /proc."""
        assert server.child
        pid = server.child.pid
        io = dict(x.split(": ") for x in Path(f"/proc/{pid}/io").read_text().splitlines())
        switches = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                status = (task / "status").read_text()
            except OSError:
                continue
            switches += sum(int(x.split()[1]) for x in status.splitlines() if "ctxt_switches" in x)
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return Usage(
            int(io["write_bytes"]), _device_bytes(server.datadir), switches, (int(stat[11]) + int(stat[12])) / 100
        )


def _device_bytes(path: Path) -> int:
    """Bytes written to the block device under a path, or 0 where that cannot be known."""
    number = path.stat().st_dev
    major, minor = number >> 8 & 0xFFF, (number & 0xFF) | (number >> 12 & 0xFFF00)
    for line in Path("/proc/diskstats").read_text().splitlines():
        words = line.split()
        if (int(words[0]), int(words[1])) == (major, minor):
            return int(words[9]) * SECTOR
    return 0


class Bench:
    """Two loaded servers of one group. While one is measured the other is stopped: what it would still write of the load before, or purge, belongs to
    that load."""

    def __init__(self, arguments: argparse.Namespace, kinds: tuple[Engine, Engine], floor: Floor) -> None:
        self.arguments = arguments
        self.rows = arguments.rows or floor.rows
        self.servers = []
        for kind in kinds:
            home = Path(arguments.dir) / f"perf-{kind.prefix}" if arguments.dir else None
            self.servers.append(Server(find_places(), kind, server_options(kind, floor), home))

    def load(self) -> None:
        """Start and fill both."""
        for server in self.servers:
            begun = time.monotonic()
            server.start()
            make_database(server)
            done = sysbench(server, "oltp_read_write", "prepare", f"--table-size={self.rows}", "--tables=1")
            if done.failed:
                sys.exit(f"loading {server.engine.name} failed:\n{done.text[-2000:]}")
            print(f"  {server.engine.name}: {self.rows} rows loaded in {time.monotonic() - begun:.0f} s", flush=True)

    def sample(self, server: Server, floor: Floor) -> Sample:
        """One warm run."""
        for other in self.servers:
            if other is not server:
                other.pause()
        server.resume()
        options = ("--tables=1", f"--table-size={self.rows}", f"--threads={floor.threads}", *floor.options)
        if self.arguments.warmup:
            sysbench(server, floor.script, "run", *options, f"--time={self.arguments.warmup}")
        before = Usage.now(server)
        run = sysbench(server, floor.script, "run", *options, f"--time={self.arguments.time}")
        after = Usage.now(server)
        if run.failed:
            sys.exit(f"{floor.name} on {server.engine.name} failed:\n{run.text[-2000:]}\n{server.log_tail()}")
        count = max(run.transactions, 1)
        return Sample(
            server.engine.name,
            run.tps,
            run.p95,
            (after.written - before.written) / count,
            (after.device - before.device) / count,
            (after.switches - before.switches) / count,
            (after.cpu - before.cpu) * 1e6 / count,
            run.seconds - self.arguments.time,
            run.longest,
        )

    def measure(self, floor: Floor) -> Measured:
        """Pairs, A B A B."""
        out = Measured(floor.name)
        for number in range(1, self.arguments.pairs + 1):
            pair = [self.sample(server, floor) for server in self.servers]
            out.samples += pair
            out.ratios.append(pair[1].tps / max(pair[0].tps, 0.001))
            out.bytes_ratios.append(pair[1].device_bytes_per_txn / max(pair[0].device_bytes_per_txn, 1))
            for s in pair:
                print(
                    f"  {floor.name} pair {number}: {s.engine:8} {s.tps:9.0f} tps  p95 {s.p95:6.2f} ms  {s.device_bytes_per_txn:8.0f} B written"
                    f"  {s.switches_per_txn:5.1f} switches  {s.cpu_us_per_txn:6.0f} us CPU per transaction"
                    f"  longest {s.longest:.0f} ms" + (f", ENDED {s.late:.0f} s LATE" if s.late > LATE_S else ""),
                    flush=True,
                )
        return out

    def close(self) -> None:
        """Stop and delete."""
        for server in self.servers:
            server.remove()


def verdict(floor: Floor, measured: Measured) -> tuple[bool, str]:
    """Whether the floor holds, and a line about it."""
    median = statistics.median(measured.ratios)
    spread = f"{min(measured.ratios):.2f} - {max(measured.ratios):.2f}"
    late = [s.late for s in measured.samples[1::2] if s.late > LATE_S]
    held = median >= floor.ratio and not late
    text = f"{floor.name:18} median ratio {median:5.2f} (minimum {floor.ratio}), spread {spread}"
    if floor.bytes_ratio is not None:
        written = statistics.median(measured.bytes_ratios)
        held = held and written <= floor.bytes_ratio
        text += f"; bytes written per transaction {written:.2f} of the reference (at most {floor.bytes_ratio})"
    if late:
        text += f"; stood still: {len(late)} runs ended up to {max(late):.0f} s late"
    return held, f"{text}  {'ok' if held else 'BELOW THE MINIMUM'}"


def main() -> int:
    """Run; 0 when every floor holds."""
    arguments = _arguments()
    stop_on_signals()
    names = arguments.engines.split(",")
    kinds = (engine(names[0]), engine(names[1]))
    wanted = [n for n in arguments.only.split(",") if n]
    floors = [f for f in FLOORS if not wanted or f.name in wanted]
    lines, failed = [], 0
    for group in dict.fromkeys(f.group for f in floors):
        members = [f for f in floors if f.group == group]
        print(f"{members[0].rows} rows, {members[0].pool} pools, flush at commit {members[0].flush}:", flush=True)
        bench = Bench(arguments, kinds, members[0])
        try:
            bench.load()
            for floor in members:
                measured = bench.measure(floor)
                held, line = verdict(floor, measured)
                failed += not held
                lines.append(line)
                print("  " + line, flush=True)
                _keep(arguments, measured)
        finally:
            bench.close()
    print("\n" + "\n".join(lines))
    return 1 if failed else 0


def _keep(arguments: argparse.Namespace, measured: Measured) -> None:
    if arguments.json:
        with Path(arguments.json).open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(asdict(measured)) + "\n")


if __name__ == "__main__":
    sys.exit(main())
