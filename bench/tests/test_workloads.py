"""Every experiment is sound on paper: cases with names of their own, pictures of cases that exist, equal settings."""

from __future__ import annotations

import unittest
from pathlib import Path

from ferrite_bench.engines import ENGINES, common_options, engine_options
from ferrite_bench.run import START_ESTIMATE, contestants_of
from ferrite_bench.terms import SIZES, Needs
from ferrite_bench.workloads import ORDER, experiments
from ferrite_bench.workloads.base import Bars, Curve, Timeline

LUA = Path(__file__).parents[1] / "lua"


class Experiments(unittest.TestCase):
    def test_all_are_there(self) -> None:
        self.assertEqual(set(ORDER), set(experiments()))

    def test_names_of_cases_are_unique(self) -> None:
        for item in experiments().values():
            for size in SIZES.values():
                names = [c.name for s in item.setups(size) for c in s.cases]
                self.assertEqual(len(names), len(set(names)), (item.name, size.name))
                self.assertTrue(names)

    def test_pictures_show_cases_that_exist(self) -> None:
        for item in experiments().values():
            for size in SIZES:
                cases = [c for s in item.setups(SIZES[size]) for c in s.cases]
                names, series = {c.name for c in cases}, {c.series for c in cases}
                for chart in item.charts:
                    match chart:
                        case Timeline():
                            self.assertIn(chart.case, names, item.name)
                        case Curve():
                            self.assertLessEqual(set(chart.series), series, item.name)
                            self.assertTrue(any(c.x is not None for c in cases), item.name)
                        case Bars():
                            self.assertLessEqual(set(chart.cases), names, item.name)

    def test_smoke_is_short_and_all_quick_ones_fit_together(self) -> None:
        quick = 0.0
        engines = [ENGINES[x] for x in ("ferrite", "innodb", "rocksdb", "ceiling")]
        for item in (x for x in experiments().values() if not x.apart):
            for size in ("smoke", "quick"):
                seconds = 0.0
                data = ""
                for s in item.setups(SIZES[size]):
                    rounds = (s.rounds or SIZES[size].rounds) if size == "quick" else 1
                    seconds += START_ESTIMATE + sum(c.seconds for c in s.cases) * rounds
                    seconds += s.data.seconds if s.data.name != data else 0
                    data = s.data.name
                if size == "smoke":
                    self.assertLess(seconds, 30, item.name)
                else:
                    quick += seconds * len(contestants_of(item, engines if item.ceiling else engines[:3]))
        self.assertLess(quick, 42 * 60, "three engines and the ceiling, all experiments, in less than 45 minutes")

    def test_texts_end_like_sentences(self) -> None:
        for item in experiments().values():
            self.assertRegex(item.question, r"[.?]$")
            self.assertRegex(item.method, r"\.$")

    def test_scripts_open_with_what_they_are(self) -> None:
        for script in LUA.glob("*.lua"):
            self.assertTrue(script.read_text().startswith("-- "), script.name)


class Fairness(unittest.TestCase):
    def test_equal_memory_and_durability(self) -> None:
        needs = Needs(pool_mb=300, flush=1)
        for name, pool, flush in (
            ("ferrite", "--ferrite-buffer-pool-size", "--ferrite-flush-log-at-trx-commit"),
            ("innodb", "--innodb-buffer-pool-size", "--innodb-flush-log-at-trx-commit"),
            ("rocksdb", "--rocksdb-block-cache-size", "--rocksdb-flush-log-at-trx-commit"),
        ):
            options = engine_options(ENGINES[name], needs)
            self.assertIn(f"{pool}={300 << 20}", options)
            self.assertIn(f"{flush}=1", options)

    def test_binlog_only_when_asked_for(self) -> None:
        self.assertFalse([o for o in common_options(Needs()) if "log-bin" in o])
        self.assertIn("--sync-binlog=1", common_options(Needs(binlog=1)))


if __name__ == "__main__":
    unittest.main()
