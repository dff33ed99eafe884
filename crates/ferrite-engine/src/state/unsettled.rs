//! The large transactions from before a restart, while they are settled (`settle`): those that the crash cut off, or that
//! the start has decided to roll back, are rolled back, and prepared ones are given their versions again.
//!
//! While there are some, each row that is read is asked about: whoever is not below `end` is none of them. One that has
//! all its versions and is rolled back is not either: its rows are read as those of any session's transaction.
//!
//! Beside them are transactions of this life that nobody else would roll back any more, and whose rollback has failed: the
//! connection has gone, or the server has forgotten the name (`take_over`).
//!
//! One that could not be settled is given up. What the thread has given up, a rollback or versions, it tries again from time
//! to time (`retry`), behind all others but versions that wait for room, and readers get the reason until it succeeds. A
//! decision by a statement does not wait for that: unless the thread is at it, it tries at once (`claim_or_await`), versions
//! from where the other got to. One whose rollback by a statement has failed is for the next such statement.
//!
//! Invariant: what is to be done with one is what its slot says at that moment. A decision of the start changes the slot
//! first, and tells of it here afterwards (`hand_over`, `forget`); who was making versions meanwhile lets go of it
//! (`end_of_versions`). So one is settled by one thread at a time, and none is left to nobody.
//!
//! Locking: `slots`, then the slot's mutex of one that nobody is at. Who takes back a change has that of his and may wait for
//! room: nobody waits for him with `slots` in hand, for which all readers would wait behind the first who changes it.

use crate::state::known_undo::KnownUndo;
use crate::state::slot::TxnSlot;
use crate::state::slot_figures::SlotFigures;
use ferrite_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{Arc, Counter, RwLock};
use ferrite_types::{Error, IndexId, Result, TxnId};
use std::collections::{BTreeMap, BTreeSet};

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Unsettled {
    slots: RwLock<Slots>,
    left: AtomicUsize,
    /// Above the id of each.
    end: AtomicU64,
    /// Undo of those that the start has decided to roll back and has undone at once, in bytes.
    undone_at_once: AtomicU64,
    /// Memory of what is known, in bytes, when it was last asked for.
    shown_bytes: AtomicU64,
    /// Waits of readers.
    pub waits: Counter,
}

#[derive(Default)]
struct Slots {
    entries: BTreeMap<TxnId, Entry>,
    /// Those that nobody has claimed and that are to be rolled back, with their undo: that with the least comes first.
    rollbacks: BTreeSet<(u64, TxnId)>,
    /// The same of those that were prepared when they came here: one that the start decides to roll back is here until
    /// that is told.
    prepared: BTreeSet<(u64, TxnId)>,
    /// Those that were given up and are to be tried again.
    retried: BTreeSet<(u64, TxnId)>,
    /// A prepared one was put back while there were some of these: now it is their turn. Else one whose versions wait for room
    /// would be taken again and again.
    is_turn_of_retried: bool,
    /// A thread asks for the next one until there is none.
    has_thread: bool,
}

impl Slots {
    /// The unclaimed one to be settled next.
    fn first(&self) -> Option<(u64, TxnId)> {
        let (next, last) = match self.is_turn_of_retried {
            true => (&self.retried, &self.prepared),
            false => (&self.prepared, &self.retried),
        };
        let first = self.rollbacks.first().or_else(|| next.first());
        first.or_else(|| last.first()).copied()
    }

    /// Nobody claims that entry any more.
    fn unclaim(&mut self, txn: TxnId) {
        let entry = self.entries.get(&txn).expect("it is one of them");
        let place = (entry.undo_bytes, txn);
        let is_prepared = entry.slot.state.lock().is_prepared_as(txn);
        let (of_its_kind, others) = match is_prepared {
            true => (&mut self.prepared, &self.rollbacks),
            false => (&mut self.rollbacks, &self.prepared),
        };
        let is_new = of_its_kind.insert(place) && !others.contains(&place);
        assert!(is_new, "{txn} was claimed by nobody");
    }

    /// False: it is not unclaimed.
    fn claim(&mut self, place: (u64, TxnId)) -> bool {
        let was_new = self.rollbacks.remove(&place) || self.prepared.remove(&place);
        let was_retried = self.retried.remove(&place);
        self.is_turn_of_retried &= !self.retried.is_empty();
        debug_assert!(!(was_new && was_retried), "{} is in two places", place.1);
        was_new || was_retried
    }
}

struct Entry {
    slot: Arc<TxnSlot>,
    /// Undo that it had at the start, in bytes.
    undo_bytes: u64,
    /// What it had changed, for readers. None: it has not been read, or is too much.
    known: Option<KnownUndo>,
    /// Why that was given up; None while a decision tries again.
    failed: Option<Error>,
    /// By the thread.
    retry: Retry,
    /// The reason that was told last.
    told: Option<Error>,
    /// All its versions are there: readers need not ask here.
    has_versions: bool,
    /// Who waits for it while another makes its versions.
    awaited: Awaited,
}

/// Does the thread try again?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retry {
    No,
    /// When it is time.
    Later,
    /// It is at it, or about to be.
    Now,
}

/// A decision that waits for whoever makes a prepared transaction's versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    No,
    /// A commit, which needs them.
    Commit,
    /// A rollback, which does not: they are to be left as they are.
    Rollback,
    /// They have been left, and the entry is that rollback's.
    Left,
}

impl Entry {
    fn new(slot: Arc<TxnSlot>, undo_bytes: u64, has_versions: bool) -> Entry {
        Entry {
            slot,
            undo_bytes,
            known: None,
            failed: None,
            retry: Retry::No,
            told: None,
            has_versions,
            awaited: Awaited::No,
        }
    }

