"""Triggers and functions that change a parent amid a change of its child, and that read and write what a cascade follows into."""

from __future__ import annotations

from corners.env import DATABASE, Env, Session, equal, expect, options
from corners.replicas import catch_up, follow, replicating_server, session_on


def _checked(session: Session, engine: str, *tables: str) -> list[object]:
    """What CHECK TABLE says of them; of InnoDB nothing is asked."""
    if engine == "InnoDB":
        return ["OK"] * len(tables)
    return [session.run(f"CHECK TABLE {table} EXTENDED")[-1][3] for table in tables]


def _made_anew(session: Session, rows: dict[str, str]) -> None:
    session.run("SET foreign_key_checks=0")
    for table, values in rows.items():
        session.run(f"TRUNCATE {table}")
        session.run(f"INSERT INTO {table} VALUES {values}")
    session.run("SET foreign_key_checks=1")


def _play(
    session: Session, engine: str, tables: list[str], rows: dict[str, str], changes: list[str], shown: list[str]
) -> list[object]:
    """Each change of the same rows by itself: its answer, what is there then, and what CHECK TABLE says of it."""
    for sql in tables:
        session.run(sql.replace("{e}", engine))
    answers: list[object] = []
    for sql in changes:
        _made_anew(session, rows)
        session.run("SET @n=NULL, @seen=NULL")
        answers.append([sql, session.answer(sql), session.run("SELECT @n")])
        answers.append([sql, *(session.answer(query) for query in shown)])
        answers.append([sql, *_checked(session, engine, *rows)])
    return answers


PARENTS = "(1), (2), (3), (4)"
CHILDREN = "(1, 1, 0), (2, 1, 0), (3, 2, 0), (4, NULL, 0), (5, 4, 7)"
SHOWN = [
    "SELECT * FROM p ORDER BY id",
    "SELECT id, pid, v FROM c ORDER BY id",
    "SELECT pid, id FROM c FORCE INDEX (pid) WHERE pid > 0 ORDER BY pid, id",
]
CHANGES = [
    "UPDATE c SET v=1 WHERE id=1",
    "UPDATE c SET v=v+1",
    "UPDATE c SET v=v+1 ORDER BY v DESC, id",
    "UPDATE c SET v=v+1 WHERE pid=1",
    "UPDATE c SET v=v+1 WHERE pid=2 OR v=7",
    "UPDATE c SET pid=pid, v=v+1",
    "UPDATE c SET pid=1, v=8 WHERE id=1",
    "UPDATE c SET pid=3",
    "UPDATE c SET pid=NULL, v=2 WHERE id < 3",
    "UPDATE c SET id=id+50, v=3",
    "UPDATE c SET v=f(pid) WHERE id=1",
    "UPDATE c SET v=f(pid)",
    "UPDATE c SET v=1 WHERE id=3 AND f(pid) > 0",
    "UPDATE c SET v=1 WHERE id=3 AND gone(pid) > 0",
    "UPDATE c SET v=failed(pid) WHERE id < 4",
    "UPDATE c SET v=back(pid) WHERE id < 4",
    "UPDATE IGNORE c SET v=f(pid), pid=9",
    "UPDATE c JOIN (SELECT 1 AS n) AS x SET c.v=f(pid)",
    "UPDATE c, o SET c.v=f(pid)+1, o.v=1 WHERE o.id=c.id",
    "INSERT INTO c VALUES (1, 3, 5) ON DUPLICATE KEY UPDATE v=7",
    "INSERT INTO c VALUES (1, 3, 5), (3, 3, 5), (9, 3, 5) ON DUPLICATE KEY UPDATE v=f(c.pid)",
    "REPLACE INTO c VALUES (1, 3, 8)",
    "REPLACE INTO c VALUES (1, 3, 8), (3, 3, 9), (9, 3, 1)",
    "DELETE FROM c WHERE id=1",
    "DELETE FROM c",
    "DELETE FROM c WHERE pid=1 ORDER BY id DESC",
    "DELETE FROM c WHERE id=1 AND f(pid) > 0",
    "DELETE FROM c WHERE id=1 AND gone(pid) > 0",
    "DELETE c FROM c JOIN (SELECT 1 AS n) AS x WHERE c.id < 4",
]
ROUTINES = [
    "CREATE FUNCTION f(n INT) RETURNS INT BEGIN UPDATE p SET id=id+100 WHERE id=n; RETURN IFNULL(n, 0)+1; END",
    "CREATE FUNCTION gone(n INT) RETURNS INT BEGIN DELETE FROM p WHERE id=n; RETURN IFNULL(n, 0)+1; END",
    # A statement that fails and is undone, and one that stays.
    "CREATE FUNCTION failed(n INT) RETURNS INT BEGIN DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET @n=1;"
    " UPDATE p SET id=IF(id=n, id+100, 4) WHERE id IN (n, 3) ORDER BY id; UPDATE p SET id=id+200 WHERE id=2; RETURN 5; END",
    # Undone as a whole.
    "CREATE FUNCTION back(n INT) RETURNS INT BEGIN SAVEPOINT s; UPDATE p SET id=id+100 WHERE id=n; ROLLBACK TO s; RETURN 5; END",
]
BODIES = {
    "nothing": "",
    "an update": "BEFORE UPDATE ON c FOR EACH ROW UPDATE p SET id=id+100 WHERE id=OLD.pid",
    "an update of another": "BEFORE UPDATE ON c FOR EACH ROW UPDATE p SET id=id+100 WHERE id=3",
    "an update of the new one": "BEFORE UPDATE ON c FOR EACH ROW UPDATE p SET id=id+100 WHERE id=NEW.pid",
    "a deletion": "BEFORE UPDATE ON c FOR EACH ROW DELETE FROM p WHERE id=OLD.pid",
    "an update before a deletion": "BEFORE DELETE ON c FOR EACH ROW UPDATE p SET id=id+100 WHERE id=OLD.pid",
    "a deletion before a deletion": "BEFORE DELETE ON c FOR EACH ROW DELETE FROM p WHERE id=OLD.pid",
    "a deletion after a deletion": "AFTER DELETE ON c FOR EACH ROW DELETE FROM p WHERE id=OLD.v",
}


