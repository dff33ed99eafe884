"""Statements that change a key without reading the primary key, which its entries end with: without a binary log
nothing else makes the server read it."""

from __future__ import annotations

from corners.env import Env, Session, equal

PRIMARY = [
    "id VARCHAR(20), PRIMARY KEY (id)",
    "id VARCHAR(20) COLLATE utf8mb4_general_ci, PRIMARY KEY (id)",
    "id VARCHAR(20), PRIMARY KEY (id(4))",
    "id DOUBLE, PRIMARY KEY (id)",
    "id INT, PRIMARY KEY (id)",
    "id VARCHAR(20), id2 FLOAT DEFAULT 0.5, PRIMARY KEY (id2, id)",
    "id INT",
]
KEYS = [
    "UNIQUE KEY k (u)",
    "KEY k (u)",
    "KEY k (b(5))",
    "UNIQUE KEY k (u, b)",
    "KEY k (v)",
    "UNIQUE KEY k (v)",
]
STATEMENTS = [
    "UPDATE t STRAIGHT_JOIN d ON d.c = t.c SET t.u = d.v, t.b = CONCAT(d.v, 'texttext')",
    "UPDATE d STRAIGHT_JOIN t ON d.c = t.c SET t.u = d.v + 1, t.b = CONCAT(d.v, 'more text')",
    "UPDATE t STRAIGHT_JOIN d ON d.c = t.c SET t.u = d.v + 2, d.v = d.v + 500",
    "UPDATE t SET u = u + 1, b = CONCAT(u, 'single')",
    "UPDATE t SET u = u + 1 ORDER BY c DESC LIMIT 2",
    "INSERT INTO t (id, u, c, b) SELECT id, u, c, b FROM t AS s ON DUPLICATE KEY UPDATE u = t.u + 5, b = 'duplicate'",
    "UPDATE IGNORE t STRAIGHT_JOIN d ON d.c = t.c SET t.u = d.v + 7",
    "DELETE t FROM t STRAIGHT_JOIN d ON d.c = t.c WHERE d.c = 2",
    "UPDATE t STRAIGHT_JOIN d ON d.c = t.c SET t.b = NULL, t.u = t.u + 20",
]


def _look(session: Session) -> list[object]:
    """The rows, and the same by the key."""
    columns = "id, u, b, v"
    rows = session.run(f"SELECT {columns} FROM t USE INDEX () ORDER BY c")
    keyed = [
        session.run(f"SELECT id FROM t FORCE INDEX (k) WHERE {column} = %s", row[number])
        for row in rows
        for number, column in ((1, "u"), (2, "b"), (3, "v"))
    ]
    covered = session.run("SELECT id, u FROM t FORCE INDEX (k) WHERE u > 0 ORDER BY u, id")
    return [rows, *map(sorted, keyed), covered]


def _play(session: Session, engine: str, primary: str, key: str) -> list[object]:
    session.run(
        f"CREATE TABLE t ({primary}, u INT, c INT, b VARCHAR(50), v INT AS (u * 2) VIRTUAL, {key}) ENGINE={engine}"
    )
    session.run(f"CREATE TABLE d (c INT PRIMARY KEY, v INT) ENGINE={engine}")
    session.run("INSERT INTO t (id, u, c, b) VALUES (11, 1, 1, 'one text'), (22, 2, 2, 'two text'), (33, 3, 3, NULL)")
    session.run("INSERT INTO d VALUES (1, 101), (2, 202), (3, 303)")
    answers: list[object] = []
    for statement in STATEMENTS:
        session.run("FLUSH TABLES")
        answers.append(session.answer(statement))
        answers += _look(session)
        checked = session.run("CHECK TABLE t EXTENDED")
        equal(checked, [("corners.t", "check", "status", "OK")], f"{engine}: {statement} ({primary}, {key})")
    return answers


def scenario_entries_end_with_the_primary_key(env: Env) -> None:
    """Each kind of primary key with each kind of key, by statements on one table and on several."""
    for primary in PRIMARY:
        for key in KEYS:
            env.same_as_innodb(lambda engine, p=primary, k=key: _play(env.session(), engine, p, k))


def scenario_children_are_found(env: Env) -> None:
    """A foreign key that refers to a unique column and the primary key after it."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"CREATE TABLE p (id INT PRIMARY KEY, a INT, k INT, UNIQUE KEY (a)) ENGINE={engine}")
        session.run(
            f"CREATE TABLE ch (x INT PRIMARY KEY, a INT, id INT, FOREIGN KEY (a, id) REFERENCES p (a, id)) ENGINE={engine}"
        )
        session.run(f"CREATE TABLE e (k INT PRIMARY KEY, v INT) ENGINE={engine}")
        session.run("INSERT INTO p VALUES (1, 10, 1), (2, 20, 2)")
        session.run("INSERT INTO ch VALUES (1, 10, 1), (2, 20, 2)")
        session.run("INSERT INTO e VALUES (1, 110), (2, 120)")
        answers: list[object] = []
        for statement in (
            "UPDATE p STRAIGHT_JOIN e ON e.k = p.k SET p.a = e.v",
            "DELETE p FROM p STRAIGHT_JOIN e ON e.k = p.k",
            "UPDATE ch STRAIGHT_JOIN e ON e.k = ch.x SET ch.a = e.v",
        ):
            session.run("FLUSH TABLES")
            answers += [session.answer(statement), session.run("SELECT * FROM p"), session.run("SELECT * FROM ch")]
        return answers

    equal(env.same_as_innodb(play)[0], 1451, "the parents have children")
