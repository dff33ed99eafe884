"""Foreign keys as definitions: what CREATE, ALTER, RENAME, DROP and TRUNCATE accept, refuse and say, as InnoDB."""

from __future__ import annotations

import random
import re
import subprocess
import threading
import time

from corners.env import Env, Session, equal, expect, options

PARENT = "CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT NOT NULL, v VARCHAR(20), u INT UNSIGNED, KEY (a), KEY (b, a), KEY (v), KEY (u))"
CHILD = "CREATE TABLE c (id INT PRIMARY KEY, x INT, y INT NOT NULL, v VARCHAR(10), CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))"

INFORMATION = (
    "SELECT CONSTRAINT_NAME, UNIQUE_CONSTRAINT_SCHEMA, UNIQUE_CONSTRAINT_NAME, MATCH_OPTION, UPDATE_RULE, DELETE_RULE, TABLE_NAME,"
    " REFERENCED_TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA IN ('corners', 'corners2')"
    " ORDER BY 1, BINARY TABLE_NAME",
    "SELECT CONSTRAINT_NAME, TABLE_NAME, COLUMN_NAME, ORDINAL_POSITION, POSITION_IN_UNIQUE_CONSTRAINT, REFERENCED_TABLE_SCHEMA,"
    " REFERENCED_TABLE_NAME, REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA IN ('corners', 'corners2')"
    " ORDER BY 1, BINARY TABLE_NAME, 4",
    "SELECT CONSTRAINT_NAME, TABLE_NAME, CONSTRAINT_TYPE FROM information_schema.TABLE_CONSTRAINTS"
    " WHERE TABLE_SCHEMA IN ('corners', 'corners2') ORDER BY 1, BINARY TABLE_NAME",
    "SELECT * FROM information_schema.{e}_SYS_FOREIGN WHERE ID LIKE 'corners%' ORDER BY ID",
    "SELECT * FROM information_schema.{e}_SYS_FOREIGN_COLS WHERE ID LIKE 'corners%' ORDER BY ID, POS",
)


def _plain(answer: object) -> object:
    """An answer without the engine's name."""
    return repr(answer).replace("InnoDB", "ENGINE").replace("FERRITE", "ENGINE") if isinstance(answer, list) else answer


ALTERED = re.compile(r"ALTER (?:IGNORE )?TABLE (?:(\w+)\.)?(\w+) ")
FILLED = re.compile(r"`\w+`\.`#sql-alter[^`]*`")
"""InnoDB's word for the table that an ALTER TABLE fills; Ferrite's is the altered table."""


def _said(session: Session, sql: str = "") -> list[object]:
    """Warnings and errors of the last statement, without what differs by nature."""
    found = []
    altered = ALTERED.match(sql)
    for level, number, text in session.warnings():
        if altered:
            text = FILLED.sub(f"`{altered[1] or 'corners'}`.`{altered[2]}`", text)
        if "which refers to the table, does not fit it" in text:
            continue  # InnoDB gives no reason
        text = text.replace("'corners/", "'")  # InnoDB's ID of a constraint in 1832 and 1833
        words = text.replace("InnoDB", "ENGINE").replace("FERRITE", "ENGINE").split(" ")
        found.append((level, number, " ".join("COPY" if "#sql" in w else w for w in words)))
    return found


def _all_tables(session: Session, engine: str) -> list[object]:
    """SHOW CREATE TABLE of all tables, and what the views say."""
    found: list[object] = []
    for database in ("corners", "corners2"):
        for (table,) in session.run(
            f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA='{database}' ORDER BY BINARY TABLE_NAME"
        ):
            name = table.replace("`", "``")
            found.append(_plain(session.run(f"SHOW CREATE TABLE `{database}`.`{name}`")))
    found += [session.answer(sql.replace("{e}", engine)) for sql in INFORMATION]
    return found


def _tell(env: Env, stories: dict[str, list[str]]) -> None:
    """Each story begins without tables; every statement must have the same outcome and leave the same definitions."""
    differences = []
    for title, statements in stories.items():
        told: dict[str, list[object]] = {}
        for engine in ("INNODB", "FERRITE"):
            session, other = env.session(), env.session()
            session.run("SET foreign_key_checks=0, default_storage_engine=" + engine)
            session.run("CREATE OR REPLACE DATABASE corners")
            session.run("CREATE OR REPLACE DATABASE corners2")
            session.run("USE corners")
            session.run("SET foreign_key_checks=1")
            told[engine] = []
            for sql in statements:
                answer = session.answer(sql.replace("{E}", engine))
                said = _said(session, sql)
                told[engine].append((sql, _plain(answer), said))
                told[engine].append((sql, _all_tables(other, engine)))
            session.run("SET foreign_key_checks=0")
            session.run("DROP DATABASE corners2")
            session.run("CREATE OR REPLACE DATABASE corners")
            session.close()
            other.close()
        for a, b in zip(told["INNODB"], told["FERRITE"], strict=True):
            if a != b:
                differences.append(f"{title}:\n  InnoDB {a}\n  Ferrite {b}")
                break
    expect(not differences, f"{len(differences)} of {len(stories)} stories differ:\n" + "\n".join(differences))


