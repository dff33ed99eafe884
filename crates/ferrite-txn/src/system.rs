//! The transaction system: ids, status, commit order, visibility.
//!
//! A transaction gets its id at its first change (`begin`: one fetch_add and one store),
//! and its commit number at commit (state COMMITTING, one fetch_add, one store). Nothing
//! else on these paths is shared but sharded maps.
//!
//! Why commit order is visibility order. A snapshot sees exactly the commit numbers up to
//! its own. A transaction says COMMITTING before it takes a number. A reader that meets
//! COMMITTING waits the few instructions until the number is there and compares. A reader
//! that meets ACTIVE may say "not visible": had the transaction a number within the
//! snapshot, the snapshot's load of the counter would have read a later value of the
//! counter (release of the fetch_add, acquire of the load), so COMMITTING, stored before,
//! would be seen by that reader too. A commit that returned before the snapshot was opened
//! has raised the counter before, so it is within.
//!
//! Low-water mark: `low` is a cursor over the ring that passes ended ids; amortised one
//! step per transaction, taken in batches so that its cache line stays quiet.
//!
//! Locking: `wrap` (reuse of ring words), then `publish` (see the `published` room), then
//! a register shard, then leaves (window, side table, owners). `samples` (see `seen`) is taken
//! with none of them held, and the side table under it.

use std::collections::HashMap;

use ferrite_lock::Owner;
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::{thread, Arc, CachePadded, Mutex};
use ferrite_types::{Csn, TxnId};

use crate::long_running::{LongRunning, LongRunningState};
use crate::published::Publisher;
use crate::seen::Samples;
use crate::snapshot::{view_of, Register, SnapState, Snapshot, SnapshotInfo, SnapshotView};
use crate::status::{Ring, Word, CSN_MAX};

/// Owner maps are sharded by id.
const OWNER_SHARDS: usize = 64;
/// Register shards, by thread.
const REGISTER_SHARDS: usize = 32;
/// How far `low` may lag behind before an ending transaction moves it.
const LOW_LAG: u64 = 64;
/// Steps of the cursor per ending transaction.
const LOW_STEPS: u64 = 4096;

/// Of how many ids a commit asks whether others are active.
const RECENT: u64 = 64;
// The smallest ring has a word for each of them.
const _: () = assert!(RECENT <= 1 << 6);

/// State of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It may still change things, or is being rolled back.
    Active,
    /// Prepared: waits for the coordinator's word. Its locks and changes stand.
    Prepared,
    /// Its number is being published; ask again.
    Committing,
    /// Visible to snapshots from this number on. `Csn(0)`: long ago, number forgotten.
    Committed(Csn),
    /// Rolled back: no record bears its id.
    Aborted,
}

impl Status {
    /// Its row locks stand.
    pub fn is_active(self) -> bool {
        matches!(self, Status::Active | Status::Prepared | Status::Committing)
    }
}

/// A transaction as shown to users.
#[derive(Clone, Debug)]
pub struct ActiveTxn {
    /// Its id.
    pub txn: TxnId,
    /// Its session.
    pub owner: Arc<Owner>,
    /// Active, prepared or committing.
    pub status: Status,
}

type OwnerShard = CachePadded<Mutex<HashMap<u64, Arc<Owner>, foldhash::fast::FixedState>>>;

/// Ids, status and snapshots of one database.
pub struct TxnSystem {
    next_txn: CachePadded<AtomicU64>,
    next_csn: CachePadded<AtomicU64>,
    /// Every id below has ended or is in the side table.
    low: CachePadded<AtomicU64>,
    low_walker: Mutex<()>,
    pub(crate) ring: Ring,
    /// Words given free at a time.
    pub(crate) block: u64,
    wrap: Mutex<()>,
    pub(crate) long_running: LongRunning,
    owners: Box<[OwnerShard]>,
    pub(crate) register: Register,
    pub(crate) publisher: Publisher,
    pub(crate) samples: Mutex<Samples>,
}

impl TxnSystem {
    /// After recovery: the next id and commit number to be given out. Every id below has
    /// ended, but for those [`restore`](Self::restore)d. `next_csn` is at least 1.
    pub fn new(next_txn: TxnId, next_csn: Csn) -> TxnSystem {
        TxnSystem::with_ring_bits(next_txn, next_csn, 20)
    }

