//! Numbers per thread, and what is spread over cache lines by them.
//!
//! Invariant: a living thread's number is used by no other living thread; numbers of ended
//! threads are handed out again, lowest first, so that they stay small.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Mutex as StdMutex;

// Statistics are no part of any model: the real atomics, under loom too.
use crate::hook;
use std::sync::atomic::{AtomicU64, Ordering};

/// A value alone on its cache lines (two, since processors fetch them in pairs).
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> CachePadded<T> {
    /// Pads a value.
    pub const fn new(value: T) -> CachePadded<T> {
        CachePadded(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

struct Numbers {
    next: usize,
    free: BTreeSet<usize>,
}

// Not the crate's own lock: a thread takes its number before and after it is simulated.
static NUMBERS: StdMutex<Numbers> = StdMutex::new(Numbers {
    next: 0,
    free: BTreeSet::new(),
});

const NONE: usize = usize::MAX;

struct Returns(usize);

impl Drop for Returns {
    fn drop(&mut self) {
        let _ = NUMBER.try_with(|n| n.set(NONE));
        let mut numbers = NUMBERS.lock().unwrap_or_else(|e| e.into_inner());
        numbers.free.insert(self.0);
    }
}

#[cfg(not(loom))]
thread_local! {
    static NUMBER: Cell<usize> = const { Cell::new(NONE) };
    static RETURNS: Cell<Option<Returns>> = const { Cell::new(None) };
}
#[cfg(loom)]
loom::thread_local! {
    static NUMBER: Cell<usize> = Cell::new(NONE);
    static RETURNS: Cell<Option<Returns>> = Cell::new(None);
}

/// This thread's number among the living ones.
#[inline]
pub(crate) fn thread_number() -> usize {
    let n = NUMBER.try_with(Cell::get).unwrap_or(NONE);
    if n != NONE {
        n
    } else {
        claim_number()
    }
}

#[cold]
fn claim_number() -> usize {
    let n = {
        let mut numbers = NUMBERS.lock().unwrap_or_else(|e| e.into_inner());
        numbers.free.pop_first().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        })
    };
    // In a thread that is just ending there is nowhere to keep it: the number is then
    // never used again, which costs one slot.
    let _ = NUMBER.try_with(|c| c.set(n));
    let _ = RETURNS.try_with(|c| c.set(Some(Returns(n))));
    n
}

/// A small number that stays the same for this thread and differs between living threads.
/// Take it modulo the number of shards.
#[inline]
pub fn shard_index() -> usize {
    hook::task_number().unwrap_or_else(thread_number)
}

const COUNTER_SHARDS: usize = 16;

/// A counter that many threads raise without sharing a cache line. Reading adds up 16
/// shards and is exact once the writers are still.
#[derive(Default)]
pub struct Counter {
    shards: [CachePadded<AtomicU64>; COUNTER_SHARDS],
}

impl Counter {
    /// Zero.
    pub const fn new() -> Counter {
        Counter {
            shards: [const { CachePadded(AtomicU64::new(0)) }; COUNTER_SHARDS],
        }
    }

    /// Raises by `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        self.shards[shard_index() % COUNTER_SHARDS].fetch_add(n, Ordering::Relaxed);
    }

    /// Raises by one.
    #[inline]
    pub fn inc(&self) {
        self.add(1);
    }

    /// The sum.
    pub fn get(&self) -> u64 {
        self.shards
            .iter()
            .fold(0, |sum, s| sum.wrapping_add(s.load(Ordering::Relaxed)))
    }
}

impl std::fmt::Debug for Counter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Counter({})", self.get())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{thread, Arc};

    #[test]
    fn counts_from_many_threads() {
        let c = Arc::new(Counter::new());
        let hs: Vec<_> = (0..8)
            .map(|_| {
                let c = c.clone();
                thread::spawn("count", move || (0..1000).for_each(|_| c.inc()))
            })
            .collect();
        hs.into_iter().for_each(|h| h.join().unwrap());
        c.add(5);
        assert_eq!(c.get(), 8005);
    }

    #[test]
    fn numbers_are_stable_and_reused() {
        let mine = shard_index();
        assert_eq!(mine, shard_index());
        for _ in 0..200 {
            let other = thread::spawn("n", shard_index).join().unwrap();
            assert_ne!(other, mine);
            assert!(other < 150, "numbers are not handed out again: {other}");
        }
    }
}
