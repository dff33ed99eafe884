"""Tables whose keys the server lists in another order than the engine has its indexes in.

It sorts the keys of a table anew when it changes partitions, and where it exchanges tables, it compares them by name.
"""

from __future__ import annotations

import shutil

from corners.env import DATABASE, Env, Session, equal, expect

PARTED = (
    "id INT NOT NULL, a INT NOT NULL, b INT NOT NULL, c VARCHAR(20), PRIMARY KEY (id), UNIQUE ua (a, id),"
    " UNIQUE ub (b, id), KEY c (c)"
)
PARTS = (
    "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN (200),"
    " PARTITION p2 VALUES LESS THAN (300))"
)
CHANGES = [
    "DROP PARTITION p0",
    "ADD PARTITION (PARTITION p3 VALUES LESS THAN (400))",
    "REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (200))",
    "REBUILD PARTITION p1",
    "TRUNCATE PARTITION p1",
    "CONVERT PARTITION p0 TO TABLE x",
]
AFTER = [
    "RENAME INDEX ua TO first",
    "ADD KEY more (c, b)",
    "COMMENT 'c', MODIFY c VARCHAR(40)",
    "DROP KEY ub",
    "MODIFY a INT NOT NULL",
    "ENGINE=SAME",
]


def _contents(session: Session, table: str) -> list[object]:
    """By every index, after writes that go by it."""
    seen: list[object] = [session.error(f"UPDATE {table} SET b = b + 1, c = CONCAT(c, 'x') WHERE a MOD 7 = 1")]
    seen.append(session.answer(f"SELECT * FROM {table} ORDER BY id"))
    keys = sorted({row[2] for row in session.run(f"SHOW INDEX FROM {table}")})
    seen.extend(session.answer(f"SELECT id, a, b FROM {table} FORCE INDEX (`{key}`) ORDER BY id") for key in keys)
    seen.append(session.answer(f"SELECT id FROM {table} WHERE a = 120"))
    seen.append(session.answer(f"SELECT id FROM {table} WHERE b BETWEEN 1150 AND 1153 ORDER BY id"))
    equal(session.run(f"CHECK TABLE {table} EXTENDED")[-1][-1], "OK", table)
    return seen


def _make(session: Session, engine: str) -> None:
    """Its keys stay in the order that they had before a column of one became NULL."""
    session.run("DROP TABLE IF EXISTS t, x")
    session.run(f"CREATE TABLE t ({PARTED}) ENGINE={engine} {PARTS}")
    session.run("INSERT INTO t SELECT seq, seq, 1000 + seq, CONCAT('c', seq MOD 9) FROM seq_50_to_299")
    session.run("ALTER TABLE t MODIFY a INT NULL")


def scenario_changed_partitions(env: Env) -> None:
    """Partitions could be changed, and then the table could not be opened any more."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for change in CHANGES:
            _make(session, engine)
            seen.append((change, session.error(f"ALTER TABLE t {change}")))
            session.run("FLUSH TABLES")
            seen.append(_contents(session, "t"))
            seen.extend(_contents(session, "x") if "CONVERT" in change else [])
            seen.append(session.error("INSERT INTO t VALUES (150, 5, 5, ''), (250, 6, 6, '')"))
        return seen

    env.same_as_innodb(play)


def scenario_altered_afterwards(env: Env) -> None:
    """Such a table takes what ALTER TABLE changes in place and by a copy."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for change in ["COMMENT 'none'", *AFTER]:
            _make(session, engine)
            session.run("ALTER TABLE t CONVERT PARTITION p1 TO TABLE x")
            for table in ("t", "x"):
                seen.append((change, session.error(f"ALTER TABLE {table} {change.replace('SAME', engine)}")))
                session.run("FLUSH TABLES")
                seen.append(_contents(session, table))
            session.run("ALTER TABLE x ADD KEY last (b), ALGORITHM=NOCOPY, LOCK=SHARED")
            session.run("ANALYZE TABLE x")
            seen.append(_contents(session, "x"))
        return seen

    env.same_as_innodb(play)
    env.crash()
    session = env.session()
    for table in ("t", "x"):
        equal(session.run(f"CHECK TABLE {table} EXTENDED")[-1][-1], "OK", f"{table} after a crash")


