//! The way down, and the leaf it ends at.
//!
//! Readers and writers go down the same way: through immutable inner nodes under an epoch
//! pin, latching nothing, then one latch on the leaf and a look at its fences. A page that
//! moved on meanwhile (split, merged, reused) shows in the index id, the level or the fences,
//! and sends us right or back to the root.
//!
//! Back to the root we go a limited number of times ([`Tries`]): changes of structure are short,
//! so a way that stays closed is a fault of the pages. A tree whose table was dropped is
//! [closed](Tree::close): every way down it ends with `TableChanged`.

use crate::leaf::{LeafMut, LeafRef};
use crate::{node, op};
use ferrite_buffer::{InnerRef, Keep, Node, Pool};
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::epoch::EpochGuard;
use ferrite_sync::waits::{waiting, Of, Reason, Sliced};
use ferrite_sync::{thread, Arc, Mutex, MutexGuard};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, IndexId, PageId, Result};

/// Page ids a split takes at the most: two for each level.
pub(crate) const SPLIT_PAGES: usize = 64;
/// Restarts that only let others run.
const YIELDS: u32 = 1000;
/// Restarts after that, each after 1 ms: more than any change of structure takes.
const PAUSES: u32 = 30_000;

/// One B+tree.
pub struct Tree {
    pub(crate) pool: Arc<Pool>,
    pub(crate) index: IndexId,
    pub(crate) root: PageId,
    /// Serialises structure changes of this tree, and counts them.
    pub(crate) structure: Mutex<u64>,
    /// Its table is dropped; its pages are gone or about to go.
    closed: AtomicBool,
}

/// Where a way down is to end.
#[derive(Clone, Copy)]
pub(crate) enum Goal<'k> {
    /// The leaf that covers the key.
    Covers(&'k [u8]),
    /// The leaf that covers the keys just below the key; None = the last leaf.
    Below(Option<&'k [u8]>),
}

/// What keeps a thread from going down to a leaf at once.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Obstacle {
    /// The structure changed on the way.
    Changed,
    /// This page is not in memory, and nothing is read under a pin.
    Away(PageId),
}

/// How often one call has had to start again.
pub(crate) struct Tries {
    count: u32,
    wait: Sliced,
}

impl Default for Tries {
    fn default() -> Tries {
        Tries {
            count: 0,
            wait: Sliced::new(Reason::TreeStructure, Of::Nothing),
        }
    }
}

/// Where a page lies as seen from a goal.
enum Side {
    Here,
    GoRight,
    Lost,
}

impl Goal<'_> {
    fn side(&self, page: &[u8]) -> Side {
        match *self {
            Goal::Covers(key) if key < node::low(page) => Side::Lost,
            Goal::Covers(key) => match node::high(page) {
                Some(high) if key >= high => Side::GoRight,
                _ => Side::Here,
            },
            Goal::Below(None) => match node::high(page) {
                Some(_) => Side::GoRight,
                None => Side::Here,
            },
            Goal::Below(Some(key)) if key <= node::low(page) && !node::low(page).is_empty() => {
                Side::Lost
            }
            Goal::Below(Some(key)) => match node::high(page) {
                Some(high) if key > high => Side::GoRight,
                _ => Side::Here,
            },
        }
    }

    pub(crate) fn slot(&self, page: &[u8]) -> usize {
        match *self {
            Goal::Covers(key) => node::child_slot(page, key),
            Goal::Below(Some(key)) => node::child_slot_below(page, key),
            Goal::Below(None) => {
                debug_assert!(node::count(page) > 0, "an inner node without a child");
                node::count(page) - 1
            }
        }
    }
}

impl LeafRef<'_> {
    /// It is the leaf of the keys just below `key`.
    pub fn is_below(&self, key: &[u8]) -> bool {
        matches!(Goal::Below(Some(key)).side(self), Side::Here)
    }
}