    /// As `new`, with a status ring of `2^bits` words (at least 64; tests wrap it soon).
    pub fn with_ring_bits(next_txn: TxnId, next_csn: Csn, bits: u32) -> TxnSystem {
        assert!((6..=30).contains(&bits), "ring of 2^{bits} words");
        let next_txn = TxnId(next_txn.get().max(1));
        let next_csn = Csn(next_csn.get().max(1));
        let ring = Ring::new(bits, next_txn);
        let block = (ring.len() / 16).clamp(1, 4096);
        assert!(ring.len() % block == 0, "blocks of {block} words");
        TxnSystem {
            next_txn: CachePadded::new(AtomicU64::new(next_txn.get())),
            next_csn: CachePadded::new(AtomicU64::new(next_csn.get())),
            low: CachePadded::new(AtomicU64::new(next_txn.get())),
            low_walker: Mutex::new(()),
            block,
            ring,
            wrap: Mutex::new(()),
            long_running: LongRunning::new(),
            owners: (0..OWNER_SHARDS).map(|_| OwnerShard::default()).collect(),
            register: Register::new(REGISTER_SHARDS),
            publisher: Publisher::new(next_txn, Csn(next_csn.get() - 1)),
            samples: Mutex::new(Samples::new(next_txn, next_csn.get() - 1)),
        }
    }

    /// Memory of the status ring, in bytes.
    pub fn ring_memory_bytes(&self) -> usize {
        self.ring.len() as usize * size_of::<u64>()
    }

    fn owner_shard(&self, txn: TxnId) -> &OwnerShard {
        &self.owners[txn.get() as usize % OWNER_SHARDS]
    }

    /// Gives the owner's transaction its id.
    ///
    /// # Panics
    /// When 2^48 ids have been given out.
    pub fn begin(&self, owner: Arc<Owner>) -> TxnId {
        debug_assert!(
            owner.txn_id().is_frozen(),
            "{owner:?} begins a second transaction"
        );
        let id = self.next_txn.fetch_add(1, Ordering::AcqRel);
        assert!(id < TxnId::MAX.get(), "transaction ids are used up");
        if id >= self.ring.ready() {
            self.free_words(id + 1);
        }
        let txn = TxnId(id);
        debug_assert!(
            (self.ring.floor()..self.ring.ready()).contains(&id),
            "transaction {id} has no word of its own"
        );
        self.ring.set(txn, Word::Active);
        owner.set_txn(txn);
        let other = self.owner_shard(txn).lock().insert(id, owner);
        assert!(other.is_none(), "transaction id {id} was given out twice");
        if id % self.block == 0 {
            // Ahead of need, so that nobody has to wait for it.
            self.free_words(id + self.ring.len() / 4);
        }
        txn
    }

    /// A transaction of an earlier life: a loser to be rolled back, or a prepared one.
    /// Before traffic; `txn` is below `next_txn`.
    pub fn restore(&self, txn: TxnId, owner: Arc<Owner>, prepared: bool) {
        assert!(
            txn < self.next_txn(),
            "restored id {txn} is from the future"
        );
        assert!(!txn.is_frozen(), "a restored transaction has an id");
        owner.set_txn(txn);
        let state = if prepared {
            LongRunningState::Prepared
        } else {
            LongRunningState::Active
        };
        self.lower_bounds(txn);
        self.samples.lock().restored(txn);
        self.long_running.insert(txn, state);
        let other = self.owner_shard(txn).lock().insert(txn.get(), owner);
        assert!(other.is_none(), "transaction {txn} was restored twice");
        debug_assert!(self.all_visible_below() <= txn && self.is_active(txn));
    }

    /// Prepared: from here on only `commit` or `rolled_back`.
    pub fn prepare(&self, txn: TxnId) {
        let done =
            self.ring.change(txn, Word::Active, Word::Prepared) || self.long_running.prepare(txn);
        assert!(done, "prepare of transaction {txn}, {:?}", self.status(txn));
        debug_assert_eq!(self.status(txn), Status::Prepared, "transaction {txn}");
    }

    /// Makes the transaction visible to every snapshot opened after the return, and returns
    /// its place in the commit order. Its locks are released by the caller, afterwards.
    ///
    /// # Panics
    /// If it is not active or prepared.
    pub fn commit(&self, txn: TxnId) -> Csn {
        let in_ring = self.ring.change(txn, Word::Active, Word::Committing)
            || self.ring.change(txn, Word::Prepared, Word::Committing);
        let csn = if in_ring {
            let csn = self.take_csn();
            self.ring.set(txn, Word::Committed(csn));
            csn
        } else {
            match self.long_running.commit(txn, || self.take_csn()) {
                Some(csn) => csn,
                None => panic!("commit of transaction {txn}, {:?}", self.status(txn)),
            }
        };
        debug_assert!(csn <= self.last_csn() && self.is_committed(txn), "{txn}");
        self.ended(txn);
        csn
    }

