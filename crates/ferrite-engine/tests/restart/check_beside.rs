//! A check of a tree lets splits and merges go on beside it.

use crate::common::{check, database, delete, insert, key};
use ferrite_engine::Session;
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{thread, Arc};

/// Rows there are before; rows that come and go meanwhile have the numbers between.
const ROWS: u64 = 6_000;
const STEP: u64 = 10;

/// What others do while the check gives a record: it is waited for, or it would wait for the check.
#[test]
fn splits_and_merges_go_on_beside_a_check() {
    let (_disk, engine, t, mut s) = database(11);
    for n in 0..ROWS {
        insert(&mut s, &t, n * STEP, &[b'r'; 200]).unwrap();
    }
    s.commit(false).unwrap();
    let (asked, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let beside = {
        let (engine, t, asked, done) = (engine.clone(), t.clone(), asked.clone(), done.clone());
        thread::spawn("beside", move || {
            let mut s = Session::new(&engine, 0, 2);
            let mut at = 0;
            loop {
                let next = asked.load(Ordering::Acquire);
                if next == u64::MAX {
                    break;
                }
                if next == at {
                    thread::yield_now();
                    continue;
                }
                at = next;
                // Around the place the check has come to, enough for splits; then they go.
                let first = (next - 1).saturating_sub(400);
                let rows = |n: &u64| n % STEP != 0;
                for n in (first..first + 800).filter(rows) {
                    insert(&mut s, &t, n, &[b'x'; 60]).unwrap();
                }
                s.commit(false).unwrap();
                for n in (first..first + 800).filter(rows) {
                    delete(&mut s, &t, n, &[b'x'; 60]).unwrap();
                }
                s.commit(false).unwrap();
                done.store(next, Ordering::Release);
            }
        })
    };
    let (mut seen, mut kept) = (Vec::<u8>::new(), 0u64);
    let census = t.tree(0).check(&mut |k, record| {
        assert!(
            seen.is_empty() || seen.as_slice() < k,
            "a key twice, or out of order"
        );
        seen = k.to_vec();
        let number = u64::from_be_bytes(k.try_into().unwrap());
        if number % STEP == 0 {
            assert!(
                k == key(kept * STEP) && !record.header.deleted,
                "row {kept}"
            );
            kept += 1;
            if kept % 300 == 0 {
                asked.store(number + 1, Ordering::Release);
                while done.load(Ordering::Acquire) != number + 1 {
                    assert!(!beside.is_finished(), "it failed");
                    thread::sleep_ms(1);
                }
            }
        }
        Ok(())
    });
    asked.store(u64::MAX, Ordering::Release);
    beside.join().unwrap();
    let census = census.unwrap();
    assert_eq!(kept, ROWS);
    assert!(census.records >= ROWS && census.leaves > 40 && census.inners > 0);
    check(&engine, &t);
    let quiet = t.tree(0).check(&mut |_, _| Ok(())).unwrap();
    assert!(quiet.leaves >= quiet.inners && quiet.records >= ROWS);
}
