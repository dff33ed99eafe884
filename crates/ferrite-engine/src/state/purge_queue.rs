//! What commits leave to be purged, and where each piece of it is at each moment.
//!
//! Pieces are kept in works of at most [`PIECES_AT_ONCE`]. A work is in exactly one place: fresh, long (fresh, and passed
//! over by committers), waiting, held (put aside), or in a batch that somebody works on. It changes places under `lists`
//! only, so that a checkpoint, which looks at all places under it, finds each value out of line once.
//!
//! What is held counts for the limits of history as far as a snapshot is known to need it that is open: the rest may be
//! of one that has ended, and on its way to be freed, which can take minutes. Ending others would gain nothing. Only where
//! no helper gets on at all everything counts.
//!
//! Locking: `lists` is a leaf, never held over work on pages. Commits need it: nothing under it
//! takes longer for more pieces, only for more works (of a batch, or, for a checkpoint, in all).

use crate::log_records::values::Value;
use crate::state::page_set::PageSet;
use crate::state::purge_work::{Garbage, Values, Work, PIECES_AT_ONCE};
use crate::state::sweeps::{Sweeps, Taken};
use ferrite_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{time, Event, Mutex};
use ferrite_types::{Csn, IndexId, PageId, TxnId};
use std::collections::{HashMap, VecDeque};

/// How long what a snapshot needs stays where it is, in us.
const GRACE_US: u64 = 20_000;
/// A helper that sleeps is woken by every so many works in the queue; it looks by itself every
/// 20 ms.
const WAKE: usize = 16;
/// Works in the queue beyond which committers help.
const DEBT: usize = 2048;
/// Sparse leaves that are remembered.
const SPARSE_MOST: usize = 4096;
/// No further leaves are visited while so many works wait that are left of others: what a snapshot needs would
/// pile up.
const OF_LEAVES_MOST: usize = 256;
/// How often what is held is looked at again, in us.
const HELD_US: u64 = 500_000;
/// Waiting works, or fresh ones, whose values have so many pages are enough for a batch, and of held ones no more are
/// freed in one: who frees them keeps the batch from others.
pub(crate) const BATCH_PAGES: u64 = 8 << 10;
/// A value of more pages is long: the helpers alone free it.
pub(crate) const LONG_PAGES: u64 = 64;
/// Old works among which a committer looks for its share.
const SHARED_MOST: usize = 16;
/// Works in the list of what is held that a round passes over because a snapshot needs them.
const PASSED_MOST: usize = 1024;
/// Of the places in a batch one in so many is for what is held, if any of that is due, whatever else there is to do.
const HELD_SHARE: usize = 8;
/// Ticks without a piece that a helper has got over, after which purge counts as stuck; and how far apart they are, about.
const STUCK_TICKS: u64 = 200;
const TICK_US: u64 = 50_000;

/// Works taken from the queue, to be put back.
pub(crate) struct Batch {
    id: u64,
    pub works: Vec<Work>,
    /// Works from here on were held.
    pub held_from: usize,
    /// What was looked at last before that time, us, nobody looked at while it was in the batch.
    taken_us: u64,
}

impl Batch {
    /// Pieces of all its works, and pages of their values.
    pub(crate) fn size(&self) -> (usize, u64) {
        let pieces = self.works.iter().map(|work| work.pieces.len());
        (pieces.sum(), self.works.iter().map(Work::pages).sum())
    }

    /// It is full, whether or not there was something for the places of what is held.
    pub(crate) fn is_full(&self, most: usize) -> bool {
        debug_assert!(self.works.len() <= most, "{} works", self.works.len());
        self.works.len() >= most - most / HELD_SHARE
    }
}

/// Bytes in memory and on disk.
type Bytes = (u64, u64);

#[derive(Default)]
struct Lists {
    /// Not looked at yet, oldest first, but for those in `long`.
    fresh: VecDeque<Work>,
    /// Older ones that ended with a long value when a committer looked: no committer's share. In a list of their own, so
    /// that a share is taken near the front of `fresh`: from its middle it would move half of it.
    long: VecDeque<Work>,
    /// Needed by some snapshot when it was looked at.
    waiting: VecDeque<Work>,
    /// Values that an old snapshot needs, and what was looked at in vain, such as entries whose locks
    /// cannot be moved; those looked at longest ago first.
    held: VecDeque<Work>,
    /// Bytes of the values in `held`, by the snapshot that they are kept for as far as that is known; none is 0.
    kept: HashMap<Csn, Bytes>,
    /// Commit numbers of the snapshots that were open a moment ago, ascending.
    open: Vec<Csn>,
    /// Leaves with marks that have no piece.
    sweeps: Sweeps,
    /// Works left of them.
    of_leaves: usize,
    /// Values of the batches in work, as they were when they were taken.
    working: HashMap<u64, Vec<Values>>,
    /// The batches in work, and when the oldest work of each was left, us.
    out: Vec<(u64, u64)>,
    last_batch: u64,
}

impl Lists {
    /// Until there are `most` works, or those taken have so many pages of values; of one with more, a part. Returns how
    /// many are gone from the list. `pages`: what is left of them.
    fn take_due(
        list: &mut VecDeque<Work>,
        works: &mut Vec<Work>,
        (most, pages): (usize, &mut u64),
        due_us: u64,
    ) -> usize {
        let before = list.len();
        while works.len() < most && *pages > 0 {
            let Some(first) = list.front_mut().filter(|w| w.seen_us <= due_us) else {
                break;
            };
            if first.pages() > *pages && first.pieces.len() > 1 {
                // One value at least, whatever it has.
                let count = first.last_pieces(first.pieces.len() - 1, *pages).max(1);
                works.push(first.split_off(count));
                *pages = 0;
                break;
            }
            *pages = pages.saturating_sub(first.pages());
            works.extend(list.pop_front());
        }
        before - list.len()
    }

