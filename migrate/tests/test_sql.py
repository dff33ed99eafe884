"""Definitions taken apart, and dumps."""

from __future__ import annotations

import unittest

from ferrite_migrate import dump
from ferrite_migrate.errors import Problem
from ferrite_migrate.sql import Definition, constraint, literal, parent, quoted, refers_elsewhere, renamed_indexes

TRICKY = """CREATE TABLE `a``b` (
  `x` varchar(9) DEFAULT '),('' ENGINE=InnoDB' COMMENT 'CONSTRAINT `c` FOREIGN KEY (`x`)',
  `v` int(11) GENERATED ALWAYS AS (concat(`x`,')')) VIRTUAL,
  KEY `k,(` (`x`),
  CONSTRAINT `f``k` FOREIGN KEY (`x`) REFERENCES `p` (`REFERENCES `) ON DELETE CASCADE
) ENGINE=InnoDB AUTO_INCREMENT=7 DEFAULT CHARSET=latin1 COMMENT='ENGINE=InnoDB AUTO_INCREMENT=7 it''s' ROW_FORMAT=COMPRESSED
 PARTITION BY HASH (`x`)
(PARTITION `p` ENGINE = InnoDB)"""


class Definitions(unittest.TestCase):
    def test_parts_keys_and_options(self) -> None:
        made = Definition.parse(TRICKY)
        self.assertEqual(len(made.parts), 3)
        self.assertEqual([constraint(x) for x in made.foreign], ["`f``k`"])
        self.assertEqual(made.option("ROW_FORMAT"), "COMPRESSED")
        self.assertEqual(made.option("AUTO_INCREMENT"), "7")
        self.assertIsNone(made.option("KEY_BLOCK_SIZE"))
        self.assertTrue(made.computes_columns())
        self.assertTrue(Definition.parse(TRICKY.replace(" VIRTUAL", " STORED")).computes_columns())
        plain = TRICKY.replace(" GENERATED ALWAYS AS (concat(`x`,')')) VIRTUAL", " COMMENT 'GENERATED ALWAYS AS'")
        self.assertFalse(Definition.parse(plain).computes_columns())
        self.assertNotIn("ENGINE =", made.without_engine())
        self.assertIn("'ENGINE=InnoDB AUTO_INCREMENT=7 it''s'", made.without_engine())

    def test_columns_that_depend_on_the_time_zone(self) -> None:
        made = Definition.parse(
            "CREATE TABLE `t` (\n  `ts` timestamp NULL,\n  `dt` datetime,\n  `a,` date GENERATED ALWAYS AS (cast(`ts` as date)) STORED,\n"
            "  `free` date GENERATED ALWAYS AS (cast(`ts` as date)) VIRTUAL,\n  `plain` date GENERATED ALWAYS AS (cast(`dt` as date)) STORED,\n"
            "  `b` int GENERATED ALWAYS AS (year(`free`)) VIRTUAL COMMENT 'STORED',\n  `c` timestamp GENERATED ALWAYS AS (`dt`) STORED,\n"
            "  `d` bigint GENERATED ALWAYS AS (unix_timestamp(`dt`)) STORED,\n  `e` text GENERATED ALWAYS AS (concat(`dt`,'`ts`')) STORED,\n"
            "  `f` int GENERATED ALWAYS AS (hour(`ts`)) VIRTUAL,\n  KEY `k` (`b`,`ts`)\n) ENGINE=InnoDB\n PARTITION BY HASH (`f`)"
        )
        self.assertEqual(made.zoned_columns(), ["`a,`", "`b`", "`c`", "`d`", "`f`"])

    def test_engines_and_counters_make_no_difference(self) -> None:
        made = Definition.parse(TRICKY)
        other = Definition.parse(
            TRICKY.replace(") ENGINE=InnoDB AUTO_INCREMENT=7", ") ENGINE=FERRITE").replace(
                "ENGINE = InnoDB", "ENGINE = FERRITE"
            )
        )
        self.assertEqual(made.differences(other), [])
        other = Definition.parse(TRICKY.replace(" ROW_FORMAT=COMPRESSED", "").replace("KEY `k,(`", "KEY `j`"))
        found = made.differences(other)
        self.assertEqual(found[:2], ["without: KEY `k,(` (`x`)", "with: KEY `j` (`x`)"])
        self.assertTrue(found[2].startswith("options: "))
        self.assertEqual(renamed_indexes(made, other), [("`j`", "`k,(`")])

    def test_options_in_a_comment_are_options(self) -> None:
        one = Definition.parse("CREATE TABLE t (\n `a` int\n) ENGINE=InnoDB `PAGE_COMPRESSED`=1")
        two = Definition.parse("CREATE TABLE t (\n `a` int\n) ENGINE=FERRITE /* `PAGE_COMPRESSED`=1 */")
        self.assertEqual(one.differences(two), [])

    def test_the_parent_is_replaced_and_nothing_else(self) -> None:
        (clause,) = Definition.parse(TRICKY).foreign
        self.assertEqual(
            refers_elsewhere(clause, "`d`.`t`"),
            "CONSTRAINT `f``k` FOREIGN KEY (`x`) REFERENCES `d`.`t` (`REFERENCES `) ON DELETE CASCADE",
        )
        self.assertEqual(parent(clause, "d"), ("d", "p"))
        self.assertEqual(parent(clause.replace("`p`", "`q``(`.`p.r`"), "d"), ("q`(", "p.r"))
        self.assertIn("REFERENCES z (", refers_elsewhere(clause.replace("`p`", "`q`.`p`"), "z"))

    def test_what_cannot_be_understood_is_no_definition(self) -> None:
        for sql in ("CREATE TABLE t (a int", "CREATE VIEW v AS SELECT 1", "CREATE TABLE `a (`b` int)"):
            with self.assertRaises(Problem):
                Definition.parse(sql)

    def test_literals_hold_in_every_mode(self) -> None:
        self.assertEqual(quoted("a`b"), "`a``b`")
        self.assertEqual(literal("it's"), "'it''s'")
        self.assertEqual(literal("\\"), "_utf8mb4 X'5c'")


