"""AUTO_INCREMENT at its edges: values given by the user, negative, zero, beyond BIGINT; and who gets values while others do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from corners.env import Env, Running, Session, equal, expect, options

TYPES = ("TINYINT", "INT", "INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED", "FLOAT", "DOUBLE")
GIVEN = (
    "INSERT INTO t (id, n) VALUES (-1, 2)",
    "INSERT INTO t (id, n) VALUES (0, 2)",
    "UPDATE t SET id = -3 WHERE n = 1",
    "UPDATE t SET id = 0 WHERE n = 1",
    "UPDATE t SET id = 40 WHERE n = 1",
    "REPLACE INTO t (id, n) VALUES (-5, 1)",
    "INSERT INTO t (id, n) VALUES (1, 9) ON DUPLICATE KEY UPDATE id = -7",
    "INSERT INTO t (id, n) VALUES (1, 9) ON DUPLICATE KEY UPDATE id = 30",
)
MODES = ("STRICT_ALL_TABLES", "NO_AUTO_VALUE_ON_ZERO", "")


def scenario_values_given_by_the_user(env: Env) -> None:
    """What a value given by the user does to the counter, and whether it is taken."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for kind in TYPES:
            session.run(f"CREATE OR REPLACE TABLE t (id {kind} AUTO_INCREMENT PRIMARY KEY, n INT) ENGINE={engine}")
            for number, statement in enumerate(GIVEN):
                session.run(f"SET sql_mode='{MODES[number % len(MODES)]}'")
                session.run("DELETE FROM t")
                answers = [session.answer("INSERT INTO t (n) VALUES (1)"), session.answer(statement)]
                answers.append(session.answer("INSERT INTO t (n) VALUES (3)"))
                rows = session.answer("SELECT id, n FROM t ORDER BY n, id")
                seen.append((kind, statement, answers, rows))
        return seen

    env.same_as_innodb(play)


def scenario_a_value_beyond_bigint(env: Env) -> None:
    """A column of type DOUBLE may count where no BIGINT can, in strict mode too."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run("SET sql_mode='STRICT_ALL_TABLES'")
        seen: list[object] = []
        for kind in ("DOUBLE", "BIGINT UNSIGNED", "BIGINT"):
            start = "10000000000000000000"
            table = f"CREATE OR REPLACE TABLE t (id {kind} AUTO_INCREMENT PRIMARY KEY) ENGINE={engine} AUTO_INCREMENT={start}"
            seen.append(session.answer(table))
            for _ in range(3):
                seen.append(session.answer("INSERT INTO t VALUES ()"))
            seen.append(session.answer("SELECT * FROM t"))
        return seen

    env.same_as_innodb(play)


SLOW_ROWS = 20
# Within a batch of values: the next one is taken when others have had their turn.
GATED_ROW = 10
GATE = "GET_LOCK('gate', 50) - 1"
"""0, as soon as nobody else has the gate: see _at_the_gate()."""
SLOW = f"INSERT INTO t (n) SELECT IF(seq = {GATED_ROW}, {GATE}, 0) + seq FROM seq_1_to_{SLOW_ROWS}"
TABLE = "CREATE OR REPLACE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT) ENGINE=FERRITE"
LOGGED = ("--log-bin=corners-bin", "--server-id=1", "--local-infile=1")


@contextlib.contextmanager
def _at_the_gate(env: Env, session: Session, slow: str) -> Iterator[Running]:
    """The slow statement stands at its GATE, amid its rows, until this ends; then it goes on to its end."""
    keeper = env.session()
    equal(keeper.value("SELECT GET_LOCK('gate', 0)"), 1, "the gate is shut")
    stands = f"SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {session.id} AND STATE = 'User lock'"
    running = session.start(slow)
    env.eventually(f"at the gate: {slow}", lambda: keeper.value(stands) == 1)
    yield running
    expect(running.waits(0), "the slow statement takes its time", slow)
    keeper.run("DO RELEASE_LOCK('gate')")
    expect(isinstance(running.answer(), list), "the slow statement ends well", running.seen)
    session.run("DO RELEASE_ALL_LOCKS()")
    keeper.close()


def _wait_for_values(env: Env, table: str, waiting: Running) -> None:
    """Until somebody waits for the table's values, of which another has the lock."""
    watcher = env.session()
    seen = f"SELECT LOCK_GRANTED FROM information_schema.FERRITE_LOCKS WHERE LOCK_MODE = 'AUTO_INC' AND LOCK_TABLE = '`corners`.`{table}`'"
    env.eventually(f"it waits: {waiting.sql}", lambda: sorted(watcher.run(seen)) == [(0,), (1,)])
    expect(waiting.waits(0), "it has not ended", waiting.sql)
    watcher.close()


