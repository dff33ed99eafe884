//! Gap locks follow the gaps as records come and go.
//!
//! A gap lock belongs to the key that ends the gap. An insert splits the gap: the new key
//! gets the gap locks of its successor. When a record goes, its gap joins the successor's.
//! Within a range both happen by themselves.
//!
//! A transaction that inserts into a gap that it has locked itself, row after row, would get a
//! queue for each. From the second row on they are kept in a range of shared next-key locks,
//! which says no more: it has the rows themselves, too. The range grows over what is its own
//! alone, for the gap's lock has kept all others off since the first row:
//! - up, from the gap's end: all that lies between the first row and that end;
//! - down, from a key in the range: nothing lies between that and the key before it.
//!
//! Locking: a lock is added on behalf of other owners, which may be ending: each addition
//! is made under that owner's list mutex, after checking that it still has what it inherits
//! from. One shard at a time. May be called under a page latch.

use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_types::IndexId;

use crate::mode::{missing, row_mask, Mask, Mode, Span, GAP, GAP_S, GAP_X, REC, REC_X};
use crate::owner::{Handle, Held, OwnGap, Owner};
use crate::queue::Wakes;
use crate::shard::KeyRef;
use crate::table::LockTable;

impl LockTable {
    /// A key was (or is about to be) inserted before `successor`: the gap locks granted
    /// there are given to the new key too. Waiters need none: they look again from their
    /// position before once they are granted. Under the leaf's exclusive latch.
    pub fn inherit_gap(&self, index: IndexId, successor: &[u8], new_key: &[u8]) {
        if !self.has_gap_locks(index) || ferrite_sync::mutant!("lock.gaps_not_inherited") {
            return;
        }
        self.inherit(index, successor, new_key, &|_, held| held & GAP);
    }

    /// The same, where the new key is the insert of this owner: nobody else has the gap.
    pub fn inherit_gap_of_insert(
        &self,
        inserter: &Arc<Owner>,
        index: IndexId,
        successor: &[u8],
        new_key: &[u8],
    ) {
        if !self.has_gap_locks(index) || ferrite_sync::mutant!("lock.gaps_not_inherited") {
            return;
        }
        debug_assert!(new_key < successor, "another gap");
        self.inherit_by(Some(inserter), (index, successor, new_key), &|_, held| {
            held & GAP
        });
    }

    /// A record is removed (purged) before `successor`: gap and record locks on it become
    /// gap locks on the successor; record locks of owners below REPEATABLE READ
    /// ([`Owner::no_gaps`]) do not. The locks on the removed key itself stay until their
    /// owners end. Returns how many owners' locks that were. Under the leaf's exclusive latch.
    pub fn inherit_removed(&self, index: IndexId, removed: &[u8], successor: &[u8]) -> usize {
        if self.is_untouched(index, removed) {
            return 0;
        }
        self.inherit(index, removed, successor, &|owner, held| {
            let mut gap = held & GAP;
            if held & REC != 0 && !owner.no_gaps.load(Ordering::Relaxed) {
                gap |= if held & REC_X != 0 { GAP_X } else { GAP_S };
            }
            gap
        })
    }

    fn inherit(
        &self,
        index: IndexId,
        from: &[u8],
        to: &[u8],
        part: &dyn Fn(&Arc<Owner>, Mask) -> Mask,
    ) -> usize {
        self.inherit_by(None, (index, from, to), part)
    }

    /// `inserter`: the key `to` is its own.
    fn inherit_by(
        &self,
        inserter: Option<&Arc<Owner>>,
        (index, from, to): (IndexId, &[u8], &[u8]),
        part: &dyn Fn(&Arc<Owner>, Mask) -> Mask,
    ) -> usize {
        let from = self.key(index, from);
        let to = self.key(index, to);
        let mut heirs: Vec<Arc<Owner>> = Vec::new();
        {
            let (_, shard) = self.lock_shard(from);
            if let Some(q) = shard.find(from).and_then(|slot| shard.queue(slot)) {
                heirs.extend(
                    q.granted
                        .iter()
                        .filter(|g| part(&g.owner, g.mask) != 0)
                        .map(|g| g.owner.clone()),
                );
            }
            let kept = shard.sets().owners(from);
            heirs.extend(
                kept.filter(|(owner, mask)| part(owner, *mask) != 0)
                    .map(|(owner, _)| owner.clone()),
            );
        }
        // The shard first: a lock that a range takes in leaves it once the range has it.
        heirs.extend(self.ranges.owners(from));
        for owner in &heirs {
            let is_own = inserter.is_some_and(|inserter| Arc::ptr_eq(inserter, owner));
            self.inherit_one((owner, is_own), from, to, part);
        }
        heirs.len()
    }

