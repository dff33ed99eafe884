"""A small disk under the database that fills: what clients are told, and what the server keeps in memory then."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from corners.env import Env, Session, equal, expect, options

STRICT = "STRICT_TRANS_TABLES"


def may_mount() -> bool:
    """Can a small file system be mounted? Says so if not."""
    if os.geteuid() == 0:
        return True
    print("skipped: only root can mount a small file system", flush=True)
    return False


@contextlib.contextmanager
def mounted(env: Env, disk: Path, mebibytes: int) -> Iterator[None]:
    """A file system of that size at a new directory, from which the server is gone before it is."""
    disk.mkdir()
    size = f"size={mebibytes}m,mode=700"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(disk)], check=True, capture_output=True)
    try:
        yield
    finally:
        env.server.kill()
        env.down_on_purpose = True
        subprocess.run(["umount", "-l", str(disk)], check=False)
        disk.rmdir()


@contextlib.contextmanager
def small_disk(env: Env, mebibytes: int) -> Iterator[Path]:
    """A file system of that size for Ferrite's files. The server runs again when this begins; it is ended after it."""
    env.stop()
    disk = env.datadir / "#ferrite"
    kept = env.datadir.parent / "kept"
    disk.rename(kept)
    try:
        with mounted(env, disk, mebibytes):
            for file in kept.iterdir():
                shutil.copy2(file, disk)
            env.start()
            yield disk
    finally:
        kept.rename(disk)


def fill(disk: Path) -> Path:
    """A file that takes all that is free, again if need be."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as f, contextlib.suppress(OSError):
        for size in (1 << 20, 4096):
            while f.write(bytes(size)) == size:
                pass
    return filler


def _disk_full(session: Session) -> str:
    return str(session.run("SHOW GLOBAL STATUS LIKE 'Ferrite\\_disk\\_full'")[0][1])


def _succeeds(session: Session, statement: str) -> bool:
    return session.error(statement) == 0


def _until_refused(session: Session, statement: str) -> int:
    """Runs the statement with a new number each time until it fails; the error number."""
    for number in range(2000):
        error = session.error(statement.format(n=number))
        if error:
            return error
    raise AssertionError("the disk is full and all went in")


def _is_told_well(session: Session, mode: str, statement: str) -> None:
    """1114 as the statement's error, and why beside it, with the same number."""
    session.run(f"SET sql_mode='{mode}'")
    equal(_until_refused(session, statement), 1114, f"error under sql_mode '{mode}' of: {statement}")
    said = session.warnings()
    expect(("Error", 1114) in [w[:2] for w in said], "the error is a condition of its own", said)
    expect(any(w[1] == 1114 and "Ferrite: disk full" in w[2] for w in said), "no word about the disk", said)
    expect(all(w[1] >= 1000 for w in said), "a number that is no error number of the server", said)
    equal([w[2] for w in said if w[0] == "Error"][0], "The table 't' is full", "text of the error")


def _goes_on(env: Env, s: Session, filler: Path) -> None:
    """There is room again: t can be written, and is sound."""
    filler.unlink()
    env.eventually("writing after the disk has room", lambda: not s.error("INSERT INTO t (b) VALUES ('again')"))
    equal(s.answer("CHECK TABLE t"), [("corners.t", "check", "status", "OK")], "CHECK TABLE")


@options("--ferrite-log-budget=16M")
def scenario_full_disk_is_error_1114(env: Env) -> None:
    """A full disk is error 1114 in whatever SQL mode, in rows of many, under IGNORE, in a handler; then all goes on."""
    if not may_mount():
        return
    with small_disk(env, 400) as disk:
        s = env.session()
        s.run("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB) ENGINE=FERRITE")
        s.run("CREATE TABLE seen (number INT) ENGINE=Aria")
        s.run(
            "CREATE PROCEDURE grow() BEGIN DECLARE i INT DEFAULT 0; "
            "DECLARE EXIT HANDLER FOR 1114 INSERT INTO seen VALUES (1114); "
            "WHILE i < 1000 DO INSERT INTO t (b) VALUES (REPEAT('p', 500000)); SET i = i + 1; END WHILE; END"
        )
        filler = fill(disk)
        for mode in (STRICT, "", "STRICT_ALL_TABLES"):
            _is_told_well(s, mode, "INSERT INTO t (b) VALUES (REPEAT('a', 500000 + {n}))")
            _is_told_well(s, mode, "INSERT INTO t (b) VALUES ('x'), (REPEAT('a', 900000 + {n}))")
            _is_told_well(s, mode, "INSERT IGNORE INTO t (b) VALUES (REPEAT('a', 500000 + {n}))")
            _is_told_well(s, mode, "INSERT INTO t (b) SELECT REPEAT('a', 500000 + seq + {n}) FROM seq_1_to_5")

        def is_full() -> bool:
            return s.error("INSERT INTO t (b) VALUES (REPEAT('a', 500000))") == 1114 and _disk_full(s) == "1"

        # It tells of what was last to be written, and a page may have found its place in the background meanwhile.
        env.eventually("Ferrite_disk_full on a full disk", is_full)
        s.run(f"SET sql_mode='{STRICT}'")
        s.run("CALL grow()")
        equal(s.run("SELECT number FROM seen"), [(1114,)], "what the handler for 1114 saw")
        _goes_on(env, s, filler)
        env.eventually("Ferrite_disk_full is 0 again", lambda: _disk_full(s) == "0")


