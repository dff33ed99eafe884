//! The mutation proof: each deliberate fault of `mutants.txt` is switched on in a process of
//! its own, which runs fresh seeds until one fails.

use std::fmt::Write;
use std::process::Command;
use std::time::Instant;

/// Name and story of each fault.
fn list() -> impl Iterator<Item = (&'static str, &'static str)> {
    include_str!("../mutants.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, story)| (name, story.trim()))
}

/// Runs all of them (or those whose name contains `only`) for at most so long each; writes a
/// table to the file, if one is named. True if one was not caught.
pub fn prove(only: &str, limit: &str, table: Option<&str>) -> bool {
    let program = std::env::current_exe().expect("the program knows its own file");
    let mut text = String::from(HEAD);
    let mut missed = Vec::new();
    for (name, story) in list().filter(|(name, _)| name.contains(only)) {
        let at = Instant::now();
        let out = Command::new(&program)
            .args(["--selftest", name, "--time", limit, "--from", "1"])
            .output()
            .expect("the program starts itself");
        let said = String::from_utf8_lossy(&out.stdout);
        let first = said.lines().find(|l| l.contains(" FAILED: ")).unwrap_or("");
        let (seed, what) = first.split_once(" FAILED: ").unwrap_or(("", "not caught"));
        if first.is_empty() {
            missed.push(name);
        }
        let what: String = what.replace('|', "/").chars().take(110).collect();
        let seconds = at.elapsed().as_secs_f64();
        println!("{name}: {seconds:.1} s, {seed} {what}");
        let seed = seed.trim_start_matches("seed ");
        let _ = writeln!(
            text,
            "| `{name}` | {story} | {seconds:.1} | {seed} | {what} |"
        );
    }
    if let Some(path) = table {
        std::fs::write(path, text).unwrap_or_else(|e| panic!("{path}: {e}"));
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

const HEAD: &str = "\
# Mutation proof

Deliberate faults, one at a time, and how long the simulator took to catch each from seed 1 on. Made by `./ferrite test mutants`, which
runs them again and writes this table.

| fault | what it does | seconds | seed | caught as |
| --- | --- | --- | --- | --- |
";
