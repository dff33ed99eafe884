"""Makes a database for `upgrade.py`, with the plugin that HA_FERRITE_SO names."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from corners.env import Env, Session, expect
from corners.upgrade import DATABASE, FOLDER, OPTIONS, state_of

TABLES = [
    "CREATE TABLE plain (id INT AUTO_INCREMENT PRIMARY KEY, n INT, word VARCHAR(40), UNIQUE (n), KEY (word))",
    "CREATE TABLE nameless (a INT, b CHAR(20), KEY (b))",
    "CREATE TABLE long_values (id INT PRIMARY KEY, b LONGTEXT, t TEXT, KEY (t(30)))",
    "CREATE TABLE parts (a INT PRIMARY KEY, d DATE, g INT AS (a % 7) VIRTUAL, KEY (g)) "
    "PARTITION BY HASH (a) PARTITIONS 3",
    "CREATE TABLE gone (a INT PRIMARY KEY, b CHAR(9))",
    "CREATE TABLE flushes (a INT PRIMARY KEY)",
]
FILLING = [
    "INSERT INTO plain (n, word) SELECT seq + 1000, CONCAT('word ', seq % 97) FROM seq_1_to_800",
    "DELETE FROM plain WHERE id % 10 = 3",
    "UPDATE plain SET word = REVERSE(word) WHERE id % 4 = 0",
    "INSERT INTO nameless SELECT seq, CONCAT('row ', seq) FROM seq_1_to_700",
    "DELETE FROM nameless WHERE a BETWEEN 100 AND 200",
    "INSERT INTO long_values SELECT seq, REPEAT(CHAR(64 + seq % 32), seq * 200), REPEAT(seq, 900) FROM seq_1_to_60",
    "UPDATE long_values SET b = REPEAT('long', 1500 + id) WHERE id % 6 = 0",
    "DELETE FROM long_values WHERE id % 7 = 1",
    "INSERT INTO parts (a, d) SELECT seq, '2026-01-01' + INTERVAL seq DAY FROM seq_1_to_500",
    "INSERT INTO gone SELECT seq, 'x' FROM seq_1_to_300",
    "TRUNCATE gone",
    "CREATE SEQUENCE numbers ENGINE=FERRITE",
    "SELECT NEXTVAL(numbers)",
]

TOUCHING = [
    "UPDATE plain SET word = 'touched' WHERE id = 5",
    "UPDATE nameless SET b = 'touched' WHERE a = 6",
    "DELETE FROM nameless WHERE a = 650",
    "INSERT INTO parts (a, d) VALUES (1000, '2026-02-03'), (1001, NULL)",
    "UPDATE parts SET d = '2030-01-01' WHERE a < 4",
]


def _fill(session: Session) -> None:
    session.run(f"CREATE DATABASE {DATABASE}")
    session.run(f"USE {DATABASE}")
    for statement in TABLES + FILLING:
        session.run(statement)


def _touch(env: Env) -> None:
    """Small changes of pages that were written before: they are written as deltas."""
    env.restart()
    session = env.session(DATABASE)
    for change in TOUCHING:
        session.run(change)
    env.restart()
    deltas = env.session(None).run("SHOW GLOBAL STATUS LIKE 'Ferrite_page_deltas'")[0][1]
    expect(int(deltas) > 3, "pages with deltas", deltas)


def _leave_prepared(env: Env) -> list[str]:
    """Names of the transactions that are to be committed later."""
    session = env.session(DATABASE)
    session.run("XA START 'waits'")
    session.run("INSERT INTO plain (n, word) VALUES (5, 'prepared')")
    session.run("UPDATE long_values SET b = REPEAT('p', 70000) WHERE id = 2")
    session.run("DELETE FROM parts WHERE a = 17")
    session.run("XA END 'waits'")
    session.run("XA PREPARE 'waits'")
    return ["waits"]


def _leave_open(env: Env) -> None:
    """A transaction whose log is durable and that never commits."""
    lost = env.session(DATABASE)
    lost.run("START TRANSACTION")
    lost.run("UPDATE plain SET word = 'lost' WHERE id BETWEEN 400 AND 700")
    lost.run("UPDATE long_values SET b = REPEAT('l', 5000) WHERE id > 20")
    lost.run("INSERT INTO nameless SELECT seq, 'lost' FROM seq_1_to_400")
    env.session(DATABASE).run("INSERT INTO flushes VALUES (1)")


def _state(env: Env) -> dict[str, Any]:
    """As it will be when what is prepared has been committed."""
    session = env.session(DATABASE)
    session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
    key = session.value("SELECT MAX(id) FROM plain")
    return {"rows": state_of(session), "auto_increment": key + 1, "sequence": 2}


def _pack(env: Env, target: Path) -> None:
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for name in ("rows.json", "#ferrite", DATABASE):
            archive.add(env.datadir / name, name, filter=_nobody)


def _nobody(file: tarfile.TarInfo) -> tarfile.TarInfo:
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return file


def make(name: str, killed: bool) -> None:
    """Makes `databases/NAME.tar.xz`; killed: with transactions open and prepared, by kill -9."""
    env = Env(OPTIONS)
    _fill(env.session(None))
    _touch(env)
    prepared = _leave_prepared(env) if killed else []
    state = _state(env)
    if killed:
        _leave_open(env)
    (env.kill if killed else env.stop)()
    (env.datadir / "rows.json").write_text(json.dumps({"prepared": prepared, **state}), encoding="utf-8")
    target = FOLDER / f"{name}.tar.xz"
    _pack(env, target)
    env.server.remove()
    print(target.name, target.stat().st_size, "bytes", state)
