"""What a table contains, as two numbers that are the same in every engine.

`CHECKSUM TABLE ... EXTENDED` reads every row through the engine and adds up a CRC32 of each, over the values as the server holds
them: floats bit by bit, long values whole; independent of the order of rows and of the engine's formats. COUNT(*) usually goes by
another index than the checksum, so the two check each other.

It does not read generated columns (`TABLE::use_all_stored_columns` leaves out the stored ones, too): what the record's buffer happens to
hold of them goes in, which is another value each time. So tables that have any, also the hidden one of a long UNIQUE key, get a query instead: a CRC32 of each column's CRC32 (a row itself may be
longer than `max_allowed_packet`), FLOAT as the DOUBLE of the same value, since its own text shows six digits. It runs in UTC, where no two
TIMESTAMPs have the same text.

The numbers mean something only while nobody writes: the caller holds LOCK TABLES ... WRITE from before the first to after the second.
"""

from __future__ import annotations

from dataclasses import dataclass

from ferrite_migrate.errors import Mismatch, Problem
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Definition, Name, full, label, literal, quoted

UNCHECKED = "The storage engine for the table doesn't support check"


@dataclass(frozen=True)
class Contents:
    """Rows and checksum of a table."""

    rows: int
    checksum: int


def contents(session: Session, name: Name) -> Contents:
    """Read the whole table."""
    if Definition.parse(session.create_statement(name)).computes_columns():
        rows, checksum = session.run(query(name, _columns(session, name)))[0]
        return Contents(int(rows), int(checksum or 0))
    checksum = session.run(f"CHECKSUM TABLE {full(name)} EXTENDED")[0][1]
    if checksum is None:
        raise Problem(f"{label(name)}: the server gives no checksum: {session.warnings()}")
    return Contents(int(session.value(f"SELECT COUNT(*) FROM {full(name)}")), int(checksum))


def _columns(session: Session, name: Name) -> list[tuple[str, str]]:
    where = f"TABLE_SCHEMA={literal(name[0])} AND TABLE_NAME={literal(name[1])}"
    rows = session.run(
        f"SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS WHERE {where} ORDER BY ORDINAL_POSITION"
    )
    return [(str(r[0]), str(r[1]).lower()) for r in rows]


def query(name: Name, columns: list[tuple[str, str]]) -> str:
    """Count and checksum of all rows by SQL, from the columns' names and types."""
    assert columns, "a table has columns"
    values = [f"{quoted(column)}+0e0" if kind == "float" else quoted(column) for column, kind in columns]
    line = ", ".join(f"IFNULL(CRC32({value}), 'N')" for value in values)
    summed = f"SELECT COUNT(*), CAST(SUM(CRC32(CONCAT_WS(',', {line}))) AS UNSIGNED) FROM {full(name)}"
    return f"SET STATEMENT time_zone='+00:00' FOR {summed}"


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
    rows = session.run(f"CHECK TABLE {full(name)} EXTENDED")
    for _, _, kind, text in rows:
        if kind == "error":
            raise Mismatch(f"{label(name)}: CHECK TABLE says: {text}")
        if kind == "warning":
            warnings.append(str(text))
    # The last row says how it ended. Only a sequence, which has one row, cannot be checked, whatever its engine.
    last = (rows[-1][2], str(rows[-1][3])) if rows else ("", "")
    if last != ("status", "OK") and not (last[0] == "note" and last[1] == UNCHECKED):
        raise Problem(f"{label(name)}: CHECK TABLE did not finish: {last[1] or 'no answer'}")
    return warnings
