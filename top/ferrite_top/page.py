"""Two samples as lines of text: the same for the screen, for --once, and for --batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ferrite_top.sample import Sample

MIB = 1 << 20
BAR = 20
BATCH = (
    ("time", 8),
    ("commits/s", 10),
    ("rows/s", 10),
    ("commit us", 10),
    ("lock ms/s", 10),
    ("log MiB/s", 10),
    ("log %", 6),
    ("dirty", 9),
    ("history", 10),
    ("lag ms", 8),
    ("stalls", 7),
    ("replica s", 10),
)
"""Columns of --batch, and their width."""


@dataclass(frozen=True)
class Between:
    """What happened from one sample to the next."""

    before: Sample
    now: Sample

    @property
    def seconds(self) -> float:
        """How long that was."""
        return max(self.now.at - self.before.at, 1e-6)

    def gone(self, *names: str) -> int:
        """How far counters have gone, in all. After a restart of the server: since then."""
        total = 0
        for name in names:
            now, before = self.now.status.get(name, 0), self.before.status.get(name, 0)
            total += now - before if now >= before else now
        return total

    def rate(self, *names: str) -> float:
        """The same, per second."""
        return self.gone(*names) / self.seconds

    def waited(self, reason: str) -> tuple[float, float, float]:
        """Waits per second, ms per second, mean us, of a reason."""
        now, before = self.now.waits[reason], self.before.waits.get(reason)
        count, time_us = now.waits, now.time_us
        if before and before.waits <= count:
            count, time_us = count - before.waits, time_us - before.time_us
        return count / self.seconds, time_us / 1000 / self.seconds, time_us / count if count else 0.0


def number(value: float) -> str:
    """1,234 or 3.4."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def mib(value: float) -> str:
    """Bytes in MiB."""
    return f"{value / MIB:,.1f} MiB"


def age(seconds: int) -> str:
    """3d 02:11:09."""
    days, rest = divmod(max(seconds, 0), 86400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}d {clock}" if days else clock


def bar(part: float) -> str:
    """[#####...............]"""
    filled = round(min(max(part, 0.0), 1.0) * BAR)
    return f"[{'#' * filled}{'.' * (BAR - filled)}]"


