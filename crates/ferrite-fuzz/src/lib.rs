//! Not shipped: fuzz targets for every decoder of what lies on disk.
//!
//! A damaged byte must give an error: never a panic, never a long loop, never memory without
//! bound. Inputs are mutations of what the real encoders write (`mutate`), with checksums made
//! right where one would keep the damage out. `targets` has one function for each format. The
//! test `tests/fuzz.rs` runs all of them, for as long as `FERRITE_FUZZ_SECONDS` says each.
//!
//! That driver (`run`) is deterministic and has no coverage feedback: the formats are shallow, the
//! corpus comes from the encoders, and it runs with the stable compiler in every test run. Beside
//! it, `bin/decoders.rs` gives the same targets to libFuzzer, which searches for inputs that reach
//! new code.
#![forbid(unsafe_code)]

pub mod mutate;
pub mod targets;

use ferrite_sync::random::Rng;
use ferrite_sync::time;
use mutate::mutate;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Takes bytes apart.
pub type Decoder = Box<dyn FnMut(&[u8])>;

/// A decoder and inputs that it takes.
pub struct Target {
    /// Name, for messages and for running it alone.
    pub name: &'static str,
    /// What real encoders write.
    pub corpus: Vec<Vec<u8>>,
    /// Decodes; whatever it returns is fine.
    pub run: Decoder,
}

/// Longest time one input may take, in microseconds.
const PATIENCE_US: u64 = 2_000_000;
/// Tries until an input counts as slow.
const TRIES: u32 = 3;
/// Largest input.
const MOST_BYTES: usize = 40_000;

/// Runs a target on its corpus and then on mutations of it for so long; how many inputs.
///
/// # Panics
/// With target, seed and input when the decoder panics or takes too long.
pub fn run(target: &mut Target, seconds: f64, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let started = time::now_us();
    let until = started + (seconds * 1e6) as u64;
    let mut done = 0;
    for input in target.corpus.clone() {
        one(target, seed, done, &input);
        done += 1;
    }
    while time::now_us() < until {
        let input = mutate(&target.corpus, MOST_BYTES, &mut rng);
        one(target, seed, done, &input);
        done += 1;
    }
    done
}

fn one(target: &mut Target, seed: u64, number: u64, input: &[u8]) {
    let place = |name: &str| {
        let hex: String = input.iter().map(|b| format!("{b:02x}")).collect();
        format!("target {name}, seed {seed}, input {number}: {hex}")
    };
    let mut took = u64::MAX;
    // The machine may have been busy elsewhere: what takes long takes long each time.
    for _ in 0..TRIES {
        let started = time::now_us();
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
        took = took.min(time::now_us() - started);
        assert!(result.is_ok(), "panicked on {}", place(target.name));
        if took < PATIENCE_US {
            return;
        }
    }
    panic!("{took} us for {}", place(target.name));
}
