//! One SQL connection: its transaction, statement, savepoints and snapshot.
//!
//! A session is used by one thread at a time. What others look at lives in `TxnSlot` (undo
//! list, prepared id: by the checkpointer) and in `Owner` (locks: by other sessions).

use crate::catalog::table::Table;
use crate::log_records::undo::{self, Undo};
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::slot::Isolation;
use crate::state::transaction::{Phase, Transaction};
use crate::transaction::last_leaf::LastLeaf;
use crate::transaction::row_changes::RowChanges;
use crate::transaction::row_values::RowValues;
use crate::transaction::visible::View;
use ferrite_lock::{Owner, WaitHooks, WaitPolicy};
use ferrite_redo::Appended;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_tree::Scratch;
use ferrite_txn::{Snapshot, SnapshotInfo};
use ferrite_types::{Error, PageId, Result, TxnId, UndoPosition};

/// Buffers that live as long as the session, so that rows allocate nothing.
#[derive(Default)]
pub(crate) struct Buffers {
    pub scratch: Scratch,
    pub undo: Vec<u8>,
    pub prelude: Vec<u8>,
    pub key: Vec<u8>,
    /// The value of an entry that is being delete-marked.
    pub value: Vec<u8>,
    /// What an update replaces.
    pub mid: Vec<u8>,
    /// The entry that a look at another table of a foreign key stands on, and the one it is to wait for.
    pub entry_key: Vec<u8>,
    pub reference: Vec<u8>,
}

/// One connection.
pub struct Session {
    pub(crate) engine: Arc<Engine>,
    pub(crate) txn: Transaction,
    pub(crate) thd: usize,
    pub(crate) thread_id: u64,
    pub(crate) isolation: Isolation,
    /// See the module `snapshot_isolation`.
    pub(crate) snapshot_isolation: bool,
    pub(crate) stmt_undo: UndoPosition,
    /// Before the row change begun last: see [`Session::before_row`].
    pub(crate) row_undo: UndoPosition,
    /// The log's position after the last pause for its budget.
    pub(crate) paused_at: u64,
    /// Values of the row change to come.
    pub(crate) row_values: RowValues,
    pub(crate) row_changes: RowChanges,
    pub(crate) lock_timeout_ms: u64,
    pub(crate) buffers: Buffers,
    pub(crate) last_leaf: LastLeaf,
    /// Of a prepared transaction that a replica's worker has detached.
    pub(super) left_behind: Option<Arc<Owner>>,
}

/// Wait hooks of one session's statement.
pub(crate) struct Hooks<'a> {
    pub engine: &'a Engine,
    pub thd: usize,
}

impl WaitHooks for Hooks<'_> {
    fn begin(&self) {
        self.engine.callbacks.lock_wait_begin(self.thd);
    }
    fn end(&self, us: u64) {
        self.engine.callbacks.lock_wait_end(self.thd, us);
    }
    fn is_killed(&self) -> bool {
        self.engine.callbacks.is_killed(self.thd)
    }
    fn query_of(&self, thd: usize) -> Vec<u8> {
        self.engine.callbacks.query_of(thd)
    }
    fn prefer_victim(&self, a_thd: usize, b_thd: usize) -> i32 {
        self.engine.callbacks.prefer_victim(a_thd, b_thd)
    }
    fn wants_reports(&self) -> bool {
        self.engine.callbacks.wants_wait_reports(self.thd)
    }
    fn waiting_for(&self, holder_thd: usize) {
        if holder_thd != 0 {
            self.engine.callbacks.report_wait_for(self.thd, holder_thd);
        }
    }
}

impl Session {
    /// A session for the server's connection `thd` (0: none).
    pub fn new(engine: &Arc<Engine>, thd: usize, thread_id: u64) -> Session {
        Session {
            engine: engine.clone(),
            txn: Transaction::new(engine, Owner::new(thread_id, thd)),
            thd,
            thread_id,
            isolation: Isolation::RepeatableRead,
            snapshot_isolation: false,
            stmt_undo: UndoPosition::START,
            row_undo: UndoPosition::START,
            paused_at: 0,
            row_values: RowValues::default(),
            row_changes: RowChanges::default(),
            lock_timeout_ms: engine.config().lock_wait_timeout_ms,
            buffers: Buffers::default(),
            last_leaf: LastLeaf::default(),
            left_behind: None,
        }
    }

    /// The engine it belongs to.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The lock owner, for `interrupt` from other threads.
    pub fn owner(&self) -> &Arc<Owner> {
        &self.txn.owner
    }

    /// How long to wait for a row lock, in ms.
    pub fn set_lock_wait_timeout_ms(&mut self, ms: u64) {
        self.lock_timeout_ms = ms;
    }

