//! `ferrite-sim`: runs fresh seeds, regression seeds, one seed twice, or the mutation proof.

mod mutants;

use ferrite_sim::run::{run, Finished};
use ferrite_sim::world::Tally;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const HELP: &str = "\
ferrite-sim: the whole core under a deterministic scheduler on a simulated disk, against a model

  --seed S [--trace]     runs seed S twice and compares the two traces; prints the trace
  --seeds N [--time T]   runs N fresh seeds, or as many as there is time for (90, 90s, 3m, 1h)
  --from S               the first seed (otherwise a random one); the others follow it
  --jobs J               seeds at the same time (2)
  --regressions          runs the seeds of regressions.txt
  --ci                   regression seeds, then 3 minutes of fresh ones
  --mutants [PART]       the mutation proof: each deliberate fault whose name has PART in it, for --time each
  --table FILE           where the mutation proof writes its table
  --selftest NAME        with the deliberate fault NAME (feature `mutations`): is it caught?
";

/// What the command line asks for.
#[derive(Default)]
struct Options {
    seed: Option<u64>,
    trace: bool,
    seeds: Option<u64>,
    time: Option<Duration>,
    from: Option<u64>,
    jobs: u64,
    regressions: bool,
    mutant: Option<String>,
    prove: Option<String>,
    table: Option<String>,
    limit: String,
}

fn main() {
    let options = match parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}\n\n{HELP}");
            std::process::exit(2);
        }
    };
    if let Some(only) = &options.prove {
        let missed = mutants::prove(only, &options.limit, options.table.as_deref());
        std::process::exit(i32::from(missed));
    }
    if let Some(name) = &options.mutant {
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

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) => (number, text.as_bytes()[text.len() - 1]),
        None => (text, b's'),
    };
    let each = match unit {
        b'm' => 60,
        b'h' => 3600,
        _ => 1,
    };
    Some(Duration::from_secs(number.parse::<u64>().ok()? * each))
}

fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut o = Options {
        jobs: 2,
        limit: "10m".into(),
        ..Options::default()
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|e| format!("{text}: {e}"));
        match arg.as_str() {
            "--seed" => o.seed = Some(number(value()?)?),
            "--seeds" => o.seeds = Some(number(value()?)?),
            "--from" => o.from = Some(number(value()?)?),
            "--jobs" => o.jobs = number(value()?)?.max(1),
            "--time" => {
                let text = value()?;
                o.time = Some(duration(&text).ok_or(format!("{text} is no time"))?);
                o.limit = text;
            }
            "--trace" => o.trace = true,
            "--regressions" => {
                o.regressions = true;
                o.seeds = o.seeds.or(Some(0));
            }
            "--ci" => {
                o.regressions = true;
                o.time = Some(Duration::from_secs(180));
            }
            "--mutants" => o.prove = Some(args.next().unwrap_or_default()),
            "--table" => o.table = Some(value()?),
            "--selftest" => o.mutant = Some(value()?),
            "--help" | "-h" => {
                print!("{HELP}");
                std::process::exit(0);
            }
            other => return Err(format!("{other} is unknown")),
        }
    }
    Ok(o)
}

/// Runs one seed twice; true if it failed or the runs differ.
fn replay(seed: u64, trace: bool) -> bool {
    let (a, b) = (run(seed, trace), run(seed, false));
    println!("{:?}", ferrite_sim::plan::Plan::new(seed));
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
    if options.regressions {
        let list = regressions();
        println!("{} regression seeds", list.len());
        work(options.jobs, &sum, &|n| list.get(n as usize).copied());
    }
    let first = options.from.unwrap_or_else(fresh);
    let (seeds, time) = (options.seeds, options.time);
    if seeds != Some(0) {
        println!("fresh seeds from {first}");
    }
    let from = Instant::now();
    let stop = AtomicBool::new(false);
    work(options.jobs, &sum, &|n| {
        let in_time = time.is_none_or(|t| from.elapsed() < t);
        let wanted = match seeds {
            Some(seeds) => n < seeds,
            None => time.is_some() || n < 100,
        };
        let enough = options.mutant.is_some() && stop.load(Ordering::Relaxed);
        if options.mutant.is_some() && !sum.lock().expect("no panic").failed.is_empty() {
            stop.store(true, Ordering::Relaxed);
            return None;
        }
        (in_time && wanted && !enough).then(|| first.wrapping_add(n))
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
