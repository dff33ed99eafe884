//! Reading an index: seek, next, previous.
//!
//! A consistent read copies a batch of visible entries out of a leaf under one latch, small
//! at first and growing with the scan; the server works on the copy. A locking read takes one
//! entry at a time. No latch is held when a call returns.
//!
//! A cursor remembers the page, its version (LSN) and the slot it stopped at; if the page is
//! unchanged it goes on there, else it finds its place by key.

mod ahead;
mod archived;
mod cached;
mod locking;
mod position;
mod scan_locks;
mod semi;
mod snapshot;
mod to_stay;

use crate::catalog::table::Table;
use crate::rows::clustered_key;
use crate::rows::write::ENTRY_PREFIX_BYTES;
use crate::transaction::session::Session;
use ahead::RowsAhead;
use ferrite_buffer::misses_here;
use ferrite_lock::Mode;
use ferrite_sync::Arc;
use ferrite_tree::ReadAhead;
use ferrite_types::{Error, Lsn, PageId, Result};
use position::Resume;
use scan_locks::Fold;
use semi::Semi;
use std::ops::Range;
use to_stay::Refused;

/// How a cursor reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadMode {
    /// By snapshot, without locks.
    Snapshot,
    /// With shared locks.
    Shared,
    /// With exclusive locks.
    Exclusive,
}

/// What a locking cursor does about a row locked by others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitMode {
    /// Waits.
    Wait,
    /// Fails at once.
    NoWait,
    /// Passes over it.
    SkipLocked,
}

/// Where a seek lands; see the boundary's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekMode {
    /// First entry that starts with the key, else none.
    Exact,
    /// First entry at or above the key.
    AtOrAfter,
    /// First entry after all that start with the key.
    After,
    /// Last entry that starts with the key, else the last one before it.
    AtOrBefore,
    /// Last entry before all that start with the key.
    Before,
    /// Last entry that starts with the key, else none.
    LastExact,
}

/// One row as a cursor gives it: valid until the next call.
#[derive(Clone, Copy, Debug)]
pub struct Row<'c> {
    /// Whole key.
    pub key: &'c [u8],
    /// Payload.
    pub payload: &'c [u8],
    /// Clustered key: the key itself, or its tail in a secondary index.
    pub pk: &'c [u8],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

#[derive(Default)]
struct Item {
    key: Range<usize>,
    value: Range<usize>,
}

/// Entries of the first batch of a scan, and of the largest.
const FIRST_BATCH: usize = 4;
const LARGEST_BATCH: usize = 128;
/// A batch stops growing beyond so many bytes.
const BATCH_BYTES: usize = 48 * 1024;

/// A position in one index.
pub struct Cursor {
    table: Arc<Table>,
    number: usize,
    mode: ReadMode,
    wait: WaitMode,
    /// Rows are locked, and no gaps.
    rows_only: bool,
    direction: Direction,
    data: Vec<u8>,
    items: Vec<Item>,
    at: usize,
    batch: usize,
    /// What the session had changed in the table when the batch was copied.
    copied_at: u64,
    resume: Resume,
    /// Meaningful while `bounded`.
    bound: Vec<u8>,
    bounded: bool,
    /// A clustered row: key and payload.
    row: Vec<u8>,
    row_key_bytes: usize,
    work: Vec<u8>,
    /// A buffer for the key of the entry that a locking read looks at.
    entry_key: Vec<u8>,
    /// Delete-marks passed over in this leaf.
    passed: u32,
    /// The last lock taken is new: it may be given back.
    fresh_lock: bool,
    /// As `fresh_lock`, of a row that was read by its key (`row`), not by a scan.
    fresh_row: bool,
    semi: Semi,
    /// Next-key locks of this scan.
    fold: Fold,
    /// No current row: the cursor stands before `resume.key`.
    between: bool,
    /// A backward scan has not locked the gap above its start yet.
    start_open: bool,
    /// A search of the clustered index begins with the key itself.
    start_inclusive: bool,
    /// The scan has used up a leaf and has not looked for the next one yet.
    is_beyond_leaf: bool,
    ahead: ReadAhead,
    rows_ahead: RowsAhead,
    /// A buffer for a record of the row cache.
    cached: Vec<u8>,
    /// The lock that it was refused last, where it does not wait.
    refused: Option<Refused>,
}

/// First key after all that start with `key`; None: nothing can follow.
fn prefix_end(key: &[u8]) -> Option<Vec<u8>> {
    let mut end = key.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < 0xff {
            *last += 1;
            return Some(end);
        }
        end.pop();
    }
    None
}

