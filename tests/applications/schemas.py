"""A schema on both engines of one server: what is there afterwards, and which statements failed."""

from __future__ import annotations

import gzip
import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from applications.table import Application
from lib.engines import engine
from lib.places import Places
from lib.server import Server, home_in_memory

NAMED = re.compile(r"\b(ENGINE|TYPE)(\s*=\s*)'?(?:InnoDB|MyISAM|MEMORY|HEAP|Aria)'?", re.IGNORECASE)
ENGINE = re.compile(r"\) ENGINE=\w+")
# The test says which database; some files make one of a name of their own.
DATABASE = re.compile(r"^\s*(CREATE\s+DATABASE|CREATE\s+SCHEMA|USE)\b[^;]*;", re.IGNORECASE | re.MULTILINE)
FAILURE = re.compile(r"^ERROR (\d+) \(\w+\) at line (\d+)[^:]*: (.*)$", re.MULTILINE)
REFUSED_INDEX = re.compile(r"^\s+(FULLTEXT|SPATIAL) KEY", re.MULTILINE)
REFUSALS = {1214, 1464}
FOLLOW = {1005, 1072, 1146, 1824, 1215, 1452}
"""A table that is missing: statements that name it, and foreign keys to it, fail too."""
MODE = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER"
"""The server's default without NO_ENGINE_SUBSTITUTION, under which InnoDB could not be enforced."""


class Failed(Exception):
    """The engines differ."""


@dataclass
class Shown:
    """What is there after a schema was loaded."""

    tables: dict[str, str] = field(default_factory=dict)
    """SHOW CREATE TABLE without the engine's name."""
    rows: dict[str, int] = field(default_factory=dict)
    constraints: list[tuple[Any, ...]] = field(default_factory=list)
    failed: list[tuple[int, int, str]] = field(default_factory=list)
    """Line, error code and text of the statements that failed."""

    def without(self, gone: set[str]) -> Shown:
        """The same without some tables, their rows and constraints, and without the statements."""
        return Shown(
            {name: text for name, text in self.tables.items() if name not in gone},
            {name: count for name, count in self.rows.items() if name not in gone},
            [row for row in self.constraints if row[1] not in gone and row[-1] not in gone],
        )


def text(path: Path) -> str:
    """A file, unpacked."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return data.decode("utf-8", errors="surrogateescape")


def statements(roots: list[Path], application: Application) -> str:
    """All of a schema, with its placeholders filled in."""
    found: dict[Path, None] = {}
    for pattern in application.files:
        paths = [path for root in roots for path in sorted(root.glob(pattern)) if path.is_file()]
        if not paths:
            raise Failed(f"{application.name}: the package has no {pattern}")
        found.update(dict.fromkeys(paths))
    sql = "\n;\n".join(text(path) for path in found)
    for pattern, by in application.replace:
        sql = re.sub(pattern, by, sql)
    return DATABASE.sub("", sql)


class Loader:
    """One server on which both engines load."""

    def __init__(self, places: Places) -> None:
        self.places = places
        options = ["--log-bin-trust-function-creators=1", "--max-allowed-packet=64M", "--ferrite-replace-engines"]
        self.server = Server(places, engine("ferrite"), options, home_in_memory())

    def client(self, program: str, *words: str, feed: str = "", keep_on: bool = False) -> tuple[str, str]:
        """What a client program says, and what it complains of."""
        run = subprocess.run(
            [str(self.places.program(program)), "--no-defaults", f"--socket={self.server.socket}", "-uroot", *words],
            input=feed.encode("utf-8", errors="surrogateescape"),
            env=self.places.child_env(),
            capture_output=True,
            check=False,
        )
        complaint = run.stderr.decode(errors="replace")
        self.server.check()
        if run.returncode and not keep_on:
            raise Failed(f"{program} {' '.join(words)}: {complaint[-1000:]}")
        return run.stdout.decode("utf-8", errors="surrogateescape"), complaint

    def rows(self, sql: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        connection = self.server.connect(database=database, autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def fresh(self, database: str) -> None:
        """An empty database; CREATE OR REPLACE would fail at its foreign keys, on either engine."""
        self.rows(f"DROP DATABASE IF EXISTS {database}")
        self.rows(f"CREATE DATABASE {database} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci")

    def load(self, database: str, name: str, sql: str) -> Shown:
        """Load it into an empty database with one engine for all tables; statements that fail are left out."""
        self.fresh(database)
        # In front of the file's first line: the lines keep their numbers. Ferrite is enforced by the documented way,
        # ferrite_replace_engines, under the server's own default.
        mode = MODE if name == "InnoDB" else f"{MODE},NO_ENGINE_SUBSTITUTION"
        header = f"SET SESSION sql_mode='{mode}', enforce_storage_engine={name}; "
        complaint = self.client("mariadb", "--force", database, feed=header + sql, keep_on=True)[1]
        shown = self.shown(database)
        shown.failed = [(int(line), int(code), words) for code, line, words in FAILURE.findall(complaint)]
        strangers = set(self._engines(database).values()) - {name}
        if strangers:
            raise Failed(f"{database} has tables of {', '.join(sorted(strangers))}")
        return shown

    def _engines(self, database: str) -> dict[str, str]:
        found = self.rows(
            "SELECT TABLE_NAME, ENGINE FROM information_schema.TABLES"
            f" WHERE TABLE_SCHEMA='{database}' AND TABLE_TYPE='BASE TABLE' ORDER BY 1"
        )
        return {str(name): str(kind) for name, kind in found}

    def shown(self, database: str) -> Shown:
        """Every table as it is shown, without the engine's name, and how many rows it has; all constraints."""
        shown = Shown()
        for table in self._engines(database):
            quoted = "`" + table.replace("`", "``") + "`"
            shown.tables[table] = ENGINE.sub(")", str(self.rows(f"SHOW CREATE TABLE {quoted}", database)[0][1]))
            shown.rows[table] = int(self.rows(f"SELECT COUNT(*) FROM {quoted}", database)[0][0])
        shown.constraints = self._constraints(database)
        return shown

    def _constraints(self, database: str) -> list[tuple[Any, ...]]:
        where = f"WHERE CONSTRAINT_SCHEMA='{database}'"
        return self.rows(
            "SELECT 'key', TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, ORDINAL_POSITION, POSITION_IN_UNIQUE_CONSTRAINT,"
            " REFERENCED_COLUMN_NAME, NULL, REFERENCED_TABLE_NAME"
            f" FROM information_schema.KEY_COLUMN_USAGE {where}"
            " UNION ALL SELECT 'reference', TABLE_NAME, CONSTRAINT_NAME, UNIQUE_CONSTRAINT_NAME, MATCH_OPTION, UPDATE_RULE,"
            " DELETE_RULE, NULL, REFERENCED_TABLE_NAME"
            f" FROM information_schema.REFERENTIAL_CONSTRAINTS {where}"
            " ORDER BY 1, 2, 3, 5, 4"
        )

    def one(self, application: Application, sql: str) -> Result:
        """Both engines, and a dump of ours."""
        wanted = self.load("as_innodb", "InnoDB", self._named(application, sql))
        found = self.load("as_ferrite", "FERRITE", sql)
        result = Result(application, wanted, found)
        result.judge()
        # Without grant tables, triggers and views have no definer that could be loaded.
        dump = self.client("mariadb-dump", "--skip-triggers", "as_ferrite", *found.tables)[0]
        self.fresh("again")
        self.client("mariadb", "again", feed=dump)
        compare(f"{application.name}, again from a dump", found.without(set()), self.shown("again"))
        for database in ("again", "as_ferrite", "as_innodb"):
            self.rows(f"DROP DATABASE {database}")
        return result

    @staticmethod
    def _named(application: Application, sql: str) -> str:
        """For InnoDB: a schema with its own sql_mode in which every table names InnoDB, as it cannot be enforced there."""
        return NAMED.sub(lambda m: f"{m[1]}{m[2]}InnoDB", sql) if application.own_mode else sql


