//! Prepared transactions without a session: detached from it, or found by a restart. They wait
//! for their xid to be decided.
//!
//! Invariant: one is in `Engine::prepared` until its decision is complete (of a start, durable: `decide_at_start`). Only one session
//! decides it at a time. A rollback that failed half way leaves it there: it can be rolled back
//! again, by this life or by the next start, but not committed. If the server does not know its name any more, it goes from
//! there to `Engine::unsettled`.
//!
//! Locking: `prepared` for moments, never over the decision itself.

use crate::catalog::table::Table;
use crate::log_records::values::Value;
use crate::log_records::xid::Xid;
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::prepared::Prepared;
use crate::state::purge_work::Garbage;
use crate::state::slot::TxnSlot;
use crate::state::transaction::{Phase, Transaction};
use crate::state::unsettled::{Awaited, Claim};
use crate::transaction::rollback::Undoes;
use crate::transaction::session::Session;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::{Of, Reason, Sliced};
use ferrite_sync::{thread, Arc};
use ferrite_tree::Scratch;
use ferrite_types::{Error, IndexId, Result, TxnId, UndoPosition};
use std::collections::btree_map::{BTreeMap, Entry};

/// Between two looks whether its versions are there again, in ms.
const LOOK_MS: u64 = 2;

/// Tables that a transaction has changed which is committed by its xid.
struct DecidedTables {
    known: Vec<Arc<Table>>,
    /// There are others, which cannot be opened just now, or of which nothing is known.
    has_unknown: bool,
}

impl Engine {
    /// A prepared transaction waits for its xid to be decided. The server gives an xid to one
    /// transaction at a time; should there be two all the same, both stay, with their locks, and
    /// are decided one after the other.
    pub(crate) fn adopt_prepared(&self, transaction: Transaction) {
        assert_eq!(transaction.phase(), Phase::Prepared);
        let xid = transaction.xid().expect("prepared under a name");
        let id = transaction.id();
        let prepared = Prepared::new(transaction);
        let mut all = self.prepared.lock();
        let twin = match all.entry(xid) {
            Entry::Vacant(place) => {
                place.insert(prepared);
                None
            }
            Entry::Occupied(mut place) => {
                let first = place.get().id;
                place.get_mut().append(prepared);
                Some(first)
            }
        };
        drop(all);
        if let Some(first) = twin {
            let text = format!(
                "transactions {first} and {id} are prepared with the same xid: the next XA \
                 COMMIT or ROLLBACK applies to the first, another one to the second"
            );
            self.callbacks.log(LogLevel::Error, &text);
        }
    }

    /// What a recovered transaction leaves when it commits; and values of tables that cannot be opened, which is
    /// said: a damaged page of one table must not keep the others from a start. A table that is gone took its values
    /// along.
    pub(crate) fn garbage_of(&self, slot: &TxnSlot) -> (Vec<Garbage>, Vec<Value>) {
        let values = slot.state.lock().garbage.clone();
        let mut tables = BTreeMap::new();
        let (mut pieces, mut unopened) = (Vec::new(), Vec::new());
        for (index, reference) in values {
            let table = tables
                .entry(index)
                .or_insert_with(|| self.dict.table_of_index(index));
            match table {
                Ok(table) => pieces.push(Garbage::overflow_of(table, reference)),
                Err(Error::NotFound) => {}
                Err(_) => unopened.push((index, reference)),
            }
        }
        let failed = |(index, table): (IndexId, Result<Arc<Table>>)| Some((index, table.err()?));
        for (index, e) in tables.into_iter().filter_map(failed) {
            if e != Error::NotFound {
                let text = format!(
                    "values out of line that nobody needs any more are not freed now: the table of index {} \
                     cannot be opened: {e}",
                    index.0
                );
                self.callbacks.log(LogLevel::Warning, &text);
            }
        }
        (pieces, unopened)
    }

    /// Xids of prepared transactions without a session.
    pub fn prepared_xids(&self) -> Vec<Xid> {
        self.prepared.lock().keys().cloned().collect()
    }

    /// A transaction without a session waits under that name.
    pub fn is_prepared(&self, xid: &Xid) -> bool {
        self.prepared.lock().contains_key(xid)
    }

