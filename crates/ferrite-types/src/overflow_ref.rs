//! What a row keeps of a value out of line.
//!
//! ```text
//! reference (16 bytes): first page u32 | pages u32 | length u32 | stamp u32
//! ```
//!
//! Invariant: any 16 bytes are a reference; whether pages bear its stamp is for who reads them.
//! Locking: none.

use core::fmt;

use crate::PageId;

/// Bytes of a reference.
pub const OVERFLOW_REF_BYTES: usize = 16;

/// Names a value out of line: where it begins, how long it is, and the stamp its pages bear.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct OverflowRef([u8; OVERFLOW_REF_BYTES]);

impl OverflowRef {
    /// Of a value of `length` bytes on `pages` pages.
    pub fn new(first_page: PageId, pages: u32, length: u32, stamp: u32) -> OverflowRef {
        let mut bytes = [0; OVERFLOW_REF_BYTES];
        let words = [first_page.0, pages, length, stamp];
        for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let made = OverflowRef(bytes);
        debug_assert_eq!(
            (made.first_page(), made.pages(), made.length(), made.stamp()),
            (first_page, pages, u64::from(length), stamp),
            "a reference reads differently"
        );
        made
    }

    /// As a row or the log has it.
    #[inline]
    pub const fn from_bytes(bytes: [u8; OVERFLOW_REF_BYTES]) -> OverflowRef {
        OverflowRef(bytes)
    }

    /// As a row or the log has it.
    #[inline]
    pub const fn bytes(&self) -> &[u8; OVERFLOW_REF_BYTES] {
        &self.0
    }

    #[inline]
    fn word(&self, number: usize) -> u32 {
        let at = 4 * number;
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// Where it begins.
    #[inline]
    pub fn first_page(&self) -> PageId {
        PageId(self.word(0))
    }

    /// On how many pages it is.
    #[inline]
    pub fn pages(&self) -> u32 {
        self.word(1)
    }

    /// The value's length, in bytes.
    #[inline]
    pub fn length(&self) -> u64 {
        u64::from(self.word(2))
    }

    /// What each of its pages bears; 0 for values of before there were stamps.
    #[inline]
    pub fn stamp(&self) -> u32 {
        self.word(3)
    }
}

impl fmt::Debug for OverflowRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "OverflowRef({} + {}, {} bytes, stamp {})",
            self.first_page(),
            self.pages(),
            self.length(),
            self.stamp()
        )
    }
}
