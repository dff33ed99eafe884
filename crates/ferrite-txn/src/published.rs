//! The published list of live snapshots, and what it allows to be thrown away.
//!
//! `publish` reads its bounds first (`asof`, the last commit number; `low`), then visits
//! the register shard by shard. A snapshot that is not in the list was opened after its
//! shard was visited, so its commit number is at least `asof` (see the `snapshot` module).
//! Hence:
//! - a transaction committed at or before `asof` and seen by the oldest listed snapshot is
//!   seen by every live and future one;
//! - a state that ended at or before `asof` is needed only by listed snapshots.
//!
//! Visibility grows with the commit number: of snapshots sorted by it, those that do not
//! see an id are a prefix. So "does some snapshot see `begin` but not `end`" needs one
//! binary search for `end` and one look at the last of that prefix for `begin`.
//!
//! A snapshot closed since the list was made only keeps things longer. The list never names
//! a snapshot that lacks a window copy it needs, because copies are made in the same pass.
//!
//! While no snapshot is opened or closed, a new list differs from the one before in its bound
//! alone and costs the same however many there are. Else it costs a step for each, and is made
//! the less often the longer it is.
//!
//! A snapshot that ends makes nothing unneeded that had ended before the snapshot was opened. So
//! the list also tells a commit number below which nothing has become unneeded of late: an update
//! that has come so far down its row's chain need not look on.
//!
//! Locking: `publishing` serialises publishers. Each thread shard has its own pointer to
//! the list under its own mutex, so that the update path shares no cache line.

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{time, Arc, CachePadded, Mutex};
use ferrite_types::{Csn, TxnId};

use crate::snapshot::SnapState;
use crate::status::Word;
use crate::system::{Status, TxnSystem};

const LIST_SHARDS: usize = 16;
/// A list younger than this (us) is not made anew for a single question.
const FRESH_US: u64 = 1000;

/// A list of so many snapshots that has to be put together anew is at least as many times this
/// old (us): that takes some 40 ns per snapshot, so about 1% of one processor.
const PACE_US_PER_SNAPSHOT: u64 = 4;
/// No list waits longer for that (us): what is purged waits 20 ms for short snapshots to end.
const PACE_MOST_US: u64 = 10_000;

/// Snapshots that ended so long ago (us), or up to twice as long, are no longer asked about.
const LATELY_US: u64 = 500_000;

/// Does anybody need a version?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    No,
    /// Some snapshot does, or the list is too old to say.
    Yes,
    /// Some listed snapshot does, and no snapshot that ended lately needed anything older.
    Settled,
}

/// Commit numbers of snapshots that ended lately.
#[derive(Default)]
struct Ended {
    /// Clock (us) from which on `least` holds.
    since_us: u64,
    /// The least of those that ended since, or of the last commit then.
    least: u64,
    /// The same for the time before.
    least_before: u64,
}

impl Ended {
    /// Takes note of the oldest that has ended since the last call; the least of late.
    fn note(&mut self, now_us: u64, asof: u64, ended: Option<u64>) -> u64 {
        if now_us >= self.since_us.saturating_add(LATELY_US) {
            self.least_before = self.least;
            self.least = asof;
            self.since_us = now_us;
        }
        self.least = self.least.min(ended.unwrap_or(u64::MAX));
        debug_assert!(
            self.least <= asof && self.least_before <= asof,
            "a snapshot that ended is newer than {asof}"
        );
        self.least.min(self.least_before)
    }
}

/// The least commit number that is in `before` more often than in `now`; both ascend.
fn least_missing(before: &[u64], now: &[u64]) -> Option<u64> {
    debug_assert!(before.is_sorted() && now.is_sorted());
    let mut now = now.iter().peekable();
    let is_missing = |csn: &&u64| {
        while now.next_if(|n| *n < *csn).is_some() {}
        now.next_if_eq(csn).is_none()
    };
    before.iter().find(is_missing).copied()
}

/// The snapshots of a list.
#[derive(Default)]
struct Listed {
    /// Their commit numbers, ascending: apart, so that a search touches nothing else.
    csns: Vec<u64>,
    snapshots: Vec<Arc<SnapState>>,
    /// The least `low` of them.
    lowest: Option<u64>,
    /// What the register said of its changes before it was visited.
    changes: u64,
    /// Clock (us) when they were put together.
    made_us: u64,
}

