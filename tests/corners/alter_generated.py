"""Definitions that change in place under generated columns whose values are kept: in indexes, rows, partitions and CHECK."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect

# The table's columns, its rows, what changes.
CHAIN = "id INT PRIMARY KEY, a INT, v1 INT AS (a + 1) VIRTUAL, v2 INT AS (v1 * 2) VIRTUAL"
ROWS = "INSERT INTO t (id, a) VALUES (1, 10), (2, 20), (3, NULL)"
CHANGES: list[tuple[str, str, str]] = [
    (f"{CHAIN}, KEY (v2)", ROWS, "MODIFY v1 INT AS (a + 100) VIRTUAL"),
    (f"{CHAIN}, v3 INT AS (v2 - 1) VIRTUAL, UNIQUE (v3)", ROWS, "MODIFY v1 INT AS (a + 100) VIRTUAL"),
    (f"{CHAIN}, s INT AS (v2 + a) STORED", ROWS, "MODIFY v1 INT AS (a + 100) VIRTUAL"),
    (f"{CHAIN}, CHECK (v2 < 100)", ROWS, "MODIFY v1 INT AS (a + 100) VIRTUAL"),
    (
        "id INT PRIMARY KEY, a INT DEFAULT 1, v1 INT AS (DEFAULT(a) + id) VIRTUAL, v2 INT AS (v1 * 2) VIRTUAL, KEY (v2)",
        ROWS,
        "ALTER COLUMN a SET DEFAULT 50",
    ),
    (
        "id INT PRIMARY KEY, a INT UNSIGNED, v VARCHAR(20) AS (CONCAT(a)) VIRTUAL, KEY (v)",
        ROWS,
        "MODIFY a INT(10) UNSIGNED ZEROFILL",
    ),
    (
        "id INT PRIMARY KEY, a INT UNSIGNED, v VARCHAR(20) AS (CONCAT(a)) VIRTUAL, KEY (v)",
        ROWS,
        "MODIFY a INT(10) UNSIGNED ZEROFILL, ADD KEY k (a)",
    ),
    (
        "id INT PRIMARY KEY, a FLOAT, v VARCHAR(20) AS (CONCAT(a)) VIRTUAL, KEY (v)",
        "INSERT INTO t (id, a) VALUES (1, 1.5), (2, 20.25), (3, NULL)",
        "MODIFY a FLOAT(7,3)",
    ),
    (
        "id INT PRIMARY KEY, a VARCHAR(20), v1 VARCHAR(3) AS (a) VIRTUAL, v2 VARCHAR(30) AS (CONCAT(v1, 'x')) VIRTUAL, KEY (v2)",
        "INSERT IGNORE INTO t (id, a) VALUES (1, 'abc'), (2, 'ab'), (3, NULL)",
        "MODIFY v1 VARCHAR(10) AS (a) VIRTUAL",
    ),
    (
        "id INT PRIMARY KEY, a ENUM('x', 'y'), v VARCHAR(20) COLLATE latin1_bin AS (CONCAT(a, '-')) VIRTUAL, KEY (v)",
        "INSERT INTO t (id, a) VALUES (1, 'x'), (2, 'y'), (3, NULL)",
        "MODIFY a ENUM('X', 'y')",
    ),
]
# Those that change no kept value stay instant.
INSTANT: list[tuple[str, str]] = [
    (f"{CHAIN}, KEY (v2), w INT AS (a) VIRTUAL", "MODIFY w INT AS (a + 5) VIRTUAL"),
    (f"{CHAIN}, KEY (v2)", "ADD COLUMN w INT AS (v2 + 5) VIRTUAL"),
    (f"{CHAIN}, KEY (v2), w INT AS (a) VIRTUAL", "DROP COLUMN w"),
    (f"{CHAIN}, KEY (v2)", "RENAME COLUMN a TO renamed"),
    (f"{CHAIN}, KEY (v2)", "RENAME COLUMN v1 TO renamed, RENAME COLUMN a TO v1"),
    (f"{CHAIN}, KEY (v2)", "ALTER COLUMN a SET DEFAULT 5"),
    (f"{CHAIN}, KEY (v2), b INT UNSIGNED", "MODIFY b INT(10) UNSIGNED ZEROFILL"),
    (
        "id INT PRIMARY KEY, a VARCHAR(20), v VARCHAR(60) AS (CONCAT(a, 'x')) VIRTUAL, KEY (v), CHECK (a <> '')",
        "MODIFY a VARCHAR(50)",
    ),
    (
        "id INT PRIMARY KEY, a ENUM('x', 'y'), v VARCHAR(60) AS (CONCAT(a, 'x')) VIRTUAL, KEY (v)",
        "MODIFY a ENUM('x', 'y', 'z')",
    ),
]


def _use(session: Session) -> list[object]:
    """By each index; and rows can be changed and deleted."""
    seen: list[object] = [session.answer("SELECT * FROM t ORDER BY id")]
    keys = sorted({row[2] for row in session.run("SHOW INDEX FROM t")})
    seen.extend(session.answer(f"SELECT * FROM t FORCE INDEX (`{key}`) ORDER BY id") for key in keys)
    seen.append(session.error("UPDATE t SET a = a + 1 WHERE id = 2"))
    seen.append(session.error("DELETE FROM t WHERE id = 1"))
    seen.append(session.error("UPDATE t SET id = 9 WHERE id = 3"))
    return seen


def _sound(session: Session, what: str) -> None:
    equal(session.run("CHECK TABLE t EXTENDED")[-1][-1], "OK", what)


def scenario_copied(env: Env) -> None:
    """A value that is kept changes with what it is computed from, however far away: the table is copied."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run("ALTER DATABASE corners CHARACTER SET latin1")
        session.run("USE corners")
        seen: list[object] = []
        for columns, rows, change in CHANGES:
            session.run(f"CREATE OR REPLACE TABLE t ({columns}) ENGINE={engine}")
            session.run(rows)
            if engine == "FERRITE":
                equal(session.error(f"ALTER TABLE t {change}, ALGORITHM=INSTANT"), 1845, change)
                equal(session.error(f"ALTER TABLE t {change}, ALGORITHM=NOCOPY"), 1845, change)
            # InnoDB has the same fault.
            algorithm = ", ALGORITHM=COPY" if engine == "InnoDB" else ""
            seen.append((change, session.error(f"ALTER TABLE t {change}{algorithm}")))
            if engine == "FERRITE":
                _sound(session, change)
            seen.append(_use(session))
            _sound(session, f"{change}, used")
        return seen

    env.same_as_innodb(play)


