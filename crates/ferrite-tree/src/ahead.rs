//! Which leaves a scan will come to, told to the buffer pool before it gets there.
//!
//! Pages move, so the order of leaves is known from inner nodes only. A scan that has gone from
//! leaf to leaf twice is taken for one that goes on. From then on it looks into the parents for the
//! leaves that come next: a window of few at first, twice as many each time, up to a bound. It looks
//! again when half of them are left, so that it is across the end of a parent in time; a parent
//! that is not in memory is asked for like a leaf.
//!
//! Invariants: nothing here reads or waits, and nothing here is more than a hint: the structure
//! may change at any time. No leaf beyond the end of the range is asked for, and a scan that ends
//! early has asked for a window of leaves too many at the most.
//!
//! Locking: an epoch pin while inner nodes are looked at; the pool's queue after that.

use crate::node;
use crate::tree::{Goal, Obstacle, Tree};
use ferrite_buffer::Keep;
use ferrite_types::PageId;

/// A scan begins to read ahead after it has gone on to the next leaf so many times.
const BEGINS_AFTER: u32 = 2;
/// Leaves asked for at first, and at most.
const FIRST_WINDOW: usize = 4;
const LARGEST_WINDOW: usize = 64;

/// Which way a scan goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// To greater keys.
    Up,
    /// To smaller keys.
    Down,
}

/// How far one scan has read ahead.
#[derive(Default)]
pub struct ReadAhead {
    /// Times the scan has gone on to the next leaf.
    steps: u32,
    window: usize,
    /// Leaves between the scan and `edge`.
    left: usize,
    /// Up: the next leaf to ask for covers this key; down: it covers the keys below it.
    edge: Vec<u8>,
    /// There is nothing to ask for beyond `edge`.
    end: bool,
    pages: Vec<PageId>,
}

impl ReadAhead {
    /// The scan begins anew, somewhere else.
    pub fn begin(&mut self) {
        self.steps = 0;
        self.window = 0;
        self.left = 0;
        self.end = false;
    }

    /// Whether the page that the scan comes to (or comes to again) should stay in memory: those of
    /// a long scan should not.
    pub fn keep(&self, again: bool) -> Keep {
        match (self.steps > BEGINS_AFTER, again) {
            (false, _) => Keep::Yes,
            (true, false) => Keep::Scanned,
            (true, true) => Keep::No,
        }
    }

    /// The scan goes on to the next leaf: the one that covers `from` (up), or the keys below it
    /// (down). `bound`: it will not get beyond that key. The caller has no latch.
    pub fn next_leaf(&mut self, tree: &Tree, from: &[u8], way: Way, bound: Option<&[u8]>) {
        self.steps = self.steps.saturating_add(1);
        self.left = self.left.saturating_sub(1);
        if self.steps < BEGINS_AFTER || self.end || self.left > self.window / 2 {
            return;
        }
        let most = tree.pool.read_ahead_window().min(LARGEST_WINDOW);
        if most == 0 {
            return;
        }
        self.window = (self.window * 2).max(FIRST_WINDOW).min(most);
        let is_caught_up = self.left == 0;
        if is_caught_up {
            self.edge.clear();
            self.edge.extend_from_slice(from);
        }
        self.pages.clear();
        // The leaf that the scan is about to read needs no hint.
        let skip = usize::from(is_caught_up);
        // More may be ahead than the window has now: the pool can have shrunk.
        let more = self.window.saturating_sub(self.left);
        let added = self.ask(tree, more + skip, skip, way, bound);
        self.left += added;
        debug_assert!(self.pages.len() <= added + 1, "{} pages", self.pages.len());
        tree.pool.read_ahead(&self.pages);
    }

    /// Takes up to `most` leaves at `edge`, of which the first `skip` are not to be asked for.
    /// Returns how many.
    fn ask(
        &mut self,
        tree: &Tree,
        most: usize,
        skip: usize,
        way: Way,
        bound: Option<&[u8]>,
    ) -> usize {
        let mut taken = 0;
        while taken < most && !self.end {
            let pin = tree.pool.pin();
            let goal = match way {
                Way::Up => Goal::Covers(&self.edge),
                Way::Down => Goal::Below(Some(&self.edge)),
            };
            let mut parent = None;
            match tree.path(goal, &pin, |inner| parent = Some(inner)) {
                Ok(_) => {}
                Err(Obstacle::Changed) => return taken,
                Err(Obstacle::Away(page)) => {
                    self.pages.push(page);
                    return taken;
                }
            }
            let Some(parent) = parent else {
                self.end = true;
                return taken;
            };
            let first = goal.slot(&parent);
            taken = match way {
                Way::Up => self.take_up(tree, &parent, first, (taken, most, skip), bound),
                Way::Down => self.take_down(tree, &parent, first, (taken, most, skip), bound),
            };
        }
        taken
    }

    fn take(&mut self, tree: &Tree, parent: &[u8], slot: usize, taken: usize, skip: usize) {
        let page = node::child(parent, slot);
        if taken >= skip && tree.pool.is_away(page) {
            self.pages.push(page);
        }
    }

    /// Takes children of `parent` from `slot` to the right; `edge` is behind the last of them.
    fn take_up(
        &mut self,
        tree: &Tree,
        parent: &[u8],
        mut slot: usize,
        (mut taken, most, skip): (usize, usize, usize),
        bound: Option<&[u8]>,
    ) -> usize {
        let children = node::count(parent);
        debug_assert!(slot < children, "child {slot} of {children}");
        while slot < children && taken < most && !self.end {
            self.take(tree, parent, slot, taken, skip);
            taken += 1;
            slot += 1;
            self.edge.clear();
            if slot < children {
                node::key_into(parent, slot, &mut self.edge);
            } else {
                match node::high(parent) {
                    Some(high) => self.edge.extend_from_slice(high),
                    None => self.end = true,
                }
            }
            self.end |= bound.is_some_and(|bound| *self.edge >= *bound);
        }
        taken
    }

    /// Takes children of `parent` from `slot` to the left; `edge` is the low end of the last.
    fn take_down(
        &mut self,
        tree: &Tree,
        parent: &[u8],
        slot: usize,
        (mut taken, most, skip): (usize, usize, usize),
        bound: Option<&[u8]>,
    ) -> usize {
        debug_assert!(slot < node::count(parent), "child {slot}");
        for slot in (0..=slot).rev() {
            if taken == most || self.end {
                break;
            }
            self.take(tree, parent, slot, taken, skip);
            taken += 1;
            self.edge.clear();
            node::key_into(parent, slot, &mut self.edge);
            self.end = self.edge.is_empty() || bound.is_some_and(|bound| *self.edge <= *bound);
        }
        taken
    }
}

impl Tree {
    /// Appends the leaf that covers `key` to `pages` if it is not in memory, or the page that
    /// hides it. A hint, from inner nodes alone. The caller has no latch.
    pub fn note_if_away(&self, key: &[u8], pages: &mut Vec<PageId>) {
        let pin = self.pool.pin();
        let page = match self.path(Goal::Covers(key), &pin, |_| {}) {
            Ok(page) | Err(Obstacle::Away(page)) => page,
            Err(Obstacle::Changed) => return,
        };
        debug_assert!(page != PageId::NONE, "no page covers a key");
        // Neighbours in key order come one after the other.
        if self.pool.is_away(page) && pages.last() != Some(&page) {
            pages.push(page);
        }
    }
}
