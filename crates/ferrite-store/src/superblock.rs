//! The file `superblock`: what this database is, in two equal copies.
//!
//! Layout of a copy (4 KiB, little-endian): 0 magic, 8 CRC32C of bytes 12..4096, 12 format version,
//! 16 compatible features, 24 incompatible features, 32 uuid, 48 page bytes, 52 granule bytes, 56
//! segment bytes, 64 file bytes, 72 creation time (us since 1970), 80 what tells the key of an
//! encrypted database from others (else 0), zeros. Magic, checksum, version and the features keep
//! their places in every version.
//!
//! Invariant: the file appears under its name complete or not at all (written aside, synced,
//! renamed), and it is the last thing the making of a store writes.

use ferrite_types::format::{
    FEATURE_ENCRYPTED, FEATURE_PAGE_MARKS, FEATURE_SMALL_GRANULES, FORMAT_VERSION,
    KNOWN_INCOMPATIBLE_FEATURES, SUPERBLOCK_MAGIC,
};
use ferrite_types::{Error, Result, PAGE_BYTES};

use crate::deps::{kill_point, AlignedBuf, OpenMode, Storage, StorageFile};
use crate::files::Geometry;
use crate::wire::{get_u32, get_u64, put_u32, put_u64};
use crate::word::{BLOCK_BYTES, GRANULE_BYTES};

pub(crate) const NAME: &str = "superblock";
pub(crate) const ASIDE: &str = "superblock.new";
const COPY: usize = 4096;
const COPIES: usize = 2;

/// What the superblock says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Superblock {
    pub(crate) uuid: [u8; 16],
    pub(crate) geometry: Geometry,
    pub(crate) created_us: u64,
    /// Incompatible features it was made with.
    pub(crate) features: u64,
    /// Of an encrypted database: tells its key from others; else 0.
    pub(crate) key_check: u64,
}

impl Superblock {
    /// Locations bear marks.
    pub(crate) fn has_marks(&self) -> bool {
        self.features & FEATURE_PAGE_MARKS != 0
    }

    /// What it says of granules. An older database says blocks, and has locations in both units.
    fn granule_bytes(&self) -> usize {
        match self.features & FEATURE_SMALL_GRANULES {
            0 => BLOCK_BYTES,
            _ => GRANULE_BYTES,
        }
    }

    /// Marks every blob of this database.
    pub(crate) fn tag(&self) -> u32 {
        crc32c::crc32c(&self.uuid)
    }

    fn encode(&self) -> Vec<u8> {
        // What decoding refuses is not written.
        assert!(self.features & !KNOWN_INCOMPATIBLE_FEATURES == 0);
        let mut b = vec![0; COPY];
        put_u64(&mut b, 0, SUPERBLOCK_MAGIC);
        put_u32(&mut b, 12, FORMAT_VERSION);
        put_u64(&mut b, 24, self.features);
        b[32..48].copy_from_slice(&self.uuid);
        put_u32(&mut b, 48, PAGE_BYTES as u32);
        put_u32(&mut b, 52, self.granule_bytes() as u32);
        put_u64(&mut b, 56, self.geometry.segment_bytes);
        put_u64(&mut b, 64, self.geometry.file_bytes);
        put_u64(&mut b, 72, self.created_us);
        put_u64(&mut b, 80, self.key_check);
        let crc = crc32c::crc32c(&b[12..]);
        put_u32(&mut b, 8, crc);
        debug_assert!(Superblock::decode(&b).is_ok_and(|read| read == *self));
        b
    }

