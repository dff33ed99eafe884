"""Temporary tables: whose they are, who may take them away, and what is left of them."""

from __future__ import annotations

from corners.env import Env, equal, expect, options


def scenario_gone_after_a_crash(env: Env) -> None:
    """A temporary table does not outlive the server; permanent tables do."""
    session = env.session()
    session.run("CREATE TABLE kept (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("CREATE TEMPORARY TABLE lost (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("INSERT INTO kept VALUES (1)")
    session.run("INSERT INTO lost VALUES (1)")
    env.crash()
    session = env.session()
    equal(session.answer("SELECT * FROM kept"), [(1,)], "the permanent table")
    equal(session.answer("SELECT * FROM lost"), 1146, "the temporary table")
    equal(session.answer("CHECK TABLE kept EXTENDED"), [("corners.kept", "check", "status", "OK")], "CHECK TABLE")


def scenario_drop_database_of_the_name_of_tmpdir(env: Env) -> None:
    """DROP DATABASE leaves temporary tables to their sessions, whatever the directory they lie in is called."""
    directory = env.server.home.name
    session, other = env.session(), env.session()
    session.run("CREATE TEMPORARY TABLE mine (a INT PRIMARY KEY, b INT, KEY (b)) ENGINE=FERRITE")
    session.run("INSERT INTO mine SELECT seq, seq FROM seq_1_to_1000")
    for name in (directory, "tmp", "data", f"#mysql50#{directory}"):
        other.answer(f"CREATE DATABASE `{name}`")
        other.run(f"CREATE TABLE `{name}`.t (a INT) ENGINE=FERRITE")
        other.run(f"DROP DATABASE `{name}`")
        equal(session.value("SELECT COUNT(*) FROM mine FORCE INDEX (b)"), 1000, f"rows after DROP DATABASE {name}")
    session.run("INSERT INTO mine VALUES (0, 0)")
    session.run("ALTER TABLE mine ADD c INT")
    session.run("TRUNCATE mine")
    equal(session.answer("SELECT * FROM mine"), [], "after TRUNCATE")
    session.run("DROP TABLE mine")


def scenario_no_other_table_has_the_name_of_one(env: Env) -> None:
    """A permanent table cannot take the name that the server gives to a temporary table's files."""
    session = env.session()
    session.run("CREATE TABLE t (a INT) ENGINE=FERRITE")
    name = "`#mysql50##sql-temptable-1-2-3`"
    expect(session.error(f"CREATE TABLE {name} (a INT) ENGINE=FERRITE") != 0, "CREATE is refused")
    expect(session.error(f"RENAME TABLE t TO {name}") != 0, "RENAME is refused")
    equal(session.answer("SELECT * FROM t"), [], "the table")
    session.run("CREATE TABLE `#sql-temptable-1-2-3` (a INT) ENGINE=FERRITE")
    session.run("INSERT INTO `#sql-temptable-1-2-3` VALUES (1)")
    env.restart()
    equal(env.session().answer("SELECT * FROM `#sql-temptable-1-2-3`"), [(1,)], "a table that is only called so")


def scenario_nobody_else_drops_one(env: Env) -> None:
    """DROP TABLE with the name of a file took away the temporary table that another session was using."""
    mine, other = env.session(), env.session()
    mine.run("CREATE TEMPORARY TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    mine.run("INSERT INTO t VALUES (1)")
    assert env.server.child
    for number in range(4):
        name = f"`#mysql50##sql-temptable-{env.server.child.pid:x}-{mine.id:x}-{number:x}`"
        for session in (other, mine):
            equal(session.error(f"DROP TABLE {name}"), 1051, name)
            equal(session.error(f"DROP TABLE mysql.{name}"), 1051, name)
            equal(session.error(f"DROP TEMPORARY TABLE {name}"), 1051, name)
            equal(session.error(f"SELECT * FROM {name}"), 1146, name)
            equal(session.error(f"RENAME TABLE {name} TO stolen"), 1146, name)
    equal(mine.answer("SELECT * FROM t"), [(1,)], "its owner's rows")
    mine.run("ALTER TABLE t ADD b INT")
    mine.run("DROP TABLE t")
    equal(mine.error("SELECT * FROM t"), 1146, "dropped by its owner")


@options()
def scenario_several_tmpdirs(env: Env) -> None:
    """Temporary tables in several directories in turn, one of them inside the data directory."""
    first, second = env.server.home / "first", env.datadir / "second"
    first.mkdir()
    second.mkdir()
    env.restart(f"--tmpdir={first}:{second}:./second")
    session, other = env.session(), env.session()
    for number in range(6):
        for who in (session, other):
            who.run(f"CREATE TEMPORARY TABLE t{number} (a INT PRIMARY KEY) ENGINE=FERRITE")
            who.run(f"INSERT INTO t{number} VALUES ({who.id})")
    env.session().run("DROP DATABASE second")
    for number in range(6):
        for who in (session, other):
            equal(who.answer(f"SELECT * FROM t{number}"), [(who.id,)], "rows of a session's own table")
    other.close()
    env.crash()
    equal(env.session().answer("SELECT * FROM t1"), 1146, "after the crash")


def scenario_kept_rows_of_create_select(env: Env) -> None:
    """ROLLBACK keeps what CREATE TEMPORARY TABLE ... SELECT has put into the table, as it keeps the table."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"CREATE TABLE t (a INT PRIMARY KEY) ENGINE={engine}")
        session.run("BEGIN")
        session.run("INSERT INTO t VALUES (1)")
        session.run(
            f"CREATE TEMPORARY TABLE c (PRIMARY KEY (a), KEY (b)) ENGINE={engine} SELECT seq a, seq b FROM seq_1_to_100"
        )
        session.run(
            f"CREATE TEMPORARY TABLE i (PRIMARY KEY (a)) ENGINE={engine} IGNORE SELECT seq DIV 2 a FROM seq_1_to_9"
        )
        session.run(
            f"CREATE TEMPORARY TABLE r (PRIMARY KEY (a)) ENGINE={engine} REPLACE SELECT seq DIV 2 a, seq b FROM seq_1_to_9"
        )
        session.run("INSERT INTO c VALUES (101, 101)")
        session.run("UPDATE c SET b = 0 WHERE a <= 10")
        session.run("DELETE FROM c WHERE a > 90 AND a < 100")
        before = session.run("SELECT COUNT(*), SUM(a), SUM(b) FROM c")
        session.run("ROLLBACK")
        after = session.run("SELECT COUNT(*), SUM(a), SUM(b) FROM c FORCE INDEX (b)")
        failed = session.error(
            f"CREATE TEMPORARY TABLE f (PRIMARY KEY (a)) ENGINE={engine} SELECT seq DIV 2 a FROM seq_1_to_9"
        )
        return [
            failed,
            before,
            after,
            session.answer("SELECT * FROM t"),
            session.answer("SELECT * FROM i"),
            session.answer("SELECT * FROM r"),
            session.answer("SELECT * FROM f"),
        ]

    env.same_as_innodb(play)


def scenario_create_select_that_fails(env: Env) -> None:
    """A CREATE TEMPORARY TABLE ... SELECT that fails within a transaction takes nothing from its ROLLBACK (InnoDB of 11.8 keeps what the
    transaction has changed in temporary tables then)."""
    session = env.session()
    session.run("BEGIN")
    session.run(
        "CREATE TEMPORARY TABLE c (PRIMARY KEY (a), KEY (b)) ENGINE=Ferrite SELECT seq a, seq b FROM seq_1_to_100"
    )
    session.error("CREATE TEMPORARY TABLE f (PRIMARY KEY (a)) ENGINE=Ferrite SELECT seq DIV 2 a FROM seq_1_to_9")
    session.run("INSERT INTO c VALUES (101, 101)")
    session.run("UPDATE c SET b = 0 WHERE a <= 10")
    session.run("DELETE FROM c WHERE a > 90 AND a < 100")
    session.run("ROLLBACK")
    equal(
        session.run("SELECT COUNT(*), SUM(a), SUM(b) FROM c FORCE INDEX (b)"),
        [(100, 5050, 5050)],
        "rows after ROLLBACK",
    )
    equal(session.answer("SELECT * FROM f"), 1146, "the table that was not made")


def scenario_changed_by_a_function_of_its_statement(env: Env) -> None:
    """A function may change the row of a temporary table that the statement which calls it is about to change: what the statement
    does not change stays as the function has left it."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run("CREATE FUNCTION f(n INT) RETURNS INT BEGIN UPDATE t SET v=v+100, w=w+7 WHERE id=n; RETURN 5; END")
        session.run("CREATE FUNCTION gone(n INT) RETURNS INT BEGIN DELETE FROM t WHERE id=n; RETURN 5; END")
        session.run(f"CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, v INT, w INT, KEY (w)) ENGINE={engine}")
        answers: list[object] = []
        for sql in (
            "UPDATE t SET v=f(id) WHERE id=1",
            "UPDATE t SET v=f(id)",
            "UPDATE t SET v=f(id) WHERE w=2",
            "UPDATE t SET id=id+10 WHERE id=1 AND f(id)",
            "DELETE FROM t WHERE id=1 AND f(id)",
            "DELETE FROM t WHERE id=1 AND gone(id)",
            "REPLACE INTO t VALUES (1, f(1), 3)",
            "INSERT INTO t (id) VALUES (1) ON DUPLICATE KEY UPDATE v=f(t.id)",
        ):
            session.run("TRUNCATE t")
            session.run("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
            answers.append([sql, session.answer(sql), session.run("SELECT * FROM t ORDER BY id")])
            answers.append([sql, session.run("SELECT w, id FROM t FORCE INDEX (w) WHERE w > 0 ORDER BY w, id")])
            equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", sql)
        return answers

    env.same_as_innodb(play)
