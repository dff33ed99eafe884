//! Where the simulation's scheduler is asked, in one place.
//!
//! Each function does nothing and is inlined away without the feature `sim`. With it, a
//! thread outside of every simulation answers "not mine" and the caller goes on really.

#[cfg(any(not(feature = "sim"), loom))]
mod imp {
    /// A place where the simulation may switch to another task.
    #[inline(always)]
    pub fn yield_point(_what: &'static str) {}

    /// The same in an operation that must not unwind (an unlock).
    #[inline(always)]
    pub fn yield_quiet(_what: &'static str) {}

    /// True for a simulated thread.
    #[inline(always)]
    pub fn simulated() -> bool {
        false
    }

    /// Blocks a simulated thread on an address; `Some(true)`: woken, `Some(false)`: the
    /// deadline (us) passed first. `None`: not simulated.
    #[inline(always)]
    pub fn block(
        _what: &'static str,
        _key: usize,
        _mask: u32,
        _deadline_us: Option<u64>,
    ) -> Option<bool> {
        None
    }

    /// Wakes up to `n` simulated waiters of an address; `None`: not simulated.
    #[inline(always)]
    pub fn wake(_key: usize, _mask: u32, _n: usize) -> Option<usize> {
        None
    }

    /// The virtual clock (us).
    #[inline(always)]
    pub fn now_us() -> Option<u64> {
        None
    }

    /// A random number from the run's seed.
    #[inline(always)]
    pub fn random_u64() -> Option<u64> {
        None
    }

    /// Ends the simulated program; returns only when not simulated.
    #[inline(always)]
    pub fn fatal(_message: &str) {}

    /// The simulated thread's own number.
    #[inline(always)]
    pub fn task_number() -> Option<usize> {
        None
    }
}

#[cfg(all(feature = "sim", not(loom)))]
mod imp {
    pub use crate::sim::hooks::*;
}

pub(crate) use imp::*;
