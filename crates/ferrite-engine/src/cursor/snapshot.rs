//! Consistent reads: batches of visible entries, and single rows, by snapshot. An old snapshot
//! reads a leaf together with the archived entries of the leaf's keys (see `archived`).

use super::archived::hidden_by_own;
use super::{Cursor, Direction, Item, BATCH_BYTES};
use crate::rows::write::ENTRY_PREFIX_BYTES;
use crate::state::engine::Engine;
use crate::transaction::session::Session;
use crate::transaction::visible::View;
use ferrite_buffer::misses_here;
use ferrite_sync::waits::{Of, Reason, Sliced};
use ferrite_tree::record::{self, Record};
use ferrite_tree::{node, LeafRef};
use ferrite_types::{Error, PageId, Result, TxnId};
use std::ops::{Bound, Range};

/// Delete-marks passed over on one leaf that are worth a visit of the cleanup.
const MANY_MARKS: u32 = 8;

impl Cursor {
    pub(super) fn fill_batch(&mut self, session: &mut Session) -> Result<()> {
        let (session, view) = session.reading();
        let engine: &Engine = &session.engine;
        let table = self.table.clone();
        let tree = table.tree(self.number);
        let mut wait = Sliced::new(Reason::Rollback, Of::Nothing);
        loop {
            let misses = misses_here();
            let (leaf, slot) = self.place(tree)?;
            self.passed = 0;
            debug_assert!(
                self.items.len() <= self.batch,
                "{} of a batch",
                self.items.len()
            );
            let last = self.copy_leaf(engine, &leaf, slot, view);
            if last.is_err() {
                // The batch is read again from its start, if at all.
                self.items.clear();
                self.data.clear();
            }
            match last? {
                Stop::Slot(slot) => {
                    if self.batch == 1 && self.number == 0 {
                        let sought = &self.resume.key;
                        self.keep_row_of(engine, view, sought, (&leaf, slot), misses);
                    }
                    self.stop_at(&leaf, slot);
                    return Ok(());
                }
                Stop::Archived => {
                    self.stop_at_last_item();
                    return Ok(());
                }
                Stop::ArchiveCut(key) => {
                    self.stop_beyond(&key);
                    drop(leaf);
                    if !self.items.is_empty() {
                        return Ok(());
                    }
                    session.check_killed()?;
                }
                Stop::Unsettled(txn) if self.items.is_empty() => {
                    drop(leaf);
                    session.wait_for_rollback(txn, &mut wait)?;
                }
                Stop::Unsettled(_) => {
                    self.stop_at_last_item();
                    return Ok(());
                }
                Stop::LeafDone if self.leave_leaf(&leaf) => {
                    let full = !self.items.is_empty();
                    drop(leaf);
                    if full {
                        return Ok(());
                    }
                    session.check_killed()?;
                }
                Stop::LeafDone if self.items.is_empty() => return Err(Error::NotFound),
                Stop::LeafDone => return Ok(()),
            }
        }
    }

    fn copy_leaf(
        &mut self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        slot: usize,
        view: View<'_>,
    ) -> Result<Stop> {
        match &self.visible_archived(engine, leaf, view)? {
            None => self.copy_visible(engine, leaf, slot, view),
            Some(archived) => self.copy_merged(engine, leaf, slot, view, archived),
        }
    }

    /// Copies visible entries from `slot` on.
    fn copy_visible(
        &mut self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        mut slot: usize,
        view: View<'_>,
    ) -> Result<Stop> {
        let page: &[u8] = leaf;
        while let Some(at) = self.slot_in(leaf, slot) {
            slot = self.after(at);
            let rec = node::record(page, at);
            if engine.is_unsettled(&rec, view) {
                return Ok(Stop::Unsettled(rec.header.txn));
            }
            if self.copy_entry(engine, page, &rec, view)? && self.batch_full() {
                return Ok(Stop::Slot(at));
            }
        }
        Ok(Stop::LeafDone)
    }

    /// Copies an entry of that page if the reader sees it.
    #[inline]
    pub(super) fn copy_entry(
        &mut self,
        engine: &Engine,
        page: &[u8],
        rec: &Record<'_>,
        view: View<'_>,
    ) -> Result<bool> {
        let key_from = self.data.len();
        let prefix = node::prefix(page);
        // Once, so that the three pieces need no look at the room each.
        self.data
            .reserve(prefix.len() + rec.suffix.len() + rec.value.len());
        self.data.extend_from_slice(prefix);
        self.data.extend_from_slice(rec.suffix);
        let value_from = self.data.len();
        let view = self.entry_view(engine, rec, key_from, view);
        if !self.copy_value(engine, page, rec, key_from, view)? {
            if rec.header.deleted {
                self.passed_mark(engine, rec, key_from);
            }
            self.data.truncate(key_from);
            return Ok(false);
        }
        self.push_item(Item {
            key: key_from..value_from,
            value: value_from..self.data.len(),
        });
        Ok(true)
    }

    /// Appends the value that the reader sees of an entry whose key has been copied; false: none.
    fn copy_value(
        &mut self,
        engine: &Engine,
        page: &[u8],
        rec: &Record<'_>,
        key_from: usize,
        view: View<'_>,
    ) -> Result<bool> {
        let Cursor { data, work, .. } = self;
        if !engine.is_loser(rec.header.txn) {
            return engine.visible_value(rec, view, work, data);
        }
        // The value goes behind the key.
        let key = data[key_from..].to_vec();
        engine.entry_value((node::index(page), &key), rec, view, work, data)
    }

