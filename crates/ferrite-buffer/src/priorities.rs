//! Which indexes' pages stay in memory longer than others', and which shorter.
//!
//! The hand of the clock asks here; who uses a page does not. A page of high priority is cooled by one
//! pass of the hand in [`SLOWER`], one of low priority goes if it was not used since the last pass.
//! Like the packing of an index this is a wish for the pool of this process: nothing of it is logged.
//!
//! Invariant: pages of high priority are favoured only while the hand met no more than half of the
//! frames with such pages in its last pass: the others always have frames that become free. Dirty pages
//! count when the writer moves the hand, who looks for a clean one does not see them.
//!
//! Locking: `by_index` is a leaf, for reading at each step of the hand while any index has a priority.

use ferrite_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ferrite_sync::RwLock;
use ferrite_types::format::CachePriority;
use ferrite_types::IndexId;
use std::collections::HashMap;

/// The hand passes a page of high priority so many times before it counts once.
const SLOWER: usize = 8;

/// The priorities of all indexes.
pub(crate) struct Priorities {
    /// An index has one that is not normal.
    any: AtomicBool,
    by_index: RwLock<HashMap<IndexId, CachePriority>>,
    /// Frames of high priority that the hand has met in this pass.
    high_met: AtomicUsize,
    /// In the last pass they were more than half.
    crowded: AtomicBool,
}

impl Priorities {
    pub(crate) fn new() -> Priorities {
        Priorities {
            any: AtomicBool::new(false),
            by_index: RwLock::new(HashMap::new()),
            high_met: AtomicUsize::new(0),
            crowded: AtomicBool::new(false),
        }
    }

    /// One index is set by one thread at a time: with the dictionary locked, or when nobody has it any more.
    pub(crate) fn set(&self, index: IndexId, priority: CachePriority) {
        // At a start that is so for each index of each table.
        if priority == CachePriority::Normal && !self.any() {
            return;
        }
        let mut by_index = self.by_index.write();
        match priority {
            CachePriority::Normal => by_index.remove(&index),
            _ => by_index.insert(index, priority),
        };
        self.any.store(!by_index.is_empty(), Ordering::Relaxed);
    }

    pub(crate) fn forget(&self, index: IndexId) {
        self.set(index, CachePriority::Normal);
    }

    /// Does any index have one? A hint, and all that a pool without priorities pays.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    pub(crate) fn of(&self, index: IndexId) -> CachePriority {
        let by_index = self.by_index.read();
        by_index.get(&index).copied().unwrap_or_default()
    }

    /// The hand is at frame `f`, which has a page of high priority, in that pass: does this pass
    /// leave it alone? Neighbouring frames have their turns in different passes.
    pub(crate) fn is_spared(&self, f: u32, pass: usize) -> bool {
        self.high_met.fetch_add(1, Ordering::Relaxed);
        let its_turn = pass.wrapping_add(f as usize) % SLOWER == 0;
        !its_turn && !self.crowded.load(Ordering::Relaxed)
    }

    /// The hand is at the first frame again.
    #[cold]
    pub(crate) fn end_pass(&self, frames: usize) {
        debug_assert!(frames > 0, "a pool without frames");
        let met = self.high_met.swap(0, Ordering::Relaxed);
        self.crowded.store(met > frames / 2, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use crate::read_ahead::tests::new_leaf_of;
    use crate::write_tests::pool_on;
    use ferrite_io::sim::SimStorage;
    use ferrite_types::{Lsn, PageId};

    /// Pages of an index that were used more than once, clean.
    fn hot_pages(pool: &Pool, index: u32, count: u8) -> Vec<PageId> {
        let new = |n| new_leaf_of(pool, IndexId(index), n);
        let pages: Vec<PageId> = (0..count).map(new).collect();
        pool.flush_all_below(Lsn::MAX).unwrap();
        for page in &pages {
            let frame = pool.store().directory().get(*page).as_frame().unwrap();
            pool.frame(frame).touch();
        }
        pages
    }

    fn turn_hand(pool: &Pool, passes: usize) {
        for _ in 0..passes * pool.frame_count() {
            if let Some(f) = pool.evict_at_hand() {
                pool.give_back(f);
            }
        }
    }

    #[test]
    fn low_goes_first_and_high_last() {
        let pool = pool_on(&SimStorage::new(1));
        let [normal, low, high] = [21, 22, 23].map(|index| hot_pages(&pool, index, 16));
        pool.set_cache_priority(IndexId(22), CachePriority::Low);
        pool.set_cache_priority(IndexId(23), CachePriority::High);
        let here = |pages: &[PageId]| pages.iter().filter(|page| !pool.is_away(**page)).count();
        turn_hand(&pool, 2);
        assert_eq!([&normal, &low, &high].map(|p| here(p)), [16, 0, 16]);
        turn_hand(&pool, 6);
        assert_eq!([&normal, &high].map(|p| here(p)), [0, 16]);
        turn_hand(&pool, 16);
        assert_eq!(here(&high), 0, "nothing stays for ever");
    }

    #[test]
    fn a_pool_full_of_high_priority_is_one_of_normal_priority() {
        let pool = pool_on(&SimStorage::new(1));
        let most = (pool.frame_count() * 3 / 4).min(255) as u8;
        let high = hot_pages(&pool, 23, most);
        pool.set_cache_priority(IndexId(23), CachePriority::High);
        turn_hand(&pool, 6);
        assert!(high.iter().all(|page| pool.is_away(*page)));
    }

    #[test]
    fn only_what_is_not_normal_is_kept() {
        let all = Priorities::new();
        assert!(!all.any());
        all.set(IndexId(7), CachePriority::High);
        all.set(IndexId(8), CachePriority::Low);
        assert!(all.any());
        assert_eq!(all.of(IndexId(7)), CachePriority::High);
        assert_eq!(all.of(IndexId(9)), CachePriority::Normal);
        all.set(IndexId(7), CachePriority::Normal);
        all.forget(IndexId(8));
        assert!(!all.any() && all.by_index.read().is_empty());
    }

    #[test]
    fn more_than_half_of_the_pool_is_not_spared() {
        let all = Priorities::new();
        let spared = |high: u32, pass: usize| (0..high).filter(|f| all.is_spared(*f, pass)).count();
        assert_eq!(spared(64, 1), 56);
        all.end_pass(128);
        assert_eq!(spared(65, 2), 57, "half of the frames is allowed");
        all.end_pass(128);
        assert_eq!(spared(65, 3), 0);
        all.end_pass(128);
        assert_eq!(spared(10, 4), 0);
        all.end_pass(128);
        assert!(spared(10, 5) > 7, "they have become fewer");
    }
}
