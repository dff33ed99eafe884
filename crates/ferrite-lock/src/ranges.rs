//! Ranges: what a long locking scan holds, told once instead of once per key.
//!
//! A scan that locks entry after entry of an index, gaps included, would leave a lock per
//! entry: gigabytes for millions of rows. After its first few dozen locks (see
//! [`LockTable::fold_after`]) it grows a range instead, which stands for a next-key lock on
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
//! Locking: owner's list, then a shard, then a stripe of ranges; nothing after it.

use ferrite_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use ferrite_sync::atomic::{AtomicU32, AtomicU64};
use ferrite_sync::{Arc, CachePadded, Mutex};
use ferrite_types::{IndexId, Result};

use crate::mode::{conflicts, missing, row_mask, Mask, Mode, Span};
use crate::owner::{Handle, Owner};
use crate::queue::Wakes;
use crate::shard::{KeyRef, Locked, Outcome, Tally};
use crate::table::{Attempt, LockTable};

/// Counters of ranges, by index modulo this.
const COUNTERS: usize = 4096;
const STRIPES: usize = 64;
/// Accounted size of a range besides its keys (bytes).
const RANGE_BYTES: usize = 128;

/// Names a range; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeId(u64);

/// A next-key lock on each key from `low` to `high`, both included.
pub(crate) struct Range {
    id: RangeId,
    pub owner: Arc<Owner>,
    pub index: IndexId,
    pub mask: Mask,
    pub low: Vec<u8>,
    pub high: Vec<u8>,
}

impl Range {
    fn covers(&self, index: IndexId, key: &[u8]) -> bool {
        self.index == index && *self.low <= *key && *key <= *self.high
    }

    fn bytes(&self) -> usize {
        RANGE_BYTES + self.low.len() + self.high.len()
    }
}

/// All ranges of one lock table.
pub(crate) struct Ranges {
    counts: Box<[AtomicU32]>,
    stripes: Box<[CachePadded<Mutex<Vec<Range>>>]>,
    next: AtomicU64,
}

impl Ranges {
    pub fn new() -> Ranges {
        Ranges {
            counts: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            stripes: (0..STRIPES)
                .map(|_| CachePadded::new(Mutex::new(Vec::new())))
                .collect(),
            next: AtomicU64::new(1),
        }
    }

    fn count(&self, index: IndexId) -> &AtomicU32 {
        &self.counts[index.get() as usize % COUNTERS]
    }

    fn stripe(&self, index: IndexId) -> &Mutex<Vec<Range>> {
        &self.stripes[index.get() as usize % STRIPES].0
    }

    /// May the index (or one that shares its counter) have ranges? One load.
    #[inline]
    pub fn any(&self, index: IndexId) -> bool {
        self.count(index).load(Acquire) != 0
    }

    /// Is some range of the index such that `f` says true?
    fn has(&self, index: IndexId, f: &dyn Fn(&Range) -> bool) -> bool {
        self.any(index) && self.stripe(index).lock().iter().any(f)
    }

    /// Somebody has a range over this key.
    pub fn covers(&self, index: IndexId, key: &[u8]) -> bool {
        self.has(index, &|r| r.covers(index, key))
    }

    /// Some range ends with this key.
    pub fn ends_at(&self, index: IndexId, key: &[u8]) -> bool {
        self.has(index, &|r| r.index == index && *r.high == *key)
    }

    /// What the owner's ranges give it on a key.
    pub fn held_by(&self, owner: &Arc<Owner>, k: KeyRef<'_>) -> Mask {
        if !self.any(k.index) {
            return 0;
        }
        self.stripe(k.index)
            .lock()
            .iter()
            .filter(|r| Arc::ptr_eq(&r.owner, owner) && r.covers(k.index, k.key))
            .fold(0, |mask, r| mask | r.mask)
    }

    /// Who has a range over the key of which `f` says true.
    pub fn owners(&self, k: KeyRef<'_>, f: &dyn Fn(&Range) -> bool) -> Vec<Arc<Owner>> {
        if !self.any(k.index) {
            return Vec::new();
        }
        let stripe = self.stripe(k.index).lock();
        let found = stripe.iter().filter(|r| r.covers(k.index, k.key) && f(r));
        found.map(|r| r.owner.clone()).collect()
    }

    /// As [`owners`](Self::owners), without this one.
    fn others(
        &self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        f: &dyn Fn(&Range) -> bool,
    ) -> Vec<Arc<Owner>> {
        self.owners(k, &|r| !Arc::ptr_eq(&r.owner, owner) && f(r))
    }

