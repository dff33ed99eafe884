"""Groups, privileges, space, contents, estimates."""

from __future__ import annotations

import time
import unittest
from typing import Any
from unittest import mock

from ferrite_migrate import cli, conditions, contents, guards, journal
from ferrite_migrate.commands import RATE_BYTES, Job, measured_rate
from ferrite_migrate.errors import Mismatch, Problem
from ferrite_migrate.journal import Entry
from ferrite_migrate.move import Mover, Settings, alteration
from ferrite_migrate.server import Login
from ferrite_migrate.tables import Wanted, groups


def name(table: str) -> tuple[str, str]:
    """A table of one database."""
    return "d", table


class FakeServer:
    """Answers what it was told."""

    def __init__(self, answers: dict[str, list[tuple[Any, ...]]], variables: dict[str, str] | None = None) -> None:
        self.answers, self.variables = answers, variables or {}

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        return next((rows for part, rows in self.answers.items() if part in sql), [])

    def value(self, sql: str) -> Any:
        rows = self.run(sql)
        return rows[0][0] if rows else None

    def variable(self, word: str) -> str:
        return self.variables.get(word, "")


def fake(answers: dict[str, Any], variables: dict[str, str] | None = None) -> Any:
    """In the place of a session."""
    return FakeServer(answers, variables)


class Words(unittest.TestCase):
    def test_no_option_has_a_short_form(self) -> None:
        """The launcher looks for whole words, to choose the server that they are for."""
        parser = cli._parser()
        for words in (
            ["check", "--dum", "f"],
            ["check", "--dum=f"],
            ["convert", "--defaults", "f"],
            ["back", "--hos=h"],
            ["status", "--sock", "s"],
            ["forget", "--sock=s"],
        ):
            with self.subTest(words), mock.patch("sys.stderr"):
                with self.assertRaises(SystemExit) as ended:
                    parser.parse_args(words)
                self.assertEqual(ended.exception.code, 2)
        self.assertEqual(parser.parse_args(["check", "--dump", "f"]).dump, "f")


class Groups(unittest.TestCase):
    def test_chains_circles_and_strangers(self) -> None:
        pairs = [
            (name("a"), name("c")),
            (name("c"), name("e")),
            (name("e"), name("e")),
            (name("x"), name("y")),
            (name("e"), name("a")),
        ]
        found = groups([name("a"), name("b"), name("f")], pairs)
        self.assertEqual(found, [[name("a"), name("c"), name("e")], [name("b")], [name("f")]])

    def test_ten_thousand_in_a_chain(self) -> None:
        names = [name(f"{i:05}") for i in range(10_000)]
        self.assertEqual(groups(names, list(zip(names, names[1:], strict=False))), [names])


class Back(unittest.TestCase):
    def test_the_plan_of_ten_thousand_tables(self) -> None:
        """A second is a hundred times what it takes if it looks once at each."""
        count = 10_000
        tables = [("d", f"{i:05}", "FERRITE", "BASE TABLE", 0, 1) for i in range(count)]
        entries = [Entry(name(t[1]), i, journal.MOVED, "InnoDB", "FERRITE", "x") for i, t in enumerate(tables)]
        server = fake({"information_schema.TABLES": tables})
        job = Job(mock.Mock(), Wanted(), Settings(), mock.Mock(), mock.Mock(), 1.0, False, False, None)
        began = time.process_time()
        plan, complete = job._plan_back(server, entries)
        self.assertLess(time.process_time() - began, 2)
        self.assertEqual((len(plan), complete), (count, True))
        self.assertEqual([x[0].group for x in plan], list(range(count, 2 * count)))


