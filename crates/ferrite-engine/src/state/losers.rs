//! The large transactions that a crash cut off, while they are being rolled back (`loser_rollback`).
//!
//! Locking: `slots` is a leaf.

use crate::state::known_undo::KnownUndo;
use crate::state::slot::TxnSlot;
use ferrite_sync::atomic::{AtomicUsize, Ordering};
use ferrite_sync::{Arc, Counter, Mutex};
use ferrite_types::{Error, TxnId};

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
    /// What it had changed, for readers. None: it has not been read, or is too much.
    known: Option<Arc<KnownUndo>>,
    /// Why its rollback was given up.
    failed: Option<Error>,
}

impl Losers {
    pub(crate) fn add(&self, slot: Arc<TxnSlot>) {
        let txn = slot.state.lock().txn;
        assert!(!txn.is_frozen(), "a loser has an id");
        debug_assert!(!self.has(txn), "transaction {txn} is rolled back twice");
        self.slots.lock().push(Loser {
            txn,
            slot,
            known: None,
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

    /// Is this one of them, and what was before its changes is not known?
    #[inline]
    pub(crate) fn is_unknown(&self, txn: TxnId) -> bool {
        let unknown = |l: &Loser| l.txn == txn && l.known.is_none();
        self.count() > 0 && self.slots.lock().iter().any(unknown)
    }

    /// What is known of that one, and where its rollback is.
    #[inline]
    pub(crate) fn known(&self, txn: TxnId) -> Option<(Arc<KnownUndo>, Arc<TxnSlot>)> {
        if self.count() == 0 {
            return None;
        }
        let slots = self.slots.lock();
        let loser = slots.iter().find(|l| l.txn == txn)?;
        debug_assert!(!txn.is_frozen(), "what is frozen has no loser made");
        Some((loser.known.clone()?, loser.slot.clone()))
    }

    /// From now on readers know what was before its changes.
    pub(crate) fn learn(&self, txn: TxnId, known: KnownUndo) {
        let mut slots = self.slots.lock();
        let loser = slots.iter_mut().find(|l| l.txn == txn);
        let loser = loser.expect("it is one of them");
        assert!(loser.known.is_none(), "the undo of {txn} is read twice");
        loser.known = Some(Arc::new(known));
    }

    /// Memory of what is known, in bytes.
    pub(crate) fn known_bytes(&self) -> usize {
        let slots = self.slots.lock();
        let known = slots.iter().filter_map(|l| l.known.as_ref());
        known.map(|k| k.memory_bytes()).sum()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<(TxnId, Arc<TxnSlot>)> {
        let slots = self.slots.lock();
        slots.iter().map(|l| (l.txn, l.slot.clone())).collect()
    }

    pub(crate) fn next(&self) -> Option<(TxnId, Arc<TxnSlot>)> {
        let slots = self.slots.lock();
        let next = slots.iter().find(|l| l.failed.is_none())?;
        Some((next.txn, next.slot.clone()))
    }

    /// Its rollback is given up.
    pub(crate) fn fail(&self, txn: TxnId, reason: Error) {
        let mut slots = self.slots.lock();
        let loser = slots.iter_mut().find(|l| l.txn == txn);
        let failed = &mut loser.expect("it is one of them").failed;
        debug_assert!(failed.is_none(), "the rollback of {txn} is given up twice");
        *failed = Some(reason);
    }

    /// Why nobody need wait any more: those that are left have failed.
    pub(crate) fn stuck(&self) -> Option<Error> {
        let slots = self.slots.lock();
        let all = slots.iter().all(|l| l.failed.is_some());
        slots.first().filter(|_| all)?.failed.clone()
    }

    pub(crate) fn done(&self, txn: TxnId) {
        let mut slots = self.slots.lock();
        let before = slots.len();
        slots.retain(|l| l.txn != txn);
        assert_eq!(slots.len() + 1, before, "{txn} is not one of them");
        drop(slots);
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        assert!(left > 0, "more losers end than there were");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_lock::Owner;

    fn slot(txn: u64) -> Arc<TxnSlot> {
        let slot = Arc::new(TxnSlot::new(Owner::new(0, 0)));
        slot.state.lock().begin(TxnId(txn));
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
