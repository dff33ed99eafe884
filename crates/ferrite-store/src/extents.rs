//! Page ids: extents of 64 ids belong to indexes; an index hands out its own ids.
//!
//! Invariants: an extent is either in the pool (below `next` and in `free`, or at or above
//! `next`) or in the list of exactly the index that the directory names as its owner; an id
//! in an index's free list has directory word 0; extent 0 belongs to the dictionary
//! (index 1), so that its first page is page 1; id 0 is never handed out.
//!
//! Locking: one mutex per shard of indexes, then the pool's mutex. The extent's log record
//! is appended under the shard's mutex.

use std::collections::{BTreeMap, BTreeSet};

use ferrite_types::{Error, IndexId, PageId, Result};

use crate::delta::{encode_extent, ExtentChange};
use crate::deps::{Mutex, Ordering};
use crate::directory::{pages_of_extent, Directory, EXTENT_PAGES};
use crate::word::{Location, Word};

const SHARDS: usize = 16;

/// The dictionary: owner of extent 0.
pub(crate) const DICTIONARY: IndexId = IndexId(1);

const LAST_EXTENT: u32 = u32::MAX / EXTENT_PAGES;

/// Extents that changes of rows leave to rollback, purge and the dictionary, which must not fail.
const RESERVED_EXTENTS: u32 = 4096;

/// Extents that go back to the pool under one hold of its lock: an index may have a million.
const RELEASE_BATCH: usize = 1024;

/// What an index has.
#[derive(Default)]
struct Owned {
    extents: Vec<u32>,
    /// Unused ids; the next one to hand out is last.
    free: Vec<u32>,
    in_use: u64,
}

impl Owned {
    /// Every id of its extents is either in use or unused.
    fn is_sound(&self) -> bool {
        let ids = self.extents.len() as u64 * u64::from(EXTENT_PAGES);
        ids - u64::from(self.extents.contains(&0)) == self.in_use + self.free.len() as u64
    }
}

struct Pool {
    free: BTreeSet<u32>,
    next: u32,
}

pub(crate) struct Extents {
    shards: Vec<Mutex<BTreeMap<IndexId, Owned>>>,
    pool: Mutex<Pool>,
}

impl Extents {
    pub(crate) fn new() -> Extents {
        Extents {
            shards: (0..SHARDS).map(|_| Mutex::new(BTreeMap::new())).collect(),
            pool: Mutex::new(Pool {
                free: BTreeSet::new(),
                next: 0,
            }),
        }
    }

    fn shard(&self, index: IndexId) -> &Mutex<BTreeMap<IndexId, Owned>> {
        &self.shards[index.0 as usize % SHARDS]
    }

    /// Rebuilds all lists from the directory: owners, and words that are 0.
    pub(crate) fn rebuild(&self, dir: &Directory) {
        let mut lists: BTreeMap<IndexId, Owned> = BTreeMap::new();
        let mut free = BTreeSet::new();
        for extent in 0..dir.extents() {
            let owner = dir.extent_owner(extent);
            if owner.0 == 0 {
                free.insert(extent);
                continue;
            }
            let owned = lists.entry(owner).or_default();
            owned.extents.push(extent);
            for page in pages_of_extent(extent) {
                if dir.get(page).is_free() {
                    owned.free.push(page.0);
                } else {
                    owned.in_use += 1;
                }
            }
        }
        self.shards.iter().for_each(|s| s.lock().clear());
        for (index, mut owned) in lists {
            debug_assert!(owned.is_sound(), "ids of index {index}");
            owned.free.reverse();
            self.shard(index).lock().insert(index, owned);
        }
        let mut pool = self.pool.lock();
        pool.free = free;
        pool.next = dir.extents();
        assert!(pool.next <= LAST_EXTENT + 1, "{} extents", pool.next);
    }