    /// The same of works that nobody has looked at, whoever passed them over.
    fn take_fresh(&mut self, works: &mut Vec<Work>, (most, mut pages): (usize, u64)) -> usize {
        let of_long = Self::take_due(&mut self.long, works, (most, &mut pages), u64::MAX);
        of_long + Self::take_due(&mut self.fresh, works, (most, &mut pages), u64::MAX)
    }

    /// Works that nobody has looked at, oldest first.
    fn unseen(&self) -> impl Iterator<Item = &Work> {
        self.long.iter().chain(&self.fresh)
    }

    /// The same of what is held, but for works that open snapshots are known to need, unless they were looked
    /// at last before `again_us`: those go to the list's end as if they had been looked at.
    fn take_held(&mut self, works: &mut Vec<Work>, most: usize, (now_us, again_us): (u64, u64)) {
        let due_us = now_us.saturating_sub(HELD_US).max(again_us);
        for _ in 0..PASSED_MOST {
            if works.len() >= most || self.held.front().is_none_or(|w| w.seen_us > due_us) {
                return;
            }
            let Some(mut work) = self.held.pop_front() else {
                return;
            };
            if work.seen_us > again_us && work.is_needed_by(&self.open) {
                work.seen_us = now_us;
                self.held.push_back(work);
            } else {
                works.push(work);
            }
        }
    }

    /// Works taken from `held`, of so many bytes, are kept for nobody any more as far as the sums tell.
    fn uncount(&mut self, work: &Work, (memory, disk): Bytes) {
        let Some(csn) = work.kept_for.filter(|_| memory > 0) else {
            return;
        };
        let sum = self.kept.get_mut(&csn).expect("it was counted");
        assert!(sum.0 >= memory && sum.1 >= disk, "more than was counted");
        *sum = (sum.0 - memory, sum.1 - disk);
        if *sum == (0, 0) {
            self.kept.remove(&csn);
        }
    }

    /// Works are put aside. Those that were taken at `taken_us` and not looked at come first again, in their order.
    fn hold(&mut self, works: Vec<(Work, Bytes)>, taken_us: u64) {
        let mut unseen = Vec::new();
        for (work, (memory, disk)) in works {
            if let Some(csn) = work.kept_for.filter(|_| memory > 0) {
                let sum = self.kept.entry(csn).or_default();
                *sum = (sum.0 + memory, sum.1 + disk);
            }
            match work.seen_us < taken_us {
                true => unseen.push(work),
                false => self.held.push_back(work),
            }
        }
        for work in unseen.into_iter().rev() {
            self.held.push_front(work);
        }
    }

    /// Something that is held was not looked at for a while.
    fn is_held_due(&self, now_us: u64, again_us: u64) -> bool {
        let due_us = now_us.saturating_sub(HELD_US).max(again_us);
        self.held.front().is_some_and(|w| w.seen_us <= due_us)
    }

    /// The first fresh works that end with a long value are out of a committer's way. Some of them are found at a time,
    /// each once.
    fn pass_long(&mut self) {
        for _ in 0..SHARED_MOST {
            let Some(first) = self.fresh.front() else {
                return;
            };
            if first.last_pieces(1, LONG_PAGES) > 0 {
                return;
            }
            debug_assert!(!first.pieces.is_empty(), "a work of nothing");
            let first = self.fresh.pop_front();
            self.long.extend(first);
        }
    }

    /// These works are worked on from now on; those from `held_from` on were held.
    fn batch(&mut self, works: Vec<Work>, held_from: usize, now_us: u64) -> Batch {
        debug_assert!(held_from <= works.len(), "{held_from} of {}", works.len());
        self.last_batch += 1;
        let id = self.last_batch;
        debug_assert!(
            works.iter().all(|work| !work.pieces.is_empty()),
            "of nothing"
        );
        let values: Vec<Values> = works
            .iter()
            .filter(|work| !work.values.get().is_empty())
            .map(|work| work.values.clone())
            .collect();
        if !values.is_empty() {
            let other = self.working.insert(id, values);
            assert!(other.is_none(), "batch {id} is worked on twice");
        }
        let oldest_us = works.iter().map(|work| work.left_us).min();
        self.out.push((id, oldest_us.unwrap_or(now_us)));
        Batch {
            id,
            works,
            held_from,
            // Nobody has looked at what is fresh, whenever it is taken.
            taken_us: now_us.max(1),
        }
    }
}

/// What commits left.
#[derive(Default)]
pub(crate) struct PurgeQueue {
    lists: Mutex<Lists>,
    /// Transactions in all lists and in work.
    length: AtomicUsize,
    /// Works that no helper has looked at.
    fresh: AtomicUsize,
    sleeping: AtomicUsize,
    /// Bytes of the values in `held`, in memory and on disk.
    held_memory: AtomicU64,
    held_disk: AtomicU64,
    /// What is held and was last looked at before that time, us, is due.
    look_again_us: AtomicU64,
    /// The time at the last tick of a background thread, us: commits ask no clock.
    now_us: AtomicU64,
    /// Ticks since a helper got over a piece.
    quiet_ticks: AtomicU64,
    /// Something was got over that will not have to be again, a piece, a leaf or a part of a value, so often.
    steps: AtomicU64,
    /// Nothing is cleaned up.
    held_back: AtomicBool,
    /// Leaves that entries were erased from when they were read, by a key of each. A leaf lock.
    sparse: Mutex<Vec<(IndexId, Vec<u8>)>>,
    event: Event,
    pub purged: AtomicU64,
    pub archived: AtomicU64,
    pub helped: AtomicU64,
}

