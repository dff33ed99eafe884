//! Gap locks follow the gaps as records come and go.
//!
//! A gap lock belongs to the key that ends the gap. An insert splits the gap: the new key
//! gets the gap locks of its successor. When a record goes, its gap joins the successor's.
//! Within a range both happen by themselves.
//!
//! Locking: a lock is added on behalf of other owners, which may be ending: each addition
//! is made under that owner's list mutex, after checking that it still has what it inherits
//! from. One shard at a time. May be called under a page latch.

use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_types::IndexId;

use crate::mode::{missing, Mask, GAP, GAP_S, GAP_X, REC, REC_X};
use crate::owner::{Handle, Owner};
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
            self.inherit_one(owner, from, to, part);
        }
        heirs.len()
    }

    fn inherit_one(
        &self,
        owner: &Arc<Owner>,
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
        let held = {
            let (_, shard) = self.lock_shard(from);
            let q = shard.find(from).and_then(|slot| shard.queue(slot));
            let in_shard = q.map_or(0, |q| q.held_by(owner)) | shard.sets().held_by(owner, from);
            in_shard | self.ranges.held_by(owner, from)
        };
        let part = part(owner, held);
        debug_assert_eq!(part & !GAP, 0, "only gaps move, not {part:#x}");
        let mask = missing(part, self.ranges.held_by(owner, to));
        if mask == 0 {
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
            list.add(Handle {
                shard: number,
                slot,
            });
            owner.lock_count.fetch_add(1, Ordering::Relaxed);
        }
        drop(list);
        wakes.send();
    }
}
