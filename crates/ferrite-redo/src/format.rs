//! The bytes on disk: sectors, their headers, record envelopes, and the arithmetic from a
//! log position to a place in a file. Pure functions; no I/O, no state.
//!
//! A log file is written in blocks of 4 KiB, and each block is eight sectors of 512 bytes
//! that validate themselves. That is the answer to the torn rewrite: the block at the tail
//! is written again by every flush, and a power cut may leave any mixture of old and new
//! 512-byte sectors in it (the unit that disks write whole). With one checksum per block
//! such a mixture would lose records that were acknowledged. With one per sector it cannot:
//!
//! - sectors before the tail sector are byte-identical in the rewrite, old or new alike;
//! - the tail sector is either the old one (with every acknowledged record in it) or the
//!   new one (with the same bytes and more behind them);
//! - sectors after it hold nothing that was acknowledged.
//!
//! Sector (little endian):
//!
//! | bytes | content |
//! | --- | --- |
//! | 0..4 | `LOG_BLOCK_MAGIC` |
//! | 4..8 | CRC-32C of bytes 8..512 |
//! | 8..14 | sector number since the start of all logs (48 bits) |
//! | 14 | sector format version |
//! | 15 | words (8 bytes) of payload in use, 0..=61; less than 61: the log ends here |
//! | 16..20 | epoch: raised by every opening of the log |
//! | 20 | word at which the first record begins, 255 when none does |
//! | 21..24 | how many sectors before this one were not yet durable when it was written |
//! | 24..512 | payload: 61 words |
//!
//! An LSN counts payload bytes only, so sector = lsn / 488, wherever segments begin and
//! whatever their size. A record is an envelope word {length u32, kind u8, reserved u16,
//! mark u8} and its body, padded with zeroes to a whole number of words.
//!
//! Invariants: along a valid log sector numbers rise by one and epochs never fall; a sector
//! whose epoch is lower than its predecessor's is left over from before a crash. Sector
//! numbers are never reused, so the content of a recycled file never fits its new place.

use ferrite_types::format::LOG_BLOCK_MAGIC;
use ferrite_types::{Error, Result};

/// What a disk writes whole.
pub(crate) const SECTOR: usize = 512;
/// Bytes of a sector header.
pub(crate) const HEADER: usize = 24;
/// Words of payload in a sector.
pub(crate) const SECTOR_WORDS: usize = (SECTOR - HEADER) / 8;
/// Bytes of payload in a sector.
pub(crate) const PAYLOAD: usize = SECTOR_WORDS * 8;
/// The unit of writes.
pub(crate) const BLOCK: usize = 4096;
/// Sectors in a block.
pub(crate) const BLOCK_SECTORS: usize = BLOCK / SECTOR;
/// `first` of a sector in which no record begins.
pub(crate) const NO_RECORD: u8 = 255;
/// Version of the sector format.
const VERSION: u8 = 1;
/// Largest body of a record.
pub(crate) const MAX_BODY: usize = 1 << 20;
/// Top byte of every envelope: an envelope is never zero.
const MARK: u64 = 0xF5;

const NUMBER_MASK: u64 = (1 << 48) - 1;
const BEHIND_MAX: u64 = (1 << 24) - 1;

// What the fields of a sector's header and of an envelope have to hold.
const _: () = assert!(HEADER + PAYLOAD == SECTOR && BLOCK_SECTORS * SECTOR == BLOCK);
const _: () = assert!(SECTOR_WORDS < NO_RECORD as usize);
const _: () = assert!(MAX_BODY <= u32::MAX as usize);

/// What a sector says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectorHeader {
    /// Which sector of the log it is.
    pub number: u64,
    /// In which life of the log it was written.
    pub epoch: u32,
    /// Words of payload in use.
    pub used: u8,
    /// First word at which a record begins.
    pub first: u8,
    /// Sectors before this one that were not durable when it was written.
    pub behind: u32,
}

impl SectorHeader {
    /// Every sector with a lower number was durable when this one was written. Nothing is
    /// claimed where the distance does not fit.
    pub(crate) fn claims(&self) -> u64 {
        match u64::from(self.behind) {
            BEHIND_MAX => 0,
            behind => self.number.saturating_sub(behind),
        }
    }
}

