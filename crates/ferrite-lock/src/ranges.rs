//! Ranges: what a long locking scan holds, told once instead of once per key.
//!
//! A scan that locks entry after entry of an index, gaps included, would leave a lock per
//! entry: gigabytes for millions of rows. After its first few dozen locks (see
//! [`LockTable::folds`]) it grows a range instead, which stands for a next-key lock on
//! each key from its low end to its high end.
//!
//! Nobody waits for a range. Who finds one in the way makes it explicit for the one key that
//! is wanted ("unfolds"), as with implicit locks, and waits in that key's line.
//!
//! Invariants:
//! - A range grows over a key under the mutex of that key's shard, so that growing over a key
//!   and asking for it exclude each other.
//! - What lies between a range's old and new end is locked by its owner: the caller's duty,
//!   who knows what its scan has passed.
//! - A range goes under its owner's list mutex, before the owner's other locks: who holds that
//!   mutex and sees the range may add locks on the owner's behalf.
//!
//! - Ranges of one owner and mode do not overlap: where they meet they become one.
//!
//! Cost: a range is found among n in O(log n) steps, by key (`interval`, one set for shared and
//! one for exclusive ranges, so that shared ones need not be looked at by who shares) and by
//! owner. They are released, and listed, some at a time.
//!
//! Locking: owner's list, then a shard, then a stripe of ranges; nothing after it.

use core::ops::Bound;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use ferrite_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use ferrite_sync::atomic::{AtomicU32, AtomicU64};
use ferrite_sync::{Arc, CachePadded, Mutex};
use ferrite_types::{IndexId, Result};

use crate::interval::{Intervals, Node};
use crate::mode::{conflicts, missing, row_mask, Mask, Mode, Span};
use crate::owner::{Handle, Owner};
use crate::queue::Wakes;
use crate::shard::{KeyRef, Locked, Outcome, Tally};
use crate::table::{Attempt, LockTable};

/// Counters of ranges, by index modulo this; and stripes. A model has one: loom looks at each.
const COUNTERS: usize = if cfg!(loom) { 1 } else { 4096 };
const STRIPES: usize = if cfg!(loom) { 1 } else { 64 };
/// Accounted size of a range besides its keys (bytes): its node, and where its owner finds it.
const RANGE_BYTES: usize = 256;
/// Ranges released, or shown, under one hold of a stripe's mutex.
const AT_ONCE: usize = 128;

/// Locks of an owner from which on its scans fold early, and after how many in a row they do then.
const MANY_LOCKS: u64 = 1024;
const FOLD_EARLY_AFTER: u32 = 8;

/// Names a range; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeId(u64);

/// Whose a range is. It is a next-key lock on each key from `low` to `high`, both included.
pub(crate) struct Held {
    id: RangeId,
    pub owner: Arc<Owner>,
}

type Range = Node<Held>;
type Hasher = foldhash::fast::FixedState;

/// What is accounted for it.
fn bytes(range: &Range) -> usize {
    RANGE_BYTES + 2 * range.low.len() + range.high.len()
}

/// The modes there are, and the set of ranges that has each.
const MODES: [Mode; 2] = [Mode::Shared, Mode::Exclusive];

fn mask_of(set: usize) -> Mask {
    row_mask(MODES[set], Span::NextKey)
}

/// One owner's ranges by low end, of each mode.
type Own = [BTreeMap<Vec<u8>, u32>; 2];

/// The ranges of one index.
#[derive(Default)]
struct IndexRanges {
    sets: [Intervals<Held>; 2],
    owners: HashMap<usize, Own, Hasher>,
    /// Mode and slot of each.
    names: HashMap<u64, (usize, u32), Hasher>,
}

fn name(owner: &Arc<Owner>) -> usize {
    Arc::as_ptr(owner) as usize
}

impl IndexRanges {
    fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Nobody but this owner has ranges here.
    fn is_alone(&self, owner: &Arc<Owner>) -> bool {
        self.owners.len() == 1 && self.owners.contains_key(&name(owner))
    }

    /// Is the key in a range of another owner with which a request for `asked` is in conflict?
    fn in_the_way(&self, owner: &Arc<Owner>, key: &[u8], asked: Mask) -> bool {
        // What a request for nothing in particular meets is everything: see `covering`.
        asked != 0
            && !self.is_alone(owner)
            && !self.covering(key, asked, &mut |r, _| Arc::ptr_eq(&r.data.owner, owner))
    }

