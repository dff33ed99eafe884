"""Cascades into a table with a VECTOR INDEX, which the server keeps for the rows that it changes itself (since 11.7)."""

from __future__ import annotations

from corners.env import Env, Session, equal

ROWS = 12
NEAR = "VEC_DISTANCE_EUCLIDEAN(v, VEC_FromText('[0,0]')) LIMIT 100"


def _has_vectors(env: Env) -> bool:
    return tuple(int(part) for part in env.server.places.version.split(".")[:2]) >= (11, 7)


def _sound(session: Session, what: str, table: str = "c") -> None:
    """The index finds the rows that are there, in the same order, and the table's keys fit its rows."""
    for columns in ("id", "id, p"):
        found = session.run(f"SELECT {columns} FROM {table} ORDER BY {NEAR}")
        wanted = session.run(f"SELECT {columns} FROM {table} IGNORE INDEX (v) ORDER BY {NEAR}")
        equal(found, wanted, f"{what}: by the vector index")
    equal(session.run(f"CHECK TABLE {table} EXTENDED")[-1][3], "OK", what)


def _family(session: Session, action: str, options: str = "", column: str = "p INT") -> None:
    """Parents 1 to 4, each with three children."""
    session.run("DROP TABLE IF EXISTS c, p")
    session.run("CREATE TABLE p (id INT PRIMARY KEY, u INT, KEY (u)) ENGINE=FERRITE")
    session.run(
        f"CREATE TABLE c (id INT, {column}, v VECTOR(2) NOT NULL, PRIMARY KEY (id, p), VECTOR INDEX v (v), KEY (p),"
        f" FOREIGN KEY (p) REFERENCES p (id) {action}) ENGINE=FERRITE {options}"
        if "NOT NULL" in column
        else f"CREATE TABLE c (id INT PRIMARY KEY, {column}, v VECTOR(2) NOT NULL, VECTOR INDEX v (v), KEY (p),"
        f" FOREIGN KEY (p) REFERENCES p (id) {action}) ENGINE=FERRITE {options}"
    )
    session.run("INSERT INTO p VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
    session.run(
        f"INSERT INTO c SELECT seq, 1 + seq % 4, VEC_FromText(CONCAT('[', seq, ',', seq, ']')) FROM seq_1_to_{ROWS}"
    )


def scenario_cascade_into_a_vector_index(env: Env) -> None:
    """What a cascade deletes, or gives another primary key, goes from the index, or moves: the index had too few of
    the other rows, and a row could neither come again nor be deleted."""
    if not _has_vectors(env):
        return
    session = env.session()
    for options in ("", "WITH SYSTEM VERSIONING"):
        for locked in (False, True):
            _family(session, "ON DELETE CASCADE", options)
            if locked:
                session.run("LOCK TABLES p WRITE, c WRITE")
            session.run("DELETE FROM p WHERE id = 2")
            session.run("DELETE FROM p WHERE id = 3")
            _sound(session, f"DELETE {options}")
            session.run("INSERT INTO p VALUES (2, 2)")
            session.run("INSERT INTO c VALUES (1, 2, VEC_FromText('[1,1]')), (5, 2, VEC_FromText('[0.5,0.5]'))")
            _sound(session, f"come again {options}")
            session.run("REPLACE INTO p VALUES (2, 3)")
            session.run("DELETE FROM c WHERE id = 3")
            _sound(session, f"REPLACE {options}")
            session.run("UNLOCK TABLES")

        _family(session, "ON UPDATE CASCADE ON DELETE CASCADE", options, "p INT NOT NULL")
        session.run("UPDATE p SET id = 20 WHERE id = 2")
        _sound(session, f"UPDATE of the primary key {options}")
        session.run("BEGIN")
        session.run("UPDATE p SET id = id + 100 ORDER BY id DESC")
        _sound(session, f"UPDATE within a transaction {options}")
        session.run("ROLLBACK")
        _sound(session, f"ROLLBACK {options}")
        session.run("DELETE FROM c WHERE p = 20")
        _sound(session, f"DELETE after the cascade {options}")

        _family(session, "ON UPDATE CASCADE ON DELETE SET NULL", options)
        session.run("UPDATE p SET id = 20 WHERE id = 2")
        session.run("DELETE FROM p WHERE id = 1")
        _sound(session, f"no part of the primary key {options}")
        session.run("DELETE FROM c WHERE p IS NULL")
        session.run("DELETE FROM c WHERE p = 20")
        _sound(session, f"DELETE after SET NULL {options}")


def scenario_a_tree_with_a_vector_index(env: Env) -> None:
    """A cascade that comes back to its own table, where the record is used for another row meanwhile."""
    if not _has_vectors(env):
        return
    session = env.session()
    for options in ("", "WITH SYSTEM VERSIONING"):
        session.run(
            "CREATE OR REPLACE TABLE c (id INT PRIMARY KEY, p INT, v VECTOR(2) NOT NULL, VECTOR INDEX v (v), KEY (p),"
            f" FOREIGN KEY (p) REFERENCES c (id) ON DELETE CASCADE) ENGINE=FERRITE {options}"
        )
        session.run(
            "INSERT INTO c SELECT seq, IF(seq = 1, NULL, seq DIV 2), VEC_FromText(CONCAT('[', seq, ',1]'))"
            " FROM seq_1_to_40 ORDER BY seq"
        )
        session.run("DELETE FROM c WHERE id = 5")
        equal(session.value("SELECT COUNT(*) FROM c"), 40 - 8, options)
        _sound(session, f"a part of the tree {options}")
        session.run("INSERT INTO c SELECT seq, 1, VEC_FromText(CONCAT('[', seq, ',1]')) FROM seq_10_to_11")
        session.run("DELETE FROM c WHERE id = 3")
        _sound(session, f"another part {options}")
        session.run("DELETE FROM c")
        equal(session.run(f"SELECT id FROM c ORDER BY {NEAR}"), [], options)


def scenario_a_cascade_that_fails_and_a_vector_index(env: Env) -> None:
    """A row that is undone with all that followed is undone in what the server has of the index in memory, too."""
    if not _has_vectors(env):
        return
    session = env.session()
    for again in ("DELETE IGNORE FROM p ORDER BY id", "UPDATE IGNORE p SET id = id + 10 ORDER BY id"):
        _family(session, "ON DELETE CASCADE ON UPDATE CASCADE", "", "p INT NOT NULL")
        session.run("DROP TABLE IF EXISTS z")
        session.run(
            "CREATE TABLE z (id INT PRIMARY KEY, p INT, KEY (p), FOREIGN KEY (p) REFERENCES p (id)) ENGINE=FERRITE"
        )
        session.run("INSERT INTO z VALUES (1, 2), (2, 3)")
        session.run("BEGIN")
        session.run("INSERT INTO c VALUES (40, 1, VEC_FromText('[40,40]')), (41, 2, VEC_FromText('[41,41]'))")
        session.run(again)
        equal(session.run("SELECT COUNT(*) FROM c WHERE p IN (2, 3)"), [(7,)], again)
        _sound(session, f"{again}, within the transaction")
        session.run("INSERT INTO c SELECT 50 + seq, 2, VEC_FromText(CONCAT('[', seq, '.5,1]')) FROM seq_1_to_9")
        equal(session.error("DELETE FROM p WHERE id = 2"), 1451, again)
        session.run("INSERT INTO c SELECT 60 + seq, 3, VEC_FromText(CONCAT('[', seq, '.6,1]')) FROM seq_1_to_9")
        _sound(session, f"{again}, and later statements")
        session.run("COMMIT")
        _sound(session, again)
        session.run("FLUSH TABLES")
        _sound(session, f"{again}, read anew")
        session.run("DELETE FROM z")
        session.run("DELETE FROM p")
        equal(session.run(f"SELECT id FROM c ORDER BY {NEAR}"), [], again)
        session.run("DROP TABLE z")


def scenario_a_refused_drop_keeps_the_vector_index(env: Env) -> None:
    """The server drops the index of a parent first, and then the parent: one that is refused had lost its index, and took no
    rows any more."""
    if not _has_vectors(env):
        return
    session = env.session()
    session.run("CREATE TABLE p (id INT PRIMARY KEY, u INT, v VECTOR(2) NOT NULL, VECTOR INDEX v (v)) ENGINE=FERRITE")
    session.run("CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id)) ENGINE=FERRITE")
    session.run(f"INSERT INTO p SELECT seq, seq, VEC_FromText(CONCAT('[', seq, ',1]')) FROM seq_1_to_{ROWS}")
    equal(session.error("DROP TABLE p"), 1451, "a child")
    session.run("INSERT INTO p VALUES (100, 1, VEC_FromText('[3.5,1]'))")
    equal(session.run("CHECK TABLE p EXTENDED")[-1][3], "OK", "refused for a child")
    session.run("DROP TABLE c")
    found = session.run("SELECT id FROM p ORDER BY VEC_DISTANCE_EUCLIDEAN(v, VEC_FromText('[3.4,1]')) LIMIT 1")
    equal(found, [(100,)], "by the index")
    session.run("DROP TABLE p")
