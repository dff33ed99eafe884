"""The kinds of differences that are intended; each has its line in docs/compatibility.md.

A kind is recognised by what InnoDB itself says of the locks in question (who waits for which record, or the report of the deadlock),
not by the look of the schedule alone. In own-waiter, unique-check and inherited-gap InnoDB waits or ends in a deadlock where
Ferrite goes on, or where Ferrite goes on to wait for something else; in changed-row it is the other way round, and in
second-obstacle both are in a deadlock, but InnoDB has not seen it.
"""

from __future__ import annotations

import re

from schedules.draw import KEYS, Schedule
from schedules.play import Evidence, Outcome, Wait

Story = list[list[tuple[int, Outcome]]]


def known_kind(
    level: str,
    schedule: Schedule,
    stories: tuple[Story, Story],
    index: int,
    seen: tuple[Evidence, Evidence],
    ours: Evidence,
) -> str | None:
    """The name of the intended difference, if it is one. `seen`: InnoDB's and Ferrite's evidence after the statement that differs;
    `ours`: Ferrite's before it."""
    evidence, after = seen
    if index >= len(schedule.acts):
        return None
    words = [{session: outcome.word for session, outcome in story[index]} for story in stories]
    if "deadlock" in words[1].values() and "deadlock" not in words[0].values() and _is_in_cycle(evidence.waits):
        return "second-obstacle"
    actor = schedule.acts[index].session
    if words[0].get(actor) == "done" and words[1].get(actor) in ("waits", "deadlock"):
        if level in ("READ COMMITTED", "READ UNCOMMITTED") and (
            _has_changed_row(evidence, schedule, index) or _is_entry_of_own_row(after, schedule, index)
        ):
            return "changed-row"
        return _of_earlier_wait(evidence, ours, schedule, stories[0], index)
    if "deadlock" in words[1].values():
        return None
    if "deadlock" in words[0].values():
        if _waits_for_own_waiter(evidence.cycle):
            return "own-waiter"
        waits = evidence.cycle
    else:
        # Who waits for InnoDB, now or still, and does not for Ferrite.
        done = {s for s, word in words[1].items() if word in ("done", "error") and words[0].get(s) in (None, "waits")}
        waits = [wait for wait in evidence.waits if wait.session in done]
    return _of_waits(waits, schedule, stories[0], index)


def _of_waits(waits: list[Wait], schedule: Schedule, story: Story, index: int) -> str | None:
    """The kind of lock that InnoDB alone has, if it is one that these wait for."""
    if any(_is_of_unique_check(wait, schedule, story, index) for wait in waits):
        return "unique-check"
    if any(_is_of_inherited_gap(wait, story, schedule, index) for wait in waits):
        return "inherited-gap"
    return None


def _of_earlier_wait(evidence: Evidence, ours: Evidence, schedule: Schedule, story: Story, index: int) -> str | None:
    """A session waits on both sides, but not for the same: Ferrite's has gone on to what InnoDB's has not come to, since InnoDB's
    waits for a lock that InnoDB alone has."""
    farther = {wait.session: (wait.index, wait.key) for wait in ours.waits}
    waits = [x for x in evidence.waits if x.session in farther and farther[x.session] != (x.index, x.key)]
    return _of_waits(waits, schedule, story, index)


def _waits_for_own_waiter(cycle: list[Wait]) -> bool:
    """Two of them wait for the same record: the one that has a lock on it stands behind the one that waits for that lock."""
    records = [(wait.index, wait.record) for wait in cycle]
    return len(set(records)) < len(records)


def _is_in_cycle(waits: list[Wait]) -> bool:
    """By InnoDB's own tables sessions wait for each other in a circle."""
    reached = {(wait.session, wait.holder) for wait in waits}
    while more := {(a, d) for a, b in reached for c, d in reached if b == c} - reached:
        reached |= more
    return any(a == b for a, b in reached)


def _has_changed_row(evidence: Evidence, schedule: Schedule, index: int) -> bool:
    """The statement comes by a secondary index to a row that its own transaction has changed, and another, who came by the same
    index (an INSERT by its check of the unique key), has the entry and waits for the row."""
    act = schedule.acts[index]
    return any(
        wait.holder == act.session
        and wait.index in ("PRIMARY", "GEN_CLUST_INDEX", "id")
        and _secondary_index(act.sql) is not None
        and any(
            _secondary_index(other.sql) == _secondary_index(act.sql)
            for other in schedule.acts[:index]
            if other.session == wait.session
        )
        for wait in evidence.waits
    )


def _is_entry_of_own_row(after: Evidence, schedule: Schedule, index: int) -> bool:
    """By Ferrite's tables the statement waits for the entry of a row that one of the two has locked for itself and may have
    changed: by an UPDATE, or it is the statement's own INSERT."""
    actor = schedule.acts[index].session
    changed = {act.session for act in schedule.acts[:index] if act.sql.startswith(("UPDATE", "INSERT", "REPLACE"))}
    return any(wait.session == actor and wait.own_row and changed & {wait.session, wait.holder} for wait in after.waits)


def _secondary_index(sql: str) -> str | None:
    """The secondary index by which a statement finds its rows."""
    if sql.startswith(("INSERT", "REPLACE")):
        return "u"
    found = re.search(r"FORCE INDEX \((k|u)\)", sql) or re.search(r"^DELETE FROM t WHERE (k|u) ", sql)
    return found[1] if found else None


def _is_of_unique_check(wait: Wait, schedule: Schedule, story: Story, index: int) -> bool:
    """The lock, or the one it waits for, was taken to see whether a value of the unique key `u` is there already: on an entry of
    that value, a deleted one included, or on the one that follows."""
    if wait.index != "u":
        return False
    run: dict[int, list[str]] = {}
    for act, outcomes in zip(schedule.acts[: index + 1], story, strict=False):
        if any(outcome.word == "skipped" for _, outcome in outcomes):
            continue
        if act.sql in ("BEGIN", "COMMIT", "ROLLBACK"):
            run[act.session] = []
        run[act.session].append(act.sql)
    # What it waits with, and what those in its way have done so far.
    checks = run[wait.session][-1:]
    for session, statements in run.items():
        if session != wait.session and wait.holder in (None, session):
            checks += statements
    return any(_locks(sql, wait.key) for sql in checks)


def _is_of_inherited_gap(wait: Wait, story: Story, schedule: Schedule, index: int) -> bool:
    """An insert waits for a gap of a session that once waited for a row which then was rolled back: InnoDB has given that session
    the gap."""
    if not wait.inserts:
        return False
    for act, outcomes in zip(schedule.acts[:index], story, strict=False):
        words = {session: outcome.word for session, outcome in outcomes}
        taken_back = act.sql == "ROLLBACK" or words.get(act.session) == "error"
        went_on = {session for session in words if session != act.session}
        if taken_back and went_on & ({wait.holder} if wait.holder is not None else went_on - {wait.session}):
            return True
    return False


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
