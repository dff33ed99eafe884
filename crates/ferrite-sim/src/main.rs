//! `ferrite-sim`: runs fresh seeds, regression seeds, one seed twice, or the mutation proof.

mod mutants;

use clap::Parser;
use ferrite_sim::corner::Corner;
use ferrite_sim::environment::Tally;
use ferrite_sim::plan::Plan;
use ferrite_sim::run::{run, Finished};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Fresh seeds that `--ci` runs for so long.
const CI_TIME: Duration = Duration::from_secs(40);

/// The whole core under a deterministic scheduler on a simulated disk, against a model
#[derive(Parser)]
#[command(name = "ferrite-sim")]
struct Options {
    /// Run seed S twice and compare the two traces
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// With --seed: print the trace
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Run N fresh seeds, or as many as there is time for
    #[arg(long, value_name = "N")]
    seeds: Option<u64>,
    /// How long: 90, 90s, 3m, 1h (of the mutation proof: each fault; 10m)
    #[arg(long, value_name = "T")]
    time: Option<Limit>,
    /// The first seed (otherwise a random one); the others follow it
    #[arg(long, value_name = "S")]
    from: Option<u64>,
    /// Of the fresh seeds only those that are about one thing
    #[arg(long, value_name = "CORNER")]
    about: Option<Corner>,
    /// Seeds at the same time
    #[arg(long, value_name = "J", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Run the seeds of regressions.txt; of fresh ones only those that --seeds or --time asks for
    #[arg(long)]
    regressions: bool,
    /// Regression seeds, then a minute of fresh ones
    #[arg(long)]
    ci: bool,
    /// The mutation proof: each deliberate fault whose name has PART in it
    #[arg(long, value_name = "PART", num_args = 0..=1, default_missing_value = "")]
    mutants: Option<String>,
    /// Where the mutation proof writes its table
    #[arg(long, value_name = "FILE")]
    table: Option<String>,
    /// With the deliberate fault NAME (feature `mutations`): is it caught?
    #[arg(long, value_name = "NAME")]
    selftest: Option<String>,
}

/// A time as it was told.
#[derive(Clone)]
struct Limit {
    text: String,
    time: Duration,
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Limit, String> {
        let (number, each) = match text.split_at_checked(text.len().saturating_sub(1)) {
            Some((number, "s")) => (number, 1),
            Some((number, "m")) => (number, 60),
            Some((number, "h")) => (number, 3600),
            _ => (text, 1),
        };
        let number: u64 = number.parse().map_err(|e| format!("{e}"))?;
        let seconds = number.checked_mul(each).ok_or("too long")?;
        Ok(Limit {
            text: text.into(),
            time: Duration::from_secs(seconds),
        })
    }
}

impl Options {
    /// For how long fresh seeds are run; None: until there were enough.
    fn time(&self) -> Option<Duration> {
        let told = self.time.as_ref().map(|limit| limit.time);
        told.or(self.ci.then_some(CI_TIME))
    }

    /// How many fresh seeds are run; None: as many as there is time for, or 100.
    fn seeds(&self) -> Option<u64> {
        let none = self.regressions && self.time().is_none();
        self.seeds.or(none.then_some(0))
    }
}

fn main() {
    let options = Options::parse();
    if let Some(only) = &options.mutants {
        let limit = options.time.as_ref().map_or("10m", |limit| &limit.text);
        let missed = mutants::prove(only, limit, options.table.as_deref());
        std::process::exit(i32::from(missed));
    }
    if let Some(name) = &options.selftest {
        select(name);
    }
    let failed = match options.seed {
        Some(seed) => replay(seed, options.trace),
        None => {
            std::panic::set_hook(Box::new(|_| ()));
            many(&options)
        }
    };
    std::process::exit(i32::from(failed));
}

#[cfg(feature = "mutations")]
fn select(name: &str) {
    ferrite_sync::mutation::select(name);
}

#[cfg(not(feature = "mutations"))]
fn select(name: &str) {
    eprintln!("{name}: deliberate faults need the feature `mutations`");
    std::process::exit(2);
}

/// Runs one seed twice; true if it failed or the runs differ.
fn replay(seed: u64, trace: bool) -> bool {
    let (a, b) = (run(seed, trace), run(seed, false));
    println!("{:?}", Plan::new(seed));
    a.report.trace.iter().for_each(|line| println!("{line}"));
    for done in [&a, &b] {
        let r = &done.report;
        println!(
            "seed {seed}: trace {:016x}, {} steps, {} ms of virtual time, {} leaked; {:?}",
            r.trace_hash,
            r.steps,
            r.virtual_us / 1000,
            r.leaked,
            done.tally
        );
        r.fatal
            .iter()
            .for_each(|text| println!("  the program stopped itself: {text}"));
    }
    if let Some(failure) = &a.failure {
        println!("seed {seed} FAILED: {failure}");
    }
    if a.report.trace_hash != b.report.trace_hash {
        println!("seed {seed}: the two runs differ: something is not deterministic");
        return true;
    }
    a.failure.is_some()
}

/// The seeds of `regressions.txt`: a number, then its story.
fn regressions() -> Vec<u64> {
    include_str!("../regressions.txt")
        .lines()
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect()
}

