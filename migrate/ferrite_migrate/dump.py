"""Reads the definitions out of an SQL file, such as mariadb-dump writes, without its rows.

The file is read line by line and may be larger than memory; only statements that define tables are kept. A quoted string is skipped
as one; the delimiter counts outside quotes and comments only, and DELIMITER changes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ferrite_migrate.errors import Refused
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Name, quoted
from ferrite_migrate.tables import SYSTEM

DEFAULT_DATABASE = "dump"
LONGEST_DEFINITION_BYTES = 4 << 20
FIRST_WORDS_BYTES = 1024
_OPEN = re.compile(r"['\"`]|/\*|--(?=\s)|#|^delimiter\s+(\S+)\s*$", re.IGNORECASE)
_CLOSE = {
    "'": re.compile(r"[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL),
    '"': re.compile(r'[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL),
    "`": re.compile(r"[^`]*`"),
}
_KEPT = re.compile(
    r"\s*(?:/\*M?!\d*\s*)?(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:DATABASE|SCHEMA|TABLE|SEQUENCE)\b|ALTER\s+TABLE\b|USE\b"
    r"|CREATE\s+(?:(?:UNIQUE|FULLTEXT|SPATIAL)\s+)?INDEX\b)",
    re.IGNORECASE,
)
_KEYS_OFF = re.compile(r"ALTER\s+TABLE\s+.*\b(?:DISABLE|ENABLE)\s+KEYS", re.IGNORECASE | re.DOTALL)
_INSERT = re.compile(
    r"\s*(?:INSERT|REPLACE)\s+(?:IGNORE\s+)?INTO\s+(?:`((?:[^`]|``)+)`\.)?(?:`((?:[^`]|``)+)`|([\w$]+))", re.IGNORECASE
)
_USE = re.compile(r"USE\s+`?((?:[^`;\s]|``)+)`?", re.IGNORECASE)
_TABLE = re.compile(
    r"TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?((?:`(?:[^`]|``)+`|[\w$]+)(?:\.(?:`(?:[^`]|``)+`|[\w$]+))?)", re.IGNORECASE
)


@dataclass
class Contents:
    """What a dump defines."""

    refused: dict[str, str] = field(default_factory=dict)
    """Definitions that the server does not take even for their own engine, and why."""
    bytes: dict[Name, int] = field(default_factory=dict)
    """Length of the INSERT statements of a table."""


class Reader:
    """Takes a file apart into statements, of which those that are not wanted lose their text beyond the first words."""

    def __init__(self) -> None:
        self.delimiter, self.text, self.length, self.inside = ";", "", 0, ""

    def statements(self, lines: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Each statement with its length; the text of a long one is cut."""
        for line in lines:
            yield from self._line(line)
        if self.text.strip():
            yield self.text, self.length

    def _keep(self, piece: str) -> None:
        self.length += len(piece)
        room = LONGEST_DEFINITION_BYTES if _KEPT.match(self.text[:200] + piece[:200]) else FIRST_WORDS_BYTES
        self.text += piece[: max(0, room - len(self.text))]

    def _line(self, line: str) -> Iterator[tuple[str, int]]:
        at = 0
        while at < len(line):
            if self.inside:
                at = self._close(line, at)
                continue
            opening = _OPEN.search(line, at)
            end = line.find(self.delimiter, at)
            if end >= 0 and (opening is None or end < opening.start()):
                self._keep(line[at:end])
                if self.text.strip():
                    yield self.text.strip(), self.length
                self.text, self.length = "", 0
                at = end + len(self.delimiter)
            elif opening is None:
                self._keep(line[at:])
                return
            else:
                at = self._open(line, at, opening)

    def _open(self, line: str, at: int, opening: re.Match[str]) -> int:
        sign = opening.group()
        if opening.group(1):
            if not self.text.strip():
                self.delimiter = opening.group(1)
            return len(line)
        if sign in ("--", "#"):
            self._keep(line[at : opening.start()] + "\n")
            return len(line)
        # With 999999 it is for a client, and no server executes it.
        if sign == "/*" and re.match(r"/\*M?!(?!999999)", line[opening.start() :]):
            self._keep(line[at : opening.end()])
            return opening.end()
        self._keep(line[at : opening.start() + (0 if sign == "/*" else 1)])
        self.inside = sign
        return opening.end()

    def _close(self, line: str, at: int) -> int:
        if self.inside == "/*":
            end = line.find("*/", at)
            self.inside = "" if end >= 0 else self.inside
            return end + 2 if end >= 0 else len(line)
        found = _CLOSE[self.inside].match(line, at)
        self._keep(line[at : found.end() if found else len(line)])
        self.inside = "" if found else self.inside
        return found.end() if found else len(line)


def load(session: Session, lines: Iterable[str]) -> Contents:
    """Make the tables of a dump on a server that is made for it, without rows."""
    contents, current = Contents(), DEFAULT_DATABASE
    # mariadb-dump writes the defaults of TIMESTAMP columns in UTC; elsewhere the first hours of 1970 are no such value.
    session.run("SET SESSION time_zone='+00:00'")
    session.run(f"CREATE DATABASE IF NOT EXISTS `{DEFAULT_DATABASE}`")
    session.run(f"USE `{DEFAULT_DATABASE}`")
    for statement, length in Reader().statements(lines):
        inserted = _INSERT.match(statement)
        if inserted:
            name = (inserted.group(1) or current, inserted.group(2) or inserted.group(3))
            contents.bytes[name] = contents.bytes.get(name, 0) + length
        elif _KEPT.match(statement) and not _KEYS_OFF.search(statement):
            used = _USE.match(statement)
            current = used.group(1).replace("``", "`") if used else current
            if current.lower() not in SYSTEM:
                _define(session, statement, current, contents)
    return contents


def _define(session: Session, statement: str, database: str, contents: Contents) -> None:
    try:
        if _USE.match(statement):
            session.run(f"CREATE DATABASE IF NOT EXISTS {quoted(database)}")
            session.run(f"USE {quoted(database)}")
        else:
            session.run(statement)
    except Refused as e:
        table = _TABLE.search(statement)
        what = table.group(1) if table else " ".join(statement.split())[:80]
        contents.refused.setdefault(f"{database}.{what}".replace("`", ""), str(e))
