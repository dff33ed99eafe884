//! Tables that are dropped, emptied or made while others look: whoever still has a handle gets
//! an error, and so does a snapshot that is older than what there is to read.

use crate::common::{
    check, create, database, delete, entries, give_up, insert, key, open, scan, scan_back, update,
    wait_until,
};
use ferrite_engine::{
    Cursor, DdlCaller, DupInfo, Engine, IndexSpec, Isolation, NewForeign, ReadMode, References,
    SeekMode, Session, Table, TableSpec, WaitMode,
};
use ferrite_io::sim::Fault;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

const ROWS: u64 = 3000;

fn drop_table(engine: &Engine, name: &str) {
    engine.drop_table(name, &DdlCaller::default()).unwrap();
}

fn filled(engine: &Arc<Engine>, name: &str) -> Arc<Table> {
    let t = create(engine, name);
    let mut s = Session::new(engine, 0, 9);
    for n in 0..ROWS {
        insert(
            &mut s,
            &t,
            n,
            b"a text of some length, so that there are many leaves",
        )
        .unwrap();
    }
    s.commit(false).unwrap();
    t
}

fn first(s: &mut Session, t: &Arc<Table>, index_no: usize, mode: ReadMode) -> Result<(), Error> {
    Cursor::new(t, index_no, mode, WaitMode::Wait)
        .first(s)
        .map(|_| ())
}

/// Every call on a table that is gone returns an error, and none goes on for ever.
#[test]
fn a_handle_of_a_dropped_table_gives_errors() {
    let (_disk, engine, other, mut s) = database(1);
    insert(&mut s, &other, 1, b"beside").unwrap();
    s.commit(false).unwrap();
    let t = filled(&engine, "d/gone");
    drop_table(&engine, "d/gone");
    // Its page ids go to others.
    filled(&engine, "d/next");

    let text = b"text";
    assert_eq!(insert(&mut s, &t, ROWS + 1, text), Err(Error::TableChanged));
    assert_eq!(
        update(&mut s, &t, 5, text, b"other"),
        Err(Error::TableChanged)
    );
    assert_eq!(delete(&mut s, &t, 5, text), Err(Error::TableChanged));
    for mode in [ReadMode::Snapshot, ReadMode::Shared, ReadMode::Exclusive] {
        for index_no in 0..3 {
            let mut cursor = Cursor::new(&t, index_no, mode, WaitMode::Wait);
            assert_eq!(first(&mut s, &t, index_no, mode), Err(Error::TableChanged));
            let last = cursor.last(&mut s).map(|_| ());
            assert_eq!(last, Err(Error::TableChanged), "{mode:?} {index_no}");
            let found = cursor.seek(&mut s, &key(5), SeekMode::AtOrAfter, false);
            assert_eq!(found.map(|_| ()), Err(Error::TableChanged));
        }
        let mut cursor = Cursor::new(&t, 0, mode, WaitMode::Wait);
        let row = cursor.get(&mut s, &key(5)).map(|_| ());
        assert_eq!(row, Err(Error::TableChanged));
    }
    for index_no in 0..3 {
        let tree = t.tree(index_no);
        assert_eq!(tree.height(), Err(Error::TableChanged));
        assert_eq!(tree.records_in_range(b"", None), Err(Error::TableChanged));
        assert_eq!(tree.sample(8, &mut |_, _| {}), Err(Error::TableChanged));
        let room = tree.make_room(&key(5), 100, b"");
        assert_eq!(room, Err(Error::TableChanged));
        assert_eq!(tree.merge_at(&key(5), b""), Err(Error::TableChanged));
    }
    assert!(s.check_table(&t, false, &mut |_| {}).is_err());
    s.rollback().unwrap();

    check(&engine, &other);
    assert_eq!(scan(&mut s, &other, 1).len(), 1);
    engine.close().unwrap();
}

