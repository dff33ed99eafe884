//! Tests of ranges: what a long locking scan holds instead of a lock on each key.

use ferrite_sync::thread;
use ferrite_types::Error;

use crate::tests::{ask_in_thread, is_clean, owners, table, IX, LONG};
use crate::Mode::{Exclusive, Shared};
use crate::Span::{Gap, InsertIntention, NextKey, Record};
use crate::{Attempt, LockRequest, NoHooks, WaitPolicy};

#[test]
fn a_range_is_a_lock_on_each_key_in_it() {
    let t = table();
    let [a, b] = owners();
    let mut range = None;
    for key in [b"c", b"e", b"g"] {
        let got = t.try_lock_in_range(&a, IX, key, Exclusive, &mut range);
        assert_eq!(got.unwrap(), Attempt::Held);
    }
    assert_eq!((a.locks_held(), t.stats().keys), (3, 0));
    for (key, span, wait) in [
        (b"b", Record, false),
        (b"c", Record, true),
        (b"c", InsertIntention, true),
        (b"d", Record, true),
        (b"e", Gap, false),
        (b"g", InsertIntention, true),
        (b"h", InsertIntention, false),
    ] {
        assert_eq!(
            t.conflicts(&b, LockRequest::new(IX, key, Exclusive, span)),
            wait,
            "{key:?}"
        );
        assert!(
            !t.conflicts(&a, LockRequest::new(IX, key, Exclusive, span)),
            "{key:?}"
        );
        assert_eq!(
            t.is_untouched(IX, key),
            (b"b" > key) || (key > b"g") || key == b"b"
        );
    }
    assert!(!t.is_anchor(IX, b"e") && t.is_anchor(IX, b"g"));
    assert!(
        t.try_lock(&a, LockRequest::new(IX, b"d", Shared, Record))
            .unwrap()
            == Attempt::Held
    );
    t.release_all(&a);
    is_clean(&t);
}

#[test]
fn who_meets_a_range_waits_for_its_owner() {
    let t = table();
    let [a, b, c] = owners();
    let mut range = None;
    for key in [b"c", b"e", b"g"] {
        let got = t.try_lock_in_range(&a, IX, key, Shared, &mut range);
        assert!(got.unwrap().is_granted());
    }
    let nowait = WaitPolicy::for_ms(0);
    let got = t.lock_wait(
        &b,
        LockRequest::new(IX, b"e", Exclusive, Record),
        nowait,
        &NoHooks,
    );
    assert_eq!(got, Err(Error::LockTimeout));
    let writer = ask_in_thread(&t, &b, b"e", Exclusive, Record, LONG);
    let insert = ask_in_thread(&t, &c, b"g", Exclusive, InsertIntention, LONG);
    assert!(b.is_waiting() && c.is_waiting());
    let got = t.try_lock_in_range(&c, IX, b"e", Shared, &mut None);
    assert_eq!(got.unwrap(), Attempt::Blocked, "the writer came first");
    t.release_all(&a);
    assert_eq!(writer.join().unwrap().unwrap(), Attempt::Granted);
    assert!(insert.join().unwrap().unwrap().is_granted());
    t.release_all(&b);
    t.release_all(&c);
    is_clean(&t);
}

#[test]
fn ranges_take_part_in_deadlocks() {
    let t = table();
    let [a, b] = owners();
    for owner in [&a, &b] {
        let mut range = None;
        for key in [b"c", b"e"] {
            let got = t.try_lock_in_range(owner, IX, key, Shared, &mut range);
            assert!(got.unwrap().is_granted());
        }
    }
    let waiters = [(&a, b"c"), (&b, b"e")].map(|(owner, key)| {
        let (t, owner) = (t.clone(), owner.clone());
        thread::spawn("asks", move || {
            let got = t.lock_wait(
                &owner,
                LockRequest::new(IX, key, Exclusive, Record),
                LONG,
                &NoHooks,
            );
            t.release_all(&owner);
            got
        })
    });
    let results = waiters.map(|w| w.join().unwrap());
    let victims = results.iter().filter(|r| **r == Err(Error::Deadlock));
    assert_eq!(victims.count(), 1, "{results:?}");
    is_clean(&t);
}

#[test]
fn gaps_at_the_ends_of_a_range_move() {
    let t = table();
    let [a, b] = owners();
    let mut range = None;
    for key in [b"c", b"e"] {
        let got = t.try_lock_in_range(&a, IX, key, Exclusive, &mut range);
        assert!(got.unwrap().is_granted());
    }
    // Its own insert before the first key.
    t.inherit_gap(IX, b"c", b"b");
    assert!(t.conflicts(&b, LockRequest::new(IX, b"b", Exclusive, InsertIntention)));
    // The last key goes, and one in the middle.
    t.inherit_removed(IX, b"e", b"k");
    t.inherit_removed(IX, b"c", b"e");
    assert!(t.conflicts(&b, LockRequest::new(IX, b"k", Exclusive, InsertIntention)));
    assert_eq!(
        t.stats().keys,
        2,
        "within the range nothing had to be added"
    );
    t.release_all(&a);
    is_clean(&t);
}

