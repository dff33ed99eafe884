"""What the user sees while a run goes on: where it is, how fast, and how long it will still take."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO


def duration(seconds: float) -> str:
    """1:02:03, 2:03 or 45 s."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Progress:
    """Counts planned seconds; the time left follows from how the plan has held so far."""

    def __init__(self, planned: float, stream: TextIO = sys.stderr) -> None:
        self.planned = max(planned, 1.0)
        self.done = 0.0
        self.begun = time.monotonic()
        self.stream = stream
        self.live = stream.isatty()
        self._what = ""
        self._planned_step = 0.0
        self._step_begun = self.begun

    def left(self, now: float | None = None) -> float:
        """Seconds to go: the rest of the plan, stretched as the part behind us was."""
        now = time.monotonic() if now is None else now
        stretch = 1.0
        if self.done >= 5:
            stretch = min(4.0, max(0.5, (self._step_begun - self.begun) / self.done))
        in_step = min(now - self._step_begun, self._planned_step * stretch)
        return max(0.0, (self.planned - self.done) * stretch - in_step)

    def step(self, what: str, planned: float) -> None:
        """The previous step is over, this one begins."""
        self.finish_step()
        self._what, self._planned_step, self._step_begun = what, planned, time.monotonic()
        if self.live:
            self.tick()
        else:
            self.say(f"{self._share()} {what} (left about {duration(self.left())})")

    def finish_step(self) -> None:
        """Count the current step as done."""
        self.done = min(self.done + self._planned_step, self.planned)
        self._planned_step = 0.0
        self._step_begun = time.monotonic()

    def skip(self, planned: float) -> None:
        """Steps that will not take place."""
        self.planned = max(self.done + self._planned_step, self.planned - planned, 1.0)

    def tick(self, tps: float | None = None) -> None:
        """A sign of life within a step."""
        if not self.live:
            return
        speed = f"  {tps:,.0f} tps" if tps else ""
        text = f"{self._share()} {self._what}{speed}  left about {duration(self.left())}"
        width = shutil.get_terminal_size().columns - 1
        self.stream.write("\r\x1b[K" + text[:width])
        self.stream.flush()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.stream.write(("\r\x1b[K" if self.live else "") + f"bench: {text}\n")
        self.stream.flush()

    def _share(self) -> str:
        return f"[{min(99, int(100 * self.done / self.planned)):2d}%]"
