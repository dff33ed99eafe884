"""An encrypted database: nothing of a row is readable in its files, and everything that is done with the files of a plain one is
done with these: crashes, backups, snapshots, rewinds. Keys that are missing, wrong or new."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pymysql

from backup import main as backup
from lib.engines import engine
from lib.places import Places, find_places
from lib.server import Server, ServerFailed, home_in_memory, stop_on_signals
from snapshots import main as snapshots
from snapshots.opened import opened
from snapshots.work import Failed, ferrite_check, fill

VARIABLE = "FERRITE_ENCRYPTION_KEYS"
KEYS = "1;000102030405060708090a0b0c0d0e0f\n2;00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff # the second\n"
WRONG = KEYS.replace("0001", "1000").replace("0011", "1100")
SMALL = ["--ferrite-buffer-pool-size=8M", "--ferrite-log-budget=16M", "--ferrite-history-ring-size=1M"]
MARK = "NOBODY-MAY-READ-THIS"


def _say(text: str) -> None:
    print(text, flush=True)


def _options(keys: Path) -> list[str]:
    return [
        "--plugin-load-add=file_key_management.so",
        f"--file-key-management-filename={keys}",
        "--ferrite-encrypt=1",
        "--ferrite=FORCE",
    ]


def _must(condition: object, what: str, seen: object = "") -> None:
    if not condition:
        raise Failed(f"{what}: {seen}")


def _run(server: Server, *statements: str) -> Any:
    """The last one's rows."""
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(sql)
        return cursor.fetchall()


def _refused(server: Server, sql: str, words: str) -> None:
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        said = ""
        try:
            cursor.execute(sql)
        except Exception as e:
            said = str(e)
        cursor.execute("SHOW WARNINGS")
        said += str(cursor.fetchall())
    _must(words in said, sql, said)


# ---- nothing readable --------------------------------------------------------------------------


def _readable(directory: Path) -> list[str]:
    """Files with the mark in them. One that is renamed before it is read (a segment of the log is used again) is looked for
    under its new name."""
    mark = MARK.encode()
    found: list[str] = []
    read: set[str] = set()
    while new := _files(directory) - read:
        for name in new:
            with contextlib.suppress(FileNotFoundError):
                content = (directory / name).read_bytes()
                read.add(name)
                if mark in content:
                    found.append(name)
    return found


def _files(directory: Path) -> set[str]:
    """Names of its files, by the listing alone: none is left out because it has another name by now."""
    with os.scandir(directory) as entries:
        return {entry.name for entry in entries if entry.is_file()}


def _write_everywhere(server: Server) -> None:
    """Rows, values out of line, undo in its own file, versions in scratch files, entries that are sorted, a long log."""
    old = server.connect(database="test", autocommit=False)
    with contextlib.closing(old), old.cursor() as reader:
        _run(
            server,
            "CREATE TABLE m (id INT PRIMARY KEY, s VARCHAR(600), b LONGTEXT, KEY (s)) ENCRYPTED=YES COMPRESSION=none",
            f"INSERT INTO m SELECT seq, RPAD(CONCAT('{MARK}', seq), 500, '{MARK}'), REPEAT('{MARK}', 20) FROM seq_1_to_30000",
            f"INSERT INTO m SELECT 100000 + seq, '', REPEAT('{MARK}', 5000) FROM seq_1_to_40",
        )
        _run(server, "ALTER TABLE m ADD INDEX a (s, id), ADD INDEX b (s), ADD INDEX c (s(590)), ALGORITHM=INPLACE")
        reader.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        reader.execute("SELECT COUNT(*) FROM m")
        changing = server.connect(database="test", autocommit=False)
        with contextlib.closing(changing), changing.cursor() as cursor:
            cursor.execute("UPDATE m SET s = CONCAT(id, s)")
            _look(server, "a long transaction")
            cursor.execute("COMMIT")
        _run(server, "DELETE FROM m WHERE id < 20000", "SELECT SLEEP(0.5)")
        _look(server, "an old snapshot beside a DELETE")
        reader.execute("SELECT COUNT(*), SUM(s LIKE '%THIS%'), MIN(LENGTH(b)) FROM m")
        _must(reader.fetchone()[:2] == (30040, 30000), "what the snapshot sees")


def _look(server: Server, when: str) -> None:
    found = _readable(server.datadir / "#ferrite") + _readable(server.datadir.parent)
    _must(not found, f"readable beside {when}", found)


