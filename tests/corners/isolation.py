"""Snapshot isolation: at REPEATABLE READ a locking read or a write of a row that has changed since the snapshot fails with 1020."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect, slow

CHANGED = 1020

ROWS = "(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4), (5, 5, 5), (9, 9, 9)"

OF_OTHERS = (
    "UPDATE t SET c = c + 10 WHERE a = 3",
    "UPDATE t SET b = 33 WHERE a = 3",
    "DELETE FROM t WHERE a = 3",
    "INSERT INTO t VALUES (7, 7, 7)",
    "DELETE FROM t WHERE a > 2 AND a < 6",
)
"""What another session commits between the snapshot and what comes next."""

OWN = (
    "SELECT * FROM t WHERE a = 3 FOR UPDATE",
    "SELECT * FROM t WHERE a = 3 LOCK IN SHARE MODE",
    "SELECT * FROM t WHERE a = 2 FOR UPDATE",
    "SELECT * FROM t FORCE INDEX (PRIMARY) ORDER BY a LOCK IN SHARE MODE",
    "SELECT * FROM t FORCE INDEX (PRIMARY) ORDER BY a DESC FOR UPDATE",
    "SELECT * FROM t FORCE INDEX (b) WHERE b = 3 FOR UPDATE",
    "SELECT * FROM t FORCE INDEX (b) WHERE b BETWEEN 2 AND 4 LOCK IN SHARE MODE",
    "UPDATE t SET c = 77 WHERE a = 3",
    "UPDATE t SET c = 77 WHERE b = 3",
    "UPDATE t SET c = 77",
    "DELETE FROM t WHERE a = 3",
    "DELETE FROM t WHERE a = 1",
    "INSERT INTO t VALUES (3, 30, 30)",
    "INSERT IGNORE INTO t VALUES (3, 30, 30)",
    "INSERT INTO t VALUES (3, 30, 30) ON DUPLICATE KEY UPDATE c = 78",
    "REPLACE INTO t VALUES (3, 30, 30)",
    "INSERT INTO t VALUES (7, 70, 70)",
    "INSERT INTO t VALUES (8, 80, 80)",
    "INSERT INTO u SELECT * FROM t WHERE a = 3",
)


def _create(session: Session, engine: str) -> None:
    for name in ("t", "u"):
        session.run(f"CREATE OR REPLACE TABLE {name} (a INT PRIMARY KEY, b INT, c INT, KEY (b)) ENGINE={engine}")
    session.run(f"INSERT INTO t VALUES {ROWS}")


def _setting(engine: str, on: bool) -> str:
    return f"SET SESSION {engine}_snapshot_isolation = {'ON' if on else 'OFF'}"


def _one(env: Env, engine: str, on: bool, level: str, others: str, own: str) -> list[object]:
    reader, other = env.session(), env.session()
    _create(other, engine)
    reader.run(_setting(engine, on))
    reader.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    reader.run("BEGIN")
    reader.run("INSERT INTO u VALUES (1, 1, 1)")
    reader.run("SELECT COUNT(*) FROM u")
    if level != "SERIALIZABLE":
        reader.run("SELECT COUNT(*) FROM t")
    other.run(others)
    seen: list[object] = [reader.answer(own)]
    seen.append(reader.value("SELECT @@in_transaction"))
    seen.append(reader.answer("COMMIT"))
    seen.append(reader.run("SELECT * FROM t ORDER BY a"))
    seen.append(reader.run("SELECT * FROM u ORDER BY a"))
    env.close_sessions()
    return seen


def _compare(env: Env, changes: tuple[str, ...], statements: tuple[str, ...]) -> None:
    failed = 0
    for others in changes:
        for own in statements:
            seen = {e: _one(env, e, True, "REPEATABLE READ", others, own) for e in ("innodb", "ferrite")}
            equal(seen["ferrite"], seen["innodb"], f"{own} after {others}")
            failed += seen["ferrite"][0] == CHANGED
    expect(failed > len(statements) / 2, "so few statements have failed", failed)


def scenario_some_statements(env: Env) -> None:
    """Which statements fail, and what is left of the transaction: as with InnoDB."""
    _compare(env, (OF_OTHERS[0], OF_OTHERS[2]), OWN[::2])


@slow
def scenario_every_statement(env: Env) -> None:
    """The same of more statements, after more changes."""
    _compare(env, OF_OTHERS, OWN)


def scenario_other_levels_and_off(env: Env) -> None:
    """SERIALIZABLE as with InnoDB; below REPEATABLE READ, and with the setting OFF, nothing fails."""
    for on, level in ((True, "SERIALIZABLE"), (True, "READ COMMITTED"), (False, "REPEATABLE READ")):
        for others in (OF_OTHERS[0], OF_OTHERS[2]):
            for own in OWN[::3]:
                seen = {e: _one(env, e, on, level, others, own) for e in ("innodb", "ferrite")}
                equal(seen["ferrite"], seen["innodb"], f"{level}: {own} after {others}")
                if level != "SERIALIZABLE":
                    expect(seen["ferrite"][0] != CHANGED, f"{level}, {on}: {own}")


def scenario_after_a_wait(env: Env) -> None:
    """A statement waits for the other's change, and fails when that is committed; it succeeds when it is rolled back."""
    for end, wanted in (("COMMIT", CHANGED), ("ROLLBACK", [])):
        for own in ("UPDATE t SET c = 5 WHERE a = 3", "DELETE FROM t WHERE b = 3"):
            reader, other = env.session(), env.session()
            _create(other, "ferrite")
            reader.run(_setting("ferrite", True))
            reader.run("BEGIN")
            reader.run("SELECT * FROM t")
            other.run("BEGIN")
            other.run("UPDATE t SET c = 4 WHERE a = 3")
            waiting = reader.start(own)
            expect(waiting.waits(), f"{own} does not wait")
            other.run(end)
            equal(waiting.answer(), wanted, f"{own}, {end}")
            reader.run("COMMIT")
            env.close_sessions()


