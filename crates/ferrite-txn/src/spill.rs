//! Versions leave memory for a scratch file, when the old generation is over its budget.
//!
//! Two ways. A young segment nearly all of which is needed (a huge transaction, wide updates under
//! an old snapshot) is written as it is. The survivors of other segments gather in the old
//! generation and are written segment by segment, oldest first, as compact extents; so are
//! extents of which little is alive, and those whose records had to come back to memory.
//!
//! Both copy the segment under its mutex, write without any lock, and put the extent in its
//! place with walks paused if nothing changed meanwhile. If something did, they try again,
//! and the last time they write within the pause: 256 KiB to the system's cache.
//!
//! If a write fails, the versions stay where they are or go to memory as if there were no
//! scratch file; that is counted, and the next attempt is made with the next segment.
//!
//! Locking: `retiring`, then walks paused.

use ferrite_sync::atomic::Ordering;
use ferrite_types::{Error, Result};

use crate::extent::Extent;
use crate::old_generation::{Candidate, Copied};
use crate::scratch::{Place, Scratch};
use crate::store::VersionStore;
use crate::version::{room_of, SEGMENT_BYTES};

/// Attempts without pausing walks over the write.
const ATTEMPTS: u32 = 2;
/// A segment with less in memory than this (bytes), or than this share of the budget, is not
/// worth an extent.
const LEAST_BYTES: usize = 2048;
const LEAST_SHARE: usize = 1024;
/// Nor is one with less in memory than this share of the extent that it has already.
const LEAST_OF_EXTENT: usize = 16;
/// Compact extents are cut there (bytes); what is left waits in memory.
const EXTENT_BYTES: usize = 1 << 20;
/// Sparse extents written again per round.
const SPARSE_ROUND: usize = 16;

impl VersionStore {
    pub(crate) fn old_has_room(&self, bytes: usize) -> bool {
        self.scratch.is_none() || self.old.bytes() as usize + bytes <= self.old_budget_bytes()
    }

    /// Within one call of `retire`, so that it need not choose what to spill at each segment.
    pub(crate) fn old_is_far_over(&self) -> bool {
        let budget = self.old_budget_bytes();
        self.old.bytes() as usize > budget + (budget / 4).max(4 * SEGMENT_BYTES)
    }

    /// Writes a sealed young segment as it is and takes it out of the ring; how many versions
    /// that were. 0: it is still there.
    pub(crate) fn spill_young(&self, number: u64) -> u64 {
        let Some(scratch) = &self.scratch else {
            return 0;
        };
        for attempt in 0..=ATTEMPTS {
            match self.try_spill_young(scratch, number, attempt == ATTEMPTS) {
                Ok(None) => {}
                Ok(Some(versions)) => {
                    self.spill_fails.store(false, Ordering::Relaxed);
                    self.count.spilled.add(versions);
                    return versions;
                }
                Err(e) => {
                    self.spill_failed(&e);
                    return 0;
                }
            }
        }
        0
    }

    fn try_spill_young(&self, scratch: &Scratch, number: u64, last: bool) -> Result<Option<u64>> {
        let mut paused = last.then(|| self.pause_walks());
        let mut bytes = Vec::new();
        let Some(copied) = self.young.copy(number, &mut bytes) else {
            return Ok(Some(0));
        };
        let place = scratch.write(&mut bytes)?;
        let extent = Extent::whole(place.clone(), &bytes);
        let versions = u64::from(extent.live);
        paused.get_or_insert_with(|| self.pause_walks());
        if !self.young.unchanged(number, &copied) {
            scratch.free(vec![place]);
            return Ok(None);
        }
        if versions > 0 {
            self.old.attach(number, extent, copied.ends);
        } else {
            scratch.free(vec![place]);
        }
        let left = u64::from(self.young.free(number));
        assert_eq!(left, versions, "versions of segment {number} in its extent");
        Ok(Some(versions))
    }

