//! The memory of all frames: one range of addresses, cut into pages.
//!
//! Invariant: this file hands out slices whose exclusivity the caller proves; each caller in
//! `guard.rs` names the latch or pin that makes it true. The addresses live as long as the
//! pool.

use crate::reserved::Reserved;
use ferrite_types::{Result, PAGE_BYTES};

pub(crate) struct Arena {
    memory: Reserved,
}

impl Arena {
    /// Addresses for so many pages at most, memory for none.
    pub(crate) fn new(most: usize) -> Result<Arena> {
        assert!(most > 0, "no memory for pages");
        Ok(Arena {
            memory: Reserved::new(most * PAGE_BYTES)?,
        })
    }

    /// There is memory for the first `frames` pages.
    pub(crate) fn open_to(&self, frames: usize) -> Result<()> {
        self.memory.open_to(frames * PAGE_BYTES)
    }

    /// The memory of these frames' pages goes back to the system.
    ///
    /// # Safety
    /// They hold no page, and nobody looks at one that they held.
    pub(crate) unsafe fn give_back(&self, from: usize, to: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.memory.give_back(from * PAGE_BYTES, to * PAGE_BYTES) }
    }

    fn at(&self, f: u32) -> *mut u8 {
        let begin = f as usize * PAGE_BYTES;
        assert!(
            begin + PAGE_BYTES <= self.memory.open_bytes(),
            "frame number out of range"
        );
        // SAFETY: in range by the assertion.
        unsafe { self.memory.base().add(begin) }
    }

    /// The page of frame `f`.
    ///
    /// # Safety
    /// Nobody changes the page while the slice lives: the caller holds the frame's latch
    /// (shared or exclusive), or the frame is a published inner node and the caller's epoch
    /// pin is older than its retirement.
    pub(crate) unsafe fn page<'a>(&self, f: u32) -> &'a [u8] {
        // SAFETY: `at` is in range; stability by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at(f), PAGE_BYTES) }
    }

    /// The page of frame `f`, for change.
    ///
    /// # Safety
    /// The caller alone can reach the page while the slice lives: it holds the exclusive
    /// latch of a leaf's frame, or a frame that is not published.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn page_mut<'a>(&self, f: u32) -> &'a mut [u8] {
        // SAFETY: `at` is in range; exclusivity by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at(f), PAGE_BYTES) }
    }
}
