"""Parallel workers of a replica whose position is in another engine: they commit in the order of the primary, also where nothing of a
transaction goes to the replica's binary log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from corners.env import DATABASE, Env, Session, equal, expect
from corners.replicas import catch_up, follow, replicating_server, session_on
from lib.server import Server

SLOW = "UPDATE o SET x = x + 1 WHERE id = 1 AND SLEEP(1.5) = 0"
"""So long the first transaction takes on the replica, too, before it comes to table t."""


@dataclass
class Pair:
    """A primary and its replica, which stands still."""

    primary: Server
    first: Session
    replica: Server
    follower: Session

    def slow_transaction(self, change: str) -> None:
        self.first.run("SET binlog_format = STATEMENT")
        for sql in ("BEGIN", SLOW, change, "COMMIT"):
            self.first.run(sql)
        self.first.run("SET binlog_format = ROW")

    def compare(self, what: str) -> None:
        catch_up(self.primary, self.follower, 50)
        for table in ("t", "o"):
            self.compare_table(table, what)

    def compare_table(self, table: str, what: str) -> None:
        rows = f"SELECT * FROM {table} ORDER BY 1, 2"
        equal(session_on(self.replica).answer(rows), self.first.answer(rows), f"{what}: {table}")


@contextmanager
def replica_pair(*replica_options: str) -> Iterator[Pair]:
    """A primary and a replica with four optimistic workers, which has both tables and stands still."""
    with (
        replicating_server(1, "FERRITE") as (primary, port),
        replicating_server(2, "FERRITE", *replica_options) as (replica, _),
    ):
        session_on(primary, None).run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        first = session_on(primary)
        follower = follow(replica, port, "optimistic", 4)
        for sql in (
            "CREATE TABLE o (id INT PRIMARY KEY, x INT)",
            "INSERT INTO o VALUES (1, 0)",
            "CREATE TABLE t (id INT PRIMARY KEY, k INT, s VARCHAR(20), KEY (k))",
            "INSERT INTO t VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, 'c'), (9, 9, 'd')",
        ):
            first.run(sql)
        catch_up(primary, follower, 50)
        where = follower.value("SELECT engine FROM information_schema.TABLES WHERE TABLE_NAME = 'gtid_slave_pos'")
        expect(where != "FERRITE", "the position is in another engine", where)
        follower.run("STOP SLAVE")
        yield Pair(primary, first, replica, follower)


def _restart(pair: Pair) -> None:
    """The replica dies while the first transaction has not ended; the second one must not have."""
    time.sleep(0.7)
    pair.replica.kill()
    pair.replica.start()
    pair.follower = session_on(pair.replica, None)
    pair.follower.run("START SLAVE")


def _same_row(pair: Pair, meanwhile: Callable[[Pair], None]) -> None:
    """The second finds the row as it would leave it: nothing of it goes to the replica's binary log."""
    pair.slow_transaction("UPDATE t SET s = 'B' WHERE k = 9")
    pair.first.run("UPDATE t SET s = 'd' WHERE id = 9")
    pair.follower.run("START SLAVE")
    meanwhile(pair)
    pair.compare("a change that was none on the replica")


def _other_row(pair: Pair, meanwhile: Callable[[Pair], None]) -> None:
    pair.slow_transaction("UPDATE t SET s = 'B' WHERE k = 9")
    pair.first.run("UPDATE t SET s = 'C' WHERE id = 2")
    pair.follower.run("START SLAVE")
    meanwhile(pair)
    pair.compare("a change of another row")


def _rows_come_back(pair: Pair) -> None:
    """What the second has not changed, a third deletes."""
    pair.slow_transaction("UPDATE t SET k = 7 WHERE k = 1")
    pair.first.run("UPDATE t SET k = 1 WHERE k = 7")
    pair.follower.run("START SLAVE")
    time.sleep(2.5)
    pair.first.run("SET binlog_format = MIXED")
    pair.first.run("DELETE FROM t WHERE k = 1")
    pair.compare("deleted rows")


def scenario_nothing_for_the_binary_log(env: Env) -> None:
    """A later transaction of which nothing was written to the replica's binary log committed first, before its predecessor
    changed the same row: three rows too many, and no error."""
    with replica_pair() as pair:
        _same_row(pair, lambda _: None)
    with replica_pair() as pair:
        _rows_come_back(pair)


def scenario_no_binary_log_of_updates(env: Env) -> None:
    """Without log_slave_updates that was so for each transaction."""
    options = ("--skip-log-slave-updates",)
    with replica_pair(*options) as pair:
        _same_row(pair, lambda _: None)
    with replica_pair(*options) as pair:
        _other_row(pair, _restart)


