//! Scaling by doubling: each structure with n and with 10 n of what it holds. What one of them
//! costs is counted where it can be, else measured and compared with room to spare.

use ferrite_sync::atomic::Ordering;
use ferrite_sync::{thread, time, Arc};

use crate::tests::{is_clean, table, IX, LONG};
use crate::Mode::{Exclusive, Shared};
use crate::Span::{Gap, InsertIntention, NextKey, Record};
use crate::{AtPrepare, Attempt, LockRequest, LockTable, NoHooks, Owner, WaitPolicy};

/// Best of three, in nanoseconds of processor time for each of `n`. `run` has no threads of its own.
fn each_ns(n: u64, mut run: impl FnMut(u64)) -> u64 {
    let once = |run: &mut dyn FnMut(u64)| {
        let before = time::thread_cpu_us();
        run(n);
        (time::thread_cpu_us() - before) * 1000 / n
    };
    (0..3).map(|_| once(&mut run)).min().unwrap_or(0)
}

/// Ten times as many cost at most six times as much each: a square would be ten times.
fn scales(what: &str, n: u64, mut run: impl FnMut(u64)) {
    let few = each_ns(n, &mut run);
    let many = each_ns(10 * n, &mut run);
    assert!(
        many < 6 * few + 2_000,
        "{what}: {few} ns each of {n}, {many} ns each of {}",
        10 * n
    );
}

fn owner(n: u64) -> Arc<Owner> {
    Owner::new(n, 0)
}

/// Ranges of one transaction: scans of the same and of other places.
#[test]
fn ranges_of_one_owner() {
    scales("ranges", 500, |n| {
        let t = table();
        let me = owner(1);
        for scan in 0..n {
            let mut range = None;
            for key in 0..6u64 {
                let key = (scan * 10 + key).to_be_bytes();
                let got = t.try_lock_in_range(&me, IX, &key, Exclusive, &mut range);
                assert!(got.unwrap().is_granted());
            }
        }
        let other = owner(2);
        assert!(t.conflicts(
            &other,
            LockRequest::new(IX, &33u64.to_be_bytes(), Shared, Record)
        ));
        assert!(!t.conflicts(
            &other,
            LockRequest::new(IX, &37u64.to_be_bytes(), Shared, Record)
        ));
        t.release_all(&me);
        is_clean(&t);
    });
}

/// Shared ranges of many owners over the same keys.
#[test]
fn ranges_of_many_owners() {
    scales("shared ranges", 100, |n| {
        let t = table();
        let owners: Vec<_> = (0..n).map(owner).collect();
        for me in &owners {
            let mut range = None;
            for key in 10..16u64 {
                let got = t.try_lock_in_range(me, IX, &key.to_be_bytes(), Shared, &mut range);
                assert!(got.unwrap().is_granted());
            }
        }
        owners.iter().for_each(|me| t.release_all(me));
        is_clean(&t);
    });
}

/// A scan of what was scanned before, up and down, leaves one range.
#[test]
fn ranges_that_meet_become_one() {
    let t = table();
    let me = owner(1);
    let lock = |keys: &mut dyn Iterator<Item = u64>| {
        let mut range = None;
        for key in keys {
            let key = key.to_be_bytes();
            let got = t.try_lock_in_range(&me, IX, &key, Exclusive, &mut range);
            assert!(got.unwrap().is_granted());
        }
    };
    let ranges = || {
        let mut all = Vec::new();
        t.each_lock(&mut |l| {
            let number = |key: &[u8]| u64::from_be_bytes(key.try_into().unwrap());
            all.push((number(&l.key), number(&l.until)));
        });
        all.sort_unstable();
        all
    };
    lock(&mut (10..20));
    lock(&mut (30..40).rev());
    assert_eq!(ranges(), [(10, 19), (30, 39)]);
    lock(&mut (25..35));
    assert_eq!(ranges(), [(10, 19), (25, 39)]);
    lock(&mut (18..27).rev());
    assert_eq!(ranges(), [(10, 39)]);
    lock(&mut (5..60));
    assert_eq!(ranges(), [(5, 59)]);
    lock(&mut (5..60).rev());
    assert_eq!(ranges(), [(5, 59)]);
    t.release_all(&me);
    is_clean(&t);
}

/// Locks of one owner, taken and released.
#[test]
fn locks_of_one_owner() {
    scales("locks", 2_000, |n| {
        let t = table();
        let me = owner(1);
        for key in 0..n {
            let got = t.try_lock(
                &me,
                LockRequest::new(IX, &key.to_be_bytes(), Exclusive, NextKey),
            );
            assert_eq!(got.unwrap(), Attempt::Granted);
        }
        t.release_all(&me);
        is_clean(&t);
    });
}

