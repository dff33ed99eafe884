"""The database that every neighbour works on, clients that change it meanwhile, and what must hold of it at any moment.

A client's transactions are numbered. Each moves an amount between two customers, writes two orders for it, now and then changes
an old order, and leaves its number in `entry` (Ferrite) and in `visit` (at first InnoDB). So in any consistent picture of the
database each customer's balance is the sum of his orders, both tables have the same numbers, and of each client's numbers
those up to some point: all that had been acknowledged when the picture was taken.
"""

from __future__ import annotations

import itertools
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pymysql

from neighbours.place import Failed, Node, Session, expect

CUSTOMERS = 300
OLD_ORDERS = 6000
OLD_VISITS = 4000
APPLICATION = {"user": "app", "password": "app"}
TABLES = (
    "CREATE DATABASE shop",
    "CREATE DATABASE archive",
    "USE shop",
    "CREATE TABLE customer (id INT PRIMARY KEY, name VARCHAR(60) NOT NULL, balance BIGINT NOT NULL, note TEXT,"
    " KEY (name)) ENGINE=FERRITE",
    "CREATE TABLE orders (id INT AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL, amount INT NOT NULL,"
    " placed DATETIME NOT NULL, KEY (placed), KEY (customer),"
    " CONSTRAINT of_customer FOREIGN KEY (customer) REFERENCES customer (id)) ENGINE=FERRITE",
    "CREATE TABLE entry (client INT, n INT, PRIMARY KEY (client, n)) ENGINE=FERRITE",
    "CREATE TABLE visit (id BIGINT AUTO_INCREMENT PRIMARY KEY, client INT NOT NULL, n INT NOT NULL,"
    " at DATETIME NOT NULL, note VARCHAR(100), KEY (at), UNIQUE KEY (client, n)) ENGINE=InnoDB",
    "CREATE TABLE kinds (id BINARY(8) PRIMARY KEY, d DECIMAL(20,6), t DATETIME(6), b BIT(11), e ENUM('x','y','z'),"
    " j JSON, l LONGBLOB, v VARCHAR(40) CHARACTER SET utf8mb4, g INT AS (CHAR_LENGTH(v)) VIRTUAL,"
    " s INT AS (CHAR_LENGTH(v) * 2) STORED, KEY (g), UNIQUE KEY (v, d)) ENGINE=FERRITE",
    "CREATE TABLE measure (id INT, day DATE, v INT, PRIMARY KEY (id, day)) ENGINE=FERRITE"
    " PARTITION BY RANGE (YEAR(day)) (PARTITION p25 VALUES LESS THAN (2026), PARTITION later VALUES LESS THAN MAXVALUE)",
    f"INSERT INTO customer SELECT seq, CONCAT('customer ', seq), 0, REPEAT('n', IF(seq % 40, 20, 30000)) FROM seq_1_to_{CUSTOMERS}",
    f"INSERT INTO orders (customer, amount, placed) SELECT seq % {CUSTOMERS} + 1, seq % 90, NOW() - INTERVAL 2 YEAR"
    f" FROM seq_1_to_{OLD_ORDERS}",
    f"INSERT INTO visit (client, n, at) SELECT 0, seq, NOW() - INTERVAL 1 YEAR FROM seq_1_to_{OLD_VISITS}",
    "UPDATE customer c JOIN (SELECT customer, SUM(amount) AS a FROM orders GROUP BY customer) o ON o.customer = c.id"
    " SET c.balance = o.a",
    "INSERT INTO kinds (id, d, t, b, e, j, l, v) SELECT LPAD(HEX(seq * 7919), 8, '0'), seq / 7, FROM_UNIXTIME(seq * 1e6 + 0.25),"
    " seq, 1 + seq % 3, JSON_OBJECT('n', seq), REPEAT(CHAR(seq % 256), IF(seq % 50, seq, 200000)), CONCAT('wört ', seq)"
    " FROM seq_1_to_200",
    "INSERT INTO measure SELECT seq, '2025-06-01' + INTERVAL seq DAY, seq FROM seq_1_to_500",
    "CREATE VIEW rich AS SELECT id, name FROM customer WHERE balance > 0",
    "CREATE TRIGGER no_less BEFORE INSERT ON measure FOR EACH ROW SET NEW.v = GREATEST(NEW.v, 0)",
    "CREATE PROCEDURE spend(IN who INT) UPDATE customer SET balance = balance - 1 WHERE id = who",
    "CREATE EVENT tidy ON SCHEDULE EVERY 1 YEAR DISABLE DO DELETE FROM measure WHERE day < '1990-01-01'",
    "CREATE USER app@'%' IDENTIFIED BY 'app'",
    "GRANT ALL ON shop.* TO app@'%'",
    "CREATE USER repl@'%' IDENTIFIED BY 'secret'",
    "GRANT REPLICATION SLAVE ON *.* TO repl@'%'",
)
AGAIN = frozenset({1020, 1205, 1213, 1412})
"""What an application repeats: the row or the table has changed, a lock was not to be had."""
READ_ONLY = 1290
GONE = frozenset({0, 2003, 2006, 2013, 2055})
_numbers = itertools.count(1)


