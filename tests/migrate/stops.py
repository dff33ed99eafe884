"""Moves that are stopped in their midst, by locks of others, by KILL, or on a server that does not do as asked: what the journal says is so."""

from __future__ import annotations

import signal
import subprocess
import time

from migrate.env import DATABASE, Env, expect, same, wait_until
from migrate.inputs import options, slow

GROUP = ["parent", "child", "grandchild"]


def scenario_guards_that_cannot_go(env: Env) -> None:
    "A complete group whose guards cannot be taken away, since others hold locks, stays unfinished until they can."
    env.databases()
    env.make(GROUP)
    rows = env.contents()
    for first, then in (("convert", ["convert", "--resume"]), ("back", ["back"])):
        env.tool(first, KILL="move.verified", wanted=-signal.SIGKILL)
        with env.session(database=DATABASE) as holder, holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT * FROM parent")
            seen = env.tool(*then, "--lock-wait=1", "--lock-tries=1", wanted=2).text
            expect("other sessions hold locks" in seen, "the message names the cause", seen)
            seen = env.tool("status", wanted=1).text
            expect("verified" in seen and "failed" not in seen and "guards" in seen, "it is not as before", seen)
        expect(env.error("UPDATE child SET p=2") == 1644, "the guards are there")
        env.tool(*then, wanted=0)
        env.nothing_left()
        same(rows, env.contents(), "the rows are as before")


def _kill_after_alter(env: Env, child: subprocess.Popen[str], statement: str) -> bool:
    """KILL QUERY the statement that begins with these words, once an ALTER TABLE has been seen. False if it was too fast."""
    altered = False
    with env.session() as watcher, watcher.cursor() as cursor:
        while child.poll() is None:
            cursor.execute("SELECT ID, INFO FROM information_schema.PROCESSLIST WHERE INFO NOT LIKE '%PROCESSLIST%'")
            for number, info in cursor.fetchall():
                altered = altered or info.startswith("ALTER TABLE")
                if altered and info.startswith(statement):
                    cursor.execute(f"KILL QUERY {number}")
                    return True
            time.sleep(0.002)
    return False


def scenario_killed_while_it_compares(env: Env) -> None:
    "A statement of the comparison is killed: the table is in InnoDB again, and the journal says so; also in a group."
    env.databases()
    env.run(
        "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(200), k INT, KEY (k))",
        "INSERT INTO big SELECT seq, REPEAT('v', 150), seq % 1000 FROM seq_1_to_80000",
    )
    rows, definitions = env.contents(), env.definitions()
    for grouped in (False, True):
        if grouped:
            env.run("CREATE TABLE small (k INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES big (id))")
            rows, definitions = env.contents(), env.definitions()
        for statement in ("CHECKSUM TABLE", "CHECK TABLE")[: 1 if env.ci else 2]:
            for _ in range(5):
                child = env.start("convert")
                killed = _kill_after_alter(env, child, statement)
                text = child.communicate(timeout=120)[0]
                if child.returncode == 1:
                    break
                env.tool("back", wanted=0)
            expect(killed and child.returncode == 1 and "not moved" in text, f"{statement} is killed", text)
            expect(set(env.tables().values()) == {"InnoDB"}, "everything is InnoDB again", text)
            expect("failed" in env.tool("status", wanted=1).text, "and status says so")
            same(rows, env.contents(), "the rows are as before")
            same(definitions, env.definitions(), "the definitions are as before")
            env.nothing_left()
    env.tool("convert", wanted=0)


def _fail(env: Env, cursor: object) -> None:
    """A transaction with a statement that writes many rows and then fails: none of them stays."""
    rows = ",".join(f"({n}, REPEAT('f', 150), 7)" for n in range(1_000_000, 1_000_200))
    cursor.execute("BEGIN")  # type: ignore[attr-defined]
    cursor.execute("UPDATE big SET v='w' WHERE id=2")  # type: ignore[attr-defined]
    try:
        cursor.execute(f"INSERT INTO big VALUES {rows}, (1, '', 1)")  # type: ignore[attr-defined]
    except Exception as e:
        expect(e.args[0] == 1062, "the last row is there already", e)
    cursor.execute("COMMIT")  # type: ignore[attr-defined]


def scenario_failed_statements_beside_the_copy(env: Env) -> None:
    "Rows of a statement that fails while a table is copied without verification are not in the copy."
    env.databases()
    env.run(
        "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(200), k INT)",
        "INSERT INTO big SELECT seq, REPEAT('v', 150), 1 FROM seq_1_to_80000",
    )
    for command, engine in (("convert", "FERRITE"), ("back", "InnoDB")):
        child = env.start(command, "--no-verify")
        with env.session(database=DATABASE) as writer, writer.cursor() as cursor:
            while child.poll() is None:
                _fail(env, cursor)
        text = child.communicate()[0]
        expect(child.returncode == 0 and env.tables()[DATABASE, "big"] == engine, "it is moved", text)
        found = env.run("SELECT COUNT(*) FROM big WHERE k=7")[0][0]
        expect(found == 0, f"{command}: rows of failed statements", found)


