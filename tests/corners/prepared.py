"""Prepared XA transactions whose client is gone, and transactions of any size."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from corners.env import Env, Session, equal, expect, options
from lib.engines import engine
from lib.server import ServerFailed


def _sound(session: Session, table: str) -> None:
    wanted = [(f"corners.{table}", "check", "status", "OK")]
    equal(session.answer(f"CHECK TABLE {table} EXTENDED"), wanted, f"CHECK TABLE {table}")


def scenario_ddl_waits_for_prepared(env: Env) -> None:
    """DDL on a table that a prepared transaction changed waits and ends with 1205, as InnoDB's does."""
    statements = [
        "DROP TABLE t",
        "TRUNCATE t",
        "RENAME TABLE t TO u",
        "ALTER TABLE t RENAME u",
        "ALTER TABLE t ADD COLUMN c INT, ALGORITHM=COPY",
        "CREATE OR REPLACE TABLE t (z INT)",
        "DROP TABLE t NOWAIT",
    ]
    setup = env.session()
    setup.run("SET GLOBAL innodb_lock_wait_timeout=1")
    setup.run("SET GLOBAL ferrite_lock_wait_timeout=1")

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={engine}")
        session.run("INSERT INTO t VALUES (1, 1), (2, 2)")
        env.prepare("ddl", "UPDATE t SET b=10 WHERE a=1", "INSERT INTO t VALUES (5, 5)")
        session = env.session()
        answers: list[object] = [session.answer(statement) for statement in statements]
        answers.append(session.answer("SELECT * FROM t"))
        answers.append(session.answer("XA ROLLBACK 'ddl'"))
        answers.append(session.answer("SELECT * FROM t"))
        answers.append(session.answer("TRUNCATE t"))
        answers.append(session.answer("DROP TABLE t"))
        return answers

    answers = env.same_as_innodb(play)
    equal(answers[:3], [1205, 1205, 1205], "DROP, TRUNCATE, RENAME")
    setup = env.session()
    setup.run("SET GLOBAL innodb_lock_wait_timeout=50")
    setup.run("SET GLOBAL ferrite_lock_wait_timeout=50")


