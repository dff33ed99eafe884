//! The map from the blobs themselves, for a lost map base and for checking tools.
//!
//! Every granule of every file is looked at for a blob's magic; of each page the valid blob
//! with the highest LSN not above the log's end counts, and of its deltas the newest. A delta that
//! is newer than that blob and belongs to another one is a claim: its base is lost. What the log says
//! after that LSN is not known here: pages that were freed come back, with the index they belonged to.
//!
//! What cannot be read, blocks or whole files, has no blob; it is told.
//!
//! Invariant: reads only.

use std::collections::BTreeMap;

use ferrite_types::{Error, Faults, IndexId, Lsn, PageId, Result};

use crate::blob::{self, PageHeader, StoredBlob, MAX_BLOB_GRANULES};
use crate::damaged;
use crate::deps::{AlignedBuf, Arc, Storage};
use crate::files::{Files, Geometry};
use crate::page_delta;
use crate::superblock::Superblock;
use crate::word::{Location, BLOCK_BYTES, BLOCK_GRANULES, GRANULE_BYTES};

/// Bytes read at once.
const WINDOW: usize = 1 << 20;

/// The newest blob of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundPage {
    /// Where it is.
    pub location: Location,
    /// What it is.
    pub base: StoredBlob,
    /// Its newest delta, if it has one.
    pub delta: Location,
    /// The index it belonged to when written.
    pub index: IndexId,
    /// Position of its newest change, with the delta.
    pub lsn: Lsn,
}

/// A delta that was found.
struct FoundDelta {
    base: StoredBlob,
    location: Location,
    lsn: Lsn,
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
    /// Files that are missing or too short, and blocks that could not be read.
    pub damage: Faults,
}

/// Rebuilds the map from the blobs in the files. Needs the superblock, no map and no
/// checkpoint.
///
/// # Errors
/// Those of the superblock and the directory. A damaged blob is no error (see [`ScanResult::broken`]), nor is what cannot
/// be read (see [`ScanResult::damage`]).
pub fn rebuild_by_scan(storage: &Arc<dyn Storage>, log_end: Lsn) -> Result<ScanResult> {
    let superblock = Superblock::read(&**storage)?;
    let geometry = superblock.geometry;
    let mut damage = Faults::default();
    let (files, _) = damaged::open(storage, geometry, &mut damage)?;
    let mut scan = Scan {
        result: ScanResult {
            damage,
            ..ScanResult::default()
        },
        told: 0,
        log_end,
        tag: superblock.tag(),
        marks: superblock.has_marks(),
        twins: BTreeMap::new(),
        deltas: BTreeMap::new(),
    };
    for n in 0..files.count() {
        scan.file(&files, &geometry, n)?;
    }
    scan.join_deltas();
    Ok(scan.result)
}

struct Scan {
    result: ScanResult,
    /// Of blocks before this granule it is told whether they can be read.
    told: u64,
    log_end: Lsn,
    tag: u32,
    marks: bool,
    /// Other blobs with the position of the page's newest one: a write that failed may have left one.
    twins: BTreeMap<PageId, Vec<FoundPage>>,
    /// Of each page, in any order.
    deltas: BTreeMap<PageId, Vec<FoundDelta>>,
}

impl Scan {
    /// Gives each page its newest delta.
    fn join_deltas(&mut self) {
        for (page, deltas) in std::mem::take(&mut self.deltas) {
            self.choose_twin(page, &deltas);
            let found = self.result.pages.get_mut(&page);
            let base = found.as_ref().map(|f| f.base);
            let own = deltas.iter().filter(|d| Some(d.base) == base);
            let newest = own.max_by_key(|d| d.lsn);
            let mut known = Lsn::ZERO;
            if let Some(found) = found {
                if let Some(delta) = newest {
                    assert!(
                        delta.lsn > found.base.lsn,
                        "{page}: a delta without a change"
                    );
                    (found.delta, found.lsn) = (delta.location, delta.lsn);
                }
                known = found.lsn;
            }
            if let Some(lost) = deltas.iter().map(|d| d.lsn).filter(|l| *l > known).max() {
                self.claim(page, lost);
            }
        }
    }

