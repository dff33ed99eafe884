//! Tests of locks one situation at a time. Threads wait for each other by looking at the
//! lock table, never by sleeping for a guess.

use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::{Error, IndexId, Result, TableId};

use crate::mode::{conflicts, missing, row_mask, table_mask};
use crate::{
    Attempt, LockConfig, LockRequest, LockTable, Mode, NoHooks, Owner, Span, TableMode, WaitHooks,
    WaitPolicy,
};
use Mode::{Exclusive, Shared};
use Span::{Gap, InsertIntention, NextKey, Record};

pub(crate) const IX: IndexId = IndexId(7);
pub(crate) const LONG: WaitPolicy = WaitPolicy::for_ms(20_000);

/// Nobody looks around without being woken: what is found is found at once.
pub(crate) fn table() -> Arc<LockTable> {
    Arc::new(LockTable::new(LockConfig {
        shards: 16,
        ticker_us: 3_600_000_000,
        ..LockConfig::default()
    }))
}

pub(crate) fn owners<const N: usize>() -> [Arc<Owner>; N] {
    std::array::from_fn(|i| {
        let o = Owner::new(i as u64 + 1, i + 1);
        o.set_txn(ferrite_types::TxnId(i as u64 + 100));
        o
    })
}

/// Keeps whom a wait is told to be for.
struct Told(Arc<Mutex<Vec<usize>>>);

impl WaitHooks for Told {
    fn waiting_for(&self, thd: usize) {
        self.0.lock().push(thd);
    }
}

pub(crate) fn is_clean(t: &LockTable) {
    let s = t.stats();
    assert_eq!((s.keys, s.bytes, s.waiting), (0, 0, 0), "{s:?}");
    assert!(!t.has_gap_locks(IX));
    let mut locks = 0;
    t.each_lock(&mut |_| locks += 1);
    assert_eq!(locks, 0);
}

/// Asks in another thread; returns once it waits there.
pub(crate) fn ask_in_thread(
    t: &Arc<LockTable>,
    o: &Arc<Owner>,
    key: &'static [u8],
    mode: Mode,
    span: Span,
    wait: WaitPolicy,
) -> thread::JoinHandle<Result<Attempt>> {
    let (t, me) = (t.clone(), o.clone());
    let h = thread::spawn("asks", move || {
        t.lock_wait(&me, LockRequest::new(IX, key, mode, span), wait, &NoHooks)
    });
    while !o.is_waiting() && !h.is_finished() {
        thread::yield_now();
    }
    h
}

#[test]
fn compatibility_is_innodbs() {
    // Rows: asked. Columns: held. S, X on record, gap, next-key; insert intention.
    let spans = [
        (Shared, Record),
        (Exclusive, Record),
        (Shared, Gap),
        (Exclusive, Gap),
        (Shared, NextKey),
        (Exclusive, NextKey),
        (Exclusive, InsertIntention),
    ];
    #[rustfmt::skip]
    let waits = [
        // S  X  sg xg sn xn ii
        [0, 1, 0, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 1, 0],
        [1, 1, 0, 0, 1, 1, 0],
        [0, 0, 1, 1, 1, 1, 0],
    ];
    for (a, row) in spans.iter().zip(waits) {
        for (h, wait) in spans.iter().zip(row) {
            let got = conflicts(row_mask(a.0, a.1), row_mask(h.0, h.1));
            assert_eq!(got, wait == 1, "asked {a:?} held {h:?}");
        }
    }
    use TableMode as T;
    let modes = [T::IntentShared, T::IntentExclusive, T::Shared, T::Exclusive];
    let waits = [[0, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 1]];
    for (a, row) in modes.iter().zip(waits) {
        for (h, wait) in modes.iter().zip(row) {
            let got = conflicts(table_mask(*a), table_mask(*h));
            assert_eq!(got, wait == 1, "asked {a:?} held {h:?}");
        }
    }
    assert_eq!(
        missing(row_mask(Shared, NextKey), row_mask(Exclusive, Record)),
        4
    );
}

#[test]
fn the_table_agrees_with_the_matrix() {
    let all = [
        (Shared, Record),
        (Exclusive, Record),
        (Shared, Gap),
        (Exclusive, NextKey),
        (Exclusive, InsertIntention),
    ];
    for held in all {
        for asked in all {
            let t = table();
            let [a, b] = owners();
            assert!(t.is_untouched(IX, b"k"));
            let first = t
                .try_lock(&a, LockRequest::new(IX, b"k", held.0, held.1))
                .unwrap();
            assert_eq!(first, Attempt::Granted);
            assert_eq!(t.is_untouched(IX, b"k"), held.1 == InsertIntention);
            let wait = conflicts(row_mask(asked.0, asked.1), row_mask(held.0, held.1));
            assert_eq!(
                t.conflicts(&b, LockRequest::new(IX, b"k", asked.0, asked.1)),
                wait
            );
            assert!(!t.conflicts(&b, LockRequest::new(IX, b"other", asked.0, asked.1)));
            assert!(!t.conflicts(&b, LockRequest::new(IndexId(8), b"k", asked.0, asked.1)));
            let got = t
                .try_lock(&b, LockRequest::new(IX, b"k", asked.0, asked.1))
                .unwrap();
            assert_eq!(got.is_granted(), !wait, "held {held:?} asked {asked:?}");
            assert_eq!(t.has_gap_locks(IX), {
                let gap = |s| s == Gap || s == NextKey;
                gap(held.1) || (!wait && gap(asked.1))
            });
            t.release_all(&a);
            t.release_all(&b);
            is_clean(&t);
        }
    }
}

