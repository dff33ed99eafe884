//! Tables that travel in a file: everything comes along, nothing of a damaged or foreign file does,
//! and a machine that dies in between leaves an empty table or a full one.

use crate::common::*;
use ferrite_engine::{
    AlterForeign, Cursor, DdlCaller, DupInfo, Engine, ExportAbout, ImportFrom, IndexSpec, ReadMode,
    Session, Table, TableSpec, WaitMode, Xid,
};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::{OpenMode, Storage};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::panic::{catch_unwind, AssertUnwindSafe};

const FILE: &str = "t.ferrite";
const LAYOUT: u64 = 77;
const COLUMNS: &[u8] = b"`n` int\0`text` varchar(9000)\0";
const ABOUT: ExportAbout<'_> = ExportAbout {
    table: "d/t",
    layout: LAYOUT,
    columns: COLUMNS,
    server: "10.11.1",
};

fn text_of(n: u64) -> Vec<u8> {
    vec![b'a' + (n % 26) as u8; 20 + (n % 90) as usize]
}

fn value_of(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (n * 131 + i * 7) as u8).collect()
}

/// The values out of line of row `n`: none of most rows, and one that needs several blocks of the file.
fn values_of(n: u64) -> Vec<Vec<u8>> {
    match n % 50 {
        7 => vec![value_of(n, 3000), Vec::new(), value_of(n + 1, 70_000)],
        8 => vec![value_of(n, 5)],
        9 if n == 109 => vec![value_of(n, 900_000)],
        _ => Vec::new(),
    }
}

fn insert_with_values(s: &mut Session, t: &Arc<Table>, n: u64) {
    let values = values_of(n);
    let mut payload = vec![values.len() as u8];
    for value in &values {
        payload.extend_from_slice(s.write_overflow(t, value).unwrap().bytes());
    }
    payload.extend_from_slice(&text_of(n));
    let (k, u) = (key(n % 10), key(n * 7));
    let dup = &mut DupInfo::default();
    s.insert_row(t, Some(&key(n)), &payload, &entries(&k, &u), false, dup)
        .unwrap();
}

