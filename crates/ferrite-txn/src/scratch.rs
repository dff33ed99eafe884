//! The scratch files: versions that do not fit memory, until nobody needs them.
//!
//! Files `history.<n>.tmp` are filled from front to back with extents, one after the other.
//! An extent is written once and never changed; its space is given back when its versions
//! are gone (a hole in the file), and a file goes when its last extent does. Nothing is ever
//! synced or logged: what an earlier process left is removed at the start. Every file is open,
//! so the more there is in them, the longer new ones become.
//!
//! Invariants: space of a file is never used twice, so a place that was read from memory
//! names its own bytes or a hole. Each block of an extent has a sum in memory, so that a
//! hole or anything else that is not what was written is an error and never an older state.
//!
//! Locking: who writes or frees holds the store's `retiring`, so there is one at a time;
//! `state` is held while a file is made, and by nobody who reads versions.

use core::hash::BuildHasher;

use ferrite_io::{OpenMode, Storage, StorageFile};
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{Arc, Mutex};
use ferrite_types::{Error, Result};

use crate::version::{room_of, VERSION_HEADER_BYTES};

/// Unit of checking, reading and giving back space (bytes).
const BLOCK: usize = 4096;
/// A file takes extents until it is at least so long (bytes), and after each such step it is looked
/// whether there is space for more.
const STEP_BYTES: u64 = 16 << 20;
/// The next file gets one part in so many of what all files hold: their number grows with the
/// logarithm of that ...
const FILES_PART: u64 = 16;
/// ... until they are so many steps long.
const FILE_MOST_STEPS: u64 = 64;
/// It is gone on only while so many steps of space are free: the log and the pages come first.
const LEAVE_FREE_STEPS: u64 = 4;

const PREFIX: &str = "history.";
const SUFFIX: &str = ".tmp";

struct File {
    file: Arc<dyn StorageFile>,
    /// Extents written or being written, less those given back.
    extents: AtomicU64,
}

/// Where an extent is.
#[derive(Clone)]
pub(crate) struct Place {
    file: Arc<File>,
    offset: u64,
    /// One sum per block.
    sums: Arc<[u32]>,
}

/// The file that is being filled.
struct Current {
    file: Arc<File>,
    end: u64,
    /// Where the next file is begun.
    limit: u64,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    next_number: u64,
    /// Bytes of all extents.
    bytes: u64,
}

pub(crate) struct Scratch {
    storage: Arc<dyn Storage>,
    step: u64,
    state: Mutex<State>,
}

/// How long a new file may become while all of them hold `bytes`.
fn file_bytes(step: u64, bytes: u64) -> u64 {
    (bytes / FILES_PART).clamp(step, FILE_MOST_STEPS * step)
}

fn sum_of(block: &[u8]) -> u32 {
    foldhash::fast::FixedState::default().hash_one(block) as u32
}

impl Scratch {
    /// Removes what is left of an earlier life.
    pub fn new(storage: Arc<dyn Storage>) -> Scratch {
        Scratch::in_steps(storage, STEP_BYTES)
    }

    fn in_steps(storage: Arc<dyn Storage>, step: u64) -> Scratch {
        assert!(step > 0 && step % BLOCK as u64 == 0, "{step} bytes");
        let scratch = Scratch {
            storage,
            step,
            state: Mutex::new(State::default()),
        };
        scratch.remove_all();
        scratch
    }

    /// Removes all files. What cannot be removed is in nobody's way: numbers go on.
    pub fn remove_all(&self) {
        let mut state = self.state.lock();
        state.current = None;
        for name in self.storage.list().unwrap_or_default() {
            let number = name
                .strip_prefix(PREFIX)
                .and_then(|rest| rest.strip_suffix(SUFFIX))
                .and_then(|number| number.parse::<u64>().ok());
            if let Some(number) = number {
                state.next_number = state.next_number.max(number.saturating_add(1));
                let _ = self.storage.remove(&name);
            }
        }
    }