class Privileges(unittest.TestCase):
    def held(self, **answers: list[tuple[Any, ...]]) -> conditions.Privileges:
        return conditions.Privileges(
            fake({"CURRENT_USER": [("u@h",)], **{f"{x}_PRIVILEGES": rows for x, rows in answers.items()}})
        )

    def test_patterns_in_grants(self) -> None:
        held = self.held(SCHEMA=[("shop\\_%", "ALTER"), ("o_e", "DROP")], TABLE=[("d", "t", "SELECT")])
        self.assertEqual(held.missing(("shop_1", "t"), ["ALTER"]), [])
        self.assertEqual(held.missing(("shopx1", "t"), ["ALTER"]), ["ALTER"])
        self.assertEqual(held.missing(("one", "t"), ["DROP", "ALTER"]), ["ALTER"])
        self.assertEqual(held.missing(("d", "t"), ["SELECT", "ALTER"]), ["ALTER"])

    def test_a_server_that_asks_nobody(self) -> None:
        self.assertEqual(self.held().missing(("d", "t"), ["ALTER"]), [])


class Space(unittest.TestCase):
    def test_too_little_and_unknown(self) -> None:
        with mock.patch.object(conditions, "free_bytes", return_value=1 << 30):
            conditions.require_space(fake({}), "FERRITE", 400 << 20, True)
            with self.assertRaisesRegex(Problem, "are free"):
                conditions.require_space(fake({}), "FERRITE", 1 << 30, True)
        with mock.patch.object(conditions, "free_bytes", return_value=None):
            with self.assertRaisesRegex(Problem, "--no-space-check"):
                conditions.require_space(fake({}), "FERRITE", 1, True)
            conditions.require_space(fake({}), "FERRITE", 1, False)

    def test_the_servers_own_disk(self) -> None:
        answers = {"PLUGINS": [(1,)], "DISKS": [("/", 5), ("/data", 7), ("/other", 9)]}
        self.assertEqual(
            conditions.free_bytes(fake(answers, {"datadir": "/data/x/", "hostname": "elsewhere"}), "FERRITE"), 7 << 10
        )


class Contents(unittest.TestCase):
    def test_a_difference_is_found(self) -> None:
        one = contents.Contents(3, 7)
        contents.require_same(name("t"), one, contents.Contents(3, 7))
        for other in (contents.Contents(2, 7), contents.Contents(3, 8)):
            with self.assertRaises(Mismatch):
                contents.require_same(name("t"), one, other)

    def test_a_check_that_did_not_finish_finds_nothing(self) -> None:
        ok = ("d.t", "check", "status", "OK")
        warned = ("d.t", "check", "warning", "orphan")
        self.assertEqual(contents.require_sound(fake({"CHECK TABLE": [warned, ok]}), name("t")), ["orphan"])
        sequence = ("d.t", "check", "note", contents.UNCHECKED)
        self.assertEqual(contents.require_sound(fake({"CHECK TABLE": [sequence]}), name("t")), [])
        for kind, text in (("status", "Operation failed"), ("note", "Table is upgraded")):
            with self.assertRaisesRegex(Problem, text):
                contents.require_sound(fake({"CHECK TABLE": [warned, ("d.t", "check", kind, text)]}), name("t"))
        with self.assertRaises(Problem):
            contents.require_sound(fake({}), name("t"))

    def test_floats_are_compared_as_doubles(self) -> None:
        sql = contents.query(name("t"), [("f`", "float"), ("d", "double")])
        self.assertIn("CRC32(`f```+0e0)", sql)
        self.assertIn("CRC32(`d`)", sql)


class FakeTables(FakeServer):
    """Has one definition, and keeps what it is told to do."""

    id = 1

    def __init__(self, definition: str) -> None:
        super().__init__({"VERSION()": [("10.11.18-MariaDB",)]})
        self.definition, self.done = definition, list[str]()

    def create_statement(self, table: tuple[str, str]) -> str:
        del table
        return self.definition

    def copies_beside_writers(self) -> bool:
        return False

    def run(self, sql: str) -> list[tuple[Any, ...]]:
        self.done.append(sql)
        return super().run(sql)