    /// Commits a prepared transaction; durable on return. Gives a large one of before a restart its versions first,
    /// or waits until it has them.
    ///
    /// # Errors
    /// `NotFound` for an unknown xid; `InUse` while another session decides it; `RolledBack`
    /// when a part of it was rolled back already; why its versions could not be made again: it stays prepared.
    pub fn commit_by_xid(&self, xid: &Xid) -> Result<()> {
        let transaction = self.begin_commit(xid, 0)?;
        self.commit_begun(xid, transaction, false);
        Ok(())
    }

    /// As [`Engine::commit_by_xid`], and a KILL of connection `thd` ends the wait for versions: then it stays prepared, as
    /// if nobody had asked. 0: of none, or of one that cannot take its word back, as when the binary log has it.
    ///
    /// # Errors
    /// Also `Interrupted` by KILL.
    pub fn commit_by_xid_of(self: &Arc<Self>, xid: &Xid, thd: usize) -> Result<()> {
        match self.begin_commit(xid, thd) {
            Ok(transaction) => {
                self.commit_begun(xid, transaction, false);
                Ok(())
            }
            Err(e) => {
                if e == Error::Interrupted && self.is_killed(thd) {
                    // What the caller had claimed is the thread's again, which may have ended since.
                    self.wake_rollback();
                }
                Err(e)
            }
        }
    }

    /// `unversioned`: versions are missing that nobody needs who could come.
    pub(super) fn commit_begun(&self, xid: &Xid, mut transaction: Transaction, unversioned: bool) {
        let tables = self.find_changed_tables(&mut transaction);
        // Before and after: who looks in between sees that something goes on.
        let id = transaction.id();
        let going_on = self.deciding.begin();
        self.count_decided(&tables);
        let end = transaction.order(self);
        if unversioned {
            // From here on everybody knows that all see it, and the addresses in its rows mean nothing.
            self.txns.refresh();
            debug_assert!(self.txns.visible_to_all(id), "{id}: who needs a version?");
        }
        let left = transaction.finish_commit(self);
        self.count_decided(&tables);
        debug_assert!(self.txns.is_committed(id), "{id} is decided and not seen");
        drop(going_on);
        self.committed(left, &mut Scratch::default());
        self.log.flush_to(end);
        debug_assert!(self.log.durable_lsn() >= end, "decided and not on disk");
        self.end_decision(xid, &transaction);
    }

    /// A prepared transaction whose commit nothing stands in the way of.
    ///
    /// # Errors
    /// As [`Engine::commit_by_xid`].
    fn begin_commit(&self, xid: &Xid, thd: usize) -> Result<Transaction> {
        let transaction = self.begin_decision(xid)?;
        debug_assert!(transaction.has_changes(), "prepared without a change");
        if transaction.phase() != Phase::Prepared {
            self.break_off_decision(xid, transaction);
            return Err(Error::RolledBack);
        }
        if let Err(e) = self.settle_to_commit(&transaction.slot, transaction.id(), thd) {
            self.break_off_decision(xid, transaction);
            return Err(e);
        }
        debug_assert_eq!(transaction.xid().as_ref(), Some(xid), "another's decision");
        Ok(transaction)
    }

    /// Another number after each commit, by its xid, of a prepared transaction that has changed the table, and
    /// while one goes on: such a commit has no session, and nothing of the server's keeps it from a table.
    ///
    /// # Errors
    /// `NotFound`; a page that cannot be read.
    pub fn decided_commits(&self, name: &str) -> Result<u64> {
        let table = self.dict.open_table(name)?;
        // Both only rise.
        let of_table = table.decided_commits.load(Ordering::SeqCst);
        Ok(of_table + self.decided_unknown.load(Ordering::SeqCst))
    }

