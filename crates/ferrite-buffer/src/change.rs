//! Changes: the log record and the frames it is about, new pages, next images of inner nodes,
//! freed pages.
//!
//! Locking: latches of the caller > map lock. A record about a page's place or its end is
//! appended and applied under one hold of the map lock (the crate's invariant 6).

use crate::frame::Kind;
use crate::guard::{ExclusiveGuard, NewFrame};
use crate::page_prefix;
use crate::pool::{kind_of, Pool};
use ferrite_redo::Appended;
use ferrite_store::{GatheredRuns, Location, Word};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, thread};
use ferrite_types::format::record_kind;
use ferrite_types::{IndexId, Lsn, PageId, Result};

/// Pages of a dropped index that go under one hold of the map lock, and holds between two pauses:
/// about 1 ms.
const DROP_BATCH: usize = 256;
const DROP_BATCHES: usize = 8;
/// A pause, in us.
const DROP_PAUSE_US: u64 = 50;

impl Pool {
    /// Appends one log record for changes of the given frames (exclusive guards or new
    /// frames) and stamps them with its end.
    pub fn append(&self, kind: u8, parts: &[&[u8]], frames: &[u32]) -> Appended {
        frames.iter().for_each(|f| self.forget_changes(*f));
        self.append_for(kind, parts, frames)
    }

    /// As [`Pool::append`] of a mini-transaction that changes one leaf, by `ops` and nothing else:
    /// they are kept, so that the leaf can be written as a delta.
    pub fn append_change(&self, prelude: &[u8], ops: &[u8], f: u32) -> Appended {
        let frame = self.frame(f);
        debug_assert!(!ops.is_empty(), "{} does not change", frame.page());
        self.keep_change(f, ops);
        self.append_for(record_kind::MINI_TXN, &[prelude, ops], &[f])
    }

    fn append_for(&self, kind: u8, parts: &[&[u8]], frames: &[u32]) -> Appended {
        let bound = self.log.current_lsn();
        for &f in frames {
            let frame = self.frame(f);
            debug_assert!(
                frame.latch.is_exclusive() || frame.page() == PageId::NONE,
                "{} is changed without its latch",
                frame.page()
            );
            if frame.mark_dirty(bound) && frame.page() != PageId::NONE {
                self.dirty_queue.push(&self.frames, f);
            }
        }
        let at = self.log.append(kind, parts);
        assert!(
            at.start >= bound,
            "a record at {:?} below {bound:?}",
            at.start
        );
        for &f in frames {
            let frame = self.frame(f);
            debug_assert!(
                frame.rec_lsn().is_some_and(|rec| rec <= at.start),
                "redo of {} begins behind its change at {:?}",
                frame.page(),
                at.start
            );
            debug_assert!(frame.lsn() <= at.end, "{}: {at:?}", frame.page());
            frame.set_lsn(at.end);
        }
        at
    }

