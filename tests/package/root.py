"""A clean Debian in a directory: packages are installed in it with dpkg, and a server runs in it with its own files."""

from __future__ import annotations

import os
import socket
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from lib.mariadbd import Mariadbd
from lib.places import Places

# A private mount table: /proc is there for the packages' scripts, and gone with the process.
ENTER = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
SERVER = ["/usr/sbin/mariadbd", "--user=root", "--skip-networking", "--core-file=0", "--innodb-log-file-size=8M"]


class Root:
    """The directory. No policy forbids services here, and none is started: there is no init."""

    def __init__(self, path: Path, archive: Path) -> None:
        self.path = path
        path.mkdir()
        with tarfile.open(archive) as tar:
            tar.extractall(path, filter="fully_trusted")
        (path / "run/mysqld").mkdir(parents=True)
        (path / "etc/hosts").write_text(f"127.0.0.1 localhost {socket.gethostname()}\n")

    def command(self, *words: str) -> list[str]:
        """The command line that runs a program in it."""
        return ["unshare", "--mount", "sh", "-c", ENTER, str(self.path), *words]

    def run(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a program in it; nothing of the tests' environment is seen there."""
        clean = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "DEBIAN_FRONTEND": "noninteractive",
            "LC_ALL": "C",
        }
        return subprocess.run(
            self.command(*words), env={**clean, **(env or {})}, capture_output=True, text=True, check=False
        )

    def dpkg(self, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """dpkg; packages of the host are put where it finds them."""
        inside = [self.bring(Path(word)) if word.endswith(".deb") else word for word in words]
        return self.run("dpkg", *inside, env=env)

    def bring(self, deb: Path) -> str:
        """Copy a package into it."""
        (self.path / "root" / deb.name).write_bytes(deb.read_bytes())
        return f"/root/{deb.name}"

    def status(self, package: str) -> str:
        """Two letters of dpkg: ii, rc ...; empty if it was never there."""
        return self.run("dpkg-query", "-W", "-f", "${db:Status-Abbrev}", package).stdout.strip()

    def has(self, path: str) -> bool:
        """Whether a file is there."""
        return os.path.lexists(self.path / path.lstrip("/"))


class Packaged(Mariadbd):
    """A server as the packages set it up: only what has no place in a test is said on its command line."""

    def __init__(self, places: Places, root: Root) -> None:
        super().__init__(places, root.path, root.path / "run/mysqld/mysqld.sock")
        self.root = root
        self.datadir = root.path / "var/lib/mysql"
        self.error_log = root.path / "root/error.log"
        self.program = SERVER
        self.environment: dict[str, str] = {}
        self.notify = ""

    def create(self) -> None:
        """Lay out the data directory with the package's program."""
        made = self.root.run(
            "mariadb-install-db", "--user=root", "--skip-test-db", "--auth-root-authentication-method=socket"
        )
        assert made.returncode == 0, made.stderr + made.stdout

    def own_options(self) -> list[str]:
        """None: the configuration files of the packages."""
        return []

    def command(self) -> list[str]:
        """In the root."""
        return self.root.command(*self.program)

    def spawn(self) -> subprocess.Popen[Any]:
        """Start it; Debian's log is the system's, here a file."""
        env = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", **self.environment}
        if self.notify:
            env["NOTIFY_SOCKET"] = self.notify
        with self.error_log.open("ab") as log:
            return subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=env,
                start_new_session=True,
            )

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        """All rows of one statement."""
        connection = self.connect(autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        finally:
            connection.close()
