"""Memory by parts, what they add up to, and the budget that the buffer pool follows."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pymysql

from introspection.seen import Failed, eventually, expect, rows
from lib.engines import engine
from lib.places import Places
from lib.server import Server, home_in_memory

MIB = 1 << 20
BUDGET = 96 * MIB
POOL = 256 * MIB
FULL_ROWS = 300_000
"""Of a kilobyte: they fill the pool of that size."""
WITHIN = 0.05
"""So much of the memory of a process may be unknown to its parts, or known and not there."""


def _parts(cursor: Any) -> dict[str, int]:
    cursor.execute("SELECT part, bytes FROM information_schema.FERRITE_MEMORY")
    return dict(cursor.fetchall())


def _refused(cursor: Any, sql: str, words: str) -> None:
    try:
        cursor.execute(sql)
    except pymysql.err.Error as e:
        expect(e.args[0] == 1231 and words in e.args[1], sql, e)
        return
    raise Failed(f"{sql}: no error")


def _makes_way(server: Server, cursor: Any) -> None:
    """A snapshot needs rows that were deleted, whose keys are in memory: the buffer pool is smaller meanwhile.

    Some 34 MB of them: with the parts that do not shrink they leave the buffer pool more than its least.
    """
    before = _parts(cursor)["buffer pool"]
    cursor.execute("CREATE TABLE weight (id INT PRIMARY KEY, a INT, KEY (a)) ENGINE=FERRITE")
    cursor.execute("INSERT INTO weight SELECT seq, seq FROM seq_1_to_100000")
    other = server.connect(database="test", autocommit=False)
    with contextlib.closing(other), other.cursor() as reader:
        reader.execute("SELECT COUNT(*) FROM weight")
        cursor.execute("DELETE FROM weight")

        def is_smaller() -> bool:
            parts = _parts(cursor)
            is_heavy = parts["deleted rows"] > 10 * MIB
            return is_heavy and parts["buffer pool"] < before - 8 * MIB and sum(parts.values()) <= BUDGET

        eventually("the buffer pool makes way", is_smaller)
        other.rollback()
    eventually("and gets it back", lambda: _parts(cursor)["buffer pool"] > before - 4 * MIB)
    cursor.execute("DROP TABLE weight")


def memory(server: Server) -> None:
    """The parts; a budget; the size of the history ring."""
    connection = server.connect(database="test", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.ferrite_buffer_pool_size, @@GLOBAL.ferrite_history_ring_size")
        pool, ring = cursor.fetchone()
        found = _parts(cursor)
        expect(found["buffer pool"] == pool, "the buffer pool", found)
        expect(found["transaction status"] == 8 * MIB and found["other"] > 0, "the heap", found)
        expect(found["dictionary"] > 0 and found["page directory"] > MIB, "parts of the heap", found)
        cursor.execute(f"SET GLOBAL ferrite_history_ring_size = {MIB}")
        _refused(cursor, "SET GLOBAL ferrite_memory = 10485760", "the least is 64 MiB")
        cursor.execute(f"SET GLOBAL ferrite_memory = {BUDGET}")
        eventually("within the budget", lambda: BUDGET * 0.95 < sum(_parts(cursor).values()) <= BUDGET)
        _refused(cursor, "SET GLOBAL ferrite_buffer_pool_size = 67108864", "ferrite_memory sets it")
        cursor.execute("SET GLOBAL ferrite_history_ring_size = 1073741824")
        cursor.execute("SELECT limit_bytes FROM information_schema.FERRITE_MEMORY WHERE part = 'row versions'")
        limit = cursor.fetchone()
        expect(limit == (BUDGET // 4,), "the history ring in a budget", limit)
        cursor.execute(f"SET GLOBAL ferrite_history_ring_size = {MIB}")
        _makes_way(server, cursor)
        cursor.execute("SET GLOBAL ferrite_memory = 0")
        eventually("its own size again", lambda: _parts(cursor)["buffer pool"] == pool)
        cursor.execute(f"SET GLOBAL ferrite_history_ring_size = {4 * ring}")
        cursor.execute("SELECT limit_bytes FROM information_schema.FERRITE_MEMORY WHERE part = 'row versions'")
        limit = cursor.fetchone()
        expect(limit == (4 * ring,), "the history ring", limit)
        cursor.execute(f"SET GLOBAL ferrite_history_ring_size = {ring}")


def _resident(server: Server) -> int:
    """Memory of the server's process, in bytes."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{server.pid}/status").read_text(encoding="utf-8"))
    assert found
    return int(found[1]) * 1024


def _without_ferrite(places: Places) -> int:
    """What a server that does not have the plugin takes."""
    server = Server(places, engine("innodb"), ["--performance-schema=OFF"], home_in_memory())
    try:
        server.start()
        rows(server, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'test'")
        return _resident(server)
    finally:
        server.remove()


def _must_add_up(server: Server, cursor: Any, without: int, when: str) -> None:
    """The parts beside what the process has more than a server without the plugin."""
    parts = _parts(cursor)
    more, known = _resident(server) - without, sum(parts.values())
    what = f"{when}: {more} bytes are resident, the parts add up to {known}"
    expect(abs(more - known) <= WITHIN * more, what, parts)


def adds_up(places: Places) -> None:
    """With a full buffer pool, and with row versions beside it, the parts add up to what the process has."""
    options = [f"--ferrite-buffer-pool-size={POOL}", "--performance-schema=OFF"]
    without = _without_ferrite(places)
    server = Server(places, engine("ferrite"), options, home_in_memory())
    try:
        server.start()
        connection, other = (server.connect(database="test", autocommit=False) for _ in range(2))
        with contextlib.closing(connection), contextlib.closing(other), connection.cursor() as cursor:
            cursor.execute("CREATE TABLE wide (id INT PRIMARY KEY, pad VARCHAR(1000))")
            cursor.execute(f"INSERT INTO wide SELECT seq, REPEAT('x', 950) FROM seq_1_to_{FULL_ROWS}")
            connection.commit()
            _must_add_up(server, cursor, without, "a full pool")
            with other.cursor() as reader:
                reader.execute("SELECT COUNT(*) FROM wide")
            cursor.execute(f"UPDATE wide SET pad = REPEAT('y', 950) WHERE id <= {FULL_ROWS // 10}")
            _must_add_up(server, cursor, without, "row versions for a snapshot")
        server.stop()
    finally:
        server.remove()
