"""Work beside which snapshots are taken, and what a client sees of its result."""

from __future__ import annotations

import contextlib
from typing import Any

from backup.main import Failed, Writers
from backup.main import contents_of as contents
from backup.main import fill_tables as fill
from lib.server import Server

__all__ = ["Failed", "Server", "Writers", "contents", "fill", "one"]


def one(cursor: Any, sql: str, column: int = 0) -> Any:
    """One value of the first row; None without a row."""
    cursor.execute(sql)
    with contextlib.suppress(TypeError):
        row = cursor.fetchone()
        return row[column] if row else None
    return None
