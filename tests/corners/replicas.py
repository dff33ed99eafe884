"""Servers that replicate from one another, with both engines."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pymysql

from corners.env import DATABASE, SMALL, Session, expect
from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory

BINLOG = [
    "--skip-networking=0",
    "--bind-address=127.0.0.1",
    "--sync-binlog=0",
    "--log-bin=b",
    "--log-slave-updates",
    "--gtid-strict-mode=1",
]


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def replicating_server(number: int, name: str, *more: str) -> Iterator[tuple[Server, int]]:
    """A server whose tables are of that engine unless they say otherwise; it has Ferrite, too."""
    port = _free_port()
    own = [*SMALL[:2], *BINLOG, f"--server-id={number}", f"--port={port}", f"--default-storage-engine={name}", *more]
    server = Server(find_places(), engine("ferrite"), own, home_in_memory())
    try:
        server.start()
        yield server, port
    finally:
        server.kill()
        server.remove()


def session_on(server: Server, database: str | None = DATABASE, autocommit: bool = True) -> Session:
    return Session(server.connect(database=database, autocommit=autocommit, read_timeout=60))


def follow(replica: Server, port: int, mode: str, threads: int) -> Session:
    session = session_on(replica, None)
    session.run("STOP SLAVE")
    session.run(f"SET GLOBAL slave_parallel_threads={threads}, GLOBAL slave_parallel_mode='{mode}'")
    session.run("SET GLOBAL ferrite_lock_wait_timeout=5, GLOBAL innodb_lock_wait_timeout=5")
    session.run(
        f"CHANGE MASTER TO master_host='127.0.0.1', master_port={port}, master_user='root', master_use_gtid=slave_pos, master_connect_retry=1"
    )
    session.run("START SLAVE")
    return session


def catch_up(primary: Server, follower: Session, seconds: int) -> None:
    position = session_on(primary, None).value("SELECT @@gtid_binlog_pos")
    done = follower.value(f"SELECT MASTER_GTID_WAIT('{position}', {seconds})")
    if done != 0:
        with follower.connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            status = cursor.fetchone()
        words = ("Last_SQL_Error", "Last_IO_Error", "Slave_SQL_Running_State", "Gtid_Slave_Pos", "Gtid_IO_Pos")
        expect(False, "the replica does not catch up", [(w, status.get(w)) for w in words])
