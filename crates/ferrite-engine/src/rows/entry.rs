//! Changing one index entry: the same for clustered and secondary indexes.
//!
//! Each operation is a loop: latch the leaf, look at the entry, and either wait (after giving
//! the latch back) and look again, or make room and look again, or do it: version, log
//! record with undo, page.
//!
//! Locking: one leaf at a time is latched; who waits for a transaction or a lock (`conflict`) has no latch.

use crate::catalog::table::Table;
use crate::log_records::undo::{self, Prior, Undo};
use crate::maintenance::purge::Clean;
use crate::rows::conflict::{EntryConflict, GapCheck};
use crate::rows::overflow;
use crate::state::transaction::Phase;
use crate::transaction::session::Session;
use ferrite_lock::Mode;
use ferrite_sync::Arc;
use ferrite_tree::record::Header;
use ferrite_tree::{node, LeafMut};
use ferrite_txn::diff;
use ferrite_types::{Error, IndexId, PageId, Result, TxnId, UndoPosition, VersionAddr};

// Lengths of keys and values are 16 bits in undo entries and versions.
const _: () = assert!(node::MAX_KEY_BYTES <= u16::MAX as usize);
const _: () = assert!(node::MAX_RECORD_BYTES <= u16::MAX as usize);

/// What an insert found in its place.
pub(crate) enum Inserted {
    /// The entry is there now.
    Done,
    /// A live entry has this key.
    Occupied,
    /// Others have locked the gap before this key: it is to be waited for, then tried again.
    GapLocked(Vec<u8>),
}

/// An entry by its key: index `number` of `table`.
#[derive(Clone, Copy)]
struct Entry<'a> {
    table: &'a Arc<Table>,
    number: usize,
    key: &'a [u8],
}

impl<'a> Entry<'a> {
    fn of_row(table: &'a Arc<Table>, key: &'a [u8]) -> Entry<'a> {
        Entry {
            table,
            number: 0,
            key,
        }
    }

    fn index(&self) -> IndexId {
        self.table.tree(self.number).index()
    }
}

/// What an entry is to become.
#[derive(Clone, Copy)]
struct Next<'a> {
    value: &'a [u8],
    deleted: bool,
}

impl<'a> Next<'a> {
    fn live(value: &'a [u8]) -> Next<'a> {
        Next {
            value,
            deleted: false,
        }
    }

    /// `value`: the one it has.
    fn deleted(value: &'a [u8]) -> Next<'a> {
        Next {
            value,
            deleted: true,
        }
    }

    fn header(&self, txn: TxnId, version: VersionAddr) -> Header {
        Header {
            deleted: self.deleted,
            txn,
            version,
        }
    }
}

impl Session {
    /// Inserts an entry, over a delete-marked one if there is one. `mode`: how to lock an entry in
    /// the way, to see whether it stays.
    pub(crate) fn insert_entry(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        key: &[u8],
        value: &[u8],
        mode: Mode,
    ) -> Result<Inserted> {
        check_size(number, key.len(), value.len())?;
        let tree = table.tree(number);
        let txn = self.writing()?;
        debug_assert!(self.owns(txn), "{txn} is not the session's");
        let entry = Entry { table, number, key };
        loop {
            let leaf = match number {
                0 => self.row_leaf(table, key)?,
                _ => {
                    let page = tree.leaf_of(key)?;
                    if self.put_off(table, number, page, key, value) {
                        return Ok(Inserted::Done);
                    }
                    tree.leaf_mut(key, page)?
                }
            };
            let inserted = match leaf.find(key) {
                Ok(slot) => self.insert_over(entry, leaf, slot, value, mode)?,
                Err(slot) => self.insert_between(entry, leaf, slot, value)?,
            };
            if let Some(inserted) = inserted {
                if number == 0 && matches!(inserted, Inserted::Done) {
                    table.count_row(1);
                }
                return Ok(inserted);
            }
        }
    }

    /// The leaf of a row that is to be changed.
    #[inline]
    fn row_leaf<'t>(&mut self, table: &'t Table, pk: &[u8]) -> Result<LeafMut<'t>> {
        let tree = table.tree(0);
        let leaf = tree.leaf_mut_near(pk, self.last_leaf.hint(tree.index()))?;
        self.last_leaf.note(tree.index(), leaf.page_id());
        Ok(leaf)
    }

