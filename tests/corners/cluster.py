"""A node of a Galera cluster: nothing is executed that the other nodes would not get."""

from __future__ import annotations

from corners.env import Env, equal, expect, options
from lib.extra import fetched

REFUSED = 4165


def _node() -> list[str] | None:
    """Options of a node that is a cluster by itself; None where Galera cannot be had."""
    provider = fetched("galera", "FERRITE_GALERA")
    if not provider:
        print("skipped: the package galera-4 cannot be fetched", flush=True)
        return None
    listen = "gmcast.listen_addr=tcp://127.0.0.1:0;base_host=127.0.0.1;base_port=14567;gcache.size=16M"
    return [
        "--binlog-format=ROW",
        "--innodb-autoinc-lock-mode=2",
        "--wsrep-on=ON",
        f"--wsrep-provider={provider}",
        "--wsrep-cluster-address=gcomm://",
        f"--wsrep-provider-options={listen}",
        "--wsrep-node-address=127.0.0.1",
        "--wsrep-sst-method=rsync",
    ]


@options()
def scenario_changes_are_refused_on_a_node(env: Env) -> None:
    """DML and DDL on Ferrite tables are refused with wsrep on; reads, temporary tables and wsrep_on=OFF are not."""
    node = _node()
    if node is None:
        return
    s = env.session()
    s.run("CREATE TABLE t (a INT PRIMARY KEY, b INT) ENGINE=FERRITE")
    s.run("CREATE TABLE i (a INT PRIMARY KEY) ENGINE=InnoDB")
    s.run("INSERT INTO t VALUES (1, 1)")
    env.restart(*node)
    s = env.session()
    env.eventually("the node is ready", lambda: s.run("SHOW STATUS LIKE 'wsrep_ready'")[0][1] == "ON", 30)
    s.run("INSERT INTO i VALUES (1)")
    for statement in (
        "INSERT INTO t VALUES (2, 2)",
        "UPDATE t SET b = 3",
        "DELETE FROM t",
        "REPLACE INTO t VALUES (1, 9)",
        "INSERT INTO t SELECT a + 10, 1 FROM i",
        "TRUNCATE TABLE t",
        "ALTER TABLE t ADD c INT",
        "ALTER TABLE t ALTER b SET DEFAULT 5",
        "ALTER TABLE i ENGINE=FERRITE",
        "RENAME TABLE t TO u",
        "CREATE TABLE n (a INT PRIMARY KEY) ENGINE=FERRITE",
        "CREATE TABLE n ENGINE=FERRITE SELECT * FROM i",
        "LOCK TABLES t WRITE",
    ):
        equal(s.error(statement), REFUSED, statement)
        expect("wsrep_on" in str(s.warnings()), "the variable's name", s.warnings())
        s.run("UNLOCK TABLES")
    equal(s.answer("SELECT * FROM t"), [(1, 1)], "the rows")
    equal(s.answer("SELECT * FROM i"), [(1,)], "the other table")
    equal(s.answer("SELECT * FROM t FOR UPDATE"), [(1, 1)], "SELECT ... FOR UPDATE")
    s.run("CREATE TEMPORARY TABLE mine (a INT PRIMARY KEY) ENGINE=FERRITE")
    s.run("INSERT INTO mine VALUES (1)")
    s.run("DROP TEMPORARY TABLE mine")
    s.run("SET SESSION wsrep_on=OFF")
    s.run("UPDATE t SET b = 4")
    s.run("ALTER TABLE t ADD c INT")
    equal(s.answer("SELECT * FROM t"), [(1, 4, None)], "after wsrep_on=OFF")
    env.stop()
    env.start()
    env.session().run("UPDATE t SET b = 5")


PARTS = "PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN (30)"
PARTITIONED = f"(a INT PRIMARY KEY, b INT) ENGINE=FERRITE PARTITION BY RANGE (a) ({PARTS})"


@options()
def scenario_what_only_removes_leaves_nothing(env: Env) -> None:
    """DROP, DROP PARTITION and another engine: the server has removed the name before the engine is asked."""
    node = _node()
    if node is None:
        return
    env.restart(*node)
    s = env.session()
    env.eventually("the node is ready", lambda: s.run("SHOW STATUS LIKE 'wsrep_ready'")[0][1] == "ON", 30)
    s.run("SET wsrep_on=OFF")
    for name in ("p", "q"):
        s.run(f"CREATE TABLE {name} {PARTITIONED}")
        s.run(f"INSERT INTO {name} SELECT seq, seq FROM seq_1_to_29")
    s.run("CREATE TABLE t (a INT PRIMARY KEY) ENGINE=FERRITE")
    s.run("INSERT INTO t VALUES (1), (2)")
    s.run("CREATE DATABASE other")
    s.run(f"CREATE TABLE other.p {PARTITIONED}")
    s.run("SET wsrep_on=ON")
    equal(s.error("ALTER TABLE p TRUNCATE PARTITION p0"), REFUSED, "what changes is refused")
    s.run("ALTER TABLE p DROP PARTITION p1")
    equal(s.value("SELECT COUNT(*) FROM p"), 19, "rows of the other partitions")
    s.run("ALTER TABLE t ENGINE=InnoDB")
    equal(s.answer("SELECT * FROM t"), [(1,), (2,)], "rows with the other engine")
    s.run("DROP TABLE q")
    s.run("DROP DATABASE other")
    s.run("SET wsrep_on=OFF")
    s.run(
        "ALTER TABLE p REORGANIZE PARTITION p2 INTO (PARTITION p1 VALUES LESS THAN (20), PARTITION p2 VALUES LESS THAN (30))"
    )
    s.run("ALTER TABLE t ENGINE=FERRITE")
    s.run(f"CREATE TABLE q {PARTITIONED}")
    s.run("CREATE DATABASE other")
    s.run(f"CREATE TABLE other.p {PARTITIONED}")
    equal(s.value("SELECT COUNT(*) FROM p"), 19, "rows at the end")
    s.run("DROP DATABASE other")