fn fill(s: &mut Session, t: &Arc<Table>, rows: u64) {
    for n in 0..rows {
        insert_with_values(s, t, n);
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
}

/// All rows as `fill` makes them, values included, by each index.
fn assert_filled(engine: &Arc<Engine>, t: &Arc<Table>, rows: u64) {
    let mut s = Session::new(engine, 0, 3);
    for index_no in 0..3 {
        let mut cursor = Cursor::new(t, index_no, ReadMode::Snapshot, WaitMode::Wait);
        let mut seen = 0;
        let mut more = cursor.first(&mut s).map(|_| ());
        while more.is_ok() {
            let payload = cursor.fetch_row(&mut s).unwrap().payload.to_vec();
            let pk = cursor.current().unwrap().pk.to_vec();
            let n = u64::from_be_bytes(pk.try_into().unwrap());
            let (count, values) = (usize::from(payload[0]), values_of(n));
            assert_eq!(count, values.len(), "row {n}");
            for (at, value) in values.iter().enumerate() {
                let bytes = payload[1 + 16 * at..17 + 16 * at].try_into().unwrap();
                let mut out = vec![0; value.len()];
                let reference = ferrite_engine::OverflowRef::from_bytes(bytes);
                s.read_value(&reference, &mut out).unwrap();
                assert!(out == *value, "value {at} of row {n}");
            }
            assert_eq!(payload[1 + 16 * count..], text_of(n), "row {n}");
            seen += 1;
            more = cursor.next(&mut s).map(|_| ());
        }
        assert_eq!((more, seen), (Err(Error::NotFound), rows));
    }
    s.commit(false).unwrap();
    check(engine, t);
    engine.check_values().unwrap();
}

fn import(engine: &Arc<Engine>, from: &dyn Storage, layout: u64) -> Result<(), Error> {
    let mut s = Session::new(engine, 0, 4);
    let from = ImportFrom {
        storage: from,
        name: FILE,
        layout: &|_| layout,
        columns: COLUMNS,
        unfit: &|_| None,
    };
    s.import_table("d/t", &from, &DdlCaller::default())
}

/// A file with that many rows, on a disk of its own.
fn exported(rows: u64) -> SimStorage {
    let (_disk, engine, t, mut s) = database(5);
    fill(&mut s, &t, rows);
    engine.raise_auto_increment(&t, 900);
    let files = SimStorage::new(6);
    let bytes = s.export_table(&t, &files, FILE, &ABOUT).unwrap();
    assert_eq!(files.list().unwrap(), [FILE], "and nothing beside it");
    let file = files.open(FILE, OpenMode::ReadOnly, false).unwrap();
    assert_eq!(file.len().unwrap(), bytes);
    // An export does not write over a file.
    let again = s.export_table(&t, &files, FILE, &ABOUT);
    assert_eq!(again, Err(Error::Exists));
    s.commit(false).unwrap();
    drop(s);
    engine.close().unwrap();
    files
}

#[test]
fn everything_comes_along() {
    const ROWS: u64 = 3000;
    let files = exported(ROWS);
    let (disk, engine, t, _s) = database(7);
    import(&engine, &files, LAYOUT).unwrap();
    let old = t;
    let t = engine.dict().open_table("d/t").unwrap();
    assert!(!Arc::ptr_eq(&old, &t), "the table is another one");
    assert_filled(&engine, &t, ROWS);
    assert_eq!(t.auto_increment(), 900);
    assert_eq!(t.stats().rows, ROWS);
    // It takes changes as any other, and the values that its rows let go are freed.
    let mut s = Session::new(&engine, 0, 5);
    insert_with_values(&mut s, &t, ROWS);
    for n in [7, 109] {
        let (k, u) = (key(n % 10), key(n * 7));
        s.delete_row(&t, &key(n), &entries(&k, &u)).unwrap();
    }
    s.commit(false).unwrap();
    drop(s);
    engine.close().unwrap();
    drop((engine, t, old));
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    check(&engine, &t);
    let mut s = Session::new(&engine, 0, 6);
    assert_eq!(scan(&mut s, &t, 1).len() as u64, ROWS - 1);
}

/// The counter is as durable as the rows, once the import has ended.
#[test]
fn the_counter_survives_a_crash() {
    let files = exported(300);
    let (disk, engine, _t, _s) = database(7);
    import(&engine, &files, LAYOUT).unwrap();
    disk.crash(&mut Rng::new(1));
    give_up(&engine);
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    assert_filled(&engine, &t, 300);
    assert_eq!(t.auto_increment(), 900);
    engine
        .truncate_table("d/t", 17, &DdlCaller::default())
        .unwrap();
    disk.crash(&mut Rng::new(2));
    give_up(&engine);
    drop(t);
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    assert_filled(&engine, &t, 0);
    assert_eq!(t.auto_increment(), 17);
}

#[test]
fn what_others_are_changing_does_not_come_along() {
    let (_disk, engine, t, mut s) = database(8);
    fill(&mut s, &t, 200);
    let mut prepared = Session::new(&engine, 0, 2);
    delete_row(&mut prepared, &t, 20);
    insert_with_values(&mut prepared, &t, 300);
    let xid = Xid {
        format_id: 1,
        gtrid_len: 3,
        data: b"abc".to_vec(),
    };
    prepared.prepare(&xid).unwrap();
    let files = SimStorage::new(9);
    s.export_table(&t, &files, FILE, &ABOUT).unwrap();
    let (_other_disk, other, _t, _s) = database(10);
    import(&other, &files, LAYOUT).unwrap();
    let t = other.dict().open_table("d/t").unwrap();
    assert_filled(&other, &t, 200);
}

fn delete_row(s: &mut Session, t: &Arc<Table>, n: u64) {
    let (k, u) = (key(n % 10), key(n * 7));
    s.delete_row(t, &key(n), &entries(&k, &u)).unwrap();
}

/// A file, with checksums that are right, of a table without a primary key with one row of that id; and what an
/// import of it answers.
fn imported_row_id(id: &[u8]) -> Result<(), Error> {
    let hidden = || {
        let (_disk, engine, _t, s) = database(31);
        let spec = TableSpec {
            hidden_row_id: true,
            ..TableSpec::new("d/h", vec![index("row ids", true)])
        };
        let t = engine.dict().create_table(spec, 1).unwrap();
        (engine, t, s)
    };
    let (_engine, t, mut s) = hidden();
    let dup = &mut DupInfo::default();
    s.insert_row(&t, Some(id), b"\0a row", &[], false, dup)
        .unwrap();
    s.commit(false).unwrap();
    let files = SimStorage::new(32);
    s.export_table(&t, &files, FILE, &ABOUT).unwrap();
    let (engine, _t, mut s) = hidden();
    let from = ImportFrom {
        storage: &files,
        name: FILE,
        layout: &|_| LAYOUT,
        columns: COLUMNS,
        unfit: &|_| None,
    };
    s.import_table("d/h", &from, &DdlCaller::default())?;
    // The next row has a place of its own.
    let t = engine.dict().open_table("d/h").unwrap();
    let next = s.insert_row(&t, None, b"\0another", &[], false, dup);
    assert!(next.unwrap().unwrap()[..] > *id, "after {id:?}");
    Ok(())
}

#[test]
fn row_ids_that_no_table_has_given_out_are_refused() {
    for id in [1, 1 << 40, (1 << 63) - 1] {
        assert_eq!(imported_row_id(&u64::to_be_bytes(id)), Ok(()), "{id}");
    }
    for id in [1 << 63, u64::MAX - 1, u64::MAX] {
        let refused = imported_row_id(&u64::to_be_bytes(id));
        assert!(
            matches!(refused, Err(Error::Corrupt(_))),
            "{id}: {refused:?}"
        );
    }
    for id in [&b"three"[..], b"nine byte"] {
        let refused = imported_row_id(id);
        assert!(matches!(refused, Err(Error::Corrupt(_))), "{refused:?}");
    }
}

#[test]
fn a_file_that_does_not_fit_is_refused() {
    let files = exported(30);
    let (_disk, engine, t, mut s) = database(11);
    let format = |result: Result<(), Error>, what: &str| match result {
        Err(Error::Format(text)) => assert!(text.contains(what), "{text}"),
        other => panic!("{what}: {other:?}"),
    };
    format(import(&engine, &files, LAYOUT + 1), "other columns");
    assert_eq!(
        import(&engine, &SimStorage::new(12), LAYOUT),
        Err(Error::NotFound)
    );
    insert(&mut s, &t, 1, b"a row").unwrap();
    s.commit(false).unwrap();
    assert_eq!(import(&engine, &files, LAYOUT), Err(Error::Exists));
    delete(&mut s, &t, 1, b"a row").unwrap();
    s.commit(false).unwrap();
    import(&engine, &files, LAYOUT).unwrap();

    engine.drop_table("d/t", &DdlCaller::default()).unwrap();
    let spec = TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)]);
    engine.dict().create_table(spec, 1).unwrap();
    format(import(&engine, &files, LAYOUT), "has 3 indexes, not 1");
    engine.drop_table("d/t", &DdlCaller::default()).unwrap();
    let indexes = vec![index("PRIMARY", true), index("k", true), index("u", true)];
    let spec = TableSpec::new("d/t", indexes);
    engine.dict().create_table(spec, 1).unwrap();
    format(import(&engine, &files, LAYOUT), "another index `k`");
}

