"""Which pieces of which tests mtr/pieces.py takes, with what keeps the rest of each from being taken."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """From the line that begins with `first` up to the one that begins with `last`, or to the one before `until`, or to the end."""

    first: str
    last: str = ""
    until: str = ""
    lead: tuple[str, ...] = ()
    """Lines that stand before it in both files: what the piece needs, made by a part that is not taken."""


@dataclass(frozen=True)
class Said:
    """What in the pieces needs the part that is not taken, and what stands there instead, as in re.sub over lines."""

    old: str
    new: str = ""
    silent: bool = False
    """Commands of the test language: nothing of `new` is in the result."""


@dataclass(frozen=True)
class Taken:
    """The pieces of one test, in their order."""

    rest: str
    """Why not the whole."""
    pieces: tuple[Piece, ...]
    head: tuple[str, ...] = ("--source include/have_innodb.inc",)
    """Lines of the test alone, at its beginning."""
    tail: tuple[str, ...] = ()
    """Lines of both at their end: what the pieces leave."""
    said: tuple[Said, ...] = ()


INNODB = "--source include/have_innodb.inc"
PARTITION = "--source include/have_partition.inc"
DATADIR = "let $MYSQLD_DATADIR= `select @@datadir`;"
DEBUG = "needs a debug server"
UNSYNCED = Said(r"(?i)^set (@saved_debug_dbug|debug_dbug|debug_sync) ?=.*\n")
"""Stops and faults of a debug server; what they stop goes on, and what they spoil succeeds."""
DICTIONARYS_KEYS = """\
SELECT i.* FROM INFORMATION_SCHEMA.INNODB_SYS_FOREIGN_COLS i
INNER JOIN sys_foreign sf ON i.ID = sf.ID;"""
A_LOCK_IS_WAITED_FOR = """\
let $wait_condition= SELECT COUNT(*) > 0 FROM information_schema.innodb_lock_waits;
source include/wait_condition.inc;
"""
PIECES: dict[str, dict[str, Taken]] = {
    "innodb": {
        "foreign-keys": Taken(
            DEBUG,
            (
                Piece("# Bug #19471516", "drop table title, department, people;"),
                Piece("create table t1 (a int primary key, b int)", "drop user foo;"),
                Piece("# MDEV-17595", until="# MDEV-16060"),
                Piece("create table t1 (a int primary key, b int)", "SET FOREIGN_KEY_CHECKS=DEFAULT;"),
                Piece("# End of 10.5 tests"),
            ),
            (INNODB, "--enable_connect_log"),
        ),
        "truncate_foreign": Taken(
            DEBUG, (Piece("CREATE TABLE parent", until="connect "), Piece("DROP TABLE child, parent;"))
        ),
        "insert_debug": Taken(
            DEBUG,
            (
                Piece("CREATE TABLE t1(col1 INT PRIMARY KEY)", "disconnect con1;"),
                Piece("DROP TABLE t2;"),
            ),
        ),
        "update-cascade": Taken(
            DEBUG + ", for what a reader sees of a cascade that waits",
            (Piece("# Bug #18451287"),),
            (INNODB, "--source include/count_sessions.inc"),
            said=(
                Said(r"^set debug_sync='now WAIT_FOR upd_waiting';\n", A_LOCK_IS_WAITED_FOR, silent=True),
                UNSYNCED,
                Said(r"(?s)^(--echo )?# The table t1 is updated\..*?^commit;\n"),
            ),
        ),
        "alter_foreign_crash": Taken(
            DEBUG + ", to die amid an ALTER, which tests/faults does",
            (Piece("call mtr.add_suppression"),),
            (INNODB, "--source include/not_embedded.inc", "--source include/have_case_sensitive_file_system.inc"),
            said=(UNSYNCED, Said(r"^(?:--send )?(ALTER TABLE child ROW_FORMAT=DYNAMIC, ALGORITHM=COPY);?$", r"\1;")),
        ),
        "innodb-index-online-fk": Taken(
            DEBUG + ": it makes InnoDB fail at points of an ALTER; and of the tables INNODB_SYS_TABLES and _COLUMNS",
            (
                Piece("CREATE TABLE parent", until="SELECT t2.name, t1.name"),
                Piece("INSERT INTO child VALUES(5,4);", until="CREATE TABLE `#parent`"),
                Piece("ALTER TABLE child ADD CONSTRAINT fk_5", until="SET DEBUG_DBUG"),
                Piece("SELECT * FROM INFORMATION_SCHEMA.INNODB_SYS_FOREIGN;"),
            ),
            said=(
                UNSYNCED,
                Said(r"^SELECT t2\.name, t1\.name .*\n(name\tname\n(test/child\t.*\n)*)?"),
                Said(r"^SELECT NAME FROM information_schema\.INNODB_SYS_TABLES;\n(NAME\n((SYS_|mysql/|test/).*\n)*)?"),
            ),
        ),
        "alter_copy_bulk": Taken(
            "of what InnoDB builds in bulk: which duplicate it meets first, and locks on mysql.innodb_index_stats",
            (Piece("# MDEV-34756", "DROP TABLE t2, t1;"),),
        ),
        "alter_partitioned": Taken(
            "its last part asks for ALGORITHM=INSTANT",
            (Piece("# MDEV-26077", until="# MDEV-24754"),),
            (INNODB, PARTITION),
        ),
        "alter_table": Taken(
            "of a table whose file is discarded, and of the tables INNODB_SYS_*",
            (Piece("# MDEV-18775", "DROP TABLE t1, tx;"),),
        ),
        "import_bugs": Taken("copies .ibd files between tables", (Piece("# MDEV-27006", "DROP TABLE t2, t1;"),)),
        "innodb-alter": Taken(
            "of FULLTEXT indexes and exported files",
            (
                Piece("SET NAMES utf8mb4;", until="CREATE TABLE t1o LIKE t1;"),
                Piece("# Bug #19465984", "DROP TABLE t1, parent;", lead=("DROP TABLE t1c, t1p, t1, sys_foreign;",)),
            ),
            said=(
                # Tables of InnoDB's dictionary; what they have of foreign keys stays.
                Said(r"^CREATE TABLE sys_(tables|indexes) SELECT [^;]*;\n"),
                Said(r"^-- source suite/innodb/include/innodb_dict\.inc$", DICTIONARYS_KEYS),
                Said(r"^SELECT i\.NAME,i\.POS[^;]*;\nNAME\tPOS.*\n(\S+\t\d+\t\d+\t\d+\t\d+\n)*"),
                Said(r"^SELECT si\.NAME,i\.POS[^;]*;\nNAME\tPOS\tNAME\n(\S+\t\d+\t\S+\n)*"),
                Said(r"^SELECT st\.NAME, i\.NAME\n[^;]*;\n(NAME\tNAME\n(test/.*\n)*)?"),
                Said(r"^SELECT (C|F)\.NAME FROM [^;]*;\n(NAME\n(\w\w?\n)*)?"),
                Said(
                    r"(?i)^select name, pos from information_schema\.innodb_sys_fields .*\n(name\tpos\n(.*\t\d+\n)*)?"
                ),
            ),
        ),
        "innodb-index": Taken(
            "of InnoDB's files, log and monitor",
            (
                Piece("SET @OLD_FOREIGN_KEY_CHECKS", "SET @OLD_FOREIGN_KEY_CHECKS"),
                Piece(
                    "create table t1(a int not null, b int not null, c int, primary key (a), key (b))",
                    "drop table t2,t4,t3,t1;",
                ),
                Piece("SET @OLD_UNIQUE_CHECKS", until="connect "),
            ),
            (INNODB, DATADIR),
        ),
        "innodb-system-table-view": Taken(
            "of the tables INNODB_SYS_*",
            (
                Piece("CREATE TABLE parent (id INT NOT NULL,", until="INSERT INTO parent VALUES(1);"),
                Piece("DROP TABLE child;", until="INSERT INTO parent VALUES(1, 9);"),
                Piece("DROP TABLE child;", "DROP TABLE parent;"),
            ),
        ),
        "innodb_i_s_innodb_trx": Taken(
            "of the columns of INNODB_TRX",
            (
                Piece("CREATE TABLE t1 (", until="SET autocommit=0;"),
                Piece("SET FOREIGN_KEY_CHECKS = 0;", until="SET GLOBAL innodb_lock_wait_timeout=@save_timeout;"),
            ),
            said=(
                # InnoDB's answer is up to 0.1 s old, and has a transaction whose connection is gone.
                Said(r"^(?:-- )?disconnect con_trx;?\n"),
                Said(r"^((?:-- )?disconnect con_)(verify_innodb_trx)(;?)$", r"\1\2\3\n\1trx\3"),
            ),
        ),
        "innodb-wl5522-1": Taken(
            "copies the files of tables under FLUSH TABLES ... WITH READ LOCK; a file is written FOR EXPORT alone",
            (
                Piece(
                    "CREATE TABLE testdb_wl5522.t1_fk (",
                    "SET AUTOCOMMIT = 1;",
                    lead=(
                        "CREATE DATABASE testdb_wl5522;",
                        "CREATE TABLE testdb_wl5522.t1 (col_1_int INT, col_2_varchar VARCHAR (20) PRIMARY KEY) ENGINE = InnoDB;",
                    ),
                ),
            ),
            (INNODB, "--source include/not_embedded.inc", "let MYSQLD_DATADIR =`SELECT @@datadir`;"),
            ("DROP DATABASE testdb_wl5522;",),
        ),
        "instant_alter": Taken(
            "of InnoDB's format of rows after ALGORITHM=INSTANT",
            (
                Piece(
                    "CREATE TABLE t2 (b INT PRIMARY KEY, FOREIGN KEY(b) REFERENCES t1(a))",
                    "DROP TABLE t2, t1;",
                    lead=("CREATE TABLE t1 (a INT PRIMARY KEY) ENGINE=InnoDB;",),
                ),
                Piece("# MDEV-25630", "DROP TABLE t1, t2;"),
            ),
            (INNODB, "let $engine= ENGINE=InnoDB ROW_FORMAT=REDUNDANT;"),
        ),
        "instant_alter_bugs": Taken(
            "of InnoDB's format of rows after ALGORITHM=INSTANT",
            (Piece("# MDEV-19630", "DROP TABLE t2, t1;"), Piece("# MDEV-20938", "DROP TABLE t2, t1;")),
        ),
        "instant_alter_charset": Taken(
            "of columns changed with ALGORITHM=INSTANT, and the tables INNODB_SYS_*",
            (Piece("# MDEV-22775", "drop table t1;"),),
        ),
        "lock_insert_into_empty": Taken(
            "of InnoDB's bulk insert and its locks on the tables mysql.innodb_*",
            (Piece("# MDEV-24700", "DROP TABLE t1;"),),
        ),
        "monitor": Taken(
            "of the counters of InnoDB",
            (
                Piece("CREATE TABLE fl0 (", until="CREATE TABLE t1(id INT PRIMARY KEY, a INT, b CHAR(1)"),
                Piece("# Records must not be S-locked for foreign keys", until="SET autocommit = default;"),
                Piece("DROP TABLE fl2;", "DROP TABLE fl0;"),
            ),
            said=(
                Said(r"^SET @(start|end) = .*\n"),
                Said(r"^SELECT @end - @start;\n(@end - @start\n\d+\n)?"),
            ),
        ),
        "rename_table": Taken("of the names of .ibd files", (Piece("# MDEV-25509"),)),
        "table_flags": Taken(
            "writes into .ibd files",
            (Piece("call mtr.add_suppression(\"ERROR HY000: Can't create", until="#"),),
        ),
        "temporary_table": Taken(
            "of the size of InnoDB's temporary tablespace", (Piece("# MDEV-15874", until="CREATE TABLE t (c INT)"),)
        ),
        "xa_recovery": Taken(
            "starts the server with innodb_force_recovery",
            (
                Piece("CREATE TABLE t1 (a INT PRIMARY KEY)", "INSERT INTO t1 VALUES (1);"),
                Piece("CREATE TABLE t3(a INT PRIMARY KEY REFERENCES t1(a))"),
            ),
            (
                INNODB,
                "--source include/not_embedded.inc",
                "--disable_query_log",
                'call mtr.add_suppression("Found 1 prepared XA transactions");',
                "--enable_query_log",
            ),
        ),
    },
    "gcol": {
        "innodb_virtual_basic": Taken(
            "most of its ALTER statements demand ALGORITHM=INPLACE; INNODB_SYS_VIRTUAL, FULLTEXT and SPATIAL indexes",
            (
                Piece("CREATE INDEX idx ON t1(a);", "DROP TABLE t1;", lead=("CREATE TABLE t1(a INT);",)),
                Piece("CREATE TABLE parent", "DROP TABLE parent;"),
                Piece("CREATE TABLE `ibstd_16` (", "DROP TABLE ibstd_16;"),
            ),
            (INNODB, "--disable_query_log", "SET default_storage_engine=InnoDB;", "--enable_query_log"),
        ),
    },
    "versioning": {
        "online": Taken(
            "of history by transaction ids, LOCK=NONE and INNODB_SYS_COLUMNS; some of it needs a debug server",
            (
                Piece(
                    "# MDEV-17038",
                    "drop table t1;",
                    lead=(
                        "set system_versioning_alter_history=keep;",
                        "create or replace table t (a int, b int, key(a)) with system versioning;",
                    ),
                ),
            ),
            ("--source suite/versioning/innodb.inc",),
            ("drop table t;",),
        ),
    },
    "main": {
        "alter_table": Taken(
            "most of it demands ALGORITHM=INPLACE or LOCK=NONE, and FULLTEXT indexes",
            (
                Piece(
                    "ALTER TABLE t2 ADD FOREIGN KEY IF NOT EXISTS fk(id)",
                    until="CREATE TABLE t2 (",
                    lead=(
                        "CREATE TABLE t1 (id INT(11) NOT NULL, x_param INT(11) DEFAULT NULL, PRIMARY KEY (id)) ENGINE=INNODB;",
                        "CREATE TABLE t2 (id INT(11) NOT NULL) ENGINE=INNODB;",
                    ),
                ),
                Piece("# MDEV-15308", until="# MDEV-14668", lead=("DROP TABLE t1;",)),
                Piece("# MDEV-17599", "DROP TABLE t2, t1;"),
                Piece("# MDEV-33313", "drop table t1, t2;"),
            ),
        ),
        "drop_table_force": Taken(
            "removes the .ibd files of tables",
            (Piece("#Test6", until="#Test7"), Piece("#Test9", until="#Test10")),
            (INNODB, "let $DATADIR= `select @@datadir`;"),
        ),
        "long_unique_bugs": Taken(
            "of indexes that are too long for ROW_FORMAT=COMPACT, and FULLTEXT indexes",
            (Piece("# MDEV-33658", "drop table a;"),),
        ),
        "partition_exchange": Taken(
            "of tables with different ROW_FORMAT, which is one for Ferrite",
            (Piece("# Bug#55784", "DROP TABLE t2, t1, t3;"),),
            (INNODB, PARTITION),
        ),
        "partition_innodb": Taken(
            "of the tables mysql.innodb_*, SHOW ENGINE INNODB STATUS and the number of rows that an ALTER in place tells",
            (Piece("# Bug#50104", "DROP TABLE t1, t2;"), Piece("# Bug#32948", "DROP TABLE t1;")),
            (INNODB, PARTITION),
        ),
    },
}
