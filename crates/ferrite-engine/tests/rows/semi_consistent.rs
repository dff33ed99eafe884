//! Semi-consistent reads, and which locks a scan gives back: what an UPDATE at READ COMMITTED sees
//! of rows that others have locked, and whom it waits for.

use crate::common::{self, check, database, delete, insert, key, open, update};
use ferrite_engine::{
    Cursor, Engine, Entry, Isolation, ReadMode, RowChange, SeekMode, Session, Table, WaitMode, Xid,
};
use ferrite_lock::LockTable;
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};

const ROWS: [u64; 5] = [10, 20, 30, 40, 50];

/// A database with `ROWS`, each with the text "old".
fn filled(seed: u64) -> (ferrite_io::sim::SimStorage, Arc<Engine>, Arc<Table>) {
    let (disk, engine, t, mut s) = database(seed);
    for n in ROWS {
        insert(&mut s, &t, n, b"old").unwrap();
    }
    s.commit(false).unwrap();
    (disk, engine, t)
}

fn session(engine: &Arc<Engine>, level: Isolation) -> Session {
    let mut s = Session::new(engine, 0, 7);
    s.set_lock_wait_timeout_ms(0);
    s.begin_statement(level);
    s
}

fn semi_cursor(t: &Arc<Table>, index_no: usize) -> Cursor {
    let mut cursor = Cursor::new(t, index_no, ReadMode::Exclusive, WaitMode::Wait);
    cursor.try_semi_consistent(true);
    cursor
}

/// What a scan delivers: the row's number, its text, and whether it is only the committed state.
type Seen = (u64, Vec<u8>, bool);

fn seen(cursor: &Cursor) -> Seen {
    let row = cursor.current().unwrap();
    let n = u64::from_be_bytes(row.pk.try_into().unwrap());
    (n, row.payload[1..].to_vec(), cursor.was_semi_consistent())
}

/// A scan of an UPDATE of which no row matches.
fn scan(s: &mut Session, t: &Arc<Table>, backward: bool) -> Result<Vec<Seen>> {
    let mut cursor = semi_cursor(t, 0);
    let mut rows = Vec::new();
    let mut more = match backward {
        true => cursor.last(s).map(|_| ()),
        false => cursor.first(s).map(|_| ()),
    };
    while more.is_ok() {
        rows.push(seen(&cursor));
        cursor.unlock_row(s);
        more = match backward {
            true => cursor.prev(s).map(|_| ()),
            false => cursor.next(s).map(|_| ()),
        };
    }
    match more {
        Err(Error::NotFound) => Ok(rows),
        other => other.map(|()| rows),
    }
}

fn locks_of(engine: &Engine) -> usize {
    let locks: &LockTable = engine.locks();
    locks.stats().keys as usize
}

#[test]
fn a_scan_sees_the_committed_state_of_locked_rows() {
    let (_disk, engine, t) = filled(171);
    let mut writer = Session::new(&engine, 0, 2);
    writer.begin_statement(Isolation::ReadCommitted);
    update(&mut writer, &t, 10, b"old", b"new").unwrap();
    update(&mut writer, &t, 10, b"new", b"newer").unwrap();
    delete(&mut writer, &t, 20, b"old").unwrap();
    insert(&mut writer, &t, 25, b"new").unwrap();
    delete(&mut writer, &t, 50, b"old").unwrap();
    insert(&mut writer, &t, 50, b"again").unwrap();
    let old = |n, semi| (n, b"old".to_vec(), semi);
    let expected = [
        old(10, true),
        old(20, true),
        old(30, false),
        old(40, false),
        old(50, true),
    ];
    for level in [Isolation::ReadUncommitted, Isolation::ReadCommitted] {
        for backward in [false, true] {
            let mut s = session(&engine, level);
            let mut rows = scan(&mut s, &t, backward).unwrap();
            if backward {
                rows.reverse();
            }
            assert_eq!(rows, expected, "{level:?} backward {backward}");
            assert!(!s.is_active(), "nothing stays locked");
        }
    }
    let mut s = session(&engine, Isolation::RepeatableRead);
    assert_eq!(scan(&mut s, &t, false), Err(Error::LockTimeout));
    s.rollback().unwrap();
    writer.rollback().unwrap();
    assert_eq!(locks_of(&engine), 0);
    check(&engine, &t);
    engine.close().unwrap();
}

