"""ALTER TABLE and foreign keys that the table has already: what they are, and what the rows of its copy must satisfy."""

from __future__ import annotations

from corners.env import Env, Running, Session, equal, expect

NAMES = "SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE TABLE_NAME = '{}' ORDER BY 1"


def _constraints(session: Session, table: str) -> list[str]:
    return [name for (name,) in session.run(NAMES.format(table))]


def scenario_convert_to_partition(env: Env) -> None:
    """A table with foreign keys, or to which one refers, does not become a partition: EXCHANGE PARTITION refuses it, too.
    The server did not ask, and the partition had constraints that neither DROP nor SHOW CREATE TABLE knew of."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("CREATE TABLE p (id INT PRIMARY KEY)")
    session.run("CREATE TABLE c (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES p (id))")
    session.run("CREATE TABLE x (id INT PRIMARY KEY)")
    session.run("CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))")
    session.run("INSERT INTO p VALUES (11)")
    session.run("INSERT INTO c VALUES (11)")
    for table in ("c", "p"):
        for checks in (1, 0):
            session.run(f"SET foreign_key_checks = {checks}")
            convert = f"ALTER TABLE t CONVERT TABLE {table} TO PARTITION p1 VALUES LESS THAN (20)"
            equal(session.error(convert), 1740, f"{convert}, foreign_key_checks = {checks}")
            expect("PARTITION `p1`" not in session.run("SHOW CREATE TABLE t")[0][1], convert, "a partition")
            equal(session.run(f"SELECT id FROM {table}"), [(11,)], convert)
    session.run("SET foreign_key_checks = 1")
    equal(session.error("DELETE FROM p"), 1451, "the constraint is there")
    equal(session.error("INSERT INTO c VALUES (12)"), 1452, "and on its other side")
    session.run("INSERT INTO x VALUES (13)")
    session.run("ALTER TABLE t CONVERT TABLE x TO PARTITION p1 VALUES LESS THAN (20)")
    equal(session.run("SELECT id FROM t"), [(13,)], "a table without")
    # One that refers to a name that a partition gets becomes a child of the table.
    session.run("SET foreign_key_checks = 0")
    session.run("CREATE TABLE w (id INT, KEY (id), FOREIGN KEY (id) REFERENCES y (id))")
    session.run("SET foreign_key_checks = 1")
    session.run("ALTER TABLE t CONVERT PARTITION p1 TO TABLE y")
    equal(session.error("INSERT INTO w VALUES (12)"), 1452, "no parent")
    session.run("INSERT INTO w VALUES (13)")
    equal(session.error("ALTER TABLE t CONVERT TABLE y TO PARTITION p1 VALUES LESS THAN (20)"), 1740, "a parent")
    for table in ("t", "w", "y", "c", "p"):
        session.run(f"DROP TABLE {table}")


FAMILY = "CREATE TABLE p (id INT PRIMARY KEY) ENGINE={}"
COMPUTED = "CREATE TABLE c (id INT PRIMARY KEY, a INT, b INT, v INT AS (a) STORED, KEY (v), CONSTRAINT f FOREIGN KEY (v) REFERENCES p (id)) ENGINE={}"
PLAIN = "CREATE TABLE c (id INT PRIMARY KEY, x INT, b INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id)) ENGINE={}"


OTHER_VALUES = (
    # sql_mode, table, rows, ALTER, the parent that is missing (None: the values stay)
    ("", PLAIN, "(1, NULL, 0), (2, 7, 0)", "MODIFY x INT NOT NULL", 0),
    ("STRICT_ALL_TABLES", PLAIN, "(2, 7, 0)", "MODIFY x INT NOT NULL", None),
    ("", COMPUTED, "(1, 7, 8, DEFAULT)", "MODIFY v INT AS (a + 100) STORED", 107),
    ("", COMPUTED, "(1, 7, 8, DEFAULT)", "MODIFY v INT AS (b) STORED", 8),
    ("", COMPUTED, "(1, 7, 300, DEFAULT)", "MODIFY b TINYINT, ALGORITHM=COPY", None),
    ("", COMPUTED, "(1, 7, 300, DEFAULT)", "MODIFY v INT AS (b) STORED, MODIFY b TINYINT", 127),
    ("", COMPUTED, "(1, 7, 8, DEFAULT)", "FORCE, ALGORITHM=COPY", None),
)


def scenario_copied_rows_with_other_values(env: Env) -> None:
    """ALTER TABLE that gives the columns of a foreign key other values checks the rows, though the table has the foreign
    key already: NULL becomes a value, a generated column has another expression, or one of its columns another type."""
    session = env.session()
    for mode, table, rows, change, parent in OTHER_VALUES:
        alter = f"ALTER TABLE c {change}"
        session.run(f"SET sql_mode = '{mode}'")
        session.run("DROP TABLE IF EXISTS c, p")
        session.run(FAMILY.format("FERRITE"))
        session.run(table.format("FERRITE"))
        session.run("INSERT INTO p VALUES (7)")
        session.run(f"INSERT INTO c VALUES {rows}")
        if parent is not None:
            before = session.run("SHOW CREATE TABLE c"), session.run("SELECT * FROM c")
            equal(session.error(alter), 1452, alter)
            equal((session.run("SHOW CREATE TABLE c"), session.run("SELECT * FROM c")), before, alter)
            session.run(f"INSERT INTO p VALUES ({parent})")
        session.run(alter)
        equal(_constraints(session, "c"), ["f"], alter)
        equal(session.run("CHECK TABLE c EXTENDED")[-1][3], "OK", alter)
        equal(session.error("DELETE FROM p"), 1451, f"{alter}: the rows are children")


def scenario_a_parent_waits_while_its_child_is_copied(env: Env) -> None:
    """Nobody takes a parent away that rows of the copy refer to, but not those of the original."""
    session, other = env.session(), env.session()
    session.run("SET sql_mode = ''")
    session.run(FAMILY.format("FERRITE"))
    session.run(PLAIN.format("FERRITE"))
    session.run("INSERT INTO p VALUES (0), (7)")
    session.run("INSERT INTO c SELECT seq, NULL, 0 FROM seq_1_to_20000")
    running = session.start("ALTER TABLE c MODIFY x INT NOT NULL")
    refused = other.error("DELETE FROM p WHERE id = 0")
    answer = running.answer()
    expect((refused, answer) in ((1451, []), (0, 1452)), "either the parent or the child", (refused, answer))
    equal(other.run("CHECK TABLE c EXTENDED"), [("corners.c", "check", "status", "OK")], "no orphan")


def scenario_drop_by_another_spelling(env: Env) -> None:
    """DROP FOREIGN KEY: the server takes letters with and without an accent for the same, and so does what drops it. It
    said OK and dropped nothing."""

    def play(engine: str) -> list[object]:
        session = env.session()
        seen: list[object] = []
        for made, dropped in (("clé", "cle"), ("cle", "CLÉ"), ("ß", "s"), ("İx", "ix"), ("F_1", "f_1")):
            session.run("DROP TABLE IF EXISTS c, p")
            session.run(FAMILY.format(engine))
            session.run(
                f"CREATE TABLE c (x INT, KEY (x), CONSTRAINT `{made}` FOREIGN KEY (x) REFERENCES p (id),"
                f" CONSTRAINT other FOREIGN KEY (x) REFERENCES p (id)) ENGINE={engine}"
            )
            seen.append((dropped, session.answer(f"ALTER TABLE c DROP FOREIGN KEY `{dropped}`")))
            seen.append(_constraints(session, "c"))
            seen.append(session.answer(f"ALTER TABLE c DROP FOREIGN KEY `{dropped}`, ALGORITHM=COPY"))
        return seen

    env.same_as_innodb(play)


def scenario_the_one_that_is_meant(env: Env) -> None:
    """Of two whose names the server takes for the same, that one is dropped whose name was written."""
    session = env.session()
    session.run(FAMILY.format("FERRITE"))
    session.run("CREATE TABLE c (x INT, KEY (x), CONSTRAINT `clé` FOREIGN KEY (x) REFERENCES p (id)) ENGINE=FERRITE")
    if session.error("ALTER TABLE c ADD CONSTRAINT `cle` FOREIGN KEY (x) REFERENCES p (id)"):
        return
    for name, rest in (("clé", "cle"), ("cle", "clé")):
        session.run(f"ALTER TABLE c DROP FOREIGN KEY `{name}`")
        equal(_constraints(session, "c"), [rest], name)
        session.run(f"ALTER TABLE c ADD CONSTRAINT `{name}` FOREIGN KEY (x) REFERENCES p (id)")


def scenario_follows_into_no_generated_column(env: Env) -> None:
    """ALTER TABLE makes no column a generated one into which a cascade goes: it could not be followed, without a word. As where the
    constraint is new (1905)."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run(FAMILY.format("FERRITE"))
    for actions, refused in (
        ("ON UPDATE CASCADE ON DELETE SET NULL", True),
        ("ON UPDATE CASCADE", True),
        ("ON UPDATE SET NULL", True),
        ("ON DELETE SET NULL", True),
        ("ON DELETE CASCADE", False),
        ("", False),
    ):
        session.run("DROP TABLE IF EXISTS c")
        session.run("REPLACE INTO p VALUES (1), (3)")
        session.run(
            f"CREATE TABLE c (id INT PRIMARY KEY, x INT, pid INT, KEY (pid), CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (id) {actions})"
        )
        session.run("INSERT INTO c VALUES (1, 1, 1)")
        definition = session.run("SHOW CREATE TABLE c")
        alter = "ALTER TABLE c MODIFY pid INT AS (x) STORED"
        if not refused:
            session.run(alter)
            continue
        for checks in (0, 1):
            session.run(f"SET foreign_key_checks={checks}")
            equal(session.error(alter), 1905, f"{alter}, {actions}, foreign_key_checks={checks}")
            equal(session.run("SHOW CREATE TABLE c"), definition, "the table stays")
        # What the constraint does, it still does; without it the column may be one.
        answer = session.answer("UPDATE p SET id=2 WHERE id=1")
        equal(answer, [] if "ON UPDATE" in actions else 1451, f"{actions} is kept")
        session.answer("UPDATE p SET id=1 WHERE id=2")
        session.run("ALTER TABLE c DROP FOREIGN KEY f, MODIFY pid INT AS (x) STORED")


