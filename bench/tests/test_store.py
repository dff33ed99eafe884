"""Records: what is written is read again, broken files too; two runs compared."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

from ferrite_bench.compare import changes, differences, table
from ferrite_bench.store import RECORDS, read
from ferrite_bench.workloads import experiment
from tests.synthetic import write_run


class Store(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.home = Path(holder.name)

    def test_there_and_back(self) -> None:
        write_run(experiment("queue"), self.home)
        run = read(self.home)
        self.assertTrue(run.complete)
        self.assertEqual(run.cases(), ["no snapshot", "snapshot open"])
        self.assertEqual(run.values("innodb", "snapshot open", "tps"), {1: 870, 2: 890})
        self.assertEqual(len(run.samples[("ferrite", "snapshot open", 1)]), 40)

    def test_a_problem_makes_it_incomplete(self) -> None:
        write_run(experiment("queue"), self.home, problem="the server ended by itself")
        self.assertFalse(read(self.home).complete)

    def test_a_file_cut_off_is_incomplete_and_readable(self) -> None:
        write_run(experiment("queue"), self.home, end=False)
        file = self.home / RECORDS
        file.write_text(file.read_text()[:-20])
        run = read(self.home)
        self.assertFalse(run.complete)
        self.assertTrue(run.figures)

    def test_every_figure_says_what_it_is(self) -> None:
        write_run(experiment("queue"), self.home)
        text = (self.home / RECORDS).read_text()
        line = next(x for x in text.splitlines() if '"kind":"figure"' in x)
        for key in ("value", "unit", "direction", "commit", "config", "machine", "experiment"):
            self.assertIn(f'"{key}"', line)

    def test_compare(self) -> None:
        a, b = self.home / "a", self.home / "b"
        write_run(experiment("queue"), a)
        write_run(experiment("queue"), b, factor=2)
        found = {(c.contestant, c.name): c for c in changes(read(a), read(b))}
        self.assertEqual(found[("innodb", "tps")].ratio, 2)
        self.assertEqual(found[("innodb", "tps")].verdict, "better")
        same = changes(read(a), read(a))[0]
        self.assertEqual(same.verdict, "same")
        self.assertEqual(differences(read(a), read(b)), [])
        self.assertIn("better", table((a, b), False))

    def test_compare_of_unlike_runs_says_so(self) -> None:
        a, b = self.home / "a", self.home / "b"
        write_run(experiment("queue"), a)
        write_run(experiment("hot-rows"), b, problem="x")
        notes = " ".join(differences(read(a), read(b)))
        self.assertIn("experiment differs", notes)
        self.assertIn("incomplete", notes)


if __name__ == "__main__":
    unittest.main()
