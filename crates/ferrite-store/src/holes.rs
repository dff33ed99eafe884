//! Free space that the files have no space for: holes, and where to look when the disk is full.
//!
//! What is free for long goes back to the file system (`space.rs`), and stays free space of the store. On a full disk a
//! write to it may fail, while one to what the files have space for does not. So holes are noted, and go last once a
//! write has failed.
//!
//! Invariants: what is in use is no hole; what was taken and not written to is a hole again where it was one. A place that
//! is noted as a hole may have its space all the same; one that is not may be a hole since before the start.
//!
//! Locking: none here; see `runs.rs`.

use crate::runs::{FreeRuns, Run};
use crate::segment::{whole_blocks, For, Segment};

/// After a write for which the disk had no room, runs that are looked for elsewhere than in holes.
const HOLES_LAST: u32 = 4096;

impl FreeRuns {
    /// Of the free ones, those that the files have space for: they are no holes.
    pub(crate) fn allocated(&self) -> u64 {
        let holes: u64 = self.segments.iter().map(|s| u64::from(s.holes)).sum();
        assert!(holes <= self.free(), "{holes} holes, {} free", self.free());
        self.free() - holes
    }

    /// These free granules are holes in the files now.
    pub(crate) fn note_hole(&mut self, granule: u64, n: u32) {
        match self.split(granule, n) {
            Some((segment, at)) => self.segments[segment].note_hole(at, n),
            None => panic!("a hole of {n} granules at {granule}, beyond the store"),
        }
    }

    /// Runs that were taken are free again. Those before `failed` were written, that one (if it is one of them) in
    /// part, those behind not at all. `is_full`: the file system had no room for it, so it is a hole where it was one
    /// before, or, if nobody knew of one, as a whole.
    pub(crate) fn give_after_failure(&mut self, runs: &[Run], failed: usize, is_full: bool) {
        assert!(failed <= runs.len(), "run {failed} of {}", runs.len());
        for (number, run) in runs.iter().enumerate() {
            self.give(run.granule, run.granules);
            if number >= failed {
                self.note_holes(&run.holes);
            }
        }
        if !is_full {
            return;
        }
        self.holes_last = HOLES_LAST;
        // A sync that failed says of none of them that it has its space.
        let doubted = match failed < runs.len() {
            true => &runs[failed..=failed],
            false => runs,
        };
        for run in doubted.iter().filter(|run| run.holes.is_empty()) {
            self.note_hole(run.granule, run.written());
        }
    }

    /// These free granules are holes, as they were when they were taken.
    pub(crate) fn note_holes(&mut self, holes: &[(u64, u32)]) {
        for (granule, n) in holes {
            self.note_hole(*granule, *n);
        }
    }

    /// The holes among granules of a segment.
    pub(crate) fn holes_of(&self, segment: usize, at: u32, n: u32) -> Vec<(u64, u32)> {
        let first = segment as u64 * u64::from(self.segment_granules);
        let mut holes = Vec::new();
        for (at, n) in self.segments[segment].hole_runs(at, n) {
            holes.push((first + u64::from(at), n));
        }
        holes
    }

    /// Of late the disk had no room for what was to be written to a hole.
    pub(crate) fn holes_go_last(&self) -> bool {
        self.holes_last > 0
    }

    /// The first run of at least `need` granules anywhere, areas too; one without a hole first. A walk over the free
    /// space: for a full disk. As for the first run of a batch see `find_run`.
    pub(crate) fn find_anywhere(&self, need: u32, is_first: bool) -> Option<(usize, u32, u32)> {
        assert!(need > 0, "a run of nothing");
        self.find_allocated(need, For::All).or_else(|| {
            if self.holes_last > 0 && !is_first {
                return None;
            }
            let mut all = self.segments.iter().enumerate();
            all.find_map(|(number, segment)| {
                let (at, len) = segment.long_run(0, need, For::All)?;
                Some((number, at, len))
            })
        })
    }

    /// The first run of at least `need` granules without a hole among those. A walk over the free space: for a full
    /// disk.
    pub(crate) fn find_allocated(&self, need: u32, who: For) -> Option<(usize, u32, u32)> {
        let has = |s: &Segment| (who == For::All || s.usable >= need) && s.free - s.holes >= need;
        for (number, segment) in self.segments.iter().enumerate().filter(|(_, s)| has(s)) {
            let mut from = 0;
            while let Some((at, len)) = segment.next_run(from, who) {
                let step = whole_blocks(need);
                let mut places = (0..len / step).map(|i| at + i * step);
                if let Some(at) = places.find(|at| segment.holes_in(*at, need) == 0) {
                    return Some((number, at, need));
                }
                from = at + len;
            }
        }
        None
    }
}
