//! The mutation proof: each deliberate fault of `mutants.txt` is switched on in a process of
//! its own, which runs fresh seeds until one fails.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Seeds that fail by themselves before the search for one fault is given up.
const BROKEN_SEEDS: usize = 5;

/// A line of the list.
#[derive(Clone, Copy)]
struct Fault {
    name: &'static str,
    /// The corner whose seeds alone are run, where others would take hours.
    about: Option<&'static str>,
    story: &'static str,
}

fn list() -> impl Iterator<Item = Fault> {
    include_str!("../mutants.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, rest)| {
            let rest = rest.trim();
            let corner = rest.strip_prefix('@').and_then(|r| r.split_once(' '));
            let (about, story) = match corner {
                Some((corner, story)) => (Some(corner), story),
                None => (None, rest),
            };
            Fault { name, about, story }
        })
}

/// Runs all of them (or those whose name contains `only`) for at most so long each; writes a
/// table to the file, if one is named. True if one was not caught.
pub fn prove(only: &str, limit: &str, table: Option<&str>) -> bool {
    let program = std::env::current_exe().expect("the program knows its own file");
    let (mut text, mut all) = (String::new(), 0);
    let mut missed = Vec::new();
    for fault in list().filter(|fault| fault.name.contains(only)) {
        let Fault { name, story, .. } = fault;
        let at = Instant::now();
        all += 1;
        let (seed, what) = catch(&program, fault, limit).unwrap_or_else(|| {
            missed.push(name);
            (String::new(), "not caught".to_owned())
        });
        let what: String = what.replace('|', "/").chars().take(110).collect();
        let seconds = at.elapsed().as_secs_f64();
        println!("{name}: {seconds:.1} s, {seed} {what}");
        let _ = writeln!(
            text,
            "| `{name}` | {story} | {seconds:.1} | {seed} | {what} |"
        );
    }
    if let Some(path) = table {
        let head = HEAD
            .replace("LIMIT", limit)
            .replace("CAUGHT", &(all - missed.len()).to_string())
            .replace("ALL", &all.to_string());
        std::fs::write(path, head + &text).unwrap_or_else(|e| panic!("{path}: {e}"));
    }
    println!(
        "not caught: {}",
        if missed.is_empty() {
            "none".into()
        } else {
            missed.join(", ")
        }
    );
    !missed.is_empty()
}

/// The first seed that fails with the fault and passes without it, and how it fails. A seed
/// that fails in any case says nothing of the fault: the search goes on behind it.
fn catch(program: &Path, fault: Fault, limit: &str) -> Option<(String, String)> {
    let mut from = 1u64;
    for _ in 0..BROKEN_SEEDS {
        let first = from.to_string();
        // One at a time: the first of them that fails is found, in the time of one processor.
        let mut with = vec!["--selftest", fault.name, "--time", limit];
        with.extend(["--from", &first, "--jobs", "1"]);
        if let Some(corner) = fault.about {
            with.extend(["--about", corner]);
        }
        let (seed, what) = failure(program, &with)?;
        if failure(program, &["--from", &seed, "--seeds", "1"]).is_none() {
            return Some((seed, what));
        }
        println!("seed {seed} fails without any fault: fix that first");
        from = seed.parse::<u64>().ok()? + 1;
    }
    None
}

/// The first failing seed of a run, and what it says.
fn failure(program: &Path, args: &[&str]) -> Option<(String, String)> {
    let out = Command::new(program).args(args).output();
    let out = out.expect("the program starts itself");
    let said = String::from_utf8_lossy(&out.stdout);
    let line = said.lines().find(|l| l.contains(" FAILED: "))?;
    let (seed, what) = line.split_once(" FAILED: ")?;
    Some((seed.trim_start_matches("seed ").to_owned(), what.to_owned()))
}

const HEAD: &str = "\
# Mutation proof

Deliberate faults, one at a time, and how long the simulator took to catch each from seed 1 on. A catch counts only if the same seed
passes without the fault. Seeds run one at a time, on one processor. Made by `./ferrite test mutants`, which runs them again and writes
this table.

At most LIMIT a fault; CAUGHT of ALL caught.

| fault | what it does | seconds | seed | caught as |
| --- | --- | --- | --- | --- |
";
