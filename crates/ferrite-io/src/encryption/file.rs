//! One encrypted file.
//!
//! Whole sectors of a file that ends with a whole sector, which is how all files of pages and of the
//! log are read and written, are decrypted where they were read to, and encrypted in a buffer of the
//! thread's. Everything else goes through a copy of the units that it touches.
//!
//! Invariants: the units of a file are those of its length (`cipher`): whoever changes a length that is,
//! or becomes, no multiple of a sector encrypts the last unit anew, which is not safe against a crash.
//! Files that are written that way are complete or of no use after one.
//!
//! Locking: `odd`, over such a change, and over every call while the length is odd. Writes of parts of
//! one sector through two handles at the same time are not kept apart.

use std::cell::RefCell;

use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::{Arc, Mutex};
use ferrite_types::{Error, Result};

use super::cipher::{SectorCipher, LEAST, SECTOR};
use crate::pass_on::pass_on_file;
use crate::{AlignedBuf, Descriptor, StorageFile, BLOCK_BYTES};

/// Bytes encrypted and written at once.
const CHUNK: usize = 256 << 10;

thread_local! {
    static CIPHERTEXT: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::zeroed(0));
}

/// See the head of the file.
pub(super) struct EncryptedFile {
    inner: Arc<dyn StorageFile>,
    cipher: Arc<SectorCipher>,
    identity: u64,
    /// The length is a multiple of a sector.
    is_even: AtomicBool,
    odd: Mutex<()>,
}

const fn is_whole(n: u64) -> bool {
    n % SECTOR as u64 == 0
}

/// Where the unit begins that byte `at` of a file of `len` bytes is in.
fn unit_start(len: u64, at: u64) -> u64 {
    let sector = at / SECTOR as u64;
    let last = len.saturating_sub(LEAST as u64) / SECTOR as u64;
    sector.min(last) * SECTOR as u64
}

/// Where it ends.
fn unit_end(len: u64, at: u64) -> u64 {
    let next = unit_start(len, at) + SECTOR as u64;
    match next + LEAST as u64 > len {
        true => len,
        false => next,
    }
}

impl EncryptedFile {
    pub(super) fn new(
        inner: Arc<dyn StorageFile>,
        cipher: Arc<SectorCipher>,
        identity: u64,
    ) -> Result<EncryptedFile> {
        let is_even = AtomicBool::new(is_whole(inner.len()?));
        Ok(EncryptedFile {
            inner,
            cipher,
            identity,
            is_even,
            odd: Mutex::new(()),
        })
    }

    fn is_even(&self) -> bool {
        self.is_even.load(Ordering::Acquire)
    }

    fn decrypt(&self, bytes: &mut [u8], at: u64) {
        debug_assert!(is_whole(at), "a unit begins at {at}");
        let sector = at / SECTOR as u64;
        self.cipher.decrypt(bytes, self.identity, sector);
    }

    /// Encrypts and writes units, chunk by chunk.
    fn write_units(&self, bytes: &[u8], at: u64) -> Result<()> {
        debug_assert!(is_whole(at), "a unit begins at {at}");
        CIPHERTEXT.with_borrow_mut(|buf| {
            let most = bytes.len().min(CHUNK + SECTOR);
            if buf.len() < most {
                *buf = AlignedBuf::zeroed(most.next_multiple_of(BLOCK_BYTES));
            }
            let mut done = 0;
            while done < bytes.len() {
                let left = bytes.len() - done;
                let n = if left <= CHUNK + SECTOR { left } else { CHUNK };
                let part = &mut buf[..n];
                part.copy_from_slice(&bytes[done..done + n]);
                let here = at + done as u64;
                let sector = here / SECTOR as u64;
                self.cipher.encrypt(part, self.identity, sector);
                self.inner.write_at(part, here)?;
                done += n;
            }
            Ok(())
        })
    }

    /// Decrypts the units of a file of `len` bytes from `start` on until `end`.
    fn read_units(&self, start: u64, end: u64, len: u64) -> Result<Vec<u8>> {
        debug_assert!(end <= len && unit_start(len, start) == start);
        let mut bytes = vec![0; (end - start) as usize];
        if !bytes.is_empty() {
            self.inner.read_at(&mut bytes, start)?;
            self.decrypt(&mut bytes, start);
        }
        Ok(bytes)
    }

