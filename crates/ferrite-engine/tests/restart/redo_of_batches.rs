//! Leaves that recovery has redone in one batch, dropped, and put off in the last: what clients change then is not kept behind
//! their redo. And such a recovery on a full disk.

use crate::common::wide::{delete, insert, place};
use crate::common::{check, config, give_up, metric, take, wait_until};
use ferrite_engine::{
    Config, Cursor, Engine, IndexSpec, Isolation, ReadMode, Session, SilentCallbacks, Table,
    TableSpec, WaitMode,
};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::collections::BTreeSet;

/// Every second one, with keys of 200 bytes: some 600 leaves of the index, a pool of 256 pages for the recovery.
const ROWS: u64 = 60_000;
const SMALL_POOL_BYTES: u64 = 4 << 20;
const LARGE_POOL_BYTES: u64 = 32 << 20;

fn settings(pool_bytes: u64) -> Config {
    Config {
        buffer_pool_size_bytes: pool_bytes,
        buffer_pool_size_max_bytes: LARGE_POOL_BYTES,
        log_budget_bytes: 64 << 20,
        manual_background: true,
        recovery_puts_off: Some(true),
        recovery_memory_bytes: 1 << 20,
        ..config()
    }
}

fn open(disk: &SimStorage, pool_bytes: u64) -> Arc<Engine> {
    open_with(disk, settings(pool_bytes))
}

fn open_with(disk: &SimStorage, config: Config) -> Arc<Engine> {
    Engine::open(config, Arc::new(disk.boot()), Arc::new(SilentCallbacks)).unwrap()
}

/// The numbers that `wanted` means, in the order of the index.
fn in_order(wanted: impl Fn(u64) -> bool) -> Vec<u64> {
    let mut all: Vec<u64> = (0..ROWS).filter(|n| wanted(*n)).collect();
    all.sort_by_key(|n| place(*n));
    all
}

/// All rows, by the index.
fn rows(s: &mut Session, t: &Arc<Table>) -> BTreeSet<u64> {
    let mut all = BTreeSet::new();
    let mut cursor = Cursor::new(t, 1, ReadMode::Snapshot, WaitMode::Wait);
    let mut more = cursor.first(s).map(drop);
    while more.is_ok() {
        let pk = cursor.current().unwrap().pk.try_into().unwrap();
        assert!(all.insert(u64::from_be_bytes(pk)), "a row twice");
        more = cursor.next(s).map(drop);
    }
    assert_eq!(more, Err(Error::NotFound));
    all
}

/// A crash after some rows of each leaf were deleted and then, leaf by leaf, others came; no page was written. Gives the
/// rows.
fn crashed(disk: &SimStorage) -> BTreeSet<u64> {
    crashed_with(disk, None)
}

/// The same. A snapshot of that name, if there is one, was kept before these changes.
fn crashed_with(disk: &SimStorage, snapshot: Option<&str>) -> BTreeSet<u64> {
    let mut made = settings(LARGE_POOL_BYTES);
    if snapshot.is_some() {
        // Hardly any place is free beside what it holds.
        made.store_segment_bytes = 8 << 20;
    }
    let engine = open_with(disk, made);
    let indexes = vec![
        IndexSpec::new("PRIMARY", true, 1),
        IndexSpec::new("k", false, 1),
    ];
    let spec = TableSpec {
        definition: b"definition".to_vec(),
        ..TableSpec::new("d/t", indexes)
    };
    let t = engine.dict().create_table(spec, 1).unwrap();
    let mut s = Session::new(&engine, 0, 1);
    (0..ROWS).step_by(2).for_each(|n| insert(&mut s, &t, n));
    s.commit(false).unwrap();
    drop((s, t));
    engine.close().unwrap();
    drop(engine);
    let engine = open(disk, LARGE_POOL_BYTES);
    let t = engine.dict().open_table("d/t").unwrap();
    if let Some(name) = snapshot {
        take(&engine, name).unwrap();
    }
    let mut s = Session::new(&engine, 0, 1);
    for n in in_order(|n| n % 20 == 0) {
        delete(&mut s, &t, n);
    }
    for n in in_order(|n| n % 8 == 1) {
        insert(&mut s, &t, n);
    }
    s.commit(false).unwrap();
    drop((s, t));
    engine.flush_log();
    disk.crash(&mut Rng::new(7));
    give_up(&engine);
    let is_there = |n: &u64| (n % 2 == 0 && n % 20 != 0) || n % 8 == 1;
    (0..ROWS).filter(is_there).collect()
}

