//! One client: a session of the engine, its transaction as the model sees it, and what errors
//! mean to it.

use crate::corner::Corner;
use crate::damage::note_durable;
use crate::environment::Environment;
use crate::guarded::Guarded;
use crate::model::{State, TableNo, Writes, MARKS};
use crate::plan::FaultMode;
use crate::rows::Row;
use ferrite_engine::{DupInfo, Engine, Isolation, Session, Table, Xid};
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, thread, Arc};
use ferrite_types::{Error, TxnId, UndoPosition};
use std::collections::{BTreeMap, BTreeSet};

/// A range of an index that this transaction has locked, gaps included.
pub struct LockedRange {
    /// Table.
    pub table: TableNo,
    /// Index number.
    pub index_no: usize,
    /// First key.
    pub low: Vec<u8>,
    /// Last key; None: to the end.
    pub high: Option<Vec<u8>>,
    /// Clock of the model when it was locked.
    pub since: u64,
}

/// The running transaction.
#[derive(Default)]
pub struct Tx {
    /// Its number in the model.
    pub serial: u64,
    /// What it wrote.
    pub writes: Writes,
    /// Its mark is there.
    pub marked: bool,
    /// Tables it uses.
    pub tables: BTreeMap<TableNo, Arc<Table>>,
    /// Ranges it has locked.
    pub ranges: Vec<LockedRange>,
    /// Savepoints.
    pub saves: Vec<(UndoPosition, Writes)>,
    /// Tables it has tried to change.
    pub touched: BTreeSet<TableNo>,
    /// It is prepared and goes on without this client.
    pub detached: bool,
}

/// Whether a transaction goes on after a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum After {
    /// It goes on.
    GoesOn,
    /// It is over: rolled back.
    Over,
}

/// A client.
pub struct Client {
    /// The environment.
    pub environment: Arc<Environment>,
    /// The engine of this life.
    pub engine: Arc<Engine>,
    /// Its session.
    pub session: Guarded,
    /// Its choices.
    pub rng: Rng,
    /// Its connection.
    pub thd: usize,
    /// Level of its transactions.
    pub isolation: Isolation,
    /// Its transaction.
    pub tx: Tx,
}

impl Client {
    /// A client of that connection number.
    pub fn new(
        environment: &Arc<Environment>,
        engine: &Arc<Engine>,
        thd: usize,
        seed: u64,
    ) -> Client {
        Client {
            environment: environment.clone(),
            engine: engine.clone(),
            session: Guarded::new(engine, thd),
            rng: Rng::new(seed),
            thd,
            isolation: Isolation::RepeatableRead,
            tx: Tx::default(),
        }
    }

    /// The session.
    pub fn s(&mut self) -> &mut Session {
        self.session.get()
    }

    /// Another session on the same connection number: its client has gone and come back.
    pub fn new_session(&mut self) {
        self.session = Guarded::new(&self.engine, self.thd);
    }

    /// A transaction begins.
    pub fn begin(&mut self) {
        self.tx = Tx {
            serial: self.environment.model().new_serial(),
            ..Tx::default()
        };
        self.isolation = Isolation::RepeatableRead;
        if self.environment.plan.isolation_mix {
            self.isolation = match self.rng.below(8) {
                0 => Isolation::ReadUncommitted,
                1..=3 => Isolation::ReadCommitted,
                4 => Isolation::Serializable,
                _ => Isolation::RepeatableRead,
            };
        }
        let often = 1 + u64::from(self.environment.plan.extra.corner == Some(Corner::Values));
        if self.environment.plan.extra.dirty && self.rng.chance(often, 3) {
            self.isolation = Isolation::ReadUncommitted;
        }
    }

    /// A statement begins.
    pub fn statement(&mut self) {
        let isolation = self.isolation;
        let owner = self.s().owner().clone();
        self.environment.statement_begins(self.thd, &owner);
        self.s().begin_statement(isolation);
        self.environment.tally().operations += 1;
    }

