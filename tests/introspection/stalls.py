"""Stalls are rows: commits behind a sync that takes long, changes that wait for a full log, and what the threshold keeps out.

No check depends on the machine's pace: each wait is made at least so long, and lasts as long as it needs.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Any

import pymysql

from faults.shimmed import Shimmed
from introspection.seen import eventually, expect, rows, view
from lib.engines import engine
from lib.places import Places
from lib.server import Server, home_in_memory

STALL_MS = 3000
"""So long that a commit which others kept from the processor meanwhile has still waited for longer than the threshold."""
HOUR_MS = 3_600_000
CLIENTS = 4


def threshold(server: Server) -> None:
    """Only waits that are longer than the threshold become rows, from the moment it is set."""
    before = len(view(server, "FERRITE_STALLS"))
    rows(server, "SET GLOBAL ferrite_stall_threshold_ms = 3600000")
    _wait_for_lock(server, "UPDATE t SET c = 'q' WHERE id = 11")
    expect(len(view(server, "FERRITE_STALLS")) == before, "a wait below the threshold", before)
    rows(server, "SET GLOBAL ferrite_stall_threshold_ms = 1")
    statement = "UPDATE t SET c = 'r' WHERE id = 11"
    _wait_for_lock(server, statement)
    seen = view(
        server, "FERRITE_STALLS", f"query = '{statement.replace(chr(39), chr(39) * 2)}' AND reason = 'row lock'"
    )
    expect(len(seen) == 1 and seen[0]["trx_id"], "a wait above it, in a transaction with changes", seen)
    rows(server, "SET GLOBAL ferrite_stall_threshold_ms = DEFAULT")
    expect(rows(server, "SELECT @@ferrite_stall_threshold_ms AS ms") == [{"ms": 50}], "the default", "")


def _wait_for_lock(server: Server, statement: str) -> None:
    """It waits for a row, for a few ms at least, in a transaction that has changed another row."""
    holder, waiter = (server.connect(database="test", autocommit=False) for _ in range(2))
    with holder.cursor() as cursor:
        cursor.execute("UPDATE t SET c = 'h' WHERE id = 11")

    def wait() -> None:
        with waiter.cursor() as cursor:
            cursor.execute("UPDATE t SET c = 'm' WHERE id = 12")
            cursor.execute(statement)
        waiter.rollback()

    thread = threading.Thread(target=wait)
    thread.start()
    mine = f"trx_state = 'LOCK WAIT' AND trx_mysql_thread_id = {waiter.thread_id()}"
    eventually("a lock wait", lambda: view(server, "FERRITE_TRX", mine))
    rows(server, "SELECT SLEEP(0.02)")
    holder.rollback()
    thread.join()
    holder.close()
    waiter.close()


def _shimmed(places: Places, file: str, stall_ms: int, *options: str) -> Shimmed:
    server = Shimmed(places, engine("ferrite"), [*options], home_in_memory())
    shim, trigger = os.environ["FAULT_SHIM"], server.home / "trigger"
    faults = (f"FAULT_TRIGGER={trigger}", f"FAULT_FILE=#ferrite/{file}", f"FAULT_STALL_MS={stall_ms}")
    server.environment = (f"LD_PRELOAD={shim}", *faults)
    return server


def stalled_sync(places: Places) -> None:
    """Each of several commits behind a sync of the log that takes long is a row, with its own connection and statement."""
    server = _shimmed(places, "redo.", STALL_MS)
    try:
        server.start()
        rows_of: dict[int, str] = {}
        clients = [server.connect(database="test", autocommit=True) for _ in range(CLIENTS)]
        with clients[0].cursor() as cursor:
            cursor.execute("CREATE TABLE c (id INT PRIMARY KEY, n INT) ENGINE=FERRITE")
        (server.home / "trigger").touch()
        threads = [threading.Thread(target=_insert, args=(c, i, rows_of)) for i, c in enumerate(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        (server.home / "trigger").unlink()
        seen = view(server, "FERRITE_STALLS", "reason = 'log flush'")
        told = {row["thread_id"]: row for row in seen}
        for thread_id, statement in rows_of.items():
            expect(thread_id in told, f"a commit of connection {thread_id} behind a stalled sync", seen)
            expect(told[thread_id]["query"] == statement, "its statement", told[thread_id])
            expect(told[thread_id]["waited_ms"] >= 50, "how long it waited", told[thread_id])
        expect(max(row["waited_ms"] for row in seen) >= STALL_MS, "the longest", seen)
        sums = {row["reason"]: row for row in view(server, "FERRITE_WAITS")}
        expect(sums["log flush"]["longest_us"] >= STALL_MS * 1000, "the longest wait by reason", sums["log flush"])
    finally:
        server.remove()


def _insert(client: Any, number: int, rows_of: dict[int, str]) -> None:
    statement = f"INSERT INTO c VALUES ({number}, 1)"
    with client.cursor() as cursor:
        cursor.execute(statement)
    rows_of[client.thread_id()] = statement


def full_log(places: Places) -> None:
    """While no checkpoint comes to its end the log reaches its budget: changes of rows wait, and are rows."""
    server = _shimmed(places, "checkpoint.", HOUR_MS, "--ferrite-log-budget=16M")
    try:
        server.start()
        client = server.connect(database="test", autocommit=True)
        with client.cursor() as cursor:
            cursor.execute("CREATE TABLE f (id INT PRIMARY KEY, c VARCHAR(2000)) ENGINE=FERRITE")
        (server.home / "trigger").touch()
        load = threading.Thread(target=_fill, args=(client,))
        load.start()
        seen = eventually(
            "a wait for the log's budget", lambda: view(server, "FERRITE_STALLS", "reason = 'log budget'"), 300
        )
        expect(seen[0]["query"].startswith("REPLACE INTO f"), "the statement", seen[0])
        expect(seen[0]["thread_id"] == client.thread_id(), "its connection", seen[0])
        # The sync that stalls is never done: only the end of the process ends it.
        server.kill()
        load.join()
    finally:
        server.remove()


def _fill(client: Any) -> None:
    """More log than its budget, until the server is gone."""
    with contextlib.suppress(pymysql.err.Error), client.cursor() as cursor:
        for i in range(10_000):
            cursor.execute(f"REPLACE INTO f SELECT seq, REPEAT('{chr(97 + i % 26)}', 2000) FROM seq_1_to_1000")
