"""What the tests of backups share: what tables hold, and a complaint."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

Contents = dict[str, Any]
"""Of each table a checksum of all rows, and what defines it."""


class Failed(Exception):
    """Something is not as it must be."""


def say(text: str) -> None:
    """A line for who watches."""
    print(text, flush=True)


def run(*words: str | Path) -> tuple[int, str]:
    """A program's exit code, and all that it said."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def one(cursor: Any, sql: str) -> Any:
    """One value of the first row; None without a row."""
    cursor.execute(sql)
    row = cursor.fetchone()
    return row[0] if row else None


def contents_of(cursor: Any) -> Contents:
    """A checksum of every table, and what defines it."""
    cursor.execute("SHOW TABLES FROM test")
    tables = [row[0] for row in cursor.fetchall()]
    found = {}
    for table in tables:
        cursor.execute(f"CHECKSUM TABLE test.{table} EXTENDED")
        checksum = cursor.fetchone()[1]
        cursor.execute(f"SHOW CREATE TABLE test.{table}")
        text = cursor.fetchone()[1]
        found[table] = (checksum, text.split(" AUTO_INCREMENT=")[0])
    return found


def must_be_equal(found: Contents, wanted: Contents, found_where: str, wanted_where: str) -> None:
    """Table by table; every one that differs is in the complaint."""
    if found != wanted:
        different = [t for t in sorted(found.keys() | wanted.keys()) if found.get(t) != wanted.get(t)]
        lines = [f"{t}: {wanted.get(t)} {wanted_where}, {found.get(t)} {found_where}" for t in different]
        raise Failed("\n".join(lines))
