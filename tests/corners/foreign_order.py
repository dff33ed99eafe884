"""Rows that violate several keys at once: which error comes, and what restricts before what follows. As InnoDB, index by index."""

from __future__ import annotations

from corners.env import Env, equal, expect
from corners.foreign_rows import _play

PARENT = [
    "CREATE TABLE p (id INT PRIMARY KEY, u1 INT, a INT, b INT, u2 INT, UNIQUE KEY u1 (u1), UNIQUE KEY a (a), UNIQUE KEY b (b),"
    " UNIQUE KEY u2 (u2)) ENGINE={e}",
    "CREATE TABLE c (id INT PRIMARY KEY, i INT, a INT, b INT, CONSTRAINT z FOREIGN KEY (i) REFERENCES p (id) {actions},"
    " CONSTRAINT y FOREIGN KEY (a) REFERENCES p (a) {actions}, CONSTRAINT x FOREIGN KEY (b) REFERENCES p (b)) ENGINE={e}",
    "CREATE TABLE d (n INT, a INT, KEY (a), CONSTRAINT w FOREIGN KEY (a) REFERENCES c (a)) ENGINE={e}",
    "INSERT INTO p VALUES (1, 1, 1, 1, 1), (2, 2, 2, 2, 2), (3, 3, 3, 3, 3), (4, 4, 4, 4, 4)",
    "INSERT INTO c VALUES (1, 1, 1, 1), (2, NULL, 2, NULL), (3, 3, NULL, NULL)",
    "INSERT INTO d VALUES (1, 2)",
]
SETS = (
    "a=4",
    "u1=4, a=9",
    "u2=4, a=9",
    "id=4, a=9",
    "id=9, a=4",
    "b=4, a=9",
    "b=9, u1=4",
    "b=9, u2=4",
    "id=9, u1=4",
    "id=4",
    "a=9",
)
ACTIONS = ("", "ON UPDATE CASCADE", "ON UPDATE SET NULL", "ON DELETE CASCADE ON UPDATE CASCADE")


def scenario_parents(env: Env) -> None:
    """A value that is there already, of a row with children: 1451 if InnoDB looks for them before it gets to the value."""
    changes = [
        f"UPDATE {ignore}p SET {values} WHERE id={number}"
        for values in SETS
        for number in (1, 2, 3)
        for ignore in ("", "IGNORE ")
    ]
    changes += [
        "INSERT INTO p (id) VALUES (1) ON DUPLICATE KEY UPDATE a=4, u2=4",
        "REPLACE INTO p VALUES (9, 9, 1, 2, 3)",
    ]
    for actions in ACTIONS:
        tables = [sql.replace("{actions}", actions) for sql in PARENT]
        env.same_as_innodb(lambda engine, t=tables: _play(env, engine, t, changes, ("p", "c", "d")))


def scenario_children(env: Env) -> None:
    """A child without a parent whose other values are there already."""
    tables = [
        "CREATE TABLE p (id INT PRIMARY KEY) ENGINE={e}",
        "CREATE TABLE c (id INT PRIMARY KEY, u1 INT, f INT, u2 INT, g INT, UNIQUE KEY u1 (u1), UNIQUE KEY f (f), UNIQUE KEY u2 (u2),"
        " KEY (g), CONSTRAINT b FOREIGN KEY (f) REFERENCES p (id), CONSTRAINT a FOREIGN KEY (g) REFERENCES p (id)) ENGINE={e}",
        "CREATE TABLE d (id INT PRIMARY KEY, v INT, CONSTRAINT d FOREIGN KEY (id) REFERENCES p (id)) ENGINE={e}",
        "INSERT INTO p VALUES (1), (2), (3)",
        "INSERT INTO c VALUES (1, 1, 1, 1, 1), (2, 2, 2, 2, 2)",
        "SET foreign_key_checks=0",
        "INSERT INTO d VALUES (9, 0), (1, 0)",
        "SET foreign_key_checks=1",
    ]
    rows = [
        f"VALUES ({row})"
        for row in (
            "1, 8, 8, 8, 8",
            "5, 1, 8, 8, 8",
            "5, 5, 8, 1, 8",
            "5, 5, 3, 1, 8",
            "5, 5, 3, 5, 8",
            "5, 5, 8, 5, 8",
            "5, 5, 1, 1, 1",
        )
    ]
    changes = [f"{verb} INTO c {row}" for row in rows for verb in ("INSERT", "INSERT IGNORE", "REPLACE")]
    changes += [f"INSERT INTO c {row} ON DUPLICATE KEY UPDATE g=3" for row in rows]
    changes += [f"INSERT INTO d VALUES ({number}, 1)" for number in (9, 1)]
    changes += [f"INSERT INTO d VALUES ({number}, 1) ON DUPLICATE KEY UPDATE v=v+1" for number in (9, 1)]
    changes += [
        f"UPDATE {ignore}c SET {values} WHERE id=1"
        for values in ("f=8, u1=2", "f=8, u2=2", "g=8, u2=2", "f=2", "f=8, g=8", "id=2, f=8", "id=9, g=8, u2=2")
        for ignore in ("", "IGNORE ")
    ]
    env.same_as_innodb(lambda engine: _play(env, engine, tables, changes, ("p", "c", "d")))


