"""The command line of ferrite-top."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
import time
from pathlib import Path
from typing import Any

import pymysql
import pymysql.cursors

from ferrite_top import page
from ferrite_top.sample import NoFerrite, Sample, take

ONCE_WIDTH, ONCE_HEIGHT = 160, 60
HEAD_EVERY = 20
SOCKET = "/run/mysqld/mysqld.sock"
PROMPT = "\0"


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="ferrite-top",
        add_help=False,
        description="What the storage engine Ferrite is doing, on one screen. Keys: q ends, p pauses, + and - change the interval.",
    )
    parser.add_argument("--help", action="help", help="show this text")
    parser.add_argument(
        "--defaults-file", metavar="FILE", help="read host, user and so on from [client] of this file (else ~/.my.cnf)"
    )
    parser.add_argument("--no-defaults", action="store_true", help="read no such file")
    parser.add_argument("-h", "--host", help="connect over TCP")
    parser.add_argument("-P", "--port", type=int, default=3306)
    parser.add_argument("-S", "--socket", help=f"connect through this socket (default: {SOCKET})")
    parser.add_argument("-u", "--user", help="default: the name of your account")
    parser.add_argument(
        "-p", "--password", nargs="?", const=PROMPT, help="asked for if no value is given; or in MYSQL_PWD"
    )
    parser.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="between two looks (default: 2)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="print one page, of one interval, and end")
    how.add_argument("--batch", action="store_true", help="print a line for each interval, for logs")
    parser.add_argument("--count", type=int, metavar="N", help="with --batch: end after N lines")
    options = parser.parse_args(words)
    if not 0.1 <= options.interval <= 3600:
        parser.error("--interval takes 0.1 to 3600 seconds")
    if options.count is not None and (not options.batch or options.count < 1):
        parser.error("--count takes a number from 1, with --batch")
    return options


def _connect(options: argparse.Namespace) -> Any:
    settings: dict[str, Any] = {"connect_timeout": 10, "read_timeout": 30, "autocommit": True, "charset": "utf8mb4"}
    home = Path.home() / ".my.cnf"
    if not options.no_defaults and (options.defaults_file or home.exists()):
        settings["read_default_file"] = options.defaults_file or str(home)
    if options.host:
        settings |= {"host": options.host, "port": options.port}
    elif options.socket or "read_default_file" not in settings:
        settings["unix_socket"] = options.socket or SOCKET
    if options.user or "read_default_file" not in settings:
        settings["user"] = options.user or getpass.getuser()
    password = getpass.getpass("Password: ") if options.password == PROMPT else options.password
    if password is None:
        password = os.environ.get("MYSQL_PWD")
    if password is not None:
        settings["password"] = password
    return pymysql.connect(**settings)


def _batch(connection: Any, options: argparse.Namespace) -> None:
    before, printed = take(connection), 0
    while options.count is None or printed < options.count:
        time.sleep(options.interval)
        now = take(connection)
        if printed % HEAD_EVERY == 0:
            print(page.batch_head())
        print(page.batch_line(before, now), flush=True)
        before, printed = now, printed + 1


def _once(connection: Any, options: argparse.Namespace) -> None:
    before = take(connection)
    time.sleep(options.interval)
    print("\n".join(page.lines(before, take(connection), ONCE_WIDTH, ONCE_HEIGHT, options.interval)))


def _screen(connection: Any, options: argparse.Namespace) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NoFerrite("this is no terminal: use --once or --batch")
    from ferrite_top import screen

    def look() -> Sample:
        return take(connection)

    screen.run(look, options.interval)


def main(words: list[str] | None = None) -> int:
    """Entry point. 0: done; 1: the server cannot be looked at."""
    options = _options(words)
    try:
        connection = _connect(options)
        way = _once if options.once else _batch if options.batch else _screen
        way(connection, options)
    except KeyboardInterrupt:
        return 0
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (NoFerrite, pymysql.err.Error, OSError) as e:
        text = e.args[1] if isinstance(e, pymysql.err.Error) and len(e.args) > 1 else e
        print(f"ferrite-top: {text}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
