//! The only door to atomics, locks, threads, time and randomness.
//!
//! Everything above asks here instead of `std`, so that the same code runs three ways:
//! really (futexes and OS threads), under the loom model checker (`--cfg loom`), and under
//! a deterministic scheduler (feature `sim`, module [`sim`]) in which one seed is one run.
//!
//! Invariants:
//! - Without the features `sim` and `stop-points` nothing of them is left in the code.
//! - With `sim`, only threads that belong to a simulation behave differently; all others
//!   are real. One object must not be shared between simulated and real threads.
//! - No lock here is poisoned: a panic is a bug of the core and ends the process, or, in a
//!   test, ends the test.

pub use std::sync::Arc;
pub use std::sync::{OnceLock, Weak};

#[cfg(not(loom))]
pub(crate) mod imp {
    pub use std::sync::{
        atomic, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };
}
#[cfg(loom)]
pub(crate) mod imp {
    pub use loom::sync::{
        atomic, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };
}

/// Atomic integers; under loom, the model checker's.
pub mod atomic {
    pub use crate::imp::atomic::{
        fence, AtomicBool, AtomicI64, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicU8,
        AtomicUsize, Ordering,
    };
}

/// A `const fn`, except under loom, whose atomics cannot be made at compile time.
macro_rules! const_unless_loom {
    ($(#[$m:meta])* $v:vis fn $($rest:tt)*) => {
        $(#[$m])* #[cfg(not(loom))] $v const fn $($rest)*
        $(#[$m])* #[cfg(loom)] $v fn $($rest)*
    };
}

mod condvar;
pub mod epoch;
mod event;
mod futex;
mod histogram;
mod hook;
mod latch;
mod lock;
pub mod memory;
pub mod mutation;
mod nowait;
pub mod observed;
pub mod random;
mod shard;
pub mod stop;
pub mod thread;
pub mod time;
pub mod waits;

#[cfg(all(feature = "sim", not(loom)))]
pub mod sim;

#[cfg(loom)]
pub mod model;

#[cfg(all(test, loom))]
mod loom_tests;

pub use condvar::Condvar;
pub use event::Event;
pub use histogram::Histogram;
pub use latch::Latch;
pub use lock::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use nowait::{exempt_from_no_wait, may_wait, NoWait};
pub use shard::{shard_index, CachePadded, Counter};
