//! Who holds and waits for locks: one [`Owner`] per session (or per recovered transaction).
//!
//! An owner lives as long as its session; transactions come and go in it. It holds the list
//! of its locks, its wait word and its event.
//!
//! The wait word is `sequence << 3 | state`. Only the owner's thread starts a wait (a new
//! sequence number, state WAITING); whoever ends the wait moves WAITING to another state by
//! one compare-and-swap, so that a wait has exactly one end, and a decision about an
//! earlier wait cannot hit a later one.
//!
//! Locking: `list` comes before any shard. `looked_at` or `named`, and then `thd`, are held shared over
//! a call of [`WaitHooks`](crate::WaitHooks) and nothing else (under `named` a shard's mutex comes and
//! goes before); nobody waits for `thd` but the connection's end, for `looked_at` but the end of the
//! wait, for `named` but the end of the transaction. The rest are atomics.

use ferrite_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ferrite_sync::{Arc, Event, Mutex, RwLock};
use ferrite_types::{IndexId, TableId, TxnId};
use std::collections::{BTreeSet, HashMap};

use crate::mode::{Mask, CHECKED_MOST};

pub(crate) const WAITING: u64 = 1;
/// Granted; the owner had an entry in the queue before, or needs none.
pub(crate) const GRANTED: u64 = 2;
/// Granted by a new entry, which the owner's thread must put into its list.
pub(crate) const GRANTED_NEW: u64 = 3;
pub(crate) const VICTIM: u64 = 4;
pub(crate) const INTERRUPTED: u64 = 5;
const STATE_BITS: u32 = 3;
const STATE_MASK: u64 = (1 << STATE_BITS) - 1;
const _: () = assert!(INTERRUPTED < STATE_MASK, "each end of a wait has a state");

/// Where an entry is: shard number and slot in it. Valid while the entry is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub shard: u32,
    pub slot: u32,
}

/// Names a range; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeId {
    pub(crate) number: u64,
    /// Where it is as long as it is there.
    pub(crate) slot: u32,
}

/// A gap that an owner has locked and inserts into: one that it does so again and again keeps what it has
/// inserted in a range (`gaps`).
#[derive(Clone, Copy)]
pub(crate) struct OwnGap {
    pub index: IndexId,
    /// The entry at the gap's end.
    pub end: Handle,
    /// That of the first key it has inserted.
    pub first: Handle,
    /// Over what it has inserted later.
    pub range: Option<RangeId>,
}

/// Gaps that an owner remembers, each of another index.
const OWN_GAPS: usize = 8;

/// What an owner holds, for its release.
#[derive(Default)]
pub(crate) struct Held {
    /// One per queue in which the owner has a granted entry.
    pub locks: Vec<Handle>,
    /// Table locks, so that asking again is cheap.
    pub tables: HashMap<TableId, Mask, foldhash::fast::FixedState>,
    /// The indexes with ranges.
    pub ranges: BTreeSet<IndexId>,
    /// A shard for each set in it that is the owner's.
    pub sets: Vec<u32>,
    /// Gaps that the owner inserts into; their entries are in `locks`.
    pub own_gaps: Vec<OwnGap>,
    /// `release_all` has taken the list and is at work: nothing may be added on behalf of
    /// this owner.
    pub closing: bool,
}

impl Held {
    /// A new entry in a queue.
    pub fn add(&mut self, h: Handle) {
        // Locks are taken off the list once no range and no set is left.
        debug_assert!(
            !self.closing || !self.ranges.is_empty() || !self.sets.is_empty(),
            "{h:?} would never be released"
        );
        debug_assert!(
            self.locks.len() > CHECKED_MOST || !self.locks.contains(&h),
            "{h:?} is in its owner's list already"
        );
        self.locks.push(h);
    }

