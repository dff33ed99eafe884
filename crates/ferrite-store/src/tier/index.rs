//! Which pages are in the second tier, and where.
//!
//! Invariant: `pages` is the number of entries in all shards.
//! Locking: one mutex a shard, also over the change of `pages`; leaves.

use ferrite_types::PageId;
use std::collections::HashMap;

use crate::deps::{AtomicU64, Mutex, Ordering};
use crate::word::Location;

/// A power of two.
const SHARDS: usize = 64;
const _: () = assert!(SHARDS.is_power_of_two());

/// A page's blob in the second tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// Where the blob is in the store.
    pub(super) at: Location,
    /// Its first granule in the ring.
    pub(super) place: u32,
}

/// See the head of the file.
pub(super) struct Index {
    shards: [Mutex<HashMap<u32, Entry>>; SHARDS],
    pages: AtomicU64,
}

impl Default for Index {
    fn default() -> Self {
        Index {
            shards: std::array::from_fn(|_| Mutex::new(HashMap::new())),
            pages: AtomicU64::new(0),
        }
    }
}

impl Index {
    fn shard(&self, page: PageId) -> &Mutex<HashMap<u32, Entry>> {
        &self.shards[page.0 as usize % SHARDS]
    }

    pub(super) fn get(&self, page: PageId) -> Option<Entry> {
        self.shard(page).lock().get(&page.0).copied()
    }

    pub(super) fn put(&self, page: PageId, entry: Entry) {
        debug_assert!(page != PageId::NONE, "no page");
        let mut shard = self.shard(page).lock();
        if shard.insert(page.0, entry).is_none() {
            self.pages.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn forget(&self, page: PageId) {
        self.forget_if(page, |_| true);
    }

    /// Forgets the page if `it` is so.
    pub(super) fn forget_if(&self, page: PageId, it: impl FnOnce(Entry) -> bool) {
        let mut shard = self.shard(page).lock();
        let is_so = shard.get(&page.0).is_some_and(|entry| it(*entry));
        if is_so {
            shard.remove(&page.0);
            let before = self.pages.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "more pages leave than came");
        }
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let gone = std::mem::take(&mut *shard);
            self.pages.fetch_sub(gone.len() as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed) as usize
    }

    /// All of them, in no order.
    pub(super) fn all(&self) -> Vec<(PageId, Entry)> {
        let mut all = Vec::with_capacity(self.pages());
        for shard in &self.shards {
            all.extend(shard.lock().iter().map(|(page, e)| (PageId(*page), *e)));
        }
        all
    }

    /// An estimate, in bytes: a table of entries is at most seven eighths full, with a byte for each place.
    pub(super) fn memory_bytes(&self) -> usize {
        let of = |shard: &Mutex<HashMap<u32, Entry>>| shard.lock().capacity() * 8 / 7;
        let places: usize = self.shards.iter().map(of).sum();
        places * (size_of::<(u32, Entry)>() + 1)
    }
}
