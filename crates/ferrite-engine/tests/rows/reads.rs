//! What readers see, and what they lock: snapshots, delete_archive, cursors, ranges.

use crate::common::{
    check, database, delete, give_up, insert, key, metric, open, scan, scan_back, update,
    wait_until,
};
use ferrite_engine::{
    Cursor, DupInfo, Isolation, ReadMode, RowChange, SeekMode, Session, WaitMode,
};
use ferrite_sync::random::Rng;
use ferrite_types::Error;
use std::collections::BTreeMap;

#[test]
fn snapshots_read_what_they_saw() {
    let (_disk, engine, t, mut w) = database(2);
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut rng = Rng::new(7);
    let mut old: Vec<(Session, BTreeMap<u64, Vec<u8>>)> = Vec::new();
    for round in 0..40 {
        for _ in 0..60 {
            let n = rng.below(200);
            let text = vec![b'x'; rng.below(300) as usize];
            match model.get(&n).cloned() {
                None => {
                    insert(&mut w, &t, n, &text).unwrap();
                    model.insert(n, text);
                }
                Some(was) if rng.chance(1, 3) => {
                    delete(&mut w, &t, n, &was).unwrap();
                    model.remove(&n);
                }
                Some(was) if was.len() != text.len() => {
                    update(&mut w, &t, n, &was, &text).unwrap();
                    model.insert(n, text);
                }
                Some(_) => {}
            }
            if rng.chance(1, 4) {
                w.commit(false).unwrap();
            }
        }
        w.commit(false).unwrap();
        let mut s = Session::new(&engine, 0, 100 + round);
        s.open_snapshot();
        old.push((s, model.clone()));
        if old.len() > 6 {
            let at = rng.below(old.len() as u64) as usize;
            let (mut s, seen) = old.swap_remove(at);
            for index_no in 0..3 {
                assert_eq!(
                    scan(&mut s, &t, index_no),
                    seen,
                    "round {round} index {index_no}"
                );
            }
        }
    }
    for (mut s, seen) in old {
        assert_eq!(scan(&mut s, &t, 1), seen);
    }
    drop(w);
    check(&engine, &t);
    engine.close().unwrap();
}

/// The row this transaction sees is its own although the snapshot is older than the entry.
#[test]
fn entries_belong_to_the_row_that_is_seen() {
    let (_disk, engine, t, mut other) = database(6);
    insert(&mut other, &t, 6, b"six").unwrap();
    insert(&mut other, &t, 7, b"sev").unwrap();
    other.commit(false).unwrap();
    let mut s = Session::new(&engine, 0, 2);
    s.open_snapshot();
    update(&mut other, &t, 6, b"six", b"longer").unwrap();
    other.commit(false).unwrap();
    let payload = b"\0LONGER";
    let mut dup = DupInfo::default();
    s.update_row(
        &t,
        &RowChange {
            old_pk: &key(6),
            new_pk: &key(6),
            payload,
            removed: &[],
            added: &[],
        },
        &mut dup,
    )
    .unwrap();
    let expected = BTreeMap::from([(6, b"LONGER".to_vec()), (7, b"sev".to_vec())]);
    assert_eq!(scan(&mut s, &t, 1), expected);
    assert_eq!(scan(&mut s, &t, 0), expected);
    let mut c = Cursor::new(&t, 1, ReadMode::Snapshot, WaitMode::Wait);
    let row = c.seek(&mut s, &key(6), SeekMode::Exact, false).unwrap();
    assert_eq!(row.pk, key(6));
    s.rollback().unwrap();
    drop((s, other));
    engine.close().unwrap();
}

