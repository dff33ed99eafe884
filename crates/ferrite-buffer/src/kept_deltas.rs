//! Deltas of leaves that are not in memory: the changes that such a page has on disk beside its blob, kept so
//! that whoever reads the page reads the blob alone.
//!
//! Without this a page with a delta costs two reads at each miss. A delta is a few hundred bytes, its page
//! sixteen thousand: memory that held one page more holds the deltas of dozens.
//!
//! # Invariants
//! 1. What is kept is on disk, too, at the place that is kept with it: it may be dropped at any time.
//! 2. It counts for a reader who has claimed the page only if the directory names that place, and only for the blob
//!    that it names by position and checksum.
//! 3. All of them take no more than the limit. What has no room makes room where the hand stands: which pages are
//!    read next is not known.
//!
//! # Locking
//! Frame latch > a shard here. Nothing is taken under a shard.

use ferrite_store::{Location, StoredBlob};
use ferrite_sync::atomic::{AtomicUsize, Ordering};
use ferrite_sync::{Counter, Mutex};
use ferrite_types::{Lsn, PageId};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Locks of their own for the pages whose ids have the same remainder.
const SHARDS: usize = 64;
/// Part of the pool's memory that may be used beside it.
const SHARE: usize = 8;
/// What a page costs here beside its changes, in bytes: its place in the tree of pages.
const PAGE_COST_BYTES: usize = 112;
/// Pages that one who has something to keep drops for it at the most.
const STEPS: usize = 16;

/// One page's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeptDelta {
    /// Where the delta is.
    pub(crate) at: Location,
    /// The page's position with the changes.
    pub(crate) lsn: Lsn,
    /// The blob that they belong to.
    pub(crate) base: StoredBlob,
    pub(crate) changes: Box<[u8]>,
}

impl KeptDelta {
    fn cost_bytes(&self) -> usize {
        PAGE_COST_BYTES + self.changes.len()
    }
}

#[derive(Default)]
struct Shard {
    pages: BTreeMap<PageId, KeptDelta>,
    /// Of `pages`.
    bytes: usize,
    hand: PageId,
}

impl Shard {
    fn take(&mut self, page: PageId) -> Option<KeptDelta> {
        let kept = self.pages.remove(&page)?;
        assert!(kept.cost_bytes() <= self.bytes, "{} bytes", self.bytes);
        self.bytes -= kept.cost_bytes();
        Some(kept)
    }

    /// Drops the page behind the hand. False: there is none.
    fn drop_one(&mut self) -> bool {
        let beyond = (Bound::Excluded(self.hand), Bound::Unbounded);
        let next = self.pages.range(beyond).next();
        let Some((&page, _)) = next.or_else(|| self.pages.first_key_value()) else {
            return false;
        };
        self.hand = page;
        self.take(page).is_some()
    }
}

/// See the head of the file.
pub(crate) struct KeptDeltas {
    shards: Box<[Mutex<Shard>]>,
    bytes: AtomicUsize,
    limit_bytes: AtomicUsize,
    /// Reads that were spared.
    pub(crate) hits: Counter,
}

impl KeptDeltas {
    pub(crate) fn new(pool_bytes: usize) -> KeptDeltas {
        KeptDeltas {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            bytes: AtomicUsize::new(0),
            limit_bytes: AtomicUsize::new(pool_bytes / SHARE),
            hits: Counter::default(),
        }
    }

    /// The pool has another size. What is beyond its new share goes as others come.
    pub(crate) fn resize(&self, pool_bytes: usize) {
        assert!(pool_bytes > 0, "a pool without memory");
        self.limit_bytes
            .store(pool_bytes / SHARE, Ordering::Relaxed);
    }