    /// Writes an extent (and lengthens it to whole blocks).
    pub fn write(&self, bytes: &mut Vec<u8>) -> Result<Place> {
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        assert!(!bytes.is_empty(), "an extent of nothing");
        let (file, offset) = self.reserve(bytes.len() as u64)?;
        debug_assert!(offset % BLOCK as u64 == 0, "an extent at {offset}");
        let place = Place {
            file,
            offset,
            sums: bytes.chunks(BLOCK).map(sum_of).collect(),
        };
        match place.file.file.write_at(bytes, offset) {
            Ok(()) => Ok(place),
            Err(e) => {
                self.free(vec![place]);
                Err(e)
            }
        }
    }

    fn reserve(&self, len: u64) -> Result<(Arc<File>, u64)> {
        let mut state = self.state.lock();
        let in_step = |end: u64| end > 0 && (end - 1) / self.step == (end + len - 1) / self.step;
        if !matches!(&state.current, Some(c) if c.end < c.limit && in_step(c.end)) {
            let free = self.storage.free_bytes()?;
            if free < LEAVE_FREE_STEPS * self.step {
                let text = format!("{free} bytes are free: none left for old row versions");
                return Err(Error::DiskFull(text));
            }
        }
        if !matches!(&state.current, Some(c) if c.end < c.limit) {
            let name = format!("{PREFIX}{}{SUFFIX}", state.next_number);
            state.next_number += 1;
            let file = self.storage.open(&name, OpenMode::CreateNew, false)?;
            let extents = AtomicU64::new(0);
            state.current = Some(Current {
                file: Arc::new(File { file, extents }),
                end: 0,
                limit: file_bytes(self.step, state.bytes),
            });
        }
        let Some(current) = &mut state.current else {
            return Err(Error::Bug("no scratch file".into()));
        };
        let (file, offset) = (current.file.clone(), current.end);
        current.end += len;
        file.extents.fetch_add(1, Ordering::Relaxed);
        state.bytes += len;
        Ok((file, offset))
    }

    /// Gives the space of places to the file system. No walk that may know them is open.
    pub fn free(&self, places: Vec<Place>) {
        for place in &places {
            let before = place.file.extents.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "space of an extent is given back twice");
        }
        {
            let freed: u64 = places.iter().map(|place| place.bytes() as u64).sum();
            let mut state = self.state.lock();
            assert!(freed <= state.bytes, "{freed} bytes of {}", state.bytes);
            state.bytes -= freed;
        }
        for place in places {
            let file = &place.file;
            if file.extents.load(Ordering::Relaxed) > 0 {
                // Whatever goes wrong costs only space.
                let _ = file.file.punch_hole(place.offset, place.bytes() as u64);
                continue;
            }
            let mut state = self.state.lock();
            if matches!(&state.current, Some(c) if Arc::ptr_eq(&c.file, file)) {
                state.current = None;
            }
            drop(state);
            let _ = self.storage.remove(file.file.name());
        }
    }
}

impl Place {
    /// Bytes of the extent on disk.
    pub fn bytes(&self) -> usize {
        self.sums.len() * BLOCK
    }

    /// Memory taken by the place itself.
    pub fn memory(&self) -> usize {
        self.sums.len() * 4
    }

    /// The record at that offset.
    pub fn record(&self, at: usize) -> Result<Vec<u8>> {
        let first = at / BLOCK;
        let mut blocks = Vec::new();
        let head_ends = (at + VERSION_HEADER_BYTES).div_ceil(BLOCK);
        self.read(first, head_ends, &mut blocks)?;
        let from = at - first * BLOCK;
        debug_assert!(from + VERSION_HEADER_BYTES <= blocks.len());
        let room = room_of(&blocks[from..]);
        let ends = (at + room).div_ceil(BLOCK);
        if ends > head_ends {
            self.read(head_ends, ends, &mut blocks)?;
        }
        blocks.truncate(from + room);
        blocks.drain(..from);
        Ok(blocks)
    }