/// One statement reads to the end of an index, and inserts there (INSERT ... SELECT): what it has locked
/// takes the same memory however many rows it inserts, up or down, and is locked for all others.
#[test]
fn inserts_into_an_own_gap() {
    let key = |n: u64| n.to_be_bytes();
    for (mode, ascending) in [(Shared, true), (Exclusive, true), (Shared, false)] {
        let mut bytes = Vec::new();
        for rows in [100u64, 100_000] {
            let t = table();
            let [me, other] = [owner(1), owner(2)];
            let end = u64::MAX.to_be_bytes();
            for gap in [&end, &key(1_000)] {
                t.try_lock(&me, LockRequest::new(IX, gap, mode, Gap))
                    .unwrap();
            }
            t.inherit_gap_of_insert(&me, IX, &key(1_000), &key(900));
            for n in 0..rows {
                let (new, successor) = match ascending {
                    true => (key(2_000 + n), end),
                    false if n == 0 => (key(300_000), end),
                    false => (key(300_000 - n), key(300_001 - n)),
                };
                t.inherit_gap_of_insert(&me, IX, &successor, &new);
            }
            let stats = t.stats();
            assert!(stats.keys < 10, "{} keys with locks", stats.keys);
            bytes.push(stats.bytes);
            let is_free =
                |n, span| !t.conflicts(&other, LockRequest::new(IX, &key(n), Exclusive, span));
            let (first, last) = match ascending {
                true => (2_000, 1_999 + rows),
                false => (300_001 - rows, 300_000),
            };
            for n in [
                first,
                first + 1,
                (first + last) / 2,
                last,
                u64::MAX,
                900,
                1_000,
            ] {
                assert!(!is_free(n, InsertIntention), "the gap before {n}");
            }
            for n in [900, 1_000, 1_500] {
                assert!(is_free(n, Record), "record {n} is nobody's");
            }
            assert_eq!(me.locks_held(), rows + 3);
            t.release_at_prepare(&me, AtPrepare::Reads);
            assert!(is_free(last, InsertIntention), "no gap stays at prepare");
            t.release_all(&me);
            is_clean(&t);
        }
        assert_eq!(bytes[0], bytes[1], "memory of few and of many rows");
    }
}

/// The entries of a gap's ends go, and others come in their place: what was remembered is of no gap any more.
#[test]
fn a_gap_that_is_left_is_not_inserted_into() {
    let key = |n: u64| n.to_be_bytes();
    let t = table();
    let [me, other] = [owner(1), owner(2)];
    for round in 0..200 {
        let end = key(1_000 - round);
        t.try_lock(&me, LockRequest::new(IX, &end, Shared, Gap))
            .unwrap();
        t.inherit_gap_of_insert(&me, IX, &end, &key(100));
        if round % 2 == 0 {
            t.inherit_gap_of_insert(&me, IX, &end, &key(102));
        }
        let between = key(101);
        let record = LockRequest::new(IX, &between, Exclusive, Record);
        assert!(!t.conflicts(&other, record), "round {round}");
        t.release_all(&me);
        is_clean(&t);
    }
}

/// Many share one key, as the row of a parent table.
#[test]
fn holders_of_one_key() {
    scales("holders", 1_000, |n| {
        let t = table();
        let owners: Vec<_> = (0..n).map(owner).collect();
        for me in &owners {
            let got = t.try_lock(me, LockRequest::new(IX, b"parent", Shared, Record));
            assert!(got.unwrap().is_granted());
        }
        let writer = owner(n);
        assert!(t.conflicts(&writer, LockRequest::new(IX, b"parent", Exclusive, Record)));
        owners.iter().for_each(|me| t.release_all(me));
        is_clean(&t);
    });
}

/// Locks on many tables, as on a table of thousands of partitions.
#[test]
fn tables_of_one_owner() {
    scales("tables", 500, |n| {
        let t = table();
        let me = owner(1);
        for _ in 0..2 {
            for id in 1..=n {
                let id = ferrite_types::TableId(id);
                let mode = crate::TableMode::IntentExclusive;
                t.table_lock(&me, id, mode, LONG, &NoHooks).unwrap();
            }
        }
        t.release_all(&me);
        is_clean(&t);
    });
}