def _family(keys: str, actions: str, body: str) -> list[str]:
    return [
        "CREATE TABLE p (id INT PRIMARY KEY) ENGINE={e}",
        f"CREATE TABLE c (id INT PRIMARY KEY, pid INT, v INT, {keys},"
        f" CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (id) {actions}) ENGINE={{e}}",
        "CREATE TABLE o (id INT PRIMARY KEY, v INT) ENGINE={e}",
        *ROUTINES,
        *([f"CREATE TRIGGER t {body}"] if body else []),
    ]


ROWS = {"p": PARENTS, "c": CHILDREN, "o": "(1, 0), (2, 0), (3, 0)"}


def _onto_the_row(env: Env, keys: str, actions: str) -> None:
    for body in BODIES.values():
        tables = _family(keys, actions, body)
        env.same_as_innodb(lambda engine, t=tables: _play(env.session(), engine, t, ROWS, CHANGES, SHOWN))


def scenario_onto_the_row_that_is_changed(env: Env) -> None:
    """A trigger or a function moves the parent of the row that is being changed: what the statement does not change is as the
    cascade has left it. The row was written as it had been read, so its parent was gone and its index entry another one."""
    _onto_the_row(env, "KEY pid (pid)", "ON UPDATE CASCADE ON DELETE SET NULL")


def scenario_onto_the_row_with_a_wider_key(env: Env) -> None:
    """The same where an index has the constraint's column and one that the statement changes."""
    _onto_the_row(env, "KEY pid (pid, v), KEY (v, pid)", "ON UPDATE CASCADE ON DELETE SET NULL")


GOES = "ON UPDATE CASCADE ON DELETE CASCADE"
KEY_OF_CHILD = (
    "CREATE TABLE c (id INT PRIMARY KEY, v INT, KEY (v),"
    f" CONSTRAINT f FOREIGN KEY (id) REFERENCES p (id) {GOES}) ENGINE={{e}}"
)


def scenario_the_row_goes_meanwhile(env: Env) -> None:
    """The trigger's cascade deletes the row that is being deleted, or gives it another primary key: there is nothing to do."""
    # (Rows that move ahead of a scan have no end, with either engine.)
    of_key = [
        "SELECT * FROM p ORDER BY id",
        "SELECT id, v FROM c ORDER BY id",
        "SELECT id FROM c WHERE v=0 ORDER BY id",
    ]
    changes = [sql for sql in CHANGES if sql.startswith(("DELETE", "REPLACE"))]
    changes_of_key = [
        "DELETE FROM c WHERE id=1",
        "DELETE FROM c WHERE id < 3",
        "DELETE FROM c WHERE id < 3 AND f(id) > 0",
        "REPLACE INTO c VALUES (1, 5), (2, 5)",
    ]
    for body in BODIES.values():
        family = _family("KEY pid (pid)", GOES, body)
        env.same_as_innodb(lambda engine, t=family: _play(env.session(), engine, t, ROWS, changes, SHOWN))
        tables = [
            family[0],
            KEY_OF_CHILD,
            *ROUTINES,
            *([f"CREATE TRIGGER t {body.replace('pid', 'id')}"] if body else []),
        ]
        rows = {"p": PARENTS, "c": "(1, 0), (2, 0)"}
        env.same_as_innodb(lambda engine, t=tables, r=rows: _play(env.session(), engine, t, r, changes_of_key, of_key))


