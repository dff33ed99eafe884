"""The one place for differences that are intended. Each names the line of docs/compatibility.md that tells users."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

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
    """CREATE TABLE ... SELECT with a duplicate key, and an UPDATE of a row that has changed since the snapshot: the
    reference engine's error stands twice among the warnings."""
    return (
        step.sql.startswith("CREATE TABLE")
        and " SELECT " in step.sql
        and one.kind == two.kind == "error"
        and one.code == two.code == 1062
    ) or (_but_warnings(one, two, 1020) and one.warnings[: len(two.warnings)] == two.warnings)


def _named_by_plan(step: Step, one: Answer, two: Answer) -> bool:
    """An UPDATE of joined tables writes a value that cannot be converted: the column is called by its own name if its
    table comes first in the join, else by the temporary table's. The join order rests on estimates."""
    column = re.compile(r"column `[^`]*`\.`[^`]*`\.`([^`]*)`")
    return (
        step.sql.startswith("UPDATE")
        and " JOIN " in step.sql
        and one.kind == two.kind == "error"
        and one.code == two.code == 1366
        and ("(temporary)" in one.message) != ("(temporary)" in two.message)
        and column.sub(r"column \1", one.message) == column.sub(r"column \1", two.message)
    )


def _but_warnings(one: Answer, two: Answer, code: int) -> bool:
    """Both fail with this error; what differs are warnings beside it."""
    return one.kind == two.kind == "error" and one.code == two.code == code and one.message == two.message


def _old_snapshot(_step: Step, one: Answer, two: Answer) -> bool:
    """A snapshot older than the table's contents: the reference engine adds a warning with a number of handlers'."""
    return _but_warnings(one, two, 1412) and [w for w in one.warnings if w[1] != "159"] == two.warnings


def _rename_waits(step: Step, one: Answer, two: Answer) -> bool:
    """A RENAME that waited in vain: the second error names another cause."""
    return step.sql.startswith("RENAME TABLE") and _but_warnings(one, two, 1205)


def _alter_counts_rows(step: Step, one: Answer, two: Answer) -> bool:
    """An ALTER that the reference engine does in place counts no rows. (Up to 11.4 the setting alter_algorithm, which the
    programs set to COPY, makes it copy too.)"""
    return (
        step.sql.startswith(("ALTER TABLE", "CREATE INDEX", "CREATE UNIQUE INDEX", "DROP INDEX"))
        and one.kind == two.kind == "ok"
        and one.affected == 0
        and replace(one, affected=two.affected, info=two.info).normal() == two.normal()
    )


def _unsupported(words: str) -> Callable[[Step, Answer, Answer], bool]:
    """A table definition with these words is refused by the engine under test."""

    def matches(step: Step, one: Answer, two: Answer) -> bool:
        return step.kind == "refused" and words in step.sql and one.kind == "ok" and two.kind == "error"

    return matches


KNOWN: list[Known] = [
    Known("fulltext-indexes", _unsupported("FULLTEXT")),
    Known("spatial-indexes", _unsupported("SPATIAL")),
    Known("tis620-keys", _unsupported("tis620_thai_ci")),
    Known("error-told-once", _error_told_once),
    Known("column-named-by-plan", _named_by_plan),
    Known("old-snapshot-warning", _old_snapshot),
    Known("rename-timeout-cause", _rename_waits),
    Known("alter-row-count", _alter_counts_rows),
]


def known_line(step: Step, one: Answer, two: Answer) -> str | None:
    """The name of the intended difference, if it is one."""
    return next((k.line for k in KNOWN if k.matches(step, one, two)), None)
