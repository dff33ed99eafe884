//! One frame's header: the words that say what the frame holds and how fresh it is.
//!
//! Who may change what: `page`, `kind`, `index`, `home` and `lsn` change under the frame's
//! exclusive latch or before the frame is published; `rec_lsn` likewise, and the writer
//! sets it to clean under the shared latch (which excludes changes of the page). `home` and
//! `ticket` of a published frame change under the pool's map lock. `hot` is a hint.

use ferrite_store::Location;
use ferrite_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicU8, Ordering};
use ferrite_sync::Latch;
use ferrite_types::{Lsn, PageId};

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nothing; on the free list or on its way to or from it.
    Free = 0,
    /// A page is being read into it; its loader holds the exclusive latch.
    Loading = 1,
    /// A leaf or an overflow page: bytes under the latch.
    Leaf = 2,
    /// An inner node: bytes immutable.
    Inner = 3,
}

const CLEAN: u64 = u64::MAX;
/// Highest clock count; a hot page survives so many passes of the hand as it is above `COLD`.
const HOT_MAX: u8 = 3;
/// Clock count of a page that goes when the hand comes by.
const COLD: u8 = 1;
/// Clock count of a cold page that was read ahead and that nobody has used yet.
const AHEAD: u8 = 0;
const _: () = assert!(AHEAD + 1 == COLD && COLD < HOT_MAX);

// One cache line.
const _: () = assert!(std::mem::size_of::<Frame>() == 64);

#[repr(align(64))]
pub(crate) struct Frame {
    pub(crate) latch: Latch,
    page: AtomicU32,
    index: AtomicU32,
    kind: AtomicU8,
    hot: AtomicU8,
    /// The changes of the page since its blob was written are known (`changes`).
    knows_changes: AtomicBool,
    /// The frame is in the queue of dirty ones.
    pub(crate) queued: AtomicBool,
    /// Number of the copy of the page that is in a batch which is not completed; 0: none.
    pub(crate) ticket: AtomicU64,
    lsn: AtomicU64,
    rec_lsn: AtomicU64,
    home: AtomicU64,
}

impl Frame {
    pub(crate) fn new() -> Frame {
        Frame {
            latch: Latch::new(),
            page: AtomicU32::new(0),
            index: AtomicU32::new(0),
            kind: AtomicU8::new(Kind::Free as u8),
            hot: AtomicU8::new(COLD),
            knows_changes: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            ticket: AtomicU64::new(0),
            lsn: AtomicU64::new(0),
            rec_lsn: AtomicU64::new(CLEAN),
            home: AtomicU64::new(0),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Acquire) {
            1 => Kind::Loading,
            2 => Kind::Leaf,
            3 => Kind::Inner,
            _ => Kind::Free,
        }
    }

    /// Publishes everything written to the frame before: readers load it with Acquire.
    pub(crate) fn set_kind(&self, kind: Kind) {
        debug_assert!(
            kind != Kind::Loading || self.latch.is_exclusive(),
            "{} is loaded without the latch",
            self.page()
        );
        self.kind.store(kind as u8, Ordering::Release);
    }

    pub(crate) fn page(&self) -> PageId {
        PageId(self.page.load(Ordering::Acquire))
    }

    pub(crate) fn index(&self) -> u32 {
        self.index.load(Ordering::Relaxed)
    }

    pub(crate) fn lsn(&self) -> Lsn {
        Lsn(self.lsn.load(Ordering::Acquire))
    }

    pub(crate) fn set_lsn(&self, lsn: Lsn) {
        self.lsn.store(lsn.0, Ordering::Release);
    }

    pub(crate) fn home(&self) -> Location {
        Location::from_raw(self.home.load(Ordering::Acquire))
    }

    pub(crate) fn set_home(&self, at: Location) {
        debug_assert!(Location::checked(at.raw()).is_some(), "{at:?}");
        self.home.store(at.raw(), Ordering::Release);
    }

    /// None when the page equals its image on disk.
    pub(crate) fn rec_lsn(&self) -> Option<Lsn> {
        match self.rec_lsn.load(Ordering::SeqCst) {
            CLEAN => None,
            n => Some(Lsn(n)),
        }
    }

    pub(crate) fn is_dirty(&self) -> bool {
        self.rec_lsn().is_some()
    }

    /// First change since the page was clean: `lsn` is a position not above that of the
    /// change. Returns true if the page was clean.
    pub(crate) fn mark_dirty(&self, lsn: Lsn) -> bool {
        debug_assert!(lsn.0 != CLEAN, "{} is dirty from {lsn:?} on", self.page());
        if self.rec_lsn.load(Ordering::Relaxed) != CLEAN {
            return false;
        }
        self.rec_lsn.store(lsn.0, Ordering::SeqCst);
        true
    }

    pub(crate) fn set_rec_lsn(&self, lsn: Option<Lsn>) {
        debug_assert!(lsn != Some(Lsn(CLEAN)), "{} looks clean", self.page());
        self.rec_lsn
            .store(lsn.map_or(CLEAN, |l| l.0), Ordering::SeqCst);
    }

    /// The frame now belongs to `page`; its kind is still to be published.
    pub(crate) fn assign(&self, page: PageId, index: u32, home: Location) {
        assert!(
            self.is_unused(),
            "a frame of {} is taken for {page}",
            self.page()
        );
        self.index.store(index, Ordering::Relaxed);
        self.set_home(home);
        self.set_rec_lsn(None);
        self.ticket.store(0, Ordering::SeqCst);
        self.hot.store(COLD, Ordering::Relaxed);
        self.page.store(page.0, Ordering::Release);
    }

