//! Large transactions that a crash cut off: rolled back while the database is open.
//!
//! Small ones (`Config::background_undo_bytes`) are rolled back before anybody comes. Of a large one the rows stay locked by its
//! id, as they were; writers wait for it as for any other holder. Versions of its rows died
//! with the process, so a reader who needs an earlier state waits until the row is rolled
//! back. A stop in the middle is harmless: each step is logged, and the next start goes on.
//! One that cannot be rolled back (a damaged page) stays as it is until the next start; who waits
//! for it gets the reason.
//!
//! Locking: `slots` is a leaf.

use crate::callbacks::LogLevel;
use crate::engine::Engine;
use crate::session::{Session, TxnSlot};
use ferrite_sync::atomic::{AtomicUsize, Ordering};
use ferrite_sync::waits::{waiting, Of, Reason};
use ferrite_sync::{thread, time, Arc, Counter, Mutex};
use ferrite_types::{Error, Result, TxnId};

/// Between two looks of a waiting reader, in ms.
const LOOK_MS: u64 = 2;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Losers {
    slots: Mutex<Vec<Loser>>,
    left: AtomicUsize,
    /// Waits of readers.
    pub waits: Counter,
}

struct Loser {
    txn: TxnId,
    slot: Arc<TxnSlot>,
    /// Why its rollback was given up.
    failed: Option<Error>,
}

impl Losers {
    pub(crate) fn add(&self, slot: Arc<TxnSlot>) {
        let txn = slot.state.lock().txn;
        self.slots.lock().push(Loser {
            txn,
            slot,
            failed: None,
        });
        self.left.fetch_add(1, Ordering::SeqCst);
    }

    /// How many are left.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    /// Is this one of them?
    #[inline]
    pub(crate) fn has(&self, txn: TxnId) -> bool {
        self.count() > 0 && self.slots.lock().iter().any(|l| l.txn == txn)
    }

    fn next(&self) -> Option<(TxnId, Arc<TxnSlot>)> {
        let slots = self.slots.lock();
        let next = slots.iter().find(|l| l.failed.is_none())?;
        Some((next.txn, next.slot.clone()))
    }

    /// Its rollback is given up.
    fn fail(&self, txn: TxnId, reason: Error) {
        let mut slots = self.slots.lock();
        let loser = slots.iter_mut().find(|l| l.txn == txn);
        loser.expect("it is one of them").failed = Some(reason);
    }

    /// Why nobody need wait any more: those that are left have failed.
    fn stuck(&self) -> Option<Error> {
        let slots = self.slots.lock();
        let all = slots.iter().all(|l| l.failed.is_some());
        slots.first().filter(|_| all)?.failed.clone()
    }

    fn done(&self, txn: TxnId) {
        self.slots.lock().retain(|l| l.txn != txn);
        self.left.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Engine {
    /// Body of the thread that rolls them back.
    pub(crate) fn run_rollback(&self) {
        while let Some((txn, slot)) = self.losers.next() {
            let since = time::now_us();
            let bytes = slot.state.lock().undo.position();
            let result = ferrite_buffer::patiently(|| self.rollback_detached(&slot, true));
            let ms = (time::now_us() - since) / 1000;
            match result {
                Ok(()) => {
                    self.forget_slot(&slot);
                    self.losers.done(txn);
                    let text = format!(
                        "transaction {txn} from before the restart is rolled back: {bytes} bytes \
                         of undo in {ms} ms"
                    );
                    self.callbacks.log(LogLevel::Note, &text);
                }
                Err(Error::Interrupted) => return,
                Err(e) => {
                    let text = format!(
                        "transaction {txn} from before the restart cannot be rolled back, its \
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

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_lock::Owner;

    fn slot(txn: u64) -> Arc<TxnSlot> {
        let slot = Arc::new(TxnSlot::new(Owner::new(0, 0)));
        slot.state.lock().txn = TxnId(txn);
        slot
    }

    /// A rollback that fails holds neither the others up nor, once they are done, a reader.
    #[test]
    fn nobody_waits_for_a_rollback_that_has_failed() {
        let losers = Losers::default();
        losers.add(slot(1));
        losers.add(slot(2));
        let damage = Error::Corrupt("page 7".into());
        losers.fail(TxnId(1), damage.clone());
        assert_eq!(losers.stuck(), None);
        assert_eq!(losers.next().expect("one is left").0, TxnId(2));
        losers.done(TxnId(2));
        assert!(losers.next().is_none());
        assert_eq!(losers.stuck(), Some(damage));
        assert!(losers.has(TxnId(1)) && losers.count() == 1);
        losers.done(TxnId(1));
        assert_eq!(losers.stuck(), None);
    }
}
