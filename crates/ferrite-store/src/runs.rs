//! Free space: one bitmap per segment, granules given out in runs.
//!
//! Invariants: `free` of a segment is the number of its clear bits; `longest` is never below
//! its longest free run; no run crosses a segment. A bit is set while the granule belongs to
//! a blob (live, retired or being written). A granule is stale while it is free and may still
//! hold what was there before (see `scrub.rs`); whatever is in use is not stale.
//!
//! Policy: blobs go into the current segment's free runs in address order; then into the
//! segment with the most free space that may have a run long enough. Nobody waits: when no
//! run is left, the caller adds a segment or reports a full disk.
//!
//! Locking: none here; the store keeps it under its space lock.

/// Consecutive blobs of a batch that go to one run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Run {
    /// First granule in the store.
    pub(crate) granule: u64,
    /// Length.
    pub(crate) granules: u32,
    /// Number of blobs in it.
    pub(crate) blobs: usize,
}

struct Segment {
    /// Bit set: granule in use.
    bits: Box<[u64]>,
    /// Bit set: granule free, and what was there may still be.
    stale: Box<[u64]>,
    /// Some stale granules may be zeroes already.
    doubtful: bool,
    free: u32,
    /// No free run is longer.
    longest: u32,
    /// Written to since its free runs were last given back to the file system.
    touched: bool,
    /// For each granule the generation in which a blob last took it; None: none did since
    /// generations are counted.
    taken_in: Option<Box<[u8]>>,
}

impl Segment {
    /// A free segment; `stale` when what its file holds there is not known.
    fn new(granules: u32, stale: bool) -> Segment {
        let word = if stale { u64::MAX } else { 0 };
        Segment {
            bits: vec![0; granules as usize / 64].into(),
            stale: vec![word; granules as usize / 64].into(),
            doubtful: stale,
            free: granules,
            longest: granules,
            touched: false,
            taken_in: None,
        }
    }

    /// A blob takes these granules in that generation.
    fn note_taken(&mut self, at: u32, n: u32, generation: u8) {
        let granules = self.bits.len() * 64;
        let taken_in = self
            .taken_in
            .get_or_insert_with(|| vec![0; granules].into());
        taken_in[at as usize..(at + n) as usize].fill(generation);
    }

    /// `free` counts what is not in use, and nothing that is in use is stale.
    fn is_sound(&self) -> bool {
        let free: u32 = self.bits.iter().map(|w| w.count_zeros()).sum();
        let both = self.bits.iter().zip(&self.stale).any(|(a, b)| a & b != 0);
        free == self.free && !both
    }

    /// The first free run at or after `from`: start and length.
    fn next_run(&self, from: u32) -> Option<(u32, u32)> {
        let start = self.find(from, false)?;
        let end = self
            .find(start, true)
            .unwrap_or(self.bits.len() as u32 * 64);
        debug_assert!(start >= from && end > start, "{start}..{end} from {from}");
        Some((start, end - start))
    }

    /// The first granule at or after `from` that is in use, or not in use.
    fn find(&self, from: u32, used: bool) -> Option<u32> {
        find_bit(&self.bits, from, used)
    }

    /// The first stale run at or after `from`, of at most `most` granules: start and length.
    fn stale_run(&self, from: u32, most: u32) -> Option<(u32, u32)> {
        let start = find_bit(&self.stale, from, true)?;
        let end = find_bit(&self.stale, start, false).unwrap_or(self.stale.len() as u32 * 64);
        Some((start, (end - start).min(most)))
    }

    /// Marks granules used; false (and nothing changed) if one is already.
    fn take(&mut self, at: u32, n: u32) -> bool {
        assert!(n > 0, "nothing is taken at {at}");
        let mut clash = 0;
        each_word(&mut self.bits, at, n, |w, mask| clash |= *w & mask);
        if clash != 0 {
            return false;
        }
        each_word(&mut self.bits, at, n, |w, mask| *w |= mask);
        each_word(&mut self.stale, at, n, |w, mask| *w &= !mask);
        assert!(self.free >= n, "{n} of {} granules", self.free);
        self.free -= n;
        self.touched = true;
        debug_assert!(self.is_sound(), "after {at}+{n} was taken");
        true
    }

    fn give(&mut self, at: u32, n: u32, stale: bool) {
        assert!(n > 0, "nothing is given back at {at}");
        let mut all = true;
        each_word(&mut self.bits, at, n, |w, mask| {
            all &= *w & mask == mask;
            *w &= !mask;
        });
        assert!(all, "granules {at}+{n} of a segment were freed twice");
        if stale {
            each_word(&mut self.stale, at, n, |w, mask| *w |= mask);
        }
        self.free += n;
        self.longest = self.bits.len() as u32 * 64;
        assert!(self.free <= self.longest, "{} are free", self.free);
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
    free: u64,
    /// The lowest free space goes first.
    lowest_first: bool,
    /// Of backups since the store was opened; stays at the last one. 0: none yet, and nothing is
    /// noted.
    generation: u8,
}

impl FreeRuns {
    pub(crate) fn new(segment_granules: u32, segments: usize) -> FreeRuns {
        assert!(segment_granules % 64 == 0 && segment_granules > 0);
        FreeRuns {
            segments: (0..segments)
                .map(|_| Segment::new(segment_granules, true))
                .collect(),
            segment_granules,
            current: 0,
            cursor: 0,
            lowest_first: false,
            generation: 0,
            free: segments as u64 * u64::from(segment_granules),
        }
    }