/// A recovery that leaves many pages to its last batch, and the rows. Its threads race for frames, so how many differs.
fn many_left() -> (Arc<Engine>, BTreeSet<u64>) {
    for seed in 41..61 {
        let disk = SimStorage::new(seed);
        let before = crashed(&disk);
        let engine = open(&disk, SMALL_POOL_BYTES);
        if metric(&engine, "recovery_pages_left") > 30 {
            return (engine, before);
        }
        give_up(&engine);
    }
    panic!("no recovery of twenty leaves more than 30 pages");
}

#[test]
fn what_is_changed_in_a_leaf_of_two_batches_is_not_kept_behind_its_redo() {
    let (engine, before) = many_left();
    // Nobody writes pages here.
    engine.set("buffer_pool_size", LARGE_POOL_BYTES).unwrap();
    let t = engine.dict().open_table("d/t").unwrap();
    let mut old = Session::new(&engine, 0, 2);
    old.begin_statement(Isolation::RepeatableRead);
    let mut first = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
    first.first(&mut old).unwrap();
    drop(first);
    let mut s = Session::new(&engine, 0, 1);
    let mut after = before.clone();
    // In the last leaves, which are those of the last batch: as many rows again, and every tenth goes.
    let last = |n: u64| place(n) > u64::MAX / 4 * 3;
    for n in in_order(|n| n % 8 == 3 && last(n)) {
        insert(&mut s, &t, n);
        after.insert(n);
    }
    for n in in_order(|n| n % 10 == 2 && last(n)) {
        delete(&mut s, &t, n);
        after.remove(&n);
    }
    s.commit(false).unwrap();
    assert_eq!(rows(&mut old, &t), before);
    old.commit(false).unwrap();
    assert_eq!(rows(&mut s, &t), after);
    s.commit(false).unwrap();
    check(&engine, &t);
    drop((old, s, t));
    engine.close().unwrap();
}

/// The table has these rows, and no fault.
fn all_is(engine: &Arc<Engine>, wanted: &BTreeSet<u64>) {
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(engine, 0, 1);
    assert_eq!(rows(&mut s, &t), *wanted);
    s.commit(false).unwrap();
    check(engine, &t);
}

/// No page can be written, and those that the log changes are more than the pool has frames: the database opens, and what
/// found no frame is redone when it is read.
#[test]
fn a_start_on_a_full_disk_needs_no_frame_for_each_page() {
    let disk = SimStorage::new(62);
    let before = crashed(&disk);
    disk.inject_lasting(Fault::Full, "store.0");
    let engine = open(&disk, SMALL_POOL_BYTES);
    assert!(metric(&engine, "recovery_pages_left") > 100);
    let dirty = metric(&engine, "buffer_pool_pages_dirty");
    assert!(dirty < 256, "no frame is left");
    engine.set("buffer_pool_size", LARGE_POOL_BYTES).unwrap();
    all_is(&engine, &before);
    assert!(engine.close().is_err());
    drop(engine);
    disk.clear_faults();
    let engine = open(&disk, LARGE_POOL_BYTES);
    all_is(&engine, &before);
    engine.close().unwrap();
}

/// A kept snapshot holds the places that pages leave: the database opens, and then it goes.
#[test]
fn a_snapshot_gives_way_behind_a_start_on_a_full_disk() {
    let disk = SimStorage::new(63);
    let before = crashed_with(&disk, Some("a"));
    disk.set_capacity(Some(disk.used_bytes()));
    let config = Config {
        manual_background: false,
        ..settings(SMALL_POOL_BYTES)
    };
    let engine = open_with(&disk, config);
    wait_until("the end of the snapshot", || {
        engine.kept_snapshots().is_empty()
    });
    // What it held need not do for all of them.
    disk.set_capacity(None);
    wait_until("the end of the redo", || {
        metric(&engine, "recovery_pages_left") == 0
    });
    all_is(&engine, &before);
    engine.close().unwrap();
}
