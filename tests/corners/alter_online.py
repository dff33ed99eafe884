"""What others roll back while a table is copied beside them (11.8) is not in the copy."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from corners.disk import fill, may_mount, mounted
from corners.env import SMALL, Env, Failed, Running, Session, equal, expect, options

OPTIONS = [*SMALL]

ROWS = 200_000
FEWER = 40_000
COPY_SECONDS = 300
PARTITIONS = " PARTITION BY HASH (id) PARTITIONS 3"
CHANGES = [
    "ADD KEY ka (a)",
    "ADD COLUMN n INT DEFAULT 1",
    "MODIFY a BIGINT",
    "FORCE",
    "FORCE, ALGORITHM=COPY",
    "REMOVE PARTITIONING",
    "ENGINE=INNODB, LOCK=SHARED",
    "ENGINE=FERRITE, FORCE",
    "ADD KEY ka (a), LOCK=SHARED",
    "PARTITION BY KEY (id) PARTITIONS 2",
    "CREATE INDEX ka ON t (a)",
]


def _copies(session: Session) -> bool:
    """Others go on while a table is copied."""
    return not session.value("SELECT @@version").startswith("10.")


def _statement(change: str) -> str:
    return change if change.startswith(("ALTER", "CREATE")) else f"ALTER TABLE t {change}"


def _table(session: Session, name: str, partitions: str, rows: int = ROWS) -> None:
    session.run(f"CREATE OR REPLACE TABLE {name} (id INT PRIMARY KEY, a INT) ENGINE=FERRITE{partitions}")
    session.run(f"INSERT INTO {name} SELECT seq, 0 FROM seq_1_to_{rows}")


def _rolls_back(other: Session, third: Session) -> None:
    """A transaction; a savepoint's part and a statement's of one that commits."""
    other.run("BEGIN")
    other.run("DELETE FROM t WHERE id <= 1000")
    other.run("UPDATE t SET a = 7 WHERE id BETWEEN 2000 AND 3000")
    other.run("ROLLBACK")
    third.run("BEGIN")
    third.run("UPDATE t SET a = 1 WHERE id = 5")
    third.run("SAVEPOINT s")
    third.run("DELETE FROM t WHERE id <= 1000")
    third.run("ROLLBACK TO SAVEPOINT s")
    equal(third.error("INSERT INTO t (id, a) VALUES (-1, 5), (-2, 5), (1, 5)"), 1062, "a row is there")
    third.run("COMMIT")


COPYING = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE state LIKE 'copy to tmp%'"


def _copying(watcher: Session, running: Session) -> None:
    """Until rows are being copied, if they are at all."""
    while running.waits(0.005) and not watcher.value(COPYING):
        pass
    time.sleep(0.02)


def _changes(env: Env, partitions: str, changes: list[str]) -> None:
    session, other, third, watcher = (env.session() for _ in range(4))
    for change in changes:
        _table(session, "t", partitions)
        running = session.start(_statement(change))
        _copying(watcher, running)
        _rolls_back(other, third)
        equal(running.answer(), [], change)
        equal(session.run("SELECT COUNT(*), SUM(a) FROM t"), [(ROWS, 1)], f"rows after {change}")
        equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", change)
        session.run("DROP TABLE t")


def scenario_partitions(env: Env) -> None:
    """The server's log of such a copy repeats what was rolled back in partitions: there is none, then."""
    _changes(env, PARTITIONS, CHANGES)


def scenario_no_partitions(env: Env) -> None:
    """Beside a table without partitions writers go on."""
    _changes(env, "", [c for c in CHANGES if "REMOVE" not in c])


# Writers wait for a copy, but not for one with LOCK=NONE.
OLD_MODE = "SET old_mode = 'LOCK_ALTER_TABLE_COPY'"


