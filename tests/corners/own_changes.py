"""Scans of a table whose rows the same statement changes meanwhile: itself, by a cascade, or in a function that it calls."""

from __future__ import annotations

from corners.env import Env, Session, equal

OPTIONS = ["--skip-log-bin", "--log-bin-trust-function-creators"]
ISOLATION = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ")


def _sound(session: Session, *tables: str) -> None:
    for table in tables:
        equal(session.run(f"CHECK TABLE {table} EXTENDED")[-1][3], "OK", f"CHECK TABLE {table}")


def scenario_rows_that_move_while_others_wait(env: Env) -> None:
    """An ordered scan of a partitioned table reads a row ahead of each partition. A row that moves into a partition whose row still
    waits was taken for that one: the waiting row stayed, and the one that had moved was lost."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for level in ISOLATION:
            for column in ("v INT", "v INT, s LONGTEXT"):
                session.run("DROP TABLE IF EXISTS t, o")
                session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                session.run(
                    f"CREATE TABLE t (id INT, g INT, k INT, {column}, KEY (k)) ENGINE={engine} PARTITION BY HASH (g) PARTITIONS 2"
                )
                session.run("INSERT INTO t (id, g, k, v) SELECT seq, (seq + 1) DIV 2 % 2, 5, 0 FROM seq_1_to_40")
                session.run(f"CREATE TABLE o (x INT, ng INT) ENGINE={engine}")
                session.run("INSERT INTO o SELECT id, 1 - g FROM t")
                change = (
                    "UPDATE t FORCE INDEX (k) STRAIGHT_JOIN o ON o.x = t.id SET t.g = o.ng, t.v = t.v + 1 WHERE t.k = 5"
                )
                session.run(change)
                seen.append(session.run("SELECT id, g, k FROM t ORDER BY id, g"))
                _sound(session, "t")
        return seen

    env.same_as_innodb(play)


def scenario_portions_that_move_while_others_wait(env: Env) -> None:
    """As above, with the rest of a deleted or updated period, which is another row in another partition."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for change in (
            "DELETE FROM d FOR PORTION OF p FROM '2001-01-01' TO '2007-01-01' WHERE k > 0 AND k < 3 ORDER BY k LIMIT 10",
            "DELETE FROM d FOR PORTION OF p FROM '2001-01-01' TO '2007-01-01' WHERE k > 0 ORDER BY k LIMIT 10",
            "DELETE FROM d FOR PORTION OF p FROM '2001-01-01' TO '2007-01-01' WHERE k > 0",
            "UPDATE d FOR PORTION OF p FROM '2001-01-01' TO '2007-01-01' SET v = 1 WHERE k > 0 ORDER BY k LIMIT 10",
        ):
            session.run("DROP TABLE IF EXISTS d")
            session.run(
                f"CREATE TABLE d (k INT, v INT, s DATE, e DATE, PERIOD FOR p (s, e), KEY (k)) ENGINE={engine}"
                " PARTITION BY RANGE COLUMNS (s) (PARTITION p0 VALUES LESS THAN ('2005-01-01'), PARTITION p1 VALUES LESS THAN (MAXVALUE))"
            )
            session.run(
                "INSERT INTO d VALUES (1, 0, '2000-01-01', '2010-01-01'), (2, 0, '2006-01-01', '2012-01-01'),"
                " (3, 0, '2002-01-01', '2009-01-01'), (4, 0, '2006-06-01', '2008-01-01')"
            )
            session.run(change)
            seen.append(session.run("SELECT * FROM d ORDER BY k, s"))
            _sound(session, "d")
        return seen

    env.same_as_innodb(play)


