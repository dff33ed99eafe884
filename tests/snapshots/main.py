"""Snapshots of a server that works: each is rewound to and compared with what was committed at its point in time."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from random import Random
from typing import Any

import pymysql

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory, stop_on_signals
from snapshots.measure import measure
from snapshots.opened import opened
from snapshots.work import ALTERS, Failed, Writers, contents, ferrite_check, fill, one

OPTIONS = [
    "--log-bin=bin",
    "--server-id=1",
    "--sync-binlog=0",
    "--ferrite-log-budget=16M",
    "--ferrite-buffer-pool-size=8M",
]
LIST = "SELECT name, state FROM information_schema.FERRITE_KEPT_SNAPSHOTS"


def _say(text: str) -> None:
    print(text, flush=True)


def _ask(server: Server, sql: str) -> Any:
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        return one(cursor, sql)


def _names(server: Server) -> list[str]:
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute(LIST)
        rows = cursor.fetchall()
    lost = [name for name, state in rows if state != "READY"]
    if lost:
        raise Failed(f"lost snapshots: {lost}")
    return [name for name, _ in rows]


def _contents(server: Server) -> dict[str, Any]:
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        return contents(cursor)


def _take(server: Server, name: str) -> dict[str, Any]:
    """Takes a snapshot while nothing can change, and what a client sees then."""
    with ALTERS:
        return _take_quietly(server, name)


def _take_quietly(server: Server, name: str) -> dict[str, Any]:
    holder, taker = server.connect(autocommit=True), server.connect(autocommit=True)
    with contextlib.closing(holder), contextlib.closing(taker), holder.cursor() as cursor, taker.cursor() as other:
        cursor.execute("FLUSH TABLES WITH READ LOCK")
        other.execute(f"SET GLOBAL ferrite_snapshot_create = '{name}'")
        truth = contents(other)
        other.execute("SHOW MASTER STATUS")
        file, position = other.fetchone()[:2]
        other.execute(
            "SELECT binlog_file, binlog_position, gtid = @@gtid_binlog_pos"
            f" FROM information_schema.FERRITE_KEPT_SNAPSHOTS WHERE name = '{name}'"
        )
        found = other.fetchone()
        if found != (file, position, 1):
            raise Failed(f"{name}: the binary log is at {file} {position}, the snapshot says {found}")
        cursor.execute("UNLOCK TABLES")
    return truth


def _tool(server: Server, *words: str) -> tuple[int, str]:
    command = [os.environ["FERRITE_REWIND"], str(server.datadir), *words]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return run.returncode, run.stdout + run.stderr


def rewound(server: Server, to: str, keep_as: str) -> float:
    """The stopped server goes to a snapshot, and starts: seconds of the rewind alone."""
    begun = time.monotonic()
    code, text = _tool(server, to, "--keep-as", keep_as)
    took = time.monotonic() - begun
    if code:
        raise Failed(f"rewind to {to}: exit code {code}: {text}")
    server.start()
    return took


def _must_be(server: Server, truth: dict[str, Any], what: str) -> None:
    found = _contents(server)
    if found != truth:
        tables = [t for t in sorted({*found, *truth}) if found.get(t) != truth.get(t)]
        raise Failed(f"{what}: {[(t, found.get(t), truth.get(t)) for t in tables[:3]]}")
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        for table in truth:
            cursor.execute(f"CHECK TABLE test.{table} EXTENDED")
            words = [row[3] for row in cursor.fetchall() if row[2] != "note"]
            if words != ["OK"]:
                raise Failed(f"{what}: CHECK TABLE {table}: {words}")


def under_load(server: Server, count: int, writers: int, seed: int) -> None:
    """Snapshots under load, with restarts and kill -9 between them; back to some of them, and forth again."""
    rng = Random(seed)
    truths: dict[str, dict[str, Any]] = {}
    clients = Writers(server, writers, seed)
    for number in range(count):
        name = f"s{number}"
        truths[name] = _take(server, name)
        time.sleep(rng.random() / 2)
        if number % 5 == 4:
            clients.stopping.set()
            if number % 2:
                server.kill()
            with contextlib.suppress(Failed):
                clients.stop()
            if not number % 2:
                server.stop()
            server.start()
            clients = Writers(server, writers, seed + number)
    clients.stop()
    present = _contents(server)
    if _names(server) != list(truths):
        raise Failed(f"kept: {_names(server)}")
    server.stop()
    longest = 0.0
    turns = rng.sample(list(truths), 5 if count >= 10 else 2)
    for turn, to in enumerate(turns):
        longest = max(longest, rewound(server, to, f"p{turn}"))
        _must_be(server, truths[to], f"rewound to {to}")
        # It goes on from there.
        clients = Writers(server, 2, seed + 100 + turn)
        time.sleep(0.3)
        clients.stop()
        server.stop()
    rewound(server, "p0", "last")
    _must_be(server, present, "forth again")
    _say(f"{count} snapshots under load: back to {', '.join(turns)} and forth again, {longest:.1f} s at most")


def cut_off(server: Server, times: int, seed: int) -> None:
    """kill -9 in the middle of a rewind: the one or the other, whole."""
    rng = Random(seed)
    old = _contents(server)
    clients = Writers(server, 2, seed)
    truth = _take(server, "cut")
    time.sleep(0.3)
    clients.stop()
    old = _contents(server)
    server.stop()
    begun = time.monotonic()
    _tool(server, "cut", "--keep-as", "now")
    whole = time.monotonic() - begun
    _tool(server, "now", "--keep-as", "then")
    went = 0
    for number in range(times):
        command = [os.environ["FERRITE_REWIND"], str(server.datadir), "cut", "--keep-as", f"k{number}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tool:
            time.sleep(rng.random() * whole * 1.2)
            tool.kill()
        server.start()
        found = _contents(server)
        if found not in (old, truth):
            raise Failed(f"cut off {number}: neither the one nor the other")
        went += found == truth
        _names(server)
        server.stop()
        if found == truth:
            code, text = _tool(server, "now", "--keep-as", f"b{number}")
            if code:
                raise Failed(f"back from cut off {number}: {text}")
    server.start()
    _say(f"{times} times kill -9 during a rewind: {went} went, {times - went} stayed, all whole")


def _crashes(server: Server, times: int, seed: int) -> None:
    """kill -9 of the server while snapshots are taken and dropped: those that were answered are there."""
    rng = Random(seed)
    for number in range(times):
        clients = Writers(server, 2, seed + number)
        answered, asked = set(_names(server)), set()
        connection = server.connect(autocommit=True)
        until = time.monotonic() + 0.5 + rng.random()
        with contextlib.suppress(pymysql.err.Error, ConnectionError), connection.cursor() as cursor:
            turn = 0
            while time.monotonic() < until:
                turn += 1
                name = f"c{number}_{turn}"
                asked.add(name)
                if time.monotonic() + 0.1 > until:
                    server.kill()
                cursor.execute(f"SET GLOBAL ferrite_snapshot_create = '{name}'")
                answered.add(name)
                victim = rng.choice(sorted(answered))
                if turn % 2:
                    answered.discard(victim)
                    asked.add(victim)
                    cursor.execute(f"SET GLOBAL ferrite_snapshot_drop = '{victim}'")
        clients.stopping.set()
        server.kill()
        with contextlib.suppress(Failed):
            clients.stop()
        server.start()
        found = set(_names(server))
        if not answered <= found <= answered | asked:
            raise Failed(f"after a crash: {sorted(found)}, answered were {sorted(answered)}")
    _say(f"{times} times kill -9 while snapshots are taken and dropped: what was answered is there")


def _definitions(server: Server) -> None:
    """Tables, triggers, partitions and databases that were made or dropped since; other engines' tables."""
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        for sql in (
            "CREATE DATABASE d1",
            "CREATE TABLE d1.p (a INT PRIMARY KEY, b INT) PARTITION BY HASH (a) PARTITIONS 3",
            "INSERT INTO d1.p SELECT seq, seq FROM seq_1_to_100",
            "CREATE TRIGGER d1.tr BEFORE INSERT ON d1.p FOR EACH ROW SET NEW.b = 7",
            "CREATE TABLE d1.`p-q é` (a INT PRIMARY KEY, b INT)",
            "CREATE TRIGGER d1.`t-q` BEFORE INSERT ON d1.`p-q é` FOR EACH ROW SET NEW.b = 8",
            "CREATE DATABASE d3",
            "CREATE TABLE test.gone (a INT PRIMARY KEY, v LONGTEXT)",
            "INSERT INTO test.gone VALUES (1, REPEAT('x', 100000))",
            "SET GLOBAL ferrite_snapshot_create = 'defs'",
            "DROP DATABASE d1",
            "DROP TABLE test.gone",
            "CREATE DATABASE d2",
            "CREATE TABLE d2.fresh (a INT PRIMARY KEY)",
            "CREATE TABLE d3.fresh (a INT PRIMARY KEY)",
            "CREATE TABLE test.fresh (a INT PRIMARY KEY)",
        ):
            cursor.execute(sql)
    server.stop()
    rewound(server, "defs", "defs-now")
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("INSERT INTO d1.p VALUES (1000, 1)")
        cursor.execute("INSERT INTO d1.`p-q é` VALUES (1, 1)")
        # Without the trigger's own file it cannot be dropped.
        cursor.execute("DROP TRIGGER d1.`t-q`")
        cursor.execute("CREATE TRIGGER d1.`t-r` BEFORE INSERT ON d1.`p-q é` FOR EACH ROW SET NEW.b = 9")
        found = (
            one(cursor, "SELECT b FROM d1.`p-q é`"),
            one(cursor, "SELECT COUNT(*) FROM d1.p"),
            one(cursor, "SELECT b FROM d1.p WHERE a = 1000"),
            one(cursor, "SELECT LENGTH(v) FROM test.gone"),
            one(cursor, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'fresh'"),
            one(
                cursor,
                "SELECT GROUP_CONCAT(SCHEMA_NAME) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME IN ('d2', 'd3')",
            ),
        )
        if found != (8, 101, 7, 100000, 0, "d3"):
            raise Failed(f"definitions: {found}")
    server.stop()
    rewound(server, "defs-now", "defs-then")
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        found = (
            one(cursor, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'fresh'"),
            one(cursor, "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'd1'"),
        )
        if found != (3, 0):
            raise Failed(f"definitions, forth again: {found}")
        cursor.execute("CREATE TABLE test.gone (a INT PRIMARY KEY) ENGINE=InnoDB")
    server.stop()
    code, text = _tool(server, "defs")
    if code != 2 or "test/gone.frm is of another engine now" not in text:
        raise Failed(f"over a table of another engine: exit code {code}: {text}")
    server.start()
    _ask(server, "DROP TABLE test.gone, test.fresh, d2.fresh, d3.fresh")
    _say("definitions, triggers, partitions and databases come back and go")


def _killed_in_ddl(server: Server) -> None:
    """A server killed in the middle of a DDL statement ends that at its next start, and is rewound only then."""
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE half (a INT PRIMARY KEY)")
        cursor.execute("INSERT INTO half VALUES (1)")
        cursor.execute("SET GLOBAL ferrite_snapshot_create = 'before-ddl'")
        cursor.execute("DROP TABLE half")

    def create() -> None:
        with contextlib.suppress(pymysql.err.Error, ConnectionError):
            other = server.connect(database="test", autocommit=True)
            with contextlib.closing(other), other.cursor() as cursor:
                cursor.execute("CREATE TABLE half (a INT PRIMARY KEY) SELECT 2 + SLEEP(600) AS a")

    thread = threading.Thread(target=create)
    thread.start()
    until = time.monotonic() + 60
    while not _ask(server, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'"):
        if time.monotonic() > until:
            raise Failed("the statement does not begin")
        time.sleep(0.05)
    server.kill()
    thread.join()
    code, text = _tool(server, "before-ddl")
    if code != 2 or "start and stop the server once" not in text:
        raise Failed(f"killed in the middle of DDL: exit code {code}: {text}")
    server.start()
    if _ask(server, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_NAME = 'half'"):
        raise Failed("the half of a table stays")
    server.stop()
    rewound(server, "before-ddl", "after-ddl")
    if _ask(server, "SELECT a FROM test.half") != 1:
        raise Failed("the table did not come back")
    _ask(server, "DROP TABLE test.half")
    _say("a server killed in the middle of DDL ends that first")


def _bounds(server: Server) -> None:
    """Names, the schedule, and what they may take."""
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        for name in _names(server):
            cursor.execute(f"SET GLOBAL ferrite_snapshot_drop = '{name}'")
        for sql, word in (
            ("SET GLOBAL ferrite_snapshot_create = 'a/b'", "is not the name of a snapshot"),
            ("SET GLOBAL ferrite_snapshot_drop = 'nobody'", "there is no such snapshot"),
        ):
            try:
                cursor.execute(sql)
                raise Failed(f"{sql}: no error")
            except pymysql.err.Error as e:
                if word not in str(e):
                    raise Failed(f"{sql}: {e}") from e
        cursor.execute("SET GLOBAL ferrite_snapshots_kept = 2")
        cursor.execute("SET GLOBAL ferrite_snapshot_interval = 1")
        until = time.monotonic() + 180
        seen: set[str] = set()
        while len(seen) < 4:
            there = _names(server)
            seen.update(there)
            if len(there) > 3 or time.monotonic() > until:
                raise Failed(f"the schedule: {there}")
            time.sleep(0.1)
        cursor.execute("SET GLOBAL ferrite_snapshot_interval = 0")
        cursor.execute("SET GLOBAL ferrite_snapshot_create = 'last'")
        cursor.execute("SET GLOBAL ferrite_snapshot_max_bytes = 1")
        until = time.monotonic() + 180
        while _names(server):
            if time.monotonic() > until:
                raise Failed(f"more than they may: {_names(server)}")
            time.sleep(0.1)
        # It is out of the list before that is said.
        until = time.monotonic() + 60
        while "snapshot last was dropped" not in server.log_tail(2000):
            if time.monotonic() > until:
                raise Failed("nothing is said of it in the error log")
            time.sleep(0.1)
        cursor.execute("SET GLOBAL ferrite_snapshot_max_bytes = DEFAULT")
    _say("names are checked, the schedule keeps two, and the oldest go")


def _check(server: Server) -> str:
    """What ferrite-check says of the stopped server's data."""
    run = ferrite_check(server)
    if run.returncode:
        raise Failed(f"ferrite-check: exit code {run.returncode}: {run.stdout}{run.stderr}")
    return run.stdout


def _snapshot_during_copy(server: Server, partitions: str, rows: int) -> bool:
    """Takes the snapshot `amid` while ALTER TABLE copies test.amid: whether it copied until after that."""
    connection, other = server.connect(autocommit=True), server.connect(autocommit=True)
    with contextlib.closing(connection), contextlib.closing(other), connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS test.amid")
        cursor.execute(f"CREATE TABLE test.amid (id INT PRIMARY KEY, v INT, KEY (v)) ENGINE=FERRITE{partitions}")
        cursor.execute(f"INSERT INTO test.amid SELECT seq, seq FROM test.seq_1_to_{rows}")
        alter = threading.Thread(target=other.cursor().execute, args=("ALTER TABLE test.amid FORCE, ALGORITHM=COPY",))
        alter.start()
        copied = 0.0
        while alter.is_alive() and copied <= 20:
            copied = _percent_copied(cursor, other.thread_id())
        cursor.execute("SET GLOBAL ferrite_snapshot_create = 'amid'")
        # The server's word: the thread may live on for a while after the statement.
        during = 20 < copied <= _percent_copied(cursor, other.thread_id()) < 100
        alter.join()
    return during


def _percent_copied(cursor: Any, thread_id: int) -> float:
    """How far the ALTER TABLE of a connection is; 0 when it does not copy any more."""
    shown = f"SELECT IF(info LIKE 'ALTER%', progress, 0) FROM information_schema.PROCESSLIST WHERE id = {thread_id}"
    return float(one(cursor, shown))


def _amid_alter(server: Server) -> None:
    """A snapshot taken while ALTER TABLE copies: going back to it brings no half of a table."""
    for partitions in ("", " PARTITION BY HASH (id) PARTITIONS 3"):
        rows = 400_000
        while not _snapshot_during_copy(server, partitions, rows):
            # The copy was faster than whoever watched it: on a busy machine he may not have run meanwhile.
            if rows >= 6_400_000:
                raise Failed(f"ALTER TABLE had copied {rows} rows before the snapshot was taken")
            rows *= 2
            _ask(server, "SET GLOBAL ferrite_snapshot_drop = 'amid'")
        server.stop()
        code, text = _tool(server, "amid", "--keep-as", "after")
        if code:
            raise Failed(f"rewind to amid: exit code {code}: {text}")
        if "not finished" not in _check(server):
            raise Failed("the snapshot has no copy in it")
        server.start()
        if "which an ALTER TABLE had not finished" not in server.log_tail(200):
            raise Failed(f"the copy is not dropped: {server.log_tail()}")
        if _ask(server, "SELECT COUNT(*) FROM test.amid FORCE INDEX (v)") != rows:
            raise Failed("rows are lost")
        server.stop()
        if "not finished" in _check(server):
            raise Failed("the copy is still there")
        server.start()
        for name in ("amid", "after"):
            _ask(server, f"SET GLOBAL ferrite_snapshot_drop = '{name}'")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tests/snapshots/run.sh", description=__doc__)
    parser.add_argument("--ci", action="store_true", help="the short version")
    parser.add_argument("--rounds", type=int, help="snapshots under load (20; 5 with --ci)")
    parser.add_argument("--crashes", type=int, help="kill -9 of each kind (20; 2 with --ci)")
    parser.add_argument(
        "--rows", type=int, default=0, help="rows of --only measure, 1 KB each (5 GB of them; 50 MB with --ci)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parts = ["rounds", "opened", "crashes", "rest", "measure"]
    parser.add_argument("--only", choices=parts, help="a part of it, without the launcher")
    options = parser.parse_args()
    stop_on_signals()
    places = find_places()
    if options.only == "measure":
        return measure(places, _say, options.ci, options.rows)
    count = options.rounds or (5 if options.ci else 20)
    crashes = options.crashes or (2 if options.ci else 20)
    home = home_in_memory()
    server = Server(places, engine("ferrite"), OPTIONS, home / "server")
    try:
        server.start()
        fill(server)
        if options.only in (None, "rounds"):
            under_load(server, count, 4, options.seed)
        if options.only in (None, "opened"):
            opened(server, home, rewound, _say)
        if options.only in (None, "rest"):
            _definitions(server)
            _killed_in_ddl(server)
            _amid_alter(server)
        if options.only in (None, "crashes"):
            cut_off(server, crashes, options.seed)
            _crashes(server, crashes, options.seed)
        if options.only in (None, "rest"):
            _bounds(server)
        server.stop()
    except Failed as e:
        _say(f"FAILED: {e}\n{server.log_tail()}")
        return 1
    finally:
        server.remove()
        shutil.rmtree(home, ignore_errors=True)
    _say("snapshots: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
