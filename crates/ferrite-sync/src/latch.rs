//! A shared/exclusive latch in one 32-bit word, without a value inside.
//!
//! The word: bit 31 held alone, bit 30 "a writer sleeps", bit 29 "readers sleep", below
//! them the count of readers.
//!
//! Invariants:
//! - The two sleep bits are hints that may be set without a sleeper, but a sleeper is never
//!   left without its bit: whoever slept takes the latch with the writer bit set again
//!   (another writer may still sleep), and only a releaser that found nobody to wake, in a
//!   word that is still free, clears it.
//! - New readers stay outside while the writer bit is set, so that writers do not starve.
//!   A thread must therefore never ask for a shared latch that it has already.
//! - With nobody sleeping: one atomic step to take, one to release, no system call.

use crate::atomic::{AtomicU32, Ordering};
use crate::nowait::may_wait;
use crate::{futex, hook};

const EXCLUSIVE: u32 = 1 << 31;
const WRITER_SLEEPS: u32 = 1 << 30;
const READERS_SLEEP: u32 = 1 << 29;
const READERS: u32 = READERS_SLEEP - 1;

const WAKE_WRITER: u32 = 1;
const WAKE_READERS: u32 = 2;

/// Looks at the word this often before sleeping.
const SPINS: u32 = 40;

/// A raw latch; four bytes, free when new.
#[derive(Default)]
pub struct Latch {
    word: AtomicU32,
}

impl Latch {
    const_unless_loom! {
        /// A free latch.
        pub fn new() -> Latch {
            Latch { word: AtomicU32::new(0) }
        }
    }

    /// Shares the latch if neither held alone nor wanted by a sleeping writer.
    #[inline]
    pub fn try_shared(&self) -> bool {
        hook::yield_point("latch");
        self.grab_shared()
    }

    #[inline]
    fn grab_shared(&self) -> bool {
        let mut s = self.word.load(Ordering::Relaxed);
        while s & (EXCLUSIVE | WRITER_SLEEPS) == 0 {
            debug_assert!(s & READERS < READERS);
            match self
                .word
                .compare_exchange_weak(s, s + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => s = now,
            }
        }
        false
    }

    /// Shares the latch, waiting if need be; true when it had to wait.
    #[inline]
    pub fn shared(&self) -> bool {
        may_wait("page latch");
        hook::yield_point("latch shared");
        if self.grab_shared() {
            return false;
        }
        self.shared_slow();
        true
    }

    #[cold]
    fn shared_slow(&self) {
        loop {
            if self.spin(|s| s & (EXCLUSIVE | WRITER_SLEEPS) == 0) && self.grab_shared() {
                return;
            }
            let s = self.word.load(Ordering::Relaxed);
            if s & (EXCLUSIVE | WRITER_SLEEPS) == 0 {
                continue;
            }
            let sleeping = s | READERS_SLEEP;
            if self.mark(s, sleeping) {
                futex::wait("latch shared", &self.word, sleeping, WAKE_READERS, None);
            }
        }
    }

    /// Gives one share back.
    #[inline]
    pub fn unlock_shared(&self) {
        let s = self.word.fetch_sub(1, Ordering::Release);
        debug_assert!(
            s & READERS > 0 && s & EXCLUSIVE == 0,
            "latch is not shared: {s:#x}"
        );
        if s & READERS == 1 && s != 1 {
            self.wake(s - 1);
        }
        hook::yield_quiet("latch unlock");
    }

    /// Takes the latch alone if it is free right now.
    #[inline]
    pub fn try_exclusive(&self) -> bool {
        hook::yield_point("latch");
        self.grab_exclusive(EXCLUSIVE)
    }

    #[inline]
    fn grab_exclusive(&self, bits: u32) -> bool {
        let mut s = self.word.load(Ordering::Relaxed);
        while s & (EXCLUSIVE | READERS) == 0 {
            match self
                .word
                .compare_exchange_weak(s, s | bits, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => s = now,
            }
        }
        false
    }

    /// Takes the latch alone, waiting if need be; true when it had to wait.
    #[inline]
    pub fn exclusive(&self) -> bool {
        may_wait("page latch");
        hook::yield_point("latch exclusive");
        if self.grab_exclusive(EXCLUSIVE) {
            return false;
        }
        self.exclusive_slow();
        true
    }

