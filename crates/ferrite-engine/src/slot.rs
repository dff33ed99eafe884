//! What others see of a transaction: its undo list, XID and state. A session has one slot and uses
//! it for one transaction after the other; a transaction without a session has one of its own.
//!
//! Invariants: the undo list is exact at a log position, for it grows under the slot's mutex around
//! the append of the record that it undoes; a checkpoint copies it under the same mutex.
//!
//! Locking: a slot's mutex is taken under a leaf's latch and over the append to the log.

use crate::purge_queue::Value;
use crate::touched::Touched;
use crate::undo_list::{UndoArea, UndoList};
use ferrite_lock::Owner;
use ferrite_sync::atomic::{AtomicU64, AtomicU8};
use ferrite_sync::{Arc, Mutex};
use ferrite_types::TxnId;

/// SQL isolation levels.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Isolation {
    /// Sees what is not committed.
    ReadUncommitted,
    /// A snapshot a statement.
    ReadCommitted,
    /// A snapshot a transaction.
    RepeatableRead,
    /// As above; the server asks for locks on what it reads.
    Serializable,
}

impl Isolation {
    /// SQL's name of the level with that number.
    pub(crate) fn name_of(number: u8) -> &'static str {
        match number {
            0 => "READ UNCOMMITTED",
            1 => "READ COMMITTED",
            2 => "REPEATABLE READ",
            _ => "SERIALIZABLE",
        }
    }
}

/// The server's name of a distributed transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid {
    /// Format id.
    pub format_id: i64,
    /// Length of the first part of `data`.
    pub gtrid_len: u32,
    /// gtrid and bqual, up to 128 bytes.
    pub data: Vec<u8>,
}

/// Undo of the running transaction, exact at a log position.
#[derive(Default)]
pub(crate) struct SlotState {
    /// Frozen while no transaction has changed anything.
    pub txn: TxnId,
    pub undo: UndoList,
    pub xid: Option<Xid>,
    /// Values that become garbage when it commits, as far as the log has them. With `txn`
    /// frozen: it has committed, and they are on their way to the purge queue.
    pub garbage: Vec<Value>,
    pub rolling_back: bool,
    /// The first phase is done; until the transaction has ended, whichever way.
    pub prepared: bool,
    /// Indexes it has changed.
    pub touched: Touched,
}

impl SlotState {
    /// The transaction has ended: from here a checkpoint's copy must not hold it any more.
    pub(crate) fn end(&mut self, area: &UndoArea) {
        self.end_of_list(area);
        self.garbage = Vec::new();
    }

    /// As [`SlotState::end`], but the values it leaves stay for now.
    pub(crate) fn end_of_list(&mut self, area: &UndoArea) {
        self.txn = TxnId::FROZEN;
        self.undo.clear(area);
        self.xid = None;
        self.rolling_back = false;
        self.prepared = false;
        self.touched.clear();
    }
}

/// The part of a session's transaction that a checkpoint copies.
pub(crate) struct TxnSlot {
    pub state: Mutex<SlotState>,
    pub owner: Arc<Owner>,
    /// When the first statement began, us of the monotonic clock, to 50 ms; 0: idle.
    pub started_us: AtomicU64,
    pub rows_changed: AtomicU64,
    /// Isolation level of the last statement, for display.
    pub isolation: AtomicU8,
}

impl TxnSlot {
    pub(crate) fn new(owner: Arc<Owner>) -> TxnSlot {
        TxnSlot {
            state: Mutex::new(SlotState::default()),
            owner,
            started_us: AtomicU64::new(0),
            rows_changed: AtomicU64::new(0),
            isolation: AtomicU8::new(Isolation::RepeatableRead as u8),
        }
    }
}
