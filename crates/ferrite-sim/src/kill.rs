//! Statements are killed, and must come back soon: no wait and no loop of the core goes on
//! without a look at KILL.
//!
//! Locking: none over a call of the engine.

use crate::environment::Environment;
use ferrite_engine::Engine;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, time, Arc};

/// A killed statement is back within, in microseconds. Only time that somebody waits for counts
/// (others' steps are a microsecond each), and a slow or full disk is waited for whoever asks.
const BACK_WITHIN_US: u64 = 30_000_000;
/// Highest connection that is killed.
const LAST_CONNECTION: u64 = 13;

/// Kills what clients run, now and then.
pub fn killer(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..rng.between(4, 40) {
        thread::sleep_us(rng.below(20_000));
        let thd = rng.between(1, LAST_CONNECTION) as usize;
        let Some((statement, owner)) = environment.kill(thd) else {
            continue;
        };
        engine.locks().interrupt(&owner);
        environment.tally().kills += 1;
        comes_back(environment, thd, statement);
    }
}

fn comes_back(environment: &Environment, thd: usize, statement: u64) {
    let since_us = time::now_us();
    while environment.is_at(thd, statement) {
        let waited_us = time::now_us() - since_us;
        assert!(
            waited_us < BACK_WITHIN_US,
            "connection {thd} was killed {waited_us} us ago and still runs statement {statement}"
        );
        thread::sleep_ms(10);
    }
}
