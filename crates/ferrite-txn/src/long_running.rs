//! The side table: transactions that outlived their word in the ring, and those restored
//! by recovery. Almost always none; of prepared ones there may be many: only `ids` takes
//! longer for more of them, once after each change.
//!
//! Invariants:
//! - An id is here before its word says MOVED and before anybody may think that all ids
//!   below a bound have ended.
//! - A committed id stays until every live and future snapshot sees it; a rolled back one
//!   goes at once (no record bears it any more). So an id that is not here, below the
//!   ring's floor and not in a snapshot's private window, is visible.
//! - `count` is zero only if nothing is here; `committed` has those of `states` that have.
//!
//! Locking: one mutex, a leaf. A commit takes its number under it, so that nobody sees a
//! state in between.

use std::collections::{BTreeMap, BTreeSet};

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{Arc, Mutex};
use ferrite_types::{Csn, TxnId};

/// State of a transaction in the side table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongRunningState {
    Active,
    Prepared,
    Committed(Csn),
}

#[derive(Default)]
struct Inner {
    states: BTreeMap<u64, LongRunningState>,
    /// Commit numbers and ids of the committed.
    committed: BTreeSet<(Csn, u64)>,
    /// The keys of `states`, for snapshots; `None` since they have changed.
    ids: Option<Arc<[u64]>>,
}

impl Inner {
    fn ids(&mut self) -> Arc<[u64]> {
        let Inner { states, ids, .. } = self;
        let all = ids.get_or_insert_with(|| states.keys().copied().collect());
        debug_assert!(all.len() == states.len() && all.is_sorted() && !all.contains(&0));
        all.clone()
    }
}

/// Transactions that were in the side table a moment ago and had not ended.
#[derive(Default)]
pub(crate) struct Unended {
    /// Of all that were here, ascending.
    ids: Arc<[u64]>,
    /// Of those that had committed, ascending.
    committed: Vec<u64>,
}

impl Unended {
    /// Those with an id below that one, ascending.
    pub fn below(&self, end: u64) -> impl Iterator<Item = u64> + '_ {
        let here = self.ids[..self.ids.partition_point(|id| *id < end)].iter();
        let mut committed = self.committed.iter().copied().peekable();
        here.copied().filter(move |id| {
            while committed.next_if(|ended| ended < id).is_some() {}
            committed.next_if_eq(id).is_none()
        })
    }
}

pub(crate) struct LongRunning {
    count: AtomicU64,
    inner: Mutex<Inner>,
}

impl LongRunning {
    pub fn new() -> LongRunning {
        LongRunning {
            count: AtomicU64::new(0),
            inner: Mutex::new(Inner::default()),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn edit<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.inner.lock();
        let before = inner.states.len();
        debug_assert_eq!(before as u64, self.count.load(Ordering::Relaxed));
        let r = f(&mut inner);
        assert!(
            inner.committed.len() <= inner.states.len(),
            "more have committed than are here"
        );
        if inner.states.len() != before {
            inner.ids = None;
            self.count
                .store(inner.states.len() as u64, Ordering::Release);
        }
        r
    }

    pub fn insert(&self, txn: TxnId, state: LongRunningState) {
        assert!(
            !matches!(state, LongRunningState::Committed(_)),
            "{txn} would commit without a number of its own"
        );
        let before = self.edit(|i| i.states.insert(txn.get(), state));
        assert!(before.is_none(), "{txn} is here already: {before:?}");
    }

    pub fn remove(&self, txn: TxnId) -> Option<LongRunningState> {
        let gone = self.edit(|i| i.states.remove(&txn.get()));
        assert!(
            !matches!(gone, Some(LongRunningState::Committed(_))),
            "{txn} has committed and is given up"
        );
        gone
    }

    pub fn get(&self, txn: TxnId) -> Option<LongRunningState> {
        if self.is_empty() {
            return None;
        }
        self.inner.lock().states.get(&txn.get()).copied()
    }

    /// Ids here now; `None` when there is none.
    pub fn ids(&self) -> Option<Arc<[u64]>> {
        if self.is_empty() {
            return None;
        }
        Some(self.inner.lock().ids())
    }

    /// Those here now that have not ended.
    pub fn unended(&self) -> Unended {
        if self.is_empty() {
            return Unended::default();
        }
        let mut inner = self.inner.lock();
        let ids = inner.ids();
        let mut committed: Vec<u64> = inner.committed.iter().map(|(_, id)| *id).collect();
        drop(inner);
        committed.sort_unstable();
        debug_assert!(committed.iter().all(|id| ids.binary_search(id).is_ok()));
        Unended { ids, committed }
    }

    /// Active -> prepared. False if it is not here as active.
    pub fn prepare(&self, txn: TxnId) -> bool {
        self.edit(|i| match i.states.get_mut(&txn.get()) {
            Some(state @ LongRunningState::Active) => {
                *state = LongRunningState::Prepared;
                true
            }
            _ => false,
        })
    }

    /// Commits with a number taken under the mutex. `None` if it is not here as active.
    pub fn commit(&self, txn: TxnId, take: impl FnOnce() -> Csn) -> Option<Csn> {
        self.edit(|i| match i.states.get_mut(&txn.get()) {
            Some(state @ (LongRunningState::Active | LongRunningState::Prepared)) => {
                let csn = take();
                *state = LongRunningState::Committed(csn);
                let new = i.committed.insert((csn, txn.get()));
                assert!(new, "{txn} commits twice");
                Some(csn)
            }
            _ => None,
        })
    }

    /// Forgets what every snapshot sees: commit numbers up to `floor`.
    pub fn forget(&self, floor: Csn) {
        if self.is_empty() {
            return;
        }
        self.edit(|i| {
            while let Some((csn, id)) = i.committed.first().copied() {
                if csn > floor {
                    break;
                }
                i.committed.pop_first();
                let gone = i.states.remove(&id);
                assert_eq!(gone, Some(LongRunningState::Committed(csn)), "of {id}");
            }
        });
    }

    /// The least id here, whatever its state, but those that are to be `passed` over.
    pub fn least_but(&self, passed: impl Fn(TxnId) -> bool) -> Option<TxnId> {
        if self.is_empty() {
            return None;
        }
        let inner = self.inner.lock();
        inner
            .states
            .keys()
            .copied()
            .map(TxnId)
            .find(|t| !passed(*t))
    }

    /// The least id here that has not ended.
    pub fn least_active(&self) -> Option<TxnId> {
        if self.is_empty() {
            return None;
        }
        let inner = self.inner.lock();
        inner
            .states
            .iter()
            .find(|(_, s)| !matches!(s, LongRunningState::Committed(_)))
            .map(|(id, _)| TxnId(*id))
    }
}
