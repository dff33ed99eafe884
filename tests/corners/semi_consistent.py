"""Semi-consistent reads of UPDATE at READ COMMITTED and below, beside InnoDB in the same server: which rows a statement waits for,
what it changes once it need not wait any more, and what is locked afterwards. Without snapshot isolation, under which (the default of
11.8) InnoDB does without such reads."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect, slow

LEVELS = ("READ UNCOMMITTED", "READ COMMITTED")
NO_SNAPSHOT_ISOLATION = "SET innodb_snapshot_isolation = OFF, ferrite_snapshot_isolation = OFF"
TABLES = {
    "plain": "",
    "hash": " PARTITION BY HASH (id) PARTITIONS 3",
    "range": " PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (25), PARTITION b VALUES LESS THAN MAXVALUE)",
}

# What the other transaction has changed: rows 10 to 60 are there, with k = v = id and a long text.
CHANGES = (
    "UPDATE t SET v = 1000, c = REPEAT('n', 30000) WHERE id = 20",
    "DELETE FROM t WHERE id = 30",
    "INSERT INTO t VALUES (35, 35, 35, REPEAT('i', 30000))",
    "REPLACE INTO t VALUES (40, 40, 2000, 'short')",
    "UPDATE t SET id = 55 WHERE id = 50",
)

STATEMENTS = (
    "UPDATE t SET v = v + 1 WHERE v = 10",
    "UPDATE t SET v = v + 1 WHERE v = 20",
    "UPDATE t SET v = v + 1 WHERE v >= 1000",
    "UPDATE t SET v = v + 1 WHERE id >= 10 AND c LIKE 'n%'",
    "UPDATE t SET v = v + 1 WHERE id >= 10 AND c LIKE 'o%' AND v < 15",
    "UPDATE t SET v = v + 1 WHERE id BETWEEN 15 AND 25 AND v = 7",
    "UPDATE t SET v = v + 1 WHERE id = 20 AND v = 7",
    "UPDATE t SET v = v + 1 WHERE v IN (10, 60) ORDER BY id DESC LIMIT 1",
    "UPDATE t SET v = v + 1 WHERE v IN (10, 60) ORDER BY v LIMIT 1",
    "UPDATE t SET id = id + 100 WHERE v = 10",
    "UPDATE t FORCE INDEX (k) SET v = v + 1 WHERE k >= 10 AND v = 10",
    "UPDATE t JOIN (SELECT 10 AS x) AS d SET t.v = t.v + 1 WHERE t.v = d.x",
    "DELETE FROM t WHERE v = 10",
    "SELECT id FROM t WHERE v = 10 FOR UPDATE",
)


def _make(session: Session, engine: str, table: str) -> None:
    session.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, v INT, c LONGTEXT, KEY k (k)) ENGINE={engine}{TABLES[table]}"
    )
    session.run("INSERT INTO t SELECT seq * 10, seq * 10, seq * 10, REPEAT('o', 20000) FROM seq_1_to_6")


def _session(env: Env, level: str, timeout: int = 50) -> Session:
    session = env.session()
    session.run(NO_SNAPSHOT_ISOLATION)
    session.run(f"SET innodb_lock_wait_timeout = {timeout}, ferrite_lock_wait_timeout = {timeout}")
    session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    return session


def _free(third: Session) -> list[int]:
    """The rows that a third session can lock."""
    third.run("START TRANSACTION")
    found = [n for n in range(5, 165, 5) if third.answer(f"SELECT id FROM t WHERE id = {n} FOR UPDATE") != 1205]
    third.run("ROLLBACK")
    return found


def _outcomes(env: Env, engine: str, table: str, level: str, change: str) -> list[object]:
    first, other, third = _session(env, level), _session(env, level), _session(env, level, 0)
    _make(first, engine, table)
    seen: list[object] = []
    for sql in STATEMENTS:
        first.run("START TRANSACTION")
        first.run(change)
        other.run("START TRANSACTION")
        running = other.start(sql)
        if env.blocks(running):
            first.run(f"KILL QUERY {other.id}")
        answer = running.answer()
        rows = other.run("SELECT id, k, v, LENGTH(c) FROM t WHERE id < 20 OR id = 60 ORDER BY id")
        seen.append((table, level, change, sql, answer, rows, _free(third)))
        other.run("ROLLBACK")
        first.run("ROLLBACK")
    seen.append(first.run("SELECT id, k, v, LENGTH(c) FROM t ORDER BY id"))
    equal(first.run("CHECK TABLE t")[0][3], "OK", "check")
    for session in (first, other, third):
        session.close()
    return seen


def _compare(env: Env, table: str) -> None:
    for level in LEVELS:
        for change in CHANGES:
            env.same_as_innodb(lambda engine, w=(level, change): _outcomes(env, engine, table, *w))


def scenario_whom_an_update_waits_for(env: Env) -> None:
    """Each statement beside each change of another transaction: the same answer, the same rows locked."""
    _compare(env, "plain")


def scenario_partitions(env: Env) -> None:
    """As above; a partitioned table hands the reads on to its partitions."""
    _compare(env, "hash")


@slow
def scenario_other_partitions(env: Env) -> None:
    """And by range."""
    _compare(env, "range")


def scenario_what_changed_meanwhile(env: Env) -> None:
    """A row that matched in its committed state is looked at again once it is free: it may not match any more, or be gone."""

    def play(engine: str) -> list[object]:
        seen: list[object] = []
        for change in (*CHANGES, "UPDATE t SET v = v + 1 WHERE id = 20"):
            for end in ("COMMIT", "ROLLBACK"):
                first, other = env.session(), env.session()
                other.run(NO_SNAPSHOT_ISOLATION)
                _make(first, engine, "hash")
                other.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
                first.run("START TRANSACTION")
                first.run(change)
                other.run("START TRANSACTION")
                running = other.start("UPDATE t SET v = v + 100 WHERE v BETWEEN 20 AND 50 AND c LIKE 'o%'")
                waits = env.blocks(running)
                first.run(end)
                seen.append((change, end, waits, running.answer()))
                other.run("COMMIT")
                seen.append(other.run("SELECT id, k, v, LENGTH(c) FROM t ORDER BY id"))
                first.run("DROP TABLE t")
                first.close()
                other.close()
        return seen

    env.same_as_innodb(play)


def scenario_kill_and_timeout(env: Env) -> None:
    """KILL and the lock wait timeout end a wait for a row that was read without a lock; nothing stays locked."""
    first, other = env.session(), env.session()
    _make(first, "FERRITE", "plain")
    other.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    first.run("START TRANSACTION")
    first.run("UPDATE t SET v = 1000 WHERE id = 20")
    other.run("SET ferrite_lock_wait_timeout = 100")
    running = other.start("UPDATE t SET v = v + 1 WHERE v IN (20, 60)")
    expect(env.blocks(running), "it waits")
    env.session().run(f"KILL QUERY {other.id}")
    equal(running.answer(), 1317, "killed")
    other.run("SET ferrite_lock_wait_timeout = 1")
    equal(other.answer("UPDATE t SET v = v + 1 WHERE v IN (20, 60)"), 1205, "timeout")
    third = _session(env, "READ COMMITTED", 0)
    equal(_free(third)[-1], 160, "the end of the table")
    expect(60 in _free(third), "row 60 is free")
    first.run("ROLLBACK")
    equal(other.changed("UPDATE t SET v = v + 1 WHERE v IN (20, 60)"), 2, "and then it goes")


def scenario_triggers(env: Env) -> None:
    """A trigger sees only rows that are changed, once each, and not the state that was looked at without a lock."""

    def play(engine: str) -> list[object]:
        first, other = env.session(), env.session()
        _make(first, engine, "plain")
        first.run(f"CREATE TABLE seen (n INT AUTO_INCREMENT PRIMARY KEY, id INT, was INT, is_now INT) ENGINE={engine}")
        first.run(
            "CREATE TRIGGER b BEFORE UPDATE ON t FOR EACH ROW INSERT INTO seen VALUES (NULL, OLD.id, OLD.v, NEW.v)"
        )
        other.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        first.run("START TRANSACTION")
        first.run("UPDATE t SET v = v + 1000 WHERE id IN (20, 30)")
        running = other.start("UPDATE t SET v = v + 1 WHERE v < 25 OR v > 1000")
        waits = env.blocks(running)
        first.run("COMMIT")
        return [
            waits,
            running.answer(),
            other.run("SELECT id, was, is_now FROM seen ORDER BY id, was"),
            other.run("SELECT id, v FROM t"),
        ]

    env.same_as_innodb(play)
