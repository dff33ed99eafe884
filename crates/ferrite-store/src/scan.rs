//! The map from the blobs themselves, for a lost map base and for checking tools.
//!
//! Every granule of every file is looked at for a blob's magic; of each page the valid blob
//! with the highest LSN not above the log's end counts. What the log says after that LSN is
//! not known here: pages that were freed come back, with the index they belonged to.
//!
//! Invariant: reads only.

use std::collections::BTreeMap;

use ferrite_types::{IndexId, Lsn, PageId, Result};

use crate::blob::{self, MAX_BLOB_GRANULES};
use crate::deps::{AlignedBuf, Arc, OpenMode, Storage};
use crate::files::{Files, Geometry};
use crate::superblock::Superblock;
use crate::word::{Location, BLOCK_GRANULES, GRANULE_BYTES};

/// Bytes read at once.
const WINDOW: usize = 1 << 20;

/// The newest blob of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundPage {
    /// Where it is.
    pub location: Location,
    /// The index it belonged to when written.
    pub index: IndexId,
    /// Position of its newest change.
    pub lsn: Lsn,
}

/// What a scan found.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct ScanResult {
    /// The newest valid blob of each page.
    pub pages: BTreeMap<PageId, FoundPage>,
    /// Broken blobs that say they are a page of this database: the highest LSN each page
    /// claims. Not believed; an older copy of such a page is under suspicion.
    pub claims: BTreeMap<PageId, Lsn>,
    /// Valid blobs, older ones included.
    pub blobs: u64,
    /// Granules that open like a blob and are none (remains of overwritten ones, or damage).
    pub broken: u64,
    /// Valid blobs with an LSN above the log's end.
    pub beyond_log: u64,
    /// Granules looked at.
    pub granules: u64,
}

/// Rebuilds the map from the blobs in the files. Needs the superblock, no map and no
/// checkpoint.
///
/// # Errors
/// Those of reading; a damaged blob is no error (see [`ScanResult::broken`]).
pub fn rebuild_by_scan(storage: &Arc<dyn Storage>, log_end: Lsn) -> Result<ScanResult> {
    let superblock = Superblock::read(&**storage)?;
    let geometry = superblock.geometry;
    let (files, _) = Files::open(storage, geometry, false, OpenMode::ReadOnly)?;
    let mut scan = Scan {
        result: ScanResult::default(),
        log_end,
        tag: superblock.tag(),
        marks: superblock.has_marks(),
    };
    for n in 0..files.count() {
        scan.file(&files, &geometry, n)?;
    }
    Ok(scan.result)
}

struct Scan {
    result: ScanResult,
    log_end: Lsn,
    tag: u32,
    marks: bool,
}

impl Scan {
    fn file(&mut self, files: &Files, geometry: &Geometry, n: usize) -> Result<()> {
        let first = n as u64 * (geometry.file_bytes / GRANULE_BYTES as u64);
        let end = first + files.len(n)?.min(geometry.file_bytes) / GRANULE_BYTES as u64;
        let end = end - end % u64::from(BLOCK_GRANULES);
        let mut buf = AlignedBuf::zeroed(WINDOW + MAX_BLOB_GRANULES * GRANULE_BYTES);
        let window = (WINDOW / GRANULE_BYTES) as u64;
        let (mut at, mut next) = (first, first);
        while at < end {
            // A window, and what a blob that begins in it may take beyond.
            let granules = (end - at).min(window + MAX_BLOB_GRANULES as u64) as usize;
            let bytes = &mut buf[..granules * GRANULE_BYTES];
            files.read(at, bytes)?;
            let stop = end.min(at + window);
            next = next.max(at);
            while next < stop {
                let here = &bytes[(next - at) as usize * GRANULE_BYTES..];
                next += self.granule(next, here);
            }
            at = stop;
        }
        self.result.granules += end - first;
        Ok(())
    }

    /// Looks at one granule; how many to go on.
    fn granule(&mut self, granule: u64, bytes: &[u8]) -> u64 {
        if !blob::has_magic(bytes) {
            return 1;
        }
        let bytes = &bytes[..bytes.len().min(MAX_BLOB_GRANULES * GRANULE_BYTES)];
        // Padding up to the end of a block is not the blob's here: nothing is written.
        let Ok((header, _)) = blob::parse(bytes, self.tag) else {
            self.result.broken += 1;
            if let Some((page, lsn)) = blob::claim(bytes, self.tag) {
                let claimed = self.result.claims.entry(page).or_insert(lsn);
                *claimed = lsn.max(*claimed);
            }
            return 1;
        };
        self.result.blobs += 1;
        let granules = header.granules() as u64;
        debug_assert!(
            granules as usize * GRANULE_BYTES <= bytes.len().next_multiple_of(GRANULE_BYTES)
        );
        if header.lsn > self.log_end {
            self.result.beyond_log += 1;
            return granules;
        }
        let found = FoundPage {
            location: Location::new(granule, granules as u32, header.codec)
                .with_mark(if self.marks { blob::mark(bytes) } else { 0 }),
            index: header.index,
            lsn: header.lsn,
        };
        let newest = self.result.pages.entry(header.page).or_insert(found);
        if newest.lsn < found.lsn {
            *newest = found;
        }
        granules
    }
}
