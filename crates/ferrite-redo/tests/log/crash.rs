//! Power cuts, torn writes, full disks, failing disks, damaged files.
//!
//! The property throughout: after any crash the log holds a prefix of what was appended
//! that contains everything that was acknowledged, and once an opening has handed records
//! out, no later crash takes them away or brings others back.

use crate::common::*;
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_redo::{CommitAck, Log};
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc, Event, Mutex};
use ferrite_types::{Error, Lsn};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

/// A log whose disk has gone panics by design: keep those messages out of the output.
fn expect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let payload = info.payload();
            let text = payload.downcast_ref::<String>().map_or("", |s| s);
            if !text.contains("redo log") {
                usual(info);
            }
        }));
    });
}

fn seeds(default: u64) -> u64 {
    let wanted = std::env::var("FERRITE_REDO_SEEDS");
    wanted.ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

/// What a log must and may hold.
#[derive(Default)]
struct Model {
    /// Everything appended in this life and everything found at its beginning.
    appended: Found,
    /// Acknowledged up to here.
    durable: Lsn,
    /// Where the next scan begins.
    from: Lsn,
    /// Number of the next record; never used twice, over all lives.
    next: u64,
    /// Every record fills one sector exactly.
    aligned: bool,
}

impl Model {
    /// Takes over what an opening has found, after checking it.
    fn check(&mut self, found: Found, what: &str) {
        let from = self.from;
        self.appended.retain(|r| r.0 >= from);
        assert!(
            found.len() <= self.appended.len(),
            "{what}: too many records"
        );
        let n = found.len();
        assert_eq!(found[..], self.appended[..n], "{what}: not a prefix");
        let lost = self.appended[n..].iter().find(|r| r.1 <= self.durable);
        assert!(lost.is_none(), "{what}: lost {lost:?} of {}", self.durable);
        self.durable = found.last().map_or(from, |r| r.1);
        self.appended = found;
    }
}

/// Appends and flushes for a while; ends early, by panic, when the power goes.
fn work(log: &Log, model: &mut Model, rng: &mut Rng, rounds: u64) {
    for _ in 0..rounds {
        let n = model.next;
        model.next += 1;
        let max = if rng.chance(1, 10) { 15_000 } else { 700 };
        let len = if model.aligned {
            480
        } else {
            some_len(rng, max)
        };
        // Known before it can be written: the ring may fill up within `append`.
        let start = log.current_lsn();
        let end = Lsn(start.0 + 8 + len.max(8).next_multiple_of(8) as u64);
        model.appended.push((start, end, n));
        let a = put(log, n, len);
        assert_eq!((a.start, a.end), (start, end));
        if rng.chance(1, 2) {
            let pick = rng.below(model.appended.len() as u64) as usize;
            let upto = if rng.chance(3, 4) {
                end
            } else {
                model.appended[pick].1
            };
            log.flush_to(upto);
            model.durable = model.durable.max(log.durable_lsn()).max(upto);
        }
        if rng.chance(1, 15) {
            let kept: Vec<_> = model
                .appended
                .iter()
                .filter(|r| r.0 <= model.durable)
                .collect();
            if let Some(r) = kept.get(rng.below(kept.len().max(1) as u64) as usize) {
                if r.0 >= model.from {
                    model.from = r.0;
                }
            }
            if rng.chance(1, 2) {
                model.from = model.durable;
            }
            log.set_oldest_needed(model.from);
        }
    }
}

/// One disk, several lives, a power cut at a random or given call of each.
fn lives(seed: u64, first_cut: Option<u64>) -> bool {
    let mut rng = Rng::new(seed);
    let disk = SimStorage::new(seed);
    let aligned = rng.chance(1, 3);
    let start = Lsn(rng.below(300) * if aligned { 488 } else { 80 });
    let mut model = Model {
        aligned,
        from: start,
        durable: start,
        ..Model::default()
    };
    let mut log = Some(create(boot(&disk), start, small()).expect("create"));
    let mut cut_happened = true;
    for life in 0..6 {
        let what = format!("seed {seed} cut {first_cut:?} life {life}");
        match (life, first_cut) {
            (0, Some(n)) => disk.power_off_after(n),
            _ => disk.power_off_after(rng.between(1, 60)),
        }
        let log = log.take();
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let log = match log {
                Some(log) => log,
                None => match reopen(boot(&disk), model.from, small()) {
                    Ok((log, found)) => {
                        model.check(found, &what);
                        log
                    }
                    Err(e) if disk.powered() => panic!("{what}: {e}"),
                    Err(_) => return,
                },
            };
            let rounds = if life == 0 { 60 } else { rng.below(80) };
            work(&log, &mut model, &mut rng, rounds);
        }));
        if let Err(e) = ended {
            if disk.powered() {
                std::panic::resume_unwind(e);
            }
        } else if life == 0 {
            cut_happened = !disk.powered();
        }
        disk.crash(&mut rng);
    }
    let (log, found) = reopen(boot(&disk), model.from, small()).expect("last opening");
    model.check(found.clone(), &format!("seed {seed} end"));
    assert_eq!(rescan(&log, model.from, Lsn::MAX), found);
    cut_happened
}

