"""Every process the lab starts, so that none outlives it: not after Ctrl-C, not after kill -9 of the lab itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import IO, Any

_children: list[subprocess.Popen[Any]] = []


def start(
    command: list[str], env: dict[str, str], stdout: int | IO[Any] = subprocess.DEVNULL, cwd: Path | None = None
) -> subprocess.Popen[Any]:
    """Start a process in a session of its own that the kernel ends when the lab ends."""
    setpriv = shutil.which("setpriv")
    line = [setpriv, "--pdeathsig", "KILL", "--", *command] if setpriv else command
    child = subprocess.Popen(
        line,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    _children.append(child)
    return child


def kill(child: subprocess.Popen[Any]) -> None:
    """End one process and its group at once, and wait for it."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child in _children:
        _children.remove(child)


def kill_all() -> None:
    """End everything that is left."""
    for child in list(_children):
        kill(child)
