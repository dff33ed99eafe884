//! Figures kept with tables for the optimizer: the plugin's statistics, and what is said of row counters after a crash.
//!
//! Invariants: statistics name indexes by their numbers, so none outlive a change of the indexes. Neither
//! decides what a statement reads or changes.
//!
//! Locking: `state` where open tables are walked; who stores statistics has the table open.

use super::{record_key, Dictionary};
use crate::catalog::table::Table;
use ferrite_sync::atomic::Ordering;
use ferrite_types::Result;

impl Dictionary {
    /// Stores the plugin's statistics of a table.
    ///
    /// # Errors
    /// `RowTooBig` when there is too much of it.
    pub fn set_stats(&self, table: &Table, blob: &[u8]) -> Result<()> {
        self.put(&record_key(table.id(), 1), blob)?;
        *table.stats_blob.lock() = blob.to_vec();
        table.changes.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Before a table gets other indexes: its statistics are counted anew.
    ///
    /// # Errors
    /// As [`Dictionary::set_stats`]; the old ones stay.
    pub(super) fn forget_stats(&self, table: &Table) -> Result<()> {
        if !table.stats_blob().is_empty() {
            self.set_stats(table, b"")?;
        }
        debug_assert!(table.stats_blob().is_empty(), "statistics of other indexes");
        Ok(())
    }

    /// The server was killed: rows that came or went after the last checkpoint are not in the counters.
    pub(crate) fn doubt_rows(&self) {
        let mut state = self.state.lock();
        state.rows_doubtful = true;
        state.open.values().for_each(|table| table.doubt_rows());
    }
}
