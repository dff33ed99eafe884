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


def _error_told_once(step: Step, one: Answer, two: Answer) -> bool:
    """CREATE TABLE ... SELECT with a duplicate key: the reference engine's error stands twice among the warnings."""
    return (
        step.sql.startswith("CREATE TABLE")
        and " SELECT " in step.sql
        and one.kind == two.kind == "error"
        and one.code == two.code == 1062
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
    Known("tis620-keys", _unsupported("tis620_thai_ci")),
    Known("error-told-once", _error_told_once),
]


def known_line(step: Step, one: Answer, two: Answer) -> str | None:
    """The name of the intended difference, if it is one."""
    return next((k.line for k in KNOWN if k.matches(step, one, two)), None)
