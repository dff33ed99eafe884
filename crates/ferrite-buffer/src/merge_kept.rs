//! Reading the pages whose changes are in the change buffer, before it is full, before the log is too
//! long, or because nobody does anything else.
//!
//! Who reads a page merges what is kept for it ([`Pool::merge_kept`]); here it is decided which are
//! read. Several at a time, as in `read_ahead`: the pages come in cold, are dirty, and go with the
//! next batches of the writer threads.
//!
//! With little room on the disk (`room`) it is a few at a time, and who has read them writes them: so each leaves its old
//! place before the next one needs another, and hardly a frame is dirty because of it. While some of them cannot be
//! written no others are read.
//!
//! Locking: as `read_ahead`. Nothing is held between two reads.

use crate::ahead_state::together;
use crate::evict::is_for_want_of_a_frame;
use crate::flush::SoFar;
use crate::frame::Kind;
use crate::pool::Pool;
use crate::read_ahead::Work;
use crate::room::MergeAllowance;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::kill_point;
use ferrite_types::{Error, Lsn, PageId, Result};
use std::collections::BTreeSet;

/// Pages of one round in which nothing presses.
const IDLE_PAGES: usize = 64;
/// Pages of one round for the log's sake.
const ROUND_PAGES: usize = 1024;

/// Pages of one round of the sweep behind a start: several threads are to have some to the end.
const SWEEP_PAGES: usize = 64;

/// What one who merges remembers from round to round.
pub struct Merging {
    work: Work,
    pages: Vec<PageId>,
    /// Changes that had been kept at the last round.
    seen: u64,
    /// Pages that it has read while there was little room, and that could not be written.
    unwritten: Vec<PageId>,
}

impl Pool {
    /// For [`Pool::merge_round`].
    pub fn merging(&self) -> Merging {
        Merging {
            work: self.reading_work(),
            pages: Vec::new(),
            seen: 0,
            unwritten: Vec::new(),
        }
    }

    /// Waits until there may be something to merge, for so many us at the most.
    pub fn wait_for_kept(&self, us: u64) {
        self.changes.work.wait_timeout_us(us);
    }

    /// Ends such a wait.
    pub fn wake_merging(&self) {
        self.changes.work.set();
    }

    /// Merges some pages, those that are due. Returns how many (0: none is due, or there is no room for one), and why one of
    /// them could not be read: its changes stay.
    pub fn merge_round(&self, merging: &mut Merging) -> (usize, Option<(PageId, Error)>) {
        merging.pages.clear();
        let allowance = self.allow_merges();
        if allowance.is_none() {
            // They are written as all others.
            merging.unwritten.clear();
        } else {
            // Why it failed is noted.
            let _ = self.write_merged(&mut merging.unwritten);
            if !merging.unwritten.is_empty() || self.lacks_frames() {
                return (0, None);
            }
        }
        self.choose_due(allowance, merging);
        debug_assert!(merging.pages.iter().all(|p| *p != PageId::NONE));
        let read = self.read_all(&mut merging.work, &merging.pages);
        if allowance.is_some() {
            merging.unwritten.extend_from_slice(&merging.pages);
            if read.as_ref().is_err_and(|(_, e)| is_for_want_of_a_frame(e)) {
                // None of them is at fault: they come again.
                self.sweep_last(&merging.pages);
            }
            // Else it is tried again in the next round.
            let _ = self.write_merged(&mut merging.unwritten);
        }
        (merging.pages.len(), read.err())
    }

