"""A client that changes definitions all the time, and what must hold of its tables after a crash: a table is there as
the server and the engine both see it, or not there for both; a foreign key has its columns on both sides, and its rows
a parent."""

from __future__ import annotations

import threading
from random import Random

import pymysql

from lib.server import Server

DATABASE = "crashddl"
TABLES = tuple(f"shape{n}" for n in range(6))
_COLUMNS = "id INT AUTO_INCREMENT PRIMARY KEY, a INT, b VARCHAR(60), c MEDIUMTEXT, p INT, KEY by_a (a), KEY by_p (p)"
_CHANGES = (
    "ADD COLUMN d{n} BIGINT DEFAULT {n}",
    "ADD KEY by_b{n} (b)",
    "MODIFY b VARCHAR({n}0) NOT NULL DEFAULT ''",
    "DROP KEY by_a",
    "ADD KEY by_a (a)",
    "FORCE",
    "COMMENT = 'changed {n} times'",
)
_LINKS = (
    "ADD CONSTRAINT {c} FOREIGN KEY (p) REFERENCES {other} (id) ON DELETE {action} ON UPDATE {action}",
    "ADD CONSTRAINT {c} FOREIGN KEY (p) REFERENCES {other} (id) ON DELETE {action}, ADD COLUMN d{n} BIGINT DEFAULT {n}",
    "DROP FOREIGN KEY {c}",
    "DROP FOREIGN KEY {c}, ADD CONSTRAINT {c} FOREIGN KEY (p) REFERENCES {other} (id)",
    "RENAME COLUMN p TO q, RENAME COLUMN a TO p, RENAME COLUMN q TO a",
)
_ACTIONS = ("RESTRICT", "CASCADE", "SET NULL", "NO ACTION")
_EXPECTED = (1050, 1051, 1062, 1146, 1060, 1061, 1091, 1205, 1213, 1265, 1072, 1406)
"""Exists, is not there, duplicate or missing column or key, lock waits: part of a life at random."""
_FOREIGN = (1005, 1025, 1217, 1451, 1452, 1553, 1701, 1822, 1826, 1828, 1829, 1830, 1831, 1832, 1833, 1834, 1835)
"""Likewise, of foreign keys."""


def create_database(server: Server) -> None:
    """Empty at first."""
    connection = server.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
    connection.close()


def statement(rng: Random, engine: str) -> str:
    """One statement on one of the tables."""
    name, other = rng.sample(TABLES, 2)
    draw = rng.random()
    if draw < 0.2:
        return f"CREATE TABLE {name} ({_COLUMNS}) ENGINE={engine}"
    if draw < 0.25:
        return f"CREATE TABLE {name} (PRIMARY KEY (id)) ENGINE={engine} SELECT id, a, b, c FROM {other}"
    if draw < 0.35:
        return f"DROP TABLE {name}"
    if draw < 0.45:
        return f"RENAME TABLE {name} TO {other}"
    if draw < 0.5:
        return f"TRUNCATE TABLE {name}"
    if draw < 0.6:
        change = rng.choice(_LINKS).format(
            c=f"link{rng.randint(1, 5)}", other=other, n=rng.randint(1, 9), action=rng.choice(_ACTIONS)
        )
        return f"ALTER TABLE {name} {change}"
    if draw < 0.65:
        return f"DELETE FROM {name} WHERE id % {rng.randint(2, 9)} = 0"
    if draw < 0.68:
        return f"UPDATE {name} SET id = id + 1000 WHERE id = {rng.randint(1, 40)}"
    if draw < 0.72:
        return f"RENAME TABLE {name} TO swapped, {other} TO {name}, swapped TO {other}"
    if draw < 0.85:
        return f"ALTER TABLE {name} {rng.choice(_CHANGES).format(n=rng.randint(1, 9))}"
    parent = rng.choice(("NULL", "1", "2", str(rng.randint(1, 40))))
    text = f"REPEAT('b', {rng.randint(0, 9)}), REPEAT('c', {rng.choice((0, 50, 40_000))})"
    row = f"({rng.randint(1, 999)}, {text}, {parent})"
    return f"INSERT INTO {name} (a, b, c, p) VALUES {', '.join([row] * rng.randint(1, 40))}"


def run(server: Server, seed: int, stop: threading.Event) -> None:
    """Until the server is gone or the round ends; an unexpected error shows after the restart, or as a failed check."""
    rng = Random(seed)
    try:
        connection = server.connect(database=DATABASE, autocommit=True, read_timeout=60)
    except (pymysql.err.MySQLError, OSError):
        return
    with connection.cursor() as cursor:
        while not stop.is_set():
            try:
                cursor.execute(statement(rng, server.engine.name))
            except (pymysql.err.MySQLError, OSError) as error:
                code = error.args[0] if error.args else 0
                if code not in _EXPECTED + _FOREIGN:
                    return


def check(server: Server) -> list[str]:
    """What is wrong after a restart."""
    wrong: list[str] = []
    connection = server.connect(database=DATABASE, autocommit=True, read_timeout=300)
    with connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        there = {str(row[0]) for row in cursor.fetchall()}
        wrong += [f"{DATABASE}: a table {name} nobody made" for name in sorted(there - set(TABLES))]
        wrong += _foreign_faults(cursor, server.engine.name)
        for name in TABLES:
            try:
                wrong += _check_one(cursor, name, name in there, server.engine.name)
            except pymysql.err.MySQLError as error:
                wrong.append(f"{DATABASE}.{name}: {error}")
    connection.close()
    return wrong


def _foreign_faults(cursor: pymysql.cursors.Cursor, engine: str) -> list[str]:
    """Constraints whose columns are missing on one side. No client of ours ever removes a parent."""
    columns = "(SELECT 1 FROM information_schema.COLUMNS WHERE CONCAT(TABLE_SCHEMA, '/', TABLE_NAME) = {0} AND COLUMN_NAME = {1})"
    cursor.execute(
        f"SELECT ID, FOR_NAME, FOR_COL_NAME, REF_NAME, REF_COL_NAME FROM information_schema.{engine}_SYS_FOREIGN"
        f" JOIN information_schema.{engine}_SYS_FOREIGN_COLS USING (ID) WHERE FOR_NAME LIKE '{DATABASE}/%'"
        f" AND NOT (EXISTS {columns.format('FOR_NAME', 'FOR_COL_NAME')} AND EXISTS {columns.format('REF_NAME', 'REF_COL_NAME')})"
    )
    return [f"a foreign key without its columns: {row}" for row in cursor.fetchall()]


def _check_one(cursor: pymysql.cursors.Cursor, name: str, there: bool, engine: str) -> list[str]:
    if not there:
        # An orphan of the engine would be in the way.
        cursor.execute(f"CREATE TABLE {name} ({_COLUMNS}) ENGINE={engine}")
        cursor.execute(f"DROP TABLE {name}")
        return []
    cursor.execute(f"CHECK TABLE {name} EXTENDED")
    rows = cursor.fetchall()
    if [row[3] for row in rows] != ["OK"]:
        return [f"CHECK TABLE {DATABASE}.{name} EXTENDED: {rows}"]
    cursor.execute(f"SELECT COUNT(*) FROM {name}")
    return []
