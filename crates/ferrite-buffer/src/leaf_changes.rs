//! The changes of a leaf since its blob was written, from its reading to its eviction: kept with its frame
//! (`changes`) while it is in memory, and what of them is on disk as its delta with its page id afterwards (`kept_deltas`).
//!
//! Invariants: those of the two. A page that is away has something in `kept_deltas` only from the eviction by
//! which it left to the claim by which it is read, or until its id is freed.
//!
//! Locking: the frame's exclusive latch, or its shared one by who has its ticket.

use crate::changes::Changes;
use crate::kept_deltas::KeptDelta;
use crate::pool::Pool;
use ferrite_store::{changes_that_fit, Location, PageRead, StoredBlob, Wanted};
use ferrite_sync::atomic::Ordering;
use ferrite_types::{PageId, Result};

impl Pool {
    /// Of the page in frame `f`, since the blob at its home was written.
    pub(crate) fn changes(&self, f: u32) -> &Changes {
        self.frames.changes(f)
    }

    /// The page in frame `f` is the blob `base` at its home, of so many bytes when it is not packed, with these
    /// changes, and those to come.
    pub(crate) fn begin_changes(&self, f: u32, base: (StoredBlob, usize), ops: Vec<u8>) {
        self.forget_changes(f);
        let frame = self.frame(f);
        let most = self.most_changes(frame.home());
        if self.changes(f).begin(base, ops, most, &self.change_room) {
            frame.set_knows_changes(true);
        }
    }

    /// The page in frame `f` changes by `ops` and nothing else.
    pub(crate) fn keep_change(&self, f: u32, ops: &[u8]) {
        let frame = self.frame(f);
        if !frame.knows_changes() {
            return;
        }
        // It is being written and changes on: a hot page.
        let is_written = frame.ticket.load(Ordering::SeqCst) != 0;
        if is_written || !self.changes(f).add(ops, &self.change_room) {
            self.forget_changes(f);
        }
    }

    /// The page in frame `f` changes in a way that is not kept, or is no more.
    #[inline]
    pub(crate) fn forget_changes(&self, f: u32) {
        let frame = self.frame(f);
        if frame.knows_changes() {
            frame.set_knows_changes(false);
            self.changes(f).forget(&self.change_room);
        }
    }

    /// The page in frame `f`, exclusively latched, goes to frame `g`, which is not published yet.
    pub(crate) fn move_changes(&self, f: u32, g: u32) {
        let (old, new) = (self.frame(f), self.frame(g));
        assert!(f != g && !new.knows_changes(), "frame {f} to {g}");
        if old.knows_changes() {
            old.set_knows_changes(false);
            self.changes(f).move_to(self.changes(g));
            new.set_knows_changes(true);
        }
    }

    /// Bytes of changes up to which a delta is written beside that blob.
    pub(crate) fn most_changes(&self, home: Location) -> usize {
        // A delta leaves in its base what was deleted.
        if self.store.keeps_blocks_apart() {
            return 0;
        }
        let granules = home.granules().checked_div(self.delta_share);
        changes_that_fit(granules.unwrap_or(0))
    }

    /// Copies to `ops` what is to be written of the page in frame `f`, of which the changes are known and `live_bytes` bytes
    /// carry something: the blob that the delta belongs to. None: the page is to be written as a whole.
    pub(crate) fn copy_changes(
        &self,
        f: u32,
        live_bytes: usize,
        ops: &mut Vec<u8>,
    ) -> Option<StoredBlob> {
        let home = self.frame(f).home();
        let granules = home.granules() as usize;
        debug_assert!(granules > 0, "{} has no blob", self.frame(f).page());
        let most = |base_bytes: usize| {
            // What was deleted takes its place in the base: both together are a share longer than the page, and no more.
            let whole = (granules * live_bytes).div_ceil(base_bytes.max(1));
            let share = self.delta_share as usize;
            let both = whole + whole.checked_div(share).unwrap_or(0);
            let room = both.saturating_sub(granules) as u32;
            changes_that_fit(room).min(self.most_changes(home))
        };
        self.changes(f).copy(most, ops)
    }

    /// Bytes of memory for changes of pages that are not written yet, or written as deltas.
    pub fn change_bytes(&self) -> usize {
        self.change_room.used_bytes()
    }

    /// Most of them.
    pub fn change_limit_bytes(&self) -> usize {
        self.change_room.limit_bytes()
    }

    /// Bytes of memory for deltas of pages that are not in memory.
    pub fn kept_delta_bytes(&self) -> usize {
        self.kept_deltas.bytes()
    }

    /// Most of them.
    pub fn kept_delta_limit_bytes(&self) -> usize {
        self.kept_deltas.limit_bytes()
    }

    /// Reads of deltas that were spared.
    pub fn kept_delta_hits(&self) -> u64 {
        self.kept_deltas.hits.get()
    }

    /// The clean leaf in frame `f`, exclusively latched, is about to leave memory: its delta is kept.
    pub(crate) fn keep_delta(&self, f: u32) {
        let frame = self.frame(f);
        let page = frame.page();
        debug_assert!(!frame.is_dirty(), "{page} has changes that are not on disk");
        if !frame.knows_changes() {
            return;
        }
        let Some((base, changes)) = self.changes(f).known() else {
            return;
        };
        let at = self.store.delta_of(page);
        assert!(
            !at.is_none(),
            "{page} is clean, and has changes and no delta"
        );
        let lsn = frame.lsn();
        let kept = KeptDelta {
            at,
            lsn,
            base,
            changes,
        };
        self.kept_deltas.put(page, kept);
    }

    /// What is to be read of the page, which the caller has claimed, and what is kept of its delta.
    pub(crate) fn wanted(&self, page: PageId, at: Location) -> (Wanted, Option<KeptDelta>) {
        // Claimed: nobody changes it.
        let delta = self.store.delta_of(page);
        let kept = self.kept_deltas.take(page, delta);
        let delta = match kept.is_some() {
            true => Location::NONE,
            false => delta,
        };
        (Wanted { page, at, delta }, kept)
    }

    /// The page that was read, with what was kept of its delta.
    ///
    /// # Errors
    /// `Corrupt`: the blob is not the one that the delta belongs to.
    pub(crate) fn with_kept(
        &self,
        read: PageRead,
        kept: Option<KeptDelta>,
        bytes: &mut [u8],
    ) -> Result<PageRead> {
        let Some(kept) = kept else {
            return Ok(read);
        };
        debug_assert!(read.changes.is_empty(), "{}: two deltas", read.header.page);
        let KeptDelta {
            lsn, base, changes, ..
        } = kept;
        (self.store).with_changes(read, (base, lsn), changes.into(), bytes)
    }
}
