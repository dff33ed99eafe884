"""The contestants: how each engine is loaded, what its equal settings are called, where its counters are.

Fairness, in short: one server binary; the same memory for the main cache, the same durability, direct I/O for all;
InnoDB tuned as one would for a fast disk (large redo, doublewrite on, several purge threads); the others at their
defaults otherwise. Every option given is written into the result.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from ferrite_bench.errors import Usage
from ferrite_bench.terms import Needs

REDO_MB = 2048
MIB = 1 << 20


@dataclass(frozen=True)
class Engine:
    """One storage engine."""

    key: str
    """Its word on the command line."""
    label: str
    sql_name: str
    """The word after ENGINE=."""
    color: str
    """Name of its colour variable in the pages."""
    plugin: str = ""
    """File to load, if it is not built in."""
    counters: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Our name of a measure -> status variables that carry it, or sums of them; the first one present counts."""
    notes: str = ""
    """What a reader should know about its settings."""


@dataclass(frozen=True)
class Contestant:
    """An engine with a variation of its settings; what one line of a picture stands for."""

    engine: Engine
    variant: str = ""
    options: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Unique within a run."""
        return f"{self.engine.key}-{self.variant.replace(' ', '-')}" if self.variant else self.engine.key

    @property
    def label(self) -> str:
        """As it stands in pictures and tables."""
        return f"{self.engine.label}, {self.variant}" if self.variant else self.engine.label


ENGINES = {
    "ferrite": Engine(
        "ferrite",
        "Ferrite",
        "FERRITE",
        "ferrite",
        plugin="ha_ferrite.so",
        counters={
            "history": ("Ferrite_history_list_length",),
            "history_bytes": ("Ferrite_history_bytes+Ferrite_history_spilled_bytes",),
            "history_memory": ("Ferrite_history_bytes",),
            "purge_lag": ("Ferrite_purge_lag",),
            "chain_p99": ("Ferrite_version_chain_p99",),
            "dirty_bytes": ("Ferrite_buffer_pool_bytes_dirty",),
            "dirty_pages": ("Ferrite_buffer_pool_pages_dirty",),
            "checkpoint_age": ("Ferrite_checkpoint_age",),
            "redo_pages_left": ("Ferrite_recovery_pages_left",),
            "log_flushes": ("Ferrite_os_log_fsyncs", "Ferrite_log_flushes"),
            "log_bytes": ("Ferrite_os_log_written", "Ferrite_log_bytes_written"),
        },
        notes="Defaults, besides the cache size, the durability and a log budget equal to InnoDB's redo log.",
    ),
    "innodb": Engine(
        "innodb",
        "InnoDB",
        "InnoDB",
        "innodb",
        counters={
            "history": ("Innodb_history_list_length",),
            "dirty_bytes": ("Innodb_buffer_pool_bytes_dirty",),
            "dirty_pages": ("Innodb_buffer_pool_pages_dirty",),
            "checkpoint_age": ("Innodb_checkpoint_age",),
            "log_flushes": ("Innodb_os_log_fsyncs", "Innodb_data_fsyncs"),
            "log_bytes": ("Innodb_os_log_written",),
        },
        notes="Tuned for a fast disk: O_DIRECT, 2 GiB of redo log, doublewrite on, io_capacity 4000 / 8000, "
        "neighbour flushing off, 4 purge threads, 64 MiB of log buffer. History bytes are the undo pages of all "
        "rollback segments.",
    ),
    "rocksdb": Engine(
        "rocksdb",
        "MyRocks",
        "ROCKSDB",
        "rocksdb",
        plugin="ha_rocksdb.so",
        counters={
            "dirty_bytes": ("Rocksdb_memtable_total",),
            "log_flushes": ("Rocksdb_wal_synced",),
            "log_bytes": ("Rocksdb_wal_bytes",),
        },
        notes="Direct reads, direct flush and compaction, block cache of the size that the others have as buffer "
        "pool; memtables come on top of it. Defaults otherwise. It reports no history length.",
    ),
    "ceiling": Engine(
        "ceiling",
        "Ceiling",
        "CEILING",
        "ceiling",
        plugin="ha_ceiling.so",
        notes="Not an engine: rows in an array, no transactions, no locks, a few hundred bytes of log per change. "
        "It shows what the SQL layer, the client and the device leave for any engine.",
    ),
}

DEFAULT_ENGINES = ("ferrite", "innodb", "rocksdb")


def engine(name: str) -> Engine:
    """Look an engine up by its word."""
    try:
        return ENGINES[name.strip().lower()]
    except KeyError:
        raise Usage(f"unknown engine '{name}': one of {', '.join(ENGINES)}") from None


def plugin_file(item: Engine, plugin_dir: Path) -> Path | None:
    """The engine's shared object; None for one that is built in."""
    if not item.plugin:
        return None
    own = {"ferrite": "HA_FERRITE_SO", "ceiling": "FB_CEILING_SO"}.get(item.key)
    return Path(os.environ.get(own, "/nonexistent")) if own else plugin_dir / item.plugin