def scenario_foreign_copies(env: Env) -> None:
    """Into another engine's table it has to be said that writers wait; from one it need not."""
    session = env.session()
    _table(session, "t", PARTITIONS)
    if not _copies(session):
        session.run("ALTER TABLE t ENGINE=InnoDB")
    else:
        for words in ("", ", LOCK=NONE", " REMOVE PARTITIONING"):
            equal(session.error(f"ALTER TABLE t ENGINE=InnoDB{words}"), 1846, f"InnoDB{words}")
        equal(session.error("ALTER TABLE t FORCE, LOCK=NONE"), 1846, "asked for")
        session.run(OLD_MODE)
        for statement in ("ALTER TABLE t ENGINE=InnoDB, LOCK=NONE", "ALTER ONLINE TABLE t ENGINE=InnoDB"):
            equal(session.error(statement), 1846, f"{statement}, where it is asked for against old_mode")
        session.run("ALTER TABLE t ENGINE=InnoDB")
        session.run("SET old_mode = ''")
    session.run("ALTER TABLE t ENGINE=FERRITE")
    session.run("ALTER TABLE t ENGINE=InnoDB, LOCK=SHARED")
    session.run("ALTER TABLE t ENGINE=FERRITE REMOVE PARTITIONING")
    equal(session.run("SELECT COUNT(*) FROM t"), [(ROWS,)], "rows")
    expect("PARTITION" not in session.run("SHOW CREATE TABLE t")[0][1], "no partitions", "t")


def _prepared(session: Session, change: str) -> bool:
    """A distributed transaction whose connection goes; False without one, for t has another name already."""
    session.run("XA START 'x'")
    is_there = _changes_t(session, change, "UPDATE t SET a = 9 WHERE id = 5")
    others = ("INSERT INTO t (id, a) VALUES (-1, 7)", "DELETE FROM t WHERE id = 6") if is_there else ()
    for sql in (*others, "XA END 'x'", "XA PREPARE 'x'" if is_there else "XA ROLLBACK 'x'"):
        session.run(sql)
    session.close()
    return is_there


def _commits(decider: Session) -> bool:
    """Whether it has committed x by its name: not while the connection that prepared it is there (1397)."""
    error = decider.error("XA COMMIT 'x'")
    expect(error in (0, 1397), "XA COMMIT", error)
    return error == 0


# The only rename is that of the copy. So slowly that what comes beside it finds the table under its old name.
RENAMES = "ADD COLUMN n INT DEFAULT (LENGTH(MD5(REPEAT(id, 500)))) FIRST, RENAME TO t2, ALGORITHM=COPY"


def _changes_t(session: Session, change: str, sql: str) -> bool:
    """Runs the first statement of a transaction beside the ALTER; False if RENAMES was over before, on a busy machine."""
    error = session.error(sql)
    expect(error == 0 or (error == 1146 and change == RENAMES), f"{sql} beside {change}", error)
    return error == 0


def _is_over(running: Running, session: Session) -> None:
    """RENAMES had nothing beside it: all is as before."""
    equal(running.answer(), [], RENAMES)
    _named_as_before(session)
    session.run("DROP TABLE IF EXISTS t, u")


def _named_as_before(session: Session) -> None:
    if session.run("SHOW TABLES LIKE 't2'"):
        session.run("RENAME TABLE t2 TO t")


def _prepared_stays(env: Env, change: str, partitions: str, is_amid: bool, before: str = "DO 0") -> bool:
    """Whether it was played: not if t had another name before what was to come beside the ALTER."""
    session, decider, watcher = (env.session() for _ in range(3))
    session.run(before)
    _table(session, "t", partitions)
    session.run("SET innodb_lock_wait_timeout = 20, lock_wait_timeout = 20")
    # Opened before: beside RENAMES the table has its name for some seconds only.
    preparing = env.session()
    if not is_amid:
        _prepared(preparing, change)
    running = session.start(_statement(change))
    if is_amid:
        _copying(watcher, running)
        if not _prepared(preparing, change):
            _is_over(running, session)
            return False
    time.sleep(0.7)
    env.eventually("the connection has left its transaction", partial(_commits, decider))
    expect(running.answer() in ([], 1205, 1412), f"{change}: the ALTER ends, or says why not", running.answer())
    _named_as_before(session)
    seen = session.run("SELECT id, a FROM t WHERE id IN (-1, 5, 6) ORDER BY id")
    equal(seen, [(-1, 7), (5, 9)], f"what was committed beside {change}{partitions}, amid it: {is_amid}")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", change)
    session.run("DROP TABLE t")
    return True


