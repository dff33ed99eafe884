//! Free space: one bitmap per segment, granules given out in runs.
//!
//! Invariants: `free` of a segment is the number of its clear bits, `usable` the granules of its
//! blocks that are wholly free; `longest` is never below its longest run of those; no run crosses
//! a segment. A bit is set while the granule belongs to a blob (live, retired or being written),
//! or lies beyond the end of the store, which may be within the last segment. A granule is stale
//! while it is free and may still hold what was there before (see `scrub.rs`); whatever is in use
//! is not stale.
//!
//! A run is handed out in whole free blocks and begins on one: blobs follow one another in it
//! without a gap, but no block is written to while a blob lives in it. So a free granule beside a
//! live blob, in the block of both, is of no use until that blob moves.
//!
//! Policy: blobs go into the current segment's free runs in address order; then into the
//! segment with the most free space that may have a run long enough. Nobody waits: when no
//! run is left, the caller makes the store longer or reports a full disk.
//!
//! Locking: none here; the store keeps it under its space lock.

use crate::held::Held;
use crate::word::BLOCK_GRANULES;

/// What `mean_run` says of a batch that went into one run, in granules.
const ONE_RUN: u32 = 1024;
/// The lowest bit of each block.
const BLOCKS: u64 = 0x1111_1111_1111_1111;
const _: () = assert!(BLOCK_GRANULES == 4, "a digit of a word is a block");

/// The lowest bit of each block of the word that is wholly free.
fn free_blocks(word: u64) -> u64 {
    !(word | word >> 1 | word >> 2 | word >> 3) & BLOCKS
}

/// Up to the next block.
fn whole_blocks(granules: u32) -> u32 {
    granules.next_multiple_of(BLOCK_GRANULES)
}

/// The numbers of the blocks that those granules lie in.
fn blocks_of(at: u32, n: u32) -> std::ops::Range<usize> {
    debug_assert!(n > 0, "no granule at {at}");
    (at / BLOCK_GRANULES) as usize..(at + n).div_ceil(BLOCK_GRANULES) as usize
}

/// Consecutive blobs of a batch that go to one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// First granule in the store, the first of a block.
    pub(crate) granule: u64,
    /// Length.
    pub(crate) granules: u32,
    /// Number of blobs in it.
    pub(crate) blobs: usize,
}

impl Run {
    /// Length of what is written: the rest of the last block is free, and nobody else's.
    pub(crate) fn written(&self) -> u32 {
        whole_blocks(self.granules)
    }
}

struct Segment {
    /// Bit set: granule in use.
    bits: Box<[u64]>,
    /// Bit set: granule free, and what was there may still be.
    stale: Box<[u64]>,
    /// Some stale granules may be zeroes already.
    doubtful: bool,
    free: u32,
    /// Granules of blocks that are wholly free.
    usable: u32,
    /// No free run is longer.
    longest: u32,
    /// Written to since its free runs were last given back to the file system.
    touched: bool,
    /// For each block the generation in which a blob last took part of it; None: none did since
    /// generations are counted. No block is written to while a blob lives in it, so that all blobs
    /// of a block took it at once.
    taken_in: Option<Box<[u8]>>,
}

impl Segment {
    /// A segment of that length that has no part in the store yet.
    fn new(granules: u32) -> Segment {
        Segment {
            bits: vec![u64::MAX; granules as usize / 64].into(),
            stale: vec![0; granules as usize / 64].into(),
            doubtful: false,
            free: 0,
            usable: 0,
            longest: 0,
            touched: false,
            taken_in: None,
        }
    }

    /// Blobs take these blocks in that generation.
    fn note_taken(&mut self, at: u32, n: u32, generation: u8) {
        let whole = at % BLOCK_GRANULES == 0 && n % BLOCK_GRANULES == 0;
        assert!(whole && n > 0 && generation > 0, "{n} granules at {at}");
        let blocks = self.bits.len() * 64 / BLOCK_GRANULES as usize;
        let taken_in = self.taken_in.get_or_insert_with(|| vec![0; blocks].into());
        taken_in[blocks_of(at, n)].fill(generation);
    }