    /// A commit number that no transaction has: snapshots opened before are below it, those
    /// opened from here on are not.
    pub fn mark(&self) -> Csn {
        self.take_csn()
    }

    pub(crate) fn take_csn(&self) -> Csn {
        let csn = self.next_csn.fetch_add(1, Ordering::AcqRel);
        // 0 means "long ago, number forgotten": nobody may get it.
        assert!(csn > 0, "commit number 0");
        assert!(csn < CSN_MAX, "commit numbers are used up");
        Csn(csn)
    }

    /// The transaction is rolled back: every record it touched bears its old header again.
    /// Its locks are released by the caller, afterwards.
    ///
    /// # Panics
    /// If it is not active or prepared.
    pub fn rolled_back(&self, txn: TxnId) {
        let done = self.ring.change(txn, Word::Active, Word::Aborted)
            || self.ring.change(txn, Word::Prepared, Word::Aborted)
            || self.long_running.remove(txn).is_some();
        assert!(
            done,
            "rollback of transaction {txn}, {:?}",
            self.status(txn)
        );
        debug_assert!(!self.is_active(txn), "{txn} is active after its rollback");
        self.ended(txn);
    }

    fn ended(&self, txn: TxnId) {
        let owner = self.owner_shard(txn).lock().remove(&txn.get());
        debug_assert!(owner.is_some(), "transaction {txn} ended twice");
        if let Some(owner) = owner {
            debug_assert_eq!(owner.txn_id(), txn, "another's session");
            owner.set_txn(TxnId::FROZEN);
        }
        if txn.get() >= self.low.load(Ordering::Relaxed) + LOW_LAG {
            self.advance_low(LOW_STEPS);
        }
    }

    /// Its state. An id that ended so long ago that nothing remembers it is
    /// `Committed(Csn(0))`: had it been rolled back, no record would bear it.
    pub fn status(&self, txn: TxnId) -> Status {
        if txn.is_frozen() {
            return Status::Committed(Csn(0));
        }
        debug_assert!(txn < self.next_txn(), "id {txn} is from the future");
        if txn.get() >= self.ring.floor() {
            match self.ring.get(txn) {
                Word::Active => return Status::Active,
                Word::Prepared => return Status::Prepared,
                Word::Committing => return Status::Committing,
                Word::Committed(csn) => return Status::Committed(csn),
                Word::Aborted => return Status::Aborted,
                Word::Moved | Word::Other => {}
            }
        }
        match self.long_running.get(txn) {
            Some(LongRunningState::Active) => Status::Active,
            Some(LongRunningState::Prepared) => Status::Prepared,
            Some(LongRunningState::Committed(csn)) => Status::Committed(csn),
            None => Status::Committed(Csn(0)),
        }
    }

    /// As [`status`](Self::status), waiting out the moment of COMMITTING.
    pub(crate) fn settled_status(&self, txn: TxnId) -> Status {
        loop {
            match self.status(txn) {
                Status::Committing => thread::yield_now(),
                s => return s,
            }
        }
    }

    /// It has not ended: its implicit row locks stand.
    #[inline]
    pub fn is_active(&self, txn: TxnId) -> bool {
        !txn.is_frozen() && self.status(txn).is_active()
    }

    /// It has committed: every snapshot opened from here on sees it.
    #[inline]
    pub fn is_committed(&self, txn: TxnId) -> bool {
        matches!(self.status(txn), Status::Committed(_))
    }

    /// The session of an active transaction; `None` once it has ended.
    pub fn owner_of(&self, txn: TxnId) -> Option<Arc<Owner>> {
        self.owner_shard(txn).lock().get(&txn.get()).cloned()
    }

    /// The oldest id that has not ended; `next_txn` when there is none.
    pub fn oldest_active(&self) -> TxnId {
        self.advance_low(u64::MAX);
        let low = TxnId(self.low.load(Ordering::Acquire));
        let side = self.long_running.least_active();
        let oldest = side.map_or(low, |side| side.min(low));
        debug_assert!(!oldest.is_frozen() && oldest <= self.next_txn());
        oldest
    }

    /// The next id to be given out.
    #[inline]
    pub fn next_txn(&self) -> TxnId {
        TxnId(self.next_txn.load(Ordering::Acquire))
    }

    /// The last commit number given out (it may be being published).
    #[inline]
    pub fn last_csn(&self) -> Csn {
        Csn(self.next_csn.load(Ordering::Acquire) - 1)
    }

    pub(crate) fn low(&self) -> TxnId {
        TxnId(self.low.load(Ordering::Acquire))
    }

