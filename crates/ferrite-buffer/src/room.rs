//! The page writer on a full disk: how many pages it tries at a time, and whether changes are refused.
//!
//! Changes are refused ([`Pool::refusal`]) from a write that failed on, and when the files are
//! shorter than they should be and get no longer: what was let in is to be written out, and
//! rollbacks, which move pages, are to find places for them. Deletions make room in the end: they
//! are let in as long as the free space has places for all pages that are dirty and a few more, so
//! that a database that has filled its disk is not stuck. Every round of a writer looks again, so
//! no refusal lasts longer than its reason.
//!
//! Invariant: `trial` is at least 1. Locking: `failure` is a leaf.

use crate::pool::Pool;
use crate::write::WriteBatch;
use ferrite_store::Ahead;
use ferrite_sync::atomic::Ordering;
use ferrite_types::format::{Codec, Packing};
use ferrite_types::{Error, Result};

/// After a failure so many dirty pages are tried at a time: the frames of readers have to come from
/// clean ones. With each failure it is half as many, down to one page, which may find room where two
/// do not, and leaves its old place; with each success twice as many.
const TRIAL_PAGES: usize = 8;

impl Pool {
    /// So many pages were written, or could not be.
    pub(crate) fn note_trial(&self, tried: usize, written: bool) {
        let trial = &self.writer.trial;
        match (tried, written) {
            (0, _) => {}
            (_, true) => {
                let more = trial.load(Ordering::Relaxed).saturating_mul(2);
                trial.store(more, Ordering::Relaxed);
            }
            (n, false) => {
                trial.store((n / 2).clamp(1, TRIAL_PAGES), Ordering::Relaxed);
            }
        }
        debug_assert!(
            self.most_copied() > 0,
            "{tried} pages, and none the next time"
        );
    }

    /// What was to be written was, or there was nothing: may there be more of it? While changes are refused
    /// no page gets dirty: room alone must end that.
    pub(crate) fn note_room(&self, grown: &Result<Ahead>) {
        match grown {
            Ok(Ahead::Busy) => {}
            Err(e) => match self.has_room() {
                true => self.note_little(e),
                false => self.note_failure(e),
            },
            // Free space enough, and pages find hardly any: that one did says little of the next.
            Ok(Ahead::Enough)
                if self.is_tight() && self.to_be_written() > 0 && !self.has_room() => {}
            _ => self.note_success(),
        }
    }

    /// Pages that are dirty, or will be when they are read.
    fn to_be_written(&self) -> usize {
        self.dirty_pages() + self.changes.pages()
    }

    /// Could all dirty pages be written now, and more? A walk over frames and free space.
    #[cold]
    fn has_room(&self) -> bool {
        self.store.has_room_for(self.to_be_written() as u64)
    }

    /// Pages that are copied into a batch before it is written.
    pub(crate) fn most_copied(&self) -> usize {
        let most = self.writer.trial.load(Ordering::Relaxed);
        assert!(most > 0, "no page is tried");
        most
    }

    /// Of late pages could not be written.
    pub(crate) fn is_tight(&self) -> bool {
        self.most_copied() <= TRIAL_PAGES
    }

    /// As [`Pool::copy_into`]; few pages after none could be written.
    pub(crate) fn copy_trial(&self, f: u32, batch: &mut WriteBatch) -> bool {
        batch.pages() < self.most_copied() && self.copy_into(f, batch)
    }

    pub(crate) fn note_failure(&self, error: &Error) {
        self.writer.disk_full.store(true, Ordering::SeqCst);
        *self.writer.failure.lock() = Some(error.clone());
    }

    fn note_little(&self, error: &Error) {
        debug_assert!(
            !matches!(error, Error::Interrupted),
            "no reason why files do not grow"
        );
        *self.writer.failure.lock() = Some(error.clone());
        self.writer.little_room.store(true, Ordering::SeqCst);
        self.writer.disk_full.store(false, Ordering::SeqCst);
    }

    fn note_success(&self) {
        let was_little = self.writer.little_room.swap(false, Ordering::SeqCst);
        if self.writer.disk_full.swap(false, Ordering::SeqCst) || was_little {
            *self.writer.failure.lock() = None;
        }
    }

    /// The reason why changes are refused at the moment, if so. `deletes`: those that make room in the
    /// end.
    pub fn refusal(&self, deletes: bool) -> Option<Error> {
        if deletes || !self.writer.little_room.load(Ordering::Relaxed) {
            return self.write_failure();
        }
        self.writer.failure.lock().clone()
    }

    /// The reason why pages cannot be written at the moment, if so.
    pub fn write_failure(&self) -> Option<Error> {
        if !self.writer.disk_full.load(Ordering::Relaxed) {
            return None;
        }
        self.writer.failure.lock().clone()
    }

    /// How a page is packed that is to be packed like that. With hardly any room left what is shorter
    /// may find some, whatever the table's setting.
    pub(crate) fn packing_with(&self, wish: Packing) -> Packing {
        match wish.codec == Codec::None && self.is_tight() {
            true => Packing::of(Codec::Lz4),
            false => wish,
        }
    }
}