/// Writes the header of a sector whose payload is in place.
pub(crate) fn seal(sector: &mut [u8], h: &SectorHeader) {
    debug_assert_eq!(sector.len(), SECTOR);
    assert!(h.number <= NUMBER_MASK, "sector number {}", h.number);
    assert!(usize::from(h.used) <= SECTOR_WORDS, "{} words", h.used);
    assert!(
        h.first == NO_RECORD || h.first < h.used,
        "the first record begins at word {} of {}",
        h.first,
        h.used
    );
    let place = (h.number & NUMBER_MASK) | u64::from(VERSION) << 48 | u64::from(h.used) << 56;
    let behind = u64::from(h.behind).min(BEHIND_MAX) as u32;
    sector[0..4].copy_from_slice(&LOG_BLOCK_MAGIC.to_le_bytes());
    sector[8..16].copy_from_slice(&place.to_le_bytes());
    sector[16..20].copy_from_slice(&h.epoch.to_le_bytes());
    sector[20..24].copy_from_slice(&(behind << 8 | u32::from(h.first)).to_le_bytes());
    let crc = crc32c::crc32c(&sector[8..]);
    sector[4..8].copy_from_slice(&crc.to_le_bytes());
    debug_assert_eq!(check(sector, h.number), Some(SectorHeader { behind, ..*h }));
}

