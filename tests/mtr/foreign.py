"""The tests of the derived suites that have foreign keys: every one is taken, or foreign-not-taken.txt says why not.

Other tests are left out for a word of InnoDB's own. Of these the words say little: settings of InnoDB's files and threads are
there to be set whatever engine the tables have, and some are followed (plugin/innodb_settings.cc). What of a test is InnoDB's
own all the same is cut out of the copy (mtr/cuts.py).
"""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path(__file__).parent / "foreign-not-taken.txt"
FOREIGN = re.compile(r"\bforeign\s+key\b|\breferences\s+[\w`.]+\s*\(", re.IGNORECASE)
COMMENT = re.compile(r"^\s*(?:#|--echo).*$", re.MULTILINE)
VIEWS = re.compile(r"\binnodb_(sys_foreign_cols|sys_foreign|lock_waits)\b", re.IGNORECASE)
"""Tables of information_schema whose columns are the same for both engines (compatibility.md, information-schema)."""


def has_foreign_keys(text: str) -> bool:
    """Whether a test has them, other than in a comment."""
    return bool(FOREIGN.search(COMMENT.sub("", text)))


def own_views(text: str, prefix: str) -> str:
    """The same tables of the other engine."""
    return VIEWS.sub(lambda found: f"{prefix}_{found.group(1)}", text)


def not_taken(path: Path = FILE) -> dict[str, str]:
    """Lines are 'suite.test reason'; # starts a comment."""
    out: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.strip().partition(" ")
        if not reason.strip():
            raise SystemExit(f"{path}:{number}: {name} has no reason")
        out[name] = reason.strip()
    return out
