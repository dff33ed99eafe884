"""Run one step on one side and write down everything the client can see of its answer."""

from __future__ import annotations

import contextlib
import re
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pymysql

from diff.step import Step
from lib.engines import Engine
from lib.server import Server, ServerFailed

BLOCK_WAIT = 0.35
"""Seconds after which a statement counts as waiting for a lock."""
LOST = (2006, 2013, 2055)
Connection = Any
"""A PyMySQL connection; its published types do not show the parts of a result that are compared here."""
ENGINE_WORD = re.compile(r"\b(innodb|ferrite|rocksdb|aria|myisam)\b", re.IGNORECASE)
LOCAL_FILE = re.compile(r"/tmp/[\w./-]+")


def mask(text: str) -> str:
    """Hide what is rightly different: the engine's name."""
    return ENGINE_WORD.sub("<ENGINE>", text)


@dataclass
class Answer:
    """What one side said."""

    kind: str
    """rows, ok, error, waits, crash, none."""
    rows: list[tuple[bytes | None, ...]] = field(default_factory=list)
    columns: list[tuple[object, ...]] = field(default_factory=list)
    affected: int = 0
    insert_id: int = 0
    info: str = ""
    code: int = 0
    message: str = ""
    warnings: list[tuple[str, ...]] = field(default_factory=list)
    ordered: bool = False

    def normal(self) -> tuple[object, ...]:
        """The part that is compared."""
        rows = self.rows if self.ordered else sorted(self.rows, key=repr)
        return (
            self.kind,
            rows,
            self.columns,
            self.affected,
            self.insert_id,
            self.info,
            self.code,
            self.message,
            self.warnings,
        )

    def brief(self) -> str:
        """For people."""
        if self.kind == "error":
            return f"error {self.code}: {self.message}{self._warned()}"
        if self.kind == "rows":
            shown = "\n".join("      " + _show_row(r) for r in self.rows[:12])
            more = f"\n      ... {len(self.rows)} rows" if len(self.rows) > 12 else ""
            return f"{len(self.rows)} rows{self._warned()}\n{shown}{more}"
        if self.kind == "ok":
            return f"ok, affected {self.affected}, insert id {self.insert_id} {self.info}{self._warned()}"
        return f"{self.kind} {self.message}"

    def _warned(self) -> str:
        return "".join(f"\n      {w}" for w in self.warnings)


def _show_row(row: tuple[bytes | None, ...]) -> str:
    cells = ("NULL" if c is None else c.decode("utf-8", "backslashreplace") for c in row)
    return " | ".join(c if len(c) < 60 else c[:50] + "..." for c in cells)


