//! The keys of one shard: a chained hash over slots that are used again.
//!
//! Invariants: a queue that is not empty stays in its slot; an empty one is freed before
//! the mutex is released. `count` is the number of queues and sets: zero means that no key of this
//! shard has any lock, readable without the mutex. `mark` has a bit for each queue's hash, and some for
//! keys that are gone: most keys without a lock are told by it alone, from the line that the mutex is
//! in anyway.
//!
//! Locking: one mutex per shard, held for a few dozen instructions per lock.

use ferrite_sync::atomic::{AtomicU32, Ordering};
use ferrite_sync::{Arc, Mutex, MutexGuard};
use ferrite_types::{IndexId, Result};

use crate::lock_set::LockSets;
use crate::mode::{conflicts, missing, Mask, CHECKED_MOST, GAP, INSERT, REC};
use crate::owner::Owner;
use crate::queue::{Added, Queue, Wakes};
pub(crate) use crate::tally::{KeyRef, Tally};

const NONE: u32 = u32::MAX;
/// The mark is made anew when as many keys have gone as there are slots, and so many more: its cost is
/// spread over them.
const STALE_MOST: usize = 16;
/// Accounted size of a queue besides its key, and of an entry in it (bytes).
const QUEUE_BYTES: usize = 128;
const ENTRY_BYTES: usize = 24;

/// What of a granted request the owner did not hold before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fresh {
    /// Anything on the record.
    Record,
    /// This mode on the record; it had another.
    Mode,
    /// No more than the gap.
    Gap,
}

/// Outcome of an attempt inside a shard.
pub(crate) enum Outcome {
    /// Nothing to add: covered by what the owner holds.
    Covered,
    /// Granted; `new_entry` must go into the owner's list.
    Granted {
        slot: u32,
        new_entry: bool,
        fresh: Fresh,
    },
    /// Granted, in a set of the shard; one that has `begun` must go into the owner's list.
    InSet { begun: bool, fresh: Fresh },
    /// Granted and nothing kept (insert intention).
    Free,
    /// Somebody is in the way.
    Blocked,
}

pub(crate) struct Cell {
    pub count: AtomicU32,
    inner: Mutex<Shard>,
}

impl Cell {
    pub fn new() -> Cell {
        Cell {
            count: AtomicU32::new(0),
            inner: Mutex::new(Shard::new()),
        }
    }

    pub fn lock(&self) -> Locked<'_> {
        Locked {
            count: &self.count,
            shard: self.inner.lock(),
        }
    }
}

pub(crate) struct Shard {
    /// One bit for each hash; see [`mark_of`].
    mark: u64,
    /// Keys that have gone since `mark` was made.
    stale: u32,
    /// First slot of each bucket; a power of two, or empty.
    heads: Vec<u32>,
    slots: Vec<Queue>,
    free: u32,
    used: u32,
    sets: LockSets,
}

/// A shard whose mutex is held.
pub(crate) struct Locked<'a> {
    count: &'a AtomicU32,
    shard: MutexGuard<'a, Shard>,
}

