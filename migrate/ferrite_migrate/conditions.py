"""What must hold before anything is changed: privileges, disk space, replication, no cluster."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterable

import pymysql

from ferrite_migrate.errors import Problem, Refused
from ferrite_migrate.progress import size
from ferrite_migrate.server import Session
from ferrite_migrate.sql import Name, literal
from ferrite_migrate.tables import OWN_DATABASE, TRIAL_DATABASE

ON_TABLES = ("SELECT", "INSERT", "CREATE", "DROP", "ALTER", "LOCK TABLES")
ON_LINKED = ("TRIGGER", "REFERENCES")
ON_OWN = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP")
ON_TRIAL = ("SELECT", "INSERT", "CREATE", "DROP", "ALTER", "TRIGGER", "REFERENCES")
SPACE_FACTOR = 1.3
SPACE_SPARE_BYTES = 256 << 20


class Privileges:
    """What the account, its roles and PUBLIC may do."""

    def __init__(self, session: Session) -> None:
        account = str(session.value("SELECT CURRENT_USER()")).rsplit("@", 1)
        grantees = [f"'{account[0]}'@'{account[1]}'", "PUBLIC", "''@''"]
        roles = [
            str(r[0])
            for r in session.run("SELECT ROLE_NAME FROM information_schema.ENABLED_ROLES WHERE ROLE_NAME IS NOT NULL")
        ]
        grantees += roles + [f"'{x}'@''" for x in roles]
        self.who = f"GRANTEE IN ({','.join(literal(x) for x in grantees)})"
        rows = session.run(f"SELECT PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE {self.who}")
        self.everywhere = {str(r[0]) for r in rows}
        rows = session.run(
            f"SELECT TABLE_SCHEMA, PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES WHERE {self.who}"
        )
        self.schemas = [(_pattern(str(r[0])), str(r[1])) for r in rows]
        rows = session.run(
            f"SELECT TABLE_SCHEMA, TABLE_NAME, PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES WHERE {self.who}"
        )
        self.tables = {(str(r[0]), str(r[1]), str(r[2])) for r in rows}
        # --skip-grant-tables shows none, and asks for none.
        self.unasked = not (self.everywhere or self.schemas or self.tables)

    def missing(self, name: Name, needed: Iterable[str]) -> list[str]:
        """Which of the privileges the account does not have on a table."""
        if self.unasked:
            return []
        have = {x for pattern, x in self.schemas if pattern.fullmatch(name[0])} | self.everywhere
        return [x for x in needed if x not in have and (*name, x) not in self.tables]


def _pattern(granted: str) -> re.Pattern[str]:
    """The database of a grant, in which % and _ stand for others unless a backslash precedes them."""
    wild = {"%": ".*", "_": "."}
    pieces = re.findall(r"\\.|.", granted, re.DOTALL)
    return re.compile("".join(wild.get(x) or re.escape(x[-1]) for x in pieces), re.DOTALL)


def require_privileges(session: Session, groups: Iterable[list[Name]], moving: bool) -> None:
    """Complain of all that is missing, at once."""
    held = Privileges(session)
    lacking: dict[str, set[str]] = {}
    if moving:
        for group in groups:
            for name in group:
                needed = (*ON_TABLES, *(ON_LINKED if len(group) > 1 else ()))
                lacking.setdefault(name[0], set()).update(held.missing(name, needed))
        lacking[OWN_DATABASE] = set(held.missing((OWN_DATABASE, ""), ON_OWN))
    lacking[TRIAL_DATABASE] = set(held.missing((TRIAL_DATABASE, ""), ON_TRIAL))
    told = [f"{', '.join(sorted(x))} on `{database}`.*" for database, x in lacking.items() if x]
    if moving and not held.unasked and "PROCESS" not in held.everywhere:
        told.append("PROCESS on *.*")
    if told:
        raise Problem(f"the account {session.value('SELECT CURRENT_USER()')} lacks privileges: {'; '.join(told)}")


def require_unlogged(session: Session) -> None:
    """The session may leave the binary log out for what concerns this server alone."""
    if session.variable("log_bin") != "ON":
        return
    try:
        with session.unlogged():
            pass
    except Refused as e:
        raise Problem(
            f"the binary log is enabled, and the journal is not to be in it: the account needs BINLOG ADMIN ({e})"
        ) from e


def require_flush(session: Session, needed: bool) -> None:
    """The journal can be made durable."""
    if needed:
        try:
            session.run("FLUSH ENGINE LOGS")
        except Refused as e:
            raise Problem(f"the journal is made durable with FLUSH ENGINE LOGS: the account needs RELOAD ({e})") from e


def require_alone(session: Session) -> None:
    """No Galera cluster: it replicates DDL by itself, and Ferrite refuses changes there."""
    if session.variable("wsrep_on") == "ON" and session.variable("wsrep_provider") not in ("", "none"):
        raise Problem("this server is a node of a Galera cluster, which Ferrite does not support")


def require_replication(session: Session, linked: bool, log: bool | None, replicas_running: bool) -> None:
    """What is replicated from here and to here is decided and safe."""
    if log is None and session.variable("log_bin") == "ON":
        rows = session.run("SELECT USER, HOST FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'")
        if rows:
            raise Problem(
                f"the binary log is enabled and {len(rows)} replica(s) read it (from {rows[0][1]}): choose --skip-log-bin (convert the "
                "replicas by themselves, first) or --log-bin (they execute the same statements and need the plugin)"
            )
    if linked and not replicas_running and _applier_runs(session):
        raise Problem(
            "this server is a replica that is applying changes. Row events do not fire triggers, so the guards of tables with foreign "
            "keys would not hold if the conversion were interrupted: STOP SLAVE SQL_THREAD first, START SLAVE SQL_THREAD afterwards"
        )


def _sources(session: Session) -> list[dict[str, object]]:
    """What SHOW ALL SLAVES STATUS says, by the columns' names."""
    with session.connection.cursor() as cursor:
        cursor.execute("SHOW ALL SLAVES STATUS")
        names = [x[0] for x in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _applier_runs(session: Session) -> bool:
    try:
        return any(x["Slave_SQL_Running"] == "Yes" for x in _sources(session))
    except Exception:  # without the privilege: the process list tells
        rows = session.run(
            "SELECT 1 FROM information_schema.PROCESSLIST WHERE COMMAND IN ('Slave_SQL', 'Slave_worker')"
        )
        return bool(rows)


def applied(session: Session) -> str:
    """How far this server has applied its sources' changes: the same text as long as it applies none."""
    parts = [str(session.value("SELECT @@GLOBAL.gtid_slave_pos") or "")]
    with contextlib.suppress(pymysql.MySQLError):  # without the privilege the GTID alone has to do
        for row in _sources(session):
            parts.append(f"{row['Connection_name']} {row['Relay_Master_Log_File']} {row['Exec_Master_Log_Pos']}")
    return "; ".join(parts)


def free_bytes(session: Session, target: str) -> int | None:
    """Free space where the target engine stores; None if that cannot be seen from here."""
    datadir = session.variable("datadir")
    if session.variable("hostname") == socket.gethostname() and os.path.isdir(datadir):
        store = os.path.join(datadir, "#ferrite")
        status = os.statvfs(store if target == "FERRITE" and os.path.isdir(store) else datadir)
        return status.f_bavail * status.f_frsize
    if session.value("SELECT 1 FROM information_schema.PLUGINS WHERE PLUGIN_NAME='DISKS' AND PLUGIN_STATUS='ACTIVE'"):
        rows = session.run("SELECT Path, Available FROM information_schema.DISKS")
        within = [(len(r[0]), int(r[1]) << 10) for r in rows if datadir.startswith(r[0])]
        return max(within)[1] if within else None
    return None


def require_space(session: Session, target: str, largest: int, checked: bool) -> None:
    """The largest group fits: each table exists twice until its ALTER TABLE ends, and the log grows meanwhile."""
    if not checked:
        return
    free = free_bytes(session, target)
    needed = int(largest * SPACE_FACTOR) + SPACE_SPARE_BYTES
    if free is None:
        raise Problem(
            "the free space of the server's disk cannot be seen from here: run this on the server's machine, INSTALL SONAME 'disks', or "
            f"see to {size(needed)} yourself and give --no-space-check"
        )
    if free < needed:
        raise Problem(f"{size(free)} are free on the server's disk, and the next tables need {size(needed)}")
