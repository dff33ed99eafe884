"""A private mariadbd: own data directory, socket only, nothing of the machine's own server is read or touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pymysql

from lib.engines import Engine
from lib.places import Places

INNODB_SMALL = ["--innodb-log-file-size=64M", "--innodb-data-file-path=ibdata1:12M:autoextend"]


def stop_on_signals() -> None:
    """Make SIGTERM and SIGHUP end the test as Ctrl-C does, so that its servers are stopped and removed."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


class ServerFailed(RuntimeError):
    """The server did not start, or ended by itself; carries the end of its error log."""


def home_in_memory() -> Path:
    """A directory for a server whose files need not survive: in memory where that is possible."""
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="ferrite-test-", dir=memory if os.access(memory, os.W_OK) else None))


def _bootstrap_sql(places: Places) -> str:
    parts = ["CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\n"]
    for name in ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql"):
        parts.append((places.share / name).read_text(encoding="utf-8", errors="replace"))
    parts.append("CREATE DATABASE IF NOT EXISTS test;\n")
    return "\n".join(parts)


def _base_options(places: Places, datadir: Path) -> list[str]:
    options = [
        str(places.mariadbd),
        "--no-defaults",
        f"--basedir={places.basedir}",
        f"--datadir={datadir}",
        f"--lc-messages-dir={places.share}",
        f"--character-sets-dir={places.share / 'charsets'}",
    ]
    if os.geteuid() == 0:
        options.append("--user=root")
    return options


def template_datadir(places: Places) -> Path:
    """A freshly initialised data directory, made once per server version and then only copied."""
    done = places.cache / f"test-datadir-{places.version}"
    if done.exists():
        return done
    places.cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="datadir-", dir=places.cache))
    run = subprocess.run(
        [*_base_options(places, work), "--bootstrap", "--skip-grant-tables", *INNODB_SMALL],
        input=_bootstrap_sql(places),
        env=places.child_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        raise ServerFailed(f"bootstrap of a data directory failed:\n{run.stderr[-3000:]}")
    try:
        work.rename(done)
    except OSError:  # someone else was faster
        shutil.rmtree(work)
    return done


class Server:
    """One mariadbd process and its directory. Survives kill(): start() again recovers."""

    def __init__(self, places: Places, engine: Engine, options: list[str], home: Path | None = None) -> None:
        self.places = places
        self.engine = engine
        self.options = options
        self.home = home or Path(tempfile.mkdtemp(prefix="ferrite-test-"))
        self.datadir = self.home / "data"
        self.socket = str(self.home / "s")
        self.error_log = self.home / "error.log"
        self.process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        """Lay out the directory."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not self.datadir.exists():
            shutil.copytree(template_datadir(self.places), self.datadir)
        self._plugins()

    def _plugins(self) -> Path:
        """A plugin directory with the server's own plugins and the engine under test."""
        directory = self.home / "plugin"
        directory.mkdir(exist_ok=True)
        for source in self.places.plugin_dir.glob("*.so"):
            _link(source, directory / source.name)
        if self.places.ferrite_so:
            _link(self.places.ferrite_so, directory / "ha_ferrite.so")
        return directory

    def command(self) -> list[str]:
        """The full command line."""
        line = _base_options(self.places, self.datadir)
        line += [
            f"--socket={self.socket}",
            f"--pid-file={self.home / 'pid'}",
            f"--log-error={self.error_log}",
            f"--plugin-dir={self.home / 'plugin'}",
            f"--tmpdir={self.home}",
            "--skip-networking",
            "--skip-grant-tables",
            "--plugin-maturity=experimental",
            "--local-infile=1",
            "--skip-stack-trace",
            "--core-file=0",
            *INNODB_SMALL,
        ]
        if self.engine.plugin:
            line.append(f"--plugin-load-add={self.engine.plugin}")
        line.append(f"--default-storage-engine={self.engine.name}")
        return [*line, *self.engine.extra, *self.options]

    def start(self, timeout: float = 120) -> float:
        """Start and wait until it answers; returns the seconds that took."""
        begun = time.monotonic()
        if not self.datadir.exists():
            self.create()
        self.process = subprocess.Popen(
            self.command(),
            env=self.places.child_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while time.monotonic() - begun < timeout:
            if self.process.poll() is not None:
                raise ServerFailed(f"server ended with {self.process.returncode}:\n{self.log_tail()}")
            try:
                self.connect(connect_timeout=5).close()
                return time.monotonic() - begun
            except pymysql.err.OperationalError:
                time.sleep(0.02)
        raise ServerFailed(f"server does not answer after {timeout} s:\n{self.log_tail()}")

    def connect(self, **keywords: object) -> Any:
        """A plain PyMySQL connection; keywords go to PyMySQL."""
        settings: dict[str, object] = {
            "unix_socket": self.socket,
            "user": "root",
            "charset": "utf8mb4",
            "autocommit": None,
            "local_infile": True,
        }
        settings.update(keywords)
        return pymysql.connect(**settings)  # type: ignore[call-overload]

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """kill -9 of the process this object started, and wait for its end."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self, timeout: float = 60) -> int:
        """Clean shutdown; returns the exit status."""
        if not self.process or self.process.poll() is not None:
            return self.process.returncode if self.process else 0
        self.process.terminate()
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(f"shutdown took more than {timeout} s:\n{self.log_tail()}") from None

    def remove(self) -> None:
        """Stop hard and delete everything."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)

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
