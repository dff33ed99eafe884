"""What is cut out of derived tests that have foreign keys, or said otherwise: the statements that are InnoDB's own.

A test ends at the first statement that does not do what it expects, and nothing behind it is tested. So the statements that
ask for something else than foreign keys (an ALTER in place, a FULLTEXT index), or whose answer is a documented difference,
are replaced, in the test and in its result alike; everything else has to pass. Each line names the difference of
docs/compatibility.md that it stands for. The engine's name is substituted before, so that patterns say \\w+ for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cut:
    """One replacement, as in re.sub over lines, in a test and its result."""

    test: str
    difference: str
    old: str
    new: str = ""
    only: str = ""
    """'test' or 'result': in one of the two alone; 'rdiff': in what a combination changes of the result."""
    server: str = ""
    """The series of servers, if not all."""


TEST, RESULT, RDIFF = "test", "result", "rdiff"
NO_INPLACE = "alter-online"
PARENT_LOCK = "foreign-key-parent-lock"
NO_INDEX = "foreign-key-no-index"
CUTS: dict[str, tuple[Cut, ...]] = {
    "innodb": (
        # The combination INPLACE leaves the choice to the engine: a change of a column is by copy, the rest in place.
        Cut(
            "foreign_null",
            NO_INPLACE,
            r"^(let \$algorithm=.*)$",
            r"\1\nlet $algorithm=`select replace('$algorithm', 'INPLACE', 'DEFAULT')`;",
            TEST,
        ),
        Cut("foreign_null", NO_INPLACE, ",ALGORITHM=INPLACE ''", ",ALGORITHM=DEFAULT ''", TEST),
        Cut(
            "foreign_null",
            "foreign-key-lost-index",
            r"let \$error_code= ER_ERROR_ON_RENAME;",
            "let $error_code= 0;",
            TEST,
        ),
        Cut(
            "fk_col_alter",
            "foreign-key-column-and-index",
            r"^(ALTER TABLE t2 MODIFY b VARCHAR\(16\), ADD KEY\(b\);)$",
            r"--error ER_FK_COLUMN_CANNOT_CHANGE_CHILD\n\1",
            TEST,
        ),
        Cut(
            "fk_col_alter",
            "foreign-key-column-and-index",
            r"^(ALTER TABLE t2 MODIFY b VARCHAR\(16\), ADD KEY\(b\);)$",
            r"\1\nERROR HY000: Cannot change column 'b': used in a foreign key constraint 't1_ibfk_1' of table 't1'",
            RESULT,
        ),
        Cut("fk_col_alter", "foreign-key-names-in-errors", r"'test/(fk_t1|t2_ibfk_0)'", r"'\1'", RESULT),
        # What needs a copy on 11.8 is refused by the server there, with its names.
        Cut(
            "fk_col_alter",
            "foreign-key-names-in-errors",
            r"^(.*CHARSET utf8mb4, ALGORITHM=INPLACE;\nERROR.* of table) 'test/t2'",
            r"\1 'test.t2'",
            RESULT,
            "11.8",
        ),
        Cut("fk_col_alter", "foreign-key-names-in-errors", "of table 'test/t2'", "of table 't2'", RESULT),
        Cut(
            "fk_col_alter",
            NO_INPLACE,
            "Adding foreign keys needs foreign_key_checks=OFF",
            "Cannot change column type",
            RESULT,
        ),
        Cut(
            "fk_col_alter",
            "foreign-key-rename-by-copy",
            r"^(ALTER TABLE t2 CHANGE COLUMN f2 f3 VARCHAR\(20\) NOT NULL,)$",
            r"--error ER_FK_COLUMN_CANNOT_CHANGE\n\1",
            TEST,
        ),
        Cut(
            "fk_col_alter",
            "foreign-key-rename-by-copy",
            r"^(ADD CONSTRAINT t2_fk FOREIGN KEY\(f3\).*)$",
            r"\1\nERROR HY000: Cannot change column 'f2': used in a foreign key constraint 't2_fk'",
            RESULT,
        ),
        Cut(
            "foreign_key",
            "foreign-key-rename-by-copy",
            "^ALTER TABLE t1 CHANGE a id INT;$",
            "ALTER TABLE t1 RENAME COLUMN a TO id;\nALTER TABLE t1 MODIFY id INT;",
        ),
        Cut(
            "innodb_mysql",
            "table-files",
            r"^(ERROR.*'test.bug29807' doesn't exist in engine)$",
            r"\1: its .frm file exists, but its rows are not in the directory #ferrite (a backup or copy made without that directory has no rows)",
            RESULT,
        ),
        Cut("innodb_mysql", "row-format", r"^test\tt1\t(Compact|Redundant)$", r"test\tt1\tDynamic", RESULT),
        Cut(
            "foreign_null",
            NO_INPLACE,
            r"^(--error) \$error_code(\neval ALTER TABLE `t#2`)",
            r"\1 ER_ERROR_ON_RENAME\2",
            TEST,
        ),
        Cut(
            "foreign_null",
            NO_INPLACE,
            r"^(ALTER TABLE `t#2` MODIFY COLUMN f1 INT NOT NULL;)$",
            r"""\1\nERROR HY000: Error on rename of './test/#sql-alter' to './test/t@00232' (errno: 150 "Foreign key constraint is incorrectly formed")""",
            RESULT,
        ),
        Cut("foreign_null,COPY", "foreign-key-lost-index", r"(?s)\A.*\Z", "", RDIFF),
        Cut("innodb-fkcheck", "table-files", r"^b\.ibd\n", "", RESULT),
        Cut(
            "innodb-fkcheck",
            "foreign-key-children-do-not-fit",
            r"^(Error\t1005\tCan't create table `bug_fk`.`b`)",
            r"Warning\t150\tCreate table 'bug_fk/b' with foreign key constraint failed. Constraint b_fk, which refers to the table, does not fit it.\n\1",
            RESULT,
        ),
        # A server that only reads: there is no such mode for Ferrite. The definition is looked at after each restart all the same.
        Cut("innodb-get-fk", "read-only-mode", r"--innodb-read-only", "--skip-innodb-read-only"),
        Cut("innodb-get-fk", "read-only-mode", r"^--error ER_OPEN_AS_READONLY\n.*\n", "", TEST),
        Cut("innodb-get-fk", "read-only-mode", r"^ALTER TABLE.*'innodb_read_only';\nERROR.*\n", "", RESULT),
        Cut("innodb-get-fk", "read-only-mode", r"^SET GLOBAL innodb_buffer_pool.*\n", ""),
        Cut("innodb-fk", "fulltext-indexes", r"FULLTEXT KEY\(a\), ", ""),
        # InnoDB's own counters.
        Cut("innodb", "status-variables", r"^.*SOURCE.*have_innodb_16k.*\n", "", TEST),
        Cut("innodb", "status-variables", r"^SELECT (IF\()?variable_value.*\n(?:[^;]*?\n[0-9OK]+\n)?", ""),
        # Which of several duplicates is met first.
        Cut(
            "innodb", NO_INPLACE, "^(ERROR 23000: Duplicate entry) 'v' for key 'v_2'", r"\1 'a ' for key 'v_2'", RESULT
        ),
        Cut(
            "innodb",
            NO_INPLACE,
            "^(Error\\t1062\\tDuplicate entry) 'v' for key 'v_2'",
            r"\1 '{ ' for key 'v_2'",
            RESULT,
        ),
        Cut(
            "innodb",
            "row-format",
            r"\w+: assuming ROW_FORMAT=DYNAMIC.",
            "Ferrite: invalid ROW_FORMAT specifier.",
            RESULT,
        ),
        Cut(
            "innodb",
            "foreign-key-names-in-errors",
            r"^(alter table t1 convert to .*\nERROR.* of table) 'test.t2'",
            r"\1 't2'",
            RESULT,
            "10.11",
        ),
        # A child that is refused has locked nothing of its parent.
        Cut("foreign_key", PARENT_LOCK, r"^--error ER_LOCK_WAIT_TIMEOUT\n[A-Z]+ TABLE parent.*\n", "", TEST),
        Cut("foreign_key", PARENT_LOCK, r"^[A-Z]+ TABLE parent.*\nERROR HY000: Lock wait timeout.*\n", "", RESULT),
        Cut("foreign_key", NO_INPLACE, "(?<!Try )ALGORITHM=(INPLACE|INSTANT)", "ALGORITHM=COPY"),
        Cut("foreign_key", "fulltext-indexes", r"^ALTER TABLE t1 ADD FULLTEXT .*\n(Warnings:\n.*\n)?", ""),
        Cut("foreign_key", "fulltext-indexes", r"^  FULLTEXT KEY `b` \(`b`\),\n", "", RESULT),
        Cut("foreign_key", "fulltext-indexes", r" FULLTEXT INDEX\(b\),", ""),
        # The row has room (long values are stored out of line), whose refusal alone this statement is about.
        Cut(
            "innodb",
            "row-size",
            r"^--replace_result 8126.*\n--error ER_TOO_BIG_ROWSIZE\nCREATE TABLE t1 \([^;]*;\n",
            "",
            TEST,
        ),
        Cut(
            "innodb",
            "row-size",
            r"^CREATE TABLE t1 \(\nc01 CHAR[^;]*;\nERROR 42000: Row size too large.*\n",
            "",
            RESULT,
        ),
        Cut("innodb-truncate", "transaction-id-versioning", "BIGINT UNSIGNED AS ROW", "TIMESTAMP(6) AS ROW"),
        Cut(
            "stored_fk",
            NO_INDEX,
            "--error ER_FK_NO_INDEX_PARENT",
            "--error ER_CANT_CREATE_TABLE",
            TEST,
            "11.8",
        ),
        Cut(
            "stored_fk",
            NO_INDEX,
            "Failed to add the foreign key constraint. Missing index for constraint 'c' in the referenced table 't'",
            'Can\'t create table `test`.`s` (errno: 150 "Foreign key constraint is incorrectly formed")',
            RESULT,
            "11.8",
        ),
    ),
    "parts": (Cut("longname", "information-schema", r"^mysqltest1[\t/].*#P#.*\n", "", RESULT),),
    "gcol": (
        # By copy InnoDB accepts it, too.
        Cut("innodb_virtual_fk", NO_INDEX, r"^--error ER_FK_NO_INDEX_CHILD\n.*\n", "", TEST),
        Cut(
            "innodb_virtual_fk", NO_INDEX, r"^ALTER TABLE t1 ADD .*\nERROR HY000: Failed to add.*index.*\n", "", RESULT
        ),
        # The test is off, and its result is from before the default of 11.8.
        Cut(
            "innodb_virtual_fk",
            "",
            "CHARSET=latin1 COLLATE=latin1_swedish_ci$",
            "CHARSET=utf8mb4 COLLATE=utf8mb4_uca1400_ai_ci",
            RESULT,
            "11.8",
        ),
        Cut("innodb_virtual_fk", NO_INPLACE, r"(?i)ALGORITHM(\s*)=(\s*)INPLACE", r"ALGORITHM\1=\2COPY"),
        Cut("innodb_virtual_fk_restart", NO_INPLACE, ", ALGORITHM=INPLACE", ", ALGORITHM=COPY"),
    ),
    "versioning": (Cut("foreign", "fulltext-indexes", r"fulltext\(f3\), ", ""),),
    "main": (
        Cut(
            "mysqldump",
            "system-tables-in-ferrite",
            r"ENGINE=\w+ (DEFAULT CHARSET=utf8mb3 COLLATE=utf8mb3_bin STATS_PERSISTENT=0)",
            r"ENGINE=InnoDB \1",
            RESULT,
        ),
        Cut(
            "mysqldump",
            "system-tables-in-ferrite",
            r"(<options Name=\"transaction_registry\" Engine=)\"\w+\"",
            r"\1" + '"InnoDB"',
            RESULT,
        ),
        Cut(
            "alter_table_online",
            NO_INPLACE,
            "add ([cd]) int, algorithm=inplace(, lock=none)?;",
            r"add \1 int, algorithm=copy;",
        ),
        Cut(
            "alter_table_online",
            "transaction-id-versioning",
            r"(?s)^--echo # MDEV-30891.*?(?=^--echo #\n--echo # MDEV-31058)",
            "",
            TEST,
        ),
        Cut("alter_table_online", "transaction-id-versioning", r"(?s)^# MDEV-30891.*?(?=^#\n# MDEV-31058)", "", RESULT),
    ),
}


def _files(folder: Path, line: Cut) -> list[Path]:
    """The test and its result, wherever the suite has them."""
    names = [f"{line.test}.{kind}" for kind in (TEST, RESULT, RDIFF) if line.only in ("", kind)]
    return [p for name in names for p in (folder / name, folder / "t" / name, folder / "r" / name) if p.is_file()]


def cut(suite: str, folder: Path, version: str) -> None:
    """Changes the copy of a suite in `folder`, which is of a server of that version."""
    for line in (c for c in CUTS.get(suite, ()) if version.startswith(c.server)):
        for path in _files(folder, line):
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            new = re.sub(line.old, line.new, text, flags=re.MULTILINE)
            path.write_text(new, encoding="utf-8", errors="surrogateescape")
