//! What all shards count together, and how a key is named to them.
//!
//! Invariants: bytes and locks in sets are given back as they were taken; a gap lock counts for its
//! index from before it is seen until after it is gone.
//!
//! Locking: atomics alone.

use ferrite_sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use ferrite_types::{Error, IndexId, Result};

/// Counters of gap locks, by index modulo this. A model has one: loom looks at each.
const GAP_COUNTERS: usize = if cfg!(loom) { 1 } else { 4096 };

/// Counters over all shards.
pub(crate) struct Tally {
    /// Entries (granted or waiting) with a gap part, by index.
    gaps: Box<[AtomicU32]>,
    /// Memory in use and its limit.
    pub bytes: AtomicUsize,
    pub limit_bytes: usize,
    /// Locks in sets.
    kept: AtomicU64,
    /// An owner of so many locks gets record locks in sets.
    pub sets_after: u64,
}

impl Tally {
    pub fn new(limit_bytes: usize, sets_after: u64) -> Tally {
        Tally {
            gaps: (0..GAP_COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            bytes: AtomicUsize::new(0),
            limit_bytes,
            kept: AtomicU64::new(0),
            sets_after,
        }
    }

    pub fn keep(&self, locks: u64) {
        self.kept.fetch_add(locks, Ordering::Relaxed);
    }

    pub fn unkeep(&self, locks: u64) {
        let before = self.kept.fetch_sub(locks, Ordering::Relaxed);
        debug_assert!(before >= locks, "{locks} locks of {before} leave sets");
    }

    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    fn gap(&self, index: IndexId) -> &AtomicU32 {
        &self.gaps[index.get() as usize % GAP_COUNTERS]
    }

    pub fn has_gaps(&self, index: IndexId) -> bool {
        self.gap(index).load(Ordering::Acquire) != 0
    }

    pub fn count_gap(&self, index: IndexId) {
        self.gap(index).fetch_add(1, Ordering::Release);
    }

    pub fn uncount_gap(&self, index: IndexId) {
        let before = self.gap(index).fetch_sub(1, Ordering::Release);
        debug_assert!(
            before > 0,
            "a gap lock on {index:?} goes that was not counted"
        );
    }

    pub fn take(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub fn give(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "{bytes} bytes of {before} are given back");
    }

    pub fn check_room(&self) -> Result<()> {
        if self.bytes.load(Ordering::Relaxed) >= self.limit_bytes {
            return Err(Error::LockTableFull);
        }
        Ok(())
    }
}

/// A key with its hash.
#[derive(Clone, Copy)]
pub(crate) struct KeyRef<'a> {
    pub hash: u64,
    pub index: IndexId,
    pub key: &'a [u8],
}