def scenario_null_for_a_column_that_has_none(env: Env) -> None:
    """SET NULL where the column has been made NOT NULL with foreign_key_checks=0: the parent stays (InnoDB has lost the constraint
    by then). The child got the value 0, and another parent or none."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("SET sql_mode=''")
    for actions, change in (
        ("ON DELETE SET NULL", "DELETE FROM p WHERE id=7"),
        ("ON UPDATE SET NULL", "UPDATE p SET id=8 WHERE id=7"),
    ):
        for parents in ("(7)", "(7), (0)"):
            session.run("DROP TABLE IF EXISTS c, p")
            session.run(FAMILY.format("FERRITE"))
            session.run(
                f"CREATE TABLE c (id INT PRIMARY KEY, pid INT, KEY (pid), CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (id) {actions})"
            )
            session.run(f"INSERT INTO p VALUES {parents}")
            session.run("INSERT INTO c VALUES (1, 7)")
            session.run("SET foreign_key_checks=0")
            session.run("ALTER TABLE c MODIFY pid INT NOT NULL")
            session.run("SET foreign_key_checks=1")
            equal(_constraints(session, "c"), ["f"], "the constraint is still there")
            equal(session.error(change), 1451, f"{change} of {parents}")
            equal(session.run("SELECT * FROM c"), [(1, 7)], change)
            equal(session.run("CHECK TABLE c EXTENDED")[-1][3], "OK", change)


def scenario_parents_with_other_values(env: Env) -> None:
    """ALTER TABLE gives no referenced column other values: a generated one with another expression, or computed of another type.
    The children were without a parent."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("SET sql_mode=''")
    for change, error in (
        ("MODIFY g INT AS (x + 100) STORED", 1833),
        ("MODIFY g INT AS (y) STORED", 1833),
        ("MODIFY x TINYINT", 1833),
        ("MODIFY x TINYINT, DROP PRIMARY KEY", 1833),
        ("MODIFY y TINYINT", 0),
        ("MODIFY g INT", 0),
        ("FORCE, ALGORITHM=COPY", 0),
        ("ADD z INT FIRST, ALGORITHM=COPY", 0),
    ):
        session.run("DROP TABLE IF EXISTS c, p")
        session.run("CREATE TABLE p (id INT PRIMARY KEY, x INT, y INT, g INT AS (x) STORED, UNIQUE (g))")
        session.run("CREATE TABLE c (id INT PRIMARY KEY, pid INT, CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (g))")
        session.run("INSERT INTO p (id, x, y) VALUES (1, 700, 5), (2, 7, 6)")
        session.run("INSERT INTO c VALUES (1, 700), (2, 7)")
        before = session.run("SHOW CREATE TABLE p"), session.run("SELECT * FROM p")
        alter = f"ALTER TABLE p {change}"
        equal(session.error(alter), error, alter)
        if error:
            equal((session.run("SHOW CREATE TABLE p"), session.run("SELECT * FROM p")), before, alter)
        equal(session.run("CHECK TABLE c EXTENDED")[-1][3], "OK", alter)
        equal(len(session.run("CHECK TABLE c EXTENDED")), 1, alter)
        equal(session.error("DELETE FROM p"), 1451, alter)
        if error:
            session.run("SET foreign_key_checks=0")
            session.run(alter)
            session.run("SET foreign_key_checks=1")
    # One of the table itself that goes with the same ALTER.
    session.run("DROP TABLE c, p")
    session.run(
        "CREATE TABLE p (id INT PRIMARY KEY, x INT, up INT, g INT AS (x) STORED, UNIQUE (g), CONSTRAINT f FOREIGN KEY (up) REFERENCES p (g))"
    )
    session.run("INSERT INTO p (id, x, up) VALUES (1, 700, 700)")
    equal(session.error("ALTER TABLE p MODIFY g INT AS (x + 1) STORED"), 1833, "its own")
    session.run("ALTER TABLE p DROP FOREIGN KEY f, MODIFY g INT AS (x + 1) STORED")


