"""Indexes that are added and dropped without a copy of the table, beside all that may be there meanwhile."""

from __future__ import annotations

import time

from corners.env import SMALL, Env, equal, expect, options

OPTIONS = [*SMALL]

ROWS = 3000
TABLES = {
    "ordinary": "id INT PRIMARY KEY, a INT, b VARCHAR(30), n INT, c BLOB, f DOUBLE",
    "no_key": "id INT, a INT, b VARCHAR(30), n INT, c BLOB, f DOUBLE",
    "two_columns": "id INT, a INT, b VARCHAR(30) NOT NULL, n INT, c BLOB, f DOUBLE, PRIMARY KEY (b, id)",
    "descending": "id INT, a INT, b VARCHAR(30), n INT, c BLOB, f DOUBLE, PRIMARY KEY (id DESC), KEY old (a)",
}
FILL = (
    f"SELECT seq, seq MOD 17, CONCAT('b', seq MOD 1000), IF(seq MOD 3, seq, NULL), REPEAT('x', seq MOD 400), seq / 7"
    f" FROM seq_1_to_{ROWS}"
)
CHANGES = [
    "ADD KEY k1 (a)",
    "ADD KEY k2 (b(3)), ADD KEY k3 (c(20), a)",
    "ADD UNIQUE u1 (n)",
    "ADD KEY k4 (f DESC, n), DROP KEY k1",
    "ADD UNIQUE u2 (a, id), DROP KEY k2, ADD KEY k2 (b)",
    "ADD UNIQUE u3 (b)",
    "ADD UNIQUE u4 (a)",
    "DROP KEY u1, ALTER COLUMN a SET DEFAULT 5",
    "ADD KEY k5 (a, b, n, f)",
    "DROP KEY k3, DROP KEY k4, COMMENT 'less'",
]
READS = [
    "SELECT COUNT(*), SUM(n) FROM t WHERE a = 3",
    "SELECT id FROM t WHERE b LIKE 'b12%' ORDER BY id",
    "SELECT id, n FROM t WHERE n BETWEEN 100 AND 140 ORDER BY n, id",
    "SELECT COUNT(*) FROM t WHERE n IS NULL",
    "SELECT id FROM t WHERE f > 400 ORDER BY f DESC, id LIMIT 20",
    "SELECT id, LENGTH(c) FROM t WHERE c = REPEAT('x', 33) ORDER BY id",
]


