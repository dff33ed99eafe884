"""Tests of which the pieces with foreign keys are taken, and nothing of what is around them.

Some of the server's tests are long, and one thing in them is about foreign keys: the rest is of InnoDB's own files, tables and
formats, or needs a server built for debugging. Of these the copy of a derived suite has the pieces that are named here, in the
test and in its result alike: what is left is compared word for word, with InnoDB in the same way (`--engine innodb`). What in
a piece is InnoDB's own all the same is said otherwise by mtr/cuts.py, as in every other test.

A piece ends with the line that is named, or before it; where a line is not found, the run ends with its name: another version
of the server has another test.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mtr.taken import PIECES, Piece, Taken

COMMAND = re.compile(r"^(?:--\s*)?(?:echo|eval|send)\s+")
"""What a test has before a line that its result has as it is."""
CHARSET = re.compile(r"^--\s*source include/(?:default_charset|test_db_charset_latin1)\.inc$", re.MULTILINE)
RESTORED = re.compile(r"^--\s*source include/test_db_charset_restore\.inc$", re.MULTILINE)
"""What a test has around it for the character set that its result shows (11.8)."""
PREFIXES = ("", "t", "r")
"""Where a suite has its tests and results."""


@dataclass
class Lines:
    """A test or its result, read from its beginning to its end."""

    name: str
    lines: list[str]
    at: int = 0

    def seek(self, start: str) -> int:
        """The next line that begins so."""
        for number in range(self.at, len(self.lines)):
            line = self.lines[number]
            if line.startswith(start) or COMMAND.sub("", line).startswith(start):
                return number
        raise SystemExit(f"mtr/taken.py: {self.name} has no line {start!r} behind its line {self.at}")

    def cut(self, piece: Piece) -> list[str]:
        """The lines of a piece."""
        first = self.seek(piece.first)
        self.at = first
        if piece.last:
            self.at = self.seek(piece.last) + 1
        elif piece.until:
            self.at = first + 1
            self.at = self.seek(piece.until)
        else:
            self.at = len(self.lines)
        return self.lines[first : self.at]


def _silently(lines: list[str]) -> list[str]:
    """Commands of which a result has nothing; each may turn the log on again."""
    return [f"--disable_query_log\n{line}\n--enable_query_log\n" for line in lines]


def _pieces(path: Path, taken: Taken) -> str:
    """What the copy of a file has."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    lines = Lines(path.name, text.splitlines(keepends=True))
    is_test = path.suffix == ".test"
    out = [f"{line}\n" for line in taken.head] + _silently(CHARSET.findall(text)) if is_test else []
    for piece in taken.pieces:
        out += [f"{line}\n" for line in piece.lead]
        out += lines.cut(piece)
    out += [f"{line}\n" for line in taken.tail]
    kept = "".join(out + (_silently(RESTORED.findall(text)) if is_test else []))
    for said in taken.said:
        kept = re.sub(said.old, "" if said.silent and not is_test else said.new, kept, flags=re.MULTILINE)
    return kept


def take_pieces(suite: str, folder: Path) -> None:
    """Changes the copy of a suite in `folder`, which has InnoDB's name still."""
    for test, taken in PIECES.get(suite, {}).items():
        found = [p for kind in ("test", "result") for x in PREFIXES if (p := folder / x / f"{test}.{kind}").is_file()]
        if not found:
            continue  # a test of another server
        for path in found:
            path.write_text(_pieces(path, taken), encoding="utf-8", errors="surrogateescape")
        _forget_combinations(test, folder)


def _forget_combinations(test: str, folder: Path) -> None:
    """They are of the rest: what a combination changes of the result no longer fits."""
    for prefix in PREFIXES:
        for path in (*(folder / prefix).glob(f"{test},*.rdiff"), folder / prefix / f"{test}.combinations"):
            path.unlink(missing_ok=True)