/// The open table has the names of before; those of now are in the file.
#[test]
fn renamed_indexes_have_their_new_names() {
    let (_disk, engine, t, mut s) = database(15);
    fill(&mut s, &t, 50);
    let swapped = ["PRIMARY", "u", "k"];
    let renamed = AlterForeign {
        index_names: swapped.map(str::to_owned).to_vec(),
        ..AlterForeign::default()
    };
    (engine.alter_table("d/t", b"definition", &renamed, None, &DdlCaller::default())).unwrap();
    let files = SimStorage::new(16);
    s.export_table(&t, &files, FILE, &ABOUT).unwrap();
    s.commit(false).unwrap();
    let other = open(&SimStorage::new(17));
    let indexes = vec![index("PRIMARY", true), index("u", false), index("k", true)];
    (other.dict().create_table(TableSpec::new("d/t", indexes), 1)).unwrap();
    import(&other, &files, LAYOUT).unwrap();
    let t = other.dict().open_table("d/t").unwrap();
    assert_filled(&other, &t, 50);
}

/// A flipped bit, or an end too early, wherever it is: an error, an empty table, and no tree left over.
#[test]
fn a_damaged_file_is_refused() {
    let files = exported(120);
    let (_disk, engine, t, mut s) = database(13);
    let file = files.open(FILE, OpenMode::ReadWrite, false).unwrap();
    let bytes = file.len().unwrap();
    let mut rng = Rng::new(14);
    for round in 0..60 {
        let at = if round < 30 { round } else { rng.below(bytes) };
        let mut byte = [0];
        file.read_at(&mut byte, at).unwrap();
        file.write_at(&[byte[0] ^ 1 << rng.below(8)], at).unwrap();
        match import(&engine, &files, LAYOUT) {
            Err(Error::Corrupt(text)) => assert!(text.contains(FILE), "{text}"),
            other => panic!("byte {at}: {other:?}"),
        }
        file.write_at(&byte, at).unwrap();
    }
    for cut in [0, 5, bytes / 2, bytes - 1] {
        let copy = SimStorage::new(15);
        let mut all = vec![0; cut as usize];
        file.read_at(&mut all, 0).unwrap();
        let to = copy.open(FILE, OpenMode::CreateNew, false).unwrap();
        to.write_at(&all, 0).unwrap();
        let result = import(&engine, &copy, LAYOUT);
        assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}");
    }
    assert_eq!(scan(&mut s, &t, 0).len(), 0);
    s.commit(false).unwrap();
    let (left_over, _) = engine.dict().leftovers();
    assert!(left_over.is_empty(), "trees are left over: {left_over:?}");
    import(&engine, &files, LAYOUT).unwrap();
    let t = engine.dict().open_table("d/t").unwrap();
    assert_filled(&engine, &t, 120);
}

