"""ALTER TABLE and foreign keys that the table has already: what they are, and what the rows of its copy must satisfy."""

from __future__ import annotations

from corners.env import Env, equal, expect


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
