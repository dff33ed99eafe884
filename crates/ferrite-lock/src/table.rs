//! The lock table: asking without waiting, releasing, implicit locks made explicit.
//!
//! How a writer uses it, under the exclusive latch of the leaf: `is_untouched` (one load);
//! if touched, `conflicts`; if that says yes, give up the latch, `lock_wait`, and look at the
//! page again from the position before. How a locking reader uses it, under the shared
//! latch: `try_lock`; if that says `Blocked`, likewise. A record that bears the id of an
//! active transaction: give up the latch, `wait_for_implicit`, look again.
//!
//! Invariant (the race of an ending transaction): an owner ends in the order "status ended,
//! `release_all`". Whoever adds a lock on behalf of another owner does so under that owner's
//! list mutex after seeing it active; `release_all` takes the list under the same mutex.
//! So either the lock is in the list that is released, or the status was seen as ended.

use core::hash::BuildHasher;

use ferrite_sync::atomic::Ordering;
use ferrite_sync::{random, Arc, CachePadded};
use ferrite_types::{Error, IndexId, Result};

use crate::counters::Stats;
use crate::hooks::{WaitHooks, WaitPolicy};
use crate::journal::Journal;
use crate::mode::{missing, row_mask, LockRequest, Mask, Mode, Span, REC_X};
use crate::owner::{Handle, Owner};
use crate::queue::Wakes;
use crate::ranges::Ranges;
use crate::shard::{Cell, Fresh, KeyRef, Locked, Outcome, Tally};

/// Sizes and switches.
#[derive(Clone, Debug)]
pub struct LockConfig {
    /// Number of shards, rounded up to a power of two.
    pub shards: usize,
    /// Memory for locks (bytes); beyond it new locks fail with [`Error::LockTableFull`].
    pub limit_bytes: usize,
    /// Look for cycles of waiters. Without it only timeouts end a deadlock.
    pub deadlock_detect: bool,
    /// After how long (us) a waiter that is in others' way looks around without being woken, as a
    /// safety net; then after twice as long, and so on.
    pub ticker_us: u64,
    /// A scan that has taken so many next-key locks in a row goes on with a range.
    pub fold_after: u32,
    /// An owner that holds so many locks gets further record locks in sets.
    pub sets_after: u64,
}

impl Default for LockConfig {
    fn default() -> LockConfig {
        LockConfig {
            shards: 1024,
            limit_bytes: 1 << 30,
            deadlock_detect: true,
            ticker_us: 1_000_000,
            fold_after: 64,
            sets_after: 4096,
        }
    }
}

/// Outcome of asking for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Granted, and the owner had no lock on the record before: may be given back early by
    /// [`LockTable::unlock`] under READ COMMITTED.
    Granted,
    /// Granted; the owner had a shared lock on the record before, and has an exclusive one now,
    /// too: that one may be given back, the shared one stays.
    Stronger,
    /// Granted; the owner had the lock on this record before, so it must not be given back
    /// early.
    Held,
    /// Not granted; nothing was queued. Never returned by a waiting call.
    Blocked,
}

impl Attempt {
    /// The lock is there.
    pub fn is_granted(self) -> bool {
        self != Attempt::Blocked
    }

    /// The lock on the record is there and was not before: [`LockTable::unlock`] may take it back.
    pub fn is_new(self) -> bool {
        matches!(self, Attempt::Granted | Attempt::Stronger)
    }
}

impl From<Fresh> for Attempt {
    fn from(fresh: Fresh) -> Attempt {
        match fresh {
            Fresh::Record => Attempt::Granted,
            Fresh::Mode => Attempt::Stronger,
            Fresh::Gap => Attempt::Held,
        }
    }
}

/// A lock that no entry of the table stands for yet: the record bears its holder's id.
pub struct Implicit<'a> {
    /// Whose id the record bears.
    pub holder: &'a Arc<Owner>,
    /// Is the holder's transaction active? Asked under the holder's list mutex; must not call
    /// into the lock table.
    pub still_active: &'a dyn Fn() -> bool,
}