    #[cold]
    fn exclusive_slow(&self) {
        let mut bits = EXCLUSIVE;
        loop {
            if self.spin(|s| s & (EXCLUSIVE | READERS) == 0) && self.grab_exclusive(bits) {
                return;
            }
            let s = self.word.load(Ordering::Relaxed);
            if s & (EXCLUSIVE | READERS) == 0 {
                continue;
            }
            let sleeping = s | WRITER_SLEEPS;
            if self.mark(s, sleeping) {
                futex::wait("latch exclusive", &self.word, sleeping, WAKE_WRITER, None);
                bits = EXCLUSIVE | WRITER_SLEEPS;
            }
        }
    }

    /// Releases the latch held alone.
    #[inline]
    pub fn unlock_exclusive(&self) {
        let s = self.word.fetch_and(!EXCLUSIVE, Ordering::Release);
        debug_assert!(
            s & EXCLUSIVE != 0 && s & READERS == 0,
            "latch is not held: {s:#x}"
        );
        if s != EXCLUSIVE {
            self.wake(s & !EXCLUSIVE);
        }
        hook::yield_quiet("latch unlock");
    }

    /// From alone to shared, with nobody in between; sleeping readers come in unless a
    /// writer sleeps.
    pub fn downgrade(&self) {
        let mut s = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(
                s & EXCLUSIVE != 0 && s & READERS == 0,
                "latch is not held: {s:#x}"
            );
            let mut new = (s & !EXCLUSIVE) + 1;
            let admit = s & WRITER_SLEEPS == 0 && s & READERS_SLEEP != 0;
            if admit {
                new &= !READERS_SLEEP;
            }
            match self
                .word
                .compare_exchange_weak(s, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => {
                    if admit {
                        futex::wake(&self.word, WAKE_READERS, usize::MAX);
                    }
                    return;
                }
                Err(now) => s = now,
            }
        }
    }

    /// Held alone by somebody right now. For assertions.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.word.load(Ordering::Relaxed) & EXCLUSIVE != 0
    }

    /// Held by somebody, alone or shared, right now. For assertions and for passing by.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) & (EXCLUSIVE | READERS) != 0
    }

    /// Sets a sleep bit if the word is still what was seen.
    fn mark(&self, seen: u32, with_bit: u32) -> bool {
        seen == with_bit
            || self
                .word
                .compare_exchange(seen, with_bit, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Looks at the word a few times; true as soon as `free` holds.
    fn spin(&self, free: impl Fn(u32) -> bool) -> bool {
        let spins = if cfg!(loom) || hook::simulated() {
            1
        } else {
            SPINS
        };
        for _ in 0..spins {
            if free(self.word.load(Ordering::Relaxed)) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// After a release that left the word free with sleep bits: one writer, else all
    /// readers. `s` is the word as the release left it; it may have changed since.
    #[cold]
    fn wake(&self, mut s: u32) {
        loop {
            // The first look uses the word as released, even if others changed it since:
            // the bits seen then are this caller's duty.
            if s & WRITER_SLEEPS != 0 {
                if futex::wake(&self.word, WAKE_WRITER, 1) > 0 {
                    // It is on its way, and will take the latch with the writer bit set.
                    return;
                }
                match self.clear(s, WRITER_SLEEPS) {
                    Ok(()) => s &= !WRITER_SLEEPS,
                    Err(now) => {
                        if now & (EXCLUSIVE | READERS) != 0 {
                            return;
                        }
                        s = now;
                        continue;
                    }
                }
            }
            if s & READERS_SLEEP == 0 {
                return;
            }
            match self.clear(s, READERS_SLEEP) {
                Ok(()) => {
                    futex::wake(&self.word, WAKE_READERS, usize::MAX);
                    return;
                }
                // Whoever holds it now releases it with the same bits.
                Err(now) if now & (EXCLUSIVE | READERS) != 0 => return,
                Err(now) => s = now,
            }
        }
    }

    fn clear(&self, s: u32, bit: u32) -> Result<(), u32> {
        self.word
            .compare_exchange(s, s & !bit, Ordering::Relaxed, Ordering::Relaxed)
            .map(|_| ())
    }
}

impl std::fmt::Debug for Latch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Latch({:#x})", self.word.load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(loom)))]
#[path = "latch_tests.rs"]
mod tests;
