//! The whole log under the deterministic scheduler: committers, flusher and keeper as
//! tasks, the program killed at any step, the disk torn. One seed, one run.

use crate::common::*;
use ferrite_io::sim::SimStorage;
use ferrite_redo::{CommitAck, Log};
use ferrite_sync::random::Rng;
use ferrite_sync::sim::{self, Simulation};
use ferrite_sync::{thread, Arc, Event, Mutex};
use ferrite_types::Lsn;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the operator knows of all lives.
#[derive(Default)]
struct Known {
    /// Records appended (known after `append` returned), in all lives.
    appended: Vec<(Lsn, Lsn, u64)>,
    /// Acknowledged in the present life, by their ends.
    acknowledged: Vec<Lsn>,
    /// What the last opening found.
    found: Found,
    /// Where a scan begins.
    from: Lsn,
    next: u64,
}

/// From so many clients on, the flusher lets groups grow.
const CROWD: u64 = 12;

/// Waits of all programs that ended by themselves.
static GROUP_WAITS: AtomicU64 = AtomicU64::new(0);

/// One client: appends, commits in one of the ways, waits for its answer.
fn client(
    log: &Log,
    known: &Arc<Mutex<Known>>,
    seed: u64,
    answer: &Event,
    (token, crowd): (usize, bool),
) {
    let mut rng = Rng::new(seed);
    for _ in 0..rng.below(if crowd { 600 } else { 40 }) {
        if crowd {
            thread::sleep_us(rng.below(200));
        }
        let n = {
            let mut k = known.lock();
            k.next += 1;
            k.next
        };
        let a = put(log, n, some_len(&mut rng, 3000));
        known.lock().appended.push((a.start, a.end, n));
        if rng.chance(1, 4) {
            continue;
        }
        if rng.chance(1, 6) {
            let (event, l) = (Arc::new(Event::new()), known.clone());
            let e = event.clone();
            log.notify_when_durable(
                a.end,
                Box::new(move || {
                    l.lock().acknowledged.push(a.end);
                    e.set();
                }),
            );
            event.wait();
            continue;
        }
        let token = rng.chance(2, 3).then_some(token);
        let company = rng.chance(3, 4);
        if log.commit(a.end, &|| company, &mut || token) == CommitAck::Deferred {
            answer.wait();
        }
        assert!(log.durable_lsn() >= a.end);
        let mut k = known.lock();
        k.acknowledged.push(a.end);
        if rng.chance(1, 20) {
            k.from = k.from.max(a.end);
            log.set_oldest_needed(k.from);
        }
    }
}

/// The program under test: recovers, works, shuts down; any step may be its last.
fn program(disk: &SimStorage, known: &Arc<Mutex<Known>>, seed: u64, first: bool) {
    let mut rng = Rng::new(seed);
    let log = if first {
        create(boot(disk), Lsn(0), small()).expect("create")
    } else {
        let from = known.lock().from;
        let (log, found) = reopen(boot(disk), from, small()).expect("open");
        check(&mut known.lock(), found, seed);
        log
    };
    // With many the flusher lets groups grow.
    let clients = if rng.chance(1, 10) {
        rng.between(CROWD, 24)
    } else {
        rng.between(1, 5)
    };
    let answers: Arc<Vec<Event>> = Arc::new((0..clients).map(|_| Event::new()).collect());
    let events = answers.clone();
    log.set_ack(Box::new(move |acks| {
        acks.iter().for_each(|a| events[a.token].set());
    }));
    log.start_threads(rng.below(3) as u32);
    let threads: Vec<_> = (0..clients)
        .map(|i| {
            let (log, known, answers) = (log.clone(), known.clone(), answers.clone());
            thread::spawn("client", move || {
                let i = i as usize;
                client(
                    &log,
                    &known,
                    seed ^ i as u64,
                    &answers[i],
                    (i, clients >= CROWD),
                );
            })
        })
        .collect();
    for t in threads {
        t.join().expect("client");
    }
    let end = log.current_lsn();
    log.stop_threads();
    assert_eq!(
        (log.durable_lsn(), log.pending_acks()),
        (end, 0),
        "seed {seed}"
    );
    GROUP_WAITS.fetch_add(log.stats().group_waits, Ordering::Relaxed);
    known.lock().acknowledged.push(end);
}

/// A prefix, with everything that was acknowledged or found before.
fn check(known: &mut Known, found: Found, seed: u64) {
    let mut at = known.from;
    for f in &found {
        assert_eq!(f.0, at, "seed {seed}: a hole");
        at = f.1;
    }
    let durable = known.acknowledged.drain(..).max().unwrap_or(known.from);
    assert!(
        at >= durable,
        "seed {seed}: lost up to {durable}, have {at}"
    );
    let from = known.from;
    let before = known.found.iter().filter(|r| r.0 >= from);
    assert!(
        before.eq(found
            .iter()
            .take_while(|f| known.found.last().is_some_and(|l| f.0 <= l.0))),
        "seed {seed}: what was found before has changed"
    );
    // Nothing of a lost tail is back: a place that was appended to is what it was last.
    let mut left: Found = known
        .appended
        .iter()
        .filter(|r| r.0 >= from && r.0 < at)
        .copied()
        .collect();
    left.sort_unstable();
    left.retain(|r| found.binary_search(r).is_err());
    assert!(left.is_empty(), "seed {seed}: replaced {left:?}");
    known.appended.retain(|r| r.0 < at);
    known.found = found;
}

fn operator(seed: u64) {
    let mut rng = Rng::new(seed);
    let disk = SimStorage::new(seed);
    let known = Arc::new(Mutex::new(Known::default()));
    let cut = disk.clone();
    sim::set_crash_hook(move || cut.power_off());
    for life in 0..rng.between(2, 6) {
        let (d, k, s) = (disk.clone(), known.clone(), seed * 100 + life);
        if life > 0 {
            let steps = [100, 500, 2000, 8000, 100_000][rng.below(5) as usize];
            sim::crash_after_steps(Some(rng.between(1, steps)));
        }
        let h = sim::spawn("program", move || program(&d, &k, s, life == 0));
        // A crash ends it, or it ends by itself.
        if h.join().is_err() {
            sim::reap();
        } else {
            sim::crash_after_steps(None);
        }
        disk.crash(&mut rng);
    }
    let from = known.lock().from;
    let (_, found) = reopen(boot(&disk), from, small()).expect("last opening");
    check(&mut known.lock(), found, seed);
}

#[test]
fn killed_at_any_step() {
    let _turn = turn();
    let wanted = std::env::var("FERRITE_REDO_SEEDS").ok();
    let seeds = wanted.and_then(|s| s.parse().ok()).unwrap_or(150);
    for seed in 0..seeds {
        if let Err(failed) = Simulation::new(seed).run(move || operator(seed)) {
            panic!("seed {seed}: {failed}");
        }
    }
    let waits = GROUP_WAITS.load(Ordering::Relaxed);
    assert!(waits > 0 || seeds < 150, "no group was let grow");
}
