//! What is appended comes back: sizes, segments, recycling, many threads, deferred
//! acknowledgements, notices. Nothing crashes here.

use crate::common::*;
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_redo::{CommitAck, Log, LogConfig};
use ferrite_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::{Error, Lsn};

#[test]
fn sizes_and_segments() {
    let _turn = turn();
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let disk = SimStorage::new(seed);
        let start = Lsn(rng.below(100_000) * 8);
        let log = create(boot(&disk), start, small()).expect("create");
        assert_eq!(log.current_lsn(), start);
        let mut expected = Vec::new();
        let mut at = start;
        for n in 0..400 {
            let a = put(&log, n, some_len(&mut rng, log.max_body()));
            assert_eq!(a.start, at);
            at = a.end;
            expected.push((a.start, a.end, n));
            if rng.chance(1, 5) {
                log.flush_to(a.end);
                assert!(log.durable_lsn() >= a.end);
            }
        }
        log.flush_to(at);
        assert_eq!(rescan(&log, start, at), expected);
        let middle = rng.below(expected.len() as u64) as usize;
        assert_eq!(rescan(&log, expected[middle].0, at), expected[middle..]);
        assert_eq!(rescan(&log, start, expected[middle].0), expected[..middle]);
        drop(log);
        let (log, found) = reopen(boot(&disk), start, small()).expect("open");
        assert_eq!(found, expected);
        assert_eq!(log.current_lsn(), at);
        // It goes on where it was, also from the middle and from the very end.
        let a = put(&log, 400, 100);
        expected.push((a.start, a.end, 400));
        log.flush_to(a.end);
        drop(log);
        let (log, found) = reopen(boot(&disk), expected[middle].0, small()).expect("open");
        assert_eq!(found, expected[middle..]);
        drop(log);
        let (_, found) = reopen(boot(&disk), a.end, small()).expect("open at the end");
        assert!(found.is_empty());
    }
}

/// Nothing is read behind the end of what is asked for, even where a sector ends with it: there may
/// be nothing of the log yet, and reading it again and again would take seconds.
#[test]
fn a_scan_up_to_the_end_of_a_sector_reads_no_further() {
    let _turn = turn();
    let disk = SimStorage::new(1);
    let log = create(boot(&disk), Lsn::ZERO, small()).expect("create");
    // Envelope and body fill a sector.
    let a = put(&log, 7, 480);
    assert_eq!(a.end, Lsn(488));
    log.flush_to(a.end);
    let before = disk.calls();
    assert_eq!(rescan(&log, a.start, a.end), [(a.start, a.end, 7)]);
    let calls = disk.calls() - before;
    assert!(calls < 10, "{calls} calls of the disk for one sector");
}

/// A sector that stays unreadable ends a scan with an error.
#[test]
fn a_scan_does_not_read_a_damaged_sector_for_ever() {
    let _turn = turn();
    let disk = SimStorage::new(1);
    let log = create(boot(&disk), Lsn::ZERO, small()).expect("create");
    let end = (0..40).fold(Lsn::ZERO, |_, n| put(&log, n, 480).end);
    log.flush_to(end);
    disk.corrupt("redo.00000000", 512 * 20 + 100, 0xff)
        .expect("the file is there");
    let scanned = log.scan(Lsn::ZERO, end, &mut |_| Ok(()));
    assert!(matches!(scanned, Err(Error::Corrupt(_))), "{scanned:?}");
}

#[test]
fn every_small_size_at_every_offset() {
    let _turn = turn();
    let disk = SimStorage::new(1);
    let log = create(boot(&disk), Lsn(8), small()).expect("create");
    let mut expected = Vec::new();
    for n in 0..1200u64 {
        let a = put(&log, n, 8 + (n as usize * 7) % 600);
        expected.push((a.start, a.end, n));
        log.flush_to(a.end);
    }
    let end = log.current_lsn();
    assert_eq!(rescan(&log, Lsn(8), end), expected);
    for (i, e) in expected.iter().enumerate().step_by(37) {
        let (_, found) = reopen(boot(&disk), e.0, small()).expect("open");
        assert_eq!(found, expected[i..]);
    }
}