def _unreadable(server: Server) -> None:
    names: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.002):
            with contextlib.suppress(OSError):
                names.update(file.name.split(".")[0] for file in (server.datadir / "#ferrite").iterdir())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        _write_everywhere(server)
    finally:
        stop.set()
        watcher.join()
    wanted = {"store", "redo", "map", "checkpoint", "history", "sort", "encryption", "superblock"}
    _must(wanted <= names, "kinds of files that were there", names)
    server.kill()
    _look(server, "kill -9")
    server.start()
    _must(_run(server, "CHECK TABLE m EXTENDED")[0][3] == "OK", "CHECK after recovery")
    _must(_run(server, "SELECT COUNT(*) FROM m WHERE b LIKE 'NOBODY%'") == ((10041,),), "rows after recovery")
    kept = int(_run(server, "SHOW GLOBAL STATUS LIKE 'Ferrite_second_tier_written'")[0][1])
    _must(kept > 0, "bytes in the second tier", kept)
    server.stop()
    _look(server, "a clean shutdown")
    _must(ferrite_check(server).returncode == 0, "ferrite-check", ferrite_check(server).stdout)
    server.start()
    _refused(server, "FLUSH TABLES m FOR EXPORT", "would not be")
    _refused(server, "CREATE TABLE n (a INT PRIMARY KEY) ENCRYPTED=NO", "has no effect")
    _refused(server, "CREATE TABLE o (a INT PRIMARY KEY) ENCRYPTED=YES ENCRYPTION_KEY_ID=7", "has no effect")
    _run(server, "ALTER TABLE n ENCRYPTED=YES", "DROP TABLE m, n, o")
    _say("nothing of a row is readable in any file")


def _tier_of_a_plain_name(server: Server) -> None:
    """Files of some names are never encrypted: a second tier may not be one of them."""
    kept = server.options
    for name in ("superblock.tier", "encryption.tier", "creating"):
        server.stop()
        server.options = [*kept, f"--ferrite-second-tier={server.datadir.parent / name},64M"]
        server.start()
        _must("files of that name are not" in server.log_tail(200), f"{name} is refused", server.log_tail(20))
    server.options = kept
    server.stop()
    server.start()


# ---- keys --------------------------------------------------------------------------------------


def _does_not_start(server: Server, words: str) -> None:
    try:
        server.start()
    except ServerFailed:
        log = server.log_tail()
        _must(words in log, f"why it does not start, '{words}'", log)
        return
    raise Failed(f"it starts, and must not: {words}")


def _keys(server: Server, keys: Path) -> None:
    """Without its key the database does not open, with it again it is as it was; the key can be another one from now on."""
    truth = _run(server, "CHECKSUM TABLE account EXTENDED")
    server.stop()
    keys.write_text(WRONG, encoding="ascii")
    _does_not_start(server, "encryption key 1 (version 1) is not the one with which the database was encrypted")
    check = ferrite_check(server)
    _must(check.returncode == 2 and "is not the one" in check.stderr, "ferrite-check with a wrong key", check.stderr)
    keys.write_text(KEYS.split("\n", 1)[1], encoding="ascii")
    _does_not_start(server, "is encrypted with key 1 (version 1), which the server does not have")
    os.environ.pop(VARIABLE)
    check = ferrite_check(server)
    _must(check.returncode == 2 and "no keys were given" in check.stderr, "ferrite-check without keys", check.stderr)
    os.environ[VARIABLE] = str(keys)
    keys.write_text(KEYS, encoding="ascii")
    server.start()
    _refused(server, "SET GLOBAL ferrite_encryption_key_id = 3", "no encryption key 3")
    _run(server, "SET GLOBAL ferrite_encryption_key_id = 2")
    server.kill()
    _lost_first_key(server, keys)
    _must(_run(server, "CHECKSUM TABLE account EXTENDED") == truth, "rows under the second key")
    _lost_file(server)
    _must(_run(server, "CHECKSUM TABLE account EXTENDED") == truth, "rows when the file is back")
    _say("keys: missing, wrong and new ones")


def _lost_first_key(server: Server, keys: Path) -> None:
    """file_key_management insists on a key 1: another one, which nothing is encrypted with any more."""
    keys.write_text("1;ffffffffffffffffffffffffffffffff\n" + KEYS.split("\n", 1)[1], encoding="ascii")
    server.start()


def _lost_file(server: Server) -> None:
    server.stop()
    file = server.datadir / "#ferrite" / "encryption"
    aside = file.with_name("aside")
    file.rename(aside)
    server.everywhere.remove("--ferrite-encrypt=1")
    _does_not_start(server, "the file encryption with its key is missing")
    damaged = bytearray(aside.read_bytes())
    damaged[40] ^= 1
    file.write_bytes(damaged)
    _does_not_start(server, "encryption: checksum differs")
    server.everywhere.append("--ferrite-encrypt=1")
    aside.rename(file)
    server.start()


