"""The journal: what each table was before, and how far its move has come. It makes a move resumable and the way back exact.

It is the table `ferrite_migrate.tables` of the server itself, in InnoDB, never in the binary log: it speaks of this server alone.
Write ahead: a state is durable before the step that it announces. InnoDB writes its log in order, so a DROP FOREIGN KEY cannot
survive a crash that the row announcing it does not; where commits are not flushed (`innodb_flush_log_at_trx_commit` other
than 1), or the table is Ferrite's, FLUSH ENGINE LOGS sees to it.

States of a table:

    planned -> working -> moved          a table without foreign keys
    planned -> working -> frozen -> verified -> moved    a group that foreign keys connect
    failed                               as it was before; the message says why

- working: nothing is lost if it is forgotten: the table is as it was, or the server has finished the ALTER TABLE.
- frozen: guards refuse all writes; foreign keys may be missing. Checksum and foreign keys are those of this row. The table `applied`
  says how far replication to this server had come: what it applies goes past the guards.
- verified: complete; guards may be left.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from ferrite_migrate.errors import NO_SUCH_TABLE, UNKNOWN_DATABASE, Refused
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Name, literal
from ferrite_migrate.tables import OWN_DATABASE

TABLE = f"`{OWN_DATABASE}`.`tables`"
PLANNED, WORKING, FROZEN, VERIFIED, MOVED, FAILED = "planned", "working", "frozen", "verified", "moved", "failed"
UNFINISHED = (WORKING, FROZEN, VERIFIED)
_CREATE = f"""CREATE TABLE IF NOT EXISTS {TABLE} (
  table_schema VARCHAR(64) NOT NULL, table_name VARCHAR(64) NOT NULL,
  group_number INT NOT NULL, state VARCHAR(10) NOT NULL,
  source VARCHAR(64) NOT NULL COMMENT 'the engine before the move', target VARCHAR(64) NOT NULL,
  original LONGTEXT NOT NULL COMMENT 'the definition before the first move',
  before_move LONGTEXT NOT NULL COMMENT 'the definition before this move',
  foreign_keys LONGTEXT NOT NULL COMMENT 'as JSON',
  checksum BIGINT UNSIGNED, row_count BIGINT UNSIGNED, bytes BIGINT UNSIGNED NOT NULL,
  began DATETIME, seconds DOUBLE, message TEXT NOT NULL,
  PRIMARY KEY (table_schema, table_name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""
APPLIED = f"`{OWN_DATABASE}`.`applied`"
_CREATE_APPLIED = f"""CREATE TABLE IF NOT EXISTS {APPLIED} (
  group_number INT NOT NULL PRIMARY KEY,
  position LONGTEXT NOT NULL COMMENT 'of the replication to here, when the group was frozen'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""
_COLUMNS = (
    "table_schema, table_name, group_number, state, source, target, original, before_move, foreign_keys, "
    "checksum, row_count, bytes, seconds, message"
)


@dataclass
class Entry:
    """What the journal says of one table."""

    name: Name
    group: int
    state: str
    source: str
    target: str
    original: str = ""
    before: str = ""
    foreign: list[str] = field(default_factory=list)
    checksum: int | None = None
    rows: int | None = None
    bytes: int = 0
    seconds: float | None = None
    message: str = ""


def _entry(schema: str, table: str, *values: Any) -> Entry:
    group, state, source, target, original, before, foreign, *rest = values
    return Entry((schema, table), group, state, source, target, original, before, json.loads(foreign), *rest)


def _number(value: float | None) -> str:
    return "NULL" if value is None else str(value)


class Journal:
    """The journal of one server. The session is its own: what it writes is in no other transaction."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.flush = session.variable("innodb_flush_log_at_trx_commit") != "1"

    def read(self) -> list[Entry]:
        """All entries, group by group; none if there is no journal."""
        try:
            rows = self.session.run(f"SELECT {_COLUMNS} FROM {TABLE} ORDER BY group_number, 1, 2")
        except Refused as e:
            if e.code in (NO_SUCH_TABLE, UNKNOWN_DATABASE):
                return []
            raise
        return [_entry(*r) for r in rows]

    def open(self) -> None:
        """Make it if it is not there. The session writes no binary log from here on."""
        if self.session.variable("log_bin") == "ON":
            self.session.run("SET SESSION sql_log_bin=0")
        self.session.run(f"CREATE DATABASE IF NOT EXISTS `{OWN_DATABASE}` DEFAULT CHARACTER SET utf8mb4")
        self.session.run(_CREATE)
        self.session.run(_CREATE_APPLIED)

    def plan(self, entries: list[Entry]) -> None:
        """A new plan in place of what was planned and not begun."""
        self.session.run("START TRANSACTION")
        self.session.run(f"DELETE FROM {TABLE} WHERE state='{PLANNED}' AND original=''")
        # What was moved before keeps its original definition until it is moved again.
        for entry in entries:
            self._write(entry)
        self.session.run("COMMIT")

    def write(self, entries: list[Entry]) -> None:
        """Durable when this returns, all or none."""
        self.session.run("START TRANSACTION")
        for entry in entries:
            self._write(entry)
        self.session.run("COMMIT")
        if self.flush or any(entry.source != "InnoDB" for entry in entries):
            self.session.run("FLUSH ENGINE LOGS")

    def note_applied(self, group: int, position: str) -> None:
        """How far replication had come. It is durable with the next `write`."""
        self.session.run(f"REPLACE INTO {APPLIED} VALUES ({group}, {literal(position)})")

    def applied(self, group: int) -> str | None:
        """What was noted; None for a group that an earlier release has frozen."""
        value = self.session.value(f"SELECT position FROM {APPLIED} WHERE group_number={group}")
        return None if value is None else str(value)

    def _write(self, entry: Entry) -> None:
        assert entry.state in (PLANNED, WORKING, FROZEN, VERIFIED, MOVED, FAILED), entry.state
        assert entry.state in (PLANNED, FAILED) or entry.original, "what is moved can be brought back"
        texts = [*entry.name, entry.state, entry.source, entry.target, entry.original, entry.before]
        texts += [json.dumps(entry.foreign), entry.message]
        schema, table, state, source, target, original, before, foreign, message = map(literal, texts)
        numbers = map(_number, (entry.checksum, entry.rows, entry.bytes, entry.seconds))
        self.session.run(
            f"REPLACE INTO {TABLE} ({_COLUMNS}, began) VALUES ({schema}, {table}, {entry.group}, {state}, {source}, {target}, "
            f"{original}, {before}, {foreign}, {', '.join(numbers)}, {message}, NOW())"
        )

    def forget(self) -> None:
        """Drop the journal."""
        self.open()
        self.session.run(f"DROP DATABASE `{OWN_DATABASE}`")
