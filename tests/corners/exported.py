"""Tables that travel: FLUSH TABLES ... FOR EXPORT, DISCARD TABLESPACE, IMPORT TABLESPACE."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from corners.env import DATABASE, Env, Session, equal, expect, options

ROWS = 2000
TABLES = {
    "plain": (
        "id INT AUTO_INCREMENT PRIMARY KEY, k INT, u VARCHAR(40) NOT NULL, KEY k (k, u(5)), UNIQUE KEY u (u)",
        "SELECT seq, IF(seq % 7, seq % 50, NULL), CONCAT('u', seq)",
    ),
    "values": (
        "id INT PRIMARY KEY, b LONGBLOB, t TEXT, KEY t (t(20))",
        "SELECT seq, IF(seq % 40, 'short', REPEAT(MD5(seq), IF(seq = 80, 60000, 900))), REPEAT(CHAR(65 + seq % 26), seq)",
    ),
    "no_key": (
        "a INT, b VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci, KEY b (b)",
        "SELECT seq % 9, CONCAT('é', seq % 100)",
    ),
    "computed": (
        "id INT PRIMARY KEY, a INT, d INT AS (a * 2) VIRTUAL, s INT AS (a + 1) STORED, KEY d (d), KEY s (s)",
        None,
    ),
    "descending": ("a INT, b DECIMAL(8,2), c DATETIME(3), PRIMARY KEY (a DESC, b), KEY c (c DESC)", None),
    "packed": ("id INT PRIMARY KEY, t VARCHAR(200), KEY t (t)", None),
}
OPTIONS_OF = {"packed": " COMPRESSION='zstd'"}
OTHER_ROWS = {
    "computed": "INSERT INTO t (id, a) SELECT seq, seq % 100 FROM seq_1_to_2000",
    "descending": "INSERT INTO t SELECT seq % 30, seq / 4, FROM_UNIXTIME(1e9 + seq) FROM seq_1_to_2000",
    "packed": "INSERT INTO t SELECT seq, REPEAT('abc', seq % 60) FROM seq_1_to_2000",
}


def _place(env: Env, table: str, database: str = DATABASE) -> Path:
    return env.datadir / database / f"{table}.ferrite"


def _make(session: Session, name: str, table: str = "t", empty: bool = False) -> None:
    columns, rows = TABLES[name]
    session.run(f"CREATE TABLE {table} ({columns}) ENGINE=FERRITE{OPTIONS_OF.get(name, '')}")
    if empty:
        return
    session.run(OTHER_ROWS.get(name, f"INSERT INTO t {rows} FROM seq_1_to_{ROWS}"))


def _export(env: Env, session: Session, table: str = "t") -> Path:
    """A copy of the table's file."""
    session.run(f"FLUSH TABLES {table} FOR EXPORT")
    file = _place(env, table)
    copy = env.server.home / f"copy-{table}.ferrite"
    shutil.copy(file, copy)
    session.run("UNLOCK TABLES")
    expect(not file.exists(), "UNLOCK TABLES leaves the file", file)
    return copy


def _sound(session: Session, table: str) -> None:
    answer = session.run(f"CHECK TABLE {table} EXTENDED")
    equal([row[2:] for row in answer], [("status", "OK")], f"CHECK TABLE {table}")


def _contents(session: Session, table: str) -> object:
    return session.run(f"CHECKSUM TABLE {table} EXTENDED")[0][1], session.run(f"SELECT COUNT(*) FROM {table}")


