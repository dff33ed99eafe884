//! After a restart: what is there must be what was promised.
//!
//! | promised | must be there | may be there | must not be there |
//! | --- | --- | --- | --- |
//! | commit answered as durable | wholly | | |
//! | commit asked for | | wholly or not at all | in part |
//! | first phase answered | prepared, under its XID | | lost |
//! | nothing asked for | | | any of it |
//!
//! And what survives is closed: with a commit, everything that was public before it was asked
//! for survives too.
//!
//! Everything is read first and the model changed at the end in one step, so that a crash in
//! between leaves the model as it was.

use crate::client::Client;
use crate::environment::Environment;
use crate::family::Constraint;
use crate::model::{Ddl, Model, State, TableModel, TableNo, Txn, Version, MARKS};
use crate::rows::{describe, pattern, Shape};
use crate::travel::placed;

use ferrite_engine::{
    Cursor, DdlCaller, Engine, ForeignFault, ForeignKey, Isolation, ReadMode, Session, Table,
    WaitMode,
};
use ferrite_sync::{sim, Arc};
use ferrite_types::Error;
use std::collections::{BTreeMap, BTreeSet};

/// Payloads by row number.
type Rows = BTreeMap<u64, Vec<u8>>;

/// What a restart found.
struct Found {
    /// Names of the tables.
    names: BTreeSet<String>,
    /// Rows of each table that is there.
    rows: BTreeMap<TableNo, Rows>,
    /// Numbers of the prepared transactions.
    prepared: BTreeSet<u64>,
    /// Foreign keys of each table that is there.
    keys: BTreeMap<TableNo, Vec<Arc<ForeignKey>>>,
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Committed,
    Prepared,
    Lost,
}

/// Compares what a restart found with the model; the model then begins a new life.
///
/// # Errors
/// A read that failed, where the run injects such faults.
pub fn verify(environment: &Arc<Environment>, engine: &Arc<Engine>) -> Result<(), Error> {
    clear_away(environment, engine)?;
    let found = find(environment, engine)?;
    let fates = prove(environment, &found);
    let tables = {
        let model = environment.model();
        let tables = apply(&model, &fates);
        compare(environment.plan.seed, &model, &tables, &found);
        tables
    };
    read_values(engine, &tables)?;
    begin_life(&mut environment.model(), tables, &fates, &found);
    environment.model().check_families();
    Ok(())
}

/// Temporary tables are gone. Those that were being filled go now, as the server's recovery of
/// DDL does it.
fn clear_away(environment: &Arc<Environment>, engine: &Arc<Engine>) -> Result<(), Error> {
    let temporary = engine.dict().tables_of("tmp");
    assert!(
        temporary.is_empty(),
        "temporary tables after a restart: {temporary:?}"
    );
    let unfilled: Vec<(TableNo, String)> = {
        let mut model = environment.model();
        model.tables.retain(|_, t| !t.temporary);
        let unfilled = model
            .tables
            .iter()
            .filter(|(_, t)| t.ddl == Some(Ddl::Fill));
        unfilled.map(|(no, t)| (*no, t.name.clone())).collect()
    };
    for (no, name) in unfilled {
        match engine.drop_table(&name, &DdlCaller::default()) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(e) => return Err(e),
        }
        environment.model().tables.remove(&no);
    }
    Ok(())
}

/// What became of each transaction, if that may be.
fn prove(environment: &Environment, found: &Found) -> BTreeMap<u64, Fate> {
    let mut model = environment.model();
    settle_ddl(&mut model, found);
    let fates = fates(&model, found);
    for (serial, fate) in &fates {
        let t = &model.txns[serial];
        sim::note(&format!(
            "after the restart: tx {serial} ({}) {:?}: {fate:?}",
            t.id, t.state
        ));
    }
    check_closed(&model, &fates);
    fates
}

/// Every value out of line is there, byte for byte.
fn read_values(engine: &Engine, tables: &BTreeMap<TableNo, TableModel>) -> Result<(), Error> {
    for t in tables.values() {
        for (n, big) in t.rows.keys().filter_map(|n| Some((n, t.at(*n, 0)?.big?))) {
            let mut value = vec![0; big.len as usize];
            engine
                .read_overflow(&big.reference, &mut value)
                .map_err(|e| {
                    sim::note(&format!("row {n} of {}: {e}", t.name));
                    e
                })?;
            let same = value == pattern(big.seed, value.len());
            assert!(
                same,
                "row {n} of {}: its value out of line is wrong",
                t.name
            );
        }
    }
    Ok(())
}

