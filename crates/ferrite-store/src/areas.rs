//! Areas of small blobs: words of a segment's bitmap, 64 KiB each, that are given to deltas alone.
//!
//! Deltas are of one granule or a few, and each is replaced when its page is written again. Between the blobs of whole
//! pages they would leave free blocks too short for any page. So they have areas of their own: an area begins as a wholly
//! free word, and is one until it is wholly free again. Its free blocks are not counted as usable: no page goes there.
//!
//! Invariants: a word with a delta is an area, unless a page took a part of it because the disk is full, or the delta was
//! placed outside all areas: while the lowest space goes first, or because the disk is full. Pages that were written before
//! there were areas may share one with deltas.
//!
//! Policy: the next run of [`GOOD_RUN`] granules in an area of the current segment and a few more, for each run is a
//! write; a new area; any free block of an area. Then the store grows: in the space for pages a delta would leave a
//! piece that is too short for one. If it cannot grow, the deltas of that batch go anywhere, and no more are written until
//! the store has grown or there is a word for a new area.
//!
//! Locking: none here; see `runs.rs`.

use crate::runs::FreeRuns;
use crate::segment::{free_blocks, masks, For, Segment};
use crate::word::BLOCK_GRANULES;

/// Granules of a run that is worth a write.
const GOOD_RUN: u32 = 16;
/// Segments whose areas are looked at before a new one is made.
const LOOK_SEGMENTS: usize = 8;

impl Segment {
    /// Is that word an area of small blobs?
    pub(crate) fn is_area(&self, word: usize) -> bool {
        let areas = self.areas.as_deref();
        areas.is_some_and(|areas| areas[word / 64] >> (word % 64) & 1 == 1)
    }

    /// The word is an area from here on.
    pub(crate) fn begin_area(&mut self, word: usize) {
        assert!(!self.is_area(word), "word {word} is an area already");
        let words = self.bits.len();
        let areas = self
            .areas
            .get_or_insert_with(|| vec![0; words.div_ceil(64)].into());
        areas[word / 64] |= 1 << (word % 64);
        self.usable -= free_blocks(self.bits[word]).count_ones() * BLOCK_GRANULES;
        self.longest_small = words as u32 * 64;
        assert!(self.usable <= self.free, "{} are usable", self.usable);
    }

    /// Of the areas in this range those that are wholly free are none any more. `usable` is the caller's to correct.
    pub(crate) fn end_areas(&mut self, at: u32, n: u32) {
        let Some(areas) = &mut self.areas else { return };
        for (word, _) in masks(at, n) {
            if self.bits[word] == 0 {
                areas[word / 64] &= !(1 << (word % 64));
            }
        }
    }

    /// The words that are areas among these, of which something else takes a part, are none any more.
    pub(crate) fn leave_areas(&mut self, at: u32, n: u32) {
        let Some(areas) = &mut self.areas else { return };
        for (word, _) in masks(at, n) {
            if areas[word / 64] >> (word % 64) & 1 == 1 {
                areas[word / 64] &= !(1 << (word % 64));
                self.usable += free_blocks(self.bits[word]).count_ones() * BLOCK_GRANULES;
                self.longest = self.bits.len() as u32 * 64;
            }
        }
        assert!(self.usable <= self.free, "{} are usable", self.usable);
    }

    /// The first free run of areas with at least `need` granules at or after `from`.
    fn small_run(&self, from: u32, need: u32) -> Option<(u32, u32)> {
        self.areas.as_ref()?;
        self.long_run(from, need, For::Small)
    }

    /// A wholly free word that is no area. Looks only if there was one since it found none.
    fn free_word(&mut self) -> Option<usize> {
        if !self.may_begin_area {
            return None;
        }
        let found = (0..self.bits.len()).find(|&i| self.bits[i] == 0 && !self.is_area(i));
        self.may_begin_area = found.is_some();
        found
    }
}

impl FreeRuns {
    /// Is there a wholly free word that a new area could have? While the disk has no room for what is a hole, one
    /// that is none. Cheap: a segment is looked at once.
    pub(crate) fn may_begin_area(&mut self) -> bool {
        let holes_last = self.holes_go_last();
        let mut segments = self.segments.iter_mut();
        segments.any(|segment| {
            let word = segment.free_word();
            word.is_some_and(|word| !holes_last || segment.holes_in(word as u32 * 64, 64) == 0)
        })
    }

    /// A run for small blobs that need `need` granules first and `left` in all: segment, start, length.
    pub(crate) fn find_small(&mut self, need: u32, left: u32) -> Option<(usize, u32, u32)> {
        assert!(need > 0 && need <= left, "{need} granules of {left}");
        let good = need.max(GOOD_RUN.min(left));
        self.find_in_areas(good)
            .or_else(|| self.new_area())
            .or_else(|| self.find_in_areas(need))
    }

    fn find_in_areas(&mut self, need: u32) -> Option<(usize, u32, u32)> {
        let count = self.segments.len();
        let (first, cursor) = self.small_at;
        let others = (0..count.min(LOOK_SEGMENTS)).map(|n| ((first + n) % count, 0));
        for (number, from) in std::iter::once((first, cursor)).chain(others) {
            let segment = &mut self.segments[number];
            if segment.longest_small < need {
                continue;
            }
            if let Some((at, len)) = segment.small_run(from, need) {
                return Some((number, at, len));
            }
            if from == 0 {
                segment.longest_small = need - 1;
            }
        }
        None
    }

    fn new_area(&mut self) -> Option<(usize, u32, u32)> {
        let count = self.segments.len();
        let first = self.small_at.0;
        let mut numbers = (0..count).map(|n| (first + n) % count);
        let (number, word) = numbers.find_map(|number| {
            let word = self.segments[number].free_word()?;
            Some((number, word))
        })?;
        self.segments[number].begin_area(word);
        Some((number, word as u32 * 64, 64))
    }
}
