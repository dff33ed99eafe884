"""Where things are: server binaries, the plugin, the cache. Filled in by tests/lib/env.sh through FT_* variables."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Places:
    """Absolute paths of one server installation and of the engine under test."""

    basedir: Path
    mariadbd: Path
    client: Path
    plugin_dir: Path
    library_path: str
    cache: Path
    ferrite_so: Path | None
    version: str

    @property
    def share(self) -> Path:
        """Messages, character sets and the system tables' SQL."""
        return self.basedir / "share" / "mysql"

    def child_env(self) -> dict[str, str]:
        """Environment for server binaries that may be unpacked beside the system's own."""
        env = dict(os.environ)
        if self.library_path:
            env["LD_LIBRARY_PATH"] = self.library_path
        env.pop("PYTHONPATH", None)
        return env


def _need(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        sys.exit(f"{name} is not set: start this test through its run.sh, which finds the server")
    return value


def find_places() -> Places:
    """Read the places that env.sh found."""
    ferrite = os.environ.get("HA_FERRITE_SO", "")
    return Places(
        basedir=Path(_need("FT_BASEDIR")),
        mariadbd=Path(_need("FT_MARIADBD")),
        client=Path(_need("FT_CLIENT")),
        plugin_dir=Path(_need("FT_PLUGIN_DIR")),
        library_path=os.environ.get("FT_LIBRARY_PATH", ""),
        cache=Path(_need("FT_CACHE")),
        ferrite_so=Path(ferrite) if ferrite else None,
        version=_need("FT_VERSION"),
    )
