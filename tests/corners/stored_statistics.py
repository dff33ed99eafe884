"""Statistics for the optimizer, as they are kept with a table."""

from __future__ import annotations

from corners.env import Env, Session, equal

MANY = 63


def _cardinality(session: Session, table: str) -> list[int]:
    """Of the first columns of the first and the last index."""
    rows = session.run(f"SHOW INDEX FROM {table} WHERE Seq_in_index = 1 AND Key_name LIKE 'k%'")
    return [int(rows[0][6]), int(rows[-1][6])]


def scenario_of_many_indexes(env: Env) -> None:
    """Those of a table with many indexes and a long primary key were not kept: each time it was opened they were counted anew."""
    session = env.session()
    wide = ", ".join(f"p{n} TINYINT NOT NULL DEFAULT {n}" for n in range(15))
    pk = ", ".join(["id", *(f"p{n}" for n in range(15))])
    columns = ", ".join(f"c{n} INT, KEY k{n} (c{n})" for n in range(MANY))
    session.run(f"CREATE TABLE t (id INT, {wide}, {columns}, PRIMARY KEY ({pk})) ENGINE=FERRITE")
    session.run("CREATE TABLE small (id INT PRIMARY KEY, c0 INT, KEY k0 (c0)) ENGINE=FERRITE")
    session.run(f"INSERT INTO t (id, c0, c{MANY - 1}) SELECT seq, seq, seq MOD 100 FROM seq_1_to_1000")
    session.run("INSERT INTO small SELECT seq, seq FROM seq_1_to_1000")
    session.run("ANALYZE TABLE t, small")
    before = {table: _cardinality(session, table) for table in ("t", "small")}
    equal(before["t"][0], before["small"][0], "cardinality")
    # Too few changes for a new count, unless there was none.
    for table in ("t", "small"):
        session.run(f"UPDATE {table} SET c0 = 1 WHERE id <= 250")
    env.restart()
    session = env.session()
    for table in ("small", "t"):
        equal(_cardinality(session, table), before[table], f"{table} after a restart")


def _rows_told(session: Session, table: str) -> int:
    query = (
        f"SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{table}'"
    )
    return int(session.run(query)[0][0])


def scenario_rows_after_changes_that_failed(env: Env) -> None:
    """Each row that met a duplicate in a secondary index was taken off the number of rows, and ANALYZE left it so."""
    session = env.session()
    session.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, k INT UNIQUE, v INT) ENGINE=FERRITE")
    session.run("INSERT INTO t (k) SELECT seq FROM seq_1_to_1000")
    session.run("INSERT IGNORE INTO t (k) SELECT k FROM t")
    session.run("INSERT INTO t (k) SELECT seq FROM seq_1_to_1000 ON DUPLICATE KEY UPDATE v = 1")
    session.run("REPLACE INTO t (k, v) SELECT seq, 2 FROM seq_1_to_1000")
    equal(_rows_told(session, "t"), 1000, "rows")
    session.run("ANALYZE TABLE t")
    equal(_rows_told(session, "t"), 1000, "rows after ANALYZE")


def scenario_rows_after_a_crash(env: Env) -> None:
    """Rows of after the last checkpoint were not counted, and those that were rolled back were taken off all the same."""
    session, other = env.session(), env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, v INT) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, 1 FROM seq_1_to_3000")
    other.run("BEGIN")
    other.run("INSERT INTO t SELECT seq, 1 FROM seq_5001_to_9000")
    session.run("INSERT INTO t VALUES (3001, 1)")
    env.crash()
    session = env.session()
    session.run("SELECT * FROM t LIMIT 1")
    equal(_rows_told(session, "t"), 3001, "rows")


def scenario_of_other_indexes(env: Env) -> None:
    """After an index had come or gone the statistics were those of another index, or one row for each value."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT, KEY ka (a), KEY kb (b)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq MOD 5, seq MOD 50, seq MOD 500 FROM seq_1_to_5000")
    session.run("ANALYZE TABLE t")
    session.run("ALTER TABLE t ADD KEY kc (c), ALGORITHM=INPLACE")
    for change in (None, "DROP KEY ka, ADD KEY ka (c)"):
        if change:
            session.run(f"ALTER TABLE t {change}, ALGORITHM=INPLACE")
        told = session.run("SHOW INDEX FROM t WHERE Seq_in_index = 1 AND Key_name LIKE 'k%'")
        told = {row[2]: int(row[6]) for row in told}
        session.run("ANALYZE TABLE t")
        counted = session.run("SHOW INDEX FROM t WHERE Seq_in_index = 1 AND Key_name LIKE 'k%'")
        for row in counted:
            near = 0.5 * int(row[6]) <= told[row[2]] <= 2 * int(row[6])
            equal(near, True, f"{row[2]} after {change}: {told[row[2]]}, counted {row[6]}")


def scenario_loaded_before_a_restart(env: Env) -> None:
    """A table that was filled while it was open, and never counted, got no statistics after a restart."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY ka (a)) ENGINE=FERRITE")
    session.run("SELECT * FROM t")
    session.run("INSERT INTO t SELECT seq, seq MOD 10 FROM seq_1_to_20000")
    env.restart()
    session = env.session()
    told = int(session.run("SHOW INDEX FROM t WHERE Key_name = 'ka'")[0][6])
    equal(told <= 100, True, f"{told} values of 10")
