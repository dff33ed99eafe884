"""Generated columns: an index on a virtual one follows from the rows, whatever the server has in its records."""

from __future__ import annotations

from corners.env import Env, Session, equal, expect

ROWS = "INSERT INTO t (id, c, b) VALUES (1, 1, 'aq'), (2, 17, 'b'), (3, 5, 'az')"
TRIGGER = "CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW SET NEW.c = NEW.c + 1000"
PARTITIONED = "PARTITION BY HASH (id) PARTITIONS 2"
CHANGES = (
    "UPDATE t SET c = 14",
    "UPDATE t x, t y SET x.c = 7, y.b = 'yy' WHERE x.id = 1 AND y.id = 2",
    "UPDATE t x, u y SET x.c = 7 WHERE x.id = y.a",
    "REPLACE INTO t (id, c, b) VALUES (1, 5, 'rr'), (9, 9, 'n')",
    "INSERT INTO t (id, c, b) VALUES (1, 5, 'rr'), (9, 9, 'n') ON DUPLICATE KEY UPDATE c = 9",
    "UPDATE t SET id = id + 100 ORDER BY id DESC",
    "DELETE t FROM t JOIN u ON t.id = u.a",
    "INSERT INTO t (id, c, b) SELECT id + 20, c, b FROM t",
)


BEFORE_INSERT = "CREATE TRIGGER ti BEFORE INSERT ON t FOR EACH ROW SET NEW.c = NEW.c + 1000, NEW.b = TRIM(NEW.b)"
INSERTS = (
    "LOAD DATA LOCAL INFILE '{path}' INTO TABLE t (id, c, b)",
    "LOAD DATA LOCAL INFILE '{path}' INTO TABLE t (id, @c, b) SET c = @c",
    "LOAD DATA LOCAL INFILE '{path}' REPLACE INTO TABLE t (id, c, b)",
    "INSERT INTO t () VALUES ()",
    "INSERT INTO t VALUES ()",
    "INSERT INTO t (id, c, b) VALUES (7, 7, '  seven ')",
    "INSERT INTO t (id, c, b) SELECT 8, 8, ' eight '",
)
PORTIONS = (
    "DELETE FROM t FOR PORTION OF p FROM '2020-02-01' TO '2020-03-01'",
    "UPDATE t FOR PORTION OF p FROM '2020-02-01' TO '2020-03-01' SET c = c + 1",
)
PERIOD = ", s DATE NOT NULL DEFAULT '2020-01-01', e DATE NOT NULL DEFAULT '2020-12-31', PERIOD FOR p (s, e)"


def _sound(session: Session, what: str) -> None:
    """The index and the rows say the same, and the table can be emptied."""
    equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", what)
    by_index = session.run("SELECT id, g, h FROM t FORCE INDEX (k) WHERE g >= '' ORDER BY id")
    equal(by_index, session.run("SELECT id, g, h FROM t IGNORE INDEX (k, kh) ORDER BY id"), what)
    session.run("UPDATE t SET c = 8, b = CONCAT(b, '!')")
    session.run("DELETE FROM t")
    equal(session.run("SELECT COUNT(*) FROM t FORCE INDEX (k) WHERE g >= ''")[0][0], 0, what)
    equal(session.run("CHECK TABLE t EXTENDED")[-1][3], "OK", f"{what}, then DELETE")


def scenario_index_follows_the_row(env: Env) -> None:
    """The server hands values of virtual columns that do not belong to the row (a trigger, versions, several tables):
    the index had them, and UPDATE and DELETE of the row failed with error 1034 from then on."""
    session = env.session()
    session.run("CREATE TABLE u (a INT) ENGINE=FERRITE")
    session.run("INSERT INTO u VALUES (1), (2)")
    for kind in ("TEXT", "VARCHAR(100)"):
        for options in ("", "WITH SYSTEM VERSIONING", PARTITIONED):
            for trigger in (False, True):
                for change in CHANGES:
                    session.run("DROP TABLE IF EXISTS t")
                    session.run(
                        f"CREATE TABLE t (id INT PRIMARY KEY, c INT, b TEXT, g {kind} AS (CONCAT(c, '-', b)) VIRTUAL,"
                        f" h {kind} AS (CONCAT(g, '+')) VIRTUAL, KEY k (g(9)), KEY kh (h(9), c)) ENGINE=FERRITE {options}"
                    )
                    session.run("SET timestamp = 1000")
                    session.run(ROWS)
                    if trigger:
                        session.run(TRIGGER)
                    session.run("SET timestamp = 1001")
                    session.run(change)
                    _sound(session, f"{kind} {options} {'trigger' if trigger else ''}: {change}")