    fn read_part(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let (len, end) = (self.inner.len()?, offset + buf.len() as u64);
        if end > len || buf.is_empty() {
            // Says it in its own words.
            return self.inner.read_at(buf, offset);
        }
        let start = unit_start(len, offset);
        let units = self.read_units(start, unit_end(len, end - 1), len)?;
        let from = (offset - start) as usize;
        buf.copy_from_slice(&units[from..from + buf.len()]);
        Ok(())
    }

    fn write_part(&self, buf: &[u8], offset: u64) -> Result<()> {
        let len = self.inner.len()?;
        if offset > len {
            self.change_len(offset, || self.inner.truncate(offset))?;
        }
        let len = len.max(offset);
        let end = offset + buf.len() as u64;
        let new_len = len.max(end);
        // Units of the old length, of which some may become others.
        let start = match new_len > len && len > 0 {
            true => unit_start(len, len - 1).min(unit_start(new_len, offset)),
            false => unit_start(new_len, offset),
        };
        let until = unit_end(new_len, end - 1);
        let mut units = match start < len {
            true => self.read_units(start, until.min(len), len)?,
            false => Vec::new(),
        };
        units.resize((until - start) as usize, 0);
        let from = (offset - start) as usize;
        units[from..from + buf.len()].copy_from_slice(buf);
        self.write_units(&units, start)?;
        self.is_even.store(is_whole(new_len), Ordering::Release);
        Ok(())
    }

    /// Makes the file `new_len` bytes long with `change`, which adds zeros or cuts; the last units, before and after,
    /// are encrypted anew.
    fn change_len(&self, new_len: u64, change: impl Fn() -> Result<()>) -> Result<()> {
        let len = self.inner.len()?;
        let kept = len.min(new_len);
        let start = match kept {
            0 => 0,
            kept => unit_start(len, kept - 1).min(unit_start(new_len, kept - 1)),
        };
        let mut units = match kept {
            0 => Vec::new(),
            kept => self.read_units(start, unit_end(len, kept - 1), len)?,
        };
        change()?;
        if kept > 0 {
            let until = unit_end(new_len, kept - 1);
            units.resize((kept - start) as usize, 0);
            units.resize((until - start) as usize, 0);
            self.write_units(&units, start)?;
        }
        self.is_even.store(is_whole(new_len), Ordering::Release);
        debug_assert!(self.inner.len().is_ok_and(|len| len == new_len));
        Ok(())
    }
}

impl StorageFile for EncryptedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.is_even() && is_whole(offset | buf.len() as u64) {
            self.inner.read_at(buf, offset)?;
            self.decrypt(buf, offset);
            return Ok(());
        }
        let _odd = self.odd.lock();
        self.read_part(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if buf.is_empty() {
            return self.inner.write_at(buf, offset);
        }
        if self.is_even() && is_whole(offset | buf.len() as u64) {
            return self.write_units(buf, offset);
        }
        let _odd = self.odd.lock();
        self.write_part(buf, offset)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let end = offset + len;
        if self.is_even() && is_whole(end) {
            return self.inner.allocate(offset, len);
        }
        let _odd = self.odd.lock();
        match end > self.inner.len()? {
            true => self.change_len(end, || self.inner.allocate(offset, len)),
            false => self.inner.allocate(offset, len),
        }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        if self.is_even() && is_whole(len) {
            return self.inner.truncate(len);
        }
        let _odd = self.odd.lock();
        self.change_len(len, || self.inner.truncate(len))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        // Of whole sectors: the rest of another would no longer be a unit.
        let start = offset.next_multiple_of(SECTOR as u64);
        let end = (offset + len) / SECTOR as u64 * SECTOR as u64;
        let last = unit_start(self.inner.len()?, u64::MAX);
        let end = if self.is_even() { end } else { end.min(last) };
        match start < end {
            true => self.inner.punch_hole(start, end - start),
            false => Ok(()),
        }
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        // Reads past this one are of whole sectors (`decode`), which an odd file may not have.
        self.inner.descriptor().filter(|_| self.is_even())
    }

    fn decode(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if !is_whole(offset | buf.len() as u64) {
            let text = format!("{} bytes at {offset} of {}", buf.len(), self.name());
            return Err(Error::Bug(text));
        }
        self.decrypt(buf, offset);
        Ok(())
    }

    pass_on_file!(sync_data, len, name, direct_io_active);
}
