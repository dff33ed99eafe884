"""Runs as Markdown: the table's shape, and what counts as behind."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from ferrite_bench.report.markdown import is_behind, section, summary
from ferrite_bench.stats import Spread
from ferrite_bench.store import Place, Writer, read
from ferrite_bench.workloads import experiment, experiments
from tests.synthetic import write_run


class Markdown(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.home = Path(holder.name)

    def test_every_experiment_has_a_table(self) -> None:
        for item in experiments().values():
            write_run(item, self.home / item.name)
            text = section(read(self.home / item.name), item)
            rows = [line for line in text.splitlines() if line.startswith("|")]
            self.assertGreater(len(rows), 2, item.name)
            self.assertEqual({row.count("|") for row in rows}, {rows[0].count("|")}, item.name)
            self.assertIn(f"./ferrite bench {item.name} ", text)
            self.assertIn("behind a peer in none", text, item.name)

    def test_a_summary_has_a_line_for_each_run(self) -> None:
        runs = []
        for name in ("point-read", "hot-rows", "tpcc"):
            write_run(experiment(name), self.home / name)
            runs.append((read(self.home / name), experiment(name)))
        lines = summary(runs).splitlines()
        self.assertEqual(len(lines), 5)
        self.assertEqual({line.count("|") for line in lines}, {7})
        self.assertTrue(all(word in lines[2] for word in ("point-read", "1.1", "00000000")), lines[2])

    def test_an_incomplete_run_says_so(self) -> None:
        write_run(experiment("tpcc"), self.home, problem="died")
        self.assertIn("incomplete", section(read(self.home), experiment("tpcc")))

    def test_what_is_behind_is_listed(self) -> None:
        item = experiment("tpcc")
        write_run(item, self.home, end=False)
        run = read(self.home)
        writer = Writer(self.home / "other", {})
        writer.line("run", **run.header)
        for key, values in {"ferrite": (100.0, 110.0), "innodb": (140.0, 150.0), "rocksdb": (90.0, 160.0)}.items():
            for number, value in enumerate(values):
                writer.figure(Place(key, "s", "case", round=number), "tps", value, "1/s", "higher")
        writer.end(True)
        lines = [x for x in section(read(self.home / "other"), item).splitlines() if x.startswith("- behind")]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn("Ferrite 105, InnoDB 145 (0.72)", lines[0])

    def test_a_tie_and_a_single_round(self) -> None:
        self.assertFalse(is_behind(Spread(0.98, 0.95, 0.99, 3), "higher"))
        self.assertFalse(is_behind(Spread(0.9, 0.8, 1.01, 3), "higher"))
        self.assertTrue(is_behind(Spread(0.9, 0.8, 0.95, 3), "higher"))
        self.assertTrue(is_behind(Spread(1.2, 1.1, 1.3, 3), "lower"))
        self.assertFalse(is_behind(Spread(0.95, 0.95, 0.95, 1), "higher"))
        self.assertTrue(is_behind(Spread(1.2, 1.2, 1.2, 1), "lower"))
