//! Changing one index entry: the same for clustered and secondary indexes.
//!
//! Each operation is a loop: latch the leaf, look at the entry, and either wait (after giving
//! the latch back) and look again, or make room and look again, or do it: version, log
//! record with undo, page.

use crate::catalog::table::{Table, SUPREMUM};
use crate::log_records::undo::{self, Prior, Undo};
use crate::maintenance::purge::Clean;
use crate::rows::overflow;
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::transaction::Phase;
use crate::transaction::session::{Hooks, Session};
use ferrite_lock::{Implicit, LockRequest, Mode, Span};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_tree::record::Header;
use ferrite_tree::{node, LeafMut};
use ferrite_txn::{diff, NewVersion};
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
}

/// How the entry in a slot stands towards a writer.
enum EntryConflict {
    /// Nobody else has to do with it.
    None,
    /// An active transaction made its present state.
    HeldBy(TxnId),
    /// Somebody has an explicit lock.
    Locked,
}

impl Session {
    fn conflict(&self, index: IndexId, key: &[u8], header: &Header) -> EntryConflict {
        let engine = &self.engine;
        let blind = ferrite_sync::mutant!("entry.ignore_holder");
        if !blind
            && header.txn != self.txn.id()
            && !header.txn.is_frozen()
            && engine.txns.is_active(header.txn)
        {
            return EntryConflict::HeldBy(header.txn);
        }
        let untouched = engine.locks.is_untouched(index, key);
        let change = LockRequest::new(index, key, Mode::Exclusive, Span::Record);
        if !untouched && engine.locks.conflicts(&self.txn.owner, change) {
            return EntryConflict::Locked;
        }
        EntryConflict::None
    }

    /// Has this transaction made an entry's present state? Then it holds the entry already.
    #[inline]
    pub(crate) fn owns(&self, txn: TxnId) -> bool {
        txn == self.txn.id() && !txn.is_frozen()
    }

    /// Waits until the entry may be free. No latch is held.
    fn wait_for(
        &mut self,
        conflict: &EntryConflict,
        index: IndexId,
        key: &[u8],
        mode: Mode,
    ) -> Result<()> {
        match *conflict {
            EntryConflict::None => Ok(()),
            EntryConflict::HeldBy(txn) => {
                debug_assert!(!self.owns(txn), "{txn} waits for itself");
                self.wait_for_holder(txn, LockRequest::new(index, key, mode, Span::Record))
            }
            EntryConflict::Locked => {
                self.wait_for_lock(LockRequest::new(index, key, mode, Span::Record))
            }
        }
    }

    /// Waits for the transaction whose id an entry bears, or, without one, for an explicit lock, and takes
    /// the lock.
    pub(crate) fn wait_for_either(
        &mut self,
        holder: Option<TxnId>,
        request: LockRequest<'_>,
    ) -> Result<()> {
        match holder {
            Some(txn) => self.wait_for_holder(txn, request),
            None => self.wait_for_lock(request),
        }
    }

    /// Waits for the transaction whose id an entry bears.
    pub(crate) fn wait_for_holder(&mut self, txn: TxnId, request: LockRequest<'_>) -> Result<()> {
        let engine = self.engine.clone();
        let Some(holder) = engine.txns.owner_of(txn) else {
            return Ok(());
        };
        let implicit = Implicit {
            holder: &holder,
            still_active: &|| engine.txns.is_active(txn),
        };
        let hooks = Hooks {
            engine: &engine,
            thd: self.thd,
        };
        let wait = self.wait_policy();
        let result =
            engine
                .locks
                .wait_for_implicit(&self.txn.owner, &implicit, request, wait, &hooks);
        self.after_wait(result)
    }

    /// Waits for an explicit lock and takes it.
    pub(crate) fn wait_for_lock(&mut self, request: LockRequest<'_>) -> Result<()> {
        let engine = self.engine.clone();
        let hooks = Hooks {
            engine: &engine,
            thd: self.thd,
        };
        let wait = self.wait_policy();
        let result = engine
            .locks
            .lock_wait(&self.txn.owner, request, wait, &hooks);
        self.after_wait(result.map(|_| ()))
    }

    /// A deadlock's victim is rolled back here and now, so that the others go on.
    pub(crate) fn after_wait(&mut self, result: Result<()>) -> Result<()> {
        if matches!(result, Err(Error::Deadlock)) {
            self.print_deadlock();
            self.roll_back_as_victim();
        }
        result
    }

    fn print_deadlock(&self) {
        let engine = &self.engine;
        if !engine.print_deadlocks.load(Ordering::Relaxed) {
            return;
        }
        if let Some(deadlock) = engine.locks.last_deadlock_of(self.thread_id) {
            let text = engine.deadlock_text(&deadlock);
            engine.callbacks.log(LogLevel::Note, &text);
        }
    }

