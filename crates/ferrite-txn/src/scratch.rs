//! The scratch files: versions that do not fit memory, until nobody needs them.
//!
//! Files `history.<n>.tmp` are filled from front to back with extents, one after the other.
//! An extent is written once and never changed; its space is given back when its versions
//! are gone (a hole in the file), and a file goes when its last extent does. Nothing is ever
//! synced or logged: what an earlier process left is removed at the start.
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
/// A file takes extents until it is so long (bytes).
const FILE_BYTES: u64 = 16 << 20;
/// A new file is begun only while so much space is free: the log and the pages come first.
const LEAVE_FREE_BYTES: u64 = 4 * FILE_BYTES;

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

#[derive(Default)]
struct State {
    current: Option<(Arc<File>, u64)>,
    next_number: u64,
}

pub(crate) struct Scratch {
    storage: Arc<dyn Storage>,
    state: Mutex<State>,
}

fn sum_of(block: &[u8]) -> u32 {
    foldhash::fast::FixedState::default().hash_one(block) as u32
}

impl Scratch {
    /// Removes what is left of an earlier life.
    pub fn new(storage: Arc<dyn Storage>) -> Scratch {
        let scratch = Scratch {
            storage,
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
        if !matches!(&state.current, Some((_, end)) if *end < FILE_BYTES) {
            let free = self.storage.free_bytes()?;
            if free < LEAVE_FREE_BYTES {
                let text = format!("{free} bytes are free: none left for old row versions");
                return Err(Error::DiskFull(text));
            }
            let name = format!("{PREFIX}{}{SUFFIX}", state.next_number);
            state.next_number += 1;
            let file = self.storage.open(&name, OpenMode::CreateNew, false)?;
            let extents = AtomicU64::new(0);
            state.current = Some((Arc::new(File { file, extents }), 0));
        }
        let Some((file, end)) = &mut state.current else {
            return Err(Error::Bug("no scratch file".into()));
        };
        let offset = *end;
        *end += len;
        file.extents.fetch_add(1, Ordering::Relaxed);
        Ok((file.clone(), offset))
    }

    /// Gives the space of places to the file system. No walk that may know them is open.
    pub fn free(&self, places: Vec<Place>) {
        for place in &places {
            let before = place.file.extents.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "space of an extent is given back twice");
        }
        for place in places {
            let file = &place.file;
            if file.extents.load(Ordering::Relaxed) > 0 {
                // Whatever goes wrong costs only space.
                let _ = file.file.punch_hole(place.offset, place.bytes() as u64);
                continue;
            }
            let mut state = self.state.lock();
            if matches!(&state.current, Some((current, _)) if Arc::ptr_eq(current, file)) {
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