def scenario_both_sides(env: Env) -> None:
    """A row between its parent and its children loses both; and one that refers to itself."""
    tables = [
        "CREATE TABLE p (id INT PRIMARY KEY) ENGINE={e}",
        "CREATE TABLE m (id INT PRIMARY KEY, f INT, k INT, UNIQUE KEY f (f), UNIQUE KEY k (k), CONSTRAINT f FOREIGN KEY (f) REFERENCES p (id)) ENGINE={e}",
        "CREATE TABLE c (i INT, k INT, CONSTRAINT i FOREIGN KEY (i) REFERENCES m (id), CONSTRAINT k FOREIGN KEY (k) REFERENCES m (k)) ENGINE={e}",
        "CREATE TABLE t (id INT PRIMARY KEY, up INT, u INT, UNIQUE KEY up (up), UNIQUE KEY u (u), CONSTRAINT s FOREIGN KEY (up) REFERENCES t (id)) ENGINE={e}",
        "INSERT INTO p VALUES (1), (2), (3)",
        "INSERT INTO m VALUES (1, 1, 1), (2, 2, 2), (3, NULL, 3)",
        "INSERT INTO c VALUES (1, NULL), (NULL, 2)",
        "INSERT INTO t VALUES (1, NULL, 1), (2, 1, 2), (3, NULL, 3)",
    ]
    changes = [
        "UPDATE m SET id=9, f=9 WHERE id=1",
        "UPDATE m SET id=9, f=9 WHERE id=2",
        "UPDATE m SET k=9, f=9 WHERE id=2",
        "UPDATE m SET k=9, f=3 WHERE id=2",
        "UPDATE IGNORE m SET id=id+9, f=9, k=9",
        "INSERT INTO t VALUES (7, 7, 1)",
        "INSERT INTO t VALUES (7, 8, 1)",
        "INSERT INTO t VALUES (7, 7, 7)",
        "UPDATE t SET id=7, up=7, u=1 WHERE id=3",
        "UPDATE t SET id=7, up=8, u=1 WHERE id=3",
        "UPDATE t SET id=7, up=1, u=1 WHERE id=3",
        "UPDATE IGNORE t SET u=1, id=id+10",
    ]
    env.same_as_innodb(lambda engine: _play(env, engine, tables, changes, ("p", "m", "c", "t")))


def scenario_restricts_or_follows(env: Env) -> None:
    """What of two foreign keys comes first decides whether one restricts the other: by the parent's indexes, not by names."""
    tables = [
        "CREATE TABLE p (id INT PRIMARY KEY, k INT, l INT, UNIQUE KEY k (k), UNIQUE KEY l (l)) ENGINE={e}",
        "CREATE TABLE a (id INT PRIMARY KEY, f INT, CONSTRAINT {one} FOREIGN KEY (f) REFERENCES p ({first}) ON DELETE CASCADE) ENGINE={e}",
        "CREATE TABLE b (id INT PRIMARY KEY, a INT, g INT, CONSTRAINT n FOREIGN KEY (a) REFERENCES a (id),"
        " CONSTRAINT {two} FOREIGN KEY (g) REFERENCES p ({second}) ON DELETE CASCADE) ENGINE={e}",
        "INSERT INTO p VALUES (1, 1, 1), (2, 2, 2)",
        "INSERT INTO a VALUES (1, 1)",
        "INSERT INTO b VALUES (1, 1, 1)",
    ]
    refused = 0
    for first, second in (("id", "k"), ("k", "id"), ("k", "l"), ("l", "k"), ("k", "k")):
        for one, two in (("x", "y"), ("y", "x")):
            names = {"{one}": one, "{two}": two, "{first}": first, "{second}": second}
            told = tables
            for old, new in names.items():
                told = [sql.replace(old, new) for sql in told]
            answers = env.same_as_innodb(
                lambda engine, t=told: _play(
                    env, engine, t, ["DELETE FROM p WHERE id=1", "DELETE IGNORE FROM p"], ("p", "a", "b")
                )
            )
            refused += "1451" in str(answers)
    equal(refused, 5, "how often one restricts")