    /// Nobody waits for it to be settled any more; decisions find that out.
    fn give_up(&mut self, txn: TxnId, reason: &Error, is_retried: bool) {
        debug_assert_eq!(
            self.failed.is_some(),
            self.retry == Retry::Now,
            "{txn} is given up twice"
        );
        debug_assert!(self.awaited != Awaited::Left, "{txn} is a rollback's");
        self.awaited = Awaited::No;
        self.retry = if is_retried { Retry::Later } else { Retry::No };
        self.failed = Some(reason.clone());
    }

    /// Whoever has it, or has it next, is about to settle it in another way, and those who need it wait for him.
    fn take_up(&mut self) {
        debug_assert!(self.retry == Retry::No || self.failed.is_some());
        self.failed = None;
        self.retry = Retry::No;
    }
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
        self.put(
            &mut self.slots.write(),
            txn,
            Entry::new(slot, undo_bytes, false),
        );
    }

    /// A transaction that nobody else will roll back, and whose rollback has failed for this reason, which was told. The
    /// thread tries again. It is one of this life, whose connection has gone or whose name the server has forgotten; or one of
    /// before the restart, of which the latter goes: then it is here, given up.
    pub(crate) fn take_over(&self, slot: Arc<TxnSlot>, reason: Error) {
        let (txn, undo_bytes) = {
            let state = slot.state.lock();
            assert!(!state.is_prepared(), "{} can be decided", state.txn);
            (state.txn, state.undo.position().0)
        };
        assert!(!txn.is_frozen(), "one without an id");
        let mut slots = self.slots.write();
        if let Some(entry) = slots.entries.get_mut(&txn) {
            assert!(Arc::ptr_eq(&entry.slot, &slot), "another {txn}");
            debug_assert!(entry.failed.is_some() && entry.retry == Retry::No, "{txn}");
            entry.retry = Retry::Later;
            entry.told = Some(reason);
            return;
        }
        let entry = Entry {
            failed: Some(reason.clone()),
            retry: Retry::Later,
            told: Some(reason),
            ..Entry::new(slot, undo_bytes, true)
        };
        self.put(&mut slots, txn, entry);
    }

    fn put(&self, slots: &mut Slots, txn: TxnId, entry: Entry) {
        let (is_free, has_versions) = (entry.failed.is_none(), entry.has_versions);
        let before = slots.entries.insert(txn, entry);
        assert!(before.is_none(), "transaction {txn} is settled twice");
        if is_free {
            slots.unclaim(txn);
        }
        // Readers ask for others only.
        if !has_versions {
            self.end.fetch_max(txn.get() + 1, Ordering::SeqCst);
        }
        self.left.fetch_add(1, Ordering::SeqCst);
    }

    /// The slot's transaction, of `undo_bytes` of undo, is prepared no more and is to be rolled back: whoever has
    /// claimed it will, or the next one who asks, unless that has happened by now.
    pub(crate) fn hand_over(&self, txn: TxnId, slot: &Arc<TxnSlot>, undo_bytes: u64) {
        let slots = &mut *self.slots.write();
        let place = (undo_bytes, txn);
        if let Some(entry) = slots.entries.get_mut(&txn) {
            debug_assert_eq!(entry.undo_bytes, undo_bytes, "{txn}: another's undo");
            // It could not be given its versions, which it does not need any more.
            let was_given_up = entry.failed.take().is_some();
            // Whoever tries again finds that out, and leaves it to be claimed (`end_of_versions`, `put_back`).
            let retry = std::mem::replace(&mut entry.retry, Retry::No);
            let is_tried = retry == Retry::Now && !slots.retried.remove(&place);
            if was_given_up && !is_tried || slots.prepared.remove(&place) {
                slots.rollbacks.insert(place);
            }
            debug_assert!(!slots.prepared.contains(&place), "{txn} is prepared");
            return;
        }
        debug_assert!(!slot.state.lock().is_prepared_as(txn), "{txn} is prepared");
        let is_left = slot.state.lock().txn == txn;
        if is_left {
            self.put(slots, txn, Entry::new(slot.clone(), undo_bytes, true));
        }
    }

    /// True: the caller is to start a thread that asks for the next one until there is none.
    pub(crate) fn needs_thread(&self) -> bool {
        let mut slots = self.slots.write();
        let needs = !slots.has_thread && slots.first().is_some();
        slots.has_thread |= needs;
        needs
    }

    /// One is to be rolled back, and nobody has claimed it.
    pub(crate) fn has_rollback(&self) -> bool {
        !self.slots.read().rollbacks.is_empty()
    }

    /// Something that was given up is to be tried again, and nobody is at it.
    pub(crate) fn has_retried(&self) -> bool {
        !self.slots.read().retried.is_empty()
    }

    /// Are versions of that one still to be made?
    pub(crate) fn lacks_versions(&self, txn: TxnId) -> bool {
        let slots = self.slots.read();
        slots.entries.get(&txn).is_some_and(|l| !l.has_versions)
    }

    /// May the start itself undo so many bytes, with those that it has undone so, within this limit?
    pub(crate) fn is_within(&self, limit_bytes: u64, bytes: u64) -> bool {
        let add = |sum: u64| sum.checked_add(bytes).filter(|sum| *sum <= limit_bytes);
        let order = Ordering::Relaxed;
        self.undone_at_once.fetch_update(order, order, add).is_ok()
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
        let slots = self.slots.read();
        let entry = slots.entries.get(&txn).filter(|l| !l.has_versions);
        entry.map(ask)
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

    /// Asks what is known of that one, and what is shown of its slot. Whoever asks takes no lock: who has the slot's mutex
    /// may wait for room, and everybody else waits for who asks.
    #[inline]
    pub(crate) fn ask<T>(
        &self,
        txn: TxnId,
        ask: impl FnOnce(&KnownUndo, &SlotFigures) -> T,
    ) -> Option<T> {
        let known = |l: &Entry| (l.known.as_ref()).map(|known| ask(known, &l.slot.figures));
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

    /// Those about which readers would ask and nothing is known, with the least undo first.
    pub(crate) fn unknown(&self) -> Vec<(TxnId, Arc<TxnSlot>)> {
        let mut all = self.all();
        let slots = self.slots.read();
        let is_unknown = |l: &Entry| !l.has_versions && l.known.is_none() && l.failed.is_none();
        all.retain(|(txn, _)| slots.entries.get(txn).is_some_and(is_unknown));
        all
    }

    /// Memory of what is known, in bytes.
    pub(crate) fn known_bytes(&self) -> usize {
        let slots = self.slots.read();
        known_bytes_of(&slots)
    }

    /// The same for who must not wait, for whomever: what it was before, then.
    pub(crate) fn known_bytes_now(&self) -> u64 {
        if let Some(slots) = self.slots.try_read() {
            let bytes = known_bytes_of(&slots) as u64;
            self.shown_bytes.store(bytes, Ordering::Relaxed);
        }
        self.shown_bytes.load(Ordering::Relaxed)
    }

    /// Their ids, likewise; None: they cannot be had now.
    pub(crate) fn ids_now(&self) -> Option<BTreeSet<TxnId>> {
        let slots = self.slots.try_read()?;
        Some(slots.entries.keys().copied().collect())
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

    /// Claims the one to be settled next: that with the least undo, so that few rows wait long, but a rollback before
    /// versions, for which no row waits. None: there is none, and whoever hands one over starts another thread.
    pub(crate) fn next(&self) -> Option<(TxnId, Arc<TxnSlot>)> {
        let mut slots = self.slots.write();
        let Some(place) = slots.first() else {
            slots.has_thread = false;
            return None;
        };
        let (was_free, txn) = (slots.claim(place), place.1);
        debug_assert!(was_free, "{txn} is claimed twice");
        let next = slots.entries.get_mut(&txn).expect("it is one of them");
        debug_assert_eq!(next.failed.is_some(), next.retry == Retry::Now, "{txn}");
        Some((txn, next.slot.clone()))
    }

    /// It is given up, for this reason; `is_retried`: until the thread tries again.
    pub(crate) fn fail(&self, txn: TxnId, reason: &Error, is_retried: bool) {
        let mut slots = self.slots.write();
        let entry = slots.entries.get_mut(&txn).expect("it is one of them");
        entry.give_up(txn, reason, is_retried);
    }

    /// What the thread has given up is free to be claimed by it again. False: not now, somebody is at work here
    /// who need not be waited for yet. (Many readers may always be: who does not wait for them has no turn.)
    pub(crate) fn retry(&self, waits: bool) -> bool {
        let mut slots = match self.slots.try_write() {
            Some(slots) => slots,
            None if waits => self.slots.write(),
            None => return false,
        };
        let slots = &mut *slots;
        for (txn, entry) in &mut slots.entries {
            if entry.retry == Retry::Later {
                debug_assert!(entry.failed.is_some(), "{txn} was not given up");
                entry.retry = Retry::Now;
                slots.retried.insert((entry.undo_bytes, *txn));
            }
        }
        true
    }

    /// The system has refused the thread that was to be started.
    pub(crate) fn no_thread(&self) {
        let mut slots = self.slots.write();
        debug_assert!(slots.has_thread, "it was not asked for");
        slots.has_thread = false;
    }

    /// The reason why that one could not be settled is about to be told. False: it was told before.
    pub(crate) fn is_news(&self, txn: TxnId, reason: &Error) -> bool {
        let mut slots = self.slots.write();
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return true;
        };
        entry.told.replace(reason.clone()).as_ref() != Some(reason)
    }

    /// Was it told that this one could not be settled?
    pub(crate) fn was_told(&self, txn: TxnId) -> bool {
        let slots = self.slots.read();
        slots.entries.get(&txn).is_some_and(|l| l.told.is_some())
    }

    /// Who was making versions of that one is done with it, this way. True: it is settled, or given up. False: a
    /// decision came meanwhile. One that is to be rolled back then is free to be claimed; of one that is committed
    /// nothing is left here.
    pub(crate) fn end_of_versions(&self, txn: TxnId, result: &Result<()>) -> bool {
        let mut slots = self.slots.write();
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return false;
        };
        if !entry.slot.state.lock().is_prepared_as(txn) {
            entry.has_versions = result.is_ok();
            entry.take_up();
            slots.unclaim(txn);
            return false;
        }
        match result {
            Ok(()) => self.remove(&mut slots, txn),
            Err(reason) => entry.give_up(txn, reason, true),
        }
        true
    }

    /// Who has claimed that one does not settle it now. One that was tried again has its next turn with those that are given
    /// up. A decision that waits for it says so again at its next look; one
    /// that has ended without it leaves no word: whoever settles it next keeps to the limits of what nobody waits for.
    pub(crate) fn put_back(&self, txn: TxnId) {
        let mut slots = self.slots.write();
        // The start commits it at this moment (`forget`).
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return;
        };
        debug_assert_eq!(
            entry.failed.is_some(),
            entry.retry == Retry::Now,
            "{txn} was given up"
        );
        debug_assert!(entry.awaited != Awaited::Left, "{txn} is a rollback's");
        entry.awaited = Awaited::No;
        match entry.failed {
            Some(_) => entry.retry = Retry::Later,
            None => slots.unclaim(txn),
        }
        slots.is_turn_of_retried = !slots.retried.is_empty();
    }

    /// That one is committed in a moment, and nobody will ask for its versions.
    pub(crate) fn forget(&self, txn: TxnId) {
        let mut slots = self.slots.write();
        if slots.entries.contains_key(&txn) {
            self.remove(&mut slots, txn);
        }
        debug_assert!(!slots.entries.contains_key(&txn), "{txn} is left");
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
        match slots.claim(place) {
            true => Claim::Mine,
            false => Claim::Others,
        }
    }

    /// That one was given up, and the caller tries again, unless the thread does.
    fn take_up(&self, txn: TxnId) -> Claim {
        let slots = &mut *self.slots.write();
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return Claim::Settled;
        };
        // The thread was first: it is at it, or is done and has put it back.
        let is_tried = entry.retry == Retry::Now && !slots.retried.remove(&(entry.undo_bytes, txn));
        if is_tried || entry.failed.is_none() {
            return Claim::Others;
        }
        slots.is_turn_of_retried &= !slots.retried.is_empty();
        entry.take_up();
        Claim::Mine
    }

    /// As [`Unsettled::claim`], of a decision that waits for the entry if it is another's, and says so.
    pub(crate) fn claim_or_await(&self, txn: TxnId, decision: Awaited) -> Claim {
        debug_assert!(matches!(decision, Awaited::Commit | Awaited::Rollback));
        let claim = match self.claim(txn) {
            // It may have been a passing fault, and the server may have the decision in its binary log.
            Claim::Failed(_) => self.take_up(txn),
            claim => claim,
        };
        if claim != Claim::Others && (claim != Claim::Mine || decision != Awaited::Commit) {
            return claim;
        }
        let mut slots = self.slots.write();
        // It may have ended since: then the next look finds that.
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return claim;
        };
        if entry.awaited == Awaited::Left {
            assert_eq!(decision, Awaited::Rollback, "{txn}: left to a commit");
            entry.awaited = Awaited::No;
            return Claim::Mine;
        }
        entry.awaited = decision;
        claim
    }

    /// The decision that waits for that one while another settles it waits no more. What was left to it meanwhile is
    /// anybody's again: of the thread, or of another decision.
    pub(crate) fn await_no_more(&self, txn: TxnId) {
        let mut slots = self.slots.write();
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return;
        };
        if std::mem::replace(&mut entry.awaited, Awaited::No) == Awaited::Left {
            debug_assert!(entry.failed.is_none(), "{txn} was given up");
            slots.unclaim(txn);
        }
    }

    /// What waits for the versions of that one, which the caller makes.
    pub(crate) fn awaited(&self, txn: TxnId) -> Awaited {
        let slots = self.slots.read();
        slots.entries.get(&txn).map_or(Awaited::No, |l| l.awaited)
    }

    /// Who was making versions of that one leaves it to the rollback that waits for it. False: none does.
    pub(crate) fn leave(&self, txn: TxnId) -> bool {
        let mut slots = self.slots.write();
        let Some(entry) = slots.entries.get_mut(&txn) else {
            return false;
        };
        let waits = entry.awaited == Awaited::Rollback;
        if waits {
            // It may have been tried again.
            entry.take_up();
            entry.awaited = Awaited::Left;
        }
        waits
    }

    /// Why nobody need wait for that one now: it was given up.
    pub(crate) fn failed(&self, txn: TxnId) -> Option<Error> {
        let slots = self.slots.read();
        slots.entries.get(&txn)?.failed.clone()
    }

    /// The one whose failure this is.
    pub(crate) fn failed_with(&self, reason: &Error) -> Option<TxnId> {
        let slots = self.slots.read();
        let found =
            |(txn, l): (&TxnId, &Entry)| (l.failed.as_ref() == Some(reason)).then_some(*txn);
        slots.entries.iter().find_map(found)
    }

    /// Will a reader of these indexes have to wait until one is settled? Which a prepared one has changed is known; it may
    /// wait for room without end. Nobody waits for one that was given up. Whose slot is being changed is awaited for now:
    /// who asks looks again.
    pub(crate) fn is_awaited_in(&self, indexes: &[IndexId]) -> bool {
        if self.count() == 0 {
            return false;
        }
        let waits = |l: &Entry| !l.has_versions && l.known.is_none() && l.failed.is_none();
        let awaited: Vec<_> = {
            let slots = self.slots.read();
            let entries = slots.entries.iter().filter(|(_, l)| waits(l));
            entries.map(|(txn, l)| (*txn, l.slot.clone())).collect()
        };
        let concerns = |(txn, slot): &(TxnId, Arc<TxnSlot>)| match slot.state.try_lock() {
            Some(state) if state.txn != *txn => false,
            Some(state) => !state.is_prepared() || indexes.iter().any(|i| state.touched.has(*i)),
            None => true,
        };
        awaited.iter().any(concerns)
    }

    pub(crate) fn done(&self, txn: TxnId) {
        self.remove(&mut self.slots.write(), txn);
    }

    fn remove(&self, slots: &mut Slots, txn: TxnId) {
        let was = slots.entries.remove(&txn);
        let was = was.expect("it is one of them");
        slots.claim((was.undo_bytes, txn));
        let left = self.left.fetch_sub(1, Ordering::SeqCst);
        assert!(left > 0, "more are settled than there were");
    }
}