#[test]
fn power_cut_at_every_call() {
    let _turn = turn();
    expect_panics();
    for seed in 0..seeds(8) {
        let mut cut = 1;
        while lives(seed, Some(cut)) {
            cut += 1;
        }
        assert!(cut > 50, "only {cut} calls");
    }
}

#[test]
fn many_lives() {
    let _turn = turn();
    expect_panics();
    for seed in 1000..1000 + seeds(1500) {
        lives(seed, None);
    }
}

/// Every mixture of old and new sectors of a rewritten tail block.
#[test]
fn torn_tail_block_in_all_ways() {
    let _turn = turn();
    for seed in 0..seeds(60) {
        let mut rng = Rng::new(seed);
        let disk = SimStorage::new(seed);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        let mut all = Found::new();
        let mut next = 0;
        let mut more = |log: &Log, all: &mut Found, count: u64, rng: &mut Rng| {
            for _ in 0..count {
                let a = put(log, next, rng.between(8, 900) as usize);
                all.push((a.start, a.end, next));
                next += 1;
            }
            log.flush_to(Lsn::MAX);
        };
        let count = rng.between(1, 12);
        more(&log, &mut all, count, &mut rng);
        let acknowledged = all.len();
        let old = disk.contents("redo.00000000").expect("file");
        more(&log, &mut all, 2, &mut rng);
        let new = disk.contents("redo.00000000").expect("file");
        drop(log);
        let both = disk.snapshot();
        let block = all[acknowledged - 1].1 .0 as usize / 3904 * 4096;
        for mask in 0..256u32 {
            let mut bytes = new[block..block + 4096].to_vec();
            for s in (0..8).filter(|s| mask >> s & 1 == 0) {
                let at = block + s * 512;
                bytes[s * 512..][..512].copy_from_slice(&old[at..at + 512]);
            }
            disk.restore(&both);
            disk.overwrite("redo.00000000", block as u64, &bytes)
                .expect("overwrite");
            let (_, found) = reopen(boot(&disk), Lsn(0), small()).expect("open");
            assert!(found.len() >= acknowledged, "seed {seed} mask {mask:08b}");
            assert_eq!(found[..], all[..found.len()]);
            // What was found stays, and nothing else comes back, under any second mixture.
            let (_, again) = reopen(boot(&disk), Lsn(0), small()).expect("open again");
            assert_eq!(again, found);
        }
    }
}

#[test]
fn threads_and_a_power_cut() {
    let _turn = turn();
    expect_panics();
    for seed in 0..seeds(150) {
        let mut rng = Rng::new(seed);
        let disk = SimStorage::new(seed);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        let acknowledged = Arc::new(Mutex::new(Vec::<Lsn>::new()));
        let acks = acknowledged.clone();
        log.set_ack(Box::new(move |released| {
            acks.lock()
                .extend(released.iter().map(|a| Lsn(a.token as u64)));
        }));
        log.start_threads(if rng.chance(1, 2) { 1 } else { 0 });
        disk.power_off_after(rng.between(1, 400));
        let threads: Vec<_> = (0..4u64)
            .map(|t| {
                let (log, acks) = (log.clone(), acknowledged.clone());
                thread::spawn("writer", move || {
                    let mut rng = Rng::new(seed * 10 + t);
                    let mut mine = Vec::new();
                    let _ = catch_unwind(AssertUnwindSafe(|| {
                        for i in 0..200 {
                            let a = put(&log, t << 32 | i, some_len(&mut rng, 2000));
                            mine.push((a.start, a.end, t << 32 | i));
                            let token = rng.chance(2, 3).then_some(a.end.0 as usize);
                            let company = rng.chance(3, 4);
                            if log.commit(a.end, &|| company, &mut || token) == CommitAck::Done {
                                acks.lock().push(a.end);
                            }
                        }
                    }));
                    mine
                })
            })
            .collect();
        let mut appended: Found = threads
            .into_iter()
            .flat_map(|t| t.join().expect("writer"))
            .collect();
        appended.sort_unstable();
        log.stop_threads();
        disk.crash(&mut rng);
        let acknowledged: Vec<Lsn> = acknowledged.lock().clone();
        let from = Lsn(0);
        let (_, found) = reopen(boot(&disk), from, small()).expect("open");
        // A record in the middle of its append at the cut is in nobody's list.
        let mut known = appended.iter().peekable();
        let mut at = from;
        for f in &found {
            assert_eq!(f.0, at, "a hole");
            at = f.1;
            if known.peek() == Some(&f) {
                known.next();
            }
        }
        assert!(
            known.next().is_none_or(|r| r.0 >= at),
            "seed {seed}: not a prefix"
        );
        let durable = acknowledged.iter().max().copied().unwrap_or(from);
        assert!(
            at >= durable,
            "seed {seed}: lost up to {durable}, have {at}"
        );
    }
}

