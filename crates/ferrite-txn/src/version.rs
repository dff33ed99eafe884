//! Addresses and heads of versions, and how a version lies in memory.
//!
//! A record on a page names the newest version of its past; each version names the next
//! older one. Version k holds the state that `begin` made and `end` replaced, told as a
//! difference to the next newer state (the record itself for the first of the chain).
//!
//! In memory (young segment and old generation alike), little-endian, 8-byte aligned:
//! `begin:6 end:6 next:6 index:4 keep_head:2 keep_tail:2 body_len:2 units:2 flags:1 state:1
//! body`. `units` is the room it occupies, in 8 bytes; a rewritten version may be shorter.
//!
//! Invariants: an address is never used for another row or another place in a chain. It is
//! `segment << 15 | offset / 8`; segments are numbered from 1 and never again.

use ferrite_types::{IndexId, TxnId, VersionAddr};

/// Bytes of a young segment.
pub const SEGMENT_BYTES: usize = 256 * 1024;
/// Bytes of a version besides its body.
pub const VERSION_HEADER_BYTES: usize = 32;
pub(crate) const UNIT: usize = 8;
const OFFSET_BITS: u32 = (SEGMENT_BYTES / UNIT).ilog2();
const SEGMENT_MAX: u64 = (1 << (48 - OFFSET_BITS)) - 1;
// An offset in units fits its part of the address and a `u16`.
const _: () = assert!(SEGMENT_BYTES == UNIT << OFFSET_BITS && OFFSET_BITS <= 16);
// The longest body fits a segment of its own, and its length `body_len`.
const _: () = assert!(VERSION_HEADER_BYTES % UNIT == 0 && SEGMENT_BYTES >= 2 << 16);

/// The state was delete-marked.
pub const VERSION_DELETED: u8 = 1;
/// The body is the whole payload: no newer state is needed to read it.
pub const VERSION_FULL: u8 = 2;
/// The body is a list of pieces (see the `delta` room), not one hole in the newer payload.
pub const VERSION_PATCH: u8 = 4;

/// Unlinked, or needed by nobody: reads as "nothing older".
pub(crate) const STATE_DEAD: u8 = 1;
/// Its content is in the old generation now.
pub(crate) const STATE_MOVED: u8 = 2;

/// How an address is made of a segment and an offset, and taken apart.
pub(crate) trait AddressParts: Sized {
    /// The address of `offset`, in bytes, of a segment.
    fn at(segment: u64, offset: usize) -> Self;
    /// The same with the offset in units.
    fn of_unit(segment: u64, unit: u16) -> Self {
        Self::at(segment, usize::from(unit) * UNIT)
    }
    /// The segment's number.
    fn segment(self) -> u64;
    /// The offset in units, which is what is in the address.
    fn unit(self) -> u16;
    /// The offset in bytes.
    fn offset(self) -> usize;
}

impl AddressParts for VersionAddr {
    fn at(segment: u64, offset: usize) -> VersionAddr {
        assert!(segment <= SEGMENT_MAX, "version addresses are used up");
        // Segment 0 with offset 0 would be "no older version".
        debug_assert!(segment > 0, "segments are numbered from 1");
        debug_assert!(offset < SEGMENT_BYTES && offset % UNIT == 0);
        VersionAddr(segment << OFFSET_BITS | (offset / UNIT) as u64)
    }

    fn segment(self) -> u64 {
        self.0 >> OFFSET_BITS
    }

    fn unit(self) -> u16 {
        self.0 as u16 & ((1 << OFFSET_BITS) - 1)
    }

    fn offset(self) -> usize {
        (self.0 as usize & ((1 << OFFSET_BITS) - 1)) * UNIT
    }
}

/// A version to be added.
#[derive(Clone, Copy, Debug)]
pub struct NewVersion<'a> {
    /// Who made the state; frozen (0) if that is forgotten.
    pub begin: TxnId,
    /// Who replaced it.
    pub end: TxnId,
    /// The next older version.
    pub next: VersionAddr,
    /// [`VERSION_DELETED`], [`VERSION_FULL`], [`VERSION_PATCH`].
    pub flags: u8,
    /// Bytes at the start that equal the newer payload's.
    pub keep_head: u16,
    /// Bytes at the end that equal the newer payload's.
    pub keep_tail: u16,
    /// What stands between them.
    pub body: &'a [u8],
    /// Whose record it is.
    pub index: IndexId,
}

impl NewVersion<'_> {
    /// What is read back of it; it has no address yet.
    fn head(&self) -> VersionHead {
        VersionHead {
            addr: VersionAddr::NONE,
            begin: self.begin,
            end: self.end,
            next: self.next,
            flags: self.flags,
            keep_head: self.keep_head,
            keep_tail: self.keep_tail,
            body_len: self.body.len(),
            index: self.index,
        }
    }
}

