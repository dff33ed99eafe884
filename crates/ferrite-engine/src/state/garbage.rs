//! What a transaction will leave to be purged when it commits.
//!
//! Invariant: pieces are in the order of the undo positions at which they were made, so that a
//! rollback to a position takes the last ones back. One piece stands for all delete-marks of a page,
//! as far as the page is remembered.
//!
//! Beyond some number of marks only the leaves that further ones are on are kept, as a set without
//! positions: a rollback to a position may leave some in it that have none any more, which costs purge a
//! look at each. Both halves of a leaf with marks that the transaction splits are in it, too: the marks on
//! either are then found, whatever piece stood for them.
//!
//! Locking: none; a transaction's own.

use crate::catalog::table::Table;
use crate::state::page_set::PageSet;
use crate::state::purge_work::Garbage;
use ferrite_sync::Arc;
use ferrite_types::{PageId, UndoPosition};

/// Pages remembered.
const PAGE_BITS: u32 = 5;
const PAGES: usize = 1 << PAGE_BITS;
/// Pieces that a list keeps room for when it is empty.
const KEPT_ROOM: usize = 1024;

/// Where a page is remembered. The indexes of a table have their pages in extents of the same length, and
/// fill them alike: what the lowest bits say, pages of all of them would say.
fn place_of(page: PageId) -> usize {
    (page.0.wrapping_mul(0x9E37_79B1) >> (u32::BITS - PAGE_BITS)) as usize
}

fn is_entry(piece: &Garbage) -> bool {
    matches!(piece, Garbage::Entry { .. })
}

/// See the head of the file.
pub(crate) struct GarbageList {
    /// Undo position at which each piece was made, and the piece.
    pieces: Vec<(UndoPosition, Garbage)>,
    /// Pages that have a piece, as far as remembered, and where in `pieces` it is.
    pages: [(PageId, usize); PAGES],
    /// Entries among the pieces.
    entries: usize,
    /// Leaves with marks that may have no piece.
    leaves: PageSet,
    /// The first of those marks was made there or later.
    leaves_from: UndoPosition,
}

impl Default for GarbageList {
    fn default() -> GarbageList {
        GarbageList {
            pieces: Vec::new(),
            pages: [(PageId::NONE, 0); PAGES],
            entries: 0,
            leaves: PageSet::default(),
            leaves_from: UndoPosition::END,
        }
    }
}

impl GarbageList {
    /// What recovery knows of a prepared transaction's values.
    pub(crate) fn recovered(values: Vec<Garbage>) -> GarbageList {
        debug_assert!(values.iter().all(|piece| piece.overflow().is_some()));
        GarbageList {
            pieces: values
                .into_iter()
                .map(|piece| (UndoPosition::START, piece))
                .collect(),
            ..GarbageList::default()
        }
    }

    /// A value out of line, or an entry whose page was not looked at, made garbage at that undo position.
    pub(crate) fn add(&mut self, at: UndoPosition, piece: Garbage) {
        debug_assert!(self.pieces.last().is_none_or(|(last, _)| *last <= at));
        self.entries += usize::from(is_entry(&piece));
        self.pieces.push((at, piece));
    }

    /// A delete-marked entry. If a piece stands for its page already, that one now stands for more
    /// than its own key. If there are `most` entries, its page goes to the set.
    pub(crate) fn add_entry(
        &mut self,
        at: UndoPosition,
        page: PageId,
        (table, number): (&Arc<Table>, usize),
        key: &[u8],
        most: usize,
    ) {
        let place = &mut self.pages[place_of(page)];
        if place.0 == page {
            if let Some((_, Garbage::Entry { alone, .. })) = self.pieces.get_mut(place.1) {
                *alone = false;
                return;
            }
        }
        debug_assert!(
            page != PageId::NONE && at > UndoPosition::START,
            "a mark on {page} at {at}"
        );
        if self.entries >= most {
            self.leaves.insert(page);
            self.leaves_from = self.leaves_from.min(at);
            return;
        }
        *place = (page, self.pieces.len());
        self.add(at, Garbage::entry(table, number, key, true));
    }

    /// May there be marks of the transaction on some leaf?
    #[inline]
    pub(crate) fn has_marks(&self) -> bool {
        self.entries > 0 || !self.leaves.is_empty()
    }

    /// The transaction has split a leaf into these two. `marked`: it had marks of its own, and some may have come from the
    /// one to the other. Without, the key of the piece that stands for the leaf may have, by which the leaf is found.
    pub(crate) fn split(&mut self, halves: (PageId, PageId), marked: bool) {
        if !self.has_marks() {
            return;
        }
        for page in [halves.0, halves.1] {
            let place = &mut self.pages[place_of(page)];
            if place.0 == page {
                *place = (PageId::NONE, 0);
            }
        }
        if !marked {
            return;
        }
        let first = self.pieces.first().map(|(at, _)| *at);
        self.leaves_from = self.leaves_from.min(first.unwrap_or(UndoPosition::END));
        self.leaves.insert(halves.0);
        self.leaves.insert(halves.1);
        debug_assert!(self.leaves_from < UndoPosition::END, "of which mark");
    }

    /// Undone down to that position: pieces made above it are none. Returns how many of them were values out of line.
    pub(crate) fn undone_to(&mut self, position: UndoPosition) -> u64 {
        let (before, entries) = (self.pieces.len(), self.entries);
        while self.pieces.last().is_some_and(|(at, _)| *at > position) {
            let piece = self.pieces.pop();
            self.entries -= usize::from(piece.is_some_and(|(_, piece)| is_entry(&piece)));
        }
        let gone = before - self.pieces.len();
        let values = gone - (entries - self.entries);
        if self.leaves_from > position {
            self.forget_leaves();
        }
        if self.pieces.len() < before {
            self.forget_pages();
        }
        debug_assert!(
            self.pieces.iter().all(|(at, _)| *at <= position),
            "what was undone above {position} would be purged"
        );
        values as u64
    }

