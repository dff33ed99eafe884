"""AUTO_INCREMENT at its edges: values given by the user, negative, zero, beyond BIGINT; as InnoDB counts on."""

from __future__ import annotations

from corners.env import Env

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
