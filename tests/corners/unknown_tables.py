"""Tables in the engine that the server does not know: it was killed in DROP or CREATE TABLE of many partitions, or lost files."""

from __future__ import annotations

import contextlib
import threading
import time

import pymysql

from corners.env import DATABASE, Env, equal, expect, slow

PARTS = "PARTITION BY HASH (a) PARTITIONS 7"


def scenario_named_and_removed(env: Env) -> None:
    """The error log names them after a start, CREATE TABLE says what is in the way, and DROP TABLE removes it."""
    session = env.session()
    session.run(f"CREATE TABLE parts (a INT PRIMARY KEY, b TEXT) ENGINE=FERRITE {PARTS}")
    session.run("CREATE TABLE `odd name` (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run(f"CREATE TABLE stays (a INT PRIMARY KEY) ENGINE=FERRITE {PARTS}")
    session.run("INSERT INTO stays VALUES (1), (2)")
    session.run("INSERT INTO parts SELECT seq, REPEAT('x', 20000) FROM seq_1_to_50")
    env.stop()
    database = env.datadir / DATABASE
    kept = {path: path.read_bytes() for path in database.glob("parts.*")}
    expect(len(kept) == 2, "two files of a partitioned table", list(kept))
    for path in [*kept, *database.glob("odd@*.frm")]:
        path.unlink()
    env.start()
    session = env.session()
    env.eventually("a warning", lambda: "2 tables are in the engine and have no .frm file" in env.log())
    expect(f"{DATABASE}.odd name, {DATABASE}.parts (7 partitions)" in env.log(), "their names", env.log()[-2000:])
    equal(session.error(f"CREATE TABLE parts (a INT PRIMARY KEY) ENGINE=FERRITE {PARTS}"), 1005, "one is in the way")
    expect("DROP TABLE removes it" in str(session.warnings()), "what to do", session.warnings())

    # A definition that comes back is enough.
    for path, content in kept.items():
        path.write_bytes(content)
    equal(session.run("SELECT COUNT(*), SUM(LENGTH(b)) FROM parts"), [(50, 1_000_000)], "the rows")
    session.run("FLUSH TABLES")
    for path in kept:
        path.unlink()
    session.run("DROP TABLE parts")
    session.run("DROP TABLE `odd name`")
    equal(session.error("DROP TABLE parts"), 1051, "nothing is left")
    equal(session.run("SELECT * FROM stays ORDER BY a"), [(1,), (2,)], "another table")
    session.run(f"CREATE TABLE parts (a INT PRIMARY KEY) ENGINE=FERRITE {PARTS}")
    session.run("DROP TABLE parts, stays")


def scenario_a_table_in_the_way_of_drop_database(env: Env) -> None:
    """Tables that a prepared transaction has changed stay; the others go all the same."""
    session = env.session()
    session.run("CREATE DATABASE aside")
    session.run("SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
    for name in ("a", "b", "c"):
        session.run(f"CREATE TABLE aside.{name} (a INT PRIMARY KEY) ENGINE=FERRITE")
    env.prepare("x", "INSERT INTO aside.a VALUES (1)")
    # The server drops each table that it knows, and then what the engine has beside.
    session.error("DROP TABLE aside.a")
    session.answer("DROP DATABASE aside")
    session.run("XA COMMIT 'x'")
    session.run("CREATE DATABASE IF NOT EXISTS aside")
    for name in ("b", "c"):
        session.run(f"CREATE TABLE aside.{name} (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("DROP DATABASE aside")
    session.run("CREATE DATABASE aside")
    session.run("CREATE TABLE aside.a (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("DROP DATABASE aside")


@slow
def scenario_what_cut_off_ddl_leaves_is_no_copy(env: Env) -> None:
    """The .frm file of the only table, left by CREATE or DROP TABLE, is not taken for a copy of a directory without rows."""

    def loop() -> None:
        with contextlib.suppress(pymysql.err.Error):
            while True:
                session.run("CREATE TABLE alone (a INT PRIMARY KEY) ENGINE=FERRITE")
                session.run("DROP TABLE alone")

    for n in range(14):
        session = env.session()
        session.answer("DROP TABLE IF EXISTS alone")
        thread = threading.Thread(target=loop)
        thread.start()
        time.sleep(0.1 + 0.013 * n)
        env.crash()
        thread.join()
        equal(env.log().count("ARE MISSING"), 0, f"false alarms of the starts after {n + 1} kills")
