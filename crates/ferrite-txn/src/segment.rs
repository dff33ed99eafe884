//! Young versions: segments of 256 KiB, filled by one thread shard each, in a ring.
//!
//! A directory slot (segment number modulo its length) holds the segments that fall on it,
//! nearly always one; its mutex guards their bytes. Adding and reading lock one slot for the
//! time of a short copy.
//!
//! Invariants: a segment is only appended to until it is sealed; a record stays where it is
//! until its segment is removed; it may be rewritten in place within its room by who holds
//! the row's page latch exclusively and a walk.
//!
//! Locking: a shard's `opening`, then a slot, then nothing; `numbers` is a leaf.

use std::collections::BTreeSet;

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{CachePadded, Mutex};
use ferrite_types::VersionAddr;

use crate::seen::Ends;
use crate::version::{
    body_of, read_head, record_bytes, room_of, set_record_next, set_state, state_of, write_record,
    AddressParts, NewVersion, VersionHead, SEGMENT_BYTES, STATE_DEAD, STATE_MOVED, UNIT,
};

/// Buffers of freed segments kept for new ones.
const SPARE: usize = 8;

pub(crate) struct Segment {
    number: u64,
    bytes: Vec<u8>,
    sealed: bool,
    /// Records neither dead nor moved.
    live: u32,
    /// Of the versions that were ever in it.
    ends: Ends,
    /// Counts changes of records, so that one who copied it knows.
    changes: u64,
}

impl Segment {
    fn record(&mut self, at: usize) -> &mut [u8] {
        let room = room_of(&self.bytes[at..]);
        &mut self.bytes[at..at + room]
    }
}

/// What the ring says of an address.
pub(crate) enum Found<R> {
    Here(R),
    /// In the ring, but dropped.
    Dead,
    /// Not in the ring (any more): ask the old generation.
    Elsewhere,
}

/// A sealed segment about to be retired.
pub(crate) struct Sealed {
    pub live: u32,
    pub ends: Ends,
    /// Bytes of its records, the dead ones included.
    pub used: usize,
    /// See [`Young::unchanged`].
    pub changes: u64,
}

#[derive(Default)]
struct OpenSegment {
    number: AtomicU64,
    opening: Mutex<()>,
}