    /// `count` frames for new pages or images, taken before any latch or pin (invariants 5 and 7).
    ///
    /// # Errors
    /// `DiskFull`, `Io` or `Interrupted`: all frames are in use, and none will be free soon.
    pub fn reserve(&self, count: usize) -> Result<Vec<NewFrame<'_>>> {
        assert!(
            !self.epochs.is_pinned_here(),
            "frames are taken under a pin"
        );
        (0..count)
            .map(|_| {
                Ok(NewFrame {
                    pool: self,
                    frame: self.take_frame()?,
                    published: false,
                })
            })
            .collect()
    }

    /// An unused page id for `index`, its extent logged if it is new.
    pub fn alloc_page(&self, index: IndexId) -> PageId {
        let _map = self.map_lock.lock();
        self.store.alloc_page(index, &mut |body| {
            self.log.append(record_kind::EXTENT, &[body]);
        })
    }

    /// A page id from [`Pool::alloc_page`] that was not published after all.
    pub fn unalloc_page(&self, page: PageId) {
        self.store.page_unused(page);
    }

    /// Makes a new page reachable: its change is logged (its frame was among those given to
    /// [`Pool::append`]).
    pub fn publish_new(&self, page: PageId, mut new: NewFrame<'_>) {
        let frame = self.frame(new.frame);
        assert!(
            frame.is_dirty(),
            "a new page is published before it was logged"
        );
        assert!(page != PageId::NONE, "page 0 is published");
        frame.adopt(page, page_prefix::index(&new), Location::NONE);
        frame.touch();
        frame.set_kind(kind_of(&new));
        let old = self
            .store
            .directory()
            .word(page)
            .swap(Word::resident(new.frame).0, Ordering::SeqCst);
        assert_eq!(old, 0, "page {page} was in use when it was made");
        new.published = true;
        self.dirty_queue.push(&self.frames, new.frame);
    }

    /// Replaces an inner node, or the leaf under `leaf`, by its next image. The image's
    /// change is logged. Only the holder of the tree's structure lock calls this.
    pub fn publish_image(
        &self,
        page: PageId,
        mut new: NewFrame<'_>,
        leaf: Option<&ExclusiveGuard<'_>>,
    ) {
        if let Some(guard) = leaf {
            self.replace_frame(page, guard.frame, &new);
        } else {
            while !self.replace_inner(page, &new) {}
        }
        new.published = true;
        // In front: it carries on the age of the image it replaces.
        self.dirty_queue.push_first(&self.frames, new.frame);
    }

    /// The image takes the inner node's place; false if it was evicted or read in meanwhile.
    /// Evicted it may be although the caller has read it: a pin keeps the bytes, not the page.
    fn replace_inner(&self, page: PageId, new: &NewFrame<'_>) -> bool {
        let word = self.store.directory().get(page);
        if let Some(f_old) = word.as_frame() {
            let old = self.frame(f_old);
            old.latch.exclusive();
            let there = old.page() == page;
            if there {
                assert!(old.kind() != Kind::Loading, "{page} is being read");
                self.replace_frame(page, f_old, new);
            }
            old.latch.unlock_exclusive();
            return there;
        }
        let at = word
            .as_location()
            .expect("the node that is replaced exists");
        let frame = self.frame(new.frame);
        let _map = self.map_lock.lock();
        assert!(
            frame.is_dirty(),
            "an image is published before it was logged"
        );
        self.show_as(page, new, at);
        let swapped = self.store.directory().word(page).compare_exchange(
            word.0,
            Word::resident(new.frame).0,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if swapped.is_err() {
            // Nobody could write it: no word has named it.
            assert!(frame.is_dirty(), "the image of {page} lost its change");
            frame.retire_page();
        }
        swapped.is_ok()
    }

    /// The image takes the place of frame `f_old`, which is exclusively latched and holds `page`.
    fn replace_frame(&self, page: PageId, f_old: u32, new: &NewFrame<'_>) {
        let (old, frame) = (self.frame(f_old), self.frame(new.frame));
        assert_eq!(old.page(), page, "image of another page");
        assert!(f_old != new.frame, "{page} replaces itself");
        assert!(
            old.latch.is_exclusive(),
            "{page} is replaced without its latch"
        );
        let map = self.map_lock.lock();
        let rec = match (frame.rec_lsn(), old.rec_lsn()) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) => a,
            _ => panic!("an image is published before it was logged"),
        };
        assert!(rec < frame.lsn(), "{page}: redo begins at {rec:?}");
        assert!(old.lsn() <= frame.lsn(), "an older image of {page}");
        frame.set_rec_lsn(Some(rec));
        frame
            .ticket
            .store(old.ticket.load(Ordering::SeqCst), Ordering::SeqCst);
        self.show_as(page, new, old.home());
        let before = self
            .store
            .directory()
            .word(page)
            .swap(Word::resident(new.frame).0, Ordering::SeqCst);
        // Only who has the frame's latch changes the word that names it.
        assert!(
            before == Word::resident(f_old).0,
            "{page} was at {before:#x}"
        );
        drop(map);
        self.retire_frame(f_old);
    }

    /// The filled frame is `page` from here on, once its directory word names it.
    fn show_as(&self, page: PageId, new: &NewFrame<'_>, home: Location) {
        let frame = self.frame(new.frame);
        frame.adopt(page, page_prefix::index(new), home);
        frame.touch();
        frame.set_kind(kind_of(new));
    }

    /// Appends the log record that frees the pages under those guards and frees them; inner
    /// nodes under the structure lock of their tree. `others` are the frames of further pages
    /// the record changes. There may be none to be freed: a rollback that meets a page which went
    /// before a crash, or is another's by now, logs that its undo entry is done with.
    pub fn free_pages(
        &self,
        parts: &[&[u8]],
        others: &[u32],
        pages: Vec<ExclusiveGuard<'_>>,
    ) -> Appended {
        let map = self.map_lock.lock();
        let at = self.append(record_kind::MINI_TXN, parts, others);
        for guard in &pages {
            self.forget_page(guard.page_id(), guard.frame, at.end);
        }
        drop(map);
        at
    }

    /// The latched frame's page is no more. Caller holds the map lock.
    fn forget_page(&self, page: PageId, f: u32, lsn: Lsn) {
        let frame = self.frame(f);
        assert!(
            page != PageId::NONE && frame.page() == page,
            "{page} is freed twice"
        );
        let before = self
            .store
            .directory()
            .word(page)
            .swap(Word::FREE.0, Ordering::SeqCst);
        assert!(before == Word::resident(f).0, "{page} was at {before:#x}");
        assert!(
            frame.lsn() <= lsn,
            "{page} is freed at {lsn:?}, before its last change"
        );
        self.store.retire(frame.home(), lsn);
        // After the word: a dump of the map reads deltas first.
        let delta = self.store.swap_delta(page, Location::NONE);
        self.store.retire(delta, lsn);
        self.retire_frame(f);
        self.store.page_unused(page);
    }

    /// Drops every page of an index that no definition names any more, durably so or as if it
    /// had never been made. Nobody uses it. Page ids go back with the extents
    /// ([`Store::release_index`]).
    ///
    /// The map lock is held for a batch of pages at a time: an index may have millions. What a
    /// crash or a map dump meets in between is an index without a table that has lost some
    /// pages, which the next start drops; until INDEX_DROP is durable no place of theirs is used
    /// again. Nor is anything kept in memory for each page: places are joined to runs.
    ///
    /// Returns pages dropped.
    pub fn drop_index(&self, index: IndexId) -> usize {
        let mut homes = GatheredRuns::default();
        let mut of_batch = Vec::with_capacity(2 * DROP_BATCH);
        let (mut dropped, mut batches) = (0, 0);
        self.store.each_page_of(index, DROP_BATCH, &mut |batch| {
            if batches > 0 && batches % DROP_BATCHES == 0 {
                // A mutex given back for a moment only would not reach those who sleep for it.
                thread::sleep_us(DROP_PAUSE_US);
            }
            self.drop_batch(batch, &mut of_batch);
            // Behind the map lock: now and then all of them are joined.
            of_batch.drain(..).for_each(|at| homes.add(at));
            batches += 1;
            dropped += batch.len();
        });
        let homes = homes.finish();
        self.packings.forget(index);
        self.priorities.forget(index);
        kill_point!("buffer.index_dropped");
        let at = {
            let _map = self.map_lock.lock();
            let body = index.0.to_le_bytes();
            self.log.append(record_kind::INDEX_DROP, &[&body])
        };
        // Only now: an extent that gets another owner does so later in the log.
        self.store.release_index(index);
        // In the order of the log, as others' pages.
        let end = self.log.current_lsn().max(at.end);
        self.store.retire_runs(homes, end);
        dropped
    }

    /// These pages are no more; where they and their deltas live on disk.
    ///
    /// Nobody uses the index, but its pages may be in others' hands: who reads one ahead, or for the changes that it
    /// lacks, has its latch over the whole read, and who writes it for a moment. For that the map lock, which all writers
    /// and splits need, does not wait: such a page goes behind the others, with no lock held meanwhile. It is nobody
    /// else's until then: ids go back with the extents, at the end.
    fn drop_batch(&self, batch: &[PageId], homes: &mut Vec<Location>) {
        debug_assert!(batch.len() <= DROP_BATCH, "{} at once", batch.len());
        let mut busy = Vec::new();
        {
            let _map = self.map_lock.lock();
            busy.extend(batch.iter().filter(|page| !self.drop_one(**page, homes)));
        }
        for page in busy {
            while !self.drop_alone(page, homes) {
                if let Some(f) = self.store.directory().get(page).as_frame() {
                    let latch = &self.frame(f).latch;
                    latch.exclusive();
                    latch.unlock_exclusive();
                }
            }
            debug_assert!(self.store.directory().get(page).is_free(), "{page} is back");
        }
    }

    fn drop_alone(&self, page: PageId, homes: &mut Vec<Location>) -> bool {
        let _map = self.map_lock.lock();
        self.drop_one(page, homes)
    }

    /// The page is no more; where it and its delta live on disk. False: somebody has its latch. Caller holds the map lock.
    fn drop_one(&self, page: PageId, homes: &mut Vec<Location>) -> bool {
        let Some(home) = self.drop_word(page) else {
            return false;
        };
        homes.push(home);
        // After the word: a dump of the map reads deltas first.
        homes.push(self.store.swap_delta(page, Location::NONE));
        true
    }

    /// None: somebody has the page's latch.
    fn drop_word(&self, page: PageId) -> Option<Location> {
        let word = self.store.directory().word(page);
        loop {
            let now = Word(word.load(Ordering::SeqCst));
            if let Some(f) = now.as_frame() {
                let frame = self.frame(f);
                if !frame.latch.try_exclusive() {
                    return None;
                }
                let ours = frame.page() == page;
                let home = frame.home();
                if ours {
                    let before = word.swap(Word::FREE.0, Ordering::SeqCst);
                    assert!(before == now.0, "{page} was at {before:#x}");
                    self.retire_frame(f);
                }
                frame.latch.unlock_exclusive();
                if ours {
                    return Some(home);
                }
            } else {
                let Some(at) = now.as_location() else {
                    return Some(Location::NONE);
                };
                let gone = word.compare_exchange(now.0, 0, Ordering::SeqCst, Ordering::SeqCst);
                if gone.is_ok() {
                    self.forget_kept(page);
                    return Some(at);
                }
            }
        }
    }

    /// The latched frame leaves use; readers of an old inner image may still be looking.
    fn retire_frame(&self, f: u32) {
        // `rec_lsn` stays until the frame is quiet: a checkpointer's scan, which holds a pin,
        // may have passed the frame that took the duty over before it was marked.
        let frame = self.frame(f);
        debug_assert!(
            frame.latch.is_exclusive(),
            "{} is not latched",
            frame.page()
        );
        self.row_cache.forget(frame.page());
        self.forget_changes(f);
        frame.retire_page();
        let tag = self.epochs.retired_now();
        self.retired.lock().push_back((tag, f));
    }
}

#[cfg(test)]
#[path = "change_tests.rs"]
mod tests;
