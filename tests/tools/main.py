"""ferrite-check against a real server's database: no faults in intact databases, damage is found, rows can be salvaged."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory, stop_on_signals
from tools.tables import FOREIGN_KEYS, contents, create, foreign_keys

GRANULE = 4096
BLOB_MAGIC = bytes.fromhex("52454642")

Truth = dict[str, list[tuple[str, ...]]]


class Failed(Exception):
    """Something is not as it must be."""


def _say(text: str) -> None:
    print(text, flush=True)


def _check(*arguments: str | Path) -> tuple[int, str]:
    """Run ferrite-check; its exit code and all it said."""
    run = subprocess.run(
        [os.environ["FERRITE_CHECK"], *map(str, arguments)], capture_output=True, text=True, check=False, timeout=600
    )
    return run.returncode, run.stdout + run.stderr


def _expect(code: int, *arguments: str | Path) -> str:
    found, text = _check(*arguments)
    if found != code:
        raise Failed(f"ferrite-check {' '.join(map(str, arguments))}: exit code {found}, not {code}:\n{text[-4000:]}")
    return text


def _files(directory: Path) -> dict[str, tuple[int, int]]:
    return {p.name: (p.stat().st_size, p.stat().st_mtime_ns) for p in directory.iterdir()}


def _load(places: Any, directory: Path, only: frozenset[str] | None = None) -> Truth:
    """What a fresh server holds after it has loaded a salvage."""
    server = Server(places, engine("ferrite"), ["--max-allowed-packet=64M"], home_in_memory())
    try:
        server.start()
        run = subprocess.run(
            [
                str(places.program("mariadb")),
                "--no-defaults",
                f"--socket={server.socket}",
                "-uroot",
                "--local-infile=1",
            ],
            stdin=(directory / "load.sql").open("rb"),
            cwd=directory,
            env=places.child_env(),
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise Failed(f"the salvage does not load:\n{run.stderr[-3000:]}")
        connection = server.connect(database="test")
        with connection.cursor() as cursor:
            cursor.execute("SHOW TABLES")
            tables = [row[0] for row in cursor.fetchall()]
        found = {t: contents(connection, t, GENERATED) for t in tables if only is None or t in only}
        return found | {FOREIGN_KEYS: foreign_keys(connection)} if only is None else found
    finally:
        server.remove()


# Plain columns of the loaded table; in the source the server computes them, or hides them.
GENERATED = frozenset({"gs", "row_start", "row_end"})


def _compare(truth: Truth, found: Truth) -> None:
    for table, rows in truth.items():
        if found.get(table) == rows:
            continue
        got = found.get(table, [])
        missing = [r for r in rows if r not in set(got)]
        extra = [r for r in got if r not in set(rows)]
        raise Failed(f"table {table}: {len(rows)} rows, {len(got)} came back; {_difference(missing, extra)}")


def _difference(missing: list[tuple[str, ...]], extra: list[tuple[str, ...]]) -> str:
    """The first row that is missing, or what is different in it."""
    for row in missing:
        for other in (e for e in extra if e[0] == row[0] and len(e) == len(row)):
            pairs = [(i, a[:80], b[:80]) for i, (a, b) in enumerate(zip(row, other, strict=True)) if a != b]
            return f"row {row[0]}: columns (number, was, is) {pairs[:5]}"
    return f"missing {str(missing[:2])[:800]}, not there before {str(extra[:2])[:800]}"


def _zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _salvage(source: Path, out: Path, *options: str) -> tuple[int, str]:
    shutil.rmtree(out, ignore_errors=True)
    return _check(*options, "--salvage", out, source)


def _damage_pages(store: Path, rng: Random, share: float) -> int:
    """Turn one byte in the body of some blobs."""
    data = bytearray(store.read_bytes())
    damaged = 0
    for at in range(0, len(data), GRANULE):
        if data[at : at + 4] == BLOB_MAGIC and rng.random() < share:
            data[at + 40 + rng.randrange(200)] ^= 1 << rng.randrange(8)
            damaged += 1
    store.write_bytes(data)
    return damaged


class Test:
    """One database, and copies of it that are treated badly."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.places = find_places()
        self.rng = Random(arguments.seed)
        self.server = Server(self.places, engine("ferrite"), ["--max-allowed-packet=64M"], home_in_memory())
        self.core = self.server.datadir / "#ferrite"
        self.truth: Truth = {}

    def copy(self, name: str) -> Path:
        target = self.server.home / name
        shutil.rmtree(target, ignore_errors=True)
        return Path(shutil.copytree(self.core, target))

    def fill(self) -> None:
        self.server.start()
        connection = self.server.connect(database="test")
        tables = create(connection, self.rng)
        self.truth = {t: contents(connection, t, GENERATED) for t in tables}
        self.truth[FOREIGN_KEYS] = foreign_keys(connection)
        _say(f"{len(tables)} tables, {sum(map(len, self.truth.values()))} rows")

    def running(self) -> None:
        """A server that has it open: refused."""
        if "a server is running" not in _expect(2, self.server.datadir):
            raise Failed("nothing said of the server that runs")

    def killed(self) -> None:
        """Log to apply and an open transaction: sound, and its changes do not come back."""
        loser = self.server.connect(database="test")
        with loser.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("UPDATE big SET b = 'never committed', a = 1000 WHERE a < 10")
            cursor.execute("DELETE FROM no_key WHERE a = 1")
            cursor.execute("INSERT INTO parts VALUES (100000, 1)")
        flush = self.server.connect(database="test", autocommit=True)
        with flush.cursor() as cursor:
            cursor.execute("INSERT INTO renamed VALUES (2, 2)")
        self.truth["renamed"] = contents(flush, "renamed")
        self.server.kill()
        before = _files(self.core)
        text = _expect(0, self.server.datadir)
        if "1 unfinished transactions" not in text:
            raise Failed(f"the open transaction is not reported:\n{text}")
        if _files(self.core) != before:
            raise Failed("ferrite-check changed the directory")

    def salvage(self, name: str, zero: tuple[str, ...], *options: str) -> None:
        """Everything comes back, from the map or without it."""
        source, out = self.copy(name), self.server.home / "out"
        for victim in zero:
            _zero(source / victim)
        code, text = _salvage(source, out, *options)
        if code != (1 if zero else 0):
            raise Failed(f"salvage of {name}: exit code {code}:\n{text[-4000:]}")
        _compare(self.truth, _load(self.places, out))
        _say(f"{name}: all rows came back")

    def damaged(self) -> None:
        """Damaged pages cost their rows and nothing else."""
        for share, scan in ((0.01, ()), (0.05, ("--scan",))):
            source, out = self.copy("damaged"), self.server.home / "out"
            pages = _damage_pages(source / "store.0000", self.rng, share)
            _expect(1, source)
            code, text = _salvage(source, out, *scan)
            if code != 1:
                raise Failed(f"salvage of damaged pages: exit code {code}:\n{text[-4000:]}")
            found = _load(self.places, out)
            kept = sum(map(len, found.values()))
            for table, rows in found.items():
                made_up = set(rows) - set(self.truth[table])
                if made_up:
                    raise Failed(f"table {table}: rows that never were: {str(made_up)[:2000]}")
            _say(f"{pages} blobs damaged{' and scanned' if scan else ''}: {kept} rows came back, none wrong")

    def run(self) -> None:
        self.fill()
        self.running()
        if self.server.stop() != 0:
            raise Failed("the server did not stop cleanly")
        _expect(0, self.server.datadir)
        self.salvage("clean", ())
        self.salvage("clean without its maps", ("map.0", "map.1"))
        self.server.start()
        self.killed()
        self.salvage("killed", ())
        self.salvage("killed without its maps", ("map.0", "map.1"))
        self.damaged()
        self.server.start()
        connection = self.server.connect(database="test")
        del self.truth[FOREIGN_KEYS]
        _compare(self.truth, {t: contents(connection, t, GENERATED) for t in self.truth})


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="./ferrite test tools", description=__doc__)
    parser.add_argument("--engine", default="ferrite", choices=["ferrite"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ci", action="store_true", help="the same: it is short")
    arguments = parser.parse_args()
    stop_on_signals()
    begun = time.monotonic()
    test = Test(arguments)
    try:
        test.run()
    except Failed as e:
        _say(f"FAILED: {e}")
        return 1
    finally:
        test.server.remove()
    _say(f"passed in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
