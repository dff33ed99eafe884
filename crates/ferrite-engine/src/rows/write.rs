//! Rows: one change of a row is a change of the clustered index and of every secondary one it
//! touches. Either all of it is done or, on an error, none of it remains.

use crate::catalog::dictionary::log_auto_increment;
use crate::catalog::table::Table;
use crate::rows::entry::Inserted;
use crate::state::purge_work::Garbage;
use crate::transaction::session::Session;
use ferrite_lock::{Attempt, LockRequest, Mode, Span};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, Arc};
use ferrite_tree::node;
use ferrite_types::{Error, OverflowRef, Result, UndoPosition};

/// A secondary entry as the caller knows it: `key` is the declared key parts; the primary
/// key is appended here.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    /// Index number in the table's definition.
    pub index_no: usize,
    /// Another live entry with the same `key` is a duplicate.
    pub check_unique: bool,
    /// Declared key parts, encoded.
    pub key: &'a [u8],
    /// Payload of the entry.
    pub payload: &'a [u8],
}

/// The row in the way of a unique key.
#[derive(Clone, Debug, Default)]
pub struct DupInfo {
    /// Index number that would be violated.
    pub index_no: usize,
    /// Clustered key of the row in the way.
    pub pk: Vec<u8>,
}

impl DupInfo {
    pub(crate) fn is_of(&mut self, index_no: usize, pk: &[u8]) {
        self.index_no = index_no;
        self.pk.clear();
        self.pk.extend_from_slice(pk);
    }
}

pub(crate) fn full_key(part: &[u8], pk: &[u8], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(part);
    out.extend_from_slice(pk);
    debug_assert_eq!(&out[part.len()..], pk, "a row is not found by its entry");
}

/// Bytes before a secondary entry's payload: the length of its declared key parts (u16), which
/// tells where the primary key begins.
pub(crate) const ENTRY_PREFIX_BYTES: usize = 2;
// The length of declared key parts fits its place.
const _: () = assert!(node::MAX_KEY_BYTES < 1 << (8 * ENTRY_PREFIX_BYTES));

pub(crate) fn entry_value(entry: &Entry<'_>) -> Vec<u8> {
    let mut value = Vec::with_capacity(ENTRY_PREFIX_BYTES + entry.payload.len());
    append_entry_value(entry, &mut value);
    value
}

/// The same, behind what is in `out`.
pub(crate) fn append_entry_value(entry: &Entry<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(&(entry.key.len() as u16).to_le_bytes());
    out.extend_from_slice(entry.payload);
}

/// How a row is replaced. Entries whose key or payload changes are named; the same key among
/// `removed` and `added` is a change of payload. If the primary key changes, all entries are in both.
pub struct RowChange<'a> {
    /// The key of the row as it is.
    pub old_pk: &'a [u8],
    /// Its key afterwards.
    pub new_pk: &'a [u8],
    /// The clustered record's value afterwards.
    pub payload: &'a [u8],
    /// Secondary entries that go.
    pub removed: &'a [Entry<'a>],
    /// Secondary entries that come.
    pub added: &'a [Entry<'a>],
}

