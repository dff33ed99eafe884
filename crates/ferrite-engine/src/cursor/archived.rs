//! An old snapshot's view of a leaf: its entries together with the archived entries of its keys
//! (see the `delete_archive` module). The archived entries in a leaf's range may be millions, so
//! one look takes a window of them, and the scan goes on behind it from a new look: under a latch
//! taken anew, with an ear for KILL in between.

use super::snapshot::Stop;
use super::{Cursor, Direction, Item};
use crate::state::engine::Engine;
use crate::transaction::visible::View;
use ferrite_tree::record::Record;
use ferrite_tree::{node, LeafRef};
use ferrite_types::Result;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Keys of archived entries looked at under one hold of a leaf's latch.
const WINDOW: usize = 256;

/// Keys from, to.
type Bounds<'k> = (Bound<&'k [u8]>, Bound<&'k [u8]>);

/// Archived entries the reader sees, in the scan's order.
#[derive(Default)]
pub(super) struct ArchivedEntries {
    data: Vec<u8>,
    list: Vec<Item>,
    work: Vec<u8>,
    /// Archived entries beyond this key have not been looked at. None: there are none.
    cut: Option<Vec<u8>>,
}

impl ArchivedEntries {
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
        let item = Item {
            key: key_from..value_from,
            value: value_from..self.data.len(),
        };
        debug_assert!(
            self.list
                .last()
                .is_none_or(|last| self.key(last) != self.key(&item)),
            "a snapshot sees one state of an archived entry"
        );
        self.list.push(item);
        Ok(())
    }
}

impl Cursor {
    /// What the reader sees of the next archived entries between here and the leaf's end in the scan's
    /// direction, nearest first. None: there is nothing to look for.
    pub(super) fn visible_archived(
        &mut self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        view: View<'_>,
    ) -> Result<Option<ArchivedEntries>> {
        let View::At { snapshot, .. } = view else {
            return Ok(None);
        };
        if !self.table.archive(self.number).concerns(snapshot.csn()) {
            return Ok(None);
        }
        let here = self.resume.key.clone();
        let mut bounds = self.rest_of_leaf(leaf, &here);
        let (own_rows, window_end) = self.archived_of_own_rows(engine, leaf, bounds, view);
        // What the window did not show is not known to be nobody's own.
        if let Some(end) = &window_end {
            match self.direction {
                Direction::Forward => bounds.1 = Bound::Included(end),
                Direction::Backward => bounds.0 = Bound::Included(end),
            }
        }
        let mut archived = ArchivedEntries::default();
        debug_assert!(
            self.items.len() <= self.batch,
            "{} of a batch",
            self.items.len()
        );
        let room = self.batch + 1 - self.items.len();
        let mut result = Ok(());
        let table = self.table.clone();
        let forward = self.direction == Direction::Forward;
        let stopped_at =
            table
                .archive(self.number)
                .visit(bounds, forward, WINDOW, &mut |key, rec| {
                    if hidden_by_own(leaf, key, view) {
                        return true;
                    }
                    let view = match own_rows.contains(key) {
                        true => View::Current,
                        false => view,
                    };
                    result = archived.add(engine, key, rec, view);
                    result.is_ok() && archived.list.len() < room
                });
        archived.cut = stopped_at.or(window_end);
        result.map(|()| Some(archived))
    }

