"""Old snapshots beside DDL of others: what came into being without a history is refused with 1412, as by InnoDB."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect

READ = "SELECT COUNT(*), SUM(a) FROM t"
CHANGED = 1412

DDL = {
    "TRUNCATE": ["TRUNCATE t"],
    "ALTER by copy": ["ALTER TABLE t ADD d INT NOT NULL DEFAULT 3, ALGORITHM=COPY"],
    "another engine and back": ["ALTER TABLE t ENGINE=Aria", "ALTER TABLE t ENGINE={engine}"],
    "OPTIMIZE": ["OPTIMIZE TABLE t"],
    "DROP and CREATE": ["DROP TABLE t", "CREATE TABLE t (a INT PRIMARY KEY, b INT, KEY (b)) ENGINE={engine}"],
    "DROP and CREATE ... SELECT": [
        "CREATE TABLE n ENGINE={engine} SELECT * FROM t",
        "DROP TABLE t",
        "RENAME TABLE n TO t",
    ],
    "CREATE OR REPLACE": ["CREATE OR REPLACE TABLE t (a INT PRIMARY KEY, b INT, KEY (b)) ENGINE={engine}"],
    "LIKE and swap": [
        "CREATE TABLE n LIKE t",
        "INSERT INTO n VALUES (1, 1)",
        "RENAME TABLE t TO o, n TO t",
    ],
    "swap of old ones": ["RENAME TABLE t TO x, same TO t, x TO same"],
    "RENAME and back": ["RENAME TABLE t TO x", "RENAME TABLE x TO t"],
    "a default": ["ALTER TABLE t ALTER b SET DEFAULT 5"],
    "a comment": ["ALTER TABLE t COMMENT 'x'"],
    "a column renamed": ["ALTER TABLE t RENAME COLUMN b TO c"],
    "only rows": ["DELETE FROM t WHERE a = 3", "UPDATE t SET b = 9"],
}
"""What another session does between a snapshot and its first look at the table."""


def _create(session: Session, engine: str) -> None:
    for name in ("t", "same"):
        session.run(f"CREATE TABLE {name} (a INT PRIMARY KEY, b INT, KEY (b)) ENGINE={engine}")
        session.run(f"INSERT INTO {name} VALUES (1, 1), (2, 2), (3, 3)")
    session.run("DELETE FROM same WHERE a = 1")


def _ddl(env: Env, engine: str, statements: list[str]) -> None:
    other = env.session()
    for statement in statements:
        other.run(statement.format(engine=engine))
    other.close()


def scenario_every_ddl(env: Env) -> None:
    """A snapshot from before another session's DDL: the same rows or the same error as with InnoDB."""
    for what, statements in DDL.items():

        def play(engine: str, statements: list[str] = statements) -> list[object]:
            reader = env.session()
            _create(reader, engine)
            seen: list[object] = []
            for first in (READ, "SELECT * FROM t FORCE INDEX (b) WHERE b > 0", "SELECT * FROM t WHERE a = 1"):
                reader.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                if first == READ:
                    _ddl(env, engine, statements)
                    seen.append(reader.answer(first))
                    seen.append(reader.answer("SELECT * FROM t WHERE a = 2"))
                else:
                    seen.append(reader.answer(first))
                reader.run("COMMIT")
            seen.append(reader.answer(READ))
            return seen

        try:
            env.same_as_innodb(play)
        except Exception as e:
            e.add_note(f"beside: {what}")
            raise


def scenario_every_way_to_read(env: Env) -> None:
    """Which statements are refused at which isolation level: as InnoDB does."""
    levels = ("REPEATABLE READ", "SERIALIZABLE", "READ COMMITTED", "READ UNCOMMITTED")
    ways = (
        READ,
        "SELECT * FROM t WHERE a = 2",
        "SELECT b FROM t WHERE b = 2",
        "SELECT * FROM t LOCK IN SHARE MODE",
        "SELECT * FROM t WHERE a = 2 FOR UPDATE",
        "SELECT * FROM same, t WHERE t.a = same.a",
        "INSERT INTO t VALUES (9, 9)",
        "INSERT INTO t VALUES (2, 9) ON DUPLICATE KEY UPDATE b = 10",
        "REPLACE INTO t VALUES (2, 11)",
        "UPDATE t SET b = 12",
        "UPDATE t SET b = 13 WHERE a = 2",
        "DELETE FROM t WHERE a = 9",
        "DELETE FROM t",
        "INSERT INTO same SELECT a + 100, b FROM t",
        "CHECKSUM TABLE t",
    )

    def play(engine: str) -> list[object]:
        seen: list[object] = []
        reader = env.session()
        for level in levels:
            for way in ways if level == levels[0] else ways[::5]:
                env.session().run("DROP TABLE IF EXISTS t, same")
                _create(reader, engine)
                reader.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                reader.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                reader.run("SELECT * FROM same")
                _ddl(env, engine, ["ALTER TABLE t FORCE, ALGORITHM=COPY", "INSERT INTO t VALUES (9, 9)"])
                answer = reader.answer(way)
                # InnoDB's number of the same error inside the server gets out in places.
                seen.append((level, way, CHANGED if answer == 159 else answer))
                seen.append(reader.answer("SELECT * FROM same WHERE a = 2"))
                reader.run("COMMIT")
                seen.append(reader.answer("SELECT * FROM t"))
        return seen

    env.same_as_innodb(play)


