//! The ring of segments: what goes into the next one, and which pages the others have.
//!
//! Invariants: a segment in memory has no entries but those of its bytes in memory. Those that are full are written
//! one after the other, and are fewer than the ring has. `pages_of` of a segment has all pages with an entry in it,
//! and others.
//! Locking: none of its own.

use ferrite_types::PageId;
use std::collections::VecDeque;

use super::index::Index;
use super::layout::{SEGMENT_BYTES, SEGMENT_GRANULES};
use crate::deps::{AlignedBuf, Arc};
use crate::word::{BLOCK_BYTES, GRANULE_BYTES};

/// So many segments may wait to be written, in a ring that is large enough.
const MOST_FULL: usize = 16;

/// A segment in memory.
struct Segment {
    number: u32,
    used: usize,
    buf: AlignedBuf,
    pages: Vec<PageId>,
}

/// A segment that is to be written.
#[derive(Clone)]
pub(super) struct Full(Arc<Segment>);

impl Full {
    pub(super) fn number(&self) -> u32 {
        self.0.number
    }

    /// What is to be written, whole blocks.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0.buf[..self.0.used.next_multiple_of(BLOCK_BYTES)]
    }
}

/// See the head of the file.
pub(super) struct Ring {
    pages_of: Vec<Vec<PageId>>,
    filling: Segment,
    /// The next one to be written first.
    full: VecDeque<Full>,
    /// A buffer that is not used.
    spare: Option<AlignedBuf>,
}

impl Ring {
    /// Of so many segments; `next` is filled first.
    pub(super) fn new(segments: u32, next: u32) -> Ring {
        assert!(next < segments, "segment {next} of {segments}");
        Ring {
            pages_of: vec![Vec::new(); segments as usize],
            filling: Segment {
                number: next,
                used: 0,
                buf: AlignedBuf::zeroed(SEGMENT_BYTES),
                pages: Vec::new(),
            },
            full: VecDeque::new(),
            spare: None,
        }
    }

    /// A page of an earlier life.
    pub(super) fn holds(&mut self, page: PageId, place: u32) {
        self.pages_of[(place / SEGMENT_GRANULES) as usize].push(page);
    }

    /// What the segment that is to be filled had is forgotten.
    pub(super) fn make_room(&mut self, index: &Index) {
        let number = self.filling.number;
        assert_eq!(self.filling.used, 0, "segment {number} is in use");
        for page in std::mem::take(&mut self.pages_of[number as usize]) {
            index.forget_if(page, |entry| entry.place / SEGMENT_GRANULES == number);
        }
    }

    /// Takes a blob in, and says where: None if there is no room before a segment is written.
    pub(super) fn add(&mut self, page: PageId, blob: &[u8], index: &Index) -> Option<u32> {
        assert!(blob.len() <= SEGMENT_BYTES && blob.len() % GRANULE_BYTES == 0);
        if self.filling.used + blob.len() > SEGMENT_BYTES {
            if self.full.len() >= MOST_FULL.min(self.pages_of.len() / 2) {
                return None;
            }
            self.end_segment();
            self.make_room(index);
        }
        let segment = &mut self.filling;
        let at = segment.used;
        segment.buf[at..at + blob.len()].copy_from_slice(blob);
        segment.used += blob.len();
        segment.pages.push(page);
        Some(segment.number * SEGMENT_GRANULES + (at / GRANULE_BYTES) as u32)
    }

    /// The segment is to be written as it is, and the next one is filled.
    pub(super) fn end_segment(&mut self) {
        assert!(
            self.full.len() + 1 < self.pages_of.len(),
            "the ring is full"
        );
        let next = Segment {
            number: (self.filling.number + 1) % self.pages_of.len() as u32,
            used: 0,
            buf: (self.spare.take()).unwrap_or_else(|| AlignedBuf::zeroed(SEGMENT_BYTES)),
            pages: Vec::new(),
        };
        let full = std::mem::replace(&mut self.filling, next);
        self.full.push_back(Full(Arc::new(full)));
    }

    /// The segment that is to be written next.
    pub(super) fn full(&self) -> Option<Full> {
        self.full.front().cloned()
    }

    /// Is there one?
    pub(super) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// It is, or never will be.
    pub(super) fn written(&mut self, full: Full) {
        let was = self.full.pop_front().expect("a full segment");
        assert!(Arc::ptr_eq(&was.0, &full.0), "another segment is next");
        drop(was);
        let number = full.0.number as usize;
        debug_assert!(self.pages_of[number].is_empty(), "room was not made");
        match Arc::try_unwrap(full.0) {
            Ok(segment) => {
                self.pages_of[number] = segment.pages;
                self.spare = Some(segment.buf);
            }
            Err(shared) => self.pages_of[number] = shared.pages.clone(),
        }
    }

    /// Copies what is at that place from memory, if it is there.
    pub(super) fn copy(&self, place: u32, out: &mut [u8]) -> bool {
        let number = place / SEGMENT_GRANULES;
        let at = (place % SEGMENT_GRANULES) as usize * GRANULE_BYTES;
        let full = self.full.iter().map(|full| &*full.0);
        let mut in_memory = full.chain([&self.filling]);
        let Some(segment) = in_memory.find(|s| s.number == number) else {
            return false;
        };
        // If the place was given out again it is something else: who asks finds that out.
        out.copy_from_slice(&segment.buf[at..at + out.len()]);
        true
    }

    /// Which segment is filled next, and how many there are.
    pub(super) fn position(&self) -> (u32, u32) {
        (self.filling.number, self.pages_of.len() as u32)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let buffers = 1 + self.full.len() + usize::from(self.spare.is_some());
        let pages: usize = self.pages_of.iter().map(Vec::capacity).sum();
        buffers * SEGMENT_BYTES
            + pages * size_of::<PageId>()
            + self.pages_of.capacity() * size_of::<Vec<PageId>>()
    }
}