def scenario_killed_ddl(env: Env) -> None:
    """KILL ends DDL that waits for a prepared transaction."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    env.prepare("kill", "INSERT INTO t VALUES (1)")
    waiter, session = env.session(), env.session()
    drop = waiter.start("DROP TABLE t")
    env.runs(waiter)
    expect(drop.waits(), "DROP waits")
    session.run(f"KILL QUERY {waiter.id}")
    equal(drop.answer(), 1317, "DROP")
    session.run("XA COMMIT 'kill'")
    equal(session.answer("SELECT * FROM t"), [(1,)], "the table")


def scenario_temporary_table_in_xa(env: Env) -> None:
    """A prepared transaction that changed a temporary table as well: the database opens, either decision holds."""
    for crash in (False, True):
        for commit in (False, True):
            env.fresh_database()
            session = env.session()
            session.run("CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
            session.run("INSERT INTO t VALUES (1, 1)")
            env.prepare(
                "temporary",
                "INSERT INTO x VALUES (1, 1), (2, 2)",
                "UPDATE x SET b=b+1",
                "UPDATE t SET b=2",
                before="CREATE TEMPORARY TABLE x (a INT PRIMARY KEY, b INT) ENGINE=FERRITE",
            )
            env.crash() if crash else env.restart()
            session = env.session()
            equal(session.answer("SELECT b FROM t"), [(1,)], "before the decision")
            session.run("XA COMMIT 'temporary'" if commit else "XA ROLLBACK 'temporary'")
            env.restart()
            session = env.session()
            equal(session.answer("SELECT b FROM t"), [(2 if commit else 1,)], "after the decision")
            _sound(session, "t")


def scenario_rollback_touches_no_other_table(env: Env) -> None:
    """XA ROLLBACK after a restart removes nothing of a table that was made since."""
    session = env.session()
    session.run("CREATE TABLE x (a INT PRIMARY KEY) ENGINE=FERRITE")
    env.prepare(
        "ids",
        "INSERT INTO z VALUES (5)",
        "INSERT INTO x VALUES (5)",
        before="CREATE TEMPORARY TABLE z (a INT PRIMARY KEY) ENGINE=FERRITE",
    )
    env.restart()
    session = env.session()
    session.run("CREATE TABLE y (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("INSERT INTO y VALUES (1), (5)")
    session.run("XA ROLLBACK 'ids'")
    equal(session.answer("SELECT a FROM y"), [(1,), (5,)], "the other table")
    equal(session.answer("SELECT a FROM x"), [], "its own table")
    _sound(session, "y")


def scenario_many_values_in_a_transaction(env: Env) -> None:
    """A transaction may let go of any number of values out of line."""
    session = env.session()
    # Seven of them stay in the row.
    columns = [f"b{n}" for n in range(20)]
    session.run(f"CREATE TABLE t (a INT PRIMARY KEY, {' TEXT, '.join(columns)} TEXT) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq" + 20 * ", REPEAT('x', 1100)" + " FROM seq_1_to_4700")
    session.run("UPDATE t SET " + ", ".join(f"{b}=CONCAT({b}, 'y')" for b in columns))
    env.prepare("many", "DELETE FROM t")
    env.crash()
    session = env.session()
    session.run("XA ROLLBACK 'many'")
    equal(session.value("SELECT COUNT(*) FROM t WHERE LENGTH(b0) + LENGTH(b19) = 2202"), 4700, "rows")
    session.run("DELETE FROM t")
    _sound(session, "t")


def scenario_prepare_gives_locks_back(env: Env) -> None:
    """XA PREPARE lets go of gaps and shared locks, and keeps what was changed, as InnoDB's does."""

    def play(engine: str) -> list[object]:
        answers: list[object] = []
        for read in ("SELECT * FROM t WHERE a > 20 FOR UPDATE", "SELECT * FROM t LOCK IN SHARE MODE"):
            session, other = env.session(), env.session()
            session.run(f"CREATE OR REPLACE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={engine}")
            session.run("INSERT INTO t VALUES (10, 1), (20, 1)")
            other.run("SET innodb_lock_wait_timeout=1, ferrite_lock_wait_timeout=1")
            session.run("XA START 'gaps'")
            session.run(read)
            session.run("INSERT INTO t VALUES (40, 1)")
            session.run("XA END 'gaps'")
            answers.append(other.answer("INSERT INTO t VALUES (50, 1)"))
            session.run("XA PREPARE 'gaps'")
            answers.append(other.answer("INSERT INTO t VALUES (60, 1)"))
            answers.append(other.answer("INSERT INTO t VALUES (30, 1)"))
            answers.append(other.answer("UPDATE t SET b=2 WHERE a=10"))
            answers.append(other.answer("UPDATE t SET b=2 WHERE a=40"))
            session.run("XA COMMIT 'gaps'")
            answers.append(other.answer("SELECT * FROM t"))
            session.close()
        return answers

    env.same_as_innodb(play)


def scenario_decided_while_its_connection_ends(env: Env) -> None:
    """An XA COMMIT that is answered is done, at whatever moment of the end of the connection that prepared it comes."""
    other = env.session()
    other.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    for n in range(150):
        session = env.session()
        for table in range(4):
            session.run(f"CREATE TEMPORARY TABLE beside{table} (a INT PRIMARY KEY, b INT, KEY (b)) ENGINE=FERRITE")
        session.run(f"XA START 'x{n}'")
        session.run(f"INSERT INTO t VALUES ({n})")
        session.run(f"XA END 'x{n}'")
        session.run(f"XA PREPARE 'x{n}'")
        session.close()
        until = time.monotonic() + 20
        while other.error(f"XA COMMIT 'x{n}'"):
            expect(time.monotonic() < until, "nobody may decide the transaction", n)
        equal(other.run(f"SELECT COUNT(*) FROM t WHERE a = {n}"), [(1,)], f"row {n} after XA COMMIT")


