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