    /// A statement ends well.
    pub fn statement_ends(&mut self) {
        self.s().end_statement();
        self.environment.statement_ends(self.thd);
    }

    /// Takes a table into use for this transaction; None while DDL has it.
    pub fn use_table(&mut self, table: TableNo) -> Option<Arc<Table>> {
        if let Some(t) = self.tx.tables.get(&table) {
            return Some(t.clone());
        }
        let name = {
            let mut model = self.environment.model();
            let t = model.tables.get_mut(&table)?;
            if t.ddl.is_some() {
                return None;
            }
            t.users += 1;
            t.name.clone()
        };
        match self.engine.dict().open_table(&name) {
            Ok(t) => {
                self.tx.tables.insert(table, t.clone());
                Some(t)
            }
            Err(e) => {
                self.environment
                    .model()
                    .tables
                    .entry(table)
                    .and_modify(|t| t.users -= 1);
                self.expect_injected(&e, "open table");
                None
            }
        }
    }

    fn release_tables(&mut self) {
        let mut model = self.environment.model();
        for table in std::mem::take(&mut self.tx.tables).keys() {
            if let Some(t) = model.tables.get_mut(table) {
                t.users -= 1;
            }
        }
    }

    /// Any table but that of marks.
    pub fn any_table(&mut self) -> Option<TableNo> {
        let list: Vec<TableNo> = {
            let model = self.environment.model();
            model
                .tables
                .keys()
                .filter(|t| **t != MARKS && model.tables[*t].is_for(self.thd))
                .copied()
                .collect()
        };
        (!list.is_empty()).then(|| list[self.rng.below(list.len() as u64) as usize])
    }

    /// Panics unless the run injects faults of this kind.
    pub fn expect_injected(&self, e: &Error, what: &str) {
        assert!(self.environment.is_injected(e), "{what}: {e}");
    }

    /// A statement failed: what a server does then.
    pub fn failed(&mut self, e: &Error, what: &str) -> After {
        self.environment.statement_ends(self.thd);
        self.environment.tally().errors += 1;
        if *e == Error::Interrupted {
            let killed = self.environment.was_killed(self.thd);
            assert!(killed, "{what}: interrupted, and nobody has killed it");
        }
        match e {
            Error::Deadlock | Error::RolledBack => return self.roll_back(),
            Error::LockTimeout | Error::Skipped | Error::Duplicate | Error::Interrupted => {
                if self.rng.chance(1, 3) {
                    return self.roll_back();
                }
                if let Err(e) = self.s().rollback_statement() {
                    self.expect_injected(&e, "statement rollback");
                    return self.roll_back();
                }
                return After::GoesOn;
            }
            // The table is newer than the snapshot (`read` knows when that may be).
            Error::TableChanged if self.s().snapshot_number().is_some() => {}
            Error::SnapshotTooOld if self.environment.plan.config.max_history_bytes > 0 => {}
            _ => self.expect_injected(e, what),
        }
        self.roll_back()
    }

    /// Rolls the transaction back.
    pub fn roll_back(&mut self) -> After {
        self.note("rolls back");
        let mut result = self.s().rollback();
        for _ in 0..5 {
            if let Err(e) = &result {
                self.expect_injected(e, "rollback");
                thread::sleep_ms(5);
                result = self.s().rollback();
            }
        }
        if let Err(e) = result {
            // The server would end itself here.
            ferrite_sync::stop::fatal(&format!("rollback: {e}"));
        }
        self.over();
        After::Over
    }

    /// The transaction has ended, one way or the other.
    pub fn over(&mut self) {
        self.environment.statement_ends(self.thd);
        if !self.tx.detached {
            self.environment.disturbs_no_more(self.tx.serial);
        }
        self.release_tables();
        self.tx = Tx::default();
    }

