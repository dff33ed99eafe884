//! DDL: tables come, go, are emptied, renamed and copied, beside open and prepared transactions.
//!
//! As in the server, metadata locks (`TableModel::users` and `ddl`) keep DDL and transactions
//! that have a session apart. A prepared transaction without a session has no metadata lock:
//! the engine itself must keep DDL away from what it has changed.
//!
//! # What is checked
//! - DDL does not succeed while a prepared transaction that nobody has decided holds changes of
//!   the table, and waits only for those that may.
//! - It ends within its time.

use crate::environment::Environment;
use crate::family::{description, new_foreign};
use crate::guarded::Guarded;
use crate::model::{versions, Ddl, TableModel, TableNo, MARKS};
use crate::rows::{pattern, Big, Row, Secondary, Shape};
use crate::write::{borrowed, entries_of};
use ferrite_engine::{
    Cursor, DdlCaller, DupInfo, Engine, IndexSpec, Isolation, ReadMode, References, Table,
    TableSpec, WaitMode,
};
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, time, Arc};

use ferrite_types::{Csn, Error};
use std::collections::BTreeMap;

/// The connection of the client that does DDL.
pub(crate) const THD: usize = 15;
/// DDL lasts no longer than its timeout and this, in microseconds (a slow or full disk).
const DDL_SLACK_US: u64 = 20_000_000;

fn spec(table: &TableModel) -> TableSpec {
    let index = |name: &str, unique: bool| IndexSpec::new(name, unique, 1);
    let mut indexes = vec![index("PRIMARY", true)];
    for (at, kind) in table.shape.secondary.iter().enumerate() {
        indexes.push(index(&format!("s{at}"), *kind == Secondary::Unique));
    }
    TableSpec {
        definition: match table.shape.kin {
            None => table.name.as_bytes().to_vec(),
            Some(_) => description(&table.shape),
        },
        temporary: table.temporary,
        ..TableSpec::new(&table.name, indexes)
    }
}

/// CREATE TABLE.
///
/// # Errors
/// As the engine's.
pub fn create(
    environment: &Environment,
    engine: &Engine,
    no: TableNo,
    table: TableModel,
) -> Result<(), Error> {
    create_checked(environment, engine, no, table, true)
}

/// CREATE TABLE; `checks`: parents must be there.
///
/// # Errors
/// As the engine's.
pub fn create_checked(
    environment: &Environment,
    engine: &Engine,
    no: TableNo,
    table: TableModel,
    checks: bool,
) -> Result<(), Error> {
    make(environment, engine, no, table, Ddl::Create, checks)?;
    environment
        .model()
        .tables
        .entry(no)
        .and_modify(|t| t.ddl = None);
    Ok(())
}

/// Makes a table, which stays in the state of `ddl`.
fn make(
    environment: &Environment,
    engine: &Engine,
    no: TableNo,
    mut table: TableModel,
    ddl: Ddl,
    checks: bool,
) -> Result<Arc<Table>, Error> {
    let spec = spec(&table);
    let foreign = new_foreign(&table.constraints, checks);
    table.ddl = Some(ddl);
    environment.model().tables.insert(no, table);
    let before = engine.commit_number();
    let made = engine.dict().create_with_foreign(spec, 1, foreign);
    if made.is_err() {
        environment.model().tables.remove(&no);
    } else {
        renewed(environment, engine, no, before);
        environment.tally().ddl += 1;
    }
    made
}

/// The table's contents came into being without a history, after the commit number `before`.
pub(crate) fn renewed(environment: &Environment, engine: &Engine, no: TableNo, before: Csn) {
    let now = engine.commit_number().get();
    let mut model = environment.model();
    model.tables.entry(no).and_modify(|t| {
        if !t.temporary {
            (t.newer_than, t.complete_at) = (before.get(), now);
        }
    });
}