def scenario_the_row_goes_before_its_update(env: Env) -> None:
    """The same of a row that is to be updated: error 1032, and nothing has happened. (InnoDB gives it back to some of its indexes.)"""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    for tables, rows in (
        (_family("KEY pid (pid)", GOES, ""), {"p": PARENTS, "c": CHILDREN}),
        ([_family("KEY (pid)", "", "")[0], KEY_OF_CHILD, *ROUTINES], {"p": PARENTS, "c": "(1, 0), (2, 0)"}),
    ):
        refers = "id" if len(rows["c"]) < 20 else "pid"
        for name in ("c", "p", "o"):
            session.run(f"DROP TABLE IF EXISTS {name}")
        for name in ("f", "gone", "failed", "back"):
            session.run(f"DROP FUNCTION IF EXISTS {name}")
        for sql in tables:
            session.run(sql.replace("{e}", "FERRITE"))
        for function in ("f", "gone"):
            if (refers, function) == ("pid", "f"):
                continue
            for sql in (
                f"UPDATE c SET v={function}({refers}) WHERE id=1",
                f"UPDATE c SET v={function}({refers})",
                f"UPDATE c SET {refers}=IF({function}({refers}) > 0, 3, 4), v=2 WHERE id=1",
                f"UPDATE c SET id=IF({function}({refers}) > 0, 3, 4) WHERE id=1",
                f"INSERT INTO c (id) VALUES (1) ON DUPLICATE KEY UPDATE v={function}(c.{refers})",
            ):
                _made_anew(session, rows)
                before = [session.run(f"SELECT * FROM {table}") for table in rows]
                equal(session.error(sql), 1032, sql)
                equal([session.run(f"SELECT * FROM {table}") for table in rows], before, sql)
                equal(_checked(session, "FERRITE", *rows), ["OK", "OK"], sql)


def scenario_onto_long_values(env: Env) -> None:
    """The column of the constraint lies out of line, and so do others: a value that the cascade has replaced is not named again."""
    columns = ", ".join(f"w{n} VARCHAR(2900)" for n in range(4))
    words = ", ".join(
        f"REPEAT('{letter}', {length})" for letter, length in zip("abcd", (2900, 2000, 60, 2900), strict=True)
    )
    tables = [
        "CREATE TABLE p (id VARCHAR(3000) CHARACTER SET latin1 PRIMARY KEY) ENGINE={e}",
        f"CREATE TABLE c (id INT PRIMARY KEY, pid VARCHAR(3000) CHARACTER SET latin1, v INT, b TEXT, {columns}, KEY pid (pid),"
        " CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (id) ON UPDATE CASCADE ON DELETE SET NULL)"
        " CHARACTER SET latin1 ENGINE={e}",
        "CREATE FUNCTION f(n VARCHAR(3000) CHARACTER SET latin1) RETURNS INT BEGIN"
        " UPDATE p SET id=CONCAT('x', SUBSTR(id, 2)) WHERE id=n; RETURN 5; END",
        "CREATE TRIGGER d BEFORE DELETE ON c FOR EACH ROW UPDATE p SET id=CONCAT('y', SUBSTR(id, 2)) WHERE id=OLD.pid",
    ]
    row = f"REPEAT('p', 3000), 0, REPEAT('b', 9000), {words}"
    rows = {"p": "(REPEAT('p', 3000)), ('q')", "c": f"(1, {row}), (2, {row}), (3, 'q', 0, 'b', {words})"}
    changes = [
        "UPDATE c SET v=f(pid) WHERE id=1",
        "UPDATE c SET v=f(pid)",
        "UPDATE c SET v=f(pid), b=REPEAT('n', 20000), w1='short'",
        "UPDATE c SET v=f(pid), pid='q'",
        "UPDATE c SET v=f(pid), b=CONCAT(pid, b, w0) WHERE id=2",
        "INSERT INTO c (id) VALUES (1) ON DUPLICATE KEY UPDATE v=f(c.pid), w0=CONCAT('z', c.w1)",
        "REPLACE INTO c (id, pid, b) VALUES (1, 'q', REPEAT('r', 9000))",
        "DELETE FROM c WHERE id=1",
        "DELETE FROM c",
    ]
    shown = [
        "SELECT LEFT(id, 2), LENGTH(id) FROM p ORDER BY id",
        f"SELECT id, v, MD5(pid), MD5(b), {', '.join(f'MD5(w{n})' for n in range(4))} FROM c ORDER BY id",
        "SELECT LEFT(pid, 2), id FROM c FORCE INDEX (pid) WHERE pid > '' ORDER BY pid, id",
    ]
    env.same_as_innodb(lambda engine: _play(env.session(), engine, tables, rows, changes, shown))
    # What was replaced is freed, what is named is not.
    session = env.session()
    session.run("BEGIN")
    session.run("UPDATE c SET v=f(pid)")
    session.run("ROLLBACK")
    equal(_checked(session, "FERRITE", "p", "c"), ["OK", "OK"], "after a rollback")