impl Tree {
    /// The tree of `index` whose root is `root`.
    pub fn new(pool: Arc<Pool>, index: IndexId, root: PageId) -> Tree {
        Tree {
            pool,
            index,
            root,
            structure: Mutex::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Makes an empty tree: one page, logged with `prelude`. Returns the root's id.
    ///
    /// # Errors
    /// As [`Pool::reserve`]; nothing is made.
    pub fn create(pool: &Pool, index: IndexId, prelude: &[u8]) -> Result<PageId> {
        let mut frames = pool.reserve(1)?;
        let mut frame = frames.pop().expect("one was reserved");
        let root = pool.alloc_page(index);
        node::init(frame.bytes_mut(), index, 0, b"", None, PageId::NONE);
        assert!(root != PageId::NONE, "the root of index {index}");
        let mut ops = Vec::new();
        op::image(root, &frame, &mut ops);
        let no = frame.frame_no();
        pool.append(record_kind::MINI_TXN, &[prelude, &ops], &[no]);
        pool.publish_new(root, frame);
        Ok(root)
    }

    /// Index id.
    pub fn index(&self) -> IndexId {
        self.index
    }

    /// Page id of the root.
    pub fn root(&self) -> PageId {
        self.root
    }

    /// The pool below.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The inner nodes on the way to the goal, root first, and the leaf's id. The leaf may
    /// have been split since.
    pub(crate) fn path<'e>(
        &self,
        goal: Goal<'_>,
        pin: &'e EpochGuard<'_>,
        mut each: impl FnMut(InnerRef<'e>),
    ) -> std::result::Result<PageId, Obstacle> {
        let mut page = self.root;
        let mut level: Option<u8> = None;
        while level != Some(0) {
            let inner = match self.pool.node(page, pin) {
                Node::Gone => return Err(Obstacle::Changed),
                Node::Away => return Err(Obstacle::Away(page)),
                Node::Leaf if level.is_none() => break,
                Node::Leaf => return Err(Obstacle::Changed),
                Node::Inner(inner) => inner,
            };
            if node::index(&inner) != self.index
                || level.is_some_and(|l| l != node::level(&inner))
                || node::level(&inner) == 0
            {
                return Err(Obstacle::Changed);
            }
            match goal.side(&inner) {
                Side::Lost => return Err(Obstacle::Changed),
                Side::GoRight => {
                    level = Some(node::level(&inner));
                    page = node::right(&inner);
                }
                Side::Here => {
                    page = node::child(&inner, goal.slot(&inner));
                    debug_assert!(page != self.root, "{page} is below itself");
                    level = Some(node::level(&inner) - 1);
                    each(inner);
                }
            }
        }
        Ok(page)
    }

    /// Does what must be done before the way is tried again. The caller has no pin and no latch.
    pub(crate) fn overcome(&self, obstacle: Obstacle, tries: &mut Tries) -> Result<()> {
        match obstacle {
            Obstacle::Away(page) => self.pool.read_in(page),
            Obstacle::Changed => self.restart(tries),
        }
    }

    /// Levels of the tree, 1 for a lone leaf, and the goal's leaf.
    pub(crate) fn levels_and_leaf(&self, goal: Goal<'_>) -> Result<(usize, PageId)> {
        let mut tries = Tries::default();
        loop {
            let pin = self.pool.pin();
            let mut levels = 1;
            let found = self.path(goal, &pin, |_| levels += 1);
            drop(pin);
            match found {
                Ok(page) => return Ok((levels, page)),
                Err(obstacle) => self.overcome(obstacle, &mut tries)?,
            }
        }
    }

    pub(crate) fn leaf_page(&self, goal: Goal<'_>) -> Result<PageId> {
        self.levels_and_leaf(goal).map(|(_, page)| page)
    }

    /// For a change of structure, which nobody else makes meanwhile.
    ///
    /// # Errors
    /// `TableChanged`: the tree is closed.
    pub(crate) fn lock_structure(&self) -> Result<MutexGuard<'_, u64>> {
        let mut guard = self.wait_for_structure();
        self.check_open()?;
        *guard += 1;
        Ok(guard)
    }

    /// For who changes nothing.
    pub(crate) fn wait_for_structure(&self) -> MutexGuard<'_, u64> {
        let of = Of::Index {
            index: self.index.0,
            holder: 0,
        };
        let wait = || waiting(Reason::TreeStructure, of, || self.structure.lock());
        self.structure.try_lock().unwrap_or_else(wait)
    }

