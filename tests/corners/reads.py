"""Ways to read a table that the optimizer takes when it is told to."""

from __future__ import annotations

import time

from corners.env import Env, equal, expect

OPTIONS = ["--skip-log-bin"]


def scenario_intersected_indexes_over_partitions(env: Env) -> None:
    """With multi-range reads, too: a partition's handler gets no reset between the scans of two indexes."""
    session = env.session()
    session.run("SET optimizer_switch = 'index_merge_sort_intersection=on,mrr=on,mrr_cost_based=off'")
    answers = []
    for engine in ("InnoDB", "FERRITE"):
        session.run("DROP TABLE IF EXISTS t")
        session.run(
            "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, v VARCHAR(100), KEY (a), KEY (b))"
            f" ENGINE={engine} PARTITION BY HASH (id) PARTITIONS 3"
        )
        session.run("INSERT INTO t SELECT seq, seq % 4, seq % 3, REPEAT('x', 90) FROM seq_1_to_200")
        where = [f"a {op} {a} AND b = {b}" for op in ("=", ">", "<") for a in range(4) for b in range(3)]
        answers.append([session.run(f"SELECT SUM(LENGTH(v)), COUNT(*), SUM(id) FROM t WHERE {w}") for w in where])
    equal(answers[1], answers[0], "rows")


def scenario_read_uncommitted_rows_that_have_left_the_range(env: Env) -> None:
    """Entries that were read before their rows changed give no rows outside the range, and do not end it early."""
    for engine in ("InnoDB", "FERRITE"):
        for column in ("a", "v"):
            for order in ("", "DESC"):
                what = f"{engine}, {column} {order}"
                reader, writer = env.session(), env.session()
                writer.run("DROP TABLE IF EXISTS t")
                writer.run(
                    f"CREATE TABLE t (id INT PRIMARY KEY, a INT, f INT, v INT AS (a + 0) VIRTUAL, KEY (a), KEY (v)) ENGINE={engine}"
                )
                writer.run("INSERT INTO t (id, a, f) SELECT seq, seq, 0 FROM seq_1_to_300")
                reader.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
                scan = reader.start(
                    f"SELECT {column}, id, f, SLEEP(0.01) FROM t FORCE INDEX ({column})"
                    f" WHERE {column} BETWEEN 10 AND 99 ORDER BY {column} {order}"
                )
                time.sleep(0.3)
                writer.run("UPDATE t SET a = a + 1000 WHERE id % 2")
                answer = scan.answer()
                expect(isinstance(answer, list), what, answer)
                rows = [row for row in answer if isinstance(row, tuple)]  # type: ignore[union-attr]
                equal([row for row in rows if not 10 <= row[0] <= 99], [], f"{what}: outside the range")
                equal(sum(row[1] % 2 == 0 for row in rows), 45, f"{what}: rows that nobody changed")


def scenario_read_uncommitted_finds_all_rows(env: Env) -> None:
    """Through indexes of every kind, also such as follow from columns that a statement does not ask for."""
    s = env.session()
    s.run(
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, f INT, c VARCHAR(50) COLLATE utf8mb4_unicode_ci, d LONGTEXT, e DOUBLE,"
        " v1 INT AS (a + 1) VIRTUAL, v2 INT AS (v1 * 2) VIRTUAL, v3 INT AS (v2 + 1) VIRTUAL,"
        " w1 TEXT AS (LEFT(d, 20)) VIRTUAL, w2 INT AS (LENGTH(w1) + f) VIRTUAL, p INT AS (b + 1) PERSISTENT,"
        " KEY k1 (b, v2), KEY k2 (v3), KEY k3 (c(3), e), KEY k4 (d(7)), KEY k5 (w1(4) DESC), KEY k6 (w2, id), KEY k7 (p), KEY k8 (e DESC),"
        " x1 INT AS (a + 3) VIRTUAL, x2 INT AS (x1 + 1) VIRTUAL, x3 INT AS (x2 + 1) VIRTUAL, KEY k9 (x3))"
        " ENGINE=FERRITE"
    )
    s.run(
        "INSERT INTO t (id, a, b, f, c, d, e) SELECT seq, seq % 50, seq % 7, seq, IF(seq % 9, CONCAT('Aé', seq % 13), NULL),"
        " REPEAT(CHAR(97 + seq % 20), IF(seq % 11, seq % 30, 40000)), (seq % 5 - 2.0) / 3 FROM seq_1_to_400"
    )
    wheres = (
        "FORCE INDEX (k1) WHERE b = 5",
        "FORCE INDEX (k1) WHERE b = 5 AND v2 > 20",
        "FORCE INDEX (k2) WHERE v3 BETWEEN 9 AND 60",
        "FORCE INDEX (k3) WHERE c LIKE 'aE1%'",
        "FORCE INDEX (k3) WHERE c IS NULL AND e < 0",
        "FORCE INDEX (k4) WHERE d >= 'ccc' AND d < 'm'",
        "FORCE INDEX (k5) WHERE w1 > 'd'",
        "FORCE INDEX (k6) WHERE w2 BETWEEN 20 AND 300",
        "FORCE INDEX (k7) WHERE p IN (2, 3)",
        "FORCE INDEX (k8) WHERE e > -0.5",
        "FORCE INDEX (k9) WHERE x3 BETWEEN 9 AND 40",
    )
    for where in wheres:
        for columns in ("f", "f, a, MD5(d)", "w2, v3, f"):
            answers = []
            for level in ("READ COMMITTED", "READ UNCOMMITTED"):
                s.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                answers.append(s.run(f"SELECT {columns} FROM t {where} ORDER BY id"))
            equal(answers[1], answers[0], f"{columns}, {where}")
            expect(len(answers[0]) > 5, f"rows {where}", len(answers[0]))
