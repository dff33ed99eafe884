//! Consistent reads of a table that the same session changes between two steps: what a scan has copied is then not what it goes on
//! with. Each test reads every index in both directions.

use crate::common::{database, delete, insert, update};
use ferrite_engine::{Cursor, Isolation, ReadMode, Session, Table, WaitMode};
use ferrite_sync::Arc;
use ferrite_types::Error;

const LEVELS: [Isolation; 3] = [
    Isolation::ReadUncommitted,
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
];

/// Rows in the order of a scan; before each step behind the first row, `change` is called with the number of that row.
fn scan_changing(
    s: &mut Session,
    t: &Arc<Table>,
    (index_no, forward): (usize, bool),
    change: &mut dyn FnMut(&mut Session, u64),
) -> Vec<(u64, Vec<u8>)> {
    let mut cursor = Cursor::new(t, index_no, ReadMode::Snapshot, WaitMode::Wait);
    let mut rows = Vec::new();
    let mut more = match forward {
        true => cursor.first(s).map(|_| ()),
        false => cursor.last(s).map(|_| ()),
    };
    while more.is_ok() {
        let row = cursor.current().unwrap();
        let pk = u64::from_be_bytes(row.pk.try_into().unwrap());
        let text = match index_no {
            0 => row.payload[1..].to_vec(),
            _ => cursor.fetch_row(s).unwrap().payload[1..].to_vec(),
        };
        rows.push((pk, text));
        assert!(rows.len() < 5_000, "a scan without an end");
        change(s, pk);
        more = match forward {
            true => cursor.next(s).map(|_| ()),
            false => cursor.prev(s).map(|_| ()),
        };
    }
    assert_eq!(more, Err(Error::NotFound));
    rows
}

fn each_way(mut of: impl FnMut(usize, bool, Isolation)) {
    for level in LEVELS {
        for index_no in 0..3 {
            of(index_no, true, level);
            of(index_no, false, level);
        }
    }
}

const ROWS: u64 = 300;

/// `ROWS` rows of one `k`, of which the first half is older than the session's transaction.
fn filled(s: &mut Session, t: &Arc<Table>, level: Isolation) {
    s.begin_statement(level);
    for n in 1..=ROWS / 2 {
        insert(s, t, n, b"here").unwrap();
    }
    s.commit(false).unwrap();
    s.begin_statement(level);
    for n in ROWS / 2 + 1..=ROWS {
        insert(s, t, n, b"here").unwrap();
    }
}

/// The row next to come is deleted: every other one is seen, each with its row.
#[test]
fn rows_deleted_ahead_of_a_scan() {
    each_way(|index_no, forward, level| {
        let (_disk, engine, t, mut s) = database(41);
        filled(&mut s, &t, level);
        let seen = scan_changing(&mut s, &t, (index_no, forward), &mut |s, n| {
            let next = if forward { n + 1 } else { n - 1 };
            if (1..=ROWS).contains(&next) {
                delete(s, &t, next, b"here").unwrap();
            }
        });
        let numbers: Vec<u64> = seen.iter().map(|(n, _)| *n).collect();
        let wanted: Vec<u64> = match forward {
            true => (1..=ROWS).step_by(2).collect(),
            false => (1..=ROWS).rev().step_by(2).collect(),
        };
        assert_eq!(
            numbers, wanted,
            "index {index_no}, forward {forward}, {level:?}"
        );
        assert!(seen.iter().all(|(_, text)| text == b"here"));
        s.rollback().unwrap();
        drop(s);
        engine.close().unwrap();
    });
}

/// Rows that are changed ahead have the new values, and where the key is another one the entry that they had is not met.
#[test]
fn rows_changed_ahead_of_a_scan() {
    each_way(|index_no, forward, level| {
        let (_disk, engine, t, mut s) = database(42);
        filled(&mut s, &t, level);
        let to: &[u8] = if forward { b"s" } else { b"longer" };
        let seen = scan_changing(&mut s, &t, (index_no, forward), &mut |s, n| {
            let next = if forward { n + 1 } else { n - 1 };
            if n % 2 == 1 && forward && next <= ROWS || n % 2 == 0 && !forward && next >= 1 {
                update(s, &t, next, b"here", to).unwrap();
            }
        });
        let what = format!("index {index_no}, forward {forward}, {level:?}");
        let kept = u64::from(forward);
        for (n, text) in &seen {
            let wanted: &[u8] = if n % 2 == kept { b"here" } else { to };
            assert_eq!(text, wanted, "{what}: row {n}");
        }
        let all = if index_no == 1 { ROWS / 2 } else { ROWS };
        assert_eq!(seen.len() as u64, all, "{what}");
        s.rollback().unwrap();
        drop(s);
        engine.close().unwrap();
    });
}

