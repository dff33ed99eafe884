"""Plays a schedule on one server, and tells of each statement whether it was done, waits, or failed.

A statement runs in a thread of its own. It counts as waiting when the server says that as many statements wait for a row lock as
are not done, for a few looks in a row; so a wait costs milliseconds to see, not a time-out.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from lib.server import Server
from schedules.draw import KEYS, Act, Schedule

LOOK_SECONDS = 0.002
STEADY_LOOKS = 4
PATIENT_LOOKS = 40
CERTAIN_LOOKS = 400
PATIENCE_SECONDS = 20.0
DEADLOCK = 1213
WAITS = {
    "innodb": "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_ROW_LOCK_CURRENT_WAITS'",
    "ferrite": "SELECT COUNT(*) FROM information_schema.FERRITE_TRX WHERE TRX_STATE = 'LOCK WAIT'",
}
"""How many statements wait for a row lock now."""


LOCK_WAITS = (
    "SELECT r.trx_mysql_thread_id, b.trx_mysql_thread_id, l.lock_index, l.lock_data, l.lock_mode,"
    " CONCAT_WS(':', l.lock_space, l.lock_page, l.lock_rec)"
    " FROM information_schema.INNODB_LOCK_WAITS w"
    " JOIN information_schema.INNODB_TRX r ON r.trx_id = w.requesting_trx_id"
    " JOIN information_schema.INNODB_TRX b ON b.trx_id = w.blocking_trx_id"
    " JOIN information_schema.INNODB_LOCKS l ON l.lock_id = w.requested_lock_id"
)
"""Who waits for whom, and for which record."""
OUR_LOCK_WAITS = (
    "SELECT r.lock_thread_id, b.lock_thread_id, r.lock_index, r.lock_data, r.lock_mode, CONCAT(r.lock_index, ':', r.lock_data)"
    " FROM information_schema.FERRITE_LOCK_WAITS w"
    " JOIN information_schema.FERRITE_LOCKS r ON r.lock_id = w.requested_lock_id AND r.lock_trx_id = w.requesting_trx_id"
    " JOIN information_schema.FERRITE_LOCKS b ON b.lock_id = w.blocking_lock_id AND b.lock_trx_id = w.blocking_trx_id"
)
OUR_ROW_LOCKS = (
    "SELECT lock_thread_id, lock_data FROM information_schema.FERRITE_LOCKS"
    " WHERE lock_index NOT IN ('k', 'u') AND lock_mode LIKE 'X%' AND lock_mode NOT LIKE 'X,GAP%' AND lock_data LIKE '0x%'"
)
CACHE_SECONDS = 0.15
"""InnoDB's tables of information_schema are made anew after 0.1 s."""


@dataclass(frozen=True)
class Wait:
    """A session that waits for a record lock."""

    session: int
    holder: int | None
    """None in a deadlock: the others."""
    index: str
    record: str
    """Its place: space, page, and number in the page; for Ferrite index and key."""
    key: int | None
    """First column of the record; None: the supremum, or a row id."""
    inserts: bool = False
    """It waits for the gap before the record."""
    own_row: bool = False
    """Ferrite's: an entry of a secondary index, of which one of the two has the row."""


@dataclass
class Evidence:
    """What an engine says of its locks after a statement."""

    waits: list[Wait] = field(default_factory=list)
    cycle: list[Wait] = field(default_factory=list)
    """The waits of the latest deadlock, if the statement ended in one; InnoDB's only."""


class Stuck(RuntimeError):
    """A statement neither ends nor waits for a lock."""


@dataclass(frozen=True)
class Outcome:
    """What became of a statement."""

    word: str
    """done, waits, error, skipped."""
    detail: str = ""


