"""DATA DIRECTORY and INDEX DIRECTORY are ignored with a warning; the directory #ferrite may be a symbolic link."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from corners.env import Env, equal, expect

IGNORED = 1618
PLACE = "/no/such/place"


def _warned(warnings: list[tuple[object, ...]], *clauses: str) -> None:
    """One warning for each clause, which names it and what to do instead."""
    texts = [str(text) for _, code, text in warnings if code == IGNORED]
    equal(len(texts), len(clauses), f"warnings {warnings}")
    for text, clause in zip(texts, clauses, strict=True):
        expect(f"{clause} ignored" in text and "#ferrite" in text, clause, text)


def scenario_clauses_are_ignored(env: Env) -> None:
    """Of tables, temporary tables, partitions; ALTER too. The definition does not keep them."""
    session = env.session()
    both = f"DATA DIRECTORY = '{PLACE}' INDEX DIRECTORY = '{PLACE}'"
    for temporary in ("", "TEMPORARY "):
        session.run(f"CREATE {temporary}TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE {both}")
        _warned(session.run("SHOW WARNINGS"), "DATA DIRECTORY", "INDEX DIRECTORY")
        session.run("INSERT INTO t VALUES (1)")
        expect("DIRECTORY" not in str(session.run("SHOW CREATE TABLE t")), "not in the definition")
        session.run("ALTER TABLE t ADD b INT, ALGORITHM=COPY")
        session.run(f"ALTER TABLE t DATA DIRECTORY = '{PLACE}'")
        equal(session.run("SELECT a, b FROM t"), [(1, None)], "rows")
        session.run(f"DROP {temporary}TABLE t")
    session.run(
        "CREATE TABLE t (a INT) ENGINE=FERRITE PARTITION BY RANGE (a) ("
        f"PARTITION p VALUES LESS THAN (5) DATA DIRECTORY = '{PLACE}', PARTITION q VALUES LESS THAN (9))"
    )
    _warned(session.run("SHOW WARNINGS"), "DATA DIRECTORY")
    session.run("INSERT INTO t VALUES (1), (7)")
    equal(session.run("SELECT COUNT(*) FROM t"), [(2,)], "rows of both partitions")


def scenario_all_files_elsewhere(env: Env) -> None:
    """What the warning says can be done works: after a shutdown, after kill -9, and with new tables."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY, b LONGTEXT) ENGINE=FERRITE")
    session.run("INSERT INTO t VALUES (1, REPEAT('x', 100000))")
    env.stop()
    own, place = env.datadir / "#ferrite", Path(tempfile.mkdtemp())
    try:
        shutil.move(str(own), place / "files")
        own.symlink_to(place / "files")
        env.start()
        session = env.session()
        session.run("CREATE TABLE u ENGINE=FERRITE SELECT * FROM t")
        env.crash()
        session = env.session()
        equal(session.run("SELECT a, LENGTH(b) FROM t UNION ALL SELECT a, LENGTH(b) FROM u"), [(1, 100000)] * 2, "rows")
        equal(session.run("CHECK TABLE t, u EXTENDED"), [(f"corners.{t}", "check", "status", "OK") for t in "tu"], "")
        databases = [name for (name,) in session.run("SHOW DATABASES")]
        expect(not any("ferrite" in str(name) for name in databases), "is no database", databases)
        env.stop()
    finally:
        if own.is_symlink():
            own.unlink()
            shutil.move(str(place / "files"), own)
        shutil.rmtree(place)
    env.start()
    equal(env.session().run("SELECT COUNT(*) FROM corners.u"), [(1,)], "and back")
