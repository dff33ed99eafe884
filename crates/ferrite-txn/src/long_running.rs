//! The side table: transactions that outlived their word in the ring, and those restored
//! by recovery. Few, and almost always none.
//!
//! Invariants:
//! - An id is here before its word says MOVED and before anybody may think that all ids
//!   below a bound have ended.
//! - A committed id stays until every live and future snapshot sees it; a rolled back one
//!   goes at once (no record bears it any more). So an id that is not here, below the
//!   ring's floor and not in a snapshot's private window, is visible.
//! - `count` is zero only if nothing is here.
//!
//! Locking: one mutex, a leaf. A commit takes its number under it, so that nobody sees a
//! state in between.

use std::collections::BTreeMap;

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

struct Inner {
    states: BTreeMap<u64, LongRunningState>,
    /// The keys of `states`, for snapshots.
    ids: Arc<[u64]>,
}

pub(crate) struct LongRunning {
    count: AtomicU64,
    inner: Mutex<Inner>,
}

impl LongRunning {
    pub fn new() -> LongRunning {
        LongRunning {
            count: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                states: BTreeMap::new(),
                ids: Arc::from([]),
            }),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    fn edit<R>(&self, f: impl FnOnce(&mut BTreeMap<u64, LongRunningState>) -> R) -> R {
        let mut inner = self.inner.lock();
        let before = inner.states.len();
        let r = f(&mut inner.states);
        debug_assert_eq!(before, inner.ids.len(), "ids and states disagree");
        debug_assert_eq!(before as u64, self.count.load(Ordering::Relaxed));
        if inner.states.len() != before {
            inner.ids = inner.states.keys().copied().collect();
            debug_assert!(inner.ids.is_sorted() && !inner.ids.contains(&0));
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
        let before = self.edit(|s| s.insert(txn.get(), state));
        assert!(before.is_none(), "{txn} is here already: {before:?}");
    }

    pub fn remove(&self, txn: TxnId) -> Option<LongRunningState> {
        let gone = self.edit(|s| s.remove(&txn.get()));
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
        Some(self.inner.lock().ids.clone())
    }

    /// Active -> prepared. False if it is not here as active.
    pub fn prepare(&self, txn: TxnId) -> bool {
        self.edit(|s| match s.get_mut(&txn.get()) {
            Some(state @ LongRunningState::Active) => {
                *state = LongRunningState::Prepared;
                true
            }
            _ => false,
        })
    }

    /// Commits with a number taken under the mutex. `None` if it is not here as active.
    pub fn commit(&self, txn: TxnId, take: impl FnOnce() -> Csn) -> Option<Csn> {
        self.edit(|s| match s.get_mut(&txn.get()) {
            Some(state @ (LongRunningState::Active | LongRunningState::Prepared)) => {
                let csn = take();
                *state = LongRunningState::Committed(csn);
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
        self.edit(|s| {
            s.retain(|_, state| !matches!(state, LongRunningState::Committed(c) if *c <= floor));
        });
    }

    /// The least id here, whatever its state.
    pub fn least(&self) -> Option<TxnId> {
        if self.is_empty() {
            return None;
        }
        self.inner.lock().states.keys().next().copied().map(TxnId)
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
