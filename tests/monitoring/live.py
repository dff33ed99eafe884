"""Prometheus and mysqld_exporter beside a server under load."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql

from lib.server import Server
from monitoring import shipped

SCRAPES = 12
"""How many readings there must be before questions are asked; one a second."""
SILENT = ("Replication lag",)
"""Panels that have nothing to show without a replica."""


class Failed(Exception):
    """What is shipped does not work."""


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.loads(answer.read())


@contextlib.contextmanager
def _running(command: list[str], log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        child = subprocess.Popen(command, stdout=out, stderr=out, env=env, stdin=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def _load(server: Server, stop: threading.Event) -> None:
    connection = server.connect(database="test", autocommit=True)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE m (id INT PRIMARY KEY, c VARCHAR(100)) ENGINE=FERRITE")
        while not stop.is_set():
            cursor.execute("REPLACE INTO m SELECT seq, REPEAT('x', 100) FROM seq_1_to_100")
            with contextlib.suppress(pymysql.err.OperationalError):
                cursor.execute("DELETE FROM m WHERE id < 50")
            time.sleep(0.01)
    connection.close()


def _wait_for(what: str, ask: Any, log: Path, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            if ask():
                return
        time.sleep(0.3)
    raise Failed(f"never seen: {what}\n{log.read_text(errors='replace')[-2000:]}")


def scraped(root: Path, server: Server, programs: Path) -> None:
    """Every query of every panel has an answer, and the rules are loaded and sound."""
    exporter, prometheus = _free_port(), _free_port()
    home, env = server.home, server.places.child_env()
    config = home / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n"
        f"rule_files: ['{root / 'packaging/prometheus/ferrite.rules.yml'}']\n"
        f"scrape_configs: [{{job_name: mysql, static_configs: [{{targets: ['127.0.0.1:{exporter}']}}]}}]\n"
    )
    reading = [str(programs / "prometheus-mysqld-exporter"), f"--web.listen-address=127.0.0.1:{exporter}"]
    keeping = [
        str(programs / "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={home / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{prometheus}",
    ]
    stop = threading.Event()
    load = threading.Thread(target=_load, args=(server, stop))
    load.start()
    logs = (home / "exporter.log", home / "prometheus.log")
    try:
        with (
            _running(reading, logs[0], {**env, "DATA_SOURCE_NAME": f"root@unix({server.socket})/"}),
            _running(keeping, logs[1], env),
        ):
            _questions(root, f"http://127.0.0.1:{prometheus}/api/v1", logs[1])
    finally:
        stop.set()
        load.join()


def _questions(root: Path, api: str, log: Path) -> None:
    def ask(expression: str) -> list[Any]:
        answer = _get(f"{api}/query?query={urllib.parse.quote(expression)}")
        result: list[Any] = answer["data"]["result"]
        return result

    readings = f"count_over_time({shipped.STATUS}ferrite_commits[1h])"
    _wait_for("readings", lambda: any(float(r["value"][1]) >= SCRAPES for r in ask(readings)), log)
    silent = []
    for where, text in shipped.expressions(root).items():
        asked = text.replace("$instance", ".*").replace("$__rate_interval", "10s")
        if not ask(asked) and not where.startswith(SILENT):
            silent.append(f"{where}: {asked}")
    if silent:
        raise Failed("\n  ".join(["queries without an answer:", *silent]))
    _wait_for("the rules evaluated", lambda: _rules(api) and all(r["health"] == "ok" for r in _rules(api)), log)
    firing = [r["name"] for r in _rules(api) if r["state"] == "firing"]
    if firing:
        raise Failed(f"alerts on a server that is well: {firing}")
    print(
        f"Prometheus answers {len(shipped.expressions(root))} queries and evaluates {len(_rules(api))} rules",
        flush=True,
    )


def _rules(api: str) -> list[dict[str, Any]]:
    groups = _get(f"{api}/rules")["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]
