"""The machine: what it is, and the kernel's counters of processes and block devices. Linux only."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

SECTOR = 512
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")


def _first_line(path: str, start: str) -> str:
    try:
        for line in Path(path).read_text().splitlines():
            if line.startswith(start):
                return line.split(":", 1)[-1].strip()
    except OSError:
        pass
    return "unknown"


def _run(*command: str, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def describe(where: Path) -> dict[str, str]:
    """What a reader needs to know of the machine. No names of hosts or users."""
    kb = _first_line("/proc/meminfo", "MemTotal").split()[0]
    return {
        "cpu": _first_line("/proc/cpuinfo", "model name"),
        "cpus": str(os.cpu_count() or 0),
        "memory": f"{int(kb) / (1 << 20):.0f} GiB" if kb.isdigit() else "unknown",
        "kernel": platform.release(),
        "system": _first_line_value("/etc/os-release", "PRETTY_NAME="),
        "file system": _file_system(where),
        "device": Device.of(where).name or "unknown",
    }


def _file_system(where: Path) -> str:
    """Type of the mount that holds a path: the longest mount point above it."""
    path, best = f"{where.resolve()}/", ("", "unknown")
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return "unknown"
    for _, point, kind, *_ in mounts:
        if path.startswith(point.rstrip("/") + "/") and len(point) >= len(best[0]):
            best = (point, kind)
    return best[1]


def _first_line_value(path: str, start: str) -> str:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return "unknown"
    return next((x[len(start) :].strip('"') for x in lines if x.startswith(start)), "unknown")


def short_hash(value: object) -> str:
    """A stable short name for settings or a machine."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def commit(root: Path) -> str:
    """The commit of the tree, with + when the sources of the engine differ from it."""
    head = _run("git", "rev-parse", "--short=12", "HEAD", cwd=root)
    if not head:
        return "unknown"
    changed = _run("git", "status", "--porcelain", "--", "crates", "plugin", "bench", cwd=root)
    return f"{head}+" if changed else head


def free_mb(where: Path) -> float:
    """Free space of a file system."""
    return shutil.disk_usage(where).free / (1 << 20)


def disk_bytes(directory: Path, without: tuple[str, ...] = ()) -> int:
    """Bytes that a directory's files take on disk, but for names like these; files may come and go meanwhile."""
    total, stack = 0, [str(directory)]
    while stack:
        try:
            with os.scandir(stack.pop()) as entries:
                for entry in entries:
                    try:
                        if entry.is_dir(follow_symlinks=False):
                            stack.append(entry.path)
                        elif not any(fnmatch(entry.name, name) for name in without):
                            total += entry.stat(follow_symlinks=False).st_blocks * SECTOR
                    except FileNotFoundError:
                        continue
        except FileNotFoundError:
            continue
    return total


LOGS = ("ib_logfile*", "redo.[0-9]*", "[0-9]*.log", "binlog.[0-9]*")
"""InnoDB's, Ferrite's and MyRocks' redo logs, the server's binary log."""


def table_bytes(datadir: Path) -> int:
    """The data directory without its logs, whose size is a setting; what is only in memory is not in it."""
    return disk_bytes(datadir, without=LOGS)


@dataclass(frozen=True)
class Device:
    """The block device under a directory, if there is one."""

    name: str
    stat: Path | None
    number: str = ""

    @staticmethod
    def of(where: Path) -> Device:
        """Find it by device number; a partition's disk for the limit of I/O."""
        device = where.stat().st_dev
        base = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
        if not (base / "stat").exists():
            return Device("", None)
        real = base.resolve()
        disk = real.parent if (real / "partition").exists() else real
        number = (disk / "dev").read_text().strip()
        return Device(real.name, real / "stat", number)

    def read(self) -> dict[str, float]:
        """Counters since boot, of everything on the device."""
        if self.stat is None:
            return {}
        f = [int(x) for x in self.stat.read_text().split()]
        out = {
            "dev_reads": float(f[0]),
            "dev_read_bytes": float(f[2] * SECTOR),
            "dev_writes": float(f[4]),
            "dev_write_bytes": float(f[6] * SECTOR),
        }
        if len(f) >= 17:
            out["dev_flushes"] = float(f[15])
        return out


def stolen_seconds() -> dict[str, float]:
    """Processor time that the host gave to others since boot, all processors together; empty where nobody counts it."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        return {"stolen": int(fields[8]) / TICKS}
    except (OSError, IndexError):
        return {}


@dataclass
class Process:
    """Counters of one process with all its threads; keeps what ended threads had done."""

    pid: int
    _by_thread: dict[str, int] = field(default_factory=dict)
    _switches: int = 0

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def rss_bytes(self) -> int:
        """Resident memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE

    def io_bytes(self) -> dict[str, float]:
        """Bytes that the process caused to be read and written, as far as the kernel says so."""
        try:
            lines = Path(f"/proc/{self.pid}/io").read_text().splitlines()
        except OSError:
            return {}
        values = dict(x.split(": ", 1) for x in lines)
        return {"proc_read_bytes": float(values["read_bytes"]), "proc_write_bytes": float(values["write_bytes"])}

    def switches(self) -> int:
        """Context switches of all threads since the first call."""
        now: dict[str, int] = {}
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            try:
                text = Path(f"/proc/{self.pid}/task/{thread}/status").read_text()
            except OSError:
                continue
            now[thread] = sum(int(x.rsplit(None, 1)[1]) for x in text.splitlines() if "ctxt_switches" in x)
        self._switches += sum(
            v - self._by_thread.get(k, 0) for k, v in now.items() if k in self._by_thread or self._seen
        )
        self._seen = True
        self._by_thread = now
        return self._switches

    _seen: bool = False

    def read(self, prefix: str) -> dict[str, float]:
        """All of it; empty once the process has gone."""
        try:
            return {
                f"{prefix}_cpu": self.cpu_seconds(),
                f"{prefix}_rss": float(self.rss_bytes()),
                f"{prefix}_switches": float(self.switches()),
            }
        except (FileNotFoundError, ProcessLookupError, IndexError):
            return {}