def one_line(text: Any) -> str:
    """A statement on one line, without characters that move a cursor."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text or "").split())


def replica_lag(sample: Sample) -> str:
    """The largest of all connections to a primary; empty if there is none, ? if one stands still."""
    lags = [row.get("Seconds_Behind_Master") for row in sample.replicas]
    if not lags:
        return ""
    return "?" if None in lags else str(max(int(x) for x in lags if x is not None))


def _head(b: Between, interval_s: float) -> list[str]:
    s, v = b.now.server, b.now.status
    # Without a network the server's port is 0.
    place = s["host"] if s["port"] == "0" else f"{s['host']}:{s['port']}"
    return [
        f"ferrite-top  {place}  MariaDB {s['version']}  up {age(v['Uptime'])}  {b.now.clock}  every {number(interval_s)} s",
        "",
    ]


def _commit_wait(b: Between) -> str:
    waits, _, mean_us = b.waited("log flush")
    return f"{number(mean_us)} us" if waits else "-"


def _line(title: str, *parts: str) -> str:
    return f"{title:<13}{'   '.join(part for part in parts if part)}"


def _sums(b: Between) -> list[str]:
    return [*_work(b), *_storage(b), _locks(b), ""]


def _work(b: Between) -> list[str]:
    v, rate = b.now.status, b.rate
    flushes = b.gone("os_log_fsyncs")
    return [
        _line(
            "Throughput",
            f"commits/s {number(rate('commits'))}",
            f"rollbacks/s {number(rate('rollbacks'))}",
            f"statements/s {number(rate('Questions'))}",
            f"connections {v['Threads_connected']}, running {v['Threads_running']}",
        ),
        _line(
            "Rows",
            f"inserted/s {number(rate('rows_inserted'))}",
            f"updated/s {number(rate('rows_updated'))}",
            f"deleted/s {number(rate('rows_deleted'))}",
        ),
        _line(
            "Commit",
            f"waits for the log {_commit_wait(b)} (mean)",
            f"commits per flush {b.gone('commits') / flushes:.1f}" if flushes else "no flush",
        ),
    ]


def _storage(b: Between) -> list[str]:
    v, rate = b.now.status, b.rate
    full = v["checkpoint_age"] / int(b.now.server["log_budget"])
    return [
        _line(
            "Log",
            f"{mib(rate('os_log_written'))}/s",
            f"flushes/s {number(rate('os_log_fsyncs'))}",
            f"age {mib(v['checkpoint_age'])} {bar(full)} {100 * full:.0f}%",
            f"throttled/s {number(rate('throttled_statements'))}",
        ),
        _line(
            "Buffer pool",
            f"dirty {v['buffer_pool_pages_dirty']:,} of {v['buffer_pool_pages_total']:,} pages",
            f"free {v['buffer_pool_pages_free']:,}",
            f"read {mib(rate('data_read'))}/s",
            f"written {mib(rate('data_written'))}/s",
        ),
        _line(
            "History",
            f"{v['history_list_length']:,} transactions",
            f"purge lag {v['purge_lag']:,} ms",
            f"snapshots {v['open_snapshots']}",
            f"{mib(v['history_bytes'])}, spilled {mib(v['history_spilled_bytes'])}",
        ),
    ]


def _locks(b: Between) -> str:
    v, lag = b.now.status, replica_lag(b.now)
    return _line(
        "Locks",
        f"waiting {v['row_lock_current_waits']}",
        f"deadlocks {v['deadlocks']:,}",
        f"time-outs {v['lock_timeouts']:,}",
        f"stalls {v['stalls']:,}",
        f"replication lag {lag} s" if lag else "",
    )


def _waits(b: Between) -> list[str]:
    rows = [(reason, *b.waited(reason), wait.longest_us) for reason, wait in b.now.waits.items()]
    rows = sorted((r for r in rows if r[1] or r[4]), key=lambda r: (-r[2], -r[4], r[0]))
    lines = [f"{'WAITS':<16}{'waits/s':>12}{'ms/s':>12}{'mean us':>12}{'longest us':>14}"]
    lines += [f"{r[0]:<16}{number(r[1]):>12}{number(r[2]):>12}{number(r[3]):>12}{r[4]:>14,}" for r in rows]
    return [*lines, ""]


def _transactions(rows: tuple[Mapping[str, Any], ...], most: int) -> list[str]:
    lines = [f"{'TRANSACTIONS':<14}{'age':>12}  {'state':<12}{'changed':>10}{'locked':>9}  statement"]
    for row in rows[:most]:
        since = age(int(row["age_s"])) if row["age_s"] is not None else "-"
        changed, locked = int(row["changed"] or 0), int(row["locked"] or 0)
        lines.append(
            f"{row['thread_id']:<14}{since:>12}  {row['state']:<12}{changed:>10,}{locked:>9,}  {one_line(row['query'])}"
        )
    shown = len(rows[:most])
    # Only the oldest were fetched.
    left = int(rows[0].get("of_all", len(rows))) - shown if rows else 0
    if left > 0:
        lines.append(f"... and {left:,} more")
    return [*lines, ""]


def _stalls(rows: tuple[Mapping[str, Any], ...], most: int, threshold_ms: str) -> list[str]:
    lines = [f"LAST STALLS (from {threshold_ms} ms)"] if rows else [f"NO STALLS (from {threshold_ms} ms)"]
    for row in rows[:most]:
        table = f" {one_line(row['table_name'])}" if row["table_name"] else ""
        lines.append(
            f"{row['began']}  {row['waited_ms']:>7,} ms  {row['reason']}{table}  connection {row['thread_id']}  {one_line(row['query'])}"
        )
    return lines


def lines(before: Sample, now: Sample, width: int, height: int, interval_s: float) -> list[str]:
    """The page, no wider and no longer than that."""
    b = Between(before, now)
    top = [*_head(b, interval_s), *_sums(b), *_waits(b)]
    room = max(height - len(top), 0)
    transactions = _transactions(now.transactions, max(room // 2 - 3, 1))
    stalls = _stalls(now.stalls, max(room - len(transactions) - 1, 1), now.server["stall_ms"])
    return [line[:width].rstrip() for line in [*top, *transactions, *stalls][:height]]


def batch_head() -> str:
    """The names of the columns of --batch."""
    return " ".join(f"{name:>{width}}" for name, width in BATCH)


def batch_line(before: Sample, now: Sample) -> str:
    """One line for a log."""
    b, v = Between(before, now), now.status
    _, lock_ms, _ = b.waited("row lock")
    budget = int(now.server["log_budget"])
    values = (
        now.clock,
        number(b.rate("commits")),
        number(b.rate("rows_inserted", "rows_updated", "rows_deleted")),
        _commit_wait(b).removesuffix(" us"),
        number(lock_ms),
        f"{b.rate('os_log_written') / MIB:.1f}",
        f"{100 * v['checkpoint_age'] / budget:.0f}",
        f"{v['buffer_pool_pages_dirty']}",
        f"{v['history_list_length']}",
        f"{v['purge_lag']}",
        f"{b.gone('stalls')}",
        replica_lag(now) or "-",
    )
    return " ".join(f"{value:>{width}}" for value, (_, width) in zip(values, BATCH, strict=True))
