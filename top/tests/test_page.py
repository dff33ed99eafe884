"""The page and the lines for logs, from samples made up here."""

from __future__ import annotations

import unittest
from typing import Any

from ferrite_top import page
from ferrite_top.sample import Sample, Wait

STATUS = {
    "Uptime": 93784,
    "Threads_connected": 5,
    "Threads_running": 2,
    "Questions": 1000,
    "commits": 100,
    "os_log_fsyncs": 10,
    "checkpoint_age": 64 << 20,
    "buffer_pool_pages_dirty": 12,
    "buffer_pool_pages_total": 8192,
    "buffer_pool_pages_free": 4000,
    "history_list_length": 3,
    "purge_lag": 7,
    "open_snapshots": 1,
    "history_bytes": 1 << 20,
    "history_spilled_bytes": 0,
    "row_lock_current_waits": 1,
    "deadlocks": 0,
    "lock_timeouts": 0,
    "stalls": 1,
}
SERVER = {"host": "db", "port": "3306", "version": "10.11.18", "log_budget": str(256 << 20), "stall_ms": "50"}
STALL = {
    "began": "12:00:00",
    "waited_ms": 412,
    "reason": "row lock",
    "thread_id": 9,
    "table_name": "shop/t",
    "query": "UPDATE\nt",
}


def _sample(at: float, commits: int, log_waits: Wait, **more: Any) -> Sample:
    waits = {"log flush": log_waits, "row lock": Wait(0, 0, 0)}
    return Sample(at, "12:00:00", SERVER, {**STATUS, "commits": commits}, waits, **more)


class Pages(unittest.TestCase):
    def test_rates_are_of_the_interval(self) -> None:
        text = "\n".join(
            page.lines(_sample(10, 100, Wait(50, 5000, 900)), _sample(12, 300, Wait(150, 25000, 900)), 160, 60, 2)
        )
        self.assertIn("commits/s 100 ", text)
        self.assertIn("waits for the log 200 us (mean)", text)
        self.assertIn("[#####...............] 25%", text)
        self.assertIn("up 1d 02:03:04", text)
        self.assertNotIn("replication", text)

    def test_a_restart_begins_anew(self) -> None:
        b = page.Between(_sample(0, 500, Wait(9, 900, 1)), _sample(1, 20, Wait(2, 10, 1)))
        self.assertEqual(b.gone("commits"), 20)
        self.assertEqual(b.waited("log flush"), (2.0, 0.01, 5.0))

    def test_it_fits(self) -> None:
        trx = {
            "thread_id": 7,
            "state": "RUNNING",
            "changed": 2,
            "locked": 1,
            "age_s": 3,
            "query": b"DELETE\x1b[2J FROM t",
        }
        now = _sample(1, 101, Wait(1, 1, 1), transactions=(trx,) * 50, stalls=(STALL,) * 50)
        for width, height in ((80, 24), (20, 5), (300, 100)):
            lines = page.lines(_sample(0, 100, Wait(0, 0, 0)), now, width, height, 2)
            self.assertLessEqual(len(lines), height)
            self.assertTrue(all(len(line) <= width for line in lines))
            self.assertFalse(any("\x1b" in line for line in lines))
        self.assertTrue(any("412 ms  row lock shop/t  connection 9  UPDATE t" in line for line in lines))

    def test_all_that_is_not_shown_is_counted(self) -> None:
        trx = {"thread_id": 7, "state": "RUNNING", "changed": 2, "locked": 1, "age_s": 3, "query": "", "of_all": 3000}
        for fetched in (1, 50):
            now = _sample(1, 101, Wait(1, 1, 1), transactions=(trx,) * fetched)
            lines = page.lines(_sample(0, 100, Wait(0, 0, 0)), now, 80, 40, 2)
            shown = sum(line.startswith("7 ") for line in lines)
            self.assertTrue(0 < shown <= fetched)
            self.assertIn(f"... and {3000 - shown:,} more", lines)

    def test_lag_of_the_slowest_replica(self) -> None:
        lags: list[tuple[list[int | None], str]] = [([], ""), ([3, 8], "8"), ([3, None], "?")]
        for values, told in lags:
            rows = tuple({"Seconds_Behind_Master": value} for value in values)
            self.assertEqual(page.replica_lag(_sample(0, 0, Wait(0, 0, 0), replicas=rows)), told)

    def test_batch_lines_have_the_columns_of_their_head(self) -> None:
        line = page.batch_line(_sample(0, 100, Wait(0, 0, 0)), _sample(1, 150, Wait(5, 500, 1)))
        self.assertEqual(len(line.split()), len(page.BATCH))
        self.assertEqual(len(line), len(page.batch_head()))
        self.assertEqual(line.split()[1], "50")


if __name__ == "__main__":
    unittest.main()