/// The same while readers and writers are in the middle of it.
#[test]
fn a_table_goes_while_it_is_used() {
    for seed in 0..20 {
        let (_disk, engine, other, _) = database(seed);
        let t = filled(&engine, "d/gone");
        let (reads, stop) = (AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for number in 0..2 {
                let (engine, t, reads, stop) = (&engine, &t, &reads, &stop);
                scope.spawn(move || {
                    let mut s = Session::new(engine, 0, number);
                    while !stop.load(Ordering::SeqCst) {
                        s.begin_statement(Isolation::RepeatableRead);
                        let mut cursor = Cursor::new(t, 1, ReadMode::Snapshot, WaitMode::Wait);
                        let mut more = cursor.first(&mut s).map(|_| ());
                        while more.is_ok() {
                            more = cursor.next(&mut s).map(|_| ());
                        }
                        reads.fetch_add(1, Ordering::SeqCst);
                        match more {
                            Err(Error::NotFound) => s.commit(false).unwrap(),
                            other => return assert_eq!(other, Err(Error::TableChanged)),
                        }
                    }
                });
            }
            wait_until("a read", || reads.load(Ordering::SeqCst) > 2);
            drop_table(&engine, "d/gone");
            stop.store(seed % 2 == 0, Ordering::SeqCst);
        });
        check(&engine, &other);
        engine.close().unwrap();
    }
}

/// What came into being without a history is refused to snapshots from before.
#[test]
fn an_old_snapshot_does_not_read_what_is_newer_than_it() {
    let (_disk, engine, t, mut s) = database(3);
    for n in 0..10 {
        insert(&mut s, &t, n, b"row").unwrap();
    }
    s.commit(false).unwrap();
    let mut old = Session::new(&engine, 0, 2);
    old.begin_statement(Isolation::RepeatableRead);
    old.open_snapshot();

    engine
        .truncate_table("d/t", 1, &DdlCaller::default())
        .unwrap();
    let emptied = engine.dict().open_table("d/t").unwrap();
    let made = create(&engine, "d/made");
    insert(&mut s, &made, 1, b"row").unwrap();
    s.commit(false).unwrap();
    let loaded = create(&engine, "d/loaded");
    s.begin_load(&loaded);
    let (k, u) = (key(1), key(7));
    let load = s.insert_row(
        &loaded,
        Some(&key(1)),
        b"\0row",
        &entries(&k, &u),
        false,
        &mut DupInfo::default(),
    );
    load.unwrap();
    let mut middle = Session::new(&engine, 0, 3);
    middle.begin_statement(Isolation::RepeatableRead);
    middle.open_snapshot();
    s.end_load(&loaded).unwrap();

    for t in [&emptied, &made, &loaded] {
        for mode in [ReadMode::Snapshot, ReadMode::Shared] {
            for index_no in 0..3 {
                let read = first(&mut old, t, index_no, mode);
                assert_eq!(read, Err(Error::TableChanged), "{}", t.spec.name);
            }
            let mut cursor = Cursor::new(t, 0, mode, WaitMode::Wait);
            let row = cursor.get(&mut old, &key(1)).map(|_| ());
            assert_eq!(row, Err(Error::TableChanged));
        }
    }
    // A snapshot from the middle of a load is older than its end.
    assert_eq!(scan(&mut middle, &made, 1).len(), 1);
    let read = first(&mut middle, &loaded, 0, ReadMode::Snapshot);
    assert_eq!(read, Err(Error::TableChanged));
    // Below REPEATABLE READ, and in the next transaction, there is no old snapshot.
    middle.begin_statement(Isolation::ReadCommitted);
    assert_eq!(scan(&mut middle, &loaded, 0).len(), 1);
    old.commit(false).unwrap();
    old.begin_statement(Isolation::RepeatableRead);
    assert_eq!(scan(&mut old, &emptied, 0).len(), 0);
    assert_eq!(scan_back(&mut old, &made, 2).len(), 1);
    // A name is no part of it: RENAME leaves what there is.
    engine
        .rename_table("d/made", "d/named", &DdlCaller::default())
        .unwrap();
    let named = engine.dict().open_table("d/named").unwrap();
    assert_eq!(scan(&mut old, &named, 1).len(), 1);
    engine.close().unwrap();
}

