//! CHECK TABLE: every tree's structure, and every live entry's row.

use crate::catalog::table::Table;
use crate::rows::write::ENTRY_PREFIX_BYTES;
use crate::transaction::session::{Hooks, Session};
use ferrite_lock::TableMode;
use ferrite_sync::Arc;
use ferrite_types::{Error, Result, TxnId};

/// Entries between two looks at KILL.
const KILL_CHECK: u64 = 1024;

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
        table.tree(number).check(&mut |key, rec| {
            seen += 1;
            if seen % KILL_CHECK == 0 && self.engine.callbacks.is_killed(self.thd) {
                return Err(Error::Interrupted);
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
            let declared = rec.value.get(..ENTRY_PREFIX_BYTES);
            let declared =
                declared.map_or(usize::MAX, |b| u16::from_le_bytes([b[0], b[1]]) as usize);
            let Some(pk) = key.get(declared..) else {
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

    /// Locks a whole table until the transaction ends.
    ///
    /// # Errors
    /// Lock errors.
    pub fn lock_table(&mut self, table: &Table, mode: TableMode) -> Result<()> {
        let engine = self.engine.clone();
        let hooks = Hooks {
            engine: &engine,
            thd: self.thd,
        };
        let wait = self.wait_policy();
        let result = engine
            .locks
            .table_lock(&self.txn.owner, table.id(), mode, wait, &hooks);
        self.after_wait(result)
    }
}
