//! Pages read before they are asked for.
//!
//! Who knows which pages come next ([`Pool::read_ahead`]) puts their ids into a queue and goes on.
//! Threads of their own ([`Pool::run_read_ahead`]) take ids out of it, some at a time, claim a
//! frame for each and read them together: adjacent blobs with one read, the reads in flight
//! together. The pages come in cold: if nobody uses them they are the first to go.
//!
//! # Invariants
//! 1. An id in the queue is a hint, and says nothing about the page. Whether there is such a page,
//!    and where, is looked up when its frame is claimed, with the same step as for a page that is
//!    asked for ([`Pool::begin_load`]): from then on the directory names the frame, whoever wants
//!    the page waits for its latch, and whoever would move or free it needs that latch. An id that
//!    was freed, or used again for another page, while it was in the queue is thus either nothing
//!    or the page that it names now.
//! 2. Nobody waits here for anything but the disk: no frame is waited for (the id is dropped), and
//!    the frames claimed are read at once.
//! 3. An error is nobody's: the frame is given back, the page is where it was, and who asks for it
//!    reads it again and is told.
//! 4. At most so many pages are in the queue and in flight as are a small part of the pool.
//!
//! # Locking
//! The queue is a leaf. A thread here holds exclusive latches of several frames at once while it
//! reads: they are frames that were free a moment ago, and it takes no latch of a published page.

use crate::ahead_state::{note_miss, room, together};
use crate::kept_deltas::KeptDelta;
use crate::pool::Pool;
use ferrite_store::{Arrived, TogetherReader, Wanted};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::kill_point;
use ferrite_types::{PageId, Result};

/// How long a thread sleeps without work, in us.
const PAUSE_US: u64 = 1_000_000;

/// A frame that waits for its page.
pub(crate) struct Claim {
    frame: u32,
    /// What was kept of the page's delta.
    kept: Option<KeptDelta>,
    /// The page is read, or given up.
    is_done: bool,
}

/// One reading thread's buffers.
pub(crate) struct Work {
    pub(crate) ids: Vec<PageId>,
    claims: Vec<Claim>,
    wanted: Vec<Wanted>,
    reader: TogetherReader,
}

impl Pool {
    /// Switches reading ahead on or off.
    pub fn set_read_ahead(&self, on: bool) {
        self.read_ahead.on.store(on, Ordering::Relaxed);
    }

    /// Pages of one scan that may be read ahead at a time; 0: it is switched off.
    pub fn read_ahead_window(&self) -> usize {
        let on = self.read_ahead.on.load(Ordering::Relaxed);
        usize::from(on) * room(self.frames.limit()) / 2
    }

    /// Is the page on disk, or in the log, only? A hint.
    #[inline]
    pub fn is_away(&self, page: PageId) -> bool {
        self.store.directory().get(page).as_location().is_some()
    }

    /// These pages will be asked for soon. Waits for nothing; what does not fit is forgotten.
    pub fn read_ahead(&self, pages: &[PageId]) {
        if pages.is_empty() || !self.read_ahead.on.load(Ordering::Relaxed) {
            return;
        }
        let mut queue = self.read_ahead.queue.lock();
        let frames = self.frames.limit();
        let left = room(frames).saturating_sub(queue.ids.len());
        queue.ids.extend(pages.iter().take(left));
        let wanted = queue.ids.len().div_ceil(together(frames));
        let woken = wanted.min(queue.idle);
        drop(queue);
        for _ in 0..woken {
            self.read_ahead.work.notify_one();
        }
    }

    /// Buffers for [`Pool::read_ids`].
    pub(crate) fn reading_work(&self) -> Work {
        Work {
            ids: Vec::new(),
            claims: Vec::new(),
            wanted: Vec::new(),
            reader: self.store.together_reader(),
        }
    }