class Session:
    """A connection with a thread that runs its statements."""

    def __init__(self, server: Server) -> None:
        self.connection: Any = server.connect(autocommit=True, read_timeout=120)
        self.work: SimpleQueue[str | None] = SimpleQueue()
        self.idle = threading.Event()
        self.idle.set()
        self.answer = Outcome("done")
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (sql := self.work.get()) is not None:
            self.answer = self._run(sql)
            self.idle.set()

    def _run(self, sql: str) -> Outcome:
        try:
            with self.connection.cursor() as cursor:
                affected = cursor.execute(sql)
                rows = sorted(cursor.fetchall(), key=repr) if cursor.description else affected
            return Outcome("done", str(rows))
        except self.connection.Error as error:
            return Outcome("error", str(error.args[0] if error.args else error))

    def start(self, sql: str) -> None:
        """Begins a statement."""
        self.idle.clear()
        self.work.put(sql)

    def run(self, sql: str) -> Outcome:
        """A statement that waits for nobody."""
        self.start(sql)
        if not self.idle.wait(PATIENCE_SECONDS):
            raise Stuck(sql)
        return self.answer

    def close(self) -> None:
        """The end."""
        self.work.put(None)
        with contextlib.suppress(Exception):
            self.connection._force_close()


def _first_number(data: str | None) -> int | None:
    first = (data or "").split(",")[0].strip()
    return int(first) if first.isdigit() else None


def _first_of_entry(index: str, data: str) -> int | None:
    """The first column, a number, of an entry's key in hexadecimal; one that can be NULL has a byte before it."""
    digits = data.removeprefix("0x")
    if index not in ("PRIMARY", "GEN_CLUST_INDEX", "id"):
        digits = digits.removeprefix("01")
    return int(digits[:8], 16) - (1 << 31) if digits[:2] in ("7f", "80") else None


def _cycle(status: str, connections: dict[int, int]) -> list[Wait]:
    """The waits in InnoDB's report of its latest deadlock."""
    report = status.partition("LATEST DETECTED DEADLOCK")[2].partition("WE ROLL BACK TRANSACTION")[0]
    waits = []
    for member in re.split(r"\*\*\* \(\d+\) TRANSACTION:", report)[1:]:
        thread = re.search(r"MariaDB thread id (\d+)", member)
        wait = re.search(
            r"WAITING FOR THIS LOCK TO BE GRANTED:\nRECORD LOCKS space id (\d+) page no (\d+) .*? index (\S+) of table"
            r".*\nRecord lock, heap no (\d+) .*\n 0: len (\d+); hex ([0-9a-f]+)",
            member,
        )
        if thread and wait:
            space, page, index, heap, length, digits = wait.groups()
            key = int(digits, 16) - (1 << 31) if length == "4" else None
            inserts = "insert intention waiting" in member
            waits.append(Wait(connections[int(thread[1])], None, index, f"{space}:{page}:{heap}", key, inserts))
    return waits


