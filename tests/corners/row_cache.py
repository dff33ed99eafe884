"""Rows that are kept without their page (ferrite_row_cache_size): they are those that InnoDB gives, whatever happens to the pages."""

from __future__ import annotations

from random import Random

from corners.env import Env, Session, equal, expect

OPTIONS = [
    "--ferrite-buffer-pool-size=5M",
    "--ferrite-row-cache-size=4M",
    "--innodb-buffer-pool-size=32M",
    "--skip-log-bin",
]
ROWS = 6000
HOT = 30
TEXT = "REPEAT(CHAR(65 + seq % 26), 700)"


def _hits(session: Session) -> int:
    return int(session.run("SHOW GLOBAL STATUS LIKE 'ferrite_row_cache_hits'")[0][1])


def _tables(session: Session, engine: str) -> None:
    """Table t, its rows by two keys, and a table to push it out of memory; together they are twice the buffer pool."""
    session.run("DROP TABLE IF EXISTS t, others")
    session.run(f"CREATE TABLE t (a INT PRIMARY KEY, b INT, c VARCHAR(1000), d TEXT, UNIQUE (b)) ENGINE={engine}")
    session.run(f"INSERT INTO t SELECT seq, -seq, {TEXT}, REPEAT('d', seq % 100) FROM seq_1_to_{ROWS}")
    session.run(f"CREATE TABLE others (a INT PRIMARY KEY, c VARCHAR(1000)) ENGINE={engine}")
    session.run(f"INSERT INTO others SELECT seq, {TEXT} FROM seq_1_to_{ROWS}")


def _push_out(session: Session) -> None:
    for _ in range(2):
        session.run("SELECT SUM(LENGTH(c)) FROM others")


def _change(rng: Random, n: int) -> str:
    key = rng.randrange(HOT) * (ROWS // HOT) + 1
    return rng.choice(
        [
            f"UPDATE t SET c = 'version {n}' WHERE a = {key}",
            f"UPDATE t SET d = REPEAT('{n % 10}', {rng.choice([10, 9000, 20000])}) WHERE a = {key}",
            f"DELETE FROM t WHERE a = {key}",
            f"REPLACE INTO t VALUES ({key}, {-key}, 'put {n}', 'd')",
            f"INSERT INTO t VALUES ({key}, {-key}, 'new {n}', 'd') ON DUPLICATE KEY UPDATE c = 'was there {n}'",
        ]
    )


def _look(session: Session, rng: Random) -> list[object]:
    key = rng.randrange(HOT) * (ROWS // HOT) + 1
    columns = "a, b, c, LENGTH(d), MD5(d)"
    by = rng.choice([f"a = {key}", f"b = {-key}", f"a IN ({key}, {key + ROWS // HOT}, {key + 1})"])
    return session.run(f"SELECT {columns} FROM t WHERE {by} ORDER BY a")  # type: ignore[return-value]


def scenario_changes_and_old_snapshots(env: Env) -> None:
    """A writer that commits, rolls back and goes back to savepoints; readers with old and new snapshots, and none."""

    def play(engine: str) -> list[object]:
        rng, seen = Random(7), []
        writer, old, fresh, dirty = (env.session() for _ in range(4))
        _tables(writer, engine)
        writer.run("SET autocommit = 0")
        dirty.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
        old.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        for n in range(500):
            if rng.random() < 0.25:
                writer.run(_change(rng, n))
            step = rng.randrange(30)
            if step < 3:
                writer.run(["COMMIT", "ROLLBACK", "SAVEPOINT s"][step])
            elif step == 3:
                seen.append(writer.answer("ROLLBACK TO s"))
            elif step == 4:
                old.run("COMMIT")
                old.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            elif step in (5, 6):
                _push_out(fresh)
            who = rng.choice([writer, old, fresh, dirty])
            seen += [_look(who, rng) for _ in range(3)]
        writer.run("COMMIT")
        old.run("COMMIT")
        seen.append(fresh.run("SELECT COUNT(*), SUM(CRC32(CONCAT(a, b, c, d))) FROM t"))
        return seen

    before = _hits(env.session())
    env.same_as_innodb(play)
    session = env.session()
    expect(_hits(session) > before + 100, "rows came from the row cache", _hits(session) - before)
    _tables(session, "FERRITE")
    equal(session.run("CHECK TABLE t EXTENDED")[0][3], "OK", "the table")


def scenario_prepared_and_gone(env: Env) -> None:
    """What a prepared transaction changed is not seen before it commits, nor after it was rolled back; tables that come again
    under their names have their own rows."""

    def play(engine: str) -> list[object]:
        rng, seen = Random(11), []
        writer, fresh = env.session(), env.session()
        _tables(writer, engine)
        for n in range(12):
            writer.run(f"XA START 'x{n}'")
            for _ in range(4):
                writer.run(_change(rng, n))
                _push_out(writer)
                seen.append(_look(writer, rng))
            writer.run(f"XA END 'x{n}'")
            writer.run(f"XA PREPARE 'x{n}'")
            for _ in range(2):
                _push_out(fresh)
                seen += [_look(fresh, rng) for _ in range(12)]
            writer.run(f"XA {'COMMIT' if n % 2 else 'ROLLBACK'} 'x{n}'")
            _push_out(fresh)
            seen += [_look(fresh, rng) for _ in range(12)]
            if n % 4 == 3:
                fresh.run(["TRUNCATE t", "ALTER TABLE t FORCE", "DROP TABLE t, others"][n // 4])
                if n // 4 == 2:
                    _tables(fresh, engine)
        seen.append(fresh.run("SELECT COUNT(*), SUM(CRC32(CONCAT(a, b, c, d))) FROM t"))
        return seen

    env.same_as_innodb(play)


def scenario_goes_on_from_a_row(env: Env) -> None:
    """HANDLER and joins go on from rows of the row cache; the size can be changed at any time."""

    def play(engine: str) -> list[object]:
        session, seen = env.session(), []
        _tables(session, engine)
        session.run("HANDLER t OPEN")
        for size in [4, 0, 1, 64, 4]:
            session.run(f"SET GLOBAL ferrite_row_cache_size = {size << 20}")
            for key in [1, 2000, 2001, 4000, ROWS]:
                _push_out(session)
                for move in ["NEXT", "PREV", "PREV"]:
                    seen.append(session.run(f"HANDLER t READ `PRIMARY` = ({key})"))
                    seen.append(session.run(f"HANDLER t READ `PRIMARY` {move}"))
                join = "SELECT x.a, y.c FROM others x JOIN t y ON y.a = x.a + 1 WHERE x.a BETWEEN"
                seen.append(session.run(f"{join} {key - 5} AND {key + 5} ORDER BY x.a"))
        session.run("HANDLER t CLOSE")
        return seen

    env.same_as_innodb(play)
    equal(env.session().error("SET GLOBAL ferrite_row_cache_size = 'x'"), 1232, "no size")
