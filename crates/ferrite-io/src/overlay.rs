//! A directory over another one that is only read: what is written to its files goes to a directory of
//! its own, and what was not written is read from below.
//!
//! For a second program that reads a database's pages while the first one runs: it needs to write, too,
//! and nothing of that may reach the files below, or outlive it.
//!
//! Which blocks were written is known in memory alone: the own directory is of no use to a later
//! opening, and begins empty.
//!
//! Invariants: nothing below is changed; a block is read from where it was written last. Files below
//! may change meanwhile: whoever reads through this reads only blocks that stay, so what is beyond the
//! end of a file below reads as zeroes.
//!
//! Locking: one lock for each file's block table, over no call but for a write of a part of a
//! block, which brings the rest of it from below; `gone` and `lock` are leaves.

use std::collections::BTreeSet;

use ferrite_sync::{Arc, Mutex, RwLock};
use ferrite_types::{Error, Result};

use crate::{AlignedBuf, IoStats, LockGuard, OpenMode, Storage, StorageFile, BLOCK_BYTES};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// See the head of the file.
pub struct Overlay {
    below: Arc<dyn Storage>,
    own: Arc<dyn Storage>,
    /// What the names of files from below begin with.
    prefix: &'static str,
    /// Files below that were removed here.
    gone: Mutex<BTreeSet<String>>,
    /// The own directory's, for who asks for it.
    lock: Mutex<Option<LockGuard>>,
}

struct OverlayFile {
    below: Arc<dyn StorageFile>,
    own: Arc<dyn StorageFile>,
    written: RwLock<Written>,
}

#[derive(Default)]
struct Written {
    /// A bit for each block.
    blocks: Vec<u64>,
    len: u64,
}

impl Written {
    fn has(&self, block: u64) -> bool {
        let word = self.blocks.get((block / 64) as usize);
        word.is_some_and(|w| w >> (block % 64) & 1 == 1)
    }

    fn wrote(&mut self, from: u64, until: u64, end: u64) {
        self.add(from, until);
        self.len = self.len.max(end);
        debug_assert!(self.has(from) && self.has(until - 1));
    }

    fn add(&mut self, from: u64, end: u64) {
        assert!(from < end, "no block is written");
        let words = end.div_ceil(64) as usize;
        if self.blocks.len() < words {
            self.blocks.resize(words, 0);
        }
        (from..end).for_each(|b| self.blocks[(b / 64) as usize] |= 1 << (b % 64));
    }
}

impl Overlay {
    /// Files of `below` whose names begin with `prefix`, under those of `own`, which is empty or has
    /// no such files. With `lock`, the lock of `own`, nobody can come in between until it is asked for.
    pub fn new(
        below: Arc<dyn Storage>,
        own: Arc<dyn Storage>,
        prefix: &'static str,
        lock: Option<LockGuard>,
    ) -> Overlay {
        Overlay {
            below,
            own,
            prefix,
            gone: Mutex::new(BTreeSet::new()),
            lock: Mutex::new(lock),
        }
    }

    fn is_below(&self, name: &str) -> Result<bool> {
        Ok(name.starts_with(self.prefix)
            && !self.gone.lock().contains(name)
            && self.below.exists(name)?)
    }
}

