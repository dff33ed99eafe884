//! Memory of history that nothing else makes less has an end.
//!
//! Versions beyond the history ring go to scratch files. Where they cannot (no space, an error),
//! they stay in memory; they may exceed the ring by as much again, or by [`LEAST_BEYOND`] if that
//! is more. The deleted entries that only old snapshots need stay in memory always; with them it
//! may be [`LEAST_WITH_GRAVES`]: a dump beside a large DELETE is no emergency. Beyond
//! that the oldest snapshot ends (its reader gets `SnapshotTooOld`), one after another until
//! there is room, but for those opened since the last commit, which hold nothing. What is left then
//! is what running transactions have changed: while it cannot be written out, whoever changes more
//! rows gets `DiskFull`.
//!
//! Values out of line that only old snapshots need lie on disk; what they take in memory counts, too.
//! They are freed by purge, which is asked to look at them when a snapshot ends. What counts is what snapshots that
//! are open now are known to need: freeing the rest may take minutes, in which no other one ends for its sake.
//!
//! `ferrite_max_history_bytes` is another limit, of all versions, deleted entries and such values. For
//! its sake a snapshot ends only if something may go with it: what running transactions have changed
//! stays, whoever reads, and while that may be all, younger snapshots are spared for longer.
//!
//! Locking: none of its own; the history thread alone calls it.

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::slot::TxnSlot;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{time, Arc};
use ferrite_types::Csn;

/// Memory beyond the ring that versions may always take (bytes).
const LEAST_BEYOND: u64 = 256 << 20;
/// The same for versions and deleted entries together.
const LEAST_WITH_GRAVES: u64 = 1 << 30;

/// Snapshots end for the sake of the configured limit after this time, in microseconds: most that
/// are younger end by themselves before anything more is kept for them.
const SPARED_US: u64 = 1_000_000;
/// The same while running transactions alone may exceed it.
const SPARED_BESIDE_WRITERS_US: u64 = 60_000_000;
const _: () = assert!(SPARED_US < SPARED_BESIDE_WRITERS_US);

impl Engine {
    /// Beyond the configured limit the oldest snapshot ends.
    pub(crate) fn limit_history(&self) {
        let limit = self.max_history_bytes.load(Ordering::Relaxed);
        if limit == 0 {
            return;
        }
        let versions = self.versions.stats();
        let bytes = versions.young_bytes + versions.old_bytes + versions.spilled_bytes;
        let bytes = bytes + self.archived().1;
        let (held_memory, held_disk) = self.purge.held_bytes();
        if bytes + held_memory + held_disk <= limit {
            return;
        }
        let (needed_memory, needed_disk) = self.needed_values();
        let bytes = bytes + needed_memory + needed_disk;
        if bytes <= limit {
            return;
        }
        // Not all undo has versions: what is old is ended all the same.
        let is_of_running = bytes.saturating_sub(self.undo_of_running()) <= limit;
        let spared_us = match is_of_running {
            true => SPARED_BESIDE_WRITERS_US,
            false => SPARED_US,
        };
        if !self.is_held_by_snapshot_older_than(spared_us) {
            return;
        }
        if let Some(ended) = self.txns.expire_oldest() {
            let text = format!(
                "history exceeds ferrite_max_history_bytes: the snapshot of connection {} was \
                 ended",
                ended.info.thread_id
            );
            self.callbacks.log(LogLevel::Warning, &text);
            self.drop_unneeded_history();
            self.purge.look_at_held();
        }
    }

    /// Undo of transactions that have not ended, in bytes: about as much as the versions that they made. Nobody is waited for:
    /// who changes his undo may wait for room.
    fn undo_of_running(&self) -> u64 {
        let of = |slot: &Arc<TxnSlot>| slot.figures.undo_bytes();
        self.all_slots().iter().map(of).sum()
    }

    /// Has the oldest snapshot been open for so long, and was something committed since?
    fn is_held_by_snapshot_older_than(&self, spared_us: u64) -> bool {
        let mut oldest: Option<(Csn, u64)> = None;
        self.txns.each_snapshot(&mut |view| {
            let this = (view.csn, view.opened_us);
            oldest = Some(oldest.map_or(this, |o| o.min(this)));
        });
        oldest.is_some_and(|(csn, opened_us)| {
            debug_assert!(csn <= self.txns.last_csn(), "a snapshot of the future");
            csn < self.txns.last_csn() && opened_us + spared_us <= time::now_us()
        })
    }

    /// Memory at which snapshots end, with `least` beyond the ring: see the head of the file.
    fn limit_with(&self, least: u64) -> u64 {
        let ring = self.versions.memory_bytes() as u64;
        let beyond = match self.config.history_beyond_ring_bytes {
            0 => ring.max(least),
            bytes => bytes,
        };
        ring.saturating_add(beyond)
    }

    /// Memory that versions may take which cannot be written out.
    pub(crate) fn most_stuck_bytes(&self) -> u64 {
        self.limit_with(LEAST_BEYOND)
    }