    /// See the module `snapshot_isolation`. What others hold is waited for first.
    fn refuse_newer(&self, number: usize, held: bool, header: &Header) -> Result<()> {
        match number == 0 && !held && self.is_too_new(header.txn) {
            true => Err(Error::RecordChanged),
            false => Ok(()),
        }
    }

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
        check_size(key.len(), value.len())?;
        let tree = table.tree(number);
        let index = tree.index();
        let txn = self.writing()?;
        debug_assert!(self.owns(txn), "{txn} is not the session's");
        loop {
            let page = match number {
                0 => PageId::NONE,
                _ => tree.leaf_of(key)?,
            };
            if number > 0 && self.put_off(table, number, page, key, value) {
                return Ok(Inserted::Done);
            }
            let mut leaf = tree.leaf_mut(key, page)?;
            match leaf.find(key) {
                Ok(slot) => {
                    let header = leaf.record(slot).header;
                    let conflict = self.conflict(index, key, &header);
                    let held = matches!(conflict, EntryConflict::HeldBy(_));
                    self.refuse_newer(number, held, &header)?;
                    // Of a row in the way a shared lock will do: others may have one as well.
                    if !header.deleted && !held {
                        return Ok(Inserted::Occupied);
                    }
                    if !matches!(conflict, EntryConflict::None) {
                        let mode = if held { mode } else { Mode::Exclusive };
                        drop(leaf);
                        self.wait_for(&conflict, index, key, mode)?;
                        continue;
                    }
                    if self.change(table, number, leaf, slot, key, Next::live(value))? {
                        return Ok(Inserted::Done);
                    }
                }
                Err(slot) => {
                    match self.gap_check(&leaf, slot, index, key) {
                        GapCheck::Free => {}
                        GapCheck::Load(page) => {
                            drop(leaf);
                            drop(self.engine.pool.shared(page)?);
                            continue;
                        }
                        GapCheck::Wait(successor) => return Ok(Inserted::GapLocked(successor)),
                    }
                    let header = Header {
                        txn,
                        ..Header::default()
                    };
                    if !leaf.has_room(&header, key, value) {
                        self.make_room(table, number, leaf, key, value.len())?;
                        continue;
                    }
                    assert!(self.owns(header.txn), "an insert of {}", header.txn);
                    let undo = Undo::Insert { index, key };
                    self.logged(&undo, |prelude, scratch| {
                        leaf.insert(prelude, slot, &header, key, value, scratch)
                    });
                    debug_assert_eq!(leaf.find(key), Ok(slot), "an entry that is not found");
                    debug_assert!(holds(&leaf, slot, &header, value), "another entry");
                    return Ok(Inserted::Done);
                }
            }
        }
    }

    /// Waits until the gap before `successor` may be free.
    pub(crate) fn wait_for_gap(&mut self, index: IndexId, successor: &[u8]) -> Result<()> {
        self.wait_for_lock(LockRequest::new(
            index,
            successor,
            Mode::Exclusive,
            Span::InsertIntention,
        ))
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
        check_size(key.len(), value.len())?;
        self.change_live(table, number, (PageId::NONE, key), Some(value), &[])
    }

    /// Delete-marks a row's own entry. Returns who had made the state before.
    ///
    /// # Errors
    /// `NotFound` when there is no live entry of that key.
    pub(crate) fn delete_clustered(&mut self, table: &Arc<Table>, pk: &[u8]) -> Result<TxnId> {
        self.change_live(table, 0, (PageId::NONE, pk), None, &[])
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
        self.change_live(table, number, (page, key), None, &[])
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
        self.change_live(table, 0, (PageId::NONE, pk), None, payload)
    }

    /// `page`: where the leaf was found, or none. Values out of line that the entry's present state names
    /// become garbage, unless its next state or `moved` (a row payload) names them.
    fn change_live(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        (page, key): (PageId, &[u8]),
        value: Option<&[u8]>,
        moved: &[u8],
    ) -> Result<TxnId> {
        let tree = table.tree(number);
        let index = tree.index();
        self.writing_of(value.is_none())?;
        loop {
            let leaf = tree.leaf_mut(key, page)?;
            let Ok(slot) = leaf.find(key) else {
                return Err(Error::NotFound);
            };
            let page = leaf.page_id();
            let rec = leaf.record(slot);
            let made_by = rec.header.txn;
            let conflict = self.conflict(index, key, &rec.header);
            if !matches!(conflict, EntryConflict::None) {
                drop(leaf);
                self.wait_for(&conflict, index, key, Mode::Exclusive)?;
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
                Some(value) => self.change(table, number, leaf, slot, key, Next::live(value))?,
                None => {
                    let mut value = std::mem::take(&mut self.buffers.value);
                    value.clear();
                    value.extend_from_slice(rec.value);
                    let done = self.change(table, number, leaf, slot, key, Next::deleted(&value));
                    self.buffers.value = value;
                    done?
                }
            };
            if done {
                self.leave_values(table, at, gone);
                if value.is_none() {
                    self.leave_entry(page, table, number, key);
                }
                return Ok(made_by);
            }
        }
    }

    /// Gives the entry in `slot` a new state of this transaction. False: room was made,
    /// look again.
    fn change(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        mut leaf: LeafMut<'_>,
        slot: usize,
        key: &[u8],
        next: Next<'_>,
    ) -> Result<bool> {
        let Next { value, deleted } = next;
        let index = table.tree(number).index();
        let rec = leaf.record(slot);
        let now = rec.header;
        assert_eq!(self.txn.phase(), Phase::Active, "{}", self.txn.id());
        assert!(
            !(deleted && now.deleted),
            "index {index}: an entry is deleted a second time"
        );
        debug_assert_eq!(leaf.find(key), Ok(slot), "another entry is changed");
        debug_assert!(
            self.owns(now.txn) || !self.engine.txns.is_active(now.txn),
            "index {index}: {} changes what {} holds",
            self.txn.id(),
            now.txn
        );
        debug_assert!(
            !deleted || rec.value == value,
            "a deletion changes the value"
        );
        let (keep_head, keep_tail) = diff(rec.value, value);
        assert!(
            usize::from(keep_head) + usize::from(keep_tail) <= rec.value.len().min(value.len()),
            "{keep_head} + {keep_tail} bytes are kept of {} and {}",
            rec.value.len(),
            value.len()
        );
        // Room for the largest header, so that the version is made only when it will be used.
        let largest = Header {
            deleted,
            txn: self.txn.id(),
            version: VersionAddr::MAX,
        };
        if !leaf.can_replace(slot, &largest, value.len()) {
            self.make_room(table, number, leaf, key, value.len())?;
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
        debug_assert!(
            takes_back(&prior, value, rec.value),
            "undo of another value"
        );
        let version =
            self.engine
                .version_for_change(&now, self.txn.id(), index, rec.value, value, &prior)?;
        assert!(version <= largest.version, "version address {version}");
        debug_assert!(
            !version.is_none() || now.deleted || self.owns(now.txn),
            "index {index}: nobody could read the state before {}",
            self.txn.id()
        );
        let header = Header {
            deleted,
            txn: self.txn.id(),
            version,
        };
        let revives = now.deleted && !deleted && now.txn == self.txn.id();
        if revives && !ferrite_sync::mutant!("foreign.revival_forgotten") {
            self.txn.owner.revives();
        }
        let mut kept = std::mem::take(&mut self.buffers.mid);
        kept.clear();
        kept.extend_from_slice(mid);
        let undo = Undo::Update {
            index,
            key,
            prior: Prior {
                mid: &kept,
                ..prior
            },
        };
        let same = (keep_head, keep_tail);
        self.logged(&undo, |prelude, scratch| {
            leaf.replace(prelude, slot, &header, value, same, scratch)
        });
        debug_assert_eq!(leaf.find(key), Ok(slot), "the entry has moved");
        debug_assert!(holds(&leaf, slot, &header, value), "another state");
        self.buffers.mid = kept;
        if deleted && number > 0 {
            self.txn.marked.add(index, key);
        }
        Ok(true)
    }

    /// Room on the leaf: first by freezing and removing what nobody needs, else by a split.
    fn make_room(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        mut leaf: LeafMut<'_>,
        key: &[u8],
        value_bytes: usize,
    ) -> Result<()> {
        let need = node::room_for(key.len(), value_bytes);
        let scratch = &mut self.buffers.scratch;
        let clean = Clean {
            freeze: true,
            archive: false,
        };
        let slots = 0..leaf.count();
        let (freed, _) = self
            .engine
            .clean_leaf(table, number, &mut leaf, slots, scratch, clean);
        let enough = freed > 0 && node::has_room(&leaf, need);
        drop(leaf);
        if enough {
            return Ok(());
        }
        table.tree(number).check_page_ids()?;
        table.tree(number).make_room(key, need, undo::NO_UNDO)
    }

    /// May a new key go before what follows `slot`? The leaf stays latched.
    #[inline]
    fn gap_check(
        &mut self,
        leaf: &LeafMut<'_>,
        slot: usize,
        index: IndexId,
        key: &[u8],
    ) -> GapCheck {
        let (locks, owner) = (&self.engine.locks, &self.txn.owner);
        if !locks.has_gap_locks(index) || ferrite_sync::mutant!("entry.insert_ignores_gaps") {
            return GapCheck::Free;
        }
        let (mode, span) = (Mode::Exclusive, Span::InsertIntention);
        let checked = leaf.with_successor(slot, &mut self.buffers.key, |successor| {
            let successor = successor.unwrap_or(&SUPREMUM);
            debug_assert!(*key < *successor, "another gap is asked about");
            if locks.conflicts(owner, LockRequest::new(index, successor, mode, span)) {
                return GapCheck::Wait(successor.to_vec());
            }
            locks.inherit_gap(index, successor, key);
            GapCheck::Free
        });
        // The neighbour must be read in without our latch.
        checked.unwrap_or_else(GapCheck::Load)
    }
}

