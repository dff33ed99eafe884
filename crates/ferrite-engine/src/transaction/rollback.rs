//! Taking changes back: the undo list is read backwards, each entry undone by a change of its
//! own, whose log record says how much of the list is left. A crash in the middle goes on
//! from there.

use crate::catalog::table::Table;
use crate::log_records::ends::rollback_body;
use crate::log_records::undo::{self, Prior, Undo};
use crate::state::engine::Engine;
use crate::state::slot::{SlotState, TxnSlot};
use crate::state::throttle::Eased;
use crate::state::transaction::{Phase, Transaction};
use crate::transaction::session::Session;
use crate::transaction::undo_ahead::UndoAhead;
use ferrite_buffer::misses_here;
use ferrite_sync::kill_point;
use ferrite_tree::op::KeptChange;
use ferrite_tree::record::Header;
use ferrite_tree::{node, KeptLeaf, Scratch, Tree};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, TxnId, UndoPosition, VersionAddr};

/// Buffers of a rollback.
#[derive(Default)]
struct Work {
    entry: Vec<u8>,
    prelude: Vec<u8>,
    value: Vec<u8>,
    scratch: Scratch,
    stale: bool,
}

/// Reads of a leaf that is found damaged while others read it, until that is an error.
const TRIES: usize = 1000;

/// Whose changes are taken back.
#[derive(Clone, Copy)]
pub(crate) struct Undoes {
    /// The version addresses in its rows are of an earlier life and mean nothing.
    stale: bool,
    /// A stop ends it half way: the next start goes on.
    may_stop: bool,
}

impl Undoes {
    /// Of a transaction of this life, or of one that was decided by its name once it had its versions again.
    pub(crate) const OF_SESSION: Undoes = Undoes {
        stale: false,
        may_stop: false,
    };

    /// Of one from before the restart.
    pub(crate) fn of_before(has_versions: bool) -> Undoes {
        Undoes {
            stale: !has_versions,
            may_stop: true,
        }
    }
}

/// How it went to take a change back without its leaf.
enum TakenBack {
    Done,
    NotKept,
    /// Somebody else reads the leaf just now.
    TryAgain,
}

/// An entry of an undo list that is being taken back.
#[derive(Clone, Copy)]
struct Undoing<'a> {
    slot: &'a TxnSlot,
    txn: TxnId,
    /// What is left of the list afterwards.
    left: UndoPosition,
}

impl Transaction {
    /// Undoes everything and ends the transaction; returns where its ROLLBACK_END record ends, which
    /// is in the log buffer.
    ///
    /// # Errors
    /// A page that cannot be read: it stays as far as it got, with its locks, and can be rolled back
    /// again.
    pub(crate) fn roll_back(&mut self, engine: &Engine, of: Undoes) -> Result<Lsn> {
        self.begin_rollback();
        // The log keeps room for no commit of it: the rollback itself needs that.
        self.owes_nothing(engine);
        if let Err(e) = self.undo_to(engine, UndoPosition::START, of) {
            self.stay_half_way(engine, &e);
            return Err(e);
        }
        let mut state = self.slot.state.lock();
        assert_eq!(state.txn, self.id(), "the slot is of another transaction");
        assert_eq!(
            state.undo.position(),
            UndoPosition::START,
            "changes are left"
        );
        let body = rollback_body(state.txn);
        let at = engine.log.append(record_kind::ROLLBACK_END, &[&body]);
        assert!(
            self.last_change <= at.start && at.start < at.end,
            "{}: rolled back at {at:?}, changed at {}",
            self.id(),
            self.last_change
        );
        state.end(&engine.undo_area);
        drop(state);
        engine.txns.rolled_back(self.id());
        self.release(engine);
        Ok(at.end)
    }

    /// It stays as far as it got. If it was prepared, nothing but the rest of its rollback is left of it now, which the log
    /// has to say before anybody acts on it, although perhaps no change was taken back: DDL waits for it no more, and may
    /// take what it needs. The record is that of a change taken back, which takes none back (`decide_at_start`). If we die
    /// before it is durable, nobody was answered, and it is prepared again or not as the log has it. At a stop the next
    /// start goes by what was taken back.
    fn stay_half_way(&mut self, engine: &Engine, failed: &Error) {
        debug_assert_eq!(self.phase(), Phase::RollingBack, "{failed}");
        if *failed == Error::Interrupted {
            return;
        }
        let mut state = self.slot.state.lock();
        assert_eq!(state.txn, self.id(), "the slot is of another transaction");
        if !state.is_prepared() {
            return;
        }
        let mut body = Vec::new();
        undo::encode_undone_header(state.txn, state.undo.position(), &mut body);
        let end = engine.log.append(record_kind::MINI_TXN, &[&body]).end;
        state.decide_rollback();
        drop(state);
        kill_point!("rollback.word_logged");
        engine.log.flush_to(end);
        debug_assert!(engine.log.durable_lsn() >= end, "DDL goes on too early");
    }

