"""Foreign keys under every kind of statement and beside triggers, generated columns, locks of tables: as InnoDB."""

from __future__ import annotations

import pymysql

from corners.env import DATABASE, Env, Session, equal, expect


def _rows(session: Session, *tables: str) -> list[object]:
    return [session.answer(f"SELECT * FROM {table} ORDER BY 1, 2") for table in tables]


def _play(session: Session, engine: str, tables: list[str], changes: list[str], shown: tuple[str, ...]) -> list[object]:
    """Each change in a transaction of its own that is rolled back."""
    for sql in tables:
        session.run(sql.replace("{e}", engine))
    answers: list[object] = []
    for sql in changes:
        session.run("BEGIN")
        answers.append([sql, session.answer(sql), *_rows(session, *shown)])
        session.run("ROLLBACK")
        answers.append([sql, "rolled back", *_rows(session, *shown)])
    return answers


def _sound(env: Env, *tables: str) -> None:
    session = env.session()
    for table in tables:
        equal(
            session.answer(f"CHECK TABLE {table} EXTENDED"),
            [(f"{DATABASE}.{table}", "check", "status", "OK")],
            "CHECK TABLE",
        )


PAIR = [
    "CREATE TABLE p (id INT PRIMARY KEY, v INT DEFAULT 0, u INT UNIQUE) ENGINE={e}",
    "CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT DEFAULT 0, CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) {actions}) ENGINE={e}",
    "INSERT INTO p (id, u) VALUES (1, 10), (2, 20), (3, 30), (4, NULL)",
    "INSERT INTO c (id, p) VALUES (10, 1), (11, 1), (20, 2), (90, NULL)",
]
ACTIONS = ["", "ON DELETE CASCADE ON UPDATE CASCADE", "ON DELETE SET NULL ON UPDATE SET NULL"]


def scenario_statements(env: Env) -> None:
    """REPLACE, ON DUPLICATE KEY UPDATE, several tables, RETURNING, ORDER BY and LIMIT, views, INSERT ... SELECT of the own parent."""
    changes = [
        "REPLACE INTO p (id, u) VALUES (1, 20)",
        "REPLACE INTO p (id, u) VALUES (9, 10), (2, 30)",
        "REPLACE INTO c (id, p) SELECT id, p + 1 FROM c",
        "INSERT INTO p (id, u) VALUES (5, 10) ON DUPLICATE KEY UPDATE id=VALUES(id), v=1",
        "INSERT INTO p (id, u) VALUES (5, 10), (6, 30), (7, 70) ON DUPLICATE KEY UPDATE id=VALUES(id)",
        "INSERT INTO c (id, p) VALUES (10, 3), (20, 4), (30, 9) ON DUPLICATE KEY UPDATE p=VALUES(p)",
        "INSERT IGNORE INTO c (id, p) VALUES (10, 3), (31, 9), (32, 4)",
        "INSERT IGNORE INTO p (id, u) VALUES (5, 10) ON DUPLICATE KEY UPDATE id=VALUES(id)",
        "DELETE FROM p WHERE id < 4 RETURNING id, u",
        "DELETE FROM p ORDER BY id DESC LIMIT 3",
        "DELETE c, p FROM c, p WHERE c.p=p.id AND p.id=1",
        "DELETE p FROM p LEFT JOIN c ON c.p=p.id WHERE c.id IS NULL",
        "DELETE IGNORE p FROM p JOIN c ON c.p=p.id",
        "UPDATE c STRAIGHT_JOIN p ON c.p=p.id SET p.v=1, c.v=3",
        "UPDATE p STRAIGHT_JOIN c SET p.id=p.id+40, c.v=1 WHERE c.p=p.id",
        "UPDATE IGNORE p SET id=id+1 ORDER BY id DESC",
        "UPDATE p SET id=id+1 ORDER BY id DESC",
        "UPDATE c SET p=p+1, id=id+1 ORDER BY id DESC",
        "UPDATE c SET p=(SELECT MAX(id) FROM p)",
        "UPDATE pv SET id=id+60 WHERE id=1",
        "DELETE FROM pv WHERE id=2",
        "INSERT INTO c (id, p) SELECT id + 50, id FROM p UNION ALL SELECT 99, 99",
        "INSERT INTO c (id, p) WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT n + 70, n FROM r",
    ]
    for actions in ACTIONS:
        tables = [
            *(sql.replace("{actions}", actions) for sql in PAIR),
            "CREATE OR REPLACE VIEW pv AS SELECT * FROM p WHERE id < 3",
        ]
        env.same_as_innodb(lambda engine, t=tables: _play(env.session(), engine, t, changes, ("p", "c")))
        _sound(env, "p", "c")


