//! What the lock table shows of itself: locks, waits, counters.
//!
//! Locking: shard by shard, copied out under the mutex and handed on without it; the
//! picture is exact per key, not across keys.

use std::collections::BTreeMap;

use ferrite_sync::atomic::Ordering;
use ferrite_sync::{Arc, Histogram};
use ferrite_types::{IndexId, TableId, TxnId};

use crate::mode::{words, Mask};
use crate::owner::Owner;
use crate::queue::Queue;
use crate::table::LockTable;
use crate::table_locks::{table_of, words_of, TABLES};

/// Of so many in a waiter's way each is told: a line of a thousand has half a million pairs.
const BLOCKERS_SHOWN: usize = 16;

/// Counters and sizes at one moment.
#[derive(Clone, Debug)]
pub struct LockStats {
    /// Waits begun.
    pub waits: u64,
    /// Microseconds spent in waits that ended.
    pub wait_us_total: u64,
    /// The longest of them (us).
    pub wait_us_max: u64,
    /// 99 of 100 waits were not longer (us, upper bound of a power of two).
    pub wait_us_p99: u64,
    /// Cycles broken.
    pub deadlocks: u64,
    /// Waits that ran out of time.
    pub timeouts: u64,
    /// Waits ended by KILL.
    pub interrupts: u64,
    /// Owners waiting now.
    pub waiting: u64,
    /// Keys (and table stripes) with locks now; a set counts with its locks.
    pub keys: u64,
    /// Memory in use (bytes, accounted).
    pub bytes: u64,
}

/// One lock or request.
#[derive(Clone, Debug)]
pub struct LockInfo {
    /// The owner's transaction; frozen (0) while it has changed nothing.
    pub txn: TxnId,
    /// The owner's connection.
    pub thread_id: u64,
    /// The index; 0 for a table lock.
    pub index: IndexId,
    /// The key; empty for a table lock.
    pub key: Vec<u8>,
    /// A range from `key` to this one; empty: the one key.
    pub until: Vec<u8>,
    /// A set of so many record locks; their keys are not known. 0: no set.
    pub records: u64,
    /// The table, for a table lock. One row per stripe.
    pub table: Option<TableId>,
    /// InnoDB's words: `X`, `S,GAP`, `X,REC_NOT_GAP`, `X,GAP,INSERT_INTENTION`, `IX`, `AUTO_INC` ...
    pub mode: &'static str,
    /// Not granted yet.
    pub waiting: bool,
}

/// Somebody waits for somebody.
#[derive(Clone, Debug)]
pub struct WaitEdge {
    /// What is asked for.
    pub wanted: LockInfo,
    /// Clock (us) since when.
    pub since_us: u64,
    /// Who is in the way: transaction and connection.
    pub blocker_txn: TxnId,
    /// The blocker's connection.
    pub blocker_thread_id: u64,
}

fn info(q: &Queue, owner: &Owner, mask: crate::mode::Mask, waiting: bool) -> LockInfo {
    let table = (q.index == TABLES).then(|| table_of(&q.key)).flatten();
    LockInfo {
        txn: owner.txn_id(),
        thread_id: owner.thread_id,
        index: q.index,
        key: if table.is_some() {
            Vec::new()
        } else {
            q.key.clone()
        },
        until: Vec::new(),
        records: 0,
        table,
        mode: words_of(q.index, &q.key, mask),
        waiting,
    }
}

/// Sets of one owner, index and mode, and how many locks they are.
type SetSizes = BTreeMap<(usize, IndexId, Mask), (Arc<Owner>, u64)>;

impl LockTable {
    /// Memory that locks take, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.tally.bytes.load(Ordering::Relaxed)
    }

    /// Memory that they may take, in bytes.
    pub fn limit_bytes(&self) -> usize {
        self.tally.limit_bytes
    }

    /// Calls `f` for each lock, granted or waited for, each range, and each set: once for all shards.
    pub fn each_lock(&self, f: &mut dyn FnMut(&LockInfo)) {
        let mut sets = SetSizes::new();
        for cell in self.shards() {
            if cell.count.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut found = Vec::new();
            let shard = cell.lock();
            for set in shard.sets().iter() {
                let name = (Arc::as_ptr(&set.owner) as usize, set.index, set.mask);
                let size = sets.entry(name).or_insert_with(|| (set.owner.clone(), 0));
                size.1 += set.len();
            }
            for q in shard.each() {
                found.extend(q.granted.iter().map(|g| info(q, &g.owner, g.mask, false)));
                found.extend(q.waiting.iter().map(|w| info(q, &w.owner, w.mask, true)));
            }
            drop(shard);
            found.iter().for_each(&mut *f);
        }
        let mut found: Vec<LockInfo> = sets
            .iter()
            .filter(|(_, (_, records))| *records != 0)
            .map(|((_, index, mask), (owner, records))| LockInfo {
                txn: owner.txn_id(),
                thread_id: owner.thread_id,
                index: *index,
                key: Vec::new(),
                until: Vec::new(),
                records: *records,
                table: None,
                mode: words(*mask),
                waiting: false,
            })
            .collect();
        self.ranges.each(&mut |index, r, mask| {
            found.push(LockInfo {
                txn: r.data.owner.txn_id(),
                thread_id: r.data.owner.thread_id,
                index,
                key: r.low.clone(),
                until: r.high.clone(),
                records: 0,
                table: None,
                mode: words(mask),
                waiting: false,
            });
        });
        found.iter().for_each(&mut *f);
    }

    /// Calls `f` for each pair of a waiter and one in its way; of very many in its way, for some:
    /// first those who hold the lock, then those who stand nearest in front.
    pub fn each_wait(&self, f: &mut dyn FnMut(&WaitEdge)) {
        for cell in self.shards() {
            if cell.count.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut found = Vec::new();
            for q in cell.lock().each() {
                for (place, w) in q.waiting.iter().enumerate() {
                    let mut named = 0;
                    q.obstacles(&w.owner, w.mask, place, &mut |other| {
                        named += 1;
                        found.push(WaitEdge {
                            wanted: info(q, &w.owner, w.mask, true),
                            since_us: w.owner.waiting_since_us().unwrap_or(0),
                            blocker_txn: other.txn_id(),
                            blocker_thread_id: other.thread_id,
                        });
                        named < BLOCKERS_SHOWN
                    });
                }
            }
            found.iter().for_each(&mut *f);
        }
    }

    /// Counters and sizes now.
    pub fn stats(&self) -> LockStats {
        let s = &self.stats;
        LockStats {
            waits: s.waits.get(),
            wait_us_total: s.wait_us.sum_us(),
            wait_us_max: s.wait_us.max_us(),
            wait_us_p99: s.wait_us.percentile(99.0),
            deadlocks: s.deadlocks.get(),
            timeouts: s.timeouts.get(),
            interrupts: s.interrupts.get(),
            waiting: s.waiting.load(Ordering::Relaxed),
            keys: self
                .shards()
                .map(|c| u64::from(c.count.load(Ordering::Relaxed)))
                .sum::<u64>()
                + self.tally.kept(),
            bytes: self.tally.bytes.load(Ordering::Relaxed) as u64,
        }
    }

    /// How long waits took.
    pub fn wait_histogram(&self) -> &Histogram {
        &self.stats.wait_us
    }
}