    fn undo_to(&mut self, engine: &Engine, position: UndoPosition, of: Undoes) -> Result<()> {
        assert!(!self.id().is_frozen(), "no transaction is undone");
        // Either all of it is undone or it can only be rolled back. The log keeps no room any more for its values.
        self.garbage_undone_to(engine, position);
        if let Err(e) = engine.undo_to(&self.slot, self.id(), position, of) {
            self.begin_rollback();
            return Err(e);
        }
        debug_assert!(self.undo_position() <= position, "changes are left");
        Ok(())
    }
}

impl Session {
    /// Rolls the whole transaction back and ends it.
    ///
    /// # Errors
    /// A page that cannot be read, or `Interrupted` by a shutdown while pages cannot be written: the
    /// transaction stays as far as it got, with its locks. `Bug`: it is committed.
    pub fn rollback(&mut self) -> Result<()> {
        match self.txn.phase() {
            Phase::Ordered(_) => {
                return Err(Error::Bug("a committed transaction is rolled back".into()))
            }
            Phase::Idle | Phase::Aborted => self.release_and_reset(),
            Phase::Active | Phase::Prepared | Phase::RollingBack => self.rollback_changes()?,
        }
        Ok(())
    }

    fn rollback_changes(&mut self) -> Result<()> {
        let was_prepared = self.txn.slot.state.lock().is_prepared();
        let (txn, engine) = (&mut self.txn, &self.engine);
        // A session without an end of its transaction would be no better off.
        let end = ferrite_buffer::patiently(|| txn.roll_back(engine, Undoes::OF_SESSION))?;
        debug_assert!(!txn.is_active(), "something is left of a rollback");
        engine.counters.rollbacks.inc();
        self.forget_statement();
        // A prepared transaction is on disk: a crash must not bring back what was answered.
        if was_prepared && !ferrite_sync::mutant!("rollback.prepared_not_durable") {
            self.engine.log.flush_to(end);
            debug_assert!(self.engine.log.durable_lsn() >= end, "answered too early");
        }
        Ok(())
    }

    /// This transaction gives way in a deadlock: its changes and locks go now; the session
    /// refuses everything until the server ends the transaction. If its changes cannot be taken back it waits no more,
    /// but who waits for it goes on waiting: until it can be rolled back, or their time is up.
    pub(crate) fn roll_back_as_victim(&mut self) {
        match self.rollback() {
            Ok(()) => self.txn.abort_as_victim(),
            // Nothing but a rollback is left of it: its connection, or the next start, tries again.
            Err(e) if self.may_stay(&e) => {
                debug_assert_eq!(self.txn.phase(), Phase::RollingBack, "{e}");
                if e != Error::Interrupted {
                    self.tell_of_stay(&e, "It was to give way in a deadlock");
                }
            }
            Err(e) => {
                let text = format!("rollback of a deadlock victim failed: {e}");
                self.engine.callbacks.fatal(&text);
            }
        }
    }

    /// Undoes the running statement; locks stay.
    ///
    /// # Errors
    /// A page that cannot be read: the statement is undone in part, and the transaction can be rolled
    /// back only. `RolledBack`: that was so before.
    pub fn rollback_statement(&mut self) -> Result<()> {
        self.undo_to(self.stmt_undo)
    }

    /// Undoes everything after a savepoint (see [`Session::undo_position`]); locks stay.
    ///
    /// # Errors
    /// As [`Session::rollback_statement`].
    pub fn rollback_to(&mut self, savepoint: UndoPosition) -> Result<()> {
        self.check_not_rolled_back()?;
        self.undo_to(savepoint)?;
        self.stmt_undo = self.stmt_undo.min(savepoint);
        Ok(())
    }

    fn undo_to(&mut self, position: UndoPosition) -> Result<()> {
        if !self.txn.has_changes() || self.txn.undo_position() <= position {
            return Ok(());
        }
        match self.txn.phase() {
            Phase::RollingBack => return Err(Error::RolledBack),
            // Not even a part of it comes back.
            Phase::Prepared => self.txn.begin_rollback(),
            _ => {}
        }
        let (txn, engine) = (&mut self.txn, &self.engine);
        let result =
            ferrite_buffer::patiently(|| txn.undo_to(engine, position, Undoes::OF_SESSION));
        let reached = self.txn.undo_position();
        self.row_changes.undone();
        self.row_values.undone_to(reached);
        self.txn.changed.undone_to(reached);
        result
    }
}