impl Listed {
    fn new(mut snapshots: Vec<Arc<SnapState>>, changes: u64) -> Listed {
        snapshots.sort_by_key(|s| s.csn);
        Listed {
            csns: snapshots.iter().map(|s| s.csn).collect(),
            lowest: snapshots.iter().map(|s| s.low).min(),
            snapshots,
            changes,
            made_us: time::now_us(),
        }
    }

    /// Is it too early to put so long a list together again?
    fn is_fresh(&self, now_us: u64) -> bool {
        let pace_us = (self.csns.len() as u64 * PACE_US_PER_SNAPSHOT).min(PACE_MOST_US);
        now_us < self.made_us.saturating_add(pace_us)
    }
}

#[derive(Clone, Default)]
struct List {
    asof: u64,
    /// No snapshot that ended lately needed a state that had ended at or before this one.
    quiet: u64,
    listed: Arc<Listed>,
}

pub(crate) struct Publisher {
    publishing: Mutex<Ended>,
    lists: Box<[CachePadded<Mutex<List>>]>,
    /// Commits up to here are seen by every live and future snapshot.
    floor: CachePadded<AtomicU64>,
    /// Every id below is seen by every live and future snapshot.
    all_low: CachePadded<AtomicU64>,
    /// Clock (us) of the last list.
    pub(crate) made_us: CachePadded<AtomicU64>,
}

impl Publisher {
    pub fn new(low: TxnId, asof: Csn) -> Publisher {
        let list = List {
            asof: asof.get(),
            quiet: 0,
            listed: Arc::default(),
        };
        Publisher {
            publishing: Mutex::default(),
            lists: (0..LIST_SHARDS)
                .map(|_| CachePadded::new(Mutex::new(list.clone())))
                .collect(),
            floor: CachePadded::new(AtomicU64::new(asof.get())),
            all_low: CachePadded::new(AtomicU64::new(low.get())),
            made_us: CachePadded::new(AtomicU64::new(time::now_us())),
        }
    }

    fn list(&self) -> &Mutex<List> {
        &self.lists[ferrite_sync::shard_index() % LIST_SHARDS].0
    }
}

impl TxnSystem {
    /// Makes the list of snapshots and the bounds anew. Called by itself about once a
    /// millisecond while somebody asks; call it after closing an old snapshot to make use
    /// of that at once.
    pub fn refresh(&self) {
        self.publish_if(None, None);
    }

    /// As [`refresh`](Self::refresh), unless that was done within the last millisecond.
    pub fn refresh_if_stale(&self) -> bool {
        self.refresh_if_older(FRESH_US)
    }

