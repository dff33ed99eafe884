//! Which gaps a locking scan closes: every direction, kind of bound, kind of index and place in
//! the tree, against a list of keys that knows what InnoDB locks.

use crate::common::{self, check, database, insert, key, update};
use ferrite_engine::{
    Config, Cursor, Engine, Isolation, ReadMode, SeekMode, Session, SilentCallbacks, Table,
    WaitMode,
};
use ferrite_io::sim::SimStorage;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::ops::Bound;

const INDEXES: usize = 3;

fn text(n: u64) -> Vec<u8> {
    vec![b'x'; n as usize]
}

/// The entry of row `n` in each index, as `common::insert` makes it.
fn entry(index_no: usize, n: u64) -> Vec<u8> {
    let pk = key(n);
    match index_no {
        0 => pk.to_vec(),
        1 => [key(n), pk].concat(),
        _ => [key(n * 7), pk].concat(),
    }
}

/// The value to seek for, so that it stands where row `n` does.
fn value(index_no: usize, n: u64) -> [u8; 8] {
    key(if index_no == 2 { n * 7 } else { n })
}

/// All keys between these.
type Gaps = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// How a scan begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    First,
    Last,
    Seek(SeekMode, u64),
}

/// One scan: from where, and how many steps (beyond the end if there are so many).
#[derive(Clone, Copy, Debug)]
struct Scan {
    index_no: usize,
    start: Start,
    steps: usize,
}

fn is_backward(mode: SeekMode) -> bool {
    use SeekMode::{AtOrBefore, Before, LastExact};
    matches!(mode, AtOrBefore | Before | LastExact)
}

/// The gaps that must be closed.
fn closed(scan: Scan, rows: &[u64]) -> Gaps {
    use Bound::{Excluded, Unbounded};
    let entries: Vec<Vec<u8>> = rows.iter().map(|n| entry(scan.index_no, *n)).collect();
    let below = |at: usize| {
        at.checked_sub(1)
            .map_or(Unbounded, |at| Excluded(entries[at].clone()))
    };
    let at_or_end = |at: usize| entries.get(at).map_or(Unbounded, |e| Excluded(e.clone()));
    let first_not_below = |n: u64| {
        let bound = value(scan.index_no, n);
        entries.partition_point(|e| e[..8] < bound[..])
    };
    let first_above = |n: u64| {
        let bound = value(scan.index_no, n);
        entries.partition_point(|e| e[..8] <= bound[..])
    };
    let (start, backward) = match scan.start {
        Start::First => (0, false),
        Start::Last => (entries.len(), true),
        Start::Seek(mode @ (SeekMode::Exact | SeekMode::AtOrAfter | SeekMode::Before), n) => {
            (first_not_below(n), is_backward(mode))
        }
        Start::Seek(mode, n) => (first_above(n), is_backward(mode)),
    };
    if backward {
        let mut reached = start.saturating_sub(scan.steps);
        if let Start::Seek(SeekMode::LastExact, n) = scan.start {
            // Nothing matches: nothing but the gap above is locked.
            if start == first_not_below(n) {
                reached = start;
            }
        }
        return (below(reached), at_or_end(start));
    }
    let mut reached = (start + scan.steps - 1).min(entries.len());
    let mut from = below(start);
    match scan.start {
        Start::Seek(SeekMode::Exact, n) if start == first_above(n) => reached = start,
        // InnoDB: "greater or equal than a primary key value".
        Start::Seek(SeekMode::AtOrAfter, n) if scan.index_no == 0 && start != first_above(n) => {
            from = Excluded(entries[start].clone());
        }
        _ => {}
    }
    (from, at_or_end(reached))
}

