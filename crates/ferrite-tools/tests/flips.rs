//! Every byte of a small database turned in turn: it is reported, or it makes no difference.
//!
//! For each byte: `ferrite-check`'s verifier reports damage, or all rows are what they were.
//! For some of them also the engine itself: it refuses to open naming why, or a statement
//! fails, or all rows are what they were. Never another row, never a panic, never a hang.
//!
//! One exception, in a log that ends in a power cut: what the last flush wrote cannot be told
//! from a torn write, so the last commit alone may be missing there.
//!
//! By default some hundred bytes are drawn; `FERRITE_FLIPS=all` turns every byte that is not in
//! a stretch of zeros, and some of those.

mod common;

use common::{read, read_offline, sample, Sample};
use ferrite_engine::offline::MapFrom;
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_tools::check::check;
use ferrite_tools::progress::Progress;

/// Longest time for one byte, in seconds.
const PATIENCE_S: u64 = 60;

struct Flip {
    name: String,
    at: u64,
    xor: u8,
}

/// Bytes to turn: all that are used, or some of each file.
fn choose(disk: &SimStorage, rng: &mut Rng, all: bool, per_file: u64) -> Vec<Flip> {
    let mut flips = Vec::new();
    for name in disk.list().unwrap() {
        let bytes = disk.contents(&name).unwrap();
        let used: Vec<u64> = bytes
            .chunks(512)
            .enumerate()
            .filter(|(_, sector)| sector.iter().any(|b| *b != 0))
            .flat_map(|(n, sector)| (0..sector.len() as u64).map(move |i| n as u64 * 512 + i))
            .collect();
        let mut add = |at| {
            let xor = 1 << rng.below(8);
            flips.push(Flip {
                name: name.clone(),
                at,
                xor,
            });
        };
        if all {
            used.iter().for_each(|at| add(*at));
        }
        let mut draw = Rng::new(bytes.len() as u64);
        for _ in 0..per_file {
            if !used.is_empty() {
                add(used[draw.below(used.len() as u64) as usize]);
            }
            add(draw.below(bytes.len() as u64));
        }
    }
    flips
}

/// What the verifier makes of it: true if it reports damage.
fn verified(sample: &Sample, flip: &Flip) -> Result<bool, String> {
    let storage: Arc<dyn Storage> = Arc::new(sample.disk.clone());
    let sound = match check(&storage, &Arc::new(Progress::silent())) {
        Err(_) => return Ok(true),
        Ok(report) => report.is_sound(),
    };
    if !sound {
        return Ok(true);
    }
    let rows = read_offline(&storage, MapFrom::Checkpoint);
    let rows = rows.ok_or("sound, and then not readable")?;
    same_rows(sample, flip, &rows).map(|()| false)
}

fn same_rows(sample: &Sample, flip: &Flip, rows: &common::Rows) -> Result<(), String> {
    let torn_end = flip.name.starts_with("redo.") && *rows == sample.before_last;
    if *rows == sample.rows || torn_end {
        return Ok(());
    }
    Err(format!("{} rows, and not those it had", rows.len()))
}

/// What the engine makes of it: opens and reads all, or says what is wrong.
fn opened(sample: &Sample, flip: &Flip) -> Result<bool, String> {
    let disk = SimStorage::from_snapshot(&sample.disk.snapshot(), 1);
    let engine = match common::open(&disk) {
        Ok(engine) => engine,
        Err(e) => {
            let text = e.to_string();
            let names = [
                "superblock",
                "checkpoint",
                "map",
                "log",
                "page",
                "dictionary",
            ];
            let named = names.iter().any(|name| text.contains(name));
            return if named {
                Ok(true)
            } else {
                Err(format!("unclear: {text}"))
            };
        }
    };
    let rows = read(&engine);
    engine.abandon();
    match rows {
        Ok(rows) => same_rows(sample, flip, &rows).map(|()| false),
        Err(_) => Ok(true),
    }
}

/// Runs `test` on one byte; a panic or a hang is a failure like any other.
fn guarded(
    what: &str,
    sample: &Arc<Sample>,
    flip: &Flip,
    test: fn(&Sample, &Flip) -> Result<bool, String>,
) -> bool {
    let place = format!("{what}: {} byte {} xor {:#x}", flip.name, flip.at, flip.xor);
    let copy = Flip {
        name: flip.name.clone(),
        ..*flip
    };
    let shared = sample.clone();
    let handle = thread::spawn("flip", move || test(&shared, &copy));
    let started = ferrite_sync::time::now_us();
    let mut pause_us = 20;
    while !handle.is_finished() {
        thread::sleep_us(pause_us);
        pause_us = (pause_us * 2).min(2000);
        let waited = ferrite_sync::time::now_us() - started;
        assert!(waited < PATIENCE_S * 1_000_000, "{place}: hangs");
    }
    match handle.join() {
        Ok(Ok(reported)) => reported,
        Ok(Err(text)) => panic!("{place}: {text}"),
        Err(_) => panic!("{place}: panicked"),
    }
}

fn turn_bytes(seed: u64, clean: bool) {
    let all = std::env::var("FERRITE_FLIPS").is_ok_and(|v| v == "all");
    // Each byte in turn takes its time: of a smaller database then.
    let sample = Arc::new(sample(seed, clean, if all { 24 } else { 400 }));
    let untouched = Flip {
        name: String::new(),
        at: 0,
        xor: 0,
    };
    assert!(
        !guarded("check", &sample, &untouched, verified),
        "sound at first"
    );
    assert!(
        !guarded("engine", &sample, &untouched, opened),
        "opens at first"
    );
    let mut rng = Rng::new(seed);
    let flips = choose(&sample.disk, &mut rng, all, 12);
    let share = flips.len() as u64 / if all { 8000 } else { 50 } + 1;
    let (mut reported, mut refused, mut tried) = (0, 0, 0);
    for (n, flip) in flips.iter().enumerate() {
        if n % 10_000 == 9_999 {
            println!(
                "{n} of {} bytes turned, at {} {}",
                flips.len(),
                flip.name,
                flip.at
            );
        }
        sample.disk.corrupt(&flip.name, flip.at, flip.xor).unwrap();
        let damage = guarded("check", &sample, flip, verified);
        reported += u64::from(damage);
        if rng.chance(1, share) {
            tried += 1;
            let fails = guarded("engine", &sample, flip, opened);
            refused += u64::from(fails);
            let (name, at) = (&flip.name, flip.at);
            assert!(
                damage || !fails,
                "{name} byte {at}: the engine fails, the verifier is content"
            );
        }
        sample.disk.corrupt(&flip.name, flip.at, flip.xor).unwrap();
    }
    println!(
        "{} bytes turned, {reported} reported, the others make no difference; engine: {refused} \
         of {tried} refused",
        flips.len()
    );
    assert!(reported > 0 && refused > 0, "nothing was ever noticed");
}

#[test]
fn turned_bytes_after_a_clean_shutdown() {
    turn_bytes(1, true);
}

#[test]
fn turned_bytes_after_a_power_cut() {
    turn_bytes(2, false);
}
