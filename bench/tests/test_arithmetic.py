"""Medians, ratios of pairs, histograms, ticks, numbers in words, time left."""

from __future__ import annotations

import io
import unittest

from ferrite_bench.load import Output, Second
from ferrite_bench.progress import Progress, duration
from ferrite_bench.report.units import log_ticks, short, tick, ticks
from ferrite_bench.sample import Reading, merge
from ferrite_bench.stats import paired_ratio, percentile_of_histogram, spread


class Stats(unittest.TestCase):
    def test_spread(self) -> None:
        found = spread([3, 1, 2])
        assert found is not None
        self.assertEqual((found.median, found.low, found.high, found.count, found.relative), (2, 1, 3, 3, 0.5))
        self.assertIsNone(spread([]))

    def test_ratios_are_of_one_round(self) -> None:
        found = paired_ratio({1: 10, 2: 40, 3: 9}, {1: 10, 2: 20})
        assert found is not None
        self.assertEqual((found.low, found.high, found.count), (1.0, 2.0, 2))
        self.assertIsNone(paired_ratio({1: 1}, {2: 1}))
        self.assertIsNone(paired_ratio({1: 1}, {1: 0}))

    def test_percentiles(self) -> None:
        buckets = [(1.0, 50), (2.0, 45), (3.0, 5)]
        self.assertEqual([percentile_of_histogram(buckets, p) for p in (0.5, 0.95, 0.99)], [1.0, 2.0, 3.0])
        self.assertEqual(percentile_of_histogram([], 0.5), 0.0)


class Samples(unittest.TestCase):
    def test_counters_become_rates_and_gauges_stay(self) -> None:
        before = Reading(10, {"dev_flushes": 100, "history": 5})
        after = Reading(12, {"dev_flushes": 140, "history": 9, "server_switches": 7})
        self.assertEqual(after.since(before), {"dev_flushes": 20, "history": 9})
        self.assertEqual(after.total(before, "dev_flushes"), 40)
        self.assertIsNone(after.total(before, "server_switches"))

    def test_the_generator_has_the_word(self) -> None:
        output = Output(seconds={1: Second(5, 6, 7, 0)})
        self.assertEqual(merge({"statements": 3}, output, 1, True)["tps"], 5)
        self.assertEqual(merge({"statements": 3}, output, 2, True)["tps"], 3)
        self.assertNotIn("tps", merge({"statements": 3}, output, 2, False))


class Numbers(unittest.TestCase):
    def test_short(self) -> None:
        cases = {
            (12345.6, "1/s"): "12,346", (0, "1/s"): "0", (25_000_000, ""): "25.0 M", (1536, "bytes"): "1.5 KiB",
            (3 << 30, "bytes"): "3 GiB", (0.456, "ms"): "0.46 ms", (1500, "ms"): "1.50 s", (0.0004, "s"): "400 us",
            (1.234, "x"): "1.23", (2048, "bytes/s"): "2 KiB/s",
        }  # fmt: skip
        for (value, unit), text in cases.items():
            self.assertEqual(short(value, unit), text)

    def test_ticks_of_an_axis_have_equal_digits(self) -> None:
        self.assertEqual([tick(v, "1/s", 0.5) for v in (0, 0.5, 1)], ["0", "0.5", "1.0"])
        self.assertEqual([tick(v, "1/s", 0.25) for v in (0, 0.25)], ["0", "0.25"])
        self.assertEqual([tick(v, "1/s", 2500) for v in (0, 2500)], ["0", "2,500"])
        self.assertEqual([tick(v, "1/s", 2.5) for v in (0, 2.5)], ["0", "2.5"])
        self.assertEqual([tick(v, "ms", 2.5) for v in (2.5, 5)], ["2.5 ms", "5 ms"])

    def test_ticks_hold_the_range(self) -> None:
        for low, high in ((0, 1), (0, 0.0037), (0, 98_765), (3, 3)):
            found = ticks(low, high)
            self.assertLessEqual(found[0], low)
            self.assertGreaterEqual(found[-1], high)
            self.assertLess(len(found), 9)
        self.assertEqual(ticks(0, 4 << 20, 4, True)[1] % (1 << 20), 0)
        self.assertEqual(log_ticks(3, 250), [1, 10, 100, 1000])


class TimeLeft(unittest.TestCase):
    def test_words(self) -> None:
        self.assertEqual([duration(s) for s in (5, 65, 3661)], ["5 s", "1:05", "1:01:01"])

    def test_the_rest_is_stretched_like_the_past(self) -> None:
        progress = Progress(100, io.StringIO())
        progress.begun = 0
        progress.done, progress._step_begun = 50, 100  # twice as slow as planned
        self.assertAlmostEqual(progress.left(now=100), 100)

    def test_skipped_work_shortens_the_plan(self) -> None:
        progress = Progress(100, io.StringIO())
        progress.skip(60)
        self.assertEqual(progress.planned, 40)


if __name__ == "__main__":
    unittest.main()
