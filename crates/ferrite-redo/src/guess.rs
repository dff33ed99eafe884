//! A guess where the log ends, by a few reads: for whoever wants to say how much there is to do.
//!
//! Nothing is decided by it: what an earlier life has left behind the end may be taken for more of
//! the log. Locking: none of its own.

use crate::format::{check, sector_of, sector_start, BLOCK, BLOCK_SECTORS, SECTOR};
use crate::segments::Segments;
use crate::Log;
use ferrite_io::{AlignedBuf, Storage};
use ferrite_sync::Arc;
use ferrite_types::Lsn;

impl Log {
    /// About where the log ends that can be read from `from` on. None: nobody can tell.
    pub fn guess_end(storage: Arc<dyn Storage>, from: Lsn) -> Option<Lsn> {
        let (segs, _) = Segments::find(storage, false, from.0).ok()?;
        let geometry = segs.geometry();
        let mut segment = geometry.segment_of(from.0);
        while segment + 1 < segs.ready() && is_written(&segs, geometry.first_sector(segment + 1)) {
            segment += 1;
        }
        let first = geometry.first_sector(segment);
        let blocks = (geometry.first_sector(segment + 1) - first) / BLOCK_SECTORS as u64;
        let (mut written, mut not) = (0, blocks);
        while not - written > 1 {
            let middle = written + (not - written) / 2;
            match is_written(&segs, first + middle * BLOCK_SECTORS as u64) {
                true => written = middle,
                false => not = middle,
            }
        }
        let end = sector_start(first + not * BLOCK_SECTORS as u64).max(from.0);
        assert!(sector_of(end) >= sector_of(from.0), "{end} before {from:?}");
        Some(Lsn(end))
    }
}

/// Is there a sector of this log, the first of its block?
fn is_written(segs: &Segments, sector: u64) -> bool {
    debug_assert!(sector % BLOCK_SECTORS as u64 == 0, "sector {sector}");
    let (segment, offset) = segs.geometry().place(sector);
    let mut block = AlignedBuf::zeroed(BLOCK);
    let read = segs
        .get(segment)
        .is_some_and(|file| file.read_at(&mut block, offset).is_ok());
    read && check(&block[..SECTOR], sector).is_some()
}