    /// The slot of the owner's range of that name and mode.
    fn named(&self, id: RangeId, set: usize, owner: &Arc<Owner>) -> Option<u32> {
        let (s, slot) = self.names.get(&id.0).copied()?;
        let range = self.sets[s].get(slot)?;
        (s == set && Arc::ptr_eq(&range.data.owner, owner)).then_some(slot)
    }

    /// The same, if the key is above the range and nothing else of this owner is on the way, nor
    /// could give it more than the range: what a scan upward finds at almost every row.
    fn just_above(&self, id: RangeId, set: usize, owner: &Arc<Owner>, key: &[u8]) -> Option<u32> {
        let slot = self.named(id, set, owner)?;
        let range = self.sets[set].get(slot)?;
        let own = self.owners.get(&name(owner))?;
        let met = (Bound::Excluded(range.low.as_slice()), Bound::Included(key));
        let free = *key > *range.high
            && own[1 - set].is_empty()
            && own[set].range::<[u8], _>(met).next().is_none();
        free.then_some(slot)
    }

    /// Calls `f` with each range over the key, and its modes, until it says false.
    fn covering(&self, key: &[u8], asked: Mask, f: &mut dyn FnMut(&Range, Mask) -> bool) -> bool {
        (0..2).all(|set| {
            let mask = mask_of(set);
            (asked != 0 && !conflicts(asked, mask))
                || self.sets[set].covering(key, &mut |range| f(range, mask))
        })
    }

    /// The owner's range over the key, of one mode.
    fn own_at(&self, set: usize, owner: &Arc<Owner>, key: &[u8]) -> Option<&Range> {
        let own = self.owners.get(&name(owner))?;
        let below = (Bound::Unbounded, Bound::Included(key));
        let (_, slot) = own[set].range::<[u8], _>(below).next_back()?;
        let range = self.sets[set].get(*slot)?;
        (*range.high >= *key).then_some(range)
    }

    fn held_by(&self, owner: &Arc<Owner>, key: &[u8]) -> Mask {
        (0..2).fold(0, |held, set| match self.own_at(set, owner, key) {
            Some(_) => held | mask_of(set),
            None => held,
        })
    }

    fn begin(&mut self, set: usize, id: RangeId, owner: &Arc<Owner>, key: &[u8], tally: &Tally) {
        let held = Held {
            id,
            owner: owner.clone(),
        };
        let slot = self.sets[set].insert(id.0, key.to_vec(), key.to_vec(), held);
        self.names.insert(id.0, (set, slot));
        let own = self.owners.entry(name(owner)).or_default();
        own[set].insert(key.to_vec(), slot);
        tally.take(RANGE_BYTES + 3 * key.len());
    }

    /// Takes a range out. Its owner's place stays if it has other ranges.
    fn take(&mut self, set: usize, slot: u32, tally: &Tally) -> Option<Range> {
        let range = self.sets[set].remove(slot)?;
        tally.give(bytes(&range));
        self.names.remove(&range.data.id.0);
        let owner = name(&range.data.owner);
        if let Some(own) = self.owners.get_mut(&owner) {
            own[set].remove(&range.low);
            if own.iter().all(BTreeMap::is_empty) {
                self.owners.remove(&owner);
            }
        }
        Some(range)
    }

    /// The range reaches to this key now, which may be above or below it. Ranges of its owner and
    /// mode that it meets become part of it. Returns how many did.
    fn reach(&mut self, set: usize, slot: u32, key: &[u8], tally: &Tally) -> usize {
        let Some(range) = self.sets[set].get(slot) else {
            return 0;
        };
        if *range.low <= *key && *key <= *range.high {
            return 0;
        }
        let owner = name(&range.data.owner);
        tally.give(bytes(range));
        let mut met = 0;
        while let Some(other) = self.met(set, slot, owner, key) {
            let Some(other) = self.take(set, other, tally) else {
                break;
            };
            self.resize(set, slot, owner, &other.low);
            self.resize(set, slot, owner, &other.high);
            met += 1;
        }
        self.resize(set, slot, owner, key);
        if let Some(range) = self.sets[set].get(slot) {
            tally.take(bytes(range));
        }
        met
    }

