//! What a hot backup asks of the store: a pin, the checkpoint's files, blobs as they are on disk,
//! and, for a restore, store files laid out anew.
//!
//! # The pin
//! A backup's point in time is a log position. What the directory names at that position, the
//! *pinned map*, must stay readable until it was copied. A blob that is in the pinned map and
//! leaves it does so by a record behind the pin, so it is retired with a position behind the pin;
//! and such blobs stay in the queue of retired ones while there is a pin ([`Store::pin`]). Nothing
//! else is needed: free space is used, given back and scrubbed as ever.
//!
//! # Generations
//! An increment has the blobs that the earlier backup's pinned map does not have at the same place.
//! A place may have been used again for the same page in between. So each block remembers in which
//! generation blobs last took it; a generation begins with each pin. All blobs of a block took it
//! at once: no block is written to while a blob lives in it. A blob of the earlier pinned map
//! cannot be overwritten before the earlier pin is gone, thus not before the earlier backup's
//! generation. Generations are not durable: they count in one opening of the store.
//!
//! # Blocks
//! Files are read and written in whole blocks, and several blobs may lie in one. A pinned blob is in
//! use until it was copied, so nothing is written to its blocks meanwhile. A restore gets blobs one
//! by one and puts them together to blocks ([`Layout`]).
//!
//! What is on disk if we die: nothing of a pin.
//!
//! Locking: the space lock, the retired queue and the checkpoint state, each alone. The checkpoint
//! state is held while its files are copied.

use ferrite_types::{Error, IndexId, Lsn, PageId, Result};

use crate::blob::{self, StoredBlob};
use crate::checkpoint;
use crate::deps::{AlignedBuf, Arc, OpenMode, Ordering, Storage};
use crate::files::Files;
use crate::map;
use crate::page_delta;
use crate::retired::PinOwner;
use crate::space::grown_end;
use crate::store::Store;
use crate::superblock::{self, Superblock};
use crate::word::{Location, BLOCK_BYTES, BLOCK_GRANULES, GRANULE_BYTES};

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// A moment in the life of one opening of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Generation {
    /// Which opening.
    pub opening: u64,
    /// Number in it, from 1.
    pub number: u8,
}

/// A file that was copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiedFile {
    /// Name in both places.
    pub name: String,
    /// Bytes of it.
    pub bytes: u64,
    /// Checksum of them.
    pub crc: u32,
}

impl Store {
    /// From now on no blob that was retired behind `at` becomes free space, until
    /// [`unpin`](Self::unpin). One pin at a time of each owner. The pinned position is any that the
    /// log reaches after this call.
    pub fn pin(&self, owner: PinOwner, at: Lsn) {
        assert!(at < Lsn::MAX, "a pin behind all");
        self.retired.set_pin(owner, at);
    }

    /// The pin is gone; [`reclaim`](Self::reclaim) frees what waited. Does nothing without one.
    pub fn unpin(&self, owner: PinOwner) {
        self.retired.set_pin(owner, Lsn::MAX);
    }

    /// Begins a new generation.
    pub fn begin_generation(&self) -> Generation {
        let number = self.runs.lock().next_generation();
        assert!(number > 0, "generations count from 1");
        Generation {
            opening: self.opening,
            number,
        }
    }

    /// Was the place written to since that generation began? True when that is not known.
    pub fn written_since(&self, at: Location, since: Generation) -> bool {
        assert!(!at.is_none() && since.number > 0, "{at:?} since {since:?}");
        since.opening != self.opening
            || (self.runs.lock()).taken_since(at.granule(), at.granules(), since.number)
    }

    /// Copies the superblock and the files of the last checkpoint.
    ///
    /// # Errors
    /// `Io`, `DiskFull`; `Corrupt` when a file is not what was written.
    pub fn copy_checkpoint(&self, to: &dyn Storage) -> Result<Vec<CopiedFile>> {
        let slots = self.slots.lock();
        assert!(slots.slot < 2 && slots.map_slot < 2, "no such slot");
        let from = &*slots.storage;
        let name = checkpoint::name(slots.slot);
        let bytes = checkpoint::used_bytes(from, slots.slot)?;
        Ok(vec![
            copy_file(from, to, superblock::NAME, u64::MAX)?,
            copy_file(from, to, &name, bytes)?,
            copy_file(from, to, &map::name(slots.map_slot), slots.map_bytes)?,
        ])
    }

    /// Reads whole blocks as they are ([`Location::blocks`]).
    ///
    /// # Errors
    /// `Corrupt` when the files end before; `Io`.
    pub fn read_blocks(&self, granule: u64, buf: &mut [u8]) -> Result<()> {
        let whole = granule % u64::from(BLOCK_GRANULES) == 0 && buf.len() % BLOCK_BYTES == 0;
        assert!(whole, "{} bytes at granule {granule}", buf.len());
        self.files.read(granule, buf)
    }

