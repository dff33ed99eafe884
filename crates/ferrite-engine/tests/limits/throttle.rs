//! The log stays near its budget, whatever one transaction changes, and nobody is held for ever.

use crate::common::{config, create, database, insert, metric, update};
use ferrite_engine::{Callbacks, Engine, LogLevel, Session};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::{time, Arc};

const ROWS: u64 = 8_000;
/// Of the settings.
const BUDGET_BYTES: u64 = 4 << 20;
/// What rollback and purge, which have to go on, may add ...
const BEYOND_BYTES: u64 = 2 << 20;
/// ... and this for each [`PAUSE_US`] in which the log does not get shorter: they rest so long between.
const PAUSED_BYTES: u64 = 32 << 10;
const PAUSE_US: u64 = 100_000;

fn text(round: u8) -> Vec<u8> {
    vec![b'a' + round; 900 + round as usize]
}

#[test]
fn one_transaction_of_many_rows_keeps_to_the_budget() {
    let (_disk, engine, t, mut s) = database(1);
    let mut most = 0;
    for n in 0..ROWS {
        insert(&mut s, &t, n, &text(0)).unwrap();
        most = most.max(engine.log_age());
    }
    s.commit(false).unwrap();
    for round in 0..2 {
        for n in 0..ROWS {
            update(&mut s, &t, n, &text(round), &text(round + 1)).unwrap();
            most = most.max(engine.log_age());
        }
    }
    assert!(most <= BUDGET_BYTES + (256 << 10), "{most} bytes of log");
    assert!(metric(&engine, "throttled_statements") > 0);
    let done = AtomicBool::new(false);
    let beyond = std::thread::scope(|threads| {
        let watch = threads.spawn(|| {
            let (mut most, mut within_us) = (0, time::now_us());
            while !done.load(Ordering::SeqCst) {
                let (age, now_us) = (engine.log_age(), time::now_us());
                if age <= BUDGET_BYTES {
                    within_us = now_us;
                }
                let pauses = (now_us - within_us) / PAUSE_US;
                most = most.max(age.saturating_sub(BUDGET_BYTES + pauses * PAUSED_BYTES));
                ferrite_sync::thread::sleep_ms(1);
            }
            most
        });
        s.rollback().unwrap();
        done.store(true, Ordering::SeqCst);
        watch.join().unwrap()
    });
    assert!(beyond <= BEYOND_BYTES, "{beyond} in rollback");
    drop(s);
    engine.close().unwrap();
}

#[derive(Default)]
struct Killed(AtomicBool);

impl Callbacks for Killed {
    fn is_killed(&self, _thd: usize) -> bool {
        self.0.load(Ordering::SeqCst)
    }
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn fatal(&self, _text: &str) {}
}

/// Pages cannot be written, or the statement is killed: there is nothing to wait for.
#[test]
fn nobody_waits_for_a_log_that_cannot_get_shorter() {
    let disk = SimStorage::new(2);
    let killed = Arc::new(Killed::default());
    let mut settings = config();
    settings.buffer_pool_size_bytes = 64 << 20;
    let engine = Engine::open(settings, Arc::new(disk.boot()), killed.clone()).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    // No checkpoint gets through; pages are written.
    disk.inject_lasting(Fault::FailWrite, "map.");
    let mut n = 0;
    while engine.log_age() <= BUDGET_BYTES {
        insert(&mut s, &t, n, &text(0)).unwrap();
        n += 1;
    }
    let since_us = time::now_us();
    for more in 0..200 {
        insert(&mut s, &t, n + more, &text(0)).unwrap();
    }
    let took_us = time::now_us() - since_us;
    assert!(took_us < 20_000_000, "{took_us} us, checkpoints fail");
    killed.0.store(true, Ordering::SeqCst);
    let since_us = time::now_us();
    for more in 200..400 {
        insert(&mut s, &t, n + more, &text(0)).unwrap();
    }
    let took_us = time::now_us() - since_us;
    assert!(took_us < 20_000_000, "{took_us} us, killed");
    disk.clear_faults();
    s.commit(false).unwrap();
    drop(s);
    engine.close().unwrap();
}