/// Drops a table that only its connection uses.
///
/// # Errors
/// As the engine's.
pub fn drop_now(environment: &Environment, engine: &Engine, no: TableNo) -> Result<(), Error> {
    let name = begin(environment, no, &Ddl::Drop);
    let name = name.expect("nobody else uses it");
    let caller = DdlCaller::default();
    let result = engine.drop_table(&name, &caller);
    done(environment, no, &Ddl::Drop, result.is_ok());
    result
}

pub(crate) fn wait_ms(environment: &Environment, rng: &mut Rng) -> u64 {
    if environment.plan.extra.ddl_beside {
        [0, 1, 20, 200][rng.below(4) as usize]
    } else {
        50_000
    }
}

/// A table that no session uses.
pub(crate) fn choose(environment: &Environment, rng: &mut Rng) -> Option<TableNo> {
    let model = environment.model();
    let beside = environment.plan.extra.ddl_beside;
    let free: Vec<TableNo> = model
        .tables
        .iter()
        .filter(|(no, t)| {
            let free = t.users == 0 && t.ddl.is_none() && t.owner.is_none();
            **no != MARKS && free && (beside || model.holders(**no, false).is_empty())
        })
        .map(|(no, _)| *no)
        .collect();
    (!free.is_empty()).then(|| free[rng.below(free.len() as u64) as usize])
}

/// The metadata lock; None when somebody else has come first.
pub(crate) fn begin(environment: &Environment, no: TableNo, what: &Ddl) -> Option<String> {
    let mut model = environment.model();
    let t = model.tables.get_mut(&no)?;
    if t.users > 0 || t.ddl.is_some() {
        return None;
    }
    t.ddl = Some(what.clone());
    Some(t.name.clone())
}

/// One change of a whole table.
///
/// # Errors
/// `LockTimeout`, rightly, or what the run injects.
pub(crate) fn change(
    environment: &Environment,
    engine: &Engine,
    no: TableNo,
    what: &Ddl,
    wait_ms: u64,
    references: References,
) -> Result<(), Error> {
    let name = begin(environment, no, what).ok_or(Error::LockTimeout)?;
    let result = ask(environment, engine, no, &name, what, wait_ms, references);
    done(environment, no, what, result.is_ok());
    result
}

/// The call, and whether it might end so.
fn ask(
    environment: &Environment,
    engine: &Engine,
    no: TableNo,
    name: &str,
    what: &Ddl,
    wait_ms: u64,
    references: References,
) -> Result<(), Error> {
    let is_parent = environment.model().others_refer(no);
    let takes_all = matches!(what, Ddl::Drop | Ddl::Truncate);
    if references == References::None && takes_all {
        environment.model().went_unchecked(name);
    }
    let before = environment.model().holders(no, false);
    let since_us = time::now_us();
    let number = engine.commit_number();
    let caller = DdlCaller {
        thd: THD,
        wait_ms,
        references,
    };
    let result = match what {
        Ddl::Drop => engine.drop_table(name, &caller),
        Ddl::Truncate => engine.truncate_table(name, 1, &caller),
        Ddl::Rename(to) => engine.rename_table(name, to, &caller),
        Ddl::Create | Ddl::Fill | Ddl::Copied | Ddl::Import(_) | Ddl::Constrain(_) => Ok(()),
    };
    let took_us = time::now_us() - since_us;
    sim::note(&format!("{what:?} of {name}: {result:?} in {took_us} us"));
    assert!(
        took_us <= wait_ms * 1000 + DDL_SLACK_US,
        "{what:?} of {name}, which waits {wait_ms} ms, took {took_us} us"
    );
    match &result {
        Ok(()) => {
            let hold = environment.model().holders(no, true);
            assert!(
                hold.is_empty(),
                "{what:?} of {name} is done and prepared transactions {hold:?} have changed it"
            );
            assert!(
                !takes_all || !is_parent || references == References::None,
                "{what:?} of {name} is done and others refer to it"
            );
            if *what == Ddl::Truncate {
                renewed(environment, engine, no, number);
            }
        }
        Err(Error::LockTimeout) => {
            assert!(
                !before.is_empty(),
                "{what:?} of {name} has waited for nobody"
            );
        }
        Err(Error::Referenced(by)) => assert!(
            is_parent && takes_all && references == References::Any,
            "{what:?} of {name}: {by} refers to it"
        ),
        Err(e) => assert!(environment.is_injected(e), "{what:?}: {e}"),
    }
    result
}

