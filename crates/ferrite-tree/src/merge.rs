//! Taking sparse pages out: two neighbours under one parent become one, as one log record.
//! The right one is freed; whoever still knows it starts again at the root.
//!
//! The result must keep room, or the next insert would split it again; so an empty page beside
//! a full one stays. Where a range is deleted in the order of its keys the page on the left is
//! the empty one, in reverse order the page on the right: both sides are tried, and of the range
//! one page is left.

use crate::tree::{Goal, Tree, Tries};
use crate::{node, op};
use ferrite_buffer::{ExclusiveGuard, InnerRef, NewFrame, Node};
use ferrite_sync::kill_point;
use ferrite_types::{PageId, Result, PAGE_BYTES};

/// A page with less than this in use is worth merging, in bytes.
const SPARSE_BYTES: usize = PAGE_BYTES / 4;
/// The merged page must leave this much room, in bytes.
const SLACK_BYTES: usize = PAGE_BYTES / 4;

fn is_sparse(page: &[u8]) -> bool {
    node::used_bytes(page) < SPARSE_BYTES
}

/// True if a leaf that has just lost a record is worth a call of [`Tree::merge_at`]. Not at every
/// record: the neighbours are seldom other than they were at the last one.
pub fn is_worth_merging(leaf: &[u8]) -> bool {
    let records = node::count(leaf);
    is_sparse(leaf) && (records == 0 || records.is_power_of_two())
}

/// Two neighbouring children of a node; the right one is in the slot after `slot`.
struct Pair {
    parent: PageId,
    slot: usize,
    left: PageId,
    right: PageId,
}

/// The pairs that the child in `slot` is one of.
fn pairs(parent: &InnerRef<'_>, slot: usize) -> Vec<Pair> {
    debug_assert!(slot < node::count(parent), "slot {slot}");
    [Some(slot), slot.checked_sub(1)]
        .into_iter()
        .flatten()
        .filter(|left| left + 1 < node::count(parent))
        .map(|slot| Pair {
            parent: parent.page_id(),
            slot,
            left: node::child(parent, slot),
            right: node::child(parent, slot + 1),
        })
        .collect()
}

/// The two pages as one under the left one's id, or None if that would not fit well.
fn joined(left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
    assert!(
        node::high(left) == Some(node::low(right)),
        "the fences of two neighbours differ"
    );
    assert!(
        node::level(left) == node::level(right) && node::index(left) == node::index(right),
        "two neighbours of different levels"
    );
    let mut out = vec![0u8; PAGE_BYTES];
    let (low, high, next) = (node::low(left), node::high(right), node::right(right));
    node::init(
        &mut out,
        node::index(left),
        node::level(left),
        low,
        high,
        next,
    );
    let new_prefix = node::prefix(&out).len();
    let mut need = 0;
    for page in [left, right] {
        let grow = node::prefix(page).len().saturating_sub(new_prefix);
        need += node::used_bytes(page) + grow * node::count(page);
    }
    if need + SLACK_BYTES > node::free_bytes(&out) {
        return None;
    }
    node::append_part(left, 0, node::count(left), &mut out);
    node::append_part(right, 0, node::count(right), &mut out);
    let records = node::count(left) + node::count(right);
    assert!(
        node::count(&out) == records,
        "{} of {records}",
        node::count(&out)
    );
    assert!(
        node::free_bytes(&out) >= SLACK_BYTES,
        "{} free",
        node::free_bytes(&out)
    );
    debug_assert!(node::is_sound(&out), "a merged page");
    Some(out)
}

impl Tree {
    /// Merges the leaf that covers `key` with neighbours as long as they fit one page, and sparse
    /// parents likewise. The caller holds no latch. True if something was merged.
    ///
    /// # Errors
    /// A page that cannot be read; the tree is unchanged or as after an earlier merge.
    pub fn merge_at(&self, key: &[u8], prelude: &[u8]) -> Result<bool> {
        let _structure = self.lock_structure()?;
        let mut merged = false;
        // A parent that was merged may have a sparse leaf of its own beside this one.
        while self.merge_leaf(key, prelude)? {
            merged = true;
            let mut level = 1;
            while self.merge_inner(key, level, prelude)? {
                level += 1;
            }
        }
        Ok(merged)
    }

    /// The pairs that the node at `level` on the way to `key` is one of. The structure lock, which
    /// the caller holds, keeps them so.
    fn pairs_at(&self, key: &[u8], level: u8) -> Result<Vec<Pair>> {
        let mut tries = Tries::default();
        loop {
            let pin = self.pool.pin();
            let mut found = Vec::new();
            let result = self.path(Goal::Covers(key), &pin, |inner| {
                if node::level(&inner) == level + 1 {
                    found = pairs(&inner, node::child_slot(&inner, key));
                }
            });
            drop(pin);
            match result {
                Ok(_) => return Ok(found),
                Err(obstacle) => self.overcome(obstacle, &mut tries)?,
            }
        }
    }