    /// A range of the same owner and mode between a range and the key that it is to reach.
    fn met(&self, set: usize, slot: u32, owner: usize, key: &[u8]) -> Option<u32> {
        let (range, own) = (self.sets[set].get(slot)?, self.owners.get(&owner)?);
        let (low, high) = (range.low.as_slice(), range.high.as_slice());
        if key > high {
            let above = (Bound::Excluded(low), Bound::Included(key));
            let (_, other) = own[set].range::<[u8], _>(above).next()?;
            return Some(*other);
        }
        if key >= low {
            return None;
        }
        let below = (Bound::Unbounded, Bound::Excluded(low));
        let (_, other) = own[set].range::<[u8], _>(below).next_back()?;
        let reaches = self.sets[set].get(*other)?.high.as_slice() >= key;
        reaches.then_some(*other)
    }

    /// Moves the end of a range out to that key. The row of a scan: nothing is allocated.
    fn resize(&mut self, set: usize, slot: u32, owner: usize, key: &[u8]) {
        let Some(range) = self.sets[set].get(slot) else {
            return;
        };
        if *key > *range.high {
            self.sets[set].raise(slot, key);
        } else if *key < *range.low {
            if let Some(own) = self.owners.get_mut(&owner) {
                if let Some((mut low, slot)) = own[set].remove_entry(&range.low) {
                    low.clear();
                    low.extend_from_slice(key);
                    own[set].insert(low, slot);
                }
            }
            self.sets[set].set_low(slot, key);
        }
    }
}

type Stripe = CachePadded<Mutex<HashMap<IndexId, IndexRanges, Hasher>>>;

/// All ranges of one lock table.
pub(crate) struct Ranges {
    counts: Box<[AtomicU32]>,
    stripes: Box<[Stripe]>,
    next: AtomicU64,
}

impl Ranges {
    pub fn new() -> Ranges {
        Ranges {
            counts: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            next: AtomicU64::new(1),
        }
    }

    fn count(&self, index: IndexId) -> &AtomicU32 {
        &self.counts[index.get() as usize % COUNTERS]
    }

    fn stripe(&self, index: IndexId) -> &Mutex<HashMap<IndexId, IndexRanges, Hasher>> {
        &self.stripes[index.get() as usize % STRIPES].0
    }

    /// May the index (or one that shares its counter) have ranges? One load.
    #[inline]
    pub fn any(&self, index: IndexId) -> bool {
        self.count(index).load(Acquire) != 0
    }

    /// What `f` says of the ranges of an index, if there are any.
    fn with<R>(&self, index: IndexId, f: impl FnOnce(&IndexRanges) -> R) -> Option<R> {
        if !self.any(index) {
            return None;
        }
        self.stripe(index).lock().get(&index).map(f)
    }

    /// Is there a range over the key of which `f` says true, among those a request for `asked`
    /// (0: any) is in conflict with?
    fn has(&self, index: IndexId, key: &[u8], asked: Mask, f: &dyn Fn(&Range) -> bool) -> bool {
        let none = |ranges: &IndexRanges| ranges.covering(key, asked, &mut |r, _| !f(r));
        !self.with(index, none).unwrap_or(true)
    }

    /// Somebody has a range over this key.
    pub fn covers(&self, index: IndexId, key: &[u8]) -> bool {
        self.has(index, key, 0, &|_| true)
    }

    /// Some range ends with this key.
    pub fn ends_at(&self, index: IndexId, key: &[u8]) -> bool {
        self.has(index, key, 0, &|r| *r.high == *key)
    }

    /// What the owner's ranges give it on a key.
    pub fn held_by(&self, owner: &Arc<Owner>, k: KeyRef<'_>) -> Mask {
        let held = self.with(k.index, |ranges| ranges.held_by(owner, k.key));
        held.unwrap_or(0)
    }

    /// Who has a range over the key.
    pub fn owners(&self, k: KeyRef<'_>) -> Vec<Arc<Owner>> {
        self.owners_of(k, 0, &|_, _| true)
    }

    fn owners_of(
        &self,
        k: KeyRef<'_>,
        asked: Mask,
        f: &dyn Fn(&Arc<Owner>, Mask) -> bool,
    ) -> Vec<Arc<Owner>> {
        let mut found = Vec::new();
        self.with(k.index, |ranges| {
            ranges.covering(k.key, asked, &mut |r, mask| {
                if f(&r.data.owner, mask) {
                    found.push(r.data.owner.clone());
                }
                true
            })
        });
        found
    }

