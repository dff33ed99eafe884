"""UNINSTALL PLUGIN FERRITE in a running server, beside those who use what is left of the library."""

from __future__ import annotations

import os
import threading

from corners.env import Env, Session, equal, expect, options

ROUNDS = 8
SNAPSHOTS = 30
# Of the snapshots files are read: there is always somebody amid that.
TABLES = (
    *["KEPT_SNAPSHOTS"] * 4,
    "METRICS",
    "TRX",
    "LOCKS",
    "LOCK_WAITS",
    "SNAPSHOTS",
    "MEMORY",
    "WAITS",
    "SYS_FOREIGN",
)

THERE = "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'FERRITE'"


def _look(session: Session, name: str, stop: threading.Event, failed: list[BaseException]) -> None:
    try:
        while not stop.is_set():
            session.run(f"SELECT * FROM information_schema.FERRITE_{name}")
    except BaseException as e:
        failed.append(e)


# The default engine cannot be removed.
@options("--default-storage-engine=InnoDB")
def scenario_beside_information_schema(env: Env) -> None:
    """Each table of information_schema is a plugin of its own and goes on: it is empty while there is no engine."""
    # Memory that is given back does not keep what was in it.
    os.environ["MALLOC_PERTURB_"] = "165"
    try:
        env.restart()
    finally:
        del os.environ["MALLOC_PERTURB_"]
    session = env.session()
    session.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    session.run("INSERT INTO t VALUES (1)")
    for number in range(SNAPSHOTS):
        session.run(f"SET GLOBAL ferrite_snapshot_create = 's{number}'")
    session.close()
    stop = threading.Event()
    failed: list[BaseException] = []
    lookers = [threading.Thread(target=_look, args=(env.session(), name, stop, failed), daemon=True) for name in TABLES]
    for looker in lookers:
        looker.start()
    session = env.session()
    for _ in range(ROUNDS):
        session.run("FLUSH TABLES")
        env.eventually("nobody uses the engine", lambda: session.error("UNINSTALL PLUGIN FERRITE") == 0)
        env.eventually("the engine is gone", lambda: session.value(THERE) == 0)
        equal(session.run("SELECT * FROM information_schema.FERRITE_METRICS"), [], "metrics without the engine")
        session.run("INSTALL PLUGIN FERRITE SONAME 'ha_ferrite'")
        expect(not failed, "a query failed", failed)
    stop.set()
    for looker in lookers:
        looker.join()
    equal(env.session().run("SELECT * FROM t"), [(1,)], "the table")
