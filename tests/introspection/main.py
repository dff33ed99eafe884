"""What the engine shows of itself: transactions, locks, snapshots, waits. Each view is checked against what the test
itself has just caused.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time

import pymysql

from introspection import stalls
from introspection.instruments import instruments
from introspection.memory import adds_up, memory
from introspection.seen import Failed
from introspection.seen import eventually as _eventually
from introspection.seen import expect as _expect
from introspection.seen import rows as _rows
from introspection.seen import view as _view
from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory, stop_on_signals

ROWS = 2000
HELD_SECONDS = 0.4
"""How long a lock is kept from a waiter: a long wait, by the journal's measure of 50 ms."""


def _create(server: Server) -> None:
    connection = server.connect(database="test", autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, k INT, c VARCHAR(100), KEY by_k (k)) ENGINE=FERRITE")
        cursor.execute(f"INSERT INTO t SELECT seq, seq, REPEAT('a', 50) FROM seq_1_to_{ROWS}")
    connection.close()


def _blocked(server: Server) -> None:
    """One transaction waits for another: who, for what, and afterwards how long."""
    holder, waiter = (server.connect(database="test", autocommit=False) for _ in range(2))
    update = "UPDATE t SET c = 'w' WHERE id = 7"
    with holder.cursor() as cursor:
        cursor.execute("UPDATE t SET c = 'h' WHERE id IN (7, 8)")

    def wait() -> None:
        with waiter.cursor() as cursor:
            cursor.execute(update)
        waiter.rollback()

    thread = threading.Thread(target=wait)
    thread.start()
    waiting = _eventually("a lock wait", lambda: _view(server, "FERRITE_TRX", "trx_state = 'LOCK WAIT'"))
    _expect(waiting[0]["trx_mysql_thread_id"] == waiter.thread_id(), "who waits", waiting)
    _expect(waiting[0]["trx_query"] == update, "what it runs", waiting)
    held = _view(server, "FERRITE_TRX", f"trx_mysql_thread_id = {holder.thread_id()}")
    _expect(len(held) == 1 and held[0]["trx_rows_modified"] == 2, "the holder", held)
    wanted = _view(server, "FERRITE_LOCKS", "lock_granted = 0")
    _expect(len(wanted) == 1 and wanted[0]["lock_index"] == "PRIMARY", "the lock waited for", wanted)
    edges = _view(server, "FERRITE_LOCK_WAITS")
    _expect(len(edges) == 1 and edges[0]["blocking_trx_id"] == held[0]["trx_id"], "who is in the way", edges)
    time.sleep(HELD_SECONDS)
    holder.rollback()
    thread.join()
    _long_wait(server, holder.thread_id(), waiter.thread_id(), update)
    holder.close()
    waiter.close()