/// Is there an entry above `until` to be undone? Else the rollback is over, for now.
fn is_left(slot: &TxnSlot, txn: TxnId, until: UndoPosition) -> bool {
    let mut state = slot.state.lock();
    assert_eq!(state.txn, txn, "the slot is of another transaction");
    let left = state.undo.position() > until;
    if !left {
        state.pause_rollback();
    }
    left
}

impl Engine {
    /// Undoes the entries of a transaction's list above `position`.
    pub(crate) fn undo_to(
        &self,
        slot: &TxnSlot,
        txn: TxnId,
        position: UndoPosition,
        of: Undoes,
    ) -> Result<()> {
        let mut work = Work {
            stale: of.stale,
            ..Work::default()
        };
        let (mut eased, mut ahead) = (Eased::default(), UndoAhead::new());
        while is_left(slot, txn, position) {
            self.may_undo(of.may_stop, &mut eased)?;
            let left = self.next_undo(slot, txn, position, &mut work.entry, &mut ahead)?;
            ahead.ask(self);
            undo::encode_undone_header(txn, left, &mut work.prelude);
            let misses = misses_here();
            self.undo_one(Undoing { slot, txn, left }, &mut work)?;
            ahead.undone(misses_here() - misses);
            kill_point!("rollback.one_undone");
        }
        Ok(())
    }

    /// Copies the last entry of a list, which is above `until`, to `into`; the position before it.
    fn next_undo(
        &self,
        slot: &TxnSlot,
        txn: TxnId,
        until: UndoPosition,
        into: &mut Vec<u8>,
        ahead: &mut UndoAhead,
    ) -> Result<UndoPosition> {
        let mut state = slot.state.lock();
        assert_eq!(state.txn, txn, "the slot is of another transaction");
        assert!(state.undo.position() > until, "nothing is left of {txn}");
        // The word is given: after a crash the rest goes, too, unasked.
        if !(state.is_prepared() && ferrite_sync::mutant!("rollback.keep_xid")) {
            state.begin_rollback();
        }
        let (entry, left) = state
            .undo
            .last(&self.undo_area)?
            .ok_or_else(|| Error::Bug("undo list is broken".into()))?;
        into.clear();
        into.extend_from_slice(entry);
        debug_assert!(left >= until, "an entry from {left} is across {until}");
        ahead.look(&self.pool, &state.undo, left, until);
        Ok(left)
    }

    fn undo_one(&self, of: Undoing<'_>, work: &mut Work) -> Result<()> {
        let Undoing { slot, txn, left } = of;
        let entry = std::mem::take(&mut work.entry);
        let undo = undo::decode(&entry)?;
        let found = match self.dict.table_of_index(undo.index()) {
            Err(Error::NotFound) => None,
            other => Some(other?),
        };
        // What is not gone here stays until this entry is undone: a DROP takes it out of the
        // dictionary beside us, but waits with its pages.
        let index = undo.index();
        let here = found.as_deref().and_then(|table| {
            let stays = table.stay_in(table.number_of(index)?)?;
            Some((table, stays))
        });
        let table = here.as_ref().map(|(table, _stays)| *table);
        kill_point!("rollback.table_found");
        let result = match (table, undo) {
            (None, _) => {
                // The table was dropped meanwhile, and the row with it.
                let mut state = slot.state.lock();
                self.log.append(record_kind::MINI_TXN, &[&work.prelude]);
                undone(&mut state, txn, left);
                Ok(())
            }
            (Some(table), Undo::Insert { index, key }) => {
                self.undo_insert(of, (table, index), key, work)
            }
            (Some(table), Undo::Put { index, key }) => {
                self.undo_put_off(of, (table, index), key, false, work)
            }
            (Some(table), Undo::Mark { index, key }) => {
                self.undo_put_off(of, (table, index), key, true, work)
            }
            (Some(table), Undo::Update { index, key, prior }) => {
                self.undo_update(of, (table, index), key, &prior, work)
            }
            (Some(_), Undo::Overflow { index, page }) => {
                let of = (index, txn);
                self.free_overflow_page(of, page, &work.prelude, &mut |append| {
                    let mut state = slot.state.lock();
                    append();
                    undone(&mut state, txn, left);
                })
            }
        };
        work.entry = entry;
        result
    }

