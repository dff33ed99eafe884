"""The one place for differences that are intended. Each names the line of docs/compatibility.md that tells users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from diff.answer import Answer
from diff.step import Step


@dataclass(frozen=True)
class Known:
    """One intended difference."""

    line: str
    """Name of the line in docs/compatibility.md."""
    matches: Callable[[Step, Answer, Answer], bool]
    """step, answer of the reference engine, answer of the engine under test."""


def _refused(step: Step, one: Answer, two: Answer) -> bool:
    """The engine under test refuses an indexed virtual column with a clear error."""
    return (
        step.setup
        and "VIRTUAL" in step.sql
        and one.kind == "ok"
        and two.kind == "error"
        and two.code in (1178, 1235, 4174, 1906)
    )


def _unsupported(words: str) -> Callable[[Step, Answer, Answer], bool]:
    """A table definition with these words is refused by the engine under test."""

    def matches(step: Step, one: Answer, two: Answer) -> bool:
        return step.kind == "refused" and words in step.sql and one.kind == "ok" and two.kind == "error"

    return matches


KNOWN: list[Known] = [
    Known("foreign-keys", _unsupported("FOREIGN KEY")),
    Known("fulltext-indexes", _unsupported("FULLTEXT")),
    Known("spatial-indexes", _unsupported("SPATIAL")),
    Known("indexed-virtual-columns", _refused),
]


def known_line(step: Step, one: Answer, two: Answer) -> str | None:
    """The name of the intended difference, if it is one."""
    return next((k.line for k in KNOWN if k.matches(step, one, two)), None)