def scenario_parents_that_use_a_default(env: Env) -> None:
    """A referenced generated column that is computed of another column's default: its values are other ones only if an ALTER may
    give a default. Every copy of such a table was refused."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    for change, error in (
        ("FORCE, ALGORITHM=COPY", 0),
        ("ADD z INT FIRST, ALGORITHM=COPY", 0),
        ("DROP w, ALGORITHM=COPY", 0),
        ("ADD CHECK (x < 1000), ALGORITHM=COPY", 0),
        ("ALTER y SET DEFAULT 6", 1833),
        ("ALTER y SET DEFAULT 6, ALGORITHM=COPY", 1833),
        ("ALTER y DROP DEFAULT, ALGORITHM=COPY", 1833),
        ("MODIFY y INT DEFAULT 6, ALGORITHM=COPY", 1833),
        ("CHANGE y y INT DEFAULT 6, ALGORITHM=COPY", 1833),
    ):
        session.run("DROP TABLE IF EXISTS c, p")
        session.run(
            "CREATE TABLE p (id INT PRIMARY KEY, x INT, y INT DEFAULT 5, w INT, g INT AS (x + DEFAULT(y)) STORED, UNIQUE (g))"
        )
        session.run("CREATE TABLE c (id INT PRIMARY KEY, pid INT, CONSTRAINT f FOREIGN KEY (pid) REFERENCES p (g))")
        session.run("INSERT INTO p (id, x) VALUES (1, 700), (2, 7)")
        session.run("INSERT INTO c VALUES (1, 705), (2, 12)")
        alter = f"ALTER TABLE p {change}"
        equal(session.error(alter), error, alter)
        equal(session.run("SELECT g FROM p ORDER BY id"), [(705,), (12,)], alter)
        equal(len(session.run("CHECK TABLE c EXTENDED")), 1, alter)
        equal(session.error("DELETE FROM p"), 1451, alter)


def scenario_duplicates_in_a_parents_new_key(env: Env) -> None:
    """ALTER TABLE of a parent with a new key that its rows do not satisfy says which value is there twice (1062), though Ferrite
    copies where InnoDB does not: the server said of the copy that a parent cannot be deleted (1834)."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"SET default_storage_engine={engine}")
        seen: list[object] = []
        for change in (
            "ADD UNIQUE u (a)",
            "ADD UNIQUE u (a), ADD z INT FIRST",
            "DROP PRIMARY KEY, ADD PRIMARY KEY (a), ADD KEY (id)",
            "ADD UNIQUE u (a), ADD z INT FIRST, ALGORITHM=COPY",
        ):
            for ignore in ("", "IGNORE "):
                session.run("DROP TABLE IF EXISTS c, p")
                session.run("CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT)")
                session.run("CREATE TABLE c (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))")
                session.run("INSERT INTO p VALUES (1, 5, 1), (2, 6, 2), (3, 5, 3)")
                alter = f"ALTER {ignore}TABLE p {change}"
                seen.append((alter, session.answer(alter), session.warnings()))
                seen.append(session.run("SELECT * FROM p ORDER BY id"))
        return seen

    env.same_as_innodb(play)