def scenario_prepared_transactions(env: Env) -> None:
    """No lock of the server's keeps one whose connection is gone from the old table, and its log may not have it."""
    for change in ("ADD KEY ka (a)", "FORCE, ALGORITHM=COPY", "CREATE INDEX ka ON t (a)"):
        for partitions in ("", PARTITIONS):
            _prepared_stays(env, change, partitions, False)
        _prepared_stays(env, change, "", True)
    _prepared_stays(env, "ENGINE=InnoDB", "", True)
    if _copies(env.session()):
        _amid("prepared beside RENAMES", partial(_prepared_stays, env, RENAMES, "", True))
    for change in ("REMOVE PARTITIONING", "COALESCE PARTITION 1", "ADD PARTITION PARTITIONS 1"):
        _prepared_stays(env, change, PARTITIONS, False)
    _prepared_stays(env, "ENGINE=InnoDB", "", False)


# Each is of a transaction that has deleted a row and then commits: what the server's log does not take out as it should.
PARTS = {
    "two rollbacks to a savepoint": ["SAVEPOINT s", "UPDATE t SET a = 9 WHERE id = 7", *["ROLLBACK TO s"] * 2],
    "many bytes": ["INSERT INTO t (id, a, s) SELECT IF(seq < 9, -seq, seq), 5, REPEAT('x', 3000) FROM seq_5_to_9"],
    "changes of two kinds": [
        "INSERT INTO t (id, a) VALUES (-1, 5), (9, 5), (8, 5) ON DUPLICATE KEY UPDATE id = IF(id = 9, -9, 10)"
    ],
    "rows of a trigger": ["INSERT INTO u SELECT IF(seq = 9, 5, seq), 3000 FROM seq_5_to_9"],
    "a savepoint of a trigger": ["INSERT INTO u VALUES (5, -1)"],
    "a savepoint of a trigger, before all": ["INSERT INTO u VALUES (5, -2)"],
}
ONCE = {
    "one rollback": ["SAVEPOINT s", "UPDATE t SET a = 9 WHERE id = 7", "ROLLBACK TO s", "SAVEPOINT s", "ROLLBACK TO s"],
    "few bytes": ["INSERT INTO t (id, a) VALUES (-1, 5), (-2, 5), (9, 5)"],
    "one row": ["INSERT INTO t (id, a, s) VALUES (9, 5, REPEAT('x', 3000))"],
    "all of it": [*PARTS["many bytes"], "ROLLBACK", "DELETE FROM t WHERE id = 5"],
}


# Of a table whose rows bring others into t.
TRIGGER = """CREATE TRIGGER u_t AFTER INSERT ON u FOR EACH ROW
    IF NEW.bytes > 0 THEN
        INSERT INTO t (id, a, s) VALUES (-NEW.id, 5, REPEAT('x', NEW.bytes));
    ELSEIF NEW.bytes = -2 THEN
        SAVEPOINT s;
        INSERT INTO t (id, a) VALUES (-1, 5);
        UPDATE t SET a = 5 WHERE id = 10;
        UPDATE t SET a = 5 WHERE id = 11;
        ROLLBACK TO s;
    ELSE
        UPDATE t SET a = 5 WHERE id = 9;
        SAVEPOINT s;
        UPDATE t SET a = 5 WHERE id = 10;
        ROLLBACK TO s;
        UPDATE t SET a = 0 WHERE id = 9;
    END IF"""


def _part_undone(env: Env, change: str, statements: list[str], before: str = "DO 0") -> tuple[object, bool]:
    """The ALTER's answer, and whether it still ran when the transaction was about to commit. The rows are right."""
    for _ in range(4):
        if seen := _part_undone_once(env, change, statements, before):
            return seen
    raise Failed(f"{change}: the ALTER still runs")


def _part_undone_once(env: Env, change: str, statements: list[str], before: str) -> tuple[object, bool] | None:
    """As above; None if t had another name before the transaction came to it."""
    session, other, watcher = (env.session() for _ in range(3))
    session.run(before)
    _table(session, "t", "")
    session.run("ALTER TABLE t ADD COLUMN s VARCHAR(4000)")
    session.run("CREATE OR REPLACE TABLE u (id INT PRIMARY KEY, bytes INT) ENGINE=FERRITE")
    session.run(TRIGGER)
    running = session.start(_statement(change))
    _copying(watcher, running)
    other.run("BEGIN")
    if not _changes_t(other, change, "DELETE FROM t WHERE id = 5"):
        other.run("ROLLBACK")
        _is_over(running, session)
        return None
    for sql in statements:
        other.answer(sql)
    is_amid = running.waits(0)
    other.run("COMMIT")
    answer = running.answer()
    _named_as_before(session)
    seen = session.run("SELECT COUNT(*), SUM(a), MIN(id), SUM(id IN (5, 7)), COUNT(s) FROM t")
    equal(seen, [(ROWS - 1, 0, 1, 1, 0)], f"rows after {change} beside {statements}")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", change)
    session.run("DROP TABLE t, u")
    return answer, is_amid


