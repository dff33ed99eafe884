//! Memory of history that nothing else makes less has an end.
//!
//! Versions beyond the history ring go to scratch files. Where they cannot (no space, an error),
//! they stay in memory, and so do the deleted entries that only old snapshots need, always. Both
//! together may exceed the ring by as much again, or by [`LEAST_BEYOND`] if that is more. Beyond
//! that the oldest snapshot ends (its reader gets `SnapshotTooOld`), one after another until
//! there is room. What is left then is what running transactions have changed: while it cannot
//! be written out, whoever changes more rows gets `DiskFull`.
//!
//! Locking: none of its own; the history thread alone calls it.

use crate::callbacks::LogLevel;
use crate::engine::Engine;
use ferrite_sync::atomic::Ordering;

/// Memory beyond the ring that history may always take (bytes).
const LEAST_BEYOND: u64 = 256 << 20;

impl Engine {
    /// Memory at which snapshots end: see the head of the file.
    fn history_memory_limit(&self) -> u64 {
        let ring = self.config.history_ring_bytes;
        let beyond = match self.config.history_beyond_ring_bytes {
            0 => ring.max(LEAST_BEYOND),
            bytes => bytes,
        };
        ring.saturating_add(beyond)
    }

    /// Counting the deleted entries takes a look at every open table: between two rounds of sweeping
    /// only when there were many.
    pub(crate) fn is_worth_counting(&self, graves: u64) -> bool {
        graves > self.history_memory_limit() / 8
    }

    /// `graves`: memory of deleted entries, as of a moment ago.
    fn is_history_beyond(&self, graves: u64) -> bool {
        self.versions.stuck_bytes() + graves > self.history_memory_limit()
    }

    /// Ends snapshots until the memory of history is within its limit; says whether writers must
    /// stop. `graves` as above; `look`: it is worth a look at all versions although none ended.
    pub(crate) fn limit_history_memory(&self, graves: u64, look: bool) {
        if !self.is_history_beyond(graves) {
            self.history_full.store(false, Ordering::Relaxed);
            return;
        }
        if self.history_full.load(Ordering::Relaxed) && !look {
            return;
        }
        let mut most = self.txns.snapshot_count();
        loop {
            self.drop_unneeded_history();
            if !self.is_history_beyond(self.graves().1) {
                self.history_full.store(false, Ordering::Relaxed);
                return;
            }
            // Those opened meanwhile are seen to in the next round.
            let ended = (most > 0).then(|| self.txns.expire_oldest()).flatten();
            let Some(ended) = ended else {
                break;
            };
            most -= 1;
            let text = format!(
                "row versions and deleted rows kept for old snapshots take more than {} MiB of \
                 memory and cannot be written out: the snapshot of connection {} was ended",
                self.history_memory_limit() >> 20,
                ended.info.thread_id
            );
            self.callbacks.log(LogLevel::Warning, &text);
        }
        let full = self.versions.cannot_spill() && self.txns.snapshot_count() == 0;
        if full && !self.history_full.swap(true, Ordering::Relaxed) {
            let text = "row versions of running transactions take the memory there is for them \
                        and cannot be written out: changes of rows are refused until they end";
            self.callbacks.log(LogLevel::Warning, text);
        }
    }

    /// What nobody needs any more goes now.
    pub(crate) fn drop_unneeded_history(&self) {
        self.txns.refresh();
        self.versions.retire(&self.txns);
        self.versions.sweep_old(&self.txns);
        self.sweep_graveyards();
    }
}