    /// Inserts in place of the entry in `slot`, which has this key, if it is delete-marked. None: look again.
    fn insert_over(
        &mut self,
        entry: Entry<'_>,
        leaf: LeafMut<'_>,
        slot: usize,
        value: &[u8],
        mode: Mode,
    ) -> Result<Option<Inserted>> {
        let index = entry.index();
        debug_assert_eq!(leaf.find(entry.key), Ok(slot), "another entry is there");
        let header = leaf.record(slot).header;
        let conflict = self.conflict(index, entry.key, &header);
        let held = matches!(conflict, EntryConflict::HeldBy(_));
        self.refuse_newer(entry.number, held, &header)?;
        // Of a row in the way a shared lock will do: others may have one as well.
        if !header.deleted && !held {
            return Ok(Some(Inserted::Occupied));
        }
        if !matches!(conflict, EntryConflict::None) {
            let mode = if held { mode } else { Mode::Exclusive };
            drop(leaf);
            self.wait_for(&conflict, index, entry.key, mode)?;
            return Ok(None);
        }
        let done = self.change(entry, leaf, slot, Next::live(value))?;
        Ok(done.then_some(Inserted::Done))
    }

    /// Inserts before the entry in `slot`, unless others have locked the gap there. None: look again.
    fn insert_between(
        &mut self,
        entry: Entry<'_>,
        mut leaf: LeafMut<'_>,
        slot: usize,
        value: &[u8],
    ) -> Result<Option<Inserted>> {
        let (index, key) = (entry.index(), entry.key);
        debug_assert_eq!(leaf.find(key), Err(slot), "the entry is there");
        match self.gap_check(&leaf, slot, index, key) {
            GapCheck::Free => {}
            GapCheck::Load(page) => {
                drop(leaf);
                drop(self.engine.pool.shared(page)?);
                return Ok(None);
            }
            GapCheck::Wait(successor) => return Ok(Some(Inserted::GapLocked(successor))),
        }
        let header = Header {
            txn: self.txn.id(),
            ..Header::default()
        };
        if !leaf.has_room(&header, key, value) {
            self.make_room(entry, leaf, value.len())?;
            return Ok(None);
        }
        assert!(self.owns(header.txn), "an insert of {}", header.txn);
        let undo = Undo::Insert { index, key };
        self.logged(&undo, |prelude, scratch| {
            leaf.insert(prelude, slot, &header, key, value, scratch)
        });
        debug_assert_eq!(leaf.find(key), Ok(slot), "an entry that is not found");
        debug_assert!(holds(&leaf, slot, &header, value), "another entry");
        Ok(Some(Inserted::Done))
    }

