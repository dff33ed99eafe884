//! One of the fuzz targets under libFuzzer, which looks for inputs that reach new code
//! (`./ferrite test fuzz --coverage`; feature `coverage`, nightly compiler).
//!
//! `FERRITE_FUZZ_TARGET` names the target; `list` prints the names. Into the directory
//! `FERRITE_FUZZ_SEEDS` go the target's samples, for libFuzzer to begin with.
#![no_main]

use ferrite_fuzz::{targets, Target};
use std::cell::RefCell;

thread_local! {
    static TARGET: RefCell<Target> = RefCell::new(chosen());
}

fn chosen() -> Target {
    let name = std::env::var("FERRITE_FUZZ_TARGET").unwrap_or_default();
    if name == "list" {
        targets::all().iter().for_each(|t| println!("{}", t.name));
        std::process::exit(0);
    }
    let found = targets::all().into_iter().find(|t| t.name == name);
    found.unwrap_or_else(|| {
        eprintln!("FERRITE_FUZZ_TARGET: there is no target {name:?}");
        std::process::exit(2);
    })
}

/// Before libFuzzer reads its directories.
fn write_seeds() {
    let corpus = TARGET.with_borrow(|target| target.corpus.clone());
    let Ok(directory) = std::env::var("FERRITE_FUZZ_SEEDS") else {
        return;
    };
    for (n, input) in corpus.iter().enumerate() {
        let file = std::path::Path::new(&directory).join(format!("sample-{n}"));
        if let Err(e) = std::fs::write(&file, input) {
            eprintln!("{}: {e}", file.display());
            std::process::exit(2);
        }
    }
}

libfuzzer_sys::fuzz_target!(
    init: write_seeds(),
    |input: &[u8]| TARGET.with_borrow_mut(|target| (target.run)(input))
);
