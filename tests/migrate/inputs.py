"""Wrong input, missing rights, servers that will not do, tables that change meanwhile: a message that names the cause, nothing left."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migrate.env import DATABASE, TOOL_SECONDS, Env, expect, same, uncounted, wait_until

Scenario = Callable[[Env], None]
ACCOUNTS = """CREATE USER full@localhost IDENTIFIED BY 'right'; GRANT ALL ON *.* TO full@localhost;
CREATE USER reader@localhost; GRANT SELECT ON *.* TO reader@localhost;
CREATE USER `one`@localhost; GRANT ALL ON `mig%`.* TO `one`@localhost; GRANT ALL ON `ferrite\\_migrate`.* TO `one`@localhost;
GRANT ALL ON `ferrite\\_migrate\\_trial`.* TO `one`@localhost; GRANT PROCESS, RELOAD, BINLOG ADMIN ON *.* TO `one`@localhost;
CREATE USER unlogged@localhost; GRANT ALL ON *.* TO unlogged@localhost; REVOKE BINLOG ADMIN, SUPER ON *.* FROM unlogged@localhost;
CREATE USER nobody@localhost; GRANT SELECT, ALTER ON mig.* TO nobody@localhost;
"""


def options(*words: str, plugin: bool = True) -> Callable[[Scenario], Scenario]:
    """The server's options, and whether it has Ferrite."""

    def mark(scenario: Scenario) -> Scenario:
        scenario.options, scenario.plugin = words, plugin  # type: ignore[attr-defined]
        return scenario

    return mark


def slow(scenario: Scenario) -> Scenario:
    """Not in --ci."""
    scenario.slow = True  # type: ignore[attr-defined]
    return scenario


def _journal(env: Env) -> bool:
    return bool(env.run("SHOW DATABASES LIKE 'ferrite\\_migrate'", database=None))


@options(plugin=False)
def scenario_server_without_ferrite(env: Env) -> None:
    "A server without the plugin says so, and how to load it."
    seen = env.tool("convert", wanted=2).text
    expect("no engine FERRITE" in seen and "plugin_load_add" in seen, "the message says what is missing", seen)
    expect(not _journal(env), "no journal is left")


@options("--skip-grant-tables=0", "--log-bin=b", "--server-id=1")
def scenario_accounts(env: Env) -> None:
    "A wrong password, a missing host, a missing privilege."
    seen = env.tool("status", "--host=nowhere.invalid", wanted=2).text
    expect("nowhere.invalid" in seen and "known" in seen, "an unknown host", seen)
    seen = env.tool("status", "--host=127.0.0.1", "--port=1", wanted=2).text
    expect("127.0.0.1:1" in seen and "refused" in seen, "nobody listens", seen)
    for sql in filter(None, ACCOUNTS.replace("\n", " ").split(";")):
        if sql.strip():
            env.run(sql, database=None)
    env.databases()
    env.make(["empty", "parent", "child", "grandchild"])
    seen = env.tool("check", user="full", wanted=2, MYSQL_PWD="wrong").text
    expect("Access denied" in seen, "a wrong password", seen)
    env.tool("check", user="full", wanted=0, MYSQL_PWD="right")
    seen = env.tool("check", user="reader", wanted=2).text
    expect(
        "lacks privileges" in seen and "ferrite_migrate_trial" in seen and "ALTER" in seen, "a reader cannot try", seen
    )
    seen = env.tool("convert", user="nobody", wanted=2).text
    expect("lacks privileges" in seen, "the missing privileges are named", seen)
    seen = env.tool("convert", user="unlogged", wanted=2).text
    expect("BINLOG ADMIN" in seen, "the privilege for the binary log is named", seen)
    expect(not _journal(env), "no journal is left")
    env.nothing_left()
    seen = env.tool("check", f"--database={DATABASE}", user="one", wanted=1).text
    expect("1419" in seen and "log_bin_trust_function_creators" in seen, "guards need a privilege of their own", seen)
    env.run("SET GLOBAL log_bin_trust_function_creators=1", database=None)
    env.tool("convert", f"--database={DATABASE}", user="one", wanted=0)
    env.tool("back", user="one", wanted=0)


