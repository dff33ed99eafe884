"""Reading statements: points, ranges, lists, orders, groups, joins, covering scans, locking reads, HANDLER."""

from __future__ import annotations

from random import Random

from diff.model import Column, Key, Shape
from diff.step import Step

LOCKS = ("", "", "", "", "", " FOR UPDATE", " LOCK IN SHARE MODE")


class Queries:
    """Draws reading statements for one shape."""

    def __init__(self, shape: Shape, rng: Random) -> None:
        self.shape = shape
        self.rng = rng
        self.next_id = 1

    # -- conditions

    def some_id(self) -> str:
        """An id that was probably used."""
        return str(self.rng.randint(1, max(2, self.next_id)))

    def probe(self, column: Column) -> str:
        """A literal to compare the column with."""
        return self.some_id() if column.name == "id" else column.probe(self.rng)

    def comparison(self, column: Column) -> str:
        """One condition on one column."""
        rng, name = self.rng, f"`{column.name}`"
        one, two = self.probe(column), self.probe(column)
        forms = [
            f"{name} = {one}",
            f"{name} = {two}",
            f"{name} <=> {one}",
            f"{name} IN ({one}, {two}, {self.probe(column)})",
            f"{name} IN ({', '.join(self.probe(column) for _ in range(rng.randint(1, 12)))})",
            f"{name} BETWEEN {one} AND {two}",
            f"{name} > {one}",
            f"{name} >= {one}",
            f"{name} < {two}",
            f"{name} <= {two}",
            f"{name} > {one} AND {name} <= {two}",
            f"{name} IS NULL",
            f"{name} IS NOT NULL",
            f"{name} <> {one}",
            f"NOT ({name} BETWEEN {one} AND {two})",
            f"({name} = {one} OR {name} IS NULL)",
        ]
        if column.type.like and column.type.patterns and one.startswith("'") and rng.random() < 0.3:
            return f"{name} LIKE '{self._pattern(one)}'"
        return rng.choice(forms)

    def _pattern(self, literal: str) -> str:
        body = literal[1:-1].replace("\\", "").replace("'", "")
        stem = body[: self.rng.randint(0, 3)]
        return self.rng.choice((f"{stem}%", f"{stem}_%", f"%{stem}%", f"{stem}"))

    def on_key(self, key: Key) -> str:
        """A condition an index can serve: equal on a prefix of its parts, anything on the next."""
        count = self.rng.randint(1, len(key.parts))
        columns = [self.shape.column(p) for p in key.parts[:count]]
        parts = [f"`{c.name}` = {self.probe(c)}" for c in columns[:-1]]
        return " AND ".join([*parts, self.comparison(columns[-1])])

    def condition(self) -> str:
        """Any WHERE condition."""
        rng, shape = self.rng, self.shape
        draw = rng.random()
        if draw < 0.25:
            return self.comparison(shape.column("id"))
        if draw < 0.6 and shape.keys:
            return self.on_key(rng.choice(shape.keys))
        if draw < 0.8:
            return self.comparison(rng.choice(shape.columns))
        joiner = rng.choice((" AND ", " OR "))
        return joiner.join(f"({self.comparison(rng.choice(shape.columns))})" for _ in range(2))

    # -- select lists

    def shown(self, alias: str = "") -> str:
        """All columns; large ones by their digest."""
        out = []
        for column in self.shape.columns:
            name = f"{alias}`{column.name}`"
            out.append(f"MD5({name}), LENGTH({name})" if column.type.prefix else name)
        return ", ".join(out)

    def hint(self) -> str:
        """Sometimes force one index."""
        if self.shape.keys and self.rng.random() < 0.4:
            return f" FORCE INDEX (`{self.rng.choice(self.shape.keys).name}`)"
        return ""

    # -- statements

    def select(self, session: int = 0, lock: bool = True) -> Step:
        """One SELECT of any form."""
        forms = [self._rows, self._rows, self._rows, self._ordered, self._ordered, self._covering, self._covering]
        forms += [self._group, self._extremes, self._join, self._subquery, self._star]
        sql, ordered = self.rng.choice(forms)()
        if lock and "GROUP" not in sql and "MIN(" not in sql:
            sql += self.rng.choice(LOCKS)
        return Step(sql, session, ordered)

    def _rows(self) -> tuple[str, bool]:
        return f"SELECT {self.shown()} FROM t{self.hint()} WHERE {self.condition()}", False

    def _star(self) -> tuple[str, bool]:
        return f"SELECT * FROM t WHERE {self.condition()} ORDER BY id LIMIT {self.rng.randint(1, 5)}", True

    def _ordered(self) -> tuple[str, bool]:
        rng = self.rng
        direction = rng.choice(("", " DESC"))
        limit = rng.choice(
            ("", f" LIMIT {rng.randint(1, 9)}", f" LIMIT {rng.randint(1, 9)} OFFSET {rng.randint(0, 30)}")
        )
        if not self.shape.keys or rng.random() < 0.2:
            return f"SELECT {self.shown()} FROM t WHERE {self.condition()} ORDER BY id{direction}{limit}", True
        key = rng.choice(self.shape.keys)
        order = ", ".join(f"`{p}`{direction}" for p in key.parts if p != "id")
        order = f"{order + ', ' if order else ''}id{direction}"
        where = self.on_key(key) if rng.random() < 0.7 else self.condition()
        return f"SELECT {self.shown()} FROM t FORCE INDEX (`{key.name}`) WHERE {where} ORDER BY {order}{limit}", True

    def _covering(self) -> tuple[str, bool]:
        if not self.shape.keys:
            return f"SELECT COUNT(*) FROM t WHERE {self.condition()}", True
        key = self.rng.choice(self.shape.keys)
        names = ", ".join(f"`{p}`" for p in key.parts)
        where = self.on_key(key)
        if self.rng.random() < 0.3:
            return f"SELECT COUNT(*), COUNT(`{key.parts[-1]}`) FROM t FORCE INDEX (`{key.name}`) WHERE {where}", True
        return f"SELECT {names} FROM t FORCE INDEX (`{key.name}`) WHERE {where}", False

    def _group(self) -> tuple[str, bool]:
        column = self.rng.choice(self.shape.columns)
        sums = next((f", SUM(`{c.name}`)" for c in self.shape.columns if c.type.sums), "")
        where = f" WHERE {self.condition()}" if self.rng.random() < 0.5 else ""
        if self.rng.random() < 0.3:
            return f"SELECT COUNT(DISTINCT `{column.name}`){sums} FROM t{where}", True
        return f"SELECT COUNT(*), MIN(id), MAX(id){sums} FROM t{where} GROUP BY `{column.name}`", False

    def _extremes(self) -> tuple[str, bool]:
        keys = [k for k in self.shape.keys if not self.shape.column(k.parts[0]).type.like] or self.shape.keys
        name = self.rng.choice(keys).parts[0] if keys else "id"
        where = f" WHERE {self.condition()}" if self.rng.random() < 0.4 else ""
        if self.shape.column(name).type.like:
            return f"SELECT LENGTH(MIN(`{name}`)) IS NULL, COUNT(`{name}`) FROM t{where}", True
        return f"SELECT MIN(`{name}`), MAX(`{name}`) FROM t{where}", True

    def _join(self) -> tuple[str, bool]:
        rng = self.rng
        column = rng.choice(self.shape.keys).parts[0] if self.shape.keys else "id"
        kind = rng.choice(("JOIN", "LEFT JOIN", "STRAIGHT_JOIN"))
        where = (
            f"x.id BETWEEN {self.some_id()} AND {self.some_id()}" if rng.random() < 0.7 else f"x.id = {self.some_id()}"
        )
        on = f"x.`{column}` = y.`{column}`"
        if rng.random() < 0.5:
            return f"SELECT COUNT(*), SUM(x.id), SUM(y.id) FROM t x {kind} t2 y ON {on} WHERE {where}", True
        return f"SELECT x.id, y.id FROM t x {kind} t2 y ON {on} WHERE {where} ORDER BY 1, 2 LIMIT 50", True

    def _subquery(self) -> tuple[str, bool]:
        column = self.rng.choice(self.shape.keys).parts[0] if self.shape.keys else "id"
        inner = f"SELECT `{column}` FROM t2 WHERE id < {self.some_id()}"
        form = self.rng.choice(
            (
                f"`{column}` IN ({inner})",
                f"EXISTS (SELECT 1 FROM t2 WHERE t2.`{column}` = t.`{column}`)",
                f"`{column}` NOT IN ({inner})",
            )
        )
        return f"SELECT id FROM t WHERE {form}", False

    # -- HANDLER

    def handler(self) -> list[Step]:
        """A HANDLER block; the order of equal keys is that of the primary key, so rows are compared in order."""
        rng = self.rng
        out = [Step("HANDLER t OPEN")]
        shown = f"WHERE {self.comparison(self.shape.column('id'))} " if rng.random() < 0.2 else ""
        for _ in range(rng.randint(2, 6)):
            tail = f"{shown}LIMIT {rng.randint(1, 6)}"
            if not self.shape.keys or rng.random() < 0.15:
                out.append(Step(f"HANDLER t READ {rng.choice(('FIRST', 'NEXT', 'NEXT'))} {tail}", ordered=True))
                continue
            key = rng.choice(self.shape.keys)
            if rng.random() < 0.5:
                move = rng.choice(("FIRST", "NEXT", "NEXT", "PREV", "LAST"))
                out.append(Step(f"HANDLER t READ `{key.name}` {move} {tail}", ordered=True))
            else:
                values = ", ".join(
                    self.probe(self.shape.column(p)) for p in key.parts[: rng.randint(1, len(key.parts))]
                )
                sign = rng.choice(("=", ">=", "<=", ">", "<"))
                out.append(Step(f"HANDLER t READ `{key.name}` {sign} ({values}) {tail}", ordered=True))
        return [*out, Step("HANDLER t CLOSE")]

    # -- whole table

    def checkpoint(self) -> list[Step]:
        """Compare everything: rows, each index, CHECK TABLE."""
        out = [
            Step(f"SELECT {self.shown()} FROM t ORDER BY id", ordered=True),
            Step("SELECT COUNT(*), SUM(id) FROM t2"),
        ]
        for key in self.shape.keys:
            out.append(Step(f"SELECT COUNT(*), SUM(id) FROM t FORCE INDEX (`{key.name}`)", ordered=True))
        if not self.shape.temporary:
            out.append(Step("CHECK TABLE t EXTENDED"))
        return out