def _inserts_are_refused(s: Session, disk: Path) -> None:
    """More than 500 small ones in a loop of them, and few values are logged for their sake."""
    next_value = "SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_NAME = 't'"
    all_refused = 0
    # One that is refused amid a long value gives back what that had: that may be enough for all small ones.
    for _ in range(20):
        fill(disk)
        equal(_until_refused(s, "INSERT INTO t (b) VALUES (REPEAT('a', 500000 + {n}))"), 1114, "error of an insert")
        before = s.value(next_value)
        s.run("SET @refused = 0")
        s.run("CALL again(5000)")
        refused, taken = int(s.value("SELECT @refused")), s.value(next_value) - before
        expect(taken <= 5000 - refused + refused // 10, "values that were logged for rows that were refused", taken)
        all_refused += refused
        if all_refused > 500:
            return
    raise AssertionError(f"only {all_refused} inserts were refused")


def _tables_are_refused(s: Session, disk: Path) -> None:
    """200 and more, until one was: with the reason."""
    seen: set[int] = set()
    for n in range(2000):
        if n % 100 == 0:
            fill(disk)
        error = s.error(f"CREATE TEMPORARY TABLE t{n} (n INT PRIMARY KEY) ENGINE=FERRITE")
        expect(error in (0, 1005), "error of CREATE TABLE", error)
        if error:
            said = s.warnings()
            expect("space" in str(said), "the reason of one that was refused", said)
        seen.add(error)
        if n >= 199 and 1005 in seen:
            return
    raise AssertionError(f"no table was refused: {seen}")


@options("--ferrite-log-budget=16M")
def scenario_refused_statements_leave_the_log_alone(env: Env) -> None:
    """On a full disk, a loop of INSERTs or CREATEs does not use up what the log keeps for others: they commit and drop."""
    if not may_mount():
        return
    with small_disk(env, 400) as disk:
        s = env.session()
        s.run("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB) ENGINE=FERRITE")
        s.run("CREATE TABLE gone (n INT PRIMARY KEY) ENGINE=FERRITE")
        s.run(
            "CREATE PROCEDURE again(times INT) BEGIN DECLARE i INT DEFAULT 0; "
            "DECLARE CONTINUE HANDLER FOR 1114 SET @refused = @refused + 1; "
            "WHILE i < times DO INSERT INTO t (b) VALUES ('x'); SET i = i + 1; END WHILE; END"
        )
        other = env.session(autocommit=False)
        other.run("INSERT INTO t (b) VALUES ('of another')")
        _inserts_are_refused(s, disk)
        _tables_are_refused(s, disk)
        other.run("COMMIT")
        s.run("DROP TABLE gone")
        _goes_on(env, s, disk / "filler")


@options("--ferrite-log-budget=128M")
def scenario_start_on_a_full_disk(env: Env) -> None:
    """A server starts on a full disk, after kill -9 and after a shutdown: it is read, and changed once there is room."""
    if not may_mount():
        return
    sums = "SELECT COUNT(*), SUM(CRC32(b)) FROM t"
    grow = "INSERT INTO t (b) VALUES (REPEAT('a', 500000 + {n}))"
    with small_disk(env, 400) as disk:
        s = env.session()
        s.run("CREATE TABLE t (n INT AUTO_INCREMENT PRIMARY KEY, b LONGBLOB) ENGINE=FERRITE")
        s.run("INSERT INTO t (b) SELECT REPEAT(MD5(seq), 100) FROM seq_1_to_20000")
        for end in (env.kill, env.stop):
            fill(disk)
            equal(_until_refused(s, grow), 1114, "error of an insert")
            before = s.run(sums)
            end()
            filler = fill(disk)
            env.start()
            s = env.session()
            equal(s.run(sums), before, "rows after the start")
            equal(s.answer("CHECK TABLE t"), [("corners.t", "check", "status", "OK")], "CHECK TABLE")
        equal(_until_refused(s, grow), 1114, "error of an insert after the start")
        _goes_on(env, s, filler)
        env.crash()
        equal(env.session().answer("CHECK TABLE t"), [("corners.t", "check", "status", "OK")], "CHECK TABLE at the end")


@options("--ferrite-log-budget=16M", "--ferrite-history-ring-size=8M")
def scenario_old_snapshots_on_a_nearly_full_disk_take_bounded_memory(env: Env) -> None:
    """Where row versions cannot be written out, many snapshots of different age end before they take all memory."""
    if not may_mount():
        return
    rows, snapshots = 10_000, 40
    with small_disk(env, 160) as disk:
        s = env.session()
        s.run("CREATE TABLE t (n INT PRIMARY KEY, p VARCHAR(1200)) ENGINE=FERRITE")
        s.run(f"INSERT INTO t SELECT seq, REPEAT('a', 1000) FROM seq_1_to_{rows}")
        left = os.statvfs(disk)
        free_bytes = left.f_bavail * left.f_frsize
        if free_bytes > 60 << 20:
            (disk / "filler").write_bytes(bytes(free_bytes - (60 << 20)))
        before = env.resident_bytes()
        readers: list[Session] = []
        most = 0

        def history_bytes() -> int:
            return int(s.run("SHOW STATUS LIKE 'Ferrite_history_bytes'")[0][1])

        for n in range(snapshots):
            readers.append(env.session())
            readers[-1].run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            s.run(f"UPDATE t SET p = REPEAT('{chr(98 + n % 20)}', {1000 + n % 7})")
            most = max(most, env.resident_bytes() - before)
            env.eventually("row versions are within their bound", lambda: history_bytes() < 280 << 20, seconds=30)
        # The versions of all snapshots are 400 MB; the ring and what may stay beyond it are 264 MiB. Sessions, pages,
        # the log's ring and a checkpoint's copies of a large transaction's undo come to 40 to 80 MiB beside them.
        expect(most < 380 << 20, "MiB more memory than before", most >> 20)
        errors = [reader.error("SELECT COUNT(*), MAX(p) FROM t") for reader in readers]
        expect(any(errors), "all snapshots lived", errors)
        expect(not errors[-1], "the newest snapshot ended", errors)
        told = [reader.warnings() for reader, error in zip(readers, errors, strict=True) if error]
        expect(all("snapshot" in str(words) for words in told), "an error that does not name the reason", told[:2])
        equal(s.error("UPDATE t SET p = 'x' WHERE n = 1"), 0, "a change after all")


def _is_usable(env: Env, session: Session, why: str) -> None:
    """Without a byte free on the disk: small changes work, for as long as one likes, and checkpoints are taken."""

    def checkpoints() -> int:
        return int(session.run("SHOW STATUS LIKE 'Ferrite_checkpoints'")[0][1])

    def works(statement: str) -> None:
        env.eventually(f"{why}: {statement}", lambda: not session.error(statement))

    before = checkpoints()
    for n in range(2000):
        works("INSERT INTO small (p) VALUES (REPEAT('i', 100))")
        works(
            f"UPDATE t SET p = REPEAT('{chr(97 + n % 26)}', 1000) WHERE n BETWEEN {n % 50 * 100} AND {n % 50 * 100 + 99}"
        )
        if n % 10 == 0:
            works("DELETE FROM small ORDER BY n LIMIT 10")
        if n >= 100 and checkpoints() >= before + 3:
            return
    raise AssertionError(f"{why}: no checkpoint was taken")


@options("--ferrite-log-budget=16M")
def scenario_a_checkpoint_needs_no_space(env: Env) -> None:
    """A disk fills under a long log, dirty pages and a large open transaction: the engine gets out of it alone."""
    if not may_mount():
        return
    rows = 10_000
    with small_disk(env, 300) as disk:
        s = env.session()
        s.run("CREATE TABLE t (n INT PRIMARY KEY, p VARCHAR(1200)) ENGINE=FERRITE")
        s.run("CREATE TABLE small (n INT AUTO_INCREMENT PRIMARY KEY, p VARCHAR(200)) ENGINE=FERRITE")
        s.run(f"INSERT INTO t SELECT seq, REPEAT('a', 1000) FROM seq_0_to_{rows}")
        for end in (env.kill, env.stop):
            large = env.session(autocommit=False)
            # The second time the disk has had room for some milliseconds only.
            change = f"UPDATE t SET p = REPEAT('#', 1001) WHERE n > {rows - 1500}"
            env.eventually("room for a large transaction", partial(_succeeds, large, change))
            s.run("BEGIN")
            # Without the hint 11.8 reads the whole index for so many rows, and waits for the other's.
            changing = s.start(f"UPDATE t FORCE INDEX (PRIMARY) SET p = REPEAT('v', 1002) WHERE n < {rows - 2000}")
            while changing.waits(0.01):
                fill(disk)
            expect(changing.answer() in ([], 1114), "an error other than that of a full disk", changing.answer())
            s.run("ROLLBACK")
            fill(disk)
            _is_usable(env, s, "beside a large transaction")
            fill(disk)
            _is_usable(env, s, "full once more")
            expect("checkpoint failed" not in env.log(), "a checkpoint that failed", env.log()[-2000:])
            before = s.run(f"SELECT COUNT(*), SUM(CRC32(p)) FROM t WHERE n <= {rows - 1500}")
            if end == env.stop:
                large.run("ROLLBACK")
            end()
            fill(disk)
            env.start()
            s = env.session()
            equal(s.run(f"SELECT COUNT(*), SUM(CRC32(p)) FROM t WHERE n <= {rows - 1500}"), before, "rows after it")
            equal(s.value("SELECT COUNT(*) FROM t WHERE p LIKE '#%'"), 0, "rows of the transaction that never ended")
            for table in ("t", "small"):
                equal(s.answer(f"CHECK TABLE {table}"), [(f"corners.{table}", "check", "status", "OK")], "CHECK TABLE")
            _is_usable(env, s, "after the start")
            (disk / "filler").unlink()


PARTED = "PARTITION BY RANGE (n) (PARTITION p0 VALUES LESS THAN (5000), PARTITION p1 VALUES LESS THAN MAXVALUE)"
HALVES = "PARTITION p00 VALUES LESS THAN (2500), PARTITION p01 VALUES LESS THAN (5000)"


@options("--ferrite-log-budget=16M")
def scenario_partitions_are_copied_whole_or_not_at_all(env: Env) -> None:
    """A disk fills between the last row of a copied partition and the entries of its indexes: the ALTER fails."""
    if not may_mount():
        return
    keys = ", ".join(f"KEY k{n} (p, n)" for n in range(16))
    with small_disk(env, 700) as disk:
        s = env.session()
        s.run(f"CREATE TABLE t (n INT PRIMARY KEY, p VARCHAR(300), {keys}) ENGINE=FERRITE {PARTED}")
        s.run("INSERT INTO t SELECT seq, CONCAT(MD5(seq), REPEAT(MD5(seq), 6)) FROM seq_1_to_5100")
        s.run("CREATE TABLE more (n INT PRIMARY KEY AUTO_INCREMENT, p VARCHAR(300)) ENGINE=FERRITE")
        before = s.run("SELECT COUNT(*), SUM(CRC32(p)) FROM t")
        errors = []
        change = "UPDATE t SET n = -n WHERE n = 5099"
        # From too little to enough, and then between the two: the ALTER fails ever nearer to its end.
        little, enough, mebibytes = 0, 0, 1
        while enough - little != 1 and len(errors) < 12:
            filler = fill(disk)
            # How much room the files have of their own is a matter of chance: another table takes it.
            more = "INSERT INTO more (p) SELECT REPEAT(MD5(seq + {n}), 8) FROM seq_1_to_2000"
            equal(_until_refused(s, more), 1114, "another table on a full disk")
            os.truncate(filler, max(0, filler.stat().st_size - (mebibytes << 20)))
            error = s.error(f"ALTER TABLE t REORGANIZE PARTITION p0 INTO ({HALVES})")
            # Not all of it: the log would take it for files.
            os.truncate(filler, max(0, filler.stat().st_size - (32 << 20)))
            env.eventually("the disk has room", lambda: not s.error(change), seconds=40)
            s.run("UPDATE t SET n = -n WHERE n = -5099")
            s.run("TRUNCATE more")
            equal(s.answer("CHECK TABLE t EXTENDED"), [("corners.t", "check", "status", "OK")], "CHECK TABLE")
            for n in range(16):
                equal(s.run(f"SELECT COUNT(*), SUM(CRC32(p)) FROM t FORCE INDEX (k{n})"), before, f"index {n}")
            if not error:
                s.run("ALTER TABLE t REORGANIZE PARTITION p00, p01 INTO (PARTITION p0 VALUES LESS THAN (5000))")
            errors.append((mebibytes, error))
            little, enough = (mebibytes, enough) if error else (little, mebibytes)
            mebibytes = (little + enough) // 2 if enough else 2 * mebibytes
        equal({error for _, error in errors}, {0, 1114}, f"errors of ALTER TABLE on a disk of every size: {errors}")