@options("--log-bin=b", "--server-id=1", "--skip-networking=0", "--bind-address=127.0.0.1", "--port=0")
def scenario_binary_log(env: Env) -> None:
    "The binary log has the conversion, or with --skip-log-bin nothing; never the journal, the guards or the trial."
    env.databases()
    env.make(["empty", "parent", "child", "grandchild", "tree"])

    def logged() -> str:
        return "\n".join(str(r[5]) for r in env.run("SHOW BINLOG EVENTS", database=None))

    before = logged()
    env.tool("check", wanted=0)
    env.tool("convert", "--skip-log-bin", wanted=0)
    env.tool("back", "--skip-log-bin", wanted=0)
    expect(logged() == before, "nothing is logged")
    env.tool("convert", wanted=0)
    seen = logged()[len(before) :]
    expect("ENGINE=FERRITE" in seen and "DROP FOREIGN KEY" in seen, "the conversion is logged", seen)
    expect("ferrite_migrate" not in seen, "and nothing else", seen)


def scenario_locked_tables(env: Env) -> None:
    "A table that others do not release is left as it was, and the next one is moved; another program is not disturbed."
    env.databases()
    env.make(["empty", "counter", "no_key"])
    with env.session(database=DATABASE) as holder, holder.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO counter (v) VALUES (9)")
        seen = env.tool("convert", "--lock-wait=1", "--lock-tries=2", wanted=1).text
        expect("other sessions hold locks" in seen, "the message says who is to blame", seen)
        holder.commit()
        engines = {name[1]: engine for name, engine in env.tables().items()}
        expect(
            engines == {"empty": "FERRITE", "counter": "InnoDB", "no_key": "FERRITE"}, "the others are moved", engines
        )
        cursor.execute("SELECT GET_LOCK('ferrite_migrate', 0)")
        ran = env.tool("convert", wanted=2)
        expect("another ferrite-migrate" in ran.text, "one at a time", ran.text)
    expect("counter: failed" in env.tool("status", wanted=1).text, "status tells")
    env.tool("convert", wanted=0)
    env.tool("status", wanted=0)


def scenario_tables_that_change(env: Env) -> None:
    "Between plan and move a table is dropped, one gets a FULLTEXT index, one a foreign key to a stranger: they are left, the others moved."
    env.databases()
    env.make(["empty", "no_key", "counter", "numbers", "parent", "child", "grandchild"])
    env.tool("convert", KILL="move.planned", wanted=-signal.SIGKILL)
    env.run(
        "DROP TABLE counter",
        "ALTER TABLE no_key ADD FULLTEXT (b)",
        "CREATE TABLE late (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id))",
        "ALTER TABLE numbers ADD COLUMN late INT",
    )
    rows = env.contents()
    seen = env.tool("convert", "--resume", wanted=1).text
    expect("FULLTEXT" in seen and "late" in seen, "the reasons are told", seen)
    engines = {name[1]: engine for name, engine in env.tables().items()}
    moved = sorted(name for name, engine in engines.items() if engine == "FERRITE")
    expect(moved == ["empty", "numbers"], "the others are moved", engines)
    same(rows, env.contents(), "the rows are as before")
    env.nothing_left()
    expect(env.error("INSERT INTO child (p) VALUES (100000)") == 1452, "the foreign keys are there")
    env.run("ALTER TABLE no_key DROP INDEX b")
    env.tool("convert", wanted=0)


def scenario_table_that_goes(env: Env) -> None:
    "A table is dropped whose move had begun: that is told, and keeps nobody from the others."
    env.databases()
    env.make(["empty", "numbers"])
    env.tool("convert", KILL="move.begun", wanted=-signal.SIGKILL)
    name = env.tool("status", wanted=1).text.split(": working")[0].split(".")[-1]
    env.run(f"DROP TABLE {name}")
    seen = env.tool("convert", "--resume", wanted=1).text
    expect(f"left out: {DATABASE}.{name}" in seen, "it is told", seen)
    expect(set(env.tables().values()) == {"FERRITE"}, "the other is moved", env.tables())
    expect("nothing is unfinished" in env.tool("convert", "--resume", wanted=0).text, "once")
    env.make([name])
    env.tool("convert", wanted=0)
    env.tool("status", wanted=0)
    env.tool("back", wanted=0)