    /// An entry has left its queue. The latest ones go first as a rule.
    pub fn forget(&mut self, h: Handle) {
        let at = self.locks.iter().rposition(|l| *l == h);
        debug_assert!(at.is_some(), "an entry is in its owner's list");
        if let Some(at) = at {
            self.locks.swap_remove(at);
        }
        self.own_gaps.retain(|gap| gap.end != h && gap.first != h);
    }

    /// The last gap of that index comes in the place of the one before.
    pub fn remember(&mut self, gap: OwnGap) {
        debug_assert!(gap.end != gap.first && self.own_gaps.len() <= OWN_GAPS);
        self.own_gaps.retain(|g| g.index != gap.index);
        if self.own_gaps.len() == OWN_GAPS {
            self.own_gaps.swap_remove(0);
        }
        self.own_gaps.push(gap);
    }
}

/// A session, or a transaction of an earlier life being rolled back. Shared as `Arc<Owner>`.
pub struct Owner {
    /// The running transaction's id; 0 while it has changed nothing.
    pub txn: AtomicU64,
    /// The server's connection id, for display.
    pub thread_id: u64,
    /// The server's handle of the connection, passed to [`WaitHooks`](crate::WaitHooks);
    /// not looked into. 0 = none, or gone. Who hands it to the server holds this shared, so that
    /// the connection does not end meanwhile.
    thd: RwLock<usize>,
    /// Held shared by who looks at this owner in its wait through the server. The owner goes on
    /// only when they have done.
    looked_at: RwLock<()>,
    /// Held shared by who tells the server that this owner's transaction is waited for. The owner goes
    /// on to its next transaction only when they have done: the server would take that one for it.
    named: RwLock<()>,
    /// How many are about to share `named`, or do: with none a transaction ends by one load.
    named_by: AtomicU32,
    /// Transactions that have ended.
    ended: AtomicU64,
    /// How much would be lost by a rollback (rows changed). The lightest member of a
    /// deadlock gives way.
    pub changes: AtomicU64,
    /// Set by [`LockTable::interrupt`](crate::LockTable::interrupt); a wait begun while it
    /// is set ends at once. The session clears it when its next statement begins.
    pub interrupted: AtomicBool,
    /// READ COMMITTED or below: record locks of this owner do not become gap locks when a
    /// record goes.
    pub no_gaps: AtomicBool,
    /// The last transaction of this owner that has put a live entry in the place of one that it had
    /// removed itself; 0: none yet.
    pub revived: AtomicU64,
    pub(crate) list: Mutex<Held>,
    /// Granted entries in `list`, readable without its mutex.
    pub(crate) lock_count: AtomicU64,
    pub(crate) word: AtomicU64,
    /// `shard << 32 | slot` of the queue waited in; meaningful while WAITING.
    pub(crate) place: AtomicU64,
    /// Clock (us) at which the present wait began; 0 = not waiting.
    pub(crate) waiting_since_us: AtomicU64,
    /// Arrival number of the present wait; they rise with time.
    pub(crate) arrival: AtomicU64,
    /// Somebody has waited for what this owner holds. Who nobody waits for closes no cycle.
    pub(crate) wanted: AtomicBool,
    /// Somebody may have put a new obstacle in front of this waiter: look for cycles again.
    pub(crate) recheck: AtomicBool,
    pub(crate) event: Event,
}

impl Owner {
    /// An owner without a transaction. `thread_id` and `thd` are the server's, 0 for none.
    pub fn new(thread_id: u64, thd: usize) -> Arc<Owner> {
        Arc::new(Owner {
            txn: AtomicU64::new(0),
            thread_id,
            thd: RwLock::new(thd),
            looked_at: RwLock::new(()),
            named: RwLock::new(()),
            named_by: AtomicU32::new(0),
            ended: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            interrupted: AtomicBool::new(false),
            no_gaps: AtomicBool::new(false),
            revived: AtomicU64::new(0),
            list: Mutex::new(Held::default()),
            lock_count: AtomicU64::new(0),
            word: AtomicU64::new(0),
            place: AtomicU64::new(0),
            waiting_since_us: AtomicU64::new(0),
            arrival: AtomicU64::new(0),
            wanted: AtomicBool::new(false),
            recheck: AtomicBool::new(false),
            event: Event::new(),
        })
    }