/// A statement within that fails leaves all as it was, and so does a savepoint that is rolled back to: nothing is passed over, nothing
/// comes twice.
#[test]
fn changes_undone_ahead_of_a_scan() {
    each_way(|index_no, forward, level| {
        let (_disk, engine, t, mut s) = database(43);
        filled(&mut s, &t, level);
        let mut rows = 0;
        let seen = scan_changing(&mut s, &t, (index_no, forward), &mut |s, n| {
            rows += 1;
            let next = if forward { n + 1 } else { n - 1 };
            if rows % 3 == 0 && (1..=ROWS).contains(&next) {
                let before = s.savepoint().unwrap();
                delete(s, &t, next, b"here").unwrap();
                s.rollback_to(before).unwrap();
            }
        });
        let mut numbers: Vec<u64> = seen.iter().map(|(n, _)| *n).collect();
        if !forward {
            numbers.reverse();
        }
        let what = format!("index {index_no}, forward {forward}, {level:?}");
        assert_eq!(numbers, (1..=ROWS).collect::<Vec<_>>(), "{what}");
        s.rollback().unwrap();
        drop(s);
        engine.close().unwrap();
    });
}

/// Rows that the session inserts ahead are seen, also behind what was the last one; those behind the scan are not.
#[test]
fn rows_inserted_ahead_of_a_scan() {
    each_way(|index_no, forward, level| {
        let (_disk, engine, t, mut s) = database(44);
        s.begin_statement(level);
        for n in 101..=110 {
            insert(&mut s, &t, n, b"here").unwrap();
        }
        s.commit(false).unwrap();
        s.begin_statement(level);
        let (mut below, mut above) = (100, 111);
        let seen = scan_changing(&mut s, &t, (index_no, forward), &mut |s, _| {
            if above < 141 {
                insert(s, &t, below, b"here").unwrap();
                insert(s, &t, above, b"here").unwrap();
                (below, above) = (below - 1, above + 1);
            }
        });
        let numbers: Vec<u64> = seen.iter().map(|(n, _)| *n).collect();
        let wanted: Vec<u64> = match forward {
            true => (101..=140).collect(),
            false => (71..=110).rev().collect(),
        };
        assert_eq!(
            numbers, wanted,
            "index {index_no}, forward {forward}, {level:?}"
        );
        s.rollback().unwrap();
        drop(s);
        engine.close().unwrap();
    });
}

/// An old snapshot, for which deleted entries are kept aside: others' rows are as they were, the session's own as they are.
#[test]
fn own_changes_beside_archived_entries() {
    each_way(|index_no, forward, level| {
        if level < Isolation::RepeatableRead {
            return;
        }
        let (_disk, engine, t, mut s) = database(45);
        let mut other = Session::new(&engine, 0, 2);
        for n in 1..=ROWS {
            insert(&mut other, &t, n, b"here").unwrap();
        }
        other.commit(false).unwrap();
        s.begin_statement(level);
        s.open_snapshot();
        for n in (1..=ROWS).filter(|n| n % 3 == 0) {
            delete(&mut other, &t, n, b"here").unwrap();
        }
        other.commit(false).unwrap();
        let seen = scan_changing(&mut s, &t, (index_no, forward), &mut |s, n| {
            let next = if forward { n + 1 } else { n - 1 };
            if next % 3 == 1 && next < ROWS {
                delete(s, &t, next, b"here").unwrap();
            }
        });
        let mut numbers: Vec<u64> = seen.iter().map(|(n, _)| *n).collect();
        if !forward {
            numbers.reverse();
        }
        // 1 has nothing before it; backward, what comes before n % 3 == 1 is n % 3 == 2.
        let gone = |n: u64| n % 3 == 1 && (n > 1 || !forward);
        let wanted: Vec<u64> = (1..=ROWS).filter(|n| !gone(*n)).collect();
        assert_eq!(numbers, wanted, "index {index_no}, forward {forward}");
        s.rollback().unwrap();
        drop((s, other));
        engine.close().unwrap();
    });
}