impl Session {
    /// Inserts a row with all its entries. `pk` None: the table hands out a row id, which is
    /// returned. `replace_hint`: a row in the way will be replaced, so it is locked
    /// exclusively.
    ///
    /// # Errors
    /// `Duplicate` with `dup` filled; lock errors; `RowTooBig`, `KeyTooLong`, `DiskFull`.
    /// Nothing of the row remains.
    pub fn insert_row(
        &mut self,
        table: &Arc<Table>,
        pk: Option<&[u8]>,
        payload: &[u8],
        entries: &[Entry<'_>],
        replace_hint: bool,
        dup: &mut DupInfo,
    ) -> Result<Option<[u8; 8]>> {
        let row_id = pk.is_none().then(|| {
            table
                .next_row_id
                .fetch_add(1, Ordering::SeqCst)
                .to_be_bytes()
        });
        let row_key = match (&row_id, pk) {
            (Some(id), _) => id.as_slice(),
            (None, Some(pk)) => pk,
            (None, None) => return Err(Error::Bug("a row without a key".into())),
        };
        let before = self.row_begins(table);
        if table.loading.load(Ordering::Relaxed) {
            let result = self.load_row(table, row_key, payload, entries, dup);
            self.undo_if_failed(before, &result)?;
            result?;
            table.count_row(1);
            table.note_change();
            self.engine.counters.rows_inserted.inc();
            return Ok(row_id);
        }
        let result = self.insert_all(table, row_key, payload, entries, replace_hint, dup);
        self.undo_if_failed(before, &result)?;
        result?;
        debug_assert!(self.undo_position() > before, "an insert without undo");
        table.note_change();
        self.txn.changed.add(table, before);
        self.txn.slot.rows_changed.fetch_add(1, Ordering::Relaxed);
        self.engine.counters.rows_inserted.inc();
        Ok(row_id)
    }

    /// What a failed row change had done so far goes, its values out of line included.
    fn undo_if_failed<T>(&mut self, before: UndoPosition, result: &Result<T>) -> Result<()> {
        if result.is_ok() {
            self.row_ends();
            return Ok(());
        }
        if self.txn.has_changes() && self.undo_position() > before {
            self.rollback_to_inner(before)?;
        }
        debug_assert!(
            self.undo_position() <= before,
            "something of a failed change is left"
        );
        self.drop_loaded_values()?;
        if matches!(result, Err(Error::RecordChanged)) {
            self.roll_back_as_victim();
        }
        Ok(())
    }

    /// Undoes what the running statement has changed since `before`, cascades included. Nothing if
    /// the transaction is gone.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn undo_row(&mut self, before: UndoPosition) -> Result<()> {
        if self.txn.has_changes() && self.undo_position() > before {
            self.rollback_to_inner(before)?;
        }
        Ok(())
    }

    pub(crate) fn rollback_to_inner(&mut self, position: UndoPosition) -> Result<()> {
        let keep = self.stmt_undo;
        debug_assert!(
            keep <= position,
            "a row from {position}, a statement from {keep}"
        );
        let result = self.rollback_to(position);
        self.stmt_undo = keep;
        result
    }