    fn count_decided(&self, tables: &DecidedTables) {
        for table in &tables.known {
            let before = table.decided_commits.fetch_add(1, Ordering::SeqCst);
            debug_assert!(before < u64::MAX, "it would be an old number again");
        }
        if tables.has_unknown {
            self.decided_unknown.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A restart knows the indexes only; what its session knew may be of tables that are gone.
    fn find_changed_tables(&self, transaction: &mut Transaction) -> DecidedTables {
        let (indexes, mut has_unknown) = {
            let touched = &transaction.slot.state.lock().touched;
            (touched.all().to_vec(), touched.has_unknown())
        };
        transaction.changed.clear();
        for index in indexes {
            match self.dict.table_of_index(index) {
                Ok(table) => transaction.changed.add(&table, UndoPosition::START),
                Err(Error::NotFound) => {}
                Err(_) => has_unknown = true,
            }
        }
        let known = transaction.changed.tables().cloned().collect();
        DecidedTables { known, has_unknown }
    }

    /// Rolls a prepared transaction back; durable on return. One that failed can be repeated. A large one of before
    /// a restart that has no versions yet is rolled back without.
    ///
    /// # Errors
    /// `NotFound` for an unknown xid; `InUse` while another session decides it; a page that
    /// cannot be read: the rest of the transaction stays, with its locks.
    pub fn rollback_by_xid(&self, xid: &Xid) -> Result<()> {
        let mut transaction = self.begin_decision(xid)?;
        let id = transaction.id();
        let claim = match self.claim_for_decision(id, Awaited::Rollback, 0) {
            Ok(claim) => claim,
            Err(e) => {
                self.break_off_decision(xid, transaction);
                return Err(e);
            }
        };
        // Without all of its versions no address of one is to be believed.
        let stale = claim != Claim::Settled;
        let of = match stale {
            true => Undoes::of_before(false),
            false => Undoes::OF_SESSION,
        };
        let end = match ferrite_buffer::patiently(|| transaction.roll_back(self, of)) {
            Ok(end) => end,
            Err(e) => {
                if claim == Claim::Mine && e != Error::Interrupted {
                    // For the next one: it is not the thread's.
                    self.unsettled.fail(id, &e, false);
                }
                self.break_off_decision(xid, transaction);
                return Err(e);
            }
        };
        self.log.flush_to(end);
        debug_assert!(self.log.durable_lsn() >= end, "decided and not on disk");
        if stale {
            self.unsettled.done(id);
        }
        self.end_decision(xid, &transaction);
        Ok(())
    }

    /// As [`Engine::rollback_by_xid`], of one whose name the server has forgotten, so that nobody can ask for it again: if
    /// that fails, the thread for rollbacks tries again from time to time, and so does the next start.
    ///
    /// # Errors
    /// As there; its name is not known any more, unless a shutdown was in the way.
    pub fn roll_back_forgotten(&self, xid: &Xid) -> Result<()> {
        let result = self.rollback_by_xid(xid);
        match &result {
            Ok(()) | Err(Error::NotFound | Error::InUse(_)) => {}
            Err(e) => self.left_by_server(xid, e),
        }
        result
    }

    /// The log says by now that nothing but the rest of its rollback is left of it (`stay_half_way`).
    fn left_by_server(&self, xid: &Xid, failed: &Error) {
        let may_pass = matches!(
            failed,
            Error::Io(_) | Error::Corrupt(_) | Error::DiskFull(_) | Error::Shortage(_)
        );
        let is_left = may_pass && !self.config.manual_background;
        let transaction = is_left.then(|| self.begin_decision(xid).ok()).flatten();
        let what = match transaction {
            Some(_) => "It is tried again from time to time, and by the next start",
            None => "The next start finds it as it is",
        };
        let text = format!(
            "a prepared transaction whose name the server has forgotten cannot be rolled back, and its rows stay \
             locked: {failed}. {what}"
        );
        self.callbacks.log(LogLevel::Error, &text);
        if let Some(transaction) = transaction {
            assert_eq!(transaction.phase(), Phase::RollingBack, "{failed}");
            self.no_longer_prepared(xid);
            self.unsettled
                .take_over(transaction.slot.clone(), failed.clone());
        }
    }

    /// Takes a prepared transaction of before a restart from the thread that gives it its versions again, or waits:
    /// a commit until it has them, a rollback until the thread has let go of it. `Mine`: it has none, or some.
    ///
    /// # Errors
    /// `Interrupted` by a stop, or a KILL of connection `thd`, which only a commit hears (0: none).
    fn claim_for_decision(&self, txn: TxnId, decision: Awaited, thd: usize) -> Result<Claim> {
        debug_assert!(!txn.is_frozen(), "a prepared transaction has an id");
        debug_assert!(thd == 0 || decision == Awaited::Commit, "{txn}");
        let mut wait = Sliced::new(Reason::Rollback, Of::Nothing);
        loop {
            match self.unsettled.claim_or_await(txn, decision) {
                Claim::Others => {}
                decided => return Ok(decided),
            }
            // The server waits for the connections before it stops us: as after a crash, it stays prepared.
            let ends = self.stop.load(Ordering::SeqCst) || self.callbacks.is_shutting_down();
            if ends || self.is_killed(thd) {
                self.unsettled.await_no_more(txn);
                return Err(Error::Interrupted);
            }
            wait.slice(|| thread::sleep_ms(LOOK_MS));
        }
    }

    /// Before its commit: until a prepared transaction's versions are made again its undo tells readers the states
    /// before it, and after its commit they would not ask it. Nobody waits for others' versions.
    ///
    /// # Errors
    /// Why it cannot be; `Interrupted` by a stop, or a KILL of connection `thd`.
    fn settle_to_commit(&self, slot: &Arc<TxnSlot>, txn: TxnId, thd: usize) -> Result<()> {
        if ferrite_sync::mutant!("prepared.versions_not_awaited") {
            return Ok(());
        }
        match self.claim_for_decision(txn, Awaited::Commit, thd)? {
            Claim::Mine => match self.settle_prepared(txn, slot, thd)? {
                true => Ok(()),
                false => Err(Error::Interrupted),
            },
            Claim::Failed(reason) => Err(reason),
            Claim::Settled | Claim::Others => Ok(()),
        }
    }

    pub(super) fn begin_decision(&self, xid: &Xid) -> Result<Transaction> {
        let mut all = self.prepared.lock();
        let prepared = all.get_mut(xid).ok_or(Error::NotFound)?;
        prepared.transaction.take().ok_or_else(|| {
            let text = "another session commits the prepared transaction or rolls it back";
            Error::InUse(text.into())
        })
    }

    pub(super) fn break_off_decision(&self, xid: &Xid, transaction: Transaction) {
        let mut all = self.prepared.lock();
        let prepared = all.get_mut(xid).expect("nobody else ends a decision");
        assert_eq!(prepared.id, transaction.id(), "another decision's");
        let before = prepared.transaction.replace(transaction);
        assert!(before.is_none(), "a decision that nobody began");
    }

    fn end_decision(&self, xid: &Xid, transaction: &Transaction) {
        assert_eq!(
            transaction.phase(),
            Phase::Idle,
            "a decision without an end"
        );
        self.no_longer_prepared(xid);
        self.forget_slot(&transaction.slot);
    }

    /// It is decided, and the caller has it.
    pub(super) fn no_longer_prepared(&self, xid: &Xid) {
        let mut all = self.prepared.lock();
        let ended = all.remove(xid).expect("nobody else ends a decision");
        assert!(ended.transaction.is_none(), "a decision that nobody began");
        if let Some(next) = ended.next {
            all.insert(xid.clone(), *next);
        }
    }
}

impl Session {
    /// Commits what this connection has prepared and detached: as [`Engine::commit_by_xid`], but for what
    /// the connection stands for. The server keeps its locks on the tables, so nobody need be told
    /// that something goes on, and it is as durable on return as its other commits.
    ///
    /// # Errors
    /// As [`Engine::commit_by_xid`].
    pub fn commit_prepared(&mut self, xid: &Xid) -> Result<()> {
        let engine = self.engine.clone();
        debug_assert!(!self.has_changes(), "beside a transaction of its own");
        let mut transaction = engine.begin_commit(xid, 0)?;
        let id = transaction.id();
        let end = transaction.order(&engine);
        let left = transaction.finish_commit(&engine);
        debug_assert!(engine.txns.is_committed(id), "{id} is decided and not seen");
        engine.committed(left, &mut self.buffers.scratch);
        self.make_durable(end, false);
        engine.end_decision(xid, &transaction);
        Ok(())
    }
}
