//! Scrubbing: free space is overwritten with zeroes, so that what was deleted is not left in the
//! files.
//!
//! What is stale (free, and never overwritten since) is known from `runs.rs`. A round takes some
//! of it, as if for blobs, overwrites it, syncs, and gives it back as free. While scrubbing is on
//! every blob is padded to the end of its block ([`Store::keep_blocks_apart`]), or what is left of
//! an old blob beside a live one could not be overwritten before that moves. So a run that is in
//! use, or retired and not yet free, is never touched, and one that is being scrubbed is never
//! handed out. After a start nothing is known of free space: it is read first, and what is
//! zeroes already is left alone. So is what was given back to the file system, where a write
//! would take space again.
//!
//! What is on disk if we die: more or fewer zeroes in space that nobody's map names. The next
//! start looks through all free space again.
//!
//! Locking: growth lock > space lock, as in `space.rs`: a writer that finds no room waits for the
//! round to end before it adds a segment. Rounds are therefore short.

use ferrite_types::Result;

use std::ops::Range;

use crate::deps::{kill_point, AlignedBuf, Ordering};
use crate::runs::StaleRun;
use crate::store::{Store, LOADING};
use crate::word::{BLOCK_GRANULES, GRANULE_BYTES};

/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes a round takes at most.
pub(crate) const ROUND_BYTES: usize = 8 << 20;

impl Store {
    /// Whether blobs to come share no block with another: what is freed can then be overwritten at
    /// once. It takes space.
    pub fn keep_blocks_apart(&self, on: bool) {
        self.blocks_apart.store(on, Ordering::SeqCst);
    }

    /// See [`Store::keep_blocks_apart`].
    pub fn keeps_blocks_apart(&self) -> bool {
        self.blocks_apart.load(Ordering::SeqCst)
    }

    /// Overwrites some of the free space that may still hold what was deleted, and makes that
    /// durable. The bytes looked at; 0 when nothing is stale.
    ///
    /// # Errors
    /// `Io`: what was taken is free again and still stale.
    pub fn scrub_round(&self) -> Result<u64> {
        if self.phase.load(Ordering::Acquire) == LOADING {
            return Ok(0);
        }
        self.scrub_retired_too_early();
        let _growth = self.growth.lock();
        let found = {
            let mut from = self.scrub_from.lock();
            let most = (ROUND_BYTES / GRANULE_BYTES) as u32;
            self.runs.lock().take_stale(most, &mut from)
        };
        if found.is_empty() {
            return Ok(0);
        }
        let mut blank = Vec::new();
        let result = self.overwrite(&found, &mut blank);
        let mut runs = self.runs.lock();
        let mut looked = 0;
        for run in &found {
            looked += u64::from(run.granules) * GRANULE_BYTES as u64;
            match result {
                Ok(()) => runs.give_zeroed(run.granule, run.granules),
                Err(_) => runs.give(run.granule, run.granules),
            }
            // Holes where nothing was written are holes still.
            for (granule, n) in &run.holes {
                let end = granule + u64::from(*n);
                for piece in &blank {
                    let (from, to) = (piece.start.max(*granule), piece.end.min(end));
                    if from < to {
                        runs.note_hole(from, (to - from) as u32);
                    }
                }
            }
        }
        assert!(looked <= ROUND_BYTES as u64, "{looked} bytes in a round");
        result.map(|()| looked)
    }

    /// `blank`: granules that were zeroes, to which nothing was written.
    fn overwrite(&self, found: &[StaleRun], blank: &mut Vec<Range<u64>>) -> Result<()> {
        let zeroes = AlignedBuf::zeroed(WRITE_BYTES);
        let mut there = AlignedBuf::zeroed(WRITE_BYTES);
        let mut touched: Vec<usize> = Vec::new();
        for run in found {
            let mut at = run.granule;
            let end = run.granule + u64::from(run.granules);
            while at < end {
                let n = ((end - at) as usize).min(WRITE_BYTES / GRANULE_BYTES);
                let bytes = n * GRANULE_BYTES;
                let is_blank = run.doubtful && {
                    self.files.read(at, &mut there[..bytes])?;
                    there[..bytes] == zeroes[..bytes]
                };
                if is_blank {
                    blank.push(at..at + n as u64);
                } else {
                    let file = self.files.write(at, &zeroes[..bytes])?;
                    self.counters.bytes_scrubbed.add(bytes as u64);
                    if !touched.contains(&file) {
                        touched.push(file);
                    }
                }
                at += n as u64;
            }
        }
        kill_point!("store.scrub_before_sync");
        for file in touched {
            self.files.sync(file)?;
        }
        kill_point!("store.scrubbed");
        Ok(())
    }

    /// The deliberate fault `scrub.too_early`: what is retired goes before it is free.
    fn scrub_retired_too_early(&self) {
        if !ferrite_sync::mutant!("scrub.too_early") {
            return;
        }
        for (granule, n) in self.retired.all() {
            // The whole blocks in it.
            let blocks = u64::from(BLOCK_GRANULES);
            let start = granule.next_multiple_of(blocks);
            let end = granule + u64::from(n);
            let bytes = (end - end % blocks).saturating_sub(start) as usize * GRANULE_BYTES;
            if bytes > 0 {
                let _ = self.files.write(start, &AlignedBuf::zeroed(bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageImage, StoreConfig};
    use ferrite_io::sim::SimStorage;
    use ferrite_sync::Arc;
    use ferrite_types::format::Packing;
    use ferrite_types::{IndexId, Lsn, PageId};

    /// Free space that was given back to the file system reads as zeroes: it is looked at, and is a hole as before.
    #[test]
    fn holes_stay_holes() {
        let cfg = StoreConfig {
            direct: true,
            file_bytes: 1 << 30,
            segment_bytes: 16 << 20,
        };
        let store = Store::create(Arc::new(SimStorage::new(1)), cfg).unwrap();
        let mut placed = Vec::new();
        for _ in 0..8 {
            let mut batch = store.new_batch();
            for n in 1..60 {
                let page = [1; 15 << 10];
                let image = PageImage::whole(&page);
                let _ = batch.push(PageId(n), IndexId(3), Lsn(4), image, Packing::NONE);
            }
            store.write_batch(&mut batch, &mut placed).unwrap();
        }
        // What is free amid the files becomes a hole, but for a little.
        let last = placed.len() - 1;
        placed[..last]
            .iter()
            .for_each(|p| store.free_now(p.location));
        assert!(store.shrink().unwrap() > 4 << 20);
        store.free_now(placed[last].location);
        let allocated = store.runs.lock().allocated();
        let holes = store.runs.lock().free() - allocated;
        let piece = (WRITE_BYTES / GRANULE_BYTES) as u64;
        assert!(holes > 2 * piece, "{holes} granules of holes");
        while store.scrub_round().unwrap() > 0 {}
        // What is beside the last page is written with it.
        assert!(store.runs.lock().allocated() < allocated + piece);
        assert!(store.stats().bytes_scrubbed > 0, "the last page was there");
    }
}
