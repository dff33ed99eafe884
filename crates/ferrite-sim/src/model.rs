//! The oracle: every state of every row since the machine's start, by commit number, and what
//! every transaction has been promised.
//!
//! The model is serial and trusts the engine in one thing, the commit numbers; and that is
//! checked, too: a commit that was answered before a snapshot was opened has a number within
//! it, and what survives a crash is closed under "was published before".
//!
//! Invariants:
//! - Versions of a row are sorted by commit number; number 0 is the state this life began
//!   with.
//! - A transaction's writes stand in its `Txn` from the moment its commit is asked for; they
//!   become versions when the engine says that it is committed (`Environment::resolve`).
//!
//! Locking: one real mutex (`Environment::model`) that is never held over a call of the engine,
//! since the engine may hand the baton to another task.

use crate::family::{orphans_of, Constraint};
use crate::rows::{Row, Secondary, Shape};
use ferrite_engine::Xid;
use ferrite_types::TxnId;
use std::collections::{BTreeMap, BTreeSet};

/// Number of a table in the model; 0 holds one mark a transaction.
pub type TableNo = u32;

/// The table of marks: a transaction's own row there says that it is committed.
pub const MARKS: TableNo = 0;

/// What a transaction wrote last to each row.
pub type Writes = BTreeMap<(TableNo, u64), Option<Row>>;

/// One committed state of a row.
#[derive(Clone, Debug)]
pub struct Version {
    /// Commit number; 0: from before this life.
    pub csn: u64,
    /// The transaction.
    pub by: u64,
    /// The state; None: no row.
    pub row: Option<Row>,
}

/// DDL that was begun and not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ddl {
    /// CREATE TABLE.
    Create,
    /// DROP TABLE.
    Drop,
    /// TRUNCATE TABLE.
    Truncate,
    /// RENAME TABLE to this.
    Rename(String),
    /// It is being filled with another one's rows; unfinished, it is nobody's.
    Fill,
    /// Its rows go into another one, or to a file.
    Copied,
    /// It is empty, and these rows come into it, all at once.
    Import(BTreeMap<u64, Row>),
    /// It gets these foreign keys in place of those that it has.
    Constrain(Vec<Constraint>),
}

/// One table.
#[derive(Clone, Debug)]
pub struct TableModel {
    /// Its name.
    pub name: String,
    /// Its rows' shape.
    pub shape: Shape,
    /// Every state of every row.
    pub rows: BTreeMap<u64, Vec<Version>>,
    /// Transactions that use it: DDL keeps away.
    pub users: u32,
    /// DDL in progress: transactions keep away.
    pub ddl: Option<Ddl>,
    /// The only connection that uses it.
    pub owner: Option<usize>,
    /// It goes with its connection.
    pub temporary: bool,
    /// A snapshot of everything up to this number is older than the contents: it is refused.
    pub newer_than: u64,
    /// A snapshot from this number on is never refused.
    pub complete_at: u64,
    /// Its foreign keys.
    pub constraints: Vec<Constraint>,
}

impl TableModel {
    /// An empty table.
    pub fn new(name: &str, shape: Shape) -> TableModel {
        TableModel {
            name: name.to_owned(),
            shape,
            rows: BTreeMap::new(),
            users: 0,
            ddl: None,
            owner: None,
            temporary: false,
            newer_than: 0,
            complete_at: 0,
            constraints: Vec::new(),
        }
    }

    /// May that connection use it?
    pub fn is_for(&self, thd: usize) -> bool {
        self.owner.is_none_or(|owner| owner == thd)
    }

    /// The state of a row for a snapshot (`u64::MAX`: now).
    pub fn at(&self, n: u64, csn: u64) -> Option<&Row> {
        let versions = self.rows.get(&n)?;
        versions.iter().rev().find(|v| v.csn <= csn)?.row.as_ref()
    }

    /// Adds a version, in its place.
    pub fn add(&mut self, n: u64, version: Version) {
        let list = self.rows.entry(n).or_default();
        let at = list.partition_point(|v| v.csn <= version.csn);
        list.insert(at, version);
    }

