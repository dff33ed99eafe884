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