    /// Takes one copy apart.
    pub(crate) fn decode(b: &[u8]) -> Result<Superblock> {
        let u32_at = |at| get_u32(b, at).unwrap_or(0);
        let u64_at = |at| get_u64(b, at).unwrap_or(0);
        if b.len() < COPY || u64_at(0) != SUPERBLOCK_MAGIC {
            return Err(Error::Format(format!("{NAME}: not a Ferrite database")));
        }
        if crc32c::crc32c(&b[12..COPY]) != u32_at(8) {
            return Err(Error::Corrupt(format!("{NAME}: checksum differs")));
        }
        let version = u32_at(12);
        if version == 0 || version > FORMAT_VERSION {
            return Err(Error::Format(format!(
                "{NAME}: the database has format version {version}; this program knows up to \
                 version {FORMAT_VERSION}"
            )));
        }
        let unknown = u64_at(24) & !KNOWN_INCOMPATIBLE_FEATURES;
        if unknown != 0 {
            let bits: Vec<String> = (0..64)
                .filter(|bit| unknown >> bit & 1 == 1)
                .map(|bit: u32| bit.to_string())
                .collect();
            return Err(Error::Format(format!(
                "{NAME}: the database uses incompatible feature bit {} this program does not know",
                bits.join(", ")
            )));
        }
        let granule_bytes = u32_at(52) as usize;
        let known = granule_bytes == GRANULE_BYTES || granule_bytes == BLOCK_BYTES;
        if u32_at(48) as usize != PAGE_BYTES || !known {
            return Err(Error::Format(format!(
                "{NAME}: pages of {} and granules of {} bytes; this program has {PAGE_BYTES} and \
                 {GRANULE_BYTES}",
                u32_at(48),
                granule_bytes
            )));
        }
        let geometry = Geometry::checked(u64_at(56), u64_at(64))
            .ok_or_else(|| Error::Format(format!("{NAME}: impossible segment or file size")))?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&b[32..48]);
        Ok(Superblock {
            uuid,
            geometry,
            created_us: u64_at(72),
            features: u64_at(24),
            key_check: u64_at(80),
        })
    }

    /// The same, of a database whose files are in `storage`: encrypted or not.
    pub(crate) fn in_storage(self, storage: &dyn Storage) -> Superblock {
        let key_check = storage.key_check().unwrap_or(0);
        let features = match key_check {
            0 => self.features & !FEATURE_ENCRYPTED,
            _ => self.features | FEATURE_ENCRYPTED,
        };
        Superblock {
            features,
            key_check,
            ..self
        }
    }

    /// Is the database encrypted as `storage` has it?
    fn check_encryption(self, storage: &dyn Storage) -> Result<Superblock> {
        match (self.features & FEATURE_ENCRYPTED != 0, storage.key_check()) {
            (true, None) => Err(Error::Corrupt(format!(
                "{NAME}: the database is encrypted, and the file encryption with its key is missing: restore that file \
                 from a backup or from where it was moved to"
            ))),
            (true, Some(check)) if check != self.key_check => Err(Error::Corrupt(format!(
                "{NAME}: the file encryption is of another database: restore that file from a backup or from where it was moved to"
            ))),
            (false, Some(_)) => Err(Error::Corrupt(format!(
                "{NAME}: the database is not encrypted, and there is a file encryption, of another database: \
                 move it away"
            ))),
            _ => Ok(self),
        }
    }

    /// Makes the file appear, complete and durable.
    pub(crate) fn write(&self, storage: &dyn Storage) -> Result<()> {
        assert!(self.check_encryption(storage).is_ok(), "{self:?}");
        if storage.exists(ASIDE)? {
            storage.remove(ASIDE)?;
        }
        let bytes = self.encode().repeat(COPIES);
        assert!(bytes.len() == COPY * COPIES, "{} bytes", bytes.len());
        let file = storage.open(ASIDE, OpenMode::CreateNew, false)?;
        file.write_at(&AlignedBuf::copy_of(&bytes), 0)?;
        file.sync_data()?;
        kill_point!("store.superblock_before_rename");
        storage.rename(ASIDE, NAME)?;
        storage.sync_dir()
    }

    fn read_copy(file: &dyn StorageFile, copy: usize) -> Result<Superblock> {
        let (len, at) = (file.len()?, copy * COPY);
        if len < (at + COPY) as u64 {
            return Err(Error::Corrupt(format!("{NAME}: too short ({len} bytes)")));
        }
        let mut b = AlignedBuf::zeroed(COPY);
        file.read_at(&mut b, at as u64)?;
        Superblock::decode(&b)
    }

    /// Reads the first good copy; `NotFound` when there is no such file.
    pub(crate) fn read(storage: &dyn Storage) -> Result<Superblock> {
        let file = storage.open(NAME, OpenMode::ReadOnly, false)?;
        let mut first = None;
        for copy in 0..COPIES {
            match Superblock::read_copy(&*file, copy) {
                Ok(superblock) => return superblock.check_encryption(storage),
                // A later version or feature is no damage: the second copy says the same.
                Err(e) => first = first.or(Some(e)),
            }
        }
        Err(first.unwrap_or(Error::NotFound))
    }
}

/// What is wrong with copies of a superblock that is there, for tools.
pub(crate) fn damaged_copies(storage: &dyn Storage) -> Vec<String> {
    let Ok(file) = storage.open(NAME, OpenMode::ReadOnly, false) else {
        return Vec::new();
    };
    let wrong = |copy| Superblock::read_copy(&*file, copy).err();
    (0..COPIES)
        .filter_map(|copy| wrong(copy).map(|e| format!("copy {copy}: {e}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;

    fn sample() -> Superblock {
        Superblock {
            uuid: [7; 16],
            geometry: Geometry::checked(64 << 20, 1 << 30).unwrap(),
            created_us: 99,
            features: FEATURE_PAGE_MARKS,
            key_check: 0,
        }
    }

    fn sealed(change: impl Fn(&mut [u8])) -> Result<Superblock> {
        let mut b = sample().encode();
        change(&mut b);
        let crc = crc32c::crc32c(&b[12..]);
        put_u32(&mut b, 8, crc);
        Superblock::decode(&b)
    }

    #[test]
    fn round_trip_and_refusals() {
        assert_eq!(sealed(|_| ()), Ok(sample()));
        let newer = sealed(|b| put_u32(b, 12, FORMAT_VERSION + 1)).unwrap_err();
        let text = newer.to_string();
        assert!(matches!(newer, Error::Format(_)), "{text}");
        assert!(
            text.contains(&format!("version {}", FORMAT_VERSION + 1))
                && text.contains(&format!("version {FORMAT_VERSION}"))
        );
        let feature = sealed(|b| put_u64(b, 24, 1 << 41)).unwrap_err().to_string();
        assert!(feature.contains("feature bit 41"), "{feature}");
        assert!(
            sealed(|b| put_u64(b, 16, 1 << 41)).is_ok(),
            "compatible bits are harmless"
        );
        assert!(matches!(
            sealed(|b| put_u32(b, 48, 8192)),
            Err(Error::Format(_))
        ));
        assert!(matches!(
            sealed(|b| put_u64(b, 56, 12345)),
            Err(Error::Format(_))
        ));
        assert!(matches!(
            sealed(|b| put_u64(b, 0, 1)),
            Err(Error::Format(_))
        ));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = Rng::new(3);
        for _ in 0..2000 {
            let mut b = vec![0; rng.below(4097) as usize];
            rng.fill(&mut b);
            assert!(Superblock::decode(&b).is_err());
            if b.len() == COPY {
                put_u64(&mut b, 0, SUPERBLOCK_MAGIC);
                let crc = crc32c::crc32c(&b[12..]);
                put_u32(&mut b, 8, crc);
                let _ = Superblock::decode(&b);
            }
        }
    }
}