def scenario_onto_the_row_through_itself(env: Env) -> None:
    """A table that refers to itself and to another: what goes with the other sets the row's own reference NULL."""
    tables = [
        "CREATE TABLE q (id INT PRIMARY KEY) ENGINE={e}",
        "CREATE TABLE p (id INT PRIMARY KEY, up INT, q INT, v INT, KEY up (up, v),"
        " CONSTRAINT f FOREIGN KEY (up) REFERENCES p (id) ON DELETE SET NULL,"
        " CONSTRAINT g FOREIGN KEY (q) REFERENCES q (id) ON DELETE CASCADE ON UPDATE CASCADE) ENGINE={e}",
        "CREATE FUNCTION gone(n INT) RETURNS INT BEGIN DELETE FROM q WHERE id=n; RETURN 5; END",
        "CREATE FUNCTION moved(n INT) RETURNS INT BEGIN UPDATE q SET id=id+100 WHERE id=n; RETURN 5; END",
    ]
    rows = {"q": "(1), (2), (3)", "p": "(1, NULL, 1, 0), (2, 1, 2, 0), (3, 2, 3, 0), (4, 4, 3, 0)"}
    changes = [
        "UPDATE p SET v=gone(1) WHERE id=2",
        "UPDATE p SET v=gone(up)",
        "UPDATE p SET v=gone(3) WHERE id=2",
        "UPDATE p SET v=moved(q)",
        "DELETE FROM p WHERE id=2 AND gone(1)",
        "DELETE FROM p WHERE id=4 AND moved(3)",
        "INSERT INTO p (id) VALUES (3) ON DUPLICATE KEY UPDATE v=gone(2)",
        "REPLACE INTO p VALUES (3, 1, gone(2), 9)",
    ]
    shown = [
        "SELECT * FROM q ORDER BY id",
        "SELECT * FROM p ORDER BY id",
        "SELECT up, v, id FROM p FORCE INDEX (up) WHERE up > 0 ORDER BY up, v, id",
    ]
    env.same_as_innodb(lambda engine: _play(env.session(), engine, tables, rows, changes, shown))


def scenario_onto_generated_columns(env: Env) -> None:
    """Indexed virtual columns of the constraint's column and of one that the statement changes follow both."""
    tables = [
        "CREATE TABLE p (id INT PRIMARY KEY) ENGINE={e}",
        "CREATE TABLE c (id INT PRIMARY KEY, pid INT, v INT, g INT AS (IFNULL(pid, 0) + v) VIRTUAL,"
        " t VARCHAR(90) AS (CONCAT(pid, '/', v)) VIRTUAL, KEY pid (pid), KEY g (g), KEY t (t),"
        " CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (id) ON UPDATE CASCADE ON DELETE SET NULL) ENGINE={e}",
        *ROUTINES,
        "CREATE TRIGGER d BEFORE DELETE ON c FOR EACH ROW UPDATE p SET id=id+100 WHERE id=OLD.pid",
    ]
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    for sql in tables:
        session.run(sql.replace("{e}", "FERRITE"))
    changes = {
        "UPDATE c SET v=f(pid) WHERE id=1": "(1, 101, 2), (2, 101, 0), (3, 2, 0), (4, NULL, 0), (5, 4, 7)",
        "UPDATE c SET v=gone(pid) WHERE id=1": "(1, NULL, 2), (2, NULL, 0), (3, 2, 0), (4, NULL, 0), (5, 4, 7)",
        "INSERT INTO c (id) VALUES (1) ON DUPLICATE KEY UPDATE v=f(c.pid)": "(1, 101, 2), (2, 101, 0), (3, 2, 0), (4, NULL, 0), (5, 4, 7)",
        "DELETE FROM c WHERE id=1": "(2, 101, 0), (3, 2, 0), (4, NULL, 0), (5, 4, 7)",
    }
    for sql, left in changes.items():
        session.run("SET foreign_key_checks=0")
        session.run("TRUNCATE p")
        session.run("TRUNCATE c")
        session.run(f"INSERT INTO p VALUES {PARENTS}")
        session.run(f"INSERT INTO c (id, pid, v) VALUES {CHILDREN}")
        session.run("SET foreign_key_checks=1")
        session.run(sql)
        equal(session.run(f"SELECT id, pid, v FROM c EXCEPT (VALUES {left})"), [], sql)
        equal(session.value("SELECT COUNT(*) FROM c"), left.count("("), sql)
        for column, expression in (("g", "IFNULL(pid, 0) + v"), ("t", "CONCAT(pid, '/', v)")):
            through = (
                f"SELECT {column}, id FROM c FORCE INDEX ({column}) WHERE {column} > '' OR {column} > -1 ORDER BY id"
            )
            wanted = f"SELECT {expression}, id FROM c IGNORE INDEX (g, t) WHERE {expression} IS NOT NULL ORDER BY id"
            equal(session.run(through), session.run(wanted), f"{sql}: {column}")
        equal(_checked(session, "FERRITE", "p", "c"), ["OK", "OK"], sql)


