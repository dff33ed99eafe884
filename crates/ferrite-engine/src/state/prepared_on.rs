//! Which indexes prepared transactions have changed, roughly: DDL asks here before it looks at the transaction of each
//! connection, which thousands of partitions times thousands of connections would make hours of.
//!
//! Invariant: of an index that a prepared transaction has changed the count is not 0, from before its slot says that it
//! is prepared until it has ended. Indexes share counts: one that is not 0 says that it is worth a look at the slots.
//!
//! Locking: none; a slot's own part is put in and taken out under its mutex.

use crate::state::touched::Touched;
use ferrite_sync::atomic::{AtomicU32, Ordering};
use ferrite_types::IndexId;

/// Indexes share so many counts: 16 KiB, and few indexes of a database are in transactions that are prepared right now.
const COUNTS: usize = 4096;

/// See the head of the file.
pub(crate) struct PreparedOn {
    counts: Box<[AtomicU32]>,
    /// Of transactions that may have changed any of those below.
    unknown: AtomicU32,
    unknown_below: AtomicU32,
}

impl Default for PreparedOn {
    fn default() -> PreparedOn {
        PreparedOn {
            counts: (0..COUNTS).map(|_| AtomicU32::new(0)).collect(),
            unknown: AtomicU32::new(0),
            unknown_below: AtomicU32::new(0),
        }
    }
}

impl PreparedOn {
    fn of(&self, index: IndexId) -> &AtomicU32 {
        &self.counts[index.0 as usize % COUNTS]
    }

    /// A transaction that has changed these is about to be prepared.
    pub(crate) fn add(&self, touched: &Touched) {
        if let Some(below) = touched.unknown_below() {
            self.unknown_below.fetch_max(below.0, Ordering::SeqCst);
            self.unknown.fetch_add(1, Ordering::SeqCst);
        }
        for index in touched.all() {
            let before = self.of(*index).fetch_add(1, Ordering::SeqCst);
            assert!(before < u32::MAX, "index {index}: it would count as none");
        }
    }

    /// It has ended.
    pub(crate) fn remove(&self, touched: &Touched) {
        if touched.has_unknown() {
            let before = self.unknown.fetch_sub(1, Ordering::SeqCst);
            assert!(before > 0, "more have ended than there were");
        }
        for index in touched.all() {
            let before = self.of(*index).fetch_sub(1, Ordering::SeqCst);
            assert!(before > 0, "index {index}: more have ended than there were");
        }
    }

    /// False: none that is prepared has changed that index.
    pub(crate) fn may_have(&self, index: IndexId) -> bool {
        let is_unknown = || {
            let is_old = index.0 < self.unknown_below.load(Ordering::SeqCst);
            is_old && self.unknown.load(Ordering::SeqCst) > 0
        };
        self.of(index).load(Ordering::SeqCst) > 0 || is_unknown()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_that_share_a_count_do_not_hide_each_other() {
        let on = PreparedOn::default();
        let (one, other) = (IndexId(20), IndexId(20 + COUNTS as u32));
        let touched = |indexes: &[IndexId]| {
            let mut touched = Touched::default();
            indexes.iter().for_each(|index| touched.add(*index));
            touched
        };
        on.add(&touched(&[one, IndexId(21)]));
        on.add(&touched(&[other]));
        assert!(on.may_have(one) && on.may_have(other) && on.may_have(IndexId(21)));
        assert!(!on.may_have(IndexId(22)));
        on.remove(&touched(&[one, IndexId(21)]));
        assert!(on.may_have(other) && !on.may_have(IndexId(21)));
        on.remove(&touched(&[other]));
        assert!(!on.may_have(other));
        let mut unknown = touched(&[one]);
        unknown.add_unknown(IndexId(23));
        on.add(&unknown);
        assert!(on.may_have(one) && on.may_have(IndexId(22)) && !on.may_have(IndexId(23)));
        on.remove(&unknown);
        assert!(!on.may_have(one) && !on.may_have(IndexId(22)));
    }
}