    /// An unused id of the index; a new extent's owner is set before it is logged, so that
    /// a map dump that starts after the record cannot miss it.
    pub(crate) fn alloc(
        &self,
        dir: &Directory,
        index: IndexId,
        log_extent: &mut dyn FnMut(&[u8]),
    ) -> PageId {
        assert!(index.0 != 0, "index 0 owns no pages");
        let mut shard = self.shard(index).lock();
        let owned = shard.entry(index).or_default();
        if owned.free.is_empty() {
            let extent = self.take_extent();
            let owner = dir.extent_owner(extent);
            assert!(owner.0 == 0, "extent {extent} belongs to {owner}");
            dir.set_extent_owner(extent, index);
            log_extent(&encode_extent(ExtentChange::Assign { index, extent }));
            owned.extents.push(extent);
            owned
                .free
                .extend(pages_of_extent(extent).rev().map(|p| p.0));
        }
        let page = owned.free.pop().map(PageId);
        let page = page.unwrap_or_else(|| unreachable!("an extent has ids"));
        owned.in_use += 1;
        debug_assert!(owned.is_sound(), "ids of index {index}");
        assert!(
            page.0 != 0 && dir.owner(page) == index,
            "{page} for {index}"
        );
        let word = dir.get(page);
        assert!(
            word.is_free(),
            "unused page {page} of index {index} has word {word:?}"
        );
        page
    }

    /// Are there ids for so many more pages, without the reserve?
    pub(crate) fn check_room(&self, pages: usize) -> Result<()> {
        let left = {
            let pool = self.pool.lock();
            // One extent beyond the last is 0 more.
            pool.free.len() as u64 + u64::from((LAST_EXTENT + 1).saturating_sub(pool.next))
        };
        let needed = pages.div_ceil(EXTENT_PAGES as usize) as u64 + u64::from(RESERVED_EXTENTS);
        if left < needed {
            return Err(Error::DiskFull(format!(
                "nearly all 2^32 page ids are in use: {left} extents of {EXTENT_PAGES} are left, \
                 of which {RESERVED_EXTENTS} are reserved"
            )));
        }
        Ok(())
    }

    fn take_extent(&self) -> u32 {
        let mut pool = self.pool.lock();
        let last = pool.free.last().copied();
        assert!(
            last.is_none_or(|e| e < pool.next),
            "{last:?} was never taken"
        );
        if let Some(extent) = pool.free.pop_first() {
            return extent;
        }
        let extent = pool.next;
        assert!(extent <= LAST_EXTENT, "all page ids are in use");
        pool.next += 1;
        extent
    }

    pub(crate) fn unused(&self, dir: &Directory, page: PageId) {
        let index = dir.owner(page);
        let mut shard = self.shard(index).lock();
        let Some(owned) = shard.get_mut(&index) else {
            panic!("page {page} is given back but belongs to no index");
        };
        assert!(page.0 != 0, "page 0 is given back");
        debug_assert!(dir.get(page).is_free(), "page {page} is still somewhere");
        let mut latest = owned.free.iter().rev().take(EXTENT_PAGES as usize);
        debug_assert!(latest.all(|p| *p != page.0), "{page} is given back twice");
        assert!(owned.in_use > 0, "index {index} has no page in use");
        owned.free.push(page.0);
        owned.in_use -= 1;
        debug_assert!(owned.is_sound(), "ids of index {index}");
    }

    pub(crate) fn count(&self, index: IndexId) -> u64 {
        self.shard(index)
            .lock()
            .get(&index)
            .map_or(0, |owned| owned.in_use)
    }

    pub(crate) fn pages(&self, dir: &Directory, index: IndexId) -> Vec<PageId> {
        let mut all = Vec::new();
        self.each_page(dir, index, EXTENT_PAGES as usize, &mut |pages| {
            all.extend_from_slice(pages);
        });
        debug_assert!(all.is_sorted(), "{index}: out of order");
        all
    }

    /// Calls `each` with the index's pages, ascending, at most `most` at a time. No lock is held then.
    pub(crate) fn each_page(
        &self,
        dir: &Directory,
        index: IndexId,
        most: usize,
        each: &mut dyn FnMut(&[PageId]),
    ) {
        assert!(
            most >= EXTENT_PAGES as usize,
            "{most} are less than an extent"
        );
        let mut extents = match self.shard(index).lock().get(&index) {
            Some(owned) => owned.extents.clone(),
            None => return,
        };
        extents.sort_unstable();
        let mut pages = Vec::new();
        for extents in extents.chunks(most / EXTENT_PAGES as usize) {
            let ids = extents.iter().copied().flat_map(pages_of_extent);
            pages.extend(ids.filter(|&page| !dir.get(page).is_free()));
            if !pages.is_empty() {
                each(&pages);
                pages.clear();
            }
        }
    }

