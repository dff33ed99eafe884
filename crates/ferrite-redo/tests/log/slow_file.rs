//! A write to a file that is built ahead of need takes long, as in a process that was stopped for a while: who needs
//! the file waits for that write, not for a rest after it that is as long again.

use crate::common::*;
use ferrite_io::sim::{IoOp, SimStorage};
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{thread, time, Arc};
use ferrite_types::Lsn;

/// What the write takes.
const STOPPED_US: u64 = 1_000_000;

/// Long enough for every wait of this test that is none of the fault's.
const PROMPTLY_US: u64 = STOPPED_US;

/// On a busy machine one try may take longer for other reasons; a rest as long as the write would be in each.
#[test]
fn a_log_goes_on_as_soon_as_a_slow_write_has_ended() {
    let mut tries = Vec::new();
    while !tries
        .iter()
        .any(|(went_on_us, ended_us)| *went_on_us < PROMPTLY_US && *ended_us < 2 * PROMPTLY_US)
    {
        assert!(tries.len() < 3, "{tries:?} us behind the slow write");
        tries.push(us_behind_a_slow_write());
    }
}

/// When the log has taken what is put into it, and when its threads have stopped.
fn us_behind_a_slow_write() -> (u64, u64) {
    let disk = SimStorage::new(1);
    let log = create(boot(&disk), Lsn(0), small()).unwrap();
    let ended_us = Arc::new(AtomicU64::new(0));
    let ended = ended_us.clone();
    disk.set_hook(Some(Arc::new(move |io| {
        if io.op == IoOp::Write && io.name == "redo.tmp" && ended.load(Ordering::SeqCst) == 0 {
            thread::sleep_us(STOPPED_US);
            ended.store(time::now_us(), Ordering::SeqCst);
        }
        Ok(())
    })));
    log.start_threads(10);
    while ended_us.load(Ordering::SeqCst) == 0 {
        thread::sleep_ms(1);
    }
    // Nobody needs a file at the end of the write, but soon behind it.
    thread::sleep_ms(5);
    for n in 0..800 {
        log.admission().unwrap();
        put(&log, n, 400);
    }
    log.flush_to(log.current_lsn());
    let took_us = || time::now_us() - ended_us.load(Ordering::SeqCst);
    let went_on_us = took_us();
    log.stop_threads();
    (went_on_us, took_us())
}
