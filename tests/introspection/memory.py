"""Memory by parts, and the budget that the buffer pool follows."""

from __future__ import annotations

import contextlib
from typing import Any

import pymysql

from introspection.seen import Failed, eventually, expect
from lib.server import Server

MIB = 1 << 20
BUDGET = 96 * MIB


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
