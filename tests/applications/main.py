"""Schemas of real applications, from Debian packages: loaded with both engines, they give the same tables, keys and
foreign keys, and a dump of them can be loaded again."""

from __future__ import annotations

import argparse
import gzip
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.engines import engine
from lib.places import Places, find_places
from lib.server import Server, home_in_memory, stop_on_signals

SKIPPED = 77
INNODB = re.compile(r"\b(ENGINE|TYPE)\s*=\s*'?InnoDB'?", re.IGNORECASE)


@dataclass(frozen=True)
class Application:
    """Where a schema is."""

    package: str
    files: tuple[str, ...]
    """In their order, below the unpacked package."""


APPLICATIONS = (
    Application("kea-admin", ("**/dhcpdb_create.mysql",)),
    Application("zabbix-server-mysql", ("**/schema.sql*", "**/images.sql*", "**/data.sql*")),
    Application("roundcube-core", ("**/mysql.initial.sql",)),
    Application("icingaweb2-common", ("**/mysql.schema.sql",)),
    Application("pdns-backend-mysql", ("**/schema.mysql.sql", "**/enable-foreign-keys.mysql.sql")),
)


class Failed(Exception):
    """The engines differ."""


def _text(path: Path) -> str:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", errors="surrogateescape")


def schema(root: Path, application: Application) -> str:
    """All statements; empty when the package has no such files."""
    found = [sorted(root.glob(pattern))[:1] for pattern in application.files]
    return "\n".join(_text(path) for paths in found for path in paths)


class Loader:
    """One server on which both engines load."""

    def __init__(self, places: Places) -> None:
        self.places = places
        options = ["--log-bin-trust-function-creators=1", "--max-allowed-packet=64M"]
        self.server = Server(places, engine("ferrite"), options, home_in_memory())

    def client(self, program: str, *words: str, feed: str = "") -> str:
        """What a client program says."""
        run = subprocess.run(
            [str(self.places.program(program)), "--no-defaults", f"--socket={self.server.socket}", "-uroot", *words],
            input=feed.encode("utf-8", errors="surrogateescape"),
            env=self.places.child_env(),
            capture_output=True,
            check=False,
        )
        if run.returncode:
            raise Failed(f"{program} {' '.join(words)}: {run.stderr.decode(errors='replace')[-1000:]}")
        return run.stdout.decode("utf-8", errors="surrogateescape")

    def rows(self, sql: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        connection = self.server.connect(database=database, autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def load(self, database: str, name: str, sql: str) -> list[tuple[Any, ...]]:
        """Load it into an empty database; what is there then."""
        self.rows(f"CREATE OR REPLACE DATABASE {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        header = f"SET default_storage_engine={name};\n"
        self.client("mariadb", database, feed=header + INNODB.sub(lambda m: f"{m[1]}={name}", sql))
        return self.shown(database)

    def shown(self, database: str) -> list[tuple[Any, ...]]:
        """Every table as it is shown, without the engine's name, and how many rows it has."""
        tables = self.rows(
            "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES"
            f" WHERE TABLE_SCHEMA='{database}' AND TABLE_TYPE='BASE TABLE' ORDER BY 1"
        )
        found = []
        for table, _ in tables:
            quoted = "`" + str(table).replace("`", "``") + "`"
            definition = str(self.rows(f"SHOW CREATE TABLE {quoted}", database)[0][1])
            found.append(
                (table, INNODB.sub("", definition).replace("ENGINE=FERRITE", ""), self._count(database, quoted))
            )
        return found

    def _count(self, database: str, quoted: str) -> int:
        return int(self.rows(f"SELECT COUNT(*) FROM {quoted}", database)[0][0])

    def foreign_keys(self, database: str) -> int:
        """How many constraints."""
        count = f"SELECT COUNT(*) FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA='{database}'"
        return int(self.rows(count)[0][0])

    def foreign_engines(self, database: str) -> int:
        """Tables in another engine than ours."""
        count = (
            f"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='{database}'"
            " AND TABLE_TYPE='BASE TABLE' AND ENGINE='InnoDB'"
        )
        return int(self.rows(count)[0][0])

    def one(self, application: Application, sql: str) -> None:
        """Both engines, and a dump of ours."""
        wanted = self.load("as_innodb", "InnoDB", sql)
        found = self.load("as_ferrite", "FERRITE", sql)
        self._compare(application, wanted, found)
        if self.foreign_engines("as_ferrite"):
            raise Failed(f"{application.package}: tables of InnoDB are left")
        dump = self.client("mariadb-dump", "--routines", "as_ferrite")
        self.rows("CREATE OR REPLACE DATABASE again CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        self.client("mariadb", "again", feed=dump)
        self._compare(application, found, self.shown("again"))
        rows = sum(row[2] for row in found)
        print(
            f"{application.package}: {len(found)} tables, {self.foreign_keys('as_ferrite')} foreign keys, {rows} rows:"
            " as on InnoDB, and again from a dump",
            flush=True,
        )
        for database in ("again", "as_ferrite", "as_innodb"):
            self.rows(f"DROP DATABASE {database}")

    @staticmethod
    def _compare(application: Application, wanted: list[tuple[Any, ...]], found: list[tuple[Any, ...]]) -> None:
        if not wanted:
            raise Failed(f"{application.package}: no tables")
        if [row[0] for row in wanted] != [row[0] for row in found]:
            raise Failed(f"{application.package}: {len(wanted)} tables, not {len(found)}")
        for one, other in zip(wanted, found, strict=True):
            if one != other:
                raise Failed(f"{application.package}: {one}\nis here {other}")


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="./ferrite test applications", description=__doc__)
    parser.add_argument("--engine", default="ferrite", choices=["ferrite"])
    parser.add_argument("--ci", action="store_true", help="the same: it is short")
    parser.parse_args()
    stop_on_signals()
    root = Path(os.environ["APPLICATIONS"])
    schemas = {a: schema(root / a.package, a) for a in APPLICATIONS if (root / a.package).exists()}
    if not schemas:
        print("no package could be downloaded")
        return SKIPPED
    loader = Loader(find_places())
    failed = False
    try:
        loader.server.start()
        for application, sql in schemas.items():
            try:
                loader.one(application, sql)
            except Failed as e:
                print(f"FAILED: {e}", flush=True)
                failed = True
    finally:
        loader.server.remove()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
