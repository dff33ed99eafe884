"""XA COMMIT fails because the binary log cannot be written: the client is told XAER_RMERR, which says that the work is rolled
back. The server forgets the xid, so whatever the connection does next, nobody else could end the transaction."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pymysql

from faults.shimmed import Failed, Shimmed, say
from lib.engines import engine
from lib.places import Places
from lib.server import home_in_memory

XAER_RMERR = 1401
XAER_DUPID = 1440
# What the connection does next; in the end it is closed.
NEXT: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "a SELECT": ("SELECT * FROM t",),
    "a transaction": ("BEGIN", "INSERT INTO t VALUES (10, 0)", "COMMIT"),
    "COMMIT": ("COMMIT",),
    "ROLLBACK": ("ROLLBACK",),
    "a snapshot": ("START TRANSACTION WITH CONSISTENT SNAPSHOT", "SELECT * FROM t", "COMMIT"),
    "a snapshot, and COMMIT": ("START TRANSACTION WITH CONSISTENT SNAPSHOT", "COMMIT"),
    "a transaction of InnoDB": ("BEGIN", "INSERT INTO i VALUES (10)", "COMMIT"),
    "another XA transaction": ("XA START 'y'", "INSERT INTO i VALUES (11)", "XA END 'y'", "XA COMMIT 'y' ONE PHASE"),
    "another one that is prepared": (
        "XA START 'y'",
        "INSERT INTO i VALUES (12)",
        "XA END 'y'",
        "XA PREPARE 'y'",
        "XA COMMIT 'y'",
    ),
}


def _run(connection: Any, sql: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _fails(connection: Any, trigger: Path) -> None:
    """A transaction that is prepared, and whose commit is refused."""
    for sql in ("XA START 'x'", "UPDATE t SET a = a + 1 WHERE id = 1", "XA END 'x'", "XA PREPARE 'x'"):
        _run(connection, sql)
    trigger.touch()
    try:
        _run(connection, "XA COMMIT 'x'")
    except pymysql.err.MySQLError:
        said = [row[1] for row in _run(connection, "SHOW WARNINGS")]
    else:
        raise Failed("XA COMMIT, whose record cannot be synced, succeeds")
    if XAER_RMERR not in said:
        raise Failed(f"XA COMMIT, whose record cannot be synced: {said}")
    if trigger.exists():
        raise Failed("the binary log was not synced")


def _story(server: Shimmed, trigger: Path, name: str) -> None:
    with contextlib.closing(server.connect(database="d", autocommit=True, read_timeout=60)) as other:
        for sql in (
            "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, a INT) ENGINE=FERRITE",
            "INSERT INTO t VALUES (1, 0)",
        ):
            _run(other, sql)
        _run(other, "CREATE OR REPLACE TABLE i (id INT PRIMARY KEY) ENGINE=InnoDB")
        connection = server.connect(database="d", autocommit=True, read_timeout=60)
        with contextlib.closing(connection):
            _fails(connection, trigger)
            for sql in NEXT[name]:
                _run(connection, sql)
            if NEXT[name] and _run(other, "SELECT a FROM t WHERE id = 1") != [(0,)]:
                raise Failed(f"after {name}: what was refused is committed")
        _run(other, "SET SESSION ferrite_lock_wait_timeout = 20")
        try:
            _run(other, "UPDATE t SET a = a + 10 WHERE id = 1")
        except pymysql.err.MySQLError as e:
            raise Failed(f"after {name}: the transaction is still there: {e.args}") from e
        seen = _run(other, "SELECT id, a FROM t"), _run(other, "SELECT * FROM i"), _run(other, "XA RECOVER")
        inserted = [int(sql.split("(")[1].split(",")[0].rstrip(")")) for sql in NEXT[name] if "INSERT" in sql]
        own = "INSERT INTO t" in "".join(NEXT[name])
        wanted = [(1, 10)] + [(n, 0) for n in inserted if own], [(n,) for n in inserted if not own], []
        if seen != wanted:
            raise Failed(f"after {name}: {seen}, not {wanted}")


def _same_xid(server: Shimmed, trigger: Path) -> None:
    """Another connection takes the xid that the server has forgotten, while what was refused still waits under it."""
    with (
        contextlib.closing(server.connect(database="d", autocommit=True, read_timeout=60)) as other,
        contextlib.closing(server.connect(database="d", autocommit=True, read_timeout=60)) as connection,
    ):
        _run(other, "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, a INT) ENGINE=FERRITE")
        _run(other, "INSERT INTO t VALUES (1, 0), (2, 0)")
        _fails(connection, trigger)
        branch = ("XA START 'x'", "UPDATE t SET a = 7 WHERE id = 2", "XA END 'x'", "XA PREPARE 'x'")
        try:
            for sql in branch:
                _run(other, sql)
        except pymysql.err.MySQLError as e:
            if branch.index(sql) != len(branch) - 1 or e.args[0] != XAER_DUPID:
                raise Failed(f"{sql}: {e.args}") from e
        else:
            raise Failed("two transactions are prepared under one xid")
        with contextlib.suppress(pymysql.err.MySQLError):
            _run(other, "XA ROLLBACK 'x'")
        _run(connection, "ROLLBACK")
        for sql in (*branch, "XA COMMIT 'x'"):
            _run(other, sql)
        _run(connection, "ROLLBACK")
        seen = _run(connection, "SELECT id, a FROM t")
        if seen != [(1, 0), (2, 7)]:
            raise Failed(f"the xid's second transaction: {seen}")


def run(places: Places, shim: Path) -> None:
    """A connection's XA COMMIT that fails, and each of what it does next."""
    options = ["--ferrite-buffer-pool-size=16M", "--log-bin=faults-bin", "--sync-binlog=1", "--server-id=1"]
    server = Shimmed(places, engine("ferrite"), options, home_in_memory())
    trigger = server.home / "trigger"
    server.environment = (f"LD_PRELOAD={shim}", f"FAULT_TRIGGER={trigger}", "FAULT_FILE=faults-bin.0")
    try:
        server.start()
        with contextlib.closing(server.connect(autocommit=True)) as connection:
            _run(connection, "CREATE DATABASE d")
        for name in NEXT:
            _story(server, trigger, name)
        _same_xid(server, trigger)
        say(f"XA COMMIT that the binary log refuses: rolled back in {len(NEXT)} cases")
    finally:
        server.remove()
