"""The buffer pool's size, changed while the server runs."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect, options

MIB = 1 << 20


def _filled(env: Env, rows: int) -> Session:
    """Table t with so many rows of 1,000 bytes."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY, b INT, c VARCHAR(1000)) ENGINE=FERRITE")
    session.run(f"INSERT INTO t SELECT seq, 0, REPEAT(CHAR(65 + seq % 26), 1000) FROM seq_1_to_{rows}")
    return session


def _status(session: Session, name: str) -> int:
    return int(session.run(f"SHOW GLOBAL STATUS LIKE 'ferrite_buffer_pool_{name}'")[0][1])


def _resize(session: Session, mib: int) -> None:
    session.run(f"SET GLOBAL ferrite_buffer_pool_size = {mib * MIB}")


def _wait_for(env: Env, session: Session, mib: int) -> None:
    """Until it has that size."""
    pages = mib * MIB // 16384
    env.eventually(f"a pool of {mib} MiB", lambda: _status(session, "pages_total") == pages, 30)
    equal(_status(session, "pages_leaving"), 0, "pages to be cleared")


@options("--ferrite-buffer-pool-size=16M", "--ferrite-buffer-pool-size-max=256M", "--skip-log-bin")
def scenario_larger_and_smaller(env: Env) -> None:
    """Rows stay right and memory goes back; a size that cannot be is refused, and the old one stays."""
    session = _filled(env, 20_000)
    _resize(session, 128)
    equal(_status(session, "pages_total"), 8192, "pages of 128 MiB")
    session.run("UPDATE t SET b = b + 1")
    equal(session.run("SELECT COUNT(*), SUM(b), SUM(LENGTH(c)) FROM t"), [(20_000, 20_000, 20_000_000)], "rows")
    reads = _status(session, "reads")
    session.run("SELECT SUM(LENGTH(c)) FROM t")
    equal(_status(session, "reads"), reads, "all is in memory")
    large = env.resident_bytes()
    _resize(session, 5)
    _wait_for(env, session, 5)
    env.eventually("the memory goes back", lambda: env.resident_bytes() < large - 10 * MIB)
    equal(session.run("SELECT COUNT(*), SUM(b), SUM(LENGTH(c)) FROM t"), [(20_000, 20_000, 20_000_000)], "rows")
    equal(session.error(f"SET GLOBAL ferrite_buffer_pool_size = {257 * MIB}"), 1231, "more than the largest")
    equal(session.value("SELECT @@GLOBAL.ferrite_buffer_pool_size"), 5 * MIB, "the size")
    equal(session.error("SET GLOBAL ferrite_buffer_pool_size_max = 1"), 1238, "a read-only variable")
    equal(session.run("CHECK TABLE t EXTENDED")[0][3], "OK", "the table")
    env.eventually("a note in the log", lambda: "the buffer pool has 5 MiB now" in env.log())


@options("--ferrite-buffer-pool-size=32M", "--skip-log-bin")
def scenario_beside_writers_and_a_crash(env: Env) -> None:
    """Writers and readers go on while the pool breathes; nothing that was acknowledged is lost."""
    session = _filled(env, 10_000)
    session.run("CREATE PROCEDURE work(IN k INT) BEGIN DECLARE i INT DEFAULT 0; WHILE i < 1500 DO"
                " UPDATE t SET b = b + 1 WHERE a = 1 + (i * 7919 + k) % 10000;"
                " SELECT COUNT(*) INTO @n FROM t WHERE a BETWEEN i AND i + 200; SET i = i + 1;"
                " END WHILE; END")  # fmt: skip
    sizes = [8, 64, 5, 128, 16, 5, 256, 6]
    turn = rounds = 0
    # A busy machine may do all of one round's work between two resizes.
    while turn <= 3:
        expect(rounds < 20, "the pool was resized beside them", turn)
        workers = [env.session().start(f"CALL work({k})") for k in (1, 2, 3)]
        while any(worker.waits(0.05) for worker in workers):
            _resize(session, sizes[turn % len(sizes)])
            turn += 1
        equal([worker.answer() for worker in workers], [[], [], []], "work")
        rounds += 1
    changes = 4500 * rounds
    equal(session.value("SELECT SUM(b) FROM t"), changes, "changes")
    _resize(session, 5)
    env.crash()
    session = env.session()
    equal(session.value("SELECT SUM(b) FROM t"), changes, "changes after the crash")
    equal(session.run("CHECK TABLE t EXTENDED")[0][3], "OK", "the table")


@options("--ferrite-buffer-pool-size=64M", "--skip-log-bin")
def scenario_beside_a_prepared_transaction(env: Env) -> None:
    """A prepared transaction, a cursor in the middle of a table and large values outlive a smaller pool."""
    session = _filled(env, 5_000)
    session.run("CREATE TABLE big (a INT PRIMARY KEY, v LONGTEXT) ENGINE=FERRITE")
    session.run("INSERT INTO big SELECT seq, REPEAT('x', 200000) FROM seq_1_to_40")
    other = env.session()
    other.run("XA START 'a'")
    other.run("UPDATE t SET b = 7 WHERE a <= 3000")
    other.run("DELETE FROM big WHERE a <= 10")
    other.run("XA END 'a'")
    other.run("XA PREPARE 'a'")
    reader = env.session()
    reader.run("SET tx_isolation = 'READ-UNCOMMITTED'")
    equal(reader.value("SELECT SUM(b) FROM t"), 21_000, "what is not committed")
    old = env.session()
    old.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    _resize(session, 5)
    _wait_for(env, session, 5)
    other.run("XA COMMIT 'a'")
    equal(old.run("SELECT SUM(b), (SELECT SUM(LENGTH(v)) FROM big) FROM t"), [(0, 8_000_000)], "the snapshot")
    old.run("COMMIT")
    equal(old.run("SELECT SUM(b), (SELECT SUM(LENGTH(v)) FROM big) FROM t"), [(21_000, 6_000_000)], "now")
