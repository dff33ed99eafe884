"""One sample a second: server counters, kernel counters, and the load generator's own line, as one record.

Counters are turned into rates; gauges stay as they are. A measure that an engine does not report is absent, never 0.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any

import pymysql

from ferrite_bench.load import Output
from ferrite_bench.machine import Device, Process, disk_bytes, stolen_seconds
from ferrite_bench.server import Server

COUNTERS = {
    "dev_reads", "dev_read_bytes", "dev_writes", "dev_write_bytes", "dev_flushes",
    "server_cpu", "client_cpu", "server_switches", "client_switches",
    "log_flushes", "log_bytes", "statements", "stolen",
}  # fmt: skip
"""Grow for ever; a sample holds their rate."""

INNODB_PAGE = 16384
UNDO_PAGES = "SELECT count FROM information_schema.INNODB_METRICS WHERE name = 'trx_rseg_current_size'"


@dataclass
class Reading:
    """All counters and gauges at one moment."""

    at: float
    values: dict[str, float]

    def since(self, before: Reading) -> dict[str, float]:
        """Rates of the counters, gauges as they are now."""
        span = max(self.at - before.at, 1e-6)
        out = {}
        for name, value in self.values.items():
            if name not in COUNTERS:
                out[name] = value
            elif name in before.values:
                out[name] = (value - before.values[name]) / span
        return out

    def total(self, before: Reading, name: str) -> float | None:
        """How much a counter grew."""
        if name in self.values and name in before.values:
            return self.values[name] - before.values[name]
        return None


class Probe:
    """Reads everything there is to read about one server under load."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.device = Device.of(server.home)
        self.client: Process | None = None
        self._connection: Any = None
        self._asked = 0
        sums = [v for names in server.contestant.engine.counters.values() for v in names]
        wanted = {part for words in sums for part in words.split("+")}
        self._names = ",".join(f"'{x}'" for x in sorted(wanted | {"Questions"}))

    def connect(self) -> None:
        """Before the load begins, so that a crowd cannot keep it out. Its answers may come late: a disk can stall for seconds."""
        self._connection = self.server.connect(read_timeout=120)

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            with contextlib.suppress(pymysql.err.Error):
                self._connection.close()
            self._connection = None

    def _status(self) -> dict[str, float]:
        if self._connection is None:
            return {}
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(f"SHOW GLOBAL STATUS WHERE Variable_name IN ({self._names})")
                seen = {k: float(v) for k, v in cursor.fetchall()}
                self._asked += 1
                undo = None
                if self.server.contestant.engine.key == "innodb":
                    cursor.execute(UNDO_PAGES)
                    self._asked += 1
                    undo = cursor.fetchone()
        except (pymysql.err.Error, OSError):
            self.close()
            return {}
        out = {"statements": seen.get("Questions", 0.0) - self._asked}
        for name, variables in self.server.contestant.engine.counters.items():
            sums = [[seen.get(part) for part in words.split("+")] for words in variables]
            value = next((sum(parts) for parts in sums if None not in parts), None)  # type: ignore[arg-type]
            if value is not None:
                out[name] = value
        if undo:
            out["history_bytes"] = float(undo[0]) * INNODB_PAGE
        return out

    def engine_counters(self) -> dict[str, float]:
        """All numbers the engine publishes about itself, waits among them; for those who want to know why."""
        if self._connection is None:
            return {}
        prefix = self.server.contestant.engine.key
        with self._connection.cursor() as cursor:
            cursor.execute(f"SHOW GLOBAL STATUS LIKE '{prefix}%'")
            self._asked += 1
            rows = cursor.fetchall()
        out = {}
        for name, value in rows:
            with contextlib.suppress(ValueError):
                out[name] = float(value)
        return out

    def read(self) -> Reading:
        """Everything, now."""
        values = self._status()
        at = time.monotonic()
        if self.server.process is not None:
            values |= self.server.process.read("server")
        if self.client is not None:
            values |= self.client.read("client")
        values |= self.device.read()
        values |= stolen_seconds()
        values["disk_bytes"] = float(disk_bytes(self.server.datadir))
        return Reading(at, values)


def merge(rates: dict[str, float], output: Output, second: int, own_tps: bool) -> dict[str, float]:
    """Add what the load generator said of that second; statements stand in where it says nothing."""
    said = output.seconds.get(second)
    if said is not None:
        return rates | {"tps": said.tps, "qps": said.qps, "p99": said.p99, "errors": said.errors}
    if own_tps and "statements" in rates:
        return rates | {"tps": rates["statements"]}
    return rates
