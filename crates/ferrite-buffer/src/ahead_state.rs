//! What those who ask for pages ahead and the threads that read them share (see `read_ahead`); and
//! how often a thread would have had to wait for the disk.
//!
//! Invariant: no more ids are queued than there was [`room`] for when they came. Locking: the queue
//! is a leaf.

use ferrite_sync::atomic::AtomicBool;
use ferrite_sync::{Condvar, Mutex};
use ferrite_types::PageId;
use std::cell::Cell;
use std::collections::VecDeque;

/// Most pages that one thread reads together.
const TOGETHER: usize = 16;
/// The queue has room for one part of the pool of so many, and for so many pages at most.
pub(crate) const QUEUE_SHARE: usize = 8;
const QUEUE_PAGES: usize = 512;

thread_local! {
    static MISSES: Cell<u64> = const { Cell::new(0) };
}

/// How often this thread has asked for a page that was not in memory, or would not have been had
/// it not been read ahead.
#[inline]
pub fn misses_here() -> u64 {
    MISSES.get()
}

pub(crate) fn note_miss() {
    MISSES.set(MISSES.get() + 1);
}

/// A step that missed a page adds so much to the rate; one that did not takes 1 away.
const MISS: u32 = 32;
/// As high as the rate goes.
const MOST: u32 = 8 * MISS;
/// The rate at which it is worth looking for what comes next: two misses within a few dozen steps.
const WORTH: u32 = MISS + 1;

/// How often the steps of some work, each of one row or so, found pages that were not in memory.
#[derive(Default)]
pub struct MissRate(u32);

impl MissRate {
    /// A step was made, with so many misses (see [`misses_here`]).
    #[inline]
    pub fn note(&mut self, misses: u64) {
        self.0 = match misses {
            0 => self.0.saturating_sub(1),
            _ => (self.0 + MISS).min(MOST),
        };
        debug_assert!(self.0 <= MOST, "{} misses", self.0);
    }

    /// It is worth asking for pages ahead.
    #[inline]
    pub fn is_high(&self) -> bool {
        self.0 >= WORTH
    }
}

pub(crate) struct Queue {
    pub(crate) ids: VecDeque<PageId>,
    /// Threads that wait for work.
    pub(crate) idle: usize,
}

/// What those who ask and the threads that read share.
pub(crate) struct ReadAheadState {
    pub(crate) queue: Mutex<Queue>,
    pub(crate) work: Condvar,
    pub(crate) on: AtomicBool,
    pub(crate) stop: AtomicBool,
}

impl ReadAheadState {
    pub(crate) fn new() -> ReadAheadState {
        ReadAheadState {
            queue: Mutex::new(Queue {
                ids: VecDeque::with_capacity(QUEUE_PAGES),
                idle: 0,
            }),
            work: Condvar::new(),
            on: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        }
    }
}

/// Most ids in the queue of a pool of so many frames.
pub(crate) fn room(frames: usize) -> usize {
    let room = (frames / QUEUE_SHARE).min(QUEUE_PAGES);
    assert!(room > 0, "{frames} frames");
    room
}

/// Most pages that one thread reads together into a pool of so many frames.
pub(crate) fn together(frames: usize) -> usize {
    (frames / 64).clamp(1, TOGETHER)
}
