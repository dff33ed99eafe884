"""Writing statements: INSERT in all its forms, REPLACE, UPDATE, DELETE, LOAD DATA."""

from __future__ import annotations

from random import Random

from diff.model import Column, Shape
from diff.queries import Queries
from diff.step import Step

COPY_LIMIT = 100000


class Changes:
    """Draws writing statements for one shape."""

    def __init__(self, shape: Shape, rng: Random, queries: Queries) -> None:
        self.shape = shape
        self.rng = rng
        self.queries = queries
        self.copies = 0

    # -- pieces

    def id_value(self, explicit: bool = False) -> str:
        """A new id, or now and then one in use where id is a key."""
        shape, rng, queries = self.shape, self.rng, self.queries
        if shape.auto_increment and not explicit and rng.random() < 0.7:
            return rng.choice(("NULL", "NULL", "DEFAULT", "0"))
        if shape.id_unique and rng.random() < 0.2:
            return queries.some_id()
        queries.next_id += 1
        if shape.auto_increment and rng.random() < 0.1:
            queries.next_id += rng.randint(1, 5)
        return str(queries.next_id)

    def row(self, columns: list[Column], wrong: float = 0.01) -> str:
        """One parenthesised row."""
        values = [self.id_value(), *(self._draw(c, wrong) for c in columns)]
        return f"({', '.join(values)})"

    def _draw(self, column: Column, wrong: float) -> str:
        if column.clause.startswith("DEFAULT") and self.rng.random() < 0.4:
            return "DEFAULT"
        return column.draw(self.rng, wrong)

    def names(self, columns: list[Column]) -> str:
        """The column list of an INSERT."""
        return ", ".join(["id", *(f"`{c.name}`" for c in columns)])

    def written(self) -> list[Column]:
        """Usually all columns, sometimes without those that can be left out."""
        stored = self.shape.stored()
        if self.rng.random() < 0.8:
            return stored
        return [c for c in stored if c.not_null or self.rng.random() < 0.6]

    def loose(self) -> list[Column]:
        """Columns in no unique key: changing them cannot collide."""
        unique = {p for k in self.shape.keys if k.unique for p in k.parts}
        return [c for c in self.shape.stored() if c.name not in unique]

    def assignment(self, columns: list[Column], wrong: float = 0.01, alias: str = "") -> str:
        """SET list of an UPDATE."""
        rng = self.rng
        picked = rng.sample(columns, min(len(columns), rng.choice((1, 1, 1, 2, 3))))
        return ", ".join(f"{alias}`{c.name}` = {self._change(c, wrong)}" for c in picked)

    def _change(self, column: Column, wrong: float) -> str:
        if column.type.sums and self.rng.random() < 0.2:
            return f"`{column.name}` + {self.rng.randint(-3, 3)}"
        return column.draw(self.rng, wrong)

    # -- statements

    def insert(self) -> Step:
        """INSERT or REPLACE of one row or several."""
        rng, columns = self.rng, self.written()
        rows = ", ".join(self.row(columns) for _ in range(rng.choice((1, 1, 1, 2, 4, 9))))
        verb = rng.choice(("INSERT", "INSERT", "INSERT", "INSERT IGNORE", "INSERT IGNORE", "REPLACE"))
        if verb == "REPLACE" and self.shape.temporary:  # InnoDB's rollback loses rows
            verb = "INSERT"
        tail = ""
        if verb == "INSERT" and rng.random() < 0.35:
            tail = f" ON DUPLICATE KEY UPDATE {self._on_duplicate(columns)}"
        if rng.random() < 0.12:
            tail += f" RETURNING {self.queries.shown()}"
        return Step(f"{verb} INTO t ({self.names(columns)}) VALUES {rows}{tail}")

    def _on_duplicate(self, columns: list[Column]) -> str:
        if columns and self.rng.random() < 0.3:
            column = self.rng.choice(columns)
            return f"`{column.name}` = VALUES(`{column.name}`)"
        if self.shape.id_unique and self.rng.random() < 0.15:
            self.queries.next_id += 1
            return f"id = {self.queries.next_id}"
        stored = self.shape.stored()
        return self.assignment(stored)

    def insert_select(self) -> Step:
        """INSERT ... SELECT from the other table or itself, in a fixed order."""
        rng, stored = self.rng, self.shape.stored()
        self.copies += 1
        offset = self.copies * COPY_LIMIT
        names = self.names(stored)
        picked = ", ".join(f"`{c.name}`" for c in stored)
        target, source = rng.choice((("t", "t2"), ("t2", "t"), ("t2", "t"), ("t", "t")))
        where = f"id < {COPY_LIMIT} AND id BETWEEN {self.queries.some_id()} AND {self.queries.some_id()}"
        verb = rng.choice(("INSERT", "INSERT IGNORE", "INSERT" if self.shape.temporary else "REPLACE"))
        select = (
            f"SELECT id + {offset}{', ' + picked if picked else ''} FROM {source} WHERE {where} ORDER BY id LIMIT 20"
        )
        return Step(f"{verb} INTO {target} ({names}) {select}")

    def update(self) -> Step:
        """UPDATE of one table; ordered, so that a collision in the middle is the same on both sides."""
        rng = self.rng
        stored = self.shape.stored()
        ignore = " IGNORE" if rng.random() < 0.25 else ""
        if self.shape.id_unique and rng.random() < 0.1:
            return self._move_id(ignore)
        limit = f" LIMIT {rng.randint(1, 8)}" if rng.random() < 0.4 else ""
        direction = rng.choice(("", " DESC"))
        where = self.queries.condition() if rng.random() < 0.97 else "1"
        return Step(f"UPDATE{ignore} t SET {self.assignment(stored)} WHERE {where} ORDER BY id{direction}{limit}")

    def _move_id(self, ignore: str) -> Step:
        rng, queries = self.rng, self.queries
        if rng.random() < 0.5:
            queries.next_id += 1
            return Step(f"UPDATE{ignore} t SET id = {queries.next_id} WHERE id = {queries.some_id()}")
        one, two = queries.some_id(), queries.some_id()
        return Step(f"UPDATE{ignore} t SET id = id + 1 WHERE id BETWEEN {one} AND {two} ORDER BY id DESC LIMIT 10")

    def update_join(self) -> Step | None:
        """UPDATE of two tables, columns that cannot collide."""
        loose = self.loose()
        if not loose or self.shape.versioned:
            return None
        one = self.assignment(loose[:1], 0, "t.").replace("= `", "= t.`")
        two = self.assignment(loose[-1:], 0, "t2.").replace("= `", "= t2.`")
        sets = self.rng.choice((one, two, f"{one}, {two}"))
        where = f"t.id BETWEEN {self.queries.some_id()} AND {self.queries.some_id()}"
        return Step(f"UPDATE t JOIN t2 ON t.id = t2.id SET {sets} WHERE {where}")

    def delete(self) -> Step:
        """DELETE of one table."""
        rng = self.rng
        where = self.queries.condition()
        if rng.random() < 0.2:
            return Step(
                f"DELETE FROM t WHERE {where} ORDER BY id LIMIT {rng.randint(1, 5)} RETURNING {self.queries.shown()}"
            )
        return Step(f"DELETE FROM t WHERE {where} ORDER BY id{rng.choice(('', ' DESC'))} LIMIT {rng.randint(1, 6)}")

    def delete_join(self) -> Step:
        """DELETE from one or both of two tables."""
        where = (
            f"t.id BETWEEN {self.queries.some_id()} AND {self.queries.some_id()} AND t2.id < {self.queries.some_id()}"
        )
        targets = self.rng.choice(("t", "t2", "t, t2"))
        return Step(f"DELETE {targets} FROM t JOIN t2 ON t.id = t2.id WHERE {where}")

    def load(self) -> Step | None:
        """LOAD DATA LOCAL of a few lines."""
        columns = self.shape.stored()
        if any(not c.pool[0].startswith("'") and not _plain(c.pool[0]) for c in columns):
            return None
        lines = []
        for _ in range(self.rng.randint(1, 12)):
            values = [self.id_value(explicit=True), *(_as_field(c.draw(self.rng, 0.01)) for c in columns)]
            lines.append("\t".join(values) + "\n")
        option = self.rng.choice(("", "IGNORE ", "REPLACE "))
        sql = f"LOAD DATA LOCAL INFILE '{{FILE}}' {option}INTO TABLE t CHARACTER SET utf8mb4 ({self.names(columns)})"
        return Step(sql, file="".join(lines))


def _plain(literal: str) -> bool:
    return literal.lstrip("-").replace(".", "").isdigit()


def _as_field(literal: str) -> str:
    if literal == "NULL":
        return "\\N"
    if not literal.startswith("'"):
        return literal
    return literal[1:-1].replace("''", "'").replace("\t", "\\t")