class Dumps(unittest.TestCase):
    def statements(self, text: str) -> list[str]:
        return [x for x, _ in dump.Reader().statements(text.splitlines(keepends=True))]

    def test_statements_end_at_delimiters_only(self) -> None:
        text = (
            "-- it's; a comment\nCREATE TABLE a (x int COMMENT 'a; b''c\\'; \"');\n"
            "INSERT INTO a VALUES\n(1,';'),\n(2,'\\\\');\n/*!40101 SET x=1 */; /* ; ' */ CREATE TABLE `b;` (y int);\n"
            "DELIMITER ;;\nCREATE TRIGGER t BEGIN a; b; END ;;\nDELIMITER ;\n# c; d\nSELECT 2"
        )
        found = self.statements(text)
        self.assertEqual(len(found), 6, found)
        self.assertTrue(found[0].startswith("CREATE TABLE a") and found[0].endswith("\"')"))
        self.assertEqual(found[1].split()[0], "INSERT")
        self.assertEqual(found[3], "CREATE TABLE `b;` (y int)")
        self.assertEqual(found[4], "CREATE TRIGGER t BEGIN a; b; END")
        self.assertEqual(found[5].strip(), "SELECT 2")

    def test_a_long_row_takes_no_memory(self) -> None:
        reader = dump.Reader()
        line = "INSERT INTO t VALUES (1,'" + "x" * (8 << 20) + "');\n"
        ((text, length),) = list(reader.statements(["CREATE", line][1:]))
        self.assertLess(len(text), 5000)
        self.assertEqual(length, len(line) - 2)
        many = reader.statements(["INSERT INTO t VALUES\n", *["(1,'" + "y" * 1000 + "'),\n"] * 1000, "(2,'');\n"])
        ((text, length),) = list(many)
        self.assertLess(len(text), 5000)
        self.assertGreater(length, 1_000_000)

    def test_the_sandbox_line_is_a_comment(self) -> None:
        found = self.statements("/*M!999999\\- enable the sandbox mode */ \nCREATE TABLE a (x int);\n")
        self.assertEqual([x.strip() for x in found], ["CREATE TABLE a (x int)"])


if __name__ == "__main__":
    unittest.main()