pub(crate) fn done(environment: &Environment, no: TableNo, what: &Ddl, is_done: bool) {
    let mut model = environment.model();
    model.tables.entry(no).and_modify(|t| t.ddl = None);
    if !is_done {
        return;
    }
    match what {
        Ddl::Drop => {
            model.tables.remove(&no);
        }
        Ddl::Truncate => {
            model.tables.entry(no).and_modify(|t| {
                t.rows.clear();
                // Whatever comes from here on is checked.
                t.constraints.iter_mut().for_each(|c| c.enforced = true);
            });
        }
        Ddl::Rename(to) => model.renamed(no, to),
        Ddl::Constrain(new) => {
            let new = new.clone();
            model.tables.entry(no).and_modify(|t| t.constraints = new);
        }
        Ddl::Create | Ddl::Fill | Ddl::Copied | Ddl::Import(_) => {}
    }
    // Writes of the past are not to be brought back after a crash.
    if matches!(what, Ddl::Drop | Ddl::Truncate) {
        model.forget_writes(no);
    }
    drop(model);
    environment.tally().ddl += 1;
}

// ---- copies --------------------------------------------------------------------------------

/// ALTER TABLE by copy: a new table is filled and takes the old one's name. Each step is a
/// change of its own, so that a crash may come between any two; a table that was still being
/// filled is dropped after it (`settle`), as the server's log of DDL does.
pub(crate) fn copy(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    no: TableNo,
    rng: &mut Rng,
) {
    let Some(name) = begin(environment, no, &Ddl::Copied) else {
        return;
    };
    let to = environment.model().new_table();
    let shape = environment.model().table(no).shape.clone();
    let new = TableModel {
        owner: Some(THD),
        ..TableModel::new(&format!("sim/c{to}"), shape.clone())
    };
    let filled = make(environment, engine, to, new, Ddl::Fill, true)
        .and_then(|table| fill(environment, engine, no, &name, &shape, to, &table));
    // The old table keeps its metadata lock until the new one has its name.
    if let Err(e) = filled {
        let expected =
            environment.is_injected(&e) || matches!(e, Error::LockTimeout | Error::Deadlock);
        assert!(expected, "copy: {e}");
        give_up_copy(environment, engine, to);
        environment
            .model()
            .tables
            .entry(no)
            .and_modify(|t| t.ddl = None);
        return;
    }
    let wait_ms = wait_ms(environment, rng);
    let aside = Ddl::Rename(format!("sim/o{no}_{to}"));
    environment.model().tables.entry(no).and_modify(|t| {
        t.ddl = Some(aside.clone());
        t.owner = Some(THD);
    });
    let any = References::Any;
    let moved = ask(environment, engine, no, &name, &aside, wait_ms, any);
    done(environment, no, &aside, moved.is_ok());
    if moved.is_err() {
        give_up_copy(environment, engine, to);
    } else {
        environment
            .model()
            .tables
            .entry(to)
            .and_modify(|t| t.ddl = None);
        let _ = change(environment, engine, to, &Ddl::Rename(name), wait_ms, any);
        let _ = change(environment, engine, no, &Ddl::Drop, wait_ms, any);
    }
    for no in [no, to] {
        environment
            .model()
            .tables
            .entry(no)
            .and_modify(|t| t.owner = None);
    }
}

