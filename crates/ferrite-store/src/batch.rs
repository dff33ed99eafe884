//! Pages packed one after the other into one aligned buffer, to be written together.
//!
//! Invariants: each blob starts on a granule; the bytes between a blob and the next granule
//! are zero; `blobs` in order are exactly the buffer's first `used` bytes.

use ferrite_types::format::{Codec, Packing};
use ferrite_types::{IndexId, Lsn, PageId, PAGE_BYTES};

use crate::blob::{self, PageHeader, StoredBlob, MAX_BLOB_GRANULES};
use crate::deps::{AlignedBuf, Arc, AtomicBool, Ordering};
use crate::image::{PageImage, BLOB_HEADER_BYTES};
use crate::pack::{granules_for, Packer};
use crate::page_delta::{self, delta_granules, DELTA_HEAD, MAX_DELTA_BYTES};
use crate::word::{Location, BLOCK_BYTES, BLOCK_GRANULES, GRANULE_BYTES};

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
    /// The checksum of that.
    pub crc: u32,
}

/// One blob of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Packed {
    pub(crate) page: PageId,
    pub(crate) granules: u32,
    pub(crate) codec: Codec,
    /// See [`blob::mark`].
    pub(crate) mark: u8,
    pub(crate) crc: u32,
    pub(crate) is_delta: bool,
}

/// A page whose bytes are staged.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Staged {
    head: u16,
    tail: u16,
}

/// What became of a page that was pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pushed {
    /// It takes less space than its bytes would.
    pub packed: bool,
}

/// Granules of a blob that needs so many.
fn padded(blocks_apart: &AtomicBool, granules: usize) -> usize {
    match blocks_apart.load(Ordering::Relaxed) {
        true => granules.next_multiple_of(BLOCK_GRANULES as usize),
        false => granules,
    }
}

/// A reusable buffer of pages to be written together ([`crate::Store::write_batch`]).
pub struct Batch {
    buf: AlignedBuf,
    used: usize,
    blobs: Vec<Packed>,
    /// Deltas, which go behind the pages ([`Batch::join_deltas`]).
    deltas: Vec<u8>,
    of_deltas: Vec<Packed>,
    packer: Packer,
    tag: u32,
    /// Blobs are padded to the end of their block.
    blocks_apart: Arc<AtomicBool>,
}

impl Batch {
    pub(crate) fn new(tag: u32, blocks_apart: Arc<AtomicBool>) -> Batch {
        Batch {
            blocks_apart,
            buf: AlignedBuf::zeroed(BATCH_BYTES),
            used: 0,
            blobs: Vec::with_capacity(BATCH_BYTES / BLOCK_BYTES),
            deltas: Vec::new(),
            of_deltas: Vec::new(),
            packer: Packer::new(),
            tag,
        }
    }

    /// True when a page might not fit any more.
    pub fn is_full(&self) -> bool {
        self.len() + MAX_BLOB_GRANULES * GRANULE_BYTES > BATCH_BYTES
    }

    /// Bytes in it: what will be written.
    pub fn len(&self) -> usize {
        self.used + self.deltas.len()
    }

    /// Pages in it.
    pub fn pages(&self) -> usize {
        self.blobs.len() + self.of_deltas.len()
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.pages() == 0
    }

    /// Empties it.
    pub fn clear(&mut self) {
        self.used = 0;
        self.blobs.clear();
        self.deltas.clear();
        self.of_deltas.clear();
    }

    /// Puts the deltas behind the pages: it is written now.
    pub(crate) fn join_deltas(&mut self) {
        let end = self.len();
        assert!(end <= BATCH_BYTES, "{end} bytes in a batch");
        self.buf[self.used..end].copy_from_slice(&self.deltas);
        self.used = end;
        self.blobs.append(&mut self.of_deltas);
        self.deltas.clear();
        debug_assert!(self.blobs.is_sorted_by_key(|b| b.is_delta), "pages first");
    }

    /// Copies the page's bytes, for [`Batch::push_staged`] to pack: the caller's latch on the page
    /// may go in between.
    ///
    /// Panics when head and tail together are longer than a page.
    pub fn stage(&mut self, image: PageImage<'_>) -> Staged {
        assert!(image.len() <= PAGE_BYTES, "image longer than a page");
        self.packer.stage(image);
        Staged {
            head: image.head.len() as u16,
            tail: image.tail.len() as u16,
        }
    }

    /// Stages and packs a page: see [`Batch::push_staged`].
    pub fn push(
        &mut self,
        page: PageId,
        index: IndexId,
        lsn: Lsn,
        image: PageImage<'_>,
        packing: Packing,
    ) -> Option<Pushed> {
        let staged = self.stage(image);
        self.push_staged(page, index, lsn, staged, packing)
    }