def scenario_a_crash_between(env: Env) -> None:
    """The position was that of the second, and the first was never applied."""
    with replica_pair() as pair:
        _same_row(pair, _restart)


def scenario_a_worker_that_has_only_read_in_ferrite(env: Env) -> None:
    """Without log_slave_updates: Ferrite's part of a transaction, which had only read, ended first and let the next transaction go
    before the part in InnoDB was committed. A crash between the two lost it, for the position was behind it already."""
    with replica_pair("--skip-log-slave-updates") as pair:
        # InnoDB takes the words of such rows apart in its commit: that takes long.
        pair.first.run("CREATE TABLE words (id INT PRIMARY KEY, w LONGTEXT, FULLTEXT KEY (w)) ENGINE=InnoDB")
        pair.first.run("CREATE TABLE later (id INT PRIMARY KEY) ENGINE=InnoDB")
        pair.first.run("SET binlog_format = STATEMENT")
        text = "CONCAT_WS(' ', " + ", ".join(f"MD5(id * 1000 + {n})" for n in range(100)) + ")"
        pair.first.run("CREATE TABLE many (id INT PRIMARY KEY) ENGINE=FERRITE")
        pair.first.run("INSERT INTO many SELECT seq FROM seq_1_to_4000")
        pair.first.run(f"INSERT INTO words SELECT id, {text} FROM many")
        pair.first.run("INSERT INTO later VALUES (1)")
        watcher = session_on(pair.replica)
        pair.follower.run("START SLAVE")
        there = (
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'later'"
        )
        env.eventually("the table is there", lambda: watcher.run(there), 30)
        both = "SELECT (SELECT COUNT(*) FROM later), (SELECT COUNT(*) FROM words)"
        seen = env.eventually("the later transaction", lambda: [r for r in watcher.run(both) if r[0]], 60)
        equal(seen, [(1, 4000)], "the rows of the later transaction, and of the earlier one")
        pair.compare("read in Ferrite, changed in InnoDB")
        pair.compare_table("later", "read in Ferrite, changed in InnoDB")


def scenario_all_in_one_engine(env: Env) -> None:
    """Without log_slave_updates, and with the position in Ferrite, a worker commits in one phase: the next one goes on before that
    is durable, and after it."""
    for meanwhile in (lambda _: None, _restart):
        with replica_pair("--skip-log-slave-updates") as pair:
            pair.follower.run("ALTER TABLE mysql.gtid_slave_pos ENGINE = FERRITE")
            _other_row(pair, meanwhile)
            for n in range(40):
                pair.first.run(f"UPDATE t SET s = '{n}' WHERE id = {1 + n % 3}")
            pair.compare("many small transactions")


def _binary_log_order(session: Session) -> list[int]:
    """The numbers of the transactions, in the order in which they stand in this server's binary log."""
    log = session.run("SHOW MASTER STATUS")[0][0]
    events = session.run(f"SHOW BINLOG EVENTS IN '{log}'")
    begun = [re.search(r"^BEGIN GTID \d+-\d+-(\d+)", event[5]) for event in events]
    return [int(found[1]) for found in begun if found]


def scenario_the_server_reads_a_table_of_its_own(env: Env) -> None:
    """A worker that reads mysql.proc in the middle of its transaction ends a transaction of the server's own within it: the later
    transactions were woken by that, and committed first."""
    with replica_pair("--gtid-strict-mode=0") as pair:
        pair.follower.run("ALTER TABLE mysql.proc ENGINE = FERRITE")
        for session in (pair.first, session_on(pair.replica)):
            session.run("SET sql_log_bin = 0")
            session.run("CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC RETURN x + 10")
            session.run("SET sql_log_bin = 1")
        pair.first.run("SET binlog_format = STATEMENT")
        for sql in ("BEGIN", SLOW, "UPDATE o SET x = f(x) WHERE id = 1", SLOW, "COMMIT"):
            pair.first.run(sql)
        pair.first.run("INSERT INTO t VALUES (20, 20, 'later')")
        pair.follower.run("START SLAVE")
        pair.compare("a function was read from its table")
        order = _binary_log_order(pair.follower)
        expect(len(order) >= 2, "both are in the binary log of the replica", order)
        equal(order, sorted(order), "the order of the replica's binary log is that of the primary's")
        engine = pair.follower.value(
            "SELECT engine FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'proc'"
        )
        equal(engine, "FERRITE", "the table is read from Ferrite")
