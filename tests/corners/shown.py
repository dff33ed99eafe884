"""What status variables and the tables FERRITE_... of information_schema show of others."""

from __future__ import annotations

import threading

from corners.env import Env, Session, equal, expect

VIEWS = "information_schema"


def _lock_wait(env: Env, waiting: int) -> None:
    watching = env.session()
    waits = f"SELECT COUNT(*) FROM {VIEWS}.FERRITE_TRX WHERE trx_state = 'LOCK WAIT'"
    env.eventually(f"{waiting} wait", lambda: watching.value(waits) == waiting)


def scenario_waits_join_locks_one_to_one(env: Env) -> None:
    """Each lock and each request has an id of its own: FERRITE_LOCK_WAITS joined with FERRITE_LOCKS has a row for each wait."""
    a, b, c = (env.session() for _ in range(3))
    for table in ("t", "u"):
        a.run(f"CREATE TABLE {table} (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
        a.run(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    for session in (a, b):
        session.run("BEGIN")
        session.run("UPDATE u SET b = b + 1 WHERE a = %s", 1 if session is a else 2)
        session.run("SELECT * FROM t WHERE a = 1 LOCK IN SHARE MODE")
    waiting = [b.start("UPDATE t SET b = 5 WHERE a = 1")]
    _lock_wait(env, 1)
    waiting.append(c.start("UPDATE t SET b = 6 WHERE a = 1"))
    _lock_wait(env, 2)

    watching = env.session()
    waits = watching.run(f"SELECT requested_lock_id, blocking_lock_id FROM {VIEWS}.FERRITE_LOCK_WAITS")
    expect(len(waits) >= 3, "who waits for whom", waits)
    joined = watching.run(
        f"SELECT r.lock_thread_id, r.lock_granted, b.lock_thread_id, b.lock_granted FROM {VIEWS}.FERRITE_LOCK_WAITS w"
        f" JOIN {VIEWS}.FERRITE_LOCKS r ON r.lock_id = w.requested_lock_id"
        f" JOIN {VIEWS}.FERRITE_LOCKS b ON b.lock_id = w.blocking_lock_id"
    )
    wanted = [(b.id, 0, a.id, 1), (c.id, 0, a.id, 1), (c.id, 0, b.id, 0), (c.id, 0, b.id, 1)]
    equal(sorted(joined), sorted(wanted), "the join")
    locks = f"SELECT COUNT(*) - COUNT(DISTINCT lock_id) FROM {VIEWS}.FERRITE_LOCKS"
    equal(watching.value(locks), 0, "locks that share an id")
    a.run("COMMIT")
    for session, statement in ((b, waiting[0]), (c, waiting[1])):
        equal(statement.answer(), [], "a statement that waited")
        session.run("COMMIT")


def scenario_a_whole_table_is_one_lock(env: Env) -> None:
    """LOCK TABLES has one row in FERRITE_LOCKS."""
    a = env.session(autocommit=False)
    a.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    a.run("SET autocommit = 0")
    a.run("LOCK TABLES t WRITE")
    seen = env.session().run(f"SELECT lock_type, lock_mode, lock_index FROM {VIEWS}.FERRITE_LOCKS")
    equal(seen, [("TABLE", "X", None)], "the lock")


def scenario_very_many_locks_are_cut_off(env: Env) -> None:
    """FERRITE_LOCKS takes 16 MiB at most, and says so."""
    s = env.session()
    s.run("CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
    s.run("INSERT INTO t SELECT seq, 1 FROM seq_1_to_100000")
    each = 4000
    for n in range(25):
        holder = env.session()
        holder.run("SET tx_isolation = 'READ-COMMITTED'")
        holder.run("BEGIN")
        holder.run(f"SELECT COUNT(*) FROM t WHERE a > {n * each} AND a <= {(n + 1) * each} FOR UPDATE")
    seen = s.value(f"SELECT COUNT(*) FROM {VIEWS}.FERRITE_LOCKS")
    said = str(s.warnings())
    expect(20000 < seen < 25 * each, "locks that are shown", seen)
    expect("only the first" in said and str(seen) in said, "the warning", said)


def scenario_statements_are_shown_in_their_characters(env: Env) -> None:
    """The statement of a connection that speaks latin1 is shown as it was written: while it runs, and in the journals."""
    holder = env.session()
    holder.run("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(20)) CHARSET utf8mb4 ENGINE=FERRITE")
    holder.run("INSERT INTO t VALUES (1, 'x')")
    holder.run("BEGIN")
    holder.run("UPDATE t SET b = 'y' WHERE a = 1")
    other = env.session(charset="latin1")
    text = "UPDATE t SET b = 'é' WHERE a = 1"
    waiting = other.start(text)
    _lock_wait(env, 1)
    watching = env.session(charset="utf8mb4")
    shown = f"SELECT trx_query FROM {VIEWS}.FERRITE_TRX WHERE trx_mysql_thread_id = {other.id}"
    equal(watching.value(shown), text, "FERRITE_TRX")
    # Long enough for the journals.
    expect(waiting.waits(0.2), "it waits")
    holder.run("COMMIT")
    equal(waiting.answer(), [], "the statement that waited")
    for view in ("FERRITE_LONG_WAITS", "FERRITE_STALLS"):
        shown = f"SELECT query FROM {VIEWS}.{view} WHERE thread_id = {other.id} AND reason = 'row lock'"
        equal(watching.run(shown), [(text,)], view)


def scenario_settings_set_at_once(env: Env) -> None:
    """Two that set a size at the same time: the variable says in the end what the core has."""
    sizes = {"row_cache_size": "row cache", "buffer_pool_size": "buffer pool"}

    def set_often(session: Session, mebibytes: int) -> None:
        for n in range(40):
            for name in sizes:
                session.run(f"SET GLOBAL ferrite_{name} = {(mebibytes + n) << 20}")

    before = {name: env.session().value(f"SELECT @@ferrite_{name}") for name in sizes}
    threads = [threading.Thread(target=set_often, args=(env.session(), at)) for at in (16, 64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    s = env.session()
    for name, part in sizes.items():
        has = f"SELECT limit_bytes FROM {VIEWS}.FERRITE_MEMORY WHERE part = '{part}'"
        equal(s.value(has), s.value(f"SELECT @@ferrite_{name}"), name)
        s.run(f"SET GLOBAL ferrite_{name} = {before[name]}")
