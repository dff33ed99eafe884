"""A replica of the server that is backed up, stopped at a backup's GTID: an independent witness of what a backup holds.

What its tables hold was put there by replication from the binary log, and nothing of it by a copy of files; so it also says that
the backup's point in time and its position in the binary log are the same moment.

Between two backups it stands still: it is started for each, up to that one's GTID.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import Any

import pymysql

from backup.seen import Contents, Failed, contents_of, must_be_equal, one
from lib.engines import engine
from lib.places import Places
from lib.server import Server, home_in_memory

SECONDS = 300.0
"""For all that was committed since it stood still last."""
OPTIONS = [
    "--server-id=2",
    "--relay-log=relay",
    "--skip-slave-start",
    "--ferrite-log-budget=16M",
    "--ferrite-buffer-pool-size=16M",
    "--ferrite-flush-log-at-trx-commit=2",
]


def free_port() -> int:
    """For a server that is to be replicated from: a replica comes over TCP."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def primary_options(port: int) -> list[str]:
    """Of the server that is to have a witness, beside its binary log."""
    return ["--skip-networking=0", "--bind-address=127.0.0.1", f"--port={port}"]


class Witness:
    """The replica; begins with an empty one, so the primary's binary log has to reach back to its first row."""

    def __init__(self, places: Places, primary_port: int) -> None:
        self.server = Server(places, engine("ferrite"), OPTIONS, home_in_memory())
        self.primary_port = primary_port
        self.asked = 0

    def start(self) -> None:
        """It knows whom to follow, and stands still."""
        self.server.start()
        with self._session() as cursor:
            cursor.execute(
                f"CHANGE MASTER TO master_host='127.0.0.1', master_port={self.primary_port}, master_user='root',"
                " master_use_gtid=slave_pos, master_connect_retry=1"
            )

    def confirms(self, gtid: str, restored: Contents) -> None:
        """What a backup of that moment has restored is what this has at it."""
        self._go_to(gtid)
        with self._session() as cursor:
            must_be_equal(restored, contents_of(cursor), "restored", f"at a replica stopped at {gtid}")
        self.asked += 1

    def sees_a_change(self, restored: Contents) -> None:
        """One row that is another one is seen: it is no witness otherwise. Of no use as a replica after that."""
        with self._session() as cursor:
            cursor.execute("UPDATE test.account SET v = v + 1 WHERE n = 7")
            try:
                must_be_equal(restored, contents_of(cursor), "restored", "at a replica with one row changed")
            except Failed:
                return
        raise Failed("one changed row of the replica is not seen")

    def close(self) -> None:
        """Stop and delete."""
        self.server.remove()

    @contextlib.contextmanager
    def _session(self) -> Any:
        connection = self.server.connect(autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            yield cursor

    def _go_to(self, gtid: str) -> None:
        with self._session() as cursor:
            cursor.execute(f"START SLAVE UNTIL master_gtid_pos = '{gtid}'")
            until = time.monotonic() + SECONDS
            while (status := self._status())["Slave_SQL_Running"] != "No" or status["Slave_IO_Running"] != "No":
                if status["Last_SQL_Errno"] or time.monotonic() > until:
                    break
                time.sleep(0.02)
            stopped_at = one(cursor, "SELECT @@gtid_slave_pos")
            if status["Last_SQL_Errno"] or status["Last_IO_Errno"] or stopped_at != gtid:
                words = ("Last_SQL_Error", "Last_IO_Error", "Slave_SQL_Running", "Slave_IO_Running", "Gtid_IO_Pos")
                told = {word: status[word] for word in words}
                raise Failed(f"the replica was to stop at {gtid} and is at {stopped_at}: {told}")

    def _status(self) -> dict[str, Any]:
        connection = self.server.connect(autocommit=True)
        with contextlib.closing(connection), connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SHOW SLAVE STATUS")
            status: dict[str, Any] = cursor.fetchone()
            return status
