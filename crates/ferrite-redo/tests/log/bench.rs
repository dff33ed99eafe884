//! Figures, not checks: commits per second on a real disk. Run with
//! `cargo test --release -p ferrite-redo --test log -- bench:: --ignored --nocapture`;
//! `FERRITE_BENCH_DIR` chooses the disk.

use crate::common::turn;
use ferrite_io::{AlignedBuf, OpenMode, RealStorage, Storage};
use ferrite_redo::{CommitAck, Log, LogConfig};
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::{thread, time, Arc, Event};
use ferrite_types::Lsn;

/// How a commit waits.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Every caller leads or waits.
    Shared,
    /// The flusher acknowledges; the client sleeps until it does (one per thread).
    Deferred,
    /// Nobody waits.
    NotDurable,
}

const SECONDS: u64 = 3;
const BODY: usize = 200;

fn client(log: &Log, how: How, company: bool, answer: &Event, stop: &AtomicBool) -> u64 {
    let body = [0x5a; BODY];
    let token = answer as *const Event as usize;
    let mut n = 0;
    while !stop.load(Ordering::Relaxed) {
        let a = log.append(3, &[&body]);
        n += 1;
        let ack = match how {
            How::NotDurable => continue,
            How::Shared => log.commit(a.end, &|| company, &mut || None),
            How::Deferred => log.commit(a.end, &|| company, &mut || Some(token)),
        };
        if ack == CommitAck::Deferred {
            answer.wait();
        }
    }
    n
}

fn run(storage: &Arc<dyn Storage>, how: How, clients: usize) {
    let log = Log::create(storage.clone(), Lsn(0), LogConfig::default()).expect("create");
    let answers: Arc<Vec<Event>> = Arc::new((0..clients).map(|_| Event::new()).collect());
    let all = answers.clone();
    log.set_ack(Box::new(move |acks| {
        let base = all.as_ptr() as usize;
        for ack in acks {
            all[(ack.token - base) / size_of::<Event>()].set();
        }
    }));
    log.start_threads(1000);
    while log.stats().segments_created < 3 {
        thread::sleep_ms(10);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let total = Arc::new(AtomicU64::new(0));
    let (before, since) = (switches(), time::now_us());
    let threads: Vec<_> = (0..clients)
        .map(|i| {
            let (log, answers) = (log.clone(), answers.clone());
            let (stop, total) = (stop.clone(), total.clone());
            thread::spawn("client", move || {
                let n = client(&log, how, clients > 1, &answers[i], &stop);
                total.fetch_add(n, Ordering::SeqCst);
            })
        })
        .collect();
    thread::sleep_ms(SECONDS * 1000);
    let switched = switches() - before;
    stop.store(true, Ordering::SeqCst);
    for t in threads {
        t.join().expect("client");
    }
    let us = time::now_us() - since;
    let n = total.load(Ordering::SeqCst);
    let s = log.stats();
    println!(
        "{how:?} {clients:3} clients: {:8} commits/s, {:5.1} per flush, sync p50 {} p99 {} us, \
         {:.1} switches per commit, groups p50 {}, parked {}, wake-ups {}, ring full {}",
        n * 1_000_000 / us,
        n as f64 / s.flushes.max(1) as f64,
        s.sync_us.p50,
        s.sync_us.p99,
        switched as f64 / n as f64,
        s.group_size.p50,
        s.waits_flush,
        s.flusher_wakeups,
        s.waits_ring_full,
    );
    log.stop_threads();
}

/// What the disk itself allows one caller: 4 KiB written and synced, over and over.
fn device(storage: &dyn Storage) {
    let buf = AlignedBuf::zeroed(4096);
    let f = storage
        .open("device", OpenMode::CreateNew, true)
        .expect("open");
    f.allocate(0, 1 << 20).expect("allocate");
    for i in 0..256 {
        f.write_at(&buf, i * 4096).expect("write");
    }
    f.sync_data().expect("sync");
    let (since, mut n) = (time::now_us(), 0);
    while time::now_us() - since < SECONDS * 1_000_000 {
        f.write_at(&buf, n % 256 * 4096).expect("write");
        f.sync_data().expect("sync");
        n += 1;
    }
    println!("Device   1 caller: {:8} writes and syncs/s", n / SECONDS);
    storage.remove("device").expect("remove");
}

/// Context switches of all live threads of this process.
fn switches() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten();
    let texts = tasks
        .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("status")).ok())
        .collect::<String>();
    texts
        .lines()
        .filter(|l| l.contains("ctxt_switches"))
        .filter_map(|l| l.split_whitespace().last()?.parse::<u64>().ok())
        .sum()
}

/// What an append costs while the ring is empty, and how fast a log is read back.
fn append_and_scan(storage: &Arc<dyn Storage>) {
    let log = Log::create(storage.clone(), Lsn(0), LogConfig::default()).expect("create");
    let body = [0x5a; BODY];
    let (mut us, mut count) = (0, 0);
    for _ in 0..20 {
        let since = time::now_us();
        for _ in 0..30_000 {
            log.append(3, &[&body[..20], &body[20..33], &body[33..]]);
        }
        us += time::now_us() - since;
        count += 30_000;
        log.flush_to(Lsn::MAX);
    }
    println!("append: {} ns", us * 1000 / count);
    drop(log);
    let since = time::now_us();
    let (mut bytes, mut records) = (0, 0u64);
    let log = Log::open(storage.clone(), Lsn(0), LogConfig::default(), &mut |r| {
        records += 1;
        bytes += r.body.len() as u64;
        Ok(())
    })
    .expect("open");
    let us = time::now_us() - since;
    assert_eq!(records, count);
    let mib = log.current_lsn().0 >> 20;
    println!(
        "open: {mib} MiB, {records} records in {us} us: {} MiB/s",
        mib * 1_000_000 / us
    );
}

#[test]
#[ignore = "a benchmark"]
fn append_and_read_speed() {
    let _turn = turn();
    let dir = std::env::var("FERRITE_BENCH_DIR").map_or(std::env::temp_dir(), Into::into);
    let dir = dir.join(format!("ferrite-redo-scan-{}", std::process::id()));
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new(&dir).expect("directory"));
    append_and_scan(&storage);
    append_and_scan(&storage);
    std::fs::remove_dir_all(dir).expect("clean up");
}

#[test]
#[ignore = "a benchmark"]
fn commits_per_second() {
    let _turn = turn();
    let dir = std::env::var("FERRITE_BENCH_DIR").map_or(std::env::temp_dir(), Into::into);
    let dir = dir.join(format!("ferrite-redo-bench-{}", std::process::id()));
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new(&dir).expect("directory"));
    for _ in 0..2 {
        device(&*storage);
        run(&storage, How::Shared, 1);
        for clients in [2, 16, 64] {
            run(&storage, How::Shared, clients);
            run(&storage, How::Deferred, clients);
        }
    }
    for clients in [1, 4] {
        run(&storage, How::NotDurable, clients);
    }
    std::fs::remove_dir_all(dir).expect("clean up");
}