/// Newer than the statement's own snapshot: what was committed last counts.
#[test]
fn the_newest_committed_state_counts() {
    let (_disk, engine, t) = filled(172);
    let mut s = session(&engine, Isolation::ReadCommitted);
    s.open_snapshot();
    let mut other = Session::new(&engine, 0, 2);
    other.begin_statement(Isolation::ReadCommitted);
    update(&mut other, &t, 30, b"old", b"committed").unwrap();
    delete(&mut other, &t, 40, b"old").unwrap();
    other.commit(false).unwrap();
    other.begin_statement(Isolation::ReadCommitted);
    update(&mut other, &t, 30, b"committed", b"open").unwrap();
    insert(&mut other, &t, 40, b"open").unwrap();
    let rows = scan(&mut s, &t, false).unwrap();
    assert_eq!(rows[2], (30, b"committed".to_vec(), true));
    assert_eq!(
        rows.iter().map(|r| r.0).collect::<Vec<_>>(),
        [10, 20, 30, 50]
    );
    other.rollback().unwrap();
    drop(s);
    engine.close().unwrap();
}

/// A row that matches is asked for again, and waited for.
#[test]
fn a_row_that_matches_is_waited_for() {
    let (_disk, engine, t) = filled(173);
    let mut writer = Session::new(&engine, 0, 2);
    writer.begin_statement(Isolation::ReadCommitted);
    update(&mut writer, &t, 20, b"old", b"new").unwrap();
    for backward in [false, true] {
        let mut s = session(&engine, Isolation::ReadCommitted);
        let mut cursor = semi_cursor(&t, 0);
        let step = |cursor: &mut Cursor, s: &mut Session| match backward {
            true => cursor.prev(s).map(|_| ()),
            false => cursor.next(s).map(|_| ()),
        };
        cursor
            .seek(
                &mut s,
                &key(20),
                if backward {
                    SeekMode::AtOrBefore
                } else {
                    SeekMode::AtOrAfter
                },
                false,
            )
            .unwrap();
        assert_eq!(seen(&cursor), (20, b"old".to_vec(), true));
        assert_eq!(step(&mut cursor, &mut s), Err(Error::LockTimeout));
        s.rollback().unwrap();
    }
    // Once the writer has ended, the same call delivers the row as it is now, locked.
    let mut s = session(&engine, Isolation::ReadCommitted);
    let mut cursor = semi_cursor(&t, 0);
    cursor
        .seek(&mut s, &key(20), SeekMode::AtOrAfter, false)
        .unwrap();
    assert!(cursor.was_semi_consistent());
    writer.commit(false).unwrap();
    cursor.next(&mut s).unwrap();
    assert_eq!(seen(&cursor), (20, b"new".to_vec(), false));
    let mut third = session(&engine, Isolation::ReadCommitted);
    assert_eq!(
        update(&mut third, &t, 20, b"new", b"x"),
        Err(Error::LockTimeout)
    );
    third.rollback().unwrap();
    // A row that is gone by then is passed over, and the next one is read without waiting.
    writer.begin_statement(Isolation::ReadCommitted);
    delete(&mut writer, &t, 30, b"old").unwrap();
    cursor.next(&mut s).unwrap();
    assert_eq!(seen(&cursor), (30, b"old".to_vec(), true));
    writer.commit(false).unwrap();
    writer.begin_statement(Isolation::ReadCommitted);
    update(&mut writer, &t, 40, b"old", b"new").unwrap();
    cursor.next(&mut s).unwrap();
    assert_eq!(seen(&cursor), (40, b"old".to_vec(), true));
    // A row read by its key is not the one that was read without a lock.
    cursor.get(&mut s, &key(10)).unwrap();
    assert!(!cursor.was_semi_consistent());
    s.rollback().unwrap();
    writer.rollback().unwrap();
    engine.close().unwrap();
}