    /// A delete-mark was in the way. Many on one leaf that nobody needs are worth telling.
    fn passed_mark(&mut self, engine: &Engine, rec: &Record<'_>, key_from: usize) {
        self.passed += 1;
        if self.passed == MANY_MARKS && engine.txns.visible_to_all(rec.header.txn) {
            engine.found_garbage(&self.table, self.number, &self.data[key_from..]);
        }
    }

    pub(super) fn batch_full(&self) -> bool {
        self.items.len() >= self.batch
            || self.data.len() > BATCH_BYTES
            || self
                .items
                .last()
                .is_some_and(|item| self.beyond_bound(item.key.clone()))
    }

    /// Remembers that the batch ended with its last item, which is not in the leaf.
    pub(super) fn stop_at_last_item(&mut self) {
        debug_assert!(!self.items.is_empty(), "the scan would begin anew");
        let key = self.items.last().map_or(0..0, |item| item.key.clone());
        let key = self.data[key].to_vec();
        self.stop_beyond(&key);
    }

    /// Remembers that the scan is done with everything up to this key.
    pub(super) fn stop_beyond(&mut self, key: &[u8]) {
        let resume = &mut self.resume;
        resume.key.clear();
        resume.key.extend_from_slice(key);
        resume.exclusive = true;
        resume.edge = false;
        resume.page = PageId::NONE;
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
        self.view_of_entry(engine, rec, &self.data[key_from..], view)
    }

    fn view_of_entry<'s>(
        &self,
        engine: &Engine,
        rec: &Record<'_>,
        key: &[u8],
        view: View<'s>,
    ) -> View<'s> {
        match (view, self.clustered_key_of(engine, rec, key, view)) {
            (View::At { own, .. }, Some(pk)) if self.is_own_row(pk, own) => View::Current,
            _ => view,
        }
    }

    /// The clustered key of a secondary entry, if its row may be one that the reader's own
    /// transaction has changed after somebody else's later commit.
    pub(super) fn clustered_key_of<'k>(
        &self,
        engine: &Engine,
        rec: &Record<'_>,
        key: &'k [u8],
        view: View<'_>,
    ) -> Option<&'k [u8]> {
        let View::At { snapshot, own } = view else {
            return None;
        };
        if self.number == 0 || own.is_frozen() || engine.txns.sees(snapshot, rec.header.txn, own) {
            return None;
        }
        let declared = rec.value.get(..ENTRY_PREFIX_BYTES);
        let declared = declared.map_or(0, |b| u16::from_le_bytes([b[0], b[1]]) as usize);
        key.get(declared..)
    }

    pub(super) fn is_own_row(&self, pk: &[u8], own: TxnId) -> bool {
        self.table.tree(0).leaf(pk).is_ok_and(|leaf| {
            leaf.find(pk)
                .is_ok_and(|slot| leaf.record(slot).header.txn == own)
        })
    }

    pub(super) fn beyond_bound(&self, key: Range<usize>) -> bool {
        self.bounded
            && match self.direction {
                Direction::Forward => self.data[key] >= self.bound[..],
                Direction::Backward => self.data[key] < self.bound[..],
            }
    }

    pub(super) fn get_visible(&mut self, session: &mut Session, pk: &[u8]) -> Result<()> {
        debug_assert_eq!(self.row, pk, "the row begins with its key");
        let (session, view) = session.reading();
        let engine: &Engine = &session.engine;
        let table = self.table.clone();
        if engine.has_cached(table.tree(0), pk, view, &mut self.cached) {
            self.row
                .extend_from_slice(record::decode(&self.cached).value);
            return Ok(());
        }
        let mut misses;
        let mut wait = Sliced::new(Reason::Rollback, Of::Nothing);
        let leaf = loop {
            misses = misses_here();
            let leaf = table.tree(0).leaf(pk)?;
            match leaf.find(pk) {
                Ok(slot) if engine.is_unsettled(&leaf.record(slot), view) => {
                    let txn = leaf.record(slot).header.txn;
                    drop(leaf);
                    session.wait_for_rollback(txn, &mut wait)?;
                }
                _ => break leaf,
            }
        };
        if let Ok(slot) = leaf.find(pk) {
            let rec = leaf.record(slot);
            let of = (table.tree(0).index(), pk);
            if engine.entry_value(of, &rec, view, &mut self.work, &mut self.row)? {
                self.keep_row_of(engine, view, pk, (&leaf, slot), misses);
                return Ok(());
            }
        }
        let mut found = Ok(false);
        if let View::At { snapshot, .. } = view {
            let delete_archive = self.table.archive(0);
            if delete_archive.concerns(snapshot.csn()) && !hidden_by_own(&leaf, pk, view) {
                let only = Bound::Included(pk);
                delete_archive.visit((only, only), true, 1, &mut |_, rec| {
                    found = engine.visible_value(rec, view, &mut self.work, &mut self.row);
                    matches!(found, Ok(false))
                });
            }
        }
        found?.then_some(()).ok_or(Error::NotFound)
    }
}

/// Why a batch ended.
pub(super) enum Stop {
    /// Full after the entry in this slot.
    Slot(usize),
    /// Full after an archived entry.
    Archived,
    /// Up to this key archived entries and entries are looked at; of the archived entries beyond it there may be many.
    ArchiveCut(Vec<u8>),
    /// The leaf is used up.
    LeafDone,
    /// The next entry, of that transaction, cannot be read yet.
    Unsettled(TxnId),
}