# ---- from plain to encrypted and back ----------------------------------------------------------


def _tool(*words: str | Path) -> None:
    run = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, timeout=300)
    _must(run.returncode == 0, " ".join(str(w) for w in words), run.stdout + run.stderr)


def _restored(places: Places, taken: backup.Taken, *how: str) -> Server:
    server = Server(places, engine("ferrite"), SMALL, home_in_memory())
    server.create()
    shutil.rmtree(server.datadir / "test")
    shutil.copytree(taken.home / "test", server.datadir / "test")
    _tool(os.environ["FERRITE_BACKUP"], "restore", taken.ferrite, "--into", server.datadir, *how)
    server.start()
    return server


def _take(server: Server, home: Path) -> backup.Taken:
    taken = backup.Taken(server, home, None)
    taken.begin()
    taken.fix()
    state, error = taken.wait()
    _must(state == "COMPLETE", "the backup", error)
    taken.close()
    return taken


def _begin_there(server: Server, place: Path, barrier: threading.Barrier, went: list[Any]) -> None:
    connection = server.connect(autocommit=True)
    with connection.cursor() as cursor:
        barrier.wait()
        try:
            cursor.execute(f"SET GLOBAL ferrite_backup_dir = '{place}'")
            went.append(connection)
        except pymysql.err.Error:
            connection.close()


