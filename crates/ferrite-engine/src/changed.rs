//! The tables a transaction has changed rows of: when it commits they have a new time of their
//! last change, which `information_schema.TABLES.UPDATE_TIME` shows.
//!
//! The time is that of the last tick of a background thread, some 50 ms old: commits ask no
//! clock.
//!
//! Locking: none; a session's own.

use crate::engine::Engine;
use crate::slot::TxnSlot;
use crate::table::Table;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{time, Arc};
use ferrite_types::{IndexId, TableId};

/// Tables remembered by place, so that the rows of one table cost a comparison each.
const RECENT: usize = 8;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct ChangedTables {
    recent: [TableId; RECENT],
    /// Sorted by id.
    all: Vec<Arc<Table>>,
}

impl ChangedTables {
    /// A row of that table was changed.
    #[inline]
    pub(crate) fn add(&mut self, table: &Arc<Table>) {
        if self.recent[table.id().0 as usize % RECENT] != table.id() {
            self.add_new(table);
        }
    }

    #[cold]
    fn add_new(&mut self, table: &Arc<Table>) {
        let id = table.id();
        assert_ne!(id, TableId(0), "a change in no table");
        self.recent[id.0 as usize % RECENT] = id;
        if let Err(at) = self.all.binary_search_by_key(&id, |t| t.id()) {
            self.all.insert(at, table.clone());
        }
    }

    /// The transaction has committed.
    pub(crate) fn committed(&self, engine: &Engine) {
        let now_s = engine.now_s.load(Ordering::Relaxed);
        for table in &self.all {
            table.note_commit(now_s);
        }
    }

    /// The next transaction begins.
    pub(crate) fn clear(&mut self) {
        if !self.all.is_empty() {
            self.recent = Default::default();
            self.all.clear();
        }
    }
}

impl Engine {
    /// Tells commits the time.
    pub(crate) fn tick(&self) {
        self.purge.tick();
        self.now_s
            .store(time::unix_us() / 1_000_000, Ordering::Relaxed);
    }

    /// The tables of a transaction that has no session and has committed.
    pub(crate) fn note_detached_commit(&self, touched: &[IndexId]) {
        let now_s = self.now_s.load(Ordering::Relaxed);
        for table in touched
            .iter()
            .filter_map(|i| self.dict.table_of_index(*i).ok())
        {
            table.note_commit(now_s);
        }
    }
}

impl TxnSlot {
    /// Indexes its transaction has changed.
    pub(crate) fn touched_indexes(&self) -> Vec<IndexId> {
        self.state.lock().touched.all().to_vec()
    }
}
