"""Random histories over eight tables with foreign keys of every action, changed by DDL meanwhile, with crashes, KILL, timeouts
and transactions that are prepared: no orphan, ever."""

from __future__ import annotations

import contextlib
import random
import threading
import time

import pymysql

from corners.env import DATABASE, Env, Failed, Session, equal, expect, options, slow

TABLES = 8
ROWS = 14
ACTIONS = ("RESTRICT", "CASCADE", "SET NULL", "NO ACTION")
LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")
# Of rows: duplicate, deadlock, referenced, no parent, timeout, changed since the snapshot, no savepoint, duplicate through a cascade, too deep.
OF_ROWS = {1062, 1213, 1451, 1452, 1205, 1020, 1305, 1761, 1762, 1296, 193, 1030}
# Of KILL, and of XA after a statement that has ended its transaction: interrupted, XAER_RMFAIL, XA_RB..., XAER_NOTA.
OF_OTHERS = {1317, 1399, 1402, 1613, 1614, 1397}
# Of DDL beside: no such table, another definition, no such column or key, names that are taken, constraints in the way.
OF_DDL = {
    1146,
    1051,
    1060,
    1412,
    1054,
    1091,
    1050,
    1061,
    1022,
    1826,
    1005,
    1215,
    1217,
    1701,
    1025,
    1553,
    1828,
    1829,
    1832,
    1833,
    1834,
    1072,
    1176,
    121,
}
FOREIGN = (
    "SELECT k.table_name, k.column_name, k.referenced_table_name, k.referenced_column_name FROM information_schema.key_column_usage k"
    f" WHERE k.table_schema='{DATABASE}' AND k.referenced_table_name IS NOT NULL"
)


def _constraint(dice: random.Random, column: str) -> str:
    parent = dice.randrange(TABLES)
    return f"FOREIGN KEY ({column}) REFERENCES t{parent} (id) ON DELETE {dice.choice(ACTIONS)} ON UPDATE {dice.choice(ACTIONS)}"


def _create(dice: random.Random, number: int) -> str:
    key = dice.choice(("KEY (up), KEY (too)", "KEY (up, v), KEY (too DESC)", "KEY (up DESC, id), KEY (too, up)"))
    big = dice.choice(("", "", "big TEXT DEFAULT REPEAT('b', 9000), ", "near INT AS (up + 1) VIRTUAL, KEY (near), "))
    return f"CREATE TABLE t{number} (id INT PRIMARY KEY, up INT, too INT, v INT DEFAULT 0, {big}{key}) ENGINE=FERRITE"


def _make(env: Env, dice: random.Random) -> None:
    env.fresh_database()
    session = env.session()
    session.run("SET GLOBAL ferrite_lock_wait_timeout=2")
    for number in range(TABLES):
        session.run(_create(dice, number))
    for number in range(TABLES):
        for column in ("up", "too"):
            session.run(f"ALTER TABLE t{number} ADD CONSTRAINT f{number}{column} {_constraint(dice, column)}")


def _change(dice: random.Random) -> str:
    table, row, up, too = (
        f"t{dice.randrange(TABLES)}",
        dice.randint(1, ROWS),
        dice.randint(1, ROWS),
        dice.randint(1, ROWS),
    )
    values = f"(id, up, too) VALUES ({row}, {dice.choice(('NULL', up))}, {dice.choice(('NULL', 'NULL', too))})"
    return dice.choice(
        (
            f"INSERT INTO {table} {values}",
            f"INSERT INTO {table} {values}",
            f"INSERT INTO {table} {values}",
            f"INSERT INTO {table} {values} ON DUPLICATE KEY UPDATE up={up}",
            f"REPLACE INTO {table} {values}",
            f"INSERT IGNORE INTO {table} {values}, ({up}, {row}, NULL)",
            f"DELETE FROM {table} WHERE id={row}",
            f"DELETE IGNORE FROM {table} WHERE id BETWEEN {row} AND {row + 3}",
            f"UPDATE {table} SET v=v+1 WHERE id={row}",
            f"UPDATE {table} SET v=v+1 WHERE up={up}",
            f"UPDATE {table} SET id={up} WHERE id={row}",
            f"UPDATE {table} SET up={up}, id={too} WHERE id={row}",
            f"UPDATE IGNORE {table} SET too={too}, up=NULL WHERE id <= {row}",
            f"SAVEPOINT s{dice.randint(1, 2)}",
            f"ROLLBACK TO s{dice.randint(1, 2)}",
        )
    )