#[test]
fn what_is_held_is_not_added_again() {
    let t = table();
    let [a, b] = owners();
    assert_eq!(
        t.try_lock(&a, LockRequest::new(IX, b"k", Exclusive, NextKey)),
        Ok(Attempt::Granted)
    );
    let bytes = t.stats().bytes;
    for span in [Record, Gap, NextKey] {
        for mode in [Shared, Exclusive] {
            assert_eq!(
                t.try_lock(&a, LockRequest::new(IX, b"k", mode, span)),
                Ok(Attempt::Held)
            );
        }
    }
    assert_eq!((t.stats().bytes, a.locks_held()), (bytes, 1));
    // A gap lock first, then the record: the record part is new.
    assert_eq!(
        t.try_lock(&b, LockRequest::new(IX, b"m", Shared, Gap)),
        Ok(Attempt::Granted)
    );
    assert_eq!(
        t.try_lock(&b, LockRequest::new(IX, b"m", Shared, Record)),
        Ok(Attempt::Granted)
    );
    assert_eq!(
        t.try_lock(&b, LockRequest::new(IX, b"m", Exclusive, Record)),
        Ok(Attempt::Stronger)
    );
    assert_eq!(b.locks_held(), 1);
    assert!(t.conflicts(&a, LockRequest::new(IX, b"m", Shared, Record)));
    // Each mode is given back by itself.
    t.unlock(&b, IX, b"m", Exclusive);
    assert!(!t.conflicts(&a, LockRequest::new(IX, b"m", Shared, Record)));
    assert!(t.conflicts(&a, LockRequest::new(IX, b"m", Exclusive, Record)));
    t.unlock(&b, IX, b"m", Shared);
    assert_eq!(
        t.try_lock(&a, LockRequest::new(IX, b"m", Exclusive, Record)),
        Ok(Attempt::Granted)
    );
    assert!(t.conflicts(&a, LockRequest::new(IX, b"m", Exclusive, InsertIntention)));
    t.release_all(&b);
    assert!(!t.conflicts(&a, LockRequest::new(IX, b"m", Exclusive, InsertIntention)));
    t.release_all(&a);
    is_clean(&t);
}

#[test]
fn waiters_are_served_in_order() {
    let t = table();
    let [a, b, c, d, e] = owners();
    let order = Arc::new(Mutex::new(Vec::new()));
    t.try_lock(&a, LockRequest::new(IX, b"k", Shared, Record))
        .unwrap();
    let mut handles = Vec::new();
    for (o, mode) in [(&b, Exclusive), (&c, Shared), (&d, Shared), (&e, Exclusive)] {
        let (t2, o2, order) = (t.clone(), o.clone(), order.clone());
        handles.push(thread::spawn("waits", move || {
            t2.lock_wait(
                &o2,
                LockRequest::new(IX, b"k", mode, Record),
                LONG,
                &NoHooks,
            )
            .unwrap();
            order.lock().push(o2.thread_id);
            if mode == Shared {
                // Both readers are in together before either leaves.
                while order.lock().len() < 3 {
                    thread::yield_now();
                }
            }
            t2.release_all(&o2);
        }));
        while !o.is_waiting() {
            thread::yield_now();
        }
    }
    // A new reader does not overtake the waiting writer; who has it already is served.
    let [_, _, _, _, _, f] = owners();
    assert_eq!(
        t.try_lock(&f, LockRequest::new(IX, b"k", Shared, Record)),
        Ok(Attempt::Blocked)
    );
    assert_eq!(
        t.try_lock(&a, LockRequest::new(IX, b"k", Shared, Record)),
        Ok(Attempt::Held)
    );
    let mut edges = Vec::new();
    t.each_wait(&mut |w| edges.push((w.wanted.thread_id, w.blocker_thread_id)));
    edges.sort();
    assert_eq!(
        edges,
        [(2, 1), (3, 2), (4, 2), (5, 1), (5, 2), (5, 3), (5, 4)]
    );
    t.release_all(&a);
    handles.into_iter().for_each(|h| h.join().unwrap());
    let got = order.lock().clone();
    assert_eq!((got[0], got[3]), (2, 5), "{got:?}");
    is_clean(&t);
    assert_eq!(t.stats().waits, 4);
}

