//! The record: the same header in clustered and secondary indexes.
//!
//! ```text
//! flags u8 | key suffix length u16 | value length u16 | [txn id u48] | [version address u48]
//! | key suffix | value
//! ```
//! A record at rest (frozen) has neither id nor address: five bytes, one of them flags.
//! All numbers are little-endian.

use ferrite_types::{TxnId, VersionAddr};

/// The row is deleted; the record stays for those who still see it.
pub const DELETE_MARK: u8 = 1;
/// A transaction id follows the lengths.
pub const HAS_TXN: u8 = 2;
/// A version address follows.
pub const HAS_VERSION: u8 = 4;
/// Reserved: a schema version follows (instant DDL).
pub const HAS_SCHEMA: u8 = 8;
/// Flags a format-1 reader knows.
pub const KNOWN_FLAGS: u8 = DELETE_MARK | HAS_TXN | HAS_VERSION;

/// Bytes before the optional fields.
pub const FIXED_BYTES: usize = 5;
/// Bytes of a transaction id or a version address.
pub const U48_BYTES: usize = 6;
/// Largest header.
pub const MAX_HEADER_BYTES: usize = FIXED_BYTES + 2 * U48_BYTES;

/// A record's header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The row is deleted.
    pub deleted: bool,
    /// Who made this state; frozen when everybody sees it.
    pub txn: TxnId,
    /// Where the state before this one is kept.
    pub version: VersionAddr,
}

impl Header {
    /// Bytes of the header in a record.
    pub fn len(&self) -> usize {
        FIXED_BYTES
            + if self.txn.is_frozen() { 0 } else { U48_BYTES }
            + if self.version.is_none() { 0 } else { U48_BYTES }
    }

    /// A header is never empty.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// A record on a page.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Decoded header.
    pub header: Header,
    /// Key without the page's prefix.
    pub suffix: &'a [u8],
    /// Value.
    pub value: &'a [u8],
}

#[inline(always)]
pub(crate) fn u48(b: &[u8]) -> u64 {
    u64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        | u64::from(u16::from_le_bytes([b[4], b[5]])) << 32
}

pub(crate) fn put_u48(out: &mut Vec<u8>, n: u64) {
    debug_assert!(n < 1 << 48);
    out.extend_from_slice(&n.to_le_bytes()[..U48_BYTES]);
}

/// Length of the whole record that starts at `bytes`, or None if it does not fit there.
pub fn length(bytes: &[u8]) -> Option<usize> {
    if bytes.len() < FIXED_BYTES {
        return None;
    }
    let flags = bytes[0];
    let key = u16::from_le_bytes([bytes[1], bytes[2]]) as usize;
    let value = u16::from_le_bytes([bytes[3], bytes[4]]) as usize;
    let total = header_length(flags) + key + value;
    (total <= bytes.len() && flags & !KNOWN_FLAGS == 0).then_some(total)
}

#[inline]
fn header_length(flags: u8) -> usize {
    FIXED_BYTES
        + if flags & HAS_TXN != 0 { U48_BYTES } else { 0 }
        + if flags & HAS_VERSION != 0 {
            U48_BYTES
        } else {
            0
        }
}

/// Key suffix and value of a whole record.
pub(crate) fn body(record: &[u8]) -> &[u8] {
    &record[header_length(record[0])..]
}

/// The header that `bytes` begin with, and what follows; None if they hold no whole one.
pub(crate) fn split_header(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    bytes.split_at_checked(header_length(*bytes.first()?))
}

/// Writes the record without its stamps to the end of `space`; bytes written.
pub(crate) fn freeze_into(record: &[u8], space: &mut [u8]) -> usize {
    let body = body(record);
    debug_assert!(
        record[0] & DELETE_MARK == 0,
        "its stamp tells whether it may go"
    );
    let at = space.len() - FIXED_BYTES - body.len();
    let out = &mut space[at..];
    out[..FIXED_BYTES].copy_from_slice(&record[..FIXED_BYTES]);
    out[0] &= !(HAS_TXN | HAS_VERSION);
    out[FIXED_BYTES..].copy_from_slice(body);
    debug_assert_eq!(length(out), Some(out.len()), "a frozen record");
    out.len()
}

/// The key suffix alone: what a search compares.
#[inline]
pub fn suffix_of(bytes: &[u8]) -> &[u8] {
    let key = u16::from_le_bytes([bytes[1], bytes[2]]) as usize;
    let at = header_length(bytes[0]);
    &bytes[at..at + key]
}

/// Decodes the record that starts at `bytes`, which must hold a whole one.
///
/// Part of each row that a scan reads: as a call, with its answer in memory, it took a tenth of a scan.
#[inline(always)]
pub fn decode(bytes: &[u8]) -> Record<'_> {
    debug_assert!(length(bytes).is_some(), "no whole record");
    let flags = bytes[0];
    let key = u16::from_le_bytes([bytes[1], bytes[2]]) as usize;
    let value = u16::from_le_bytes([bytes[3], bytes[4]]) as usize;
    let mut at = FIXED_BYTES;
    let mut header = Header {
        deleted: flags & DELETE_MARK != 0,
        ..Header::default()
    };
    if flags & HAS_TXN != 0 {
        header.txn = TxnId(u48(&bytes[at..]));
        at += U48_BYTES;
    }
    if flags & HAS_VERSION != 0 {
        header.version = VersionAddr(u48(&bytes[at..]));
        at += U48_BYTES;
    }
    Record {
        header,
        suffix: &bytes[at..at + key],
        value: &bytes[at + key..at + key + value],
    }
}

/// Appends an encoded record to `out`.
pub fn encode(header: &Header, suffix: &[u8], value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    // The lengths have two bytes each.
    debug_assert!(suffix.len() <= usize::from(u16::MAX), "{}", suffix.len());
    debug_assert!(value.len() <= usize::from(u16::MAX), "{}", value.len());
    let mut flags = 0;
    if header.deleted {
        flags |= DELETE_MARK;
    }
    if !header.txn.is_frozen() {
        flags |= HAS_TXN;
    }
    if !header.version.is_none() {
        flags |= HAS_VERSION;
    }
    out.push(flags);
    out.extend_from_slice(&(suffix.len() as u16).to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    if flags & HAS_TXN != 0 {
        put_u48(out, header.txn.0);
    }
    if flags & HAS_VERSION != 0 {
        put_u48(out, header.version.0);
    }
    out.extend_from_slice(suffix);
    out.extend_from_slice(value);
    debug_assert_eq!(out.len() - start, header.len() + suffix.len() + value.len());
    debug_assert_eq!(decode(&out[start..]).header, *header, "what is read back");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_of_every_header_shape() {
        for deleted in [false, true] {
            for txn in [0, 1, (1 << 48) - 1] {
                for version in [0, 7, (1 << 48) - 1] {
                    let header = Header {
                        deleted,
                        txn: TxnId(txn),
                        version: VersionAddr(version),
                    };
                    let mut out = Vec::new();
                    encode(&header, b"key", b"value", &mut out);
                    assert_eq!(length(&out), Some(out.len()));
                    let rec = decode(&out);
                    assert_eq!(rec.header, header);
                    assert_eq!(rec.suffix, b"key");
                    assert_eq!(rec.value, b"value");
                    assert_eq!(suffix_of(&out), b"key");
                    assert_eq!(header.len() + 8, out.len());
                }
            }
        }
    }

    #[test]
    fn a_record_past_the_end_is_refused() {
        let mut out = Vec::new();
        encode(&Header::default(), b"key", b"value", &mut out);
        for cut in 0..out.len() {
            assert_eq!(length(&out[..cut]), None);
        }
    }
}
