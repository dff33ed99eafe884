//! Numbers that are written to disk. Fixed by hand; never reused for another meaning.

/// Version of everything below `#ferrite/`. A newer major version is refused on open.
pub const FORMAT_VERSION: u32 = 1;

/// Opening a database with an unknown bit in its incompatible set is refused.
pub const KNOWN_INCOMPATIBLE_FEATURES: u64 =
    FEATURES_OF_NEW | FEATURE_SNAPSHOTS | FEATURE_ENCRYPTED;
/// Those of a new database.
pub const FEATURES_OF_NEW: u64 =
    FEATURE_PAGE_MARKS | FEATURE_VALUE_STAMPS | FEATURE_SMALL_GRANULES | FEATURE_PAGE_DELTAS;
/// A page's location tells a part of its blob's checksum (incompatible).
pub const FEATURE_PAGE_MARKS: u64 = 1;
/// References to values out of line may bear a stamp above a length of 32 bits, and a row may
/// have more than 254 of them (incompatible). A database without the bit may have them, too: it
/// was made by an older program and written to by this one.
pub const FEATURE_VALUE_STAMPS: u64 = 2;
/// Locations are in granules of 1 KiB, and the last segment may be there in part (incompatible).
/// A database without the bit may have such locations and segments too, beside those in units of
/// 4 KiB: it was made by an older program and written to by this one.
pub const FEATURE_SMALL_GRANULES: u64 = 4;
/// There are, or were a moment ago, snapshots: a program that does not know of them would write over
/// what they hold (incompatible).
pub const FEATURE_SNAPSHOTS: u64 = 8;
/// All other files are encrypted; the file `encryption` has the key (incompatible).
pub const FEATURE_ENCRYPTED: u64 = 16;
/// A page may have a delta beside its blob: a location with bit 62, a blob with flag 1
/// (incompatible). A database that an older program made gets the bit before its first delta.
pub const FEATURE_PAGE_DELTAS: u64 = 32;
/// Unknown bits here are harmless to an older binary.
pub const KNOWN_COMPATIBLE_FEATURES: u64 = 0;

/// Opens the superblock ("FERRITE1").
pub const SUPERBLOCK_MAGIC: u64 = 0x3145_5449_5252_4546;
/// Opens every page blob in the store.
pub const BLOB_MAGIC: u32 = 0x4246_4552;
/// Flag of a blob: a delta, which changes the page of another blob.
pub const BLOB_IS_DELTA: u16 = 1;
/// Opens every chunk of a map base.
pub const MAP_CHUNK_MAGIC: u32 = 0x4d46_4552;
/// Opens every log block.
pub const LOG_BLOCK_MAGIC: u32 = 0x4c46_4552;

/// How the bytes of a page blob are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// As they are.
    None = 0,
    /// LZ4 block format.
    Lz4 = 1,
    /// Zstandard frame.
    Zstd = 2,
}

impl Codec {
    /// The codec with that number on disk.
    pub const fn from_u8(n: u8) -> Option<Codec> {
        match n {
            0 => Some(Codec::None),
            1 => Some(Codec::Lz4),
            2 => Some(Codec::Zstd),
            _ => None,
        }
    }
}

/// Strongest level of zstd that a table may ask for.
pub const MAX_ZSTD_LEVEL: u8 = 22;
/// Level of zstd where none is asked for.
const DEFAULT_ZSTD_LEVEL: u8 = 3;

/// How long a table's pages are to stay in memory, compared with those of other tables: a byte of its
/// definition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum CachePriority {
    /// As long as they are used as often.
    #[default]
    Normal = 0,
    /// They go before others.
    Low = 1,
    /// They go after others.
    High = 2,
}

impl CachePriority {
    /// What that number in a table's definition means.
    pub const fn from_u8(n: u8) -> Option<CachePriority> {
        match n {
            0 => Some(CachePriority::Normal),
            1 => Some(CachePriority::Low),
            2 => Some(CachePriority::High),
            _ => None,
        }
    }
}

/// How pages are to be packed: what a table asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// With what.
    pub codec: Codec,
    /// How hard to try, with zstd: 1 to 22; 0 says that it is not said.
    pub level: u8,
}

impl Packing {
    /// As they are.
    pub const NONE: Packing = Packing::of(Codec::None);

    /// With the codec's usual level.
    pub const fn of(codec: Codec) -> Packing {
        Packing { codec, level: 0 }
    }

    /// The level for zstd.
    pub const fn zstd_level(self) -> u8 {
        match self.level {
            0 => DEFAULT_ZSTD_LEVEL,
            level => level,
        }
    }

    /// As it is in a table's definition: codec in bits 0..3, level in bits 3..8.
    pub const fn to_u8(self) -> u8 {
        debug_assert!(self.level <= MAX_ZSTD_LEVEL);
        self.codec as u8 | self.level << 3
    }

    /// What that number in a table's definition means.
    pub const fn from_u8(n: u8) -> Option<Packing> {
        let level = n >> 3;
        match Codec::from_u8(n & 7) {
            Some(codec) if level <= MAX_ZSTD_LEVEL => Some(Packing { codec, level }),
            _ => None,
        }
    }
}

/// First byte of a log record's body: which room reads it. Numbers not named are reserved.
pub mod record_kind {
    /// A mini-transaction: page operations that apply together, and the undo they need.
    pub const MINI_TXN: u8 = 1;
    /// Page locations changed (store).
    pub const MAP_DELTA: u8 = 2;
    /// A transaction committed.
    pub const COMMIT: u8 = 3;
    /// A transaction was rolled back completely.
    pub const ROLLBACK_END: u8 = 4;
    /// A transaction is prepared (XID).
    pub const PREPARE: u8 = 5;
    /// Page ids were given to an index or taken back (store).
    pub const EXTENT: u8 = 6;
    /// An index was dropped with all its pages.
    pub const INDEX_DROP: u8 = 7;
    /// AUTO_INCREMENT counters moved.
    pub const AUTO_INCREMENT: u8 = 8;
    /// A checkpoint was completed (informational).
    pub const CHECKPOINT: u8 = 9;
    /// Values out of line that become garbage if a transaction commits.
    pub const GARBAGE: u8 = 10;
    /// How new the pages are that the map delta before it has moved (store). Recovery does not need
    /// it, and programs that do not know it pass over it.
    pub const PAGE_LSNS: u8 = 11;
    /// Carries nothing: fills the last blocks of a log whose older part was overwritten.
    pub const PADDING: u8 = 255;
}
