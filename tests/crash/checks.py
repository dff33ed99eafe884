"""What must hold after a restart, whatever happened before."""

from __future__ import annotations

from collections.abc import Callable

import pymysql

from crash.workload import ACCOUNTS, DATABASE, NAMES, START_AMOUNT, Client, xid
from lib.server import Server

KEYS = {
    "account": ("PRIMARY", "by_owner", "by_amount", "by_txn"),
    "journal": ("PRIMARY", "by_account", "by_delta"),
    "document": ("PRIMARY", "by_txn", "by_body"),
    "tally": ("by_client", "by_txn"),
    "done": ("PRIMARY",),
}
SUMS = {"account": "id", "journal": "account", "document": "txn", "tally": "txn", "done": "txn"}


def _number(name: object) -> int:
    """The transaction that a distributed transaction's name tells."""
    text = name.decode() if isinstance(name, bytes) else str(name)
    return int(text.removeprefix("t"))


class Checker:
    """Collects everything that is wrong."""

    def __init__(self, server: Server, clients: list[Client]) -> None:
        self.connection = server.connect(database=DATABASE, autocommit=True, read_timeout=300)
        self.clients = clients
        self.wrong: list[str] = []

    def run(self) -> list[str]:
        """All checks; the list of what failed."""
        checks: list[Callable[[], None]] = [
            self.prepared,
            self.sums,
            self.transactions,
            self.halves,
            self.documents,
            self.indexes,
            self.check_table,
        ]
        for check in checks:
            try:
                check()
            except pymysql.err.MySQLError as error:
                self.wrong.append(f"{check.__name__}: {error}")
        self.connection.close()
        return self.wrong

    def _rows(self, sql: str) -> list[tuple[object, ...]]:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    def _none(self, what: str, sql: str) -> None:
        rows = self._rows(sql)
        if rows:
            self.wrong.append(f"{what}: {len(rows)} rows, first {rows[:3]}")

    def sums(self) -> None:
        """Money is neither made nor lost."""
        expected = (ACCOUNTS, ACCOUNTS * START_AMOUNT)
        got = self._rows("SELECT COUNT(*), SUM(amount) FROM account")[0]
        if (got[0], int(str(got[1]))) != expected:
            self.wrong.append(f"account: count and sum {got}, expected {expected}")
        self._none(
            "account differs from its journal",
            "SELECT a.id, a.amount, SUM(j.delta) FROM account a LEFT JOIN journal j ON j.account = a.id"
            f" GROUP BY a.id HAVING a.amount <> {START_AMOUNT} + IFNULL(SUM(j.delta), 0)",
        )
        self._none("savepoint not rolled back", "SELECT id FROM account WHERE owner = 'nobody'")
        self._none("savepoint not rolled back", "SELECT txn FROM tally WHERE client = -1")

    def prepared(self) -> None:
        """What was prepared is still there, and can be decided; it is then like any other transaction."""
        there = {_number(row[3]) for row in self._rows("XA RECOVER")}
        clients = {client.number: client for client in self.clients}
        for client in self.clients:
            if client.prepared and client.prepared not in there:
                self.wrong.append(f"client {client.number}: the prepared transaction {client.prepared} is lost")
            client.prepared = 0
        for txn in sorted(there):
            commit = txn % 3 != 0
            self._rows(f"{'XA COMMIT' if commit else 'XA ROLLBACK'} {xid(txn)}")
            if commit:
                clients[txn // 1_000_000_000].acknowledged.append(txn)
        if self._rows("XA RECOVER"):
            self.wrong.append("decided transactions are still prepared")

    def transactions(self) -> None:
        """Every acknowledged commit is there; nothing is there that was never asked for."""
        there = {int(str(r[0])) for r in self._rows("SELECT txn FROM done")}
        known: set[int] = set()
        for client in self.clients:
            acknowledged = set(client.acknowledged)
            lost = acknowledged - there
            if lost:
                self.wrong.append(
                    f"client {client.number}: {len(lost)} acknowledged commits lost, such as {sorted(lost)[:5]}"
                )
            known |= acknowledged
            if client.pending and client.pending in there:
                client.acknowledged.append(client.pending)
                known.add(client.pending)
            client.pending = 0
        extra = there - known
        if extra:
            self.wrong.append(f"{len(extra)} transactions are there that never committed, such as {sorted(extra)[:5]}")

    def halves(self) -> None:
        """No transaction is half there."""
        self._none(
            "legs missing or too many",
            "SELECT d.txn, d.legs, COUNT(j.leg), SUM(ABS(j.delta)) FROM done d LEFT JOIN journal j ON j.txn = d.txn"
            " GROUP BY d.txn, d.legs, d.total HAVING COUNT(j.leg) <> 2 * d.legs OR SUM(ABS(j.delta)) <> 2 * d.total",
        )
        self._none(
            "journal without done", "SELECT j.txn FROM journal j LEFT JOIN done d ON d.txn = j.txn WHERE d.txn IS NULL"
        )
        self._none(
            "done without tally",
            "SELECT d.txn FROM done d LEFT JOIN tally t ON t.txn = d.txn WHERE t.txn IS NULL OR t.legs <> d.legs",
        )
        self._none(
            "tally without done", "SELECT t.txn FROM tally t LEFT JOIN done d ON d.txn = t.txn WHERE d.txn IS NULL"
        )
        self._none(
            "document without done",
            "SELECT o.txn FROM document o LEFT JOIN done d ON d.txn = o.txn WHERE d.txn IS NULL",
        )
        self._none(
            "document and tally disagree",
            "SELECT t.txn, t.note = 'forgotten', o.txn FROM tally t LEFT JOIN document o ON o.txn = t.txn"
            " WHERE (t.note = 'forgotten') <> (o.txn IS NULL)",
        )

    def documents(self) -> None:
        """Deletions that were acknowledged stay; bodies are whole."""
        there = {int(str(r[0])) for r in self._rows("SELECT txn FROM document FORCE INDEX (by_txn)")}
        for client in self.clients:
            gone = set(client.deleted)
            if client.pending_delete and client.pending_delete not in there:
                client.deleted.append(client.pending_delete)
                gone.add(client.pending_delete)
            client.pending_delete = 0
            back = gone & there
            missing = set(client.acknowledged) - gone - there
            if back:
                self.wrong.append(f"client {client.number}: deleted documents are back: {sorted(back)[:5]}")
            if missing:
                self.wrong.append(f"client {client.number}: documents lost: {sorted(missing)[:5]}")
        self._none(
            "document with a wrong checksum", "SELECT txn, digest, LENGTH(body) FROM document WHERE MD5(body) <> digest"
        )

    def indexes(self) -> None:
        """Every index holds the same rows."""
        for table, keys in KEYS.items():
            column = SUMS[table]
            want = self._rows(
                f"SELECT COUNT(*), SUM({column}) FROM {table} IGNORE INDEX ({', '.join(k for k in keys if k != 'PRIMARY') or 'PRIMARY'})"
            )
            for key in keys:
                got = self._rows(f"SELECT COUNT(*), SUM({column}) FROM {table} FORCE INDEX ({key})")
                if got != want:
                    self.wrong.append(f"{table}.{key}: {got} rows and sum, the table has {want}")

    def check_table(self) -> None:
        """The engine's own check."""
        for name in NAMES:
            rows = self._rows(f"CHECK TABLE {name} EXTENDED")
            if [r[3] for r in rows] != ["OK"]:
                self.wrong.append(f"CHECK TABLE {name} EXTENDED: {rows}")
