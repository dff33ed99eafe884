"""Programs of packages that only some tests need, fetched beside the server when they are first asked for."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def fetched(feature: str, variable: str) -> Path | None:
    """What `ferrite_ensure_FEATURE` of the launcher puts into the variable; None where it cannot be had."""
    script = f'. "{ROOT}/scripts/lib.sh"; ferrite_ensure_{feature} >&2; printf "%s" "${{{variable}}}"'
    run = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env={**os.environ, "FERRITE_ROOT": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    found = Path(run.stdout.strip() or "/nowhere")
    return found if run.returncode == 0 and found.exists() else None
