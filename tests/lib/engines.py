"""The storage engines a test can put side by side, and the options that make them comparable."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Engine:
    """How one engine is loaded, and what its common options are called."""

    name: str
    """The word after ENGINE=."""
    prefix: str
    """First word of its system variables."""
    plugin: str | None = None
    """File to load with --plugin-load-add, if it is not built in."""
    transactional: bool = True
    extra: tuple[str, ...] = ()
    """Options that every test wants."""
    pool_option: str = ""
    flush_values: dict[int, str] = field(default_factory=dict)

    def pool(self, size: str) -> str:
        """The option that sets the size of the main cache."""
        return f"--loose-{self.pool_option}={size}"

    def flush(self, level: int) -> str:
        """The option for durability: 1 each commit, 2 to the system, 0 once a second."""
        return f"--loose-{self.prefix}_flush_log_at_trx_commit={level}"

    def lock_wait(self, seconds: int) -> str:
        """The option for the longest wait for a row lock."""
        return f"--loose-{self.prefix}_lock_wait_timeout={seconds}"


ENGINES = {
    "innodb": Engine("InnoDB", "innodb", pool_option="innodb_buffer_pool_size"),
    "ferrite": Engine("FERRITE", "ferrite", "ha_ferrite.so", pool_option="ferrite_buffer_pool_size"),
    "rocksdb": Engine("ROCKSDB", "rocksdb", "ha_rocksdb.so", pool_option="rocksdb_block_cache_size"),
    "aria": Engine("Aria", "aria", transactional=False, pool_option="aria_pagecache_buffer_size"),
    "myisam": Engine("MyISAM", "myisam", transactional=False, pool_option="key_buffer_size"),
}


def engine(name: str) -> Engine:
    """Look an engine up by its lower-case name."""
    try:
        return ENGINES[name.lower()]
    except KeyError:
        raise SystemExit(f"unknown engine {name!r}: one of {', '.join(ENGINES)}") from None
