"""Transactions with thousands of row locks, which are kept in sets: what others can do beside them, compared with InnoDB in the same server."""

from __future__ import annotations

import pymysql

from corners.env import Env, Session, equal, expect

ROWS = 20000
LEVELS = ("READ COMMITTED", "REPEATABLE READ")
# What fills a set: rows in the order of another index, or without their gaps. Shared and exclusive.
READS = (
    "SELECT SUM(v) FROM {t} FORCE INDEX (k) WHERE k >= 0 FOR UPDATE",
    "SELECT SUM(v) FROM {t} FORCE INDEX (k) WHERE k >= 0 LOCK IN SHARE MODE",
    # 11.8 reads the whole of InnoDB's table otherwise.
    "SELECT SUM(v) FROM {t} FORCE INDEX (PRIMARY) WHERE id <= 15000 FOR UPDATE",
    "SELECT SUM(v) FROM {t} FORCE INDEX (PRIMARY) WHERE id <= 15000 ORDER BY id DESC LOCK IN SHARE MODE",
)
# Of another session, that does not wait.
BESIDE = (
    "SELECT v FROM {t} WHERE id = 14000 FOR UPDATE",
    "SELECT v FROM {t} WHERE id = 14000 LOCK IN SHARE MODE",
    "SELECT v FROM {t} WHERE id = 19999 FOR UPDATE",
    "UPDATE {t} SET v = v + 1 WHERE id = 12345",
    "UPDATE {t} SET v = v + 1 WHERE k = 77",
    "DELETE FROM {t} WHERE id = 9999",
    "INSERT INTO {t} VALUES (100000, 100000, 0, NULL)",
    "INSERT INTO {t} VALUES (14000, 1, 0, NULL)",
    "SELECT v FROM {t} WHERE id = 14000",
)


def _make(session: Session, engine: str) -> None:
    session.run(f"CREATE TABLE s_{engine} (id INT PRIMARY KEY, k INT, v INT, t LONGTEXT, KEY k (k)) ENGINE={engine}")
    session.run(
        f"INSERT INTO s_{engine} SELECT seq, seq * 7919 % {ROWS}, 0, IF(seq % 100, NULL, REPEAT('x', 20000)) FROM seq_1_to_{ROWS}"
    )


def _outcome(session: Session, sql: str) -> object:
    try:
        return session.run(sql)
    except pymysql.err.Error as e:
        return e.args[0]


def _beside(env: Env, engine: str, level: str, read: str) -> list[object]:
    table = f"s_{engine}"
    holder, other = env.session(), env.session()
    for session in (holder, other):
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    other.run("SET innodb_lock_wait_timeout = 0, ferrite_lock_wait_timeout = 0")
    holder.run("BEGIN")
    holder.run(read.format(t=table))
    found: list[object] = []
    for sql in BESIDE:
        other.run("BEGIN")
        found.append(_outcome(other, sql.format(t=table)))
        other.run("ROLLBACK")
    # A statement that fails, and a savepoint, take no locks back.
    holder.run("SAVEPOINT a")
    found.append(_outcome(holder, f"INSERT INTO {table} VALUES (1, 1, 1, NULL)"))
    holder.run("ROLLBACK TO a")
    found.append(_outcome(other, f"UPDATE {table} SET v = 1 WHERE id = 14000"))
    holder.run("COMMIT")
    found.append(_outcome(other, f"UPDATE {table} SET v = v WHERE id = 14000"))
    for session in (holder, other):
        session.close()
    return found


def scenario_others_beside_sets(env: Env) -> None:
    """The same waits as with InnoDB, whatever the read."""
    session = env.session()
    for engine in ("InnoDB", "Ferrite"):
        _make(session, engine)
    for level in LEVELS:
        for read in READS:
            theirs, ours = (_beside(env, engine, level, read) for engine in ("InnoDB", "Ferrite"))
            equal(ours, theirs, f"{level}: {read}")


def scenario_what_is_shown_and_given_back(env: Env) -> None:
    """FERRITE_LOCKS has a row for a set; an XA transaction that is prepared keeps exclusive locks, and gives the shared ones back."""
    session, other = env.session(), env.session()
    _make(session, "Ferrite")
    other.run("SET ferrite_lock_wait_timeout = 0")
    session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    for mode, lock, keeps in (("FOR UPDATE", "X,REC_NOT_GAP", True), ("LOCK IN SHARE MODE", "S,REC_NOT_GAP", False)):
        session.run("XA START 'x'")
        session.run("UPDATE s_Ferrite SET v = v + 1 WHERE id = 20000")
        session.run(f"SELECT SUM(v) FROM s_Ferrite WHERE id <= 15000 {mode}")
        shown = session.run(
            "SELECT lock_mode, lock_data FROM information_schema.FERRITE_LOCKS WHERE lock_data LIKE '% records'"
        )
        equal([m for m, _ in shown], [lock], f"modes of sets: {shown}")
        expect(9000 < int(shown[0][1].split()[0]) < 15000, "records of a set", shown)
        session.run("XA END 'x'")
        session.run("XA PREPARE 'x'")
        equal(_outcome(other, "UPDATE s_Ferrite SET v = 1 WHERE id = 14000") == 1205, keeps, f"prepared after {mode}")
        session.run("XA ROLLBACK 'x'")
        equal(_outcome(other, "UPDATE s_Ferrite SET v = 1 WHERE id = 14000"), [], "after the end")
    equal(session.run("SELECT COUNT(*) FROM information_schema.FERRITE_LOCKS"), [(0,)], "locks left")


def scenario_deleted_rows_of_a_set(env: Env) -> None:
    """Rows that the holder of a set deletes, and others of a rolled-back insert: purge and rollback find the set's locks."""
    session, other = env.session(), env.session()
    _make(session, "Ferrite")
    other.run("SET ferrite_lock_wait_timeout = 0")
    session.run("BEGIN")
    session.run("SELECT SUM(v) FROM s_Ferrite FORCE INDEX (k) WHERE k >= 0 FOR UPDATE")
    session.run("DELETE FROM s_Ferrite WHERE id % 2 = 0")
    equal(_outcome(other, "INSERT INTO s_Ferrite VALUES (14000, 0, 0, NULL)"), 1205, "a deleted row's key")
    session.run("ROLLBACK")
    equal(session.run("SELECT COUNT(*) FROM s_Ferrite"), [(ROWS,)], "rolled back")
    session.run("DELETE FROM s_Ferrite WHERE id > 10000")
    session.run("BEGIN")
    session.run("SELECT SUM(v) FROM s_Ferrite FORCE INDEX (k) WHERE k >= 0 FOR UPDATE")
    equal(_outcome(other, "DROP TABLE s_InnoDB"), 1051, "another table")
    equal(session.run("CHECK TABLE s_Ferrite EXTENDED")[0][3], "OK", "CHECK TABLE")
    session.run("COMMIT")
