//! Redo that is put off until a page is read, so that a database opens before its pages are redone.
//!
//! What recovery finds that a page on disk lacks is kept as the change buffer keeps its changes, with
//! the invariants and the locks of that module: whoever reads the page applies it before anybody sees
//! the page, a checkpoint begins no later than the first of these records, and a page that is no
//! more takes it along. A background sweep ([`Pool::merge_round`]) reads the pages that nobody asks for.
//!
//! The records stay where recovery has collected them: all pages share them until the sweep is over; then those that
//! could not be read get copies of theirs. A page that could not be read already, by the redo at start, has copies from
//! the beginning: what that was collected with goes before the next batch.
//!
//! What is kept here is whole: a page has not been in memory since the start, so no change of this
//! life but a TAKE_BACK can follow.

use crate::collected::{CollectedRedo, Deferred, RedoOf};
use crate::frame::Frame;
use crate::kept::{ApplyKept, Kept};
use crate::pool::Pool;
use crate::recover::{older_state, BlobState};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, Arc};
use ferrite_types::{Error, IndexId, Lsn, PageId, Result};

/// May a page share the records with others?
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shares {
    /// Until [`Pool::sweep_in_order`]'s sweep is over: it is told of what they share.
    All,
    /// It gets copies.
    Nothing,
}

impl Pool {
    /// How the operations of redo that was put off are applied. The first call counts.
    pub fn set_apply_redo(&self, apply: ApplyKept) {
        let _ = self.changes.apply_redo.set(apply);
    }

    /// The page is redone when it is read. Called by recovery only, for records in the order of the log, none of
    /// which gives the page its whole content. False: the page is in memory or nowhere, nothing was put off.
    pub fn put_off_redo(
        &self,
        (page, index): (PageId, IndexId),
        blob: BlobState,
        redo: RedoOf,
        shares: Shares,
    ) -> bool {
        let changes = &self.changes;
        assert!(changes.apply_redo.get().is_some(), "nobody could apply it");
        let (rec, end) = redo.span;
        assert!(rec < end && !redo.nths.is_empty(), "{page}: {rec} to {end}");
        let of = changes.of(page);
        let mut shard = of.shard.lock();
        if !self.is_away(page) {
            return false;
        }
        if let Some(kept) = shard.pages.get(&page) {
            // The redo of a batch before could not read it.
            let copied = kept.redo.as_ref().is_some_and(|r| !r.is_shared());
            assert!(copied, "{page} is put off after the last batch");
            for (end, ops) in redo.each() {
                self.keep(of, &mut shard, (page, index), rec, (end, ops), 0);
            }
            return true;
        }
        let least = match blob {
            BlobState::Has(lsn) => lsn,
            BlobState::Old | BlobState::Unknown => Lsn::ZERO,
        };
        let records = Some(redo);
        let mut kept = Kept {
            end,
            redo: Some(Deferred { least, records }),
            ..Kept::nothing_of(index, rec)
        };
        if shares == Shares::Nothing {
            kept.own_redo();
        }
        self.keep_new(of, &mut shard, page, kept);
        changes.to_redo.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The pages that the sweep reads, in this order, and what they share.
    pub fn sweep_in_order(&self, mut pages: Vec<PageId>, shared: Arc<dyn CollectedRedo>) {
        pages.reverse();
        let mut sweep = self.changes.sweep.lock();
        assert!(sweep.is_empty(), "{} pages are left", sweep.len());
        *sweep = pages;
        *self.changes.shared.lock() = Some(shared);
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
        // They lie far apart in memory: asked for together, they come together.
        let records: Vec<(Lsn, &[u8])> = kept.each().collect();
        let touched = records.iter().filter_map(|(_, ops)| ops.first());
        std::hint::black_box(touched.fold(0, |all, byte| all ^ byte));
        let (mut applied, mut last) = (0, Lsn::ZERO);
        for (end, ops) in records {
            assert!(last < end, "{page}: a record up to {end} after {last}");
            last = end;
            if end <= has && !ferrite_sync::mutant!("buffer.current_page_is_old") {
                continue;
            }
            if ferrite_sync::mutant!("buffer.redo_lost") && end.0 % 16 == 0 {
                continue;
            }
            apply(bytes, ops)?;
            applied += 1;
        }
        assert_eq!(last, kept.end, "the redo of {page} is not whole");
        debug_assert!(frame.index() == crate::page_prefix::index(bytes), "{page}");
        self.changes.redone.inc();
        Ok(applied)
    }
}
