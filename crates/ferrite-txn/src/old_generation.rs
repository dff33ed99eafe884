//! The old generation: versions that survived their young segment, by address.
//!
//! What is here is needed by some snapshot or active transaction, or carries one that is
//! (see `retire`). It is kept by segment number: records in memory, and an extent of a
//! scratch file (see `scratch`) for what was spilled. The extent never changes: a spilled
//! record that has to is brought back to memory first, and one that goes is noted in memory.
//!
//! Invariants: a record in memory has the layout of the `version` module; an address is in
//! at most one of: the young ring, the memory here, the live part of an extent. The `end` of each
//! version that was ever in a segment is within its `ends`.
//!
//! Locking: one mutex per shard of segments, a leaf; never held over I/O. An extent that
//! was looked up stays readable until the walk ends: its space is freed with walks paused.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{CachePadded, Mutex};
use ferrite_types::{Result, VersionAddr};

use crate::extent::{Extent, Spot};
use crate::scratch::Place;
use crate::seen::{Ends, SeenByAll};
use crate::version::{
    body_of, read_head, record_bytes, room_of, set_record_next, state_of, write_record,
    AddressParts, NewVersion, VersionHead,
};

const SHARDS: usize = 64;
/// Accounted per version in memory besides its record: the map's slot and the allocation.
const ENTRY_BYTES: usize = 48;
/// Accounted per segment.
const SEGMENT_ENTRY_BYTES: usize = 256;
/// Debug builds look at the whole of segments with no more records than this.
const CHECKED_MOST: usize = 128;

#[derive(Default)]
pub(crate) struct OldSegment {
    /// By unit of the address.
    records: BTreeMap<u16, Box<[u8]>>,
    record_bytes: usize,
    extent: Option<Extent>,
    ends: Ends,
    /// Counts changes, so that one who copied it without the lock knows.
    changes: u64,
}

impl OldSegment {
    fn live(&self) -> u64 {
        self.records.len() as u64 + self.extent.as_ref().map_or(0, |e| u64::from(e.live))
    }

    /// What is counted is there, no record is twice, and each ended when some of them did.
    fn is_sound(&self, number: u64) -> bool {
        if self.records.len() > CHECKED_MOST {
            return true;
        }
        let sum: usize = self.records.values().map(|r| r.len()).sum();
        let twice = |e: &Extent| self.records.keys().any(|unit| e.spot(*unit).is_some());
        let ends_else = |unit: u16, rec: &[u8]| {
            let head = read_head(rec, VersionAddr::of_unit(number, unit));
            !self.ends.has(head.end)
        };
        sum == self.record_bytes
            && !self.extent.as_ref().is_some_and(twice)
            && !self.records.iter().any(|(unit, rec)| ends_else(*unit, rec))
    }

    fn record_memory(&self) -> usize {
        self.record_bytes + self.records.len() * ENTRY_BYTES
    }

    fn memory(&self) -> usize {
        let extent = self.extent.as_ref().map_or(0, Extent::memory);
        SEGMENT_ENTRY_BYTES + self.record_memory() + extent
    }

    fn file_bytes(&self) -> usize {
        self.extent.as_ref().map_or(0, |e| e.place.bytes())
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            live: self.live(),
            memory: self.memory() as u64,
            records: self.record_memory() as u64,
            file_bytes: self.file_bytes() as u64,
        }
    }

    fn insert(&mut self, unit: u16, record: &[u8]) {
        if let Some(extent) = &mut self.extent {
            extent.kill(unit);
        }
        debug_assert_eq!(room_of(record), record.len(), "a record is cut off");
        debug_assert_eq!(state_of(record), 0, "a version that went comes back");
        let before = self.records.insert(unit, record.into());
        self.record_bytes += record.len();
        self.record_bytes -= before.map_or(0, |r| r.len());
    }

    fn remove(&mut self, unit: u16) -> bool {
        if let Some(record) = self.records.remove(&unit) {
            assert!(self.record_bytes >= record.len(), "bytes of records");
            self.record_bytes -= record.len();
            return true;
        }
        self.extent.as_mut().is_some_and(|e| e.kill(unit))
    }
}

/// What a segment adds to the sums of all.
#[derive(Clone, Copy, Default)]
struct Sizes {
    live: u64,
    memory: u64,
    records: u64,
    file_bytes: u64,
}

/// What one has to know of a segment to spill it, or spill it again.
pub(crate) struct Copied {
    pub records: Vec<(u16, Box<[u8]>)>,
    pub extent: Option<Extent>,
    pub changes: u64,
}

/// A segment as the choice of what to spill sees it.
pub(crate) struct Candidate {
    pub number: u64,
    /// Records in memory and what they take.
    pub record_memory: usize,
    pub file_bytes: usize,
    /// Of the extent, less than half is alive.
    pub sparse: bool,
}

type Map = HashMap<u64, OldSegment, foldhash::fast::FixedState>;

