"""What every private mariadbd has in common, of the tests and of the bench lab: where the server's files are, a fresh data
directory, one process with a socket of its own, its death told with the end of its error log.

Nothing of the machine's own server is read or touched. `lib.server` says what a test's server is, `ferrite_bench.server` what
the lab's is.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

SYSTEM_TABLES = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql")
"""After the word mysql_ or, since 11, mariadb_."""


class ServerFailed(RuntimeError):
    """The server did not start, or ended by itself; carries the end of its error log."""


@dataclass(frozen=True)
class Installation:
    """Absolute paths of one server installation, as scripts/lib.sh has found it."""

    cache: Path
    basedir: Path
    mariadbd: Path
    library_path: str
    """For LD_LIBRARY_PATH; empty where the programs find their own."""
    version: str

    @property
    def share(self) -> Path:
        """Messages, character sets and the SQL of the system tables."""
        old = self.basedir / "share" / "mysql"
        return old if (old / "charsets").exists() else self.basedir / "share" / "mariadb"

    def system_tables(self) -> str:
        """The SQL that makes the database mysql."""
        files = [next(self.share.glob(f"m*_{name}")) for name in SYSTEM_TABLES]
        return "\n".join(x.read_text(encoding="utf-8", errors="replace") for x in files)

    @property
    def plugin_dir(self) -> Path:
        """The plugins that came with the server."""
        return self.basedir / "lib" / "mysql" / "plugin"

    def program(self, name: str) -> Path:
        """A client program of the server."""
        return self.basedir / "bin" / name

    def child_env(self) -> dict[str, str]:
        """Environment for binaries that were unpacked beside the system's own."""
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if self.library_path:
            env["LD_LIBRARY_PATH"] = self.library_path
        return env


def base_options(places: Installation, datadir: Path) -> list[str]:
    """The program and what it must be told to look at nothing of the machine's own server."""
    options = [
        str(places.mariadbd),
        "--no-defaults",
        f"--basedir={places.basedir}",
        f"--datadir={datadir}",
        f"--lc-messages-dir={places.share}",
        f"--character-sets-dir={places.share / 'charsets'}",
    ]
    return [*options, "--user=root"] if os.geteuid() == 0 else options


def fresh_datadir(places: Installation, name: str, root: str, databases: str, options: list[str]) -> Path:
    """An initialised data directory, made once per server version and then only copied.

    `root`: the account that is root by its socket, as SQL; NULL for none. `databases`: SQL that makes what is there at first.
    """
    done = places.cache / f"{name}-{places.version}"
    if done.exists():
        return done
    places.cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="datadir-", dir=places.cache))
    sql = f"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket={root};\n"
    sql += places.system_tables()
    # A server that starts removes what it takes for its own remains from tmpdir, so two must not share one.
    with tempfile.TemporaryDirectory(prefix="bootstrap-", dir=places.cache) as scratch:
        run = subprocess.run(
            [*base_options(places, work), "--bootstrap", "--skip-grant-tables", f"--tmpdir={scratch}", *options],
            input=f"{sql}\n{databases}\n",
            env=places.child_env(),
            capture_output=True,
            text=True,
            check=False,
        )
    if run.returncode != 0:
        shutil.rmtree(work, ignore_errors=True)
        raise ServerFailed(f"a fresh data directory cannot be made:\n{run.stderr[-3000:]}")
    try:
        work.rename(done)
    except OSError:  # someone else was faster
        shutil.rmtree(work, ignore_errors=True)
    return done