    /// The last generation in which a block of these granules was taken; 0: none is noted.
    fn last_taken(&self, at: u32, n: u32) -> u8 {
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
    /// known.
    fn open(&mut self, at: u32, n: u32, stale: bool) {
        assert!(
            at % BLOCK_GRANULES == 0 && n % BLOCK_GRANULES == 0,
            "{at}+{n}"
        );
        let touched = self.touched;
        self.give(at, n, stale);
        self.doubtful |= stale;
        self.touched = touched;
    }

    /// `free` and `usable` count what is not in use, and nothing that is in use is stale.
    fn is_sound(&self) -> bool {
        let free: u32 = self.bits.iter().map(|w| w.count_zeros()).sum();
        let blocks: u32 = self.bits.iter().map(|&w| free_blocks(w).count_ones()).sum();
        let both = self.bits.iter().zip(&self.stale).any(|(a, b)| a & b != 0);
        free == self.free && blocks * BLOCK_GRANULES == self.usable && !both
    }

    /// One past the last granule in use before `end`.
    fn used_end(&self, end: u32) -> u32 {
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
    fn next_run(&self, from: u32) -> Option<(u32, u32)> {
        let start = self.find_block(whole_blocks(from), true)?;
        let end = self
            .find_block(start, false)
            .unwrap_or(self.bits.len() as u32 * 64);
        debug_assert!(start >= from && end > start, "{start}..{end} from {from}");
        Some((start, end - start))
    }

    /// The first block at or after `from` that is wholly free, or not: its first granule.
    fn find_block(&self, from: u32, free: bool) -> Option<u32> {
        debug_assert!(from % BLOCK_GRANULES == 0, "{from} is within a block");
        let found_free = |word: u64| match ferrite_sync::mutant!("store.block_with_live_blob") {
            true => !word & BLOCKS,
            false => free_blocks(word),
        };
        let want = |word: u64| match free {
            true => found_free(word),
            false => !found_free(word) & BLOCKS,
        };
        let mut i = from as usize / 64;
        let mut found = want(*self.bits.get(i)?) & (u64::MAX << (from % 64));
        while found == 0 {
            i += 1;
            found = want(*self.bits.get(i)?);
        }
        Some(i as u32 * 64 + found.trailing_zeros())
    }

    /// The first run of blocks at or after `from` that are wholly free and not wholly scrubbed,
    /// of at most `most` granules: start and length.
    fn stale_run(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let most = most - most % BLOCK_GRANULES;
        let mut from = from;
        loop {
            let stale = find_bit(&self.stale, from, true)?;
            let at = stale - stale % BLOCK_GRANULES;
            let (start, length) = self.next_run(at)?;
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
        let words = &self.bits[at as usize / 64..(at + n).div_ceil(64) as usize];
        words
            .iter()
            .map(|&w| free_blocks(w).count_ones())
            .sum::<u32>()
            * BLOCK_GRANULES
    }

    /// Marks granules used; false (and nothing changed) if one is already.
    fn take(&mut self, at: u32, n: u32) -> bool {
        assert!(n > 0, "nothing is taken at {at}");
        let mut clash = 0;
        each_word(&mut self.bits, at, n, |w, mask| clash |= *w & mask);
        if clash != 0 {
            return false;
        }
        let before = self.usable_around(at, n);
        each_word(&mut self.bits, at, n, |w, mask| *w |= mask);
        each_word(&mut self.stale, at, n, |w, mask| *w &= !mask);
        assert!(self.free >= n, "{n} of {} granules", self.free);
        self.free -= n;
        self.usable -= before - self.usable_around(at, n);
        self.touched = true;
        debug_assert!(self.is_sound(), "after {at}+{n} was taken");
        true
    }

    fn give(&mut self, at: u32, n: u32, stale: bool) {
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
        self.usable += self.usable_around(at, n) - before;
        self.longest = self.bits.len() as u32 * 64;
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

/// Calls `change` with each word of the range and its mask.
fn each_word(words: &mut [u64], at: u32, n: u32, mut change: impl FnMut(&mut u64, u64)) {
    let (mut at, end) = (at, at + n);
    debug_assert!(end as usize <= words.len() * 64, "up to {end}");
    while at < end {
        let here = (64 - at % 64).min(end - at);
        let mask = (u64::MAX >> (64 - here)) << (at % 64);
        change(&mut words[at as usize / 64], mask);
        at += here;
    }
}

/// A stale run taken to be scrubbed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StaleRun {
    pub(crate) granule: u64,
    pub(crate) granules: u32,
    /// It may be zeroes already.
    pub(crate) doubtful: bool,
}

/// All free space of a store.
pub(crate) struct FreeRuns {
    segments: Vec<Segment>,
    segment_granules: u32,
    /// Where the next blob is looked for.
    current: usize,
    cursor: u32,
    /// One past the last granule of the store.
    end: u64,
    free: u64,
    /// Granules to a run, of late; of long runs no more than `ONE_RUN`.
    mean_run: u32,
    /// The lowest free space goes first.
    lowest_first: bool,
    /// Of backups since the store was opened; stays at the last one. 0: none yet, and nothing is
    /// noted.
    generation: u8,
    /// What snapshots hold.
    pub(crate) held: Held,
}

impl FreeRuns {
    /// A store that ends there, of which nothing is in use yet.
    pub(crate) fn new(segment_granules: u32, end: u64) -> FreeRuns {
        assert!(segment_granules % 64 == 0 && segment_granules > 0);
        let mut runs = FreeRuns {
            segments: Vec::new(),
            segment_granules,
            current: 0,
            cursor: 0,
            end: 0,
            mean_run: ONE_RUN,
            lowest_first: false,
            generation: 0,
            held: Held::default(),
            free: 0,
        };
        while runs.end < end {
            runs.extend(end.min(runs.segment_end()), true);
        }
        runs
    }

    /// Free granules.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// All granules.
    pub(crate) fn total(&self) -> u64 {
        self.end
    }

    /// Of the free ones, those in wholly free blocks.
    pub(crate) fn usable(&self) -> u64 {
        self.segments.iter().map(|s| u64::from(s.usable)).sum()
    }

    /// Granules to a run, of late.
    pub(crate) fn mean_run(&self) -> u32 {
        self.mean_run
    }

    /// How far the store may be made longer at once: the end of the segment that comes next.
    pub(crate) fn segment_end(&self) -> u64 {
        let segment = u64::from(self.segment_granules);
        (self.end / segment + 1) * segment
    }

    /// The sum is that of the segments, and the next blob is looked for in one of them.
    fn is_sound(&self) -> bool {
        let free: u64 = self.segments.iter().map(|s| u64::from(s.free)).sum();
        let fits = self.cursor <= self.segment_granules;
        free == self.free && fits && (self.current == 0 || self.current < self.segments.len())
    }

    /// The first granule that is in use here and not there (true), or the other way round.
    pub(crate) fn difference(&self, other: &FreeRuns) -> Option<(u64, bool)> {
        assert!(self.segment_granules == other.segment_granules);
        for (n, (a, b)) in self.segments.iter().zip(&other.segments).enumerate() {
            for (w, (x, y)) in a.bits.iter().zip(&b.bits).enumerate() {
                if x != y {
                    let bit = (x ^ y).trailing_zeros();
                    let at = n as u64 * u64::from(self.segment_granules) + w as u64 * 64;
                    return Some((at + u64::from(bit), x >> bit & 1 == 1));
                }
            }
        }
        None
    }

    /// From now on the lowest free space goes first.
    pub(crate) fn give_out_lowest_first(&mut self) {
        self.lowest_first = true;
    }

    /// A new generation begins: its number.
    pub(crate) fn next_generation(&mut self) -> u8 {
        self.generation = self.generation.saturating_add(1);
        self.generation
    }

    /// Has a blob taken a block of these granules in that generation or later?
    pub(crate) fn taken_since(&self, granule: u64, n: u32, generation: u8) -> bool {
        assert!(generation > 0 && n > 0, "{n} granules since {generation}");
        let Some((segment, at)) = self.split(granule, n) else {
            return true;
        };
        self.segments[segment].last_taken(at, n) >= generation
    }

    /// The store is longer now, by free space within one segment.
    pub(crate) fn add_to(&mut self, end: u64) {
        self.extend(end, false);
        debug_assert!(self.is_sound(), "{} are free", self.free);
    }

    fn extend(&mut self, end: u64, stale: bool) {
        let (from, last) = (self.end, self.segment_end());
        assert!(from < end && end <= last, "{from} to {end}, across {last}");
        let at = (from % u64::from(self.segment_granules)) as u32;
        if at == 0 {
            self.segments.push(Segment::new(self.segment_granules));
        }
        let n = (end - from) as u32;
        if let Some(segment) = self.segments.last_mut() {
            segment.open(at, n, stale);
        }
        self.end = end;
        self.free += u64::from(n);
    }

    /// Takes free space at the end of the last segment away: in whole steps, at most `most`
    /// granules, and never the first step of the store. Where the store ends now, if elsewhere.
    pub(crate) fn cut_free_tail(&mut self, step: u64, most: u64) -> Option<u64> {
        let segment = u64::from(self.segment_granules);
        let first = self.end.saturating_sub(1) / segment * segment;
        let last = self.segments.last_mut()?;
        let in_use = last.used_end((self.end - first) as u32);
        let keep = (first + u64::from(in_use))
            .max(self.end.saturating_sub(most))
            .max(1);
        let end = keep.next_multiple_of(step);
        if end >= self.end {
            return None;
        }
        let (at, n) = ((end - first) as u32, (self.end - end) as u32);
        let taken = last.take(at, n);
        assert!(taken, "the free end {end} to {} was in use", self.end);
        self.free -= u64::from(n);
        self.end = end;
        if end == first {
            self.segments.pop();
        }
        if self.current >= self.segments.len() {
            self.current = 0;
            self.cursor = 0;
        }
        debug_assert!(self.is_sound(), "{} are free", self.free);
        Some(end)
    }

    /// Segment and granule in it, if the range is within one segment of the store.
    fn split(&self, granule: u64, n: u32) -> Option<(usize, u32)> {
        let segment = granule / u64::from(self.segment_granules);
        let at = (granule % u64::from(self.segment_granules)) as u32;
        let inside = granule + u64::from(n) <= self.end;
        let fits = inside && n <= self.segment_granules - at;
        fits.then_some((segment as usize, at))
    }

    /// Marks granules used: false if one is already, or lies beyond the store.
    pub(crate) fn mark(&mut self, granule: u64, n: u32) -> bool {
        let Some((segment, at)) = self.split(granule, n) else {
            return false;
        };
        let taken = self.segments[segment].take(at, n);
        if taken {
            assert!(self.free >= u64::from(n), "{n} of {}", self.free);
            self.free -= u64::from(n);
        }
        taken
    }

    /// True if the range is within one segment of the store.
    pub(crate) fn contains(&self, granule: u64, n: u32) -> bool {
        self.split(granule, n).is_some()
    }

    /// Marks used granules free. Panics if one is free already: space handed out twice is a
    /// page lost. What a snapshot holds stays in use.
    pub(crate) fn give(&mut self, granule: u64, n: u32) {
        if !self.held.keeps(granule, n) {
            self.give_back(granule, n, true);
        }
    }

    /// The same of granules that were overwritten with zeroes.
    pub(crate) fn give_zeroed(&mut self, granule: u64, n: u32) {
        self.give_back(granule, n, false);
    }

    /// The same of granules that may read as zeroes now, or not.
    pub(crate) fn give_doubtful(&mut self, granule: u64, n: u32) {
        self.give_back(granule, n, true);
        if let Some((segment, _)) = self.split(granule, n) {
            self.segments[segment].doubtful = true;
        }
    }

    /// What is in use among 64 granules from that word's on.
    pub(crate) fn used_word(&self, word: usize) -> u64 {
        let words = self.segment_granules as usize / 64;
        let segment = self.segments.get(word / words);
        segment.map_or(0, |s| s.bits[word % words])
    }

    pub(crate) fn give_back(&mut self, granule: u64, n: u32, stale: bool) {
        let Some((segment, at)) = self.split(granule, n) else {
            panic!("granules {granule}+{n} are beyond the store");
        };
        self.segments[segment].give(at, n, stale);
        self.free += u64::from(n);
        assert!(self.free <= self.total(), "{} are free", self.free);
    }

    /// Takes stale runs of at most `most` granules together. They are the caller's until
    /// [`FreeRuns::give_zeroed`]. `from` is where to look first, and then where to go on.
    pub(crate) fn take_stale(&mut self, most: u32, from: &mut usize) -> Vec<StaleRun> {
        let (mut found, mut left) = (Vec::new(), most);
        for _ in 0..self.segments.len() {
            let i = *from % self.segments.len();
            let first = i as u64 * u64::from(self.segment_granules);
            let doubtful = self.segments[i].doubtful;
            while let Some((at, n)) = self.segments[i].stale_run(0, left) {
                if n == 0 {
                    return found;
                }
                let taken = self.segments[i].take(at, n);
                assert!(taken, "a stale granule was in use");
                self.free -= u64::from(n);
                left -= n;
                found.push(StaleRun {
                    granule: first + u64::from(at),
                    granules: n,
                    doubtful,
                });
            }
            self.segments[i].doubtful = false;
            *from = i + 1;
        }
        debug_assert!(self.is_sound(), "{} are free", self.free);
        found
    }

    /// Room for blobs of those lengths (granules), in order, as few runs as the free space
    /// allows; false (nothing taken, `runs` empty) when there is not enough.
    pub(crate) fn take(&mut self, blobs: impl Iterator<Item = u32>, runs: &mut Vec<Run>) -> bool {
        runs.clear();
        if self.lowest_first {
            (self.current, self.cursor) = (0, 0);
        }
        let mut blobs = blobs.peekable();
        while let Some(&need) = blobs.peek() {
            let Some((segment, at, len)) = self.find_run(need) else {
                for run in runs.drain(..) {
                    self.give(run.granule, run.granules);
                }
                return false;
            };
            let mut run = Run {
                granule: segment as u64 * u64::from(self.segment_granules) + u64::from(at),
                granules: 0,
                blobs: 0,
            };
            while let Some(n) = blobs.next_if(|n| run.granules + n <= len) {
                run.granules += n;
                run.blobs += 1;
            }
            assert!(run.blobs > 0, "a run of {len} takes no blob of {need}");
            let taken = self.segments[segment].take(at, run.granules);
            assert!(taken, "a free run was not free");
            if self.generation > 0 {
                self.segments[segment].note_taken(at, run.written(), self.generation);
            }
            self.free -= u64::from(run.granules);
            self.current = segment;
            self.cursor = at + run.written();
            runs.push(run);
        }
        self.note_runs(runs);
        debug_assert!(self.is_sound(), "{} are free", self.free);
        true
    }

    /// Are there free runs for `count` blobs of `need` granules, each in a place of its own? Looks at
    /// segments until there are: for who has found the disk full.
    pub(crate) fn has_places(&self, count: u64, need: u32) -> bool {
        assert!(
            need > 0 && need % BLOCK_GRANULES == 0,
            "{need} granules are no whole blocks"
        );
        let mut left = count;
        for segment in self.segments.iter().filter(|s| s.usable >= need) {
            let mut from = 0;
            while let Some((at, len)) = segment.next_run(from) {
                left = left.saturating_sub(u64::from(len / need));
                if left == 0 {
                    return true;
                }
                from = at + len;
            }
        }
        left == 0
    }

    fn note_runs(&mut self, runs: &[Run]) {
        let granules: u32 = runs.iter().map(|run| run.granules).sum();
        let mean = match runs.len() {
            0 => return,
            1 => ONE_RUN,
            n => (granules / n as u32).min(ONE_RUN),
        };
        self.mean_run = (self.mean_run * 7 + mean).div_ceil(8);
        debug_assert!(self.mean_run <= ONE_RUN, "{} to a run", self.mean_run);
    }

    /// The next free run of at least `need` granules: segment, start, length.
    fn find_run(&mut self, need: u32) -> Option<(usize, u32, u32)> {
        // Else the store would grow for ever: no new segment has such a run.
        assert!(
            need > 0 && need <= self.segment_granules,
            "a run of {need} granules"
        );
        if let Some((at, len)) = self.scan(self.current, self.cursor, need) {
            return Some((self.current, at, len));
        }
        loop {
            let fits = |s: &&Segment| s.longest >= need && s.usable >= need;
            let emptiest = self.segments.iter().filter(fits).map(|s| s.usable).max()?;
            let segment = self
                .segments
                .iter()
                .position(|s| s.usable == emptiest && fits(&s))?;
            if let Some((at, len)) = self.scan(segment, 0, need) {
                return Some((segment, at, len));
            }
            self.segments[segment].longest = need - 1;
        }
    }

    fn scan(&self, segment: usize, from: u32, need: u32) -> Option<(u32, u32)> {
        let segment = self.segments.get(segment)?;
        let mut from = from;
        loop {
            let (at, len) = segment.next_run(from)?;
            if len >= need {
                return Some((at, len));
            }
            from = at + len;
        }
    }

    /// Takes every free run of at least `least` granules in segments written to since the
    /// last call: first granule and length. They are the caller's until
    /// [`FreeRuns::give_doubtful`].
    pub(crate) fn take_long_runs(&mut self, least: u32) -> Vec<(u64, u32)> {
        let mut found = Vec::new();
        for i in 0..self.segments.len() {
            if !std::mem::take(&mut self.segments[i].touched) {
                continue;
            }
            let first = i as u64 * u64::from(self.segment_granules);
            let mut from = 0;
            while let Some((at, len)) = self.scan(i, from, least) {
                let taken = self.segments[i].take(at, len);
                assert!(taken, "a long run was not free");
                self.free -= u64::from(len);
                found.push((first + u64::from(at), len));
                from = at + len;
            }
            self.segments[i].touched = false;
        }
        debug_assert!(self.is_sound(), "{} are free", self.free);
        found
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
