//! What the lock table shows of itself: locks, waits, counters.
//!
//! Locking: shard by shard, copied out under the mutex and handed on without it; the
//! picture is exact per key, not across keys.

use std::collections::{BTreeMap, VecDeque};

use ferrite_sync::atomic::Ordering;
use ferrite_sync::{Arc, Histogram};
use ferrite_types::{IndexId, TableId, TxnId};

use crate::mode::{conflicts, words, Mask};
use crate::owner::Owner;
use crate::queue::{Queue, Waiting};
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

/// Who is in the way of the next waiter that holds nothing on the key, at most so many as are shown.
struct InTheWay {
    holders: Vec<Arc<Owner>>,
    /// The nearest first.
    waiters: VecDeque<Arc<Owner>>,
}

impl InTheWay {
    fn of(q: &Queue, mask: Mask, before: usize) -> InTheWay {
        let holders = q.granted.iter().filter(|g| conflicts(mask, g.mask));
        let waiters = q.waiting.first(before).rev();
        let waiters = waiters.filter(|w| conflicts(mask, w.mask));
        let way = InTheWay {
            holders: holders
                .take(BLOCKERS_SHOWN)
                .map(|g| g.owner.clone())
                .collect(),
            waiters: waiters
                .take(BLOCKERS_SHOWN)
                .map(|w| w.owner.clone())
                .collect(),
        };
        debug_assert!(way.waiters.len() <= before, "more than stand in front");
        way
    }

    fn joins(&mut self, owner: &Arc<Owner>) {
        self.waiters.truncate(BLOCKERS_SHOWN - 1);
        self.waiters.push_front(owner.clone());
    }
}

/// Calls `f` with each waiter and each in its way, as [`Queue::obstacles`] finds them. Of those who hold
/// nothing here and ask for the same, what one waits for the next one does, too: a long line is gone through
/// once for each kind of them, not once for each of them.
fn each_in_the_way(q: &Queue, f: &mut dyn FnMut(&Waiting, &Arc<Owner>)) {
    let mut known: BTreeMap<Mask, InTheWay> = BTreeMap::new();
    for (place, w) in q.waiting.iter().enumerate() {
        if w.holds {
            let mut named = 0;
            q.obstacles(&w.owner, w.mask, place, &mut |other| {
                named += 1;
                f(w, other);
                named < BLOCKERS_SHOWN
            });
        } else {
            let way = known.entry(w.mask);
            let way = way.or_insert_with(|| InTheWay::of(q, w.mask, place));
            let all = way.holders.iter().chain(&way.waiters);
            all.take(BLOCKERS_SHOWN).for_each(|other| f(w, other));
        }
        for (_, way) in known.iter_mut().filter(|(m, _)| conflicts(**m, w.mask)) {
            way.joins(&w.owner);
        }
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
                each_in_the_way(q, &mut |w, other| {
                    found.push(WaitEdge {
                        wanted: info(q, &w.owner, w.mask, true),
                        since_us: w.owner.waiting_since_us().unwrap_or(0),
                        blocker_txn: other.txn_id(),
                        blocker_thread_id: other.thread_id,
                    });
                });
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mode::row_mask;
    use crate::{Mode, Span};
    use ferrite_sync::random::Rng;

    fn waits(q: &mut Queue, mask: Mask) {
        let owner = Owner::new(q.waiting.len() as u64, 0);
        stands(q, owner, mask);
    }

    fn stands(q: &mut Queue, owner: Arc<Owner>, mask: Mask) {
        let holds = q.held_by(&owner) != 0;
        q.waiting.push(Waiting {
            arrival: q.waiting.len() as u64 + 1,
            sequence: 1,
            reports: false,
            owner,
            mask,
            holds,
        });
    }

    fn pick(rng: &mut Rng) -> Mask {
        let mode = [Mode::Shared, Mode::Exclusive][rng.below(2) as usize];
        let spans = [
            Span::Record,
            Span::Gap,
            Span::NextKey,
            Span::InsertIntention,
        ];
        row_mask(mode, spans[rng.below(4) as usize])
    }

    #[test]
    fn a_line_is_shown_as_a_look_at_each_place_finds_it() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut q = Queue::default();
            for n in 0..rng.below(30) {
                let (owner, mask) = (
                    Owner::new(1000 + n, 0),
                    pick(&mut rng) & !crate::mode::INSERT,
                );
                if mask != 0 {
                    q.granted.add(&owner, mask);
                    if rng.below(4) == 0 {
                        stands(&mut q, owner, pick(&mut rng));
                    }
                }
            }
            for _ in 0..rng.below(60) {
                waits(&mut q, pick(&mut rng));
            }
            let (mut shown, mut found) = (Vec::new(), Vec::new());
            each_in_the_way(&q, &mut |w, other| {
                shown.push((w.owner.thread_id, other.thread_id));
            });
            for (place, w) in q.waiting.iter().enumerate() {
                let before = found.len();
                q.obstacles(&w.owner, w.mask, place, &mut |other| {
                    found.push((w.owner.thread_id, other.thread_id));
                    found.len() - before < BLOCKERS_SHOWN
                });
            }
            assert_eq!(shown, found, "seed {seed}");
        }
    }

    /// A look at all who stand in front of each would be five thousand million.
    #[test]
    fn a_long_line_is_gone_through_once() {
        let mut q = Queue::default();
        q.granted
            .add(&Owner::new(0, 0), row_mask(Mode::Exclusive, Span::Gap));
        for _ in 0..100_000 {
            waits(&mut q, row_mask(Mode::Exclusive, Span::InsertIntention));
        }
        let (mut pairs, begun) = (0, ferrite_sync::time::now_us());
        each_in_the_way(&q, &mut |_, _| pairs += 1);
        assert_eq!(pairs, 100_000);
        assert!(
            ferrite_sync::time::now_us() - begun < 5_000_000,
            "a line takes seconds"
        );
    }
}