#[test]
fn a_holder_strengthens_its_lock_past_those_who_wait_for_it() {
    let t = table();
    let [a, b, c] = owners();
    t.try_lock(&a, LockRequest::new(IX, b"k", Shared, Record))
        .unwrap();
    let h = ask_in_thread(&t, &b, b"k", Exclusive, Record, LONG);
    assert_eq!(
        t.try_lock(&a, LockRequest::new(IX, b"k", Exclusive, Record)),
        Ok(Attempt::Stronger)
    );
    assert_eq!(
        t.try_lock(&c, LockRequest::new(IX, b"k", Shared, Record)),
        Ok(Attempt::Blocked)
    );
    t.release_all(&a);
    assert_eq!(h.join().unwrap(), Ok(Attempt::Granted));
    t.release_all(&b);
    is_clean(&t);
    assert_eq!(t.stats().deadlocks, 0);
}

#[test]
fn timeouts_and_refusals_leave_nothing() {
    let t = table();
    let [a, b] = owners();
    t.try_lock(&a, LockRequest::new(IX, b"k", Exclusive, NextKey))
        .unwrap();
    let ask = |wait| {
        t.lock_wait(
            &b,
            LockRequest::new(IX, b"k", Shared, NextKey),
            wait,
            &NoHooks,
        )
    };
    let nowait = WaitPolicy {
        nowait: true,
        ..LONG
    };
    let skip = WaitPolicy {
        skip_locked: true,
        ..LONG
    };
    assert_eq!(ask(nowait), Err(Error::LockTimeout));
    assert_eq!(ask(skip), Err(Error::Skipped));
    assert_eq!(ask(WaitPolicy::for_ms(0)), Err(Error::LockTimeout));
    assert_eq!(t.stats().waits, 0);
    assert_eq!(ask(WaitPolicy::for_ms(20)), Err(Error::LockTimeout));
    let s = t.stats();
    assert_eq!((s.waits, s.timeouts), (1, 1));
    assert!(s.wait_us_max >= 20_000, "{s:?}");
    assert!(b.waiting_since_us().is_none());
    // One who waited behind the one that gave up goes on.
    t.release_all(&a);
    t.try_lock(&a, LockRequest::new(IX, b"k", Shared, Record))
        .unwrap();
    let x = ask_in_thread(&t, &b, b"k", Exclusive, Record, WaitPolicy::for_ms(50));
    let [_, _, c] = owners();
    let s = ask_in_thread(&t, &c, b"k", Shared, Record, LONG);
    assert_eq!(x.join().unwrap(), Err(Error::LockTimeout));
    assert_eq!(s.join().unwrap(), Ok(Attempt::Granted));
    t.release_all(&a);
    t.release_all(&c);
    is_clean(&t);
}

