"""Values out of line: the space of what failed, dirty readers, wide rows, long keys, memory."""

from __future__ import annotations

import threading
import time

import pymysql

from corners.env import Env, Session, equal, expect, options

BIG = 200_000
OPTIONS = ["--max-allowed-packet=64M", "--innodb-strict-mode=OFF"]


def _data_bytes(session: Session, table: str) -> int:
    rows = session.run(
        "SELECT data_length FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s", table
    )
    return int(rows[0][0])


def _big(text: str) -> str:
    return f"REPEAT('{text}', {BIG})"


def _fill(session: Session, table: str, more: str = "") -> None:
    session.run(
        f"CREATE TABLE {table} (id INT PRIMARY KEY, u INT UNIQUE, b LONGTEXT, c LONGTEXT) ENGINE=FERRITE {more}"
    )
    for n in (1, 2):
        session.run(f"INSERT INTO {table} VALUES ({n}, {n}, {_big('a')}, {_big('b')})")


def _keeps_its_space(env: Env, session: Session, table: str, statements: list[str]) -> None:
    """However often the statements run, whatever they answer, the table does not grow."""
    whole = _data_bytes(session, table)
    for _ in range(5):
        for statement in statements:
            session.answer(statement)
    env.eventually(
        f"the space of {table} from before ({whole} bytes; {statements[0][:60]} ...)",
        lambda: _data_bytes(session, table) <= whole,
        20,
    )


def scenario_failed_rows_leave_no_space(env: Env) -> None:
    """A duplicate that is ignored, replaced or updated takes its values' pages with it."""
    session = env.session()
    _fill(session, "t")
    session.run("CREATE TABLE many (id INT, u INT, b LONGTEXT) ENGINE=FERRITE")
    session.run(f"INSERT INTO many VALUES (10, 10, {_big('m')}), (11, 1, {_big('n')})")
    for statement in (
        f"INSERT IGNORE INTO t VALUES (1, 7, {_big('x')}, {_big('y')})",
        f"INSERT IGNORE INTO t VALUES (7, 1, {_big('x')}, {_big('y')})",
        f"INSERT INTO t VALUES (1, 7, {_big('x')}, {_big('y')})",
        f"INSERT INTO t VALUES (1, 1, {_big('x')}, '') ON DUPLICATE KEY UPDATE b = {_big('z')}",
        f"INSERT INTO t VALUES (1, 1, {_big('x')}, '') ON DUPLICATE KEY UPDATE u = u",
        f"REPLACE INTO t VALUES (1, 1, {_big('x')}, {_big('y')})",
        f"UPDATE IGNORE t SET u = 1, b = {_big('w')} WHERE id = 2",
        f"UPDATE t SET u = 1, b = {_big('w')} WHERE id = 2",
        "UPDATE t SET b = b, c = c",
        "INSERT INTO t SELECT id, u, b, b FROM many ORDER BY id",
    ):
        _keeps_its_space(env, session, "t", [statement])
    equal(session.answer("CHECK TABLE t EXTENDED")[0][3], "OK", "CHECK TABLE")


def scenario_broken_off_statements_leave_no_space(env: Env) -> None:
    """Savepoints, triggers, lock waits and KILL: what was written before goes."""
    session, other = env.session(), env.session()
    _fill(session, "t")
    insert = f"INSERT INTO t VALUES (5, 5, {_big('x')}, {_big('y')})"
    _keeps_its_space(env, session, "t", ["BEGIN", "SAVEPOINT s", insert, "ROLLBACK TO s", "COMMIT"])
    _keeps_its_space(env, session, "t", ["BEGIN", insert, f"UPDATE t SET b = {_big('v')}", "ROLLBACK"])
    session.run("CREATE TRIGGER no AFTER INSERT ON t FOR EACH ROW SIGNAL SQLSTATE '45000'")
    equal(session.error(insert), 1644, "the trigger's error")
    _keeps_its_space(env, session, "t", [insert])
    session.run("DROP TRIGGER no")
    session.run("SET ferrite_lock_wait_timeout = 1")
    whole = _data_bytes(session, "t")
    other.run("BEGIN")
    other.run("DELETE FROM t WHERE id = 1")
    session.run("BEGIN")
    equal(session.error(f"INSERT IGNORE INTO t VALUES (1, 9, {_big('x')}, {_big('y')})"), 1205, "a lock wait")
    session.run("SET ferrite_lock_wait_timeout = 50")
    waiting = session.start(f"INSERT INTO t VALUES (1, 9, {_big('x')}, {_big('y')})")
    expect(env.blocks(waiting), "the insert does not wait")
    other.run(f"KILL QUERY {session.id}")
    equal(waiting.answer(), 1317, "a killed insert")
    session.run("COMMIT")
    other.run("ROLLBACK")
    env.eventually("the space from before", lambda: _data_bytes(session, "t") <= whole)


