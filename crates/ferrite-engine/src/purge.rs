//! Cleaning up after commits: entries that stay delete-marked, and values out of line that
//! nobody names any more.
//!
//! A commit leaves its list here. A helper thread takes it up within 20 ms: what no snapshot needs
//! goes, though an old snapshot be open; what one needs waits [`GRACE_US`], for most snapshots
//! are short. After that an entry moves to its index's graveyard, and a value is held until
//! its snapshots are gone. So nothing queues behind an old snapshot. When the helpers cannot
//! keep up, committers clean up too, in proportion to what they leave.
//!
//! A crash loses the list: delete-marked entries are then found by whoever scans past them or
//! needs room on their page, overflow values through the commit records.
//!
//! Locking: `lists` is a leaf, never held over work on pages.

use crate::engine::Engine;
use crate::table::Table;
use crate::undo::NO_UNDO;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{time, Arc, Event, Mutex};
use ferrite_tree::op::{GC_FREEZE, GC_REMOVE};
use ferrite_tree::{is_worth_merging, node, LeafMut, Scratch};
use ferrite_types::{IndexId, PageId, Result, TxnId};
use std::collections::VecDeque;
use std::ops::Range;

/// Transactions taken from the queue at a time.
const BATCH: usize = 64;
/// How long what a snapshot needs stays where it is, in us.
const GRACE_US: u64 = 20_000;
/// A helper that sleeps is woken by every so many transactions in the queue; it looks by
/// itself every 20 ms.
const WAKE: usize = 16;
/// Transactions in the queue beyond which committers help.
const DEBT: usize = 2048;
/// Batches a committer cleans up then: twice what it leaves.
const DEBT_BATCH: usize = 2;
/// Readers do not add to a queue longer than this.
const FOUND_MOST: usize = 256;
/// How often what is held is looked at again, in us.
const HELD_US: u64 = 500_000;

/// One piece of work a commit leaves.
pub enum Garbage {
    /// A delete-marked entry.
    Entry {
        /// Its table.
        table: Arc<Table>,
        /// Index number.
        number: u16,
        /// Whole key.
        key: Box<[u8]>,
        /// Nothing else on its page is meant.
        alone: bool,
    },
    /// A value out of line.
    Overflow {
        /// Its table.
        table: Arc<Table>,
        /// Its reference.
        reference: [u8; 16],
    },
}

impl Garbage {
    pub(crate) fn entry(table: &Arc<Table>, number: usize, key: &[u8], alone: bool) -> Garbage {
        Garbage::Entry {
            table: table.clone(),
            number: number as u16,
            key: key.into(),
            alone,
        }
    }

    pub(crate) fn overflow_of(table: &Arc<Table>, reference: [u8; 16]) -> Garbage {
        Garbage::Overflow {
            table: table.clone(),
            reference,
        }
    }

    /// Clustered index and reference of a value out of line.
    pub(crate) fn overflow(&self) -> Option<(IndexId, &[u8; 16])> {
        match self {
            Garbage::Overflow { table, reference } => Some((table.tree(0).index(), reference)),
            Garbage::Entry { .. } => None,
        }
    }
}

/// What one commit left, or the rest of it.
struct Work {
    txn: TxnId,
    pieces: Vec<Garbage>,
    /// When it was left, us, as far as `now_us` tells.
    left_us: u64,
    /// When it was first looked at, us; 0: not yet.
    seen_us: u64,
}

#[derive(Default)]
struct Lists {
    /// Not looked at yet, oldest first.
    fresh: VecDeque<Work>,
    /// Needed by some snapshot when it was looked at.
    waiting: VecDeque<Work>,
    /// Values that an old snapshot needs.
    held: Vec<Work>,
    held_looked_us: u64,
}

