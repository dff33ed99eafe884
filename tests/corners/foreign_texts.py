"""Foreign keys between texts: CHAR and VARCHAR, of different lengths, in collations with and without PAD SPACE."""

from __future__ import annotations

from corners.env import Env, Session, equal

KINDS = ("CHAR(10)", "CHAR(12)", "VARCHAR(10)", "VARCHAR(20)")
COLLATIONS = (
    "utf8mb4_nopad_bin",
    "utf8mb4_general_nopad_ci",
    "latin1_nopad_bin",
    "ucs2_general_nopad_ci",
    "latin1_bin",
)
VALUES = ("a", "B", "ss", "")


def _tables(session: Session, parent: str, child: str, collation: str) -> None:
    text = f"CHARACTER SET {collation.split('_', maxsplit=1)[0]} COLLATE {collation}"
    session.run("DROP TABLE IF EXISTS c, p")
    session.run(f"CREATE TABLE p (k {parent} {text} PRIMARY KEY) ENGINE=FERRITE")
    session.run(
        f"CREATE TABLE c (id INT PRIMARY KEY, k {child} {text}, KEY (k DESC), CONSTRAINT f FOREIGN KEY (k) REFERENCES p (k)"
        " ON UPDATE CASCADE ON DELETE CASCADE) ENGINE=FERRITE"
    )
    session.run("INSERT INTO p VALUES ('a'), ('B'), ('ss'), ('')")


def _follows(session: Session, what: str) -> None:
    """The values meet as SQL compares them: a CHAR without its padding."""
    for number, value in enumerate(VALUES):
        equal(session.answer(f"INSERT INTO c VALUES ({number}, '{value}')"), [], f"{what}: insert {value!r}")
    equal(session.answer("INSERT INTO c VALUES (9, 'x')"), 1452, f"{what}: no parent")
    equal(session.answer("INSERT INTO c VALUES (9, '0123456789')"), 1452, f"{what}: as long as it may be, no parent")
    session.run("UPDATE p SET k=CONCAT(k, 'z')")
    children = [(number, value + "z") for number, value in enumerate(VALUES)]
    equal(session.run("SELECT id, TRIM(k) FROM c ORDER BY id"), children, f"{what}: updated")
    equal(session.value("SELECT COUNT(*) FROM c JOIN p ON c.k = p.k"), len(VALUES), f"{what}: joined")
    session.run("DELETE FROM p WHERE k='az'")
    equal(session.value("SELECT COUNT(*) FROM c"), len(VALUES) - 1, f"{what}: deleted")


def scenario_padding_of_char(env: Env) -> None:
    """Each kind of text finds its parent and its children in each other kind."""
    session = env.session()
    for collation in COLLATIONS:
        for parent in KINDS:
            for child in KINDS:
                what = f"{collation}, {parent} <- {child}"
                _tables(session, parent, child, collation)
                _follows(session, what)
                answer = session.run("CHECK TABLE c EXTENDED")
                equal(answer[-1][2:], ("status", "OK"), f"{what}: CHECK")
                unlike = "CHAR" in (parent[:4], child[:4]) and parent != child and "nopad" in collation
                equal(len(answer), 2 if unlike else 1, f"{what}: what CHECK says of it")


