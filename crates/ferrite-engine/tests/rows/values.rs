//! Values out of line: a failed change takes its values with it, and who reads without a
//! snapshot never gets the bytes of another row.

use crate::common::*;
use ferrite_engine::{
    Callbacks, Cursor, DupInfo, Engine, Isolation, LogLevel, OverflowRef, ReadMode, RowChange,
    Session, Table, WaitMode, Xid,
};
use ferrite_io::sim::SimStorage;
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::{thread, Arc};
use ferrite_types::Error;

const BIG: usize = 200_000;

/// Everybody is killed, once that is said.
#[derive(Default)]
struct Killed(AtomicBool);

impl Callbacks for Killed {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
    fn is_killed(&self, _thd: usize) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// KILL ends the write of a long value, and nothing of it is left.
#[test]
fn a_long_value_can_be_interrupted() {
    let killed = Arc::new(Killed::default());
    let disk = SimStorage::new(8);
    let engine = Engine::open(config(), Arc::new(disk.boot()), killed.clone()).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    insert_big(&mut s, &t, 1, 1).unwrap();
    s.commit(false).unwrap();
    let before = engine.check_values().unwrap().pages;
    killed.0.store(true, Ordering::SeqCst);
    let value = s.write_overflow(&t, &value_of(2, 4_000_000));
    assert_eq!(value, Err(Error::Interrupted));
    killed.0.store(false, Ordering::SeqCst);
    s.commit(false).unwrap();
    assert_eq!(engine.check_values().unwrap().pages, before, "of no row");
    insert_big(&mut s, &t, 2, 2).unwrap();
    s.commit(false).unwrap();
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// Bytes that tell whose they are.
fn value_of(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (n * 131 + i * 7 + i / 251) as u8)
        .collect()
}

/// A payload that names those values, after which comes `tail`.
fn payload_of(s: &mut Session, t: &Arc<Table>, values: &[Vec<u8>], tail: &[u8]) -> Vec<u8> {
    let mut payload = vec![values.len() as u8];
    for value in values {
        payload.extend_from_slice(s.write_overflow(t, value).unwrap().bytes());
    }
    payload.extend_from_slice(tail);
    payload
}

/// Inserts a row with two values of its own; `k` and `u` are its secondary entries.
fn insert_big(s: &mut Session, t: &Arc<Table>, n: u64, u: u64) -> Result<(), Error> {
    let values = [value_of(n, BIG), value_of(n + 1000, 40_000)];
    let payload = payload_of(s, t, &values, b"");
    let (k, u) = (key(n), key(u));
    let dup = &mut DupInfo::default();
    s.insert_row(t, Some(&key(n)), &payload, &entries(&k, &u), false, dup)
        .map(|_| ())
}

/// Gives a row another value, and another `u`.
fn update_big(
    s: &mut Session,
    t: &Arc<Table>,
    n: u64,
    seed: u64,
    u: [u64; 2],
) -> Result<(), Error> {
    let payload = payload_of(s, t, &[value_of(seed, BIG)], b"");
    let (k, old, new) = (key(n), key(u[0]), key(u[1]));
    let (removed, added) = (entries(&k, &old), entries(&k, &new));
    let dup = &mut DupInfo::default();
    s.update_row(
        t,
        &RowChange {
            old_pk: &key(n),
            new_pk: &key(n),
            payload: &payload,
            removed: &removed[1..],
            added: &added[1..],
        },
        dup,
    )
}

fn settle(engine: &Engine) {
    wait_until("the end of purge", || engine.purge_backlog() == 0);
}

fn live(engine: &Engine) -> u64 {
    let account = engine.check_values().unwrap();
    assert_eq!(account.pending, 0);
    account.live
}

#[test]
fn a_failed_change_takes_its_values_with_it() {
    let (_disk, engine, t, mut s) = database(31);
    s.begin_statement(Isolation::RepeatableRead);
    insert_big(&mut s, &t, 1, 1).unwrap();
    insert_big(&mut s, &t, 2, 2).unwrap();
    // INSERT IGNORE: by the primary key, by the unique one; the statement goes on.
    assert_eq!(insert_big(&mut s, &t, 1, 9), Err(Error::Duplicate));
    assert_eq!(insert_big(&mut s, &t, 3, 2), Err(Error::Duplicate));
    // UPDATE IGNORE.
    assert_eq!(update_big(&mut s, &t, 1, 7, [1, 2]), Err(Error::Duplicate));
    // A row that is not there any more.
    assert_eq!(update_big(&mut s, &t, 8, 8, [8, 8]), Err(Error::NotFound));
    // A change whose row the caller gives up before it begins.
    payload_of(&mut s, &t, &[value_of(5, BIG)], b"");
    s.take_values_back().unwrap();
    s.end_statement();
    s.commit(false).unwrap();
    settle(&engine);
    assert_eq!(live(&engine), 4);
    // What succeeds keeps its own and lets go of what it replaced.
    s.begin_statement(Isolation::RepeatableRead);
    update_big(&mut s, &t, 1, 7, [1, 5]).unwrap();
    s.commit(false).unwrap();
    settle(&engine);
    assert_eq!(live(&engine), 3);
    engine.close().unwrap();
}

#[test]
fn a_change_that_waits_in_vain_takes_its_values_with_it() {
    let (_disk, engine, t, mut s) = database(32);
    insert_big(&mut s, &t, 1, 1).unwrap();
    s.commit(false).unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    delete_big(&mut s, &t, 1, 1);
    let mut other = Session::new(&engine, 0, 2);
    other.set_lock_wait_timeout_ms(50);
    other.begin_statement(Isolation::RepeatableRead);
    insert_big(&mut other, &t, 4, 4).unwrap();
    assert_eq!(insert_big(&mut other, &t, 1, 1), Err(Error::LockTimeout));
    other.end_statement();
    other.commit(false).unwrap();
    s.rollback().unwrap();
    settle(&engine);
    assert_eq!(live(&engine), 4);
    engine.close().unwrap();
}

fn delete_big(s: &mut Session, t: &Arc<Table>, n: u64, u: u64) {
    s.delete_row(t, &key(n), &entries(&key(n), &key(u)))
        .unwrap();
}

#[test]
fn savepoints_and_failed_statements_keep_the_account() {
    let (_disk, engine, t, mut s) = database(33);
    s.begin_statement(Isolation::RepeatableRead);
    insert_big(&mut s, &t, 1, 1).unwrap();
    s.end_statement();
    let savepoint = s.undo_position();
    s.begin_statement(Isolation::RepeatableRead);
    insert_big(&mut s, &t, 2, 2).unwrap();
    update_big(&mut s, &t, 1, 5, [1, 1]).unwrap();
    s.end_statement();
    s.rollback_to(savepoint).unwrap();
    // A multi-row statement that fails in its third row.
    s.begin_statement(Isolation::RepeatableRead);
    insert_big(&mut s, &t, 6, 6).unwrap();
    insert_big(&mut s, &t, 7, 7).unwrap();
    assert_eq!(insert_big(&mut s, &t, 1, 8), Err(Error::Duplicate));
    s.rollback_statement().unwrap();
    s.end_statement();
    // Values written just before the statement is broken off.
    s.begin_statement(Isolation::RepeatableRead);
    payload_of(&mut s, &t, &[value_of(9, BIG)], b"");
    s.rollback_statement().unwrap();
    s.end_statement();
    s.commit(false).unwrap();
    settle(&engine);
    assert_eq!(live(&engine), 2);
    engine.close().unwrap();
}

#[test]
fn a_refused_row_of_a_bulk_load_leaves_nothing() {
    let (_disk, engine, t, mut s) = database(34);
    s.begin_statement(Isolation::RepeatableRead);
    s.begin_load(&t);
    insert_big(&mut s, &t, 1, 1).unwrap();
    insert_big(&mut s, &t, 2, 2).unwrap();
    assert_eq!(insert_big(&mut s, &t, 1, 3), Err(Error::Duplicate));
    assert_eq!(insert_big(&mut s, &t, 3, 2), Err(Error::Duplicate));
    payload_of(&mut s, &t, &[value_of(5, BIG)], b"");
    s.take_values_back().unwrap();
    s.end_load(&t).unwrap();
    s.end_statement();
    s.commit(false).unwrap();
    assert_eq!(live(&engine), 4);
    engine.close().unwrap();
}

/// A bulk load refuses what no leaf takes, as an insert does, instead of splitting for ever.
#[test]
fn a_bulk_load_refuses_keys_and_rows_that_are_too_long() {
    let (_disk, engine, t, mut s) = database(40);
    s.begin_statement(Isolation::RepeatableRead);
    s.begin_load(&t);
    insert_big(&mut s, &t, 1, 1).unwrap();
    let (k, u) = (key(2), vec![7; 3999]);
    let mut insert = |payload: &[u8], u: &[u8], copies: &[u8]| {
        let dup = &mut DupInfo::default();
        let mut entries = entries(&k, u);
        entries[0].payload = copies;
        s.insert_row(&t, Some(&key(2)), payload, &entries, false, dup)
    };
    assert_eq!(insert(&[0], &u, b""), Err(Error::KeyTooLong));
    assert_eq!(insert(&[0; 8200], &key(2), b""), Err(Error::RowTooBig));
    let copies = [1; 8200 - 16 - 2];
    assert_eq!(
        insert(&[0], &key(2), &[1; 8200 - 16 - 1]),
        Err(Error::KeyTooLong)
    );
    insert(&[0], &u[..3992], &copies).unwrap();
    s.end_load(&t).unwrap();
    s.commit(false).unwrap();
    check(&engine, &t);
    engine.close().unwrap();
}

/// A secondary entry whose copies of the columns do not fit: its key is too long, not the row.
#[test]
fn an_entry_with_too_many_copies_is_a_key_too_long() {
    let (_disk, engine, t, mut s) = database(41);
    let k = key(2);
    let mut insert = |payload: &[u8], copies: &[u8]| {
        s.begin_statement(Isolation::RepeatableRead);
        let mut entries = entries(&k, &k);
        entries[0].payload = copies;
        let dup = &mut DupInfo::default();
        let inserted = s.insert_row(&t, Some(&k), payload, &entries, false, dup);
        if inserted.is_err() {
            s.rollback_statement().unwrap();
        }
        s.end_statement();
        inserted
    };
    let copies = [1; 8200 - 16 - 1];
    assert_eq!(insert(&[0], &copies), Err(Error::KeyTooLong));
    assert_eq!(insert(&[0; 8200], b""), Err(Error::RowTooBig));
    insert(&[0], &copies[1..]).unwrap();
    s.commit(false).unwrap();
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn a_row_of_many_values() {
    let (disk, engine, t, mut s) = database(41);
    let values: Vec<Vec<u8>> = (0..400).map(|n| value_of(n, 3000)).collect();
    let mut payload = vec![255, 144, 1, 255, 255];
    for value in &values {
        payload.extend_from_slice(s.write_overflow(&t, value).unwrap().bytes());
    }
    let dup = &mut DupInfo::default();
    s.insert_row(&t, Some(&key(1)), &payload, &[], false, dup)
        .unwrap();
    s.commit(false).unwrap();
    assert_eq!(live(&engine), 400);
    drop((s, t));
    give_up(&engine);
    drop(engine);
    disk.crash(&mut ferrite_sync::random::Rng::new(1));
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    assert!(read_values(&s, &payload) == Ok(values));
    s.update_row(
        &t,
        &RowChange {
            old_pk: &key(1),
            new_pk: &key(1),
            payload: &[0],
            removed: &[],
            added: &[],
        },
        dup,
    )
    .unwrap();
    s.commit(false).unwrap();
    settle(&engine);
    assert_eq!(live(&engine), 0);
    engine.close().unwrap();
}

/// The disk is full in one of the values of a row: the row before it and nothing else stays.
#[test]
fn a_full_disk_in_the_middle_of_a_row() {
    let (disk, engine, t, mut s) = database(42);
    s.begin_statement(Isolation::RepeatableRead);
    disk.set_capacity(Some(24 << 20));
    let mut rows = 0;
    let mut last = Ok(());
    while last.is_ok() && rows < 1000 {
        last = insert_small(&mut s, &t, rows);
        rows += u64::from(last.is_ok());
    }
    assert!(matches!(last, Err(Error::DiskFull(_))), "{last:?}");
    disk.set_capacity(None);
    s.end_statement();
    s.commit(false).unwrap();
    settle(&engine);
    assert_eq!(live(&engine), 3 * rows);
    engine.close().unwrap();
}

/// A row with three values, or the error of whatever failed.
fn insert_small(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<(), Error> {
    let mut payload = vec![3];
    for seed in 0..3 {
        payload.extend_from_slice(s.write_overflow(t, &value_of(n + seed, 10_000))?.bytes());
    }
    let (k, u) = (key(n), key(n));
    let dup = &mut DupInfo::default();
    s.insert_row(t, Some(&key(n)), &payload, &entries(&k, &u), false, dup)
        .map(|_| ())
}

#[test]
fn the_account_finds_a_leak() {
    let (_disk, engine, t, mut s) = database(35);
    s.begin_statement(Isolation::RepeatableRead);
    let payload = payload_of(&mut s, &t, &[value_of(1, BIG)], b"");
    // The row that is inserted does not name it.
    let (k, u) = (key(1), key(1));
    let dup = &mut DupInfo::default();
    s.insert_row(&t, Some(&key(1)), &[0], &entries(&k, &u), false, dup)
        .unwrap();
    assert!(matches!(engine.check_values(), Err(Error::Bug(_))));
    s.commit(false).unwrap();
    let found = engine.check_values().unwrap_err().to_string();
    assert!(found.contains("nothing names"), "{found}");
    // Two rows that name the same value.
    for n in 2..4 {
        let (k, u) = (key(n), key(n));
        s.insert_row(&t, Some(&key(n)), &payload, &entries(&k, &u), false, dup)
            .unwrap();
    }
    s.commit(false).unwrap();
    let found = engine.check_values().unwrap_err().to_string();
    assert!(found.contains("of two values"), "{found}");
    engine.close().unwrap();
}

#[test]
fn the_account_knows_prepared_transactions_and_old_snapshots() {
    let (disk, engine, t, mut s) = database(36);
    insert_big(&mut s, &t, 1, 1).unwrap();
    insert_big(&mut s, &t, 2, 2).unwrap();
    s.commit(false).unwrap();
    let mut reader = Session::new(&engine, 0, 2);
    reader.open_snapshot();
    update_big(&mut s, &t, 1, 5, [1, 1]).unwrap();
    s.commit(false).unwrap();
    let account = engine.check_values().unwrap();
    assert_eq!((account.live, account.pending), (3, 2));
    drop(reader);
    update_big(&mut s, &t, 2, 6, [2, 2]).unwrap();
    let xid = Xid {
        format_id: 1,
        gtrid_len: 1,
        data: b"x".to_vec(),
    };
    s.prepare(&xid).unwrap();
    s.detach_prepared();
    let account = engine.check_values().unwrap();
    assert_eq!((account.live, account.pending >= 2), (2, true));
    drop((s, t));
    give_up(&engine);
    drop(engine);
    disk.crash(&mut ferrite_sync::random::Rng::new(1));
    let engine = open(&disk);
    assert_eq!(engine.check_values().unwrap().live, 2);
    engine.rollback_by_xid(&xid).unwrap();
    settle(&engine);
    assert_eq!(live(&engine), 3);
    engine.close().unwrap();
}

// ---- reading without a snapshot ------------------------------------------------------------

/// The row's values as `s` reads them from the row it has just got.
fn read_values(s: &Session, payload: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let read = |reference: OverflowRef| {
        let mut value = vec![0; reference.length() as usize];
        s.read_value(&reference, &mut value).map(|()| value)
    };
    ferrite_engine::overflow_references(payload)
        .map(read)
        .collect()
}

fn is_gone(s: &Session, payload: &[u8]) -> bool {
    matches!(read_values(s, payload), Err(Error::ValueGone(_)))
}

/// Between the copy of the row and the reading of its value the value goes, and its pages
/// become another row's, of the same length.
#[test]
fn a_dirty_reader_never_gets_another_rows_value() {
    let (_disk, engine, t, mut s) = database(37);
    let mut reader = Session::new(&engine, 0, 2);
    let put = |s: &mut Session, n: u64| {
        let payload = payload_of(s, &t, &[value_of(n, BIG)], b"");
        let (k, u) = (key(n), key(n));
        let dup = &mut DupInfo::default();
        s.insert_row(&t, Some(&key(n)), &payload, &entries(&k, &u), false, dup)
            .unwrap();
        payload
    };
    let first = put(&mut s, 1);
    reader.begin_statement(Isolation::ReadUncommitted);
    let mut c = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
    let row = c.get(&mut reader, &key(1)).unwrap().payload.to_vec();
    assert_eq!(row, first);
    assert!(read_values(&reader, &row) == Ok(vec![value_of(1, BIG)]));
    s.rollback().unwrap();
    assert!(is_gone(&reader, &row), "freed pages");
    let second = put(&mut s, 2);
    assert_eq!(first[1..9], second[1..9], "the pages are used again");
    assert!(is_gone(&reader, &row), "another row's pages");
    // Who reads by snapshot may rely on it: for him it is damage.
    reader.begin_statement(Isolation::RepeatableRead);
    let fault = read_values(&reader, &row);
    assert!(matches!(fault, Err(Error::Corrupt(_))));
    s.commit(false).unwrap();
    engine.close().unwrap();
}

/// A snapshot that was ended says so; what it would have read is nobody's fault.
#[test]
fn values_of_an_expired_snapshot_are_too_old() {
    let (_disk, engine, t, mut s) = database(38);
    insert_big(&mut s, &t, 1, 1).unwrap();
    s.commit(false).unwrap();
    let mut reader = Session::new(&engine, 0, 2);
    reader.begin_statement(Isolation::RepeatableRead);
    let mut c = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
    let row = c.get(&mut reader, &key(1)).unwrap().payload.to_vec();
    update_big(&mut s, &t, 1, 5, [1, 1]).unwrap();
    s.commit(false).unwrap();
    assert!(read_values(&reader, &row).is_ok(), "kept for the snapshot");
    engine.set("max_history_bytes", 1).unwrap();
    wait_until("the end of the snapshot", || {
        read_values(&reader, &row) == Err(Error::SnapshotTooOld)
    });
    engine.close().unwrap();
}

/// One session changes and rolls back, others read what is not committed: each row is one
/// state, with its own bytes.
#[test]
fn dirty_readers_beside_updates_and_rollbacks() {
    const ROWS: u64 = 2;
    let (_disk, engine, t, mut s) = database(39);
    let put = |s: &mut Session, n: u64, seed: u64, update: bool| {
        // Two values and the seed in line: they must agree.
        let values = [value_of(seed, 20_000), value_of(seed + 1, 40_000)];
        let payload = payload_of(s, &t, &values, &seed.to_be_bytes());
        let dup = &mut DupInfo::default();
        match update {
            true => s.update_row(
                &t,
                &RowChange {
                    old_pk: &key(n),
                    new_pk: &key(n),
                    payload: &payload,
                    removed: &[],
                    added: &[],
                },
                dup,
            ),
            false => s
                .insert_row(&t, Some(&key(n)), &payload, &[], false, dup)
                .map(|_| ()),
        }
        .unwrap();
    };
    for n in 0..ROWS {
        put(&mut s, n, n * 1_000_000 + n, false);
    }
    s.commit(false).unwrap();
    let stop = Arc::new(ferrite_sync::atomic::AtomicBool::new(false));
    let readers: Vec<_> = (0..2u64)
        .map(|r| {
            let (engine, t, stop) = (engine.clone(), t.clone(), stop.clone());
            thread::spawn("reader", move || read_dirty(&engine, &t, &stop, r, ROWS))
        })
        .collect();
    for round in 1..400u64 {
        let n = round % ROWS;
        put(&mut s, n, n * 1_000_000 + round, true);
        thread::sleep_ms(round % 2);
        if round % 3 > 0 {
            s.rollback().unwrap();
        } else {
            s.commit(false).unwrap();
        }
    }
    stop.store(true, ferrite_sync::atomic::Ordering::SeqCst);
    for reader in readers {
        reader.join().unwrap();
    }
    settle(&engine);
    assert_eq!(live(&engine), 2 * ROWS);
    engine.close().unwrap();
}

fn read_dirty(
    engine: &Arc<Engine>,
    t: &Arc<Table>,
    stop: &ferrite_sync::atomic::AtomicBool,
    r: u64,
    rows: u64,
) {
    let mut s = Session::new(engine, 0, 10 + r);
    let mut c = Cursor::new(t, 0, ReadMode::Snapshot, WaitMode::Wait);
    let (mut whole, mut tries) = (0, r);
    while !stop.load(ferrite_sync::atomic::Ordering::SeqCst) || whole < rows {
        s.begin_statement(Isolation::ReadUncommitted);
        let n = tries % rows;
        tries += 1;
        let row = c.get(&mut s, &key(n)).unwrap().payload.to_vec();
        // The server takes its time, too.
        thread::sleep_ms(tries % 3);
        match read_values(&s, &row) {
            Ok(values) => {
                let seed = u64::from_be_bytes(row[row.len() - 8..].try_into().unwrap());
                assert_eq!(seed / 1_000_000, n, "another row's state");
                assert!(values[0] == value_of(seed, 20_000), "row {n}: other bytes");
                assert!(values[1] == value_of(seed + 1, 40_000), "row {n}: mixed");
                whole += 1;
            }
            Err(Error::ValueGone(_)) => {}
            Err(e) => panic!("row {n}: {e}"),
        }
    }
}

/// A leaf that is merged away may become a page of a value of the same table before somebody who was on
/// the way to it gets there. What stands on such a page where a leaf has the length of its fence is part
/// of a transaction id, which is small in short tests.
#[test]
fn a_value_in_the_place_of_a_leaf_is_no_leaf() {
    const WRITERS: u64 = 4;
    const ROWS: u64 = 40;
    const ROUNDS: u64 = 4_000;
    let (_disk, engine, t, mut s) = database(77);
    for n in 0..17_000u64 {
        insert(&mut s, &t, 1_000_000, &n.to_be_bytes()).unwrap();
        s.commit(false).unwrap();
        delete(&mut s, &t, 1_000_000, &n.to_be_bytes()).unwrap();
        s.commit(false).unwrap();
    }
    let work = |writer: u64| {
        let (engine, t) = (engine.clone(), t.clone());
        move || {
            let mut s = Session::new(&engine, 0, 100 + writer);
            let mut is_there = vec![false; ROWS as usize];
            for round in 0..ROUNDS {
                let seed = round * 7 + writer;
                for step in 0..5 {
                    // Neighbours in the tree are of different writers.
                    let at = (seed * 5 + step) % ROWS;
                    let n = at * WRITERS + writer;
                    let (k, u) = (key(n), key(n));
                    is_there[at as usize] ^= true;
                    if !is_there[at as usize] {
                        s.delete_row(&t, &k, &entries(&k, &u)).unwrap();
                        continue;
                    }
                    let payload = match seed % 2 {
                        0 => payload_of(&mut s, &t, &[value_of(n, 20_000)], b""),
                        _ => payload_of(&mut s, &t, &[], &value_of(n, 7_000)),
                    };
                    let dup = &mut DupInfo::default();
                    s.insert_row(&t, Some(&k), &payload, &entries(&k, &u), false, dup)
                        .unwrap();
                }
                s.commit(false).unwrap();
            }
            is_there.iter().filter(|there| **there).count()
        }
    };
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| thread::spawn("writes", work(n)))
        .collect();
    let rows: usize = writers.into_iter().map(|w| w.join().unwrap()).sum();
    settle(&engine);
    let mut cursor = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
    let mut found = usize::from(cursor.first(&mut s).is_ok());
    while cursor.next(&mut s).is_ok() {
        found += 1;
    }
    assert_eq!(found, rows, "rows");
    s.commit(false).unwrap();
    drop(cursor);
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}
