//! The file that takes the older parts of undo lists (`undo_list`).
//!
//! They lie in chunks of [`CHUNK_BYTES`] in one file, `undo.spill`, shared by all transactions. A checkpoint names the chunks of
//! unfinished transactions.
//!
//! Invariant: a slot of the file that a checkpoint on disk names is not written again before
//! the next checkpoint is on disk. Slots given back wait in `released` for that.
//!
//! What is on disk if we die: chunks are synced before the checkpoint that names them; other
//! chunks mean nothing to a restart.
//!
//! Locking: `slots` is a leaf, not held over reads and writes. No latch may be held when a chunk is written or read.

use ferrite_io::{OpenMode, Storage, StorageFile};
use ferrite_store::PinOwner;
use ferrite_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use ferrite_sync::{kill_point, Arc, Mutex};
use ferrite_types::{Error, Result};
use std::collections::BTreeSet;

/// Bytes of a chunk.
pub(crate) const CHUNK_BYTES: usize = 1 << 20;
/// So many free chunks keep their space.
const KEPT_CHUNKS: usize = 64;
/// Name of the file.
pub(crate) const NAME: &str = "undo.spill";

/// A chunk in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Its place, in chunks.
    pub slot: u32,
    /// Of its bytes.
    pub crc: u32,
}

#[derive(Default)]
struct Slots {
    file: Option<Arc<dyn StorageFile>>,
    /// The lowest goes first, so that the file gets shorter again.
    free: BTreeSet<u32>,
    /// Given back since the last checkpoint began.
    released: Vec<u32>,
    next: u32,
}

impl Slots {
    /// A slot is free, given back, or in use; never two of these.
    fn is_sound(&self) -> bool {
        let idle = || self.free.iter().chain(&self.released);
        idle().count() <= self.next as usize
            && idle().all(|slot| *slot < self.next)
            && (idle().count() > 64 || idle().all(|s| idle().filter(|t| s == *t).count() == 1))
    }
}

impl Slots {
    /// What is free at the end goes back to the file system. What fails is tried after the next checkpoint.
    fn cut_free_end(&mut self) {
        let Some(file) = &self.file else { return };
        let mut end = self.next;
        while end > 0 && self.free.contains(&(end - 1)) {
            end -= 1;
        }
        if end < self.next && file.truncate(u64::from(end) * CHUNK_BYTES as u64).is_ok() {
            self.free.split_off(&end);
            self.next = end;
        }
    }

    /// Of chunks that have just become free, takes those above the lowest that are free, whose space the file can
    /// do without.
    fn take_spare(&mut self, released: &[u32]) -> Vec<u32> {
        let kept = self.free.iter().nth(KEPT_CHUNKS).copied();
        let Some(kept) = kept.filter(|_| self.file.is_some()) else {
            return Vec::new();
        };
        let spare = |slot: &&u32| **slot >= kept && self.free.contains(slot);
        let spare: Vec<u32> = released.iter().filter(spare).copied().collect();
        for slot in &spare {
            let was = self.free.remove(slot);
            assert!(was, "slot {slot} was given back twice");
        }
        spare
    }
}

/// The file of chunks.
pub(crate) struct UndoArea {
    storage: Arc<dyn Storage>,
    /// Nothing may be written: lists stay in memory.
    pub(super) read_only: bool,
    /// Chunks nobody needs are overwritten.
    scrub: AtomicBool,
    /// Who still reads the chunks that a checkpoint of theirs names: a bit for each owner.
    held: AtomicU32,
    slots: Mutex<Slots>,
}

impl UndoArea {
    /// An area nothing of which is in use.
    pub(crate) fn new(storage: Arc<dyn Storage>) -> UndoArea {
        UndoArea {
            storage,
            read_only: false,
            scrub: AtomicBool::new(false),
            held: AtomicU32::new(0),
            slots: Mutex::new(Slots::default()),
        }
    }

    /// The area of a database that is only looked at.
    pub(crate) fn read_only(storage: Arc<dyn Storage>) -> UndoArea {
        UndoArea {
            read_only: true,
            ..UndoArea::new(storage)
        }
    }