fn run(s: &mut Session, t: &Arc<Table>, scan: Scan, wait: WaitMode) {
    let mut cursor = Cursor::new(t, scan.index_no, ReadMode::Exclusive, wait);
    let mut found = match scan.start {
        Start::First => cursor.first(s).map(|_| ()),
        Start::Last => cursor.last(s).map(|_| ()),
        Start::Seek(mode, n) => {
            let value = value(scan.index_no, n);
            cursor.seek(s, &value, mode, false).map(|_| ())
        }
    };
    let backward = match scan.start {
        Start::First => false,
        Start::Last => true,
        Start::Seek(mode, _) => is_backward(mode),
    };
    for _ in 1..scan.steps {
        if found == Err(Error::NotFound) {
            break;
        }
        found.unwrap();
        found = match backward {
            true => cursor.prev(s).map(|_| ()),
            false => cursor.next(s).map(|_| ()),
        };
    }
    assert!(matches!(found, Ok(()) | Err(Error::NotFound)), "{scan:?}");
}

/// Tries to insert each of `probes` beside the scan and compares with what must be closed.
fn compare(engine: &Arc<Engine>, t: &Arc<Table>, scan: Scan, rows: &[u64], probes: &[u64]) {
    for (level, waits) in [
        (Isolation::RepeatableRead, WaitMode::Wait),
        (Isolation::ReadCommitted, WaitMode::NoWait),
    ] {
        let mut s = Session::new(engine, 0, 1);
        s.begin_statement(level);
        run(&mut s, t, scan, waits);
        let inside = match level {
            Isolation::RepeatableRead => Some(closed(scan, rows)),
            _ => None,
        };
        probe(engine, t, inside, probes, (scan, level));
        s.rollback().unwrap();
        let locks = engine.locks().stats();
        assert_eq!((locks.keys, locks.bytes), (0, 0), "after {scan:?}");
    }
}

/// Tries to insert each of `probes`: those with their entry inside must wait.
fn probe(
    engine: &Arc<Engine>,
    t: &Arc<Table>,
    inside: Option<Gaps>,
    probes: &[u64],
    what: (Scan, Isolation),
) {
    let mut other = Session::new(engine, 0, 2);
    other.set_lock_wait_timeout_ms(0);
    for n in probes {
        let probe = entry(what.0.index_no, *n);
        let blocks = inside
            .as_ref()
            .is_some_and(|inside| std::ops::RangeBounds::contains(inside, &probe));
        other.begin_statement(Isolation::RepeatableRead);
        let got = insert(&mut other, t, *n, &text(*n));
        let expected = if blocks {
            Err(Error::LockTimeout)
        } else {
            Ok(())
        };
        assert_eq!(got, expected, "insert of {n} beside {what:?}");
        other.rollback().unwrap();
    }
}

#[test]
fn a_locking_scan_closes_each_gap_it_has_passed() {
    let (_disk, engine, t, mut s) = database(71);
    let rows = [10, 20, 30, 40, 50];
    for n in rows {
        insert(&mut s, &t, n, &text(n)).unwrap();
    }
    s.commit(false).unwrap();
    let probes = [5, 15, 25, 35, 45, 55];
    use SeekMode::{After, AtOrAfter, AtOrBefore, Before, Exact, LastExact};
    for index_no in 0..INDEXES {
        for steps in [1, 2, 3, 9] {
            let mut starts = vec![Start::First, Start::Last];
            for mode in [Exact, AtOrAfter, After, AtOrBefore, Before, LastExact] {
                starts.extend([5, 10, 25, 30, 50, 55].map(|n| Start::Seek(mode, n)));
            }
            for start in starts {
                let scan = Scan {
                    index_no,
                    start,
                    steps,
                };
                compare(&engine, &t, scan, &rows, &probes);
            }
        }
    }
    check(&engine, &t);
    engine.close().unwrap();
}

/// Beginnings and ends of leaves: the entry above the start is on the next one.
#[test]
fn so_it_does_across_leaves() {
    let (_disk, engine, t, mut s) = database(72);
    let rows: Vec<u64> = (1..=400).map(|n| 10 * n).collect();
    for n in &rows {
        insert(&mut s, &t, *n, &text(*n)).unwrap();
    }
    s.commit(false).unwrap();
    for n in rows.iter().step_by(3).copied() {
        for mode in [SeekMode::Before, SeekMode::AtOrBefore, SeekMode::LastExact] {
            let scan = Scan {
                index_no: 0,
                start: Start::Seek(mode, n),
                steps: 1 + n as usize / 10 % 3,
            };
            let probes = [n - 5, n + 5].map(|n| n.max(1));
            compare(&engine, &t, scan, &rows, &probes);
        }
    }
    engine.close().unwrap();
}

