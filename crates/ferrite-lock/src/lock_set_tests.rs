//! Tests of sets: the record locks of an owner of many.

use ferrite_sync::Arc;
use ferrite_types::Error;

use crate::tests::{ask_in_thread, is_clean, owners, IX, LONG};
use crate::Mode::{Exclusive, Shared};
use crate::Span::{Gap, InsertIntention, NextKey, Record};
use crate::{Attempt, LockConfig, LockInfo, LockRequest, LockTable, NoHooks, Owner, WaitPolicy};

fn table_with(shards: usize) -> Arc<LockTable> {
    Arc::new(LockTable::new(LockConfig {
        shards,
        ticker_us: 3_600_000_000,
        sets_after: 0,
        ..LockConfig::default()
    }))
}

fn ask(t: &LockTable, o: &Arc<Owner>, key: &[u8], mode: crate::Mode) -> Attempt {
    t.try_lock(o, LockRequest::new(IX, key, mode, Record))
        .unwrap()
}

fn rows_of(t: &LockTable) -> Vec<LockInfo> {
    let mut rows = Vec::new();
    t.each_lock(&mut |row| rows.push(row.clone()));
    rows
}

#[test]
fn ten_million_locks_would_take_64_mib() {
    let t = Arc::new(LockTable::new(LockConfig::default()));
    let [a, b] = owners();
    let keys = 1_000_000u32;
    let ask_again = |n: &u32| ask(&t, &a, &n.to_be_bytes(), Exclusive) == Attempt::Held;
    // A pair with the same fingerprint is expected in ten such runs.
    let same = (0..keys).filter(ask_again).count();
    assert!(same < 5, "{same} pairs");
    assert_eq!(a.locks_held(), u64::from(keys) - same as u64);
    assert!((0..keys).all(|n| ask_again(&n)));
    let bytes = t.stats().bytes;
    assert!(bytes * 10 < 64 << 20, "{bytes} bytes for {keys} locks");
    for n in (0..keys).step_by(1001) {
        assert_eq!(ask(&t, &b, &n.to_be_bytes(), Shared), Attempt::Blocked);
    }
    let others = keys..2 * keys;
    let free = |n: &u32| ask(&t, &b, &n.to_be_bytes(), Exclusive) == Attempt::Granted;
    let granted = others.clone().filter(free).count();
    assert!(others.len() - granted < 10, "{granted} of {}", others.len());
    t.release_all(&b);
    t.release_all(&a);
    is_clean(&t);
}

#[test]
fn who_meets_a_set_waits_for_its_owner() {
    let t = table_with(2);
    let [a, b, c] = owners();
    for key in [b"c", b"e", b"g"] {
        assert_eq!(ask(&t, &a, key, Shared), Attempt::Granted);
        assert_eq!(ask(&t, &a, key, Shared), Attempt::Held);
    }
    assert_eq!(ask(&t, &b, b"e", Shared), Attempt::Granted);
    let shown = rows_of(&t);
    assert!(shown.iter().all(|row| row.records > 0 && !row.waiting));
    assert_eq!(shown.iter().map(|row| row.records).sum::<u64>(), 4);
    assert_eq!(shown.len(), 2, "one for each owner");
    let nowait = WaitPolicy::for_ms(0);
    let request = LockRequest::new(IX, b"e", Exclusive, Record);
    let got = t.lock_wait(&c, request, nowait, &NoHooks);
    assert_eq!(got, Err(Error::LockTimeout));
    let writer = ask_in_thread(&t, &c, b"e", Exclusive, Record, LONG);
    assert!(c.is_waiting());
    // Both are in its line now, which counts besides, and each still has its lock.
    assert_eq!((a.locks_held(), b.locks_held()), (4, 2));
    assert_eq!(ask(&t, &a, b"e", Shared), Attempt::Held);
    t.release_all(&a);
    assert!(c.is_waiting());
    t.release_all(&b);
    assert_eq!(writer.join().unwrap().unwrap(), Attempt::Granted);
    t.release_all(&c);
    is_clean(&t);
}

#[test]
fn two_readers_of_a_set_that_want_to_write_are_a_deadlock() {
    let t = table_with(2);
    let [a, b] = owners();
    assert_eq!(ask(&t, &a, b"k", Shared), Attempt::Granted);
    assert_eq!(ask(&t, &b, b"k", Shared), Attempt::Granted);
    let first = ask_in_thread(&t, &a, b"k", Exclusive, Record, LONG);
    assert!(a.is_waiting());
    let request = LockRequest::new(IX, b"k", Exclusive, Record);
    let second = t.lock_wait(&b, request, LONG, &NoHooks);
    assert_eq!(second, Err(Error::Deadlock));
    t.release_all(&b);
    assert!(first.join().unwrap().unwrap().is_granted());
    assert_eq!(ask(&t, &b, b"k", Shared), Attempt::Blocked);
    t.release_all(&a);
    is_clean(&t);
}

