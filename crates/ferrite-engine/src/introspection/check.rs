//! CHECK TABLE: every tree's structure, and every live entry's row.

use crate::catalog::table::Table;
use crate::rows::clustered_key;
use crate::transaction::session::Session;
use ferrite_buffer::misses_here;
use ferrite_sync::Arc;
use ferrite_tree::node;
use ferrite_types::{Error, PageId, Result, TxnId};

/// Entries between two looks at KILL.
const KILL_CHECK: u64 = 1024;
/// Pages not in memory during one leaf that make it worth looking for those of the next.
const WORTH: u64 = 4;

/// Reads ahead the rows of a leaf's entries, if those of the leaf before were not in memory.
#[derive(Default)]
struct RowsAhead {
    misses: u64,
    pages: Vec<PageId>,
    key: Vec<u8>,
}

impl RowsAhead {
    fn of_leaf(&mut self, table: &Table, leaf: &[u8]) {
        let misses = misses_here();
        debug_assert!(self.misses <= misses, "misses are taken back");
        let is_worth_it = misses - self.misses >= WORTH;
        self.misses = misses;
        if !is_worth_it {
            return;
        }
        self.pages.clear();
        for slot in 0..node::count(leaf) {
            self.key.clear();
            node::key_into(leaf, slot, &mut self.key);
            if let Some(pk) = clustered_key(&self.key, node::record(leaf, slot).value) {
                table.tree(0).note_if_away(pk, &mut self.pages);
            }
        }
        table.tree(0).pool().read_ahead(&self.pages);
    }
}

impl Session {
    /// Verifies a table while others use it; `report` gets a line for each fault.
    ///
    /// # Errors
    /// `Corrupt` if there was a fault, `Interrupted` by KILL, a page that cannot be read.
    pub fn check_table(
        &mut self,
        table: &Arc<Table>,
        quick: bool,
        report: &mut dyn FnMut(&str),
    ) -> Result<()> {
        let mut faults = 0;
        for number in 0..table.index_count() {
            match self.check_index(table, number, quick, report) {
                Ok(found) => faults += found,
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(e) => {
                    report(&e.to_string());
                    faults += 1;
                }
            }
        }
        if faults > 0 {
            return Err(Error::Corrupt(format!("{faults} faults")));
        }
        Ok(())
    }

    fn check_index(
        &self,
        table: &Arc<Table>,
        number: usize,
        quick: bool,
        report: &mut dyn FnMut(&str),
    ) -> Result<u64> {
        let mut faults = 0;
        let mut seen = 0u64;
        let rows = table.estimate().rows;
        let before = number as u64 * rows;
        let all = table.index_count() as u64 * rows;
        let mut ahead = RowsAhead::default();
        let has_rows = number > 0 && !quick;
        let mut begin_leaf = |leaf: &[u8]| {
            if has_rows {
                ahead.of_leaf(table, leaf);
            }
        };
        table
            .tree(number)
            .check_by_leaf(&mut begin_leaf, &mut |key, rec| {
                seen += 1;
                if seen % KILL_CHECK == 0 {
                    self.report_progress(before + seen.min(rows), all)?;
                }
                if rec.header.txn >= self.engine.txns.next_txn() {
                    faults += 1;
                    report(&format!(
                        "index {number}: a record has transaction id {}, which was never assigned",
                        rec.header.txn
                    ));
                }
                if number == 0 || rec.header.deleted || quick {
                    return Ok(());
                }
                let Some(pk) = clustered_key(key, rec.value) else {
                    faults += 1;
                    report(&format!("index {number}: an entry without its primary key"));
                    return Ok(());
                };
                if self.is_orphan(table, number, key, pk)? {
                    faults += 1;
                    report(&format!("index {number}: an entry without a row"));
                }
                Ok(())
            })?;
        Ok(faults)
    }

    /// Has this entry no row? The check walks a copy of a leaf: since then the entry may have been
    /// taken back, or marked and purged together with its row. It is an orphan if the same
    /// transaction's entry stands there before and after a look for the row, and that transaction
    /// has come to its end: whatever removes the row of a settled entry marks the entry first.
    fn is_orphan(&self, table: &Table, number: usize, key: &[u8], pk: &[u8]) -> Result<bool> {
        if table.tree(0).leaf(pk)?.find(pk).is_ok() {
            return Ok(false);
        }
        let Some(maker) = self.live_maker(table, number, key)? else {
            return Ok(false);
        };
        if maker != self.txn.id() && self.engine.txns.is_active(maker) {
            return Ok(false);
        }
        if table.tree(0).leaf(pk)?.find(pk).is_ok() {
            return Ok(false);
        }
        Ok(self.live_maker(table, number, key)? == Some(maker))
    }

    /// Whose entry this is, if it is there and not delete-marked.
    fn live_maker(&self, table: &Table, number: usize, key: &[u8]) -> Result<Option<TxnId>> {
        let leaf = table.tree(number).leaf(key)?;
        let header = leaf.find(key).ok().map(|slot| leaf.record(slot).header);
        Ok(header.filter(|h| !h.deleted).map(|h| h.txn))
    }
}
