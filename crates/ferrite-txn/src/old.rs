//! The old generation: versions that survived their young segment, by address.
//!
//! What is here is needed by some snapshot, or carries one that is (see `retire`). It is
//! behind a trait, so that part of it may live in a scratch file without durability; the
//! one keeper so far holds everything in memory.
//!
//! Invariants: a record has the layout of the `version` room, with room for exactly its
//! body; an address is here only when the young ring does not have it (any more).
//!
//! Locking: one mutex per shard of addresses, a leaf.

use std::collections::HashMap;

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{CachePadded, Mutex};

use crate::version::{read_head, set_record_next, VersionAddr, VersionHead};

const SHARDS: usize = 64;
/// Accounted per version besides its record: the map's slot and the allocation (bytes).
const ENTRY_BYTES: usize = 48;

/// Where old versions are kept.
pub(crate) trait OldKeeper: Send + Sync {
    /// Hands the record to `f`; false if it is not here.
    fn with(&self, addr: VersionAddr, f: &mut dyn FnMut(&[u8])) -> bool;
    /// Puts or replaces a record.
    fn put(&self, addr: VersionAddr, record: &[u8]);
    /// Changes a record's `next`; false if it is not here.
    fn set_next(&self, addr: VersionAddr, next: VersionAddr) -> bool;
    /// Takes a record away; its length, if it was here.
    fn remove(&self, addr: VersionAddr) -> Option<usize>;
    /// Takes away all records of a shard that `gone` says yes to; how many.
    fn remove_if(&self, shard: usize, gone: &mut dyn FnMut(&VersionHead) -> bool) -> u64;
    /// Heads of all records of a shard.
    fn heads(&self, shard: usize) -> Vec<VersionHead>;
    /// Number of shards.
    fn shards(&self) -> usize;
    /// Versions here.
    fn len(&self) -> u64;
    /// Memory in use (bytes).
    fn bytes(&self) -> u64;
    /// Versions written to a scratch file so far.
    fn spilled(&self) -> u64;
}

type Map = HashMap<u64, Box<[u8]>, foldhash::fast::FixedState>;

/// Everything in memory.
pub(crate) struct InMemory {
    maps: Box<[CachePadded<Mutex<Map>>]>,
    len: AtomicU64,
    bytes: AtomicU64,
}

impl InMemory {
    pub fn new() -> InMemory {
        InMemory {
            maps: (0..SHARDS)
                .map(|_| CachePadded::new(Mutex::new(Map::default())))
                .collect(),
            len: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }

    fn map(&self, addr: VersionAddr) -> &Mutex<Map> {
        // Offsets are in the low bits: neighbours spread.
        &self.maps[(addr.0 ^ addr.0 >> 15) as usize % SHARDS].0
    }

    fn gone(&self, records: u64, record_bytes: usize) {
        self.len.fetch_sub(records, Ordering::Relaxed);
        let bytes = record_bytes + records as usize * ENTRY_BYTES;
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl OldKeeper for InMemory {
    fn with(&self, addr: VersionAddr, f: &mut dyn FnMut(&[u8])) -> bool {
        let map = self.map(addr).lock();
        map.get(&addr.0).is_some_and(|rec| {
            f(rec);
            true
        })
    }

    fn put(&self, addr: VersionAddr, record: &[u8]) {
        let before = self.map(addr).lock().insert(addr.0, record.into());
        if let Some(before) = before {
            self.gone(1, before.len());
        }
        self.len.fetch_add(1, Ordering::Relaxed);
        self.bytes
            .fetch_add((record.len() + ENTRY_BYTES) as u64, Ordering::Relaxed);
    }

    fn set_next(&self, addr: VersionAddr, next: VersionAddr) -> bool {
        let mut map = self.map(addr).lock();
        map.get_mut(&addr.0).is_some_and(|rec| {
            set_record_next(rec, next);
            true
        })
    }

    fn remove(&self, addr: VersionAddr) -> Option<usize> {
        let rec = self.map(addr).lock().remove(&addr.0)?;
        self.gone(1, rec.len());
        Some(rec.len())
    }

    fn remove_if(&self, shard: usize, gone: &mut dyn FnMut(&VersionHead) -> bool) -> u64 {
        let (mut records, mut bytes) = (0, 0);
        let mut map = self.maps[shard].lock();
        map.retain(|addr, rec| {
            let go = gone(&read_head(rec, VersionAddr(*addr)));
            if go {
                records += 1;
                bytes += rec.len();
            }
            !go
        });
        if map.len() * 4 < map.capacity() {
            map.shrink_to_fit();
        }
        drop(map);
        self.gone(records, bytes);
        records
    }

    fn heads(&self, shard: usize) -> Vec<VersionHead> {
        let map = self.maps[shard].lock();
        map.iter()
            .map(|(addr, rec)| read_head(rec, VersionAddr(*addr)))
            .collect()
    }

    fn shards(&self) -> usize {
        SHARDS
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn spilled(&self) -> u64 {
        0
    }
}
