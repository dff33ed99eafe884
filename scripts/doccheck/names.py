"""Names and places: every file, `Type::function`, function, kill point and planted fault that a document names is there.

What stands in backticks is looked at. A path must be that of a file, or end like one. After `name`, `other` (`file`)
each name must be in that file. A name with an underscore, a capital inside or `()` must be a word of the code. What
is the server's or the operating system's is listed below.
"""

from __future__ import annotations

import re

from doccheck.operating import metrics
from doccheck.source import (
    Tree,
    bare,
    both_ways,
    inline_modules,
    rust_members,
    table,
    ticked,
    without_comments,
    words,
)

TESTING = "docs/internals/testing.md"
ARCHITECTURE = "ARCHITECTURE.md"
ENDS = ("/", ".rs", ".cc", ".h", ".c", ".py", ".md", ".sh", ".toml", ".txt", ".lua")
# Names of others: the server's variables and functions, Python's, cargo's.
FOREIGN = re.compile(
    r"innodb_\w+|binlog_\w+|sql_log_bin|thd_\w+|"
    r"LOCK_\w+|INNODB_\w+|KEY_BLOCK_SIZE|ROW_FORMAT|std::\w+"
)
_PATH = re.compile(r"(?:\./)?[\w.*-]+(?:/[\w.*-]+)*/?")
_NAME = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*")


def documents(tree: Tree) -> list[str]:
    """Those that name code."""
    return [ARCHITECTURE, "CONTRIBUTING.md", *tree.under("docs/internals/", ".md")]


def _is_path(token: str, tree: Tree) -> bool:
    if not _PATH.fullmatch(token) or "NAME" in token:
        return False
    if token.endswith(ENDS):
        return True
    first = token.removeprefix("./").split("/")[0]
    return "/" in token and any(path.startswith(first + "/") for path in tree.paths)