    /// Granules from `granule` on that lie in the same file.
    pub fn granules_to_file_end(&self, granule: u64) -> u64 {
        debug_assert!(granule < self.runs.lock().total(), "granule {granule}");
        let per_file = self.superblock.geometry.file_bytes / GRANULE_BYTES as u64;
        per_file - granule % per_file
    }

    /// Checks a blob that was read from `at`.
    ///
    /// # Errors
    /// `Corrupt` naming page, file and offset.
    pub fn check_blob(&self, page: PageId, at: Location, bytes: &[u8]) -> Result<StoredBlob> {
        match blob::parse_at(bytes, self.superblock.tag(), page, at) {
            Ok((header, _)) => Ok(StoredBlob {
                lsn: header.lsn,
                crc: blob::stored_checksum(bytes),
            }),
            Err(what) => Err(self.bad_page(page, at, what)),
        }
    }

    /// Calls `each` with every blob of a map that was loaded and brought up to date: its page, and
    /// where it is; of a page with a delta with both, the delta last. Pages whose index was dropped
    /// are left out.
    ///
    /// # Errors
    /// `Corrupt`: a page belongs to no index. What `each` returns.
    pub fn each_stored(&self, each: &mut dyn FnMut(PageId, Location) -> Result<()>) -> Result<()> {
        for n in 1..self.directory.end() {
            let page = PageId(n);
            let Some(at) = self.directory.get(page).as_location() else {
                continue;
            };
            if at.is_none() {
                continue;
            }
            if self.directory.owner(page) != IndexId(0) {
                each(page, at)?;
                let delta = self.directory.delta(page);
                if !delta.is_none() && !ferrite_sync::mutant!("backup.deltas_left_out") {
                    each(page, delta)?;
                }
            } else if !self.drop_replayed.load(Ordering::Acquire) {
                let place = self.superblock.geometry.describe(at.granule());
                return Err(Error::Corrupt(format!(
                    "map: page {page} at {place} belongs to no index"
                )));
            }
        }
        Ok(())
    }
}

/// Copies the first `most` bytes of a file, or all of it; synced.
fn copy_file(from: &dyn Storage, to: &dyn Storage, name: &str, most: u64) -> Result<CopiedFile> {
    let source = from.open(name, OpenMode::ReadOnly, false)?;
    let target = to.open(name, OpenMode::CreateNew, false)?;
    let bytes = source.len()?.min(most);
    assert!(bytes > 0, "{name} is empty");
    let mut buf = AlignedBuf::zeroed(COPY_BYTES);
    let (mut at, mut crc) = (0, 0);
    while at < bytes {
        let n = (bytes - at).min(COPY_BYTES as u64) as usize;
        source.read_at(&mut buf[..n], at)?;
        crc = crc32c::crc32c_append(crc, &buf[..n]);
        target.write_at(&buf[..n], at)?;
        at += n as u64;
    }
    target.sync_data()?;
    Ok(CopiedFile {
        name: name.to_owned(),
        bytes,
        crc,
    })
}

/// Store files that a restore fills; see [`Layout::finish`].
///
/// Blobs that follow each other in the store are put together in `buf` and written in whole blocks.
/// Where one comes to lie in a block that was written before, that is read first; behind `high`
/// there are zeroes, since the files are new.
pub struct Layout {
    storage: Arc<dyn Storage>,
    files: Files,
    superblock: Superblock,
    /// One past the last granule of the files.
    end: u64,
    /// Blocks from granule `begin` on, not written yet: so many granules.
    buf: AlignedBuf,
    begin: u64,
    filled: u64,
    /// One past the last granule that was written.
    high: u64,
}

impl Layout {
    /// Files for a database whose superblock and other files are in `from`; `to` has none of its
    /// files yet.
    ///
    /// # Errors
    /// `Corrupt`, `Format`: the superblock in `from`. `Io`.
    pub fn begin(from: &dyn Storage, to: Arc<dyn Storage>) -> Result<Layout> {
        let superblock = Superblock::read(from)?.in_storage(&*to);
        let (files, end) = Files::open(&to, superblock.geometry, false, OpenMode::ReadWrite)?;
        if files.count() > 0 || to.exists(superblock::NAME)? {
            return Err(Error::InUse("there is a database already".into()));
        }
        assert!(end == 0, "{end} granules in no file");
        Ok(Layout {
            storage: to,
            files,
            superblock,
            end,
            buf: AlignedBuf::zeroed(COPY_BYTES),
            begin: 0,
            filled: 0,
            high: 0,
        })
    }