    /// Puts the transaction's mark down, before its first change.
    pub fn mark(&mut self) -> Result<(), Error> {
        if self.tx.marked {
            return Ok(());
        }
        let marks = self.use_table(MARKS).ok_or(Error::LockTimeout)?;
        let serial = self.tx.serial;
        let row = mark_row(serial);
        let (pk, payload) = {
            let model = self.environment.model();
            let shape = &model.table(MARKS).shape;
            (shape.pk(serial), shape.payload(&row))
        };
        self.statement();
        let dup = &mut DupInfo::default();
        self.s()
            .insert_row(&marks, Some(&pk), &payload, &[], false, dup)?;
        self.statement_ends();
        self.tx.writes.insert((MARKS, serial), Some(row));
        self.tx.marked = true;
        Ok(())
    }

    // ---- the end of a transaction ----------------------------------------------------------

    /// A line for the trace.
    pub fn note(&mut self, what: &str) {
        let (serial, id) = (self.tx.serial, self.s().txn_id());
        sim::note(&format!("tx {serial} ({id}): {what}"));
    }

    fn txn_id(&mut self) -> TxnId {
        self.s().txn_id()
    }

    /// Commits in one phase.
    pub fn commit(&mut self) {
        if !self.s().has_changes() {
            assert!(self.tx.writes.is_empty(), "changes without a transaction");
            if let Err(e) = self.s().commit(false) {
                panic!("commit of a reader: {e}");
            }
            self.over();
            return;
        }
        self.check_ranges();
        self.note("commits");
        let (serial, id) = (self.tx.serial, self.txn_id());
        let writes = std::mem::take(&mut self.tx.writes);
        self.environment
            .model()
            .ask(serial, id, writes, State::Committing);
        let hold = self.environment.plan.held_answers && self.rng.chance(2, 3);
        if hold {
            self.environment.allow_hold(self.thd, serial);
        }
        if let Err(e) = self.s().commit(hold) {
            panic!("commit: {e}");
        }
        self.committed(serial, !hold);
        if hold && !self.environment.wait_if_held(self.thd) {
            self.answered(serial);
        }
        self.over();
    }

    /// The engine says that it is committed: so it is for everybody from now on.
    fn committed(&mut self, serial: u64, answered: bool) {
        if answered {
            self.answered(serial);
        }
        sim::note(&format!("tx {serial} is committed"));
        self.environment.resolve(&self.engine);
        let mut model = self.environment.model();
        let state = model.txns.get(&serial).map(|t| t.state);
        match state {
            Some(State::Committed(csn)) => {
                model.answered_csn = model.answered_csn.max(csn);
            }
            other => panic!("transaction {serial} was committed and is {other:?}"),
        }
        // Two that brought the same value at once do not see each other before.
        for table in self.tx.tables.keys() {
            if let Some((a, b)) = model.same_unique(*table) {
                panic!("rows {a} and {b} of table {table} have the same unique value");
            }
        }
        model.check_families();
    }

    fn answered(&mut self, serial: u64) {
        note_durable(&self.environment, &self.engine);
        let durable = self.environment.plan.config.flush_log_at_commit == 1;
        if let Some(t) = self.environment.model().txns.get_mut(&serial) {
            t.durable |= durable;
        }
        self.environment.tally().commits += 1;
    }

    /// First phase, and then one of the ways to go on.
    pub fn two_phases(&mut self) {
        if !self.s().has_changes() {
            return match self.environment.plan.extra.comebacks && self.s().is_active() {
                true => self.prepare_locks(),
                false => self.commit(),
            };
        }
        self.check_ranges();
        self.note("prepares");
        let (serial, id) = (self.tx.serial, self.txn_id());
        let xid = xid_of(serial);
        let writes = std::mem::take(&mut self.tx.writes);
        let touched = std::mem::take(&mut self.tx.touched);
        {
            let mut model = self.environment.model();
            let t = model.ask(serial, id, writes, State::Preparing);
            t.xid = Some(xid.clone());
            t.touched = touched;
        }
        if let Err(e) = self.s().prepare(&xid) {
            panic!("prepare: {e}");
        }
        if serial % 2 == 0 {
            self.s().release_reads();
        }
        let durable = self.environment.plan.config.flush_log_at_commit == 1;
        if let Some(t) = self.environment.model().txns.get_mut(&serial) {
            t.state = State::Prepared;
            t.prepare_durable = durable;
        }
        let way = self.rng.below(6);
        match way {
            0 => {
                self.environment.model().decide(serial, State::RollingBack);
                self.roll_back();
                // It was answered: no crash may bring it back.
                self.environment.model().forget(serial);
                return;
            }
            1 => self.detach(serial),
            2..=4 if self.environment.plan.extra.comebacks => self.detach(serial),
            _ => self.second_phase(serial),
        }
        self.over();
        if self.environment.plan.extra.comebacks && way > 0 {
            self.disconnect();
        }
    }