    /// Of blobs with the same position the one that the newest delta of any of them belongs to.
    fn choose_twin(&mut self, page: PageId, deltas: &[FoundDelta]) {
        let twins = self.twins.remove(&page).unwrap_or_default();
        let Some(found) = self.result.pages.get_mut(&page) else {
            return;
        };
        let newest = |blob: &FoundPage| {
            let own = deltas.iter().filter(|d| d.base == blob.base);
            own.map(|d| d.lsn).max()
        };
        for twin in twins {
            debug_assert!(twin.lsn == found.lsn, "{page}: {twin:?} beside {found:?}");
            if newest(&twin) > newest(found) {
                *found = twin;
            }
        }
    }

    /// There was such a state of the page.
    fn claim(&mut self, page: PageId, lsn: Lsn) {
        debug_assert!(page != PageId::NONE, "page 0 has no state");
        let claimed = self.result.claims.entry(page).or_insert(lsn);
        *claimed = lsn.max(*claimed);
    }

    fn delta(&mut self, header: &PageHeader, body: &[u8], location: Location) {
        debug_assert!(header.is_delta && location.is_delta(), "{location:?}");
        let parsed = page_delta::parse_body(body).filter(|(base, _)| base.lsn < header.lsn);
        let Some((base, _)) = parsed else {
            self.result.broken += 1;
            return;
        };
        self.deltas
            .entry(header.page)
            .or_default()
            .push(FoundDelta {
                base,
                location,
                lsn: header.lsn,
            });
    }

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
            if files.read(at, bytes).is_err() {
                self.read_blocks(files, at, bytes)?;
            }
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

    /// Reads block by block. One that cannot be read is zeros.
    fn read_blocks(&mut self, files: &Files, at: u64, bytes: &mut [u8]) -> Result<()> {
        let mut granule = at;
        assert!(bytes.len() % BLOCK_BYTES == 0, "{} bytes", bytes.len());
        for block in bytes.chunks_exact_mut(BLOCK_BYTES) {
            match files.read(granule, block) {
                Ok(()) => {}
                Err(e @ (Error::Io(_) | Error::Corrupt(_))) => {
                    block.fill(0);
                    // Windows overlap.
                    if granule >= self.told {
                        self.told = granule + u64::from(BLOCK_GRANULES);
                        self.result.damage.push(e.to_string());
                    }
                }
                Err(e) => return Err(e),
            }
            granule += u64::from(BLOCK_GRANULES);
        }
        debug_assert!(
            granule * GRANULE_BYTES as u64 == at * GRANULE_BYTES as u64 + bytes.len() as u64
        );
        Ok(())
    }

    /// Looks at one granule; how many to go on.
    fn granule(&mut self, granule: u64, bytes: &[u8]) -> u64 {
        if !blob::has_magic(bytes) {
            return 1;
        }
        let bytes = &bytes[..bytes.len().min(MAX_BLOB_GRANULES * GRANULE_BYTES)];
        // Padding up to the end of a block is not the blob's here: nothing is written.
        let Ok((header, body)) = blob::parse(bytes, self.tag) else {
            self.result.broken += 1;
            if let Some((page, lsn)) = blob::claim(bytes, self.tag) {
                self.claim(page, lsn);
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
        let mark = if self.marks { blob::mark(bytes) } else { 0 };
        if header.is_delta {
            let at = Location::of_delta(granule, granules as u32).with_mark(mark);
            self.delta(&header, body, at);
            return granules;
        }
        let found = FoundPage {
            location: Location::new(granule, granules as u32, header.codec).with_mark(mark),
            base: StoredBlob {
                lsn: header.lsn,
                crc: blob::stored_checksum(bytes),
            },
            delta: Location::NONE,
            index: header.index,
            lsn: header.lsn,
        };
        self.page(header.page, found);
        granules
    }

    fn page(&mut self, page: PageId, found: FoundPage) {
        let newest = self.result.pages.entry(page).or_insert(found);
        if newest.lsn < found.lsn {
            *newest = found;
            self.twins.remove(&page);
        } else if newest.lsn == found.lsn && newest.base != found.base {
            self.twins.entry(page).or_default().push(found);
        }
    }
}
