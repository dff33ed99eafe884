//! How fast files of the log are built ahead of need: with pauses while nobody waits for one, since the disk
//! belongs to the flusher and the pages; at full speed from the moment somebody does.
//!
//! Invariants: a pause is at most [`MAX_PAUSE_US`], whatever the write before it took: that may be the time for
//! which the whole process stood still (a stopped container, a frozen file system), and who pauses keeps others from
//! preparing files. One thread pauses at a time (it has `preparing`), so that one event is enough.
//! Locking: none. Whoever begins to wait is counted before it sets the event; who pauses looks at the count after it
//! has reset the event, so that it misses nobody.

use ferrite_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ferrite_sync::{time, Event};

/// A pause, as a multiple of what the write before it took.
const PAUSE_FACTOR: u64 = 3;
/// The longest pause, us: a disk that takes longer for a write has no time to be saved for others.
const MAX_PAUSE_US: u64 = 20_000;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Pace {
    /// Threads that stand still until a file is there.
    waiting: AtomicUsize,
    stopping: AtomicBool,
    hurry: Event,
}

/// Somebody waits for as long as this exists.
pub(crate) struct Hurry<'a>(&'a Pace);

impl Pace {
    /// Somebody stands still from now on: no pauses until the guard is dropped.
    pub(crate) fn hurry(&self) -> Hurry<'_> {
        let before = self.waiting.fetch_add(1, Ordering::SeqCst);
        assert!(before < usize::MAX / 2, "more have gone than came");
        self.hurry.set();
        Hurry(self)
    }

    /// No pauses and no file ahead of need from now on, or again.
    pub(crate) fn set_stopping(&self, on: bool) {
        self.stopping.store(on, Ordering::SeqCst);
        self.hurry.set();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn is_hurried(&self) -> bool {
        self.is_stopping() || self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Writes, then pauses if nobody is in a hurry.
    pub(crate) fn paced<T>(&self, write: impl FnOnce() -> T) -> T {
        let since = time::now_us();
        let result = write();
        self.pause(time::now_us().saturating_sub(since));
        result
    }

    fn pause(&self, took_us: u64) {
        self.hurry.reset();
        if !self.is_hurried() {
            let us = took_us.saturating_mul(PAUSE_FACTOR).min(MAX_PAUSE_US);
            debug_assert!(us <= MAX_PAUSE_US, "a pause of {us} us");
            self.hurry.wait_timeout_us(us);
        }
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        let before = self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "nobody was waiting for a file of the log");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::{thread, Arc};

    /// A minute, far more than a test may take.
    const LONG_US: u64 = 60_000_000;

    #[test]
    fn a_pause_is_short_whatever_the_write_took() {
        let pace = Pace::default();
        let since = time::now_us();
        pace.pause(LONG_US);
        let took = time::now_us() - since;
        assert!((MAX_PAUSE_US..LONG_US).contains(&took), "{took} us");
    }

    #[test]
    fn there_is_none_while_somebody_waits_or_the_log_is_closed() {
        let pace = Pace::default();
        let hurry = (pace.hurry(), pace.hurry());
        drop(hurry.0);
        let pauses = |pace: &Pace| {
            let since = time::now_us();
            (0..100).for_each(|_| pace.pause(LONG_US));
            time::now_us() - since >= 100 * MAX_PAUSE_US
        };
        assert!(!pauses(&pace), "one still waits");
        drop(hurry.1);
        pace.set_stopping(true);
        assert!(!pauses(&pace), "the log is being closed");
        pace.set_stopping(false);
        assert!(pauses(&pace), "nobody waits any more");
    }

    /// Who begins to wait ends a pause: 2,000 times in a row no pause is slept through.
    #[test]
    fn who_begins_to_wait_ends_a_pause() {
        let pace = Arc::new(Pace::default());
        let other = pace.clone();
        let hurrying = thread::spawn("hurrying", move || {
            while !other.is_stopping() {
                drop(other.hurry());
                thread::yield_now();
            }
        });
        let since = time::now_us();
        (0..2_000).for_each(|_| pace.pause(LONG_US));
        let took = time::now_us() - since;
        pace.set_stopping(true);
        hurrying.join().expect("it ends");
        assert!(took < 2_000 * MAX_PAUSE_US / 2, "{took} us");
    }
}
