"""One look at the server: its status variables, waits, transactions, stalls and replicas, at one moment.

A look costs the server a few reads of counters; nothing here takes a lock or changes anything.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pymysql

PREFIX = "Ferrite_"
SERVER_STATUS = ("Uptime", "Threads_connected", "Threads_running", "Questions")
ROWS = 50
"""Transactions and stalls that are fetched: more than most screens show."""
NO_PRIVILEGE = (1227, 1142, 1044)


class NoFerrite(Exception):
    """The server has no Ferrite, or does not let us look."""


class Connection(Protocol):
    """What is needed of a connection."""

    def cursor(self, cursor: Any = None) -> Any:
        """A cursor."""
        ...


@dataclass(frozen=True)
class Wait:
    """Waits for one reason, since the server's start."""

    waits: int
    time_us: int
    longest_us: int


@dataclass(frozen=True)
class Sample:
    """The server at one moment."""

    at: float
    """Seconds of a clock that only goes on."""
    clock: str
    server: Mapping[str, str]
    """Name, version, settings."""
    status: Mapping[str, int]
    """Status variables, without Ferrite_, the server's own with their names."""
    waits: Mapping[str, Wait] = field(default_factory=dict)
    transactions: tuple[Mapping[str, Any], ...] = ()
    """The oldest; each with how many there are."""
    stalls: tuple[Mapping[str, Any], ...] = ()
    replicas: tuple[Mapping[str, Any], ...] = ()


def take(connection: Connection) -> Sample:
    """Look once. Raises NoFerrite, and pymysql's errors when the connection is lost."""
    status = {**_engine(connection), **_server_status(connection)}
    return Sample(
        at=time.monotonic(),
        clock=time.strftime("%H:%M:%S"),
        server=_server(connection),
        status=status,
        waits={r["reason"]: Wait(int(r["waits"]), int(r["time_us"]), int(r["longest_us"])) for r in _waits(connection)},
        transactions=tuple(_transactions(connection)),
        stalls=tuple(_stalls(connection)),
        replicas=tuple(_replicas(connection)),
    )


def _ask(connection: Connection, sql: str) -> list[dict[str, Any]]:
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def _engine(connection: Connection) -> dict[str, int]:
    rows = _ask(connection, f"SHOW GLOBAL STATUS LIKE '{PREFIX[:-1]}\\_%'")
    if not rows:
        raise NoFerrite("this server has not loaded the storage engine Ferrite")
    return {r["Variable_name"].removeprefix(PREFIX): int(r["Value"]) for r in rows}


def _server_status(connection: Connection) -> dict[str, int]:
    names = ", ".join(f"'{name}'" for name in SERVER_STATUS)
    rows = _ask(connection, f"SHOW GLOBAL STATUS WHERE Variable_name IN ({names})")
    return {r["Variable_name"]: int(r["Value"]) for r in rows}


def _server(connection: Connection) -> dict[str, str]:
    row = _ask(
        connection,
        "SELECT @@hostname AS host, @@port AS port, @@version AS version, @@ferrite_log_budget AS log_budget,"
        " @@ferrite_stall_threshold_ms AS stall_ms",
    )[0]
    return {name: str(value) for name, value in row.items()}


def _view(connection: Connection, sql: str) -> list[dict[str, Any]]:
    try:
        return [{name.lower(): value for name, value in row.items()} for row in _ask(connection, sql)]
    except pymysql.err.Error as e:
        if e.args and e.args[0] in NO_PRIVILEGE:
            raise NoFerrite(f"the tables FERRITE_... need the privilege PROCESS: {e.args[1]}") from e
        raise


def _waits(connection: Connection) -> list[dict[str, Any]]:
    return _view(connection, "SELECT reason, waits, time_us, longest_us FROM information_schema.FERRITE_WAITS")


def _transactions(connection: Connection) -> list[dict[str, Any]]:
    return _view(
        connection,
        "SELECT trx_mysql_thread_id AS thread_id, trx_state AS state, trx_rows_modified AS changed,"
        " trx_rows_locked AS locked, TIMESTAMPDIFF(SECOND, trx_started, NOW()) AS age_s, trx_query AS query,"
        " COUNT(*) OVER () AS of_all"
        f" FROM information_schema.FERRITE_TRX ORDER BY trx_started LIMIT {ROWS}",
    )


def _stalls(connection: Connection) -> list[dict[str, Any]]:
    return _view(
        connection,
        "SELECT DATE_FORMAT(began, '%H:%i:%s') AS began, waited_ms, reason, thread_id, table_name, query"
        f" FROM information_schema.FERRITE_STALLS AS s ORDER BY s.began DESC LIMIT {ROWS}",
    )


def _replicas(connection: Connection) -> list[dict[str, Any]]:
    """What this server replicates from others; nothing without the privilege for it."""
    with contextlib.suppress(pymysql.err.OperationalError):
        return _ask(connection, "SHOW ALL SLAVES STATUS")
    return []