/// A DROP that fails leaves the table as it was: what is undone in it then is undone.
#[test]
fn a_drop_that_fails_leaves_the_table() {
    let (disk, engine, t, mut s) = database(77);
    insert(&mut s, &t, 1, b"stays").unwrap();
    s.commit(false).unwrap();
    insert(&mut s, &t, 2, b"goes").unwrap();
    // The dictionary leaves memory.
    let big = create(&engine, "d/big");
    let mut w = Session::new(&engine, 0, 2);
    for n in 0..3000 {
        insert(&mut w, &big, n, &[b'x'; 3500]).unwrap();
        if n % 100 == 0 {
            w.commit(false).unwrap();
        }
    }
    w.commit(false).unwrap();
    for _ in 0..5 {
        assert_eq!(scan(&mut w, &big, 0).len(), 3000);
    }
    w.commit(false).unwrap();
    disk.inject_in(Fault::FailRead, 1, "store.");
    let failed = engine.drop_table("d/t", &DdlCaller::default());
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    s.rollback().unwrap();
    insert(&mut s, &t, 2, b"anew").unwrap();
    let expected = BTreeMap::from([(1, b"stays".to_vec()), (2, b"anew".to_vec())]);
    assert_eq!(scan(&mut s, &t, 0), expected);
    s.commit(false).unwrap();
    check(&engine, &t);
    engine.drop_table("d/t", &DdlCaller::default()).unwrap();
    drop((s, w));
    engine.close().unwrap();
}

/// The machine dies at some moment of the DROP or TRUNCATE of a table of many pages, beside
/// checkpoints: the database opens, the other table is whole, and all space is free that no page
/// takes.
#[test]
fn a_crash_during_a_large_drop_leaves_no_page_behind() {
    for seed in 0..24 {
        let (disk, engine, t, mut s) = database(seed);
        insert(&mut s, &t, 1, b"stays").unwrap();
        let big = create(&engine, "d/big");
        for n in 0..6000 {
            insert(&mut s, &big, n, &[b'x'; 3500]).unwrap();
            if n % 100 == 0 {
                s.commit(false).unwrap();
            }
        }
        s.commit(false).unwrap();
        drop(s);
        let checkpoints = {
            let engine = engine.clone();
            ferrite_sync::thread::spawn("checkpoints", move || {
                let _ = catch_unwind(AssertUnwindSafe(|| while engine.checkpoint().is_ok() {}));
            })
        };
        disk.power_off_after(1 + seed / 2);
        let caller = DdlCaller::default();
        let _ = catch_unwind(AssertUnwindSafe(|| match seed % 2 {
            0 => engine.drop_table("d/big", &caller),
            _ => engine.truncate_table("d/big", 1, &caller),
        }));
        disk.power_off();
        let _ = checkpoints.join();
        give_up(&engine);
        drop((engine, t, big));
        disk.crash(&mut Rng::new(seed));
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        check(&engine, &t);
        if let Ok(big) = engine.dict().open_table("d/big") {
            check(&engine, &big);
            assert!(
                [0, 6000].contains(&scan_count(&engine, &big)),
                "seed {seed}"
            );
            engine.drop_table("d/big", &caller).unwrap();
        }
        let (orphans, _) = engine.dict().leftovers();
        assert!(orphans.is_empty(), "seed {seed}: {orphans:?} are left");
        wait_until("an account of all space", || engine.check_space().is_ok());
        engine.close().unwrap();
    }
}

fn scan_count(engine: &Arc<Engine>, t: &Arc<Table>) -> usize {
    scan(&mut Session::new(engine, 0, 3), t, 0).len()
}

/// A copy that is to take the place of `original`.
fn create_copy(engine: &Engine, name: &str, original: &str) {
    let indexes = vec![IndexSpec::new("PRIMARY", true, 1)];
    let foreign = NewForeign {
        original: Some(original.into()),
        ..NewForeign::default()
    };
    let spec = TableSpec::new(name, indexes);
    let created = engine.dict().create_with_foreign(spec, 1, foreign);
    assert!(created.is_ok(), "{name}");
}

