"""The program and the server are killed: no orphan gets in, nothing is lost, what was begun can be finished in either direction."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time

from ferrite_migrate.points import POINTS

from lib.server import ServerFailed
from migrate.env import DATABASE, Env, expect, same, uncounted

TABLES = ["parent", "child", "grandchild", "tree", "circle_a", "circle_b", "abroad", "counter"]
REFUSALS = (1451, 1452, 1644)
"""A foreign key refuses, or a guard does."""
ORPHANS = (
    "SELECT COUNT(*) FROM child c LEFT JOIN parent p ON p.id=c.p WHERE c.p IS NOT NULL AND p.id IS NULL",
    "SELECT COUNT(*) FROM grandchild g LEFT JOIN child c ON c.id=g.c WHERE g.c IS NOT NULL AND c.id IS NULL",
    "SELECT COUNT(*) FROM tree t LEFT JOIN tree u ON u.id=t.up WHERE t.up IS NOT NULL AND u.id IS NULL",
)


def _no_orphan_gets_in(env: Env, where: str) -> None:
    for sql in (
        "INSERT INTO child (p) VALUES (100000)",
        "REPLACE INTO tree VALUES (1000, 999)",
        "UPDATE grandchild SET c=100000 WHERE id=1",
        "DELETE FROM circle_a",
        "INSERT INTO abroad VALUES (7,7)",
    ):
        seen = env.error(sql)
        expect(seen in REFUSALS, f"killed at {where}: {sql} must be refused", seen)
    _no_orphans(env, where)


def _no_orphans(env: Env, where: str) -> None:
    for sql in ORPHANS:
        expect(env.run(sql)[0][0] == 0, f"killed at {where}: rows without a parent", sql)


def _finish(env: Env, command: str, where: str) -> None:
    env.tool(command, *(["--resume"] if command == "convert" else []), wanted=0)
    engine = "FERRITE" if command == "convert" else "InnoDB"
    expect(
        set(env.tables().values()) == {engine}, f"killed at {where}: everything is {engine} in the end", env.tables()
    )
    env.nothing_left()


def _killed(env: Env, points: list[str], server: bool) -> None:
    env.databases()
    env.make(TABLES)
    rows, definitions = env.contents(), env.definitions()
    for point in points:
        for command in ("convert", "back"):
            victim = str(env.server.pid) if server else ""
            where = f"{point} of {command}, {'the server' if server else 'the program'}"
            seen = env.tool(command, KILL=point, KILL_PID=victim)
            expect(seen.code == (2 if server else -signal.SIGKILL), f"it comes to {where}", seen.text)
            if server:
                expect("connection" in seen.text, "a message names the cause", seen.text)
                env.restart()
            _no_orphan_gets_in(env, where)
            if command == "convert" and point == "move.planned":
                env.tool("convert", "--resume", wanted=0)
            _finish(env, command, where)
            same(rows, env.contents(), f"{where}: the rows are as before")
    same(uncounted(definitions), uncounted(env.definitions()), "the definitions are as before")


def scenario_program_killed(env: Env) -> None:
    "`kill -9` of the program at each point, there and back."
    few = ["move.guard:4", "move.altered:3", "move.added", "move.unguard:5"]
    _killed(env, few if env.ci else [*POINTS, *few, "move.unguard:8", "move.done:2"], server=False)


def scenario_server_killed(env: Env) -> None:
    "`kill -9` of the server at each point, there and back."
    few = ["move.dropped", "move.added:2"]
    _killed(
        env,
        few if env.ci else [*[x for x in POINTS if x != "move.planned"], *few, "move.altered:3", "move.guard:5"],
        server=True,
    )


def scenario_turned_around(env: Env) -> None:
    "What was begun in one direction is finished in the other."
    env.databases()
    env.make(TABLES)
    rows, definitions = env.contents(), env.definitions()
    for point in ("move.altered:4", "move.verified:2")[: 1 if env.ci else 2]:
        env.tool("convert", KILL=point, wanted=-signal.SIGKILL)
        seen = env.tool("convert", wanted=2).text
        expect("--resume" in seen, "an unfinished run is not forgotten", seen)
        env.tool("forget", wanted=2)
        _finish(env, "back", f"{point}, turned around")
        same(rows, env.contents(), "the rows are as before")
        same(uncounted(definitions), uncounted(env.definitions()), "the definitions are as before")
    env.tool("convert", wanted=0)
    env.tool("back", KILL="move.altered:2", wanted=-signal.SIGKILL)
    env.tool("convert", "--resume", wanted=0)
    env.tool("back", wanted=0)
    same(uncounted(definitions), uncounted(env.definitions()), "the definitions are as before")


class Writers:
    """Clients that write one statement at a time and remember what was acknowledged."""

    def __init__(self, env: Env, clients: int = 3) -> None:
        self.env, self.ended = env, threading.Event()
        self.acknowledged = [0] * clients
        self.uncertain = [0] * clients
        self.unexpected: list[str] = []
        self.threads = [threading.Thread(target=self._work, args=(i,), daemon=True) for i in range(clients)]
        env.run(
            "CREATE TABLE tally (id INT PRIMARY KEY, n INT NOT NULL)",
            *[f"INSERT INTO tally VALUES ({i},0)" for i in range(clients)],
        )
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """And wait for them."""
        self.ended.set()
        for thread in self.threads:
            thread.join(60)

    def _work(self, number: int) -> None:
        rng = random.Random(number)
        while not self.ended.is_set():
            with (
                contextlib.suppress(Exception),
                self.env.session(database=DATABASE) as connection,
                connection.cursor() as cursor,
            ):
                while not self.ended.is_set():
                    self._write(cursor, number, rng)
            time.sleep(0.05)

    def _write(self, cursor: object, number: int, rng: random.Random) -> None:
        key = rng.randrange(1, 200)
        statements = [
            f"INSERT IGNORE INTO parent VALUES ({key}, {key}, 0)",
            f"INSERT INTO child (p, code) VALUES ({key}, {rng.randrange(1, 200)})",
            f"DELETE FROM parent WHERE id={key}",
            f"UPDATE parent SET n=n+1 WHERE id={key}",
            f"INSERT IGNORE INTO grandchild SELECT {rng.randrange(10**9)}, MAX(id), 'w' FROM child",
            f"UPDATE grandchild SET c=(SELECT MIN(id) FROM child) WHERE id={key}",
            f"INSERT IGNORE INTO tree VALUES ({key}, {rng.randrange(1, 200)})",
            f"DELETE FROM tree WHERE id={key} AND id>4",
        ]
        self._statement(cursor, rng.choice(statements))
        if self._statement(cursor, f"UPDATE tally SET n=n+1 WHERE id={number}", number):
            self.acknowledged[number] += 1

    def _statement(self, cursor: object, sql: str, number: int | None = None) -> bool:
        try:
            cursor.execute(sql)  # type: ignore[attr-defined]
            return True
        except Exception as e:
            code = e.args[0] if e.args else 0
            if code in (0, 2006, 2013):
                if number is not None:
                    self.uncertain[number] += 1
                raise
            if code not in (*REFUSALS, 1205, 1213, 1412, 1020, 1062):
                self.unexpected.append(f"{sql}: {e}")
            return False


def scenario_writers_and_deaths(env: Env) -> None:
    "Writers go on while tables are moved there and back, and the program and the server are killed at random moments."
    env.databases()
    env.make(TABLES)
    writers, rng = Writers(env), random.Random(5)
    try:
        for _ in range(env.rounds):
            for command in ("convert", "back"):
                child = env.start(
                    command,
                    *(["--resume"] if command == "convert" and env.tool("status").code else []),
                    "--lock-wait=1",
                )
                time.sleep(rng.random() * 2.5)
                if rng.random() < 0.3:
                    env.restart()
                if rng.random() < 0.7:
                    child.kill()
                text, _ = child.communicate(timeout=120)
                expect("Traceback" not in text, "the program does not die of its own fault", text)
                _no_orphans(env, command)
        env.tool("convert", "--resume", wanted=0)
        env.tool("convert", wanted=0)
        expect(set(env.tables().values()) == {"FERRITE"}, "everything is moved in the end", env.tables())
        time.sleep(0.5)
        env.tool("back", wanted=0)
    except ServerFailed as e:
        raise AssertionError(f"the server died: {e}") from e
    finally:
        writers.stop()
    expect(not writers.unexpected, "writers meet no other errors", writers.unexpected[:5])
    _no_orphans(env, "the end")
    env.nothing_left()
    for number, n in env.run("SELECT id, n FROM tally"):
        least, most = writers.acknowledged[number], writers.acknowledged[number] + writers.uncertain[number]
        expect(
            least <= n <= most, "what was acknowledged is there", f"{n}, acknowledged {least}, uncertain {most - least}"
        )
    expect(min(writers.acknowledged) > 10, "the writers did write", writers.acknowledged)
    for table in ("parent", "child", "tree"):
        expect(env.run(f"CHECK TABLE {table} EXTENDED")[0][3] == "OK", f"{table} is sound")