impl Cursor {
    /// A cursor on an index by its number in the table's definition.
    pub fn new(table: &Arc<Table>, number: usize, mode: ReadMode, wait: WaitMode) -> Cursor {
        Cursor {
            table: table.clone(),
            number,
            mode,
            wait,
            rows_only: false,
            direction: Direction::Forward,
            data: Vec::new(),
            items: Vec::new(),
            at: 0,
            batch: FIRST_BATCH,
            copied_at: 0,
            resume: Resume {
                key: Vec::new(),
                exclusive: false,
                edge: true,
                end: true,
                page: PageId::NONE,
                lsn: Lsn::ZERO,
                slot: 0,
            },
            bound: Vec::new(),
            bounded: false,
            row: Vec::new(),
            row_key_bytes: 0,
            work: Vec::new(),
            entry_key: Vec::new(),
            passed: 0,
            fresh_lock: false,
            fresh_row: false,
            semi: Semi::default(),
            fold: Fold::default(),
            between: false,
            start_open: false,
            start_inclusive: false,
            is_beyond_leaf: false,
            ahead: ReadAhead::default(),
            rows_ahead: RowsAhead::default(),
            cached: Vec::new(),
            refused: None,
        }
    }

    /// Ready for another statement; the position is lost.
    pub fn reset(&mut self, mode: ReadMode, wait: WaitMode) {
        self.mode = mode;
        self.wait = wait;
        self.rows_only = false;
        self.clear_batch();
        self.resume.end = true;
        self.bounded = false;
        self.semi = Semi::default();
        self.fold.begin();
    }

    /// Do not read ahead beyond this key (a hint).
    pub fn set_bound(&mut self, bound: Option<&[u8]>) {
        self.bounded = bound.is_some();
        self.bound.clear();
        self.bound.extend_from_slice(bound.unwrap_or(&[]));
    }

    fn clear_batch(&mut self) {
        self.data.clear();
        self.items.clear();
        self.at = 0;
        self.rows_ahead.new_batch();
        self.fresh_lock = false;
        self.fresh_row = false;
        self.between = false;
        self.semi.call_begins();
    }