/// What commits left.
#[derive(Default)]
pub(crate) struct PurgeQueue {
    lists: Mutex<Lists>,
    /// Transactions in all lists and in work.
    length: AtomicUsize,
    /// Of these, those no helper has looked at.
    fresh: AtomicUsize,
    sleeping: AtomicUsize,
    /// The time at the last tick of a background thread, us: commits ask no clock.
    now_us: AtomicU64,
    /// Nothing is cleaned up.
    held_back: AtomicBool,
    event: Event,
    pub purged: AtomicU64,
    pub buried: AtomicU64,
    pub helped: AtomicU64,
    /// Overflow values of the batches in work: a checkpoint must not miss them.
    working: Mutex<Vec<(IndexId, [u8; 16])>>,
}

impl PurgeQueue {
    pub(crate) fn new() -> PurgeQueue {
        let queue = PurgeQueue::default();
        queue.tick();
        queue
    }

    pub(crate) fn add(&self, txn: TxnId, pieces: Vec<Garbage>) {
        // Counted first: who takes it takes it off the counts.
        self.length.fetch_add(1, Ordering::Relaxed);
        let fresh = self.fresh.fetch_add(1, Ordering::Relaxed) + 1;
        self.lists.lock().fresh.push_back(Work {
            txn,
            pieces,
            left_us: self.now_us.load(Ordering::Relaxed),
            seen_us: 0,
        });
        if fresh % WAKE == 0 && self.sleeping.load(Ordering::Relaxed) > 0 {
            self.event.set();
        }
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

    /// Tells the queue the time.
    pub(crate) fn tick(&self) {
        self.now_us.store(time::now_us(), Ordering::Relaxed);
    }

    /// How long the oldest work that nobody has cleaned up or put aside waits, us; some 50 ms
    /// more at most. Values that an old snapshot needs do not count.
    pub(crate) fn lag_us(&self) -> u64 {
        let lists = self.lists.lock();
        let oldest = [lists.fresh.front(), lists.waiting.front()];
        let oldest = oldest.into_iter().flatten().map(|work| work.left_us).min();
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

    /// Takes what is due: waiting work whose time has come, then fresh work.
    fn take(&self, now_us: u64, most: usize) -> Vec<Work> {
        let mut batch = Vec::with_capacity(most);
        let mut lists = self.lists.lock();
        while batch.len() < most
            && lists
                .waiting
                .front()
                .is_some_and(|w| w.seen_us + GRACE_US <= now_us)
        {
            batch.extend(lists.waiting.pop_front());
        }
        let waited = batch.len();
        while batch.len() < most && !lists.fresh.is_empty() {
            batch.extend(lists.fresh.pop_front());
        }
        self.fresh
            .fetch_sub(batch.len() - waited, Ordering::Relaxed);
        if batch.len() < most && now_us >= lists.held_looked_us + HELD_US {
            lists.held_looked_us = now_us;
            batch.append(&mut lists.held);
        }
        // Under the lists, so that a checkpoint finds each value in one place or the other.
        self.working.lock().extend(overflow_values(&batch));
        batch
    }

    /// Puts what is left of a batch back; `values` were in it.
    fn put_back(&self, batch: Vec<Work>, values: &[(IndexId, [u8; 16])]) {
        let mut ended = 0;
        let mut lists = self.lists.lock();
        for work in batch {
            let only_values = work.pieces.iter().all(|p| p.overflow().is_some());
            match work.pieces.is_empty() {
                true => ended += 1,
                false if only_values => lists.held.push(work),
                false => lists.waiting.push_back(work),
            }
        }
        if !values.is_empty() {
            self.working.lock().retain(|v| !values.contains(v));
        }
        drop(lists);
        self.length.fetch_sub(ended, Ordering::Relaxed);
    }

    /// Sleeps until there may be work, at most so long.
    pub(crate) fn wait(&self, us: u64) {
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        self.event.wait_timeout_us(us);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes a sleeping helper.
    pub(crate) fn wake(&self) {
        self.event.set();
    }

    /// References of values still to be freed, for a checkpoint.
    pub(crate) fn pending_overflow(&self) -> Vec<(IndexId, [u8; 16])> {
        let lists = self.lists.lock();
        let all = lists.fresh.iter().chain(&lists.waiting).chain(&lists.held);
        let mut values: Vec<_> = all
            .flat_map(|work| &work.pieces)
            .filter_map(|g| g.overflow().map(|(i, r)| (i, *r)))
            .collect();
        values.extend_from_slice(&self.working.lock());
        values
    }
}

fn overflow_values(batch: &[Work]) -> Vec<(IndexId, [u8; 16])> {
    batch
        .iter()
        .flat_map(|work| &work.pieces)
        .filter_map(|g| g.overflow().map(|(i, r)| (i, *r)))
        .collect()
}

impl Engine {
    /// One round of cleaning up. Returns pieces done.
    pub(crate) fn purge_round(&self, scratch: &mut Scratch) -> usize {
        self.purge_batch(BATCH, scratch)
    }

    /// A reader passed over delete-marks that nobody needs: left by a crash, or once kept by a
    /// lock.
    #[cold]
    pub(crate) fn found_garbage(&self, table: &Arc<Table>, number: usize, key: &[u8]) {
        if self.purge.length() < FOUND_MOST {
            let piece = Garbage::entry(table, number, key, false);
            self.purge.add(TxnId::FROZEN, vec![piece]);
            self.purge.wake();
        }
    }

    /// A committer's share of the work, when the helpers are behind.
    #[cold]
    pub(crate) fn pay_debt(&self, scratch: &mut Scratch) {
        self.purge.helped.fetch_add(1, Ordering::Relaxed);
        self.purge_batch(DEBT_BATCH, scratch);
    }

    fn purge_batch(&self, most: usize, scratch: &mut Scratch) -> usize {
        let now_us = time::now_us();
        let mut batch = self.purge.take(now_us, most);
        if batch.is_empty() {
            return 0;
        }
        let values = overflow_values(&batch);
        let mut done = 0;
        for work in &mut batch {
            let due = work.seen_us != 0;
            let txn = work.txn;
            work.pieces.retain(|piece| {
                let gone = self
                    .purge_piece(txn, piece, due, scratch)
                    .unwrap_or_else(|e| {
                        let text = format!("cleanup after commit: {e}");
                        self.callbacks.log(crate::LogLevel::Warning, &text);
                        true
                    });
                done += usize::from(gone);
                !gone
            });
            work.seen_us = now_us;
        }
        self.purge.put_back(batch, &values);
        self.purge.purged.fetch_add(done as u64, Ordering::Relaxed);
        done
    }

    /// True when the piece is done with. `due`: what is needed by a snapshot is buried now.
    fn purge_piece(
        &self,
        txn: TxnId,
        piece: &Garbage,
        due: bool,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        match piece {
            Garbage::Entry {
                table,
                number,
                key,
                alone,
            } => {
                let _use = table.in_use.read();
                if table.dropped.load(Ordering::SeqCst) {
                    return Ok(true);
                }
                let clean = Clean {
                    freeze: false,
                    bury: due,
                };
                self.purge_entry(table, *number as usize, key, *alone, clean, scratch)
            }
            Garbage::Overflow { table, reference } => {
                let _use = table.in_use.read();
                if table.dropped.load(Ordering::SeqCst) {
                    return Ok(true);
                }
                if !self.txns.visible_to_all(txn)
                    && !ferrite_sync::mutant!("purge.free_values_early")
                {
                    let made_by = self.overflow_maker(reference)?;
                    if self.txns.version_needed(made_by, txn) {
                        return Ok(false);
                    }
                }
                self.free_overflow(table.tree(0).index(), reference)?;
                Ok(true)
            }
        }
    }

    /// Cleans the leaf of that key, or of the key alone; false if something has to stay for
    /// now: a snapshot needs it, or the key anchors somebody's lock.
    fn purge_entry(
        &self,
        table: &Arc<Table>,
        number: usize,
        key: &[u8],
        alone: bool,
        clean: Clean,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let tree = table.tree(number);
        let mut leaf = tree.leaf_mut(key, PageId::NONE)?;
        let slots = match leaf.find(key) {
            _ if !alone => 0..leaf.count(),
            Ok(slot) => slot..slot + 1,
            Err(_) => return Ok(true),
        };
        let (_, left) = self.clean_leaf(table, number, &mut leaf, slots, scratch, clean);
        let sparse = is_worth_merging(&leaf);
        drop(leaf);
        if sparse {
            tree.merge_at(key, NO_UNDO)?;
        }
        Ok(!left)
    }

    /// Removes delete-marked records that nobody needs from those slots and, if asked, buries
    /// those that old snapshots need and drops the stamps of records everybody sees. Returns
    /// bytes gained, and whether a committed delete-mark is left.
    pub(crate) fn clean_leaf(
        &self,
        table: &Table,
        number: usize,
        leaf: &mut LeafMut<'_>,
        slots: Range<usize>,
        scratch: &mut Scratch,
        clean: Clean,
    ) -> (usize, bool) {
        let index = table.tree(number).index();
        let before = node::free_bytes(leaf);
        let mut left = false;
        let mut actions: Vec<(u16, u8)> = Vec::new();
        let mut key = Vec::new();
        for slot in slots {
            let header = leaf.record(slot).header;
            if !header.deleted {
                if clean.freeze && !header.txn.is_frozen() && self.txns.visible_to_all(header.txn) {
                    actions.push((slot as u16, GC_FREEZE));
                }
                continue;
            }
            if !self.txns.is_committed(header.txn) {
                continue;
            }
            key.clear();
            node::key_into(leaf, slot, &mut key);
            if !self.locks.is_anchor(index, &key)
                && self.may_remove(table, number, leaf, slot, &key, clean.bury)
            {
                actions.push((slot as u16, GC_REMOVE));
            } else {
                left = true;
            }
        }
        if actions.is_empty() {
            return (0, left);
        }
        leaf.gc(NO_UNDO, &actions, scratch);
        (node::free_bytes(leaf) - before, left)
    }

    /// May the delete-marked record in the slot leave the tree? If an old snapshot needs it
    /// and `bury` is set, it is in the graveyard on return.
    fn may_remove(
        &self,
        table: &Table,
        number: usize,
        leaf: &LeafMut<'_>,
        slot: usize,
        key: &[u8],
        bury: bool,
    ) -> bool {
        let rec = leaf.record(slot);
        if self.txns.visible_to_all(rec.header.txn)
            || ferrite_sync::mutant!("purge.ignore_snapshots")
        {
            return true;
        }
        if !self.needed_by_snapshots(&rec.header) {
            // Its versions go with it.
            self.keep_needed(&mut rec.header.clone(), rec.value);
            return true;
        }
        if !bury {
            return false;
        }
        let mut header = rec.header;
        if self.keep_needed(&mut header, rec.value) && !ferrite_sync::mutant!("purge.lose_grave") {
            let newest = self.txns.last_csn();
            table.graveyards[number].bury(key, header, rec.value, newest);
            self.purge.buried.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Lets go of graves that no snapshot needs any more; how many.
    pub(crate) fn sweep_graveyards(&self) -> u64 {
        let mut gone = 0;
        for table in self.dict.open_tables() {
            for graveyard in &table.graveyards {
                gone += graveyard.sweep(self);
            }
        }
        gone
    }
}

/// What is to be done besides removing what nobody needs.
#[derive(Clone, Copy)]
pub(crate) struct Clean {
    /// Drop the stamps of records everybody sees.
    pub freeze: bool,
    /// Move what only snapshots need to the graveyard.
    pub bury: bool,
}
