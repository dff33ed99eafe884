//! The cipher of an encrypted file: AES-256 in XTS mode (IEEE 1619), as full-disk encryption has it.
//!
//! A unit of encryption is a sector of 512 bytes: what a disk writes as a whole, so a torn write
//! leaves each unit old or new. The tweak is the file's identity and the sector's number. A file
//! whose length is no multiple of that has a last unit of 16 to 527 bytes; one shorter than 16
//! bytes is as it is.
//!
//! A unit of zeros stays zeros, in both directions: space that was reserved, never written, punched
//! or scrubbed reads as zeros. Who sees the files sees which sectors are zeros.
//!
//! The same plaintext in the same sector gives the same ciphertext: who sees a file twice sees
//! which 16 bytes have changed. Nothing is authenticated beyond the checksums of what is encrypted:
//! no protection from somebody who can write the files. Both are so with full-disk encryption.
//!
//! Locking: none.

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};
use ferrite_types::{Error, Result};
use hkdf::Hkdf;
use sha2::Sha256;
use xts_mode::Xts128;
use zeroize::Zeroize;

/// Bytes of a unit.
pub(super) const SECTOR: usize = 512;
/// What the number that tells a key from others is derived for.
const CHECK: &[u8] = b"Ferrite key check, version 1";
/// The shortest that the mode can encrypt.
pub(super) const LEAST: usize = 16;

/// 512 random bits: two keys of AES-256.
pub(super) struct DataKey(pub(super) [u8; 64]);

impl DataKey {
    pub(super) fn generate() -> Result<DataKey> {
        let mut key = DataKey([0; 64]);
        getrandom::fill(&mut key.0).map_err(|e| Error::Io(format!("getrandom: {e}")))?;
        Ok(key)
    }
}

impl DataKey {
    /// Tells the key from others and nothing else of it; never 0.
    fn check(&self) -> u64 {
        let mut bytes = [0; 8];
        let expanded = Hkdf::<Sha256>::new(None, &self.0).expand(CHECK, &mut bytes);
        expanded.expect("8 bytes are not too many");
        u64::from_le_bytes(bytes).max(1)
    }
}

impl Drop for DataKey {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// What is to be done with a unit.
#[derive(Clone, Copy)]
enum Direction {
    Encrypt,
    Decrypt,
}

/// Encrypts and decrypts units.
pub(super) struct SectorCipher {
    /// For the data, of whole sectors.
    data: Aes256,
    /// For the tweak of a unit.
    tweak: Aes256,
    /// For units of other lengths, whose ends it handles.
    other: Xts128<Aes256>,
    key_check: u64,
}

const BLOCK: usize = 16;

impl SectorCipher {
    pub(super) fn new(key: &DataKey) -> SectorCipher {
        let (data, tweak) = key.0.split_at(32);
        assert!(data != tweak, "two halves of a key are equal");
        let half = |bytes: &[u8]| {
            let bytes: [u8; 32] = bytes.try_into().expect("half of 64 bytes");
            Aes256::new(&Array(bytes))
        };
        SectorCipher {
            data: half(data),
            tweak: half(tweak),
            other: Xts128::new(half(data), half(tweak)),
            key_check: key.check(),
        }
    }

    /// Tells the key from others; never 0.
    pub(super) fn key_check(&self) -> u64 {
        self.key_check
    }

    /// Encrypts whole sectors, the last of which may be longer or shorter, in place.
    pub(super) fn encrypt(&self, bytes: &mut [u8], identity: u64, first_sector: u64) {
        self.each(bytes, identity, first_sector, Direction::Encrypt);
    }

    /// The reverse.
    pub(super) fn decrypt(&self, bytes: &mut [u8], identity: u64, first_sector: u64) {
        self.each(bytes, identity, first_sector, Direction::Decrypt);
    }

    fn each(&self, mut bytes: &mut [u8], identity: u64, first_sector: u64, direction: Direction) {
        let mut sector = first_sector;
        while bytes.len() >= LEAST {
            let here = match bytes.len() {
                len if len < SECTOR + LEAST => len,
                _ => SECTOR,
            };
            let (unit, rest) = bytes.split_at_mut(here);
            if !is_zero(unit) {
                let tweak = u128::from(identity) << 64 | u128::from(sector);
                self.unit(unit, tweak.to_le_bytes(), direction);
                // What is read as zeros must have been zeros: 1 in 2^128 for the shortest unit.
                let encrypts = matches!(direction, Direction::Encrypt);
                assert!(!encrypts || !is_zero(unit), "ciphertext of zeros");
            }
            bytes = rest;
            sector += 1;
        }
        debug_assert!(bytes.is_empty() || sector == first_sector, "a short unit");
    }

