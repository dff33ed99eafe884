"""Sessions of one server, under settings on which no statement of this program depends by chance.

A move has two: `main` locks and alters tables, `side` writes the journal and watches `main`. Only one program at a time works on
a server: `main` holds the user lock `ferrite_migrate` as long as the server runs anything for it, also when its client has died.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pymysql

from ferrite_migrate.errors import LOST, ConnectionLost, Problem, Refused
from ferrite_migrate.sql import Name, full, literal, quoted

USER_LOCK = "ferrite_migrate"
SERIES = ("10.11.", "11.8.")
# The time zone stays the server's: ALTER TABLE computes generated columns anew, and those that read a TIMESTAMP depend on it.
SETTINGS = (
    "SET NAMES utf8mb4",
    # Some answers can be known by their words alone.
    "SET SESSION lc_messages='en_US'",
    # Values that a table has are copied as they are, and no engine takes another's place in silence.
    "SET SESSION sql_mode='NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION'",
    "SET SESSION foreign_key_checks=0, check_constraint_checks=0, sql_quote_show_create=1, max_statement_time=0",
    # The side session says nothing while an ALTER TABLE runs for hours.
    "SET SESSION wait_timeout=31536000, net_read_timeout=3600, net_write_timeout=3600, autocommit=1",
    "SET SESSION TRANSACTION READ WRITE",
)
# A table that InnoDB once took in non-strict mode must come back, too.
LENIENT = "SET SESSION innodb_strict_mode=0"


@dataclass
class Login:
    """How to reach the server."""

    host: str = ""
    port: int = 3306
    socket: str = ""
    user: str = ""
    password: str = ""
    defaults_file: str = ""
    ssl_ca: str = ""
    timeout_seconds: int = 10
    settings: list[str] = field(default_factory=list)

    def keywords(self) -> dict[str, Any]:
        """For PyMySQL. What is not given may stand in the option file."""
        words: dict[str, Any] = {"charset": "utf8mb4", "autocommit": True, "connect_timeout": self.timeout_seconds}
        given = {"host": self.host, "user": self.user, "password": self.password, "unix_socket": self.socket}
        words.update({name: value for name, value in given.items() if value})
        if self.defaults_file:
            words["read_default_file"] = self.defaults_file
        if self.ssl_ca:
            words["ssl"] = {"ca": self.ssl_ca}
        if self.host:
            words["port"] = self.port
        return words

    def place(self) -> str:
        """Where it goes, for messages."""
        return self.socket or (f"{self.host}:{self.port}" if self.host else self.defaults_file or "localhost")


class Session:
    """One connection. Its statements answer with rows or raise `Refused` or `ConnectionLost`."""

    def __init__(self, login: Login) -> None:
        try:
            self.connection = pymysql.connect(**login.keywords())
        except (pymysql.MySQLError, OSError) as e:
            words = e.args[1] if len(e.args) > 1 else e
            raise ConnectionLost(
                f"cannot connect to {login.place()} as {login.user or 'the default user'}: {words}"
            ) from e
        # Before the modes: `ferrite_replace_engines` takes NO_ENGINE_SUBSTITUTION from a session that has an engine enforced.
        if self.value("SELECT @@enforce_storage_engine"):
            self.run("SET SESSION enforce_storage_engine=NULL")
        for sql in (*SETTINGS, *login.settings):
            self.run(sql)
        with contextlib.suppress(Refused):  # a server without InnoDB does not know it
            self.run(LENIENT)
        self.id = int(self.value("SELECT CONNECTION_ID()"))

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except pymysql.MySQLError as e:
            code = e.args[0] if e.args and isinstance(e.args[0], int) else 0
            words = str(e.args[1] if len(e.args) > 1 else e)
            if code in LOST or isinstance(e, pymysql.InterfaceError):
                raise ConnectionLost(f"the connection to the server is lost ({words})") from e
            raise Refused(code, words, self._reasons(code)) from e
        except OSError as e:
            raise ConnectionLost(f"the connection to the server is lost ({e})") from e

    def _reasons(self, code: int) -> list[str]:
        with contextlib.suppress(Problem, pymysql.MySQLError):
            return [f"{text} ({number})" for number, text in self.warnings() if number != code]
        return []

    def warnings(self) -> list[tuple[int, str]]:
        """Number and text of the last statement's warnings."""
        with self.connection.cursor() as cursor:
            cursor.execute("SHOW WARNINGS")
            return [(int(row[1]), str(row[2])) for row in cursor.fetchall()]

    def value(self, sql: str) -> Any:
        """The first column of the first row; None if there is none."""
        rows = self.run(sql)
        return rows[0][0] if rows else None

    def variable(self, name: str) -> str:
        """A global variable; empty if the server does not have it."""
        rows = self.run(f"SHOW GLOBAL VARIABLES LIKE {literal(name)}")
        return str(rows[0][1]) if rows else ""

    def copies_beside_writers(self) -> bool:
        """An ALTER TABLE that copies lets writers go on unless it says LOCK=SHARED: from 11.2 on."""
        major, minor = str(self.value("SELECT VERSION()")).split(".")[:2]
        return (int(major), int(minor)) >= (11, 2)

    def create_statement(self, name: Name) -> str:
        """What SHOW CREATE TABLE says; backticks in the names of foreign keys, which it shows as they are, are doubled."""
        sql = str(self.run(f"SHOW CREATE TABLE {full(name)}")[0][1])
        if "FOREIGN KEY" in sql:
            where = f"CONSTRAINT_SCHEMA={literal(name[0])} AND TABLE_NAME={literal(name[1])}"
            for (key,) in self.run(
                f"SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE {where}"
            ):
                if "`" in key:
                    sql = sql.replace(f"CONSTRAINT `{key}` FOREIGN KEY", f"CONSTRAINT {quoted(key)} FOREIGN KEY")
        return sql

    def engine(self, name: Name) -> str:
        """The engine of a table; empty if there is no such table."""
        where = f"TABLE_SCHEMA={literal(name[0])} AND TABLE_NAME={literal(name[1])}"
        return str(self.value(f"SELECT ENGINE FROM information_schema.TABLES WHERE {where}") or "")

    @contextlib.contextmanager
    def unlogged(self) -> Iterator[None]:
        """What concerns this server alone is not in the binary log."""
        logged = self.variable("log_bin") == "ON" and bool(self.value("SELECT @@SESSION.sql_log_bin"))
        if logged:
            self.run("SET SESSION sql_log_bin=0")
        try:
            yield
        finally:
            if logged:
                self.run("SET SESSION sql_log_bin=1")

    def close(self) -> None:
        """Leave."""
        with contextlib.suppress(pymysql.MySQLError, OSError):
            self.connection.close()