def scenario_exchanged(env: Env) -> None:
    """EXCHANGE PARTITION and CONVERT TABLE took a table with its keys in another order: neither could be opened."""

    def play(engine: str) -> list[object]:
        session = env.session()
        columns = "id INT PRIMARY KEY, a INT, b INT, c VARCHAR(20)"
        session.run(f"CREATE TABLE t ({columns}, KEY ka (a), KEY kb (b), KEY kc (c)) ENGINE={engine} {PARTS}")
        session.run(f"CREATE TABLE x ({columns}, KEY kc (c), KEY kb (b), KEY ka (a)) ENGINE={engine}")
        session.run("INSERT INTO t SELECT seq, seq, 1000 + seq, 't' FROM seq_50_to_299")
        session.run("INSERT INTO x SELECT seq, seq, 1000 - seq, 'x' FROM seq_10_to_80")
        seen: list[object] = []
        for change in (
            "EXCHANGE PARTITION p0 WITH TABLE x",
            "EXCHANGE PARTITION p0 WITH TABLE x",
            "EXCHANGE PARTITION p0 WITH TABLE x",
            "DROP PARTITION p2",
        ):
            session.run(f"ALTER TABLE t {change}")
            seen.extend((_contents(session, "t"), _contents(session, "x")))
        session.run("UPDATE x SET id = id + 300 WHERE id < 100 ORDER BY id DESC")
        session.run("DELETE FROM x WHERE id NOT BETWEEN 300 AND 399")
        seen.append(session.error("ALTER TABLE t CONVERT TABLE x TO PARTITION p3 VALUES LESS THAN (400)"))
        seen.append(_contents(session, "t"))
        return seen

    env.same_as_innodb(play)


def scenario_imported(env: Env) -> None:
    """The file of such a table goes into one that is made from its SHOW CREATE TABLE."""
    session = env.session()
    _make(session, "FERRITE")
    session.run("ALTER TABLE t CONVERT PARTITION p1 TO TABLE x")
    # The server's own order, and the one that it does not change as long as no key is added.
    for change in ("COMMENT 'as it is'", "MODIFY a INT NOT NULL", "MODIFY b INT NULL"):
        session.run(f"ALTER TABLE x {change}")
        made = session.run("SHOW CREATE TABLE x")[0][1]
        rows = session.run("SELECT * FROM x ORDER BY id")
        session.run("FLUSH TABLES x FOR EXPORT")
        copy = env.server.home / "copy-x.ferrite"
        shutil.copy(env.datadir / DATABASE / "x.ferrite", copy)
        session.run("UNLOCK TABLES")
        session.run("DROP TABLE IF EXISTS y")
        session.run(made.replace("`x`", "`y`", 1))
        shutil.copy(copy, env.datadir / DATABASE / "y.ferrite")
        session.run("ALTER TABLE y IMPORT TABLESPACE")
        equal(session.run("SELECT * FROM y ORDER BY id"), rows, change)
        equal(session.run("SELECT * FROM y FORCE INDEX (ub) ORDER BY b"), rows, f"{change}, by an index")
        equal(session.run("CHECK TABLE y EXTENDED")[-1][-1], "OK", change)
        _contents(session, "y")
    # Keys of the same names that are others.
    session.run("CREATE OR REPLACE TABLE y LIKE x")
    session.run("ALTER TABLE y DROP KEY ua, DROP KEY ub, ADD UNIQUE ua (b, id), ADD UNIQUE ub (a, id)")
    shutil.copy(copy, env.datadir / DATABASE / "y.ferrite")
    equal(session.error("ALTER TABLE y IMPORT TABLESPACE"), 1808, "other keys of the same names")


# ---- without a primary key ------------------------------------------------------------------

