//! The row cache: a row that is read again needs no page, and is never another one than the page has for the reader.

use crate::common::{check, create, database, delete, insert, key, metric, update};
use ferrite_engine::{
    Cursor, DdlCaller, Engine, Isolation, ReadMode, SeekMode, Session, Table, WaitMode,
};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::collections::BTreeMap;

const ROWS: u64 = 2000;

fn text(n: u64, version: u64) -> Vec<u8> {
    format!("{n} {version} {}", "x".repeat(150)).into_bytes()
}

fn open() -> (Arc<Engine>, Arc<Table>, Session) {
    let (_disk, engine, t, mut s) = database(3);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &text(n, 0)).unwrap();
    }
    s.commit(false).unwrap();
    engine.set("row_cache_size", 1 << 20).unwrap();
    (engine, t, s)
}

/// The row by its whole key, as `WHERE id = n` looks for it.
fn read(s: &mut Session, t: &Arc<Table>, n: u64) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(t, 0, ReadMode::Snapshot, WaitMode::Wait);
    match cursor.seek(s, &key(n), SeekMode::Exact, true) {
        Ok(row) => Some(row.payload[1..].to_vec()),
        Err(Error::NotFound) => None,
        Err(e) => panic!("row {n}: {e}"),
    }
}

/// The row through an entry of the index on `u`.
fn read_by_entry(s: &mut Session, t: &Arc<Table>, n: u64) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(t, 2, ReadMode::Snapshot, WaitMode::Wait);
    match cursor.seek(s, &key(n * 7), SeekMode::Exact, true) {
        Ok(_) => Some(cursor.fetch_row(s).unwrap().payload[1..].to_vec()),
        Err(Error::NotFound) => None,
        Err(e) => panic!("row {n}: {e}"),
    }
}

fn hits(engine: &Engine) -> u64 {
    metric(engine, "row_cache_hits")
}

fn close(engine: &Arc<Engine>, t: &Arc<Table>, s: Session) {
    drop(s);
    check(engine, t);
    engine.close().unwrap();
}

#[test]
fn a_row_that_is_read_again_needs_no_page() {
    let (engine, t, mut s) = open();
    for round in 0..3 {
        engine.make_cold().unwrap();
        let (reads, before) = (metric(&engine, "buffer_pool_reads"), hits(&engine));
        for n in (0..ROWS).step_by(500) {
            assert_eq!(read(&mut s, &t, n), Some(text(n, 0)));
        }
        s.commit(false).unwrap();
        let reads = metric(&engine, "buffer_pool_reads") - reads;
        let wanted = if round == 0 { (4, 0) } else { (0, 4) };
        assert_eq!((reads, hits(&engine) - before), wanted, "round {round}");
    }
    assert_eq!(metric(&engine, "row_cache_pages"), 4);
    // The same rows by another index.
    assert_eq!(read_by_entry(&mut s, &t, 500), Some(text(500, 0)));
    assert_eq!(hits(&engine), 9);
    s.commit(false).unwrap();
    engine.set("row_cache_size", 0).unwrap();
    assert_eq!(metric(&engine, "row_cache_bytes"), 0);
    assert_eq!(read(&mut s, &t, 500), Some(text(500, 0)));
    s.commit(false).unwrap();
    assert_eq!(hits(&engine), 9, "it is off");
    close(&engine, &t, s);
}

/// A search that ends in the row cache goes on from there as one that ended on a page.
#[test]
fn a_cursor_goes_on_from_a_cached_row() {
    let (engine, t, mut s) = open();
    for _ in 0..2 {
        engine.make_cold().unwrap();
        for forward in [true, false] {
            let mut cursor = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
            cursor
                .seek(&mut s, &key(700), SeekMode::Exact, true)
                .unwrap();
            let row = match forward {
                true => cursor.next(&mut s),
                false => cursor.prev(&mut s),
            };
            let wanted = if forward { 701 } else { 699 };
            assert_eq!(row.unwrap().pk, key(wanted));
            drop(cursor);
            engine.make_cold().unwrap();
        }
    }
    assert!(hits(&engine) > 0);
    s.commit(false).unwrap();
    close(&engine, &t, s);
}

#[test]
fn older_states_and_what_others_have_not_committed_are_not_taken_from_it() {
    let (engine, t, mut s) = open();
    let mut old = Session::new(&engine, 0, 2);
    old.begin_statement(Isolation::RepeatableRead);
    assert_eq!(read(&mut old, &t, 1000), Some(text(1000, 0)));
    update(&mut s, &t, 1000, &text(1000, 0), &text(1000, 1)).unwrap();
    let mut dirty = Session::new(&engine, 0, 3);
    dirty.begin_statement(Isolation::ReadUncommitted);
    let look = |s: &mut Session, version: u64, who: &str| {
        for _ in 0..3 {
            engine.make_cold().unwrap();
            let (row, by_entry) = (read(s, &t, 1000), read_by_entry(s, &t, 1000));
            assert_eq!(row, Some(text(1000, version)), "{who}");
            assert_eq!(by_entry, Some(text(1000, version)), "{who}");
        }
    };
    look(&mut s, 1, "its own");
    look(&mut old, 0, "before it is committed");
    look(&mut dirty, 1, "uncommitted");
    s.commit(false).unwrap();
    look(&mut old, 0, "after it is committed");
    look(&mut s, 1, "committed");
    s.commit(false).unwrap();
    delete(&mut s, &t, 1000, &text(1000, 1)).unwrap();
    look(&mut old, 0, "before the deletion is committed");
    s.rollback().unwrap();
    look(&mut s, 1, "the deletion is rolled back");
    s.commit(false).unwrap();
    delete(&mut s, &t, 1000, &text(1000, 1)).unwrap();
    s.commit(false).unwrap();
    look(&mut old, 0, "deleted");
    assert_eq!(read(&mut s, &t, 1000), None);
    s.commit(false).unwrap();
    old.commit(false).unwrap();
    dirty.commit(false).unwrap();
    drop((old, dirty));
    close(&engine, &t, s);
}

