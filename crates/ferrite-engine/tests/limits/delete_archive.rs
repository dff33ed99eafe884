//! Many archived entries in the range of one leaf: who must look at them does so in pieces, and
//! hears KILL.

use crate::common::{
    check, config, create, database, delete, insert, metric, scan, scan_back, update, wait_until,
};
use ferrite_engine::{Callbacks, Cursor, Engine, LogLevel, ReadMode, Session, Table, WaitMode};
use ferrite_io::sim::SimStorage;
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::collections::BTreeMap;

const ROWS: u64 = 3000;

/// Everybody with a connection is killed.
#[derive(Default)]
struct Killed(AtomicBool);

impl Callbacks for Killed {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn is_killed(&self, thd: usize) -> bool {
        thd != 0 && self.0.load(Ordering::SeqCst)
    }
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

fn text(n: u64) -> Vec<u8> {
    vec![b'a'; (n % 40) as usize]
}

fn fill(w: &mut Session, t: &Arc<Table>) {
    for n in 0..ROWS {
        insert(w, t, n, &text(n)).unwrap();
    }
    w.commit(false).unwrap();
}

/// Deletes all but each hundredth row; they are archived for a snapshot.
fn archive(engine: &Engine, w: &mut Session, t: &Arc<Table>) {
    for n in (0..ROWS).filter(|n| n % 100 != 0) {
        delete(w, t, n, &text(n)).unwrap();
    }
    w.commit(false).unwrap();
    wait_until("the end of cleaning up", || {
        metric(engine, "history_list_length") == 0
    });
    let archived = metric(engine, "delete_archive_entries");
    assert!(archived > ROWS / 10 * 9 * 3, "{archived} entries");
}

#[test]
fn a_reader_of_many_graves_misses_nothing() {
    let (_disk, engine, t, mut w) = database(41);
    fill(&mut w, &t);
    let mut model: BTreeMap<u64, Vec<u8>> = (0..ROWS).map(|n| (n, text(n))).collect();
    let mut s = Session::new(&engine, 0, 2);
    s.open_snapshot();
    archive(&engine, &mut w, &t);
    let all_see = |s: &mut Session, model: &BTreeMap<u64, Vec<u8>>| {
        for index_no in 0..3 {
            assert_eq!(scan(s, &t, index_no), *model, "index {index_no}");
            assert_eq!(scan_back(s, &t, index_no), *model, "index {index_no}");
        }
    };
    all_see(&mut s, &model);
    // Own rows among the archived entries: survivors, others brought anew, and one that comes and goes.
    for n in (0..ROWS).step_by(200) {
        update(&mut s, &t, n, &text(n), b"own").unwrap();
        model.insert(n, b"own".to_vec());
    }
    for n in (150..ROWS).step_by(400) {
        insert(&mut s, &t, n, b"anew").unwrap();
        model.insert(n, b"anew".to_vec());
    }
    insert(&mut s, &t, 777, b"anew").unwrap();
    delete(&mut s, &t, 777, b"anew").unwrap();
    model.remove(&777);
    all_see(&mut s, &model);
    s.rollback().unwrap();
    drop((s, w));
    check(&engine, &t);
    engine.close().unwrap();
}

/// Long rows are archived without their payloads, which are versions then: these go to scratch files.
#[test]
fn what_is_archived_of_long_rows_is_short() {
    const LONG: usize = 4000;
    let long = |n: u64| -> Vec<u8> { (0..LONG as u64).map(|at| (n * 31 + at * 7) as u8).collect() };
    let (_disk, engine, t, mut w) = database(43);
    let mut model = BTreeMap::new();
    for n in 0..ROWS / 3 {
        insert(&mut w, &t, n, &long(n)).unwrap();
        model.insert(n, long(n));
    }
    w.commit(false).unwrap();
    let mut s = Session::new(&engine, 0, 2);
    s.open_snapshot();
    // Some have been changed since: their chains have two states.
    for n in (0..ROWS / 3).step_by(3) {
        let mut changed = long(n);
        changed[LONG / 2] ^= 0xff;
        update(&mut w, &t, n, &long(n), &changed).unwrap();
        w.commit(false).unwrap();
        delete(&mut w, &t, n, &changed).unwrap();
    }
    for n in (0..ROWS / 3).filter(|n| n % 3 != 0) {
        delete(&mut w, &t, n, &long(n)).unwrap();
    }
    w.commit(false).unwrap();
    wait_until("the end of cleaning up", || {
        metric(&engine, "history_list_length") == 0
    });
    let entries = metric(&engine, "delete_archive_entries");
    assert!(entries > ROWS * 9 / 10, "{entries} entries");
    let bytes = metric(&engine, "delete_archive_bytes");
    assert!(bytes < entries * 256, "{bytes} bytes of {entries} entries");
    for index_no in 0..3 {
        assert!(scan(&mut s, &t, index_no) == model, "index {index_no}");
        assert!(scan_back(&mut s, &t, index_no) == model, "index {index_no}");
    }
    s.rollback().unwrap();
    drop((s, w));
    wait_until("an empty archive", || {
        metric(&engine, "delete_archive_entries") == 0
    });
    check(&engine, &t);
    engine.close().unwrap();
}

/// Archived entries that the reader does not see: it finds nothing for long.
#[test]
fn a_reader_of_many_graves_hears_kill() {
    let killed = Arc::new(Killed::default());
    let storage = Arc::new(SimStorage::new(42).boot());
    let engine = Engine::open(config(), storage, killed.clone()).unwrap();
    let t = create(&engine, "d/t");
    let mut w = Session::new(&engine, 0, 1);
    let mut s = Session::new(&engine, 7, 2);
    s.open_snapshot();
    fill(&mut w, &t);
    let mut needs = Session::new(&engine, 0, 3);
    needs.open_snapshot();
    archive(&engine, &mut w, &t);
    for own in [false, true] {
        for index_no in 0..3 {
            for backward in [false, true] {
                killed.0.store(true, Ordering::SeqCst);
                let mut c = Cursor::new(&t, index_no, ReadMode::Snapshot, WaitMode::Wait);
                let got = match backward {
                    false => c.first(&mut s).map(|_| ()),
                    true => c.last(&mut s).map(|_| ()),
                };
                let what = format!("own {own} index {index_no} backward {backward}");
                assert_eq!(got, Err(Error::Interrupted), "{what}");
                killed.0.store(false, Ordering::SeqCst);
                let seen = match backward {
                    false => scan(&mut s, &t, index_no),
                    true => scan_back(&mut s, &t, index_no),
                };
                assert_eq!(seen.len(), usize::from(own), "{what}");
            }
        }
        if !own {
            insert(&mut s, &t, ROWS / 2 + 1, &[b'o'; 20]).unwrap();
        }
    }
    s.rollback().unwrap();
    drop((s, needs, w));
    engine.close().unwrap();
}
