//! Indexes that come and go in place: a machine that dies in between, or a disk that is full, leaves the
//! table with its old indexes or with its new ones, whole, and no tree besides.

use crate::common::*;
use ferrite_engine::{
    AlterForeign, Cursor, DdlCaller, DupInfo, Engine, Entry, IndexSource, IndexSpec, IndexesAfter,
    ReadMode, Session, Table, WaitMode,
};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::panic::{catch_unwind, AssertUnwindSafe};

const ROWS: u64 = 1500;
const TEXT: &[u8] = b"a row that is long enough for some leaves";
const OLD: [&str; 3] = ["PRIMARY", "k", "u"];
/// `u` goes, two come.
const NEW: [&str; 4] = ["PRIMARY", "k", "seventh", "back"];

fn fill(s: &mut Session, t: &Arc<Table>, rows: u64) {
    for n in 0..rows {
        insert(s, t, n, TEXT).unwrap();
    }
    s.commit(false).unwrap();
}

/// What ALTER TABLE does: builds, then changes the definition. Keys are `wide` numbers wide.
fn alter(engine: &Arc<Engine>, t: &Arc<Table>, s: &mut Session, wide: usize) -> Result<(), Error> {
    let specs = vec![
        IndexSpec::new("seventh", false, 1),
        IndexSpec::new("back", true, 1),
    ];
    let caller = DdlCaller::default();
    let mut build = s.begin_index_build(t, specs, &caller)?;
    let mut cursor = Cursor::new(t, 0, ReadMode::Snapshot, WaitMode::Wait);
    let mut more = cursor.first(s).map(|_| ());
    while more.is_ok() {
        let pk = cursor.current()?.pk.to_vec();
        let n = u64::from_be_bytes(pk[..].try_into().unwrap());
        let (seventh, back) = (key(n % 7).repeat(wide), key(u64::MAX - n).repeat(wide));
        let entry = |index_no, check_unique, key| Entry {
            index_no,
            check_unique,
            key,
            payload: b"",
        };
        build.add(&pk, &[entry(0, false, &seventh), entry(1, true, &back)])?;
        more = cursor.next(s).map(|_| ());
    }
    match more {
        Err(Error::NotFound) => {}
        other => other?,
    }
    s.commit(false)?;
    s.fill_indexes(&mut build, &mut DupInfo::default())?;
    use IndexSource::{Built, Kept};
    let after = IndexesAfter {
        sources: vec![Kept(0), Kept(1), Built(0), Built(1)],
        build: Some(&mut build),
    };
    let foreign = AlterForeign {
        index_names: NEW.map(str::to_owned).to_vec(),
        ..AlterForeign::default()
    };
    engine.alter_table("d/t", b"definition", &foreign, Some(after), &caller)
}

fn names(t: &Table) -> Vec<&str> {
    t.spec.indexes.iter().map(|i| i.name.as_str()).collect()
}

/// The table has these indexes, and every row is in each of them.
fn assert_whole(engine: &Arc<Engine>, wanted: &[&str], rows: u64) {
    let t = engine.dict().open_table("d/t").unwrap();
    assert_eq!(names(&t), wanted);
    let mut s = Session::new(engine, 0, 8);
    for number in 0..wanted.len() {
        assert_eq!(scan(&mut s, &t, number).len() as u64, rows, "{number}");
    }
    s.commit(false).unwrap();
    check(engine, &t);
    let (left_over, _) = engine.dict().leftovers();
    assert!(left_over.is_empty(), "trees are left over: {left_over:?}");
}

#[test]
fn a_crash_leaves_the_old_indexes_or_the_new_ones() {
    let (mut before, mut after) = (0, 0);
    for round in 0..30u64 {
        let (disk, engine, t, mut s) = database(200 + round);
        fill(&mut s, &t, ROWS);
        drop(s);
        let mut s = Session::new(&engine, 0, 2);
        disk.power_off_after(1 + round * round / 8);
        let done = catch_unwind(AssertUnwindSafe(|| alter(&engine, &t, &mut s, 1)));
        disk.power_off();
        s.abandon();
        give_up(&engine);
        drop((engine, t));
        disk.crash(&mut Rng::new(round));
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let has_new = names(&t) == NEW;
        if matches!(done, Ok(Ok(()))) {
            assert!(has_new, "indexes that were acknowledged are lost");
        }
        assert_whole(&engine, if has_new { &NEW } else { &OLD }, ROWS);
        *(if has_new { &mut after } else { &mut before }) += 1;
        drop(t);
        engine.close().unwrap();
    }
    assert!(before > 3 && after > 3, "{before} before, {after} after");
}

#[test]
fn a_full_disk_leaves_the_old_indexes() {
    let (disk, engine, t, mut s) = database(41);
    // More than what is buffered takes.
    let rows = 4 * ROWS;
    fill(&mut s, &t, rows);
    let mut refused = 0;
    // From no room at all to enough of it.
    for room in (0..8).map(|n| n * (128 << 10)) {
        disk.set_capacity(Some(disk.used_bytes() + room));
        match alter(&engine, &t, &mut s, 200) {
            Ok(()) => break,
            Err(Error::DiskFull(_)) => refused += 1,
            Err(e) => panic!("{e}"),
        }
        s.rollback().unwrap();
        disk.set_capacity(None);
        assert_whole(&engine, &OLD, rows);
    }
    disk.set_capacity(None);
    assert!(refused > 0, "no disk was full");
    let t = engine.dict().open_table("d/t").unwrap();
    // For half a second after a vain attempt to make room nobody looks whether there is some.
    let built = || match alter(&engine, &t, &mut s, 200) {
        Err(Error::DiskFull(_)) => s.rollback().is_err(),
        other => other.is_ok(),
    };
    if names(&t) == OLD {
        wait_until("room for the indexes", built);
    }
    drop(t);
    assert_whole(&engine, &NEW, rows);
}
