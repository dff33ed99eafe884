//! Transactions of before a crash whose rows are settled while the database is open: those beyond the smallest, of
//! which as many are settled before anybody comes as have `Config::background_undo_bytes` of undo in all. What had not
//! prepared is rolled back. What had waits for its decision, and the versions of its rows are made again.
//!
//! Of one that is left the rows stay locked by its id, as they were; writers wait for it as for any other holder.
//! Versions of its rows died with the process; a reader who needs an earlier state finds it in the
//! undo list, which is read for that first (`known_undo`), or waits until all of it is settled (of one that is rolled
//! back: the row) if that is too large. A stop in the middle is harmless: each step of a rollback is logged, and the next
//! start goes on; versions are made again from the beginning. One that cannot be settled (a damaged page) stays as it
//! is until the next start; who waits for it gets the reason.
//!
//! Locking: none of its own.

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::garbage::GarbageList;
use crate::state::known_undo::KnownUndo;
use crate::state::slot::TxnSlot;
use crate::state::transaction::{Phase, Transaction};
use crate::transaction::session::Session;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::{waiting, Of, Reason};
use ferrite_sync::{kill_point, thread, time, Arc};
use ferrite_types::{Error, Result, TxnId, UndoPosition};

/// Between two looks of a waiting reader, in ms.
const LOOK_MS: u64 = 2;
/// Transactions of less undo are rolled back without a word: there may be many.
const TOLD_BYTES: u64 = 1 << 20;
/// Undo that is kept in memory for readers: at most one part in so many of the buffer pool's size ...
const KNOWN_PART: u64 = 4;
/// ... and so many bytes, since nobody is served while it is read.
const KNOWN_MOST_BYTES: u64 = 1 << 30;

impl Engine {
    /// Rolls one back and ends it.
    ///
    /// # Errors
    /// `Interrupted` by a stop; a page that cannot be read. It can be rolled back again.
    pub(crate) fn roll_back_loser(&self, slot: &Arc<TxnSlot>) -> Result<()> {
        let mut loser = Transaction::recovered(slot.clone(), GarbageList::default());
        assert_eq!(
            loser.phase(),
            Phase::Active,
            "a prepared transaction is rolled back"
        );
        let end = loser.roll_back(self, true)?;
        debug_assert_eq!(
            slot.state.lock().undo.position(),
            UndoPosition::START,
            "changes are left"
        );
        self.log.request_flush(end);
        Ok(())
    }

    /// Reads what they had changed, so that readers need not wait until they are settled.
    pub(crate) fn learn_undo(&self) {
        let mut left = (self.pool.size_bytes() / KNOWN_PART).min(KNOWN_MOST_BYTES);
        for (txn, slot) in self.unsettled.all() {
            let (bytes, list) = {
                let state = slot.state.lock();
                // A prepared one may be decided meanwhile.
                if state.txn != txn || state.undo.position() == UndoPosition::START {
                    continue;
                }
                (state.undo.position().0, state.undo.backwards())
            };
            // With the places of its entries, 16 bytes for one of 12 or more.
            if bytes + bytes * 4 / 3 > left || self.stop.load(Ordering::SeqCst) {
                return;
            }
            let (known, fault) = KnownUndo::read(list, &self.undo_area);
            // What cannot be read now is not known: the rollback will say so.
            if fault.is_none() {
                left = left.saturating_sub(known.memory_bytes() as u64);
                self.unsettled.learn(txn, known);
                kill_point!("rollback.undo_known");
            }
        }
    }

    /// Body of the thread that settles them.
    pub(crate) fn run_rollback(&self) {
        self.learn_undo();
        while let Some((txn, slot)) = self.unsettled.next() {
            let is_prepared = slot.state.lock().is_prepared();
            let result = match is_prepared {
                true => self.settle_prepared(txn, &slot),
                false => self.settle_loser(txn, &slot),
            };
            if result == Err(Error::Interrupted) {
                return;
            }
        }
    }

    fn settle_loser(&self, txn: TxnId, slot: &Arc<TxnSlot>) -> Result<()> {
        let since_us = time::now_us();
        let undo = slot.state.lock().undo.position();
        match ferrite_buffer::patiently(|| self.roll_back_loser(slot)) {
            Ok(()) => {
                assert!(slot.state.lock().txn.is_frozen(), "{txn} has not ended");
                self.forget_slot(slot);
                self.settled(txn, "was rolled back", undo, since_us);
                Ok(())
            }
            Err(e) => Err(self.give_up(txn, "cannot be rolled back", e)),
        }
    }

    /// Makes the versions of a prepared one again. It stays, and may be decided then.
    ///
    /// # Errors
    /// Why they cannot be made: it can only be rolled back. `Interrupted` by a stop.
    pub(crate) fn settle_prepared(&self, txn: TxnId, slot: &Arc<TxnSlot>) -> Result<()> {
        let since_us = time::now_us();
        let undo = slot.state.lock().undo.position();
        match ferrite_buffer::patiently(|| self.restore_versions(slot, true)) {
            Ok(()) => {
                self.settled(
                    txn,
                    "is prepared and has its versions again",
                    undo,
                    since_us,
                );
                Ok(())
            }
            Err(e) => {
                let what = "cannot get its versions again and can only be rolled back";
                Err(self.give_up(txn, what, e))
            }
        }
    }

    /// Readers find what is in the pages from here on.
    fn settled(&self, txn: TxnId, what: &str, undo: UndoPosition, since_us: u64) {
        kill_point!("rollback.settled");
        self.unsettled.done(txn);
        debug_assert!(!self.unsettled.has(txn), "readers ask the undo of {txn}");
        if undo.0 >= TOLD_BYTES {
            let ms = (time::now_us() - since_us) / 1000;
            let text = format!(
                "transaction {txn} from before the restart {what}: {undo} bytes of undo in {ms} ms"
            );
            self.callbacks.log(LogLevel::Note, &text);
        }
    }

    /// It stays as it is until the next start, unless a stop was in the way. Returns the reason.
    fn give_up(&self, txn: TxnId, what: &str, reason: Error) -> Error {
        if reason != Error::Interrupted {
            let text = format!(
                "transaction {txn} from before the restart {what}; its rows stay locked: {reason}"
            );
            self.callbacks.log(LogLevel::Error, &text);
            self.unsettled.fail(txn, reason.clone());
        }
        reason
    }
}

impl Session {
    /// A row is not settled yet: look again in a moment.
    ///
    /// # Errors
    /// `Interrupted` by KILL; the reason why that was given up.
    pub(crate) fn wait_for_rollback(&self) -> Result<()> {
        self.engine.unsettled.waits.inc();
        if let Some(reason) = self.engine.unsettled.stuck() {
            return Err(reason);
        }
        waiting(Reason::Rollback, Of::Nothing, || thread::sleep_ms(LOOK_MS));
        if self.engine.callbacks.is_killed(self.thd) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}
