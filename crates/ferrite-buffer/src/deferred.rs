//! Redo that is put off until a page is read, so that a database opens before its pages are redone.
//!
//! What recovery finds that a page on disk lacks is kept as the change buffer keeps its changes, with
//! the invariants and the locks of that module: whoever reads the page applies it before anybody sees
//! the page, a checkpoint begins no later than the first of these records, and a page that is no
//! more takes it along. A background sweep ([`Pool::merge_round`]) reads the pages that nobody asks for.
//!
//! What is kept here is whole: a page has not been in memory since the start, so no change of this
//! life but a TAKE_BACK can follow.

use crate::frame::Frame;
use crate::kept::{ApplyKept, Kept};
use crate::pool::Pool;
use crate::recover::{older_state, BlobState};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::kill_point;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result};

/// What one record does to a page: where the record begins and ends, and the operations.
pub type RedoOps<'a> = (Lsn, Lsn, &'a [u8]);

impl Pool {
    /// How the operations of redo that was put off are applied. The first call counts.
    pub fn set_apply_redo(&self, apply: ApplyKept) {
        let _ = self.changes.apply_redo.set(apply);
    }

    /// The page is redone when it is read. Called by recovery only, for records in the order of the log, none
    /// of which gives the page its whole content. False: the page is in memory or nowhere, nothing was put off.
    pub fn put_off_redo(
        &self,
        (page, index): (PageId, IndexId),
        blob: BlobState,
        records: &[RedoOps<'_>],
    ) -> bool {
        let changes = &self.changes;
        assert!(changes.apply_redo.get().is_some(), "nobody could apply it");
        let of = changes.of(page);
        let mut shard = of.shard.lock();
        let (Some(first), true) = (records.first(), self.is_away(page)) else {
            return false;
        };
        let is_new = !shard.pages.contains_key(&page);
        for (start, end, ops) in records {
            assert!(start < end, "{page}: a record from {start} to {end}");
            self.keep(of, &mut shard, (page, index), first.0, (*end, ops), 0);
        }
        let Some(kept) = shard.pages.get_mut(&page).filter(|_| is_new) else {
            return true;
        };
        kept.redo = Some(match blob {
            BlobState::Has(lsn) => lsn,
            BlobState::Old | BlobState::Unknown => Lsn::ZERO,
        });
        changes.to_redo.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The pages that the sweep reads, in this order.
    pub fn sweep_in_order(&self, mut pages: Vec<PageId>) {
        pages.reverse();
        let mut sweep = self.changes.sweep.lock();
        assert!(sweep.is_empty(), "{} pages are left", sweep.len());
        *sweep = pages;
    }

    /// The next pages of the sweep, up to `most`, of those that still have to be redone.
    pub(crate) fn next_of_sweep(&self, most: usize, out: &mut Vec<PageId>) {
        let mut sweep = self.changes.sweep.lock();
        debug_assert!(most > 0, "a sweep of no page");
        while out.len() < most {
            let Some(page) = sweep.pop() else {
                *sweep = Vec::new();
                return;
            };
            if self.changes.has(page) {
                out.push(page);
            }
        }
    }

    /// What was put off is applied to the bytes of the page, as far as it does not have it. Gives the number
    /// of records applied.
    pub(crate) fn redo_kept(
        &self,
        frame: &Frame,
        bytes: &mut [u8],
        kept: &Kept,
        least: Lsn,
    ) -> Result<usize> {
        let (page, has) = (frame.page(), frame.lsn());
        kill_point!("buffer.redo_of_a_page");
        if has < least {
            return Err(older_state(frame, least));
        }
        let apply = self.changes.apply_redo.get().ok_or(Error::Interrupted)?;
        let mut applied = 0;
        for (end, ops) in kept.each() {
            if end <= has && !ferrite_sync::mutant!("buffer.current_page_is_old") {
                continue;
            }
            if ferrite_sync::mutant!("buffer.redo_lost") && end.0 % 16 == 0 {
                continue;
            }
            apply(bytes, ops)?;
            applied += 1;
        }
        debug_assert!(frame.index() == crate::page_prefix::index(bytes), "{page}");
        self.changes.redone.inc();
        Ok(applied)
    }
}