    fn undo_insert(
        &self,
        of: Undoing<'_>,
        (table, index): (&Table, IndexId),
        key: &[u8],
        work: &mut Work,
    ) -> Result<()> {
        let Undoing { slot, txn, left } = of;
        let number = table.number_of(index).ok_or(Error::NotFound)?;
        if number > 0 && ferrite_sync::mutant!("rollback.forget_secondary") {
            slot.state.lock().undo.truncate(left, &self.undo_area)?;
            return Ok(());
        }
        let tree = table.tree(number);
        let (mut leaf, at) = loop {
            let leaf = tree.leaf_mut(key, PageId::NONE)?;
            let at = leaf.find(key).map_err(|_| missing(index))?;
            owned(&leaf.record(at).header, index, txn)?;
            if self.locks.is_untouched(index, key) {
                break (leaf, at);
            }
            match self.move_locks_off(&leaf, at, index, key) {
                Ok(()) => break (leaf, at),
                Err(page) => {
                    drop(leaf);
                    drop(self.pool.shared(page)?);
                }
            }
        };
        {
            let mut state = slot.state.lock();
            leaf.remove(&work.prelude, at, &mut work.scratch);
            undone(&mut state, txn, left);
        }
        debug_assert!(leaf.find(key).is_err(), "an entry is there twice");
        let is_empty = leaf.count() == 0;
        drop(leaf);
        if is_empty {
            // Else each locked entry of a large insert looks for the next key across all that were
            // undone before it: across more leaves, perhaps, than there are frames. It is no part of
            // the rollback: what cannot be merged stays.
            let _ = tree.merge_at(key, undo::NO_UNDO);
        }
        if number == 0 {
            table.count_row(-1);
            table.note_change();
        }
        Ok(())
    }

    /// A change that was made without a look at its leaf. A new entry goes, as in [`Engine::undo_insert`],
    /// unless it has replaced a delete-marked one which others need: that comes back. One that was `marked` is
    /// live again.
    fn undo_put_off(
        &self,
        of: Undoing<'_>,
        (table, index): (&Table, IndexId),
        key: &[u8],
        marked: bool,
        work: &mut Work,
    ) -> Result<()> {
        let Undoing { slot, txn, left } = of;
        let number = table.number_of(index).ok_or(Error::NotFound)?;
        let tree = table.tree(number);
        let mut tries = 0;
        loop {
            let mut leaf = match tree.leaf_mut(key, PageId::NONE) {
                Err(e @ (Error::Corrupt(_) | Error::Io(_))) => {
                    tries += 1;
                    match self.undo_kept(of, tree, key, work)? {
                        TakenBack::Done => return Ok(()),
                        TakenBack::TryAgain if tries < TRIES => continue,
                        TakenBack::TryAgain | TakenBack::NotKept => return Err(e),
                    }
                }
                other => other?,
            };
            let at = leaf.find(key).map_err(|_| missing(index))?;
            let now = leaf.record(at).header;
            owned(&now, index, txn)?;
            if now.deleted != marked {
                return Err(missing(index));
            }
            let rec = leaf.record(at);
            let header = match self.replaced_unseen(&rec, work.stale, &mut work.value)? {
                Some(header) => header,
                None if marked => {
                    work.value.clear();
                    work.value.extend_from_slice(rec.value);
                    Header::default()
                }
                None => {
                    drop(leaf);
                    return self.undo_insert(of, (table, index), key, work);
                }
            };
            if !leaf.can_replace(at, &header, work.value.len()) {
                drop(leaf);
                let need = node::room_for(key.len(), work.value.len());
                tree.make_room(key, need, undo::NO_UNDO)?;
                continue;
            }
            {
                let mut state = slot.state.lock();
                let (value, scratch) = (&work.value, &mut work.scratch);
                leaf.replace(&work.prelude, at, &header, value, (0, 0), scratch);
                undone(&mut state, txn, left);
            }
            // An address of an earlier life is that of somebody else's version, or none.
            if !work.stale || ferrite_sync::mutant!("rollback.stale_version_dropped") {
                self.versions.drop_version(now.version);
            }
            debug_assert_eq!(leaf.record(at).header, header, "index {index}");
            return Ok(());
        }
    }