def scenario_parts_of_transactions_that_are_undone(env: Env) -> None:
    """Where the server's log cannot repeat a rollback, the ALTER says so and the table stays; elsewhere it succeeds."""
    copies = _copies(env.session())
    for change in ("ADD KEY ka (a)", "ADD COLUMN n INT DEFAULT 1, ALGORITHM=COPY"):
        for name, statements in PARTS.items():
            answer, is_amid = _part_undone(env, change, statements)
            wanted = 1412 if copies and is_amid else []
            equal(answer, wanted, f"{change} beside {name}, amid it: {is_amid}")
    for change in ("ENGINE=InnoDB", "CREATE INDEX ka ON t (a)", *([RENAMES] if copies else [])):
        answer, is_amid = _part_undone(env, change, PARTS["many bytes"])
        equal(answer, 1412 if copies and is_amid else [], f"{change}, amid it: {is_amid}")
    for name, statements in ONCE.items():
        equal(_part_undone(env, "ADD KEY ka (a)", statements)[0], [], f"beside {name}")


# So slowly that what comes beside it is over before.
ASKED_FOR = "ADD COLUMN n INT DEFAULT (LENGTH(MD5(REPEAT(id, 500)))), ALGORITHM=COPY"


def scenario_old_mode_and_a_lock_that_is_asked_for(env: Env) -> None:
    """LOCK=NONE counts against an old_mode that has writers wait: such a copy is made beside them, and looked at as any other."""
    if not _copies(env.session()):
        return
    asked_for, online = f"{ASKED_FOR}, LOCK=NONE", f"ALTER ONLINE TABLE t {ASKED_FOR}"
    for change, is_amid in ((asked_for, False), (online, True), ("CREATE INDEX ka ON t (a) LOCK=NONE", False)):
        _prepared_stays(env, change, "", is_amid, OLD_MODE)
    for change in (asked_for, online):
        answer, is_amid = _part_undone(env, change, PARTS["many bytes"], OLD_MODE)
        equal(answer, 1412 if is_amid else [], f"{change}, amid it: {is_amid}")


def _victim(env: Env) -> Session:
    """A session whose XA transaction on t a deadlock has rolled back."""
    victim, other = env.session(), env.session()
    victim.run("XA START 'v'")
    victim.run("INSERT INTO t (id, a) VALUES (-1, 5)")
    victim.run("UPDATE t SET a = 0 WHERE id = 1")
    other.run("BEGIN")
    other.run("UPDATE t SET a = 0 WHERE id BETWEEN 100 AND 300")
    waiting = other.start("UPDATE t SET a = 0 WHERE id = 1")
    time.sleep(0.2)
    equal(victim.error("UPDATE t SET a = 0 WHERE id = 200"), 1213, "the one with fewer changes")
    equal(waiting.answer(), [], "the other one")
    other.run("COMMIT")
    other.close()
    return victim


def scenario_xa_transactions_that_a_deadlock_ends(env: Env) -> None:
    """The server keeps what is logged of one, and the connection's next transaction commits it."""
    # The copy takes half a minute on a machine that does nothing else.
    session, watcher = env.session(read_timeout=COPY_SECONDS), env.session()
    # Where all wait for the copy they do so for a fifth of the time: it is longer than a statement may take.
    rows = ROWS if _copies(session) else FEWER
    _table(session, "t", "", rows)
    for column, rest in (("n", "ALGORITHM=COPY"), ("m", "ENGINE=InnoDB")):
        # So slowly that the victim goes on before the end.
        change = f"ADD COLUMN {column} INT DEFAULT (LENGTH(MD5(REPEAT(id, 2000)))), {rest}"
        running = session.start(f"ALTER TABLE t {change}")
        _copying(watcher, running)
        victim = _victim(env)
        equal(victim.error("XA END 'v'"), 1399, "it was rolled back")
        victim.error("XA ROLLBACK 'v'")
        victim.run("UPDATE t SET a = a + 1 WHERE id = 2")
        victim.close()
        answer = running.answer(COPY_SECONDS)
        expect(answer in ([], 1412), "the ALTER ends, or says why not", answer)
        equal(session.run("SELECT COUNT(*), MIN(id) FROM t"), [(rows, 1)], f"rows after {change}")


