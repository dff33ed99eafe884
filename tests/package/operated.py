"""The command ferrite of the package ferrite-tools, in the clean root: hot backups of the packaged server, restored beside it
and in its place; snapshots; what needs a checkout; and that nothing stays when the package goes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from package.root import Root

MYSQL = 999
PORT = 33998
LOGGED = ["--log-bin=bin", "--server-id=1"]
NEEDS_CHECKOUT = ("build", "package", "test", "bench", "env")


class Failed(Exception):
    """The command does not do what it says."""


def expect(condition: object, what: str, seen: object) -> None:
    """Complain if it is not so."""
    if not condition:
        raise Failed(f"{what}: {seen}")


def add_account(root: Root) -> None:
    """The account mysql, as mariadb-server makes it."""
    accounts = root.path / "etc/passwd"
    if "\nmysql:" in accounts.read_text():
        return
    with accounts.open("a") as passwd, (root.path / "etc/group").open("a") as group:
        passwd.write(f"mysql:x:{MYSQL}:{MYSQL}::/nonexistent:/bin/false\n")
        group.write(f"mysql:x:{MYSQL}:\n")


def give_to(path: Path, account: int) -> None:
    """The directory and all in it."""
    for place in (path, *path.rglob("*")):
        os.chown(place, account, account, follow_symlinks=False)


@contextlib.contextmanager
def no_python(root: Root) -> Iterator[None]:
    """What is only recommended may be missing."""
    program = root.path / "usr/bin/python3"
    aside = program.rename(program.with_name("aside"))
    try:
        yield
    finally:
        aside.rename(program)


class Operated:
    """A server that runs as mysql, and what is done with it; `server` is a package.root.Packaged with rows in shop.account."""

    def __init__(self, root: Root, server: Any, rows: str) -> None:
        self.root = root
        self.server = server
        self.rows = rows

    def all(self) -> None:
        """Every step; the server is stopped before and after, and its data are root's."""
        program = self.server.program
        run = self.root.path / "run/mysqld"
        add_account(self.root)
        for place in (self.server.datadir, run):
            give_to(place, MYSQL)
        self.server.program = [word.replace("--user=root", "--user=mysql") for word in program] + LOGGED
        self.server.start()
        self.refuses()
        self.backs_up()
        self.keeps()
        self.server.stop()
        self.rewinds()
        self.restores()
        self.server.program = program
        for place in (self.server.datadir, run):
            give_to(place, 0)

    def _ferrite(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.root.run("ferrite", *words)

    def _good(self, *words: str) -> str:
        done = self._ferrite(*words)
        expect(done.returncode == 0, f"ferrite {' '.join(words)}", done.stderr + done.stdout)
        return done.stdout + done.stderr

    def _bad(self, told: str, *words: str) -> None:
        done = self._ferrite(*words)
        expect(done.returncode == 1 and re.search(told, done.stderr), f"ferrite {' '.join(words)}", done)

    def refuses(self) -> None:
        """What needs a checkout, or a directory; the help and the status of this machine's server."""
        for word in NEEDS_CHECKOUT:
            self._bad("needs a checkout", word)
        for word in ("up", "down"):
            self._bad("name the directory with --dir", word)
        told = self._good("help")
        expect("ferrite backup TO" in told and "./ferrite" not in told, "the help", told)
        told = self._good("status")
        expect("data     /var/lib/mysql\n" in told and "ACTIVE" in told, "the status", told)
        self._bad("is inside the data directory /var/lib/mysql", "backup", "/var/lib/mysql/backup")
        self._bad("does not answer", "backup", "/backup/x", "--socket", "/none")
        with no_python(self.root):
            for words in (["migrate", "check"], ["top"]):
                self._bad("packages are missing: python3", *words)
        told = self._good("migrate", "check")
        expect("refused" in told or "no tables" in told, "what can be moved", told)
        expect("Throughput" in self._good("top", "--once", "--interval", "0.1"), "what the server is doing", told)

    def backs_up(self) -> None:
        """A full backup, and an increment with rows of its own."""
        self.first = self.server.ask(self.rows)
        told = self._good("backup", "/backup/full")
        expect("is complete and verified" in told, "a backup", told)
        self.server.ask("INSERT INTO shop.account SELECT seq + 5000, 'increment' FROM shop.seq_1_to_500")
        self._good("backup", "/backup/more", "--incremental-from", "/backup/full", "--rate", "1000000000")
        self.second = self.server.ask(self.rows)
        expect(self.first != self.second, "rows changed", self.first)
        self.server.ask("INSERT INTO shop.account VALUES (9000, 'by the log')")
        self.third = self.server.ask(self.rows)
        self.gtid = self.server.ask("SELECT @@gtid_binlog_pos")[0][0]
        self.server.ask("DELETE FROM shop.account WHERE id = 9000")
        shutil.copytree(
            self.server.datadir,
            self.root.path / "binlogs",
            ignore=lambda _, names: [x for x in names if not x.startswith("bin.")],
        )

    def keeps(self) -> None:
        """A snapshot, and what comes after it."""
        self._good("snapshot", "before")
        self.server.ask("DELETE FROM shop.account WHERE id > 5000")
        expect("before" in self._good("snapshot", "--list"), "the snapshot is listed", "")
        place = "/var/lib/opened"
        self._good("open", "before", "--port", str(PORT), "--at", place)
        told = self._good("sql", "--dir", place, "--batch", "--skip-column-names", "-e", self.rows)
        expect(told.split() == [str(x) for x in self.second[0]], "rows of an opened snapshot", told)
        self._good("down", "--dir", place)
        shutil.rmtree(self.root.path / place.lstrip("/"))

    def rewinds(self) -> None:
        """To the snapshot, with the server stopped; then all is as before the first backup. shop.other is of another engine."""
        with no_python(self.root):
            self._bad("packages are missing: python3", "rewind", "before")
        self._bad("WOULD NOT GO BACK: shop/other", "rewind", "before")
        self._good("rewind", "before", "--force", "--binlog", "continue")
        self.server.start()
        expect(self.server.ask(self.rows) == self.second, "rows after a rewind", self.second)
        for (name,) in self.server.ask("SELECT name FROM information_schema.FERRITE_KEPT_SNAPSHOTS"):
            self._good("snapshot", "--drop", name)
        self.server.ask("DELETE FROM shop.account WHERE id > 5000")
        expect(self.server.ask(self.rows) == self.first, "rows as at first", self.first)
        self.server.stop()

    def restores(self) -> None:
        """All moments, the last one by the binary log, in the place of the data directory, which is as before afterwards."""
        live = self.server.datadir
        self._bad("is the data directory of a server", "restore", "/backup/full", "--into", "/var/lib/mysql")
        until = ["--until", self.gtid, "--binlogs", "/binlogs"]
        for name, words, rows in (
            ("one", ["/backup/full"], self.first),
            ("two", ["/backup/full", "/backup/more"], self.second),
            ("three", ["/backup/full", *until], self.third),
        ):
            told = self._good("restore", "--into", f"/var/lib/{name}", *words)
            expect(
                "belongs to mysql" in told and f"mariadbd --datadir=/var/lib/{name}" in told, "what is to be done", told
            )
            made = self.root.path / f"var/lib/{name}"
            left = [path.name for path in made.iterdir() if path.name.startswith(("ferrite", ".", "xtrabackup"))]
            expect(not left, "nothing of the command stays", left)
            kept = live.rename(live.with_name("mysql.old"))
            made.rename(live)
            self.server.start()
            expect(self.server.ask(self.rows) == rows, f"rows restored from {words}", rows)
            checked = self.server.ask("CHECK TABLE shop.account, shop.part EXTENDED")
            expect(all(row[3] == "OK" for row in checked), "the restored tables", checked)
            self.server.stop()
            shutil.rmtree(live)
            kept.rename(live)
        for place in ("backup", "binlogs"):
            shutil.rmtree(self.root.path / place)


def gone(root: Root) -> None:
    """No file of the package is left after its removal."""
    for path in (
        "usr/bin/ferrite",
        "usr/share/ferrite-tools",
        "usr/share/doc/ferrite-tools",
        "usr/share/man/man1/ferrite.1.gz",
    ):
        expect(not root.has(path), "removed", path)