    /// The keys of the leaf that the scan has still to see.
    fn rest_of_leaf<'k>(&self, leaf: &'k LeafRef<'_>, here: &'k [u8]) -> Bounds<'k> {
        let high = node::high(leaf).map_or(Bound::Unbounded, Bound::Excluded);
        match self.direction {
            Direction::Forward if self.resume.exclusive => (Bound::Excluded(here), high),
            Direction::Forward => (Bound::Included(here), high),
            Direction::Backward if self.resume.edge => (Bound::Included(node::low(leaf)), high),
            Direction::Backward => (Bound::Included(node::low(leaf)), Bound::Excluded(here)),
        }
    }

    /// Which of the next archived entries between these keys are of rows that the reader's own transaction
    /// has changed: they are looked at as the present is. The clustered index is read for that, so
    /// that it is found out before, without the delete_archive's mutex: under the leaf's latch no archived entry
    /// comes. Second: the last key looked at, if there are more.
    fn archived_of_own_rows(
        &self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        bounds: Bounds<'_>,
        view: View<'_>,
    ) -> (BTreeSet<Vec<u8>>, Option<Vec<u8>>) {
        let View::At { own, .. } = view else {
            return (BTreeSet::new(), None);
        };
        if self.number == 0 || own.is_frozen() {
            return (BTreeSet::new(), None);
        }
        let mut doubtful = Vec::new();
        let delete_archive = self.table.archive(self.number);
        let forward = self.direction == Direction::Forward;
        let end = delete_archive.visit(bounds, forward, WINDOW, &mut |key, rec| {
            if !hidden_by_own(leaf, key, view) {
                let declared = self.clustered_key_of(engine, rec, key, view);
                doubtful.extend(declared.map(|pk| (key.to_vec(), pk.to_vec())));
            }
            true
        });
        let mine = doubtful
            .into_iter()
            .filter(|(_, pk)| self.is_own_row(pk, own));
        (mine.map(|(key, _)| key).collect(), end)
    }

    /// As `copy_visible`, with the archived entries where they belong.
    pub(super) fn copy_merged(
        &mut self,
        engine: &Engine,
        leaf: &LeafRef<'_>,
        mut slot: usize,
        view: View<'_>,
        archived: &ArchivedEntries,
    ) -> Result<Stop> {
        let mut next = 0;
        let mut key = Vec::new();
        loop {
            let at = self.slot_in(leaf, slot);
            if let Some(at) = at {
                key.clear();
                node::key_into(leaf, at, &mut key);
            }
            if let Some(item) = archived.list.get(next) {
                if at.is_none() || self.comes_before(archived.key(item), &key) {
                    next += 1;
                    self.push_archived(archived, item);
                    if self.batch_full() {
                        return Ok(Stop::Archived);
                    }
                    continue;
                }
            } else if let Some(cut) = &archived.cut {
                if at.is_none() || self.comes_before(cut, &key) {
                    return Ok(Stop::ArchiveCut(cut.clone()));
                }
            }
            let Some(at) = at else {
                return Ok(Stop::LeafDone);
            };
            slot = self.after(at);
            let rec = leaf.record(at);
            if engine.is_unsettled(&rec, view) {
                return Ok(Stop::Unsettled(rec.header.txn));
            }
            if self.copy_entry(engine, leaf, &rec, view)? && self.batch_full() {
                return Ok(Stop::Slot(at));
            }
        }
    }

    /// In the scan's direction.
    fn comes_before(&self, a: &[u8], b: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => a < b,
            Direction::Backward => a > b,
        }
    }

    fn push_archived(&mut self, archived: &ArchivedEntries, item: &Item) {
        let key_from = self.data.len();
        self.data
            .extend_from_slice(&archived.data[item.key.clone()]);
        let value_from = self.data.len();
        self.data
            .extend_from_slice(&archived.data[item.value.clone()]);
        self.push_item(Item {
            key: key_from..value_from,
            value: value_from..self.data.len(),
        });
    }
}

/// The reader itself made what the leaf has under this key, if only a delete-mark: that is its
/// state of the row, and an archived entry of the key belongs to the time before.
pub(super) fn hidden_by_own(leaf: &LeafRef<'_>, key: &[u8], view: View<'_>) -> bool {
    let View::At { own, .. } = view else {
        return false;
    };
    !own.is_frozen()
        && leaf
            .find(key)
            .is_ok_and(|slot| leaf.record(slot).header.txn == own)
}