    /// The whole extent.
    pub fn whole(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(0, self.sums.len(), &mut bytes)?;
        Ok(bytes)
    }

    /// Appends blocks `from..to`, checked.
    fn read(&self, from: usize, to: usize, out: &mut Vec<u8>) -> Result<()> {
        let file = &self.file.file;
        let Some(sums) = self.sums.get(from..to) else {
            let text = format!("{}: a version is cut off", file.name());
            return Err(Error::Corrupt(text));
        };
        let start = out.len();
        out.resize(start + sums.len() * BLOCK, 0);
        let offset = self.offset + (from * BLOCK) as u64;
        file.read_at(&mut out[start..], offset)?;
        for (i, (block, sum)) in out[start..].chunks(BLOCK).zip(sums).enumerate() {
            if sum_of(block) != *sum {
                return Err(Error::Corrupt(format!(
                    "{}: the block at {} is not what was written (row versions that only \
                     snapshots and rollback need)",
                    file.name(),
                    offset + (i * BLOCK) as u64
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::sim::SimStorage;

    const STEP: u64 = 16 * BLOCK as u64;

    fn extent(n: u64) -> Vec<u8> {
        n.to_le_bytes().repeat(BLOCK / 8 * 2)
    }

    #[test]
    fn a_file_is_a_part_of_what_there_is() {
        assert_eq!(file_bytes(STEP_BYTES, 0), 16 << 20);
        assert_eq!(file_bytes(STEP_BYTES, 256 << 20), 16 << 20);
        assert_eq!(file_bytes(STEP_BYTES, 1 << 30), 64 << 20);
        assert_eq!(file_bytes(STEP_BYTES, 1 << 40), 1 << 30);
    }

    #[test]
    fn much_is_in_few_files_and_goes_as_it_came() {
        let disk = SimStorage::new(1);
        let scratch = Scratch::in_steps(Arc::new(disk.clone()), STEP);
        let most = 512 * STEP;
        let mut places = Vec::new();
        while scratch.state.lock().bytes < most {
            let n = places.len() as u64;
            places.push(scratch.write(&mut extent(n)).expect("write"));
        }
        let files = disk.list().expect("list").len();
        assert!((32..100).contains(&files), "{files} files");
        // One extent of the longest file stays: the rest of it is a hole.
        let kept = places.pop().expect("the last");
        scratch.free(places);
        assert_eq!(disk.list().expect("list").len(), 1);
        disk.sync_dir().expect("sync");
        assert_eq!(disk.used_bytes(), kept.bytes() as u64);
        let n = most / kept.bytes() as u64 - 1;
        assert_eq!(kept.whole().expect("read"), extent(n));
        scratch.free(vec![kept]);
        assert_eq!(scratch.state.lock().bytes, 0);
        assert_eq!(disk.list().expect("list"), [""; 0]);
    }

    /// A long file is filled no further, either, when others need the space.
    #[test]
    fn space_is_left_to_others_within_a_file_too() {
        let disk = SimStorage::new(2);
        let capacity = 512 * STEP;
        disk.set_capacity(Some(capacity));
        let scratch = Scratch::in_steps(Arc::new(disk.clone()), STEP);
        let mut places = Vec::new();
        let refused = loop {
            match scratch.write(&mut extent(places.len() as u64)) {
                Ok(place) => places.push(place),
                Err(e) => break e,
            }
        };
        assert!(matches!(refused, Error::DiskFull(_)), "{refused}");
        let left = capacity - disk.used_bytes();
        let whole = LEAVE_FREE_STEPS * STEP;
        assert!(left < whole && left + STEP >= whole, "{left} of {whole}");
        assert!(scratch.write(&mut extent(0)).is_err());
        scratch.free(places.split_off(places.len() / 2));
        disk.sync_dir().expect("sync");
        scratch.write(&mut extent(0)).expect("write");
    }
}
