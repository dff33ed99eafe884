"""The commands of `./ferrite migrate`, and what they say.

Exit codes: 0 everything asked for is done or can be done; 1 some table is refused or was not moved; 2 could not run.
"""

from __future__ import annotations

import argparse
import getpass
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace

from ferrite_migrate import commands
from ferrite_migrate.errors import Problem
from ferrite_migrate.move import Settings
from ferrite_migrate.progress import say
from ferrite_migrate.server import Login
from ferrite_migrate.sql import Name
from ferrite_migrate.tables import Wanted
from ferrite_migrate.throttle import Throttle

PROGRAM = "./ferrite migrate"
EXIT_CODES = "Exit code: 0 all is well, 1 some table is refused or was not moved, 2 could not run."


def _table(text: str) -> Name:
    database, dot, table = text.partition(".")
    if not dot or not database or not table:
        raise argparse.ArgumentTypeError(f"{text}: give it as DATABASE.TABLE")
    return database, table


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a positive whole number")
    return int(text)


def _login_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "connection", "Without any: the private server of ./ferrite up (--dir DIR names another than ./var/data)."
    )
    group.add_argument("--socket", metavar="PATH", default="", help="Unix socket")
    group.add_argument("--host", metavar="NAME", default="", help="host name or address, for TCP")
    group.add_argument("--port", metavar="N", type=int, default=3306)
    group.add_argument("--user", metavar="NAME", default="", help="account (default: that of the operating system)")
    group.add_argument(
        "--ask-password",
        action="store_true",
        help="ask for the password; it can also be in MYSQL_PWD or the option file",
    )
    group.add_argument("--defaults-file", metavar="FILE", default="", help="option file; its section [client] is read")
    group.add_argument("--ssl-ca", metavar="FILE", default="", help="require TLS, with this authority")


def _which_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("tables", "Without any: all but the server's own.")
    group.add_argument(
        "--database", metavar="NAME", action="append", default=[], help="all tables of a database; can be repeated"
    )
    group.add_argument(
        "--table", metavar="DATABASE.TABLE", action="append", default=[], type=_table, help="one table; can be repeated"
    )
    group.add_argument(
        "--connected", action="store_true", help="take along tables that foreign keys connect with those"
    )


