"""The load generators: what is started, what their output means. No server is needed to test the parsing."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ferrite_bench.stats import percentile_of_histogram

INTERVAL = re.compile(
    r"\[ (\d+)s \] thds: (\d+) tps: ([\d.]+) qps: ([\d.]+) .*lat \(ms,\d+%\): ([\d.]+) err/s:? ([\d.]+)"
)
BUCKET = re.compile(r"^\s*([\d.]+) \|[* ]*\s(\d+)\s*$")


@dataclass(frozen=True)
class Second:
    """What a load generator said of one second."""

    tps: float
    qps: float
    p99: float
    errors: float


@dataclass
class Output:
    """Everything read so far from a load generator; filled by a thread."""

    lines: list[str] = field(default_factory=list)
    seconds: dict[int, Second] = field(default_factory=dict)
    running: threading.Event = field(default_factory=threading.Event)

    def feed(self, line: str) -> None:
        """Take one line."""
        found = INTERVAL.search(line)
        if found:
            n, _, tps, qps, p99, err = found.groups()
            self.seconds[int(n)] = Second(float(tps), float(qps), float(p99), float(err))
            self.running.set()
            return
        if "Threads started" in line:
            self.running.set()
        self.lines.append(line.rstrip("\n"))

    def follow(self, stream: IO[bytes]) -> None:
        """Read to the end of the stream."""
        for raw in stream:
            self.feed(raw.decode(errors="replace"))
        self.running.set()

    def text(self) -> str:
        """All but the lines of each second."""
        return "\n".join(self.lines)


@dataclass(frozen=True)
class Summary:
    """What a whole run amounts to."""

    transactions: int
    seconds: float
    tps: float
    latency: dict[str, float]
    """In milliseconds: p50, p95, p99, p999, max, avg, as far as known."""
    errors: float = 0.0


def number(pattern: str, text: str) -> float | None:
    """First group of a pattern as a number."""
    found = re.search(pattern, text)
    return float(found.group(1)) if found else None


def summarize_sysbench(text: str) -> Summary | None:
    """None when the output holds no result."""
    count = number(r"transactions:\s+(\d+)", text)
    if count is None:
        count = number(r"total number of events:\s+(\d+)", text)
    seconds = number(r"total time:\s+([\d.]+)s", text)
    if count is None or not seconds:
        return None
    buckets = [(float(m.group(1)), int(m.group(2))) for m in map(BUCKET.match, text.splitlines()) if m]
    latency = {}
    if buckets:
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            latency[name] = percentile_of_histogram(buckets, share)
    for name, word in (("avg", "avg"), ("max", "max")):
        value = number(rf"{word}:\s+([\d.]+)", text[text.find("Latency (ms)") :])
        if value is not None:
            latency[name] = value
    errors = number(r"ignored errors:\s+\d+\s+\(([\d.]+) per sec", text) or 0.0
    return Summary(int(count), seconds, count / seconds, latency, errors)


def summary_of_seconds(output: Output) -> Summary:
    """What is known of a run that was ended early: its seconds."""
    count = round(sum(s.tps for s in output.seconds.values()))
    seconds = float(max(len(output.seconds), 1))
    return Summary(count, seconds, count / seconds, {})


@dataclass(frozen=True)
class Sysbench:
    """A sysbench script run for a time."""

    script: str
    threads: int
    seconds: float
    options: tuple[str, ...] = ()
    own: bool = False
    """A script of the lab instead of a bundled one."""

    def command(self, program: Path, lua: Path, socket: str, sql_name: str, word: str = "run") -> list[str]:
        """The command line."""
        line = [
            str(program),
            str(lua / f"{self.script}.lua"),
            "--db-driver=mysql",
            f"--mysql-socket={socket}",
            "--mysql-user=root",
            "--mysql-db=bench",
            f"--mysql-storage-engine={sql_name}",
            f"--threads={self.threads}",
            *self.options,
        ]
        if word == "run":
            line += [
                f"--time={int(self.seconds)}",
                "--events=0",
                "--report-interval=1",
                "--percentile=99",
                "--histogram=on",
            ]
        return [*line, word]

    def summarize(self, text: str, _elapsed: float) -> Summary | None:
        """Read the end of the output."""
        return summarize_sysbench(text)

    @property
    def limit(self) -> float:
        """Seconds after which it counts as hung."""
        return self.seconds * 1.5 + 120


@dataclass(frozen=True)
class Slap:
    """mariadb-slap with statements that it generates itself."""

    threads: int
    queries: int
    load_type: str = "write"

    def command(self, program: Path, _lua: Path, socket: str, sql_name: str) -> list[str]:
        """The command line."""
        return [
            str(program),
            "--no-defaults",
            f"--socket={socket}",
            "--user=root",
            f"--engine={sql_name}",
            "--auto-generate-sql",
            f"--auto-generate-sql-load-type={self.load_type}",
            f"--concurrency={self.threads}",
            f"--number-of-queries={self.queries}",
            "--create-schema=slap",
        ]

    def summarize(self, text: str, _elapsed: float) -> Summary | None:
        """Read the one line that counts."""
        seconds = number(r"Average number of seconds to run all queries: ([\d.]+)", text)
        if not seconds:
            return None
        done = self.queries // self.threads * self.threads
        return Summary(done, seconds, done / seconds, {})

    @property
    def seconds(self) -> float:
        """A guess."""
        return self.queries / 2000

    @property
    def limit(self) -> float:
        """Seconds after which it counts as hung."""
        return 120 + self.queries / 50


@dataclass(frozen=True)
class GoTpc:
    """go-tpc's TPC-C, without keying and think time. It speaks TCP only and names no engine: the default one is used."""

    threads: int
    seconds: float
    warehouses: int

    def command(self, program: Path, port: int, password: str, word: str = "run") -> list[str]:
        """The command line. It is all that go-tpc reads, so others may see the password: it opens `bench` and no more."""
        line = [str(program), "tpcc", "-H", "127.0.0.1", "-P", str(port), "-U", "bench", "-p", password, "-D", "bench"]
        line += ["--warehouses", str(self.warehouses), "-T", str(self.threads), word]
        return (
            [*line, "--no-check"]
            if word == "prepare"
            else [*line, "--time", f"{int(self.seconds)}s", "--interval", "1s"]
        )

    def summarize(self, text: str, elapsed: float) -> Summary | None:
        """All five transactions together; latencies are those of NEW_ORDER, which makes nearly half of them."""
        lines = re.findall(r"^\[Summary\] ([A-Z_]+) .*?Takes\(s\): ([\d.]+), Count: (\d+)(.*)$", text, re.MULTILINE)
        good = [x for x in lines if not x[0].endswith("_ERR")]
        if not good:
            return None
        count, seconds = sum(int(x[2]) for x in good), max(float(x[1]) for x in good)
        rest = next((x[3] for x in good if x[0] == "NEW_ORDER"), "")
        latency = {}
        for name, word in (("p50", "50th"), ("p95", "95th"), ("p99", "99th"), ("p999", "99.9th")):
            value = number(rf" {re.escape(word)}\(ms\): ([\d.]+)", rest)
            if value is not None:
                latency[name] = value
        return Summary(count, seconds or elapsed, count / (seconds or elapsed), latency)

    @property
    def limit(self) -> float:
        """Seconds after which it counts as hung."""
        return self.seconds * 1.5 + 120


Load = Sysbench | Slap | GoTpc


def failure_of(text: str, status: int) -> str:
    """What a failed load generator says, shortened; empty when nothing failed."""
    loud = [x for x in text.splitlines() if re.search(r"FATAL|ALERT|rror:|Cannot|Can't", x)]
    if status == 0 and not any("FATAL" in x for x in loud):
        return ""
    return "\n".join(loud[:6]) or text[-600:] or f"exit status {status}"


def wait_until(event: threading.Event, seconds: float, check: Callable[[], None]) -> bool:
    """Wait for an event in small steps, calling `check` in between."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if event.wait(0.05):
            return True
        check()
    return False