def create(node: Node) -> None:
    """Make the databases on a server."""
    session = node.session()
    fill(session)
    session.close()


def fill(session: Session) -> None:
    """Make the databases."""
    for statement in TABLES:
        session.run(statement)


class _Client(threading.Thread):
    """One client with its own connections; it repeats what it may, and notes what became of each number."""

    def __init__(self, connect: Callable[[], Any], allowed: frozenset[int], stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.number = next(_numbers)
        self.connect, self.allowed, self.stop_asked = connect, allowed, stop
        self.done: list[int] = []
        self.unknown: list[int] = []
        self.errors: Counter[int] = Counter()
        self.fault: Exception | None = None
        self.random = random.Random(self.number)

    def run(self) -> None:
        """Until it is told to stop; a fault ends it."""
        try:
            for n in itertools.count(1):
                if self.stop_asked.is_set() or not self._one(n):
                    return
        except Exception as e:
            self.fault = e

    connection: Any = None

    def _one(self, n: int) -> bool:
        """A transaction, again until its end is known, or may not be; whether to go on."""
        while not self.stop_asked.is_set():
            sent = False
            try:
                if self.connection is None:
                    self.connection = self.connect()
                sent = True
                self._transaction(n)
                self.done.append(n)
                time.sleep(0.002)
                return True
            except (pymysql.err.MySQLError, OSError) as e:
                code = e.args[0] if e.args and isinstance(e.args[0], int) else 0
                self.errors[code] += 1
                if code in GONE and GONE.issubset(self.allowed):
                    self.connection = None
                    if sent:
                        self.unknown.append(n)
                        return True
                elif code not in AGAIN | self.allowed:
                    raise
                else:
                    self.connection.rollback()
                time.sleep(0.01)
        return False

    def _transaction(self, n: int) -> None:
        one, other = self.random.sample(range(1, CUSTOMERS + 1), 2)
        amount, old = self.random.randint(1, 50), self.random.randint(1, OLD_ORDERS)
        with self.connection.cursor() as cursor:
            cursor.execute("BEGIN")
            for customer, change in ((one, amount), (other, -amount)):
                cursor.execute("UPDATE shop.customer SET balance = balance + %s WHERE id = %s", (change, customer))
                cursor.execute(
                    "INSERT INTO shop.orders (customer, amount, placed) VALUES (%s, %s, NOW())", (customer, change)
                )
            if cursor.execute("UPDATE shop.orders SET amount = amount + 1 WHERE id = %s", (old,)):
                cursor.execute("UPDATE shop.customer SET balance = balance + 1 WHERE id = %s", (old % CUSTOMERS + 1,))
            cursor.execute("INSERT INTO shop.entry VALUES (%s, %s)", (self.number, n))
            cursor.execute("INSERT INTO shop.visit (client, n, at) VALUES (%s, %s, NOW())", (self.number, n))
            cursor.execute("COMMIT")


class Writers:
    """Clients at work for the time of a block."""

    def __init__(self, connect: Callable[[], Any], allowed: frozenset[int] = frozenset(), clients: int = 4) -> None:
        self._stop = threading.Event()
        self.clients = [_Client(connect, allowed, self._stop) for _ in range(clients)]

    def __enter__(self) -> Writers:
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for client in self.clients:
            client.join(120)

    def well(self) -> None:
        """Complain if one of them has met what it should not."""
        for client in self.clients:
            if client.fault:
                raise Failed(f"client {client.number}: {client.fault!r}")

    def stop(self) -> None:
        """End them; complain as above."""
        self.__exit__()
        expect(not any(c.is_alive() for c in self.clients), "a client hangs")
        self.well()

    def acknowledged(self) -> dict[int, int]:
        """By client, the last number that it was told is committed."""
        return {c.number: c.done[-1] for c in self.clients if c.done}

    def work(self, transactions: int, seconds: float = 60) -> None:
        """Wait until so many more have been acknowledged."""
        wanted = sum(len(c.done) for c in self.clients) + transactions
        until = time.monotonic() + seconds
        while sum(len(c.done) for c in self.clients) < wanted:
            self.well()
            expect(time.monotonic() < until, "the clients stand still", self.errors())
            time.sleep(0.02)

    def errors(self) -> dict[int, int]:
        """Numbers of errors, and how often they were met."""
        return dict(sum((c.errors for c in self.clients), Counter()))


def writers_on(node: Node, allowed: frozenset[int] = frozenset()) -> Writers:
    """Clients of the application, straight to a server."""
    settings = {**APPLICATION, "read_timeout": 60}
    return Writers(lambda: node.connect(**settings), allowed)


def consistent(session: Session, acknowledged: dict[int, int], archived: bool = False) -> None:
    """What must hold of any picture of the database that was taken after these numbers were acknowledged."""
    orders = "SELECT customer, amount FROM shop.orders"
    if archived:
        orders += " UNION ALL SELECT customer, amount FROM archive.orders"
    wrong = session.run(
        "SELECT c.id, c.balance, o.s FROM shop.customer c LEFT JOIN"
        f" (SELECT customer, SUM(amount) AS s FROM ({orders}) u GROUP BY customer) o ON o.customer = c.id"
        " WHERE c.balance <> COALESCE(o.s, 0)"
    )
    expect(not wrong, "customers whose balance is not the sum of their orders", wrong[:5])
    expect(session.value("SELECT COUNT(*) FROM shop.customer") == CUSTOMERS, "customers are missing")
    for one, other in (("entry", "visit"), ("visit", "entry")):
        half = session.run(
            f"SELECT a.client, a.n FROM shop.{one} a LEFT JOIN shop.{other} b USING (client, n)"
            " WHERE a.client > 0 AND b.n IS NULL LIMIT 5"
        )
        expect(not half, f"transactions of which {one} has a part and {other} has none", half)
    there = {
        client: (count, last)
        for client, count, last in session.run("SELECT client, COUNT(*), MAX(n) FROM shop.entry GROUP BY client")
    }
    for client, last in acknowledged.items():
        expect(there.get(client, (0, 0))[1] >= last, f"client {client}: {last} was acknowledged", there.get(client))


def whole(session: Session, databases: tuple[str, ...] = ("shop", "archive")) -> None:
    """CHECK TABLE EXTENDED of every table."""
    for name in _tables(session, databases):
        if "SEQUENCE" in name[2]:
            continue
        said = [row[2:] for row in session.run(f"CHECK TABLE {name[0]}.{name[1]} EXTENDED")]
        expect(said == [("status", "OK")], f"CHECK TABLE {name[0]}.{name[1]}", said)


def _tables(session: Session, databases: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return session.run(
        "SELECT table_schema, table_name, table_type FROM information_schema.tables"
        " WHERE table_schema IN %s AND table_type <> 'VIEW' ORDER BY 1, 2",
        databases,
    )


def content(session: Session, databases: tuple[str, ...] = ("shop", "archive")) -> dict[str, object]:
    """Definitions and checksums of all tables; views, triggers, routines and events."""
    found: dict[str, object] = {}
    for database, table, _ in _tables(session, databases):
        name = f"{database}.{table}"
        definition = re.sub(r" AUTO_INCREMENT=\d+", "", session.run(f"SHOW CREATE TABLE {name}")[0][1])
        found[name] = (definition, session.run(f"CHECKSUM TABLE {name} EXTENDED")[0][1])
    for what, sql in {
        "views": "SELECT table_schema, table_name, view_definition FROM information_schema.views",
        "triggers": "SELECT trigger_schema, trigger_name, action_statement FROM information_schema.triggers",
        "routines": "SELECT routine_schema, routine_name, routine_definition FROM information_schema.routines",
        "events": "SELECT event_schema, event_name, event_definition FROM information_schema.events",
    }.items():
        found[what] = sorted(row for row in session.run(sql) if row[0] in databases)
    return found


def equal(one: Node, other: Node) -> int:
    """Two servers that nobody writes to have the same; how many tables that are."""
    a, b = content(one.session()), content(other.session())
    different = {name: (a.get(name), b.get(name)) for name in a.keys() | b.keys() if a.get(name) != b.get(name)}
    expect(not different, "two servers that are to have the same", different)
    return len(a) - 4