    /// The connection ends, or leaves this owner to a prepared transaction: nobody hands its
    /// handle to the server any more. Waits for who is about to.
    pub fn forget_thd(&self) {
        *self.thd.write() = 0;
    }

    /// Calls `f` with the handle of the connection, which does not end meanwhile. Not called if
    /// there is none (any more), or if it is just ending.
    fn with_thd<R>(&self, f: impl FnOnce(usize) -> R) -> Option<R> {
        let thd = self.thd.try_read()?;
        (*thd != 0).then(|| f(*thd))
    }

    /// Calls `f` with the handle of the connection, which stays in wait number `sequence` meanwhile.
    /// Not called if that wait is over, or there is no connection.
    pub(crate) fn while_waiting<R>(&self, sequence: u64, f: impl FnOnce(usize) -> R) -> Option<R> {
        let _stay = self.looked_at.try_read()?;
        if self.wait_sequence() != Some(sequence) {
            return None;
        }
        self.with_thd(f)
    }

    /// Calls `f` with the handle of the connection, whose transaction does not end meanwhile. Not
    /// called if `in_the_way`, asked meanwhile, says that nothing of it stands in anybody's way, or if
    /// there is no connection.
    pub(crate) fn while_in_the_way<R>(
        &self,
        in_the_way: impl FnOnce() -> bool,
        f: impl FnOnce(usize) -> R,
    ) -> Option<R> {
        // Before the question: an owner that has let go of everything before it was asked for need
        // not see this, any other does.
        self.named_by.fetch_add(1, Ordering::SeqCst);
        let stay = self.named.try_read();
        let told = match &stay {
            Some(_) if in_the_way() => self.with_thd(f),
            _ => None,
        };
        drop(stay);
        self.named_by.fetch_sub(1, Ordering::SeqCst);
        told
    }

    /// The transaction has ended and holds nothing any more: waits for those who tell the server of
    /// it. By the owner's thread, which holds nothing.
    pub fn transaction_ended(&self) {
        debug_assert!(!self.is_waiting());
        // Written by the owner's thread only: no need for one atomic step.
        let ended = self.ended.load(Ordering::Relaxed);
        self.ended.store(ended + 1, Ordering::Release);
        if self.named_by.load(Ordering::SeqCst) != 0 {
            drop(self.named.write());
        }
    }

    /// Tells one transaction of this owner from the next.
    pub(crate) fn transactions_ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// The wait is over: waits for those who look at this owner in it. By the owner's thread.
    pub(crate) fn leave_wait(&self) {
        debug_assert!(!self.is_waiting());
        drop(self.looked_at.write());
    }

    /// The running transaction's id, [`TxnId::FROZEN`] while it has changed nothing.
    #[inline]
    pub fn txn_id(&self) -> TxnId {
        TxnId(self.txn.load(Ordering::Acquire))
    }

    /// Names the running transaction; [`TxnId::FROZEN`] = none any more.
    pub fn set_txn(&self, txn: TxnId) {
        self.txn.store(txn.get(), Ordering::Release);
    }

    /// The running transaction puts an entry in the place of one that it has removed. Under the
    /// latch of the entry's page.
    pub fn revives(&self) {
        let txn = self.txn.load(Ordering::Relaxed);
        self.revived.store(txn, Ordering::Release);
    }

    /// One more row changed by the running transaction.
    #[inline]
    pub fn add_change(&self) {
        // Written by the owner's thread only: no need for one atomic step.
        let n = self.changes.load(Ordering::Relaxed);
        self.changes.store(n + 1, Ordering::Relaxed);
    }