    /// Those other than this one whose ranges over the key are in conflict with a request, and of
    /// whom and whose modes `f` says true.
    fn others(
        &self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        asked: Mask,
        f: &dyn Fn(&Arc<Owner>, Mask) -> bool,
    ) -> Vec<Arc<Owner>> {
        self.owners_of(k, asked, &|other, mask| {
            !Arc::ptr_eq(other, owner) && f(other, mask)
        })
    }

    /// Would the request meet a range of another owner?
    pub fn in_the_way(&self, owner: &Arc<Owner>, k: KeyRef<'_>, asked: Mask) -> bool {
        let found = |ranges: &IndexRanges| ranges.in_the_way(owner, k.key, asked);
        self.with(k.index, found).unwrap_or(false)
    }

    /// What the owner lacks of `mask` on a key in spite of its ranges; `None` if another owner's are
    /// in the way of that.
    fn lacks(&self, owner: &Arc<Owner>, k: KeyRef<'_>, mask: Mask) -> Option<Mask> {
        let found = |ranges: &IndexRanges| {
            let need = missing(mask, ranges.held_by(owner, k.key));
            (!ranges.in_the_way(owner, k.key, need)).then_some(need)
        };
        self.with(k.index, found).unwrap_or(Some(mask))
    }

    /// The range reaches up to this key now, if nothing but the way there is to be asked: no range of
    /// anybody's and nobody in the key's line. Under the key's shard mutex.
    fn go_up(
        &self,
        id: RangeId,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mode: Mode,
        is_free: impl FnOnce() -> bool,
        tally: &Tally,
    ) -> bool {
        let set = usize::from(mode == Mode::Exclusive);
        let mut stripe = self.stripe(k.index).lock();
        let Some(ranges) = stripe.get_mut(&k.index) else {
            return false;
        };
        let Some(slot) = ranges.just_above(id, set, owner, k.key) else {
            return false;
        };
        let mask = row_mask(mode, Span::NextKey);
        if ranges.in_the_way(owner, k.key, mask) || !is_free() {
            return false;
        }
        let before = ranges.sets[set].get(slot).map_or(0, |r| r.high.len());
        ranges.sets[set].raise(slot, k.key);
        if before != k.key.len() {
            tally.give(before);
            tally.take(k.key.len());
        }
        true
    }

    /// The range reaches to this key now; if the owner has no such range of that mode, a new one
    /// begins here and takes its name. True if one began. Under the key's shard mutex.
    fn grow(
        &self,
        id: &mut Option<RangeId>,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mode: Mode,
        tally: &Tally,
    ) -> bool {
        let set = usize::from(mode == Mode::Exclusive);
        let mut stripe = self.stripe(k.index).lock();
        let ranges = stripe.entry(k.index).or_default();
        if let Some(slot) = id.and_then(|id| ranges.named(id, set, owner)) {
            for _ in 0..ranges.reach(set, slot, k.key, tally) {
                self.uncount(k.index, tally);
            }
            return false;
        }
        // Its name may be gone: another scan of this owner has met the range and taken it in.
        if let Some(range) = ranges.own_at(set, owner, k.key) {
            *id = Some(range.data.id);
            return false;
        }
        let new = RangeId(self.next.fetch_add(1, Relaxed));
        *id = Some(new);
        ranges.begin(set, new, owner, k.key, tally);
        tally.count_gap(k.index);
        self.count(k.index).fetch_add(1, Release);
        true
    }

    /// The owner's range of that mode over the key.
    fn name_at(&self, owner: &Arc<Owner>, k: KeyRef<'_>, mode: Mode) -> Option<RangeId> {
        let set = usize::from(mode == Mode::Exclusive);
        let found = |ranges: &IndexRanges| {
            let range = ranges.own_at(set, owner, k.key)?;
            Some(range.data.id)
        };
        self.with(k.index, found).flatten()
    }

    fn uncount(&self, index: IndexId, tally: &Tally) {
        tally.uncount_gap(index);
        self.count(index).fetch_sub(1, Release);
    }

