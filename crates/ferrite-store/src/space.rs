//! Space: room for a batch, growing ahead of need, giving back.
//!
//! Policy: the background keeps room for a few batches ahead of the writers, and makes the files
//! longer in steps (64 MiB) when there is less. That is all while batches go to long runs: a table
//! that is only loaded needs no more. Once they fall into short ones (pages are rewritten, and free
//! space is in pieces), 15% of the store is kept free, which makes them longer again. A writer
//! grows the store itself only when no run is left. Nobody cleans. On a disk that is full changes
//! are refused when the files are shorter than that, and deletions only when the free runs have no
//! place for what is to be written and `LEAST_PAGES` more. Once more than half is free, and at
//! least two segments, long free runs and free space at the end go back to the file system: less is
//! soon written again, and a hole must then be allocated anew. Once the disk had no room for one, free space that is no
//! hole goes first for a while.
//!
//! Locking: growth lock > space lock; file calls under the growth lock only.

use ferrite_types::{Error, PageId, Result};

use crate::batch::Batch;
use crate::blob::MAX_BLOB_GRANULES;
use crate::deps::{kill_point, Ordering};
use crate::files::Geometry;
use crate::runs::{FreeRuns, Run, SHORT_RUN};
use crate::segment::For;
use crate::store::{Store, LOADING};
use crate::word::{Location, BLOCK_GRANULES, GRANULE_BYTES};

/// Share of the store that is kept free while runs are short, in percent.
const FREE_PERCENT: u64 = 15;
/// Free space always kept, in bytes: a few batches.
const MARGIN_BYTES: u64 = 4 << 20;
/// Places for pages that deletions leave free on a full disk, beside those for the pages that are dirty, and
/// how many of them for the longest: for rollback and purge, which move pages, and need a place before
/// they leave one.
const LEAST_PAGES: (u64, u64) = (48, 4);
/// A place for any page: whole blocks, as granules.
const LONGEST_GRANULES: u32 = (MAX_BLOB_GRANULES as u32).next_multiple_of(BLOCK_GRANULES);
/// The store grows by so many bytes; where its segments are shorter, as in tests, by a share of itself that is
/// a quarter of a segment or more.
const GROWTH_BYTES: u64 = 64 << 20;
const GROWTH_SHARE: u64 = 32;
/// Shortest free run that is given back to the file system, in granules.
const PUNCH_GRANULES: u32 = (1 << 20) / GRANULE_BYTES as u32;

/// So many segments' length of free runs is given back at a time.
const PUNCH_SEGMENTS: u64 = 4;

/// Where a store that ends at granule `from` ends when it was made longer: within one segment.
pub(crate) fn grown_end(geometry: &Geometry, from: u64) -> u64 {
    let granules = |bytes: u64| bytes / GRANULE_BYTES as u64;
    // A disk that becomes full between two steps must leave room for what a statement adds until it is
    // ended, and for its rollback: small steps left a database without.
    let by = match geometry.segment_bytes >= GROWTH_BYTES {
        true => granules(GROWTH_BYTES),
        false => {
            let least = granules(geometry.segment_bytes / 4);
            (from / GROWTH_SHARE).clamp(least, granules(GROWTH_BYTES))
        }
    };
    let segment = u64::from(geometry.segment_granules());
    let last = (from / segment + 1) * segment;
    let end = (from + by.next_multiple_of(geometry.step_granules())).min(last);
    assert!(from < end && end <= last, "{from} to {end}, across {last}");
    end
}

/// What came of looking ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ahead {
    /// There is as much free space as there should be.
    Enough,
    /// The store is longer now.
    Grown,
    /// Somebody else is at it.
    Busy,
}

impl Store {
    /// Takes room for the batch, adding segments as long as it takes.
    pub(crate) fn take_runs(&self, batch: &Batch, runs: &mut Vec<Run>) -> Result<()> {
        let sizes = |small: bool| {
            let those = batch.blobs().iter().filter(move |b| b.is_delta == small);
            those.map(|b| b.granules)
        };
        let take_for = |place: For, runs: &mut Vec<Run>| {
            let mut all = self.runs.lock();
            all.take(sizes(false), sizes(true), place, runs)
        };
        let take = |runs: &mut Vec<Run>| take_for(For::Pages, runs);
        while !take(runs) {
            let _growth = self.growth.lock();
            // Somebody may have made the store longer, or finished giving space back, meanwhile.
            if take(runs) {
                return Ok(());
            }
            match self.grow() {
                Ok(()) => self.counters.grown_in_foreground.inc(),
                Err(_) if take_for(For::All, runs) => return Ok(()),
                Err(e) => return Err(self.no_room(batch, e)),
            }
        }
        Ok(())
    }