#[test]
fn cursors_seek_and_turn() {
    let (_disk, engine, t, mut s) = database(5);
    for n in (0..2000).step_by(2) {
        insert(&mut s, &t, n, b"v").unwrap();
    }
    s.commit(false).unwrap();
    let number = |row: ferrite_engine::Row<'_>| u64::from_be_bytes(row.pk.try_into().unwrap());
    for mode in [ReadMode::Snapshot, ReadMode::Shared, ReadMode::Exclusive] {
        let mut c = Cursor::new(&t, 0, mode, WaitMode::Wait);
        let mut seek = |k: u64, m| c.seek(&mut s, &key(k), m, false).map(number);
        assert_eq!(seek(100, SeekMode::Exact), Ok(100));
        assert_eq!(seek(101, SeekMode::Exact), Err(Error::NotFound));
        assert_eq!(seek(101, SeekMode::AtOrAfter), Ok(102));
        assert_eq!(seek(100, SeekMode::After), Ok(102));
        assert_eq!(seek(101, SeekMode::AtOrBefore), Ok(100));
        assert_eq!(seek(100, SeekMode::AtOrBefore), Ok(100));
        assert_eq!(seek(100, SeekMode::Before), Ok(98));
        assert_eq!(seek(0, SeekMode::Before), Err(Error::NotFound));
        assert_eq!(seek(1998, SeekMode::After), Err(Error::NotFound));
        assert_eq!(seek(1000, SeekMode::LastExact), Ok(1000));
        assert_eq!(c.next(&mut s).map(number), Ok(1002));
        assert_eq!(c.next(&mut s).map(number), Ok(1004));
        assert_eq!(c.prev(&mut s).map(number), Ok(1002));
        assert_eq!(c.prev(&mut s).map(number), Ok(1000));
        assert_eq!(c.next(&mut s).map(number), Ok(1002));
        assert_eq!(c.last(&mut s).map(number), Ok(1998));
        let mut n = 1998;
        while let Ok(row) = c.prev(&mut s) {
            n -= 2;
            assert_eq!(number(row), n);
        }
        assert_eq!(n, 0);
        s.rollback().unwrap();
    }
    drop(s);
    engine.close().unwrap();
}

/// What old snapshots alone need moves out of the tree, and they go on reading it.
#[test]
fn old_snapshots_read_the_delete_archive() {
    let (_disk, engine, t, mut w) = database(13);
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut rng = Rng::new(13);
    for n in 0..600 {
        let text = vec![b'a'; rng.below(60) as usize];
        insert(&mut w, &t, n, &text).unwrap();
        model.insert(n, text);
    }
    w.commit(false).unwrap();
    let mut old: Vec<(Session, BTreeMap<u64, Vec<u8>>)> = Vec::new();
    for round in 0..6 {
        let mut s = Session::new(&engine, 0, 10 + round);
        s.open_snapshot();
        old.push((s, model.clone()));
        for _ in 0..700 {
            let n = rng.below(600);
            match model.remove(&n) {
                Some(was) => delete(&mut w, &t, n, &was).unwrap(),
                None => {
                    let text = vec![b'b'; rng.below(60) as usize];
                    insert(&mut w, &t, n, &text).unwrap();
                    model.insert(n, text);
                }
            }
            if rng.chance(1, 5) {
                w.commit(false).unwrap();
            }
        }
        w.commit(false).unwrap();
        wait_until("the end of cleaning up", || {
            metric(&engine, "history_list_length") == 0
        });
        for (s, seen) in &mut old {
            for index_no in 0..3 {
                assert_eq!(
                    scan(s, &t, index_no),
                    *seen,
                    "round {round} index {index_no}"
                );
                assert_eq!(
                    scan_back(s, &t, index_no),
                    *seen,
                    "round {round} index {index_no}"
                );
            }
            let mut c = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
            for n in 0..600 {
                let row = c.get(s, &key(n)).map(|row| row.payload[1..].to_vec());
                assert_eq!(row.ok(), seen.get(&n).cloned(), "row {n}");
            }
        }
        let mut now = Session::new(&engine, 0, 99);
        assert_eq!(scan(&mut now, &t, 2), model);
    }
    let archived = metric(&engine, "delete_archive_entries");
    assert!(archived > 100);
    let held: u64 = engine.snapshot_rows().iter().map(|row| row.held_rows).sum();
    assert!(held >= archived, "{held} of {archived} are said to be held");
    let leaves = t.index_pages(0);
    assert!(leaves < 12, "{leaves} pages for 600 rows");
    drop(old);
    wait_until("an empty delete archive", || {
        metric(&engine, "delete_archive_entries") == 0
    });
    drop(w);
    check(&engine, &t);
    engine.close().unwrap();
}

