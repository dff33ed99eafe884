//! More or fewer frames, while all other work goes on.
//!
//! More is done at once. Fewer has stages:
//!
//! | stage | frames from the new limit on |
//! | --- | --- |
//! | limited | are given to no page any more; the unused ones are parked |
//! | clearing | the writer thread writes, moves or drops their pages, and parks the frames |
//! | done | are all parked: they count no longer, their memory goes back to the system |
//!
//! A page that is in use moves to a frame below the limit, in the place of a cold one. Another
//! resize may come at any stage. A pool whose dirty pages cannot be written stays at the second
//! stage until they can. Nothing of this is on disk.
//!
//! Invariant: parked frames are unused and not below the limit.
//!
//! Locking: `resizing` is held by one who resizes, and at the end of a shrinking; below it only the
//! lock of the free frames, a leaf. Nobody who holds a latch takes `resizing`.

use crate::frame::Kind;
use crate::free_frames::Resized;
use crate::pool::{frames_of, Pool};
use crate::write::WriteBatch;
use ferrite_store::Word;
use ferrite_sync::atomic::Ordering;
use ferrite_types::{Error, Result, PAGE_BYTES};

/// Frames that the writer looks at in one round.
const STEP_FRAMES: usize = 16 << 10;
/// New frames that are made free at a time: others want the lock too.
const GROW_FRAMES: usize = 32 << 10;

/// What became of a frame that is to be cleared.
enum Cleared {
    Yes,
    NotYet,
    BatchFull,
}

impl Pool {
    /// The pool is to have that size, at least 256 pages. Growing is over when the call returns;
    /// shrinking is not: see [`Pool::leaving_frames`].
    ///
    /// # Errors
    /// `BadConfig`: more than [`crate::PoolConfig::max_bytes`], or the system refuses the memory. The
    /// pool is as it was then.
    pub fn resize(&self, bytes: u64) -> Result<()> {
        let n = frames_of(bytes);
        assert!(n > 0, "a pool without frames");
        if n > self.frames.most() {
            return Err(Error::BadConfig(format!(
                "{bytes} bytes are more than buffer_pool_size_max, which is {} bytes",
                bytes_of(self.frames.most())
            )));
        }
        let mut told = self.resizing.lock();
        self.arena().open_to(n)?;
        self.frames.make(n)?;
        let count = self.frames.count();
        {
            let mut free = self.free.lock();
            if n > count {
                self.frames.set_count(n);
            }
            self.frames.set_limit(n);
            self.change_room.resize(n * PAGE_BYTES);
            self.kept_deltas.resize(n * PAGE_BYTES);
            free.divide(n);
            self.free_count.store(free.list.len(), Ordering::Relaxed);
        }
        for first in (count..n).step_by(GROW_FRAMES) {
            let last = (first + GROW_FRAMES).min(n);
            let mut free = self.free.lock();
            free.list.extend((first as u32..last as u32).rev());
            self.free_count.store(free.list.len(), Ordering::Relaxed);
        }
        if n > count {
            *told = Some(Resized {
                from_bytes: bytes_of(count),
                to_bytes: bytes_of(n),
            });
        }
        drop(told);
        self.free_signal.notify_all();
        self.writer.wake();
        Ok(())
    }

    /// The change of size that has come to its end since the last call.
    pub fn take_resized(&self) -> Option<Resized> {
        self.resizing.lock().take()
    }

    /// Frames that the pool still has to clear before it is as small as it is to be; 0: it is.
    pub fn leaving_frames(&self) -> usize {
        let free = self.free.lock();
        let leaving = self.frames.count() - self.frames.limit();
        assert!(
            free.parked.len() <= leaving,
            "{} are parked",
            free.parked.len()
        );
        leaving - free.parked.len()
    }

    /// Size of the pool in bytes; while it shrinks, what it is to be.
    pub fn size_bytes(&self) -> u64 {
        bytes_of(self.frames.limit())
    }

    /// The largest size that it can be given, in bytes.
    pub fn most_bytes(&self) -> u64 {
        bytes_of(self.frames.most())
    }

    /// Memory of the pages, and of what the pool knows of each frame, in bytes. What was given back to
    /// the system, when the pool shrank, does not count.
    pub fn memory_bytes(&self) -> (u64, u64) {
        let in_use = {
            let free = self.free.lock();
            self.frames.count() - free.parked.len()
        };
        (bytes_of(in_use), self.frames.header_bytes() as u64)
    }