def scenario_accepted_and_refused(env: Env) -> None:
    """CREATE TABLE: types, indexes, actions, names, missing parents."""
    one = "CREATE TABLE c (id INT PRIMARY KEY, x {t}, FOREIGN KEY (x) REFERENCES p ({c}){o})"
    types = {
        "int": ("INT", "id"),
        "unsigned": ("INT UNSIGNED", "id"),
        "unsigned both": ("INT UNSIGNED", "u"),
        "bigint": ("BIGINT", "id"),
        "not unique": ("INT", "a"),
        "second of two": ("INT", "b"),
        "no index": ("INT", "x"),
        "shorter text": ("VARCHAR(5)", "v"),
        "char": ("CHAR(5)", "v"),
        "other collation": ("VARCHAR(20) COLLATE utf8mb4_bin", "v"),
        "other charset": ("VARCHAR(20) CHARACTER SET latin1", "v"),
        "date": ("DATE", "id"),
        "float": ("FLOAT", "id"),
        "text": ("TEXT", "v"),
    }
    stories = {k: [PARENT, one.format(t=t, c=c, o="")] for k, (t, c) in types.items()}
    actions = ("RESTRICT", "NO ACTION", "CASCADE", "SET NULL", "SET DEFAULT")
    for action in actions:
        for on in ("DELETE", "UPDATE"):
            stories[f"{on} {action}"] = [PARENT, one.format(t="INT", c="id", o=f" ON {on} {action}")]
            stories[f"{on} {action} NOT NULL"] = [PARENT, one.format(t="INT NOT NULL", c="id", o=f" ON {on} {action}")]
    stories |= {
        "all together": [
            PARENT,
            CHILD,
            "ALTER TABLE c ADD CONSTRAINT g FOREIGN KEY (y, x) REFERENCES p (b, a) ON DELETE CASCADE ON UPDATE NO ACTION",
        ],
        "names": [
            PARENT,
            "CREATE TABLE c (x INT, y INT, z INT, FOREIGN KEY (x) REFERENCES p (id), CONSTRAINT `my-key` FOREIGN KEY (y) REFERENCES p (a), FOREIGN KEY named (z) REFERENCES p (id))",
            "CREATE TABLE d (x INT, FOREIGN KEY (x) REFERENCES p (id), FOREIGN KEY (x) REFERENCES p (a), CONSTRAINT d_ibfk_7 FOREIGN KEY (x) REFERENCES p (id))",
            "ALTER TABLE d ADD FOREIGN KEY (x) REFERENCES p (id)",
            "ALTER TABLE d DROP FOREIGN KEY d_ibfk_8, ADD FOREIGN KEY (x) REFERENCES p (id)",
        ],
        "same name": [PARENT, CHILD, "CREATE TABLE d (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))"],
        "same name in another case": [
            PARENT,
            CHILD,
            "CREATE TABLE d (x INT, CONSTRAINT F FOREIGN KEY (x) REFERENCES p (id))",
        ],
        "same name in another database": [
            PARENT,
            CHILD,
            "CREATE TABLE corners2.d (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES corners.p (id))",
        ],
        "same name by alter": [
            PARENT,
            CHILD,
            "CREATE TABLE d (x INT, KEY (x))",
            "ALTER TABLE d ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id)",
        ],
        "same name twice": [
            PARENT,
            "CREATE TABLE d (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id), CONSTRAINT f FOREIGN KEY (x) REFERENCES p (a))",
        ],
        "same name as its own": [PARENT, CHILD, "ALTER TABLE c ADD CONSTRAINT f FOREIGN KEY (y) REFERENCES p (b)"],
        "same name as its own, by copy": [
            PARENT,
            "CREATE TABLE d (x INT PRIMARY KEY, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))",
            "ALTER TABLE d ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id)",
            "ALTER TABLE d ADD CONSTRAINT F FOREIGN KEY (x) REFERENCES p (id)",
            "ALTER TABLE d ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES nix (id)",
            "ALTER TABLE d ADD CONSTRAINT g FOREIGN KEY (x) REFERENCES p (id), ADD CONSTRAINT g FOREIGN KEY (x) REFERENCES p (id)",
            "ALTER TABLE d ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id), ADD z INT FIRST, RENAME TO e",
        ],
        "same name as its own, in place": [
            PARENT,
            "CREATE TABLE d (x INT PRIMARY KEY, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))",
            "SET foreign_key_checks=0",
            "ALTER TABLE d ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id)",
            "ALTER TABLE d ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id), ALGORITHM=COPY",
            "ALTER TABLE d ADD CONSTRAINT g FOREIGN KEY (x) REFERENCES p (id), ADD CONSTRAINT g FOREIGN KEY (x) REFERENCES p (id)",
        ],
        "same name by alter, in place": [
            PARENT,
            CHILD,
            "CREATE TABLE d (x INT, KEY (x))",
            "SET foreign_key_checks=0",
            "ALTER TABLE d ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id)",
            "ALTER TABLE d ADD CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id), ALGORITHM=COPY",
        ],
        "missing parent": [CHILD],
        "missing parent without checks": ["SET foreign_key_checks=0", CHILD, "SET foreign_key_checks=1", PARENT],
        "parent comes and does not fit": [
            "SET foreign_key_checks=0",
            CHILD,
            "SET foreign_key_checks=1",
            "CREATE TABLE p (id BIGINT PRIMARY KEY)",
            "CREATE TABLE p (id INT)",
            PARENT,
        ],
        "parent comes without the column": [
            "SET foreign_key_checks=0",
            CHILD,
            "SET foreign_key_checks=1",
            "CREATE TABLE p (i INT PRIMARY KEY)",
        ],
        "parent comes without checks": ["SET foreign_key_checks=0", CHILD, "CREATE TABLE p (id BIGINT PRIMARY KEY)"],
        "misfit without checks": [PARENT, "SET foreign_key_checks=0", one.format(t="BIGINT", c="id", o="")],
        "parent of another engine": ["CREATE TABLE p (id INT PRIMARY KEY) ENGINE=ARIA", CHILD],
        "temporary": [PARENT, CHILD.replace("TABLE", "TEMPORARY TABLE")],
        "temporary parent": [PARENT.replace("TABLE", "TEMPORARY TABLE"), CHILD],
        "partitioned": [PARENT, CHILD + " PARTITION BY HASH (id)"],
        "partitioned parent": ["CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY HASH (id)", CHILD],
        "itself": [
            "CREATE TABLE c (id INT PRIMARY KEY, x INT, FOREIGN KEY (x) REFERENCES c (id) ON DELETE CASCADE)",
            "TRUNCATE c",
            "ALTER TABLE c ADD z INT FIRST",
            "RENAME TABLE c TO d",
            "DROP TABLE d",
        ],
        "itself by the same index": ["CREATE TABLE c (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES c (id))"],
        "itself by another index": [
            "CREATE TABLE c (id INT PRIMARY KEY, KEY (id), FOREIGN KEY (id) REFERENCES c (id))"
        ],
        "without columns": [
            PARENT,
            "CREATE TABLE c (id INT, FOREIGN KEY (id) REFERENCES p)",
            "CREATE TABLE c (id INT, FOREIGN KEY (id) REFERENCES p (id, a))",
        ],
        "own column missing": [PARENT, "CREATE TABLE c (id INT, FOREIGN KEY (z) REFERENCES p (id))"],
        "by the primary key's tail": [
            PARENT,
            "CREATE TABLE c (x INT, y INT, KEY (x, y), FOREIGN KEY (x, y) REFERENCES p (a, id))",
        ],
        "prefix index": [
            "CREATE TABLE p (v VARCHAR(20), KEY (v(5)))",
            "CREATE TABLE c (v VARCHAR(20), FOREIGN KEY (v) REFERENCES p (v))",
        ],
        "own prefix index": [PARENT, "CREATE TABLE c (v VARCHAR(20), KEY (v(5)), FOREIGN KEY (v) REFERENCES p (v))"],
        "descending": [
            "CREATE TABLE p (a INT, KEY (a DESC))",
            "CREATE TABLE c (a INT, KEY (a), FOREIGN KEY (a) REFERENCES p (a))",
        ],
        "virtual": [
            PARENT,
            "CREATE TABLE c (a INT, b INT AS (a + 1) VIRTUAL, FOREIGN KEY (b) REFERENCES p (id))",
            "CREATE TABLE d (a INT, b INT AS (a + 1) VIRTUAL, FOREIGN KEY (b) REFERENCES p (id) ON UPDATE CASCADE)",
        ],
        "stored": [
            PARENT,
            "CREATE TABLE c (a INT, b INT AS (a + 1) STORED, FOREIGN KEY (b) REFERENCES p (id) ON DELETE CASCADE)",
        ],
        "base of stored": [
            PARENT,
            *(
                f"CREATE TABLE c{n} (a INT, b INT AS (a + 1) STORED, FOREIGN KEY (a) REFERENCES p (id) {o})"
                for n, o in enumerate(
                    (
                        "",
                        "ON DELETE CASCADE",
                        "ON DELETE SET NULL",
                        "ON UPDATE CASCADE",
                        "ON UPDATE SET NULL",
                        "ON UPDATE NO ACTION",
                    )
                )
            ),
        ],
        "base of virtual": [
            PARENT,
            "CREATE TABLE c (a INT, b INT AS (a + 1) VIRTUAL, KEY (b), FOREIGN KEY (a) REFERENCES p (id) ON DELETE CASCADE)",
        ],
        "quoted": [
            "CREATE TABLE `p-1` (`a b` INT PRIMARY KEY)",
            "CREATE TABLE `c x` (`é` INT, FOREIGN KEY (`é`) REFERENCES `p-1` (`a b`))",
            "CREATE TABLE `c y` (a INT, FOREIGN KEY (a) REFERENCES `nö` (`ü`))",
        ],
        "like": [PARENT, CHILD, "CREATE TABLE d LIKE c"],
        "select": [
            PARENT,
            "INSERT INTO p VALUES (1, 1, 1, 'a', 1)",
            "CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id)) SELECT 1 AS x",
        ],
        "column syntax": [PARENT, "CREATE TABLE c (x INT REFERENCES p (id), y INT)"],
        "too long a name": [PARENT, "CREATE TABLE " + "t" * 62 + " (x INT, FOREIGN KEY (x) REFERENCES p (id))"],
    }
    _tell(env, stories)