#[test]
fn failed_writes_and_syncs_are_final() {
    let _turn = turn();
    expect_panics();
    for fault in [Fault::FailWrite, Fault::FailSync] {
        let disk = SimStorage::new(1);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        let said = Arc::new(Mutex::new(Vec::new()));
        let s = said.clone();
        log.set_fatal(Box::new(move |text| s.lock().push(text.to_owned())));
        let a = put(&log, 1, 100);
        log.flush_to(a.end);
        disk.inject(fault, 1);
        let b = put(&log, 2, 100);
        for _ in 0..2 {
            let r = catch_unwind(AssertUnwindSafe(|| log.flush_to(b.end)));
            assert!(r.is_err());
        }
        let r = catch_unwind(AssertUnwindSafe(|| {
            log.commit(b.end, &|| true, &mut || None)
        }));
        assert!(r.is_err());
        assert_eq!(log.durable_lsn(), a.end);
        assert_eq!(said.lock().len(), 1);
        assert!(said.lock()[0].contains("cannot be written"));
    }
}

/// Nobody may end the process with a lesser message while the reason is still being told.
#[test]
fn a_failure_is_told_before_anybody_else_hears_of_it() {
    let _turn = turn();
    expect_panics();
    let disk = SimStorage::new(1);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    let (entered, told) = (Arc::new(Event::new()), Arc::new(AtomicBool::new(false)));
    let (e, t) = (entered.clone(), told.clone());
    log.set_fatal(Box::new(move |_| {
        e.set();
        thread::sleep_ms(50);
        t.store(true, Ordering::SeqCst);
    }));
    disk.inject(Fault::FailSync, 1);
    let a = put(&log, 1, 100);
    let failing = log.clone();
    let flusher = thread::spawn("flusher", move || {
        catch_unwind(AssertUnwindSafe(|| failing.flush_to(a.end))).is_err()
    });
    entered.wait();
    let r = catch_unwind(AssertUnwindSafe(|| log.flush_to(a.end)));
    assert!(r.is_err() && told.load(Ordering::SeqCst));
    assert!(flusher.join().expect("flusher"));
}