/// The power goes at every stage of an import: the table is empty or has all rows.
#[test]
fn a_crash_leaves_an_empty_table_or_a_full_one() {
    let files = exported(400);
    let (mut empty, mut full) = (0, 0);
    for round in 0..40u64 {
        let (disk, engine, t, s) = database(100 + round);
        drop((s, t));
        disk.power_off_after(1 + round * round / 12);
        let done = catch_unwind(AssertUnwindSafe(|| import(&engine, &files, LAYOUT)));
        disk.power_off();
        give_up(&engine);
        drop(engine);
        disk.crash(&mut Rng::new(round));
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        match scan(&mut s, &t, 0).len() {
            0 => empty += 1,
            _ => full += 1,
        }
        s.commit(false).unwrap();
        let all = scan(&mut s, &t, 0).len();
        s.commit(false).unwrap();
        if matches!(done, Ok(Ok(()))) {
            assert_eq!(all, 400, "an import that was acknowledged is lost");
        }
        if all > 0 {
            assert_filled(&engine, &t, 400);
        } else {
            check(&engine, &t);
            import(&engine, &files, LAYOUT).unwrap();
        }
        drop(s);
        engine.close().unwrap();
    }
    assert!(empty > 3 && full > 3, "{empty} empty, {full} full");
}

#[test]
fn a_full_disk_leaves_the_table_empty() {
    const ROWS: u64 = 12_000;
    let files = exported(ROWS);
    let (disk, engine, t, mut s) = database(16);
    disk.set_capacity(Some(disk.used_bytes() + (64 << 10)));
    // Pages of text like this become so short that all of it might fit into what the store has.
    disk.inject_lasting(Fault::Full, "store.");
    let result = import(&engine, &files, LAYOUT);
    disk.clear_faults();
    assert!(matches!(result, Err(Error::DiskFull(_))), "{result:?}");
    assert_eq!(scan(&mut s, &t, 0).len(), 0);
    s.commit(false).unwrap();
    disk.set_capacity(None);
    wait_until("an import with room", || {
        import(&engine, &files, LAYOUT).is_ok()
    });
    let t = engine.dict().open_table("d/t").unwrap();
    assert_filled(&engine, &t, ROWS);
    // And a disk that is full while the file is written.
    let small = SimStorage::new(17);
    small.set_capacity(Some(100 << 10));
    let result = s.export_table(&t, &small, FILE, &ABOUT);
    assert!(matches!(result, Err(Error::DiskFull(_))), "{result:?}");
    assert!(small.list().unwrap().is_empty(), "a piece of a file");
}
