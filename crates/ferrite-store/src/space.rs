//! Space: room for a batch, growing ahead of need, giving back.
//!
//! Policy: a store keeps 15% of its granules free (at least a quarter segment, at most
//! 16 MiB of that minimum), so that free runs stay long; the background adds a segment when
//! there is less. A writer adds one only when no run is left. Nobody cleans. Once more than
//! half is free, and at least two segments, long free runs and free segments at the end go back to
//! the file system: less is soon written again, and a hole must then be allocated anew.
//!
//! Locking: growth lock > space lock; file calls under the growth lock only.

use ferrite_types::{Error, PageId, Result};

use crate::batch::Batch;
use crate::deps::{kill_point, Ordering};
use crate::runs::{FreeRuns, Run};
use crate::store::{Store, LOADING};
use crate::word::{Location, GRANULE_BYTES};

/// Free share below which the background grows the store, in percent.
const FREE_PERCENT: u64 = 15;
/// Cap of the smallest free space kept, in bytes.
const MARGIN_BYTES: u64 = 16 << 20;
/// Shortest free run that is given back to the file system, in granules.
const PUNCH_GRANULES: u32 = (1 << 20) / GRANULE_BYTES as u32;

impl Store {
    /// Takes room for the batch, adding segments as long as it takes.
    pub(crate) fn take_runs(&self, batch: &Batch, runs: &mut Vec<Run>) -> Result<()> {
        let sizes = || batch.blobs().iter().map(|b| b.granules);
        while !self.runs.lock().take(sizes(), runs) {
            let _growth = self.growth.lock();
            // Somebody may have added a segment, or finished giving space back, meanwhile.
            let segments = {
                let mut free = self.runs.lock();
                if free.take(sizes(), runs) {
                    return Ok(());
                }
                free.segments()
            };
            self.add_segment(segments)
                .map_err(|e| self.no_room(batch, e))?;
            self.counters.grown_in_foreground.inc();
        }
        Ok(())
    }

    fn no_room(&self, batch: &Batch, why: Error) -> Error {
        let Error::DiskFull(why) = why else {
            return why;
        };
        Error::DiskFull(format!(
            "no room for {} KiB of pages in {} MiB of store files, {} KiB free in short runs; \
             adding a segment failed: {why}",
            batch.len() >> 10,
            self.file_bytes() >> 20,
            self.free_bytes() >> 10,
        ))
    }

    /// Caller holds the growth lock.
    fn add_segment(&self, segment: usize) -> Result<()> {
        self.files.grow(segment)?;
        kill_point!("store.segment_grown");
        let mut runs = self.runs.lock();
        let known = runs.segments();
        assert!(known == segment, "segment {segment} is added to {known}");
        runs.add_segment();
        drop(runs);
        self.counters.segments_grown.inc();
        Ok(())
    }

    /// Adds a segment when free space is low; true if it did. For background threads: cheap
    /// when there is nothing to do.
    ///
    /// # Errors
    /// `DiskFull` or `Io`; the store goes on with what it has.
    pub fn grow_ahead(&self) -> Result<bool> {
        if !self.wants_segment() {
            return Ok(false);
        }
        let Some(_growth) = self.growth.try_lock() else {
            return Ok(false);
        };
        if !self.wants_segment() {
            return Ok(false);
        }
        let segments = self.runs.lock().segments();
        self.add_segment(segments)?;
        Ok(true)
    }

    fn wants_segment(&self) -> bool {
        if self.phase.load(Ordering::Acquire) == LOADING {
            return false;
        }
        let (free, total) = self.free_and_total();
        free < self.free_wanted(total)
    }

    /// Granules.
    fn free_and_total(&self) -> (u64, u64) {
        let runs = self.runs.lock();
        debug_assert!(runs.free() <= runs.total(), "{} are free", runs.free());
        (runs.free(), runs.total())
    }

