//! What the log says of pages and indexes as a whole: freed, dropped, written. It decides which of
//! a page's logged operations recovery needs.
//!
//! Invariant: an operation that does not matter once will not matter later in the log either, so
//! what was collected can be thrown away before the end of the log is known.
//! Locking: none; filled by one thread, then only read.

use ferrite_buffer::BlobState;
use ferrite_types::{IndexId, Lsn, PageId};
use std::collections::HashMap;

/// Ids are not chosen by anybody who means harm, and are looked up for each record.
pub(crate) type Hasher = foldhash::fast::FixedState;

/// What happened to pages and indexes, each by its last record.
#[derive(Default)]
pub(crate) struct PageFates {
    freed: HashMap<PageId, Lsn, Hasher>,
    dropped: HashMap<IndexId, Lsn, Hasher>,
    /// Pages that were written since the log's begin; None: nothing says what their blobs have.
    written: HashMap<PageId, Option<Lsn>, Hasher>,
}

impl PageFates {
    /// The page is no more, by the record that ends there.
    pub(crate) fn freed(&mut self, page: PageId, end: Lsn) {
        let before = self.freed.insert(page, end);
        assert!(
            before.is_none_or(|b| b <= end),
            "{page} freed at {before:?}"
        );
        self.written.remove(&page);
    }

    /// So are all pages of the index.
    pub(crate) fn dropped(&mut self, index: IndexId, end: Lsn) {
        let before = self.dropped.insert(index, end);
        assert!(
            before.is_none_or(|b| b <= end),
            "{index} dropped at {before:?}"
        );
    }

    /// The page lives in another blob from here on.
    pub(crate) fn moved(&mut self, page: PageId) {
        debug_assert!(page != PageId::NONE, "page 0 moves");
        self.written.insert(page, None);
    }

    /// The blob it moved to last has what the log says up to there.
    pub(crate) fn has(&mut self, page: PageId, lsn: Lsn) {
        debug_assert!(lsn > Lsn::ZERO, "{page} has nothing");
        // Without its move the record says nothing: the page was freed since.
        if let Some(known) = self.written.get_mut(&page) {
            *known = Some(lsn);
        }
    }

    /// What is known of the page's blob.
    pub(crate) fn blob(&self, page: PageId) -> BlobState {
        match self.written.get(&page) {
            None => BlobState::Old,
            Some(None) => BlobState::Unknown,
            Some(Some(lsn)) => BlobState::Has(*lsn),
        }
    }

    /// All that is known of the page, for one look at many of its records.
    pub(crate) fn of(&self, page: PageId) -> FateOf<'_> {
        let freed = self.freed.get(&page).copied();
        FateOf {
            freed: freed.filter(|_| !ferrite_sync::mutant!("recovery.redo_freed_pages")),
            blob: self.blob(page),
            dropped: &self.dropped,
        }
    }

    /// False when the page was freed, or its index dropped, later in the log.
    pub(crate) fn matters(&self, page: PageId, index: IndexId, end: Lsn) -> bool {
        self.of(page).matters(index, end)
    }

    /// [`PageFates::matters`], and the page on disk is not known to have it.
    pub(crate) fn is_missing(&self, page: PageId, index: IndexId, end: Lsn) -> bool {
        self.of(page).is_missing(index, end)
    }

    /// Was a value whose first page that is let go of at that position not freed since?
    pub(crate) fn is_kept(&self, first: PageId, index: IndexId, at: Lsn) -> bool {
        self.freed.get(&first).is_none_or(|freed| *freed < at) && !self.dropped.contains_key(&index)
    }
}

/// What happened to one page.
pub(crate) struct FateOf<'f> {
    freed: Option<Lsn>,
    blob: BlobState,
    dropped: &'f HashMap<IndexId, Lsn, Hasher>,
}

impl FateOf<'_> {
    /// False when the page was freed, or its index dropped, later in the log.
    fn matters(&self, index: IndexId, end: Lsn) -> bool {
        self.freed.is_none_or(|at| at < end) && self.dropped.get(&index).is_none_or(|at| *at < end)
    }

    /// [`FateOf::matters`], and the page on disk is not known to have it.
    pub(crate) fn is_missing(&self, index: IndexId, end: Lsn) -> bool {
        let old = ferrite_sync::mutant!("buffer.current_page_is_old");
        let has = matches!(self.blob, BlobState::Has(lsn) if lsn >= end && !old);
        !has && self.matters(index, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_page_lacks_is_known_without_reading_it() {
        let (page, index) = (PageId(7), IndexId(3));
        let mut fates = PageFates::default();
        let missing =
            |fates: &PageFates| [10, 20, 30].map(|n| fates.is_missing(page, index, Lsn(n)));
        assert_eq!(
            (fates.blob(page), missing(&fates)),
            (BlobState::Old, [true; 3])
        );
        fates.moved(page);
        assert_eq!(
            (fates.blob(page), missing(&fates)),
            (BlobState::Unknown, [true; 3])
        );
        fates.has(page, Lsn(20));
        assert_eq!(missing(&fates), [false, false, true]);
        // A move of which nothing more is said.
        fates.moved(page);
        assert_eq!(missing(&fates), [true; 3]);
        fates.freed(page, Lsn(25));
        assert_eq!(
            (fates.blob(page), missing(&fates)),
            (BlobState::Old, [false, false, true])
        );
        fates.has(page, Lsn(40));
        assert_eq!(fates.blob(page), BlobState::Old);
        fates.dropped(index, Lsn(30));
        assert_eq!(missing(&fates), [false; 3]);
    }
}