    /// Gives all extents of the index back to the pool.
    pub(crate) fn release(&self, dir: &Directory, index: IndexId) {
        let Some(owned) = self.shard(index).lock().remove(&index) else {
            return;
        };
        for &extent in &owned.extents {
            let owner = dir.extent_owner(extent);
            assert!(
                owner == index,
                "extent {extent} of {index} belongs to {owner}"
            );
            for page in pages_of_extent(extent) {
                let word = dir.get(page);
                assert!(
                    word.is_free(),
                    "index {index} is released but page {page} has word {word:?}"
                );
            }
            dir.set_extent_owner(extent, IndexId(0));
        }
        for part in owned.extents.chunks(RELEASE_BATCH) {
            let mut pool = self.pool.lock();
            for &extent in part {
                assert!(extent < pool.next, "extent {extent} was never taken");
                let new = pool.free.insert(extent);
                assert!(new, "extent {extent} is given back twice");
            }
        }
    }

    pub(crate) fn indexes(&self) -> Vec<IndexId> {
        let mut all: Vec<IndexId> = Vec::new();
        for shard in &self.shards {
            all.extend(shard.lock().keys().copied());
        }
        all.sort_unstable();
        all
    }
}

/// Replays owners' changes on the directory alone (before [`Extents::rebuild`]).
///
/// Invariant: once there are lists, they have each extent that an index owns, and perhaps some that it owned before:
/// who takes them back asks the directory.
#[derive(Default)]
pub(crate) struct Replay {
    /// The extents of each index, from the first index that is dropped on: a walk over all extents for each took long.
    of: Option<BTreeMap<IndexId, Vec<u32>>>,
}

impl Replay {
    /// Words of the extents concerned become 0: at that moment of the past they were.
    pub(crate) fn change(&mut self, dir: &Directory, change: ExtentChange) {
        match change {
            ExtentChange::Assign { index, extent } => {
                dir.set_extent_owner(extent, index);
                clear_words(dir, extent);
                if let Some(of) = &mut self.of {
                    of.entry(index).or_default().push(extent);
                }
            }
            ExtentChange::TakeBack { index } => {
                let of = self.of.get_or_insert_with(|| extents_of(dir));
                for extent in of.remove(&index).unwrap_or_default() {
                    if dir.extent_owner(extent) == index {
                        clear_words(dir, extent);
                        dir.set_extent_owner(extent, IndexId(0));
                    }
                }
                debug_assert!(
                    dir.extents() > 1024
                        || (0..dir.extents()).all(|e| dir.extent_owner(e) != index),
                    "index {index} keeps an extent"
                );
            }
        }
    }
}

/// The extents of each index, as the directory has them.
fn extents_of(dir: &Directory) -> BTreeMap<IndexId, Vec<u32>> {
    let mut of: BTreeMap<IndexId, Vec<u32>> = BTreeMap::new();
    for extent in 0..dir.extents() {
        let owner = dir.extent_owner(extent);
        if owner.0 != 0 {
            of.entry(owner).or_default().push(extent);
        }
    }
    debug_assert!(of.values().map(Vec::len).sum::<usize>() <= dir.extents() as usize);
    of
}