/// What a copy would not serve is not copied, and any size is accepted and given back.
#[test]
fn what_no_copy_could_serve_is_not_kept() {
    let (engine, t, mut s) = open();
    let mut old = Session::new(&engine, 0, 2);
    old.begin_statement(Isolation::RepeatableRead);
    assert_eq!(read(&mut old, &t, 10), Some(text(10, 0)));
    update(&mut s, &t, 1000, &text(1000, 0), &text(1000, 1)).unwrap();
    s.commit(false).unwrap();
    for n in [ROWS, ROWS + 5] {
        insert(&mut s, &t, n, &[7; 2000]).unwrap();
    }
    s.commit(false).unwrap();
    let stored = metric(&engine, "row_cache_stored");
    for _ in 0..3 {
        engine.make_cold().unwrap();
        assert_eq!(read(&mut old, &t, 1000), Some(text(1000, 0)));
        assert_eq!(read(&mut s, &t, ROWS + 1), None);
        assert_eq!(read(&mut s, &t, ROWS), Some(vec![7; 2000]));
        s.commit(false).unwrap();
    }
    assert_eq!(metric(&engine, "row_cache_stored"), stored);
    old.commit(false).unwrap();
    drop(old);
    for bytes in [u64::MAX, 0, 1, 1 << 20] {
        engine.set("row_cache_size", bytes).unwrap();
        engine.make_cold().unwrap();
        assert_eq!(read(&mut s, &t, 10), Some(text(10, 0)));
        let memory = engine.memory();
        let part = memory.iter().find(|part| part.name == "row cache").unwrap();
        assert!(part.bytes < 9 << 20, "{} bytes of {bytes}", part.bytes);
    }
    s.commit(false).unwrap();
    close(&engine, &t, s);
}

/// TRUNCATE and DROP give ids of pages to others.
#[test]
fn rows_of_a_table_that_is_gone_do_not_come_back() {
    let (engine, t, mut s) = open();
    let mut tables = vec![t];
    for round in 1..6u64 {
        engine.make_cold().unwrap();
        let t = tables.pop().unwrap();
        for n in (0..ROWS).step_by(50) {
            assert_eq!(read(&mut s, &t, n), Some(text(n, round - 1)));
        }
        s.commit(false).unwrap();
        engine.make_cold().unwrap();
        drop(t);
        engine.drop_table("d/t", &DdlCaller::default()).unwrap();
        let t = create(&engine, "d/t");
        for n in 0..ROWS {
            insert(&mut s, &t, n, &text(n, round)).unwrap();
        }
        s.commit(false).unwrap();
        tables.push(t);
    }
    let t = tables.pop().unwrap();
    for n in 0..ROWS {
        assert_eq!(read(&mut s, &t, n), Some(text(n, 5)));
    }
    s.commit(false).unwrap();
    close(&engine, &t, s);
}

/// Random reads and changes of a table larger than the pool, against a model.
#[test]
fn rows_are_those_of_the_model_whatever_leaves_memory() {
    let (engine, t, mut s) = open();
    let mut rng = Rng::new(5);
    let mut model: BTreeMap<u64, Vec<u8>> = (0..ROWS).map(|n| (n, text(n, 0))).collect();
    for step in 1..12_000u64 {
        let n = rng.below(ROWS) / 20 * 20;
        match (rng.below(12), model.get(&n).cloned()) {
            (0, _) => engine.make_cold().unwrap(),
            (1, Some(old)) => {
                update(&mut s, &t, n, &old, &text(n, step)).unwrap();
                model.insert(n, text(n, step));
            }
            (2, Some(old)) => {
                delete(&mut s, &t, n, &old).unwrap();
                model.remove(&n);
            }
            (2, None) => {
                insert(&mut s, &t, n, &text(n, step)).unwrap();
                model.insert(n, text(n, step));
            }
            (3, _) => engine.set("row_cache_size", rng.below(3) << 18).unwrap(),
            _ => {
                assert_eq!(read(&mut s, &t, n).as_ref(), model.get(&n), "step {step}");
                let by_entry = read_by_entry(&mut s, &t, n);
                assert_eq!(by_entry.as_ref(), model.get(&n), "step {step}");
            }
        }
        s.commit(false).unwrap();
    }
    assert!(hits(&engine) > 200, "{} hits", hits(&engine));
    close(&engine, &t, s);
}
