//! The out-of-line values of the row change to come: written before the row is, and freed if it fails.
//!
//! Locking: none; a session's own.

use crate::catalog::table::Table;
use ferrite_sync::Arc;
use ferrite_types::{OverflowRef, UndoPosition};

/// A row change's values, written before it.
#[derive(Default)]
pub(crate) struct RowValues {
    /// Undo position before the first of them.
    pub from: Option<UndoPosition>,
    /// Those written without undo, into a table that is being filled.
    pub loaded: Vec<(Arc<Table>, OverflowRef)>,
}

impl RowValues {
    /// Nothing is known of any.
    pub(crate) fn forget(&mut self) {
        self.from = None;
        self.loaded.clear();
    }

    /// Undone down to that position: a mark there or above is done with.
    pub(crate) fn undone_to(&mut self, position: UndoPosition) {
        if self.from.is_some_and(|from| from >= position) {
            self.from = None;
        }
        debug_assert!(
            self.from.is_none_or(|from| from < position),
            "values of no row"
        );
    }
}
