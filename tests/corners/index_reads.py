"""What the server asks of an index in several steps: ranges with a condition, rows fetched in batches, partitions in one order."""

from __future__ import annotations

import time

from corners.env import Env, Session, equal, expect, options

SWITCHES = "mrr=on,mrr_sort_keys=on,mrr_cost_based=off,join_cache_incremental=on,join_cache_hashed=on,join_cache_bka=on"


def scenario_ranges_that_end_in_a_prefix_of_the_primary_key(env: Env) -> None:
    """A condition on the entry does not end a range by a column that the entry does not have."""
    where = "WHERE c = 1 AND a IN (1, 2) AND b BETWEEN 'a' AND 'm'"

    def play(engine: str) -> list[object]:
        s = env.session()
        s.run(
            "CREATE TABLE t (a INT NOT NULL, b VARCHAR(20) NOT NULL, c INT NOT NULL, d INT,"
            f" PRIMARY KEY (a, b(3)), KEY k (c, a)) ENGINE={engine}"
        )
        s.run("INSERT INTO t VALUES (1, 'zzz', 1, 0), (2, 'bbb', 1, 0)")
        s.run("INSERT INTO t SELECT 10 + seq, 'q', 1, 0 FROM seq_1_to_1000")
        return [s.answer(f"SELECT * FROM t FORCE INDEX (k) {where}{end}") for end in ("", " FOR UPDATE")]

    env.same_as_innodb(play)


def _ordered(session: Session, index: str, columns: str, where: str, order: str) -> None:
    """The answer is that of a sort, which the index is none of."""
    hints = (f"FORCE INDEX ({index})", "IGNORE INDEX (v, vx, vp)")
    found, sought = (session.run(f"SELECT {columns} FROM t {hint} {where} ORDER BY {order} LIMIT 40") for hint in hints)
    equal(found, sought, f"{columns} by {order} of index {index} {where}")


def scenario_partitions_in_the_order_of_a_virtual_column(env: Env) -> None:
    """The server merges partitions by the index's columns, also by those that are computed."""
    s = env.session()
    s.run(
        "CREATE TABLE t (id INT PRIMARY KEY, n INT, x INT, v INT AS (n % 40) VIRTUAL, w VARCHAR(20) AS (CONCAT('w', n % 40)) VIRTUAL,"
        " KEY v (v), KEY vx (v, x), KEY vp (w(2))) ENGINE=FERRITE PARTITION BY HASH (id) PARTITIONS 4"
    )
    s.run("INSERT INTO t (id, n, x) SELECT seq, seq * 7919 % 4001, seq * 31 % 1009 FROM seq_1_to_3000")
    for end in ("", " DESC"):
        _ordered(s, "v", "v", "", f"v{end}")
        _ordered(s, "v", "n % 40, v", "", f"v{end}")
        _ordered(s, "vx", "v, x, n % 40", "WHERE v = 5", f"x{end}")
        _ordered(s, "vx", "v, x, n % 40", "WHERE v IN (5, 7)", f"v{end}, x{end}")
        _ordered(s, "vp", "w, n % 40", "WHERE w >= 'w1'", f"w{end}, n % 40")
    s.run("DROP TABLE t")


@options("--innodb-lock-wait-timeout=1", "--loose-ferrite-lock-wait-timeout=1")
def scenario_an_error_amid_a_join_by_keys(env: Env) -> None:
    """A join that reads rows in batches of keys fails if one of them cannot be locked: it is no shorter answer."""
    s, other = env.session(), env.session()
    s.run("CREATE TABLE t1 (id INT PRIMARY KEY, r INT) ENGINE=FERRITE")
    s.run("CREATE TABLE t2 (id INT PRIMARY KEY, k INT, f INT, KEY (k)) ENGINE=FERRITE")
    s.run("INSERT INTO t1 SELECT seq, seq FROM seq_1_to_1000")
    s.run("INSERT INTO t2 SELECT seq, seq, 0 FROM seq_1_to_1000")
    s.run(f"SET optimizer_switch = '{SWITCHES}', join_cache_level = 6")
    join = "SELECT STRAIGHT_JOIN COUNT(*), SUM(t2.f) FROM t1 JOIN t2 ON t2.{} = t1.r"
    other.run("BEGIN")
    other.run("UPDATE t2 SET f = 1 WHERE id = 500")
    for column in ("id", "k"):
        sql = join.format(column)
        plan = str(s.run("EXPLAIN " + sql))
        expect("BKA" in plan, f"the optimizer makes no join by keys of {sql}", plan)
        equal(s.error(sql + " FOR UPDATE"), 1205, f"{sql} of a row that is locked")
        equal(s.run(sql), [(1000, 0)], f"{sql} by a snapshot")
    s.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
    equal(s.run(join.format("k")), [(1000, 1)], "the row as it is")
    other.run("ROLLBACK")
    s.run("DROP TABLE t1, t2")


def scenario_kill_among_rows_that_are_gone(env: Env) -> None:
    """At READ UNCOMMITTED a multi-range read passes over rows that were rolled back after it had read their entries. KILL ends it
    as any other statement, not with the error that a row is not there."""
    other, killer = env.session(), env.session()
    other.run("CREATE TABLE t (id INT PRIMARY KEY, k INT, f INT, KEY (k)) ENGINE=FERRITE")
    other.run("INSERT INTO t VALUES (0, 0, 0)")
    select = "SELECT SUM(f) FROM t FORCE INDEX (k) WHERE k BETWEEN 0 AND 1000000 AND (f = 1 OR GET_LOCK('{}', 50) = 1)"
    # The rows that are gone take a tenth of a second. Whoever comes too late finds no read to end.
    for delay in (0.03, 0.07):
        s = env.session()
        s.run(f"SET optimizer_switch = '{SWITCHES}', mrr_buffer_size = 64 << 20")
        s.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        reader = s.value("SELECT CONNECTION_ID()")
        state = f"SELECT state FROM information_schema.processlist WHERE id = {reader}"
        other.run("BEGIN")
        other.run("INSERT INTO t SELECT seq, seq, 1 FROM seq_1_to_300000")
        # A lock of its own for each reader, which keeps it.
        lock = f"awake after {delay}"
        equal(killer.value(f"SELECT GET_LOCK('{lock}', 0)"), 1, "the lock")
        sql = select.format(lock)
        plan = str(s.run("EXPLAIN " + sql))
        expect("Rowid-ordered scan" in plan, f"no multi-range read of {sql}", plan)
        running = s.start(sql)
        env.eventually("the read waits", lambda state=state: killer.value(state) == "User lock")
        other.run("ROLLBACK")
        killer.run(f"DO RELEASE_LOCK('{lock}')")
        time.sleep(delay)
        killer.run(f"KILL QUERY {reader}")
        expect(running.answer() in (1317, [(0,)]), "killed", running.answer())
    other.run("DROP TABLE t")
