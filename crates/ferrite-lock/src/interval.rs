//! An ordered set of key ranges that may overlap, and the question which of them cover a key.
//!
//! A treap over the ranges' low ends, in slots that are used again; each node knows the highest
//! high end below it. All operations take O(log n) steps, the question O(log n) for each range
//! found. Priorities are drawn from a generator of its own: the same calls make the same tree.

use core::cmp::Ordering;

use crate::mode::CHECKED_MOST;

/// No node.
const NONE: u32 = u32::MAX;

/// One range with what it carries.
pub(crate) struct Node<T> {
    pub low: Vec<u8>,
    pub high: Vec<u8>,
    pub data: T,
    /// Tells ranges with the same low end apart.
    id: u64,
    priority: u64,
    left: u32,
    right: u32,
    /// The node above; of the root, and while the tree is cut, whatever it was.
    parent: u32,
    /// The node with the highest high end among this one and those below it.
    highest: u32,
}

/// The set. Slots name ranges as long as they are there.
pub(crate) struct Intervals<T> {
    nodes: Vec<Option<Node<T>>>,
    free: Vec<u32>,
    root: u32,
    drawn: u64,
    /// Nodes visited, for tests of how it scales.
    #[cfg(test)]
    pub steps: core::cell::Cell<u64>,
}

impl<T> Default for Intervals<T> {
    fn default() -> Intervals<T> {
        Intervals {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NONE,
            drawn: 0x9e37_79b9_7f4a_7c15,
            #[cfg(test)]
            steps: core::cell::Cell::new(0),
        }
    }
}

impl<T> Intervals<T> {
    #[cfg(all(test, not(loom)))]
    pub fn is_empty(&self) -> bool {
        self.root == NONE
    }

    pub fn get(&self, slot: u32) -> Option<&Node<T>> {
        self.nodes.get(slot as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut Node<T>> {
        self.nodes.get_mut(slot as usize)?.as_mut()
    }

    /// Slots ever used: the end of a walk over all.
    pub fn slots(&self) -> u32 {
        self.nodes.len() as u32
    }

    fn node(&self, slot: u32) -> &Node<T> {
        #[cfg(test)]
        self.steps.set(self.steps.get() + 1);
        self.nodes[slot as usize]
            .as_ref()
            .unwrap_or_else(|| unreachable!("a link leads to a node"))
    }

    fn node_mut(&mut self, slot: u32) -> &mut Node<T> {
        self.nodes[slot as usize]
            .as_mut()
            .unwrap_or_else(|| unreachable!("a link leads to a node"))
    }

    fn order(&self, slot: u32, low: &[u8], id: u64) -> Ordering {
        let n = self.node(slot);
        low.cmp(&n.low).then(id.cmp(&n.id))
    }

    /// Adds a range; no other has this `id`. Returns its slot.
    pub fn insert(&mut self, id: u64, low: Vec<u8>, high: Vec<u8>, data: T) -> u32 {
        debug_assert!(low <= high);
        // xorshift
        self.drawn ^= self.drawn << 13;
        self.drawn ^= self.drawn >> 7;
        self.drawn ^= self.drawn << 17;
        let node = Node {
            low,
            high,
            data,
            id,
            priority: self.drawn,
            left: NONE,
            right: NONE,
            parent: NONE,
            highest: NONE,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.nodes[slot as usize] = Some(node);
                slot
            }
            None => {
                self.nodes.push(Some(node));
                (self.nodes.len() - 1) as u32
            }
        };
        self.node_mut(slot).highest = slot;
        self.link(slot);
        debug_assert!(self.is_sound(), "after slot {slot} was linked");
        slot
    }

    /// Calls `f` with the place of a node in the order. Its own low end is out of the tree
    /// meanwhile, so that nothing has to be copied.
    fn with_place(&mut self, slot: u32, f: impl FnOnce(&mut Self, &[u8], u64)) {
        let n = self.node_mut(slot);
        let (low, id) = (core::mem::take(&mut n.low), n.id);
        f(self, &low, id);
        self.node_mut(slot).low = low;
    }

    fn link(&mut self, slot: u32) {
        self.with_place(slot, |tree, low, id| {
            let (left, right) = tree.split(tree.root, low, id);
            let with = tree.join(left, slot);
            tree.root = tree.join(with, right);
        });
    }

    /// Those below (low, id), and the others.
    fn split(&mut self, at: u32, low: &[u8], id: u64) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.order(at, low, id) == Ordering::Greater {
            let (a, b) = self.split(self.node(at).right, low, id);
            self.node_mut(at).right = a;
            self.tell(at);
            (at, b)
        } else {
            let (a, b) = self.split(self.node(at).left, low, id);
            self.node_mut(at).left = b;
            self.tell(at);
            (a, at)
        }
    }

