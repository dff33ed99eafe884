//! One life of the program: it opens the database, proves that nothing is lost, works, and
//! closes it or is killed.

use crate::backup;
use crate::bulk::bulk_client;
use crate::client::{reads_may_fail, After, Client};
use crate::corner::Corner;
use crate::ddl::{create, create_checked};
use crate::ddl_client::ddl_client;
use crate::decide::{decide_all, decide_at_start, decider};
use crate::environment::{End, Environment, Server};
use crate::family::Constraint;
use crate::kept;
use crate::kill::killer;
use crate::model::{Model, TableModel, MARKS};
use crate::plan::Plan;
use crate::pool;
use crate::rows::Shape;
use crate::verify::{check_all, verify};
use ferrite_engine::{Config, Engine};
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, thread, Arc};
use ferrite_types::format::{Codec, Packing};
use ferrite_types::Error;

/// Seeds of the tasks of a life.
fn seed_of(environment: &Environment, life: u64, task: u64) -> u64 {
    environment.plan.seed.wrapping_mul(1_000_003) ^ (life << 32) ^ task
}

/// The program, from opening to closing.
pub fn life(environment: &Arc<Environment>, number: u64) -> End {
    environment.disconnect_all();
    let storage = environment.view(environment.disk.boot());
    let server = Arc::new(Server(environment.clone()));
    let config = Config {
        second_tier: environment.second_tier(number),
        ..environment.plan.config.clone()
    };
    let opened = kept::before_open(environment, &storage)
        .and_then(|()| Engine::open(config, storage.clone(), server));
    let engine = match opened {
        Ok(engine) => engine,
        Err(e) => {
            assert!(environment.is_injected(&e), "open: {e}");
            sim::note(&format!("is not opened: {e}"));
            return End::Failed(e);
        }
    };
    sim::note("opened");
    match work(environment, &engine, &storage, number) {
        Ok(()) => End::Closed,
        Err(e) => {
            assert!(environment.is_injected(&e), "life {number}: {e}");
            engine.abandon();
            End::Failed(e)
        }
    }
}

fn work(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    storage: &Arc<dyn Storage>,
    number: u64,
) -> Result<(), Error> {
    kept::check(environment, engine);
    verify(environment, engine)?;
    sim::note("settled");
    environment.recovered();
    decide_at_start(environment, engine, seed_of(environment, number, 96))?;
    make_tables(environment, engine)?;
    let begun = backup::begin(environment, engine, seed_of(environment, number, 98))?;
    run_clients(environment, engine, number);
    let mut client = Client::new(environment, engine, 0, seed_of(environment, number, 99));
    // Now and then the next life finds what is prepared.
    if environment.plan.extra.corner != Some(Corner::Ids) || client.rng.chance(1, 4) {
        decide_all(&mut client)?;
    }
    check_all(&mut client)?;
    drop(client);
    // Now and then the program ends in the middle of the rollbacks of its start.
    if number % 3 > 0 || !environment.plan.extra.background_undo {
        wait_for_rollbacks(environment, engine);
        check_quiet(environment, engine);
        account(environment, engine)?;
    }
    let copy = backup::finish(environment, engine, begun)?;
    if copy.is_none() {
        kept::act(environment, engine, seed_of(environment, number, 97))?;
    }
    engine.close()?;
    if !environment.may_be_damaged() {
        engine
            .check_space()
            .unwrap_or_else(|e| panic!("space: {e}"));
    }
    if let Some(copy) = copy {
        environment.replace_disk(copy.snapshot());
    }
    kept::rewind_now(environment, storage)?;
    Ok(())
}

/// Transactions that the last crash cut off are rolled back, in the end.
fn wait_for_rollbacks(environment: &Environment, engine: &Engine) {
    let left = || {
        let rows = engine.trx_rows();
        rows.iter().any(|t| t.state == "ROLLING BACK")
    };
    for _ in 0..300 {
        if reads_may_fail(environment) || !left() {
            return;
        }
        thread::sleep_ms(100);
    }
    panic!("transactions from before the restart are not rolled back");
}