#[test]
fn a_lock_is_given_back_and_the_weaker_one_stays() {
    let t = table_with(1);
    let [a, b] = owners();
    assert_eq!(ask(&t, &a, b"k", Shared), Attempt::Granted);
    assert_eq!(ask(&t, &a, b"k", Exclusive), Attempt::Stronger);
    assert_eq!(ask(&t, &b, b"k", Shared), Attempt::Blocked);
    t.unlock(&a, IX, b"k", Exclusive);
    assert_eq!(ask(&t, &b, b"k", Shared), Attempt::Granted);
    assert_eq!(ask(&t, &b, b"k", Exclusive), Attempt::Blocked);
    t.unlock(&a, IX, b"k", Shared);
    assert_eq!(ask(&t, &b, b"k", Exclusive), Attempt::Stronger);
    assert_eq!(a.locks_held(), 0);
    t.release_all(&a);
    t.release_all(&b);
    is_clean(&t);
}

#[test]
fn a_prepared_transaction_keeps_what_it_may_have_changed() {
    let t = table_with(2);
    let [a, b] = owners();
    let keys: Vec<[u8; 2]> = (0..100u16).map(u16::to_be_bytes).collect();
    for (n, key) in keys.iter().enumerate() {
        let mode = if n % 2 == 0 { Shared } else { Exclusive };
        assert_eq!(ask(&t, &a, key, mode), Attempt::Granted);
    }
    t.release_at_prepare(&a, crate::AtPrepare::Reads);
    assert_eq!(a.locks_held(), 50);
    for (n, key) in keys.iter().enumerate() {
        let blocked = ask(&t, &b, key, Exclusive) == Attempt::Blocked;
        assert_eq!(blocked, n % 2 == 1, "{n}");
    }
    t.release_all(&a);
    t.release_all(&b);
    is_clean(&t);
}

#[test]
fn a_removed_records_lock_guards_its_gap() {
    let t = table_with(2);
    let [a, b] = owners();
    assert_eq!(ask(&t, &a, b"c", Exclusive), Attempt::Granted);
    assert!(!t.is_untouched(IX, b"c") && t.is_anchor(IX, b"c"));
    assert_eq!(t.inherit_removed(IX, b"c", b"e"), 1);
    let insert = LockRequest::new(IX, b"e", Exclusive, InsertIntention);
    assert_eq!(t.try_lock(&b, insert).unwrap(), Attempt::Blocked);
    t.release_all(&a);
    // READ COMMITTED: nothing is inherited.
    a.no_gaps
        .store(true, ferrite_sync::atomic::Ordering::Relaxed);
    assert_eq!(ask(&t, &a, b"c", Exclusive), Attempt::Granted);
    assert_eq!(t.inherit_removed(IX, b"c", b"e"), 0);
    assert_eq!(t.try_lock(&b, insert).unwrap(), Attempt::Granted);
    t.release_all(&a);
    is_clean(&t);
}

#[test]
fn gaps_and_contended_keys_stay_in_queues() {
    let t = table_with(1);
    let [a, b] = owners();
    for (key, span) in [(b"a", Gap), (b"b", NextKey)] {
        let request = LockRequest::new(IX, key, Exclusive, span);
        assert!(t.try_lock(&a, request).unwrap().is_granted());
    }
    assert_eq!(
        ask(&t, &a, b"a", Shared),
        Attempt::Granted,
        "beside its gap lock"
    );
    assert!(rows_of(&t).iter().all(|row| row.records == 0));
    assert_eq!(ask(&t, &b, b"a", Exclusive), Attempt::Blocked);
    t.release_all(&a);
    is_clean(&t);
}

#[test]
fn a_shard_has_sets_of_some_owners_only() {
    let t = table_with(1);
    let all: Vec<Arc<Owner>> = (0..100).map(|n| Owner::new(n + 1, 0)).collect();
    for (n, o) in all.iter().enumerate() {
        assert_eq!(ask(&t, o, &[n as u8], Exclusive), Attempt::Granted);
    }
    let rows = rows_of(&t);
    assert_eq!(rows.iter().filter(|row| row.records == 1).count(), 16);
    assert_eq!(rows.iter().filter(|row| row.records == 0).count(), 84);
    for (n, o) in all.iter().enumerate() {
        assert_eq!(ask(&t, o, &[(n as u8 + 1) % 100], Shared), Attempt::Blocked);
    }
    all.iter().for_each(|o| t.release_all(o));
    is_clean(&t);
}

