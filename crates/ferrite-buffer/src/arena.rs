//! The memory of all frames: one anonymous mapping, cut into pages.
//!
//! Invariant: this file hands out slices whose exclusivity the caller proves; each caller in
//! `guard.rs` names the latch or pin that makes it true. The mapping lives as long as the
//! pool.

use ferrite_types::{Error, Result, PAGE_BYTES};

pub(crate) struct Arena {
    base: *mut u8,
    bytes: usize,
    frames: usize,
}

// SAFETY: the arena is plain memory; access to each page is serialised by its frame's latch
// or by the immutability of published inner nodes.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) fn new(frames: usize) -> Result<Arena> {
        assert!(frames > 0, "no memory for pages");
        let bytes = frames * PAGE_BYTES;
        // SAFETY: an anonymous private mapping without a fixed address has no preconditions.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::BadConfig(format!(
                "buffer_pool_size: cannot map {bytes} bytes of memory"
            )));
        }
        // SAFETY: the range was just mapped. Huge pages are a wish; a refusal changes nothing.
        unsafe {
            libc::madvise(base, bytes, libc::MADV_HUGEPAGE);
            libc::madvise(base, bytes, libc::MADV_DONTDUMP);
        }
        Ok(Arena {
            base: base.cast(),
            bytes,
            frames,
        })
    }

    /// The page of frame `f`.
    ///
    /// # Safety
    /// Nobody changes the page while the slice lives: the caller holds the frame's latch
    /// (shared or exclusive), or the frame is a published inner node and the caller's epoch
    /// pin is older than its retirement.
    pub(crate) unsafe fn page<'a>(&self, f: u32) -> &'a [u8] {
        assert!((f as usize) < self.frames, "frame number out of range");
        // SAFETY: in range by the assertion; stability by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base.add(f as usize * PAGE_BYTES), PAGE_BYTES) }
    }

    /// The page of frame `f`, for change.
    ///
    /// # Safety
    /// The caller alone can reach the page while the slice lives: it holds the exclusive
    /// latch of a leaf's frame, or a frame that is not published.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn page_mut<'a>(&self, f: u32) -> &'a mut [u8] {
        assert!((f as usize) < self.frames, "frame number out of range");
        // SAFETY: in range by the assertion; exclusivity by the caller's promise.
        unsafe {
            std::slice::from_raw_parts_mut(self.base.add(f as usize * PAGE_BYTES), PAGE_BYTES)
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length and is dropped once.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}
