//! Runs every fuzz target: for a moment each, or for `FERRITE_FUZZ_SECONDS`. With
//! `FERRITE_FUZZ_TARGET` only that one; with `FERRITE_FUZZ_SEED` other inputs.

use ferrite_fuzz::{run, targets};

fn number(name: &str, default: f64) -> f64 {
    let value = std::env::var(name).ok();
    value.and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[test]
fn decoders_take_any_bytes() {
    let seconds = number("FERRITE_FUZZ_SECONDS", 0.3);
    let seed = number("FERRITE_FUZZ_SEED", 1.0) as u64;
    let only = std::env::var("FERRITE_FUZZ_TARGET").ok();
    let mut ran = 0;
    for mut target in targets::all() {
        if only.as_ref().is_some_and(|name| name != target.name) {
            continue;
        }
        let inputs = run(&mut target, seconds, seed);
        println!("{}: {inputs} inputs", target.name);
        ran += 1;
    }
    assert!(ran > 0, "no target of that name");
}

/// The samples are what the decoders take: a target whose corpus is refused at once would
/// test nothing.
#[test]
fn a_panic_is_a_finding() {
    let mut target = ferrite_fuzz::Target {
        name: "bad",
        corpus: vec![vec![1, 2, 3]],
        run: Box::new(|bytes| assert!(bytes.len() < 4, "longer than three")),
    };
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        run(&mut target, 5.0, 1);
    }));
    assert!(found.is_err(), "the driver notices a decoder that panics");
}
