//! Reading an index: seek, next, previous.
//!
//! A consistent read copies a batch of visible entries out of a leaf under one latch, small
//! at first and growing with the scan; the server works on the copy. A locking read takes one
//! entry at a time. No latch is held when a call returns.
//!
//! A cursor remembers the page, its version (LSN) and the slot it stopped at; if the page is
//! unchanged it goes on there, else it finds its place by key.

use crate::engine::Engine;
use crate::entry::SUPREMUM;
use crate::session::{Isolation, Session};
use crate::table::Table;
use crate::visible::View;
use crate::write::ENTRY_PREFIX_BYTES;
use ferrite_lock::{Attempt, Mode, Span};
use ferrite_sync::Arc;
use ferrite_tree::record::Record;
use ferrite_tree::{node, LeafRef};
use ferrite_types::{Error, Lsn, PageId, Result, TxnId};
use std::ops::Range;

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

/// Where the scan goes on when the batch is used up.
struct Resume {
    /// Forward: entries at or after (see `exclusive`); backward: entries below.
    key: Vec<u8>,
    /// The key itself was delivered (forward only).
    exclusive: bool,
    /// No key: from the edge of the tree.
    edge: bool,
    /// Nothing is left.
    end: bool,
    page: PageId,
    lsn: Lsn,
    slot: usize,
}

