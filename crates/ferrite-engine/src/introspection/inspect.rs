//! What tests and tools may look at and the server never asks: the state of one transaction,
//! the number of a snapshot, the books of the free space.
//!
//! Nothing here changes the database. Locking: each call takes what it reads, nothing longer.

use crate::state::engine::Engine;
use crate::transaction::session::Session;
use ferrite_sync::atomic::Ordering;
use ferrite_txn::Status;
use ferrite_types::{Csn, Result, TxnId};

impl Engine {
    /// State of a transaction that this life of the database has seen.
    pub fn txn_status(&self, txn: TxnId) -> Status {
        self.txns.status(txn)
    }

    /// Log that a restart would have to read, in bytes.
    pub fn log_age(&self) -> u64 {
        let start = self.checkpoint_lsn.load(Ordering::SeqCst);
        self.log.current_lsn().0.saturating_sub(start)
    }

    /// The last commit number given out.
    pub fn commit_number(&self) -> Csn {
        self.txns.last_csn()
    }

    /// Transactions whose cleaning up is still to come.
    pub fn purge_backlog(&self) -> usize {
        self.purge.length()
    }

    /// Is the space that is not free exactly the space that pages and retired blobs take?
    /// Only when nothing is being written (after `close`).
    ///
    /// # Errors
    /// `Corrupt` naming a page or the difference.
    pub fn check_space(&self) -> Result<()> {
        self.pool.check_space()
    }
}

impl Session {
    /// Commit number up to which the open snapshot sees.
    pub fn snapshot_number(&self) -> Option<Csn> {
        self.txn.snapshot.as_ref().map(ferrite_txn::Snapshot::csn)
    }

    /// Lets go of a session whose machine is gone: nothing is rolled back or written.
    pub fn abandon(mut self) {
        self.txn.abandon();
    }
}