def scenario_load_data(env: Env) -> None:
    """LOAD DATA with rows that have no parent: plain, IGNORE, REPLACE, and with checks off."""
    file = env.datadir.parent / "rows.txt"
    file.write_text("30\t3\n31\t9\n10\t2\n32\t\\N\n33\t4\n")
    parents = env.datadir.parent / "parents.txt"
    parents.write_text("1\t7\n2\t8\n50\t9\n")
    for actions in ACTIONS:
        tables = [sql.replace("{actions}", actions) for sql in PAIR]
        changes = [f"LOAD DATA LOCAL INFILE '{file}' {how} INTO TABLE c (id, p)" for how in ("", "IGNORE", "REPLACE")]
        changes += [f"LOAD DATA INFILE '{file}' {how} INTO TABLE c (id, p)" for how in ("", "IGNORE", "REPLACE")]
        changes += [f"LOAD DATA INFILE '{parents}' {how} INTO TABLE p (id, v)" for how in ("", "IGNORE", "REPLACE")]
        env.same_as_innodb(lambda engine, t=tables, c=changes: _play(env.session(), engine, t, c, ("p", "c")))
        _sound(env, "p", "c")


def scenario_triggers(env: Env) -> None:
    """Triggers that change the key, that write the other table, that delete parents: the rows, in the order that InnoDB has."""
    stories = {
        "BEFORE INSERT ON c": "SET NEW.p = NEW.p + 1",
        "BEFORE UPDATE ON c": "SET NEW.p = NEW.p + 1",
        "BEFORE UPDATE ON p": "SET NEW.id = NEW.id + 5",
        "AFTER DELETE ON p": "INSERT INTO said VALUES (OLD.id)",
        "AFTER DELETE ON c": "INSERT INTO said VALUES (OLD.id)",
        "AFTER UPDATE ON c": "INSERT INTO said VALUES (NEW.p)",
        "AFTER INSERT ON c": "UPDATE p SET v=v+1 WHERE id=NEW.p",
        "BEFORE DELETE ON p": "DELETE FROM c WHERE p=OLD.id",
        "BEFORE DELETE ON c": "DELETE FROM q WHERE id=OLD.p",
        "AFTER UPDATE ON p": "INSERT INTO c (id, p) VALUES (NEW.id + 500, NEW.id)",
    }
    changes = [
        "INSERT INTO c (id, p) VALUES (30, 1), (31, 3)",
        "INSERT INTO c (id, p) VALUES (30, 4)",
        "INSERT INTO c (id, p) VALUES (10, 3) ON DUPLICATE KEY UPDATE p=3",
        "UPDATE c SET v=1",
        "UPDATE c SET p=3 WHERE id < 20",
        "UPDATE p SET id=id+10 WHERE id=1",
        "UPDATE p SET v=5",
        "DELETE FROM p WHERE id=1",
        "DELETE FROM p",
        "DELETE FROM c",
        "REPLACE INTO p (id) VALUES (1)",
        "REPLACE INTO c (id, p) VALUES (10, 2)",
    ]
    for actions in ACTIONS:
        for when, what in stories.items():
            tables = [
                *(sql.replace("{actions}", actions) for sql in PAIR),
                "CREATE TABLE said (t INT) ENGINE={e}",
                "CREATE TABLE q (id INT PRIMARY KEY) ENGINE={e}",
                "CREATE TABLE r (id INT PRIMARY KEY, q INT, FOREIGN KEY (q) REFERENCES q (id) ON DELETE CASCADE) ENGINE={e}",
                "INSERT INTO q VALUES (1), (2), (3)",
                "INSERT INTO r VALUES (1, 1), (2, 1), (3, 2)",
                f"CREATE TRIGGER tr {when} FOR EACH ROW {what}",
            ]
            env.same_as_innodb(
                lambda engine, t=tables: _play(env.session(), engine, t, changes, ("p", "c", "said", "q", "r"))
            )


