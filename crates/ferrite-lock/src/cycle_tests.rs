//! Every cycle is found by whoever closes it: with a ticker that never comes, no wait runs out of
//! time.

use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::Error;

use crate::tests::{ask_in_thread, is_clean, owners, table, IX, LONG};
use crate::{Attempt, Implicit, LockRequest, LockTable, Mode, NoHooks, Owner, Span, WaitHooks};
use Mode::{Exclusive, Shared};
use Span::{Gap, InsertIntention, NextKey, Record};

type Asks = thread::JoinHandle<Result<Attempt, Error>>;
type Kinds = &'static [(Mode, Span)];

/// One transaction of a few locks; false if it gave way.
fn transaction(t: &LockTable, me: &Arc<Owner>, kinds: Kinds, rng: &mut Rng) -> bool {
    let mut committed = true;
    for _ in 0..rng.between(1, 4) {
        let key = [rng.below(12) as u8];
        let (mode, span) = kinds[rng.below(kinds.len() as u64) as usize];
        match t.lock_wait(me, LockRequest::new(IX, &key, mode, span), LONG, &NoHooks) {
            Ok(got) => assert_ne!(got, Attempt::Blocked),
            Err(e) => {
                assert_eq!(e, Error::Deadlock, "a cycle was not seen");
                committed = false;
                break;
            }
        }
        if rng.chance(1, 2) {
            thread::yield_now();
        }
        me.add_change();
    }
    t.release_all(me);
    me.changes.store(0, Ordering::Relaxed);
    committed
}

fn all_cycles_are_seen(kinds: Kinds) {
    let t = table();
    let handles: Vec<_> = (0..16u64)
        .map(|n| {
            let t = t.clone();
            thread::spawn("txn", move || {
                let me = Owner::new(n + 1, 0);
                let mut rng = Rng::new(100 + n);
                (0..1500)
                    .filter(|_| transaction(&t, &me, kinds, &mut rng))
                    .count()
            })
        })
        .collect();
    let done: Vec<_> = handles.into_iter().map(|h| h.join()).collect();
    let committed: usize = done.into_iter().map(|d| d.unwrap()).sum();
    is_clean(&t);
    let s = t.stats();
    assert!(committed > 12_000 && s.deadlocks > 100, "{committed} {s:?}");
}

#[test]
fn exclusive() {
    all_cycles_are_seen(&[(Exclusive, Record)]);
}

#[test]
fn shared_made_stronger() {
    all_cycles_are_seen(&[(Shared, Record), (Exclusive, Record)]);
}

#[test]
fn next_keys_and_inserts() {
    all_cycles_are_seen(&[
        (Shared, NextKey),
        (Exclusive, NextKey),
        (Exclusive, Record),
        (Shared, Gap),
        (Exclusive, InsertIntention),
        (Exclusive, InsertIntention),
    ]);
}

/// Hooks that keep a waiter busy, so that it does not leave its line when it is told to.
struct Stuck(Arc<AtomicBool>);

impl WaitHooks for Stuck {
    fn waiting_for(&self, _holder_thd: usize) {
        while !self.0.load(Ordering::SeqCst) {
            thread::yield_now();
        }
    }
}

/// "walker" closes two cycles at once. The victim of the first still stands in its line when the
/// walker looks again, and the way through it is the one that is met first.
#[test]
fn a_victim_that_has_not_left_hides_no_other_cycle() {
    let t = table();
    let [walker, slow, h, g]: [Arc<Owner>; 4] = owners();
    walker.changes.store(9, Ordering::Relaxed);
    h.changes.store(5, Ordering::Relaxed);
    g.changes.store(5, Ordering::Relaxed);
    let has = |o: &Arc<Owner>, key: &[u8], mode| {
        assert!(t
            .try_lock(o, LockRequest::new(IX, key, mode, Record))
            .unwrap()
            .is_granted());
    };
    has(&h, b"m", Shared);
    has(&g, b"m", Shared);
    has(&walker, b"k", Shared);
    has(&walker, b"b", Exclusive);
    let go_on = Arc::new(AtomicBool::new(false));
    let slow_waits = {
        let (t, slow, hooks) = (t.clone(), slow.clone(), Stuck(go_on.clone()));
        thread::spawn("slow", move || {
            let got = t.lock_wait(
                &slow,
                LockRequest::new(IX, b"k", Exclusive, Record),
                LONG,
                &hooks,
            );
            t.release_all(&slow);
            got
        })
    };
    while !slow.is_waiting() {
        thread::yield_now();
    }
    let h_waits = ask_in_thread(&t, &h, b"k", Shared, Record, LONG);
    let g_waits = ask_in_thread(&t, &g, b"b", Shared, Record, LONG);
    // It waits for h and g; h waits behind slow, who waits for it; g waits for it.
    let walker_waits = ask_in_thread(&t, &walker, b"m", Exclusive, Record, LONG);
    assert_eq!(g_waits.join().unwrap(), Err(Error::Deadlock));
    t.release_all(&g);
    assert!(!slow.is_waiting(), "the lightest gives way first");
    go_on.store(true, Ordering::SeqCst);
    assert_eq!(slow_waits.join().unwrap(), Err(Error::Deadlock));
    assert_eq!(h_waits.join().unwrap(), Ok(Attempt::Granted));
    t.release_all(&h);
    assert_eq!(walker_waits.join().unwrap(), Ok(Attempt::Granted));
    t.release_all(&walker);
    is_clean(&t);
    assert_eq!(t.stats().deadlocks, 2);
}

