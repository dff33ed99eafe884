//! Snapshots that are kept over lives and crashes, dropped, and rewound to: then the model is what it was
//! when the snapshot was taken.
//!
//! Snapshots are taken while nobody works, so that a model belongs to each. Whether one is there that was
//! being taken or dropped when the program died, the next life sees; one that was answered must be there.
//! A rewind is made by the program itself, between closing and its end, and cut off anywhere; once its
//! decision is on disk, the next life finds what it goes to.
//!
//! Locking: a real mutex, held for moments, never over a call of the engine or the disk.

use crate::environment::Environment;
use crate::kept_state::{Plan, Snapshot};
use crate::plan::FaultMode;
use ferrite_engine::snapshots::{rewind, ServerState};
use ferrite_engine::Engine;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, Arc};
use ferrite_types::Error;

/// More are dropped.
const MOST: usize = 6;

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

/// While nobody works: takes and drops some, and perhaps plans a rewind.
pub fn act(environment: &Environment, engine: &Arc<Engine>, seed: u64) -> Result<(), Error> {
    if !is_on(environment) {
        return Ok(());
    }
    let mut rng = Rng::new(seed);
    let names = || -> Vec<String> {
        let state = environment.kept.state();
        state.snapshots.iter().map(|s| s.name.clone()).collect()
    };
    let mut all = names();
    while all.len() > MOST || !all.is_empty() && rng.chance(1, 4) {
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
    if !all.is_empty() && rng.chance(1, 2) {
        let to = all[rng.below(all.len() as u64) as usize].clone();
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
