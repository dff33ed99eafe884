"""A private mariadbd: own data directory, own socket, no network port; nothing of an installed server is touched.

Without a port nothing is asked of who comes in: the socket lies in a directory that is closed to other accounts. With one
(a load generator that knows no sockets) the server asks: the account that runs the lab by its socket, and the user `bench`,
who may use the database of that name only, by a password of that server's own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import pymysql

from ferrite_bench import children
from ferrite_bench.engines import Contestant, common_options, engine_options
from ferrite_bench.errors import ServerDied
from ferrite_bench.machine import Device, Process
from ferrite_bench.places import Places
from ferrite_bench.terms import Needs
from ferrite_bench.throttle import Throttle

START_SECONDS = 180
STOP_SECONDS = 240


def _base(places: Places, datadir: Path) -> list[str]:
    options = [
        str(places.mariadbd),
        "--no-defaults",
        f"--basedir={places.basedir}",
        f"--datadir={datadir}",
        f"--lc-messages-dir={places.share}",
        f"--character-sets-dir={places.share / 'charsets'}",
    ]
    return [*options, "--user=root"] if os.geteuid() == 0 else options


def _me() -> str:
    """The account that runs the lab, as the server knows it at its socket."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "root"


def template(places: Places) -> Path:
    """An initialised data directory, made once per server version and then copied."""
    done = places.cache / f"bench-datadir-closed-{places.version}"
    if done.exists():
        return done
    places.cache.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="bench-datadir-", dir=places.cache))
    names = ("mysql_system_tables.sql", "mysql_performance_tables.sql", "mysql_system_tables_data.sql")
    sql = f"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket='{_me()}';\n"
    sql += "\n".join((places.share / x).read_text(encoding="utf-8", errors="replace") for x in names)
    run = subprocess.run(
        [*_base(places, work), "--bootstrap", "--skip-grant-tables", "--innodb-log-file-size=96M"],
        input=sql,
        env=places.child_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode != 0:
        shutil.rmtree(work, ignore_errors=True)
        raise ServerDied(f"a fresh data directory cannot be made:\n{run.stderr[-2000:]}")
    try:
        work.rename(done)
    except OSError:  # another run was faster
        shutil.rmtree(work, ignore_errors=True)
    return done


class Server:
    """One mariadbd and its directory. Can be paused, so that the others have the machine for themselves."""

    def __init__(self, places: Places, contestant: Contestant, needs: Needs, home: Path, plugins: Path) -> None:
        self.places = places
        self.plugins = plugins
        self.contestant = contestant
        self.needs = needs
        self.home = home
        self.datadir = home / "data"
        # A socket's path may have 107 characters only, so it does not stand under the home.
        self._socket_dir = Path(tempfile.mkdtemp(prefix="fb-"))
        self.socket = str(self._socket_dir / "s")
        self.port = 0
        """A free port of this machine when the load generator knows no sockets; otherwise there is none."""
        self.password = secrets.token_hex(16)
        self.error_log = home / "error.log"
        self.child: subprocess.Popen[Any] | None = None
        self.process: Process | None = None
        self.throttle: Throttle | None = None
        self._paused = False

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self.child is not None
        return self.child.pid

    def options(self) -> list[str]:
        """The options that matter to a reader: no paths."""
        return [
            *common_options(self.needs),
            *engine_options(self.contestant.engine, self.needs),
            *self.contestant.options,
            f"--default-storage-engine={self.contestant.engine.sql_name}",
        ]

    def _network(self) -> list[str]:
        if not self.needs.tcp:
            return ["--skip-networking", "--skip-grant-tables"]
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        return ["--bind-address=127.0.0.1", f"--port={self.port}", f"--init-file={self._accounts()}"]

    def _accounts(self) -> Path:
        """What the server reads before it listens."""
        script = self.home / "accounts.sql"
        account = "'bench'@'127.0.0.1'"
        script.touch(mode=0o600)
        script.write_text(
            f"SET SESSION sql_log_bin = 0;\nCREATE USER IF NOT EXISTS {account};\n"
            f"ALTER USER {account} IDENTIFIED BY '{self.password}';\nGRANT ALL ON bench.* TO {account};\n",
            encoding="ascii",
        )
        return script

    def command(self) -> list[str]:
        """The full command line."""
        line = [
            *_base(self.places, self.datadir),
            f"--socket={self.socket}",
            f"--pid-file={self.home / 'pid'}",
            f"--log-error={self.error_log}",
            f"--plugin-dir={self.plugins}",
            f"--tmpdir={self.home}",
            *self._network(),
            "--plugin-maturity=experimental",
            "--core-file=0",
        ]
        if self.contestant.engine.plugin:
            line.append(f"--plugin-load-add={self.contestant.engine.plugin}")
        return [*line, *self.options()]

    def start(self) -> float:
        """Start and wait for the first answer; returns the seconds that took."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not self.datadir.exists():
            shutil.copytree(template(self.places), self.datadir)
        begun = time.monotonic()
        self.child = children.start(self.command(), self.places.child_env())
        self._paused = False
        while time.monotonic() - begun < START_SECONDS:
            self.check()
            try:
                self.connect(connect_timeout=5).close()
            except pymysql.err.OperationalError:
                time.sleep(0.02)
                continue
            self.process = Process(self.child.pid)
            return time.monotonic() - begun
        raise ServerDied(f"the server does not answer after {START_SECONDS} s:\n{self.log_tail()}")

    def limit_io(self) -> str:
        """Put the volume's limit into force, if one is asked for; returns how, or why not."""
        if self.needs.iops is None:
            return ""
        self.throttle = Throttle(Device.of(self.home).number, self.needs.iops)
        return self.throttle.apply(self.pid)

    def bind_cpus(self, cpus: int) -> None:
        """Let the server run on the first so many processors only."""
        allowed = set(list(range(os.cpu_count() or 1))[:cpus])
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(thread), allowed)

    def connect(self, **keywords: Any) -> pymysql.connections.Connection[Any]:
        """A plain client connection."""
        settings: dict[str, Any] = {
            "unix_socket": self.socket,
            "user": _me(),
            "autocommit": True,
            "read_timeout": 3600,
        }
        settings.update(keywords)
        return pymysql.connect(**settings)

    def alive(self) -> bool:
        """Whether the process runs."""
        return self.child is not None and self.child.poll() is None

    def check(self) -> None:
        """Complain if it has ended by itself."""
        if self.child is not None and self.child.poll() is not None:
            code = self.child.returncode
            how = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
            raise ServerDied(f"the server ended by itself ({how}):\n{self.log_tail()}")

    def pause(self) -> None:
        """Stop the clock of an idle server, so that it neither runs nor settles its debts on another's time."""
        if self.alive() and not self._paused:
            os.killpg(self.pid, signal.SIGSTOP)
            self._paused = True

    def resume(self) -> None:
        """Let it run again."""
        if self.alive() and self._paused:
            os.killpg(self.pid, signal.SIGCONT)
            self._paused = False

    def kill(self) -> None:
        """kill -9."""
        if self.child is not None:
            children.kill(self.child)

    def stop(self) -> float:
        """Clean shutdown; returns the seconds it took."""
        begun = time.monotonic()
        if self.child is None or not self.alive():
            return 0.0
        self.resume()
        self.child.terminate()
        try:
            self.child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerDied(f"shutdown took more than {STOP_SECONDS} s:\n{self.log_tail()}") from None
        children.kill(self.child)
        return time.monotonic() - begun

    def remove(self) -> None:
        """End it and delete everything."""
        self.kill()
        if self.throttle is not None:
            self.throttle.remove()
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self._socket_dir, ignore_errors=True)

    def log_tail(self) -> str:
        """What the error log says of the end."""
        try:
            return last_words(self.error_log.read_text(errors="replace").splitlines())
        except OSError:
            return "(no error log)"


def last_words(log: list[str], most: int = 25) -> str:
    """After a crash the signal, the stack and the query; otherwise the last lines that are not mere notes."""
    signals = [i for i, line in enumerate(log) if " got signal " in line]
    if signals:
        telling = re.compile(r"\+0x[0-9a-f]+\)|\[0x[0-9a-f]+\]|^Query \(|panick|errite")
        before = [x for x in log[: signals[-1]] if re.search(r"\[ERROR\]|panick|assert", x, re.IGNORECASE)][-5:]
        return "\n".join([*before, *[x for x in log[signals[-1] :] if telling.search(x) or " got signal " in x][:most]])
    loud = [x for x in log if "[Note]" not in x and "[Warning] Plugin" not in x]
    return "\n".join((loud or log)[-most:])
