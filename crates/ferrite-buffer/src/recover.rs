//! Redo at start: one thread, before anybody else sees the pool. A writer of pages may run
//! beside it (the pool may be smaller than the work): of a page that it copies and that redo
//! changes before the copy is written, the next redo must begin at redo's place, not at the log's
//! end. And a frame that redo has found may be made free before it is latched: it is looked at
//! again under the latch.

use crate::pool::{kind_of, Pool};
use ferrite_store::{Location, Word};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::kill_point;
use ferrite_types::{IndexId, Lsn, PageId, Result};

impl Pool {
    /// Applies one logged change, the record from `start` to `lsn`, to a page, unless the page
    /// has it.
    /// `creates`: the change gives the page its whole content (any older content is gone).
    /// A page that is neither created nor present was freed later in the log: skipped.
    ///
    /// # Errors
    /// What `change` returns, or a page that cannot be read.
    pub fn redo(
        &self,
        page: PageId,
        index: IndexId,
        (start, lsn): (Lsn, Lsn),
        creates: bool,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        // Before the page is latched: a copy for write-back that does not have this change must
        // know where the next one may come from.
        assert!(start < lsn, "a record from {start:?} to {lsn:?}");
        let before = self.writer.redo_at.swap(start.0, Ordering::SeqCst);
        assert!(
            before <= start.0 || before == u64::MAX,
            "redo goes back from {before} to {start:?}"
        );
        loop {
            let Some(f) = self.redo_frame(page, creates)? else {
                return Ok(());
            };
            kill_point!("buffer.redo_found");
            let frame = self.frame(f);
            self.latch_exclusive(frame, page);
            // A change of a frame that the writer of pages has just made free would be lost.
            let there = self.latched_kind(f, page).is_some()
                || ferrite_sync::mutant!("buffer.redo_frame_not_checked");
            let result = match there {
                true => self.redo_latched(f, index, (start, lsn), creates, change),
                false => Ok(()),
            };
            frame.latch.unlock_exclusive();
            if there {
                return result;
            }
        }
    }

    /// The change itself, under the frame's exclusive latch.
    fn redo_latched(
        &self,
        f: u32,
        index: IndexId,
        (start, lsn): (Lsn, Lsn),
        creates: bool,
        change: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let frame = self.frame(f);
        debug_assert!(
            frame.latch.is_exclusive(),
            "{} is not latched",
            frame.page()
        );
        if frame.lsn() >= lsn && !(creates && frame.lsn() == Lsn::ZERO) {
            return Ok(());
        }
        // SAFETY: exclusive latch, and recovery has the pool for itself: even an inner node has
        // no reader yet.
        let bytes = unsafe { self.arena().page_mut(f) };
        change(bytes)?;
        // The start: the next recovery must read this record again.
        if frame.mark_dirty(start) {
            self.dirty_queue.lock().push_back(f);
        }
        assert!(
            frame.rec_lsn().is_some_and(|rec| rec <= start),
            "the next redo of {} begins behind {start:?}",
            frame.page()
        );
        frame.set_index(index.0);
        frame.set_lsn(lsn);
        frame.set_kind(kind_of(bytes));
        Ok(())
    }

    fn redo_frame(&self, page: PageId, creates: bool) -> Result<Option<u32>> {
        let word = self.store.directory().get(page);
        if word.is_free() {
            if !creates {
                return Ok(None);
            }
            let f = self.take_frame()?;
            let frame = self.frame(f);
            frame.assign(page, 0, Location::NONE);
            frame.set_lsn(Lsn::ZERO);
            frame.set_kind(crate::frame::Kind::Leaf);
            self.store.set_location(page, Location::NONE);
            let before = self
                .store
                .directory()
                .word(page)
                .swap(Word::resident(f).0, Ordering::SeqCst);
            assert!(before == Word::FREE.0, "{page} was at {before:#x}");
            return Ok(Some(f));
        }
        self.resident(page)
    }
}
