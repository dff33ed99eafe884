//! Ranges: what a long locking scan holds, told once instead of once per key.
//!
//! A scan that locks entry after entry of an index, gaps included, would leave a lock per
//! entry: gigabytes for millions of rows. After its first few dozen locks (see
//! `LockTable::folds`) it grows a range instead, which stands for a next-key lock on
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
//! - Ranges of one owner and mode do not overlap: where they meet they become one.
//! - A range also grows over keys that its owner has locked one by one (`absorb`), on leaves whose
//!   latch it does not hold: first the range has the key, then the lock leaves the shard. So who asks
//!   both without the shard's mutex over it all asks the shard first.
//!
//! Cost: a range is found among n in O(log n) steps, by key (`interval`, one set for shared and
//! one for exclusive ranges, so that shared ones need not be looked at by who shares) and by
//! owner. They are released, and listed, some at a time.
//!
//! Locking: owner's list, then a shard, then a stripe of ranges; nothing after it.

use std::collections::{BTreeSet, HashMap};

use ferrite_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use ferrite_sync::atomic::{AtomicU32, AtomicU64};
use ferrite_sync::{Arc, CachePadded, Mutex};
use ferrite_types::IndexId;

use crate::index_ranges::{mask_of, name, Hasher, IndexRanges, Range};
use crate::mode::{missing, row_mask, AtPrepare, Mask, Mode, Span};
use crate::owner::{Owner, RangeId};
use crate::shard::{KeyRef, Tally};

/// Counters of ranges, by index modulo this; and stripes. A model has one: loom looks at each.
const COUNTERS: usize = if cfg!(loom) { 1 } else { 4096 };
const STRIPES: usize = if cfg!(loom) { 1 } else { 64 };
/// Ranges released, or shown, under one hold of a stripe's mutex.
const AT_ONCE: usize = 128;

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
    pub(crate) fn others(
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
    pub(crate) fn lacks(&self, owner: &Arc<Owner>, k: KeyRef<'_>, mask: Mask) -> Option<Mask> {
        let found = |ranges: &IndexRanges| {
            let need = missing(mask, ranges.held_by(owner, k.key));
            (!ranges.in_the_way(owner, k.key, need)).then_some(need)
        };
        self.with(k.index, found).unwrap_or(Some(mask))
    }

    /// The range reaches up to this key now, if nothing but the way there is to be asked: no range of
    /// anybody's and nobody in the key's line. Under the key's shard mutex.
    pub(crate) fn go_up(
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
        let alone = ranges.has_one_owner();
        if !alone && ranges.in_the_way(owner, k.key, mask) || !is_free() {
            return false;
        }
        let before = ranges.sets[set].get(slot).map_or(0, |r| r.high.len());
        ranges.sets[set].raise(slot, k.key);
        debug_assert_eq!(ranges.own_at(set, owner, k.key), Some(id), "over the key");
        debug_assert!(ranges.is_sound(), "a range went up");
        if before != k.key.len() {
            tally.give(before);
            tally.take(k.key.len());
        }
        true
    }

    /// The range reaches to this key now; if the owner has no such range of that mode, a new one
    /// begins here and takes its name. True if one began. Under the key's shard mutex.
    pub(crate) fn grow(
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
            debug_assert_eq!(ranges.own_at(set, owner, k.key), *id, "over the key");
            return false;
        }
        // Its name may be gone: another scan of this owner has met the range and taken it in.
        if let Some(own) = ranges.own_at(set, owner, k.key) {
            *id = Some(own);
            return false;
        }
        let number = self.next.fetch_add(1, Relaxed);
        debug_assert!(number > 0 && number < u64::MAX, "range {number}");
        *id = Some(ranges.begin(set, number, owner, k.key, tally));
        tally.count_gap(k.index);
        self.count(k.index).fetch_add(1, Release);
        true
    }

    /// The range covers these keys now. False: it is not there any more. By the owner's thread, which
    /// has locks on the keys and on all that is between them and the range.
    pub(crate) fn reach_to<'k>(
        &self,
        id: RangeId,
        owner: &Arc<Owner>,
        index: IndexId,
        mode: Mode,
        keys: impl Iterator<Item = &'k [u8]>,
        tally: &Tally,
    ) -> bool {
        let set = usize::from(mode == Mode::Exclusive);
        let mut stripe = self.stripe(index).lock();
        let Some(ranges) = stripe.get_mut(&index) else {
            return false;
        };
        let Some(slot) = ranges.named(id, set, owner) else {
            return false;
        };
        for key in keys {
            for _ in 0..ranges.reach(set, slot, key, tally) {
                self.uncount(index, tally);
            }
            debug_assert_eq!(
                ranges.own_at(set, owner, key),
                Some(id),
                "a key that was locked by itself is in no range"
            );
        }
        true
    }

    /// The owner's range of that mode over the key.
    pub(crate) fn name_at(&self, owner: &Arc<Owner>, k: KeyRef<'_>, mode: Mode) -> Option<RangeId> {
        let set = usize::from(mode == Mode::Exclusive);
        self.with(k.index, |ranges| ranges.own_at(set, owner, k.key))
            .flatten()
    }

    fn uncount(&self, index: IndexId, tally: &Tally) {
        tally.uncount_gap(index);
        let before = self.count(index).fetch_sub(1, Release);
        assert!(before > 0, "more ranges of {index:?} go than there were");
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
            let gone = ranges.take(*set, *slot, tally);
            assert!(
                gone.is_some_and(|range| Arc::ptr_eq(&range.data.owner, owner)),
                "another's range goes"
            );
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

    /// Some ranges of an owner in an index go, of those that do at prepare. Under its list mutex. False:
    /// none is left.
    pub fn release_at_prepare(
        &self,
        owner: &Arc<Owner>,
        index: IndexId,
        goes: AtPrepare,
        tally: &Tally,
    ) -> bool {
        let mut stripe = self.stripe(index).lock();
        let Some(ranges) = stripe.get_mut(&index) else {
            return false;
        };
        let sets = 0..match goes {
            AtPrepare::Reads => 1,
            AtPrepare::AllButChanges => 2,
        };
        let some: Vec<(usize, u32)> = ranges.owners.get(&name(owner)).map_or(Vec::new(), |own| {
            let of = |set: usize| own[set].values().map(move |slot| (set, *slot));
            sets.flat_map(of).take(AT_ONCE).collect()
        });
        for (set, slot) in &some {
            let gone = ranges.take(*set, *slot, tally);
            assert!(
                gone.is_some_and(|range| Arc::ptr_eq(&range.data.owner, owner)),
                "another's range goes at prepare"
            );
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
