"""A private mariadbd: own data directory, own socket, no network port; nothing of an installed server is touched.

Without a port nothing is asked of who comes in: the socket lies in a directory that is closed to other accounts. With one
(a load generator that knows no sockets) the server asks: the account that runs the lab by its socket, and the user `bench`,
who may use the database of that name only, by a password of that server's own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from ferrite_bench import children
from ferrite_bench.engines import Contestant, common_options, engine_options
from ferrite_bench.errors import ServerDied
from ferrite_bench.machine import Device, Process
from ferrite_bench.places import Places
from ferrite_bench.terms import Needs
from ferrite_bench.throttle import Throttle
from lib.mariadbd import Mariadbd, ServerFailed, fresh_datadir


def _me() -> str:
    """The account that runs the lab, as the server knows it at its socket."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "root"


class Server(Mariadbd):
    """A mariadbd of the lab. Can be paused, so that the others have the machine for themselves."""

    start_seconds = 180.0
    stop_seconds = 240.0
    failure = ServerDied
    places: Places

    def __init__(self, places: Places, contestant: Contestant, needs: Needs, home: Path, plugins: Path) -> None:
        # A socket's path may have 107 characters only, so it does not stand under the home.
        self._socket_dir = Path(tempfile.mkdtemp(prefix="fb-"))
        super().__init__(places, home, self._socket_dir / "s")
        self.plugins = plugins
        self.contestant = contestant
        self.needs = needs
        self.port = 0
        """A free port of this machine when the load generator knows no sockets; otherwise there is none."""
        self.password = secrets.token_hex(16)
        self.process: Process | None = None
        self.throttle: Throttle | None = None

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

    def create(self) -> None:
        """Lay out the directory."""
        self.home.mkdir(parents=True, exist_ok=True)
        try:
            made = fresh_datadir(self.places, "bench-datadir-closed", f"'{_me()}'", "", ["--innodb-log-file-size=96M"])
        except ServerFailed as error:
            raise ServerDied(str(error)) from None
        shutil.copytree(made, self.datadir)

    def own_options(self) -> list[str]:
        """Plugins, network, settings."""
        line = [f"--plugin-dir={self.plugins}", *self._network()]
        if self.contestant.engine.plugin:
            line.append(f"--plugin-load-add={self.contestant.engine.plugin}")
        return [*line, *self.options()]

    def spawn(self) -> subprocess.Popen[Any]:
        """Start the process, so that it does not outlive the lab."""
        return children.start(self.command(), self.places.child_env())

    def start(self, timeout: float | None = None) -> float:
        """Start and wait for the first answer; returns the seconds that took."""
        seconds = super().start(timeout)
        self.process = Process(self.pid)
        return seconds

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

    def client_settings(self) -> dict[str, Any]:
        """How a client connects."""
        return {"unix_socket": self.socket, "user": _me(), "autocommit": True, "read_timeout": 3600}

    def kill(self) -> None:
        """kill -9."""
        if self.child is not None:
            children.kill(self.child)

    def remove(self) -> None:
        """End it and delete everything."""
        self.kill()
        if self.throttle is not None:
            self.throttle.remove()
        super().remove()
        shutil.rmtree(self._socket_dir, ignore_errors=True)