def scenario_inserted_rows_and_hashed_keys(env: Env) -> None:
    """The check of a key that the server hashes comes after the write at READ COMMITTED: it finds the row just written, not the one
    read before, whatever was done in between."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for level in ISOLATION:
            session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            for partitions in ("", " PARTITION BY KEY (u) PARTITIONS 2"):
                session.run("DROP TABLE IF EXISTS h")
                if session.answer(f"CREATE TABLE h (a INT, u TEXT, w TEXT, UNIQUE (u)) ENGINE={engine}{partitions}"):
                    continue
                for sql in (
                    "INSERT INTO h VALUES (1, 'a', 'x'), (2, 'b', 'y'), (3, NULL, 'z'), (4, NULL, NULL)",
                    "INSERT INTO h VALUES (5, 'c', 'q'), (6, 'a', 'r')",
                    "INSERT IGNORE INTO h VALUES (7, 'a', 's'), (8, 'd', 't'), (9, 'd', 'u')",
                    "REPLACE INTO h VALUES (10, 'a', 'x'), (11, 'e', 'e'), (12, 'e', 'f')",
                    "INSERT INTO h VALUES (13, 'a', 'v'), (14, 'f', 'w'), (15, 'f', 'g') ON DUPLICATE KEY UPDATE a = a + 100, w = 'same'",
                    "UPDATE h SET u = CONCAT(u, u) WHERE a > 5",
                    "UPDATE IGNORE h SET u = 'b' WHERE a > 100",
                    "INSERT INTO h SELECT a + 20, CONCAT(u, 'n'), w FROM h",
                ):
                    seen += [session.answer(sql), session.run("SELECT * FROM h ORDER BY a, u")]
                    _sound(session, "h")
        return seen

    env.same_as_innodb(play)


def scenario_versions_of_rows_without_a_key(env: Env) -> None:
    """History is written beside the row: that one is changed, and changed again."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(
            f"CREATE TABLE v (a INT, b INT, u TEXT, UNIQUE (u), KEY (b)) ENGINE={engine} WITH SYSTEM VERSIONING"
        )
        session.run(f"CREATE TABLE o (x INT, y INT) ENGINE={engine}")
        seen: list[object] = []
        for level in ISOLATION:
            session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            for sql in (
                "DELETE FROM v",
                "DELETE FROM o",
                "INSERT INTO v VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 2, 'c')",
                "INSERT INTO o VALUES (1, 1), (1, 2), (2, 3)",
                "UPDATE v SET a = a + 10 WHERE b = 1",
                "UPDATE v FORCE INDEX (b) STRAIGHT_JOIN o ON o.x = v.b SET v.a = v.a + o.y, o.y = 5",
                "INSERT INTO v VALUES (7, 7, 'a') ON DUPLICATE KEY UPDATE a = a + 100",
                "REPLACE INTO v VALUES (8, 8, 'a'), (10, 10, 'c')",
                "DELETE FROM v WHERE b > 8",
            ):
                seen += [session.answer(sql), session.run("SELECT a, b, u FROM v ORDER BY a, b, u")]
                seen.append(session.run("SELECT a, b, u FROM v FOR SYSTEM_TIME ALL ORDER BY a, b, u"))
                _sound(session, "v")
        return seen

    env.same_as_innodb(play)


FAMILY = [
    "CREATE TABLE p (id INT PRIMARY KEY, x INT) {e}",
    "CREATE TABLE c (id INT PRIMARY KEY, pid INT, k INT, w INT, KEY (k), KEY (pid), FOREIGN KEY (pid) REFERENCES p (id)"
    " ON DELETE CASCADE ON UPDATE CASCADE) {e}",
    "INSERT INTO p VALUES (1, 0), (2, 0)",
    "INSERT INTO c VALUES (1, 1, 5, 7), (2, 1, 5, 8), (3, 1, 5, 9)",
]


def _family(session: Session, engine: str) -> None:
    session.run("DROP TABLE IF EXISTS c, p")
    for sql in FAMILY:
        session.run(sql.replace("{e}", f"ENGINE={engine}"))


