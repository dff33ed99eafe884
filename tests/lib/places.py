"""Where things are: the server's files, the plugin, the cache. Environment variables of scripts/lib.sh say so."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from lib.mariadbd import Installation


@dataclass(frozen=True)
class Places(Installation):
    """A server installation and the engine under test."""

    ferrite_so: Path | None


def _need(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        sys.exit(f"{name} is not set: start this test through its run.sh, which finds the server")
    return value


def find_places() -> Places:
    """Read the places that env.sh found."""
    ferrite = os.environ.get("HA_FERRITE_SO", "")
    return Places(
        cache=Path(_need("FERRITE_CACHE")),
        basedir=Path(_need("FERRITE_SERVER_PREFIX")),
        mariadbd=Path(_need("FERRITE_MARIADBD")),
        library_path=os.environ.get("FERRITE_SERVER_LIBS", ""),
        version=_need("FERRITE_SERVER_VERSION"),
        ferrite_so=Path(ferrite) if ferrite else None,
    )