def _keys(rows: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Of SHOW KEYS: table, uniqueness, name, part, column, order, prefix."""
    return [(*row[:6], row[7]) for row in rows]


def _in_place(engine: str) -> str:
    """Asked for where it is what is tested."""
    return ", ALGORITHM=NOCOPY, LOCK=SHARED" if engine == "FERRITE" else ""


def scenario_answers_after_each_change(env: Env) -> None:
    "Tables of all kinds read the same after each change of their indexes as InnoDB's, and CHECK finds nothing."

    def play(engine: str) -> list[object]:
        seen: list[object] = []
        for name, columns in TABLES.items():
            session = env.session()
            session.run(f"CREATE OR REPLACE TABLE t ({columns}) ENGINE={engine}")
            session.run(f"INSERT INTO t {FILL}")
            session.run("DELETE FROM t WHERE id MOD 10 = 1")
            for change in CHANGES:
                seen.append((name, change, session.answer(f"ALTER TABLE t {change}{_in_place(engine)}")))
                seen.append(_keys(session.run("SHOW KEYS FROM t")))
                seen.extend(session.answer(read) for read in READS)
                session.run("UPDATE t SET a = a + 1, f = f + 1 WHERE id MOD 50 = 7")
                session.run("DELETE FROM t WHERE id MOD 97 = 5 AND a > 9")
                equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", f"{name} after {change}")
            session.run("DROP TABLE t")
        return seen

    env.same_as_innodb(play)


def scenario_old_snapshots(env: Env) -> None:
    "A snapshot from before reads the table as it was, by what was there, and not by the new index."

    def play(engine: str) -> list[object]:
        old, other = env.session(), env.session()
        old.run(f"CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY was (a)) ENGINE={engine}")
        old.run("INSERT INTO t SELECT seq, seq FROM seq_1_to_1000")
        old.run("CREATE TABLE other (i INT PRIMARY KEY) ENGINE=" + engine)
        old.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        old.run("SELECT * FROM other")
        other.run("DELETE FROM t WHERE id > 500")
        other.run("UPDATE t SET a = -a WHERE id <= 10")
        other.run(f"ALTER TABLE t ADD KEY new (a, id){_in_place(engine)}")
        other.run("INSERT INTO t VALUES (2000, 7)")
        seen = [
            old.answer("SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (PRIMARY)"),
            old.answer("SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (was) WHERE a > -100000"),
            old.answer("SELECT COUNT(*) FROM t FORCE INDEX (new) WHERE a > -100000"),
        ]
        old.run("COMMIT")
        seen.append(old.answer("SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (new) WHERE a > -100000"))
        equal(other.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "afterwards")
        other.run("DROP TABLE t, other")
        return seen

    env.same_as_innodb(play)


def scenario_deleted_rows_of_old_snapshots_survive(env: Env) -> None:
    "What purge keeps aside for an old snapshot is still found after other indexes came and went."
    old, other = env.session(), env.session()
    old.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, KEY ka (a), KEY kb (b)) ENGINE=FERRITE")
    old.run("INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_2000")
    old.run("CREATE TABLE other (i INT PRIMARY KEY) ENGINE=FERRITE")
    old.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    old.run("SELECT * FROM other")
    other.run("DELETE FROM t WHERE id MOD 2")
    archived = "SELECT VARIABLE_VALUE > 500 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Ferrite_delete_archive_entries'"
    env.eventually("nothing is archived", lambda: other.value(archived))
    other.run("ALTER TABLE t DROP KEY kb, ADD KEY kc (b, a), ALGORITHM=NOCOPY")
    equal(old.run("SELECT COUNT(*), SUM(a) FROM t FORCE INDEX (ka) WHERE a > 0"), [(2000, 2001000)], "by the index")
    equal(old.run("SELECT COUNT(*), SUM(a) FROM t"), [(2000, 2001000)], "by the rows")
    old.run("COMMIT")
    equal(other.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "afterwards")


def scenario_prepared_transactions_are_waited_for(env: Env) -> None:
    "An index is not built, nor dropped, beside a prepared transaction that may still commit its rows."
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, KEY kb (b)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq, seq FROM seq_1_to_100")
    gone = env.session()
    gone.run("XA START 'x'")
    gone.run("UPDATE t SET a = a + 1000, b = b + 1000 WHERE id <= 10")
    gone.run("INSERT INTO t VALUES (500, 500, 500)")
    gone.run("XA END 'x'")
    gone.run("XA PREPARE 'x'")
    gone.close()
    session.run("SET lock_wait_timeout = 1, ferrite_lock_wait_timeout = 1")
    for change in ("ADD KEY ka (a)", "DROP KEY kb"):
        answer = session.answer(f"ALTER TABLE t {change}, ALGORITHM=NOCOPY")
        expect("1205" in str(answer), "an answer before the decision", answer)
    equal(len(session.run("SHOW KEYS FROM t")), 2, "indexes")
    session.run("XA COMMIT 'x'")
    session.run("ALTER TABLE t ADD KEY ka (a), DROP KEY kb, ALGORITHM=NOCOPY")
    equal(session.run("SELECT COUNT(*) FROM t FORCE INDEX (ka) WHERE a > 400"), [(11,)], "by the new index")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "afterwards")


def scenario_killed_alter_leaves_nothing(env: Env) -> None:
    "KILL of the statement, and a duplicate, leave the table as it was, and no page."
    session, other = env.session(), env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(100)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq, REPEAT('b', 90) FROM seq_1_to_200000")
    for n in range(6):
        running = session.start("ALTER TABLE t ADD KEY kb (b, a), ALGORITHM=NOCOPY")
        time.sleep(0.05 * n)
        other.run(f"KILL QUERY {session.id}")
        # On a fast machine it is done before the KILL comes.
        answer = running.answer()
        expect("1317" in str(answer) or answer == [], "an answer", answer)
        if len(session.run("SHOW KEYS FROM t")) > 1:
            session.run("ALTER TABLE t DROP KEY kb, ALGORITHM=NOCOPY")
    expect("1062" in str(session.answer("ALTER TABLE t ADD UNIQUE ub (b), ALGORITHM=NOCOPY")), "no duplicate")
    equal(len(session.run("SHOW KEYS FROM t")), 1, "indexes")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "afterwards")


@options(*SMALL)
def scenario_kill_9_in_a_build(env: Env) -> None:
    "A server that is killed at any time has the table with the index or without it, whole."
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(60)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq MOD 100, REPEAT('b', seq MOD 60) FROM seq_1_to_100000")
    for n in range(5):
        session.start("ALTER TABLE t ADD KEY kb (b, a), ADD KEY ka (a), ALGORITHM=NOCOPY")
        time.sleep(0.1 + 0.2 * n)
        env.crash()
        session = env.session()
        keys = {row[2] for row in session.run("SHOW KEYS FROM t")}
        expect(keys in ({"PRIMARY"}, {"PRIMARY", "ka", "kb"}), "indexes", keys)
        equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", f"round {n}")
        equal(session.run("SELECT COUNT(*) FROM t"), [(100000,)], "rows")
        if len(keys) > 1:
            session.run("ALTER TABLE t DROP KEY ka, DROP KEY kb, ALGORITHM=NOCOPY")


def scenario_parents_and_children(env: Env) -> None:
    "Foreign keys go on to be checked by the indexes that are left."

    def play(engine: str) -> list[object]:
        session, other = env.session(), env.session()
        session.run(f"CREATE TABLE p (id INT PRIMARY KEY, a INT, KEY ka (a)) ENGINE={engine}")
        session.run(
            f"CREATE TABLE c (id INT PRIMARY KEY, p INT, a INT, KEY kp (p), KEY kpa (p, a),"
            f" FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE, FOREIGN KEY (a) REFERENCES p (a)) ENGINE={engine}"
        )
        session.run("INSERT INTO p SELECT seq, seq FROM seq_1_to_50")
        other.run("INSERT INTO c VALUES (1, 1, 1), (2, 1, 2), (3, 3, 3)")
        seen = [
            session.answer(f"ALTER TABLE p ADD KEY ka2 (a, id){_in_place(engine)}"),
            session.answer("ALTER TABLE p DROP KEY ka"),
            other.answer("INSERT INTO c VALUES (4, 4, 4)"),
            other.answer("INSERT INTO c VALUES (5, 5, 500)"),
            session.answer("ALTER TABLE c DROP KEY kp"),
            session.answer("ALTER TABLE c DROP KEY kpa"),
            other.answer("DELETE FROM p WHERE id = 1"),
            other.answer("UPDATE p SET a = 100 WHERE id = 3"),
            session.run("SELECT * FROM c ORDER BY id"),
        ]
        equal(session.run("CHECK TABLE c EXTENDED")[-1][-1], "OK", "children")
        session.run("DROP TABLE c, p")
        return seen

    env.same_as_innodb(play)


def scenario_readers_go_on(env: Env) -> None:
    "Others read the table while an index is built; writers wait, and go on by the new index."
    session, reader, writer = env.session(), env.session(), env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(100)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq, REPEAT('b', 90) FROM seq_1_to_200000")
    running = session.start("ALTER TABLE t ADD KEY kb (b(50), a), ALGORITHM=NOCOPY")
    time.sleep(0.3)
    equal(reader.run("SELECT a FROM t WHERE id = 77"), [(77,)], "a read beside the build")
    writer.run("INSERT INTO t VALUES (1000000, 5, 'new')")
    running.answer()
    equal(session.run("SELECT id FROM t FORCE INDEX (kb) WHERE b = 'new'"), [(1000000,)], "the row of a writer")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "afterwards")


def scenario_time_limit(env: Env) -> None:
    """max_statement_time ends what goes over many rows inside the engine: builds of indexes and cascades."""
    session = env.session()
    session.run("CREATE TABLE p (id INT PRIMARY KEY) ENGINE=FERRITE")
    session.run(
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, d CHAR(40), FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE) ENGINE=FERRITE"
    )
    session.run("INSERT INTO p VALUES (1)")
    session.run("INSERT INTO c SELECT seq, 1, MD5(seq) FROM seq_1_to_200000")
    for statement in ("ALTER TABLE c ADD INDEX k (d), ALGORITHM=INPLACE", "DELETE FROM p"):
        begun = time.monotonic()
        equal(session.error(f"SET STATEMENT max_statement_time=0.05 FOR {statement}"), 1969, statement)
        expect(time.monotonic() - begun < 5, "it went on", statement)
    equal(session.value("SELECT COUNT(*) FROM c"), 200000, "rows")
    equal(session.run("CHECK TABLE c EXTENDED")[-1][3], "OK", "in the end")


def scenario_longer_key_columns(env: Env) -> None:
    """A VARCHAR that grows in place stays within what a key may have: else the table could not be copied or restored."""
    session = env.session()
    session.run(
        "CREATE TABLE t (p VARBINARY(500) PRIMARY KEY, a VARCHAR(100), b VARCHAR(9), KEY (a)) CHARSET=latin1 ENGINE=FERRITE"
    )
    for algorithm in ("INSTANT", "NOCOPY", "COPY", "DEFAULT"):
        for change in ("MODIFY a VARCHAR(3072)", "MODIFY p VARBINARY(3000), MODIFY a VARCHAR(1000)"):
            equal(session.error(f"ALTER TABLE t {change}, ALGORITHM={algorithm}"), 1071, f"{algorithm}: {change}")
    change = "ALTER TABLE t MODIFY a VARCHAR(3072), ADD KEY (b), ALGORITHM=NOCOPY, LOCK=SHARED"
    equal(session.error(change), 1071, "with another index")
    session.run("ALTER TABLE t MODIFY a VARCHAR(1000), MODIFY b VARCHAR(9000), ALGORITHM=INSTANT")
    session.run("INSERT INTO t VALUES (REPEAT('p', 500), REPEAT('a', 1000), '')")
    session.run("CREATE TABLE copied LIKE t")
    session.run("ALTER TABLE t FORCE, ALGORITHM=COPY")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "the table")


def scenario_keys_that_cannot_be_ordered(env: Env) -> None:
    "What CREATE TABLE refuses as a key, ALTER TABLE refuses too, in place and by copy; an ENUM is a number."
    session = env.session()
    thai = "CHARACTER SET tis620 COLLATE tis620_thai_ci"
    columns = (
        f"id INT PRIMARY KEY, c CHAR(10) {thai}, v VARCHAR(20) {thai}, n VARCHAR(20) {thai}, e ENUM('b', 'a') {thai}"
    )
    session.run(f"CREATE TABLE t ({columns}) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq, seq, seq, 1 + seq MOD 2 FROM seq_1_to_100")
    for how in ("", ", ALGORITHM=INPLACE", ", ALGORITHM=INPLACE, LOCK=SHARED", ", ALGORITHM=COPY"):
        for key in ("KEY (v)", "UNIQUE (v)", "KEY (c)", "KEY (id, v(3))", "KEY (e), ADD KEY (n DESC)"):
            equal(session.error(f"ALTER TABLE t ADD {key}{how}"), 1478, f"{key}{how}")
    equal(session.error("CREATE INDEX k ON t (v)"), 1478, "CREATE INDEX")
    equal(session.error("CREATE UNIQUE INDEX k ON t (v)"), 1478, "CREATE UNIQUE INDEX")
    equal(session.error("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v)"), 1478, "a primary key")
    equal(len(session.run("SHOW KEYS FROM t")), 1, "keys")
    session.run("ALTER TABLE t ADD KEY ke (e)")
    session.run("ALTER TABLE t ADD KEY kie (id, e), ALGORITHM=NOCOPY, LOCK=SHARED")
    session.run("CREATE TABLE u LIKE t")
    session.run("ALTER TABLE t FORCE, ALGORITHM=COPY")
    found = session.run("SELECT e, COUNT(*) FROM t FORCE INDEX (ke) WHERE e >= '' GROUP BY e ORDER BY e")
    equal(found, [("b", 50), ("a", 50)], "by the key of an ENUM")
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", "afterwards")
