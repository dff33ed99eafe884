//! Snapshots that are kept over lives and crashes, dropped, and rewound to: then the model is what
//! it was when the snapshot was taken.
//!
//! Snapshots are taken while nobody works, so that a model belongs to each. Whether one is there
//! that was being taken or dropped when the program died, the next life sees; one that was answered
//! must be there. A rewind is made by the program itself, between closing and its end, and cut off
//! anywhere; once its decision is on disk, the next life finds what it goes to.
//!
//! Locking: a real mutex, held for moments, never over a call of the engine or the disk.

use crate::environment::Environment;
use crate::kept_state::{Plan, Snapshot};
use crate::plan::FaultMode;
use ferrite_engine::snapshots::{rewind, ServerState};
use ferrite_engine::{DdlCaller, DupInfo, Engine, IndexSpec, Session, TableSpec};
use ferrite_io::Storage;
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, thread, Arc};
use ferrite_types::Error;
use std::mem::ManuallyDrop;

/// More are dropped.
const MOST: usize = 6;
/// The table that nobody else knows.
const CHURN: &str = "churn/kept";

/// Does the run keep snapshots? What is known of a damaged disk is not known of them.
fn is_on(environment: &Environment) -> bool {
    let extra = &environment.plan.extra;
    let damaged = extra.lost_writes || extra.file_damage;
    extra.kept && environment.plan.faults == FaultMode::PowerOnly && !damaged
}

/// The model of what the database went to, if it did.
fn settle(environment: &Environment, went: bool) {
    let Some(plan) = environment.kept.state().rewinding.take() else {
        assert!(!went, "a rewind that nobody began");
        return;
    };
    if went || plan.decided {
        let model = environment.kept.find(&plan.to);
        *environment.model() = model.expect("a snapshot has a model");
        sim::note(&format!("rewound to {}", plan.to));
    }
}

/// Before the database is opened: a rewind that was cut off is finished.
pub fn before_open(environment: &Environment, storage: &Arc<dyn Storage>) -> Result<(), Error> {
    if !is_on(environment) {
        return Ok(());
    }
    if rewind::is_pending(&**storage)? {
        let mut state = environment.kept.state();
        let plan = state.rewinding.as_mut();
        plan.expect("a rewind that nobody began").decided = true;
    }
    let went = rewind::finish(storage, None)?.is_some();
    settle(environment, went);
    Ok(())
}

/// After it was opened: the snapshots are those that there must be.
pub fn check(environment: &Environment, engine: &Engine) {
    if !is_on(environment) {
        return;
    }
    let there = engine.kept_snapshots();
    for kept in &there {
        assert!(kept.lost.is_empty(), "snapshot lost: {kept:?}");
    }
    let mut state = environment.kept.state();
    state.snapshots.retain_mut(|s| {
        let found = there.iter().any(|kept| kept.name == s.name);
        assert!(found || !s.must_be_there, "snapshot {} is gone", s.name);
        s.was_in_doubt |= found && !s.must_be_there;
        s.must_be_there = found;
        found
    });
    let (known, found) = (state.snapshots.len(), there.len());
    assert!(known == found, "{found} snapshots, {known} are known");
}

fn take(environment: &Environment, engine: &Arc<Engine>, name: &str) -> Result<(), Error> {
    let mut job = engine.begin_snapshot(name)?;
    environment.resolve(engine);
    let model = environment.model().clone();
    environment.kept.state().snapshots.push(Snapshot {
        name: name.to_owned(),
        model,
        must_be_there: false,
        was_in_doubt: false,
    });
    job.fix();
    job.finish(&ServerState::default())?;
    environment.kept.mark(name, true);
    sim::note(&format!("snapshot {name}"));
    Ok(())
}

fn new_name(environment: &Environment) -> String {
    let mut state = environment.kept.state();
    state.taken += 1;
    format!("s{}", state.taken)
}

