//! What a caller holds on a page. The types are capabilities: only an exclusive guard or an
//! unpublished frame gives `&mut [u8]`, only a latch or an epoch pin gives `&[u8]`.

use crate::frame::{Frame, Kind};
use crate::pool::Pool;
use ferrite_sync::waits::{waiting, Of, Reason};
use ferrite_types::{Lsn, PageId};
use std::ops::Deref;

/// A leaf under its shared latch.
pub struct SharedGuard<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) frame: u32,
}

impl SharedGuard<'_> {
    /// Which page this is.
    pub fn page_id(&self) -> PageId {
        self.pool.frame(self.frame).page()
    }

    /// End of the log record that changed the page last. Equal values on the same page mean
    /// equal bytes.
    pub fn lsn(&self) -> Lsn {
        self.pool.frame(self.frame).lsn()
    }
}

impl Deref for SharedGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the shared latch is held until drop; bytes change only under the exclusive
        // one.
        unsafe { self.pool.arena().page(self.frame) }
    }
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        self.pool.frame(self.frame).latch.unlock_shared();
    }
}

/// A leaf under its exclusive latch.
pub struct ExclusiveGuard<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) frame: u32,
}

impl ExclusiveGuard<'_> {
    /// Which page this is.
    pub fn page_id(&self) -> PageId {
        self.pool.frame(self.frame).page()
    }

    /// End of the log record that changed the page last.
    pub fn lsn(&self) -> Lsn {
        self.pool.frame(self.frame).lsn()
    }

    /// Frame number, for [`Pool::append`].
    pub fn frame_no(&self) -> u32 {
        self.frame
    }

    /// The bytes, for change. The caller logs every change through [`Pool::append`] before it
    /// gives the guard back.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let frame = self.pool.frame(self.frame);
        debug_assert!(
            frame.latch.is_exclusive(),
            "{} is not latched",
            frame.page()
        );
        debug_assert!(
            frame.kind() == Kind::Leaf,
            "{}: readers look on",
            frame.page()
        );
        // SAFETY: the exclusive latch is held until drop and `self` is borrowed mutably.
        unsafe { self.pool.arena().page_mut(self.frame) }
    }
}

impl Deref for ExclusiveGuard<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the exclusive latch is held until drop; a `bytes_mut` borrow excludes this.
        unsafe { self.pool.arena().page(self.frame) }
    }
}

impl Drop for ExclusiveGuard<'_> {
    fn drop(&mut self) {
        self.pool.frame(self.frame).latch.unlock_exclusive();
    }
}

/// An immutable inner node, readable as long as the epoch pin it was found under.
#[derive(Clone, Copy)]
pub struct InnerRef<'e> {
    pub(crate) bytes: &'e [u8],
    pub(crate) page: PageId,
}

impl InnerRef<'_> {
    /// Which page this is.
    pub fn page_id(&self) -> PageId {
        self.page
    }
}

impl Deref for InnerRef<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.bytes
    }
}

/// A page met on the way down.
pub enum Node<'e> {
    /// An inner node, ready to be searched.
    Inner(InnerRef<'e>),
    /// A leaf, not latched.
    Leaf,
    /// Not in memory: the caller lets go of its pin, calls [`Pool::read_in`] and looks again.
    Away,
    /// The id names no page any more: start again from the root.
    Gone,
}

/// A frame nobody else can reach: for a new page or the next image of an inner node.
pub struct NewFrame<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) frame: u32,
    pub(crate) published: bool,
}

impl NewFrame<'_> {
    /// Frame number, for [`Pool::append`].
    pub fn frame_no(&self) -> u32 {
        self.frame
    }

    /// The bytes. Whatever an earlier page left there is still there.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let page = self.pool.frame(self.frame).page();
        debug_assert!(
            !self.published && page == PageId::NONE,
            "{page} is published"
        );
        // SAFETY: an unpublished frame is reachable through this value alone.
        unsafe { self.pool.arena().page_mut(self.frame) }
    }
}

impl Deref for NewFrame<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: as in `bytes_mut`.
        unsafe { self.pool.arena().page(self.frame) }
    }
}

impl Drop for NewFrame<'_> {
    fn drop(&mut self) {
        if !self.published {
            debug_assert!(
                std::thread::panicking() || !self.pool.frame(self.frame).is_dirty(),
                "a page is logged and thrown away"
            );
            self.pool.give_back(self.frame);
        }
    }
}

// ---- waiting for a latch, with its reason ----------------------------------------------

impl Pool {
    #[inline]
    pub(crate) fn latch_shared(&self, frame: &Frame, page: PageId) {
        if !frame.latch.try_shared() {
            self.stats.latch_waits.inc();
            let reason = self.waits_for(frame);
            waiting(reason, Of::Page(page.0), || frame.latch.shared());
        }
    }

    #[inline]
    pub(crate) fn latch_exclusive(&self, frame: &Frame, page: PageId) {
        if !frame.latch.try_exclusive() {
            self.stats.latch_waits.inc();
            let reason = self.waits_for(frame);
            waiting(reason, Of::Page(page.0), || frame.latch.exclusive());
        }
    }

    pub(crate) fn wait_for_load(&self, f: u32, page: PageId) {
        debug_assert!(
            !self.epochs.is_pinned_here(),
            "waits for {page} under a pin"
        );
        let _ = self.waits_for(self.frame(f));
        let latch = &self.frame(f).latch;
        waiting(Reason::PageRead, Of::Page(page.0), || latch.shared());
        latch.unlock_shared();
    }

    /// Why somebody waits who finds the frame's latch taken; counted if it is for a page that is
    /// read ahead.
    fn waits_for(&self, frame: &Frame) -> Reason {
        if frame.kind() != Kind::Loading {
            return Reason::PageLatch;
        }
        if frame.is_ahead() {
            self.waits_for_ahead();
        }
        Reason::PageRead
    }
}
