//! Consistent reads: batches of visible entries, and single rows, by snapshot. An old snapshot
//! reads a leaf together with the graves of the leaf's keys (see the `graveyard` room).

use super::{Cursor, Direction, Item, BATCH_BYTES};
use crate::engine::Engine;
use crate::session::Session;
use crate::visible::View;
use crate::write::ENTRY_PREFIX_BYTES;
use ferrite_tree::record::Record;
use ferrite_tree::{node, LeafRef};
use ferrite_types::{Error, PageId, Result, TxnId};
use std::collections::BTreeSet;
use std::ops::{Bound, Range};

/// Delete-marks passed over on one leaf that are worth a visit of the cleanup.
const MANY_MARKS: u32 = 8;

impl Cursor {
    pub(super) fn fill_batch(&mut self, session: &mut Session) -> Result<()> {
        let (session, view) = session.reading();
        let engine: &Engine = &session.engine;
        let table = self.table.clone();
        let tree = table.tree(self.number);
        loop {
            let (leaf, slot) = self.place(tree)?;
            self.passed = 0;
            let last = self.copy_leaf(engine, &leaf, slot, view);
            if last.is_err() {
                // The batch is read again from its start, if at all.
                self.items.clear();
                self.data.clear();
            }
            match last? {
                Stop::Slot(slot) => {
                    self.stop_at(&leaf, slot);
                    return Ok(());
                }
                Stop::Grave => {
                    self.stop_at_last_item();
                    return Ok(());
                }
                Stop::Unsettled if self.items.is_empty() => {
                    drop(leaf);
                    session.wait_for_rollback()?;
                }
                Stop::Unsettled => {
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
        match &self.visible_graves(engine, leaf, view)? {
            None => self.copy_visible(engine, leaf, slot, view),
            Some(graves) => self.copy_merged(engine, leaf, slot, view, graves),
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
        while let Some(at) = self.slot_in(leaf, slot) {
            slot = self.after(at);
            if engine.is_unsettled(&leaf.record(at), view) {
                return Ok(Stop::Unsettled);
            }
            if self.copy_slot(engine, leaf, at, view)? && self.batch_full() {
                return Ok(Stop::Slot(at));
            }
        }
        Ok(Stop::LeafDone)
    }

    /// Copies the entry in a slot if the reader sees it.
    fn copy_slot(
        &mut self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        slot: usize,
        view: View<'_>,
    ) -> Result<bool> {
        let rec = leaf.record(slot);
        let key_from = self.data.len();
        self.data.extend_from_slice(node::prefix(leaf));
        self.data.extend_from_slice(rec.suffix);
        let value_from = self.data.len();
        let view = self.entry_view(engine, &rec, key_from, view);
        if !engine.visible_value(&rec, view, &mut self.work, &mut self.data)? {
            if rec.header.deleted {
                self.passed_mark(engine, &rec, key_from);
            }
            self.data.truncate(key_from);
            return Ok(false);
        }
        self.items.push(Item {
            key: key_from..value_from,
            value: value_from..self.data.len(),
        });
        Ok(true)
    }

    /// A delete-mark was in the way. Many on one leaf that nobody needs are worth telling.
    fn passed_mark(&mut self, engine: &Engine, rec: &Record<'_>, key_from: usize) {
        self.passed += 1;
        if self.passed == MANY_MARKS && engine.txns.visible_to_all(rec.header.txn) {
            engine.found_garbage(&self.table, self.number, &self.data[key_from..]);
        }
    }

    fn batch_full(&self) -> bool {
        self.items.len() >= self.batch
            || self.data.len() > BATCH_BYTES
            || self
                .items
                .last()
                .is_some_and(|item| self.beyond_bound(item.key.clone()))
    }

    /// What the reader sees of the graves between here and the leaf's end in the scan's
    /// direction, nearest first. None: there is nothing to look for.
    fn visible_graves(
        &mut self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        view: View<'_>,
    ) -> Result<Option<Graves>> {
        let View::At { snapshot, .. } = view else {
            return Ok(None);
        };
        if !self.table.graveyards[self.number].concerns(snapshot.csn()) {
            return Ok(None);
        }
        let table = self.table.clone();
        let graveyard = &table.graveyards[self.number];
        let ascending = self.direction == Direction::Forward;
        let here = self.resume.key.clone();
        let (from, to) = match self.direction {
            Direction::Forward if self.resume.exclusive => (Bound::Excluded(&here[..]), None),
            Direction::Forward => (Bound::Included(&here[..]), None),
            Direction::Backward => {
                let to = (!self.resume.edge).then_some(Bound::Excluded(&here[..]));
                (Bound::Included(node::low(leaf)), to)
            }
        };
        let high = node::high(leaf).map_or(Bound::Unbounded, Bound::Excluded);
        let to = to.unwrap_or(high);
        let own_rows = self.graves_of_own_rows(engine, leaf, (from, to), view);
        let mut graves = Graves::default();
        let room = self.batch + 1 - self.items.len();
        let mut result = Ok(());
        graveyard.visit(from, to, ascending, &mut |key, rec| {
            if hidden_by_own(leaf, key, view) {
                return true;
            }
            let view = match own_rows.contains(key) {
                true => View::Current,
                false => view,
            };
            result = graves.add(engine, key, rec, view);
            result.is_ok() && graves.list.len() < room
        });
        graves.cut = graves.list.len() == room;
        result.map(|()| Some(graves))
    }

    /// Which of the graves between these keys are of rows that the reader's own transaction has
    /// changed: they are looked at as the present is. The clustered index is read for that, so that
    /// it is found out before, without the graveyard's mutex: under the leaf's latch no grave comes.
    fn graves_of_own_rows(
        &self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        view: View<'_>,
    ) -> BTreeSet<Vec<u8>> {
        let View::At { own, .. } = view else {
            return BTreeSet::new();
        };
        if self.number == 0 || own.is_frozen() {
            return BTreeSet::new();
        }
        let mut doubtful = Vec::new();
        self.table.graveyards[self.number].visit(from, to, true, &mut |key, rec| {
            if !hidden_by_own(leaf, key, view) {
                let declared = self.clustered_key_of(engine, rec, key, view);
                doubtful.extend(declared.map(|pk| (key.to_vec(), pk.to_vec())));
            }
            true
        });
        let mine = doubtful
            .into_iter()
            .filter(|(_, pk)| self.is_own_row(pk, own));
        mine.map(|(key, _)| key).collect()
    }

    /// As `copy_visible`, with the graves where they belong.
    fn copy_merged(
        &mut self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        mut slot: usize,
        view: View<'_>,
        graves: &Graves,
    ) -> Result<Stop> {
        let mut next = 0;
        let mut key = Vec::new();
        loop {
            let at = self.slot_in(leaf, slot);
            if let Some(at) = at {
                key.clear();
                node::key_into(leaf, at, &mut key);
            }
            let grave = graves.list.get(next);
            let grave_first = match (grave, at) {
                (None, None) if graves.cut => return Ok(Stop::Grave),
                (None, None) => return Ok(Stop::LeafDone),
                (None, Some(_)) if graves.cut => return Ok(Stop::Grave),
                (None, Some(_)) => false,
                (Some(_), None) => true,
                (Some(grave), Some(_)) => match self.direction {
                    Direction::Forward => graves.key(grave) < &key[..],
                    Direction::Backward => graves.key(grave) > &key[..],
                },
            };
            if let (true, Some(grave)) = (grave_first, grave) {
                next += 1;
                self.push_grave(graves, grave);
                if self.batch_full() {
                    return Ok(Stop::Grave);
                }
            } else if let Some(at) = at {
                slot = self.after(at);
                if engine.is_unsettled(&leaf.record(at), view) {
                    return Ok(Stop::Unsettled);
                }
                if self.copy_slot(engine, leaf, at, view)? && self.batch_full() {
                    return Ok(Stop::Slot(at));
                }
            }
        }
    }

    fn push_grave(&mut self, graves: &Graves, item: &Item) {
        let key_from = self.data.len();
        self.data.extend_from_slice(&graves.data[item.key.clone()]);
        let value_from = self.data.len();
        self.data
            .extend_from_slice(&graves.data[item.value.clone()]);
        self.items.push(Item {
            key: key_from..value_from,
            value: value_from..self.data.len(),
        });
    }

    /// Remembers that the batch ended with its last item, which is not in the leaf.
    fn stop_at_last_item(&mut self) {
        let key = self.items.last().map_or(0..0, |item| item.key.clone());
        let resume = &mut self.resume;
        resume.key.clear();
        resume.key.extend_from_slice(&self.data[key]);
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
    fn clustered_key_of<'k>(
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

    fn is_own_row(&self, pk: &[u8], own: TxnId) -> bool {
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
        let (session, view) = session.reading();
        let engine: &Engine = &session.engine;
        let table = self.table.clone();
        let leaf = loop {
            let leaf = table.tree(0).leaf(pk)?;
            match leaf.find(pk) {
                Ok(slot) if engine.is_unsettled(&leaf.record(slot), view) => {
                    drop(leaf);
                    session.wait_for_rollback()?;
                }
                _ => break leaf,
            }
        };
        if let Ok(slot) = leaf.find(pk) {
            let rec = leaf.record(slot);
            if engine.visible_value(&rec, view, &mut self.work, &mut self.row)? {
                return Ok(());
            }
        }
        let mut found = Ok(false);
        if let View::At { snapshot, .. } = view {
            let graveyard = &self.table.graveyards[0];
            if graveyard.concerns(snapshot.csn()) && !hidden_by_own(&leaf, pk, view) {
                let only = Bound::Included(pk);
                graveyard.visit(only, only, true, &mut |_, rec| {
                    found = engine.visible_value(rec, view, &mut self.work, &mut self.row);
                    matches!(found, Ok(false))
                });
            }
        }
        found?.then_some(()).ok_or(Error::NotFound)
    }
}

/// The reader itself made what the leaf has under this key, if only a delete-mark: that is its
/// state of the row, and a grave of the key belongs to the time before.
fn hidden_by_own(leaf: &LeafRef<'_>, key: &[u8], view: View<'_>) -> bool {
    let View::At { own, .. } = view else {
        return false;
    };
    !own.is_frozen()
        && leaf
            .find(key)
            .is_ok_and(|slot| leaf.record(slot).header.txn == own)
}

/// Why a batch ended.
pub(super) enum Stop {
    /// Full after the entry in this slot.
    Slot(usize),
    /// Full after a grave.
    Grave,
    /// The leaf is used up.
    LeafDone,
    /// The next entry cannot be read yet.
    Unsettled,
}

/// Graves the reader sees, in the scan's order.
#[derive(Default)]
struct Graves {
    data: Vec<u8>,
    list: Vec<Item>,
    work: Vec<u8>,
    /// There may be more behind the last one.
    cut: bool,
}

impl Graves {
    fn key(&self, item: &Item) -> &[u8] {
        &self.data[item.key.clone()]
    }

    fn add(&mut self, engine: &Engine, key: &[u8], rec: &Record<'_>, view: View<'_>) -> Result<()> {
        let key_from = self.data.len();
        self.data.extend_from_slice(key);
        let value_from = self.data.len();
        if !engine.visible_value(rec, view, &mut self.work, &mut self.data)? {
            self.data.truncate(key_from);
            return Ok(());
        }
        self.list.push(Item {
            key: key_from..value_from,
            value: value_from..self.data.len(),
        });
        Ok(())
    }
}