fn clear_words(dir: &Directory, extent: u32) {
    for page in pages_of_extent(extent) {
        dir.word(page).store(Word::FREE.0, Ordering::Release);
        dir.swap_delta(page, Location::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::decode_extent;

    fn taken(dir: &Directory, page: PageId) {
        dir.word(page).store(Word::resident(1).0, Ordering::Release);
    }

    #[test]
    fn the_first_page_is_the_dictionary() {
        let (dir, ids) = (Directory::new(), Extents::new());
        dir.set_extent_owner(0, DICTIONARY);
        ids.rebuild(&dir);
        let page = ids.alloc(&dir, DICTIONARY, &mut |_| panic!("extent 0 is there"));
        assert_eq!(page, PageId(1));
        let other = ids.alloc(&dir, IndexId(17), &mut |_| ());
        assert_eq!(other, PageId(64));
        assert_eq!(ids.indexes(), [IndexId(1), IndexId(17)]);
    }

    /// The last ids are for those who cannot do without.
    #[test]
    fn a_change_is_refused_before_ids_run_out() {
        let (dir, ids) = (Directory::new(), Extents::new());
        dir.set_extent_owner(0, DICTIONARY);
        ids.rebuild(&dir);
        ids.check_room(1 << 20).unwrap();
        ids.pool.lock().next = LAST_EXTENT - RESERVED_EXTENTS;
        ids.check_room(64).unwrap();
        let refused = ids.check_room(65).unwrap_err();
        assert!(matches!(&refused, Error::DiskFull(text) if text.contains("page ids")));
        ids.pool.lock().next = LAST_EXTENT;
        assert!(ids.check_room(1).is_err());
        let last = ids.alloc(&dir, IndexId(9), &mut |_| ());
        assert_eq!(last.0 / EXTENT_PAGES, LAST_EXTENT);
        // What is given back is used again.
        ids.pool.lock().free.extend(1..=RESERVED_EXTENTS + 1);
        ids.check_room(64).unwrap();
    }

    #[test]
    fn ids_come_back_and_extents_go() {
        let (dir, ids) = (Directory::new(), Extents::new());
        dir.set_extent_owner(0, DICTIONARY);
        ids.rebuild(&dir);
        let mut logged = Vec::new();
        let a = IndexId(5);
        let pages: Vec<PageId> = (0..130)
            .map(|_| {
                let p = ids.alloc(&dir, a, &mut |b| logged.push(b.to_vec()));
                taken(&dir, p);
                p
            })
            .collect();
        assert_eq!(logged.len(), 3);
        assert_eq!((ids.count(a), ids.pages(&dir, a)), (130, pages.clone()));
        dir.word(pages[7]).store(0, Ordering::Release);
        ids.unused(&dir, pages[7]);
        assert_eq!(ids.count(a), 129);
        assert_eq!(ids.alloc(&dir, a, &mut |_| ()), pages[7]);
        // The same lists come from the directory alone.
        taken(&dir, pages[7]);
        let again = Extents::new();
        again.rebuild(&dir);
        assert_eq!((again.count(a), again.pages(&dir, a)), (130, pages.clone()));
        // And the same owners from the log.
        let replayed = Directory::new();
        let mut replay = Replay::default();
        for body in &logged {
            replay.change(&replayed, decode_extent(body).unwrap());
        }
        assert_eq!(replayed.owner(pages[129]), a);
        for p in pages {
            dir.word(p).store(0, Ordering::Release);
        }
        ids.release(&dir, a);
        assert_eq!((ids.count(a), ids.indexes()), (0, vec![DICTIONARY]));
        assert_eq!(ids.alloc(&dir, IndexId(6), &mut |_| ()), PageId(64));
    }

    /// Indexes are dropped and their extents given to others, before and after the lists were made.
    #[test]
    fn the_owners_after_drops_are_those_of_the_log() {
        let dir = Directory::new();
        let mut replay = Replay::default();
        let (a, b) = (IndexId(5), IndexId(6));
        let assign = |index, extent| ExtentChange::Assign { index, extent };
        let drop_of = |index| ExtentChange::TakeBack { index };
        let owners = |of: &Directory| (1..6).map(|e| of.extent_owner(e).0).collect::<Vec<u32>>();
        for (index, extent) in [(a, 1), (b, 2), (a, 3)] {
            replay.change(&dir, assign(index, extent));
        }
        assert!(replay.of.is_none(), "nothing was dropped");
        replay.change(&dir, drop_of(a));
        assert_eq!(owners(&dir), [0, 6, 0, 0, 0]);
        for (index, extent) in [(b, 1), (a, 3), (a, 4)] {
            replay.change(&dir, assign(index, extent));
        }
        assert_eq!(owners(&dir), [6, 6, 5, 5, 0]);
        // A list made before is no reason to walk again: what it does not know of is not found.
        let known = replay.of.as_ref().map(|of| of[&b].clone());
        assert_eq!(known, Some(vec![2, 1]));
        taken(&dir, PageId(65));
        replay.change(&dir, drop_of(b));
        assert_eq!(owners(&dir), [0, 0, 5, 5, 0]);
        assert!(dir.get(PageId(65)).is_free());
        replay.change(&dir, drop_of(b));
        replay.change(&dir, drop_of(a));
        assert_eq!(owners(&dir), [0; 5]);
    }
}