/// Where somebody else stands in a key's line with nothing of the owner's, the lock in the set stays when a
/// range takes the key in.
#[test]
fn a_range_takes_in_a_key_whose_lock_is_in_a_set() {
    let t = table_with(2);
    let [a, b, c] = owners();
    let mut shared = None;
    for key in [b"c", b"e", b"g"] {
        let got = t.try_lock_in_range(&a, IX, key, Shared, &mut shared);
        assert_eq!(got.unwrap(), Attempt::Held);
    }
    // The range has its gap.
    let next_key = LockRequest::new(IX, b"c", Exclusive, NextKey);
    assert_eq!(t.try_lock(&a, next_key).unwrap(), Attempt::Granted);
    let gap = LockRequest::new(IX, b"c", Exclusive, Gap);
    assert_eq!(t.try_lock(&b, gap).unwrap(), Attempt::Granted);
    let mut range = None;
    let got = t.try_lock_in_range(&a, IX, b"e", Exclusive, &mut range);
    assert_eq!(got.unwrap(), Attempt::Held);
    t.absorb(&a, IX, Exclusive, range.unwrap(), [&b"c"[..]].into_iter());
    for key in [b"c", b"e"] {
        assert_eq!(ask(&t, &c, key, Shared), Attempt::Blocked);
    }
    assert_eq!(ask(&t, &a, b"c", Exclusive), Attempt::Held);
    t.release_all(&b);
    assert_eq!(ask(&t, &c, b"c", Shared), Attempt::Blocked);
    t.release_all(&a);
    assert_eq!(ask(&t, &c, b"c", Shared), Attempt::Granted);
    t.release_all(&c);
    is_clean(&t);
}

/// Two keys that have the same fingerprint in the one shard of a table.
fn with_one_fingerprint(t: &LockTable) -> [&'static [u8]; 2] {
    let mut seen = std::collections::HashMap::new();
    for n in 0u32.. {
        let of = (t.key(IX, &n.to_be_bytes()).hash >> 16) as u32;
        if let Some(other) = seen.insert(of, n) {
            return [other, n].map(|n| &*n.to_be_bytes().to_vec().leak());
        }
    }
    unreachable!()
}

/// Who waits for a key takes no lock of another key away that has its fingerprint.
#[test]
fn keys_of_one_fingerprint_are_both_locked() {
    for asks_for_both in [false, true] {
        let t = table_with(1);
        let [a, b, c] = owners();
        let [first, second] = with_one_fingerprint(&t);
        assert_eq!(ask(&t, &a, first, Exclusive), Attempt::Granted);
        if asks_for_both {
            assert_eq!(ask(&t, &a, second, Exclusive), Attempt::Held);
        }
        let waiter = ask_in_thread(&t, &b, second, Exclusive, Record, LONG);
        assert!(b.is_waiting());
        for key in [first, second] {
            assert_eq!(ask(&t, &c, key, Exclusive), Attempt::Blocked);
            assert_eq!(ask(&t, &a, key, Exclusive), Attempt::Held);
        }
        let other = ask_in_thread(&t, &c, first, Shared, Record, LONG);
        assert!(c.is_waiting());
        t.release_all(&a);
        assert_eq!(waiter.join().unwrap().unwrap(), Attempt::Granted);
        assert_eq!(other.join().unwrap().unwrap(), Attempt::Granted);
        t.release_all(&b);
        t.release_all(&c);
        is_clean(&t);
    }
}

/// What a set's lock is in a line besides goes with it, and is counted as it came.
#[test]
fn a_lock_of_a_set_that_is_waited_for_is_given_back() {
    for at_prepare in [false, true] {
        let t = table_with(1);
        let [a, b] = owners();
        assert_eq!(ask(&t, &a, b"k", Shared), Attempt::Granted);
        let waiter = ask_in_thread(&t, &b, b"k", Exclusive, Record, LONG);
        assert!(b.is_waiting());
        match at_prepare {
            true => t.release_at_prepare(&a, crate::AtPrepare::Reads),
            false => t.unlock(&a, IX, b"k", Shared),
        }
        assert_eq!(waiter.join().unwrap().unwrap(), Attempt::Granted);
        assert_eq!((a.locks_held(), b.locks_held()), (0, 1));
        assert_eq!(ask(&t, &a, b"k", Shared), Attempt::Blocked);
        t.release_all(&a);
        t.release_all(&b);
        is_clean(&t);
    }
}
