//! Redo at start, before anybody else sees the pool. Several threads may redo pages, each page by
//! one of them at a time. A writer of pages may run beside them (the pool may be smaller than the
//! work): of a page that it copies and that redo changes before the copy is written, the next redo
//! must begin at redo's place, not at the log's end. And a frame that redo has found may be made
//! free before it is latched: it is looked at again under the latch.
//!
//! Invariant: no change is redone that begins before the position of the last
//! [`Pool::redo_from`], and that position only rises.

use crate::frame::Frame;
use crate::page_prefix;
use crate::pool::{kind_of, Pool};
use ferrite_store::{Location, Word};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::kill_point;
use ferrite_types::{Error, Lsn, PageId, Result};

/// One log record's changes of a page, as far as the pool must know them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RedoStep {
    /// Where the record begins.
    pub start: Lsn,
    /// Where it ends: the page's LSN once it has the changes.
    pub end: Lsn,
    /// The changes give the page its whole content (any older content is gone).
    pub creates: bool,
}

/// What is known of a page's blob without reading it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlobState {
    /// It was written before the log that is read: it has none of the changes.
    Old,
    /// It has exactly the changes up to there.
    Has(Lsn),
    /// It was written since; only the blob itself tells what it has.
    Unknown,
}

impl Pool {
    /// From here on no change is redone that begins before this position.
    pub fn redo_from(&self, start: Lsn) {
        // Before a page is latched: a copy for write-back that does not have a change must know
        // where the next one may come from.
        let before = self.writer.redo_at.swap(start.0, Ordering::SeqCst);
        assert!(
            before <= start.0 || before == u64::MAX,
            "redo goes back from {before} to {start:?}"
        );
    }

    /// Applies logged changes, in the order of the log, to a page, but those that the page has.
    /// `apply` is called with the number of a step and the page's bytes.
    ///
    /// A page that is not present and that no step creates was freed later in the log: skipped.
    /// A page that is created is not read, unless it may be newer than its creation.
    ///
    /// Returns the number of steps applied.
    ///
    /// # Errors
    /// What `apply` returns, or a page that cannot be read.
    pub fn redo(
        &self,
        page: PageId,
        blob: BlobState,
        steps: &[RedoStep],
        apply: &mut dyn FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<usize> {
        let from = self.writer.redo_at.load(Ordering::SeqCst);
        assert!(!steps.is_empty(), "nothing to redo in {page}");
        assert!(
            steps.iter().all(|s| s.start < s.end && from <= s.start.0),
            "redo of {page}, before {from}"
        );
        assert!(
            steps.windows(2).all(|pair| pair[0].end <= pair[1].start),
            "the changes of {page} are out of order"
        );
        // What comes before the last creation is gone with it.
        let first = steps.iter().rposition(|s| s.creates).unwrap_or(0);
        loop {
            let Some(f) = self.redo_frame(page, blob, steps.get(first))? else {
                return Ok(0);
            };
            kill_point!("buffer.redo_found");
            let frame = self.frame(f);
            self.latch_exclusive(frame, page);
            // A change of a frame that the writer of pages has just made free would be lost.
            let there = self.latched_kind(f, page).is_some()
                || ferrite_sync::mutant!("buffer.redo_frame_not_checked");
            let result = match there {
                true => self.redo_latched(f, blob, first, steps, apply),
                false => Ok(0),
            };
            frame.latch.unlock_exclusive();
            if there {
                return result;
            }
        }
    }

    /// The changes themselves, under the frame's exclusive latch.
    fn redo_latched(
        &self,
        f: u32,
        blob: BlobState,
        first: usize,
        steps: &[RedoStep],
        apply: &mut dyn FnMut(usize, &mut [u8]) -> Result<()>,
    ) -> Result<usize> {
        let frame = self.frame(f);
        let page = frame.page();
        debug_assert!(frame.latch.is_exclusive(), "{page} is not latched");
        self.check_blob(f, blob)?;
        let mut applied = 0;
        for (nth, step) in steps.iter().enumerate().skip(first) {
            let has = frame.lsn() >= step.end;
            if has && !ferrite_sync::mutant!("buffer.current_page_is_old") {
                continue;
            }
            // SAFETY: exclusive latch, and recovery has the pool for itself: even an inner node has
            // no reader yet.
            let bytes = unsafe { self.arena().page_mut(f) };
            // Much may be redone in many pages: they are written as a whole.
            self.forget_changes(f);
            apply(nth, bytes)?;
            // The start: the next recovery must read this record again.
            if frame.mark_dirty(step.start) {
                self.dirty_queue.push(&self.frames, f);
            }
            assert!(
                frame.rec_lsn().is_some_and(|rec| rec <= step.start),
                "the next redo of {page} begins behind {:?}",
                step.start
            );
            frame.set_index(page_prefix::index(bytes));
            frame.set_lsn(step.end);
            frame.set_kind(kind_of(bytes));
            applied += 1;
        }
        Ok(applied)
    }

    /// Changes that the log says are in the blob are not redone: they must be there.
    fn check_blob(&self, f: u32, blob: BlobState) -> Result<()> {
        let frame = self.frame(f);
        let BlobState::Has(lsn) = blob else {
            return Ok(());
        };
        if frame.lsn() < lsn && frame.lsn() != Lsn::ZERO {
            return Err(older_state(frame, lsn));
        }
        Ok(())
    }

    /// The page's frame, read or made; `first` is the first step that counts.
    fn redo_frame(
        &self,
        page: PageId,
        blob: BlobState,
        first: Option<&RedoStep>,
    ) -> Result<Option<u32>> {
        let creates = first.is_some_and(|step| step.creates);
        loop {
            let word = self.store.directory().get(page);
            if word.as_frame().is_some() || (!creates && !word.is_free()) {
                return self.resident(page);
            }
            let Some(at) = word.as_location() else {
                if !creates {
                    return Ok(None);
                }
                if let Some(f) = self.redo_new(page, Location::NONE)? {
                    return Ok(Some(f));
                }
                continue;
            };
            if blob == BlobState::Unknown {
                return self.resident(page);
            }
            if let Some(f) = self.redo_new(page, at)? {
                return Ok(Some(f));
            }
        }
    }

    /// A frame for a page that gets its whole content now, whatever is at `at`. None when its
    /// directory word has changed meanwhile.
    fn redo_new(&self, page: PageId, at: Location) -> Result<Option<u32>> {
        let f = self.take_frame()?;
        let frame = self.frame(f);
        frame.assign(page, 0, at.stored());
        frame.set_lsn(Lsn::ZERO);
        frame.set_kind(crate::frame::Kind::Leaf);
        if at.is_none() {
            self.store.reach(page);
        }
        let (old, new) = (Word::on_disk(at).0, Word::resident(f).0);
        let word = self.store.directory().word(page);
        let shown = word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst);
        if shown.is_ok() {
            debug_assert!(!frame.is_dirty(), "{page} is dirty and has no content");
            // What a batch before could not read. Nobody has the page yet.
            self.forget_kept(page);
            return Ok(Some(f));
        }
        self.give_back(f);
        Ok(None)
    }
}

/// The page on disk is not the one that the log says was written last, at `least`.
pub(crate) fn older_state(frame: &Frame, least: Lsn) -> Error {
    let (page, has) = (frame.page(), frame.lsn());
    debug_assert!(has < least, "{page} has {has}, of {least}");
    Error::Corrupt(format!(
        "page {page}: an older state, of position {has}; the log says that position {least} was \
         written"
    ))
}
