//! One page on disk: a header that says what it is, then the page's used bytes.
//!
//! Layout, little-endian: 0 magic, 4 version (u8), 5 codec (u8), 6 flags (u16; 1: a delta, see
//! `page_delta`),
//! 8 page id, 12 index id, 16 page LSN (u64), 24 head length (u16), 26 tail length (u16),
//! 28 stored length, 32 database tag, 36 CRC32C of bytes 0..36 and the body; 40 body, padded
//! with zeros to a granule.
//!
//! Invariant: nothing past the header is looked at before the checksum was right.

use ferrite_types::format::{Codec, BLOB_IS_DELTA, BLOB_MAGIC};
use ferrite_types::{IndexId, Lsn, PageId, PAGE_BYTES};

use crate::image::BLOB_HEADER_BYTES;
use crate::pack::Unpacker;
use crate::wire::{get_u16, get_u32, get_u64};
use crate::word::{Location, BLOCK_GRANULES, GRANULE_BYTES};

/// Version of the layout above.
const BLOB_VERSION: u8 = 1;
const CRC_AT: usize = 36;
const CRC_END: usize = 40;
const _: () = assert!(CRC_END == BLOB_HEADER_BYTES && BLOB_HEADER_BYTES < GRANULE_BYTES);

/// Granules of the largest blob, padded to the end of a block.
pub(crate) const MAX_BLOB_GRANULES: usize = (BLOB_HEADER_BYTES + PAGE_BYTES)
    .div_ceil(GRANULE_BYTES)
    .next_multiple_of(BLOCK_GRANULES as usize);

/// What a blob says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageHeader {
    /// The page.
    pub page: PageId,
    /// The index it belonged to when written.
    pub index: IndexId,
    /// Position of the newest change in it.
    pub lsn: Lsn,
    /// How the body is packed.
    pub codec: Codec,
    /// Bytes of the page's opening.
    pub head: u16,
    /// Bytes of the page's end.
    pub tail: u16,
    /// Bytes of the body on disk.
    pub stored: u32,
    /// The body changes the page of another blob.
    pub is_delta: bool,
}

/// What identifies a page's image on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoredBlob {
    /// The page's position.
    pub lsn: Lsn,
    /// The blob's checksum.
    pub crc: u32,
}

impl PageHeader {
    /// Granules the blob takes.
    pub(crate) fn granules(&self) -> usize {
        (BLOB_HEADER_BYTES + self.stored as usize).div_ceil(GRANULE_BYTES)
    }
}

/// Writes the header in front of a body that is in place already.
pub(crate) fn seal(blob: &mut [u8], h: &PageHeader, tag: u32) {
    assert!(h.page.0 != 0, "page 0 is no page");
    blob[0..4].copy_from_slice(&BLOB_MAGIC.to_le_bytes());
    blob[4] = BLOB_VERSION;
    blob[5] = h.codec as u8;
    let flags = if h.is_delta { BLOB_IS_DELTA } else { 0 };
    blob[6..8].copy_from_slice(&flags.to_le_bytes());
    blob[8..12].copy_from_slice(&h.page.0.to_le_bytes());
    blob[12..16].copy_from_slice(&h.index.0.to_le_bytes());
    blob[16..24].copy_from_slice(&h.lsn.0.to_le_bytes());
    blob[24..26].copy_from_slice(&h.head.to_le_bytes());
    blob[26..28].copy_from_slice(&h.tail.to_le_bytes());
    blob[28..32].copy_from_slice(&h.stored.to_le_bytes());
    blob[32..36].copy_from_slice(&tag.to_le_bytes());
    let crc = checksum(blob, h.stored as usize);
    blob[CRC_AT..CRC_END].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(blob: &[u8], stored: usize) -> u32 {
    let crc = crc32c::crc32c(&blob[..CRC_AT]);
    crc32c::crc32c_append(crc, &blob[BLOB_HEADER_BYTES..BLOB_HEADER_BYTES + stored])
}

/// What a location tells of a blob's checksum; never 0.
pub(crate) fn mark(blob: &[u8]) -> u8 {
    debug_assert!(blob.len() >= BLOB_HEADER_BYTES, "{} bytes", blob.len());
    (get_u32(blob, CRC_AT).unwrap_or(0) % 255 + 1) as u8
}

/// True when the bytes open like a blob. Cheap; says nothing more.
pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    get_u32(bytes, 0) == Some(BLOB_MAGIC)
}

/// The checksum that a blob bears.
pub(crate) fn stored_checksum(blob: &[u8]) -> u32 {
    get_u32(blob, CRC_AT).unwrap_or(0)
}

/// As [`parse`], for the blob that the directory says is that page's.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn parse_at(
    bytes: &[u8],
    tag: u32,
    page: PageId,
    at: Location,
) -> Result<(PageHeader, &[u8]), &'static str> {
    let (header, body) = parse(bytes, tag)?;
    if header.page != page {
        return Err("blob of another page");
    }
    if !at.fits(header.granules()) || Some(header.codec) != at.codec() {
        return Err("blob and directory disagree on length or codec");
    }
    if at.is_delta() != header.is_delta {
        return Err("a delta in place of a page, or a page in place of a delta");
    }
    if at.mark() != 0 && at.mark() != mark(bytes) {
        return Err("an older state of the page: a later write never came, or the read is stale");
    }
    Ok((header, body))
}