enum GapCheck {
    Free,
    Wait(Vec<u8>),
    Load(PageId),
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

/// Does an entry of that size fit a leaf?
pub(crate) fn check_size(key_bytes: usize, value_bytes: usize) -> Result<()> {
    if key_bytes > node::MAX_KEY_BYTES {
        return Err(Error::KeyTooLong);
    }
    if key_bytes + value_bytes > node::MAX_RECORD_BYTES {
        return Err(Error::RowTooBig);
    }
    Ok(())
}

impl Engine {
    /// Keeps the present state for those who need it and returns the new header's version
    /// address. A second change by the same transaction needs no version of its own, since
    /// nobody sees between; but the one that is there is told from the new value on.
    pub(crate) fn version_for_change(
        &self,
        now: &Header,
        txn: TxnId,
        index: IndexId,
        value: &[u8],
        new_value: &[u8],
        prior: &Prior<'_>,
    ) -> Result<VersionAddr> {
        debug_assert!(!txn.is_frozen(), "a change of no transaction");
        if now.txn == txn {
            return self.rebase(now.version, value, new_value);
        }
        let settled = now.txn.is_frozen() || self.txns.visible_to_all(now.txn);
        if (settled && now.deleted)
            || (ferrite_sync::mutant!("entry.forget_version") && self.txns.last_csn().0 % 8 == 0)
        {
            // For everybody the row was not there: no version says that, too.
            return Ok(VersionAddr::NONE);
        }
        let next = if settled {
            self.versions.count_single();
            VersionAddr::NONE
        } else {
            self.prune_chain(now, value)
        };
        debug_assert!(
            next.is_none() || !now.version.is_none(),
            "a chain out of nothing"
        );
        let version = NewVersion {
            begin: now.txn,
            end: txn,
            next,
            flags: u8::from(now.deleted),
            keep_head: prior.keep_head,
            keep_tail: prior.keep_tail,
            body: prior.mid,
            index,
        };
        Ok(self.versions.add(version))
    }