    /// As [`refresh`](Self::refresh), unless that was done within the last `us`
    /// microseconds, or is too much work to be done again so soon. True if it was done now.
    pub fn refresh_if_older(&self, us: u64) -> bool {
        let p = &self.publisher;
        let now = time::now_us();
        let made = p.made_us.load(Ordering::Relaxed);
        if now < made.saturating_add(us) {
            return false;
        }
        // One asker does it; the others go on with what is there.
        if p.made_us
            .compare_exchange(made, now, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        self.publish_if(Some(now), None)
    }

    /// Makes the list, calling `visit` for each live snapshot on the way.
    pub(crate) fn publish(&self, visit: &mut dyn FnMut(&SnapState)) {
        self.publish_if(None, Some(visit));
    }

    /// Makes the list, of the same snapshots as the one before if none was opened or closed and
    /// `visit` wants to see none. False if it has to be put together and it is too early for that
    /// now, at `paced_us` of the clock; without a time it is never too early.
    fn publish_if(&self, paced_us: Option<u64>, visit: Option<&mut dyn FnMut(&SnapState)>) -> bool {
        let p = &self.publisher;
        let mut ended = p.publishing.lock();
        self.advance_low(u64::MAX);
        let low = self.low().get();
        let asof = self.last_csn();
        let before = p.list().lock().listed.clone();
        debug_assert!(asof >= self.purge_floor(), "commit numbers go back");
        let changes = self.register.changes();
        let listed = if changes == before.changes && visit.is_none() {
            before.clone()
        } else if paced_us.is_some_and(|now_us| before.is_fresh(now_us)) {
            return false;
        } else {
            self.list_anew(changes, visit)
        };
        let floor = listed
            .csns
            .first()
            .map_or(asof.get(), |csn| asof.get().min(*csn));
        let lowest = listed.lowest.unwrap_or(low);
        let now_us = time::now_us();
        let gone = if Arc::ptr_eq(&before, &listed) {
            None
        } else {
            least_missing(&before.csns, &listed.csns)
        };
        let list = List {
            asof: asof.get(),
            quiet: ended.note(now_us, asof.get(), gone),
            listed,
        };
        for shard in p.lists.iter() {
            *shard.lock() = list.clone();
        }
        // What is below the floor may be gone: a snapshot that needs it must not turn up.
        assert!(
            self.purge_floor().get() <= floor && floor <= asof.get(),
            "the purge floor goes from {} to {floor}, the last commit is {}",
            self.purge_floor(),
            asof.get()
        );
        // Bounds never go back: what every snapshot sees stays so.
        p.floor.fetch_max(floor, Ordering::AcqRel);
        self.long_running.forget(self.purge_floor());
        // What was moved to the side table since `low` was read is not below it.
        let side = self.least_moved().map_or(low, TxnId::get);
        let all_low = low.min(lowest).min(side);
        assert!(
            self.all_visible_below().get() <= all_low,
            "ids seen by all go from below {} to below {all_low}",
            self.all_visible_below()
        );
        p.all_low.fetch_max(all_low, Ordering::AcqRel);
        p.made_us.store(now_us, Ordering::Relaxed);
        true
    }

    /// The least id in the side table, but of one that had ended when it was carried there.
    fn least_moved(&self) -> Option<TxnId> {
        let ended = |txn| matches!(self.ring.get(txn), Word::Committed(_) | Word::Aborted);
        self.long_running.least_but(ended)
    }

    fn list_anew(
        &self,
        changes: u64,
        mut visit: Option<&mut dyn FnMut(&SnapState)>,
    ) -> Arc<Listed> {
        let mut snapshots = Vec::new();
        self.register.each(&mut |s| {
            if let Some(visit) = &mut visit {
                visit(s);
            }
            snapshots.push(s.clone());
        });
        Arc::new(Listed::new(snapshots, changes))
    }

    /// An id from an earlier life is active: bounds start below it. Before traffic.
    pub(crate) fn lower_bounds(&self, txn: TxnId) {
        debug_assert!(!txn.is_frozen(), "an active transaction has an id");
        self.publisher
            .all_low
            .fetch_min(txn.get(), Ordering::AcqRel);
    }

    /// Commits up to here are seen by every live and future snapshot.
    pub fn purge_floor(&self) -> Csn {
        Csn(self.publisher.floor.load(Ordering::Acquire))
    }

    /// Every id below is seen by every live and future snapshot (or was rolled back).
    #[inline]
    pub fn all_visible_below(&self) -> TxnId {
        TxnId(self.publisher.all_low.load(Ordering::Acquire))
    }

    /// True if every live and future snapshot sees `txn`: its records may be frozen, its
    /// delete-marks purged. May say false for a few milliseconds longer than necessary.
    pub fn visible_to_all(&self, txn: TxnId) -> bool {
        if txn < self.all_visible_below() {
            return true;
        }
        let seen = |this: &TxnSystem| match this.status(txn) {
            Status::Committed(Csn(0)) => {
                let list = this.publisher.list().lock();
                let oldest = list.listed.snapshots.first();
                oldest.is_none_or(|s| this.state_sees(s, txn))
            }
            Status::Committed(csn) => csn <= this.purge_floor(),
            _ => false,
        };
        if seen(self) {
            return true;
        }
        matches!(self.status(txn), Status::Committed(_)) && self.refresh_if_stale() && seen(self)
    }

    /// May a live or future snapshot need the state of a row that `begin` made and `end`
    /// replaced? An `end` that has not committed is always needed (it may be rolled back,
    /// and nobody else sees it). May say true for a few milliseconds longer than necessary.
    pub fn version_needed(&self, begin: TxnId, end: TxnId) -> bool {
        self.need(begin, end) != Need::No
    }

    /// As [`version_needed`](Self::version_needed), for who follows a chain.
    pub(crate) fn need(&self, begin: TxnId, end: TxnId) -> Need {
        if end < self.all_visible_below() {
            return Need::No;
        }
        let Status::Committed(csn) = self.settled_status(end) else {
            return Need::Yes;
        };
        if csn <= self.purge_floor() && csn.get() != 0 {
            return Need::No;
        }
        let mut need = self.needed_by_listed(begin, end, csn);
        if need.is_none() && self.refresh_if_stale() {
            need = self.needed_by_listed(begin, end, csn);
        }
        need.unwrap_or(Need::Yes)
    }

    /// `None`: the list is too old to say.
    fn needed_by_listed(&self, begin: TxnId, end: TxnId, end_csn: Csn) -> Option<Need> {
        let list = self.publisher.list().lock();
        if end_csn.get() > list.asof {
            return None;
        }
        let listed = &list.listed;
        let blind = if end_csn.get() != 0 {
            listed.csns.partition_point(|csn| *csn < end_csn.get())
        } else {
            let sees = |s: &Arc<SnapState>| self.state_sees(s, end);
            listed.snapshots.partition_point(|s| !sees(s))
        };
        let Some(last) = blind.checked_sub(1) else {
            return Some(Need::No);
        };
        debug_assert!(
            !self.state_sees(&listed.snapshots[last], end),
            "a snapshot of {} sees {end}, committed as {end_csn}",
            listed.csns[last]
        );
        if !begin.is_frozen() && !self.state_sees(&listed.snapshots[last], begin) {
            return Some(Need::No);
        }
        let is_settled = end_csn.get() <= list.quiet;
        Some(if is_settled { Need::Settled } else { Need::Yes })
    }

    /// Commit number of the oldest listed snapshot that sees `begin` but not `end`: the one to
    /// end if what it reads is to go. `None`: no snapshot needs that state.
    pub fn oldest_needing(&self, begin: TxnId, end: TxnId) -> Option<Csn> {
        let list = self.publisher.list().lock();
        let all = &list.listed.snapshots;
        debug_assert_eq!(all.len(), list.listed.csns.len());
        let blind = &all[..all.partition_point(|s| !self.state_sees(s, end))];
        let first = blind.partition_point(|s| !begin.is_frozen() && !self.state_sees(s, begin));
        blind.get(first).map(|s| Csn(s.csn))
    }

    /// Commit numbers of the snapshots that the published list names, ascending.
    pub fn listed_csns(&self) -> Vec<Csn> {
        let list = self.publisher.list().lock();
        list.listed.csns.iter().copied().map(Csn).collect()
    }

    /// How many live snapshots the published list names.
    pub fn listed_snapshots(&self) -> usize {
        self.publisher.list().lock().listed.csns.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl TxnSystem {
        /// As if no snapshot had ended for a long time.
        pub(crate) fn settle(&self) {
            for _ in 0..2 {
                self.publisher.publishing.lock().since_us = 0;
                self.refresh();
            }
        }

        /// Where the snapshots of the present list are.
        pub(crate) fn list_place(&self) -> usize {
            Arc::as_ptr(&self.publisher.list().lock().listed) as usize
        }
    }

    #[test]
    fn the_oldest_that_ended_is_found() {
        let least = |before: &[u64], now: &[u64]| least_missing(before, now);
        assert_eq!(least(&[], &[3]), None);
        assert_eq!(least(&[3, 5, 5, 9], &[3, 5, 5, 9, 9, 12]), None);
        assert_eq!(least(&[3, 5, 5, 9], &[3, 5, 9]), Some(5));
        assert_eq!(least(&[3, 5, 5, 9], &[4, 5, 5, 9]), Some(3));
        assert_eq!(least(&[3, 5], &[]), Some(3));
    }

    #[test]
    fn what_ended_is_remembered_for_a_while() {
        let mut ended = Ended::default();
        assert_eq!(ended.note(LATELY_US, 100, None), 0);
        assert_eq!(ended.note(2 * LATELY_US, 200, None), 100);
        assert_eq!(ended.note(2 * LATELY_US + 1, 210, Some(50)), 50);
        assert_eq!(ended.note(2 * LATELY_US + 2, 220, Some(70)), 50);
        assert_eq!(ended.note(3 * LATELY_US, 300, None), 50);
        assert_eq!(ended.note(4 * LATELY_US, 400, None), 300);
        assert_eq!(ended.note(9 * LATELY_US, 900, Some(850)), 400);
        assert_eq!(ended.note(9 * LATELY_US + 1, 901, None), 400);
        assert_eq!(ended.note(10 * LATELY_US, 1000, None), 850);
    }
}
