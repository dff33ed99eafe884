"""CACHE_PRIORITY of tables: taken, shown and checked, kept by whatever changes the table, and worth something."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect

OPTIONS = ["--ferrite-buffer-pool-size=5M", "--ferrite-row-cache-size=0", "--skip-log-bin"]
COLUMNS = "(a INT PRIMARY KEY, b INT, c VARCHAR(1000), KEY (b))"
ROWS = 12_000


def _priority(session: Session, table: str) -> str:
    text = str(session.run(f"SHOW CREATE TABLE {table}")[0][1])
    return text.partition("CACHE_PRIORITY`=")[2].partition(" ")[0].strip("`'") or "normal"


def scenario_cache_priority_options(env: Env) -> None:
    "The option is shown, instantly changed, copied with the definition, and there after a crash; unknown values are refused."
    s = env.session()
    for wish in ("low", "normal", "high"):
        s.run(f"CREATE TABLE {wish}_ {COLUMNS} ENGINE=FERRITE CACHE_PRIORITY={wish}")
        equal(_priority(s, f"{wish}_"), wish, "SHOW CREATE TABLE")
    equal(s.error(f"CREATE TABLE w {COLUMNS} ENGINE=FERRITE CACHE_PRIORITY=highest"), 1912, "unknown value")
    s.run("INSERT INTO high_ SELECT seq, seq, seq FROM seq_1_to_100")
    s.run("CREATE TABLE l LIKE high_")
    equal(_priority(s, "l"), "high", "CREATE TABLE ... LIKE")
    for statement in (
        "ALTER TABLE high_ COMMENT='x', ALGORITHM=INSTANT",
        "ALTER TABLE high_ ADD KEY (c), ALGORITHM=INPLACE",
        "ALTER TABLE high_ FORCE",
        "OPTIMIZE TABLE high_",
        "RENAME TABLE high_ TO h2",
        "RENAME TABLE h2 TO high_",
    ):
        s.run(statement)
    equal(_priority(s, "high_"), "high", "after ALTER TABLE")
    s.run("ALTER TABLE high_ CACHE_PRIORITY=low, ALGORITHM=INSTANT")
    s.run("TRUNCATE TABLE normal_")
    env.crash()
    s = env.session()
    equal(_priority(s, "high_"), "low", "after a crash")
    equal(s.value("SELECT SUM(b) FROM high_"), 5050, "rows")
    s.run("CREATE TEMPORARY TABLE t (a INT) ENGINE=FERRITE CACHE_PRIORITY=low")
    s.run("INSERT INTO t VALUES (1)")
    s.run(
        "CREATE TABLE p (a INT PRIMARY KEY) ENGINE=FERRITE CACHE_PRIORITY=low PARTITION BY RANGE (a)"
        " (PARTITION p0 VALUES LESS THAN (9), PARTITION p1 VALUES LESS THAN (99) CACHE_PRIORITY=high)"
    )
    s.run("INSERT INTO p VALUES (1), (50)")
    s.run("ALTER TABLE p COMMENT='y'")
    s.run("ALTER TABLE p CACHE_PRIORITY=normal, ALGORITHM=INSTANT")
    equal(s.run("SELECT a FROM p"), [(1,), (50,)], "partitions")


def _misses(session: Session) -> int:
    return int(session.run("SHOW GLOBAL STATUS LIKE 'ferrite_buffer_pool_reads'")[0][1])


def _misses_of_favoured(session: Session) -> int:
    """Pages of `favoured` read while `others`, larger than the pool, is read by key all the time."""
    count = 0
    for turn in range(40):
        keys = ", ".join(str(1 + (turn * 7919 + n * 104_729) % ROWS) for n in range(400))
        session.run(f"SELECT SUM(LENGTH(c)) FROM others WHERE a IN ({keys})")
        before = _misses(session)
        keys = ", ".join(str(1 + (turn * 31 + n * 37) % 1000) for n in range(12))
        session.run(f"SELECT SUM(LENGTH(c)) FROM favoured WHERE a IN ({keys})")
        count += _misses(session) - before
    return count


def scenario_cache_priority_keeps_pages(env: Env) -> None:
    "A table that is used now and then stays in memory beside one that is larger than memory and used all the time, if it is to."
    s = env.session()
    for table, rows in (("others", ROWS), ("favoured", 1000)):
        s.run(f"CREATE TABLE {table} {COLUMNS} ENGINE=FERRITE")
        s.run(f"INSERT INTO {table} SELECT seq, seq, REPEAT(CHAR(65 + seq % 26), 900) FROM seq_1_to_{rows}")
    counts = {}
    for wish in ("normal", "high", "normal", "high"):
        s.run(f"ALTER TABLE favoured CACHE_PRIORITY={wish}, ALGORITHM=INSTANT")
        _misses_of_favoured(s)
        counts[wish] = _misses_of_favoured(s)
    expect(counts["high"] * 3 < counts["normal"], "pages read with high and normal priority", counts)
