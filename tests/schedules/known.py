"""The kinds of differences that are intended; each names its line in docs/compatibility.md."""

from __future__ import annotations

from schedules.draw import Schedule
from schedules.play import Outcome

Story = list[list[tuple[int, Outcome]]]


def known_kind(_level: str, _schedule: Schedule, _stories: tuple[Story, Story], _index: int) -> str | None:
    """The name of the intended difference, if it is one."""
    return None
