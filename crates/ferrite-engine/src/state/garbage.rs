//! What a transaction will leave to be purged when it commits.
//!
//! Invariant: pieces are in the order of the undo positions at which they were made, so that a
//! rollback to a position takes the last ones back. One piece stands for all delete-marks of a page,
//! as far as the page is remembered.
//!
//! Locking: none; a transaction's own.

use crate::catalog::table::Table;
use crate::state::purge_queue::Garbage;
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

/// See the head of the file.
pub(crate) struct GarbageList {
    /// Undo position at which each piece was made, and the piece.
    pieces: Vec<(UndoPosition, Garbage)>,
    /// Pages that have a piece, as far as remembered, and where in `pieces` it is.
    pages: [(PageId, usize); PAGES],
}

impl Default for GarbageList {
    fn default() -> GarbageList {
        GarbageList {
            pieces: Vec::new(),
            pages: [(PageId::NONE, 0); PAGES],
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
        self.pieces.push((at, piece));
    }

    /// A delete-marked entry. If a piece stands for its page already, that one now stands for more
    /// than its own key.
    pub(crate) fn add_entry(
        &mut self,
        at: UndoPosition,
        page: PageId,
        (table, number): (&Arc<Table>, usize),
        key: &[u8],
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
        *place = (page, self.pieces.len());
        self.add(at, Garbage::entry(table, number, key, true));
    }

    /// Undone down to that position: pieces made above it are none.
    pub(crate) fn undone_to(&mut self, position: UndoPosition) {
        let before = self.pieces.len();
        while self.pieces.last().is_some_and(|(at, _)| *at > position) {
            self.pieces.pop();
        }
        if self.pieces.len() < before {
            self.forget_pages();
        }
        debug_assert!(
            self.pieces.iter().all(|(at, _)| *at <= position),
            "what was undone above {position} would be purged"
        );
    }

    /// References of the values out of line among the pieces.
    pub(crate) fn values(&self) -> impl Iterator<Item = crate::log_records::values::Value> + '_ {
        let values = self.pieces.iter().filter_map(|(_, piece)| piece.overflow());
        values.map(|(index, reference)| (index, *reference))
    }

    /// Hands all pieces over.
    pub(crate) fn take(&mut self) -> Vec<Garbage> {
        self.forget_pages();
        debug_assert!(self.pieces.is_sorted_by_key(|(at, _)| *at));
        let pieces: Vec<_> = self.pieces.drain(..).map(|(_, piece)| piece).collect();
        debug_assert!(self.pieces.is_empty(), "pieces are purged twice");
        self.pieces.shrink_to(KEPT_ROOM);
        pieces
    }

    /// None is left.
    pub(crate) fn clear(&mut self) {
        if !self.pieces.is_empty() {
            self.pieces.clear();
            self.pieces.shrink_to(KEPT_ROOM);
            self.forget_pages();
        }
    }

    /// Is there none?
    /// Pieces that are left so far.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.pieces.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
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
                list.add_entry(at, page, (&table, 0), &n.to_be_bytes());
            }
        }
        assert_eq!(list.take().len(), 6);
        assert!(list.is_empty());
        drop((list, table));
        engine.close().unwrap();
    }
}