def scenario_decided_after_its_connection_was_reset(env: Env) -> None:
    """A reset takes a prepared transaction off its connection: what that does next leaves it as it is, and any
    connection decides it."""
    resets, then = env.session(), env.session()
    then.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    then.run("CREATE TABLE beside (a INT) ENGINE=FERRITE")
    goes_on = [
        [],
        ["SELECT * FROM beside"],
        ["INSERT INTO beside VALUES (1)"],
        ["BEGIN", "INSERT INTO beside VALUES (1)", "ROLLBACK"],
        ["START TRANSACTION WITH CONSISTENT SNAPSHOT", "COMMIT"],
        ["XA START 'other'", "INSERT INTO beside VALUES (1)", "XA END 'other'", "XA COMMIT 'other' ONE PHASE"],
    ]
    for statements in goes_on:
        for decision, decides in (("COMMIT", then), ("ROLLBACK", then), ("COMMIT", resets), ("ROLLBACK", resets)):
            what = f"XA {decision} after {statements}"
            for statement in ("XA START 'x'", "INSERT INTO t VALUES (1)", "XA END 'x'", "XA PREPARE 'x'"):
                resets.run(statement)
            resets.reset()
            for statement in statements:
                resets.run(statement)
            equal(then.run("SELECT * FROM t"), [], f"before {what}")
            equal(len(then.run("XA RECOVER")), 1, f"prepared before {what}")
            decides.run(f"XA {decision} 'x'")
            equal(then.run("SELECT * FROM t"), [(1,)] if decision == "COMMIT" else [], what)
            equal(then.run("XA RECOVER"), [], f"prepared after {what}")
            then.run("DELETE FROM t")


def scenario_a_reset_connection_reads_what_is_there(env: Env) -> None:
    """A transaction that had only read in Ferrite leaves nothing in its connection: no snapshot, and no locks, though that
    does nothing any more."""
    other, resets = env.session(), env.session()
    other.run("CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
    other.run("CREATE TABLE beside (a INT) ENGINE=InnoDB")
    other.run("INSERT INTO t VALUES (1, 1)")
    for statement in (
        "XA START 'x'",
        "INSERT INTO beside VALUES (1)",
        "SELECT * FROM t WHERE a = 1 FOR UPDATE",
        "SELECT * FROM t",
        "XA END 'x'",
        "XA PREPARE 'x'",
    ):
        resets.run(statement)
    resets.reset()
    other.run("INSERT INTO t VALUES (2, 2)")
    equal(other.changed("UPDATE t SET b = 5 WHERE a = 1"), 1, "the row is not locked")
    resets.run("BEGIN")
    equal(resets.run("SELECT a, b FROM t"), [(1, 5), (2, 2)], "after the reset")
    resets.run("COMMIT")
    # InnoDB's part is still the old connection's: it can be decided after a restart only.
    env.crash()
    env.session().run("XA ROLLBACK 'x'")


def scenario_answered_rollback_outlives_kill(env: Env) -> None:
    """XA ROLLBACK by the session that prepared: what was answered holds after kill -9, as an XA COMMIT does."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
    session.run("INSERT INTO t VALUES (1, 0)")
    for n in range(3):
        session = env.session()
        for statement in ("XA START 'r'", f"UPDATE t SET b={n + 1}", "XA END 'r'", "XA PREPARE 'r'", "XA ROLLBACK 'r'"):
            session.run(statement)
        env.crash()
        session = env.session()
        equal(session.run("XA RECOVER"), [], "prepared after the crash")
        equal(session.run("SELECT b FROM t"), [(0,)], "the row")


def _one_phase_outlives_kill(env: Env) -> None:
    """XA COMMIT ... ONE PHASE in Ferrite alone, and beside InnoDB, each followed by kill -9 before anything else is flushed."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB")
    changes = {1: ["INSERT INTO t VALUES (1)"], 2: ["INSERT INTO i VALUES (2)", "INSERT INTO t VALUES (2)"]}
    for n, statements in changes.items():
        session = env.session()
        session.run("SET GLOBAL ferrite_flush_log_at_timeout=60")
        for statement in ("XA START 'one'", *statements, "XA END 'one'", "XA COMMIT 'one' ONE PHASE"):
            session.run(statement)
        env.crash()
        session = env.session()
        equal(
            session.answer(f"SELECT a FROM t WHERE a = {n} FOR UPDATE"), [(n,)], f"committed in one phase: {statements}"
        )
        left = session.run("XA RECOVER")
        if n == 1:
            equal(left, [], "prepared after the crash")
        # InnoDB may have its part under the user's name.
        for _ in left:
            session.run("XA ROLLBACK 'one'")
        equal(session.value("SELECT COUNT(*) FROM t"), n, "rows of Ferrite stay committed")


