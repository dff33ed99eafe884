//! Scrubbing (`ferrite_scrub`): what was deleted does not stay in the files.
//!
//! | where it would stay | what happens |
//! | --- | --- |
//! | free space in the store: old states of pages, dropped tables | overwritten in the background (`Store::scrub_round`) |
//! | gaps in a leaf | pages are written without any (`node::strip_and_scrub_for_write`) |
//! | log files to be used again | overwritten before (`ferrite-redo/src/segments.rs`) |
//! | `undo.spill` | chunks are overwritten once no checkpoint names them |
//! | records that are delete-marked | at a clean end they are purged before the last pages are written |
//! | the log, both checkpoints | at a clean end: everything a restart does not need |
//!
//! What is on disk if we die: each step may be missing, none takes away anything that a restart
//! reads. Free space is looked through again by the next start.
//!
//! Locking: none of its own.

use crate::maintenance::cleaner::Cleaner;
use crate::maintenance::trouble::Trouble;
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, thread, time};
use ferrite_types::{Lsn, Result};

/// Between two looks whether purge gets on, in ms; after so many in vain a clean end waits for it no more.
const LOOK_MS: u64 = 20;
const LOOKS_IN_VAIN: u32 = 250;
/// A clean end that waits for purge so long says so, in us.
const TOLD_US: u64 = 10_000_000;
const _: () = assert!(TOLD_US > LOOK_MS * LOOKS_IN_VAIN as u64 * 1000);

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

    /// A clean end, while all threads still run: what was deleted until now is purged, or the last pages would be written
    /// with whole records that are only delete-marked, and nobody would come to them soon. What a snapshot or a lock needs
    /// stays; and all of it, if for want of room or frames purge does not get on.
    pub(crate) fn purge_before_end(&self) {
        if !self.scrub.load(Ordering::Relaxed) || self.stopping() {
            return;
        }
        let since_us = time::now_us();
        self.purge.look_at_held();
        let mut by = Cleaner::default();
        let (mut in_vain, mut is_told, mut steps) = (0, false, self.purge.steps());
        while self.purge.has_unseen(since_us) && in_vain < LOOKS_IN_VAIN {
            if self.purge.is_held_back() {
                break;
            }
            self.txns.refresh_if_stale();
            // The helpers may have taken all of it, or there are none.
            let may_purge = self.before_step(&mut by).is_ok();
            if !may_purge || self.purge_round(&mut by) == 0 {
                thread::sleep_ms(LOOK_MS);
            }
            in_vain += 1;
            if std::mem::replace(&mut steps, self.purge.steps()) != steps {
                in_vain = 0;
            }
            if !is_told && time::now_us() - since_us > TOLD_US {
                is_told = true;
                self.tell_of_unpurged(LogLevel::Note, "are purged before the shutdown goes on");
            }
        }
        if self.purge.length() > 0 {
            let what = "could not be purged: what they deleted stays in the files";
            self.tell_of_unpurged(LogLevel::Warning, what);
        }
    }

    fn tell_of_unpurged(&self, level: LogLevel, what: &str) {
        let length = self.purge.length();
        let text = format!("{length} transactions that deleted or changed rows {what}");
        self.callbacks.log(level, &text);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::purge_work::Garbage;
    use crate::testing::{create, open};
    use ferrite_io::sim::SimStorage;
    use ferrite_types::TxnId;

    /// What nobody can purge holds no shutdown up without an end.
    #[test]
    fn a_clean_end_does_not_wait_for_a_purge_that_does_not_get_on() {
        let engine = open(&SimStorage::new(3));
        let table = create(&engine);
        engine.set_scrub(true);
        engine.purge.hold_back(true);
        let piece = Garbage::entry(&table, 0, b"key", true);
        engine.purge.add(TxnId::FROZEN, vec![piece]);
        assert!(engine.purge.has_unseen(time::now_us()));
        let begun_us = time::now_us();
        engine.purge_before_end();
        assert!(time::now_us() - begun_us < TOLD_US);
        assert_eq!(engine.purge.length(), 1);
        engine.purge.hold_back(false);
        engine.purge_before_end();
        assert_eq!(engine.purge.length(), 0);
        assert!(!engine.purge.has_unseen(u64::MAX));
        engine.close().unwrap();
    }
}
