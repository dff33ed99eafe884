"""CHECK TABLE beside other sessions: a sound table is told to be sound."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from corners.env import Env, Session, equal, expect

LOADS = {
    "inserts taken back": ("BEGIN", "INSERT INTO t VALUES ({n}, {c})", "ROLLBACK"),
    "inserts deleted": ("INSERT INTO t VALUES ({n}, {c})", "DELETE FROM t WHERE a = {n}"),
    "updates taken back": ("BEGIN", "UPDATE t SET c = c + 1 WHERE a < {c} LIMIT 20", "ROLLBACK"),
    "rows moved": ("UPDATE t SET a = a + 100000 WHERE a = {c}", "UPDATE t SET a = a - 100000 WHERE a = {c} + 100000"),
}


@contextlib.contextmanager
def _beside(threads: list[threading.Thread], stop: threading.Event) -> Iterator[None]:
    """The threads run until this ends, however it ends."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


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
        answers = []
        with _beside(threads, stop):
            for level in ("REPEATABLE READ", "READ UNCOMMITTED"):
                session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                for how in ("", "EXTENDED"):
                    until = time.monotonic() + 0.7
                    while time.monotonic() < until:
                        answers += [(level, how, row) for row in session.run(f"CHECK TABLE t {how}") if row[3] != "OK"]
        equal(answers[:3], [], f"what checks said beside {name} ({len(answers)} of them)")
        equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", "in the end")


def _timed_check(session: Session, limit: float) -> tuple[float, bool]:
    """How long CHECK TABLE t took, and whether it was not ended; without a limit (0) it must not be."""
    begun = time.monotonic()
    answer = session.answer(f"SET STATEMENT max_statement_time={limit:.4f} FOR CHECK TABLE t")
    took = time.monotonic() - begun
    expect("entries for" not in str(answer) and "orrupt" not in str(answer), "a fault that is none", answer)
    was_whole = "OK" in str(answer)
    expect(was_whole or limit > 0, "the whole check", answer)
    return took, was_whole


def scenario_killed(env: Env) -> None:
    """A check that is ended at any moment ends at once, and says nothing of faults."""
    session = env.session()
    keys = ", ".join(f"KEY k{n} (c{n})" for n in range(4))
    columns = ", ".join(f"c{n} INT" for n in range(4))
    session.run(f"CREATE TABLE t (a INT PRIMARY KEY, {columns}, {keys}) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq * 7919 % 60013, seq, -seq, seq % 7 FROM seq_1_to_60000")
    # The machine is not as fast each time, above all beside others: the fastest counts.
    whole = min(_timed_check(session, 0)[0] for _ in range(5))
    moments, ended = 40, 0
    for moment in range(1, moments):
        limit = whole * moment / moments
        # One that goes on does so each time; a machine that stood still does not.
        tries: list[float] = []
        while len(tries) < 3 and (not tries or tries[-1] >= limit + 1):
            took, was_whole = _timed_check(session, limit)
            tries.append(took)
        expect(tries[-1] < limit + 1, "it went on", f"{tries} s, limit {limit:.2f} s")
        if was_whole:
            whole = min(whole, took)
        ended += not was_whole
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
        # A stage may last tens of milliseconds, in which the watcher had no turn: then he looks again.
        for last in (False, False, False, False, True):
            running = session.start(statement)
            seen: list[tuple[int, float]] = []
            while running.waits(0.002):
                stage, most, progress = watcher.run(look)[0]
                if most == stages:
                    seen.append((int(stage), float(progress)))
            expect(isinstance(running.answer(), list), statement, running.answer())
            equal(seen, sorted(seen), f"{statement}: it rises")
            expect(all(progress <= 100 for _, progress in seen), f"{statement}: no more than all", seen[-3:])
            env.eventually("it ends with the statement", lambda: watcher.run(look)[0][1] == 0)
            if len({stage for stage, _ in seen}) > 1 and any(0 < progress < 100 for _, progress in seen):
                break
            expect(not last, f"stages and progress of {statement}", seen[-3:])
            if statement.startswith("ALTER"):
                session.run("ALTER TABLE t DROP KEY kd, DROP KEY kdc")


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
    answers: list[list[tuple[Any, ...]]] = []
    until = time.monotonic() + 60
    with _beside(threads, stop):
        while time.monotonic() < until and sum("snapshot too old" in str(answer) for answer in answers) < 3:
            running = session.start("CHECK TABLE t" + " EXTENDED" * (len(answers) % 2))
            # Younger snapshots are spared for a second, and a whole check may take less: the clock goes on while the server
            # stands still, early or late in the check.
            if running.waits(0.02 * 2 ** (len(answers) // 2 % 4)):
                env.server.pause()
                time.sleep(1.2)
                env.server.resume()
            answer = running.answer()
            assert isinstance(answer, list), answer
            answers.append(answer)
    session.run("SET GLOBAL ferrite_max_history_bytes = 0")
    ended = [answer for answer in answers if "snapshot too old" in str(answer)]
    expect(len(ended) > 0, "no check was ended", answers[:3])
    wrong = [answer for answer in answers if "orrupt" in str(answer) or "entries" in str(answer)]
    equal(wrong, [], "checks that found a fault")
    for answer in ended:
        equal(answer[-1][2:], ("status", "Operation failed"), "the answer to a check that was ended")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", "in the end")