    /// How many keys and tables this owner has locks on.
    pub fn locks_held(&self) -> u64 {
        self.lock_count.load(Ordering::Relaxed)
    }

    /// So many of the locks counted go.
    pub(crate) fn count_gone(&self, locks: u64) {
        if locks == 0 {
            return;
        }
        let before = self.lock_count.fetch_sub(locks, Ordering::Relaxed);
        debug_assert!(before >= locks, "{self:?} gives back more than it had");
    }

    /// True while the owner waits for a lock.
    pub fn is_waiting(&self) -> bool {
        self.word.load(Ordering::SeqCst) & STATE_MASK == WAITING
    }

    /// Clock (us) since when it waits; `None` if it does not.
    pub fn waiting_since_us(&self) -> Option<u64> {
        match self.waiting_since_us.load(Ordering::Relaxed) {
            0 => None,
            us => Some(us),
        }
    }

    /// What a rollback would cost, for the choice of a deadlock's victim.
    pub(crate) fn weight(&self) -> u64 {
        self.changes.load(Ordering::Relaxed) + self.lock_count.load(Ordering::Relaxed)
    }

    /// Arrival number of the present wait.
    pub(crate) fn arrival(&self) -> u64 {
        self.arrival.load(Ordering::Relaxed)
    }

    /// The sequence number of the present wait, if there is one.
    pub(crate) fn wait_sequence(&self) -> Option<u64> {
        let w = self.word.load(Ordering::Acquire);
        (w & STATE_MASK == WAITING).then_some(w >> STATE_BITS)
    }

    /// Begins a wait in that queue; by the owner's thread, under the queue's mutex.
    pub(crate) fn begin_wait(&self, at: Handle, arrival: u64) -> u64 {
        assert!(!self.is_waiting(), "{self:?} waits twice");
        assert!(
            arrival > self.arrival.load(Ordering::Relaxed),
            "arrival {arrival} is before the last"
        );
        let sequence = (self.word.load(Ordering::Relaxed) >> STATE_BITS) + 1;
        debug_assert!(sequence <= u64::MAX >> STATE_BITS, "wait {sequence}");
        self.arrival.store(arrival, Ordering::Relaxed);
        self.place.store(
            u64::from(at.shard) << 32 | u64::from(at.slot),
            Ordering::Relaxed,
        );
        self.recheck.store(false, Ordering::Relaxed);
        self.word
            .store(sequence << STATE_BITS | WAITING, Ordering::SeqCst);
        sequence
    }

    /// Ends wait number `sequence` with `state`; false if it has ended otherwise.
    pub(crate) fn end_wait(&self, sequence: u64, state: u64) -> bool {
        debug_assert!(
            state > WAITING && state <= STATE_MASK,
            "a wait ends as {state}"
        );
        self.word
            .compare_exchange(
                sequence << STATE_BITS | WAITING,
                sequence << STATE_BITS | state,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
    }

    /// State of the last wait.
    pub(crate) fn wait_state(&self) -> u64 {
        self.word.load(Ordering::Acquire) & STATE_MASK
    }

    /// The sequence number of the last wait.
    pub(crate) fn wait_number(&self) -> u64 {
        self.word.load(Ordering::Acquire) >> STATE_BITS
    }

    /// Where it waits; to be checked against the queue.
    pub(crate) fn wait_place(&self) -> Handle {
        let p = self.place.load(Ordering::Relaxed);
        Handle {
            shard: (p >> 32) as u32,
            slot: p as u32,
        }
    }

    /// Wakes the waiter to look for deadlocks again.
    pub(crate) fn wake_to_recheck(&self) {
        self.recheck.store(true, Ordering::Release);
        self.event.set();
    }
}

impl core::fmt::Debug for Owner {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Owner(thread {} txn {})",
            self.thread_id,
            self.txn.load(Ordering::Relaxed)
        )
    }
}
