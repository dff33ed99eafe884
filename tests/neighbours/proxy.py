"""HAProxy in front of a primary and its replica: what clients see when the primary is killed, that no acknowledged transaction is
lost when the replica takes its place, that nobody goes back to a primary that returns, and that it can follow.

The replica acknowledges what it has received (semi-synchronous replication) before a client is told that it is committed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import pymysql

from neighbours import shop
from neighbours.fleet import Fleet
from neighbours.place import Failed, Node, Session, caught_up, end, expect, free_port

LONGEST_SECONDS = 15.0
"""Two checks that fail, a second apart, and what a connection attempt waits; the machine may be busy."""


UNRECEIVED_SECONDS = 0.5


class _Front:
    """HAProxy with the page's settings."""

    def __init__(self, fleet: Fleet) -> None:
        self.port = free_port()
        addresses = {
            "10.0.0.1:3306": f"127.0.0.1:{fleet.primary.port}",
            "10.0.0.2:3306": f"127.0.0.1:{fleet.replica.port}",
        }
        text = fleet.page.block("haproxy", {"bind :3306": f"bind 127.0.0.1:{self.port}", **addresses})
        self.config = fleet.backup / "haproxy.cfg"
        self.config.write_text(text + "\n")

    @contextlib.contextmanager
    def running(self, fleet: Fleet) -> Iterator[None]:
        """For the time of a block."""
        here = {"/etc/haproxy/haproxy.cfg": str(self.config)}
        fleet.run("haproxy_check", fleet.primary, here)
        child = fleet.programs.start(f"exec haproxy -db -f {self.config}", fleet.backup)
        try:
            _until(lambda: self.number() == fleet.primary.number, "the primary through the proxy")
            yield
        finally:
            end(child)

    def connect(self) -> Any:
        """As an application's client."""
        return pymysql.connect(
            host="127.0.0.1", port=self.port, connect_timeout=10, read_timeout=60, autocommit=True, **shop.APPLICATION
        )

    def number(self) -> int | None:
        """Which server answers a new connection; None: none does."""
        try:
            with contextlib.closing(self.connect()) as connection:
                return int(Session(connection).value("SELECT @@server_id"))
        except (pymysql.err.MySQLError, OSError):
            return None


def _until(ask: Any, what: str) -> float:
    begun = time.monotonic()
    while time.monotonic() - begun < LONGEST_SECONDS:
        if ask():
            return time.monotonic() - begun
        time.sleep(0.02)
    raise Failed(f"not within {LONGEST_SECONDS:.0f} s: {what}")


class _Waiting(threading.Thread):
    """A client in the middle of a statement."""

    def __init__(self, connection: Any) -> None:
        super().__init__(daemon=True)
        self.connection = connection
        self.code = 0
        self.ended = 0.0

    def run(self) -> None:
        """Until the statement ends, which it does not by itself."""
        try:
            Session(self.connection).run("SELECT SLEEP(100)")
        except pymysql.err.MySQLError as e:
            self.code = e.args[0]
        self.ended = time.monotonic()


def failover(fleet: Fleet) -> str:
    """The whole story; afterwards the replica is the primary, and the primary its replica."""
    old, new = fleet.primary, fleet.replica
    fleet.run("semisync_primary", old, {})
    fleet.run("semisync_replica", new, {})
    fleet.run("haproxy_user", old, {"10.0.0.%": "127.0.0.1"})
    caught_up(new, old)
    _until(
        lambda: old.session().row("SHOW STATUS LIKE 'Rpl_semi_sync_master_status'").get("Value") == "ON",
        "semi-synchronous replication",
    )
    front = _Front(fleet)
    with front.running(fleet), shop.Writers(front.connect, shop.GONE | {shop.READ_ONLY}) as writers:
        writers.work(100)
        seen = _killed(front, old, new)
        before = sum(len(c.unknown) for c in writers.clients)
        fleet.run("promote", new, {})
        writers.work(100)
        again = _returns(fleet, front, writers)
    return f"{seen}; {before} transactions without an answer, none lost of those with one; {again}"


def _killed(front: _Front, old: Node, new: Node) -> str:
    """kill -9 of the primary: a statement fails at once, an idle connection at its next one, new ones reach the replica."""
    waiting, idle = _Waiting(front.connect()), front.connect()
    waiting.start()
    _until(
        lambda: old.session().run("SELECT 1 FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'"),
        "the statement",
    )
    # What the clients commit now is in the old primary's binary log alone, and they wait for an answer.
    new.session().run("STOP SLAVE IO_THREAD")
    time.sleep(UNRECEIVED_SECONDS)
    begun = time.monotonic()
    old.kill()
    waiting.join(LONGEST_SECONDS)
    expect(waiting.code == 2013, "error of a statement that is cut off", waiting.code)
    try:
        Session(idle).run("SELECT 1")
    except pymysql.err.MySQLError as e:
        expect(e.args[0] in (2006, 2013), "error of an idle connection", e)
    else:
        raise Failed("a connection to a dead server answers")
    _until(lambda: front.number() == new.number, "the replica through the proxy")
    outage = time.monotonic() - begun
    with contextlib.closing(front.connect()) as connection:
        try:
            Session(connection).run("DELETE FROM shop.customer")
        except pymysql.err.MySQLError as e:
            expect(e.args[0] == shop.READ_ONLY, "a change before the promotion", e)
        else:
            raise Failed("the replica takes changes before it is promoted")
    return f"error 2013 after {waiting.ended - begun:.2f} s, the replica answers after {outage:.1f} s"


def _returns(fleet: Fleet, front: _Front, writers: shop.Writers) -> str:
    """The old primary starts again: clients stay where they are, it follows, and both have the same."""
    old, new = fleet.primary, fleet.replica
    old.options += ["--read-only", "--init-rpl-role=SLAVE", "--rpl-semi-sync-slave-enabled=ON"]
    old.start()
    log = old.error_log.read_text(errors="replace")
    expect("Successfully truncated binlog" in log, "nothing was cut off the old primary's binary log", old.log_tail())
    time.sleep(3)
    expect(front.number() == new.number, "the server that answers after the old primary has returned", front.number())
    fleet.run("old_primary", old, {"'db2'": f"'127.0.0.1', MASTER_PORT={new.port}"})
    writers.work(50)
    writers.stop()
    caught_up(old, new)
    for node in (new, old):
        session = node.session()
        shop.consistent(session, writers.acknowledged(), fleet.archived)
        shop.whole(session)
    return f"the old primary follows, and has the same {shop.equal(old, new)} tables"
