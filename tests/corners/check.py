"""CHECK TABLE beside other sessions: a sound table is told to be sound."""

from __future__ import annotations

import threading
import time

from corners.env import Env, equal, expect

LOADS = {
    "inserts taken back": ("BEGIN", "INSERT INTO t VALUES ({n}, {c})", "ROLLBACK"),
    "inserts deleted": ("INSERT INTO t VALUES ({n}, {c})", "DELETE FROM t WHERE a = {n}"),
    "updates taken back": ("BEGIN", "UPDATE t SET c = c + 1 WHERE a < {c} LIMIT 20", "ROLLBACK"),
    "rows moved": ("UPDATE t SET a = a + 100000 WHERE a = {c}", "UPDATE t SET a = a - 100000 WHERE a = {c} + 100000"),
}


def scenario_beside_changes(env: Env) -> None:
    """Whatever others do and take back meanwhile, at whatever isolation level the check runs."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY, c INT, KEY kc (c)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq FROM seq_1_to_2000")
    for name, statements in LOADS.items():
        stop = threading.Event()

        def work(number: int, statements: tuple[str, ...] = statements, stop: threading.Event = stop) -> None:
            writer = env.session()
            n = number * 10_000_000
            while not stop.is_set():
                n += 1
                for statement in statements:
                    writer.answer(statement.format(n=n, c=n * 7919 % 2000))

        threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
        for thread in threads:
            thread.start()
        answers = []
        for level in ("REPEATABLE READ", "READ UNCOMMITTED"):
            session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            for how in ("", "EXTENDED"):
                until = time.monotonic() + 0.7
                while time.monotonic() < until:
                    answers += [(level, how, row) for row in session.run(f"CHECK TABLE t {how}") if row[3] != "OK"]
        stop.set()
        for thread in threads:
            thread.join()
        equal(answers[:3], [], f"what checks said beside {name} ({len(answers)} of them)")
        equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", "in the end")


def scenario_killed(env: Env) -> None:
    """A check that is ended at any moment ends at once, and says nothing of faults."""
    session = env.session()
    keys = ", ".join(f"KEY k{n} (c{n})" for n in range(4))
    columns = ", ".join(f"c{n} INT" for n in range(4))
    session.run(f"CREATE TABLE t (a INT PRIMARY KEY, {columns}, {keys}) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq * 7919 % 60013, seq, -seq, seq % 7 FROM seq_1_to_60000")
    begun = time.monotonic()
    equal(session.run("CHECK TABLE t")[-1][3], "OK", "the whole check")
    whole = time.monotonic() - begun
    moments, ended = 40, 0
    for moment in range(1, moments):
        limit = whole * moment / moments
        begun = time.monotonic()
        answer = session.answer(f"SET STATEMENT max_statement_time={limit:.4f} FOR CHECK TABLE t")
        took = time.monotonic() - begun
        expect(took < limit + 1, "it went on", f"{took:.2f} s, limit {limit:.2f} s")
        ended += "OK" not in str(answer)
        expect("entries for" not in str(answer) and "orrupt" not in str(answer), "a fault that is none", answer)
    # The machine is not as fast each time, above all beside others.
    expect(ended > moments // 8, "max_statement_time did not end it", f"{ended} of {moments - 1}")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", "in the end")


def scenario_progress(env: Env) -> None:
    """The process list says how far CHECK TABLE and ALTER TABLE ... ADD INDEX are, and that rises."""
    session, watcher = env.session(), env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY, c INT, d INT, p INT, KEY kc (c), KEY kp (p)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq * 7919 % 60013, seq, NULL FROM seq_1_to_200000")
    look = f"SELECT STAGE, MAX_STAGE, PROGRESS FROM information_schema.PROCESSLIST WHERE ID = {session.id}"
    for statement, stages in (
        ("CHECK TABLE t EXTENDED", 4),
        ("ALTER TABLE t ADD KEY kd (d), ADD KEY kdc (d, c), ALGORITHM=INPLACE", 2),
    ):
        running = session.start(statement)
        seen: list[tuple[int, float]] = []
        while running.waits(0.002):
            stage, most, progress = watcher.run(look)[0]
            if most == stages:
                seen.append((int(stage), float(progress)))
        expect(isinstance(running.answer(), list), statement, running.answer())
        expect(len({stage for stage, _ in seen}) > 1, f"stages of {statement}", seen[-3:])
        expect(any(0 < progress < 100 for _, progress in seen), f"progress of {statement}", seen[-3:])
        equal(seen, sorted(seen), f"{statement}: it rises")
        expect(all(progress <= 100 for _, progress in seen), f"{statement}: no more than all", seen[-3:])
        env.eventually("it ends with the statement", lambda: watcher.run(look)[0][1] == 0)


def scenario_its_snapshot_is_ended(env: Env) -> None:
    """A bound on history ends the check's snapshot: the check fails and says why, and does not call the table corrupt."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY, c INT, v VARCHAR(200), KEY kc (c)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq, REPEAT('v', 200) FROM seq_1_to_100000")
    session.run("SET GLOBAL ferrite_max_history_bytes = 65536")
    stop = threading.Event()

    def work(number: int) -> None:
        writer = env.session()
        n = number
        while not stop.is_set():
            n = n * 7919 % 100_003
            writer.answer(f"UPDATE t SET c = c + 1, v = REPEAT('w', 200) WHERE a BETWEEN {n} AND {n} + 50")

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    answers = []
    until = time.monotonic() + 30
    while time.monotonic() < until and sum("snapshot too old" in str(answer) for answer in answers) < 3:
        answers.append(session.run("CHECK TABLE t" + " EXTENDED" * (len(answers) % 2)))
    stop.set()
    for thread in threads:
        thread.join()
    session.run("SET GLOBAL ferrite_max_history_bytes = 0")
    ended = [answer for answer in answers if "snapshot too old" in str(answer)]
    expect(len(ended) > 0, "no check was ended", answers[:3])
    wrong = [answer for answer in answers if "orrupt" in str(answer) or "entries" in str(answer)]
    equal(wrong, [], "checks that found a fault")
    for answer in ended:
        equal(answer[-1][2:], ("status", "Operation failed"), "the answer to a check that was ended")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", "in the end")
