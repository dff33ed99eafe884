"""What the generator knows about a table: columns, keys, options. A shape is such a table with its habits."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from diff.values import ColType


@dataclass
class Column:
    """One column and the literals drawn for it."""

    name: str
    type: ColType
    not_null: bool = False
    clause: str = ""
    """DEFAULT, CHECK, INVISIBLE, GENERATED ..."""
    generated: bool = False
    pool: list[str] = field(default_factory=list)

    def sql(self) -> str:
        """As in CREATE TABLE."""
        null = " NOT NULL" if self.not_null and not self.generated else ""
        return (
            f"`{self.name}` {self.type.sql}{' ' + self.clause if self.generated else null + ' ' + self.clause}".rstrip()
        )

    def draw(self, rng: Random, wrong: float = 0.0) -> str:
        """A literal to store."""
        if wrong and self.type.bad and rng.random() < wrong:
            return rng.choice(self.type.bad)
        if rng.random() < 0.12 and (not self.not_null or rng.random() < wrong):
            return "NULL"
        return rng.choice(self.pool)

    def probe(self, rng: Random) -> str:
        """A literal to look for."""
        return rng.choice(self.pool)


@dataclass
class Key:
    """One index; parts are column names, each with an optional prefix length and direction."""

    name: str
    parts: list[str]
    unique: bool = False
    prefixes: dict[str, int] = field(default_factory=dict)
    descending: set[str] = field(default_factory=set)

    def sql(self) -> str:
        """As in CREATE TABLE."""
        words = []
        for part in self.parts:
            length = f"({self.prefixes[part]})" if part in self.prefixes else ""
            words.append(f"`{part}`{length}{' DESC' if part in self.descending else ''}")
        listed = ",".join(words)
        if self.name == "PRIMARY":
            return f"PRIMARY KEY ({listed})"
        return f"{'UNIQUE ' if self.unique else ''}KEY `{self.name}` ({listed})"


@dataclass
class Shape:
    """A table and how it is treated."""

    name: str
    columns: list[Column]
    keys: list[Key] = field(default_factory=list)
    options: str = ""
    """After ENGINE=."""
    checks: list[str] = field(default_factory=list)
    id_unique: bool = True
    auto_increment: bool = False
    temporary: bool = False
    versioned: bool = False
    handler: bool = True
    before: list[str] = field(default_factory=list)
    """Statements before the first CREATE TABLE."""
    after: list[str] = field(default_factory=list)
    """Statements after it."""
    fill: int = 60
    weight: float = 1.0
    """Share of the statements (large values are slow)."""
    churn: bool = True
    """Whether ALTER, RENAME and TRUNCATE are among the statements."""

    def column(self, name: str) -> Column:
        """By name."""
        return next(c for c in self.columns if c.name == name)

    def stored(self) -> list[Column]:
        """Columns one can write, without id."""
        return [c for c in self.columns if not c.generated and c.name != "id"]

    def create(self, name: str = "t", plain: bool = False) -> str:
        """CREATE TABLE; {E} stands for the engine. plain: no partitions, no versioning."""
        parts = [c.sql() for c in self.columns] + [k.sql() for k in self.keys] + self.checks
        temporary = "TEMPORARY " if self.temporary else ""
        return (
            f"CREATE {temporary}TABLE {name} ({', '.join(parts)}) ENGINE={{E}} {'' if plain else self.options}".rstrip()
        )


def fill_pools(shape: Shape, rng: Random) -> None:
    """Draw the literals of every column."""
    for column in shape.columns:
        if not column.pool:
            column.pool = column.type.pool(rng)
