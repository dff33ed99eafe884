//! Free space at a start: what the map names is in use, all else is free.
//!
//! A server refuses a map that names a place twice, or one that is not there: what it wrote would destroy pages. Tools that
//! only read go on, and tell.
//!
//! Invariant: a granule is marked for one page at most. Locking: the space lock over a walk over all words.

use ferrite_types::{Error, Faults, IndexId, PageId, Result};

use crate::deps::Ordering;
use crate::directory::pages_of_extent;
use crate::runs::FreeRuns;
use crate::store::{Store, LOADING, WRITABLE};
use crate::word::{Location, Word};

/// Takes the maker of a fault.
type OnFault<'f> = dyn FnMut(&dyn Fn() -> Error) -> Result<()> + 'f;

impl Store {
    /// Recovery: the map is complete. Marks the blobs it names; from here on blobs may be
    /// written and freed. No word may be resident yet. Does nothing the second time.
    ///
    /// # Errors
    /// `Corrupt` when two pages claim a granule, a blob lies outside of the files, or a page
    /// belongs to no index.
    pub fn free_space_known(&self) -> Result<()> {
        self.mark_words(&mut |fault| Err(fault()))
    }

    /// The same where the map may be damaged, for tools that only read: what is wrong. The words stay as they are: a page
    /// in an impossible place cannot be read.
    pub(crate) fn mark_all(&self) -> Faults {
        let mut faults = Faults::default();
        let marked = self.mark_words(&mut |fault| {
            faults.push_with(|| fault().to_string());
            Ok(())
        });
        assert!(marked.is_ok(), "no fault ends it: {marked:?}");
        faults
    }

    /// `on_fault` says whether it goes on. The fault is made when it is asked for: to find who else is in a place takes a
    /// walk over all pages.
    fn mark_words(&self, on_fault: &mut OnFault<'_>) -> Result<()> {
        if self.phase.load(Ordering::Acquire) != LOADING {
            return Ok(());
        }
        let mut runs = self.runs.lock();
        for extent in 0..self.directory.extents() {
            let owner = self.directory.extent_owner(extent);
            for page in pages_of_extent(extent) {
                let word = self.directory.get(page);
                if !word.is_free() {
                    self.mark_blob(&mut runs, page, (word, owner), on_fault)?;
                }
            }
        }
        // Behind the pages: only what no page is in becomes an area of deltas.
        let mut deltas = 0;
        for page in (0..self.directory.extents()).flat_map(pages_of_extent) {
            deltas += u64::from(self.mark_delta(&mut runs, page, on_fault)?);
        }
        debug_assert!(deltas <= u64::from(self.directory.end()), "{deltas} deltas");
        self.keep_what_is_held(&mut runs);
        drop(runs);
        self.counters.deltas_live.store(deltas, Ordering::Relaxed);
        let before = self.phase.swap(WRITABLE, Ordering::AcqRel);
        assert!(before == LOADING, "free space is known twice: {before}");
        Ok(())
    }

    fn mark_blob(
        &self,
        runs: &mut FreeRuns,
        page: PageId,
        (word, owner): (Word, IndexId),
        on_fault: &mut OnFault<'_>,
    ) -> Result<()> {
        debug_assert!(!word.is_free(), "{page} is nowhere");
        let Some(at) = word.as_location() else {
            let resident = || Error::Bug(format!("page {page} is resident before its time"));
            return on_fault(&resident);
        };
        if owner == IndexId(0) {
            if self.drop_replayed.load(Ordering::Acquire) {
                self.directory.set_location(page, Location::NONE);
                return Ok(());
            }
            let place = self.superblock.geometry.describe(at.granule());
            let text = || format!("map: page {page} at {place} belongs to no index");
            on_fault(&|| Error::Corrupt(text()))?;
        }
        if !runs.mark(at.granule(), at.granules()) {
            let inside = runs.contains(at.granule(), at.granules());
            on_fault(&|| self.clash(page, at, inside))?;
        }
        Ok(())
    }

    /// The page's delta, if it has one; that of a page that is no more does not count.
    fn mark_delta(
        &self,
        runs: &mut FreeRuns,
        page: PageId,
        on_fault: &mut OnFault<'_>,
    ) -> Result<bool> {
        let at = self.directory.delta(page);
        if at.is_none() {
            return Ok(false);
        }
        debug_assert!(at.is_delta(), "{page}: {at:?}");
        if self.directory.get(page).is_free() {
            self.directory.swap_delta(page, Location::NONE);
            return Ok(false);
        }
        let marked = runs.mark_small(at.granule(), at.granules());
        if !marked {
            let inside = runs.contains(at.granule(), at.granules());
            on_fault(&|| self.clash(page, at, inside))?;
        }
        Ok(marked)
    }

    /// Why the page's blob could not be marked.
    pub(crate) fn clash(&self, page: PageId, at: Location, inside: bool) -> Error {
        debug_assert!(!at.is_none(), "{page} is nowhere");
        let place = self.superblock.geometry.describe(at.granule());
        if !inside {
            return Error::Corrupt(format!("map: page {page} at {place}: beyond the files"));
        }
        let range = |l: Location| l.granule()..l.granule() + u64::from(l.granules());
        let mine = range(at);
        let in_the_way = |l: Location| {
            let theirs = range(l);
            theirs.start < mine.end && mine.start < theirs.end
        };
        let other = (1..=page.0).map(PageId).find(|&p| {
            let other = |l: Location| (p != page || l != at) && in_the_way(l);
            let word = self.directory.get(p).as_location();
            word.is_some_and(other) || other(self.directory.delta(p))
        });
        let other = other.unwrap_or(PageId::NONE);
        Error::Corrupt(format!("map: pages {other} and {page} both at {place}"))
    }
}