def scenario_copies_and_partitions_leave_no_space(env: Env) -> None:
    """CREATE ... IGNORE SELECT with duplicates, and rows that move to another partition."""
    session = env.session()
    session.run("CREATE TABLE source (id INT, b LONGTEXT) ENGINE=FERRITE")
    session.run(f"INSERT INTO source VALUES (1, {_big('a')}), (2, {_big('b')}), (3, {_big('c')})")
    session.run("CREATE TABLE once (id INT PRIMARY KEY, b LONGTEXT) ENGINE=FERRITE SELECT * FROM source")
    twice = "SELECT * FROM source UNION ALL SELECT * FROM source UNION ALL SELECT * FROM source"
    session.run(f"CREATE TABLE copied (id INT PRIMARY KEY, b LONGTEXT) ENGINE=FERRITE IGNORE {twice}")
    equal(session.value("SELECT COUNT(*) FROM copied"), 3, "rows")
    env.eventually(
        "a copy with duplicates as large as one without",
        lambda: _data_bytes(session, "copied") <= _data_bytes(session, "once") + 4 * 16384,
    )
    _fill(session, "p")
    session.run("ALTER TABLE p DROP INDEX u")
    session.run(
        "ALTER TABLE p PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (5), PARTITION b VALUES LESS THAN (9))"
    )
    session.run(f"INSERT INTO p VALUES (6, 6, {_big('c')}, {_big('d')})")
    moves = ["UPDATE p SET id = 7 WHERE id = 1", "UPDATE p SET id = 1 WHERE id = 7"]
    _keeps_its_space(
        env, session, "p", [*moves, "UPDATE IGNORE p SET id = 6 WHERE id = 1", "UPDATE p SET id = 20 WHERE id = 1"]
    )


def _write_and_roll_back(session: Session, until: float) -> None:
    n = 0
    while time.monotonic() < until:
        n += 1
        letter, length = chr(97 + n % 26), 20_000 + n % 7 * 16_384
        session.run("BEGIN")
        session.run(
            f"UPDATE t SET n = {n}, b = REPEAT('{letter}', {length}), c = REPEAT('{letter}', 5000) WHERE id = {n % 6}"
        )
        if n % 5 == 0:
            session.run(f"DELETE FROM t WHERE id = {n % 6}")
        session.run("ROLLBACK" if n % 3 else "COMMIT")
        if n % 5 == 0:
            session.answer(f"INSERT INTO t VALUES ({n % 6}, {n % 6}, 0, REPEAT('k', 30000), REPEAT('k', 5000))")


def _read_dirty(session: Session, until: float, wrong: list[object]) -> None:
    session.run("SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")
    n = 0
    while time.monotonic() < until and not wrong:
        n += 1
        where = ["", "WHERE u BETWEEN 1 AND 4", f"WHERE id = {n % 6}", "ORDER BY id DESC"][n % 4]
        try:
            rows = session.run(f"SELECT id, b, c FROM t {where}")
        except pymysql.err.MySQLError as e:
            wrong.append(e.args)
            return
        for row_id, b, c in rows:
            letters = set(b) | set(c)
            if len(letters) != 1 or len(c) != 5000:
                wrong.append((row_id, sorted(letters), len(b), len(c)))