    pub(crate) fn wait_policy(&self) -> WaitPolicy {
        WaitPolicy::for_ms(self.lock_timeout_ms)
    }

    /// A statement begins.
    pub fn begin_statement(&mut self, isolation: Isolation) {
        self.isolation = isolation;
        self.txn
            .slot
            .isolation
            .store(isolation as u8, Ordering::Relaxed);
        if self.txn.slot.started_us.load(Ordering::Relaxed) == 0 {
            let recent_us = self.engine.purge.recent_us();
            self.txn.slot.started_us.store(recent_us, Ordering::Relaxed);
        }
        self.txn.owner.interrupted.store(false, Ordering::SeqCst);
        self.txn
            .owner
            .no_gaps
            .store(isolation <= Isolation::ReadCommitted, Ordering::Relaxed);
        self.stmt_undo = self.undo_position();
        self.row_values.forget();
        if isolation <= Isolation::ReadCommitted {
            self.txn.snapshot = None;
        }
        self.open_first_snapshot();
    }

    /// A statement ended inside a transaction that goes on.
    pub fn end_statement(&mut self) {
        self.stmt_undo = self.undo_position();
        self.row_values.forget();
        if self.isolation <= Isolation::ReadCommitted {
            self.txn.snapshot = None;
        }
    }

    /// Opens the transaction's snapshot now (WITH CONSISTENT SNAPSHOT). Below REPEATABLE READ
    /// it lasts until the next statement, as in InnoDB.
    pub fn open_snapshot(&mut self) {
        self.need_snapshot(true);
    }

    /// The transaction reads on from the present: what its snapshot was for has been read.
    pub fn close_snapshot(&mut self) {
        self.txn.snapshot = None;
    }

    pub(crate) fn need_snapshot(&mut self, long: bool) -> &Snapshot {
        let info = SnapshotInfo {
            thread_id: self.thread_id,
            long,
        };
        let engine = &self.engine;
        self.txn
            .snapshot
            .get_or_insert_with(|| engine.txns.open_snapshot(info))
    }

    /// Ready for a consistent read: the session, and what it sees.
    pub(crate) fn reading(&mut self) -> (&Session, View<'_>) {
        let dirty = self.isolation == Isolation::ReadUncommitted;
        if !dirty {
            self.need_snapshot(self.isolation >= Isolation::RepeatableRead);
        }
        let view = match (&self.txn.snapshot, dirty) {
            (Some(snapshot), false) => View::At {
                snapshot,
                own: self.txn.id(),
            },
            _ => View::Current,
        };
        (self, view)
    }

    /// A table that was created, emptied or filled after the transaction's snapshot was opened
    /// has no rows as of then, and so has an index that was added: it is refused, to locking reads too, as InnoDB does. A snapshot
    /// yet to be opened sees all there is. So is every table after a deadlock: locks and snapshot
    /// are gone, and what was read would be of another transaction. And where a rollback has stopped half way: what
    /// is left of the changes was never meant to be seen alone.
    ///
    /// # Errors
    /// `TableChanged`, `RolledBack`.
    pub(crate) fn may_read(&self, table: &Table, index_no: usize) -> Result<()> {
        self.check_not_rolled_back()?;
        match &self.txn.snapshot {
            Some(snapshot) if !table.is_usable_by(index_no, snapshot.csn()) => {
                Err(Error::TableChanged)
            }
            _ => Ok(()),
        }
    }