def scenario_partitions_by_one(env: Env) -> None:
    """Likewise a value that says which partition a row is in."""
    session = env.session()
    session.run(
        f"CREATE TABLE t ({CHAIN.replace('PRIMARY KEY', '')}) ENGINE=FERRITE PARTITION BY HASH (v2) PARTITIONS 5"
    )
    session.run("INSERT INTO t (id, a) SELECT seq, seq FROM seq_1_to_50")
    change = "ALTER TABLE t MODIFY v1 INT AS (a + 101) VIRTUAL"
    equal(session.error(f"{change}, ALGORITHM=INSTANT"), 1845, "instant")
    session.run(change)
    equal(session.value("SELECT COUNT(*) FROM t WHERE v2 = 210"), 1, "a row by its partition")
    _sound(session, "the partitions")


def scenario_still_instant(env: Env) -> None:
    """What changes no value that is kept is instant."""
    session = env.session()
    for columns, change in INSTANT:
        session.run(f"CREATE OR REPLACE TABLE t ({columns}) ENGINE=FERRITE")
        session.run("INSERT INTO t (id, a) VALUES (1, 1), (2, 2), (3, NULL)")
        expect(session.error(f"ALTER TABLE t {change}, ALGORITHM=INSTANT") == 0, "not instant", change)
        _sound(session, change)


# A column gets a CHECK constraint that some rows do not pass.
UNCHECKED: list[tuple[str, str]] = [
    ("id INT PRIMARY KEY, a INT", "MODIFY a INT CHECK (a > 10)"),
    ("id INT PRIMARY KEY, a INT", "CHANGE a renamed INT CHECK (renamed > 10)"),
    ("id INT PRIMARY KEY, a INT CHECK (a > 0)", "MODIFY a INT CHECK (a > 10)"),
    ("id INT PRIMARY KEY, a INT, b VARCHAR(9)", "MODIFY b VARCHAR(20) CHECK (a > 10)"),
    ("id INT PRIMARY KEY, a INT", "MODIFY a INT CHECK (a > 10), ADD KEY (a)"),
    ("id INT PRIMARY KEY, a INT", "ADD v INT AS (a + 1) VIRTUAL CHECK (v > 10)"),
    ("id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL", "MODIFY v INT AS (a + 1) VIRTUAL CHECK (v > 10)"),
]
CHECKED: list[tuple[str, str]] = [
    ("id INT PRIMARY KEY, a INT CHECK (a < 10), b INT", "ALTER COLUMN b SET DEFAULT 5"),
    ("id INT PRIMARY KEY, a INT CHECK (a < 10), b INT", "ALTER COLUMN a SET DEFAULT 5"),
    ("id INT PRIMARY KEY, a INT CHECK (a < 10), b INT", "RENAME COLUMN b TO renamed"),
    ("id INT PRIMARY KEY, a INT CHECK (a < 10), b INT", "MODIFY a INT"),
    ("id INT PRIMARY KEY, a INT CHECK (a < 10), b INT", "MODIFY a INT DEFAULT 3 CHECK (a < 10)"),
    ("id INT PRIMARY KEY, a INT CHECK (a < 10), b INT", "COMMENT 'c'"),
]


def scenario_check_of_a_column(env: Env) -> None:
    """A column's new CHECK constraint was put on rows that do not pass it: nobody looked at them."""
    session = env.session()
    for columns, change in UNCHECKED:
        session.run(f"CREATE OR REPLACE TABLE t ({columns}) ENGINE=FERRITE")
        session.run("INSERT INTO t (id, a) VALUES (1, 20), (2, 1)")
        equal(session.error(f"ALTER TABLE t {change}, ALGORITHM=INSTANT"), 1845, change)
        equal(session.error(f"ALTER TABLE t {change}"), 4025, change)
        equal(session.run("SELECT id, a FROM t"), [(1, 20), (2, 1)], change)
        session.run("DELETE FROM t WHERE id = 2")
        session.run(f"ALTER TABLE t {change}")
        _sound(session, change)
    for columns, change in CHECKED:
        session.run(f"CREATE OR REPLACE TABLE t ({columns}) ENGINE=FERRITE")
        session.run("INSERT INTO t (id, a) VALUES (1, 1), (2, 2)")
        equal(session.error(f"ALTER TABLE t {change}, ALGORITHM=INSTANT"), 0, change)
        _sound(session, change)