    fn no_room(&self, batch: &Batch, why: Error) -> Error {
        let Error::DiskFull(why) = why else {
            return why;
        };
        Error::DiskFull(format!(
            "no room for {} KiB of pages in {} MiB of store files, {} KiB free ({} KiB in \
             whole blocks) in short runs; making them longer failed: {why}",
            batch.len() >> 10,
            self.file_bytes() >> 20,
            self.free_bytes() >> 10,
            (self.usable_and_total().0 * GRANULE_BYTES as u64) >> 10,
        ))
    }

    /// Makes the store longer, by less where the disk has no room for as much as there should be.
    /// Caller holds the growth lock.
    fn grow(&self) -> Result<()> {
        let geometry = &self.superblock.geometry;
        let step = geometry.step_granules();
        let from = self.runs.lock().total();
        let end = grown_end(geometry, from);
        match self.grow_to(from, end) {
            Err(Error::DiskFull(_)) if end > from + step => self.grow_to(from, from + step),
            other => other,
        }
        .inspect_err(|e| {
            let is_full = matches!(e, Error::DiskFull(_));
            self.has_no_room.fetch_or(is_full, Ordering::Relaxed);
        })
    }

    fn grow_to(&self, from: u64, end: u64) -> Result<()> {
        self.files.grow(from, end)?;
        kill_point!("store.segment_grown");
        let mut runs = self.runs.lock();
        let known = runs.total();
        assert!(known == from, "granules from {from} are added to {known}");
        runs.add_to(end);
        drop(runs);
        self.counters.segments_grown.inc();
        Ok(())
    }

    /// Makes the store longer when free space is low. For background threads: cheap when there is
    /// nothing to do.
    ///
    /// # Errors
    /// `DiskFull` or `Io`; the store goes on with what it has.
    pub fn grow_ahead(&self) -> Result<Ahead> {
        if !self.wants_segment() && !self.lacks_area() {
            self.has_room_again();
            return Ok(Ahead::Enough);
        }
        let Some(_growth) = self.growth.try_lock() else {
            return Ok(Ahead::Busy);
        };
        let wanted = self.wants_segment();
        if !wanted && !self.lacks_area() {
            return Ok(Ahead::Enough);
        }
        match self.grow() {
            Ok(()) => self.has_room_again(),
            // Pages have enough, and deltas wait.
            Err(Error::DiskFull(_)) if !wanted => return Ok(Ahead::Enough),
            Err(e) => return Err(e),
        }
        Ok(Ahead::Grown)
    }

    /// The disk had no room for a longer store or for what was written, and there is still no place for a new area:
    /// a delta would find none but among the pages.
    fn lacks_area(&self) -> bool {
        self.has_no_room.load(Ordering::Relaxed) && !self.runs.lock().may_begin_area()
    }

    fn has_room_again(&self) {
        // Written to only when it changes: who copies pages reads it.
        if self.has_no_room.load(Ordering::Relaxed) {
            self.has_no_room.store(false, Ordering::Relaxed);
        }
    }

    /// Could so many pages be written although the files get no longer, and a few more? Pages are taken
    /// to be as long as those written of late, rounded up; there has to be room for a few of the
    /// longest, too. A walk over the free space.
    pub fn has_room_for(&self, pages: u64) -> bool {
        let least = self.superblock.geometry.segment_bytes / 2 / GRANULE_BYTES as u64;
        let most = least / u64::from(LONGEST_GRANULES);
        let usual = self.usual_granules();
        let (spare, longest) = LEAST_PAGES;
        let runs = self.runs.lock();
        runs.has_places(pages + spare.min(most), usual)
            && runs.has_places(longest.min(most), LONGEST_GRANULES)
    }

