"""Backups: what would leave Ferrite's rows out says so, what holds them starts with them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from corners.env import Env, Session, equal, expect, options
from lib.extra import fetched
from lib.server import Server

REFUSED = 4148
# mariadb-backup asks for its privileges.
GRANTS = "--skip-grant-tables=0"


def _backup(env: Env, target: Path, *more: str) -> subprocess.CompletedProcess[str] | None:
    """One run of mariadb-backup; None where there is none."""
    program = fetched("backup_tool", "FERRITE_MARIADB_BACKUP")
    if not program:
        print("skipped: the package mariadb-backup cannot be fetched", flush=True)
        return None
    line = [str(program), "--no-defaults", *more, f"--target-dir={target}"]
    if "--backup" in more:
        line += [f"--socket={env.server.socket}", "--user=root", f"--datadir={env.datadir}"]
    return subprocess.run(
        line, env=env.server.places.child_env(), capture_output=True, text=True, timeout=120, check=False
    )


@contextmanager
def _server_on(env: Env, files: Path) -> Iterator[tuple[Server, Session]]:
    """A second server on a data directory that lies in `files`."""
    home = Path(tempfile.mkdtemp(prefix="ferrite-test-", dir=env.server.home.parent))
    other = Server(env.server.places, env.server.engine, env.server.options, home)
    try:
        shutil.move(files, other.datadir)
        other.create()
        other.start()
        yield other, Session(other.connect(database="corners", autocommit=True))
    finally:
        other.remove()


def _rows(session: Session) -> None:
    session.run("CREATE TABLE t (a INT PRIMARY KEY, b TEXT) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, REPEAT('x', seq) FROM seq_1_to_500")
    session.run("CREATE TABLE p (a INT PRIMARY KEY) ENGINE=FERRITE PARTITION BY HASH (a) PARTITIONS 2")
    session.run("INSERT INTO p SELECT seq FROM seq_1_to_500")


@options(GRANTS)
def scenario_mariadb_backup_fails(env: Env) -> None:
    """mariadb-backup of a server with Ferrite tables fails, at once, and says why; nothing stays locked."""
    s = env.session()
    _rows(s)
    target = env.server.home / "backup"
    run = _backup(env, target, "--backup")
    if run is None:
        return
    expect(run.returncode != 0, "the backup says that it is complete", run.stderr[-500:])
    expect("no rows of 3 FERRITE tables" in run.stderr, "the reason", run.stderr[-2000:])
    expect("no rows of 3 FERRITE tables" in env.log(), "the reason in the error log")
    s.run("INSERT INTO t VALUES (1000, '')")
    s.run("ALTER TABLE t ADD c INT")
    s.run("DROP TABLE t, p")
    run = _backup(env, env.server.home / "second", "--backup")
    expect(run is not None and run.returncode == 0, "a backup without Ferrite tables", run and run.stderr[-2000:])


@options(GRANTS)
def scenario_a_copy_without_rows_says_so(env: Env) -> None:
    """A server that was restored from a backup without #ferrite says so, in its log and to clients."""
    s = env.session()
    _rows(s)
    s.run("SET GLOBAL ferrite_allow_backup_stage=1")
    target = env.server.home / "backup"
    run = _backup(env, target, "--backup")
    if run is None:
        return
    equal(run.returncode, 0, "mariadb-backup where it is allowed")
    run = _backup(env, target, "--prepare")
    expect(run is not None and run.returncode == 0, "--prepare", run and run.stderr[-2000:])
    with _server_on(env, target) as (other, session):
        log = other.error_log.read_text(errors="replace")
        expect("THE ROWS OF 2 TABLES ARE MISSING" in log, "the error log", other.log_tail())
        expect("corners.p" in log and "corners.t" in log, "the names", other.log_tail())
        for table in ("t", "p"):
            equal(session.error(f"SELECT * FROM {table}"), 1932, f"error of table {table}")
            said = str(session.warnings())
            expect("rows are not in the directory #ferrite" in said, "the error's words", said)
        session.run("DROP TABLE t")
        session.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")