def _definition(dice: random.Random) -> list[str]:
    """Statements one after the other that leave the tables as they were, but for their constraints."""
    number, column = dice.randrange(TABLES), dice.choice(("up", "too"))
    table = f"t{number}"
    return dice.choice(
        (
            [f"ALTER TABLE {table} DROP FOREIGN KEY f{number}{column}"],
            [f"ALTER TABLE {table} ADD CONSTRAINT f{number}{column} {_constraint(dice, column)}"],
            [f"ALTER TABLE {table} ADD CONSTRAINT f{number}{column} {_constraint(dice, column)}"],
            [
                f"ALTER TABLE {table} DROP FOREIGN KEY f{number}{column}, ADD CONSTRAINT f{number}{column} {_constraint(dice, column)}"
            ],
            [f"ALTER TABLE {table} ADD COLUMN z INT, ALGORITHM=COPY", f"ALTER TABLE {table} DROP COLUMN z"],
            [f"ALTER TABLE {table} FORCE"],
            [f"ALTER TABLE {table} ADD KEY extra (v, up)", f"ALTER TABLE {table} DROP KEY extra"],
            [f"RENAME TABLE {table} TO away", f"RENAME TABLE away TO {table}"],
            [f"RENAME TABLE {table} TO aside, t{(number + 1) % TABLES} TO {table}, aside TO t{(number + 1) % TABLES}"],
            [f"ALTER TABLE {table} CHANGE id num INT, ALGORITHM=INPLACE", f"ALTER TABLE {table} CHANGE num id INT"],
            [f"TRUNCATE {table}"],
            [f"DROP TABLE {table}", _create(dice, number)],
            [f"OPTIMIZE TABLE {table}"],
        )
    )


def _alone(dice: random.Random, session: Session) -> None:
    """A statement that other clients feel: KILL of one of them."""
    clients = session.run(
        f"SELECT id FROM information_schema.processlist WHERE db='{DATABASE}' AND id <> CONNECTION_ID()"
    )
    if clients and dice.random() < 0.3:
        session.answer(f"KILL QUERY {dice.choice(clients)[0]}")


def _decide(dice: random.Random, session: Session) -> None:
    """Commit or roll back what was left prepared."""
    for *_, xid in session.run("XA RECOVER"):
        name = xid.decode() if isinstance(xid, bytes) else xid
        session.answer(f"XA {dice.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} '{name}'")


def _end(dice: random.Random, session: Session, xid: str | None) -> bool:
    """End a transaction; True: it stays prepared, and its client is to go away."""
    if not xid:
        session.answer(dice.choice(("COMMIT", "COMMIT", "ROLLBACK")))
        return False
    session.answer(f"XA END '{xid}'")
    if session.answer(f"XA PREPARE '{xid}'") != []:
        session.answer(f"XA ROLLBACK '{xid}'")
        return False
    if dice.random() < 0.3:
        return True
    session.answer(f"XA {dice.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} '{xid}'")
    return False


def _transaction(dice: random.Random, session: Session, xid: str | None, unexpected: list[object]) -> None:
    session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {dice.choice(LEVELS)}")
    if xid:
        session.run(f"XA START '{xid}'")
    _play(session, [_change(dice) for _ in range(dice.randint(1, 4))], unexpected)


def _play(session: Session, statements: list[str], unexpected: list[object], told: list[str] | None = None) -> None:
    for sql in statements:
        begun = time.monotonic()
        answer = session.answer(sql)
        if told is not None:
            told.append(f"{begun:.3f} to {time.monotonic():.3f}: {sql}: {answer or 'done'}")
        if isinstance(answer, int) and answer not in OF_ROWS | OF_DDL | OF_OTHERS:
            unexpected.append((answer, sql, session.warnings()))
        if answer in (1213, 1402, 1614):
            break


