//! Transactions that let go of thousands of values out of line, on the simulated disk with a
//! log whose longest record would hold a part of them only.

use crate::common::{check, config, create, give_up, key};

use ferrite_engine::{Config, DupInfo, Engine, Session, SilentCallbacks, Table, Xid};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};

/// In one record they would take 160 KB.
const ROWS: u64 = 8_000;

fn open(disk: &SimStorage) -> Arc<Engine> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let config = Config {
        // The longest record: 128 KiB.
        log_ring_bytes: 512 << 10,
        log_budget_bytes: 64 << 20,
        ..config()
    };
    Engine::open(config, storage, Arc::new(SilentCallbacks)).unwrap()
}

fn fill(s: &mut Session, t: &Arc<Table>) {
    for n in 0..ROWS {
        let reference = s.write_overflow(t, &[n as u8; 1100]).unwrap();
        let payload = [&[1u8][..], reference.bytes()].concat();
        let dup = &mut DupInfo::default();
        s.insert_row(t, Some(&key(n)), &payload, &[], false, dup)
            .unwrap();
        if n % 500 == 499 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
}

fn wait_for_pages(t: &Table, what: &str, fits: impl Fn(u64) -> bool) {
    let pages = || t.stats().data_bytes / 16384;
    for _ in 0..2000 {
        if fits(pages()) {
            return;
        }
        thread::sleep_ms(10);
    }
    panic!("{what}: {} pages", pages());
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Commit,
    CommitAndCrash,
    Lost,
    /// Prepared; then a crash; then the decision.
    Prepared(bool),
}

fn life(seed: u64, end: End, checkpoints: bool) {
    let disk = SimStorage::new(seed);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    fill(&mut s, &t);
    // Nothing is freed in this life, so that the restart has to know all values.
    engine
        .set("purge_paused", u64::from(end != End::Commit))
        .unwrap();
    for n in 0..ROWS {
        s.delete_row(&t, &key(n), &[]).unwrap();
    }
    let xid = Xid {
        format_id: 1,
        gtrid_len: 1,
        data: b"x".to_vec(),
    };
    let beside = checkpoints.then(|| {
        let engine = engine.clone();
        thread::spawn("checkpoints", move || {
            for _ in 0..20 {
                engine.checkpoint().unwrap();
            }
        })
    });
    match end {
        End::Commit | End::CommitAndCrash => s.commit(false).unwrap(),
        End::Lost => {}
        End::Prepared(_) => s.prepare(&xid).unwrap(),
    }
    beside.into_iter().for_each(|thread| thread.join().unwrap());
    if end == End::Commit {
        wait_for_pages(&t, "values are freed", |pages| pages < 100);
        drop((s, t));
        engine.close().unwrap();
        return;
    }
    disk.crash(&mut Rng::new(seed));
    std::mem::forget(s);
    give_up(&engine);
    drop((t, engine));

    let mut engine = open(&disk);
    if let End::Prepared(commit) = end {
        match commit {
            true => engine.commit_by_xid(&xid).unwrap(),
            false => engine.rollback_by_xid(&xid).unwrap(),
        }
        // Also the next restart knows.
        disk.crash(&mut Rng::new(seed + 1));
        give_up(&engine);
        drop(engine);
        engine = open(&disk);
    }
    let t = engine.dict().open_table("d/t").unwrap();
    let gone = matches!(end, End::CommitAndCrash | End::Prepared(true));
    match gone {
        true => wait_for_pages(&t, "values are freed", |pages| pages < 100),
        false => wait_for_pages(&t, "values stay", |pages| pages > ROWS),
    }
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn a_commit_of_many_values() {
    life(1, End::Commit, false);
    life(2, End::CommitAndCrash, false);
    life(3, End::CommitAndCrash, true);
    life(4, End::Lost, true);
}

#[test]
fn a_prepared_transaction_of_many_values() {
    life(5, End::Prepared(true), false);
    life(6, End::Prepared(true), true);
    life(7, End::Prepared(false), true);
}