    /// The table is dropped: whoever still uses the tree gets `TableChanged` from here on. Its
    /// pages may be dropped while the guard is held.
    pub fn close(&self) -> MutexGuard<'_, u64> {
        self.closed.store(true, Ordering::SeqCst);
        self.wait_for_structure()
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::TableChanged);
        }
        Ok(())
    }

    /// Somebody is in the middle of a change of structure: lets them get on with it.
    ///
    /// # Errors
    /// `TableChanged` when the tree is closed; `Corrupt` after far too many tries.
    pub(crate) fn restart(&self, tries: &mut Tries) -> Result<()> {
        self.check_open()?;
        tries.count += 1;
        if tries.count <= YIELDS {
            thread::yield_now();
        } else if tries.count <= YIELDS + PAUSES {
            tries.wait.slice(|| thread::sleep_ms(1));
        } else {
            let text = format!("index {}: no way from its root to a leaf", self.index);
            return Err(Error::Corrupt(text));
        }
        Ok(())
    }

    /// To be asked before anything else is read of a page that was found without its parent's latch: it
    /// may have become another tree's, or a value of this index's rows, since its number was read.
    pub(crate) fn is_our_leaf(&self, page: &[u8]) -> bool {
        let is_leaf = node::is_node(page) && node::level(page) == 0;
        is_leaf && node::index(page) == self.index
    }

    pub(crate) fn leaf_shared(&self, goal: Goal<'_>, keep: Keep) -> Result<LeafRef<'_>> {
        let mut tries = Tries::default();
        'down: loop {
            let mut page = self.leaf_page(goal)?;
            loop {
                let Some(guard) = self.pool.shared_to(page, keep)? else {
                    self.restart(&mut tries)?;
                    continue 'down;
                };
                if !self.is_our_leaf(&guard) {
                    drop(guard);
                    self.restart(&mut tries)?;
                    continue 'down;
                }
                match goal.side(&guard) {
                    Side::Here => return Ok(LeafRef { guard }),
                    Side::GoRight => page = node::right(&guard),
                    Side::Lost => {
                        drop(guard);
                        self.restart(&mut tries)?;
                        continue 'down;
                    }
                }
            }
        }
    }

    /// The leaf that covers `key`, for reading.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn leaf(&self, key: &[u8]) -> Result<LeafRef<'_>> {
        self.leaf_to(key, Keep::Yes)
    }

    /// As [`Tree::leaf`], for a scan that may pass over the leaf.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn leaf_to(&self, key: &[u8], keep: Keep) -> Result<LeafRef<'_>> {
        self.leaf_shared(Goal::Covers(key), keep)
    }

    /// The leaf that covers the keys just below `key`; None: the last leaf.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn leaf_below(&self, key: Option<&[u8]>, keep: Keep) -> Result<LeafRef<'_>> {
        self.leaf_shared(Goal::Below(key), keep)
    }

    /// The leaf on `page` if it still is one of this tree, whatever it covers now: for who has been there and may go on
    /// without the way down.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn leaf_again(&self, page: PageId, keep: Keep) -> Result<Option<LeafRef<'_>>> {
        let guard = self.pool.shared_to(page, keep)?;
        Ok(guard
            .filter(|guard| self.is_our_leaf(guard))
            .map(|guard| LeafRef { guard }))
    }

    /// The leaf on `page` if nothing changed there since `lsn`.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn leaf_if_unchanged(
        &self,
        page: PageId,
        lsn: ferrite_types::Lsn,
        keep: Keep,
    ) -> Result<Option<LeafRef<'_>>> {
        let leaf = self.leaf_again(page, keep)?;
        Ok(leaf.filter(|leaf| leaf.lsn() == lsn))
    }

    /// Calls `f` with the first key at or after `slot` of a leaf, None: there is none to the right.
    /// All leaves up to the one that has it stay latched over `f`, so that nothing comes before
    /// that key meanwhile. `key` is a buffer.
    ///
    /// # Errors
    /// The page that must be read in first, without the leaf's latch.
    pub fn with_successor<R>(
        &self,
        leaf: &LeafRef<'_>,
        slot: usize,
        key: &mut Vec<u8>,
        f: impl FnOnce(Option<&[u8]>) -> R,
    ) -> std::result::Result<R, PageId> {
        crate::leaf::with_successor(&self.pool, leaf, slot, key, f)
    }

    /// Are there page ids for a split? To be asked before [`Tree::make_room`] for a change that may
    /// be refused; a rollback does not ask.
    ///
    /// # Errors
    /// `DiskFull`: nearly all page ids are in use.
    pub fn check_page_ids(&self) -> Result<()> {
        self.pool.store().check_page_ids(SPLIT_PAGES)
    }

    /// Reads a page in, if it is still a leaf. No latch may be held.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn load(&self, page: PageId) -> Result<()> {
        self.pool.shared(page).map(drop)
    }

    /// The leaf that covers `key`, for change, tried first at `hint`.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn leaf_mut(&self, key: &[u8], hint: PageId) -> Result<LeafMut<'_>> {
        let (mut page, mut is_hint) = (hint, true);
        let mut tries = Tries::default();
        loop {
            if page != PageId::NONE {
                let guard = self.pool.exclusive(page)?;
                if let Some(guard) = guard.filter(|guard| self.is_our_leaf(guard)) {
                    if node::covers(&guard, key) || ferrite_sync::mutant!("tree.no_fence_check") {
                        return Ok(LeafMut {
                            guard,
                            pool: &self.pool,
                            index: self.index,
                        });
                    }
                    if node::low(&guard) <= key && !is_hint {
                        page = node::right(&guard);
                        continue;
                    }
                }
                if !is_hint {
                    self.restart(&mut tries)?;
                }
            }
            // The way down may lead to the same page again: then it is no hint.
            is_hint = false;
            page = self.leaf_page(Goal::Covers(key))?;
        }
    }

    /// The same, looked for in `near` first if that is in memory: nothing is read for a guess.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn leaf_mut_near(&self, key: &[u8], near: PageId) -> Result<LeafMut<'_>> {
        if near != PageId::NONE {
            let guard = self.pool.exclusive_resident(near);
            if let Some(guard) = guard.filter(|g| self.is_our_leaf(g) && node::covers(g, key)) {
                return Ok(LeafMut {
                    guard,
                    pool: &self.pool,
                    index: self.index,
                });
            }
        }
        self.leaf_mut(key, PageId::NONE)
    }

    /// Levels of the tree: 1 for a lone leaf.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn height(&self) -> Result<usize> {
        self.levels_and_leaf(Goal::Covers(b""))
            .map(|(levels, _)| levels)
    }
}
