"""What information_schema and the error log tell of transactions."""

from __future__ import annotations

import datetime

from corners.env import Env, equal, expect


def scenario_a_waiter_has_a_start(env: Env) -> None:
    """trx_started is a moment of today for a waiter, a reader with locks and a prepared transaction."""
    holder, waiter, s = env.session(autocommit=False), env.session(autocommit=False), env.session()
    s.run("CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
    s.run("INSERT INTO t VALUES (1, 1), (2, 2)")
    holder.run("SELECT * FROM t WHERE a = 1 FOR UPDATE")
    waits = waiter.start("UPDATE t SET b = 3 WHERE a = 1")
    look = "SELECT trx_state, trx_started, NOW() FROM information_schema.FERRITE_TRX ORDER BY trx_state"
    rows = env.eventually("a waiter and a holder", lambda: [r for r in [s.run(look)] if len(r) == 2])[0]
    equal([r[0] for r in rows], ["LOCK WAIT", "RUNNING"], "states")
    for state, started, now in rows:
        expect(abs(now - started) < datetime.timedelta(minutes=5), f"start of {state}", started)
    holder.run("ROLLBACK")
    waits.answer()
    waiter.run("ROLLBACK")
    s.run("XA START 'x'")
    s.run("INSERT INTO t VALUES (3, 3)")
    s.run("XA END 'x'")
    s.run("XA PREPARE 'x'")
    env.crash()
    s = env.session()
    rows = s.run(look)
    equal([r[0] for r in rows], ["PREPARED"], "after a crash")
    expect(abs(rows[0][2] - rows[0][1]) < datetime.timedelta(minutes=5), "its start", rows)
    s.run("XA ROLLBACK 'x'")


def scenario_each_waiter_has_its_own_lock(env: Env) -> None:
    """trx_requested_lock_id is the lock that this connection waits for, also of transactions that have changed nothing."""
    holder, s = env.session(autocommit=False), env.session()
    s.run("CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
    s.run("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    holder.run("SELECT * FROM t FOR UPDATE")
    sessions = [env.session(autocommit=False) for _ in range(3)]
    waits = [session.start(f"SELECT * FROM t WHERE a = {n} FOR UPDATE") for n, session in enumerate(sessions, start=1)]
    look = (
        "SELECT t.trx_mysql_thread_id, l.lock_thread_id FROM information_schema.FERRITE_TRX t"
        " JOIN information_schema.FERRITE_LOCKS l ON l.lock_id = t.trx_requested_lock_id"
    )
    rows = env.eventually("three waiters", lambda: [r for r in [s.run(look)] if len(r) == 3])[0]
    equal(sorted(rows), sorted((session.id, session.id) for session in sessions), "connections and their locks")
    holder.run("ROLLBACK")
    for wait, session in zip(waits, sessions, strict=True):
        wait.answer()
        session.run("ROLLBACK")


def scenario_a_deadlock_is_told(env: Env) -> None:
    """ferrite_print_all_deadlocks names tables, indexes and what both connections ran."""
    a, b, s = env.session(autocommit=False), env.session(autocommit=False), env.session()
    s.run("CREATE TABLE apples (a INT PRIMARY KEY, b INT, KEY second (b)) ENGINE=FERRITE")
    s.run("INSERT INTO apples VALUES (1, 1), (2, 2)")
    s.run("CREATE TABLE pears (a INT PRIMARY KEY) ENGINE=FERRITE")
    s.run("INSERT INTO pears VALUES (7)")
    s.run("SET GLOBAL ferrite_print_all_deadlocks=1")
    a.run("DELETE FROM pears WHERE a = 7")
    b.run("UPDATE apples SET b = 9 WHERE a = 1")
    first = a.start("UPDATE apples SET b = 5 WHERE b = 1")
    expect(first.waits(), "the first does not wait")
    second = b.start("SELECT * FROM pears WHERE a = 7 FOR UPDATE")
    answers = [first.answer(), second.answer()]
    equal(answers.count(1213), 1, "one victim")
    log = env.eventually("the report", lambda: "deadlock of 2 transactions" in env.log() and env.log())
    for words in (
        "table corners/apples",
        "index PRIMARY of table corners/pears",
        "UPDATE apples SET b = 5 WHERE b = 1",
        "SELECT * FROM pears WHERE a = 7 FOR UPDATE",
        "(rolled back)",
        f"connection {a.id}",
        f"connection {b.id}",
    ):
        expect(words in log, f"not in the error log: {words}", env.server.log_tail(12))
    status = s.run("SHOW ENGINE FERRITE STATUS")[0][2]
    expect("index PRIMARY of table corners/pears" in status, "SHOW ENGINE STATUS", status[:1500])
    expect("UPDATE apples SET b = 5 WHERE b = 1" in status, "its statements", status[:1500])


def scenario_deadlocks_are_rows(env: Env) -> None:
    """FERRITE_DEADLOCKS: who waited for what, what it held, and who gave way; after a DROP too."""
    a, b, s = env.session(autocommit=False), env.session(autocommit=False), env.session()
    s.run("CREATE TABLE plums (a INT PRIMARY KEY, b INT, KEY second (b)) ENGINE=FERRITE")
    s.run("INSERT INTO plums VALUES (1, 1), (2, 2)")
    s.run("CREATE TABLE figs (a INT PRIMARY KEY) ENGINE=FERRITE")
    s.run("INSERT INTO figs VALUES (7)")
    before = s.run("SELECT COALESCE(MAX(deadlock), 0) FROM information_schema.FERRITE_DEADLOCKS")[0][0]
    a.run("SELECT * FROM figs WHERE a = 7 LOCK IN SHARE MODE")
    b.run("UPDATE plums SET b = 9 WHERE a = 1")
    one, two = "SELECT * FROM plums WHERE a = 1 FOR UPDATE", "DELETE FROM figs WHERE a = 7"
    first = a.start(one)
    waiting = "SHOW GLOBAL STATUS LIKE 'Ferrite_row_lock_current_waits'"
    env.eventually("the first waits", lambda: s.run(waiting)[0][1] == "1")
    expect(first.waits(0), "the first does not wait")
    second = b.start(two)
    answers = [first.answer(), second.answer()]
    equal(answers.count(1213), 1, "one victim")
    equal(s.run(waiting)[0][1], "0", "waiting afterwards")
    look = (
        "SELECT deadlock, position, victim, thread_id, query, waited_table, waited_index, waited_key IS NOT NULL, waited_mode, held_mode,"
        f" found BETWEEN NOW(6) - INTERVAL 1 MINUTE AND NOW(6) FROM information_schema.FERRITE_DEADLOCKS WHERE deadlock > {before}"
        " ORDER BY thread_id"
    )
    rows = s.run(look)
    equal(sorted(r[1] for r in rows), [1, 2], "positions")
    equal([r[2] for r in rows], [int(x == 1213) for x in answers], "victim")
    plums, figs = ("corners/plums", "PRIMARY", 1, "X,REC_NOT_GAP"), ("corners/figs", "PRIMARY", 1, "X,REC_NOT_GAP")
    equal([r[0] for r in rows], [before + 1] * 2, "its number")
    equal([r[3:5] for r in rows], [(a.id, one), (b.id, two)], "who ran what")
    equal([r[5:9] for r in rows], [plums, figs], "what they waited for")
    equal([r[9] for r in rows], ["S,REC_NOT_GAP", "X,REC_NOT_GAP"], "what they held")
    equal([r[10] for r in rows], [1, 1], "when")
    a.run("ROLLBACK")
    b.run("ROLLBACK")
    s.run("DROP TABLE plums")
    equal([r[5] for r in s.run(look)], [None, "corners/figs"], "after a DROP")


def scenario_each_of_many_deadlocks_is_one(env: Env) -> None:
    """One victim for each deadlock, however close they come; the view keeps the last 100."""
    s = env.session()
    s.run("CREATE TABLE many (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
    s.run("INSERT INTO many VALUES (1, 0), (2, 0)")
    pair = [env.session(autocommit=False), env.session(autocommit=False)]
    counter = "SHOW GLOBAL STATUS LIKE 'Ferrite_deadlocks'"
    before = int(s.run(counter)[0][1])
    for _ in range(110):
        for n, session in enumerate(pair):
            session.run(f"UPDATE many SET b = b + 1 WHERE a = {n + 1}")
        asked = [session.start(f"UPDATE many SET b = b + 1 WHERE a = {2 - n}") for n, session in enumerate(pair)]
        answers = [x.answer() for x in asked]
        equal(answers.count(1213), 1, "victims")
        for session in pair:
            session.run("ROLLBACK")
    equal(int(s.run(counter)[0][1]) - before, 110, "counted")
    rows = s.run("SELECT COUNT(*), COUNT(DISTINCT deadlock), SUM(victim) FROM information_schema.FERRITE_DEADLOCKS")
    equal(rows[0], (200, 100, 100), "kept")