#[test]
fn interrupts_end_a_wait_at_once() {
    let t = table();
    let [a, b] = owners();
    t.try_lock(&a, LockRequest::new(IX, b"k", Exclusive, Record))
        .unwrap();
    let h = ask_in_thread(&t, &b, b"k", Exclusive, Record, LONG);
    t.interrupt(&b);
    assert_eq!(h.join().unwrap(), Err(Error::Interrupted));
    // It lasts until the session clears it.
    let again = t.lock_wait(
        &b,
        LockRequest::new(IX, b"k", Shared, Record),
        LONG,
        &NoHooks,
    );
    assert_eq!(again, Err(Error::Interrupted));
    b.interrupted.store(false, Ordering::SeqCst);

    struct Killed(AtomicBool, AtomicU64, Mutex<Vec<usize>>);
    impl WaitHooks for Killed {
        fn begin(&self) {
            self.1.fetch_add(1, Ordering::SeqCst);
        }
        fn end(&self, _us: u64) {
            self.1.fetch_add(10, Ordering::SeqCst);
        }
        fn is_killed(&self) -> bool {
            self.0.swap(true, Ordering::SeqCst)
        }
        fn waiting_for(&self, thd: usize) {
            self.2.lock().push(thd);
        }
    }
    let hooks = Killed(AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
    let got = t.lock_wait(&b, LockRequest::new(IX, b"k", Shared, Record), LONG, &hooks);
    assert_eq!(got, Err(Error::Interrupted));
    assert_eq!(hooks.1.load(Ordering::SeqCst), 11);
    assert_eq!(*hooks.2.lock(), [1]);
    t.release_all(&a);
    is_clean(&t);
    assert_eq!(t.stats().interrupts, 3);
}

/// `n` owners, each holding its own key and asking for the next one's.
fn ring_of(
    n: usize,
    changes: &[u64],
    hooks: &'static (dyn WaitHooks + Sync),
) -> (Arc<LockTable>, Vec<Result<Attempt>>) {
    static KEYS: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let t = table();
    let os: [Arc<Owner>; 4] = owners();
    for (i, c) in changes.iter().enumerate() {
        os[i].changes.store(*c, Ordering::Relaxed);
        t.try_lock(&os[i], LockRequest::new(IX, KEYS[i], Exclusive, Record))
            .unwrap();
    }
    let mut handles = Vec::new();
    for i in 0..n {
        let (t2, o) = (t.clone(), os[i].clone());
        handles.push(thread::spawn("asks", move || {
            let r = t2.lock_wait(
                &o,
                LockRequest::new(IX, KEYS[(i + 1) % n], Exclusive, Record),
                LONG,
                hooks,
            );
            t2.release_all(&o);
            r
        }));
        while i + 1 < n && !os[i].is_waiting() {
            thread::yield_now();
        }
    }
    let results = handles.into_iter().map(|h| h.join().unwrap()).collect();
    (t, results)
}

#[test]
fn deadlocks_of_two_and_three_and_four_are_broken_at_once() {
    for (n, changes) in [(2, vec![5, 1]), (3, vec![9, 2, 9]), (4, vec![4, 3, 2, 9])] {
        let (t, results) = ring_of(n, &changes, &NoHooks);
        let lightest = (0..n).min_by_key(|i| changes[*i]).unwrap();
        for (i, r) in results.iter().enumerate() {
            let expected = if i == lightest {
                Err(Error::Deadlock)
            } else {
                Ok(Attempt::Granted)
            };
            assert_eq!(*r, expected, "{i} of {n}");
        }
        is_clean(&t);
        assert!(t.stats().wait_us_max < 5_000_000);
        let told = t.deadlocks();
        assert_eq!((told.len(), told[0].members.len()), (1, n));
        let victims: Vec<_> = told[0].members.iter().filter(|m| m.victim).collect();
        assert_eq!(victims.len(), 1);
        assert_eq!(victims[0].thread_id, lightest as u64 + 1);
        assert_eq!(victims[0].wanted, "X,REC_NOT_GAP");
        assert_eq!(victims[0].key.len(), 1);
        assert!(told[0].members.iter().all(|m| m.held == "X,REC_NOT_GAP"));
        assert_eq!((told[0].number, told[0].size), (1, n));
    }
}

#[test]
fn the_server_may_prefer_a_victim_and_ties_hit_one() {
    struct Prefer;
    impl WaitHooks for Prefer {
        fn prefer_victim(&self, a: usize, b: usize) -> i32 {
            i32::from(b == 2) - i32::from(a == 2)
        }
        fn query_of(&self, thd: usize) -> Vec<u8> {
            vec![thd as u8]
        }
    }
    let (t, results) = ring_of(3, &[1, 50, 1], &Prefer);
    assert_eq!(results[1], Err(Error::Deadlock));
    let told = t.last_deadlock_of(2).unwrap();
    assert!(told.members.iter().all(|m| m.query == [m.thread_id as u8]));
    assert!(t.last_deadlock_of(1).is_none());
    let (_, results) = ring_of(3, &[1, 1, 1], &NoHooks);
    let victims = results.iter().filter(|r| **r == Err(Error::Deadlock));
    assert_eq!(victims.count(), 1);
}

#[test]
fn the_journal_is_bounded() {
    let t = table();
    let [a, b]: [Arc<Owner>; 2] = owners();
    for _ in 0..120 {
        t.try_lock(&a, LockRequest::new(IX, b"a", Exclusive, Record))
            .unwrap();
        t.try_lock(&b, LockRequest::new(IX, b"b", Exclusive, Record))
            .unwrap();
        let h = ask_in_thread(&t, &a, b"b", Exclusive, Record, LONG);
        let r = t.lock_wait(
            &b,
            LockRequest::new(IX, b"a", Exclusive, Record),
            LONG,
            &NoHooks,
        );
        assert_eq!(r, Err(Error::Deadlock));
        t.release_all(&b);
        h.join().unwrap().unwrap();
        t.release_all(&a);
    }
    let numbers: Vec<u64> = t.deadlocks().iter().map(|d| d.number).collect();
    assert_eq!(numbers, (21..=120).collect::<Vec<u64>>());
}

#[test]
fn without_detection_a_deadlock_times_out() {
    let t = table();
    t.set_deadlock_detect(false);
    let [a, b] = owners();
    t.try_lock(&a, LockRequest::new(IX, b"a", Exclusive, Record))
        .unwrap();
    t.try_lock(&b, LockRequest::new(IX, b"b", Exclusive, Record))
        .unwrap();
    let h = ask_in_thread(&t, &a, b"b", Exclusive, Record, LONG);
    let short = WaitPolicy::for_ms(50);
    let r = t.lock_wait(
        &b,
        LockRequest::new(IX, b"a", Exclusive, Record),
        short,
        &NoHooks,
    );
    assert_eq!(r, Err(Error::LockTimeout));
    t.release_all(&b);
    assert_eq!(h.join().unwrap(), Ok(Attempt::Granted));
    t.release_all(&a);
    is_clean(&t);
}

#[test]
fn gaps_follow_inserts_and_removals() {
    let t = table();
    let [a, b, c] = owners();
    t.try_lock(&a, LockRequest::new(IX, b"m", Shared, NextKey))
        .unwrap();
    assert!(t.conflicts(&b, LockRequest::new(IX, b"m", Exclusive, InsertIntention)));
    assert!(!t.conflicts(&a, LockRequest::new(IX, b"m", Exclusive, InsertIntention)));
    // The holder inserts "f": the gap before "f" is still locked for others.
    t.inherit_gap(IX, b"m", b"f");
    assert!(t.conflicts(&b, LockRequest::new(IX, b"f", Exclusive, InsertIntention)));
    assert!(!t.conflicts(&b, LockRequest::new(IX, b"f", Exclusive, Record)));
    assert_eq!(a.locks_held(), 2);
    t.inherit_gap(IX, b"m", b"f");
    assert_eq!(a.locks_held(), 2);
    // "m" is purged: the holder keeps the gap up to "z"; a READ COMMITTED one does not.
    c.no_gaps.store(true, Ordering::Relaxed);
    t.try_lock(&c, LockRequest::new(IX, b"m", Shared, Record))
        .unwrap();
    t.inherit_removed(IX, b"m", b"z");
    assert!(t.conflicts(&c, LockRequest::new(IX, b"z", Exclusive, InsertIntention)));
    assert!(!t.conflicts(&a, LockRequest::new(IX, b"z", Exclusive, InsertIntention)));
    // A waiting insert goes on when the gap is free.
    let h = ask_in_thread(&t, &b, b"z", Exclusive, InsertIntention, LONG);
    t.release_all(&a);
    assert!(h.join().unwrap().unwrap().is_granted());
    assert_eq!(b.locks_held(), 0);
    t.release_all(&c);
    is_clean(&t);
}

#[test]
fn a_gap_that_moves_before_a_waiter_is_seen_by_the_detector() {
    // b waits to insert before "k" (gap held by a). c holds the gap before "p", and waits
    // for a row of b. Then "p"'s gap moves to "k": b waits for c now, a cycle.
    let t = table();
    let [a, b, c] = owners();
    t.try_lock(&a, LockRequest::new(IX, b"k", Shared, Gap))
        .unwrap();
    t.try_lock(&c, LockRequest::new(IX, b"p", Shared, Gap))
        .unwrap();
    t.try_lock(&b, LockRequest::new(IX, b"row", Exclusive, Record))
        .unwrap();
    b.changes.store(5, Ordering::Relaxed);
    let hb = ask_in_thread(&t, &b, b"k", Exclusive, InsertIntention, LONG);
    let hc = ask_in_thread(&t, &c, b"row", Exclusive, Record, LONG);
    t.inherit_gap(IX, b"p", b"k");
    assert_eq!(hc.join().unwrap(), Err(Error::Deadlock));
    t.release_all(&c);
    t.release_all(&a);
    assert!(hb.join().unwrap().is_ok());
    t.release_all(&b);
    is_clean(&t);
}

#[test]
fn table_locks() {
    let t = table();
    let os: [Arc<Owner>; 4] = owners();
    let [a, b, c, d] = &os;
    let id = TableId(3);
    let lock = |o, mode, ms| t.table_lock(o, id, mode, WaitPolicy::for_ms(ms), &NoHooks);
    use TableMode as T;
    lock(a, T::IntentExclusive, 1).unwrap();
    lock(b, T::IntentExclusive, 1).unwrap();
    lock(a, T::IntentShared, 1).unwrap();
    assert_eq!(a.locks_held(), 1);
    assert_eq!(lock(c, T::Shared, 10), Err(Error::LockTimeout));
    assert_eq!(c.locks_held(), 0);
    t.release_all(a);
    t.release_all(b);
    lock(c, T::Shared, 1).unwrap();
    lock(d, T::Shared, 1).unwrap();
    lock(a, T::IntentShared, 1).unwrap();
    assert_eq!(lock(b, T::IntentExclusive, 10), Err(Error::LockTimeout));
    t.table_unlock(d, id, T::Shared);
    t.table_unlock(c, id, T::Shared);
    lock(b, T::IntentExclusive, 1).unwrap();
    lock(b, T::Exclusive, 10).unwrap_err();
    t.release_all(a);
    lock(b, T::Exclusive, 10).unwrap();
    let mut seen = 0;
    t.each_lock(&mut |l| {
        assert_eq!((l.table, l.thread_id), (Some(id), 2));
        seen += 1;
    });
    assert_eq!(seen, 1, "a row for each stripe");
    os.iter().for_each(|o| t.release_all(o));
    is_clean(&t);
}

/// Who joins waits to locks meets each lock once: what is held and what is asked for are two, and so are two tables.
#[test]
fn each_lock_and_request_has_an_id_of_its_own() {
    let t = table();
    let os: [Arc<Owner>; 4] = owners();
    let [a, b, c, d] = &os;
    let table_lock = |o: &Arc<Owner>, id, mode| {
        let (t, o) = (t.clone(), o.clone());
        let me = o.clone();
        let h = thread::spawn("asks", move || {
            t.table_lock(&me, TableId(id), mode, LONG, &NoHooks)
        });
        while !o.is_waiting() && !h.is_finished() {
            thread::yield_now();
        }
        h
    };
    for o in [a, b] {
        let ended = table_lock(o, 3, TableMode::IntentExclusive).join();
        ended.unwrap().unwrap();
        let ended = table_lock(o, 4, TableMode::Shared).join();
        ended.unwrap().unwrap();
    }
    t.auto_inc_lock(a, TableId(3), LONG, &NoHooks).unwrap();
    for o in [a, b] {
        t.try_lock(o, LockRequest::new(IX, b"k", Shared, Record))
            .unwrap();
    }
    // Holds it, and waits for more.
    let mut waits = vec![ask_in_thread(&t, b, b"k", Exclusive, Record, LONG)];
    waits.push(ask_in_thread(&t, c, b"k", Exclusive, Record, LONG));
    let whole = table_lock(d, 3, TableMode::Exclusive);

    let mut seen = 0;
    t.each_lock_while(&mut |_| {
        seen += 1;
        false
    });
    assert_eq!(seen, 1, "shown to one who has seen enough");
    let (mut locks, mut edges) = (Vec::new(), Vec::new());
    t.each_lock(&mut |l| locks.push(l.clone()));
    t.each_wait(&mut |w| edges.push(w.clone()));
    let with = |id: u64| locks.iter().filter(|l| l.id == id).collect::<Vec<_>>();
    for lock in &locks {
        assert_eq!(with(lock.id).len(), 1, "{lock:?} of {locks:?}");
    }
    let of = |table, thread| {
        let is_it = |l: &&crate::LockInfo| (l.table, l.thread_id) == (Some(TableId(table)), thread);
        locks.iter().filter(is_it).count()
    };
    // Of the first one AUTO_INC besides; the last one has some stripes, and waits for others.
    assert_eq!((of(3, 1), of(3, 2), of(4, 1), of(4, 2)), (2, 1, 1, 1));
    assert_eq!(of(3, 4), 2, "{locks:?}");
    assert!(edges.len() >= 4, "{edges:?}");
    for edge in &edges {
        let (asked, in_the_way) = (with(edge.wanted.id), with(edge.blocker_id));
        assert!(asked.len() == 1 && asked[0].waiting, "{edge:?}");
        assert!(in_the_way.len() == 1, "{edge:?} of {locks:?}");
        assert_eq!(in_the_way[0].thread_id, edge.blocker_thread_id);
    }
    let of_c = edges.iter().filter(|e| e.wanted.thread_id == 3);
    let of_c: Vec<bool> = of_c.map(|e| with(e.blocker_id)[0].waiting).collect();
    assert_eq!(
        of_c,
        [false, false, true],
        "two hold it, one stands in front"
    );

    for o in [a, b] {
        t.release_all(o);
    }
    whole.join().unwrap().unwrap();
    t.release_all(d);
    for h in waits {
        h.join().unwrap().unwrap();
        t.release_all(b);
        t.release_all(c);
    }
    is_clean(&t);
}

#[test]
fn auto_inc_is_a_lock_of_its_own() {
    let t = table();
    let os: [Arc<Owner>; 2] = owners();
    let [a, b] = &os;
    let id = TableId(3);
    let auto_inc = |o, ms| t.auto_inc_lock(o, id, WaitPolicy::for_ms(ms), &NoHooks);
    let whole = |o, ms| {
        t.table_lock(
            o,
            id,
            TableMode::Exclusive,
            WaitPolicy::for_ms(ms),
            &NoHooks,
        )
    };
    auto_inc(a, 1).unwrap();
    auto_inc(a, 1).unwrap();
    assert_eq!(a.locks_held(), 1, "once, however often it is asked for");
    assert_eq!(auto_inc(b, 10), Err(Error::LockTimeout));
    t.auto_inc_lock(b, TableId(4), WaitPolicy::for_ms(1), &NoHooks)
        .unwrap();
    whole(b, 1).unwrap();
    let mut words = Vec::new();
    t.each_lock(&mut |l| words.extend((l.thread_id == a.thread_id).then_some(l.mode)));
    assert_eq!(words, ["AUTO_INC"]);
    t.auto_inc_unlock(b, id);
    t.auto_inc_unlock(a, id);
    t.auto_inc_unlock(a, id);
    assert_eq!(a.locks_held(), 0);
    auto_inc(b, 1).unwrap();
    os.iter().for_each(|o| t.release_all(o));
    is_clean(&t);
}

#[test]
fn memory_is_limited_and_given_back() {
    let t = LockTable::new(LockConfig {
        shards: 4,
        limit_bytes: 20_000,
        ..LockConfig::default()
    });
    let [a] = owners();
    let mut n = 0u32;
    let full = loop {
        match t.try_lock(
            &a,
            LockRequest::new(IX, &n.to_be_bytes(), Exclusive, Record),
        ) {
            Ok(_) => n += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(full, Error::LockTableFull);
    assert!((100..200).contains(&n), "{n}");
    // What it has it may still ask for.
    assert!(t
        .try_lock(
            &a,
            LockRequest::new(IX, &0u32.to_be_bytes(), Shared, Record)
        )
        .is_ok());
    t.release_all(&a);
    is_clean(&t);
}

/// A connection that ends while a waiter tells the server about it is waited for, and nobody names
/// it afterwards.
#[test]
fn a_connection_does_not_end_while_it_is_named() {
    struct Slow {
        named: Arc<Mutex<Vec<usize>>>,
        inside: Arc<AtomicBool>,
        go_on: Arc<AtomicBool>,
    }
    impl WaitHooks for Slow {
        fn waiting_for(&self, holder_thd: usize) {
            self.inside.store(true, Ordering::SeqCst);
            while !self.go_on.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            self.named.lock().push(holder_thd);
            self.inside.store(false, Ordering::SeqCst);
        }
    }
    let t = table();
    let [holder, b, c] = owners();
    t.try_lock(&holder, LockRequest::new(IX, b"k", Exclusive, Record))
        .unwrap();
    let named = Arc::new(Mutex::new(Vec::new()));
    let (inside, go_on) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let waits = |who: &Arc<Owner>| {
        let (t, who) = (t.clone(), who.clone());
        let hooks = Slow {
            named: named.clone(),
            inside: inside.clone(),
            go_on: go_on.clone(),
        };
        thread::spawn("waits", move || {
            let got = t.lock_wait(
                &who,
                LockRequest::new(IX, b"k", Exclusive, Record),
                LONG,
                &hooks,
            );
            t.release_all(&who);
            got
        })
    };
    let first = waits(&b);
    while !inside.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let ends = {
        let (holder, inside) = (holder.clone(), inside.clone());
        thread::spawn("ends", move || {
            holder.forget_thd();
            assert!(
                !inside.load(Ordering::SeqCst),
                "the server still looks at it"
            );
        })
    };
    thread::sleep_ms(20);
    assert!(!ends.is_finished(), "it waits for who names it");
    go_on.store(true, Ordering::SeqCst);
    ends.join().unwrap();
    // The next waiter names the one in front only.
    let second = waits(&c);
    while !c.is_waiting() {
        thread::yield_now();
    }
    while named.lock().len() < 2 {
        thread::yield_now();
    }
    assert_eq!(*named.lock(), [1, 2]);
    t.release_all(&holder);
    first.join().unwrap().unwrap();
    second.join().unwrap().unwrap();
    is_clean(&t);
}

#[test]
fn who_does_not_want_reports_gets_none() {
    struct Quiet(Mutex<Vec<usize>>, bool);
    impl WaitHooks for Quiet {
        fn wants_reports(&self) -> bool {
            self.1
        }
        fn waiting_for(&self, thd: usize) {
            self.0.lock().push(thd);
        }
    }
    let t = table();
    let [a, b] = owners();
    t.try_lock(&a, LockRequest::new(IX, b"k", Exclusive, Record))
        .unwrap();
    for (wants, told) in [(false, vec![]), (true, vec![1])] {
        let hooks = Quiet(Mutex::default(), wants);
        let short = WaitPolicy::for_ms(20);
        let got = t.lock_wait(
            &b,
            LockRequest::new(IX, b"k", Shared, Record),
            short,
            &hooks,
        );
        assert_eq!(got, Err(Error::LockTimeout));
        assert_eq!(*hooks.0.lock(), told);
    }
    t.release_all(&a);
    is_clean(&t);
}

/// A lock on a gap is given whoever waits to insert there. A parallel replica hears of it at once, by
/// either way: taken, or given with a row that was waited for.
#[test]
fn who_comes_to_stand_in_the_way_is_reported() {
    let t = table();
    let [a, b, c, d] = owners();
    let told = Arc::new(Mutex::new(Vec::new()));
    let is_told = |thds: &[usize]| {
        for _ in 0..2_000 {
            if *told.lock() == thds {
                return;
            }
            thread::sleep_ms(10);
        }
        panic!("told of {:?}, not of {thds:?}", *told.lock());
    };
    let next = LockRequest::new(IX, b"k", Exclusive, NextKey);
    t.try_lock(&a, next).unwrap();
    let (table, inserts, hooks) = (t.clone(), b.clone(), Told(told.clone()));
    let inserts = thread::spawn("inserts", move || {
        let request = LockRequest::new(IX, b"k", Exclusive, InsertIntention);
        table.lock_wait(&inserts, request, LONG, &hooks)
    });
    is_told(&[1]);
    let gap = LockRequest::new(IX, b"k", Shared, Gap);
    assert_eq!(t.try_lock(&c, gap), Ok(Attempt::Granted));
    is_told(&[1, 3]);
    let waits = ask_in_thread(&t, &d, b"k", Exclusive, NextKey, LONG);
    t.release_all(&a);
    waits.join().unwrap().unwrap();
    is_told(&[1, 3, 4]);
    t.release_all(&c);
    assert!(!inserts.is_finished(), "behind the fourth");
    t.release_all(&d);
    inserts.join().unwrap().unwrap();
    t.release_all(&b);
    is_clean(&t);
}

/// Sessions come and go, and a new one's owner may lie where that of an ended one lay: it is reported all
/// the same.
#[test]
fn each_new_session_in_the_way_is_reported() {
    let t = table();
    let [a, b] = owners();
    let gap = LockRequest::new(IX, b"k", Shared, Gap);
    t.try_lock(&a, gap).unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let (table, inserts, hooks) = (t.clone(), b.clone(), Told(told.clone()));
    let inserts = thread::spawn("inserts", move || {
        let request = LockRequest::new(IX, b"k", Exclusive, InsertIntention);
        table.lock_wait(&inserts, request, LONG, &hooks)
    });
    for thd in 10..20 {
        let owner = Owner::new(thd as u64, thd);
        assert_eq!(t.try_lock(&owner, gap), Ok(Attempt::Granted));
        let is_told = (0..2_000).any(|_| {
            thread::sleep_ms(1);
            told.lock().contains(&thd)
        });
        assert!(is_told, "{thd} is not named: {:?}", *told.lock());
        t.release_all(&owner);
    }
    t.release_all(&a);
    inserts.join().unwrap().unwrap();
    t.release_all(&b);
    is_clean(&t);
}

/// Who looks at a waiter through the server is waited for by it: its connection does not go on
/// with its transaction meanwhile.
#[test]
fn a_waiter_stays_while_it_is_looked_at() {
    let t = table();
    let [a, b] = owners();
    t.try_lock(&a, LockRequest::new(IX, b"k", Exclusive, Record))
        .unwrap();
    let waits = ask_in_thread(&t, &b, b"k", Exclusive, Record, LONG);
    let sequence = b.wait_sequence().unwrap();
    let thd = b.while_waiting(sequence, |thd| {
        t.release_all(&a);
        thread::sleep_ms(20);
        assert!(!waits.is_finished(), "it has gone on");
        thd
    });
    assert_eq!(thd, Some(2));
    waits.join().unwrap().unwrap();
    assert_eq!(b.while_waiting(sequence, |thd| thd), None);
    t.release_all(&b);
    is_clean(&t);
}

/// The server may kill what a connection runs when it is told that somebody waits for it: it is told
/// only of the transaction that is waited for, which does not end meanwhile.
#[test]
fn a_transaction_does_not_end_while_it_is_named() {
    struct Slow {
        inside: Arc<AtomicBool>,
        go_on: Arc<AtomicBool>,
    }
    impl WaitHooks for Slow {
        fn waiting_for(&self, _holder_thd: usize) {
            self.inside.store(true, Ordering::SeqCst);
            while !self.go_on.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            self.inside.store(false, Ordering::SeqCst);
        }
    }
    let t = table();
    let [holder, b] = owners();
    t.try_lock(&holder, LockRequest::new(IX, b"k", Exclusive, Record))
        .unwrap();
    let (inside, go_on) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let waits = {
        let (t, b) = (t.clone(), b.clone());
        let hooks = Slow {
            inside: inside.clone(),
            go_on: go_on.clone(),
        };
        let request = || LockRequest::new(IX, b"k", Exclusive, Record);
        thread::spawn("waits", move || t.lock_wait(&b, request(), LONG, &hooks))
    };
    while !inside.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let ends = {
        let (t, holder, inside) = (t.clone(), holder.clone(), inside.clone());
        thread::spawn("ends", move || {
            t.release_all(&holder);
            holder.transaction_ended();
            assert!(!inside.load(Ordering::SeqCst), "it is still named");
        })
    };
    thread::sleep_ms(20);
    assert!(!ends.is_finished(), "it waits for who names it");
    go_on.store(true, Ordering::SeqCst);
    ends.join().unwrap();
    waits.join().unwrap().unwrap();
    // Who has found it in the way and comes late says nothing of the next transaction.
    let mut named = false;
    holder.while_in_the_way(|| t.stands_in_the_way(&b, 1, &holder), |_| named = true);
    assert!(!named, "it holds nothing any more");
    t.release_all(&b);
    b.transaction_ended();
    is_clean(&t);
}

/// The next transaction of a connection is another one in the way.
#[test]
fn each_transaction_in_the_way_is_named() {
    let t = Arc::new(LockTable::new(LockConfig {
        ticker_us: 1000,
        ..LockConfig::default()
    }));
    let [a, b, c, d] = owners();
    let both = [&a, &b];
    for owner in both {
        let request = LockRequest::new(IX, b"k", Shared, Record);
        t.try_lock(owner, request).unwrap();
    }
    let named = Arc::new(Mutex::new(Vec::new()));
    let waits = {
        let (t, c, hooks) = (t.clone(), c.clone(), Told(named.clone()));
        let request = || LockRequest::new(IX, b"k", Exclusive, Record);
        thread::spawn("waits", move || t.lock_wait(&c, request(), LONG, &hooks))
    };
    while named.lock().len() < 2 {
        thread::yield_now();
    }
    // Still in the way by b; a's next transaction takes the lock that the first has left.
    t.release_all(&a);
    a.transaction_ended();
    let implicit = crate::Implicit {
        holder: &a,
        still_active: &|| true,
    };
    let request = LockRequest::new(IX, b"k", Exclusive, Record);
    let got = t.wait_for_implicit(&d, &implicit, request, WaitPolicy::for_ms(1), &NoHooks);
    assert_eq!(got, Err(Error::LockTimeout));
    while named.lock().len() < 3 {
        thread::yield_now();
    }
    assert_eq!(*named.lock(), [1, 2, 1]);
    for owner in both {
        t.release_all(owner);
        owner.transaction_ended();
    }
    waits.join().unwrap().unwrap();
    t.release_all(&c);
    is_clean(&t);
}
