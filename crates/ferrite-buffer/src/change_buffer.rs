//! The change buffer: changes of leaves that are not in memory, kept until the leaf is read.
//!
//! A change that says by itself where it belongs on its page (`ferrite_tree::op`, PUT) need not wait for the page.
//! It goes to the log like any other, in the one order of the log, and its operation is kept here, by
//! page. Whoever reads the page ([`Pool::fill_from`]) applies what is kept before anybody sees the
//! page, which is dirty then. What is kept is in the log and nowhere else on disk: after a crash redo
//! applies it as it does with all operations, or keeps it here again ([`Pool::put_off_redo`]).
//!
//! # Invariants
//! 1. Something is kept for a page only while its directory word says that it is on disk (or, of redo
//!    that was put off, in the log). It is put here under the shard's lock, after a look at the word;
//!    who reads a page has claimed the word before it looks here, under the same lock. So nothing
//!    comes too late for the reader, and a page in memory lacks nothing.
//! 2. While the shard is locked and the word says so, the page cannot change in any way: no
//!    thread gets past the reading of it. A way down the tree that ends at it then is still right
//!    when the change is logged.
//! 3. `oldest` of a shard is not above the position of any record kept there that is not yet covered
//!    by its frame's `rec_lsn`: it is lowered before the record takes its place in the log, and
//!    raised after the frame is marked. A checkpointer reads it first and the frames afterwards.
//! 4. All that is kept for a page fits it, by the room that the page had when it left memory. A page
//!    that has not been in memory since the start has no known room: nothing is kept for it.
//! 5. While a page lacks redo no change that needs room is kept behind that, though the page may have been in
//!    memory: recovery may have redone it in one batch, dropped it, and put off the redo of a later one. Its
//!    room is not known any more, and what is redone leaves no versions for readers.
//!
//! # Locking
//! frame latch of a page that is read > shard > undo slot > log. A thread holds one shard at a time. A checkpointer takes
//! none of them, for a thread may wait for space in the log with one locked.

use crate::kept::{ApplyKept, ChangeBuffer, Kept, Shard, ShardOf};
use crate::pool::Pool;
use ferrite_redo::Appended;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, MutexGuard};
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, PAGE_BYTES};

/// Bytes of a page's room that are not used here: what every page keeps unused, and some to spare.
const SPARE_BYTES: usize = 64;

/// A page that is not in memory, while a change for it may be put into the change buffer. The
/// page's shard is locked.
pub struct AwayPage<'p> {
    pool: &'p Pool,
    page: PageId,
    index: IndexId,
    /// Room that the change needs at the most.
    room: usize,
    of: &'p ShardOf,
    shard: MutexGuard<'p, Shard>,
}

impl AwayPage<'_> {
    /// Which page this is.
    pub fn page_id(&self) -> PageId {
        self.page
    }

    /// The operations that are kept for the page, in the order of the log.
    pub fn each_kept(&self, mut each: impl FnMut(&[u8])) {
        if let Some(kept) = self.shard.pages.get(&self.page) {
            kept.each().for_each(|(_, op)| each(op));
        }
    }

    /// Is it redo of before the start that is kept for the page? Its operations are of all kinds.
    pub fn lacks_redo(&self) -> bool {
        let kept = self.shard.pages.get(&self.page);
        kept.is_some_and(|kept| kept.redo.is_some())
    }

    /// Appends a log record whose only page operation is `op`, and keeps that for the page.
    pub fn append(self, kind: u8, prelude: &[u8], op: &[u8]) -> Appended {
        self.append_and(kind, prelude, op, || ())
    }

    /// The same, and does something before anybody can read the page with it.
    pub fn append_and(
        mut self,
        kind: u8,
        prelude: &[u8],
        op: &[u8],
        then: impl FnOnce(),
    ) -> Appended {
        let (pool, page) = (self.pool, self.page);
        debug_assert!(
            self.room == 0 || !self.lacks_redo(),
            "a change of {page} is kept behind redo"
        );
        let bound = pool.log.current_lsn();
        // Before the record takes its place: a checkpointer must not miss it.
        self.of.oldest.fetch_min(bound.0, Ordering::SeqCst);
        let at = pool.log.append(kind, &[prelude, op]);
        assert!(
            bound <= at.start,
            "a record at {:?} below {bound}",
            at.start
        );
        kill_point!("buffer.change_kept");
        let op = (at.end, op);
        pool.keep(
            self.of,
            &mut self.shard,
            (page, self.index),
            bound,
            op,
            self.room,
        );
        pool.changes.changes.inc();
        then();
        at
    }
}