def scenario_changes_of_tables(env: Env) -> None:
    """ALTER, RENAME, DROP, TRUNCATE of children and parents."""
    both = [PARENT, CHILD]
    off = "SET foreign_key_checks=0"
    stories = {
        "drop parent": [*both, "DROP TABLE p", "DROP TABLE p, c", "DROP TABLE c, p"],
        "drop both": [*both, "DROP TABLE c, p"],
        "drop parent without checks": [
            *both,
            off,
            "DROP TABLE p",
            "SHOW CREATE TABLE c",
            PARENT,
            "SHOW CREATE TABLE c",
            "TRUNCATE p",
        ],
        "drop parent of another database": [
            "CREATE TABLE corners2.p (id INT PRIMARY KEY)",
            "CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES corners2.p (id))",
            "DROP DATABASE corners2",
            "DROP TABLE c",
            "DROP DATABASE corners2",
            "CREATE DATABASE corners2",
        ],
        "drop database of both": [
            "CREATE TABLE corners2.p (id INT PRIMARY KEY)",
            "CREATE TABLE corners2.c (x INT, FOREIGN KEY (x) REFERENCES p (id))",
            "CREATE TABLE corners2.a (x INT, FOREIGN KEY (x) REFERENCES p (id))",
            "DROP DATABASE corners2",
            "CREATE DATABASE corners2",
        ],
        "truncate": [
            *both,
            "TRUNCATE c",
            "TRUNCATE p",
            off,
            "TRUNCATE p",
            "SET foreign_key_checks=1",
            "SHOW CREATE TABLE c",
            "DROP TABLE p",
        ],
        "replace": [
            *both,
            "CREATE OR REPLACE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id))",
            "CREATE OR REPLACE TABLE p (id INT PRIMARY KEY)",
        ],
        "rename child": [
            *both,
            "RENAME TABLE c TO d",
            "RENAME TABLE d TO corners2.d",
            "RENAME TABLE corners2.d TO e",
            "DROP TABLE p",
        ],
        "rename child with a made name": [
            PARENT,
            "CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id), CONSTRAINT c_ibfk_x FOREIGN KEY (x) REFERENCES p (id))",
            "RENAME TABLE c TO d",
            "ALTER TABLE d RENAME TO e",
            "ALTER TABLE e ADD z INT FIRST, RENAME TO g",
        ],
        "rename parent": [
            *both,
            "RENAME TABLE p TO q",
            "DROP TABLE q",
            "RENAME TABLE q TO corners2.q",
            "ALTER TABLE corners2.q RENAME TO corners.p",
            "DROP TABLE p",
        ],
        "rename both": [*both, "RENAME TABLE p TO q, c TO p", "SHOW CREATE TABLE p"],
        "swap": [*both, "CREATE TABLE q LIKE p", "RENAME TABLE p TO t, q TO p, t TO q", "SHOW CREATE TABLE c"],
        "rename to a name that is waited for": [
            off,
            CHILD,
            "CREATE TABLE x (id INT PRIMARY KEY)",
            "CREATE TABLE y (id BIGINT PRIMARY KEY)",
            "RENAME TABLE y TO p",
            "SET foreign_key_checks=1",
            "RENAME TABLE y TO p",
            "RENAME TABLE x TO p",
            "DROP TABLE p",
        ],
        "rename a missing parent's child": [off, CHILD, "RENAME TABLE c TO d", PARENT],
        "drop foreign key": [*both, "ALTER TABLE c DROP FOREIGN KEY f", "DROP TABLE p"],
        "drop foreign key in any case": [*both, "ALTER TABLE c DROP FOREIGN KEY F"],
        "drop constraint": [*both, "ALTER TABLE c DROP CONSTRAINT f"],
        "drop a missing one": [
            *both,
            "ALTER TABLE c DROP FOREIGN KEY g",
            "ALTER TABLE c DROP FOREIGN KEY IF EXISTS g",
            "ALTER TABLE p DROP FOREIGN KEY f",
        ],
        "drop and add": [
            *both,
            "ALTER TABLE c DROP FOREIGN KEY f, ADD CONSTRAINT g FOREIGN KEY (y) REFERENCES p (b)",
            "ALTER TABLE c DROP FOREIGN KEY g, ADD CONSTRAINT g FOREIGN KEY (x) REFERENCES p (a) ON DELETE CASCADE",
        ],
        "drop in place": [*both, "ALTER TABLE c DROP FOREIGN KEY f, ALGORITHM=INPLACE"],
        "drop by copy": [*both, "ALTER TABLE c DROP FOREIGN KEY f, ALGORITHM=COPY"],
        "add in place": [
            PARENT,
            "CREATE TABLE c (x INT, KEY (x))",
            "ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (id), ALGORITHM=INPLACE",
            off,
            "ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (id), ALGORITHM=INPLACE",
            "ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES q (id), ALGORITHM=INPLACE",
            "ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (u), ALGORITHM=INPLACE",
        ],
        "add": [
            PARENT,
            "CREATE TABLE c (x INT, y VARCHAR(10))",
            "ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (id)",
            "ALTER TABLE c ADD FOREIGN KEY (y) REFERENCES p (id)",
            "ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES q (id)",
            "ALTER TABLE c ADD CONSTRAINT FOREIGN KEY (y) REFERENCES p (nix)",
        ],
        "copy of child": [
            *both,
            "ALTER TABLE c ADD z INT FIRST, ALGORITHM=COPY",
            "ALTER TABLE c ENGINE={E}",
            "OPTIMIZE TABLE c",
            "DROP TABLE p",
        ],
        "copy of parent": [
            *both,
            "ALTER TABLE p ADD z INT FIRST, ALGORITHM=COPY",
            "ALTER TABLE p FORCE, ALGORITHM=COPY",
            "DROP TABLE p",
            "TRUNCATE p",
        ],
        "copy and rename of parent": [
            *both,
            "ALTER TABLE p ADD z INT FIRST, RENAME TO q, ALGORITHM=COPY",
            "SHOW CREATE TABLE c",
            "DROP TABLE q",
        ],
        "copy and rename of parent without checks": [
            *both,
            off,
            "ALTER TABLE p ADD z INT FIRST, RENAME TO q, ALGORITHM=COPY",
            "SHOW CREATE TABLE c",
        ],
        "drop child's column": [
            *both,
            "ALTER TABLE c DROP x",
            "ALTER TABLE c DROP x, ALGORITHM=COPY",
            "ALTER TABLE c DROP x, DROP FOREIGN KEY f",
        ],
        "drop parent's column": [
            *both,
            "ALTER TABLE p DROP id, ALGORITHM=COPY",
            off,
            "ALTER TABLE p DROP id, ALGORITHM=COPY",
        ],
        "other type of child's column": [
            *both,
            "ALTER TABLE c MODIFY x BIGINT",
            "ALTER TABLE c MODIFY x INT COMMENT 'x'",
            "ALTER TABLE c MODIFY x INT DEFAULT 5",
        ],
        "other type of parent's column": [
            *both,
            "ALTER TABLE p MODIFY id BIGINT",
            off,
            "ALTER TABLE p MODIFY id BIGINT, ALGORITHM=COPY",
        ],
        "not null": [
            PARENT,
            "CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id) ON DELETE SET NULL)",
            "ALTER TABLE c MODIFY x INT NOT NULL",
            "ALTER TABLE c MODIFY x INT NOT NULL, ALGORITHM=COPY",
        ],
        "rename child's column": [
            *both,
            "ALTER TABLE c CHANGE x xx INT",
            "ALTER TABLE c RENAME COLUMN xx TO X",
            "ALTER TABLE c CHANGE X zz INT, ALGORITHM=COPY",
        ],
        "spell a column otherwise": [
            PARENT,
            "CREATE TABLE c (Xx INT, FOREIGN KEY (xX) REFERENCES p (ID))",
            "ALTER TABLE p RENAME COLUMN id TO Id",
            "ALTER TABLE c RENAME COLUMN Xx TO xx",
            "ALTER TABLE c ADD FOREIGN KEY (XX) REFERENCES p (A)",
        ],
        "rename parent's column": [
            *both,
            "ALTER TABLE p CHANGE id key_ INT NOT NULL",
            "ALTER TABLE p RENAME COLUMN key_ TO id",
            "ALTER TABLE p RENAME COLUMN id TO k, ALGORITHM=COPY",
        ],
        "swap column names": [
            "CREATE TABLE p (a INT, b INT, KEY (a, b))",
            "CREATE TABLE c (x INT, y INT, FOREIGN KEY (x, y) REFERENCES p (a, b))",
            "ALTER TABLE p RENAME COLUMN a TO b, RENAME COLUMN b TO a",
            "ALTER TABLE c RENAME COLUMN x TO y, RENAME COLUMN y TO x",
        ],
        "rename own column in itself": [
            "CREATE TABLE c (id INT PRIMARY KEY, x INT, FOREIGN KEY (x) REFERENCES c (id))",
            "ALTER TABLE c RENAME COLUMN id TO k, RENAME COLUMN x TO id",
        ],
        "drop child's index": [
            *both,
            "ALTER TABLE c DROP INDEX f",
            "DROP INDEX f ON c",
            "ALTER TABLE c DROP INDEX f, ADD INDEX g (x, y)",
            "ALTER TABLE c DROP INDEX g, DROP FOREIGN KEY f",
        ],
        "drop parent's index": [
            *both,
            "ALTER TABLE p DROP PRIMARY KEY",
            "ALTER TABLE p DROP PRIMARY KEY, ADD UNIQUE q (id)",
            "ALTER TABLE p DROP INDEX q, ADD PRIMARY KEY (id)",
        ],
        "drop an index beside one that the primary key completes": [
            "CREATE TABLE p (x INT PRIMARY KEY, b INT NOT NULL, z INT, v VARCHAR(9), KEY kb (b), KEY kz (z), KEY kx (x, z))",
            "CREATE TABLE c (i INT, j INT, CONSTRAINT f FOREIGN KEY (i, j) REFERENCES p (b, x))",
            "ALTER TABLE p DROP INDEX kz",
            "ALTER TABLE p DROP INDEX kx, RENAME COLUMN b TO bb",
            "ALTER TABLE p DROP INDEX kb",
            "ALTER TABLE p DROP INDEX kb, ADD INDEX kn (bb, v)",
            "ALTER TABLE p DROP INDEX kb, ADD INDEX kn (bb, x, v)",
            "ALTER TABLE p DROP INDEX kn, ADD INDEX kb (bb), ALGORITHM=COPY",
            "ALTER TABLE p DROP INDEX kb, ALGORITHM=COPY",
        ],
        "drop a child's index beside one that the primary key completes": [
            "CREATE TABLE p (x INT, b INT, KEY (b, x))",
            "CREATE TABLE c (j INT PRIMARY KEY, i INT, KEY ki (i), KEY f (i, j), CONSTRAINT f FOREIGN KEY (i, j) REFERENCES p (b, x))",
            "ALTER TABLE c DROP INDEX f",
            "ALTER TABLE c DROP INDEX ki",
            "ALTER TABLE c ADD INDEX f (i, j), DROP INDEX ki",
            "ALTER TABLE c DROP INDEX f",
        ],
        "drop an index beside one that a part of a primary key completes": [
            "CREATE TABLE p (x INT, y INT, b INT, v VARCHAR(9), PRIMARY KEY (x, v(3), y), KEY kb (b), KEY ky (y), KEY kyb (y, b))",
            "CREATE TABLE c (i INT, j INT, CONSTRAINT f FOREIGN KEY (i, j) REFERENCES p (b, x))",
            "CREATE TABLE d (i INT, j INT, CONSTRAINT g FOREIGN KEY (i, j) REFERENCES p (y, b))",
            "CREATE TABLE e (i INT, v VARCHAR(9), CONSTRAINT h FOREIGN KEY (i, v) REFERENCES p (b, v))",
            "ALTER TABLE p DROP INDEX ky",
            "ALTER TABLE p DROP INDEX kyb",
            "ALTER TABLE p DROP INDEX kb",
        ],
        "rename an index": [
            *both,
            "ALTER TABLE c RENAME INDEX f TO g",
            "ALTER TABLE p DROP PRIMARY KEY, ADD UNIQUE q (id)",
            "ALTER TABLE p RENAME INDEX q TO r",
        ],
        "other engine": [
            *both,
            "ALTER TABLE c ENGINE=ARIA",
            "ALTER TABLE p ENGINE=ARIA",
            "ALTER TABLE c PARTITION BY HASH (id)",
            off,
            "ALTER TABLE c ENGINE=ARIA",
        ],
        "other character set": [
            *both,
            "ALTER TABLE c ADD FOREIGN KEY (v) REFERENCES p (v)",
            "ALTER TABLE c CONVERT TO CHARACTER SET latin1",
            "ALTER TABLE p CONVERT TO CHARACTER SET latin1",
        ],
        "primary key": [
            *both,
            "ALTER TABLE c DROP PRIMARY KEY, ADD PRIMARY KEY (y)",
            "ALTER TABLE p DROP PRIMARY KEY, ADD PRIMARY KEY (b), ADD KEY (id)",
        ],
        "comment": [*both, "ALTER TABLE c COMMENT='x'", "ALTER TABLE p COMMENT='x'", "ALTER TABLE p AUTO_INCREMENT=5"],
        "null follows": [
            "CREATE TABLE p (id INT PRIMARY KEY, a INT, KEY (a))",
            "CREATE TABLE c (x INT NOT NULL, FOREIGN KEY (x) REFERENCES p (a) ON UPDATE CASCADE)",
            "SET sql_mode=''",
            "CREATE TABLE c (x INT NOT NULL, FOREIGN KEY (x) REFERENCES p (a) ON UPDATE CASCADE)",
            "CREATE TABLE d (x INT, FOREIGN KEY (x) REFERENCES p (a) ON UPDATE SET NULL)",
            "ALTER TABLE d MODIFY x INT NOT NULL, ALGORITHM=COPY",
            "SET sql_mode=DEFAULT",
        ],
        "null may follow": [
            "CREATE TABLE p (id INT PRIMARY KEY, a INT, KEY (a))",
            *(
                sql
                for action in ("CASCADE", "SET NULL", "NO ACTION", "RESTRICT", "SET DEFAULT")
                for sql in (
                    f"CREATE TABLE c (x INT NOT NULL, FOREIGN KEY (x) REFERENCES p (a) ON UPDATE CASCADE ON DELETE {action})",
                    "REPLACE INTO p VALUES (1, 1)",
                    "INSERT INTO c VALUES (1)",
                    "UPDATE p SET a=NULL",
                    "SELECT p.a, c.x FROM p, c",
                    "DROP TABLE IF EXISTS c",
                )
            ),
        ],
        "longer columns": [
            PARENT,
            "CREATE TABLE c (v VARCHAR(10), w VARCHAR(10), KEY (w), CONSTRAINT f FOREIGN KEY (v) REFERENCES p (v))",
            "ALTER TABLE c MODIFY v VARCHAR(20), ALGORITHM=INPLACE",
            "ALTER TABLE c MODIFY v VARCHAR(20)",
            "ALTER TABLE p MODIFY v VARCHAR(30), ALGORITHM=INPLACE",
            "ALTER TABLE c MODIFY w VARCHAR(20), ADD FOREIGN KEY (w) REFERENCES p (v), ALGORITHM=INPLACE",
            "ALTER TABLE c MODIFY w VARCHAR(20) CHARACTER SET utf16, ADD FOREIGN KEY (w) REFERENCES p (v), ALGORITHM=INPLACE",
            "ALTER TABLE c MODIFY w VARCHAR(20) CHARACTER SET utf16, ADD FOREIGN KEY (w) REFERENCES p (v)",
            off,
            "ALTER TABLE c MODIFY v VARCHAR(20), ALGORITHM=INPLACE",
            "ALTER TABLE c MODIFY w VARCHAR(20), ADD FOREIGN KEY (w) REFERENCES p (v), ALGORITHM=INPLACE",
            "ALTER TABLE c MODIFY w VARCHAR(20), ALGORITHM=INPLACE",
            "ALTER TABLE c MODIFY v VARCHAR(20), DROP FOREIGN KEY f, ALGORITHM=INPLACE",
        ],
        "lock tables": [
            *both,
            "INSERT INTO p VALUES (1, 1, 1, 'a', 1), (2, 2, 2, 'b', 2)",
            "LOCK TABLES c WRITE, p WRITE",
            "ALTER TABLE c ADD z INT FIRST, ALGORITHM=COPY",
            "ALTER TABLE p ADD z INT FIRST, ALGORITHM=COPY",
            "ALTER TABLE c RENAME COLUMN x TO xx, ALGORITHM=INPLACE",
            "ALTER TABLE p RENAME COLUMN id TO k, ALGORITHM=INPLACE",
            "INSERT INTO c VALUES (0, 1, 1, 1, 'x')",
            "INSERT INTO c VALUES (0, 2, 3, 1, 'x')",
            "DELETE FROM p WHERE k = 1",
            "DELETE FROM p WHERE k = 2",
            "ALTER TABLE c DROP FOREIGN KEY f",
            "DELETE FROM p",
            "UNLOCK TABLES",
        ],
        "lock tables, only the child": [
            *both,
            "LOCK TABLES c WRITE",
            "ALTER TABLE c ADD z INT FIRST, ALGORITHM=COPY",
            "ALTER TABLE c DROP FOREIGN KEY f",
            "UNLOCK TABLES",
        ],
        "drop indexes of several constraints": [
            "CREATE TABLE p (a INT, b INT, KEY k1 (a), KEY k2 (a, b), KEY k3 (b))",
            "CREATE TABLE c (x INT, y INT, KEY k1 (x), KEY k2 (x, y), FOREIGN KEY (x) REFERENCES p (a), FOREIGN KEY (y) REFERENCES p (b))",
            "ALTER TABLE c DROP INDEX k1",
            "ALTER TABLE c DROP INDEX k2",
            "ALTER TABLE p DROP INDEX k2",
            "ALTER TABLE p DROP INDEX k1",
            "ALTER TABLE p DROP INDEX k3, DROP INDEX k1",
        ],
        "drop indexes by copy": [
            *both,
            "ALTER TABLE c DROP INDEX f, ALGORITHM=COPY",
            "ALTER TABLE p DROP PRIMARY KEY, ALGORITHM=COPY",
            "SHOW CREATE TABLE c",
            off,
            "ALTER TABLE p DROP PRIMARY KEY, ALGORITHM=COPY",
            "INSERT INTO c VALUES (1, 1, 1, 'x')",
            "SET foreign_key_checks=1",
            "INSERT INTO c VALUES (2, 1, 1, 'x')",
        ],
        "rename columns by copy": [
            "CREATE TABLE c (id INT PRIMARY KEY, x INT, FOREIGN KEY (x) REFERENCES c (id))",
            "ALTER TABLE c RENAME COLUMN id TO k, ALGORITHM=COPY",
            "ALTER TABLE c RENAME COLUMN x TO y, ALGORITHM=COPY",
        ],
        "create or replace a parent that is waited for": [
            off,
            CHILD,
            "SET foreign_key_checks=1",
            "CREATE OR REPLACE TABLE p (id BIGINT PRIMARY KEY)",
            "CREATE OR REPLACE TABLE p (id INT PRIMARY KEY)",
            "CREATE OR REPLACE TABLE p (id INT PRIMARY KEY)",
            off,
            "CREATE OR REPLACE TABLE p (id INT PRIMARY KEY, z INT)",
        ],
        "replace by like and select": [
            *both,
            "CREATE OR REPLACE TABLE c LIKE p",
            "CREATE TABLE d LIKE c",
            "CREATE TABLE e SELECT * FROM p",
        ],
        "drop parent and child, child first missing": [*both, "DROP TABLE nix, c, p"],
        "drop parent and child, another child remains": [
            *both,
            "CREATE TABLE d (x INT, FOREIGN KEY (x) REFERENCES p (id))",
            "DROP TABLE c, p",
        ],
        "rename parent and drop": [
            *both,
            "RENAME TABLE p TO q",
            "CREATE TABLE p LIKE q",
            "DROP TABLE p",
            "DROP TABLE q",
            "TRUNCATE q",
            "DROP TABLE c",
            "DROP TABLE q",
        ],
        "auto names after renames": [
            PARENT,
            "CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id))",
            "RENAME TABLE c TO d",
            "CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id))",
            "ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (a)",
            "ALTER TABLE c DROP FOREIGN KEY c_ibfk_1, ADD FOREIGN KEY (x) REFERENCES p (a)",
            "RENAME TABLE c TO t, d TO c, t TO d",
        ],
        "rename onto a taken constraint name": [
            PARENT,
            "CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id))",
            "CREATE TABLE d (x INT, CONSTRAINT e_ibfk_1 FOREIGN KEY (x) REFERENCES p (id))",
            "RENAME TABLE c TO e",
            "RENAME TABLE c TO corners2.c",
            "CREATE TABLE c (x INT, CONSTRAINT c_ibfk_1 FOREIGN KEY (x) REFERENCES p (id))",
            "RENAME TABLE corners2.c TO corners.f",
        ],
        "rename to the name of one of its constraints": [
            PARENT,
            "CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id), CONSTRAINT d_ibfk_1 FOREIGN KEY (x) REFERENCES p (id))",
            "RENAME TABLE c TO d",
            "SHOW CREATE TABLE c",
        ],
        "copy and rename without the children's index": [
            *both,
            "ALTER TABLE p DROP PRIMARY KEY, RENAME TO q",
            "ALTER TABLE p DROP PRIMARY KEY, ADD z INT FIRST, RENAME TO q",
            "SHOW CREATE TABLE c",
        ],
        "exchange": [
            "CREATE TABLE p (id INT PRIMARY KEY)",
            "CREATE TABLE t (id INT PRIMARY KEY) PARTITION BY HASH (id)",
            "CREATE TABLE c (id INT PRIMARY KEY, FOREIGN KEY (id) REFERENCES p (id))",
            "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE c",
            "ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE p",
        ],
    }
    _tell(env, stories)


