"""What a scenario is given: a private server and the handles to use and to mistreat it.

A module of this folder holds scenarios on one theme: functions `scenario_NAME(env: Env)`. main.py finds and runs
them in the order of the file. A scenario tells one story that once went wrong; it ends quietly or raises (`expect`,
`equal` and whatever the client library raises). Its first docstring line says what must hold.

- All scenarios of a module share one server, started with the module's `OPTIONS` (a list, may be left out).
  A scenario that needs other options is marked `@options("--log-bin")` and gets a server of its own on an empty
  directory, and so does one marked `@options()`.
- Before each scenario the database `corners` is made anew; `env.session()` uses it.
- `@slow` keeps a scenario out of --ci. CI runs two modules at a time, in six minutes: use few rows, and measure no time by the wall alone.
- No statement is waited for longer than STATEMENT_SECONDS: a hang is a failure, and the server is then killed.
- A server that ended by itself is a failure of the scenario, whatever the scenario made of it.

    def scenario_truncate_beside_an_old_snapshot(env: Env) -> None:
        "A snapshot older than TRUNCATE is refused."

        def play(engine: str) -> list[object]:
            reader, other = env.session(), env.session()
            reader.run(f"CREATE TABLE t (a INT PRIMARY KEY) ENGINE={engine}")
            reader.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            other.run("TRUNCATE t")
            return [reader.answer("SELECT * FROM t")]

        env.same_as_innodb(play)
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory

STATEMENT_SECONDS = 60
DATABASE = "corners"
SMALL = ["--ferrite-buffer-pool-size=64M", "--innodb-buffer-pool-size=32M", "--skip-log-bin"]

Scenario = Callable[["Env"], None]


class Failed(Exception):
    """Something that must hold does not."""


def expect(condition: bool, what: str, seen: object = "") -> None:
    """Fail with `what` unless the condition holds."""
    if not condition:
        raise Failed(f"{what}: {seen}" if seen != "" else what)


def equal(seen: object, wanted: object, what: str) -> None:
    """Fail unless the two are equal."""
    expect(seen == wanted, what, f"{seen!r}, not {wanted!r}")


def options(*words: str) -> Callable[[Scenario], Scenario]:
    """A server of its own for this scenario, with these options."""

    def mark(scenario: Scenario) -> Scenario:
        scenario.own_options = list(words)  # type: ignore[attr-defined]
        return scenario

    return mark


def slow(scenario: Scenario) -> Scenario:
    """Not in --ci."""
    scenario.is_slow = True  # type: ignore[attr-defined]
    return scenario


class Running:
    """A statement that runs in the background."""

    def __init__(self, session: Session, sql: str) -> None:
        self.sql = sql
        self.seen: list[object] = []
        self.session = session
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        """A connection that is lost (the server was killed) leaves no answer: answer() says so."""
        with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.InterfaceError):
            self.seen.append(self.session.answer(self.sql))

    def waits(self, seconds: float = 0.5) -> bool:
        """True if it has not ended after so long."""
        self.thread.join(seconds)
        return self.thread.is_alive()

    def answer(self, seconds: float = STATEMENT_SECONDS) -> object:
        """Its answer, as Session.answer() gives it."""
        self.thread.join(seconds)
        expect(not self.thread.is_alive(), f"no end after {seconds} s", self.sql)
        expect(bool(self.seen), "the connection broke", self.sql)
        return self.seen[0]


class Session:
    """One connection, used by one thread at a time."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.id: int = connection.thread_id()

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement that must succeed; its rows."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def value(self, sql: str) -> Any:
        """First column of the first row."""
        return self.run(sql)[0][0]

    def changed(self, sql: str) -> int:
        """Run a statement; the number of affected rows."""
        with self.connection.cursor() as cursor:
            return int(cursor.execute(sql))

    def error(self, sql: str) -> int:
        """The error number; 0: it succeeded."""
        answer = self.answer(sql)
        return answer if isinstance(answer, int) else 0

    def answer(self, sql: str) -> list[tuple[Any, ...]] | int:
        """Rows, or the error number: what can be compared between engines. A lost connection is an exception."""
        try:
            return self.run(sql)
        except pymysql.err.OperationalError as e:
            if e.args[0] in (2006, 2013):
                raise
            return int(e.args[0])
        except pymysql.err.InterfaceError:
            raise
        except pymysql.err.MySQLError as e:
            return int(e.args[0])

    def warnings(self) -> list[tuple[Any, ...]]:
        """Level, number and text of each."""
        return self.run("SHOW WARNINGS")

    def start(self, sql: str) -> Running:
        """Run a statement in the background."""
        return Running(self, sql)

    def reset(self) -> None:
        """COM_RESET_CONNECTION, as connection pools send it."""
        self.connection._execute_command(0x1F, b"")
        self.connection._read_ok_packet()
        self.run("USE corners")

    def close(self) -> None:
        """The client goes away."""
        self.connection.close()


