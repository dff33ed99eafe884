"""ferrite_replace_engines: enforce_storage_engine=FERRITE replaces an engine's name under NO_ENGINE_SUBSTITUTION, too."""

from __future__ import annotations

from pymysql.constants import CLIENT

from corners.env import Env, Session, equal, expect, options

STRICT = "SET sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"
REFUSED = 1290


def _made_of(session: Session, name: str, statement: str) -> None:
    """The statement makes a Ferrite table of that name, which goes again."""
    session.run(statement)
    shown = str(session.run(f"SHOW CREATE TABLE {name}")[0][1])
    expect("ENGINE=FERRITE" in shown, f"{statement}: {shown}")
    session.run(f"DROP TABLE {name}")


@options("--enforce-storage-engine=FERRITE")
def scenario_the_mode_refuses(env: Env) -> None:
    """Without the variable the server refuses, as it does with any engine."""
    session = env.session()
    session.run(STRICT)
    equal(session.error("CREATE TABLE t (a INT) ENGINE=InnoDB"), REFUSED, "another engine's name")
    expect("NO_ENGINE_SUBSTITUTION" in str(session.value("SELECT @@sql_mode")), "the mode stays")
    equal(session.error("SET GLOBAL ferrite_replace_engines = ON"), 1238, "it is set at start")


@options("--enforce-storage-engine=FERRITE", "--ferrite-replace-engines", "--sql-mode=NO_ENGINE_SUBSTITUTION")
def scenario_a_name_is_replaced(env: Env) -> None:
    """The server's mode, one that the session sets, in one packet, in a procedure, in a prepared statement."""
    session = env.session(client_flag=CLIENT.MULTI_STATEMENTS)
    _made_of(session, "t", "CREATE TABLE t (a INT) ENGINE=InnoDB")
    for engine in ("InnoDB", "MyISAM", "MEMORY", "Aria"):
        session.run(STRICT)
        _made_of(session, "t", f"CREATE TEMPORARY TABLE t (a INT) ENGINE={engine}")
    _made_of(session, "t", f"{STRICT}; CREATE TABLE t (a INT) ENGINE=InnoDB")
    _made_of(session, "t", f"PREPARE s FROM 'CREATE TABLE t (a INT) ENGINE=InnoDB'; {STRICT}; EXECUTE s")
    expect("STRICT_ALL_TABLES" in str(session.value("SELECT @@sql_mode")), "the rest of the mode stays")
    session.run("SET enforce_storage_engine = NULL")
    session.run(STRICT)
    session.run("CREATE PROCEDURE p() CREATE TABLE t (a INT) ENGINE=InnoDB")
    session.run("CREATE TABLE other (a INT) ENGINE=InnoDB")
    expect("NO_ENGINE_SUBSTITUTION" in str(session.value("SELECT @@sql_mode")), "nothing is enforced here")
    session.run("SET enforce_storage_engine = FERRITE")
    _made_of(session, "t", "CALL p()")
    session.run(STRICT)
    _made_of(session, "other", "ALTER TABLE other ENGINE=InnoDB")
    session.run("DROP PROCEDURE p")


@options("--enforce-storage-engine=Aria", "--ferrite-replace-engines")
def scenario_another_engine_is_enforced(env: Env) -> None:
    """What is enforced is not Ferrite: nothing is changed."""
    session = env.session()
    session.run(STRICT)
    equal(session.error("CREATE TABLE t (a INT) ENGINE=InnoDB"), REFUSED, "another engine's name")
    expect("NO_ENGINE_SUBSTITUTION" in str(session.value("SELECT @@sql_mode")), "the mode stays")
