"""kill -9 at every step of statements that change tables with foreign keys: the server's definitions and the engine's
are those of before, or those of after, on both sides of each constraint."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import pymysql

from faults.shimmed import Failed, Shimmed, say
from lib.engines import engine
from lib.places import Places
from lib.server import home_in_memory

DATABASE = "steps"
OTHER = "steps2"
MOST_STEPS = 60
PARENT = "CREATE TABLE p (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=FERRITE"
CHILD = "CREATE TABLE c (id INT PRIMARY KEY, x INT, y INT, KEY (y), CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id) ON UPDATE CASCADE) ENGINE=FERRITE"
SETUP = (
    PARENT,
    CHILD,
    "CREATE TABLE d (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES d (id), FOREIGN KEY (id) REFERENCES c (id)) ENGINE=FERRITE",
    "SET foreign_key_checks=0",
    "CREATE TABLE w (x INT, FOREIGN KEY (x) REFERENCES later (id)) ENGINE=FERRITE",
    "SET foreign_key_checks=1",
    "INSERT INTO p VALUES (1, 1), (2, 2)",
    "INSERT INTO c VALUES (1, 1, 1), (2, 2, 2)",
    "INSERT INTO d VALUES (1, 1), (2, 1)",
    "CREATE TABLE busy (id INT PRIMARY KEY) ENGINE=FERRITE",
    "CREATE TABLE busier LIKE busy",
)
UNCHECKED = "SET STATEMENT foreign_key_checks=0 FOR "
STATEMENTS = (
    "CREATE TABLE later (id INT PRIMARY KEY) ENGINE=FERRITE",
    "DROP TABLE p",  # refused, after the server has logged it
    UNCHECKED + "DROP TABLE p",
    UNCHECKED + "CREATE OR REPLACE TABLE p (id INT PRIMARY KEY, z INT) ENGINE=FERRITE",
    UNCHECKED + "TRUNCATE TABLE p",
    # The server refuses to change the type of p.id, with and without foreign_key_checks (1833).
    UNCHECKED + "ALTER TABLE p MODIFY a BIGINT, ALGORITHM=COPY",
    UNCHECKED + "ALTER TABLE p DROP PRIMARY KEY, ALGORITHM=COPY",
    UNCHECKED + "ALTER TABLE p ENGINE=ARIA",
    UNCHECKED + "ALTER TABLE c ADD FOREIGN KEY (y) REFERENCES p (a), ALGORITHM=INPLACE",
    "CREATE TABLE e (x INT, FOREIGN KEY (x) REFERENCES p (a)) ENGINE=FERRITE",
    "CREATE OR REPLACE TABLE d (x INT, FOREIGN KEY (x) REFERENCES p (a)) ENGINE=FERRITE",
    "CREATE TABLE e (x INT, FOREIGN KEY (x) REFERENCES p (id)) ENGINE=FERRITE SELECT id AS x FROM p",
    "DROP TABLE d",
    "RENAME TABLE p TO q",
    "RENAME TABLE c TO e",
    "RENAME TABLE d TO steps2.d",
    "RENAME TABLE p TO q, c TO p, q TO c",
    "TRUNCATE TABLE d",
    "ALTER TABLE c DROP FOREIGN KEY f, ALGORITHM=INPLACE",
    "ALTER TABLE c ADD FOREIGN KEY (y) REFERENCES p (a)",
    "ALTER TABLE c RENAME COLUMN x TO z, ALGORITHM=INPLACE",
    "ALTER TABLE p RENAME COLUMN id TO k, ALGORITHM=INPLACE",
    "ALTER TABLE c RENAME COLUMN id TO k, RENAME TO e, ALGORITHM=INPLACE",
    "ALTER TABLE p ADD z INT FIRST, ALGORITHM=COPY",
    "ALTER TABLE c ADD z INT FIRST, ALGORITHM=COPY",
    "ALTER TABLE c ADD z INT FIRST, DROP FOREIGN KEY f, RENAME TO e, ALGORITHM=COPY",
    # Others refer to the table, and follow; the original is put aside, and the server's start forgets it.
    "ALTER TABLE p ADD z INT FIRST, RENAME TO q",
    "ALTER TABLE d ADD z INT FIRST, RENAME TO e",
    UNCHECKED + "ALTER TABLE c ADD z INT FIRST, RENAME TO e",
    "ALTER TABLE p ADD z INT FIRST, RENAME TO q, ALGORITHM=COPY",
    # The server renames no column of a foreign key by copy (1846).
    "ALTER TABLE p RENAME COLUMN a TO b, ADD z INT FIRST, RENAME TO q, ALGORITHM=COPY",
)
BRIEF = tuple(s for s in STATEMENTS if "INPLACE" in s)
# Killed also while a copying ALTER TABLE of another table is under way.
BESIDE = ("DROP TABLE p",)


class Steps:
    """One server, and how its definitions look."""

    def __init__(self, places: Places, shim: Path) -> None:
        options = [
            "--ferrite-buffer-pool-size=16M",
            "--innodb-buffer-pool-size=32M",
            "--log-bin",
            "--binlog-format=ROW",
        ]
        self.server = Shimmed(places, engine("ferrite"), options, home_in_memory())
        self.trigger = self.server.home / "trigger"
        self.server.environment = (f"LD_PRELOAD={shim}", f"FAULT_TRIGGER={self.trigger}")

    def run(self, *statements: str, database: str | None = DATABASE) -> list[tuple[Any, ...]]:
        """The last one's rows."""
        connection = self.server.connect(database=database, autocommit=True, read_timeout=60)
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def begin_beside(self) -> threading.Thread:
        """An ALTER TABLE of another table that copies, and waits for a row of a prepared transaction. A start comes to it after
        the statement that follows: another ALTER TABLE was before it, and leaves its place in the DDL log."""
        first, second = self.begin_alter("busy"), self.begin_alter("busier")
        self.run("XA ROLLBACK 'busy'")
        first.join()
        return second

    def begin_alter(self, table: str) -> threading.Thread:
        """ALTER TABLE in a thread of its own, waiting for the transaction that has the table's name."""
        self.run(f"XA START '{table}'", f"INSERT INTO {table} VALUES (1)", f"XA END '{table}'", f"XA PREPARE '{table}'")

        def alter() -> None:
            with contextlib.suppress(pymysql.err.MySQLError):  # its server is killed
                self.run(f"ALTER TABLE {table} FORCE, ALGORITHM=COPY")

        thread = threading.Thread(target=alter, daemon=True)
        thread.start()
        until = time.monotonic() + 60
        look = "SELECT 1 FROM information_schema.processlist WHERE state='Waiting for row lock' AND info LIKE"
        while not self.run(f"{look} 'ALTER TABLE {table} %'"):
            if time.monotonic() > until:
                raise Failed(f"ALTER TABLE {table} does not copy")
            time.sleep(0.02)
        return thread

    def reset(self) -> None:
        """The tables as every statement finds them."""
        for *_, name in self.run("XA RECOVER", database=None):
            self.run(f"XA ROLLBACK '{name if isinstance(name, str) else name.decode()}'", database=None)
        fresh = [f"CREATE OR REPLACE DATABASE {name}" for name in (DATABASE, OTHER)]
        self.run("SET foreign_key_checks=0", *fresh, database=None)
        self.run(*SETUP)

    def state(self) -> list[Any]:
        """All definitions, as both sides have them, and how many rows there are."""
        found: list[Any] = []
        for database in (DATABASE, OTHER):
            for (table,) in self.run(
                f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA='{database}' ORDER BY 1"
            ):
                found += self.run(f"SHOW CREATE TABLE {database}.{table}")
                found += self.run(f"SELECT '{table}', COUNT(*) FROM {database}.{table}")
        found += self.run("SELECT * FROM information_schema.FERRITE_SYS_FOREIGN ORDER BY ID")
        return found + self.run("SELECT * FROM information_schema.FERRITE_SYS_FOREIGN_COLS ORDER BY ID, POS")

    def faults(self, orphans: bool) -> list[str]:
        """Where the two sides disagree. `orphans`: the statement may leave rows without a parent (foreign_key_checks=0)."""
        wrong = []
        columns = {
            (f"{row[0]}/{row[1]}", row[2])
            for row in self.run(
                "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS"
                f" WHERE TABLE_SCHEMA IN ('{DATABASE}', '{OTHER}')"
            )
        }
        tables = {table for table, _ in columns}
        for child, own, parent, there in self.run(
            "SELECT FOR_NAME, FOR_COL_NAME, REF_NAME, REF_COL_NAME FROM information_schema.FERRITE_SYS_FOREIGN"
            " JOIN information_schema.FERRITE_SYS_FOREIGN_COLS USING (ID)"
        ):
            sides = ((child, own), (parent, there)) if parent in tables else ((child, own),)
            wrong += [f"{table} has no column {column}" for table, column in sides if (table, column) not in columns]
        for table in sorted(name.replace("/", ".") for name in tables):
            said = self.run(f"CHECK TABLE {table} EXTENDED")
            loud = [row for row in said if row[2].lower() != "note"]  # a missing parent is one
            loud = [row for row in loud if not (orphans and "a row has no parent" in row[3])]
            wrong += [f"CHECK TABLE {table}: {said}"] * ([row[3] for row in loud] != ["OK"])
        wrong += [f"{path} is left" for path in sorted(self.server.datadir.glob("steps*/#sql*"))]
        if "put table" in self.server.error_log.read_text(errors="replace"):
            wrong.append("the engine has a table that was put aside")
        for name in "cdepq":
            if f"{DATABASE}/{name}" not in tables:
                # An orphan of the engine would be in the way.
                create = f"CREATE TABLE {name} (a INT) ENGINE=FERRITE"
                self.run("SET foreign_key_checks=0", create, f"DROP TABLE {name}")
        return wrong

    def answered(self, statement: str) -> None:
        """Run it; a foreign key may refuse it."""
        with contextlib.suppress(pymysql.err.IntegrityError):
            self.run(statement)

    def killed(self, statement: str, step: int, when: str, beside: bool) -> bool:
        """Run it with a death at that step; false: it has fewer."""
        other = self.begin_beside() if beside else None
        self.trigger.write_text(f"{step:8} {when}", encoding="ascii")
        try:
            self.answered(statement)
        except pymysql.err.OperationalError:
            if self.trigger.exists():
                raise
        survived = self.trigger.exists()
        if survived:
            self.trigger.unlink()
            if other:
                self.server.kill()
        assert self.server.child
        if other or not survived:
            self.server.child.wait(60)
            self.server.start()
        if other:
            other.join()
            self.run("XA ROLLBACK 'busier'")
        return not survived