@options(*LOGGED)
def scenario_an_error_is_of_its_own_statement(env: Env) -> None:
    """What keeps one statement from a value is not told again by the next on the same handler, which fails without asking for one."""
    session, other = env.session(), env.session()
    for one in (session, other):
        one.run("SET binlog_format = STATEMENT")
    session.run(TABLE)
    other.run("SET innodb_lock_wait_timeout = 1, sql_mode = ''")
    insert = "INSERT INTO t (n) VALUES (1)"
    with _at_the_gate(env, session, SLOW):
        equal(other.error(insert), 1205, "the values are another's")
        other.run("SET insert_id = 3000000000")
        equal(other.error(insert), 167, "a value that does not fit")


def _beside(env: Env, slow: str, log_format: str) -> tuple[list[int], list[int]]:
    """Values of the rows of a slow statement, and of those that another session inserted meanwhile."""
    session, other = env.session(local_infile=True), env.session()
    for one in (session, other):
        one.run(f"SET binlog_format = {log_format}")
    session.run(TABLE)
    session.run("INSERT INTO t (n) VALUES (-1)")
    insert = "INSERT INTO t (n) VALUES (1000), (1000)"
    with _at_the_gate(env, session, slow):
        first = other.start(insert)
        if log_format == "STATEMENT":
            _wait_for_values(env, "t", first)
        else:
            equal([first.answer(), *[other.answer(insert) for _ in range(4)]], [[]] * 5, "nobody waits")
    equal(first.answer(), [], "an answer to the other session")
    if log_format == "STATEMENT":
        equal([other.answer(insert) for _ in range(4)], [[]] * 4, "its next answers")
    rows = other.run("SELECT id, n FROM t WHERE n >= 0 ORDER BY id")
    return [i for i, n in rows if n < 1000], [i for i, n in rows if n == 1000]


@options(*LOGGED)
def scenario_values_of_a_statement_in_the_binary_log(env: Env) -> None:
    """Logged as a statement, with its first value only, its values are consecutive; logged as rows, nobody waits."""
    path = env.datadir.parent / "slow.txt"
    path.write_text("".join(f"{n}\n" for n in range(SLOW_ROWS)), encoding="utf-8")
    load = f"LOAD DATA LOCAL INFILE '{path}' INTO TABLE t (@n) SET n = @n + IF(@n = {GATED_ROW}, {GATE}, 0)"
    for log_format, slow in (("STATEMENT", SLOW), ("STATEMENT", load)):
        mine, others = _beside(env, slow, log_format)
        equal(mine, list(range(2, 2 + SLOW_ROWS)), f"{log_format}: {slow}")
        expect(len(others) == 10 and min(others) > max(mine), f"{log_format}: the other session waited", others)
    mine, others = _beside(env, SLOW, "ROW")
    expect(len(mine) == SLOW_ROWS and min(others) < max(mine), "ROW: nobody waited", (mine, others))


OWN_VALUES = (
    "INSERT INTO t (id, n) VALUES (1000, 1000)",
    "REPLACE INTO t (id, n) VALUES (1000, 1000)",
    "UPDATE t SET id = 1000 WHERE id = 1",
    "INSERT INTO t (id, n) VALUES (1, 9) ON DUPLICATE KEY UPDATE id = 1000",
    "INSERT INTO t (id, n) SELECT 1000 + seq, 1 FROM seq_1_to_3",
    "INSERT INTO t (id, n) VALUES (1000, 1), (NULL, 2)",
    "SET STATEMENT binlog_format=ROW FOR INSERT INTO t (id, n) VALUES (1000, 1000)",
)


@options(*LOGGED, "--binlog-format=STATEMENT")
def scenario_values_of_ones_own_beside_a_statement(env: Env) -> None:
    """Who gives a value above the counter waits, too: the slow statement would go on behind it."""
    session, other = env.session(), env.session()
    for act in OWN_VALUES:
        session.run(TABLE)
        session.run("INSERT INTO t (n) VALUES (-1)")
        with _at_the_gate(env, session, SLOW.replace("+ seq", "+ 5000 + seq")) as running:
            waiting = other.start(act)
            _wait_for_values(env, "t", waiting)
        equal(running.answer(), [], act)
        equal(waiting.answer(), [], act)
        rows = other.run("SELECT id FROM t WHERE n >= 5000 ORDER BY id")
        equal([i for (i,) in rows], list(range(2, 2 + SLOW_ROWS)), act)