def _long_wait(server: Server, holder: int, waiter: int, update: str) -> None:
    told = _view(server, "FERRITE_LONG_WAITS", f"reason = 'row lock' AND thread_id = {waiter}")
    _expect(len(told) == 1, "the journal of long waits", told)
    line = told[0]
    _expect(HELD_SECONDS * 1000 <= line["waited_ms"] < 10_000, "how long it waited", line)
    _expect(line["holder_thread_id"] == holder, "for whom it waited", line)
    _expect(line["index_name"] == "PRIMARY" and line["table_name"].endswith("t"), "for what it waited", line)
    _expect(line["query"] == update and line["engine_thread"] is None, "what it ran", line)
    now = _rows(server, "SELECT NOW(6) AS now")[0]["now"]
    _expect(abs((now - line["ended"]).total_seconds()) < 60, "when it ended", line)
    sums = {row["reason"]: row for row in _view(server, "FERRITE_WAITS")}
    stall = _view(server, "FERRITE_STALLS", f"reason = 'row lock' AND thread_id = {waiter}")
    _expect(len(stall) == 1 and stall[0]["waited_ms"] == line["waited_ms"], "the same as a stall", stall)
    _expect(stall[0]["trx_id"] is None and stall[0]["query"] == update, "of a transaction without changes", stall)
    _expect(stall[0]["holder_thread_id"] == holder and stall[0]["index_name"] == "PRIMARY", "its object", stall)
    _expect(abs((line["ended"] - stall[0]["began"]).total_seconds() * 1000 - line["waited_ms"]) < 2, "its begin", stall)
    _expect(sums["row lock"]["waits"] == 1, "one row lock was waited for", sums["row lock"])
    _expect(sums["row lock"]["longest_us"] // 1000 == line["waited_ms"], "the longest wait", sums["row lock"])
    _expect(sums["log flush"]["waits"] > 0, "commits waited for the log", sums["log flush"])


def _snapshot(server: Server) -> None:
    """An old snapshot holds what was changed and deleted since, and lets go of it."""
    reader = server.connect(database="test", autocommit=False)
    with reader.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute("SELECT COUNT(*) FROM t")
    writer = server.connect(database="test", autocommit=True)
    with writer.cursor() as cursor:
        cursor.execute("DELETE FROM t WHERE id > 1000")
    mine = f"thread_id = {reader.thread_id()} AND held_rows >= 1000"
    seen = _eventually("a thousand deleted rows held", lambda: _view(server, "FERRITE_SNAPSHOTS", mine))
    _expect(seen[0]["held_bytes"] > 1000 * 50, "their bytes", seen)
    graves = "name = 'delete_archive_entries'"
    count = _view(server, "FERRITE_METRICS", graves)[0]["count"]
    _expect(count >= 1000, "entries in the delete archive", count)
    reader.rollback()
    _eventually("the delete archive empty again", lambda: _view(server, "FERRITE_METRICS", f"{graves} AND count = 0"))
    left = _view(server, "FERRITE_SNAPSHOTS", f"thread_id = {reader.thread_id()}")
    _expect(not left, "a snapshot after its end", left)
    reader.close()
    writer.close()


def _foreign(server: Server) -> None:
    """A row without a parent and a parent with children: in the journal, and at the transaction."""
    connection = server.connect(database="test", autocommit=True)
    statements = ("INSERT INTO child VALUES (9)", "DELETE FROM parent WHERE id = 1")
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=FERRITE")
        cursor.execute(
            "CREATE TABLE child (x INT, CONSTRAINT up FOREIGN KEY (x) REFERENCES parent (id)) ENGINE=FERRITE"
        )
        cursor.execute("INSERT INTO parent VALUES (1)")
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO child VALUES (1)")
        for statement, code in zip(statements, (1452, 1451), strict=True):
            try:
                cursor.execute(statement)
            except pymysql.err.IntegrityError as e:
                _expect(e.args[0] == code, "the error", e)
            else:
                raise Failed(f"{statement}: no error")
    told = _view(server, "FERRITE_FOREIGN_KEY_ERRORS")
    _expect([row["reason"] for row in told] == ["NO PARENT", "HAS CHILDREN"], "the journal of foreign keys", told)
    _expect(tuple(row["query"] for row in told) == statements, "the statements", told)
    for row in told:
        names = (row["child_table"], row["parent_table"], row["constraint_name"])
        _expect(names == ("test/child", "test/parent", "up"), "the constraint", row)
        _expect(
            row["thread_id"] == connection.thread_id() and "CONSTRAINT `up`" in row["message"], "who, and what", row
        )
    trx = _view(server, "FERRITE_TRX", f"trx_mysql_thread_id = {connection.thread_id()}")
    _expect(trx[0]["trx_id"] == told[1]["trx_id"], "the transaction", (trx, told))
    _expect(trx[0]["trx_last_foreign_key_error"] == told[1]["message"][:256], "its last error", trx)
    _expect(trx[0]["trx_foreign_key_checks"] == 1 and trx[0]["trx_unique_checks"] == 1, "its settings", trx)
    for _ in range(150):
        with connection.cursor() as cursor:
            cursor.execute("INSERT IGNORE INTO child VALUES (9)")
    told = _view(server, "FERRITE_FOREIGN_KEY_ERRORS")
    _expect([row["number"] for row in told] == list(range(53, 153)), "the latest hundred", [r["number"] for r in told])
    connection.close()


def _status(server: Server) -> None:
    sections = {row["name"]: row["status"] for row in _rows(server, "SHOW ENGINE FERRITE STATUS")}
    for name in ("TRANSACTIONS", "HISTORY", "LOCKS", "WAITS"):
        _expect(name in sections, f"section {name} of SHOW ENGINE FERRITE STATUS", list(sections))
    _expect("row lock: 1 times" in sections["WAITS"], "the wait for the row", sections["WAITS"])


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="./ferrite test introspection", description=__doc__)
    parser.add_argument("--engine", default="ferrite", choices=["ferrite"])
    parser.add_argument("--ci", action="store_true", help="the same")
    parser.parse_args()
    stop_on_signals()
    server = Server(find_places(), engine("ferrite"), [], home_in_memory())
    try:
        server.start()
        _create(server)
        for check in (_blocked, _snapshot, _foreign, _status, memory, stalls.threshold):
            check(server)
            print(f"{check.__name__.strip('_')}: shown as it is", flush=True)
        server.remove()
        for fault in (adds_up, instruments, stalls.stalled_sync, stalls.full_log):
            fault(server.places)
            print(f"{fault.__name__}: shown as it is", flush=True)
    except Failed as e:
        print(f"FAILED: {e}", flush=True)
        return 1
    finally:
        server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