fn find(environment: &Arc<Environment>, engine: &Arc<Engine>) -> Result<Found, Error> {
    let names: BTreeSet<String> = engine.dict().tables_of("sim").into_iter().collect();
    let mut by_name: BTreeMap<String, (TableNo, Shape)> = BTreeMap::new();
    for (no, t) in &environment.model().tables {
        by_name.insert(t.name.clone(), (*no, t.shape.clone()));
        if let Some(Ddl::Rename(to)) = &t.ddl {
            by_name.insert(to.clone(), (*no, t.shape.clone()));
        }
    }
    let prepared = engine.prepared_xids();
    let prepared = prepared
        .iter()
        .map(|x| u64::from_be_bytes(x.data[..].try_into().expect("an xid of ours")))
        .collect();
    let (mut rows, mut keys) = (BTreeMap::new(), BTreeMap::new());
    for name in &names {
        let (no, shape) = by_name
            .get(name)
            .unwrap_or_else(|| panic!("table {name} is unknown"));
        let table = engine.dict().open_table(name)?;
        rows.insert(*no, read_all(environment, engine, &table, shape)?);
        keys.insert(*no, engine.dict().foreign_keys_of(name));
    }
    Ok(Found {
        names,
        rows,
        prepared,
        keys,
    })
}

/// Every row, by the clustered index; the others must have the same ones.
fn read_all(
    environment: &Environment,
    engine: &Arc<Engine>,
    table: &Arc<Table>,
    shape: &Shape,
) -> Result<Rows, Error> {
    let mut client = crate::guarded::Guarded::new(engine, 0);
    let s = client.get();
    s.begin_statement(Isolation::RepeatableRead);
    let mut rows = Rows::new();
    for index_no in 0..table.index_count() {
        let mut seen = BTreeSet::new();
        let mut c = Cursor::new(table, index_no, ReadMode::Snapshot, WaitMode::Wait);
        let mut moved = c.first(s).map(|_| ());
        while moved.is_ok() {
            let row = c.current()?;
            let pk = row.pk.to_vec();
            let n = shape
                .number_of(&pk)
                .unwrap_or_else(|| panic!("a key that is none: {pk:?}"));
            assert!(seen.insert(n), "row {n} is twice in index {index_no}");
            if index_no == 0 {
                rows.insert(n, row.payload.to_vec());
            }
            moved = c.next(s).map(|_| ());
        }
        if moved != Err(Error::NotFound) {
            moved?;
        }
        assert!(
            seen.iter().eq(rows.keys()),
            "index {index_no} of {} has other rows than the table: too many {:?}, missing {:?}",
            table.spec.name,
            seen.iter()
                .filter(|n| !rows.contains_key(n))
                .collect::<Vec<_>>(),
            rows.keys()
                .filter(|n| !seen.contains(n))
                .collect::<Vec<_>>(),
        );
    }
    check_table(environment, s, table)?;
    s.commit(false)?;
    Ok(rows)
}

/// The engine's own check of a table finds nothing.
///
/// # Errors
/// A read that failed, where the run injects such faults.
pub fn check_table(
    environment: &Environment,
    s: &mut Session,
    table: &Arc<Table>,
) -> Result<(), Error> {
    let mut faults = Vec::new();
    match s.check_table(table, false, &mut |line| faults.push(line.to_owned())) {
        Ok(()) => Ok(()),
        Err(e) if environment.is_injected(&e) => Err(e),
        Err(e) => panic!("check of {}: {e}: {faults:?}", table.spec.name),
    }
}

/// DDL that was under way is done or is not.
fn settle_ddl(model: &mut Model, found: &Found) {
    let begun: Vec<TableNo> = model
        .tables
        .iter()
        .filter(|(_, t)| t.ddl.is_some())
        .map(|(no, _)| *no)
        .collect();
    for no in begun {
        let Some(t) = model.tables.get_mut(&no) else {
            continue;
        };
        let there = found.names.contains(&t.name);
        match t.ddl.clone() {
            Some(Ddl::Rename(to)) if !there => {
                assert!(
                    found.names.contains(&to),
                    "table {} is lost by a rename to {to}",
                    t.name
                );
                model.renamed(no, &to);
            }
            Some(Ddl::Constrain(new)) if are_defined(&new, &found.keys[&no]) => {
                t.constraints = new;
            }
            Some(Ddl::Create | Ddl::Drop) if !there => {
                model.tables.remove(&no);
                continue;
            }
            // The life that made it died before it noted so; under another name it is not to be made again.
            Some(Ddl::Create) => {
                let name = t.name.clone();
                model.made(&name);
            }
            // All or none of them; it is seen below whether they are the same.
            Some(Ddl::Import(rows)) => {
                let payloads = found.rows.get(&no).filter(|rows| !rows.is_empty());
                if let Some(rows) = payloads.and_then(|p| placed(&rows, p)) {
                    model.imported(no, rows);
                }
            }
            // It is seen below whether the rows are gone.
            Some(Ddl::Truncate) if found.rows.get(&no).is_some_and(BTreeMap::is_empty) => {
                t.rows.clear();
            }
            _ => {}
        }
    }
    let expected: BTreeSet<String> = model.tables.values().map(|t| t.name.clone()).collect();
    assert_eq!(found.names, expected, "tables after the restart");
}

