//! Free frames and the clock hand.
//!
//! A foreground thread takes a free frame, or drops a clean cold page itself, or waits; it
//! never writes. The writer thread keeps frames free ahead of need.
//!
//! The clock gives each page a small count, raised by use and lowered by each pass of the
//! hand. Pages start cold, and a scan leaves them so: they go before one that was used again. This
//! is the probation. Pages read ahead come in as cold ones too. Tables may ask for more or less of it
//! (`priorities`).

use crate::frame::Kind;
use crate::pool::Pool;
use ferrite_store::Word;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::{Of, Reason, Sliced};
use ferrite_sync::{thread, time};
use ferrite_types::format::CachePriority;
use ferrite_types::{Error, IndexId, PageId, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Steps of the hand a foreground thread makes before it waits.
const FOREGROUND_STEPS: usize = 128;
/// Steps of the hand for a page that nobody has asked for yet.
const READ_AHEAD_STEPS: usize = 8;
/// Longest wait for a free frame before looking again, in ms.
const WAIT_MS: u64 = 20;
/// How long a thread waits for a frame while no page can be written, in us. The writer tries
/// again every 20 ms: what it could not do in all that time it will not do soon.
const GIVE_UP_US: u64 = 2_000_000;

/// Since when no page could be written, as who waits for a frame has seen it.
struct Failing {
    since_us: u64,
    /// Pages that had been written by then.
    written: u64,
}

/// Whether somebody has had enough of waiting.
type Enough = Rc<dyn Fn() -> bool>;

thread_local! {
    static PATIENT: Cell<bool> = const { Cell::new(false) };
    /// Asked by a patient thread while it waits.
    static ENOUGH: RefCell<Option<Enough>> = const { RefCell::new(None) };
}

/// A patient thread leaves so many of the frames that could be freed to others while no page can be
/// written: one of so many.
const LEAVES_SHARE: usize = 32;

/// So many retired frames become free at a time.
const QUIET_FRAMES: usize = 64;

/// For what must not fail for want of a frame, as taking changes back: in `f` this thread waits
/// until pages can be written again, the pool is closed, or the patience of all has ended
/// ([`Pool::end_patience`]).
///
/// It makes pages dirty that nobody admitted. So that those who only read find frames, it leaves the
/// last ones that are clean to them.
pub fn patiently<T>(f: impl FnOnce() -> T) -> T {
    let before = PATIENT.replace(true);
    let result = f();
    PATIENT.set(before);
    result
}

/// As [`patiently`], but only as long as not `enough`: the wait is over then (`Interrupted`). It is asked with no latch
/// held that others could wait for long.
pub fn patiently_unless<T>(enough: Enough, f: impl FnOnce() -> T) -> T {
    let before = ENOUGH.replace(Some(enough));
    let result = patiently(f);
    ENOUGH.set(before);
    result
}

/// Is this thread patient no more?
#[cold]
fn has_had_enough() -> bool {
    let enough = ENOUGH.with_borrow(|enough| enough.clone());
    enough.is_some_and(|enough| enough())
}

/// Is this thread in [`patiently`]? It may wait for room elsewhere, too, as long as it would for a frame.
pub fn is_patient() -> bool {
    PATIENT.get()
}

impl Pool {
    /// Frames kept free ahead of need.
    pub(crate) fn free_target(&self) -> usize {
        (self.frames.limit() / 64).clamp(64, 2048)
    }

    /// A free frame; waits for the writer when there is none.
    ///
    /// # Errors
    /// All are in use, and none can be had: `DiskFull` or `Io` when pages cannot be written,
    /// `Interrupted` when the pool is being closed, or patience has ended.
    pub(crate) fn take_frame(&self) -> Result<u32> {
        let mut failing = None;
        let mut wait = Sliced::new(Reason::FreeFrame, Of::Nothing);
        loop {
            let leaves = self.leaves_to_others();
            if !leaves {
                if let Some(f) = self.find_frame() {
                    assert!(self.frame(f).is_unused(), "frame {f} is in use");
                    return Ok(f);
                }
            }
            self.stats.free_waits.inc();
            self.writer.wake();
            wait.slice(|| match leaves {
                // There are free ones, and they are not for this thread.
                true => thread::sleep_ms(WAIT_MS),
                false => self.wait_for_free(),
            });
            self.may_wait(&mut failing)?;
        }
    }

    /// A free frame, or one whose page is dropped for it.
    fn find_frame(&self) -> Option<u32> {
        if let Some(f) = self.pop_free() {
            return Some(f);
        }
        if self.reclaim_retired() > 0 {
            if let Some(f) = self.pop_free() {
                return Some(f);
            }
        }
        let f = (0..FOREGROUND_STEPS).find_map(|_| self.evict_at_hand())?;
        self.writer.wake();
        Some(f)
    }

    /// Is this thread one that waits, while no page can be written and hardly a frame is left?
    #[inline]
    fn leaves_to_others(&self) -> bool {
        PATIENT.get() && self.writer.disk_full.load(Ordering::Relaxed) && self.is_nearly_dirty()
    }

    /// Hardly a frame is free or has a clean page. Looks at frames until enough are.
    #[cold]
    pub(crate) fn is_nearly_dirty(&self) -> bool {
        let leaves = self.frames.limit() / LEAVES_SHARE;
        debug_assert!(leaves > 0, "a pool of {} frames", self.frames.limit());
        let free = self.free_count.load(Ordering::Relaxed);
        if free >= leaves {
            return false;
        }
        let frames = self.frames().iter().take(self.frames.limit());
        let clean =
            frames.filter(|f| matches!(f.kind(), Kind::Leaf | Kind::Inner) && !f.is_dirty());
        clean.take(leaves - free).count() < leaves - free
    }

    /// No page can be written, and hardly a frame is free or clean: the last ones are for readers.
    pub fn lacks_frames(&self) -> bool {
        self.write_failure().is_some() && self.is_nearly_dirty()
    }

    /// From here on nobody is patient any more ([`patiently`]) while no page can be written: the
    /// process is to end.
    pub fn end_patience(&self) {
        self.writer.impatient.store(true, Ordering::SeqCst);
    }

    /// A free frame, if one can be had without waiting.
    pub(crate) fn take_frame_at_once(&self) -> Option<u32> {
        let evict = || (0..READ_AHEAD_STEPS).find_map(|_| self.evict_at_hand());
        let f = self.pop_free().or_else(evict)?;
        assert!(self.frame(f).is_unused(), "frame {f} is in use");
        Some(f)
    }

    /// Will the writer make a frame free? While it writes it will.
    #[cold]
    fn may_wait(&self, failing: &mut Option<Failing>) -> Result<()> {
        if self.writer.is_stopped() {
            return Err(Error::Interrupted);
        }
        let Some(failure) = self.write_failure() else {
            return Ok(());
        };
        let ends = || self.writer.impatient.load(Ordering::SeqCst) || has_had_enough();
        if PATIENT.get() && ends() {
            return Err(Error::Interrupted);
        }
        let (now_us, written) = (time::now_us(), self.stats.pages_written.get());
        // What has failed before a page was written says nothing of the next. (That a writer tries no page at the moment does
        // not either.)
        let seen = failing.take().filter(|seen| seen.written == written);
        let since_us = seen.map_or(now_us, |seen| seen.since_us);
        *failing = Some(Failing { since_us, written });
        if now_us - since_us < GIVE_UP_US || PATIENT.get() {
            return Ok(());
        }
        Err(in_no_frame(failure))
    }

    fn wait_for_free(&self) {
        let free = self.free.lock();
        // The writer goes by the count: one too high, and it makes nothing free for us, for ever.
        assert_eq!(
            self.free_count.load(Ordering::Relaxed),
            free.list.len(),
            "count of free frames"
        );
        if free.list.is_empty() {
            let _ = self.free_signal.wait_timeout_ms(free, WAIT_MS);
        }
    }

    fn pop_free(&self) -> Option<u32> {
        let mut free = self.free.lock();
        let f = free.list.pop()?;
        let left = free.list.len();
        self.free_count.store(left, Ordering::Relaxed);
        drop(free);
        if left < self.free_target() / 2 {
            self.writer.wake();
        }
        Some(f)
    }

    /// An unused frame goes back; while the pool shrinks, to those that are given to no page.
    pub(crate) fn give_back(&self, f: u32) {
        self.frame(f).clear();
        self.forget_changes(f);
        let mut free = self.free.lock();
        debug_assert!(
            !free.list.iter().rev().take(64).any(|g| *g == f),
            "{f} is free twice"
        );
        assert!(
            free.list.len() < self.frame_count(),
            "{} frames are free",
            free.list.len()
        );
        if f as usize >= self.frames.limit() {
            return free.park(f);
        }
        free.list.push(f);
        self.free_count.store(free.list.len(), Ordering::Relaxed);
        drop(free);
        self.free_signal.notify_one();
    }

    /// Retired frames that no reader can see any more become free. Returns how many.
    pub(crate) fn reclaim_retired(&self) -> usize {
        self.epochs.advance();
        let mut done = 0;
        loop {
            let mut quiet = [0; QUIET_FRAMES];
            let count = self.take_quiet(&mut quiet);
            for &f in &quiet[..count] {
                let page = self.frame(f).page();
                assert!(page == PageId::NONE, "retired frame {f} holds {page}");
                self.give_back(f);
            }
            done += count;
            if count < quiet.len() {
                return done;
            }
        }
    }

    /// Takes the first retired frames that no reader can see any more: how many. There is a slot for each
    /// connection to be asked for that: once for all of them, and under the list's lock, for a frame that is
    /// retired after it was asked may be in the hands of a reader who came later.
    fn take_quiet(&self, quiet: &mut [u32; QUIET_FRAMES]) -> usize {
        let mut retired = self.retired.lock();
        if retired.is_empty() {
            return 0;
        }
        let oldest = self.epochs.oldest();
        let mut count = 0;
        while count < quiet.len() {
            match retired.front() {
                Some(&(tag, f)) if tag < oldest => {
                    retired.pop_front();
                    quiet[count] = f;
                    count += 1;
                }
                _ => break,
            }
        }
        debug_assert!(count <= quiet.len(), "{count} frames");
        count
    }

    /// Moves the hand one frame on and drops the page there if it is clean and cold. The
    /// frame belongs to the caller then (an inner node's frame goes to the retired list).
    pub(crate) fn evict_at_hand(&self) -> Option<u32> {
        let f = self.advance_hand();
        let frame = self.frame(f);
        let kind = frame.kind();
        if !matches!(kind, Kind::Leaf | Kind::Inner) || frame.is_dirty() || !self.is_to_go(f) {
            return None;
        }
        self.evict_clean(f, kind)
    }

    pub(crate) fn advance_hand(&self) -> u32 {
        let at = self.hand.fetch_add(1, Ordering::Relaxed);
        // Those that leave are the writer's.
        let frames = self.frames.limit();
        if at % frames == 0 {
            self.priorities.end_pass(frames);
        }
        (at % frames) as u32
    }

    /// The hand passes frame `f`, which has a page: is the page cold?
    #[inline]
    pub(crate) fn is_to_go(&self, f: u32) -> bool {
        match self.priorities.any() {
            true => self.is_to_go_by_priority(f),
            false => self.frame(f).cool(),
        }
    }

    fn is_to_go_by_priority(&self, f: u32) -> bool {
        let frame = self.frame(f);
        match self.priorities.of(IndexId(frame.index())) {
            CachePriority::Normal => frame.cool(),
            CachePriority::Low => frame.cool_at_once(),
            CachePriority::High => {
                let pass = self.hand.load(Ordering::Relaxed) / self.frames.limit();
                !self.priorities.is_spared(f, pass) && frame.cool()
            }
        }
    }

    /// The latched frame holds a page that equals its image on disk, and nobody writes it.
    pub(crate) fn is_idle(&self, f: u32, kind: Kind) -> bool {
        let frame = self.frame(f);
        debug_assert!(frame.latch.is_exclusive(), "frame {f} is not latched");
        frame.page() != PageId::NONE
            && frame.kind() == kind
            && !frame.is_dirty()
            && frame.ticket.load(Ordering::SeqCst) == 0
            && !frame.home().is_none()
    }

    /// Drops the clean page in frame `f`, unless it is in use.
    pub(crate) fn evict_clean(&self, f: u32, kind: Kind) -> Option<u32> {
        let frame = self.frame(f);
        if !frame.latch.try_exclusive() {
            return None;
        }
        let page = frame.page();
        let idle = self.is_idle(f, kind);
        if idle && kind == Kind::Leaf {
            self.note_room_of(f);
            self.keep_delta(f);
            self.row_cache.left(page, frame.lsn(), frame.home());
        }
        let dropped = idle
            && self
                .store
                .directory()
                .word(page)
                .compare_exchange(
                    Word::resident(f).0,
                    Word::on_disk(frame.home()).0,
                    Ordering::SeqCst,
                    Ordering::SeqCst,
                )
                .is_ok();
        if dropped {
            assert!(!frame.is_dirty(), "changes of {page} are dropped");
            assert!(
                frame.page() == page,
                "{page} is dropped from another's frame"
            );
            self.stats.evictions.inc();
            if frame.is_ahead() {
                self.stats.read_ahead_unused.inc();
            }
            self.leave_frame(f, kind);
        } else if idle && kind == Kind::Leaf {
            self.row_cache.came_in(page);
            self.kept_deltas.forget(page);
        }
        frame.latch.unlock_exclusive();
        (dropped && kind == Kind::Leaf).then_some(f)
    }

    /// The latched frame's page, which is clean, is elsewhere from here on. A leaf's frame is unused
    /// now; an inner node's goes to the retired ones.
    pub(crate) fn leave_frame(&self, f: u32, kind: Kind) {
        let frame = self.frame(f);
        debug_assert!(frame.latch.is_exclusive() && !frame.is_dirty(), "frame {f}");
        if kind == Kind::Inner {
            frame.retire_page();
            let tag = self.epochs.retired_now();
            self.retired.lock().push_back((tag, f));
        } else {
            self.forget_changes(f);
            frame.clear();
        }
    }
}

/// How the text of an error begins that says so.
const NO_FRAME: &str = "no page in the buffer pool can be freed: ";

/// Why there is no frame, said where it hurts.
fn in_no_frame(failure: Error) -> Error {
    let told = |text| format!("{NO_FRAME}{text}");
    match failure {
        Error::DiskFull(text) => Error::DiskFull(told(text)),
        Error::Io(text) => Error::Io(told(text)),
        other => other,
    }
}

/// Is this the error of one who found no free frame, because pages cannot be written? Nothing is
/// wrong with what was asked for: it can be had once they can.
pub fn is_for_want_of_a_frame(e: &Error) -> bool {
    matches!(e, Error::DiskFull(text) | Error::Io(text) if text.starts_with(NO_FRAME))
}
