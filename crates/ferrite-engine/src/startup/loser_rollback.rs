//! Transactions that a crash cut off and that are rolled back while the database is open: those beyond the smallest,
//! of which as many are rolled back before anybody comes as have `Config::background_undo_bytes` of undo in all.
//!
//! Of one that is left the rows stay locked by its id, as they were; writers wait for it as for any other holder.
//! Versions of its rows died with the process; a reader who needs an earlier state finds it in the
//! undo list, which is read for that first (`known_undo`), or waits until the row is rolled back if
//! that is too large. A stop in the middle is harmless: each step is logged, and the next
//! start goes on. One that cannot be rolled back (a damaged page) stays as it is until the next
//! start; who waits for it gets the reason.
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
use ferrite_types::{Error, Result, UndoPosition};

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

    /// Reads what the losers had changed, so that readers need not wait for their rollback.
    pub(crate) fn learn_undo(&self) {
        let mut left = (self.pool.size_bytes() / KNOWN_PART).min(KNOWN_MOST_BYTES);
        for (txn, slot) in self.losers.all() {
            let (bytes, list) = {
                let state = slot.state.lock();
                assert_eq!(state.txn, txn, "the slot is of another transaction");
                (state.undo.position().0, state.undo.backwards())
            };
            debug_assert!(bytes > 0, "nothing of {txn} is to be undone");
            // With the places of its entries, which take half as much again.
            if bytes + bytes / 2 > left || self.stop.load(Ordering::SeqCst) {
                return;
            }
            let (known, fault) = KnownUndo::read(list, &self.undo_area);
            // What cannot be read now is not known: the rollback will say so.
            if fault.is_none() {
                left = left.saturating_sub(known.memory_bytes() as u64);
                self.losers.learn(txn, known);
                kill_point!("rollback.undo_known");
            }
        }
    }

    /// Body of the thread that rolls them back.
    pub(crate) fn run_rollback(&self) {
        self.learn_undo();
        while let Some((txn, slot)) = self.losers.next() {
            let since = time::now_us();
            let bytes = slot.state.lock().undo.position();
            let result = ferrite_buffer::patiently(|| self.roll_back_loser(&slot));
            let ms = (time::now_us() - since) / 1000;
            match result {
                Ok(()) => {
                    self.forget_slot(&slot);
                    self.losers.done(txn);
                    if bytes.0 >= TOLD_BYTES {
                        let text = format!(
                            "transaction {txn} from before the restart was rolled back: {bytes} \
                             bytes of undo in {ms} ms"
                        );
                        self.callbacks.log(LogLevel::Note, &text);
                    }
                }
                Err(Error::Interrupted) => return,
                Err(e) => {
                    let text = format!(
                        "transaction {txn} from before the restart cannot be rolled back; its \
                         rows stay locked: {e}"
                    );
                    self.callbacks.log(LogLevel::Error, &text);
                    self.losers.fail(txn, e);
                }
            }
        }
    }
}

impl Session {
    /// A row is still being rolled back: look again in a moment.
    ///
    /// # Errors
    /// `Interrupted` by KILL; the reason why the rollback was given up.
    pub(crate) fn wait_for_rollback(&self) -> Result<()> {
        self.engine.losers.waits.inc();
        if let Some(reason) = self.engine.losers.stuck() {
            return Err(reason);
        }
        waiting(Reason::Rollback, Of::Nothing, || thread::sleep_ms(LOOK_MS));
        if self.engine.callbacks.is_killed(self.thd) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}
