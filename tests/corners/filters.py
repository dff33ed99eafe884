"""Rowid filters (EXPLAIN says `range|filter`) beside indexes whose entries do not hold the whole column."""

from __future__ import annotations

from corners.env import Env, Session, expect

FILLER = "f VARCHAR(400) DEFAULT REPEAT('f', 400)"


def _is_filtered(env: Env, session: Session, sql: str) -> None:
    if not env.server.places.version.startswith("10."):
        return  # by the costs of 11 there is no filter for so few rows
    plan = session.run("EXPLAIN " + sql)
    expect("filter" in str(plan), "the optimizer takes no rowid filter here", plan)


def scenario_range_of_a_prefix_index(env: Env) -> None:
    """A range on KEY(c(100)) that is read with a rowid filter loses no rows."""
    query = "SELECT id FROM t WHERE (b = 'q' OR b IS NULL) AND c < 'ab' ORDER BY id"

    def play(engine: str) -> list[object]:
        s = env.session()
        s.run(
            f"CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(150), c VARCHAR(150), KEY (b), KEY (c(100))) ENGINE={engine}"
        )
        s.run(
            "INSERT INTO t VALUES (49,NULL,'x'), (50,'z','y'), (36,'IV',NULL), (51,NULL,' '), (52,'a','a'), (66,'q','IV')"
        )
        _is_filtered(env, s, query)
        return [s.answer(query), s.answer(query + " DESC"), s.answer(query + " FOR UPDATE")]

    env.same_as_innodb(play)


def scenario_filter_from_a_prefix_of_a_virtual_column(env: Env) -> None:
    """KEY(v(3)) on a virtual column as the filter of another index, and as the index that is filtered."""
    queries = [
        "SELECT id FROM t WHERE v IN ('v13', 'v38') AND n IN (13, 53, 38, 78) ORDER BY id",
        "SELECT id FROM t FORCE INDEX (kv, kn) WHERE v BETWEEN 'v12' AND 'v13' AND n < 200 ORDER BY id",
        "SELECT id FROM t WHERE v = 'v13' AND n BETWEEN 10 AND 100 ORDER BY id",
    ]

    def play(engine: str) -> list[object]:
        s = env.session()
        virtual = "v VARCHAR(50) AS (CONCAT('v', n % 40)) VIRTUAL"
        s.run(
            f"CREATE TABLE t (id INT PRIMARY KEY, n INT, {virtual}, {FILLER}, KEY kv (v(3)), KEY kn (n)) ENGINE={engine}"
        )
        s.run("INSERT INTO t (id, n) SELECT seq, seq * 7 % 1000 FROM seq_1_to_2000")
        s.run("ANALYZE TABLE t")
        return [s.answer(query) for query in queries]

    env.same_as_innodb(play)