#[derive(Default)]
pub(crate) struct OldGeneration {
    maps: Box<[CachePadded<Mutex<Map>>]>,
    len: AtomicU64,
    bytes: AtomicU64,
    /// Of `bytes`, what the records in memory take.
    record_bytes: AtomicU64,
    file_bytes: AtomicU64,
    /// Extents that went with the last version of their segment.
    given_back: Mutex<Vec<Place>>,
}

/// Replaces `before` by `after` in a sum.
fn adjust(sum: &AtomicU64, before: u64, after: u64) {
    let was = sum.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    debug_assert!(was >= before, "{before} leave a sum of {was}");
}

impl OldGeneration {
    pub fn new() -> OldGeneration {
        OldGeneration {
            maps: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            ..OldGeneration::default()
        }
    }

    fn map(&self, number: u64) -> &Mutex<Map> {
        &self.maps[number as usize % SHARDS].0
    }

    fn account(&self, before: Sizes, after: Sizes) {
        adjust(&self.len, before.live, after.live);
        adjust(&self.bytes, before.memory, after.memory);
        adjust(&self.record_bytes, before.records, after.records);
        adjust(&self.file_bytes, before.file_bytes, after.file_bytes);
    }

    /// Changes a segment that is here; one without live versions goes.
    fn change<R>(&self, number: u64, f: impl FnOnce(&mut OldSegment) -> R) -> Option<R> {
        let mut map = self.map(number).lock();
        let s = map.get_mut(&number)?;
        let before = s.sizes();
        let result = f(s);
        self.changed(&mut map, number, before);
        Some(result)
    }

    /// As `change`; makes the segment if it is not here.
    fn change_or_make(&self, number: u64, f: impl FnOnce(&mut OldSegment)) {
        let mut map = self.map(number).lock();
        let mut before = Sizes::default();
        let s = match map.entry(number) {
            Entry::Vacant(vacant) => vacant.insert(OldSegment::default()),
            Entry::Occupied(occupied) => {
                let s = occupied.into_mut();
                before = s.sizes();
                s
            }
        };
        f(s);
        self.changed(&mut map, number, before);
    }

    fn changed(&self, map: &mut Map, number: u64, before: Sizes) {
        let Some(s) = map.get_mut(&number) else {
            return;
        };
        s.changes += 1;
        debug_assert!(s.is_sound(number), "segment {number}");
        let mut after = s.sizes();
        if after.live == 0 {
            after = Sizes::default();
            let gone = map.remove(&number).and_then(|s| s.extent);
            self.given_back.lock().extend(gone.map(|e| e.place));
        }
        self.account(before, after);
    }

    /// Appends the body to `body`. `None`: it is not here.
    pub fn read(&self, addr: VersionAddr, body: &mut Vec<u8>) -> Result<Option<VersionHead>> {
        let mut take = |rec: &[u8]| {
            let head = read_head(rec, addr);
            body.extend_from_slice(body_of(rec, &head));
            head
        };
        let spot: Option<Spot> = {
            let map = self.map(addr.segment()).lock();
            let Some(s) = map.get(&addr.segment()) else {
                return Ok(None);
            };
            if let Some(rec) = s.records.get(&addr.unit()) {
                return Ok(Some(take(rec)));
            }
            s.extent.as_ref().and_then(|e| e.spot(addr.unit()))
        };
        Ok(spilled(spot)?.map(|rec| take(&rec)))
    }

    /// Puts or replaces a record, in memory.
    pub fn put(&self, addr: VersionAddr, record: &[u8]) {
        let end = read_head(record, addr).end;
        debug_assert!(!addr.is_none() && !end.is_frozen(), "{addr:?} ended {end}");
        self.change_or_make(addr.segment(), |s| {
            s.insert(addr.unit(), record);
            s.ends.add(end);
        });
    }

    /// As `put`, of a version not yet laid out.
    pub fn put_version(&self, addr: VersionAddr, v: &NewVersion<'_>) {
        let mut rec = vec![0; record_bytes(v.body.len())];
        write_record(&mut rec, v);
        self.put(addr, &rec);
    }

    /// Replaces a record that is here in memory; false if it is not.
    pub fn replace(&self, addr: VersionAddr, v: &NewVersion<'_>) -> bool {
        let here = {
            let map = self.map(addr.segment()).lock();
            map.get(&addr.segment())
                .is_some_and(|s| s.records.contains_key(&addr.unit()))
        };
        if here {
            self.put_version(addr, v);
        }
        here
    }

    /// Brings a record to memory if it is spilled. The caller keeps it from changing.
    pub fn bring_back(&self, addr: VersionAddr) -> Result<()> {
        let spot = {
            let map = self.map(addr.segment()).lock();
            let segment = map.get(&addr.segment());
            segment.and_then(|s| s.extent.as_ref()?.spot(addr.unit()))
        };
        if let Some(rec) = spilled(spot)? {
            self.put(addr, &rec);
        }
        Ok(())
    }