    /// The row the cursor stands on.
    #[inline]
    pub fn current(&self) -> Result<Row<'_>> {
        let item = self.items.get(self.at).ok_or(Error::NotFound)?;
        let key = &self.data[item.key.clone()];
        let value = &self.data[item.value.clone()];
        if self.number == 0 {
            return Ok(Row {
                key,
                payload: value,
                pk: key,
            });
        }
        let pk = clustered_key(key, value).ok_or_else(|| self.broken_entry())?;
        let payload = &value[ENTRY_PREFIX_BYTES..];
        Ok(Row { key, payload, pk })
    }

    fn broken_entry(&self) -> Error {
        Error::Corrupt(format!(
            "table {} index {}: an entry without its primary key",
            self.table.id(),
            self.number
        ))
    }

    /// Adds an entry to the batch: its key and value are in `data`. A row twice, or out of order,
    /// would be a wrong answer.
    fn push_item(&mut self, item: Item) {
        debug_assert!(item.key.end == item.value.start && item.value.end == self.data.len());
        debug_assert!(
            self.items.last().is_none_or(|last| {
                let (last, next) = (&self.data[last.key.clone()], &self.data[item.key.clone()]);
                match self.direction {
                    Direction::Forward => last < next,
                    Direction::Backward => last > next,
                }
            }),
            "the entries of a scan are out of order"
        );
        self.items.push(item);
    }

    // ---- moving ----------------------------------------------------------------------------

    /// Moves to the entry `mode` asks for. `unique_exact`: `key` is a whole unique key without
    /// NULLs, so that at most one entry matches and no gap needs a lock.
    ///
    /// # Errors
    /// `NotFound` when there is none; lock errors; a page that cannot be read.
    pub fn seek(
        &mut self,
        session: &mut Session,
        key: &[u8],
        mode: SeekMode,
        unique_exact: bool,
    ) -> Result<Row<'_>> {
        self.clear_batch();
        self.batch = if unique_exact { 1 } else { FIRST_BATCH };
        self.direction = match mode {
            SeekMode::Exact | SeekMode::AtOrAfter | SeekMode::After => Direction::Forward,
            _ => Direction::Backward,
        };
        match mode {
            SeekMode::Exact | SeekMode::AtOrAfter | SeekMode::Before => self.start_at(key, false),
            _ => match prefix_end(key) {
                Some(end) => self.start_at(&end, false),
                None if self.direction == Direction::Backward => self.start_at(&[], true),
                None => {
                    self.resume.end = true;
                    return Err(Error::NotFound);
                }
            },
        }
        self.start_open = self.direction == Direction::Backward;
        self.start_inclusive = mode == SeekMode::AtOrAfter && self.number == 0;
        let exact = matches!(mode, SeekMode::Exact | SeekMode::LastExact);
        let only = exact.then_some(key);
        let by_key = mode == SeekMode::Exact && unique_exact;
        if by_key && self.seek_cached(session, key)? {
            return self.current();
        }
        let filled = self.fill(session, only, unique_exact);
        if exact && filled == Err(Error::NotFound) {
            self.stand_between(key);
        }
        filled?;
        if exact && !self.current()?.key.starts_with(key) {
            self.stand_between(key);
            return Err(Error::NotFound);
        }
        self.current()
    }

    /// The key is not there: the cursor stands where it would be (HANDLER goes on from there).
    fn stand_between(&mut self, key: &[u8]) {
        self.clear_batch();
        self.start_at(key, false);
        self.between = true;
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn first(&mut self, session: &mut Session) -> Result<Row<'_>> {
        self.clear_batch();
        self.batch = FIRST_BATCH;
        self.direction = Direction::Forward;
        self.start_at(&[], false);
        self.fill(session, None, false)?;
        self.current()
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn last(&mut self, session: &mut Session) -> Result<Row<'_>> {
        self.clear_batch();
        self.batch = FIRST_BATCH;
        self.direction = Direction::Backward;
        self.start_at(&[], true);
        self.start_open = true;
        self.fill(session, None, false)?;
        self.current()
    }

    /// Moves to the next entry; `NotFound` at the end, where the cursor then stays.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[inline]
    pub fn next(&mut self, session: &mut Session) -> Result<Row<'_>> {
        if self.step_in_batch(session, Direction::Forward) {
            return self.current();
        }
        self.step(session, Direction::Forward, None)
    }

    /// Moves to the next entry if that starts with `key`, as the present one does. With locks the
    /// first that does not is not locked, but the gap before it is.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    pub fn next_same(&mut self, session: &mut Session, key: &[u8]) -> Result<Row<'_>> {
        self.step(session, Direction::Forward, Some(key))
    }

    /// Moves to the previous entry.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    #[inline]
    pub fn prev(&mut self, session: &mut Session) -> Result<Row<'_>> {
        if self.step_in_batch(session, Direction::Backward) {
            return self.current();
        }
        self.step(session, Direction::Backward, None)
    }

    /// Most steps of a scan: the next entry has been copied already.
    #[inline]
    fn step_in_batch(&mut self, session: &Session, direction: Direction) -> bool {
        let ready = !self.between
            && direction == self.direction
            && !self.was_semi_consistent()
            && !self.is_outdated(session)
            && self.at + 1 < self.items.len();
        self.at += usize::from(ready);
        ready
    }

    fn step(
        &mut self,
        session: &mut Session,
        direction: Direction,
        only: Option<&[u8]>,
    ) -> Result<Row<'_>> {
        if self.between {
            self.between = false;
            self.direction = direction;
        } else if direction != self.direction {
            self.turn(direction)?;
        } else if self.was_semi_consistent() {
            self.stand_before_semi();
        } else if self.step_in_batch(session, direction) {
            return self.current();
        } else if self.is_outdated(session) {
            self.leave_batch();
        }
        if self.resume.end {
            return Err(Error::NotFound);
        }
        self.clear_batch();
        self.batch = (self.batch * 4).clamp(FIRST_BATCH, LARGEST_BATCH);
        self.fill(session, only, false)?;
        self.current()
    }

    /// Has the session changed rows of the table since a batch was copied, entries of which are left? They may
    /// be of rows that it no longer sees, or sees with other values.
    #[inline]
    fn is_outdated(&self, session: &Session) -> bool {
        self.copied_at != session.row_changes.number(self.table.id())
            && self.mode == ReadMode::Snapshot
            && self.at < self.items.len()
    }

    /// The scan goes on behind the current entry, by its key. As long as the session goes on changing rows, few
    /// entries are copied at once.
    #[cold]
    fn leave_batch(&mut self) {
        let mut key = std::mem::take(&mut self.entry_key);
        key.clear();
        key.extend_from_slice(&self.data[self.items[self.at].key.clone()]);
        self.stop_beyond(&key);
        self.resume.end = false;
        self.is_beyond_leaf = false;
        self.entry_key = key;
        self.batch = 1;
    }

    /// The scan goes the other way from the current entry.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let item = self.items.get(self.at).ok_or(Error::NotFound)?;
        debug_assert!(direction != self.direction, "a scan turns to where it goes");
        let key = self.data[item.key.clone()].to_vec();
        self.start_at(&key, false);
        self.resume.exclusive = true;
        self.direction = direction;
        Ok(())
    }

    /// Gets the next entries into the batch; `NotFound` when there are none.
    fn fill(
        &mut self,
        session: &mut Session,
        only: Option<&[u8]>,
        unique_exact: bool,
    ) -> Result<()> {
        session.may_read(&self.table, self.number)?;
        match self.mode {
            ReadMode::Snapshot => {
                self.copied_at = session.row_changes.number(self.table.id());
                let result = self.fill_batch(session);
                session.snapshot_holds().and(result)
            }
            ReadMode::Shared => self.fill_locked_checked(session, Mode::Shared, only, unique_exact),
            ReadMode::Exclusive => {
                self.fill_locked_checked(session, Mode::Exclusive, only, unique_exact)
            }
        }
    }

    // ---- the clustered row -----------------------------------------------------------------

    /// The clustered row of the current entry of a secondary index, by the same snapshot or
    /// with the same kind of lock.
    ///
    /// # Errors
    /// `NotFound` when it is not visible (READ UNCOMMITTED, or deleted meanwhile).
    pub fn fetch_row(&mut self, session: &mut Session) -> Result<Row<'_>> {
        let pk = self.current()?.pk.to_vec();
        self.ahead_of_rows();
        let misses = misses_here();
        let got = self.get(session, &pk).map(drop);
        self.rows_ahead.fetched(misses_here() - misses);
        got?;
        Ok(self.clustered_row())
    }

    /// A row by its clustered key; the position stays.
    ///
    /// # Errors
    /// As [`Cursor::fetch_row`].
    pub fn get(&mut self, session: &mut Session, pk: &[u8]) -> Result<Row<'_>> {
        self.row.clear();
        self.row.extend_from_slice(pk);
        self.row_key_bytes = pk.len();
        // The lock to give back would be that of another row.
        self.fresh_lock = false;
        self.fresh_row = false;
        self.semi.call_begins();
        session.may_read(&self.table, 0)?;
        match self.mode {
            ReadMode::Snapshot => {
                let result = self.get_visible(session, pk);
                session.snapshot_holds().and(result)?;
            }
            ReadMode::Shared => {
                let got = self.get_locked(session, pk, Mode::Shared);
                session.after_locking(got)?;
            }
            ReadMode::Exclusive => {
                let got = self.get_locked(session, pk, Mode::Exclusive);
                session.after_locking(got)?;
            }
        }
        debug_assert!(self.row.starts_with(pk), "another row than was asked for");
        Ok(self.clustered_row())
    }

    fn clustered_row(&self) -> Row<'_> {
        let (key, payload) = self.row.split_at(self.row_key_bytes);
        let pk = key;
        Row { key, payload, pk }
    }
}

