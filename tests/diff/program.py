"""A program: all the steps for one shape, drawn from the seed alone, whatever the engines answer."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from diff.changes import Changes
from diff.model import Shape
from diff.queries import Queries
from diff.step import Step

CLOCK = 1600000000
MODES = (
    "STRICT_TRANS_TABLES",
    "STRICT_TRANS_TABLES",
    "",
    "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO",
)
LEVELS = ("REPEATABLE READ", "REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED", "SERIALIZABLE")


class Program:
    """Composes statements, transactions, a second session's snapshots and DDL for one shape."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self.rng = Random(f"{seed}:{shape.name}:program")
        self.queries = Queries(shape, self.rng)
        self.changes = Changes(shape, self.rng, self.queries)
        self.steps: list[Step] = []
        self.watching = False
        self.clock = CLOCK

    def add(self, *steps: Step | None) -> None:
        """Append steps."""
        self.steps += [s for s in steps if s is not None]

    def build(self, count: int) -> list[Step]:
        """About count steps."""
        self.setup()
        next_check = len(self.steps) + 150
        while len(self.steps) < count:
            self.one()
            if len(self.steps) >= next_check:
                self.add(*self.queries.checkpoint())
                next_check = len(self.steps) + 150
        self.end_watch()
        self.add(Step("COMMIT"), *self.queries.checkpoint())
        return self.steps

    # -- the parts

    def setup(self) -> None:
        """Sessions, tables, first rows.

        LooseScan is off because the server loses rows with it in NO PAD collations, on any engine.
        """
        shape = self.shape
        for session in (0, 1):
            self.add(
                Step(
                    f"SET timestamp={CLOCK}, time_zone='+00:00', alter_algorithm='COPY', optimizer_switch='loosescan=off'",
                    session,
                    setup=True,
                )
            )
        self.add(Step(f"SET sql_mode='{self.rng.choice(MODES)}'", setup=True))
        self.add(*(Step(sql, setup=True) for sql in shape.before))
        self.add(Step(shape.create(), setup=True), Step(shape.create("t2", plain=True), setup=True))
        self.add(*(Step(sql, setup=True) for sql in shape.after))
        self.add(Step("SHOW CREATE TABLE t"))
        stored = shape.stored()
        for table in ("t", "t2"):
            self.queries.next_id = 1
            for start in range(0, shape.fill, 25):
                rows = ", ".join(self.changes.row(stored, 0) for _ in range(min(25, shape.fill - start)))
                self.add(Step(f"INSERT IGNORE INTO {table} ({self.changes.names(stored)}) VALUES {rows}"))
        self.add(Step("ANALYZE TABLE t, t2") if not shape.temporary else None)

    def one(self) -> None:
        """The next thing to happen."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.40:
            self.add(self.queries.select())
        elif draw < 0.68:
            self.add(self.change())
        elif draw < 0.74:
            self.transaction()
        elif draw < 0.80 and not self.shape.temporary:
            self.watch()
        elif draw < 0.83 and self.shape.handler:
            self.add(*self.queries.handler())
        elif draw < 0.86:
            self.tick()
        elif draw < 0.875:
            self.ddl()
        elif draw < 0.885:
            self.session_settings()
        elif draw < 0.91:
            self.special()
        else:
            self.add(self.changes.insert())

    def change(self) -> Step | None:
        """One writing statement."""
        changes = self.changes
        forms: list[Callable[[], Step | None]] = [changes.insert] * 4
        forms += [changes.update] * 4 + [changes.delete] * 2
        forms += [changes.insert_select, changes.update_join, changes.delete_join, changes.load]
        if self.shape.temporary:  # InnoDB loses rows when it rolls such a statement back in a temporary table
            forms.remove(changes.load)
        return self.rng.choice(forms)()

    def transaction(self) -> None:
        """BEGIN ... COMMIT or ROLLBACK with savepoints; the second session may look on."""
        rng = self.rng
        self.add(
            Step(
                rng.choice(
                    ("BEGIN", "START TRANSACTION", "SET autocommit=0", "START TRANSACTION WITH CONSISTENT SNAPSHOT")
                )
            )
        )
        points: list[str] = []
        for _ in range(rng.randint(2, 14)):
            draw = rng.random()
            if draw < 0.12:
                points.append(f"s{rng.randint(1, 3)}")
                self.add(Step(f"SAVEPOINT {points[-1]}"))
            elif draw < 0.22 and points:
                self.add(Step(f"ROLLBACK TO SAVEPOINT {rng.choice(points)}"))
            elif draw < 0.25 and points:
                self.add(Step(f"RELEASE SAVEPOINT {rng.choice(points)}"))
            elif draw < 0.55:
                self.add(self.queries.select())
            elif draw < 0.62 and self.watching:
                self.add(self.queries.select(1, lock=False))
            else:
                self.add(self.change())
        self.add(Step(rng.choice(("COMMIT", "COMMIT", "ROLLBACK"))), Step("SET autocommit=1"))

    def watch(self) -> None:
        """The second session opens a snapshot, looks, or closes it."""
        rng = self.rng
        if not self.watching:
            level = rng.choice(LEVELS[:4])
            self.add(Step(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}", 1))
            opened = rng.choice(("START TRANSACTION WITH CONSISTENT SNAPSHOT", "BEGIN", "START TRANSACTION READ ONLY"))
            self.add(Step(opened, 1), Step(f"SELECT {self.queries.shown()} FROM t", 1))
            self.watching = True
        elif rng.random() < 0.25:
            self.end_watch()
        else:
            for _ in range(rng.randint(1, 4)):
                self.add(self.queries.select(1, lock=False))
            if self.shape.keys:
                name = rng.choice(self.shape.keys).name
                self.add(Step(f"SELECT COUNT(*), SUM(id) FROM t FORCE INDEX (`{name}`)", 1))

    def end_watch(self) -> None:
        """Close the second session's transaction: it would hold DDL up."""
        if self.watching:
            self.add(Step(self.rng.choice(("COMMIT", "ROLLBACK")), 1))
            self.watching = False

    def tick(self) -> None:
        """Time goes on, the same on both sides."""
        self.clock += self.rng.randint(1, 100)
        self.add(Step(f"SET timestamp={self.clock}.{self.rng.randint(0, 999999):06d}"))

    def session_settings(self) -> None:
        """Modes, isolation, optimizer habits."""
        rng = self.rng
        choices = [
            f"SET sql_mode='{rng.choice(MODES)}'",
            f"SET SESSION TRANSACTION ISOLATION LEVEL {rng.choice(LEVELS)}",
            f"SET join_cache_level={rng.choice((0, 2, 4, 6, 8))}",
            f"SET optimizer_switch='mrr={rng.choice(('on', 'off'))},mrr_cost_based=off'",
            f"SET optimizer_switch='index_condition_pushdown={rng.choice(('on', 'off'))}'",
            "FLUSH TABLES",
        ]
        picked = rng.choice(choices)
        if picked == "FLUSH TABLES":
            self.end_watch()
            picked = picked if not self.shape.temporary else "DO 1"
        self.add(Step(picked))

    def ddl(self) -> None:
        """Whole-table statements; each leaves the table with its first definition."""
        self.end_watch()
        if not self.shape.churn:
            self.add(Step("TRUNCATE TABLE t2"))
            return
        rng, shape = self.rng, self.shape
        column = shape.columns[-1]
        forms = [
            ["TRUNCATE TABLE t2"],
            [
                "ALTER TABLE t ADD COLUMN extra INT NOT NULL DEFAULT 7",
                "SELECT id, extra FROM t WHERE id < 9",
                "ALTER TABLE t DROP COLUMN extra",
            ],
            [
                "ALTER TABLE t ADD COLUMN extra VARCHAR(9) DEFAULT 'q' FIRST",
                "UPDATE t SET extra = 'z' WHERE id < 5",
                "ALTER TABLE t DROP COLUMN extra",
            ],
            [
                f"ALTER TABLE t ADD KEY more (id, `{column.name}`{self._length(column.name)})",
                "SELECT COUNT(*) FROM t FORCE INDEX (more) WHERE id > 3",
                "ALTER TABLE t DROP KEY more",
            ],
            ["ALTER TABLE t FORCE"],
            ["ALTER TABLE t COMMENT='changed'", "SHOW CREATE TABLE t", "ALTER TABLE t COMMENT=''"],
            [
                "CREATE TABLE t3 LIKE t",
                "INSERT IGNORE INTO t3 SELECT * FROM t ORDER BY id",
                "SELECT COUNT(*) FROM t3",
                "DROP TABLE t3",
            ],
        ]
        if not shape.temporary:
            forms += [
                ["RENAME TABLE t TO tx", "SELECT COUNT(*) FROM tx", "SELECT * FROM t", "RENAME TABLE tx TO t"],
                ["RENAME TABLE t TO tx, t2 TO t, tx TO t2"],
                [
                    "LOCK TABLES t WRITE, t2 READ",
                    f"UPDATE t SET id = id WHERE {self.queries.condition()}",
                    "SELECT COUNT(*) FROM t2",
                    "UNLOCK TABLES",
                ],
                ["LOCK TABLES t READ", "DELETE FROM t", "UNLOCK TABLES"],
                [
                    "CREATE TABLE t3 ENGINE={E} AS SELECT id FROM t WHERE id < 20",
                    "SELECT * FROM t3",
                    "DROP TABLE t3",
                    "DROP TABLE t3",
                ],
                ["OPTIMIZE TABLE t2", "SELECT COUNT(*) FROM t2"],
                [
                    "CREATE TABLE t3 (id INT PRIMARY KEY) ENGINE={E} SELECT 1 AS id UNION ALL SELECT 1",
                    "SELECT * FROM t3",
                    "DROP TABLE IF EXISTS t3",
                ],
            ]
            if rng.random() < 0.2:
                forms = [["TRUNCATE TABLE t", *(s.sql for s in self._refill())]]
        self.add(*(Step(sql, setup=False) for sql in rng.choice(forms)))

    def _length(self, name: str) -> str:
        prefix = self.shape.column(name).type.prefix
        return f"({prefix})" if prefix else ""

    def _refill(self) -> list[Step]:
        return [self.changes.insert() for _ in range(10)]

    # -- what only some shapes have

    def special(self) -> None:
        """Statements that belong to one kind of shape."""
        shape, rng = self.shape, self.rng
        if shape.versioned:
            self._history()
        elif shape.name == "period":
            self._portion()
        elif shape.name.startswith("part_"):
            name = rng.choice(("p0", "p1"))
            self.add(Step(f"SELECT {self.queries.shown()} FROM t PARTITION ({name}) WHERE {self.queries.condition()}"))
            if rng.random() < 0.3:
                self.end_watch()
                self.add(Step(f"ALTER TABLE t TRUNCATE PARTITION {name}"))
        elif shape.auto_increment:
            self.add(
                Step("SELECT LAST_INSERT_ID()"),
                Step(
                    "SELECT AUTO_INCREMENT FROM information_schema.TABLES WHERE TABLE_NAME='t' AND TABLE_SCHEMA=DATABASE()"
                ),
            )
            if rng.random() < 0.2:
                self.end_watch()
                self.add(Step(f"ALTER TABLE t AUTO_INCREMENT={rng.randint(1, 400)}"))
        elif shape.name == "triggers":
            self.add(Step("SELECT COUNT(*), SUM(id) FROM log"))

    def _history(self) -> None:
        when = self.rng.randint(CLOCK, self.clock + 10)
        forms = [
            f"SELECT {self.queries.shown()} FROM t FOR SYSTEM_TIME ALL WHERE {self.queries.condition()}",
            f"SELECT {self.queries.shown()} FROM t FOR SYSTEM_TIME AS OF FROM_UNIXTIME({when})",
            f"SELECT COUNT(*), SUM(id) FROM t FOR SYSTEM_TIME BETWEEN FROM_UNIXTIME({CLOCK}) AND FROM_UNIXTIME({when})",
            "SELECT id, row_start, row_end FROM t FOR SYSTEM_TIME ALL",
        ]
        self.add(Step(self.rng.choice(forms)))
        if self.rng.random() < 0.05:
            self.end_watch()
            self.add(Step(f"DELETE HISTORY FROM t BEFORE SYSTEM_TIME FROM_UNIXTIME({when})"))

    def _portion(self) -> None:
        one, two = (f"'{self.rng.randint(1990, 2030)}-01-01'" for _ in range(2))
        where = f"WHERE id = {self.queries.some_id()}"
        if self.rng.random() < 0.5:
            self.add(Step(f"DELETE FROM t FOR PORTION OF p FROM {one} TO {two} {where}"))
        else:
            self.add(Step(f"UPDATE t FOR PORTION OF p FROM {one} TO {two} SET b = 'portion' {where}"))
