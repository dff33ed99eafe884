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
