//! Writing in the calling thread: everything that is older than a position, or those of some frames that are dirty.
//!
//! Where there is no room for all of them together it is tried with fewer, down to one, and goes on with the places that those
//! before have left. It goes on where it was: the frames are gone over twice at most, however few pages find room at a time.
//!
//! Locking: as `write`.

use crate::pool::Pool;
use crate::write::WriteBatch;
use ferrite_types::{Error, Lsn, Result};

/// Where not all that is to be written has room, the places of so many pages are worth a flush of the log, after which others
/// may have them: one page at a time would take minutes.
const LEAST_LEFT_PAGES: usize = 8;

/// How far it has got.
#[derive(Default)]
pub(crate) struct SoFar {
    /// All frames before this one were looked at.
    next: usize,
    /// Pages written.
    pages: usize,
}

impl Pool {
    /// Writes every page first changed before `lsn` now, in the calling thread.
    ///
    /// # Errors
    /// `DiskFull` or `Io`: the rest stays dirty. `Corrupt`: of a page that cannot be read changes stay in
    /// the change buffer; all others are written.
    pub fn flush_all_below(&self, lsn: Lsn) -> Result<usize> {
        self.flush_all_below_unless(lsn, &|| false)
    }

    /// As [`Pool::flush_all_below`], until somebody has had `enough`. That is asked before each few of the pages that are read
    /// for it, which may be most of those there are.
    ///
    /// # Errors
    /// Also `Interrupted`: enough.
    pub fn flush_all_below_unless(&self, lsn: Lsn, enough: &dyn Fn() -> bool) -> Result<usize> {
        let mut batch = self.new_write_batch();
        // Those that are dirty leave a place each: else all of them count as pages that are still to find one. Where they find
        // none, nothing is merged.
        let first = match self.change_buffer().pages() > 0 && self.is_short_of_room() {
            true => self.flush_below_with(lsn, &mut batch),
            false => Ok(0),
        };
        let all = first.and_then(|first| {
            let merged = self.merge_all_below(lsn, enough);
            if enough() {
                return Err(Error::Interrupted);
            }
            let written = self.flush_below_with(lsn, &mut batch);
            merged.and(written).map(|written| first + written)
        });
        self.end_batch(batch);
        all
    }

    /// As [`Pool::flush_all_below`], without what is kept. What finds no room at first may find what others have left.
    pub(crate) fn flush_below_with(&self, lsn: Lsn, batch: &mut WriteBatch) -> Result<usize> {
        let due = |nth: usize| {
            let frame = self.frame(nth as u32);
            let is_due = frame.rec_lsn().is_some_and(|rec| rec < lsn) && frame.page().0 != 0;
            is_due.then_some(nth as u32)
        };
        let written = self.write_as_places_come(self.frame_count(), due, batch)?;
        // Frames of pages that were replaced or dropped hold redo back until nobody can see them
        // any more. With the writer thread stopped nobody else looks.
        self.reclaim_retired();
        Ok(written)
    }

    /// As [`Pool::write_frames`], and what finds no room may find the places that those before it have left. Gives the number
    /// of pages.
    pub(crate) fn write_as_places_come(
        &self,
        frames: usize,
        frame: impl Fn(usize) -> Option<u32>,
        batch: &mut WriteBatch,
    ) -> Result<usize> {
        let (mut so_far, mut before) = (SoFar::default(), 0);
        let (mut lacked_room, mut is_second) = (false, false);
        loop {
            match self.write_frames(frames, &frame, batch, &mut so_far) {
                // While there was no room, a writer may have had some in its hands, in vain.
                Ok(()) if lacked_room && !is_second => (so_far.next, is_second) = (0, true),
                Ok(()) => return Ok(so_far.pages),
                Err(Error::DiskFull(_)) if so_far.pages >= before + LEAST_LEFT_PAGES => {
                    lacked_room = true;
                }
                Err(e) => return Err(e),
            }
            before = so_far.pages;
            self.log.flush_to(self.log.current_lsn());
            self.store.reclaim(self.log.durable_lsn());
        }
    }

    /// Writes those of the frames that are dirty, fewer at a time where there is no room for them together. Want of room is
    /// noted.
    ///
    /// # Errors
    /// `DiskFull`: there is no room for one alone; `Io`. Those from there on stay dirty, and `so_far` says where it was.
    pub(crate) fn write_frames(
        &self,
        frames: usize,
        frame: impl Fn(usize) -> Option<u32>,
        batch: &mut WriteBatch,
        so_far: &mut SoFar,
    ) -> Result<()> {
        assert!(batch.pages() == 0, "{} pages of others", batch.pages());
        let mut most = usize::MAX;
        while so_far.next < frames {
            let (mut first, mut next) = (so_far.next, so_far.next);
            while next < frames && batch.pages() < most {
                if frame(next).is_some_and(|f| !self.copy_trial(f, batch)) {
                    break;
                }
                next += 1;
                if batch.pages() == 0 {
                    // There is nothing to be tried again.
                    first = next;
                }
            }
            assert!(
                next == frames || batch.pages() > 0,
                "an empty batch has no room"
            );
            so_far.next = next;
            let tried = batch.pages();
            match self.write_out(batch) {
                Ok(count) => {
                    self.note_trial(tried, true);
                    so_far.pages += count;
                    most = most.saturating_mul(2);
                }
                Err(e) => {
                    so_far.next = first;
                    if !matches!(e, Error::DiskFull(_)) {
                        return Err(e);
                    }
                    self.note_trial(tried, false);
                    self.note_failure(&e);
                    if tried == 1 {
                        return Err(e);
                    }
                    most = tried / 2;
                }
            }
        }
        debug_assert!(batch.pages() == 0, "{} are not written", batch.pages());
        Ok(())
    }
}
