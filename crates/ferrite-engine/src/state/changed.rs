//! The tables a transaction has changed rows of: when it commits they have a new time of their
//! last change, which `information_schema.TABLES.UPDATE_TIME` shows.
//!
//! The time is that of the last tick of a background thread, some 50 ms old: commits ask no
//! clock.
//!
//! Locking: none; a transaction's own.

use crate::catalog::table::Table;
use ferrite_sync::Arc;
use ferrite_types::{TableId, UndoPosition};

/// Tables remembered by place, so that the rows of one table cost a comparison each.
const RECENT: usize = 8;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct ChangedTables {
    recent: [TableId; RECENT],
    /// Sorted by id, each with where the first change of a row of it began.
    all: Vec<(Arc<Table>, UndoPosition)>,
}

impl ChangedTables {
    /// A row of that table was changed; the change began at `since`.
    #[inline]
    pub(crate) fn add(&mut self, table: &Arc<Table>, since: UndoPosition) {
        if self.recent[table.id().0 as usize % RECENT] != table.id() {
            self.add_new(table, since);
        }
    }

    #[cold]
    fn add_new(&mut self, table: &Arc<Table>, since: UndoPosition) {
        let id = table.id();
        assert_ne!(id, TableId(0), "a change in no table");
        self.recent[id.0 as usize % RECENT] = id;
        if let Err(at) = self.all.binary_search_by_key(&id, |(t, _)| t.id()) {
            self.all.insert(at, (table.clone(), since));
        }
    }

    /// What the transaction changed after that position is undone.
    pub(crate) fn undone_to(&mut self, position: UndoPosition) {
        let count = self.all.len();
        self.all.retain(|(_, since)| *since < position);
        if self.all.len() < count {
            self.recent = Default::default();
        }
    }

    /// The transaction has committed, at that second since 1970.
    pub(crate) fn committed(&self, now_s: u64) {
        for (table, _) in &self.all {
            table.note_commit(now_s);
        }
    }

    /// All of them.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.all.iter().map(|(table, _)| table)
    }

    /// The next transaction begins.
    pub(crate) fn clear(&mut self) {
        if !self.all.is_empty() {
            self.recent = Default::default();
            self.all.clear();
        }
    }
}
