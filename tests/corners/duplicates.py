"""Duplicate keys: which one is met first, and what is counted."""

from __future__ import annotations

import itertools

from corners.env import Env, equal

KEYS = (
    "a INT PRIMARY KEY, b INT, c INT, UNIQUE (b), UNIQUE (c)",
    "a INT, b INT NOT NULL, c INT, UNIQUE (b), PRIMARY KEY (a), UNIQUE (c)",
    "a INT, b INT NOT NULL, c INT, UNIQUE (c), UNIQUE (b)",
    "a INT AUTO_INCREMENT PRIMARY KEY, b INT, c INT, KEY (c), UNIQUE (b)",
)


def scenario_on_duplicate_key_update(env: Env) -> None:
    """INSERT ... ON DUPLICATE KEY UPDATE changes the row that InnoDB changes, and counts as InnoDB does."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        values = ["(1, 20, 9)", "(5, 10, 8)", "(2, 20, 7)", "(1, 10, 30)", "(7, 7, 20)"]
        for keys in KEYS:
            for rows in itertools.permutations(values, 3):
                session.run(f"CREATE OR REPLACE TABLE t ({keys}) ENGINE={engine}")
                session.run("INSERT INTO t VALUES (1, 10, 10), (2, 20, 20), (3, 30, 30)")
                sql = f"INSERT INTO t VALUES {', '.join(rows)} ON DUPLICATE KEY UPDATE c = c + 100"
                try:
                    seen.append((keys, rows, session.changed(sql)))
                except Exception as e:
                    seen.append((keys, rows, e.args[0]))
                seen.append((keys, rows, session.answer("SELECT * FROM t ORDER BY a, b, c")))
        return seen

    env.same_as_innodb(play)


def scenario_replace_and_ignore(env: Env) -> None:
    """REPLACE and INSERT IGNORE with rows that meet several keys: rows and counts as with InnoDB."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for keys in KEYS:
            for word in ("REPLACE INTO", "INSERT IGNORE INTO"):
                session.run(f"CREATE OR REPLACE TABLE t ({keys}) ENGINE={engine}")
                session.run("INSERT INTO t VALUES (1, 10, 10), (2, 20, 20), (3, 30, 30)")
                seen.append((keys, word, session.changed(f"{word} t VALUES (1, 20, 30), (4, 40, 40), (4, 10, 40)")))
                seen.append((keys, word, session.answer("SELECT * FROM t ORDER BY a, b, c")))
        return seen

    env.same_as_innodb(play)


def scenario_hashed_key_of_an_earlier_statement(env: Env) -> None:
    """A duplicate in a key that the server hashes is forgotten when its statement ends. At READ COMMITTED the server
    keeps it for the next duplicate of an ordinary key: REPLACE and ON DUPLICATE KEY UPDATE then looked for that row."""
    session = env.session()
    for level in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ"):
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        for gone in (True, False):
            for sql in ("REPLACE INTO t VALUES (2, 'z', 2)", "INSERT INTO t VALUES (2, 'q', 2) AS_UPDATE"):
                session.run("CREATE OR REPLACE TABLE t (a INT PRIMARY KEY, b TEXT, c INT, UNIQUE (b)) ENGINE=FERRITE")
                session.run("INSERT INTO t VALUES (1, 'x', 1), (2, 'y', 2)")
                session.run("INSERT INTO t VALUES (3, 'x', 1) ON DUPLICATE KEY UPDATE a = a")
                if gone:
                    session.run("DELETE FROM t WHERE a = 1")
                session.run(sql.replace("AS_UPDATE", "ON DUPLICATE KEY UPDATE b = 'z'"))
                rows = [(2, "z", 2)] if gone else [(1, "x", 1), (2, "z", 2)]
                equal(session.run("SELECT * FROM t ORDER BY a"), rows, f"{level}: {sql}")


def scenario_hashed_key_and_deadlock(env: Env) -> None:
    """Who is the victim of a deadlock in the check of a key that the server hashes gets error 1213. The server goes
    on to take its own row back, which is gone: that gave error 1032."""
    holder, victim = env.session(), env.session()
    holder.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT, UNIQUE (b)) ENGINE=FERRITE")
    holder.run("CREATE TABLE heavy (a INT) ENGINE=FERRITE")
    holder.run("INSERT INTO t VALUES (1, 'x')")
    for session in (holder, victim):
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    for sql in ("REPLACE INTO t VALUES (5, 'x')", "INSERT INTO t VALUES (5, 'x') ON DUPLICATE KEY UPDATE b = 'y'"):
        holder.run("BEGIN")
        holder.run("INSERT INTO heavy SELECT seq FROM seq_1_to_1000")
        holder.run("SELECT * FROM t WHERE a = 1 FOR UPDATE")
        waiting = victim.start(sql)
        equal(env.blocks(waiting), True, sql)
        equal(holder.run("SELECT * FROM t WHERE a = 5 FOR UPDATE"), [], "the holder goes on")
        equal(waiting.answer(), 1213, sql)
        holder.run("ROLLBACK")
        equal(holder.run("SELECT * FROM t"), [(1, "x")], sql)
