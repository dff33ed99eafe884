//! The second tier: blobs that were read or written lately, kept in a file on a fast device before a store on a
//! slow volume.
//!
//! The file is a ring of segments. A blob is copied as it is in the store, checksummed and packed, behind the one
//! before it into a segment in memory; a full segment is written over the oldest one by a thread of its own. The
//! index in memory says of each page where its blob is. At a clean end it is saved behind the ring and counts if
//! the next start finds the state of the store that it was saved with.
//!
//! # Invariants
//! 1. The store has everything. What is here may be damaged or gone at any time, and costs a read of the store.
//! 2. An entry names the location that its blob is at in the store. Each blob that is written replaces its page's
//!    entry, or removes it, before anybody knows the new location: an entry of the same location is of the same
//!    blob, though the place in the store be used again.
//! 3. Nobody waits for the device but those who read from it, a start and a shutdown: what comes while too many
//!    segments wait to be written is not kept.
//! 4. The entries of a segment are gone before its place is given out again. Who has read from a place looks at
//!    the entry again afterwards.
//!
//! Locking: `ring`, then a shard of the index. No lock is held over I/O.

mod index;
mod layout;
mod ring;

use ferrite_types::{Error, PageId, Result};

use crate::blob;
use crate::deps::{
    Arc, AtomicBool, Counter, Event, LockGuard, Mutex, OnceLock, Ordering, Storage, StorageFile,
};
use crate::page_delta::PageRead;
use crate::scratch::Scratch;
use crate::slots::StateId;
use crate::word::{Location, BLOCK_BYTES, BLOCK_GRANULES, GRANULE_BYTES};
use index::{Entry, Index};
use layout::SEGMENT_BYTES;
use ring::{Full, Ring};

/// Smallest and largest size of the file, in bytes.
const LEAST_BYTES: u64 = 4 << 20;
const MOST_BYTES: u64 = 4 << 40;
/// After so many blobs that were not what they should be the device is not used any more.
const MOST_DAMAGED: u64 = 100;
/// The thread looks at least that often whether it is to end, in us.
const LOOK_US: u64 = 200_000;

/// Where a second tier is.
#[derive(Clone)]
pub struct TierConfig {
    /// The directory, and the file's name in it.
    pub storage: Arc<dyn Storage>,
    /// See there.
    pub name: String,
    /// Size of the file, in bytes; the index is saved behind.
    pub bytes: u64,
    /// Bypass the operating system's cache.
    pub direct: bool,
}

impl std::fmt::Debug for TierConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} bytes", self.name, self.bytes)
    }
}

/// Figures of the second tier since opening.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TierStats {
    /// It is in use: not switched off by an error.
    pub on: bool,
    /// Pages that were read from it.
    pub hits: u64,
    /// Pages that were not in it and were read from the store.
    pub misses: u64,
    /// Blobs that were not kept, because the device was behind.
    pub skipped: u64,
    /// Blobs that were not what they should be.
    pub damaged: u64,
    /// Bytes written to it.
    pub bytes_written: u64,
    /// Pages in it.
    pub pages: u64,
    /// Memory of its index and buffers, in bytes.
    pub memory_bytes: u64,
}

#[derive(Default)]
struct Counters {
    hits: Counter,
    misses: Counter,
    skipped: Counter,
    damaged: Counter,
    bytes_written: Counter,
}

/// Takes a line for the server's log.
pub(crate) type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// See the head of the file.
pub(crate) struct Tier {
    file: Arc<dyn StorageFile>,
    name: String,
    tag: u32,
    uuid: [u8; 16],
    index: Index,
    ring: Mutex<Ring>,
    off: AtomicBool,
    tell: OnceLock<Tell>,
    /// A segment is full, or the thread is to end.
    work: Event,
    ends: AtomicBool,
    counters: Counters,
    _lock: LockGuard,
}