    /// Clears frames of a pool that shrinks, as far as it goes: what is dirty is copied into the
    /// batch, and its frame can be cleared when it is written. Returns frames cleared.
    pub(crate) fn collect_leaving(&self, batch: &mut WriteBatch) -> usize {
        let (limit, count) = (self.frames.limit(), self.frames.count());
        if limit >= count {
            return 0;
        }
        let at = self.leaving_at.load(Ordering::Relaxed);
        let from = if at < count { at.max(limit) } else { limit };
        let to = (from + STEP_FRAMES).min(count);
        let (mut at, mut cleared) = (from, 0);
        while at < to {
            match self.clear_frame(at as u32, batch) {
                Cleared::Yes => cleared += 1,
                Cleared::NotYet => {}
                Cleared::BatchFull => break,
            }
            at += 1;
        }
        assert!(limit <= at && at <= count, "{at} of {limit}..{count}");
        self.leaving_at.store(at, Ordering::Relaxed);
        self.reclaim_retired();
        self.end_shrinking();
        cleared
    }

    fn clear_frame(&self, f: u32, batch: &mut WriteBatch) -> Cleared {
        let frame = self.frame(f);
        let kind = frame.kind();
        if !matches!(kind, Kind::Leaf | Kind::Inner) {
            return Cleared::NotYet;
        }
        if frame.is_dirty() {
            let idle = frame.ticket.load(Ordering::SeqCst) == 0;
            return match idle && !self.copy_trial(f, batch) {
                true => Cleared::BatchFull,
                false => Cleared::NotYet,
            };
        }
        if !frame.is_cold() && self.move_page(f, kind) {
            return Cleared::Yes;
        }
        match self.evict_clean(f, kind) {
            Some(f) => {
                self.give_back(f);
                Cleared::Yes
            }
            None => Cleared::NotYet,
        }
    }

    /// The clean page in frame `f` goes on in a frame below the limit, if there is one at once. An
    /// inner node's readers go on with the old image, which is the same.
    pub(crate) fn move_page(&self, f: u32, kind: Kind) -> bool {
        let frame = self.frame(f);
        if !frame.latch.try_exclusive() {
            return false;
        }
        let moved = self.is_idle(f, kind) && self.move_latched(f, kind);
        frame.latch.unlock_exclusive();
        if moved && kind == Kind::Leaf {
            self.give_back(f);
        }
        moved
    }

    /// See [`Pool::move_page`]; the frame's exclusive latch is held.
    fn move_latched(&self, f: u32, kind: Kind) -> bool {
        let Some(g) = self.take_frame_at_once() else {
            return false;
        };
        if g as usize >= self.frames.limit() {
            // The limit went down meanwhile.
            self.give_back(g);
            return false;
        }
        let (frame, new) = (self.frame(f), self.frame(g));
        let page = frame.page();
        new.assign(page, frame.index(), frame.home());
        new.set_lsn(frame.lsn());
        // SAFETY: `g` is not published, and `f` is under its exclusive latch.
        unsafe { self.arena().page_mut(g) }.copy_from_slice(unsafe { self.arena().page(f) });
        new.touch();
        self.move_changes(f, g);
        new.set_kind(kind);
        // Only who has the frame's latch changes the word that names it.
        let shown = self.store.directory().word(page).compare_exchange(
            Word::resident(f).0,
            Word::resident(g).0,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        assert!(shown.is_ok(), "{page} moves and is at {shown:?}");
        assert!(frame.page() == page, "{page} moves out of another's frame");
        self.leave_frame(f, kind);
        true
    }

    /// The last stage, once nothing is left to be cleared.
    fn end_shrinking(&self) {
        let mut told = self.resizing.lock();
        let (limit, count) = {
            let mut free = self.free.lock();
            let (limit, count) = (self.frames.limit(), self.frames.count());
            assert!(
                free.parked.len() <= count - limit,
                "{} frames of {limit}..{count} are parked",
                free.parked.len()
            );
            let early = ferrite_sync::mutant!("buffer.shrunk_too_early");
            if limit == count || (free.parked.len() < count - limit && !early) {
                return;
            }
            debug_assert!(free.parked.iter().all(|f| self.frame(*f).is_unused()));
            free.parked.clear();
            self.frames.set_count(limit);
            (limit, count)
        };
        // SAFETY: all of them were unused, and are given to no page before `resize`, which needs the
        // lock that is held here.
        unsafe { self.arena().give_back(limit, count) };
        *told = Some(Resized {
            from_bytes: bytes_of(count),
            to_bytes: bytes_of(limit),
        });
    }
}

fn bytes_of(frames: usize) -> u64 {
    frames as u64 * PAGE_BYTES as u64
}
