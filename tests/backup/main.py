"""Hot backups of a server that works: each is restored and compared with what was committed at its point in time."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pymysql

from backup.full import full_target, restore_fails
from backup.measure import measure
from backup.seen import Contents, Failed, contents_of, must_be_equal
from backup.seen import one as _one
from backup.seen import run as _run
from backup.seen import say as _say
from backup.tool import beside_the_tool
from backup.witness import Witness, free_port, primary_options
from lib.engines import engine
from lib.places import Places, find_places
from lib.server import Server, home_in_memory, stop_on_signals

OPTIONS = [
    "--log-bin=bin",
    "--server-id=1",
    "--sync-binlog=0",
    "--ferrite-log-budget=16M",
    "--ferrite-buffer-pool-size=8M",
]
KEYS = 4000
COMPRESSIONS = ["none", "zstd", "lz4"]
SECONDS_TO_COPY = 60.0
TOOL_ROWS = 50_000
WITNESS_EVERY = 5
"""Rounds; a replica confirms both full backups and increments."""
ALTERS = threading.Lock()
"""Held by a running ALTER TABLE, and by who blocks DDL and reads tables: an ALTER has its table alone by the time it waits
for DDL to be allowed again, and whoever reads the table then waits for it."""


class Writers:
    """Clients that change rows in transactions, and one that makes, changes and drops tables."""

    def __init__(self, server: Server, count: int, seed: int) -> None:
        self.server = server
        self.stopping = threading.Event()
        self.longest = 0.0
        self.commits = 0
        self.error: BaseException | None = None
        jobs: list[Callable[[Random], None]] = [self._rows] * count + [self._tables]
        self.threads = [
            threading.Thread(target=self._guard, args=(job, Random(seed + n))) for n, job in enumerate(jobs)
        ]
        for thread in self.threads:
            thread.start()

    def _guard(self, job: Callable[[Random], None], rng: Random) -> None:
        try:
            job(rng)
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError, ConnectionError) as e:
            if not self.stopping.is_set():
                self.error = e
        except BaseException as e:
            self.error = e

    def _rows(self, rng: Random) -> None:
        connection = self.server.connect(database="test")
        with contextlib.closing(connection), connection.cursor() as cursor:
            while not self.stopping.is_set():
                try:
                    cursor.execute("BEGIN")
                    for _ in range(rng.randint(1, 4)):
                        a, b, sum_ = rng.randrange(KEYS), rng.randrange(KEYS), rng.randrange(100)
                        cursor.execute(
                            f"UPDATE account SET v = v - {sum_}, pad = REPEAT(CHAR({65 + sum_ % 26}), {sum_ * 9}) WHERE n = {a}"
                        )
                        cursor.execute(f"UPDATE account SET v = v + {sum_} WHERE n = {b}")
                    cursor.execute(
                        f"REPLACE big VALUES ({rng.randrange(60)}, REPEAT('{chr(97 + rng.randrange(26))}', {rng.randrange(60000)}))"
                    )
                    begun = time.monotonic()
                    cursor.execute("COMMIT")
                    self.longest = max(self.longest, time.monotonic() - begun)
                    self.commits += 1
                except pymysql.err.OperationalError as e:
                    if e.args[0] not in (1205, 1213):
                        raise
                    cursor.execute("ROLLBACK")

    def _tables(self, rng: Random) -> None:
        connection = self.server.connect(database="test", autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            while not self.stopping.is_set():
                name = f"t{rng.randrange(6)}"
                sql = rng.choice(
                    [
                        f"CREATE TABLE IF NOT EXISTS {name} (a INT PRIMARY KEY, b INT) COMPRESSION={rng.choice(COMPRESSIONS)}",
                        f"ALTER TABLE {name} COMPRESSION={rng.choice(COMPRESSIONS)}",
                        f"DROP TABLE IF EXISTS {name}",
                        f"ALTER TABLE {name} ADD COLUMN c{rng.randrange(4)} INT DEFAULT 5",
                        f"ALTER TABLE {name} ADD INDEX k{rng.randrange(3)} (b)",
                        f"TRUNCATE {name}",
                        f"INSERT INTO {name} (a, b) SELECT seq, seq * 3 FROM seq_1_to_200",
                        f"RENAME TABLE {name} TO t{rng.randrange(6)}",
                    ]
                )
                with (
                    contextlib.suppress(
                        pymysql.err.ProgrammingError, pymysql.err.IntegrityError, pymysql.err.OperationalError
                    ),
                    ALTERS if sql.startswith("ALTER") else contextlib.nullcontext(),
                ):
                    cursor.execute(sql)
                time.sleep(0.01)

    def stop(self) -> None:
        """End them; their first error is raised."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        if self.error:
            raise Failed(f"a client failed: {self.error}")