    /// A reading thread's life, until [`Pool::stop_read_ahead`].
    pub fn run_read_ahead(&self) {
        let mut work = self.reading_work();
        while self.next_ids(&mut work.ids) {
            self.read_ids(&mut work);
        }
    }

    /// Reads the pages of `work.ids` that are on disk or in the log, as far as there are frames at once.
    /// Gives the number of those that came.
    pub(crate) fn read_ids(&self, work: &mut Work) -> usize {
        let made = self.read_from_log(&mut work.ids);
        self.claim(work);
        made + self.read_claimed(work)
    }

    /// Ends the reading threads; the caller joins them.
    pub fn stop_read_ahead(&self) {
        let _queue = self.read_ahead.queue.lock();
        self.read_ahead.stop.store(true, Ordering::SeqCst);
        self.read_ahead.work.notify_all();
    }

    /// Waits for ids and takes some. False: it is over.
    fn next_ids(&self, ids: &mut Vec<PageId>) -> bool {
        let state = &self.read_ahead;
        ids.clear();
        let mut queue = state.queue.lock();
        loop {
            if state.stop.load(Ordering::SeqCst) {
                return false;
            }
            let some = queue.ids.len().min(together(self.frames.limit()));
            if some > 0 {
                ids.extend(queue.ids.drain(..some));
                return true;
            }
            queue.idle += 1;
            queue = state.work.wait_timeout_us(queue, PAUSE_US).0;
            assert!(queue.idle > 0, "nobody waited");
            queue.idle -= 1;
        }
    }

    /// Claims frames for those of the ids that are pages on disk.
    fn claim(&self, work: &mut Work) {
        work.claims.clear();
        work.wanted.clear();
        for &page in &work.ids {
            let word = self.store.directory().get(page);
            let Some(at) = word.as_location().filter(|at| !at.is_none()) else {
                continue;
            };
            let Some(frame) = self.take_frame_at_once() else {
                break;
            };
            kill_point!("buffer.ahead_looked_up");
            if self.begin_load(frame, page, at, true) {
                let (wanted, kept) = self.wanted(page, at);
                work.claims.push(Claim {
                    frame,
                    kept,
                    is_done: false,
                });
                work.wanted.push(wanted);
            }
        }
    }

    fn read_claimed(&self, work: &mut Work) -> usize {
        let Work {
            claims,
            wanted,
            reader,
            ..
        } = work;
        debug_assert!(claims.len() == wanted.len(), "{} claims", claims.len());
        let mut came = 0;
        self.store.read_together(reader, wanted, &mut |n, arrived| {
            assert!(!claims[n].is_done, "{} has arrived twice", wanted[n].page);
            claims[n].is_done = true;
            came += usize::from(self.arrive(&mut claims[n], wanted[n], arrived));
        });
        assert!(claims.iter().all(|c| c.is_done), "a page never arrived");
        debug_assert!(came <= wanted.len(), "{came} of {} pages", wanted.len());
        came
    }

    /// True if the page is in memory now.
    fn arrive(&self, claim: &mut Claim, wanted: Wanted, arrived: Result<Arrived<'_>>) -> bool {
        let (f, kept) = (claim.frame, claim.kept.take());
        let Wanted { page, at, .. } = wanted;
        let filled = self.fill_from(f, page, |bytes| {
            let read = arrived?.restore(bytes)?;
            self.with_kept(read, kept, bytes)
        });
        if filled.is_ok() {
            self.stats.read_ahead.inc();
        }
        self.end_load(f, page, at, filled.is_ok());
        filled.is_ok()
    }

    /// A page that was read ahead is used for the first time.
    #[cold]
    pub(crate) fn used_ahead(&self) {
        self.stats.read_ahead_used.inc();
        note_miss();
    }

    /// A page is asked for while it is read ahead.
    #[cold]
    pub(crate) fn waits_for_ahead(&self) {
        self.stats.read_ahead_waits.inc();
    }
}

#[cfg(test)]
#[path = "read_ahead_tests.rs"]
pub(crate) mod tests;
