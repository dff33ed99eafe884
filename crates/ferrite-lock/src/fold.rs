//! Ranges, sets and single locks: when a scan goes on with a range, and how the lock of one key is
//! made explicit again. What they are for is in `ranges` and `lock_set`.
//!
//! Locking: as `ranges`.

use ferrite_sync::atomic::Ordering::Relaxed;
use ferrite_sync::Arc;
use ferrite_types::{IndexId, Result};

use crate::mode::{missing, row_mask, Mask, Mode, Span, REC};
use crate::owner::{Handle, Owner, RangeId};
use crate::queue::Wakes;
use crate::shard::{KeyRef, Locked, Outcome};
use crate::table::{Attempt, LockTable};

/// Locks of an owner from which on its scans fold early, and after how many in a row they do then.
const MANY_LOCKS: u64 = 1024;
const FOLD_EARLY_AFTER: u32 = 2;
/// Shards in which sets are released under one hold of the owner's list.
const SHARDS_AT_ONCE: usize = 16;

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
            self.strengthen_in_line(shard, owner, k, mask);
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
        self.strengthen_in_line(shard, owner, k, mask);
        if begun {
            owner.list.lock().ranges.insert(index);
        }
        owner.lock_count.fetch_add(1, Relaxed);
        Ok(Attempt::Held)
    }

    /// A range has grown over a key: if somebody stands in the key's line behind a weaker lock of the
    /// range's owner, that lock is now as strong as the range. Else the line would be handed on when
    /// the weaker lock goes before the range does (at prepare).
    fn strengthen_in_line(
        &self,
        mut shard: Locked<'_>,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
    ) {
        let mut wakes = Wakes::default();
        let queue = shard.find(k).and_then(|slot| shard.queue(slot));
        let is_weaker = |held: Mask| held != 0 && missing(mask, held) != 0;
        if queue.is_some_and(|q| !q.waiting.is_empty() && is_weaker(q.held_by(owner))) {
            let (_, new_entry) = shard.force(owner, k, mask, &self.tally, &mut wakes);
            assert!(!new_entry, "an entry that is in no list");
        }
        drop(shard);
        wakes.send();
    }

    /// Keys that a scan has locked one by one become part of its range, which reaches to them now:
    /// the owner has next-key locks of the range's mode on them and on all that stands between them
    /// and the range. Their own locks go, but where somebody stands in line for them. By the owner's
    /// thread.
    ///
    /// The range grows over these keys without the mutexes of their shards: until it has, the locks
    /// that are in the shards keep others away.
    pub fn absorb<'k>(
        &self,
        owner: &Arc<Owner>,
        index: IndexId,
        mode: Mode,
        range: RangeId,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
    ) {
        let mut list = owner.list.lock();
        let (ranges, tally) = (&self.ranges, &self.tally);
        if !ranges.reach_to(range, owner, index, mode, keys.clone(), tally) {
            return;
        }
        for key in keys {
            if let Some(gone) = self.take_covered(owner, self.key(index, key), mode) {
                list.forget(gone);
            }
        }
    }

    /// The owner's lock on a key goes if a next-key lock says the same, unless somebody stands in
    /// line. Under the owner's list mutex, which the lock is to be taken from.
    fn take_covered(&self, owner: &Arc<Owner>, k: KeyRef<'_>, by: Mode) -> Option<Handle> {
        let mut wakes = Wakes::default();
        let (number, mut shard) = self.lock_shard(k);
        let slot = shard.find(k)?;
        let queue = shard.queue(slot)?;
        let held = queue.held_by(owner);
        if held == 0 {
            // The lock is in a set; the queue is others'.
            return None;
        }
        let beyond = missing(held, row_mask(by, Span::NextKey));
        let covered = queue.waiting.is_empty() && beyond == 0;
        let gone = covered && shard.remove(slot, owner, Mask::MAX, &self.tally, &mut wakes);
        assert!(wakes.granted.is_empty(), "nobody stood in line");
        assert!(gone == covered, "an entry that is covered stays");
        gone.then_some(Handle {
            shard: number,
            slot,
        })
    }

    /// Somebody else's range or set is in the way of a request for this key, and not in the key's
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
        let asked = missing(asked, shard.sets().held_by(owner, k));
        shard
            .sets()
            .others(owner, k, asked)
            .any(|(o, m)| folded(o, m))
            || asked != 0 && !self.ranges.others(owner, k, asked, &folded).is_empty()
    }

    /// Gives the owners of ranges and sets in the way of a request an explicit lock on its key. The sets
    /// stay as they are, too: a fingerprint may be there for another key.
    pub(crate) fn unfold(&self, owner: &Arc<Owner>, k: KeyRef<'_>, asked: Mask) {
        let mut holders = self.ranges.others(owner, k, asked, &|_, _| true);
        {
            let (_, shard) = self.lock_shard(k);
            let others = shard.sets().others(owner, k, asked);
            holders.extend(others.map(|(other, _)| other.clone()));
        }
        for holder in holders {
            let mut wakes = Wakes::default();
            let mut list = holder.list.lock();
            let (number, mut shard) = self.lock_shard(k);
            let kept = shard.sets().held_by(&holder, k);
            let mask = self.ranges.held_by(&holder, k) | kept;
            if kept != 0 && ferrite_sync::mutant!("lock.sets_lost_at_unfold") {
                shard.take_from_sets(&holder, k, REC, &self.tally);
                continue;
            }
            if mask == 0 {
                continue;
            }
            debug_assert!(!Arc::ptr_eq(&holder, owner), "an own range is in the way");
            let (slot, new_entry) = shard.force(&holder, k, mask, &self.tally, &mut wakes);
            drop(shard);
            if new_entry {
                list.add(Handle {
                    shard: number,
                    slot,
                });
            }
            debug_assert_eq!(kept & !REC, 0, "only record locks are in sets");
            if kept != 0 && new_entry {
                // What a range stands for is counted with it. What a set stands for goes with it, and the
                // entry goes by itself.
                holder.lock_count.fetch_add(1, Relaxed);
            }
            drop(list);
            wakes.send();
        }
    }

    /// Some of the sets of an owner go, in these shards. Under its list mutex. False: it has none
    /// left.
    pub(crate) fn release_some_sets(&self, owner: &Arc<Owner>, shards: &mut Vec<u32>) -> bool {
        if shards.is_empty() {
            shards.shrink_to(64);
            return false;
        }
        let stay = shards.len().saturating_sub(SHARDS_AT_ONCE);
        for number in shards.drain(stay..) {
            let mut shard = self.shard(number).lock();
            shard.release_sets(owner, REC, &self.tally);
        }
        debug_assert_eq!(shards.len(), stay);
        true
    }

    /// The owner's locks of these modes in sets go, as those in queues do. By the owner's thread.
    pub(crate) fn release_sets_of(&self, owner: &Arc<Owner>, modes: Mask) {
        let shards: Vec<u32> = owner.list.lock().sets.clone();
        for number in shards {
            // Under the list's mutex: nobody takes a lock out of a set meanwhile, to count it anew.
            let list = owner.list.lock();
            let mut shard = self.shard(number).lock();
            let gone = shard.release_sets(owner, modes, &self.tally);
            drop(shard);
            debug_assert!(!list.closing, "by the owner's thread");
            owner.count_gone(gone);
            drop(list);
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
