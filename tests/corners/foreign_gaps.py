"""What a cascade locks: the children it changes, and nothing beside them."""

from __future__ import annotations

from corners.env import Env, Session, equal, options

ROWS = range(1, 7)
ACTIONS = {
    "DELETE FROM p WHERE id = {}": "ON DELETE CASCADE",
    "DELETE FROM p WHERE id = {} /* SET NULL */": "ON DELETE SET NULL",
    "UPDATE p SET id = id + 100 WHERE id = {}": "ON UPDATE CASCADE",
}


def _tables(session: Session, engine: str, action: str) -> None:
    session.run("DROP TABLE IF EXISTS c, p")
    session.run(f"CREATE TABLE p (id INT PRIMARY KEY) ENGINE={engine}")
    columns = "id INT AUTO_INCREMENT PRIMARY KEY, p INT, KEY (p)"
    session.run(f"CREATE TABLE c ({columns}, FOREIGN KEY (p) REFERENCES p (id) {action}) ENGINE={engine}")
    for table in ("p (id)", "c (p)"):
        session.run(f"INSERT INTO {table} VALUES {', '.join(f'({n})' for n in ROWS)}")


@options("--innodb-lock-wait-timeout=1")
def scenario_children_of_the_parent_before(env: Env) -> None:
    """Children of the parent in front of one that goes can be added meanwhile, at every isolation level."""

    def play(engine: str) -> list[object]:
        going, adding = env.session(), env.session()
        seen: list[object] = []
        for level in ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"):
            for change, action in ACTIONS.items():
                _tables(going, engine, action)
                for session in (going, adding):
                    session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
                going.run("BEGIN")
                going.run(change.format(3))
                seen.append((level, change, adding.answer("INSERT INTO c (p) VALUES (2)")))
                seen.append((level, change, adding.answer("INSERT INTO c (p) VALUES (3)")))
                going.run("COMMIT")
                seen.append(adding.answer("SELECT p FROM c ORDER BY p"))
        return seen

    env.same_as_innodb(play)


@options("--innodb-lock-wait-timeout=5")
def scenario_no_deadlock_of_two_cascades(env: Env) -> None:
    """Two transactions that delete a parent, and add a child of the other's neighbour."""

    def play(engine: str) -> list[object]:
        first, second = env.session(), env.session()
        _tables(first, engine, "ON DELETE CASCADE")
        for session, number in ((first, 2), (second, 4)):
            session.run("BEGIN")
            session.run(f"DELETE FROM p WHERE id = {number}")
        seen: list[object] = [
            second.answer("INSERT INTO c (p) VALUES (1)"),
            first.answer("INSERT INTO c (p) VALUES (1)"),
        ]
        for session in (first, second):
            session.run("COMMIT")
        seen.append(first.answer("SELECT p FROM c ORDER BY p"))
        return seen

    env.same_as_innodb(play)


@options("--innodb-lock-wait-timeout=1")
def scenario_a_prepared_cascade(env: Env) -> None:
    """As a replica meets it: prepared at REPEATABLE READ, and the children of others come before its COMMIT."""

    def play(engine: str) -> list[object]:
        going, adding = env.session(), env.session()
        _tables(going, engine, "ON DELETE CASCADE")
        for statement in ("XA START 'z'", "DELETE FROM p WHERE id = 3", "XA END 'z'", "XA PREPARE 'z'"):
            going.run(statement)
        seen: list[object] = [adding.answer(f"INSERT INTO c (p) VALUES ({n})") for n in (2, 4, 3)]
        going.run("XA COMMIT 'z'")
        seen.append(adding.answer("INSERT INTO c (p) VALUES (3)"))
        seen.append(adding.answer("SELECT p FROM c ORDER BY p"))
        return seen

    seen = env.same_as_innodb(play)
    equal(seen[0], [], "children of the parent in front")
