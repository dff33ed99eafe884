"""Suites made for another engine by substituting its name: copies of gcol, vcol, sql_sequence, versioning and others."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from lib.engines import Engine
from mtr.adapt import adapt
from mtr.cuts import cut
from mtr.foreign import has_foreign_keys, not_taken, own_views
from mtr.pieces import take_pieces
from mtr.tree import Tree

DERIVED = ("gcol", "vcol", "sql_sequence", "versioning", "period", "handler", "parts", "innodb", "main")
TEXT = (".test", ".inc", ".result", ".opt", ".cnf", ".rdiff", ".def", ".combinations", ".sh")
NAMES = re.compile(r"(?<![-\w/])innodb(?![-\w])", re.IGNORECASE)
"""The engine's name, not the first word of an option or of a file."""
NOT_PORTABLE = re.compile(
    r"have_debug|debug_sync|debug_dbug|@@(?:global\.|session\.)?innodb_|set\s+(?:global|session)?\s*innodb_"
    r"|information_schema\.innodb_|innodb_(?:metrics|sys_|trx|locks|lock_waits|page_size|compression|file_per|stats|strict|default_row)"
    r"|\.ibd\b|have_innodb_\d+k|innodb_page_size|xtrabackup|mariabackup|storage\s+engine\s+innodb|engine\s+innodb\s+(?:status|mutex)",
    re.IGNORECASE,
)
SOURCE = re.compile(r"^\s*(?:--\s*)?(?:source|let\s+\$\w+\s*=)\s*([\w./$-]+\.inc)", re.MULTILINE | re.IGNORECASE)
OTHERS = re.compile(r"_(myisam|maria|archive|memory|blackhole|federated)$")
"""Tests of another engine that only mention InnoDB."""
INNODBS_OWN = {
    # Its tables of statistics, its encryption and defragmentation threads, its monitor, its files, its own start-up.
    "innodb": re.compile(
        r"mysql\.innodb_|innodb_(?:table|index)_stats|innodb-(?:encrypt|defragment|force-recovery|file-io|page)|innodb_monitor"
        r"|uninstall\s+(?:plugin|soname)|innodb_open_files|ib_logfile|\.frm\b",
        re.IGNORECASE,
    ),
}
"""What more keeps tests of one suite from being portable."""
NAMED_IN_COMMENTS = {"innodb.innodb-replace"}
"""Tests that have such a word in a comment alone."""
ONLY = {"main": re.compile(r"foreign\s+key", re.IGNORECASE)}
"""What a test of a suite must itself say: of main, which is about the server, those that have foreign keys are taken."""
OUTSIDE = "outside"
"""Folder of a copy for files that its tests include from elsewhere and that name the engine."""
COMBINATIONS = {
    # The block's name stays the one whose results are to be matched.
    "versioning": "[timestamp]\ninnodb\ndefault-storage-engine={engine}\n",
    "period": "[innodb]\ninnodb\ndefault-storage-engine={engine}\n",
}


def port_name(suite: str) -> str:
    """The copy's name."""
    return f"{suite}_port"


def derive_all(tree: Tree, kind: Engine) -> dict[str, list[str]]:
    """Copy every suite, since they include each other's files; the names of the portable tests of each."""
    return {suite: Derivation(tree, suite, kind).make() for suite in DERIVED}


