//! Where a page is: one 64-bit directory word, and the address of a blob inside it.
//!
//! Layout of a word: 0 is an unused page id; bit 63 set means resident and the low 32 bits
//! are the frame number; anything else is a [`Location`].
//!
//! Layout of a location: bits 0..40 first unit from the start of the store, bits 40..50 length in
//! units (never 0), bits 50..53 codec, bits 53..61 mark, bit 61 the unit: a granule of 1 KiB if it
//! is set, else a block of 4 KiB (written before granules were that small, and read for ever),
//! bit 62 set if it is a delta's (`page_delta`); in a directory word, alone, it stands for
//! [`Location::FROM_LOG`]. Outside of this file there are granules only.
//!
//! The mark is made of the blob's checksum, never 0; 0 stands for none (databases without the
//! feature). By it a blob that once stood at the place, though it be one of the same page, is
//! told from the one that should be there: a write that never came, a read that is stale.

use core::fmt;

use ferrite_types::format::Codec;

/// The unit in which blobs are measured, and their alignment.
pub const GRANULE_BYTES: usize = 1024;
/// Granules of a block: what is written or read at once begins and ends on one. A device may
/// replace 4 KiB whole, so that a block with a live blob in it is never written to.
pub(crate) const BLOCK_GRANULES: u32 = 4;
/// The unit of writes and reads.
pub(crate) const BLOCK_BYTES: usize = BLOCK_GRANULES as usize * GRANULE_BYTES;

const RESIDENT: u64 = 1 << 63;
const GRANULE_BITS: u32 = 40;
const LEN_BITS: u32 = 10;
const CODEC_BITS: u32 = 3;
const LEN_SHIFT: u32 = GRANULE_BITS;
const CODEC_SHIFT: u32 = LEN_SHIFT + LEN_BITS;
const MARK_BITS: u32 = 8;
const MARK_SHIFT: u32 = CODEC_SHIFT + CODEC_BITS;
const UNIT_BITS: u32 = 1;
const UNIT_SHIFT: u32 = MARK_SHIFT + MARK_BITS;
const FINE: u64 = 1 << UNIT_SHIFT;
const DELTA_BITS: u32 = 1;
const DELTA_SHIFT: u32 = UNIT_SHIFT + UNIT_BITS;
const DELTA: u64 = 1 << DELTA_SHIFT;
const USED_BITS: u32 = DELTA_SHIFT + DELTA_BITS;

// A word that is not resident is a location: bit 63 is not the location's.
const _: () = assert!(USED_BITS <= 63 && GRANULE_BITS == LEN_SHIFT);

/// Granules a location can address.
pub const MAX_GRANULES: u64 = 1 << GRANULE_BITS;

/// The address of a blob in the store: first granule, length, codec.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Location(u64);

impl Location {
    /// Nowhere: the page has no blob.
    pub const NONE: Location = Location(0);

    /// Nowhere yet: recovery has put off the page, which gets its whole content from the log. Only in directory
    /// words; it is as [`Location::NONE`] in all but that the page exists.
    pub const FROM_LOG: Location = Location(DELTA);

    /// Panics when a number does not fit its field: the allocator hands out nothing such.
    pub const fn new(granule: u64, granules: u32, codec: Codec) -> Location {
        assert!(granule < MAX_GRANULES);
        assert!(granules > 0 && granules < 1 << LEN_BITS);
        Location(granule | (granules as u64) << LEN_SHIFT | (codec as u64) << CODEC_SHIFT | FINE)
    }

    /// As [`Location::new`] was before granules were of 1 KiB: units of 4 KiB, for tests.
    #[doc(hidden)]
    pub const fn in_blocks(block: u64, blocks: u32, codec: Codec) -> Location {
        Location(Location::new(block, blocks, codec).0 & !FINE)
    }

    /// A delta's, for tests.
    #[doc(hidden)]
    pub const fn delta_for_tests(granule: u64) -> Location {
        Location::of_delta(granule, 1)
    }

    /// Where a page's delta is. Deltas are not packed.
    pub(crate) const fn of_delta(granule: u64, granules: u32) -> Location {
        Location(Location::new(granule, granules, Codec::None).0 | DELTA)
    }

    /// Is it the place of a delta, not of a page's whole blob?
    #[inline]
    pub const fn is_delta(self) -> bool {
        self.0 & DELTA != 0 && self.0 != DELTA
    }

