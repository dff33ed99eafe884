//! The published list of live snapshots, and what it allows to be thrown away.
//!
//! `publish` reads its bounds first (`asof`, the last commit number; `low`), then visits
//! the register shard by shard. A snapshot that is not in the list was opened after its
//! shard was visited, so its commit number is at least `asof` (see the `snapshot` room).
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
//! Locking: `publishing` serialises publishers. Each thread shard has its own pointer to
//! the list under its own mutex, so that the update path shares no cache line.

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{time, Arc, CachePadded, Mutex};
use ferrite_types::{Csn, TxnId};

use crate::snapshot::SnapState;
use crate::system::{Status, TxnSystem};

const LIST_SHARDS: usize = 16;
/// A list younger than this (us) is not made anew for a single question.
const FRESH_US: u64 = 1000;

#[derive(Default)]
struct List {
    asof: u64,
    /// By commit number, ascending.
    snapshots: Vec<Arc<SnapState>>,
}

pub(crate) struct Publisher {
    publishing: Mutex<()>,
    lists: Box<[CachePadded<Mutex<Arc<List>>>]>,
    /// Commits up to here are seen by every live and future snapshot.
    floor: CachePadded<AtomicU64>,
    /// Every id below is seen by every live and future snapshot.
    all_low: CachePadded<AtomicU64>,
    /// Clock (us) of the last list.
    pub(crate) made_us: CachePadded<AtomicU64>,
}

impl Publisher {
    pub fn new(low: TxnId, asof: Csn) -> Publisher {
        let list = Arc::new(List {
            asof: asof.get(),
            snapshots: Vec::new(),
        });
        Publisher {
            publishing: Mutex::new(()),
            lists: (0..LIST_SHARDS)
                .map(|_| CachePadded::new(Mutex::new(list.clone())))
                .collect(),
            floor: CachePadded::new(AtomicU64::new(asof.get())),
            all_low: CachePadded::new(AtomicU64::new(low.get())),
            made_us: CachePadded::new(AtomicU64::new(time::now_us())),
        }
    }

    fn list(&self) -> &Mutex<Arc<List>> {
        &self.lists[ferrite_sync::shard_index() % LIST_SHARDS].0
    }
}

impl TxnSystem {
    /// Makes the list of snapshots and the bounds anew. Called by itself about once a
    /// millisecond while somebody asks; call it after closing an old snapshot to make use
    /// of that at once.
    pub fn refresh(&self) {
        self.publish(&mut |_| {});
    }

    /// As [`refresh`](Self::refresh), unless that was done within the last millisecond.
    pub fn refresh_if_stale(&self) -> bool {
        self.refresh_if_older(FRESH_US)
    }

    /// As [`refresh`](Self::refresh), unless that was done within the last `us`
    /// microseconds. True if it was done now.
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
        self.refresh();
        true
    }

    /// Makes the list, calling `visit` for each live snapshot on the way.
    pub(crate) fn publish(&self, visit: &mut dyn FnMut(&SnapState)) {
        let p = &self.publisher;
        let _alone = p.publishing.lock();
        self.advance_low(u64::MAX);
        let low = self.low().get();
        let asof = self.last_csn();
        let mut snapshots = Vec::new();
        self.register.each(&mut |s| {
            visit(s);
            snapshots.push(s.clone());
        });
        snapshots.sort_by_key(|s| s.csn);
        let floor = snapshots
            .first()
            .map_or(asof.get(), |s| s.csn.min(asof.get()));
        let lowest = snapshots.iter().map(|s| s.low).min().unwrap_or(low);
        let list = Arc::new(List {
            asof: asof.get(),
            snapshots,
        });
        for shard in p.lists.iter() {
            *shard.lock() = list.clone();
        }
        // Bounds never go back: what every snapshot sees stays so.
        p.floor.fetch_max(floor, Ordering::AcqRel);
        self.side.forget(self.purge_floor());
        // What was moved to the side table since `low` was read is not below it.
        let side = self.side.least().map_or(low, TxnId::get);
        let all_low = low.min(lowest).min(side);
        p.all_low.fetch_max(all_low, Ordering::AcqRel);
        p.made_us.store(time::now_us(), Ordering::Relaxed);
    }

    /// An id from an earlier life is active: bounds start below it. Before traffic.
    pub(crate) fn lower_bounds(&self, txn: TxnId) {
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
    /// delete-marks purged. May say false for up to a millisecond longer than necessary.
    pub fn visible_to_all(&self, txn: TxnId) -> bool {
        if txn < self.all_visible_below() {
            return true;
        }
        let seen = |this: &TxnSystem| match this.status(txn) {
            Status::Committed(Csn(0)) => {
                let list = this.publisher.list().lock();
                let oldest = list.snapshots.first();
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
    /// and nobody else sees it). May say true for up to a millisecond longer than necessary.
    pub fn version_needed(&self, begin: TxnId, end: TxnId) -> bool {
        if end < self.all_visible_below() {
            return false;
        }
        let Status::Committed(csn) = self.settled_status(end) else {
            return true;
        };
        if csn <= self.purge_floor() && csn.get() != 0 {
            return false;
        }
        match self.needed_by_listed(begin, end, csn) {
            Some(needed) => needed,
            None => {
                !self.refresh_if_stale() || self.needed_by_listed(begin, end, csn).unwrap_or(true)
            }
        }
    }

    /// `None`: the list is too old to say.
    fn needed_by_listed(&self, begin: TxnId, end: TxnId, end_csn: Csn) -> Option<bool> {
        let list = self.publisher.list().lock();
        if end_csn.get() > list.asof {
            return None;
        }
        let blind = list.snapshots.partition_point(|s| {
            if end_csn.get() != 0 {
                s.csn < end_csn.get()
            } else {
                !self.state_sees(s, end)
            }
        });
        let Some(last) = blind.checked_sub(1) else {
            return Some(false);
        };
        Some(begin.is_frozen() || self.state_sees(&list.snapshots[last], begin))
    }

    /// Commit number of the oldest listed snapshot that sees `begin` but not `end`: the one to
    /// end if what it reads is to go. `None`: no snapshot needs that state.
    pub fn oldest_needing(&self, begin: TxnId, end: TxnId) -> Option<Csn> {
        let list = self.publisher.list().lock();
        let blind = list.snapshots.partition_point(|s| !self.state_sees(s, end));
        let blind = &list.snapshots[..blind];
        let first = blind.partition_point(|s| !begin.is_frozen() && !self.state_sees(s, begin));
        blind.get(first).map(|s| Csn(s.csn))
    }

    /// How many live snapshots the published list names.
    pub fn listed_snapshots(&self) -> usize {
        self.publisher.list().lock().snapshots.len()
    }
}