class Mariadbd:
    """One mariadbd process and its directory. Survives kill(): start() again recovers."""

    start_seconds = 120.0
    stop_seconds = 60.0
    failure: type[Exception] = ServerFailed

    def __init__(self, places: Installation, home: Path, socket: Path) -> None:
        self.places = places
        self.home = home
        self.datadir = home / "data"
        self.socket = str(socket)
        self.error_log = home / "error.log"
        self.child: subprocess.Popen[Any] | None = None
        self._paused = False

    # ---- what a kind of server says for itself ----

    def create(self) -> None:
        """Lay out the directory."""
        raise NotImplementedError

    def own_options(self) -> list[str]:
        """Plugins, network, settings."""
        raise NotImplementedError

    def spawn(self) -> subprocess.Popen[Any]:
        """Start the process."""
        return subprocess.Popen(
            self.command(),
            env=self.places.child_env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def client_settings(self) -> dict[str, Any]:
        """How a client connects."""
        return {"unix_socket": self.socket, "user": "root"}

    def log_tail(self) -> str:
        """What the error log says of the end."""
        try:
            return last_words(self.error_log.read_text(errors="replace").splitlines())
        except OSError:
            return "(no error log)"

    # ---- the life of the process ----

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self.child is not None
        return self.child.pid

    def command(self) -> list[str]:
        """The full command line."""
        return [
            *base_options(self.places, self.datadir),
            f"--socket={self.socket}",
            f"--pid-file={self.home / 'pid'}",
            f"--log-error={self.error_log}",
            f"--tmpdir={self.home}",
            "--plugin-maturity=experimental",
            "--core-file=0",
            *self.own_options(),
        ]

    def start(self, timeout: float | None = None) -> float:
        """Start and wait until it answers; returns the seconds that took."""
        timeout = timeout or self.start_seconds
        if not self.datadir.exists():
            self.create()
        begun = time.monotonic()
        self.child = self.spawn()
        self._paused = False
        while time.monotonic() - begun < timeout:
            self.check()
            try:
                self.connect(connect_timeout=5).close()
                return time.monotonic() - begun
            except pymysql.err.OperationalError:
                time.sleep(0.02)
        raise self.failure(f"the server does not answer after {timeout} s:\n{self.log_tail()}")

    def connect(self, **keywords: Any) -> Any:
        """A plain PyMySQL connection; keywords go to PyMySQL."""
        return pymysql.connect(**{**self.client_settings(), **keywords})

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.child is not None and self.child.poll() is None

    def check(self) -> None:
        """Complain if it has ended by itself."""
        if self.child is not None and self.child.poll() is not None:
            code = self.child.returncode
            how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
            raise self.failure(f"the server ended by itself ({how}):\n{self.log_tail()}")

    def pause(self) -> None:
        """Stop its clock."""
        if self.alive() and not self._paused:
            os.killpg(self.pid, signal.SIGSTOP)
            self._paused = True

    def resume(self) -> None:
        """Let it run again."""
        if self.alive() and self._paused:
            os.killpg(self.pid, signal.SIGCONT)
            self._paused = False

    def kill(self) -> None:
        """kill -9 of the process this object started, and wait for its end."""
        if self.child is not None and self.child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()

    def stop(self, timeout: float | None = None) -> int:
        """Clean shutdown; returns the exit status."""
        timeout = timeout or self.stop_seconds
        if self.child is None:
            return 0
        self.resume()
        self.child.terminate()
        try:
            status = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure(f"shutdown took more than {timeout} s:\n{self.log_tail()}") from None
        self.kill()
        return status

    def remove(self) -> None:
        """Stop hard and delete everything."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)


def last_words(log: list[str], most: int = 25) -> str:
    """After a crash the signal, the stack and the query; otherwise the last lines that are not mere notes."""
    signals = [i for i, line in enumerate(log) if " got signal " in line]
    if signals:
        telling = re.compile(r"\+0x[0-9a-f]+\)|\[0x[0-9a-f]+\]|^Query \(|panick|errite")
        before = [x for x in log[: signals[-1]] if re.search(r"\[ERROR\]|panick|assert", x, re.IGNORECASE)][-5:]
        return "\n".join([*before, *[x for x in log[signals[-1] :] if telling.search(x) or " got signal " in x][:most]])
    loud = [x for x in log if "[Note]" not in x and "[Warning] Plugin" not in x]
    return "\n".join((loud or log)[-most:])
