"""Threads, waits, files and memory of the core in the Performance Schema."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

from introspection.seen import Failed, eventually, expect, rows, view
from lib.engines import engine
from lib.places import Places
from lib.server import Server

SETTINGS = [
    "--performance-schema=ON",
    "--performance-schema-instrument=memory/ferrite/%=ON",
    "--performance-schema-instrument=wait/synch/mutex/ferrite/%=ON",
    "--ferrite-buffer-pool-size=8M",
]
THREADS = {"log-flush", "log-files", "write", "ahead", "chkpt", "merge", "purge", "hist"}
FILES = {"redo", "store", "map", "checkpoint", "superblock", "undo", "history", "other"}


def _waits(server: Server, kind: str) -> dict[str, tuple[int, int]]:
    """How often and how long in picoseconds, by the last part of the name."""
    found = rows(
        server,
        "SELECT event_name, count_star, sum_timer_wait FROM performance_schema.events_waits_summary_global_by_event_name"
        f" WHERE event_name LIKE 'wait/{kind}/ferrite/%'",
    )
    return {r["event_name"].split("/")[-1]: (r["count_star"], r["sum_timer_wait"]) for r in found}


def _row_lock(server: Server) -> None:
    """One waits for another's row for half a second and more."""
    holder, waiter = (server.connect(database="test", autocommit=False) for _ in range(2))
    update = "UPDATE t SET b = 'y' WHERE a = 1"
    with contextlib.closing(holder), contextlib.closing(waiter), holder.cursor() as holds, waiter.cursor() as waits:
        holds.execute(update)
        thread = threading.Thread(target=waits.execute, args=(update,))
        thread.start()
        eventually("it waits", lambda: view(server, "FERRITE_LOCK_WAITS"))
        threading.Event().wait(0.6)
        holder.rollback()
        thread.join()
        waiter.rollback()


def _threads(server: Server) -> None:
    """Each tells of itself when it begins, which may be after the server has answered for the first time."""
    sql = "SELECT name, thread_os_id FROM performance_schema.threads WHERE name LIKE 'thread/ferrite/%'"
    found: list[dict[str, Any]] = []

    def names() -> set[str]:
        return {r["name"].split("/")[-1] for r in found}

    def are_all_there() -> bool:
        found[:] = rows(server, sql)
        return names() == THREADS and all(r["thread_os_id"] for r in found)

    with contextlib.suppress(Failed):
        eventually("all threads", are_all_there)
    expect(names() == THREADS, "threads", found)
    expect(all(r["thread_os_id"] for r in found), "the system knows them", found)


def _threads_and_waits(server: Server, cursor: Any) -> None:
    _threads(server)
    cursor.execute("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(500)) ENGINE=FERRITE")
    cursor.execute("INSERT INTO t SELECT seq, REPEAT('x', 400) FROM seq_1_to_60000")
    cursor.execute("SELECT COUNT(*) FROM t WHERE b LIKE '%y'")
    _row_lock(server)
    waits, counted = _waits(server, "synch/mutex"), view(server, "FERRITE_WAITS")
    expect(set(waits) == {r["reason"].replace(" ", "_") for r in counted}, "reasons", waits)
    times, picoseconds = waits["row_lock"]
    expect(times == 1 and picoseconds > 500 * 10**9, "the wait for a row", waits)
    expect(waits["log_flush"][0] > 0, "commits waited for the log", waits)


def _files(server: Server) -> None:
    files = _waits(server, "io/file")
    expect(set(files) == FILES, "files", files)
    expect(files["redo"][0] > 0 and files["store"][0] > 0, "they were read and written", files)
    found = rows(
        server,
        "SELECT event_name, sum_number_of_bytes_read, sum_number_of_bytes_write FROM"
        " performance_schema.file_summary_by_event_name WHERE event_name LIKE 'wait/io/file/ferrite/%'",
    )
    by_class = {r["event_name"].split("/")[-1]: r for r in found}
    # The rows, with what the log has around them; pages that did not fit in the pool.
    expect(by_class["redo"]["sum_number_of_bytes_write"] > 24_000_000, "the log", by_class)
    expect(by_class["store"]["sum_number_of_bytes_write"] > 10_000_000, "pages written", by_class)
    expect(by_class["store"]["sum_number_of_bytes_read"] > 10_000_000, "pages read", by_class)


def _memory(server: Server) -> None:
    def parts() -> bool:
        told = rows(
            server,
            "SELECT event_name, current_number_of_bytes_used AS bytes FROM"
            " performance_schema.memory_summary_global_by_event_name WHERE event_name LIKE 'memory/ferrite/%'",
        )
        now = {r["event_name"].split("/")[-1]: r["bytes"] for r in told}
        shown = {r["part"].replace(" ", "_"): r["bytes"] for r in view(server, "FERRITE_MEMORY")}
        fixed = ("buffer_pool", "page_headers", "log_buffer")
        return set(now) == set(shown) and all(now[part] == shown[part] > 0 for part in fixed)

    eventually("memory by parts", parts, 15)


def _nothing_is_lost(server: Server) -> None:
    """Neither ours nor anybody else's instruments find the server's tables full."""
    found = rows(server, "SHOW GLOBAL STATUS WHERE variable_name LIKE 'performance_schema%_lost'")
    expect(all(r["value"] == "0" for r in found), "lost", [r for r in found if r["value"] != "0"])


def instruments(places: Places) -> None:
    """A server of its own: the Performance Schema is off as a rule."""
    server = Server(places, engine("ferrite"), SETTINGS)
    try:
        server.start()
        connection = server.connect(database="test", autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            _threads_and_waits(server, cursor)
            _files(server)
            _memory(server)
            _nothing_is_lost(server)
        server.stop()
    finally:
        server.remove()
