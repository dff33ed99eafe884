"""information_schema.TABLES.UPDATE_TIME: the time of the last commit, nothing of what is not committed."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect

AGE = (
    "SELECT TIMESTAMPDIFF(SECOND, UPDATE_TIME, NOW()) FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 't'"
)


def _age(session: Session) -> int | None:
    """Seconds since the last change; None: there was none since the start."""
    value = session.run(AGE)[0][0]
    return None if value is None else int(str(value))


def _recent(session: Session, what: str) -> None:
    age = _age(session)
    expect(age is not None and -2 <= age < 60, what, age)


def scenario_follows_commits(env: Env) -> None:
    """Set by COMMIT, not before; kept by ROLLBACK; set by TRUNCATE."""
    writer, reader = env.session(), env.session()
    writer.run("CREATE TABLE t (a INT PRIMARY KEY, b LONGTEXT) ENGINE=FERRITE")
    equal(_age(reader), None, "a new table")
    writer.run("BEGIN")
    writer.run("INSERT INTO t VALUES (1, REPEAT('x', 100000))")
    equal(_age(reader), None, "before the commit")
    writer.run("ROLLBACK")
    equal(_age(reader), None, "after a rollback")
    writer.run("INSERT INTO t VALUES (1, 'x')")
    _recent(reader, "after a commit")
    env.restart()
    reader = env.session()
    equal(_age(reader), None, "after a restart")
    reader.run("TRUNCATE TABLE t")
    _recent(reader, "after TRUNCATE")


def scenario_follows_decisions(env: Env) -> None:
    """A prepared transaction sets it when it is committed, also after a crash."""
    session = env.session()
    session.run("CREATE TABLE t (a INT) ENGINE=FERRITE")
    session.run("INSERT INTO t VALUES (1)")
    for sql in ("XA START 'x'", "DELETE FROM t", "XA END 'x'", "XA PREPARE 'x'"):
        session.run(sql)
    env.crash()
    session = env.session()
    equal(_age(session), None, "after a crash")
    session.run("XA COMMIT 'x'")
    _recent(session, "after XA COMMIT")


def scenario_follows_what_is_undone(env: Env) -> None:
    """What a savepoint or a failed statement takes back has changed nothing; what was changed before it has."""
    writer, reader = env.session(), env.session()
    writer.run("CREATE TABLE t (a INT PRIMARY KEY, b LONGTEXT) ENGINE=FERRITE")
    writer.run("CREATE TABLE other (a INT PRIMARY KEY) ENGINE=FERRITE")
    for sql in ("BEGIN", "INSERT INTO other VALUES (1)", "SAVEPOINT s"):
        writer.run(sql)
    writer.run("INSERT INTO t VALUES (1, REPEAT('x', 100000)), (2, 'y')")
    writer.run("ROLLBACK TO s")
    equal(writer.error("INSERT INTO t VALUES (3, 'a'), (3, 'b')"), 1062, "a failed statement")
    writer.run("COMMIT")
    equal(_age(reader), None, "all of it was taken back")
    for sql in ("BEGIN", "INSERT INTO t VALUES (1, 'x')", "SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO s", "COMMIT"):
        writer.run(sql)
    _recent(reader, "changed before the savepoint")