impl Storage for Overlay {
    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>> {
        if !self.is_below(name)? {
            return self.own.open(name, mode, direct);
        }
        if mode == OpenMode::CreateNew {
            return Err(Error::Exists);
        }
        let below = self.below.open(name, OpenMode::ReadOnly, direct)?;
        let own = match self.own.open(name, OpenMode::CreateNew, direct) {
            Err(Error::Exists) => {
                return Err(Error::Bug(format!("{name} is opened twice")));
            }
            other => other?,
        };
        let len = below.len()?;
        Ok(Arc::new(OverlayFile {
            below,
            own,
            written: RwLock::new(Written {
                blocks: Vec::new(),
                len,
            }),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.is_below(name)? || self.own.exists(name)?)
    }

    fn remove(&self, name: &str) -> Result<()> {
        if !self.is_below(name)? {
            return self.own.remove(name);
        }
        self.gone.lock().insert(name.to_owned());
        match self.own.remove(name) {
            Err(Error::NotFound) => Ok(()),
            other => other,
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        match self.is_below(from)? || self.is_below(to)? {
            true => Err(Error::Bug(format!("{from} is renamed to {to}"))),
            false => self.own.rename(from, to),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        let mut names: BTreeSet<String> = self.own.list()?.into_iter().collect();
        for name in self.below.list()? {
            if self.is_below(&name)? {
                names.insert(name);
            }
        }
        Ok(names.into_iter().collect())
    }

    fn sync_dir(&self) -> Result<()> {
        self.own.sync_dir()
    }

    fn lock_exclusive(&self) -> Result<LockGuard> {
        match self.lock.lock().take() {
            Some(taken) => Ok(taken),
            None => self.own.lock_exclusive(),
        }
    }

    fn free_bytes(&self) -> Result<u64> {
        self.own.free_bytes()
    }

    fn stats(&self) -> &IoStats {
        self.own.stats()
    }

    fn key_check(&self) -> Option<u64> {
        // Both or none: pages go from one to the other.
        debug_assert!(self.own.key_check() == self.below.key_check());
        self.own.key_check()
    }
}

impl OverlayFile {
    /// Reads from below what is there; the rest is zeroes.
    fn read_below(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = self.below.len()?;
        let there = end.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (first, rest) = buf.split_at_mut(there);
        rest.fill(0);
        match first.is_empty() {
            true => Ok(()),
            false => self.below.read_at(first, offset),
        }
    }

    /// Brings a block of which only a part is written up from below, unless it is here.
    fn bring_up(&self, written: &mut Written, block: u64) -> Result<()> {
        if written.has(block) {
            return Ok(());
        }
        let mut whole = AlignedBuf::zeroed(BLOCK_BYTES);
        self.read_below(&mut whole, block * BLOCK)?;
        self.own.write_at(&whole, block * BLOCK)?;
        written.add(block, block + 1);
        Ok(())
    }
}

impl StorageFile for OverlayFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset + buf.len() as u64;
        let blocks = offset / BLOCK..end.div_ceil(BLOCK);
        let own: Vec<bool> = {
            let written = self.written.read();
            if written.len < end {
                return Err(Error::Corrupt(format!("{} ends before {end}", self.name())));
            }
            blocks.clone().map(|b| written.has(b)).collect()
        };
        let mut at = 0;
        while at < own.len() {
            let n = own[at..].iter().take_while(|o| **o == own[at]).count();
            let from = ((blocks.start + at as u64) * BLOCK).max(offset);
            let until = ((blocks.start + (at + n) as u64) * BLOCK).min(end);
            let part = &mut buf[(from - offset) as usize..(until - offset) as usize];
            match own[at] {
                true => self.own.read_at(part, from)?,
                false => self.read_below(part, from)?,
            }
            at += n;
        }
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let end = offset + buf.len() as u64;
        let (first, last) = (offset / BLOCK, end.div_ceil(BLOCK));
        if offset % BLOCK == 0 && end % BLOCK == 0 {
            self.own.write_at(buf, offset)?;
            self.written.write().wrote(first, last, end);
            return Ok(());
        }
        let mut written = self.written.write();
        self.bring_up(&mut written, first)?;
        self.bring_up(&mut written, last - 1)?;
        self.own.write_at(buf, offset)?;
        written.wrote(first, last, end);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        // Nothing of it outlives this opening.
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.written.read().len)
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        let mut written = self.written.write();
        written.len = written.len.max(offset + len);
        Ok(())
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.written.write().len = len;
        Ok(())
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn name(&self) -> &str {
        self.below.name()
    }

    fn direct_io_active(&self) -> bool {
        self.below.direct_io_active()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimStorage;

    #[test]
    fn any_bytes_are_read_and_written() {
        let (below, own) = (SimStorage::new(3), SimStorage::new(4));
        let mut model: Vec<u8> = (0..5 * BLOCK_BYTES + 100).map(|i| i as u8).collect();
        let file = below.open("store.0", OpenMode::CreateNew, false).unwrap();
        file.write_at(&model, 0).unwrap();
        let view = Overlay::new(Arc::new(below), Arc::new(own), "store.", None);
        let above = view.open("store.0", OpenMode::ReadWrite, false).unwrap();
        let mut rng = ferrite_sync::random::Rng::new(5);
        for round in 0..300 {
            let at = rng.below(model.len() as u64 + 50);
            let len = rng.between(1, 9000) as usize;
            let end = at as usize + len;
            let mut buf = vec![round as u8; len];
            if round % 2 == 0 && end < 8 * BLOCK_BYTES {
                model.resize(model.len().max(end), 0);
                above.write_at(&buf, at).unwrap();
                model[at as usize..end].copy_from_slice(&buf);
            } else if end <= model.len() {
                above.read_at(&mut buf, at).unwrap();
                assert_eq!(buf, model[at as usize..end], "round {round}");
            }
            assert_eq!(above.len().unwrap(), model.len() as u64);
        }
    }

    #[test]
    fn what_is_written_stays_above() {
        let (below, own) = (SimStorage::new(1), SimStorage::new(2));
        let file = below
            .open("store.0000", OpenMode::CreateNew, false)
            .unwrap();
        file.write_at(&[1; 4 * BLOCK_BYTES], 0).unwrap();
        below.open("other", OpenMode::CreateNew, false).unwrap();
        let view = Overlay::new(Arc::new(below.clone()), Arc::new(own), "store.", None);
        assert_eq!(view.list().unwrap(), ["store.0000"]);
        let above = view.open("store.0000", OpenMode::ReadWrite, false).unwrap();
        above.write_at(&[2; BLOCK_BYTES], BLOCK).unwrap();
        above.allocate(4 * BLOCK, BLOCK).unwrap();
        // Below, the end is cut meanwhile.
        file.truncate(3 * BLOCK).unwrap();
        let mut buf = AlignedBuf::zeroed(5 * BLOCK_BYTES);
        above.read_at(&mut buf, 0).unwrap();
        let firsts: Vec<u8> = buf
            .chunks(BLOCK_BYTES)
            .map(|b| b[BLOCK_BYTES - 1])
            .collect();
        assert_eq!(firsts, [1, 2, 1, 0, 0]);
        assert!(above.read_at(&mut buf, BLOCK).is_err(), "beyond the end");
        assert_eq!(
            below.contents("store.0000").unwrap(),
            vec![1; 3 * BLOCK_BYTES]
        );
        let new = view.open("store.0001", OpenMode::CreateNew, false).unwrap();
        new.write_at(&[3; BLOCK_BYTES], 0).unwrap();
        view.remove("store.0000").unwrap();
        assert_eq!(view.list().unwrap(), ["store.0001"]);
        assert!(below.exists("store.0000").unwrap());
    }
}
