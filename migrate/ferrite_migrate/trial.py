"""A trial: what a move would do is done to empty copies of the tables, in a database that is made for it and dropped.

So the answer is the server's own, by the very statements of the move: CREATE TABLE ... LIKE, ALTER TABLE ... ENGINE, the foreign
keys, a guard. Nothing of it is in the binary log. What the server would do without a word, but loses something, is added here.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from ferrite_migrate import guards
from ferrite_migrate.errors import ConnectionLost, Problem, Refused
from ferrite_migrate.progress import say
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Definition, Name, full, label, quoted, refers_elsewhere, renamed_indexes
from ferrite_migrate.tables import TRIAL_DATABASE, Table

VERSIONED_ENGINE = 4120
OTHERS_TRIAL_SECONDS = 600
_ENCRYPTED = re.compile(r"`?ENCRYPTED`?\s*=\s*'?YES'?", re.IGNORECASE)
_NOT_ENCRYPTED = re.compile(r"`?ENCRYPTED`?\s*=\s*'?NO'?", re.IGNORECASE)
_PAGE_COMPRESSED = re.compile(r"`?PAGE_COMPRESSED`?\s*=\s*'?(1|YES|ON)'?", re.IGNORECASE)


def encrypts(session: Session) -> bool:
    """Is the server's Ferrite database encrypted?"""
    rows = session.run("SHOW GLOBAL STATUS LIKE 'Ferrite_store_encrypted'")
    return bool(rows) and str(rows[0][1]) == "1"


def says_encrypted(options: str) -> bool:
    """ENCRYPTED=YES is among the options of a definition."""
    return bool(_ENCRYPTED.search(options))


def would_lose_encryption(session: Session, options: str) -> bool:
    """A table with these options is encrypted in InnoDB, and Ferrite's database is not."""
    if encrypts(session):
        return False
    encrypts_all = session.variable("innodb_encrypt_tables") in ("ON", "FORCE")
    return says_encrypted(options) or encrypts_all and not _NOT_ENCRYPTED.search(options)


LOST_ENCRYPTION = "it is encrypted, and Ferrite's database is not (ferrite_encrypt): --allow-unencrypted stores the rows as plain text"


@dataclass
class Verdict:
    """What would become of a table."""

    refused: str = ""
    changes: list[str] = field(default_factory=list)


