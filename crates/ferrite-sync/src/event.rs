//! A wait word that resets itself: one `set` lets one `wait` through.
//!
//! The word: bit 0 "set", above it the count of waiters. A set that finds nobody makes no
//! system call and is remembered; two sets before a wait count as one.

use crate::atomic::{AtomicU32, Ordering};
use crate::{futex, hook, time};

const SET: u32 = 1;
const ONE_WAITER: u32 = 2;

/// An auto-reset event; four bytes, not set when new.
#[derive(Default)]
pub struct Event {
    word: AtomicU32,
}

impl Event {
    const_unless_loom! {
        /// An event that is not set.
        pub fn new() -> Event {
            Event { word: AtomicU32::new(0) }
        }
    }

    /// Lets one waiter through, now or later. All writes before are seen by it.
    #[inline]
    pub fn set(&self) {
        let s = self.word.fetch_or(SET, Ordering::AcqRel);
        if s & SET == 0 && s >= ONE_WAITER {
            futex::wake(&self.word, u32::MAX, 1);
        }
        hook::yield_quiet("event set");
    }

    /// Waits until set, and resets it.
    #[inline]
    pub fn wait(&self) {
        self.wait_until(None);
    }

    /// As [`wait`](Self::wait), for at most `us` microseconds; false when the time passed.
    #[inline]
    pub fn wait_timeout_us(&self, us: u64) -> bool {
        self.wait_until(Some(time::now_us().saturating_add(us)))
    }

    /// Takes the event if it is set; true when it was.
    #[inline]
    pub fn reset(&self) -> bool {
        hook::yield_point("event reset");
        self.word.fetch_and(!SET, Ordering::AcqRel) & SET != 0
    }

    /// Set right now. For assertions and displays.
    pub fn is_set(&self) -> bool {
        self.word.load(Ordering::Relaxed) & SET != 0
    }

    fn wait_until(&self, deadline_us: Option<u64>) -> bool {
        crate::may_wait("event");
        hook::yield_point("event wait");
        let s = self.word.load(Ordering::Relaxed);
        if s & SET != 0
            && self
                .word
                .compare_exchange(s, s & !SET, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        {
            return true;
        }
        self.wait_slow(deadline_us)
    }

    #[cold]
    fn wait_slow(&self, deadline_us: Option<u64>) -> bool {
        let mut s = self.word.fetch_add(ONE_WAITER, Ordering::Relaxed) + ONE_WAITER;
        let mut in_time = true;
        loop {
            // Leaving is one step with taking the event, so that a set that counted this
            // waiter is either taken by it or left for the next.
            let leave = (s - ONE_WAITER) & !SET;
            if s & SET != 0 || !in_time {
                match self
                    .word
                    .compare_exchange_weak(s, leave, Ordering::AcqRel, Ordering::Relaxed)
                {
                    Ok(_) => return s & SET != 0,
                    Err(now) => s = now,
                }
                continue;
            }
            in_time = futex::wait("event", &self.word, s, u32::MAX, deadline_us);
            s = self.word.load(Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event({:#x})", self.word.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{thread, Arc};

    #[test]
    fn a_set_is_remembered_once() {
        let e = Event::new();
        e.set();
        e.set();
        e.wait();
        assert!(!e.wait_timeout_us(1000));
        e.set();
        assert!(e.reset() && !e.reset());
        assert_eq!(e.word.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn every_set_reaches_somebody() {
        let e = Arc::new(Event::new());
        let got = Arc::new(AtomicU32::new(0));
        let hs: Vec<_> = (0..3)
            .map(|_| {
                let (e, got) = (e.clone(), got.clone());
                thread::spawn("waiter", move || {
                    for _ in 0..500 {
                        e.wait();
                        got.fetch_add(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let mut sent = 0;
        while sent < 1500 {
            e.set();
            sent += 1;
            while got.load(Ordering::SeqCst) < sent {
                thread::yield_now();
            }
        }
        hs.into_iter().for_each(|h| h.join().unwrap());
        assert_eq!(e.word.load(Ordering::Relaxed), 0);
    }
}