    /// How many transactions have an id and have not ended.
    pub fn active_count(&self) -> usize {
        self.owners.iter().map(|s| s.lock().len()).sum()
    }

    /// Is one of the transactions that got their ids last still active? Asked by each durable
    /// commit: a few words of the status ring and no mutex. One that has been open for long, or
    /// waits prepared, is no sign that others are about to commit.
    pub fn is_any_recent_active(&self) -> bool {
        let next = self.next_txn().get();
        let first = next.saturating_sub(RECENT).max(self.ring.floor()).max(1);
        let mut recent = (first..next).rev().map(TxnId);
        recent.any(|txn| matches!(self.ring.get(txn), Word::Active))
    }

    /// Calls `f` for each transaction that has an id and has not ended.
    pub fn each_active(&self, f: &mut dyn FnMut(&ActiveTxn)) {
        for shard in self.owners.iter() {
            let found: Vec<(u64, Arc<Owner>)> = shard
                .lock()
                .iter()
                .map(|(id, owner)| (*id, owner.clone()))
                .collect();
            for (id, owner) in found {
                let txn = TxnId(id);
                let status = self.status(txn);
                f(&ActiveTxn { txn, owner, status });
            }
        }
    }

    /// Moves the low-water mark past ended ids, at most so many.
    pub(crate) fn advance_low(&self, steps: u64) {
        let Some(_walker) = self.low_walker.try_lock() else {
            return;
        };
        let first = self.low.load(Ordering::Acquire);
        let next = self.next_txn.load(Ordering::Acquire);
        let mut at = first;
        debug_assert!(first <= next, "low {first} is ahead of the ids, {next}");
        let last = next.min(first.saturating_add(steps));
        while at < last && self.ring.get(TxnId(at)).is_ended() {
            at += 1;
        }
        if at > first {
            self.low.fetch_max(at, Ordering::AcqRel);
        }
    }

    /// Opens a snapshot of everything committed so far. It keeps the versions it may read;
    /// close it (drop it) soon.
    pub fn open_snapshot(&self, info: SnapshotInfo) -> Snapshot {
        // The clock costs more than the rest; the last publication is at most some ms ago.
        let opened_us = self.publisher.made_us.load(Ordering::Relaxed);
        self.register.open(info, opened_us, || {
            let low = self.low.load(Ordering::Acquire);
            let exceptions = self.long_running.ids();
            let early = u64::from(!ferrite_sync::mutant!("txn.snapshot_too_new"));
            let csn = self.next_csn.load(Ordering::Acquire) - early;
            let next = self.next_txn.load(Ordering::Acquire);
            // A number that somebody will still be given is not in what it sees.
            debug_assert!(csn < self.next_csn.load(Ordering::Acquire), "sees {csn}");
            debug_assert!(low <= next, "ids {low}..{next}");
            (low, exceptions, csn, next)
        })
    }

    /// Does the snapshot see what `txn` did? `own` is the reader's own transaction (frozen
    /// if it has none).
    #[inline]
    pub fn sees(&self, s: &Snapshot, txn: TxnId, own: TxnId) -> bool {
        txn.is_frozen() || txn == own || self.state_sees(&s.state, txn)
    }

    /// As [`TxnSystem::sees`], of a copy whose record may not stand on its page any more. Of an id that may have been rolled
    /// back meanwhile, and is forgotten for that, the answer is false.
    pub fn sees_copy(&self, s: &Snapshot, txn: TxnId, own: TxnId) -> bool {
        let state = &s.state;
        if txn.is_frozen() || txn == own {
            return true;
        }
        if txn.get() < state.low {
            return !state.is_exception(txn);
        }
        let in_ring = |word| matches!(word, Word::Committed(csn) if csn.get() <= state.csn);
        let committed = || in_ring(self.ring.get(txn));
        txn.get() < state.next && state.private(txn).unwrap_or_else(committed)
    }

    pub(crate) fn state_sees(&self, s: &SnapState, txn: TxnId) -> bool {
        if txn.get() < s.low {
            return !s.is_exception(txn) || self.side_sees(s, txn);
        }
        if txn.get() >= s.next {
            return false;
        }
        loop {
            if let Some(visible) = s.private(txn) {
                return visible;
            }
            match self.ring.get(txn) {
                Word::Active | Word::Prepared | Word::Aborted => return false,
                Word::Committed(csn) => return csn.get() <= s.csn,
                Word::Moved => return self.side_sees(s, txn),
                Word::Committing => thread::yield_now(),
                // The word was given to another between the two looks, and the window
                // has it now; or the snapshot was ended and gets no more copies.
                Word::Other if s.expired.load(Ordering::Acquire) => return false,
                Word::Other => thread::yield_now(),
            }
        }
    }

