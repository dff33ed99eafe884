"""mariadb-upgrade over a data directory with Ferrite tables, the server's own among them; and from the series before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pymysql

from lib.places import Places
from neighbours import shop
from neighbours.fleet import Fleet
from neighbours.place import Node, Session, expect, node

NOT_MOVED = ("plugin", "transaction_registry")
"""The server needs the one before it has engines, and keeps the other in InnoDB."""
FEWEST_MOVED = 20
VERSIONED = (
    "CREATE TABLE shop.price (id INT PRIMARY KEY, p INT) WITH SYSTEM VERSIONING ENGINE=FERRITE",
    "INSERT INTO shop.price VALUES (1, 1), (2, 2), (3, 3)",
    "UPDATE shop.price SET p = p + 1 WHERE id < 3",
    "DELETE FROM shop.price WHERE id = 1",
)
PRICES = [(2, 2, 0), (1, 1, 0), (1, 2, 0), (2, 3, 1), (3, 3, 1)]


def old_places() -> Places | None:
    """Where the server of the series before is, if run.sh has been told to bring it."""
    if not os.environ.get("OLD_FERRITE_MARIADBD"):
        return None
    old = {name: os.environ[f"OLD_{name}"] for name in ("FERRITE_SERVER_PREFIX", "FERRITE_MARIADBD", "HA_FERRITE_SO")}
    return Places(
        cache=Path(os.environ["OLD_FERRITE_CACHE"]),
        basedir=Path(old["FERRITE_SERVER_PREFIX"]),
        mariadbd=Path(old["FERRITE_MARIADBD"]),
        library_path=os.environ.get("OLD_FERRITE_SERVER_LIBS", ""),
        version=os.environ["OLD_FERRITE_SERVER_VERSION"],
        ferrite_so=Path(old["HA_FERRITE_SO"]),
    )


def mariadb_upgrade(fleet: Fleet) -> str:
    """On this series, with system tables in Ferrite; then from the series before."""
    with node(fleet.places, 4) as server:
        _fill(server)
        moved = _own_tables(server.session())
        said = _upgraded(fleet, server, "--force")
    old = old_places()
    if old:
        with node(old, 5) as server:
            _fill(server)
            wanted = _sums(server.session())
            expect(server.stop() == 0, "a clean shutdown")
            after = Node(fleet.places, 5, home=server.home)
            shutil.rmtree(server.home / "plugin")
            after.create()
            try:
                after.start()
                _upgraded(fleet, after)
                expect(_sums(after.session()) == wanted, "sums after the upgrade", wanted)
            finally:
                after.kill()
        said += f", and the same from {old.version} to {fleet.places.version}"
    return f"{moved} of the server's own tables in Ferrite: {said}"


def _fill(server: Node) -> None:
    shop.create(server)
    session = server.session()
    for statement in VERSIONED:
        session.run(statement)


def _own_tables(session: Session) -> int:
    """Move the server's own tables to Ferrite, as a restored dump of all databases does under enforcement."""
    moved = 0
    for (table,) in session.run(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'mysql' AND table_type = 'BASE TABLE'"
        " AND engine IN ('Aria', 'MyISAM', 'InnoDB') AND table_name NOT IN %s",
        NOT_MOVED,
    ):
        try:
            session.run(f"ALTER TABLE mysql.{table} ENGINE=FERRITE")
            moved += 1
        except pymysql.err.MySQLError as e:
            print(f"  mysql.{table} stays: {e}", flush=True)
    expect(moved >= FEWEST_MOVED, "the server's own tables that can be moved", moved)
    return moved


def _upgraded(fleet: Fleet, server: Node, more: str = "") -> str:
    """Run it; everything is there afterwards, after another start, too."""
    before = _sums(server.session())
    fleet.run("upgrade", server, {}, more=more)
    checked = fleet.run("upgrade_check", server, {})
    wrong = [line for line in checked.splitlines() if not line.endswith("OK")]
    expect(not wrong, "mariadb-check", wrong)
    for again in (False, True):
        if again:
            expect(server.stop() == 0, "a clean shutdown")
            server.start()
        session = server.session()
        shop.consistent(session, {})
        shop.whole(session)
        expect(_sums(session) == before, "sums", before)
        prices = session.run(
            "SELECT id, p, row_end > NOW() + INTERVAL 1 DAY FROM shop.price FOR SYSTEM_TIME ALL ORDER BY row_end > NOW() + INTERVAL 1 DAY, id, p"
        )
        expect(sorted(prices) == sorted(PRICES), "a table with its history", prices)
        with_password = server.connect(host="127.0.0.1", port=server.port, unix_socket=None, **shop.APPLICATION)
        with_password.close()
    return f"all {len(before)} tables of users as before"


def _sums(session: Session) -> dict[str, object]:
    """Checksums of users' tables, but not of the one with history: its last moment is another one from 11.5 on."""
    found = shop.content(session)
    return {name: entry[1] for name, entry in found.items() if isinstance(entry, tuple) and name != "shop.price"}