    /// Some ranges of an owner go, of one of these indexes; those without any are taken off the
    /// list. Under its list mutex. False: it has none left.
    pub fn release_some(
        &self,
        owner: &Arc<Owner>,
        indexes: &mut BTreeSet<IndexId>,
        tally: &Tally,
    ) -> bool {
        let Some(index) = indexes.first().copied() else {
            return false;
        };
        let mut stripe = self.stripe(index).lock();
        let ranges = stripe.entry(index).or_default();
        let some: Vec<(usize, u32)> = ranges.owners.get(&name(owner)).map_or(Vec::new(), |own| {
            let of = |set: usize| own[set].values().map(move |slot| (set, *slot));
            of(0).chain(of(1)).take(AT_ONCE).collect()
        });
        for (set, slot) in &some {
            ranges.take(*set, *slot, tally);
            self.uncount(index, tally);
        }
        if !ranges.owners.contains_key(&name(owner)) {
            indexes.remove(&index);
        }
        if ranges.is_empty() {
            stripe.remove(&index);
        }
        true
    }

    /// Some shared ranges of an owner in an index go. Under its list mutex. False: none is left.
    pub fn release_shared(&self, owner: &Arc<Owner>, index: IndexId, tally: &Tally) -> bool {
        let mut stripe = self.stripe(index).lock();
        let Some(ranges) = stripe.get_mut(&index) else {
            return false;
        };
        let some: Vec<u32> = ranges.owners.get(&name(owner)).map_or(Vec::new(), |own| {
            own[0].values().copied().take(AT_ONCE).collect()
        });
        for slot in &some {
            ranges.take(0, *slot, tally);
            self.uncount(index, tally);
        }
        if ranges.is_empty() {
            stripe.remove(&index);
        }
        some.len() == AT_ONCE
    }

    /// Calls `f` with each range, its index and modes, some of them at a time under a stripe's
    /// mutex: one that changes meanwhile may be missed.
    pub fn each(&self, f: &mut dyn FnMut(IndexId, &Range, Mask)) {
        for stripe in &self.stripes {
            let indexes: Vec<IndexId> = stripe.0.lock().keys().copied().collect();
            for (index, set) in indexes.into_iter().flat_map(|i| [(i, 0), (i, 1)]) {
                let mut from = 0;
                loop {
                    let stripe = stripe.0.lock();
                    let Some(ranges) = stripe.get(&index).map(|r| &r.sets[set]) else {
                        break;
                    };
                    let to = ranges.slots().min(from + AT_ONCE as u32);
                    let some = (from..to).filter_map(|slot| ranges.get(slot));
                    some.for_each(|range| f(index, range, mask_of(set)));
                    if to == ranges.slots() {
                        break;
                    }
                    from = to;
                }
            }
        }
    }
}

impl LockTable {
    /// Should a scan that has taken so many next-key locks in a row grow a range? An owner that holds
    /// many locks does so early: it is the long transactions that ranges are for, and the scans of
    /// short ones do without the stripe's mutex.
    pub fn folds(&self, owner: &Owner, taken: u32) -> bool {
        taken > self.config.fold_after
            || taken > FOLD_EARLY_AFTER && owner.locks_held() > MANY_LOCKS
    }

    /// Asks for a next-key lock, as [`try_lock`](Self::try_lock) does, and keeps it by growing
    /// the range named by `range` up, or down, to the key; where there is none, one begins here. The
    /// caller has next-key locks of this mode on all that stands between the range's end and
    /// the key, and holds the latch of the key's leaf. By the owner's thread.
    ///
    /// # Errors
    /// [`Error::LockTableFull`](ferrite_types::Error::LockTableFull). Nothing changed.
    pub fn try_lock_in_range(
        &self,
        owner: &Arc<Owner>,
        index: IndexId,
        key: &[u8],
        mode: Mode,
        range: &mut Option<RangeId>,
    ) -> Result<Attempt> {
        let k = self.key(index, key);
        let mask = row_mask(mode, Span::NextKey);
        let (_, shard) = self.lock_shard(k);
        let is_free = || !shard.has_obstacle(owner, k, mask);
        let up = |id| self.ranges.go_up(id, owner, k, mode, is_free, &self.tally);
        if self.tally.check_room().is_ok() && range.is_some_and(up) {
            owner.lock_count.fetch_add(1, Relaxed);
            return Ok(Attempt::Held);
        }
        if missing(mask, self.ranges.held_by(owner, k)) == 0 {
            // Where it meets another range of this owner both become one.
            match range {
                None => *range = self.ranges.name_at(owner, k, mode),
                Some(_) => {
                    let begun = self.ranges.grow(range, owner, k, mode, &self.tally);
                    drop(shard);
                    if begun {
                        owner.list.lock().ranges.insert(index);
                    }
                }
            }
            return Ok(Attempt::Held);
        }
        if self.ranges.in_the_way(owner, k, mask) {
            return Ok(Attempt::Blocked);
        }
        if shard.has_obstacle(owner, k, mask) {
            return Ok(Attempt::Blocked);
        }
        self.tally.check_room()?;
        let begun = self.ranges.grow(range, owner, k, mode, &self.tally);
        drop(shard);
        if begun {
            owner.list.lock().ranges.insert(index);
        }
        owner.lock_count.fetch_add(1, Relaxed);
        Ok(Attempt::Held)
    }

