//! The page directory: page id to 64-bit word, one flat array.
//!
//! Invariants: a chunk, once there, stays for the life of the store, so `&AtomicU64` is
//! stable; `end` only grows; every id of an extent that ever had an owner has its word.
//!
//! Locking: none. Words are atomics; chunks appear through a once-cell. Who may change a
//! word is the buffer pool's business (and recovery's, before it).

use ferrite_types::{IndexId, PageId};

use crate::deps::{AtomicU32, AtomicU64, OnceLock, Ordering};
use crate::word::{Location, Word};

/// Entries per chunk: 512 KiB of words appear at once, and the table of all chunks is 1 MiB.
/// The model checker, which follows each word, gets a handful.
const CHUNK: usize = if cfg!(loom) { 256 } else { 65536 };
/// Chunks for all 2^32 ids.
const CHUNKS: usize = if cfg!(loom) { 1 } else { (1 << 32) / CHUNK };
/// Page ids per extent.
pub const EXTENT_PAGES: u32 = 64;
/// Extents for all ids.
const EXTENTS: usize = CHUNKS * CHUNK / EXTENT_PAGES as usize;
// The chunk of an extent's first word holds them all.
const _: () = assert!(CHUNK % EXTENT_PAGES as usize == 0);

/// An array that exists where it was touched.
struct Sparse<T> {
    chunks: Box<[OnceLock<Box<[T]>>]>,
}

impl<T> Sparse<T> {
    fn new(entries: usize) -> Sparse<T> {
        let n = entries.div_ceil(CHUNK);
        Sparse {
            chunks: (0..n).map(|_| OnceLock::new()).collect(),
        }
    }

    fn memory_bytes(&self) -> usize {
        let chunks = self.chunks.iter().filter(|c| c.get().is_some()).count();
        size_of_val(&*self.chunks) + chunks * CHUNK * size_of::<T>()
    }

    #[inline]
    fn get(&self, i: usize) -> Option<&T> {
        self.chunks[i / CHUNK].get().map(|c| &c[i % CHUNK])
    }

    fn make(&self, i: usize, zero: impl Fn() -> T) -> &T {
        let chunk = self.chunks[i / CHUNK].get_or_init(|| (0..CHUNK).map(|_| zero()).collect());
        &chunk[i % CHUNK]
    }
}

/// Page id to word, and extent to owner.
pub struct Directory {
    words: Sparse<AtomicU64>,
    /// Where each page's delta is; 0: it has none.
    deltas: Sparse<AtomicU64>,
    owners: Sparse<AtomicU32>,
    end: AtomicU32,
}

impl Directory {
    pub(crate) fn new() -> Directory {
        Directory {
            words: Sparse::new(CHUNKS * CHUNK),
            deltas: Sparse::new(CHUNKS * CHUNK),
            owners: Sparse::new(EXTENTS),
            end: AtomicU32::new(0),
        }
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.words.memory_bytes() + self.deltas.memory_bytes() + self.owners.memory_bytes()
    }

    /// The word of a page id that was handed out. Panics for an id that never was.
    #[inline]
    pub fn word(&self, page: PageId) -> &AtomicU64 {
        match self.words.get(page.0 as usize) {
            Some(word) => word,
            None => panic!("page {page} was never handed out"),
        }
    }

    /// The word's value; [`Word::FREE`] for ids beyond the end.
    #[inline]
    pub fn get(&self, page: PageId) -> Word {
        self.words
            .get(page.0 as usize)
            .map_or(Word::FREE, |w| Word(w.load(Ordering::Acquire)))
    }

    /// All ids handed out so far are below this (saturated at 2^32 - 1).
    pub fn end(&self) -> u32 {
        self.end.load(Ordering::Acquire)
    }

    /// The index that owns the page's extent; 0 when nobody does.
    #[inline]
    pub fn owner(&self, page: PageId) -> IndexId {
        self.extent_owner(page.0 / EXTENT_PAGES)
    }

    pub(crate) fn extent_owner(&self, extent: u32) -> IndexId {
        self.owners
            .get(extent as usize)
            .map_or(IndexId(0), |o| IndexId(o.load(Ordering::Acquire)))
    }

    /// Makes room for the extent's words, then names its owner.
    pub(crate) fn set_extent_owner(&self, extent: u32, index: IndexId) {
        assert!((extent as usize) < EXTENTS, "extent {extent}");
        self.make_word(PageId(extent * EXTENT_PAGES));
        self.owners
            .make(extent as usize, || AtomicU32::new(0))
            .store(index.0, Ordering::Release);
        let last = extent * EXTENT_PAGES + (EXTENT_PAGES - 1);
        self.end.fetch_max(last.saturating_add(1), Ordering::AcqRel);
        debug_assert!(
            self.words.get(last as usize).is_some(),
            "no word for {last}"
        );
    }