TREE = "CREATE TABLE tree (id INT PRIMARY KEY, up INT, v INT, CONSTRAINT up FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE)"


def scenario_children_follow_a_changed_parent(env: Env) -> None:
    """ALTER TABLE that changes a parent and gives it another name takes the children along, though Ferrite copies where InnoDB does
    not. They kept the old name, and the parent's rows went from under them. With ALGORITHM=COPY InnoDB leaves them, too."""
    child = (
        "CREATE TABLE c (id INT PRIMARY KEY, x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id) ON DELETE CASCADE)"
    )
    rows = ["INSERT INTO p (id, b) VALUES (1, 1), (2, 2)", "INSERT INTO c VALUES (1, 1), (2, 2)"]
    used = [
        "DELETE FROM q WHERE id = 1",
        "SELECT * FROM c",
        "INSERT INTO c VALUES (3, 1)",
        "INSERT INTO c VALUES (4, 2)",
        "DROP TABLE q",
        "TRUNCATE q",
        "RENAME TABLE q TO p",
        "DELETE FROM p",
        "SELECT * FROM c",
    ]
    off = "SET foreign_key_checks=0"
    changes = {
        "a column": "ADD z INT",
        "an index": "ADD INDEX new (v, a)",
        "another primary key": "DROP PRIMARY KEY, ADD PRIMARY KEY (id, b)",
        "a new nullability": "MODIFY b INT",
    }
    stories = {
        title: [PARENT, child, *rows, f"ALTER TABLE p {change}, RENAME TO q", *used]
        for title, change in changes.items()
    }
    add = "ALTER TABLE p ADD z INT FIRST, RENAME TO q"
    stories |= {
        "without checks": [PARENT, child, *rows, off, add, "SET foreign_key_checks=1", *used],
        "to another database": [
            PARENT,
            child,
            *rows,
            "ALTER TABLE p ADD z INT FIRST, RENAME TO corners2.q",
            "DELETE FROM corners2.q WHERE id = 1",
            "SELECT * FROM c",
            "INSERT INTO c VALUES (3, 1)",
            "DROP TABLE corners2.q",
        ],
        "and back": [
            PARENT,
            child,
            *rows,
            "ALTER TABLE p ADD z INT FIRST, RENAME TO q",
            "ALTER TABLE q DROP z, RENAME TO p",
            "ALTER TABLE p ADD z INT FIRST",
            "DELETE FROM p WHERE id = 1",
            "SELECT * FROM c",
        ],
        "a name that is there": [
            PARENT,
            child,
            *rows,
            "CREATE TABLE q (id INT)",
            add,
            "DELETE FROM p",
            "SELECT * FROM c",
        ],
        "itself": [
            TREE,
            "INSERT INTO tree VALUES (1, NULL, 0), (2, 1, 0), (3, 2, 0)",
            "ALTER TABLE tree ADD z INT FIRST, RENAME TO tree2",
            "INSERT INTO tree2 VALUES (0, 4, 9, 0)",
            "DELETE FROM tree2 WHERE id = 1",
            "SELECT * FROM tree2",
            off,
            "ALTER TABLE tree2 DROP z, RENAME TO tree",
            "SET foreign_key_checks=1",
            "INSERT INTO tree VALUES (4, 9, 0)",
            "DROP TABLE tree",
        ],
        "two that refer to each other": [
            off,
            "CREATE TABLE a (id INT PRIMARY KEY, b INT, CONSTRAINT ab FOREIGN KEY (b) REFERENCES b (id))",
            "CREATE TABLE b (id INT PRIMARY KEY, a INT, CONSTRAINT ba FOREIGN KEY (a) REFERENCES a (id))",
            "SET foreign_key_checks=1",
            "ALTER TABLE a ADD z INT FIRST, RENAME TO a2",
            "ALTER TABLE b ADD z INT FIRST, RENAME TO b2",
            "INSERT INTO a2 VALUES (0, 1, 1)",
            "DROP TABLE a2",
        ],
    }
    _tell(env, stories)


