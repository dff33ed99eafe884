"""What newer servers add: vector indexes, ALTER by copy beside writers, new collations, plans by other costs."""

from __future__ import annotations

import threading
import time

from corners.env import Env, Session, equal, expect, options

PLANS = (
    "SELECT * FROM o WHERE id = 5",
    "SELECT * FROM o WHERE id BETWEEN 100 AND 200",
    "SELECT * FROM o WHERE id > 10",
    "SELECT id FROM o ORDER BY id LIMIT 3",
    "SELECT * FROM o WHERE c = 7",
    "SELECT c FROM o WHERE c BETWEEN 3 AND 5",
    "SELECT * FROM o WHERE c BETWEEN 3 AND 5",
    "SELECT * FROM o WHERE c = 7 AND d = 3",
    "SELECT * FROM o WHERE u IN (1, 20, 300)",
    "SELECT COUNT(*) FROM o",
    "SELECT c, COUNT(*) FROM o GROUP BY c",
    "SELECT MAX(id) FROM o",
    "SELECT * FROM o JOIN l ON l.o = o.id WHERE o.c = 7",
    "SELECT * FROM l JOIN o ON l.o = o.id WHERE l.n = 3",
    "SELECT * FROM o JOIN l ON l.o = o.id",
    "SELECT * FROM o WHERE EXISTS (SELECT 1 FROM l WHERE l.o = o.id AND l.n = 5)",
    "SELECT * FROM o ORDER BY c LIMIT 5",
    "SELECT * FROM o ORDER BY s LIMIT 5",
    "SELECT a.id FROM o a JOIN o b ON a.u = b.id JOIN l ON l.o = b.id WHERE a.c = 2 AND l.n < 4",
    "UPDATE o SET s = 'x' WHERE c = 7",
    "DELETE FROM l WHERE o = 5",
)


def _version(env: Env) -> tuple[int, ...]:
    return tuple(int(part) for part in env.server.places.version.split(".")[:2])


def _tables(session: Session, engine: str) -> None:
    session.run(
        f"CREATE OR REPLACE TABLE o (id INT PRIMARY KEY, u INT NOT NULL, c INT, d INT, s VARCHAR(80), UNIQUE KEY (u),"
        f" KEY (c), KEY cd (d, c)) ENGINE={engine}"
    )
    session.run(
        f"CREATE OR REPLACE TABLE l (o INT NOT NULL, n INT NOT NULL, p VARCHAR(40), PRIMARY KEY (o, n), KEY (n))"
        f" ENGINE={engine}"
    )
    session.run("INSERT INTO o SELECT seq, 5001 - seq, seq % 50, seq % 7, REPEAT('s', 60) FROM seq_1_to_5000")
    session.run("INSERT INTO l SELECT o.seq, n.seq, 'line' FROM seq_1_to_2000 o, seq_1_to_6 n")
    session.run("ANALYZE TABLE o, l PERSISTENT FOR ALL")


def scenario_plans_as_innodb(env: Env) -> None:
    """Typical statements have the same plan on both engines: order of tables, kind of access, key, and what Extra says."""
    session = env.session()
    plans: dict[str, list[list[tuple[object, ...]]]] = {}
    for engine in ("InnoDB", "FERRITE"):
        _tables(session, engine)
        found = []
        for statement in PLANS:
            rows = session.run(f"EXPLAIN {statement}")
            # table, type, possible keys, key, its length, ref, Extra: all but the estimate of rows
            found.append([(*row[2:8], row[9]) for row in rows])
        plans[engine] = found
    for statement, one, two in zip(PLANS, plans["InnoDB"], plans["FERRITE"], strict=True):
        equal(two, one, statement)


def _vectors(session: Session, engine: str) -> None:
    """The layers of a vector index are drawn by chance and its answers are approximate: the same chance for each engine."""
    session.run("SET rand_seed1 = 4711, rand_seed2 = 1147")
    session.run(
        f"CREATE OR REPLACE TABLE v (id INT PRIMARY KEY, g INT, e VECTOR(4) NOT NULL, VECTOR INDEX (e)) ENGINE={engine}"
    )
    session.run("BEGIN")
    for i in range(200):
        session.run(f"INSERT INTO v VALUES ({i}, {i % 7}, VEC_FROMTEXT('[{i},{i % 13},{i % 5},1]'))")
    session.run("COMMIT")


