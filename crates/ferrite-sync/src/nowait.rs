//! Stretches of code that promise not to wait: no page latch, no read or write of a file, no
//! sleep, no wait for a lock or for the log to be durable.
//!
//! The promise is checked in builds with debug assertions (tests and the simulator), at the places
//! where a thread might wait whether or not it has to this time; elsewhere nothing of it is left.
//!
//! Mutexes of a few instructions are allowed, and so is a full log ring: a record has to go
//! somewhere, and the thread that writes the log never asks for what such a stretch holds.
//!
//! Locking: none; the mark belongs to the thread.

#[cfg(debug_assertions)]
use std::cell::Cell;

#[cfg(debug_assertions)]
thread_local! {
    static PROMISED: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// While it lives, its thread must not wait. Not to be nested.
pub struct NoWait {
    // The mark is the thread's: the guard stays in it.
    _of_the_thread: std::marker::PhantomData<*const ()>,
}

impl NoWait {
    /// The stretch called `promise` begins.
    #[must_use]
    pub fn begin(promise: &'static str) -> NoWait {
        #[cfg(debug_assertions)]
        PROMISED.with(|p| {
            let before = p.replace(Some(promise));
            assert_eq!(before, None, "{promise} inside");
        });
        let _ = promise;
        NoWait {
            _of_the_thread: std::marker::PhantomData,
        }
    }
}

impl Drop for NoWait {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        PROMISED.with(|p| p.set(None));
    }
}

/// What is called next may wait.
///
/// # Panics
/// In builds with debug assertions, inside a [`NoWait`].
#[inline]
pub fn may_wait(what: &str) {
    #[cfg(debug_assertions)]
    if let Some(promise) = PROMISED.with(Cell::get) {
        panic!("{promise} must not wait: {what}");
    }
    let _ = what;
}

/// Runs `f`, for which the promise of the stretch around it does not hold.
#[inline]
pub fn exempt_from_no_wait<T>(f: impl FnOnce() -> T) -> T {
    #[cfg(debug_assertions)]
    let promised = PROMISED.with(Cell::take);
    let result = f();
    #[cfg(debug_assertions)]
    PROMISED.with(|p| p.set(promised));
    result
}

#[cfg(all(test, not(loom), debug_assertions))]
mod tests {
    use super::*;
    use crate::Latch;

    #[test]
    fn a_latch_is_free_to_be_taken_outside_only() {
        let latch = Latch::new();
        drop(NoWait::begin("one"));
        assert!(!latch.shared());
        latch.unlock_shared();
        let broken = std::thread::spawn(move || {
            let _promise = NoWait::begin("two");
            latch.shared()
        });
        let words = broken.join().unwrap_err();
        let words = words.downcast_ref::<String>().unwrap();
        assert_eq!(words, "two must not wait: page latch");
    }
}