    /// A restart: the slots of `chunks` are in use.
    pub(crate) fn adopt(&self, chunks: impl Iterator<Item = Chunk>) {
        let mut used: Vec<u32> = chunks.map(|c| c.slot).collect();
        used.sort_unstable();
        let mut slots = self.slots.lock();
        slots.next = used.last().map_or(0, |last| last + 1);
        slots.free = (0..slots.next)
            .filter(|slot| used.binary_search(slot).is_err())
            .collect();
        debug_assert!(slots.is_sound(), "after a restart");
    }

    /// After a restart: what the file has behind the slots in use, and all but some of what is free among them, goes
    /// back to the file system. Else it stayed as long as it was until a list spills again. What fails is no harm.
    pub(crate) fn give_unused_back(&self) {
        if self.read_only || !matches!(self.storage.exists(NAME), Ok(true)) {
            return;
        }
        let mut slots = self.slots.lock();
        let Ok(file) = self.existing(&mut slots) else {
            return;
        };
        slots.cut_free_end();
        let end = u64::from(slots.next) * CHUNK_BYTES as u64;
        if file.len().is_ok_and(|len| len > end) {
            let _ = file.truncate(end);
        }
        let free: Vec<u32> = slots.free.iter().copied().collect();
        let spare = slots.take_spare(&free);
        drop(slots);
        punch_chunks(&*file, &spare);
        let mut slots = self.slots.lock();
        slots.free.extend(spare);
        debug_assert!(slots.is_sound(), "after a restart");
    }

    /// The file, made if there is none.
    fn file(&self, slots: &mut Slots) -> Result<Arc<dyn StorageFile>> {
        if let Some(file) = &slots.file {
            return Ok(file.clone());
        }
        if self.storage.exists(NAME)? {
            return self.existing(slots);
        }
        let file = self.storage.open(NAME, OpenMode::CreateNew, false)?;
        self.storage.sync_dir()?;
        slots.file = Some(file.clone());
        Ok(file)
    }

    /// The file that holds a chunk.
    fn existing(&self, slots: &mut Slots) -> Result<Arc<dyn StorageFile>> {
        if let Some(file) = &slots.file {
            return Ok(file.clone());
        }
        let mode = match self.read_only {
            true => OpenMode::ReadOnly,
            false => OpenMode::ReadWrite,
        };
        let file = self.storage.open(NAME, mode, false).map_err(|e| match e {
            Error::NotFound => Error::Corrupt(format!(
                "{NAME} is missing; it holds the undo of an unfinished transaction"
            )),
            other => other,
        })?;
        slots.file = Some(file.clone());
        Ok(file)
    }