def _nearest(vector: str) -> str:
    return f"SELECT id FROM v ORDER BY VEC_DISTANCE_EUCLIDEAN(e, VEC_FROMTEXT('[{vector}]')) LIMIT 3"


def scenario_vector_index(env: Env) -> None:
    """A vector index is a table of the server's own in the same engine: what is found is the same as with InnoDB."""
    if _version(env) < (11, 7):
        return

    def play(engine: str) -> list[object]:
        session = env.session()
        _vectors(session, engine)
        look = [_nearest(vector) for vector in ("50,11,0,1", "900,0,0,0", "3.3,3.1,3,1")]
        seen: list[object] = [session.run(f"EXPLAIN {look[0]}")[0][5]]
        for statement in (
            "BEGIN",
            "DELETE FROM v WHERE id = 50",
            "INSERT INTO v VALUES (1000, 1, VEC_FROMTEXT('[50,11,0,1.5]'))",
            "ROLLBACK",
            "UPDATE v SET e = VEC_FROMTEXT('[900,0,0,0]') WHERE id = 50",
            "INSERT INTO v VALUES (7, 1, VEC_FROMTEXT('[1,1,1,1]'))",
            "ALTER TABLE v ADD f INT, ALGORITHM=COPY",
            "DELETE FROM v WHERE id < 20",
            "OPTIMIZE TABLE v",
            "TRUNCATE v",
            "INSERT INTO v (id, e) VALUES (1, VEC_FROMTEXT('[1,2,3,4]'))",
            "RENAME TABLE v TO w, w TO v",
            "ALTER TABLE v DROP INDEX e",
        ):
            seen.append((statement, session.error(statement)))
            seen += [session.run(sql) for sql in look]
            seen.append(session.value("SELECT COUNT(*) FROM v"))
        seen.append(session.run("CHECK TABLE v EXTENDED")[0][3])
        return seen

    env.same_as_innodb(play)


def scenario_vector_null_is_no_change(env: Env) -> None:
    """NULL that stays NULL in a VECTOR was a change: a row counted, and ON UPDATE moved its time."""
    if _version(env) < (11, 7):
        return

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run("SET timestamp = 1800000000")
        session.run(
            "CREATE OR REPLACE TABLE v (id INT PRIMARY KEY, e VECTOR(2), f VECTOR(300), t TIMESTAMP DEFAULT NOW()"
            f" ON UPDATE NOW()) ENGINE={engine}"
        )
        session.run("INSERT INTO v (id, e) VALUES (1, VEC_FROMTEXT('[1,2]')), (2, NULL)")
        session.run("SET timestamp = 1800000100")
        session.run("SELECT * FROM v ORDER BY id")
        seen: list[object] = []
        for statement in (
            "UPDATE v SET e = NULL WHERE id = 2",
            "UPDATE v SET f = NULL",
            "INSERT INTO v (id, e) VALUES (2, NULL) ON DUPLICATE KEY UPDATE e = NULL",
            "UPDATE v SET e = NULL",
            "UPDATE v SET e = VEC_FROMTEXT('[1,2]')",
        ):
            session.run(statement)
            seen += [session.value("SELECT ROW_COUNT()"), session.run("SELECT id, HEX(e), f, t FROM v")]
        return seen

    env.same_as_innodb(play)


def scenario_vector_of_another_length(env: Env) -> None:
    """VECTOR(2) became VECTOR(3) in place, as a VARCHAR grows: the rows had vectors that are none."""
    if _version(env) < (11, 7):
        return

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"CREATE TABLE v (id INT PRIMARY KEY, e VECTOR(2) NOT NULL, VECTOR INDEX (e)) ENGINE={engine}")
        session.run(f"CREATE TABLE p (id INT PRIMARY KEY, e VECTOR(2)) ENGINE={engine}")
        seen: list[object] = []
        for table in ("v", "p"):
            session.run(f"INSERT INTO {table} VALUES (1, VEC_FROMTEXT('[1,2]'))")
            for algorithm in ("INSTANT", "NOCOPY", "DEFAULT"):
                change = f"ALTER TABLE {table} MODIFY e VECTOR(3) NOT NULL, ALGORITHM={algorithm}"
                seen.append((change, session.error(change)))
                seen.append(session.answer(f"SELECT id, VEC_TOTEXT(e) FROM {table}"))
        return seen

    env.same_as_innodb(play)