impl PurgeQueue {
    pub(crate) fn new() -> PurgeQueue {
        let queue = PurgeQueue::default();
        queue.tick();
        queue
    }

    pub(crate) fn add(&self, txn: TxnId, mut pieces: Vec<Garbage>) {
        if pieces.is_empty() {
            return;
        }
        let left_us = self.now_us.load(Ordering::Relaxed);
        let mut more = Vec::new();
        while pieces.len() > PIECES_AT_ONCE {
            let part = pieces.split_off(pieces.len() - PIECES_AT_ONCE);
            more.push(Work::new(txn, part, false, left_us));
        }
        if !more.is_empty() {
            // It has had room for all.
            pieces.shrink_to_fit();
        }
        debug_assert!(more.iter().all(|work| work.pieces.len() == PIECES_AT_ONCE));
        let first = Work::new(txn, pieces, true, left_us);
        debug_assert!(!first.pieces.is_empty() && first.counts);
        // Counted first: who takes it takes it off the counts.
        self.length.fetch_add(1, Ordering::Relaxed);
        let added = 1 + more.len();
        let before = self.fresh.fetch_add(added, Ordering::Relaxed);
        {
            let mut lists = self.lists.lock();
            lists.fresh.push_back(first);
            lists.fresh.extend(more);
        }
        if before / WAKE != (before + added) / WAKE && self.sleeping.load(Ordering::Relaxed) > 0 {
            self.event.set();
        }
    }

    /// Leaves on which a transaction that has committed has left marks.
    pub(crate) fn add_leaves(&self, txn: TxnId, leaves: PageSet) {
        if leaves.is_empty() {
            return;
        }
        let left_us = self.now_us.load(Ordering::Relaxed);
        self.length.fetch_add(1, Ordering::Relaxed);
        self.lists.lock().sweeps.add(txn, leaves, left_us);
    }

    /// Takes up to `most` leaves to be visited.
    pub(crate) fn take_leaves(&self, most: usize) -> Option<Taken> {
        let mut lists = self.lists.lock();
        match lists.of_leaves < OF_LEAVES_MOST {
            true => lists.sweeps.take(most),
            false => None,
        }
    }

