"""What the load generators print, and what is read from it."""

from __future__ import annotations

import unittest
from pathlib import Path

from ferrite_bench.load import GoTpc, Output, Slap, Sysbench, failure_of, summarize_sysbench
from lib.mariadbd import last_words

SYSBENCH = """\
Threads started!

[ 1s ] thds: 4 tps: 812.43 qps: 3249.71 (r/w/o: 812.43/812.43/1624.85) lat (ms,99%): 12.30 err/s: 0.00 reconn/s: 0.00
[ 2s ] thds: 4 tps: 900.00 qps: 3600.00 (r/w/o: 900.00/900.00/1800.00) lat (ms,99%): 8.13 err/s: 1.00 reconn/s: 0.00
Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       1.000 |****************************************  80
       2.000 |*****                                     15
       9.000 |**                                        4
      50.000 |                                          1

SQL statistics:
    transactions:                        1712   (855.90 per sec.)
    ignored errors:                      2      (1.00 per sec.)

General statistics:
    total time:                          2.0002s
    total number of events:              1712

Latency (ms):
         min:                                    0.60
         avg:                                    4.67
         max:                                   50.20
"""


class Sysbenches(unittest.TestCase):
    def test_each_second(self) -> None:
        output = Output()
        for line in SYSBENCH.splitlines(keepends=True):
            output.feed(line)
        self.assertTrue(output.running.is_set())
        self.assertEqual(output.seconds[1].tps, 812.43)
        self.assertEqual(output.seconds[2].p99, 8.13)
        self.assertEqual(output.seconds[2].errors, 1.0)
        self.assertNotIn("thds:", output.text())

    def test_summary(self) -> None:
        summary = summarize_sysbench(SYSBENCH)
        assert summary is not None
        self.assertEqual(summary.transactions, 1712)
        self.assertAlmostEqual(summary.tps, 1712 / 2.0002)
        self.assertEqual((summary.latency["p50"], summary.latency["p95"], summary.latency["p99"]), (1.0, 2.0, 9.0))
        self.assertEqual((summary.latency["max"], summary.errors), (50.2, 1.0))

    def test_nothing_printed(self) -> None:
        self.assertIsNone(summarize_sysbench("Initializing worker threads..."))

    def test_command_holds_what_matters(self) -> None:
        load = Sysbench("oltp_insert", 8, 30, ("--tables=2",))
        line = load.command(Path("/x/sysbench"), Path("/lua"), "/s", "FERRITE")
        for word in ("--threads=8", "--time=30", "--events=0", "--mysql-storage-engine=FERRITE", "--tables=2", "run"):
            self.assertIn(word, line)


class Slaps(unittest.TestCase):
    def test_summary(self) -> None:
        text = "Benchmark\n\tAverage number of seconds to run all queries: 2.000 seconds\n"
        summary = Slap(3, 100).summarize(text, 9)
        assert summary is not None
        self.assertEqual((summary.transactions, summary.tps), (99, 49.5))


GO_TPC = """\
[Summary] NEW_ORDER - Takes(s): 2.0, Count: 90, TPM: 2700.0, Sum(ms): 900.0, Avg(ms): 10.0, 50th(ms): 9.4, 90th(ms): 12.1, \
95th(ms): 13.6, 99th(ms): 20.0, 99.9th(ms): 30.0, Max(ms): 33.6
[Summary] NEW_ORDER_ERR - Takes(s): 2.0, Count: 5, TPM: 150.0, Sum(ms): 9.0, Avg(ms): 1.0
[Summary] PAYMENT - Takes(s): 1.9, Count: 110, TPM: 3400.0, Sum(ms): 500.0, Avg(ms): 5.0, 50th(ms): 4.7
tpmC: 2700.0
"""


class GoTpcs(unittest.TestCase):
    def test_summary_counts_all_but_errors(self) -> None:
        summary = GoTpc(4, 2, 1).summarize(GO_TPC, 9)
        assert summary is not None
        self.assertEqual((summary.transactions, summary.tps), (200, 100.0))
        self.assertEqual((summary.latency["p50"], summary.latency["p99"], summary.latency["p999"]), (9.4, 20.0, 30.0))


class Failures(unittest.TestCase):
    def test_the_loud_lines_are_shown(self) -> None:
        text = "FATAL: mysql_stmt_execute() returned error 2013 (Lost connection)\nnoise"
        self.assertIn("2013", failure_of(text, 1))
        self.assertEqual(failure_of("all is well", 0), "")
        self.assertEqual(failure_of("", 3), "exit status 3")


class LastWords(unittest.TestCase):
    def test_of_a_crash(self) -> None:
        log = ["Version: 1", "[ERROR] Ferrite: it hurts", "261121 [ERROR] mariadbd got signal 11 ;", "Sorry, a bug.",
               "/x/ha_ferrite.so(+0x1f20)[0x7f]", "Query (0x77): CREATE TABLE job", "Max processes 9"]  # fmt: skip
        self.assertEqual(last_words(log).splitlines(), [log[1], log[2], log[4], log[5]])

    def test_of_a_refusal(self) -> None:
        self.assertEqual(last_words(["[Note] hello", "[ERROR] unknown option"]), "[ERROR] unknown option")


if __name__ == "__main__":
    unittest.main()
