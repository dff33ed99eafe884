//! Free space: one bitmap per segment (`segment.rs`), granules given out in runs.
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
//! Policy: deltas have areas of their own (`areas.rs`); pages go into the current segment's free runs
//! in address order; then into the segment with the most free space that may have a run long enough.
//! Nobody waits: when no run is left, the caller makes the store longer; if that fails, pages go
//! into areas, too; then the disk is reported full.
//!
//! Locking: none here; the store keeps it under its space lock.

use crate::held::Held;
use crate::segment::{whole_blocks, For, Segment};
use crate::word::{BLOCK_GRANULES, GRANULE_BYTES};

/// Runs are short when the mean of late is below this, in granules.
pub(crate) const SHORT_RUN: u32 = (128 << 10) / GRANULE_BYTES as u32;
/// What `mean_run` says of a batch that went into one run, in granules.
const ONE_RUN: u32 = 1024;

/// Consecutive blobs of a batch that go to one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// First granule in the store, the first of a block.
    pub(crate) granule: u64,
    /// Length.
    pub(crate) granules: u32,
    /// Number of blobs in it.
    pub(crate) blobs: usize,
    /// What of it was a hole in the files: first granules and lengths.
    pub(crate) holes: Vec<(u64, u32)>,
}

impl Run {
    /// Length of what is written: the rest of the last block is free, and nobody else's.
    pub(crate) fn written(&self) -> u32 {
        whole_blocks(self.granules)
    }
}

/// A stale run taken to be scrubbed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StaleRun {
    pub(crate) granule: u64,
    pub(crate) granules: u32,
    /// As of a [`Run`].
    pub(crate) holes: Vec<(u64, u32)>,
    /// It may be zeroes already.
    pub(crate) doubtful: bool,
}

