"""The screen: curses, redrawn after each sample. Keys: q ends, p pauses, + and - change the interval."""

from __future__ import annotations

import curses
import time
from collections.abc import Callable

from ferrite_top import page
from ferrite_top.sample import Sample

STEPS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def run(look: Callable[[], Sample], interval_s: float) -> None:
    """Until q. `look` takes a sample; its errors end the screen and go on to the caller."""
    curses.wrapper(lambda window: _Screen(window, look, interval_s).loop())


class _Screen:
    def __init__(self, window: curses.window, look: Callable[[], Sample], interval_s: float) -> None:
        self.window = window
        self.look = look
        self.interval_s = interval_s
        self.paused = False
        curses.curs_set(0)
        curses.use_default_colors()
        self.before = self.now = look()

    def loop(self) -> None:
        """Sample, draw, and hear the keys until the next sample."""
        self._draw()
        while self._keys(time.monotonic() + self.interval_s):
            if not self.paused:
                self.before, self.now = self.now, self.look()
            self._draw()

    def _keys(self, until: float) -> bool:
        """False: the user is done."""
        while (left := until - time.monotonic()) > 0:
            self.window.timeout(max(int(left * 1000), 1))
            key = self.window.getch()
            if key in (ord("q"), 27):
                return False
            if key == ord("p"):
                self.paused = not self.paused
            elif key in (ord("+"), ord("-")):
                self._step(1 if key == ord("+") else -1)
                return True
            if key != -1:
                self._draw()
        return True

    def _step(self, by: int) -> None:
        nearest = min(range(len(STEPS_S)), key=lambda i: abs(STEPS_S[i] - self.interval_s))
        self.interval_s = STEPS_S[min(max(nearest + by, 0), len(STEPS_S) - 1)]

    def _draw(self) -> None:
        height, width = self.window.getmaxyx()
        self.window.erase()
        text = page.lines(self.before, self.now, width - 1, height - 1, self.interval_s)
        for y, line in enumerate(text):
            head = y == 0 or line.startswith(("WAITS", "TRANSACTIONS", "LAST STALLS", "NO STALLS"))
            self.window.addnstr(y, 0, line, width - 1, curses.A_BOLD if head else curses.A_NORMAL)
        keys = "PAUSED   " if self.paused else ""
        self.window.addnstr(
            height - 1, 0, f"{keys}q quit   p pause   + - interval"[: width - 1], width - 1, curses.A_DIM
        )
        self.window.refresh()
