//! A way through a tree that goes on where it finds damage.
//!
//! What `ferrite_tree::check` demands of a sound tree is demanded here, too: each node's own
//! consistency, levels, fences equal to the parent's entries, right links in order, no page
//! twice. A node that fails is a fault and a hole: the range of keys that cannot be reached.
//!
//! Invariants: every page is visited at most once, so damage cannot make the walk endless;
//! the recursion is as deep as the root's level, one byte; lost leaves, which there are most of, are counted.
//! Locking: none.

use super::Offline;
use ferrite_tree::node;
use ferrite_types::{Faults, IndexId, PageId, PAGE_BYTES};
use std::collections::HashSet;

/// Keys of a tree that cannot be reached from its root, as an inner node is lost. The leaves below it may still be
/// somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hole {
    /// First key.
    pub low: Vec<u8>,
    /// First key beyond; None: to the end.
    pub high: Option<Vec<u8>>,
}

/// What a walk found.
#[derive(Debug, Default)]
pub struct TreeWalk {
    /// Faults, in the order of keys.
    pub faults: Faults,
    /// What could not be reached for lost inner nodes.
    pub holes: Vec<Hole>,
    /// Leaves that should be there and are not: nothing else holds their rows.
    pub lost_leaves: u64,
    /// Pages that the walk saw, good or bad.
    pub pages: HashSet<PageId>,
    /// Sound leaves.
    pub leaves: u64,
    /// Sound inner nodes.
    pub inners: u64,
}

impl TreeWalk {
    /// True if every leaf was seen.
    pub fn is_whole(&self) -> bool {
        self.holes.is_empty() && self.lost_leaves == 0
    }
}

/// What a parent says of its child.
struct Expect<'k> {
    level: Option<u8>,
    low: &'k [u8],
    high: Option<&'k [u8]>,
}

struct Walker<'o, 'f> {
    offline: &'o Offline,
    index: IndexId,
    found: TreeWalk,
    /// Right link the last page of each level announced; None: unknown since a hole.
    next_at_level: Vec<Option<PageId>>,
    each: &'f mut dyn FnMut(PageId, &[u8]) -> bool,
    stopped: bool,
}

impl Offline {
    /// Visits every sound leaf that can be reached from the root, in the order of keys.
    pub fn tree(
        &self,
        index: IndexId,
        root: PageId,
        each: &mut dyn FnMut(PageId, &[u8]),
    ) -> TreeWalk {
        self.tree_while(index, root, &mut |page, bytes| {
            each(page, bytes);
            true
        })
    }

    /// [`Offline::tree`], until `each` returns false: what was found until then.
    pub fn tree_while(
        &self,
        index: IndexId,
        root: PageId,
        each: &mut dyn FnMut(PageId, &[u8]) -> bool,
    ) -> TreeWalk {
        let mut walker = Walker {
            offline: self,
            index,
            found: TreeWalk::default(),
            next_at_level: Vec::new(),
            each,
            stopped: false,
        };
        let expect = Expect {
            level: None,
            low: b"",
            high: None,
        };
        walker.visit(root, &expect);
        if walker.stopped {
            return walker.found;
        }
        for level in 0..walker.next_at_level.len() {
            if walker.next_at_level[level].is_some_and(|n| n != PageId::NONE) {
                walker.fault(root, &format!("level {level} has no right end"));
            }
        }
        walker.found
    }

    /// [`Offline::tree`] for who wants the faults only.
    pub(super) fn walk(
        &self,
        index: IndexId,
        root: PageId,
        each: &mut dyn FnMut(PageId, &[u8]),
    ) -> Faults {
        self.tree(index, root, each).faults
    }
}

impl Walker<'_, '_> {
    fn fault(&mut self, page: PageId, what: &str) {
        let index = self.index;
        let text = || format!("index {index} page {page}: {what}");
        self.found.faults.push_with(text);
    }

    fn visit(&mut self, page: PageId, expect: &Expect<'_>) {
        if self.stopped {
            return;
        }
        if !self.found.pages.insert(page) {
            self.fault(page, "is named twice");
            return self.hole(expect);
        }
        let mut copy = vec![0; PAGE_BYTES];
        if let Err(e) = self.offline.node(self.index, page, &mut copy) {
            let index = self.index;
            self.found
                .faults
                .push_with(|| format!("index {index}: {e}"));
            return self.hole(expect);
        }
        if let Some(what) = misplaced(&copy, expect) {
            self.fault(page, what);
            return self.hole(expect);
        }
        self.check_link(page, &copy);
        if node::level(&copy) == 0 {
            self.found.leaves += 1;
            self.stopped = !(self.each)(page, &copy);
        } else {
            self.found.inners += 1;
            self.children(page, &copy);
        }
    }

    /// Nothing is known of what lies below `expect`, nor of the links that lead out of it.
    fn hole(&mut self, expect: &Expect<'_>) {
        match expect.level {
            Some(0) => self.found.lost_leaves += 1,
            _ => self.found.holes.push(Hole {
                low: expect.low.to_vec(),
                high: expect.high.map(<[u8]>::to_vec),
            }),
        }
        let levels = expect.level.map_or(usize::MAX, |l| usize::from(l) + 1);
        let unknown = self.next_at_level.iter_mut().take(levels);
        unknown.for_each(|next| *next = None);
    }

    fn check_link(&mut self, page: PageId, copy: &[u8]) {
        let level = usize::from(node::level(copy));
        if self.next_at_level.len() <= level {
            self.next_at_level.resize(level + 1, None);
        }
        if self.next_at_level[level].is_some_and(|expected| expected != page) {
            self.fault(page, "is not where its left neighbour's link points");
        }
        self.next_at_level[level] = Some(node::right(copy));
    }

    fn children(&mut self, page: PageId, copy: &[u8]) {
        assert!(node::level(copy) > 0, "a leaf has no children");
        let n = node::count(copy);
        let mut keys = vec![Vec::new(); n];
        for (slot, key) in keys.iter_mut().enumerate() {
            node::key_into(copy, slot, key);
        }
        if keys.first().is_none_or(|first| first != node::low(copy)) {
            self.fault(page, "first entry differs from the low fence");
        }
        for slot in 0..n {
            let next = keys.get(slot + 1).map(Vec::as_slice);
            let expect = Expect {
                level: Some(node::level(copy) - 1),
                low: &keys[slot],
                high: next.or(node::high(copy)),
            };
            self.visit(node::child(copy, slot), &expect);
        }
    }
}

/// What is wrong with a sound page in this place.
fn misplaced(page: &[u8], expect: &Expect<'_>) -> Option<&'static str> {
    if expect.level.is_some_and(|l| l != node::level(page)) {
        return Some("is on the wrong level");
    }
    if node::low(page) != expect.low || node::high(page) != expect.high {
        return Some("fences differ from the parent's entries");
    }
    None
}
