//! Which dirty pages are to be written first: frames in the order in which their pages became dirty.
//!
//! Invariants: each frame is in the queue at most once, which its mark `queued` says, so the queue
//! is no longer than the pool. The frame of a dirty page is in the queue, or in the hands of who
//! writes it, or coming. An entry may be stale: its page was written since, for another reason.
//! Whoever takes it out drops it, or puts it at the end if the page is dirty again.
//!
//! The order is only about that of age: [`DirtyQueue::put_overdue_first`] puts in front what is overdue behind
//! younger pages.
//! Locking: a leaf, held for one entry.

use crate::frames::Frames;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Mutex;
use ferrite_types::Lsn;
use std::collections::VecDeque;

#[derive(Clone, Copy)]
struct Entry {
    frame: u32,
    /// Redo position of the page when it came, or where it was clean again already.
    rec: Option<Lsn>,
}

/// The queue; see the head of the file.
#[derive(Default)]
pub(crate) struct DirtyQueue {
    entries: Mutex<VecDeque<Entry>>,
}

/// What is first in the queue.
pub(crate) enum First {
    /// Taken out: a page first changed before the position asked for.
    Due(u32),
    /// Taken out, or moved to the end: of an earlier time.
    Stale,
    /// Younger, or there is none.
    None,
}

impl DirtyQueue {
    /// The page in frame `f` has become dirty.
    pub(crate) fn push(&self, frames: &Frames, f: u32) {
        self.queue(frames, f, VecDeque::push_back);
    }

    /// It is older than those in the queue.
    pub(crate) fn push_first(&self, frames: &Frames, f: u32) {
        self.queue(frames, f, VecDeque::push_front);
    }

    fn queue(&self, frames: &Frames, f: u32, push: fn(&mut VecDeque<Entry>, Entry)) {
        let frame = frames.get(f);
        // The page is dirty before this. Whoever takes an entry out resets the mark before it
        // looks whether the page is dirty.
        if frame.queued.swap(true, Ordering::SeqCst) {
            return;
        }
        let entry = Entry {
            frame: f,
            rec: frame.rec_lsn(),
        };
        push(&mut self.entries.lock(), entry);
    }

    /// Entries, stale ones too.
    pub(crate) fn len(&self, frames: &Frames) -> usize {
        let len = self.entries.lock().len();
        assert!(len <= frames.most(), "{len} entries");
        len
    }

    /// Looks at the first entry: was its page first changed before `below`?
    pub(crate) fn take_due(&self, frames: &Frames, below: Lsn) -> First {
        let Some(entry) = self.entries.lock().pop_front() else {
            return First::None;
        };
        let frame = frames.get(entry.frame);
        let was = frame.queued.swap(false, Ordering::SeqCst);
        assert!(was, "frame {} is in the queue twice", entry.frame);
        match frame.rec_lsn() {
            None => First::Stale,
            Some(rec) if rec < below => First::Due(entry.frame),
            Some(rec) if entry.rec == Some(rec) => {
                self.push_first(frames, entry.frame);
                First::None
            }
            Some(_) => {
                self.push(frames, entry.frame);
                First::Stale
            }
        }
    }