    /// Nothing is in it, and nothing of it is still to be written.
    pub(crate) fn is_unused(&self) -> bool {
        self.kind() == Kind::Free
            && self.page() == PageId::NONE
            && !self.is_dirty()
            && !self.knows_changes()
            && self.ticket.load(Ordering::SeqCst) == 0
    }

    /// As [`Frame::assign`] for a frame that carries logged changes already: its `rec_lsn`
    /// never looks clean in between.
    pub(crate) fn adopt(&self, page: PageId, index: u32, home: Location) {
        assert!(
            self.page() == PageId::NONE,
            "the frame of {} is taken for {page}",
            self.page()
        );
        assert!(self.is_dirty(), "{page} is not logged");
        self.index.store(index, Ordering::Relaxed);
        self.set_home(home);
        self.hot.store(COLD, Ordering::Relaxed);
        self.page.store(page.0, Ordering::Release);
    }

    /// Are the changes of the page since its blob was written known?
    #[inline]
    pub(crate) fn knows_changes(&self) -> bool {
        self.knows_changes.load(Ordering::Relaxed)
    }

    pub(crate) fn set_knows_changes(&self, known: bool) {
        debug_assert!(known != self.knows_changes(), "{}: {known}", self.page());
        self.knows_changes.store(known, Ordering::Relaxed);
    }

    /// The copy with that ticket is made of the page, if it is dirty and in no batch. Under the shared latch.
    pub(crate) fn take_ticket(&self, ticket: u64) -> bool {
        debug_assert!(ticket > 0 && self.latch.is_held(), "{}", self.page());
        let taken = self.is_dirty()
            && self
                .ticket
                .compare_exchange(0, ticket, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if !taken {
            return false;
        }
        // The batch that had it may have made the page clean just before it let go.
        let dirty = self.is_dirty();
        if !dirty {
            self.ticket.store(0, Ordering::SeqCst);
        }
        dirty
    }

    pub(crate) fn set_index(&self, index: u32) {
        self.index.store(index, Ordering::Relaxed);
    }

    /// The page lives elsewhere or not at all; the bytes stay for readers that came before.
    pub(crate) fn retire_page(&self) {
        assert!(self.page() != PageId::NONE, "a frame is retired twice");
        self.page.store(0, Ordering::Release);
        self.ticket.store(0, Ordering::SeqCst);
    }

    pub(crate) fn clear(&self) {
        self.set_kind(Kind::Free);
        self.page.store(0, Ordering::Release);
        self.set_rec_lsn(None);
        self.ticket.store(0, Ordering::SeqCst);
    }

    /// A use that should keep the page: written only when it changes something, so that hot
    /// pages' lines are not passed between processors. True: the first use of a page read ahead.
    #[inline]
    pub(crate) fn touch(&self) -> bool {
        let hot = self.hot.load(Ordering::Relaxed);
        if hot >= HOT_MAX {
            return false;
        }
        self.hot.store(HOT_MAX, Ordering::Relaxed);
        hot == AHEAD
    }

    /// A scan comes to the page. If it is cold and not new, another scan was here before: that
    /// is worth one pass of the hand. True: the first use of a page read ahead.
    #[inline]
    pub(crate) fn scan(&self) -> bool {
        let hot = self.hot.load(Ordering::Relaxed);
        if hot <= COLD {
            self.hot.store(hot + 1, Ordering::Relaxed);
        }
        hot == AHEAD
    }

    /// The page that is being loaded is not asked for yet. After [`Frame::assign`].
    pub(crate) fn set_ahead(&self) {
        debug_assert!(self.latch.is_exclusive(), "{} is not loaded", self.page());
        self.hot.store(AHEAD, Ordering::Relaxed);
    }

    /// The page was read ahead, and nobody has used it yet.
    pub(crate) fn is_ahead(&self) -> bool {
        self.hot.load(Ordering::Relaxed) == AHEAD
    }

    /// The page was read for one row, which is kept without it: it goes if nobody else uses it.
    pub(crate) fn cool_down(&self) {
        debug_assert!(self.page() != PageId::NONE, "no page is to go");
        self.hot.store(COLD, Ordering::Relaxed);
    }

    /// 0 for a page that was used a moment ago, more the longer ago that is.
    pub(crate) fn coolness(&self) -> u8 {
        HOT_MAX - self.hot.load(Ordering::Relaxed).min(HOT_MAX)
    }

    /// The page goes when the hand comes by.
    pub(crate) fn is_cold(&self) -> bool {
        self.hot.load(Ordering::Relaxed) <= COLD
    }

    /// One pass of the clock hand: true when the page is cold.
    pub(crate) fn cool(&self) -> bool {
        let hot = self.hot.load(Ordering::Relaxed);
        debug_assert!(hot <= HOT_MAX, "{hot} uses of {}", self.page());
        if hot <= COLD {
            return true;
        }
        self.hot.store(hot - 1, Ordering::Relaxed);
        false
    }

    /// As [`Frame::cool`], of a page that has one pass only to be used again.
    pub(crate) fn cool_at_once(&self) -> bool {
        let cold = self.is_cold();
        if !cold {
            self.hot.store(COLD, Ordering::Relaxed);
        }
        cold
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_copied_by_one_batch_while_it_is_dirty() {
        let frame = Frame::new();
        assert!(frame.latch.try_shared());
        assert!(!frame.take_ticket(7), "it is clean");
        assert_eq!(frame.ticket.load(Ordering::SeqCst), 0);
        assert!(frame.mark_dirty(Lsn(5)));
        assert!(frame.take_ticket(7) && !frame.take_ticket(8));
        assert_eq!(frame.ticket.load(Ordering::SeqCst), 7);
        frame.latch.unlock_shared();
    }
}
