//! Where a session changed a row last: whoever changes rows in the order of their keys finds the next one there without
//! the way down from the root.
//!
//! Invariants: it is a hint. The page may have been split, evicted, freed or given to another tree since; the tree looks
//! at what it finds there, and reads nothing for it. It is given only after two changes in a row have met the same leaf,
//! so that random changes do not latch leaves in vain.
//!
//! Locking: none, it belongs to its session.

use ferrite_types::{IndexId, PageId};

#[derive(Clone, Copy, Debug)]
pub(crate) struct LastLeaf {
    index: IndexId,
    page: PageId,
    /// The change before was in the same leaf.
    again: bool,
}

impl Default for LastLeaf {
    fn default() -> LastLeaf {
        LastLeaf {
            index: IndexId(0),
            page: PageId::NONE,
            again: false,
        }
    }
}

impl LastLeaf {
    /// Where to look first, or none.
    #[inline]
    pub(crate) fn hint(&self, index: IndexId) -> PageId {
        match self.again && self.index == index {
            true => self.page,
            false => PageId::NONE,
        }
    }

    /// A row was changed in `page`.
    #[inline]
    pub(crate) fn note(&mut self, index: IndexId, page: PageId) {
        debug_assert!(page != PageId::NONE, "a row in no page");
        self.again = self.page == page && self.index == index;
        (self.index, self.page) = (index, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_leaf_met_twice_is_a_hint() {
        let (one, two) = (IndexId(1), IndexId(2));
        let mut last = LastLeaf::default();
        assert_eq!(last.hint(one), PageId::NONE);
        last.note(one, PageId(7));
        assert_eq!(last.hint(one), PageId::NONE);
        last.note(one, PageId(7));
        assert_eq!(last.hint(one), PageId(7));
        assert_eq!(last.hint(two), PageId::NONE);
        last.note(one, PageId(8));
        assert_eq!(last.hint(one), PageId::NONE);
        last.note(two, PageId(8));
        assert_eq!(last.hint(two), PageId::NONE);
    }
}
