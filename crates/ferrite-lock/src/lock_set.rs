//! Lock sets: the record locks of an owner that holds thousands, a few bytes each.
//!
//! A lock on one key takes a queue with the key's copy: hundreds of bytes, gigabytes for a locking
//! read of ten million rows. Ranges do not help where a scan locks records without their gaps
//! (READ COMMITTED), or rows in the order of another index. An owner of many locks therefore gets
//! such a lock without a queue: a fingerprint of the key in a set of its own in the key's shard.
//!
//! Nobody waits for a set. Who finds one in the way gives its owner the same lock in a queue of the key
//! (`LockTable::unfold`), as with ranges, and waits there.
//!
//! Invariants:
//! - A set holds record locks that are granted, of one owner, one index and one mode.
//! - Where somebody stands in a key's line for what a set's lock keeps from it, the set's owner has the
//!   same lock in that line: keys come into a set only while they have no queue. The fingerprint stays in
//!   the set, for it may be there for another key.
//! - Another key of the same index with the same fingerprint counts as locked, too: a request for it
//!   waits without need. With ten million locks in 1,024 shards that is one request in 400,000.
//!
//! Cost: 4.8 to 5.4 bytes a lock, found in one or two cache lines; a shard has [`SETS_MOST`] sets at
//! most, because a request looks into each.
//!
//! Locking: under the shard's mutex.

use ferrite_sync::Arc;
use ferrite_types::IndexId;

use crate::mode::{conflicts, missing, Mask, CHECKED_MOST, REC, REC_S, REC_X};
use crate::owner::Owner;
use crate::tally::{KeyRef, Tally};

/// Sets in one shard; further owners' locks stay single.
const SETS_MOST: usize = 16;
/// Accounted size of a set besides its places (bytes).
const SET_BYTES: usize = size_of::<LockSet>();
const PLACE_BYTES: usize = size_of::<u32>();

/// Fingerprints, each once: open addressing with linear probing (Knuth, volume 3, 6.4), the home of
/// a fingerprint in proportion to its value, so that the table can grow by less than twice.
#[derive(Default)]
struct Fingerprints {
    /// 0 = free.
    places: Box<[u32]>,
    used: u32,
}

/// From bits of the hash that choose no shard.
fn fingerprint(hash: u64) -> u32 {
    ((hash >> 16) as u32).max(1)
}

