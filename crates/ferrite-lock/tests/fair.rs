//! How long the longest wait is, under a scheduler that is fair: sixteen sessions on a few rows,
//! deadlocks included. Time is virtual, a microsecond a step, and every session that can run gets the
//! processor equally often, so a wait that is longer than the rest is the lock table's doing: a waiter
//! passed by, a victim chosen again and again, a deadlock that only the periodic check finds.
//! `./ferrite test perf waits --only deadlocks` is such a load on a real server, where the machine's
//! scheduler and whatever else runs there have their part in the longest wait.

#![cfg(not(loom))]

use ferrite_lock::{LockConfig, LockRequest, LockTable, Mode, Owner, Span, WaitHooks, WaitPolicy};
use ferrite_sync::random::Rng;
use ferrite_sync::sim::{Schedule, Simulation};
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::{Error, IndexId};

const SESSIONS: u64 = 16;
/// Transactions of one session.
const EACH: usize = 150;
/// Steps that a statement takes besides its lock.
const WORK: usize = 20;
/// At one step in so many the processor goes to any session that can run.
const SWITCH_ONE_IN: u64 = 3;
/// Waits that end in this way are lost: a deadlock that was not seen would.
const TIMEOUT_MS: u64 = 3_600_000;

/// The longest wait, in mean waits.
const LONGEST: u64 = 20;

/// How long each wait took, in us.
#[derive(Default)]
struct Waits(Mutex<Vec<u64>>);

impl WaitHooks for Waits {
    fn end(&self, us: u64) {
        self.0.lock().push(us);
    }
}

/// One session's statement: true when its row is locked, false when its transaction gives way.
fn lock_row(
    locks: &LockTable,
    owner: &Arc<Owner>,
    rng: &mut Rng,
    rows: u64,
    waits: &Waits,
) -> bool {
    let row = [rng.below(rows) as u8];
    let mode = match rng.chance(1, 4) {
        true => Mode::Shared,
        false => Mode::Exclusive,
    };
    let request = LockRequest::new(IndexId(7), &row, mode, Span::Record);
    let got = match locks.try_lock(owner, request) {
        Ok(attempt) if attempt.is_granted() => Ok(attempt),
        _ => locks.lock_wait(owner, request, WaitPolicy::for_ms(TIMEOUT_MS), waits),
    };
    match got {
        Ok(attempt) => assert!(attempt.is_granted(), "a wait that ends without the lock"),
        Err(Error::Deadlock) => return false,
        Err(e) => panic!("{owner:?}: {e}"),
    }
    (0..WORK).for_each(|_| thread::yield_now());
    true
}

fn session(locks: &LockTable, number: u64, seed: u64, rows: u64, waits: &Waits) {
    let owner = Owner::new(number, 0);
    let mut rng = Rng::new(seed ^ number << 32);
    for _ in 0..EACH {
        for _ in 0..2 + rng.below(3) {
            if !lock_row(locks, &owner, &mut rng, rows, waits) {
                break;
            }
            owner.add_change();
        }
        locks.release_all(&owner);
        owner.transaction_ended();
        owner
            .changes
            .store(0, ferrite_sync::atomic::Ordering::Relaxed);
    }
}

/// Length of each wait of a run, and how many deadlocks there were.
fn run(seed: u64, rows: u64) -> (Vec<u64>, u64) {
    let simulation = Simulation::new(seed)
        .schedule(Schedule::Random {
            switch_one_in: SWITCH_ONE_IN,
        })
        .max_steps(u64::MAX);
    let outcome = simulation.run(move || {
        let locks = Arc::new(LockTable::new(LockConfig {
            shards: 64,
            // Without the safety net: who is not woken waits until the test fails.
            ticker_us: u64::MAX / 8,
            ..LockConfig::default()
        }));
        let waits = Arc::new(Waits::default());
        let sessions: Vec<_> = (0..SESSIONS)
            .map(|number| {
                let (locks, waits) = (locks.clone(), waits.clone());
                thread::spawn("session", move || {
                    session(&locks, number, seed, rows, &waits)
                })
            })
            .collect();
        for one in sessions {
            one.join().expect("a session");
        }
        let all = std::mem::take(&mut *waits.0.lock());
        (all, locks.stats().deadlocks)
    });
    match outcome {
        Ok(outcome) => outcome.value,
        Err(failed) => panic!("seed {seed}: {failed}"),
    }
}

/// Of each number of rows: many lines of one or two, and few long ones.
const LOADS: [u64; 2] = [100, 10];

#[test]
fn the_longest_wait_is_within_twenty_mean_waits() {
    let wanted = std::env::var("FERRITE_FAIR_SEEDS").ok();
    let seeds = wanted.and_then(|s| s.parse().ok()).unwrap_or(2);
    for (seed, rows) in (0..seeds).flat_map(|seed| LOADS.map(|rows| (seed, rows))) {
        let (waits, deadlocks) = run(seed, rows);
        let mean = waits.iter().sum::<u64>() / waits.len().max(1) as u64;
        let longest = waits.iter().copied().max().unwrap_or(0);
        let text = format!(
            "seed {seed}, {rows} rows: {} waits, {deadlocks} deadlocks, mean {mean} us, longest {longest} us",
            waits.len()
        );
        println!("{text}");
        assert!(waits.len() > 1000 && deadlocks > 10, "hardly any: {text}");
        assert!(longest <= LONGEST * mean, "{text}");
    }
}
