"""What is cut out of derived tests that have foreign keys, or said otherwise: the statements that are InnoDB's own.

A test ends at the first statement that does not do what it expects, and nothing behind it is tested. So the statements that
ask for something else than foreign keys (an ALTER in place, a FULLTEXT index), or whose answer is a documented difference,
are replaced, in the test and in its result alike; everything else has to pass. Each line names the difference of
docs/compatibility.md that it stands for. The engine's name is substituted before, so that patterns say \\w+ for it.
"""

from __future__ import annotations

import re
import shutil
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
    """'test' or 'result': in one of the two alone; 'rdiff': in what a combination changes of the result; 'combinations'."""
    server: str = ""
    """The series of servers, if not all."""


TEST, RESULT, RDIFF, COMBINATIONS = "test", "result", "rdiff", "combinations"
NO_INPLACE = "alter-online"
ROW_COUNT = "alter-row-count"
PARENT_LOCK = "foreign-key-parent-lock"
NO_INDEX = "foreign-key-no-index"
NAMES = "foreign-key-names-in-errors"
RENAME_BY_COPY = "foreign-key-rename-by-copy"
TRUNCATE_MISFIT = "foreign-key-truncate-misfit"
RENAME_B = "alter table t2 rename column b to beta;"
NO_ROWS = r"affected rows: 0\ninfo: Records: 0  Duplicates: 0  Warnings: 0"
NOT_SUPPORTED = "ER_ALTER_OPERATION_NOT_SUPPORTED"
ONE_ROW_IN_PLACE = (
    r"(ALGORITHM=DEFAULT;|^ALTER IGNORE .*)\naffected rows: 0\ninfo: Records: 0  Duplicates: 0  Warnings: 1$"
)
ONE_ROW = r"\1\naffected rows: 1\ninfo: Records: 1  Duplicates: 0  Warnings: 1"
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
        Cut("fk_col_alter", NAMES, r"'test/(fk_t1|t2_ibfk_0)'", r"'\1'", RESULT),
        # What needs a copy on 11.8 is refused by the server there, with its names.
        Cut(
            "fk_col_alter",
            NAMES,
            r"^(.*CHARSET utf8mb4, ALGORITHM=INPLACE;\nERROR.* of table) 'test/t2'",
            r"\1 'test.t2'",
            RESULT,
            "11.8",
        ),
        Cut("fk_col_alter", NAMES, "of table 'test/t2'", "of table 't2'", RESULT),
        Cut(
            "fk_col_alter",
            NO_INPLACE,
            "Adding foreign keys needs foreign_key_checks=OFF",
            "Cannot change column type",
            RESULT,
        ),
        Cut(
            "fk_col_alter",
            RENAME_BY_COPY,
            r"^(ALTER TABLE t2 CHANGE COLUMN f2 f3 VARCHAR\(20\) NOT NULL,)$",
            r"--error ER_FK_COLUMN_CANNOT_CHANGE\n\1",
            TEST,
        ),
        Cut(
            "fk_col_alter",
            RENAME_BY_COPY,
            r"^(ADD CONSTRAINT t2_fk FOREIGN KEY\(f3\).*)$",
            r"\1\nERROR HY000: Cannot change column 'f2': used in a foreign key constraint 't2_fk'",
            RESULT,
        ),
        Cut(
            "foreign_key",
            RENAME_BY_COPY,
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
            NAMES,
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
        # A copy of a child that has lost its index keeps the foreign keys.
        Cut(
            "foreign_key",
            "foreign-key-lost-index",
            r"^(  `f3` int\(11\) NOT NULL,\n  PRIMARY KEY \(`f3`\))\n(\) ENGINE)",
            r"\1,\n  CONSTRAINT `t2_ibfk_1` FOREIGN KEY (`f2`) REFERENCES `t1` (`f2`) ON DELETE CASCADE,"
            r"\n  CONSTRAINT `t2_ibfk_2` FOREIGN KEY (`f1`) REFERENCES `t1` (`f1`) ON DELETE CASCADE\n\2",
            RESULT,
        ),
        # The test has made an orphan with foreign_key_checks=0.
        Cut(
            "foreign_key",
            "foreign-key-check-table",
            r"^(test\.binaries\tcheck\tstatus\tOK)",
            r"test.binaries\tcheck\tWarning\tFerrite: foreign key FK_collections: a row has no parent in"
            r" `test`.`collections`: (`collections_id`) = (1)\n\1",
            RESULT,
        ),
        # The database's name as the test has written it.
        Cut(
            "foreign_key",
            "foreign-key-names-in-errors",
            r"fails \(`#mysql50#d-b`",
            "fails (`#mysql50##mysql50#d-b`",
            RESULT,
        ),
        Cut(
            "foreign_key",
            "foreign-key-duplicate-in-copy",
            r"^--error ER_FK_CANNOT_DELETE_PARENT$(\nALTER TABLE t2 ADD FOREIGN KEY \(f2\))",
            r"--error ER_DUP_ENTRY\1",
            TEST,
        ),
        Cut(
            "foreign_key",
            "foreign-key-duplicate-in-copy",
            r"^(ADD UNIQUE INDEX\(f3\);)\nERROR HY000: Cannot delete rows from table which is parent .*",
            r"\1\nERROR 23000: Duplicate entry '1' for key 'f3'",
            RESULT,
        ),
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
        # What the combination INPLACE asks for is by copy if the choice is left to the engine: LIKE has the results.
        Cut("alter_not_null", NO_INPLACE, "^--alter_algorithm=inplace$", "--alter_algorithm=default", COMBINATIONS),
        Cut("foreign_sql_mode", NO_INPLACE, r"let \$algorithm=INPLACE;", "let $algorithm=DEFAULT;", TEST),
        Cut("foreign_sql_mode", NO_INPLACE, ",ALGORITHM=INPLACE ''", ",ALGORITHM=DEFAULT ''", TEST),
        # The same of 11.8, whose test has the two one after the other.
        Cut("alter_not_null", NO_INPLACE, r"(alter_algorithm(?:=|: ))INPLACE", r"\1DEFAULT", "", "11.8"),
        Cut("alter_not_null,STRICT", NO_INPLACE, r"(alter_algorithm(?:=|: ))INPLACE", r"\1DEFAULT", RESULT, "11.8"),
        Cut("alter_not_null", NO_INPLACE, "ALGORITHM=INPLACE;", "ALGORITHM=DEFAULT;", RESULT, "11.8"),
        Cut("alter_not_null,STRICT", NO_INPLACE, "ALGORITHM=INPLACE;", "ALGORITHM=DEFAULT;", RESULT, "11.8"),
        Cut("alter_not_null", ROW_COUNT, ONE_ROW_IN_PLACE, ONE_ROW, RESULT, "11.8"),
        Cut("alter_not_null,STRICT", ROW_COUNT, ONE_ROW_IN_PLACE, ONE_ROW, RESULT, "11.8"),
        Cut("innodb-alter-autoinc", NO_INPLACE, "ER_ALTER_OPERATION_NOT_SUPPORTED_REASON", NOT_SUPPORTED, TEST),
        Cut(
            "innodb-alter-autoinc",
            NO_INPLACE,
            "(LOCK=NONE is not supported). Reason: Adding an auto-increment column requires a lock.",
            r"\1 for this operation.",
            RESULT,
        ),
        Cut("innodb-alter-autoinc", NO_INPLACE, "ALGORITHM=INPLACE;", "ALGORITHM=COPY;"),
        Cut(
            "innodb-alter-timestamp",
            NO_INPLACE,
            r"^(ALTER TABLE t1 CHANGE i1 i1 .*\n)ALGORITHM=INPLACE;",
            r"\1ALGORITHM=COPY;",
        ),
        Cut("innodb-index", NO_INPLACE, "^(alter table t2 MODIFY b INT NOT NULL, ALGORITHM=)INPLACE", r"\1COPY"),
        Cut("table_flags", "fulltext-indexes", r"^\s*FULLTEXT KEY\(f2\),\n", ""),
        Cut(
            "instant_alter",
            NO_INPLACE,
            r"(?<=^SET foreign_key_checks=0;\n)(ALTER TABLE t1 ADD COLUMN b INT, .*\n)ALGORITHM=INSTANT",
            r"\1ALGORITHM=COPY",
        ),
        Cut("innodb-alter-timestamp", NO_INPLACE, r"ER_\w+_REASON(?=\nALTER IGNORE)", NOT_SUPPORTED, TEST),
        Cut(
            "innodb-alter-timestamp",
            NO_INPLACE,
            r"\. Reason: Creating unique indexes with IGNORE.*rows\.",
            " for this operation.",
            RESULT,
        ),
        Cut(
            "innodb-alter-timestamp",
            NO_INPLACE,
            r"^(ALTER TABLE t1 ADD (?:PRIMARY KEY\(i1\)|f2 DATE NOT NULL), ALGORITHM=)INPLACE",
            r"\1COPY",
        ),
        Cut("innodb-alter-timestamp", NO_INPLACE, r"(?<=DEFAULT '2017-05-08 16:23:45',\n)LOCK=NONE", "LOCK=SHARED"),
        Cut(
            "innodb-alter-timestamp",
            ROW_COUNT,
            r"^(ALTER TABLE t1 ADD PRIMARY KEY.*)\naffected rows: 0\ninfo: Records: 0 ",
            r"\1\naffected rows: 1\ninfo: Records: 1 ",
            RESULT,
        ),
        Cut(
            "innodb-alter-timestamp",
            ROW_COUNT,
            r"^((?:ALTER TABLE t1 ADD COLUMN [wd]\d .*|LOCK=SHARED);)\naffected rows: 0\ninfo: Records: 0 ",
            r"\1\naffected rows: 5\ninfo: Records: 5 ",
            RESULT,
        ),
        Cut("innodb-alter-timestamp", "tablespaces", r"^Warnings:\nWarning\t1814\t.*\n", "", RESULT),
        Cut(
            "innodb-index",
            RENAME_BY_COPY,
            r"^change b beta int not null, change c charlie int not null",
            "modify b int not null, modify c int not null",
        ),
        Cut(
            "innodb-index",
            RENAME_BY_COPY,
            r"^change c charlie int not null, change d delta int not null",
            "modify c int not null, modify d int not null",
        ),
        Cut("innodb-index", RENAME_BY_COPY, r"^change b beta int, (modify c int not null;)", rf"\1\n{RENAME_B}", TEST),
        Cut(
            "innodb-index",
            RENAME_BY_COPY,
            r"^change b beta int, (modify c int not null;)",
            rf"\1\n{NO_ROWS}\n{RENAME_B}",
            RESULT,
        ),
        Cut("innodb-index", NO_INDEX, "ER_FK_INCORRECT_OPTION", "ER_FK_NO_INDEX_PARENT", TEST),
        Cut(
            "innodb-index",
            NO_INDEX,
            " on table 't2'. Incorrect options in FOREIGN KEY constraint 'test/fk_t2_ca'$",
            ". Missing index for constraint 'fk_t2_ca' in the referenced table 't1'",
            RESULT,
        ),
        Cut(
            "innodb-index-online-fk",
            NO_INPLACE,
            r"^(ALTER TABLE child (?:ADD PRIMARY KEY|CHANGE a1 a3)[^;]*ALGORITHM = )INPLACE;",
            r"\1DEFAULT;",
        ),
        Cut(
            "innodb-index-online-fk",
            NO_INPLACE,
            r"(fk_new_3 FOREIGN KEY \(a3\) .*\nALGORITHM = )INPLACE;",
            r"\1DEFAULT;",
        ),
        # 11.8 makes a new index by copy, beside writers, unless it is told otherwise.
        Cut(
            "innodb-index-online-fk",
            NO_INPLACE,
            r"^(ALTER TABLE `t3` .* ON UPDATE SET NULL);",
            r"\1, ALGORITHM=INPLACE;",
            "",
            "11.8",
        ),
        Cut(
            "innodb-index",
            NO_INPLACE,
            r"^( ?FOREIGN KEY \(c3,c2\) REFERENCES t1\(c1,c[12]\));",
            r"\1, ALGORITHM=INPLACE;",
            "",
            "11.8",
        ),
        Cut(
            "innodb-index",
            NO_INPLACE,
            r"^(alter table t2 drop index b, add index \(beta\));",
            r"\1, ALGORITHM=INPLACE;",
            "",
            "11.8",
        ),
        Cut(
            "innodb-alter-autoinc",
            NO_INPLACE,
            "LOCK=NONE is not supported for this operation. Try LOCK=SHARED",
            "ALGORITHM=INPLACE is not supported for this operation. Try ALGORITHM=COPY",
            RESULT,
            "11.8",
        ),
        Cut("innodb-replace,INPLACE", "replace-order", r"(?s)\A.*\Z", "", RDIFF),
        Cut(
            "innodb-index-online-fk",
            RENAME_BY_COPY,
            "^ALTER TABLE child CHANGE a2 a2_new INT, CHANGE a1 a1_new INT;",
            "ALTER TABLE child RENAME COLUMN a2 TO a2_new, RENAME COLUMN a1 TO a1_new;\nALTER TABLE child MODIFY a1_new INT;",
        ),
        Cut(
            "innodb-index-online-fk",
            NO_INDEX,
            r"ER_FK_\w+(?=\nALTER TABLE child ADD PRIMARY KEY)",
            "ER_CANT_CREATE_TABLE",
            TEST,
        ),
        Cut(
            "innodb-index-online-fk",
            NO_INDEX,
            r"^(ALTER TABLE child ADD PRIMARY KEY(?:[^;]*);)\nERROR HY000: .*$",
            r"""\1\nERROR HY000: Can't create table `test`.`child` (errno: 150 "Foreign key constraint is incorrectly formed")""",
            RESULT,
        ),
        # The server drops the index that an earlier one has made (fk_b), so that this is by copy.
        Cut(
            "innodb-index-online-fk",
            NO_INDEX,
            r"ER_FK_NO_INDEX_PARENT(?=\nALTER TABLE child\n)",
            "ER_CANT_CREATE_TABLE",
            TEST,
        ),
        Cut(
            "innodb-index-online-fk",
            NO_INDEX,
            "Failed to add the foreign key constraint. Missing index for constraint 'fk_new_3' in the referenced table 'parent'",
            'Can\'t create table `test`.`child` (errno: 150 "Foreign key constraint is incorrectly formed")',
            RESULT,
        ),
        # NULL becomes 0, by copy with InnoDB, too, and not the default.
        Cut("innodb-alter-timestamp", NO_INPLACE, r"(?<=^id\n)42$", "1", RESULT),
        Cut("innodb-alter-timestamp", NO_INPLACE, "AUTO_INCREMENT=43", "AUTO_INCREMENT=2", RESULT),
        Cut("instant_alter", NO_INDEX, "ER_FK_FAIL_ADD_SYSTEM", "ER_CANT_CREATE_TABLE", TEST),
        Cut(
            "instant_alter",
            NO_INDEX,
            "Failed to add the foreign key constraint 'test/fk' to system tables",
            'Can\'t create table `test`.`t1` (errno: 121 "Duplicate key on write or update")',
            RESULT,
        ),
        Cut("truncate_foreign", TRUNCATE_MISFIT, r"^--error ER_CANNOT_ADD_FOREIGN\n", "", TEST),
        Cut(
            "truncate_foreign",
            TRUNCATE_MISFIT,
            r"^ERROR HY000: Cannot add foreign key constraint for `t1`\n|^1\t1\n",
            "",
            RESULT,
        ),
        # InnoDB names the copy.
        Cut(
            "alter_copy_bulk",
            NAMES,
            r"/#sql-alter-\[0-9a-f-\]\*/#sql-alter/",
            "/#mysql50##sql-alter-[0-9a-f-]*/t2/",
            TEST,
        ),
        Cut("alter_copy_bulk", NAMES, "#sql-alter", "t2", RESULT),
        Cut("alter_table", NAMES, "'test/t1_ibfk_1'", "'t1_ibfk_1'", RESULT),
        Cut("innodb-index", NAMES, "'test/(t2_ibfk_1)'", r"'\1'", RESULT),
        Cut("import_bugs", "tablespaces", "ER_ROW_IS_REFERENCED_2", "ER_ALTER_OPERATION_NOT_SUPPORTED_REASON", TEST),
        Cut(
            "import_bugs",
            "tablespaces",
            "^ERROR 23000: .*$",
            "ERROR 0A000: DISCARD TABLESPACE is not supported. Reason: rows of other tables may refer to the table's. Try SET foreign_key_checks=0",
            RESULT,
        ),
        Cut("innodb-wl5522-1", "tablespaces", r"^SET foreign_key_checks = 1;\n", ""),
        Cut(
            "innodb-wl5522-1",
            "tablespaces",
            r"(?<=^ALTER TABLE testdb_wl5522\.t1_fk IMPORT TABLESPACE;\n)",
            "SET foreign_key_checks = 1;\n",
        ),
        Cut(
            "innodb-wl5522-1",
            "tablespaces",
            r"^(FLUSH TABLES .* FOR EXPORT;)$",
            r"--disable_warnings\n\1\n--enable_warnings",
            TEST,
        ),
        # InnoDB's table of transactions.
        Cut(
            "innodb_i_s_innodb_trx",
            "information-schema",
            r"(?i)INFORMATION_SCHEMA\.INNODB_TRX",
            "INFORMATION_SCHEMA.FERRITE_TRX",
        ),
        Cut(
            "instant_alter_bugs",
            RENAME_BY_COPY,
            "^ALTER TABLE t1 CHANGE f1 f1_id INT NOT NULL, ADD f3",
            "ALTER TABLE t1 CHANGE f1 f1_id INT NOT NULL;\nALTER TABLE t1 ADD f3",
        ),
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
        Cut(
            "gcol_column_def_options_innodb",
            ROW_COUNT,
            r"^(ALTER TABLE t ADD INDEX idx\(c\), .*)\naffected rows: 0\ninfo: Records: 0 ",
            r"\1\naffected rows: 1\ninfo: Records: 1 ",
            RESULT,
        ),
        Cut("innodb_virtual_stats", NO_INPLACE, "ALGORITHM=INPLACE", "ALGORITHM=COPY"),
        Cut(
            "innodb_virtual_stats",
            "information-schema",
            r"^SELECT index_name, stat_name[^;]*;\n(index_name\t.*\n(.+\t.+\t.+\n)*)?",
            "",
        ),
        Cut("innodb_virtual_fk_restart", NO_INPLACE, ", ALGORITHM=INPLACE", ", ALGORITHM=COPY"),
    ),
    "versioning": (
        Cut("foreign", "fulltext-indexes", r"fulltext\(f3\), ", ""),
        Cut("online", NO_INPLACE, "(?i), lock=none", ""),
        Cut("rpl_row", NO_INPLACE, ", algorithm=inplace;", ", algorithm=copy;"),
    ),
    "vcol": (
        Cut("alter_inplace-9045", NO_INPLACE, "^(alter table t1 drop column data, algorithm=)inplace", r"\1copy"),
        Cut(
            "alter_inplace-9045",
            NO_INPLACE,
            r"^(alter table t1 add column sha varchar\(32\), algorithm=)inplace",
            r"\1copy",
        ),
        Cut("alter_inplace-9045", NO_INPLACE, "^(alter table t1 drop column hash, algorithm=)inplace", r"\1copy"),
    ),
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
        # With ANALYZE TABLE t13 InnoDB has the same plan.
        Cut(
            "join_outer_innodb",
            "statistics-of-new-tables",
            r"^(1\tSIMPLE\t(?:t13|m2)\tref\tPRIMARY,m3)\tm3\t8\tconst,(test\.t1\.a1\t1)\tUsing index$",
            r"\1\tPRIMARY\t4\t\2\tUsing where",
            RESULT,
            "11.8",
        ),
        Cut("alter_table_online", "transaction-id-versioning", r"(?s)^# MDEV-30891.*?(?=^#\n# MDEV-31058)", "", RESULT),
    ),
}

