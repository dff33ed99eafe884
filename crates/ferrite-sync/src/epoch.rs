//! Epochs: when may something that was unlinked be freed?
//!
//! A reader pins before it follows links; whoever unlinks something takes a tag and frees
//! it once the tag is quiet. Pins cost one store and one fence on a cache line that belongs
//! to the thread.
//!
//! Why it is sound. Four steps are ordered by SeqCst fences:
//!   reader:    (1) slot := e, e read from the global epoch   FENCE R   (2) follow links
//!   unlinker:  (3) unlink                                    FENCE U   (4) tag := epoch
//!   reclaimer:                                               FENCE C   (5) look at slots
//! and U comes before C, because the reclaimer got the tag from the unlinker. If U precedes
//! R, step 2 sees the unlinked state and the reader never has the thing. If R precedes U,
//! then the epoch read in 1 is no newer than the one read in 4 (a read before R and a later
//! read after U see a growing counter in order), so e <= tag; and R precedes C, so step 5
//! sees the slot as written in 1 or later. Seeing e <= tag means "not quiet"; seeing a later
//! value of the slot means that the reader has ended that pin, and since every write of a
//! slot is a release and step 5 acquires, its reads have happened before the freeing.
//! A stale e in step 1 only keeps things longer.
//!
//! Locking: none. A slot is written by its thread alone; chunks of slots are only added.

use std::marker::PhantomData;

