//! One life of the program: it opens the database, proves that nothing is lost, works, and
//! closes it or is killed.

use crate::client::{reads_may_fail, After, Client};
use crate::model::{Ddl, State, TableModel, TableNo, MARKS};
use crate::rows::{Secondary, Shape};
use crate::settle::{check_all, settle};
use crate::world::{Server, World};
use ferrite_engine::{DdlCaller, Engine, IndexSpec, TableSpec};
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, thread, Arc};
use ferrite_types::Error;

/// How a life ended, if it ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Closed.
    Closed,
    /// The database could not be opened or read, or not be closed: a fault was injected.
    Failed(Error),
}

/// Seeds of the tasks of a life.
fn seed_of(world: &World, life: u64, task: u64) -> u64 {
    world.plan.seed.wrapping_mul(1_000_003) ^ (life << 32) ^ task
}

/// The program, from opening to closing.
pub fn life(world: &Arc<World>, number: u64) -> End {
    let storage: Arc<dyn Storage> = Arc::new(world.disk.boot());
    let server = Arc::new(Server(world.clone()));
    let engine = match Engine::open(world.plan.config.clone(), storage, server) {
        Ok(engine) => engine,
        Err(e) => {
            assert!(world.is_injected(&e), "open: {e}");
            return End::Failed(e);
        }
    };
    sim::note("opened");
    match work(world, &engine, number) {
        Ok(()) => End::Closed,
        Err(e) => {
            assert!(world.is_injected(&e), "life {number}: {e}");
            engine.abandon();
            End::Failed(e)
        }
    }
}

fn work(world: &Arc<World>, engine: &Arc<Engine>, number: u64) -> Result<(), Error> {
    settle(world, engine)?;
    sim::note("settled");
    world.recovered();
    make_tables(world, engine)?;
    run_clients(world, engine, number);
    let mut client = Client::new(world, engine, 0, seed_of(world, number, 99));
    decide_all(&mut client)?;
    check_all(&mut client)?;
    drop(client);
    check_quiet(world, engine);
    engine.close()?;
    engine
        .check_space()
        .unwrap_or_else(|e| panic!("space: {e}"));
    Ok(())
}

/// Nobody is at work: nothing is locked, the log is within its bound.
fn check_quiet(world: &World, engine: &Engine) {
    // A rollback that a failed read has broken off keeps its locks.
    let mut unfinished = engine.trx_rows();
    unfinished.retain(|t| reads_may_fail(world) && t.state == "ROLLING BACK");
    let mut locks = Vec::new();
    engine.locks().each_lock(&mut |l| {
        if !unfinished.iter().any(|t| t.txn_id == l.txn.0) {
            locks.push(format!("{l:?}"));
        }
    });
    assert!(locks.is_empty(), "locks without transactions: {locks:?}");
    let budget = world.plan.config.log_budget_bytes;
    for _ in 0..100 {
        if engine.log_age() <= budget {
            return;
        }
        thread::sleep_ms(100);
    }
    panic!(
        "the log's age stays at {}, its budget is {budget}",
        engine.log_age()
    );
}

// ---- tables --------------------------------------------------------------------------------

fn index(name: &str, unique: bool) -> IndexSpec {
    IndexSpec::new(name, unique, 1)
}

fn spec(name: &str, shape: &Shape) -> TableSpec {
    let mut indexes = vec![index("PRIMARY", true)];
    for (at, kind) in shape.secondary.iter().enumerate() {
        indexes.push(index(&format!("s{at}"), *kind == Secondary::Unique));
    }
    TableSpec {
        definition: name.as_bytes().to_vec(),
        ..TableSpec::new(name, indexes)
    }
}

fn marks_shape() -> Shape {
    Shape {
        key_prefix: 0,
        max_fill: 0,
        max_big: 0,
        keys: 0,
        k_values: 0,
        u_values: 0,
        secondary: Vec::new(),
        covering: false,
    }
}

/// Makes the tables that every run has, unless they are there.
fn make_tables(world: &Arc<World>, engine: &Arc<Engine>) -> Result<(), Error> {
    if !world.model().tables.contains_key(&MARKS) {
        create(world, engine, MARKS, "sim/marks", marks_shape())?;
    }
    let wanted = world.plan.shapes.clone();
    for (at, shape) in wanted.into_iter().enumerate() {
        let name = format!("sim/t{at}");
        if !world.model().was_made(&name) {
            let no = world.model().new_table();
            create(world, engine, no, &name, shape)?;
            world.model().made(&name);
        }
    }
    Ok(())
}

