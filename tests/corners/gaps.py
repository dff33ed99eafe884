"""Gaps: what a locking read keeps others from inserting, in both directions and by every access path."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect

ROWS = (10, 20, 30, 40, 50)
BETWEEN = (5, 15, 25, 35, 45, 55)

TABLES = {
    "plain": "",
    "parts": " PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (25), PARTITION p1 VALUES LESS THAN MAXVALUE)",
}

# Ranges, and the columns that have an index of their own.
RANGES = (
    "{c} < 30",
    "{c} <= 30",
    "{c} > 20",
    "{c} >= 20",
    "{c} > 20 AND {c} < 40",
    "{c} BETWEEN 20 AND 40",
    "{c} < 27",
)
READS = [
    *(f"SELECT id FROM t FORCE INDEX ({{i}}) WHERE {r} ORDER BY {{c}} DESC" for r in RANGES),
    *(f"SELECT id FROM t FORCE INDEX ({{i}}) WHERE {r} ORDER BY {{c}} DESC LIMIT 1" for r in RANGES),
    *(f"SELECT id FROM t FORCE INDEX ({{i}}) WHERE {r} ORDER BY {{c}}" for r in RANGES),
    "SELECT id FROM t FORCE INDEX ({i}) WHERE {c} < 5 ORDER BY {c} DESC",
    "SELECT id FROM t FORCE INDEX ({i}) WHERE {c} > 52 ORDER BY {c} DESC",
    "SELECT id FROM t FORCE INDEX ({i}) WHERE {c} > 21 AND {c} < 24 ORDER BY {c} DESC",
    "SELECT id FROM t FORCE INDEX ({i}) ORDER BY {c} DESC LIMIT 2",
    "SELECT id FROM t FORCE INDEX ({i}) ORDER BY {c} LIMIT 2",
    "SELECT MAX({c}) FROM t FORCE INDEX ({i})",
    "SELECT MIN({c}) FROM t FORCE INDEX ({i})",
    "SELECT MAX({c}) FROM t FORCE INDEX ({i}) WHERE {c} < 30",
    "SELECT MAX({c}) FROM t FORCE INDEX ({i}) WHERE {c} <= 30",
    "SELECT MIN({c}) FROM t FORCE INDEX ({i}) WHERE {c} > 30",
    "SELECT id FROM t FORCE INDEX ({i}) WHERE {c} = 30",
    "SELECT id FROM t FORCE INDEX ({i}) WHERE {c} = 33",
]
INDEXES = {"id": "PRIMARY", "k": "k", "u": "u"}


def _make(session: Session, engine: str, table: str) -> None:
    unique = "UNIQUE KEY" if table == "plain" else "KEY"
    session.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, k INT NOT NULL, u INT NOT NULL, v INT, KEY k (k), {unique} u (u))"
        f" ENGINE={engine}{TABLES[table]}"
    )
    session.run("INSERT INTO t VALUES " + ", ".join(f"({n}, {n}, {n}, 0)" for n in ROWS))


def _impatient(env: Env) -> Session:
    session = env.session()
    session.run("SET innodb_lock_wait_timeout = 0, ferrite_lock_wait_timeout = 0")
    return session


def _refused(other: Session, column: str, number: int) -> bool:
    """Does an insert of that number, which is the value of every column, wait?"""
    other.run("START TRANSACTION")
    answer = other.answer(f"INSERT INTO t VALUES ({number}, {number}, {number}, 1)")
    other.run("ROLLBACK")
    expect(answer == [] or answer in (1205, 1213), f"insert of {column} {number}", answer)
    return answer != []


def _outcomes(env: Env, engine: str, table: str, level: str, suffix: str, column: str) -> list[object]:
    first, other = env.session(), _impatient(env)
    _make(first, engine, table)
    first.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    seen: list[object] = []
    for read in READS:
        if column == "u" and read.endswith("{c} = 30"):
            # InnoDB closes the gap before the one row of a unique secondary key, which no phantom can come into.
            continue
        sql = read.format(c=column, i=INDEXES[column]) + suffix
        first.run("START TRANSACTION")
        rows = first.run(sql)
        seen.append((level, table, sql, rows, [n for n in BETWEEN if _refused(other, column, n)]))
        equal(first.run(sql), rows, f"the same read again: {sql}")
        first.run("ROLLBACK")
    return seen


def _compare(env: Env, table: str, level: str, suffix: str) -> None:
    for column in INDEXES:
        env.same_as_innodb(lambda engine, c=column: _outcomes(env, engine, table, level, suffix, c))


def scenario_for_update(env: Env) -> None:
    """Reads FOR UPDATE close the gaps that InnoDB's close."""
    _compare(env, "plain", "REPEATABLE READ", " FOR UPDATE")