    /// For loops that may go on for long between two rows.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn check_killed(&self) -> Result<()> {
        if self.engine.callbacks.is_killed(self.thd) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }

    /// Now and then in a long statement: whether it was killed, and for others how far it is.
    ///
    /// # Errors
    /// `Interrupted`.
    pub(crate) fn report_progress(&self, done: u64, total: u64) -> Result<()> {
        self.check_killed()?;
        let total = total.max(done).max(1);
        debug_assert!(done <= total, "{done} of {total}");
        self.engine.callbacks.progress(self.thd, done, total);
        Ok(())
    }

    /// What was just read counts only if the snapshot was not ended meanwhile: its versions may
    /// have gone while we looked.
    pub(crate) fn snapshot_holds(&self) -> Result<()> {
        match &self.txn.snapshot {
            Some(snapshot) if snapshot.is_expired() => Err(Error::SnapshotTooOld),
            _ => Ok(()),
        }
    }

    /// True if the transaction changed rows.
    pub fn has_changes(&self) -> bool {
        self.txn.has_changes()
    }

    /// True if it changed rows or holds locks (an open snapshot alone does not count).
    pub fn is_active(&self) -> bool {
        self.txn.is_active()
    }

    /// Id of the running transaction; frozen when it changed nothing.
    pub fn txn_id(&self) -> TxnId {
        self.txn.id()
    }

    /// Refuses if nothing but a rollback is left of the transaction: the engine has rolled it back, or
    /// its rollback has begun.
    ///
    /// # Errors
    /// `RolledBack`.
    pub(crate) fn check_not_rolled_back(&self) -> Result<()> {
        match self.txn.phase() {
            Phase::Aborted | Phase::RollingBack => Err(Error::RolledBack),
            _ => Ok(()),
        }
    }

    /// A savepoint: the undo position now.
    ///
    /// # Errors
    /// `RolledBack`: nothing but a rollback is left of the transaction.
    pub fn savepoint(&self) -> Result<UndoPosition> {
        self.check_not_rolled_back()?;
        Ok(self.undo_position())
    }

    /// The undo position now: a savepoint.
    pub fn undo_position(&self) -> UndoPosition {
        self.txn.undo_position()
    }

    /// The undo position before the row changed last, its values included: for [`Session::undo_row`].
    pub fn before_row(&self) -> UndoPosition {
        debug_assert!(self.row_undo <= self.undo_position(), "a row undone");
        self.row_undo
    }

    /// Rows that the transaction has changed so far, whether undone since or not: what was read and locked
    /// at the same number is still as it was.
    pub fn rows_changed(&self) -> u64 {
        self.txn.slot.rows_changed.load(Ordering::Relaxed)
    }

    /// The transaction's id, given at its first change.
    ///
    /// # Errors
    /// `RolledBack` after a deadlock; `DiskFull` while the log or the store cannot grow; `Interrupted` by KILL while
    /// it waits for room.
    pub(crate) fn writing(&mut self) -> Result<TxnId> {
        self.writing_of(false)
    }

    /// As [`Session::writing`]; what `deletes` is let in where others are not.
    pub(crate) fn writing_of(&mut self, deletes: bool) -> Result<TxnId> {
        if self.txn.phase() != Phase::Active {
            self.may_begin()?;
        }
        self.admitted(deletes)?;
        if self.txn.spill_due {
            self.spill_undo()?;
        }
        if self.txn.phase() == Phase::Idle {
            self.txn.begin(&self.engine);
        }
        debug_assert!(self.txn.phase() == Phase::Active && self.txn.has_changes());
        Ok(self.txn.id())
    }

    /// May rows be changed now?
    ///
    /// # Errors
    /// `DiskFull`; `Interrupted` by KILL while room is made.
    #[inline]
    pub fn admitted(&self, deletes: bool) -> Result<()> {
        let (engine, thd) = (&self.engine, self.thd);
        engine.admission_of(deletes, &|| engine.callbacks.is_killed(thd))
    }

    #[cold]
    fn may_begin(&self) -> Result<()> {
        match self.txn.phase() {
            Phase::Idle | Phase::Active => Ok(()),
            Phase::Aborted | Phase::RollingBack => Err(Error::RolledBack),
            Phase::Prepared => Err(Error::Bug("a prepared transaction cannot write".into())),
            Phase::Ordered(_) => Err(Error::Bug("a committed transaction cannot write".into())),
        }
    }

    /// Runs `edit`, which makes one logged change, with the opening that carries `undo`, and
    /// extends the undo list by it: under the list's mutex, so that a checkpoint's copy of the
    /// list is exact at a log position.
    pub(crate) fn logged(
        &mut self,
        undo: &Undo<'_>,
        edit: impl FnOnce(&[u8], &mut Scratch) -> Appended,
    ) -> Appended {
        let Buffers {
            scratch,
            undo: entry,
            prelude,
            ..
        } = &mut self.buffers;
        assert_eq!(self.txn.phase(), Phase::Active, "{} changes", self.txn.id());
        entry.clear();
        undo::encode(undo, entry);
        undo::encode_undo_header(self.txn.id(), entry, prelude);
        let mut state = self.txn.slot.state.lock();
        assert_eq!(
            state.txn,
            self.txn.id(),
            "the slot is of another transaction"
        );
        let at = edit(prelude, scratch);
        assert!(
            self.txn.last_change <= at.start && at.start < at.end,
            "a change at {at:?} after one at {}",
            self.txn.last_change
        );
        self.txn.last_change = at.end;
        state.undo.push(entry);
        state.touched.add(undo.index());
        debug_assert!(
            state.touched.has(undo.index()),
            "a table that DDL could take"
        );
        self.txn.spill_due = state.undo.spill_due();
        drop(state);
        self.txn.owner.add_change();
        at
    }

    /// Failing is no error at first: the list then stays in memory, and is tried again. But each
    /// checkpoint writes what is in memory, and that must fit in the space kept for it. Before it is one,
    /// what snapshots and a backup hold gives way.
    ///
    /// # Errors
    /// `DiskFull` when there is much of it already; `Interrupted` by KILL, of who waits for room.
    #[cold]
    fn spill_undo(&mut self) -> Result<()> {
        let (engine, thd) = (self.engine.clone(), self.thd);
        let is_killed = || engine.callbacks.is_killed(thd);
        engine.with_room(&is_killed, || self.try_to_spill_undo())
    }

    fn try_to_spill_undo(&mut self) -> Result<()> {
        self.txn.spill_due = false;
        let mut state = self.txn.slot.state.lock();
        match state.undo.spill(&self.engine.undo_area) {
            Err(e @ Error::DiskFull(_)) if state.undo.tail_is_full() => {
                self.txn.spill_due = true;
                Err(e)
            }
            _ => Ok(()),
        }
    }

    /// A delete-marked entry is to be purged.
    pub(crate) fn leave_entry(
        &mut self,
        page: PageId,
        table: &Arc<Table>,
        number: usize,
        key: &[u8],
    ) {
        debug_assert_eq!(self.txn.phase(), Phase::Active);
        let at = self.undo_position();
        let most = self.engine.config.purge_listed_marks;
        let garbage = &mut self.txn.garbage;
        garbage.add_entry(at, page, (table, number), key, most);
    }

    /// A row change is about to begin; no latch is held.
    #[inline]
    pub(crate) fn throttle(&mut self) {
        if self.engine.wants_attention() {
            let (engine, thd) = (&self.engine, self.thd);
            engine.slow_down(&mut self.paused_at, &|| engine.callbacks.is_killed(thd));
        }
    }

    /// The transaction has ended: what the session knew of its statement means nothing.
    pub(crate) fn forget_statement(&mut self) {
        debug_assert_eq!(self.txn.phase(), Phase::Idle);
        self.stmt_undo = UndoPosition::START;
        self.row_values.forget();
        self.row_changes.ended();
    }
}