def scenario_killed_while_a_copy_takes_another_name(env: Env) -> None:
    """kill -9 while the original is put aside: the server goes on with the ALTER and forgets the original. The children have the
    copy, and nothing is left of the original; it stayed for ever, with all its rows."""
    hits = 0
    end = time.monotonic() + 60
    while hits < 2 and time.monotonic() < end:
        env.fresh_database()
        session = env.session()
        session.run("SET default_storage_engine=FERRITE")
        session.run(PARENT)
        session.run(CHILD)
        session.run("INSERT INTO p (id, b) VALUES (1, 1)")
        session.run("INSERT INTO c (id, x, y) VALUES (1, 1, 1)")
        place = env.datadir / "corners"
        running = session.start("ALTER TABLE p ADD z INT FIRST, RENAME TO q")
        while running.thread.is_alive() and not list(place.glob("#sql-backup*")):
            pass
        if not running.thread.is_alive():
            continue
        env.kill()
        running.thread.join()
        hits += bool(list(place.glob("#sql-backup*")))
        env.start()
        session = env.session()
        for left in place.glob("#sql*.frm"):  # the engine had dropped it, the server not yet its file
            expect(session.error(f"SELECT 1 FROM `#mysql50#{left.stem}`") != 0, "what is put aside is there", left)
        expect("has put table" not in env.log(), "the engine has it", env.log()[-2000:])
        names = session.run("SELECT REF_NAME FROM information_schema.FERRITE_SYS_FOREIGN WHERE ID = 'corners/f'")
        equal(names, [("corners/q",)], "the child's parent")
        equal(session.error("DELETE FROM q"), 1451, "DELETE")
        _sound(session, "q", "c")


