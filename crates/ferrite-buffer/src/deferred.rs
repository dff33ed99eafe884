//! Redo that is put off until a page is read, so that a database opens before its pages are redone.
//!
//! What recovery finds that a page on disk lacks is kept as the change buffer keeps its changes, with
//! the invariants and the locks of that module: whoever reads the page applies it before anybody sees
//! the page, a checkpoint begins no later than the first of these records, and a page that is no
//! more takes it along. A background sweep ([`Pool::merge_round`]) reads the pages that nobody asks for.
//!
//! The records stay where recovery has collected them: all pages share them until the last one is redone, or the
//! sweep is over; then those that could not be read have copies of theirs.
//!
//! What is kept here is whole: a page has not been in memory since the start, so no change of this
//! life but a TAKE_BACK can follow.

use crate::collected::{Deferred, RedoOf};
use crate::frame::Frame;
use crate::kept::{ApplyKept, Kept};
use crate::pool::Pool;
use crate::recover::{older_state, BlobState};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::kill_point;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result};

impl Pool {
    /// How the operations of redo that was put off are applied. The first call counts.
    pub fn set_apply_redo(&self, apply: ApplyKept) {
        let _ = self.changes.apply_redo.set(apply);
    }

    /// The page is redone when it is read. Called by recovery only, once for a page; no record gives the page
    /// its whole content. False: the page is in memory or nowhere, nothing was put off.
    pub fn put_off_redo(
        &self,
        (page, index): (PageId, IndexId),
        blob: BlobState,
        redo: RedoOf,
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
        let bytes = redo.all.memory_bytes();
        let least = match blob {
            BlobState::Has(lsn) => lsn,
            BlobState::Old | BlobState::Unknown => Lsn::ZERO,
        };
        let kept = Kept {
            index,
            rec,
            end,
            room: 0,
            ops: Vec::new(),
            redo: Some(Deferred {
                least,
                records: Some(redo),
            }),
        };
        changes.to_redo.fetch_add(1, Ordering::Relaxed);
        changes.redo_bytes.store(bytes, Ordering::Relaxed);
        self.keep_new(of, &mut shard, page, kept);
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
