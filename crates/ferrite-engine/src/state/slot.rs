//! What others see of a transaction: its undo list, XID and state. A session has one slot and uses
//! it for one transaction after the other; a transaction without a session has one of its own.
//!
//! Invariants: the undo list is exact at a log position, for it grows under the slot's mutex around
//! the append of the record that it undoes; a checkpoint copies it under the same mutex.
//!
//! Locking: a slot's mutex is taken under a leaf's latch and over the append to the log, which may wait for room; over the
//! writing of undo, too. What is shown of a transaction is read without it (`slot_figures`).

use crate::log_records::values::Value;
use crate::log_records::xid::Xid;
use crate::state::made_again::MadeAgain;
use crate::state::prepared_on::PreparedOn;
use crate::state::slot_figures::{SlotFigures, Stands};
use crate::state::touched::Touched;
use crate::state::undo_area::UndoArea;
use crate::state::undo_list::UndoList;
use ferrite_lock::Owner;
use ferrite_sync::atomic::{AtomicU64, AtomicU8};
use ferrite_sync::{Arc, Mutex};
use ferrite_types::{TxnId, UndoPosition};

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

/// What others see of where a transaction stands.
#[derive(Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has changed nothing, or has ended.
    #[default]
    None,
    /// It changes rows.
    Active,
    /// The first phase is done: it waits for its decision.
    Prepared(Xid),
    /// Changes are being taken back, of a statement or all. After a crash all of them go, unasked:
    /// a prepared transaction has lost its XID.
    RollingBack {
        /// The first phase was done: no way back to the second.
        was_prepared: bool,
    },
}

impl Standing {
    fn stands(&self) -> Stands {
        match self {
            Standing::None => Stands::Nowhere,
            Standing::Active => Stands::Active,
            Standing::Prepared(_) => Stands::Prepared,
            Standing::RollingBack { .. } => Stands::RollingBack,
        }
    }
}

/// The part of a transaction that others look at; its undo list is exact at a log position.
pub(crate) struct SlotState {
    /// Frozen while no transaction has changed anything.
    pub txn: TxnId,
    standing: Standing,
    pub undo: UndoList,
    /// Values that become garbage when it commits, as far as the log has them. With `txn`
    /// frozen: it has committed, and they are on their way to the purge queue.
    pub garbage: Vec<Value>,
    /// Indexes it has changed.
    pub touched: Touched,
    /// Of one that a restart has found prepared: how far its versions were made again.
    pub made_again: MadeAgain,
    /// Where these are counted while it is prepared.
    counted: Option<Arc<PreparedOn>>,
    /// The same for who does not wait for the mutex.
    figures: Arc<SlotFigures>,
}

impl SlotState {
    fn new(figures: Arc<SlotFigures>) -> SlotState {
        let mut undo = UndoList::default();
        undo.tell(figures.clone());
        debug_assert!(figures.txn().is_frozen() && figures.stands() == Stands::Nowhere);
        SlotState {
            txn: TxnId::FROZEN,
            standing: Standing::None,
            undo,
            garbage: Vec::new(),
            touched: Touched::default(),
            made_again: MadeAgain::default(),
            counted: None,
            figures,
        }
    }

    fn stand(&mut self, standing: Standing) {
        self.figures.set_stands(standing.stands());
        self.standing = standing;
        debug_assert_eq!(self.figures.txn(), self.txn, "another's figures");
    }

    /// Its first change is about to come.
    pub(crate) fn begin(&mut self, txn: TxnId) {
        assert!(
            matches!(self.standing, Standing::None),
            "one transaction at a time"
        );
        assert!(
            self.txn.is_frozen() && !txn.is_frozen(),
            "{} and {txn}",
            self.txn
        );
        debug_assert_eq!(
            self.undo.position(),
            UndoPosition::START,
            "{txn} begins with another's undo"
        );
        debug_assert!(
            self.garbage.is_empty(),
            "{txn} begins with another's values"
        );
        debug_assert!(self.touched.all().is_empty(), "{txn}: another's indexes");
        self.txn = txn;
        self.figures.set_txn(txn);
        self.stand(Standing::Active);
    }

    /// A transaction that recovery has found without an end.
    pub(crate) fn recover(&mut self, txn: TxnId, undo: UndoList, xid: Option<Xid>) {
        self.begin(txn);
        self.undo = undo;
        self.undo.tell(self.figures.clone());
        if let Some(xid) = xid {
            self.stand(Standing::Prepared(xid));
        }
    }

    /// It is about to be prepared, or recovery has found it so: it changes no other index from here on.
    pub(crate) fn count_prepared(&mut self, on: &Arc<PreparedOn>) {
        assert!(self.counted.is_none(), "{} is counted twice", self.txn);
        on.add(&self.touched);
        self.counted = Some(on.clone());
    }