    fn insert_all(
        &mut self,
        table: &Arc<Table>,
        pk: &[u8],
        payload: &[u8],
        entries: &[Entry<'_>],
        replace_hint: bool,
        dup: &mut DupInfo,
    ) -> Result<()> {
        let mode = if replace_hint {
            Mode::Exclusive
        } else {
            Mode::Shared
        };
        self.insert_clustered(table, pk, payload, mode, dup)?;
        for entry in entries {
            self.insert_secondary(table, pk, entry, mode, dup)?;
        }
        Ok(())
    }

    /// The row's own entry, or `Duplicate` with the row in the way locked.
    fn insert_clustered(
        &mut self,
        table: &Arc<Table>,
        pk: &[u8],
        payload: &[u8],
        mode: Mode,
        dup: &mut DupInfo,
    ) -> Result<()> {
        loop {
            match self.insert_entry(table, 0, pk, payload, mode)? {
                // A row that was here may have been deleted since the snapshot.
                Inserted::Done => return self.check_archived_key(table, pk),
                Inserted::GapLocked(next) => self.wait_for_gap(table.tree(0).index(), &next)?,
                Inserted::Occupied => {
                    if self.confirm_duplicate(table, 0, pk, mode)? {
                        dup.is_of(0, pk);
                        return Err(Error::Duplicate);
                    }
                }
            }
        }
    }

    fn insert_secondary(
        &mut self,
        table: &Arc<Table>,
        pk: &[u8],
        entry: &Entry<'_>,
        mode: Mode,
        dup: &mut DupInfo,
    ) -> Result<()> {
        let mut key = Vec::with_capacity(entry.key.len() + pk.len());
        full_key(entry.key, pk, &mut key);
        let value = entry_value(entry);
        debug_assert!(
            entry.index_no > 0,
            "the row's own entry is no secondary one"
        );
        loop {
            let mut locked = false;
            if entry.check_unique {
                locked = self.check_unique(table, entry, pk, mode, dup)?;
                kill_point!("write.value_checked");
            }
            let inserted = self.insert_entry(table, entry.index_no, &key, &value, mode);
            if locked {
                // From here on the entry itself stands for the value; and who waits for a gap has
                // no right to the value yet.
                self.unlock_value(table, entry);
            }
            match inserted? {
                Inserted::Done => return Ok(()),
                Inserted::GapLocked(next) => {
                    self.wait_for_gap(table.tree(entry.index_no).index(), &next)?;
                }
                Inserted::Occupied => {
                    return Err(Error::Corrupt(format!(
                        "table {} index {}: an entry of this row is there already",
                        table.id(),
                        entry.index_no
                    )))
                }
            }
        }
    }

    /// Locks the entry in the way; true if it is still live then.
    fn confirm_duplicate(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        key: &[u8],
        mode: Mode,
    ) -> Result<bool> {
        let tree = table.tree(number);
        let index = tree.index();
        loop {
            let leaf = tree.leaf(key)?;
            let Ok(slot) = leaf.find(key) else {
                return Ok(false);
            };
            let header = leaf.record(slot).header;
            if self.owns(header.txn) {
                return Ok(!header.deleted);
            }
            if self.engine.txns.is_active(header.txn) {
                drop(leaf);
                self.wait_for_holder(header.txn, LockRequest::new(index, key, mode, Span::Record))?;
                continue;
            }
            let locks = &self.engine.locks;
            if !locks
                .try_lock(
                    &self.txn.owner,
                    LockRequest::new(index, key, mode, Span::Record),
                )?
                .is_granted()
            {
                drop(leaf);
                self.wait_for_lock(LockRequest::new(index, key, mode, Span::Record))?;
                continue;
            }
            if number == 0 && self.is_too_new(header.txn) {
                return Err(Error::RecordChanged);
            }
            return Ok(!header.deleted);
        }
    }

    /// No other live entry may have the entry's declared key parts. Until the entry is there the
    /// value itself is locked, so that of two sessions that bring the same value the second waits
    /// for the first; nobody waits for an entry with it. True if the lock is to be given back.
    fn check_unique(
        &mut self,
        table: &Arc<Table>,
        entry: &Entry<'_>,
        pk: &[u8],
        mode: Mode,
        dup: &mut DupInfo,
    ) -> Result<bool> {
        let index = table.tree(entry.index_no).index();
        self.writing()?;
        let (exclusive, span) = (Mode::Exclusive, Span::Record);
        let mut waited = false;
        loop {
            let locks = &self.engine.locks;
            let attempt = locks.try_lock(
                &self.txn.owner,
                LockRequest::new(index, entry.key, exclusive, span),
            )?;
            let fresh = waited || attempt == Attempt::Granted;
            let blind = ferrite_sync::mutant!("write.unique_value_not_locked");
            let found = self.entry_with_value(table, entry, pk);
            if found.is_err() && fresh && attempt.is_granted() {
                self.unlock_value(table, entry);
            }
            match found? {
                None if attempt.is_granted() || blind => return Ok(fresh),
                None => {
                    self.wait_for_lock(LockRequest::new(index, entry.key, exclusive, span))?;
                    waited = true;
                }
                Some(key) => {
                    if fresh && attempt.is_granted() {
                        self.unlock_value(table, entry);
                    }
                    waited = false;
                    if self.confirm_duplicate(table, entry.index_no, &key, mode)? {
                        dup.is_of(entry.index_no, &key[entry.key.len()..]);
                        return Err(Error::Duplicate);
                    }
                }
            }
        }
    }

    fn unlock_value(&self, table: &Table, entry: &Entry<'_>) {
        let index = table.tree(entry.index_no).index();
        let locks = &self.engine.locks;
        locks.unlock(&self.txn.owner, index, entry.key, Mode::Exclusive);
    }

    /// The first entry of another row with that value that is live, or may be.
    fn entry_with_value(
        &self,
        table: &Table,
        entry: &Entry<'_>,
        pk: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let tree = table.tree(entry.index_no);
        let mut from = entry.key.to_vec();
        let mut key = Vec::new();
        loop {
            let leaf = tree.leaf(&from)?;
            let slot = leaf.find(&from).unwrap_or_else(|slot| slot);
            if slot == leaf.count() {
                match node::high(&leaf) {
                    Some(high) if high.starts_with(entry.key) || high <= from.as_slice() => {
                        from = high.to_vec();
                        drop(leaf);
                        self.check_killed()?;
                        continue;
                    }
                    _ => return Ok(None),
                }
            }
            key.clear();
            node::key_into(&leaf, slot, &mut key);
            debug_assert!(key >= from, "the search for a value goes back");
            if !key.starts_with(entry.key) {
                return Ok(None);
            }
            let header = leaf.record(slot).header;
            // Asked under the latch: a deleter that is rolled back restores the entry first.
            let foreign = header.txn != self.txn.id() && self.engine.txns.is_active(header.txn);
            let live = foreign || !header.deleted;
            drop(leaf);
            if live && key[entry.key.len()..] != *pk {
                return Ok(Some(key));
            }
            std::mem::swap(&mut from, &mut key);
            from.push(0);
        }
    }

    /// Replaces a row.
    ///
    /// # Errors
    /// As [`Session::insert_row`], and `NotFound`. Nothing has changed.
    pub fn update_row(
        &mut self,
        table: &Arc<Table>,
        change: &RowChange<'_>,
        dup: &mut DupInfo,
    ) -> Result<()> {
        let before = self.row_begins(table);
        let result = self.update_all(table, change, dup);
        self.undo_if_failed(before, &result)?;
        result?;
        debug_assert!(self.undo_position() > before, "an update without undo");
        table.note_change();
        self.txn.changed.add(table, before);
        self.txn.slot.rows_changed.fetch_add(1, Ordering::Relaxed);
        self.engine.counters.rows_updated.inc();
        Ok(())
    }

    fn update_all(
        &mut self,
        table: &Arc<Table>,
        change: &RowChange<'_>,
        dup: &mut DupInfo,
    ) -> Result<()> {
        let RowChange {
            old_pk,
            new_pk,
            payload,
            removed,
            added,
        } = *change;
        let same_pk = old_pk == new_pk;
        let made_by = match same_pk {
            true => self.update_entry(table, 0, old_pk, payload)?,
            false => {
                let made_by = self.delete_moved(table, old_pk, payload)?;
                self.insert_clustered(table, new_pk, payload, Mode::Shared, dup)?;
                made_by
            }
        };
        let mut key = Vec::new();
        let kept = |e: &Entry<'_>, others: &[Entry<'_>]| {
            same_pk
                && others
                    .iter()
                    .any(|o| o.index_no == e.index_no && o.key == e.key)
        };
        for entry in removed {
            if !kept(entry, added) {
                full_key(entry.key, old_pk, &mut key);
                self.delete_entry(table, entry.index_no, &key, made_by)
                    .map_err(|e| lost_entry(e, table, entry.index_no))?;
            }
        }
        for entry in added {
            if kept(entry, removed) {
                full_key(entry.key, old_pk, &mut key);
                self.update_entry(table, entry.index_no, &key, &entry_value(entry))
                    .map_err(|e| lost_entry(e, table, entry.index_no))?;
            } else {
                self.insert_secondary(table, new_pk, entry, Mode::Shared, dup)?;
            }
        }
        Ok(())
    }