@options("--log-bin=corners-bin", "--sync-binlog=1", "--server-id=1")
def scenario_one_phase_commit_outlives_kill(env: Env) -> None:
    """An answered XA COMMIT ... ONE PHASE is committed after kill -9 with the binary log, which holds the server's id of it."""
    _one_phase_outlives_kill(env)


@options("--skip-log-bin")
def scenario_one_phase_commit_outlives_kill_without_binary_log(env: Env) -> None:
    """The same without the binary log."""
    _one_phase_outlives_kill(env)


@contextlib.contextmanager
def _without_ferrite(env: Env, *more: str) -> Iterator[Session]:
    """A server on the same files that has not loaded the plugin, but may install it."""
    server = env.server
    kept = server.engine, server.options
    server.engine, server.options = engine("innodb"), ["--innodb-buffer-pool-size=32M", "--skip-grant-tables=0", *more]
    try:
        env.start()
        yield env.session(None)
    finally:
        server.engine, server.options = kept


@options("--skip-log-bin")
def scenario_installed_beside_what_users_have_prepared(env: Env) -> None:
    """INSTALL SONAME while the server runs: XA RECOVER lists what was prepared before, and it can be decided."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    for xid, row in (("left", 1), ("right", 2)):
        env.prepare(xid, f"INSERT INTO t VALUES ({row})")
    env.kill()
    with _without_ferrite(env) as session:
        session.run("INSTALL SONAME 'ha_ferrite'")
        equal(len(session.run("XA RECOVER")), 2, "prepared before")
        session.run("XA COMMIT 'left'")
        session.run("XA ROLLBACK 'right'")
        equal(session.run("SELECT a FROM corners.t FOR UPDATE"), [(1,)], "rows")
        equal(session.run("XA RECOVER"), [], "prepared after the decisions")
        session.run("UNINSTALL SONAME 'ha_ferrite'")
        env.stop()


@options("--log-bin=corners-bin", "--sync-binlog=1", "--server-id=1")
def scenario_installed_beside_what_the_server_has_prepared(env: Env) -> None:
    """What the server has prepared it decides only while it starts: INSTALL SONAME after a start without the plugin is refused."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("SET GLOBAL ferrite_flush_log_at_timeout=60")
    session.run("INSERT INTO t VALUES (1)")
    env.kill()
    with _without_ferrite(env, "--log-bin=corners-bin", "--server-id=1") as session:
        for _ in range(2):
            expect(session.error("INSTALL SONAME 'ha_ferrite'") != 0, "INSTALL SONAME goes through")
        expect("1 transactions are prepared whose commit" in env.log(), "the log says why")
        engines = "SELECT COUNT(*) FROM information_schema.ENGINES WHERE ENGINE = 'FERRITE'"
        equal(session.value(engines), 0, "engines of that name")
        env.stop()
    # The binary log of before the crash has been left behind by now: somebody has to say what becomes of it.
    with contextlib.suppress(ServerFailed):
        env.start("--tc-heuristic-recover=COMMIT")
    env.start()
    equal(env.session().run("SELECT a FROM t FOR UPDATE"), [(1,)], "rows")


def scenario_truncate_of_partitions_is_whole_or_nothing(env: Env) -> None:
    """TRUNCATE beside a prepared transaction that has changed one partition empties none of them, under LOCK TABLES, too."""
    session = env.session()
    session.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    session.run("CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE PARTITION BY HASH (a) PARTITIONS 4")
    session.run("INSERT INTO t VALUES (0, 0), (1, 1), (2, 2), (3, 3)")
    rows = session.run("SELECT * FROM t ORDER BY a")
    env.prepare("part", "UPDATE t SET b=20 WHERE a=2")
    session = env.session()
    for before, after in (("DO 0", "DO 0"), ("LOCK TABLES t WRITE", "UNLOCK TABLES")):
        for statement in (
            "TRUNCATE t",
            "ALTER TABLE t TRUNCATE PARTITION p1, p2",
            "ALTER TABLE t TRUNCATE PARTITION ALL",
        ):
            session.run(before)
            equal(session.error(statement), 1205, f"{statement} after {before}")
            session.run(after)
            equal(session.run("SELECT * FROM t ORDER BY a"), rows, f"rows after {statement} after {before}")
    session.run("ALTER TABLE t TRUNCATE PARTITION p0")
    equal(session.run("SELECT * FROM t ORDER BY a"), rows[1:], "the partition that nobody else has changed is empty")
    session.run("XA COMMIT 'part'")
    session.run("TRUNCATE t")
    equal(session.run("SELECT * FROM t"), [], "the table")
    session.run("SET GLOBAL ferrite_lock_wait_timeout=50")