def scenario_generated_columns(env: Env) -> None:
    """Children with generated columns, stored or virtual, indexed or not, of the columns that a cascade changes or others."""
    for kind in ("VIRTUAL", "PERSISTENT"):
        for of in ("p", "v"):
            for actions in ACTIONS:
                tables = [
                    "CREATE TABLE p (id INT PRIMARY KEY, g INT AS (id + 1) VIRTUAL, KEY (g)) ENGINE={e}",
                    f"CREATE TABLE c (id INT PRIMARY KEY, p INT, v INT, g INT AS ({of} * 2) {kind}, KEY (g), KEY (p, g),"
                    f" CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) {actions}) ENGINE={{e}}",
                    "INSERT INTO p (id) VALUES (1), (2), (3)",
                    "INSERT INTO c (id, p, v) VALUES (1, 1, 1), (2, 1, 2), (3, 2, NULL), (4, NULL, 5)",
                ]
                changes = [
                    "UPDATE p SET id=7 WHERE id=1",
                    "DELETE FROM p WHERE id=1",
                    "DELETE FROM p",
                    "UPDATE p SET id=id+20",
                    "UPDATE c SET p=3",
                    "UPDATE c SET v=p",
                ]
                shown = (
                    "p",
                    "c",
                    "(SELECT g, id FROM c FORCE INDEX (g) WHERE g > 0) AS x",
                    "(SELECT p, g, id FROM c FORCE INDEX (p) WHERE p > 0) AS y",
                )

                def play(
                    engine: str, t: list[str] = tables, c: list[str] = changes, s: tuple[str, ...] = shown
                ) -> list[object]:
                    try:
                        return _play(env.session(), engine, t, c, s)
                    except pymysql.err.MySQLError as e:
                        return [e.args[0]]

                env.same_as_innodb(play)
    # The constraint is on a generated column itself.
    for kind in ("VIRTUAL", "PERSISTENT"):
        for actions in ("", "ON DELETE CASCADE", "ON DELETE SET NULL", "ON UPDATE CASCADE"):
            tables = [
                "CREATE TABLE p (id INT PRIMARY KEY) ENGINE={e}",
                f"CREATE TABLE c (id INT PRIMARY KEY, v INT, g INT AS (v + 1) {kind}, KEY (g), CONSTRAINT f FOREIGN KEY (g) REFERENCES p (id) {actions}) ENGINE={{e}}",
                "INSERT INTO p VALUES (1), (2), (3)",
                "INSERT INTO c (id, v) VALUES (1, 0), (2, 1), (3, NULL)",
            ]
            changes = [
                "INSERT INTO c (id, v) VALUES (4, 2)",
                "INSERT INTO c (id, v) VALUES (4, 9)",
                "UPDATE c SET v=2",
                "UPDATE c SET v=5",
                "DELETE FROM p WHERE id=1",
                "UPDATE p SET id=9 WHERE id=1",
            ]

            def on_it(engine: str, t: list[str] = tables, c: list[str] = changes) -> list[object]:
                try:
                    return _play(env.session(), engine, t, c, ("p", "c"))
                except pymysql.err.MySQLError as e:
                    return ["refused" if e.args[0] in (1005, 1215, 1901, 1905) else e.args]

            env.same_as_innodb(on_it)


