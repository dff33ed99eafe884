//! Which state of an entry a reader sees, and whether any reader needs one, decided at the entry
//! itself.
//!
//! The caller holds the leaf's latch, so the chain of versions stands still.

use crate::state::engine::Engine;
use crate::state::known_undo::{KnownUndo, Settled};
use crate::state::slot_figures::SlotFigures;
use ferrite_tree::record::{Header, Record};
use ferrite_txn::{apply, Snapshot};
use ferrite_types::{Error, IndexId, Result, TxnId, UndoPosition};

/// Which state a reader is to see.
#[derive(Clone, Copy)]
pub(crate) enum View<'s> {
    /// Whatever stands on the page.
    Current,
    /// The newest state that is committed, whoever is changing the entry now.
    Committed,
    /// What the snapshot sees, and what `own` made.
    At { snapshot: &'s Snapshot, own: TxnId },
}

impl Engine {
    /// The record's earlier states are not known: a large transaction from before a restart made its
    /// present one and is still being rolled back.
    #[inline]
    pub(crate) fn is_unsettled(&self, rec: &Record<'_>, view: View<'_>) -> bool {
        !matches!(view, View::Current) && self.unsettled.is_unknown(rec.header.txn)
    }

    /// Is that transaction from before a restart, and not rolled back yet?
    #[inline]
    pub(crate) fn is_loser(&self, txn: TxnId) -> bool {
        self.unsettled.has(txn)
    }

    /// [`Engine::visible_value`] of an entry on a page, which is not unsettled: of one that a transaction
    /// from before a restart has changed, and that is not rolled back yet, the undo tells the state before.
    /// That one everybody sees: the transaction had the row's lock.
    ///
    /// # Errors
    /// As there; undo that does not fit the entry.
    pub(crate) fn entry_value(
        &self,
        (index, key): (IndexId, &[u8]),
        rec: &Record<'_>,
        view: View<'_>,
        work: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let txn = rec.header.txn;
        // The leaf is latched: what of this entry is left to be undone does not change meanwhile, and that it was undone is
        // shown before the leaf can be read. Of one that has ended nothing is left: its rollback has passed over the entries
        // of an index that is gone.
        let before = |known: &KnownUndo, figures: &SlotFigures| {
            let left = || UndoPosition(figures.undo_bytes());
            known.before(&left, (index, key), rec)
        };
        let found = match view {
            View::Current => None,
            View::Committed | View::At { .. } => self.unsettled.ask(txn, before),
        };
        let Some(found) = found else {
            return self.visible_value(rec, view, work, out);
        };
        match found? {
            Settled::Gone => Ok(false),
            Settled::Other(deleted, value) => {
                if !deleted {
                    out.extend_from_slice(&value);
                }
                Ok(!deleted)
            }
            Settled::Same => Err(Error::Corrupt(format!(
                "index {index}: of an entry of transaction {txn} its undo says nothing"
            ))),
        }
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
        if !self.is_seen(rec.header.txn, view) {
            let start = out.len();
            let found = self.older_value(rec, view, work, out)?;
            debug_assert!(
                found || out.len() == start,
                "a row that is not there has bytes"
            );
            return Ok(found);
        }
        if !rec.header.deleted || matches!(view, View::Current) {
            out.extend_from_slice(rec.value);
        }
        Ok(!rec.header.deleted)
    }

    /// Does the reader see what that transaction did?
    #[inline]
    fn is_seen(&self, txn: TxnId, view: View<'_>) -> bool {
        match view {
            View::Current => true,
            View::Committed => !self.txns.is_active(txn),
            View::At { snapshot, own } => self.txns.sees(snapshot, txn, own),
        }
    }

    /// Walks back through the versions.
    fn older_value(
        &self,
        rec: &Record<'_>,
        view: View<'_>,
        work: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        debug_assert!(!rec.header.txn.is_frozen(), "everybody sees what is frozen");
        let start = out.len();
        let walk = self.versions.walk();
        let mut addr = rec.header.version;
        let mut newer: Vec<u8> = rec.value.to_vec();
        let mut older: Vec<u8> = Vec::new();
        while addr.0 != 0 {
            work.clear();
            // Gone means: no older state is visible to any snapshot that lives. The newest
            // committed state is never gone: a snapshot opened now would see it.
            let Some(head) = walk.read(addr, work)? else {
                return Ok(false);
            };
            older.clear();
            debug_assert!(!head.end.is_frozen(), "{head:?} is still the present state");
            apply(&newer, &head, work, &mut older);
            if self.is_seen(head.begin, view) {
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

impl Engine {
    /// Does any snapshot, now or later, need a state of this delete-marked entry from before
    /// the deletion? The caller keeps its chain from changing.
    pub(crate) fn needed_by_snapshots(&self, header: &Header) -> bool {
        debug_assert!(header.deleted, "a live row is asked about");
        let walk = self.versions.walk();
        let mut body = Vec::new();
        let mut addr = header.version;
        while !addr.is_none() {
            body.clear();
            let head = match walk.read(addr, &mut body) {
                Ok(Some(head)) => head,
                Ok(None) => return false,
                // It cannot be read now: nobody may throw away what names it.
                Err(_) => return true,
            };
            if self.txns.version_needed(head.begin, head.end) {
                return true;
            }
            addr = head.next;
        }
        false
    }

    /// Prunes the chain of a delete-marked entry; false if nothing of it is needed any more.
    /// The caller alone can reach the chain, and uses the header it leaves.
    pub(crate) fn keep_needed(&self, header: &mut Header, value: &[u8]) -> bool {
        let first = header.version;
        let (rest, _) = self.versions.walk().prune(&self.txns, first, value);
        debug_assert!(header.deleted, "the chain of a live row goes");
        header.version = rest;
        !rest.is_none()
    }
}