    /// Forgets all but the newest state of each row: a new life begins.
    pub fn settle(&mut self) {
        (self.newer_than, self.complete_at) = (0, 0);
        self.rows.retain(|_, list| {
            let last = list.pop().filter(|v| v.row.is_some());
            list.clear();
            list.extend(last.map(|v| Version { csn: 0, ..v }));
            !list.is_empty()
        });
    }
}

/// What a transaction has been promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first phase was asked for.
    Preparing,
    /// The first phase was answered.
    Prepared,
    /// Commit was asked for; the engine has not shown it yet.
    Committing,
    /// The engine shows it, under this number.
    Committed(u64),
    /// Rollback of a prepared transaction was asked for.
    RollingBack,
}

/// A transaction that has asked for its end.
#[derive(Clone, Debug)]
pub struct Txn {
    /// The engine's id.
    pub id: TxnId,
    /// What it wrote.
    pub writes: Writes,
    /// Tables it may have changed, if only to take it back.
    pub touched: BTreeSet<TableNo>,
    /// What it was promised.
    pub state: State,
    /// Its name, if it was prepared.
    pub xid: Option<Xid>,
    /// The first phase was answered and durable: it must not be lost.
    pub prepare_durable: bool,
    /// Commit was answered as durable: it must be there.
    pub durable: bool,
    /// It belongs to no session; somebody may decide it.
    pub detached: bool,
    /// It was prepared in an earlier life.
    pub restored: bool,
    /// Others have seen it committed before a crash: the decision can only be commit.
    pub must_commit: bool,
    /// Clock of the model when commit was asked for, and when it was seen to be public.
    pub asked: u64,
    /// See `asked`.
    pub public: Option<u64>,
}

/// All of it.
#[derive(Clone, Default)]
pub struct Model {
    /// Tables by their number.
    pub tables: BTreeMap<TableNo, TableModel>,
    /// Transactions that asked for their end in this life, and prepared ones of earlier ones.
    pub txns: BTreeMap<u64, Txn>,
    /// Greatest commit number that was answered.
    pub answered_csn: u64,
    /// Every state that was ever offered to a table, by table and stamp, with its row number.
    pub offered: BTreeMap<(TableNo, u64), (u64, Row)>,
    /// The number of the row that was offered last.
    pub latest: u64,
    made: BTreeSet<String>,
    next_serial: u64,
    next_table: TableNo,
    next_stamp: u64,
    clock: u64,
}

impl Model {
    /// Number of a new transaction.
    pub fn new_serial(&mut self) -> u64 {
        self.next_serial += 1;
        self.next_serial
    }

    /// Stamp of a new row state.
    pub fn new_stamp(&mut self) -> u64 {
        self.next_stamp += 1;
        self.next_stamp
    }

    /// A state is about to be written.
    pub fn offer(&mut self, table: TableNo, n: u64, row: Row) {
        self.offered.insert((table, row.stamp), (n, row));
        self.latest = n;
    }

    /// A table has these rows, which no statement wrote.
    pub fn imported(&mut self, table: TableNo, rows: BTreeMap<u64, Row>) {
        for (n, row) in &rows {
            self.offered.insert((table, row.stamp), (*n, *row));
        }
        let t = self.tables.get_mut(&table).expect("an imported table");
        t.rows = versions(rows);
    }

    /// A table is gone, or its rows are: what was written to it must not come back.
    pub fn forget_writes(&mut self, table: TableNo) {
        for t in self.txns.values_mut() {
            t.writes.retain(|(no, _), _| *no != table);
            t.touched.remove(&table);
        }
    }

    /// Transactions that are not over and may have changed the table; `undecided`: prepared,
    /// and nobody has been told to decide them.
    pub fn holders(&self, table: TableNo, undecided: bool) -> Vec<u64> {
        let holds = |t: &Txn| match t.state {
            State::Committed(_) => false,
            State::Prepared if undecided => t.writes.keys().any(|(no, _)| *no == table),
            _ => !undecided && t.touched.contains(&table),
        };
        let list = self.txns.iter().filter(|(_, t)| holds(t));
        list.map(|(serial, _)| *serial).collect()
    }

    /// Do other tables have constraints that refer to it?
    pub fn others_refer(&self, table: TableNo) -> bool {
        let Some(t) = self.tables.get(&table) else {
            return false;
        };
        let others = self.referring_to(&t.name);
        others.iter().any(|other| *other != table)
    }

