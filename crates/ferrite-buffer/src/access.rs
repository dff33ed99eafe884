//! From a page id to the page: by reference under a pin, shared or alone under its latch.
//!
//! Locking: the page's latch, which the guard gives back; see the crate's invariants.

use crate::frame::{Frame, Kind};
use crate::guard::{ExclusiveGuard, InnerRef, Node, SharedGuard};
use crate::pool::Pool;
use ferrite_sync::epoch::EpochGuard;
use ferrite_types::{PageId, Result};

/// Whether a page should stay in memory for its next use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// It is hot.
    Yes,
    /// A scan comes to it, and will hardly come again soon.
    Scanned,
    /// The same scan once more: as hot as it was before.
    No,
}

impl Pool {
    #[inline]
    fn use_of(&self, frame: &Frame, keep: Keep) {
        let first = match keep {
            Keep::Yes => frame.touch(),
            Keep::Scanned => frame.scan(),
            Keep::No => false,
        };
        if first {
            self.used_ahead();
        }
    }

    /// The page as the way down needs it: inner nodes by reference, leaves by name only. Reads
    /// nothing.
    pub fn node<'e>(&self, page: PageId, pin: &'e EpochGuard<'_>) -> Node<'e> {
        let _ = pin;
        loop {
            let word = self.store.directory().get(page);
            let Some(f) = word.as_frame() else {
                let away = word.as_location().is_some();
                return if away { Node::Away } else { Node::Gone };
            };
            let frame = self.frame(f);
            match frame.kind() {
                Kind::Inner if frame.page() == page => {
                    debug_assert!(page != PageId::NONE, "no page is in frame {f}");
                    self.use_of(frame, Keep::Yes);
                    // SAFETY: kind Inner and this page were published before we looked, after
                    // our pin was taken; the frame is reused only when the pin is gone.
                    let bytes: &'e [u8] = unsafe { self.arena().page(f) };
                    return Node::Inner(InnerRef { bytes, page });
                }
                Kind::Leaf if frame.page() == page => return Node::Leaf,
                Kind::Loading => return Node::Away,
                _ => ferrite_sync::thread::yield_now(),
            }
        }
    }

    /// Brings the page into memory, if there is such a page. It may leave again at any time.
    ///
    /// # Errors
    /// `Corrupt` or `Io` when the page cannot be read; the pool is unchanged.
    pub fn read_in(&self, page: PageId) -> Result<()> {
        debug_assert!(!self.epochs.is_pinned_here(), "{page} is read under a pin");
        if let Some(f) = self.resident(page)? {
            if self.frame(f).kind() == Kind::Loading {
                self.wait_for_load(f, page);
            }
        }
        Ok(())
    }

    /// The leaf under its shared latch. None when the id names no leaf any more.
    ///
    /// # Errors
    /// As [`Pool::read_in`].
    pub fn shared(&self, page: PageId) -> Result<Option<SharedGuard<'_>>> {
        self.shared_to(page, Keep::Yes)
    }

    /// Like [`Pool::shared`], with a word on whether the page will be wanted again.
    ///
    /// # Errors
    /// As [`Pool::read_in`].
    pub fn shared_to(&self, page: PageId, keep: Keep) -> Result<Option<SharedGuard<'_>>> {
        loop {
            let Some(f) = self.resident(page)? else {
                return Ok(None);
            };
            let frame = self.frame(f);
            self.latch_shared(frame, page);
            match self.latched_kind(f, page) {
                Some(Kind::Leaf) => {
                    self.use_of(frame, keep);
                    return Ok(Some(SharedGuard {
                        pool: self,
                        frame: f,
                    }));
                }
                other => {
                    frame.latch.unlock_shared();
                    if other.is_some() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// The leaf under its exclusive latch. None when the id names no leaf any more.
    ///
    /// # Errors
    /// As [`Pool::read_in`].
    pub fn exclusive(&self, page: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        self.exclusive_of(Kind::Leaf, page)
    }

    /// The inner node under its exclusive latch, to be given to [`Pool::free_pages`]; readers go
    /// on. None when the id names no inner node any more.
    ///
    /// # Errors
    /// As [`Pool::read_in`].
    pub fn exclusive_inner(&self, page: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        self.exclusive_of(Kind::Inner, page)
    }

    fn exclusive_of(&self, kind: Kind, page: PageId) -> Result<Option<ExclusiveGuard<'_>>> {
        loop {
            let Some(f) = self.resident(page)? else {
                return Ok(None);
            };
            let frame = self.frame(f);
            self.latch_exclusive(frame, page);
            debug_assert!(frame.latch.is_exclusive(), "{page} is not latched");
            let found = self.latched_kind(f, page);
            if found == Some(kind) {
                self.use_of(frame, Keep::Yes);
                return Ok(Some(ExclusiveGuard {
                    pool: self,
                    frame: f,
                }));
            }
            frame.latch.unlock_exclusive();
            if found.is_some() {
                return Ok(None);
            }
        }
    }

    /// Like [`Pool::exclusive`], but never reads from disk: for a second latch. None also when
    /// the page is not in memory.
    pub fn exclusive_resident(&self, page: PageId) -> Option<ExclusiveGuard<'_>> {
        loop {
            let f = self.store.directory().get(page).as_frame()?;
            let frame = self.frame(f);
            self.latch_exclusive(frame, page);
            match self.latched_kind(f, page) {
                Some(Kind::Leaf) => {
                    self.use_of(frame, Keep::Yes);
                    return Some(ExclusiveGuard {
                        pool: self,
                        frame: f,
                    });
                }
                other => {
                    frame.latch.unlock_exclusive();
                    if other.is_some() {
                        return None;
                    }
                }
            }
        }
    }

    /// Like [`Pool::shared`], but never reads from disk: for a second latch.
    pub fn shared_resident(&self, page: PageId) -> Option<SharedGuard<'_>> {
        loop {
            let f = self.store.directory().get(page).as_frame()?;
            let frame = self.frame(f);
            self.latch_shared(frame, page);
            match self.latched_kind(f, page) {
                Some(Kind::Leaf) => {
                    return Some(SharedGuard {
                        pool: self,
                        frame: f,
                    })
                }
                other => {
                    frame.latch.unlock_shared();
                    if other.is_some() {
                        return None;
                    }
                }
            }
        }
    }
}
