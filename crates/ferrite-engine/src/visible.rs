//! Which state of an entry a reader sees, decided at the entry itself.
//!
//! The caller holds the leaf's latch, so the chain of versions stands still.

use crate::engine::Engine;
use ferrite_tree::record::Record;
use ferrite_txn::{apply, Snapshot, VersionAddr};
use ferrite_types::{Result, TxnId};

/// Whose eyes.
#[derive(Clone, Copy)]
pub(crate) enum View<'s> {
    /// Whatever stands on the page.
    Current,
    /// What the snapshot sees, and what `own` made.
    At { snapshot: &'s Snapshot, own: TxnId },
}

impl Engine {
    /// The record's earlier states are not known yet: a large transaction from before a
    /// restart made its present one and is still being rolled back.
    #[inline]
    pub(crate) fn is_unsettled(&self, rec: &Record<'_>, view: View<'_>) -> bool {
        matches!(view, View::At { .. }) && self.losers.has(rec.header.txn)
    }

    /// Appends the value the reader sees to `out` and returns true, or returns false if the
    /// row is not there for it. `work` is a buffer.
    ///
    /// # Errors
    /// An older state is in a scratch file that cannot be read.
    pub(crate) fn visible_value(
        &self,
        rec: &Record<'_>,
        view: View<'_>,
        work: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let (snapshot, own) = match view {
            View::Current => {
                out.extend_from_slice(rec.value);
                return Ok(!rec.header.deleted);
            }
            View::At { snapshot, own } => (snapshot, own),
        };
        if self.txns.sees(snapshot, rec.header.txn, own) {
            if rec.header.deleted {
                return Ok(false);
            }
            out.extend_from_slice(rec.value);
            return Ok(true);
        }
        self.older_value(rec, snapshot, own, work, out)
    }

    /// Walks back through the versions.
    fn older_value(
        &self,
        rec: &Record<'_>,
        snapshot: &Snapshot,
        own: TxnId,
        work: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = out.len();
        let walk = self.versions.walk();
        let mut addr = VersionAddr(rec.header.version);
        let mut newer: Vec<u8> = rec.value.to_vec();
        let mut older: Vec<u8> = Vec::new();
        while addr.0 != 0 {
            work.clear();
            // Gone means: no older state is visible to any snapshot that lives.
            let Some(head) = walk.read(addr, work)? else {
                return Ok(false);
            };
            older.clear();
            apply(&newer, &head, work, &mut older);
            if self.txns.sees(snapshot, head.begin, own) {
                if head.is_deleted() {
                    return Ok(false);
                }
                out.truncate(start);
                out.extend_from_slice(&older);
                return Ok(true);
            }
            std::mem::swap(&mut newer, &mut older);
            addr = head.next;
        }
        Ok(false)
    }
}
