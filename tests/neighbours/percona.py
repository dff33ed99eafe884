"""The Percona Toolkit beside writers: tables changed and moved to another engine through triggers, rows archived and purged,
a replica compared with its primary and repaired."""

from __future__ import annotations

from neighbours import shop
from neighbours.fleet import Fleet
from neighbours.place import Session, caught_up, expect

SMALL_CHUNKS = "--chunk-size=100 --chunk-time=0"
"""So that there are many, with writers between them."""
NO_PARENT = 1452
DIFFERENCE = 16
"""Exit code of pt-table-checksum."""
REPAIRED = 2
"""Exit code of pt-table-sync: there was a difference."""


def schema_change(fleet: Fleet) -> str:
    """A parent, its child, and a table that leaves InnoDB."""
    primary = fleet.primary
    with shop.writers_on(primary) as writers:
        writers.work(50)
        for block in ("change_parent", "change_child", "change_engine"):
            fleet.run(block, primary, {}, more=SMALL_CHUNKS)
            writers.work(20)
            _nothing_left(primary.session())
        fleet.settle(writers)
    _changed(primary.session())
    return f"a parent, its child, a table that leaves InnoDB; errors that clients repeated: {writers.errors()}"


def _nothing_left(session: Session) -> None:
    tables = session.run(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop' AND table_name LIKE '\\_%'"
    )
    expect(not tables, "tables that pt-online-schema-change has left", tables)
    triggers = session.run("SHOW TRIGGERS FROM shop WHERE `Trigger` LIKE 'pt%'")
    expect(not triggers, "triggers that it has left", triggers)


def _changed(session: Session) -> None:
    """Columns, engine and foreign key are what the page says."""
    parents = session.run(
        "SELECT constraint_name, referenced_table_name FROM information_schema.referential_constraints WHERE constraint_schema = 'shop'"
    )
    expect([p for _, p in parents] == ["customer"], "what the orders refer to", parents)
    try:
        session.run("INSERT INTO shop.orders (customer, amount, placed) VALUES (99999, 0, NOW())")
    except Exception as e:
        expect(e.args[0] == NO_PARENT, "an order without a customer", e)
    else:
        expect(False, "an order without a customer is taken")
    columns = {row[0] for row in session.run("SHOW COLUMNS FROM shop.customer")}
    expect("city" in columns, "columns of the parent", columns)
    amount = session.run("SHOW COLUMNS FROM shop.orders LIKE 'amount'")[0][1]
    expect(amount.startswith("bigint"), "the column of the child", amount)
    engine = session.value(
        "SELECT engine FROM information_schema.tables WHERE table_schema = 'shop' AND table_name = 'visit'"
    )
    expect(engine == "FERRITE", "the engine of the third table", engine)


def archiver(fleet: Fleet) -> str:
    """Old orders to another database, old visits to nowhere, while clients change the old orders, too."""
    primary = fleet.primary
    fleet.run("archive_table", primary, {})
    fleet.archived = True
    with shop.writers_on(primary) as writers:
        writers.work(50)
        fleet.run("archive", primary, {})
        fleet.run("purge", primary, {})
        writers.work(20)
        fleet.settle(writers)
    session = primary.session()
    moved = session.value("SELECT COUNT(*) FROM archive.orders")
    expect(moved == shop.OLD_ORDERS, "orders in the archive", moved)
    left = session.value("SELECT COUNT(*) FROM shop.orders WHERE placed < NOW() - INTERVAL 90 DAY")
    expect(left == 0, "old orders that are left", left)
    visits = session.value("SELECT COUNT(*) FROM shop.visit WHERE client = 0")
    expect(visits == 0, "old visits that are left", visits)
    return f"{moved} rows moved, {shop.OLD_VISITS} purged, none lost or changed; errors that clients repeated: {writers.errors()}"


def table_checksum(fleet: Fleet) -> str:
    """Without a difference beside writers; then with three that are planted, and after they are repaired."""
    primary, replica = fleet.primary, fleet.replica
    with shop.writers_on(primary) as writers:
        writers.work(50)
        fleet.run("checksum", primary, {})
        writers.work(20)
        fleet.settle(writers)
        planted = replica.session("shop")
        planted.run("SET sql_log_bin = 0")
        planted.run("UPDATE customer SET note = 'planted' WHERE id = 7")
        planted.run("DELETE FROM orders ORDER BY id LIMIT 3")
        planted.run("INSERT INTO entry VALUES (99, 1)")
        said = fleet.run("checksum", primary, {}, good=DIFFERENCE)
        found = sorted(
            name
            for (name,) in replica.session().run(
                "SELECT DISTINCT tbl FROM percona.checksums WHERE this_crc <> master_crc OR this_cnt <> master_cnt"
            )
        )
        expect(found == ["customer", "entry", "orders"], "tables with a difference", (found, said))
        fleet.run("sync", primary, {"h=db1": f"h=127.0.0.1,P={primary.port}"}, good=REPAIRED)
        caught_up(replica, primary)
        tables = fleet.settle(writers)
        fleet.run("checksum", primary, {})
    return f"no difference beside writers; planted ones in {', '.join(found)} found and repaired; {tables} tables are the same"
