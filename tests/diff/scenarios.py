"""Two writing sessions in lock-step: who waits, who fails, who sees what; and sequences."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from diff.program import CLOCK
from diff.step import Step

ROWS = 8


@dataclass(frozen=True)
class Layout:
    """A table for two sessions; its rows are always ids 1..ROWS at the start of a scene."""

    name: str
    ddl: str
    keyed: bool = True
    """Whether a point change locks one row only."""


LAYOUTS = [
    Layout(
        "two_sessions_int", "CREATE TABLE c (id INT PRIMARY KEY, v INT, s VARCHAR(20), KEY (s), KEY (v)) ENGINE={E}"
    ),
    Layout(
        "two_sessions_unique",
        "CREATE TABLE c (id INT NOT NULL, v INT, s VARCHAR(20), UNIQUE KEY (id), KEY (v, s)) ENGINE={E}",
    ),
    Layout(
        "two_sessions_text_pk",
        "CREATE TABLE c (id VARCHAR(10) COLLATE utf8mb4_unicode_ci PRIMARY KEY, v INT, s VARCHAR(20), UNIQUE KEY (s)) ENGINE={E}",
    ),
    Layout(
        "two_sessions_parts",
        "CREATE TABLE c (id INT PRIMARY KEY, v INT, s VARCHAR(20), KEY (s)) ENGINE={E} PARTITION BY HASH (id) PARTITIONS 3",
    ),
    Layout(
        "two_sessions_blob",
        "CREATE TABLE c (id INT PRIMARY KEY, v INT, s VARCHAR(20), b LONGTEXT DEFAULT REPEAT('b', 20000), KEY (b(20)), KEY (s)) ENGINE={E}",
    ),
]


class Scenes:
    """Draws scenes of two sessions on one layout."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self.layout = layout
        self.rng = Random(f"{seed}:{layout.name}:scenes")
        self.steps: list[Step] = []

    def build(self, count: int) -> list[Step]:
        """About count steps."""
        for session in (0, 1):
            self.say(session, f"SET timestamp={CLOCK}, SESSION {{e}}_lock_wait_timeout=20", setup=True)
        self.say(0, self.layout.ddl, setup=True)
        scenes = [
            self.conflict,
            self.conflict,
            self.visibility,
            self.visibility,
            self.timeout,
            self.deadlock,
            self.duplicate,
        ]
        scenes += [
            self.shared,
            self.lost_update,
            self.no_wait,
            self.serializable,
            self.conflict_free,
            self.conflict_free,
        ]
        while len(self.steps) < count:
            self.fresh()
            self.rng.choice(scenes)()
            self.say(0, "ROLLBACK")
            self.say(1, "ROLLBACK")
            self.say(0, "SELECT id, v, s FROM c ORDER BY id", ordered=True)
        self.say(0, "CHECK TABLE c EXTENDED")
        return self.steps

    def say(self, session: int, sql: str, **keywords: object) -> None:
        """One statement."""
        self.steps.append(Step(sql, session, **keywords))  # type: ignore[arg-type]

    def fresh(self) -> None:
        """Known rows, default isolation, nothing open."""
        for session in (0, 1):
            self.say(session, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        self.say(0, "DELETE FROM c")
        rows = ", ".join(f"({n}, {n * 10}, 's{n}')" for n in range(1, ROWS + 1))
        self.say(0, f"INSERT INTO c (id, v, s) VALUES {rows}")

    def row(self) -> int:
        """An existing id."""
        return self.rng.randint(1, ROWS)

    def change(self, row: int) -> str:
        """A statement that locks exactly this row."""
        where = f"WHERE id = '{row}'" if "text" in self.layout.name else f"WHERE id = {row}"
        return self.rng.choice(
            (
                f"UPDATE c SET v = v + 1 {where}",
                f"UPDATE c SET s = CONCAT(s, 'x') {where}",
                f"DELETE FROM c {where}",
                f"SELECT id, v, s FROM c {where} FOR UPDATE",
                f"UPDATE c SET v = v + 1, s = 'y{row}' {where}",
            )
        )

    def point(self, row: int) -> str:
        """A plain read of the row."""
        return (
            f"SELECT id, v, s FROM c WHERE id = '{row}'"
            if "text" in self.layout.name
            else f"SELECT id, v, s FROM c WHERE id = {row}"
        )

    def level(self, session: int) -> None:
        """A random isolation level."""
        name = self.rng.choice(("REPEATABLE READ", "READ COMMITTED", "READ UNCOMMITTED"))
        self.say(session, f"SET SESSION TRANSACTION ISOLATION LEVEL {name}")

    # -- scenes

    def conflict(self) -> None:
        """Both change the same row; the second waits for the end of the first."""
        row = self.row()
        self.level(0)
        self.level(1)
        self.say(0, "BEGIN")
        self.say(0, f"UPDATE c SET v = 500 {self._where(row)}")
        if self.rng.random() < 0.5:
            self.say(1, "BEGIN")
            self.say(1, self.point(row))
        self.say(1, self.change(row), kind="block")
        self.say(0, self.point(row))
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(1, "(collect)", kind="collect")
        self.say(1, self.point(row))
        self.say(1, self.rng.choice(("COMMIT", "ROLLBACK")))

    def _where(self, row: int) -> str:
        return f"WHERE id = '{row}'" if "text" in self.layout.name else f"WHERE id = {row}"

    def visibility(self) -> None:
        """What a reader sees before and after the other's change and commit, at each level."""
        row = self.row()
        self.level(1)
        self.say(1, self.rng.choice(("BEGIN", "START TRANSACTION WITH CONSISTENT SNAPSHOT")))
        reads = [
            self.point(row),
            "SELECT id, v, s FROM c FORCE INDEX (s) WHERE s LIKE 's%'",
            "SELECT COUNT(*), SUM(v) FROM c",
        ]
        if "unique" in self.layout.name:
            reads[1] = "SELECT id, v, s FROM c FORCE INDEX (v) WHERE v > 20"
        self.say(1, self.rng.choice(reads))
        self.say(0, "BEGIN")
        self.say(0, self.change(row))
        self.say(0, "INSERT INTO c (id, v, s) VALUES (77, 770, 's77')")
        for read in reads:
            self.say(1, read)
        self.say(0, self.rng.choice(("COMMIT", "COMMIT", "ROLLBACK")))
        for read in reads:
            self.say(1, read)
        self.say(1, f"UPDATE c SET v = v + 1 {self._where(row)}")
        for read in reads:
            self.say(1, read)
        self.say(1, self.rng.choice(("COMMIT", "ROLLBACK")))

    def timeout(self) -> None:
        """A wait ends with the engine's timeout error; only the statement is undone."""
        row, other = 1, self.rng.randint(2, ROWS)
        self.say(1, "SET SESSION {e}_lock_wait_timeout=1")
        self.say(0, "BEGIN")
        self.say(0, f"UPDATE c SET v = 0 {self._where(row)}")
        self.say(1, "BEGIN")
        self.say(1, f"UPDATE c SET v = 1000 {self._where(other)}")
        self.say(1, self.change(row), kind="block")
        self.say(1, "(collect)", kind="collect")
        self.say(1, self.point(other))
        self.say(1, "COMMIT")
        self.say(0, "COMMIT")
        self.say(1, "SET SESSION {e}_lock_wait_timeout=20")

    def deadlock(self) -> None:
        """Each waits for the other: exactly one fails."""
        one, two = self.rng.sample(range(1, ROWS + 1), 2)
        self.say(0, "BEGIN")
        self.say(1, "BEGIN")
        self.say(0, f"UPDATE c SET v = v + 1 {self._where(one)}")
        self.say(1, f"UPDATE c SET v = v + 1 {self._where(two)}")
        self.say(0, f"UPDATE c SET v = v + 1 {self._where(two)}", kind="block")
        self.say(1, f"UPDATE c SET v = v + 1 {self._where(one)}", kind="pair")
        self.say(0, "ROLLBACK")
        self.say(1, "ROLLBACK")

    def duplicate(self) -> None:
        """The second insert of a key waits for the first one's transaction."""
        verb = self.rng.choice(("INSERT", "INSERT IGNORE", "REPLACE"))
        self.say(0, "BEGIN")
        self.say(0, "INSERT INTO c (id, v, s) VALUES (50, 1, 's50')")
        self.say(1, f"{verb} INTO c (id, v, s) VALUES (50, 2, 's51')", kind="block")
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(1, "(collect)", kind="collect")
        self.say(1, self.point(50))

    def shared(self) -> None:
        """Shared locks live together and keep writers out."""
        row = self.row()
        self.say(0, "BEGIN")
        self.say(0, self.point(row) + " LOCK IN SHARE MODE")
        self.say(1, "BEGIN")
        self.say(1, self.point(row) + " LOCK IN SHARE MODE")
        self.say(1, "COMMIT")
        self.say(1, self.change(row), kind="block")
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(1, "(collect)", kind="collect")

    def lost_update(self) -> None:
        """A repeatable reader updates a row that was changed under it."""
        row = self.row()
        self.say(1, "BEGIN")
        self.say(1, self.point(row))
        self.say(0, self.change(row))
        self.say(1, self.point(row))
        self.say(1, self.point(row) + " FOR UPDATE")
        self.say(1, self.change(row))
        self.say(1, self.point(row))
        self.say(1, self.rng.choice(("COMMIT", "ROLLBACK")))

    def no_wait(self) -> None:
        """NOWAIT and SKIP LOCKED."""
        row = self.row()
        self.say(0, "BEGIN")
        self.say(0, f"UPDATE c SET v = 0 {self._where(row)}")
        self.say(1, self.point(row) + " FOR UPDATE NOWAIT")
        self.say(1, self.point(row) + " FOR UPDATE SKIP LOCKED")
        self.say(1, self.point(row) + " LOCK IN SHARE MODE SKIP LOCKED")
        self.say(0, "COMMIT")

    def serializable(self) -> None:
        """A plain read inside a serializable transaction locks."""
        row = self.row()
        self.say(0, "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        self.say(0, "BEGIN")
        self.say(0, self.point(row))
        self.say(1, self.point(row))
        self.say(1, f"UPDATE c SET v = 1 {self._where(row)}", kind="block")
        self.say(0, "COMMIT")
        self.say(1, "(collect)", kind="collect")

    def killed(self) -> None:
        """KILL QUERY ends a wait at once."""
        row = self.row()
        self.say(0, "BEGIN")
        self.say(0, f"UPDATE c SET v = 0 {self._where(row)}")
        self.say(1, "BEGIN")
        self.say(1, f"UPDATE c SET v = 7 {self._where(row % ROWS + 1)}")
        self.say(1, self.change(row), kind="block")
        self.say(1, "KILL QUERY", kind="kill")
        self.say(1, "(collect)", kind="collect")
        self.say(1, "COMMIT")
        self.say(0, "COMMIT")

    def conflict_free(self) -> None:
        """Both write different rows at once, mixed with savepoints."""
        rows = self.rng.sample(range(1, ROWS + 1), 6)
        self.say(0, "BEGIN")
        self.say(1, "BEGIN")
        for number, row in enumerate(rows):
            session = number % 2
            self.say(session, f"SAVEPOINT p{number}")
            self.say(session, f"UPDATE c SET v = v + {number + 1} {self._where(row)}")
            self.say(session, f"INSERT INTO c (id, v, s) VALUES ({100 + number * 10}, {number}, 'n{number}')")
            if self.rng.random() < 0.4:
                self.say(session, f"ROLLBACK TO SAVEPOINT p{number}")
            self.say(1 - session, "SELECT COUNT(*), SUM(v) FROM c")
        self.say(0, self.rng.choice(("COMMIT", "ROLLBACK")))
        self.say(1, self.rng.choice(("COMMIT", "ROLLBACK")))


REFUSED = (
    "CREATE TABLE child (id INT PRIMARY KEY, s VARCHAR(100), FULLTEXT KEY (s)) ENGINE={E}",
    "CREATE TABLE child (s VARCHAR(20) CHARACTER SET tis620 COLLATE tis620_thai_ci PRIMARY KEY) ENGINE={E}",
    "ALTER TABLE parent ADD KEY tis620_thai_ci_1 (t)",
    "ALTER TABLE parent ADD UNIQUE KEY tis620_thai_ci_2 (p, t), ALGORITHM=INPLACE, LOCK=SHARED",
    "CREATE INDEX tis620_thai_ci_3 ON parent (t(5))",
    "ALTER TABLE parent ADD FULLTEXT KEY (s)",
    "CREATE FULLTEXT INDEX f ON parent (s)",
    "CREATE TABLE child (id INT PRIMARY KEY, g POINT NOT NULL, SPATIAL KEY (g)) ENGINE={E}",
)
WRONG = (
    "CREATE TABLE child (id INT PRIMARY KEY, s VARCHAR(4000), KEY (s)) ENGINE={E} DEFAULT CHARSET=utf8mb4",
    "CREATE TABLE child (id INT PRIMARY KEY, s BLOB, KEY (s)) ENGINE={E}",
    "CREATE TABLE child (n INT, id INT AUTO_INCREMENT, PRIMARY KEY (n, id)) ENGINE={E}",
    f"CREATE TABLE child ({', '.join(f'c{n} INT' for n in range(70))}, {', '.join(f'KEY (c{n})' for n in range(65))}) ENGINE={{E}}",
    "CREATE TABLE child (id INT PRIMARY KEY, s VARCHAR(70000)) ENGINE={E} DEFAULT CHARSET=latin1",
    "CREATE TABLE parent (id INT) ENGINE={E}",
    "SELECT * FROM nowhere",
    "DROP TABLE nowhere",
    "ALTER TABLE parent ADD UNIQUE KEY (p), ADD KEY (nowhere)",
    "CREATE TABLE child (id INT PRIMARY KEY, g POINT) ENGINE={E}",
    "CREATE TABLE child (id INT PRIMARY KEY, e ENUM('b','a') CHARACTER SET tis620, KEY (e)) ENGINE={E}",
)


def refusal_steps() -> list[Step]:
    """Definitions beyond what one engine or both can do."""
    parent = "id INT PRIMARY KEY, p INT, s VARCHAR(50), t VARCHAR(20) CHARACTER SET tis620"
    steps = [Step(f"CREATE TABLE parent ({parent}) ENGINE={{E}}", setup=True)]
    for sql in REFUSED:
        steps += [
            Step(sql, kind="refused"),
            Step("DROP TABLE IF EXISTS child", kind="quiet"),
            Step("SELECT COUNT(*) FROM parent"),
        ]
    for sql in WRONG:
        steps += [Step(sql), Step("SHOW CREATE TABLE child"), Step("DROP TABLE IF EXISTS child")]
    return steps


def sequence_steps(seed: int, count: int) -> list[Step]:
    """CREATE SEQUENCE and everything it can do."""
    rng = Random(f"{seed}:sequences")
    steps = [Step("CREATE SEQUENCE s1 ENGINE={E}", setup=True)]
    steps.append(
        Step(
            "CREATE SEQUENCE s2 START WITH 10 INCREMENT BY -3 MINVALUE -50 MAXVALUE 100 CYCLE CACHE 5 ENGINE={E}",
            setup=True,
        )
    )
    steps.append(Step("CREATE TABLE q (id BIGINT PRIMARY KEY DEFAULT NEXT VALUE FOR s1, v INT) ENGINE={E}", setup=True))
    while len(steps) < count:
        name = rng.choice(("s1", "s2"))
        forms = [
            f"SELECT NEXTVAL({name})",
            f"SELECT NEXT VALUE FOR {name}, PREVIOUS VALUE FOR {name}",
            f"SELECT LASTVAL({name})",
            f"SELECT SETVAL({name}, {rng.randint(-60, 200)})",
            f"SELECT SETVAL({name}, {rng.randint(-60, 200)}, 0)",
            f"SELECT * FROM {name}",
            "INSERT INTO q (v) VALUES (1), (2), (3)",
            "SELECT * FROM q ORDER BY id",
            "DELETE FROM q LIMIT 5" if rng.random() < 0.1 else "SELECT COUNT(*) FROM q",
            "BEGIN",
            "ROLLBACK",
            "COMMIT",
            f"ALTER SEQUENCE {name} RESTART {rng.randint(1, 90)}",
            f"SHOW CREATE SEQUENCE {name}",
            "FLUSH TABLES",
            f"INSERT INTO {name} VALUES (1, 1, 90, 1, 1, 10, 0, 0)"
            if rng.random() < 0.3
            else f"SHOW CREATE TABLE {name}",
            f"RENAME TABLE {name} TO sx, sx TO {name}",
            f"UPDATE {name} SET minimum_value = 1"
            if rng.random() < 0.3
            else f"SELECT next_not_cached_value FROM {name}",
        ]
        steps.append(Step(rng.choice(forms), session=rng.choice((0, 0, 0, 1)) if rng.random() < 0.3 else 0))
    return [s for s in steps if not (s.session == 1 and s.sql == "BEGIN")]