def _copy_definitions(server: Server, to: Path) -> None:
    """What a tool that copies the rest of an instance takes of a database: .frm files and db.opt."""
    (to / "test").mkdir(parents=True)
    for file in (server.datadir / "test").iterdir():
        if file.suffix in (".frm", ".opt") and not file.name.startswith("#sql"):
            shutil.copy(file, to / "test" / file.name)


class Taken:
    """A backup that is being taken: its connection, directory, and what was committed at its point."""

    def __init__(self, server: Server, home: Path, base: Taken | None) -> None:
        self.server = server
        self.home = home
        self.base = base
        self.connection = server.connect(autocommit=True)
        self.cursor = self.connection.cursor()
        self.truth: Contents = {}
        self.gtid = ""
        self.ended_in = 0.0
        home.mkdir()

    @property
    def ferrite(self) -> Path:
        """The engine's part."""
        return self.home / "ferrite"

    def begin(self) -> None:
        """It waits for its point in time."""
        base = str(self.base.ferrite) if self.base else ""
        self.cursor.execute(f"SET GLOBAL ferrite_backup_base = '{base}'")
        self.cursor.execute(f"SET GLOBAL ferrite_backup_dir = '{self.ferrite}'")

    def fix(self) -> None:
        """Its point in time: what a client sees while commits are blocked."""
        with ALTERS:
            self._fix()

    def _fix(self) -> None:
        for stage in ("START", "FLUSH", "BLOCK_DDL"):
            self.cursor.execute(f"BACKUP STAGE {stage}")
        _copy_definitions(self.server, self.home)
        self.cursor.execute("BACKUP STAGE BLOCK_COMMIT")
        reader = self.server.connect(autocommit=True)
        with contextlib.closing(reader), reader.cursor() as cursor:
            self.truth = contents_of(cursor)
            self.gtid = _one(cursor, "SELECT @@gtid_binlog_pos")
        # Without the time that this test takes to read everything.
        begun = time.monotonic()
        self.cursor.execute("BACKUP STAGE END")
        self.ended_in = time.monotonic() - begun

    def state(self) -> tuple[str, str]:
        """How far it is, and why it failed."""
        self.cursor.execute("SELECT state, IFNULL(error, '') FROM information_schema.FERRITE_BACKUP")
        return self.cursor.fetchone()

    def wait(self) -> tuple[str, str]:
        """Until it is over."""
        until = time.monotonic() + SECONDS_TO_COPY
        while time.monotonic() < until:
            state, error = self.state()
            if state not in ("WAITING", "COPYING"):
                return state, error
            time.sleep(0.05)
        raise Failed(f"the backup is not over after {SECONDS_TO_COPY} s")

    def chain(self) -> list[Path]:
        """The full backup first."""
        return [*(self.base.chain() if self.base else []), self.ferrite]

    def close(self) -> None:
        """The connection ends, and with it a backup that is not complete."""
        with contextlib.suppress(pymysql.err.Error):
            self.connection.close()