def scenario_onto_versions(env: Env) -> None:
    """WITH SYSTEM VERSIONING: one version of the row at a time, the last as both have left it."""
    session = env.session()
    for routine in ROUTINES:
        session.run(routine)
    kept, goes = "ON UPDATE CASCADE ON DELETE SET NULL", GOES
    for number, (actions, sql, left, versions) in enumerate(
        (
            (kept, "UPDATE c SET v=f(pid) WHERE id=1", [(1, 101, 2), (2, 101, 0)], 4),
            (kept, "UPDATE c SET v=gone(pid) WHERE id=1", [(1, None, 2), (2, None, 0)], 4),
            (kept, "INSERT INTO c VALUES (1, 3, 5) ON DUPLICATE KEY UPDATE v=f(c.pid)", [(1, 101, 2), (2, 101, 0)], 4),
            (kept, "DELETE FROM c WHERE id=1", [(2, 101, 0)], 3),
            (kept, "DELETE FROM c WHERE id=1 AND gone(pid) > 0", [(2, None, 0)], 3),
            (goes, "DELETE FROM c WHERE id=1 AND gone(pid) > 0", [], 2),
            (goes, "DELETE FROM c WHERE gone(pid) > 0", [], 2),
        )
    ):
        session.run("DROP TABLE IF EXISTS c, p")
        session.run("CREATE TABLE p (id INT PRIMARY KEY) ENGINE=FERRITE")
        session.run(
            "CREATE TABLE c (id INT PRIMARY KEY, pid INT, v INT, KEY pid (pid, v), CONSTRAINT f FOREIGN KEY (pid)"
            f" REFERENCES p (id) {actions}) ENGINE=FERRITE WITH SYSTEM VERSIONING"
        )
        session.run("CREATE TRIGGER d BEFORE DELETE ON c FOR EACH ROW UPDATE p SET id=id+100 WHERE id=OLD.pid")
        session.run(f"SET timestamp={1_700_000_000 + 100 * number}")
        session.run("INSERT INTO p VALUES (1), (2)")
        session.run("INSERT INTO c VALUES (1, 1, 0), (2, 1, 0)")
        session.run(f"SET timestamp={1_700_000_050 + 100 * number}")
        session.run(sql)
        equal(session.run("SELECT id, pid, v FROM c ORDER BY id"), left, sql)
        everything = "SELECT id, pid, v, row_start < row_end FROM c FOR SYSTEM_TIME ALL ORDER BY id, row_end"
        all_rows = session.run(everything)
        equal(len(all_rows), versions, f"versions after {sql}: {all_rows}")
        equal({row[3] for row in all_rows}, {1}, f"ends after their starts: {sql}")
        equal([row[:3] for row in all_rows if row[:3] == (1, 1, 0)], [(1, 1, 0)], f"what it was before {sql}")
        equal(_checked(session, "FERRITE", "p", "c"), ["OK", "OK"], sql)


def scenario_seen_by_what_comes_after(env: Env) -> None:
    """AFTER triggers see the row that is written, not the one that was read."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    for sql in _family("KEY pid (pid)", "ON UPDATE CASCADE ON DELETE SET NULL", ""):
        session.run(sql.replace("{e}", "FERRITE"))
    session.run(f"INSERT INTO p VALUES {PARENTS}")
    session.run(f"INSERT INTO c VALUES {CHILDREN}")
    session.run(
        "CREATE TRIGGER u AFTER UPDATE ON c FOR EACH ROW SET @seen=CONCAT_WS(' ', OLD.pid, OLD.v, NEW.pid, NEW.v)"
    )
    session.run("UPDATE c SET v=f(pid) WHERE id=1")
    equal(session.value("SELECT @seen"), "101 0 101 2", "what the trigger sees")


def scenario_virtual_columns_of_what_it_was(env: Env) -> None:
    """AFTER triggers see the virtual columns that belong to the row as it was left by the cascade, not as it had been read; and of
    the row that is written, and of other rows, their own."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    for index in ("", ", KEY (g), KEY (t(9), v)"):
        session.run("DROP TABLE IF EXISTS c, p")
        session.run("CREATE TABLE p (id INT PRIMARY KEY)")
        session.run(
            "CREATE TABLE c (id INT PRIMARY KEY, pid INT, v INT, b TEXT, g INT AS (pid + 1) VIRTUAL,"
            f" t TEXT AS (CONCAT(b, '/', v, '/', g)) VIRTUAL, h INT AS (LENGTH(t)) VIRTUAL{index},"
            " CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (id) ON UPDATE CASCADE ON DELETE SET NULL)"
        )
        for routine in ROUTINES:
            session.run(routine.replace("CREATE", "CREATE OR REPLACE"))
        for what in ("UPDATE", "DELETE"):
            values = [f"OLD.{c}" for c in "pgtvh"] + [f"NEW.{c}" for c in "pgtvh" if what == "UPDATE"]
            seen = ", ".join(f"IFNULL({value}, '-')" for value in values).replace(".p,", ".pid,")
            session.run(
                f"CREATE TRIGGER a{what} AFTER {what} ON c FOR EACH ROW SET @seen=CONCAT_WS(' ', @seen, '{what[0]}', {seen})"
            )
        moved, gone = "UPDATE p SET id=id+100 WHERE id=OLD.pid", "DELETE FROM p WHERE id=OLD.pid"
        for trigger, sql, wanted in (
            ("", "UPDATE c SET v=f(pid) WHERE id=1", "U 101 102 x/0/102 0 7 101 102 x/2/102 2 7"),
            ("", "UPDATE c SET v=f(pid), b='yy' WHERE id=1", "U 101 102 x/0/102 0 7 101 102 yy/2/102 2 8"),
            ("", "UPDATE c SET v=gone(pid) WHERE id=1", "U - - - 0 - - - - 2 -"),
            (
                "",
                "UPDATE c SET v=f(pid)",
                "U 101 102 x/0/102 0 7 101 102 x/2/102 2 7 U 201 202 y/0/202 0 7 201 202 y/102/202 102 9"
                " U 102 103 z/0/103 0 7 102 103 z/3/103 3 7",
            ),
            (
                "",
                "INSERT INTO c (id) VALUES (1) ON DUPLICATE KEY UPDATE v=f(c.pid)",
                "U 101 102 x/0/102 0 7 101 102 x/2/102 2 7",
            ),
            (moved, "DELETE FROM c WHERE id=1", "D 101 102 x/0/102 0 7"),
            (gone, "DELETE FROM c WHERE id=1", "D - - - 0 -"),
            (moved, "DELETE FROM c WHERE id < 3", "D 101 102 x/0/102 0 7 D 201 202 y/0/202 0 7"),
            (moved, "REPLACE INTO c (id, pid, v, b) VALUES (1, 3, 8, 'w')", "D 101 102 x/0/102 0 7"),
        ):
            session.run("DROP TRIGGER IF EXISTS d")
            if trigger:
                session.run(f"CREATE TRIGGER d BEFORE DELETE ON c FOR EACH ROW {trigger}")
            for table, values in (("p", "(1), (2), (3)"), ("c", "(1, 1, 0, 'x'), (2, 1, 0, 'y'), (3, 2, 0, 'z')")):
                session.run("SET foreign_key_checks=0")
                session.run(f"TRUNCATE {table}")
                session.run(f"INSERT INTO {table} ({'id' if table == 'p' else 'id, pid, v, b'}) VALUES {values}")
                session.run("SET foreign_key_checks=1")
            session.run("SET @seen=NULL")
            session.run(sql)
            equal(
                str(session.value("SELECT CONVERT(@seen USING utf8mb4)")),
                wanted,
                f"what the trigger sees of {sql}{index}",
            )
            equal(_checked(session, "FERRITE", "p", "c"), ["OK", "OK"], sql)


