"""Named points at which a test ends this program, or the server, as `kill -9` does.

`FERRITE_MIGRATE_KILL=move.frozen:2` ends the process the second time it comes there. With `FERRITE_MIGRATE_KILL_PID` the process
with that number is ended instead, and this program goes on with what is left. Without the variable a point costs a look-up.
"""

from __future__ import annotations

import os
import signal

POINTS = (
    "move.planned",
    "move.begun",
    "move.locked",
    "move.guard",
    "move.guarded",
    "move.frozen",
    "move.dropped",
    "move.altered",
    "move.added",
    "move.verified",
    "move.unguard",
    "move.done",
)
"""All of them, in the order in which a group of tables comes by."""

_passed: dict[str, int] = {}


def reached(name: str) -> None:
    """Die here if a test says so."""
    assert name in POINTS, name
    wanted = os.environ.get("FERRITE_MIGRATE_KILL")
    if not wanted:
        return
    _passed[name] = _passed.get(name, 0) + 1
    point, _, times = wanted.partition(":")
    if point == name and _passed[name] == int(times or 1):
        os.kill(int(os.environ.get("FERRITE_MIGRATE_KILL_PID") or os.getpid()), signal.SIGKILL)