def scenario_cascades_that_come_back(env: Env) -> None:
    """A cascade comes back to a table with virtual TEXT, indexed or beside an index, while its row above is still being changed."""
    rows = "(1, NULL, REPEAT('a', 41)), (2, 1, REPEAT('b', 42)), (3, 2, REPEAT('c', 43)), (4, 3, 'd'), (5, 1, REPEAT('e', 600)), (6, 5, 'f')"
    columns = "a INT PRIMARY KEY, p INT, s VARCHAR(700), v TEXT AS (CONCAT(s, 'x')) VIRTUAL, n INT AS (p + 1) VIRTUAL, KEY (p)"
    changes = [
        "DELETE FROM t WHERE a=1",
        "DELETE FROM t WHERE a=2",
        "UPDATE t SET a=a+10 WHERE a=5",
        "DELETE FROM t",
    ]
    for key in ("KEY (v(20))", "KEY (n)"):
        for versioned in ("", " WITH SYSTEM VERSIONING"):
            for actions in ("ON DELETE CASCADE", "ON DELETE SET NULL", "ON DELETE CASCADE ON UPDATE SET NULL"):
                alone = [
                    f"CREATE TABLE t ({columns}, {key}, FOREIGN KEY (p) REFERENCES t (a) {actions}) ENGINE={{e}}{versioned}",
                    f"INSERT INTO t (a, p, s) VALUES {rows}",
                ]
                circle = [
                    "SET foreign_key_checks=0",
                    f"CREATE TABLE t ({columns}, {key}, FOREIGN KEY (p) REFERENCES u (a) {actions}) ENGINE={{e}}{versioned}",
                    f"CREATE TABLE u ({columns}, {key}, FOREIGN KEY (p) REFERENCES t (a) ON DELETE CASCADE) ENGINE={{e}}{versioned}",
                    f"INSERT INTO t (a, p, s) VALUES {rows}",
                    f"INSERT INTO u (a, p, s) VALUES {rows}",
                    "SET foreign_key_checks=1",
                ]
                for tables, shown in ((alone, ("t",)), (circle, ("t", "u"))):

                    def play(engine: str, t: list[str] = tables, s: tuple[str, ...] = shown) -> list[object]:
                        session = env.session()
                        told = _play(session, engine, t, changes, s)
                        session.run("FLUSH TABLES " + ", ".join(s))
                        told += [session.answer(f"SELECT a, p, v, n FROM {name} ORDER BY a") for name in s]
                        return told

                    if not versioned:
                        env.same_as_innodb(play)
                        continue
                    # InnoDB's cascade ends at the first versioned row and leaves that one's children without a parent.
                    env.fresh_database()
                    told = play("FERRITE")
                    env.close_sessions()
                    if "SET NULL" not in actions and len(shown) == 1:
                        equal(told[0][2:], [[]], "what is left without row 1")
                    _sound(env, *shown)