/// While nobody changes what the model knows: takes and drops some, and perhaps plans a rewind. Pages
/// are written meanwhile.
pub fn act(environment: &Environment, engine: &Arc<Engine>, seed: u64) -> Result<(), Error> {
    if !is_on(environment) {
        return Ok(());
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (e, s) = (engine.clone(), stop.clone());
    let churner = thread::spawn("churn", move || churn(&e, &s, seed ^ 0xc4));
    let result = take_and_drop(environment, engine, seed);
    stop.store(true, Ordering::SeqCst);
    if let Err(payload) = churner.join() {
        std::panic::resume_unwind(payload);
    }
    result
}

/// Fills and empties a table that the model does not know. What fails (the power goes) ends it.
fn churn(engine: &Arc<Engine>, stop: &AtomicBool, seed: u64) {
    let mut rng = Rng::new(seed);
    while !stop.load(Ordering::SeqCst) {
        if churn_once(engine, &mut rng).is_err() {
            return;
        }
        thread::sleep_us(rng.below(5_000));
    }
    let _ = engine.drop_table(CHURN, &DdlCaller::default());
}

fn churn_once(engine: &Arc<Engine>, rng: &mut Rng) -> Result<(), Error> {
    match engine.drop_table(CHURN, &DdlCaller::default()) {
        Ok(()) | Err(Error::NotFound) => {}
        Err(e) => return Err(e),
    }
    let spec = TableSpec::new(CHURN, vec![IndexSpec::new("PRIMARY", true, 1)]);
    let table = engine.dict().create_table(spec, 1)?;
    // A crash unwinds through here: then nothing is rolled back.
    let mut session = ManuallyDrop::new(Session::new(engine, 0, 1));
    for n in 0..rng.between(5, 40) {
        let (key, dup) = (n.to_be_bytes(), &mut DupInfo::default());
        session.insert_row(&table, Some(&key), &[0; 3000], &[], false, dup)?;
    }
    session.commit(false)?;
    drop(ManuallyDrop::into_inner(session));
    engine.checkpoint()
}

fn take_and_drop(environment: &Environment, engine: &Arc<Engine>, seed: u64) -> Result<(), Error> {
    let mut rng = Rng::new(seed);
    let names = || -> Vec<String> {
        let state = environment.kept.state();
        state.snapshots.iter().map(|s| s.name.clone()).collect()
    };
    let mut all = names();
    let mut must_drop = environment.kept.state().must_drop;
    while all.len() > MOST || !all.is_empty() && (rng.chance(1, 4) || must_drop) {
        must_drop = false;
        let name = all.remove(rng.below(all.len() as u64) as usize);
        environment.kept.mark(&name, false);
        engine.drop_snapshot(&name)?;
        let mut state = environment.kept.state();
        state.snapshots.retain(|s| s.name != name);
    }
    if rng.chance(2, 3) {
        let name = new_name(environment);
        take(environment, engine, &name)?;
    }
    let all = names();
    let doubtful = environment.kept.take_in_doubt();
    if !all.is_empty() && (rng.chance(1, 2) || doubtful.is_some()) {
        let drawn = all[rng.below(all.len() as u64) as usize].clone();
        let to = doubtful.unwrap_or(drawn);
        let present = new_name(environment);
        take(environment, engine, &present)?;
        environment.kept.state().rewinding = Some(Plan {
            to,
            present,
            decided: false,
        });
    }
    Ok(())
}

/// After it was closed: the rewind that was planned.
pub fn rewind_now(environment: &Environment, storage: &Arc<dyn Storage>) -> Result<(), Error> {
    let plan = environment.kept.state().rewinding.clone();
    let Some(plan) = plan else {
        return Ok(());
    };
    rewind::prepare(storage, &plan.to, &plan.present, None)?;
    if let Some(plan) = &mut environment.kept.state().rewinding {
        plan.decided = true;
    }
    let went = rewind::finish(storage, None)?.is_some();
    settle(environment, went);
    Ok(())
}