/// A row that another deleted after the snapshot, and that this transaction has brought anew: it
/// sees its own, not the archived entry.
/// Cleaning up that is held back shows how far it is behind, and catches up.
#[test]
fn held_back_cleaning_up_is_told_and_done_later() {
    let (_disk, engine, t, mut s) = database(14);
    for n in 0..200 {
        insert(&mut s, &t, n, b"row").unwrap();
    }
    s.commit(false).unwrap();
    engine.set("purge_paused", 1).unwrap();
    for n in 0..100 {
        delete(&mut s, &t, n, b"row").unwrap();
        s.commit(false).unwrap();
    }
    wait_until("a lag of 100 ms", || metric(&engine, "purge_lag") >= 100);
    assert!(metric(&engine, "history_list_length") >= 100);
    engine.set("purge_paused", 0).unwrap();
    wait_until("the end of cleaning up", || {
        metric(&engine, "history_list_length") == 0
    });
    assert_eq!(metric(&engine, "purge_lag"), 0);
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn a_row_brought_anew_hides_its_archived_state() {
    let (_disk, engine, t, mut other) = database(15);
    insert(&mut other, &t, 1, b"old").unwrap();
    insert(&mut other, &t, 2, b"stays").unwrap();
    other.commit(false).unwrap();
    let mut s = Session::new(&engine, 0, 2);
    s.open_snapshot();
    delete(&mut other, &t, 1, b"old").unwrap();
    other.commit(false).unwrap();
    wait_until("the burial", || {
        metric(&engine, "delete_archive_entries") == 3
    });
    let stays = (2, b"stays".to_vec());
    let seen_as = |s: &mut Session, first: Option<&[u8]>| {
        let mut expected = BTreeMap::from([stays.clone()]);
        expected.extend(first.map(|text| (1, text.to_vec())));
        for index_no in 0..3 {
            assert_eq!(scan(s, &t, index_no), expected, "index {index_no}");
            assert_eq!(scan_back(s, &t, index_no), expected, "index {index_no}");
        }
        let mut c = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
        let row = c.get(s, &key(1)).map(|row| row.payload[1..].to_vec());
        assert_eq!(row.ok().as_deref(), first);
    };
    seen_as(&mut s, Some(b"old"));
    let save = s.undo_position();
    insert(&mut s, &t, 1, b"anew!").unwrap();
    seen_as(&mut s, Some(b"anew!"));
    delete(&mut s, &t, 1, b"anew!").unwrap();
    seen_as(&mut s, None);
    s.rollback_to(save).unwrap();
    seen_as(&mut s, Some(b"old"));
    s.rollback().unwrap();
    drop((s, other));
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn a_filled_table_is_like_any_other() {
    let (disk, engine, t, mut s) = database(12);
    let mut model = BTreeMap::new();
    s.begin_load(&t);
    for n in 0..4000u64 {
        let n = n * 7919 % 4001;
        let text = vec![b'r'; (n % 90) as usize];
        insert(&mut s, &t, n, &text).unwrap();
        model.insert(n, text);
    }
    let again = model.keys().next().copied().unwrap();
    assert_eq!(insert(&mut s, &t, again, b"twice"), Err(Error::Duplicate));
    assert!(!s.has_changes());
    s.end_load(&t).unwrap();
    check(&engine, &t);
    disk.crash(&mut Rng::new(3));
    std::mem::forget(s);
    give_up(&engine);
    drop((t, engine));
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    for index_no in 0..3 {
        assert_eq!(scan(&mut s, &t, index_no), model, "index {index_no}");
    }
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// A leaf that is filled to the last byte is split by the first stamp that one of its rows gets.
#[test]
fn a_filled_table_has_room_for_marks() {
    let (_disk, engine, t, mut s) = database(31);
    s.begin_load(&t);
    for n in 0..6000u64 {
        insert(&mut s, &t, n, &[b'r'; 90]).unwrap();
    }
    s.end_load(&t).unwrap();
    let filled = t.index_pages(0);
    assert!(filled > 30, "{filled} pages");
    for n in (0..6000).step_by(2) {
        delete(&mut s, &t, n, &[b'r'; 90]).unwrap();
    }
    assert_eq!(
        t.index_pages(0),
        filled,
        "leaves were split for delete marks"
    );
    s.rollback().unwrap();
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// Changes in the order of keys and at random, by two sessions whose hints get old: rows are found where they are.
#[test]
fn rows_are_found_whatever_was_changed_last() {
    let (_disk, engine, t, mut s) = database(37);
    let mut rng = Rng::new(5);
    let mut model = BTreeMap::new();
    for n in 0..3000u64 {
        insert(&mut s, &t, n, b"row").unwrap();
        model.insert(n, b"row".to_vec());
    }
    s.commit(false).unwrap();
    let mut other = Session::new(&engine, 0, 2);
    for round in 0..400u64 {
        let session = if round % 3 == 0 { &mut other } else { &mut s };
        let (from, length) = (rng.below(3000), rng.below(40));
        for n in from..from + length {
            let text = vec![b'a' + (round % 26) as u8; rng.below(300) as usize];
            match model.get(&n).cloned() {
                Some(old) if rng.below(4) == 0 => {
                    delete(session, &t, n, &old).unwrap();
                    model.remove(&n);
                }
                Some(old) => {
                    update(session, &t, n, &old, &text).unwrap();
                    model.insert(n, text);
                }
                None => {
                    insert(session, &t, n, &text).unwrap();
                    model.insert(n, text);
                }
            }
        }
        session.commit(false).unwrap();
    }
    for index_no in 0..3 {
        assert_eq!(scan(&mut s, &t, index_no), model, "index {index_no}");
    }
    drop((s, other));
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn a_long_locking_scan_holds_few_locks_and_all_its_rows() {
    let (_disk, engine, t, mut s) = database(31);
    for n in 1..=3000 {
        insert(&mut s, &t, 2 * n, b"row").unwrap();
    }
    s.commit(false).unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    let mut c = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
    c.seek(&mut s, &key(999), SeekMode::AtOrAfter, false)
        .unwrap();
    for _ in 0..2000 {
        c.next(&mut s).unwrap();
    }
    let locks = engine.locks().stats();
    assert!(locks.keys < 100 && locks.bytes < 100 << 10, "{locks:?}");
    let mut other = Session::new(&engine, 0, 2);
    other.set_lock_wait_timeout_ms(1);
    for n in [1000, 1002, 2000, 4998, 5000] {
        let changed = update(&mut other, &t, n, b"row", b"other");
        assert_eq!(changed, Err(Error::LockTimeout), "row {n}");
        let inserted = insert(&mut other, &t, n - 1, b"row");
        assert_eq!(inserted, Err(Error::LockTimeout), "before row {n}");
    }
    insert(&mut other, &t, 5001, b"row").unwrap();
    update(&mut other, &t, 998, b"row", b"other").unwrap();
    other.rollback().unwrap();
    // Its own rows come and go in the range.
    insert(&mut s, &t, 3001, b"new").unwrap();
    delete(&mut s, &t, 3002, b"row").unwrap();
    let inserted = insert(&mut other, &t, 3003, b"row");
    assert_eq!(inserted, Err(Error::LockTimeout));
    s.commit(false).unwrap();
    update(&mut other, &t, 2000, b"row", b"other").unwrap();
    insert(&mut other, &t, 3003, b"row").unwrap();
    other.commit(false).unwrap();
    let locks = engine.locks().stats();
    assert_eq!((locks.keys, locks.bytes), (0, 0), "{locks:?}");
    check(&engine, &t);
}

/// Statistics from few leaves are only as good as the leaves' spread: duplicates lie together.
#[test]
fn a_sample_has_a_leaf_of_every_part_of_the_index() {
    const ROWS: u64 = 12_000;
    const PARTS: u64 = 20;
    let (_disk, engine, t, mut s) = database(31);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &[b'x'; 60]).unwrap();
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
    }
    for _ in 0..30 {
        let mut seen = Vec::new();
        let visited = t.tree(0).sample(PARTS as u32, &mut |k, first| {
            if first {
                seen.push(u64::from_be_bytes(k[..8].try_into().unwrap()));
            }
        });
        assert_eq!((visited, seen.len()), (Ok(PARTS as u32), PARTS as usize));
        for (part, n) in seen.iter().enumerate() {
            let place = n * PARTS / ROWS;
            let part = part as u64;
            assert!(
                place + 2 >= part && place <= part + 2,
                "leaf {part} of the sample begins at row {n} of {ROWS}"
            );
        }
    }
    give_up(&engine);
}

/// A plan is chosen by these: a range that ends behind the last, nearly empty leaf once counted as
/// one row.
#[test]
fn a_range_is_estimated_alike_wherever_it_lies() {
    const ROWS: u64 = 12_000;
    let (_disk, engine, t, mut s) = database(32);
    let close = |low: u64, high: Option<u64>, rows: u64| {
        let bound = high.map(u64::to_be_bytes);
        let bound = bound.as_ref().map(<[u8; 8]>::as_slice);
        let estimate = t.tree(0).records_in_range(&low.to_be_bytes(), bound);
        let estimate = estimate.unwrap();
        assert!(
            estimate * 3 > rows * 2 && estimate * 2 < rows * 3,
            "{estimate} for the {rows} rows from {low} to {high:?}"
        );
    };
    for n in 0..ROWS {
        insert(&mut s, &t, n, &[b'x'; 60]).unwrap();
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
        if n > ROWS / 2 && n % 10 == 0 {
            close(n / 2, Some(u64::MAX), n - n / 2 + 1);
            close(n / 2, None, n - n / 2 + 1);
            close(n / 4, Some(n / 2), n / 2 - n / 4);
        }
    }
    for part in 0..10 {
        let (low, high) = (part * ROWS / 10, (part + 1) * ROWS / 10);
        close(low, Some(high), ROWS / 10);
        close(low, None, ROWS - low);
        close(0, Some(high), high);
    }
    give_up(&engine);
}