def scenario_there_and_back(env: Env) -> None:
    """Tables of every kind come along whole, survive a crash, and go on as they were."""
    for name in TABLES:
        env.fresh_database()
        session = env.session()
        _make(session, name)
        columns = [row[0] for row in session.run("SHOW COLUMNS FROM t")]
        rows = sorted(session.run("SELECT * FROM t"), key=repr)
        copy = _export(env, session)
        session.run("RENAME TABLE t TO t_old")
        session.run("CREATE TABLE t LIKE t_old")
        if name == "plain":
            session.run("ALTER TABLE t AUTO_INCREMENT=1")
        session.run("ALTER TABLE t DISCARD TABLESPACE")
        shutil.copy(copy, _place(env, "t"))
        session.run("ALTER TABLE t IMPORT TABLESPACE")
        expect(not _place(env, "t").exists(), "IMPORT leaves the file")
        equal(sorted(session.run("SELECT * FROM t"), key=repr), rows, name)
        for key in {row[2] for row in session.run("SHOW INDEX FROM t")}:
            found = sorted(session.run(f"SELECT * FROM t FORCE INDEX (`{key}`)"), key=repr)
            equal(found, rows, f"{name} by {key}")
        _sound(session, "t")
        if name != "computed":
            equal(_contents(session, "t"), _contents(session, "t_old"), name)
        session.run(f"UPDATE t SET {columns[1]} = {columns[1]} LIMIT 10")
        session.run("DELETE FROM t LIMIT 100")
        if name == "plain":
            session.run("INSERT INTO t (u) VALUES ('new')")
            equal(
                session.value("SELECT MAX(id) FROM t"), session.value("SELECT MAX(id) + 1 FROM t_old"), "AUTO_INCREMENT"
            )
        count = session.value("SELECT COUNT(*) FROM t")
        env.crash()
        session = env.session()
        equal(session.value("SELECT COUNT(*) FROM t"), count, f"{name} after a crash")
        _sound(session, "t")