# Until b becomes NOT NULL no key can be a primary key; in a sorted .frm file ub then is the first and could be.
PROMOTED = (
    "id INT NOT NULL, a INT, b INT, c VARCHAR(20), d INT, e TEXT, UNIQUE ua (a, id), UNIQUE ub (b, id), KEY c (c),"
    " KEY d (d)"
)
# Rows that are left.
PROMOTING = {
    "DROP PARTITION p0": "id >= 100",
    "ADD PARTITION (PARTITION p3 VALUES LESS THAN (400))": "id > 0",
    "REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (200))": "id > 0",
    "REBUILD PARTITION p1": "id > 0",
    "TRUNCATE PARTITION p1": "id NOT BETWEEN 100 AND 199",
    "CONVERT PARTITION p0 TO TABLE x": "id >= 100",
}
READS = [
    "SELECT id, b FROM {t} FORCE INDEX (c) WHERE c = 'c3' AND b BETWEEN 1740 AND 1850 ORDER BY id",
    "SELECT b FROM {t} FORCE INDEX (c) WHERE c = 'c3' ORDER BY b",
    "SELECT b FROM {t} FORCE INDEX (c) WHERE c = 'c3' ORDER BY b DESC LIMIT 5",
    "SELECT MIN(b), MAX(b) FROM {t} WHERE c = 'c3'",
    "SELECT c, MIN(b), MAX(b) FROM {t} GROUP BY c ORDER BY c",
    "SELECT DISTINCT c, b FROM {t} FORCE INDEX (c) WHERE c IN ('c2', 'c3') ORDER BY 1, 2",
    "SELECT id, a, b, e FROM {t} WHERE c = 'c3' AND d = 4 ORDER BY id",
    "SELECT id, e FROM {t} WHERE c = 'c3' OR d = 4 ORDER BY id",
    "SELECT id FROM {t} WHERE b = 1850 OR d = 4 ORDER BY id",
    "SELECT t.id, t.e FROM u JOIN {t} AS t ON t.d = u.x WHERE t.b > 1750 ORDER BY t.id",
    "SELECT id FROM {t} WHERE id IN (SELECT v.id FROM {t} AS v JOIN u ON v.d = u.x) ORDER BY id",
    "SELECT id, e FROM {t} FORCE INDEX (d) WHERE d = 4 ORDER BY e, id",
    "SELECT id FROM {t} WHERE b BETWEEN 1800 AND 1820 AND d < 5 ORDER BY id",
    "SELECT COUNT(*), SUM(b) FROM {t}",
    "SELECT * FROM {t} ORDER BY id",
]
WRITES = [
    "UPDATE {t} FORCE INDEX (c) SET b = b + 10000 WHERE c = 'c3'",
    "UPDATE {t} FORCE INDEX (c) SET b = b + 1 WHERE c = 'c4' ORDER BY b DESC",
    "UPDATE {t} SET b = b + 20000 WHERE b < 1900 ORDER BY id LIMIT 10",
    "UPDATE {t} AS t JOIN u ON t.d = u.x SET t.b = t.b + 30000, t.c = 'moved'",
    "DELETE t FROM {t} AS t JOIN u ON t.d = u.x WHERE t.a MOD 3 = 0",
    "REPLACE INTO {t} VALUES (60, 60, 7, 'r', 1, 'r'), (250, 250, 8, 'r', 2, 'r')",
    "INSERT INTO {t} VALUES (60, 60, 9, 'i', 1, 'i'), (250, 1, 8, 'i', 2, 'i') ON DUPLICATE KEY UPDATE b = b + 5, e = 'dup'",
    "DELETE FROM {t} WHERE b > 40000 OR d = 5",
]


def _make_unpromoted(session: Session) -> None:
    """The table t, and r of the same rows, which no ALTER sorts."""
    session.run("DROP TABLE IF EXISTS t, x, r, u")
    session.run("CREATE TABLE u (x INT)")
    session.run("INSERT INTO u VALUES (2), (3)")
    for table, rest in (("t", f"ENGINE=FERRITE {PARTS}"), ("r", "ENGINE=InnoDB")):
        session.run(f"CREATE TABLE {table} ({PROMOTED}) {rest}")
        session.run(
            f"INSERT INTO {table} SELECT seq, seq, 2000 - seq, CONCAT('c', seq MOD 9), seq MOD 7,"
            " REPEAT(seq, 5) FROM seq_50_to_299"
        )
        session.run(f"ALTER TABLE {table} MODIFY b INT NOT NULL")


def _same_rows(session: Session, table: str, left: str, what: str) -> None:
    """Of `table` and, as far as they are left, r: by every index and after writes."""
    session.run(f"DELETE FROM r WHERE NOT ({left})")
    for sql in [*READS, *WRITES, *READS]:
        equal(session.answer(sql.format(t=table)), session.answer(sql.format(t="r")), f"{what}: {sql}")
    for key in ("ua", "ub", "c", "d"):
        by_key = f"SELECT * FROM {{}} FORCE INDEX ({key}) WHERE {key[-1]} IS NOT NULL ORDER BY id, b"
        equal(session.run(by_key.format(table)), session.run(by_key.format("r")), f"{what}, by {key}")
    equal(session.run(f"CHECK TABLE {table} EXTENDED")[-1][-1], "OK", what)


