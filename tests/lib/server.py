"""A test's server: socket only, nobody is asked who he is, small, in memory where the files need not survive."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any, ClassVar

from lib.engines import Engine
from lib.mariadbd import Mariadbd, ServerFailed, fresh_datadir
from lib.places import Places

__all__ = ["Server", "ServerFailed", "home_in_memory", "stop_on_signals"]

INNODB_SMALL = ["--innodb-log-file-size=64M", "--innodb-data-file-path=ibdata1:12M:autoextend"]


def stop_on_signals() -> None:
    """Make SIGTERM and SIGHUP end the test as Ctrl-C does, so that its servers are stopped and removed."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


def home_in_memory() -> Path:
    """A directory for a server whose files need not survive: in memory where that is possible."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="ferrite-test-", dir=memory if os.access(memory, os.W_OK) else None))


class Server(Mariadbd):
    """A mariadbd with the engine under test."""

    places: Places
    everywhere: ClassVar[list[str]] = []
    """Options of each server of this program, whatever else it has."""

    def __init__(self, places: Places, engine: Engine, options: list[str], home: Path | None = None) -> None:
        home = home or Path(tempfile.mkdtemp(prefix="ferrite-test-"))
        super().__init__(places, home, home / "s")
        self.engine = engine
        self.options = options

    def create(self) -> None:
        """Lay out the directory."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not self.datadir.exists():
            test = "CREATE DATABASE IF NOT EXISTS test;"
            shutil.copytree(fresh_datadir(self.places, "test-datadir", "NULL", test, INNODB_SMALL), self.datadir)
        self._plugins()

    def _plugins(self) -> None:
        """A plugin directory with the server's own plugins and the engine under test."""
        directory = self.home / "plugin"
        directory.mkdir(exist_ok=True)
        for source in self.places.plugin_dir.glob("*.so"):
            _link(source, directory / source.name)
        if self.places.ferrite_so:
            _link(self.places.ferrite_so, directory / "ha_ferrite.so")

    def own_options(self) -> list[str]:
        """Plugins, network, settings."""
        line = [
            f"--plugin-dir={self.home / 'plugin'}",
            "--skip-networking",
            "--skip-grant-tables",
            "--local-infile=1",
            "--skip-stack-trace",
            *INNODB_SMALL,
        ]
        if self.engine.plugin:
            line.append(f"--plugin-load-add={self.engine.plugin}")
        line.append(f"--default-storage-engine={self.engine.name}")
        return [*line, *self.engine.extra, *self.everywhere, *self.options]

    def client_settings(self) -> dict[str, Any]:
        """How a client connects."""
        return {**super().client_settings(), "charset": "utf8mb4", "autocommit": None, "local_infile": True}

    def successor(self) -> Server:
        """A server like this one on an empty directory, in place of this one."""
        home = Path(tempfile.mkdtemp(prefix="ferrite-test-", dir=self.home.parent))
        self.remove()
        return Server(self.places, self.engine, self.options, home)

    def log_tail(self, lines: int = 40) -> str:
        """The end of the error log, without InnoDB's notes."""
        if not self.error_log.exists():
            return "(no error log)"
        everything = self.error_log.read_text(errors="replace").splitlines()
        return "\n".join([x for x in everything if "[Note] InnoDB:" not in x and "maturity level" not in x][-lines:])


def _link(source: Path, target: Path) -> None:
    if not target.exists():
        target.symlink_to(source)