    fn count_no_more(&mut self) {
        if let Some(on) = self.counted.take() {
            on.remove(&self.touched);
        }
    }

    /// The PREPARE record is in the log.
    pub(crate) fn prepare(&mut self, xid: Xid) {
        assert!(
            matches!(self.standing, Standing::Active),
            "prepared twice, or ended"
        );
        assert!(!self.txn.is_frozen(), "no transaction is prepared");
        self.stand(Standing::Prepared(xid));
    }

    /// The word to roll it back is in the log: from here on it is one without an end, as after a crash.
    pub(crate) fn take_name(&mut self) {
        assert!(
            matches!(self.standing, Standing::Prepared(_)),
            "decided, and not prepared"
        );
        assert!(!self.txn.is_frozen(), "no transaction is decided");
        self.stand(Standing::Active);
        self.count_no_more();
        debug_assert!(self.xid().is_none() && !self.is_prepared());
    }

    /// An entry of the undo list is about to be undone.
    pub(crate) fn begin_rollback(&mut self) {
        let was_prepared = self.is_prepared();
        assert!(!self.txn.is_frozen(), "a rollback of nothing");
        self.stand(Standing::RollingBack { was_prepared });
    }

    /// The log says that nothing but its rollback is left of a prepared one, which has failed half way.
    pub(crate) fn decide_rollback(&mut self) {
        assert!(self.is_prepared(), "{} is not prepared", self.txn);
        assert!(!self.txn.is_frozen(), "no transaction is decided");
        self.standing = Standing::RollingBack {
            was_prepared: false,
        };
        self.count_no_more();
        debug_assert!(self.xid().is_none() && !self.is_prepared());
    }

    /// Everything is undone that was to be; the transaction may go on, unless it was prepared.
    pub(crate) fn pause_rollback(&mut self) {
        if matches!(
            self.standing,
            Standing::RollingBack {
                was_prepared: false
            }
        ) {
            self.stand(Standing::Active);
        }
    }

    /// The first phase is done; until the transaction has ended, whichever way, or its rollback has failed half way.
    pub(crate) fn is_prepared(&self) -> bool {
        let rolling_back = Standing::RollingBack { was_prepared: true };
        matches!(self.standing, Standing::Prepared(_)) || self.standing == rolling_back
    }

    /// It is that transaction, and prepared.
    pub(crate) fn is_prepared_as(&self, txn: TxnId) -> bool {
        debug_assert!(!txn.is_frozen(), "a prepared transaction has an id");
        self.txn == txn && self.is_prepared()
    }

    /// Its name, while it can be committed or rolled back by it.
    pub(crate) fn xid(&self) -> Option<&Xid> {
        match &self.standing {
            Standing::Prepared(xid) => Some(xid),
            _ => None,
        }
    }

    /// The transaction has ended: from here a checkpoint's copy must not hold it any more.
    pub(crate) fn end(&mut self, area: &UndoArea) {
        self.end_of_list(area);
        self.garbage = Vec::new();
    }

    /// As [`SlotState::end`], but the values it leaves stay for now.
    pub(crate) fn end_of_list(&mut self, area: &UndoArea) {
        self.txn = TxnId::FROZEN;
        self.figures.set_txn(TxnId::FROZEN);
        self.stand(Standing::None);
        self.undo.clear(area);
        self.count_no_more();
        self.touched.clear();
        self.made_again = MadeAgain::default();
        debug_assert!(
            !self.is_prepared() && self.xid().is_none(),
            "a name is left"
        );
    }
}

/// The part of a session's transaction that a checkpoint copies.
pub(crate) struct TxnSlot {
    pub state: Mutex<SlotState>,
    /// What is shown of it, without the mutex.
    pub figures: Arc<SlotFigures>,
    pub owner: Arc<Owner>,
    /// When the first statement began, us of the monotonic clock, to 50 ms; 0: idle.
    pub started_us: AtomicU64,
    pub rows_changed: AtomicU64,
    /// Isolation level of the last statement, for display.
    pub isolation: AtomicU8,
}

impl TxnSlot {
    pub(crate) fn new(owner: Arc<Owner>) -> TxnSlot {
        let figures = Arc::new(SlotFigures::default());
        TxnSlot {
            state: Mutex::new(SlotState::new(figures.clone())),
            figures,
            owner,
            started_us: AtomicU64::new(0),
            rows_changed: AtomicU64::new(0),
            isolation: AtomicU8::new(Isolation::RepeatableRead as u8),
        }
    }
}