/// All explicit locks of one database.
pub struct LockTable {
    cells: Box<[CachePadded<Cell>]>,
    seed: foldhash::quality::FixedState,
    pub(crate) tally: Tally,
    pub(crate) ranges: Ranges,
    pub(crate) config: LockConfig,
    pub(crate) deadlock_detect: ferrite_sync::atomic::AtomicBool,
    pub(crate) journal: Journal,
    pub(crate) stats: Stats,
    /// Waiters that have come so far.
    pub(crate) arrivals: ferrite_sync::atomic::AtomicU64,
}

impl LockTable {
    /// An empty table.
    pub fn new(config: LockConfig) -> LockTable {
        let shards = config.shards.clamp(1, 1 << 16).next_power_of_two();
        LockTable {
            cells: (0..shards).map(|_| CachePadded::new(Cell::new())).collect(),
            seed: foldhash::quality::FixedState::with_seed(random::next_u64()),
            tally: Tally::new(config.limit_bytes, config.sets_after),
            ranges: Ranges::new(),
            deadlock_detect: ferrite_sync::atomic::AtomicBool::new(config.deadlock_detect),
            journal: Journal::default(),
            stats: Stats::default(),
            arrivals: ferrite_sync::atomic::AtomicU64::new(0),
            config,
        }
    }

    /// Switches the search for cycles on or off.
    pub fn set_deadlock_detect(&self, on: bool) {
        self.deadlock_detect.store(on, Ordering::Relaxed);
    }

