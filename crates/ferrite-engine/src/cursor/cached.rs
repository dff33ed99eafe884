//! Rows of the row cache (`ferrite_buffer`'s module `row_cache`): consistent reads of a row by its whole clustered key, whose
//! leaf is not in memory.
//!
//! Invariants
//! 1. A copy is used only if its state is the one that the reader sees, and stays so: no latch keeps others from
//!    rolling it back while it is looked at. Where an older state is wanted the leaf is read.
//! 2. A row is copied only if who missed it could have used the copy.
//!
//! Locking: that of the look-up, which is over before the copy is looked at; a snapshot's window.

use super::{Cursor, Direction, Item, ReadMode};
use crate::state::engine::Engine;
use crate::transaction::session::Session;
use crate::transaction::visible::View;
use ferrite_buffer::misses_here;
use ferrite_tree::record::{self, Header};
use ferrite_tree::{LeafRef, Tree};
use ferrite_types::Result;

impl Engine {
    /// Is the row's record in `copy` now, in the state that the reader sees?
    pub(super) fn has_cached(
        &self,
        tree: &Tree,
        pk: &[u8],
        view: View<'_>,
        copy: &mut Vec<u8>,
    ) -> bool {
        let by_snapshot = matches!(view, View::At { .. });
        by_snapshot && tree.cached_row(pk, copy) && self.serves(&record::decode(copy).header, view)
    }

    /// Does the reader see this state, and surely so although no latch is held?
    fn serves(&self, header: &Header, view: View<'_>) -> bool {
        let View::At { snapshot, own } = view else {
            return false;
        };
        let seen = self.txns.sees_copy(snapshot, header.txn, own);
        (seen || ferrite_sync::mutant!("cursor.cached_row_seen")) && !header.deleted
    }
}

impl Cursor {
    /// The search of a whole key of the clustered index ends here, with the row as the batch. False: the leaf is to be
    /// asked.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub(super) fn seek_cached(&mut self, session: &mut Session, key: &[u8]) -> Result<bool> {
        let by_snapshot = self.number == 0 && self.mode == ReadMode::Snapshot;
        if !by_snapshot || !self.table.tree(0).pool().row_cache().is_on() {
            return Ok(false);
        }
        assert!(self.direction == Direction::Forward && self.items.is_empty());
        session.may_read(&self.table, 0)?;
        let (reader, view) = session.reading();
        let (engine, tree) = (&reader.engine, self.table.tree(0));
        if !engine.has_cached(tree, key, view, &mut self.cached) {
            return Ok(false);
        }
        let key_from = self.data.len();
        self.data.extend_from_slice(key);
        let value_from = self.data.len();
        let value = record::decode(&self.cached).value;
        self.data.extend_from_slice(value);
        self.push_item(Item {
            key: key_from..value_from,
            value: value_from..self.data.len(),
        });
        self.stop_at_last_item();
        session.snapshot_holds().map(|()| true)
    }

    /// A search for the whole key `pk` came to this slot. If the leaf was not in memory before, and the reader sees the
    /// record as it is, the row may be kept without its page.
    pub(super) fn keep_row_of(
        &self,
        engine: &Engine,
        view: View<'_>,
        pk: &[u8],
        (leaf, slot): (&LeafRef<'_>, usize),
        misses: u64,
    ) {
        debug_assert!(slot < leaf.count(), "slot {slot} of {}", leaf.count());
        let is_on = self.table.tree(0).pool().row_cache().is_on();
        if !is_on || misses_here() == misses || leaf.find(pk) != Ok(slot) {
            return;
        }
        if engine.serves(&leaf.record(slot).header, view) {
            leaf.keep_row(pk, slot);
        }
    }
}