WRITERS = 8
HOT = 3
COPIES = 20


def _count_up(session: Session, seed: int, stop: threading.Event, done: list[int]) -> None:
    """Adds one to a hot row at a time; how often, in `done`."""
    chosen = random.Random(seed)
    count = 0
    while not stop.is_set():
        session.run(f"UPDATE t SET a = a + 1 WHERE id = {chosen.randint(1, HOT)}")
        count += 1
    done.append(count)


@options("--log-bin=corners-bin", "--binlog-format=ROW", "--sync-binlog=1", "--server-id=1")
def scenario_changes_of_one_row_are_repeated_in_their_order(env: Env) -> None:
    """With the binary log others get a row before the server has logged, for the copy, who changed it last: what the copy
    ended with was an older state of the row."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, 0 FROM seq_1_to_20000")
    stop = threading.Event()
    done: list[int] = []
    sessions = [env.session() for _ in range(WRITERS)]
    writers = [threading.Thread(target=_count_up, args=(s, n, stop, done)) for n, s in enumerate(sessions)]
    for writer in writers:
        writer.start()
    copies = "ALTER TABLE t FORCE, ALGORITHM=COPY" + (", LOCK=NONE" if _copies(session) else "")
    try:
        answers = [session.answer(copies) for _ in range(COPIES)]
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    equal(answers, [[]] * COPIES, "answers of the ALTERs")
    equal(len(done), WRITERS, "writers without an error")
    equal(int(session.value("SELECT SUM(a) FROM t")), sum(done), "what was added")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "t")


def _still_run(copies: list[Running]) -> bool:
    return all(copy.waits(0) for copy in copies)


def _are_copied(env: Env, watcher: Session, copies: list[Running]) -> None:
    """Until rows of all of them are being copied, or one has ended."""
    env.eventually("all are copied", lambda: watcher.value(COPYING) == len(copies) or not _still_run(copies))


def _amid(what: str, play: Callable[[], bool]) -> None:
    """Plays until what others did was over before the ALTERs were: on a busy machine a copy may be faster than its watcher."""
    expect(any(play() for _ in range(4)), f"{what}: the ALTERs still run")


def _another_copy(env: Env, order: str, wanted: object) -> bool:
    """Whether the ALTERs of t and i still ran when a transaction that changed them in this order was about to commit."""
    session, other, third, watcher = (env.session() for _ in range(4))
    _table(session, "t", "", FEWER)
    _table(session, "i", "", FEWER)
    session.run("ALTER TABLE i ENGINE=InnoDB, LOCK=SHARED")
    slow = "ADD COLUMN n INT DEFAULT (LENGTH(MD5(REPEAT(id, 2000)))), ALGORITHM=COPY, LOCK=NONE"
    copies = [third.start(f"ALTER TABLE i {slow}"), session.start(f"ALTER TABLE t {slow}")]
    _are_copied(env, watcher, copies)
    other.run("BEGIN")
    for table in order:
        other.run(f"UPDATE {table} SET a = 5 WHERE id = 1")
    is_amid = _still_run(copies)
    other.run("COMMIT")
    answers = [copy.answer() for copy in copies]
    if is_amid:
        equal(answers, [[], wanted], f"the ALTERs beside changes of {order}")
    equal(session.run("SELECT SUM(a), COUNT(*) FROM t"), [(5, FEWER)], f"rows after changes of {order}")
    session.run("DROP TABLE t, i")
    return is_amid


def scenario_the_log_of_another_copy_comes_first(env: Env) -> None:
    """A transaction that had changed another table that is copied, before it came to one of Ferrite's: the server logs its rows
    after its commit, and the ALTER says that it cannot repeat them."""
    if not _copies(env.session()):
        return
    for order, wanted in (("it", 1412), ("ti", [])):
        _amid(f"changes of {order}", partial(_another_copy, env, order, wanted))


def _decide(session: Session, number: int, stop: threading.Event, done: list[int]) -> None:
    """XA transactions on another table, each committed by its xid alone; how many, in `done`."""
    count = 0
    while not stop.is_set():
        xid = f"x{number}"
        for sql in (f"XA START '{xid}'", f"INSERT INTO u VALUES ({number}, {count})", f"XA END '{xid}'"):
            session.run(sql)
        session.run(f"XA PREPARE '{xid}'")
        session.reset()
        session.run(f"XA COMMIT '{xid}'")
        count += 1
    done.append(count)


def scenario_prepared_transactions_of_other_tables(env: Env) -> None:
    """Commits by xid in other tables do not keep a copy from taking the table's place."""
    session = env.session()
    _table(session, "t", "", 5000)
    session.run("CREATE TABLE u (a INT, b INT, PRIMARY KEY (a, b)) ENGINE=FERRITE")
    stop = threading.Event()
    done: list[int] = []
    sessions = [env.session() for _ in range(4)]
    deciders = [threading.Thread(target=_decide, args=(s, n, stop, done)) for n, s in enumerate(sessions)]
    for decider in deciders:
        decider.start()
    try:
        answers = [session.answer("ALTER TABLE t FORCE, ALGORITHM=COPY") for _ in range(40)]
    finally:
        stop.set()
        for decider in deciders:
            decider.join()
    equal(answers, [[]] * 40, "answers of the ALTERs")
    equal(session.value("SELECT COUNT(*) FROM u"), sum(done), "rows of the other table")
    equal(session.run("SELECT COUNT(*) FROM t"), [(5000,)], "rows of the table")