/// A range takes over after the third entry, and takes in what was locked before: within a leaf,
/// and where the first of those stand on another.
#[test]
fn so_it_does_where_a_range_takes_over() {
    let disk = SimStorage::new(75);
    let config = Config {
        lock_fold_after: 3,
        ..common::config()
    };
    let engine = Engine::open(config, Arc::new(disk.boot()), Arc::new(SilentCallbacks)).unwrap();
    let t = common::create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let rows: Vec<u64> = (1..=400).map(|n| 10 * n).collect();
    for n in &rows {
        insert(&mut s, &t, *n, &text(*n)).unwrap();
    }
    s.commit(false).unwrap();
    for at in (20..380).step_by(3) {
        let (n, steps) = (rows[at], 3 + at % 9);
        let (mode, last) = match at % 2 {
            0 => (SeekMode::AtOrAfter, n + 10 * (steps as u64 - 1)),
            _ => (SeekMode::AtOrBefore, n - 10 * (steps as u64 - 1)),
        };
        let scan = Scan {
            index_no: at % 2,
            start: Start::Seek(mode, n),
            steps,
        };
        let (low, high) = (n.min(last), n.max(last));
        let probes: Vec<u64> = (low / 10 - 2..=high / 10 + 2).map(|n| n * 10 + 5).collect();
        compare(&engine, &t, scan, &rows, &probes);
        s.begin_statement(Isolation::RepeatableRead);
        run(&mut s, &t, scan, WaitMode::Wait);
        let (held, keys) = (s.owner().locks_held(), engine.locks().stats().keys);
        assert!(held as usize >= steps, "{held} locks of {scan:?}");
        // The record that the scan began with, the gap above it, the first of the last leaf.
        let folded = steps < 6 || keys <= 3;
        assert!(folded, "{keys} keys are left of {scan:?}");
        s.rollback().unwrap();
    }
    engine.close().unwrap();
}

/// An empty table has one gap.
#[test]
fn an_empty_table_is_one_gap_in_both_directions() {
    let (_disk, engine, t, _) = database(73);
    for start in [Start::First, Start::Last, Start::Seek(SeekMode::Before, 10)] {
        for index_no in 0..INDEXES {
            let scan = Scan {
                index_no,
                start,
                steps: 1,
            };
            compare(&engine, &t, scan, &[], &[3, 30]);
        }
    }
    engine.close().unwrap();
}

/// Equal values of a secondary index: the gaps between them are told by the primary key.
#[test]
fn gaps_between_equal_values_of_a_secondary_index() {
    let (_disk, engine, t, mut s) = database(74);
    for n in [10, 20, 30] {
        insert(&mut s, &t, n, b"same").unwrap();
    }
    insert(&mut s, &t, 40, b"longer").unwrap();
    s.commit(false).unwrap();
    let value = key(4);
    // Mode, steps, and which inserts of value 4 between (and around) the rows wait.
    for (mode, steps, blocked) in [
        (SeekMode::LastExact, 1, [false, false, true, true]),
        (SeekMode::LastExact, 2, [false, true, true, true]),
        (SeekMode::AtOrBefore, 3, [true, true, true, true]),
        (SeekMode::Before, 1, [true, false, false, false]),
        (SeekMode::Exact, 1, [true, false, false, false]),
        (SeekMode::Exact, 4, [true, true, true, true]),
    ] {
        s.begin_statement(Isolation::RepeatableRead);
        let mut cursor = Cursor::new(&t, 1, ReadMode::Shared, WaitMode::Wait);
        let mut found = cursor.seek(&mut s, &value, mode, false).is_ok();
        for _ in 1..steps {
            found = found
                && match is_backward(mode) {
                    true => cursor.prev(&mut s).is_ok(),
                    false => cursor.next(&mut s).is_ok(),
                };
        }
        let mut other = Session::new(&engine, 0, 2);
        other.set_lock_wait_timeout_ms(0);
        for (n, waits) in [5, 15, 25, 35].into_iter().zip(blocked) {
            other.begin_statement(Isolation::RepeatableRead);
            let got = insert(&mut other, &t, n, b"same");
            assert_eq!(got.is_err(), waits, "{n} beside {steps} of {mode:?}");
            other.rollback().unwrap();
        }
        s.rollback().unwrap();
    }
    engine.close().unwrap();
}