def scenario_partition_stays_beside_prepared(env: Env) -> None:
    """DROP PARTITION beside a prepared transaction that has changed the partition fails, and the table has it still."""
    session = env.session()
    session.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    parts = "PARTITION BY RANGE (a) SUBPARTITION BY HASH (a) SUBPARTITIONS 2 (PARTITION `ä 0` VALUES LESS THAN (10), "
    parts += (
        "PARTITION `Ä1` VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN (30), PARTITION p3 VALUES LESS THAN (40))"
    )
    session.run(f"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE {parts}")
    session.run("INSERT INTO t VALUES (1, 1), (11, 1), (21, 1), (31, 1)")
    env.prepare("x", "UPDATE t SET b=2 WHERE a=11")
    session = env.session()
    defined = session.run("SHOW CREATE TABLE t")
    for before, after in (("DO 0", "DO 0"), ("LOCK TABLES t WRITE", "UNLOCK TABLES")):
        session.run(before)
        equal(session.error("ALTER TABLE t DROP PARTITION `ä1`"), 1205, f"DROP PARTITION after {before}")
        equal(session.error("ALTER TABLE t DROP PARTITION p2, `Ä1`"), 1205, f"DROP PARTITION of two after {before}")
        session.run(after)
        equal(session.run("SHOW CREATE TABLE t"), defined, f"the definition after {before}")
    session.run("ALTER TABLE t DROP PARTITION `ä 0`")
    session.run("LOCK TABLES t WRITE")
    session.run("ALTER TABLE t DROP PARTITION p3")
    session.run("UNLOCK TABLES")
    session.run("ALTER TABLE t ADD PARTITION (PARTITION p4 VALUES LESS THAN (50))")
    halves = "(PARTITION `{0}` VALUES LESS THAN ({1}), PARTITION `{2}` VALUES LESS THAN ({3}))"
    session.run(f"ALTER TABLE t REORGANIZE PARTITION p2 INTO {halves.format('p5', 22, 'p2', 30)}")
    session.run("ALTER TABLE t COMMENT='x'")
    equal(session.run("SELECT * FROM t ORDER BY a"), [(11, 1), (21, 1)], "rows of the other partitions")
    defined = session.run("SHOW CREATE TABLE t")
    for change in (
        f"REORGANIZE PARTITION `Ä1` INTO {halves.format('p6', 12, 'Ä1', 20)}",
        "REBUILD PARTITION `Ä1`",
        "REMOVE PARTITIONING",
        "ADD COLUMN c INT DEFAULT 1, ALGORITHM=COPY",
    ):
        equal(session.error(f"ALTER TABLE t {change}"), 1205, change)
        equal(session.run("SHOW CREATE TABLE t"), defined, f"the definition after {change}")
    session.run("XA COMMIT 'x'")
    equal(session.run("SELECT * FROM t WHERE a=11"), [(11, 2)], "the row")
    session.run("ALTER TABLE t DROP PARTITION `Ä1`")
    session.run("SET GLOBAL ferrite_lock_wait_timeout=50")
    _sound(session, "t")


