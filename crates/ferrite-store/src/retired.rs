//! Blobs whose page lives elsewhere, until the record that says so is durable.
//!
//! Two queues: blobs one by one, and the blobs of whole indexes as runs, which may have millions.
//!
//! Invariant: each queue is sorted by log position; `first` is the position of what comes first in either
//! (`u64::MAX`: both are empty), so that asking costs one load when nothing is due. While a backup or a
//! snapshot that is being taken has a pin, nothing that was retired behind the pin's position is
//! taken out.
//!
//! Locking: one mutex, a leaf.

use std::collections::VecDeque;

use ferrite_types::Lsn;

use crate::deps::{AtomicU64, Mutex, Ordering};
use crate::held::{GranuleRuns, RunsLeft};
use crate::word::{Location, GRANULE_BYTES};

/// Blobs taken out under one hold of the mutex, or runs, and of the latter so many granules, about.
const TAKE_MOST: usize = 4096;
const TAKE_GRANULES: u64 = 16 * TAKE_MOST as u64;

/// Who may have a pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PinOwner {
    /// A hot backup, until its pages are copied.
    Backup,
    /// A snapshot that is being taken, until it is known which blobs it holds.
    Snapshot,
}

/// What is retired: see the head of the file.
#[derive(Default)]
struct Queues {
    blobs: VecDeque<(Lsn, Location)>,
    runs: VecDeque<(Lsn, Runs)>,
}

/// Runs that are taken out bit by bit.
struct Runs {
    /// What is left of the first one, if a part of it is out.
    rest: Option<(u64, u32)>,
    others: RunsLeft,
}

impl Runs {
    /// The next granules, `most` of them at most.
    fn take(&mut self, most: u64) -> Option<(u64, u32)> {
        let (granule, n) = self.rest.take().or_else(|| self.others.next())?;
        let part = u64::from(n).min(most) as u32;
        assert!(part > 0, "no granule at {granule}");
        if part < n {
            self.rest = Some((granule + u64::from(part), n - part));
        }
        Some((granule, part))
    }

    fn is_empty(&self) -> bool {
        self.rest.is_none() && self.others.is_empty()
    }

    fn all(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.rest.into_iter().chain(self.others.all())
    }
}

/// Puts it behind everything of that position. Positions come nearly in order: from the back it is a step or two.
/// Where it is.
fn insert<T>(queue: &mut VecDeque<(Lsn, T)>, moved: Lsn, what: T) -> usize {
    let mut i = queue.len();
    while i > 0 && queue[i - 1].0 > moved {
        i -= 1;
    }
    queue.insert(i, (moved, what));
    i
}

/// Sorted by position, looked at around `i`.
fn is_sorted_at<T>(queue: &VecDeque<(Lsn, T)>, i: usize) -> bool {
    let position = |i: usize| queue.get(i).map(|(moved, _)| *moved);
    let before = i.checked_sub(1).and_then(position);
    before <= position(i) && position(i + 1).is_none_or(|next| position(i) <= Some(next))
}

impl Queues {
    fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.runs.is_empty()
    }

    /// The position of what comes first.
    fn first(&self) -> u64 {
        let blob = self.blobs.front().map_or(u64::MAX, |(moved, _)| moved.0);
        let runs = self.runs.front().map_or(u64::MAX, |(moved, _)| moved.0);
        blob.min(runs)
    }

    /// Takes out blobs of positions up to `durable`, then runs.
    fn take(&mut self, durable: Lsn) -> Vec<(u64, u32)> {
        let due = self.blobs.partition_point(|(moved, _)| *moved <= durable);
        let due = self.blobs.drain(..due.min(TAKE_MOST));
        let mut out: Vec<_> = due.map(|(_, at)| (at.granule(), at.granules())).collect();
        let mut most = TAKE_GRANULES;
        while let Some((_, runs)) = self.runs.front_mut().filter(|(moved, _)| *moved <= durable) {
            if out.len() >= TAKE_MOST || most == 0 {
                break;
            }
            if let Some((granule, n)) = runs.take(most) {
                out.push((granule, n));
                most -= u64::from(n);
            }
            if runs.is_empty() {
                self.runs.pop_front();
            }
        }
        out
    }
}

