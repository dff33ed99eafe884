//! Rows that are kept without their page, as the pool's users put them into the row cache and find them there; see
//! `row_cache` for the invariants.
//!
//! Locking: that of the row cache, and a look at the change buffer before it.

use crate::guard::SharedGuard;
use crate::page_prefix;
use crate::pool::Pool;
use crate::row_cache::{Copied, RowCache};
use ferrite_types::{IndexId, PageId};

impl SharedGuard<'_> {
    /// A row of this page, which had to be read for it, may be kept without the page: its key and its record.
    pub fn keep_row(&self, key: &[u8], record: &[u8]) {
        let (pool, frame) = (self.pool, self.pool.frame(self.frame));
        debug_assert!(frame.latch.is_held(), "{} is not latched", frame.page());
        let of = (IndexId(page_prefix::index(self)), frame.lsn());
        if pool.row_cache.put(frame.page(), of, key, record) != Copied::No {
            frame.cool_down();
        }
    }
}

impl Pool {
    /// The row cache.
    pub fn row_cache(&self) -> &RowCache {
        &self.row_cache
    }

    /// Appends the record of `key`, a row of the page, to `out`, if the page is not in memory and the row cache has
    /// it as it is there. False: the page must be asked.
    pub fn cached_row(&self, page: PageId, index: IndexId, key: &[u8], out: &mut Vec<u8>) -> bool {
        // What is put there after this look came after the reader's snapshot was opened.
        if !self.is_away(page) || self.changes.has(page) {
            return false;
        }
        let now = || self.store.directory().get(page).as_location();
        self.row_cache.find(page, index, key, now, out)
    }
}
