"""The suites: where each comes from, how it is called, and which differences between the engines are explained."""

from __future__ import annotations

import re
from dataclasses import dataclass

NO_SUBSTITUTION = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER"
"""The server's default sql_mode without NO_ENGINE_SUBSTITUTION, as docs/operating/moving-from-innodb.md says."""

FULL_TEXT = "FULLTEXT indexes; the table that the failed set-up leaves behind would disturb other tests"


@dataclass(frozen=True)
class Explained:
    """Tests that are allowed to differ, or cannot run."""

    tests: str
    """A regular expression for the names of the tests; where tests are left out, how the names begin."""
    reason: str

    def fits(self, test: str) -> bool:
        """Whether it is one of them."""
        return re.search(self.tests, test) is not None


@dataclass(frozen=True)
class Suite:
    """The test suite in the source archive of a Python package."""

    name: str
    package: str
    version: str
    sha256: str
    command: tuple[str, ...]
    """Arguments of Python, in the archive's directory. {uri}: the server, as SQLAlchemy names it."""
    all: tuple[str, ...]
    """What the command runs in the long form."""
    short: tuple[str, ...]
    """What it runs in the short form; nothing: it is left out there."""
    paths: tuple[str, ...] = (".",)
    """Where its packages are, in the archive."""
    enforced: bool = False
    """Its tables name engines: the server replaces them, for InnoDB as for Ferrite."""
    left_out: tuple[Explained, ...] = ()
    """Prefixes of names that pytest leaves out, with both engines."""
    explained: tuple[Explained, ...] = ()
    limit: float = 7200
    """Seconds for one engine."""


DJANGO = Suite(
    "django",
    "django",
    "5.2.8",
    "23254866a5bb9a2cfa6004e8b809ec6246eba4b58a7589bc2772f1bcc8456c7f",
    ("tests/runtests.py", "--settings=django_settings", "--parallel=1", "--noinput", "--verbosity=0"),
    (),
    ("delete", "delete_regress", "m2m_through", "one_to_one", "transactions"),
    explained=(
        Explained(
            r"\.test_no_index_for_foreignkey$|\.test_descending_columns_list_sql$|indexes_orders$",
            "skipped unless the engine is called InnoDB",
        ),
    ),
)

SQLALCHEMY = Suite(
    "sqlalchemy",
    "sqlalchemy",
    "2.0.58",
    "2acdcec9836b7c1514a9ad426e7731669a1186d96481a2e82c50bf2aebb49061",
    ("-m", "pytest", "-p", "outcomes", "-p", "no:cacheprovider", "-o", "addopts=", "-q", "--tb=short")
    + ("--backend-only", "--dburi", "{uri}"),
    ("test/dialect", "test/engine", "test/sql", "test/orm", "test/ext"),
    ("test/dialect/mysql", "test/engine/test_reflection.py", "test/orm/test_cascade.py"),
    paths=("lib",),
    enforced=True,
    left_out=(Explained("test/dialect/mysql/test_query.py::MatchTest", FULL_TEXT),),
    explained=(
        Explained(r"::test_reflect_fulltext$", "a FULLTEXT index"),
        Explained(r"::test_reflection_with_subpartition_options", "expects InnoDB's name in SHOW CREATE TABLE"),
    ),
)

SUITES = (DJANGO, SQLALCHEMY)
