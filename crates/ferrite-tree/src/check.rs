//! The structural verifier: every node's own consistency, fences against parents, levels,
//! right links, and the order of all keys.
//!
//! It holds the tree's structure lock while it copies a few leaves, so that fences and links stand still;
//! rows may change. In between it holds nothing, and gives what it has copied to the caller: splits
//! and merges go on. Where they have, the links from what was copied before are not looked at.
//!
//! Invariant: each key is given once, in order, whatever is split or merged meanwhile.

use crate::tree::Tree;
use crate::{node, record::Record};
use ferrite_buffer::{Keep, Node};
use ferrite_types::{Error, PageId, Result};

/// Leaves that the walk reads ahead at most.
const WINDOW: usize = 64;
/// Leaves copied under one hold of the structure lock.
const AT_ONCE: usize = 16;

/// What a walk over a sound tree found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Leaf pages.
    pub leaves: u64,
    /// Inner pages.
    pub inners: u64,
    /// Records, delete-marked ones included.
    pub records: u64,
    /// Delete-marked records.
    pub deleted: u64,
}

struct Walk<'t, 'f> {
    tree: &'t Tree,
    census: Census,
    /// Right link the last page of each level announced.
    next_at_level: Vec<Option<PageId>>,
    /// Changes of the structure before the leaves were copied.
    changes: u64,
    /// Keys below have been given; what follows begins here.
    start: Vec<u8>,
    /// High fence of the last leaf copied; None: of no leaf yet, or it is the last one.
    from: Option<Vec<u8>>,
    leaves: Vec<Vec<u8>>,
    before: &'f mut dyn FnMut(&[u8]),
    each: &'f mut dyn FnMut(&[u8], Record<'_>) -> Result<()>,
}

