//! Condition variable to go with [`Mutex`](crate::Mutex).
//!
//! Locking: waits release the mutex and take it again before they return. Wake-ups without
//! a notification happen; callers test their condition in a loop.

use std::time::Duration;

use crate::{hook, imp, time, MutexGuard};

/// Lets threads wait until another one says that a condition may have changed.
#[derive(Default)]
pub struct Condvar {
    inner: imp::Condvar,
    /// Keeps the address of two condition variables different under the simulation.
    _place: u8,
}

impl Condvar {
    const_unless_loom! {
        /// Nobody waits.
        pub fn new() -> Condvar {
            Condvar { inner: imp::Condvar::new(), _place: 0 }
        }
    }

    fn key(&self) -> usize {
        self as *const Condvar as usize
    }

    /// Releases the mutex, waits for a notification, takes the mutex again.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        if hook::simulated() {
            return self.wait_simulated(guard, None).0;
        }
        let MutexGuard {
            inner,
            released,
            mutex,
        } = guard;
        std::mem::forget(released);
        mutex.guard(self.inner.wait(inner).unwrap_or_else(|e| e.into_inner()))
    }

    /// As [`wait`](Self::wait), for at most `ms` milliseconds. The flag is true when the
    /// time passed without a notification.
    pub fn wait_timeout_ms<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        ms: u64,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_timeout_us(guard, ms.saturating_mul(1000))
    }

    /// As [`wait_timeout_ms`](Self::wait_timeout_ms), in microseconds.
    pub fn wait_timeout_us<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        us: u64,
    ) -> (MutexGuard<'a, T>, bool) {
        if hook::simulated() {
            return self.wait_simulated(guard, Some(time::now_us().saturating_add(us)));
        }
        let MutexGuard {
            inner,
            released,
            mutex,
        } = guard;
        std::mem::forget(released);
        let (inner, timeout) = self
            .inner
            .wait_timeout(inner, Duration::from_micros(us))
            .unwrap_or_else(|e| e.into_inner());
        (mutex.guard(inner), timeout.timed_out())
    }

    fn wait_simulated<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline_us: Option<u64>,
    ) -> (MutexGuard<'a, T>, bool) {
        let MutexGuard {
            inner,
            released,
            mutex,
        } = guard;
        // No yield between the release and the wait: only one task runs, so that this is
        // the atomic step that a condition variable promises.
        drop(inner);
        std::mem::forget(released);
        hook::wake(mutex.key(), u32::MAX, usize::MAX);
        let woken = hook::block("condvar", self.key(), u32::MAX, deadline_us).unwrap_or(true);
        (mutex.lock(), !woken)
    }

    /// Wakes one waiter, if any.
    pub fn notify_one(&self) {
        if hook::wake(self.key(), u32::MAX, 1).is_none() {
            self.inner.notify_one();
        }
        hook::yield_quiet("notify");
    }

    /// Wakes every waiter.
    pub fn notify_all(&self) {
        if hook::wake(self.key(), u32::MAX, usize::MAX).is_none() {
            self.inner.notify_all();
        }
        hook::yield_quiet("notify");
    }
}

impl std::fmt::Debug for Condvar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Condvar")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{thread, Arc, Mutex};

    #[test]
    fn notified_and_timed_out() {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let (_g, timed_out) = pair.1.wait_timeout_ms(pair.0.lock(), 5);
        assert!(timed_out);
        drop(_g);
        let p = pair.clone();
        let h = thread::spawn("waiter", move || {
            let mut g = p.0.lock();
            while !*g {
                g = p.1.wait(g);
            }
        });
        *pair.0.lock() = true;
        pair.1.notify_all();
        h.join().unwrap();
    }
}
