"""Foreign keys when something goes wrong in the middle: statements that fail, KILL, timeouts, deadlocks, a full disk, kill -9, XA."""

from __future__ import annotations

import threading
import time

from corners.disk import fill, small_disk
from corners.env import DATABASE, Env, Session, equal, expect, options, slow

ORPHANS = "SELECT COUNT(*) FROM c LEFT JOIN p ON p.id=c.p WHERE c.p IS NOT NULL AND p.id IS NULL"
TABLES = ("p", "c", "d")


def _family(env: Env, engine: str = "FERRITE", actions: str = "ON DELETE CASCADE ON UPDATE CASCADE") -> Session:
    """Parents 1 to 5 with two children each; grandchildren only of parent 3, which cannot go."""
    session = env.session()
    session.run(f"CREATE TABLE p (id INT PRIMARY KEY, v INT DEFAULT 0, KEY (v)) ENGINE={engine}")
    session.run(
        f"CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT DEFAULT 0, big TEXT, KEY (p, v), CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) {actions}) ENGINE={engine}"
    )
    session.run(
        f"CREATE TABLE d (id INT PRIMARY KEY, c INT, CONSTRAINT g FOREIGN KEY (c) REFERENCES c (id)) ENGINE={engine}"
    )
    session.run("INSERT INTO p (id) VALUES (1), (2), (3), (4), (5)")
    session.run("INSERT INTO c (id, p, big) SELECT seq, 1 + (seq - 1) DIV 2, REPEAT('b', 9000) FROM seq_1_to_10")
    session.run("INSERT INTO d VALUES (1, 6)")
    return session


def _many(session: Session, children: int, actions: str = "ON DELETE CASCADE ON UPDATE CASCADE") -> None:
    session.run("CREATE TABLE p (id INT PRIMARY KEY, v INT) ENGINE=FERRITE")
    session.run(
        f"CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT, KEY (v), CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) {actions}) ENGINE=FERRITE"
    )
    session.run("INSERT INTO p VALUES (1, 1), (2, 2)")
    session.run(f"INSERT INTO c SELECT seq, 1, seq FROM seq_1_to_{children}")


def _all(session: Session, *tables: str) -> list[object]:
    return [session.answer(f"SELECT * FROM {table} ORDER BY 1") for table in tables]


def _sound(session: Session, *tables: str) -> None:
    for table in tables:
        equal(
            session.answer(f"CHECK TABLE {table} EXTENDED"),
            [(f"{DATABASE}.{table}", "check", "status", "OK")],
            "CHECK TABLE",
        )


def scenario_a_statement_that_fails_half_way(env: Env) -> None:
    """A cascade meets a row that cannot go: the statement is undone, the transaction and its savepoints go on."""

    def play(engine: str) -> list[object]:
        session = _family(env, engine)
        answers: list[object] = []
        for sql in (
            "DELETE FROM p ORDER BY id",
            "DELETE FROM p ORDER BY id DESC",
            "DELETE IGNORE FROM p",
            "DELETE p, c FROM p JOIN c ON c.p=p.id",
            "UPDATE p SET id=id+100",
            "UPDATE c SET id=id+100 ORDER BY id",
            "UPDATE IGNORE c SET id=id+100",
            "REPLACE INTO p (id) VALUES (1), (2), (3), (4)",
            "INSERT INTO c (id, p) VALUES (50, 1), (51, 2), (52, 77), (53, 3)",
            "INSERT INTO p (id) VALUES (1) ON DUPLICATE KEY UPDATE id=3",
        ):
            session.run("BEGIN")
            session.run("INSERT INTO c (id, p) VALUES (60, 2)")
            session.run("SAVEPOINT one")
            session.run("DELETE FROM p WHERE id=5")
            answers.append([sql, session.answer(sql), *_all(session, *TABLES)])
            session.run("INSERT INTO c (id, p) SELECT 61, MIN(id) FROM p")
            session.run("ROLLBACK TO one")
            answers.append([sql, "taken back", *_all(session, *TABLES)])
            session.run("ROLLBACK")
            answers.append([sql, "rolled back", *_all(session, *TABLES)])
        return answers

    env.same_as_innodb(play)
    _sound(env.session(), *TABLES)


def scenario_read_only(env: Env) -> None:
    """A read-only transaction cascades into nothing."""

    def play(engine: str) -> list[object]:
        session = _family(env, engine)
        session.run("START TRANSACTION READ ONLY")
        answers: list[object] = [
            session.answer("DELETE FROM p WHERE id=1"),
            session.answer("INSERT INTO c (id, p) VALUES (99, 1)"),
        ]
        session.run("COMMIT")
        return [*answers, *_all(session, *TABLES)]

    env.same_as_innodb(play)


