"""A slow volume: the server's I/O requests to its device limited through a control group, version 2 or 1.

The limit counts requests of the server's processes at the block layer, reads and writes each for themselves. It needs
root. Where neither version offers it, the caller learns why and says so.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


class Throttle:
    """One control group."""

    def __init__(self, device: str, iops: int) -> None:
        self.device = device
        self.iops = iops
        self.group: Path | None = None

    def apply(self, pid: int) -> str:
        """Limit a process; returns the method in words. Raises OSError with the reason when it cannot be done."""
        if not self.device:
            raise OSError("the data directory stands on no block device of its own")
        problems = []
        for attempt in (self._version_2, self._version_1):
            try:
                return attempt(pid)
            except OSError as error:
                self.remove()
                problems.append(str(error))
        raise OSError("no control group can limit I/O here: " + "; ".join(problems))

    def _version_2(self, pid: int) -> str:
        controllers = ROOT / "cgroup.controllers"
        if not controllers.exists() or "io" not in controllers.read_text().split():
            raise OSError("version 2 offers no io controller")
        with contextlib.suppress(OSError):
            (ROOT / "cgroup.subtree_control").write_text("+io")
        self._make(ROOT)
        self._write("io.max", f"{self.device} riops={self.iops} wiops={self.iops}")
        self._write("cgroup.procs", str(pid))
        return f"control group version 2, io.max: {self.iops} reads and {self.iops} writes a second"

    def _version_1(self, pid: int) -> str:
        parent = ROOT / "blkio"
        if not (parent / "blkio.throttle.read_iops_device").exists():
            raise OSError("version 1 offers no blkio throttle")
        self._make(parent)
        self._write("blkio.throttle.read_iops_device", f"{self.device} {self.iops}")
        self._write("blkio.throttle.write_iops_device", f"{self.device} {self.iops}")
        self._write("cgroup.procs", str(pid))
        return f"control group version 1, blkio.throttle: {self.iops} reads and {self.iops} writes a second"

    def _make(self, parent: Path) -> None:
        group = parent / f"ferrite-bench-{os.getpid()}-{id(self):x}"
        group.mkdir()
        self.group = group

    def _write(self, name: str, text: str) -> None:
        assert self.group is not None
        (self.group / name).write_text(text)

    def remove(self) -> None:
        """Delete the group; its processes must have ended."""
        if self.group is not None:
            with contextlib.suppress(OSError):
                self.group.rmdir()
            self.group = None
