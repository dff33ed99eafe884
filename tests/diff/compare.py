"""Run a program on both sides, step by step, and find the first steps whose answers differ."""

from __future__ import annotations

from dataclasses import dataclass, replace

from diff.answer import Answer, Side
from diff.known import known_line
from diff.step import Step

REFERENCE_CORRUPT = 1034
"""InnoDB's indexes on virtual columns can become corrupt; what follows then says nothing about the other engine."""
CLOSE = Step("(all sessions close)", kind="close")


@dataclass
class Difference:
    """One step with two answers."""

    index: int
    step: Step
    one: Answer
    two: Answer
    known: str | None = None

    def signature(self) -> str:
        """A short word for the kind of difference, so that the reducer does not wander to another one."""
        return f"{_kind(self.one)}/{_kind(self.two)}"


def _kind(answer: Answer) -> str:
    return f"error{answer.code}" if answer.kind == "error" else answer.kind


def _same(one: Answer, two: Answer) -> bool:
    if one.kind == "crash" or two.kind == "crash":
        return False
    return one.normal() == two.normal()


def run_step(sides: tuple[Side, Side], index: int, step: Step) -> tuple[Answer, Answer, Difference | None]:
    """One step on both sides."""
    one, two = sides[0].run(step), sides[1].run(step)
    if step.kind == "refused" and sides[0].engine != sides[1].engine and two.kind == "ok":
        two = replace(two, message="accepted, though it is not supported: it must be refused with an error")
    elif step.kind == "quiet" or _same(one, two):
        return one, two, None
    return one, two, Difference(index, step, one, two, known_line(step, one, two))


def settled(sides: tuple[Side, Side], index: int) -> Difference | None:
    """The end of a program: all sessions close."""
    return run_step(sides, index, CLOSE)[2]


def first_difference(sides: tuple[Side, Side], steps: list[Step], muted: set[str]) -> Difference | None:
    """Run from scratch up to the first unexplained difference; muted set-up statements may differ."""
    for side in sides:
        side.reset()
    for index, step in enumerate(steps):
        found = run_step(sides, index, step)[2]
        if found and found.one.code == REFERENCE_CORRUPT:
            return None
        if found and not found.known and not (step.setup and step.sql in muted):
            return found
    return settled(sides, len(steps))