/// What no row names is free, whatever failed and was taken back.
fn account(environment: &Environment, engine: &Engine) -> Result<(), Error> {
    if reads_may_fail(environment) {
        return Ok(());
    }
    match engine.check_values() {
        Ok(_) => Ok(()),
        Err(e) if environment.is_injected(&e) => Err(e),
        Err(e) => panic!("account: {e}"),
    }
}

/// Nobody is at work: nothing is locked but by what is prepared, the log is within its bound.
fn check_quiet(environment: &Environment, engine: &Engine) {
    // A rollback that a failed read has broken off keeps its locks.
    let mut unfinished = engine.trx_rows();
    unfinished.retain(|t| reads_may_fail(environment) && t.state == "ROLLING BACK");
    let undecided = environment.model().prepared();
    let mut locks = Vec::new();
    engine.locks().each_lock(&mut |l| {
        let known = unfinished.iter().any(|t| t.txn_id == l.txn.0);
        if !known && !undecided.contains(&l.txn) {
            locks.push(format!("{l:?}"));
        }
    });
    assert!(locks.is_empty(), "locks without transactions: {locks:?}");
    let budget = environment.plan.config.log_budget_bytes;
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

fn marks_shape() -> Shape {
    Shape {
        key_prefix: 0,
        max_fill: 0,
        max_big: 0,
        same_big: false,
        keys: 0,
        k_values: 0,
        u_values: 0,
        secondary: Vec::new(),
        covering: false,
        entry_fill: 0,
        kin: None,
    }
}

/// Makes the tables that every run has, unless they are there.
fn make_tables(environment: &Arc<Environment>, engine: &Arc<Engine>) -> Result<(), Error> {
    if !environment.model().tables.contains_key(&MARKS) {
        let marks = TableModel::new("sim/marks", marks_shape());
        create(environment, engine, MARKS, marks)?;
    }
    let wanted = environment.plan.shapes.clone();
    for (at, shape) in wanted.into_iter().enumerate() {
        let name = format!("sim/t{at}");
        if !environment.model().was_made(&name) {
            let no = environment.model().new_table();
            let (constraints, checks) =
                constraints_of(&environment.plan, &environment.model(), at, &name);
            let table = TableModel {
                constraints,
                ..TableModel::new(&name, shape)
            };
            create_checked(environment, engine, no, table, checks)?;
            environment.model().made(&name);
        }
    }
    Ok(())
}

/// The constraints of a table of the plan, for the names that its parents have now.
fn constraints_of(plan: &Plan, model: &Model, at: usize, name: &str) -> (Vec<Constraint>, bool) {
    let mut all_there = true;
    let table = name.rsplit('/').next().unwrap_or(name);
    let of_table = plan.bonds.iter().filter(|bond| bond.child == at);
    let constraints = of_table
        .enumerate()
        .map(|(nth, bond)| {
            let parent = format!("sim/t{}", bond.parent);
            all_there &= bond.parent == at || model.named(&parent).is_some();
            // Names that the server gives follow the table's.
            let own = match nth {
                0 => format!("{table}_ibfk_{nth}"),
                _ => format!("c{at}_{nth}"),
            };
            Constraint::new(own, parent, bond)
        })
        .collect();
    (constraints, all_there)
}

// ---- clients -------------------------------------------------------------------------------

fn run_clients(environment: &Arc<Environment>, engine: &Arc<Engine>, number: u64) {
    let mut threads = Vec::new();
    let mut start = |name: &str, task: u64, f: fn(&Arc<Environment>, &Arc<Engine>, u64, usize)| {
        let (w, e) = (environment.clone(), engine.clone());
        let seed = seed_of(environment, number, task);
        threads.push(thread::spawn(name, move || f(&w, &e, seed, task as usize)));
    };
    for task in 1..=environment.plan.clients {
        start("client", task, writer);
    }
    for task in 0..environment.plan.long_readers {
        start("reader", environment.plan.clients + 1 + task, reader);
    }
    start("decider", 14, decider);
    if environment.plan.ddl {
        start("ddl", 15, |w, e, seed, _| ddl_client(w, e, seed));
    }
    if environment.plan.extra.bulk > 0 {
        start("bulk", 13, bulk_client);
    }
    if environment.plan.extra.packings {
        start("packer", 11, |w, e, seed, _| packer(w, e, seed));
    }
    if environment.plan.extra.resizes {
        start("resizer", 10, |w, e, seed, _| pool::resizer(w, e, seed));
    }
    if environment.plan.extra.ahead {
        start("ahead", 20, |w, e, seed, _| pool::read_ahead(w, e, seed));
    }
    if environment.plan.extra.cold {
        start("cooler", 21, |w, e, seed, _| pool::cooler(w, e, seed));
    }
    if environment.plan.extra.kills {
        start("killer", 12, |w, e, seed, _| killer(w, e, seed));
    }
    for t in threads {
        if let Err(payload) = t.join() {
            std::panic::resume_unwind(payload);
        }
    }
}

/// ALTER TABLE ... COMPRESSION, while others write, drop and rename the tables.
fn packer(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..rng.between(4, 40) {
        thread::sleep_us(rng.below(40_000));
        let names: Vec<String> = {
            let model = environment.model();
            model.tables.values().map(|t| t.name.clone()).collect()
        };
        if names.is_empty() {
            continue;
        }
        let name = &names[rng.below(names.len() as u64) as usize];
        match engine.dict().repack(name, some_packing(&mut rng)) {
            Ok(()) | Err(Error::NotFound) => {}
            Err(e) => assert!(environment.is_injected(&e), "compression of {name}: {e}"),
        }
    }
}

/// One of those that a table may ask for; the strong levels of zstd take long.
fn some_packing(rng: &mut Rng) -> Packing {
    let codec = [Codec::None, Codec::Lz4, Codec::Zstd][rng.below(3) as usize];
    let level = match codec {
        Codec::Zstd => rng.below(6) as u8,
        _ => 0,
    };
    Packing { codec, level }
}

fn writer(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64, thd: usize) {
    let mut c = Client::new(environment, engine, thd, seed);
    for _ in 0..environment.plan.transactions {
        transaction(&mut c);
        if c.rng.chance(1, 4) {
            let us = c.rng.below(60_000);
            thread::sleep_us(us);
        }
    }
    c.disconnect();
}

fn transaction(c: &mut Client) {
    c.begin();
    let mut operations = c.rng.between(1, c.environment.plan.operations);
    if c.environment.plan.big_transactions && c.rng.chance(1, 10) {
        operations = 60;
    }
    for _ in 0..operations {
        let corner = c.environment.plan.extra.corner;
        if matches!(corner, Some(Corner::Ranges | Corner::Away)) {
            // Others come between two statements.
            let us = c.rng.below(3000);
            thread::sleep_us(us);
        }
        let after = match c.rng.below(10) {
            0..=2 => c.read(),
            3 if c.environment.plan.savepoints => c.savepoint(),
            4 if c.environment.plan.extra.temporary => c.temporary(),
            5 | 6 if c.environment.plan.extra.corner == Some(Corner::Ids) => c.temporary(),
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
        2..=4 if c.environment.plan.prepare => c.two_phases(),
        5..=6
            if matches!(
                c.environment.plan.extra.corner,
                Some(Corner::Ids | Corner::Marks)
            ) =>
        {
            c.two_phases()
        }
        _ => c.commit(),
    }
}

/// Keeps a snapshot open and reads all of it again and again.
fn reader(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64, thd: usize) {
    let mut c = Client::new(environment, engine, thd, seed);
    for _ in 0..c.rng.between(1, 3) {
        c.begin();
        c.isolation = ferrite_engine::Isolation::RepeatableRead;
        c.statement();
        c.s().open_snapshot();
        c.environment.statement_ends(c.thd);
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
            c.environment.statement_ends(c.thd);
        }
        c.commit();
    }
}