@options("--lower-case-table-names=1")
def scenario_lower_case_names(env: Env) -> None:
    """lower_case_table_names=1: names of parents are found in any case, and shown as InnoDB shows them."""
    _tell(
        env,
        {
            "any case": [
                "CREATE TABLE PaRent (Id INT PRIMARY KEY)",
                "CREATE TABLE Child (X INT, CONSTRAINT Fk_1 FOREIGN KEY (x) REFERENCES PARENT (iD) ON DELETE CASCADE)",
                "INSERT INTO PARENT VALUES (1)",
                "INSERT INTO child VALUES (1)",
                "INSERT INTO child VALUES (2)",
                "ALTER TABLE CHILD ADD FOREIGN KEY (x) REFERENCES CORNERS.parenT (id)",
                "ALTER TABLE CHILD RENAME TO Kid",
                "RENAME TABLE Parent TO CORNERS2.Parent",
                "DROP TABLE corners2.PARENT",
                "ALTER TABLE Kid DROP FOREIGN KEY FK_1",
                "TRUNCATE corners2.pArent",
            ],
            "missing": [
                "SET foreign_key_checks=0",
                "CREATE TABLE C (x INT, FOREIGN KEY (x) REFERENCES Missing (Id))",
                "CREATE TABLE MISSING (ID INT PRIMARY KEY)",
                "SET foreign_key_checks=1",
                "INSERT INTO c VALUES (1)",
                "DROP TABLE missing",
            ],
        },
    )