/// Of the copies that ALTER TABLE fills go those that nobody knows and that take nobody's place: what is put
/// aside for one may have other partitions.
#[test]
fn copies_that_nobody_waits_for_go() {
    let (_disk, engine, _t, s) = database(91);
    let copies = [
        "d/#sql-alter-1-1",
        "d/#sql-alter-1-2#P#p0",
        "d/#sql-alter-1-2#P#p1",
        "d/#sql-alter-1-3#p#p0",
        "d/#sql-alter-1-4#P#p0",
        "d/#sql-alter-1-5",
    ];
    for name in copies {
        create_copy(&engine, name, "d/t");
    }
    let asides = [
        "d/#sql-backup-1-4",
        "d/#sql-backup-1-5#P#p0",
        "e/#sql-backup-1-1",
    ];
    for name in asides {
        create(&engine, name);
    }
    let asked = |name: &str| {
        assert!(!name.contains("#P#"), "{name} is asked for");
        name == "d/#sql-alter-1-2"
    };
    let mut gone = engine.drop_abandoned_copies(&asked).unwrap();
    gone.sort_unstable();
    assert_eq!(gone, [copies[0], copies[3]]);
    assert_eq!(engine.drop_abandoned_copies(&|_| true), Ok(Vec::new()));
    for name in copies.iter().chain(&asides) {
        let is_there = engine.dict().open_table(name).is_ok();
        assert_eq!(is_there, !gone.iter().any(|g| g == name), "{name}");
    }
    drop(s);
    engine.close().unwrap();
}

/// A copy stays if the table that it is to take the place of is not there: it may have the only rows. So does
/// one that does not say whose place that is, unless it belongs to one that does.
#[test]
fn the_only_copy_of_a_table_stays() {
    let (disk, engine, _t, s) = database(92);
    let stay = [
        "d/#sql-alter-2-1",
        "d/#sql-alter-2-1#i#01",
        "d/#sql-alter-2-2#P#p0",
    ];
    create_copy(&engine, stay[0], "d/moved");
    create(&engine, stay[1]);
    create_copy(&engine, stay[2], "d/moved");
    create(&engine, "d/#sql-alter-2-3");
    // Names that begin as that of the table are other tables.
    create(&engine, "d/moved2");
    create(&engine, "e/moved");
    drop((s, _t));
    engine.close().unwrap();
    let engine = open(&disk);
    assert_eq!(engine.drop_abandoned_copies(&|_| false), Ok(Vec::new()));
    for name in stay {
        assert!(engine.dict().open_table(name).is_ok(), "{name}");
    }
    // Once a table of that name is there, whole or in partitions, they are in nobody's place.
    create(&engine, "d/moved#P#p7");
    let mut gone = engine.drop_abandoned_copies(&|_| false).unwrap();
    gone.sort_unstable();
    assert_eq!(gone, stay);
    assert!(engine.dict().open_table("d/#sql-alter-2-3").is_ok());
    engine.close().unwrap();
}

/// The server drops a copy, or what it has put aside, before the table of its VECTOR INDEX, but with DROP TABLE the index
/// first. Whichever goes first, the other goes, too; and at a start what a crash has left of it.
#[test]
fn the_index_of_a_vector_table_goes_before_or_after_it() {
    let (disk, engine, _t, s) = database(93);
    let caller = DdlCaller {
        thd: 0,
        wait_ms: 0,
        references: References::Any,
    };
    for (first, second) in [("d/v", "d/v#i#01"), ("d/w#i#01", "d/w")] {
        create(&engine, first);
        create(&engine, second);
        engine.drop_table(first, &caller).unwrap();
        engine.drop_table(second, &caller).unwrap();
        assert!(!engine.dict().exists(second));
    }
    // A CREATE TABLE ... SELECT of an earlier version failed.
    create(&engine, "d/x#i#01");
    engine.drop_parts("d/x", &caller).unwrap();
    assert!(!engine.dict().exists("d/x#i#01"));
    let left = ["d/#sql-alter-3-1#i#01", "d/#sql-backup-3-2#i#01"];
    for name in left {
        create(&engine, name);
    }
    drop((s, _t));
    engine.close().unwrap();
    let engine = open(&disk);
    let mut gone = engine.drop_abandoned_copies(&|_| false).unwrap();
    gone.sort_unstable();
    assert_eq!(gone, left);
    engine.close().unwrap();
}
