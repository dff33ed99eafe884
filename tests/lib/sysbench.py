"""sysbench: one call, its figures, its errors."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lib.server import Server

OLTP = (
    "oltp_point_select",
    "oltp_read_only",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_insert",
    "oltp_delete",
    "oltp_update_index",
    "oltp_update_non_index",
    "bulk_insert",
    "select_random_points",
    "select_random_ranges",
)


@dataclass
class Figures:
    """What one run printed."""

    tps: float
    p95: float
    transactions: int
    seconds: float
    """From the start to the last answer."""
    longest: float
    """ms, as p95."""
    ignored_errors: int
    text: str
    failed: bool


def sysbench(server: Server, script: str, command: str, *options: str, timeout: float = 3600) -> Figures:
    """prepare, run or cleanup of a script on the database sbtest: one of the bundled ones, or the path of another."""
    program = os.environ["FERRITE_SYSBENCH"]
    path = script if script.endswith(".lua") else f"{os.environ['FERRITE_SYSBENCH_LUA']}/{script}.lua"
    line = [
        program,
        path,
        "--db-driver=mysql",
        f"--mysql-socket={server.socket}",
        "--mysql-user=root",
        "--mysql-db=sbtest",
        f"--mysql-storage-engine={server.engine.name}",
        *options,
        command,
    ]
    env = server.places.child_env()
    env["LUA_PATH"] = f"{os.environ['FERRITE_SYSBENCH_LUA']}/?.lua"
    run = subprocess.run(line, env=env, capture_output=True, text=True, timeout=timeout, check=False)
    text = run.stdout + run.stderr
    return Figures(
        tps=_number(r"(?:transactions|events):\s+\d+\s+\(([\d.]+) per sec", text)
        or _number(r"events/s \(eps\):\s+([\d.]+)", text),
        p95=_number(r"95th percentile:\s+([\d.]+)", text),
        transactions=int(_number(r"(?:transactions|events):\s+(\d+)\s+\(", text)),
        seconds=_number(r"total time:\s+([\d.]+)s", text),
        longest=_number(r"max:\s+([\d.]+)", text),
        ignored_errors=int(_number(r"ignored errors:\s+(\d+)", text)),
        text=text,
        failed=run.returncode != 0 or "FATAL" in text,
    )


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    return float(found.group(1)) if found else 0.0


def make_database(server: Server) -> None:
    """An empty database sbtest."""
    connection = server.connect(autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("DROP DATABASE IF EXISTS sbtest")
        cursor.execute("CREATE DATABASE sbtest")
    connection.close()


def check_tables(server: Server) -> list[str]:
    """CHECK TABLE ... EXTENDED of everything in sbtest; what is not OK."""
    connection = server.connect(database="sbtest", autocommit=True, read_timeout=900)
    wrong = []
    with connection.cursor() as cursor:
        cursor.execute("SHOW TABLES")
        for (name,) in cursor.fetchall():
            cursor.execute(f"CHECK TABLE {name} EXTENDED")
            wrong += [f"{name}: {row}" for row in cursor.fetchall() if row[3] != "OK"]
    connection.close()
    return wrong


@contextmanager
def side_by_side(servers: list[Server]) -> Iterator[list[Server]]:
    """The servers, started and each with its database; removed at the end."""
    try:
        for server in servers:
            server.start()
            make_database(server)
        yield servers
    finally:
        for server in servers:
            server.remove()
