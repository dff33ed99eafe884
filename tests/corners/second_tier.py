"""Pages that are also kept on a faster device (ferrite_second_tier): its file may be anything, and go at any time."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from random import Random

from corners.env import Env, Session, equal, expect

OPTIONS = ["--ferrite-buffer-pool-size=8M", "--skip-log-bin"]
ROWS = 40_000


def _tier(env: Env, size: str = "64M", name: str = "second.tier") -> str:
    return f"--ferrite-second-tier={env.datadir.parent / name},{size}"


def _file(env: Env) -> Path:
    return env.datadir.parent / "second.tier"


def _status(session: Session, name: str) -> int:
    return int(session.run(f"SHOW GLOBAL STATUS LIKE 'Ferrite_second_tier_{name}'")[0][1])


def _tables(session: Session) -> None:
    """The same rows in both engines, several times the buffer pool."""
    text = "REPEAT(CHAR(65 + seq % 26), 300)"
    for engine in ("ferrite", "innodb"):
        session.run(f"CREATE TABLE {engine} (a INT PRIMARY KEY, b INT, c VARCHAR(400), KEY (b)) ENGINE={engine}")
        session.run(f"INSERT INTO {engine} SELECT seq, seq * 7919 % {ROWS}, {text} FROM seq_1_to_{ROWS}")


def _change(session: Session, rng: Random) -> None:
    low = rng.randrange(ROWS)
    for engine in ("ferrite", "innodb"):
        session.run(f"UPDATE {engine} SET c = CONCAT(b, c) WHERE a BETWEEN {low} AND {low + 200}")
        session.run(f"DELETE FROM {engine} WHERE b BETWEEN {low} AND {low + 20}")


def _compare(session: Session) -> None:
    """By the primary key, and row by row in the order of the other index."""
    for force in ("FORCE INDEX (PRIMARY)", "FORCE INDEX (b)"):
        sums = "COUNT(*), SUM(a), SUM(CRC32(c))"
        answers = [session.run(f"SELECT {sums} FROM {e} {force} WHERE b >= 0") for e in ("ferrite", "innodb")]
        equal(answers[0], answers[1], force)


def scenario_pages_come_from_it(env: Env) -> None:
    """After a restart as well; after kill -9 it is empty, and all rows are there."""
    env.restart(_tier(env))
    rng, session = Random(1), env.session()
    _tables(session)
    for _ in range(10):
        _change(session, rng)
    _compare(session)
    expect(_status(session, "on") == 1 and _status(session, "hits") > 1000, "pages were read from it")
    pages = _status(session, "pages")
    env.restart(_tier(env))
    session = env.session()
    found = _status(session, "pages")
    expect(found > pages // 2, "pages after a restart", (found, pages))
    before = _status(session, "misses")
    _compare(session)
    expect(_status(session, "misses") - before < 200, "misses after a restart", _status(session, "misses"))
    for life in range(3):
        _change(session, rng)
        env.crash(_tier(env))
        session = env.session()
        equal(_status(session, "pages") < 600, True, "pages after kill -9")
        _compare(session)
        if life == 1:
            # A life without it, in which pages change.
            env.restart()
            session = env.session()
            _change(session, rng)
            env.restart(_tier(env))
            session = env.session()
            _compare(session)
    equal(session.run("CHECK TABLE ferrite EXTENDED")[0][3], "OK", "CHECK TABLE")
    equal(_status(session, "damaged"), 0, "damaged")
    shown = session.run("SELECT bytes FROM information_schema.ferrite_memory WHERE part = 'second tier'")
    expect(shown[0][0] > 1 << 20, "its memory is shown", shown)


def scenario_its_file_goes_bad(env: Env) -> None:
    """Cut off, or overwritten, while the server runs: pages come from the store, and the log says so."""
    env.restart(_tier(env))
    session = env.session()
    _tables(session)
    _compare(session)
    with _file(env).open("r+b") as file:
        for at in range(1 << 20, 64 << 20, 1 << 14):
            file.seek(at)
            file.write(os.urandom(64))
    _compare(session)
    expect(_status(session, "damaged") > 0, "damage is counted")
    env.restart(_tier(env))
    session = env.session()
    _compare(session)
    os.truncate(_file(env), 1 << 20)
    _compare(session)
    equal(_status(session, "on"), 0, "it is switched off")
    expect("is switched off until the next start" in env.log(), "the log says so")
    _change(session, Random(2))
    env.restart(_tier(env))
    _compare(env.session())
    equal(_status(env.session(), "on"), 1, "and on again")


def scenario_what_cannot_be_one(env: Env) -> None:
    """The server starts without, says why, and touches no file of others."""
    session = env.session()
    _tables(session)
    letter = env.datadir.parent / "letter"
    letter.write_text("Dear Sir", encoding="ascii")
    wrong = {
        f"--ferrite-second-tier={letter},64M": "is no second tier",
        "--ferrite-second-tier=/no/such/directory/file,64M": "/no/such/directory",
        "--ferrite-second-tier=file,64M": "no directory",
        f"--ferrite-second-tier={letter}": "no size",
        f"--ferrite-second-tier={env.datadir}/#ferrite/store.0001,64M": "a database's own files",
        _tier(env, "900T"): "from 4194304 to",
        # More than the file system holds, whatever others free meanwhile.
        _tier(
            env, f"{os.statvfs(env.datadir).f_blocks * os.statvfs(env.datadir).f_frsize // 2**20 + 1000}M"
        ): "disk full",
        _tier(env, "1M"): "from 4194304 to",
        _tier(env, "many"): "no size that can be read",
    }
    for option, why in wrong.items():
        env.restart(option)
        lines = [line for line in env.log().splitlines() if "there is no second tier" in line]
        expect(bool(lines) and why in lines[-1], f"{option}: {why}", lines[-1:])
        session = env.session()
        equal(_status(session, "on"), 0, option)
        equal(session.value("SELECT COUNT(*) FROM ferrite"), ROWS, "rows")
    equal(letter.read_text(encoding="ascii"), "Dear Sir", "somebody else's file")
    equal(session.error("SET GLOBAL ferrite_second_tier = ''"), 1238, "it is read-only")


def scenario_two_servers_do_not_share_one(env: Env) -> None:
    """The second server goes on without."""
    _file(env).touch()
    with _file(env).open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        env.restart(_tier(env))
        equal(_status(env.session(), "on"), 0, "on")
        expect("another server uses it" in env.log(), "the log says so")
    env.restart(_tier(env))
    equal(_status(env.session(), "on"), 1, "on, once the other is gone")