#[test]
fn a_failed_flush_reaches_everybody_who_waits() {
    let _turn = turn();
    expect_panics();
    for seed in 0..20 {
        let disk = SimStorage::new(seed);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        let fatal = Arc::new(AtomicU64::new(0));
        let f = fatal.clone();
        log.set_fatal(Box::new(move |_| {
            f.fetch_add(1, Ordering::SeqCst);
        }));
        log.set_ack(Box::new(|_| ()));
        log.start_threads(10);
        disk.inject_in(Fault::FailSync, 20 + seed, "redo.0");
        let threads: Vec<_> = (0..6)
            .map(|t| {
                let log = log.clone();
                thread::spawn("writer", move || {
                    catch_unwind(AssertUnwindSafe(|| loop {
                        let a = put(&log, t, 900);
                        log.commit(a.end, &|| t % 2 == 0, &mut || (t % 4 == 0).then_some(1));
                    }))
                    .is_err()
                })
            })
            .collect();
        for t in threads {
            assert!(t.join().expect("writer"));
        }
        log.stop_threads();
        assert_eq!(fatal.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_full_disk_refuses_writers_and_recovers() {
    let _turn = turn();
    for threads in [false, true] {
        let disk = SimStorage::new(7);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        if threads {
            log.start_threads(0);
        }
        disk.set_capacity(Some(disk.used_bytes().max(4 * (64 << 10)) + 4096));
        let mut n = 0;
        let mut refused = None;
        while refused.is_none() {
            assert!(n < 10_000, "never refused");
            refused = log.admission().err();
            let a = put(&log, n, 200);
            n += 1;
            log.flush_to(a.end);
            log.set_oldest_needed(Lsn(0));
        }
        assert!(matches!(refused, Some(Error::DiskFull(_))));
        // What was refused stays refused; what runs may still finish.
        for _ in 0..20 {
            assert!(log.admission().is_err());
            let a = put(&log, n, 200);
            n += 1;
            log.flush_to(a.end);
        }
        // Space comes back: so do the writers, without being asked.
        disk.set_capacity(None);
        let since = ferrite_sync::time::now_us();
        while log.admission().is_err() {
            assert!(ferrite_sync::time::now_us() - since < 20_000_000);
            thread::sleep_ms(1);
        }
        for _ in 0..1000 {
            put(&log, n, 200);
            n += 1;
        }
        log.flush_to(Lsn::MAX);
        log.stop_threads();
        drop(log);
        let (_, found) = reopen(boot(&disk), Lsn(0), small()).expect("open");
        assert_eq!(found.len() as u64, n);
    }
}

#[test]
fn a_disk_that_is_really_full_stands_still_and_goes_on() {
    let _turn = turn();
    let disk = SimStorage::new(9);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    disk.set_capacity(Some(disk.used_bytes()));
    let l = log.clone();
    let writer = thread::spawn("writer", move || {
        for n in 0..500 {
            let a = put(&l, n, 400);
            l.flush_to(a.end);
        }
    });
    while log.stats().waits_disk_full < 2 {
        thread::sleep_ms(5);
    }
    assert!(!writer.is_finished());
    disk.set_capacity(None);
    writer.join().expect("writer");
    assert_eq!(rescan(&log, Lsn(0), Lsn::MAX).len(), 500);
}

/// While the process is to end, nobody makes room: the log fails rather than keep it from that for ever, and says why.
/// What was acknowledged is there, and nothing of what was not is out of order.
#[test]
fn a_log_without_room_holds_up_the_end_of_the_process_for_a_while_only() {
    const PATIENCE_MS: u64 = 300;
    for threads in [false, true] {
        let disk = SimStorage::new(9);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        let (ending, told) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let t: Arc<Mutex<String>> = Arc::clone(&told);
        log.set_fatal(Box::new(move |text| *t.lock() = text.to_owned()));
        let e = ending.clone();
        log.set_patience(PATIENCE_MS, Box::new(move || e.load(Ordering::SeqCst)));
        if threads {
            log.start_threads(0);
        }
        disk.set_capacity(Some(disk.used_bytes()));
        let (l, acknowledged) = (log.clone(), Arc::new(AtomicU64::new(0)));
        let a = acknowledged.clone();
        let writer = thread::spawn("writer", move || {
            catch_unwind(AssertUnwindSafe(|| {
                for n in 0.. {
                    let at = put(&l, n, 400);
                    l.flush_to(at.end);
                    a.store(n + 1, Ordering::SeqCst);
                }
            }))
            .is_err()
        });
        while log.stats().waits_disk_full < 2 {
            thread::sleep_ms(5);
        }
        thread::sleep_ms(2 * PATIENCE_MS);
        assert!(!writer.is_finished(), "nobody wants to end");
        let since_us = ferrite_sync::time::now_us();
        ending.store(true, Ordering::SeqCst);
        assert!(writer.join().expect("writer"), "it goes on without a file");
        let ms = (ferrite_sync::time::now_us() - since_us) / 1000;
        assert!(ms >= PATIENCE_MS, "given up after {ms} ms");
        let told = told.lock().clone();
        assert!(
            told.contains("disk full") && told.contains("the server shuts down"),
            "{told}"
        );
        log.stop_threads();
        drop(log);
        disk.set_capacity(None);
        let (_, found) = reopen(boot(&disk), Lsn(0), small()).expect("open");
        assert!(found.len() as u64 >= acknowledged.load(Ordering::SeqCst));
        assert!(found.iter().enumerate().all(|(n, at)| at.2 == n as u64));
    }
}

/// What has been promised to be appended has its files, also where no further one can be made.
#[test]
fn promised_records_find_room_on_a_full_disk() {
    /// A record with a body of 88 bytes.
    const EACH: u64 = 96;
    let disk = SimStorage::new(9);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    log.start_threads(0);
    let most = 7000 * EACH;
    log.set_budget(4 * small().segment_bytes);
    let mut promised = 0;
    while promised < most {
        log.admission().expect("the disk has room");
        log.promise(EACH);
        promised += EACH;
    }
    log.admission().expect("the disk has room");
    disk.set_capacity(Some(disk.used_bytes()));
    // Others get no more than they would without it.
    let mut n = 0;
    while log.admission().is_ok() {
        put(&log, n, 400);
        log.flush_to(Lsn::MAX);
        n += 1;
    }
    let kept = n;
    while promised > 0 {
        put(&log, n, 88);
        log.flush_to(Lsn::MAX);
        log.unpromise(EACH);
        promised -= EACH;
        n += 1;
    }
    assert!(log.admission().is_err());
    assert_eq!(log.stats().waits_disk_full, 0);
    disk.set_capacity(None);
    log.prepare_now();
    log.admission().expect("the disk has room again");
    // What is not wanted any more is given back.
    log.promise(most);
    log.prepare_now();
    let with = disk.used_bytes();
    log.unpromise(most);
    log.prepare_now();
    assert!(with - disk.used_bytes() >= most / 2, "files are left");
    assert!(kept > 0 && log.admission().is_ok());
    log.stop_threads();
}

/// Too many open files: nothing has failed to be written or synced.
#[test]
fn without_an_open_file_to_be_had_the_log_stands_still_and_goes_on() {
    let _turn = turn();
    for threads in [false, true] {
        let disk = SimStorage::new(9);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        log.set_fatal(Box::new(|text| panic!("{text}")));
        if threads {
            log.start_threads(0);
        }
        put(&log, 0, 400);
        log.flush_to(Lsn::MAX);
        disk.refuse_opens(true);
        let mut refused = None;
        let mut n = 1;
        while refused.is_none() {
            assert!(n < 10_000, "never refused");
            refused = log.admission().err();
            put(&log, n, 200);
            log.flush_to(Lsn::MAX);
            n += 1;
        }
        let is_named = matches!(&refused, Some(Error::Shortage(t)) if t.contains("open files"));
        assert!(is_named, "{refused:?}");
        let l = log.clone();
        let writer = thread::spawn("writer", move || {
            for n in n..n + 1000 {
                let a = put(&l, n, 200);
                l.flush_to(a.end);
            }
        });
        let stands = |before: Lsn| {
            thread::sleep_ms(200);
            log.durable_lsn() == before
        };
        while !stands(log.durable_lsn()) {}
        assert!(!writer.is_finished());
        disk.refuse_opens(false);
        writer.join().expect("writer");
        log.stop_threads();
        assert!(log.admission().is_ok());
        assert_eq!(log.stats().waits_disk_full, 0);
        drop(log);
        disk.crash_clean();
        let (_, found) = reopen(boot(&disk), Lsn(0), small()).expect("open");
        assert_eq!(found.len() as u64, n + 1000);
    }
}

/// What is only handed to the system needs a file more, but not so badly.
#[test]
fn without_an_open_file_to_be_had_records_are_handed_over_past_the_cache() {
    let _turn = turn();
    let disk = SimStorage::new(10);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    log.prepare_up_to(Lsn(300 * 500)).expect("files");
    for n in 0..300 {
        disk.refuse_opens(n % 100 < 50);
        log.write_to(put(&log, n, 400).end);
    }
    log.flush_to(Lsn::MAX);
    drop(log);
    disk.crash_clean();
    let (_, found) = reopen(boot(&disk), Lsn(0), small()).expect("open");
    assert_eq!(found.len(), 300);
}

/// Damage before the end is reported, not taken for the end.
#[test]
fn damage_in_the_middle_is_not_a_torn_end() {
    let _turn = turn();
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let disk = SimStorage::new(seed);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        let mut last = Lsn(0);
        for n in 0..300 {
            last = put(&log, n, some_len(&mut rng, 3000)).end;
            if rng.chance(1, 2) {
                log.flush_to(last);
            }
        }
        log.flush_to(last);
        // Two more rounds: the first is durable by the word of the second.
        let a = put(&log, 300, 2000);
        log.flush_to(a.end);
        let b = put(&log, 301, 2000);
        log.flush_to(b.end);
        drop(log);
        let sector = rng.below(last.0 / 488);
        let name = format!("redo.{:08}", sector / 128);
        let at = sector % 128 * 512 + rng.below(512);
        disk.corrupt(&name, at, 1 << rng.below(8)).expect("corrupt");
        let r = reopen(boot(&disk), Lsn(0), small());
        let text = match r {
            Err(Error::Corrupt(text)) => text,
            other => panic!("seed {seed}: {other:?}"),
        };
        assert!(text.contains(&name), "{text}");
    }
}

#[test]
fn a_lost_write_or_file_is_noticed() {
    let _turn = turn();
    let disk = SimStorage::new(5);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    for n in 0..100 {
        if n == 50 {
            disk.inject_in(Fault::LostWrite, 1, "redo");
        }
        let a = put(&log, n, 1000);
        log.flush_to(a.end);
    }
    let r = reopen(boot(&disk), Lsn(0), small());
    assert!(matches!(r, Err(Error::Corrupt(_))), "{r:?}");
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    for n in 0..400 {
        let a = put(&log, n, 1000);
        log.flush_to(a.end);
    }
    boot(&disk).remove("redo.00000002").expect("remove");
    let r = reopen(boot(&disk), Lsn(0), small());
    assert!(matches!(r, Err(Error::Corrupt(_))), "{r:?}");
}

/// A log that ends where a segment ends, and begins there: the epoch is in the one before.
#[test]
fn an_end_at_the_end_of_a_segment() {
    let _turn = turn();
    let disk = SimStorage::new(5);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    for n in 0..256 {
        put(&log, n, 480);
    }
    log.flush_to(Lsn::MAX);
    let end = log.current_lsn();
    assert_eq!(end, Lsn(2 * 128 * 488));
    log.set_oldest_needed(end);
    drop(log);
    for life in 0..4 {
        if life == 2 {
            // The segment that would come next has not been made.
            for s in 2..5 {
                let _ = boot(&disk).remove(&format!("redo.{s:08}"));
            }
            boot(&disk).sync_dir().expect("sync");
        }
        let (log, found) = reopen(boot(&disk), end, small()).expect("open");
        assert!(found.is_empty() && log.current_lsn() == end);
        log.set_oldest_needed(end);
        assert_eq!(log.oldest_lsn(), Lsn(128 * 488));
    }
}

/// Left-over sectors exactly where a scan begins: only the one before tells their age.
#[test]
fn left_over_sectors_at_the_start_of_a_scan() {
    let _turn = turn();
    let disk = SimStorage::new(5);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    for n in 0..16 {
        put(&log, n, 480);
    }
    log.flush_to(Lsn::MAX);
    drop(log);
    // As if the write had been torn: sector 7 did not make it, those after it did.
    disk.overwrite("redo.00000000", 7 * 512, &[0; 512])
        .expect("overwrite");
    let (log, found) = reopen(boot(&disk), Lsn(0), small()).expect("open");
    assert_eq!(found.len(), 7);
    let a = put(&log, 100, 480);
    log.flush_to(a.end);
    drop(log);
    for from in [a.end, a.start, Lsn(0)] {
        let (_, found) = reopen(boot(&disk), from, small()).expect("open again");
        assert!(found.iter().all(|r| r.2 < 7 || r.2 == 100), "{found:?}");
    }
}

/// Any bytes in the files: an error or a log, never a panic.
#[test]
fn damaged_files_never_panic() {
    let _turn = turn();
    for seed in 0..seeds(400) {
        let mut rng = Rng::new(seed);
        let disk = SimStorage::new(seed);
        let log = create(boot(&disk), Lsn(0), small()).expect("create");
        for n in 0..rng.below(200) {
            put(&log, n, some_len(&mut rng, 3000));
        }
        log.flush_to(Lsn::MAX);
        let end = log.current_lsn();
        drop(log);
        let names = boot(&disk).list().expect("list");
        for _ in 0..rng.between(1, 20) {
            let name = &names[rng.below(names.len() as u64) as usize];
            let mut junk = vec![0; rng.between(1, 3000) as usize];
            rng.fill(&mut junk);
            let at = rng.below((64 << 10) - junk.len() as u64);
            disk.overwrite(name, at, &junk).expect("overwrite");
        }
        let from = Lsn(rng.below(end.0 / 8 + 2) * 8);
        let _ = Log::open(boot(&disk), from, small(), &mut |_| Ok(()));
    }
}