    /// The leaf cannot be read: a change that is kept for it is taken back there.
    fn undo_kept(
        &self,
        of: Undoing<'_>,
        tree: &Tree,
        key: &[u8],
        work: &mut Work,
    ) -> Result<TakenBack> {
        let Undoing { slot, txn, left } = of;
        let its = |last| matches!(last, KeptChange::Put(by) | KeptChange::Mark(by) if by == txn);
        let kept = match tree.leaf_kept(key, its)? {
            KeptLeaf::Kept(kept) => kept,
            KeptLeaf::Other => return Ok(TakenBack::NotKept),
            KeptLeaf::There => return Ok(TakenBack::TryAgain),
        };
        let mut state = slot.state.lock();
        // Who reads the leaf then goes by how much of the list is left.
        let then = || undone(&mut state, txn, left);
        kept.take_back(&work.prelude, txn, key, &mut work.scratch, then);
        Ok(TakenBack::Done)
    }

    fn undo_update(
        &self,
        of: Undoing<'_>,
        (table, index): (&Table, IndexId),
        key: &[u8],
        prior: &Prior<'_>,
        work: &mut Work,
    ) -> Result<()> {
        let Undoing { slot, txn, left } = of;
        let number = table.number_of(index).ok_or(Error::NotFound)?;
        let tree = table.tree(number);
        loop {
            let mut leaf = tree.leaf_mut(key, PageId::NONE)?;
            let at = leaf.find(key).map_err(|_| missing(index))?;
            let rec = leaf.record(at);
            let now = rec.header;
            owned(&now, index, txn)?;
            prior.value(rec.value, &mut work.value)?;
            let largest = Header {
                deleted: prior.deleted,
                txn: prior.txn,
                version: now.version,
            };
            if !leaf.can_replace(at, &largest, work.value.len()) {
                drop(leaf);
                let need = node::room_for(key.len(), work.value.len());
                tree.make_room(key, need, undo::NO_UNDO)?;
                continue;
            }
            let version = if work.stale {
                VersionAddr::NONE
            } else {
                self.version_before(&now, prior.txn, rec.value, &work.value)?
            };
            let header = Header { version, ..largest };
            debug_assert!(
                !header.txn.is_frozen() || version.is_none(),
                "what everybody sees has an older state"
            );
            debug_assert!(version <= VersionAddr::MAX, "version address {version}");
            let same = (prior.keep_head, prior.keep_tail);
            {
                let mut state = slot.state.lock();
                leaf.replace(
                    &work.prelude,
                    at,
                    &header,
                    &work.value,
                    same,
                    &mut work.scratch,
                );
                undone(&mut state, txn, left);
            }
            debug_assert!(
                leaf.record(at).header == header && leaf.record(at).value == work.value,
                "index {index}: another state than before the change"
            );
            drop(leaf);
            if number == 0 && now.deleted != prior.deleted {
                table.count_row(if prior.deleted { -1 } else { 1 });
                table.note_change();
            }
            return Ok(());
        }
    }

    /// The version address of the state before `now`: our own first change had put the prior
    /// state's version in front of the chain; later changes of ours had not.
    fn version_before(
        &self,
        now: &Header,
        prior_txn: TxnId,
        from: &[u8],
        to: &[u8],
    ) -> Result<VersionAddr> {
        debug_assert!(!now.txn.is_frozen(), "nobody's change is undone");
        if prior_txn == now.txn {
            return self.rebase(now.version, from, to);
        }
        if now.version.is_none() {
            return Ok(VersionAddr::NONE);
        }
        let next = self.next_version(now.version)?;
        self.versions.drop_version(now.version);
        if prior_txn.is_frozen() {
            return Ok(VersionAddr::NONE);
        }
        Ok(next)
    }
}

/// An entry was taken back, and the log says so: its undo goes. Under the slot's mutex since
/// before the append.
fn undone(state: &mut SlotState, txn: TxnId, left: UndoPosition) {
    assert_eq!(state.txn, txn, "another's change was undone");
    assert!(
        left < state.undo.position(),
        "{txn}: {left} bytes of undo are left of {}",
        state.undo.position()
    );
    state.undo.drop_last(left);
    assert_eq!(
        state.undo.position(),
        left,
        "{txn}: undo that the log says is left"
    );
}

/// Undo touches only what bears the id of its transaction: a list that does not fit the table
/// (a restored file, an id used twice) must not take rows of others away.
fn owned(header: &Header, index: IndexId, txn: TxnId) -> Result<()> {
    if header.txn == txn || ferrite_sync::mutant!("rollback.owner_not_checked") {
        return Ok(());
    }
    Err(Error::Corrupt(format!(
        "index {index}: an entry of transaction {txn} bears id {} at its rollback",
        header.txn
    )))
}

fn missing(index: IndexId) -> Error {
    Error::Corrupt(format!(
        "index {index}: an entry to be rolled back is not there"
    ))
}