def scenario_a_wait_that_is_too_long(env: Env) -> None:
    """Lock wait timeout in a look, and in a cascade: error 1205 undoes the statement, no more."""
    _family(env)
    first, second = env.session(autocommit=False), env.session(autocommit=False)
    second.run("SET ferrite_lock_wait_timeout=1")
    for held, refused in (
        ("DELETE FROM p WHERE id=5", "INSERT INTO c (id, p) VALUES (70, 1), (71, 5), (72, 2)"),
        ("DELETE FROM p WHERE id=5", "UPDATE c SET p=5 WHERE id IN (1, 2)"),
        ("INSERT INTO c (id, p) VALUES (80, 4)", "DELETE FROM p WHERE id IN (1, 2, 4)"),
        ("UPDATE c SET v=9 WHERE id=8", "DELETE FROM p WHERE id IN (1, 2, 4)"),
        ("DELETE FROM c WHERE id=8", "UPDATE p SET id=id+50 WHERE id IN (1, 2, 4)"),
        ("UPDATE c SET p=4 WHERE id=1", "DELETE FROM p WHERE id=4"),
    ):
        before = _all(env.session(), *TABLES)
        second.run("INSERT INTO c (id, p) VALUES (90, 1)")
        first.run(held)
        equal(second.answer(refused), 1205, refused)
        equal(
            second.answer("SELECT COUNT(*) FROM c WHERE id >= 70"),
            [(1,)],
            "the statement is undone, not the transaction",
        )
        equal(second.answer(refused), 1205, f"{refused} again")
        first.run("ROLLBACK")
        second.run("DELETE FROM c WHERE id=90")
        second.run("COMMIT")
        equal(_all(env.session(), *TABLES), before, "rows")
    _sound(env.session(), *TABLES)


def scenario_deadlocks(env: Env) -> None:
    """Looks that wait for each other: one gives way with all of it, nothing half is left."""
    for cascade in (False, True):
        env.fresh_database()
        _family(env)
        first, second = env.session(autocommit=False), env.session(autocommit=False)
        first.run("DELETE FROM p WHERE id=5" if cascade else "INSERT INTO c (id, p) VALUES (70, 4)")
        second.run("INSERT INTO c (id, p) VALUES (71, 1)" if cascade else "INSERT INTO p (id) VALUES (9)")
        waiting = first.start("DELETE FROM p WHERE id=1" if cascade else "INSERT INTO c (id, p) VALUES (72, 9)")
        expect(waiting.waits(), "it does not wait")
        answer = second.answer("INSERT INTO c (id, p) VALUES (73, 5)" if cascade else "DELETE FROM p WHERE id=4")
        answers = sorted(str(a) for a in (answer, waiting.answer()))
        equal(answers, ["1213", "[]"], "one victim")
        for session in (first, second):
            session.run("COMMIT")
        equal(env.session().value(ORPHANS), 0, "orphans")
        _sound(env.session(), *TABLES)


def _killed_in_a_cascade(session: Session, other: Session, statement: str) -> bool:
    """Whether the statement was still at work when it was killed. If so the statement itself has left nothing behind."""
    works = f"SELECT INFO IS NOT NULL FROM information_schema.PROCESSLIST WHERE ID = {session.id}"
    session.run("BEGIN")
    running = session.start(statement)
    while running.waits(0.005) and not other.value(works):
        pass
    time.sleep(0.2)
    begun = time.monotonic()
    is_at_work = bool(other.value(works))
    other.run(f"KILL QUERY {session.id}")
    answer = running.answer()
    if is_at_work:
        equal(answer, 1317, statement)
        expect(time.monotonic() - begun < 30, "KILL was not heard", time.monotonic() - begun)
        children = other.answer("SELECT COUNT(*), SUM(v), MIN(p), MAX(p) FROM c")
        equal(children, [(200_000, 20_000_100_000, 1, 1)], "children, before the transaction ends")
        equal(other.answer("SELECT * FROM p"), [(1, 1), (2, 2)], "parents, before the transaction ends")
    session.run("ROLLBACK")
    return is_at_work


