//! Redo that is put off until a page is read, so that a database opens before its pages are redone.
//!
//! What recovery finds that a page on disk lacks is kept as the change buffer keeps its changes, with
//! the invariants and the locks of that module: whoever reads the page applies it before anybody sees
//! the page, a checkpoint begins no later than the first of these records, and a page that is no
//! more takes it along. A background sweep ([`Pool::merge_round`]) reads the pages that nobody asks for.
//!
//! The records stay where recovery has collected them: all pages share them until the sweep is over; then those that
//! could not be read, or are being read just then, get copies of theirs. A page that could not be read already, by the
//! redo at start, has copies from the beginning: what that was collected with goes before the next batch.
//!
//! A page that gets its whole content from one of the records is made of that and those behind it; nothing is read for
//! it. It may be nowhere on disk: its directory word says then that it is in the log ([`Location::FROM_LOG`]).
//!
//! What is kept here is whole: a page is not in memory before it is redone, and the change buffer keeps nothing that needs
//! room on it ([`Pool::away_page`]), so no change of this life but a TAKE_BACK can follow. The page may have been in memory
//! since the start: an earlier batch redid it, and it left memory again. The room that it had then is forgotten.

use crate::collected::{CollectedRedo, Deferred, RedoOf};
use crate::frame::Frame;
use crate::kept::{ApplyRedo, Kept};
use crate::page_prefix;
use crate::pool::Pool;
use crate::recover::{older_state, BlobState};
use ferrite_store::Location;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, Arc};
use ferrite_types::{Error, IndexId, Lsn, PageId, Result};

/// May a page share the records with others?
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shares {
    /// Until the sweep is over ([`Pool::sweep_in_order`]).
    All,
    /// It gets copies.
    Nothing,
}

/// What is kept for a page for which nothing was.
fn kept_of(index: IndexId, blob: BlobState, redo: RedoOf, is_nowhere: bool) -> Kept {
    let (creates, (rec, end)) = (redo.creates, redo.span);
    let least = match blob {
        BlobState::Has(lsn) if !creates => lsn,
        _ => Lsn::ZERO,
    };
    let rec = match creates && ferrite_sync::mutant!("buffer.image_not_held") {
        true => Lsn(end.0 - 1),
        false => rec,
    };
    Kept {
        end,
        redo: Some(Box::new(Deferred {
            least,
            creates,
            is_nowhere,
            records: Some(redo),
        })),
        ..Kept::nothing_of(index, rec)
    }
}

impl Pool {
    /// How the operations of redo that was put off are applied. The first call counts.
    pub fn set_apply_redo(&self, apply: ApplyRedo) {
        let _ = self.changes.apply_redo.set(apply);
    }

    /// The page is redone when it is read. Called by recovery only, for records in the order of the log, of which no
    /// other than the first gives the page its whole content. False: the page is in memory, or nowhere and no
    /// record creates it; nothing was put off.
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
        if redo.creates {
            self.store.await_log(page);
        }
        if !self.is_away(page) {
            return false;
        }
        if !ferrite_sync::mutant!("buffer.kept_behind_redo") {
            // That of before the redo, if an earlier batch had the page in memory.
            changes.rooms.set(page, 0);
        }
        if redo.creates {
            // What the redo of a batch before could not read.
            self.forget(of, &mut shard, page);
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
        let at = self.store.directory().get(page).as_location();
        let is_nowhere = at == Some(Location::FROM_LOG);
        debug_assert!(redo.creates || !is_nowhere, "nothing makes {page}");
        let mut kept = kept_of(index, blob, redo, is_nowhere);
        if shares == Shares::Nothing {
            kept.own_redo();
        }
        self.keep_new(of, &mut shard, page, kept);
        changes.to_redo.fetch_add(1, Ordering::Relaxed);
        let nowhere = usize::from(is_nowhere);
        changes.from_log.fetch_add(nowhere, Ordering::Relaxed);
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

    /// Does the page get its whole content from redo that was put off? It stays so while the caller has claimed
    /// its directory word.
    pub(crate) fn comes_from_log(&self, page: PageId) -> bool {
        if self.changes.pages_to_redo() == 0 {
            return false;
        }
        let shard = self.changes.of(page).shard.lock();
        shard.pages.get(&page).is_some_and(Kept::creates)
    }

    /// Makes those of the pages that get their whole content from the log, as far as there are frames at
    /// once; takes them off the list. Gives the number of those that came.
    pub(crate) fn read_from_log(&self, pages: &mut Vec<PageId>) -> usize {
        let (all, mut came) = (pages.len(), 0);
        if self.changes.pages_to_redo() == 0 {
            return came;
        }
        pages.retain(|&page| {
            let word = self.store.directory().get(page);
            let Some(at) = word.as_location().filter(|_| self.comes_from_log(page)) else {
                return true;
            };
            let Some(f) = self.take_frame_at_once() else {
                return false;
            };
            kill_point!("buffer.ahead_looked_up");
            if self.begin_load(f, page, at, false) {
                let filled = self.fill(f, page, at).is_ok();
                self.end_load(f, page, at, filled);
                came += usize::from(filled);
            }
            false
        });
        debug_assert!(came + pages.len() <= all, "{came} of {all} pages");
        came
    }

    /// Are there pages that no thread has taken yet?
    pub(crate) fn is_sweeping(&self) -> bool {
        !self.changes.sweep.lock().is_empty()
    }

    /// The sweep reads these pages behind all others, in this order, if they have to be redone then.
    pub fn sweep_last(&self, pages: &[PageId]) {
        let mut sweep = self.changes.sweep.lock();
        let before = sweep.len();
        sweep.splice(0..0, pages.iter().rev().copied());
        debug_assert_eq!(sweep.len(), before + pages.len());
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
        if page_prefix::index(bytes) != kept.index.0 {
            let text = format!(
                "page {page}: the log does not make it one of index {}",
                kept.index
            );
            return Err(Error::Corrupt(text));
        }
        frame.set_index(kept.index.0);
        self.changes.redone.inc();
        Ok(applied)
    }
}

#[cfg(test)]
#[path = "deferred_tests.rs"]
mod tests;
