"""There and back: every kind of table, compared with what it was."""

from __future__ import annotations

import contextlib
import subprocess

from ferrite_migrate.server import Login, Session

from migrate import kinds
from migrate.env import DATABASE, Env, expect, same, uncounted
from migrate.inputs import options


def scenario_every_kind_there_and_back(env: Env) -> None:
    "Tables of every kind are checked, converted, verified, used and brought back; rows and definitions are as before."
    env.databases()
    later = [] if env.server.places.version.startswith("10.") else list(kinds.MOVES_SINCE_11_8)
    env.make([*kinds.MOVES, *later, *kinds.REFUSED])
    env.run(*kinds.MORE)
    with env.session() as connection:
        collations = list(kinds.collation_tables(connection, every=not env.ci))
    env.run(*[sql for _, statements in collations for sql in statements])
    rows, definitions = env.contents(), env.definitions()

    seen = env.tool("check", wanted=1).text
    for table, (_, reason) in kinds.REFUSED.items():
        line = seen.split(f"{DATABASE}.{table}: ")[1].split("\n")[:2]
        expect(line[0].startswith("refused") and reason in line[1], f"{table} is refused for its reason", line)
    expect(f"{len(kinds.REFUSED)} refused" in seen, "nothing else is refused", seen)
    expect("bystander: left alone" in seen, "tables of other engines are named", seen)
    expect(env.definitions() == definitions, "check changes nothing")
    env.nothing_left()

    env.tool("convert", wanted=1)
    moved = {name: engine for name, engine in env.tables().items() if name[1] not in (*kinds.REFUSED, "bystander")}
    expect(set(moved.values()) == {"FERRITE"}, "everything that can be is moved", env.tool("status").text)
    same(rows, env.contents(), "the same rows")
    for name, definition in env.definitions().items():
        before, after = definitions[name], definition
        expect(
            _without_engine(before) == _without_engine(after), f"{name} has the same definition", f"{before}\n{after}"
        )
    env.nothing_left()
    _use(env)
    env.tool("check", wanted=1)
    rows = env.contents()
    env.tool("status", wanted=0)

    env.tool("back", wanted=0)
    same(uncounted(definitions), uncounted(env.definitions()), "the definitions are as before")
    same(rows, env.contents(), "and so are the rows")
    env.nothing_left()
    env.tool("forget", wanted=0)
    expect(not env.run("SHOW DATABASES LIKE 'ferrite\\_migrate%'"), "nothing is left")


def _without_engine(definition: object) -> str:
    text = repr(definition).replace("ENGINE = ", "ENGINE=").replace("ENGINE=InnoDB", "ENGINE=FERRITE")
    return text.replace(" /* ", " ").replace(" */", "")


def _use(env: Env) -> None:
    """Foreign keys, triggers, checks, counters and sequences work."""
    expect(env.error("INSERT INTO child (p) VALUES (100000)") == 1452, "a child needs a parent")
    expect(env.error("DELETE FROM circle_a") == 1451, "a parent is needed")
    expect(env.error("INSERT INTO texts (id) VALUES (-1)") == 4025, "a check is checked")
    env.run("INSERT INTO grandchild VALUES (1000, 200, 'a')")
    expect(env.run("SELECT note FROM grandchild WHERE id=1000")[0][0] == "a!", "a trigger fires")
    env.run(
        "INSERT INTO parent VALUES (500, 'x', 0)",
        "INSERT INTO child (p) VALUES (500)",
        "DELETE FROM parent WHERE id=500",
    )
    expect(env.run("SELECT COUNT(*) FROM child WHERE p=500")[0][0] == 0, "a delete cascades")
    env.run("INSERT INTO counter (v) VALUES (3)")
    expect(
        env.run("SELECT MAX(id) FROM counter")[0][0] == 1002, "the counter goes on", env.run("SELECT * FROM counter")
    )
    expect(env.run("SELECT NEXTVAL(sequence)")[0][0] == 15, "the sequence goes on")
    env.run("DELETE FROM counter WHERE v=3")


