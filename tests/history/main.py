"""History test: clients read and append to lists at one isolation level, the server is killed at times; from what they read it
is decided whether the level was kept and nothing was lost."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import threading
import time
from collections import Counter
from random import Random
from typing import Any

import pymysql

from history.anomalies import FORBIDDEN, Checker, Txn
from history.known_bad import failures
from lib.engines import Engine, engine
from lib.places import find_places
from lib.server import Server, stop_on_signals

KEYS = 12
LOST = (2006, 2013, 2055, 0, 1053, 104, 32)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test history", description=__doc__)
    parser.add_argument("--engine", default="ferrite")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--round-seconds", type=float, default=12, help="length of one history")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--kill-share", type=float, default=0.5, help="histories with a kill -9 in the middle")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--level", action="append", default=[])
    parser.add_argument("--ci", action="store_true", help="one short history a level")
    arguments = parser.parse_args()
    if arguments.ci:
        arguments.minutes, arguments.round_seconds = 0.5, 6
    return arguments


class Client(threading.Thread):
    """Runs transactions until told to stop, over crashes."""

    def __init__(self, server: Server, level: str, seed: str, numbers: Any, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.server, self.level, self.rng, self.numbers, self.stopped = server, level, Random(seed), numbers, stop
        self.txns: list[Txn] = []
        self.errors: Counter[str] = Counter()

    def run(self) -> None:
        """One connection after another."""
        while not self.stopped.is_set():
            with contextlib.suppress(pymysql.err.MySQLError, OSError):
                connection = self.server.connect(database="history", read_timeout=30)
                with connection.cursor() as cursor:
                    cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {self.level}")
                    while not self.stopped.is_set():
                        self.transaction(cursor)
            time.sleep(0.05)

    def transaction(self, cursor: Any) -> None:
        """One transaction, and what is known of its end."""
        txn = Txn(next(self.numbers), level=self.level)
        self.txns.append(txn)
        try:
            cursor.execute("BEGIN")
            for _ in range(self.rng.randint(1, 4)):
                self.operation(cursor, txn)
            if self.rng.random() < 0.1:
                cursor.execute("ROLLBACK")
                txn.state = "aborted"
                return
            cursor.execute("COMMIT")
            txn.state = "committed"
        except pymysql.err.MySQLError as error:
            code = error.args[0] if error.args else 0
            if code in LOST:
                raise
            self.errors[str(code)] += 1
            cursor.execute("ROLLBACK")
            txn.state = "aborted"

    def operation(self, cursor: Any, txn: Txn) -> None:
        """A read through one of the indexes, or an append."""
        key, draw = self.rng.randrange(KEYS), self.rng.random()
        if draw < 0.5:
            number = next(self.numbers)
            # Noted first: if the answer does not come, it may have happened all the same.
            txn.operations.append(("append", key, number))
            try:
                cursor.execute(f"UPDATE lists SET v = CONCAT(v, ',{number}'), n = {number} WHERE id = {key}")
            except pymysql.err.MySQLError as error:
                if error.args and error.args[0] == 1205:
                    txn.operations.pop()
                raise
            return
        forms = (
            f"SELECT v FROM lists WHERE id = {key}",
            f"SELECT v FROM lists WHERE id <= {key} ORDER BY id DESC LIMIT 1",
            f"SELECT v FROM lists FORCE INDEX (k) WHERE k = {key}",
        )
        locking = self.rng.random() < 0.15
        cursor.execute(self.rng.choice(forms) + (" FOR UPDATE" if locking else ""))
        value = cursor.fetchall()[0][0]
        numbers = [int(x) for x in (value.decode() if isinstance(value, bytes) else value).split(",")[1:]]
        txn.operations.append(("locked" if locking else "read", key, numbers))


def prepare(server: Server) -> None:
    """Empty lists."""
    connection = server.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS history")
        cursor.execute("CREATE DATABASE history")
        cursor.execute(
            "CREATE TABLE history.lists (id INT PRIMARY KEY, k INT, n BIGINT, v LONGTEXT, UNIQUE KEY k (k), KEY n (n))"
        )
        rows = ", ".join(f"({n}, {n}, {-n - 1}, '')" for n in range(KEYS))
        cursor.execute(f"INSERT INTO history.lists VALUES {rows}")
    connection.close()


def final_lists(server: Server) -> dict[int, list[int]]:
    """What stands there at the end."""
    connection = server.connect(database="history", autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, v FROM lists")
        rows = cursor.fetchall()
    connection.close()
    text = {int(key): value.decode() if isinstance(value, bytes) else value for key, value in rows}
    return {key: [int(x) for x in value.split(",")[1:]] for key, value in text.items()}


def one_history(
    server: Server, level: str, seed: str, arguments: argparse.Namespace
) -> tuple[list[Txn], Counter[str], int]:
    """Clients at work, perhaps a kill; their transactions, errors, and the number of kills."""
    prepare(server)
    rng, stop, numbers, kills = Random(seed), threading.Event(), itertools.count(1), 0
    clients = [Client(server, level, f"{seed}:{n}", numbers, stop) for n in range(arguments.clients)]
    for client in clients:
        client.start()
    ends = time.monotonic() + arguments.round_seconds
    if rng.random() < arguments.kill_share:
        time.sleep(rng.uniform(0.2, arguments.round_seconds * 0.8))
        server.kill()
        server.start()
        kills = 1
    time.sleep(max(0.0, ends - time.monotonic()))
    stop.set()
    for client in clients:
        client.join(40)
    errors: Counter[str] = Counter()
    for client in clients:
        errors.update(client.errors)
    return [t for c in clients for t in c.txns], errors, kills


def server_of(kind: Engine) -> Server:
    """Durable commits."""
    server = Server(find_places(), kind, [kind.flush(1), kind.pool("16M"), kind.lock_wait(3), "--skip-log-bin"])
    server.start()
    return server


def main() -> int:
    """Run; 0 when nothing forbidden was found."""
    arguments = _arguments()
    stop_on_signals()
    wrong = failures()
    for text in wrong:
        print(f"the checker itself: {text}")
    if wrong:
        return 1
    levels = arguments.level or list(FORBIDDEN)
    begun, found, committed, kills, early = time.monotonic(), 0, 0, 0, 0
    server = server_of(engine(arguments.engine))
    try:
        for number in itertools.count():
            if number >= len(levels) and time.monotonic() - begun > arguments.minutes * 60 or found > 5:
                break
            level = levels[number % len(levels)]
            txns, errors, killed = one_history(server, level, f"{arguments.seed}:{number}", arguments)
            checker = Checker(txns, final_lists(server), level)
            anomalies = checker.run()
            early += checker.before_durable
            committed += sum(t.state == "committed" for t in txns)
            kills += killed
            found += len(anomalies)
            done = sum(t.state == "committed" for t in txns)
            print(
                f"history {number}, {level}: {done} commits, kills {killed}, errors {dict(errors)}: {len(anomalies)} anomalies",
                flush=True,
            )
            for kind, text in anomalies[:5]:
                print(f"    {kind}: {text}")
    finally:
        server.remove()
    print(
        f"{committed} commits, {kills} kills, {time.monotonic() - begun:.0f} s: {found} anomalies;"
        f" {early} reads of commits that were not durable yet and that a kill took back, by transactions without changes"
    )
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
