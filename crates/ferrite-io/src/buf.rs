//! Memory that direct I/O accepts.
//!
//! Invariant: the pointer is a live allocation of exactly `len` initialised bytes, aligned
//! to [`BLOCK_BYTES`], owned by the buffer alone.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error, Layout};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::BLOCK_BYTES;

/// Zeroed bytes on the heap, aligned to 4096.
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns plain bytes; shared access only reads them.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    fn layout(len: usize) -> Layout {
        // Never a zero-sized allocation.
        Layout::from_size_align(len.max(1), BLOCK_BYTES).expect("buffer length overflows")
    }

    /// `len` zero bytes. Any length; direct I/O wants a multiple of [`BLOCK_BYTES`].
    pub fn zeroed(len: usize) -> AlignedBuf {
        let layout = Self::layout(len);
        // SAFETY: the layout's size is at least 1.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        AlignedBuf { start, len }
    }

    /// The same as [`zeroed`](Self::zeroed).
    pub fn new(len: usize) -> AlignedBuf {
        Self::zeroed(len)
    }

    /// A copy of those bytes, filled up with zeros to a multiple of [`BLOCK_BYTES`].
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(bytes.len().next_multiple_of(BLOCK_BYTES));
        buf[..bytes.len()].copy_from_slice(bytes);
        buf
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with the same layout; nobody else has it.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len)) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes, borrowed with the buffer.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: `len` initialised bytes, borrowed alone with the buffer.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(self.len);
        buf.copy_from_slice(self);
        buf
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_zero() {
        for len in [0, 1, 4096, 100_000] {
            let b = AlignedBuf::zeroed(len);
            assert_eq!(b.as_ptr() as usize % BLOCK_BYTES, 0);
            assert!(b.len() == len && b.iter().all(|x| *x == 0));
        }
        let c = AlignedBuf::copy_of(b"abc").clone();
        assert_eq!((c.len(), &c[..4]), (BLOCK_BYTES, &b"abc\0"[..]));
    }
}
