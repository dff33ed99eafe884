"""Checks that documents say what the code says. Part of `./ferrite test unit`, stage structure; runs alone too.

What is checked, and how documents say what they are to be checked against, stands at the top of each module of
`doccheck`: `names` (files, functions, kill points), `operating` (settings, status variables, views), `formats`, `manuals` (options of the tools).
"""

from __future__ import annotations

import re
import sys

from doccheck import formats, manuals, names, operating
from doccheck.source import Tree

STATUS = "crates/ferrite-engine/src/introspection/engine_metrics.rs"
KINDS = "crates/ferrite-types/src/format.rs"
VIEWS = "plugin/ferrite_i_s.cc"
SETTINGS = "plugin/ferrite_vars.cc"

# A drift: in which file (of a folder the first with such a place), what becomes what, and a word of the complaint it must raise.
PLANTS = {
    names: [
        (names.ARCHITECTURE, r"`(\w+)::\w+`", r"`\1::planted`", "planted"),
        (
            names.ARCHITECTURE,
            r"`[\w/-]+/\w+\.rs`",
            "`ferrite-engine/src/planted.rs`",
            "planted",
        ),
        (
            names.ARCHITECTURE,
            r"\(`[\w/-]+/\w+\.rs`\)",
            "(`ferrite-types/src/ids.rs`)",
            "is not in",
        ),
        (
            names.ARCHITECTURE,
            r"\]\(docs/internals/\w+\.md\)",
            "](docs/planted.md)",
            "planted",
        ),
        (names.ARCHITECTURE, r"`arena\.rs`", "`error.rs`", "unsafe"),
        (
            "docs/internals/recovery.md",
            r"`Engine::\w+`",
            "`Engine::planted`",
            "planted",
        ),
        ("docs/internals/write_path.md", r"`_delete`", "`_planted`", "planted"),
        ("docs/internals/write_path.md", r"`\w+_\w+`", "`planted_name`", "planted"),
        (names.TESTING, r"`commit\.\w+`", "`commit.planted`", "planted"),
        (names.TESTING, r"`commit\.\w+`, ", "", "kill point"),
        (
            "crates/ferrite-sim/mutants.txt",
            r"\n(?=redo\.)",
            "\nredo.planted x\n",
            "planted",
        ),
    ],
    operating: [
        (operating.DOCUMENT, r"`Ferrite_\w+` \|", "`Ferrite_planted` |", "planted"),
        (operating.DOCUMENT, r"\| counter \|", "| value |", "is a counter"),
        (
            operating.DOCUMENT,
            r"\| global \| \d+ MiB",
            "| global | 3 MiB",
            "default is not",
        ),
        (operating.DOCUMENT, r"\| from \d+ MiB", "| from 3 MiB", "range is not"),
        (operating.DOCUMENT, r"\| [\d,]+ to [\d,]+ \|", "| 3 to 5 |", "range is not"),
        (operating.DOCUMENT, r"\| no \(read-only\) \|", "| yes |", "dynamic is not"),
        (operating.DOCUMENT, r"\| ON \|", "| OFF |", "default is not"),
        (operating.DOCUMENT, r"\| none, lz4", "| lz4", "range is not"),
        (operating.DOCUMENT, r"`trx_id`", "`trx_planted`", "planted"),
        (operating.DOCUMENT, r"### FERRITE_TRX", "### FERRITE_PLANTED", "PLANTED"),
        (operating.DOCUMENT, r"\| page read \|", "| page planted |", "planted"),
        (operating.DOCUMENT, r"\| row versions \|", "| row planted |", "planted"),
        (operating.MEMORY, r"\"page changes\"", '"page planted"', "planted"),
        (operating.DOCUMENT, r"`ROW OPERATIONS`, ", "", "section"),
        (
            "docs/operating/backup.md",
            r"`ferrite_\w+",
            "`ferrite_planted",
            "ferrite_planted",
        ),
        (STATUS, r"(counter\(\s*)\"\w+\"", r'\1"planted"', "planted"),
        (SETTINGS, r"VAR_BOOL\(scrub", "VAR_BOOL(planted", "planted"),
        (VIEWS, r'Column\("\w+"', 'Column("planted"', "planted"),
    ],
    manuals: [
        (
            "packaging/man/ferrite-check.1",
            r"(\.TP\n.*)\\-\\-prepared",
            r"\1\\-\\-planted",
            "planted",
        ),
        (
            "packaging/man/ferrite-backup.1",
            r"(\.TP\n.*)\\-\\-last",
            r"\1",
            "--last is not in it",
        ),
        (
            "packaging/man/ferrite.1",
            r"(\.TP\n.*)\\-\\-rate",
            r"\1\\-\\-planted",
            "planted",
        ),
        (
            "packaging/man/ferrite-top.1",
            r"(\.TP\n.*)\\-\\-interval",
            r"\1\\-\\-planted",
            "planted",
        ),
        (
            "crates/ferrite-tools/src/bin/ferrite-rewind.rs",
            r"keep_as: Option",
            "planted: Option",
            "planted",
        ),
    ],
    formats: [
        (KINDS, r"(VERSION: u32 = )(\d+)", r"\g<1>1\2", "FORMAT_VERSION"),
        (KINDS, r"(pub const COMMIT: u8 = )\d+", r"\g<1>77", "77 COMMIT"),
        (
            formats.DOCUMENT,
            r"`BLOB_VERSION` \| \d",
            "`BLOB_VERSION` | 9",
            "BLOB_VERSION",
        ),
        (formats.DOCUMENT, r"`REFB`", "`REFX`", "BLOB_MAGIC"),
        (formats.DOCUMENT, r"\n\| `STATE_VERSION`.*", "", "STATE_VERSION"),
        (formats.DOCUMENT, r"`undo\.spill` \|", "`undo.planted` |", "planted"),
    ],
}


def wrong(tree: Tree) -> list[str]:
    """Every complaint."""
    return (
        names.wrong(tree)
        + operating.wrong(tree)
        + formats.wrong(tree)
        + manuals.wrong(tree)
    )


def _place(path: str, pattern: str) -> str:
    """The file, or the first one of the folder that has the place."""
    if not path.endswith("/"):
        return path
    files = Tree().under(path, ".rs")
    return next((p for p in files if re.search(pattern, Tree().text(p))), files[0])


def unseen() -> list[str]:
    """Planted drift that no check sees; empty, or the checks are blind."""
    blind = formats.unseen(Tree())
    for module, plants in PLANTS.items():
        for path, pattern, other, complaint in plants:
            path = _place(path, pattern)
            text = Tree().text(path)
            planted = re.sub(pattern, other, text, count=1)
            found = module.wrong(Tree({path: planted}))
            if planted == text or not any(complaint in one for one in found):
                blind.append(f"planted in {path} and not seen: {pattern} -> {other}")
    return blind


def complaints() -> list[str]:
    """What is wrong with the documents; when nothing is, what is wrong with the checks."""
    return wrong(Tree()) or unseen()


def main() -> int:
    """Entry point."""
    found = complaints()
    print("\n".join(found) if found else "documents say what the code says")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
