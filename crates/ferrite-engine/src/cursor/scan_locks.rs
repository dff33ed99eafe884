//! What a locking scan keeps of its way: the leaves it has left, and the locks that become a range.
//!
//! Invariant: a gap that the scan has passed is either locked, or its leaf is among those left behind
//! and is looked at again before the scan delivers what comes next.
//!
//! Locking: belongs to a cursor, that is to one thread; latches only the leaves it looks at again.

use super::Resume;
use ferrite_lock::RangeId;
use ferrite_tree::{Keep, LeafRef, Tree};
use ferrite_types::{Lsn, PageId, Result};

/// Leaves that a forward scan with gap locks has left at their ends, since the last entry it
/// has locked. The gap behind them is locked only with the next entry, which stands on another
/// leaf: until then somebody may insert there. So once that lock is held, a leaf that has
/// changed sends the scan back to look again.
#[derive(Default)]
pub(super) struct LeftBehind {
    pub(super) pages: Vec<(PageId, Lsn)>,
    key: Vec<u8>,
    exclusive: bool,
}

impl LeftBehind {
    /// The scan leaves `leaf`, where it had come from `resume`.
    pub(super) fn note(&mut self, resume: &Resume, leaf: &LeafRef<'_>) {
        if self.pages.is_empty() {
            self.key.clone_from(&resume.key);
            self.exclusive = resume.exclusive;
        }
        // The same again if its right neighbour was merged into it meanwhile.
        let left = (leaf.page_id(), leaf.lsn());
        debug_assert!(self.pages.last() != Some(&left), "a leaf is left twice");
        self.pages.push(left);
    }

    /// The lock behind them is held: true, and the scan goes back, if one has changed before.
    pub(super) fn go_back_if_changed(&mut self, tree: &Tree, resume: &mut Resume) -> Result<bool> {
        for (page, lsn) in &self.pages {
            let blind = ferrite_sync::mutant!("cursor.leaf_change_unnoticed");
            if !blind && tree.leaf_if_unchanged(*page, *lsn, Keep::Yes)?.is_none() {
                self.go_back(resume);
                return Ok(true);
            }
        }
        self.pages.clear();
        Ok(false)
    }

    /// The scan goes on where it was before it left the first of them.
    pub(super) fn go_back(&mut self, resume: &mut Resume) {
        if self.pages.is_empty() {
            return;
        }
        self.pages.clear();
        resume.key.clone_from(&self.key);
        resume.exclusive = self.exclusive;
        resume.edge = false;
        resume.end = false;
        resume.page = PageId::NONE;
    }
}

/// How a long scan's next-key locks become a range.
#[derive(Default)]
pub(super) struct Fold {
    /// Next-key locks in a row.
    pub(super) taken: u32,
    pub(super) range: Option<RangeId>,
    /// New locks on single keys that the range is to take in: those before it began, and the first
    /// entry of a leaf, for until its lock is held, entries may come at the end of the leaf before.
    pub(super) singles: Keys,
}

impl Fold {
    /// A scan begins: what it locks does not follow on what was locked before.
    pub(super) fn begin(&mut self) {
        self.taken = 0;
        self.range = None;
        self.singles.clear();
    }
}

/// Keys, one behind the other.
#[derive(Default)]
pub(super) struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    /// Memory that a cursor keeps for them between two scans.
    const KEPT_BYTES: usize = 16 * 1024;

    pub(super) fn push(&mut self, key: &[u8]) {
        debug_assert!(!key.is_empty(), "a key of nothing");
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    pub(super) fn is_empty(&self) -> bool {
        debug_assert_eq!(self.ends.is_empty(), self.bytes.is_empty());
        self.ends.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let ends = self.ends.iter().copied();
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(Keys::KEPT_BYTES);
        self.ends.clear();
    }
}
