"""The manual pages in packaging/man, and the options of the programs that they are of: each option of a program is named in
its page, not in the synopsis alone, and no page has an entry for an option that its program does not take."""

from __future__ import annotations

import re

from doccheck.source import Tree, without_comments

MAN = "packaging/man/"
BINARIES = "crates/ferrite-tools/src/bin/"
KEYS = "crates/ferrite-tools/src/keys.rs"
TOP = "top/ferrite_top/__main__.py"
# The commands that the package has, and what they share.
SCRIPTS = (
    "backup",
    "restore",
    "snapshot",
    "rewind",
    "open",
    "status",
    "up",
    "instance",
)
# Made by the libraries that read the words; and what the scripts look for in the words of others.
OF_ALL = {"version", "help"}
NOT_OURS = {"datadir", "pid-file", "log-error"}


def _of_rust(tree: Tree, path: str) -> set[str]:
    """Fields with `#[arg(long ...)]`."""
    source = without_comments(tree.text(path))
    fields = re.findall(r"#\[arg\(long\b[^\n]*\)\]\s*(?:pub )?(\w+):", source)
    return {name.replace("_", "-") for name in fields}


def _of_scripts(tree: Tree) -> set[str]:
    """The labels of `case` in the shell scripts."""
    found: set[str] = set()
    for name in SCRIPTS:
        text = tree.text(f"scripts/{name}.sh")
        for label in re.findall(r"^\s+((?:--[\w-]+(?: \| )?)+)\)", text, re.MULTILINE):
            found.update(re.findall(r"--([\w-]+)", label))
    return found - NOT_OURS


def options(tree: Tree, page: str) -> set[str]:
    """What the program of a page takes."""
    if page == "ferrite":
        return _of_scripts(tree)
    if page == "ferrite-top":
        text = tree.text(TOP)
        return set(re.findall(r'"(?:-\w", "--|--)([\w-]+)"', text)) - OF_ALL
    return _of_rust(tree, f"{BINARIES}{page}.rs") | _of_rust(tree, KEYS)


def _named(text: str) -> set[str]:
    return {
        name.replace("\\", "")
        for name in re.findall(r"\\-\\-([a-z](?:[a-z]|\\-)*)", text)
    }


def wrong(tree: Tree) -> list[str]:
    """Complaints."""
    found: list[str] = []
    for path in tree.under(MAN, ".1"):
        page = path.removeprefix(MAN).removesuffix(".1")
        text, code = tree.text(path), options(tree, page)
        entries = "\n".join(re.findall(r"^\.TP\n(.*)", text, re.MULTILINE))
        found += [
            f"{path}: option --{name} is not in it"
            for name in sorted(code - _named(text.split(".SH DESCRIPTION")[-1]))
        ]
        found += [
            f"{path}: option --{name} is not in the code"
            for name in sorted(_named(entries) - code - OF_ALL)
        ]
    return found
