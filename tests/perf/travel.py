"""One table goes to another server: exported and imported, and dumped and loaded, in turn. The file can be kept, and taken in by a server
of another series."""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, stop_on_signals
from lib.sysbench import side_by_side

AIM = 5
"""So many times as fast as dump and load."""
DATABASE = "travel"
COLUMNS = (
    "id INT PRIMARY KEY AUTO_INCREMENT, customer INT NOT NULL, at DATETIME NOT NULL, state VARCHAR(12) NOT NULL, total DECIMAL(10,2) NOT NULL,"
    " note VARCHAR(100) NOT NULL, KEY customer (customer, at), KEY state (state)"
)
FILL = (
    "INSERT INTO t SELECT seq, seq * 7919 % 100000, FROM_UNIXTIME(1600000000 + seq * 13), ELT(1 + seq % 4, 'new', 'paid', 'sent', 'returned'),"
    " seq % 10000 / 100, CONCAT('order ', seq, ' ', REPEAT(CHAR(97 + seq % 26), seq % 60)) FROM seq_1_to_{rows}"
)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./ferrite test perf travel", description=__doc__)
    parser.add_argument("--engine", default="ferrite")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--keep", metavar="FILE", help="a copy of the exported table")
    parser.add_argument(
        "--take", metavar="FILE", help="import this file instead, which --keep of a run with as many rows has kept"
    )
    return parser.parse_args()


def _server() -> Server:
    kind = engine("ferrite")
    settings = [
        kind.pool("1G"),
        kind.flush(1),
        "--skip-log-bin",
        "--performance-schema=OFF",
        "--max-allowed-packet=64M",
    ]
    return Server(find_places(), kind, settings)


def _session(server: Server) -> Any:
    connection = server.connect(autocommit=True, database="test")
    cursor = connection.cursor()
    cursor.execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
    cursor.execute(f"USE {DATABASE}")
    return cursor


def _place(server: Server) -> Path:
    return server.datadir / DATABASE / "t.ferrite"


def _make(cursor: Any) -> None:
    cursor.execute(
        f"CREATE OR REPLACE TABLE t ({COLUMNS}) ENGINE=FERRITE CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    )


def _checksum(cursor: Any) -> object:
    cursor.execute("CHECKSUM TABLE t EXTENDED")
    return cursor.fetchone()[1]


def _check(cursor: Any, wanted: object, how: str) -> None:
    cursor.execute("CHECK TABLE t EXTENDED")
    answer = [row[2:] for row in cursor.fetchall()]
    if answer != [("status", "OK")] or _checksum(cursor) != wanted:
        raise SystemExit(f"{how}: the table is another one: {answer}")


def _by_file(source: Any, target: Any, servers: list[Server]) -> float:
    _make(target)
    begun = time.monotonic()
    source.execute("FLUSH TABLES t FOR EXPORT")
    shutil.copy(_place(servers[0]), _place(servers[1]))
    source.execute("UNLOCK TABLES")
    target.execute("ALTER TABLE t IMPORT TABLESPACE")
    return time.monotonic() - begun


def _by_dump(servers: list[Server]) -> float:
    places = servers[0].places
    dump = servers[0].home / "dump.sql"
    begun = time.monotonic()
    options = ["--no-defaults", "--user=root", f"--character-sets-dir={places.share / 'charsets'}"]
    with dump.open("wb") as out:
        line = [
            places.program("mariadb-dump"),
            *options,
            f"--socket={servers[0].socket}",
            "--single-transaction",
            DATABASE,
            "t",
        ]
        subprocess.run(line, stdout=out, env=places.child_env(), check=True)
    with dump.open("rb") as text:
        line = [places.program("mariadb"), *options, f"--socket={servers[1].socket}", DATABASE]
        subprocess.run(line, stdin=text, env=places.child_env(), check=True)
    took = time.monotonic() - begun
    dump.unlink()
    return took


def _take(file: str) -> int:
    """A server of this series takes in the file of another one."""
    server = _server()
    with side_by_side([server]):
        cursor = _session(server)
        _make(cursor)
        shutil.copy(file, _place(server))
        begun = time.monotonic()
        cursor.execute("ALTER TABLE t IMPORT TABLESPACE")
        took = time.monotonic() - begun
        wanted = Path(f"{file}.checksum").read_text(encoding="ascii")
        cursor.execute("CHECK TABLE t EXTENDED")
        answer = [row[2:] for row in cursor.fetchall()]
        sound = answer == [("status", "OK")] and str(_checksum(cursor)) == wanted
        print(
            f"server {server.places.version}: imported in {took:.2f} s, {'equal and sound' if sound else answer}",
            flush=True,
        )
    return 0 if sound else 1


def main() -> int:
    """Run; 0 when the file is fast enough."""
    arguments = _arguments()
    stop_on_signals()
    if arguments.take:
        return _take(arguments.take)
    servers = [_server(), _server()]
    ratios = []
    with side_by_side(servers):
        source, target = (_session(server) for server in servers)
        _make(source)
        source.execute(FILL.format(rows=arguments.rows))
        wanted = _checksum(source)
        for number in range(1, arguments.pairs + 1):
            file = _by_file(source, target, servers)
            _check(target, wanted, "by file")
            dump = _by_dump(servers)
            _check(target, wanted, "by dump")
            ratios.append(dump / file)
            print(f"  {number}: export, copy, import {file:.2f} s; dump, load {dump:.2f} s", flush=True)
        if arguments.keep:
            source.execute("FLUSH TABLES t FOR EXPORT")
            shutil.copy(_place(servers[0]), arguments.keep)
            source.execute("UNLOCK TABLES")
            Path(f"{arguments.keep}.checksum").write_text(str(wanted), encoding="ascii")
    ratio = statistics.median(ratios)
    print(f"travel: {arguments.rows} rows, {ratio:.1f} times as fast as dump and load (at least {AIM})")
    return 0 if ratio >= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