#[test]
fn empty_records_and_limits() {
    let _turn = turn();
    let disk = SimStorage::new(1);
    let cfg = LogConfig {
        ring_bytes: 4 << 20,
        segment_bytes: 256 << 10,
        direct: false,
    };
    let log = create(boot(&disk), Lsn(0), cfg.clone()).expect("create");
    log.append(0, &[]);
    log.append(0, &[&[], &[]]);
    assert_eq!(log.max_body(), 1 << 20);
    let big = vec![0u8; 1 << 20];
    let a = log.append(9, &[&big]);
    log.append(0, &[]);
    log.flush_to(Lsn::MAX);
    drop(log);
    let mut seen = Vec::new();
    let log = Log::open(boot(&disk), Lsn(0), cfg, &mut |r| {
        seen.push((r.start, r.kind, r.body.len()));
        Ok(())
    })
    .expect("open");
    let expected = [
        (Lsn(0), 0, 0),
        (Lsn(8), 0, 0),
        (Lsn(16), 9, 1 << 20),
        (a.end, 0, 0),
    ];
    assert_eq!(seen, expected);
    let stop = Error::Unsupported("enough".into());
    let result = log.scan(Lsn(0), a.end, &mut |_| Err(stop.clone()));
    assert_eq!(result, Err(stop));
}

#[test]
fn bad_settings_and_missing_logs_are_refused() {
    let _turn = turn();
    let disk = SimStorage::new(1);
    let bad = |c: LogConfig| {
        let r = create(boot(&disk), Lsn(0), c);
        assert!(matches!(r, Err(Error::BadConfig(_))), "{r:?}");
    };
    bad(LogConfig {
        ring_bytes: 100_000,
        ..small()
    });
    bad(LogConfig {
        segment_bytes: 100_000,
        ..small()
    });
    let r = create(boot(&disk), Lsn(4), small());
    assert!(matches!(r, Err(Error::BadConfig(_))));
    assert!(matches!(
        reopen(boot(&disk), Lsn(0), small()),
        Err(Error::Corrupt(_))
    ));
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    put(&log, 1, 100);
    log.flush_to(Lsn::MAX);
    for from in [Lsn(4800), Lsn(1 << 40), Lsn(488)] {
        let r = reopen(boot(&disk), from, small());
        assert!(matches!(r, Err(Error::Corrupt(_))), "{from} {r:?}");
    }
}

#[test]
fn segments_are_recycled_and_removed() {
    let _turn = turn();
    let disk = SimStorage::new(3);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    let mut starts = Vec::new();
    for n in 0..3000u64 {
        let a = put(&log, n, 500);
        starts.push(a.start);
        if n % 50 == 0 {
            log.flush_to(a.end);
        }
        if n % 100 == 99 {
            log.set_oldest_needed(starts[n as usize - 60]);
        }
    }
    log.flush_to(Lsn::MAX);
    let s = log.stats();
    assert!(s.segments_recycled > 10, "{s:?}");
    assert!(s.segments_created < 8, "{s:?}");
    let files = boot(&disk).list().expect("list").len();
    assert!(files < 10, "{files}");
    let oldest = log.oldest_lsn();
    assert!(oldest > Lsn(0) && oldest <= starts[2939]);
    let end = log.current_lsn();
    let found = rescan(&log, starts[2939], end);
    assert_eq!(found.len(), 3000 - 2939);
    drop(log);
    let (log, again) = reopen(boot(&disk), starts[2939], small()).expect("open");
    assert_eq!(again, found);
    // Too many spare ones are removed.
    for n in 3000..5000u64 {
        put(&log, n, 500);
    }
    log.flush_to(Lsn::MAX);
    log.set_oldest_needed(log.current_lsn());
    assert!(log.stats().segments_removed > 0);
    let files = boot(&disk).list().expect("list").len();
    assert!(files <= 10, "{files}");
}

/// Mode 2 of the engine: handed to the system, not synced.
#[test]
fn what_is_written_survives_the_process() {
    let _turn = turn();
    let disk = SimStorage::new(5);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    let mut end = Lsn(0);
    for n in 0..500u64 {
        end = put(&log, n, 300).end;
        log.write_to(end);
        if n % 100 == 50 {
            log.flush_to(end);
        }
    }
    assert!(log.durable_lsn() < end);
    let syncs = log.stats().flushes;
    assert!(syncs < 20, "{syncs} syncs");
    // The process ends; the machine goes on.
    drop(log);
    let (log, found) = reopen(boot(&disk), Lsn(0), small()).expect("open");
    assert_eq!(found.len(), 500);
    // What was found is durable before anything builds on it.
    drop(log);
    disk.crash(&mut Rng::new(1));
    let (_, again) = reopen(boot(&disk), Lsn(0), small()).expect("open again");
    assert_eq!(again, found);
}