    /// Deletes the row and its entries.
    ///
    /// # Errors
    /// `NotFound`; lock errors; `DiskFull`. Nothing has changed.
    pub fn delete_row(
        &mut self,
        table: &Arc<Table>,
        pk: &[u8],
        entries: &[Entry<'_>],
    ) -> Result<()> {
        let before = self.row_begins(table);
        let result = self.delete_all(table, pk, entries);
        self.undo_if_failed(before, &result)?;
        result?;
        debug_assert!(self.undo_position() > before, "a deletion without undo");
        table.note_change();
        self.txn.changed.add(table, before);
        self.txn.slot.rows_changed.fetch_add(1, Ordering::Relaxed);
        self.engine.counters.rows_deleted.inc();
        Ok(())
    }

    fn delete_all(&mut self, table: &Arc<Table>, pk: &[u8], entries: &[Entry<'_>]) -> Result<()> {
        let made_by = self.delete_clustered(table, pk)?;
        let mut key = Vec::new();
        for entry in entries {
            full_key(entry.key, pk, &mut key);
            self.delete_entry(table, entry.index_no, &key, made_by)
                .map_err(|e| lost_entry(e, table, entry.index_no))?;
        }
        Ok(())
    }

    /// Values that a change of the row has let go of. `at`: the undo position after the change's first
    /// undo entry.
    pub(crate) fn leave_values(
        &mut self,
        table: &Arc<Table>,
        at: UndoPosition,
        values: Vec<OverflowRef>,
    ) {
        for reference in values {
            debug_assert!(
                at > UndoPosition::START && self.txn.has_changes(),
                "values of no change"
            );
            let piece = Garbage::overflow_of(table, reference);
            self.txn.leave_value(&self.engine, at, piece);
        }
    }
}

fn lost_entry(error: Error, table: &Table, number: usize) -> Error {
    match error {
        Error::NotFound => Error::Corrupt(format!(
            "table {} index {number}: an entry of a row is missing",
            table.id()
        )),
        other => other,
    }
}

impl crate::state::engine::Engine {
    /// Logs a table's AUTO_INCREMENT counter; durable with the next flush.
    pub fn log_auto_increment(&self, table: &Table) {
        let next = table.auto_increment.load(Ordering::SeqCst);
        log_auto_increment(&self.log, table.id(), next, false);
    }

    /// Raises the counter to at least `next` and logs it if it moved.
    pub fn raise_auto_increment(&self, table: &Table, next: u64) {
        if table.raise_auto_increment(next) {
            self.log_auto_increment(table);
        }
    }

    /// Sets the counter (ALTER TABLE ... AUTO_INCREMENT); durable on return.
    pub fn set_auto_increment(&self, table: &Table, next: u64) {
        table.auto_increment.store(next.max(1), Ordering::SeqCst);
        let end = log_auto_increment(&self.log, table.id(), next.max(1), true);
        self.log.flush_to(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::spec::{IndexSpec, TableSpec};
    use crate::testing::{open, out_of_memory};
    use crate::{Cursor, ReadMode, WaitMode};
    use ferrite_io::sim::{Fault, SimStorage};

    /// The search for a duplicate fails: the value can be had by others, long before the end of
    /// the transaction.
    #[test]
    fn a_failed_search_for_a_duplicate_leaves_no_lock() {
        let disk = SimStorage::new(9);
        let engine = open(&disk);
        let indexes = vec![
            IndexSpec::new("PRIMARY", true, 1),
            IndexSpec::new("u", true, 1),
        ];
        let spec = TableSpec::new("d/t", indexes);
        let t = engine.dict.create_table(spec, 1).unwrap();
        let insert = |s: &mut Session, pk: &[u8], u: &[u8]| {
            let entries = [Entry {
                index_no: 1,
                check_unique: true,
                key: u,
                payload: b"",
            }];
            s.insert_row(&t, Some(pk), &[0], &entries, false, &mut DupInfo::default())
        };
        let mut s = Session::new(&engine, 0, 1);
        insert(&mut s, b"a", b"u").unwrap();
        s.commit(false).unwrap();
        let of_unique = t.tree(1).leaf(b"u").unwrap().page_id();
        out_of_memory(&engine, of_unique);
        // The clustered leaf is back, and needs no read.
        let mut cursor = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
        cursor.get(&mut s, b"a").unwrap();
        s.commit(false).unwrap();
        disk.inject_in(Fault::FailRead, 1, "store.");
        let failed = insert(&mut s, b"b", b"v");
        assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
        assert_eq!(s.txn.owner.locks_held(), 0);
        let mut other = Session::new(&engine, 0, 2);
        other.set_lock_wait_timeout_ms(50);
        insert(&mut other, b"c", b"v").unwrap();
        other.commit(false).unwrap();
        s.commit(false).unwrap();
        drop((s, other));
        engine.close().unwrap();
    }
}
