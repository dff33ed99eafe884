//! The headers of all frames, as many as there are at the moment.
//!
//! Frames `0..count` may hold pages. `limit` is `count`, or below it while the pool shrinks: frames
//! from `limit` on are given to no page any more (see `resize`). Headers are made once, in order,
//! and stay: whoever has the number of a frame may look at its header, though the pool has shrunk.
//! What is kept of a frame's changes ([`Changes`]) stands apart, made with its header: a header fits
//! a cache line.
//!
//! Invariant: `limit <= count <= made`. Locking: `made` and `count` change under the pool's
//! `resizing` lock, `limit` under that and the lock of the free frames.

use crate::changes::Changes;
use crate::frame::Frame;
use crate::reserved::Reserved;
use ferrite_sync::atomic::{AtomicUsize, Ordering};
use ferrite_types::Result;
use std::mem::size_of;

pub(crate) struct Frames {
    memory: Reserved,
    changes: Reserved,
    most: usize,
    made: AtomicUsize,
    count: AtomicUsize,
    limit: AtomicUsize,
}

impl Frames {
    /// Room for `most` frames; there are none yet.
    pub(crate) fn new(most: usize) -> Result<Frames> {
        assert!(most > 0, "no frames");
        Ok(Frames {
            memory: Reserved::new(most * size_of::<Frame>())?,
            changes: Reserved::new(most * size_of::<Changes>())?,
            most,
            made: AtomicUsize::new(0),
            count: AtomicUsize::new(0),
            limit: AtomicUsize::new(0),
        })
    }

    /// Memory of the headers that were made, in bytes.
    pub(crate) fn header_bytes(&self) -> usize {
        self.memory.open_bytes()
    }

    /// Frames that there can be.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Frames that may hold pages.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Frames that pages are given.
    #[inline]
    pub(crate) fn limit(&self) -> usize {
        let limit = self.limit.load(Ordering::Relaxed);
        debug_assert!(limit <= self.most, "{limit} of {} frames", self.most);
        limit
    }

    /// The headers of the first `n` frames are there.
    ///
    /// # Errors
    /// `BadConfig`: the system refuses the memory.
    pub(crate) fn make(&self, n: usize) -> Result<()> {
        assert!(n <= self.most, "{n} of {} frames", self.most);
        let made = self.made.load(Ordering::Relaxed);
        if n <= made {
            return Ok(());
        }
        self.memory.open_to(n * size_of::<Frame>())?;
        self.changes.open_to(n * size_of::<Changes>())?;
        for f in made..n {
            // SAFETY: open and aligned (the base is a page's begin), and no reference to it
            // exists: `get` refuses numbers from `made` on.
            unsafe {
                self.memory
                    .base()
                    .cast::<Frame>()
                    .add(f)
                    .write(Frame::new())
            };
            // SAFETY: as above.
            unsafe {
                self.changes
                    .base()
                    .cast::<Changes>()
                    .add(f)
                    .write(Changes::default())
            };
        }
        self.made.store(n, Ordering::Release);
        Ok(())
    }

    /// From here on so many frames may hold pages.
    pub(crate) fn set_count(&self, n: usize) {
        let (limit, made) = (self.limit(), self.made.load(Ordering::Relaxed));
        assert!(limit <= n && n <= made, "{n} frames of {limit}..{made}");
        // Who scans the headers for the oldest change sees a frame before its first change is in
        // the log.
        self.count.store(n, Ordering::SeqCst);
    }

    /// From here on pages are given only frames below it.
    pub(crate) fn set_limit(&self, n: usize) {
        assert!(n > 0 && n <= self.count(), "{n} of {}", self.count());
        self.limit.store(n, Ordering::SeqCst);
    }

    /// The header of frame `f`.
    #[inline]
    pub(crate) fn get(&self, f: u32) -> &Frame {
        let f = f as usize;
        // Whoever has its number has it from somebody who had it after it was made.
        assert!(f < self.made.load(Ordering::Relaxed), "no frame {f}");
        // SAFETY: made, and never taken back.
        unsafe { &*self.memory.base().cast::<Frame>().add(f) }
    }

    /// What is kept of the changes of the page in frame `f`.
    #[inline]
    pub(crate) fn changes(&self, f: u32) -> &Changes {
        let f = f as usize;
        assert!(f < self.made.load(Ordering::Relaxed), "no frame {f}");
        // SAFETY: made, and never taken back.
        unsafe { &*self.changes.base().cast::<Changes>().add(f) }
    }

    /// The headers of those that may hold pages.
    pub(crate) fn all(&self) -> &[Frame] {
        let count = self.count();
        debug_assert!(count <= self.made.load(Ordering::Relaxed));
        // SAFETY: all of them are made.
        unsafe { std::slice::from_raw_parts(self.memory.base().cast(), count) }
    }
}