class Side:
    """One engine's server and its sessions."""

    def __init__(self, server: Server, engine: Engine) -> None:
        self.server = server
        self.engine = engine
        self.sessions: dict[int, Connection] = {}
        self.waiting: dict[int, _Waiting] = {}
        self.crashes = 0

    def reset(self, recreate: bool = True) -> None:
        """Fresh sessions and, usually, a fresh database."""
        for session in list(self.sessions):
            self._drop(session)
        self.waiting.clear()
        try:
            connection = self._revive()
            self._forget_prepared(connection)
            if recreate:
                connection.query("DROP DATABASE IF EXISTS d")
                connection.query("CREATE DATABASE d CHARACTER SET utf8mb4")
            connection.close()
        except pymysql.err.MySQLError as error:
            print(f"!!! {self.engine.name}: {error}; going on with an empty directory", flush=True)
            self.server = self.server.successor()
            self.server.start()
            self.reset(recreate)

    @staticmethod
    def _forget_prepared(connection: Connection) -> None:
        """Prepared transactions whose clients are gone: rolled back."""
        connection.query("XA RECOVER FORMAT='SQL'")
        for row in list(connection._result.rows):
            with contextlib.suppress(pymysql.err.MySQLError):  # 1402: it had been rolled back
                connection.query(f"XA ROLLBACK {row[3].decode()}")

    def _revive(self) -> Connection:
        """A connection to the server, which is started again if it died."""
        if self.server.alive():
            try:
                return self._open(None)
            except pymysql.err.MySQLError:
                self.server.kill()  # it is ending, or answers nobody
        try:
            self.server.start()
        except ServerFailed as error:
            print(
                f"!!! {self.engine.name} cannot be started again on its data; going on with an empty directory\n{error}",
                flush=True,
            )
            self.server = self.server.successor()
            self.server.start()
        return self._open(None)

    def settle(self) -> Answer:
        """Close the sessions, and wait for the server to be done with them: what is open is rolled back now."""
        for session in list(self.sessions):
            self._drop(session)
        try:
            connection = self._open(None)
            for _ in range(200):
                connection.query("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = 'd'")
                if connection._result.rows[0][0] == b"0":
                    break
                time.sleep(0.01)
            connection.close()
        except (OSError, pymysql.err.MySQLError) as error:
            return self._crashed(f"when the sessions closed: {error}")
        return Answer("ok")

    def _drop(self, session: int) -> None:
        with contextlib.suppress(Exception):
            self.sessions[session]._force_close()
        self.sessions.pop(session, None)

    def _open(self, database: str | None) -> Connection:
        return self.server.connect(database=database, use_unicode=False, conv={}, read_timeout=90)

    def session(self, number: int) -> Connection:
        """The connection of a session, opened at first use."""
        if number not in self.sessions:
            self.sessions[number] = self._open("d")
        return self.sessions[number]

    # -- one step

    def has_corrupt_table(self) -> bool:
        """What CHECK TABLE says of the tables that it can have now."""
        connection = self._revive()
        with connection.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 1")
            cursor.execute("SHOW FULL TABLES FROM d WHERE table_type = 'BASE TABLE'")
            names = [str(row[0]) for row in cursor.fetchall()]
            answers = []
            for name in names:
                cursor.execute(f"CHECK TABLE d.`{name}` EXTENDED")
                answers += [row[3] for row in cursor.fetchall()]
        connection.close()
        return "Corrupt" in answers

    def run(self, step: Step) -> Answer:
        """Execute and describe."""
        try:
            if step.kind == "close":
                return self.settle()
            if step.kind == "collect":
                return self._collect(step.session)
            if step.kind == "kill":
                return self._kill(step)
            if step.kind == "disconnect":
                return self._disconnect(step.session)
            if step.session in self.waiting:
                self._collect(step.session)
            if step.kind in ("block", "pair"):
                return self._run_blocking(step)
            return self._execute(step)
        except (OSError, ServerFailed, pymysql.err.InterfaceError) as error:
            return self._crashed(str(error))

    def _execute(self, step: Step) -> Answer:
        connection = self.session(step.session)
        if step.file is None:
            return self._query(connection, step, "")
        with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8", newline="") as handle:
            handle.write(step.file)
            handle.flush()
            return self._query(connection, step, handle.name)

    def _query(self, connection: Connection, step: Step, path: str) -> Answer:
        sql = step.render(self.engine.name, self.engine.prefix, path)
        try:
            connection.query(sql)
        except pymysql.err.MySQLError as error:
            code = int(error.args[0]) if error.args else 0
            if code in LOST:
                return self._crashed(str(error))
            message = LOCAL_FILE.sub("<FILE>", mask(str(error.args[1]) if len(error.args) > 1 else ""))
            return Answer("error", code=code, message=message, warnings=self._warnings(connection))
        return self._describe(connection, step)

    def _describe(self, connection: Connection, step: Step) -> Answer:
        result = connection._result
        warnings = self._warnings(connection) if result.warning_count else []
        if result.description is None:
            return Answer(
                "ok",
                affected=result.affected_rows,
                insert_id=result.insert_id or 0,
                info=mask((result.message or b"").decode("utf-8", "replace")),
                warnings=warnings,
            )
        columns: list[tuple[object, ...]] = [
            (f.name, f.type_code, f.length, f.scale, f.charsetnr) for f in result.fields
        ]
        if step.sql.startswith("SHOW"):
            columns = [(f.name, f.type_code) for f in result.fields]
        rows = (
            [tuple(_masked(c) for c in row) for row in result.rows]
            if step.sql.startswith(("SHOW", "CHECK", "OPT"))
            else result.rows
        )
        return Answer("rows", rows=list(rows), columns=columns, warnings=warnings, ordered=step.ordered)

    def _warnings(self, connection: Connection) -> list[tuple[str, ...]]:
        connection.query("SHOW WARNINGS")
        rows = connection._result.rows
        return [tuple(LOCAL_FILE.sub("<FILE>", mask(_text(c))) for c in row) for row in rows]

    def _crashed(self, message: str) -> Answer:
        """The connection is gone: say whether the server went with it, and bring it back."""
        self.crashes += 1
        if self.server.child is not None:
            with contextlib.suppress(Exception):
                self.server.child.wait(3)
        died = not self.server.alive()
        tail = self.server.log_tail(25) if died else ""
        if not died:
            self.server.kill()
        return Answer("crash", message=f"{'server died' if died else 'connection lost'}: {message}\n{tail}")

    # -- statements that wait

    def _run_blocking(self, step: Step) -> Answer:
        self.session(step.session)
        task = _Waiting(lambda: self._execute(step))
        if step.kind == "pair":
            return self._pair(step, task)
        if task.done.wait(BLOCK_WAIT):
            return task.answer()
        self.waiting[step.session] = task
        return Answer("waits")

    def _collect(self, session: int) -> Answer:
        task = self.waiting.pop(session, None)
        if task is None:
            return Answer("none")
        return task.answer() if task.done.wait(60) else Answer("waits", message="for more than 60 s")

    def _kill(self, step: Step) -> Answer:
        """KILL QUERY or KILL of the session, from a third connection."""
        connection = self._open("d")
        connection.query(f"{step.sql} {self.session(step.session).thread_id()}")
        connection.close()
        return Answer("ok")

    def _disconnect(self, session: int) -> Answer:
        """The client of a session goes away; the server is done with it on return."""
        number = self.session(session).thread_id()
        self._drop(session)
        self.waiting.pop(session, None)
        connection = self._open(None)
        for _ in range(500):
            connection.query(f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {number}")
            if connection._result.rows[0][0] == b"0":
                break
            time.sleep(0.01)
        connection.close()
        return Answer("ok")

    def _pair(self, step: Step, task: _Waiting) -> Answer:
        """Two statements that close a circle: one of them must fail; which one is the engine's choice."""
        if not task.done.wait(60):
            return Answer("waits", message="deadlock not found within 60 s")
        mine = task.answer()
        if mine.code:
            with contextlib.suppress(Exception):
                self.session(step.session).query("ROLLBACK")
        others = [self._collect(s) for s in list(self.waiting)]
        codes = sorted([mine.code, *(o.code for o in others)])
        return Answer("ok", message=f"codes {codes}")


class _Waiting:
    """A statement in its own thread."""

    def __init__(self, work: Callable[[], Answer]) -> None:
        self.done = threading.Event()
        self._answer = Answer("none")
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], Answer]) -> None:
        try:
            self._answer = work()
        except Exception as error:
            self._answer = Answer("crash", message=repr(error))
        self.done.set()

    def answer(self) -> Answer:
        """The answer, once done."""
        return self._answer


def _text(cell: object) -> str:
    return cell.decode("utf-8", "backslashreplace") if isinstance(cell, bytes) else str(cell)


def _masked(cell: bytes | None) -> bytes | None:
    return None if cell is None else mask(cell.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
