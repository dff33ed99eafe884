"""Foreign keys and replication: a replica does again what cascades did, in every format, with parallel appliers, from and to InnoDB."""

from __future__ import annotations

import random
import threading
import time

from corners.env import DATABASE, Env, equal, expect, options, slow
from corners.replicas import catch_up, follow, replicating_server, session_on
from lib.server import Server

SHOWN = ("p", "c", "d", "e")
TABLES = [
    "CREATE TABLE p (id INT PRIMARY KEY, v INT DEFAULT 0)",
    "CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT DEFAULT 0, KEY (p, v), FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE d (id INT PRIMARY KEY, p INT, t TEXT, FOREIGN KEY (p) REFERENCES c (id) ON DELETE SET NULL ON UPDATE CASCADE)",
    "CREATE TABLE e (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id))",
]
ORPHANS = "SELECT COUNT(*) FROM {c} LEFT JOIN {p} ON {p}.id={c}.p WHERE {c}.p IS NOT NULL AND {p}.id IS NULL"
LINKS = (("c", "p"), ("d", "c"), ("e", "p"))
EXPECTED = (1062, 1213, 1451, 1452, 1205, 1020)


def _work(server: Server, seed: int, until: float, unexpected: list[object]) -> None:
    dice = random.Random(seed)
    session = session_on(server, autocommit=False)
    while time.monotonic() < until:
        for _ in range(dice.randint(1, 4)):
            row, up, table = dice.randint(1, 30), dice.randint(1, 15), dice.choice("ppcccde")
            columns = f"(id, v) VALUES ({up}, {row})" if table == "p" else f"(id, p) VALUES ({row}, {up})"
            statements = (
                f"INSERT INTO {table} {columns}",
                f"INSERT INTO {table} {columns}",
                f"INSERT INTO {table} {columns}",
                f"REPLACE INTO {table} {columns}",
                f"INSERT IGNORE INTO {table} {columns}",
                f"DELETE FROM {table} WHERE id={up}",
                f"DELETE IGNORE FROM {table} WHERE id={up}",
                f"UPDATE p SET v=v+1 WHERE id={up}",
                f"UPDATE c SET v=v+1, p={up} WHERE id={row}",
                f"UPDATE {table} SET id={row} WHERE id={up}",
                "SAVEPOINT s",
                "ROLLBACK TO s",
            )
            sql = dice.choice(statements)
            answer = session.answer(sql)
            if isinstance(answer, int) and answer not in (*EXPECTED, 1305):
                unexpected.append((answer, sql))
            if answer == 1213:
                break
        end = session.answer(dice.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
        if isinstance(end, int) and end != 1213:
            unexpected.append((end, "COMMIT"))


def _story(primary_engine: str, replica_engine: str, formats: tuple[str, ...], mode: str, seconds: float) -> None:
    with (
        replicating_server(1, primary_engine) as (primary, port),
        replicating_server(2, replica_engine) as (replica, _),
    ):
        follower = follow(replica, port, mode, 6)
        admin = session_on(primary, None)
        admin.run("SET GLOBAL ferrite_lock_wait_timeout=2, GLOBAL innodb_lock_wait_timeout=2")
        for number, form in enumerate(formats):
            admin.run(f"SET GLOBAL binlog_format={form}")
            admin.run(f"DROP DATABASE IF EXISTS {DATABASE}")
            admin.run(f"CREATE DATABASE {DATABASE}")
            first = session_on(primary)
            for sql in TABLES:
                first.run(sql)
            unexpected: list[object] = []
            until = time.monotonic() + seconds
            threads = [
                threading.Thread(target=_work, args=(primary, 100 * number + n, until, unexpected)) for n in range(6)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            expect(not unexpected, "errors that nobody expects", unexpected[:3])
            catch_up(primary, follower, 50)
            second = session_on(replica)
            for table in SHOWN:
                rows = f"SELECT * FROM {table} ORDER BY id"
                equal(
                    second.answer(rows),
                    first.answer(rows),
                    f"{table}, {form}, {mode}, {primary_engine} to {replica_engine}",
                )
            for session in (first, second):
                for c, p in LINKS:
                    equal(
                        session.value(ORPHANS.replace("{c}", c).replace("{p}", p)), 0, f"orphans in {c}, {form}, {mode}"
                    )
                for table in SHOWN:
                    equal(session.answer(f"CHECK TABLE {table} EXTENDED")[-1][3], "OK", f"CHECK {table}")  # type: ignore[index]
            expect(first.value("SELECT COUNT(*) FROM c") > 0, "nothing was done")


@options()
def scenario_replica_of_ferrite(env: Env) -> None:
    """Each binlog format, applied by six threads that guess: the replica ends equal, without orphans."""
    env.stop()
    _story("FERRITE", "FERRITE", ("ROW", "STATEMENT", "MIXED"), "optimistic", 3)


@options()
def scenario_from_innodb(env: Env) -> None:
    """An InnoDB primary: its foreign keys are the replica's, on Ferrite."""
    env.stop()
    _story("InnoDB", "FERRITE", ("ROW", "MIXED"), "optimistic", 3)


@slow
@options()
def scenario_other_ways(env: Env) -> None:
    """To InnoDB; and conservative and aggressive appliers."""
    env.stop()
    _story("FERRITE", "InnoDB", ("ROW", "STATEMENT", "MIXED"), "optimistic", 5)
    for mode in ("conservative", "aggressive"):
        _story("FERRITE", "FERRITE", ("ROW", "STATEMENT", "MIXED"), mode, 5)
        _story("InnoDB", "FERRITE", ("STATEMENT",), mode, 5)


@options()
def scenario_a_child_behind_its_parent(env: Env) -> None:
    """Parent and child of it in transactions one behind the other, in hundreds: the applier that was too early tries again."""
    env.stop()
    for name in ("FERRITE", "InnoDB"):
        with replicating_server(1, name) as (primary, port), replicating_server(2, "FERRITE") as (replica, _):
            first = session_on(primary, None)
            first.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
            first.run(f"USE {DATABASE}")
            for sql in TABLES:
                first.run(sql)
            for n in range(300):
                first.run(f"INSERT INTO p VALUES ({n}, 0)")
                first.run(f"INSERT INTO c VALUES ({n}, {n}, 0)")
                first.run(f"INSERT INTO d VALUES ({n}, {n}, REPEAT('x', 9000))")
                if n % 3 == 0:
                    first.run(f"UPDATE c SET id=id+10000 WHERE id={n}")
                if n % 5 == 0:
                    first.run(f"DELETE FROM p WHERE id={n}")
            follower = follow(replica, port, "optimistic", 8)
            catch_up(primary, follower, 50)
            second = session_on(replica)
            for table in ("p", "c", "d"):
                rows = f"SELECT * FROM {table} ORDER BY id"
                equal(second.answer(rows), first.answer(rows), f"{table} from {name}")


def scenario_what_ignore_has_passed_over(env: Env) -> None:
    """IGNORE passed over a row: in a statement's log its reason must stay until the transaction ends, as in InnoDB."""
    for violates, removes_reason, level in (
        ("INSERT IGNORE INTO c (id, p) VALUES (50, 9)", "INSERT INTO p (id) VALUES (9)", "REPEATABLE READ"),
        ("UPDATE IGNORE c SET p=9 WHERE id=10", "INSERT INTO p (id) VALUES (9)", "REPEATABLE READ"),
        ("DELETE IGNORE FROM p WHERE id=2", "DELETE FROM c WHERE id=20", "REPEATABLE READ"),
        ("UPDATE IGNORE p SET id=8 WHERE id=2", "UPDATE c SET p=1 WHERE id=20", "REPEATABLE READ"),
    ):

        def play(name: str, sql: str = violates, then: str = removes_reason, isolation: str = level) -> list[object]:
            session, other = env.session(), env.session()
            session.run(f"CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={name}")
            session.run(
                f"CREATE TABLE c (id INT PRIMARY KEY, p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id)) ENGINE={name}"
            )
            session.run("INSERT INTO p (id) VALUES (1), (2), (20)")
            session.run("INSERT INTO c VALUES (10, 1), (20, 2)")
            session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {isolation}")
            session.run("BEGIN")
            answers: list[object] = [session.changed(sql)]
            running = other.start(then)
            answers.append(env.blocks(running))
            session.run("COMMIT")
            answers.append(running.answer())
            return [
                *answers,
                session.answer("SELECT * FROM p ORDER BY 1"),
                session.answer("SELECT * FROM c ORDER BY 1"),
            ]

        answers = env.same_as_innodb(play)
        equal(answers[1], True, "it waits")


def scenario_what_ignore_looks_at_is_waited_for(env: Env) -> None:
    """IGNORE waits for a lock on a child: that wait can be part of a deadlock, which is found at once, and ends by KILL."""
    for key in ("PRIMARY KEY", "KEY"):

        def play(name: str, kind: str = key) -> list[object]:
            first, second, admin = env.session(), env.session(), env.session()
            first.run(f"CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE={name}")
            first.run(f"CREATE TABLE c (p INT, v INT, {kind} (p), FOREIGN KEY (p) REFERENCES p (id)) ENGINE={name}")
            first.run("INSERT INTO p (id) VALUES (1), (2), (3)")
            first.run("INSERT INTO c VALUES (1, 0), (2, 0)")
            answers: list[object] = []
            for session in (first, second):
                session.run("SET innodb_lock_wait_timeout=30, ferrite_lock_wait_timeout=30")
            second.run("BEGIN")
            second.run("SELECT * FROM c WHERE p=2 FOR UPDATE")
            first.run("BEGIN")
            first.run("UPDATE p SET v=1 WHERE id=3")
            running = first.start("DELETE IGNORE FROM p WHERE id=2")
            answers.append(env.blocks(running))
            start = time.monotonic()
            closing = second.start("UPDATE p SET v=2 WHERE id=3")
            ends = [running.answer(), closing.answer()]
            answers.append(1213 in ends)
            expect(time.monotonic() - start < 20, f"the deadlock is found late: {name}", time.monotonic() - start)
            for session in (first, second):
                session.run("ROLLBACK")
            second.run("BEGIN")
            second.run("SELECT * FROM c WHERE p=2 FOR UPDATE")
            running = first.start("DELETE IGNORE FROM p WHERE id=2")
            answers.append(env.blocks(running))
            admin.run(f"KILL QUERY {first.id}")
            answers.append(running.answer())
            second.run("ROLLBACK")
            return [*answers, first.answer("SELECT * FROM p ORDER BY id")]

        env.same_as_innodb(play)


VERSIONED = [
    "CREATE TABLE p (id INT PRIMARY KEY, v INT DEFAULT 0) WITH SYSTEM VERSIONING",
    "CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT DEFAULT 0, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE) WITH SYSTEM VERSIONING",
    "CREATE TABLE d (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES c (id) ON DELETE SET NULL)",
    "CREATE TABLE e (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL ON UPDATE CASCADE)",
    "CREATE TABLE f (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
    "CREATE TABLE g (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES f (id) ON DELETE CASCADE)",
]


@options()
def scenario_history_goes_by_row_events(env: Env) -> None:
    """A row that goes from a table WITH SYSTEM VERSIONING is an update in a row event: its children go all the same."""
    env.stop()
    for name, triggers in (("FERRITE", "NO"), ("InnoDB", "NO"), ("FERRITE", "YES")):
        with (
            replicating_server(1, name, "--binlog-format=ROW") as (primary, port),
            replicating_server(2, "FERRITE") as (replica, _),
        ):
            first = session_on(primary, None)
            first.run(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
            first.run(f"USE {DATABASE}")
            for sql in VERSIONED:
                first.run(sql)
            for n in range(10):
                first.run(f"INSERT INTO p VALUES ({n}, 0)")
                first.run(f"INSERT INTO c VALUES ({n}, {n}, 0)")
                first.run(f"INSERT INTO d VALUES ({n}, {n})")
                for table in ("e", "f", "g"):
                    first.run(f"INSERT INTO {table} VALUES ({n}, {n})")
            first.run("DELETE FROM p WHERE id<3")
            first.run("UPDATE p SET v=1 WHERE id=4")
            first.run("DELETE FROM c WHERE id=5")
            first.run("DELETE FROM c WHERE p=6")
            first.run("DELETE p, c FROM p JOIN c ON c.p=p.id WHERE p.id=7")
            second = session_on(replica, None)
            second.run(f"SET GLOBAL slave_run_triggers_for_rbr={triggers}")
            follower = follow(replica, port, "optimistic", 4)
            catch_up(primary, follower, 50)
            second = session_on(replica)
            for table in (*SHOWN, "f", "g"):
                rows = f"SELECT * FROM {table} ORDER BY id"
                equal(second.answer(rows), first.answer(rows), f"{table} from {name}")
                equal(second.answer(f"CHECK TABLE {table} EXTENDED")[-1][3], "OK", f"CHECK {table}")  # type: ignore[index]
            for table in ("p", "c"):
                rows = f"SELECT id, row_end > NOW() + INTERVAL 1 DAY FROM {table} FOR SYSTEM_TIME ALL ORDER BY 1, 2"
                equal(second.answer(rows), first.answer(rows), f"the past of {table} from {name}")