/// Are these the foreign keys that the core has?
fn are_defined(constraints: &[Constraint], keys: &[Arc<ForeignKey>]) -> bool {
    let defined = |c: &Constraint| keys.iter().any(|key| c.is_defined_by(key));
    constraints.len() == keys.len() && constraints.iter().all(defined)
}

fn fates(model: &Model, found: &Found) -> BTreeMap<u64, Fate> {
    let none = Rows::new();
    let marks = found.rows.get(&MARKS).unwrap_or(&none);
    let fate = |serial: u64, t: &Txn| {
        if marks.contains_key(&serial) {
            let may = matches!(t.state, State::Committing | State::Committed(_));
            assert!(
                may,
                "transaction {serial} is committed and was {:?}",
                t.state
            );
            assert!(
                !found.prepared.contains(&serial),
                "transaction {serial} is both"
            );
            return Fate::Committed;
        }
        if found.prepared.contains(&serial) {
            assert!(
                t.xid.is_some() && !t.durable,
                "transaction {serial} is prepared and was {:?}, durable {}",
                t.state,
                t.durable
            );
            return Fate::Prepared;
        }
        assert!(
            !t.durable,
            "transaction {serial}: its commit was answered and is lost"
        );
        assert!(
            !t.prepare_durable || t.state == State::RollingBack,
            "transaction {serial} was prepared and is lost ({:?})",
            t.state
        );
        Fate::Lost
    };
    let fates: BTreeMap<u64, Fate> = model.txns.iter().map(|(n, t)| (*n, fate(*n, t))).collect();
    for serial in found.prepared.iter().chain(marks.keys()) {
        let before = model
            .tables
            .get(&MARKS)
            .is_some_and(|t| t.at(*serial, 0).is_some());
        assert!(
            fates.contains_key(serial) || before,
            "transaction {serial} did not ask for its end and has survived"
        );
    }
    fates
}

/// Who was public before a survivor's commit was asked for survives, too.
fn check_closed(model: &Model, fates: &BTreeMap<u64, Fate>) {
    let survivors = fates.iter().filter(|(_, f)| **f == Fate::Committed);
    let Some((last, asked)) = survivors
        .map(|(n, _)| (n, model.txns[n].asked))
        .max_by_key(|x| x.1)
    else {
        return;
    };
    for (serial, t) in &model.txns {
        let before = t.public.is_some_and(|public| public < asked);
        assert!(
            !before || fates[serial] == Fate::Committed,
            "transaction {serial} was public before {last} asked for its commit; {last} has \
             survived and {serial} is {:?}",
            fates[serial]
        );
    }
}

/// The tables as they must be.
fn apply(model: &Model, fates: &BTreeMap<u64, Fate>) -> BTreeMap<TableNo, TableModel> {
    let mut tables = model.tables.clone();
    for t in tables.values_mut() {
        for list in t.rows.values_mut() {
            // Number 0: from before this life, or of a restored transaction that was decided in it.
            list.retain(|v| match fates.get(&v.by) {
                Some(fate) => *fate == Fate::Committed,
                None => v.csn == 0,
            });
        }
    }
    // Those whose commit number nobody has seen come last: nobody has changed their rows
    // after them, or the number would be known.
    for (serial, fate) in fates {
        let t = &model.txns[serial];
        if *fate != Fate::Committed || t.state != State::Committing {
            continue;
        }
        for ((no, n), row) in &t.writes {
            if let Some(table) = tables.get_mut(no) {
                let (csn, by, row) = (u64::MAX, *serial, *row);
                table.add(*n, Version { csn, by, row });
            }
        }
    }
    tables.values_mut().for_each(TableModel::settle);
    tables
}

fn compare(seed: u64, model: &Model, tables: &BTreeMap<TableNo, TableModel>, found: &Found) {
    for (no, t) in tables {
        let (rows, keys) = (&found.rows[no], &found.keys[no]);
        assert!(
            are_defined(&t.constraints, keys),
            "foreign keys of {} after the restart: {keys:?}, expected {:?}",
            t.name,
            t.constraints
        );
        let numbers: BTreeSet<u64> = t.rows.keys().chain(rows.keys()).copied().collect();
        for n in numbers {
            let expected = t.at(n, 0);
            let same = match (expected, rows.get(&n)) {
                (Some(row), Some(payload)) => t.shape.is_payload_of(payload, row),
                (None, None) => true,
                _ => false,
            };
            assert!(
                same,
                "seed {seed}: after the restart row {n} of {} is {:?}, expected {expected:?}; \
                 its history: {:?}",
                t.name,
                rows.get(&n).map(|p| describe(p)),
                model.tables.get(no).and_then(|t| t.rows.get(&n))
            );
        }
    }
}

