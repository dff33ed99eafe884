"""What more than the engine's name is another in some tests of a derived suite: what its names bring with them.

Each line names a difference that docs/compatibility.md has, and changes only what a test says of it: the length of the engine's
name, the names of files, the state of a thread that waits, an error's number. What a test does and what it finds stays the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Adaptation:
    """In one file of a suite, every place where `old` stands."""

    file: str
    old: str
    new: str
    """As in re.sub."""


FOR_EXPORT = r"--disable_warnings\nFLUSH TABLES testdb_wl5522.t1 FOR EXPORT;\n--enable_warnings"
WAITS = "Waiting for row lock"
WAIT_ALL_PURGED = """\
let $wait_condition= SELECT variable_value = 0 FROM information_schema.global_status
                     WHERE variable_name = 'Ferrite_history_list_length';
source include/wait_condition.inc;
echo FERRITE\t\t0 transactions not purged;
"""
ADAPTATIONS: dict[str, tuple[Adaptation, ...]] = {
    "innodb": (
        # Waits for the engine's own history (compatibility.md, history-list-length).
        Adaptation("include/wait_all_purged.inc", r"(?s)\A.*\Z", WAIT_ALL_PURGED),
        # The events of the binary log are as long as with the shorter name, on which its positions depend.
        Adaptation("t/binlog_consistent.test", r"\(a,b\)\) (?=ENGINE)", "(a,b))"),
        Adaptation("r/binlog_consistent.result", r"\(a,b\)\) (?=ENGINE)", "(a,b))"),
        # The name as it is in the engine's own texts.
        Adaptation("t/foreign_key.test", r"\b(?:FERRITE|InnoDB): (?=Cannot delete/update)", "Ferrite: "),
        Adaptation("r/foreign_key.result", r"\b(?:FERRITE|InnoDB): (?=Cannot delete/update)", "Ferrite: "),
        # The process list says that a thread waits, and for what (compatibility.md, process-list).
        Adaptation("t/foreign_key.test", r"(?i)(state ?= ?)'(update|updating)'", rf"\1'{WAITS}'"),
        Adaptation("t/innodb_bug42419.test", "= 'Updating'", f"= '{WAITS}'"),
        Adaptation("t/deadlock_in_subqueries_join.test", '"Updating"', f'"{WAITS}"'),
        # One file instead of two, which FLUSH TABLES ... WITH READ LOCK does not make (compatibility.md, export).
        Adaptation("include/innodb-util.pl", r"\.(ibd|cfg)(?=\")", ".ferrite"),
        Adaptation("t/innodb-bug-14084530.test", r"FLUSH TABLES testdb_wl5522\.t1 FOR EXPORT;", FOR_EXPORT),
        Adaptation("t/innodb-bug-14068765.test", r"FLUSH TABLES testdb_wl5522\.t1 WITH READ LOCK;", FOR_EXPORT),
        Adaptation("r/innodb-bug-14068765.result", "WITH READ LOCK", "FOR EXPORT"),
        # The error names the key, and comes with the row instead of at the end (compatibility.md, bulk-load).
        Adaptation("t/bulk_load.test", "ER_ERROR_DURING_COMMIT", "ER_DUP_ENTRY"),
        Adaptation(
            "r/bulk_load.result", r"ERROR HY000: Got error 1 .*", "ERROR 23000: Duplicate entry '131073' for key 'f2'"
        ),
    ),
    "gcol": (
        # Is off for an error of InnoDB's purge (MDEV-29181).
        Adaptation("disabled.def", r"gcol_port\.innodb_virtual_fk\b.*", ""),
    ),
    "main": (
        # The combination has the engine's name.
        Adaptation("alter_table_combinations.test", r"MTR_COMBINATION_INNODB", "MTR_COMBINATION_FERRITE"),
    ),
}


def adapt(suite: str, folder: Path) -> int:
    """Changes the copy of a suite in `folder`; the number of files that were changed."""
    changed: set[Path] = set()
    for line in ADAPTATIONS.get(suite, ()):
        path = folder / line.file
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        new = re.sub(line.old, line.new, text)
        if new != text:
            path.write_text(new, encoding="utf-8", errors="surrogateescape")
            changed.add(path)
    return len(changed)