    /// Gives a live entry another value. The caller knows that it is there. Returns who had made the state
    /// before.
    ///
    /// # Errors
    /// `NotFound` when there is no live entry of that key.
    pub(crate) fn update_entry(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<TxnId> {
        check_size(number, key.len(), value.len())?;
        self.change_live(Entry { table, number, key }, PageId::NONE, Some(value), &[])
    }

    /// Delete-marks a row's own entry. Returns who had made the state before.
    ///
    /// # Errors
    /// `NotFound` when there is no live entry of that key.
    pub(crate) fn delete_clustered(&mut self, table: &Arc<Table>, pk: &[u8]) -> Result<TxnId> {
        self.change_live(Entry::of_row(table, pk), PageId::NONE, None, &[])
    }

    /// Delete-marks a live entry of a secondary index. `made_by`: who had made the state of its row
    /// before the change that this belongs to.
    ///
    /// # Errors
    /// `NotFound` when there is no live entry of that key, if its leaf is looked at.
    pub(crate) fn delete_entry(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        key: &[u8],
        made_by: TxnId,
    ) -> Result<()> {
        self.writing_of(true)?;
        let page = table.tree(number).leaf_of(key)?;
        if self.put_off_mark(table, number, page, key, made_by) {
            return Ok(());
        }
        self.change_live(Entry { table, number, key }, page, None, &[])
            .map(drop)
    }

    /// As [`delete_clustered`](Self::delete_clustered), of a row that moves: `payload` is what it will be at
    /// its new place, and its values out of line stay.
    pub(crate) fn delete_moved(
        &mut self,
        table: &Arc<Table>,
        pk: &[u8],
        payload: &[u8],
    ) -> Result<TxnId> {
        self.change_live(Entry::of_row(table, pk), PageId::NONE, None, payload)
    }

    /// `page`: where the leaf was found, or none. Values out of line that the entry's present state names
    /// become garbage, unless its next state or `moved` (a row payload) names them.
    fn change_live(
        &mut self,
        entry: Entry<'_>,
        page: PageId,
        value: Option<&[u8]>,
        moved: &[u8],
    ) -> Result<TxnId> {
        let Entry { table, number, key } = entry;
        self.writing_of(value.is_none())?;
        loop {
            let leaf = match number {
                0 => self.row_leaf(table, key)?,
                _ => table.tree(number).leaf_mut(key, page)?,
            };
            let Ok(slot) = leaf.find(key) else {
                return Err(Error::NotFound);
            };
            let page = leaf.page_id();
            let rec = leaf.record(slot);
            let made_by = rec.header.txn;
            let conflict = self.conflict(entry.index(), key, &rec.header);
            if !matches!(conflict, EntryConflict::None) {
                drop(leaf);
                self.wait_for(&conflict, entry.index(), key, Mode::Exclusive)?;
                continue;
            }
            if number == 0 && self.is_too_new(rec.header.txn) {
                return Err(Error::RecordChanged);
            }
            if rec.header.deleted {
                return Err(Error::NotFound);
            }
            let gone = match number {
                0 => overflow::no_longer_named(rec.value, value.unwrap_or(moved)),
                _ => Vec::new(),
            };
            let at = match gone.is_empty() {
                true => UndoPosition::START,
                false => UndoPosition(self.undo_position().0 + 1),
            };
            let done = match value {
                Some(value) => self.change(entry, leaf, slot, Next::live(value))?,
                None => self.delete_mark(entry, leaf, slot)?,
            };
            if done {
                self.leave_values(table, at, gone);
                if value.is_none() {
                    self.leave_entry(page, table, number, key);
                    if number == 0 {
                        table.count_row(-1);
                    }
                }
                return Ok(made_by);
            }
        }
    }

    /// Delete-marks the live entry in `slot`. False: look again.
    fn delete_mark(&mut self, entry: Entry<'_>, leaf: LeafMut<'_>, slot: usize) -> Result<bool> {
        let rec = leaf.record(slot);
        debug_assert!(!rec.header.deleted, "the entry is marked already");
        let mut value = std::mem::take(&mut self.buffers.value);
        value.clear();
        value.extend_from_slice(rec.value);
        let done = self.change(entry, leaf, slot, Next::deleted(&value));
        self.buffers.value = value;
        done
    }

    /// Gives the entry in `slot` a new state of this transaction. False: room was made,
    /// look again.
    fn change(
        &mut self,
        entry: Entry<'_>,
        mut leaf: LeafMut<'_>,
        slot: usize,
        next: Next<'_>,
    ) -> Result<bool> {
        let (index, key) = (entry.index(), entry.key);
        self.assert_changeable(&leaf, slot, entry, next);
        let rec = leaf.record(slot);
        let now = rec.header;
        let (keep_head, keep_tail) = kept_of(rec.value, next.value);
        let largest = next.header(self.txn.id(), VersionAddr::MAX);
        // Room for the largest header, so that the version is made only when it will be used.
        if !leaf.can_replace(slot, &largest, next.value.len()) {
            self.make_room(entry, leaf, next.value.len())?;
            return Ok(false);
        }
        let mid = &rec.value[keep_head as usize..rec.value.len() - keep_tail as usize];
        let prior = Prior {
            deleted: now.deleted,
            txn: now.txn,
            keep_head,
            keep_tail,
            mid,
        };
        let version = self.version_of(index, &now, rec.value, next.value, &prior)?;
        assert!(version <= largest.version, "version address {version}");
        let header = next.header(self.txn.id(), version);
        let revives = now.deleted && !next.deleted && now.txn == self.txn.id();
        if revives && !ferrite_sync::mutant!("foreign.revival_forgotten") {
            self.txn.owner.revives();
        }
        let mut kept = std::mem::take(&mut self.buffers.mid);
        kept.clear();
        kept.extend_from_slice(mid);
        let prior = Prior {
            mid: &kept,
            ..prior
        };
        let undo = Undo::Update { index, key, prior };
        let same = (keep_head, keep_tail);
        self.logged(&undo, |prelude, scratch| {
            leaf.replace(prelude, slot, &header, next.value, same, scratch)
        });
        debug_assert_eq!(leaf.find(key), Ok(slot), "the entry has moved");
        debug_assert!(holds(&leaf, slot, &header, next.value), "another state");
        self.buffers.mid = kept;
        if next.deleted && entry.number > 0 {
            self.txn.marked.add(index, key);
        }
        Ok(true)
    }

    /// What [`change`](Self::change) starts from: the transaction runs, and the entry is its own or free.
    #[inline]
    fn assert_changeable(&self, leaf: &LeafMut<'_>, slot: usize, entry: Entry<'_>, next: Next<'_>) {
        let index = entry.index();
        let rec = leaf.record(slot);
        let now = rec.header;
        assert_eq!(self.txn.phase(), Phase::Active, "{}", self.txn.id());
        assert!(
            !(next.deleted && now.deleted),
            "index {index}: an entry is deleted a second time"
        );
        debug_assert_eq!(leaf.find(entry.key), Ok(slot), "another entry is changed");
        debug_assert!(
            self.owns(now.txn) || !self.engine.txns.is_active(now.txn),
            "index {index}: {} changes what {} holds",
            self.txn.id(),
            now.txn
        );
        debug_assert!(
            !next.deleted || rec.value == next.value,
            "a deletion changes the value"
        );
    }

    /// Keeps the state before a change from `old` to `new`, and returns the version address for the new one.
    #[inline]
    fn version_of(
        &self,
        index: IndexId,
        now: &Header,
        old: &[u8],
        new: &[u8],
        prior: &Prior<'_>,
    ) -> Result<VersionAddr> {
        debug_assert!(takes_back(prior, new, old), "undo of another value");
        let txn = self.txn.id();
        let version = self
            .engine
            .version_for_change(now, txn, index, old, new, prior)?;
        debug_assert!(
            !version.is_none() || now.deleted || self.owns(now.txn),
            "index {index}: nobody could read the state before {txn}"
        );
        Ok(version)
    }

    /// Room on the leaf: first by freezing and removing what nobody needs, else by a split.
    fn make_room(
        &mut self,
        entry: Entry<'_>,
        mut leaf: LeafMut<'_>,
        value_bytes: usize,
    ) -> Result<()> {
        let Entry { table, number, key } = entry;
        let need = node::room_for(key.len(), value_bytes);
        let scratch = &mut self.buffers.scratch;
        let clean = Clean {
            freeze: true,
            archive: false,
        };
        let slots = 0..leaf.count();
        let cleaned = self
            .engine
            .clean_leaf(table, number, &mut leaf, slots, scratch, clean);
        let enough = cleaned.bytes > 0 && node::has_room_for(&leaf, key, need);
        if enough {
            return Ok(());
        }
        let marked = self.txn.garbage.has_marks() && has_marks_of(&leaf, self.txn.id());
        drop(leaf);
        table.tree(number).check_page_ids()?;
        let halves = table.tree(number).make_room(key, need, undo::NO_UNDO)?;
        if let Some(halves) = halves {
            self.txn.garbage.split(halves, marked);
        }
        Ok(())
    }
}

/// How many bytes at the beginning and the end of a value stay as they are.
fn kept_of(old: &[u8], new: &[u8]) -> (u16, u16) {
    let (head, tail) = diff(old, new);
    assert!(
        usize::from(head) + usize::from(tail) <= old.len().min(new.len()),
        "{head} + {tail} bytes are kept of {} and {}",
        old.len(),
        new.len()
    );
    (head, tail)
}

/// Has that transaction delete-marked records of the leaf?
fn has_marks_of(leaf: &LeafMut<'_>, txn: TxnId) -> bool {
    debug_assert!(!txn.is_frozen(), "marks of nobody");
    (0..leaf.count()).any(|slot| {
        let header = leaf.record(slot).header;
        header.deleted && header.txn == txn
    })
}

/// What was to be written is there.
fn holds(leaf: &LeafMut<'_>, slot: usize, header: &Header, value: &[u8]) -> bool {
    let rec = leaf.record(slot);
    rec.header == *header && rec.value == value
}

/// Undo makes the old value of the new one.
fn takes_back(prior: &Prior<'_>, new: &[u8], old: &[u8]) -> bool {
    let mut value = Vec::new();
    prior.value(new, &mut value).is_ok() && value == old
}

/// Does an entry of that size fit a leaf of index `number`? The value of a secondary one repeats what its key
/// is made of: it is the key that is too long, not the row.
pub(crate) fn check_size(number: usize, key_bytes: usize, value_bytes: usize) -> Result<()> {
    if key_bytes > node::MAX_KEY_BYTES {
        return Err(Error::KeyTooLong);
    }
    if key_bytes + value_bytes > node::MAX_RECORD_BYTES {
        return Err(match number {
            0 => Error::RowTooBig,
            _ => Error::KeyTooLong,
        });
    }
    Ok(())
}
