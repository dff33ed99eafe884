//! What happens to the buffer pool beside the clients: it grows and shrinks, gets cold, and pages are read ahead.
//!
//! Locking: none over a call of the engine.

use crate::corner::Corner;
use crate::environment::Environment;
use ferrite_engine::Engine;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::PageId;

/// Page ids below one of these are asked for: the tables are small, some very.
const PAGES: [u64; 3] = [150, 400, 1500];

/// None, one in which hardly a row finds its place, and enough.
const ROW_CACHE_BYTES: [u64; 4] = [0, 64 << 10, 16 << 20, 16 << 20];

/// SET GLOBAL ferrite_buffer_pool_size.
pub fn resizer(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..rng.between(2, 30) {
        thread::sleep_us(rng.below(50_000));
        let bytes = rng.between(4, 12) << 20;
        match engine.set("buffer_pool_size", bytes) {
            Ok(()) => {}
            Err(e) => assert!(environment.is_injected(&e), "a pool of {bytes} bytes: {e}"),
        }
    }
}

/// The tables are smaller than the pool: leaves leave it here, so that entries are put off.
pub fn cooler(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64) {
    let mut rng = Rng::new(seed);
    let has_row_cache = environment.plan.extra.row_cache;
    let all_the_time = has_row_cache || environment.plan.extra.corner == Some(Corner::Away);
    let (rounds, pause_us) = match environment.plan.extra.corner {
        Some(Corner::Marks) => (400, 500),
        _ if all_the_time => (400, 2_000),
        _ => (120, 20_000),
    };
    for round in 0..rng.between(20, rounds) {
        if has_row_cache && (round == 0 || rng.chance(1, 30)) {
            let bytes = ROW_CACHE_BYTES[rng.below(4) as usize];
            let set = engine.set("row_cache_size", bytes);
            assert!(set.is_ok(), "a row cache of {bytes} bytes: {set:?}");
        }
        thread::sleep_us(rng.below(pause_us));
        // On a full disk nothing gets cold.
        let _ = engine.make_cold();
    }
}

/// Scans of small tables hardly read ahead: this does, whatever the pages are.
pub fn read_ahead(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64) {
    let mut rng = Rng::new(seed);
    let pages = PAGES[rng.below(3) as usize];
    let before_all = environment.plan.extra.corner == Some(Corner::Lost);
    for round in 0..rng.between(50, 300) {
        // After a restart no page is in memory, and clients want the same ones.
        let pause_us = if before_all || round < 40 {
            500
        } else {
            10_000
        };
        thread::sleep_us(rng.below(pause_us));
        let first = rng.below(pages);
        let pages: Vec<PageId> = (0..rng.between(1, 40))
            .map(|n| PageId((first + n) as u32))
            .collect();
        engine.read_ahead(&pages);
    }
}
