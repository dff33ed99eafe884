//! From where on somebody needs the log, whatever checkpoints need.
//!
//! Locking: none, one word.

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_types::Lsn;

/// One more than the position; 0: no log is kept.
#[derive(Default)]
pub(crate) struct LogFloor(AtomicU64);

impl LogFloor {
    /// Log from that position on is kept; None: no longer.
    pub(crate) fn keep_from(&self, from: Option<Lsn>) {
        assert!(from != Some(Lsn::MAX), "log that is never written is kept");
        self.0
            .store(from.map_or(0, |at| at.0 + 1), Ordering::SeqCst);
    }

    /// Where the log is kept from.
    pub(crate) fn kept_from(&self) -> Option<Lsn> {
        self.0.load(Ordering::SeqCst).checked_sub(1).map(Lsn)
    }
}