impl Locked<'_> {
    pub fn find(&self, k: KeyRef<'_>) -> Option<u32> {
        let s = &*self.shard;
        if s.mark & mark_of(k.hash) == 0 {
            return None;
        }
        let mut slot = s.heads[s.bucket(k.hash)];
        while slot != NONE {
            let q = &s.slots[slot as usize];
            if q.hash == k.hash && q.index == k.index && q.key == k.key {
                return Some(slot);
            }
            slot = q.next;
        }
        None
    }

    pub fn queue(&self, slot: u32) -> Option<&Queue> {
        self.shard.slots.get(slot as usize)
    }

    pub fn queue_mut(&mut self, slot: u32) -> &mut Queue {
        debug_assert!((slot as usize) < self.shard.slots.len(), "slot {slot}");
        &mut self.shard.slots[slot as usize]
    }

    /// Would the owner have to stand in the key's line for what it lacks of `mask`?
    pub fn has_obstacle(&self, owner: &Arc<Owner>, k: KeyRef<'_>, mask: Mask) -> bool {
        let (own, others) = self.shard.sets.held(owner, k);
        let queue = self.find(k).and_then(|slot| self.queue(slot));
        let need = missing(mask, own | queue.map_or(0, |q| q.held_by(owner)));
        need != 0 && (conflicts(need, others) || blocks(queue, owner, need))
    }

    /// The locks without a queue.
    pub fn sets(&self) -> &LockSets {
        &self.shard.sets
    }

    /// Locks of these modes on a key leave the owner's sets; what that was.
    pub fn take_from_sets(
        &mut self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
        tally: &Tally,
    ) -> Mask {
        self.shard.sets.take(owner, k, mask, tally)
    }

    /// The owner's sets of these modes go; how many locks that were.
    pub fn release_sets(&mut self, owner: &Arc<Owner>, mask: Mask, tally: &Tally) -> u64 {
        let gone = self.shard.sets.release(owner, mask, tally);
        self.publish_count();
        gone
    }

    fn publish_count(&self) {
        let count = self.shard.used + self.shard.sets.len() as u32;
        self.count.store(count, Ordering::Release);
    }

    /// Keeps a record lock that nothing is in the way of in a set, if its owner has many and its
    /// key no queue. True: a set has begun.
    fn keep(
        &mut self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        need: Mask,
        tally: &Tally,
    ) -> Option<bool> {
        if need & !REC != 0 || owner.locks_held() < tally.sets_after {
            return None;
        }
        let begun = self.shard.sets.keep(owner, k, need, tally)?;
        if begun {
            self.publish_count();
        }
        Some(begun)
    }

    /// All queues that are not empty.
    pub fn each(&self) -> impl Iterator<Item = &Queue> {
        self.shard.slots.iter().filter(|q| !q.is_empty())
    }

    fn find_or_make(&mut self, k: KeyRef<'_>, tally: &Tally) -> u32 {
        if let Some(slot) = self.find(k) {
            return slot;
        }
        let s = &mut *self.shard;
        if s.used as usize >= s.heads.len() {
            s.grow();
        }
        let slot = if s.free != NONE {
            let slot = s.free;
            s.free = s.slots[slot as usize].next;
            slot
        } else {
            s.slots.push(Queue::default());
            (s.slots.len() - 1) as u32
        };
        let bucket = s.bucket(k.hash);
        let head = s.heads[bucket];
        let q = &mut s.slots[slot as usize];
        debug_assert!(q.is_empty(), "slot {slot} is still in use");
        debug_assert!(head != slot, "slot {slot} is in its chain already");
        q.hash = k.hash;
        q.index = k.index;
        q.key.clear();
        q.key.extend_from_slice(k.key);
        q.next = head;
        s.heads[bucket] = slot;
        s.mark |= mark_of(k.hash);
        s.used += 1;
        debug_assert!(s.used as usize <= s.slots.len(), "{} queues", s.used);
        self.publish_count();
        tally.take(QUEUE_BYTES + k.key.len());
        debug_assert_eq!(self.find(k), Some(slot), "a queue that is not found");
        slot
    }

    /// Asks for `mask` without waiting.
    pub fn attempt(
        &mut self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
        tally: &Tally,
        wakes: &mut Wakes,
    ) -> Result<Outcome> {
        let (in_sets, others) = self.shard.sets.held(owner, k);
        let queue = self.find(k).and_then(|slot| self.queue(slot));
        let held = in_sets | queue.map_or(0, |q| q.held_by(owner));
        let need = missing(mask, held);
        if need == 0 {
            return Ok(Outcome::Covered);
        }
        if conflicts(need, others) || blocks(queue, owner, need) {
            return Ok(Outcome::Blocked);
        }
        debug_assert!(need & !mask == 0, "{need:#x} of {mask:#x}");
        if need & INSERT != 0 {
            return Ok(Outcome::Free);
        }
        let has_entry = queue.is_some_and(|q| q.held_by(owner) != 0);
        if !has_entry {
            tally.check_room()?;
        }
        let fresh = match (held & REC, need & REC) {
            (0, _) => Fresh::Record,
            (_, 0) => Fresh::Gap,
            _ => Fresh::Mode,
        };
        if queue.is_none() {
            if let Some(begun) = self.keep(owner, k, need, tally) {
                return Ok(Outcome::InSet { begun, fresh });
            }
        }
        let slot = self.find_or_make(k, tally);
        let new_entry = self.add(slot, owner, need, tally, wakes);
        debug_assert_eq!(new_entry, !has_entry, "an entry in the owner's list");
        Ok(Outcome::Granted {
            slot,
            new_entry,
            fresh,
        })
    }

    /// Grants modes on a key without asking; true if it made a new entry.
    pub fn force(
        &mut self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
        tally: &Tally,
        wakes: &mut Wakes,
    ) -> (u32, bool) {
        let slot = self.find_or_make(k, tally);
        debug_assert_eq!(mask & INSERT, 0, "an insert intention is never kept");
        (slot, self.add(slot, owner, mask, tally, wakes))
    }

    fn add(
        &mut self,
        slot: u32,
        owner: &Arc<Owner>,
        mask: Mask,
        tally: &Tally,
        wakes: &mut Wakes,
    ) -> bool {
        let q = self.queue_mut(slot);
        let added = q.add(owner, mask, wakes);
        let index = q.index;
        count_added(tally, index, added);
        added.new_entry
    }

    /// Puts a waiter at the end of the line. The queue must exist and block it.
    pub fn enqueue(&mut self, slot: u32, w: crate::queue::Waiting, tally: &Tally) {
        let q = self.queue_mut(slot);
        debug_assert!(
            !q.granted.is_empty() || !q.waiting.is_empty(),
            "an empty queue"
        );
        if w.mask & GAP != 0 {
            tally.count_gap(q.index);
        }
        tally.take(ENTRY_BYTES);
        q.enqueue(w);
    }

    /// Takes a waiter out of the line, if it still stands there.
    pub fn leave(
        &mut self,
        slot: u32,
        owner: &Arc<Owner>,
        sequence: u64,
        tally: &Tally,
        wakes: &mut Wakes,
    ) {
        let Some(at) = self.queue(slot).and_then(|q| q.place_of(owner, sequence)) else {
            return;
        };
        let q = self.queue_mut(slot);
        let index = q.index;
        let Some(w) = q.waiting.remove(at) else {
            return;
        };
        uncount_waiter(tally, index, w.mask);
        self.settle(slot, tally, wakes);
    }

    /// Takes modes away from an owner and hands on what became free. True when nothing of
    /// the owner's entry is left (and there was one).
    pub fn remove(
        &mut self,
        slot: u32,
        owner: &Arc<Owner>,
        mask: Mask,
        tally: &Tally,
        wakes: &mut Wakes,
    ) -> bool {
        let q = self.queue_mut(slot);
        let (before, after) = q.remove(owner, mask);
        if before == after {
            return false;
        }
        let index = q.index;
        if before & GAP != 0 && after & GAP == 0 {
            tally.uncount_gap(index);
        }
        if after == 0 {
            tally.give(ENTRY_BYTES);
        }
        self.settle(slot, tally, wakes);
        after == 0
    }

    /// Grants whom nothing stands in the way of any more; frees the queue if it is empty.
    fn settle(&mut self, slot: u32, tally: &Tally, wakes: &mut Wakes) {
        let q = self.queue_mut(slot);
        let index = q.index;
        if !q.waiting.is_empty() {
            q.grant_waiters(wakes, &mut |mask, added| {
                uncount_waiter(tally, index, mask);
                count_added(tally, index, added);
            });
        }
        debug_assert!(q.waiters_have_reasons(), "somebody waits for nothing");
        if q.is_empty() {
            self.release_slot(slot, tally);
        }
        debug_assert!(self.is_sound(), "after slot {slot} was settled");
    }

    /// Each queue in use is found by its key, and the count tells how many there are.
    fn is_sound(&self) -> bool {
        let s = &*self.shard;
        if s.slots.len() > CHECKED_MOST {
            return true;
        }
        let is_found = |(slot, q): (usize, &Queue)| {
            let (hash, index) = (q.hash, q.index);
            let key = &q.key;
            q.is_empty() || self.find(KeyRef { hash, index, key }) == Some(slot as u32)
        };
        s.slots.iter().enumerate().all(is_found)
            && s.slots.iter().filter(|q| !q.is_empty()).count() == s.used as usize
            && self.count.load(Ordering::Relaxed) == s.used + s.sets.len() as u32
    }

    fn release_slot(&mut self, slot: u32, tally: &Tally) {
        assert!(self.shard.used > 0, "more queues go than there were");
        let s = &mut *self.shard;
        let (hash, next) = {
            let q = &s.slots[slot as usize];
            (q.hash, q.next)
        };
        let bucket = s.bucket(hash);
        if s.heads[bucket] == slot {
            s.heads[bucket] = next;
        } else {
            let mut at = s.heads[bucket];
            while s.slots[at as usize].next != slot {
                at = s.slots[at as usize].next;
            }
            s.slots[at as usize].next = next;
        }
        let free = s.free;
        let q = &mut s.slots[slot as usize];
        assert!(q.is_empty(), "a queue with locks goes");
        tally.give(QUEUE_BYTES + q.key.len());
        q.next = free;
        q.key.clear();
        q.key.shrink_to(64);
        q.granted.shrink();
        q.waiting.shrink();
        s.free = slot;
        s.used -= 1;
        s.stale += 1;
        if s.used == 0 && s.slots.len() > 64 {
            // Give a burst's memory back.
            let sets = core::mem::take(&mut s.sets);
            *s = Shard {
                sets,
                ..Shard::new()
            };
        } else if s.used == 0 {
            (s.mark, s.stale) = (0, 0);
        } else if s.stale as usize > s.slots.len() + STALE_MOST {
            s.mark_anew();
        }
        self.publish_count();
    }
}