    /// Granules to keep free out of so many.
    fn free_wanted(&self, total: u64) -> u64 {
        let margin = MARGIN_BYTES.min(self.superblock.geometry.segment_bytes / 4);
        (total * FREE_PERCENT / 100).max(margin / GRANULE_BYTES as u64)
    }

    /// Like [`shrink`](Self::shrink) if more than half of the store is free, and at least two
    /// segments. Cheap when there is nothing to do.
    ///
    /// # Errors
    /// As `shrink`.
    pub fn shrink_if_half_free(&self) -> Result<u64> {
        let least = 2 * u64::from(self.superblock.geometry.segment_granules());
        let (free, total) = self.free_and_total();
        if free >= least && free * 2 > total {
            self.shrink()
        } else {
            Ok(0)
        }
    }

    /// Gives free space back to the file system: whole segments at the end, as long as
    /// enough stays free, and free runs of at least 1 MiB that were written to since the
    /// last call. Returns the bytes given back.
    ///
    /// # Errors
    /// `Io`; what was given back until then is.
    pub fn shrink(&self) -> Result<u64> {
        if self.phase.load(Ordering::Acquire) == LOADING {
            return Ok(0);
        }
        let _growth = self.growth.lock();
        let mut given = 0;
        let result = self
            .cut_tail(&mut given)
            .and_then(|()| self.punch_runs(&mut given));
        self.counters.bytes_given_back.add(given);
        result.map(|()| given)
    }

    fn cut_tail(&self, given: &mut u64) -> Result<()> {
        let segment = u64::from(self.superblock.geometry.segment_granules());
        loop {
            let last = {
                let mut runs = self.runs.lock();
                let left = runs.total() - segment;
                if runs.free() < segment + self.free_wanted(left) || !runs.drop_free_tail() {
                    return Ok(());
                }
                runs.segments()
            };
            assert!(last > 0, "the only segment is cut");
            if let Err(e) = self.files.cut(last) {
                // Perhaps it is gone, perhaps not: a segment that is missing must not be used.
                return self.files.grow(last).and_then(|()| {
                    let mut runs = self.runs.lock();
                    let known = runs.segments();
                    assert!(known == last, "segment {last} is added to {known}");
                    runs.add_segment();
                    Err(e)
                });
            }
            kill_point!("store.tail_cut");
            *given += self.superblock.geometry.segment_bytes;
        }
    }

    fn punch_runs(&self, given: &mut u64) -> Result<()> {
        let found = self.runs.lock().take_long_runs(PUNCH_GRANULES);
        let mut result = Ok(());
        for (granule, granules) in found {
            if result.is_ok() {
                result = self.files.punch(granule, granules);
                kill_point!("store.punched");
                if result.is_ok() {
                    *given += u64::from(granules) * GRANULE_BYTES as u64;
                }
            }
            self.runs.lock().give_doubtful(granule, granules);
        }
        result
    }

    /// Compares free space with what the directory and the queue of retired blobs leave over.
    /// `home_of` says where the page in a frame is on disk. Only while nothing is written.
    ///
    /// # Errors
    /// `Corrupt` when two blobs share a granule, one lies in free space, or space is lost.
    pub fn check_space(&self, home_of: &dyn Fn(u32) -> Location) -> Result<()> {
        let segments = self.runs.lock().segments();
        let granules = self.superblock.geometry.segment_granules();
        let mut named = FreeRuns::new(granules, segments);
        for n in 1..self.directory.end() {
            let page = PageId(n);
            let word = self.directory.get(page);
            let at = match word.as_frame() {
                Some(frame) => home_of(frame),
                None => word.as_location().unwrap_or(Location::NONE),
            };
            if !at.is_none() && !named.mark(at.granule(), at.granules()) {
                return Err(self.clash(page, at, named.contains(at.granule(), at.granules())));
            }
        }
        for at in self.retired.all() {
            if !named.mark(at.granule(), at.granules()) {
                return Err(Error::Corrupt(format!("store: retired {at:?} is in use")));
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