    /// Puts in front what was first changed before `lsn`, the oldest first, unless the first entry is of
    /// that age.
    pub(crate) fn put_overdue_first(&self, frames: &Frames, lsn: Lsn) {
        let rec = |f: u32| frames.get(f).rec_lsn().filter(|rec| *rec < lsn);
        let front = self.entries.lock().front().copied();
        if front.is_some_and(|entry| rec(entry.frame).is_some()) {
            return;
        }
        let count = frames.count() as u32;
        let mut late: Vec<(Lsn, u32)> = (0..count).filter_map(|f| Some((rec(f)?, f))).collect();
        if late.is_empty() {
            return;
        }
        late.sort_unstable();
        let mut is_late = vec![false; count as usize];
        late.iter().for_each(|(_, f)| is_late[*f as usize] = true);
        {
            // Their places behind younger pages.
            let mut entries = self.entries.lock();
            entries.retain(|entry| {
                let goes = is_late.get(entry.frame as usize) == Some(&true);
                if goes {
                    frames
                        .get(entry.frame)
                        .queued
                        .store(false, Ordering::SeqCst);
                }
                !goes
            });
        }
        for (_, f) in late.into_iter().rev() {
            self.push_first(frames, f);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;
    use crate::write_tests::{build, new_inner, pool_on};
    use ferrite_io::sim::SimStorage;
    use ferrite_types::format::record_kind;
    use ferrite_types::PageId;

    /// The node's next image; where its change begins in the log.
    fn replace(pool: &Pool, page: PageId, text: u8) -> Lsn {
        let mut image = pool.reserve(1).unwrap().pop().unwrap();
        build(image.bytes_mut(), text);
        let at = pool.append(record_kind::MINI_TXN, &[b"next"], &[image.frame_no()]);
        pool.publish_image(page, image, None);
        at.start
    }

    fn frame_of(pool: &Pool, page: PageId) -> u32 {
        pool.store().directory().get(page).as_frame().unwrap()
    }

    /// Pages that become dirty and are written for other reasons than their age leave entries behind.
    #[test]
    fn the_queue_is_no_longer_than_the_pool() {
        let pool = pool_on(&SimStorage::new(1));
        let page = new_inner(&pool);
        for n in 0..2000 {
            replace(&pool, page, n as u8);
            pool.flush_all_below(Lsn::MAX).unwrap();
            pool.reclaim_retired();
        }
        assert!(pool.dirty_queue.len(&pool.frames) <= pool.frame_count());
        while !matches!(
            pool.dirty_queue.take_due(&pool.frames, Lsn::MAX),
            First::None
        ) {}
        assert_eq!(pool.dirty_queue.len(&pool.frames), 0);
    }

    /// An entry of an earlier time is in the way of nobody, and not lost either.
    #[test]
    fn a_page_written_and_changed_again_is_as_old_as_its_change() {
        let pool = pool_on(&SimStorage::new(1));
        let old = new_inner(&pool);
        let f = frame_of(&pool, old);
        let young = new_inner(&pool);
        pool.flush_all_below(Lsn::MAX).unwrap();
        let due = |below: Lsn| loop {
            match pool.dirty_queue.take_due(&pool.frames, below) {
                First::Due(f) => return Some(f),
                First::Stale => {}
                First::None => return None,
            }
        };
        let begin = pool.log().current_lsn();
        // Both entries are stale when the pages change in turn, the later one first.
        assert!(pool.frame(frame_of(&pool, young)).mark_dirty(begin));
        pool.dirty_queue.push(&pool.frames, frame_of(&pool, young));
        pool.log().append(record_kind::MINI_TXN, &[b"of others"]);
        let later = pool.log().current_lsn();
        assert!(pool.frame(f).mark_dirty(later));
        pool.dirty_queue.push(&pool.frames, f);
        assert_eq!(due(begin), None, "none is older");
        pool.dirty_queue.put_overdue_first(&pool.frames, later);
        assert_eq!(due(later), Some(frame_of(&pool, young)));
        assert_eq!(due(later), None);
        assert_eq!(due(Lsn::MAX), Some(f));
        assert_eq!(due(Lsn::MAX), None);
    }

    #[test]
    fn what_is_overdue_behind_younger_pages_goes_first() {
        let pool = pool_on(&SimStorage::new(1));
        let pages: Vec<PageId> = (0..3).map(|_| new_inner(&pool)).collect();
        pool.flush_all_below(Lsn::MAX).unwrap();
        while !matches!(
            pool.dirty_queue.take_due(&pool.frames, Lsn::MAX),
            First::None
        ) {}
        // The order is that of coming, not of age.
        for (page, rec) in pages.iter().zip([30, 20, 10]) {
            let f = frame_of(&pool, *page);
            assert!(pool.frame(f).mark_dirty(Lsn(rec)));
            pool.dirty_queue.push(&pool.frames, f);
        }
        pool.dirty_queue.put_overdue_first(&pool.frames, Lsn(25));
        for page in [pages[2], pages[1]] {
            let First::Due(f) = pool.dirty_queue.take_due(&pool.frames, Lsn(25)) else {
                panic!("{page} is overdue");
            };
            assert_eq!(f, frame_of(&pool, page));
        }
        assert!(matches!(
            pool.dirty_queue.take_due(&pool.frames, Lsn(25)),
            First::None
        ));
        assert_eq!(pool.dirty_queue.len(&pool.frames), 1);
    }
}