fn create(
    world: &World,
    engine: &Engine,
    no: TableNo,
    name: &str,
    shape: Shape,
) -> Result<(), Error> {
    let spec = spec(name, &shape);
    let mut table = TableModel::new(name, shape);
    table.ddl = Some(Ddl::Create);
    world.model().tables.insert(no, table);
    match engine.dict().create_table(spec, 1) {
        Ok(_) => {
            world.model().tables.entry(no).and_modify(|t| t.ddl = None);
            world.tally().ddl += 1;
            Ok(())
        }
        Err(e) => {
            world.model().tables.remove(&no);
            Err(e)
        }
    }
}

/// DDL on tables that nobody uses.
fn ddl_client(world: &Arc<World>, engine: &Arc<Engine>, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..rng.between(1, 6) {
        thread::sleep_us(rng.below(20_000));
        if rng.chance(1, 3) {
            let shape = world.plan.new_shape(&mut rng);
            let no = world.model().new_table();
            let name = format!("sim/n{no}");
            if let Err(e) = create(world, engine, no, &name, shape) {
                assert!(world.is_injected(&e), "create: {e}");
            }
            continue;
        }
        let Some((no, name, what)) = choose(world, &mut rng) else {
            continue;
        };
        let caller = DdlCaller {
            thd: 0,
            wait_ms: 50_000,
        };
        let result = match &what {
            Ddl::Drop => engine.drop_table(&name, &caller),
            Ddl::Truncate => engine.truncate_table(&name, 1, &caller),
            Ddl::Rename(to) => engine.rename_table(&name, to, &caller),
            Ddl::Create => Ok(()),
        };
        done(world, no, &what, result);
    }
}

/// A table that no transaction uses, and what to do to it.
fn choose(world: &World, rng: &mut Rng) -> Option<(TableNo, String, Ddl)> {
    let mut model = world.model();
    let prepared: Vec<TableNo> = model
        .txns
        .values()
        .filter(|t| !matches!(t.state, State::Committed(_)))
        .flat_map(|t| t.writes.keys().map(|(no, _)| *no))
        .collect();
    let free: Vec<TableNo> = model
        .tables
        .iter()
        .filter(|(no, t)| {
            **no != MARKS && t.users == 0 && t.ddl.is_none() && !prepared.contains(no)
        })
        .map(|(no, _)| *no)
        .collect();
    if free.is_empty() {
        return None;
    }
    let no = free[rng.below(free.len() as u64) as usize];
    let what = match rng.below(3) {
        0 => Ddl::Drop,
        1 => Ddl::Truncate,
        _ => Ddl::Rename(format!("sim/r{no}_{}", model.new_stamp())),
    };
    let t = model.tables.get_mut(&no)?;
    t.ddl = Some(what.clone());
    Some((no, t.name.clone(), what))
}

fn done(world: &World, no: TableNo, what: &Ddl, result: Result<(), Error>) {
    if let Err(e) = &result {
        assert!(world.is_injected(e), "{what:?}: {e}");
    }
    let mut model = world.model();
    if result.is_err() {
        model.tables.entry(no).and_modify(|t| t.ddl = None);
        return;
    }
    match what {
        Ddl::Drop => {
            model.tables.remove(&no);
        }
        Ddl::Truncate => {
            model.tables.entry(no).and_modify(|t| t.rows.clear());
        }
        Ddl::Rename(to) => {
            model.tables.entry(no).and_modify(|t| t.name.clone_from(to));
        }
        Ddl::Create => {}
    }
    // Writes of the past are not to be brought back after a crash.
    if matches!(what, Ddl::Drop | Ddl::Truncate) {
        for t in model.txns.values_mut() {
            t.writes.retain(|(table, _), _| *table != no);
        }
    }
    model.tables.entry(no).and_modify(|t| t.ddl = None);
    drop(model);
    world.tally().ddl += 1;
}

// ---- clients -------------------------------------------------------------------------------

