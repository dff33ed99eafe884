//! Counters of waits and deadlocks.
//!
//! Locking: none.

use ferrite_sync::atomic::AtomicU64;
use ferrite_sync::{Counter, Histogram};

/// Counters since the start.
#[derive(Default)]
pub(crate) struct Stats {
    pub waits: Counter,
    pub wait_us: Histogram,
    pub deadlocks: Counter,
    pub timeouts: Counter,
    pub interrupts: Counter,
    pub waiting: AtomicU64,
    /// Entries looked at by walks for deadlocks.
    pub walked: AtomicU64,
}