pub(crate) struct Young {
    slots: Box<[CachePadded<Mutex<Vec<Segment>>>]>,
    open: Box<[CachePadded<OpenSegment>]>,
    next_number: AtomicU64,
    /// Segments in the ring.
    numbers: Mutex<BTreeSet<u64>>,
    count: AtomicU64,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Young {
    pub fn new(slots: usize, shards: usize) -> Young {
        Young {
            slots: (0..slots.next_power_of_two())
                .map(|_| CachePadded::new(Mutex::new(Vec::new())))
                .collect(),
            open: (0..shards.max(1))
                .map(|_| CachePadded::new(OpenSegment::default()))
                .collect(),
            next_number: AtomicU64::new(1),
            numbers: Mutex::new(BTreeSet::new()),
            count: AtomicU64::new(0),
            spare: Mutex::new(Vec::new()),
        }
    }

    fn slot(&self, number: u64) -> &Mutex<Vec<Segment>> {
        debug_assert!(self.slots.len().is_power_of_two());
        &self.slots[number as usize & (self.slots.len() - 1)].0
    }

    /// Bytes of all segments in the ring.
    pub fn bytes(&self) -> usize {
        self.count.load(Ordering::Relaxed) as usize * SEGMENT_BYTES
    }

    /// Adds a version to one of the first `spread` open segments.
    pub fn add(&self, v: &NewVersion<'_>, spread: usize) -> VersionAddr {
        let room = record_bytes(v.body.len());
        let spread = spread.clamp(1, self.open.len());
        let open = &self.open[ferrite_sync::shard_index() % spread];
        // One that fits no segment would open new ones for ever.
        assert!(room <= SEGMENT_BYTES, "a version of {room} bytes");
        loop {
            let number = open.number.load(Ordering::Acquire);
            if number != 0 {
                if let Some(addr) = self.append(number, room, v) {
                    return addr;
                }
            }
            let _alone = open.opening.lock();
            if open.number.load(Ordering::Acquire) == number {
                open.number.store(self.open_segment(), Ordering::Release);
            }
        }
    }

    fn append(&self, number: u64, room: usize, v: &NewVersion<'_>) -> Option<VersionAddr> {
        let mut slot = self.slot(number).lock();
        let s = slot.iter_mut().find(|s| s.number == number)?;
        let at = s.bytes.len();
        debug_assert!(at <= SEGMENT_BYTES && at % UNIT == 0, "a version at {at}");
        if s.sealed || at + room > SEGMENT_BYTES {
            s.sealed = true;
            return None;
        }
        s.bytes.resize(at + room, 0);
        write_record(&mut s.bytes[at..], v);
        s.live += 1;
        s.ends.add(v.end);
        Some(VersionAddr::at(number, at))
    }

    fn open_segment(&self) -> u64 {
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let spare = self.spare.lock().pop();
        let bytes = spare.unwrap_or_else(|| Vec::with_capacity(SEGMENT_BYTES));
        assert!(
            bytes.is_empty(),
            "a spare segment with {} bytes",
            bytes.len()
        );
        self.slot(number).lock().push(Segment {
            number,
            bytes,
            sealed: false,
            live: 0,
            ends: Ends::default(),
            changes: 0,
        });
        let is_new = self.numbers.lock().insert(number);
        assert!(is_new, "segment {number} is opened twice");
        self.count.fetch_add(1, Ordering::Relaxed);
        number
    }

    /// Looks at a record that is alive.
    fn with<R>(&self, addr: VersionAddr, f: impl FnOnce(&mut Segment, usize) -> R) -> Found<R> {
        let mut slot = self.slot(addr.segment()).lock();
        let Some(s) = slot.iter_mut().find(|s| s.number == addr.segment()) else {
            return Found::Elsewhere;
        };
        let at = addr.offset();
        debug_assert!(at < s.bytes.len(), "{addr:?} is after the last version");
        let state = state_of(&s.bytes[at..]);
        if state & STATE_MOVED != 0 {
            return Found::Elsewhere;
        }
        if state & STATE_DEAD != 0 {
            return Found::Dead;
        }
        Found::Here(f(s, at))
    }

    /// Appends the body to `body`.
    pub fn read(&self, addr: VersionAddr, body: &mut Vec<u8>) -> Found<VersionHead> {
        self.with(addr, |s, at| {
            let rec = s.record(at);
            let head = read_head(rec, addr);
            body.extend_from_slice(body_of(rec, &head));
            head
        })
    }

    pub fn set_next(&self, addr: VersionAddr, next: VersionAddr) -> Found<()> {
        self.with(addr, |s, at| {
            s.changes += 1;
            set_record_next(s.record(at), next);
        })
    }

    /// Marks a record dead; gives the bytes it occupied.
    pub fn kill(&self, addr: VersionAddr) -> Found<usize> {
        self.with(addr, |s, at| {
            assert!(s.live > 0, "more versions go than segment {} had", s.number);
            set_state(s.record(at), STATE_DEAD);
            s.changes += 1;
            s.live -= 1;
            s.record(at).len()
        })
    }

    /// Marks a record as being in the old generation, and gives a copy of it.
    pub fn mark_moved(&self, addr: VersionAddr) -> Found<Vec<u8>> {
        self.with(addr, |s, at| {
            assert!(s.live > 0, "more versions go than segment {} had", s.number);
            debug_assert!(s.sealed, "segment {} is being filled", s.number);
            let copy = s.record(at).to_vec();
            set_state(s.record(at), STATE_MOVED);
            s.changes += 1;
            s.live -= 1;
            copy
        })
    }

    /// Overwrites a record if the new content fits its room; false if not.
    pub fn rewrite(&self, addr: VersionAddr, v: &NewVersion<'_>) -> Found<bool> {
        self.with(addr, |s, at| {
            let rec = s.record(at);
            if record_bytes(v.body.len()) > rec.len() {
                return false;
            }
            let was = read_head(rec, addr);
            debug_assert_eq!(
                (was.begin, was.end, was.index),
                (v.begin, v.end, v.index),
                "another version in the place of {addr:?}"
            );
            write_record(rec, v);
            s.changes += 1;
            debug_assert!(s.ends.has(v.end), "{addr:?}");
            true
        })
    }

    /// The oldest segment in the ring.
    pub fn oldest(&self) -> Option<u64> {
        self.numbers.lock().first().copied()
    }

    /// The newest segment in the ring.
    pub fn newest(&self) -> Option<u64> {
        self.numbers.lock().last().copied()
    }

    /// Ends appending.
    pub fn seal(&self, number: u64) -> Option<Sealed> {
        let mut slot = self.slot(number).lock();
        let s = slot.iter_mut().find(|s| s.number == number)?;
        s.sealed = true;
        Some(Sealed {
            live: s.live,
            ends: s.ends,
            used: s.bytes.len(),
            changes: s.changes,
        })
    }

    /// Copies a sealed segment.
    pub fn copy(&self, number: u64, bytes: &mut Vec<u8>) -> Option<Sealed> {
        let slot = self.slot(number).lock();
        let s = slot.iter().find(|s| s.number == number)?;
        bytes.clear();
        debug_assert!(s.sealed, "segment {number} is being filled");
        bytes.extend_from_slice(&s.bytes);
        Some(Sealed {
            live: s.live,
            ends: s.ends,
            used: s.bytes.len(),
            changes: s.changes,
        })
    }

    /// No record of the segment has changed since it was copied.
    pub fn unchanged(&self, number: u64, copied: &Sealed) -> bool {
        let slot = self.slot(number).lock();
        let s = slot.iter().find(|s| s.number == number);
        s.is_some_and(|s| s.changes == copied.changes)
    }

    /// Heads of all records that are alive in a segment.
    pub fn heads(&self, number: u64) -> Vec<VersionHead> {
        let slot = self.slot(number).lock();
        let Some(s) = slot.iter().find(|s| s.number == number) else {
            return Vec::new();
        };
        let mut heads = Vec::with_capacity(s.live as usize);
        let mut at = 0;
        while at < s.bytes.len() {
            let rec = &s.bytes[at..];
            if state_of(rec) == 0 {
                heads.push(read_head(rec, VersionAddr::at(number, at)));
            }
            at += room_of(rec);
        }
        debug_assert_eq!(at, s.bytes.len(), "versions of segment {number}");
        debug_assert_eq!(heads.len(), s.live as usize, "alive in {number}");
        heads
    }

    /// Takes a segment out of the ring; how many versions were alive in it.
    pub fn free(&self, number: u64) -> u32 {
        let taken = {
            let mut slot = self.slot(number).lock();
            let at = slot.iter().position(|s| s.number == number);
            at.map(|at| slot.swap_remove(at))
        };
        let Some(s) = taken else { return 0 };
        assert!(s.sealed, "segment {number} is freed while it is filled");
        let was_there = self.numbers.lock().remove(&number);
        debug_assert!(was_there, "segment {number} is in no list");
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more segments go than there were");
        let mut bytes = s.bytes;
        bytes.clear();
        let mut spare = self.spare.lock();
        if spare.len() < SPARE {
            spare.push(bytes);
        }
        s.live
    }
}
