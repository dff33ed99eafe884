//! What has changed in a leaf since its blob was written: the page operations that were logged, kept
//! with its frame, so that the next write can be a delta of a few hundred bytes instead of the page.
//!
//! # Invariants
//! 1. While the changes of a frame are *known*, the blob at its home and these operations give the
//!    page: all of them, in order, and nothing else. Whoever changes the page otherwise forgets them
//!    first; then the next write is one of the whole page, and they are known again from there on.
//! 2. A change that comes while a batch has copied the page makes them forgotten: such a page is
//!    hot, and will be written as a whole.
//! 3. All of them together take a small part of the pool's memory; what does not fit is forgotten.
//!
//! Locking: changed under the frame's exclusive latch, or its shared one by who has the frame's
//! ticket. The mutex within is a leaf and nobody ever waits for it.

use ferrite_store::{StoredBlob, MAX_DELTA_BYTES};
use ferrite_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ferrite_sync::Mutex;

/// Share of the pool's memory.
const ROOM_SHARE: usize = 16;
/// First allocation, in bytes; it doubles from there on.
const FIRST_BYTES: usize = 256;

/// Memory for the changes of all frames.
pub(crate) struct ChangeRoom {
    used_bytes: AtomicUsize,
    most_bytes: AtomicUsize,
}

impl ChangeRoom {
    pub(crate) fn new(pool_bytes: usize) -> ChangeRoom {
        ChangeRoom {
            used_bytes: AtomicUsize::new(0),
            most_bytes: AtomicUsize::new(pool_bytes / ROOM_SHARE),
        }
    }

    /// The pool has another size. What is in use beyond the new share stays until it is forgotten;
    /// there is no more until then.
    pub(crate) fn resize(&self, pool_bytes: usize) {
        let most = pool_bytes / ROOM_SHARE;
        assert!(most > 0, "a pool of {pool_bytes} bytes");
        self.most_bytes.store(most, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        if self.used_bytes() + bytes > self.most_bytes.load(Ordering::Relaxed) {
            return false;
        }
        self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    fn give(&self, bytes: usize) {
        let before = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "{bytes} of {before} bytes are given back");
    }
}

#[derive(Default)]
struct Known {
    base: StoredBlob,
    ops: Vec<u8>,
}

/// The changes of one frame.
#[derive(Default)]
pub(crate) struct Changes {
    is_known: AtomicBool,
    known: Mutex<Known>,
}

impl Changes {
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// The page is the blob `base` with these changes.
    pub(crate) fn begin(&self, base: StoredBlob, ops: Vec<u8>, room: &ChangeRoom) {
        self.forget(room);
        debug_assert!(base.lsn.0 > 0, "changes of no blob");
        if ops.len() > MAX_DELTA_BYTES || !room.take(ops.capacity()) {
            return;
        }
        *self.known.lock() = Known { base, ops };
        self.is_known.store(true, Ordering::Relaxed);
    }

    /// The page changes by that as well.
    #[inline]
    pub(crate) fn add(&self, op: &[u8], room: &ChangeRoom) {
        if self.is_known() && !self.has_added(op, room) {
            self.forget(room);
        }
    }

    fn has_added(&self, op: &[u8], room: &ChangeRoom) -> bool {
        if ferrite_sync::mutant!("buffer.lost_change_of_delta") && op.len() % 5 == 0 {
            return true;
        }
        let mut known = self.known.lock();
        let ops = &mut known.ops;
        let needed = ops.len() + op.len();
        if needed > MAX_DELTA_BYTES {
            return false;
        }
        debug_assert!(!op.is_empty(), "a change of nothing");
        if needed > ops.capacity() {
            let more = needed.next_power_of_two().max(FIRST_BYTES) - ops.len();
            let before = ops.capacity();
            if !room.take(ops.len() + more - before) {
                return false;
            }
            ops.reserve_exact(more);
            // The allocator may give more than was asked for.
            let surplus = ops.capacity() - (ops.len() + more);
            room.used_bytes.fetch_add(surplus, Ordering::Relaxed);
        }
        ops.extend_from_slice(op);
        true
    }

    /// The page has changed in a way that is not kept.
    #[inline]
    pub(crate) fn forget(&self, room: &ChangeRoom) {
        if self.is_known() {
            self.is_known.store(false, Ordering::Relaxed);
            let known = std::mem::take(&mut *self.known.lock());
            room.give(known.ops.capacity());
        }
    }

    /// What is known goes on as the changes of another frame, to which the page moves. Under the
    /// exclusive latch of the one, and before the other is published.
    pub(crate) fn move_to(&self, other: &Changes) {
        assert!(!other.is_known(), "changes of two pages in one frame");
        if self.is_known() {
            self.is_known.store(false, Ordering::Relaxed);
            *other.known.lock() = std::mem::take(&mut *self.known.lock());
            other.is_known.store(true, Ordering::Relaxed);
        }
    }

    /// Copies them to `ops`, if they are known and there are some that are no more than `most_bytes`:
    /// the blob that they belong to.
    pub(crate) fn copy(&self, most_bytes: usize, ops: &mut Vec<u8>) -> Option<StoredBlob> {
        ops.clear();
        if !self.is_known() {
            return None;
        }
        let known = self.known.lock();
        debug_assert!(known.base.lsn.0 > 0, "changes of no blob");
        let fits = !known.ops.is_empty() && known.ops.len() <= most_bytes;
        fits.then(|| {
            ops.extend_from_slice(&known.ops);
            known.base
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_types::Lsn;

    fn base() -> StoredBlob {
        StoredBlob {
            lsn: Lsn(7),
            crc: 9,
        }
    }

    #[test]
    fn they_are_kept_in_order_until_they_are_too_many() {
        let (room, changes, mut out) = (ChangeRoom::new(1 << 20), Changes::default(), Vec::new());
        changes.add(b"before", &room);
        assert_eq!(changes.copy(MAX_DELTA_BYTES, &mut out), None);
        changes.begin(base(), Vec::new(), &room);
        assert_eq!(changes.copy(MAX_DELTA_BYTES, &mut out), None, "none yet");
        changes.add(b"one", &room);
        changes.add(b"two", &room);
        assert_eq!(changes.copy(5, &mut out), None);
        assert_eq!(changes.copy(6, &mut out), Some(base()));
        assert_eq!(out, b"onetwo");
        assert!(room.used_bytes() >= 6);
        for _ in 0..MAX_DELTA_BYTES {
            changes.add(b"x", &room);
        }
        assert!(!changes.is_known());
        assert_eq!(room.used_bytes(), 0);
    }

    #[test]
    fn what_does_not_fit_the_room_is_forgotten() {
        let (room, mut out) = (ChangeRoom::new(16 * 1000), Vec::new());
        let frames: Vec<Changes> = (0..8).map(|_| Changes::default()).collect();
        for changes in &frames {
            changes.begin(base(), Vec::new(), &room);
            changes.add(&[1; 200], &room);
        }
        let known = frames.iter().filter(|c| c.is_known()).count();
        assert_eq!(known, 3, "256 bytes each");
        assert!(frames[0].copy(300, &mut out).is_some());
        frames.iter().for_each(|c| c.forget(&room));
        assert_eq!(room.used_bytes(), 0);
    }
}
