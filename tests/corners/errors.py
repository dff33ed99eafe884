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
