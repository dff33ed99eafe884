//! The large transactions that a crash cut off, while they are being rolled back (`settle`).
//!
//! While there are some, each row that is read is asked about: whoever is not below `end` is none of them.
//!
//! Locking: `slots`, then a slot's mutex.

use crate::state::known_undo::KnownUndo;
use crate::state::slot::TxnSlot;
use ferrite_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{Arc, Counter, RwLock};
use ferrite_types::{Error, TxnId};
use std::collections::{BTreeMap, BTreeSet};

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Unsettled {
    slots: RwLock<Slots>,
    left: AtomicUsize,
    /// Above the id of each.
    end: AtomicU64,
    /// Waits of readers.
    pub waits: Counter,
}

#[derive(Default)]
struct Slots {
    entries: BTreeMap<TxnId, Entry>,
    /// Those that nobody has claimed, with their undo: that with the least comes first.
    unclaimed: BTreeSet<(u64, TxnId)>,
}

struct Entry {
    slot: Arc<TxnSlot>,
    /// Undo that it had at the start, in bytes.
    undo_bytes: u64,
    /// What it had changed, for readers. None: it has not been read, or is too much.
    known: Option<KnownUndo>,
    /// Why that was given up.
    failed: Option<Error>,
}

/// What who wants to settle a transaction learns.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// It is settled, or never was one of them.
    Settled,
    /// It is for the caller to settle.
    Mine,
    /// Somebody else is at it.
    Others,
    /// It was given up for this reason.
    Failed(Error),
}

impl Unsettled {
    pub(crate) fn add(&self, slot: Arc<TxnSlot>) {
        let (txn, undo_bytes) = {
            let state = slot.state.lock();
            (state.txn, state.undo.position().0)
        };
        assert!(!txn.is_frozen(), "one without an id");
        let entry = Entry {
            slot,
            undo_bytes,
            known: None,
            failed: None,
        };
        let mut slots = self.slots.write();
        slots.unclaimed.insert((undo_bytes, txn));
        let before = slots.entries.insert(txn, entry);
        drop(slots);
        assert!(before.is_none(), "transaction {txn} is settled twice");
        self.end.fetch_max(txn.get() + 1, Ordering::SeqCst);
        self.left.fetch_add(1, Ordering::SeqCst);
    }

    /// How many are left.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    /// How many of them are to be rolled back.
    pub(crate) fn cut_off(&self) -> usize {
        let slots = self.slots.read();
        let cut_off = |l: &&Entry| !l.slot.state.lock().is_prepared();
        slots.entries.values().filter(cut_off).count()
    }

    /// What is asked of one of them; none of others.
    #[inline]
    fn of<T>(&self, txn: TxnId, ask: impl FnOnce(&Entry) -> T) -> Option<T> {
        let none = self.count() == 0 || txn.is_frozen();
        if none || txn.get() >= self.end.load(Ordering::Acquire) {
            return None;
        }
        self.slots.read().entries.get(&txn).map(ask)
    }

    /// Is this one of them?
    #[inline]
    pub(crate) fn has(&self, txn: TxnId) -> bool {
        self.of(txn, |_| ()).is_some()
    }

    /// Is this one of them, and what was before its changes is not known?
    #[inline]
    pub(crate) fn is_unknown(&self, txn: TxnId) -> bool {
        self.of(txn, |l| l.known.is_none()).unwrap_or(false)
    }

    /// Asks what is known of that one, and its slot. Whoever asks takes no lock but the slot's.
    #[inline]
    pub(crate) fn ask<T>(
        &self,
        txn: TxnId,
        ask: impl FnOnce(&KnownUndo, &TxnSlot) -> T,
    ) -> Option<T> {
        let known = |l: &Entry| l.known.as_ref().map(|known| ask(known, &l.slot));
        self.of(txn, known).flatten()
    }