    fn detach(&mut self, serial: u64) {
        self.note("is detached");
        self.s().detach_prepared();
        self.tx.detached = true;
        if let Some(t) = self.environment.model().txns.get_mut(&serial) {
            t.detached = true;
        }
    }

    /// A transaction that has locks and no changes is prepared, and its client goes: nothing of
    /// it stays.
    fn prepare_locks(&mut self) {
        self.check_ranges();
        self.note("prepares its locks");
        let xid = xid_of(self.tx.serial);
        if let Err(e) = self.s().prepare(&xid) {
            panic!("prepare of locks: {e}");
        }
        self.s().detach_prepared();
        self.over();
        self.disconnect();
        let left = self.engine.prepared_xids().contains(&xid);
        assert!(!left, "a transaction without changes is prepared");
    }

    fn second_phase(&mut self, serial: u64) {
        self.environment.model().decide(serial, State::Committing);
        let wait = self.rng.chance(1, 2);
        self.s().commit_ordered();
        self.committed(serial, false);
        if let Err(e) = self.s().commit_finish(wait) {
            panic!("commit_finish: {e}");
        }
        // The wait follows the setting, as that of a commit in one phase does.
        if wait && self.environment.plan.config.flush_log_at_commit == 1 {
            if let Some(t) = self.environment.model().txns.get_mut(&serial) {
                t.durable = true;
            }
        }
        self.environment.tally().commits += 1;
    }

    /// Nobody else has changed what this transaction has locked.
    pub fn check_ranges(&mut self) {
        if self.tx.ranges.is_empty() {
            return;
        }
        self.environment.resolve(&self.engine);
        let model = self.environment.model();
        for range in &self.tx.ranges {
            let Some(t) = model.tables.get(&range.table) else {
                continue;
            };
            for (n, versions) in &t.rows {
                for (at, v) in versions.iter().enumerate() {
                    let public = model.txns.get(&v.by).and_then(|t| t.public).unwrap_or(0);
                    if public <= range.since {
                        continue;
                    }
                    let before = at.checked_sub(1).and_then(|b| versions[b].row.as_ref());
                    for row in [before, v.row.as_ref()].into_iter().flatten() {
                        let key = t.shape.index_key(range.index_no, *n, row);
                        let inside =
                            key >= range.low && range.high.as_ref().is_none_or(|high| key <= *high);
                        assert!(
                            !inside,
                            "transaction {} changed row {n} of {} in a range of index {} that \
                             transaction {} has locked",
                            v.by, t.name, range.index_no, self.tx.serial
                        );
                    }
                }
            }
        }
    }
}

/// The row of a transaction in the table of marks.
pub fn mark_row(serial: u64) -> Row {
    Row {
        stamp: serial,
        k: 0,
        u: serial,
        fill: 0,
        big: None,
    }
}

/// The name of a distributed transaction.
pub fn xid_of(serial: u64) -> Xid {
    Xid {
        format_id: 7,
        gtrid_len: 8,
        data: serial.to_be_bytes().to_vec(),
    }
}

/// In which runs errors of reading are to be expected, rollbacks included.
pub fn reads_may_fail(environment: &Environment) -> bool {
    environment.plan.faults == FaultMode::BadReads || environment.may_be_damaged()
}
