//! Redo that recovery has collected, as `kept` keeps it for a page and `deferred` applies it.
//!
//! The records of all pages lie together, and nobody changes them. Locking: none.

use ferrite_sync::Arc;
use ferrite_types::Lsn;
use std::ops::Range;

/// Redo of many pages.
pub trait CollectedRedo: Send + Sync {
    /// Of the nth record: where it ends, and its operations on the page that it is for.
    fn record(&self, nth: usize) -> (Lsn, &[u8]);

    /// What it takes in memory.
    fn memory_bytes(&self) -> usize;
}

/// The redo of one page, in the order of the log.
pub struct RedoOf {
    /// Where it is.
    pub all: Arc<dyn CollectedRedo>,
    /// Its records there.
    pub nths: Range<usize>,
    /// Where the first record begins, and the last one ends.
    pub span: (Lsn, Lsn),
    /// The first record gives the page its whole content: nothing is read for it.
    pub creates: bool,
}

impl RedoOf {
    pub(crate) fn each(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        self.nths.clone().map(|nth| self.all.record(nth))
    }
}

/// A page's redo that was put off.
pub(crate) struct Deferred {
    /// The LSN that the page on disk has at the least.
    pub(crate) least: Lsn,
    /// The page gets its whole content from the first record, shared or copied.
    pub(crate) creates: bool,
    /// It is nowhere on disk, and no place becomes free when it is written.
    pub(crate) is_nowhere: bool,
    /// None: the page has copies.
    pub(crate) records: Option<RedoOf>,
}

impl Deferred {
    pub(crate) fn is_shared(&self) -> bool {
        self.records.is_some()
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        self.records.iter().flat_map(RedoOf::each)
    }
}
