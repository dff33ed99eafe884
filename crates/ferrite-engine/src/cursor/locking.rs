//! Locking reads: one entry at a time, locked before it is delivered.

use super::scan_locks::LeftBehind;
use super::to_stay::Refused;
use super::{prefix_end, Cursor, Direction, Item, ReadMode, WaitMode};
use crate::catalog::table::SUPREMUM;
use crate::state::slot::Isolation;
use crate::transaction::session::Session;
use ferrite_lock::{Attempt, LockRequest, Mode, Span};
use ferrite_sync::kill_point;
use ferrite_tree::{node, LeafRef, Tree};
use ferrite_types::{Error, IndexId, PageId, Result, TxnId};
use std::ops::Bound;

/// One call's way to the next entry.
struct LockedScan {
    mode: Mode,
    gaps: bool,
    /// The gaps behind the scan are locked as it goes on: a backward scan has its gaps behind it
    /// locked by the next-key locks it holds, and the one above its start by
    /// [`Cursor::close_start`].
    forward_gaps: bool,
    unique_exact: bool,
    /// The entry looked at.
    key: Vec<u8>,
    left: LeftBehind,
}

pub(super) enum Step<'t> {
    /// The leaf was let go: the scan looks for its place.
    Again,
    /// The entry is not wanted; the scan goes on at `resume.slot` of the leaf, still latched.
    Passed(LeafRef<'t>),
    /// The entry is locked and in the batch.
    Delivered,
    Nothing,
}

impl Cursor {
    /// Until [`Cursor::reset`] it locks the rows it finds and no gap, at any isolation level: for
    /// who has made sure in another way that no row is added (a cascade: whoever adds a child waits
    /// for the parent).
    pub fn lock_rows_only(&mut self) {
        debug_assert!(self.mode != ReadMode::Snapshot, "nothing is locked");
        debug_assert!(self.items.is_empty(), "a scan has begun");
        self.rows_only = true;
    }

    /// As [`Cursor::fill_locked`], for a transaction that must not miss a row which was deleted after
    /// its snapshot and is in the archive.
    pub(super) fn fill_locked_checked(
        &mut self,
        session: &mut Session,
        mode: Mode,
        only: Option<&[u8]>,
        unique_exact: bool,
    ) -> Result<()> {
        if self.number != 0 || !session.may_miss_deleted(&self.table)? {
            let result = self.fill_locked(session, mode, only, unique_exact);
            return session.after_locking(result);
        }
        let (start, exclusive, edge) = {
            let resume = &self.resume;
            (resume.key.clone(), resume.exclusive, resume.edge)
        };
        let result = self.fill_locked(session, mode, only, unique_exact);
        if !matches!(result, Ok(()) | Err(Error::NotFound)) {
            return session.after_locking(result);
        }
        let near = match self.direction {
            Direction::Backward if edge => Bound::Unbounded,
            Direction::Backward => Bound::Excluded(start.as_slice()),
            Direction::Forward if exclusive => Bound::Excluded(start.as_slice()),
            Direction::Forward => Bound::Included(start.as_slice()),
        };
        let end = only.and_then(prefix_end);
        let far = match (self.current(), self.direction) {
            (Ok(row), _) => Bound::Included(row.key),
            (Err(_), Direction::Forward) => {
                end.as_deref().map_or(Bound::Unbounded, Bound::Excluded)
            }
            (Err(_), Direction::Backward) => only.map_or(Bound::Unbounded, Bound::Included),
        };
        let bounds = match self.direction {
            Direction::Forward => (near, far),
            Direction::Backward => (far, near),
        };
        let checked = session.check_archived(&self.table, bounds);
        session.after_locking(checked).and(result)
    }

    /// One entry, locked. `only`: entries that do not start with it are not wanted; the gap
    /// before the first of them is locked instead.
    pub(super) fn fill_locked(
        &mut self,
        session: &mut Session,
        mode: Mode,
        only: Option<&[u8]>,
        unique_exact: bool,
    ) -> Result<()> {
        let table = self.table.clone();
        let tree = table.tree(self.number);
        let gaps = !self.rows_only && session.isolation >= Isolation::RepeatableRead;
        let mut scan = LockedScan {
            mode,
            gaps,
            forward_gaps: gaps && self.direction == Direction::Forward,
            unique_exact,
            key: std::mem::take(&mut self.entry_key),
            left: LeftBehind::default(),
        };
        let result = self.scan_locked(session, tree, only, &mut scan);
        if result.is_err() {
            // A scan that goes on all the same must not miss what came behind it.
            scan.left.go_back(&mut self.resume);
        }
        self.entry_key = scan.key;
        result
    }