class Env:
    """A private server and what can be done to it."""

    seconds = 0.0
    """For scenarios that go on for as long as is wished (--time); 0: as short as they can be."""

    def __init__(self, server_options: list[str]) -> None:
        self.server = Server(find_places(), engine("ferrite"), [*SMALL, *server_options], home_in_memory())
        self.sessions: list[Session] = []
        self.down_on_purpose = False
        self.server.start()

    # ---- connections -----------------------------------------------------------------------

    def session(self, database: str | None = DATABASE, **keywords: object) -> Session:
        """A new connection, in autocommit mode; keywords go to PyMySQL."""
        settings: dict[str, object] = {"autocommit": True, "read_timeout": STATEMENT_SECONDS, **keywords}
        session = Session(self.server.connect(database=database, **settings))
        self.sessions.append(session)
        return session

    def close_sessions(self) -> None:
        """All clients go away."""
        for session in self.sessions:
            with contextlib.suppress(pymysql.err.Error):
                session.close()
        self.sessions.clear()

    # ---- the server ------------------------------------------------------------------------

    def stop(self) -> None:
        """Clean shutdown."""
        self.check_alive()
        self.close_sessions()
        self.down_on_purpose = True
        equal(self.server.stop(), 0, "exit status of a clean shutdown")

    def kill(self) -> None:
        """kill -9."""
        self.check_alive()
        self.down_on_purpose = True
        self.server.kill()
        self.close_sessions()

    def check_alive(self) -> None:
        """Fails if the server ended by itself."""
        expect(self.down_on_purpose or self.server.alive(), "the server ended by itself")

    def start(self, *more_options: str) -> None:
        """Start again, for this once with more options. ServerFailed if it does not."""
        kept = self.server.options
        self.server.options = [*kept, *more_options]
        try:
            self.server.start()
            self.down_on_purpose = False
        finally:
            self.server.options = kept

    def restart(self, *more_options: str) -> None:
        """Clean shutdown and start."""
        self.stop()
        self.start(*more_options)

    def crash(self, *more_options: str) -> None:
        """kill -9 and start."""
        self.kill()
        self.start(*more_options)

    @property
    def datadir(self) -> Path:
        """The data directory; Ferrite's files are in `#ferrite` below it."""
        return self.server.datadir

    def log(self) -> str:
        """The whole error log."""
        return self.server.error_log.read_text(errors="replace")

    def resident_bytes(self) -> int:
        """Memory of the server's process."""
        assert self.server.child
        status = Path(f"/proc/{self.server.child.pid}/status").read_text(encoding="ascii")
        return next(int(x.split()[1]) * 1024 for x in status.splitlines() if x.startswith("VmRSS:"))

    # ---- comparison and patience -----------------------------------------------------------

    def same_as_innodb(self, play: Callable[[str], list[object]]) -> list[object]:
        """`play(engine)` must give the same on both engines, each in an empty database. Returns InnoDB's."""
        seen = {}
        for name in ("InnoDB", "FERRITE"):
            self.fresh_database()
            seen[name] = play(name)
            self.close_sessions()
        for number, (wanted, got) in enumerate(zip(seen["InnoDB"], seen["FERRITE"], strict=True), 1):
            expect(wanted == got, f"answer {number} differs: InnoDB {wanted!r}, Ferrite", repr(got))
        return seen["InnoDB"]

    def runs(self, session: Session) -> None:
        """Waits until the session's statement has begun: a KILL QUERY that comes before it does nothing."""
        look = self.session(None)
        sql = f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {session.id} AND INFO IS NOT NULL"
        self.eventually("the statement runs", lambda: look.value(sql))
        self._forget(look)

    def blocks(self, running: Running) -> bool:
        """True once it waits for a row, False when it has ended; nobody else may wait for rows."""
        look = self.session(None)
        names = "'Innodb_row_lock_current_waits', 'Ferrite_row_lock_current_waits'"
        sql = f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})"
        until = time.monotonic() + STATEMENT_SECONDS
        try:
            while running.waits(0.005):
                if any(int(number) for _, number in look.run(sql)):
                    return True
                expect(time.monotonic() < until, "it neither ends nor waits", running.sql)
            return False
        finally:
            self._forget(look)

    def leave(self, session: Session) -> None:
        """The client goes away, and the server has seen it."""
        session.close()
        look = self.session(None)
        gone = f"SELECT COUNT(*) = 0 FROM information_schema.PROCESSLIST WHERE ID = {session.id}"
        self.eventually("the client is gone", lambda: look.value(gone))
        self._forget(look)

    def prepare(self, xid: str, *changes: str, before: str = "DO 0") -> None:
        """A client that leaves a prepared transaction behind."""
        session = self.session()
        for sql in (before, f"XA START '{xid}'", *changes, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            session.run(sql)
        self.leave(session)

    def _forget(self, session: Session) -> None:
        session.close()
        self.sessions.remove(session)

    def eventually(self, what: str, look: Callable[[], object], seconds: float = 60) -> Any:
        """The first true value of `look`; fails with `what` when there is none in time."""
        until = time.monotonic() + seconds
        while True:
            seen = look()
            if seen:
                return seen
            expect(time.monotonic() < until, f"never seen: {what}", seen)
            time.sleep(0.02)

    def fresh_database(self) -> None:
        """Drop and make the database `corners`."""
        session = self.session(None)
        session.run(f"DROP DATABASE IF EXISTS {DATABASE}")
        session.run(f"CREATE DATABASE {DATABASE}")
        self._forget(session)