    fn merge_leaf(&self, key: &[u8], prelude: &[u8]) -> Result<bool> {
        for pair in self.pairs_at(key, 0)? {
            if self.merge_leaves(&pair, prelude)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn merge_leaves(&self, pair: &Pair, prelude: &[u8]) -> Result<bool> {
        loop {
            // All is read in before anything is latched (the pool's invariant 5).
            drop(self.pool.shared(pair.right)?);
            let mut frames = self.pool.reserve(1)?;
            let mut image = frames.pop().expect("one was reserved");
            let left = self.pool.exclusive(pair.left)?;
            let left = left.expect("the structure lock keeps the leaf");
            let Some(right) = self.pool.exclusive_resident(pair.right) else {
                return Ok(false);
            };
            let next = node::right(&left);
            assert!(next == pair.right, "{} leads to {next}", pair.left);
            let sparse = is_sparse(&left) || is_sparse(&right);
            let Some(bytes) = sparse.then(|| joined(&left, &right)).flatten() else {
                return Ok(false);
            };
            if self.without_right(pair, &mut image) {
                self.log_leaf_merge(pair, (left, right), image, bytes, prelude);
                return Ok(true);
            }
            drop((left, right));
            self.pool.read_in(pair.parent)?;
        }
    }

    /// The parent's next image; false if it is not in memory.
    fn without_right(&self, pair: &Pair, image: &mut NewFrame<'_>) -> bool {
        let pin = self.pool.pin();
        match self.pool.node(pair.parent, &pin) {
            Node::Inner(parent) => image.bytes_mut().copy_from_slice(&parent),
            Node::Away => return false,
            Node::Leaf | Node::Gone => panic!("the structure lock keeps the parent"),
        }
        let (left, right) = (
            node::child(image, pair.slot),
            node::child(image, pair.slot + 1),
        );
        assert!(
            left == pair.left && right == pair.right,
            "{left} and {right} are in the slots of {} and {}",
            pair.left,
            pair.right
        );
        node::remove(image.bytes_mut(), pair.slot + 1);
        assert!(node::count(image) > 0, "{} has no child left", pair.parent);
        true
    }

    fn log_leaf_merge(
        &self,
        pair: &Pair,
        (mut left, right): (ExclusiveGuard<'_>, ExclusiveGuard<'_>),
        image: NewFrame<'_>,
        mut bytes: Vec<u8>,
        prelude: &[u8],
    ) {
        if ferrite_sync::mutant!("tree.merge_loses_record") && node::count(&bytes) > 0 {
            let last = node::count(&bytes) - 1;
            node::remove(&mut bytes, last);
        }
        assert!(
            node::low(&bytes) == node::low(&left) && node::high(&bytes) == node::high(&right),
            "the merged page covers something else"
        );
        let stamp = [left.frame_no(), image.frame_no()];
        kill_point!("tree.before_merge_logged");
        self.pool
            .free_pages(&[prelude, &self.ops(pair, &bytes)], &stamp, vec![right]);
        kill_point!("tree.after_merge_logged");
        left.bytes_mut().copy_from_slice(&bytes);
        self.pool.publish_image(pair.parent, image, None);
    }

    fn ops(&self, pair: &Pair, bytes: &[u8]) -> Vec<u8> {
        assert!(
            pair.right != self.root && pair.left != pair.right,
            "{}",
            pair.right
        );
        let mut ops = Vec::new();
        op::image(pair.left, bytes, &mut ops);
        op::free(pair.right, self.index, &mut ops);
        op::remove(pair.parent, self.index, pair.slot + 1, &mut ops);
        ops
    }

    /// Merges the inner node at `level` on the way to `key` with a neighbour.
    fn merge_inner(&self, key: &[u8], level: u8, prelude: &[u8]) -> Result<bool> {
        for pair in self.pairs_at(key, level)? {
            let (left, right) = (self.inner_copy(pair.left)?, self.inner_copy(pair.right)?);
            assert!(
                node::level(&left) == level,
                "{} is on another level",
                pair.left
            );
            assert!(
                node::right(&left) == pair.right,
                "{} leads elsewhere",
                pair.left
            );
            let sparse = is_sparse(&left) || is_sparse(&right);
            if let Some(bytes) = sparse.then(|| joined(&left, &right)).flatten() {
                self.log_inner_merge(&pair, &bytes, prelude)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn inner_copy(&self, page: PageId) -> Result<Vec<u8>> {
        loop {
            let pin = self.pool.pin();
            match self.pool.node(page, &pin) {
                Node::Inner(inner) => return Ok(inner.to_vec()),
                Node::Away => {}
                Node::Leaf | Node::Gone => panic!("the structure lock keeps the node"),
            }
            drop(pin);
            self.pool.read_in(page)?;
        }
    }

    fn log_inner_merge(&self, pair: &Pair, bytes: &[u8], prelude: &[u8]) -> Result<()> {
        let mut frames = self.pool.reserve(2)?;
        let mut left_image = frames.pop().expect("two were reserved");
        let mut parent_image = frames.pop().expect("two were reserved");
        left_image.bytes_mut().copy_from_slice(bytes);
        let right = loop {
            let right = self.pool.exclusive_inner(pair.right)?;
            if self.without_right(pair, &mut parent_image) {
                break right.expect("the structure lock keeps the node");
            }
            drop(right);
            self.pool.read_in(pair.parent)?;
        };
        let stamp = [left_image.frame_no(), parent_image.frame_no()];
        self.pool
            .free_pages(&[prelude, &self.ops(pair, bytes)], &stamp, vec![right]);
        self.pool.publish_image(pair.left, left_image, None);
        self.pool.publish_image(pair.parent, parent_image, None);
        Ok(())
    }
}