def scenario_alter_in_place_beside_prepared(env: Env) -> None:
    """What changes no rows and keys waits for nobody. What changes indexes waits; while one is built others read the table."""
    setup = env.session()
    setup.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    setup.run("CREATE TABLE t (a INT PRIMARY KEY, b INT, c VARCHAR(10), KEY kb (b)) ENGINE=FERRITE")
    setup.run("INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')")
    env.prepare("x", "UPDATE t SET b=5 WHERE a=2")
    session, reader = env.session(), env.session()
    for change in (
        "COMMENT='x'",
        "RENAME COLUMN c TO d, ALGORITHM=INPLACE",
        "ALTER b SET DEFAULT 7, ALGORITHM=INSTANT, LOCK=NONE",
        "MODIFY d VARCHAR(20)",
        "RENAME KEY kb TO k, LOCK=NONE",
    ):
        equal(session.error(f"ALTER TABLE t {change}"), 0, change)
    for change in ("DROP KEY k", "ADD KEY kd (d), ALGORITHM=INPLACE", "ADD KEY kd (d), ALGORITHM=NOCOPY, LOCK=SHARED"):
        equal(session.error(f"ALTER TABLE t {change}"), 1205, change)
    session.run("SET innodb_lock_wait_timeout=50, ferrite_lock_wait_timeout=50")
    building = session.start("ALTER TABLE t ADD KEY kd (d), ALGORITHM=INPLACE")
    expect(building.waits(), "the build does not wait")
    equal(reader.answer("SELECT a, b FROM t"), [(1, 1), (2, 2)], "others read meanwhile")
    expect(building.waits(0), "the build does not wait longer")
    reader.run("XA COMMIT 'x'")
    equal(building.answer(), [], "the build")
    equal(session.run("SELECT a, b FROM t FORCE INDEX (kd) ORDER BY d"), [(1, 1), (2, 5)], "by the new index")
    _sound(session, "t")
    setup.run("SET GLOBAL ferrite_lock_wait_timeout=50")


def _tables(session: Session) -> list[object]:
    names = [name for (name,) in session.run("SHOW TABLES")]
    return [
        (session.run(f"SHOW CREATE TABLE {name}"), session.run(f"SELECT * FROM {name} ORDER BY a")) for name in names
    ]


