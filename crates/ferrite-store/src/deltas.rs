//! Deltas of pages in the store: where each is, and the changes applied to their pages.
//!
//! Invariants: see `page_delta`. Locking: none.

use ferrite_types::{Error, PageId};

use crate::blob::PageHeader;
use crate::deps::Ordering;
use crate::page_delta::{parse_body, ApplyChanges, PageRead};
use crate::store::Store;
use crate::word::Location;

impl Store {
    /// Who applies the changes of deltas. Before the first page is read; the first call counts.
    pub fn set_apply(&self, apply: ApplyChanges) {
        let _ = self.apply.set(apply);
    }

    /// Where the page's delta is; [`Location::NONE`]: it has none.
    #[inline]
    pub fn delta_of(&self, page: PageId) -> Location {
        self.directory.delta(page)
    }

    /// The page has that delta from here on ([`Location::NONE`]: none). The one that it had. By who
    /// changes the place of a resident page, after the record that says so.
    pub fn swap_delta(&self, page: PageId, at: Location) -> Location {
        assert!(at.is_none() || at.is_delta(), "{page}: a page's {at:?}");
        let old = self.directory.swap_delta(page, at);
        assert!(
            old.is_none() || old != at,
            "{page}: a delta in place of itself"
        );
        let live = &self.counters.deltas_live;
        match (old.is_none(), at.is_none()) {
            (true, false) => live.fetch_add(1, Ordering::Relaxed),
            (false, true) => live.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        old
    }

    /// The page of `base`, which is in `out`, gets the changes of the delta with that header and
    /// body.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn apply_delta(
        &self,
        base: PageRead,
        header: &PageHeader,
        body: &[u8],
        out: &mut [u8],
    ) -> std::result::Result<PageRead, String> {
        let page = base.header.page;
        assert!(header.is_delta && header.page == page, "{page}");
        let (of, changes) = parse_body(body).ok_or("its delta cannot be read")?;
        let other = of != base.base && !ferrite_sync::mutant!("store.delta_of_other_base");
        if other || header.index != base.header.index || header.lsn <= of.lsn {
            return Err("its delta belongs to another state of the page".into());
        }
        let apply = self.apply.get().ok_or("nobody can apply its delta")?;
        apply(page, changes, out).map_err(|e| match e {
            Error::Corrupt(what) => format!("its delta does not fit: {what}"),
            other => other.to_string(),
        })?;
        Ok(PageRead {
            header: PageHeader {
                lsn: header.lsn,
                ..base.header
            },
            base: base.base,
            changes: changes.to_vec(),
        })
    }
}