@options("--ferrite-log-budget=256M")
def scenario_kill_in_a_big_cascade(env: Env) -> None:
    """KILL is heard in a cascade, within seconds, and nothing of it is left."""
    session, other = env.session(), env.session()
    _many(session, 200_000)
    # What the transaction would undo at its end must not hide what its statement has left.
    other.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
    for statement in ("DELETE FROM p WHERE id=1", "UPDATE p SET id=7 WHERE id=1"):
        killed = any(_killed_in_a_cascade(session, other, statement) for _ in range(5))
        expect(killed, "the cascade was over before it was killed", statement)
        equal(other.answer("SELECT * FROM p"), [(1, 1), (2, 2)], "parents")
    _sound(other, "p", "c")


@options("--ferrite-log-budget=64M")
def scenario_kill_9_in_a_big_cascade(env: Env) -> None:
    """kill -9 in a cascade, and again while it is rolled back: all of it or nothing."""
    session = env.session()
    _many(session, 200_000)
    for statement in ("DELETE FROM p WHERE id=1", "UPDATE p SET id=7 WHERE id=1"):
        running = session.start(statement)
        time.sleep(0.7)
        env.kill()
        running.thread.join()
        env.start()
        time.sleep(0.1)
        env.crash()
        session = env.session()
        state = session.run("SELECT COUNT(*), COUNT(DISTINCT p), MIN(p) FROM c")[0]
        equal(session.answer(ORPHANS), [(0,)], "orphans")
        expect(state in ((200_000, 1, 1), (200_000, 1, 7), (0, 0, None)), "half a cascade", state)
        equal(session.value("SELECT COUNT(*) FROM p"), 2 if state[0] else 1, "parents")
        _sound(session, "p", "c")
        if not state[0]:
            session.run("INSERT INTO p VALUES (1, 1)")
            session.run("INSERT INTO c SELECT seq, 1, seq FROM seq_1_to_200000")


@slow
@options("--ferrite-log-budget=32M")
def scenario_a_full_disk_in_a_cascade(env: Env) -> None:
    """The disk is full in the middle of a cascade: error 1114, all as before, and it goes on when there is room."""
    session = env.session()
    _many(session, 100_000)
    session.run("ALTER TABLE c ADD COLUMN t TEXT")
    session.run("UPDATE c SET t=REPEAT(MD5(id), 10)")
    rows = "SELECT COUNT(*), SUM(v), SUM(p), SUM(CRC32(t)) FROM c"
    before = session.answer(rows)
    with small_disk(env, 600) as disk:
        session = env.session()
        filler = fill(disk)
        failed = [session.answer("UPDATE p SET id=7 WHERE id=1"), session.answer("DELETE FROM p WHERE id IN (1, 7)")]
        expect(any(answer == 1114 for answer in failed), "the disk was not full", failed)
        expect(all(answer in (1114, []) for answer in failed), "another error", failed)
        equal(session.value(ORPHANS), 0, "orphans")
        if failed[1] == 1114:
            equal(session.answer(rows)[0][0], before[0][0], "children")  # type: ignore[index]
        filler.unlink()
        env.eventually("writing after the disk has room", lambda: not session.error("INSERT INTO p VALUES (50, 50)"))
        _sound(session, "p", "c")
        equal(session.answer("DELETE FROM p WHERE id IN (1, 7)"), [], "the cascade with room")
        equal(session.value("SELECT COUNT(*) FROM c"), 0, "children")
        _sound(session, "p", "c")


# ---- prepared transactions -----------------------------------------------------------------------


def _decided(env: Env, crash: bool, commit: bool) -> None:
    env.fresh_database()
    _family(env, actions="")
    env.session().run("DELETE FROM c WHERE p=5")
    env.prepare("child", "INSERT INTO c (id, p) VALUES (70, 5)", "DELETE FROM c WHERE p=4")
    env.prepare(
        "parent",
        "DELETE FROM p WHERE id=99",
        "INSERT INTO p (id) VALUES (8)",
        "DELETE FROM c WHERE p=2",
        "DELETE FROM p WHERE id=2",
    )
    if crash:
        env.crash()
        env.session(None).run("SET GLOBAL ferrite_lock_wait_timeout=1")
    session = env.session()
    session.run("SET lock_wait_timeout=1")
    session.run("SET ferrite_lock_wait_timeout=1")
    questions = {
        "DELETE FROM p WHERE id=5": 1451 if commit else [],
        "DELETE FROM p WHERE id=4": [] if commit else 1451,
        "UPDATE p SET id=50 WHERE id=4": [] if commit else 1451,
        "INSERT INTO c (id, p) VALUES (80, 8)": [] if commit else 1452,
        "INSERT INTO c (id, p) VALUES (81, 2)": 1452 if commit else [],
        "UPDATE c SET p=2 WHERE id=1": 1452 if commit else [],
    }
    for question in questions:
        equal(session.answer(question), 1205, f"{question}, crash {crash}")
    # Both tables were changed by prepared transactions: no DDL takes them away.
    for ddl in (
        "DROP TABLE p",
        "TRUNCATE p",
        "RENAME TABLE p TO q",
        "ALTER TABLE p ADD COLUMN z INT, ALGORITHM=COPY",
        "DROP TABLE c",
        "TRUNCATE c",
    ):
        for checks in (0, 1):
            session.run(f"SET foreign_key_checks={checks}")
            answer = session.answer(ddl)
            expect(answer in (1205, 1451, 1701), "DDL beside prepared transactions", (ddl, checks, crash, answer))
    for xid in ("child", "parent"):
        session.run(f"XA {'COMMIT' if commit else 'ROLLBACK'} '{xid}'")
    for question, wanted in questions.items():
        session.run("BEGIN")
        equal(session.answer(question), wanted, f"{question}, crash {crash}, commit {commit}")
        session.run("ROLLBACK")
    equal(session.value(ORPHANS), 0, "orphans")
    _sound(session, *TABLES)