@contextlib.contextmanager
def _small_tmpdir(env: Env) -> Iterator[Path]:
    """A directory of a mebibyte for the server's temporary files. The server runs again when this begins, and is ended after it."""
    env.stop()
    disk = env.datadir.parent / "tmpdir"
    with mounted(env, disk, 1):
        env.start(f"--tmpdir={disk}")
        yield disk


# Two of them are more than the server keeps in memory of one transaction's log of changes.
LARGE = "INSERT INTO t (id, a, s) VALUES ({}, 0, REPEAT('x', 20000))"
MANY = [LARGE.format(-number) for number in (1, 2, 3)]

# Each begins while the disk has space, and goes on when it has none: statements, where None comes between the two.
NOT_WRITTEN: dict[str, list[str | None]] = {
    "a statement": [None, "INSERT INTO t (id, a, s) VALUES (-1, 0, REPEAT('x', 60000))"],
    "a statement of a transaction": ["BEGIN", LARGE.format(-1), None, LARGE.format(-2), "COMMIT"],
    "the end of a transaction": ["BEGIN", *MANY, None, "COMMIT"],
    "XA COMMIT": ["XA START 'x'", *MANY, "XA END 'x'", "XA PREPARE 'x'", None, "XA COMMIT 'x'"],
    "XA COMMIT by another": ["XA START 'x'", *MANY, "XA END 'x'", "XA PREPARE 'x'", None, "reset", "XA COMMIT 'x'"],
}
SLOWLY = "ADD COLUMN n INT DEFAULT (LENGTH(MD5(REPEAT(id, 2000)))), ALGORITHM=COPY"


def _play(session: Session, statements: list[str | None], at_none: Callable[[], object]) -> list[object]:
    """The answers that are errors."""
    answers: list[object] = []
    for sql in statements:
        if sql is None:
            at_none()
        elif sql == "reset":
            session.reset()
        else:
            answers.append(session.answer(sql))
    return [answer for answer in answers if answer != []]


def _changes_not_written(env: Env, disk: Path, name: str) -> bool:
    """Whether the ALTER still ran when all that others did was over."""
    session, other, watcher = (env.session() for _ in range(3))
    _table(session, "t", "", FEWER)
    session.run("ALTER TABLE t ADD COLUMN s VARCHAR(60000) CHARACTER SET latin1, LOCK=SHARED")
    running = session.start(f"ALTER TABLE t {SLOWLY}, LOCK=NONE")
    _copying(watcher, running)
    errors = _play(other, NOT_WRITTEN[name], lambda: fill(disk))
    kept = watcher.run("SELECT id FROM t WHERE id < 0 ORDER BY id")
    is_amid = _still_run([running])
    expect(bool(errors) or not is_amid, f"{name}: the log is full", errors)
    (disk / "filler").unlink()
    answer = running.answer()
    if is_amid:
        equal(answer, 1412 if kept else [], f"the ALTER beside {name}, which has left {kept}")
    equal(session.run("SELECT id FROM t WHERE id < 0 ORDER BY id"), kept, f"rows of {name}, after {errors}")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", name)
    session.run("DROP TABLE t")
    return is_amid