    /// See [`LeftBehind::go_back_if_changed`]. What the scan has locked beyond those leaves stays a
    /// lock of its own then: on the way there are rows that it has not locked, and others may have.
    fn go_back_if_changed(&mut self, tree: &Tree, scan: &mut LockedScan) -> Result<bool> {
        let back = scan.left.go_back_if_changed(tree, &mut self.resume);
        if !matches!(back, Ok(false)) {
            self.fold.singles.clear();
        }
        back
    }

    fn scan_locked(
        &mut self,
        session: &mut Session,
        tree: &Tree,
        only: Option<&[u8]>,
        scan: &mut LockedScan,
    ) -> Result<()> {
        loop {
            let (leaf, slot) = self.place(tree)?;
            let Some(leaf) = self.close_start(session, tree, leaf, slot, scan)? else {
                continue;
            };
            match self.scan_leaf(session, tree, (leaf, slot), only, scan)? {
                Step::Again | Step::Passed(_) => {}
                Step::Delivered => return Ok(()),
                Step::Nothing => return Err(Error::NotFound),
            }
        }
    }

    /// Goes over the entries of a leaf from a slot on, as [`Cursor::place`] gives it, until
    /// one is delivered or the leaf has to be let go. What is passed over costs no search.
    fn scan_leaf<'t>(
        &mut self,
        session: &mut Session,
        tree: &'t Tree,
        (mut leaf, mut slot): (LeafRef<'t>, usize),
        only: Option<&[u8]>,
        scan: &mut LockedScan,
    ) -> Result<Step<'t>> {
        loop {
            let Some(at) = self.slot_in(&leaf, slot) else {
                return self.beyond_leaf(session, tree, leaf, scan);
            };
            scan.key.clear();
            node::key_into(&leaf, at, &mut scan.key);
            if !only.is_none_or(|o| scan.key.starts_with(o)) {
                return self.lock_end(session, tree, leaf, scan);
            }
            match self.lock_entry(session, tree, leaf, at, scan)? {
                Step::Passed(same) => (leaf, slot) = (same, self.resume.slot),
                step => return Ok(step),
            }
        }
    }

    /// A backward scan begins: the gap above its start is locked, under the latches of the leaf
    /// and of the one that has the entry above. Everything below is locked entry by entry, each
    /// with the gap before it. None: that entry's leaf had to be read in, look again.
    fn close_start<'t>(
        &mut self,
        session: &Session,
        tree: &Tree,
        leaf: LeafRef<'t>,
        slot: usize,
        scan: &LockedScan,
    ) -> Result<Option<LeafRef<'t>>> {
        if !self.start_open || !scan.gaps || ferrite_sync::mutant!("cursor.start_left_open") {
            return Ok(Some(leaf));
        }
        let (locks, owner) = (&session.engine.locks, &session.txn.owner);
        let locked = tree.with_successor(&leaf, slot, &mut self.work, |above| {
            let above = above.unwrap_or(&SUPREMUM);
            locks.try_lock(
                owner,
                LockRequest::new(tree.index(), above, scan.mode, Span::Gap),
            )
        });
        match locked {
            Ok(attempt) => {
                assert!(attempt?.is_granted(), "nothing stands in a gap lock's way");
                self.start_open = false;
                Ok(Some(leaf))
            }
            Err(page) => {
                drop(leaf);
                tree.load(page)?;
                Ok(None)
            }
        }
    }

    /// The scan has used up a leaf, perhaps the last one.
    fn beyond_leaf(
        &mut self,
        session: &mut Session,
        tree: &Tree,
        leaf: LeafRef<'_>,
        scan: &mut LockedScan,
    ) -> Result<Step<'static>> {
        if scan.forward_gaps {
            scan.left.note(&self.resume, &leaf);
        }
        let more = self.leave_leaf(&leaf);
        drop(leaf);
        kill_point!("cursor.leaf_left");
        if more {
            session.check_killed()?;
            return Ok(Step::Again);
        }
        if scan.forward_gaps {
            self.lock_gap(session, &SUPREMUM, scan.mode)?;
            if self.go_back_if_changed(tree, scan)? {
                return Ok(Step::Again);
            }
        }
        Ok(Step::Nothing)
    }

    /// The entry at `scan.key` is the first that is not wanted: the gap before it is.
    fn lock_end(
        &mut self,
        session: &mut Session,
        tree: &Tree,
        leaf: LeafRef<'_>,
        scan: &mut LockedScan,
    ) -> Result<Step<'static>> {
        if !scan.forward_gaps {
            return Ok(Step::Nothing);
        }
        // Under the latch: nothing comes between the look and the lock.
        let (index, mode, span) = (tree.index(), scan.mode, Span::Gap);
        let locks = &session.engine.locks;
        let granted = locks.try_lock(
            &session.txn.owner,
            LockRequest::new(index, &scan.key, mode, span),
        )?;
        drop(leaf);
        if !granted.is_granted() {
            session.wait_for_lock(LockRequest::new(index, &scan.key, mode, span))?;
            scan.left.go_back(&mut self.resume);
            return Ok(Step::Again);
        }
        if self.go_back_if_changed(tree, scan)? {
            return Ok(Step::Again);
        }
        Ok(Step::Nothing)
    }

    /// Locks the entry in a slot, whose key is `scan.key`, and delivers it if it is there.
    fn lock_entry<'t>(
        &mut self,
        session: &mut Session,
        tree: &Tree,
        leaf: LeafRef<'t>,
        at: usize,
        scan: &mut LockedScan,
    ) -> Result<Step<'t>> {
        let index = tree.index();
        let header = leaf.record(at).header;
        let alone = self.is_alone(scan, header.deleted);
        let span = if scan.gaps && !alone {
            Span::NextKey
        } else {
            Span::Record
        };
        let own = session.owns(header.txn);
        let foreign = !own && session.engine.txns.is_active(header.txn);
        let counts = self.number == 0 || (scan.mode == Mode::Exclusive && !header.deleted);
        if !foreign && counts && session.is_too_new(header.txn) {
            return Err(Error::RecordChanged);
        }
        let attempt = if foreign {
            Attempt::Blocked
        } else if own && span == Span::Record {
            Attempt::Held
        } else {
            self.try_entry(session, index, at, span, scan)?
        };
        if attempt == Attempt::Blocked {
            if self.reads_semi_consistent(session, scan.mode, scan.unique_exact, &scan.key) {
                if let Some(step) = self.read_committed(session, &leaf, at, &scan.key)? {
                    return Ok(step);
                }
            }
            if self.wait == WaitMode::SkipLocked {
                return Ok(self.skip(leaf, at, scan));
            }
            let holder = foreign.then_some(header.txn);
            return self.blocked(session, leaf, holder, span, scan);
        }
        self.fresh_lock = attempt.is_new() && span == Span::Record;
        if header.deleted {
            return self.pass_deleted(session, tree, leaf, at, alone, scan);
        }
        self.deliver(tree, leaf, at, scan)
    }

    /// The entry at `at` is locked and deleted: the scan goes on behind it.
    fn pass_deleted<'t>(
        &mut self,
        session: &Session,
        tree: &Tree,
        leaf: LeafRef<'t>,
        at: usize,
        alone: bool,
        scan: &mut LockedScan,
    ) -> Result<Step<'t>> {
        debug_assert!(leaf.record(at).header.deleted, "a live entry is passed");
        if self.fresh_lock && !scan.gaps {
            let locks = &session.engine.locks;
            locks.unlock(&session.txn.owner, tree.index(), &scan.key, scan.mode);
        }
        self.stop_at(&leaf, at);
        if !scan.left.pages.is_empty() {
            drop(leaf);
            self.go_back_if_changed(tree, scan)?;
            return Ok(Step::Again);
        }
        match alone && scan.unique_exact {
            true => Ok(Step::Nothing),
            false => Ok(Step::Passed(leaf)),
        }
    }

    /// The entry at `at` is locked: it goes into the batch.
    fn deliver<'t>(
        &mut self,
        tree: &Tree,
        leaf: LeafRef<'t>,
        at: usize,
        scan: &mut LockedScan,
    ) -> Result<Step<'t>> {
        debug_assert!(self.data.is_empty(), "one entry at a time");
        debug_assert_eq!(leaf.find(&scan.key), Ok(at), "another entry is locked");
        let value_from = scan.key.len();
        self.data.extend_from_slice(&scan.key);
        self.data.extend_from_slice(leaf.record(at).value);
        self.push_item(Item {
            key: 0..value_from,
            value: value_from..self.data.len(),
        });
        self.stop_at(&leaf, at);
        drop(leaf);
        if self.go_back_if_changed(tree, scan)? {
            self.clear_batch();
            return Ok(Step::Again);
        }
        Ok(Step::Delivered)
    }

    /// Is the entry locked without the gap before it? It is the one that can match, and stands for
    /// its key as long as it is there, deleted or not; when it is removed, the lock becomes one on
    /// the gap. As with InnoDB, a deleted entry of a unique secondary key does not: another row can
    /// have the same value, before it or behind it.
    fn is_alone(&self, scan: &LockedScan, deleted: bool) -> bool {
        let is_row = self.number == 0 && self.direction == Direction::Forward;
        debug_assert!(
            !scan.unique_exact || self.items.is_empty(),
            "one row has that key"
        );
        (scan.unique_exact && (is_row || !deleted)) || self.is_start(scan)
    }

    /// Is the entry the very primary key that a search "at or above" asked for? Nothing that is
    /// inserted before it is in the range, so that the gap stays open, as InnoDB's does.
    fn is_start(&self, scan: &LockedScan) -> bool {
        self.start_inclusive
            && !self.resume.exclusive
            && scan.left.pages.is_empty()
            && scan.key == self.resume.key
    }

    /// Asks for the lock on the entry in a slot. What a scan has passed is locked, and a long
    /// scan's locks are kept in a range. Backward, nothing can have come between the entry passed
    /// last, whose gap is locked, and this one. Forward that is so from the second entry of a leaf
    /// on.
    fn try_entry(
        &mut self,
        session: &Session,
        index: IndexId,
        at: usize,
        span: Span,
        scan: &LockedScan,
    ) -> Result<Attempt> {
        let (locks, owner, key) = (&session.engine.locks, &session.txn.owner, &scan.key);
        if !scan.gaps || span != Span::NextKey || self.wait == WaitMode::SkipLocked {
            return locks.try_lock(owner, LockRequest::new(index, key, scan.mode, span));
        }
        let fold = &mut self.fold;
        fold.taken = fold.taken.saturating_add(1);
        let leaf_begins = scan.forward_gaps && (at == 0 || !scan.left.pages.is_empty());
        if leaf_begins || !locks.folds(owner, fold.taken) {
            let attempt = locks.try_lock(owner, LockRequest::new(index, key, scan.mode, span))?;
            if attempt == Attempt::Granted {
                fold.singles.push(key);
            }
            return Ok(attempt);
        }
        let attempt = locks.try_lock_in_range(owner, index, key, scan.mode, &mut fold.range)?;
        let range = fold.range.filter(|_| attempt.is_granted());
        if let (Some(range), false) = (range, fold.singles.is_empty()) {
            locks.absorb(owner, index, scan.mode, range, fold.singles.iter());
            fold.singles.clear();
        }
        Ok(attempt)
    }

    /// Passes over an entry that is not free. The gap before it is not locked, so that what
    /// came at the end of the leaves that were left does not matter any more.
    fn skip<'t>(&mut self, leaf: LeafRef<'t>, at: usize, scan: &mut LockedScan) -> Step<'t> {
        scan.left.pages.clear();
        self.stop_at(&leaf, at);
        Step::Passed(leaf)
    }

    /// Waits for an entry that is not free, or fails at once.
    fn blocked(
        &mut self,
        session: &mut Session,
        leaf: LeafRef<'_>,
        holder: Option<TxnId>,
        span: Span,
        scan: &mut LockedScan,
    ) -> Result<Step<'static>> {
        if scan.forward_gaps {
            // Rows may come before the entry while we wait: the scan looks again from
            // the last entry that it has locked.
            self.resume.page = PageId::NONE;
            scan.left.go_back(&mut self.resume);
        } else {
            self.stand_before(&scan.key);
        }
        drop(leaf);
        self.wait_for_entry(session, holder, &scan.key, scan.mode, span)?;
        Ok(Step::Again)
    }

    /// The place to look at again after a wait: this entry itself.
    pub(super) fn stand_before(&mut self, key: &[u8]) {
        let resume = &mut self.resume;
        resume.page = PageId::NONE;
        resume.edge = false;
        resume.end = false;
        resume.exclusive = false;
        resume.key.clear();
        resume.key.extend_from_slice(key);
        if self.direction == Direction::Backward {
            // Backward looks below the key: below its successor is the entry itself.
            resume.key.push(0);
        }
    }

    fn wait_for_entry(
        &mut self,
        session: &mut Session,
        holder: Option<TxnId>,
        key: &[u8],
        mode: Mode,
        span: Span,
    ) -> Result<()> {
        if self.wait != WaitMode::Wait {
            return Err(self.refuse(session, key, Refused::new(self.number, holder, mode, span)));
        }
        let index = self.table.tree(self.number).index();
        session.wait_for_either(holder, LockRequest::new(index, key, mode, span))
    }

    pub(super) fn lock_gap(&self, session: &mut Session, key: &[u8], mode: Mode) -> Result<()> {
        let index = self.table.tree(self.number).index();
        let granted = session.engine.locks.try_lock(
            &session.txn.owner,
            LockRequest::new(index, key, mode, Span::Gap),
        )?;
        if !granted.is_granted() {
            session.wait_for_lock(LockRequest::new(index, key, mode, Span::Gap))?;
        }
        Ok(())
    }

    /// The row just delivered does not match: at READ COMMITTED and below its lock goes if it was
    /// new. A row that was fetched for a secondary entry keeps its locks, as in InnoDB.
    pub fn unlock_row(&mut self, session: &mut Session) {
        let semi = self.pass_semi();
        let entry = std::mem::take(&mut self.fresh_lock);
        let row = std::mem::take(&mut self.fresh_row);
        if semi || session.isolation > Isolation::ReadCommitted {
            return;
        }
        let item = self.items.get(self.at).filter(|_| entry);
        let key = match item {
            Some(item) => &self.data[item.key.clone()],
            None if row => &self.row[..self.row_key_bytes],
            None => return,
        };
        let index = self.table.tree(self.number).index();
        let mode = match self.mode {
            ReadMode::Exclusive => Mode::Exclusive,
            ReadMode::Shared | ReadMode::Snapshot => Mode::Shared,
        };
        session
            .engine
            .locks
            .unlock(&session.txn.owner, index, key, mode);
    }

    pub(super) fn get_locked(
        &mut self,
        session: &mut Session,
        pk: &[u8],
        mode: Mode,
    ) -> Result<()> {
        let table = self.table.clone();
        let tree = table.tree(0);
        let index = tree.index();
        loop {
            let leaf = tree.leaf(pk)?;
            let Ok(slot) = leaf.find(pk) else {
                drop(leaf);
                session.check_archived_key(&table, pk)?;
                return Err(Error::NotFound);
            };
            let rec = leaf.record(slot);
            let holder = rec.header.txn;
            let own = session.owns(holder);
            let foreign = !own && session.engine.txns.is_active(holder);
            if !foreign && session.is_too_new(holder) {
                return Err(Error::RecordChanged);
            }
            let locks = &session.engine.locks;
            let attempt = match (own, foreign) {
                (true, _) => Attempt::Held,
                (_, true) => Attempt::Blocked,
                _ => locks.try_lock(
                    &session.txn.owner,
                    LockRequest::new(index, pk, mode, Span::Record),
                )?,
            };
            if attempt.is_granted() {
                if rec.header.deleted {
                    return Err(Error::NotFound);
                }
                self.fresh_row = attempt.is_new() && self.number == 0;
                self.row.extend_from_slice(rec.value);
                return Ok(());
            }
            drop(leaf);
            let holder = foreign.then_some(holder);
            match self.wait {
                WaitMode::SkipLocked => return Err(Error::Skipped),
                WaitMode::NoWait => {
                    let refused = Refused::new(0, holder, mode, Span::Record);
                    return Err(self.refuse(session, pk, refused));
                }
                WaitMode::Wait => session
                    .wait_for_either(holder, LockRequest::new(index, pk, mode, Span::Record))?,
            }
        }
    }
}