def scenario_auto_increment(env: Env) -> None:
    """Numbers that a refused child took, and children that a cascade gives other numbers."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"CREATE TABLE p (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE={engine}")
        session.run(
            f"CREATE TABLE c (id INT AUTO_INCREMENT PRIMARY KEY, p INT, CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) ON UPDATE CASCADE ON DELETE CASCADE) ENGINE={engine}"
        )
        session.run(
            f"CREATE TABLE e (n INT AUTO_INCREMENT, KEY (n), CONSTRAINT g FOREIGN KEY (n) REFERENCES p (id) ON UPDATE CASCADE) ENGINE={engine}"
        )
        answers: list[object] = []
        for sql in (
            "INSERT INTO p VALUES (NULL), (NULL), (NULL)",
            "INSERT INTO c (p) VALUES (1), (7), (2)",
            "INSERT INTO c (p) VALUES (1), (2)",
            "INSERT IGNORE INTO c (p) VALUES (1), (9), (2)",
            "INSERT INTO c (id, p) VALUES (50, 9)",
            "INSERT INTO c (p) VALUES (3)",
            "INSERT INTO e VALUES (NULL)",
            "INSERT INTO e VALUES (NULL), (NULL)",
            "INSERT INTO e VALUES (NULL)",
            "UPDATE p SET id=40 WHERE id=1",
            "INSERT INTO p VALUES (NULL), (NULL)",
            "DELETE FROM p WHERE id=2",
            "INSERT INTO c (p) VALUES (3)",
        ):
            answers.append(
                [
                    sql,
                    session.answer(sql),
                    session.answer("SELECT LAST_INSERT_ID()"),
                    *_rows(session, "(SELECT id, 0 FROM p) AS p", "c", "(SELECT n, 0 FROM e) AS e"),
                ]
            )
        return answers

    env.same_as_innodb(play)
    # InnoDB would give out a number that has come by a cascade.
    equal(env.session().answer("INSERT INTO e VALUES (NULL)"), [], "a number beyond those of a cascade")
    equal(env.session().value("SELECT MAX(n) FROM e"), 41, "the number")


def scenario_where_statements_run(env: Env) -> None:
    """In stored functions and procedures, under LOCK TABLES, prepared, in events of a transaction: children are there to follow."""
    tables = [
        *(sql.replace("{actions}", ACTIONS[1]) for sql in PAIR),
        "CREATE TABLE g (id INT PRIMARY KEY, c INT, CONSTRAINT gc FOREIGN KEY (c) REFERENCES c (id) ON DELETE SET NULL) ENGINE={e}",
        "INSERT INTO g VALUES (1, 10), (2, 11), (3, 20)",
        "CREATE TABLE t (id INT PRIMARY KEY) ENGINE={e}",
        "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW DELETE FROM p WHERE id=NEW.id",
        "CREATE FUNCTION gone(n INT) RETURNS INT BEGIN DELETE FROM p WHERE id=n; RETURN ROW_COUNT(); END",
        "CREATE PROCEDURE away(n INT) BEGIN UPDATE p SET id=n+100 WHERE id=n; DELETE FROM p WHERE id=n+100; END",
        "PREPARE s FROM 'DELETE FROM p WHERE id=1'",
    ]
    changes = [
        "INSERT INTO t VALUES (1), (2)",
        "SELECT gone(1), gone(2)",
        "CALL away(1)",
        "EXECUTE s",
        "DO gone(1) + gone(2)",
        "UPDATE t SET id=gone(1)",
        "INSERT INTO t SELECT gone(id) + id FROM p",
    ]

    def play(engine: str) -> list[object]:
        session = env.session()
        answers = _play(session, engine, tables, changes, ("p", "c", "g", "t"))
        for locks in (
            "p WRITE",
            "p WRITE, c READ",
            "p WRITE, c WRITE",
            "p WRITE, c WRITE, g WRITE",
            "c WRITE",
            "c WRITE, p READ",
            "t WRITE",
            "p AS x WRITE, p WRITE",
        ):
            for sql in (
                "DELETE FROM p WHERE id=1",
                "INSERT INTO c (id, p) VALUES (77, 3)",
                "INSERT INTO c (id, p) VALUES (77, 33)",
                "INSERT INTO t VALUES (1)",
                "UPDATE p SET id=50 WHERE id=2",
            ):
                session.run("SET autocommit=0")
                session.run(f"LOCK TABLES {locks}")
                answers.append([locks, sql, session.answer(sql)])
                session.run("ROLLBACK")
                session.run("UNLOCK TABLES")
                session.run("SET autocommit=1")
                answers.append(_rows(session, "p", "c", "g", "t"))
        return answers

    env.same_as_innodb(play)
    _sound(env, "p", "c", "g", "t")


def scenario_children_that_come_later(env: Env) -> None:
    """Statements that were prepared, and routines that have run, follow into children that came, were renamed, or act otherwise since."""
    child = (
        "CREATE TABLE {n} (id INT PRIMARY KEY, p INT, CONSTRAINT {n}f FOREIGN KEY (p) REFERENCES p (id) {a}) ENGINE={e}"
    )
    changes = (
        child.replace("{n}", "c").replace("{a}", "ON DELETE CASCADE"),
        child.replace("{n}", "d").replace("{a}", "ON DELETE SET NULL"),
        "RENAME TABLE c TO e",
        "ALTER TABLE e DROP FOREIGN KEY cf",
        "ALTER TABLE e ADD CONSTRAINT ef FOREIGN KEY (p) REFERENCES p (id)",
        "ALTER TABLE e DROP FOREIGN KEY ef, ADD CONSTRAINT eg FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL",
        "DROP TABLE d",
        "CREATE TABLE d (id INT PRIMARY KEY, p INT, KEY (p)) ENGINE={e}",
        "SET foreign_key_checks=0",
        "ALTER TABLE d ADD CONSTRAINT dg FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE, ALGORITHM=INPLACE",
        "SET foreign_key_checks=1",
        "RENAME TABLE d TO h, e TO d, h TO e",
    )

    def play(engine: str) -> list[object]:
        user, other = env.session(), env.session()
        other.run(f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
        user.run("CREATE PROCEDURE away(n INT) DELETE FROM p WHERE id=n")
        user.run("CREATE FUNCTION gone(n INT) RETURNS INT BEGIN DELETE FROM p WHERE id=n; RETURN ROW_COUNT(); END")
        user.run("PREPARE s FROM 'DELETE FROM p WHERE id=?'")
        user.run("PREPARE f FROM 'SELECT gone(?)'")
        answers: list[object] = []
        for number, change in enumerate(("SET @none=0", *changes)):
            answers.append(other.answer(change.replace("{e}", engine)))
            other.run("INSERT IGNORE INTO p VALUES (1), (2), (3), (4), (5)")
            for name in ("c", "d", "e"):
                other.answer(f"REPLACE INTO {name} VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)")
            user.run("SET @one=1, @four=4")
            for sql in ("EXECUTE s USING @one", "CALL away(2)", "SELECT gone(3)", "EXECUTE f USING @four"):
                answers.append([number, sql, user.answer(sql), user.warnings()])
            answers += [user.answer(f"SELECT * FROM {name} ORDER BY 1") for name in ("p", "c", "d", "e")]
        return answers

    env.same_as_innodb(play)


def scenario_deletes_that_become_updates(env: Env) -> None:
    """What SET NULL does to a child is an update, which the child's own children follow as one."""
    tables = [
        "CREATE TABLE p (id INT PRIMARY KEY, v INT DEFAULT 0) ENGINE={e}",
        "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE SET NULL) ENGINE={e}",
        "CREATE TABLE g (id INT PRIMARY KEY, c INT, FOREIGN KEY (c) REFERENCES c (p) {actions}) ENGINE={e}",
        "CREATE TABLE h (id INT PRIMARY KEY, g INT, FOREIGN KEY (g) REFERENCES g (c) ON UPDATE SET NULL) ENGINE={e}",
        "INSERT INTO p (id) VALUES (1), (2)",
        "INSERT INTO c VALUES (1, 1), (2, 2)",
        "INSERT INTO g VALUES (1, 1), (2, 2)",
        "INSERT INTO h VALUES (1, 1)",
        "CREATE TABLE t (id INT PRIMARY KEY) ENGINE={e}",
        "CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW DELETE FROM p WHERE id=NEW.id",
        "PREPARE s FROM 'DELETE FROM p WHERE id=2'",
    ]
    changes = [
        "DELETE FROM p WHERE id=1",
        "DELETE FROM p",
        "EXECUTE s",
        "INSERT INTO t VALUES (1), (2)",
        "DELETE p, c FROM p JOIN c ON c.p=p.id",
        "REPLACE INTO p VALUES (1, 1)",
        "DELETE FROM c WHERE id=1",
        "UPDATE c SET p=NULL",
    ]
    for actions in (
        "ON UPDATE CASCADE",
        "ON UPDATE SET NULL",
        "ON UPDATE CASCADE ON DELETE CASCADE",
        "ON DELETE CASCADE",
        "",
    ):
        told = [sql.replace("{actions}", actions) for sql in tables]
        env.same_as_innodb(lambda engine, told=told: _play(env.session(), engine, told, changes, ("p", "c", "g", "h")))