@options()
def scenario_changes_that_the_log_has_no_space_for(env: Env) -> None:
    """Where the log of changes could not be written, a transaction may be committed all the same: its rows are not lost."""
    if not _copies(env.session()) or not may_mount():
        return
    with _small_tmpdir(env) as disk:
        for name in NOT_WRITTEN:
            _amid(name, partial(_changes_not_written, env, disk, name))


def _copied_slowly(env: Env, *names: str) -> list[Running]:
    """An ALTER of each, of which each is new."""
    sessions, watcher = [env.session() for _ in names], env.session()
    for name, session in zip(names, sessions, strict=True):
        _table(session, name, "", FEWER)
        session.run(f"ALTER TABLE {name} ADD COLUMN s VARCHAR(4000), LOCK=SHARED")
    alters = [f"ALTER TABLE {name} {SLOWLY}, LOCK=NONE" for name in names]
    copies = [session.start(alter) for alter, session in zip(alters, sessions, strict=True)]
    _are_copied(env, watcher, copies)
    return copies


def _undo_many(session: Session, name: str) -> None:
    """A statement that fails behind many bytes: the log keeps some of its rows."""
    equal(session.error(PARTS["many bytes"][0].replace("INTO t", f"INTO {name}")), 1062, "a row is there")


def _wrong_log(env: Env, written: str, wanted: list[object]) -> bool:
    """Whether the ALTERs of t, u and v still ran when a transaction had committed that changed some of them, of u too much."""
    session, other = env.session(), env.session()
    copies = _copied_slowly(env, "t", "u", "v")
    other.run("BEGIN")
    for name in written:
        other.run(f"UPDATE {name} SET a = 1 WHERE id = 1")
    _undo_many(other, "u")
    other.run("COMMIT")
    is_amid = _still_run(copies)
    answers = [copy.answer() for copy in copies]
    if is_amid:
        equal(answers, wanted, f"ALTERs of t, u and v beside a wrong log of {written}")
    for name in "tuv":
        seen = session.run(f"SELECT SUM(a), MIN(id), COUNT(*) FROM {name}")
        equal(seen, [(int(name in written), 1, FEWER)], f"rows of {name} beside a wrong log of {written}")
        session.run(f"DROP TABLE {name}")
    return is_amid


def scenario_wrong_logs_of_other_tables(env: Env) -> None:
    """A log that is wrong keeps from being altered the tables of its transaction, and no others."""
    if not _copies(env.session()):
        return
    for written, wanted in (("u", [[], 1412, []]), ("uv", [[], 1412, 1412])):
        _amid(f"a wrong log of {written}", partial(_wrong_log, env, written, wanted))


def _wrong_log_of_prepared(env: Env, end: str, decider: str, wanted: object) -> bool:
    """Whether the ALTER still ran when the transaction had been decided."""
    session, other = env.session(), env.session()
    (copy,) = _copied_slowly(env, "t")
    other.run("XA START 'x'")
    other.run("UPDATE t SET a = 1 WHERE id = 1")
    _undo_many(other, "t")
    other.run("XA END 'x'")
    other.run("XA PREPARE 'x'")
    if decider == "another":
        other.reset()
    other.run(end)
    is_amid = _still_run([copy])
    answer = copy.answer()
    if is_amid:
        equal(answer, wanted, f"the ALTER beside {end} by {decider}")
    seen = session.run("SELECT SUM(a), MIN(id), COUNT(*) FROM t")
    equal(seen, [(int("COMMIT" in end), 1, FEWER)], f"rows after {end} by {decider}")
    session.run("DROP TABLE t")
    return is_amid


def scenario_wrong_logs_of_prepared_transactions(env: Env) -> None:
    """The wrong log of one that is prepared keeps the table from being altered if it is committed, by whomever."""
    if not _copies(env.session()):
        return
    for end, wanted in (("XA ROLLBACK 'x'", []), ("XA COMMIT 'x'", 1412)):
        for decider in ("it", "another"):
            _amid(f"{end} by {decider}", partial(_wrong_log_of_prepared, env, end, decider, wanted))