    /// Changes the `next` of a record in memory; false if it is not there.
    pub fn set_next(&self, addr: VersionAddr, next: VersionAddr) -> bool {
        let set = self.change(addr.segment(), |s| {
            let rec = s.records.get_mut(&addr.unit());
            rec.map(|rec| set_record_next(rec, next)).is_some()
        });
        set == Some(true)
    }

    /// Takes a record away; no I/O.
    pub fn remove(&self, addr: VersionAddr) -> bool {
        self.change(addr.segment(), |s| s.remove(addr.unit())) == Some(true)
    }

    /// Takes a segment in that was spilled as a whole.
    pub fn attach(&self, number: u64, extent: Extent, ends: Ends) {
        self.change_or_make(number, |s| {
            assert!(s.live() == 0, "segment {number} is here already");
            assert!(extent.live > 0, "segment {number} is empty");
            s.extent = Some(extent);
            s.ends.extend(ends);
        });
    }

    /// What a segment holds now.
    pub fn copy(&self, number: u64) -> Option<Copied> {
        let map = self.map(number).lock();
        let s = map.get(&number)?;
        Some(Copied {
            records: s.records.iter().map(|(u, r)| (*u, r.clone())).collect(),
            extent: s.extent.clone(),
            changes: s.changes,
        })
    }

    /// Puts an extent in the place of all that was copied; false if it changed since. Walks
    /// are paused.
    pub fn exchange(&self, number: u64, changes: u64, extent: Extent) -> bool {
        let mut old = None;
        let done = self.change(number, |s| {
            if s.changes != changes {
                return false;
            }
            assert_eq!(u64::from(extent.live), s.live(), "versions of {number}");
            s.records.clear();
            s.record_bytes = 0;
            old = s.extent.replace(extent);
            true
        });
        self.given_back.lock().extend(old.map(|e| e.place));
        done == Some(true)
    }

    /// Heads of the records of a shard that are in memory.
    pub fn heads(&self, shard: usize) -> Vec<VersionHead> {
        let map = self.maps[shard].lock();
        let mut heads = Vec::new();
        for (number, s) in map.iter() {
            for (unit, rec) in &s.records {
                heads.push(read_head(rec, VersionAddr::of_unit(*number, *unit)));
            }
        }
        heads
    }

    /// Takes out the segments of a shard of whose versions everybody sees the end; how many
    /// versions went. Nothing is read. Walks are paused.
    pub fn take_ended(&self, shard: usize, seen: &SeenByAll, out: &mut Vec<OldSegment>) -> u64 {
        let mut map = self.maps[shard].lock();
        let numbers: Vec<u64> = map
            .iter()
            .filter(|(_, s)| seen.has_all(s.ends))
            .map(|(number, _)| *number)
            .collect();
        let mut versions = 0;
        for number in numbers {
            if let Some(mut s) = map.remove(&number) {
                debug_assert!(s.is_sound(number) && s.live() > 0, "segment {number}");
                versions += s.live();
                self.account(s.sizes(), Sizes::default());
                let place = s.extent.take().map(|e| e.place);
                self.given_back.lock().extend(place);
                out.push(s);
            }
        }
        if map.len() * 4 < map.capacity() {
            map.shrink_to_fit();
        }
        versions
    }

    /// Would `take_ended` find anything?
    pub fn has_ended(&self, shard: usize, seen: &SeenByAll) -> bool {
        let map = self.maps[shard].lock();
        map.values().any(|s| seen.has_all(s.ends))
    }

    /// Bytes and versions in scratch files.
    pub fn spilled(&self) -> (u64, u64) {
        let mut sum = (0, 0);
        for map in self.maps.iter() {
            for segment in map.lock().values() {
                let live = segment.extent.as_ref().map_or(0, |e| u64::from(e.live));
                sum = (sum.0 + segment.file_bytes() as u64, sum.1 + live);
            }
        }
        sum
    }

    /// All segments, oldest first.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut found = Vec::new();
        for map in self.maps.iter() {
            found.extend(map.lock().iter().map(|(number, s)| Candidate {
                number: *number,
                record_memory: s.record_memory(),
                file_bytes: s.file_bytes(),
                sparse: s.extent.as_ref().is_some_and(Extent::is_sparse),
            }));
        }
        found.sort_by_key(|c| c.number);
        found
    }

    /// Extents that nobody names any more.
    pub fn take_given_back(&self) -> Vec<Place> {
        core::mem::take(&mut self.given_back.lock())
    }

    pub fn shards(&self) -> usize {
        SHARDS
    }

    /// Versions here, spilled ones included.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Memory in use (bytes).
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Of that, what records take that are in no scratch file.
    pub fn record_bytes(&self) -> u64 {
        self.record_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of extents in use.
    pub fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }
}

/// Reads a spilled record.
fn spilled(spot: Option<Spot>) -> Result<Option<Vec<u8>>> {
    spot.map(|spot| spot.place.record(spot.at)).transpose()
}