    /// Granules of its unit.
    const fn unit(self) -> u32 {
        match self.0 & FINE {
            0 => BLOCK_GRANULES,
            _ => 1,
        }
    }

    /// The same place with a mark.
    pub(crate) const fn with_mark(self, mark: u8) -> Location {
        assert!(!self.is_none(), "nowhere has no mark");
        Location(self.0 & !(0xff << MARK_SHIFT) | (mark as u64) << MARK_SHIFT)
    }

    /// What the blob's checksum must give; 0: not known.
    pub(crate) const fn mark(self) -> u8 {
        (self.0 >> MARK_SHIFT) as u8
    }

    /// The number as it stands on disk and in frame headers.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Takes back what [`Location::raw`] gave. Not checked; see [`Location::checked`].
    #[inline]
    pub const fn from_raw(raw: u64) -> Location {
        debug_assert!(raw & RESIDENT == 0, "a frame is no location");
        Location(raw)
    }

    /// The location with that number, if this format can have written it.
    pub fn checked(raw: u64) -> Option<Location> {
        let at = Location(raw);
        let sane = raw == 0 || (raw >> USED_BITS == 0 && at.granules() > 0 && at.codec().is_some());
        let sane = sane && at.granule() < MAX_GRANULES;
        let delta = at.unit() == 1 && at.codec() == Some(Codec::None);
        (sane && (delta || !at.is_delta())).then_some(at)
    }

    /// True for [`Location::NONE`] and [`Location::FROM_LOG`].
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 & !Location::FROM_LOG.0 == 0
    }

    /// Where the page is on disk: [`Location::NONE`] for [`Location::FROM_LOG`].
    #[inline]
    pub const fn stored(self) -> Location {
        match self.is_none() {
            true => Location::NONE,
            false => self,
        }
    }

    /// Index of the first granule.
    #[inline]
    pub const fn granule(self) -> u64 {
        (self.0 & (MAX_GRANULES - 1)) * self.unit() as u64
    }

    /// Length in granules; 0 only for a place that is none.
    #[inline]
    pub const fn granules(self) -> u32 {
        ((self.0 >> LEN_SHIFT) as u32 & ((1 << LEN_BITS) - 1)) * self.unit()
    }

    /// Is a blob of so many granules as long as the location says? It may be padded to the end of
    /// a block.
    pub(crate) const fn fits(self, granules: usize) -> bool {
        let padded = self.granules() as usize;
        granules <= padded && padded < granules + BLOCK_GRANULES as usize
    }

    /// Length in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        self.granules() as usize * GRANULE_BYTES
    }

    /// The first granule of the blocks that the blob lies in, and one past their last.
    pub const fn blocks(self) -> (u64, u64) {
        let block = BLOCK_GRANULES as u64;
        let end = self.granule() + self.granules() as u64;
        debug_assert!(!self.is_none(), "nowhere is in no block");
        (self.granule() / block * block, end.next_multiple_of(block))
    }

    /// How the blob is packed; None if the number is of a later format.
    pub const fn codec(self) -> Option<Codec> {
        Codec::from_u8((self.0 >> CODEC_SHIFT) as u8 & ((1 << CODEC_BITS) - 1))
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return write!(f, "Location(none)");
        }
        write!(f, "Location({}+{}", self.granule(), self.granules())?;
        match self.codec() {
            _ if self.is_delta() => write!(f, ", delta)"),
            Some(Codec::None) => write!(f, ")"),
            Some(c) => write!(f, ", {c:?})"),
            None => write!(f, ", unknown codec)"),
        }
    }
}

/// One 64-bit directory word. 0 = page id unused. Bit 63 set: resident, low 32 bits are the
/// frame number. Otherwise a [`Location`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub u64);

impl Word {
    /// The page id is not in use.
    pub const FREE: Word = Word(0);

    /// The page is in that frame.
    #[inline]
    pub const fn resident(frame: u32) -> Word {
        Word(RESIDENT | frame as u64)
    }

    /// The page is on disk only, or in the log. [`Location::NONE`] gives [`Word::FREE`].
    #[inline]
    pub const fn on_disk(at: Location) -> Word {
        debug_assert!(at.0 & RESIDENT == 0 && !at.is_delta(), "no place of a page");
        Word(at.0)
    }

