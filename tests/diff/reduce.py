"""Make a failing program short: drop steps while it still fails in the same way."""

from __future__ import annotations

import time
from dataclasses import replace

from diff.answer import Side
from diff.compare import Difference, first_difference
from diff.step import Step


class Reducer:
    """Delta reduction with a time budget."""

    def __init__(self, sides: tuple[Side, Side], budget: float, muted: set[str]) -> None:
        self.sides = sides
        self.muted = muted
        self.deadline = time.monotonic() + budget
        self.tries = 0

    def still_fails(self, steps: list[Step], wanted: str) -> int | None:
        """Length of the program up to the difference, if there is one of the wanted kind."""
        self.tries += 1
        found = first_difference(self.sides, steps, self.muted)
        return min(found.index + 1, len(steps)) if found and found.signature() == wanted else None

    def reduce(self, steps: list[Step], difference: Difference) -> list[Step]:
        """A shorter program that differs in the same way; the last step is where it shows."""
        wanted = difference.signature()
        best = self._keep_tail(steps[: difference.index + 1], wanted)
        chunk = max(1, len(best) // 2)
        while chunk >= 1 and time.monotonic() < self.deadline:
            best, changed = self._sweep(best, chunk, wanted)
            if chunk == 1 and not changed:
                break
            chunk = max(1, chunk // 2)
        return self._fewer_rows(best, wanted)

    def _fewer_rows(self, steps: list[Step], wanted: str) -> list[Step]:
        """Drop rows of multi-row INSERTs."""
        for position in range(len(steps) - 1, -1, -1):
            head, mark, tail = steps[position].sql.partition(" VALUES (")
            rows = tail.split("), (")
            size = len(rows) // 2
            while mark and size >= 1 and time.monotonic() < self.deadline:
                start = 0
                while start < len(rows) and len(rows) > size:
                    fewer = rows[:start] + rows[start + size :]
                    text = f"{head}{mark}{'), ('.join(fewer)}"
                    text += "" if text.endswith(")") or start + size < len(rows) else ")"
                    trial = [*steps[:position], replace(steps[position], sql=text), *steps[position + 1 :]]
                    if self.still_fails(trial, wanted) == len(trial):
                        steps, rows = trial, fewer
                    else:
                        start += size
                size //= 2
        return steps

    def _keep_tail(self, steps: list[Step], wanted: str) -> list[Step]:
        """Often the last few steps after the set-up are enough."""
        setup = [s for s in steps if s.setup]
        for count in (1, 3, 10, 40, 160):
            tail = [s for s in steps[-count:] if not s.setup]
            if len(setup) + len(tail) >= len(steps) or time.monotonic() > self.deadline:
                break
            length = self.still_fails(setup + tail, wanted)
            if length:
                return (setup + tail)[:length]
        return steps

    def _sweep(self, steps: list[Step], chunk: int, wanted: str) -> tuple[list[Step], bool]:
        """Try to drop each run of chunk steps once, from the end."""
        changed = False
        position = len(steps) - 1 - chunk
        while position > -chunk and time.monotonic() < self.deadline:
            start = max(position, 0)
            gone = [s for s in steps[start : start + chunk] if not s.sql.startswith("CREATE") or not s.setup]
            kept = [s for s in steps if not any(s is g for g in gone)]
            length = self.still_fails(kept, wanted) if gone else None
            if length:
                steps, changed = kept[:length], True
            position -= chunk
        return steps, changed


def script(steps: list[Step], engine_name: str, prefix: str) -> str:
    """The program as SQL for a person."""
    lines = []
    for step in steps:
        mark = f"/* session {step.session} */ " if step.session else ""
        note = {"block": "   -- may wait", "collect": "-- (its answer now)", "pair": "   -- closes a circle"}.get(
            step.kind, ""
        )
        sql = "" if step.kind == "collect" else step.render(engine_name, prefix, "FILE") + ";"
        lines.append(f"{mark}{sql}{note}")
        if step.file is not None:
            lines.append(f"/* FILE:\n{step.file}*/")
    return "\n".join(lines)