def scenario_dirty_readers_get_one_state_of_one_row(env: Env) -> None:
    """READ UNCOMMITTED beside updates, deletes and rollbacks of long values: no error, no bytes of another row."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, u INT, n INT, b LONGTEXT, c TEXT, KEY (u)) ENGINE=FERRITE")
    for n in range(6):
        session.run(f"INSERT INTO t VALUES ({n}, {n}, 0, REPEAT('k', 30000), REPEAT('k', 5000))")
    until = time.monotonic() + 8
    wrong: list[object] = []
    readers = [threading.Thread(target=_read_dirty, args=(env.session(), until, wrong)) for _ in range(3)]
    for reader in readers:
        reader.start()
    _write_and_roll_back(session, until)
    for reader in readers:
        reader.join()
    equal(wrong, [], "what dirty readers saw")
    equal(session.answer("CHECK TABLE t EXTENDED")[0][3], "OK", "CHECK TABLE")


def _columns(count: int, kind: str = "TEXT") -> str:
    return ", ".join(f"c{n} {kind}" for n in range(count))


def _row(count: int, length: int) -> str:
    return ", ".join([f"REPEAT('v', {length})"] * count)


def scenario_as_many_long_columns_as_innodb(env: Env) -> None:
    """Rows of several hundred long columns are taken where InnoDB takes them."""

    def play(engine: str, count: int, length: int) -> list[object]:
        session = env.session()
        answers = [session.answer(f"CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, {_columns(count)}) ENGINE={engine}")]
        answers += [session.answer(f"INSERT INTO t VALUES (1, {_row(count, length)})")]
        if not answers[-1]:
            session.run("UPDATE t SET c5 = REPEAT('w', 3000)")
            answers += [session.answer(f"SELECT id, c0, c5, c254, c255, c256, c{count - 1} FROM t")]
            answers += [session.answer("CHECK TABLE t EXTENDED")]
        session.run("DROP TABLE t")
        session.close()
        return answers

    for length in (41, 100, 2000):
        for count in (257, 300, 366):
            wanted, seen = play("InnoDB", count, length), play("FERRITE", count, length)
            if wanted[1] == []:
                equal(seen, wanted, f"{count} columns of {length} bytes")


def scenario_all_columns_text(env: Env) -> None:
    """A table of 1,016 TEXT columns takes, keeps and gives back what fits; a row too wide is refused, and leaves nothing."""
    session = env.session()
    session.run(f"CREATE TABLE t (id INT PRIMARY KEY, {_columns(1016)}) ENGINE=FERRITE")
    session.run(f"INSERT INTO t VALUES (1, {_row(1016, 5)})")
    for n in range(0, 1000, 20):
        session.run(f"UPDATE t SET c{n} = REPEAT('{chr(97 + n % 26)}', 1500) WHERE id = 1")
    whole = _data_bytes(session, "t")
    equal(session.error(f"INSERT INTO t VALUES (2, {_row(1016, 1500)})"), 1118, "a row too wide")
    for _ in range(3):
        session.answer("INSERT IGNORE INTO t SELECT * FROM t")
    env.eventually("the space from before", lambda: _data_bytes(session, "t") <= whole)
    env.crash()
    session = env.session()
    for n in (0, 20, 500, 980):
        equal(session.value(f"SELECT c{n} FROM t"), chr(97 + n % 26) * 1500, f"column {n}")
    equal(session.value("SELECT c1001 FROM t"), "vvvvv", "a short column")
    equal(session.answer("CHECK TABLE t EXTENDED")[0][3], "OK", "CHECK TABLE")


def scenario_a_key_accepted_is_a_key_that_fits(env: Env) -> None:
    """An index that CREATE takes takes full-length values at INSERT; one that cannot is refused with the reason."""
    session = env.session()
    fits = [
        (
            "VARCHAR(768) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
            "VARCHAR(768) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
            768,
            768,
        ),
        (
            "VARCHAR(768) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
            "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
            768,
            255,
        ),
        ("VARCHAR(3072) CHARACTER SET latin1", "VARCHAR(255) CHARACTER SET latin1", 3072, 255),
        ("VARBINARY(3072)", "BIGINT", 3072, 0),
        ("CHAR(255) CHARACTER SET utf8mb4", "CHAR(255) CHARACTER SET utf8mb4", 255, 255),
    ]
    for column, primary, long, long_pk in fits:
        session.run(f"CREATE OR REPLACE TABLE t (k {column}, p {primary} PRIMARY KEY, KEY (k)) ENGINE=FERRITE")
        key = f"REPEAT('z', {long_pk})" if long_pk else "5"
        session.run(f"INSERT INTO t VALUES (REPEAT('z', {long}), {key})")
        equal(session.value("SELECT COUNT(*) FROM t FORCE INDEX (k) WHERE k > 'a'"), 1, column)
    weighty = "VARCHAR(768) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"
    session.run(f"CREATE OR REPLACE TABLE t (k {weighty}, KEY (k)) ENGINE=FERRITE")
    equal(session.error("INSERT INTO t VALUES (REPEAT(CONVERT(X'E38C80' USING utf8mb4), 768))"), 1071, "many weights")
    equal(session.value("SELECT COUNT(*) FROM t"), 0, "rows of a key too long")
    general = "VARCHAR(750) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    smiles = "REPEAT(CONVERT(X'F09F9880' USING utf8mb4), 750)"
    session.run(f"CREATE OR REPLACE TABLE t (k {general}, p {general} PRIMARY KEY, KEY (k)) ENGINE=FERRITE")
    for sql in (f"INSERT INTO t VALUES ({smiles}, {smiles})", f"INSERT INTO t SELECT {smiles}, {smiles}"):
        equal(session.error(sql), 1071, "copies of strings that do not fit")
        said = session.warnings()
        expect("8200 with a copy of its strings" in str(said), "the reason", said)
    equal(session.value("SELECT COUNT(*) FROM t"), 0, "rows of an entry too long")
    session.run(f"INSERT INTO t VALUES ({smiles}, 'p'), ('k', {smiles})")
    session.run("ALTER TABLE t DROP KEY k")
    session.run(f"INSERT INTO t VALUES ({smiles}, CONCAT('p', LEFT({smiles}, 749)))")
    for how in ("ALGORITHM=NOCOPY, LOCK=SHARED", "ALGORITHM=COPY"):
        equal(session.error(f"ALTER TABLE t ADD KEY (k), {how}"), 1071, f"a key for such a row, {how}")
    equal(session.answer("CHECK TABLE t EXTENDED")[0][3], "OK", "CHECK TABLE")
    refused = [
        ("VARBINARY(3072)", "VARBINARY(3072)"),
        ("VARCHAR(3072) CHARACTER SET latin1", "VARCHAR(900) CHARACTER SET latin1"),
    ]
    for column, primary in refused:
        create = f"CREATE OR REPLACE TABLE t (k {column}, p {primary} PRIMARY KEY"
        equal(session.error(f"{create}, KEY (k)) ENGINE=FERRITE"), 1071, f"{column} and {primary}")
        session.run(f"{create}) ENGINE=FERRITE")
        equal(session.error("ALTER TABLE t ADD KEY (k)"), 1071, f"ALTER: {column} and {primary}")
        with_name = session.warnings()
        expect("'k'" in str(with_name), "the index's name in the message", with_name)


@options("--max-allowed-packet=64M", "--max-connections=20")
def scenario_large_buffers_go_with_the_statement(env: Env) -> None:
    """One row of 8 MB and a join of the table with itself thirty times: the memory is given back."""
    session = env.session()
    session.run("CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB) ENGINE=FERRITE")
    session.run(f"INSERT INTO t VALUES (1, REPEAT('b', {8 << 20}))")
    session.run("SELECT LENGTH(b) FROM t")
    # The server's own join buffers stay in the heap for long, with any engine.
    session.run("SET join_cache_level = 0")
    before = env.resident_bytes()
    tables = " ".join(f"STRAIGHT_JOIN t t{n}" for n in range(2, 31))
    lengths = "+".join(f"LENGTH(t{n}.b)" for n in range(1, 31))
    for _ in range(3):
        equal(session.value(f"SELECT {lengths} FROM t t1 {tables}"), 30 * (8 << 20), "the sum of lengths")
    session.close()
    env.eventually(
        "less than 60 MB more memory than before",
        lambda: env.resident_bytes() - before < 60 << 20,
        15,
    )


def scenario_long_rows_beside_keys(env: Env) -> None:
    """Rows up to what a page holds lie in it; with long keys beside them, or several long values, the longest go out of line."""
    keys = ("INT", "BINARY(16)", "VARCHAR(200)", "VARBINARY(2900)")
    lengths = (
        0,
        1,
        1023,
        1024,
        1025,
        3599,
        3600,
        4100,
        4200,
        5000,
        7890,
        7970,
        7990,
        8000,
        8001,
        8200,
        9000,
        16400,
        70000,
    )

    def play(name: str) -> list[object]:
        session = env.session()
        answers: list[object] = []
        for number, key in enumerate(keys):
            table = f"r{number}"
            long_key = key == "VARBINARY(2900)"
            session.run(
                f"CREATE TABLE {table} (k {key} PRIMARY KEY, n INT, a LONGTEXT, b BLOB, c VARCHAR(6000), KEY (n)) ENGINE={name}"
            )
            for at, length in enumerate(lengths):
                value = f"CONCAT('{at:03}', REPEAT('k', 2800))" if long_key else str(at)
                second, third = lengths[-1 - at], min(lengths[(at * 7) % len(lengths)], 6000)
                session.run(
                    f"INSERT INTO {table} VALUES ({value}, {at}, REPEAT('a', {length}), REPEAT('b', {min(second, 65000)}), REPEAT('c', {third}))"
                )
            session.run(f"UPDATE {table} SET n=n+1")
            session.run(f"UPDATE {table} SET a=CONCAT(a, 'x') WHERE n % 2")
            session.run(f"UPDATE {table} SET b=NULL WHERE n % 3 = 0")
            session.run(f"UPDATE {table} SET c=REPEAT('d', 5990) WHERE n % 5 = 0")
            answers.append(
                session.answer(f"SELECT n, LENGTH(a), CRC32(a), LENGTH(b), CRC32(b), CRC32(c) FROM {table} ORDER BY n")
            )
            answers.append(session.answer(f"SELECT n FROM {table} WHERE a LIKE '%x' ORDER BY k DESC"))
            answers.append(session.answer(f"CHECK TABLE {table} EXTENDED")[-1][3])  # type: ignore[index]
        return answers

    env.same_as_innodb(play)
