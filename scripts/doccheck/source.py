"""The repository's text, and what is defined where in it.

Everything is read through a `Tree`, which may stand for the repository with some files changed: that is how the checks
prove that they see a planted drift.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
CODE = (".rs", ".cc", ".h", ".c", ".py", ".sh", ".toml", ".txt", ".lua")
Members = dict[str, set[str]]

# A raw string, a string, a character, a block comment, a line comment.
_QUOTED = re.compile(
    r'r(#*)".*?"\1'
    r'|"(?:\\.|[^"\\])*"'
    r"|'(?:\\.[^']*|[^'\\])'"
    r"|/\*.*?\*/"
    r"|//[^\n]*",
    re.DOTALL,
)


class Tree:
    """Files by path from the root, as git knows them, with `changed` in the place of some."""

    def __init__(self, changed: dict[str, str] | None = None) -> None:
        self.changed = changed or {}
        self.paths = sorted({*_paths(), *self.changed})
        self.found: dict[str, list[str]] = {}

    def text(self, path: str) -> str:
        """The file's text."""
        return self.changed.get(path) or _text(path)

    def find(self, place: str) -> list[str]:
        """The files that a document may mean by a path: it is whole, or its beginning is left out."""
        place = place.removeprefix("./").removesuffix("/")
        pattern = re.escape(place).replace(r"\*", "[^/]*")
        wanted = re.compile(rf"(?:.*/)?{pattern}(?:/.*)?")
        if place not in self.found:
            self.found[place] = [p for p in self.paths if wanted.fullmatch(p)]
        return self.found[place]

    def under(self, start: str, end: str) -> list[str]:
        """Files whose path begins and ends so."""
        return [p for p in self.paths if p.startswith(start) and p.endswith(end)]

    def code(self) -> list[str]:
        """Files with code in them."""
        return [p for p in self.paths if p.endswith(CODE) or p == "ferrite"]


@cache
def _paths() -> tuple[str, ...]:
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    out = subprocess.run(
        listed, cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return tuple(p for p in out.splitlines() if (ROOT / p).is_file())


@cache
def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


@cache
def without_comments(source: str) -> str:
    """The source without comments; strings stay."""
    return _QUOTED.sub(lambda m: " " if m[0].startswith("/") else m[0], source)


@cache
def bare(source: str) -> str:
    """The source without comments, and with nothing in its strings: braces can be counted."""
    return _QUOTED.sub(lambda m: " " if m[0].startswith("/") else '""', source)


def block(source: str, start: int) -> str:
    """What stands between the first brace from `start` on and the one that closes it."""
    begin = source.index("{", start)
    depth = 0
    for at in range(begin, len(source)):
        depth += {"{": 1, "}": -1}.get(source[at], 0)
        if depth == 0:
            return source[begin + 1 : at]
    return source[begin + 1 :]


@cache
def without_tests(source: str) -> str:
    """What stands above a file's tests."""
    return source.split("\n#[cfg(test)]\nmod tests {")[0]


def function(tree: Tree, name: str, place: str = "") -> str:
    """Signature and body of `name` or `Type::name`, in a file or in whichever defines it; "" if there is none."""
    kind, _, plain = name.rpartition("::")
    files = tree.find(place) if place else tree.under("crates/", ".rs")
    for path in files:
        if f"fn {plain}" not in tree.text(path):
            continue
        source = bare(without_tests(tree.text(path)))
        regions = [source]
        if kind:
            heads = re.finditer(rf"\bimpl\b[^{{;]*\b{kind}\b[^{{;]*\{{", source)
            regions = [block(source, m.start()) for m in heads]
        for region in regions:
            head = rf"\bfn {plain}\b(?:\[[^\]]*\]|[^{{;\[])*\{{"
            if found := re.search(head, region):
                return found[0] + block(region, found.start())
    return ""


@cache
def _rust_members(source: str) -> dict[str, frozenset[str]]:
    source = bare(source)
    members: dict[str, set[str]] = {}
    for head in re.finditer(r"\bimpl\b([^{;]*)\{", source):
        name = re.sub(r"<[^<>]*>", "", re.sub(r"<[^<>]*>", "", head[1]))
        name = name.split(" where ")[0].split(" for ")[-1]
        last = re.findall(r"\w+", name)
        if last:
            inside = block(source, head.start())
            found = re.findall(r"\b(?:fn|const|type) (\w+)", inside)
            members.setdefault(last[-1], set()).update(found)
    for kind, name in re.findall(r"\b(struct|enum|trait|union) (\w+)", source):
        at = re.search(rf"\b{kind} {name}\b[^{{;(]*\{{", source)
        inside = block(source, at.start()) if at else ""
        found = re.findall(r"\b(?:fn|const|type) (\w+)", inside)
        found += re.findall(r"\b([a-z_]\w*)\s*:", inside)
        found += re.findall(r"(?:^|[,{}\s])([A-Z]\w*)\s*(?=[,({=]|$)", inside)
        members.setdefault(name, set()).update(found)
    return {name: frozenset(found) for name, found in members.items()}


def rust_members(tree: Tree) -> Members:
    """Of each type of the crates its methods, constants, fields and variants."""
    members: Members = {}
    for path in tree.under("crates/", ".rs"):
        for name, found in _rust_members(tree.text(path)).items():
            members.setdefault(name, set()).update(found)
    return members


@cache
def _words(source: str) -> frozenset[str]:
    return frozenset(re.findall(r"[A-Za-z_]\w*", source))


@cache
def inline_modules(source: str) -> frozenset[str]:
    """The modules that a file declares, or has in it."""
    return frozenset(re.findall(r"\bmod (\w+)\b", source))


def words(tree: Tree, path: str) -> frozenset[str]:
    """Every word of a file's code; those of its comments are not."""
    source = tree.text(path)
    plain = without_comments(source) if path.endswith((".rs", ".cc", ".h")) else source
    return _words(plain)


def tables(text: str) -> list[tuple[str, list[list[str]]]]:
    """Each table of a document, its cells, and the nearest heading or marker above it."""
    found: list[tuple[str, list[list[str]]]] = []
    above, rows = "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line.strip().strip("|"))
            rows.append([cell.strip() for cell in cells])
            continue
        if rows:
            found.append((above, [rows[0], *rows[2:]]))
            rows = []
        if line.startswith(("#", "<!--")):
            above = line
    return found


def table(text: str, *columns: str) -> list[list[str]]:
    """The rows of the tables that have exactly these columns."""
    return [
        row for _, rows in tables(text) if rows[0] == list(columns) for row in rows[1:]
    ]


def ticked(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`\n]+)`", text)


def both_ways(what: str, code: set[str], told: set[str], document: str) -> list[str]:
    """Complaints about what only one of the two has."""
    lacking = [
        f"{document}: {what} {name} is not in it" for name in sorted(code - told)
    ]
    gone = [
        f"{document}: {what} {name} is not in the code" for name in sorted(told - code)
    ]
    return lacking + gone