    /// Packs the page staged last, as `packing` says where that saves a granule and an eighth.
    /// None (and nothing changed) when it does not fit any more; into an empty batch every page
    /// fits.
    pub fn push_staged(
        &mut self,
        page: PageId,
        index: IndexId,
        lsn: Lsn,
        staged: Staged,
        packing: Packing,
    ) -> Option<Pushed> {
        let raw = staged.head as usize + staged.tail as usize;
        let (codec, body_bytes) = self.packer.pack(packing);
        let stored = body_bytes.len();
        assert!(
            codec != Codec::None || stored == raw,
            "{stored} of {raw} bytes"
        );
        let granules = padded(&self.blocks_apart, granules_for(stored));
        let bytes = granules * GRANULE_BYTES;
        assert!(granules <= MAX_BLOB_GRANULES, "{granules} for {page}");
        if self.used + self.deltas.len() + bytes > BATCH_BYTES {
            assert!(!self.is_empty(), "{page} does not fit an empty batch");
            return None;
        }
        let blob = &mut self.buf[self.used..self.used + bytes];
        let body = &mut blob[BLOB_HEADER_BYTES..];
        body[..stored].copy_from_slice(body_bytes);
        body[stored..].fill(0);
        let header = PageHeader {
            page,
            index,
            lsn,
            codec,
            head: staged.head,
            tail: staged.tail,
            stored: stored as u32,
            is_delta: false,
        };
        assert!(
            Location::new(0, granules as u32, codec).fits(header.granules()),
            "{stored} bytes in {granules}"
        );
        blob::seal(blob, &header, self.tag);
        debug_assert!(blob::parse(blob, self.tag).is_ok_and(|(read, _)| read == header));
        self.used += bytes;
        self.blobs.push(Packed {
            page,
            granules: granules as u32,
            codec: match ferrite_sync::mutant!("store.codec_as_wished") {
                true => packing.codec,
                false => codec,
            },
            mark: blob::mark(blob),
            crc: blob::stored_checksum(blob),
            is_delta: false,
        });
        Some(Pushed {
            packed: codec != Codec::None,
        })
    }

    /// Adds a delta: what has changed in the page since `base` was written. False (and nothing
    /// changed) when it does not fit any more.
    pub fn push_delta(
        &mut self,
        (page, index): (PageId, IndexId),
        lsn: Lsn,
        base: StoredBlob,
        changes: &[u8],
    ) -> bool {
        assert!(changes.len() <= MAX_DELTA_BYTES, "{page}: too long a delta");
        assert!(base.lsn < lsn, "{page}: nothing has changed since {lsn}");
        let granules = padded(&self.blocks_apart, delta_granules(changes.len()));
        let bytes = granules * GRANULE_BYTES;
        if self.len() + bytes > BATCH_BYTES {
            return false;
        }
        let begin = self.deltas.len();
        self.deltas.resize(begin + bytes, 0);
        let blob = &mut self.deltas[begin..];
        let stored = DELTA_HEAD + changes.len();
        let (body, rest) = blob[BLOB_HEADER_BYTES..].split_at_mut(stored);
        page_delta::encode_body(base, changes, body);
        rest.fill(0);
        let header = PageHeader {
            page,
            index,
            lsn,
            codec: Codec::None,
            head: 0,
            tail: 0,
            stored: stored as u32,
            is_delta: true,
        };
        blob::seal(blob, &header, self.tag);
        debug_assert!(blob::parse(blob, self.tag).is_ok_and(|(read, _)| read == header));
        self.of_deltas.push(Packed {
            page,
            granules: granules as u32,
            codec: Codec::None,
            mark: blob::mark(blob),
            crc: blob::stored_checksum(blob),
            is_delta: true,
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

    /// The bytes from `at` on for `blobs` of `granules` together, up to the end of a block, from
    /// where they can be written: in place where they begin there, else copied into `aside`.
    pub(crate) fn run_bytes<'a>(
        &'a self,
        at: usize,
        granules: u32,
        aside: &'a mut AlignedBuf,
    ) -> &'a [u8] {
        let bytes = granules as usize * GRANULE_BYTES;
        let written = bytes.next_multiple_of(BLOCK_BYTES);
        assert!(at + bytes <= self.used && bytes > 0, "{bytes} at {at}");
        if at % BLOCK_BYTES == 0 && written == bytes {
            return &self.buf[at..at + bytes];
        }
        aside[..bytes].copy_from_slice(&self.buf[at..at + bytes]);
        aside[bytes..written].fill(0);
        &aside[..written]
    }
}