def scenario_under_locks_of_tables(env: Env) -> None:
    """Under LOCK TABLES a child is there to follow, whatever statements have used it for before, and by whatever name."""
    tables = [
        *(sql.replace("{actions}", ACTIONS[1]) for sql in PAIR),
        "CREATE TABLE t (id INT PRIMARY KEY, v INT DEFAULT 0) ENGINE={e}",
    ]

    def play(engine: str) -> list[object]:
        session = env.session()
        for sql in tables:
            session.run(sql.replace("{e}", engine))
        session.run("CREATE FUNCTION gone(n INT) RETURNS INT BEGIN DELETE FROM p WHERE id=n; RETURN ROW_COUNT(); END")
        session.run("CREATE TRIGGER tr AFTER INSERT ON t FOR EACH ROW UPDATE p SET id=id+100 WHERE id=NEW.id")
        answers: list[object] = []
        for locks in ("p WRITE", "p WRITE, c WRITE", "p WRITE, c WRITE, c AS x WRITE, p AS y READ, t WRITE"):
            session.run("SET autocommit=0")
            session.run(f"LOCK TABLES {locks}")
            for sql in (
                "SELECT * FROM c WHERE id=10",
                "DELETE FROM p WHERE id=1",
                "SELECT COUNT(*) FROM c AS x, p AS y",
                "UPDATE c SET v=5",
                "UPDATE p SET id=22 WHERE id=2",
                "INSERT INTO c (id, p) VALUES (77, 22)",
                "INSERT INTO c (id, p) VALUES (78, 3)",
                "SELECT gone(22)",
                "INSERT INTO t VALUES (3, 0)",
                "DELETE FROM p",
            ):
                answers.append([locks, sql, session.answer(sql)])
            session.run("ROLLBACK")
            session.run("UNLOCK TABLES")
            session.run("SET autocommit=1")
            answers.append(_rows(session, "p", "c", "t"))
        return answers

    env.same_as_innodb(play)


