//! The indexes that a transaction has changed: what DDL asks a prepared one for.
//!
//! Invariant: every index is in it that an undo entry of the transaction names; one whose
//! changes were rolled back to a savepoint may stay.
//!
//! Locking: under the transaction's slot mutex.

use ferrite_types::IndexId;

/// Indexes remembered by place, so that the rows of one table cost a comparison each.
const RECENT: usize = 16;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Touched {
    recent: [IndexId; RECENT],
    /// Sorted.
    all: Vec<IndexId>,
    /// There may be others below this one: its undo cannot be read. 0: there are none.
    unknown_below: IndexId,
}

impl Touched {
    /// The transaction changes an entry of that index.
    #[inline]
    pub(crate) fn add(&mut self, index: IndexId) {
        if self.recent[index.0 as usize % RECENT] != index {
            self.add_new(index);
        }
    }

    #[cold]
    fn add_new(&mut self, index: IndexId) {
        assert_ne!(index, IndexId(0), "a change in no index");
        self.recent[index.0 as usize % RECENT] = index;
        if let Err(at) = self.all.binary_search(&index) {
            self.all.insert(at, index);
        }
        debug_assert!(self.has(index));
    }

    /// There may be others, of those that were there: all are below `next`.
    pub(crate) fn add_unknown(&mut self, next: IndexId) {
        debug_assert!(self.all.iter().all(|known| *known < next), "up to {next}");
        self.unknown_below = next;
        debug_assert!(self.has(IndexId(1)), "a table that DDL could take");
    }

    /// Above all that there may be unknown; None: there is none.
    pub(crate) fn unknown_below(&self) -> Option<IndexId> {
        (self.unknown_below > IndexId(0)).then_some(self.unknown_below)
    }

    pub(crate) fn has_unknown(&self) -> bool {
        self.unknown_below().is_some()
    }

    /// Has it changed entries of that index, or may it have?
    pub(crate) fn has(&self, index: IndexId) -> bool {
        index < self.unknown_below || self.all.binary_search(&index).is_ok()
    }

    /// All that are known, sorted.
    pub(crate) fn all(&self) -> &[IndexId] {
        &self.all
    }

    /// The next transaction begins.
    pub(crate) fn clear(&mut self) {
        self.unknown_below = IndexId(0);
        if !self.all.is_empty() {
            self.recent = Default::default();
            self.all.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_remembered() {
        let mut touched = Touched::default();
        for round in 0..3 {
            for n in (20..2000).rev() {
                touched.add(IndexId(n));
                touched.add(IndexId(20 + (n * 7 + round) % 1980));
            }
        }
        assert!((20..2000).all(|n| touched.has(IndexId(n))));
        assert!(!touched.has(IndexId(0)) && !touched.has(IndexId(2000)));
        assert_eq!(touched.all.len(), 1980);
        touched.add_unknown(IndexId(2500));
        assert!(touched.has(IndexId(2000)) && touched.all().len() == 1980);
        assert!(
            touched.has(IndexId(2499)) && !touched.has(IndexId(2500)),
            "one that is newer"
        );
        touched.clear();
        assert!(!touched.has(IndexId(20)) && !touched.has_unknown());
        touched.add(IndexId(20));
        assert!(touched.has(IndexId(20)));
    }
}
