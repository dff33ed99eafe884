//! Taking sparse pages out: two neighbours under one parent become one, as one log record.
//! The right one is freed; whoever still knows it starts again at the root.

use crate::tree::{Goal, Tree};
use crate::{node, op};
use ferrite_buffer::InnerRef;
use ferrite_sync::kill_point;
use ferrite_types::{PageId, Result, PAGE_BYTES};

/// A page with less than this in use is worth merging, in bytes.
const SPARSE_BYTES: usize = PAGE_BYTES / 4;
/// The merged page must leave this much room, in bytes.
const SLACK_BYTES: usize = PAGE_BYTES / 4;

/// True if a leaf is worth a call of [`Tree::merge_at`].
pub fn is_sparse(page: &[u8]) -> bool {
    node::used_bytes(page) < SPARSE_BYTES
}

/// The two pages as one under the left one's id, or None if that would not fit well.
fn joined(left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
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
    Some(out)
}

impl Tree {
    /// Merges the leaf that covers `key` with a neighbour if both fit one page, and sparse
    /// parents likewise. The caller holds no latch. True if something was merged.
    ///
    /// # Errors
    /// A page that cannot be read; the tree is unchanged or as after an earlier merge.
    pub fn merge_at(&self, key: &[u8], prelude: &[u8]) -> Result<bool> {
        let _structure = self.lock_structure();
        let merged = self.merge_leaf(key, prelude)?;
        if merged {
            let mut level = 1;
            while self.merge_inner(key, level, prelude)? {
                level += 1;
            }
        }
        Ok(merged)
    }

    fn merge_leaf(&self, key: &[u8], prelude: &[u8]) -> Result<bool> {
        let pin = self.pool.pin();
        let mut path: Vec<InnerRef<'_>> = Vec::new();
        let found = self.path(Goal::Covers(key), &pin, |inner| path.push(inner))?;
        let Some(parent) = path.last().filter(|p| node::count(p) > 1) else {
            return Ok(false);
        };
        found.expect("the structure lock keeps the path");
        let slot = node::child_slot(parent, key).min(node::count(parent) - 2);
        let (left_id, right_id) = (node::child(parent, slot), node::child(parent, slot + 1));
        // Both are read in before either is latched (the pool's invariant 5).
        drop(self.pool.shared(right_id)?);
        let mut frames = self.pool.reserve(1);
        let left = self.pool.exclusive(left_id)?;
        let mut left = left.expect("the structure lock keeps the leaf");
        let Some(right) = self.pool.exclusive_resident(right_id) else {
            return Ok(false);
        };
        let sparse = is_sparse(&left) || is_sparse(&right);
        let Some(mut bytes) = sparse.then(|| joined(&left, &right)).flatten() else {
            return Ok(false);
        };
        if ferrite_sync::mutant!("tree.merge_loses_record") && node::count(&bytes) > 0 {
            let last = node::count(&bytes) - 1;
            node::remove(&mut bytes, last);
        }
        let mut ops = Vec::new();
        let mut image = frames.pop().expect("one was reserved");
        image.bytes_mut().copy_from_slice(parent);
        node::remove(image.bytes_mut(), slot + 1);
        op::image(left_id, &bytes, &mut ops);
        op::free(right_id, self.index, &mut ops);
        op::remove(parent.page_id(), self.index, slot + 1, &mut ops);
        let stamp = [left.frame_no(), image.frame_no()];
        kill_point!("tree.before_merge_logged");
        self.pool
            .free_pages(&[prelude, &ops], &stamp, vec![right], &[]);
        kill_point!("tree.after_merge_logged");
        left.bytes_mut().copy_from_slice(&bytes);
        self.pool.publish_image(parent.page_id(), image, None);
        self.stats.merges.inc();
        Ok(true)
    }

    /// Merges the inner node at `level` on the way to `key` with a neighbour.
    fn merge_inner(&self, key: &[u8], level: u8, prelude: &[u8]) -> Result<bool> {
        let pin = self.pool.pin();
        let mut path: Vec<InnerRef<'_>> = Vec::new();
        self.path(Goal::Covers(key), &pin, |inner| path.push(inner))?;
        let Some(parent) = path.iter().find(|p| node::level(p) == level + 1) else {
            return Ok(false);
        };
        if node::count(parent) < 2 {
            return Ok(false);
        }
        let slot = node::child_slot(parent, key).min(node::count(parent) - 2);
        let (left_id, right_id) = (node::child(parent, slot), node::child(parent, slot + 1));
        let (Some(left), Some(right)) = (self.inner(left_id, &pin)?, self.inner(right_id, &pin)?)
        else {
            return Ok(false);
        };
        let sparse = is_sparse(&left) || is_sparse(&right);
        let Some(bytes) = sparse.then(|| joined(&left, &right)).flatten() else {
            return Ok(false);
        };
        self.log_inner_merge(parent, slot, left_id, right_id, &bytes, prelude);
        Ok(true)
    }

    fn inner<'e>(
        &self,
        page: PageId,
        pin: &'e ferrite_sync::epoch::EpochGuard<'_>,
    ) -> Result<Option<InnerRef<'e>>> {
        Ok(match self.pool.node(page, pin)? {
            ferrite_buffer::Node::Inner(inner) => Some(inner),
            _ => None,
        })
    }

    fn log_inner_merge(
        &self,
        parent: &InnerRef<'_>,
        slot: usize,
        left_id: PageId,
        right_id: PageId,
        bytes: &[u8],
        prelude: &[u8],
    ) {
        let mut frames = self.pool.reserve(2);
        let mut left_image = frames.pop().expect("two were reserved");
        let mut parent_image = frames.pop().expect("two were reserved");
        left_image.bytes_mut().copy_from_slice(bytes);
        parent_image.bytes_mut().copy_from_slice(parent);
        node::remove(parent_image.bytes_mut(), slot + 1);
        let mut ops = Vec::new();
        op::image(left_id, bytes, &mut ops);
        op::free(right_id, self.index, &mut ops);
        op::remove(parent.page_id(), self.index, slot + 1, &mut ops);
        let stamp = [left_image.frame_no(), parent_image.frame_no()];
        self.pool
            .free_pages(&[prelude, &ops], &stamp, Vec::new(), &[right_id]);
        self.pool.publish_image(left_id, left_image, None);
        self.pool
            .publish_image(parent.page_id(), parent_image, None);
        self.stats.merges.inc();
    }
}