/// Searches for one row, secondary indexes, shared reads and those that skip wait or skip as ever.
#[test]
fn others_wait() {
    let (_disk, engine, t) = filled(174);
    let mut writer = Session::new(&engine, 0, 2);
    writer.begin_statement(Isolation::ReadCommitted);
    update(&mut writer, &t, 20, b"old", b"longer").unwrap();
    let mut s = session(&engine, Isolation::ReadCommitted);
    let mut cursor = semi_cursor(&t, 0);
    let got = cursor
        .seek(&mut s, &key(20), SeekMode::Exact, true)
        .map(|_| ());
    assert_eq!(got, Err(Error::LockTimeout), "the whole primary key");
    let mut cursor = semi_cursor(&t, 2);
    let got = cursor
        .seek(&mut s, &key(140), SeekMode::AtOrAfter, false)
        .map(|_| ());
    assert_eq!(got, Ok(()), "the entry itself is nobody's");
    assert_eq!(
        cursor.fetch_row(&mut s).map(|_| ()),
        Err(Error::LockTimeout)
    );
    let mut cursor = Cursor::new(&t, 0, ReadMode::Shared, WaitMode::Wait);
    cursor.try_semi_consistent(true);
    let got = cursor
        .seek(&mut s, &key(20), SeekMode::AtOrAfter, false)
        .map(|_| ());
    assert_eq!(got, Err(Error::LockTimeout), "shared");
    let mut cursor = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::SkipLocked);
    cursor.try_semi_consistent(true);
    cursor
        .seek(&mut s, &key(20), SeekMode::AtOrAfter, false)
        .unwrap();
    assert_eq!(seen(&cursor).0, 30, "skips");
    // And what was asked for ends with the statement.
    let mut cursor = semi_cursor(&t, 0);
    cursor.reset(ReadMode::Exclusive, WaitMode::Wait);
    let got = cursor
        .seek(&mut s, &key(20), SeekMode::AtOrAfter, false)
        .map(|_| ());
    assert_eq!(got, Err(Error::LockTimeout));
    s.rollback().unwrap();
    writer.rollback().unwrap();
    engine.close().unwrap();
}

/// A row that somebody has only read with a lock is as it stands.
#[test]
fn a_row_under_an_explicit_lock_is_read_as_it_is() {
    let (_disk, engine, t) = filled(175);
    let mut reader = session(&engine, Isolation::ReadCommitted);
    let mut cursor = Cursor::new(&t, 0, ReadMode::Shared, WaitMode::Wait);
    cursor
        .seek(&mut reader, &key(30), SeekMode::Exact, true)
        .unwrap();
    let mut s = session(&engine, Isolation::ReadCommitted);
    let rows = scan(&mut s, &t, false).unwrap();
    let semi: Vec<u64> = rows.iter().filter(|r| r.2).map(|r| r.0).collect();
    assert_eq!(semi, [30]);
    assert!(!s.is_active());
    assert_eq!(locks_of(&engine), 1, "the reader's");
    reader.rollback().unwrap();
    engine.close().unwrap();
}

