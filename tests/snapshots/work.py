"""Work beside which snapshots are taken, and what a client sees of its result."""

from __future__ import annotations

import contextlib
import os
import subprocess
from typing import Any

from backup.main import ALTERS, Writers
from backup.main import fill_tables as fill
from backup.seen import Failed
from backup.seen import contents_of as contents
from lib.server import Server

__all__ = ["ALTERS", "Failed", "Server", "Writers", "contents", "ferrite_check", "fill", "one"]


def ferrite_check(server: Server) -> subprocess.CompletedProcess[str]:
    """ferrite-check of the stopped server's data."""
    command = [os.environ["FERRITE_CHECK"], str(server.datadir)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def one(cursor: Any, sql: str, column: int = 0) -> Any:
    """One value of the first row; None without a row."""
    cursor.execute(sql)
    with contextlib.suppress(TypeError):
        row = cursor.fetchone()
        return row[column] if row else None
    return None
