"""go-tpc, a load generator that nobody here wrote: TPC-C with its consistency checks, also after kill -9, and TPC-H with equal answers.

go-tpc comes from the Go module proxy, verified by Go's checksum database, is built into the cache once, and is left out
where there is no Go. Both engines run in one server, one after the other; the times stand beside each other, and are
worth something on a quiet machine only.

The small form of TPC-H is scale factor 1 with its first orders only: go-tpc loads orders last, and is stopped when it has loaded
enough of them.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from applications.fetch import NotHere
from applications.schemas import Failed
from lib.engines import engine
from lib.places import Places
from lib.server import Server, home_in_memory

VERSION = "v1.0.7"
MODULE = "github.com/pingcap/go-tpc/cmd/go-tpc"
ENGINES = ("InnoDB", "FERRITE")
CONDITIONS = 12
HISTORY_KEY = "h_c_w_id, h_c_d_id, h_c_id"
"""Without an index on these a check reads the whole table for each customer: half an hour."""
LAST_KEY = 100_000
"""TPC-H, small form: the highest o_orderkey. One key in four is used."""
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
REFERENCES = {
    "nation": ("n_regionkey", "region (r_regionkey)"),
    "supplier": ("s_nationkey", "nation (n_nationkey)"),
    "customer": ("c_nationkey", "nation (n_nationkey)"),
    "partsupp": ("ps_suppkey", "supplier (s_suppkey)"),
    "orders": ("o_custkey", "customer (c_custkey)"),
    "lineitem": ("l_partkey, l_suppkey", "partsupp (ps_partkey, ps_suppkey)"),
}
"""Foreign keys of TPC-H, which go-tpc leaves out. Without their indexes some queries take hours."""
QUERIES = 22
MARK = "PLACEHOLDER"
"""In a comment in front of each of go-tpc's queries."""


@dataclass(frozen=True)
class Size:
    """How much of it."""

    warehouses: int
    run_seconds: int
    last_key: int | None
    limit_seconds: float = 3600


SMALL = Size(warehouses=1, run_seconds=15, last_key=LAST_KEY)
WHOLE = Size(warehouses=10, run_seconds=120, last_key=None, limit_seconds=4 * 3600)