impl Session {
    /// May a transaction stay as it is whose rollback has failed so? What cannot be read, or has no room, is of its own
    /// rows and its own undo: others go on, and it can be rolled back later. Or the server shuts down, and pages can
    /// neither be written nor be taken back.
    pub(super) fn may_stay(&self, failed: &Error) -> bool {
        match failed {
            Error::Interrupted => self.engine.callbacks.is_shutting_down(),
            Error::Io(_) | Error::Corrupt(_) | Error::DiskFull(_) | Error::Shortage(_) => true,
            _ => false,
        }
    }

    /// It cannot be rolled back for now, and stays. Told with what becomes of it.
    pub(super) fn tell_of_stay(&self, failed: &Error, what: &str) {
        let (txn, left) = (self.txn.id(), self.txn.undo_position());
        assert!(!txn.is_frozen(), "no transaction stays");
        let thread_id = self.thread_id;
        let (level, text) = match failed {
            Error::Interrupted => (
                LogLevel::Warning,
                format!(
                    "transaction {txn} cannot be rolled back before the shutdown, {left} bytes of undo \
                     are left: the next start does it"
                ),
            ),
            reason => (
                LogLevel::Error,
                format!(
                    "transaction {txn} of connection {thread_id} cannot be rolled back, {left} bytes of \
                     undo are left and its rows stay locked: {reason}. {what}"
                ),
            ),
        };
        self.engine.callbacks.log(level, &text);
    }

    /// The connection goes, and its transaction stays among those that have not ended, with its locks, for a checkpoint
    /// to name: the thread for rollbacks tries again from time to time, and so does the next start, from where this one got
    /// to. A shutdown does not wait for it. False: nobody knows what is wrong.
    fn left_to_others(&self, failed: &Error) -> bool {
        let engine = &self.engine;
        if !self.may_stay(failed) {
            return false;
        }
        let has_thread = *failed != Error::Interrupted && !engine.config.manual_background;
        let what = match has_thread {
            true => "It is tried again from time to time, and by the next start",
            false => "The next start tries again",
        };
        self.tell_of_stay(failed, what);
        self.txn.owner.forget_thd();
        debug_assert!(engine
            .all_slots()
            .iter()
            .any(|s| Arc::ptr_eq(s, &self.txn.slot)));
        if has_thread {
            let slot = self.txn.slot.clone();
            engine.unsettled.take_over(slot, failed.clone());
        }
        true
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(owner) = self.left_behind.take() {
            owner.forget_thd();
        }
        match self.txn.phase() {
            Phase::Ordered(_) => {
                let _ = self.commit_finish(false);
            }
            Phase::Prepared => self.detach_prepared(),
            _ if self.is_active() => {
                if let Err(e) = self.rollback() {
                    if self.left_to_others(&e) {
                        return;
                    }
                    let text = format!("rollback at disconnect failed: {e}");
                    self.engine.callbacks.fatal(&text);
                }
            }
            _ => {}
        }
        self.txn.owner.forget_thd();
        self.engine.forget_slot(&self.txn.slot);
    }
}
