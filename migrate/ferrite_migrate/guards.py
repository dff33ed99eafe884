"""Guards: triggers that refuse every INSERT, UPDATE and DELETE of a table while its foreign keys are missing.

While this program lives, LOCK TABLES keeps writers out: they wait. If it or the server dies, the lock is gone, and the guards
remain: writers get error 1644 with the reason, and no orphan gets in. REPLACE and LOAD DATA fire them, too; TRUNCATE and DDL do not.
They are not in the binary log: a replica applies what the source has let through.
"""

from __future__ import annotations

import hashlib

from ferrite_migrate import points
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Name, full, label, literal, quoted

EVENTS = ("INSERT", "UPDATE", "DELETE")
PREFIX = "ferrite_migrate_"


def trigger(name: Name, event: str) -> str:
    """The guard's own name; triggers of a database share one namespace."""
    return f"{PREFIX}{hashlib.sha256(label(name).encode()).hexdigest()[:16]}_{event.lower()}"


def statement(name: Name, event: str) -> str:
    """Make a guard."""
    told = f"{name[1]} is being moved by ferrite-migrate, which was interrupted: ./ferrite migrate convert --resume"
    return (
        f"CREATE TRIGGER IF NOT EXISTS {quoted(name[0])}.{quoted(trigger(name, event))} BEFORE {event} ON {full(name)} FOR EACH ROW "
        f"SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT={literal(told[-128:])}"
    )


def install(session: Session, names: list[Name]) -> None:
    """Guard these tables, which the session has locked."""
    with session.unlogged():
        for name in names:
            for event in EVENTS:
                session.run(statement(name, event))
                points.reached("move.guard")


def remove(session: Session, names: list[Name]) -> None:
    """Take away what guards there are."""
    with session.unlogged():
        for name in names:
            for event in EVENTS:
                session.run(f"DROP TRIGGER IF EXISTS {quoted(name[0])}.{quoted(trigger(name, event))}")
                points.reached("move.unguard")


def present(session: Session, names: list[Name]) -> int:
    """How many of the guards of these tables are there."""
    wanted = ",".join(literal(trigger(name, event)) for name in names for event in EVENTS)
    schemas = ",".join(literal(x) for x in sorted({name[0] for name in names}))
    sql = f"SELECT COUNT(*) FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA IN ({schemas}) AND TRIGGER_NAME IN ({wanted})"
    return int(session.value(sql))
