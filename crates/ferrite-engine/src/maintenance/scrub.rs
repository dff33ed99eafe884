//! Scrubbing (`ferrite_scrub`): what was deleted does not stay in the files.
//!
//! | where it would stay | what happens |
//! | --- | --- |
//! | free space in the store: old states of pages, dropped tables | overwritten in the background (`Store::scrub_round`) |
//! | gaps in a leaf | pages are written without any (`node::strip_and_scrub_for_write`) |
//! | log files to be used again | overwritten before (`ferrite-redo/src/segments.rs`) |
//! | `undo.spill` | chunks are overwritten once no checkpoint names them |
//! | the log, both checkpoints | at a clean end: everything a restart does not need |
//!
//! What is on disk if we die: each step may be missing, none takes away anything that a restart
//! reads. Free space is looked through again by the next start.
//!
//! Locking: none of its own.

use crate::maintenance::trouble::Trouble;
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, time};
use ferrite_types::{Lsn, Result};

impl Engine {
    /// Switches it on or off, and sees to what is in the files already.
    pub(crate) fn set_scrub(&self, on: bool) {
        self.scrub.store(on, Ordering::SeqCst);
        self.log.set_scrub(on);
        self.store.keep_blocks_apart(on);
        if let Err(e) = self.undo_area.set_scrub(on) {
            self.cannot_scrub(&e.to_string());
        }
    }

    fn cannot_scrub(&self, why: &str) {
        let text = format!("cannot overwrite deleted data: {why}");
        self.callbacks.log(LogLevel::Warning, &text);
    }

    /// A little of it, from time to time.
    pub(crate) fn scrub_some(&self, trouble: &mut Trouble) {
        if !self.scrub.load(Ordering::Relaxed) || !trouble.may_try(time::now_us()) {
            return;
        }
        let result = self.store.scrub_round();
        // What failed comes again when everything else has had its turn: until then it has not succeeded.
        if !result.as_ref().is_ok_and(|looked| *looked > 0) {
            trouble.tell(self, &result.map(drop), time::now_us());
        }
    }

    /// A clean end, after the last page was written: nothing but zeroes is left in free space, and
    /// in neither checkpoint is anything of a transaction that has ended.
    pub(crate) fn scrub_before_end(&self) {
        if !self.scrub.load(Ordering::Relaxed) {
            return;
        }
        if let Err(e) = self.scrub_all() {
            self.cannot_scrub(&e.to_string());
        }
    }

    fn scrub_all(&self) -> Result<()> {
        // A restart begins behind this, in a block that holds nothing else.
        self.log.pad();
        self.checkpoint()?;
        self.checkpoint()?;
        kill_point!("scrub.checkpoints_written");
        self.store.reclaim(self.log.durable_lsn());
        // Nothing is written or freed any more.
        self.store.scrub_all()
    }

    /// The last step: nobody appends any more.
    pub(crate) fn scrub_log(&self) {
        if !self.scrub.load(Ordering::Relaxed) {
            return;
        }
        let from = Lsn(self.checkpoint_lsn.load(Ordering::SeqCst));
        assert!(from <= self.log.current_lsn(), "the log ends before {from}");
        if let Err(e) = self.log.scrub_before(from) {
            self.cannot_scrub(&e.to_string());
        }
    }
}
