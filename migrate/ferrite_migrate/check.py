"""`check`: what a move would do, table by table. Nothing but the trial database is made, and that is dropped."""

from __future__ import annotations

from dataclasses import dataclass, field

from ferrite_migrate.progress import duration, say, size
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Name, label
from ferrite_migrate.tables import Table, Wanted, find, find_wanted, groups, links
from ferrite_migrate.trial import Verdict, trial


@dataclass
class Plan:
    """What would be moved, and what would not."""

    groups: list[list[Table]] = field(default_factory=list)
    """Tables that foreign keys connect are together."""
    verdicts: dict[Name, Verdict] = field(default_factory=dict)
    others: list[Table] = field(default_factory=list)
    """Tables of other engines: left alone."""

    def movable(self) -> list[list[Table]]:
        """The groups of which nothing is refused, small ones first."""
        movable = [x for x in self.groups if not any(self.verdicts[t.name].refused for t in x)]
        return sorted(movable, key=lambda group: sum(table.bytes for table in group))

    def refused(self) -> int:
        """How many tables are refused."""
        return sum(bool(x.refused) for x in self.verdicts.values())


def plan(session: Session, wanted: Wanted, source: str, target: str, allow_unencrypted: bool) -> Plan:
    """Look at the tables that are wanted, and try them."""
    found = find_wanted(session, wanted)
    everything = {table.name: table for table in find(session)}
    names = [table.name for table in found if table.engine.upper() == source.upper()]
    made = Plan(others=[table for table in found if table.engine.upper() not in (source.upper(), target.upper())])
    pairs = [(a, b) for a, b in links(session) if a in everything and b in everything]
    made.groups = [[everything[name] for name in group] for group in groups(names, pairs)]
    asked = {table.name for table in found}
    with trial(session, target, allow_unencrypted) as attempt:
        for group in made.groups:
            outside = [table.name for table in group if table.name not in asked]
            if outside and not wanted.connected:
                told = f"connected by foreign keys with {', '.join(map(label, outside))}: name them, too, or give --connected"
                made.verdicts.update({table.name: Verdict(refused=told) for table in group})
            else:
                made.verdicts.update(attempt.group(group))
    return made


def show(made: Plan, rate: float) -> None:
    """Table by table, then the sum."""
    number = 0
    for group in made.groups:
        number += len(group) > 1
        if len(group) > 1:
            total = sum(table.bytes for table in group)
            say(
                f"group {number}: {len(group)} tables connected by foreign keys are moved together; they wait {duration(total / rate)} or so"
            )
        for table in group:
            show_table(table, made.verdicts[table.name], rate)
    for table in made.others:
        say(f"{label(table.name)}: left alone; its engine is {table.engine or 'unknown'}")
    movable = [table for group in made.movable() for table in group]
    total = sum(table.bytes for table in movable)
    say(
        f"{len(made.verdicts)} tables: {len(movable)} can be moved, {made.refused()} refused; {size(total)}, about {duration(total / rate)}"
    )


def show_table(table: Table, verdict: Verdict, rate: float) -> None:
    """One table."""
    word = "refused" if verdict.refused else "can be moved, with changes" if verdict.changes else "can be moved"
    say(f"{label(table.name)}: {word}; about {table.rows} rows, {size(table.bytes)}, {duration(table.bytes / rate)}")
    for line in [verdict.refused] if verdict.refused else verdict.changes:
        say(f"    {line}")