def missing(item: Engine, plugin_dir: Path) -> str:
    """Why an engine cannot take part; empty when it can."""
    reason = os.environ.get(f"FB_MISSING_{item.key.upper()}", "")
    if reason:
        return reason
    path = plugin_file(item, plugin_dir)
    if path is not None and not path.exists():
        return f"its plugin {path.name} is not there"
    return ""


def _innodb_small() -> list[str]:
    return ["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=96M", "--innodb-buffer-pool-dump-at-shutdown=OFF"]


def engine_options(item: Engine, needs: Needs) -> list[str]:
    """The options that make the engines comparable."""
    pool = needs.pool_mb * MIB
    match item.key:
        case "innodb":
            return [
                f"--innodb-buffer-pool-size={pool}",
                f"--innodb-flush-log-at-trx-commit={needs.flush}",
                f"--innodb-log-file-size={REDO_MB}M",
                "--innodb-log-buffer-size=64M",
                "--innodb-flush-method=O_DIRECT",
                "--innodb-doublewrite=ON",
                "--innodb-io-capacity=4000",
                "--innodb-io-capacity-max=8000",
                "--innodb-flush-neighbors=0",
                "--innodb-purge-threads=4",
                "--innodb-monitor-enable=trx_rseg_current_size",
                "--innodb-buffer-pool-dump-at-shutdown=OFF",
                "--innodb-buffer-pool-load-at-startup=OFF",
            ]
        case "rocksdb":
            return [
                *_innodb_small(),
                f"--rocksdb-block-cache-size={pool}",
                f"--rocksdb-flush-log-at-trx-commit={needs.flush}",
                "--rocksdb-use-direct-reads=ON",
                # A million by default: a LOAD DATA of more rows fails.
                "--rocksdb-max-row-locks=1000000000",
                "--rocksdb-use-direct-io-for-flush-and-compaction=ON",
            ]
        case "ferrite":
            return [
                *_innodb_small(),
                f"--ferrite-buffer-pool-size={pool}",
                f"--ferrite-flush-log-at-trx-commit={needs.flush}",
                f"--ferrite-log-budget={REDO_MB * MIB}",
            ]
        case "ceiling":
            return [*_innodb_small(), f"--ceiling-flush={1 if needs.flush == 1 else 0}"]
        case _:
            raise Usage(f"no settings for {item.key}")


def common_options(needs: Needs) -> list[str]:
    """What every server gets, whatever its engine."""
    options = [
        "--performance-schema=OFF",
        f"--max-connections={needs.sessions + 64}",
        f"--back-log={max(150, needs.sessions)}",
        f"--thread-cache-size={needs.sessions}",
        "--table-open-cache=4000",
        "--table-definition-cache=2000",
        "--max-prepared-stmt-count=1000000",
        "--transaction-isolation=REPEATABLE-READ",
        "--query-cache-type=0",
        "--local-infile=1",
        "--secure-file-priv=",
    ]
    if needs.binlog is not None:
        options += [
            "--log-bin=binlog",
            "--server-id=1",
            "--binlog-format=ROW",
            f"--sync-binlog={needs.binlog}",
            f"--max-binlog-size={needs.binlog_mb * MIB}",
            "--expire-logs-days=0",
        ]
    return [*options, *needs.options]
