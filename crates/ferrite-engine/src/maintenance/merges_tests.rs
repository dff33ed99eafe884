//! The change buffer on a full disk, beside a snapshot that keeps the places which pages leave: merging, another snapshot, a
//! shutdown.

use crate::catalog::spec::{IndexSpec, TableSpec};
use crate::catalog::table::Table;
use crate::rows::write::{DupInfo, Entry, RowChange};
use crate::snapshots::ServerState;
use crate::testing::{config, open_with};
use crate::transaction::session::Session;
use crate::{Config, Cursor, Engine, ReadMode, WaitMode};
use ferrite_io::sim::SimStorage;
use ferrite_store::Ahead;
use ferrite_sync::{thread, Arc};
use ferrite_types::Error;

/// Every second one: 9 MiB in the index, a pool of 4 MiB.
const ROWS: u64 = 60_000;
const ROW: [u8; 120] = [0; 120];
/// Rows of the clustered index on a page: no fewer.
const OF_A_PAGE: u64 = 150;
/// Rows that are deleted before all that is dirty is written.
const DELETED: u64 = 30;

/// In no order, and long.
fn wide(n: u64) -> [u8; 200] {
    let mut key = [0; 200];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

fn entry(key: &[u8]) -> Entry<'_> {
    Entry {
        index_no: 1,
        check_unique: false,
        key,
        payload: b"",
    }
}

fn insert(s: &mut Session, t: &Arc<Table>, n: u64) {
    let (key, dup) = (wide(n), &mut DupInfo::default());
    s.insert_row(t, Some(&n.to_be_bytes()), &ROW, &[entry(&key)], false, dup)
        .unwrap();
}

fn delete(s: &mut Session, t: &Arc<Table>, n: u64) {
    s.delete_row(t, &n.to_be_bytes(), &[entry(&wide(n))])
        .unwrap();
    s.commit(false).unwrap();
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        thread::sleep_ms(5);
    }
    panic!("{what} does not come");
}

fn table_with_index(engine: &Engine) -> Arc<Table> {
    let indexes = vec![
        IndexSpec::new("PRIMARY", true, 1),
        IndexSpec::new("k", false, 1),
    ];
    let spec = TableSpec::new("d/t", indexes);
    engine.dict.create_table(spec, 1).unwrap()
}

/// The disk gets full, with nothing dirty: deleted rows make pages move, and the places that they leave are the
/// snapshot's. Gives the next row that is there.
fn fill_the_disk(engine: &Engine, disk: &SimStorage, s: &mut Session, t: &Arc<Table>) -> u64 {
    disk.set_capacity(Some(disk.used_bytes()));
    let mut next = 0;
    for _ in 0..200 {
        for _ in 0..DELETED {
            assert!(next < ROWS, "it does not get full");
            delete(s, t, next);
            next += OF_A_PAGE;
        }
        let kept = engine.kept_snapshots().len();
        assert_eq!(kept, 1, "deletions were refused until it gave way");
        engine.pool.make_cold().unwrap();
        engine.flush_log();
        engine.store.reclaim(engine.log.durable_lsn());
        // Until the writers have seen it, or places have become free once more.
        while !matches!(engine.store.grow_ahead(), Ok(Ahead::Enough | Ahead::Grown)) {
            if engine.pool.refusal(false).is_some() {
                return next;
            }
            engine.pool.wake_writer();
            thread::sleep_ms(1);
        }
        if next + DELETED * OF_A_PAGE >= ROWS {
            // The rows behind those.
            next = next % OF_A_PAGE + 2;
        }
    }
    panic!("it does not get full");
}

fn settings() -> Config {
    Config {
        log_budget_bytes: 1 << 30,
        log_segment_bytes: 64 << 20,
        store_segment_bytes: 8 << 20,
        ..config()
    }
}

/// Snapshot "a", and since then nearly every leaf of an index lacks changes that are kept.
fn with_kept_changes(disk: &SimStorage) -> (Arc<Engine>, Arc<Table>, Session) {
    let engine = open_with(disk, settings());
    // It would read leaves.
    engine.set("purge_paused", 1).unwrap();
    let t = table_with_index(&engine);
    let mut s = Session::new(&engine, 0, 1);
    (0..ROWS).step_by(2).for_each(|n| insert(&mut s, &t, n));
    s.commit(false).unwrap();
    engine.pool.make_cold().unwrap();
    let mut job = engine.begin_snapshot("a").unwrap();
    job.fix();
    job.finish(&ServerState::default()).unwrap();

    engine.hold_merges(true);
    for first in [1, 31, 61, 91] {
        // No leaf is in memory.
        engine.pool.make_cold().unwrap();
        (first..ROWS)
            .step_by(120)
            .for_each(|n| insert(&mut s, &t, n));
        s.commit(false).unwrap();
    }
    let waiting = engine.pool.change_buffer().pages();
    assert!(waiting > 350, "{waiting} pages");
    (engine, t, s)
}