def _compare(places: Places, taken: Taken) -> Contents:
    """Restore, open, compare with the truth. What was restored."""
    server = Server(places, engine("ferrite"), ["--ferrite-log-budget=16M"], home_in_memory())
    try:
        server.create()
        shutil.rmtree(server.datadir / "test")
        shutil.copytree(taken.home / "test", server.datadir / "test")
        code, text = _run(os.environ["FERRITE_BACKUP"], "restore", *taken.chain(), "--into", server.datadir, "--quiet")
        if code:
            raise Failed(f"restore: exit code {code}: {text}")
        code, text = _run(os.environ["FERRITE_CHECK"], "--quiet", server.datadir)
        if code:
            raise Failed(f"ferrite-check of what was restored: {text}")
        server.start()
        connection = server.connect(autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            found = _look(cursor, taken.truth)
        server.stop()
        return found
    finally:
        server.remove()


def _look(cursor: Any, truth: Contents) -> Contents:
    found = contents_of(cursor)
    must_be_equal(found, truth, "restored", "at the backup")
    if int(_one(cursor, "SELECT SUM(v) FROM test.account")) != KEYS * 1000:
        raise Failed("a transaction is there in part")
    for table in truth:
        cursor.execute(f"CHECK TABLE test.{table} EXTENDED")
        answers = [row for row in cursor.fetchall() if row[3] != "OK"]
        if answers:
            raise Failed(f"CHECK TABLE {table}: {answers}")
    return found


def fill_tables(server: Server) -> None:
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE account (n INT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(1000), KEY (v))")
        cursor.execute("CREATE TABLE big (n INT PRIMARY KEY, text LONGTEXT) COMPRESSION=zstd")
        cursor.execute(f"INSERT INTO account SELECT seq, 1000, REPEAT('x', 300) FROM seq_0_to_{KEYS - 1}")


def _compress(server: Server, number: int) -> None:
    """Pages written from now on are packed in another way: blobs of other lengths, several to a block."""
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        for table, way in [("account", number // 2), ("big", number // 2 + 1)]:
            cursor.execute(f"ALTER TABLE {table} COMPRESSION={COMPRESSIONS[way % len(COMPRESSIONS)]}")


def under_load(
    places: Places,
    server: Server,
    home: Path,
    count: int,
    writers: int,
    seed: int,
    witness: Witness | None = None,
) -> None:
    """Backups under load, every second one an increment of the one before. The witness confirms every fifth, or the last of a few."""
    before: Taken | None = None
    every = min(WITNESS_EVERY, count)
    for number in range(count):
        _compress(server, number)
        clients = Writers(server, writers, seed + 100 * number)
        base = before if number % 2 else None
        taken = Taken(server, home / f"b{number}", base)
        try:
            time.sleep(0.3)
            taken.begin()
            time.sleep(Random(seed + number).random())
            taken.fix()
            state, error = taken.wait()
        finally:
            clients.stop()
        if state != "COMPLETE":
            raise Failed(f"backup {number}: {state}: {error}")
        restored = _compare(places, taken)
        confirmed = witness is not None and number % every == every - 1
        if witness and confirmed:
            witness.confirms(taken.gtid, restored)
        pages = (taken.ferrite / "pages").stat().st_size
        kind = "increment" if base else "full"
        _say(
            f"backup {number} ({kind}): {pages >> 10} KiB of pages, {clients.commits} commits beside it,"
            f" BACKUP STAGE END took {taken.ended_in * 1000:.1f} ms"
            + (f"; a replica stopped at {taken.gtid} has the same" if confirmed else "")
        )
        taken.close()
        if before and base:
            shutil.rmtree(before.home)
        before = taken
    if witness:
        witness.sees_a_change(restored)


def _rounds(places: Places, server: Server, home: Path, count: int, writers: int, seed: int, port: int) -> None:
    """Backups under load, with a witness."""
    witness = Witness(places, port)
    try:
        witness.start()
        under_load(places, server, home, count, writers, seed, witness)
    finally:
        witness.close()


def _prepared(places: Places, server: Server, home: Path) -> None:
    """A prepared transaction is prepared in what is restored; a temporary table is not there."""
    other = server.connect(database="test", autocommit=True)
    with contextlib.closing(other), other.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE mine (n INT) ENGINE=FERRITE")
        cursor.execute("XA START 'backup'")
        cursor.execute("UPDATE account SET v = v + 5 WHERE n = 7")
        cursor.execute("XA END 'backup'")
        cursor.execute("XA PREPARE 'backup'")
        taken = Taken(server, home / "xa", None)
        taken.begin()
        taken.fix()
        if taken.wait()[0] != "COMPLETE":
            raise Failed(f"with a prepared transaction: {taken.wait()}")
        cursor.execute("XA ROLLBACK 'backup'")
    copy = Server(places, engine("ferrite"), [], home_in_memory())
    try:
        copy.create()
        shutil.rmtree(copy.datadir / "test")
        shutil.copytree(taken.home / "test", copy.datadir / "test")
        code, text = _run(os.environ["FERRITE_BACKUP"], "restore", taken.ferrite, "--into", copy.datadir)
        if code:
            raise Failed(f"restore: {text}")
        copy.start()
        connection = copy.connect(database="test", autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("XA RECOVER")
            prepared = cursor.fetchall()
            if [row[3] for row in prepared] != [b"backup"]:
                raise Failed(f"prepared in the copy: {prepared}")
            cursor.execute("XA COMMIT 'backup'")
            if int(_one(cursor, "SELECT SUM(v) FROM account")) != KEYS * 1000 + 5:
                raise Failed("the prepared transaction's change is missing")
        copy.stop()
    finally:
        copy.remove()
    taken.close()
    _say("a prepared transaction is prepared in the copy")


def _refused(cursor: Any, sql: str, words: str) -> None:
    try:
        cursor.execute(sql)
    except pymysql.err.Error as e:
        if words in str(e):
            return
        raise Failed(f"{sql}: {e}, not: {words}") from e
    raise Failed(f"{sql}: accepted")


def _bad_input(server: Server, home: Path) -> None:
    """Each is refused with the file and the reason; nothing stays behind."""
    full = home / "full"
    full.mkdir()
    (full / "there").touch()
    connection = server.connect(autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        begin = "SET GLOBAL ferrite_backup_dir = "
        _refused(cursor, f"{begin}'{full}'", "full is not empty: there is there")
        _refused(cursor, f"{begin}'relative'", "not an absolute path")
        _refused(cursor, f"{begin}'{server.datadir}/inside'", "inside the data directory")
        _refused(cursor, f"{begin}'{home}/no/such'", "No such file")
        cursor.execute(f"SET GLOBAL ferrite_backup_base = '{full}'")
        _refused(cursor, f"{begin}'{home}/new'", "manifest is missing")
        cursor.execute("SET GLOBAL ferrite_backup_base = ''")
        cursor.execute(f"{begin}'{home}/first'")
        _refused(cursor, f"{begin}'{home}/second'", "is running")
        cursor.execute("BACKUP STAGE START")
        cursor.execute("BACKUP STAGE END")
        if _one(cursor, "SELECT state FROM information_schema.FERRITE_BACKUP") != "WAITING":
            raise Failed("a stage that blocked no commits was taken for the point in time")
        cursor.execute(f"{begin}''")
        until = time.monotonic() + 60
        while (state := _one(cursor, "SELECT state FROM information_schema.FERRITE_BACKUP")) != "FAILED":
            if time.monotonic() > until:
                raise Failed(f"an empty value does not end the backup: {state}")
            time.sleep(0.05)
        _refused(cursor, "BACKUP STAGE START", "would contain no rows")
        cursor.execute("BACKUP STAGE END")
    if any((home / "first").iterdir()) or (home / "second").exists() or (home / "new").exists():
        raise Failed("something is left of backups that were refused or ended")
    _say("bad input is refused")


def _killed(server: Server, home: Path) -> None:
    """KILL of the connection, and its end, end the backup."""
    for how in ("kill", "close"):
        taken = Taken(server, home / how, None)
        taken.cursor.execute("SET GLOBAL ferrite_backup_max_rate = 100000")
        taken.begin()
        taken.fix()
        other = server.connect(autocommit=True)
        with contextlib.closing(other), other.cursor() as cursor:
            if how == "kill":
                cursor.execute(f"KILL {taken.connection.thread_id()}")
            taken.close()
            until = time.monotonic() + 10
            while (state := _one(cursor, "SELECT state FROM information_schema.FERRITE_BACKUP")) != "FAILED":
                if time.monotonic() > until:
                    raise Failed(f"{how}: the backup is {state}")
                time.sleep(0.05)
            cursor.execute("SET GLOBAL ferrite_backup_max_rate = 0")
            kept = int(
                _one(
                    cursor,
                    "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Ferrite_backup_kept_bytes'",
                )
            )
        if kept or any(taken.ferrite.iterdir()):
            raise Failed(f"{how}: {kept} bytes are kept, files: {list(taken.ferrite.iterdir())}")
    _say("a backup ends with its connection")


def _crashes(places: Places, server: Server, home: Path, count: int, seed: int) -> None:
    """kill -9 in the middle: the server starts, what was cut off is refused by name, the next backup is sound."""
    rng = Random(seed)
    for number in range(count):
        clients = Writers(server, 4, seed + number)
        taken = Taken(server, home / f"crash{number}", None)
        # So slowly that it takes longer than whatever comes before the kill.
        taken.cursor.execute("SET GLOBAL ferrite_backup_max_rate = 50000")
        taken.begin()
        if number % 3:
            taken.fix()
        time.sleep(rng.random())
        clients.stopping.set()
        if taken.state()[0] not in ("WAITING", "COPYING"):
            raise Failed(f"a backup that is to be cut off: {taken.state()}")
        server.kill()
        with contextlib.suppress(Failed):
            clients.stop()
        code, text = _run(os.environ["FERRITE_BACKUP"], "verify", taken.ferrite)
        if code != 1 or "manifest is missing" not in text or str(taken.ferrite) not in text:
            raise Failed(f"a backup that was cut off: exit code {code}: {text}")
        server.start()
        after = Taken(server, home / f"after{number}", None)
        after.begin()
        after.fix()
        if after.wait()[0] != "COMPLETE":
            raise Failed(f"after a crash: {after.wait()}")
        _compare(places, after)
        after.close()
        shutil.rmtree(after.home)
        shutil.rmtree(taken.home)
    _say(f"{count} times kill -9 during a backup: server and next backup are sound")


def _damaged(server: Server, home: Path, seed: int) -> None:
    """A byte of each file changed, each file missing: named."""
    taken = Taken(server, home / "whole", None)
    taken.begin()
    taken.fix()
    if taken.wait()[0] != "COMPLETE":
        raise Failed(f"{taken.wait()}")
    rng = Random(seed)
    for file in sorted(taken.ferrite.iterdir()):
        copy = home / "damaged"
        shutil.copytree(taken.ferrite, copy)
        victim = copy / file.name
        content = bytearray(victim.read_bytes())
        if content:
            content[rng.randrange(len(content))] ^= 0x20
        else:
            content.append(0x20)
        victim.write_bytes(content)
        for what in ("changed", "missing"):
            code, text = _run(os.environ["FERRITE_BACKUP"], "verify", copy)
            if code not in (1, 2) or f"{copy}: {file.name}" not in text:
                raise Failed(f"{file.name} {what}: exit code {code}: {text}")
            victim.unlink(missing_ok=True)
        shutil.rmtree(copy)
    taken.close()
    _say("damaged and missing files are named")
    restore_fails(taken.ferrite, home / "again")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tests/backup/run.sh", description=__doc__)
    parser.add_argument("--ci", action="store_true", help="the short version")
    parser.add_argument("--rounds", type=int, help="backups under load (50; 4 with --ci)")
    parser.add_argument("--crashes", type=int, help="kill -9 during a backup (20; 2 with --ci)")
    parser.add_argument(
        "--writers", type=int, default=0, help="clients that change rows (16; 4 with --ci, but in --only measure)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--only", choices=["rounds", "crashes", "rest", "measure"], help="a part of it, without the launcher"
    )
    options = parser.parse_args()
    stop_on_signals()
    places = find_places()
    if options.only == "measure":
        return measure(places, _say, options.ci, options.writers)
    count = options.rounds or (4 if options.ci else 50)
    crashes = options.crashes or (2 if options.ci else 20)
    writers = options.writers or (4 if options.ci else 16)
    home = home_in_memory()
    port = free_port()
    server = Server(places, engine("ferrite"), [*OPTIONS, *primary_options(port)], home / "server")
    work = home / "backups"
    work.mkdir()
    try:
        server.start()
        fill_tables(server)
        if options.only in (None, "rounds"):
            _rounds(places, server, work, count, writers, options.seed, port)
        if options.only in (None, "rest"):
            _prepared(places, server, work)
            _bad_input(server, work)
            _killed(server, work)
            full_target(server, work)
            _damaged(server, work, options.seed)
        if options.only in (None, "crashes"):
            _crashes(places, server, work, crashes, options.seed)
        server.stop()
        if options.only is None:
            _say(f"{writers} clients: {beside_the_tool(writers, TOOL_ROWS)}")
    except Failed as e:
        _say(f"FAILED: {e}\n{server.log_tail()}")
        return 1
    finally:
        server.remove()
        shutil.rmtree(home, ignore_errors=True)
    _say("backup: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
