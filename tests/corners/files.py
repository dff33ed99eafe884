"""Ferrite's files: what is left of deleted rows in them, and what a start makes of lost ones."""

from __future__ import annotations

import contextlib
from pathlib import Path

from corners.env import Env, Session, equal, expect, options
from lib.server import ServerFailed

SECRET = "TopSecretWord"
ROWS = 20_000


def _files_telling(env: Env) -> list[str]:
    """Files that hold something of a deleted row."""
    word = SECRET.encode()
    return sorted(f.name for f in (env.datadir / "#ferrite").iterdir() if word in f.read_bytes())


def _delete_secrets(env: Env, session: Session) -> None:
    """Rows between others deleted, a table dropped, values out of line replaced; purged when this returns."""
    secret = f"CONCAT('{SECRET}', seq, REPEAT('x', seq MOD 200))"
    for table in ("t", "gone"):
        session.run(f"CREATE TABLE {table} (id INT PRIMARY KEY, b LONGTEXT, k INT, KEY (k)) ENGINE=FERRITE")
    session.run(f"INSERT INTO t SELECT seq, IF(seq % 3, {secret}, 'kept'), seq % 7 FROM seq_1_to_{ROWS}")
    session.run(f"INSERT INTO gone SELECT seq, {secret}, seq % 7 FROM seq_1_to_{ROWS}")
    session.run(f"INSERT INTO t SELECT {ROWS} + seq, REPEAT('{SECRET}', 3000), 1 FROM seq_1_to_20")
    session.run(f"UPDATE t SET b = 'short' WHERE id > {ROWS}")
    session.run("DELETE FROM t WHERE id % 3")
    session.run("DROP TABLE gone")
    value = "SHOW GLOBAL STATUS LIKE 'Ferrite_history_list_length'"
    env.eventually("the end of purge", lambda: int(session.run(value)[0][1]) == 0)


@options("--ferrite-scrub=ON", "--ferrite-log-budget=16M")
def scenario_scrubbed_rows_are_in_no_file(env: Env) -> None:
    """With ferrite_scrub nothing of deleted rows is in any file after a clean shutdown."""
    session = env.session()
    _delete_secrets(env, session)
    left = session.run("SELECT COUNT(*), MIN(b), MAX(b) FROM t")
    expect(int(session.run("SHOW GLOBAL STATUS LIKE 'Ferrite_scrubbed_bytes'")[0][1]) >= 0, "no such counter")
    env.stop()
    equal(_files_telling(env), [], "files with something of deleted rows")
    env.start()
    session = env.session()
    equal(session.run("SELECT COUNT(*), MIN(b), MAX(b) FROM t"), left, "the rows that stay")
    equal(session.answer("CHECK TABLE t EXTENDED")[0][3], "OK", "CHECK TABLE")  # type: ignore[index]


@options("--ferrite-log-budget=16M")
def scenario_scrub_can_be_switched_on_later(env: Env) -> None:
    """Without ferrite_scrub the files tell; switched on at run time, they are cleaned."""
    _delete_secrets(env, env.session())
    env.stop()
    expect(bool(_files_telling(env)), "without scrubbing nothing is left either: this looks at the wrong files")
    env.start()
    session = env.session()
    session.run("SET GLOBAL ferrite_scrub = ON")
    session.run("ALTER TABLE t FORCE")
    env.stop()
    equal(_files_telling(env), [], "files with something of deleted rows")
    env.start()


@options("--ferrite-log-budget=16M")
def scenario_no_new_database_over_a_lost_superblock(env: Env) -> None:
    """A database without its superblock is not taken for an empty directory."""
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("INSERT INTO t VALUES (1)")
    env.kill()  # so that there is one checkpoint, that of the creation
    home = env.datadir / "#ferrite"
    for lost in (["superblock"], ["superblock", "checkpoint.0"]):
        _is_not_made_anew_without(env, [home / name for name in lost])
        equal(env.session().run("SELECT a FROM t"), [(1,)], f"rows once {lost} are back")
        env.kill()


def _is_not_made_anew_without(env: Env, files: list[Path]) -> None:
    """The start without these files changes nothing; the server runs again, with them, when this ends."""
    aside = [(file, env.datadir / f"{file.name}.aside") for file in files if file.exists()]
    expect(aside != [], "none of these files is there", files)
    for file, place in aside:
        file.rename(place)
    before = sorted(f.name for f in files[0].parent.iterdir())
    with contextlib.suppress(ServerFailed):
        env.start()
        # The server itself may run without the engine.
        expect(env.session(database=None).error("SELECT * FROM corners.t") != 0, "a table without its rows")
        env.kill()
    after = sorted(f.name for f in files[0].parent.iterdir())
    equal(after, before, "files after the refused start")
    for file, place in aside:
        place.rename(file)
    env.start()


@options("--ferrite-log-budget=256M")
def scenario_a_lower_log_budget_gives_files_back(env: Env) -> None:
    """SET GLOBAL ferrite_log_budget to less, and the log takes less."""
    session = env.session()
    session.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB) ENGINE=FERRITE")

    def write(mebibytes: int) -> None:
        for _ in range(mebibytes):
            session.run("INSERT INTO t (b) VALUES (REPEAT('x', 1000000))")

    def log_bytes() -> int:
        # A file that is renamed between the list and the look counts all the same: the whole sum again.
        while True:
            with contextlib.suppress(FileNotFoundError):
                return sum(f.stat().st_size for f in (env.datadir / "#ferrite").glob("redo.*"))

    write(300)
    expect(log_bytes() > 250 << 20, "the log has grown", log_bytes())
    session.run("SET GLOBAL ferrite_log_budget = 16 * 1024 * 1024")
    write(20)
    # Files are of 64 MiB each: the budget may lie across two, and two more are spare.
    env.eventually("files given back", lambda: log_bytes() <= 4 * (64 << 20), seconds=60)


def scenario_wrong_frm_file_is_kept(env: Env) -> None:
    """A .frm file that is not the table's is refused and stays where it is; the right one opens the table again."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a INT) ENGINE=FERRITE")
    session.run("CREATE TABLE other (id INT PRIMARY KEY, b VARCHAR(20), KEY (b)) ENGINE=FERRITE")
    session.run("INSERT INTO t VALUES (1, 2)")
    here = env.datadir / "corners"
    right, wrong = (here / "t.frm").read_bytes(), (here / "other.frm").read_bytes()
    session.run("FLUSH TABLES")
    (here / "t.frm").write_bytes(wrong)
    for _ in range(2):
        equal(session.error("SELECT * FROM t"), 1030, "the answer under another definition")
        equal((here / "t.frm").read_bytes(), wrong, "the file")
    expect("restore the matching .frm file" in env.log(), "the error log says nothing")
    session.run("FLUSH TABLES")
    (here / "t.frm").write_bytes(right)
    equal(session.run("SELECT * FROM t"), [(1, 2)], "the rows under the right definition")