    /// Puts a blob where the map says it is. The files grow as needed. What is put in the order of
    /// the store is written in long pieces.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub fn put(&mut self, at: Location, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() == at.bytes(), "{} bytes at {at:?}", bytes.len());
        let (first, last) = at.blocks();
        let segment = u64::from(self.superblock.geometry.segment_granules());
        assert!(
            first / segment == (last - 1) / segment,
            "{at:?} crosses segments"
        );
        self.reach(last)?;
        if !self.follows(first, last) {
            self.flush()?;
            self.begin = first;
        }
        self.open_blocks(last)?;
        let from = (at.granule() - self.begin) as usize * GRANULE_BYTES;
        self.buf[from..from + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Can these blocks be written together with those in the buffer?
    fn follows(&self, first: u64, last: u64) -> bool {
        let segment = u64::from(self.superblock.geometry.segment_granules());
        debug_assert!(first < last, "blocks {first} to {last}");
        self.filled > 0
            && (self.begin..=self.begin + self.filled).contains(&first)
            && (last - self.begin) as usize * GRANULE_BYTES <= self.buf.len()
            && self.begin / segment == (last - 1) / segment
    }

    /// The buffer has the blocks up to `last`, as they are in the files.
    fn open_blocks(&mut self, last: u64) -> Result<()> {
        let from = self.begin + self.filled;
        if last <= from {
            return Ok(());
        }
        let bytes = |granules: u64| granules as usize * GRANULE_BYTES;
        let fresh = &mut self.buf[bytes(self.filled)..bytes(last - self.begin)];
        match from < self.high {
            true => self.files.read(from, fresh)?,
            false => fresh.fill(0),
        }
        self.filled = last - self.begin;
        assert!(bytes(self.filled) % BLOCK_BYTES == 0, "part of a block");
        Ok(())
    }

    /// Writes what is in the buffer.
    fn flush(&mut self) -> Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        let written = self.begin + self.filled;
        assert!(written <= self.end, "{written} beyond {}", self.end);
        let bytes = self.filled as usize * GRANULE_BYTES;
        self.files.write(self.begin, &self.buf[..bytes])?;
        self.high = self.high.max(written);
        self.filled = 0;
        Ok(())
    }

    /// Makes the files so long that granules up to `last` are in them. They are holes until they are written: a
    /// database takes no more than where it came from, if that had given space back to the file system.
    fn reach(&mut self, last: u64) -> Result<()> {
        let geometry = self.superblock.geometry;
        while self.end < last {
            let most = grown_end(&geometry, self.end);
            self.files.lengthen(self.end, most)?;
            self.end = most;
            debug_assert!(self.end % geometry.step_granules() == 0, "{}", self.end);
        }
        Ok(())
    }

    /// All that was put is durable, and the files end behind it: what a store has ahead of need it allocates.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        let step = self.superblock.geometry.step_granules();
        let end = self.high.next_multiple_of(step);
        assert!(end <= self.end, "{end} is beyond the files");
        if end < self.end {
            self.files.cut(end)?;
            self.end = end;
        }
        (0..self.files.count()).try_for_each(|n| self.files.sync(n))
    }

    /// There is a database from here on: the superblock is written last.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub fn finish(self) -> Result<()> {
        assert!(self.filled == 0, "{} granules not written", self.filled);
        debug_assert!(self.files.count() > 0 || self.end == 0, "no files");
        self.superblock.write(&*self.storage)
    }
}

/// Checks blobs of a backup.
pub struct BlobChecker {
    tag: u32,
}

impl BlobChecker {
    /// For the database whose superblock is in that directory.
    ///
    /// # Errors
    /// `Corrupt`, `Format`, `Io`.
    pub fn of(from: &dyn Storage) -> Result<BlobChecker> {
        let superblock = Superblock::read(from)?;
        Ok(BlobChecker {
            tag: superblock.tag(),
        })
    }

    /// The blob that the delta in `bytes` belongs to.
    pub fn base_of(&self, page: PageId, bytes: &[u8]) -> Option<StoredBlob> {
        let (header, body) = blob::parse(bytes, self.tag).ok()?;
        let own = header.is_delta && header.page == page;
        let (base, _) = page_delta::parse_body(body).filter(|_| own)?;
        debug_assert!(base.lsn < header.lsn, "{page}: a delta without a change");
        Some(base)
    }

    /// # Errors
    /// `Corrupt` naming the page.
    pub fn check(&self, page: PageId, at: Location, bytes: &[u8]) -> Result<StoredBlob> {
        assert!(bytes.len() == at.bytes(), "{} bytes at {at:?}", bytes.len());
        match blob::parse_at(bytes, self.tag, page, at) {
            Ok((header, _)) => Ok(StoredBlob {
                lsn: header.lsn,
                crc: blob::stored_checksum(bytes),
            }),
            Err(what) => Err(Error::Corrupt(format!("page {page}: {what}"))),
        }
    }
}
