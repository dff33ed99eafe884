"""Features that meet: XA, temporary tables, out-of-line values, DDL between statements, triggers, KILL, three sessions.

A scene is a short story of up to three sessions in lock-step; each begins from the same rows and leaves nothing open.
Only what both engines promise alike is asked: rows are locked by their primary key, queues are first come, first served.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from diff.program import CLOCK
from diff.step import Step

SESSIONS = (0, 1, 2)
ROWS = 6
PAGE_DATA = 16344
"""Bytes of a value that one page out of line holds."""
SIZES = (0, 1, 255, 256, 767, 768, 769, 1023, 1024, 1100, 2000, 3999, 4000, 6999, 7000, 7001, 8000, 8191, 8192) + (
    PAGE_DATA - 1,
    PAGE_DATA,
    PAGE_DATA + 1,
    2 * PAGE_DATA,
    2 * PAGE_DATA + 1,
    65535,
    65536,
    200000,
)
TABLE = (
    "CREATE TABLE {name} (id INT PRIMARY KEY, u INT, k INT, a LONGTEXT, b LONGBLOB, UNIQUE KEY (u), KEY (k), "
    "KEY (a(40))) ENGINE={{E}}{options}"
)
SHOWN = "id, u, k, LENGTH(a), MD5(a), LENGTH(b), MD5(b)"
THEMES = ("crosses_xa", "crosses_values", "crosses_temporary", "crosses_ddl", "crosses_waits", "crosses_triggers")


class Crosses:
    """Draws scenes of one theme."""

    def __init__(self, theme: str, seed: int) -> None:
        self.theme = theme
        self.rng = Random(f"{seed}:{theme}")
        self.steps: list[Step] = []
        self.xids = 0
        self.failing_scenes = True

    def build(self, count: int) -> list[Step]:
        """About count steps."""
        for session in SESSIONS:
            self.settings(session, setup=True)
        options = " PARTITION BY HASH (id) PARTITIONS 3" if self.rng.random() < 0.3 else ""
        ddl = TABLE.format(name="x", options=options)
        self.say(0, ddl.replace("UNIQUE KEY (u)", "KEY (u)") if options else ddl, setup=True)
        self.say(0, TABLE.format(name="y", options=""), setup=True)
        if self.theme == "crosses_triggers":
            self.triggers()
        scenes = self.scenes()
        while len(self.steps) < count:
            self.fresh()
            self.rng.choice(scenes)()
            self.settle()
        self.say(0, "CHECK TABLE x, y EXTENDED")
        return self.steps

    def scenes(self) -> list[Callable[[], None]]:
        """The stories of the theme."""
        return {
            "crosses_xa": [self.prepared, self.prepared, self.prepared_and_ddl, self.prepared_waits],
            "crosses_values": [self.values, self.values, self.values_failing, self.values_seen],
            "crosses_temporary": [self.temporary, self.temporary_in_xa, self.temporary_and_database],
            "crosses_ddl": [self.old_snapshot, self.old_snapshot, self.ddl_in_transaction],
            "crosses_waits": [self.queue, self.killed, self.killed_connection, self.timeout_half_way],
            "crosses_triggers": [self.trigger_fails, self.values_failing]
            if self.failing_scenes
            else [self.trigger_fails],
        }[self.theme]

    # -- pieces

    def say(self, session: int, sql: str, **keywords: object) -> None:
        """One statement."""
        self.steps.append(Step(sql, session, **keywords))  # type: ignore[arg-type]

    def settings(self, session: int, setup: bool = False) -> None:
        """What every session starts with, also after it was closed."""
        self.say(
            session,
            f"SET timestamp={CLOCK}, alter_algorithm='COPY', lock_wait_timeout=2, SESSION {{e}}_lock_wait_timeout=20",
            setup=setup,
        )

    def fresh(self) -> None:
        """Known rows, nothing open."""
        for session in SESSIONS:
            self.say(session, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.say(0, "DELETE FROM x")
        rows = ", ".join(f"({n}, {n * 10}, {n % 3}, {self.text(n)}, {self.text(n)})" for n in range(1, ROWS + 1))
        self.say(0, f"INSERT INTO x VALUES {rows}")

    def settle(self) -> None:
        """Whatever the scene left open ends; the rows are looked at."""
        for session in SESSIONS:
            self.say(session, "ROLLBACK")
        self.say(0, f"SELECT {SHOWN} FROM x ORDER BY id", ordered=True)
        if self.rng.random() < 0.2:
            self.say(0, "CHECK TABLE x EXTENDED")

    def text(self, number: int) -> str:
        """A value of some length that tells whose it is."""
        if self.rng.random() < 0.1:
            return "NULL"
        size = self.rng.choice(SIZES)
        if self.rng.random() < 0.3:
            size = max(0, size + self.rng.randint(-3, 3))
        return f"LEFT(REPEAT('{number}-{self.rng.randint(0, 99999)}.', {size // 4 + 1}), {size})"

    def row(self) -> int:
        """An id that is there at the start."""
        return self.rng.randint(1, ROWS)

    def level(self, session: int) -> None:
        """A random isolation level."""
        name = self.rng.choice(("REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED"))
        self.say(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {name}")

    def change(self, row: int, table: str = "x") -> str:
        """A statement that changes this row alone, by its primary key."""
        where = f"WHERE id = {row}"
        return self.rng.choice(
            (
                f"UPDATE {table} SET k = k + 1 {where}",
                f"UPDATE {table} SET a = {self.text(row)} {where}",
                f"UPDATE {table} SET a = CONCAT(IFNULL(a, ''), 'y'), b = {self.text(row)} {where}",
                f"UPDATE {table} SET a = a, b = NULL {where}",
                f"DELETE FROM {table} {where}",
            )
        )

    def add(self, session: int, table: str = "x", row: int | None = None) -> None:
        """A new row."""
        n = row or self.rng.randint(100, 999)
        self.say(session, f"INSERT INTO {table} VALUES ({n}, {n * 10}, 1, {self.text(n)}, {self.text(n)})")

    def look(self, session: int) -> None:
        """What this session sees."""
        hint = self.rng.choice(("", "", " FORCE INDEX (k)"))
        where = "WHERE k >= 0" if hint else ""
        self.say(session, f"SELECT {SHOWN} FROM x{hint} {where} ORDER BY id", ordered=True)

    # -- XA

    def xid(self) -> str:
        """A name no other scene uses."""
        self.xids += 1
        return f"'s{self.xids}'"

    def prepare(self, session: int, rows: list[int]) -> str:
        """A distributed transaction that changes these rows, prepared."""
        xid = self.xid()
        self.say(session, f"XA START {xid}")
        for row in rows:
            self.say(session, self.change(row))
        if self.rng.random() < 0.5:
            self.add(session)
        self.say(session, f"XA END {xid}")
        self.say(session, f"XA PREPARE {xid}")
        return xid

    def leave(self, session: int) -> None:
        """The client goes away, and comes back later as somebody else."""
        self.say(session, "(disconnect)", kind="disconnect")
        self.settings(session)

    def decide(self, session: int, xid: str) -> None:
        """XA COMMIT or XA ROLLBACK."""
        self.say(session, f"{self.rng.choice(('XA COMMIT', 'XA ROLLBACK'))} {xid}")

    def prepared(self) -> None:
        """Prepared, its client gone or not, read by others, decided by somebody."""
        xid = self.prepare(0, self.rng.sample(range(1, ROWS + 1), 2))
        gone = self.rng.random() < 0.7
        if gone:
            self.leave(0)
        self.level(1)
        self.say(1, "BEGIN")
        self.look(1)
        self.say(2, "XA RECOVER")
        self.decide(2 if gone else 0, xid)
        self.look(1)
        self.say(1, "COMMIT")

    def prepared_waits(self) -> None:
        """Who wants a row of a prepared transaction waits until it is decided."""
        row = self.row()
        xid = self.prepare(0, [row])
        self.leave(0)
        self.say(1, f"SELECT id, u FROM x WHERE id = {row} FOR UPDATE NOWAIT")
        self.say(1, f"SELECT id, u FROM x WHERE id = {row} FOR UPDATE SKIP LOCKED")
        self.say(1, f"UPDATE x SET k = k + 5 WHERE id = {row}", kind="block")
        self.decide(2, xid)
        self.say(1, "(collect)", kind="collect")

    def prepared_and_ddl(self) -> None:
        """DDL on a table that a prepared transaction has changed: a time-out, nothing else."""
        xid = self.prepare(0, [self.row()])
        self.leave(0)
        self.say(1, "SET SESSION {e}_lock_wait_timeout=1")
        ddl = self.rng.choice(
            (
                "DROP TABLE x",
                "TRUNCATE TABLE x",
                "RENAME TABLE x TO z",
                "ALTER TABLE x FORCE",
                "ALTER TABLE x ADD COLUMN z INT",
                "OPTIMIZE TABLE y",
            )
        )
        self.say(1, ddl)
        self.say(1, "SET SESSION {e}_lock_wait_timeout=20")
        self.decide(2, xid)
        self.say(1, "ALTER TABLE x FORCE")

    # -- values out of line

    def values(self) -> None:
        """Values of every size come, change and go, with savepoints."""
        self.say(0, "BEGIN")
        for number in range(self.rng.randint(2, 8)):
            self.say(0, f"SAVEPOINT p{number}")
            self.say(0, self.change(self.row()))
            if self.rng.random() < 0.4:
                self.add(0)
            if self.rng.random() < 0.3:
                self.say(0, f"ROLLBACK TO SAVEPOINT p{self.rng.randint(0, number)}")
                self.look(0)
                break
        self.look(0)
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))

    def values_failing(self) -> None:
        """Statements that meet a duplicate after their values were written."""
        row, other, new = self.row(), self.row(), self.rng.randint(100, 999)
        self.say(0, self.rng.choice(("BEGIN", "DO 1")))
        values = f"{self.text(row)}, {self.text(row)}"
        one, two = f"({row}, {new}, 1, {values})", f"({new}, {other * 10}, 1, {values})"
        forms = [
            f"INSERT INTO x VALUES {one}",
            f"INSERT INTO x VALUES ({new}, {new}, 2, {values}), {one}",
            f"INSERT IGNORE INTO x VALUES {one}, {two}",
            f"REPLACE INTO x VALUES {one}, {two}",
            f"INSERT INTO x VALUES {one}, {two} ON DUPLICATE KEY UPDATE a = VALUES(a), k = k + 1",
            f"INSERT INTO x VALUES ({row}, {other * 10}, 1, {values}) ON DUPLICATE KEY UPDATE b = {self.text(row)}",
            f"UPDATE IGNORE x SET u = {other * 10}, a = {self.text(row)} WHERE id <> {other}",
            f"UPDATE x SET u = {other * 10}, a = {self.text(row)} WHERE id <> {other} ORDER BY id",
            f"UPDATE x SET id = {other}, b = {self.text(row)} WHERE id = {row}",
        ]
        for sql in self.rng.sample(forms, 4):
            self.say(0, sql)
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))

    def values_seen(self) -> None:
        """Others look at values while they change, at every level."""
        row = self.row()
        self.level(1)
        self.say(1, "BEGIN")
        self.look(1)
        self.say(0, "BEGIN")
        for _ in range(self.rng.randint(1, 3)):
            self.say(0, self.change(row))
            self.look(1)
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.look(1)
        self.say(1, "COMMIT")

    # -- temporary tables

    def temporary(self) -> None:
        """A temporary table inside a transaction, filled by a SELECT or row by row, and a rollback."""
        filled = self.rng.random() < 0.5
        self.say(0, "BEGIN")
        self.say(0, self.change(self.row()))
        if filled:
            self.say(0, "CREATE TEMPORARY TABLE tt (PRIMARY KEY (id)) ENGINE={E} SELECT * FROM x WHERE id < 4")
        else:
            self.say(0, TABLE.format(name="tt", options="").replace("TABLE", "TEMPORARY TABLE", 1))
            self.add(0, "tt", 2)
        self.say(0, "SAVEPOINT p")
        self.say(0, self.change(2, "tt"))
        self.say(0, self.rng.choice(("ROLLBACK TO SAVEPOINT p", "DO 1")))
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")) if filled else "COMMIT")
        self.say(0, f"SELECT {SHOWN} FROM tt ORDER BY id", ordered=True)
        self.say(0, "DROP TEMPORARY TABLE tt")

    def temporary_in_xa(self) -> None:
        """A distributed transaction with a temporary table beside a permanent one; its client goes."""
        self.say(0, TABLE.format(name="tt", options="").replace("TABLE", "TEMPORARY TABLE", 1))
        self.add(0, "tt", 2)
        xid = self.xid()
        self.say(0, f"XA START {xid}")
        self.say(0, self.change(self.row()))
        self.say(0, self.change(2, "tt"))
        self.say(0, f"XA END {xid}")
        self.say(0, f"XA PREPARE {xid}")
        if self.rng.random() < 0.7:
            self.leave(0)
            self.decide(2, xid)
        else:
            self.decide(0, xid)
        self.say(0, "DROP TEMPORARY TABLE IF EXISTS tt", kind="quiet")

    def temporary_and_database(self) -> None:
        """Databases come and go beside a temporary table, whatever they are called."""
        name = self.rng.choice(("tmp", "d2", "sql", "temp"))
        self.say(0, f"CREATE DATABASE IF NOT EXISTS {name}")
        self.say(0, f"CREATE TEMPORARY TABLE {name}.tt (id INT PRIMARY KEY, v INT) ENGINE={{E}}")
        self.say(0, f"INSERT INTO {name}.tt VALUES (1, 1)")
        self.say(1, f"CREATE TABLE {name}.tt (id INT PRIMARY KEY) ENGINE={{E}}")
        self.say(1, f"DROP DATABASE {name}")
        self.say(0, f"SELECT * FROM {name}.tt")
        self.say(0, f"INSERT INTO {name}.tt VALUES (2, 2)")
        self.say(0, f"DROP TEMPORARY TABLE {name}.tt")

    # -- DDL

    def old_snapshot(self) -> None:
        """A snapshot that is older than the table's present contents."""
        self.say(1, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        self.say(0, "DROP TABLE y")
        self.say(0, TABLE.format(name="y", options=""))
        self.say(0, f"INSERT INTO y SELECT * FROM x WHERE id < {self.row()}")
        ddl = self.rng.choice(
            (
                "DO 1",
                "TRUNCATE TABLE y",
                "ALTER TABLE y FORCE",
                "ALTER TABLE x FORCE",
                "TRUNCATE TABLE x",
                "ALTER TABLE x ADD COLUMN z INT DEFAULT 5, DROP COLUMN z",
                "CREATE TABLE z ENGINE={E} AS SELECT * FROM x",
            )
        )
        self.say(0, ddl)
        for table in self.rng.sample(("x", "y"), 2):
            self.say(1, f"SELECT {SHOWN} FROM {table} ORDER BY id", ordered=True)
        self.say(1, "COMMIT")
        self.say(1, f"SELECT {SHOWN} FROM y ORDER BY id", ordered=True)
        self.say(0, "DROP TABLE IF EXISTS z", kind="quiet")

    def ddl_in_transaction(self) -> None:
        """DDL commits what was open."""
        self.say(0, "BEGIN")
        self.say(0, self.change(self.row()))
        ddl = self.rng.choice(("CREATE TABLE z (id INT) ENGINE={E}", "TRUNCATE TABLE y", "ALTER TABLE y FORCE"))
        self.say(0, ddl)
        self.say(0, "ROLLBACK")
        self.look(1)
        self.say(0, "DROP TABLE IF EXISTS z", kind="quiet")

    # -- waits

    def queue(self) -> None:
        """Two wait for a row; they get it in the order they came."""
        row = self.row()
        self.say(0, "BEGIN")
        self.say(0, f"UPDATE x SET k = 50 WHERE id = {row}")
        self.say(1, "BEGIN")
        self.say(1, f"UPDATE x SET k = k + 1, a = {self.text(row)} WHERE id = {row}", kind="block")
        self.say(2, f"UPDATE x SET k = k * 2 WHERE id = {row}", kind="block")
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(1, "(collect)", kind="collect")
        self.say(1, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(2, "(collect)", kind="collect")

    def killed(self) -> None:
        """KILL QUERY ends a wait; the transaction goes on without that statement."""
        row = self.row()
        other = row % ROWS + 1
        self.say(0, "BEGIN")
        self.say(0, f"UPDATE x SET k = 50 WHERE id = {row}")
        self.say(1, "BEGIN")
        self.say(1, f"UPDATE x SET a = {self.text(other)} WHERE id = {other}")
        self.say(1, f"UPDATE x SET a = {self.text(row)} WHERE id = {row}", kind="block")
        self.say(1, "KILL QUERY", kind="kill")
        self.say(1, "(collect)", kind="collect")
        self.look(1)
        self.say(1, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(0, "COMMIT")

    def killed_connection(self) -> None:
        """A connection that goes takes its transaction back and frees its rows."""
        row = self.row()
        self.say(1, "BEGIN")
        self.say(1, self.change(row))
        self.add(1)
        self.say(2, f"UPDATE x SET k = k + 7 WHERE id = {row}", kind="block")
        self.leave(1)
        self.say(2, "(collect)", kind="collect")

    def timeout_half_way(self) -> None:
        """A statement of several rows that waits too long at the last: none of it stays."""
        self.say(0, "BEGIN")
        self.say(0, f"UPDATE x SET k = 50 WHERE id = {ROWS}")
        self.say(1, "SET SESSION {e}_lock_wait_timeout=1")
        self.say(1, "BEGIN")
        self.say(1, f"UPDATE x SET k = 60 WHERE id = {self.rng.randint(1, ROWS - 1)}")
        self.say(1, f"UPDATE x SET a = {self.text(0)} WHERE id <= {ROWS} ORDER BY id", kind="block")
        self.say(1, "(collect)", kind="collect")
        self.look(1)
        self.say(1, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(0, "COMMIT")
        self.say(1, "SET SESSION {e}_lock_wait_timeout=20")

    # -- triggers

    def triggers(self) -> None:
        """A log kept by a trigger whose procedure goes back to a savepoint or fails for some rows.

        Not both: once a trigger has set a savepoint, InnoDB keeps what a failing statement did before.
        """
        fails = self.rng.random() < 0.5
        ending = (
            "IF row_id % 11 = 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no such row'; END IF; "
            if fails
            else "IF row_id % 5 = 0 THEN ROLLBACK TO SAVEPOINT inside; END IF; "
        )
        savepoint = "" if fails else "SAVEPOINT inside; "
        self.failing_scenes = fails
        self.say(0, "CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, id INT, note LONGTEXT) ENGINE={E}", setup=True)
        self.say(
            0,
            "CREATE PROCEDURE keep(IN row_id INT, IN note LONGTEXT) BEGIN "
            "DECLARE CONTINUE HANDLER FOR 1062 INSERT INTO log (id, note) VALUES (-1, note); "
            f"{savepoint}INSERT INTO log (id, note) VALUES (row_id, note); "
            "INSERT INTO y (id, u, a) VALUES (row_id % 7, row_id, note); " + ending + "END",
            setup=True,
        )
        for when, event, row in (("BEFORE", "INSERT", "NEW"), ("AFTER", "UPDATE", "NEW"), ("AFTER", "DELETE", "OLD")):
            name = f"{when.lower()}_{event.lower()}"
            sql = f"CREATE TRIGGER {name} {when} {event} ON x FOR EACH ROW CALL keep({row}.id, {row}.a)"
            self.say(0, sql, setup=True)

    def trigger_fails(self) -> None:
        """Changes of several rows, one of which a trigger may refuse."""
        self.say(0, self.rng.choice(("BEGIN", "DO 1")))
        first = self.rng.randint(100, 140)
        rows = ", ".join(f"({n}, {n * 10}, 1, {self.text(n)}, NULL)" for n in range(first, first + 4))
        verb = self.rng.choice(("INSERT", "INSERT IGNORE", "REPLACE"))
        self.say(0, f"{verb} INTO x VALUES {rows}")
        self.say(0, self.change(self.row()))
        self.say(0, "DELETE FROM x WHERE id BETWEEN 2 AND 4 ORDER BY id")
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(0, "SELECT id, LENGTH(note), MD5(note) FROM log ORDER BY n", ordered=True)
        self.say(0, "SELECT id, u, LENGTH(a), MD5(a) FROM y ORDER BY id", ordered=True)
        self.say(0, "DELETE FROM log")
        self.say(0, "DELETE FROM y")