    /// All of `a` are below all of `b`.
    fn join(&mut self, a: u32, b: u32) -> u32 {
        if a == NONE {
            return b;
        }
        if b == NONE {
            return a;
        }
        if self.node(a).priority > self.node(b).priority {
            let right = self.join(self.node(a).right, b);
            self.node_mut(a).right = right;
            self.tell(a);
            a
        } else {
            let left = self.join(a, self.node(b).left);
            self.node_mut(b).left = left;
            self.tell(b);
            b
        }
    }

    /// Who is highest below a node, and whose children they are, once those are right.
    fn tell(&mut self, at: u32) {
        let mut best = at;
        for child in [self.node(at).left, self.node(at).right] {
            if child != NONE {
                self.node_mut(child).parent = at;
                let other = self.node(child).highest;
                if self.node(other).high > self.node(best).high {
                    best = other;
                }
            }
        }
        self.node_mut(at).highest = best;
    }

    /// Takes a range out.
    pub fn remove(&mut self, slot: u32) -> Option<Node<T>> {
        self.get(slot)?;
        self.unlink(slot);
        debug_assert!(self.is_sound(), "after slot {slot} was unlinked");
        debug_assert!(!self.free.contains(&slot) || self.free.len() > CHECKED_MOST);
        self.free.push(slot);
        let gone = self.nodes[slot as usize].take();
        if self.root == NONE {
            debug_assert!(self.nodes.iter().all(Option::is_none), "ranges are lost");
            self.nodes = Vec::new();
            self.free = Vec::new();
        }
        gone
    }

    fn unlink(&mut self, slot: u32) {
        self.with_place(slot, |tree, low, id| {
            tree.root = tree.without(tree.root, low, id, slot);
        });
        let n = self.node_mut(slot);
        (n.left, n.right, n.highest) = (NONE, NONE, slot);
    }

    fn without(&mut self, at: u32, low: &[u8], id: u64, slot: u32) -> u32 {
        debug_assert!(at != NONE, "the range is in the tree");
        if at == slot {
            let (left, right) = (self.node(at).left, self.node(at).right);
            return self.join(left, right);
        }
        if self.order(at, low, id) == Ordering::Greater {
            let right = self.without(self.node(at).right, low, id, slot);
            self.node_mut(at).right = right;
        } else {
            let left = self.without(self.node(at).left, low, id, slot);
            self.node_mut(at).left = left;
        }
        self.tell(at);
        at
    }

    /// Gives a range a higher high end. The way up ends at the first node that knows a higher one
    /// anyway: for ranges that do not overlap, as an owner's own, mostly the next.
    pub fn raise(&mut self, slot: u32, high: &[u8]) {
        let n = self.node_mut(slot);
        assert!(*n.high <= *high, "a range only grows");
        n.high.clear();
        n.high.extend_from_slice(high);
        let mut at = slot;
        loop {
            let known = self.node(at).highest;
            if known != slot {
                if *self.node(known).high >= *high {
                    return;
                }
                self.node_mut(at).highest = slot;
            }
            if at == self.root {
                return;
            }
            at = self.node(at).parent;
        }
    }

    /// Gives a range another low end.
    pub fn set_low(&mut self, slot: u32, low: &[u8]) {
        self.unlink(slot);
        let n = self.node_mut(slot);
        assert!(*low <= *n.high, "a range begins after its end");
        n.low.clear();
        n.low.extend_from_slice(low);
        self.link(slot);
        debug_assert!(self.is_sound(), "after slot {slot} got another low end");
    }

    /// In order, parents right, and the highest ends known: else a range is not found, and its
    /// lock is as if it were not there.
    fn is_sound(&self) -> bool {
        self.nodes.len() > CHECKED_MOST || self.is_sound_below(self.root, NONE)
    }

