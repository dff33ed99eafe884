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
use crate::mode::{conflicts, row_mask, Mask, Mode, Span, CHECKED_MOST};
use crate::owner::{Owner, RangeId};
use crate::shard::Tally;

/// Accounted size of a range besides its keys (bytes): its node, and where its owner finds it.
const RANGE_BYTES: usize = 256;

/// Whose a range is. It is a next-key lock on each key from `low` to `high`, both included.
pub(crate) struct Held {
    pub number: u64,
    pub owner: Arc<Owner>,
    way: Way,
}

/// What a range that grows upward meets first: worth knowing for longer than one row.
#[derive(Clone, Copy, Default)]
struct Way {
    /// State of the index's ranges ([`IndexRanges::changes`]) that this is true of; 0: of none.
    as_of: u64,
    /// The next range of the same owner and mode.
    next: Option<u32>,
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
    /// How often a range has come, gone, or got another low end.
    changes: u64,
}

pub(crate) fn name(owner: &Arc<Owner>) -> usize {
    Arc::as_ptr(owner) as usize
}

impl IndexRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.owners.is_empty()
    }

    /// The owners' maps name ranges of theirs, in order, and those of one mode do not overlap.
    pub(crate) fn is_sound(&self) -> bool {
        let slots = self
            .sets
            .iter()
            .map(|set| set.slots() as usize)
            .sum::<usize>();
        if slots > CHECKED_MOST {
            return true;
        }
        let is_own = |owner: usize, set: usize, low: &[u8], slot: u32| {
            let range = self.sets[set].get(slot);
            range.is_some_and(|r| name(&r.data.owner) == owner && r.low == low && r.low <= r.high)
        };
        let high = |set: usize, slot: u32| self.sets[set].get(slot).map(|r| &r.high);
        self.owners.iter().all(|(owner, own)| {
            !own.iter().all(BTreeMap::is_empty)
                && (0..2).all(|set| {
                    let above = own[set].keys().skip(1);
                    own[set]
                        .iter()
                        .all(|(low, slot)| is_own(*owner, set, low, *slot))
                        && own[set]
                            .values()
                            .zip(above)
                            .all(|(slot, low)| high(set, *slot) < Some(low))
                })
        })
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
        let range = self.sets[set].get(id.slot)?;
        let same = range.data.number == id.number && Arc::ptr_eq(&range.data.owner, owner);
        same.then_some(id.slot)
    }

    /// The same, if the key is above the range and nothing else of this owner is on the way, nor
    /// could give it more than the range: what a scan upward finds at almost every row, and mostly
    /// without a search.
    pub(crate) fn just_above(
        &mut self,
        id: RangeId,
        set: usize,
        owner: &Arc<Owner>,
        key: &[u8],
    ) -> Option<u32> {
        let slot = self.named(id, set, owner)?;
        let range = self.sets[set].get(slot)?;
        let next = match range.data.way {
            way if way.as_of == self.changes => way.next,
            _ => self.look_up(set, slot, owner)?,
        };
        let met = next.and_then(|next| self.sets[set].get(next));
        let free =
            *key > *self.sets[set].get(slot)?.high && met.is_none_or(|next| *key < *next.low);
        free.then_some(slot)
    }

    /// The range of the same owner and mode that is next above one; kept with it. `None` if the
    /// owner has ranges of the other mode, too.
    fn look_up(&mut self, set: usize, slot: u32, owner: &Arc<Owner>) -> Option<Option<u32>> {
        let range = self.sets[set].get(slot)?;
        let own = self.owners.get(&name(owner))?;
        if !own[1 - set].is_empty() {
            return None;
        }
        let above = (Bound::Excluded(range.low.as_slice()), Bound::Unbounded);
        let next = own[set].range::<[u8], _>(above).next().map(|(_, n)| *n);
        let as_of = self.changes;
        self.sets[set].get_mut(slot)?.data.way = Way { as_of, next };
        Some(next)
    }

    /// All ranges have the same owner.
    pub(crate) fn has_one_owner(&self) -> bool {
        self.owners.len() == 1
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
    pub(crate) fn own_at(&self, set: usize, owner: &Arc<Owner>, key: &[u8]) -> Option<RangeId> {
        let own = self.owners.get(&name(owner))?;
        let below = (Bound::Unbounded, Bound::Included(key));
        let (_, slot) = own[set].range::<[u8], _>(below).next_back()?;
        let range = self.sets[set].get(*slot)?;
        (*range.high >= *key).then_some(RangeId {
            number: range.data.number,
            slot: *slot,
        })
    }

    pub(crate) fn held_by(&self, owner: &Arc<Owner>, key: &[u8]) -> Mask {
        (0..2).fold(0, |held, set| match self.own_at(set, owner, key) {
            Some(_) => held | mask_of(set),
            None => held,
        })
    }

    /// A range of one key. `number`: of no other range.
    pub(crate) fn begin(
        &mut self,
        set: usize,
        number: u64,
        owner: &Arc<Owner>,
        key: &[u8],
        tally: &Tally,
    ) -> RangeId {
        let held = Held {
            number,
            owner: owner.clone(),
            way: Way::default(),
        };
        debug_assert!(
            self.own_at(set, owner, key).is_none(),
            "a range over the key"
        );
        let slot = self.sets[set].insert(number, key.to_vec(), key.to_vec(), held);
        let own = self.owners.entry(name(owner)).or_default();
        let other = own[set].insert(key.to_vec(), slot);
        assert!(other.is_none(), "two ranges of an owner begin at a key");
        self.changes += 1;
        debug_assert!(self.is_sound(), "a range began");
        tally.take(RANGE_BYTES + 3 * key.len());
        RangeId { number, slot }
    }

    /// Takes a range out. Its owner's place stays if it has other ranges.
    pub(crate) fn take(&mut self, set: usize, slot: u32, tally: &Tally) -> Option<Range> {
        let range = self.sets[set].remove(slot)?;
        tally.give(bytes(&range));
        self.changes += 1;
        let owner = name(&range.data.owner);
        if let Some(own) = self.owners.get_mut(&owner) {
            let named = own[set].remove(&range.low);
            assert_eq!(named, Some(slot), "its owner names another range");
            if own.iter().all(BTreeMap::is_empty) {
                self.owners.remove(&owner);
            }
        }
        debug_assert!(range.low <= range.high);
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
            debug_assert_ne!(other, slot, "a range meets itself");
            let Some(other) = self.take(set, other, tally) else {
                break;
            };
            self.resize(set, slot, owner, &other.low);
            self.resize(set, slot, owner, &other.high);
            met += 1;
        }
        self.resize(set, slot, owner, key);
        debug_assert!(self.is_sound(), "a range grew, and took {met} in");
        if let Some(range) = self.sets[set].get(slot) {
            assert!(
                *range.low <= *key && *key <= *range.high,
                "a range does not reach what it was to"
            );
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
            self.changes += 1;
        }
    }
}