/// `a` and `b` have done what the case is about, and `a` waits already: now `b` asks, and one of
/// them gives way.
fn b_closes(t: &Arc<LockTable>, [a, b]: [&Arc<Owner>; 2], waits: Asks, ask: (&[u8], Mode, Span)) {
    b.changes.store(9, Ordering::Relaxed);
    assert!(a.is_waiting());
    let asks = {
        let (t, b, key) = (t.clone(), b.clone(), ask.0.to_vec());
        thread::spawn("closes", move || {
            t.lock_wait(&b, LockRequest::new(IX, &key, ask.1, ask.2), LONG, &NoHooks)
        })
    };
    assert_eq!(waits.join().unwrap(), Err(Error::Deadlock));
    t.release_all(a);
    assert!(asks.join().unwrap().unwrap().is_granted());
    t.release_all(b);
}

#[test]
fn two_who_share_and_want_more() {
    let t = table();
    let [a, b]: [Arc<Owner>; 2] = owners();
    for o in [&a, &b] {
        t.try_lock(o, LockRequest::new(IX, b"k", Shared, NextKey))
            .unwrap();
    }
    let waits = ask_in_thread(&t, &a, b"k", Exclusive, Record, LONG);
    b_closes(&t, [&a, &b], waits, (b"k", Exclusive, Record));
    is_clean(&t);
}

#[test]
fn two_gaps_and_two_inserts() {
    let t = table();
    let [a, b]: [Arc<Owner>; 2] = owners();
    for o in [&a, &b] {
        t.try_lock(o, LockRequest::new(IX, b"k", Exclusive, Gap))
            .unwrap();
    }
    let waits = ask_in_thread(&t, &a, b"k", Exclusive, InsertIntention, LONG);
    b_closes(&t, [&a, &b], waits, (b"k", Exclusive, InsertIntention));
    is_clean(&t);
}

/// b waits in front of a in the line for "k" as well as for a: the line's order is a wait, too.
#[test]
fn who_stands_in_front_is_waited_for() {
    let t = table();
    let [a, b, holder, c]: [Arc<Owner>; 4] = owners();
    b.changes.store(9, Ordering::Relaxed);
    c.changes.store(9, Ordering::Relaxed);
    t.try_lock(&holder, LockRequest::new(IX, b"k", Shared, Record))
        .unwrap();
    t.try_lock(&a, LockRequest::new(IX, b"a", Exclusive, Record))
        .unwrap();
    t.try_lock(&c, LockRequest::new(IX, b"c", Exclusive, Record))
        .unwrap();
    let front = ask_in_thread(&t, &b, b"k", Exclusive, Record, LONG);
    // Shared with the holder, but for b.
    let waits = ask_in_thread(&t, &a, b"k", Shared, Record, LONG);
    let c_waits = ask_in_thread(&t, &c, b"a", Exclusive, Record, LONG);
    holder.changes.store(9, Ordering::Relaxed);
    // holder -> c -> a -> b -> holder.
    let closes = ask_in_thread(&t, &holder, b"c", Exclusive, Record, LONG);
    assert_eq!(waits.join().unwrap(), Err(Error::Deadlock));
    t.release_all(&a);
    c_waits.join().unwrap().unwrap();
    t.release_all(&c);
    closes.join().unwrap().unwrap();
    t.release_all(&holder);
    front.join().unwrap().unwrap();
    t.release_all(&b);
    is_clean(&t);
}

/// An implicit lock, which the lock table does not know before somebody asks for it.
#[test]
fn two_who_wrote_each_others_rows() {
    let t = table();
    let [a, b]: [Arc<Owner>; 2] = owners();
    b.changes.store(9, Ordering::Relaxed);
    let waits = |o: &Arc<Owner>, holder: &Arc<Owner>, key: &'static [u8]| {
        let (t, o, holder) = (t.clone(), o.clone(), holder.clone());
        thread::spawn("implicit", move || {
            let (x, active) = (Exclusive, || true);
            t.wait_for_implicit(
                &o,
                &Implicit {
                    holder: &holder,
                    still_active: &active,
                },
                LockRequest::new(IX, key, x, Record),
                LONG,
                &NoHooks,
            )
        })
    };
    let first = waits(&a, &b, b"b");
    while !a.is_waiting() {
        thread::yield_now();
    }
    let second = waits(&b, &a, b"a");
    assert_eq!(first.join().unwrap(), Err(Error::Deadlock));
    t.release_all(&a);
    second.join().unwrap().unwrap();
    t.release_all(&b);
    is_clean(&t);
}

/// The lock that c waits for goes from b to a by hand-off; then a asks for what c has.
#[test]
fn who_got_it_by_hand_off_is_waited_for() {
    let t = table();
    let [c, a, b]: [Arc<Owner>; 3] = owners();
    t.try_lock(&b, LockRequest::new(IX, b"k", Exclusive, Record))
        .unwrap();
    t.try_lock(&c, LockRequest::new(IX, b"c", Exclusive, Record))
        .unwrap();
    let next = ask_in_thread(&t, &a, b"k", Exclusive, Record, LONG);
    let waits = ask_in_thread(&t, &c, b"k", Exclusive, Record, LONG);
    t.release_all(&b);
    next.join().unwrap().unwrap();
    b_closes(&t, [&c, &a], waits, (b"c", Exclusive, Record));
    is_clean(&t);
}