    /// What a page takes in whole blocks, as granules: by those written since the store was opened.
    fn usual_granules(&self) -> u32 {
        let c = &self.counters;
        // Deltas apart: they say nothing of pages. Not read at one moment.
        let pages = (c.pages_written.get()).saturating_sub(c.deltas_written.get());
        let bytes = (c.bytes_written.get()).saturating_sub(c.delta_bytes_written.get());
        let granules = bytes / GRANULE_BYTES as u64;
        let mean = match granules.checked_div(pages) {
            // Nothing of them is known: a page that is two thirds full.
            None => u64::from(LONGEST_GRANULES) * 2 / 3,
            Some(mean) => mean + 1,
        };
        let usual = (mean as u32).next_multiple_of(BLOCK_GRANULES);
        usual.clamp(BLOCK_GRANULES, LONGEST_GRANULES)
    }

    /// Had the file system of late no room for what was to be written, or for a longer store? A delta keeps its base
    /// beside it: none should be written then.
    pub fn is_disk_full(&self) -> bool {
        self.has_no_room.load(Ordering::Relaxed)
    }

    fn wants_segment(&self) -> bool {
        if self.phase.load(Ordering::Acquire) == LOADING {
            return false;
        }
        let runs = self.runs.lock();
        runs.usable() < self.free_wanted(runs.total(), runs.mean_run())
    }

    /// Granules: those that can be handed out, and all.
    fn usable_and_total(&self) -> (u64, u64) {
        let runs = self.runs.lock();
        debug_assert!(runs.usable() <= runs.free(), "{} are usable", runs.usable());
        debug_assert!(runs.free() <= runs.total(), "{} are free", runs.free());
        (runs.usable(), runs.total())
    }

    /// Granules to keep free out of so many, while runs are so long.
    fn free_wanted(&self, total: u64, mean_run: u32) -> u64 {
        let margin = MARGIN_BYTES.min(self.superblock.geometry.segment_bytes / 2);
        let share = match mean_run < SHORT_RUN {
            true => total * FREE_PERCENT / 100,
            false => 0,
        };
        share.max(margin / GRANULE_BYTES as u64)
    }

    /// Like [`shrink`](Self::shrink) if more than half of the store is free, and at least two
    /// segments. Cheap when there is nothing to do.
    ///
    /// # Errors
    /// As `shrink`.
    pub fn shrink_if_half_free(&self) -> Result<u64> {
        let least = 2 * u64::from(self.superblock.geometry.segment_granules());
        let (free, total) = self.usable_and_total();
        if free >= least && free * 2 > total {
            self.shrink()
        } else {
            Ok(0)
        }
    }

    /// Gives free space back to the file system: what is free at the end, as long as
    /// enough stays free, and free runs of at least 1 MiB that were written to since the
    /// last call. Returns the bytes given back.
    ///
    /// # Errors
    /// `Io`; what was given back until then is.
    pub fn shrink(&self) -> Result<u64> {
        self.shrink_but(0)
    }

    /// As [`shrink`](Self::shrink); of what is free amid the files, and no hole, about one part in so many stays
    /// for pages to be written to (0: nothing).
    ///
    /// # Errors
    /// As `shrink`.
    pub fn shrink_but(&self, part: u64) -> Result<u64> {
        if self.phase.load(Ordering::Acquire) == LOADING {
            return Ok(0);
        }
        let mut given = 0;
        let cut = {
            let _growth = self.growth.lock();
            self.cut_tail(&mut given)
        };
        let result = cut.and_then(|()| self.punch_runs(part, &mut given));
        self.counters.bytes_given_back.add(given);
        result.map(|()| given)
    }

    /// Cuts what is free at the end, as long as enough stays free.
    fn cut_tail(&self, given: &mut u64) -> Result<()> {
        let step = self.superblock.geometry.step_granules();
        loop {
            let (before, end) = {
                let mut runs = self.runs.lock();
                let before = runs.total();
                // What would be kept of the store as it is: a little too much, not too little.
                let most = runs.usable().saturating_sub(self.free_wanted(before, 0));
                match runs.cut_free_tail(step, most) {
                    Some(end) => (before, end),
                    None => return Ok(()),
                }
            };
            assert!(
                0 < end && end < before,
                "{before} granules are cut to {end}"
            );
            if let Err(e) = self.files.cut(end) {
                // Perhaps it is gone, perhaps not: what is missing must not be used.
                return self.grow_to(end, before).and(Err(e));
            }
            kill_point!("store.tail_cut");
            *given += (before - end) * GRANULE_BYTES as u64;
        }
    }