fn begin_life(
    model: &mut Model,
    tables: BTreeMap<TableNo, TableModel>,
    fates: &BTreeMap<u64, Fate>,
    found: &Found,
) {
    model.tables = tables;
    for t in model.tables.values_mut() {
        t.users = 0;
        t.ddl = None;
        t.owner = t.owner.filter(|owner| *owner == crate::bulk::THD);
    }
    model
        .txns
        .retain(|serial, _| fates[serial] == Fate::Prepared);
    for serial in &found.prepared {
        if let Some(t) = model.txns.get_mut(serial) {
            t.must_commit |= matches!(t.state, State::Committed(_));
            t.state = State::Prepared;
            t.restored = true;
            t.prepare_durable = true;
            t.durable = false;
            t.public = None;
            t.detached = true;
        }
    }
    model.answered_csn = 0;
}

/// Everything as of now equals the model, by every index of every table, both ways.
///
/// # Errors
/// A read that failed, where the run injects such faults.
pub fn check_all(client: &mut Client) -> Result<(), Error> {
    let tables: Vec<TableNo> = client.environment.model().tables.keys().copied().collect();
    client.begin();
    client.isolation = Isolation::RepeatableRead;
    client.statement();
    for no in tables {
        client.read_whole(no)?;
        if let Some(table) = client.use_table(no) {
            let environment = client.environment.clone();
            check_table(&environment, client.s(), &table)?;
            check_parents(client, no, &table)?;
        }
    }
    client.commit();
    Ok(())
}

/// CHECK TABLE finds the rows without a parent that the model has, and no others.
fn check_parents(client: &mut Client, no: TableNo, table: &Arc<Table>) -> Result<(), Error> {
    let links = client.engine.dict().links(table)?;
    let mut found: BTreeMap<usize, Vec<Option<Vec<u8>>>> = BTreeMap::new();
    client
        .s()
        .check_foreign(table, &links, &mut |number, fault| {
            let of = found.entry(number).or_default();
            match fault {
                ForeignFault::Orphan(pk) => of.push(Some(pk.to_vec())),
                ForeignFault::NoParent => of.push(None),
                ForeignFault::ParentChanged => panic!("DDL while nobody does any"),
                ForeignFault::Padding => panic!("texts are of one kind"),
            }
            true
        })?;
    let csn = client.s().snapshot_number().expect("a check has one").get();
    client.environment.resolve(&client.engine);
    let model = client.environment.model();
    let t = model.table(no);
    for (constraint, orphans) in model.orphans(no, csn) {
        let number = links
            .outgoing
            .iter()
            .position(|l| l.key.name == constraint.name);
        let of = number.and_then(|n| found.remove(&n)).unwrap_or_default();
        if model.named(&constraint.parent).is_none() {
            assert_eq!(of, [None], "{} of {}: no parent", constraint.name, t.name);
            continue;
        }
        let refers = |pk: Option<Vec<u8>>| {
            let n = t.shape.number_of(&pk?)?;
            constraint.refers_to(n, t.at(n, csn)?)
        };
        let mut named: Vec<_> = of.into_iter().map(refers).collect();
        named.sort();
        let expected: Vec<_> = orphans.into_keys().map(Some).collect();
        assert_eq!(
            named, expected,
            "orphans of {} in {}",
            constraint.name, t.name
        );
    }
    assert!(
        found.is_empty(),
        "orphans of unknown foreign keys: {found:?}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::mark_row;
    use ferrite_types::TxnId;

    /// A prepared transaction of an earlier life is decided: its commit has number 0, as what was
    /// there before has. A crash takes the commit back.
    #[test]
    fn the_commit_of_a_restored_transaction_can_be_lost() {
        let mut model = Model::default();
        let shape = Shape {
            key_prefix: 0,
            max_fill: 0,
            max_big: 0,
            same_big: false,
            keys: 8,
            k_values: 1,
            u_values: 1,
            secondary: Vec::new(),
            covering: false,
            entry_fill: 0,
            kin: None,
        };
        let mut marks = TableModel::new("sim/marks", shape);
        let before = Version {
            csn: 0,
            by: 1,
            row: Some(mark_row(1)),
        };
        marks.add(1, before);
        model.tables.insert(MARKS, marks);
        let writes = [((MARKS, 2), Some(mark_row(2)))].into_iter().collect();
        model.ask(2, TxnId(9), writes, State::Committing).restored = true;
        model.publish(2, 0);
        let rows = |fate: Fate| {
            let tables = apply(&model, &[(2, fate)].into_iter().collect());
            tables[&MARKS].rows.keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(rows(Fate::Committed), [1, 2]);
        assert_eq!(rows(Fate::Prepared), [1]);
    }
}
