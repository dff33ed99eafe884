//! The free space of one segment: a bitmap of its granules.
//!
//! Invariants: `free` is the number of the clear bits, `usable` the granules of blocks that are wholly free, without those of
//! areas of small blobs (`areas.rs`); `longest` is never below the longest run of those; what is in use is neither stale nor
//! a hole; `holes` is the number of the latter.
//!
//! Locking: none here; see `runs.rs`.

use crate::word::BLOCK_GRANULES;

/// The lowest bit of each block.
const BLOCKS: u64 = 0x1111_1111_1111_1111;
const _: () = assert!(BLOCK_GRANULES == 4, "a digit of a word is a block");

/// The lowest bit of each block of the word that is wholly free.
pub(crate) fn free_blocks(word: u64) -> u64 {
    !(word | word >> 1 | word >> 2 | word >> 3) & BLOCKS
}

/// Up to the next block.
pub(crate) fn whole_blocks(granules: u32) -> u32 {
    granules.next_multiple_of(BLOCK_GRANULES)
}

/// The numbers of the blocks that those granules lie in.
fn blocks_of(at: u32, n: u32) -> std::ops::Range<usize> {
    debug_assert!(n > 0, "no granule at {at}");
    (at / BLOCK_GRANULES) as usize..(at + n).div_ceil(BLOCK_GRANULES) as usize
}

/// Who looks for free blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum For {
    /// Pages as a whole.
    Pages,
    /// Small blobs, in their areas.
    Small,
    /// Anything.
    All,
}

/// The bitmap of one segment.
pub(crate) struct Segment {
    /// Bit set: granule in use.
    pub(crate) bits: Box<[u64]>,
    /// Bit set: granule free, and what was there may still be.
    pub(crate) stale: Box<[u64]>,
    /// Bit set: granule free, and given back to the file system. None: no granule is, as far as is known.
    given_back: Option<Box<[u64]>>,
    /// Granules given back to the file system.
    pub(crate) holes: u32,
    /// Some stale granules may be zeroes already.
    pub(crate) doubtful: bool,
    pub(crate) free: u32,
    /// Granules of blocks that are wholly free.
    pub(crate) usable: u32,
    /// No free run is longer.
    pub(crate) longest: u32,
    /// Bit set: that word of `bits` is an area of small blobs. None: no word is.
    pub(crate) areas: Option<Box<[u64]>>,
    /// No free run of the areas is longer.
    pub(crate) longest_small: u32,
    /// There may be a word for a new area.
    pub(crate) may_begin_area: bool,
    /// Changed since its free runs were last given back to the file system.
    pub(crate) touched: bool,
    /// For each block the generation in which a blob last took part of it; None: none did since
    /// generations are counted. No block is written to while a blob lives in it, so that all blobs
    /// of a block took it at once.
    pub(crate) taken_in: Option<Box<[u8]>>,
}

impl Segment {
    /// A segment of that length that has no part in the store yet.
    pub(crate) fn new(granules: u32) -> Segment {
        Segment {
            bits: vec![u64::MAX; granules as usize / 64].into(),
            stale: vec![0; granules as usize / 64].into(),
            given_back: None,
            holes: 0,
            doubtful: false,
            free: 0,
            usable: 0,
            longest: 0,
            areas: None,
            longest_small: 0,
            may_begin_area: false,
            touched: false,
            taken_in: None,
        }
    }

    /// Blobs take these blocks in that generation.
    pub(crate) fn note_taken(&mut self, at: u32, n: u32, generation: u8) {
        let whole = at % BLOCK_GRANULES == 0 && n % BLOCK_GRANULES == 0;
        assert!(whole && n > 0 && generation > 0, "{n} granules at {at}");
        let blocks = self.bits.len() * 64 / BLOCK_GRANULES as usize;
        let taken_in = self.taken_in.get_or_insert_with(|| vec![0; blocks].into());
        taken_in[blocks_of(at, n)].fill(generation);
    }