    /// Would the request meet a range of another owner?
    pub fn in_the_way(&self, owner: &Arc<Owner>, k: KeyRef<'_>, asked: Mask) -> bool {
        self.has(k.index, &|r| {
            !Arc::ptr_eq(&r.owner, owner) && conflicts(asked, r.mask) && r.covers(k.index, k.key)
        })
    }

    /// The range reaches up to this key now; if the owner has no such range of that mode, a new
    /// one begins here and takes its name. True if one began. Under the key's shard mutex.
    fn grow(
        &self,
        id: &mut Option<RangeId>,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
        tally: &Tally,
    ) -> bool {
        let mut stripe = self.stripe(k.index).lock();
        let old = stripe.iter_mut().find(|r| {
            Some(r.id) == *id
                && r.mask == mask
                && r.index == k.index
                && Arc::ptr_eq(&r.owner, owner)
        });
        if let Some(range) = old {
            if *range.high < *k.key {
                tally.give(range.bytes());
                range.high.clear();
                range.high.extend_from_slice(k.key);
                tally.take(range.bytes());
            }
            return false;
        }
        let range = Range {
            id: RangeId(self.next.fetch_add(1, Relaxed)),
            owner: owner.clone(),
            index: k.index,
            mask,
            low: k.key.to_vec(),
            high: k.key.to_vec(),
        };
        *id = Some(range.id);
        tally.take(range.bytes());
        tally.count_gap(k.index);
        stripe.push(range);
        self.count(k.index).fetch_add(1, Release);
        true
    }

    /// All ranges of an owner go. Under its list mutex.
    pub fn release(&self, owner: &Arc<Owner>, indexes: &mut Vec<IndexId>, tally: &Tally) {
        for index in indexes.drain(..) {
            let mut stripe = self.stripe(index).lock();
            let at = stripe
                .iter()
                .position(|r| r.index == index && Arc::ptr_eq(&r.owner, owner));
            debug_assert!(at.is_some(), "a range is in its owner's list");
            if let Some(at) = at {
                let range = stripe.swap_remove(at);
                tally.give(range.bytes());
                tally.uncount_gap(index);
                self.count(index).fetch_sub(1, Release);
            }
        }
    }

    /// Calls `f` with each range, under its stripe's mutex.
    pub fn each(&self, f: &mut dyn FnMut(&Range)) {
        for stripe in &self.stripes {
            stripe.0.lock().iter().for_each(&mut *f);
        }
    }
}

impl LockTable {
    /// After so many next-key locks in a row a scan should grow a range.
    pub fn fold_after(&self) -> u32 {
        self.config.fold_after
    }

    /// Asks for a next-key lock, as [`try_lock`](Self::try_lock) does, and keeps it by growing
    /// the range named by `range` up to the key; where there is none, one begins here. The
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
        if missing(mask, self.ranges.held_by(owner, k)) == 0 {
            return Ok(Attempt::Held);
        }
        if self.ranges.in_the_way(owner, k, mask) {
            return Ok(Attempt::Blocked);
        }
        if shard.has_obstacle(owner, k, mask) {
            return Ok(Attempt::Blocked);
        }
        self.tally.check_room()?;
        let begun = self.ranges.grow(range, owner, k, mask, &self.tally);
        drop(shard);
        if begun {
            owner.list.lock().ranges.push(index);
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
        let in_line = |r: &Range| queue.is_some_and(|q| missing(r.mask, q.held_by(&r.owner)) == 0);
        let folded = |r: &Range| conflicts(asked, r.mask) && !in_line(r);
        !self.ranges.others(owner, k, &folded).is_empty()
    }

    /// Gives the owners of ranges in the way of a request an explicit lock on its key.
    pub(crate) fn unfold(&self, owner: &Arc<Owner>, k: KeyRef<'_>, asked: Mask) {
        for holder in self.ranges.others(owner, k, &|r| conflicts(asked, r.mask)) {
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
        let need = missing(mask, self.ranges.held_by(owner, k));
        if need == 0 {
            return Ok(Outcome::Covered);
        }
        if self.ranges.in_the_way(owner, k, need) {
            return Ok(Outcome::Blocked);
        }
        shard.attempt(owner, k, need, &self.tally, wakes)
    }

    /// Is the key itself needed by a lock, so that its record should stay? In the middle of a
    /// range it is not: the next key's lock covers the gap that it leaves. Under the leaf's
    /// exclusive latch.
    pub fn is_anchor(&self, index: IndexId, key: &[u8]) -> bool {
        !self.is_lineless(index, key) || self.ranges.ends_at(index, key)
    }
}