fn known_bytes_of(slots: &Slots) -> usize {
    let known = slots.entries.values().filter_map(|l| l.known.as_ref());
    known.map(|k| k.memory_bytes()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_lock::Owner;
    use ferrite_sync::thread;

    fn slot(txn: u64) -> Arc<TxnSlot> {
        let slot = Arc::new(TxnSlot::new(Owner::new(0, 0)));
        slot.state.lock().begin(TxnId(txn));
        slot
    }

    /// One that fails holds neither the others up nor a reader.
    #[test]
    fn nobody_waits_for_a_rollback_that_has_failed() {
        let unsettled = Unsettled::default();
        unsettled.add(slot(1));
        unsettled.add(slot(2));
        let damage = Error::Corrupt("page 7".into());
        assert_eq!(unsettled.claim(TxnId(1)), Claim::Mine);
        assert_eq!(unsettled.claim(TxnId(1)), Claim::Others);
        assert_eq!(unsettled.failed(TxnId(1)), None);
        unsettled.fail(TxnId(1), &damage, true);
        assert_eq!(unsettled.failed(TxnId(1)), Some(damage.clone()));
        assert_eq!(unsettled.failed(TxnId(2)), None);
        assert_eq!(unsettled.next().expect("one is left").0, TxnId(2));
        assert_eq!(unsettled.claim(TxnId(1)), Claim::Failed(damage.clone()));
        assert_eq!(unsettled.claim(TxnId(2)), Claim::Others);
        unsettled.done(TxnId(2));
        assert_eq!(unsettled.claim(TxnId(2)), Claim::Settled);
        assert!(unsettled.next().is_none());
        assert_eq!(unsettled.failed(TxnId(1)), Some(damage.clone()));
        assert_eq!(unsettled.failed_with(&damage), Some(TxnId(1)));
        assert_eq!(unsettled.failed_with(&Error::Interrupted), None);
        assert!(unsettled.has(TxnId(1)) && unsettled.count() == 1);
        unsettled.done(TxnId(1));
        assert_eq!(unsettled.failed(TxnId(1)), None);
    }

    /// The thread tries again what it has given up, a decision tries at once, and what a decision has given up is for
    /// another one.
    #[test]
    fn what_was_given_up_is_tried_again() {
        let unsettled = Unsettled::default();
        let damage = Error::Corrupt("page 7".into());
        let retry = || {
            unsettled.retry(false);
            let (has_some, slots) = (unsettled.needs_thread(), &unsettled.slots);
            slots.write().has_thread = false;
            has_some
        };
        assert!(!retry());
        unsettled.add(prepared(5));
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
        let result = Err(damage.clone());
        assert!(unsettled.end_of_versions(TxnId(5), &result));
        assert!(unsettled.is_news(TxnId(5), &damage) && !unsettled.is_news(TxnId(5), &damage));
        assert!(unsettled.next().is_none());
        for by_thread in [false, true] {
            for decision in [Awaited::Commit, Awaited::Rollback] {
                // A decision takes it from the thread, too, if that has not begun.
                assert!(!by_thread || retry(), "the thread does not try again");
                assert_eq!(unsettled.claim_or_await(TxnId(5), decision), Claim::Mine);
                assert_eq!(unsettled.failed(TxnId(5)), None);
                assert_eq!(unsettled.claim(TxnId(5)), Claim::Others);
                assert!(!retry(), "a decision has it");
                assert!(unsettled.end_of_versions(TxnId(5), &result));
                assert_eq!(unsettled.awaited(TxnId(5)), Awaited::No);
            }
        }
        assert_eq!(
            unsettled.claim_or_await(TxnId(5), Awaited::Rollback),
            Claim::Mine
        );
        unsettled.fail(TxnId(5), &damage, false);
        assert!(!retry(), "it is for a decision");
        assert_eq!(
            unsettled.claim_or_await(TxnId(5), Awaited::Rollback),
            Claim::Mine
        );
        unsettled.done(TxnId(5));
        assert!(!retry() && unsettled.count() == 0);
    }

    /// Versions are tried again by the thread: whatever comes of it, or meanwhile, one has the transaction, and readers get
    /// the reason until then.
    #[test]
    fn versions_are_tried_again() {
        let (unsettled, slot) = (Unsettled::default(), prepared(5));
        let damage = Error::Corrupt("page 7".into());
        let failed = Err(damage.clone());
        let try_again = || {
            assert_eq!(unsettled.failed(TxnId(5)), Some(damage.clone()));
            unsettled.retry(false);
            assert_eq!(unsettled.next().expect("it is time").0, TxnId(5));
            assert_eq!(unsettled.failed(TxnId(5)), Some(damage.clone()));
            assert!(unsettled.next().is_none());
        };
        unsettled.add(slot.clone());
        unsettled.next().expect("it is left");
        assert!(unsettled.end_of_versions(TxnId(5), &failed));
        // It fails again, or there is no room.
        try_again();
        assert!(unsettled.end_of_versions(TxnId(5), &failed));
        try_again();
        unsettled.put_back(TxnId(5));
        assert!(unsettled.next().is_none(), "it is not time");
        // A commit waits for the thread, which fails, and tries itself.
        try_again();
        let decide = |decision| unsettled.claim_or_await(TxnId(5), decision);
        assert_eq!(decide(Awaited::Commit), Claim::Others);
        assert!(unsettled.end_of_versions(TxnId(5), &failed));
        assert_eq!(decide(Awaited::Commit), Claim::Mine);
        unsettled.put_back(TxnId(5));
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
        assert!(unsettled.end_of_versions(TxnId(5), &failed));
        // A rollback waits for the thread, and does not need them; it fails, and it is for another one.
        try_again();
        assert_eq!(decide(Awaited::Rollback), Claim::Others);
        assert!(unsettled.leave(TxnId(5)));
        assert_eq!(decide(Awaited::Rollback), Claim::Mine);
        unsettled.fail(TxnId(5), &damage, false);
        unsettled.retry(false);
        assert!(unsettled.next().is_none(), "it is for a decision");
        assert_eq!(decide(Awaited::Rollback), Claim::Mine);
        assert!(unsettled.end_of_versions(TxnId(5), &failed));
        // They are there.
        try_again();
        assert!(unsettled.end_of_versions(TxnId(5), &Ok(())));
        assert!(!unsettled.retry(false) || unsettled.next().is_none());
        assert_eq!(
            (decide(Awaited::Commit), unsettled.count()),
            (Claim::Settled, 0)
        );
    }

    /// The start decides to roll one back whose versions are tried again, or wait for that.
    #[test]
    fn a_decision_beside_versions_that_are_tried_again_is_left_to_one() {
        let failed = Err(Error::Corrupt("page 7".into()));
        for (is_due, is_tried, told_first) in [
            (false, false, true),
            (true, false, true),
            (true, true, true),
            (true, true, false),
        ] {
            let (unsettled, slot) = (Unsettled::default(), prepared(5));
            unsettled.add(slot.clone());
            unsettled.next().expect("it is left");
            assert!(unsettled.end_of_versions(TxnId(5), &failed));
            if is_due {
                unsettled.retry(false);
            }
            if is_tried {
                unsettled.next().expect("it is time");
            }
            slot.state.lock().take_name();
            if told_first {
                unsettled.hand_over(TxnId(5), &slot, 0);
            }
            if is_tried {
                assert!(unsettled.next().is_none(), "two are at it");
                assert!(!unsettled.end_of_versions(TxnId(5), &failed));
            }
            if !told_first {
                unsettled.hand_over(TxnId(5), &slot, 0);
            }
            assert_eq!(unsettled.failed(TxnId(5)), None);
            assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
            assert!(unsettled.next().is_none());
            unsettled.done(TxnId(5));
            unsettled.retry(false);
            assert!(unsettled.next().is_none() && unsettled.count() == 0);
        }
    }

    /// A rollback that is tried again comes behind all others, which hear of it at nothing, and its readers get the reason
    /// meanwhile.
    #[test]
    fn a_rollback_is_tried_again_behind_all_others() {
        let unsettled = Unsettled::default();
        let damage = Error::Corrupt("page 7".into());
        unsettled.add(slot(3));
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(3));
        unsettled.fail(TxnId(3), &damage, true);
        assert!(unsettled.next().is_none());
        for _ in 0..3 {
            unsettled.retry(false);
            unsettled.retry(false);
            assert!(!unsettled.has_rollback() && unsettled.needs_thread());
            assert_eq!(unsettled.failed(TxnId(3)), Some(damage.clone()));
            assert!(unsettled.unknown().is_empty(), "its undo is not read again");
            unsettled.add(prepared(5));
            assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
            unsettled.done(TxnId(5));
            assert_eq!(unsettled.next().expect("it is left").0, TxnId(3));
            unsettled.retry(false);
            assert!(unsettled.next().is_none(), "it is being tried");
            unsettled.fail(TxnId(3), &damage, true);
        }
        unsettled.retry(false);
        assert!(unsettled.needs_thread() && !unsettled.needs_thread());
        unsettled.no_thread();
        assert!(unsettled.needs_thread(), "the one asked for was refused");
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(3));
        unsettled.done(TxnId(3));
        assert!(unsettled.next().is_none() && unsettled.count() == 0);
    }

    /// Versions may wait for room without end, and be first again when they are put back: what is to be tried again comes
    /// before that, once each time.
    #[test]
    fn versions_that_wait_for_room_give_way_to_what_is_tried_again() {
        let unsettled = Unsettled::default();
        let damage = Error::Corrupt("page 7".into());
        let next = || unsettled.next().expect("one is left").0;
        for txn in [3, 4] {
            unsettled.add(slot(txn));
            assert_eq!(next(), TxnId(txn));
            unsettled.fail(TxnId(txn), &damage, true);
        }
        unsettled.add(prepared(5));
        assert_eq!(next(), TxnId(5));
        for _ in 0..3 {
            assert!(!unsettled.has_retried(), "it is not time");
            unsettled.retry(false);
            assert!(unsettled.has_retried());
            unsettled.put_back(TxnId(5));
            for txn in [3, 4] {
                assert!(unsettled.has_retried());
                assert_eq!(next(), TxnId(txn));
                unsettled.fail(TxnId(txn), &damage, true);
            }
            assert_eq!(next(), TxnId(5));
        }
        // While there is room versions come first.
        unsettled.put_back(TxnId(5));
        unsettled.retry(false);
        assert_eq!(next(), TxnId(5));
        unsettled.done(TxnId(5));
        for txn in [3, 4] {
            assert_eq!(next(), TxnId(txn));
            unsettled.done(TxnId(txn));
        }
        assert!(unsettled.next().is_none() && unsettled.count() == 0);
    }

    /// One of this life is nothing that readers need ask about.
    #[test]
    fn one_of_this_life_is_rolled_back_later() {
        let unsettled = Unsettled::default();
        let damage = Error::Corrupt("page 7".into());
        unsettled.take_over(slot(9), damage.clone());
        assert!(!unsettled.has(TxnId(9)) && !unsettled.lacks_versions(TxnId(9)));
        assert!(!unsettled.is_awaited_in(&[IndexId(3)]));
        assert!(!unsettled.is_news(TxnId(9), &damage));
        assert!(unsettled.was_told(TxnId(9)));
        assert!(unsettled.next().is_none());
        unsettled.retry(false);
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(9));
        unsettled.done(TxnId(9));
        unsettled.retry(false);
        assert!(unsettled.next().is_none() && unsettled.count() == 0);
    }

    /// One of before the restart whose name the server has forgotten, after its rollback by a statement has failed: it is the
    /// thread's from there on, and still without versions.
    #[test]
    fn one_that_was_for_a_decision_is_rolled_back_later() {
        let (unsettled, slot) = (Unsettled::default(), prepared(5));
        let damage = Error::Corrupt("page 7".into());
        unsettled.add(slot.clone());
        let rollback = unsettled.claim_or_await(TxnId(5), Awaited::Rollback);
        assert_eq!(rollback, Claim::Mine);
        slot.state.lock().take_name();
        unsettled.fail(TxnId(5), &damage, false);
        unsettled.retry(false);
        assert!(unsettled.next().is_none(), "it is for a decision");
        unsettled.take_over(slot, damage.clone());
        assert_eq!(unsettled.failed(TxnId(5)), Some(damage.clone()));
        assert!(unsettled.next().is_none(), "it is not time");
        unsettled.retry(false);
        assert!(unsettled.lacks_versions(TxnId(5)));
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
        unsettled.fail(TxnId(5), &damage, true);
        unsettled.retry(false);
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
        unsettled.done(TxnId(5));
        assert!(unsettled.next().is_none() && unsettled.count() == 0);
    }

    /// A reader waits for what may have changed what it reads, and is not given up.
    #[test]
    fn who_reads_waits_for_what_concerns_it() {
        let unsettled = Unsettled::default();
        let slot_of = prepared(5);
        slot_of.state.lock().touched.add(IndexId(20));
        unsettled.add(slot_of);
        let awaits = |index| unsettled.is_awaited_in(&[IndexId(2), IndexId(index)]);
        assert!(awaits(20) && !awaits(21));
        unsettled.add(slot(6));
        assert!(awaits(21), "what was cut off may have changed anything");
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(6));
        unsettled.fail(TxnId(6), &Error::Interrupted, true);
        assert!(awaits(20) && !awaits(21));
    }

    /// Somebody has its slot, and waits for room without end: who asks is answered, and holds nobody up.
    #[test]
    fn a_slot_that_somebody_has_is_not_waited_for() {
        let (unsettled, slot) = (Arc::new(Unsettled::default()), prepared(5));
        unsettled.add(slot.clone());
        let at_work = slot.state.lock();
        let same = unsettled.clone();
        let reader = thread::spawn("reader", move || same.is_awaited_in(&[IndexId(2)]));
        for _ in 0..2000 {
            if !reader.is_finished() {
                thread::sleep_ms(5);
            }
        }
        let is_finished = reader.is_finished();
        drop(at_work);
        assert!(reader.join().unwrap() || !is_finished, "it looks again");
        assert!(is_finished, "it waits for the slot");
        assert!(!unsettled.is_awaited_in(&[IndexId(2)]));
        let looks = unsettled.slots.read();
        assert!(!unsettled.retry(false), "it waits for who looks");
        drop(looks);
        assert!(unsettled.retry(false));
    }

    fn prepared(txn: u64) -> Arc<TxnSlot> {
        let slot = slot(txn);
        slot.state.lock().prepare(crate::Xid {
            format_id: 1,
            gtrid_len: 1,
            data: b"x"[..].into(),
        });
        slot
    }

    /// The start decides to roll one back while its versions are being made: whoever comes first, one thread rolls it
    /// back, and readers ask its undo unless all versions are there.
    #[test]
    fn a_decision_beside_the_making_of_versions_is_left_to_one() {
        let failed = Err(Error::Corrupt("page 7".into()));
        for told_first in [false, true] {
            for result in [Ok(()), Err(Error::Interrupted), failed.clone()] {
                let (unsettled, slot) = (Unsettled::default(), prepared(5));
                unsettled.add(slot.clone());
                assert!(unsettled.needs_thread() && !unsettled.needs_thread());
                assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
                slot.state.lock().take_name();
                if told_first {
                    unsettled.hand_over(TxnId(5), &slot, 0);
                }
                assert!(!unsettled.end_of_versions(TxnId(5), &result));
                if !told_first {
                    unsettled.hand_over(TxnId(5), &slot, 0);
                }
                assert_eq!(unsettled.has(TxnId(5)), result.is_err());
                assert_eq!(unsettled.lacks_versions(TxnId(5)), result.is_err());
                assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
                unsettled.done(TxnId(5));
                assert!(unsettled.next().is_none() && unsettled.count() == 0);
                assert!(!unsettled.needs_thread(), "there is nothing to do");
            }
        }
    }

    /// Rows wait for a rollback, not for the versions of a prepared one, which may wait for room.
    #[test]
    fn a_rollback_comes_before_versions() {
        let unsettled = Unsettled::default();
        unsettled.add(prepared(5));
        assert!(!unsettled.has_rollback());
        unsettled.add(slot(6));
        assert!(unsettled.has_rollback());
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(6));
        assert!(!unsettled.has_rollback(), "it is claimed");
        unsettled.done(TxnId(6));
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
        unsettled.put_back(TxnId(5));
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
        assert!(unsettled.next().is_none());
    }

    /// A commit that was killed leaves no word: it would let whoever makes the versions next pass the limit of their memory.
    #[test]
    fn a_commit_that_waits_no_more_is_not_awaited() {
        let unsettled = Unsettled::default();
        unsettled.add(prepared(5));
        // It makes them itself ...
        let commit = || unsettled.claim_or_await(TxnId(5), Awaited::Commit);
        assert_eq!(commit(), Claim::Mine);
        assert_eq!(unsettled.awaited(TxnId(5)), Awaited::Commit);
        unsettled.put_back(TxnId(5));
        assert_eq!(unsettled.awaited(TxnId(5)), Awaited::No);
        // ... or waits for the thread.
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
        assert_eq!(commit(), Claim::Others);
        assert_eq!(unsettled.awaited(TxnId(5)), Awaited::Commit);
        unsettled.await_no_more(TxnId(5));
        assert_eq!(unsettled.awaited(TxnId(5)), Awaited::No);
        unsettled.done(TxnId(5));
        unsettled.await_no_more(TxnId(5));
    }

    /// However many prepared ones have less undo, and however the rollback came about.
    #[test]
    fn a_rollback_comes_before_the_versions_of_many() {
        let unsettled = Unsettled::default();
        let slots: Vec<_> = (1..=1000).map(prepared).collect();
        slots.iter().for_each(|slot| unsettled.add(slot.clone()));
        // One that was cut off.
        unsettled.add(slot(2000));
        assert!(unsettled.has_rollback());
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(2000));
        assert!(!unsettled.has_rollback(), "it is claimed");
        // One that the start decides while nobody has it; that is told a moment later.
        slots[899].state.lock().take_name();
        unsettled.hand_over(TxnId(900), &slots[899], 0);
        assert!(unsettled.has_rollback());
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(900));
        // While somebody has it, who puts it back before that is told, or after it.
        for (told_first, txn) in [(false, 950), (true, 951)] {
            let slot = &slots[txn as usize - 1];
            assert_eq!(unsettled.claim(TxnId(txn)), Claim::Mine);
            slot.state.lock().take_name();
            if told_first {
                unsettled.hand_over(TxnId(txn), slot, 0);
                assert!(!unsettled.has_rollback(), "it is claimed");
            }
            unsettled.put_back(TxnId(txn));
            assert!(unsettled.has_rollback());
            if !told_first {
                unsettled.hand_over(TxnId(txn), slot, 0);
            }
            assert_eq!(unsettled.next().expect("it is left").0, TxnId(txn));
            assert!(!unsettled.has_rollback(), "it is claimed");
        }
        assert_eq!(unsettled.next().expect("it is left").0, TxnId(1));
        assert_eq!(unsettled.count(), 1001);
    }

    /// A rollback waits for one whose versions are being made, and gives up: before it is left to it, or after that.
    #[test]
    fn what_was_left_to_a_rollback_that_gives_up_is_anybodys() {
        for (left_first, commit) in [(false, false), (false, true), (true, false), (true, true)] {
            let unsettled = Unsettled::default();
            unsettled.add(prepared(5));
            unsettled.next().expect("it is left");
            let rollback = || unsettled.claim_or_await(TxnId(5), Awaited::Rollback);
            assert_eq!(rollback(), Claim::Others);
            if left_first {
                assert!(unsettled.leave(TxnId(5)));
                assert!(!unsettled.needs_thread(), "it is the rollback's");
            }
            unsettled.await_no_more(TxnId(5));
            assert_eq!(unsettled.awaited(TxnId(5)), Awaited::No);
            if !left_first {
                assert!(!unsettled.leave(TxnId(5)), "to nobody");
                unsettled.put_back(TxnId(5));
            }
            match commit {
                true => {
                    let commit = || unsettled.claim_or_await(TxnId(5), Awaited::Commit);
                    assert_eq!(commit(), Claim::Mine);
                    assert_eq!(commit(), Claim::Others);
                    assert_eq!(unsettled.awaited(TxnId(5)), Awaited::Commit);
                }
                false => {
                    assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
                    assert_eq!(rollback(), Claim::Others);
                    assert!(unsettled.leave(TxnId(5)));
                    assert_eq!(rollback(), Claim::Mine);
                }
            }
            unsettled.done(TxnId(5));
            unsettled.await_no_more(TxnId(5));
            assert_eq!(unsettled.claim(TxnId(5)), Claim::Settled);
        }
    }

    /// The versions are there, or were given up, before the decision; or it is rolled back before it is told of.
    #[test]
    fn a_decision_after_the_making_of_versions_is_left_to_one() {
        let failed = Err(Error::Corrupt("page 7".into()));
        for result in [Ok(()), failed] {
            let (unsettled, slot) = (Unsettled::default(), prepared(5));
            unsettled.add(slot.clone());
            unsettled.next().expect("it is left");
            assert!(unsettled.end_of_versions(TxnId(5), &result));
            assert!(unsettled.next().is_none(), "the thread ends");
            slot.state.lock().take_name();
            unsettled.hand_over(TxnId(5), &slot, 0);
            assert_eq!(unsettled.has(TxnId(5)), result.is_err());
            assert!(unsettled.needs_thread());
            assert_eq!(unsettled.next().expect("it is left").0, TxnId(5));
            unsettled.done(TxnId(5));
        }
        let (unsettled, slot) = (Unsettled::default(), prepared(5));
        unsettled.add(slot.clone());
        slot.state.lock().take_name();
        unsettled.next().expect("it is left");
        slot.state.lock().txn = TxnId::FROZEN;
        unsettled.done(TxnId(5));
        unsettled.hand_over(TxnId(5), &slot, 0);
        assert!(unsettled.next().is_none() && unsettled.count() == 0);
    }

    /// The start commits one while its versions are being made: nobody is left with it.
    #[test]
    fn a_commit_beside_the_making_of_versions_leaves_nothing() {
        for result in [Ok(()), Err(Error::Interrupted)] {
            let (unsettled, slot) = (Unsettled::default(), prepared(5));
            unsettled.add(slot.clone());
            unsettled.next().expect("it is left");
            unsettled.forget(TxnId(5));
            unsettled.forget(TxnId(5));
            assert!(!unsettled.end_of_versions(TxnId(5), &result));
            assert!(unsettled.next().is_none() && unsettled.count() == 0);
        }
        // It waited for room, another one is to be rolled back, and the slot is prepared until the commit is logged.
        let (unsettled, slot) = (Unsettled::default(), prepared(5));
        unsettled.add(slot.clone());
        unsettled.next().expect("it is left");
        unsettled.forget(TxnId(5));
        assert_eq!(unsettled.awaited(TxnId(5)), Awaited::No);
        assert!(slot.state.lock().is_prepared_as(TxnId(5)));
        assert!(!unsettled.leave(TxnId(5)));
        unsettled.put_back(TxnId(5));
        assert!(unsettled.next().is_none() && unsettled.count() == 0);
    }
}