class Moves(unittest.TestCase):
    def altered(self, source: str, allowed: bool) -> list[str]:
        """What is executed to bring an encrypted table into a Ferrite that is not."""
        server: Any = FakeTables("CREATE TABLE `t` (\n `a` int\n) ENGINE=InnoDB `ENCRYPTED`=YES")
        settings = Settings(allow_unencrypted=allowed)
        mover = Mover(Login(), server, fake({}), settings, lambda: False)
        entry = Entry(name("t"), 1, journal.WORKING, source, "FERRITE", "x")
        try:
            mover._alter(entry, "FERRITE")
        finally:
            self.executed = [x for x in server.done if x.startswith("ALTER TABLE")]
        return self.executed

    def test_a_table_that_was_encrypted_after_the_plan(self) -> None:
        with self.assertRaisesRegex(Problem, "--allow-unencrypted"):
            self.altered("InnoDB", allowed=False)
        self.assertEqual(self.executed, [])
        for source, allowed in (("InnoDB", True), ("FERRITE", False)):
            self.assertEqual(self.altered(source, allowed), ["ALTER TABLE `d`.`t` ENGINE=FERRITE ENCRYPTED=DEFAULT"])

    def test_lost_options_are_given_again_on_the_way_back(self) -> None:
        entry = Entry(
            name("t"),
            1,
            journal.MOVED,
            "FERRITE",
            "InnoDB",
            original="CREATE TABLE `t` (\n `a` int\n) ENGINE=InnoDB ROW_FORMAT=COMPACT",
        )
        now = "CREATE TABLE `t` (\n `a` int\n) ENGINE=FERRITE"
        self.assertEqual(
            alteration(entry, now, "InnoDB", False, False), "ALTER TABLE `d`.`t` ENGINE=InnoDB ROW_FORMAT=COMPACT"
        )
        self.assertEqual(
            alteration(entry, now + " ROW_FORMAT=DYNAMIC", "InnoDB", False, False), "ALTER TABLE `d`.`t` ENGINE=InnoDB"
        )
        self.assertEqual(alteration(entry, now, "FERRITE", False, False), "ALTER TABLE `d`.`t` ENGINE=FERRITE")
        hidden = now.replace("FERRITE", "InnoDB `ENCRYPTED`=YES")
        self.assertEqual(
            alteration(entry, hidden, "FERRITE", False, False), "ALTER TABLE `d`.`t` ENGINE=FERRITE ENCRYPTED=DEFAULT"
        )
        self.assertEqual(alteration(entry, hidden, "FERRITE", True, False), "ALTER TABLE `d`.`t` ENGINE=FERRITE")
        for target, options in (("FERRITE", " ENCRYPTED=DEFAULT"), ("InnoDB", " ROW_FORMAT=COMPACT")):
            self.assertEqual(
                alteration(entry, hidden, target, False, True),
                f"ALTER TABLE `d`.`t` ENGINE={target}{options}, LOCK=SHARED",
            )

    def test_guards_have_names_and_messages_that_fit(self) -> None:
        long = ("d" * 64, "t" * 64)
        self.assertLessEqual(len(guards.trigger(long, "INSERT")), 64)
        told = guards.statement(long, "INSERT").split("MESSAGE_TEXT='")[1]
        self.assertLessEqual(len(told), 129)
        self.assertIn("--resume", told)
        self.assertNotEqual(guards.trigger(("a", "b"), "INSERT"), guards.trigger(("a", "c"), "INSERT"))

    def test_estimates_use_what_was_measured(self) -> None:
        done = [Entry(name(x), 1, journal.MOVED, "InnoDB", "FERRITE", "x", bytes=32 << 20, seconds=2.0) for x in "ab"]
        self.assertEqual(measured_rate(done), 32 << 20)
        self.assertEqual(measured_rate(done[:0]), RATE_BYTES)


if __name__ == "__main__":
    unittest.main()