def scenario_vector_index_and_a_crash(env: Env) -> None:
    """What was committed is found after kill -9, what was not is gone, in the index too."""
    if _version(env) < (11, 7):
        return
    session = env.session()
    _vectors(session, "FERRITE")
    session.run("DELETE FROM v WHERE id BETWEEN 60 AND 70")
    session.run("UPDATE v SET e = VEC_FROMTEXT('[900,0,0,0]') WHERE id = 50")
    look = [_nearest(vector) for vector in ("50,11,0,1", "900,0,0,0", "65,0,0,1")]
    # What comes behind the nearest is approximate, and may be another row once the index is read anew.
    before = [session.run(sql)[:1] for sql in look]
    equal(before[1][0], (50,), "the row that has moved")
    session.run("BEGIN")
    session.run("DELETE FROM v WHERE id < 100")
    session.run("INSERT INTO v VALUES (2000, 1, VEC_FROMTEXT('[65,0,0,1]'))")
    env.kill()
    env.start()
    session = env.session()
    equal([session.run(sql)[:1] for sql in look], before, "what is found after a crash")
    equal(session.value("SELECT COUNT(*) FROM v"), 189, "rows after a crash")
    equal(session.run("CHECK TABLE v EXTENDED")[0][3], "OK", "CHECK")


def scenario_online_copy(env: Env) -> None:
    """ALTER ... ALGORITHM=COPY, LOCK=NONE beside writers: what they have done is in the new table."""
    if _version(env) < (11, 2):
        return
    session, writer = env.session(), env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY, b INT, s VARCHAR(100), KEY (b)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq, REPEAT('x', 50) FROM seq_1_to_20000")
    failures: list[object] = []
    ended = threading.Event()
    done = [0]

    def write() -> None:
        i = 0
        # No row is changed first and deleted later.
        while not ended.is_set() and i < 9000:
            i += 1
            for sql in (
                f"UPDATE t SET b = b + 1 WHERE a = {i % 19000 + 1}",
                f"INSERT INTO t (a, b, s) VALUES ({30000 + i}, 0, 'new')",
                f"DELETE FROM t WHERE a = {20001 - i}",
            ):
                answer = writer.answer(sql)
                if answer != []:
                    failures.append((sql, answer))
            done[0] = i

    thread = threading.Thread(target=write)
    thread.start()
    try:
        session.run("ALTER TABLE t ADD c INT NOT NULL DEFAULT 4, ALGORITHM=COPY, LOCK=NONE")
        session.run("ALTER TABLE t MODIFY b BIGINT, ADD KEY (s), ALGORITHM=COPY, LOCK=NONE")
    finally:
        ended.set()
        thread.join()
    equal(failures, [], "the writer's statements")
    expect(done[0] > 0, "nothing was written meanwhile")
    i = done[0]
    equal(session.value("SELECT COUNT(*) FROM t"), 20000, "rows")
    equal(session.value("SELECT COUNT(*) FROM t WHERE a > 30000 AND s = 'new'"), i, "rows inserted")
    equal(session.value("SELECT SUM(b - a) FROM t WHERE a <= 20000"), i, "updates")
    equal(session.run("CHECK TABLE t EXTENDED")[0][3], "OK", "CHECK")


def scenario_default_collation(env: Env) -> None:
    """Keys in the server's default collation, and in the newest ones: order, equality and uniqueness as with InnoDB."""
    words = ["a", "A", "\u00e4", "b", "ab", "a ", "\u00df", "ss", "z", "\u017f", "\U0001f600", "\u0130", "i", ""]

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for collation in (
            "",
            "COLLATE utf8mb4_uca1400_ai_ci",
            "COLLATE utf8mb4_uca1400_as_cs",
            "COLLATE utf8mb4_uca1400_nopad_ai_ci",
        ):
            session.run(
                f"CREATE OR REPLACE TABLE c (n INT, w VARCHAR(20) CHARACTER SET utf8mb4 {collation}, KEY (w)) ENGINE={engine}"
            )
            for number, word in enumerate(words):
                session.run("INSERT INTO c VALUES (%s, %s)", number, word)
            seen.append(session.run("SELECT w, COUNT(*) FROM c GROUP BY w ORDER BY w, MIN(n)"))
            seen += [sorted(session.run("SELECT n FROM c FORCE INDEX (w) WHERE w = %s", word)) for word in words]
            session.run(
                f"CREATE OR REPLACE TABLE p (w VARCHAR(20) CHARACTER SET utf8mb4 {collation} PRIMARY KEY) ENGINE={engine}"
            )
            for word in words:
                seen.append(len(session.run("INSERT IGNORE INTO p VALUES (%s) RETURNING w", word)))
            seen.append(session.value("SELECT COUNT(*) FROM p"))
        return seen

    env.same_as_innodb(play)