use crate::atomic::{fence, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use crate::shard::{thread_number, CachePadded};

/// Not pinned.
const IDLE: u64 = u64::MAX;

/// Slots of the first chunk; each next one has twice as many.
const FIRST_CHUNK: usize = if cfg!(loom) { 2 } else { 32 };
const CHUNKS: usize = if cfg!(loom) { 2 } else { 20 };

struct Slot {
    /// The epoch of the outermost pin, or `IDLE`.
    pinned: AtomicU64,
    /// How many pins of the owning thread are open; nobody else looks.
    depth: AtomicU32,
}

/// A global epoch and who is pinned in it.
pub struct Epochs {
    epoch: CachePadded<AtomicU64>,
    chunks: [AtomicPtr<CachePadded<Slot>>; CHUNKS],
}

impl Default for Epochs {
    fn default() -> Epochs {
        Epochs::new()
    }
}

/// Writes the slot and then passes a full fence.
#[inline(always)]
fn announce(slot: &AtomicU64, e: u64) {
    // An exchange is a full fence on this processor and cheaper than a store and MFENCE; the
    // compiler's fence keeps the compiler from moving anything across it.
    #[cfg(all(target_arch = "x86_64", not(loom), not(miri)))]
    {
        slot.swap(e, Ordering::SeqCst);
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
    #[cfg(not(all(target_arch = "x86_64", not(loom), not(miri))))]
    {
        slot.store(e, Ordering::Release);
        fence(Ordering::SeqCst);
    }
}

/// Chunk number and place within it.
fn place(slot: usize) -> (usize, usize) {
    let n = slot / FIRST_CHUNK + 1;
    let chunk = n.ilog2() as usize;
    (chunk, slot - FIRST_CHUNK * ((1 << chunk) - 1))
}

fn chunk_len(chunk: usize) -> usize {
    FIRST_CHUNK << chunk
}

impl Epochs {
    /// Epoch 1, nobody pinned.
    pub fn new() -> Epochs {
        Epochs {
            epoch: CachePadded(AtomicU64::new(1)),
            chunks: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
        }
    }

    /// Whatever is linked now is not freed before the guard is dropped. Pins nest; the
    /// outermost one counts. A guard stays on its thread; one that is forgotten holds its
    /// epoch for ever.
    #[inline]
    pub fn pin(&self) -> EpochGuard<'_> {
        self.pin_slot(thread_number())
    }

    #[inline]
    pub(crate) fn pin_slot(&self, number: usize) -> EpochGuard<'_> {
        let slot = self.slot(number);
        let depth = slot.depth.load(Ordering::Relaxed);
        slot.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            let e = self.epoch.load(Ordering::Relaxed);
            announce(&slot.pinned, e); // slot := e, FENCE R
        }
        EpochGuard {
            slot,
            _stays: PhantomData,
        }
    }

    /// Has this thread a pin open?
    pub fn is_pinned_here(&self) -> bool {
        self.slot(thread_number()).depth.load(Ordering::Relaxed) > 0
    }

    #[inline]
    fn slot(&self, number: usize) -> &Slot {
        let (chunk, at) = place(number);
        let mut first = self.chunks[chunk].load(Ordering::Acquire);
        if first.is_null() {
            first = self.add_chunk(chunk);
        }
        // SAFETY: a chunk pointer is null or points to `chunk_len(chunk)` slots that live
        // until `self` is dropped; `at` is less than that by `place`.
        unsafe { &(*first.add(at)).0 }
    }

    #[cold]
    fn add_chunk(&self, chunk: usize) -> *mut CachePadded<Slot> {
        let slots: Box<[CachePadded<Slot>]> = (0..chunk_len(chunk))
            .map(|_| {
                CachePadded(Slot {
                    pinned: AtomicU64::new(IDLE),
                    depth: AtomicU32::new(0),
                })
            })
            .collect();
        let new = Box::into_raw(slots).cast::<CachePadded<Slot>>();
        match self.chunks[chunk].compare_exchange(
            std::ptr::null_mut(),
            new,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => new,
            Err(theirs) => {
                // SAFETY: `new` was made just above and shown to nobody.
                unsafe { free_chunk(new, chunk) };
                theirs
            }
        }
    }

    /// The epoch now.
    #[inline]
    pub fn current(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Moves to the next epoch and returns it. Without it, new pins keep old tags busy:
    /// call it now and then (for each batch of retired things).
    pub fn advance(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The tag of something whose last link was just removed. Call after unlinking.
    #[inline]
    pub fn retired_now(&self) -> u64 {
        fence(Ordering::SeqCst); // U
        self.epoch.load(Ordering::Relaxed)
    }

    /// The oldest epoch that anybody is pinned in, `u64::MAX` if nobody is. Every tag less
    /// than it is quiet.
    pub fn oldest(&self) -> u64 {
        fence(Ordering::SeqCst); // C
        let mut oldest = IDLE;
        for (c, chunk) in self.chunks.iter().enumerate() {
            let first = chunk.load(Ordering::Acquire);
            if first.is_null() {
                continue;
            }
            for i in 0..chunk_len(c) {
                // SAFETY: as in `slot`.
                let slot = unsafe { &(*first.add(i)).0 };
                oldest = oldest.min(slot.pinned.load(Ordering::Acquire));
            }
        }
        oldest
    }

    /// No pin that could have seen what was retired with that tag is left. The tag must
    /// have come from [`retired_now`](Self::retired_now) of this object, by way of
    /// something that orders memory (a lock, a channel, the same thread).
    pub fn is_quiet(&self, tag: u64) -> bool {
        self.oldest() > tag
    }
}

/// # Safety
/// `first` comes from `add_chunk` for that chunk number and is used by nobody any more.
unsafe fn free_chunk(first: *mut CachePadded<Slot>, chunk: usize) {
    let slots = std::ptr::slice_from_raw_parts_mut(first, chunk_len(chunk));
    // SAFETY: the pointer and length are those of the boxed slice it was made from.
    drop(unsafe { Box::from_raw(slots) });
}

impl Drop for Epochs {
    fn drop(&mut self) {
        for (c, chunk) in self.chunks.iter().enumerate() {
            let first = chunk.load(Ordering::Relaxed);
            if !first.is_null() {
                // SAFETY: `self` is borrowed alone, so that no guard is left.
                unsafe { free_chunk(first, c) };
            }
        }
    }
}

/// Keeps its thread pinned until dropped.
#[must_use]
pub struct EpochGuard<'a> {
    slot: &'a Slot,
    /// Not Send: the slot belongs to the thread.
    _stays: PhantomData<*mut ()>,
}

impl Drop for EpochGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.slot.depth.load(Ordering::Relaxed) - 1;
        self.slot.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            self.slot.pinned.store(IDLE, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "epoch_tests.rs"]
mod tests;