def _move_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how")
    group.add_argument(
        "--verify",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compare row counts and checksums; the table is locked meanwhile",
    )
    group.add_argument(
        "--lock-wait", metavar="SECONDS", type=_natural, default=5, help="longest wait for a table's lock at a time"
    )
    group.add_argument("--lock-tries", metavar="N", type=_natural, default=60, help="how often to ask for it")
    group.add_argument("--no-space-check", action="store_true", help="do not compare sizes with the free disk space")
    log = group.add_mutually_exclusive_group()
    log.add_argument(
        "--skip-log-bin",
        action="store_true",
        help="keep the statements out of the binary log: replicas are converted by themselves",
    )
    log.add_argument("--log-bin", action="store_true", help="let replicas execute the same statements")
    throttle = parser.add_argument_group("throttle", "Between tables; one that is being copied is not slowed down.")
    throttle.add_argument("--pause", metavar="SECONDS", type=float, default=0, help="between groups of tables")
    throttle.add_argument(
        "--max-threads-running", metavar="N", type=int, default=0, help="wait while Threads_running is greater"
    )
    throttle.add_argument(
        "--max-lag", metavar="SECONDS", type=int, help="wait while a replica is further behind (with --replica)"
    )
    throttle.add_argument(
        "--replica",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="a replica to look at, with the same account; can be repeated",
    )
    throttle.add_argument(
        "--max-wait", metavar="SECONDS", type=float, default=3600, help="give up after waiting so long"
    )
    throttle.add_argument(
        "--max-time", metavar="SECONDS", type=float, default=0, help="begin no further table after this time"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Moves tables from InnoDB to Ferrite, and back.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    words = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        # scripts/migrate.sh chooses the server by the options, and knows their whole names only: --dum is no --dump.
        return words.add_parser(name, help=text, epilog=EXIT_CODES, allow_abbrev=False)

    check = command("check", "say what a move would do, and what is refused")
    check.add_argument(
        "--dump",
        metavar="FILE",
        help="look at the definitions in this SQL file (- is stdin) on a private server made for it",
    )
    convert = command("convert", "move tables from InnoDB to Ferrite")
    convert.add_argument("--resume", action="store_true", help="go on where an earlier run ended")
    back = command("back", "move tables that were converted back to InnoDB")
    status = command("status", "show the journal")
    forget = command("forget", "drop the journal; nothing must be unfinished")
    for each in (check, convert, back, status, forget):
        _login_options(each)
    for each in (check, convert, back):
        _which_options(each)
        each.add_argument(
            "--rate",
            metavar="MB",
            type=_positive,
            help="MB per second, for estimates (default: as measured here before, else 20)",
        )
        each.add_argument(
            "--allow-unencrypted", action="store_true", help="store tables that are encrypted as plain text"
        )
    for each in (convert, back):
        _move_options(each)
    return parser


def _login(options: argparse.Namespace) -> Login:
    password = getpass.getpass("Password: ") if options.ask_password else os.environ.get("MYSQL_PWD", "")
    if options.defaults_file and not os.access(options.defaults_file, os.R_OK):
        raise Problem(f"cannot read the option file {options.defaults_file}")
    login = Login(
        options.host, options.port, options.socket, options.user, password, options.defaults_file, options.ssl_ca
    )
    if getattr(options, "skip_log_bin", False):
        login.settings.append("SET SESSION sql_log_bin=0")
    return login


def _throttle(options: argparse.Namespace, login: Login) -> Throttle:
    if options.max_lag is not None and not options.replica:
        raise Problem("--max-lag needs the replicas to look at: --replica HOST:PORT")
    replicas = []
    for text in options.replica:
        host, _, port = text.partition(":")
        replicas.append(replace(login, host=host, port=int(port or 3306), socket="", settings=[]))
    lag = options.max_lag if options.max_lag is not None else (60 if replicas else None)
    return Throttle(options.pause, options.max_threads_running, lag, replicas, options.max_wait, options.max_time)


class Stop:
    """A signal ends the run after the group that is being moved; the next one ends the statement, and the group is put back."""

    def __init__(self) -> None:
        self.asked = False
        self.kill: Callable[[], None] = lambda: None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._take)

    def _take(self, number: int, frame: object) -> None:
        del number, frame
        if self.asked:
            self.kill()
        else:
            say("stopping after this group; once more to interrupt it and put it back")
        self.asked = True

    def __call__(self) -> bool:
        return self.asked


def _run(options: argparse.Namespace) -> bool:
    login = _login(options)
    if options.command == "status":
        return commands.status(login)
    if options.command == "forget":
        return commands.forget(login)
    wanted = Wanted(tuple(options.database), tuple(options.table), options.connected)
    rate = (options.rate or 0) * 1e6
    if options.command == "check":
        return commands.check(login, wanted, rate, options.allow_unencrypted, options.dump)
    settings = Settings(
        options.verify, options.lock_wait, options.lock_tries, allow_unencrypted=options.allow_unencrypted
    )
    log = False if options.skip_log_bin else True if options.log_bin else None
    job = commands.Job(
        login,
        wanted,
        settings,
        _throttle(options, login),
        Stop(),
        rate,
        options.allow_unencrypted,
        not options.no_space_check,
        log,
    )
    return job.convert(options.resume) if options.command == "convert" else job.back()


def main(words: list[str] | None = None) -> int:
    """The exit code."""
    options = _parser().parse_args(words)
    try:
        return 0 if _run(options) else 1
    except Problem as e:
        print(f"ferrite-migrate: {e}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, BrokenPipeError):
        return 2
