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
//! 4. They move with their page when it goes to another frame.
//!
//! Locking: changed under the frame's exclusive latch, or its shared one by who has the frame's
//! ticket; so is the frame's word that says if they are known. The mutex within is a leaf and nobody
//! ever waits for it.

use ferrite_store::{StoredBlob, MAX_DELTA_BYTES};
use ferrite_sync::atomic::{AtomicUsize, Ordering};
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

    /// Most bytes.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.most_bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        if self.used_bytes() + bytes > self.limit_bytes() {
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
    /// Length of the page in it, not packed.
    base_bytes: usize,
    /// Bytes of operations up to which a delta of the base is worth it.
    most_bytes: usize,
    ops: Vec<u8>,
}

/// The changes of one frame. Whether they are known is in the frame's header, so that who changes a
/// page of which they are not looks at nothing else.
#[derive(Default)]
pub(crate) struct Changes {
    known: Mutex<Known>,
}

impl Changes {
    /// They are not known, and are from here on: the page is the blob `base`, of so many bytes when it is not packed,
    /// with these operations. False: they take too much room.
    #[must_use]
    pub(crate) fn begin(
        &self,
        (base, base_bytes): (StoredBlob, usize),
        ops: Vec<u8>,
        most_bytes: usize,
        room: &ChangeRoom,
    ) -> bool {
        assert!(
            most_bytes <= MAX_DELTA_BYTES,
            "{most_bytes} bytes of a delta"
        );
        debug_assert!(base.lsn.0 > 0, "changes of no blob");
        if ops.len() > most_bytes || most_bytes == 0 || !room.take(ops.capacity()) {
            return false;
        }
        let mut known = self.known.lock();
        debug_assert!(known.ops.capacity() == 0, "changes of another page");
        *known = Known {
            base,
            base_bytes,
            most_bytes,
            ops,
        };
        true
    }

    /// The page, whose changes are known, changes by that as well. False: that is too much, and they
    /// are to be forgotten.
    #[must_use]
    pub(crate) fn add(&self, op: &[u8], room: &ChangeRoom) -> bool {
        debug_assert!(!op.is_empty(), "a change of nothing");
        if ferrite_sync::mutant!("buffer.lost_change_of_delta") && op.len() % 5 == 0 {
            return true;
        }
        let mut known = self.known.lock();
        let most = known.most_bytes;
        let ops = &mut known.ops;
        let needed = ops.len() + op.len();
        if needed > most || !room_for(ops, needed, room) {
            return false;
        }
        ops.extend_from_slice(op);
        debug_assert!(ops.len() == needed, "{} of {needed} bytes", ops.len());
        true
    }

    /// They are not known any more.
    pub(crate) fn forget(&self, room: &ChangeRoom) {
        let known = std::mem::take(&mut *self.known.lock());
        debug_assert!(known.most_bytes > 0, "forgotten twice");
        room.give(known.ops.capacity());
    }

    /// What is known goes on as the changes of another frame, to which the page moves.
    pub(crate) fn move_to(&self, other: &Changes) {
        let known = std::mem::take(&mut *self.known.lock());
        debug_assert!(known.most_bytes > 0, "changes that are not known move");
        let before = std::mem::replace(&mut *other.known.lock(), known);
        assert!(before.most_bytes == 0, "changes of two pages in one frame");
    }

    /// They, if there are some, and the blob that they belong to.
    pub(crate) fn known(&self) -> Option<(StoredBlob, Box<[u8]>)> {
        let known = self.known.lock();
        debug_assert!(known.base.lsn.0 > 0, "changes of no blob");
        (!known.ops.is_empty()).then(|| (known.base, known.ops.as_slice().into()))
    }

    /// Copies them to `ops`, if there are some that are no more bytes than `most` says of the length of their blob's page:
    /// that blob.
    pub(crate) fn copy(
        &self,
        most: impl FnOnce(usize) -> usize,
        ops: &mut Vec<u8>,
    ) -> Option<StoredBlob> {
        ops.clear();
        let known = self.known.lock();
        debug_assert!(known.base.lsn.0 > 0, "changes of no blob");
        let fits = !known.ops.is_empty() && known.ops.len() <= most(known.base_bytes);
        fits.then(|| {
            ops.extend_from_slice(&known.ops);
            known.base
        })
    }
}

/// Makes `ops` so large that `needed` bytes fit. False: there is no room.
fn room_for(ops: &mut Vec<u8>, needed: usize, room: &ChangeRoom) -> bool {
    let before = ops.capacity();
    if needed <= before {
        return true;
    }
    let wanted = needed.next_power_of_two().max(FIRST_BYTES);
    if !room.take(wanted - before) {
        return false;
    }
    ops.reserve_exact(wanted - ops.len());
    // The allocator may give more than was asked for.
    room.used_bytes
        .fetch_add(ops.capacity() - wanted, Ordering::Relaxed);
    assert!(ops.capacity() >= needed, "{} for {needed}", ops.capacity());
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_types::Lsn;

    const BASE: StoredBlob = StoredBlob {
        lsn: Lsn(7),
        crc: 9,
    };

    #[test]
    fn they_are_kept_in_order_until_they_are_too_many() {
        let (room, changes, mut out) = (ChangeRoom::new(1 << 20), Changes::default(), Vec::new());
        assert!(
            !changes.begin((BASE, 9000), Vec::new(), 0, &room),
            "no deltas"
        );
        assert!(
            !changes.begin((BASE, 9000), vec![1; 9], 8, &room),
            "too many"
        );
        assert_eq!(room.used_bytes(), 0);
        assert!(changes.begin((BASE, 9000), Vec::new(), 1000, &room));
        assert_eq!(
            changes.copy(|_| MAX_DELTA_BYTES, &mut out),
            None,
            "none yet"
        );
        assert!(changes.add(b"one", &room) && changes.add(b"two", &room));
        assert_eq!(changes.copy(|_| 5, &mut out), None);
        assert_eq!(changes.copy(|_| 6, &mut out), Some(BASE));
        assert_eq!(out, b"onetwo");
        assert!(room.used_bytes() >= 6);
        let more = (0..2000).take_while(|_| changes.add(b"x", &room)).count();
        assert_eq!(more, 1000 - 6);
        changes.forget(&room);
        assert_eq!(room.used_bytes(), 0);
    }

    #[test]
    fn what_does_not_fit_the_room_is_not_kept() {
        let (room, mut out) = (ChangeRoom::new(16 * 1000), Vec::new());
        let frames: Vec<Changes> = (0..8).map(|_| Changes::default()).collect();
        let kept = |changes: &&Changes| {
            assert!(changes.begin((BASE, 9000), Vec::new(), 1000, &room));
            changes.add(&[1; 200], &room)
        };
        assert_eq!(frames.iter().filter(kept).count(), 3, "256 bytes each");
        assert!(frames[0].copy(|_| 300, &mut out).is_some());
        // The pool gets smaller, and larger again.
        room.resize(16 * 500);
        assert_eq!(room.used_bytes(), 3 * 256);
        assert!(!frames[0].add(&[1; 200], &room));
        room.resize(16 * 5000);
        assert!(frames[0].add(&[1; 200], &room));
        let elsewhere = Changes::default();
        frames[0].move_to(&elsewhere);
        assert!(elsewhere.copy(|_| 400, &mut out).is_some() && out.len() == 400);
        elsewhere.forget(&room);
        frames[1..].iter().for_each(|changes| changes.forget(&room));
        assert_eq!(room.used_bytes(), 0);
    }
}