    /// Counting the deleted entries takes a look at every open table: between two rounds of sweeping
    /// only when there were many.
    pub(crate) fn is_worth_counting(&self, archived: u64) -> bool {
        archived > self.limit_with(LEAST_WITH_GRAVES) / 8
    }

    /// `archived`: memory of deleted entries, as of a moment ago.
    fn is_history_beyond(&self, archived: u64) -> bool {
        let stuck = self.versions.stuck_bytes();
        stuck > self.most_stuck_bytes() || stuck + archived > self.limit_with(LEAST_WITH_GRAVES)
    }

    /// Ends snapshots until the memory of history is within its limit; says whether writers must
    /// stop. `archived` as above; `look`: it is worth a look at all versions although none ended.
    pub(crate) fn limit_history_memory(&self, archived: u64, look: bool) {
        if !self.is_history_beyond(archived) {
            self.history_full.store(false, Ordering::Relaxed);
            self.limit_held_memory(archived);
            return;
        }
        if self.history_full.load(Ordering::Relaxed) && !look {
            return;
        }
        // What is kept for a snapshot has been replaced since it was opened: nothing goes with one
        // that sees all there is now. Readers that come and go are spared, and do not hide that what
        // is left is of running transactions.
        let newest = self.txns.last_csn();
        loop {
            self.drop_unneeded_history();
            // Then nothing was looked through, and no snapshot has to end for it.
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if !self.is_history_beyond(self.archived().1) {
                self.history_full.store(false, Ordering::Relaxed);
                return;
            }
            // Those opened meanwhile are seen to in the next round.
            let Some(ended) = self.txns.expire_oldest_before(newest) else {
                break;
            };
            assert!(ended.csn < newest, "its end lets nothing go");
            let text = format!(
                "row versions ({} MiB) and deleted rows ({} MiB) that are kept for old snapshots \
                 and cannot be written to scratch files exceed the memory limit: the snapshot of \
                 connection {} was ended",
                self.versions.stuck_bytes() >> 20,
                self.archived().1 >> 20,
                ended.info.thread_id
            );
            self.callbacks.log(LogLevel::Warning, &text);
        }
        let full = self.versions.cannot_spill();
        if full && !self.history_full.swap(true, Ordering::Relaxed) {
            let text = "row versions of running transactions have reached the memory limit and \
                        cannot be written to scratch files: row changes are refused until these \
                        transactions end";
            self.callbacks.log(LogLevel::Warning, text);
        }
    }

    /// Bytes in memory and on disk of held values that open snapshots need. While the log is nearly out nobody finds out,
    /// and some only wait for it.
    fn needed_values(&self) -> (u64, u64) {
        match self.log.is_nearly_out() {
            true => (0, 0),
            false => self.purge.needed_bytes(&self.txns.listed_csns()),
        }
    }

    /// With what values out of line take in memory it is too much: the oldest snapshot ends.
    fn limit_held_memory(&self, archived: u64) {
        let (held, _) = self.purge.held_bytes();
        if held == 0 || !self.is_history_beyond(archived + held) {
            return;
        }
        let (needed, _) = self.needed_values();
        if needed == 0 || !self.is_history_beyond(archived + needed) {
            return;
        }
        if let Some(ended) = self.txns.expire_oldest_before(self.txns.last_csn()) {
            let text = format!(
                "{} MiB of memory for values out of line that are kept for old snapshots exceed the \
                 limit: the snapshot of connection {} was ended",
                held >> 20,
                ended.info.thread_id
            );
            self.callbacks.log(LogLevel::Warning, &text);
            self.purge.look_at_held();
        }
    }

    /// What nobody needs any more goes now.
    pub(crate) fn drop_unneeded_history(&self) {
        self.txns.refresh();
        self.versions.retire(&self.txns);
        self.versions.sweep_old(&self.txns);
        self.sweep_archives();
    }
}

#[cfg(test)]
mod tests {
    use crate::rows::write::DupInfo;
    use crate::testing::{create, open};
    use crate::transaction::session::Session;
    use ferrite_io::sim::SimStorage;
    use ferrite_sync::thread;

    /// The thread that limits history also ends the waits of others at a shutdown: it waits for nobody who waits for room.
    #[test]
    fn undo_is_counted_beside_who_adds_to_it() {
        let engine = open(&SimStorage::new(1));
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(engine.undo_of_running(), 0);
        let dup = &mut DupInfo::default();
        s.insert_row(&t, Some(&[1]), &[0; 100], &[], false, dup)
            .unwrap();
        let expected = s.undo_position().0;
        let at_work = s.txn.slot.state.lock();
        let same = engine.clone();
        let counts = thread::spawn("counts", move || same.undo_of_running());
        for _ in 0..2000 {
            if !counts.is_finished() {
                thread::sleep_ms(5);
            }
        }
        let is_finished = counts.is_finished();
        drop(at_work);
        let counted = counts.join().unwrap();
        assert!(is_finished, "it waits for the slot");
        assert_eq!(counted, expected);
        s.rollback().unwrap();
        assert_eq!(engine.undo_of_running(), 0);
        drop((s, t));
        engine.close().unwrap();
    }
}