def scenario_contents_that_change(env: Env) -> None:
    "Rows that change behind the guards are found by the verification; without guards the foreign keys are checked."
    env.databases()
    env.make(["parent", "child", "grandchild"])
    definitions = env.definitions()
    env.tool("convert", KILL="move.altered:3", wanted=-signal.SIGKILL)
    env.run("SET foreign_key_checks=0", "TRUNCATE grandchild")
    seen = env.tool("convert", "--resume", wanted=2).text
    expect("other contents" in seen and "grandchild" in seen, "the verification finds it", seen)
    expect(env.error("INSERT INTO child (p) VALUES (1)") == 1644, "writes are still refused")
    expect("frozen" in env.tool("status", wanted=1).text, "and status says so")
    guards = env.run(
        "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_NAME LIKE 'ferrite%' AND EVENT_OBJECT_TABLE='child'"
    )
    env.run(
        *[f"DROP TRIGGER `{name}`" for (name,) in guards],
        "SET foreign_key_checks=0",
        "INSERT INTO child (id, p) VALUES (9999, 100000)",
    )
    seen = env.tool("convert", "--resume", wanted=2).text
    expect("guards have been removed" in seen and "1452" in seen, "an orphan that got in without guards is found", seen)
    guards = env.run(
        "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_NAME LIKE 'ferrite%' AND EVENT_OBJECT_TABLE='child'"
    )
    env.run(*[f"DROP TRIGGER `{name}`" for (name,) in guards], "DELETE FROM child WHERE id=9999")
    env.tool("back", wanted=0)
    same(uncounted(definitions), uncounted(env.definitions()), "the definitions are as before")
    env.nothing_left()


@slow
def scenario_full_disk(env: Env) -> None:
    "Too little space is noticed before anything is done; a disk that becomes full leaves the table as it was."
    with tempfile.TemporaryDirectory(prefix="ferrite-migrate-") as mount:
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=900m", "tmpfs", mount], capture_output=True, check=False
        ).returncode:
            print("full_disk: a small file system cannot be mounted here (root may); not tried")
            return
        try:
            _fill(env, Path(mount))
        finally:
            env.server.kill()
            subprocess.run(["umount", mount], check=False)


def _fill(env: Env, mount: Path) -> None:
    server: Any = env.server
    server.remove()
    server.home = mount / "server"
    server.datadir, server.socket, server.error_log = (
        server.home / "data",
        str(server.home / "s"),
        server.home / "error.log",
    )
    server.start()
    env.databases()
    env.run(
        "CREATE TABLE big (id INT PRIMARY KEY, v VARBINARY(3000))",
        "INSERT INTO big SELECT seq, CONCAT(RANDOM_BYTES(1000), RANDOM_BYTES(1000), RANDOM_BYTES(900)) FROM seq_1_to_50000",
    )
    env.run("ANALYZE TABLE big")
    rows = env.run("SELECT COUNT(*), SUM(CRC32(v)) FROM big")
    seen = env.tool("convert", wanted=2).text
    expect("are free on the server's disk" in seen and not _journal(env), "too little space", seen)
    free = int(
        subprocess.run(
            ["df", "--output=avail", "-B1", str(mount)], capture_output=True, text=True, check=True
        ).stdout.split()[1]
    )
    (mount / "ballast").write_bytes(b"x" * max(0, free - (20 << 20)))
    seen = env.tool("convert", "--no-space-check", wanted=1).text
    expect("1114" in seen, "the table is full", seen)
    expect(env.tables()[DATABASE, "big"] == "InnoDB", "the table is where it was")
    expect(env.run("SELECT COUNT(*), SUM(CRC32(v)) FROM big") == rows, "with its rows")
    (mount / "ballast").unlink()
    env.tool("convert", "--no-space-check", wanted=0)
    expect(env.run("SELECT COUNT(*), SUM(CRC32(v)) FROM big") == rows, "moved with its rows")


def _sleep(cursor: Any) -> None:
    with contextlib.suppress(Exception):  # it is killed
        cursor.execute("SELECT SLEEP(60)")