def _new_session(env: Env, definitions: bool) -> Session:
    session = env.session(autocommit=definitions)
    session.run("SET lock_wait_timeout=2")
    return session


def _client(env: Env, seed: int, until: float, definitions: bool, unexpected: list[object], told: list[str]) -> None:
    dice = random.Random(seed)
    number = 0
    try:
        session = _new_session(env, definitions)
        while time.monotonic() < until:
            if definitions:
                _play(session, _definition(dice), unexpected, told)
                _alone(dice, session)
                if dice.random() < 0.3:
                    _decide(dice, session)
                time.sleep(dice.random() * 0.1)
                continue
            number += 1
            xid = f"{seed}-{number}" if dice.random() < 0.2 else None
            _transaction(dice, session, xid, unexpected)
            if _end(dice, session, xid):
                session.close()
                session = _new_session(env, definitions)
    except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError, AttributeError):
        return  # killed


def _no_orphans(session: Session, seed: int) -> int:
    found = session.run(FOREIGN)
    for child, column, parent, referred in found:
        exists = session.value(
            f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='{DATABASE}' AND table_name='{parent}'"
        )
        if not exists:
            continue  # dropped or renamed when the server died
        rows = f"SELECT COUNT(*) FROM {child} c LEFT JOIN {parent} p ON p.{referred}=c.{column} WHERE c.{column} IS NOT NULL AND p.{referred} IS NULL"
        equal(session.value(rows), 0, f"orphans in {child}.{column}, parent {parent}, seed {seed}")
    tables = [name for (name,) in session.run("SHOW TABLES")]
    for table in tables:
        equal(
            session.answer(f"CHECK TABLE {table} EXTENDED"),
            [(f"{DATABASE}.{table}", "check", "status", "OK")],
            f"CHECK, seed {seed}",
        )
    return len(found)


def _round(env: Env, seed: int, seconds: float) -> tuple[int, int]:
    """One history; constraints and rows at its end."""
    dice = random.Random(seed)
    _make(env, dice)
    unexpected: list[object] = []
    told: list[str] = []
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=_client, args=(env, seed * 100 + n, until, n < 3, unexpected, told)) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    if dice.random() < 0.5:
        time.sleep(seconds * dice.uniform(0.3, 0.9))
        env.kill()
        for thread in threads:
            thread.join()
        env.start()
        if dice.random() < 0.3:
            env.crash()
    for thread in threads:
        thread.join()
    expect(not unexpected, f"errors that nobody expects, seed {seed}", unexpected[:3])
    env.close_sessions()
    session = env.session()
    others = f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = '{DATABASE}' AND ID <> CONNECTION_ID()"
    env.eventually("the clients are gone", lambda: session.value(others) == 0)
    _decide(dice, session)
    equal(session.run("XA RECOVER"), [], "prepared transactions that nobody can decide")
    try:
        constraints = _no_orphans(session, seed)
    except Failed:
        print("\n".join(told[-100:]), flush=True)
        raise
    rows = 0
    for (table,) in session.run("SHOW TABLES"):
        rows += session.value(f"SELECT COUNT(*) FROM {table}")
    with contextlib.suppress(pymysql.err.Error):
        env.close_sessions()
    return constraints, rows


def _rounds(env: Env, first: int, seconds: float) -> None:
    until = time.monotonic() + seconds
    seed, constraints, rows = first, 0, 0
    while seed < first + 3 or time.monotonic() < until:
        found = _round(env, seed, 4)
        constraints, rows, seed = constraints + found[0], rows + found[1], seed + 1
    print(
        f"{seed - first} histories from seed {first} on, {constraints} constraints and {rows} rows at their ends",
        flush=True,
    )
    expect(constraints > 5 and rows > 5, "hardly anything was left to check", (constraints, rows))


@options("--ferrite-log-budget=64M")
def scenario_history(env: Env) -> None:
    """Five clients change rows, three change tables, the server dies now and then; --time makes it longer."""
    _rounds(env, int(time.time()) if env.seconds else 1, env.seconds)


@slow
@options("--ferrite-log-budget=64M")
def scenario_long_history(env: Env) -> None:
    """As above, half an hour."""
    _rounds(env, 10_000, 1800)