def scenario_while_it_is_exported(env: Env) -> None:
    """Readers go on and writers wait; the file goes with the locks, also when the client goes."""
    session, other = env.session(), env.session()
    _make(session, "plain")
    session.run("CREATE TABLE second (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("FLUSH TABLES t, second FOR EXPORT")
    notes = [row[2] for row in session.warnings()]
    expect(len(notes) == 2 and all("exported to" in text for text in notes), "a note for each table", notes)
    equal(other.value("SELECT COUNT(*) FROM t"), ROWS, "a reader")
    equal(session.value("SELECT COUNT(*) FROM t"), ROWS, "its own reader")
    writer = other.start("UPDATE t SET k=1 WHERE id=5")
    expect(writer.waits(), "a writer does not wait")
    expect(_place(env, "t").exists() and _place(env, "second").exists(), "no files")
    session.close()
    equal(writer.answer(), [], "the writer")
    env.eventually("the files go", lambda: not _place(env, "t").exists() and not _place(env, "second").exists())
    # One of the two cannot be exported: neither is.
    _place(env, "second").write_text("somebody's", encoding="ascii")
    session = env.session()
    equal(session.error("FLUSH TABLES t, second FOR EXPORT"), 1086, "a file that is there")
    expect(not _place(env, "t").exists(), "the first table's file stays")
    equal(_place(env, "second").read_text(encoding="ascii"), "somebody's", "the file that was there")
    equal(other.error("UPDATE t SET k=2 WHERE id=5"), 0, "a writer afterwards")
    _place(env, "second").unlink()
    equal(session.error("FLUSH TABLES t WITH READ LOCK"), 0, "WITH READ LOCK")
    expect(not _place(env, "t").exists(), "WITH READ LOCK exports")


def scenario_refused(env: Env) -> None:
    """What cannot be imported is refused with the reason, and the table stays as it was."""
    session = env.session()
    _make(session, "plain")
    copy = _export(env, session)
    importing = "ALTER TABLE t IMPORT TABLESPACE"
    equal(session.error(importing), 1813, "a table with rows")
    session.run("ALTER TABLE t DISCARD TABLESPACE")
    equal(session.value("SELECT COUNT(*) FROM t"), 0, "discarded")
    equal(session.error(importing), 1017, "no file")
    for change in (
        "MODIFY k BIGINT",
        "DROP KEY k",
        "DROP KEY u, ADD KEY u (u)",
        "ADD COLUMN z INT",
        "MODIFY u VARCHAR(40)",
    ):
        session.run("CREATE OR REPLACE TABLE other LIKE t")
        session.run(f"ALTER TABLE other {change}")
        shutil.copy(copy, _place(env, "other"))
        equal(session.error("ALTER TABLE other IMPORT TABLESPACE"), 1808, change)
        expect(_place(env, "other").exists(), "the file goes though it was not imported")
    damaged = bytearray(copy.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    _place(env, "t").write_bytes(damaged)
    equal(session.error(importing), 1034, "a damaged file")
    _place(env, "t").write_bytes(copy.read_bytes()[:-3])
    equal(session.error(importing), 1034, "a file that is cut off")
    _place(env, "t").write_bytes(b"")
    equal(session.error(importing), 1034, "an empty file")
    equal(session.value("SELECT COUNT(*) FROM t"), 0, "after damaged files")
    # Files left over are no obstacle to DROP DATABASE.
    session.run("CREATE DATABASE d2")
    _place(env, "x", "d2").write_text("left", encoding="ascii")
    (env.datadir / "d2" / "y.ferrite.part").write_text("left", encoding="ascii")
    session.run("DROP DATABASE d2")
    session.run("CREATE TEMPORARY TABLE tmp (a INT PRIMARY KEY) ENGINE=FERRITE")
    equal(session.error("ALTER TABLE tmp DISCARD TABLESPACE"), 3007, "a temporary table")
    equal(session.error("ALTER TABLE tmp IMPORT TABLESPACE"), 3007, "a temporary table")
    session.run("CREATE SEQUENCE s ENGINE=FERRITE")
    equal(session.error("ALTER TABLE s IMPORT TABLESPACE"), 1846, "a sequence")
    shutil.copy(copy, _place(env, "t"))
    session.run(importing)
    equal(session.value("SELECT COUNT(*) FROM t"), ROWS, "after all")
    _sound(session, "t")


def scenario_foreign_keys(env: Env) -> None:
    """Rows that come in unchecked need foreign_key_checks=0, of a child and of a parent."""
    session = env.session()
    session.run("CREATE TABLE p (id INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id)) ENGINE=FERRITE")
    session.run("INSERT INTO p VALUES (1), (2)")
    session.run("INSERT INTO c VALUES (1, 1), (2, 2)")
    copies = {table: _export(env, session, table) for table in ("p", "c")}
    for table in ("p", "c"):
        equal(session.error(f"ALTER TABLE {table} DISCARD TABLESPACE"), 1846, f"DISCARD of {table}")
        equal(session.error(f"ALTER TABLE {table} IMPORT TABLESPACE"), 1846, f"IMPORT of {table}")
    session.run("SET foreign_key_checks=0")
    for table in ("c", "p"):
        session.run(f"ALTER TABLE {table} DISCARD TABLESPACE")
        shutil.copy(copies[table], _place(env, table))
        session.run(f"ALTER TABLE {table} IMPORT TABLESPACE")
    session.run("SET foreign_key_checks=1")
    equal(session.error("DELETE FROM p WHERE id=1"), 1451, "a parent in use")
    equal(session.error("INSERT INTO c VALUES (3, 3)"), 1452, "an orphan")
    _sound(session, "c")


def scenario_beside_others(env: Env) -> None:
    """Prepared transactions and old snapshots beside an export and an import."""
    session, prepared = env.session(), env.session()
    _make(session, "plain")
    prepared.run("XA START 'x'")
    prepared.run("DELETE FROM t WHERE id <= 10")
    prepared.run("XA END 'x'")
    prepared.run("XA PREPARE 'x'")
    env.crash()
    session = env.session()
    copy = _export(env, session)
    session.run("SET innodb_lock_wait_timeout=1, ferrite_lock_wait_timeout=1")
    equal(session.error("ALTER TABLE t DISCARD TABLESPACE"), 1205, "a prepared transaction has changed it")
    session.run("XA COMMIT 'x'")
    equal(session.value("SELECT COUNT(*) FROM t"), ROWS - 10, "the prepared transaction")
    session.run("ALTER TABLE t DISCARD TABLESPACE")
    old = env.session()
    old.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    shutil.copy(copy, _place(env, "t"))
    session.run("ALTER TABLE t IMPORT TABLESPACE")
    equal(session.value("SELECT COUNT(*) FROM t"), ROWS, "the state before the prepared transaction")
    equal(old.error("SELECT COUNT(*) FROM t"), 1412, "an older snapshot")
    old.run("COMMIT")
    equal(old.value("SELECT COUNT(*) FROM t"), ROWS, "a newer one")
    for level in ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        session.run("SET autocommit=0")
        session.run("FLUSH TABLES t FOR EXPORT")
        equal(_place(env, "t").stat().st_size, copy.stat().st_size, level)
        session.run("UNLOCK TABLES")
        session.run("COMMIT")
    prepared = env.session()
    session.run("DELETE FROM t")
    session.run("COMMIT")
    prepared.run("XA START 'y'")
    prepared.run("INSERT INTO t (u) VALUES ('prepared')")
    prepared.run("XA END 'y'")
    prepared.run("XA PREPARE 'y'")
    env.crash()
    session = env.session()
    session.run("SET innodb_lock_wait_timeout=1, ferrite_lock_wait_timeout=1")
    shutil.copy(copy, _place(env, "t"))
    equal(session.error("ALTER TABLE t IMPORT TABLESPACE"), 1205, "rows of a prepared transaction")
    session.run("XA ROLLBACK 'y'")
    session.run("ALTER TABLE t IMPORT TABLESPACE")
    _sound(session, "t")


def scenario_killed(env: Env) -> None:
    """KILL and kill -9 while a file is written or read."""
    session, other = env.session(), env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a CHAR(100), KEY a (a)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, MD5(seq) FROM seq_1_to_200000")
    sizes = []
    for statement in ("FLUSH TABLES t FOR EXPORT", "ALTER TABLE t IMPORT TABLESPACE"):
        for wait_ms in (1, 20, 60, 150):
            running = session.start(statement)
            running.waits(wait_ms / 1000)
            other.run(f"KILL QUERY {session.id}")
            answer = running.answer()
            expect(answer in ([], 1317), f"{statement} after KILL", answer)
            if statement.startswith("FLUSH"):
                expect(_place(env, "t").exists() == (answer == []), "the file", answer)
                session.answer("UNLOCK TABLES")
                continue
            equal(session.value("SELECT COUNT(*) FROM t"), 200000 if answer == [] else 0, f"rows after {answer}")
            session.run("ALTER TABLE t DISCARD TABLESPACE")
            _place(env, "t").write_bytes(sizes[0])
        if statement.startswith("FLUSH"):
            copy = _export(env, session)
            sizes.append(copy.read_bytes())
            session.run("ALTER TABLE t DISCARD TABLESPACE")
            shutil.copy(copy, _place(env, "t"))
    for wait_ms in (20, 200, 400):
        running = session.start("ALTER TABLE t IMPORT TABLESPACE")
        running.waits(wait_ms / 1000)
        env.crash()
        session = env.session()
        expect(session.value("SELECT COUNT(*) FROM t") in (0, 200000), "half a table")
        _sound(session, "t")
        session.run("ALTER TABLE t DISCARD TABLESPACE")
        _place(env, "t").write_bytes(sizes[0])
    session.run("ALTER TABLE t IMPORT TABLESPACE")
    running = session.start("FLUSH TABLES t FOR EXPORT")
    running.waits(0.1)
    env.crash()
    session = env.session()
    _place(env, "t").unlink(missing_ok=True)
    _export(env, session)


def scenario_partitions(env: Env) -> None:
    """Each partition is a file; one comes back by EXCHANGE PARTITION."""
    session = env.session()
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    session.run(f"CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY a (a)) ENGINE=FERRITE {parts}")
    session.run("INSERT INTO t SELECT seq, seq % 10 FROM seq_1_to_300")
    session.run("FLUSH TABLES t FOR EXPORT")
    copy = env.server.home / "copy-p1.ferrite"
    shutil.copy(_place(env, "t#P#p1"), copy)
    expect(_place(env, "t#P#p0").exists(), "the other partition's file")
    session.run("UNLOCK TABLES")
    expect(not _place(env, "t#P#p0").exists() and not _place(env, "t#P#p1").exists(), "the files stay")
    expect(session.error("ALTER TABLE t DISCARD TABLESPACE") != 0, "DISCARD of a partitioned table")
    session.run("DELETE FROM t WHERE id >= 100")
    session.run("CREATE TABLE one LIKE t")
    session.run("ALTER TABLE one REMOVE PARTITIONING")
    shutil.copy(copy, _place(env, "one"))
    session.run("ALTER TABLE one IMPORT TABLESPACE")
    session.run("ALTER TABLE t EXCHANGE PARTITION p1 WITH TABLE one")
    equal(session.run("SELECT COUNT(*), SUM(a) FROM t"), [(300, 1350)], "the table")
    _sound(session, "t")


@options("--log-bin", "--binlog-format=ROW", "--ferrite-buffer-pool-size=16M")
def scenario_binary_log(env: Env) -> None:
    """The statements are in the binary log; a table larger than the buffer pool goes through."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, a CHAR(200), b TEXT) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, MD5(seq), IF(seq % 100, '', REPEAT('x', 30000)) FROM seq_1_to_100000")
    before = _contents(session, "t")
    copy = _export(env, session)
    session.run("ALTER TABLE t DISCARD TABLESPACE")
    shutil.copy(copy, _place(env, "t"))
    session.run("ALTER TABLE t IMPORT TABLESPACE")
    equal(_contents(session, "t"), before, "the table")
    events = [str(row[5]) for row in session.run("SHOW BINLOG EVENTS")]
    for word in ("DISCARD", "IMPORT"):
        expect(any(f"{word} TABLESPACE" in text for text in events), f"{word} is not in the binary log")
    _sound(session, "t")


ALIKE = (
    ("FLOAT", "INT"),
    ("INT", "INT UNSIGNED"),
    ("INT", "TIMESTAMP NULL"),
    ("BIGINT", "DOUBLE"),
    ("BIGINT", "DATETIME(6)"),
    ("DECIMAL(9,2)", "DECIMAL(9,1)"),
    ("VARCHAR(50)", "VARCHAR(40)"),
    ("BLOB COMPRESSED", "BLOB"),
    ("LONGBLOB", "GEOMETRY"),
    ("ENUM('a','b')", "ENUM('b','a')"),
    ("SET('a','b','c')", "SET('a','b')"),
    ("INT AS (id * 2) VIRTUAL", "INT AS (id * 3) VIRTUAL"),
    ("INT AS (id * 2) STORED", "INT AS (id * 3) STORED"),
    ("INET6", "UUID"),
)
"""Columns that lie in a row in the same way, and mean something else."""


def scenario_alike(env: Env) -> None:
    """What lies in a row in the same way, but means something else, is refused, and the error names the column."""
    session = env.session()
    for theirs, ours in ALIKE:
        session.run(f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, c {theirs}) ENGINE=FERRITE")
        session.run("INSERT INTO t (id) VALUES (1), (2)")
        copy = _export(env, session)
        session.run(f"CREATE OR REPLACE TABLE other (id INT PRIMARY KEY, c {ours}) ENGINE=FERRITE")
        shutil.copy(copy, _place(env, "other"))
        equal(session.error("ALTER TABLE other IMPORT TABLESPACE"), 1808, f"{theirs} as {ours}")
        text = session.run("SHOW WARNINGS")[0][2]
        expect("has the column `c`" in text, "the column is not named", text)
    session.run("CREATE OR REPLACE TABLE other (id INT PRIMARY KEY, d INET6) ENGINE=FERRITE")
    shutil.copy(copy, _place(env, "other"))
    equal(session.error("ALTER TABLE other IMPORT TABLESPACE"), 1808, "another name")


def scenario_sessions_that_print_otherwise(env: Env) -> None:
    """A file fits its table whatever sql_mode and sql_quote_show_create of the two sessions are."""
    columns = "id INT PRIMARY KEY, `a b` INT, c INT AS (`a b` + id) STORED, d VARCHAR(20) AS (CONCAT('x', id)) VIRTUAL, t DATETIME, e ENUM('a','b')"
    modes = ("''", "'ANSI_QUOTES'", "'ORACLE'", "'NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'", "'MSSQL'")
    sessions = []
    for mode, quotes in zip(modes, (1, 1, 0, 1, 0), strict=True):
        session = env.session()
        session.run(f"SET sql_mode={mode}, sql_quote_show_create={quotes}")
        sessions.append((f"{mode}, {quotes}", session))
    plain = env.session()
    plain.run(f"CREATE TABLE t ({columns}) ENGINE=FERRITE")
    plain.run("INSERT INTO t (id, `a b`, t) SELECT seq, seq, NOW() FROM seq_1_to_9")
    plain.run("CREATE TABLE o LIKE t")
    for theirs, exporter in sessions:
        copy = _export(env, exporter)
        for ours, importer in sessions:
            shutil.copy(copy, _place(env, "o"))
            equal(importer.error("ALTER TABLE o IMPORT TABLESPACE"), 0, f"{theirs} into {ours}")
            equal(importer.value("SELECT @@sql_quote_show_create"), int(ours[-1]), "the setting afterwards")
            equal(_contents(plain, "o"), _contents(plain, "t"), "rows")
            plain.run("TRUNCATE o")
        said = exporter.value("SELECT @@sql_mode")
        expect(("ANSI_QUOTES" in said) == (theirs[1] in "AOM"), "sql_mode afterwards", said)


def scenario_named_twice(env: Env) -> None:
    """A table that comes into the statement more than once is exported once."""
    session = env.session()
    _make(session, "plain")
    session.run("CREATE VIEW v1 AS SELECT * FROM t")
    session.run("CREATE VIEW v2 AS SELECT a.id FROM t a JOIN t b ON a.id = b.k")
    file = _place(env, "t")
    for names in ("t, v1", "v1, v2", "v2"):
        session.run(f"FLUSH TABLES {names} FOR EXPORT")
        expect(file.exists(), "no file", names)
        session.run("UNLOCK TABLES")
        expect(not file.exists(), "UNLOCK TABLES leaves the file", names)
    _export(env, session)


def scenario_odd_files(env: Env) -> None:
    """What is no file is refused at once; a file goes with its table; long names."""
    session = env.session()
    session.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY) ENGINE=FERRITE AUTO_INCREMENT=5000")
    session.run("CREATE TABLE small LIKE t")
    session.run("ALTER TABLE small AUTO_INCREMENT=7")
    session.run("INSERT INTO small VALUES (3)")
    copy = _export(env, session, "small")
    file = _place(env, "t")
    os.mkfifo(file)
    equal(session.error("ALTER TABLE t IMPORT TABLESPACE"), 1296, "a pipe")
    file.unlink()
    file.mkdir()
    equal(session.error("ALTER TABLE t IMPORT TABLESPACE"), 1296, "a directory")
    file.rmdir()
    file.symlink_to("nowhere")
    equal(session.error("FLUSH TABLES t FOR EXPORT"), 1086, "a link in the way")
    file.unlink()
    file.write_bytes(copy.read_bytes() + b"more")
    equal(session.error("ALTER TABLE t IMPORT TABLESPACE"), 1034, "more than a file")
    shutil.copy(copy, file)
    session.run("ALTER TABLE t IMPORT TABLESPACE")
    session.run("INSERT INTO t VALUES (NULL)")
    equal(session.value("SELECT MAX(id) FROM t"), 5000, "the next value")
    shutil.copy(copy, file)
    session.run("DROP TABLE t")
    expect(not file.exists(), "DROP TABLE leaves what would be the next table's", file)
    session.run("CREATE SEQUENCE s ENGINE=FERRITE")
    equal(session.error("FLUSH TABLES s FOR EXPORT"), 1031, "a sequence")
    for length, wanted in ((49, None), (50, 1059)):
        name = "日" * length
        session.run(f"CREATE TABLE {name} (id INT PRIMARY KEY) ENGINE=FERRITE")
        if wanted:
            equal(session.error(f"FLUSH TABLES {name} FOR EXPORT"), wanted, f"{length} characters")
            equal(session.error(f"ALTER TABLE {name} IMPORT TABLESPACE"), wanted, f"{length} characters")
        else:
            session.run(f"FLUSH TABLES {name} FOR EXPORT")
            session.run("UNLOCK TABLES")
    session.run("CREATE TABLE slow (id INT PRIMARY KEY, t TEXT) ENGINE=FERRITE")
    session.run("INSERT INTO slow SELECT seq, REPEAT('x', 400) FROM seq_1_to_200000")
    session.run("SET max_statement_time=0.01")
    equal(session.error("FLUSH TABLES slow FOR EXPORT"), 1969, "max_statement_time")
    session.run("SET max_statement_time=0")
    expect(not list((env.datadir / DATABASE).glob("*.part")), "a piece of a file is left", "")


def _crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _sum_again(file: bytearray, block: int, size: int) -> None:
    """The block's checksum is right."""
    sum_of = _crc32c(bytes(file[block : block + 8]) + bytes(file[block + 12 : block + 12 + size]))
    file[block + 8 : block + 12] = sum_of.to_bytes(4, "little")


def _damaged(copy: bytes, every: int = 1) -> Iterator[tuple[int, bytes]]:
    """Copies with one byte of their entries changed, or of every so many, and checksums that are right; and where."""
    at, places = 0, []
    while at < len(copy):
        kind, size = copy[at], int.from_bytes(copy[at + 4 : at + 8], "little")
        if kind == 2:
            places += [(at, at + 12 + n, size) for n in range(size)]
        at += 12 + size
    for block, place, size in places[::every]:
        damaged = bytearray(copy)
        damaged[place] ^= 0xF1
        _sum_again(damaged, block, size)
        yield place, bytes(damaged)


def scenario_check_finds_wrong_entries(env: Env) -> None:
    """Indexes and rows that do not agree: CHECK TABLE, which compares sums, finds what EXTENDED finds entry by entry."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, v INT, u VARCHAR(9), KEY kv (v), KEY ku (u(4), v)) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq * 1000, CONCAT('u', seq) FROM seq_1_to_5")
    verdicts = {True: 0, False: 0}
    for place, file in _damaged(_export(env, session).read_bytes()):
        session.run("CREATE OR REPLACE TABLE o LIKE t")
        _place(env, "o").write_bytes(file)
        if session.error("ALTER TABLE o IMPORT TABLESPACE"):
            continue
        answers = [session.answer(f"CHECK TABLE o {how}") for how in ("", "EXTENDED")]
        expect(all(isinstance(answer, list) for answer in answers), f"byte {place}: no verdict", answers)
        whole, extended = ([row[2:] for row in answer] for answer in answers if isinstance(answer, list))
        equal(whole, extended, f"byte {place}: what CHECK TABLE says")
        verdicts[extended[-1][1] == "OK"] += 1
    expect(verdicts[False] > 10, "few wrong entries came in", verdicts)


def scenario_wrong_rows(env: Env) -> None:
    """A file whose checksums are right and whose rows are not: an error at most, when they are read or changed."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, v INT, u VARCHAR(30), b BLOB) ENGINE=FERRITE")
    session.run("INSERT INTO t SELECT seq, seq, CONCAT('u', seq), REPEAT('q', seq * 300) FROM seq_1_to_6")
    taken = 0
    # Most bytes are those of the values.
    for place, damaged in _damaged(_export(env, session).read_bytes(), every=5):
        session.run("CREATE OR REPLACE TABLE o LIKE t")
        _place(env, "o").write_bytes(damaged)
        if session.error("ALTER TABLE o IMPORT TABLESPACE"):
            continue
        taken += 1
        for statement in (
            "UPDATE o SET v = v + 1",
            "SELECT id, HEX(u), HEX(b) FROM o",
            "UPDATE o SET b = 'x'",
            "DELETE FROM o",
        ):
            expect(session.error(statement) in (0, 1034, 1296), "another error", f"{statement} at {place}")
    expect(taken > 20, "few files were taken", taken)
    session.run("SELECT 1")


def scenario_values_that_overlap(env: Env) -> None:
    """A file whose rows have the same bytes for many values: reading one wrote behind the memory that it had for all of them."""
    session = env.session()
    columns, longest = 300, 5000
    definition = ", ".join(f"b{n} LONGBLOB" for n in range(columns))
    session.run(f"CREATE TABLE t (id INT PRIMARY KEY, {definition}) ENGINE=FERRITE")
    session.run(f"INSERT INTO t (id, b{columns - 1}) VALUES (1, REPEAT('q', {longest}))")
    file = bytearray(_export(env, session).read_bytes())
    block = 12 + int.from_bytes(file[4:8], "little")
    # The row: no references, the layout's version, a bit for each NULL, the end of each value.
    ends = file.index(b"q" * longest) - 2 * columns
    nulls = ends - (columns + 7) // 8
    equal(file[nulls - 2 : nulls], b"\x00\x01", "what a row begins with")
    for n in range(columns):
        file[nulls + n // 8] = file[nulls + n // 8] & ~(1 << n % 8) | (n % 2) << n % 8
        file[ends + 2 * n : ends + 2 * n + 2] = (0 if n % 2 else longest).to_bytes(2, "little")
    _sum_again(file, block, int.from_bytes(file[block + 4 : block + 8], "little"))
    for statement, wanted in (
        ("SELECT * FROM o", 1034),
        ("UPDATE o SET b0 = 'x'", 1034),
        ("SELECT b0, b2, b4 FROM o", 1034),
        ("SELECT LENGTH(b0) FROM o", 0),
    ):
        session.run("CREATE OR REPLACE TABLE o LIKE t")
        _place(env, "o").write_bytes(file)
        session.run("ALTER TABLE o IMPORT TABLESPACE")
        equal(session.error(statement), wanted, statement)
        answer = session.run("CHECK TABLE o EXTENDED")
        expect(answer[-1][3] != "OK", "CHECK TABLE finds nothing", answer)
    session.run("DROP TABLE o")
    _sound(session, "t")


def scenario_longer_keys_than_the_table_has(env: Env) -> None:
    """A file whose rows have longer keys than its head says: CHECK TABLE wrote behind its memory."""
    session = env.session()
    columns = "id VARCHAR(20) NOT NULL, v VARCHAR(2500) NOT NULL, w INT, KEY w (w)"
    session.run(f"CREATE TABLE t ({columns}, PRIMARY KEY (id, v)) CHARSET=latin1 ENGINE=FERRITE")
    session.run(f"CREATE TABLE o ({columns}, PRIMARY KEY (id)) CHARSET=latin1 ENGINE=FERRITE")
    head = _export(env, session, "o").read_bytes()
    session.run("INSERT INTO t SELECT seq, REPEAT('v', 2500), seq FROM seq_1_to_500")
    file = _export(env, session).read_bytes()
    blocks = [12 + int.from_bytes(whole[4:8], "little") for whole in (head, file)]
    _place(env, "o").write_bytes(head[: blocks[0]] + file[blocks[1] :])
    session.run("ALTER TABLE o IMPORT TABLESPACE")
    for how in ("", "EXTENDED", "QUICK"):
        session.run(f"CHECK TABLE o {how}")
    session.run("DROP TABLE o")
    _sound(session, "t")


def _of_other_moments(copy: bytes) -> tuple[bytes, bool]:
    """The file as if a server of the other side of 11.5 had written it, whose TIMESTAMP ends in another year; and whether that one
    is the later."""
    old, new, is_later = (b"10.11.", b"11.05.", True) if b"10.11." in copy[:100] else (b"11.8.", b"10.9.", False)
    file = bytearray(copy)
    at = copy.index(old)
    file[at : at + len(old)] = new
    _sum_again(file, 0, int.from_bytes(copy[4:8], "little"))
    return bytes(file), is_later


def scenario_of_a_server_whose_moments_end_elsewhere(env: Env) -> None:
    """From 11.5 on TIMESTAMP ends in 2106, before it in 2038, in the same bytes: a table WITH SYSTEM VERSIONING of the other side
    seemed empty, and moments after 2038 were before 1970."""
    session = env.session()
    for kind, history, refused_if_later, refused_if_earlier in (
        ("DATETIME", "", False, False),
        ("TIMESTAMP", "", True, False),
        ("DATETIME", " WITH SYSTEM VERSIONING", True, True),
    ):
        sql = f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, d {kind}) ENGINE=FERRITE{history}"
        session.run(sql)
        session.run("INSERT INTO t VALUES (1, '2026-01-01'), (2, '2027-01-01')")
        copy = _export(env, session).read_bytes()
        other, is_later = _of_other_moments(copy)
        for file, refused in ((copy, False), (other, refused_if_later if is_later else refused_if_earlier)):
            session.run(sql)
            _place(env, "t").write_bytes(file)
            equal(session.error("ALTER TABLE t IMPORT TABLESPACE"), 1808 if refused else 0, sql)
            said = session.warnings()[0][2] if refused else ""
            equal(session.value("SELECT COUNT(*) FROM t"), 0 if refused else 2, sql)
            if refused:
                expect("mariadb-dump" in said and "2038" in said, "says what to do", said)
            _place(env, "t").unlink(missing_ok=True)
