"""load: getting data in, and indexes onto it."""

from __future__ import annotations

import random
import time
from pathlib import Path

from ferrite_bench.errors import LoadFailed
from ferrite_bench.session import Session
from ferrite_bench.terms import Needs, Size
from ferrite_bench.workloads.base import Bars, Case, Data, Experiment, Setup

TABLE = (
    "CREATE TABLE {name} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(60) NOT NULL, pad VARCHAR(120) NOT NULL)"
    " ENGINE={engine}"
)


def write_rows(path: Path, rows: int, shuffled: bool) -> None:
    """A file of tab-separated rows, the same for every engine."""
    dice = random.Random(7)
    ids = list(range(1, rows + 1))
    if shuffled:
        dice.shuffle(ids)
    with path.open("w", encoding="ascii") as file:
        for number in ids:
            text = f"{dice.getrandbits(240):060x}"
            file.write(f"{number}\t{dice.randrange(rows)}\t{text}\t{text[:40]}-{number}\n")


def _case(name: str, rows: int, shuffled: bool) -> Case:
    def run(session: Session) -> None:
        path = session.server.home / "rows.tsv"
        write_rows(path, rows, shuffled)
        session.sql("DROP TABLE IF EXISTS loaded", TABLE.format(name="loaded", engine=session.engine))
        begun = time.monotonic()
        session.sql(f"LOAD DATA INFILE '{path}' INTO TABLE loaded")
        _figures(session, rows, time.monotonic() - begun)
        path.unlink()

    return Case(name, run, 0.5 + rows / 80_000)


def _figures(session: Session, rows: int, seconds: float) -> None:
    session.figure("seconds", seconds, "s", "lower")
    session.figure("rows_per_second", rows / seconds, "1/s")


def _statement(name: str, sql: str, rows: int, loaded: int) -> Case:
    """A statement that changes `rows` rows, on the table of `loaded` rows that the case before has left."""

    def run(session: Session) -> None:
        (found,) = session.sql("SELECT COUNT(*) FROM loaded")[0]
        if found != loaded:
            raise LoadFailed(f"the table holds {found:,} rows instead of {loaded:,}: loading it has failed")
        _figures(session, rows, session.timed_sql(sql))

    return Case(name, run, 0.3 + rows / 250_000)


def _build(session: Session) -> None:
    """Nothing: the cases load."""


def _setups(size: Size) -> list[Setup]:
    rows = size.pick(2_000, 200_000, 2_000_000)
    cases = (
        _case("LOAD DATA, keys in order", rows, False),
        _statement("add a secondary index", "ALTER TABLE loaded ADD KEY by_k (k)", rows, rows),
        _statement(
            "INSERT ... SELECT", f"CREATE OR REPLACE TABLE copy AS SELECT * FROM loaded LIMIT {rows}", rows, rows
        ),
        _statement("DELETE of every second row", "DELETE FROM loaded WHERE id % 2 = 0", rows // 2, rows),
        _case("LOAD DATA, keys shuffled", rows, True),
    )
    needs = Needs(pool_mb=size.pick(64, 512, 1024), flush=1)
    return [Setup("load", needs, Data("load", _build, rows // 1000 + 64, 0), cases, size.pick(1, 2, 2))]


EXPERIMENT = Experiment(
    name="load",
    title="Loading data",
    question="How fast does LOAD DATA load rows, in key order and shuffled, and how fast is an index added?",
    method="One session; the same file for every engine; engine defaults for bulk loading (none is told to skip checks).",
    setups=_setups,
    charts=(Bars("Rows per second", "rows_per_second"),),
    headline="rows_per_second",
    extra_figures=("rows_per_second", "seconds"),
)