@options("--lc-messages=de_DE")
def scenario_language(env: Env) -> None:
    "A server whose messages are in another language."
    env.databases()
    env.make(["sequence", "parent", "child", "grandchild"])
    told = env.run("CHECK TABLE sequence")[-1][3]
    expect("doesn't support" not in told, "the server speaks English", told)
    for words, engine in ((["convert"], "FERRITE"), (["back"], "InnoDB")):
        env.tool(*words, wanted=0)
        expect(set(env.tables().values()) == {engine}, f"{words}: all are moved", env.tables())
    env.nothing_left()


def scenario_selection(env: Env) -> None:
    "What is named is moved, and no more; tables that foreign keys connect are named together."
    env.databases()
    env.make(["empty", "no_key", "parent", "child", "grandchild"])
    seen = env.tool("convert", f"--table={DATABASE}.child", wanted=1).text
    expect("connected by foreign keys with" in seen and "parent" in seen, "a part of a group is refused", seen)
    expect("FERRITE" not in env.tables().values(), "and nothing moved")
    env.tool("convert", f"--table={DATABASE}.empty", wanted=0)
    env.tool("convert", f"--table={DATABASE}.child", "--connected", wanted=0)
    engines = {name[1]: engine for name, engine in env.tables().items()}
    expect(
        [x for x, engine in engines.items() if engine == "InnoDB"] == ["no_key"],
        "what was not asked for stays",
        engines,
    )
    env.run("CREATE TABLE Empty LIKE no_key", "CREATE TABLE other LIKE no_key")
    env.tool("convert", f"--table={DATABASE}.empty", f"--table={DATABASE}.other", wanted=0)
    engines = {name[1]: engine for name, engine in env.tables().items()}
    expect(engines["Empty"] == "InnoDB", "nor what is written otherwise", engines)
    env.run("DROP TABLE Empty, other")
    env.tool("back", f"--table={DATABASE}.parent", wanted=1)
    env.tool("back", f"--table={DATABASE}.parent", "--connected", wanted=0)
    engines = {name[1]: engine for name, engine in env.tables().items()}
    expect([x for x, engine in engines.items() if engine == "FERRITE"] == ["empty"], "back as asked", engines)
    for words, told in (
        (["--database=nowhere"], "no database nowhere"),
        (["--table=mig.nothing"], "no table mig.nothing"),
        (["--table=mysql.user"], "belongs to the server"),
        (["--database=mysql"], "of the server itself"),
        (["--table=x"], "DATABASE.TABLE"),
    ):
        seen = env.tool("convert", *words, wanted=2).text
        expect(told in seen, "the message names what is wrong", seen)
    env.tool("back", wanted=0)


def scenario_changed_between(env: Env) -> None:
    "Users change tables after the conversion; the way back keeps what they have done."
    env.databases()
    env.make(["parent", "child", "compressed"])
    env.tool("convert", wanted=0)
    env.run("ALTER TABLE compressed ADD COLUMN more INT DEFAULT 5, ROW_FORMAT=DEFAULT, KEY_BLOCK_SIZE=0")
    env.run(
        "ALTER TABLE child DROP FOREIGN KEY fk_p",
        "ALTER TABLE child ADD CONSTRAINT fk_new FOREIGN KEY (p) REFERENCES parent (id)",
    )
    env.tool("back", "--no-verify", wanted=0)
    made = str(env.run("SHOW CREATE TABLE compressed")[0][1])
    expect(
        "`more`" in made and "ROW_FORMAT=COMPRESSED" in made and "KEY_BLOCK_SIZE=8" in made,
        "a column stays, lost options return",
        made,
    )
    made = str(env.run("SHOW CREATE TABLE child")[0][1])
    expect("fk_new" in made and "fk_p" not in made and "ENGINE=InnoDB" in made, "new foreign keys stay", made)