def scenario_without_primary_key(env: Env) -> None:
    """A changed partition gave such a table a primary key which its rows did not have: it could not be opened."""
    session = env.session()
    for switches in ("", "SET optimizer_switch='mrr=on,mrr_sort_keys=on,mrr_cost_based=off', join_cache_level=8"):
        if switches:
            session.run(switches)
        for change, left in PROMOTING.items():
            _make_unpromoted(session)
            session.run(f"ALTER TABLE t {change}")
            session.run("FLUSH TABLES")
            if switches:
                session.run("ANALYZE TABLE t PERSISTENT FOR ALL")
            if "CONVERT" in change:
                session.run("CREATE TABLE s LIKE r")
                session.run("INSERT INTO s SELECT * FROM r")
                _same_rows(session, "x", "id < 100", change)
                session.run("DROP TABLE r")
                session.run("RENAME TABLE s TO r")
            _same_rows(session, "t", left, change)
    expect("have no primary key" in env.log(), "nothing about it in the error log")


def scenario_without_primary_key_altered(env: Env) -> None:
    """Such a table takes further changes of its partitions, and ALTER TABLE ... FORCE ends it."""
    session = env.session()
    for change in (
        "ADD PARTITION (PARTITION p3 VALUES LESS THAN (400))",
        "DROP PARTITION p1",
        "REORGANIZE PARTITION p1, p2 INTO (PARTITION q VALUES LESS THAN (300))",
        "REBUILD PARTITION ALL",
        "TRUNCATE PARTITION p2",
        "COMMENT 'c'",
        "ADD KEY more (c, b)",
        "RENAME INDEX ua TO first_one",
        "DROP KEY ua",
        "DROP KEY ub",
        "MODIFY b INT NULL",
        "REMOVE PARTITIONING",
        "FORCE",
    ):
        _make_unpromoted(session)
        session.run("ALTER TABLE t DROP PARTITION p0")
        session.run("INSERT INTO t VALUES (120, 1, 1, '', 0, ''), (130, 0, 0, '', 0, '')")
        session.run(f"ALTER TABLE t {change}")
        rows = session.run("SELECT * FROM t ORDER BY id, b")
        session.run("ALTER TABLE t ADD KEY e (e(10))")
        session.run("FLUSH TABLES")
        equal(session.run("SELECT * FROM t ORDER BY id, b"), rows, change)
        equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", change)
    session.run("INSERT INTO t VALUES (131, 0, 5, '', 0, '')")
    env.crash()
    session = env.session()
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "after a crash")


def scenario_opened_by_many(env: Env) -> None:
    """Each of those who open it at the same time finds it without a primary key."""
    session = env.session()
    _make_unpromoted(session)
    session.run("ALTER TABLE t DROP PARTITION p0")
    reads = []
    for rows, part in (
        ("id >= 100", ""),
        ("id BETWEEN 100 AND 199", "PARTITION (p1)"),
        ("id >= 200", "PARTITION (p2)"),
    ):
        wanted = session.run(f"SELECT b FROM r WHERE c = 'c3' AND {rows} ORDER BY b")
        reads.append((env.session(), f"SELECT b FROM t {part} FORCE INDEX (c) WHERE c = 'c3' ORDER BY b", wanted))
    for _ in range(15):
        session.run("FLUSH TABLES")
        for running, wanted in [(other.start(sql), wanted) for other, sql, wanted in reads]:
            equal(running.answer(), wanted, running.sql)


def scenario_automatic_history(env: Env) -> None:
    """Partitions for history that the server adds by itself."""
    session = env.session()
    session.run("SET system_versioning_alter_history=KEEP, timestamp=UNIX_TIMESTAMP('2020-01-01 00:10:00')")
    session.run(
        "CREATE TABLE t (id INT, a INT, b INT, UNIQUE ua (a), UNIQUE ub (b)) ENGINE=FERRITE WITH SYSTEM VERSIONING"
        " PARTITION BY SYSTEM_TIME INTERVAL 1 HOUR STARTS '2020-01-01 00:00:00' AUTO PARTITIONS 3"
    )
    session.run("INSERT INTO t SELECT seq, seq, 1000 - seq FROM seq_1_to_50")
    session.run("ALTER TABLE t MODIFY b INT NOT NULL")
    for hour in (3, 4, 5, 6):
        session.run(f"SET timestamp=UNIX_TIMESTAMP('2020-01-01 0{hour}:10:00')")
        session.run("UPDATE t SET b = b + 1000 WHERE a > 25")
        session.run("FLUSH TABLES")
    equal(session.value("SELECT COUNT(*) FROM t"), 50, "rows")
    equal(session.value("SELECT COUNT(*) FROM t FOR SYSTEM_TIME ALL"), 150, "with their history")
    equal(session.value("SELECT SUM(b) FROM t"), 1000 * 50 - 1275 + 4 * 1000 * 25, "their values")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "t")