#[test]
fn many_threads_append_and_commit() {
    let _turn = turn();
    const THREADS: u64 = 8;
    const EACH: u64 = 400;
    for (seed, deferred) in [(1, true), (2, false)] {
        let disk = SimStorage::new(seed);
        let cfg = LogConfig {
            ring_bytes: 64 << 10,
            segment_bytes: 256 << 10,
            direct: true,
        };
        let log = create(boot(&disk), Lsn(0), cfg.clone()).expect("create");
        let released = Arc::new(Mutex::new(Vec::new()));
        let (r, l) = (released.clone(), Arc::downgrade(&log));
        log.set_ack(Box::new(move |acks| {
            let tokens: Vec<usize> = acks.iter().map(|a| a.token).collect();
            let durable = l.upgrade().expect("log").durable_lsn();
            assert!(tokens.windows(2).all(|w| w[0] < w[1]), "not in LSN order");
            assert!(tokens.iter().all(|t| *t as u64 <= durable.0));
            r.lock().extend(tokens);
        }));
        log.start_threads(100);
        let queued = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (log, queued) = (log.clone(), queued.clone());
                thread::spawn("writer", move || {
                    let mut rng = Rng::new(t);
                    let mut mine = Vec::new();
                    for i in 0..EACH {
                        let n = t * EACH + i;
                        let a = put(&log, n, some_len(&mut rng, 3000));
                        mine.push((a.start, a.end, n));
                        let token = a.end.0 as usize;
                        let company = rng.chance(3, 4);
                        let ack = log.commit(a.end, &|| company, &mut || deferred.then_some(token));
                        match ack {
                            CommitAck::Done => assert!(log.durable_lsn() >= a.end),
                            CommitAck::Deferred => {
                                queued.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                    }
                    mine
                })
            })
            .collect();
        let mut expected: Vec<_> = threads
            .into_iter()
            .flat_map(|t| t.join().expect("writer"))
            .collect();
        expected.sort_unstable();
        log.stop_threads();
        assert_eq!(log.pending_acks(), 0);
        assert_eq!(released.lock().len(), queued.load(Ordering::SeqCst));
        assert_eq!(deferred, !released.lock().is_empty());
        assert_eq!(log.durable_lsn(), log.current_lsn());
        assert_eq!(rescan(&log, Lsn(0), Lsn::MAX), expected);
        let s = log.stats();
        assert_eq!(s.records, THREADS * EACH);
        assert_eq!(s.deferred, released.lock().len() as u64);
        drop(log);
        let (_, found) = reopen(boot(&disk), Lsn(0), cfg).expect("open");
        assert_eq!(found, expected);
    }
}

#[test]
fn notices_and_requests() {
    let _turn = turn();
    let disk = SimStorage::new(4);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    let seen = Arc::new(AtomicU64::new(0));
    let notice = |bit: u64| {
        let seen = seen.clone();
        Box::new(move || {
            seen.fetch_add(bit, Ordering::SeqCst);
        })
    };
    log.notify_when_durable(Lsn(0), notice(1));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    let a = put(&log, 1, 100);
    log.notify_when_durable(a.end, notice(16));
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    log.flush_to(a.end);
    assert_eq!(seen.load(Ordering::SeqCst), 17);
    // With the threads nobody has to wait for it.
    log.start_threads(0);
    let a = put(&log, 2, 100);
    log.notify_when_durable(a.end, notice(256));
    while seen.load(Ordering::SeqCst) != 273 {
        thread::yield_now();
    }
    let a = put(&log, 3, 100);
    log.request_flush(a.end);
    while log.durable_lsn() < a.end {
        thread::yield_now();
    }
    // The interval bounds how long an unwanted record stays in memory.
    log.set_flush_interval_ms(5);
    let a = put(&log, 4, 100);
    while log.durable_lsn() < a.end {
        thread::sleep_ms(1);
    }
    log.stop_threads();
    assert_eq!(rescan(&log, Lsn(0), Lsn::MAX).len(), 4);
}