    fn is_sound_below(&self, at: u32, parent: u32) -> bool {
        let Some(n) = self.get(at) else {
            return at == NONE;
        };
        let child = |slot: u32| self.get(slot);
        let below = |slot: u32| child(slot).is_none_or(|c| (&c.low, c.id) < (&n.low, n.id));
        let above = |slot: u32| child(slot).is_none_or(|c| (&c.low, c.id) > (&n.low, n.id));
        let end = |slot: u32| child(slot).and_then(|c| Some(&self.get(c.highest)?.high));
        let highest = end(n.left).max(end(n.right)).max(Some(&n.high));
        (parent == NONE || n.parent == parent)
            && n.low <= n.high
            && below(n.left)
            && above(n.right)
            && end(at) == highest
            && self.is_sound_below(n.left, at)
            && self.is_sound_below(n.right, at)
    }

    /// Calls `f` with each range that covers the key until it says false. False if it did.
    pub fn covering(&self, key: &[u8], f: &mut dyn FnMut(&Node<T>) -> bool) -> bool {
        self.covering_below(self.root, key, f)
    }

    fn covering_below(&self, at: u32, key: &[u8], f: &mut dyn FnMut(&Node<T>) -> bool) -> bool {
        if at == NONE || *self.node(self.node(at).highest).high < *key {
            return true;
        }
        let n = self.node(at);
        if !self.covering_below(n.left, key, f) {
            return false;
        }
        if *n.low > *key {
            return true;
        }
        if *n.high >= *key && !f(n) {
            return false;
        }
        self.covering_below(n.right, key, f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;

    fn found(set: &Intervals<usize>, key: u16) -> Vec<usize> {
        let mut all = Vec::new();
        set.covering(&key.to_be_bytes(), &mut |n| {
            all.push(n.data);
            true
        });
        all.sort_unstable();
        all
    }

    #[test]
    fn it_agrees_with_a_list() {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut set = Intervals::default();
            let mut list: Vec<Option<(u16, u16, u32)>> = Vec::new();
            for step in 0..600 {
                let a = rng.below(300) as u16;
                let at = rng.below(list.len().max(1) as u64) as usize;
                match (rng.below(6), list.get_mut(at)) {
                    (0, Some(one)) => {
                        if let Some((_, _, slot)) = one.take() {
                            assert_eq!(set.remove(slot).map(|n| n.data), Some(at));
                        }
                    }
                    (1, Some(Some((_, high, slot)))) => {
                        *high = (*high).max(a);
                        set.raise(*slot, &high.to_be_bytes());
                    }
                    (2, Some(Some((low, high, slot)))) => {
                        *low = (*high).min(a);
                        set.set_low(*slot, &low.to_be_bytes());
                    }
                    _ => {
                        let b = a + rng.below(40) as u16;
                        let (low, high) = (a.to_be_bytes().to_vec(), b.to_be_bytes().to_vec());
                        let slot = set.insert(list.len() as u64, low, high, list.len());
                        list.push(Some((a, b, slot)));
                    }
                }
                let key = rng.below(340) as u16;
                let expected: Vec<usize> = (0..list.len())
                    .filter(|i| list[*i].is_some_and(|(l, h, _)| l <= key && key <= h))
                    .collect();
                assert_eq!(found(&set, key), expected, "seed {seed} step {step}");
            }
            for (_, _, slot) in list.into_iter().flatten() {
                set.remove(slot);
            }
            assert!(set.is_empty() && set.slots() == 0);
        }
    }

    /// Ten times the ranges, hardly more steps for each.
    #[test]
    fn steps_for_each_range_do_not_grow() {
        let steps = |count: u32| {
            let mut set = Intervals::default();
            let mut slots = Vec::new();
            for n in 0..count {
                let low = (n * 10).to_be_bytes();
                let slot = set.insert(u64::from(n), low.to_vec(), low.to_vec(), n);
                set.raise(slot, &(n * 10 + 5).to_be_bytes());
                slots.push(slot);
            }
            for n in 0..count {
                let mut covering = 0;
                set.covering(&(n * 10 + 3).to_be_bytes(), &mut |_| {
                    covering += 1;
                    true
                });
                assert_eq!(covering, 1);
            }
            for slot in slots {
                set.remove(slot);
            }
            set.steps.get() / u64::from(count)
        };
        let (few, many) = (steps(300), steps(3_000));
        assert!(many < 2 * few, "{few} steps a range, then {many}");
    }
}