    /// In pieces: who needs a longer store waits for one of them, not for all that is given back.
    fn punch_runs(&self, part: u64, given: &mut u64) -> Result<()> {
        let mut left = {
            let runs = self.runs.lock();
            let kept = runs.allocated().checked_div(part).unwrap_or(0);
            runs.allocated() - kept
        };
        let piece = PUNCH_SEGMENTS * u64::from(self.superblock.geometry.segment_granules());
        let mut from = 0;
        while left > 0 {
            let _growth = self.growth.lock();
            let found =
                (self.runs.lock()).take_long_runs(PUNCH_GRANULES, left.min(piece), &mut from);
            if found.is_empty() {
                break;
            }
            let before = *given;
            self.punch_piece(found, given)?;
            left = left.saturating_sub((*given - before) / GRANULE_BYTES as u64);
        }
        Ok(())
    }

    /// Punches runs that were taken, and gives them back. Caller holds the growth lock.
    fn punch_piece(&self, found: Vec<(u64, u32)>, given: &mut u64) -> Result<()> {
        let mut result = Ok(());
        for (granule, granules) in found {
            if result.is_ok() {
                result = self.files.punch(granule, granules);
                kill_point!("store.punched");
            }
            let mut runs = self.runs.lock();
            runs.give_doubtful(granule, granules);
            if result.is_ok() {
                runs.note_hole(granule, granules);
                *given += u64::from(granules) * GRANULE_BYTES as u64;
            }
        }
        result
    }

    /// Compares free space with what the directory and the queue of retired blobs leave over.
    /// `home_of` says where the page in a frame is on disk. Only while nothing is written.
    ///
    /// # Errors
    /// `Corrupt` when two blobs share a granule, one lies in free space, or space is lost.
    pub fn check_space(&self, home_of: &dyn Fn(u32) -> Location) -> Result<()> {
        let end = self.runs.lock().total();
        let granules = self.superblock.geometry.segment_granules();
        let mut named = FreeRuns::new(granules, end);
        for n in 1..self.directory.end() {
            let page = PageId(n);
            let word = self.directory.get(page);
            let at = match word.as_frame() {
                Some(frame) => home_of(frame),
                None => word.as_location().unwrap_or(Location::NONE),
            };
            for at in [at, self.directory.delta(page)] {
                if !at.is_none() && !named.mark(at.granule(), at.granules()) {
                    return Err(self.clash(page, at, named.contains(at.granule(), at.granules())));
                }
            }
            if at.is_none() && !self.directory.delta(page).is_none() {
                return Err(Error::Corrupt(format!(
                    "store: page {page} has a delta and no blob"
                )));
            }
        }
        for (granule, n) in self.retired.all() {
            if !named.mark_run(granule, n) {
                let text = format!("store: retired granules {granule}+{n} are in use");
                return Err(Error::Corrupt(text));
            }
        }
        for (granule, granules) in self.runs.lock().held.kept_runs() {
            if !named.mark(granule, granules) {
                let text = format!("store: granules {granule}+{granules} of a snapshot are in use");
                return Err(Error::Corrupt(text));
            }
        }
        match self.runs.lock().difference(&named) {
            None => Ok(()),
            Some((granule, used)) => Err(Error::Corrupt(format!(
                "store: granule {granule} is {} and should not be",
                if used { "in use" } else { "free" }
            ))),
        }
    }

    /// Bytes retired and not free yet.
    pub fn retired_bytes(&self) -> u64 {
        self.retired.bytes()
    }

    /// Bytes free for new blobs.
    pub fn free_bytes(&self) -> u64 {
        self.runs.lock().free() * GRANULE_BYTES as u64
    }

    /// Bytes of blobs: live, retired and being written.
    pub fn used_bytes(&self) -> u64 {
        let runs = self.runs.lock();
        (runs.total() - runs.free()) * GRANULE_BYTES as u64
    }

    /// Bytes of all segments on disk.
    pub fn file_bytes(&self) -> u64 {
        self.runs.lock().total() * GRANULE_BYTES as u64
    }
}