@dataclass
class Result:
    """One schema on both engines."""

    application: Application
    wanted: Shown
    found: Shown
    refused: set[str] = field(default_factory=set)

    def judge(self) -> None:
        """Complain of any difference that FULLTEXT and SPATIAL do not explain."""
        name = self.application.name
        if not self.wanted.tables:
            raise Failed(f"{name}: no tables; {self.wanted.failed[:3]}")
        self.refused = {table for table, words in self.wanted.tables.items() if REFUSED_INDEX.search(words)}
        if len(self.refused) != self.application.full_text:
            raise Failed(f"{name}: FULLTEXT or SPATIAL in {sorted(self.refused)}, not in {self.application.full_text}")
        # A table that stays without its FULLTEXT index (ALTER TABLE ... ADD) is compared no further.
        compare(name, self.wanted.without(self.refused), self.found.without(self.refused))
        allowed = REFUSALS | FOLLOW if self.refused else set()
        more = [x for x in self.found.failed if x not in self.wanted.failed and x[1] not in allowed]
        less = [x for x in self.wanted.failed if x[:2] not in {y[:2] for y in self.found.failed}]
        more = [x for x in more if x[:2] not in {y[:2] for y in self.wanted.failed}]
        if more or less:
            raise Failed(f"{name}: failed only on Ferrite {more[:5]}, only on InnoDB {less[:5]}")

    def line(self) -> str:
        """What to print."""
        keys = sum(1 for row in self.found.constraints if row[0] == "reference")
        words = f"{len(self.found.tables)} tables, {keys} foreign keys, {sum(self.found.rows.values())} rows"
        if self.refused:
            words += f"; InnoDB has {len(self.wanted.tables)}, {len(self.refused)} with FULLTEXT or SPATIAL indexes"
        if self.application.own_mode:
            words += "; with an sql_mode of its own"
        if self.wanted.failed:
            codes = Counter(code for _, code, _ in self.wanted.failed)
            words += "; statements refused by both: " + ", ".join(f"{n} x {code}" for code, n in sorted(codes.items()))
        return f"{self.application.name}: {words}"


def compare(name: str, wanted: Shown, found: Shown) -> None:
    """Complain of the first difference."""
    if list(wanted.tables) != list(found.tables):
        missing, more = set(wanted.tables) - set(found.tables), set(found.tables) - set(wanted.tables)
        raise Failed(f"{name}: missing are {sorted(missing)}, too many {sorted(more)}; {found.failed[:5]}")
    for table, words in wanted.tables.items():
        if words != found.tables[table]:
            raise Failed(f"{name}: {words}\nis here {found.tables[table]}")
        if wanted.rows[table] != found.rows[table]:
            raise Failed(f"{name}: {wanted.rows[table]} rows of {table}, here {found.rows[table]}")
    different = sorted(set(wanted.constraints) ^ set(found.constraints), key=str)
    if different:
        raise Failed(f"{name}: constraints differ: {different[:4]}")
