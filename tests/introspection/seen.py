"""Reading the views, and complaining."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from lib.server import Server


class Failed(Exception):
    """A view does not show what is there."""


def rows(server: Server, sql: str) -> list[dict[str, Any]]:
    """The answer to a statement, by column."""
    connection = server.connect(autocommit=True)
    try:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            names = [column[0].lower() for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    finally:
        connection.close()


def view(server: Server, name: str, where: str = "1") -> list[dict[str, Any]]:
    """Rows of a table of INFORMATION_SCHEMA."""
    return rows(server, f"SELECT * FROM information_schema.{name} WHERE {where}")


def expect(condition: object, what: str, seen: object) -> None:
    """Complain unless it is so."""
    if not condition:
        raise Failed(f"{what}: {seen}")


def eventually(what: str, look: Callable[[], Any], seconds: float = 60) -> Any:
    """Look until there is something."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen = look()
        if seen:
            return seen
        time.sleep(0.02)
    raise Failed(f"never seen: {what}")
