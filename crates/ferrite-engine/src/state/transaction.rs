//! A transaction: its id, phase, undo, locks, snapshot and garbage, and the steps from one phase to
//! the next.
//!
//! ```text
//!           begin             order                end
//!   Idle ----------> Active ------------> Ordered -----> Idle
//!                     |  ^                   ^
//!             prepare |  | (statement        | order
//!                     v  |  undone)          |
//!                   Prepared ----------------+
//!                     | begin_rollback       end
//!                     v
//!   Active -------> RollingBack -------------------> Idle
//!          begin_rollback, or the rollback of a part of it that stopped half way
//!   Idle  (after the rollback of a deadlock's victim)  abort_as_victim --> Aborted --end--> Idle
//! ```
//!
//! Invariants: the id is frozen in `Idle` and `Aborted`, and only there. What others look at is in the
//! slot (undo list, XID: the checkpointer) and in the owner (locks: other sessions); nobody but
//! this type and the protocols in `crate::transaction` changes them. It belongs to a session; a
//! prepared one that its session has left belongs to `Engine::prepared`, a large one that a crash cut off
//! is known to `Engine::unsettled`. One that a start decides to roll back goes from there to here: it is made
//! again, as `Active`, of what its slot says.
//!
//! Locking: none of its own; see `slot`.

use crate::log_records::values::LOGGED_BYTES;
use crate::log_records::xid::Xid;
use crate::state::changed::ChangedTables;
use crate::state::engine::Engine;
use crate::state::garbage::GarbageList;
use crate::state::marked_keys::MarkedKeys;
use crate::state::purge_work::Garbage;
use crate::state::slot::TxnSlot;
use ferrite_lock::Owner;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_txn::Snapshot;
use ferrite_types::{Lsn, TxnId, UndoPosition};

/// Where a transaction stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Nothing was changed.
    Idle,
    /// It has an id and changes rows.
    Active,
    /// The first phase is done: durable, it waits for its decision.
    Prepared,
    /// Its commit record is in the log and ends there; others see it. Not answered yet.
    Ordered(Lsn),
    /// Its rollback has begun, or that of a part of it has failed half way: there is no other way any
    /// more.
    RollingBack,
    /// The engine has rolled it back (deadlock); only its end is accepted.
    Aborted,
}

/// See the head of the file.
pub(crate) struct Transaction {
    id: TxnId,
    phase: Phase,
    pub owner: Arc<Owner>,
    pub slot: Arc<TxnSlot>,
    pub snapshot: Option<Snapshot>,
    /// What becomes garbage when it commits.
    pub garbage: GarbageList,
    /// Tables that it has changed.
    pub changed: ChangedTables,
    /// Secondary entries that it has delete-marked.
    pub marked: MarkedKeys,
    /// The undo list has grown long: its older part leaves memory before the next change.
    pub spill_due: bool,
    /// Where the record of its last change ends.
    pub last_change: Lsn,
    /// Values out of line among the garbage that no record names yet. The log keeps room for them: its commit waits
    /// for nothing.
    owed_values: u64,
}

impl Transaction {
    /// One that has changed nothing, of a connection; `engine` knows it from here on.
    pub(crate) fn new(engine: &Engine, owner: Arc<Owner>) -> Transaction {
        let slot = Arc::new(TxnSlot::new(owner.clone()));
        engine.register_slot(&slot);
        Transaction {
            id: TxnId::FROZEN,
            phase: Phase::Idle,
            owner,
            slot,
            snapshot: None,
            garbage: GarbageList::default(),
            changed: ChangedTables::default(),
            marked: MarkedKeys::default(),
            spill_due: false,
            last_change: Lsn::ZERO,
            owed_values: 0,
        }
    }

    /// One that a restart has found without an end; its slot tells how far it is.
    pub(crate) fn recovered(slot: Arc<TxnSlot>, garbage: GarbageList) -> Transaction {
        let (id, phase) = {
            let state = slot.state.lock();
            let prepared = state.xid().is_some();
            let phase = if prepared {
                Phase::Prepared
            } else {
                Phase::Active
            };
            (state.txn, phase)
        };
        assert!(!id.is_frozen(), "an unfinished transaction has an id");
        debug_assert_eq!(slot.owner.txn_id(), id, "another's locks");
        Transaction {
            id,
            phase,
            owner: slot.owner.clone(),
            slot,
            snapshot: None,
            garbage,
            changed: ChangedTables::default(),
            marked: MarkedKeys::default(),
            spill_due: false,
            last_change: Lsn::ZERO,
            owed_values: 0,
        }
    }