/// Checks the blob that `bytes` open with and takes it apart.
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn parse(bytes: &[u8], tag: u32) -> Result<(PageHeader, &[u8]), &'static str> {
    if bytes.len() < BLOB_HEADER_BYTES {
        return Err("shorter than a blob header");
    }
    if !has_magic(bytes) {
        return Err("no blob magic");
    }
    let field = |at| get_u32(bytes, at).unwrap_or(0);
    let stored = field(28);
    let Some(body) = bytes[BLOB_HEADER_BYTES..].get(..stored as usize) else {
        return Err("stored length beyond the blob");
    };
    if checksum(bytes, stored as usize) != field(CRC_AT) {
        return Err("checksum differs");
    }
    let flags = get_u16(bytes, 6).unwrap_or(u16::MAX);
    if bytes[4] != BLOB_VERSION || flags & !BLOB_IS_DELTA != 0 {
        return Err("blob of a later format");
    }
    if field(32) != tag {
        return Err("blob of another database");
    }
    let header = PageHeader {
        page: PageId(field(8)),
        index: IndexId(field(12)),
        lsn: Lsn(get_u64(bytes, 16).unwrap_or(0)),
        codec: Codec::from_u8(bytes[5]).ok_or("unknown codec")?,
        head: get_u16(bytes, 24).unwrap_or(0),
        tail: get_u16(bytes, 26).unwrap_or(0),
        stored,
        is_delta: flags & BLOB_IS_DELTA != 0,
    };
    Ok((header, body))
}

/// Page and LSN that a blob whose checksum is wrong claims, if it bears this database's tag.
pub(crate) fn claim(bytes: &[u8], tag: u32) -> Option<(PageId, Lsn)> {
    let same = has_magic(bytes) && get_u32(bytes, 32)? == tag;
    let page = get_u32(bytes, 8).filter(|&p| same && p != 0)?;
    Some((PageId(page), Lsn(get_u64(bytes, 16)?)))
}

/// Restores the page from a parsed blob: head, zeros, tail.
pub(crate) fn restore(
    h: &PageHeader,
    body: &[u8],
    out: &mut [u8],
    unpacker: &mut Unpacker,
) -> Result<(), &'static str> {
    let (head, tail) = (h.head as usize, h.tail as usize);
    if h.is_delta {
        return Err("a delta is no page");
    }
    if head + tail > out.len() {
        return Err("page longer than a page");
    }
    let raw = unpacker.unpack(h.codec, body, head + tail)?;
    assert!(raw.len() == head + tail, "{} unpacked", raw.len());
    let tail_at = out.len() - tail;
    out[..head].copy_from_slice(&raw[..head]);
    out[head..tail_at].fill(0);
    out[tail_at..].copy_from_slice(&raw[head..]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;

    const TAG: u32 = 99;

    fn sealed(h: &PageHeader, body: &[u8]) -> Vec<u8> {
        let mut b = vec![0; BLOB_HEADER_BYTES];
        b.extend_from_slice(body);
        seal(&mut b, h, TAG);
        b
    }

    fn header(codec: Codec, head: u16, tail: u16, stored: usize) -> PageHeader {
        PageHeader {
            page: PageId(7),
            index: IndexId(2),
            lsn: Lsn(1 << 50),
            codec,
            head,
            tail,
            stored: stored as u32,
            is_delta: false,
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let h = header(Codec::None, 20, 10, 30);
        let good = sealed(&h, &[0x5a; 30]);
        let (parsed, body) = parse(&good, TAG).unwrap();
        assert_eq!((parsed, body), (h, &[0x5a; 30][..]));
        assert_eq!(parse(&good, TAG + 1), Err("blob of another database"));
        for i in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[i / 8] ^= 1 << (i % 8);
            assert!(parse(&bad, TAG).is_err(), "bit {i}");
        }
        for cut in 0..good.len() {
            assert!(parse(&good[..cut], TAG).is_err());
        }
    }

    /// Checksums can be right and the contents wrong all the same (a bug of the writer, or
    /// malice): an error, never a panic, never bytes outside of the page.
    #[test]
    fn sealed_nonsense_is_an_error() {
        let mut rng = Rng::new(8);
        let mut unpacker = Unpacker::new();
        let mut out = vec![0; PAGE_BYTES];
        for _ in 0..3000 {
            let mut body = vec![0; rng.below(900) as usize];
            rng.fill(&mut body);
            let codec = [Codec::None, Codec::Lz4, Codec::Zstd][rng.below(3) as usize];
            let h = header(
                codec,
                rng.next_u64() as u16,
                rng.below(20000) as u16,
                body.len(),
            );
            let b = sealed(&h, &body);
            let (h, body) = parse(&b, TAG).unwrap();
            let _ = restore(&h, body, &mut out, &mut unpacker);
        }
    }
}
