//! The ranges of one index, by key and by owner. What ranges are for is in `ranges`.
//!
//! Invariant: ranges of one owner and mode do not overlap; where they meet they become one.
//!
//! Cost: O(log n) among n ranges, by key (`interval`, one set for shared and one for exclusive
//! ranges, so that shared ones need not be looked at by who shares) and by owner.
//!
//! Locking: none of its own; behind the mutex of a stripe.

use core::ops::Bound;
use std::collections::{BTreeMap, HashMap};

use ferrite_sync::Arc;

use crate::interval::{Intervals, Node};
use crate::mode::{conflicts, row_mask, Mask, Mode, Span};
use crate::owner::Owner;
use crate::shard::Tally;

/// Accounted size of a range besides its keys (bytes): its node, and where its owner finds it.
const RANGE_BYTES: usize = 256;

/// Names a range; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeId(pub(crate) u64);

/// Whose a range is. It is a next-key lock on each key from `low` to `high`, both included.
pub(crate) struct Held {
    pub id: RangeId,
    pub owner: Arc<Owner>,
}

pub(crate) type Range = Node<Held>;
pub(crate) type Hasher = foldhash::fast::FixedState;

/// What is accounted for it.
pub(crate) fn bytes(range: &Range) -> usize {
    RANGE_BYTES + 2 * range.low.len() + range.high.len()
}

/// The modes there are, and the set of ranges that has each.
pub(crate) const MODES: [Mode; 2] = [Mode::Shared, Mode::Exclusive];

pub(crate) fn mask_of(set: usize) -> Mask {
    row_mask(MODES[set], Span::NextKey)
}

/// One owner's ranges by low end, of each mode.
pub(crate) type Own = [BTreeMap<Vec<u8>, u32>; 2];

/// The ranges of one index.
#[derive(Default)]
pub(crate) struct IndexRanges {
    pub sets: [Intervals<Held>; 2],
    pub owners: HashMap<usize, Own, Hasher>,
    /// Mode and slot of each.
    pub names: HashMap<u64, (usize, u32), Hasher>,
}

pub(crate) fn name(owner: &Arc<Owner>) -> usize {
    Arc::as_ptr(owner) as usize
}

impl IndexRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Nobody but this owner has ranges here.
    pub(crate) fn is_alone(&self, owner: &Arc<Owner>) -> bool {
        self.owners.len() == 1 && self.owners.contains_key(&name(owner))
    }

    /// Is the key in a range of another owner with which a request for `asked` is in conflict?
    pub(crate) fn in_the_way(&self, owner: &Arc<Owner>, key: &[u8], asked: Mask) -> bool {
        // What a request for nothing in particular meets is everything: see `covering`.
        asked != 0
            && !self.is_alone(owner)
            && !self.covering(key, asked, &mut |r, _| Arc::ptr_eq(&r.data.owner, owner))
    }

    /// The slot of the owner's range of that name and mode.
    pub(crate) fn named(&self, id: RangeId, set: usize, owner: &Arc<Owner>) -> Option<u32> {
        let (s, slot) = self.names.get(&id.0).copied()?;
        let range = self.sets[s].get(slot)?;
        (s == set && Arc::ptr_eq(&range.data.owner, owner)).then_some(slot)
    }

    /// The same, if the key is above the range and nothing else of this owner is on the way, nor
    /// could give it more than the range: what a scan upward finds at almost every row.
    pub(crate) fn just_above(
        &self,
        id: RangeId,
        set: usize,
        owner: &Arc<Owner>,
        key: &[u8],
    ) -> Option<u32> {
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
    pub(crate) fn covering(
        &self,
        key: &[u8],
        asked: Mask,
        f: &mut dyn FnMut(&Range, Mask) -> bool,
    ) -> bool {
        (0..2).all(|set| {
            let mask = mask_of(set);
            (asked != 0 && !conflicts(asked, mask))
                || self.sets[set].covering(key, &mut |range| f(range, mask))
        })
    }

    /// The owner's range over the key, of one mode.
    pub(crate) fn own_at(&self, set: usize, owner: &Arc<Owner>, key: &[u8]) -> Option<&Range> {
        let own = self.owners.get(&name(owner))?;
        let below = (Bound::Unbounded, Bound::Included(key));
        let (_, slot) = own[set].range::<[u8], _>(below).next_back()?;
        let range = self.sets[set].get(*slot)?;
        (*range.high >= *key).then_some(range)
    }

    pub(crate) fn held_by(&self, owner: &Arc<Owner>, key: &[u8]) -> Mask {
        (0..2).fold(0, |held, set| match self.own_at(set, owner, key) {
            Some(_) => held | mask_of(set),
            None => held,
        })
    }

    pub(crate) fn begin(
        &mut self,
        set: usize,
        id: RangeId,
        owner: &Arc<Owner>,
        key: &[u8],
        tally: &Tally,
    ) {
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
    pub(crate) fn take(&mut self, set: usize, slot: u32, tally: &Tally) -> Option<Range> {
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
    pub(crate) fn reach(&mut self, set: usize, slot: u32, key: &[u8], tally: &Tally) -> usize {
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
    pub(crate) fn met(&self, set: usize, slot: u32, owner: usize, key: &[u8]) -> Option<u32> {
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
    pub(crate) fn resize(&mut self, set: usize, slot: u32, owner: usize, key: &[u8]) {
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