/// Threads that wait for one row. Each holds a lock of its own that nobody asks for, or (`wanted`)
/// one that the next one has asked for before: everybody has to look for deadlocks then.
fn wait_for_a_hot_row(n: u64, wanted: bool) -> (u64, u64) {
    let t = table();
    let holder = owner(0);
    t.try_lock(&holder, LockRequest::new(IX, b"hot", Exclusive, Record))
        .unwrap();
    let mut threads = Vec::new();
    for i in 1..=n {
        let me = owner(i);
        let own = i.to_be_bytes();
        t.try_lock(&me, LockRequest::new(IX, &own, Exclusive, Record))
            .unwrap();
        if wanted {
            let asks = owner(100_000 + i);
            let short = WaitPolicy::for_ms(1);
            let got = t.lock_wait(
                &asks,
                LockRequest::new(IX, &own, Exclusive, Record),
                short,
                &NoHooks,
            );
            assert_eq!(got, Err(ferrite_types::Error::LockTimeout));
        }
        let (table, who) = (t.clone(), me.clone());
        threads.push(thread::spawn("waits", move || {
            let got = table.lock_wait(
                &who,
                LockRequest::new(IX, b"hot", Exclusive, Record),
                LONG,
                &NoHooks,
            );
            table.release_all(&who);
            got.unwrap()
        }));
        while !me.is_waiting() {
            thread::yield_now();
        }
    }
    let walked = t.stats.walked.load(Ordering::Relaxed);
    let before = time::now_us();
    t.release_all(&holder);
    threads.into_iter().for_each(|h| {
        h.join().unwrap();
    });
    let drained_us = time::now_us() - before;
    is_clean(&t);
    (walked, drained_us)
}

/// Who waits in a hot row's line and is waited for by nobody looks at nobody; who is looks at each
/// once.
#[test]
fn waiters_of_a_hot_row() {
    let (walked, _) = wait_for_a_hot_row(200, false);
    assert_eq!(walked, 0, "nobody is wanted");
    let (walked, _) = wait_for_a_hot_row(100, true);
    assert!(walked <= 100 * 103, "{walked} steps of 100 waiters");
}

/// Steps walked until now, once no walk is under way: a waiter walks after it is seen waiting, so that a count read at
/// once may lack the walk of the one before.
fn steps_at_rest(t: &LockTable) -> u64 {
    let mut seen = t.stats.walked.load(Ordering::Relaxed);
    loop {
        thread::sleep_ms(50);
        let now = t.stats.walked.load(Ordering::Relaxed);
        if now == seen {
            return now;
        }
        seen = now;
    }
}

/// One walk through a line in which all wait for a chain of others is as long as the line.
#[test]
fn one_walk_through_long_lines() {
    let t: Arc<LockTable> = table();
    let lines = 30u64;
    let (first, last) = (owner(1), owner(2));
    // A chain: the holder of each key waits for the next key, behind ten others.
    let holders: Vec<_> = (0..lines).map(|i| owner(10 + i)).collect();
    for (i, holder) in holders.iter().enumerate() {
        let key = [i as u8];
        t.try_lock(holder, LockRequest::new(IX, &key, Exclusive, Record))
            .unwrap();
    }
    t.try_lock(&first, LockRequest::new(IX, b"first", Exclusive, Record))
        .unwrap();
    let mut threads = Vec::new();
    let mut wait = |who: &Arc<Owner>, key: Vec<u8>| {
        let (table, me) = (t.clone(), who.clone());
        threads.push(thread::spawn("waits", move || {
            let got = table.lock_wait(
                &me,
                LockRequest::new(IX, &key, Exclusive, Record),
                LONG,
                &NoHooks,
            );
            table.release_all(&me);
            got
        }));
        while !who.is_waiting() {
            thread::yield_now();
        }
    };
    for i in 1..lines {
        for other in 0..10 {
            wait(&owner(1000 + 100 * i + other), vec![i as u8]);
        }
    }
    for i in 0..lines - 1 {
        wait(&holders[i as usize], vec![i as u8 + 1]);
    }
    wait(&last, b"first".to_vec());
    let before = steps_at_rest(&t);
    wait(&first, vec![0]);
    let walked = steps_at_rest(&t) - before;
    assert!(
        (lines..20 * lines).contains(&walked),
        "{walked} steps through {lines} lines of eleven"
    );
    t.release_all(&holders[lines as usize - 1]);
    for h in threads {
        assert!(h.join().unwrap().is_ok());
    }
    is_clean(&t);
}

/// All of an index's ranges go with their owner, some at a time, while others ask for keys in them.
#[test]
fn release_of_many_ranges_lets_others_in() {
    let t = table();
    let me = owner(1);
    for scan in 0..2_000u64 {
        let mut range = None;
        for key in 0..2u64 {
            let key = (scan * 10 + key).to_be_bytes();
            t.try_lock_in_range(&me, IX, &key, Exclusive, &mut range)
                .unwrap();
        }
    }
    let askers: Vec<_> = (0..4u64)
        .map(|n| {
            let t = t.clone();
            thread::spawn("asks", move || {
                let who = owner(10 + n);
                for scan in (n..2_000).step_by(40) {
                    let key = (scan * 10).to_be_bytes();
                    t.lock_wait(
                        &who,
                        LockRequest::new(IX, &key, Exclusive, Record),
                        LONG,
                        &NoHooks,
                    )
                    .unwrap();
                }
                t.release_all(&who);
            })
        })
        .collect();
    while t.stats().waiting < 4 {
        thread::yield_now();
    }
    t.release_all(&me);
    askers.into_iter().for_each(|h| h.join().unwrap());
    is_clean(&t);
}
