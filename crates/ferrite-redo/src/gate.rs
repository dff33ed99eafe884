//! Who leads a flush, who waits for one, and the state of the flusher thread.
//!
//! Invariants and locking: see `flush.rs`, which works with it.

use ferrite_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ferrite_sync::{Arc, Event};

/// Somebody parked until `lsn` is durable.
pub(crate) struct Waiter {
    pub lsn: u64,
    pub woken: Event,
}

/// A deferred commit that is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// What stands for it.
    pub token: usize,
    /// How long it has waited for that, us.
    pub waited_us: u64,
}

/// Releases a group of deferred commits.
pub type AckFn = Box<dyn Fn(&[Ack]) + Send + Sync>;

/// A commit in the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deferred {
    pub lsn: u64,
    pub token: usize,
    /// Since when, us.
    pub since_us: u64,
}

/// A callback for a durable position.
pub(crate) type Notice = (u64, Box<dyn FnOnce() + Send>);

/// Who leads, and who waits.
#[derive(Default)]
pub(crate) struct Gate {
    pub leading: bool,
    pub flusher_waits: bool,
    pub waiters: Vec<Arc<Waiter>>,
}

/// State of the flusher thread.
#[derive(Default)]
pub(crate) struct Flusher {
    pub event: Event,
    pub sleeping: AtomicBool,
    pub running: AtomicBool,
    pub stop: AtomicBool,
    pub interval_ms: AtomicU32,
}

impl Flusher {
    pub(crate) fn running(&self) -> bool {
        self.running.load(Ordering::SeqCst)
    }

    pub(crate) fn asleep(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst)
    }

    /// Wakes the flusher if it sleeps; a system call only then.
    pub(crate) fn wake(&self) -> bool {
        let woke = self.asleep() && self.sleeping.swap(false, Ordering::SeqCst);
        if woke {
            self.event.set();
        }
        woke
    }
}
