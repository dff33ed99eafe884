"""Settings of InnoDB that applications make and mean for every table; what both engines of a transaction have acknowledged."""

from __future__ import annotations

import time

from corners.env import Env, Session, equal, expect, options


def _locked(env: Env, engine: str = "FERRITE") -> Session:
    """Table t with a row that another session holds."""
    holder = env.session()
    holder.run(f"CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE={engine}")
    holder.run("INSERT INTO t VALUES (1, 1), (2, 2)")
    holder.run("BEGIN")
    holder.run("UPDATE t SET b = 3 WHERE a = 1")
    return holder


def _wait_seconds(session: Session) -> float:
    """How long a wait for the row takes that ends with a timeout."""
    begun = time.monotonic()
    equal(session.error("UPDATE t SET b = 4 WHERE a = 1"), 1205, "a lock wait")
    return time.monotonic() - begun


def _least_seconds(session: Session) -> float:
    """The shortest of three waits: what a machine that stands still for a moment adds is in one of them."""
    return min(_wait_seconds(session) for _ in range(3))


def scenario_lock_wait_timeout_of_the_session(env: Env) -> None:
    """SET innodb_lock_wait_timeout holds for Ferrite's tables, unless Ferrite's own variable is set."""
    _locked(env)
    waiter = env.session()
    equal(waiter.value("SELECT @@ferrite_lock_wait_timeout"), -1, "the default")
    waiter.run("SET innodb_lock_wait_timeout = 1")
    expect(0.8 < _wait_seconds(waiter) < 20, "InnoDB's second counts")
    waiter.run("SET innodb_lock_wait_timeout = 0")
    expect(_least_seconds(waiter) < 0.8, "none at all")
    waiter.run("SET ferrite_lock_wait_timeout = 2")
    expect(1.8 < _wait_seconds(waiter) < 20, "Ferrite's own value is set")
    waiter.run("SET innodb_lock_wait_timeout = 50")
    waiter.run("SET ferrite_lock_wait_timeout = 0")
    expect(_least_seconds(waiter) < 0.8, "and 0 is a value")
    waiter.run("SET ferrite_lock_wait_timeout = DEFAULT, innodb_lock_wait_timeout = 1")
    expect(_wait_seconds(waiter) > 0.8, "back to InnoDB's")


@options("--innodb-lock-wait-timeout=2")
def scenario_lock_wait_timeout_of_the_server(env: Env) -> None:
    """The global value, from the command line or SET GLOBAL, holds for new sessions."""
    _locked(env)
    expect(1.8 < _wait_seconds(env.session()) < 20, "of the command line")
    env.session().run("SET GLOBAL innodb_lock_wait_timeout = 1")
    expect(0.8 < _wait_seconds(env.session()) < 20, "of SET GLOBAL")
    env.session().run("SET GLOBAL ferrite_lock_wait_timeout = 0")
    expect(_least_seconds(env.session()) < 0.8, "Ferrite's own")


@options("--innodb-rollback-on-timeout", "--innodb-lock-wait-timeout=1")
def scenario_rollback_on_timeout(env: Env) -> None:
    """innodb_rollback_on_timeout rolls the whole transaction back, whatever the engine of the row waited for."""

    def play(engine: str) -> list[object]:
        _locked(env, engine)
        waiter = env.session()
        waiter.run("BEGIN")
        waiter.run("UPDATE t SET b = 5 WHERE a = 2")
        return [waiter.answer("UPDATE t SET b = 4 WHERE a = 1"), waiter.answer("SELECT b FROM t WHERE a = 2")]

    env.same_as_innodb(play)


def scenario_strict_mode(env: Env) -> None:
    """Without innodb_strict_mode a bad ROW_FORMAT or KEY_BLOCK_SIZE is a warning, as with InnoDB."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for strict in (1, 0):
            session.run(f"SET innodb_strict_mode = {strict}")
            for number, option in enumerate(
                ("ROW_FORMAT=FIXED", "KEY_BLOCK_SIZE=5", "ROW_FORMAT=COMPACT KEY_BLOCK_SIZE=8")
            ):
                seen.append(session.answer(f"CREATE TABLE s{strict}{number} (a INT) ENGINE={engine} {option}"))
                seen.append(len(session.warnings()) > 0)
        return seen

    env.same_as_innodb(play)


@options("--skip-innodb", "--default-storage-engine=FERRITE", "--default-tmp-storage-engine=Aria")
def scenario_without_innodb(env: Env) -> None:
    """A server without InnoDB waits 50 seconds by default, and Ferrite's own variables work."""
    _locked(env)
    waiter = env.session()
    waiter.run("SET ferrite_lock_wait_timeout = 1")
    expect(0.8 < _wait_seconds(waiter) < 20, "Ferrite's own")
    running = env.session().start("UPDATE t SET b = 4 WHERE a = 1")
    expect(running.waits(3), "the default is longer")


@options("--skip-log-bin", "--innodb-flush-log-at-trx-commit=1")
def scenario_acknowledged_without_binlog(env: Env) -> None:
    """What a transaction of two engines has changed in Ferrite is there after a crash, if it was acknowledged."""
    session = env.session()
    session.run("CREATE TABLE f (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB")
    for number in range(20):
        session.run("BEGIN")
        session.run(f"INSERT INTO f VALUES ({number})")
        session.run(f"INSERT INTO i VALUES ({number})")
        session.run("COMMIT")
    env.crash()
    equal(env.session().value("SELECT COUNT(*) FROM f"), 20, "Ferrite's half")


@options("--log-bin", "--binlog-format=ROW", "--server-id=1")
def scenario_acknowledged_with_binlog(env: Env) -> None:
    """With the binary log both halves are there; so is Ferrite's of a transaction that was kept out of it."""
    session = env.session()
    session.run("CREATE TABLE f (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB")
    for number in range(40):
        session.run(f"SET sql_log_bin = {number % 2}")
        session.run("BEGIN")
        session.run(f"INSERT INTO f VALUES ({number})")
        session.run(f"INSERT INTO i VALUES ({number})")
        session.run("COMMIT")
    env.crash()
    session = env.session()
    equal(session.value("SELECT COUNT(*) FROM f"), 40, "Ferrite's half")
    equal(session.value("SELECT COUNT(*) FROM i WHERE a % 2 = 1"), 20, "InnoDB's half of what is in the binary log")


@options("--ferrite-memory=32M", "--ferrite-buffer-pool-size=80M")
def scenario_a_budget_that_is_too_small(env: Env) -> None:
    """ferrite_memory below the least counts as 0 at the start: the buffer pool has the size of its own variable."""
    session = env.session()
    equal(session.value("SELECT @@ferrite_memory"), 0, "the budget")
    equal(session.value("SELECT @@ferrite_buffer_pool_size"), 80 << 20, "the pool's variable")
    limit = "SELECT limit_bytes FROM information_schema.FERRITE_MEMORY WHERE part = 'buffer pool'"
    equal(session.value(limit), 80 << 20, "the pool")
    expect("ferrite_memory=33554432 is not used" in env.log(), "a warning", env.log())
    expect(session.error("SET GLOBAL ferrite_memory = 33554432") != 0, "refused while the server runs")
