"""Versioned tables whose history is in partitions of its own (PARTITION BY SYSTEM_TIME): DELETE moves the whole row there."""

from __future__ import annotations

from corners.env import Env, Session, equal

COLUMNS = (
    "id INT PRIMARY KEY, a INT NOT NULL, b VARCHAR(20) DEFAULT 'dflt', c TEXT NOT NULL, d BLOB, e DECIMAL(9,3),"
    " g INT AS (a * 2) STORED, v VARCHAR(60) AS (CONCAT(a, '-', b)) VIRTUAL, KEY (a), KEY kv (v)"
)
HISTORIES = (
    "PARTITION BY SYSTEM_TIME LIMIT 1000 PARTITIONS 3",
    "PARTITION BY SYSTEM_TIME INTERVAL 1 YEAR STARTS '1970-01-01' (PARTITION p0 HISTORY, PARTITION pn CURRENT)",
    "PARTITION BY HASH (id) PARTITIONS 2",
    "",
)
ROWS = "INSERT INTO t (id, a, b, c, d, e) VALUES " + ", ".join(
    f"({n}, {n % 3}, 'x{n}', REPEAT('c{n}', 3000), REPEAT('d', {n * 2000}), {n}.5)" for n in range(1, 13)
)
CHANGES = (
    "DELETE FROM t WHERE id = 1",
    "DELETE FROM t WHERE a = 2 ORDER BY id DESC LIMIT 1",
    "DELETE t FROM t JOIN u ON t.id = u.a",
    "DELETE FROM t WHERE id = 6 RETURNING id",
    "UPDATE t SET b = 'new' WHERE id = 7",
    "UPDATE t SET id = 108 WHERE id = 8",
    "REPLACE INTO t (id, a, c) VALUES (9, 1, 'replaced')",
    "INSERT INTO t (id, a, c) VALUES (10, 1, 'r') ON DUPLICATE KEY UPDATE e = 7",
    "DELETE FROM t",
)
SEEN = (
    "SELECT id, a, b, MD5(c), MD5(d), e, g, v, row_end < NOW(6) FROM t FOR SYSTEM_TIME ALL"
    " ORDER BY id, row_start, row_end"
)


def scenario_whole_rows_in_history(env: Env) -> None:
    """DELETE wrote to the history only the columns that it had read: the others were NULL, or empty."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for history in HISTORIES:
            session.run("CREATE OR REPLACE TABLE u (a INT)")
            session.run("INSERT INTO u VALUES (4), (5)")
            session.run(f"CREATE OR REPLACE TABLE t ({COLUMNS}) ENGINE={engine} WITH SYSTEM VERSIONING {history}")
            session.run(ROWS)
            for change in CHANGES:
                seen.append((history, change, session.error(change), session.run(SEEN)))
            equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", f"{engine} {history}")
        return seen

    env.same_as_innodb(play)


def _delete_beside(session: Session, trigger: str) -> object:
    session.run("CREATE OR REPLACE TABLE log (id INT, b VARCHAR(20))")
    session.run(f"CREATE TRIGGER tr {trigger} DELETE ON t FOR EACH ROW INSERT INTO log VALUES (OLD.id, OLD.b)")
    session.run("PREPARE one FROM 'DELETE FROM t WHERE id = ?'")
    session.run("BEGIN")
    session.run("SELECT id FROM t WHERE id = 2 FOR UPDATE")
    session.run("EXECUTE one USING 2")
    session.run("SAVEPOINT s")
    session.run("EXECUTE one USING 3")
    session.run("ROLLBACK TO s")
    session.run("COMMIT")
    return session.run(SEEN), session.run("SELECT * FROM log")


def scenario_deleted_beside_triggers(env: Env) -> None:
    """The same with triggers, prepared statements, savepoints and rows that were locked before."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for trigger in ("BEFORE", "AFTER"):
            session.run(f"CREATE OR REPLACE TABLE t ({COLUMNS}) ENGINE={engine} WITH SYSTEM VERSIONING {HISTORIES[0]}")
            session.run(ROWS)
            seen.append(_delete_beside(session, trigger))
        return seen

    env.same_as_innodb(play)
