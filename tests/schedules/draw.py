"""Draws lock schedules: a small table and a few statements of two or three sessions, in one order, from a seed alone.

Index hints pin the access path, so that both engines read the same records; what is compared is who gets which lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

KEYS = (10, 20, 30, 40, 50)
"""Values of the rows at the start; the gaps between them are as interesting as they are."""
PROBES = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55)


@dataclass(frozen=True)
class Kind:
    """A table."""

    name: str
    ddl: str
    indexes: tuple[str, ...]
    """Columns with an index of their own, by which statements find rows; the index is called like the column."""


KINDS = (
    Kind("pk", "id INT PRIMARY KEY, k INT, u INT, v INT", ("id",)),
    Kind("secondary", "id INT PRIMARY KEY, k INT, u INT, v INT, KEY k (k)", ("id", "k")),
    Kind("unique", "id INT PRIMARY KEY, k INT, u INT, v INT, UNIQUE KEY u (u)", ("id", "u")),
    Kind("both", "id INT PRIMARY KEY, k INT, u INT, v INT, KEY k (k), UNIQUE KEY u (u)", ("id", "k", "u")),
    Kind("none", "id INT, k INT, u INT, v INT, KEY k (k)", ("k",)),
    Kind("unique_pk", "id INT NOT NULL, k INT, u INT, v INT, UNIQUE KEY id (id), KEY k (k)", ("id", "k")),
)


@dataclass(frozen=True)
class Act:
    """One statement of one session."""

    session: int
    sql: str


@dataclass(frozen=True)
class Schedule:
    """One story."""

    number: int
    kind: Kind
    sessions: int
    acts: tuple[Act, ...]

    def text(self) -> str:
        """For people."""
        lines = [f"CREATE TABLE t ({self.kind.ddl}); rows {KEYS} in id, k and u"]
        return "\n".join([*lines, *(f"  {a.session}: {a.sql}" for a in self.acts)])


class Drawer:
    """Draws schedules of one isolation level."""

    def __init__(self, seed: int, level: str, number: int) -> None:
        self.rng = Random(f"{seed}:{level}:{number}")
        self.level = level
        self.number = number
        self.kind = self.rng.choice(KINDS)
        self.new_ids = iter(range(1000, 2000))

    def schedule(self) -> Schedule:
        """The schedule of this number."""
        rng = self.rng
        sessions = rng.choice((2, 2, 2, 3))
        acts = [Act(s, "BEGIN") for s in range(sessions)]
        acts.append(Act(0, self.statement()))
        for _ in range(rng.randint(1, 5)):
            session = rng.randrange(sessions)
            ends = rng.random() < 0.12
            acts.append(Act(session, rng.choice(("COMMIT", "ROLLBACK")) if ends else self.statement()))
            if ends:
                acts.append(Act(session, "BEGIN"))
        order = rng.sample(range(sessions), sessions)
        acts += [Act(s, rng.choice(("COMMIT", "ROLLBACK"))) for s in order]
        return Schedule(self.number, self.kind, sessions, tuple(acts))

    # -- statements

    def statement(self) -> str:
        """Anything that locks, or at SERIALIZABLE reads."""
        forms = [
            self.select,
            self.select,
            self.extreme,
            self.update,
            self.update,
            self.delete,
            self.insert,
            self.insert,
        ]
        return self.rng.choice(forms)()

    def value(self) -> int:
        """A key that is there, or a gap."""
        return self.rng.choice(PROBES)

    def path(self) -> tuple[str, str]:
        """A column to search by, and the hint that makes its index used."""
        column = self.rng.choice((*self.kind.indexes, *self.kind.indexes, "v"))
        if column == "v":
            return column, f" IGNORE INDEX ({', '.join(self.hints())})"
        return column, f" FORCE INDEX ({self.hint_of(column)})"

    def hint_of(self, column: str) -> str:
        """The index of a column."""
        return "PRIMARY" if column == "id" and "id INT PRIMARY" in self.kind.ddl else column

    def hints(self) -> list[str]:
        """All indexes but the primary one."""
        return [self.hint_of(c) for c in self.kind.indexes if self.hint_of(c) != "PRIMARY"] or ["PRIMARY"]

    def condition(self, column: str) -> str:
        """A point, a list or a range."""
        one, two = sorted((self.value(), self.value()))
        return self.rng.choice(
            (
                f"{column} = {one}",
                f"{column} = {one}",
                f"{column} = {two}",
                f"{column} > {one}",
                f"{column} >= {one}",
                f"{column} < {two}",
                f"{column} <= {two}",
                f"{column} BETWEEN {one} AND {two}",
                f"{column} > {one} AND {column} < {two}",
                f"{column} IN ({one}, {two})",
            )
        )

    def order(self, column: str) -> str:
        """Direction and end of a scan."""
        if column == "v":
            return ""
        direction = self.rng.choice(("", f" ORDER BY {column}", f" ORDER BY {column} DESC"))
        limit = f" LIMIT {self.rng.randint(1, 2)}" if direction and self.rng.random() < 0.4 else ""
        return direction + limit

    def locking(self) -> str:
        """The end of a SELECT."""
        plain = self.level == "SERIALIZABLE" and self.rng.random() < 0.5
        return "" if plain else self.rng.choice((" FOR UPDATE", " FOR UPDATE", " LOCK IN SHARE MODE"))

    def select(self) -> str:
        """A locking read; covering or not."""
        column, hint = self.path()
        shown = self.rng.choice((column, "*", "*"))
        return f"SELECT {shown} FROM t{hint} WHERE {self.condition(column)}{self.order(column)}{self.locking()}"

    def extreme(self) -> str:
        """MIN or MAX, which the server reads from one end of an index."""
        column = self.rng.choice(self.kind.indexes)
        where = self.rng.choice(("", f" WHERE {column} < {self.value()}", f" WHERE {column} > {self.value()}"))
        what = self.rng.choice(("MIN", "MAX"))
        return f"SELECT {what}({column}) FROM t FORCE INDEX ({self.hint_of(column)}){where}{self.locking()}"

    def update(self) -> str:
        """Of a plain column or of a key."""
        column, hint = self.path()
        target = self.rng.choice(("v", "v", "k", "u", "id"))
        change = f"{target} = {self.value()}" if target != "v" else "v = v + 1"
        return f"UPDATE t{hint} SET {change} WHERE {self.condition(column)}{self.order(column)}"

    def delete(self) -> str:
        """By the primary or a unique key, or by the only index: no hint can be given."""
        column = self.rng.choice(self.kind.indexes)
        return f"DELETE FROM t WHERE {column} = {self.value()}"

    def insert(self) -> str:
        """A new row, which may meet another by id or u."""
        n = self.value() if self.rng.random() < 0.7 else next(self.new_ids)
        row = f"({n}, {self.value()}, {self.value() if self.rng.random() < 0.7 else n}, 0)"
        verb = self.rng.choice(("INSERT INTO", "INSERT INTO", "INSERT INTO", "INSERT IGNORE INTO", "REPLACE INTO"))
        tail = " ON DUPLICATE KEY UPDATE v = v + 1" if verb == "INSERT INTO" and self.rng.random() < 0.2 else ""
        return f"{verb} t (id, k, u, v) VALUES {row}{tail}"
