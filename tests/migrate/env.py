"""What a scenario is given: a private server with InnoDB tables, the program, and what it must not change.

A scenario is a function `scenario_NAME(env: Env)`; main.py finds them. It ends quietly or raises.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory
from migrate import kinds

DATABASE = "mig"
SMALL = ["--ferrite-buffer-pool-size=64M", "--innodb-buffer-pool-size=64M", "--innodb-flush-log-at-trx-commit=1"]
TOOL_SECONDS = 120


class Failed(Exception):
    """Something that must hold does not."""


def expect(condition: bool, what: str, seen: object = "") -> None:
    """Fail with `what` unless the condition holds."""
    if not condition:
        raise Failed(f"{what}: {seen}" if seen != "" else what)


class Ran:
    """What the program said."""

    def __init__(self, code: int, text: str) -> None:
        self.code, self.text = code, text


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Fail if it takes too long."""
    until = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < until, "waited too long")
        time.sleep(0.05)


def same(before: dict[tuple[str, str], object], after: dict[tuple[str, str], object], what: str) -> None:
    """Fail unless the two are equal, and say where they differ."""
    other = [
        f"{x}\n{str(before.get(x))[:1500]}\n{str(after.get(x))[:1500]}"
        for x in {*before, *after}
        if before.get(x) != after.get(x)
    ]
    expect(not other, what, "\n".join(other))


def uncounted(definitions: dict[tuple[str, str], object]) -> dict[tuple[str, str], object]:
    """Without AUTO_INCREMENT, which goes on where rows were written."""
    return {name: re.sub(r" AUTO_INCREMENT=\d+", "", repr(x)) for name, x in definitions.items()}


def quoted(name: tuple[str, str]) -> str:
    """Database and table in backticks."""
    return ".".join("`" + x.replace("`", "``") + "`" for x in name)


def _definition(cursor: Any, name: tuple[str, str]) -> tuple[str, list[str], str]:
    cursor.execute(f"SHOW CREATE TABLE {quoted(name)}")
    lines = str(cursor.fetchone()[1]).split("\n")
    end = next(i for i, line in enumerate(lines) if line.startswith(") ENGINE"))
    return lines[0], sorted(x.rstrip(",") for x in lines[1:end]), "\n".join(lines[end:])


def _rows(cursor: Any, name: tuple[str, str], is_table: bool) -> tuple[list[str], object]:
    """Sorted rows, and the server's checksum where it means something: computed columns are in the rows only."""
    cursor.execute(f"SELECT * FROM {quoted(name)}")
    rows = sorted(
        hashlib.sha256(repr(x).encode()).hexdigest() if len(repr(x)) > 2000 else repr(x) for x in cursor.fetchall()
    )
    if not is_table or any("GENERATED" in x or "USING HASH" in x for x in _definition(cursor, name)[1]):
        return rows, None
    cursor.execute(f"CHECKSUM TABLE {quoted(name)} EXTENDED")
    return rows, cursor.fetchone()[1]