/// A lower budget gives files back, down to what it allows; a log that goes on has what it needs.
#[test]
fn a_lower_budget_gives_files_back() {
    let _turn = turn();
    for threads in [false, true] {
        let disk = SimStorage::new(3);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        if threads {
            log.start_threads(0);
        }
        let files = || {
            let names = boot(&disk).list().expect("list");
            names.iter().filter(|n| n.starts_with("redo.0")).count()
        };
        let mut n = 0;
        let mut fill = |log: &Log| {
            for _ in 0..400 {
                put(log, n, 2000);
                n += 1;
            }
            log.flush_to(Lsn::MAX);
        };
        fill(&log);
        assert!(files() > 12, "{}", files());
        // Everything is needed: nothing goes.
        log.set_budget(4 * (64 << 10));
        assert!(files() > 12);
        let wait = |most: usize| {
            let mut left = 5000;
            while files() > most && left > 0 {
                left -= 1;
                ferrite_sync::thread::sleep_ms(1);
            }
            assert!((3..=most).contains(&files()), "{} files", files());
        };
        log.set_oldest_needed(log.current_lsn());
        wait(6);
        log.set_budget(64 << 10);
        wait(3);
        let from = log.current_lsn();
        fill(&log);
        assert_eq!(rescan(&log, from, Lsn::MAX).len(), 400);
        log.set_budget(u64::MAX);
        let from = log.current_lsn();
        log.set_oldest_needed(from);
        fill(&log);
        log.stop_threads();
        let (_, found) = reopen(boot(&disk), from, small()).expect("open");
        assert_eq!(found.len(), 400);
    }
}

/// With scrubbing on, a file that comes to use again holds nothing old, and after the end of the
/// log nothing is left but what a restart begins with.
#[test]
fn a_scrubbed_log_holds_nothing_old() {
    let _turn = turn();
    let disk = SimStorage::new(3);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    let secret = |round: u8| [round ^ 0xa5; 64];
    let found = |round: u8| -> Vec<String> {
        let names = boot(&disk).list().expect("list");
        let holds = |n: &String| {
            let bytes = disk.contents(n).expect("contents");
            bytes.windows(64).any(|w| w == secret(round))
        };
        names.into_iter().filter(holds).collect()
    };
    let fill = |round: u8| {
        for _ in 0..1500 {
            log.append(1, &[&secret(round)]);
        }
        log.flush_to(Lsn::MAX);
        log.set_oldest_needed(log.current_lsn());
    };
    for round in 0..4 {
        fill(round);
    }
    let old: usize = (0..3).map(|round| found(round).len()).sum();
    assert!(old > 0, "spare files hold what was there");
    log.set_scrub(true);
    // Spare files are clean; the one being written is not.
    fill(4);
    for round in 0..3 {
        assert_eq!(found(round), Vec::<String>::new(), "round {round}");
    }
    for round in 5..12 {
        fill(round);
    }
    assert_eq!(found(9), Vec::<String>::new());
    assert!(log.stats().scrubbed_bytes > 64 << 10);
    log.pad();
    let end = log.current_lsn();
    log.scrub_before(end).expect("scrub");
    for round in 0..12 {
        assert_eq!(found(round), Vec::<String>::new(), "round {round}");
    }
    drop(log);
    let (log, records) = reopen(boot(&disk), end, small()).expect("open");
    assert!(records.is_empty());
    assert_eq!(log.current_lsn(), end);
}

/// Scrubbing may begin when spare files with old content lie before clean ones, and after a spare
/// file could not be made: each of them is overwritten before it is used again.
#[test]
fn scrubbing_finds_every_spare_file_that_holds_something_old() {
    let _turn = turn();
    for sync_fails in [false, true] {
        let disk = SimStorage::new(4);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        let secret = [0x5a; 64];
        for _ in 0..1200 {
            log.append(1, &[&secret]);
        }
        log.flush_to(Lsn::MAX);
        if sync_fails {
            // Of the second file that is made now: the first is complete.
            disk.inject_in(Fault::FailSync, 2, "");
            log.prepare_now();
        }
        log.set_oldest_needed(log.durable_lsn());
        let written = "redo.00000001".to_string();
        let holding = || -> Vec<String> {
            let names = boot(&disk).list().expect("list");
            let holds = |n: &String| {
                let bytes = disk.contents(n).expect("contents");
                *n != written && bytes.windows(64).any(|w| w == secret)
            };
            names.into_iter().filter(holds).collect()
        };
        assert_eq!(holding(), ["redo.00000002"], "a file is recycled as it is");
        log.set_scrub(true);
        assert_eq!(holding(), Vec::<String>::new(), "sync fails: {sync_fails}");
    }
}