def scenario_the_first_child_comes_meanwhile(env: Env) -> None:
    """A row is refused for a child that came while it was changed, and is back where it was, whoever handles the error."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("CREATE TABLE p (id INT PRIMARY KEY, u INT, big TEXT, UNIQUE (u))")
    session.run("INSERT INTO p VALUES (1, 10, 'old')")
    session.run(
        "CREATE FUNCTION changed() RETURNS INT BEGIN DECLARE code INT DEFAULT 0;"
        " DECLARE CONTINUE HANDLER FOR SQLEXCEPTION GET DIAGNOSTICS CONDITION 1 code = MYSQL_ERRNO;"
        " UPDATE p SET u=5, big=REPEAT('b', 50000) WHERE id=1; RETURN code; END"
    )
    other, changer = env.session(), env.session()
    other.run("BEGIN")
    other.run("INSERT INTO p VALUES (2, 5, '')")
    changer.run("BEGIN")
    running = changer.start("SELECT changed()")
    expect(env.blocks(running), "does not wait", running.seen)
    session.run("SET foreign_key_checks=0")
    session.run("CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (u))")
    session.run("INSERT INTO c VALUES (10)")
    other.run("ROLLBACK")
    equal(running.answer(), [(1451,)], "the function's answer")
    changer.run("COMMIT")
    equal(session.run("SELECT * FROM p"), [(1, 10, "old")], "the parent")
    _sound(env, "p", "c")


def scenario_a_parent_without_its_index(env: Env) -> None:
    """Unchecked, whatever a statement has read of the columns. Without the child's index no parent can go."""
    tables = [
        "CREATE TABLE p (id INT PRIMARY KEY, u INT, v INT, w INT, KEY (u, w), KEY (v)) ENGINE={e}",
        "CREATE TABLE c (id INT PRIMARY KEY, u INT, CONSTRAINT f FOREIGN KEY (u) REFERENCES p (u) {actions}) ENGINE={e}",
        "INSERT INTO p VALUES (1, 10, 0, 0), (2, 20, 0, 0), (3, NULL, 0, 0), (4, 40, 0, 0)",
        "INSERT INTO c VALUES (1, 10), (2, 20), (3, NULL)",
        "SET foreign_key_checks=0",
        "ALTER TABLE p DROP KEY u",
        "SET foreign_key_checks=1",
    ]
    changes = [
        "DELETE FROM p WHERE id=1",
        "DELETE FROM p WHERE u=10",
        "DELETE FROM p WHERE id=3",
        "DELETE FROM p WHERE id=4",
        "DELETE FROM p",
        "UPDATE p SET u=11 WHERE id=1",
        "UPDATE p SET u=11 WHERE u=10",
        "UPDATE p SET u=11 WHERE id=3",
        "UPDATE p SET u=41 WHERE id=4",
        "UPDATE p SET u=NULL WHERE id=4",
        "UPDATE p SET v=1",
        "UPDATE p SET id=id+100",
        "REPLACE INTO p VALUES (1, 10, 1, 1)",
    ]
    of_children = [
        "INSERT INTO c VALUES (4, 40)",
        "INSERT INTO c VALUES (4, 99)",
        "INSERT IGNORE INTO c VALUES (4, 99), (5, 10)",
        "REPLACE INTO c VALUES (1, 99)",
        "INSERT INTO c VALUES (1, 99)",
        "UPDATE c SET id=id+10",
        "INSERT INTO c VALUES (4, NULL)",
        "UPDATE c SET u=20",
        "DELETE FROM c",
    ]
    for actions in ACTIONS[:2]:
        for drop in ("p DROP KEY u", "c DROP KEY f"):
            told = [sql.replace("{actions}", actions).replace("p DROP KEY u", drop) for sql in tables]
            those = changes + of_children
            env.same_as_innodb(
                lambda engine, told=told, those=those: _play(env.session(), engine, told, those, ("p", "c"))
            )
        session = env.session()
        equal(session.answer("UPDATE c SET u=99 WHERE id=1"), 1452, "a child without its index changes its parent")
        equal(session.answer("UPDATE c SET u=40 WHERE id=1"), [], "to one that is there")
        equal(session.run("CHECK TABLE c EXTENDED")[0][2], "Note", "CHECK TABLE of a child without its index")