def scenario_case_counts(env: Env) -> None:
    """lower_case_table_names=0: P is not p."""
    _tell(
        env,
        {
            "two tables": [
                PARENT,
                "CREATE TABLE P (id BIGINT PRIMARY KEY)",
                "CREATE TABLE c (x BIGINT, FOREIGN KEY (x) REFERENCES P (id))",
                "CREATE TABLE C (x INT, FOREIGN KEY (x) REFERENCES p (id))",
                "DROP TABLE p",
                "DROP TABLE P",
                "RENAME TABLE p TO t, P TO p, t TO P",
                "DROP TABLE c",
                "DROP TABLE C",
                "DROP TABLE p",
                "DROP TABLE P",
            ]
        },
    )


def scenario_names(env: Env) -> None:
    """Databases, tables, columns and constraints of any characters, as long as names may be."""
    other, long = "`a-b.c é@0023 #`", "ä" * 64
    statements = [
        f"CREATE OR REPLACE DATABASE {other}",
        f"CREATE TABLE {other}.`p/q#sql-1` (`i d` INT PRIMARY KEY, `{long}` INT, KEY (`{long}`))",
        f"CREATE TABLE `{long}` (`{long}` INT, CONSTRAINT `{'ö' * 64}` FOREIGN KEY (`{long}`) REFERENCES {other}.`p/q#sql-1` (`{long}`) ON DELETE CASCADE)",
        f"CREATE TABLE `#sql-x` (a INT, FOREIGN KEY (a) REFERENCES {other}.`p/q#sql-1` (`i d`))",
        f"CREATE TABLE {'t' * 56} (a INT, FOREIGN KEY (a) REFERENCES {other}.`p/q#sql-1` (`i d`))",
        f"CREATE TABLE {'t' * 58} (a INT, FOREIGN KEY (a) REFERENCES {other}.`p/q#sql-1` (`i d`))",
        f"CREATE TABLE {'ü' * 57} (a INT, FOREIGN KEY (a) REFERENCES {other}.`p/q#sql-1` (`i d`))",
        f"INSERT INTO `{long}` VALUES (1)",
        f"INSERT INTO {other}.`p/q#sql-1` VALUES (1, 1)",
        f"INSERT INTO `{long}` VALUES (1)",
        "INSERT INTO `#sql-x` VALUES (1)",
        f"DELETE FROM {other}.`p/q#sql-1`",
        f"DROP TABLE {other}.`p/q#sql-1`",
        f"RENAME TABLE {other}.`p/q#sql-1` TO {other}.`{'ß' * 64}`",
        f"RENAME TABLE `{long}` TO {other}.`{long}`",
        f"SHOW CREATE TABLE {other}.`{long}`",
        "SHOW CREATE TABLE `#sql-x`",
        "SELECT CONSTRAINT_NAME, TABLE_NAME, REFERENCED_TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS ORDER BY 1, 2",
        "SELECT COUNT(*), SUM(N_COLS) FROM information_schema.{E}_SYS_FOREIGN",  # InnoDB's names are cut
        f"DROP DATABASE {other}",
        "DROP TABLE `#sql-x`",
        f"DROP TABLE {'t' * 56}",
        f"DROP DATABASE {other}",
    ]

    def play(engine: str) -> list[object]:
        session = env.session()
        session.run("SET default_storage_engine=" + engine)
        told: list[object] = []
        for sql in statements:
            told.append(_plain(session.answer(sql.replace("{E}", engine))))
            told += _said(session)
        return told

    env.same_as_innodb(play)


