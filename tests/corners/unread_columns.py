"""Changes in which the server takes columns from the record that it has not asked for: each on tables whose records
hold nothing of an earlier statement, and without a binary log, which would make the server read all columns."""

from __future__ import annotations

from corners.env import Env, Session, equal

CHECKED = [("corners.t", "check", "status", "OK")]


def _run(session: Session, engine: str, tables: list[str], statements: list[str], look: list[str]) -> list[object]:
    """Each statement on freshly opened tables, and what there is then."""
    for sql in tables:
        session.run(sql.replace("{e}", f"ENGINE={engine}"))
    answers: list[object] = []
    for statement in statements:
        session.run("FLUSH TABLES")
        answers.append(session.answer(statement))
        answers += [session.answer(sql) for sql in look]
        equal(session.run("CHECK TABLE t EXTENDED"), CHECKED, f"{engine}: after {statement}")
    return answers


def _same(env: Env, tables: list[str], statements: list[str], look: list[str]) -> list[object]:
    return env.same_as_innodb(lambda engine: _run(env.session(), engine, tables, statements, look))


def scenario_rows_that_move_to_another_partition(env: Env) -> None:
    """An UPDATE of several tables inserts the row that it has read into the other partition."""
    tables = [
        "CREATE TABLE t (k INT PRIMARY KEY, b INT, s TEXT) {e} PARTITION BY HASH(k) PARTITIONS 2",
        "CREATE TABLE d (v INT) {e}",
        "INSERT INTO t VALUES (1, 77, 'text'), (11, 78, REPEAT('long', 9000))",
        "INSERT INTO d VALUES (2)",
    ]
    moves = [
        "UPDATE t, d SET t.k = d.v WHERE t.k = 1",
        "UPDATE t, d SET t.k = d.v + 1 WHERE t.k = 2",
        "UPDATE t, d SET t.k = d.v + 10 WHERE t.k BETWEEN 10 AND 11",
        "UPDATE t SET k = k + 1 ORDER BY k DESC",
    ]
    _same(env, tables, moves, ["SELECT k, b, MD5(s) FROM t ORDER BY k"])
    tables = [
        "CREATE TABLE t (p INT, c INT, b INT, e INT, KEY (c), KEY (e)) {e} PARTITION BY HASH(p) PARTITIONS 2",
        "CREATE TABLE d (v INT) {e}",
        "INSERT INTO t VALUES (1, 5, 77, 88), (1, 6, 78, 89)",
        "INSERT INTO d VALUES (2)",
    ]
    moves = [
        "UPDATE t FORCE INDEX (c) STRAIGHT_JOIN d SET t.p = d.v WHERE t.c = 5",
        "UPDATE t FORCE INDEX (c) STRAIGHT_JOIN d SET t.p = d.v WHERE t.c > 5",
        "UPDATE t STRAIGHT_JOIN d SET t.p = t.p + d.v - 1",
    ]
    _same(env, tables, moves, ["SELECT * FROM t ORDER BY c", "SELECT e FROM t FORCE INDEX (e) WHERE e > 0 ORDER BY e"])


def scenario_values_that_stay(env: Env) -> None:
    """SET column = IGNORE, and parameters IGNORE and DEFAULT."""
    tables = [
        "CREATE TABLE t (k INT PRIMARY KEY, a INT, b INT, c INT DEFAULT (b + 1), s TEXT) {e}",
        "INSERT INTO t VALUES (1, 10, 20, 0, 'one'), (2, 11, 21, 0, REPEAT('two', 9000))",
        "CREATE TABLE d (k INT PRIMARY KEY, v INT) {e}",
        "INSERT INTO d VALUES (1, 100), (2, 200)",
    ]
    statements = [
        "UPDATE t SET a = IGNORE, b = 21 WHERE k = 1",
        "UPDATE t SET s = IGNORE, b = b + 1",
        "UPDATE t SET c = DEFAULT, b = IGNORE",
        "UPDATE t SET c = DEFAULT(c)",
        "EXECUTE IMMEDIATE 'UPDATE t SET a = ?, b = ? WHERE k = 1' USING IGNORE, 22",
        "EXECUTE IMMEDIATE 'UPDATE t SET s = ?, b = ?' USING IGNORE, 23",
        "EXECUTE IMMEDIATE 'UPDATE t SET c = ?' USING DEFAULT",
        "EXECUTE IMMEDIATE 'UPDATE t STRAIGHT_JOIN d ON d.k = t.k SET t.a = d.v, t.b = ?' USING IGNORE",
        "UPDATE t STRAIGHT_JOIN d ON d.k = t.k SET t.a = IGNORE, t.b = d.v",
    ]
    _same(env, tables, statements, ["SELECT k, a, b, c, MD5(s) FROM t"])