def scenario_checks_off_and_on(env: Env) -> None:
    """foreign_key_checks=0 in one session is that session's matter; rows of then are found by the checks of later."""

    def play(engine: str) -> list[object]:
        session, other = env.session(), env.session()
        for sql in PAIR:
            session.run(sql.replace("{e}", engine).replace("{actions}", ACTIONS[1]))
        session.run("SET foreign_key_checks=0")
        answers: list[object] = []
        for who, sql in (
            (session, "INSERT INTO c (id, p) VALUES (30, 33), (31, 33)"),
            (other, "INSERT INTO c (id, p) VALUES (32, 33)"),
            (other, "UPDATE c SET v=1 WHERE id=30"),
            (other, "UPDATE c SET id=300 WHERE id=30"),
            (other, "UPDATE c SET p=34 WHERE id=31"),
            (other, "UPDATE c SET p=33 WHERE id=31"),
            (session, "DELETE FROM p WHERE id=2"),
            (other, "INSERT INTO c (id, p) VALUES (33, 2)"),
            (other, "INSERT INTO p (id) VALUES (33)"),
            (other, "DELETE FROM p WHERE id=33"),
            (session, "SET foreign_key_checks=1"),
            (session, "UPDATE p SET id=34 WHERE id=3"),
            (session, "INSERT INTO c (id, p) VALUES (34, 3)"),
        ):
            answers.append([sql, who.answer(sql), *_rows(session, "p", "c")])
        return answers

    env.same_as_innodb(play)


def scenario_like(env: Env) -> None:
    """CREATE TABLE ... LIKE has the child's columns and keys, and none of its foreign keys."""

    def play(engine: str) -> list[object]:
        s = env.session()
        s.run(f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
        s.run(f"CREATE TABLE c (id INT PRIMARY KEY, x INT, FOREIGN KEY (x) REFERENCES p (id)) ENGINE={engine}")
        seen: list[object] = []
        for kind in ("", "TEMPORARY ", "OR REPLACE TEMPORARY "):
            seen.append(s.answer(f"CREATE {kind}TABLE l LIKE c"))
            seen.append(s.answer("INSERT INTO l VALUES (1, 99)"))
            seen.append("REFERENCES" in s.run("SHOW CREATE TABLE l")[0][1])
        return seen

    env.same_as_innodb(play)


def scenario_partitions(env: Env) -> None:
    """A partitioned table has no foreign keys, and is nobody's parent: refused as the server does."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
        answers: list[object] = []
        for sql in (
            "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE={e} PARTITION BY HASH (id) PARTITIONS 3",
            "CREATE TABLE pp (id INT PRIMARY KEY) ENGINE={e} PARTITION BY HASH (id) PARTITIONS 3",
            "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES pp (id)) ENGINE={e}",
            "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE={e}",
            "ALTER TABLE c PARTITION BY HASH (id) PARTITIONS 2",
            "ALTER TABLE p PARTITION BY HASH (id) PARTITIONS 2",
            "ALTER TABLE pp ADD FOREIGN KEY (id) REFERENCES p (id)",
        ):
            answers.append([sql, session.answer(sql.replace("{e}", engine))])
        return answers

    answers = env.same_as_innodb(play)
    expect(any(isinstance(answer, list) and answer[1] == 1506 for answer in answers), "the server's refusal", answers)
