//! The allocator: what it has given out, and what one has to say to it.
//!
//! The server's processes use the C library's allocator, for C++ and Rust alike. It keeps what
//! was freed in the middle of its heaps until it is asked. [`Counted`] in front of it counts what
//! Rust has of it.
//!
//! Invariant: what was given out and not taken back is the sum of all counters; one of them alone
//! says nothing. Locking: none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters, chosen by address: threads seldom meet, and what is freed is counted where it was when
/// it was given out.
const SHARDS: usize = 64;
/// The C library's allocator has its own word in front of each piece, which begins at a multiple of so
/// many bytes.
const GRAIN_BYTES: usize = 16;
const WORD_BYTES: usize = 8;
const LEAST_BYTES: usize = 32;

// Not this crate's own types: an allocator is there before a model checker, and under it.
#[repr(align(64))]
struct Shard(AtomicUsize);

static GIVEN_OUT: [Shard; SHARDS] = [const { Shard(AtomicUsize::new(0)) }; SHARDS];

/// The C library's allocator, counted. To be made the global one where that is wanted; else
/// [`heap_bytes`] is 0.
pub struct Counted;

/// What a piece takes of the heap.
fn cost(bytes: usize) -> usize {
    (bytes + WORD_BYTES)
        .next_multiple_of(GRAIN_BYTES)
        .max(LEAST_BYTES)
}

fn shard(piece: *mut u8) -> &'static AtomicUsize {
    let at = piece as usize / GRAIN_BYTES;
    // Large pieces begin at the same offset in a page.
    &GIVEN_OUT[(at ^ (at >> 8) ^ (at >> 16)) % SHARDS].0
}

fn count(piece: *mut u8, bytes: usize) {
    if !piece.is_null() {
        shard(piece).fetch_add(cost(bytes), Ordering::Relaxed);
    }
}

fn uncount(piece: *mut u8, bytes: usize) {
    shard(piece).fetch_sub(cost(bytes), Ordering::Relaxed);
}

// SAFETY: each call is the system allocator's, with the arguments as they came; counting touches
// nothing else.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's promise.
        let piece = unsafe { System.alloc(layout) };
        count(piece, layout.size());
        piece
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: by the caller's promise.
        let piece = unsafe { System.alloc_zeroed(layout) };
        count(piece, layout.size());
        piece
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        uncount(piece, layout.size());
        // SAFETY: by the caller's promise.
        unsafe { System.dealloc(piece, layout) }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: by the caller's promise.
        let moved = unsafe { System.realloc(piece, layout, bytes) };
        if !moved.is_null() {
            uncount(piece, layout.size());
            count(moved, bytes);
        }
        moved
    }
}

/// Bytes of the heap that Rust has, with the allocator's own share in them; 0 if [`Counted`] is not
/// the global allocator.
pub fn heap_bytes() -> u64 {
    let each = |s: &Shard| s.0.load(Ordering::Relaxed);
    let sum = GIVEN_OUT.iter().map(each).fold(0, usize::wrapping_add);
    // Read one after the other, while pieces come and go.
    (sum as isize).max(0) as u64
}

/// Gives free memory back to the system. Takes each heap's lock in turn for as long as the walk
/// over its free pieces takes: for background threads, after much has been freed.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: malloc_trim takes no pointers and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Tests of this crate run with it.
    #[global_allocator]
    static COUNTED: Counted = Counted;

    #[test]
    fn what_is_given_out_is_counted_until_it_is_taken_back() {
        const BYTES: usize = 64 << 20;
        // Others allocate beside this test, but not so much.
        let slack = (BYTES / 4) as u64;
        let before = heap_bytes();
        let mut piece: Vec<u8> = Vec::with_capacity(BYTES);
        let with = heap_bytes();
        assert!(
            with.abs_diff(before + BYTES as u64) < slack,
            "{before} {with}"
        );
        piece.reserve_exact(2 * BYTES);
        let twice = heap_bytes();
        assert!(
            twice.abs_diff(before + 2 * BYTES as u64) < slack,
            "{before} {twice}"
        );
        drop(piece);
        assert!(heap_bytes().abs_diff(before) < slack);
    }
}