impl Pool {
    /// What has been put off, for status.
    pub fn change_buffer(&self) -> &ChangeBuffer {
        &self.changes
    }

    /// How an operation that was kept is applied. The first call counts; before it nothing is kept.
    pub fn set_apply_kept(&self, apply: ApplyKept) {
        let _ = self.changes.apply.set(apply);
    }

    /// The change buffer may take so many per cent of the buffer pool's size, beside it. 0: nothing
    /// is put into it any more; what is there stays until it is merged.
    pub fn set_change_buffer(&self, percent: usize) {
        assert!(percent <= 100, "{percent} per cent");
        self.changes.percent.store(percent, Ordering::SeqCst);
        self.changes.work.set();
    }

    /// Most bytes that it may take now.
    pub fn change_buffer_limit_bytes(&self) -> usize {
        let percent = self.changes.percent.load(Ordering::Relaxed);
        self.frames.limit() * PAGE_BYTES / 100 * percent
    }

    /// The page, if it is not in memory and a change that needs so much room on it can be kept for
    /// it. The caller makes sure that the page is the right one while it has this.
    pub fn away_page(&self, page: PageId, index: IndexId, room: usize) -> Option<AwayPage<'_>> {
        let changes = &self.changes;
        changes.apply.get()?;
        let limit = self.change_buffer_limit_bytes();
        if changes.bytes() >= limit / 4 * 3 {
            changes.work.set();
        }
        if changes.bytes() >= limit {
            return None;
        }
        let of = changes.of(page);
        let shard = of.shard.lock();
        if !self.is_away(page) || self.store.directory().owner(page) != index {
            return None;
        }
        debug_assert!(room > 0, "a change of {page} that takes nothing");
        let kept = shard.pages.get(&page);
        if kept.is_some_and(|kept| kept.redo.is_some())
            && !ferrite_sync::mutant!("buffer.kept_behind_redo")
        {
            return None;
        }
        let known = changes.rooms.get(page);
        let taken = kept.map_or(0, |kept| kept.room);
        (taken + room + SPARE_BYTES <= known).then_some(AwayPage {
            pool: self,
            page,
            index,
            room,
            of,
            shard,
        })
    }

    /// The page, if it is not in memory and something is kept for it: for a change that takes no room.
    pub fn kept_page(&self, page: PageId, index: IndexId) -> Option<AwayPage<'_>> {
        let of = self.changes.of(page);
        let shard = of.shard.lock();
        let kept = shard.pages.get(&page)?;
        assert!(page != PageId::NONE && kept.rec < kept.end, "{page}");
        let there = kept.index == index && self.is_away(page);
        there.then_some(AwayPage {
            pool: self,
            page,
            index,
            room: 0,
            of,
            shard,
        })
    }

    /// Keeps an operation, with the end of its record, for the page; its record does not begin before
    /// `rec`.
    pub(crate) fn keep(
        &self,
        of: &ShardOf,
        shard: &mut Shard,
        (page, index): (PageId, IndexId),
        rec: Lsn,
        (end, op): (Lsn, &[u8]),
        room: usize,
    ) {
        if !shard.pages.contains_key(&page) {
            let nothing = Kept::nothing_of(index, rec);
            self.keep_new(of, shard, page, nothing);
        }
        let kept = shard.pages.get_mut(&page).expect("it was just put there");
        assert_eq!(kept.index, index, "{page} is kept for another index");
        let before = kept.cost_bytes();
        kept.push(end, op);
        kept.room += room;
        assert!(kept.room < PAGE_BYTES, "{page}: {} bytes", kept.room);
        debug_assert!(kept.rec < end, "{page}: {} and {end}", kept.rec);
        let more = kept.cost_bytes() - before;
        shard.bytes += more;
        self.changes.bytes.fetch_add(more, Ordering::Relaxed);
    }

    /// Something is kept for a page for which nothing was.
    pub(crate) fn keep_new(&self, of: &ShardOf, shard: &mut Shard, page: PageId, kept: Kept) {
        let (rec, cost) = (kept.rec, kept.cost_bytes());
        let before = shard.pages.insert(page, kept);
        assert!(before.is_none(), "{page} has something kept already");
        shard.by_age.insert((rec, page));
        shard.bytes += cost;
        self.changes.bytes.fetch_add(cost, Ordering::Relaxed);
        self.changes.pages.fetch_add(1, Ordering::Relaxed);
        of.show_oldest(shard);
    }

    /// What is kept for the page that has just been read into the frame is applied to it.
    pub(crate) fn merge_kept(&self, f: u32, bytes: &mut [u8]) -> Result<()> {
        let frame = self.frame(f);
        let (changes, page) = (&self.changes, frame.page());
        debug_assert!(frame.latch.is_exclusive(), "{page} is not latched");
        let of = changes.of(page);
        let mut shard = of.shard.lock();
        let Some(kept) = shard.pages.get(&page) else {
            return Ok(());
        };
        if frame.index() != kept.index.0 && !kept.creates() {
            let text = format!(
                "page {page}: changes of index {} are kept for it, it is of index {}",
                kept.index,
                frame.index()
            );
            return Err(Error::Corrupt(text));
        }
        let applied = match &kept.redo {
            Some(redo) => {
                // Much may be redone in many pages: they are written as a whole.
                self.forget_changes(f);
                self.redo_kept(frame, bytes, kept, redo.least)?
            }
            None => self.apply_to(f, bytes, kept)?,
        };
        debug_assert!(kept.rec < kept.end, "{page}: {} to {}", kept.rec, kept.end);
        let rec = kept.rec;
        assert!(!frame.is_dirty(), "{page} is merged twice");
        if applied > 0 {
            // Before it leaves the shard: see invariant 3.
            frame.mark_dirty(rec);
            frame.set_lsn(kept.end.max(frame.lsn()));
        }
        if ferrite_sync::mutant!("buffer.merged_page_is_clean") {
            frame.set_rec_lsn(None);
        }
        if !ferrite_sync::mutant!("buffer.merged_twice") {
            self.forget(of, &mut shard, page);
        }
        Ok(())
    }

    /// Gives the number of operations applied.
    fn apply_to(&self, f: u32, bytes: &mut [u8], kept: &Kept) -> Result<usize> {
        let frame = self.frame(f);
        let page = frame.page();
        let apply = self.changes.apply.get().ok_or(Error::Interrupted)?;
        let (mut count, mut came_to) = (0, Vec::new());
        for (end, op) in kept.each() {
            assert!(end > frame.lsn(), "{page} has what is kept for it");
            if ferrite_sync::mutant!("buffer.kept_change_lost") && end.0 % 8 == 0 {
                continue;
            }
            came_to.clear();
            apply(bytes, op, &mut came_to)?;
            self.keep_change(f, &came_to);
            count += 1;
        }
        self.changes.merged.add(count as u64);
        self.changes.merges.inc();
        Ok(count)
    }

    pub(crate) fn forget(&self, of: &ShardOf, shard: &mut Shard, page: PageId) {
        let Some(kept) = shard.pages.remove(&page) else {
            return;
        };
        let was_there = shard.by_age.remove(&(kept.rec, page));
        assert!(was_there, "{page} has no age");
        let cost = kept.cost_bytes();
        assert!(cost <= shard.bytes, "{cost} of {} bytes", shard.bytes);
        shard.bytes -= cost;
        self.changes.bytes.fetch_sub(cost, Ordering::Relaxed);
        self.changes.pages.fetch_sub(1, Ordering::Relaxed);
        if let Some(redo) = &kept.redo {
            let before = self.changes.to_redo.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "the redo of {page} was not counted");
            let nowhere = usize::from(redo.is_nowhere);
            let before = self.changes.from_log.fetch_sub(nowhere, Ordering::Relaxed);
            assert!(before >= nowhere, "{page}, nowhere, was not counted");
        }
        of.show_oldest(shard);
    }

    /// The page is no more: nothing has to be kept for it, nor of it.
    pub(crate) fn forget_kept(&self, page: PageId) {
        self.row_cache.forget(page);
        self.kept_deltas.forget(page);
        let of = self.changes.of(page);
        self.forget(of, &mut of.shard.lock(), page);
    }
}