    fn inherit_one(
        &self,
        (owner, is_own): (&Arc<Owner>, bool),
        from: KeyRef<'_>,
        to: KeyRef<'_>,
        part: &dyn Fn(&Arc<Owner>, Mask) -> Mask,
    ) {
        let mut wakes = Wakes::default();
        let mut list = owner.list.lock();
        if list.closing {
            return;
        }
        debug_assert_eq!(from.index, to.index);
        let (end, in_shard) = self.held_at(owner, from);
        let part = part(owner, in_shard | self.ranges.held_by(owner, from));
        debug_assert_eq!(part & !GAP, 0, "only gaps move, not {part:#x}");
        let mask = missing(part, self.ranges.held_by(owner, to));
        if mask == 0 || is_own && self.inherit_in_range(owner, &mut list, (from, end), to) {
            return;
        }
        let (number, mut shard) = self.lock_shard(to);
        if let Some(q) = shard.find(to).and_then(|slot| shard.queue(slot)) {
            if q.missing(owner, mask) == 0 {
                return;
            }
        }
        let (slot, new_entry) = shard.force(owner, to, mask, &self.tally, &mut wakes);
        drop(shard);
        if new_entry {
            let first = Handle {
                shard: number,
                slot,
            };
            list.add(first);
            owner.lock_count.fetch_add(1, Ordering::Relaxed);
            if let (true, Some(end)) = (is_own, end) {
                let (index, range) = (from.index, None);
                list.remember(OwnGap {
                    index,
                    end,
                    first,
                    range,
                });
            }
        }
        drop(list);
        wakes.send();
    }

    /// What the owner holds on a key but for its ranges, and its entry if it has one.
    fn held_at(&self, owner: &Arc<Owner>, k: KeyRef<'_>) -> (Option<Handle>, Mask) {
        let (number, shard) = self.lock_shard(k);
        let kept = shard.sets().held_by(owner, k);
        let entry = shard.find(k).and_then(|slot| {
            let held = shard.queue(slot)?.held_by(owner);
            (held != 0).then_some((slot, held))
        });
        match entry {
            None => (None, kept),
            Some((slot, held)) => {
                let shard = number;
                (Some(Handle { shard, slot }), kept | held)
            }
        }
    }

    /// The owner's own new key before `from`, where it has the entry `end` if it has one, is kept by a
    /// range. False: it is the first in its gap, or somebody has locks on the key. Under the owner's
    /// list mutex.
    fn inherit_in_range(
        &self,
        owner: &Arc<Owner>,
        list: &mut Held,
        (from, end): (KeyRef<'_>, Option<Handle>),
        to: KeyRef<'_>,
    ) -> bool {
        let mode = Mode::Shared;
        let is_here = |gap: &OwnGap| {
            gap.index == from.index && end.is_some_and(|end| gap.end == end || gap.first == end)
        };
        let known = list.own_gaps.iter().position(is_here);
        let below = self.ranges.name_at(owner, from, mode);
        let Some(mut range) = below.map(Some).or(known.map(|at| list.own_gaps[at].range)) else {
            return false;
        };
        let (_, shard) = self.lock_shard(to);
        let asked = row_mask(mode, Span::NextKey);
        let locked = shard.find(to).is_some() || shard.has_obstacle(owner, to, asked);
        if locked || self.ranges.in_the_way(owner, to, asked) {
            return false;
        }
        let begun = self.ranges.grow(&mut range, owner, to, mode, &self.tally);
        drop(shard);
        debug_assert!(range.is_some() && self.ranges.covers(to.index, to.key));
        if begun {
            list.ranges.insert(to.index);
        }
        if let Some(at) = known {
            list.own_gaps[at].range = range;
        }
        owner.lock_count.fetch_add(1, Ordering::Relaxed);
        true
    }
}
