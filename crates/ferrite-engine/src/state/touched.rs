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
    /// There may be others: its undo cannot be read.
    has_unknown: bool,
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

    /// There may be any others.
    pub(crate) fn add_unknown(&mut self) {
        self.has_unknown = true;
        debug_assert!(self.has(IndexId(1)), "a table that DDL could take");
    }

    pub(crate) fn has_unknown(&self) -> bool {
        self.has_unknown
    }

    /// Has it changed entries of that index, or may it have?
    pub(crate) fn has(&self, index: IndexId) -> bool {
        self.has_unknown || self.all.binary_search(&index).is_ok()
    }

    /// All that are known, sorted.
    pub(crate) fn all(&self) -> &[IndexId] {
        &self.all
    }

    /// The next transaction begins.
    pub(crate) fn clear(&mut self) {
        self.has_unknown = false;
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
        touched.add_unknown();
        assert!(touched.has(IndexId(2000)) && touched.all().len() == 1980);
        touched.clear();
        assert!(!touched.has(IndexId(20)) && !touched.has_unknown());
        touched.add(IndexId(20));
        assert!(touched.has(IndexId(20)));
    }
}