    /// The pages of this round.
    fn choose_due(&self, allowance: Option<MergeAllowance>, merging: &mut Merging) {
        let changes = &self.changes;
        let (any, pressing) = allowance.map_or((usize::MAX, usize::MAX), |a| (a.any, a.pressing));
        let seen = changes.changes.get();
        let quiet = seen == merging.seen;
        merging.seen = seen;
        let below = Lsn(self.writer.flush_below.load(Ordering::SeqCst));
        let pages = &mut merging.pages;
        self.next_of_sweep(SWEEP_PAGES.min(pressing), pages);
        if !pages.is_empty() {
            // Pages that recovery has left.
            debug_assert!(pages.len() <= SWEEP_PAGES);
            return;
        }
        if changes.end_sharing() {
            // Those that are left follow in the next rounds.
            return;
        }
        let holds_log = changes.oldest().is_some_and(|oldest| oldest < below);
        let is_full = changes.bytes() > self.change_buffer_limit_bytes() / 4 * 3;
        if is_full && (allowance.is_none() || !holds_log) {
            changes.fullest(pages);
            pages.truncate(any);
            // As many for the log: under a dense load it is full all the time, and those that hold the log back may
            // never be the fullest. The same page twice does no harm.
            let (below, most) = match allowance {
                None => (
                    below,
                    pages.len() + pages.len().clamp(IDLE_PAGES, ROUND_PAGES),
                ),
                // There is hardly more than one of each shard, and no more such rounds before the next look.
                Some(_) => (Lsn::MAX, any),
            };
            changes.older_than(below, most, pages);
        } else if holds_log {
            changes.older_than(below, ROUND_PAGES.min(pressing), pages);
        } else if quiet {
            changes.older_than(Lsn::MAX, IDLE_PAGES.min(any), pages);
        }
    }