def scenario_backup_stage_is_refused(env: Env) -> None:
    """BACKUP STAGE START fails while there are Ferrite tables, unless the session allows it."""
    s, other = env.session(), env.session()
    s.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    equal(other.error("BACKUP STAGE START"), REFUSED, "BACKUP STAGE START")
    other.run("BACKUP STAGE END")
    other.run("SET ferrite_allow_backup_stage=1")
    for stage in ("START", "FLUSH", "BLOCK_DDL", "BLOCK_COMMIT"):
        other.run(f"BACKUP STAGE {stage}")
    waits = s.start("INSERT INTO t VALUES (1)")
    expect(waits.waits(), "a commit beside BLOCK_COMMIT")
    other.run("BACKUP STAGE END")
    equal(waits.answer(), [], "the commit after END")
    s.run("CREATE TEMPORARY TABLE t2 (a INT PRIMARY KEY) ENGINE=FERRITE")
    s.run("DROP TABLE t")
    env.session().run("BACKUP STAGE START")


def scenario_no_table_is_made_in_a_backup_that_would_miss_it(env: Env) -> None:
    """A backup that began when there was no Ferrite table sees none come."""
    s, other = env.session(), env.session()
    s.run("CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB")
    other.run("BACKUP STAGE START")
    equal(s.error("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE"), REFUSED, "CREATE TABLE")
    equal(s.error("ALTER TABLE i ENGINE=FERRITE"), REFUSED, "ALTER TABLE ... ENGINE")
    s.run("CREATE TEMPORARY TABLE mine (a INT PRIMARY KEY) ENGINE=FERRITE")
    other.close()
    env.eventually("the end of the backup", lambda: not s.error("ALTER TABLE i ENGINE=FERRITE"))
    s.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")


@options()
def scenario_a_snapshot_of_the_volume_is_a_backup(env: Env) -> None:
    """The files of one moment, as a snapshot of the volume has them, start with every acknowledged commit."""
    s = env.session()
    _rows(s)
    assert env.server.child
    for number in range(3):
        s.run(f"INSERT INTO t SELECT 1000 * ({number} + 1) + seq, REPEAT('y', 500) FROM seq_1_to_400")
        copy = env.server.home / f"copy{number}"
        # No process writes between the first and the last byte: what LVM, ZFS and the like do.
        os.kill(env.server.child.pid, signal.SIGSTOP)
        try:
            shutil.copytree(env.datadir, copy)
        finally:
            os.kill(env.server.child.pid, signal.SIGCONT)
        with _server_on(env, copy) as (_, session):
            equal(session.value("SELECT COUNT(*) FROM t"), 500 + 400 * (number + 1), "rows in the copy")
            equal(session.value("SELECT COUNT(*) FROM p"), 500, "rows in the partitions")
            equal(session.answer("CHECK TABLE t EXTENDED"), [("corners.t", "check", "status", "OK")], "CHECK TABLE")


def scenario_a_backup_outlives_a_look_at_time_zones(env: Env) -> None:
    """The server reads mysql.time_zone* as a connection of its own within this one: its end ends no backup."""
    s, other = env.session(), env.session()
    s.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    for table in (
        "time_zone",
        "time_zone_name",
        "time_zone_transition",
        "time_zone_transition_type",
        "time_zone_leap_second",
    ):
        s.run(f"ALTER TABLE mysql.{table} ENGINE=FERRITE")
    target = env.server.home / "hot"
    target.mkdir()
    s.run(f"SET GLOBAL ferrite_backup_dir = '{target}'")
    state = "SELECT state, error FROM information_schema.FERRITE_BACKUP"
    equal(other.run(state), [("WAITING", None)], "the backup has begun")
    equal(s.error("SET time_zone = 'Nowhere/At_all'"), 1298, "an unknown zone")
    equal(other.run(state), [("WAITING", None)], "the backup goes on")
    s.close()
    env.eventually("the backup ends with its connection", lambda: other.run(state)[0][0] == "FAILED")


