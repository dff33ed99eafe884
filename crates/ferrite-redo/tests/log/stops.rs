//! The process dies at a named place, the machine goes on: what was written but not synced
//! is seen by the next opening, and from then on it must last.

use crate::common::*;
use ferrite_io::sim::SimStorage;
use ferrite_redo::Log;
use ferrite_sync::stop::{self, Action};
use ferrite_types::{Error, Lsn};
use std::panic::{catch_unwind, AssertUnwindSafe};

const PLACES: [&str; 10] = [
    "redo.before_write",
    "redo.after_write_before_sync",
    "redo.before_sync",
    "redo.after_sync_before_ack",
    "redo.segment_built",
    "redo.segment_prepared",
    "redo.before_recycle",
    "redo.recycle",
    "redo.before_fence",
    "redo.fence_before_sync",
];

#[test]
fn the_process_dies_at_every_place() {
    let _turn = turn();
    std::panic::set_hook(Box::new(|_| ()));
    let mut failures = Vec::new();
    for place in PLACES {
        for nth in [1, 2, 5] {
            if let Err(e) = catch_unwind(|| dies_at(place, nth)) {
                let text = e.downcast_ref::<String>().cloned();
                failures.push((place, nth, text));
            }
            stop::disarm_all();
        }
    }
    let _ = std::panic::take_hook();
    assert!(failures.is_empty(), "{failures:?}");
}

fn dies_at(place: &str, nth: u64) {
    let disk = SimStorage::new(nth);
    let mut appended = Found::new();
    let mut durable = Lsn(0);
    let mut from = Lsn(0);
    let mut hits = 0;
    // Of three processes the second and third begin with an opening.
    for life in 0..3u64 {
        let arm = || stop::arm_nth(place, nth, Action::Panic);
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let log = if life == 0 {
                let log = create(boot(&disk), Lsn(0), small()).expect("create");
                arm();
                log
            } else {
                arm();
                reopen(boot(&disk), from, small()).expect("open").0
            };
            appended.retain(|r| r.1 <= log.current_lsn());
            for n in 0..600 {
                let n = life * 1000 + n;
                let start = log.current_lsn();
                appended.push((start, Lsn(start.0 + 408), n));
                put(&log, n, 400);
                if n % 3 == 0 {
                    log.flush_to(Lsn::MAX);
                    durable = log.durable_lsn();
                }
                if n % 100 == 99 {
                    from = appended[appended.len() - 20].0;
                    log.set_oldest_needed(from);
                }
            }
        }));
        hits += stop::hits(place);
        stop::disarm_all();
        appended.retain(|r| r.0 >= from);
        // The next process sees what the system still had in its cache ...
        let copy = SimStorage::from_snapshot(&disk.snapshot(), nth);
        let (log, found) = reopen(boot(&copy), from, small()).expect("open");
        assert_eq!(found[..], appended[..found.len()], "{place} {nth} {life}");
        assert!(log.current_lsn() >= durable);
        drop(log);
        // ... and a power cut then takes nothing of it away, not even when it comes as
        // soon as the first record was handed out.
        if life % 2 == 0 {
            let enough = Error::Unsupported("enough".into());
            let r = Log::open(boot(&disk), from, small(), &mut |_| Err(enough.clone()));
            assert_eq!(r.err(), (!found.is_empty()).then_some(enough));
        } else {
            reopen(boot(&disk), from, small()).expect("open");
        }
        disk.crash_clean();
        let (log, again) = reopen(boot(&disk), from, small()).expect("open again");
        assert_eq!(again, found, "{place} {nth} {life}");
        durable = log.durable_lsn();
        appended = found;
    }
    assert!(hits > 0 || nth > 1, "{place} was never reached");
}