impl Tree {
    /// Verifies the tree; calls `each` with every key and record in order.
    ///
    /// # Errors
    /// `Corrupt` with the first fault, `TableChanged` when the tree is closed, a page that cannot be read,
    /// or what `each` returned.
    pub fn check(&self, each: &mut dyn FnMut(&[u8], Record<'_>) -> Result<()>) -> Result<Census> {
        self.check_by_leaf(&mut |_| {}, each)
    }

    /// As [`Tree::check`]; `before` gets each leaf before its records are given to `each`.
    ///
    /// # Errors
    /// As [`Tree::check`].
    pub fn check_by_leaf(
        &self,
        before: &mut dyn FnMut(&[u8]),
        each: &mut dyn FnMut(&[u8], Record<'_>) -> Result<()>,
    ) -> Result<Census> {
        let mut walk = Walk {
            tree: self,
            census: Census::default(),
            next_at_level: Vec::new(),
            changes: 0,
            start: Vec::new(),
            from: None,
            leaves: Vec::new(),
            before,
            each,
        };
        loop {
            walk.copy_some()?;
            for copy in std::mem::take(&mut walk.leaves) {
                walk.leaf(&copy)?;
            }
            let Some(from) = walk.from.take() else {
                break;
            };
            assert!(from > walk.start, "the check goes back");
            walk.start = from;
        }
        for (level, next) in walk.next_at_level.iter().enumerate() {
            if next.is_some_and(|n| n != PageId::NONE) {
                return Err(walk.fault(self.root, &format!("level {level} has no right end")));
            }
        }
        Ok(walk.census)
    }
}

impl Walk<'_, '_> {
    fn fault(&self, page: PageId, what: &str) -> Error {
        Error::Corrupt(format!("index {} page {page}: {what}", self.tree.index))
    }

    /// Copies the leaves that follow.
    fn copy_some(&mut self) -> Result<()> {
        debug_assert!(self.leaves.is_empty() && self.from.is_none());
        let tree = self.tree;
        let changes = tree.wait_for_structure();
        tree.check_open()?;
        if *changes != self.changes {
            self.next_at_level.fill(None);
            self.changes = *changes;
        }
        self.visit(tree.root, None, b"", None)?;
        debug_assert!(!self.leaves.is_empty() && self.leaves.len() <= AT_ONCE);
        Ok(())
    }

    fn visit(
        &mut self,
        page: PageId,
        level: Option<u8>,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<()> {
        let copy = self.copy(page)?;
        node::validate(&copy, page)?;
        if node::index(&copy) != self.tree.index {
            return Err(self.fault(page, "belongs to another index"));
        }
        if level.is_some_and(|l| l != node::level(&copy)) {
            return Err(self.fault(page, "is on the wrong level"));
        }
        if node::low(&copy) != low || node::high(&copy) != high {
            return Err(self.fault(page, "fences differ from the parent's entries"));
        }
        let is_new = node::low(&copy) >= self.start.as_slice();
        self.check_link(page, &copy, is_new)?;
        if node::level(&copy) == 0 {
            self.census.leaves += 1;
            self.from = node::high(&copy).map(<[u8]>::to_vec);
            self.leaves.push(copy);
            return Ok(());
        }
        self.census.inners += u64::from(is_new);
        self.children(page, &copy)
    }

    fn copy(&self, page: PageId) -> Result<Vec<u8>> {
        let pool = &self.tree.pool;
        loop {
            if let Some(leaf) = pool.shared_to(page, Keep::Scanned)? {
                return Ok(leaf.to_vec());
            }
            match pool.node(page, &pool.pin()) {
                Node::Inner(inner) => return Ok(inner.to_vec()),
                Node::Gone => return Err(self.fault(page, "is named but does not exist")),
                Node::Leaf | Node::Away => {}
            }
        }
    }

    /// `is_new`: the walk comes to the page's first child, not back to it.
    fn check_link(&mut self, page: PageId, copy: &[u8], is_new: bool) -> Result<()> {
        let level = node::level(copy) as usize;
        if self.next_at_level.len() <= level {
            self.next_at_level.resize(level + 1, None);
        }
        let expected = self.next_at_level[level].filter(|_| is_new);
        if expected.is_some_and(|expected| expected != page) {
            return Err(self.fault(page, "is not where its left neighbour's link points"));
        }
        self.next_at_level[level] = Some(node::right(copy));
        Ok(())
    }

    fn leaf(&mut self, copy: &[u8]) -> Result<()> {
        (self.before)(copy);
        let mut key = Vec::new();
        for slot in 0..node::count(copy) {
            let rec = node::record(copy, slot);
            key.clear();
            node::key_into(copy, slot, &mut key);
            if key.as_slice() < self.start.as_slice() {
                continue;
            }
            self.census.records += 1;
            self.census.deleted += u64::from(rec.header.deleted);
            (self.each)(&key, rec)?;
        }
        Ok(())
    }

    /// The walk comes to the child in `slot`: half a window of those behind it is asked for when
    /// half of the window before is used up.
    fn read_ahead(&self, copy: &[u8], slot: usize) {
        let pool = &self.tree.pool;
        let most = if node::level(copy) == 1 { WINDOW } else { 2 };
        let half = pool.read_ahead_window().min(most) / 2;
        if half == 0 || slot % half != 0 {
            return;
        }
        let from = if slot == 0 { 1 } else { slot + half };
        let to = node::count(copy).min(slot + 2 * half);
        let children = (from..to).map(|slot| node::child(copy, slot));
        let pages: Vec<PageId> = children.filter(|&page| pool.is_away(page)).collect();
        debug_assert!(pages.len() <= WINDOW, "{} pages", pages.len());
        pool.read_ahead(&pages);
    }

    fn children(&mut self, page: PageId, copy: &[u8]) -> Result<()> {
        let n = node::count(copy);
        if n == 0 {
            return Err(self.fault(page, "has no child"));
        }
        let mut low = Vec::new();
        let mut high = Vec::new();
        let first = match node::covers(copy, &self.start) {
            true => node::child_slot(copy, &self.start),
            false => 0,
        };
        for slot in first..n {
            if self.leaves.len() == AT_ONCE {
                break;
            }
            self.read_ahead(copy, slot);
            low.clear();
            node::key_into(copy, slot, &mut low);
            if slot == 0 && low != node::low(copy) {
                return Err(self.fault(page, "first entry differs from the low fence"));
            }
            high.clear();
            let bound = if slot + 1 < n {
                node::key_into(copy, slot + 1, &mut high);
                Some(high.as_slice())
            } else {
                node::high(copy)
            };
            let child = node::child(copy, slot);
            self.visit(child, Some(node::level(copy) - 1), &low, bound)?;
        }
        Ok(())
    }
}