/// What all seeds together did.
#[derive(Default)]
struct Sum {
    seeds: u64,
    steps: u64,
    leaked: u64,
    slowest: Duration,
    tally: Tally,
    failed: Vec<u64>,
}

impl Sum {
    fn add(&mut self, done: &Finished, time: Duration) {
        self.seeds += 1;
        self.steps += done.report.steps;
        self.leaked += done.report.leaked as u64;
        self.slowest = self.slowest.max(time);
        self.tally.add(&done.tally);
        if let Some(failure) = &done.failure {
            self.failed.push(done.seed);
            println!("seed {} FAILED: {failure}", done.seed);
            println!("  replay: ./ferrite test sim --seed {}", done.seed);
        }
    }
}

fn many(options: &Options) -> bool {
    let started = Instant::now();
    let sum = Mutex::new(Sum::default());
    if options.regressions || options.ci {
        let list = regressions();
        println!("{} regression seeds", list.len());
        work(options.jobs, &sum, &|n| list.get(n as usize).copied());
    }
    let first = options.from.unwrap_or_else(fresh);
    let (seeds, time) = (options.seeds(), options.time());
    if seeds != Some(0) {
        println!("fresh seeds from {first}");
    }
    let from = Instant::now();
    let stop = AtomicBool::new(false);
    let about = |seed: &u64| Plan::new(*seed).extra.corner == options.about;
    let about = Mutex::new((first..).filter(about));
    work(options.jobs, &sum, &|n| {
        let in_time = time.is_none_or(|t| from.elapsed() < t);
        let wanted = match seeds {
            Some(seeds) => n < seeds,
            None => time.is_some() || n < 100,
        };
        let enough = options.selftest.is_some() && stop.load(Ordering::Relaxed);
        if options.selftest.is_some() && !sum.lock().expect("no panic").failed.is_empty() {
            stop.store(true, Ordering::Relaxed);
            return None;
        }
        let next = || match options.about.is_some() {
            true => about.lock().expect("no panic").next(),
            false => Some(first.wrapping_add(n)),
        };
        (in_time && wanted && !enough).then(next).flatten()
    });
    let sum = sum.into_inner().expect("no panic");
    report(&sum, started.elapsed());
    !sum.failed.is_empty()
}

fn fresh() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time.map_or(1, |t| t.as_micros() as u64)
}

/// Runs what `next` gives, several at a time, with a line now and then.
fn work(jobs: u64, sum: &Mutex<Sum>, next: &(dyn Fn(u64) -> Option<u64> + Sync)) {
    let (count, said) = (AtomicU64::new(0), Arc::new(Mutex::new(Instant::now())));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(seed) = next(count.fetch_add(1, Ordering::SeqCst)) {
                    let at = Instant::now();
                    let done = run(seed, false);
                    let mut sum = sum.lock().expect("no panic");
                    sum.add(&done, at.elapsed());
                    let mut said = said.lock().expect("no panic");
                    if said.elapsed() > Duration::from_secs(10) {
                        *said = Instant::now();
                        println!("{} seeds, {} crashes ...", sum.seeds, sum.tally.crashes);
                    }
                }
            });
        }
    });
}

fn report(sum: &Sum, time: Duration) {
    let t = &sum.tally;
    println!(
        "{} seeds, {} crashes, {} nested (deepest {}), {} operations, {} commits, {} rows \
         compared, {} statement errors, {} killed, {} DDL, {} disk faults",
        sum.seeds,
        t.crashes,
        t.nested,
        t.deepest,
        t.operations,
        t.commits,
        t.rows,
        t.errors,
        t.kills,
        t.ddl,
        t.faults
    );
    println!(
        "{} steps, {} tasks leaked, {:.1} s, {:.2} s a seed, slowest {:.1} s",
        sum.steps,
        sum.leaked,
        time.as_secs_f64(),
        time.as_secs_f64() / sum.seeds.max(1) as f64,
        sum.slowest.as_secs_f64()
    );
    println!("{} failed", sum.failed.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(std::iter::once("ferrite-sim").chain(line.split_whitespace()))
    }

    #[test]
    fn what_is_run_for_which_words() {
        let runs = |line: &str| {
            let o = options(line).unwrap();
            (o.seeds(), o.time().map(|t| t.as_secs()))
        };
        assert_eq!(runs(""), (None, None));
        assert_eq!(runs("--seeds 7 --time 3m"), (Some(7), Some(180)));
        assert_eq!(runs("--regressions"), (Some(0), None));
        assert_eq!(runs("--regressions --seeds 7"), (Some(7), None));
        assert_eq!(runs("--ci --from 9"), (None, Some(CI_TIME.as_secs())));
        assert_eq!(runs("--ci --time 20"), (None, Some(20)));
        let part = |line: &str| options(line).unwrap().mutants;
        assert_eq!(part("--mutants --time 1h").as_deref(), Some(""));
        assert_eq!(part("--mutants redo. --time 1h").as_deref(), Some("redo."));
        for wrong in ["--trace", "--jobs 0", "--time soon", "--time 5d", "seed"] {
            assert!(options(wrong).is_err(), "{wrong}");
        }
    }
}