def scenario_entries_whose_rows_a_cascade_takes(env: Env) -> None:
    """A consistent read copies some entries of an index at once. Those whose rows a cascade of the same statement had deleted were an
    error (1034)."""
    session = env.session()
    for level in ("READ UNCOMMITTED", "READ COMMITTED"):
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        for read, first in (
            ("FORCE INDEX (k) WHERE k = 5", 7),
            ("FORCE INDEX (k) WHERE k BETWEEN 5 AND 6", 7),
            ("FORCE INDEX (k) WHERE k = 5 ORDER BY k DESC, id DESC", 9),
            ("FORCE INDEX (pid) WHERE pid = 1", 7),
            ("FORCE INDEX (PRIMARY)", 7),
            ("FORCE INDEX (PRIMARY) ORDER BY id DESC", 9),
        ):
            _family(session, "FERRITE")
            what = f"{level}, {read}"
            session.run(f"REPLACE INTO p SELECT pid, w FROM c {read}")
            equal(session.run("SELECT * FROM p ORDER BY id"), [(1, first), (2, 0)], what)
            equal(session.run("SELECT * FROM c"), [], what)
            _sound(session, "p", "c")


def scenario_entries_whose_rows_a_function_takes(env: Env) -> None:
    """As above, with a function that deletes or changes the parent, in both directions, from the index alone and with the row. Where
    InnoDB reads row by row, it sees the same."""
    for make in (
        "CREATE FUNCTION gone(i INT) RETURNS INT BEGIN DELETE FROM p WHERE id = i; RETURN i; END",
        "CREATE FUNCTION moved(i INT) RETURNS INT BEGIN UPDATE p SET id = id + 10 WHERE id = i; RETURN i; END",
    ):

        def play(engine: str, make: str = make) -> list[object]:
            session = env.session()
            _family(session, engine)
            session.run(make)
            function = make.split()[2].split("(")[0]
            seen: list[object] = []
            for level in ("READ COMMITTED", "REPEATABLE READ"):
                session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                for columns in ("pid, w", "1, id", "pid, k"):
                    for tail in (
                        "(k) WHERE k BETWEEN 5 AND 6",
                        "(k) WHERE k BETWEEN 5 AND 6 ORDER BY k DESC, id DESC",
                        "(k) WHERE k BETWEEN 4 AND 6 ORDER BY k LIMIT 2",
                        "(PRIMARY) WHERE id > 0",
                        "(PRIMARY) WHERE id > 0 ORDER BY id DESC",
                    ):
                        _family(session, engine)
                        read = f"SELECT {function}({columns.replace(', ', '), ')} FROM c FORCE INDEX {tail}"
                        seen += [
                            read,
                            session.answer(read),
                            session.run("SELECT * FROM p"),
                            session.run("SELECT * FROM c"),
                        ]
                        _sound(session, "p", "c")
            return seen

        env.same_as_innodb(play)


def scenario_temporary_rows_that_a_function_changes(env: Env) -> None:
    """Rows of a temporary table that no longer match do not come out, and those that are gone are no error."""
    session = env.session()
    session.run("CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, k INT, w INT, KEY (k)) ENGINE=FERRITE")
    session.run("CREATE FUNCTION away(i INT) RETURNS INT BEGIN UPDATE t SET k = 9 WHERE id = i; RETURN i; END")
    session.run("CREATE FUNCTION gone(i INT) RETURNS INT BEGIN DELETE FROM t WHERE id = i; RETURN i; END")
    for level in ("READ COMMITTED", "REPEATABLE READ"):
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        for function in ("away", "gone"):
            for tail in ("(k) WHERE k = 5", "(k) WHERE k BETWEEN 4 AND 6", "(PRIMARY) WHERE k = 5"):
                for count in (4, 400):
                    for forward in (True, False):
                        order = (
                            "" if forward else " ORDER BY " + ("id DESC" if "PRIMARY" in tail else "k DESC, id DESC")
                        )
                        session.run("DELETE FROM t")
                        session.run(f"INSERT INTO t SELECT seq, 5, seq FROM seq_1_to_{count}")
                        read = f"SELECT {function}(id {'+' if forward else '-'} 1), w FROM t FORCE INDEX {tail}{order}"
                        seen = [row[1] for row in session.run(read)]
                        wanted = list(range(1, count + 1, 2)) if forward else list(range(count, 0, -2))
                        equal(seen, wanted, f"{level}, {count} rows, {read}")