@options()
def scenario_replicas_of_it(env: Env) -> None:
    """Row events have the row as it is written: a replica, whose triggers do not run, gets the same rows."""
    env.stop()
    trusted = "--log-bin-trust-function-creators=1"
    with (
        replicating_server(1, "FERRITE", trusted) as (primary, port),
        replicating_server(2, "FERRITE", trusted) as (replica, _),
    ):
        follower = follow(replica, port, "optimistic", 2)
        admin = session_on(primary, None)
        for image in ("FULL", "MINIMAL", "NOBLOB"):
            admin.run(f"SET GLOBAL binlog_format=ROW, GLOBAL binlog_row_image={image}")
            admin.run(f"DROP DATABASE IF EXISTS {DATABASE}")
            admin.run(f"CREATE DATABASE {DATABASE}")
            first, second = session_on(primary), session_on(replica, None)
            computed = "NOT NULL, g INT AS (pid + 1) VIRTUAL, t TEXT AS (CONCAT(pid, '/', v)) VIRTUAL"
            for key in ("PRIMARY KEY", "NOT NULL", computed):
                first.run("DROP TABLE IF EXISTS c, p, o")
                # Those who run on a replica what they find in row events need no routines.
                first.run("SET sql_log_bin=0")
                for name in ("f", "gone", "failed", "back"):
                    first.run(f"DROP FUNCTION IF EXISTS {name}")
                for sql in ROUTINES:
                    first.run(sql)
                first.run("SET sql_log_bin=1")
                tables = _family("KEY pid (pid, v)", "ON UPDATE CASCADE ON DELETE SET NULL", "")[:2]
                for sql in tables:
                    first.run(sql.replace("id INT PRIMARY KEY, pid", f"id INT {key}, pid").replace("ENGINE={e}", ""))
                first.run("SET sql_log_bin=0")
                first.run(f"CREATE TRIGGER d {BODIES['an update before a deletion']}")
                first.run("SET sql_log_bin=1")
                first.run(f"INSERT INTO p VALUES {PARENTS}")
                first.run(f"INSERT INTO c (id, pid, v) VALUES {CHILDREN}")
                first.run("UPDATE c SET v=f(pid) WHERE id=1")
                first.run("UPDATE c SET v=gone(pid) WHERE id=3")
                first.run("DELETE FROM c WHERE id=2")
                catch_up(primary, follower, 50)
                rows = f"SELECT id, pid, v FROM {DATABASE}.c ORDER BY id"
                equal(
                    second.run(rows),
                    [(1, 201, 2), (3, None, 3), (4, None, 0), (5, 4, 7)],
                    f"the replica, {image}, {key}",
                )
                equal(first.run(rows), second.run(rows), f"both, {image}, {key}")