    /// From now on readers know what was before its changes, unless it is settled already.
    pub(crate) fn learn(&self, txn: TxnId, known: KnownUndo) {
        let mut slots = self.slots.write();
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return;
        };
        assert!(entry.known.is_none(), "the undo of {txn} is read twice");
        entry.known = Some(known);
    }

    /// Memory of what is known, in bytes.
    pub(crate) fn known_bytes(&self) -> usize {
        let slots = self.slots.read();
        let known = slots.entries.values().filter_map(|l| l.known.as_ref());
        known.map(|k| k.memory_bytes()).sum()
    }

    /// All of them, those with the least undo first.
    pub(crate) fn all(&self) -> Vec<(TxnId, Arc<TxnSlot>)> {
        let slots = self.slots.read();
        let mut all: Vec<_> = slots.entries.iter().collect();
        all.sort_by_key(|(_, l)| l.undo_bytes);
        all.into_iter()
            .map(|(txn, l)| (*txn, l.slot.clone()))
            .collect()
    }

    /// Claims the one to be settled next: that with the least undo, so that few rows wait long.
    pub(crate) fn next(&self) -> Option<(TxnId, Arc<TxnSlot>)> {
        let mut slots = self.slots.write();
        let (_, txn) = slots.unclaimed.pop_first()?;
        let next = slots.entries.get_mut(&txn).expect("it is one of them");
        debug_assert!(next.failed.is_none(), "{txn} was given up by nobody");
        Some((txn, next.slot.clone()))
    }

    /// It is given up, for this reason.
    pub(crate) fn fail(&self, txn: TxnId, reason: Error) {
        let mut slots = self.slots.write();
        let failed = &mut slots
            .entries
            .get_mut(&txn)
            .expect("it is one of them")
            .failed;
        debug_assert!(failed.is_none(), "{txn} is given up twice");
        *failed = Some(reason);
    }

    /// The caller wants to settle that one.
    pub(crate) fn claim(&self, txn: TxnId) -> Claim {
        let mut slots = self.slots.write();
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return Claim::Settled;
        };
        if let Some(reason) = &entry.failed {
            return Claim::Failed(reason.clone());
        }
        let place = (entry.undo_bytes, txn);
        match slots.unclaimed.remove(&place) {
            true => Claim::Mine,
            false => Claim::Others,
        }
    }

    /// Why nobody need wait any more: those that are left have failed.
    pub(crate) fn stuck(&self) -> Option<Error> {
        let slots = self.slots.read();
        let all = slots.entries.values().all(|l| l.failed.is_some());
        slots
            .entries
            .values()
            .next()
            .filter(|_| all)?
            .failed
            .clone()
    }

    pub(crate) fn done(&self, txn: TxnId) {
        let mut slots = self.slots.write();
        let was = slots.entries.remove(&txn);
        let was = was.expect("it is one of them");
        slots.unclaimed.remove(&(was.undo_bytes, txn));
        drop(slots);
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        assert!(left > 0, "more are settled than there were");
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

    /// One that fails holds neither the others up nor, once they are done, a reader.
    #[test]
    fn nobody_waits_for_a_rollback_that_has_failed() {
        let unsettled = Unsettled::default();
        unsettled.add(slot(1));
        unsettled.add(slot(2));
        let damage = Error::Corrupt("page 7".into());
        assert_eq!(unsettled.claim(TxnId(1)), Claim::Mine);
        assert_eq!(unsettled.claim(TxnId(1)), Claim::Others);
        unsettled.fail(TxnId(1), damage.clone());
        assert_eq!(unsettled.stuck(), None);
        assert_eq!(unsettled.next().expect("one is left").0, TxnId(2));
        assert_eq!(unsettled.claim(TxnId(1)), Claim::Failed(damage.clone()));
        assert_eq!(unsettled.claim(TxnId(2)), Claim::Others);
        unsettled.done(TxnId(2));
        assert_eq!(unsettled.claim(TxnId(2)), Claim::Settled);
        assert!(unsettled.next().is_none());
        assert_eq!(unsettled.stuck(), Some(damage));
        assert!(unsettled.has(TxnId(1)) && unsettled.count() == 1);
        unsettled.done(TxnId(1));
        assert_eq!(unsettled.stuck(), None);
    }
}