class Player:
    """One server and its sessions."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.waits = WAITS[server.engine.prefix]
        self.sessions = [Session(server) for _ in range(3)]
        self.monitor = Session(server)
        self.monitor.run("CREATE DATABASE IF NOT EXISTS s")
        for session in (*self.sessions, self.monitor):
            session.run("USE s")
            session.run(f"SET SESSION {server.engine.prefix}_lock_wait_timeout=100")
        self.kind = ""
        self.looks = STEADY_LOOKS
        self.evidence: list[Evidence] = []
        """By statement, when the locks are looked at patiently."""
        self.busy: set[int] = set()

    def close(self) -> None:
        """Stops the server."""
        for session in (*self.sessions, self.monitor):
            session.close()
        self.server.remove()

    @staticmethod
    def _snapshot_isolation(level: str) -> str:
        """With it (11.8's default) InnoDB does without semi-consistent reads, Ferrite does not: docs/compatibility.md,
        semi-consistent-snapshot-isolation."""
        return "OFF" if level in ("READ COMMITTED", "READ UNCOMMITTED") else "DEFAULT"

    def prepare(self, schedule: Schedule, level: str) -> None:
        """The table with its first rows; nothing open. A new table, so that no delete-marked record is left of the last one."""
        for session in self.sessions:
            session.run("ROLLBACK")
            session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            session.run(f"SET {self.server.engine.prefix}_snapshot_isolation = {self._snapshot_isolation(level)}")
        self.monitor.run("DROP TABLE IF EXISTS t")
        self.monitor.run(f"CREATE TABLE t ({schedule.kind.ddl}) ENGINE={self.server.engine.name}")
        rows = ", ".join(f"({n}, {n}, {n}, 0)" for n in KEYS)
        made = self.monitor.run(f"INSERT INTO t (id, k, u, v) VALUES {rows}")
        if made.word != "done":
            raise Stuck(f"first rows: {made}")
        self.busy.clear()
        self.evidence.clear()

    def act(self, act: Act) -> list[tuple[int, Outcome]]:
        """Runs one statement; every session whose state changed, with what became of it."""
        if act.session in self.busy:
            self.evidence += self.evidence[-1:]
            return [(act.session, Outcome("skipped"))]
        before = set(self.busy)
        self.sessions[act.session].start(act.sql)
        self.busy.add(act.session)
        self._until_quiet()
        found = []
        for number in sorted(before | {act.session}):
            if self.sessions[number].idle.is_set():
                self.busy.discard(number)
                found.append((number, self.sessions[number].answer))
            elif number == act.session:
                found.append((number, Outcome("waits")))
        if self.looks == PATIENT_LOOKS:
            innodb = self.server.engine.prefix == "innodb"
            self.evidence.append(self._look_at_locks(found) if innodb else self._look_at_our_locks())
        return found

    def _look_at_our_locks(self) -> Evidence:
        connections = {s.connection.thread_id(): n for n, s in enumerate(self.sessions)}
        evidence = Evidence()
        with self.monitor.connection.cursor() as cursor:
            cursor.execute(OUR_LOCK_WAITS)
            waits = cursor.fetchall()
            cursor.execute(OUR_ROW_LOCKS)
            rows = [(thread, data[2:]) for thread, data in cursor.fetchall()]
            for waiter, holder, index, data, mode, place in waits:
                key = _first_of_entry(index, data)
                own_row = index in ("k", "u") and any(
                    thread in (waiter, holder) and data.endswith(row) for thread, row in rows
                )
                evidence.waits.append(
                    Wait(connections[waiter], connections[holder], index, place, key, "INSERT" in mode, own_row)
                )
        return evidence

    def _look_at_locks(self, found: list[tuple[int, Outcome]]) -> Evidence:
        connections = {s.connection.thread_id(): n for n, s in enumerate(self.sessions)}
        evidence = Evidence()
        with self.monitor.connection.cursor() as cursor:
            if self.busy:
                time.sleep(CACHE_SECONDS)
                cursor.execute(LOCK_WAITS)
                for waiter, holder, index, data, mode, place in cursor.fetchall():
                    key = _first_number(data)
                    # Of the supremum there is only the gap; InnoDB does not say so.
                    gap = mode.endswith("GAP") or (data or "").startswith("supremum")
                    wait = Wait(connections[waiter], connections[holder], index, place, key, gap)
                    evidence.waits.append(wait)
            if any(outcome.detail == str(DEADLOCK) for _, outcome in found):
                cursor.execute("SHOW ENGINE INNODB STATUS")
                evidence.cycle = _cycle(cursor.fetchall()[0][2], connections)
        return evidence

    def _until_quiet(self) -> None:
        """Every statement is done or waits for a lock."""
        begun, steady = time.monotonic(), 0
        while time.monotonic() - begun < PATIENCE_SECONDS:
            running = [n for n in self.busy if not self.sessions[n].idle.is_set()]
            if not running:
                return
            steady = steady + 1 if self._waiting() == len(running) else 0
            if steady >= self.looks:
                return
            time.sleep(LOOK_SECONDS)
        raise Stuck("statements neither end nor wait for a lock")

    def _waiting(self) -> int:
        with self.monitor.connection.cursor() as cursor:
            cursor.execute(self.waits)
            return int(cursor.fetchall()[0][0])

    def settle(self) -> None:
        """Whatever is left open ends."""
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE_SECONDS:
            for number, session in enumerate(self.sessions):
                if session.idle.is_set():
                    session.run("ROLLBACK")
                    self.busy.discard(number)
            self._until_quiet()
            if all(s.idle.is_set() for s in self.sessions):
                return
        raise Stuck("sessions do not end")

    def rows(self) -> Outcome:
        """The table at the end."""
        return self.monitor.run("SELECT * FROM t IGNORE INDEX (k, u) ORDER BY id, v, k, u")
