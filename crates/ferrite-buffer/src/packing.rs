//! How the pages of each index are to be packed when they are written, and whether it pays.
//!
//! A setting is a wish for pages to come: pages of an index that were written before keep what they
//! have, and each blob says for itself how it is packed. So a change needs neither a lock on pages
//! nor a record in the log, and what a restart does not know yet is packed as the pool's default.
//!
//! Invariant: an index whose pages did not get smaller several times in a row is tried only now and
//! then, until one does.
//!
//! Locking: `by_index` is a leaf, for reading on each page written (background threads only).

use ferrite_sync::atomic::{AtomicU32, Ordering};
use ferrite_sync::{Arc, RwLock};
use ferrite_types::format::{Codec, Packing};
use ferrite_types::IndexId;
use std::collections::HashMap;

/// So many pages in a row that did not get smaller are enough.
const VAIN_MOST: u32 = 16;
/// From then on one page of so many is tried.
const TRY_EVERY: u32 = 32;

/// The setting of one index, and how it went.
pub(crate) struct IndexPacking {
    packing: Packing,
    /// Attempts in vain since the last page that got smaller.
    vain: AtomicU32,
    /// Pages that were not tried.
    skipped: AtomicU32,
}

impl IndexPacking {
    fn new(packing: Packing) -> IndexPacking {
        IndexPacking {
            packing,
            vain: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
        }
    }

    /// What to try with the next page.
    pub(crate) fn next(&self) -> Packing {
        let vain = self.vain.load(Ordering::Relaxed);
        if vain < VAIN_MOST || self.packing.codec == Codec::None {
            return self.packing;
        }
        let skipped = self.skipped.fetch_add(1, Ordering::Relaxed) + 1;
        match skipped % TRY_EVERY {
            0 => self.packing,
            _ => Packing::NONE,
        }
    }

    /// What came of it. True: an attempt in vain.
    pub(crate) fn note(&self, tried: Packing, smaller: bool) -> bool {
        if tried.codec == Codec::None {
            assert!(!smaller, "a page got smaller by itself");
            return false;
        }
        if smaller {
            self.vain.store(0, Ordering::Relaxed);
        } else if self.vain.load(Ordering::Relaxed) < VAIN_MOST {
            self.vain.fetch_add(1, Ordering::Relaxed);
        }
        !smaller
    }
}

/// The settings of all indexes.
pub(crate) struct Packings {
    others: Arc<IndexPacking>,
    by_index: RwLock<HashMap<IndexId, Arc<IndexPacking>>>,
}

impl Packings {
    /// Indexes without a setting are packed like that.
    pub(crate) fn new(others: Packing) -> Packings {
        Packings {
            others: Arc::new(IndexPacking::new(others)),
            by_index: RwLock::new(HashMap::new()),
        }
    }

    pub(crate) fn set(&self, index: IndexId, packing: Packing) {
        let mut by_index = self.by_index.write();
        // What was learnt of an index stays, if nothing changes.
        if by_index.get(&index).is_none_or(|p| p.packing != packing) {
            by_index.insert(index, Arc::new(IndexPacking::new(packing)));
        }
    }

    pub(crate) fn forget(&self, index: IndexId) {
        self.by_index.write().remove(&index);
    }

    pub(crate) fn of(&self, index: IndexId) -> Arc<IndexPacking> {
        let by_index = self.by_index.read();
        by_index.get(&index).unwrap_or(&self.others).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_pay_is_seldom_tried() {
        let packings = Packings::new(Packing::NONE);
        let lz4 = Packing::of(Codec::Lz4);
        packings.set(IndexId(7), lz4);
        assert_eq!(packings.of(IndexId(8)).next(), Packing::NONE);
        let of = packings.of(IndexId(7));
        let tried = |smaller| {
            let next = of.next();
            of.note(next, smaller && next == lz4);
            next == lz4
        };
        let count = |smaller| (0..320).filter(|_| tried(smaller)).count();
        assert_eq!(count(true), 320);
        assert_eq!(count(false), 16 + (320 - 16) / 32);
        // The first success ends it.
        assert!(count(true) > 250);
        // Setting the same again forgets nothing; another setting begins anew.
        assert_eq!(count(false), 16 + (320 - 16) / 32);
        packings.set(IndexId(7), lz4);
        assert!((0..20).any(|_| packings.of(IndexId(7)).next() == Packing::NONE));
        packings.set(IndexId(7), Packing::of(Codec::Zstd));
        assert_eq!(packings.of(IndexId(7)).next().codec, Codec::Zstd);
        packings.forget(IndexId(7));
        assert_eq!(packings.of(IndexId(7)).next(), Packing::NONE);
    }
}