def scenario_no_update_is_lost(env: Env) -> None:
    """Two sessions read a counter and write what they have read plus one: with it on, no increment is lost."""
    sessions = [env.session() for _ in range(2)]
    sessions[0].run("CREATE TABLE n (a INT PRIMARY KEY, v INT) ENGINE=FERRITE")
    sessions[0].run("INSERT INTO n VALUES (1, 0)")
    done = 0
    for session in sessions:
        session.run(_setting("ferrite", True))
    for _ in range(20):
        values = []
        for session in sessions:
            session.run("BEGIN")
            values.append(session.value("SELECT v FROM n"))
        for session, value in zip(sessions, values, strict=True):
            answer = session.answer(f"UPDATE n SET v = {value + 1}")
            expect(answer in ([], CHANGED), "an UPDATE", answer)
            session.run("COMMIT")
            done += answer == []
    equal(done, 20, "increments")
    equal(sessions[0].value("SELECT v FROM n"), done, "the counter")


def scenario_default_of_the_version(env: Env) -> None:
    """The default is InnoDB's on the same server: OFF on 10.11, ON on 11.8; and SET GLOBAL counts for new sessions."""
    session = env.session()
    equal(
        session.value("SELECT @@GLOBAL.ferrite_snapshot_isolation"),
        session.value("SELECT @@GLOBAL.innodb_snapshot_isolation"),
        "the default",
    )
    before = session.value("SELECT @@GLOBAL.ferrite_snapshot_isolation")
    session.run(f"SET GLOBAL ferrite_snapshot_isolation = {1 - before}")
    equal(env.session().value("SELECT @@ferrite_snapshot_isolation"), 1 - before, "a new session")
    session.run(f"SET GLOBAL ferrite_snapshot_isolation = {before}")


def _family(env: Env, engine: str, others: str, own: str) -> list[object]:
    reader, other = env.session(autocommit=False), env.session()
    for sql in (
        "DROP TABLE IF EXISTS c",
        f"CREATE OR REPLACE TABLE p (id INT PRIMARY KEY, v INT DEFAULT 0) ENGINE={engine}",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT DEFAULT 0, FOREIGN KEY (p) REFERENCES p (id)"
        f" ON DELETE CASCADE ON UPDATE SET NULL) ENGINE={engine}",
        "INSERT INTO p (id) VALUES (1), (2), (3), (4)",
        "INSERT INTO c (id, p) VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
    ):
        other.run(sql)
    reader.run(_setting(engine, True))
    reader.run("INSERT INTO p (id) VALUES (70)")
    reader.run("SELECT * FROM p, c")
    other.run(others)
    seen: list[object] = [reader.answer(own), reader.value("SELECT @@in_transaction"), reader.answer("COMMIT")]
    seen += [reader.run("SELECT * FROM p ORDER BY id"), reader.run("SELECT * FROM c ORDER BY id")]
    env.close_sessions()
    return seen


def scenario_foreign_keys(env: Env) -> None:
    """Children that a cascade changes are compared with the snapshot, and the whole transaction goes, as with InnoDB; parents that
    are looked for are not."""
    for others, own, wanted in (
        ("UPDATE c SET v=1 WHERE id=4", "DELETE FROM p WHERE id=4", CHANGED),
        ("UPDATE c SET v=1 WHERE id=4", "DELETE FROM p WHERE id IN (2, 4)", CHANGED),
        ("UPDATE c SET v=1 WHERE id=4", "UPDATE p SET id=44 WHERE id=4", CHANGED),
        ("UPDATE c SET v=1 WHERE id=4", "DELETE FROM p WHERE id=1", []),
        ("INSERT INTO c (id, p) VALUES (50, 1)", "DELETE FROM p WHERE id=1", CHANGED),
        ("DELETE FROM p WHERE id=4", "INSERT INTO c (id, p) VALUES (9, 1)", []),
        ("DELETE FROM c WHERE id=4", "DELETE FROM p WHERE id=3", []),
    ):
        seen = {e: _family(env, e, others, own) for e in ("innodb", "ferrite")}
        equal(seen["ferrite"], seen["innodb"], f"{own} after {others}")
        equal(seen["ferrite"][0], wanted, f"{own} after {others}")
    for others, own, wanted in (
        ("INSERT INTO p (id) VALUES (9)", "INSERT INTO c (id, p) VALUES (9, 9)", []),
        ("INSERT INTO p (id) VALUES (9)", "UPDATE c SET p=9 WHERE id=2", []),
        ("UPDATE p SET v=1 WHERE id=1", "INSERT INTO c (id, p) VALUES (9, 1)", []),
        ("DELETE FROM p WHERE id=4", "UPDATE c SET p=4 WHERE id=2", 1452),
    ):
        equal(_family(env, "ferrite", others, own)[0], wanted, f"{own} after {others}")