    /// Number of a new table; never that of the marks.
    pub fn new_table(&mut self) -> TableNo {
        self.next_table += 1;
        self.next_table
    }

    /// Was this table of the plan made, ever?
    pub fn was_made(&self, name: &str) -> bool {
        self.made.contains(name) || self.tables.values().any(|t| t.name == name)
    }

    /// It was.
    pub fn made(&mut self, name: &str) {
        self.made.insert(name.to_owned());
    }

    /// Moves the model's own clock, which orders what clients ask and see.
    pub fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Table of that number; it is there.
    pub fn table(&self, table: TableNo) -> &TableModel {
        &self.tables[&table]
    }

    /// A client asks for the end of its transaction.
    pub fn ask(&mut self, serial: u64, id: TxnId, writes: Writes, state: State) -> &mut Txn {
        let asked = self.tick();
        self.txns.entry(serial).or_insert_with(|| Txn {
            id,
            writes,
            touched: BTreeSet::new(),
            state,
            xid: None,
            prepare_durable: false,
            durable: false,
            detached: false,
            restored: false,
            must_commit: false,
            asked,
            public: None,
        })
    }

    /// Commit of a prepared transaction is asked for.
    pub fn decide(&mut self, serial: u64, state: State) {
        let asked = self.tick();
        if let Some(t) = self.txns.get_mut(&serial) {
            t.state = state;
            t.asked = asked;
            t.detached = false;
        }
    }

    /// Transactions whose commit number is not known yet.
    pub fn undecided(&self) -> Vec<(u64, TxnId)> {
        let open = |t: &Txn| t.state == State::Committing;
        let list = self.txns.iter().filter(|(_, t)| open(t));
        list.map(|(serial, t)| (*serial, t.id)).collect()
    }

    /// Transactions that are prepared and belong to no session.
    pub fn prepared(&self) -> Vec<TxnId> {
        let detached = self.txns.values().filter(|t| t.detached);
        detached.map(|t| t.id).collect()
    }

    /// Two rows of the table that have the same unique value by now.
    pub fn same_unique(&self, table: TableNo) -> Option<(u64, u64)> {
        let t = self.tables.get(&table)?;
        if !t.shape.secondary.contains(&Secondary::Unique) {
            return None;
        }
        let mut seen = BTreeMap::new();
        let now = |n: &u64| Some((*n, t.at(*n, u64::MAX)?.u));
        t.rows
            .keys()
            .filter_map(now)
            .find_map(|(n, u)| Some((seen.insert(u, n)?, n)))
    }

    /// The engine shows a transaction as committed: its writes become versions.
    pub fn publish(&mut self, serial: u64, csn: u64) {
        let now = self.tick();
        let Some(t) = self.txns.get_mut(&serial) else {
            return;
        };
        if t.state != State::Committing {
            return;
        }
        // The engine forgets at once the numbers of transactions that have come from an
        // earlier life, when no snapshot can tell the difference.
        assert!(
            csn > 0 || t.restored,
            "transaction {serial}: its commit number is forgotten"
        );
        t.state = State::Committed(csn);
        t.public = Some(now);
        let writes = t.writes.clone();
        for ((table, n), row) in writes {
            if let Some(table) = self.tables.get_mut(&table) {
                let last = table.rows.get(&n).and_then(|list| list.last());
                let csn = csn.max(if csn == 0 {
                    last.map_or(0, |v| v.csn)
                } else {
                    0
                });
                let by = serial;
                table.add(n, Version { csn, by, row });
            }
        }
    }

    /// A transaction is over and left nothing.
    pub fn forget(&mut self, serial: u64) {
        self.txns.remove(&serial);
    }

    /// The row as a reader sees it: its own writes, else the state at a commit number.
    pub fn view(&self, table: TableNo, n: u64, csn: u64, own: &Writes) -> Option<Row> {
        match own.get(&(table, n)) {
            Some(row) => *row,
            None => self.tables.get(&table)?.at(n, csn).copied(),
        }
    }

