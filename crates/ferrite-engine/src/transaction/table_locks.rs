//! Locks that are not of rows: on a whole table (LOCK TABLES), and on its AUTO_INCREMENT values.
//!
//! Invariant: both belong to the session's transaction and end with it at the latest. Those of
//! AUTO_INCREMENT end with the statement, so that nothing of one is left when a transaction is
//! prepared.
//!
//! Locking: waits for others' locks; no latch may be held.

use ferrite_lock::{LockTable, Owner, TableMode, WaitHooks, WaitPolicy};
use ferrite_sync::Arc;
use ferrite_types::Result;

use crate::catalog::table::Table;
use crate::transaction::session::{Hooks, Session};

impl Session {
    /// Locks a whole table until the transaction ends.
    ///
    /// # Errors
    /// Lock errors.
    pub fn lock_table(&mut self, table: &Table, mode: TableMode) -> Result<()> {
        self.lock_whole(|locks, owner, wait, hooks| {
            locks.table_lock(owner, table.id(), mode, wait, hooks)
        })
    }

    /// Nobody else gives out AUTO_INCREMENT values of the table before
    /// [`auto_inc_unlock`](Self::auto_inc_unlock), or before the transaction ends.
    ///
    /// # Errors
    /// Lock errors; it is not held then.
    pub fn auto_inc_lock(&mut self, table: &Table) -> Result<()> {
        debug_assert!(table.auto_increment() > 0, "a table that counts nothing");
        self.lock_whole(|locks, owner, wait, hooks| {
            locks.auto_inc_lock(owner, table.id(), wait, hooks)
        })
    }

    /// At the end of the statement; the transaction may have ended before.
    pub fn auto_inc_unlock(&mut self, table: &Table) {
        let locks = &self.engine.locks;
        locks.auto_inc_unlock(&self.txn.owner, table.id());
    }

    /// Asks for such a lock, and does what a wait that failed asks for.
    fn lock_whole(
        &mut self,
        lock: impl FnOnce(&LockTable, &Arc<Owner>, WaitPolicy, &dyn WaitHooks) -> Result<()>,
    ) -> Result<()> {
        let engine = self.engine.clone();
        let hooks = Hooks {
            engine: &engine,
            thd: self.thd,
        };
        let wait = self.wait_policy();
        let result = lock(&engine.locks, &self.txn.owner, wait, &hooks);
        self.after_wait(result)
    }
}
