"""Row events that do not have all columns (binlog_row_image=MINIMAL, NOBLOB): who applies them needs the whole row all the same."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path

from corners.env import DATABASE, Env, Session, equal, expect, options
from corners.replicas import catch_up, follow, replicating_server, session_on

ROWS = "SELECT * FROM a ORDER BY 1, 2"
TRIGGERS = [
    "CREATE TRIGGER up BEFORE UPDATE ON a FOR EACH ROW INSERT INTO seen VALUES (OLD.y, NEW.y)",
    "CREATE TRIGGER down BEFORE DELETE ON a FOR EACH ROW INSERT INTO seen VALUES (OLD.x, OLD.y)",
]
CASES: dict[str, tuple[str, str, list[str]]] = {
    "key of two columns": (
        "x INT, y INT, KEY (x, y)",
        "(1, 1, 1), (2, 2, 2)",
        ["UPDATE a SET y=9 WHERE id=2", "UPDATE a SET x=8 WHERE id=1"],
    ),
    "primary key changes": (
        "x INT, y INT, KEY (x)",
        "(1, 1, 1), (2, 2, 2)",
        ["UPDATE a SET id=id+10", "DELETE FROM a WHERE x=2"],
    ),
    "virtual column with an index": (
        "x INT, y INT, v INT AS (x + y) VIRTUAL, KEY (v)",
        "(1, 1, 1, DEFAULT), (2, 2, 2, DEFAULT), (3, 3, 3, DEFAULT)",
        ["UPDATE a SET y=7 WHERE id=2", "DELETE FROM a WHERE id=3"],
    ),
    "stored generated column": (
        "x INT, y TEXT, v INT AS (x + 7) STORED, w INT AS (LENGTH(y)) STORED UNIQUE",
        "(1, 10, REPEAT('a', 20000), DEFAULT, DEFAULT), (2, 20, 'b', DEFAULT, DEFAULT)",
        ["UPDATE a SET y='jj' WHERE id=2", "UPDATE a SET x=3 WHERE id=1", "UPDATE a SET id=5 WHERE id=2"],
    ),
    "unique key on TEXT": (
        "x TEXT, y INT, UNIQUE KEY (x)",
        "(1, REPEAT('a', 3000), 1), (2, 'b', 2), (3, 'c', 3)",
        [
            "UPDATE a SET id=12 WHERE id=2",
            "UPDATE a SET y=5",
            "UPDATE a SET x='z' WHERE id=1",
            "DELETE FROM a WHERE id=3",
        ],
    ),
    "values out of line": (
        "x BLOB, y INT, KEY (y)",
        "(1, REPEAT('a', 30000), 1), (2, REPEAT('b', 9000), 2), (3, REPEAT('c', 40000), 3)",
        [
            "UPDATE a SET y=y+1",
            "UPDATE a SET x=CONCAT(x, 'x') WHERE id=2",
            "UPDATE a SET id=9 WHERE id=1",
            "DELETE FROM a WHERE y=4",
        ],
    ),
    "default with ON UPDATE": (
        "x INT, y INT, d DATETIME DEFAULT '2020-01-01' ON UPDATE NOW(), KEY (d, x)",
        "(1, 1, 1, DEFAULT), (2, 2, 2, DEFAULT)",
        ["UPDATE a SET y=9 WHERE id=2"],
    ),
}
VERSIONS = (
    "CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT, KEY (x, y)) WITH SYSTEM VERSIONING",
    "(1, 1, 1), (2, 2, 2)",
    ["UPDATE a SET y=9 WHERE id=2", "DELETE FROM a WHERE id=1"],
)
HISTORY = (
    "CREATE TABLE a (id INT PRIMARY KEY, x INT NOT NULL, y VARCHAR(20), t TEXT) WITH SYSTEM VERSIONING",
    "(1, 1, 'one', REPEAT('b', 20000)), (2, 2, 'two', 'c'), (3, 3, NULL, NULL), (4, 4, 'four', 'd')",
    [
        "DELETE FROM a WHERE id=1",
        "DELETE FROM a WHERE x=4 ORDER BY id LIMIT 1",
        "UPDATE a SET x=9 WHERE id=2",
        "DELETE FROM a",
    ],
)
PARTITIONED = (
    "CREATE TABLE a (id INT PRIMARY KEY, x INT NOT NULL, y BLOB, KEY (x)) PARTITION BY HASH (id) PARTITIONS 3",
    "(1, 1, REPEAT('b', 20000)), (2, 2, 'a'), (3, 3, NULL)",
    ["UPDATE a SET id=id+10", "UPDATE a SET x=x+1", "DELETE FROM a WHERE id=11"],
)
NO_KEY = (
    "CREATE TABLE a (id INT, x INT, y BLOB, KEY (x))",
    "(1, 1, REPEAT('b', 20000)), (2, 2, 'a'), (2, 2, 'a'), (3, 3, NULL)",
    ["UPDATE a SET x=9 WHERE id=2 LIMIT 1", "UPDATE a SET id=7 WHERE x=3", "DELETE FROM a WHERE id=1"],
)


def _stories() -> list[tuple[str, str, str, list[str]]]:
    """Name, table, first rows, changes."""
    made = [
        (name, f"CREATE TABLE a (id INT PRIMARY KEY, {columns})", rows, changes)
        for name, (columns, rows, changes) in CASES.items()
    ]
    return [
        *made,
        ("versions", *VERSIONS),
        ("history", *HISTORY),
        ("partitions", *PARTITIONED),
        ("no primary key", *NO_KEY),
    ]


def _fill(session: Session, table: str, rows: str) -> None:
    session.run("DROP TABLE IF EXISTS a, seen")
    session.run(table)
    session.run("CREATE TABLE seen (a INT, b INT)")
    session.run(f"INSERT INTO a VALUES {rows}")


def _compare(primary: Session, replica: Session, what: str) -> None:
    equal(replica.answer(ROWS), primary.answer(ROWS), what)
    if ", history: " in what and "NOBLOB" not in what:
        # (With NOBLOB the server leaves values of the history out, with InnoDB too.)
        history = "SELECT * FROM a FOR SYSTEM_TIME ALL ORDER BY id, row_start, row_end"
        equal(replica.answer(history), primary.answer(history), f"history: {what}")
    equal(replica.answer("CHECK TABLE a EXTENDED")[-1][3], "OK", f"CHECK: {what}")  # type: ignore[index]


def _replicate(image: str, *replica_options: str) -> None:
    with (
        replicating_server(1, "FERRITE", "--binlog-format=ROW", f"--binlog-row-image={image}") as (primary, port),
        replicating_server(2, "FERRITE", *replica_options) as (replica, _),
    ):
        admin = session_on(primary, None)
        admin.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        first = session_on(primary)
        follower = follow(replica, port, "conservative", 2)
        catch_up(primary, follower, 50)
        second = session_on(replica)
        for name, table, rows, changes in _stories():
            _fill(first, table, rows)
            for sql in changes:
                first.run(sql)
                catch_up(primary, follower, 50)
                _compare(first, second, f"{image}, {name}: {sql}")
        _fill(first, "CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT)", "(0, 0, 0)")
        catch_up(primary, follower, 50)
        second.run("SET sql_log_bin=0")
        second.run("ALTER TABLE a ADD COLUMN more INT AS (x + y) VIRTUAL, ADD KEY (more)")
        for sql in (
            "INSERT INTO a VALUES (1, 1, 1), (2, 2, 2)",
            "UPDATE a SET y=9 WHERE id=2",
            "DELETE FROM a WHERE id=1",
        ):
            first.run(sql)
            catch_up(primary, follower, 50)
            equal(
                second.answer("SELECT id, x, y FROM a ORDER BY 1"), first.answer(ROWS), f"{image}, more columns: {sql}"
            )
            equal(second.answer("CHECK TABLE a EXTENDED")[-1][3], "OK", f"CHECK, {image}, more columns: {sql}")  # type: ignore[index]
        equal(second.answer("SELECT more FROM a FORCE INDEX (more)"), [(0,), (11,)], "the column of the replica alone")
        second.run("SET sql_log_bin=1")
        second.run("SET GLOBAL slave_run_triggers_for_rbr=YES")
        _fill(first, "CREATE TABLE a (id INT PRIMARY KEY, x INT, y INT)", "(1, 1, 1), (2, 2, 2)")
        catch_up(primary, follower, 50)
        second.run("SET sql_log_bin=0")
        for sql in TRIGGERS:
            second.run(sql)
        first.run("UPDATE a SET x=4 WHERE id=1")
        first.run("DELETE FROM a WHERE id=2")
        catch_up(primary, follower, 50)
        equal(second.answer("SELECT * FROM seen ORDER BY 1"), [(1, 1), (2, 2)], f"{image}: what triggers see")


@options()
def scenario_replica(env: Env) -> None:
    """A replica that logs as little as it gets, or nothing at all."""
    env.stop()
    for image in ("MINIMAL", "NOBLOB"):
        _replicate(image, f"--binlog-row-image={image}")
    _replicate("MINIMAL", "--skip-log-bin", "--skip-log-slave-updates")


def _binlog_statements(session: Session, path: Path, log: str) -> list[str]:
    """What mariadb-binlog makes of a file: the events that say how to read it, and each statement's row events."""
    content = path.read_bytes()
    statements: list[str] = []
    events: list[bytes] = []
    shown = session.run(f"SHOW BINLOG EVENTS IN '{log}'")
    # 11.8 says of some events that they end at 0.
    for (_, begin, kind, *_), (_, end, *_) in itertools.pairwise(shown):
        if kind == "Format_desc":
            statements.append(_binlog([content[begin:end]]))
        elif kind.startswith(("Table_map", "Write_rows", "Update_rows", "Delete_rows")):
            events.append(content[begin:end])
        elif events and kind != "Annotate_rows":
            statements.append(_binlog(events))
            events = []
    return statements


def _binlog(events: list[bytes]) -> str:
    return "BINLOG '" + "\n".join(base64.b64encode(event).decode() for event in events) + "'"


@options("--log-bin=b", "--binlog-format=ROW", "--binlog-row-image=MINIMAL", "--sync-binlog=0")
def scenario_replay(env: Env) -> None:
    """mariadb-binlog's text, run again: what a restore to a point in time does."""
    session = env.session()
    for name, table, rows, changes in _stories():
        _fill(session, table, rows)
        session.run("FLUSH BINARY LOGS")
        log = str(session.run("SHOW MASTER STATUS")[0][0])
        for sql in changes:
            session.run(sql)
        expected = session.answer(ROWS)
        session.run("FLUSH BINARY LOGS")
        statements = _binlog_statements(session, env.server.datadir / log, log)
        expect(len(statements) > len(changes), "nothing to replay")
        _fill(session, table, rows)
        again = env.session()
        again.run("SET sql_log_bin=0")
        for statement in statements:
            again.run(statement)
        equal(again.answer(ROWS), expected, f"replayed: {name}")
        equal(again.answer("CHECK TABLE a EXTENDED")[-1][3], "OK", f"CHECK: {name}")  # type: ignore[index]