def scenario_temporary_tables_under_lock_tables(env: Env) -> None:
    """LOCK TABLES names no temporary table: the server does not tell the engine that they are locked."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"CREATE TABLE d (c INT PRIMARY KEY, v INT) ENGINE={engine}")
        session.run("INSERT INTO d VALUES (1, 101), (2, 202)")
        answers: list[object] = []
        for change in ("UPDATE t SET id = id + 100", "UPDATE t STRAIGHT_JOIN d ON d.c = t.c SET t.u = d.v"):
            session.run(
                "CREATE OR REPLACE TEMPORARY TABLE t (id INT PRIMARY KEY, u INT NOT NULL, c INT, UNIQUE KEY k (u))"
                f" ENGINE={engine}"
            )
            session.run("INSERT INTO t VALUES (1, 10, 1), (2, 20, 2)")
            session.run("LOCK TABLES d READ")
            answers.append(session.answer(change))
            answers.append(session.run("SELECT u, id FROM t FORCE INDEX (k) WHERE u > 0 ORDER BY u"))
            equal(session.run("CHECK TABLE t EXTENDED"), CHECKED, f"{engine}: {change}")
            session.run("UNLOCK TABLES")
        return answers

    env.same_as_innodb(play)


def scenario_virtual_columns_of_virtual_columns(env: Env) -> None:
    """An indexed virtual column, two levels above the column that it follows from."""
    tables = [
        "CREATE TABLE t (k INT PRIMARY KEY, a INT, b INT, v1 INT AS (a + 1) VIRTUAL, v2 INT AS (v1 + 1) VIRTUAL,"
        " v3 INT AS (v2 + 1) VIRTUAL, KEY kv (v3)) {e}",
        "INSERT INTO t (k, a) VALUES (1, 10)",
        "CREATE TABLE d (x INT PRIMARY KEY) {e}",
        "INSERT INTO d VALUES (1)",
    ]
    statements = [
        "REPLACE INTO t (k, a) VALUES (1, 20)",
        "INSERT INTO t (k, a) VALUES (1, 5) ON DUPLICATE KEY UPDATE a = 30",
    ]
    look = "SELECT k, v3 FROM t FORCE INDEX (kv) WHERE v3 > 0"
    _same(env, tables, statements, [look])
    # InnoDB's index is damaged after these.
    env.fresh_database()
    statements = [
        "CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW SET NEW.a = NEW.a + 1000",
        "UPDATE d STRAIGHT_JOIN t ON t.k = d.x SET t.b = 1",
    ]
    answers = _run(env.session(), "FERRITE", tables, statements, [look])
    equal(answers[-1], [(1, 1013)], "by the index")


def scenario_periods_that_are_looked_at(env: Env) -> None:
    """WITHOUT OVERLAPS: the server looks for overlaps after each update, at any isolation level."""
    tables = [
        "CREATE TABLE t (k INT PRIMARY KEY, x INT, id INT NOT NULL DEFAULT 2, s DATE, e DATE, PERIOD FOR p (s, e),"
        " UNIQUE KEY u (id, p WITHOUT OVERLAPS)) {e}",
        "INSERT INTO t VALUES (1, 0, 1, '2000-01-01', '2010-01-01'), (2, 0, 2, '1995-01-01', '2001-01-01'),"
        " (3, 0, 2, '2001-01-01', '2012-01-01')",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    ]
    statements = ["UPDATE t SET x = x + 1 WHERE k = 1", "UPDATE t SET x = x + 1", "UPDATE t SET id = 2 WHERE k = 1"]
    _same(env, tables, statements, ["SELECT * FROM t"])