#[test]
fn a_key_taken_into_a_range_loses_its_own_lock() {
    let t = table();
    let [a, b] = owners();
    let mut range = None;
    t.try_lock_in_range(&a, IX, b"c", Exclusive, &mut range)
        .unwrap();
    for key in [b"d", b"f"] {
        t.try_lock(&a, LockRequest::new(IX, key, Exclusive, NextKey))
            .unwrap();
    }
    let waiter = ask_in_thread(&t, &b, b"f", Exclusive, Record, LONG);
    t.try_lock_in_range(&a, IX, b"g", Exclusive, &mut range)
        .unwrap();
    let taken: [&[u8]; 2] = [b"d", b"f"];
    t.absorb(&a, IX, Exclusive, range.unwrap(), taken.into_iter());
    assert_eq!(t.stats().keys, 1, "somebody stands in line for f");
    assert!(b.is_waiting());
    assert!(t.conflicts(&b, LockRequest::new(IX, b"d", Shared, Record)));
    t.release_all(&a);
    waiter.join().unwrap().unwrap();
    t.release_all(&b);
    is_clean(&t);
}

/// A range begins late, above or below what its scan has locked until then, and takes that in.
#[test]
fn a_range_takes_in_what_was_locked_before_it_began() {
    for mode in [Shared, Exclusive] {
        for keys in [[b"c", b"e", b"g", b"i"], [b"i", b"g", b"e", b"c"]] {
            let t = table();
            let [a, b] = owners();
            for key in &keys[..3] {
                let got = t.try_lock(&a, LockRequest::new(IX, *key, mode, NextKey));
                assert_eq!(got.unwrap(), Attempt::Granted);
            }
            // Of this one the range does not say everything.
            t.try_lock(&a, LockRequest::new(IX, b"g", Exclusive, Record))
                .unwrap();
            let mut range = None;
            t.try_lock_in_range(&a, IX, keys[3], mode, &mut range)
                .unwrap();
            let singles = keys[..3].iter().map(|key| key.as_slice());
            t.absorb(&a, IX, mode, range.unwrap(), singles.clone());
            assert_eq!(t.stats().keys, u64::from(mode == Shared));
            assert_eq!(a.locks_held(), 4);
            let mut shown = Vec::new();
            t.each_lock(&mut |l| shown.push((l.key.clone(), l.until.clone())));
            assert!(shown.contains(&(b"c".to_vec(), b"i".to_vec())));
            for key in [b"c", b"d", b"e", b"g", b"h", b"i"] {
                assert!(t.conflicts(&b, LockRequest::new(IX, key, Exclusive, InsertIntention)));
                assert!(t.conflicts(&b, LockRequest::new(IX, key, Exclusive, Record)));
            }
            assert!(
                t.conflicts(&b, LockRequest::new(IX, b"g", Shared, Record)),
                "its own lock"
            );
            for key in [b"b", b"j"] {
                // Not `is_untouched`, which says no of every key in the shard of another's lock.
                assert!(!t.conflicts(&b, LockRequest::new(IX, key, Exclusive, Record)));
            }
            t.release_all(&a);
            // Its name is gone, and with it what it may take in.
            t.try_lock(&a, LockRequest::new(IX, b"c", mode, NextKey))
                .unwrap();
            t.absorb(&a, IX, mode, range.unwrap(), singles);
            assert_eq!(t.stats().keys, 1);
            t.release_all(&a);
            is_clean(&t);
        }
    }
}

/// Two scans of one transaction go through an index in opposite directions. One takes the other's
/// range in; the other goes on, under a name that is gone, at the very end of what is one range now.
#[test]
fn a_scan_whose_range_was_taken_in_goes_on_in_the_other() {
    for mode in [Shared, Exclusive] {
        let t = table();
        let [a, b] = owners();
        let (mut up, mut down) = (None, None);
        let lock = |key: &[u8], range: &mut _| {
            let got = t.try_lock_in_range(&a, IX, key, mode, range);
            assert_eq!(got.unwrap(), Attempt::Held);
        };
        lock(b"g", &mut down);
        for key in [b"c", b"e", b"g"] {
            lock(key, &mut up);
        }
        for key in [b"c", b"b"] {
            lock(key, &mut down);
        }
        let mut ranges = 0;
        t.each_lock(&mut |_| ranges += 1);
        assert_eq!(ranges, 1, "they do not overlap");
        t.release_all(&a);
        let got = t.try_lock(&b, LockRequest::new(IX, b"e", Exclusive, NextKey));
        assert_eq!(got.unwrap(), Attempt::Granted, "nothing is left");
        t.release_all(&b);
        is_clean(&t);
    }
}

/// The scans of a short transaction keep a lock for each key; of one that holds many, hardly any.
#[test]
fn who_holds_many_locks_folds_early() {
    let t = table();
    let [a, b] = owners();
    let after = t.config.fold_after;
    assert!(!t.folds(&a, after) && t.folds(&a, after + 1));
    for n in 0..1025u32 {
        let got = t.try_lock(
            &a,
            LockRequest::new(IX, &n.to_be_bytes(), Exclusive, NextKey),
        );
        assert!(got.unwrap().is_granted());
    }
    assert!(!t.folds(&a, 2) && t.folds(&a, 3) && !t.folds(&b, 3));
    t.release_all(&a);
    assert!(!t.folds(&a, 3));
    is_clean(&t);
}