def scenario_a_refused_foreign_key_names_the_table(env: Env) -> None:
    """What refuses ALTER TABLE ... ADD FOREIGN KEY names the altered table, not the copy that it fills: `#mysql50##sql-alter-...`."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("CREATE TABLE p (id INT PRIMARY KEY)")
    session.run("CREATE TABLE o (x INT, CONSTRAINT taken FOREIGN KEY (x) REFERENCES p (id))")
    session.run("CREATE TABLE c (x INT)")
    session.run("INSERT INTO c VALUES (7)")
    for add, error in (
        ("ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id)", 1452),
        ("ADD CONSTRAINT taken FOREIGN KEY (x) REFERENCES p (id)", 1005),
        ("ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES nix (id)", 1005),
    ):
        for rename in ("", ", RENAME TO d"):
            alter = f"ALTER TABLE c {add}{rename}"
            equal(session.error(alter), error, alter)
            said = [text for _, _, text in session.warnings()]
            expect(not any("#" in text for text in said), alter, said)
            expect("`corners`.`c`" in said[0], alter, said)
    latest = "SELECT child_table FROM information_schema.FERRITE_FOREIGN_KEY_ERRORS ORDER BY number DESC LIMIT 1"
    equal(session.run(latest), [("corners/c",)], "the latest")


def _begins_to_copy(session: Session, running: Running, other: Session) -> bool:
    look = f"SELECT STATE FROM information_schema.PROCESSLIST WHERE ID = {session.id}"
    while running.thread.is_alive():
        if "copy to tmp table" in str(other.run(look)):
            return True
    return False


def scenario_a_child_comes_while_its_parent_is_copied_to_another_name(env: Env) -> None:
    """A child that is made beside ALTER TABLE p ..., RENAME TO q has q as its parent: p was kept from being dropped, so that
    both stayed in the engine, where the server did not know of p any more."""
    hits = 0
    for _ in range(10):
        env.fresh_database()
        session, other = env.session(), env.session()
        session.run("SET default_storage_engine=FERRITE")
        session.run("CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(200))")
        session.run("INSERT INTO p SELECT seq, REPEAT('x', 100) FROM seq_1_to_100000")
        running = session.start("ALTER TABLE p ADD z INT FIRST, RENAME TO q")
        if not _begins_to_copy(session, running, other):
            continue
        made = other.answer(
            "CREATE TABLE c (id INT PRIMARY KEY, x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id)) ENGINE=FERRITE"
        )
        is_beside = running.thread.is_alive()
        equal(running.answer(), [], "ALTER")
        if not is_beside or made != []:
            continue
        hits += 1
        names = other.run("SELECT REF_NAME FROM information_schema.FERRITE_SYS_FOREIGN WHERE ID = 'corners/f'")
        equal(names, [("corners/q",)], "the child's parent")
        other.run("INSERT INTO c VALUES (1, 7)")
        equal(other.error("INSERT INTO c VALUES (2, 100001)"), 1452, "no parent")
        equal(other.error("DELETE FROM q WHERE id = 7"), 1451, "a child")
        other.run("CREATE TABLE p (id INT PRIMARY KEY) ENGINE=FERRITE")
        equal(other.run("CHECK TABLE c EXTENDED")[-1][3], "OK", "CHECK")
        break
    expect(hits > 0, "no child came beside the copy")


def scenario_a_copy_with_a_taken_constraint_name(env: Env) -> None:
    """ALTER TABLE that copies a table to another database, in which another one has its constraint's name, is refused (1050), and
    the table stays; InnoDB, asked for a copy, loses the constraint. The database had the name twice."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("CREATE OR REPLACE DATABASE corners2")
    session.run("CREATE TABLE p (id INT PRIMARY KEY)")
    session.run("CREATE TABLE c (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))")
    session.run("CREATE TABLE corners2.d (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES corners.p (id))")
    definition = session.run("SHOW CREATE TABLE c")
    for algorithm in ("", ", ALGORITHM=COPY"):
        alter = f"ALTER TABLE c ADD z INT FIRST{algorithm}, RENAME TO corners2.c"
        equal(session.error(alter), 1050, alter)
        equal(session.run("SHOW CREATE TABLE c"), definition, alter)
        equal(session.error("CREATE TABLE e (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))"), 1005, alter)
    equal(session.error("INSERT INTO c VALUES (1)"), 1452, "the constraint is there")
    session.run("ALTER TABLE corners2.d DROP FOREIGN KEY f")
    session.run("ALTER TABLE c ADD z INT FIRST, RENAME TO corners2.c")
    equal(session.error("INSERT INTO corners2.c VALUES (0, 1)"), 1452, "and goes with the table")
    session.run("CREATE TABLE e (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))")
    session.run("DROP DATABASE corners2")


def scenario_copies_of_what_does_not_fit(env: Env) -> None:
    """A foreign key that does not fit, as it was made with foreign_key_checks=0 before its parent, does not keep either table from
    being altered: InnoDB copies less. Ferrite refused the copy's name (1025)."""

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run(f"SET default_storage_engine={engine}, foreign_key_checks=0")
        session.run("DROP TABLE IF EXISTS c, p")
        session.run(
            "CREATE TABLE c (id INT PRIMARY KEY, v VARCHAR(8), CONSTRAINT f FOREIGN KEY (v) REFERENCES p (v)) CHARSET=utf8mb3"
        )
        session.run("CREATE TABLE p (v VARCHAR(8) PRIMARY KEY) CHARSET=latin1")
        session.run("SET foreign_key_checks=1")
        changes = ("c FORCE", "p FORCE", "c ADD z INT FIRST", "p ADD z INT FIRST")
        seen: list[object] = [(change, session.answer(f"ALTER TABLE {change}")) for change in changes]
        return [*seen, _constraints(session, "c")]

    env.same_as_innodb(play)