/// Prepared transactions are not committed, before a restart and after it.
#[test]
fn prepared_rows_are_read_as_they_were() {
    let (disk, engine, t) = filled(176);
    let mut xa = Session::new(&engine, 0, 2);
    xa.begin_statement(Isolation::ReadCommitted);
    update(&mut xa, &t, 20, b"old", b"prepared").unwrap();
    insert(&mut xa, &t, 35, b"prepared").unwrap();
    delete(&mut xa, &t, 40, b"old").unwrap();
    let xid = Xid {
        format_id: 1,
        gtrid_len: 1,
        data: vec![7],
    };
    xa.prepare(&xid).unwrap();
    let expected: Vec<Seen> = ROWS
        .iter()
        .map(|n| (*n, b"old".to_vec(), *n == 20 || *n == 40))
        .collect();
    assert_eq!(
        scan(&mut session(&engine, Isolation::ReadCommitted), &t, false).unwrap(),
        expected
    );
    xa.detach_prepared();
    drop(xa);
    drop(t);
    common::give_up(&engine);
    drop(engine);
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    assert_eq!(
        scan(&mut session(&engine, Isolation::ReadCommitted), &t, true)
            .unwrap()
            .into_iter()
            .rev()
            .collect::<Vec<_>>(),
        expected
    );
    engine.rollback_by_xid(&xid).unwrap();
    let all: Vec<Seen> = expected
        .into_iter()
        .map(|(n, text, _)| (n, text, false))
        .collect();
    assert_eq!(
        scan(&mut session(&engine, Isolation::ReadCommitted), &t, false).unwrap(),
        all
    );
    engine.close().unwrap();
}

/// `unlock_row` gives back what this read has locked, never what was locked before it.
#[test]
fn a_lock_held_before_stays() {
    let (_disk, engine, t) = filled(177);
    let mut s = session(&engine, Isolation::ReadCommitted);
    let mut cursor = semi_cursor(&t, 0);
    cursor
        .seek(&mut s, &key(20), SeekMode::Exact, true)
        .unwrap();
    update(&mut s, &t, 30, b"old", b"mine").unwrap();
    let before = locks_of(&engine);
    assert_eq!(scan(&mut s, &t, false).unwrap().len(), ROWS.len());
    assert_eq!(
        locks_of(&engine),
        before,
        "new ones were given back, no other"
    );
    let mut other = session(&engine, Isolation::ReadCommitted);
    for (n, text) in [(20, &b"old"[..]), (30, b"mine")] {
        assert_eq!(
            update(&mut other, &t, n, text, b"x"),
            Err(Error::LockTimeout),
            "{n}"
        );
    }
    update(&mut other, &t, 40, b"old", b"x").unwrap();
    other.rollback().unwrap();
    // A row read by its key is given back likewise, and not the one the scan stands on.
    cursor
        .seek(&mut s, &key(10), SeekMode::AtOrAfter, false)
        .unwrap();
    cursor.get(&mut s, &key(50)).unwrap();
    cursor.unlock_row(&mut s);
    update(&mut other, &t, 50, b"old", b"x").unwrap();
    assert_eq!(
        update(&mut other, &t, 10, b"old", b"x"),
        Err(Error::LockTimeout)
    );
    other.rollback().unwrap();
    s.rollback().unwrap();
    assert_eq!(locks_of(&engine), 0);
    engine.close().unwrap();
}

/// "The next one of that key": the first that has another key stays free, the gap before it not.
#[test]
fn the_entry_behind_the_last_match_is_not_locked() {
    let (_disk, engine, t) = filled(178);
    let mut writer = session(&engine, Isolation::RepeatableRead);
    insert(&mut writer, &t, 60, b"longer").unwrap();
    writer.commit(false).unwrap();
    writer.begin_statement(Isolation::RepeatableRead);
    delete(&mut writer, &t, 60, b"longer").unwrap();
    for level in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        let mut s = session(&engine, level);
        let mut cursor = Cursor::new(&t, 1, ReadMode::Exclusive, WaitMode::Wait);
        let k = key(3);
        cursor.seek(&mut s, &k, SeekMode::Exact, false).unwrap();
        for _ in 1..ROWS.len() {
            cursor.next_same(&mut s, &k).unwrap();
        }
        assert_eq!(
            cursor.next_same(&mut s, &k).map(|_| ()),
            Err(Error::NotFound),
            "{level:?}"
        );
        let mut other = session(&engine, Isolation::RepeatableRead);
        let got = insert(&mut other, &t, 55, b"old");
        let closed = level == Isolation::RepeatableRead;
        assert_eq!(
            got,
            if closed {
                Err(Error::LockTimeout)
            } else {
                Ok(())
            }
        );
        other.rollback().unwrap();
        s.rollback().unwrap();
    }
    writer.rollback().unwrap();
    engine.close().unwrap();
}

