//! Blobs whose page lives elsewhere, until the record that says so is durable.
//!
//! Invariant: the queue is sorted by log position; `first` is the first one's position
//! (`u64::MAX`: empty), so that asking costs one load when nothing is due. While a backup or a
//! snapshot that is being taken has a pin, nothing that was retired behind the pin's position is
//! taken out.
//!
//! Locking: one mutex, a leaf.

use std::collections::VecDeque;

use ferrite_types::Lsn;

use crate::deps::{AtomicU64, Mutex, Ordering};
use crate::word::{Location, GRANULE_BYTES};

/// Blobs taken out under one hold of the mutex.
const TAKE_MOST: usize = 4096;

/// Who may have a pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinOwner {
    /// A hot backup, until its pages are copied.
    Backup,
    /// A snapshot that is being taken, until it is known which blobs it holds.
    Snapshot,
}

pub(crate) struct Retired {
    queue: Mutex<VecDeque<(Lsn, Location)>>,
    first: AtomicU64,
    granules: AtomicU64,
    /// Positions of the pins, by owner (`u64::MAX`: there is none); changed under the mutex.
    pins: [AtomicU64; 2],
}

impl Retired {
    pub(crate) fn new() -> Retired {
        Retired {
            queue: Mutex::new(VecDeque::new()),
            first: AtomicU64::new(u64::MAX),
            granules: AtomicU64::new(0),
            pins: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
        }
    }

    /// From now on blobs retired behind `at` stay ([`Lsn::MAX`]: none of them). Under the mutex: who
    /// took blobs out before this did so by a position that was durable before.
    pub(crate) fn set_pin(&self, owner: PinOwner, at: Lsn) {
        let _queue = self.queue.lock();
        let before = self.pins[owner as usize].swap(at.0, Ordering::SeqCst);
        assert!(
            at == Lsn::MAX || before == u64::MAX,
            "a pin at {at:?} beside one at {before}"
        );
    }

    /// Sorted by position (looked at around `i`), and `first` is the first one's. Under the mutex.
    fn is_sound(&self, queue: &VecDeque<(Lsn, Location)>, i: usize) -> bool {
        let position = |i: usize| queue.get(i).map(|(moved, _)| *moved);
        let before = i.checked_sub(1).and_then(position);
        let first = position(0).map_or(u64::MAX, |moved| moved.0);
        before <= position(i)
            && position(i + 1).is_none_or(|next| position(i) <= Some(next))
            && self.first.load(Ordering::Relaxed) == first
    }

    /// Remembers a blob that is garbage once the log is durable up to `moved`.
    pub(crate) fn push(&self, at: Location, moved: Lsn) {
        assert!(!at.is_none(), "nowhere is retired at {moved:?}");
        let mut queue = self.queue.lock();
        // Positions come nearly in order: from the back it is a step or two.
        let mut i = queue.len();
        while i > 0 && queue[i - 1].0 > moved {
            i -= 1;
        }
        queue.insert(i, (moved, at));
        if i == 0 {
            self.first.store(moved.0, Ordering::Release);
        }
        debug_assert!(self.is_sound(&queue, i), "out of order at {moved:?}");
        self.granules
            .fetch_add(u64::from(at.granules()), Ordering::Relaxed);
    }

    /// Takes out what is garbage now, [`TAKE_MOST`] at a time: a dropped index leaves millions.
    /// Empty without taking the lock when nothing is.
    pub(crate) fn take(&self, durable: Lsn) -> Vec<Location> {
        if self.first.load(Ordering::Acquire) > durable.0 {
            return Vec::new();
        }
        let mut queue = self.queue.lock();
        let durable = self.before_pin(durable);
        let due = queue.partition_point(|(moved, _)| *moved <= durable);
        let due = due.min(TAKE_MOST);
        let out: Vec<Location> = queue.drain(..due).map(|(_, at)| at).collect();
        let first = queue.front().map_or(u64::MAX, |(moved, _)| moved.0);
        self.first.store(first, Ordering::Release);
        let granules = out.iter().map(|at| u64::from(at.granules())).sum();
        debug_assert!(self.is_sound(&queue, 0), "first is {first}");
        assert!(
            out.len() == TAKE_MOST || queue.is_empty() || first > durable.0,
            "{first} is due at {durable:?}"
        );
        let before = self.granules.fetch_sub(granules, Ordering::Relaxed);
        assert!(before >= granules, "{granules} of {before} granules");
        out
    }

    /// How far blobs may be taken out. Under the mutex.
    fn before_pin(&self, durable: Lsn) -> Lsn {
        match ferrite_sync::mutant!("store.pin_ignored") {
            true => durable,
            false => {
                (self.pins.iter()).fold(durable, |at, pin| at.min(Lsn(pin.load(Ordering::SeqCst))))
            }
        }
    }

    /// Every blob in the queue.
    pub(crate) fn all(&self) -> Vec<Location> {
        self.queue.lock().iter().map(|(_, at)| *at).collect()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.granules.load(Ordering::Relaxed) * GRANULE_BYTES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_types::format::Codec;

    #[test]
    fn a_pin_keeps_what_was_retired_behind_it() {
        let r = Retired::new();
        let at = |n| Location::new(n, 1, Codec::None);
        (1..=4).for_each(|n| r.push(at(n), Lsn(n * 10)));
        r.set_pin(PinOwner::Backup, Lsn(20));
        assert_eq!(r.take(Lsn(35)), [at(1), at(2)]);
        assert!(r.take(Lsn(35)).is_empty());
        r.set_pin(PinOwner::Snapshot, Lsn(30));
        r.set_pin(PinOwner::Backup, Lsn::MAX);
        assert_eq!(r.take(Lsn(45)), [at(3)]);
        r.set_pin(PinOwner::Snapshot, Lsn::MAX);
        assert_eq!(r.take(Lsn(45)), [at(4)]);
    }

    #[test]
    fn comes_back_in_log_order() {
        let r = Retired::new();
        let at = |n| Location::new(n, 2, Codec::None);
        for lsn in [50, 10, 30, 30, 40] {
            r.push(at(lsn), Lsn(lsn));
        }
        assert_eq!(r.bytes(), 10 * GRANULE_BYTES as u64);
        assert!(r.take(Lsn(9)).is_empty());
        assert_eq!(r.take(Lsn(10)), [at(10)]);
        assert_eq!(r.take(Lsn(45)), [at(30), at(30), at(40)]);
        assert!(r.take(Lsn(45)).is_empty());
        assert_eq!(r.take(Lsn::MAX), [at(50)]);
        assert_eq!(r.bytes(), 0);
    }
}