    /// Free granules.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// All granules.
    pub(crate) fn total(&self) -> u64 {
        self.segments.len() as u64 * u64::from(self.segment_granules)
    }

    pub(crate) fn segments(&self) -> usize {
        self.segments.len()
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

    /// Has a blob taken one of these granules in that generation or later?
    pub(crate) fn taken_since(&self, granule: u64, n: u32, generation: u8) -> bool {
        assert!(generation > 0 && n > 0, "{n} granules since {generation}");
        let Some((segment, at)) = self.split(granule, n) else {
            return true;
        };
        let Some(taken_in) = &self.segments[segment].taken_in else {
            return false;
        };
        let range = at as usize..(at + n) as usize;
        taken_in[range]
            .iter()
            .any(|in_which| *in_which >= generation)
    }

    /// A new, wholly free segment at the end.
    pub(crate) fn add_segment(&mut self) {
        self.segments
            .push(Segment::new(self.segment_granules, false));
        self.free += u64::from(self.segment_granules);
        debug_assert!(self.is_sound(), "{} are free", self.free);
    }

    /// Takes the last segment away if it is wholly free and not the only one.
    pub(crate) fn drop_free_tail(&mut self) -> bool {
        let whole = |s: &Segment| s.free == self.segment_granules;
        if self.segments.len() < 2 || !self.segments.last().is_some_and(whole) {
            return false;
        }
        self.segments.pop();
        assert!(
            self.free >= u64::from(self.segment_granules),
            "{}",
            self.free
        );
        self.free -= u64::from(self.segment_granules);
        if self.current >= self.segments.len() {
            self.current = 0;
            self.cursor = 0;
        }
        debug_assert!(self.is_sound(), "{} are free", self.free);
        true
    }

    /// Segment and granule in it, if the range is within one segment of the store.
    fn split(&self, granule: u64, n: u32) -> Option<(usize, u32)> {
        let segment = granule / u64::from(self.segment_granules);
        let at = (granule % u64::from(self.segment_granules)) as u32;
        let fits = segment < self.segments.len() as u64 && n <= self.segment_granules - at;
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
    /// page lost.
    pub(crate) fn give(&mut self, granule: u64, n: u32) {
        self.give_back(granule, n, true);
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

    fn give_back(&mut self, granule: u64, n: u32, stale: bool) {
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
                if left == 0 {
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
            if left == 0 {
                return found;
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
                self.segments[segment].note_taken(at, run.granules, self.generation);
            }
            self.free -= u64::from(run.granules);
            self.current = segment;
            self.cursor = at + run.granules;
            runs.push(run);
        }
        debug_assert!(self.is_sound(), "{} are free", self.free);
        true
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
            let fits = |s: &&Segment| s.longest >= need && s.free >= need;
            let emptiest = self.segments.iter().filter(fits).map(|s| s.free).max()?;
            let segment = self
                .segments
                .iter()
                .position(|s| s.free == emptiest && fits(&s))?;
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
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn fills_in_address_order_and_splits() {
        let mut f = FreeRuns::new(64, 1);
        assert!(f.mark(2, 3) && f.mark(10, 1));
        assert!(!f.mark(4, 2) && !f.mark(62, 3) && !f.mark(64, 1));
        let mut runs = Vec::new();
        assert!(f.take([2, 4, 1, 5].into_iter(), &mut runs));
        let got: Vec<_> = runs
            .iter()
            .map(|r| (r.granule, r.granules, r.blobs))
            .collect();
        assert_eq!(got, [(0, 2, 1), (5, 5, 2), (11, 5, 1)]);
        assert_eq!(f.free(), 64 - 4 - 12);
    }

    #[test]
    fn granules_remember_the_generation_that_took_them() {
        let mut f = FreeRuns::new(64, 2);
        let mut runs = Vec::new();
        assert!(f.take([4].into_iter(), &mut runs));
        let first = f.next_generation();
        assert!(!f.taken_since(0, 4, first) && !f.taken_since(70, 1, first));
        assert!(f.take([3].into_iter(), &mut runs));
        assert!(f.taken_since(3, 2, first) && !f.taken_since(0, 4, first));
        let second = f.next_generation();
        assert!(f.taken_since(4, 3, first) && !f.taken_since(4, 3, second));
        f.give(4, 3);
        f.give_out_lowest_first();
        assert!(f.take([2].into_iter(), &mut runs));
        assert!(f.taken_since(4, 1, second) && !f.taken_since(6, 1, second));
        assert!(f.taken_since(128, 1, second), "beyond the store");
    }

    #[test]
    fn failure_takes_nothing() {
        let mut f = FreeRuns::new(64, 1);
        let mut runs = Vec::new();
        assert!(!f.take([5; 13].into_iter(), &mut runs));
        assert!(runs.is_empty());
        assert_eq!(f.free(), 64);
        f.add_segment();
        assert!(f.take([5; 13].into_iter(), &mut runs));
        assert_eq!(runs.len(), 2);
        assert!(!f.drop_free_tail());
    }

    #[test]
    fn prefers_the_emptiest_segment() {
        let mut f = FreeRuns::new(128, 3);
        assert!(f.mark(0, 128) && f.mark(128, 100) && f.mark(256, 20));
        let mut runs = Vec::new();
        assert!(f.take([4].into_iter(), &mut runs));
        assert_eq!(runs[0].granule, 276);
    }

    #[test]
    fn tail_goes_when_free() {
        let mut f = FreeRuns::new(64, 3);
        assert!(f.mark(64, 1));
        assert!(f.drop_free_tail());
        assert!(!f.drop_free_tail());
        f.give(64, 1);
        assert!(f.drop_free_tail());
        assert!(!f.drop_free_tail(), "one segment stays");
        assert_eq!((f.segments(), f.free()), (1, 64));
    }

    #[test]
    fn long_runs_are_reported_once() {
        let mut f = FreeRuns::new(64, 1);
        assert!(f.take_long_runs(8).is_empty(), "never written to");
        assert!(f.mark(10, 1));
        let runs = f.take_long_runs(11);
        assert_eq!(runs, [(11, 53)]);
        assert_eq!(f.free(), 10);
        f.give(11, 53);
        assert!(f.take_long_runs(8).is_empty());
    }

    #[test]
    fn stale_is_what_was_freed_and_not_scrubbed() {
        let mut f = FreeRuns::new(64, 1);
        let mut from = 0;
        let runs = |f: &mut FreeRuns, most, from: &mut usize| -> Vec<(u64, u32, bool)> {
            let found = f.take_stale(most, from);
            found
                .iter()
                .for_each(|r| f.give_zeroed(r.granule, r.granules));
            let told = found.iter().map(|r| (r.granule, r.granules, r.doubtful));
            told.collect()
        };
        // After opening nothing is known of what is free.
        assert!(f.mark(10, 5));
        assert_eq!(runs(&mut f, 60, &mut from), [(0, 10, true), (15, 49, true)]);
        assert!(runs(&mut f, 60, &mut from).is_empty());
        f.give(10, 5);
        f.add_segment();
        from = 0;
        assert!(f.mark(70, 2));
        f.give(70, 2);
        assert_eq!(runs(&mut f, 4, &mut from), [(10, 4, false)]);
        assert_eq!(runs(&mut f, 4, &mut from), [(14, 1, false), (70, 2, false)]);
        // What is in use again is not stale.
        assert!(f.mark(3, 4));
        f.give(3, 4);
        assert!(f.mark(3, 4));
        assert!(runs(&mut f, 64, &mut from).is_empty());
        assert_eq!(f.free(), 124);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn freeing_twice_is_a_bug() {
        let mut f = FreeRuns::new(64, 1);
        assert!(f.mark(3, 4));
        f.give(3, 4);
        f.give(5, 1);
    }

    /// Free space is exactly what the model has not handed out; nothing overlaps.
    #[test]
    fn agrees_with_a_naive_model() {
        for seed in 0..30 {
            let mut rng = Rng::new(seed);
            let (size, mut segments) = (256u64, 3u64);
            let mut f = FreeRuns::new(size as u32, segments as usize);
            let mut used: BTreeSet<u64> = BTreeSet::new();
            let mut blobs: BTreeMap<u64, u32> = BTreeMap::new();
            let mut runs = Vec::new();
            for _ in 0..400 {
                if rng.chance(1, 2) {
                    let lens: Vec<u32> = (0..=rng.below(40))
                        .map(|_| 1 + rng.below(5) as u32)
                        .collect();
                    if f.take(lens.iter().copied(), &mut runs) {
                        let mut next = lens.iter();
                        for run in &runs {
                            let mut at = run.granule;
                            for n in next.by_ref().take(run.blobs) {
                                assert_eq!(at / size, (at + u64::from(*n) - 1) / size);
                                (at..at + u64::from(*n)).for_each(|g| assert!(used.insert(g)));
                                blobs.insert(at, *n);
                                at += u64::from(*n);
                            }
                            assert_eq!(at, run.granule + u64::from(run.granules));
                        }
                        assert!(next.next().is_none());
                    } else if segments < 8 {
                        f.add_segment();
                        segments += 1;
                    }
                } else {
                    for _ in 0..rng.below(40) {
                        let Some((&at, &n)) = blobs.range(rng.below(size * segments)..).next()
                        else {
                            continue;
                        };
                        blobs.remove(&at);
                        (at..at + u64::from(n)).for_each(|g| assert!(used.remove(&g)));
                        f.give(at, n);
                    }
                }
                assert_eq!(f.total() - f.free(), used.len() as u64);
                for g in 0..size * segments {
                    let (s, at) = f.split(g, 1).unwrap();
                    let bit = f.segments[s].bits[at as usize / 64] >> (at % 64) & 1;
                    assert_eq!(bit == 1, used.contains(&g));
                }
            }
        }
    }
}
