"""Crash recovery and a database that cannot be opened: recovery runs once, so it must not run without Ferrite."""

from __future__ import annotations

import dataclasses
import threading
import time
from pathlib import Path

import pymysql

from corners.env import Env, Session, equal, expect, options
from lib.server import ServerFailed

WRITERS = 4
SECONDS = 1.0
# With Ferrite as the default engine the server would end by itself.
OTHER_DEFAULT = "--default-storage-engine=InnoDB"


def _write(session: Session, number: int, acknowledged: list[int]) -> None:
    """Rows until the server is gone; those that it has answered for."""
    row = number * 1_000_000
    try:
        while True:
            session.run(f"INSERT INTO t VALUES ({row})")
            acknowledged.append(row)
            row += 1
    except pymysql.err.MySQLError:
        pass


def _kill_under_load(env: Env) -> set[int]:
    """Rows that were acknowledged before kill -9."""
    env.session().run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    acknowledged: list[list[int]] = [[] for _ in range(WRITERS)]
    sessions = [env.session() for _ in range(WRITERS)]
    writers = [
        threading.Thread(target=_write, args=(session, number, acknowledged[number]), daemon=True)
        for number, session in enumerate(sessions)
    ]
    for writer in writers:
        writer.start()
    time.sleep(SECONDS)
    env.eventually("some rows are acknowledged", lambda: sum(map(len, acknowledged)) > WRITERS)
    env.server.kill()
    env.down_on_purpose = True
    for writer in writers:
        writer.join()
    env.close_sessions()
    rows = {row for rows in acknowledged for row in rows}
    expect(len(rows) > WRITERS, "too few rows", len(rows))
    return rows


def _must_not_start(env: Env, *more_options: str) -> None:
    before = len(env.log())
    try:
        env.start(*more_options)
    except ServerFailed:
        told = env.log()[before:]
        expect("cannot open the database" in told, "why", told)
        expect("committed before a crash would be lost" in told, "why the server ends", told)
        expect("got signal" not in told, "it ends in order", told)
        return
    expect(False, "the server has started without its database")


@options("--log-bin=corners-bin", OTHER_DEFAULT)
def scenario_acknowledged_rows(env: Env) -> None:
    """After kill -9, starts that cannot open the database do not start; the one that can has all acknowledged rows."""
    rows = _kill_under_load(env)
    _must_not_start(env, "--ferrite-encrypt=ON")
    superblock = env.datadir / "#ferrite/superblock"
    aside = superblock.with_name("aside")
    superblock.rename(aside)
    # A database without a superblock is told by its second checkpoint, of which a short load has made none.
    second = superblock.with_name("checkpoint.1")
    if not second.exists():
        second.touch()
        _must_not_start(env)
        second.unlink()
    else:
        _must_not_start(env)
    aside.rename(superblock)
    env.start()
    seen = {row for (row,) in env.session().run("SELECT a FROM t")}
    equal(sorted(rows - seen), [], "acknowledged rows that are lost")
    env.restart()


def _packaged_option() -> str:
    """What the package's option file says of the plugin."""
    snippet = Path(__file__).parents[2] / "packaging/debian/60-ferrite.cnf"
    (line,) = [x for x in snippet.read_text(encoding="utf-8").splitlines() if x.startswith("loose_ferrite =")]
    return "--" + line.replace(" ", "")


@options("--log-bin=corners-bin", OTHER_DEFAULT)
def scenario_an_impossible_option(env: Env) -> None:
    """With the package's options the server does not start either if the plugin's options cannot be read."""
    rows = _kill_under_load(env)
    try:
        env.start(_packaged_option(), "--ferrite-log-budget=nonsense")
        expect(False, "the server has started without its database")
    except ServerFailed:
        pass
    env.start(_packaged_option())
    seen = {row for (row,) in env.session().run("SELECT a FROM t")}
    equal(sorted(rows - seen), [], "acknowledged rows that are lost")


@options(OTHER_DEFAULT)
def scenario_at_run_time(env: Env) -> None:
    """INSTALL of a plugin whose database cannot be opened fails, and the server goes on; the list of options needs none."""
    env.session().run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    env.stop()
    superblock = env.datadir / "#ferrite/superblock"
    aside = superblock.with_name("aside")
    superblock.rename(aside)
    whole, words = env.server.engine, env.server.options
    env.server.engine = dataclasses.replace(whole, plugin=None, name="InnoDB")
    env.server.options = [word for word in words if "ferrite" not in word]
    env.start()
    session = env.session()
    expect(session.error("INSTALL SONAME 'ha_ferrite'") != 0, "INSTALL SONAME must fail")
    equal(session.value("SELECT 1"), 1, "the server goes on")
    env.stop()
    aside.rename(superblock)
    env.server.engine, env.server.options = whole, words
    env.start()
    equal(env.session().run("SELECT * FROM t"), [], "the table")
