//! Who is in a writer's way: transactions that hold an entry, explicit locks, locks of gaps.
//!
//! Locking: whether somebody is in the way is asked under the leaf's latch; waits are without any latch, and who has
//! waited looks at the entry again.

use crate::catalog::table::SUPREMUM;
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::transaction::session::{Hooks, Session};
use ferrite_lock::{Implicit, LockRequest, Mode, Span};
use ferrite_sync::atomic::Ordering;
use ferrite_tree::record::Header;
use ferrite_tree::LeafMut;
use ferrite_types::{Error, IndexId, PageId, Result, TxnId};

/// How the entry in a slot stands towards a writer.
pub(super) enum EntryConflict {
    /// Nobody else has to do with it.
    None,
    /// An active transaction made its present state.
    HeldBy(TxnId),
    /// Somebody has an explicit lock.
    Locked,
}

/// May a new key go into a gap?
pub(super) enum GapCheck {
    /// Nobody has locked it.
    Free,
    /// Others have locked it, before this key.
    Wait(Vec<u8>),
    /// The page that follows must be read in first, without a latch.
    Load(PageId),
}

impl Session {
    /// Who is in the way of a change of the entry with this key and header.
    pub(super) fn conflict(&self, index: IndexId, key: &[u8], header: &Header) -> EntryConflict {
        let engine = &self.engine;
        let blind = ferrite_sync::mutant!("entry.ignore_holder");
        if !blind
            && header.txn != self.txn.id()
            && !header.txn.is_frozen()
            && engine.txns.is_active(header.txn)
        {
            return EntryConflict::HeldBy(header.txn);
        }
        let untouched = engine.locks.is_untouched(index, key);
        let change = LockRequest::new(index, key, Mode::Exclusive, Span::Record);
        if !untouched && engine.locks.conflicts(&self.txn.owner, change) {
            return EntryConflict::Locked;
        }
        EntryConflict::None
    }

    /// Has this transaction made an entry's present state? Then it holds the entry already.
    #[inline]
    pub(crate) fn owns(&self, txn: TxnId) -> bool {
        txn == self.txn.id() && !txn.is_frozen()
    }

    /// Waits until the entry may be free. No latch is held.
    pub(super) fn wait_for(
        &mut self,
        conflict: &EntryConflict,
        index: IndexId,
        key: &[u8],
        mode: Mode,
    ) -> Result<()> {
        match *conflict {
            EntryConflict::None => Ok(()),
            EntryConflict::HeldBy(txn) => {
                self.wait_for_holder(txn, LockRequest::new(index, key, mode, Span::Record))
            }
            EntryConflict::Locked => {
                self.wait_for_lock(LockRequest::new(index, key, mode, Span::Record))
            }
        }
    }

    /// Waits for the transaction whose id an entry bears, or, without one, for an explicit lock, and takes
    /// the lock.
    pub(crate) fn wait_for_either(
        &mut self,
        holder: Option<TxnId>,
        request: LockRequest<'_>,
    ) -> Result<()> {
        match holder {
            Some(txn) => self.wait_for_holder(txn, request),
            None => self.wait_for_lock(request),
        }
    }

    /// Waits for the transaction whose id an entry bears.
    pub(crate) fn wait_for_holder(&mut self, txn: TxnId, request: LockRequest<'_>) -> Result<()> {
        debug_assert!(!self.owns(txn), "{txn} waits for itself");
        let engine = self.engine.clone();
        let Some(holder) = engine.txns.owner_of(txn) else {
            return Ok(());
        };
        let implicit = Implicit {
            holder: &holder,
            still_active: &|| engine.txns.is_active(txn),
        };
        let hooks = Hooks {
            engine: &engine,
            thd: self.thd,
        };
        let wait = self.wait_policy();
        let result =
            engine
                .locks
                .wait_for_implicit(&self.txn.owner, &implicit, request, wait, &hooks);
        self.after_wait(result)
    }

    /// Waits for an explicit lock and takes it.
    pub(crate) fn wait_for_lock(&mut self, request: LockRequest<'_>) -> Result<()> {
        let engine = self.engine.clone();
        let hooks = Hooks {
            engine: &engine,
            thd: self.thd,
        };
        let wait = self.wait_policy();
        let result = engine
            .locks
            .lock_wait(&self.txn.owner, request, wait, &hooks);
        self.after_wait(result.map(|_| ()))
    }

    /// A deadlock's victim is rolled back here and now, so that the others go on.
    pub(crate) fn after_wait(&mut self, result: Result<()>) -> Result<()> {
        if matches!(result, Err(Error::Deadlock)) {
            self.print_deadlock();
            self.roll_back_as_victim();
        }
        result
    }

    fn print_deadlock(&self) {
        let engine = &self.engine;
        if !engine.print_deadlocks.load(Ordering::Relaxed) {
            return;
        }
        if let Some(deadlock) = engine.locks.last_deadlock_of(self.thread_id) {
            let text = engine.deadlock_text(&deadlock);
            engine.callbacks.log(LogLevel::Note, &text);
        }
    }

    /// See the module `snapshot_isolation`. What others hold is waited for first.
    pub(super) fn refuse_newer(&self, number: usize, held: bool, header: &Header) -> Result<()> {
        match number == 0 && !held && self.is_too_new(header.txn) {
            true => Err(Error::RecordChanged),
            false => Ok(()),
        }
    }

    /// Waits until the gap before `successor` may be free.
    pub(crate) fn wait_for_gap(&mut self, index: IndexId, successor: &[u8]) -> Result<()> {
        self.wait_for_lock(LockRequest::new(
            index,
            successor,
            Mode::Exclusive,
            Span::InsertIntention,
        ))
    }

    /// May a new key go before what follows `slot`? The leaf stays latched.
    #[inline]
    pub(super) fn gap_check(
        &mut self,
        leaf: &LeafMut<'_>,
        slot: usize,
        index: IndexId,
        key: &[u8],
    ) -> GapCheck {
        let (locks, owner) = (&self.engine.locks, &self.txn.owner);
        if !locks.has_gap_locks(index) || ferrite_sync::mutant!("entry.insert_ignores_gaps") {
            return GapCheck::Free;
        }
        let (mode, span) = (Mode::Exclusive, Span::InsertIntention);
        let checked = leaf.with_successor(slot, &mut self.buffers.key, |successor| {
            let successor = successor.unwrap_or(&SUPREMUM);
            debug_assert!(*key < *successor, "another gap is asked about");
            if locks.conflicts(owner, LockRequest::new(index, successor, mode, span)) {
                return GapCheck::Wait(successor.to_vec());
            }
            locks.inherit_gap_of_insert(owner, index, successor, key);
            GapCheck::Free
        });
        // The neighbour must be read in without our latch.
        checked.unwrap_or_else(GapCheck::Load)
    }
}

impl Engine {
    /// Explicit locks on the key in `slot`, which is about to go, become gap locks on the one that
    /// follows. The leaf stays latched.
    ///
    /// # Errors
    /// The neighbouring page that must be read in first, without the leaf's latch. Nothing was
    /// moved.
    pub(crate) fn move_locks_off(
        &self,
        leaf: &LeafMut<'_>,
        slot: usize,
        index: IndexId,
        key: &[u8],
    ) -> std::result::Result<(), PageId> {
        leaf.with_successor(slot + 1, &mut Vec::new(), |successor| {
            let successor = successor.unwrap_or(&SUPREMUM);
            debug_assert!(*key < *successor, "locks move to another gap");
            self.locks.inherit_removed(index, key, successor);
        })
    }
}
