"""Temporary tables: whose they are, who may take them away, and what is left of them."""

from __future__ import annotations

from corners.env import Env, equal


def scenario_gone_after_a_crash(env: Env) -> None:
    """A temporary table does not outlive the server; permanent tables do."""
    session = env.session()
    session.run("CREATE TABLE kept (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("CREATE TEMPORARY TABLE lost (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("INSERT INTO kept VALUES (1)")
    session.run("INSERT INTO lost VALUES (1)")
    env.crash()
    session = env.session()
    equal(session.answer("SELECT * FROM kept"), [(1,)], "the permanent table")
    equal(session.answer("SELECT * FROM lost"), 1146, "the temporary table")
    equal(session.answer("CHECK TABLE kept EXTENDED"), [("corners.kept", "check", "status", "OK")], "CHECK TABLE")