def scenario_what_reads_and_writes_the_child(env: Env) -> None:
    """A trigger on the parent, or a function, reads the child and writes it: the cascade of the same statement finds a TABLE of
    it all the same. It failed with error 1412, and would for ever."""
    reads, writes = "SET @n = (SELECT COUNT(*) FROM c WHERE pid={0}.id)", "UPDATE c SET v=v+1 WHERE pid={0}.id"
    several = "SET @n = (SELECT COUNT(*) FROM c WHERE v < (SELECT MAX(v) + 9 FROM c WHERE id IN (SELECT id FROM c)))"
    locks = "SET @n = (SELECT MAX(v) FROM c WHERE pid={0}.id FOR UPDATE)"
    stories = (
        [writes, reads],
        [reads, writes],
        [writes, several],
        [reads, locks],
        [writes, locks, reads, writes],
        [writes, MISSES[0]],
        [reads],
    )
    changes = [
        "DELETE FROM p WHERE id=1",
        "DELETE FROM p",
        "UPDATE p SET id=id+10",
        "UPDATE p SET id=id+10 WHERE id=1",
        "INSERT INTO p VALUES (1), (9) ON DUPLICATE KEY UPDATE id=20",
        "REPLACE INTO p VALUES (1)",
        "DELETE p FROM p JOIN o ON o.id=p.id",
        "DELETE p, c FROM p JOIN c ON c.pid=p.id",
        "INSERT INTO o VALUES (9, gone(1))",
        "INSERT INTO o VALUES (9, f(1)), (10, f(2))",
        "SELECT f(id) FROM o ORDER BY id",
        "UPDATE c SET v=f(pid)",
    ]
    for actions in ("ON UPDATE CASCADE ON DELETE CASCADE", "ON UPDATE CASCADE ON DELETE SET NULL"):
        for story in stories:
            for when in ("BEFORE", "AFTER"):
                body = "; ".join(story)
                tables = [
                    *_family("KEY pid (pid)", actions, ""),
                    f"CREATE TRIGGER d {when} DELETE ON p FOR EACH ROW BEGIN {body.format('OLD')}; END",
                    f"CREATE TRIGGER u {when} UPDATE ON p FOR EACH ROW BEGIN {body.format('OLD')}; END",
                ]
                env.same_as_innodb(lambda engine, t=tables: _play(env.session(), engine, t, ROWS, changes, SHOWN))
    _sound_isolation(env)


MISSES = (
    "SET @n = (SELECT v FROM c WHERE id=999)",
    "SET @n = (SELECT MAX(v) FROM c WHERE id < 0 AND id > 0)",
    "SET @n = (SELECT MAX(v) FROM c WHERE id > 999)",
    "SET @n = (SELECT c.v FROM o LEFT JOIN c ON c.id=o.id+900 LIMIT 1)",
)
COMPUTED = (
    "CREATE TABLE c (id INT PRIMARY KEY, pid INT, v INT NOT NULL, s INT AS (v * 2) STORED, g INT AS (v * 3) VIRTUAL,"
    " w VARCHAR(9) NOT NULL DEFAULT 'w', KEY (s), KEY (g), CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (id) {actions}) ENGINE={{e}}"
)
BELOW = (
    "CREATE TABLE c (id INT PRIMARY KEY, k INT NOT NULL, v INT NOT NULL, KEY (k),"
    " CONSTRAINT f FOREIGN KEY (k) REFERENCES p (id) ON UPDATE CASCADE ON DELETE CASCADE) ENGINE={e}",
    "CREATE TABLE d (id INT PRIMARY KEY, k INT, CONSTRAINT g FOREIGN KEY (k) REFERENCES c (k)"
    " ON UPDATE CASCADE ON DELETE CASCADE) ENGINE={e}",
)


MISS_CHANGES = ["DELETE FROM p WHERE id=1", "UPDATE p SET id=id+10", "DELETE FROM p"]


def _in_triggers(env: Env, tables: list[str], rows: dict[str, str], shown: list[str], look: str) -> list[object]:
    """Of the parent, by themselves and after a change of the child."""
    answers: list[object] = []
    for body in (look, f"UPDATE c SET v=v+1 WHERE id=1; {look}"):
        triggers = [
            f"CREATE TRIGGER {when}{what} {when} {what} ON p FOR EACH ROW BEGIN {body}; END"
            for when in ("BEFORE", "AFTER")
            for what in ("DELETE", "UPDATE")
        ]
        env.fresh_database()
        answers += _play(env.session(), "FERRITE", [*tables, *triggers], rows, MISS_CHANGES, shown)
    return answers


def _under_locks(env: Env, tables: list[str], rows: dict[str, str], shown: list[str], look: str) -> list[object]:
    """No trigger: a statement before it, under LOCK TABLES."""
    env.fresh_database()
    session = env.session()
    answers: list[object] = []
    for sql in tables:
        session.run(sql.replace("{e}", "FERRITE"))
    for change in MISS_CHANGES:
        _made_anew(session, rows)
        session.run(f"LOCK TABLES {', '.join(f'{table} WRITE' for table in rows)}")
        session.run(look)
        answers.append(session.answer(change))
        session.run("UNLOCK TABLES")
        answers.append([session.answer(query) for query in shown])
        answers.append(_checked(session, "FERRITE", *rows))
    return answers