/// Purge takes deleted entries out although a scan has locked them: their gaps stay closed, up to
/// the next entry and no further, at both ends of the index and at the ends of leaves.
#[test]
fn gaps_stay_closed_when_purge_takes_locked_entries_out() {
    use SeekMode::{AtOrAfter, AtOrBefore, Exact, LastExact};
    let (_disk, engine, t, mut s) = database(76);
    let all: Vec<u64> = (1..=12).map(|n| 10 * n).collect();
    for n in &all {
        insert(&mut s, &t, *n, &text(*n)).unwrap();
    }
    s.commit(false).unwrap();
    let dead = [10, 20, 50, 60, 70, 110, 120];
    let live: Vec<u64> = all.into_iter().filter(|n| !dead.contains(n)).collect();
    let probes: Vec<u64> = (1..=25).map(|n| 5 * n).collect();
    let probes: Vec<u64> = probes.into_iter().filter(|n| !live.contains(n)).collect();
    let mut starts = vec![Start::First, Start::Last];
    for mode in [Exact, AtOrAfter, AtOrBefore, LastExact] {
        starts.extend([10, 45, 60, 120].map(|n| Start::Seek(mode, n)));
    }
    for (index_no, start) in (0..INDEXES).flat_map(|i| starts.iter().map(move |s| (i, *s))) {
        for steps in [1, 9] {
            let scan = Scan {
                index_no,
                start,
                steps,
            };
            engine.set("purge_paused", 1).unwrap();
            for n in dead {
                let _ = insert(&mut s, &t, n, &text(n));
            }
            s.commit(false).unwrap();
            for n in dead {
                common::delete(&mut s, &t, n, &text(n)).unwrap();
            }
            s.commit(false).unwrap();
            s.begin_statement(Isolation::RepeatableRead);
            run(&mut s, &t, scan, WaitMode::Wait);
            engine.set("purge_paused", 0).unwrap();
            common::wait_until("the end of purge", || {
                common::metric(&engine, "history_list_length") == 0
            });
            let inside = Some(closed(scan, &live));
            probe(
                &engine,
                &t,
                inside,
                &probes,
                (scan, Isolation::RepeatableRead),
            );
            s.rollback().unwrap();
            let locks = engine.locks().stats();
            assert_eq!((locks.keys, locks.bytes), (0, 0), "after {scan:?}");
        }
    }
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// A gap lock on a row whose insert is rolled back moves to the row that follows, wherever that
/// one is: also on a page that is not in memory at the time.
#[test]
fn the_lock_on_a_row_that_goes_moves_to_the_next_one_on_disk() {
    let disk = SimStorage::new(75);
    let engine = common::open(&disk);
    let t = common::create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    // Twice what fits the buffer pool.
    let rows = 4_000u64;
    for n in 1..=rows {
        insert(&mut s, &t, 10 * n, &text(2_000)).unwrap();
        if n % 50 == 0 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    // Every row in turn, so that some stand at the ends of leaves.
    for n in (10..=30).map(|n| 10 * n) {
        let mut writer = Session::new(&engine, 0, 2);
        insert(&mut writer, &t, n + 5, b"goes").unwrap();
        s.begin_statement(Isolation::RepeatableRead);
        let mut cursor = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
        let got = cursor.seek(&mut s, &key(n + 3), SeekMode::Exact, true);
        assert_eq!(got.map(|_| ()), Err(Error::NotFound));
        let mut reader = Session::new(&engine, 0, 3);
        reader.open_snapshot();
        let mut all = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
        let from = key(10 * rows / 4);
        let mut more = all
            .seek(&mut reader, &from, SeekMode::AtOrAfter, false)
            .is_ok();
        while more {
            more = all.next(&mut reader).is_ok();
        }
        drop(reader);
        writer.rollback().unwrap();
        let mut other = Session::new(&engine, 0, 4);
        other.set_lock_wait_timeout_ms(0);
        let got = insert(&mut other, &t, n + 3, b"phantom");
        assert_eq!(got, Err(Error::LockTimeout), "between {n} and {}", n + 10);
        other.rollback().unwrap();
        s.rollback().unwrap();
    }
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// Who waits at the start of a descending scan has its gap closed meanwhile.
#[test]
fn nothing_comes_in_while_a_descending_scan_waits() {
    let (_disk, engine, t, mut s) = database(76);
    for n in [10, 20, 30] {
        insert(&mut s, &t, n, &text(n)).unwrap();
    }
    s.commit(false).unwrap();
    let mut holder = Session::new(&engine, 0, 2);
    update(&mut holder, &t, 20, &text(20), &text(21)).unwrap();
    let waiter = {
        let (engine, t) = (engine.clone(), t.clone());
        ferrite_sync::thread::spawn("scan", move || {
            let mut s = Session::new(&engine, 0, 3);
            s.begin_statement(Isolation::RepeatableRead);
            let mut cursor = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
            let row = cursor.seek(&mut s, &key(30), SeekMode::Before, false);
            let row = row.map(|row| row.pk.to_vec());
            let got = cursor.prev(&mut s).map(|row| row.pk.to_vec());
            (row, got, s)
        })
    };
    common::wait_until("a waiter", || engine.locks().stats().waiting == 1);
    let mut other = Session::new(&engine, 0, 4);
    other.set_lock_wait_timeout_ms(0);
    let got = insert(&mut other, &t, 25, &text(25));
    assert_eq!(got, Err(Error::LockTimeout));
    other.rollback().unwrap();
    insert(&mut other, &t, 5, &text(5)).unwrap();
    other.commit(false).unwrap();
    holder.rollback().unwrap();
    let (first, second, mut scanner) = waiter.join().unwrap();
    assert_eq!(
        (first, second),
        (Ok(key(20).to_vec()), Ok(key(10).to_vec()))
    );
    let got = insert(&mut other, &t, 25, &text(25));
    assert_eq!(got, Err(Error::LockTimeout));
    other.rollback().unwrap();
    scanner.rollback().unwrap();
    drop((s, holder, other, scanner));
    check(&engine, &t);
    engine.close().unwrap();
}

/// Scans of many rows, down, up, and down again beyond both: few locks, and no gap is open.
#[test]
fn a_long_descending_scan_holds_few_locks_and_all_its_gaps() {
    let (_disk, engine, t, mut s) = database(77);
    for n in 1..=3000 {
        insert(&mut s, &t, 2 * n, b"row").unwrap();
    }
    s.commit(false).unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    let mut other = Session::new(&engine, 0, 2);
    other.set_lock_wait_timeout_ms(0);
    for (start, rows, direction) in [
        (5001, 2000, SeekMode::Before),
        (2999, 500, SeekMode::AtOrAfter),
        (5501, 2500, SeekMode::Before),
    ] {
        let mut c = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
        c.seek(&mut s, &key(start), direction, false).unwrap();
        for _ in 1..rows {
            match direction {
                SeekMode::Before => c.prev(&mut s).unwrap(),
                _ => c.next(&mut s).unwrap(),
            };
        }
        let locks = engine.locks().stats();
        assert!(locks.keys < 250 && locks.bytes < 100 << 10, "{locks:?}");
        for n in (1101..5001).step_by(100) {
            let got = insert(&mut other, &t, n, b"row");
            let inside = n > 1001;
            assert_eq!(got.is_err(), inside, "row {n}");
            other.rollback().unwrap();
        }
    }
    for (n, waits) in [(5501, true), (5503, false), (501, true), (499, false)] {
        let got = insert(&mut other, &t, n, b"row");
        assert_eq!(got.is_err(), waits, "row {n}");
        other.rollback().unwrap();
    }
    s.rollback().unwrap();
    let locks = engine.locks().stats();
    assert_eq!((locks.keys, locks.bytes), (0, 0), "{locks:?}");
    drop((s, other));
    check(&engine, &t);
    engine.close().unwrap();
}