@contextlib.contextmanager
def sessions(login: Login, number: int = 2) -> Iterator[list[Session]]:
    """So many sessions, closed at the end."""
    opened: list[Session] = []
    try:
        for _ in range(number):
            opened.append(Session(login))
        yield opened
    finally:
        for session in opened:
            session.close()


def require_engine(session: Session, engine: str) -> None:
    """The server is one of those that Ferrite is built for, and has the engine."""
    version = str(session.value("SELECT VERSION()"))
    if "MariaDB" not in version or not version.startswith(SERIES):
        raise Problem(f"the server is {version}; Ferrite is for MariaDB 10.11 and 11.8")
    sql = f"SELECT SUPPORT FROM information_schema.ENGINES WHERE ENGINE={literal(engine)}"
    if session.value(sql) not in ("YES", "DEFAULT"):
        how = (
            ". Load it with plugin_load_add=ha_ferrite.so in the option file, or INSTALL SONAME 'ha_ferrite' (the file belongs into "
            f"{session.variable('plugin_dir')}). What would be refused can be seen without it: mariadb-dump --no-data, then check --dump"
            if engine == "FERRITE"
            else ""
        )
        raise Problem(f"the server has no engine {engine}{how}")


def take_turn(
    session: Session, patient: bool, tell: Callable[[str], None], stopped: Callable[[], bool] = lambda: False
) -> None:
    """Be the only one of this kind on the server; `patient` waits for what another, perhaps dead, still has running there."""
    told = False
    while not session.value(f"SELECT GET_LOCK('{USER_LOCK}', {2 if patient else 0})"):
        holder = session.value(f"SELECT IS_USED_LOCK('{USER_LOCK}')")
        if holder is None:
            continue
        rows = session.run(f"SELECT IFNULL(INFO, STATE) FROM information_schema.PROCESSLIST WHERE ID={int(holder)}")
        doing = f"connection {holder}" + (f", which runs: {rows[0][0]}" if rows and rows[0][0] else "")
        if not patient:
            raise Problem(
                f"another ferrite-migrate works on this server ({doing}); if it is dead, --resume waits for what it left running"
            )
        if not told:
            tell(f"waiting for another ferrite-migrate on this server ({doing})")
        told = True
        if stopped():
            raise Problem("stopped")