    /// All rows of a table as a reader sees them.
    pub fn view_all(&self, table: TableNo, csn: u64, own: &Writes) -> BTreeMap<u64, Row> {
        let mut all = BTreeMap::new();
        if let Some(t) = self.tables.get(&table) {
            for n in t.rows.keys() {
                if let Some(row) = t.at(*n, csn) {
                    all.insert(*n, *row);
                }
            }
        }
        for ((_, n), row) in own.range((table, 0)..=(table, u64::MAX)) {
            match row {
                Some(row) => all.insert(*n, *row),
                None => all.remove(n),
            };
        }
        all
    }

    /// The entries of an index in their order: whole key, row number, row.
    pub fn index(
        &self,
        table: TableNo,
        index_no: usize,
        csn: u64,
        own: &Writes,
    ) -> Vec<(Vec<u8>, u64, Row)> {
        let shape = &self.table(table).shape;
        let rows = self.view_all(table, csn, own);
        let mut entries: Vec<_> = rows
            .into_iter()
            .map(|(n, row)| (shape.index_key(index_no, n, &row), n, row))
            .collect();
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries
    }
}

// ---- foreign keys ----------------------------------------------------------------------------

impl Model {
    /// The table of that name.
    pub fn named(&self, name: &str) -> Option<TableNo> {
        let mut tables = self.tables.iter();
        tables.find(|(_, t)| t.name == name).map(|(no, _)| *no)
    }

    /// Tables with constraints that refer to that name.
    pub fn referring_to(&self, name: &str) -> Vec<TableNo> {
        let refers = |t: &TableModel| t.constraints.iter().any(|c| c.parent == name);
        let children = self.tables.iter().filter(|(_, t)| refers(t));
        children.map(|(no, _)| *no).collect()
    }

    /// A table has another name: so it has in all constraints.
    pub fn renamed(&mut self, no: TableNo, to: &str) {
        let Some(from) = self.tables.get(&no).map(|t| t.name.clone()) else {
            return;
        };
        for (child, t) in &mut self.tables {
            for constraint in &mut t.constraints {
                constraint.follow(*child == no, &from, to);
            }
        }
        self.tables.entry(no).and_modify(|t| t.name = to.to_owned());
    }

    /// Parents of that name went and nobody looked for their children.
    pub fn went_unchecked(&mut self, name: &str) {
        for t in self.tables.values_mut() {
            for constraint in t.constraints.iter_mut().filter(|c| c.parent == name) {
                constraint.enforced = false;
            }
        }
    }

    /// Of each constraint of a table: rows without a parent for a snapshot, by what they refer to.
    pub fn orphans(&self, no: TableNo, csn: u64) -> Vec<(&Constraint, BTreeMap<Vec<u64>, u64>)> {
        let (t, none) = (self.table(no), Writes::new());
        let rows = self.view_all(no, csn, &none);
        let of = |constraint: &Constraint| match self.named(&constraint.parent) {
            Some(parent) => orphans_of(constraint, &rows, &self.view_all(parent, csn, &none)),
            None => orphans_of(constraint, &rows, &BTreeMap::new()),
        };
        t.constraints.iter().map(|c| (c, of(c))).collect()
    }

    /// Every row that is committed has its parents, wherever they are promised.
    pub fn check_families(&self) {
        for (no, t) in &self.tables {
            if t.constraints.is_empty() || t.ddl.is_some() {
                continue;
            }
            for (constraint, orphans) in self.orphans(*no, u64::MAX) {
                // What is being emptied or dropped is gone in the core before the model knows.
                let parent = self.named(&constraint.parent);
                let changes = parent.is_none_or(|p| self.table(p).ddl.is_some());
                assert!(
                    orphans.is_empty() || changes || !constraint.enforced,
                    "orphans of {} in {}: {orphans:?} are not in {}",
                    constraint.name,
                    t.name,
                    constraint.parent
                );
            }
        }
    }
}

/// Each row as if it had been there for ever.
pub fn versions(rows: BTreeMap<u64, Row>) -> BTreeMap<u64, Vec<Version>> {
    let version = |row| Version {
        csn: 0,
        by: 0,
        row: Some(row),
    };
    let each = rows.into_iter().map(|(n, row)| (n, vec![version(row)]));
    each.collect()
}