impl Tier {
    /// Opens or makes the file for the database with that uuid and tag; what an earlier life left in it counts if
    /// the store is in the state that it was saved with.
    ///
    /// # Errors
    /// `BadConfig`: the size is none, or the file is something else. `InUse`. `DiskFull`, `Io`. The file is as it
    /// was, or is not used by anybody.
    pub(crate) fn open(
        config: &TierConfig,
        (uuid, tag): ([u8; 16], u32),
        state: StateId,
    ) -> Result<Tier> {
        let TierConfig { name, bytes, .. } = config;
        if !(LEAST_BYTES..=MOST_BYTES).contains(bytes) {
            return Err(Error::BadConfig(format!(
                "{name}: {bytes} bytes; from {LEAST_BYTES} to {MOST_BYTES} are possible"
            )));
        }
        let file = layout::open(config)?;
        let lock = config.storage.lock_file(name, true)?;
        let lock = lock.ok_or_else(|| Error::InUse(format!("{name}: another server uses it")))?;
        let segments = (bytes / SEGMENT_BYTES as u64) as u32 - 1;
        let owner = layout::Owner {
            uuid,
            state,
            segments,
        };
        let saved = layout::load(&*file, name, &owner)?;
        layout::reserve(&*config.storage, &*file, &owner)?;
        let index = Index::default();
        let mut ring = Ring::new(segments, saved.next);
        for &(page, entry) in &saved.entries {
            index.put(page, entry);
            ring.holds(page, entry.place);
        }
        ring.make_room(&index);
        debug_assert!(index.pages() <= saved.entries.len(), "a page twice");
        Ok(Tier {
            file,
            name: name.clone(),
            tag,
            uuid,
            index,
            ring: Mutex::new(ring),
            off: AtomicBool::new(false),
            tell: OnceLock::new(),
            work: Event::new(),
            ends: AtomicBool::new(false),
            counters: Counters::default(),
            _lock: lock,
        })
    }

    fn is_on(&self) -> bool {
        !self.off.load(Ordering::Acquire)
    }

    /// Reads the page whose blob is at `at` in the store; None: it is not here.
    pub(crate) fn read(
        &self,
        scratch: &mut Scratch,
        (page, at): (PageId, Location),
        out: &mut [u8],
    ) -> Option<PageRead> {
        let Scratch { buf, unpacker, .. } = scratch;
        let (entry, blob) = self.fetch((page, at), buf)?;
        let parsed = blob::parse_at(blob, self.tag, page, at);
        let restored = parsed.and_then(|(header, body)| {
            blob::restore(&header, body, out, unpacker).map(|()| PageRead::whole(header, blob))
        });
        restored
            .inspect_err(|what| self.note_damage(page, entry, what))
            .ok()
    }

