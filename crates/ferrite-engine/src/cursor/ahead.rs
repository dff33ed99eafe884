//! Reading ahead of a cursor: the leaves a scan will come to, and the rows of the entries in a
//! batch of a secondary index.
//!
//! Rows of secondary entries lie anywhere, or many of them in one leaf. When two of a few dozen were
//! not in memory, the leaves of all that are left in the batch are asked for together. As long as
//! one of a few dozen rows would have been read from disk, so are those of the next batch; where
//! everything is in memory nothing is looked for.
//!
//! Invariants: hints only, see `ferrite_tree::ReadAhead`. Nothing beyond the batch is asked for,
//! and batches begin small: a LIMIT is overshot by no more. Locking: none held here.

use super::{Cursor, Direction};
use crate::rows::clustered_key;
use ferrite_buffer::MissRate;
use ferrite_tree::{Tree, Way};
use ferrite_types::PageId;

/// What a cursor knows of the rows it fetches.
#[derive(Default)]
pub(super) struct RowsAhead {
    rate: MissRate,
    /// The leaves of the batch's rows are asked for.
    is_asked: bool,
    pages: Vec<PageId>,
}

impl RowsAhead {
    /// There is another batch.
    pub(super) fn new_batch(&mut self) {
        self.is_asked = false;
    }

    /// A row was fetched, with so many pages that were not in memory or were read ahead.
    pub(super) fn fetched(&mut self, misses: u64) {
        self.rate.note(misses);
    }
}

impl Cursor {
    /// The scan has left a leaf and is about to look for the next.
    pub(super) fn ahead_of_next_leaf(&mut self, tree: &Tree) {
        debug_assert!(!self.resume.end, "there is no next leaf");
        self.is_beyond_leaf = false;
        let way = match self.direction {
            Direction::Forward => Way::Up,
            Direction::Backward => Way::Down,
        };
        let bound = self.bounded.then_some(self.bound.as_slice());
        self.ahead.next_leaf(tree, &self.resume.key, way, bound);
    }

    /// The row of the current entry is about to be fetched, and those of the others in the batch.
    pub(super) fn ahead_of_rows(&mut self) {
        if self.rows_ahead.rate.is_high() && !self.rows_ahead.is_asked {
            self.ask_for_rows();
        }
    }

    #[cold]
    fn ask_for_rows(&mut self) {
        self.rows_ahead.is_asked = true;
        let tree = self.table.tree(0);
        let most = tree.pool().read_ahead_window();
        let mut pages = std::mem::take(&mut self.rows_ahead.pages);
        pages.clear();
        for item in self.items.iter().skip(self.at + 1) {
            if pages.len() >= most {
                break;
            }
            let key = &self.data[item.key.clone()];
            let value = &self.data[item.value.clone()];
            if let Some(pk) = clustered_key(key, value) {
                tree.note_if_away(pk, &mut pages);
            }
        }
        debug_assert!(pages.len() <= most, "{} pages of {most}", pages.len());
        tree.pool().read_ahead(&pages);
        self.rows_ahead.pages = pages;
    }
}