/// All free space of a store.
pub(crate) struct FreeRuns {
    pub(crate) segments: Vec<Segment>,
    pub(crate) segment_granules: u32,
    /// Where the next page is looked for.
    current: usize,
    cursor: u32,
    /// The same of small blobs.
    pub(crate) small_at: (usize, u32),
    /// One past the last granule of the store.
    end: u64,
    free: u64,
    /// The file system had no room: so many runs are looked for in other free space than holes first.
    pub(crate) holes_last: u32,
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
            small_at: (0, 0),
            end: 0,
            holes_last: 0,
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
        if self.small_at.0 >= self.segments.len() {
            self.small_at = (0, 0);
        }
        debug_assert!(self.is_sound(), "{} are free", self.free);
        Some(end)
    }

    /// Segment and granule in it, if the range is within one segment of the store.
    pub(crate) fn split(&self, granule: u64, n: u32) -> Option<(usize, u32)> {
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

    /// As `mark`, of a small blob, when all pages are marked: words that no page is in become areas.
    pub(crate) fn mark_small(&mut self, granule: u64, n: u32) -> bool {
        let Some((segment, at)) = self.split(granule, n) else {
            return false;
        };
        let (first, last) = (at as usize / 64, (at + n - 1) as usize / 64);
        let of = &self.segments[segment];
        let fresh = [first, last].map(|word| of.bits[word] == 0 && !of.is_area(word));
        let marked = self.mark(granule, n);
        let of = &mut self.segments[segment];
        if marked && fresh[0] {
            of.begin_area(first);
        }
        if marked && fresh[1] && last != first {
            of.begin_area(last);
        }
        marked
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

    /// The same of blobs side by side: they may lie in several segments, and a snapshot may hold some of them.
    pub(crate) fn give_run(&mut self, granule: u64, n: u32) {
        for (mut at, mut left) in self.by_segment(granule, n) {
            while left > 0 {
                let part = self.held.alike(at, left);
                self.give(at, part);
                at += u64::from(part);
                left -= part;
            }
        }
    }

    /// As [`FreeRuns::mark`], of blobs side by side in any number of segments.
    pub(crate) fn mark_run(&mut self, granule: u64, n: u32) -> bool {
        self.by_segment(granule, n)
            .all(|(at, part)| self.mark(at, part))
    }

    /// The parts of these granules that lie in one segment each.
    fn by_segment(&self, granule: u64, n: u32) -> impl Iterator<Item = (u64, u32)> {
        let (mut at, end) = (granule, granule + u64::from(n));
        let segment = u64::from(self.segment_granules);
        std::iter::from_fn(move || {
            let part = (end - at).min(segment - at % segment) as u32;
            at += u64::from(part);
            (part > 0).then(|| (at - u64::from(part), part))
        })
    }

    /// As [`FreeRuns::give`], of granules that no snapshot holds and that were overwritten with zeroes.
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

    /// Takes stale runs of at most `most` granules together, none beyond the end of the store. They are the caller's until
    /// [`FreeRuns::give_zeroed`] or [`FreeRuns::give_doubtful`]. `from` is the granule where to look first, and then where to go
    /// on: behind what was taken, whatever comes of it.
    pub(crate) fn take_stale(&mut self, most: u32, from: &mut u64) -> Vec<StaleRun> {
        let (mut found, mut left) = (Vec::new(), most);
        let segment = u64::from(self.segment_granules);
        for i in (*from / segment) as usize..self.segments.len() {
            let first = i as u64 * segment;
            let doubtful = self.segments[i].doubtful;
            loop {
                let at = (*from - first) as u32;
                let Some((at, n)) = self.segments[i].stale_run(at, left) else {
                    break;
                };
                if n == 0 {
                    return found;
                }
                let holes = self.holes_of(i, at, n);
                let taken = self.segments[i].take(at, n);
                assert!(taken, "a stale granule was in use");
                self.free -= u64::from(n);
                left -= n;
                let granule = first + u64::from(at);
                *from = granule + u64::from(n);
                found.push(StaleRun {
                    granule,
                    granules: n,
                    holes,
                    doubtful,
                });
                if *from == first + segment {
                    break;
                }
            }
            // What failed before, or has come since, may lie before the place where we began.
            let has_more = self.segments[i].stale_run(0, BLOCK_GRANULES).is_some();
            self.segments[i].doubtful &= has_more;
            *from = first + segment;
        }
        debug_assert!(self.is_sound(), "{} are free", self.free);
        found
    }

    /// Room for pages of those lengths (granules), in order, and for small blobs behind them, as few runs as the free
    /// space allows; false (nothing taken, `runs` empty) when there is not enough. `place`: [`For::All`] on a full disk,
    /// where pages go into areas of small blobs, too, and small blobs anywhere.
    pub(crate) fn take(
        &mut self,
        pages: impl Iterator<Item = u32>,
        small: impl Iterator<Item = u32> + Clone,
        place: For,
        runs: &mut Vec<Run>,
    ) -> bool {
        assert!(place != For::Small, "pages are for no area");
        runs.clear();
        if self.lowest_first {
            (self.current, self.cursor) = (0, 0);
        }
        let left = small.clone().sum();
        let found = self.take_all(pages, place, runs, None);
        let of_pages = runs.len();
        if !found || !self.take_all(small, place, runs, Some(left)) {
            self.give_after_failure(runs, 0, false);
            runs.clear();
            return false;
        }
        for run in &runs[..of_pages] {
            if let Some((segment, at)) = self.split(run.granule, run.granules) {
                self.segments[segment].leave_areas(at, run.granules);
            }
        }
        self.note_runs(&runs[..of_pages]);
        debug_assert!(self.is_sound(), "{} are free", self.free);
        true
    }

    /// Takes runs for blobs; `small`: so many granules of small ones. False: there is not enough.
    fn take_all(
        &mut self,
        blobs: impl Iterator<Item = u32>,
        place: For,
        runs: &mut Vec<Run>,
        mut small: Option<u32>,
    ) -> bool {
        let mut blobs = blobs.peekable();
        while let Some(&need) = blobs.peek() {
            let found = match small {
                // On a full disk areas may have holes in the file.
                Some(left) if !self.lowest_first && self.holes_last == 0 => {
                    let found = self.find_small(need, left);
                    // The store gets no longer: rather a piece of what is for pages than a refusal.
                    match place {
                        For::All => found.or_else(|| self.find_anywhere(need, runs.is_empty())),
                        _ => found,
                    }
                }
                _ => self.find_run(need, place, runs.is_empty()),
            };
            let Some((segment, at, len)) = found else {
                return false;
            };
            let mut run = Run {
                granule: segment as u64 * u64::from(self.segment_granules) + u64::from(at),
                granules: 0,
                blobs: 0,
                holes: Vec::new(),
            };
            while let Some(n) = blobs.next_if(|n| run.granules + n <= len) {
                run.granules += n;
                run.blobs += 1;
            }
            assert!(run.blobs > 0, "a run of {len} takes no blob of {need}");
            run.holes = self.holes_of(segment, at, run.granules);
            let taken = self.segments[segment].take(at, run.granules);
            assert!(taken, "a free run was not free");
            if self.generation > 0 {
                self.segments[segment].note_taken(at, run.written(), self.generation);
            }
            self.free -= u64::from(run.granules);
            match &mut small {
                Some(left) => {
                    *left -= run.granules;
                    self.small_at = (segment, at + run.written());
                }
                None => (self.current, self.cursor) = (segment, at + run.written()),
            }
            runs.push(run);
        }
        true
    }

    /// Are there free runs for `count` blobs of `need` granules, each in a place of its own, in areas of small blobs,
    /// too (`take` with [`For::All`])? Looks at segments until there are: for who has found the disk full.
    pub(crate) fn has_places(&self, count: u64, need: u32) -> bool {
        assert!(
            need > 0 && need % BLOCK_GRANULES == 0,
            "{need} granules are no whole blocks"
        );
        let mut left = count;
        for segment in self.segments.iter().filter(|s| s.free >= need) {
            let mut from = 0;
            while let Some((at, len)) = segment.next_run(from, For::All) {
                // There may be no room for what is a hole now.
                let holes = match self.holes_last > 0 {
                    true => segment.holes_in(at, len),
                    false => 0,
                };
                left = left.saturating_sub(u64::from((len - holes) / need));
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
            // One or a few pages, as on a full disk: they would find a place anywhere.
            1 if granules < SHORT_RUN => return,
            1 => ONE_RUN,
            n => (granules / n as u32).min(ONE_RUN),
        };
        self.mean_run = (self.mean_run * 7 + mean).div_ceil(8);
        debug_assert!(self.mean_run <= ONE_RUN, "{} to a run", self.mean_run);
    }

    /// The next free run of at least `need` granules: segment, start, length. While the disk is full only the first
    /// run of a batch may be a hole: the rest is for a smaller batch, whose first run may find its space.
    fn find_run(&mut self, need: u32, place: For, is_first: bool) -> Option<(usize, u32, u32)> {
        // Else the store would grow for ever: no new segment has such a run.
        assert!(
            need > 0 && need <= self.segment_granules,
            "a run of {need} granules"
        );
        if place == For::All {
            return self.find_anywhere(need, is_first);
        }
        if self.holes_last > 0 {
            self.holes_last -= 1;
            let found = self.find_allocated(need, For::Pages);
            match found.or_else(|| self.find_allocated(need, For::All)) {
                None if !is_first => return None,
                None => self.holes_last = 0,
                found => return found,
            }
        }
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
        self.segments.get(segment)?.long_run(from, need, For::Pages)
    }

    /// Takes free runs of at least `least` granules that are not holes already, in segments changed since they were
    /// last looked at, until they are `most` granules: first granule and length. They are the caller's until
    /// [`FreeRuns::give_doubtful`]. `from_segment`: where to begin, and then where to go on.
    pub(crate) fn take_long_runs(
        &mut self,
        least: u32,
        most: u64,
        from_segment: &mut usize,
    ) -> Vec<(u64, u32)> {
        let (mut found, mut left) = (Vec::new(), most);
        for i in *from_segment..self.segments.len() {
            *from_segment = i;
            if !self.segments[i].touched {
                continue;
            }
            let first = i as u64 * u64::from(self.segment_granules);
            let mut from = 0;
            while let Some((at, len)) = self.scan(i, from, least) {
                from = at + len;
                let more = len - self.segments[i].holes_in(at, len);
                if more == 0 {
                    continue;
                }
                if left == 0 {
                    return found;
                }
                let taken = self.segments[i].take(at, len);
                assert!(taken, "a long run was not free");
                self.free -= u64::from(len);
                left = left.saturating_sub(u64::from(more));
                found.push((first + u64::from(at), len));
            }
            self.segments[i].touched = false;
            *from_segment = i + 1;
        }
        debug_assert!(self.is_sound(), "{} are free", self.free);
        found
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
