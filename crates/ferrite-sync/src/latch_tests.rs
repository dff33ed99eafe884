//! The latch under real threads: exclusion, admission, hand-over.

use super::*;
use crate::atomic::AtomicBool;
use crate::{thread, Arc};

#[test]
fn four_bytes_and_the_basic_rules() {
    assert_eq!(std::mem::size_of::<Latch>(), 4);
    static L: Latch = Latch::new();
    assert!(!L.shared() && L.try_shared() && !L.try_exclusive() && !L.is_exclusive());
    L.unlock_shared();
    L.unlock_shared();
    assert!(!L.is_held() && !L.exclusive() && L.is_exclusive());
    assert!(!L.try_shared() && !L.try_exclusive());
    L.downgrade();
    assert!(L.try_shared() && !L.is_exclusive() && L.is_held());
    L.unlock_shared();
    L.unlock_shared();
    assert_eq!(L.word.load(Ordering::Relaxed), 0);
}

/// A pair that writers keep equal.
#[derive(Default)]
struct Pair(AtomicU32, AtomicU32);

#[test]
fn readers_never_see_half_a_write() {
    let shared = Arc::new((Latch::new(), Pair::default()));
    let hs: Vec<_> = (0..6u32)
        .map(|i| {
            let s = shared.clone();
            thread::spawn("latch", move || {
                for n in 0..4000 {
                    if (n + i) % 3 == 0 {
                        s.0.exclusive();
                        let v = s.1 .0.load(Ordering::Relaxed);
                        s.1 .0.store(v + 1, Ordering::Relaxed);
                        s.1 .1.store(v + 1, Ordering::Relaxed);
                        if n % 2 == 0 {
                            s.0.unlock_exclusive();
                            continue;
                        }
                        s.0.downgrade();
                    } else {
                        s.0.shared();
                    }
                    let a = s.1 .0.load(Ordering::Relaxed);
                    assert_eq!(a, s.1 .1.load(Ordering::Relaxed));
                    s.0.unlock_shared();
                }
            })
        })
        .collect();
    hs.into_iter().for_each(|h| h.join().unwrap());
    assert_eq!(shared.1 .0.load(Ordering::Relaxed), 6 * 4000 / 3);
    assert_eq!(shared.0.word.load(Ordering::Relaxed), 0);
}

#[test]
fn a_waiting_writer_keeps_new_readers_out() {
    let l = Arc::new(Latch::new());
    assert!(!l.shared());
    let (l2, done) = (l.clone(), Arc::new(AtomicBool::new(false)));
    let d = done.clone();
    let h = thread::spawn("writer", move || {
        assert!(l2.exclusive());
        d.store(true, Ordering::SeqCst);
        l2.unlock_exclusive();
    });
    while l.try_shared() {
        l.unlock_shared();
        thread::yield_now();
    }
    assert!(!done.load(Ordering::SeqCst));
    let l3 = l.clone();
    let r = thread::spawn("reader", move || {
        l3.shared();
        l3.unlock_shared();
    });
    l.unlock_shared();
    h.join().unwrap();
    r.join().unwrap();
    assert_eq!(l.word.load(Ordering::Relaxed), 0);
}