def scenario_nothing_remains(env: Env) -> None:
    """What was followed, to find out which error there is, is undone, and the row can be changed within the same transaction."""
    session = env.session()
    for sql in PARENT:
        session.run(sql.replace("{e}", "FERRITE").replace("{actions}", "ON UPDATE CASCADE"))
    session.run("INSERT INTO c SELECT seq + 100, NULL, 1, NULL FROM seq_1_to_2000")
    before = session.run("SELECT * FROM c ORDER BY id")
    session.run("BEGIN")
    equal(session.answer("UPDATE p SET a=9, u2=4 WHERE id=1"), 1062, "a duplicate behind what follows")
    equal(session.answer("UPDATE p SET a=4 WHERE id=1"), 1062, "a duplicate of what is referred to")
    equal(session.run("SELECT * FROM c ORDER BY id"), before, "the children")
    session.run("UPDATE p SET a=9 WHERE id=1")
    equal(session.value("SELECT COUNT(*) FROM c WHERE a=9"), 2001, "they follow")
    session.run("ROLLBACK")
    equal(session.run("SELECT * FROM c ORDER BY id"), before, "the children")
    for table in ("p", "c", "d"):
        equal(session.run(f"CHECK TABLE {table} EXTENDED")[-1][2:], ("status", "OK"), table)


def scenario_a_child_without_its_index(env: Env) -> None:
    """It finds its parent by the parent's index: that cannot go, and a value of another type is nobody's."""
    session = env.session()
    session.run("CREATE TABLE p (id INT PRIMARY KEY, k INT NOT NULL, UNIQUE uk (k)) ENGINE=FERRITE")
    session.run(
        "CREATE TABLE c (id INT PRIMARY KEY, k INT NOT NULL, KEY ck (k), CONSTRAINT f FOREIGN KEY (k) REFERENCES p (k)) ENGINE=FERRITE"
    )
    session.run("SET foreign_key_checks=0")
    session.run("ALTER TABLE c DROP INDEX ck")
    session.run("SET foreign_key_checks=1")
    session.run("INSERT INTO p VALUES (1, 5)")
    session.run("INSERT INTO c VALUES (1, 5)")
    equal(session.error("INSERT INTO c VALUES (2, 6)"), 1452, "no parent")
    equal(session.error("ALTER TABLE p DROP INDEX uk"), 1553, "in place")
    for how in ("COPY", "DEFAULT"):
        expect(session.error(f"ALTER TABLE p DROP INDEX uk, ALGORITHM={how}") in (1025, 1553), how)
    equal(session.error("DELETE FROM p"), 1451, "a child")
    session.run("DROP TABLE c, p")

    for type_there in ("INT", "INT UNSIGNED", "BIGINT", "DOUBLE", "VARBINARY(8)", "VARCHAR(8) COLLATE latin1_bin"):
        session.run("SET foreign_key_checks=0")
        session.run(
            "CREATE TABLE c (id INT PRIMARY KEY, a TINYINT NOT NULL, KEY k (a), CONSTRAINT f FOREIGN KEY (a) REFERENCES p (a)) ENGINE=FERRITE"
        )
        session.run("ALTER TABLE c DROP INDEX k")
        session.run("SET foreign_key_checks=1")
        session.run(f"CREATE TABLE p (a {type_there} PRIMARY KEY) ENGINE=FERRITE")
        session.run("INSERT INTO p VALUES (1), (0)")
        equal([session.error(f"INSERT INTO c VALUES (1, {n})") for n in (0, 1, -1)], [1452] * 3, type_there)
        session.run("DROP TABLE c")
        session.run("DROP TABLE p")


def scenario_a_trial_leaves_no_trace(env: Env) -> None:
    """What follows from a row that is not written, for a duplicate, is undone, the counter of a child with it."""
    session = env.session()
    session.run("CREATE TABLE p (id TINYINT PRIMARY KEY) ENGINE=FERRITE")
    session.run(
        "CREATE TABLE c (pid TINYINT AUTO_INCREMENT, v VARCHAR(9000), KEY (pid),"
        " FOREIGN KEY (pid) REFERENCES p (id) ON UPDATE CASCADE) ENGINE=FERRITE"
    )
    session.run("INSERT INTO p VALUES (1), (2), (127)")
    session.run("INSERT INTO c VALUES (1, REPEAT('v', 9000))")
    for word in ("", "IGNORE"):
        equal(session.error(f"UPDATE {word} p SET id=127 WHERE id=1"), 0 if word else 1062, word)
        equal(session.run("SELECT pid, LENGTH(v) FROM c"), [(1, 9000)], word)
    session.run("INSERT INTO c (v) VALUES ('next')")
    equal(session.run("SELECT pid FROM c ORDER BY pid"), [(1,), (2,)], "the counter")
    for table in ("p", "c"):
        equal(session.run(f"CHECK TABLE {table} EXTENDED")[-1][3], "OK", table)