/// A position in one index.
pub struct Cursor {
    table: Arc<Table>,
    number: usize,
    mode: ReadMode,
    wait: WaitMode,
    direction: Direction,
    data: Vec<u8>,
    items: Vec<Item>,
    at: usize,
    batch: usize,
    resume: Resume,
    bound: Option<Vec<u8>>,
    row: Vec<u8>,
    work: Vec<u8>,
    /// The last lock taken is new: it may be given back.
    fresh_lock: bool,
    /// No current row: the cursor stands before `resume.key`.
    between: bool,
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
            direction: Direction::Forward,
            data: Vec::new(),
            items: Vec::new(),
            at: 0,
            batch: FIRST_BATCH,
            resume: Resume {
                key: Vec::new(),
                exclusive: false,
                edge: true,
                end: true,
                page: PageId::NONE,
                lsn: Lsn::ZERO,
                slot: 0,
            },
            bound: None,
            row: Vec::new(),
            work: Vec::new(),
            fresh_lock: false,
            between: false,
        }
    }

    /// Ready for another statement; the position is lost.
    pub fn reset(&mut self, mode: ReadMode, wait: WaitMode) {
        self.mode = mode;
        self.wait = wait;
        self.clear_batch();
        self.resume.end = true;
        self.bound = None;
    }

    /// Do not read ahead beyond this key (a hint).
    pub fn set_bound(&mut self, bound: Option<&[u8]>) {
        self.bound = bound.map(<[u8]>::to_vec);
    }

    fn clear_batch(&mut self) {
        self.data.clear();
        self.items.clear();
        self.at = 0;
        self.fresh_lock = false;
        self.between = false;
    }

    /// The row the cursor stands on.
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
        let (head, payload) = value
            .split_at_checked(ENTRY_PREFIX_BYTES)
            .ok_or_else(|| self.broken_entry())?;
        let declared = u16::from_le_bytes([head[0], head[1]]) as usize;
        let pk = key.get(declared..).ok_or_else(|| self.broken_entry())?;
        Ok(Row { key, payload, pk })
    }

    fn broken_entry(&self) -> Error {
        Error::Corrupt(format!(
            "table {} index {}: an entry without its primary key",
            self.table.id(),
            self.number
        ))
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
        let (direction, start) = match mode {
            SeekMode::Exact | SeekMode::AtOrAfter => (Direction::Forward, Some(key.to_vec())),
            SeekMode::After => (Direction::Forward, prefix_end(key)),
            SeekMode::Before => (Direction::Backward, Some(key.to_vec())),
            SeekMode::AtOrBefore | SeekMode::LastExact => (Direction::Backward, prefix_end(key)),
        };
        self.direction = direction;
        let edge = start.is_none();
        if edge && direction == Direction::Forward {
            self.resume.end = true;
            return Err(Error::NotFound);
        }
        self.start_at(start.unwrap_or_default(), edge);
        let exact = matches!(mode, SeekMode::Exact | SeekMode::LastExact);
        let only = exact.then_some(key);
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
        self.start_at(key.to_vec(), false);
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
        self.start_at(Vec::new(), false);
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
        self.start_at(Vec::new(), true);
        self.fill(session, None, false)?;
        self.current()
    }

    /// Moves to the next entry; `NotFound` at the end, where the cursor then stays.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn next(&mut self, session: &mut Session) -> Result<Row<'_>> {
        self.step(session, Direction::Forward)
    }

    /// Moves to the previous entry.
    ///
    /// # Errors
    /// As [`Cursor::seek`].
    pub fn prev(&mut self, session: &mut Session) -> Result<Row<'_>> {
        self.step(session, Direction::Backward)
    }

    fn step(&mut self, session: &mut Session, direction: Direction) -> Result<Row<'_>> {
        if self.between {
            self.between = false;
            self.direction = direction;
        } else if direction != self.direction {
            self.turn(direction)?;
        } else if self.at + 1 < self.items.len() {
            self.at += 1;
            return self.current();
        }
        if self.resume.end {
            return Err(Error::NotFound);
        }
        self.clear_batch();
        self.batch = (self.batch * 4).clamp(FIRST_BATCH, LARGEST_BATCH);
        self.fill(session, None, false)?;
        self.current()
    }

    /// The scan goes the other way from the current entry.
    fn turn(&mut self, direction: Direction) -> Result<()> {
        let item = self.items.get(self.at).ok_or(Error::NotFound)?;
        let key = self.data[item.key.clone()].to_vec();
        self.start_at(key, false);
        self.resume.exclusive = true;
        self.direction = direction;
        Ok(())
    }

    fn start_at(&mut self, key: Vec<u8>, edge: bool) {
        self.resume = Resume {
            key,
            exclusive: false,
            edge,
            end: false,
            page: PageId::NONE,
            lsn: Lsn::ZERO,
            slot: 0,
        };
    }

    /// Gets the next entries into the batch; `NotFound` when there are none.
    fn fill(
        &mut self,
        session: &mut Session,
        only: Option<&[u8]>,
        unique_exact: bool,
    ) -> Result<()> {
        if session.rolled_back {
            return Err(Error::RolledBack);
        }
        match self.mode {
            ReadMode::Snapshot => self.fill_batch(session),
            ReadMode::Shared => self.fill_locked(session, Mode::Shared, only, unique_exact),
            ReadMode::Exclusive => self.fill_locked(session, Mode::Exclusive, only, unique_exact),
        }
    }

    // ---- finding the place -----------------------------------------------------------------

    /// The leaf to go on at and the slot: forward the next to look at, backward one above it.
    fn place<'t>(&self, tree: &'t ferrite_tree::Tree) -> Result<(LeafRef<'t>, usize)> {
        let resume = &self.resume;
        if resume.page != PageId::NONE {
            if let Some(leaf) = tree.leaf_if_unchanged(resume.page, resume.lsn)? {
                return Ok((leaf, resume.slot));
            }
        }
        match self.direction {
            Direction::Forward => {
                let leaf = tree.leaf_with_hint(&resume.key, PageId::NONE)?;
                let slot = match leaf.find(&resume.key) {
                    Ok(slot) => slot + usize::from(resume.exclusive),
                    Err(slot) => slot,
                };
                Ok((leaf, slot))
            }
            Direction::Backward if resume.edge => {
                let leaf = tree.leaf_below(None)?;
                let slot = leaf.count();
                Ok((leaf, slot))
            }
            Direction::Backward => {
                let leaf = tree.leaf_below(Some(&resume.key))?;
                let slot = leaf.find(&resume.key).unwrap_or_else(|slot| slot);
                Ok((leaf, slot))
            }
        }
    }

    /// The leaf is used up: the scan goes on beyond its fence. False: there is nothing.
    fn leave_leaf(&mut self, leaf: &LeafRef<'_>) -> bool {
        let resume = &mut self.resume;
        resume.page = PageId::NONE;
        resume.exclusive = false;
        resume.edge = false;
        resume.key.clear();
        match self.direction {
            Direction::Forward => match node::high(leaf) {
                Some(high) => resume.key.extend_from_slice(high),
                None => resume.end = true,
            },
            Direction::Backward => {
                resume.key.extend_from_slice(node::low(leaf));
                resume.end = resume.key.is_empty();
            }
        }
        !resume.end
    }

    /// Remembers where the batch ended: after (before) the entry in `slot`.
    fn stop_at(&mut self, leaf: &LeafRef<'_>, slot: usize) {
        let resume = &mut self.resume;
        resume.key.clear();
        node::key_into(leaf, slot, &mut resume.key);
        resume.exclusive = true;
        resume.edge = false;
        resume.page = leaf.page_id();
        resume.lsn = leaf.lsn();
        resume.slot = match self.direction {
            Direction::Forward => slot + 1,
            Direction::Backward => slot,
        };
    }

    fn slot_in(&self, leaf: &LeafRef<'_>, slot: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => (slot < leaf.count()).then_some(slot),
            Direction::Backward => slot.checked_sub(1),
        }
    }

    fn after(&self, slot: usize) -> usize {
        match self.direction {
            Direction::Forward => slot + 1,
            Direction::Backward => slot,
        }
    }

    // ---- consistent reads ------------------------------------------------------------------

    fn fill_batch(&mut self, session: &mut Session) -> Result<()> {
        let own = session.txn;
        let engine = session.engine.clone();
        let dirty = session.isolation == Isolation::ReadUncommitted;
        if !dirty {
            let long = session.isolation >= Isolation::RepeatableRead;
            let expired = session.need_snapshot(long).is_expired();
            if expired {
                return Err(Error::SnapshotTooOld);
            }
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
    fn copy_visible(
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
    fn entry_view<'s>(
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

    fn beyond_bound(&self, key: Range<usize>) -> bool {
        let Some(bound) = &self.bound else {
            return false;
        };
        match self.direction {
            Direction::Forward => self.data[key] >= bound[..],
            Direction::Backward => self.data[key] < bound[..],
        }
    }

    // ---- locking reads ---------------------------------------------------------------------

    /// One entry, locked. `only`: entries that do not start with it are not wanted; the gap
    /// before the first of them is locked instead.
    fn fill_locked(
        &mut self,
        session: &mut Session,
        mode: Mode,
        only: Option<&[u8]>,
        unique_exact: bool,
    ) -> Result<()> {
        let table = self.table.clone();
        let tree = table.tree(self.number);
        let index = tree.index();
        let gaps = session.isolation >= Isolation::RepeatableRead;
        let mut key = Vec::new();
        loop {
            let (leaf, slot) = self.place(tree)?;
            let Some(at) = self.slot_in(&leaf, slot) else {
                if self.leave_leaf(&leaf) {
                    continue;
                }
                drop(leaf);
                if gaps && self.direction == Direction::Forward {
                    self.lock_gap(session, &SUPREMUM, mode)?;
                }
                return Err(Error::NotFound);
            };
            key.clear();
            node::key_into(&leaf, at, &mut key);
            let wanted = only.is_none_or(|o| key.starts_with(o));
            if !wanted {
                drop(leaf);
                if gaps && self.direction == Direction::Forward {
                    self.lock_gap(session, &key, mode)?;
                }
                return Err(Error::NotFound);
            }
            let header = leaf.record(at).header;
            let whole_row = unique_exact && !header.deleted;
            let span = if gaps && !whole_row {
                Span::NextKey
            } else {
                Span::Record
            };
            let foreign = header.txn != session.txn && session.engine.txns.is_active(header.txn);
            let attempt = if foreign {
                Attempt::Blocked
            } else {
                session
                    .engine
                    .locks
                    .try_lock(&session.owner, index, &key, mode, span)?
            };
            if attempt == Attempt::Blocked {
                self.stop_before(&leaf, at, &key);
                drop(leaf);
                let holder = foreign.then_some(header.txn);
                if !self.wait_or_skip(session, holder, &key, mode, span)? {
                    self.pass(&key);
                }
                continue;
            }
            self.fresh_lock = attempt == Attempt::Granted && span == Span::Record;
            if header.deleted {
                if self.fresh_lock {
                    session.engine.locks.unlock(&session.owner, index, &key);
                }
                self.stop_at(&leaf, at);
                continue;
            }
            let value_from = key.len();
            self.data.extend_from_slice(&key);
            self.data.extend_from_slice(leaf.record(at).value);
            self.items.push(Item {
                key: 0..value_from,
                value: value_from..self.data.len(),
            });
            self.stop_at(&leaf, at);
            return Ok(());
        }
    }

    /// The place to look at again after a wait: this entry itself.
    fn stop_before(&mut self, leaf: &LeafRef<'_>, at: usize, key: &[u8]) {
        self.stop_at(leaf, at);
        self.resume.page = PageId::NONE;
        match self.direction {
            Direction::Forward => self.resume.exclusive = false,
            // Backward looks below the key: below its successor is the entry itself.
            Direction::Backward => {
                self.resume.key.clear();
                self.resume.key.extend_from_slice(key);
                self.resume.key.push(0);
            }
        }
    }

    /// The scan goes on beyond an entry it skips.
    fn pass(&mut self, key: &[u8]) {
        self.resume.page = PageId::NONE;
        self.resume.key.clear();
        self.resume.key.extend_from_slice(key);
        self.resume.exclusive = true;
    }

    /// True: look again. False: pass over the entry.
    fn wait_or_skip(
        &self,
        session: &mut Session,
        holder: Option<TxnId>,
        key: &[u8],
        mode: Mode,
        span: Span,
    ) -> Result<bool> {
        match self.wait {
            WaitMode::SkipLocked => return Ok(false),
            WaitMode::NoWait => return Err(Error::LockTimeout),
            WaitMode::Wait => {}
        }
        let index = self.table.tree(self.number).index();
        match holder {
            Some(txn) => session.wait_for_holder(txn, index, key, mode, span)?,
            None => session.wait_for_lock(index, key, mode, span)?,
        }
        Ok(true)
    }

    fn lock_gap(&self, session: &mut Session, key: &[u8], mode: Mode) -> Result<()> {
        let index = self.table.tree(self.number).index();
        let granted = session
            .engine
            .locks
            .try_lock(&session.owner, index, key, mode, Span::Gap)?;
        if !granted.is_granted() {
            session.wait_for_lock(index, key, mode, Span::Gap)?;
        }
        Ok(())
    }

    /// The row just delivered does not match: its lock goes if it was new.
    pub fn unlock_row(&mut self, session: &mut Session) {
        if !self.fresh_lock {
            return;
        }
        self.fresh_lock = false;
        if let Some(item) = self.items.get(self.at) {
            let index = self.table.tree(self.number).index();
            let key = &self.data[item.key.clone()];
            session.engine.locks.unlock(&session.owner, index, key);
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
        self.get(session, &pk)
    }

    /// A row by its clustered key; the position stays.
    ///
    /// # Errors
    /// As [`Cursor::fetch_row`].
    pub fn get(&mut self, session: &mut Session, pk: &[u8]) -> Result<Row<'_>> {
        self.row.clear();
        self.row.extend_from_slice(pk);
        match self.mode {
            ReadMode::Snapshot => self.get_visible(session, pk)?,
            ReadMode::Shared => self.get_locked(session, pk, Mode::Shared)?,
            ReadMode::Exclusive => self.get_locked(session, pk, Mode::Exclusive)?,
        }
        let (key, payload) = self.row.split_at(pk.len());
        Ok(Row {
            key,
            payload,
            pk: key,
        })
    }

    fn get_visible(&mut self, session: &mut Session, pk: &[u8]) -> Result<()> {
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

    fn get_locked(&mut self, session: &mut Session, pk: &[u8], mode: Mode) -> Result<()> {
        let table = self.table.clone();
        let tree = table.tree(0);
        let index = tree.index();
        loop {
            let leaf = tree.leaf(pk)?;
            let slot = leaf.find(pk).map_err(|_| Error::NotFound)?;
            let rec = leaf.record(slot);
            let holder = rec.header.txn;
            let foreign = holder != session.txn && session.engine.txns.is_active(holder);
            let locks = &session.engine.locks;
            let granted = !foreign
                && locks
                    .try_lock(&session.owner, index, pk, mode, Span::Record)?
                    .is_granted();
            if granted {
                if rec.header.deleted {
                    return Err(Error::NotFound);
                }
                self.row.extend_from_slice(rec.value);
                return Ok(());
            }
            drop(leaf);
            match self.wait {
                WaitMode::SkipLocked => return Err(Error::Skipped),
                WaitMode::NoWait => return Err(Error::LockTimeout),
                WaitMode::Wait if foreign => {
                    session.wait_for_holder(holder, index, pk, mode, Span::Record)?;
                }
                WaitMode::Wait => session.wait_for_lock(index, pk, mode, Span::Record)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::prefix_end;

    #[test]
    fn prefix_ends() {
        assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(prefix_end(b"a\xff"), Some(b"b".to_vec()));
        assert_eq!(prefix_end(b"\xff\xff"), None);
        assert_eq!(prefix_end(b""), None);
    }
}