def scenario_dump(env: Env) -> None:
    "The definitions of a dump are looked at, its rows are not."
    env.databases()
    env.make([*kinds.MOVES, *kinds.REFUSED])
    env.run(*kinds.MORE)
    program = env.server.places.program("mariadb-dump")
    dumped = subprocess.run(
        [
            program,
            "--no-defaults",
            f"--socket={env.server.socket}",
            "--user=root",
            "--triggers",
            "--databases",
            DATABASE,
            kinds.OTHER,
        ],
        env=env.server.places.child_env(),
        capture_output=True,
        check=True,
    ).stdout
    file = env.server.home / "dump.sql"
    file.write_bytes(dumped)
    env.run(f"DROP DATABASE `{DATABASE}`", f"DROP DATABASE `{kinds.OTHER}`", database=None)
    seen = env.tool("check", f"--dump={file}", wanted=1).text
    for table in kinds.REFUSED:
        expect(f"{DATABASE}.{table}: refused" in seen, f"{table} is refused", seen)
    expect(f"{len(kinds.REFUSED)} refused" in seen and "cannot be loaded" not in seen, "nothing else is", seen)
    expect(seen.count("can be moved") > 20, "the others are not", seen)
    env.databases()


ZONED = (
    "CREATE TABLE zoned (id INT PRIMARY KEY, ts TIMESTAMP NULL, s DATE AS (DATE(ts)) STORED, v DATE AS (DATE(ts)) VIRTUAL, "
    "t TIMESTAMP AS (dt) STORED, dt DATETIME, KEY (v))",
    "INSERT INTO zoned (id, ts, dt) SELECT seq, TIMESTAMP'2026-03-01 00:30:00' + INTERVAL seq HOUR, '2026-03-01 00:30:00' FROM seq_1_to_48",
)
"""Columns that are computed from a TIMESTAMP, or to one, and differ where the time zone does."""


@options("--default-time-zone=+02:00")
def scenario_time_zone(env: Env) -> None:
    "Generated columns that depend on the time zone keep their values, also in indexes, and check warns of them."
    env.databases()
    env.run(*ZONED)
    rows, definitions = env.contents(), env.definitions()
    seen = env.tool("check", wanted=0).text
    expect("`s`, `v`, `t`: computed anew" in seen, "check warns", seen)
    for words in (["convert"], ["back"], ["convert", "--no-verify"], ["back", "--no-verify"]):
        env.tool(*words, wanted=0)
        same(rows, env.contents(), f"{words}: the same values")
        found = env.run("SELECT COUNT(*) FROM zoned FORCE INDEX (v) WHERE v='2026-03-02'")[0][0]
        expect(found == 24, f"{words}: the index has the values of the rows", found)
        checked = env.run("CHECK TABLE zoned EXTENDED")
        expect(checked[-1][3] == "OK", f"{words}: CHECK TABLE", checked)
    same(definitions, env.definitions(), "the definitions are as before")


@options("--ferrite-replace-engines=ON")
def scenario_enforced_engine(env: Env) -> None:
    "ferrite_replace_engines, for as long as an engine is enforced, takes the mode from a session that refuses another engine."
    env.databases()
    env.run("SET GLOBAL enforce_storage_engine=FERRITE")
    try:
        session = Session(Login(socket=env.server.socket, user="root"))
        with contextlib.closing(session.connection):
            mode = session.value("SELECT @@sql_mode")
            expect("NO_ENGINE_SUBSTITUTION" in mode, "the program has an engine replaced in silence", mode)
    finally:
        env.run("SET GLOBAL enforce_storage_engine=NULL")


def scenario_stored_columns(env: Env) -> None:
    "The checksum covers stored generated columns by their values, not by what an earlier statement has left in the record."
    env.databases()
    made = ZONED[0].replace("v DATE AS (DATE(ts)) VIRTUAL, ", "").replace(", KEY (v)", "")
    env.run(made, ZONED[1], "SELECT SUM(t), SUM(s) FROM zoned")
    rows = env.contents()
    for words in ("convert", "back", "convert"):
        env.tool(words, wanted=0)
        same(rows, env.contents(), f"{words}: the same values")
        env.run("SELECT SUM(t), SUM(s) FROM zoned WHERE id < 20")
