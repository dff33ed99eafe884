"""What a table contains, as two numbers that are the same in every engine.

`CHECKSUM TABLE ... EXTENDED` reads every row through the engine and adds up a CRC32 of each, over the values as the server holds
them: floats bit by bit, long values whole, virtual columns as computed, history rows of versioned tables included; independent of
the order of rows and of the engine's formats. COUNT(*) usually goes by another index than the checksum, so the two check each other.
They mean something only while nobody writes: the caller holds LOCK TABLES ... WRITE from before the first to after the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferrite_migrate.errors import Mismatch, Problem
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Name, full, label


@dataclass(frozen=True)
class Contents:
    """Rows and checksum of a table."""

    rows: int
    checksum: int


def contents(session: Session, name: Name) -> Contents:
    """Read the whole table."""
    checksum = session.run(f"CHECKSUM TABLE {full(name)} EXTENDED")[0][1]
    if checksum is None:
        raise Problem(f"{label(name)}: the server gives no checksum: {session.warnings()}")
    return Contents(int(session.value(f"SELECT COUNT(*) FROM {full(name)}")), int(checksum))


def require_same(name: Name, before: Contents, after: Contents) -> None:
    """A table has the same contents after the move."""
    if before != after:
        raise Mismatch(
            f"{label(name)} has other contents after the move: {before.rows} rows with checksum {before.checksum} before, "
            f"{after.rows} rows with checksum {after.checksum} after"
        )


def require_sound(session: Session, name: Name) -> list[str]:
    """CHECK TABLE finds nothing wrong in a Ferrite table; what it warns of (rows without a parent, as before) is returned."""
    warnings = []
    for _, _, kind, text in session.run(f"CHECK TABLE {full(name)} EXTENDED"):
        if kind == "error":
            raise Mismatch(f"{label(name)}: CHECK TABLE says: {text}")
        if kind == "warning":
            warnings.append(str(text))
    return warnings