fn blocks(queue: Option<&Queue>, owner: &Arc<Owner>, need: Mask) -> bool {
    queue.is_some_and(|q| q.has_obstacle(owner, need, q.waiting.len()))
}

fn count_added(tally: &Tally, index: IndexId, added: Added) {
    if added.new_gap {
        tally.count_gap(index);
    }
    if added.new_entry {
        tally.take(ENTRY_BYTES);
    }
}

fn uncount_waiter(tally: &Tally, index: IndexId, mask: Mask) {
    if mask & GAP != 0 {
        tally.uncount_gap(index);
    }
    tally.give(ENTRY_BYTES);
}

/// The bit of a hash: from other bits than those that choose shard and bucket.
#[inline]
fn mark_of(hash: u64) -> u64 {
    1 << (hash >> 58)
}

impl Shard {
    fn new() -> Shard {
        Shard {
            mark: 0,
            stale: 0,
            heads: Vec::new(),
            slots: Vec::new(),
            free: NONE,
            used: 0,
            sets: LockSets::default(),
        }
    }

    fn mark_anew(&mut self) {
        self.stale = 0;
        let used = self.slots.iter().filter(|q| !q.is_empty());
        self.mark = used.fold(0, |mark, q| mark | mark_of(q.hash));
    }

    /// The low bits chose the shard.
    #[inline]
    fn bucket(&self, hash: u64) -> usize {
        debug_assert!(self.heads.len().is_power_of_two(), "{}", self.heads.len());
        (hash >> 32) as usize & (self.heads.len() - 1)
    }

    fn grow(&mut self) {
        let len = (self.heads.len() * 2).max(8);
        let chained: Vec<u32> = (0..self.heads.len())
            .flat_map(|b| {
                let mut all = Vec::new();
                let mut slot = self.heads[b];
                while slot != NONE {
                    all.push(slot);
                    slot = self.slots[slot as usize].next;
                }
                all
            })
            .collect();
        assert_eq!(chained.len(), self.used as usize, "queues in chains");
        self.heads = vec![NONE; len];
        for slot in chained {
            let b = self.bucket(self.slots[slot as usize].hash);
            self.slots[slot as usize].next = self.heads[b];
            self.heads[b] = slot;
        }
    }
}