def program(cache: Path) -> Path:
    """go-tpc, built when it is first asked for."""
    done = cache / f"go-tpc-{VERSION}"
    if done.exists():
        return done
    if not shutil.which("go"):
        raise NotHere("there is no go on this machine")
    cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="go-", dir=cache))
    places = {"GOBIN": "bin", "GOPATH": "path", "GOCACHE": "build"}
    environment = {
        **os.environ,
        **{name: str(work / folder) for name, folder in places.items()},
        "GOFLAGS": "-modcacherw",
    }
    try:
        print(f"go-tpc: building {VERSION}", flush=True)
        run = subprocess.run(
            ["go", "install", f"{MODULE}@{VERSION}"],
            env=environment,
            cwd=work,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise NotHere(f"go-tpc: {run.stderr.strip()[-300:]}")
        (work / "bin" / "go-tpc").rename(done)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return done


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Tpc:
    """A server with both engines, and go-tpc on it."""

    def __init__(self, places: Places, size: Size) -> None:
        self.program = program(places.cache)
        self.size = size
        self.port = _free_port()
        options = ["--skip-networking=0", "--bind-address=127.0.0.1", f"--port={self.port}", "--max-connections=100"]
        options += [engine(name).pool("512M") for name in ENGINES]
        # On by default on 11.8; go-tpc does not repeat a transaction that ends with error 1020.
        options += ["--innodb-snapshot-isolation=OFF", "--ferrite-snapshot-isolation=OFF"]
        self.server = Server(places, engine("ferrite"), options, home_in_memory())

    def words(self, kind: str, action: str, database: str, *more: str) -> list[str]:
        """A call of go-tpc."""
        return [
            str(self.program),
            kind,
            action,
            "-H",
            "127.0.0.1",
            "-P",
            str(self.port),
            "-U",
            "root",
            "-D",
            database,
            *more,
        ]

    def call(self, kind: str, action: str, database: str, *more: str) -> str:
        """What go-tpc says; it must end without an error."""
        limit = self.size.limit_seconds
        run = subprocess.run(
            self.words(kind, action, database, *more), capture_output=True, text=True, check=False, timeout=limit
        )
        said = run.stdout + run.stderr
        self.server.check()
        wrong = [line for line in said.splitlines() if re.search(r"\b(failed|panic|[Ee]rror \d+)\b", line)]
        if run.returncode or wrong:
            raise Failed(f"go-tpc {kind} {action} on {database}: {'; '.join(wrong[:3]) or said[-500:]}")
        return said

    def start(self, *call: str) -> subprocess.Popen[str]:
        """go-tpc in the background."""
        return subprocess.Popen(
            self.words(*call), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, text=True
        )

    def rows(self, sql: str, database: str | None = None) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        connection = self.server.connect(database=database, autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def database(self, kind: str, name: str) -> str:
        """An empty database whose tables are of that engine."""
        database = f"{kind}_{name.lower()}"
        for sql in (f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database}"):
            self.rows(sql)
        self.rows(f"SET GLOBAL default_storage_engine={name}")
        return database

    def is_of(self, database: str, name: str) -> None:
        """All tables are of the engine, and CHECK TABLE finds nothing."""
        tables = self.rows(f"SELECT table_name, engine FROM information_schema.tables WHERE table_schema='{database}'")
        for table, kind in tables:
            if kind.lower() != name.lower():
                raise Failed(f"{database}.{table} is of {kind}")
            answer = self.rows(f"CHECK TABLE {database}.{table} EXTENDED")
            if [row[2:] for row in answer] != [("status", "OK")]:
                raise Failed(f"CHECK TABLE {database}.{table}: {answer}")
        if not tables:
            raise Failed(f"{database} is empty")


# ---- TPC-C ---------------------------------------------------------------------------------------


def tpcc(tpc: Tpc) -> str:
    """The result of both engines, as a line."""
    done = [_tpcc_on(tpc, name) for name in ENGINES]
    return "TPC-C: " + "; ".join(done)


def _tpcc_on(tpc: Tpc, name: str) -> str:
    database, size = tpc.database("tpcc", name), tpc.size
    warehouses = ("--warehouses", str(size.warehouses))
    begun = time.monotonic()
    tpc.call("tpcc", "prepare", database, *warehouses, "-T", str(min(4, size.warehouses)), "--no-check")
    loaded = time.monotonic() - begun
    tpc.rows(f"ALTER TABLE {database}.history ADD KEY of_customer ({HISTORY_KEY})")
    _consistent(tpc, database, (*warehouses, "--check-all"), CONDITIONS)
    seconds = ("--time", f"{size.run_seconds}s", "-T", "4")
    said = tpc.call("tpcc", "run", database, *warehouses, *seconds)
    rate = re.search(r"tpmC: ([\d.]+)", said)
    if not rate or float(rate[1]) <= 0:
        raise Failed(f"no transaction in {size.run_seconds} s: {said[-500:]}")
    _consistent(tpc, database, warehouses)
    running = tpc.start("tpcc", "run", database, *warehouses, *seconds)
    time.sleep(size.run_seconds / 3)
    tpc.server.kill()
    running.kill()
    running.wait()
    tpc.server.start()
    _consistent(tpc, database, warehouses)
    tpc.is_of(database, name)
    return f"{name} {rate[1]} new orders a minute, loaded in {loaded:.0f} s, consistent, also after kill -9"


def _consistent(tpc: Tpc, database: str, what: tuple[str, ...], conditions: int = CONDITIONS - 1) -> None:
    """One of the conditions (11) holds only before the first delivery."""
    said = tpc.call("tpcc", "check", database, *what)
    checked = said.count("begin to check warehouse")
    if checked != conditions * tpc.size.warehouses:
        raise Failed(f"{checked} conditions checked: {said[-500:]}")


# ---- TPC-H ---------------------------------------------------------------------------------------


@dataclass
class Answers:
    """Of the 22 queries: rows and seconds."""

    rows: list[list[tuple[Any, ...]]]
    seconds: list[float]
    loaded: float


def tpch(tpc: Tpc) -> str:
    """Equal answers, or Failed; the times, as a line."""
    databases = {name: tpc.database("tpch", name) for name in ENGINES}
    loaded = {name: _load(tpc, name, database) for name, database in databases.items()}
    counts = {
        name: [tpc.rows(f"SELECT COUNT(*) FROM {database}.{table}") for table in TABLES]
        for name, database in databases.items()
    }
    if counts[ENGINES[0]] != counts[ENGINES[1]]:
        raise Failed(f"TPC-H: rows differ: {counts}")
    queries = _queries(tpc, databases)
    done = {name: _ask(tpc, database, queries, loaded[name]) for name, database in databases.items()}
    _equal(done)
    return "TPC-H: " + "; ".join(_said(name, answers) for name, answers in done.items()) + _slowest(done)


def _load(tpc: Tpc, name: str, database: str) -> float:
    tpc.database("tpch", name)
    begun = time.monotonic()
    if tpc.size.last_key is None:
        tpc.call("tpch", "prepare", database, "--sf", "1")
    else:
        _load_first(tpc, database, tpc.size.last_key)
    for table, (columns, parent) in REFERENCES.items():
        tpc.rows(f"ALTER TABLE {table} ADD FOREIGN KEY ({columns}) REFERENCES {parent}", database)
    seconds = time.monotonic() - begun
    for table in TABLES:
        tpc.rows(f"ANALYZE TABLE {database}.{table}")
    tpc.is_of(database, name)
    return seconds


def _load_first(tpc: Tpc, database: str, last_key: int) -> None:
    """Stop go-tpc once it has loaded the orders up to a key, and remove those after it."""
    loading = tpc.start("tpch", "prepare", database, "--sf", "1")
    columns = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
    until = time.monotonic() + tpc.size.limit_seconds
    try:
        while not _all_beyond(tpc, database, columns, last_key):
            tpc.server.check()
            if loading.poll() is not None or time.monotonic() > until:
                raise Failed(f"go-tpc tpch prepare ended before it had loaded the orders of {database}")
            time.sleep(1)
    finally:
        loading.kill()
        loading.wait()
    connections = f"SELECT COUNT(*) FROM information_schema.processlist WHERE db='{database}'"
    while tpc.rows(connections)[0][0]:
        time.sleep(0.1)
    for table, column in columns.items():
        tpc.rows(f"DELETE FROM {database}.{table} WHERE {column} > {last_key}")


def _all_beyond(tpc: Tpc, database: str, columns: dict[str, str], last_key: int) -> bool:
    there = f"SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='{database}'"
    if tpc.rows(there)[0][0] < len(TABLES):
        return False
    highest = [tpc.rows(f"SELECT MAX({column}) FROM {database}.{table}")[0][0] for table, column in columns.items()]
    return all(key is not None and key > last_key for key in highest)


def _queries(tpc: Tpc, databases: dict[str, str]) -> list[str]:
    """The texts of go-tpc's queries, as the server's general log has them; go-tpc runs them on each engine."""
    tpc.rows("SET GLOBAL log_output='TABLE'")
    seen: list[list[str]] = []
    for database in databases.values():
        tpc.rows("TRUNCATE mysql.general_log")
        tpc.rows("SET GLOBAL general_log=1")
        checked = ("--check",) if tpc.size.last_key is None else ()
        tpc.call("tpch", "run", database, "--count", str(QUERIES), *checked)
        tpc.rows("SET GLOBAL general_log=0")
        log = tpc.rows(
            f"SELECT argument FROM mysql.general_log WHERE argument LIKE '%/*{MARK}*/%' AND command_type='Query'"
        )
        texts = [text.decode() if isinstance(text, bytes) else text for (text,) in log]
        seen.append([text for text in texts if "general_log" not in text])
    if len(seen[0]) != QUERIES or seen[0] != seen[1]:
        raise Failed(f"TPC-H: {len(seen[0])} and {len(seen[1])} queries in the log")
    return seen[0]


def _ask(tpc: Tpc, database: str, queries: list[str], loaded: float) -> Answers:
    answers = Answers([], [], loaded)
    for query in queries:
        begun = time.monotonic()
        # Query 15 makes a view, asks and drops it, all in one text.
        parts = [tpc.rows(part, database) for part in query.split(";") if part.strip()]
        answers.rows.append(next((rows for rows in parts if rows), []))
        answers.seconds.append(time.monotonic() - begun)
    return answers


def _equal(done: dict[str, Answers]) -> None:
    """Rows that ORDER BY leaves equal may come in either order."""
    one, two = (answers.rows for answers in done.values())
    for number, (wanted, got) in enumerate(zip(one, two, strict=True), 1):
        if sorted(map(repr, wanted)) != sorted(map(repr, got)):
            raise Failed(f"TPC-H: query {number} differs: InnoDB {wanted[:3]}, Ferrite {got[:3]}")
    empty = [number for number, rows in enumerate(one, 1) if not rows]
    if len(empty) > QUERIES / 4:
        raise Failed(f"TPC-H: hardly anything to compare: queries {empty} find nothing")


def _said(name: str, answers: Answers) -> str:
    return f"{name} {sum(answers.seconds):.1f} s for {len(answers.rows)} queries, loaded in {answers.loaded:.0f} s"


def _slowest(done: dict[str, Answers]) -> str:
    """The queries in which Ferrite was furthest behind."""
    one, two = (answers.seconds for answers in done.values())
    ratios = sorted(
        ((b / max(a, 0.001), number, a, b) for number, (a, b) in enumerate(zip(one, two, strict=True), 1)), reverse=True
    )
    return "; answers equal; furthest behind: " + ", ".join(
        f"q{number} {a:.2f} -> {b:.2f} s" for _, number, a, b in ratios[:3]
    )


# ---- both ----------------------------------------------------------------------------------------

BENCHMARKS = {"go-tpc TPC-C": tpcc, "go-tpc TPC-H": tpch}


def run(places: Places, names: list[str], size: Size) -> int:
    """Those that are named; 0 as it should be, 1 failed, 77 left out."""
    try:
        tpc = Tpc(places, size)
    except NotHere as e:
        print(f"go-tpc: left out: {e}", flush=True)
        return 77
    failed = 0
    try:
        tpc.server.start()
        for name in names:
            try:
                print(BENCHMARKS[name](tpc), flush=True)
            except Failed as e:
                print(f"FAILED: {e}", flush=True)
                failed = 1
    finally:
        tpc.server.remove()
    return failed