def _alters(env: Env) -> int:
    return int(env.run("SHOW GLOBAL STATUS LIKE 'Com_alter_table'")[0][1])


@slow
def scenario_copied_once(env: Env) -> None:
    "Without verification a table waits for a writer a second at a time, and for a reader at its end without being copied again."
    env.databases()
    # Large enough that a busy machine, too, is seen to copy it.
    env.run(
        "CREATE TABLE big (id INT PRIMARY KEY, v VARCHAR(200), k INT)",
        "INSERT INTO big SELECT seq, REPEAT('v', 150), 1 FROM seq_1_to_400000",
    )
    before = _alters(env)
    with env.session(database=DATABASE) as reader, reader.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM big WHERE id=1")
        child = env.start("convert", "--no-verify", "--lock-wait=1", "--lock-tries=60")
        time.sleep(12)
        expect(child.poll() is None, "it waits for the reader")
        reader.commit()
        text = child.communicate(timeout=60)[0]
        expect(child.returncode == 0 and env.tables()[DATABASE, "big"] == "FERRITE", "it is moved", text)
        expect(_alters(env) - before == 2, "one for the trial, one for the table", _alters(env) - before)
        cursor.execute("BEGIN")
        cursor.execute("SELECT * FROM big WHERE id=1")
        seen = env.tool("back", "--no-verify", "--lock-wait=1", "--lock-tries=3", wanted=1).text
        expect("hold locks" in seen and env.tables()[DATABASE, "big"] == "FERRITE", "it does not wait for ever", seen)
        reader.commit()
        cursor.execute("BEGIN")
        cursor.execute("UPDATE big SET k=2 WHERE id=1")
        child = env.start("back", "--no-verify", "--lock-wait=1", "--lock-tries=60")
        for n in range(5):
            time.sleep(0.7)
            found = env.error(f"SET STATEMENT lock_wait_timeout=10 FOR UPDATE big SET k=3 WHERE id={10 + n}")
            expect(found == 0, "other writers come in between", found)
        reader.commit()
        text = child.communicate(timeout=60)[0]
    expect(child.returncode == 0 and env.tables()[DATABASE, "big"] == "InnoDB", "it is back", text)
    expect(env.run("SELECT COUNT(*), SUM(k) FROM big") == [(400000, 400011)], "with all changes")


def scenario_one_trial_at_a_time(env: Env) -> None:
    "What check tries does not disturb a convert that plans, nor the other way round; beside one that moves, check runs."
    env.databases()
    env.make(["empty", "no_key"])
    with env.session() as other, other.cursor() as cursor:
        cursor.execute("SELECT GET_LOCK('ferrite_migrate', 0)")
        env.tool("check", wanted=0)
        cursor.execute("SELECT RELEASE_LOCK('ferrite_migrate')")
        cursor.execute("SELECT GET_LOCK('ferrite_migrate_trial', 0)")
        children = [env.start(x) for x in ("check", "convert", "check")]
        waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE='User lock'"
        wait_until(lambda: env.run(waiting)[0][0] == 3)
        cursor.execute("SELECT RELEASE_LOCK('ferrite_migrate_trial')")
        for child in children:
            text = child.communicate(timeout=60)[0]
            expect(child.returncode == 0 and "waiting for another" in text and "0 refused" in text, "as if alone", text)
    env.nothing_left()


@options("--server-id=2", "--log-bin=b", "--gtid-domain-id=9")
def scenario_replica_that_went_on(env: Env) -> None:
    "A replica that has applied changes to a frozen group, which fire no triggers, is finished in either direction, not compared."
    env.databases()
    for point, command in (("move.altered:2", ["convert", "--resume"]), ("move.dropped", ["back"])):
        env.run("DROP TABLE IF EXISTS grandchild, child, parent")
        env.make(GROUP)
        definitions = env.definitions()
        env.tool("convert", "--skip-log-bin", KILL=point, wanted=-signal.SIGKILL)
        # As row events do: rows change without the guards, and the position moves.
        env.run("SET foreign_key_checks=0", "TRUNCATE grandchild")
        seen = env.tool("convert", "--resume", "--skip-log-bin", wanted=2).text
        expect("other contents" in seen, "without replication that is a difference", seen)
        env.run(f"SET GLOBAL gtid_slave_pos='0-1-{7 + len(command)}'")
        seen = env.tool(*command, "--skip-log-bin", wanted=0).text
        expect("has applied changes" in seen and "not compared" in seen, "the reason is told", seen)
        engine = "FERRITE" if command[0] == "convert" else "InnoDB"
        expect(set(env.tables().values()) == {engine}, "it is finished", env.tables())
        env.nothing_left()
        expect(env.error("INSERT INTO grandchild VALUES (1, 100000, 'x')") == 1452, "the foreign keys are there")
    same(definitions, env.definitions(), "the definitions are as before")