class _Code:
    """Words and members of all code, looked up by name."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.members = rust_members(tree)
        self.words: set[str] = set()
        for path in tree.code():
            self.words |= words(tree, path)
        self.plugin = {p: words(tree, p) for p in tree.under("plugin/", "")}
        self.strings = {
            text
            for path in tree.under("crates/", ".rs")
            for text in re.findall(r'"([\w.]+)"', without_comments(tree.text(path)))
        }
        # Variables as the server calls them: the sources have them without the prefix.
        for path in tree.under("plugin/", ".cc"):
            found = re.findall(r"MYSQL_(?:SYS|THD)VAR_\w+\(\s*(\w+)", tree.text(path))
            self.words |= {f"ferrite_{name}" for name in found}
        self.words |= {f"Ferrite_{name}" for name in metrics(tree)}

    def has(self, name: str) -> bool:
        """A word, or a type and what is in it."""
        *before, last = name.split("::")
        if not before:
            return last in self.words
        kind = before[-1]
        if last in self.members.get(kind, ()):
            return True
        if any({kind, last} <= known for known in self.plugin.values()):
            return True
        return kind[0].islower() and self._module_has(before, last)

    def _module_has(self, modules: list[str], last: str) -> bool:
        places = self.tree.find(f"{modules[-1]}.rs") + self.tree.find(
            f"{modules[-1]}/mod.rs"
        )
        if modules[-1].startswith("ferrite_"):
            crate = modules[-1].replace("_", "-")
            places += self.tree.under(f"crates/{crate}/src/", ".rs")
        places += [
            path
            for path in self.tree.under("crates/", ".rs")
            if modules[-1] in inline_modules(self.tree.text(path))
        ]
        return any(last in words(self.tree, path) for path in places)


def _is_name(token: str) -> bool:
    if not _NAME.fullmatch(token.removesuffix("()")) or FOREIGN.fullmatch(token):
        return False
    return (
        "::" in token
        or "_" in token.strip("_")
        or token.endswith("()")
        or re.fullmatch(r"[A-Z][a-z]\w*[A-Z]\w*", token) is not None
    )


def _short_for(token: str, before: str, code: _Code) -> bool:
    """`_update` after `fe_row_insert`: the earlier name up to one of its underscores, and this."""
    cuts = [m.start() for m in re.finditer("_", before)] + [len(before)]
    return any(
        word.startswith(before[:cut] + token) for cut in cuts for word in code.words
    )


def _token_faults(document: str, text: str, tree: Tree, code: _Code) -> list[str]:
    wrong, before = [], ""
    for token in ticked(text):
        if _is_path(token, tree):
            if not tree.find(token):
                wrong.append(f"{document}: there is no file {token}")
        elif token.startswith("_") and _NAME.fullmatch(token):
            if not _short_for(token, before, code):
                wrong.append(f"{document}: {token} after {before} names nothing")
        elif re.fullmatch(r"[a-z_]+(?:\.[a-z_]{4,})+", token):
            if token not in code.strings:
                wrong.append(f"{document}: {token} is not in the code")
        else:
            call = re.match(r"[A-Za-z_][\w:]*\w(?=\(\w*\))", token)
            name = (call[0] if call else token).removesuffix("()")
            if _is_name(call[0] + "()" if call else token) and not code.has(name):
                wrong.append(f"{document}: {name} is not in the code")
            before = name if _NAME.fullmatch(name) else before
    return wrong


_NAMES_THEN_FILE = re.compile(
    r"((?:`[^`\n]+`(?:, | and )?)+) \(`([\w./-]+\.(?:rs|cc|h|py))`\)"
)


def _place_faults(document: str, text: str, tree: Tree) -> list[str]:
    """`name`, `other` (`file`): each is in that file."""
    wrong = []
    for names, place in _NAMES_THEN_FILE.findall(text):
        files = tree.find(place)
        there = set().union(*(words(tree, path) for path in files))
        for token in ticked(names):
            last = token.removesuffix("()").split("::")[-1]
            plain = _NAME.fullmatch(last) and not last.startswith("_")
            if files and plain and last not in there:
                wrong.append(f"{document}: {token} is not in {place}")
    return wrong


def _link_faults(document: str, text: str, tree: Tree) -> list[str]:
    """Links within the repository lead to a file, and to a heading if they name one."""
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        parts = document.split("/")[:-1] if path else document.split("/")
        for part in path.split("/") if path else []:
            parts = parts[:-1] if part == ".." else [*parts, *([part] if part else [])]
        full = "/".join(parts)
        if full not in tree.paths and not tree.under(full + "/", ""):
            wrong.append(f"{document}: the link to {target} leads nowhere")
        elif (
            anchor and full.endswith(".md") and anchor not in _anchors(tree.text(full))
        ):
            wrong.append(f"{document}: {full} has no heading #{anchor}")
    return wrong


def _anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = re.findall(r'<a (?:id|name)="([^"]+)"', text)
    return {
        re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads
    } | set(named)


def _macro_names(tree: Tree, macro: str) -> set[str]:
    found: set[str] = set()
    for path in tree.under("crates/", ".rs"):
        if "/src/" in path and not path.startswith("crates/ferrite-sync/"):
            source = without_comments(tree.text(path))
            found |= set(re.findall(rf'\b{macro}!\("([\w.]+)"\)', source))
    return found


def _kill_points(tree: Tree) -> list[str]:
    told = {
        name
        for row in table(tree.text(TESTING), "module", "kill points")
        for name in ticked(row[1])
    }
    return both_ways("kill point", _macro_names(tree, "kill_point"), told, TESTING)


def _planted_faults(tree: Tree) -> list[str]:
    listed = "crates/ferrite-sim/mutants.txt"
    lines = [x for x in tree.text(listed).splitlines() if x and not x.startswith("#")]
    told = {line.split()[0] for line in lines}
    return both_ways("fault", _macro_names(tree, "mutant"), told, listed)


def _unsafe_table(tree: Tree) -> list[str]:
    """The table of where unsafe code lives, file by file."""
    wrong = []
    told: dict[str, str] = {}
    for row in table(tree.text(ARCHITECTURE), "crate", "files", "why it is sound"):
        told[row[0]] = row[1]
    for path in tree.under("crates/", ".rs"):
        if "/src/" not in path or re.search(r"_tests\.rs$|/tests?/", path):
            continue
        crate, name = path.split("/")[1], path.rsplit("/", 1)[1]
        unsafe = re.search(r"\bunsafe\s*(\{|impl|fn)", bare(tree.text(path)))
        cell = told.get(crate, "")
        if unsafe and f"`{name}`" not in cell and "every export" not in cell:
            wrong.append(f"{ARCHITECTURE}: unsafe code in {path} is not in the table")
        elif not unsafe and f"`{name}`" in cell:
            wrong.append(f"{ARCHITECTURE}: there is no unsafe code in {path}")
    return wrong


def wrong(tree: Tree) -> list[str]:
    """What documents name and is not there, and the other way round where they promise all."""
    code = _Code(tree)
    found = _kill_points(tree) + _planted_faults(tree) + _unsafe_table(tree)
    for document in documents(tree):
        text = tree.text(document)
        found += _token_faults(document, text, tree, code)
        found += _place_faults(document, text, tree)
    for document in tree.under("", ".md"):
        found += _link_faults(document, tree.text(document), tree)
    return found