class Derivation:
    """Copies one suite for one engine."""

    def __init__(self, tree: Tree, suite: str, kind: Engine) -> None:
        self.tree = tree
        self.suite = suite
        self.kind = kind
        self.source = tree.mtr / "main" if suite == "main" else tree.mtr / "suite" / suite
        self.target = tree.mtr / "suite" / port_name(suite)
        self.outside: set[Path] = set()
        self.not_taken = not_taken()

    def make(self) -> list[str]:
        """Copy, substitute, drop what is not portable; the names of the tests that remain."""
        shutil.rmtree(self.target, ignore_errors=True)
        shutil.copytree(self.source, self.target)
        portable = [t for t in (*self.source.glob("*.test"), *self.source.glob("t/*.test")) if self._portable(t)]
        self._fetch_outside()
        take_pieces(self.suite, self.target)
        for path in self.target.rglob("*"):
            if path.suffix in TEXT and path.is_file():
                text = path.read_text(encoding="utf-8", errors="surrogateescape")
                path.write_text(self._substitute(text), encoding="utf-8", errors="surrogateescape")
        self._combinations()
        if self.kind.prefix != "innodb":
            adapt(self.suite, self.target)
            cut(self.suite, self.target, self.tree.places.version)
        self.tree.give(self.target)
        return sorted(t.stem for t in portable)

    def _reach(self, path: Path, seen: set[Path]) -> str:
        """The test's text with everything it includes."""
        if path in seen or not path.is_file():
            return ""
        seen.add(path)
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
        out = [text]
        for name in SOURCE.findall(text):
            for base in (path.parent, self.source, self.tree.mtr):
                candidate = base / name
                if candidate.is_file() and candidate.name not in ("have_innodb.inc", "have_partition.inc"):
                    if base == self.tree.mtr and not candidate.is_relative_to(self.source):
                        self.outside.add(candidate)
                    out.append(self._reach(candidate, seen))
                    break
        return "\n".join(out)

    def _fetch_outside(self) -> None:
        """Copies of the files elsewhere that name the engine, and of those that include such a file."""
        wanted = {p for p in self.outside if NAMES.search(self._reach(p, set()))}
        for path in wanted:
            copy = self.target / OUTSIDE / path.relative_to(self.tree.mtr)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy)
        self.outside = wanted

    def _portable(self, test: Path) -> bool:
        if OTHERS.search(test.stem):
            return False
        own_text = test.read_text(encoding="utf-8", errors="surrogateescape")
        text = self._reach(test, set())
        only = ONLY.get(self.suite)
        if only and not only.search(own_text):
            return False
        parametrised = "engines.inc" in text
        if not parametrised and not re.search(r"innodb", text, re.IGNORECASE):
            return False
        if has_foreign_keys(own_text):
            return f"{self.suite}.{test.stem}" not in self.not_taken
        options = [test.with_name(test.stem + x) for x in (".opt", ".cnf", "-master.opt")]
        text += "".join(o.read_text() for o in options if o.exists())
        own = INNODBS_OWN.get(self.suite) if f"{self.suite}.{test.stem}" not in NAMED_IN_COMMENTS else None
        return not NOT_PORTABLE.search(text) and not (own and own.search(text))

    def _substitute(self, text: str) -> str:
        name = self.kind.name

        def engine(found: re.Match[str]) -> str:
            return name.lower() if found.group(0).islower() else name

        for other in DERIVED:
            text = re.sub(rf"(?:\.\./)?suite/{other}/", f"suite/{port_name(other)}/", text)
        for path in self.outside:
            name_of = re.escape(str(path.relative_to(self.tree.mtr)))
            folder = f"suite/{port_name(self.suite)}/{OUTSIDE}/"
            text = re.sub(rf"(source|=)(\s*)({name_of})\b", rf"\1\2{folder}\3", text)
        text = re.sub(rf"^{self.suite}\.", f"{port_name(self.suite)}.", text, flags=re.MULTILINE)
        return text if self.kind.prefix == "innodb" else NAMES.sub(engine, own_views(text, self.kind.prefix))

    def _combinations(self) -> None:
        block = COMBINATIONS.get(self.suite)
        if block:
            (self.target / "engines.combinations").write_text(block.format(engine=self.kind.name.lower()))
            for found in (self.target / "innodb.combinations", self.target / "key_type.combinations"):
                if found.exists() and self.kind.prefix != "innodb" and found.name == "innodb.combinations":
                    found.write_text(f"[timestamp]\ndefault-storage-engine={self.kind.name.lower()}\n")