pub(crate) struct Retired {
    queues: Mutex<Queues>,
    first: AtomicU64,
    granules: AtomicU64,
    /// Positions of the pins, by owner (`u64::MAX`: there is none); changed under the mutex.
    pins: [AtomicU64; 2],
}

impl Retired {
    pub(crate) fn new() -> Retired {
        Retired {
            queues: Mutex::new(Queues::default()),
            first: AtomicU64::new(u64::MAX),
            granules: AtomicU64::new(0),
            pins: [AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX)],
        }
    }

    /// From now on blobs retired behind `at` stay ([`Lsn::MAX`]: none of them). Under the mutex: who
    /// took blobs out before this did so by a position that was durable before.
    pub(crate) fn set_pin(&self, owner: PinOwner, at: Lsn) {
        let _queues = self.queues.lock();
        let before = self.pins[owner as usize].swap(at.0, Ordering::SeqCst);
        assert!(
            at == Lsn::MAX || before == u64::MAX,
            "a pin at {at:?} beside one at {before}"
        );
    }

    /// Remembers a blob that is garbage once the log is durable up to `moved`.
    pub(crate) fn push(&self, at: Location, moved: Lsn) {
        assert!(!at.is_none(), "nowhere is retired at {moved:?}");
        let mut queues = self.queues.lock();
        let i = insert(&mut queues.blobs, moved, at);
        debug_assert!(is_sorted_at(&queues.blobs, i), "out of order at {moved:?}");
        self.pushed(&queues, u64::from(at.granules()));
    }

    /// The same of the blobs of a whole index.
    pub(crate) fn push_runs(&self, runs: GranuleRuns, moved: Lsn) {
        let granules = runs.granules();
        let runs = Runs {
            rest: None,
            others: runs.into_runs(),
        };
        if runs.is_empty() {
            return;
        }
        assert!(granules > 0, "runs without a granule");
        let mut queues = self.queues.lock();
        let i = insert(&mut queues.runs, moved, runs);
        debug_assert!(is_sorted_at(&queues.runs, i), "out of order at {moved:?}");
        self.pushed(&queues, granules);
    }

    fn pushed(&self, queues: &Queues, granules: u64) {
        self.first.store(queues.first(), Ordering::Release);
        self.granules.fetch_add(granules, Ordering::Relaxed);
    }

    /// Takes out what is garbage now, first granules and lengths, [`TAKE_MOST`] at a time: a dropped index leaves
    /// millions. Empty without taking the lock when nothing is.
    pub(crate) fn take(&self, durable: Lsn) -> Vec<(u64, u32)> {
        if self.first.load(Ordering::Acquire) > durable.0 {
            return Vec::new();
        }
        let mut queues = self.queues.lock();
        let durable = self.before_pin(durable);
        let out = queues.take(durable);
        let first = queues.first();
        self.first.store(first, Ordering::Release);
        let granules: u64 = out.iter().map(|(_, n)| u64::from(*n)).sum();
        debug_assert!(is_sorted_at(&queues.blobs, 0) && is_sorted_at(&queues.runs, 0));
        assert!(
            out.len() == TAKE_MOST
                || granules >= TAKE_GRANULES
                || queues.is_empty()
                || first > durable.0,
            "{first} is due at {durable:?}"
        );
        assert!(
            out.len() <= TAKE_MOST && out.iter().all(|(_, n)| *n > 0),
            "{} blobs and runs at once",
            out.len()
        );
        let before = self.granules.fetch_sub(granules, Ordering::Relaxed);
        assert!(before >= granules, "{granules} of {before} granules");
        out
    }

    pub(crate) fn has_pin(&self) -> bool {
        let is_set = |pin: &AtomicU64| pin.load(Ordering::SeqCst) != u64::MAX;
        self.pins.iter().any(is_set)
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

    /// All that is in the queues, first granules and lengths.
    pub(crate) fn all(&self) -> Vec<(u64, u32)> {
        let queues = self.queues.lock();
        let blobs = queues.blobs.iter();
        let mut all: Vec<_> = blobs.map(|(_, at)| (at.granule(), at.granules())).collect();
        all.extend(queues.runs.iter().flat_map(|(_, runs)| runs.all()));
        all
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
        let at = |n| (n, 1);
        (1..=4).for_each(|n| r.push(Location::new(n, 1, Codec::None), Lsn(n * 10)));
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
        let at = |n| (n, 2);
        for lsn in [50, 10, 30, 30, 40] {
            r.push(Location::new(lsn, 2, Codec::None), Lsn(lsn));
        }
        assert_eq!(r.bytes(), 10 * GRANULE_BYTES as u64);
        assert!(r.take(Lsn(9)).is_empty());
        assert_eq!(r.take(Lsn(10)), [at(10)]);
        assert_eq!(r.take(Lsn(45)), [at(30), at(30), at(40)]);
        assert!(r.take(Lsn(45)).is_empty());
        assert_eq!(r.take(Lsn::MAX), [at(50)]);
        assert_eq!(r.bytes(), 0);
    }

    /// The blobs of an index come out in parts, in their turn, and a pin keeps them.
    #[test]
    fn runs_come_back_in_parts() {
        let r = Retired::new();
        let blob = |at, n| Location::new(at, n, Codec::None);
        // A run of 1 GiB, and one beside it.
        let places = (0..1 << 12).map(|n| blob(n << 8, 1 << 8));
        r.push_runs(GranuleRuns::of(places.chain([blob(2 << 20, 3)])), Lsn(20));
        r.push_runs(GranuleRuns::default(), Lsn(5));
        r.push_runs(GranuleRuns::of([blob(3 << 20, 7)].into_iter()), Lsn(15));
        r.push(blob(4 << 20, 2), Lsn(20));
        r.push(blob(5 << 20, 2), Lsn(30));
        let bytes = |granules: u64| granules * GRANULE_BYTES as u64;
        assert_eq!(r.bytes(), bytes((1 << 20) + 3 + 7 + 2 + 2));
        assert_eq!(r.all().len(), 5);
        assert!(r.take(Lsn(14)).is_empty());
        r.set_pin(PinOwner::Backup, Lsn(15));
        assert_eq!(r.take(Lsn(25)), [(3 << 20, 7)]);
        assert!(r.take(Lsn(25)).is_empty());
        r.set_pin(PinOwner::Backup, Lsn::MAX);
        assert_eq!(r.take(Lsn(25)), [(4 << 20, 2), (0, TAKE_GRANULES as u32)]);
        let mut taken = vec![(0, TAKE_GRANULES as u32)];
        loop {
            let some = r.take(Lsn(25));
            let granules: u64 = some.iter().map(|(_, n)| u64::from(*n)).sum();
            assert!(granules <= TAKE_GRANULES, "{granules} at once");
            if some.is_empty() {
                break;
            }
            taken.extend(some);
        }
        assert_eq!(taken.pop(), Some((2 << 20, 3)));
        let ends = taken.iter().scan(0, |end, (at, n)| {
            let follows = std::mem::replace(end, at + u64::from(*n)) == *at;
            Some((follows, *end))
        });
        let ends: Vec<_> = ends.collect();
        assert!(ends.iter().all(|(follows, _)| *follows), "{taken:?}");
        assert_eq!(ends.last(), Some(&(true, 1 << 20)));
        assert_eq!((r.bytes(), r.all().len()), (bytes(2), 1));
        assert_eq!(r.take(Lsn(30)), [(5 << 20, 2)]);
        assert_eq!(r.bytes(), 0);
    }
}