    pub(crate) fn key<'a>(&self, index: IndexId, key: &'a [u8]) -> KeyRef<'a> {
        KeyRef {
            hash: self.seed.hash_one((index.get(), key)),
            index,
            key,
        }
    }

    pub(crate) fn shard_of(&self, hash: u64) -> u32 {
        debug_assert!(self.cells.len().is_power_of_two());
        (hash as usize & (self.cells.len() - 1)) as u32
    }

    pub(crate) fn shard(&self, number: u32) -> &Cell {
        &self.cells[number as usize].0
    }

    pub(crate) fn shards(&self) -> impl Iterator<Item = &Cell> {
        self.cells.iter().map(|c| &c.0)
    }

    pub(crate) fn lock_shard(&self, k: KeyRef<'_>) -> (u32, Locked<'_>) {
        let number = self.shard_of(k.hash);
        (number, self.shard(number).lock())
    }

    /// No key that shares a shard with this one has any lock, and no range covers it: nothing
    /// to check. Two loads, where the index has no ranges. Meaningful under the leaf's latch
    /// only, since locks are tried under it.
    #[inline]
    pub fn is_untouched(&self, index: IndexId, key: &[u8]) -> bool {
        self.is_lineless(index, key) && !self.ranges.covers(index, key)
    }

    /// No key that shares a shard with this one has a queue.
    #[inline]
    pub(crate) fn is_lineless(&self, index: IndexId, key: &[u8]) -> bool {
        let k = self.key(index, key);
        self.shard(self.shard_of(k.hash))
            .count
            .load(Ordering::Acquire)
            == 0
    }

    /// May the index (or one that shares its counter) have gap locks, granted or waited for?
    /// One load.
    #[inline]
    pub fn has_gap_locks(&self, index: IndexId) -> bool {
        self.tally.has_gaps(index)
    }

    /// Asks without waiting; may be called under a page latch. Granted if compatible with
    /// what others hold and with who waits already; otherwise `Blocked`, and nothing is
    /// queued. An owner that holds what it asks for gets it whoever waits.
    ///
    /// # Errors
    /// [`Error::LockTableFull`]: the memory limit is reached. Nothing changed.
    pub fn try_lock(&self, owner: &Arc<Owner>, request: LockRequest<'_>) -> Result<Attempt> {
        let k = self.key(request.index, request.key);
        self.attempt(owner, k, request.mask())
    }

    pub(crate) fn attempt(&self, owner: &Arc<Owner>, k: KeyRef<'_>, mask: Mask) -> Result<Attempt> {
        let mut wakes = Wakes::default();
        let (number, mut shard) = self.lock_shard(k);
        let outcome = self.ask(&mut shard, owner, k, mask, &mut wakes)?;
        drop(shard);
        wakes.send();
        Ok(self.settle_attempt(owner, number, outcome))
    }

    /// Enters a new entry into the owner's list. By the owner's thread.
    pub(crate) fn settle_attempt(
        &self,
        owner: &Arc<Owner>,
        shard: u32,
        outcome: Outcome,
    ) -> Attempt {
        match outcome {
            Outcome::Blocked => Attempt::Blocked,
            Outcome::Covered => Attempt::Held,
            Outcome::Free => Attempt::Granted,
            Outcome::InSet { begun, fresh } => {
                if begun {
                    owner.list.lock().sets.push(shard);
                }
                owner.lock_count.fetch_add(1, Ordering::Relaxed);
                Attempt::from(fresh)
            }
            Outcome::Granted {
                slot,
                new_entry,
                fresh,
            } => {
                if new_entry {
                    note_entry(owner, Handle { shard, slot });
                }
                Attempt::from(fresh)
            }
        }
    }

    /// Would this request have to wait? Takes nothing. For writers that will hold the row
    /// implicitly, and for inserts ([`Span::InsertIntention`] on the successor's key), under
    /// the page latch.
    pub fn conflicts(&self, owner: &Arc<Owner>, request: LockRequest<'_>) -> bool {
        let k = self.key(request.index, request.key);
        let mask = missing(request.mask(), self.ranges.held_by(owner, k));
        if mask == 0 {
            return false;
        }
        // The shard first: a lock that a range takes in leaves it once the range has it.
        let cell = self.shard(self.shard_of(k.hash));
        let in_line = cell.count.load(Ordering::Acquire) != 0;
        in_line && cell.lock().has_obstacle(owner, k, mask)
            || self.ranges.in_the_way(owner, k, mask)
    }

    /// Asks, and waits if somebody is in the way. No latch may be held. First come first
    /// served; granted by direct hand-off. After a wait the caller looks at its records
    /// again, from the last position before: rows may have come or gone. It asks again, too: if a
    /// range in the way goes just then, this says yes and nothing is held.
    ///
    /// # Errors
    /// [`Error::LockTimeout`] (also at once under `nowait`), [`Error::Skipped`] at once under
    /// `skip_locked`, [`Error::Deadlock`] when this owner was chosen to give way,
    /// [`Error::Interrupted`], [`Error::LockTableFull`]. Nothing is queued afterwards.
    pub fn lock_wait(
        &self,
        owner: &Arc<Owner>,
        request: LockRequest<'_>,
        wait: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<Attempt> {
        let k = self.key(request.index, request.key);
        self.wait_in_line(owner, k, request.mask(), false, wait, hooks)
    }

    /// The record bears the id of an active transaction. Gives its holder an explicit exclusive
    /// record lock on its behalf, if it is still active, and waits behind it as
    /// [`lock_wait`](Self::lock_wait) does. Ok also if the holder ended meanwhile; in any case
    /// the caller looks at the record again.
    ///
    /// An owner that was granted the key before the holder wrote its record (it had waited
    /// without a latch and came late) waits for the holder all the same.
    ///
    /// # Errors
    /// As `lock_wait`; [`Error::Bug`] if `holder` is `owner`.
    pub fn wait_for_implicit(
        &self,
        owner: &Arc<Owner>,
        implicit: &Implicit<'_>,
        request: LockRequest<'_>,
        wait: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<()> {
        if Arc::ptr_eq(owner, implicit.holder) {
            return Err(Error::Bug("waiting for an own row lock".into()));
        }
        if !wait.may_wait() {
            return if (implicit.still_active)() {
                Err(wait.refusal())
            } else {
                Ok(())
            };
        }
        let k = self.key(request.index, request.key);
        if !self.make_explicit(implicit, k) {
            return Ok(());
        }
        self.wait_in_line(owner, k, request.mask(), true, wait, hooks)
            .map(|_| ())
    }

    /// True if the holder is active and has the explicit lock now.
    fn make_explicit(&self, implicit: &Implicit<'_>, k: KeyRef<'_>) -> bool {
        let holder = implicit.holder;
        assert!(
            k.index.get() != 0,
            "rows are locked implicitly, tables are not"
        );
        let mut wakes = Wakes::default();
        let mut list = holder.list.lock();
        if list.closing || !(implicit.still_active)() {
            return false;
        }
        let (number, mut shard) = self.lock_shard(k);
        let (slot, new_entry) = shard.force(holder, k, REC_X, &self.tally, &mut wakes);
        drop(shard);
        if new_entry {
            list.add(Handle {
                shard: number,
                slot,
            });
            holder.lock_count.fetch_add(1, Ordering::Relaxed);
        }
        drop(list);
        wakes.send();
        true
    }

    /// Gives back everything, at commit or rollback, and hands it to those who wait. The
    /// transaction's status must have been set to ended before. By the owner's thread.
    pub fn release_all(&self, owner: &Arc<Owner>) {
        {
            debug_assert!(!owner.is_waiting(), "{owner:?} ends while it waits");
            let mut list = owner.list.lock();
            assert!(!list.closing, "{owner:?} is released twice at a time");
            list.tables.clear();
            list.own_gaps.clear();
            if list.tables.capacity() > 1024 {
                list.tables.shrink_to_fit();
            }
            if list.locks.is_empty() && list.ranges.is_empty() && list.sets.is_empty() {
                return;
            }
            list.closing = true;
        }
        let mut locks = loop {
            // Who comes in between may still unfold a range, or a set, that is left.
            let mut list = owner.list.lock();
            let list = &mut *list;
            let more = self
                .ranges
                .release_some(owner, &mut list.ranges, &self.tally);
            if !more && !self.release_some_sets(owner, &mut list.sets) {
                break core::mem::take(&mut list.locks);
            }
        };
        let mut wakes = Wakes::default();
        for h in locks.drain(..) {
            let mut shard = self.shard(h.shard).lock();
            let gone = shard.remove(h.slot, owner, Mask::MAX, &self.tally, &mut wakes);
            debug_assert!(gone, "{owner:?} has nothing at {h:?}");
            drop(shard);
            if wakes.granted.len() + wakes.recheck.len() >= 16 {
                core::mem::take(&mut wakes).send();
            }
        }
        wakes.send();
        let mut list = owner.list.lock();
        debug_assert!(list.locks.is_empty(), "added to one that is closing");
        debug_assert!(list.ranges.is_empty() && list.tables.is_empty());
        debug_assert!(list.sets.is_empty(), "a set is left");
        if locks.capacity() <= 1024 {
            list.locks = locks;
        }
        list.closing = false;
        owner.lock_count.store(0, Ordering::Relaxed);
        // Nothing is left that anybody could wait for.
        owner.wanted.store(false, Ordering::SeqCst);
    }

    /// Gives one record lock back before the end (READ COMMITTED: the row did not match).
    /// Only after an attempt at that mode that [`is_new`](Attempt::is_new). A gap part stays, and
    /// so does a shared lock beside the exclusive one. By the owner's thread.
    pub fn unlock(&self, owner: &Arc<Owner>, index: IndexId, key: &[u8], mode: Mode) {
        self.remove_modes(owner, self.key(index, key), row_mask(mode, Span::Record));
    }

    pub(crate) fn remove_modes(&self, owner: &Arc<Owner>, k: KeyRef<'_>, mask: Mask) {
        let mut wakes = Wakes::default();
        // The list first: nobody may add an entry between the removal from the queue and
        // that from the list.
        let mut list = owner.list.lock();
        let (number, mut shard) = self.lock_shard(k);
        debug_assert!(!list.closing, "by the owner's thread");
        let kept = shard.take_from_sets(owner, k, mask, &self.tally);
        let slot = shard.find(k);
        let gone = slot.filter(|slot| shard.remove(*slot, owner, mask, &self.tally, &mut wakes));
        drop(shard);
        if let Some(slot) = gone {
            list.forget(Handle {
                shard: number,
                slot,
            });
        }
        owner.count_gone(u64::from(kept.count_ones()) + u64::from(gone.is_some()));
        drop(list);
        wakes.send();
    }

    /// Ends the owner's wait with [`Error::Interrupted`], or the next one if it does not
    /// wait now (until the session clears [`Owner::interrupted`]). Any thread; takes no
    /// mutex.
    pub fn interrupt(&self, owner: &Arc<Owner>) {
        owner.interrupted.store(true, Ordering::SeqCst);
        owner.event.set();
    }
}

/// Puts a new entry into its owner's list. By the owner's thread.
pub(crate) fn note_entry(owner: &Arc<Owner>, h: Handle) {
    owner.list.lock().add(h);
    owner.lock_count.fetch_add(1, Ordering::Relaxed);
}
