//! Snapshot isolation: at REPEATABLE READ and above a locking read, or a write, that meets a row which
//! has changed since the transaction's snapshot fails, and the transaction is rolled back, as a
//! deadlock's victim is. Without it such a statement reads and changes the present state, which
//! the transaction's consistent reads do not see: an update may be lost.
//!
//! A session has it or not (InnoDB's `innodb_snapshot_isolation`). What counts is the clustered
//! entry; of a secondary index, an entry that is locked exclusively. A row that was deleted counts
//! too, although its entry may have gone to the delete archive.

use crate::catalog::table::Table;
use crate::state::slot::Isolation;
use crate::state::transaction::Phase;
use crate::transaction::session::Session;
use crate::transaction::visible::View;
use ferrite_types::{Error, Result, TxnId};
use std::ops::Bound;

/// Keys of archived entries looked at under one hold of the archive's mutex.
const WINDOW: usize = 256;

impl Session {
    /// For the statements to come.
    pub fn set_snapshot_isolation(&mut self, on: bool) {
        self.snapshot_isolation = on;
    }

    /// SERIALIZABLE makes locking reads of all reads, so that no snapshot would be there to compare
    /// with: as in InnoDB the transaction's first statement opens it.
    pub(super) fn open_first_snapshot(&mut self) {
        let asked = self.snapshot_isolation && self.isolation == Isolation::Serializable;
        if asked && self.txn.phase() == Phase::Idle && !self.txn.is_active() {
            debug_assert!(!self.has_changes(), "a transaction has begun before");
            self.need_snapshot(true);
        }
    }

    /// Has what `txn` made come after the transaction's snapshot? Others' uncommitted changes are to
    /// be waited for first.
    #[inline]
    pub(crate) fn is_too_new(&self, txn: TxnId) -> bool {
        self.snapshot_isolation && self.snapshot_misses(txn)
    }

    fn snapshot_misses(&self, txn: TxnId) -> bool {
        match &self.txn.snapshot {
            Some(snapshot) if self.isolation >= Isolation::RepeatableRead => {
                !self.engine.txns.sees(snapshot, txn, self.txn.id())
            }
            _ => false,
        }
    }

    /// May a clustered entry that the snapshot sees have gone to the archive?
    ///
    /// # Errors
    /// `SnapshotTooOld`: what would tell is gone with the snapshot.
    #[inline]
    pub(crate) fn may_miss_deleted(&self, table: &Table) -> Result<bool> {
        if !self.snapshot_isolation || self.isolation < Isolation::RepeatableRead {
            return Ok(false);
        }
        let Some(snapshot) = &self.txn.snapshot else {
            return Ok(false);
        };
        let concerns = table.archive(0).concerns(snapshot.csn());
        // After the look: an entry that was not there may have gone because of this.
        self.snapshot_holds()?;
        Ok(concerns)
    }

    /// Refuses if a row that the snapshot sees between these keys was deleted and is in the archive.
    ///
    /// # Errors
    /// `RecordChanged`; a scratch file that cannot be read.
    pub(crate) fn check_archived(
        &self,
        table: &Table,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
    ) -> Result<()> {
        debug_assert!(
            self.may_miss_deleted(table) != Ok(false),
            "nothing can be missed"
        );
        let Some(snapshot) = self.txn.snapshot.as_ref() else {
            return Ok(());
        };
        let own = self.txn.id();
        let view = View::At { snapshot, own };
        let (mut work, mut value) = (Vec::new(), Vec::new());
        let mut found = Ok(false);
        let mut next: Option<Vec<u8>> = None;
        loop {
            let begin = next.as_deref().map_or(from, Bound::Excluded);
            next = table
                .archive(0)
                .visit((begin, to), true, WINDOW, &mut |_, rec| {
                    value.clear();
                    found = (self.engine).visible_value(rec, view, &mut work, &mut value);
                    matches!(found, Ok(false))
                });
            match std::mem::replace(&mut found, Ok(false)) {
                Ok(true) => return Err(Error::RecordChanged),
                Ok(false) if next.is_none() => return Ok(()),
                Ok(false) => self.check_killed()?,
                Err(e) => return Err(e),
            }
        }
    }