@options(*LOGGED, "--binlog-format=STATEMENT", "--log-bin-trust-function-creators=1")
def scenario_values_of_a_function_and_a_trigger(env: Env) -> None:
    """They are part of the client's statement: what they insert is as consecutive, until that statement ends."""
    session, other = env.session(), env.session()
    session.run(TABLE)
    session.run("CREATE TABLE u (id INT AUTO_INCREMENT PRIMARY KEY, n INT) ENGINE=FERRITE")
    session.run("CREATE FUNCTION f() RETURNS INT BEGIN INSERT INTO t (n) SELECT seq FROM seq_1_to_9; RETURN 1; END")
    trigger = f"INSERT INTO u (n) SELECT NEW.n + IF(NEW.n = 3, {GATE}, 0) + seq FROM seq_1_to_2"
    session.run(f"CREATE TRIGGER g AFTER INSERT ON t FOR EACH ROW {trigger}")
    for statement, table, wanted in (
        ("INSERT INTO t (n) SELECT seq FROM seq_1_to_4", "u", 8),
        ("DO f()", "u", 18),
        ("SELECT f(), f()", "t", 18),
    ):
        session.run("TRUNCATE t")
        session.run("TRUNCATE u")
        with _at_the_gate(env, session, statement):
            waiting = other.start(f"INSERT INTO {table} (n) VALUES (1000)")
            _wait_for_values(env, table, waiting)
        equal(waiting.answer(), [], waiting.sql)
        mine = [i for (i,) in other.run(f"SELECT id FROM {table} WHERE n < 1000 ORDER BY id")]
        equal(len(mine), wanted, f"rows of {statement}")
        waited = other.value(f"SELECT id FROM {table} WHERE n = 1000")
        expect(waited > max(mine), f"{statement}: the other session waited", (waited, mine))
    env.eventually(
        "nothing is left",
        lambda: other.value("SELECT COUNT(*) FROM information_schema.FERRITE_LOCKS WHERE LOCK_MODE = 'AUTO_INC'") == 0,
    )


@options(*LOGGED, "--binlog-format=STATEMENT")
def scenario_values_and_row_locks(env: Env) -> None:
    """A deadlock through the values is found at once; a timeout and KILL say so, and take no value."""
    bulk, other, holder, watcher = (env.session() for _ in range(4))
    holder.run(TABLE)
    holder.run("CREATE TABLE s (id INT PRIMARY KEY) ENGINE=FERRITE")
    holder.run("INSERT INTO s VALUES (1), (2), (3)")
    waits = "SELECT COUNT(*) FROM information_schema.FERRITE_LOCK_WAITS"
    held = "SELECT COUNT(*) FROM information_schema.FERRITE_LOCKS WHERE LOCK_MODE = 'AUTO_INC'"

    def begin_bulk() -> Running:
        """It has the values, and waits for a row."""
        holder.run("BEGIN")
        holder.run("SELECT * FROM s WHERE id = 3 FOR UPDATE")
        running = bulk.start("INSERT INTO t (n) SELECT id FROM s")
        env.eventually("the bulk statement waits", lambda: watcher.value(waits) == 1)
        return running

    running = begin_bulk()
    shown = watcher.run(
        "SELECT LOCK_TYPE, LOCK_TABLE FROM information_schema.FERRITE_LOCKS WHERE LOCK_MODE = 'AUTO_INC'"
    )
    equal(shown, [("TABLE", "`corners`.`t`")], "shown among the locks")
    other.run("SET innodb_lock_wait_timeout = 1")
    equal(other.error("INSERT INTO t (n) VALUES (9)"), 1205, "a timeout")
    other.run("SET innodb_lock_wait_timeout = 50")
    waiting = other.start("INSERT INTO t (n) VALUES (9)")
    env.eventually("the other one waits, too", lambda: watcher.value(waits) == 2)
    watcher.run(f"KILL QUERY {other.id}")
    equal(waiting.answer(), 1317, "KILL QUERY")
    holder.run("COMMIT")
    equal(running.answer(), [], "the bulk statement")
    equal(watcher.value(held), 0, "given back at the end of the statement")
    other.run("INSERT INTO t (n) VALUES (4)")
    rows = other.run("SELECT id, n FROM t ORDER BY id")
    equal([n for _, n in rows], [1, 2, 3, 4], "rows")
    equal([i for i, _ in rows[:3]], [1, 2, 3], "values of the bulk statement")

    running = begin_bulk()
    mine = holder.error("INSERT INTO t (n) VALUES (9)")
    if mine:
        holder.run("ROLLBACK")
    else:
        holder.run("COMMIT")
    equal({mine, running.answer() or 0}, {0, 1213}, "one of the two is the victim")
    env.eventually("nothing is left", lambda: watcher.value(held) == 0)


def _logged_as_rows(session: Session, statement: str) -> bool:
    """Whether the binary log has the rows of a statement, not its text."""
    session.run("TRUNCATE t")
    session.run("FLUSH BINARY LOGS")
    session.run(statement)
    name = session.run("SHOW MASTER STATUS")[0][0]
    events = session.run(f"SHOW BINLOG EVENTS IN '{name}'")
    as_text = any(kind == "Query" and statement in info for _, _, kind, _, _, info in events)
    as_rows = any(kind.startswith("Write_rows") for _, _, kind, _, _, _ in events)
    expect(as_text != as_rows, "either the text or the rows", events)
    return as_rows


