//! Which indexes prepared transactions have changed, roughly: DDL asks here before it looks at the transaction of each
//! connection, which thousands of partitions times thousands of connections would make hours of.
//!
//! Invariant: of an index that a prepared transaction has changed the count is not 0, from before its slot says that it
//! is prepared until it has ended. Indexes share counts: one that is not 0 says that it is worth a look at the slots.
//!
//! Locking: none; a slot's own part is put in and taken out under its mutex.

use ferrite_sync::atomic::{AtomicU32, Ordering};
use ferrite_types::IndexId;

/// Indexes share so many counts: 16 KiB, and few indexes of a database are in transactions that are prepared right now.
const COUNTS: usize = 4096;

/// See the head of the file.
pub(crate) struct PreparedOn {
    counts: Box<[AtomicU32]>,
}

impl Default for PreparedOn {
    fn default() -> PreparedOn {
        PreparedOn {
            counts: (0..COUNTS).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl PreparedOn {
    fn of(&self, index: IndexId) -> &AtomicU32 {
        &self.counts[index.0 as usize % COUNTS]
    }

    /// A transaction that has changed these is about to be prepared.
    pub(crate) fn add(&self, indexes: &[IndexId]) {
        for index in indexes {
            let before = self.of(*index).fetch_add(1, Ordering::SeqCst);
            assert!(before < u32::MAX, "index {index}: it would count as none");
        }
    }

    /// It has ended.
    pub(crate) fn remove(&self, indexes: &[IndexId]) {
        for index in indexes {
            let before = self.of(*index).fetch_sub(1, Ordering::SeqCst);
            assert!(before > 0, "index {index}: more have ended than there were");
        }
    }

    /// False: none that is prepared has changed that index.
    pub(crate) fn may_have(&self, index: IndexId) -> bool {
        self.of(index).load(Ordering::SeqCst) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_that_share_a_count_do_not_hide_each_other() {
        let on = PreparedOn::default();
        let (one, other) = (IndexId(20), IndexId(20 + COUNTS as u32));
        on.add(&[one, IndexId(21)]);
        on.add(&[other]);
        assert!(on.may_have(one) && on.may_have(other) && on.may_have(IndexId(21)));
        assert!(!on.may_have(IndexId(22)));
        on.remove(&[one, IndexId(21)]);
        assert!(on.may_have(other) && !on.may_have(IndexId(21)));
        on.remove(&[other]);
        assert!(!on.may_have(other));
    }
}