    /// The owner's lock on one key goes if a range of its own says the same, unless somebody
    /// stands in line for the key. By the owner's thread.
    pub fn absorb(&self, owner: &Arc<Owner>, index: IndexId, key: &[u8]) {
        let k = self.key(index, key);
        let mut wakes = Wakes::default();
        let mut list = owner.list.lock();
        let (number, mut shard) = self.lock_shard(k);
        let Some(slot) = shard.find(k) else { return };
        let in_range = self.ranges.held_by(owner, k);
        let covered = shard
            .queue(slot)
            .is_some_and(|q| q.waiting.is_empty() && missing(q.held_by(owner), in_range) == 0);
        if covered && shard.remove(slot, owner, Mask::MAX, &self.tally, &mut wakes) {
            drop(shard);
            list.forget(Handle {
                shard: number,
                slot,
            });
        }
        debug_assert!(wakes.granted.is_empty(), "nobody stood in line");
    }

    /// Somebody else's range is in the way of a request for this key, and not in the key's
    /// line itself.
    pub(crate) fn is_folded(
        &self,
        shard: &Locked<'_>,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        asked: Mask,
    ) -> bool {
        let queue = shard.find(k).and_then(|slot| shard.queue(slot));
        let in_line = |other: &Arc<Owner>, mask: Mask| {
            queue.is_some_and(|q| missing(mask, q.held_by(other)) == 0)
        };
        let folded = |other: &Arc<Owner>, mask: Mask| !in_line(other, mask);
        asked != 0 && !self.ranges.others(owner, k, asked, &folded).is_empty()
    }

    /// Gives the owners of ranges in the way of a request an explicit lock on its key.
    pub(crate) fn unfold(&self, owner: &Arc<Owner>, k: KeyRef<'_>, asked: Mask) {
        for holder in self.ranges.others(owner, k, asked, &|_, _| true) {
            let mut wakes = Wakes::default();
            let mut list = holder.list.lock();
            let (number, mut shard) = self.lock_shard(k);
            let mask = self.ranges.held_by(&holder, k);
            if mask == 0 {
                continue;
            }
            let (slot, new_entry) = shard.force(&holder, k, mask, &self.tally, &mut wakes);
            drop(shard);
            if new_entry {
                list.locks.push(Handle {
                    shard: number,
                    slot,
                });
            }
            drop(list);
            wakes.send();
        }
    }

    /// Asks a shard, with the ranges over the key. `Blocked` also if one is in the way.
    pub(crate) fn ask(
        &self,
        shard: &mut Locked<'_>,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
        wakes: &mut Wakes,
    ) -> Result<Outcome> {
        if !self.ranges.any(k.index) {
            return shard.attempt(owner, k, mask, &self.tally, wakes);
        }
        match self.ranges.lacks(owner, k, mask) {
            None => Ok(Outcome::Blocked),
            Some(0) => Ok(Outcome::Covered),
            Some(need) => shard.attempt(owner, k, need, &self.tally, wakes),
        }
    }

    /// Is the key itself needed by a lock, so that locks have to move if its record goes? In the
    /// middle of a range it is not: the next key's lock covers the gap that it leaves. True also
    /// if another key of its shard has locks. Under the leaf's exclusive latch.
    pub fn is_anchor(&self, index: IndexId, key: &[u8]) -> bool {
        !self.is_lineless(index, key) || self.ranges.ends_at(index, key)
    }
}