def scenario_interleaved_values_are_logged_as_rows(env: Env) -> None:
    """innodb_autoinc_lock_mode = 2 with binlog_format = MIXED: a statement's text does not say which values it gets."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run("SET binlog_format = MIXED")
        session.run(f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT) ENGINE={engine}")
        statements = ("INSERT INTO t (n) SELECT 1 UNION ALL SELECT 2", "INSERT INTO t (n) VALUES (1), (2)")
        return [_logged_as_rows(session, statement) for statement in statements]

    for mode in (1, 2):
        env.restart(*LOGGED, f"--innodb-autoinc-lock-mode={mode}")
        seen = env.same_as_innodb(play)
        equal(seen[0], mode == 2, f"innodb_autoinc_lock_mode = {mode}")


@options("--innodb-autoinc-lock-mode=0")
def scenario_no_value_for_a_row_that_fails(env: Env) -> None:
    """innodb_autoinc_lock_mode = 0: one statement at a time, and no gaps."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, n INT UNIQUE) ENGINE={engine}")
        seen = [session.answer("INSERT INTO t (n) VALUES (1)")]
        seen += [session.answer(f"INSERT INTO t (n) VALUES ({n})") for n in (1, 1, 2, 2, 3)]
        seen.append(session.answer("INSERT INTO t (n) VALUES (4), (5), (1)"))
        seen.append(session.answer("INSERT IGNORE INTO t (n) VALUES (6), (1), (7)"))
        seen.append(session.answer("INSERT INTO t (n) SELECT seq FROM seq_8_to_20"))
        seen.append(session.answer("REPLACE INTO t (n) VALUES (1), (2)"))
        seen.append(session.answer("INSERT INTO t (n) VALUES (1) ON DUPLICATE KEY UPDATE n = 30"))
        seen.append(session.answer("INSERT INTO t (n) VALUES (31)"))
        seen.append(session.answer("SELECT id, n FROM t ORDER BY id"))
        seen.append(session.run("SHOW CREATE TABLE t")[0][1].partition("AUTO_INCREMENT=")[2].split()[0])
        return seen

    env.same_as_innodb(play)
    session, other = env.session(), env.session()
    session.run(TABLE)
    with _at_the_gate(env, session, SLOW):
        waiting = other.start("INSERT INTO t (n) VALUES (1000)")
        _wait_for_values(env, "t", waiting)
    equal(waiting.answer(), [], waiting.sql)
    equal(other.value("SELECT id FROM t WHERE n = 1000"), SLOW_ROWS + 1, "the value after the slow statement's")


def scenario_a_sequence_that_is_set_to_what_it_is(env: Env) -> None:
    """INSERT into a sequence of the very values that it has is no error."""
    session = env.session()
    answers = []
    for engine in ("InnoDB", "FERRITE"):
        session.run("DROP SEQUENCE IF EXISTS s")
        session.run(
            f"CREATE SEQUENCE s START WITH 10 INCREMENT BY -3 MINVALUE -50 MAXVALUE 100 CYCLE CACHE 5 ENGINE={engine}"
        )
        seen = [session.answer("INSERT INTO s VALUES (1, 1, 90, 1, 1, 10, 0, 0)") for _ in range(3)]
        answers.append((seen, session.run("SELECT * FROM s"), session.run("SELECT NEXTVAL(s)")))
    equal(answers[1], answers[0], "answers")


def scenario_a_sequence_is_waited_for_as_long_as_is_set(env: Env) -> None:
    """The lock wait timeout of the moment counts, not the one of the first use; nor is it cut to 32 bits of milliseconds."""
    holder, other = env.session(), env.session()
    holder.run("CREATE SEQUENCE s NOCACHE ENGINE=FERRITE")
    # 704 ms more than 32 bits can hold.
    for seconds, seen in ((4294968, [(1,)]), (1, 1205), (50, [(2,)])):
        other.run(f"SET ferrite_lock_wait_timeout = {seconds}")
        with _at_the_gate(env, holder, f"SELECT {GATE} FROM s FOR UPDATE") as holds:
            waiting = other.start("SELECT NEXTVAL(s)")
            if seconds == 1:
                equal(waiting.answer(), seen, "the timeout of the moment")
            else:
                expect(waiting.waits(2.5), f"it waits for {seconds} s", waiting.sql)
        equal(waiting.answer(), seen, f"an answer within {seconds} s")
        equal(holds.answer(), [(0,)], "the answer of the one that held it")
