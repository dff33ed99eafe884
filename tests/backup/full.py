"""Disks that are too small: for a backup, and for what is restored from one. Nothing is left of it, and the next one is sound."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql

from backup.seen import Failed, one, run, say
from corners.disk import fill
from lib.server import Server

SECONDS = 60.0
"""For a backup that fails, or is complete."""


@contextlib.contextmanager
def _small(disk: Path) -> Iterator[bool]:
    """A file system of 64 MiB at a new directory; False where none can be mounted."""
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64M", "tmpfs", str(disk)]
    is_mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", "-l", str(disk)], check=False)
        disk.rmdir()


def _point_in_time(cursor: Any) -> None:
    for stage in ("START", "BLOCK_COMMIT", "END"):
        cursor.execute(f"BACKUP STAGE {stage}")


def _ended(cursor: Any) -> tuple[str, str]:
    """How the backup ended, and why."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        cursor.execute("SELECT state, IFNULL(error, '') FROM information_schema.FERRITE_BACKUP")
        state, error = cursor.fetchone()
        if state not in ("WAITING", "COPYING"):
            return state, error
        time.sleep(0.05)
    raise Failed(f"the backup onto a small disk is not over after {SECONDS:.0f} s")


def _nothing_is_left(cursor: Any, to: Path, when: str) -> None:
    """Neither on the disk nor in the server, which goes on."""
    kept = one(
        cursor,
        "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'Ferrite_backup_kept_bytes'",
    )
    left = list(to.iterdir()) if to.exists() else []
    if int(kept) or left:
        raise Failed(f"{when}: {kept} bytes are kept, files: {left}")
    cursor.execute("UPDATE test.account SET v = v + 1 WHERE n = 1")
    cursor.execute("UPDATE test.account SET v = v - 1 WHERE n = 1")


def full_target(server: Server, home: Path) -> None:
    """The disk that a backup goes to is full when it begins, or becomes full: said by name; with room it is complete, in the same directory."""
    disk = home / "small"
    connection = server.connect(autocommit=True)
    with _small(disk) as is_mounted, contextlib.closing(connection), connection.cursor() as cursor:
        if not is_mounted:
            say("no small file system can be mounted here: a backup onto one was not tried")
            return
        to = disk / "backup"
        begin = f"SET GLOBAL ferrite_backup_dir = '{to}'"
        filler = fill(disk)
        try:
            cursor.execute(begin)
            raise Failed("a backup begins on a full disk")
        except pymysql.err.Error as e:
            if "No space left" not in str(e) or str(to) not in str(e):
                raise Failed(f"a backup on a full disk: {e}") from e
        _nothing_is_left(cursor, to, "refused on a full disk")
        filler.unlink()
        cursor.execute(begin)
        fill(disk)
        _point_in_time(cursor)
        state, error = _ended(cursor)
        if state != "FAILED" or "No space left" not in error or str(to) not in error:
            raise Failed(f"a backup on a disk that becomes full: {state}: {error}")
        _nothing_is_left(cursor, to, "failed on a full disk")
        filler.unlink()
        cursor.execute(begin)
        _point_in_time(cursor)
        state, error = _ended(cursor)
        code, text = run(os.environ["FERRITE_BACKUP"], "verify", to)
        if state != "COMPLETE" or code:
            raise Failed(f"a backup on a disk that has room again: {state}: {error}: {text}")
    say("a backup on a full disk says so, leaves nothing, and is complete with room")


def _small_files() -> None:
    """For a program whose disk is to be too small."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


def restore_fails(backup: Path, into: Path) -> None:
    """Nothing is left of it, and the next one works; what a killed one leaves is told."""
    tool, made = os.environ["FERRITE_BACKUP"], into / "#ferrite"
    command = [tool, "restore", "--quiet", str(backup), "--into", str(into)]
    into.mkdir()
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=_small_files)
    if done.returncode != 2 or made.exists() or "File too large" not in done.stderr:
        raise Failed(f"restore to a disk that is too small: exit code {done.returncode}: {done.stderr}")
    made.mkdir()
    (made / "store.0000").write_bytes(b"cut off")
    code, text = run(*command)
    if code != 2 or "has no whole database in it" not in text:
        raise Failed(f"restore after one that was killed: exit code {code}: {text}")
    shutil.rmtree(made)
    code, text = run(*command)
    if code:
        raise Failed(f"restore: exit code {code}: {text}")
    code, text = run(*command)
    if code != 2 or not text.strip().endswith("#ferrite exists"):
        raise Failed(f"restore over a database: exit code {code}: {text}")
    shutil.rmtree(into)
    say("a restore that fails leaves nothing")