    /// References of the values out of line among the pieces.
    pub(crate) fn values(&self) -> impl Iterator<Item = crate::log_records::values::Value> + '_ {
        let mut place = 0;
        std::iter::from_fn(move || self.next_value(&mut place))
    }

    /// The same one by one, from a place on, which moves behind it.
    pub(crate) fn next_value(
        &self,
        place: &mut usize,
    ) -> Option<crate::log_records::values::Value> {
        debug_assert!(*place <= self.pieces.len(), "behind the last piece");
        loop {
            let (_, piece) = self.pieces.get(*place)?;
            *place += 1;
            if let Some((index, reference)) = piece.overflow() {
                return Some((index, *reference));
            }
        }
    }

    /// Hands all pieces over, and the leaves.
    pub(crate) fn take(&mut self) -> (Vec<Garbage>, PageSet) {
        self.forget_pages();
        debug_assert!(self.pieces.is_sorted_by_key(|(at, _)| *at));
        let pieces: Vec<_> = if self.pieces.len() > KEPT_ROOM {
            // In their own room: there may be millions of values.
            let pieces = std::mem::take(&mut self.pieces).into_iter();
            pieces.map(|(_, piece)| piece).collect()
        } else {
            self.pieces.drain(..).map(|(_, piece)| piece).collect()
        };
        debug_assert!(self.pieces.is_empty(), "pieces are purged twice");
        let entries = std::mem::take(&mut self.entries);
        debug_assert_eq!(pieces.iter().filter(|p| is_entry(p)).count(), entries);
        let leaves = std::mem::take(&mut self.leaves);
        self.leaves_from = UndoPosition::END;
        (pieces, leaves)
    }

    /// None is left.
    pub(crate) fn clear(&mut self) {
        if !self.is_empty() {
            self.pieces.clear();
            self.pieces.shrink_to(KEPT_ROOM);
            self.entries = 0;
            self.forget_pages();
            self.forget_leaves();
        }
    }

    /// Pieces that are left so far, and leaves.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.pieces.len() + self.leaves.len()
    }

    /// Is there none?
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.leaves.is_empty()
    }

    fn forget_leaves(&mut self) {
        self.leaves.clear();
        self.leaves_from = UndoPosition::END;
    }

    fn forget_pages(&mut self) {
        self.pages = [(PageId::NONE, 0); PAGES];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create, open};
    use ferrite_io::sim::SimStorage;

    #[test]
    fn pages_of_indexes_that_fill_alike_have_one_piece_each() {
        let engine = open(&SimStorage::new(1));
        let table = create(&engine);
        let mut list = GarbageList::default();
        for n in 0..100u64 {
            for index in 0..3u32 {
                let page = PageId(64 * (5 + index) + (n / 50) as u32);
                let at = UndoPosition(n * 3 + u64::from(index) + 1);
                list.add_entry(at, page, (&table, 0), &n.to_be_bytes(), 1000);
            }
        }
        assert_eq!((list.take().0.len(), list.entries), (6, 0));
        assert!(list.is_empty());
        drop((list, table));
        engine.close().unwrap();
    }

    /// Whatever a transaction marks, in whatever order, it does not keep more than so much.
    #[test]
    fn leaves_are_kept_beyond_so_many_marks() {
        let engine = open(&SimStorage::new(1));
        let table = create(&engine);
        let mut list = GarbageList::default();
        let mut rng = ferrite_sync::random::Rng::new(5);
        let mut mark = |list: &mut GarbageList, at| {
            let page = PageId(64 + rng.below(20_000) as u32);
            list.add_entry(UndoPosition(at), page, (&table, 0), b"a key", 100);
        };
        (1..300_000).for_each(|at| mark(&mut list, at));
        assert_eq!(list.entries, 100);
        assert!(list.leaves.len() > 19_000 && list.leaves.bytes() < 10_000);
        // Undone to behind the first mark without a piece: its leaf is visited, perhaps in vain.
        list.undone_to(UndoPosition(1000));
        assert!(list.leaves.len() > 19_000);
        list.undone_to(UndoPosition(50));
        assert!(list.leaves.is_empty() && (40..=50).contains(&list.entries));
        assert_eq!(list.len(), list.entries);
        // A split before the first mark is nobody's, one after it is of all of them.
        list.split((PageId(7), PageId(8)), true);
        assert_eq!((list.leaves.len(), list.leaves_from), (2, UndoPosition(1)));
        list.undone_to(UndoPosition(1));
        assert_eq!((list.leaves.len(), list.entries), (2, 1));
        list.undone_to(UndoPosition::START);
        assert!(list.is_empty());
        list.split((PageId(7), PageId(8)), true);
        assert!(list.is_empty());
        // A leaf that is split may lose the key by which its piece would find it.
        for (at, marks) in [(9, 1), (10, 1), (11, 2)] {
            if at == 11 {
                list.split((PageId(9), PageId(8)), false);
            }
            list.add_entry(UndoPosition(at), PageId(9), (&table, 0), b"a key", 100);
            assert_eq!((list.entries, list.leaves.len()), (marks, 0));
        }
        list.clear();
        assert!(list.is_empty() && list.entries == 0);
        drop((list, table));
        engine.close().unwrap();
    }
}