# ---- tables that do not fit -----------------------------------------------------------------

# Of the partitioned table; of the other: what differs in the primary key, or in what rows are.
UNFIT = [
    (
        "a INT NOT NULL, b INT NOT NULL, UNIQUE u1 (a), UNIQUE u2 (a, b)",
        "a INT NOT NULL, b INT NOT NULL, UNIQUE u2 (a, b), UNIQUE u1 (a)",
    ),
    ("a INT NOT NULL, v INT AS (a + 1) VIRTUAL", "a INT NOT NULL, v INT"),
    ("a INT NOT NULL, v INT AS (a + 1) STORED", "a INT NOT NULL, v INT"),
    ("a INT NOT NULL, v INT AS (a + 1) VIRTUAL, KEY (v)", "a INT NOT NULL, v INT, KEY (v)"),
    ("a INT NOT NULL, v INT AS (a + 1) VIRTUAL", "a INT NOT NULL, v INT AS (a + 2) VIRTUAL"),
]


def _refused(session: Session, what: str) -> None:
    """Rows of t and x stay where they are."""
    before = session.run("SELECT * FROM t ORDER BY a"), session.run("SELECT * FROM x ORDER BY a")
    for change in ("EXCHANGE PARTITION p0 WITH TABLE x", "CONVERT TABLE x TO PARTITION p9 VALUES LESS THAN (900)"):
        equal(session.error(f"ALTER TABLE t {change}"), 1736, f"{change}: {what}")
        session.run("FLUSH TABLES")
        after = session.run("SELECT * FROM t ORDER BY a"), session.run("SELECT * FROM x ORDER BY a")
        equal(after, before, f"{change}: {what}")


def scenario_not_exchanged(env: Env) -> None:
    """EXCHANGE PARTITION and CONVERT TABLE took tables whose rows the other's definition could not read: both were lost."""
    session = env.session()
    for parted, other in UNFIT:
        session.run("DROP TABLE IF EXISTS t, x")
        session.run(
            f"CREATE TABLE t ({parted}) ENGINE=FERRITE PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (100))"
        )
        session.run(f"CREATE TABLE x ({other}) ENGINE=FERRITE")
        column = "b" if "b INT" in parted else "v"
        session.run(f"INSERT INTO t (a{', b' if column == 'b' else ''}) VALUES (1{', 5' if column == 'b' else ''})")
        session.run(
            f"INSERT INTO x (a{'' if 'AS' in other else f', {column}'}) VALUES (2{'' if 'AS' in other else ', 6'})"
        )
        _refused(session, other)
    _make_unpromoted(session)
    session.run("ALTER TABLE t DROP PARTITION p0")
    session.run("CREATE TABLE x LIKE t")
    session.run("ALTER TABLE x REMOVE PARTITIONING")
    session.run("INSERT INTO x VALUES (150, 1, 1, '', 0, '')")
    equal(session.error("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE x"), 1736, "a table with that primary key")
    session.run("FLUSH TABLES")
    equal(session.value("SELECT COUNT(*) FROM x"), 1, "x")
    equal(session.value("SELECT COUNT(*) FROM t"), 200, "t")
    # Neither has one.
    session.run("ALTER TABLE t CONVERT PARTITION p1 TO TABLE y")
    session.run(
        "ALTER TABLE t REORGANIZE PARTITION p2 INTO (PARTITION p1 VALUES LESS THAN (200), PARTITION p2 VALUES LESS THAN (300))"
    )
    session.run("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE y")
    session.run("FLUSH TABLES")
    equal(session.value("SELECT COUNT(*) FROM t"), 200, "t after an exchange")
    equal(session.value("SELECT COUNT(*) FROM y"), 0, "y after an exchange")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "t after an exchange")
