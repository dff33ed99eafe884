//! Snapshots: what a reader sees, and the register of all that are open.
//!
//! A snapshot is three numbers read in this order: `low` (every id below has ended, except
//! those named in `exceptions`), `csn` (the last commit number given out), `next` (the next
//! id to be given out). Ids below `low` are visible, ids from `next` on are not, those
//! between are asked from the status ring, or, once their words were given to others,
//! from the snapshot's private window.
//!
//! Why the order matters:
//! - `low` before `csn`: what had ended when `low` was published has a number no greater
//!   than the `csn` read later, so "below low" implies "visible".
//! - `csn` before `next`: an id not below `next` began after `next` was read, so it takes
//!   its commit number after `csn` was read, and that number is greater: not visible.
//!
//! All three are read under the mutex of the shard in which the snapshot is registered.
//! A collector reads its bounds first and visits the shards after: a snapshot that it does
//! not find was opened after the visit, so that its numbers are not below the collector's.
//! That is why a purge floor is never ahead of a snapshot being opened.
//!
//! Locking: a shard's mutex, then a snapshot's window.

use ferrite_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{Arc, CachePadded, Mutex};
use ferrite_types::{Csn, TxnId};

/// Who opens a snapshot, for display and for the history limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// The server's connection id; 0 for internal readers.
    pub thread_id: u64,
    /// Held until the transaction ends (REPEATABLE READ), not for one statement.
    pub long: bool,
}

/// One open snapshot, as shown to users.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotView {
    /// Who opened it.
    pub info: SnapshotInfo,
    /// It sees commit numbers up to this one.
    pub csn: Csn,
    /// Every id below had ended (but for long runners).
    pub low: TxnId,
    /// No id from here on is seen.
    pub next: TxnId,
    /// Clock (us) when it was opened, or some ms before.
    pub opened_us: u64,
    /// Bytes of its private window.
    pub window_bytes: usize,
}

/// Which ids of a window are visible: one bit each.
#[derive(Default)]
struct Window {
    /// Id of bit 0.
    first: u64,
    bits: Vec<u64>,
}

pub(crate) struct SnapState {
    pub low: u64,
    pub csn: u64,
    pub next: u64,
    /// Ids below `low` that must be asked from the side table.
    pub exceptions: Option<Arc<[u64]>>,
    pub info: SnapshotInfo,
    pub opened_us: u64,
    /// Ids below are in the window.
    private_to: AtomicU64,
    window: Mutex<Window>,
    /// Ended by the history limit, or closed.
    pub expired: AtomicBool,
    /// Where it stands in its shard; under the shard's mutex.
    place: AtomicUsize,
}

impl SnapState {
    /// `Some(visible)` if the id has been copied into the private window.
    #[inline]
    pub fn private(&self, txn: TxnId) -> Option<bool> {
        debug_assert!(
            (self.low..self.next).contains(&txn.get()),
            "{txn} is not asked from the window"
        );
        if txn.get() >= self.private_to.load(Ordering::Acquire) {
            return None;
        }
        let w = self.window.lock();
        let at = txn.get().checked_sub(w.first)?;
        let word = w.bits.get((at / 64) as usize)?;
        Some(word >> (at % 64) & 1 != 0)
    }

    /// Copies ids `from..to` (those of the snapshot's own window) before their words go.
    pub fn keep(&self, from: u64, to: u64, visible: &mut dyn FnMut(TxnId) -> bool) {
        let kept_to = self.private_to.load(Ordering::Acquire);
        let known_to = kept_to.max(self.low);
        let (first, from) = (from, from.max(known_to));
        let to = to.min(self.next);
        if from >= to {
            return;
        }
        // What the window jumps over would read as "not visible".
        assert!(
            first <= known_to,
            "ids {known_to}..{first} are missing in a window"
        );
        let mut w = self.window.lock();
        if w.bits.is_empty() {
            w.first = from;
        }
        debug_assert!(w.first == self.low && w.first <= from, "{} {from}", w.first);
        for txn in from..to {
            let at = txn - w.first;
            let word = (at / 64) as usize;
            if w.bits.len() <= word {
                w.bits.resize(word + 1, 0);
            }
            if visible(TxnId(txn)) {
                w.bits[word] |= 1 << (at % 64);
            }
        }
        drop(w);
        debug_assert!(kept_to < to && to <= self.next, "window {kept_to} to {to}");
        self.private_to.store(to, Ordering::Release);
    }

    /// Must this id, below `low`, be asked from the side table?
    #[inline]
    pub fn is_exception(&self, txn: TxnId) -> bool {
        match &self.exceptions {
            None => false,
            Some(ids) => {
                debug_assert!(txn.get() < self.low, "{txn} is not below {}", self.low);
                ids.binary_search(&txn.get()).is_ok()
            }
        }
    }

    fn view(&self) -> SnapshotView {
        SnapshotView {
            info: self.info,
            csn: Csn(self.csn),
            low: TxnId(self.low),
            next: TxnId(self.next),
            opened_us: self.opened_us,
            window_bytes: self.window.lock().bits.len() * 8,
        }
    }
}