    /// The same of one key.
    ///
    /// # Errors
    /// As [`Session::check_archived`].
    pub(crate) fn check_archived_key(&self, table: &Table, key: &[u8]) -> Result<()> {
        if !self.may_miss_deleted(table)? {
            return Ok(());
        }
        self.check_archived(table, (Bound::Included(key), Bound::Included(key)))
    }

    /// A transaction that met a newer row is rolled back here and now. No latch is held.
    pub(crate) fn after_locking<T>(&mut self, result: Result<T>) -> Result<T> {
        if matches!(result, Err(Error::RecordChanged)) {
            debug_assert!(self.snapshot_isolation && self.txn.snapshot.is_some());
            self.roll_back_as_victim();
            debug_assert!(!self.has_changes(), "a transaction that failed goes on");
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::write::{DupInfo, RowChange};
    use crate::state::engine::Engine;
    use crate::testing::{create, open};
    use crate::{Cursor, ReadMode, SeekMode, WaitMode};
    use ferrite_io::sim::SimStorage;
    use ferrite_sync::Arc;

    fn insert(s: &mut Session, t: &Arc<Table>, key: &[u8]) -> Result<()> {
        let dup = &mut DupInfo::default();
        s.insert_row(t, Some(key), b"v", &[], false, dup)
            .map(|_| ())
    }

    fn update(s: &mut Session, t: &Arc<Table>, key: &[u8]) -> Result<()> {
        let change = RowChange {
            old_pk: key,
            new_pk: key,
            payload: b"w",
            removed: &[],
            added: &[],
        };
        s.update_row(t, &change, &mut DupInfo::default())
    }

    fn read(s: &mut Session, t: &Arc<Table>, key: &[u8], mode: ReadMode) -> Result<()> {
        let mut cursor = Cursor::new(t, 0, mode, WaitMode::Wait);
        cursor.seek(s, key, SeekMode::Exact, true).map(|_| ())
    }

    fn scan(s: &mut Session, t: &Arc<Table>) -> Result<usize> {
        let mut cursor = Cursor::new(t, 0, ReadMode::Shared, WaitMode::Wait);
        let mut rows = 0;
        let mut found = cursor.first(s).map(|_| ());
        while found.is_ok() {
            rows += 1;
            found = cursor.next(s).map(|_| ());
        }
        match found {
            Err(Error::NotFound) => Ok(rows),
            other => other.map(|()| rows),
        }
    }

    /// A table with rows a to e, a transaction with a snapshot of it, and another session.
    fn two(disk: &SimStorage, isolation: Isolation) -> (Arc<Engine>, Arc<Table>, Session, Session) {
        let engine = open(disk);
        let t = create(&engine);
        let (mut s, mut other) = (Session::new(&engine, 0, 1), Session::new(&engine, 0, 2));
        for key in [b"a", b"b", b"c", b"d", b"e"] {
            insert(&mut other, &t, key).unwrap();
        }
        other.commit(false).unwrap();
        s.set_snapshot_isolation(true);
        s.begin_statement(isolation);
        read(&mut s, &t, b"a", ReadMode::Snapshot).unwrap();
        (engine, t, s, other)
    }

    fn refuses(s: &mut Session, result: Result<()>) {
        assert_eq!(result, Err(Error::RecordChanged));
        assert_eq!(s.txn.owner.locks_held(), 0, "rolled back at once");
        assert!(!s.has_changes());
        s.rollback().unwrap();
    }

    #[test]
    fn a_newer_row_is_neither_locked_nor_changed() {
        for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
            for mode in [ReadMode::Shared, ReadMode::Exclusive] {
                let disk = SimStorage::new(1);
                let (engine, t, mut s, mut other) = two(&disk, isolation);
                update(&mut s, &t, b"a").unwrap();
                update(&mut other, &t, b"c").unwrap();
                other.commit(false).unwrap();
                read(&mut s, &t, b"b", mode).unwrap();
                let result = read(&mut s, &t, b"c", mode);
                refuses(&mut s, result);
                // A new transaction has a new snapshot.
                s.begin_statement(isolation);
                read(&mut s, &t, b"c", mode).unwrap();
                s.commit(false).unwrap();
                drop((s, other));
                engine.close().unwrap();
            }
        }
    }

    #[test]
    fn a_write_without_a_read_and_an_insert_over_a_newer_row_are_refused() {
        let disk = SimStorage::new(2);
        let (engine, t, mut s, mut other) = two(&disk, Isolation::RepeatableRead);
        update(&mut other, &t, b"c").unwrap();
        insert(&mut other, &t, b"x").unwrap();
        other.commit(false).unwrap();
        let result = update(&mut s, &t, b"c");
        refuses(&mut s, result);
        s.begin_statement(Isolation::RepeatableRead);
        read(&mut s, &t, b"a", ReadMode::Snapshot).unwrap();
        insert(&mut other, &t, b"y").unwrap();
        other.commit(false).unwrap();
        assert_eq!(insert(&mut s, &t, b"x"), Err(Error::Duplicate));
        let result = insert(&mut s, &t, b"y");
        refuses(&mut s, result);
        drop((s, other));
        engine.close().unwrap();
    }

    /// Its entry has left the tree: what the snapshot sees is in the archive.
    #[test]
    fn a_deleted_row_is_not_passed_over() {
        type Look = fn(&mut Session, &Arc<Table>) -> Result<()>;
        let looks: [Look; 4] = [
            |s, t| read(s, t, b"c", ReadMode::Exclusive),
            |s, t| scan(s, t).map(|_| ()),
            |s, t| insert(s, t, b"c"),
            |s, t| {
                let mut cursor = Cursor::new(t, 0, ReadMode::Shared, WaitMode::Wait);
                cursor.last(s)?;
                cursor.prev(s)?;
                cursor.prev(s).map(|_| ())
            },
        ];
        for archived in [false, true] {
            for look in looks {
                let disk = SimStorage::new(3);
                let (engine, t, mut s, mut other) = two(&disk, Isolation::RepeatableRead);
                other.delete_row(&t, b"c", &[]).unwrap();
                other.commit(false).unwrap();
                if archived {
                    let mut cleaner = crate::maintenance::cleaner::Cleaner::default();
                    while t.archive(0).count() == 0 {
                        engine.purge_round(&mut cleaner);
                    }
                    assert_eq!(t.archive(0).count(), 1);
                }
                let result = look(&mut s, &t);
                refuses(&mut s, result);
                s.begin_statement(Isolation::RepeatableRead);
                assert_eq!(scan(&mut s, &t), Ok(4));
                s.commit(false).unwrap();
                drop((s, other));
                engine.close().unwrap();
            }
        }
    }

    #[test]
    fn without_it_or_below_repeatable_read_the_present_state_counts() {
        for (on, isolation) in [
            (false, Isolation::RepeatableRead),
            (true, Isolation::ReadCommitted),
        ] {
            let disk = SimStorage::new(4);
            let (engine, t, mut s, mut other) = two(&disk, isolation);
            s.set_snapshot_isolation(on);
            update(&mut other, &t, b"c").unwrap();
            other.delete_row(&t, b"d", &[]).unwrap();
            other.commit(false).unwrap();
            read(&mut s, &t, b"c", ReadMode::Exclusive).unwrap();
            assert_eq!(scan(&mut s, &t), Ok(4));
            s.commit(false).unwrap();
            drop((s, other));
            engine.close().unwrap();
        }
    }

    /// SERIALIZABLE has no consistent read, so that the first statement opens the snapshot.
    #[test]
    fn at_serializable_the_first_statement_opens_the_snapshot() {
        let disk = SimStorage::new(5);
        let (engine, t, mut s, mut other) = two(&disk, Isolation::RepeatableRead);
        s.commit(false).unwrap();
        s.begin_statement(Isolation::Serializable);
        update(&mut other, &t, b"c").unwrap();
        other.commit(false).unwrap();
        let result = read(&mut s, &t, b"c", ReadMode::Shared);
        refuses(&mut s, result);
        drop((s, other));
        engine.close().unwrap();
    }
}
