"""Databases that older versions have left: each is opened, read whole, changed, and opened again.

`databases/NAME.tar.xz` holds the files of a database (`#ferrite` and the server's .frm files) and `rows.json`: what
was in it. There is one for each version of the checkpoint's state, shut down cleanly, and for the newest one that
was killed. A new version of anything on disk brings a new file, made with the plugin of that moment:

    HA_FERRITE_SO=... ./ferrite test corners --make-database NAME [--killed]
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

from corners.env import Env, Failed, Session, equal, expect, options
from lib.server import ServerFailed

FOLDER = Path(__file__).resolve().parent / "databases"
OPTIONS = ["--ferrite-log-budget=16M"]
DATABASE = "kept"
CHANGED = {
    "plain": "INSERT INTO plain (n, word) VALUES (77, 'new')",
    "nameless": "INSERT INTO nameless VALUES (77, 'new')",
    "long_values": "UPDATE long_values SET b = CONCAT(b, 'x') WHERE id % 3 = 0",
    "parts": "DELETE FROM parts WHERE a % 5 = 0",
    "gone": "INSERT INTO gone VALUES (1, 'again')",
}


def digest(session: Session, table: str) -> list[Any]:
    """How many rows a table has, and a sum over all of them."""
    rows = sorted(repr(row) for row in session.run(f"SELECT * FROM {DATABASE}.{table}"))
    return [len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()]


def state_of(session: Session) -> dict[str, list[Any]]:
    """The digests of all tables."""
    return {table: digest(session, table) for table in CHANGED}


def _unpack(env: Env, name: str) -> dict[str, Any]:
    """Puts the kept files in place of the server's; what they hold."""
    env.stop()
    shutil.rmtree(env.datadir / "#ferrite")
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        archive.extractall(env.datadir, filter="data")
    told = env.datadir / "rows.json"
    wanted: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    told.unlink()
    return wanted


def _files(env: Env) -> dict[str, str]:
    files = (f for f in (env.datadir / "#ferrite").iterdir() if f.name != "ferrite.lock")
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def _check(session: Session) -> None:
    for table in CHANGED:
        name = f"{DATABASE}.{table}"
        equal(session.answer(f"CHECK TABLE {name} EXTENDED"), [(name, "check", "status", "OK")], "CHECK TABLE")


def _says_deltas(env: Env) -> None:
    """An older version refuses a database with feature bit 5, which each has that this one has opened."""
    superblock = (env.datadir / "#ferrite" / "superblock").read_bytes()
    for copy in (0, 4096):
        features = int.from_bytes(superblock[copy + 24 : copy + 32], "little")
        expect(features & 32 != 0, "the superblock does not say that there may be deltas", features)


def _refer(session: Session) -> None:
    """Foreign keys to an old table: it says that it must be rebuilt, or it need not be."""
    for child in ("refers", "refers_too"):
        create = f"CREATE TABLE {child} (n INT, FOREIGN KEY (n) REFERENCES gone (a)) ENGINE=FERRITE"
        if session.error(create):
            expect("ALTER TABLE `kept`.`gone` FORCE" in session.warnings()[0][2], "advice", session.warnings())
            session.run("ALTER TABLE gone FORCE")
            session.run(create)
        equal(session.error(f"INSERT INTO {child} VALUES (-99)"), 1452, "a child without a parent")
        session.run(f"INSERT INTO {child} VALUES (1)")
    equal(session.error("DROP TABLE gone"), 1451, "the parent")
    session.run("DROP TABLE refers, refers_too")


def _goes_on(env: Env, name: str) -> None:
    wanted = _unpack(env, name)
    env.start()
    session = env.session(DATABASE)
    prepared = [bytes(row[3]).decode() for row in session.run("XA RECOVER")]
    equal(prepared, wanted["prepared"], "prepared transactions")
    for xid in prepared:
        session.run(f"XA COMMIT '{xid}'")
    equal(state_of(session), wanted["rows"], "rows")
    _says_deltas(env)
    _check(session)
    for change in CHANGED.values():
        session.run(change)
    key = session.value("SELECT MAX(id) FROM plain")
    expect(key > wanted["auto_increment"] - 1, "AUTO_INCREMENT went back", (key, wanted["auto_increment"]))
    expect(session.value("SELECT NEXTVAL(numbers)") >= wanted["sequence"], "the sequence went back")
    session.run("ALTER TABLE plain ADD INDEX (word, n)")
    session.run("CREATE TABLE young (a INT PRIMARY KEY) ENGINE=FERRITE AS SELECT id AS a FROM plain")
    _refer(session)
    after = state_of(session)
    for again in (env.restart, env.crash):
        again()
        session = env.session(DATABASE)
        equal(state_of(session), after, "rows after the next start")
        _check(session)
    session.run(f"DROP DATABASE {DATABASE}")


@options(*OPTIONS)
def scenario_state_1(env: Env) -> None:
    """A database of 0.1.0, shut down cleanly."""
    _goes_on(env, "state-1")


@options(*OPTIONS)
def scenario_state_1_killed(env: Env) -> None:
    """One of 0.1.0 that was killed has log that cannot be read: it is refused as a format, and not touched."""
    _unpack(env, "state-1-killed")
    before = _files(env)
    try:
        env.start()
    except ServerFailed:
        expect("shut it down cleanly" in env.log(), "an error without advice", env.server.log_tail(8))
        equal(_files(env), before, "files after the refusal")
        shutil.rmtree(env.datadir / "#ferrite")
        env.start()
        return
    raise Failed("the database was opened")


@options(*OPTIONS)
def scenario_state_2(env: Env) -> None:
    """The undo of long transactions has a file of its own; shut down cleanly."""
    _goes_on(env, "state-2")


@options(*OPTIONS)
def scenario_state_2_killed(env: Env) -> None:
    """As before, killed with a transaction open and one prepared."""
    _goes_on(env, "state-2-killed")


@options(*OPTIONS)
def scenario_state_3(env: Env) -> None:
    """A checkpoint names the ids that come next; shut down cleanly."""
    _goes_on(env, "state-3")


@options(*OPTIONS)
def scenario_state_4(env: Env) -> None:
    """A checkpoint tells how far the log was durable; shut down cleanly."""
    _goes_on(env, "state-4")


@options(*OPTIONS)
def scenario_state_4_killed(env: Env) -> None:
    """As before, killed with a transaction open and one prepared."""
    _goes_on(env, "state-4-killed")


@options(*OPTIONS)
def scenario_deltas(env: Env) -> None:
    """Pages have deltas; shut down cleanly."""
    _goes_on(env, "deltas")


@options(*OPTIONS)
def scenario_deltas_killed(env: Env) -> None:
    """As before, killed with a transaction open and one prepared."""
    _goes_on(env, "deltas-killed")