    /// Leaves were visited, but for some; of others pieces are left.
    pub(crate) fn put_leaves_back(
        &self,
        taken: Taken,
        (unvisited, left): (&[PageId], Vec<Garbage>),
        now_us: u64,
    ) {
        debug_assert!(left.len() + unvisited.len() <= taken.leaves.len());
        debug_assert!(left.len() <= PIECES_AT_ONCE, "{} pieces", left.len());
        let mut work = Work::new(taken.txn, left, false, taken.left_us);
        work.looked_at(now_us, true);
        let mut lists = self.lists.lock();
        let mut ended = lists.sweeps.put_back(taken, unvisited);
        if !work.pieces.is_empty() {
            // It stands for its transaction from now on.
            work.counts = std::mem::take(&mut ended);
            work.of_leaves = true;
            lists.of_leaves += 1;
            lists.waiting.push_back(work);
        }
        drop(lists);
        if ended {
            let before = self.length.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "more sweeps end than there were");
        }
    }

    /// Memory of what nobody has looked at, or what waits for short snapshots, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let lists = self.lists.lock();
        let works = lists.unseen().chain(&lists.waiting);
        let works: usize = works.map(|work| work.bytes).sum();
        (works + lists.sweeps.bytes()) as u64
    }

    /// A leaf, which is latched, has so few entries left that it may be merged with a neighbour. What
    /// does not fit the list is found when the leaf loses an entry again, or not.
    pub(crate) fn found_sparse(&self, index: IndexId, key: &[u8]) {
        let mut sparse = self.sparse.lock();
        if sparse.len() < SPARSE_MOST {
            sparse.push((index, key.to_vec()));
        }
        debug_assert!(sparse.len() <= SPARSE_MOST, "{} leaves", sparse.len());
    }

    pub(crate) fn take_sparse(&self) -> Vec<(IndexId, Vec<u8>)> {
        std::mem::take(&mut *self.sparse.lock())
    }

    /// Committed transactions not yet cleaned up.
    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// Committers have to help.
    #[inline]
    pub(crate) fn in_debt(&self) -> bool {
        self.fresh.load(Ordering::Relaxed) > DEBT && !self.is_held_back()
    }

    /// The time, us, as of the last tick: 50 ms ago at most.
    pub(crate) fn recent_us(&self) -> u64 {
        self.now_us.load(Ordering::Relaxed)
    }

    /// Tells the queue the time.
    pub(crate) fn tick(&self) {
        self.now_us.store(time::now_us(), Ordering::Relaxed);
        self.quiet_ticks.fetch_add(1, Ordering::Relaxed);
    }

    /// A helper has got over a piece, or over a part of one.
    #[inline]
    pub(crate) fn gets_on(&self) {
        if self.quiet_ticks.load(Ordering::Relaxed) > 0 {
            self.quiet_ticks.store(0, Ordering::Relaxed);
        }
    }

    /// See `steps`.
    #[inline]
    pub(crate) fn note_steps(&self, steps: u64) {
        self.steps.fetch_add(steps, Ordering::Relaxed);
    }

    /// See `steps`.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Of what was left until that time, us, is there something that nobody has looked at since then, or that is not put
    /// aside? False: another look would be in vain. Whoever asks has seen to it that all that is held is looked at.
    pub(crate) fn has_unseen(&self, since_us: u64) -> bool {
        let lists = self.lists.lock();
        let in_work = lists.out.iter().map(|(_, left_us)| *left_us);
        let mut left_us = lists
            .unseen()
            .chain(&lists.waiting)
            .map(|work| work.left_us)
            .chain(lists.sweeps.oldest_us())
            .chain(in_work);
        let first_held = lists.held.front();
        left_us.any(|left_us| left_us <= since_us)
            || first_held.is_some_and(|work| work.seen_us <= since_us)
    }

    /// How long the oldest work that nobody has cleaned up or put aside waits, us; some 50 ms
    /// more at most. What is held does not count.
    pub(crate) fn lag_us(&self) -> u64 {
        let lists = self.lists.lock();
        let oldest = lists.unseen().next().into_iter();
        let oldest = oldest.chain(lists.waiting.front());
        let oldest = oldest.map(|work| work.left_us);
        let oldest = oldest.chain(lists.sweeps.oldest_us()).min();
        oldest.map_or(0, |left_us| time::now_us().saturating_sub(left_us))
    }

    /// Holds all cleaning up back, or lets it go on: for measuring what it costs.
    pub(crate) fn hold_back(&self, hold: bool) {
        self.held_back.store(hold, Ordering::SeqCst);
        self.wake();
    }

    #[inline]
    pub(crate) fn is_held_back(&self) -> bool {
        self.held_back.load(Ordering::Relaxed)
    }

    /// Takes up to `most` pieces of an old work that nobody has looked at, with so many pages of values at most.
    /// Works that have a longer value at their end are passed over.
    pub(crate) fn take_share(&self, most: usize, pages: u64) -> Option<Batch> {
        assert!(most > 0, "a share of nothing");
        let mut lists = self.lists.lock();
        lists.pass_long();
        let fresh = lists.fresh.iter().enumerate().take(SHARED_MOST);
        let mut shares = fresh.map(|(at, work)| (at, work.last_pieces(most, pages)));
        let (at, count) = shares.find(|(_, count)| *count > 0)?;
        let work = &mut lists.fresh[at];
        let share = if work.pieces.len() > count {
            work.split_off(count)
        } else {
            let before = self.fresh.fetch_sub(1, Ordering::Relaxed);
            assert!(before > 0, "more works than were added");
            // Moves the few works before it.
            lists.fresh.remove(at)?
        };
        debug_assert!(share.pieces.len() == count && count <= most);
        assert!(share.pages() <= pages, "{} pages", share.pages());
        Some(lists.batch(vec![share], 1, 0))
    }

    /// Takes up to `most` works that are due: waiting ones whose time has come, then fresh ones, which
    /// have half the places if there are so many, then held ones that nobody has looked at for a while, which have
    /// an eighth at least.
    pub(crate) fn take(&self, now_us: u64, most: usize) -> Option<Batch> {
        self.take_within(now_us, most, BATCH_PAGES)
    }

    /// The same; `pages`: as many of waiting works' values, and of fresh ones', are enough.
    fn take_within(&self, now_us: u64, most: usize, pages: u64) -> Option<Batch> {
        let mut works = Vec::with_capacity(most.min(64));
        let mut lists = self.lists.lock();
        let due_us = now_us.saturating_sub(GRACE_US);
        let again_us = self.look_again_us.load(Ordering::Relaxed);
        let for_held = match lists.is_held_due(now_us, again_us) {
            true => most / HELD_SHARE,
            false => 0,
        };
        let unseen = lists.long.len() + lists.fresh.len();
        let left_free = for_held + unseen.min((most - for_held) / 2);
        let mut of_waiting = pages;
        let places = (most - left_free, &mut of_waiting);
        Lists::take_due(&mut lists.waiting, &mut works, places, due_us);
        let gone = lists.take_fresh(&mut works, (most - for_held, pages));
        let before = self.fresh.fetch_sub(gone, Ordering::Relaxed);
        assert!(before >= gone, "more works than were added");
        let held_from = works.len();
        lists.take_held(&mut works, most, (now_us, again_us));
        for work in &works[held_from..] {
            let (memory, disk) = work.held_bytes();
            lists.uncount(work, (memory, disk));
            let before = self.held_memory.fetch_sub(memory, Ordering::Relaxed);
            assert!(before >= memory, "more values are taken than were held");
            self.held_disk.fetch_sub(disk, Ordering::Relaxed);
        }
        if works.is_empty() {
            return None;
        }
        debug_assert!(works.len() <= most, "{} works of {most}", works.len());
        Some(lists.batch(works, held_from, now_us))
    }

    /// Is it time to look whether snapshots that need what is held are still open?
    pub(crate) fn is_held_due(&self, now_us: u64) -> bool {
        let again_us = self.look_again_us.load(Ordering::Relaxed);
        self.lists.lock().is_held_due(now_us, again_us)
    }

    /// These snapshots are open, by commit number; ascending.
    pub(crate) fn note_open(&self, open: Vec<Csn>) {
        debug_assert!(open.is_sorted(), "snapshots out of order");
        let before = std::mem::replace(&mut self.lists.lock().open, open);
        drop(before);
    }

    /// Puts what is left of a batch back.
    pub(crate) fn put_back(&self, batch: Batch) {
        let mut ended = 0;
        let mut of_leaves = 0;
        let mut waiting = Vec::new();
        let mut held = Vec::new();
        for mut work in batch.works {
            if work.of_leaves && (work.pieces.is_empty() || work.is_put_aside()) {
                work.of_leaves = false;
                of_leaves += 1;
            }
            if work.pieces.is_empty() {
                ended += usize::from(work.counts);
                continue;
            }
            debug_assert!(work.pieces.len() <= PIECES_AT_ONCE, "{}", work.pieces.len());
            work.settle();
            match work.is_put_aside() {
                true => {
                    let (memory, disk) = work.held_bytes();
                    self.held_memory.fetch_add(memory, Ordering::Relaxed);
                    self.held_disk.fetch_add(disk, Ordering::Relaxed);
                    held.push((work, (memory, disk)));
                }
                false => waiting.push(work),
            }
        }
        let done = {
            let mut lists = self.lists.lock();
            lists.waiting.extend(waiting);
            lists.hold(held, batch.taken_us);
            assert!(of_leaves <= lists.of_leaves, "more end than were left");
            lists.of_leaves -= of_leaves;
            let before = lists.out.len();
            lists.out.retain(|(id, _)| *id != batch.id);
            assert!(lists.out.len() + 1 == before, "a batch of nobody");
            lists.working.remove(&batch.id)
        };
        drop(done);
        let before = self.length.fetch_sub(ended, Ordering::Relaxed);
        assert!(before >= ended, "more works end than there were");
    }

    /// Bytes that values held for old snapshots take in memory, and on disk.
    pub(crate) fn held_bytes(&self) -> Bytes {
        let memory = self.held_memory.load(Ordering::Relaxed);
        (memory, self.held_disk.load(Ordering::Relaxed))
    }

    /// All that is held is looked at again from now on.
    pub(crate) fn look_at_held(&self) {
        self.look_again_us.store(time::now_us(), Ordering::Relaxed);
        self.quiet_ticks.store(0, Ordering::Relaxed);
        self.wake();
    }

    /// The part of [`PurgeQueue::held_bytes`] that these snapshots, which are open, are known to need; all of it if
    /// nobody finds out.
    pub(crate) fn needed_bytes(&self, open: &[Csn]) -> Bytes {
        debug_assert!(open.is_sorted(), "snapshots out of order");
        let lists = self.lists.lock();
        if self.is_stuck(&lists) {
            return self.held_bytes();
        }
        let is_open = |csn: &Csn| open.binary_search(csn).is_ok();
        let kept = lists.kept.iter().filter(|(csn, _)| is_open(csn));
        kept.fold((0, 0), |sum, (_, of)| (sum.0 + of.0, sum.1 + of.1))
    }

    /// No helper gets on, and not for want of work: what is held waits for a look.
    fn is_stuck(&self, lists: &Lists) -> bool {
        let long_ago_us = time::now_us().saturating_sub(STUCK_TICKS * TICK_US);
        let again_us = self.look_again_us.load(Ordering::Relaxed);
        self.quiet_ticks.load(Ordering::Relaxed) >= STUCK_TICKS
            && lists.is_held_due(long_ago_us, again_us)
    }

    /// Sleeps until there may be work, at most so long.
    pub(crate) fn wait(&self, us: u64) {
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        self.event.wait_timeout_us(us);
        let sleeping = self.sleeping.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(sleeping > 0, "more helpers wake than slept");
    }

    /// Wakes a sleeping helper.
    pub(crate) fn wake(&self) {
        self.event.set();
    }

    /// References of values still to be freed, for a checkpoint.
    pub(crate) fn pending_overflow(&self) -> Vec<Value> {
        let parts: Vec<Values> = {
            let lists = self.lists.lock();
            let all = lists.unseen().chain(&lists.waiting).chain(&lists.held);
            let values = all.map(|work| &work.values);
            let values = values.chain(lists.working.values().flatten());
            values.filter(|v| !v.get().is_empty()).cloned().collect()
        };
        parts
            .iter()
            .flat_map(|part| part.get().iter().copied())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::table::Table;
    use crate::testing::{create, open};
    use crate::Engine;
    use ferrite_io::sim::SimStorage;
    use ferrite_sync::Arc;
    use ferrite_types::OverflowRef;
    use std::collections::HashSet;

    fn database() -> (Arc<Engine>, Arc<Table>) {
        let engine = open(&SimStorage::new(3));
        let table = create(&engine);
        (engine, table)
    }

    fn values(table: &Arc<Table>, range: std::ops::Range<u64>) -> Vec<Garbage> {
        range.map(|n| value(table, n as u32, 1)).collect()
    }

    /// A value of so many pages.
    fn value(table: &Arc<Table>, n: u32, pages: u32) -> Garbage {
        let reference = OverflowRef::new(ferrite_types::PageId(n), pages, 1, 0);
        Garbage::overflow_of(table, reference)
    }

    fn pending(queue: &PurgeQueue) -> usize {
        let all = queue.pending_overflow();
        let different: HashSet<_> = all.iter().copied().collect();
        assert_eq!(different.len(), all.len(), "a value is in two places");
        all.len()
    }

    /// A checkpoint finds each value in one place, wherever it is, until it is freed.
    #[test]
    fn a_checkpoint_finds_each_value_once() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        let count = 5 * PIECES_AT_ONCE as u64 + 7;
        queue.add(TxnId(5), values(&table, 0..count));
        queue.add(TxnId(6), values(&table, count..count + 3));
        let all = count as usize + 3;
        assert_eq!((pending(&queue), queue.length()), (all, 2));
        let mut freed = 0;
        for round in 0..40u64 {
            let now_us = (round + 1) * 10 * HELD_US;
            let mut one = queue.take(now_us, 2);
            let two = queue.take(now_us, 3);
            assert_eq!(pending(&queue), all - freed, "round {round}, two batches");
            if let Some(two) = two {
                queue.put_back(two);
            }
            for work in one.iter_mut().flat_map(|batch| &mut batch.works) {
                assert!(work.pieces.len() <= PIECES_AT_ONCE);
                work.seen_us = now_us;
                let keep = work.pieces.len() / 2;
                freed += work.pieces.len() - keep;
                work.pieces.truncate(keep);
            }
            if let Some(one) = one {
                queue.put_back(one);
            }
            assert_eq!(pending(&queue), all - freed, "round {round}");
            if freed == all {
                break;
            }
        }
        assert_eq!((freed, queue.length()), (all, 0));
        assert!(queue.take(u64::MAX, 1).is_none());
        engine.close().unwrap();
    }

    /// Shares leave the rest where it is, and a checkpoint finds both.
    #[test]
    fn shares_are_taken_from_the_oldest_work() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        let count = PIECES_AT_ONCE as u64 + 10;
        queue.add(TxnId(5), values(&table, 0..count));
        queue.add(TxnId(6), values(&table, count..count + 3));
        let mut left = count as usize + 3;
        while let Some(mut share) = queue.take_share(4, 64) {
            assert_eq!(pending(&queue), left);
            let pieces = std::mem::take(&mut share.works[0].pieces);
            assert!((1..=4).contains(&pieces.len()), "{}", pieces.len());
            left -= pieces.len();
            queue.put_back(share);
            assert_eq!(pending(&queue), left);
        }
        assert_eq!((left, queue.length()), (0, 0));
        assert_eq!(queue.fresh.load(Ordering::Relaxed), 0);
        engine.close().unwrap();
    }

    /// A committer frees no long value: what lies before one in a work stays for the helpers, other works do not.
    #[test]
    fn no_share_has_a_long_value() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        let value = |n, pages| value(&table, n, pages);
        queue.add(TxnId(5), vec![value(1, 1), value(2, 65)]);
        queue.add(TxnId(6), vec![value(3, 65), value(4, 40), value(5, 30)]);
        queue.add(TxnId(7), entries(&table, 3));
        let share = |most| {
            let batch = queue.take_share(most, 64)?;
            let taken = (batch.works[0].txn.get(), batch.size());
            assert_eq!(pending(&queue), 5, "a checkpoint finds all");
            queue.put_back(batch);
            Some(taken)
        };
        assert_eq!(share(9), Some((6, (1, 30))));
        assert_eq!(share(9), Some((6, (1, 40))));
        assert_eq!(share(2), Some((7, (2, 0))));
        assert_eq!(share(9), Some((7, (1, 0))));
        assert_eq!(share(9), None);
        assert_eq!(queue.fresh.load(Ordering::Relaxed), 2);
        engine.close().unwrap();
    }

    /// Long values of others at the queue's head keep committers from no share behind them.
    #[test]
    fn a_share_is_found_behind_long_values() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        for n in 1..=100 {
            queue.add(TxnId(5), vec![value(&table, n, 65)]);
        }
        queue.add(TxnId(6), entries(&table, 3));
        let looks = (1..).find(|_| queue.take_share(9, 64).is_some());
        assert!(looks.unwrap() <= 100 / SHARED_MOST + 1, "{looks:?} looks");
        let taken = queue.take(1, 30).unwrap();
        assert_eq!(taken.works.len(), 30);
        queue.add(TxnId(7), entries(&table, 3));
        assert!(queue.take_share(9, 64).is_some(), "passed over too many");
        assert_eq!(queue.fresh.load(Ordering::Relaxed), 70);
        engine.close().unwrap();
    }

    /// What a small commit does under the mutex does not grow with the works that it has passed over.
    #[test]
    fn a_share_behind_many_long_values_moves_few_works() {
        const SMALL: u32 = 10_000;
        let (engine, table) = database();
        let cost = |long: u32| {
            let queue = PurgeQueue::new();
            (0..long).for_each(|n| queue.add(TxnId(5), vec![value(&table, n + 1, 65)]));
            (0..SMALL).for_each(|_| queue.add(TxnId(6), entries(&table, 1)));
            while queue.take_share(9, 64).is_none() {}
            let before = time::now_us();
            (1..SMALL).for_each(|_| drop(queue.take_share(9, 64).expect("one is left")));
            let took_us = time::now_us() - before;
            assert!(queue.take_share(9, 64).is_none());
            assert_eq!(queue.fresh.load(Ordering::Relaxed), long as usize);
            assert_eq!(pending(&queue), long as usize, "a checkpoint finds all");
            took_us
        };
        let best = |long| (0..3).map(|_| cost(long)).min().unwrap_or(0);
        let (none, many) = (best(0), best(SMALL));
        assert!(
            many < 10 * (none + 1000),
            "{none} us without long values, {many} us behind {SMALL}"
        );
        engine.close().unwrap();
    }

    /// Works that committers have passed over are the oldest ones all the same.
    #[test]
    fn works_passed_over_come_first() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        (1..=3).for_each(|n| queue.add(TxnId(n.into()), vec![value(&table, n, 65)]));
        queue.add(TxnId(4), entries(&table, 2));
        queue.add(TxnId(5), vec![value(&table, 5, 65)]);
        assert!(queue.take_share(1, 64).is_some());
        let all = queue.memory_bytes();
        let seen =
            |batch: &Batch| -> Vec<u64> { batch.works.iter().map(|work| work.txn.get()).collect() };
        let first = queue.take_within(1, 2, u64::MAX).unwrap();
        assert_eq!(seen(&first), [1, 2]);
        assert!(queue.memory_bytes() < all && pending(&queue) == 4);
        assert_eq!(seen(&queue.take(1, 64).unwrap()), [3, 4, 5]);
        assert_eq!(queue.fresh.load(Ordering::Relaxed), 0);
        engine.close().unwrap();
    }

    /// A work of many long values is no batch, however many pages they have.
    #[test]
    fn a_work_of_long_values_comes_in_parts() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        let long = |n| value(&table, n, BATCH_PAGES as u32 / 4);
        queue.add(TxnId(5), (1..=10).map(long).collect());
        let sizes: Vec<usize> = (0..3)
            .map(|_| queue.take(1, 64).unwrap().size().0)
            .collect();
        assert_eq!(sizes, [4, 4, 2]);
        assert_eq!(queue.fresh.load(Ordering::Relaxed), 0);
        engine.close().unwrap();
    }

    /// What an old snapshot needs is looked at in turn, a batch at a time, and not again at once.
    #[test]
    fn what_is_held_comes_in_batches() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        let works = 20;
        let count = (works * PIECES_AT_ONCE) as u64;
        queue.add(TxnId(5), values(&table, 0..count));
        for now_us in [1, 2 * HELD_US, 4 * HELD_US] {
            let mut taken = 0;
            while let Some(mut batch) = queue.take(now_us, 8) {
                assert!(batch.works.len() <= 8, "a batch has a limit");
                taken += batch.works.len();
                batch.works.iter_mut().for_each(|w| w.seen_us = now_us);
                queue.put_back(batch);
            }
            assert_eq!(taken, works, "each once");
        }
        engine.close().unwrap();
    }

    /// Few works are a batch if their values are long, of each kind as many.
    #[test]
    fn long_values_come_in_small_batches() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        let long = |n| vec![value(&table, n, BATCH_PAGES as u32 / 2)];
        let add = |range: std::ops::Range<u32>| {
            range.for_each(|n| queue.add(TxnId(u64::from(n)), long(n)));
        };
        let look = |now_us| {
            let mut batch = queue.take(now_us, 64).unwrap();
            let seen: Vec<u64> = batch.works.iter().map(|w| w.txn.get()).collect();
            for work in &mut batch.works {
                // There was no log for it; an entry keeps it from being put aside.
                work.pieces.extend(entries(&table, 1));
                work.looked_at(now_us, false);
            }
            queue.put_back(batch);
            seen
        };
        add(1..6);
        assert_eq!(look(1), [1, 2]);
        assert_eq!(look(2), [3, 4]);
        add(6..8);
        assert_eq!(look(3 + GRACE_US), [1, 2, 5, 6]);
        assert_eq!(pending(&queue), 7);
        engine.close().unwrap();
    }

    fn entries(table: &Arc<Table>, count: usize) -> Vec<Garbage> {
        let piece = |_| Garbage::entry(table, 0, b"k", true);
        (0..count).map(piece).collect()
    }

    /// What open snapshots are known to need is not looked at until one of them ends, unless all is asked for.
    #[test]
    fn what_open_snapshots_need_is_passed_over() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        queue.add(TxnId(5), values(&table, 0..3));
        let now_us = |n: u64| n * 2 * HELD_US;
        let look = |n: u64, open: &[u64]| {
            queue.note_open(open.iter().copied().map(Csn).collect());
            let Some(mut batch) = queue.take(now_us(n), 8) else {
                return false;
            };
            batch.works[0].looked_at(now_us(n), true);
            batch.works[0].needed_by = vec![Csn(7), Csn(9)];
            queue.put_back(batch);
            true
        };
        assert!(look(1, &[]), "nobody knows yet");
        for n in 2..5 {
            assert!(!look(n, &[3, 7, 9, 12]), "looked at in vain");
        }
        assert!(look(5, &[3, 7, 12]), "a snapshot has ended");
        assert!(!look(6, &[7, 9]));
        queue.look_again_us.store(now_us(6), Ordering::Relaxed);
        assert!(look(7, &[7, 9]), "all is asked for");
        assert!(!look(8, &[7, 9]));
        engine.close().unwrap();
    }

    /// A queue whose works, of a value each, by these transactions, are held and were looked at, at 1 us.
    fn held_works(table: &Arc<Table>, txns: std::ops::Range<u64>) -> PurgeQueue {
        let queue = PurgeQueue::new();
        txns.for_each(|n| queue.add(TxnId(n), vec![value(table, n as u32, 1)]));
        while let Some(mut batch) = queue.take(1, 64) {
            batch.works.iter_mut().for_each(|w| w.looked_at(1, true));
            queue.put_back(batch);
        }
        queue
    }

    fn txns_of(batch: &Batch) -> Vec<u64> {
        batch.works.iter().map(|w| w.txn.get()).collect()
    }

    /// However much is left by commits, what is held is looked at.
    #[test]
    fn what_is_held_has_places_beside_what_is_fresh() {
        let (engine, table) = database();
        let queue = held_works(&table, 1..21);
        let mut seen = HashSet::new();
        let now_us = 2 * HELD_US;
        for _ in 0..3 {
            (0..100).for_each(|n| queue.add(TxnId(100 + n), entries(&table, 1)));
            let mut batch = queue.take(now_us, 64).unwrap();
            assert!(batch.works.len() <= 64 && batch.is_full(64));
            let held = batch.works.drain(batch.held_from..);
            held.for_each(|w| assert!(seen.insert(w.txn.get()), "again"));
            assert!(batch.works.iter().all(|w| w.seen_us == 0));
        }
        assert_eq!(seen, (1..21).collect());
        // None is due: others have all places.
        let queue = held_works(&table, 1..21);
        (0..100).for_each(|n| queue.add(TxnId(100 + n), entries(&table, 1)));
        let batch = queue.take(2, 64).unwrap();
        assert_eq!((batch.works.len(), batch.held_from), (64, 64));
        engine.close().unwrap();
    }

    /// What was in a batch that was broken off is the first in the next one, in its order.
    #[test]
    fn what_nobody_looked_at_comes_first_again() {
        let (engine, table) = database();
        let queue = held_works(&table, 1..6);
        let now_us = 2 * HELD_US;
        let mut batch = queue.take(now_us, 3).unwrap();
        assert_eq!(txns_of(&batch), [1, 2, 3]);
        batch.works[0].looked_at(now_us, true);
        queue.put_back(batch);
        assert_eq!(txns_of(&queue.take(now_us, 9).unwrap()), [2, 3, 4, 5]);
        // The same of works that came to be held unseen.
        let queue = PurgeQueue::new();
        queue.add(TxnId(7), vec![value(&table, 7, 1)]);
        let batch = queue.take(1, 9).unwrap();
        queue.put_back(batch);
        assert_eq!(txns_of(&queue.take(1, 9).unwrap()), [7]);
        engine.close().unwrap();
    }

    /// Values count in the limits while a snapshot that needs them is open, from the look that told so to the next.
    #[test]
    fn what_counts_is_what_open_snapshots_need() {
        let (engine, table) = database();
        let queue = held_works(&table, 1..4);
        let all = queue.held_bytes();
        let one = (all.0 / 3, all.1 / 3);
        assert!(one.0 > 0 && one.1 > 0);
        let needed = |open: &[u64]| {
            let open: Vec<Csn> = open.iter().copied().map(Csn).collect();
            queue.needed_bytes(&open)
        };
        assert_eq!(needed(&[7, 8, 9]), (0, 0), "nobody knows of any");
        let now_us = 2 * HELD_US;
        let mut batch = queue.take(now_us, 9).unwrap();
        for (work, csn) in batch.works.iter_mut().zip([7, 9]) {
            work.looked_at(now_us, true);
            work.kept_for = Some(Csn(csn));
        }
        assert_eq!((queue.held_bytes(), needed(&[7, 9])), ((0, 0), (0, 0)));
        queue.put_back(batch);
        let two = (2 * one.0, 2 * one.1);
        assert_eq!(queue.held_bytes(), all);
        assert_eq!([needed(&[7, 8, 9]), needed(&[3, 7])], [two, one]);
        // However long purge takes with others, what was of snapshots that have ended counts for none that is open.
        queue.look_at_held();
        for _ in 0..2 * STUCK_TICKS {
            queue.tick();
            queue.gets_on();
        }
        assert_eq!([needed(&[9]), needed(&[8])], [one, (0, 0)]);
        // Where it does not get on, all counts.
        (0..STUCK_TICKS).for_each(|_| queue.tick());
        assert_eq!([needed(&[9]), needed(&[])], [all, all]);
        queue.gets_on();
        assert_eq!(needed(&[9]), one);
        let mut batch = queue.take(2 * now_us, 9).unwrap();
        assert_eq!((batch.works.len(), needed(&[7, 9])), (3, (0, 0)));
        batch.works.iter_mut().for_each(|w| w.kept_for = None);
        queue.put_back(batch);
        assert_eq!(needed(&[7, 9]), (0, 0));
        assert!(queue.lists.lock().kept.is_empty(), "sums of nothing");
        engine.close().unwrap();
    }

    /// What was put back leaves room for what nobody has looked at yet.
    #[test]
    fn fresh_works_do_not_wait_for_those_put_back() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        let look = |now_us, most| {
            let mut batch = queue.take(now_us, most).unwrap();
            let seen: Vec<u64> = batch.works.iter().map(|w| w.txn.get()).collect();
            let looked_at = |w: &mut Work| w.looked_at(now_us, true);
            batch.works.iter_mut().for_each(looked_at);
            queue.put_back(batch);
            seen
        };
        for n in 0..8 {
            queue.add(TxnId(10 + n), entries(&table, 1));
        }
        assert_eq!(look(1, 8).len(), 8);
        for n in 0..8 {
            queue.add(TxnId(20 + n), entries(&table, 1));
        }
        assert_eq!(look(1 + GRACE_US, 8), [10, 11, 12, 13, 20, 21, 22, 23]);
        assert_eq!(look(2 + GRACE_US, 8), [14, 15, 16, 17, 24, 25, 26, 27]);
        assert_eq!(queue.length(), 16);
        engine.close().unwrap();
    }

    /// What was looked at in vain when its time had come is not tried again and again.
    #[test]
    fn what_stays_is_put_aside() {
        let (engine, table) = database();
        let queue = PurgeQueue::new();
        queue.add(TxnId(5), entries(&table, 3));
        let mut at = Vec::new();
        let mut whole = false;
        for now_us in (GRACE_US..3 * HELD_US).step_by(GRACE_US as usize) {
            let Some(mut batch) = queue.take(now_us, 8) else {
                continue;
            };
            at.push(now_us / GRACE_US);
            // The first time there was no frame for it.
            batch.works[0].looked_at(now_us, whole);
            whole = true;
            queue.put_back(batch);
        }
        let pause = HELD_US / GRACE_US;
        assert_eq!(at, [1, 2, 3, 3 + pause, 3 + 2 * pause]);
        assert_eq!(queue.length(), 1);
        engine.close().unwrap();
    }

    /// What is done under the mutex that commits need does not grow with the values in a batch:
    /// the works it moves do not either.
    #[test]
    fn taking_and_putting_back_costs_the_same_for_each_value() {
        let (engine, table) = database();
        let cost = |count: u64| {
            let queue = PurgeQueue::new();
            queue.add(TxnId(5), values(&table, 0..count));
            let before = time::now_us();
            let batch = queue.take_within(1, usize::MAX >> 16, u64::MAX);
            queue.put_back(batch.unwrap());
            time::now_us() - before
        };
        let best = |count| (0..3).map(|_| cost(count)).min().unwrap_or(0);
        let (few, many) = (best(4_000), best(40_000));
        assert!(
            many < 50 * (few + 100),
            "{few} us for n, {many} us for 10 n"
        );
        engine.close().unwrap();
    }
}