def _family(env: Env) -> Session:
    session = env.session()
    session.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("CREATE TABLE p (id INT PRIMARY KEY, v INT)")
    session.run("CREATE TABLE c (id INT PRIMARY KEY, x INT, FOREIGN KEY (x) REFERENCES p (id) ON DELETE CASCADE)")
    session.run("INSERT INTO p VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
    session.run("INSERT INTO c VALUES (1, 1), (2, 2)")
    return session


def _sound(session: Session, *tables: str) -> None:
    for table in tables:
        wanted = [(f"corners.{table}", "check", "status", "OK")]
        equal(session.answer(f"CHECK TABLE {table} EXTENDED"), wanted, f"CHECK TABLE {table}")


def scenario_prepared_parent_beside_ddl(env: Env) -> None:
    """A prepared transaction has deleted a parent and, by cascade, its children: DDL on either waits for it."""
    session = _family(env)
    env.prepare("gone", "DELETE FROM p WHERE id = 1")
    for again in (False, True):
        if again:
            env.crash()
            session = env.session()
            session.run("SET GLOBAL ferrite_lock_wait_timeout=1")
            session = env.session()
        for sql in (
            "DROP TABLE c",
            "TRUNCATE c",
            "ALTER TABLE c ADD z INT FIRST, ALGORITHM=COPY",
            "RENAME TABLE c TO d",
        ):
            equal(session.error(sql), 1205, sql)
        for sql in (
            "ALTER TABLE p ADD z INT FIRST, ALGORITHM=COPY",
            "RENAME TABLE p TO q",
            "INSERT INTO c VALUES (5, 1)",
        ):
            equal(session.error(sql), 1205, sql)
        equal(session.error("TRUNCATE p"), 1701, "TRUNCATE of the parent")
        session.run("CREATE TABLE d (x INT, FOREIGN KEY (x) REFERENCES p (id)) ENGINE=FERRITE")
        equal(session.error("INSERT INTO d VALUES (1)"), 1205, "a new child")
        session.run("INSERT INTO d VALUES (2)")
        session.run("DROP TABLE d")
    session.run("XA ROLLBACK 'gone'")
    equal(session.run("SELECT * FROM c ORDER BY id"), [(1, 1), (2, 2)], "children")
    _sound(session, "p", "c")
    session.run("DROP TABLE c, p")


def scenario_prepared_child_beside_ddl(env: Env) -> None:
    """A prepared transaction has inserted a child: whatever becomes of the parent's definition, its row stays."""
    session = _family(env)
    env.prepare("new", "INSERT INTO c VALUES (7, 4)")
    equal(session.error("DELETE FROM p WHERE id = 4"), 1205, "DELETE")
    session.run("RENAME TABLE p TO q")
    equal(session.error("DELETE FROM q WHERE id = 4"), 1205, "DELETE after RENAME")
    session.run("ALTER TABLE q ADD z INT FIRST, ALGORITHM=COPY")
    equal(session.error("DELETE FROM q WHERE id = 4"), 1205, "DELETE after a copy")
    session.run("ALTER TABLE q RENAME COLUMN id TO k")
    equal(session.error("DROP TABLE q"), 1451, "DROP of the parent")
    equal(
        session.error("ALTER TABLE c ADD FOREIGN KEY (id) REFERENCES q (k), ALGORITHM=COPY"), 1205, "another constraint"
    )
    env.crash()
    session = env.session()
    session.run("SET GLOBAL ferrite_lock_wait_timeout=1")
    session = env.session()
    equal(session.error("DELETE FROM q WHERE k = 4"), 1205, "DELETE after a crash")
    session.run("XA COMMIT 'new'")
    session.run("DELETE FROM q WHERE k = 4")
    equal(session.run("SELECT * FROM c ORDER BY id"), [(1, 1), (2, 2)], "children")
    _sound(session, "q", "c")


def scenario_a_child_comes_while_its_parent_is_emptied(env: Env) -> None:
    """TRUNCATE and DISCARD TABLESPACE, which wait for a prepared transaction, look for children once more when they go on."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    for sql in ("TRUNCATE p", "ALTER TABLE p DISCARD TABLESPACE"):
        session.run("CREATE TABLE p (id INT PRIMARY KEY)")
        session.run("INSERT INTO p VALUES (1)")
        env.prepare("more", "INSERT INTO p VALUES (2)")
        emptier = env.session()
        # Others have left a second as the server's value.
        emptier.run("SET ferrite_lock_wait_timeout = 50")
        running = emptier.start(sql)
        expect(running.waits(), "does not wait", sql)
        session.run("CREATE TABLE c (x INT, CONSTRAINT f FOREIGN KEY (x) REFERENCES p (id))")
        session.run("INSERT INTO c VALUES (1)")
        session.run("XA COMMIT 'more'")
        equal(running.answer(), 1701, sql)
        text = "(`corners`.`c`, CONSTRAINT `f` FOREIGN KEY (`x`) REFERENCES `p` (`id`))"
        expect(emptier.warnings()[0][2].endswith(text), f"what {sql} says", emptier.warnings())
        equal(session.run("SELECT * FROM p"), [(1,), (2,)], f"parents after {sql}")
        _sound(session, "p", "c")
        emptier.run("SET foreign_key_checks=0")
        emptier.run(sql)
        equal(session.run("SELECT * FROM p"), [], f"parents after {sql} without checks")
        session.run("DROP TABLE c, p")


def scenario_add_and_rename(env: Env) -> None:
    """ALTER TABLE that adds a constraint and renames the table keeps those that it has; InnoDB loses them."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run(PARENT)
    session.run("CREATE TABLE c (x INT, FOREIGN KEY (x) REFERENCES p (id))")
    session.run("ALTER TABLE c ADD FOREIGN KEY (x) REFERENCES p (a), RENAME TO d")
    names = "SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE TABLE_NAME = 'd' ORDER BY 1"
    equal(session.run(names), [("d_ibfk_1",), ("d_ibfk_2",)], "constraints")


def scenario_dump_and_load(env: Env) -> None:
    """A dump with foreign keys, children before their parents and in a circle, is loaded as it is."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE, foreign_key_checks=0")
    session.run("CREATE TABLE a (id INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES b (id) ON DELETE SET NULL)")
    session.run("CREATE TABLE b (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON UPDATE CASCADE)")
    session.run(
        "CREATE TABLE c (id INT PRIMARY KEY, up INT, `z-z` INT, FOREIGN KEY (up) REFERENCES c (id), FOREIGN KEY (`z-z`) REFERENCES `z-z` (id))"
    )
    session.run("CREATE TABLE `z-z` (id INT PRIMARY KEY)")
    session.run("INSERT INTO a VALUES (1, 1)")
    session.run("INSERT INTO b VALUES (1, 1)")
    session.run("INSERT INTO c VALUES (1, 2, 3), (2, 1, 3)")
    session.run("INSERT INTO `z-z` VALUES (3)")
    before = _all_tables(session, "FERRITE")
    client = [str(env.server.places.program("mariadb-dump")), f"--socket={env.server.socket}", "--user=root", "corners"]
    dump = subprocess.run(client, env=env.server.places.child_env(), check=True, capture_output=True).stdout
    for table in ("a", "b", "c", "`z-z`"):
        session.run(f"DROP TABLE {table}")
    client = [str(env.server.places.program("mariadb")), f"--socket={env.server.socket}", "--user=root", "corners"]
    subprocess.run(client, env=env.server.places.child_env(), check=True, input=dump)
    equal(_all_tables(env.session(), "FERRITE"), before, "after the dump is loaded")
    equal(env.session().run("SELECT * FROM c ORDER BY id"), [(1, 2, 3), (2, 1, 3)], "rows")


def scenario_many(env: Env) -> None:
    """A thousand constraints in one table, more than 64 KiB of them, and one parent of a thousand tables."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("CREATE TABLE p (id INT PRIMARY KEY)")
    name = "n" * 56
    keys = ", ".join(f"CONSTRAINT {name}{n:04} FOREIGN KEY (x) REFERENCES p (id)" for n in range(1000))
    session.run(f"CREATE TABLE c (x INT, {keys})")
    for n in range(1000):
        session.run(f"CREATE TABLE c{n} (x INT, FOREIGN KEY (x) REFERENCES p (id))")
    session.run("RENAME TABLE p TO q")
    env.crash()
    session = env.session()
    count = "SELECT COUNT(*), COUNT(DISTINCT REF_NAME), MAX(REF_NAME) FROM information_schema.FERRITE_SYS_FOREIGN"
    equal(session.run(count), [(2000, 1, "corners/q")], "after kill -9")
    session.run("ALTER TABLE c DROP FOREIGN KEY " + f"{name}0500")
    session.run("ALTER TABLE q ADD z INT FIRST, ALGORITHM=COPY")
    equal(session.run(count), [(1999, 1, "corners/q")], "after ALTER")
    equal(session.error("DROP TABLE q"), 1451, "DROP of the parent")


def scenario_survive(env: Env) -> None:
    """kill -9 and a clean restart leave every definition as it was."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run(PARENT)
    session.run(CHILD)
    session.run("SET foreign_key_checks=0")
    session.run("CREATE TABLE w (x INT, FOREIGN KEY (x) REFERENCES missing (id) ON DELETE CASCADE)")
    session.run("RENAME TABLE p TO q")
    session.run("ALTER TABLE q RENAME COLUMN id TO k")
    before = _all_tables(session, "FERRITE")
    env.crash()
    equal(_all_tables(env.session(), "FERRITE"), before, "after kill -9")
    env.restart()
    equal(_all_tables(env.session(), "FERRITE"), before, "after a restart")


def _deletes_parents(session: Session, first: int, done: list[bool], seen: list[object]) -> None:
    for number in range(first, 20_000, 3):
        if done:
            return
        seen.append(session.answer(f"DELETE FROM p WHERE id = {number}"))
        time.sleep(random.random() * 0.06)


def scenario_parents_beside_copies_of_the_child(env: Env) -> None:
    """While a copy takes the child's place, what follows from the parent goes to the copy, and waits for it."""
    session = env.session()
    session.run("SET default_storage_engine=FERRITE")
    session.run("CREATE TABLE p (id INT PRIMARY KEY)")
    session.run(
        "CREATE TABLE c (id INT PRIMARY KEY, x INT, KEY (x), FOREIGN KEY (x) REFERENCES p (id) ON DELETE CASCADE)"
    )
    session.run("INSERT INTO p SELECT seq FROM seq_0_to_19999")
    session.run("INSERT INTO c SELECT seq, seq FROM seq_0_to_3999")
    done: list[bool] = []
    seen: list[object] = []
    deleters = [threading.Thread(target=_deletes_parents, args=(env.session(), n, done, seen)) for n in range(3)]
    for thread in deleters:
        thread.start()
    end = time.monotonic() + 6
    while time.monotonic() < end:
        session.run("ALTER TABLE c FORCE, ALGORITHM=COPY")
        time.sleep(random.random() * 0.03)
    done.append(True)
    for thread in deleters:
        thread.join()
    orphans = "SELECT COUNT(*) FROM c LEFT JOIN p ON p.id = c.x WHERE p.id IS NULL"
    equal(session.run(orphans), [(0,)], "children without a parent")
    equal([a for a in seen if a != []], [], f"errors of {len(seen)} deletes")
