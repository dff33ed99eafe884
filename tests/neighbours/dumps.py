"""mariadb-dump and mydumper beside writers: what is restored is one moment of the database, and the position in the binary log
that the dump names is that of the same moment, so that a replica made of it ends up equal to its primary."""

from __future__ import annotations

from neighbours import shop
from neighbours.fleet import Fleet
from neighbours.place import caught_up


def mariadb_dump(fleet: Fleet) -> str:
    """Dump all databases beside writers, restore them on a fresh server, let that replicate."""
    primary = fleet.primary
    with shop.writers_on(primary) as writers:
        writers.work(100)
        before = writers.acknowledged()
        fleet.run("dump", primary, {"/backup": str(fleet.backup)})
        restored = fleet.restored()
        writers.well()
        session = restored.session()
        shop.consistent(session, before)
        shop.whole(session)
        rows = session.value("SELECT COUNT(*) FROM shop.entry")
        writers.work(50)
        fleet.replicate(restored)
        writers.work(50)
        tables = fleet.settle(writers)
    return f"one moment, with {rows} transactions; the replica made of it has the same {tables} tables"


def mydumper(fleet: Fleet) -> str:
    """The same with several connections of one snapshot; only the shop, accounts are not in it."""
    primary, folder = fleet.primary, fleet.folder("shop")
    with shop.writers_on(primary) as writers:
        writers.work(100)
        before = writers.acknowledged()
        fleet.run("mydumper", primary, {"/backup/shop": str(folder)})
        restored = fleet.started(3)
        fleet.run("myloader", restored, {"/backup/shop": str(folder)})
        writers.well()
        session = restored.session()
        shop.consistent(session, before, fleet.archived)
        shop.whole(session)
        rows = session.value("SELECT COUNT(*) FROM shop.entry")
        here = {"/backup/shop": str(folder), "'db1'": f"'127.0.0.1', MASTER_PORT={primary.port}"}
        fleet.run("mydumper_replica", restored, here)
        writers.work(50)
        writers.stop()
        caught_up(restored, primary)
        shop.consistent(restored.session(), writers.acknowledged(), fleet.archived)
        tables = shop.equal(primary, restored)
    restored.remove()
    return f"one moment, with {rows} transactions; the replica made of it has the same {tables} tables"