    /// Writes a chunk to a place of its own.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: the place is free again.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<Chunk> {
        assert_eq!(bytes.len(), CHUNK_BYTES);
        let (file, slot) = {
            let mut slots = self.slots.lock();
            let file = self.file(&mut slots)?;
            let slot = slots.free.pop_first().unwrap_or_else(|| {
                slots.next += 1;
                slots.next - 1
            });
            debug_assert!(
                slots.is_sound() && !slots.free.contains(&slot) && !slots.released.contains(&slot),
                "slot {slot} would be written while a checkpoint names it"
            );
            (file, slot)
        };
        let written = file.write_at(bytes, u64::from(slot) * CHUNK_BYTES as u64);
        if let Err(e) = written {
            self.slots.lock().free.insert(slot);
            return Err(e);
        }
        kill_point!("undo.spilled");
        let crc = crc32c::crc32c(bytes);
        Ok(Chunk { slot, crc })
    }

    /// Where a chunk lies, which the file has.
    ///
    /// # Errors
    /// `Corrupt` naming the file, which is missing or too short; `Io`.
    pub(super) fn place_of(&self, chunk: Chunk) -> Result<(Arc<dyn StorageFile>, u64)> {
        let file = self.existing(&mut self.slots.lock())?;
        let at = u64::from(chunk.slot) * CHUNK_BYTES as u64;
        let len = file.len()?;
        if len < at + CHUNK_BYTES as u64 {
            return Err(Error::Corrupt(format!(
                "{NAME}: {len} bytes, the chunk in slot {} is beyond",
                chunk.slot
            )));
        }
        Ok((file, at))
    }

    /// The bytes of a chunk.
    ///
    /// # Errors
    /// `Corrupt` naming the file; `Io`.
    pub(super) fn read(&self, chunk: Chunk) -> Result<Vec<u8>> {
        let (file, at) = self.place_of(chunk)?;
        let mut bytes = vec![0; CHUNK_BYTES];
        // The first time the fault may be one of reading.
        for _ in 0..2 {
            file.read_at(&mut bytes, at)?;
            if crc32c::crc32c(&bytes) == chunk.crc {
                return Ok(bytes);
            }
        }
        Err(Error::Corrupt(format!(
            "{NAME}: the chunk in slot {} is damaged",
            chunk.slot
        )))
    }

    /// No list names the chunk any more; a checkpoint may.
    pub(super) fn release(&self, chunk: Chunk) {
        let mut slots = self.slots.lock();
        debug_assert!(
            !slots.released.contains(&chunk.slot) && !slots.free.contains(&chunk.slot),
            "slot {} is given back twice",
            chunk.slot
        );
        slots.released.push(chunk.slot);
    }

    /// A checkpoint begins to copy lists. What was given back so far is in none of them.
    pub(crate) fn begin_checkpoint(&self) -> Vec<u32> {
        std::mem::take(&mut self.slots.lock().released)
    }

    /// Makes every chunk durable.
    ///
    /// # Errors
    /// `Io`: the checkpoint must not be written.
    pub(crate) fn sync(&self) -> Result<()> {
        let file = self.slots.lock().file.clone();
        file.map_or(Ok(()), |f| f.sync_data())
    }

    /// The checkpoint is on disk, or (false) it failed and the one before still counts.
    pub(crate) fn end_checkpoint(&self, released: Vec<u32>, written: bool) {
        let written = written && self.held.load(Ordering::SeqCst) == 0;
        if written && self.scrub.load(Ordering::Relaxed) {
            let file = self.slots.lock().file.clone();
            // What fails here is tried again when scrubbing is switched on, or by a restart.
            let _ = file.map_or(Ok(()), |f| zero_chunks(&*f, &released));
        }
        let mut slots = self.slots.lock();
        if !written {
            slots.released.extend(released);
            return;
        }
        slots.free.extend(&released);
        slots.cut_free_end();
        let spare = slots.take_spare(&released);
        debug_assert!(slots.is_sound(), "after a checkpoint");
        let file = slots.file.clone();
        drop(slots);
        if let Some(file) = file {
            punch_chunks(&*file, &spare);
        }
        self.slots.lock().free.extend(spare);
    }

    /// From now on (not), chunks nobody needs are overwritten; those of before at once.
    ///
    /// # Errors
    /// `Io`, `DiskFull`: some of them are left.
    pub(crate) fn set_scrub(&self, on: bool) -> Result<()> {
        self.scrub.store(on, Ordering::SeqCst);
        if !on || !self.storage.exists(NAME)? {
            return Ok(());
        }
        let (file, free) = {
            let mut slots = self.slots.lock();
            let file = self.existing(&mut slots)?;
            if file.len()? > u64::from(slots.next) * CHUNK_BYTES as u64 {
                file.truncate(u64::from(slots.next) * CHUNK_BYTES as u64)?;
            }
            // Nobody is given these meanwhile.
            let free: Vec<u32> = std::mem::take(&mut slots.free).into_iter().collect();
            (file, free)
        };
        let zeroed = zero_chunks(&*file, &free);
        self.slots.lock().free.extend(free);
        zeroed
    }

    /// From now on (not), no slot is free for use that was given back, as if checkpoints failed: a
    /// checkpoint that names them is being copied.
    pub(crate) fn hold(&self, owner: PinOwner, on: bool) {
        let bit = 1 << owner as u32;
        match on {
            true => self.held.fetch_or(bit, Ordering::SeqCst),
            false => self.held.fetch_and(!bit, Ordering::SeqCst),
        };
    }

    /// Reads a chunk that is held.
    ///
    /// # Errors
    /// `Corrupt` naming the file; `Io`.
    pub(crate) fn read_held(&self, chunk: Chunk) -> Result<Vec<u8>> {
        debug_assert!(!self.slots.lock().free.contains(&chunk.slot), "{chunk:?}");
        self.read(chunk)
    }

    /// Bytes of the file in use.
    pub(crate) fn bytes(&self) -> u64 {
        let slots = self.slots.lock();
        debug_assert!(slots.is_sound(), "slots in use");
        let used = slots.next as usize - slots.free.len() - slots.released.len();
        (used * CHUNK_BYTES) as u64
    }
}