def scenario_serializable(env: Env) -> None:
    """Plain reads at SERIALIZABLE, too."""
    _compare(env, "plain", "SERIALIZABLE", "")


def scenario_shared(env: Env) -> None:
    """And reads LOCK IN SHARE MODE."""
    _compare(env, "plain", "REPEATABLE READ", " LOCK IN SHARE MODE")


def scenario_read_committed(env: Env) -> None:
    """At READ COMMITTED no gap is closed."""
    _compare(env, "plain", "READ COMMITTED", " FOR UPDATE")


def scenario_partitions(env: Env) -> None:
    """Partitions: each has its own gaps."""
    _compare(env, "parts", "REPEATABLE READ", " FOR UPDATE")


def scenario_two_maxima(env: Env) -> None:
    """Two SERIALIZABLE sessions that read the maximum and insert behind it do not both commit."""

    def play(engine: str) -> list[object]:
        one, two = env.session(), env.session()
        _make(one, engine, "plain")
        for session in (one, two):
            session.run("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            session.run("START TRANSACTION")
        seen: list[object] = [one.run("SELECT MAX(id) FROM t"), two.run("SELECT MAX(id) FROM t")]
        running = one.start("INSERT INTO t VALUES (60, 60, 60, 1)")
        seen.append(running.waits())
        seen.append(two.answer("INSERT INTO t VALUES (70, 70, 70, 1)"))
        seen.append(running.answer())
        one.run("COMMIT")
        two.run("COMMIT")
        return seen

    env.same_as_innodb(play)


DELETED_READS = (
    "SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id = 30",
    "SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id = 30 ORDER BY id DESC",
    "SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id IN (20, 30)",
    "SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id >= 30",
    "SELECT id FROM t FORCE INDEX (PRIMARY) WHERE id <= 30 ORDER BY id DESC",
    "SELECT id FROM t FORCE INDEX (u) WHERE u = 30",
    "SELECT id FROM t FORCE INDEX (k) WHERE k = 30",
    "UPDATE t FORCE INDEX (PRIMARY) SET v = v + 1 WHERE id = 30 ORDER BY id DESC",
    "DELETE FROM t WHERE id = 30",
)
"""Of a row that is deleted."""


def _beside_deleted(env: Env, engine: str, level: str, own: bool) -> list[object]:
    """What others can insert beside a read of a row that the reader, or another who has committed, has deleted."""
    first, other, keeper = env.session(), _impatient(env), env.session()
    seen: list[object] = []
    for read in DELETED_READS:
        first.run("DROP TABLE IF EXISTS t")
        _make(first, engine, "plain")
        # An old snapshot keeps the deleted row: InnoDB's purge leaves it where it is, Ferrite's would move it to the archive.
        keeper.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        keeper.run("SELECT COUNT(*) FROM t")
        first.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        if not own:
            other.run("DELETE FROM t WHERE id = 30")
        first.run("START TRANSACTION")
        if own:
            first.run("DELETE FROM t WHERE id = 30")
        locking = " FOR UPDATE" if read.startswith("SELECT") else ""
        rows = first.run(read + locking)
        refused = [n for n in (*BETWEEN, 30) if _refused(other, "id", n)]
        seen.append((level, own, read, rows, refused))
        equal(first.run(read + locking), rows, f"the same again: {read}")
        first.run("ROLLBACK")
        keeper.run("ROLLBACK")
    return seen


def scenario_deleted_rows(env: Env) -> None:
    """A read of a deleted row locks what InnoDB locks: of the primary key the row alone."""
    env.session(None).run("SET GLOBAL ferrite_purge_paused = 1")
    try:
        for level in ("REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"):
            for own in (True, False):
                env.same_as_innodb(lambda engine, x=level, y=own: _beside_deleted(env, engine, x, y))
    finally:
        env.session(None).run("SET GLOBAL ferrite_purge_paused = 0")