class Env:
    """A server of its own, gone at the end."""

    def __init__(self, rounds: int, ci: bool, *options: str, plugin: bool = True) -> None:
        self.rounds, self.ci = rounds, ci
        chosen = engine("ferrite") if plugin else engine("innodb")
        settings = [x for x in SMALL if plugin or "ferrite" not in x]
        self.server = Server(
            find_places(), chosen, [*settings, "--default-storage-engine=InnoDB", *options], home_in_memory()
        )
        self.server.start()

    def close(self) -> None:
        """Stop the server and remove its files."""
        self.server.kill()
        self.server.remove()

    def restart(self) -> None:
        """As after a crash."""
        self.server.kill()
        self.server.start()

    # ---- SQL ----

    @contextlib.contextmanager
    def session(self, **keywords: Any) -> Iterator[Any]:
        """A connection with autocommit."""
        connection = self.server.connect(autocommit=True, read_timeout=TOOL_SECONDS, **keywords)
        try:
            yield connection
        finally:
            with contextlib.suppress(Exception):
                connection.close()

    def run(self, *statements: str, database: str | None = DATABASE) -> list[tuple[Any, ...]]:
        """The rows of the last of these statements."""
        rows: list[tuple[Any, ...]] = []
        with self.session(database=database) as connection, connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)
                rows = list(cursor.fetchall())
        return rows

    def error(self, sql: str) -> int:
        """The number of the error that a statement ends with; 0 for none."""
        try:
            self.run(sql)
        except Exception as e:
            return int(e.args[0])
        return 0

    # ---- tables ----

    def databases(self) -> None:
        """Empty ones."""
        made = [f"CREATE OR REPLACE DATABASE `{x}`" for x in (DATABASE, kinds.OTHER)]
        self.run("SET foreign_key_checks=0", *made, database=None)

    def make(self, tables: list[str]) -> None:
        """These kinds of tables."""
        abroad = [x.replace("{other}", kinds.OTHER) for x in kinds.ABROAD] if "abroad" in tables else []
        self.run(*abroad, *[sql for table in tables for sql in kinds.statements(table)])

    def tables(self) -> dict[tuple[str, str], str]:
        """Every table and its engine."""
        rows = self.run(
            "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE FROM information_schema.TABLES WHERE TABLE_TYPE <> 'VIEW' "
            f"AND TABLE_SCHEMA IN ('{DATABASE}', '{kinds.OTHER}')"
        )
        return {(r[0], r[1]): r[2] for r in rows}

    def definitions(self) -> dict[tuple[str, str], object]:
        """What SHOW CREATE TABLE says of every table, without the order of columns and keys: an index that a foreign key needs may move."""
        with self.session(database=DATABASE) as connection, connection.cursor() as cursor:
            return {name: _definition(cursor, name) for name in self.tables()}

    def contents(self) -> dict[tuple[str, str], object]:
        """All rows of every table, and of the views."""
        views = [
            (r[0], r[1])
            for r in self.run(
                f"SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA='{DATABASE}'"
            )
        ]
        tables = self.tables()
        with self.session(database=DATABASE) as connection, connection.cursor() as cursor:
            return {name: _rows(cursor, name, name in tables) for name in [*tables, *views]}

    def nothing_left(self) -> None:
        """No guard, no trial."""
        left = self.run(
            "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_NAME LIKE 'ferrite\\_migrate\\_%'"
        )
        expect(not left, "guards are left", left)
        left = self.run("SHOW DATABASES LIKE 'ferrite\\_migrate\\_trial'")
        expect(not left, "the trial database is left")

    # ---- the program ----

    def start(self, *words: str, user: str = "root", **environment: str) -> subprocess.Popen[str]:
        """Start the program, on this server unless the words name another; environment variables without their prefix."""
        here = [] if any(x.startswith("--host") for x in words) else [f"--socket={self.server.socket}"]
        command = [sys.executable, "-m", "ferrite_migrate", words[0], *here, f"--user={user}", *words[1:]]
        given = {
            **os.environ,
            **{f"FERRITE_MIGRATE_{name}": value for name, value in environment.items() if name != "MYSQL_PWD"},
        }
        given.pop("MYSQL_PWD", None)
        if "MYSQL_PWD" in environment:
            given["MYSQL_PWD"] = environment["MYSQL_PWD"]
        return subprocess.Popen(command, env=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def tool(self, *words: str, wanted: int | None = None, user: str = "root", **environment: str) -> Ran:
        """Run the program to its end."""
        child = self.start(*words, user=user, **environment)
        try:
            text, _ = child.communicate(timeout=TOOL_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            text, _ = child.communicate()
            raise Failed(f"{' '.join(words)} did not end in {TOOL_SECONDS} s:\n{text}") from None
        expect("Traceback" not in text, f"{' '.join(words)} died of its own fault", text)
        if wanted is not None:
            expect(
                child.returncode == wanted,
                f"{' '.join(words)} ended with {child.returncode}, not {wanted}",
                "\n" + text,
            )
        return Ran(child.returncode, text)
