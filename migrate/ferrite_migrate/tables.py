"""Which tables there are, how large they are, and which of them hang together by foreign keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ferrite_migrate.errors import Problem
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Name, label, literal

OWN_DATABASE = "ferrite_migrate"
TRIAL_DATABASE = "ferrite_migrate_trial"
SYSTEM = ("mysql", "information_schema", "performance_schema", "sys", OWN_DATABASE, TRIAL_DATABASE)


@dataclass(frozen=True)
class Table:
    """A table and what the server says of it."""

    name: Name
    engine: str
    kind: str
    """BASE TABLE, SYSTEM VERSIONED or SEQUENCE."""
    rows: int
    bytes: int
    """Rows and indexes, as the engine estimates them."""


@dataclass(frozen=True)
class Wanted:
    """What the user asks for; nothing means every table that is not the server's own."""

    databases: tuple[str, ...] = ()
    tables: tuple[Name, ...] = ()
    connected: bool = False
    """Tables connected by foreign keys come along."""

    def condition(self, cased: bool) -> str:
        """For WHERE. `cased`: the server tells names apart by their case, which a comparison in this schema does not."""

        def same(column: str, name: str) -> str:
            exactly = f" AND BINARY {column}={literal(name)}" if cased else ""
            return f"{column}={literal(name)}{exactly}"

        alternatives = [f"({same('TABLE_SCHEMA', x)})" for x in self.databases]
        alternatives += [f"({same('TABLE_SCHEMA', d)} AND {same('TABLE_NAME', t)})" for d, t in self.tables]
        return f"({' OR '.join(alternatives)})" if alternatives else "TRUE"


def find_wanted(session: Session, wanted: Wanted) -> list[Table]:
    """The tables that are wanted, all of which there are."""
    found = find(session, wanted.condition(cased=session.variable("lower_case_table_names") == "0"))
    require_found(session, wanted, found)
    return found


def find(session: Session, condition: str = "TRUE") -> list[Table]:
    """The tables of a condition, without views and the server's own, by name."""
    system = ",".join(literal(x) for x in SYSTEM)
    rows = session.run(
        "SELECT TABLE_SCHEMA, TABLE_NAME, IFNULL(ENGINE, ''), TABLE_TYPE, IFNULL(TABLE_ROWS, 0), "
        "IFNULL(DATA_LENGTH, 0) + IFNULL(INDEX_LENGTH, 0) FROM information_schema.TABLES "
        f"WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') AND TABLE_SCHEMA NOT IN ({system}) AND {condition} "
        "ORDER BY 1, 2"
    )
    return [Table((r[0], r[1]), r[2], r[3], int(r[4]), int(r[5])) for r in rows]


def require_found(session: Session, wanted: Wanted, found: Iterable[Table]) -> None:
    """Whatever was named exists."""
    for database in wanted.databases:
        if database.lower() in SYSTEM:
            raise Problem(f"{database} is a database of the server itself, or of this program")
        if not session.value(f"SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME={literal(database)}"):
            raise Problem(f"there is no database {database}, or this account may not see it")
    have = {table.name for table in found}
    for name in wanted.tables:
        if name[0].lower() in SYSTEM:
            raise Problem(f"{label(name)} belongs to the server itself, or to this program")
        if name not in have:
            raise Problem(f"there is no table {label(name)}, or this account may not see it")


def links(session: Session) -> list[tuple[Name, Name]]:
    """Every foreign key as child and parent."""
    rows = session.run(
        "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME "
        "FROM information_schema.REFERENTIAL_CONSTRAINTS"
    )
    return [((r[0], r[1]), (r[2] or r[0], r[3])) for r in rows]


def groups(names: Iterable[Name], pairs: Iterable[tuple[Name, Name]]) -> list[list[Name]]:
    """The names as sets connected by the pairs; names outside join those that they are connected with."""
    leader: dict[Name, Name] = {}

    def lead(name: Name) -> Name:
        while leader.setdefault(name, name) != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    wanted = list(names)
    for child, parent in pairs:
        a, b = lead(child), lead(parent)
        leader[max(a, b)] = min(a, b)
    inside = {lead(name) for name in wanted}
    found: dict[Name, list[Name]] = {}
    for name in sorted({*wanted, *leader}):
        if lead(name) in inside:
            found.setdefault(lead(name), []).append(name)
    return list(found.values())