def _after_a_miss(env: Env, tables: list[str], rows: dict[str, str], shown: list[str]) -> None:
    """All is as if nobody had looked. (InnoDB is not asked: it aborts the server for its own virtual columns.)"""
    for play in (_in_triggers, _under_locks):
        wanted = play(env, tables, rows, shown, "SET @n = NULL")
        for miss in MISSES:
            seen = play(env, tables, rows, shown, miss)
            for number, (one, other) in enumerate(zip(wanted, seen, strict=True)):
                equal(other, one, f"answer {number} after {miss}")
        env.close_sessions()


def scenario_what_has_found_nothing(env: Env) -> None:
    """A SELECT that has found nothing in the child leaves all of its columns NULL for those who ask the server: what the cascade
    computes and copies of them is as it stands in the rows. Stored columns became NULL, and index entries were not found."""
    parent, other = _family("", "", "")[0], _family("", "", "")[2]
    shown = [
        "SELECT * FROM p ORDER BY id",
        "SELECT id, pid, v, s, g, w FROM c ORDER BY id",
        "SELECT s, id FROM c FORCE INDEX (s) WHERE s > -1 ORDER BY s",
        "SELECT g, id FROM c FORCE INDEX (g) WHERE g > -1 ORDER BY g",
    ]
    for actions in ("ON UPDATE CASCADE ON DELETE SET NULL", GOES):
        tables = [parent, COMPUTED.format(actions=actions), other]
        rows = {
            "p": "(1), (2)",
            "c": "(1, 1, 5, DEFAULT, DEFAULT, 'a'), (2, 2, 6, DEFAULT, DEFAULT, 'b')",
            "o": "(1, 0)",
        }
        _after_a_miss(env, tables, rows, shown)
    shown = [f"SELECT * FROM {table} ORDER BY id" for table in "pcd"]
    rows = {"p": "(1), (2)", "c": "(1, 1, 5), (2, 2, 6)", "d": "(1, 1), (2, 2), (3, 1)", "o": "(1, 0)"}
    _after_a_miss(env, [parent, *BELOW, other], rows, shown)


def _start_of(session: Session, row: int) -> float:
    return float(session.value(f"SELECT UNIX_TIMESTAMP(row_start) FROM c WHERE id={row}"))


def scenario_what_has_inserted_history(env: Env) -> None:
    """An INSERT that gives a row's start itself leaves a mark in the TABLE: a version that a later cascade makes begins with the
    cascade all the same."""
    session = env.session()
    session.run("CREATE TABLE p (id INT PRIMARY KEY) ENGINE=FERRITE")
    session.run(
        "CREATE TABLE c (id INT PRIMARY KEY, pid INT, CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (id)"
        " ON UPDATE CASCADE ON DELETE SET NULL) ENGINE=FERRITE WITH SYSTEM VERSIONING"
    )
    history = "INSERT INTO c (id, pid, row_start, row_end) VALUES ({0}, NULL, '2020-01-01', '2021-01-01')"
    session.run("SET timestamp=1700000000")
    session.run("INSERT INTO p VALUES (1), (2), (3)")
    session.run("INSERT INTO c (id, pid) VALUES (1, 1), (2, 2), (3, 3)")
    session.run("SET system_versioning_insert_history=ON")
    session.run(history.format("40"))
    session.run("SET timestamp=1700000100")
    session.run("DELETE FROM p WHERE id=1")
    equal(_start_of(session, 1), 1700000100, "a statement before it")
    session.run(f"CREATE TRIGGER d BEFORE DELETE ON p FOR EACH ROW {history.format('OLD.id + 50')}")
    session.run(f"CREATE TRIGGER u BEFORE UPDATE ON p FOR EACH ROW {history.format('OLD.id + 60')}")
    session.run("SET timestamp=1700000200")
    session.run("DELETE FROM p WHERE id=2")
    session.run("UPDATE p SET id=30 WHERE id=3")
    equal((_start_of(session, 2), _start_of(session, 3)), (1700000200, 1700000200), "a trigger")
    everything = "SELECT id, pid, row_start < row_end FROM c FOR SYSTEM_TIME ALL WHERE id < 40 ORDER BY id, row_end"
    wanted = [(1, 1, 1), (1, None, 1), (2, 2, 1), (2, None, 1), (3, 3, 1), (3, 30, 1)]
    equal(session.run(everything), wanted, "all versions")
    equal(_checked(session, "FERRITE", "p", "c"), ["OK", "OK"], "CHECK TABLE")


def _sound_isolation(env: Env) -> None:
    """What the cascade reads is the row as it is now, whatever the trigger's statement has read by its snapshot."""
    session, other = env.session(), env.session()
    session.run("SET ferrite_snapshot_isolation=OFF")
    for level in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        _made_anew(session, ROWS)
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        session.run("BEGIN")
        session.run("SELECT COUNT(*) FROM o")
        other.run("INSERT INTO c VALUES (70, 2, 0)")
        equal(session.answer("DELETE FROM p WHERE id=2"), [], level)
        equal(session.run("SELECT id FROM c WHERE pid=2"), [], level)
        session.run("COMMIT")
        expect(
            session.value("SELECT COUNT(*) FROM c LEFT JOIN p ON p.id=c.pid WHERE p.id IS NULL AND pid > 0") == 0, level
        )
        equal(_checked(session, "FERRITE", "p", "c"), ["OK", "OK"], level)