def scenario_too_long_to_follow(env: Env) -> None:
    """A parent's new value that is longer than the child's column is refused, not cut: the child would get another parent."""

    def play(engine: str) -> list[object]:
        session = env.session()
        answers: list[object] = []
        for kind, text in (
            ("VARCHAR", "CHARACTER SET utf8mb4"),
            ("VARCHAR", "CHARACTER SET latin1"),
            ("VARBINARY", ""),
        ):
            session.run(f"CREATE TABLE p (k {kind}(20) {text} PRIMARY KEY) ENGINE={engine}")
            session.run(
                f"CREATE TABLE c (id INT PRIMARY KEY, k {kind}(5) {text}, FOREIGN KEY (k) REFERENCES p (k) ON UPDATE CASCADE)"
                f" ENGINE={engine}"
            )
            session.run("INSERT INTO p VALUES ('abc'), ('abcde')")
            session.run("INSERT INTO c VALUES (1, 'abc')")
            for value in ("abcdefgh", "abcdef", "abcdz", "äöüßé", "äöüßéa", "abcx ", "abcx  "):
                answers += [
                    (kind, value, session.answer(f"UPDATE p SET k='{value}' WHERE k LIKE 'abc'")),
                    session.run("SELECT * FROM c"),
                    session.answer(f"UPDATE IGNORE p SET k='{value}'"),
                    session.run("SELECT * FROM c"),
                ]
                session.run("SET foreign_key_checks=0")
                session.run("REPLACE INTO c VALUES (1, 'abc')")
                session.run("DELETE FROM p WHERE k <> 'abcde'")
                session.run("INSERT INTO p VALUES ('abc')")
                session.run("SET foreign_key_checks=1")
            session.run("DROP TABLE c, p")
        return answers

    env.same_as_innodb(play)
    session = env.session()
    for parent, child in (("CHAR(20)", "CHAR(5)"), ("CHAR(20)", "VARCHAR(5)"), ("VARCHAR(20)", "CHAR(5)")):
        _tables(session, parent, child, "latin1_swedish_ci")
        session.run("INSERT INTO c VALUES (1, 'a')")
        equal(session.answer("UPDATE p SET k='abcdef' WHERE k='a'"), 1451, f"{parent} <- {child}")
        equal(session.run("SELECT * FROM c"), [(1, "a")], f"{parent} <- {child}: the child")
        session.run("UPDATE p SET k='abcde' WHERE k='a'")
        equal(session.run("SELECT * FROM c"), [(1, "abcde")], f"{parent} <- {child}: the child follows")


def scenario_spaces_that_count(env: Env) -> None:
    """A VARCHAR's trailing spaces count without PAD SPACE, and no CHAR has any."""
    session = env.session()
    for parent, child in (("CHAR(10)", "VARCHAR(10)"), ("VARCHAR(10)", "VARCHAR(20)")):
        _tables(session, parent, child, "utf8mb4_nopad_bin")
        equal(session.answer("INSERT INTO c VALUES (1, 'a ')"), 1452, f"{parent} <- {child}")
    _tables(session, "VARCHAR(10)", "CHAR(10)", "utf8mb4_nopad_bin")
    session.run("INSERT INTO p VALUES ('b ')")
    equal(session.answer("INSERT INTO c VALUES (1, 'b ')"), 1452, "a CHAR and a parent with a space")
    session.run("INSERT INTO c VALUES (1, 'a')")
    equal(session.answer("UPDATE p SET k='c ' WHERE k='a'"), 1452, "a parent's space cannot follow")
    equal(session.answer("SELECT id, k FROM c"), [(1, "a")], "nothing has changed")


def scenario_bytes_that_a_binary_lacks(env: Env) -> None:
    """A BINARY is padded with bytes that count: a parent's shorter value cannot follow, and what refuses it is the parent's change."""

    def play(engine: str) -> list[object]:
        session = env.session()
        answers: list[object] = []
        for parent, child in (
            ("VARBINARY(3)", "BINARY(2)"),
            ("BINARY(2)", "BINARY(3)"),
            ("BINARY(3)", "BINARY(2)"),
            ("BINARY(3)", "VARBINARY(3)"),
        ):
            session.run(f"CREATE TABLE p (id INT PRIMARY KEY, k {parent} NOT NULL, UNIQUE KEY (k)) ENGINE={engine}")
            session.run(
                f"CREATE TABLE c (id INT PRIMARY KEY, k {child}, CONSTRAINT f FOREIGN KEY (k) REFERENCES p (k) ON UPDATE CASCADE)"
                f" ENGINE={engine}"
            )
            session.run(
                "INSERT INTO p VALUES (1, 0x4100), (2, 0x41), (3, 0x4142)"
                if "VAR" in parent
                else "INSERT INTO p VALUES (1, 0x4142)"
            )
            answers.append(session.answer("INSERT INTO c VALUES (1, 0x4100), (2, 0x4142), (3, 0x4142)"))
            session.answer("INSERT INTO c SELECT id, k FROM p")
            for value in ("0x12", "0x123456", "0x1220", "0x1200", "0x12"):
                for change in (f"UPDATE p SET k={value} WHERE id=1", f"UPDATE IGNORE p SET k={value} WHERE id=1"):
                    answers.append([parent, child, change, session.answer(change), session.warnings()])
                    answers.append(
                        session.run("SELECT id, HEX(k) FROM p UNION ALL SELECT id, HEX(k) FROM c ORDER BY 1, 2")
                    )
            session.run("DROP TABLE c, p")
        return answers

    env.same_as_innodb(play)
