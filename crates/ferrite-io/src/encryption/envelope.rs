//! The file `encryption`: the data key, encrypted with a key of the server's.
//!
//! Layout (512 bytes, little-endian): 0 magic, 8 version, 12 CRC32C of bytes 16..512, 16 number of
//! the server's key, 20 its version, 24 nonce (12), 36 the encrypted data key (64) and its tag
//! (16), 116 zeros. The key that encrypts is HKDF-SHA-256 of the server's; AES-256-GCM, with bytes
//! 16..24 as what is authenticated beside.
//!
//! Invariant: the file appears under its name complete or not at all (written aside, synced,
//! renamed), so a rotation that is cut off leaves the old one. Locking: none.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::Aes256Gcm;
use ferrite_types::{Error, Result};
use hkdf::Hkdf;
use sha2::Sha256;

use zeroize::Zeroizing;

use super::cipher::DataKey;
use super::KeyRef;
use crate::{AlignedBuf, OpenMode, Storage};

/// The name of the file.
pub const NAME: &str = "encryption";
const ASIDE: &str = "encryption.new";
/// "FERRCRYP".
const MAGIC: u64 = 0x5059_5243_5252_4546;
const VERSION: u32 = 1;
const FILE_BYTES: usize = 512;
const KEY_BYTES: usize = 64;
/// What the key is derived for, so that the same key used for something else is another one.
const PURPOSE: &[u8] = b"Ferrite data key, version 1";

/// What the file says.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Envelope {
    by: KeyRef,
    nonce: [u8; 12],
    sealed: [u8; KEY_BYTES],
    tag: [u8; 16],
}

fn derived(server_key: &Zeroizing<Vec<u8>>) -> Result<Aes256Gcm> {
    if !matches!(server_key.len(), 16 | 24 | 32) {
        let text = format!("an encryption key of {} bytes", server_key.len());
        return Err(Error::BadConfig(text));
    }
    let mut key = Zeroizing::new([0; 32]);
    let expanded = Hkdf::<Sha256>::new(None, server_key).expand(PURPOSE, &mut *key);
    expanded.map_err(|e| Error::Bug(format!("hkdf: {e}")))?;
    Ok(Aes256Gcm::new(&(*key).into()))
}

fn authenticated(by: KeyRef) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&by.id.to_le_bytes());
    bytes[4..].copy_from_slice(&by.version.to_le_bytes());
    bytes
}

impl Envelope {
    pub(super) fn wrapped_by(&self) -> KeyRef {
        self.by
    }

    pub(super) fn seal(
        key: &DataKey,
        by: KeyRef,
        server_key: &Zeroizing<Vec<u8>>,
    ) -> Result<Envelope> {
        let mut nonce = [0; 12];
        getrandom::fill(&mut nonce).map_err(|e| Error::Io(format!("getrandom: {e}")))?;
        let mut sealed = key.0;
        let cipher = derived(server_key)?;
        let tag = cipher
            .encrypt_inout_detached(
                &nonce.into(),
                &authenticated(by),
                sealed.as_mut_slice().into(),
            )
            .map_err(|e| Error::Bug(format!("AES-GCM: {e}")))?;
        let envelope = Envelope {
            by,
            nonce,
            sealed,
            tag: tag.into(),
        };
        assert!(envelope.open(server_key).is_ok_and(|back| back.0 == key.0));
        Ok(envelope)
    }

    pub(super) fn open(&self, server_key: &Zeroizing<Vec<u8>>) -> Result<DataKey> {
        let mut key = DataKey(self.sealed);
        let cipher = derived(server_key)?;
        let opened = cipher.decrypt_inout_detached(
            &self.nonce.into(),
            &authenticated(self.by),
            key.0.as_mut_slice().into(),
            &self.tag.into(),
        );
        opened.map_err(|_| {
            Error::BadConfig(format!(
                "encryption key {} (version {}) is not the one with which the database was encrypted",
                self.by.id, self.by.version
            ))
        })?;
        Ok(key)
    }