/// Makes magic, number, version and checksum right and leaves the rest as it is.
pub(crate) fn reseal(sector: &mut [u8], number: u64) {
    let used = u64::from(sector[15]);
    let place = (number & NUMBER_MASK) | u64::from(VERSION) << 48 | used << 56;
    sector[0..4].copy_from_slice(&LOG_BLOCK_MAGIC.to_le_bytes());
    sector[8..16].copy_from_slice(&place.to_le_bytes());
    let crc = crc32c::crc32c(&sector[8..]);
    sector[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// The header, when the sector is whole and is the one with that number.
pub(crate) fn check(sector: &[u8], number: u64) -> Option<SectorHeader> {
    if sector.len() != SECTOR || le32(sector, 0) != LOG_BLOCK_MAGIC {
        return None;
    }
    let place = le64(sector, 8);
    if place & NUMBER_MASK != number || (place >> 48) as u8 != VERSION {
        return None;
    }
    let used = (place >> 56) as u8;
    if usize::from(used) > SECTOR_WORDS || crc32c::crc32c(&sector[8..]) != le32(sector, 4) {
        return None;
    }
    let last = le32(sector, 20);
    let (first, behind) = (last as u8, last >> 8);
    Some(SectorHeader {
        number,
        epoch: le32(sector, 16),
        used,
        first,
        behind,
    })
}

/// How far behind its durable predecessor a sector is.
pub(crate) fn behind(number: u64, durable_sector: u64) -> u32 {
    number.saturating_sub(durable_sector).min(BEHIND_MAX) as u32
}

/// The word that opens a record.
#[inline]
pub(crate) fn envelope(kind: u8, len: usize) -> u64 {
    debug_assert!(len <= MAX_BODY);
    len as u64 | u64::from(kind) << 32 | MARK << 56
}

/// Words of the record that this envelope opens, itself included.
#[inline]
pub(crate) fn envelope_words(word: u64) -> usize {
    debug_assert_eq!(word >> 56, MARK, "no envelope: {word:#x}");
    debug_assert!(word as u32 as usize <= MAX_BODY, "{word:#x}");
    1 + (word as u32 as usize).div_ceil(8)
}

/// Kind and body length of an envelope read from disk.
pub(crate) fn parse_envelope(word: u64) -> Result<(u8, usize)> {
    let len = word as u32 as usize;
    if word >> 56 != MARK || len > MAX_BODY {
        return Err(Error::Corrupt("no record begins there".into()));
    }
    Ok(((word >> 32) as u8, len))
}

/// The sector a position lies in.
#[inline]
pub(crate) fn sector_of(lsn: u64) -> u64 {
    lsn / PAYLOAD as u64
}

/// The word within its sector.
#[inline]
pub(crate) fn word_in_sector(lsn: u64) -> usize {
    (lsn % PAYLOAD as u64) as usize / 8
}

/// First position of a sector.
#[inline]
pub(crate) fn sector_start(sector: u64) -> u64 {
    sector * PAYLOAD as u64
}

/// How sectors fall into files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Length of a segment file; a multiple of [`BLOCK`].
    pub segment_bytes: u64,
}

impl Geometry {
    /// Payload bytes of a segment.
    pub(crate) fn segment_payload(&self) -> u64 {
        self.segment_bytes / SECTOR as u64 * PAYLOAD as u64
    }

    /// The segment a sector lies in, and its offset there.
    pub(crate) fn place(&self, sector: u64) -> (u64, u64) {
        let per = self.segment_bytes / SECTOR as u64;
        (sector / per, sector % per * SECTOR as u64)
    }

    /// The segment a position lies in.
    pub(crate) fn segment_of(&self, lsn: u64) -> u64 {
        lsn / self.segment_payload()
    }

    /// "redo.NNNNNNNN at byte N (position N)", for messages.
    pub(crate) fn describe(&self, lsn: u64) -> String {
        let (segment, offset) = self.place(sector_of(lsn));
        format!(
            "{} at byte {offset} (position {lsn})",
            segment_name(segment)
        )
    }

    /// First sector of a segment.
    pub(crate) fn first_sector(&self, segment: u64) -> u64 {
        segment * (self.segment_bytes / SECTOR as u64)
    }

    /// First position of a segment.
    pub(crate) fn segment_start(&self, segment: u64) -> u64 {
        segment * self.segment_payload()
    }
}

/// Name of a segment file.
pub(crate) fn segment_name(segment: u64) -> String {
    format!("redo.{segment:08}")
}

/// The number in a segment file's name.
pub(crate) fn parse_segment_name(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("redo.")?;
    let segment = digits.parse().ok()?;
    (segment_name(segment) == name).then_some(segment)
}

fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// The little-endian word at a byte offset.
pub(crate) fn le64(b: &[u8], at: usize) -> u64 {
    u64::from(le32(b, at)) | u64::from(le32(b, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sector_round_trip_and_damage() {
        let mut s = [7u8; SECTOR];
        let h = SectorHeader {
            number: 1 << 40,
            epoch: 9,
            used: 61,
            first: 3,
            behind: 77,
        };
        assert_eq!(h.claims(), (1 << 40) - 77);
        let unknown = SectorHeader {
            behind: behind(1 << 40, 0),
            ..h
        };
        assert_eq!(unknown.claims(), 0);
        seal(&mut s, &h);
        assert_eq!(check(&s, 1 << 40), Some(h));
        assert_eq!(check(&s, 1), None);
        for at in 0..SECTOR {
            let mut d = s;
            d[at] ^= 0x10;
            assert_eq!(check(&d, 1 << 40), None, "byte {at}");
        }
    }

    #[test]
    fn names() {
        assert_eq!(parse_segment_name(&segment_name(17)), Some(17));
        assert_eq!(
            parse_segment_name(&segment_name(1_234_567_890)),
            Some(1_234_567_890)
        );
        assert_eq!(parse_segment_name("redo.17"), None);
        assert_eq!(parse_segment_name("redo.tmp"), None);
        assert_eq!(parse_segment_name("redo.+0000001"), None);
    }

    #[test]
    fn places() {
        let g = Geometry {
            segment_bytes: 8192,
        };
        assert_eq!(g.segment_payload(), 16 * 488);
        assert_eq!(g.place(sector_of(16 * 488)), (1, 0));
        assert_eq!(g.place(sector_of(17 * 488 + 8)), (1, 512));
        assert_eq!(g.segment_of(16 * 488 - 1), 0);
    }

    #[test]
    fn envelopes() {
        assert_ne!(envelope(0, 0), 0);
        assert_eq!(parse_envelope(envelope(9, 1000)), Ok((9, 1000)));
        assert_eq!(envelope_words(envelope(9, 1000)), 126);
        assert!(parse_envelope(0).is_err());
        assert!(parse_envelope(u64::MAX).is_err());
    }
}