    /// True when the page id is not in use.
    #[inline]
    pub const fn is_free(self) -> bool {
        self.0 == 0
    }

    /// The frame that holds the page.
    #[inline]
    pub const fn as_frame(self) -> Option<u32> {
        if self.0 & RESIDENT != 0 {
            Some(self.0 as u32)
        } else {
            None
        }
    }

    /// Where the page is on disk, if it is there only; [`Location::FROM_LOG`] if it is in the log.
    #[inline]
    pub const fn as_location(self) -> Option<Location> {
        if self.0 & RESIDENT == 0 && self.0 != 0 {
            Some(Location(self.0))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_overlap() {
        let at = Location::new(MAX_GRANULES - 1, 1023, Codec::Zstd);
        assert_eq!(at.granule(), MAX_GRANULES - 1);
        assert_eq!(at.granules(), 1023);
        assert_eq!(at.codec(), Some(Codec::Zstd));
        assert_eq!(Location::checked(at.raw()), Some(at));
        let at = at.with_mark(255);
        assert_eq!((at.mark(), at.with_mark(0).mark()), (255, 0));
        assert_eq!((at.granule(), at.granules()), (MAX_GRANULES - 1, 1023));
        assert_eq!(Location::checked(at.raw()), Some(at));
        let w = Word::on_disk(at);
        assert!(!w.is_free());
        assert_eq!(w.as_frame(), None);
        assert_eq!(w.as_location(), Some(at));
    }

    #[test]
    fn locations_in_blocks_are_read_for_ever() {
        // Written by release 0.1.0: unit 9, three units of 4 KiB, LZ4.
        let old = Location::checked(9 | 3 << 40 | 1 << 50).unwrap();
        assert_eq!(old, Location::in_blocks(9, 3, Codec::Lz4));
        assert_eq!(
            (old.granule(), old.granules(), old.bytes()),
            (36, 12, 12 << 10)
        );
        assert!(old.fits(9) && old.fits(12) && !old.fits(8) && !old.fits(13));
        let fine = Location::new(36, 12, Codec::Lz4);
        assert_eq!((fine.granule(), fine.granules()), (36, 12));
        assert!(fine.fits(12) && !fine.fits(13) && !fine.fits(8));
        assert_ne!(fine, old, "the word on disk tells them apart");
        assert_eq!(
            Location::checked((MAX_GRANULES - 1) | (1 << 40)),
            None,
            "beyond every store"
        );
    }

    #[test]
    fn a_delta_is_in_granules_and_not_packed() {
        let at = Location::of_delta(9, 2).with_mark(7);
        assert!(at.is_delta() && Location::checked(at.raw()) == Some(at));
        assert_eq!((at.granule(), at.granules(), at.mark()), (9, 2, 7));
        let whole = Location::new(9, 2, Codec::Lz4).raw();
        assert_eq!(Location::checked(whole | DELTA), None);
        let blocks = Location::in_blocks(9, 2, Codec::None).raw();
        assert_eq!(Location::checked(blocks | DELTA), None);
    }

    #[test]
    fn a_word_is_one_of_three() {
        assert!(Word::FREE.is_free());
        assert_eq!(Word::FREE.as_location(), None);
        assert_eq!(Word::FREE.as_frame(), None);
        let w = Word::resident(u32::MAX);
        assert_eq!(w.as_frame(), Some(u32::MAX));
        assert_eq!(w.as_location(), None);
        assert!(Word::on_disk(Location::NONE).is_free());
    }

    #[test]
    fn a_page_in_the_log_is_nowhere_on_disk_and_exists() {
        let w = Word::on_disk(Location::FROM_LOG);
        assert!(!w.is_free() && w.as_frame().is_none());
        let at = w.as_location().unwrap();
        assert!(at.is_none() && at.stored() == Location::NONE);
        assert_eq!((at.granule(), at.granules()), (0, 0));
        assert_eq!(Location::checked(at.raw()), None, "never on disk");
    }

    #[test]
    fn later_formats_are_recognised() {
        let at = Location::new(7, 3, Codec::None).raw();
        assert!(Location::checked(at).is_some());
        assert_eq!(Location::checked(at | 1 << 63), None);
        assert_eq!(Location::checked(at | 7 << 50), None);
        assert_eq!(Location::checked(7), None);
    }
}
