"""Where things are: server, engines, load generators. Filled in by bench/run.sh through environment variables."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ferrite_bench.errors import BenchError
from lib.mariadbd import Installation


@dataclass(frozen=True)
class Places(Installation):
    """A server installation, and the load generators beside it."""

    root: Path
    sysbench: Path
    sysbench_lua: Path

    @property
    def own_lua(self) -> Path:
        """The lab's own workload scripts."""
        return self.root / "bench" / "lua"

    @property
    def go_tpc(self) -> Path:
        """The go-tpc program, built for the experiment of that name only."""
        return Path(_need("FB_GO_TPC"))

    def child_env(self) -> dict[str, str]:
        """Environment for binaries that were unpacked beside the system's own, and for the lab's scripts."""
        return super().child_env() | {"LUA_PATH": f"{self.own_lua}/?.lua;{self.sysbench_lua}/?.lua"}


def _need(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise BenchError(f"{name} is not set: start this through ./ferrite bench, which finds the server")
    return value


def find_places() -> Places:
    """Read the places that run.sh found."""
    return Places(
        root=Path(_need("FERRITE_ROOT")),
        cache=Path(_need("FERRITE_CACHE")),
        basedir=Path(_need("FERRITE_SERVER_PREFIX")),
        mariadbd=Path(_need("FERRITE_MARIADBD")),
        library_path=os.environ.get("FERRITE_SERVER_LIBS", ""),
        version=_need("FERRITE_SERVER_VERSION"),
        sysbench=Path(_need("FERRITE_SYSBENCH")),
        sysbench_lua=Path(_need("FERRITE_SYSBENCH_LUA")),
    )