class Trial:
    """The trial database of one session."""

    def __init__(self, session: Session, engine: str, allow_unencrypted: bool = False) -> None:
        self.session, self.engine, self.allow_unencrypted = session, engine, allow_unencrypted
        self.encrypted = encrypts(session)

    def group(self, tables: list[Table]) -> dict[Name, Verdict]:
        """Try tables that foreign keys connect. If one is refused, all are: they are moved together or not at all."""
        place = {table.name: (TRIAL_DATABASE, f"t{i}") for i, table in enumerate(tables)}
        definitions: dict[Name, Definition] = {}
        verdicts: dict[Name, Verdict] = {}
        try:
            for table in tables:
                self._step(self._make, table, place, definitions, verdicts)
            # All parents are there by now, and in the same engine.
            for step in (self._foreign, self._compare):
                for table in tables:
                    if not any(x.refused for x in verdicts.values()):
                        self._step(step, table, place, definitions, verdicts)
        finally:
            for copy in place.values():
                self.session.run(f"DROP TABLE IF EXISTS {full(copy)}")
        refused = [name for name, verdict in verdicts.items() if verdict.refused]
        for verdict in verdicts.values():
            if refused and not verdict.refused:
                verdict.refused = f"connected by foreign keys with {label(refused[0])}, which is refused"
        return verdicts

    def _step(
        self,
        step: Callable[[Table, Mapping[Name, Name], dict[Name, Definition], Verdict], None],
        table: Table,
        place: Mapping[Name, Name],
        definitions: dict[Name, Definition],
        verdicts: dict[Name, Verdict],
    ) -> None:
        """One step for one table: what the server says against it is the verdict."""
        verdict = verdicts.setdefault(table.name, Verdict())
        try:
            step(table, place, definitions, verdict)
        except ConnectionLost:
            raise
        except Problem as e:
            copy, own = "`.`".join(place[table.name]), "`.`".join(table.name)
            verdict.refused = str(e).replace(copy, own)
            if isinstance(e, Refused) and e.code == VERSIONED_ENGINE:
                verdict.refused += (
                    "; dump it with mariadb-dump --dump-history and restore it with the other engine's name"
                )

    def _make(
        self, table: Table, place: Mapping[Name, Name], definitions: dict[Name, Definition], verdict: Verdict
    ) -> None:
        definition = definitions[table.name] = Definition.parse(self.session.create_statement(table.name))
        self._of_definition(table, definition, verdict)
        if verdict.refused:
            return
        copy = place[table.name]
        self.session.run(f"CREATE TABLE {full(copy)} LIKE {full(table.name)}")
        plain = " ENCRYPTED=DEFAULT" if self.engine == "FERRITE" and not self.encrypted else ""
        lock = ", LOCK=SHARED" if self.session.copies_beside_writers() else ""
        self.session.run(f"ALTER TABLE {full(copy)} ENGINE={self.engine}{plain}{lock}")
        verdict.changes += [text for _, text in self.session.warnings()]

    def _foreign(
        self, table: Table, place: Mapping[Name, Name], definitions: dict[Name, Definition], verdict: Verdict
    ) -> None:
        del verdict
        definition = definitions[table.name]
        if not definition.foreign:
            return
        copy = place[table.name]
        clauses = [self._among_copies(clause, table.name, place) for clause in definition.foreign]
        self.session.run(f"ALTER TABLE {full(copy)} {', '.join('ADD ' + x for x in clauses)}")
        renamed = renamed_indexes(definition, Definition.parse(self.session.create_statement(copy)))
        if renamed:
            self.session.run(f"ALTER TABLE {full(copy)} {', '.join(f'RENAME INDEX {a} TO {b}' for a, b in renamed)}")
        self.session.run(guards.statement(copy, "INSERT"))

    @staticmethod
    def _among_copies(clause: str, child: Name, place: Mapping[Name, Name]) -> str:
        for name, copy in place.items():
            own = full(name) if name[0] != child[0] else quoted(name[1])
            if re.search(rf"\bREFERENCES {re.escape(own)} \(", clause):
                return refers_elsewhere(clause, full(copy))
        return refers_elsewhere(clause, full((TRIAL_DATABASE, "missing")))

    def _of_definition(self, table: Table, definition: Definition, verdict: Verdict) -> None:
        """What the server does without a word."""
        options = definition.options
        if self.engine == "FERRITE" and would_lose_encryption(self.session, options):
            if not self.allow_unencrypted:
                verdict.refused = LOST_ENCRYPTION
            verdict.changes.append("it is not encrypted in Ferrite")
        if self.engine == "FERRITE" and _PAGE_COMPRESSED.search(options):
            verdict.changes.append("PAGE_COMPRESSED has no effect in Ferrite; it is kept for the way back")
        if re.search(r"\b(DATA|INDEX) DIRECTORY\s*=", options):
            verdict.changes.append(
                "DATA DIRECTORY is lost: all Ferrite tables are in #ferrite, and on the way back the server ignores it in ALTER TABLE"
            )
        if definition.option("ROW_FORMAT") == "COMPRESSED":
            verdict.changes.append("ROW_FORMAT=COMPRESSED has no effect in Ferrite; it is kept for the way back")
        zoned = definition.zoned_columns()
        if zoned:
            verdict.changes.append(
                f"{', '.join(zoned)}: computed anew from a TIMESTAMP, in the server's time zone; rows that sessions with another time_zone "
                "have written can get another value there"
            )
        if table.kind == "SEQUENCE":
            verdict.changes.append("the values that the server has cached are skipped, as by a restart")

    def _compare(
        self, table: Table, place: Mapping[Name, Name], definitions: dict[Name, Definition], verdict: Verdict
    ) -> None:
        """What the server shows otherwise than before."""
        definition = definitions[table.name]
        after = Definition.parse(self.session.create_statement(place[table.name]))
        before = Definition(definition.parts, (), definition.options)
        found = before.differences(Definition(after.parts, (), after.options))
        verdict.changes += [x for x in found if not x.startswith("options:") or "DIRECTORY" not in x]


@contextlib.contextmanager
def trial(session: Session, engine: str, allow_unencrypted: bool = False) -> Iterator[Trial]:
    """A trial database. The session writes no binary log while it exists, and is the only one that has one: `check` runs beside others."""
    if not session.value(f"SELECT GET_LOCK('{TRIAL_DATABASE}', 0)"):
        say("waiting for another ferrite-migrate that tries tables on this server")
        if not session.value(f"SELECT GET_LOCK('{TRIAL_DATABASE}', {OTHERS_TRIAL_SECONDS})"):
            raise Problem(f"another ferrite-migrate still tries tables in {TRIAL_DATABASE}: wait for its end")
    try:
        with _made(session):
            yield Trial(session, engine, allow_unencrypted)
    finally:
        with contextlib.suppress(ConnectionLost):  # the lock went with it
            session.run(f"DO RELEASE_LOCK('{TRIAL_DATABASE}')")


@contextlib.contextmanager
def _made(session: Session) -> Iterator[None]:
    with session.unlogged():
        session.run(f"DROP DATABASE IF EXISTS {TRIAL_DATABASE}")
        session.run(f"CREATE DATABASE {TRIAL_DATABASE}")
        try:
            yield
        finally:
            session.run(f"DROP DATABASE IF EXISTS {TRIAL_DATABASE}")