    /// The word of any id; its chunk is made when missing. Does not move the end.
    pub(crate) fn make_word(&self, page: PageId) -> &AtomicU64 {
        self.words.make(page.0 as usize, || AtomicU64::new(0))
    }

    /// Where the page's delta is.
    #[inline]
    pub(crate) fn delta(&self, page: PageId) -> Location {
        let word = self.deltas.get(page.0 as usize);
        word.map_or(Location::NONE, |w| {
            Location::from_raw(w.load(Ordering::Acquire))
        })
    }

    /// The page gets that delta; the one that it had.
    pub(crate) fn swap_delta(&self, page: PageId, at: Location) -> Location {
        debug_assert!(at.is_none() || at.is_delta(), "{page}: {at:?}");
        if at.is_none() && self.deltas.get(page.0 as usize).is_none() {
            return Location::NONE;
        }
        let word = self.deltas.make(page.0 as usize, || AtomicU64::new(0));
        Location::from_raw(word.swap(at.raw(), Ordering::AcqRel))
    }

    /// Recovery: names the page's place, or that of its delta: a page that goes to another place has
    /// none any more. The end moves past it, so that a page of no extent is noticed.
    pub(crate) fn set_location(&self, page: PageId, at: Location) {
        assert!(page.0 != 0 || at.is_none(), "page 0 at {at:?}");
        debug_assert!(Location::checked(at.raw()).is_some(), "{page}: {at:?}");
        let delta = if at.is_delta() { at } else { Location::NONE };
        if !ferrite_sync::mutant!("store.stale_delta_replayed") || at.is_delta() {
            self.swap_delta(page, delta);
        }
        if at.is_delta() {
            // A delta of a page that is no more is noticed as well.
            self.end.fetch_max(page.0 + 1, Ordering::AcqRel);
        } else {
            self.load_location(page, at);
        }
    }

    /// The page's place as a dump has it, which has its delta as well.
    pub(crate) fn load_location(&self, page: PageId, at: Location) {
        debug_assert!(!at.is_delta(), "{page}: {at:?}");
        self.make_word(page)
            .store(Word::on_disk(at).0, Ordering::Release);
        if !at.is_none() {
            self.end
                .fetch_max(page.0.saturating_add(1), Ordering::AcqRel);
        }
    }

    /// Extents below the end.
    pub(crate) fn extents(&self) -> u32 {
        self.end().div_ceil(EXTENT_PAGES)
    }
}

/// The ids of one extent that may be pages (0 never is).
pub(crate) fn pages_of_extent(extent: u32) -> impl DoubleEndedIterator<Item = PageId> {
    assert!(extent <= u32::MAX / EXTENT_PAGES, "extent {extent}");
    let first = extent * EXTENT_PAGES;
    (first..=first + (EXTENT_PAGES - 1))
        .filter(|&p| p != 0)
        .map(PageId)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_types::format::Codec;

    #[test]
    fn ids_beyond_the_end_are_free() {
        let d = Directory::new();
        assert_eq!(d.end(), 0);
        assert_eq!(d.get(PageId(u32::MAX)), Word::FREE);
        assert_eq!(d.owner(PageId(u32::MAX)), IndexId(0));
        d.set_extent_owner(3, IndexId(9));
        assert_eq!(d.end(), 256);
        assert_eq!(d.owner(PageId(192)), IndexId(9));
        assert_eq!(d.owner(PageId(191)), IndexId(0));
        let at = Location::new(5, 1, Codec::None);
        d.word(PageId(200)).store(at.raw(), Ordering::Release);
        assert_eq!(d.get(PageId(200)).as_location(), Some(at));
    }

    #[test]
    fn the_last_extent_is_usable() {
        let d = Directory::new();
        d.set_extent_owner(EXTENTS as u32 - 1, IndexId(2));
        assert_eq!(d.end(), u32::MAX);
        assert_eq!(d.owner(PageId(u32::MAX)), IndexId(2));
        d.word(PageId(u32::MAX)).store(1, Ordering::Relaxed);
        assert_eq!(pages_of_extent(EXTENTS as u32 - 1).count(), 64);
        assert_eq!(pages_of_extent(0).count(), 63);
    }
}
