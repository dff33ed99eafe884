"""The tables, and the transactions that the writing clients run on them.

Every transaction moves money between accounts, and leaves its own number in journal rows, in a blob with a checksum and
in a tally row, all in one commit, or in a distributed transaction that is prepared and then decided. Whatever part of it is missing after a crash can therefore be told.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from dataclasses import dataclass, field
from random import Random

import pymysql

from lib.server import Server

ACCOUNTS = 400
START_AMOUNT = 1000
DATABASE = "crashtest"

TABLES = [
    "CREATE TABLE account (id INT PRIMARY KEY, owner VARCHAR(40) NOT NULL, amount BIGINT NOT NULL, last_txn BIGINT NOT NULL,"
    " KEY by_owner (owner, amount), KEY by_amount (amount), KEY by_txn (last_txn)) ENGINE={E} DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE journal (txn BIGINT NOT NULL, leg TINYINT NOT NULL, account INT NOT NULL, delta BIGINT NOT NULL, at DATETIME(6),"
    " PRIMARY KEY (txn, leg), KEY by_account (account, txn), KEY by_delta (delta)) ENGINE={E}",
    "CREATE TABLE document (id BIGINT AUTO_INCREMENT PRIMARY KEY, txn BIGINT NOT NULL, digest CHAR(32) NOT NULL, body LONGBLOB,"
    " UNIQUE KEY by_txn (txn), KEY by_body (body(12))) ENGINE={E}",
    "CREATE TABLE tally (client INT NOT NULL, slot INT NOT NULL, txn BIGINT NOT NULL, legs INT NOT NULL, note VARCHAR(200),"
    " KEY by_client (client, slot), UNIQUE KEY by_txn (txn)) ENGINE={E}",
    "CREATE TABLE done (txn BIGINT PRIMARY KEY, legs INT NOT NULL, total BIGINT NOT NULL) ENGINE={E}",
]
NAMES = ("account", "journal", "document", "tally", "done")


@dataclass
class Client:
    """One writing client and what it knows to be committed."""

    number: int
    seed: int
    next_txn: int = 1
    acknowledged: list[int] = field(default_factory=list)
    pending: int = 0
    """The transaction whose COMMIT was sent and not answered: it may be there or not."""
    deleted: list[int] = field(default_factory=list)
    """Acknowledged deletions of documents."""
    pending_delete: int = 0
    prepared: int = 0
    """A distributed transaction whose XA PREPARE was answered and whose decision was not sent: it must be there."""
    errors: dict[str, int] = field(default_factory=dict)

    def txn_id(self) -> int:
        """A number no other client uses."""
        self.next_txn += 1
        return self.number * 1_000_000_000 + self.next_txn


def create_tables(server: Server) -> None:
    """Tables and the first amounts."""
    connection = server.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {DATABASE}")
        for sql in TABLES:
            cursor.execute(sql.replace("{E}", server.engine.name))
        rows = ", ".join(f"({n}, 'owner {n % 37}', {START_AMOUNT}, 0)" for n in range(1, ACCOUNTS + 1))
        cursor.execute(f"INSERT INTO account VALUES {rows}")
    connection.close()


def body(rng: Random) -> bytes:
    """A blob of a size around the borders of its storage forms."""
    size = rng.choice((0, 20, 20, 200, 200, 700, 700, 3000, 8100, 16500, 40000))
    if rng.random() < 0.02:
        size = rng.choice((150_000, 150_000, 1_200_000))
    return rng.randbytes(max(0, size // 16 + rng.randint(-1, 3))) * 16


def xid(txn: int) -> str:
    """The name of a distributed transaction."""
    return f"'t{txn}'"


class Writer:
    """Runs one client's transactions until the server is gone or the round ends."""

    def __init__(self, server: Server, client: Client, stop: threading.Event) -> None:
        self.server = server
        self.client = client
        self.stop = stop
        self.rng = Random(client.seed)

    def run(self) -> None:
        """The client's life in one round."""
        try:
            connection = self.server.connect(database=DATABASE, read_timeout=60)
        except (pymysql.err.MySQLError, OSError):
            return
        while not self.stop.is_set():
            try:
                self._transaction(connection)
            except (pymysql.err.MySQLError, OSError) as error:
                if not self._survives(connection, error):
                    return
            if self.client.prepared and not self.stop.is_set():
                # Its connection is gone: another one decides.
                try:
                    connection = self.server.connect(database=DATABASE, read_timeout=60)
                    with connection.cursor() as cursor:
                        self._decide(cursor, self.client.prepared)
                except (pymysql.err.MySQLError, OSError):
                    return
        if connection.open:
            connection.close()

    def _survives(self, connection: pymysql.connections.Connection, error: Exception) -> bool:
        code = error.args[0] if error.args else 0
        if code in (1205, 1213):  # lock wait timeout, deadlock: part of life
            self.client.errors[str(code)] = self.client.errors.get(str(code), 0) + 1
            try:
                connection.rollback()
            except (pymysql.err.MySQLError, OSError):
                return False
            return True
        if code not in (2006, 2013, 2055, 0, 1053, 104, 32):
            self.client.errors[str(error)] = self.client.errors.get(str(error), 0) + 1
        return False

    def _transaction(self, connection: pymysql.connections.Connection) -> None:
        draw = self.rng.random()
        with connection.cursor() as cursor:
            if draw < 0.08 and self.client.acknowledged:
                self._forget(connection, cursor)
            elif draw < 0.14:
                self._transfer(cursor, self.client.txn_id())
                connection.rollback()
            elif draw < 0.22:
                self._distributed(connection, cursor)
            else:
                txn = self.client.txn_id()
                self._transfer(cursor, txn)
                self.client.pending = txn
                connection.commit()
                self.client.acknowledged.append(txn)
                self.client.pending = 0

    def _distributed(self, connection: pymysql.connections.Connection, cursor: pymysql.cursors.Cursor) -> None:
        """The same as a distributed transaction; now and then the connection ends before the decision."""
        txn = self.client.txn_id()
        try:
            if self.rng.random() < 0.3:
                cursor.execute("CREATE TEMPORARY TABLE IF NOT EXISTS beside (txn BIGINT PRIMARY KEY, note VARCHAR(90))")
            self._transfer(cursor, txn, f"XA START {xid(txn)}")
            cursor.execute(f"XA END {xid(txn)}")
        except pymysql.err.MySQLError as error:
            if error.args[0] in (1205, 1213):
                for sql in ("XA END", "XA ROLLBACK"):
                    with contextlib.suppress(pymysql.err.OperationalError, pymysql.err.InternalError):
                        cursor.execute(f"{sql} {xid(txn)}")
            raise
        cursor.execute(f"XA PREPARE {xid(txn)}")
        self.client.prepared = txn
        if self.rng.random() < 0.3:
            connection.close()
        else:
            self._decide(cursor, txn)

    def _decide(self, cursor: pymysql.cursors.Cursor, txn: int) -> None:
        """The second phase; a connection that was just closed may still be giving the transaction up."""
        commit = self.rng.random() < 0.7
        for _ in range(200):
            self.client.prepared = 0
            self.client.pending = txn if commit else 0
            try:
                cursor.execute(f"{'XA COMMIT' if commit else 'XA ROLLBACK'} {xid(txn)}")
                break
            except pymysql.err.MySQLError as error:
                if error.args[0] != 1397:
                    raise
                self.client.prepared, self.client.pending = txn, 0
                time.sleep(0.01)
        else:
            raise pymysql.err.OperationalError(0, f"nobody may decide {xid(txn)}")
        if commit:
            self.client.acknowledged.append(txn)
            self.client.pending = 0

    def _transfer(self, cursor: pymysql.cursors.Cursor, txn: int, begin: str = "BEGIN") -> None:
        rng = self.rng
        legs = rng.randint(1, 4)
        cursor.execute(begin)
        total = 0
        for leg in range(legs):
            source, target = sorted(rng.sample(range(1, ACCOUNTS + 1), 2))
            amount = rng.randint(1, 50)
            total += amount
            cursor.execute(f"UPDATE account SET amount = amount - {amount}, last_txn = {txn} WHERE id = {source}")
            cursor.execute(f"UPDATE account SET amount = amount + {amount}, last_txn = {txn} WHERE id = {target}")
            rows = (
                f"({txn}, {leg * 2}, {source}, -{amount}, NOW(6)), ({txn}, {leg * 2 + 1}, {target}, {amount}, NOW(6))"
            )
            cursor.execute(f"INSERT INTO journal VALUES {rows}")
            if rng.random() < 0.1:
                self._detour(cursor, txn)
        data = body(rng)
        digest = hashlib.md5(data, usedforsecurity=False).hexdigest()
        cursor.execute(f"INSERT INTO document (txn, digest, body) VALUES ({txn}, '{digest}', x'{data.hex()}')")
        slot = rng.randint(0, 20)
        cursor.execute(
            f"INSERT INTO tally VALUES ({self.client.number}, {slot}, {txn}, {legs}, REPEAT('n', {slot * 9}))"
        )
        cursor.execute(f"INSERT INTO done VALUES ({txn}, {legs}, {total})")

    def _detour(self, cursor: pymysql.cursors.Cursor, txn: int) -> None:
        """Work that a savepoint takes back."""
        cursor.execute("SAVEPOINT detour")
        cursor.execute(f"INSERT INTO tally VALUES (-1, 0, {-txn}, 0, 'never')")
        cursor.execute(f"UPDATE account SET owner = 'nobody' WHERE id = {self.rng.randint(1, ACCOUNTS)}")
        cursor.execute("ROLLBACK TO SAVEPOINT detour")

    def _forget(self, connection: pymysql.connections.Connection, cursor: pymysql.cursors.Cursor) -> None:
        """Delete a document and change its tally row: space is freed and used again."""
        txn = self.rng.choice(self.client.acknowledged)
        cursor.execute("BEGIN")
        cursor.execute(f"DELETE FROM document WHERE txn = {txn}")
        cursor.execute(
            f"UPDATE tally SET note = 'forgotten', slot = slot + 100 WHERE txn = {txn} AND note <> 'forgotten'"
        )
        self.client.pending_delete = txn
        connection.commit()
        self.client.deleted.append(txn)
        self.client.pending_delete = 0


def run_clients(server: Server, clients: list[Client], stop: threading.Event, begun: threading.Event) -> None:
    """Threads of this process for these clients; returns when all have ended."""
    threads = [threading.Thread(target=Writer(server, c, stop).run) for c in clients]
    for thread in threads:
        thread.start()
    begun.set()
    for thread in threads:
        thread.join()