    /// The open snapshots, oldest first.
    pub fn each_snapshot(&self, f: &mut dyn FnMut(&SnapshotView)) {
        self.register.views().iter().for_each(f);
    }

    /// Ends the oldest snapshot for the sake of the history limit: its reader finds
    /// [`Snapshot::is_expired`]. `None` when none is open.
    pub fn expire_oldest(&self) -> Option<SnapshotView> {
        self.expire_oldest_before(Csn(u64::MAX))
    }

    /// The same, if there is one that does not see the commit `csn`.
    pub fn expire_oldest_before(&self, csn: Csn) -> Option<SnapshotView> {
        loop {
            let mut oldest: Option<Arc<SnapState>> = None;
            self.register.each(&mut |s| {
                if s.csn < csn.get() && oldest.as_ref().is_none_or(|o| s.csn < o.csn) {
                    oldest = Some(s.clone());
                }
            });
            let state = oldest?;
            if self.register.expire(&state) {
                debug_assert!(state.expired.load(Ordering::Acquire));
                debug_assert!(state.csn < csn.get(), "it sees {csn:?}");
                self.refresh();
                return Some(view_of(&state));
            }
        }
    }

    /// Gives ring words free until ids below `upto` may use theirs.
    #[cold]
    fn free_words(&self, upto: u64) {
        let _wrap = self.wrap.lock();
        while self.ring.ready() < upto {
            let from = self.ring.floor();
            // Words that nobody has been given yet would be waited for, for ever.
            debug_assert!(
                from + self.block <= self.next_txn().get(),
                "words from {from} on are not in use"
            );
            self.retire_block(from, from + self.block);
        }
    }

    /// Carries away what is needed of ids `from..to`, then moves the floor.
    ///
    /// 1. Those still active go to the side table, and their words say MOVED.
    /// 2. `low` passes the block: snapshots opened from here on never ask its words.
    /// 3. Snapshots opened before get the block's part of their window. The same pass
    ///    publishes the list of snapshots, so that collectors, too, use only snapshots
    ///    that have their copies.
    /// 4. The floor moves; the words may be overwritten.
    pub(crate) fn retire_block(&self, from: u64, to: u64) {
        assert_eq!(from, self.ring.floor(), "a block is passed over");
        assert!(from < to && to - from <= self.ring.len(), "{from}..{to}");
        for id in from..to {
            self.retire_word(TxnId(id));
        }
        self.low.fetch_max(to, Ordering::AcqRel);
        self.publish(&mut |s| {
            s.keep(from, to, &mut |txn| match self.ring.get(txn) {
                Word::Committed(csn) => csn.get() <= s.csn,
                Word::Moved => self.side_sees(s, txn),
                _ => false,
            });
        });
        debug_assert!(
            (from..to).all(|id| self.ring.get(TxnId(id)).is_ended()),
            "a word of {from}..{to} is still in use"
        );
        debug_assert!(self.low().get() >= to, "low {} below {to}", self.low());
        self.ring.move_floor(to);
    }

    /// Of one that may be in the side table: those of which every snapshot sees the end have left it.
    /// One that ends just while it is carried there has its end in its word alone.
    fn side_sees(&self, s: &SnapState, txn: TxnId) -> bool {
        // None: it has not ended there.
        let end_in_side = || match self.long_running.get(txn) {
            Some(LongRunningState::Committed(csn)) => Some(csn.get() <= s.csn),
            Some(_) => None,
            None => Some(true),
        };
        loop {
            if let Some(visible) = end_in_side() {
                return visible;
            }
            match self.ring.get(txn) {
                Word::Committed(csn) => return csn.get() <= s.csn,
                Word::Active | Word::Prepared | Word::Moved | Word::Aborted => return false,
                Word::Committing => thread::yield_now(),
                // It is in the side table alone, or had ended there, and its word is another's now.
                Word::Other => return end_in_side().unwrap_or(false),
            }
        }
    }

    pub(crate) fn retire_word(&self, txn: TxnId) {
        loop {
            let word = self.ring.get(txn);
            let state = match word {
                Word::Committed(_) | Word::Aborted | Word::Moved => return,
                Word::Active => LongRunningState::Active,
                Word::Prepared => LongRunningState::Prepared,
                Word::Committing | Word::Other => {
                    // Ended in a moment, or its `begin` is between two instructions.
                    thread::yield_now();
                    continue;
                }
            };
            self.long_running.insert(txn, state);
            if self.ring.change(txn, word, Word::Moved) {
                return;
            }
            self.long_running.remove(txn);
        }
    }
}