@options("--innodb-lock-wait-timeout=1", "--innodb-autoinc-lock-mode=0")
def scenario_innodb_settings(env: Env) -> None:
    """InnoDB's variables are found in every series: what clients set of them, and what stands in the configuration."""
    holder, waiter = env.session(), env.session()
    holder.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT UNIQUE) ENGINE=FERRITE")
    holder.run("INSERT INTO t (v) VALUES (1)")
    for statement, seconds in (("DO 1", 1), ("SET innodb_lock_wait_timeout = 2", 2)):
        waiter.run(statement)
        holder.run("BEGIN")
        holder.run("UPDATE t SET v = v + 10")
        begun = time.monotonic()
        equal(waiter.error("UPDATE t SET v = 5"), 1205, statement)
        took = time.monotonic() - begun
        expect(seconds - 0.5 < took < 20, f"{statement}: the timeout", took)
        holder.run("ROLLBACK")
    equal(waiter.error("INSERT INTO t (v) VALUES (1)"), 1062, "a duplicate")
    waiter.run("INSERT INTO t (v) VALUES (2)")
    equal(waiter.value("SELECT id FROM t WHERE v = 2"), 2, "innodb_autoinc_lock_mode = 0: the duplicate used no value")


def scenario_keys_of_vector_tables_are_shown(env: Env) -> None:
    """The server asked what the VECTOR INDEX can do, which is a table of its own: it was looked up behind the end of our indexes."""
    if _version(env) < (11, 7):
        return
    session = env.session()
    for n in range(40):
        keys = "".join(f", KEY k{k} (g, id)" for k in range(n % 8))
        session.run(
            f"CREATE TABLE v{n} (id INT PRIMARY KEY, g INT, e VECTOR(3) NOT NULL, VECTOR INDEX e (e){keys}) ENGINE=FERRITE"
        )
    for _ in range(20):
        session.run("FLUSH TABLES")
        shown = session.run(
            "SELECT COUNT(*) FROM information_schema.STATISTICS WHERE table_name LIKE 'v%' AND index_name = 'e'"
        )
        equal(shown, [(40,)], "vector indexes")
        equal(len(session.run("SHOW KEYS FROM v7")), 2 + 2 * 7, "keys of one table")


def scenario_vector_index_and_its_table(env: Env) -> None:
    """The index is a table without a definition of its own: none that the server does not know; it is not exported."""
    if _version(env) < (11, 7):
        return
    session = env.session()
    session.run("CREATE TABLE v (id INT PRIMARY KEY, e VECTOR(2) NOT NULL, VECTOR INDEX (e)) ENGINE=FERRITE")
    session.run("INSERT INTO v VALUES (1, VEC_FromText('[1,2]'))")
    equal(session.error("FLUSH TABLES v FOR EXPORT"), 1031, "a file would not have the index")
    expect("VECTOR INDEX" in str(session.warnings()), "why", session.warnings())
    session.run("UNLOCK TABLES")
    for word in ("DISCARD", "IMPORT"):
        equal(session.error(f"ALTER TABLE v {word} TABLESPACE"), 1031, f"{word} of a table with such an index")
        expect("table v has a VECTOR INDEX" in str(session.warnings()), "why", session.warnings())
    env.crash()
    expect("have no .frm file" not in env.log(), "no false alarm", "the warning")
    session = env.session()
    found = session.run("SELECT id FROM v ORDER BY VEC_DISTANCE_EUCLIDEAN(e, VEC_FromText('[1,2]')) LIMIT 1")
    equal(found, [(1,)], "the index is there")
