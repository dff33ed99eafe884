"""How numbers are written: few digits, the right unit, round ticks."""

from __future__ import annotations

import math

NAMES = {
    "tps": "transactions per second",
    "worst_second": "slowest second",
    "p50": "median latency",
    "p95": "p95 latency",
    "p99": "p99 latency",
    "p999": "p99.9 latency",
    "max": "longest",
    "errors": "retried for deadlock",
    "flushes_per_txn": "device flushes per transaction",
    "log_flushes_per_txn": "log flushes per transaction, by the engine",
    "writes_per_txn": "device writes per transaction",
    "written_per_txn": "bytes written per transaction",
    "reads_per_txn": "device reads per transaction",
    "read_per_txn": "bytes read per transaction",
    "switches_per_txn": "context switches per transaction",
    "server_cpu_per_txn": "server CPU per transaction",
    "client_cpu_per_txn": "client CPU per transaction",
    "history_peak": "longest history list",
    "history_bytes_peak": "most bytes of history",
    "rss_peak": "peak resident memory",
    "disk_size": "size of the data directory with its logs",
    "table_size": "size without logs",
    "tps_first": "tps when the snapshot was new",
    "tps_last": "tps when the snapshot was old",
    "tps_after": "tps after it was closed",
    "kept": "throughput kept under the snapshot",
    "rows_per_second": "rows per second",
    "seconds": "seconds",
    "scan_before": "covering scan before",
    "scan_after": "covering scan after",
    "first_answer": "seconds to the first answer",
    "first_row": "seconds to the first rows",
    "tps_after_restart": "tps after the restart",
    "update_seconds": "seconds of the UPDATE",
    "rollback_seconds": "seconds of the ROLLBACK",
    "p99_before": "p99 of other sessions before",
    "p99_update": "p99 of other sessions during the UPDATE",
    "p99_rollback": "p99 of other sessions during UPDATE and ROLLBACK",
    "rss_update": "resident memory, UPDATE",
    "rss_rollback": "resident memory, ROLLBACK",
    "all_rows_again": "seconds to all rows after the kill",
    "chain_p99": "versions of a row, p99",
    "released_seconds": "seconds until the history fits in the ring",
    "released_rss": "resident memory released by then",
    "history_bound": "limit of the history",
    "history_memory": "memory used by the history",
    "lag_peak": "maximum purge lag",
    "worst_share": "slowest second, share of the mean",
    "worst_share_given": "the same, per processor time available",
    "stolen_peak": "maximum processor time stolen by the host in a second",
    "disk_before": "size when the snapshot closed",
    "disk_after": "size after a further load",
    "tps_held": "tps with purge paused",
    "held_ratio": "tps with purge, share of that without",
    "read_key_before": "read by key, before",
    "read_key_after": "read by key, after",
    "read_range_before": "range of 100, before",
    "read_range_after": "range of 100, after",
    "snapshot_scan_before": "the snapshot's scan, at first",
    "snapshot_scan_after": "the snapshot's scan, at last",
}


def name_of(figure: str) -> str:
    """A figure's name for people."""
    return NAMES.get(figure, figure.replace("_", " "))


def short(value: float, unit: str = "") -> str:
    """A number with about three digits, with its unit."""
    if unit.startswith("bytes"):
        return _bytes(value) + unit.removeprefix("bytes")
    if unit in ("1/s", "/s"):
        return _plain(value)
    if unit == "x":
        return f"{value:.2f}"
    if unit in ("us", "ms", "s"):
        return _time(value, unit)
    return _plain(value)


def _plain(value: float) -> str:
    size = abs(value)
    if size >= 1e7:
        return f"{value / 1e6:,.1f} M"
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100 or value == int(value):
        return f"{value:.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 0.01 else f"{value:.2g}"


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if abs(value) >= 100 or value == int(value) else f"{value:.1f} {unit}"
        value /= 1024
    return ""


def _time(value: float, unit: str) -> str:
    seconds = value * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]
    for limit, factor, name in ((1e-3, 1e6, "us"), (1.0, 1e3, "ms")):
        if seconds < limit and not (unit == "ms" and name == "us" and value >= 0.1):
            return f"{_plain(seconds * factor)} {name}"
    return f"{_plain(seconds)} s"


def tick(value: float, unit: str, step: float) -> str:
    """A value on an axis: all of one axis with the same number of digits, no more than its step needs."""
    if value == 0:
        return "0"
    if unit.startswith("bytes") or unit in ("us", "ms", "s"):
        text = short(value, unit)
        head, _, tail = text.partition(" ")
        return f"{head.rstrip('0').rstrip('.') if '.' in head else head} {tail}".strip()
    if abs(value) >= 1e6 and step >= 1e5:
        return f"{value / 1e6:,.1f} M"
    digits = max(0, -math.floor(math.log10(step) + 1e-9)) if 0 < step < 1 else (1 if step % 1 else 0)
    return f"{value:,.{digits + (1 if step < 1 and round(step * 10**digits, 6) % 1 else 0)}f}"


def ticks(low: float, high: float, count: int = 5, binary: bool = False) -> list[float]:
    """Round values from low to at least high."""
    span = high - low
    if span <= 0:
        return [low, low + 1]
    raw = span / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10, 20) if m * power >= raw * 0.999)
    if binary:
        step = 2.0 ** math.ceil(math.log2(raw))
    first = math.floor(low / step)
    out = [first * step]
    while out[-1] < high - step * 1e-6:
        out.append((first + len(out)) * step)
    return out


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten around a range."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**n for n in range(first, max(last, first + 1) + 1)]