LIKE: dict[str, tuple[tuple[str, str], ...]] = {
    "innodb": (
        ("alter_not_null,COPY,STRICT", "alter_not_null,INPLACE,STRICT"),
        ("alter_not_null,COPY,NON-STRICT", "alter_not_null,INPLACE,NON-STRICT"),
        ("foreign_sql_mode,COPY,NON-STRICT", "foreign_sql_mode,INPLACE,NON-STRICT"),
    ),
}
"""Combinations that have the results of another one, for a difference that a cut of theirs names (alter-online)."""


def _files(folder: Path, line: Cut) -> list[Path]:
    """The test and its result, wherever the suite has them."""
    names = [f"{line.test}.{kind}" for kind in (TEST, RESULT, RDIFF, COMBINATIONS) if line.only in ("", kind)]
    return [p for name in names for p in (folder / name, folder / "t" / name, folder / "r" / name) if p.is_file()]


def cut(suite: str, folder: Path, version: str) -> None:
    """Changes the copy of a suite in `folder`, which is of a server of that version."""
    for line in (c for c in CUTS.get(suite, ()) if version.startswith(c.server)):
        for path in _files(folder, line):
            text = path.read_text(encoding="utf-8", errors="surrogateescape")
            new = re.sub(line.old, line.new, text, flags=re.MULTILINE)
            path.write_text(new, encoding="utf-8", errors="surrogateescape")
    for other, test in LIKE.get(suite, ()):
        for source in (p for x in ("", "r") if (p := folder / x / f"{other}.rdiff").is_file()):
            shutil.copyfile(source, source.with_name(f"{test}.rdiff"))
