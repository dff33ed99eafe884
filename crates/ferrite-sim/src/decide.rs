//! Prepared transactions that have no session: decided by XID, by whoever comes, also in a later
//! life; and now and then by two at once, of whom one must find nothing. Some are decided by a start, as the server's
//! recovery does it.

use crate::client::Client;
use crate::corner::Corner;
use crate::environment::Environment;
use crate::model::State;
use ferrite_engine::{Engine, Xid};
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, thread, Arc};
use ferrite_types::Error;

/// What was decided.
struct Decision {
    serial: u64,
    xid: Xid,
    commit: bool,
}

/// Decides prepared transactions now and then.
pub fn decider(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64, _thd: usize) {
    let mut rng = Rng::new(seed);
    // In runs about ids while the tables of this life are there.
    let (times, pause_us) = match environment.plan.extra.corner {
        Some(Corner::Ids) => (20, 10_000),
        _ => (8, 100_000),
    };
    for _ in 0..rng.between(1, times) {
        thread::sleep_us(rng.below(pause_us));
        if rng.chance(1, 2) {
            if let Err(e) = decide_one(environment, engine, &mut rng) {
                assert!(environment.is_injected(&e), "decision by xid: {e}");
            }
        }
    }
}

/// The server's recovery decides some of what it finds prepared, before anybody comes.
///
/// # Errors
/// A read that failed, where the run injects such faults.
pub fn decide_at_start(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    seed: u64,
) -> Result<(), Error> {
    let mut rng = Rng::new(seed);
    while rng.chance(1, 3) && decide_next(environment, engine, &mut rng, true)? {}
    Ok(())
}

fn decide_one(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    rng: &mut Rng,
) -> Result<bool, Error> {
    decide_next(environment, engine, rng, false)
}

fn decide_next(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    rng: &mut Rng,
    at_start: bool,
) -> Result<bool, Error> {
    let Some(decision) = choose(environment, rng) else {
        return Ok(false);
    };
    let Decision {
        serial,
        xid,
        commit,
    } = decision;
    sim::note(&format!("tx {serial} is decided: commit {commit}"));
    if at_start {
        match commit {
            true => engine.commit_recovered(&xid)?,
            false => engine.roll_back_recovered(&xid)?,
        }
    } else if environment.plan.extra.comebacks && rng.chance(1, 3) {
        two_decide(engine, &xid, commit)?;
    } else {
        decide(engine, &xid, commit)?;
    }
    if commit {
        if let Some(t) = environment.model().txns.get_mut(&serial) {
            t.durable = true;
        }
        environment.resolve(engine);
        environment.model().check_families();
        environment.tally().commits += 1;
    } else {
        environment.model().forget(serial);
    }
    Ok(true)
}

fn choose(environment: &Environment, rng: &mut Rng) -> Option<Decision> {
    let commit = rng.chance(1, 2);
    let mut model = environment.model();
    let open = || model.txns.iter().filter(|(_, t)| t.detached);
    let nth = match environment.plan.extra.comebacks {
        true => rng.below(open().count().max(1) as u64) as usize,
        false => 0,
    };
    let (serial, t) = open().nth(nth)?;
    let (serial, commit) = (*serial, commit || t.must_commit);
    let xid = t.xid.clone().expect("it was prepared");
    let state = if commit {
        State::Committing
    } else {
        State::RollingBack
    };
    model.decide(serial, state);
    Some(Decision {
        serial,
        xid,
        commit,
    })
}

fn decide(engine: &Engine, xid: &Xid, commit: bool) -> Result<(), Error> {
    match commit {
        true => engine.commit_by_xid(xid),
        false => engine.rollback_by_xid(xid),
    }
}

/// Two sessions decide the same: exactly one of them does it. The other finds no such XID.
fn two_decide(engine: &Arc<Engine>, xid: &Xid, commit: bool) -> Result<(), Error> {
    let (e, x) = (engine.clone(), xid.clone());
    let rival = thread::spawn("rival", move || decide(&e, &x, commit));
    let mine = decide(engine, xid, commit);
    let theirs = match rival.join() {
        Ok(result) => result,
        Err(payload) => std::panic::resume_unwind(payload),
    };
    match (mine, theirs) {
        (Ok(()), Ok(())) => panic!("one XID was decided by two"),
        (Ok(()), Err(_)) | (Err(_), Ok(())) => Ok(()),
        (Err(Error::NotFound | Error::InUse(_)), other) | (other, _) => other,
    }
}

/// Decides all that are left.
///
/// # Errors
/// A read that failed, where the run injects such faults.
pub fn decide_all(c: &mut Client) -> Result<(), Error> {
    let (environment, engine) = (c.environment.clone(), c.engine.clone());
    while decide_one(&environment, &engine, &mut c.rng)? {}
    Ok(())
}
