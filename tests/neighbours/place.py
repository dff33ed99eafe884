"""Servers that replicate from one another with accounts and a network, and the neighbours' programs beside them.

Every program is told where its server is by the option file of its home directory, as an administrator's would be: a
command is the same here as on the page.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql

from lib.engines import engine
from lib.places import Places
from lib.server import Server, home_in_memory

OPTIONS = [
    "--skip-grant-tables=0",
    "--skip-networking=0",
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--log-bin=b",
    "--log-slave-updates",
    "--gtid-strict-mode=1",
    "--report-host=127.0.0.1",
    "--max-connections=100",
    "--loose-ferrite-buffer-pool-size=64M",
    "--loose-ferrite-log-budget=128M",
    # On by default on 11.8: writers would have to repeat most of their transactions.
    "--loose-ferrite-snapshot-isolation=OFF",
    "--loose-innodb-snapshot-isolation=OFF",
]


class Failed(Exception):
    """A neighbour does not work, or what it left is not what it must be."""


def expect(condition: object, what: str, seen: object = "") -> None:
    """Complain if it does not hold."""
    if not condition:
        raise Failed(f"{what}: {seen}")


def free_port() -> int:
    """A port that nobody has at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Node(Server):
    """A server with accounts, a port and a binary log."""

    def __init__(self, places: Places, number: int, *more: str, home: Path | None = None) -> None:
        self.port = free_port()
        self.number = number
        own = [*OPTIONS, f"--port={self.port}", f"--report-port={self.port}", f"--server-id={number}", *more]
        super().__init__(places, engine("ferrite"), own, home or home_in_memory())

    def create(self) -> None:
        """Lay out the directory, and the option files that programs in it read: nobody asks for newer versions of himself."""
        super().create()
        text = f"[client]\nuser=root\nsocket={self.socket}\n"
        (self.home / ".my.cnf").write_text(text)
        (self.home / ".percona-toolkit.conf").write_text("no-version-check\n")

    def session(self, database: str | None = None, **more: Any) -> Session:
        """A connection with autocommit."""
        return Session(self.connect(database=database, autocommit=True, read_timeout=120, **more))


class Session:
    """Short words for what scenarios ask."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def run(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """All rows of a statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def value(self, sql: str) -> Any:
        """The first column of the first row."""
        return self.run(sql)[0][0]

    def row(self, sql: str) -> dict[str, Any]:
        """The first row by names of columns; empty without one."""
        with self.connection.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(sql)
            found: dict[str, Any] = cursor.fetchone() or {}
            return found

    def close(self) -> None:
        """End the connection."""
        self.connection.close()


class Programs:
    """The neighbours, where there are some, and the server's own client programs."""

    def __init__(self, root: Path | None, places: Places) -> None:
        self.root = root
        self.places = places

    def have(self, name: str) -> bool:
        """Whether a program is there."""
        folders = [self.places.basedir / "bin"]
        if self.root:
            folders += [self.root / "root/usr/bin", self.root / "root/usr/sbin"]
        return any((folder / name).exists() for folder in folders)

    def environment(self, home: Path) -> dict[str, str]:
        """What a program needs to find its libraries and its server."""
        paths, libraries, modules = [str(self.places.basedir / "bin")], [self.places.library_path], []
        if self.root:
            usr = self.root / "root/usr"
            paths = [str(usr / "bin"), str(usr / "sbin"), *paths]
            libraries += [str(p) for p in [*usr.glob("lib/*-linux-gnu*"), *self.root.glob("root/lib/*-linux-gnu*")]]
            modules = [str(p) for p in [usr / "share/perl5", *usr.glob("lib/*-linux-gnu*/perl5/*")]]
        return {
            "PATH": ":".join([*paths, os.environ["PATH"]]),
            "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
            "PERL5LIB": ":".join(modules),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
        }

    def start(self, script: str, home: Path) -> subprocess.Popen[str]:
        """Begin what a shell is told, in a process group of its own."""
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=home,
            env=self.environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, script: str, home: Path, good: int = 0, seconds: float = 180) -> str:
        """What a shell's commands print; they must end in time, with that code."""
        child = self.start(script, home)
        try:
            out, _ = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end(child)
            raise Failed(f"does not end within {seconds:.0f} s:\n{script}") from None
        expect(child.returncode == good, f"exit code {child.returncode}, not {good}, of\n{script}\n", out[-3000:])
        return out


def end(child: subprocess.Popen[str]) -> str:
    """Kill it with what it started; what it printed."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.communicate()[0]


@contextlib.contextmanager
def node(places: Places, number: int, *more: str) -> Iterator[Node]:
    """A server for the time of a block."""
    server = Node(places, number, *more)
    try:
        server.start()
        yield server
    finally:
        server.remove()


def follow(replica: Node, primary: Node) -> None:
    """Begin to replicate from where the replica's GTID position says."""
    session = replica.session()
    session.run(
        f"CHANGE MASTER TO master_host='127.0.0.1', master_port={primary.port}, master_user='root',"
        " master_use_gtid=slave_pos, master_connect_retry=1"
    )
    session.run("START SLAVE")
    session.close()


def caught_up(replica: Node, primary: Node, seconds: int = 60) -> None:
    """Wait until the replica has what the primary has now."""
    position = primary.session().value("SELECT @@gtid_binlog_pos")
    session = replica.session()
    if session.value(f"SELECT MASTER_GTID_WAIT('{position}', {seconds})") != 0:
        status = session.row("SHOW SLAVE STATUS")
        words = ("Last_SQL_Error", "Last_IO_Error", "Slave_IO_Running", "Slave_SQL_Running", "Gtid_IO_Pos")
        raise Failed(f"the replica does not catch up with {position}: {[(w, status.get(w)) for w in words]}")