/// Snapshots opened by the threads of one shard.
#[derive(Default)]
struct Opened {
    open: Vec<Arc<SnapState>>,
    /// Snapshots opened and closed here since the start.
    changes: u64,
}

impl Opened {
    fn put_in(&mut self, state: Arc<SnapState>) {
        debug_assert_eq!(state.place.load(Ordering::Relaxed), self.open.len());
        self.open.push(state);
        self.changes += 1;
    }

    /// False if it is not there. A snapshot knows its place: closing costs the same however many
    /// are open.
    fn take_out(&mut self, state: &Arc<SnapState>) -> bool {
        let at = state.place.load(Ordering::Relaxed);
        if !self.open.get(at).is_some_and(|s| Arc::ptr_eq(s, state)) {
            return false;
        }
        self.open.swap_remove(at);
        if let Some(moved) = self.open.get(at) {
            debug_assert_eq!(
                moved.place.load(Ordering::Relaxed),
                self.open.len(),
                "the last one moves"
            );
            moved.place.store(at, Ordering::Relaxed);
        }
        self.changes += 1;
        true
    }
}

type Shard = Mutex<Opened>;

/// An open snapshot. Closing is dropping it; a few dozen instructions either way.
pub struct Snapshot {
    pub(crate) state: Arc<SnapState>,
    shard: Arc<CachePadded<Shard>>,
}

impl Snapshot {
    /// It sees commit numbers up to this one.
    pub fn csn(&self) -> Csn {
        Csn(self.state.csn)
    }

    /// Every id below had ended when it was opened (but for long runners).
    pub fn low(&self) -> TxnId {
        TxnId(self.state.low)
    }

    /// No id from here on is seen.
    pub fn next(&self) -> TxnId {
        TxnId(self.state.next)
    }

    /// Clock (us) when it was opened.
    pub fn opened_us(&self) -> u64 {
        self.state.opened_us
    }

    /// The history limit has ended it: what it reads from now on may be wrong, and the
    /// reader must give up with [`SnapshotTooOld`](ferrite_types::Error::SnapshotTooOld).
    /// Check it after reading a version (or not finding one).
    #[inline]
    pub fn is_expired(&self) -> bool {
        self.state.expired.load(Ordering::Acquire)
    }

    /// Gives it up; the same as dropping it.
    pub fn close(self) {}
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.shard.lock().take_out(&self.state);
        self.state.expired.store(true, Ordering::Release);
    }
}

impl core::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let s = &self.state;
        write!(f, "Snapshot(csn {} ids {}..{})", s.csn, s.low, s.next)
    }
}

/// All open snapshots.
pub(crate) struct Register {
    shards: Vec<Arc<CachePadded<Shard>>>,
}

impl Register {
    pub fn new(shards: usize) -> Register {
        Register {
            shards: (0..shards.max(1))
                .map(|_| Arc::new(CachePadded::new(Shard::default())))
                .collect(),
        }
    }

    /// Opens a snapshot; `read` reads (low, exceptions, csn, next), in that order, and is
    /// called under the shard's mutex.
    pub fn open(
        &self,
        info: SnapshotInfo,
        opened_us: u64,
        read: impl FnOnce() -> (u64, Option<Arc<[u64]>>, u64, u64),
    ) -> Snapshot {
        let shard = &self.shards[ferrite_sync::shard_index() % self.shards.len()];
        let mut opened = shard.lock();
        let (low, exceptions, csn, next) = read();
        debug_assert!(low <= next, "a snapshot of ids {low}..{next}");
        debug_assert!(exceptions.as_ref().is_none_or(|ids| ids.is_sorted()));
        let state = Arc::new(SnapState {
            low,
            csn,
            next,
            exceptions,
            info,
            opened_us,
            private_to: AtomicU64::new(0),
            window: Mutex::new(Window::default()),
            expired: AtomicBool::new(false),
            place: AtomicUsize::new(opened.open.len()),
        });
        opened.put_in(state.clone());
        drop(opened);
        Snapshot {
            state,
            shard: shard.clone(),
        }
    }

    /// Calls `f` for each open snapshot under its shard's mutex, shard by shard.
    pub fn each(&self, f: &mut dyn FnMut(&Arc<SnapState>)) {
        for shard in &self.shards {
            shard.lock().open.iter().for_each(&mut *f);
        }
    }

    /// Snapshots opened and closed since the start. If it is what it was at an earlier call, each
    /// shard held, when this call looked at it, what it held at that one.
    pub fn changes(&self) -> u64 {
        self.shards.iter().map(|s| s.lock().changes).sum()
    }

    pub fn views(&self) -> Vec<SnapshotView> {
        let mut views = Vec::new();
        self.each(&mut |s| views.push(s.view()));
        views.sort_by_key(|v| (v.csn, v.opened_us));
        views
    }

    /// Ends a snapshot that its owner still holds. False if it was closed meanwhile.
    pub fn expire(&self, state: &Arc<SnapState>) -> bool {
        for shard in &self.shards {
            if shard.lock().take_out(state) {
                state.expired.store(true, Ordering::Release);
                return true;
            }
        }
        false
    }
}

pub(crate) fn view_of(state: &SnapState) -> SnapshotView {
    state.view()
}
