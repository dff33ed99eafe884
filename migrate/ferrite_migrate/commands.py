"""What each command does, from the first look at the server to the last line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from ferrite_migrate import check as checking
from ferrite_migrate import conditions, dump, journal, points
from ferrite_migrate.errors import Problem
from ferrite_migrate.journal import Entry, Journal
from ferrite_migrate.move import Mover, Settings
from ferrite_migrate.progress import duration, say, size
from ferrite_migrate.server import Login, Session, require_engine, sessions, take_turn
from ferrite_migrate.sql import label
from ferrite_migrate.tables import Table, Wanted, find, find_wanted, groups, links
from ferrite_migrate.throttle import Throttle

RATE_BYTES = 20e6
"""Bytes per second of an ALTER TABLE with verification, where nothing has been measured."""
LEAST_MEASURED_BYTES = 16 << 20


class Stoppable(Protocol):
    """Whether the user wants an end, and how to end the statement that runs."""

    kill: Callable[[], None]

    def __call__(self) -> bool: ...


def measured_rate(entries: list[Entry]) -> float:
    """Bytes per second of the moves that the journal knows; a usual figure if they are too small to tell."""
    done = [x for x in entries if x.state == journal.MOVED and x.seconds]
    per_group = {x.group: x.seconds or 0.0 for x in done}
    total, seconds = sum(x.bytes for x in done), sum(per_group.values())
    return total / seconds if total >= LEAST_MEASURED_BYTES and seconds > 0 else RATE_BYTES


def check(login: Login, wanted: Wanted, rate: float, allow_unencrypted: bool, file: str | None) -> bool:
    """Say what would be moved. True if nothing is refused."""
    with sessions(login, 1) as (session,):
        require_engine(session, "FERRITE")
        conditions.require_alone(session)
        contents = dump.load(session, _lines(file)) if file else None
        conditions.require_privileges(session, [], moving=False)
        conditions.require_unlogged(session)
        made = checking.plan(session, wanted, "InnoDB", "FERRITE", allow_unencrypted)
        rate = rate or measured_rate(Journal(session).read())
        if contents:
            _take_sizes(made, contents)
        checking.show(made, rate)
        if contents:
            for what, why in contents.refused.items():
                say(f"{what}: refused; its definition cannot be loaded: {why}")
        else:
            _show_binary_log(session)
        return made.refused() == 0 and not (contents and contents.refused)


def _lines(file: str) -> Iterator[str]:
    """The lines of a file or of stdin; rows may hold any bytes."""
    if file != "-" and not Path(file).is_file():
        raise Problem(f"there is no file {file}")
    with sys.stdin.buffer if file == "-" else open(file, "rb") as stream:
        for line in stream:
            yield line.decode("utf-8", "surrogateescape")


def _take_sizes(made: checking.Plan, contents: dump.Contents) -> None:
    """The tables are empty here; the length of their INSERT statements says how large they are."""
    made.groups = [[replace(t, bytes=contents.bytes.get(t.name, 0)) for t in group] for group in made.groups]


def _show_binary_log(session: Session) -> None:
    if session.variable("log_bin") == "ON":
        say(
            "The binary log is enabled: convert with --skip-log-bin (replicas by themselves, first) or --log-bin (replicas have the plugin)."
        )


def status(login: Login) -> bool:
    """Show the journal. False if something is unfinished or failed."""
    with sessions(login, 1) as (session,):
        entries = Journal(session).read()
        for entry in entries:
            time = f", {duration(entry.seconds)}" if entry.seconds else ""
            checksum = f", {entry.rows} rows, checksum {entry.checksum}" if entry.checksum is not None else ""
            now = session.engine(entry.name) or "gone"
            say(f"{label(entry.name)}: {entry.state} ({entry.source} to {entry.target}), now {now}{checksum}{time}")
            if entry.message:
                say(f"    {entry.message}")
            if entry.state == journal.FROZEN:
                say("    writes are refused until convert --resume or back has finished")
            if entry.state == journal.VERIFIED:
                say("    complete, but writes can be refused until convert --resume or back has taken the guards away")
        if not entries:
            say("no table has been moved on this server")
        return not any(x.state in (*journal.UNFINISHED, journal.FAILED) for x in entries)


def forget(login: Login) -> bool:
    """Drop the journal: the way back is then an ALTER TABLE by hand."""
    with sessions(login, 1) as (session,):
        take_turn(session, False, say)
        book = Journal(session)
        entries = book.read()
        unfinished = [label(x.name) for x in entries if x.state in journal.UNFINISHED]
        if unfinished:
            raise Problem(f"unfinished: {', '.join(unfinished)}; convert --resume or back first")
        if entries:
            book.forget()
        say(f"{len(entries)} entries forgotten")
        return True


@dataclass
class Job:
    """`convert` or `back`, with everything that the user has decided."""

    login: Login
    wanted: Wanted
    settings: Settings
    throttle: Throttle
    stop: Stoppable
    rate: float
    allow_unencrypted: bool
    space_checked: bool
    log: bool | None

    @contextmanager
    def _ready(self, patient: bool) -> Iterator[tuple[Session, Session, Journal]]:
        """Sessions and journal, this program's turn taken, nothing written yet."""
        with sessions(self.login) as (main, side):
            require_engine(main, "FERRITE")
            require_engine(main, "InnoDB")
            conditions.require_alone(main)
            take_turn(main, patient, say, self.stop)
            conditions.require_privileges(main, [], moving=True)
            conditions.require_unlogged(side)
            self.stop.kill = lambda: self._kill(main.id)
            yield main, side, Journal(side)

    def _kill(self, number: int) -> None:
        with sessions(self.login, 1) as (session,):
            session.run(f"KILL QUERY {number}")

    def convert(self, resume: bool) -> bool:
        """To Ferrite. False if something was refused or not moved."""
        with self._ready(resume) as (main, side, book):
            entries = book.read()
            unfinished = [x for x in entries if x.state in journal.UNFINISHED]
            if unfinished and not resume:
                raise Problem(
                    f"an earlier run did not finish {', '.join(label(x.name) for x in unfinished)}: give --resume, or use back"
                )
            self.rate = self.rate or measured_rate(entries)
            if resume:
                return self._resume(main, side, book, entries)
            made = checking.plan(main, self.wanted, "InnoDB", "FERRITE", self.allow_unencrypted)
            checking.show(made, self.rate)
            first = max((x.group for x in entries), default=0) + 1
            plan = [[_planned(table, first + i) for table in group] for i, group in enumerate(made.movable())]
            return self._begin(main, book, plan, entries, "FERRITE") and made.refused() == 0

    def _resume(self, main: Session, side: Session, book: Journal, entries: list[Entry]) -> bool:
        wanted = [x for x in entries if x.state in journal.UNFINISHED or x.state == journal.PLANNED]
        if not wanted:
            say("nothing is unfinished")
            return True
        known = {x.name for x in find(side)}
        # Of a frozen group nothing may be missing: guards and foreign keys of the others are to come right.
        gone = [x for x in wanted if x.state == journal.WORKING and x.name not in known]
        wanted = [x for x in wanted if x.name in known or x.state in (journal.FROZEN, journal.VERIFIED)]
        if gone:
            say(f"gone since, and left out: {', '.join(label(x.name) for x in gone)}")
            book.open()
            book.write([replace(x, state=journal.FAILED, message="the table is gone") for x in gone])
        return self._begin(main, book, _by_group(wanted), entries, "FERRITE") and not gone

    def back(self) -> bool:
        """To InnoDB: what is unfinished first, then what was asked for, or everything that was converted."""
        with self._ready(True) as (main, side, book):
            entries = book.read()
            self.rate = self.rate or measured_rate(entries)
            unfinished = [x for x in entries if x.state in journal.UNFINISHED]
            if unfinished:
                say(f"unfinished, first: {', '.join(label(x.name) for x in unfinished)}")
            if not self._begin(main, book, _by_group(unfinished), entries, "InnoDB"):
                return False
            plan, complete = self._plan_back(main, book.read())
            return self._begin(main, book, plan, book.read(), "InnoDB") and complete

    def _plan_back(self, main: Session, entries: list[Entry]) -> tuple[list[list[Entry]], bool]:
        recorded = {x.name: x for x in entries if x.original}
        everything = {x.name: x for x in find(main) if x.engine == "FERRITE"}
        if self.wanted.databases or self.wanted.tables:
            names = [x.name for x in find_wanted(main, self.wanted) if x.name in everything]
        else:
            names = [x for x in recorded if x in everything]
        asked = set(names)
        last = max((x.group for x in entries), default=0)
        pairs = [(a, b) for a, b in links(main) if a in everything and b in everything]
        plan: list[list[Entry]] = []
        complete = True
        for group in groups(names, pairs):
            outside = [x for x in group if x not in asked]
            if outside and not self.wanted.connected:
                complete = False
                say(
                    f"{', '.join(map(label, group))}: refused; connected with {', '.join(map(label, outside))}: name them, or give --connected"
                )
                continue
            number = last + len(plan) + 1
            plan.append([self._returning(everything[x], recorded.get(x), number) for x in group])
        return plan, complete

    @staticmethod
    def _returning(table: Table, known: Entry | None, group: int) -> Entry:
        original = known.original if known else ""
        return Entry(table.name, group, journal.PLANNED, "FERRITE", "InnoDB", original, bytes=table.bytes)

    def _begin(self, main: Session, book: Journal, plan: list[list[Entry]], entries: list[Entry], target: str) -> bool:
        """Everything is checked before anything is written."""
        if not plan:
            return True
        names = {x.name for group in plan for x in group}
        linked = any(child in names for child, _ in links(main)) or any(x.foreign for group in plan for x in group)
        conditions.require_privileges(main, [[x.name for x in group] for group in plan], moving=True)
        conditions.require_flush(main, book.flush or target == "InnoDB")
        conditions.require_replication(main, linked, self.log, replicas_running=False)
        conditions.require_space(main, target, max(sum(x.bytes for x in group) for group in plan), self.space_checked)
        book.open()
        if target == "FERRITE" and all(x.state == journal.PLANNED for group in plan for x in group):
            book.plan([x for group in plan for x in group])
        points.reached("move.planned")
        return self._run(main, book, plan, target)

    def _run(self, main: Session, book: Journal, plan: list[list[Entry]], target: str) -> bool:
        mover = Mover(self.login, main, book, replace(self.settings, bytes_per_second=self.rate), self.stop)
        left, good = sum(x.bytes for group in plan for x in group), True
        for number, group in enumerate(plan):
            if not self.stop():
                self.throttle.wait(main, number == 0, self.stop, say)
            if self.stop() or self.throttle.time_is_up():
                say(f"stopped; {len(plan) - number} of {len(plan)} groups are left: --resume goes on")
                return False
            conditions.require_space(main, target, sum(x.bytes for x in group), self.space_checked)
            names = ", ".join(label(x.name) for x in group)
            say(
                f"[{number + 1}/{len(plan)}] {names}: {size(sum(x.bytes for x in group))} of {size(left)}, about {duration(left / self.rate)} left"
            )
            good = mover.move(group, target) and good
            left -= sum(x.bytes for x in group)
        say("done" if good else "done, except for what was not moved")
        return good


def _planned(table: Table, group: int) -> Entry:
    return Entry(table.name, group, journal.PLANNED, table.engine, "FERRITE", bytes=table.bytes)


def _by_group(entries: list[Entry]) -> list[list[Entry]]:
    found: dict[int, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.group, []).append(entry)
    return list(found.values())
