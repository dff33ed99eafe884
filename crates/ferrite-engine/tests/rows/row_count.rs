//! The number of rows that the optimizer is told: it stays right through changes that fail, and is made right after a crash.

use crate::common::{check, create, database, delete, entries, give_up, insert, key, open, scan};
use ferrite_engine::{DupInfo, Session, Table};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;

/// A row whose unique value is that of row `other`.
fn insert_with_value_of(s: &mut Session, t: &Arc<Table>, n: u64, other: u64) -> Result<(), Error> {
    let (k, u) = (key(1), key(other * 7));
    let dup = &mut DupInfo::default();
    s.insert_row(t, Some(&key(n)), &[0, b'x'], &entries(&k, &u), false, dup)
        .map(drop)
}

/// Upserts by a unique key beside an AUTO_INCREMENT primary key took a row off each.
#[test]
fn a_change_that_fails_after_the_row_itself_counts_nothing() {
    let (_disk, engine, t, mut s) = database(41);
    for n in 0..50 {
        insert(&mut s, &t, n, b"x").unwrap();
    }
    s.commit(false).unwrap();
    assert_eq!(t.stats().rows, 50);
    for n in 0..50 {
        let failed = insert_with_value_of(&mut s, &t, 100 + n, n);
        assert_eq!(failed, Err(Error::Duplicate));
    }
    s.commit(false).unwrap();
    assert_eq!(t.stats().rows, 50);
    // The row is marked, then an entry is locked by another session.
    let mut other = Session::new(&engine, 0, 2);
    other.set_lock_wait_timeout_ms(20);
    delete(&mut s, &t, 7, b"x").unwrap();
    insert_with_value_of(&mut s, &t, 200, 8).unwrap_err();
    let failed = insert_with_value_of(&mut other, &t, 201, 7);
    assert_eq!(failed, Err(Error::LockTimeout));
    assert_eq!(t.stats().rows, 49);
    s.rollback().unwrap();
    other.rollback().unwrap();
    assert_eq!(t.stats().rows, 50);
    // Over the deleted row of the same key, and a row that moves.
    delete(&mut s, &t, 7, b"x").unwrap();
    insert_with_value_of(&mut s, &t, 7, 8).unwrap_err();
    insert(&mut s, &t, 7, b"x").unwrap();
    assert_eq!(t.stats().rows, 50);
    s.rollback().unwrap();
    assert_eq!(t.stats().rows, 50);
    check(&engine, &t);
    give_up(&engine);
}

/// Rows of after the checkpoint are not in the counter that the start begins with; those that were rolled back had
/// been taken off it.
#[test]
fn rows_are_counted_after_a_crash() {
    let mut rng = Rng::new(42);
    let (disk, engine, t, mut s) = database(42);
    for n in 0..10 {
        insert(&mut s, &t, n, b"x").unwrap();
    }
    s.commit(false).unwrap();
    engine.checkpoint().unwrap();
    for n in 10..60 {
        insert(&mut s, &t, n, b"x").unwrap();
    }
    s.commit(true).unwrap();
    let mut lost = Session::new(&engine, 0, 2);
    for n in 100..200 {
        insert(&mut lost, &t, n, b"x").unwrap();
    }
    engine.flush_log();
    disk.crash(&mut rng);
    std::mem::forget((s, lost));
    give_up(&engine);
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 3);
    assert_eq!(scan(&mut s, &t, 0).len(), 60);
    assert!(t.stats().rows_doubtful && t.stats().rows != 60);
    t.check_rows(20).unwrap();
    assert_eq!((t.stats().rows_doubtful, t.stats().rows), (false, 60));
    give_up(&engine);
}

/// Of more leaves than are looked at, the counter is taken for right unless it is far off; and what half of the
/// leaves lack does not mislead.
#[test]
fn a_sample_tells_a_counter_that_is_far_off() {
    const ROWS: u64 = 12_000;
    let (_disk, engine, _, mut s) = database(43);
    let t = create(&engine, "d/many");
    for n in 0..ROWS {
        insert(&mut s, &t, n, &[b'x'; 60]).unwrap();
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
    }
    for n in 0..ROWS / 2 {
        delete(&mut s, &t, n, &[b'x'; 60]).unwrap();
    }
    s.commit(false).unwrap();
    let mean = (0..20).map(|_| t.tree(0).live_records(20).unwrap());
    let mean = mean.map(|(records, exact)| {
        assert!(!exact, "more than 20 leaves");
        records
    });
    let mean = mean.sum::<u64>() / 20;
    assert!(mean.abs_diff(ROWS / 2) < ROWS / 8, "about {mean} rows");
    t.check_rows(20).unwrap();
    assert_eq!(t.stats().rows, ROWS / 2, "the counter is the better one");
    give_up(&engine);
}
