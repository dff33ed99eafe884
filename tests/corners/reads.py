"""Ways to read a table that the optimizer takes when it is told to."""

from __future__ import annotations

from corners.env import Env, equal

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