def _many_begin(server: Server, home: Path) -> None:
    """Of backups that begin in one new directory at once one goes on, and keeps its key."""
    begun = 0
    for number in range(20):
        place = home / f"both{number}"
        barrier = threading.Barrier(8)
        went: list[Any] = []
        threads = [threading.Thread(target=_begin_there, args=(server, place, barrier, went)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        _must(len(went) <= 1, "two backups at once", went)
        begun += len(went)
        for connection in went:
            _must((place / "encryption").exists(), "a backup without its key", sorted(place.iterdir()))
            connection.close()
        until = time.monotonic() + 30
        while _run(
            server, "SELECT COUNT(*) FROM information_schema.FERRITE_BACKUP WHERE state IN ('WAITING', 'COPYING')"
        )[0][0]:
            _must(time.monotonic() < until, "the backup goes on")
            time.sleep(0.02)
    _must(begun, "no backup began")
    _say(f"eight backups begin in one directory at once: {begun} of 20 times one did, with its key")


def _snapshot_is_not_exported(server: Server, home: Path) -> None:
    """A server that has an encrypted snapshot open exports nothing either."""
    _run(server, "SET GLOBAL ferrite_snapshot_create = 'travels'")
    second = Server(
        server.places,
        engine("ferrite"),
        [f"--ferrite-open-snapshot={server.datadir}:travels", "--read-only=1"],
        home / "travels",
    )
    try:
        second.start()
        _refused(second, "FLUSH TABLES account FOR EXPORT", "would not be")
        _refused(second, "SET GLOBAL ferrite_encryption_key_id = 2", "belongs to another server")
        second.stop()
    finally:
        second.remove()
    _run(server, "SET GLOBAL ferrite_snapshot_drop = 'travels'")


def _foreign_key_file(server: Server, other: Path) -> None:
    """The key of another database is told from its own; a creation that was cut off is no database."""
    server.stop()
    file = server.datadir / "#ferrite" / "encryption"
    own = file.read_bytes()
    file.write_bytes((other / "#ferrite" / "encryption").read_bytes())
    _does_not_start(server, "the file encryption is of another database")
    file.write_bytes(own)
    shutil.rmtree(other / "#ferrite")
    (other / "#ferrite").mkdir()
    (other / "#ferrite" / "encryption.new").write_bytes(b"\0" * 512)
    server.start()


def _option_without_encryption(server: Server) -> None:
    """A table that says it is encrypted, and is not any more, can be altered; that is not how one gets there."""
    _refused(server, "ALTER TABLE account ENCRYPTED=YES", "needs an encrypted database")
    for sql in ("ALTER TABLE account ADD COLUMN c INT", "OPTIMIZE TABLE account", "ALTER TABLE account FORCE"):
        _run(server, sql)
    _run(server, "CREATE TABLE alike LIKE account", "ALTER TABLE alike ENCRYPTED=DEFAULT")
    _refused(server, "CREATE TABLE alike2 (a INT PRIMARY KEY) ENCRYPTED=YES", "needs an encrypted database")
    _run(server, "CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB ENCRYPTED=YES")
    _refused(server, "ALTER TABLE i ENGINE=FERRITE", "needs an encrypted database")
    _run(server, "DROP TABLE alike, i")


def _converted(places: Places, work: Path) -> None:
    """A plain database is refused where an encrypted one is wished for; backup and restore make it one, and plain again."""
    encrypt = Server.everywhere.pop(Server.everywhere.index("--ferrite-encrypt=1"))
    plain = Server(places, engine("ferrite"), SMALL, home_in_memory())
    try:
        plain.start()
        _refused(plain, "CREATE TABLE e (a INT PRIMARY KEY) ENCRYPTED=YES", "needs an encrypted database")
        _refused(plain, "SET GLOBAL ferrite_encryption_key_id = 1", "is not encrypted")
        _run(
            plain,
            "CREATE TABLE account (n INT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(99))",
            f"INSERT INTO account SELECT seq, 1000, '{MARK}' FROM seq_1_to_{backup.KEYS}",
        )
        _refused(plain, "ALTER TABLE account ENCRYPTED=YES", "needs an encrypted database")
        taken = _take(plain, work / "plain")
        _must(_readable(taken.ferrite), "the mark in a plain backup")
        plain.stop()
        plain.options = [*SMALL, encrypt]
        _does_not_start(plain, "ferrite_encrypt is ON, and the database is not encrypted")
    finally:
        plain.remove()
    other = _restored(places, taken, "--encrypt", "2")
    try:
        _must(not _readable(other.datadir / "#ferrite"), "readable in what was restored encrypted")
        wrong = subprocess.run(
            [os.environ["FERRITE_BACKUP"], "restore", taken.ferrite, "--into", work, "--encrypt", "9"], check=False
        )
        _must(wrong.returncode == 2 and not (work / "#ferrite").exists(), "restored with a key that is not there")
        truth = _run(other, "CHECKSUM TABLE account EXTENDED")
        _run(other, "ALTER TABLE account ENCRYPTED=YES", "UPDATE account SET v = v + 1 WHERE n = 1")
        _run(other, "UPDATE account SET v = v - 1 WHERE n = 1")
        again = _take(other, work / "encrypted")
        _must(not _readable(again.ferrite), "readable in a backup")
        third = Server(places, engine("ferrite"), [*SMALL, encrypt], home_in_memory())
        try:
            third.start()
            third.stop()
            _foreign_key_file(other, third.datadir)
            third.start()
        finally:
            third.remove()
    finally:
        other.remove()
    back = _restored(places, again, "--decrypt")
    try:
        _must(_run(back, "CHECKSUM TABLE account EXTENDED") == truth, "rows after all that")
        _must(not (back.datadir / "#ferrite" / "encryption").exists(), "a key where nothing is encrypted")
        _option_without_encryption(back)
    finally:
        back.remove()
        Server.everywhere.append(encrypt)
    _say("a plain database becomes an encrypted one and a plain one again")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="tests/encryption/run.sh", description=__doc__)
    parser.add_argument("--ci", action="store_true", help="the short version")
    parser.add_argument("--rounds", type=int, help="backups and snapshots under load (10; 2 with --ci)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    stop_on_signals()
    places = find_places()
    rounds = options.rounds or (2 if options.ci else 10)
    home = home_in_memory()
    keys = home / "keys"
    keys.write_text(KEYS, encoding="ascii")
    os.environ[VARIABLE] = str(keys)
    Server.everywhere = _options(keys)
    tier = f"--ferrite-second-tier={home / 'server' / 'second.tier'},64M"
    server = Server(places, engine("ferrite"), [*backup.OPTIONS, *SMALL[2:], tier], home / "server")
    work = home / "work"
    work.mkdir()
    begun = time.monotonic()
    try:
        server.start()
        _unreadable(server)
        _tier_of_a_plain_name(server)
        fill(server)
        backup.under_load(places, server, work, rounds, 4, options.seed)
        snapshots.under_load(server, rounds, 4, options.seed)
        opened(server, home, snapshots.rewound, _say)
        snapshots.cut_off(server, rounds, options.seed)
        _many_begin(server, work)
        _snapshot_is_not_exported(server, home)
        _keys(server, keys)
        server.stop()
        keys.write_text(KEYS, encoding="ascii")
        _converted(places, work)
    except Failed as e:
        _say(f"FAILED: {e}\n{server.log_tail()}")
        return 1
    finally:
        server.remove()
        shutil.rmtree(home, ignore_errors=True)
    _say(f"encryption: passed, {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