    /// Its id; frozen while it has changed nothing.
    #[inline]
    pub(crate) fn id(&self) -> TxnId {
        self.id
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    /// Has it changed rows, or begun to?
    #[inline]
    pub(crate) fn has_changes(&self) -> bool {
        !self.id.is_frozen()
    }

    /// Something ends with it: changes, locks, or the word that it was rolled back. An open snapshot
    /// alone does not count.
    pub(crate) fn is_active(&self) -> bool {
        self.phase != Phase::Idle || self.owner.locks_held() > 0
    }

    /// The undo position now: a savepoint, in bytes of undo.
    pub(crate) fn undo_position(&self) -> UndoPosition {
        if self.id.is_frozen() {
            return UndoPosition::START;
        }
        self.slot.state.lock().undo.position()
    }

    /// It lets go of a value out of line, at that undo position.
    pub(crate) fn leave_value(&mut self, engine: &Engine, at: UndoPosition, value: Garbage) {
        debug_assert!(value.overflow().is_some() && self.phase == Phase::Active);
        self.garbage.add(at, value);
        self.owed_values += 1;
        engine.log.promise(LOGGED_BYTES);
    }

    /// It undoes its changes down to that position.
    pub(crate) fn garbage_undone_to(&mut self, engine: &Engine, position: UndoPosition) {
        let gone = self.garbage.undone_to(position);
        // A prepared one owes nothing.
        self.owes_less(engine, gone.min(self.owed_values));
    }

    /// Values that the log keeps room for.
    pub(crate) fn owed_values(&self) -> u64 {
        self.owed_values
    }

    /// So many of its values are in the log, or will not be.
    pub(crate) fn owes_less(&mut self, engine: &Engine, values: u64) {
        if values == 0 {
            return;
        }
        assert!(values <= self.owed_values, "{}: {values} values", self.id);
        self.owed_values -= values;
        engine.log.unpromise(values * LOGGED_BYTES);
    }

    /// All of its values are in the log, or none will be.
    #[inline]
    pub(crate) fn owes_nothing(&mut self, engine: &Engine) {
        self.owes_less(engine, self.owed_values);
        debug_assert_eq!(self.owed_values, 0);
    }

    // ---- from phase to phase -----------------------------------------------------------------

    /// Its first change is about to come.
    #[cold]
    pub(crate) fn begin(&mut self, engine: &Engine) {
        assert_eq!(self.phase, Phase::Idle, "{}: begun twice", self.id);
        assert!(self.id.is_frozen(), "{} begins again", self.id);
        debug_assert!(self.garbage.is_empty(), "garbage of another transaction");
        self.id = engine.txns.begin(self.owner.clone());
        self.owner.set_txn(self.id);
        self.slot.state.lock().begin(self.id);
        self.phase = Phase::Active;
    }

    /// The PREPARE record is in the log, appended under the slot's mutex.
    pub(crate) fn prepared(&mut self) {
        assert_eq!(self.phase, Phase::Active, "{}: prepared", self.id);
        debug_assert!(self.slot.state.lock().is_prepared());
        self.phase = Phase::Prepared;
    }

    /// The COMMIT record is in the log and ends at `end`.
    pub(crate) fn ordered(&mut self, end: Lsn) {
        assert!(
            self.last_change < end,
            "{}: its commit ends at {end}, its last change at {}",
            self.id,
            self.last_change
        );
        let before = self.phase;
        assert!(
            matches!(before, Phase::Active | Phase::Prepared),
            "{}: committed when {before:?}",
            self.id
        );
        self.phase = Phase::Ordered(end);
    }

    /// Everything is about to be undone; or what was to be undone is so in part, and nobody may add to
    /// that or commit it.
    pub(crate) fn begin_rollback(&mut self) {
        assert!(!self.id.is_frozen(), "nothing to be rolled back");
        match self.phase {
            Phase::Active | Phase::Prepared | Phase::RollingBack => self.phase = Phase::RollingBack,
            other => panic!("{}: rolled back when {other:?}", self.id),
        }
    }

    /// It was rolled back to end a deadlock, and the server does not know yet.
    pub(crate) fn abort_as_victim(&mut self) {
        assert_eq!(self.phase, Phase::Idle, "{}: not rolled back", self.id);
        assert_eq!(
            self.owner.locks_held(),
            0,
            "others still wait for the victim"
        );
        debug_assert!(!self.has_changes() && self.garbage.is_empty());
        self.phase = Phase::Aborted;
    }

    /// Everything it held is gone; ready for the next one.
    pub(crate) fn end(&mut self, engine: &Engine) {
        if !self.id.is_frozen() {
            self.slot.state.lock().end(&engine.undo_area);
        }
        debug_assert_eq!(self.owner.locks_held(), 0, "{}: locks stay", self.id);
        debug_assert!(!self.owner.is_waiting(), "{} ends while it waits", self.id);
        self.slot.started_us.store(0, Ordering::Relaxed);
        self.slot.rows_changed.store(0, Ordering::Relaxed);
        self.owner.set_txn(TxnId::FROZEN);
        self.owner.changes.store(0, Ordering::Relaxed);
        self.owes_nothing(engine);
        self.id = TxnId::FROZEN;
        self.phase = Phase::Idle;
        self.snapshot = None;
        self.spill_due = false;
        self.garbage.clear();
        self.changed.clear();
        self.marked.clear();
    }

    /// The machine is gone: nothing is rolled back or written.
    pub(crate) fn abandon(&mut self) {
        self.id = TxnId::FROZEN;
        self.phase = Phase::Idle;
        self.garbage.clear();
        self.owed_values = 0;
        // The locks belong to a table that nobody asks any more.
        self.owner = Owner::new(0, 0);
    }

    /// Its name, while it is prepared and can be committed or rolled back by it.
    pub(crate) fn xid(&self) -> Option<Xid> {
        self.slot.state.lock().xid().cloned()
    }
}