def scenario_a_partition_becomes_a_table_beside_prepared(env: Env) -> None:
    """EXCHANGE and CONVERT wait for what is prepared in the partition or the table that goes, and for nothing else; if they fail, all
    tables are as before."""
    setup = env.session()
    setup.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    parts = "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    setup.run(f"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE {parts}")
    setup.run("INSERT INTO t VALUES (1, 1), (11, 1)")
    for name in "xyz":
        setup.run(f"CREATE TABLE {name} (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
    setup.run("INSERT INTO y VALUES (25, 1)")
    setup.run("INSERT INTO z VALUES (26, 1)")
    for change, goes, stays in (
        ("EXCHANGE PARTITION {} WITH TABLE x", "p1", "p0"),
        ("CONVERT PARTITION {} TO TABLE w", "p1", "p0"),
        ("CONVERT TABLE {} TO PARTITION p2 VALUES LESS THAN (30)", "y", "z"),
    ):
        env.prepare("p", "UPDATE y SET b=3" if goes == "y" else "UPDATE t SET b=b+1 WHERE a=11")
        session = env.session()
        before = _tables(session)
        equal(session.error(f"ALTER TABLE t {change.format(goes)}"), 1205, f"{change} of what is prepared")
        equal(_tables(session), before, f"tables after {change}")
        session.run(f"ALTER TABLE t {change.format(stays)}")
        session.run("XA COMMIT 'p'")
        for (name,) in session.run("SHOW TABLES"):
            _sound(session, name)
    setup.run("SET GLOBAL ferrite_lock_wait_timeout=50")


def scenario_auto_increment_beside_prepared(env: Env) -> None:
    """AUTO_INCREMENT = n waits for nobody, in an ALTER that changes more, and does not go below rows that may come back."""
    session = env.session()
    session.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    session.run("CREATE TABLE p (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("INSERT INTO p VALUES (1)")
    for key in ("PRIMARY KEY (n)", "PRIMARY KEY (n DESC)", "KEY (n)", "KEY (n DESC)", "PRIMARY KEY (v, n), KEY (n, v)"):
        columns = f"n INT NOT NULL AUTO_INCREMENT, v INT, {key}, CONSTRAINT f FOREIGN KEY (v) REFERENCES p (a)"
        session = env.session()
        session.run(f"CREATE OR REPLACE TABLE c ({columns}) ENGINE=FERRITE")
        session.run("INSERT INTO c (v) VALUES (1), (1), (1)")
        env.prepare("x", "INSERT INTO c (v) VALUES (1)")
        session = env.session()
        equal(
            session.error("ALTER TABLE c DROP FOREIGN KEY f, AUTO_INCREMENT=1"),
            0,
            f"ALTER beside an INSERT, {key}",
        )
        expect("CONSTRAINT" not in session.run("SHOW CREATE TABLE c")[0][1], "the key is there")
        session.run("INSERT INTO c (v) VALUES (1)")
        session.run("XA COMMIT 'x'")
        equal(session.run("SELECT n FROM c ORDER BY n"), [(n,) for n in range(1, 6)], f"rows, {key}")
        # Not with the gaps between the rows, into which the next one may go.
        low = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
        env.prepare("y", "DELETE FROM c WHERE n > 3", before=low)
        session = env.session()
        equal(session.error("ALTER TABLE c AUTO_INCREMENT=2"), 0, f"ALTER beside a DELETE, {key}")
        equal(session.error("INSERT INTO c (v) VALUES (1)"), 0, f"INSERT beside a DELETE, {key}")
        session.run("XA ROLLBACK 'y'")
        equal(session.run("SELECT n FROM c ORDER BY n"), [(n,) for n in range(1, 7)], f"rows after it, {key}")
        session.run("DELETE FROM c WHERE n > 2")
        session.run("ALTER TABLE c AUTO_INCREMENT=1")
        session.run("INSERT INTO c (v) VALUES (1)")
        equal(session.value("SELECT MAX(n) FROM c"), 3, f"behind rows that are gone, {key}")
        _sound(session, "c")
    session.run("SET GLOBAL ferrite_lock_wait_timeout=50")


def _forget_partition(env: Env, database: str, table: str, parts: str) -> None:
    """Restarts the server; its definition of the table has these partitions from then on, the engine what it had."""
    session = env.session(database)
    session.run(f"CREATE TABLE other (a INT PRIMARY KEY, b INT) ENGINE=FERRITE {parts}")
    env.stop()
    for kind in ("frm", "par"):
        files = env.datadir / database
        (files / f"{table}.{kind}").write_bytes((files / f"other.{kind}").read_bytes())
    env.start()
    env.session(database).run("DROP TABLE other")


def scenario_a_partition_in_the_way(env: Env) -> None:
    """ADD PARTITION tells of a partition that the definition does not have, and goes through the next time."""
    session = env.session()
    parts = "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10)"
    more = "PARTITION p1 VALUES LESS THAN (20)"
    session.run(f"CREATE TABLE `a b` (a INT PRIMARY KEY, b INT) ENGINE=FERRITE {parts}, {more})")
    session.run("INSERT INTO `a b` VALUES (1, 1), (11, 1)")
    _forget_partition(env, "corners", "a@0020b", f"{parts})")
    session = env.session()
    expect(session.error(f"ALTER TABLE `a b` ADD PARTITION ({more})") != 0, "ADD PARTITION goes through")
    told = [text for _, _, text in session.warnings() if "Ferrite has a partition" in text]
    expect(len(told) == 1 and "partition p1 of table corners.a b" in told[0], "what to do", session.warnings())
    session.run(f"ALTER TABLE `a b` ADD PARTITION ({more})")
    equal(session.run("SELECT * FROM `a b`"), [(1, 1)], "rows")


def scenario_drop_database_tells_what_stays(env: Env) -> None:
    """A partition that the server has forgotten while a prepared transaction keeps it: DROP DATABASE warns of it."""
    session = env.session()
    session.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    session.run("CREATE DATABASE lost")
    parts = "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    session.run(f"CREATE TABLE lost.t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE {parts}")
    session.run("INSERT INTO lost.t VALUES (1, 1)")
    env.prepare("lost", "UPDATE lost.t SET b=2")
    _forget_partition(env, "lost", "t", "PARTITION BY RANGE (a) (PARTITION p1 VALUES LESS THAN (20))")
    session = env.session()
    session.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    session = env.session()
    equal(session.error("DROP DATABASE lost"), 0, "DROP DATABASE")
    told = [text for _, _, text in session.warnings() if "database lost remain" in text]
    expect(len(told) == 1, "DROP DATABASE warns", session.warnings())
    session.run("XA ROLLBACK 'lost'")
    session.run("SET GLOBAL ferrite_lock_wait_timeout=50")


@options("--ferrite-lock-wait-timeout=40", "--lock-wait-timeout=40")
def scenario_recovered_ddl_waits_for_nobody(env: Env) -> None:
    """A crash in a DROP that waits for a prepared transaction: the start does not wait for it, and the table is as it was."""
    session = env.session()
    session.run("CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=FERRITE")
    session.run("INSERT INTO p VALUES (1, 1)")
    env.prepare("x", "UPDATE p SET v=2")
    dropping = session.start("DROP TABLE p")
    expect(dropping.waits(), "DROP does not wait")
    env.kill()
    dropping.thread.join()
    begun = time.monotonic()
    env.start()
    expect(time.monotonic() - begun < 30, "the start has waited", time.monotonic() - begun)
    session = env.session()
    session.run("XA COMMIT 'x'")
    equal(session.answer("SELECT * FROM p"), [(1, 2)], "the table")
    _sound(session, "p")


# Their undo is more than is rolled back, or given its versions again, before the server is up.
ROWS = 200_000
LARGE = "UPDATE t SET b = b + 1, c = CONCAT(c, REPEAT('y', 400))"


def _prepared_by_the_server(env: Env, number: int) -> None:
    """A large transaction prepared under an xid as the server gives them for its own commits, and kill -9."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY, b INT, c TEXT, KEY (b)) ENGINE=FERRITE")
    session.run(f"INSERT INTO t SELECT seq, 0, REPEAT('x', 20) FROM seq_1_to_{ROWS}")
    server_id = int(session.value("SELECT @@server_id"))
    xid = b"MySQLXid" + server_id.to_bytes(8, "little") + number.to_bytes(8, "little")
    name = f"X'{xid.hex()}'"
    session.run(f"XA START {name}")
    session.run(LARGE)
    session.run(f"XA END {name}")
    session.run(f"XA PREPARE {name}")
    env.kill()


def _is_as_before(env: Env, crash: bool) -> None:
    """Others see what was before it from the first moment on, and can change it soon."""
    session = env.session()
    rolling_back = "SELECT COUNT(*) FROM information_schema.ferrite_trx WHERE trx_state = 'ROLLING BACK'"
    equal(session.answer("XA RECOVER"), [], "what is prepared")
    seen = "SELECT COUNT(*), SUM(b), SUM(LENGTH(c)) FROM t"
    equal(session.answer(seen), [(ROWS, 0, 20 * ROWS)], "the rows")
    if crash:
        env.crash()
        session = env.session()
        equal(session.answer(seen), [(ROWS, 0, 20 * ROWS)], "the rows after a crash amid its rollback")
    env.eventually("the end of the rollback", lambda: session.value(rolling_back) == 0, 50)
    equal(session.changed("UPDATE t SET b = 7 WHERE a <= 10"), 10, "rows that can be changed")
    equal(session.answer(seen), [(ROWS, 70, 20 * ROWS)], "the rows")
    _sound(session, "t")


@options("--log-bin=corners-bin")
def scenario_the_start_rolls_back_what_is_not_in_the_binary_log(env: Env) -> None:
    """A large transaction whose commit a crash has cut off before the binary log: the rollback goes on behind the start."""
    for number, crash in ((2_000_000_001, False), (2_000_000_002, True)):
        env.fresh_database()
        _prepared_by_the_server(env, number)
        env.start()
        _is_as_before(env, crash)
        env.restart()


@options("--log-bin=corners-bin")
def scenario_the_start_is_told_what_to_decide(env: Env) -> None:
    """--tc-heuristic-recover decides and ends the server at once: what it has decided holds, and is finished by the next start."""
    for number, decision in ((2_000_000_001, "ROLLBACK"), (2_000_000_002, "COMMIT")):
        env.fresh_database()
        _prepared_by_the_server(env, number)
        with contextlib.suppress(ServerFailed):
            env.start(f"--tc-heuristic-recover={decision}")
            expect(False, "the server starts with --tc-heuristic-recover")
        env.start()
        if decision == "ROLLBACK":
            _is_as_before(env, False)
            continue
        session = env.session()
        equal(session.answer("XA RECOVER"), [], "what is prepared")
        rows = session.answer("SELECT COUNT(*), SUM(b), SUM(LENGTH(c)) FROM t")
        equal(rows, [(ROWS, ROWS, 420 * ROWS)], "the rows")
        equal(session.changed("UPDATE t SET b = b + 1"), ROWS, "rows that can be changed")
        _sound(session, "t")
