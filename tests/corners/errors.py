"""Numbers and texts of errors, as clients, handlers and replication know them."""

from __future__ import annotations

from corners.env import Env, equal, expect

STRICT, LAX = "STRICT_TRANS_TABLES", ""


def scenario_warnings_have_the_servers_numbers(env: Env) -> None:
    """A warning beside an error has a number of the server's messages and is never itself the error."""
    for mode in (STRICT, LAX):
        s = env.session()
        s.run(f"SET sql_mode='{mode}'")
        equal(s.error("CREATE TABLE bad (a INT) ENGINE=FERRITE KEY_BLOCK_SIZE=3"), 1005, "a bad option at CREATE")
        expect(any(w[1] == 1478 for w in s.warnings()), "which option is bad", s.warnings())
        equal(s.error("CREATE TABLE bad ENGINE=FERRITE KEY_BLOCK_SIZE=3 SELECT 1 AS a"), 1005, "with SELECT")
        s.run("CREATE OR REPLACE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
        equal(s.error("ALTER TABLE t KEY_BLOCK_SIZE=3, ADD b INT"), 1478, "at ALTER")


def scenario_too_long_names_of_indexes(env: Env) -> None:
    """Names of indexes that do not fit are refused in words of their own, at CREATE and ALTER; 64 Latin ones fit."""

    def keys(number: int, letter: str) -> str:
        return ", ".join(f"KEY `{letter * 62}{n:02}` (a)" for n in range(number))

    s = env.session()
    for number, letter, fits in ((64, "k", True), (39, "ж", True), (64, "ж", False)):
        s.run("DROP TABLE IF EXISTS t")
        seen = s.error(f"CREATE TABLE t (a INT, {keys(number, letter)}) ENGINE=FERRITE")
        equal(seen == 0, fits, f"{number} names with {letter}: error {seen}")
    expect("names of its indexes shorter" in str(s.warnings()), "the reason", s.warnings())
    s.run(f"CREATE TABLE t (a INT, {keys(39, 'ж')}) ENGINE=FERRITE")
    more = ", ".join(f"ADD KEY `{'щ' * 62}{n:02}` (a)" for n in range(20))
    equal(s.error(f"ALTER TABLE t {more}, ALGORITHM=INPLACE"), 1478, "ALTER")
    equal(s.answer("CHECK TABLE t"), [("corners.t", "check", "status", "OK")], "CHECK TABLE")
    s.run("DROP TABLE t")


def scenario_row_too_big(env: Env) -> None:
    """A row that does not fit is 1118, not 'Got error 139'."""
    columns = ", ".join(f"c{n} VARBINARY(16)" for n in range(600))
    values = ", ".join(["'0123456789abcdef'"] * 600)
    for mode in (STRICT, LAX):
        s = env.session()
        s.run(f"SET sql_mode='{mode}'")
        created = s.error(f"CREATE OR REPLACE TABLE wide (a INT PRIMARY KEY, {columns}) ENGINE=FERRITE")
        if created:
            equal(created, 1118, "refused at CREATE")
            continue
        seen = s.error(f"INSERT INTO wide VALUES (1, {values})")
        expect(seen in (0, 1118), "a row of 9,600 bytes", seen)