@options(GRANTS)
def scenario_a_stage_of_another_account(env: Env) -> None:
    """A backup waits for a stage of its own account: another's mariadb-backup fails as ever, and does not take its point in time."""
    s = env.session()
    _rows(s)
    s.run("CREATE USER other IDENTIFIED BY 'secret'")
    s.run("GRANT RELOAD, PROCESS, SELECT ON *.* TO other")
    other = Session(env.server.connect(user="other", password="secret", autocommit=True))
    target = env.server.home / "hot"
    s.run(f"SET GLOBAL ferrite_backup_dir = '{target}'")
    equal(other.error("BACKUP STAGE START"), REFUSED, "another account's BACKUP STAGE START")
    said = str(other.warnings())
    expect("waits for a stage of 'root'@'localhost'" in said and "'other'@'%'" in said, "the reason", said)
    other.run("BACKUP STAGE BLOCK_COMMIT")
    other.run("BACKUP STAGE END")
    state = "SELECT state, error FROM information_schema.FERRITE_BACKUP"
    equal(s.run(state), [("WAITING", None)], "the backup waits on")
    # A connection of its own, as mariadb-backup has one.
    stages = env.session()
    stages.run("BACKUP STAGE START")
    stages.run("BACKUP STAGE BLOCK_COMMIT")
    stages.run("BACKUP STAGE END")
    env.eventually("the backup is complete", lambda: s.run(state)[0][0] == "COMPLETE")
    said = f"has its point in time: the end of the BACKUP STAGE of connection {stages.id}, 'root'@'localhost'"
    expect(said in env.log(), "what the error log says", env.log()[-1000:])
    s.run("SET GLOBAL ferrite_backup_max_rate = 1")
    s.run(f"SET GLOBAL ferrite_backup_dir = '{env.server.home / 'second'}'")
    stages.run("BACKUP STAGE START")
    stages.run("BACKUP STAGE BLOCK_COMMIT")
    stages.run("BACKUP STAGE END")
    equal(stages.error("BACKUP STAGE START"), REFUSED, "a stage too many")
    said = str(stages.warnings())
    expect("waits for no stage any more" in said and "'root'@'localhost'" in said, "the reason", said)
    stages.run("BACKUP STAGE END")
    s.run("SET GLOBAL ferrite_backup_dir = ''")


@options(GRANTS)
def scenario_default_needs_the_privileges_too(env: Env) -> None:
    """SET GLOBAL ... = DEFAULT of what begins and ends backups and snapshots is refused to whom a value is."""
    s = env.session()
    _rows(s)
    s.run("CREATE USER other IDENTIFIED BY 'secret'")
    s.run("GRANT SUPER, PROCESS, SELECT ON *.* TO other")
    other = Session(env.server.connect(user="other", password="secret", autocommit=True))
    s.run("SET GLOBAL ferrite_backup_base = '/nowhere'")
    s.run("SET GLOBAL ferrite_snapshot_create = 'kept'")
    refused = 1227
    for name in ("backup_base", "snapshot_create", "snapshot_drop"):
        equal(other.error(f"SET GLOBAL ferrite_{name} = DEFAULT"), refused, f"DEFAULT of {name}")
        equal(other.error(f"SET GLOBAL ferrite_{name} = ''"), refused, f"a value of {name}")
    equal(s.value("SELECT @@ferrite_backup_base"), "/nowhere", "the base")
    equal(s.value("SELECT @@ferrite_snapshot_create"), "kept", "the last snapshot taken")
    s.run("SET GLOBAL ferrite_backup_base = DEFAULT")
    s.run(f"SET GLOBAL ferrite_backup_dir = '{env.server.home / 'hot'}'")
    equal(other.error("SET GLOBAL ferrite_backup_dir = DEFAULT"), refused, "DEFAULT of backup_dir")
    state = "SELECT state FROM information_schema.FERRITE_BACKUP"
    equal(s.run(state), [("WAITING",)], "the backup goes on")
    s.run("SET GLOBAL ferrite_backup_dir = DEFAULT")
    # The thread that copies notices it.
    env.eventually("who may ends it", lambda: s.run(state) == [("FAILED",)])