#[cfg(test)]
mod tests {
    use super::{prefix_end, Cursor, ReadMode, WaitMode};
    use crate::rows::write::DupInfo;
    use crate::testing::{create, open};
    use crate::Session;
    use ferrite_io::sim::SimStorage;
    use ferrite_types::Error;

    /// A deadlock's victim reads nothing and locks nothing until its transaction is ended.
    #[test]
    fn who_was_rolled_back_reads_no_row_by_its_key() {
        let engine = open(&SimStorage::new(8));
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let insert = |s: &mut Session, key: &[u8]| {
            s.insert_row(&t, Some(key), &[0], &[], false, &mut DupInfo::default())
        };
        insert(&mut s, b"k").unwrap();
        s.commit(false).unwrap();
        for mode in [ReadMode::Snapshot, ReadMode::Shared, ReadMode::Exclusive] {
            let mut cursor = Cursor::new(&t, 0, mode, WaitMode::Wait);
            insert(&mut s, b"n").unwrap();
            cursor.get(&mut s, b"n").unwrap();
            s.roll_back_as_victim();
            for key in [b"k", b"n"] {
                let got = cursor.get(&mut s, key).map(|_| ());
                assert_eq!(got, Err(Error::RolledBack), "{mode:?}");
            }
            assert_eq!(s.txn.owner.locks_held(), 0, "{mode:?}");
            s.rollback().unwrap();
            cursor.get(&mut s, b"k").unwrap();
            s.commit(false).unwrap();
        }
        drop(s);
        engine.close().unwrap();
    }

    #[test]
    fn prefix_ends() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
