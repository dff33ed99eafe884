//! Models for loom: every order of two or three threads, weak memory included.
//!
//! Run: `RUSTFLAGS="--cfg loom" cargo test -p ferrite-sync --release loom`.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;

use crate::epoch::Epochs;
use crate::model::check;
use crate::{Arc, Event, Latch};

/// Data that loom checks for races.
struct Guarded {
    latch: Latch,
    data: loom::cell::UnsafeCell<u32>,
}

// SAFETY: the data is touched only as the latch allows, which is what loom checks.
unsafe impl Send for Guarded {}
// SAFETY: as above.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn new() -> Arc<Guarded> {
        Arc::new(Guarded {
            latch: Latch::new(),
            data: loom::cell::UnsafeCell::new(0),
        })
    }

    fn write(&self) {
        self.latch.exclusive();
        // SAFETY: held alone.
        self.data.with_mut(|p| unsafe { *p += 1 });
        self.latch.unlock_exclusive();
    }

    fn read(&self) -> u32 {
        self.latch.shared();
        // SAFETY: held shared.
        let v = self.data.with(|p| unsafe { *p });
        self.latch.unlock_shared();
        v
    }
}

#[test]
fn loom_latch_two_writers_and_a_reader() {
    check(2, || {
        let g = Guarded::new();
        let hs = [0, 1].map(|_| {
            let g = g.clone();
            thread::spawn(move || g.write())
        });
        assert!(g.read() <= 2);
        for h in hs {
            h.join().unwrap();
        }
        assert_eq!(g.read(), 2);
    });
}

#[test]
fn loom_latch_two_readers_and_a_writer() {
    check(2, || {
        let g = Guarded::new();
        let hs = [0, 1].map(|_| {
            let g = g.clone();
            thread::spawn(move || g.read())
        });
        g.write();
        for h in hs {
            assert!(h.join().unwrap() <= 1);
        }
    });
}

#[test]
fn loom_latch_downgrade() {
    check(3, || {
        let g = Guarded::new();
        let g2 = g.clone();
        let h = thread::spawn(move || g2.read());
        g.latch.exclusive();
        // SAFETY: held alone.
        g.data.with_mut(|p| unsafe { *p = 7 });
        g.latch.downgrade();
        // SAFETY: held shared.
        assert_eq!(g.data.with(|p| unsafe { *p }), 7);
        g.latch.unlock_shared();
        assert!([0, 7].contains(&h.join().unwrap()));
    });
}

#[test]
fn loom_event_reaches_each_waiter() {
    check(3, || {
        let e = Arc::new(Event::new());
        let flag = Arc::new(AtomicBool::new(false));
        let (e2, f2) = (e.clone(), flag.clone());
        let h = thread::spawn(move || {
            e2.wait();
            assert!(
                f2.load(Ordering::Relaxed),
                "what came before the set is seen"
            );
        });
        flag.store(true, Ordering::Relaxed);
        e.set();
        h.join().unwrap();
    });
}

#[test]
fn loom_event_two_waiters() {
    check(2, || {
        let e = Arc::new(Event::new());
        let hs = [0, 1].map(|_| {
            let e = e.clone();
            thread::spawn(move || {
                e.wait();
                // Passes it on: two sets may have counted as one.
                e.set();
            })
        });
        e.set();
        for h in hs {
            h.join().unwrap();
        }
    });
}

#[test]
fn loom_epoch_reader_and_reclaimer() {
    check(3, || {
        let e = Arc::new(Epochs::new());
        let link = Arc::new(AtomicUsize::new(0));
        let freed = Arc::new(AtomicBool::new(false));
        let (e2, l2, f2) = (e.clone(), link.clone(), freed.clone());
        let h = thread::spawn(move || {
            for _ in 0..2 {
                let _pin = e2.pin_slot(0);
                if l2.load(Ordering::Acquire) == 0 {
                    assert!(!f2.load(Ordering::Relaxed), "freed under a reader");
                }
            }
        });
        link.store(1, Ordering::Release);
        let tag = e.retired_now();
        e.advance();
        if e.is_quiet(tag) {
            freed.store(true, Ordering::Relaxed);
        }
        h.join().unwrap();
        assert!(e.is_quiet(tag));
    });
}
