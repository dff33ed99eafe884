//! Page deltas: what has changed in a page since its blob was written, as a blob of its own.
//!
//! A page of which little has changed is not written again as a whole. Its *base*, the blob that it
//! has, stays where it is, and the changes since go into a delta blob beside it: the page operations
//! of the log, in order, from the base on. A page has one delta at most: the next one has the
//! changes of the one before, too, and takes its place. When the page is written as a whole, base
//! and delta are both replaced.
//!
//! Body of the blob, little-endian: 0 LSN of the base (u64), 8 checksum of the base (u32), 12 length
//! of the changes (u32), 16 the changes. The header's LSN is the page's with the changes. Not packed.
//!
//! # Invariants
//! 1. A delta names its base by LSN and checksum, and is applied to no other blob.
//! 2. The delta of a page in the directory belongs to the blob that the page's word, or its frame,
//!    names. It changes while the page is in memory only, by who writes pages (under the pool's map
//!    lock), so whoever has claimed a page to read it finds both as they belong together.
//! 3. What the operations mean is not known here: `Store::set_apply` says who does (`deltas`). Whoever reads
//!    a page through the store gets it with its delta.
//!
//! Locking: none.

use ferrite_types::{Lsn, PageId, Result};

use crate::blob::{self, PageHeader, StoredBlob};
use crate::image::BLOB_HEADER_BYTES;
use crate::wire::{get_u32, get_u64};
use crate::word::GRANULE_BYTES;

/// Bytes of a delta's body before the changes.
pub(crate) const DELTA_HEAD: usize = 16;
/// Granules of the longest delta.
pub const MAX_DELTA_GRANULES: usize = 4;
/// Bytes of changes that fit the longest delta.
pub const MAX_DELTA_BYTES: usize =
    MAX_DELTA_GRANULES * GRANULE_BYTES - BLOB_HEADER_BYTES - DELTA_HEAD;

/// Applies page operations to the page's bytes.
pub type ApplyChanges = fn(PageId, &[u8], &mut [u8]) -> Result<()>;

/// A page that was read.
#[derive(Debug)]
pub struct PageRead {
    /// What its blob says of it, with the LSN of its delta if it has one.
    pub header: PageHeader,
    /// The blob.
    pub base: StoredBlob,
    /// The changes since, which the page has by now. Empty without a delta.
    pub changes: Vec<u8>,
}

impl PageRead {
    /// The page of that blob, with the blob's header, and nothing else.
    pub(crate) fn whole(header: PageHeader, blob: &[u8]) -> PageRead {
        assert!(!header.is_delta, "{}: a delta is no page", header.page);
        let (lsn, crc) = (header.lsn, blob::stored_checksum(blob));
        PageRead {
            header,
            base: StoredBlob { lsn, crc },
            changes: Vec::new(),
        }
    }
}

/// Bytes of changes that fit a delta of so many granules.
pub fn changes_that_fit(granules: u32) -> usize {
    let granules = (granules as usize).min(MAX_DELTA_GRANULES);
    (granules * GRANULE_BYTES).saturating_sub(BLOB_HEADER_BYTES + DELTA_HEAD)
}

/// Granules of a delta with so many bytes of changes.
pub(crate) fn delta_granules(changes: usize) -> usize {
    (BLOB_HEADER_BYTES + DELTA_HEAD + changes).div_ceil(GRANULE_BYTES)
}

/// Writes the body of a delta to `out`, which is as long.
pub(crate) fn encode_body(base: StoredBlob, changes: &[u8], out: &mut [u8]) {
    assert!(!changes.is_empty(), "a delta without a change");
    assert!(out.len() == DELTA_HEAD + changes.len(), "{}", out.len());
    out[..8].copy_from_slice(&base.lsn.0.to_le_bytes());
    out[8..12].copy_from_slice(&base.crc.to_le_bytes());
    out[12..16].copy_from_slice(&(changes.len() as u32).to_le_bytes());
    out[16..].copy_from_slice(changes);
    debug_assert!(parse_body(out) == Some((base, changes)), "it reads back");
}

/// Base and changes of a delta's body.
pub(crate) fn parse_body(body: &[u8]) -> Option<(StoredBlob, &[u8])> {
    let base = StoredBlob {
        lsn: Lsn(get_u64(body, 0)?),
        crc: get_u32(body, 8)?,
    };
    let changes = body.get(DELTA_HEAD..)?;
    let sound = get_u32(body, 12)? as usize == changes.len() && !changes.is_empty();
    sound.then_some((base, changes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_reads_back_and_every_cut_is_noticed() {
        let base = StoredBlob {
            lsn: Lsn(1 << 40),
            crc: 0xfeed,
        };
        let mut body = vec![0; DELTA_HEAD + 5];
        encode_body(base, b"12345", &mut body);
        assert_eq!(parse_body(&body), Some((base, &b"12345"[..])));
        for cut in 0..body.len() {
            assert_eq!(parse_body(&body[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn the_longest_delta_fits_its_granules() {
        assert_eq!(delta_granules(1), 1);
        assert_eq!(delta_granules(MAX_DELTA_BYTES), MAX_DELTA_GRANULES);
        assert_eq!(delta_granules(MAX_DELTA_BYTES + 1), MAX_DELTA_GRANULES + 1);
        let fit = [0, 1, 4, 5].map(changes_that_fit);
        assert_eq!(fit, [0, 968, MAX_DELTA_BYTES, MAX_DELTA_BYTES]);
    }
}
