//! What is shown of a transaction, for who must not wait for its slot's mutex: that is held over appends to the log and
//! over the writing of undo, which wait for room, on a full disk without end. What users look at then is what they need
//! to find out who waits.
//!
//! Invariants: written under the slot's mutex alone, at each change of what it tells; each figure is right by itself, and
//! two of them may be of different moments, even of one transaction and the next. The length of an undo list is written
//! before anybody can read the leaf on which a change was taken back (`visible`).
//!
//! Locking: none.

use ferrite_sync::atomic::{AtomicU64, AtomicU8, Ordering};
use ferrite_types::TxnId;

/// Where a transaction stands, without its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Stands {
    Nowhere,
    Active,
    Prepared,
    RollingBack,
}

const ALL: [Stands; 4] = [
    Stands::Nowhere,
    Stands::Active,
    Stands::Prepared,
    Stands::RollingBack,
];

/// See the head of the file.
#[derive(Default)]
pub(crate) struct SlotFigures {
    txn: AtomicU64,
    stands: AtomicU8,
    undo_bytes: AtomicU64,
    undo_memory_bytes: AtomicU64,
}

impl SlotFigures {
    /// Of that transaction from here on; frozen: of none.
    pub(super) fn set_txn(&self, txn: TxnId) {
        self.txn.store(txn.0, Ordering::Release);
    }

    pub(super) fn set_stands(&self, stands: Stands) {
        self.stands.store(stands as u8, Ordering::Release);
        debug_assert_eq!(ALL[stands as usize], stands, "shown as another");
    }

    pub(super) fn set_undo(&self, bytes: u64, memory_bytes: usize) {
        self.undo_bytes.store(bytes, Ordering::Relaxed);
        let memory = memory_bytes as u64;
        self.undo_memory_bytes.store(memory, Ordering::Relaxed);
    }

    /// Frozen while no transaction has changed anything.
    pub(crate) fn txn(&self) -> TxnId {
        TxnId(self.txn.load(Ordering::Acquire))
    }

    pub(crate) fn stands(&self) -> Stands {
        let number = usize::from(self.stands.load(Ordering::Acquire));
        assert!(number < ALL.len(), "it stands at {number}");
        ALL[number]
    }

    /// Length of its undo list, in bytes.
    pub(crate) fn undo_bytes(&self) -> u64 {
        self.undo_bytes.load(Ordering::Relaxed)
    }

    /// Memory that its undo takes, in bytes.
    pub(crate) fn undo_memory_bytes(&self) -> u64 {
        self.undo_memory_bytes.load(Ordering::Relaxed)
    }
}