    /// The bytes that are here for the page's blob at `at` in the store, not looked at, in a buffer that has room
    /// for the longest one with its blocks; None: there are none.
    pub(crate) fn blob<'b>(
        &self,
        page_at: (PageId, Location),
        buf: &'b mut [u8],
    ) -> Option<&'b [u8]> {
        self.fetch(page_at, buf).map(|(_, blob)| blob)
    }

    fn fetch<'b>(
        &self,
        (page, at): (PageId, Location),
        buf: &'b mut [u8],
    ) -> Option<(Entry, &'b [u8])> {
        if !self.is_on() {
            return None;
        }
        let found = self.index.get(page).filter(|entry| entry.at == at);
        let Some(entry) = found else {
            self.counters.misses.inc();
            return None;
        };
        let lead = (entry.place % BLOCK_GRANULES) as usize * GRANULE_BYTES;
        let bytes = lead..lead + at.bytes();
        let buf = &mut buf[..bytes.end.next_multiple_of(BLOCK_BYTES)];
        if !self.ring.lock().copy(entry.place, &mut buf[bytes.clone()]) {
            let from = layout::offset_of_place(entry.place) - lead as u64;
            if let Err(e) = self.file.read_at(buf, from) {
                self.fail(&e);
                return None;
            }
        }
        // While it was read its place may have been given out again.
        if self.index.get(page) != Some(entry) {
            self.counters.misses.inc();
            return None;
        }
        self.counters.hits.inc();
        Some((entry, &buf[bytes]))
    }

    /// The page's blob at that location in the store, which has just been read or written, is kept.
    pub(crate) fn keep(&self, page: PageId, at: Location, blob: &[u8]) {
        debug_assert_eq!(blob.len(), at.bytes(), "another blob of {page}");
        debug_assert!(!at.is_none(), "{page} is nowhere");
        if !self.is_on() {
            return;
        }
        let mut ring = self.ring.lock();
        let Some(place) = ring.add(page, blob, &self.index) else {
            self.index.forget(page);
            drop(ring);
            self.counters.skipped.inc();
            return;
        };
        self.index.put(page, Entry { at, place });
        let is_due = ring.has_full();
        drop(ring);
        if !self.is_on() {
            self.index.forget(page);
        }
        if is_due && !self.work.is_set() {
            self.work.set();
        }
    }

    /// The page's blob is not at the location that is known of it, or need not be.
    pub(crate) fn forget(&self, page: PageId) {
        self.index.forget(page);
    }

    fn note_damage(&self, page: PageId, entry: Entry, what: &str) {
        self.index.forget_if(page, |now| now == entry);
        self.counters.damaged.inc();
        if self.counters.damaged.get() >= MOST_DAMAGED {
            let text = format!("{MOST_DAMAGED} blobs are damaged, the last: page {page}: {what}");
            self.fail(&Error::Corrupt(text));
        }
    }

    /// It is not used any more: the store has everything.
    fn fail(&self, why: &Error) {
        if self.off.swap(true, Ordering::AcqRel) {
            return;
        }
        self.index.clear();
        let name = &self.name;
        let text = format!("the second tier {name} is switched off until the next start: {why}");
        if let Some(tell) = self.tell.get() {
            tell(&text);
        }
    }

    /// Who is told that it was switched off, and why.
    pub(crate) fn tell(&self, tell: Tell) {
        let is_first = self.tell.set(tell).is_ok();
        debug_assert!(is_first, "somebody is told already");
    }

    /// Waits until there is something to write, or a moment; false: the thread that writes is to end.
    pub(crate) fn wait_for_work(&self) -> bool {
        if !self.ends.load(Ordering::Acquire) {
            let _ = self.work.wait_timeout_us(LOOK_US);
        }
        !self.ends.load(Ordering::Acquire)
    }

    /// The thread that writes is to end.
    pub(crate) fn end(&self) {
        self.ends.store(true, Ordering::Release);
        self.work.set();
    }

    /// Writes the segment that has been full for longest, if one is. One thread at a time.
    pub(crate) fn write_full(&self) -> bool {
        let Some(full) = self.ring.lock().full() else {
            return false;
        };
        match self.write(&full) {
            Ok(bytes) => self.counters.bytes_written.add(bytes as u64),
            // Before its bytes are looked for on the device.
            Err(e) => self.fail(&e),
        }
        self.ring.lock().written(full);
        true
    }

    fn write(&self, full: &Full) -> Result<usize> {
        let bytes = full.bytes();
        assert!(bytes.len() % BLOCK_BYTES == 0, "{} bytes", bytes.len());
        if !bytes.is_empty() && self.is_on() {
            let at = layout::offset_of_segment(full.number());
            self.file.write_at(bytes, at)?;
        }
        Ok(bytes.len())
    }

    /// The index is saved with the state that the store is in; nobody uses the tier any more.
    pub(crate) fn close(&self, state: StateId) -> Result<()> {
        assert!(self.ends.load(Ordering::Acquire), "its thread goes on");
        if !self.is_on() {
            return Ok(());
        }
        while self.write_full() {}
        self.ring.lock().end_segment();
        self.write_full();
        let (next, segments) = self.ring.lock().position();
        let owner = layout::Owner {
            uuid: self.uuid,
            state,
            segments,
        };
        if self.is_on() {
            layout::save(&*self.file, &owner, next, &self.index.all())?;
        }
        Ok(())
    }

    pub(crate) fn stats(&self) -> TierStats {
        let c = &self.counters;
        let ring_bytes = self.ring.lock().memory_bytes();
        TierStats {
            on: self.is_on(),
            hits: c.hits.get(),
            misses: c.misses.get(),
            skipped: c.skipped.get(),
            damaged: c.damaged.get(),
            bytes_written: c.bytes_written.get(),
            pages: self.index.pages() as u64,
            memory_bytes: (ring_bytes + self.index.memory_bytes()) as u64,
        }
    }
}