/// Gives the space of chunks back to the file system. One that it cannot have stays the file's.
fn punch_chunks(file: &dyn StorageFile, chunks: &[u32]) {
    for slot in chunks {
        let at = u64::from(*slot) * CHUNK_BYTES as u64;
        if file.punch_hole(at, CHUNK_BYTES as u64).is_err() {
            return;
        }
    }
}

/// Overwrites chunks, durably.
fn zero_chunks(file: &dyn StorageFile, chunks: &[u32]) -> Result<()> {
    if chunks.is_empty() {
        return Ok(());
    }
    let zeroes = vec![0; CHUNK_BYTES];
    for slot in chunks {
        file.write_at(&zeroes, u64::from(*slot) * CHUNK_BYTES as u64)?;
    }
    kill_point!("undo.scrubbed");
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::sim::SimStorage;

    #[test]
    fn a_slot_is_not_used_again_before_the_next_checkpoint() {
        let area = UndoArea::new(Arc::new(SimStorage::new(2)));
        let bytes = vec![7; CHUNK_BYTES];
        let first = area.write(&bytes).unwrap();
        area.release(first);
        let second = area.write(&bytes).unwrap();
        assert_ne!(first.slot, second.slot);
        let released = area.begin_checkpoint();
        area.end_checkpoint(released, false);
        assert_ne!(area.write(&bytes).unwrap().slot, first.slot);
        let released = area.begin_checkpoint();
        area.end_checkpoint(released, true);
        assert_eq!(area.write(&bytes).unwrap().slot, first.slot);
        // Damage is told.
        let fault = Chunk { crc: 1, ..second };
        assert!(matches!(area.read(fault), Err(Error::Corrupt(_))));
        let again = UndoArea::new(area.storage.clone());
        again.adopt([second].into_iter());
        assert_eq!(again.read(second).unwrap(), bytes);
        assert_ne!(again.write(&bytes).unwrap().slot, second.slot);
    }

    /// A transaction of one chunk among those of a large one that is over does not keep their space.
    #[test]
    fn one_chunk_keeps_neither_the_end_of_the_file_nor_its_middle() {
        const ALL: u64 = 200;
        const LEFT: u32 = 150;
        let disk = SimStorage::new(4);
        let area = UndoArea::new(Arc::new(disk.clone()));
        let bytes = vec![7; CHUNK_BYTES];
        let chunks: Vec<Chunk> = (0..ALL).map(|_| area.write(&bytes).unwrap()).collect();
        let (left, over): (Vec<_>, Vec<_>) = chunks.into_iter().partition(|c| c.slot == LEFT);
        over.iter().for_each(|chunk| area.release(*chunk));
        assert_eq!(disk.used_bytes(), ALL * CHUNK_BYTES as u64);
        let released = area.begin_checkpoint();
        area.end_checkpoint(released, true);
        let file = disk.open(NAME, OpenMode::ReadOnly, false).unwrap();
        assert_eq!(
            file.len().unwrap(),
            (u64::from(LEFT) + 1) * CHUNK_BYTES as u64
        );
        let kept = (KEPT_CHUNKS as u64 + 1) * CHUNK_BYTES as u64;
        assert_eq!(disk.used_bytes(), kept);
        assert_eq!(area.bytes(), CHUNK_BYTES as u64);
        assert_eq!(area.read(left[0]).unwrap(), bytes);
        assert_eq!(area.write(&bytes).unwrap().slot, 0);
    }
}