impl Fingerprints {
    fn home(&self, of: u32) -> usize {
        debug_assert!(of != 0 && !self.places.is_empty());
        ((u64::from(of) * self.places.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.places.len() {
            0
        } else {
            at + 1
        }
    }

    /// The place of a fingerprint, or the free one where the search for it ends.
    fn find(&self, of: u32) -> (usize, bool) {
        debug_assert!((self.used as usize) < self.places.len(), "no free place");
        let mut at = self.home(of);
        loop {
            match self.places[at] {
                0 => return (at, false),
                there if there == of => return (at, true),
                _ => at = self.next(at),
            }
        }
    }

    fn has(&self, of: u32) -> bool {
        !self.places.is_empty() && self.find(of).1
    }

    /// False: it was there already.
    fn insert(&mut self, of: u32) -> bool {
        // Five sixths full at most: a search that fails looks at 18 places then.
        if (self.used as usize + 1) * 6 > self.places.len() * 5 {
            self.grow();
        }
        let (at, there) = self.find(of);
        if there {
            return false;
        }
        self.places[at] = of;
        self.used += 1;
        debug_assert!(self.is_sound(), "after {of:#x} came");
        true
    }

    /// By an eighth.
    fn grow(&mut self) {
        let len = self.places.len() + self.places.len() / 8 + 3;
        let before = core::mem::replace(&mut self.places, vec![0; len].into());
        for of in before.iter().copied().filter(|of| *of != 0) {
            let (at, there) = self.find_in_grown(of);
            debug_assert!(!there, "{of:#x} twice");
            self.places[at] = of;
        }
    }

    fn find_in_grown(&self, of: u32) -> (usize, bool) {
        assert!((self.used as usize) < self.places.len(), "it did not grow");
        self.find(of)
    }

    /// False: it was not there.
    fn remove(&mut self, of: u32) -> bool {
        if !self.has(of) {
            return false;
        }
        let (mut hole, _) = self.find(of);
        let mut at = self.next(hole);
        while self.places[at] != 0 {
            // What would not be found any more across the hole moves into it.
            let home = self.home(self.places[at]);
            if self.steps(home, at) >= self.steps(hole, at) {
                self.places[hole] = self.places[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.places[hole] = 0;
        self.used -= 1;
        debug_assert!(self.is_sound(), "after {of:#x} went");
        true
    }

    fn steps(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.places.len() - from
        }
    }

    fn bytes(&self) -> usize {
        self.places.len() * PLACE_BYTES
    }

    /// Each is found, and counted.
    fn is_sound(&self) -> bool {
        let all = || self.places.iter().enumerate().filter(|(_, of)| **of != 0);
        self.used as usize > CHECKED_MOST
            || all().count() == self.used as usize && all().all(|(at, of)| self.find(*of).0 == at)
    }
}

/// Record locks of one owner, index and mode, in one shard.
pub(crate) struct LockSet {
    pub owner: Arc<Owner>,
    pub index: IndexId,
    pub mask: Mask,
    keys: Fingerprints,
}

impl LockSet {
    /// How many keys it stands for.
    pub fn len(&self) -> u64 {
        u64::from(self.keys.used)
    }

    fn has(&self, k: KeyRef<'_>) -> bool {
        self.index == k.index && self.keys.has(fingerprint(k.hash))
    }
}

/// The sets of one shard.
#[derive(Default)]
pub(crate) struct LockSets(Vec<LockSet>);

impl LockSets {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &LockSet> {
        self.0.iter()
    }

    fn over<'a>(&'a self, k: KeyRef<'a>) -> impl Iterator<Item = &'a LockSet> {
        self.0.iter().filter(move |set| set.has(k))
    }

    /// What the sets of an owner, and those of all others, have on a key.
    #[inline]
    pub fn held(&self, owner: &Arc<Owner>, k: KeyRef<'_>) -> (Mask, Mask) {
        let (mut own, mut others) = (0, 0);
        for set in self.over(k) {
            match Arc::ptr_eq(&set.owner, owner) {
                true => own |= set.mask,
                false if ferrite_sync::mutant!("lock.sets_not_asked") => {}
                false => others |= set.mask,
            }
        }
        (own, others)
    }

    /// What an owner's sets give it on a key.
    pub fn held_by(&self, owner: &Arc<Owner>, k: KeyRef<'_>) -> Mask {
        self.held(owner, k).0
    }

    /// Who has the key in a set, with what.
    pub fn owners<'a>(&'a self, k: KeyRef<'a>) -> impl Iterator<Item = (&'a Arc<Owner>, Mask)> {
        self.over(k).map(|set| (&set.owner, set.mask))
    }

    /// Those other than this one whose sets have the key, in conflict with a request, with what.
    pub fn others<'a>(
        &'a self,
        owner: &'a Arc<Owner>,
        k: KeyRef<'a>,
        asked: Mask,
    ) -> impl Iterator<Item = (&'a Arc<Owner>, Mask)> {
        let others = self
            .owners(k)
            .filter(move |(other, _)| !Arc::ptr_eq(other, owner));
        others.filter(move |(_, mask)| conflicts(asked, *mask))
    }

    /// Would the request meet a set of another owner?
    pub fn in_the_way(&self, owner: &Arc<Owner>, k: KeyRef<'_>, asked: Mask) -> bool {
        conflicts(asked, self.held(owner, k).1)
    }

    /// Keeps a granted record lock on a key that has no queue. None: the shard has sets enough;
    /// true: a set has begun.
    pub fn keep(
        &mut self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
        tally: &Tally,
    ) -> Option<bool> {
        assert!(
            mask == REC_S || mask == REC_X,
            "{mask:#x} is no record lock"
        );
        debug_assert!(!self.in_the_way(owner, k, mask), "beside one in conflict");
        let sets = self.0.len();
        let at = self.find_or_begin(owner, k.index, mask, tally)?;
        let set = &mut self.0[at];
        let before = set.keys.bytes();
        let new = set.keys.insert(fingerprint(k.hash));
        debug_assert!(new, "a lock that was there is asked for again");
        tally.take(set.keys.bytes() - before);
        tally.keep(u64::from(new));
        debug_assert_eq!(missing(mask, self.held_by(owner, k)), 0, "kept");
        Some(self.0.len() != sets)
    }

    fn find_or_begin(
        &mut self,
        owner: &Arc<Owner>,
        index: IndexId,
        mask: Mask,
        tally: &Tally,
    ) -> Option<usize> {
        let is_it = |set: &LockSet| {
            set.index == index && set.mask == mask && Arc::ptr_eq(&set.owner, owner)
        };
        let found = self.0.iter().position(is_it);
        if found.is_some() || self.0.len() >= SETS_MOST {
            return found;
        }
        debug_assert!(index.get() != 0, "tables are in no set");
        self.0.reserve_exact(1);
        self.0.push(LockSet {
            owner: owner.clone(),
            index,
            mask,
            keys: Fingerprints::default(),
        });
        tally.take(SET_BYTES);
        Some(self.0.len() - 1)
    }

    /// Takes an owner's locks of these modes on a key out of its sets; what that was.
    pub fn take(&mut self, owner: &Arc<Owner>, k: KeyRef<'_>, mask: Mask, tally: &Tally) -> Mask {
        let mut taken = 0;
        for set in &mut self.0 {
            let wanted =
                set.mask & mask != 0 && set.index == k.index && Arc::ptr_eq(&set.owner, owner);
            if wanted && set.keys.remove(fingerprint(k.hash)) {
                taken |= set.mask;
                tally.unkeep(1);
            }
        }
        debug_assert_eq!(self.held_by(owner, k) & mask, 0, "taken and still there");
        taken
    }

    /// An owner's sets of these modes go. How many locks that were.
    pub fn release(&mut self, owner: &Arc<Owner>, mask: Mask, tally: &Tally) -> u64 {
        assert!(mask != 0 && mask & !REC == 0, "{mask:#x} is in no set");
        let mut gone = 0;
        self.0.retain(|set| {
            let stays = set.mask & mask == 0 || !Arc::ptr_eq(&set.owner, owner);
            if !stays {
                gone += set.len();
                tally.give(SET_BYTES + set.keys.bytes());
                tally.unkeep(set.len());
            }
            stays
        });
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
        debug_assert!(
            self.0
                .iter()
                .all(|set| set.mask & mask == 0 || !Arc::ptr_eq(&set.owner, owner)),
            "a set stays"
        );
        gone
    }
}

const _: () = assert!(REC == REC_S | REC_X, "a set has one of two modes");

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Fingerprints;
    use ferrite_sync::random::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn fingerprints_are_a_set() {
        for (seed, most) in [(1, 5), (2, 60), (3, 3000), (4, u64::from(u32::MAX))] {
            let mut rng = Rng::new(seed);
            let (mut mine, mut model) = (Fingerprints::default(), BTreeSet::new());
            for _ in 0..20_000 {
                // Few values, close together and at both ends: long runs, across the end of the table.
                let value = match rng.below(3) {
                    0 => u32::MAX - rng.below(most.min(50)) as u32,
                    _ => 1 + rng.below(most) as u32,
                };
                match rng.below(3) {
                    0 => assert_eq!(mine.remove(value), model.remove(&value)),
                    _ => assert_eq!(mine.insert(value), model.insert(value)),
                }
                assert_eq!(mine.has(value), model.contains(&value));
                assert_eq!(mine.used as usize, model.len());
            }
            let found = mine.places.iter().copied().filter(|of| *of != 0);
            assert_eq!(found.collect::<BTreeSet<u32>>(), model);
        }
    }

    #[test]
    fn a_lock_takes_five_and_a_half_bytes_at_most() {
        let mut mine = Fingerprints::default();
        for n in 1..=100_000u32 {
            mine.insert(n.wrapping_mul(0x9E37_79B9));
            let most = mine.used as usize * 55 / 10 + 40;
            assert!(mine.bytes() <= most, "{} bytes for {n}", mine.bytes());
        }
    }
}
