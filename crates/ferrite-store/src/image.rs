//! What of a page is written: its bytes without the gap in the middle.
//!
//! Invariant: head and tail together are no longer than a page. Locking: none.

/// Bytes before the body of a blob. A page that leaves this many bytes unused fits its own
/// size in granules.
pub const BLOB_HEADER_BYTES: usize = 40;

/// A page's bytes: what opens it and what closes it. Between them lies a gap nobody needs;
/// it is not written and reads back as zeros.
#[derive(Clone, Copy)]
pub struct PageImage<'a> {
    /// From the first byte of the page.
    pub head: &'a [u8],
    /// Up to the last byte of the page.
    pub tail: &'a [u8],
}

impl<'a> PageImage<'a> {
    /// A page without a gap.
    pub fn whole(page: &'a [u8]) -> PageImage<'a> {
        PageImage {
            head: page,
            tail: &[],
        }
    }

    /// A page whose bytes `head_end..tail_start` are the gap. Panics when they are not in
    /// the page in that order.
    pub fn with_gap(page: &'a [u8], head_end: usize, tail_start: usize) -> PageImage<'a> {
        assert!(head_end <= tail_start && tail_start <= page.len());
        PageImage {
            head: &page[..head_end],
            tail: &page[tail_start..],
        }
    }

    /// Bytes that are written.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }
}