/// One row changes again and again: 17 MB of log and more.
fn lengthen_the_log(engine: &Engine, s: &mut Session) {
    let spec = TableSpec::new("d/long", vec![IndexSpec::new("PRIMARY", true, 1)]);
    let t = engine.dict.create_table(spec, 1).unwrap();
    let dup = &mut DupInfo::default();
    let mut row = [0; 4000];
    s.insert_row(&t, Some(b"key"), &row, &[], false, dup)
        .unwrap();
    let begun = engine.log.current_lsn().0;
    while engine.log.current_lsn().0 < begun + (17 << 20) {
        let next = row[1].wrapping_add(1);
        row[1..].fill(next);
        let change = RowChange {
            old_pk: b"key",
            new_pk: b"key",
            payload: &row,
            removed: &[],
            added: &[],
        };
        s.update_row(&t, &change, dup).unwrap();
        s.commit(false).unwrap();
    }
}

/// The disk has no room for all of the pages that lack changes at a time: rows can be deleted, the changes are merged,
/// and the snapshot stays.
#[test]
fn pages_that_wait_for_changes_keep_no_deletion_out_and_cost_no_snapshot() {
    let disk = SimStorage::new(58);
    let (engine, t, mut s) = with_kept_changes(&disk);
    let waiting = || engine.pool.change_buffer().pages();
    let next = fill_the_disk(&engine, &disk, &mut s, &t);
    // Long enough for dirty pages to cost a snapshot.
    thread::sleep_ms(1500);
    assert_eq!(engine.pool.refusal(true), None, "deletions are refused");
    assert_eq!(engine.kept_snapshots().len(), 1);
    delete(&mut s, &t, next);
    let before = waiting();
    engine.hold_merges(false);
    wait_until("merging", || waiting() + 50 <= before);
    delete(&mut s, &t, next + 2);
    assert_eq!(engine.kept_snapshots().len(), 1);
    engine.drop_snapshot("a").unwrap();
    wait_until("the end of merging", || waiting() == 0);
    drop((s, t));
    disk.set_capacity(None);
    engine.close().unwrap();
    engine.check_space().unwrap();
}

/// Another snapshot would have all changes merged that are not among the newest, and each page needs a place for good:
/// there is none, and the first one stays.
#[test]
fn a_snapshot_for_which_there_is_no_room_costs_no_other_one() {
    let disk = SimStorage::new(59);
    let (engine, t, mut s) = with_kept_changes(&disk);
    lengthen_the_log(&engine, &mut s);
    let next = fill_the_disk(&engine, &disk, &mut s, &t);
    let taken = engine.begin_snapshot("b").map(drop);
    assert!(matches!(taken, Err(Error::DiskFull(_))), "{taken:?}");
    // Long enough for dirty pages to cost a snapshot.
    thread::sleep_ms(1500);
    assert_eq!(engine.pool.why_pages_wait(), None, "pages have no place");
    assert_eq!(engine.pool.refusal(true), None, "deletions are refused");
    delete(&mut s, &t, next);
    let kept = engine.kept_snapshots();
    assert!(kept.len() == 1 && kept[0].name == "a", "{kept:?}");
    drop((s, t));
    disk.set_capacity(None);
    engine.hold_merges(false);
    engine.close().unwrap();
}

/// Nor is it at a shutdown: what finds no room stays in the log, for the next start.
#[test]
fn a_shutdown_merges_nothing_for_which_there_is_no_room() {
    let disk = SimStorage::new(60);
    let (engine, t, mut s) = with_kept_changes(&disk);
    let next = fill_the_disk(&engine, &disk, &mut s, &t);
    delete(&mut s, &t, next);
    // The rows themselves lack nothing.
    let rows = count(&mut s, &t, 0);
    drop((s, t));
    let closed = engine.close();
    assert!(matches!(closed, Err(Error::DiskFull(_))), "{closed:?}");
    let (pool, dirty) = (&engine.pool, engine.pool.dirty_pages());
    assert_eq!(dirty, 0, "pages that were merged have no place");
    assert!(pool.change_buffer().pages() > 100, "there was room");
    drop(engine);
    disk.set_capacity(None);
    let engine = open_with(&disk, settings());
    assert_eq!(engine.kept_snapshots().len(), 1);
    let t = engine.dict.open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!((count(&mut s, &t, 0), count(&mut s, &t, 1)), (rows, rows));
    s.check_table(&t, false, &mut |line| panic!("{line}"))
        .unwrap();
    drop((s, t));
    engine.close().unwrap();
}

/// Rows, by that index.
fn count(s: &mut Session, t: &Arc<Table>, index_no: usize) -> u64 {
    let mut cursor = Cursor::new(t, index_no, ReadMode::Snapshot, WaitMode::Wait);
    let (mut rows, mut more) = (0, cursor.first(s).map(drop));
    while more.is_ok() {
        rows += 1;
        more = cursor.next(s).map(drop);
    }
    assert_eq!(more, Err(Error::NotFound));
    rows
}
