//! Counters of the engine itself; the parts below have their own.
//!
//! Locking: none.

use ferrite_sync::Counter;

/// Counters of the engine itself; the parts below have their own.
#[derive(Default)]
pub(crate) struct Counters {
    pub commits: Counter,
    pub rollbacks: Counter,
    pub rows_inserted: Counter,
    pub rows_updated: Counter,
    pub rows_deleted: Counter,
    pub checkpoints: Counter,
    pub recovery_ms: Counter,
    pub recovery_log_bytes: Counter,
    pub recovery_pages_redone: Counter,
    pub recovery_pages_read: Counter,
    /// Pages read after the start because they were in memory before.
    pub warmed: Counter,
    pub throttled: Counter,
}