def scenario_a_trigger_before_insert(env: Env) -> None:
    """LOAD DATA without SET, INSERT ... VALUES () and FOR PORTION OF compute virtual columns before the trigger changes
    what they depend on, and not again: the index had the values of before, also in a key that the server hashes."""
    path = env.datadir.parent / "generated.txt"
    path.write_text("1\t1\t  one \n2\t17\t two\n", encoding="utf-8")
    session = env.session(local_infile=True)
    columns = "id INT DEFAULT 9, c INT DEFAULT 5, b TEXT DEFAULT ' x '"
    generated = "g VARCHAR(100) AS (CONCAT(c, '-', b)) VIRTUAL, h TEXT AS (CONCAT(g, '+')) VIRTUAL"
    for options in ("", "WITH SYSTEM VERSIONING", PARTITIONED):
        # The server does not take a key that it hashes in a table with partitions.
        hashed = "" if options == PARTITIONED else ", UNIQUE KEY ku (b)"
        for insert in INSERTS:
            session.run("DROP TABLE IF EXISTS t")
            session.run(
                f"CREATE TABLE t ({columns}, {generated}, PRIMARY KEY (id), KEY k (g(9)), KEY kh (h(9), c){hashed})"
                f" ENGINE=FERRITE {options}"
            )
            session.run(BEFORE_INSERT)
            session.run(insert.format(path=path))
            expect(session.value("SELECT COUNT(*) FROM t FORCE INDEX (k) WHERE g LIKE '10%'") > 0, insert, "no row")
            if hashed:
                equal(session.run("SELECT b FROM t FORCE INDEX (ku) WHERE b = 'nothing'"), [], insert)
            _sound(session, f"{options}: {insert}")
    for change in PORTIONS:
        session.run("DROP TABLE IF EXISTS t")
        session.run(f"CREATE TABLE t ({columns}, {generated}{PERIOD}, KEY k (g(9)), KEY kh (h(9), c)) ENGINE=FERRITE")
        session.run("INSERT INTO t (id, c, b) VALUES (1, 1, 'aq'), (2, 17, 'b')")
        session.run(BEFORE_INSERT)
        session.run(change)
        _sound(session, change)


def scenario_warnings_once(env: Env) -> None:
    """Computing a virtual column for its index once more warns nobody twice."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run("SET sql_mode = ''")
        session.run(
            f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, c INT, g VARCHAR(3) AS (CONCAT(c, '-x')) VIRTUAL, KEY k (g))"
            f" ENGINE={engine}"
        )
        seen: list[object] = []
        for sql in (
            "INSERT INTO t (id, c) VALUES (1, 12345), (2, 1)",
            "REPLACE INTO t (id, c) VALUES (1, 54321)",
            "UPDATE t SET c = 98765 + id",
            "DELETE FROM t",
        ):
            session.run(sql)
            seen.append((sql, session.warnings()))
        return seen

    env.same_as_innodb(play)


def scenario_the_entry_alone_is_read(env: Env) -> None:
    """A locking read of an indexed generated column looked at the row for the columns that it is computed of, and waited
    for who had locked the row."""

    def play(engine: str) -> list[object]:
        holder, reader = env.session(), env.session()
        seen: list[object] = []
        for kind in ("VIRTUAL", "STORED"):
            holder.run(
                f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, k INT, v INT, g INT AS (k * 2) {kind}, KEY g (g))"
                f" ENGINE={engine}"
            )
            holder.run("INSERT INTO t (id, k) VALUES (1, 10), (2, 20), (3, 30), (4, NULL), (5, 40)")
            holder.run("BEGIN")
            holder.run("SELECT id, v FROM t FORCE INDEX (PRIMARY) WHERE id <= 4 FOR UPDATE")
            reader.run("SET innodb_lock_wait_timeout = 1, ferrite_lock_wait_timeout = 1")
            for sql in (
                "SELECT MIN(g) FROM t FORCE INDEX (g) WHERE g BETWEEN 32 AND 50 LOCK IN SHARE MODE",
                "SELECT MAX(g) FROM t FORCE INDEX (g) LOCK IN SHARE MODE",
                "SELECT g FROM t FORCE INDEX (g) WHERE g IS NULL ORDER BY g DESC LIMIT 4 LOCK IN SHARE MODE",
                "SELECT id, g FROM t FORCE INDEX (g) WHERE g > 30 ORDER BY g LOCK IN SHARE MODE",
                "SELECT k FROM t FORCE INDEX (g) WHERE g = 40 LOCK IN SHARE MODE",
            ):
                seen.append((kind, sql, reader.answer(sql)))
            holder.run("ROLLBACK")
        return seen

    env.same_as_innodb(play)
