//! Deltas of pages in the store: where each is, and the changes applied to their pages.
//!
//! Invariants: see `page_delta`; and no delta is written before the superblock says that there may
//! be some. What is on disk if we die: of the note, the superblock of before or after it.
//!
//! Locking: none, but for the checkpoint state while the superblock is written, and `pair_readers`, not over I/O.

use ferrite_types::format::FEATURE_PAGE_DELTAS;
use ferrite_types::{Error, Lsn, PageId, Result};

use crate::blob::{PageHeader, StoredBlob};
use crate::deps::Ordering;
use crate::page_delta::{parse_body, ApplyChanges, PageRead};
use crate::store::Store;
use crate::together_plan::Wanted;
use crate::word::Location;

/// Readers of a page and its delta that are kept for the next ones.
const MOST_PAIR_READERS: usize = 64;

impl Store {
    /// Who applies the changes of deltas. Before the first page is read; the first call counts.
    pub fn set_apply(&self, apply: ApplyChanges) {
        let _ = self.apply.set(apply);
    }

    /// From here on pages may have deltas, which the superblock says, durable: programs that do not
    /// know of them must not open the database. A database made by one of them says so from its first
    /// opening by this one on.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Corrupt`: no delta may be written.
    pub fn note_deltas(&self) -> Result<()> {
        if self.superblock.features & FEATURE_PAGE_DELTAS != 0 {
            return Ok(());
        }
        self.note_feature(FEATURE_PAGE_DELTAS, true)
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

    /// Blob and delta, both at once.
    pub(crate) fn read_both(&self, wanted: Wanted, out: &mut [u8]) -> Result<PageRead> {
        let mut result = None;
        let kept = self.pair_readers.lock().pop();
        let mut reader = kept.unwrap_or_else(|| Box::new(self.together_reader()));
        self.read_together(&mut reader, &[wanted], &mut |_, arrived| {
            debug_assert!(result.is_none(), "{} has arrived twice", wanted.page);
            result = Some(arrived.and_then(|arrived| arrived.restore(out)));
        });
        let mut readers = self.pair_readers.lock();
        if readers.len() < MOST_PAIR_READERS {
            readers.push(reader);
        }
        drop(readers);
        let result = result.unwrap_or(Err(Error::Bug("a page never arrived".into())));
        result.map_err(|e| match e {
            Error::Corrupt(what) => {
                let prefix = format!("page {}: ", wanted.page);
                let what = what.strip_prefix(&prefix).unwrap_or(&what);
                self.bad_page(wanted.page, wanted.at, what)
            }
            other => other,
        })
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
        let (of, changes) = parse_body(body).ok_or("it cannot be read")?;
        let other = of != base.base && !ferrite_sync::mutant!("store.delta_of_other_base");
        if other || header.index != base.header.index || header.lsn <= of.lsn {
            return Err("it belongs to another state of the page".into());
        }
        self.change(base, header.lsn, changes.to_vec(), out)
    }

    /// The page that was read without its delta, which is in `out`, gets the changes of that: they belong to the blob
    /// `of`, and the page has position `lsn` with them.
    ///
    /// # Errors
    /// `Corrupt`: another blob was read, or they do not fit it.
    pub fn with_changes(
        &self,
        base: PageRead,
        (of, lsn): (StoredBlob, Lsn),
        changes: Vec<u8>,
        out: &mut [u8],
    ) -> Result<PageRead> {
        let page = base.header.page;
        debug_assert!(base.changes.is_empty() && of.lsn < lsn, "{page}");
        if of != base.base {
            return Err(Error::Corrupt(format!(
                "page {page}: another blob than the one that its delta belongs to"
            )));
        }
        self.change(base, lsn, changes, out)
            .map_err(|what| Error::Corrupt(format!("page {page}: {what}")))
    }

    fn change(
        &self,
        base: PageRead,
        lsn: Lsn,
        changes: Vec<u8>,
        out: &mut [u8],
    ) -> std::result::Result<PageRead, String> {
        let page = base.header.page;
        assert!(
            base.header.lsn < lsn,
            "{page}: nothing has changed since {lsn}"
        );
        let apply = self.apply.get().ok_or("nobody can apply its changes")?;
        if ferrite_sync::mutant!("store.delta_merged_twice") {
            let _ = apply(page, &changes, out);
        }
        apply(page, &changes, out).map_err(|e| match e {
            Error::Corrupt(what) => format!("its changes do not fit: {what}"),
            other => other.to_string(),
        })?;
        let header = PageHeader { lsn, ..base.header };
        Ok(PageRead {
            header,
            base: base.base,
            changes,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::deps::Arc;
    use crate::superblock::Superblock;
    use crate::{Store, StoreConfig};
    use ferrite_io::sim::SimStorage;
    use ferrite_io::Storage;
    use ferrite_types::format::{
        FEATURE_ENCRYPTED, FEATURE_PAGE_DELTAS, KNOWN_INCOMPATIBLE_FEATURES,
    };

    fn features(storage: &dyn Storage) -> u64 {
        Superblock::read(storage).unwrap().features
    }

    /// A program without deltas knows no bit 5, and refuses what it does not know (`superblock`).
    #[test]
    fn an_older_database_says_that_it_may_have_deltas() {
        let sim = SimStorage::new(1);
        let storage: Arc<dyn Storage> = Arc::new(sim.boot());
        let store = Store::create(storage.clone(), StoreConfig::default()).unwrap();
        let new = features(&*storage);
        assert!(new & FEATURE_PAGE_DELTAS != 0 && FEATURE_PAGE_DELTAS == 32);
        drop(store);
        let old = Superblock {
            features: new & !FEATURE_PAGE_DELTAS,
            ..Superblock::read(&*storage).unwrap()
        };
        old.write(&*storage).unwrap();
        let (store, _) = Store::open(storage.clone(), StoreConfig::default()).unwrap();
        assert_eq!(features(&*storage), old.features, "opening alone");
        store.note_deltas().unwrap();
        assert_eq!(features(&*storage), new);
        store.note_snapshots(true).unwrap();
        store.note_deltas().unwrap();
        let all = KNOWN_INCOMPATIBLE_FEATURES & !FEATURE_ENCRYPTED;
        assert_eq!(features(&*storage), all);
        store.note_snapshots(false).unwrap();
        assert_eq!(features(&*storage), new, "each bit for itself");
    }
}