    /// Writes those of the pages that are dirty, and sees to it that the places they leave can be used soon. Those that are
    /// dirty still stay on the list.
    ///
    /// # Errors
    /// Why one could not be written.
    fn write_merged(&self, pages: &mut Vec<PageId>) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        // The places that the rounds before have left.
        self.store.reclaim(self.log.durable_lsn());
        let frame_of = |page: PageId| self.store.directory().get(page).as_frame();
        let mut batch = self.new_write_batch();
        let frames = pages.len();
        let of = |nth: usize| frame_of(pages[nth]);
        let written = self.write_frames(frames, of, &mut batch, &mut SoFar::default());
        self.end_batch(batch);
        if let Err(e) = &written {
            self.note_failure(e);
        }
        self.log.request_flush(self.log.current_lsn());
        self.wake_writer();
        // A writer may have had one in its hands, and failed.
        pages.retain(|p| frame_of(*p).is_some_and(|f| self.frame(f).is_dirty()));
        written
    }

    /// Redoes some of the pages that recovery has left, for threads beside the one that merges. Gives how many: 0 while there
    /// is little room, when who merges goes on alone, a few pages at a time. None, and the thread is to end: there are none
    /// any more, or one could not be read. That one is left to who merges, to be told.
    pub fn sweep_round(&self, merging: &mut Merging) -> Option<usize> {
        if self.is_short_of_room() && self.is_sweeping() {
            return Some(0);
        }
        merging.pages.clear();
        self.next_of_sweep(SWEEP_PAGES, &mut merging.pages);
        debug_assert!(merging.pages.len() <= SWEEP_PAGES);
        if let Err((page, _)) = self.read_all(&mut merging.work, &merging.pages) {
            self.sweep_last(&[page]);
            return None;
        }
        let redone = merging.pages.len();
        (redone > 0).then_some(redone)
    }

    /// Reads the pages, as far as there are frames at once. Gives the number of those that came.
    pub(crate) fn read_these(
        &self,
        merging: &mut Merging,
        pages: impl Iterator<Item = PageId>,
    ) -> usize {
        debug_assert!(!self.epochs.is_pinned_here(), "pages are read under a pin");
        merging.work.ids.clear();
        merging.work.ids.extend(pages);
        self.read_ids(&mut merging.work)
    }

    /// Writes what is dirty and drops every page that nobody uses, so that changes are kept for
    /// those that come next. For tests.
    ///
    /// # Errors
    /// `DiskFull` or `Io`: nothing was dropped.
    pub fn make_cold(&self) -> Result<()> {
        let mut batch = self.new_write_batch();
        let written = self.flush_below_with(Lsn::MAX, &mut batch);
        self.end_batch(batch);
        written?;
        for f in 0..self.frame_count() as u32 {
            let kind = self.frame(f).kind();
            if kind == Kind::Leaf && !self.frame(f).is_dirty() {
                if let Some(f) = self.evict_clean(f, kind) {
                    self.give_back(f);
                }
            }
        }
        Ok(())
    }

    /// Merges everything that is kept and begins before `lsn`, but for pages that cannot be read: some at a time, which are
    /// written before the next, and as long as there is room for that.
    ///
    /// # Errors
    /// Why the first of these could not be read: what is kept for them stays. `DiskFull`, `Interrupted` or no frame, or why
    /// one could not be written: the rest was not tried. `Interrupted` also if `enough`, asked before each few.
    pub(crate) fn merge_all_below(&self, lsn: Lsn, enough: &dyn Fn() -> bool) -> Result<()> {
        let mut merging = self.merging();
        let (mut failed, mut result) = (BTreeSet::<PageId>::new(), Ok(()));
        let mut room = 0;
        while self.changes.oldest().is_some_and(|oldest| oldest < lsn) {
            if enough() {
                return Err(Error::Interrupted);
            }
            if room == 0 {
                room = self.room_for_merging(lsn)?;
            }
            let most = self.most_merged().min(room);
            let pages = &mut merging.pages;
            pages.clear();
            self.changes.older_than(lsn, most + failed.len(), pages);
            pages.retain(|page| !failed.contains(page));
            pages.truncate(most);
            if pages.is_empty() {
                break;
            }
            room -= pages.len();
            let read = self.read_all(&mut merging.work, pages);
            // Who changes one again has it written later.
            merging.unwritten.clone_from(&merging.pages);
            self.write_merged(&mut merging.unwritten)?;
            if let Err((_, e)) = read {
                if ends_merging(&e) || self.writer.is_stopped() {
                    return Err(e);
                }
                let pages = merging.pages.iter();
                failed.extend(pages.filter(|page| self.changes.has(**page)));
                result = result.and(Err(e));
            }
        }
        result
    }

    /// Every one of the pages has been in memory afterwards, or is no more; or it could not be read:
    /// the first error. It ends at one that the others would meet, too.
    fn read_all(
        &self,
        work: &mut Work,
        pages: &[PageId],
    ) -> std::result::Result<(), (PageId, Error)> {
        let mut result = Ok(());
        debug_assert!(!self.epochs.is_pinned_here(), "pages are read under a pin");
        for some in pages.chunks(together(self.frames.limit())) {
            work.ids.clear();
            work.ids.extend_from_slice(some);
            self.read_ids(work);
            kill_point!("buffer.kept_merged");
            // Without a frame at once, or if it cannot be read: that is waited for, and told.
            for page in some.iter().filter(|page| self.changes.has(**page)) {
                let Err(e) = self.read_in(*page) else {
                    continue;
                };
                if ends_merging(&e) || self.writer.is_stopped() {
                    return Err((*page, in_merge(*page, e)));
                }
                result = result.and(Err((*page, in_merge(*page, e))));
            }
        }
        result
    }
}

/// Is it not about the one page that was to be read?
fn ends_merging(e: &Error) -> bool {
    is_for_want_of_a_frame(e) || !matches!(e, Error::Corrupt(_) | Error::Io(_))
}

fn in_merge(page: PageId, e: Error) -> Error {
    let told =
        |text: String| format!("changes that are kept for page {page} cannot be merged: {text}");
    match e {
        e if is_for_want_of_a_frame(&e) => e,
        Error::Corrupt(text) => Error::Corrupt(told(text)),
        Error::Io(text) => Error::Io(told(text)),
        other => other,
    }
}

#[cfg(test)]
#[path = "merge_kept_tests.rs"]
mod tests;