/// A version read, without its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionHead {
    /// Where it is.
    pub addr: VersionAddr,
    /// Who made the state.
    pub begin: TxnId,
    /// Who replaced it.
    pub end: TxnId,
    /// The next older version.
    pub next: VersionAddr,
    /// As in [`NewVersion`].
    pub flags: u8,
    /// As in [`NewVersion`].
    pub keep_head: u16,
    /// As in [`NewVersion`].
    pub keep_tail: u16,
    /// Bytes of the body.
    pub body_len: usize,
    /// Whose record it is.
    pub index: IndexId,
}

impl VersionHead {
    /// The state was delete-marked.
    pub fn is_deleted(&self) -> bool {
        self.flags & VERSION_DELETED != 0
    }

    /// The body is the whole payload.
    pub fn is_full(&self) -> bool {
        self.flags & VERSION_FULL != 0
    }
}

/// Bytes that a version with such a body occupies.
pub(crate) fn record_bytes(body_len: usize) -> usize {
    (VERSION_HEADER_BYTES + body_len).next_multiple_of(UNIT)
}

fn put6(out: &mut [u8], v: u64) {
    debug_assert!(v < 1 << 48, "{v} would be cut off");
    out[..6].copy_from_slice(&v.to_le_bytes()[..6]);
}

fn get6(b: &[u8]) -> u64 {
    let mut v = [0; 8];
    v[..6].copy_from_slice(&b[..6]);
    u64::from_le_bytes(v)
}

fn get2(b: &[u8]) -> u16 {
    u16::from_le_bytes([b[0], b[1]])
}

/// Writes a record into `out`, whose length is the room it gets.
pub(crate) fn write_record(out: &mut [u8], v: &NewVersion<'_>) {
    let room = out.len();
    debug_assert!(room % UNIT == 0 && room >= record_bytes(v.body.len()));
    let body_len = u16::try_from(v.body.len()).expect("a version's body fits 64 KiB");
    let units = u16::try_from(room / UNIT).expect("a version's room fits 16 bits");
    debug_assert!(
        v.flags & !(VERSION_DELETED | VERSION_FULL | VERSION_PATCH) == 0,
        "flags {:#x}",
        v.flags
    );
    debug_assert!(
        v.flags & (VERSION_FULL | VERSION_PATCH) == 0 || (v.keep_head, v.keep_tail) == (0, 0),
        "flags {:#x} with kept bytes",
        v.flags
    );
    debug_assert!(
        v.flags & (VERSION_FULL | VERSION_PATCH) != VERSION_FULL | VERSION_PATCH,
        "a whole payload in pieces"
    );
    put6(&mut out[0..], v.begin.get());
    put6(&mut out[6..], v.end.get());
    put6(&mut out[12..], v.next.0);
    out[18..22].copy_from_slice(&v.index.get().to_le_bytes());
    out[22..24].copy_from_slice(&v.keep_head.to_le_bytes());
    out[24..26].copy_from_slice(&v.keep_tail.to_le_bytes());
    out[26..28].copy_from_slice(&body_len.to_le_bytes());
    out[28..30].copy_from_slice(&units.to_le_bytes());
    out[30] = v.flags;
    out[31] = 0;
    out[VERSION_HEADER_BYTES..VERSION_HEADER_BYTES + v.body.len()].copy_from_slice(v.body);
    debug_assert_eq!((room_of(out), state_of(out)), (room, 0));
    debug_assert_eq!(
        read_head(out, VersionAddr::NONE),
        v.head(),
        "reads differently"
    );
}

pub(crate) fn read_head(rec: &[u8], addr: VersionAddr) -> VersionHead {
    VersionHead {
        addr,
        begin: TxnId(get6(&rec[0..])),
        end: TxnId(get6(&rec[6..])),
        next: VersionAddr(get6(&rec[12..])),
        index: IndexId(u32::from_le_bytes([rec[18], rec[19], rec[20], rec[21]])),
        keep_head: get2(&rec[22..]),
        keep_tail: get2(&rec[24..]),
        body_len: usize::from(get2(&rec[26..])),
        flags: rec[30],
    }
}

/// The body that belongs to a head.
pub(crate) fn body_of<'a>(rec: &'a [u8], head: &VersionHead) -> &'a [u8] {
    debug_assert!(
        record_bytes(head.body_len) <= room_of(rec),
        "the body of {:?} reaches into the next version",
        head.addr
    );
    &rec[VERSION_HEADER_BYTES..VERSION_HEADER_BYTES + head.body_len]
}

/// The room a record occupies.
pub(crate) fn room_of(rec: &[u8]) -> usize {
    usize::from(get2(&rec[28..])) * UNIT
}

pub(crate) fn state_of(rec: &[u8]) -> u8 {
    rec[31]
}

pub(crate) fn set_state(rec: &mut [u8], state: u8) {
    debug_assert!(state == STATE_DEAD || state == STATE_MOVED);
    debug_assert_eq!(rec[31], 0, "a version goes once");
    rec[31] |= state;
}

pub(crate) fn set_record_next(rec: &mut [u8], next: VersionAddr) {
    debug_assert_eq!(state_of(rec), 0, "a version that went is changed");
    put6(&mut rec[12..], next.0);
}