    /// Drops the versions behind `now` that no snapshot needs; returns where the rest begins.
    /// The caller holds the leaf exclusively and will put the present state in front.
    fn prune_chain(&self, now: &Header, value: &[u8]) -> VersionAddr {
        let walk = self.versions.walk();
        let (start, pruned) = walk.prune_for_update(&self.txns, now.version, value);
        self.versions.count_chain(&pruned);
        start
    }

    /// The version at `addr`, told as a difference to `to` instead of `from`.
    pub(crate) fn rebase(&self, addr: VersionAddr, from: &[u8], to: &[u8]) -> Result<VersionAddr> {
        if addr.is_none() || from == to {
            return Ok(addr);
        }
        let walk = self.versions.walk();
        walk.rebase(addr, from, to)
    }

    /// Where the chain goes on after a version.
    pub(crate) fn next_version(&self, addr: VersionAddr) -> Result<VersionAddr> {
        assert!(!addr.is_none(), "no version has no next");
        let mut body = Vec::new();
        let head = self.versions.read(addr, &mut body)?;
        Ok(head.map_or(VersionAddr::NONE, |head| head.next))
    }

    /// Explicit locks on the key in `slot`, which is about to go, become gap locks on the one that
    /// follows. The leaf stays latched.
    ///
    /// # Errors
    /// The neighbouring page that must be read in first, without the leaf's latch. Nothing was
    /// moved.
    pub(crate) fn move_locks_off(
        &self,
        leaf: &LeafMut<'_>,
        slot: usize,
        index: IndexId,
        key: &[u8],
    ) -> std::result::Result<(), PageId> {
        leaf.with_successor(slot + 1, &mut Vec::new(), |successor| {
            let successor = successor.unwrap_or(&SUPREMUM);
            debug_assert!(*key < *successor, "locks move to another gap");
            self.locks.inherit_removed(index, key, successor);
        })
    }
}