def scenario_own_tables(env: Env) -> None:
    """A session's own tables, temporary ones too, are never too new for it."""

    def play(engine: str) -> list[object]:
        session, other = env.session(), env.session()
        _create(session, engine)
        seen: list[object] = []
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        session.run(f"CREATE TEMPORARY TABLE tt (a INT PRIMARY KEY) ENGINE={engine}")
        session.run("INSERT INTO tt VALUES (1)")
        seen.append(session.answer("SELECT * FROM tt"))
        session.run("ALTER TABLE tt ADD b INT")
        seen.append(session.answer("SELECT * FROM tt"))
        session.run("TRUNCATE tt")
        seen.append(session.answer("SELECT * FROM tt"))
        session.run(f"CREATE TEMPORARY TABLE ts ENGINE={engine} SELECT * FROM t")
        seen.append(session.answer("SELECT * FROM ts"))
        other.run("UPDATE t SET b = 9")
        seen.append(session.answer("SELECT * FROM t"))
        session.run("TRUNCATE same")
        seen.append(session.answer("SELECT * FROM same"))
        seen.append(session.answer("SELECT * FROM t"))
        return seen

    env.same_as_innodb(play)


def scenario_partitions(env: Env) -> None:
    """The partitions that DDL has made or emptied are refused, the others are read."""
    by_range = "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    changes = {
        "TRUNCATE PARTITION": ["ALTER TABLE t TRUNCATE PARTITION p1"],
        "DROP PARTITION": ["ALTER TABLE t DROP PARTITION p1"],
        "ADD PARTITION": ["ALTER TABLE t ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))"],
        "REORGANIZE": [
            "ALTER TABLE t REORGANIZE PARTITION p1 INTO (PARTITION n VALUES LESS THAN (15), PARTITION p1 VALUES LESS THAN (20))"
        ],
        "EXCHANGE": [
            "CREATE TABLE e (a INT PRIMARY KEY, b INT) ENGINE={engine}",
            "INSERT INTO e VALUES (12, 12)",
            "ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE e",
        ],
        "EXCHANGE of old ones": ["ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE x"],
        "REBUILD": ["ALTER TABLE t REBUILD PARTITION p1"],
        "REMOVE PARTITIONING": ["ALTER TABLE t REMOVE PARTITIONING"],
    }
    for what, statements in changes.items():

        def play(engine: str, statements: list[str] = statements) -> list[object]:
            reader = env.session()
            reader.run(f"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={engine} {by_range}")
            reader.run("INSERT INTO t VALUES (1, 1), (11, 11)")
            reader.run(f"CREATE TABLE x (a INT PRIMARY KEY, b INT) ENGINE={engine}")
            reader.run("INSERT INTO x VALUES (13, 13)")
            reader.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            _ddl(env, engine, statements)
            return [
                reader.answer("SELECT * FROM t WHERE a < 10"),
                reader.answer("SELECT * FROM t WHERE a > 10 AND a < 20"),
                reader.answer("SELECT * FROM t ORDER BY a"),
            ]

        try:
            env.same_as_innodb(play)
        except Exception as e:
            e.add_note(f"beside: {what}")
            raise


def scenario_middle_of_a_load(env: Env) -> None:
    """A snapshot opened while CREATE ... SELECT fills a table never sees a part of it."""
    reader, maker, gate = env.session(), env.session(), env.session()
    equal(gate.value("SELECT GET_LOCK('middle', 0)"), 1, "the gate is closed")
    making = maker.start(
        "CREATE TABLE t (PRIMARY KEY (a)) ENGINE=FERRITE"
        " SELECT seq a, IF(seq = 50, GET_LOCK('middle', 300), 0) b FROM seq_1_to_100"
    )
    at_the_gate = f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {maker.id} AND STATE = 'User lock'"
    env.eventually("half of it is there", lambda: gate.value(at_the_gate))
    reader.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    expect(making.waits(0), "the load is not over")
    gate.run("SELECT RELEASE_LOCK('middle')")
    making.answer()
    equal(reader.answer("SELECT COUNT(*) FROM t"), CHANGED, "a snapshot from the middle")
    reader.run("COMMIT")
    equal(reader.answer("SELECT COUNT(*) FROM t"), [(100,)], "after it")


def scenario_sequences(env: Env) -> None:
    """A sequence has no history: every snapshot reads it."""

    def play(engine: str) -> list[object]:
        reader, other = env.session(), env.session()
        reader.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        other.run(f"CREATE SEQUENCE s ENGINE={engine}")
        seen = [reader.answer("SELECT next_not_cached_value FROM s"), reader.answer("SELECT NEXT VALUE FOR s")]
        reader.run("COMMIT")
        return seen

    env.same_as_innodb(play)


def scenario_after_a_restart(env: Env) -> None:
    """Snapshots die with the server, and so does what they may not read."""
    session = env.session()
    _create(session, "FERRITE")
    session.run("TRUNCATE t")
    session.run("INSERT INTO t VALUES (5, 5)")
    env.crash()
    session = env.session()
    session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    equal(session.answer("SELECT * FROM t"), [(5, 5)], "after the restart")