@slow
@options("--ferrite-lock-wait-timeout=1")
def scenario_prepared_both_sides(env: Env) -> None:
    """Prepared changes of parents and children are waited for and keep their tables, whoever asks, also after a crash."""
    for crash in (False, True):
        for commit in (True, False):
            _decided(env, crash, commit)


@options("--ferrite-lock-wait-timeout=1")
def scenario_ddl_of_the_parent_of_a_prepared_child(env: Env) -> None:
    """Only the child was changed: the parent may be altered meanwhile, and the child still has its parent."""
    for crash in (False, True):
        env.fresh_database()
        session = _family(env, actions="")
        session.run("DELETE FROM c WHERE p=5")
        env.prepare("child", "INSERT INTO c (id, p) VALUES (70, 5)")
        if crash:
            env.crash()
            session = env.session()
        session.run("SET lock_wait_timeout=2")
        for ddl, allowed in (
            ("DROP TABLE p", {1451}),
            ("TRUNCATE p", {1701}),
            ("ALTER TABLE p ADD COLUMN z INT, ALGORITHM=COPY", {0, 1205}),
            ("ALTER TABLE p ADD KEY (v, id)", {0, 1205}),
            ("RENAME TABLE p TO q", {0, 1205}),
            ("RENAME TABLE q TO p", {0, 1205, 1146}),
        ):
            answer = session.error(ddl)
            expect(answer in allowed, "DDL of the parent", (ddl, crash, answer))
        equal(session.answer("DELETE FROM p WHERE id=5"), 1205, "the parent of a prepared child")
        session.run("XA COMMIT 'child'")
        equal(session.answer("DELETE FROM p WHERE id=5"), 1451, "the parent of a committed child")
        equal(session.value(ORPHANS), 0, "orphans")
        _sound(session, *TABLES)


def scenario_copies_beside_renames_of_parents(env: Env) -> None:
    """A table is copied, by whatever statement, while its parent gets another name: its constraint follows."""
    session, other = env.session(), env.session()
    session.run("CREATE TABLE p (id INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("CREATE TABLE q (id INT PRIMARY KEY) ENGINE=FERRITE")
    session.run(
        "CREATE TABLE c (id INT PRIMARY KEY, x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id)) ENGINE=FERRITE"
    )
    copies = (
        "OPTIMIZE TABLE c",
        "ALTER TABLE c FORCE, ALGORITHM=COPY",
        "CREATE INDEX k ON c (id)",
        "DROP INDEX k ON c",
    )
    other.run("SET alter_algorithm=COPY")
    names = ["p", "q"]
    seen = 0
    renamed = threading.Event()

    def copy() -> None:
        while not renamed.is_set():
            for sql in copies:
                other.run(sql)

    copying = threading.Thread(target=copy, daemon=True)
    copying.start()
    try:
        for _ in range(800):
            session.run("RENAME TABLE p TO aside, q TO p, aside TO q")
            names.reverse()
            # While the copy takes its place there is no table c.
            found = session.run("SELECT REF_NAME FROM information_schema.FERRITE_SYS_FOREIGN WHERE FOR_NAME LIKE '%/c'")
            expect(found in ([], [(f"{DATABASE}/{names[0]}",)]), f"the parent is {names[0]} now", found)
            seen += len(found)
    finally:
        renamed.set()
        copying.join()
    expect(seen > 3, "hardly anything was seen", seen)