fn run_clients(world: &Arc<World>, engine: &Arc<Engine>, number: u64) {
    let mut threads = Vec::new();
    let mut start = |name: &str, task: u64, f: fn(&Arc<World>, &Arc<Engine>, u64, usize)| {
        let (w, e) = (world.clone(), engine.clone());
        let seed = seed_of(world, number, task);
        threads.push(thread::spawn(name, move || f(&w, &e, seed, task as usize)));
    };
    for task in 1..=world.plan.clients {
        start("client", task, writer);
    }
    for task in 0..world.plan.long_readers {
        start("reader", world.plan.clients + 1 + task, reader);
    }
    start("decider", 14, decider);
    if world.plan.ddl {
        start("ddl", 15, |w, e, seed, _| ddl_client(w, e, seed));
    }
    for t in threads {
        if let Err(payload) = t.join() {
            std::panic::resume_unwind(payload);
        }
    }
}

fn writer(world: &Arc<World>, engine: &Arc<Engine>, seed: u64, thd: usize) {
    let mut c = Client::new(world, engine, thd, seed);
    for _ in 0..world.plan.transactions {
        transaction(&mut c);
        if c.rng.chance(1, 4) {
            let us = c.rng.below(60_000);
            thread::sleep_us(us);
        }
    }
}

fn transaction(c: &mut Client) {
    c.begin();
    let mut operations = c.rng.between(1, c.world.plan.operations);
    if c.world.plan.big_transactions && c.rng.chance(1, 10) {
        operations = 60;
    }
    for _ in 0..operations {
        let after = match c.rng.below(10) {
            0..=2 => c.read(),
            3 if c.world.plan.savepoints => c.savepoint(),
            _ => c.write(),
        };
        if after == After::Over {
            return;
        }
    }
    match c.rng.below(10) {
        0 | 1 => {
            c.roll_back();
        }
        2..=4 if c.world.plan.prepare => c.two_phases(),
        _ => c.commit(),
    }
}

/// Keeps a snapshot open and reads all of it again and again.
fn reader(world: &Arc<World>, engine: &Arc<Engine>, seed: u64, thd: usize) {
    let mut c = Client::new(world, engine, thd, seed);
    for _ in 0..c.rng.between(1, 3) {
        c.begin();
        c.isolation = ferrite_engine::Isolation::RepeatableRead;
        c.statement();
        c.s().open_snapshot();
        for _ in 0..c.rng.between(1, 5) {
            let us = c.rng.below(200_000);
            thread::sleep_us(us);
            let Some(no) = c.any_table() else {
                break;
            };
            c.statement();
            if let Err(e) = c.read_whole(no) {
                c.failed(&e, "long reader");
                break;
            }
        }
        c.commit();
    }
}

/// Decides prepared transactions that have no session.
fn decider(world: &Arc<World>, engine: &Arc<Engine>, seed: u64, _thd: usize) {
    let mut rng = Rng::new(seed);
    for _ in 0..rng.between(1, 8) {
        thread::sleep_us(rng.below(100_000));
        if rng.chance(1, 2) {
            if let Err(e) = decide_one(world, engine, &mut rng) {
                assert!(world.is_injected(&e), "decision by xid: {e}");
            }
        }
    }
}

fn decide_one(world: &World, engine: &Engine, rng: &mut Rng) -> Result<bool, Error> {
    let commit = rng.chance(1, 2);
    let (serial, xid, commit) = {
        let mut model = world.model();
        let open = model.txns.iter_mut().find(|(_, t)| t.detached);
        let Some((serial, t)) = open else {
            return Ok(false);
        };
        let (serial, commit) = (*serial, commit || t.must_commit);
        let xid = t.xid.clone().expect("it was prepared");
        let state = if commit {
            State::Committing
        } else {
            State::RollingBack
        };
        model.decide(serial, state);
        (serial, xid, commit)
    };
    sim::note(&format!("tx {serial} is decided: commit {commit}"));
    if commit {
        engine.commit_by_xid(&xid)?;
        if let Some(t) = world.model().txns.get_mut(&serial) {
            t.durable = true;
        }
        world.resolve(engine);
        world.tally().commits += 1;
    } else {
        engine.rollback_by_xid(&xid)?;
        world.model().forget(serial);
    }
    Ok(true)
}

/// Decides all that are left.
fn decide_all(c: &mut Client) -> Result<(), Error> {
    let (world, engine) = (c.world.clone(), c.engine.clone());
    while decide_one(&world, &engine, &mut c.rng)? {}
    Ok(())
}