    fn encode(&self) -> [u8; FILE_BYTES] {
        let mut b = [0; FILE_BYTES];
        b[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[16..24].copy_from_slice(&authenticated(self.by));
        b[24..36].copy_from_slice(&self.nonce);
        b[36..100].copy_from_slice(&self.sealed);
        b[100..116].copy_from_slice(&self.tag);
        let crc = crc32c::crc32c(&b[16..]);
        b[12..16].copy_from_slice(&crc.to_le_bytes());
        debug_assert!(Envelope::decode(&b).is_ok_and(|read| read == *self));
        b
    }

    fn decode(b: &[u8]) -> Result<Envelope> {
        fn part<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
            b[at..at + N].try_into().expect("a part of a whole file")
        }
        if b.len() != FILE_BYTES || part(b, 0) != MAGIC.to_le_bytes() {
            return Err(Error::Corrupt(format!("{NAME}: not a file of Ferrite's")));
        }
        let version = u32::from_le_bytes(part(b, 8));
        if version != VERSION {
            return Err(Error::Format(format!(
                "{NAME}: version {version}; this program knows version {VERSION}"
            )));
        }
        if crc32c::crc32c(&b[16..]) != u32::from_le_bytes(part(b, 12)) {
            return Err(Error::Corrupt(format!("{NAME}: checksum differs")));
        }
        Ok(Envelope {
            by: KeyRef {
                id: u32::from_le_bytes(part(b, 16)),
                version: u32::from_le_bytes(part(b, 20)),
            },
            nonce: part(b, 24),
            sealed: part(b, 36),
            tag: part(b, 100),
        })
    }

    /// None: there is no such file.
    pub(super) fn read(storage: &dyn Storage) -> Result<Option<Envelope>> {
        let file = match storage.open(NAME, OpenMode::ReadOnly, false) {
            Err(Error::NotFound) => return Ok(None),
            other => other?,
        };
        let len = file.len()?;
        if len != FILE_BYTES as u64 {
            return Err(Error::Corrupt(format!("{NAME}: {len} bytes")));
        }
        let mut bytes = [0; FILE_BYTES];
        file.read_at(&mut bytes, 0)?;
        Envelope::decode(&bytes).map(Some)
    }

    /// Replaces the file, in one step; durable.
    pub(super) fn write(&self, storage: &dyn Storage) -> Result<()> {
        Envelope::remove_aside(storage)?;
        let written = self.write_aside(storage);
        if written.is_err() {
            // It would be in the way of whoever wants an empty directory.
            let _ = storage.remove(ASIDE);
        }
        written
    }

    pub(super) fn remove_aside(storage: &dyn Storage) -> Result<()> {
        match storage.remove(ASIDE) {
            Err(Error::NotFound) => Ok(()),
            other => other,
        }
    }

    fn write_aside(&self, storage: &dyn Storage) -> Result<()> {
        let file = storage.open(ASIDE, OpenMode::CreateNew, false)?;
        let bytes = AlignedBuf::copy_of(&self.encode());
        file.write_at(&bytes[..FILE_BYTES], 0)?;
        file.sync_data()?;
        ferrite_sync::kill_point!("io.encryption_before_rename");
        storage.rename(ASIDE, NAME)?;
        storage.sync_dir()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimStorage;

    const BY: KeyRef = KeyRef { id: 5, version: 7 };

    fn server_key(byte: u8, bytes: usize) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(vec![byte; bytes])
    }

    #[test]
    fn only_the_right_key_opens_it() {
        let key = DataKey(std::array::from_fn(|i| i as u8));
        let envelope = Envelope::seal(&key, BY, &server_key(1, 32)).unwrap();
        assert_eq!(envelope.open(&server_key(1, 32)).unwrap().0, key.0);
        let wrong = envelope.open(&server_key(2, 32)).err().unwrap().to_string();
        assert!(wrong.contains("key 5 (version 7)"), "{wrong}");
        assert!(envelope.open(&server_key(1, 31)).is_err());
        let mut other = envelope.clone();
        other.by.version = 8;
        assert!(
            other.open(&server_key(1, 32)).is_err(),
            "under another number"
        );
    }

    #[test]
    fn a_damaged_file_is_told() {
        let disk = SimStorage::new(1);
        assert!(Envelope::read(&disk).unwrap().is_none());
        let key = DataKey::generate().unwrap();
        let envelope = Envelope::seal(&key, BY, &server_key(3, 16)).unwrap();
        envelope.write(&disk).unwrap();
        envelope.write(&disk).unwrap();
        assert!(Envelope::read(&disk).unwrap() == Some(envelope.clone()));
        let bytes = envelope.encode();
        for at in 0..FILE_BYTES {
            let mut b = bytes;
            b[at] ^= 4;
            assert!(Envelope::decode(&b).is_err(), "byte {at}");
        }
        assert!(Envelope::decode(&bytes[..511]).is_err());
    }
}