fn insert_u(s: &mut Session, t: &Arc<Table>, n: u64, u: u64) -> Result<()> {
    let (k, u) = (key(3), key(u));
    let entries: [Entry<'_>; 2] = common::entries(&k, &u);
    let mut dup = ferrite_engine::DupInfo::default();
    s.insert_row(t, Some(&key(n)), b"\0old", &entries, false, &mut dup)
        .map(|_| ())
}

/// Whoever meets a row in the way of a key locks it shared: others may do so, too.
#[test]
fn duplicates_are_told_beside_shared_locks() {
    let (_disk, engine, t) = filled(179);
    let mut one = session(&engine, Isolation::ReadCommitted);
    let mut two = session(&engine, Isolation::ReadCommitted);
    for s in [&mut one, &mut two] {
        assert_eq!(
            insert(s, &t, 30, b"x"),
            Err(Error::Duplicate),
            "primary key"
        );
        assert_eq!(
            insert_u(s, &t, 31, 280),
            Err(Error::Duplicate),
            "unique key"
        );
    }
    let mut three = session(&engine, Isolation::ReadCommitted);
    assert_eq!(
        update(&mut three, &t, 30, b"old", b"x"),
        Err(Error::LockTimeout)
    );
    three.rollback().unwrap();
    one.rollback().unwrap();
    two.rollback().unwrap();
    engine.close().unwrap();
}

/// A unique value is locked only until its entry is there; a duplicate leaves no lock on it.
#[test]
fn a_unique_value_is_not_kept_locked() {
    let (_disk, engine, t) = filled(180);
    let mut one = session(&engine, Isolation::ReadCommitted);
    insert_u(&mut one, &t, 31, 5).unwrap();
    assert_eq!(locks_of(&engine), 0);
    let mut two = session(&engine, Isolation::ReadCommitted);
    assert_eq!(insert_u(&mut two, &t, 32, 5), Err(Error::LockTimeout));
    two.rollback().unwrap();
    // Deleted by the same transaction: it may come back, so the value is still taken.
    one.delete_row(&t, &key(31), &common::entries(&key(3), &key(5)))
        .unwrap();
    assert_eq!(insert_u(&mut two, &t, 32, 5), Err(Error::LockTimeout));
    two.rollback().unwrap();
    one.rollback().unwrap();
    insert_u(&mut two, &t, 32, 5).unwrap();
    assert_eq!(insert_u(&mut one, &t, 33, 350), Err(Error::Duplicate));
    one.rollback().unwrap();
    two.commit(false).unwrap();
    assert_eq!(insert_u(&mut one, &t, 34, 5), Err(Error::Duplicate));
    one.rollback().unwrap();
    assert_eq!(locks_of(&engine), 0);
    check(&engine, &t);
    engine.close().unwrap();
}

/// What a transaction has written itself needs no lock of its own; with the entry it goes, and
/// leaves none behind.
#[test]
fn own_rows_need_no_lock() {
    let (_disk, engine, t) = filled(181);
    let mut s = session(&engine, Isolation::RepeatableRead);
    insert(&mut s, &t, 60, b"mine").unwrap();
    let before = s.undo_position();
    insert(&mut s, &t, 70, b"mine").unwrap();
    assert_eq!(insert(&mut s, &t, 70, b"x"), Err(Error::Duplicate));
    let mut cursor = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
    cursor
        .seek(&mut s, &key(70), SeekMode::Exact, true)
        .unwrap();
    let mut cursor = Cursor::new(&t, 2, ReadMode::Shared, WaitMode::Wait);
    cursor
        .seek(&mut s, &key(490), SeekMode::Exact, true)
        .unwrap();
    cursor.fetch_row(&mut s).unwrap();
    assert_eq!(locks_of(&engine), 0);
    s.rollback_to(before).unwrap();
    let mut other = session(&engine, Isolation::RepeatableRead);
    insert(&mut other, &t, 70, b"x").unwrap();
    assert_eq!(insert(&mut other, &t, 60, b"x"), Err(Error::LockTimeout));
    other.rollback().unwrap();
    s.rollback().unwrap();
    engine.close().unwrap();
}

/// A value out of line of a state that was delivered without a lock may be freed before it is read:
/// that is no corruption, the row is looked at again.
#[test]
fn a_value_that_went_with_the_state_is_not_there() {
    let (_disk, engine, t, mut s) = database(188);
    let value = s.write_overflow(&t, &[7; 2000]).unwrap();
    let with_value = [&[1u8][..], value.bytes()].concat();
    let none = &mut Default::default();
    s.insert_row(&t, Some(&key(10)), &with_value, &[], false, none)
        .unwrap();
    s.commit(false).unwrap();
    s.begin_statement(Isolation::ReadCommitted);
    s.update_row(
        &t,
        &RowChange {
            old_pk: &key(10),
            new_pk: &key(10),
            payload: b"\0",
            removed: &[],
            added: &[],
        },
        none,
    )
    .unwrap();
    let mut scanner = session(&engine, Isolation::ReadCommitted);
    let mut cursor = semi_cursor(&t, 0);
    cursor.first(&mut scanner).unwrap();
    assert!(cursor.was_semi_consistent());
    s.commit(false).unwrap();
    while engine.check_values().unwrap().pages > 0 {
        ferrite_sync::thread::sleep_ms(1);
    }
    let read = scanner.read_value(&value, &mut [0; 2000]);
    assert!(matches!(read, Err(Error::ValueGone(_))), "{read:?}");
}

/// A shared lock that a scan has made an exclusive one is a shared one again.
#[test]
fn a_shared_lock_stays_shared() {
    let (_disk, engine, t) = filled(182);
    let mut s = session(&engine, Isolation::ReadCommitted);
    let mut cursor = Cursor::new(&t, 0, ReadMode::Shared, WaitMode::Wait);
    cursor
        .seek(&mut s, &key(30), SeekMode::Exact, true)
        .unwrap();
    assert_eq!(scan(&mut s, &t, false).unwrap().len(), ROWS.len());
    let mut other = session(&engine, Isolation::ReadCommitted);
    let mut cursor = Cursor::new(&t, 0, ReadMode::Shared, WaitMode::Wait);
    let got = cursor.seek(&mut other, &key(30), SeekMode::Exact, true);
    assert_eq!(got.map(|_| ()), Ok(()), "shared goes with shared");
    other.rollback().unwrap();
    let got = update(&mut other, &t, 30, b"old", b"x");
    assert_eq!(got, Err(Error::LockTimeout));
    other.rollback().unwrap();
    s.rollback().unwrap();
    assert_eq!(locks_of(&engine), 0);
    engine.close().unwrap();
}

/// Who waits for a gap before it can bring a unique value does not keep others from bringing it.
#[test]
fn a_unique_value_is_not_locked_while_its_gap_is_waited_for() {
    let (_disk, engine, t) = filled(183);
    let mut one = session(&engine, Isolation::RepeatableRead);
    let mut cursor = Cursor::new(&t, 2, ReadMode::Exclusive, WaitMode::Wait);
    let none = cursor.seek(&mut one, &key(5), SeekMode::Exact, true);
    assert_eq!(none.map(|_| ()), Err(Error::NotFound));
    let (other_engine, other_table) = (engine.clone(), t.clone());
    let two = ferrite_sync::thread::spawn("two", move || {
        let mut s = session(&other_engine, Isolation::RepeatableRead);
        s.set_lock_wait_timeout_ms(60_000);
        let got = insert_u(&mut s, &other_table, 31, 5);
        s.rollback().unwrap();
        got
    });
    common::wait_until("the wait", || engine.locks().stats().waiting > 0);
    insert_u(&mut one, &t, 32, 5).unwrap();
    one.commit(false).unwrap();
    assert_eq!(two.join().unwrap(), Err(Error::Duplicate));
    check(&engine, &t);
    engine.close().unwrap();
}
