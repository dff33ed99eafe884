"""The move of one group of tables to another engine. Everything that must survive `kill -9` of either side is here.

A table without foreign keys is moved by one ALTER TABLE, which is atomic. With verification the session holds LOCK TABLES ... WRITE
around checksum, ALTER TABLE and checksum, so that both see the same rows.

Tables that foreign keys connect cannot be: the server refuses to change the engine of either side (error 1217). Under one LOCK TABLES
for the whole group the keys are dropped, every table altered, and the keys added again without a check: no row has changed since
they held. Before the first key is dropped, guards (guards.py) are in place and the journal says `frozen`; they go when all keys are
back. So at every moment either the keys are there, or the lock is held, or the guards refuse writes: no orphan gets in. Whoever comes
later looks at the tables, not at what was intended: `drive` works from any mixture of engines and keys, in either direction.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ferrite_migrate import guards, journal, points
from ferrite_migrate.conditions import applied
from ferrite_migrate.contents import Contents, contents, require_same, require_sound
from ferrite_migrate.errors import ConnectionLost, Mismatch, Problem, Refused
from ferrite_migrate.journal import Entry, Journal
from ferrite_migrate.patience import Patience
from ferrite_migrate.progress import duration, say, size, watching
from ferrite_migrate.server import Login, Session
from ferrite_migrate.sql import Definition, Name, constraint, full, label, parent, renamed_indexes
from ferrite_migrate.tables import links
from ferrite_migrate.trial import LOST_ENCRYPTION, encrypts, says_encrypted, would_lose_encryption

RESTORED = ("ROW_FORMAT", "KEY_BLOCK_SIZE", "ENCRYPTED")
"""Options of the original definition that are given again on the way back if they have been lost."""


PARENT_NEEDED = 1217
"""The server refuses to change the engine of a table that foreign keys refer to."""


@dataclass(frozen=True)
class Settings:
    """How to move."""

    verify: bool = True
    lock_wait_seconds: int = 5
    lock_tries: int = 60
    bytes_per_second: float = 20e6
    allow_unencrypted: bool = False


class Mover:
    """Moves groups, one after the other, with two sessions of one server."""

    def __init__(
        self, login: Login, main: Session, book: Journal, settings: Settings, stopped: Callable[[], bool]
    ) -> None:
        self.login, self.main, self.book, self.settings = login, main, book, settings
        self.patience = Patience(login, main, settings.lock_wait_seconds, settings.lock_tries, stopped)

    def move(self, group: list[Entry], target: str) -> bool:
        """Move a group, or finish what was begun. False if it is as it was before, with the reason in the journal."""
        assert group, "a group has tables"
        state = group[0].state
        assert all(x.state == state for x in group), "the states of a group are written together"
        began = time.monotonic()
        try:
            if state in (journal.FROZEN, journal.VERIFIED):
                self._thaw(group, target)
            elif len(group) == 1 and not self._keys(group[0].name):
                self._single(group[0], target)
            else:
                self._linked(group, target)
        except ConnectionLost:
            raise
        except Problem as e:
            if self._unfinished(group):
                raise
            self._failed(group, str(e))
            return False
        for entry in group:
            entry.seconds = time.monotonic() - began
        self.book.write(group)
        points.reached("move.done")
        self._tell(group, time.monotonic() - began)
        return True

    def _unfinished(self, group: list[Entry]) -> bool:
        """The tables are not as they were: the journal must not say `failed`, or nobody would take the guards away."""
        if group[0].state in (journal.FROZEN, journal.VERIFIED):
            return True
        if group[0].state == journal.WORKING and any(self._moved(entry) for entry in group):
            return True
        return guards.present(self.main, [entry.name for entry in group]) > 0

    def _moved(self, entry: Entry) -> bool:
        """The table has the engine that it was to get."""
        return entry.source != entry.target and self.main.engine(entry.name) == entry.target

    def _keys(self, name: Name) -> tuple[str, ...]:
        return Definition.parse(self.main.create_statement(name)).foreign

    # ---- steps ----

    def _begin(self, group: list[Entry], target: str) -> None:
        """Write down what the tables are now."""
        for entry in group:
            before = self.main.create_statement(entry.name)
            engine = self.main.engine(entry.name)
            if engine == "InnoDB" or not entry.original:
                entry.original = before
            entry.before, entry.source, entry.target = before, engine, target
            entry.foreign = list(Definition.parse(before).foreign)
            entry.state, entry.message, entry.checksum, entry.rows = journal.WORKING, "", None, None
        self.book.write(group)
        points.reached("move.begun")

    def _lock(self, names: list[Name]) -> None:
        """LOCK TABLES, giving way to others every few seconds: whoever waits behind the request waits no longer than that."""
        sql = "LOCK TABLES " + ", ".join(f"{full(name)} WRITE" for name in names)
        self.patience.lock(sql, ", ".join(map(label, names)))
        points.reached("move.locked")

    def _alter(self, entry: Entry, target: str, patient: bool = False) -> None:
        now = self.main.create_statement(entry.name)
        # The plan was made of what the table was then. What comes from Ferrite was plain text there, and may go back.
        comes_in = target == "FERRITE" and entry.source != "FERRITE" and not self.settings.allow_unencrypted
        if comes_in and would_lose_encryption(self.main, Definition.parse(now).options):
            raise Problem(f"{label(entry.name)}: {LOST_ENCRYPTION}")
        sql = alteration(entry, now, target, encrypts(self.main), self.main.copies_beside_writers())
        with watching(self.login, self.main.id, entry.bytes / self.settings.bytes_per_second):
            if patient:
                self.patience.alter(sql, label(entry.name))
            else:
                self.main.run(sql)
        points.reached("move.altered")

    def _count(self, group: list[Entry]) -> None:
        for entry in group if self.settings.verify else []:
            seen = contents(self.main, entry.name)
            entry.rows, entry.checksum = seen.rows, seen.checksum

    def _verify(self, group: list[Entry], target: str) -> None:
        """The contents are those of before the move. What was not counted cannot be compared."""
        for entry in group:
            if entry.checksum is None or entry.rows is None:
                continue
            require_same(entry.name, Contents(entry.rows, entry.checksum), contents(self.main, entry.name))
            counters = [
                Definition.parse(x).option("AUTO_INCREMENT")
                for x in (entry.before, self.main.create_statement(entry.name))
            ]
            if counters[0] != counters[1]:
                raise Mismatch(
                    f"{label(entry.name)}: AUTO_INCREMENT is {counters[1]} after the move, {counters[0]} before"
                )
            if target == "FERRITE":
                found = require_sound(self.main, entry.name)
                entry.message = "; ".join(filter(None, [entry.message, *found[:1]]))

    def _end(self, group: list[Entry], target: str) -> None:
        """The entries say what has become of the tables."""
        for entry in group:
            entry.state, entry.target = journal.MOVED, target
            found = self._differences(entry)
            entry.message = "; ".join(filter(None, [entry.message, *found]))

    def _differences(self, entry: Entry) -> list[str]:
        """What is otherwise than before this move; on the way back than before the first one, but for what users have changed since."""
        after = Definition.parse(self.main.create_statement(entry.name))
        before, original = Definition.parse(entry.before), Definition.parse(entry.original)
        changed_since = original.differences(before)
        return [x for x in original.differences(after) if x not in changed_since or entry.target == "FERRITE"]

    # ---- a table by itself ----

    def _single(self, entry: Entry, target: str) -> None:
        if entry.state == journal.WORKING and self.main.engine(entry.name) == target:
            self._interrupted(entry, target)
            return
        self._begin([entry], target)
        if not self.settings.verify:
            self._alter(entry, target, patient=True)
            self._end([entry], target)
            return
        try:
            self._lock([entry.name])
            self._reread([entry])
            self._count([entry])
            try:
                self._alter(entry, target)
                self._verify([entry], target)
            except ConnectionLost:
                raise
            except Problem as e:
                self._return(entry, e)
                raise
            points.reached("move.verified")
            self._end([entry], target)
        finally:
            self._unlock()

    def _return(self, entry: Entry, first: Problem) -> None:
        """After a difference, or what kept anybody from looking for one: back to its engine, where everything is as it was."""
        if not self._moved(entry):
            return
        try:
            self._alter(entry, entry.source)
            self._verify([entry], entry.source)
        except ConnectionLost:
            raise
        except Problem as e:
            if self._moved(entry):
                raise Problem(
                    f"{first}; and going back failed: {e}. {label(entry.name)} is in {entry.target}, not compared: "
                    "`convert --resume` keeps it there, `back` moves it back"
                ) from e
            raise Problem(f"{first}; back in {entry.source}: {e}") from e

    def _interrupted(self, entry: Entry, target: str) -> None:
        """The server had finished before anybody compared: writers have been at the table since."""
        found = require_sound(self.main, entry.name) if target == "FERRITE" else []
        entry.message = "; ".join(
            [
                "moved, but interrupted before the checksums were compared; CHECK TABLE EXTENDED finds no fault",
                *found[:1],
            ]
        )
        self._end([entry], target)

    def _unlock(self) -> None:
        try:
            self.main.run("UNLOCK TABLES")
        except ConnectionLost:  # the lock went with it
            return

    # ---- tables that foreign keys connect ----

    def _linked(self, group: list[Entry], target: str) -> None:
        names = [entry.name for entry in group]
        self._begin(group, target)
        try:
            self._lock(names)
            guards.remove(self.main, names)
            self._reread(group)
            self._count(group)
            try:
                guards.install(self.main, names)
                points.reached("move.guarded")
                self.book.note_applied(group[0].group, applied(self.main))
                self._mark(group, journal.FROZEN)
            except Refused:
                guards.remove(self.main, names)
                raise
            points.reached("move.frozen")
            self._frozen(group, target)
        finally:
            self._unlock()

    def _reread(self, group: list[Entry]) -> None:
        """The definitions under the lock are what counts: someone may have altered a table since."""
        for entry in group:
            now = self.main.create_statement(entry.name)
            if now != entry.before:
                entry.original = now if entry.original == entry.before else entry.original
                entry.before, entry.foreign = now, list(Definition.parse(now).foreign)
                self.book.write([entry])
        names = {entry.name for entry in group}
        for entry in group:
            strangers = [x for x in (parent(clause, entry.name[0]) for clause in entry.foreign) if x not in names]
            for stranger in strangers:
                # One that does not exist is possible under foreign_key_checks=0, and stays so.
                if self.main.engine(stranger):
                    raise Problem(f"{label(entry.name)} refers to {label(stranger)} meanwhile: plan again")

    def _thaw(self, group: list[Entry], target: str) -> None:
        """Finish a group that was left frozen, or was complete but for its guards."""
        names = [entry.name for entry in group]
        try:
            self._lock(names)
            if group[0].state == journal.VERIFIED and group[0].target == target:
                self._release(group, target)
                return
            if group[0].state == journal.VERIFIED:
                # Guards may be gone, rows may have changed: it is moved, and can be moved back as any other.
                self._release(group, group[0].target)
                self._unlock()
                self._linked(group, target)
                return
            if guards.present(self.main, names) < len(names) * len(guards.EVENTS):
                self._unguarded(group, "guards have been removed")
            elif self.book.applied(group[0].group) not in (None, applied(self.main)):
                # Row events fire no triggers, and a replica that restarts applies them before anybody stops it.
                self._unguarded(group, "this replica has applied changes since, past the guards")
            self._frozen(group, target)
        finally:
            self._unlock()
            self.main.run("SET SESSION foreign_key_checks=0")

    def _unguarded(self, group: list[Entry], why: str) -> None:
        """Rows may have changed in spite of the guards: no comparison would mean anything, and the keys are checked."""
        say(f"  {why}: rows may have changed, so contents are not compared, and foreign keys are checked")
        for entry in group:
            entry.checksum, entry.rows, entry.message = None, None, f"not compared: {why}"
        guards.install(self.main, [entry.name for entry in group])
        self._mark(group, journal.FROZEN)
        self.main.run("SET SESSION foreign_key_checks=1")

    def _frozen(self, group: list[Entry], target: str) -> None:
        """Under lock and guards: to the target, or, if that fails, all the way to where it came from."""
        source = group[0].source
        try:
            self._drive(group, target)
            self._verify(group, target)
        except ConnectionLost:
            raise
        except Problem as e:
            say(f"  {e}")
            say(f"  going back to {source}")
            self._undo(group, source if source != target else group[0].target, str(e))
            raise
        self._release(group, target)

    def _undo(self, group: list[Entry], source: str, why: str) -> None:
        try:
            self._drive(group, source)
            self._verify(group, source)
        except ConnectionLost:
            raise
        except Problem as e:
            names = ", ".join(label(entry.name) for entry in group)
            raise Problem(
                f"{why}; and going back failed: {e}. Writes to these tables are refused until the cause is removed and "
                f"`convert --resume` or `back` has finished: {names}"
            ) from e
        for entry in group:
            entry.state = journal.VERIFIED
            entry.target = source
        self.book.write(group)
        guards.remove(self.main, [entry.name for entry in group])
        for entry in group:
            entry.state = journal.FAILED

    def _release(self, group: list[Entry], target: str) -> None:
        """Complete: no guard is needed any more."""
        self._mark([replace_target(entry, target) for entry in group], journal.VERIFIED)
        points.reached("move.verified")
        guards.remove(self.main, [entry.name for entry in group])
        self._end(group, target)

    def _mark(self, group: list[Entry], state: str) -> None:
        before = group[0].state
        for entry in group:
            entry.state = state
        try:
            self.book.write(group)
        except Refused:
            for entry in group:
                entry.state = before
            raise

    def _drive(self, group: list[Entry], target: str) -> None:
        """From any mixture of engines and foreign keys to one engine and all keys."""
        if any(self.main.engine(entry.name) != target for entry in group):
            for entry in group:
                keys = self._keys(entry.name)
                if keys:
                    drops = ", ".join(f"DROP FOREIGN KEY {constraint(x)}" for x in keys)
                    self.main.run(f"ALTER TABLE {full(entry.name)} {drops}")
                    points.reached("move.dropped")
            for entry in group:
                if self.main.engine(entry.name) != target:
                    self._alter(entry, target)
        for entry in group:
            there = {constraint(x) for x in self._keys(entry.name)}
            missing = [x for x in entry.foreign if constraint(x) not in there]
            if missing:
                self.main.run(f"ALTER TABLE {full(entry.name)} {', '.join('ADD ' + x for x in missing)}")
                points.reached("move.added")
            renamed = renamed_indexes(
                Definition.parse(entry.before), Definition.parse(self.main.create_statement(entry.name))
            )
            if renamed:
                self.main.run(
                    f"ALTER TABLE {full(entry.name)} {', '.join(f'RENAME INDEX {a} TO {b}' for a, b in renamed)}"
                )

    # ---- what is told ----

    def _failed(self, group: list[Entry], why: str) -> None:
        if why.startswith(f"error {PARENT_NEEDED}:"):
            names = {entry.name for entry in group}
            others = sorted(
                {label(child) for child, parent in links(self.main) if parent in names and child not in names}
            )
            why += f"; {', '.join(others)} refers to it meanwhile: plan again" if others else ""
        assert not self._unfinished(group), "a group with guards is unfinished"
        for entry in group:
            entry.state, entry.message = journal.FAILED, why
        self.book.write(group)
        say(f"  {', '.join(label(entry.name) for entry in group)}: not moved: {why}")

    @staticmethod
    def _tell(group: list[Entry], seconds: float) -> None:
        for entry in group:
            verified = (
                f", {entry.rows} rows, checksum {entry.checksum} on both sides" if entry.checksum is not None else ""
            )
            say(f"  {label(entry.name)}: {entry.target}{verified}" + (f"; {entry.message}" if entry.message else ""))
        say(f"  {size(sum(entry.bytes for entry in group))} in {duration(seconds)}")


def replace_target(entry: Entry, target: str) -> Entry:
    """The entry itself, with another target."""
    entry.target = target
    return entry


def alteration(entry: Entry, now: str, target: str, encrypted: bool, beside_writers: bool) -> str:
    """The ALTER TABLE that changes the engine, with what the way back restores.

    `encrypted`: Ferrite's database is. `beside_writers`: the server would let writers go on beside the copy (11.8), and repeat in it
    what they change from a log that keeps what a failed statement or a rollback has taken back.
    """
    sql = f"ALTER TABLE {full(entry.name)} ENGINE={target}"
    lock = ", LOCK=SHARED" if beside_writers else ""
    current = Definition.parse(now)
    if target == "FERRITE" and not encrypted and says_encrypted(current.options):
        return sql + " ENCRYPTED=DEFAULT" + lock
    if target != "InnoDB" or not entry.original:
        return sql + lock
    original = Definition.parse(entry.original)
    lost = [(x, original.option(x)) for x in RESTORED if original.option(x) and not current.option(x)]
    return sql + "".join(f" {name}={value}" for name, value in lost) + lock
