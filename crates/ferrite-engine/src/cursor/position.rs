//! Where a scan stands in its index: a key, and the slot of a page as long as that is unchanged.
//!
//! Locking: a leaf is latched by `place` and given to the caller.

use super::{Cursor, Direction};
use ferrite_tree::{node, LeafRef, Tree};
use ferrite_types::{Lsn, PageId, Result};

/// Where the scan goes on when the batch is used up.
pub(super) struct Resume {
    /// Forward: entries at or after (see `exclusive`); backward: entries below.
    pub(super) key: Vec<u8>,
    /// The key itself was delivered (forward only).
    pub(super) exclusive: bool,
    /// No key: from the edge of the tree.
    pub(super) edge: bool,
    /// Nothing is left.
    pub(super) end: bool,
    /// Where that probably is: the page of the batch before, or the one to the right of it.
    pub(super) page: PageId,
    /// Of the page of the batch before: `slot` is right as long as it has this LSN.
    pub(super) lsn: Lsn,
    pub(super) slot: usize,
}

impl Resume {
    /// Where the scan goes on in the leaf that its key leads to.
    fn slot_in(&self, leaf: &LeafRef<'_>, direction: Direction) -> usize {
        match direction {
            Direction::Forward => {
                debug_assert!(node::covers(leaf, &self.key), "rows are passed over");
                match leaf.find(&self.key) {
                    Ok(slot) => slot + usize::from(self.exclusive),
                    Err(slot) => slot,
                }
            }
            Direction::Backward if self.edge => leaf.count(),
            Direction::Backward => {
                debug_assert!(leaf.is_below(&self.key), "rows are passed over");
                leaf.find(&self.key).unwrap_or_else(|slot| slot)
            }
        }
    }
}

impl Cursor {
    /// A scan begins at `key`, or at the edge of the tree.
    pub(super) fn start_at(&mut self, key: &[u8], edge: bool) {
        self.fold.begin();
        self.start_open = false;
        self.start_inclusive = false;
        self.is_beyond_leaf = false;
        self.ahead.begin();
        let resume = &mut self.resume;
        resume.key.clear();
        resume.key.extend_from_slice(key);
        debug_assert!(!edge || key.is_empty(), "an edge has no key");
        resume.exclusive = false;
        resume.edge = edge;
        resume.end = false;
        resume.page = PageId::NONE;
    }

    /// The leaf to go on at and the slot: forward the next to look at, backward one above it.
    pub(super) fn place<'t>(&mut self, tree: &'t Tree) -> Result<(LeafRef<'t>, usize)> {
        let is_new = self.is_beyond_leaf;
        if is_new {
            self.ahead_of_next_leaf(tree);
        }
        if let Some(place) = self.place_known(tree, is_new)? {
            return Ok(place);
        }
        let resume = &self.resume;
        let keep = self.ahead.keep(false);
        let leaf = match self.direction {
            Direction::Forward => tree.leaf_to(&resume.key, keep)?,
            Direction::Backward if resume.edge => tree.leaf_below(None, keep)?,
            Direction::Backward => tree.leaf_below(Some(&resume.key), keep)?,
        };
        let slot = resume.slot_in(&leaf, self.direction);
        Ok((leaf, slot))
    }

    /// On the page of the batch before, where a statement that changes the rows it reads goes on, too: what it changed
    /// there moves the slots, not the scan. `is_new`: on the one to the right of it.
    fn place_known<'t>(
        &self,
        tree: &'t Tree,
        is_new: bool,
    ) -> Result<Option<(LeafRef<'t>, usize)>> {
        let resume = &self.resume;
        if resume.page == PageId::NONE {
            return Ok(None);
        }
        let Some(leaf) = tree.leaf_again(resume.page, self.ahead.keep(!is_new))? else {
            return Ok(None);
        };
        if leaf.lsn() == resume.lsn {
            debug_assert!(resume.slot <= leaf.count(), "slot {}", resume.slot);
            return Ok(Some((leaf, resume.slot)));
        }
        let still = match self.direction {
            Direction::Forward => node::covers(&leaf, &resume.key),
            Direction::Backward => !resume.edge && leaf.is_below(&resume.key),
        };
        let slot = still.then(|| resume.slot_in(&leaf, self.direction));
        Ok(slot.map(|slot| (leaf, slot)))
    }

    /// The leaf is used up: the scan goes on beyond its fence. False: there is nothing.
    pub(super) fn leave_leaf(&mut self, leaf: &LeafRef<'_>) -> bool {
        debug_assert!(self.goes_on(leaf), "a scan does not get beyond a leaf");
        let resume = &mut self.resume;
        resume.page = PageId::NONE;
        resume.exclusive = false;
        resume.edge = false;
        resume.key.clear();
        match self.direction {
            Direction::Forward => match node::high(leaf) {
                Some(high) => {
                    resume.key.extend_from_slice(high);
                    resume.page = node::right(leaf);
                    // A split gives both of its leaves one LSN.
                    resume.lsn = Lsn::MAX;
                }
                None => resume.end = true,
            },
            Direction::Backward => {
                resume.key.extend_from_slice(node::low(leaf));
                resume.end = resume.key.is_empty();
            }
        }
        self.is_beyond_leaf = !resume.end;
        self.is_beyond_leaf
    }

    /// The leaf's fence is beyond where the scan stands.
    fn goes_on(&self, leaf: &LeafRef<'_>) -> bool {
        let from = self.resume.key.as_slice();
        match self.direction {
            Direction::Forward => node::high(leaf).is_none_or(|high| from < high),
            Direction::Backward => {
                let low = node::low(leaf);
                // A batch may have ended with the first entry of the leaf it is still at.
                let is_at_start = low == from && self.resume.page != PageId::NONE;
                self.resume.edge || low.is_empty() || low < from || is_at_start
            }
        }
    }

    /// Remembers where the batch ended: after (before) the entry in `slot`.
    pub(super) fn stop_at(&mut self, leaf: &LeafRef<'_>, slot: usize) {
        debug_assert!(slot < leaf.count(), "slot {slot} of {}", leaf.count());
        let resume = &mut self.resume;
        resume.key.clear();
        node::key_into(leaf, slot, &mut resume.key);
        resume.exclusive = true;
        resume.edge = false;
        resume.page = leaf.page_id();
        resume.lsn = leaf.lsn();
        resume.slot = match self.direction {
            Direction::Forward => slot + 1,
            Direction::Backward => slot,
        };
    }

    /// The entry to look at next, when `slot` is where the scan stands.
    pub(super) fn slot_in(&self, leaf: &LeafRef<'_>, slot: usize) -> Option<usize> {
        match self.direction {
            Direction::Forward => (slot < leaf.count()).then_some(slot),
            Direction::Backward => slot.checked_sub(1),
        }
    }

    /// Where the scan stands once it has looked at the entry in `slot`.
    pub(super) fn after(&self, slot: usize) -> usize {
        match self.direction {
            Direction::Forward => slot + 1,
            Direction::Backward => slot,
        }
    }
}
