"""CHECK TABLE beside other sessions: a sound table is told to be sound."""

from __future__ import annotations

import threading
import time

from corners.env import Env, equal

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
