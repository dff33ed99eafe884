"""SQL as text: quoted names, literals, and the parts of what SHOW CREATE TABLE says.

Nothing is changed within quotes: a column's comment may say anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ferrite_migrate.errors import Problem

Name = tuple[str, str]
"""Database and table."""

_QUOTED = r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\""
_PIECE = re.compile(rf"{_QUOTED}|[(),]", re.DOTALL)
_NAME = r"(`(?:[^`]|``)*`|[\w$]+)"
_FOREIGN = re.compile(rf"\s*CONSTRAINT\s+{_NAME}\s+FOREIGN\s+KEY\b", re.IGNORECASE)
_PLAIN = re.compile(rf"({_QUOTED})|\s*\b(AUTO_INCREMENT=\d+|ENGINE\s*=\s*\w+)", re.DOTALL)
_COLUMN = re.compile(r"(`(?:[^`]|``)*`)\s+(\w+)(.*)", re.DOTALL)
_VIRTUAL_OR_STORED = re.compile(r"\bGENERATED ALWAYS AS\b.*\b(?:VIRTUAL|STORED)\b", re.DOTALL)
_OPTION = rf"({_QUOTED})|\b{{}}\s*=\s*('(?:[^'\\]|\\.|'')*'|\w+)"


def quoted(name: str) -> str:
    """A name in backticks."""
    return "`" + name.replace("`", "``") + "`"


def full(name: Name) -> str:
    """Database and table in backticks."""
    return f"{quoted(name[0])}.{quoted(name[1])}"


def label(name: Name) -> str:
    """Database and table for people."""
    return f"{name[0]}.{name[1]}"


def literal(text: str) -> str:
    """A string that means the same in every SQL mode."""
    if "\\" in text or "\0" in text:
        return f"_utf8mb4 X'{text.encode().hex()}'"
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class Definition:
    """A CREATE TABLE taken apart: what stands before the brackets, the columns and keys, the options."""

    parts: tuple[str, ...]
    """Columns, keys and checks."""
    foreign: tuple[str, ...]
    """The clauses of foreign keys, each with its name."""
    options: str
    """What follows the closing bracket: engine, options, partitions."""

    @classmethod
    def parse(cls, sql: str) -> Definition:
        """Take what SHOW CREATE TABLE says apart."""
        depth, start, parts = 0, 0, []
        for piece in _PIECE.finditer(sql):
            sign = piece.group()
            if sign == "(":
                depth += 1
                start = piece.end() if depth == 1 else start
            elif depth == 1 and sign in ",)":
                parts.append(sql[start : piece.start()].strip())
                start = piece.end()
            if sign == ")":
                depth -= 1
                if depth == 0:
                    break
        if depth or not parts:
            raise Problem(f"this definition is not understood: {sql}")
        foreign = tuple(x for x in parts if _FOREIGN.match(x))
        return cls(tuple(x for x in parts if not _FOREIGN.match(x)), foreign, sql[start:].strip())

    def without_engine(self) -> str:
        """The options without the engine's name, of the table and its partitions, and without AUTO_INCREMENT."""
        plain = _PLAIN.sub(lambda m: m.group(1) or "", self.options)
        # Options of the other engine are shown in a comment.
        return " ".join(plain.replace(" /* ", " ").replace(" */", "").split())

    def option(self, name: str) -> str | None:
        """The value of a table option as the definition has it."""
        for found in re.finditer(_OPTION.format(name), self.options, re.DOTALL | re.IGNORECASE):
            if found.group(2):
                return found.group(2)
        return None

    def computes_columns(self) -> bool:
        """It has generated columns, stored or virtual, perhaps the hidden one of a long UNIQUE key."""
        return any(re.search(r"\bGENERATED ALWAYS AS\b|\bUSING HASH\b", _bare(part)) for part in self.parts)

    def zoned_columns(self) -> list[str]:
        """Generated columns that are stored, or in an index, and whose values can depend on the time zone of who computes them.

        Those are what an ALTER TABLE by copy computes anew. A generated column that reads another one depends on what that one reads.
        """
        columns = [m.groups() for x in self.parts if (m := _COLUMN.match(x))]
        zoned = {name for name, kind, _ in columns if kind.lower() == "timestamp"}
        made = {name: _expression(rest) for name, _, rest in columns if _VIRTUAL_OR_STORED.search(_bare(rest))}
        for _ in made:
            zoned |= {name for name, text in made.items() if "unix_timestamp(" in text or zoned & set(_names(text))}
        keys = [name for x in self.parts if not _COLUMN.match(x) for name in _names(x)] + _names(self.options)
        kept = {name for name, _, rest in columns if re.search(r"\bSTORED\b", _bare(rest))} | set(keys)
        return [name for name in made if name in zoned & kept]

    def differences(self, after: Definition) -> list[str]:
        """What another definition has otherwise, engine and AUTO_INCREMENT apart."""
        mine, other = [*self.parts, *self.foreign], [*after.parts, *after.foreign]
        found = [f"without: {x}" for x in mine if x not in other] + [f"with: {x}" for x in other if x not in mine]
        if self.without_engine() != after.without_engine():
            found.append(f"options: {after.without_engine() or 'none'}, before: {self.without_engine() or 'none'}")
        return found


def _bare(text: str) -> str:
    """Without what stands in quotes."""
    return re.sub(_QUOTED, "", text, flags=re.DOTALL)


def _expression(text: str) -> str:
    """Without strings, which may say anything."""
    return re.sub(_QUOTED, lambda m: m.group() if m.group()[0] == "`" else "", text, flags=re.DOTALL)


def _names(text: str) -> list[str]:
    return re.findall(r"`(?:[^`]|``)*`", _expression(text))


def constraint(clause: str) -> str:
    """The name of a foreign key, in backticks."""
    found = _FOREIGN.match(clause)
    assert found, clause
    return found.group(1)


def parent(clause: str, database: str) -> Name:
    """The table that a foreign key of a table of this database refers to."""
    outside = re.sub(r"\((?:`(?:[^`]|``)*`|[^()`])*\)", "()", clause)
    found = re.search(rf"\bREFERENCES\s+{_NAME}(?:\s*\.\s*{_NAME})?", outside, re.IGNORECASE)
    assert found, clause
    names = [x[1:-1].replace("``", "`") if x.startswith("`") else x for x in found.groups() if x]
    return (names[0], names[1]) if len(names) == 2 else (database, names[0])


def renamed_indexes(before: Definition, after: Definition) -> list[tuple[str, str]]:
    """Indexes that have another name than before, as quoted names: new and old.

    The server replaces an index that it has made for a foreign key by itself: when the key is added again, by one with its name.
    """
    pattern = re.compile(rf"KEY\s+{_NAME}\s+(\(.*)", re.DOTALL)
    lost = [m for x in before.parts if x not in after.parts and (m := pattern.match(x))]
    new = [m for x in after.parts if x not in before.parts and (m := pattern.match(x))]
    pairs = []
    for old in lost:
        same = next((m for m in new if m.group(2) == old.group(2)), None)
        if same:
            new.remove(same)
            pairs.append((same.group(1), old.group(1)))
    return pairs


def refers_elsewhere(clause: str, table: str) -> str:
    """The clause with another table, quoted already, behind REFERENCES."""
    pattern = re.compile(rf"(`(?:[^`]|``)*`)|(\bREFERENCES\s+){_NAME}(?:\s*\.\s*{_NAME})?", re.IGNORECASE | re.DOTALL)
    return pattern.sub(lambda m: m.group(1) or f"{m.group(2)}{table}", clause)
