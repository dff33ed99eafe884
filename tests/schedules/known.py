"""The kinds of differences that are intended; each has its line in docs/compatibility.md.

A kind is recognised by what InnoDB itself says of the locks in question (who waits for which record, or the report of the deadlock),
not by the look of the schedule alone. In each of them InnoDB waits or ends in a deadlock where Ferrite goes on.
"""

from __future__ import annotations

import re

from schedules.draw import KEYS, Schedule
from schedules.play import Evidence, Outcome, Wait

Story = list[list[tuple[int, Outcome]]]


def known_kind(schedule: Schedule, stories: tuple[Story, Story], index: int, evidence: Evidence) -> str | None:
    """The name of the intended difference, if it is one. `evidence`: InnoDB's, after the statement that differs."""
    if index >= len(schedule.acts):
        return None
    words = [{session: outcome.word for session, outcome in story[index]} for story in stories]
    if "deadlock" in words[1].values():
        return None
    if "deadlock" in words[0].values():
        if _waits_for_own_waiter(evidence.cycle):
            return "own-waiter"
        waits = evidence.cycle
    else:
        more = {s for s, word in words[0].items() if word == "waits" and words[1].get(s) != "waits"}
        waits = [wait for wait in evidence.waits if wait.session in more]
    if any(_is_of_unique_check(wait, schedule, index) for wait in waits):
        return "unique-check"
    return None


def _waits_for_own_waiter(cycle: list[Wait]) -> bool:
    """Two of them wait for the same record: the one that has a lock on it stands behind the one that waits for that lock."""
    records = [(wait.index, wait.record) for wait in cycle]
    return len(set(records)) < len(records)


def _is_of_unique_check(wait: Wait, schedule: Schedule, index: int) -> bool:
    """The lock, or the one it waits for, was taken to see whether a value of the unique key `u` is there already: on an entry of
    that value, a deleted one included, or on the one that follows."""
    if wait.index != "u":
        return False
    checks = []
    for number, act in enumerate(schedule.acts[: index + 1]):
        if act.sql in ("COMMIT", "ROLLBACK"):
            checks = [check for check in checks if check[0] != act.session]
            continue
        current = number == index or act.session != wait.session
        if current and wait.holder in (None, act.session) or act.session == wait.session:
            checks.append((act.session, act.sql))
    return any(_locks(sql, wait.key) for _, sql in checks)


def _locks(sql: str, key: int | None) -> bool:
    """Does the statement's check of the unique key lock the entry with that value (None: the supremum)?"""
    if sql.startswith("UPDATE") and re.search(r"SET id =", sql):
        return True  # All entries of the row get a new primary key; which rows those are, the statement does not say.
    value = (
        re.search(r"SET u = (\d+)", sql) if sql.startswith("UPDATE") else re.search(r"VALUES \(\d+, \d+, (\d+),", sql)
    )
    if value is None:
        return False
    first = int(value[1])
    behind = [k for k in KEYS if k > first]
    return key is None or first <= key <= (behind[0] if behind else key)