    /// Most bytes, beside the pool's.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn shard_of(&self, page: PageId) -> &Mutex<Shard> {
        &self.shards[page.0 as usize % SHARDS]
    }

    /// The page leaves memory; its exclusive latch is held.
    pub(crate) fn put(&self, page: PageId, kept: KeptDelta) {
        assert!(kept.at.is_delta() && kept.base.lsn < kept.lsn, "{page}");
        let (cost, limit) = (kept.cost_bytes(), self.limit_bytes() / SHARDS);
        let mut shard = self.shard_of(page).lock();
        let before = shard.bytes;
        let _ = shard.take(page);
        for _ in 0..STEPS {
            if shard.bytes + cost <= limit || !shard.drop_one() {
                break;
            }
        }
        if shard.bytes + cost <= limit {
            shard.bytes += cost;
            shard.pages.insert(page, kept);
        }
        self.count(before, shard.bytes);
    }

    /// The changes of the page, which is claimed by its reader; its delta is at `at`.
    pub(crate) fn take(&self, page: PageId, at: Location) -> Option<KeptDelta> {
        if at.is_none() && self.bytes() == 0 {
            return None;
        }
        let kept = self.remove(page).filter(|kept| kept.at == at)?;
        debug_assert!(!kept.changes.is_empty(), "{page}: a delta of nothing");
        self.hits.inc();
        Some(kept)
    }

    /// The page is in memory after all, or is no more.
    pub(crate) fn forget(&self, page: PageId) {
        if self.bytes() > 0 {
            let _ = self.remove(page);
        }
    }

    fn remove(&self, page: PageId) -> Option<KeptDelta> {
        let mut shard = self.shard_of(page).lock();
        let before = shard.bytes;
        let kept = shard.take(page);
        self.count(before, shard.bytes);
        kept
    }

    /// A shard's bytes were `before` and are `after`: its lock is held.
    fn count(&self, before: usize, after: usize) {
        match after >= before {
            true => self.bytes.fetch_add(after - before, Ordering::Relaxed),
            false => self.bytes.fetch_sub(before - after, Ordering::Relaxed),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(at: u64, len: usize) -> KeptDelta {
        KeptDelta {
            at: Location::delta_for_tests(at),
            lsn: Lsn(9),
            base: StoredBlob {
                lsn: Lsn(7),
                crc: 1,
            },
            changes: vec![3; len].into(),
        }
    }

    #[test]
    fn a_delta_counts_at_its_place_once() {
        let deltas = KeptDeltas::new(SHARE * SHARDS * 1000);
        let page = PageId(5);
        deltas.put(page, kept(3, 100));
        assert_eq!(deltas.bytes(), PAGE_COST_BYTES + 100);
        assert_eq!(deltas.take(PageId(6), kept(3, 100).at), None);
        assert_eq!(deltas.take(page, kept(3, 1).at), Some(kept(3, 100)));
        assert_eq!(deltas.take(page, kept(3, 1).at), None, "taken");
        deltas.put(page, kept(3, 100));
        assert_eq!(deltas.take(page, kept(4, 1).at), None, "an older one");
        deltas.put(page, kept(3, 100));
        deltas.put(page, kept(4, 50));
        assert_eq!(deltas.bytes(), PAGE_COST_BYTES + 50);
        assert!(deltas.take(page, kept(4, 1).at).is_some());
        deltas.put(page, kept(4, 50));
        assert_eq!(deltas.take(page, Location::NONE), None, "it has none");
        assert_eq!(deltas.bytes(), 0);
    }

    #[test]
    fn they_take_no_more_than_the_limit() {
        let deltas = KeptDeltas::new(SHARE * SHARDS * 1000);
        let pages = (0..100).map(|n| PageId(n * SHARDS as u32 + 1));
        for page in pages.clone() {
            deltas.put(page, kept(u64::from(page.0), 100));
            assert!(deltas.bytes() <= 1000);
        }
        let there = |page: &PageId| deltas.take(*page, kept(u64::from(page.0), 1).at).is_some();
        assert_eq!(pages.filter(there).count(), 1000 / (PAGE_COST_BYTES + 100));
        deltas.put(PageId(1), kept(1, 100));
        deltas.resize(SHARE);
        deltas.put(PageId(65), kept(65, 100));
        assert_eq!(deltas.bytes(), 0, "the limit is nothing now");
    }
}
