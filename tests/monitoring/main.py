"""The dashboard for Grafana and the alert rules for Prometheus: every metric in them is one of the server's, counters are
rates, ferrite-top shows what a server does, and (unless --ci) Prometheus itself, scraping mysqld_exporter, answers every query of every panel and loads the rules.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from lib.engines import engine
from lib.places import find_places
from lib.server import Server, home_in_memory, stop_on_signals
from monitoring import shipped, top
from monitoring.live import Failed, scraped


def _server_names(server: Server, what: str) -> set[str]:
    connection = server.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SHOW GLOBAL {what}")
            return {row[0].lower() for row in cursor.fetchall()}
    finally:
        connection.close()


def _counters(server: Server) -> set[str]:
    connection = server.connect()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT name FROM information_schema.FERRITE_METRICS WHERE type = 'counter'")
            return {row[0] for row in cursor.fetchall()}
    finally:
        connection.close()


def _named(root: Path, server: Server) -> None:
    """Names and kinds, against what the server says."""
    status, settings = _server_names(server, "STATUS"), _server_names(server, "VARIABLES")
    counters = _counters(server)
    if not shipped.unknown("rate(mysql_global_status_ferrite_planted[5m])", status, settings):
        raise Failed("a metric that does not exist is not noticed")
    if not shipped.misused("mysql_global_status_ferrite_commits", counters):
        raise Failed("a counter shown as it is is not noticed")
    texts = {"rules": shipped.rules(root), **shipped.expressions(root)}
    texts["variables"] = str(shipped.dashboard(root)["templating"])
    wrong = [f"{where}: no {name}" for where, text in texts.items() for name in shipped.unknown(text, status, settings)]
    wrong += [
        f"{where}: {fault}"
        for where, text in texts.items()
        if where != "variables"
        for fault in shipped.misused(text, counters)
    ]
    wrong += shipped.layout(shipped.dashboard(root)["panels"])
    if wrong:
        raise Failed("\n  ".join(["dashboard and rules:", *wrong]))
    print(f"{len(texts)} texts name only what the server has", flush=True)


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="./ferrite test monitoring", description=__doc__)
    parser.add_argument("--engine", default="ferrite", choices=["ferrite"])
    parser.add_argument("--ci", action="store_true", help="names only, without Prometheus")
    options = parser.parse_args()
    stop_on_signals()
    root = Path(os.environ["FERRITE_ROOT"])
    server = Server(find_places(), engine("ferrite"), ["--log-bin=bin", "--server-id=1"], home_in_memory())
    try:
        server.start()
        _named(root, server)
        top.watched(server)
        if not options.ci:
            scraped(root, server, Path(os.environ["FERRITE_PROMETHEUS"]))
    except Failed as e:
        print(f"FAILED: {e}", flush=True)
        return 1
    finally:
        server.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
