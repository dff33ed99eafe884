"""A kept snapshot on a second server beside the first: what it shows, what it refuses, and what either may suffer."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql

from corners.disk import fill
from lib.engines import engine
from lib.server import Server, ServerFailed
from snapshots.work import Failed, Writers, ferrite_check, one

NAME = "opened"
CLOSED = "FERRITE tables can only be read"
TABLES = ("part", "value", "parent", "child", "keyed")
SETUP = (
    "CREATE DATABASE o",
    "USE o",
    "CREATE TABLE o.part (a INT PRIMARY KEY, b INT, KEY (b)) PARTITION BY HASH (a) PARTITIONS 3",
    "INSERT INTO o.part SELECT seq, seq % 7 FROM seq_1_to_2000",
    "CREATE TABLE o.value (a INT PRIMARY KEY, v LONGTEXT)",
    "INSERT INTO o.value SELECT seq, REPEAT(CHAR(65 + seq % 26), 60000) FROM seq_1_to_100",
    "CREATE TABLE o.parent (a INT PRIMARY KEY)",
    "INSERT INTO o.parent SELECT seq FROM seq_1_to_100",
    "CREATE TABLE o.child (a INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES parent (a) ON DELETE CASCADE)",
    "INSERT INTO o.child SELECT seq, seq % 100 + 1 FROM seq_1_to_300",
    "CREATE TABLE o.keyed (a INT AUTO_INCREMENT PRIMARY KEY, b INT, c VARCHAR(50), UNIQUE (c), KEY (b, c))",
    "INSERT INTO o.keyed (b, c) SELECT seq % 10, CONCAT('c', seq) FROM seq_1_to_1000",
    "CREATE SEQUENCE o.seq",
    "XA START 'kept'",
    "INSERT INTO o.keyed (b, c) VALUES (77, 'prepared')",
    "XA END 'kept'",
    "XA PREPARE 'kept'",
)
# What the first server does then: other pages come where the old ones would be, were they not held.
AFTER = (
    "USE o",
    "XA COMMIT 'kept'",
    "DROP TABLE o.child",
    "DROP TABLE o.parent",
    "UPDATE o.part SET b = 9",
    "DELETE FROM o.value",
    "INSERT INTO o.value SELECT seq, REPEAT('z', 60000) FROM seq_1_to_200",
    "ALTER TABLE o.keyed DROP COLUMN b",
)
REFUSED = (
    "INSERT INTO o.parent VALUES (5000)",
    "UPDATE o.part SET b = 1 WHERE a = 1",
    "DELETE FROM o.parent WHERE a = 1",
    "REPLACE INTO o.part VALUES (1, 1)",
    "TRUNCATE TABLE o.value",
    "ALTER TABLE o.value ADD COLUMN c INT",
    "ALTER TABLE o.part ENGINE = InnoDB, LOCK = SHARED",
    "ALTER TABLE o.part COALESCE PARTITION 1",
    "CREATE INDEX i ON o.value (a)",
    "CREATE TABLE o.new (a INT) ENGINE = FERRITE",
    "CREATE OR REPLACE TABLE o.value (a INT) ENGINE = InnoDB",
    "DROP TABLE o.value",
    "RENAME TABLE o.value TO o.other",
    "LOCK TABLES o.value WRITE",
    "SELECT NEXTVAL(o.seq)",
    "SELECT f()",
    "SET GLOBAL ferrite_snapshot_create = 'no'",
    "SET GLOBAL ferrite_backup_dir = '/no'",
)
COUNTS = (
    "SELECT COUNT(*) FROM o.part FORCE INDEX (b) WHERE b = 3",
    "SELECT COUNT(*), SUM(a) FROM o.keyed FORCE INDEX (b) WHERE b >= 5 ORDER BY b DESC",
    "SELECT a FROM o.keyed WHERE c = 'c500'",
    "SELECT COUNT(*) FROM o.child JOIN o.parent ON child.b = parent.a",
    "SELECT MAX(a), MIN(a) FROM o.child",
    "SELECT next_not_cached_value FROM o.seq",
)


@contextlib.contextmanager
def _cursor(server: Server) -> Iterator[Any]:
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        yield cursor


def _truth(server: Server) -> list[Any]:
    found: list[Any] = []
    with _cursor(server) as cursor:
        for table in TABLES:
            cursor.execute(f"CHECKSUM TABLE o.{table} EXTENDED")
            found.append(cursor.fetchone())
            cursor.execute(f"SHOW CREATE TABLE o.{table}")
            found.append(cursor.fetchone())
        for sql in COUNTS:
            cursor.execute(sql)
            found.append(cursor.fetchall())
    return found


def _second(first: Server, home: Path, name: str = NAME) -> Server:
    options = ["--ferrite=FORCE", f"--ferrite-open-snapshot={first.datadir}:{name}", "--read-only=1"]
    return Server(first.places, engine("ferrite"), [*options, "--ferrite-buffer-pool-size=8M"], home)


def _must(condition: object, what: str) -> None:
    if not condition:
        raise Failed(f"opened snapshot: {what}")


def _same(server: Server, truth: list[Any], what: str) -> None:
    found = _truth(server)
    wrong = [(f, t) for f, t in zip(found, truth, strict=True) if f != t]
    _must(not wrong, f"{what}: {wrong[:2]}")


def _refused(cursor: Any, sql: str, text: str) -> None:
    try:
        cursor.execute(sql)
    except pymysql.err.Error as e:
        _must(text in str(e), f"{sql}: {e}")
    else:
        raise Failed(f"opened snapshot: {sql}: no error")


def _does_not_start(server: Server, text: str) -> None:
    try:
        server.start()
    except ServerFailed:
        _must(text in server.log_tail(60), f"'{text}' is not in the error log:\n{server.log_tail()}")
    else:
        raise Failed(f"opened snapshot: a server starts that must not: {text}")


def _read_only(second: Server) -> None:
    with _cursor(second) as cursor:
        cursor.execute("USE o")
        cursor.execute("CREATE FUNCTION f() RETURNS INT BEGIN INSERT INTO o.parent VALUES (7777); RETURN 1; END")
        for sql in REFUSED:
            other = "snapshot of another one open" if sql.startswith("SET") else CLOSED
            _refused(cursor, sql, other)
        cursor.execute("CREATE TEMPORARY TABLE t ENGINE = FERRITE AS SELECT * FROM part")
        cursor.execute("ALTER TABLE t ADD COLUMN z INT")
        cursor.execute("UPDATE t SET z = 1")
        _must(one(cursor, "SELECT SUM(z) FROM t") == 2000, "a temporary table")
        cursor.execute("DROP TABLE t")
        cursor.execute("SELECT COUNT(*) FROM value FOR UPDATE")
        for table in TABLES:
            cursor.execute(f"CHECK TABLE {table} EXTENDED")
            words = [row[3] for row in cursor.fetchall() if row[2] != "note"]
            _must(words == ["OK"], f"CHECK TABLE {table}: {words}")


def _prepared(second: Server) -> None:
    sql = "SELECT COUNT(*) FROM o.keyed WHERE c = 'prepared'"
    with _cursor(second) as cursor:
        cursor.execute("XA RECOVER")
        found = [row[3] for row in cursor.fetchall()]
        _must(found in (["kept"], [b"kept"]), f"XA RECOVER: {found}")
        _must(one(cursor, sql) == 0, "a prepared row is seen")
        cursor.execute("SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        _must(one(cursor, sql) == 1, "READ UNCOMMITTED")


def _fetch_back(first: Server, second: Server, truth: list[Any]) -> None:
    """Tables of the snapshot come back into the first server in files."""
    checksums = {row[0]: row[1] for row in truth if len(row) == 2 and row[0] in ("o.value", "o.keyed", "o.child")}
    _must(len(checksums) == 3, f"checksums: {checksums}")
    with _cursor(first) as cursor, _cursor(second) as other:
        cursor.execute("CREATE DATABASE back")
        cursor.execute("USE back")
        cursor.execute("SET foreign_key_checks = 0")
        for table, checksum in checksums.items():
            name = table.partition(".")[2]
            other.execute(f"SHOW CREATE TABLE {table}")
            cursor.execute(other.fetchone()[1])
            other.execute(f"FLUSH TABLES {table} FOR EXPORT")
            shutil.copy(second.datadir / "o" / f"{name}.ferrite", first.datadir / "back" / f"{name}.ferrite")
            other.execute("UNLOCK TABLES")
            cursor.execute(f"ALTER TABLE {name} IMPORT TABLESPACE")
            cursor.execute(f"CHECKSUM TABLE {name} EXTENDED")
            found = cursor.fetchone()[1]
            _must(found == checksum, f"{table} came back as another one: {found}, not {checksum}")
        cursor.execute("DROP DATABASE back")


def _kill_query(second: Server) -> None:
    connection = second.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor, _cursor(second) as other:
        timer = threading.Timer(0.5, other.execute, [f"KILL QUERY {connection.thread_id()}"])
        begun = time.monotonic()
        timer.start()
        _refused(cursor, "SELECT SUM(LENGTH(x.v)) FROM o.value x JOIN o.part y JOIN o.part z", "interrupted")
        timer.join()
        # The whole query takes minutes.
        _must(time.monotonic() - begun < 30, "KILL QUERY took long")


def _keeps(first: Server, second: Server, home: Path) -> None:
    """It is not dropped while it is open, by anybody; the same can be opened once more."""
    third = _second(first, home / "third")
    try:
        third.start()
        with _cursor(first) as cursor:
            drop = f"SET GLOBAL ferrite_snapshot_drop = '{NAME}'"
            _refused(cursor, drop, f"snapshot {NAME} is open in another server")
            third.kill()
            _refused(cursor, drop, f"snapshot {NAME} is open in another server")
            cursor.execute("SET GLOBAL ferrite_snapshot_create = 'other'")
            cursor.execute("SET GLOBAL ferrite_snapshot_max_bytes = 1")
            until = time.monotonic() + 60
            while one(cursor, "SELECT GROUP_CONCAT(name) FROM information_schema.FERRITE_KEPT_SNAPSHOTS") != NAME:
                _must(time.monotonic() < until, "the other one does not go")
                time.sleep(0.1)
            cursor.execute("SET GLOBAL ferrite_snapshot_max_bytes = DEFAULT")
            cursor.execute("SET GLOBAL ferrite_snapshot_create = 'other'")
        third.options = _second(first, home, "other").options
        _does_not_start(third, "another snapshot than this")
        third.options = ["--ferrite=FORCE"]
        _does_not_start(third, "this data directory is not whole")
        code = ferrite_check(third).returncode
        _must(code == 2, f"ferrite-check of an opened snapshot: exit code {code}")
        _does_not_start(_second(first, home / "third", "nobody"), "there is no snapshot nobody")
    finally:
        third.remove()


def _full_disk(first: Server, home: Path, truth: list[Any]) -> str:
    """Too little room for it: it does not start. Room that goes then: what was there is still read."""
    second = _second(first, home / "small")
    second.create()
    own = second.datadir / "#ferrite"
    own.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8M", "tmpfs", str(own)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        second.remove()
        return "no small file system can be mounted here"
    try:
        _does_not_start(second, "are needed for the snapshot's log and lists of pages")
        subprocess.run(["mount", "-o", "remount,size=64M", str(own)], check=True)
        second.start()
        fill(own)
        _same(second, truth, "on a full disk")
        second.kill()
        second.start()
        _same(second, truth, "opened again on an almost full disk")
    finally:
        second.kill()
        subprocess.run(["umount", "-l", str(own)], check=False)
        second.remove()
    return "a full disk is refused, or read on"


def opened(first: Server, home: Path, rewind: Callable[[Server, str, str], float], say: Any) -> None:
    """All of it; the first server runs, and runs on."""
    with _cursor(first) as cursor:
        for sql in SETUP:
            cursor.execute(sql)
    with _cursor(first) as cursor:
        cursor.execute(f"SET GLOBAL ferrite_snapshot_create = '{NAME}'")
    truth = _truth(first)
    second = _second(first, home / "second")
    try:
        clients = Writers(first, 2, 5)
        second.start()
        with _cursor(first) as cursor:
            for sql in AFTER:
                cursor.execute(sql)
        _same(second, truth, "beside a first server that works")
        _read_only(second)
        _prepared(second)
        if "--ferrite-encrypt=1" not in Server.everywhere:
            _fetch_back(first, second, truth)
        _kill_query(second)
        _keeps(first, second, home)
        second.kill()
        second.start()
        _same(second, truth, "after kill -9 of the second server")
        clients.stopping.set()
        first.kill()
        with contextlib.suppress(Failed):
            clients.stop()
        _same(second, truth, "after kill -9 of the first server")
        first.start()
        clients = Writers(first, 2, 6)
        disk = _full_disk(first, home, truth)
        _same(second, truth, "after a restart of the first server")
        clients.stop()
        second.stop()
        first.stop()
        second.start()
        _same(second, truth, "without the first server")
        rewind(first, NAME, "later")
        _same(second, truth, "after a rewind of the first server")
        first.stop()
        rewind(first, "later", "undone")
        _same(second, truth, "after a rewind of the first server, forth again")
        second.stop()
        with _cursor(first) as cursor:
            for name in (NAME, "other", "later", "undone"):
                cursor.execute(f"SET GLOBAL ferrite_snapshot_drop = '{name}'")
            cursor.execute("DROP DATABASE o")
        _does_not_start(second, f"there is no snapshot {NAME}")
    finally:
        second.remove()
    say(f"a snapshot on a second server is what it was, read-only, and stays while that runs; {disk}")
