//! Pages packed one after the other into one aligned buffer, to be written together.
//!
//! Invariants: each blob starts on a granule; the bytes between a blob and the next granule
//! are zero; `blobs` in order are exactly the buffer's first `used` bytes.

use ferrite_types::format::Codec;
use ferrite_types::{IndexId, Lsn, PageId, PAGE_BYTES};

use crate::blob::{self, PageHeader, MAX_BLOB_GRANULES};
use crate::deps::AlignedBuf;
use crate::image::{PageImage, BLOB_HEADER_BYTES};
use crate::pack::{granules_for, Packer};
use crate::word::{Location, GRANULE_BYTES};

/// Capacity of a batch.
pub const BATCH_BYTES: usize = 1 << 20;

// Into an empty batch every page fits, and its parts' lengths into their fields.
const _: () = assert!(MAX_BLOB_GRANULES * GRANULE_BYTES <= BATCH_BYTES);
const _: () = assert!(PAGE_BYTES <= u16::MAX as usize);

/// Where a page of a batch was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The page.
    pub page: PageId,
    /// Its new blob.
    pub location: Location,
}

/// One blob of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    pub(crate) page: PageId,
    pub(crate) granules: u32,
    pub(crate) codec: Codec,
    /// See [`blob::mark`].
    pub(crate) mark: u8,
}

/// A reusable buffer of pages to be written together ([`crate::Store::write_batch`]).
pub struct Batch {
    buf: AlignedBuf,
    used: usize,
    blobs: Vec<Packed>,
    packer: Packer,
    tag: u32,
}

impl Batch {
    pub(crate) fn new(tag: u32) -> Batch {
        Batch {
            buf: AlignedBuf::zeroed(BATCH_BYTES),
            used: 0,
            blobs: Vec::with_capacity(BATCH_BYTES / GRANULE_BYTES),
            packer: Packer::new(),
            tag,
        }
    }

    /// True when a page might not fit any more.
    pub fn is_full(&self) -> bool {
        self.used + MAX_BLOB_GRANULES * GRANULE_BYTES > BATCH_BYTES
    }

    /// Bytes in it: what will be written.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Pages in it.
    pub fn pages(&self) -> usize {
        self.blobs.len()
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty()
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.used = 0;
        self.blobs.clear();
    }

    /// Packs a page, with `codec` where that saves a granule and 20%. False (and nothing
    /// changed) when it does not fit any more; into an empty batch every page fits. The
    /// image's bytes are copied: the caller's latch may go when this returns.
    ///
    /// Panics when head and tail together are longer than a page.
    pub fn push(
        &mut self,
        page: PageId,
        index: IndexId,
        lsn: Lsn,
        image: PageImage<'_>,
        codec: Codec,
    ) -> bool {
        assert!(image.len() <= PAGE_BYTES, "image longer than a page");
        let packed = self.packer.pack(image, codec);
        let stored = packed.map_or(image.len(), <[u8]>::len);
        let granules = granules_for(stored);
        let bytes = granules * GRANULE_BYTES;
        assert!(granules <= MAX_BLOB_GRANULES, "{granules} for {page}");
        if self.used + bytes > BATCH_BYTES {
            assert!(!self.is_empty(), "{page} does not fit an empty batch");
            return false;
        }
        let blob = &mut self.buf[self.used..self.used + bytes];
        let body = &mut blob[BLOB_HEADER_BYTES..];
        let codec = match packed {
            Some(bytes) => {
                body[..stored].copy_from_slice(bytes);
                codec
            }
            None => {
                body[..image.head.len()].copy_from_slice(image.head);
                body[image.head.len()..stored].copy_from_slice(image.tail);
                Codec::None
            }
        };
        body[stored..].fill(0);
        let header = PageHeader {
            page,
            index,
            lsn,
            codec,
            head: image.head.len() as u16,
            tail: image.tail.len() as u16,
            stored: stored as u32,
        };
        assert!(
            header.granules() == granules,
            "{stored} bytes in {granules}"
        );
        blob::seal(blob, &header, self.tag);
        debug_assert!(blob::parse(blob, self.tag).is_ok_and(|(read, _)| read == header));
        self.used += bytes;
        self.blobs.push(Packed {
            page,
            granules: granules as u32,
            codec,
            mark: blob::mark(blob),
        });
        true
    }

    pub(crate) fn blobs(&self) -> &[Packed] {
        &self.blobs
    }

    /// The packed bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        debug_assert_eq!(
            self.blobs
                .iter()
                .map(|b| b.granules as usize)
                .sum::<usize>()
                * GRANULE_BYTES,
            self.used,
            "the blobs are not the buffer's content"
        );
        &self.buf[..self.used]
    }
}
