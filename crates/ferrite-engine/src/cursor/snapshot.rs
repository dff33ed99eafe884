//! Consistent reads: batches of visible entries, and single rows, by snapshot.

use super::{Cursor, Direction, Item, BATCH_BYTES};
use crate::engine::Engine;
use crate::session::{Isolation, Session};
use crate::visible::View;
use crate::write::ENTRY_PREFIX_BYTES;
use ferrite_tree::record::Record;
use ferrite_tree::{node, LeafRef};
use ferrite_types::{Error, Result};
use std::ops::Range;

impl Cursor {
    pub(super) fn fill_batch(&mut self, session: &mut Session) -> Result<()> {
        let own = session.txn;
        let engine = session.engine.clone();
        let dirty = session.isolation == Isolation::ReadUncommitted;
        if !dirty {
            session.need_snapshot(session.isolation >= Isolation::RepeatableRead);
        }
        let view = match (&session.snapshot, dirty) {
            (Some(snapshot), false) => View::At { snapshot, own },
            _ => View::Current,
        };
        let table = self.table.clone();
        let tree = table.tree(self.number);
        loop {
            let (leaf, slot) = self.place(tree)?;
            let last = self.copy_visible(&engine, &leaf, slot, view);
            match last {
                Some(slot) => {
                    self.stop_at(&leaf, slot);
                    return Ok(());
                }
                None if self.leave_leaf(&leaf) => {
                    let full = !self.items.is_empty();
                    drop(leaf);
                    if full {
                        return Ok(());
                    }
                }
                None if self.items.is_empty() => return Err(Error::NotFound),
                None => return Ok(()),
            }
        }
    }

    /// Copies visible entries from `slot` on. Some(slot): the batch is full after that one;
    /// None: the leaf is used up.
    pub(super) fn copy_visible(
        &mut self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        mut slot: usize,
        view: View<'_>,
    ) -> Option<usize> {
        while let Some(at) = self.slot_in(leaf, slot) {
            slot = self.after(at);
            let rec = leaf.record(at);
            let key_from = self.data.len();
            self.data.extend_from_slice(node::prefix(leaf));
            self.data.extend_from_slice(rec.suffix);
            let value_from = self.data.len();
            let view = self.entry_view(engine, &rec, key_from, view);
            if !engine.visible_value(&rec, view, &mut self.work, &mut self.data) {
                self.data.truncate(key_from);
                continue;
            }
            self.items.push(Item {
                key: key_from..value_from,
                value: value_from..self.data.len(),
            });
            if self.items.len() >= self.batch
                || self.data.len() > BATCH_BYTES
                || self.beyond_bound(key_from..value_from)
            {
                return Some(at);
            }
        }
        None
    }

    /// How a secondary entry is to be looked at. If this transaction has changed the entry's
    /// row after somebody else's later commit had, the row it sees is its own, and the entries
    /// that belong to that row are the present ones, not those of the snapshot.
    pub(super) fn entry_view<'s>(
        &self,
        engine: &Engine,
        rec: &Record<'_>,
        key_from: usize,
        view: View<'s>,
    ) -> View<'s> {
        let View::At { snapshot, own } = view else {
            return view;
        };
        if self.number == 0 || own.is_frozen() || engine.txns.sees(snapshot, rec.header.txn, own) {
            return view;
        }
        let declared = rec.value.get(..ENTRY_PREFIX_BYTES);
        let declared = declared.map_or(0, |b| u16::from_le_bytes([b[0], b[1]]) as usize);
        let key = &self.data[key_from..];
        let Some(pk) = key.get(declared..) else {
            return view;
        };
        let mine = self.table.tree(0).leaf(pk).is_ok_and(|leaf| {
            leaf.find(pk)
                .is_ok_and(|slot| leaf.record(slot).header.txn == own)
        });
        if mine {
            View::Current
        } else {
            view
        }
    }

    pub(super) fn beyond_bound(&self, key: Range<usize>) -> bool {
        self.bounded
            && match self.direction {
                Direction::Forward => self.data[key] >= self.bound[..],
                Direction::Backward => self.data[key] < self.bound[..],
            }
    }

    pub(super) fn get_visible(&mut self, session: &mut Session, pk: &[u8]) -> Result<()> {
        let own = session.txn;
        let engine = session.engine.clone();
        let dirty = session.isolation == Isolation::ReadUncommitted;
        if !dirty {
            session.need_snapshot(session.isolation >= Isolation::RepeatableRead);
        }
        let view = match (&session.snapshot, dirty) {
            (Some(snapshot), false) => View::At { snapshot, own },
            _ => View::Current,
        };
        let leaf = self.table.tree(0).leaf(pk)?;
        let slot = leaf.find(pk).map_err(|_| Error::NotFound)?;
        let rec = leaf.record(slot);
        if engine.visible_value(&rec, view, &mut self.work, &mut self.row) {
            Ok(())
        } else {
            Err(Error::NotFound)
        }
    }
}
