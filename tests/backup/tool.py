"""`./ferrite backup` itself beside clients at work: their longest commit meanwhile, and as long without it."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql

from backup.load import Load, fill_wide
from backup.seen import Failed
from backup.witness import free_port

FERRITE = Path(__file__).resolve().parent.parent.parent / "ferrite"
OPTIONS = ["--log-bin=bin", "--server-id=1", "--ferrite-buffer-pool-size=128M", "--ferrite-log-budget=256M"]
WARM_UP_S = 3.0


@dataclass(frozen=True)
class Beside:
    """What clients saw while the program ran, and afterwards for as long."""

    seconds: float
    commits: float
    """A second."""
    longest_ms: float
    commits_without: float
    longest_without_ms: float

    def __str__(self) -> str:
        return (
            f"./ferrite backup took {self.seconds:.1f} s: {self.commits:.0f} commits/s beside it, the longest"
            f" {self.longest_ms:.1f} ms; without it {self.commits_without:.0f} commits/s, the longest {self.longest_without_ms:.1f} ms"
        )


class Instance:
    """A server that ./ferrite up has started, in a directory that its account may enter."""

    def __init__(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ferrite-backup-tool-", dir="/var/tmp"))
        self.home.chmod(0o711)
        self.data = self.home / "data"
        self.port = free_port()

    def up(self) -> None:
        """It answers when this returns."""
        words = ["--socket", self.home / "socket", "--port", self.port, "--", *OPTIONS]
        self.ferrite("up", *words)

    def ferrite(self, command: str, *words: object) -> str:
        """One of the launcher's commands on it, which must succeed."""
        line = [str(FERRITE), command, "--dir", str(self.data), *(str(word) for word in words)]
        done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise Failed(f"./ferrite {command}: exit code {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def connect(self, **keywords: Any) -> Any:
        """As the user that the launcher has made."""
        password = (self.data / "ferrite.password").read_text(encoding="utf-8").strip()
        return pymysql.connect(host="127.0.0.1", port=self.port, user="ferrite", password=password, **keywords)

    def remove(self) -> None:
        """Shut down and delete."""
        with contextlib.suppress(Failed):
            self.ferrite("down")
        shutil.rmtree(self.home, ignore_errors=True)


def beside_the_tool(clients: int, rows: int) -> Beside:
    """Clients that commit all the time, with the program and then without."""
    instance = Instance()
    try:
        instance.up()
        connection = instance.connect(autocommit=True)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE IF NOT EXISTS test")
            cursor.execute("USE test")
            fill_wide(cursor, rows)
        load = Load(instance, clients, rows)
        try:
            time.sleep(WARM_UP_S)
            since = load.now()
            instance.ferrite("backup", instance.home / "backup")
            seconds = time.monotonic() - since[0]
            commits, longest_ms = load.rate(since), load.longest_ms()
            since = load.now()
            time.sleep(seconds)
            return Beside(seconds, commits, longest_ms, load.rate(since), load.longest_ms())
        finally:
            load.stop()
    finally:
        instance.remove()