def _signalled_twice(child: subprocess.Popen[str]) -> str:
    """All that it says. Two signals that it has not heard are one: the second comes when the first is answered."""
    assert child.stdout
    guard = threading.Timer(TOOL_SECONDS, child.kill)
    guard.start()
    child.send_signal(signal.SIGTERM)
    text = ""
    while "stopping after this group" not in text and (line := child.stdout.readline()):
        text += line
    time.sleep(0.5)
    child.send_signal(signal.SIGTERM)
    text += child.stdout.read()
    child.wait()
    guard.cancel()
    return text


def scenario_throttle_and_signals(env: Env) -> None:
    "A busy server makes it wait, a time limit ends it, and so does a signal: after the group, or in its midst, which is put back."
    env.databases()
    env.make(["empty", "no_key", "parent", "child", "grandchild"])
    definitions, rows = env.definitions(), env.contents()
    seen = env.tool("convert", "--max-threads-running=0.5", wanted=2).text
    expect("invalid int" in seen, "a limit is a number", seen)
    seen = env.tool("convert", "--max-lag=1", wanted=2).text
    expect("--replica" in seen, "a lag needs a replica", seen)
    with env.session() as busy, busy.cursor() as cursor:
        sleeper = threading.Thread(target=_sleep, args=(cursor,), daemon=True)
        sleeper.start()
        seen = env.tool("convert", "--max-threads-running=1", "--max-wait=1", wanted=2).text
        expect("threads running" in seen and "--resume" in seen, "it waits and gives up", seen)
        env.run(f"KILL QUERY {busy.thread_id()}")
        sleeper.join(10)
    seen = env.tool("convert", "--resume", "--max-time=0.001", wanted=1).text
    expect("stopped; 3 of 3 groups are left" in seen, "the time is up", seen)
    same(definitions, env.definitions(), "nothing has been done")
    with env.session(database=DATABASE) as holder, holder.cursor() as cursor:
        cursor.execute("LOCK TABLES grandchild READ")
        child = env.start("convert", "--resume", "--lock-wait=60")
        wait_until(lambda: bool(env.run("SELECT 1 FROM information_schema.PROCESSLIST WHERE INFO LIKE 'LOCK TABLES%'")))
        text = _signalled_twice(child)
    expect(
        child.returncode == 1 and "stopping after this group" in text and "1317" in text, "the statement is ended", text
    )
    same(rows, env.contents(), "the rows are as before")
    env.nothing_left()
    env.tool("convert", wanted=0)
    seen = env.tool("back", "--pause=0.1", wanted=0).text
    same(definitions, env.definitions(), "the definitions are as before")


@options("--innodb-flush-log-at-trx-commit=0", "--log-bin-trust-function-creators=0", "--log-bin=b", "--server-id=1")
def scenario_lazy_log(env: Env) -> None:
    "Where commits are not flushed, the journal still survives the server."
    env.databases()
    env.make(["parent", "child", "grandchild"])
    definitions = env.definitions()
    env.tool("convert", KILL="move.altered", KILL_PID=str(env.server.pid), wanted=2)
    env.restart()
    expect("frozen" in env.tool("status", wanted=1).text, "the journal is there")
    env.tool("back", wanted=0)
    same(definitions, env.definitions(), "the definitions are as before")


@options("--server-id=2", "--log-bin=b", "--skip-slave-start")
def scenario_replica(env: Env) -> None:
    "On a replica that applies changes, tables with foreign keys are not begun, and others are moved."
    env.databases()
    env.make(["empty", "parent", "child", "grandchild"])
    env.run(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT=1, MASTER_USER='nobody'",
        "START SLAVE SQL_THREAD",
        database=None,
    )
    seen = env.tool("convert", "--skip-log-bin", wanted=2).text
    expect("STOP SLAVE SQL_THREAD" in seen and not _journal(env), "guards would not hold", seen)
    env.tool("convert", "--skip-log-bin", f"--table={DATABASE}.empty", wanted=0)
    env.run("STOP SLAVE SQL_THREAD", database=None)
    env.tool("convert", "--skip-log-bin", wanted=0)
    env.tool("back", "--skip-log-bin", wanted=0)
