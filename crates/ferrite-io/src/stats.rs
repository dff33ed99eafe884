//! Counts of what went through a storage. Relaxed and sharded; exact once it is still.

use ferrite_sync::{Counter, Histogram};

/// Counters of one [`Storage`](crate::Storage).
#[derive(Debug, Default)]
pub struct IoStats {
    /// Read calls.
    pub reads: Counter,
    /// Bytes read.
    pub read_bytes: Counter,
    /// Write calls.
    pub writes: Counter,
    /// Bytes written.
    pub write_bytes: Counter,
    /// Syncs of file data.
    pub syncs: Counter,
    /// Syncs of the directory.
    pub dir_syncs: Counter,
    /// How long the syncs of file data took, in microseconds.
    pub sync_us: Histogram,
    /// How long the reads took, in microseconds.
    pub read_us: Histogram,
    /// How long the writes took, in microseconds.
    pub write_us: Histogram,
}

impl IoStats {
    /// All zero.
    pub fn new() -> IoStats {
        IoStats::default()
    }
}
