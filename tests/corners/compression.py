"""Compression of tables: the options, what shows them, what changes them, and that rows survive all of it."""

from __future__ import annotations

import time

from corners.env import Env, Session, equal, expect

ROWS = 3000


def _fill(session: Session, table: str) -> None:
    session.run(
        f"INSERT INTO {table} SELECT seq, REPEAT(MD5(seq), 4), IF(seq % 100, NULL, REPEAT(SHA1(seq), 900)) FROM seq_1_to_{ROWS}"
    )


def _rows(session: Session, table: str) -> object:
    return session.answer(
        f"SELECT COUNT(*), SUM(CRC32(a)), SUM(CRC32(b)), SUM(CRC32(v)) FROM {table} FORCE INDEX (PRIMARY)"
    )


def _options(session: Session, table: str) -> str:
    return str(session.run(f"SHOW CREATE TABLE {table}")[0][1]).rpartition("ENGINE=")[2]


def _settled_bytes(env: Env, session: Session) -> int:
    """What the store has in use when nobody gives back space any more."""
    readings = [-1]

    def is_settled() -> bool:
        time.sleep(0.3)
        readings.append(int(session.run("SHOW GLOBAL STATUS LIKE 'Ferrite_store_used_bytes'")[0][1]))
        return readings[-1] == readings[-2]

    env.eventually("a steady number of bytes in use", is_settled)
    return readings[-1]


COLUMNS = "(a INT PRIMARY KEY, b VARCHAR(300), v LONGTEXT, KEY (b))"


def scenario_compression_options(env: Env) -> None:
    "COMPRESSION and InnoDB's PAGE_COMPRESSED are taken, shown and checked."
    s = env.session()
    s.run(f"CREATE TABLE t {COLUMNS} ENGINE=FERRITE COMPRESSION=zstd COMPRESSION_LEVEL=9")
    expect("zstd" in _options(s, "t") and "9" in _options(s, "t"), "SHOW CREATE TABLE", _options(s, "t"))
    status = str(s.run("SHOW TABLE STATUS LIKE 't'")[0])
    expect("zstd" in status, "SHOW TABLE STATUS", status)
    s.run("CREATE TABLE l LIKE t")
    equal(_options(s, "l"), _options(s, "t"), "CREATE TABLE ... LIKE")
    s.run(f"CREATE TABLE p {COLUMNS} ENGINE=FERRITE PAGE_COMPRESSED=1 PAGE_COMPRESSION_LEVEL=4")
    expect("PAGE_COMPRESSED" in _options(s, "p"), "InnoDB's spelling", _options(s, "p"))
    s.run("SET ferrite_default_compression = lz4")
    s.run(f"CREATE TABLE d {COLUMNS} ENGINE=FERRITE")
    s.run("SET ferrite_default_compression = none")
    expect("lz4" in _options(s, "d"), "the variable is written into the definition", _options(s, "d"))
    for wrong, code in (
        ("COMPRESSION=snappy", 1912),
        ("COMPRESSION=zstd COMPRESSION_LEVEL=23", 1912),
        ("COMPRESSION=lz4 COMPRESSION_LEVEL=3", 1005),
        ("PAGE_COMPRESSION_LEVEL=3", 1005),
        ("PAGE_COMPRESSED=1 ROW_FORMAT=COMPRESSED", 1005),
    ):
        equal(s.error(f"CREATE TABLE w {COLUMNS} ENGINE=FERRITE {wrong}"), code, wrong)
    equal(s.error("ALTER TABLE d COMPRESSION_LEVEL=4"), 1478, "ALTER TABLE")
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9), PARTITION p1 VALUES LESS THAN (99) COMPRESSION=none)"
    s.run(f"CREATE TABLE q (id INT PRIMARY KEY, a TEXT) ENGINE=FERRITE {parts}")
    for statement in (
        "ALTER TABLE q PAGE_COMPRESSED=1",
        "ALTER TABLE q FORCE",
        "ALTER TABLE q REBUILD PARTITION p1",
        "CREATE TABLE r LIKE q",
    ):
        equal(s.error(statement), 0, f"a partition's own option and the table's: {statement}")
    expect("LEVEL" not in _options(s, "d"), "a refused ALTER TABLE changes nothing", _options(s, "d"))


def scenario_compression_altered(env: Env) -> None:
    "ALTER TABLE ... COMPRESSION is instant, and rows survive it, restarts, crashes and OPTIMIZE."
    s = env.session()
    s.run(f"CREATE TABLE t {COLUMNS} ENGINE=FERRITE")
    _fill(s, "t")
    rows = _rows(s, "t")
    for n, wish in enumerate(("lz4", "zstd", "none", "zstd")):
        s.run(f"ALTER TABLE t COMPRESSION={wish}, ALGORITHM=INSTANT")
        expect(wish in _options(s, "t"), "SHOW CREATE TABLE", _options(s, "t"))
        s.run("UPDATE t SET b = CONCAT(b, '.') WHERE a % 3 = 0")
        rows = _rows(s, "t")
        if n % 2:
            env.restart()
        else:
            env.crash()
        s = env.session()
        equal(_rows(s, "t"), rows, f"rows after {wish}")
        expect(wish in _options(s, "t"), "SHOW CREATE TABLE after a restart", _options(s, "t"))
    s.run("OPTIMIZE TABLE t")
    env.restart()
    s = env.session()
    equal(_rows(s, "t"), rows, "rows after OPTIMIZE")
    equal(str(s.run("CHECK TABLE t EXTENDED")[-1][3]), "OK", "CHECK TABLE")


def scenario_compression_pays(env: Env) -> None:
    "What compresses takes less space, values out of line too; partitions and temporary tables have the option."
    s = env.session()
    sizes = []
    for wish in ("none", "lz4", "zstd"):
        s.run(f"CREATE TABLE t {COLUMNS} ENGINE=FERRITE COMPRESSION={wish} PARTITION BY HASH (a) PARTITIONS 3")
        _fill(s, "t")
        s.run(f"CREATE TEMPORARY TABLE tt {COLUMNS} ENGINE=FERRITE COMPRESSION={wish}")
        _fill(s, "tt")
        rows = _rows(s, "t")
        s.run("DROP TEMPORARY TABLE tt")
        env.restart()
        s = env.session()
        equal(_rows(s, "t"), rows, f"rows with {wish}")
        sizes.append(_settled_bytes(env, s))
        s.run("DROP TABLE t")
        env.restart()
        s = env.session()
    none, lz4, zstd = sizes
    expect(lz4 < none * 0.85 and zstd < lz4, "used bytes with none, lz4, zstd", sizes)