    /// Writes survivors out until the old generation is within its budget, and then, or to
    /// `compact`, a few extents that became sparse; how many versions were written.
    /// `retiring` is held.
    pub(crate) fn spill_old(&self, compact: bool) -> u64 {
        let (Some(scratch), budget) = (&self.scratch, self.old_budget_bytes()) else {
            return 0;
        };
        if self.old.bytes() as usize <= budget && !(compact && self.old.file_bytes() > 0) {
            return 0;
        }
        let least = LEAST_BYTES.min(budget / LEAST_SHARE);
        let pays = |c: &Candidate| {
            c.record_memory > least && c.record_memory > c.file_bytes / LEAST_OF_EXTENT
        };
        let (mut versions, mut sparse, mut failed) = (0, 0, false);
        for c in self.old.candidates() {
            // A little more than necessary, so that it is not necessary again at once.
            let enough = self.old.bytes() as usize <= budget / 8 * 7;
            let rewrite = c.sparse && sparse < SPARSE_ROUND;
            if !(rewrite || !enough && pays(&c)) {
                continue;
            }
            sparse += usize::from(rewrite);
            match self.spill_segment(scratch, c.number) {
                Ok(n) => {
                    self.spill_fails.store(false, Ordering::Relaxed);
                    versions += n;
                }
                Err(e) => {
                    self.spill_failed(&e);
                    failed = true;
                    break;
                }
            }
        }
        if !failed {
            self.unspilled
                .store(self.old.record_bytes(), Ordering::Relaxed);
        }
        self.count.spilled.add(versions);
        versions
    }

    fn spill_segment(&self, scratch: &Scratch, number: u64) -> Result<u64> {
        for attempt in 0..=ATTEMPTS {
            let mut paused = (attempt == ATTEMPTS).then(|| self.pause_walks());
            let Some(copied) = self.old.copy(number) else {
                return Ok(0);
            };
            let changes = copied.changes;
            let Some((extent, place)) = compact(scratch, copied)? else {
                return Ok(0);
            };
            let versions = u64::from(extent.live);
            paused.get_or_insert_with(|| self.pause_walks());
            if self.old.exchange(number, changes, extent) {
                return Ok(versions);
            }
            scratch.free(vec![place]);
        }
        Ok(0)
    }

    /// Gives the space of extents that nobody names any more back. `retiring` is held.
    pub(crate) fn free_given_back(&self) {
        let places = self.old.take_given_back();
        let (Some(scratch), false) = (&self.scratch, places.is_empty()) else {
            return;
        };
        // Who looked one of them up before it went is through with it now.
        drop(self.pause_walks());
        scratch.free(places);
    }

    fn spill_failed(&self, e: &Error) {
        self.count.spill_failures.inc();
        self.spill_fails.store(true, Ordering::Relaxed);
        *self.spill_error.lock() = Some(e.to_string());
    }

    /// What the last write to a scratch file that failed said, once.
    pub fn take_spill_error(&self) -> Option<String> {
        self.spill_error.lock().take()
    }

    /// Versions cannot be written out: there is nowhere to, or the last attempt failed.
    pub fn cannot_spill(&self) -> bool {
        self.scratch.is_none() || self.spill_fails.load(Ordering::Relaxed)
    }

    /// Memory of versions that will not become less by writing them out: if nothing can be
    /// written, all there is in memory; else what the last attempt left of the old generation, as
    /// too little of each segment to be worth it.
    pub fn stuck_bytes(&self) -> u64 {
        let old = self.old.record_bytes();
        match self.cannot_spill() {
            true => self.young_bytes() + old,
            false => old.min(self.unspilled.load(Ordering::Relaxed)),
        }
    }

    /// Removes the scratch files: nobody reads or adds versions any more.
    pub fn remove_scratch(&self) {
        let _alone = self.retiring.lock();
        if let Some(scratch) = &self.scratch {
            scratch.remove_all();
        }
    }
}

/// Writes what was copied, from memory and from its extent, to a new extent. `None`: it is
/// too much for one.
fn compact(scratch: &Scratch, copied: Copied) -> Result<Option<(Extent, Place)>> {
    let whole = copied.extent.as_ref().map(|e| e.place.whole());
    let whole = whole.transpose()?.unwrap_or_default();
    let mut records: Vec<(u16, &[u8])> = Vec::new();
    if let Some(extent) = &copied.extent {
        records = extent.records(&whole);
    }
    records.extend(copied.records.iter().map(|(unit, rec)| (*unit, &rec[..])));
    records.sort_unstable_by_key(|(unit, _)| *unit);
    let (mut bytes, mut units, mut at) = (Vec::new(), Vec::new(), Vec::new());
    debug_assert!(
        records.is_sorted_by(|(a, _), (b, _)| a < b),
        "a version is in memory and in the extent"
    );
    for (unit, rec) in records {
        debug_assert_eq!(room_of(rec), rec.len(), "unit {unit} is cut off");
        units.push(unit);
        at.push(bytes.len() as u32);
        bytes.extend_from_slice(rec);
    }
    if units.is_empty() || bytes.len() > EXTENT_BYTES {
        return Ok(None);
    }
    let place = scratch.write(&mut bytes)?;
    let extent = Extent::compact(place.clone(), (units, at));
    Ok(Some((extent, place)))
}
