"""Tables whose keys the server lists in another order than the engine has its indexes in.

It sorts the keys of a table anew when it changes partitions, and where it exchanges tables, it compares them by name.
"""

from __future__ import annotations

import shutil

from corners.env import DATABASE, Env, Session, equal

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