def _ends(steps: Steps, statement: str) -> list[list[Any]]:
    """The definitions that a death may leave: those of before and of after. The server does not tie the two halves of
    CREATE OR REPLACE together, with no engine: the table may be gone."""
    ends = []
    halves = [statement.split("(")[0].replace("CREATE OR REPLACE", "DROP")] if "OR REPLACE" in statement else []
    for statements in ((), halves, [statement]):
        steps.reset()
        for each in statements:
            steps.answered(each)
        ends.append(steps.state())
    return ends


def _story(steps: Steps, statement: str, beside: bool = False) -> int:
    """All steps of a statement; how many deaths."""
    ends = _ends(steps, statement)
    deaths = 0
    for step in range(1, MOST_STEPS):
        for when in "ba":
            steps.reset()
            if not steps.killed(statement, step, when, beside):
                return deaths
            deaths += 1
            place = f"{statement}{', beside ALTER TABLE' * beside}: killed {'before' if when == 'b' else 'after'} step {step}"
            now = steps.state()
            if now not in ends:
                raise Failed(f"{place}: neither before nor after: {now}\nafter: {ends[-1]}")
            wrong = steps.faults(statement.startswith(UNCHECKED))
            if wrong:
                raise Failed(f"{place}: {wrong}")
    raise Failed(f"{statement}: more than {MOST_STEPS} steps")


def run(places: Places, shim: Path, brief: bool, part: str) -> None:
    """Every step of every statement that has `part` in it."""
    steps = Steps(places, shim)
    stories = [(s, False) for s in (BRIEF if brief else STATEMENTS)] + [(s, True) for s in BESIDE]
    try:
        steps.server.start()
        deaths = sum(_story(steps, statement, beside) for statement, beside in stories if part in statement)
        say(f"kill -9 at every step of DDL: {deaths} deaths, definitions are whole")
    finally:
        steps.server.remove()