    fn unit(&self, unit: &mut [u8], tweak: [u8; BLOCK], direction: Direction) {
        match direction {
            _ if unit.len() == SECTOR => self.sector(unit, tweak, direction),
            Direction::Encrypt => self.other.encrypt_sector(unit, Array(tweak)),
            Direction::Decrypt => self.other.decrypt_sector(unit, Array(tweak)),
        }
    }

    /// The blocks of a sector together, which the processor does eight times as fast as one after the other.
    fn sector(&self, sector: &mut [u8], tweak: [u8; BLOCK], direction: Direction) {
        let tweaks = self.tweaks(tweak);
        let (blocks, rest) = Block::slice_as_chunks_mut(sector);
        debug_assert!(rest.is_empty() && blocks.len() == tweaks.len());
        mix(blocks, &tweaks);
        match direction {
            Direction::Encrypt => self.data.encrypt_blocks(blocks),
            Direction::Decrypt => self.data.decrypt_blocks(blocks),
        }
        mix(blocks, &tweaks);
    }

    /// That of each block: the encrypted tweak, times x for each next one, modulo x^128 + x^7 + x^2 + x + 1.
    fn tweaks(&self, tweak: [u8; BLOCK]) -> [u128; SECTOR / BLOCK] {
        let mut first = Array(tweak);
        self.tweak.encrypt_block(&mut first);
        let mut next = u128::from_le_bytes(first.0);
        std::array::from_fn(|_| {
            let this = next;
            next = this << 1 ^ (0x87 & 0u128.wrapping_sub(this >> 127));
            this
        })
    }
}

fn mix(blocks: &mut [Block], tweaks: &[u128]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        block.0 = (u128::from_le_bytes(block.0) ^ tweak).to_le_bytes();
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|b| *b == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher() -> SectorCipher {
        SectorCipher::new(&DataKey(std::array::from_fn(|i| i as u8)))
    }

    /// IEEE 1619-2007, annex B, vector 10: AES-256, a sector of 512 bytes.
    #[test]
    fn the_standards_vector() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len() / 2)
                .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
                .collect()
        };
        let mut key = [0; 64];
        key[..32].copy_from_slice(&hex(
            "2718281828459045235360287471352662497757247093699959574966967627",
        ));
        key[32..].copy_from_slice(&hex(
            "3141592653589793238462643383279502884197169399375105820974944592",
        ));
        let plain: Vec<u8> = (0..SECTOR).map(|i| i as u8).collect();
        let mut bytes = plain.clone();
        let cipher = SectorCipher::new(&DataKey(key));
        cipher.encrypt(&mut bytes, 0, 0xff);
        assert_eq!(
            bytes[..32],
            hex("1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b")
        );
        cipher.decrypt(&mut bytes, 0, 0xff);
        assert_eq!(bytes, plain);
    }

    /// Another implementation, block by block.
    #[test]
    fn sectors_are_as_the_library_has_them() {
        let cipher = cipher();
        for sector in [0, 1, 77, 1 << 40] {
            let mut bytes: Vec<u8> = (0..SECTOR)
                .map(|i| ((i as u64 * 31) ^ sector) as u8)
                .collect();
            let mut other = bytes.clone();
            cipher.encrypt(&mut bytes, 5, sector);
            let tweak = u128::from(5u64) << 64 | u128::from(sector);
            cipher
                .other
                .encrypt_sector(&mut other, Array(tweak.to_le_bytes()));
            assert_eq!(bytes, other, "sector {sector}");
            cipher.decrypt(&mut bytes, 5, sector);
            cipher
                .other
                .decrypt_sector(&mut other, Array(tweak.to_le_bytes()));
            assert_eq!(bytes, other, "sector {sector} decrypted");
        }
    }

    #[test]
    fn any_length_comes_back() {
        let cipher = cipher();
        for len in (0..80).chain(500..540).chain(1000..1100) {
            let plain: Vec<u8> = (0..len).map(|i| (i * 7 + 1) as u8).collect();
            let mut bytes = plain.clone();
            cipher.encrypt(&mut bytes, 3, 9);
            assert_eq!(bytes == plain, len < LEAST, "{len} bytes");
            let mut other = bytes.clone();
            cipher.decrypt(&mut bytes, 3, 9);
            assert_eq!(bytes, plain, "{len} bytes");
            cipher.decrypt(&mut other, 4, 9);
            assert_eq!(other == plain, len < LEAST, "of another file");
        }
    }

    #[test]
    fn zeros_stay_zeros_sector_by_sector() {
        let cipher = cipher();
        let mut bytes = vec![0; 3 * SECTOR];
        bytes[SECTOR] = 1;
        cipher.encrypt(&mut bytes, 0, 0);
        let zeros: Vec<bool> = bytes.chunks(SECTOR).map(is_zero).collect();
        assert_eq!(zeros, [true, false, true]);
    }
}