fn give_up_copy(environment: &Environment, engine: &Engine, to: TableNo) {
    let Some(name) = environment.model().tables.get(&to).map(|t| t.name.clone()) else {
        return;
    };
    // A whole copy is a table like any other by now: it may be there after a crash, or be gone.
    environment.model().tables.entry(to).and_modify(|t| {
        if let Some(Ddl::Rename(_)) = t.ddl {
            t.ddl = Some(Ddl::Drop);
        }
    });
    match engine.drop_table(&name, &DdlCaller::default()) {
        Ok(()) => {
            environment.model().tables.remove(&to);
        }
        // It stays as one that was being filled: nobody uses it.
        Err(e) => {
            assert!(environment.is_injected(&e), "drop of a copy: {e}");
            let mut model = environment.model();
            model
                .tables
                .entry(to)
                .and_modify(|t| t.ddl = Some(Ddl::Fill));
        }
    }
}

/// Every row of the old table, read with locks as ALTER reads, goes into the new one.
fn fill(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    no: TableNo,
    name: &str,
    shape: &Shape,
    to: TableNo,
    table: &Arc<Table>,
) -> Result<(), Error> {
    let old = engine.dict().open_table(name)?;
    let mut session = Guarded::new(engine, THD);
    let s = session.get();
    s.begin_statement(Isolation::RepeatableRead);
    s.begin_load(table);
    let mut cursor = Cursor::new(&old, 0, ReadMode::Shared, WaitMode::Wait);
    let mut copied: BTreeMap<u64, Row> = BTreeMap::new();
    let mut moved = cursor.first(s).map(|_| ());
    while moved.is_ok() {
        let got = cursor.current()?;
        let (pk, payload) = (got.pk.to_vec(), got.payload.to_vec());
        let n = shape.number_of(&pk).unwrap_or(u64::MAX);
        environment.resolve(engine);
        let row = environment.model().view(no, n, u64::MAX, &BTreeMap::new());
        let row = row.unwrap_or_else(|| panic!("copy of {name}: row {n} should not be there"));
        assert!(
            shape.is_payload_of(&payload, &row),
            "copy of {name}: row {n} is not {row:?}"
        );
        let row = with_own_value(engine, s, table, row)?;
        let entries = entries_of(shape, &row);
        let dup = &mut DupInfo::default();
        environment.model().offer(to, n, row);
        let (payload, entries) = (shape.payload(&row), borrowed(&entries));
        s.insert_row(table, Some(&pk), &payload, &entries, false, dup)?;
        copied.insert(n, row);
        moved = cursor.next(s).map(|_| ());
    }
    if moved != Err(Error::NotFound) {
        moved?;
    }
    // The end of the scan may have waited for a transaction that deleted the last row.
    environment.resolve(engine);
    let all = environment.model().view_all(no, u64::MAX, &BTreeMap::new());
    assert!(
        all.keys().eq(copied.keys()),
        "copy of {name}: rows {:?} were read, {:?} are there",
        copied.keys(),
        all.keys()
    );
    let before = engine.commit_number();
    s.end_load(table)?;
    renewed(environment, engine, to, before);
    s.commit(false)?;
    let rows = versions(copied);
    environment.model().tables.entry(to).and_modify(|t| {
        t.rows = rows;
        // From here on it is a table like any other, under a name that nobody uses yet.
        t.ddl = Some(Ddl::Rename(t.name.clone()));
    });
    Ok(())
}

/// The row with a value out of line of its own in the other table.
fn with_own_value(
    engine: &Engine,
    s: &mut ferrite_engine::Session,
    table: &Arc<Table>,
    mut row: Row,
) -> Result<Row, Error> {
    if let Some(big) = row.big {
        let mut value = vec![0; big.len as usize];
        engine.read_overflow(&big.reference, &mut value)?;
        assert!(
            value == pattern(big.seed, value.len()),
            "copy: a value out of line is wrong"
        );
        let reference = s.write_overflow(table, &value)?;
        row.big = Some(Big { reference, ..big });
    }
    Ok(row)
}