    /// The last generation in which a block of these granules was taken; 0: none is noted.
    pub(crate) fn last_taken(&self, at: u32, n: u32) -> u8 {
        let Some(taken_in) = &self.taken_in else {
            return 0;
        };
        taken_in[blocks_of(at, n)]
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// The range becomes free space of the store; `stale` when what its file holds there is not
    /// known, nor whether it is a hole.
    pub(crate) fn open(&mut self, at: u32, n: u32, stale: bool) {
        assert!(
            at % BLOCK_GRANULES == 0 && n % BLOCK_GRANULES == 0,
            "{at}+{n}"
        );
        let touched = self.touched;
        self.give(at, n, stale);
        self.doubtful |= stale;
        self.touched = touched || stale;
    }

    /// These free granules are holes in the file now.
    pub(crate) fn note_hole(&mut self, at: u32, n: u32) {
        let words = self.bits.len();
        let given_back = self.given_back.get_or_insert_with(|| vec![0; words].into());
        let mut more = 0;
        each_word(given_back, at, n, |w, mask| {
            more += (mask & !*w).count_ones();
            *w |= mask;
        });
        let used = count_bits(&self.bits, at, n);
        assert!(used == 0, "a hole of {n} at {at}, {used} in use");
        self.holes += more;
        debug_assert!(self.is_sound(), "after {at}+{n} became a hole");
    }

    /// How many of these granules are holes.
    pub(crate) fn holes_in(&self, at: u32, n: u32) -> u32 {
        debug_assert!(n > 0, "no granule at {at}");
        let given_back = self.given_back.as_deref();
        given_back.map_or(0, |words| count_bits(words, at, n))
    }

    /// The runs of holes among these granules: first granule and length.
    pub(crate) fn hole_runs(&self, at: u32, n: u32) -> Vec<(u32, u32)> {
        let mut found = Vec::new();
        let Some(holes) = self.given_back.as_deref().filter(|_| self.holes > 0) else {
            return found;
        };
        let (mut from, end) = (at, at + n);
        while let Some(start) = find_bit(holes, from, true).filter(|start| *start < end) {
            from = find_bit(holes, start, false).unwrap_or(end).min(end);
            found.push((start, from - start));
        }
        debug_assert_eq!(
            found.iter().map(|(_, n)| n).sum::<u32>(),
            self.holes_in(at, n),
            "holes at {at}+{n}"
        );
        found
    }

    /// `free` and `usable` count what is not in use, and nothing that is in use is stale.
    fn is_sound(&self) -> bool {
        let free: u32 = self.bits.iter().map(|w| w.count_zeros()).sum();
        let all = 0..self.bits.len();
        let blocks: u32 = all.map(|i| self.free_for(i, For::Pages).count_ones()).sum();
        let both = self.bits.iter().zip(&self.stale).any(|(a, b)| a & b != 0);
        let holes = self.given_back.as_deref().unwrap_or_default();
        let used_hole = self.bits.iter().zip(holes).any(|(a, b)| a & b != 0);
        let holes: u32 = holes.iter().map(|w| w.count_ones()).sum();
        let counted = free == self.free && holes == self.holes;
        counted && blocks * BLOCK_GRANULES == self.usable && !both && !used_hole
    }

    /// One past the last granule in use before `end`.
    pub(crate) fn used_end(&self, end: u32) -> u32 {
        assert!(
            end as usize <= self.bits.len() * 64 && end % 4 == 0,
            "{end}"
        );
        let before = |i: usize| match end - i as u32 * 64 {
            n @ 0..64 => self.bits[i] & !(u64::MAX << n),
            _ => self.bits[i],
        };
        let words = end.div_ceil(64) as usize;
        let last = (0..words).rfind(|&i| before(i) != 0);
        last.map_or(0, |i| i as u32 * 64 + 64 - before(i).leading_zeros())
    }

    /// The first run of wholly free blocks at or after `from`: start and length.
    pub(crate) fn next_run(&self, from: u32, who: For) -> Option<(u32, u32)> {
        debug_assert!(self.holes <= self.free, "{} holes", self.holes);
        let start = self.find_block(whole_blocks(from), true, who)?;
        let end = self
            .find_block(start, false, who)
            .unwrap_or(self.bits.len() as u32 * 64);
        debug_assert!(start >= from && end > start, "{start}..{end} from {from}");
        Some((start, end - start))
    }

    /// The first run of at least `need` granules at or after `from`: start and length.
    pub(crate) fn long_run(&self, from: u32, need: u32, who: For) -> Option<(u32, u32)> {
        let mut from = from;
        loop {
            let (at, len) = self.next_run(from, who)?;
            if len >= need {
                return Some((at, len));
            }
            from = at + len;
        }
    }

    /// The lowest bit of each block of that word that is wholly free and may be given to that one.
    fn free_for(&self, i: usize, who: For) -> u64 {
        let is_area = || self.is_area(i);
        let given = match who {
            For::Pages => !is_area(),
            For::Small => is_area(),
            For::All => true,
        };
        match given {
            true => free_blocks(self.bits[i]),
            false => 0,
        }
    }

    /// The first block at or after `from` that is wholly free for that one, or not: its first granule.
    fn find_block(&self, from: u32, free: bool, who: For) -> Option<u32> {
        debug_assert!(from % BLOCK_GRANULES == 0, "{from} is within a block");
        let found_free = |i: usize| match ferrite_sync::mutant!("store.block_with_live_blob") {
            true => !self.bits[i] & BLOCKS,
            false => self.free_for(i, who),
        };
        let want = |i: usize| {
            (i < self.bits.len()).then(|| match free {
                true => found_free(i),
                false => !found_free(i) & BLOCKS,
            })
        };
        let mut i = from as usize / 64;
        let mut found = want(i)? & (u64::MAX << (from % 64));
        while found == 0 {
            i += 1;
            found = want(i)?;
        }
        Some(i as u32 * 64 + found.trailing_zeros())
    }

    /// The first run of blocks at or after `from` that are wholly free and not wholly scrubbed,
    /// of at most `most` granules: start and length.
    pub(crate) fn stale_run(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let most = most - most % BLOCK_GRANULES;
        let mut from = from;
        loop {
            let stale = find_bit(&self.stale, from, true)?;
            let at = stale - stale % BLOCK_GRANULES;
            let (start, length) = self.next_run(at, For::All)?;
            if start == at {
                let end = find_bit(&self.stale, stale, false);
                let end = whole_blocks(end.unwrap_or(self.stale.len() as u32 * 64));
                return Some((start, (end - start).min(length).min(most)));
            }
            // Beside a live blob: not to be written to.
            from = start.max(at + BLOCK_GRANULES);
        }
    }

    /// Wholly free blocks of the words that the range touches, in granules.
    fn usable_around(&self, at: u32, n: u32) -> u32 {
        let words = at as usize / 64..(at + n).div_ceil(64) as usize;
        words
            .map(|i| self.free_for(i, For::Pages).count_ones())
            .sum::<u32>()
            * BLOCK_GRANULES
    }

    /// Marks granules used; false (and nothing changed) if one is already.
    pub(crate) fn take(&mut self, at: u32, n: u32) -> bool {
        assert!(n > 0, "nothing is taken at {at}");
        let mut clash = 0;
        each_word(&mut self.bits, at, n, |w, mask| clash |= *w & mask);
        if clash != 0 {
            return false;
        }
        let before = self.usable_around(at, n);
        each_word(&mut self.bits, at, n, |w, mask| *w |= mask);
        each_word(&mut self.stale, at, n, |w, mask| *w &= !mask);
        if let Some(given_back) = &mut self.given_back {
            let mut fewer = 0;
            each_word(given_back, at, n, |w, mask| {
                fewer += (*w & mask).count_ones();
                *w &= !mask;
            });
            self.holes -= fewer;
        }
        assert!(self.free >= n, "{n} of {} granules", self.free);
        self.free -= n;
        self.usable -= before - self.usable_around(at, n);
        self.touched = true;
        debug_assert!(self.is_sound(), "after {at}+{n} was taken");
        true
    }

    /// Marks granules free; `stale`: what was there may still be.
    pub(crate) fn give(&mut self, at: u32, n: u32, stale: bool) {
        assert!(n > 0, "nothing is given back at {at}");
        let mut all = true;
        let before = self.usable_around(at, n);
        each_word(&mut self.bits, at, n, |w, mask| {
            all &= *w & mask == mask;
            *w &= !mask;
        });
        assert!(all, "granules {at}+{n} of a segment were freed twice");
        if stale {
            each_word(&mut self.stale, at, n, |w, mask| *w |= mask);
        }
        self.free += n;
        self.touched = true;
        self.end_areas(at, n);
        self.usable += self.usable_around(at, n) - before;
        self.longest = self.bits.len() as u32 * 64;
        self.longest_small = self.longest;
        self.may_begin_area |= masks(at, n).any(|(i, _)| self.bits[i] == 0);
        assert!(self.free <= self.longest, "{} are free", self.free);
        assert!(self.usable <= self.free, "{} are usable", self.usable);
        debug_assert!(self.is_sound(), "after {at}+{n} was given back");
    }
}

/// The first bit at or after `from` that is set, or not set.
fn find_bit(words: &[u64], from: u32, set: bool) -> Option<u32> {
    let flip = if set { 0 } else { u64::MAX };
    let mut i = from as usize / 64;
    let mut word = (*words.get(i)? ^ flip) & (u64::MAX << (from % 64));
    while word == 0 {
        i += 1;
        word = *words.get(i)? ^ flip;
    }
    Some(i as u32 * 64 + word.trailing_zeros())
}

/// The words of the range, by number, and their masks.
pub(crate) fn masks(at: u32, n: u32) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (at, at + n);
    std::iter::from_fn(move || {
        let here = (64 - at % 64).min(end - at);
        let word = (here > 0).then(|| (at as usize / 64, (u64::MAX >> (64 - here)) << (at % 64)));
        at += here;
        word
    })
}

/// Calls `change` with each word of the range and its mask.
fn each_word(words: &mut [u64], at: u32, n: u32, mut change: impl FnMut(&mut u64, u64)) {
    debug_assert!((at + n) as usize <= words.len() * 64, "{n} at {at}");
    masks(at, n).for_each(|(i, mask)| change(&mut words[i], mask));
}

/// Bits of the range that are set.
fn count_bits(words: &[u64], at: u32, n: u32) -> u32 {
    debug_assert!((at + n) as usize <= words.len() * 64, "{n} at {at}");
    let in_word = |(i, mask): (usize, u64)| (words[i] & mask).count_ones();
    masks(at, n).map(in_word).sum()
}
