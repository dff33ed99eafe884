//! What the lock table shows of itself: locks, waits, counters.
//!
//! Locking: shard by shard, copied out under the mutex and handed on without it; the
//! picture is exact per key, not across keys.

use std::collections::{BTreeMap, VecDeque};

use ferrite_sync::atomic::Ordering;
use ferrite_sync::{Arc, Histogram};
use ferrite_types::{fnv1a, IndexId, TableId, TxnId, FNV_BASIS};

use crate::mode::{conflicts, words, Mask};
use crate::owner::Owner;
use crate::queue::{Queue, Waiting};
use crate::table::LockTable;
use crate::table_locks::{is_auto_inc, table_of, words_of, TABLES};

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

/// One lock or request. Of a table's lock one for each owner, granted or waited for, whatever its stripes.
#[derive(Clone, Debug)]
pub struct LockInfo {
    /// No other lock or request has it, and the same one has it in each picture.
    pub id: u64,
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
    /// The table, for a table lock.
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
    /// [`LockInfo::id`] of what is in the way: what the blocker holds, or asks for.
    pub blocker_id: u64,
}

/// What a lock is, beside its owner and its place.
#[derive(Clone, Copy)]
enum Kind {
    Granted,
    Waiting,
    /// An owner has one in an index in each mode at most.
    Set(&'static str),
    /// To that key.
    Range(&'static str),
}

/// See [`LockInfo::id`].
fn id_of(owner: &Owner, index: IndexId, key: &[u8], until: &[u8], kind: Kind) -> u64 {
    // A connection may have several: prepared transactions keep theirs.
    let owner = std::ptr::from_ref(owner) as u64;
    let (kind, mode) = match kind {
        Kind::Granted => (0, ""),
        Kind::Waiting => (1, ""),
        Kind::Set(mode) => (2, mode),
        Kind::Range(mode) => (3, mode),
    };
    // All stripes of a table are one lock.
    let stripe = key
        .get(8)
        .is_some_and(|_| index == TABLES && !is_auto_inc(key));
    let key = if stripe { &key[..8] } else { key };
    let head = owner.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(index.0);
    let length = (key.len() as u64).to_le_bytes();
    let parts = length.iter().chain(key).chain(until);
    fnv1a(
        FNV_BASIS ^ head,
        parts.chain(mode.as_bytes()).chain(&[kind]),
    )
}

/// Of a queue: its owner's id there.
fn id_in(q: &Queue, owner: &Owner, waiting: bool) -> u64 {
    let kind = if waiting {
        Kind::Waiting
    } else {
        Kind::Granted
    };
    id_of(owner, q.index, &q.key, &[], kind)
}

fn info(q: &Queue, owner: &Owner, mask: crate::mode::Mask, waiting: bool) -> LockInfo {
    let table = (q.index == TABLES).then(|| table_of(&q.key)).flatten();
    LockInfo {
        id: id_in(q, owner, waiting),
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

/// Calls `f` with each waiter and each in its way, and whether that one waits itself, as [`Queue::obstacles`] finds them. Of those who hold
/// nothing here and ask for the same, what one waits for the next one does, too: a long line is gone through
/// once for each kind of them, not once for each of them.
fn each_in_the_way(q: &Queue, f: &mut dyn FnMut(&Waiting, &Arc<Owner>, bool)) {
    let mut known: BTreeMap<Mask, InTheWay> = BTreeMap::new();
    for (place, w) in q.waiting.iter().enumerate() {
        if w.holds {
            // Those who hold it come first.
            let others = q
                .granted
                .iter()
                .filter(|g| !Arc::ptr_eq(&g.owner, &w.owner));
            let holders = others.filter(|g| conflicts(w.mask, g.mask));
            let holders = holders.take(BLOCKERS_SHOWN).count();
            let mut named = 0;
            q.obstacles(&w.owner, w.mask, place, &mut |other| {
                named += 1;
                f(w, other, named > holders);
                named < BLOCKERS_SHOWN
            });
        } else {
            let way = known.entry(w.mask);
            let way = way.or_insert_with(|| InTheWay::of(q, w.mask, place));
            let holders = way.holders.iter().map(|other| (other, false));
            let all = holders.chain(way.waiters.iter().map(|other| (other, true)));
            let all = all.take(BLOCKERS_SHOWN);
            all.for_each(|(other, waits)| f(w, other, waits));
        }
        for (_, way) in known.iter_mut().filter(|(m, _)| conflicts(**m, w.mask)) {
            way.joins(&w.owner);
        }
    }
}

/// Sets of one owner, index and mode, and how many locks they are.
type SetSizes = BTreeMap<(usize, IndexId, Mask), (Arc<Owner>, u64)>;

/// Locks of one owner on a table, by whether they are waited for: all its stripes.
type TableLocks = BTreeMap<u64, (LockInfo, Mask)>;

/// Does each lock of that queue have a row of its own?
fn has_own_row(q: &Queue) -> bool {
    q.index != TABLES || table_of(&q.key).is_none() || is_auto_inc(&q.key)
}

/// What has been found in some shards that one row stands for in the end.
#[derive(Default)]
struct Gathered {
    sets: SetSizes,
    tables: TableLocks,
}

impl Gathered {
    /// What the queue says, into `found` if it has a row of its own and waits.
    fn take(&mut self, q: &Queue, found: &mut Vec<LockInfo>) {
        let granted = q.granted.iter().map(|g| (&g.owner, g.mask, false));
        let waiting = q.waiting.iter().map(|w| (&w.owner, w.mask, true));
        for (owner, mask, waits) in granted.chain(waiting) {
            if has_own_row(q) {
                if waits {
                    found.push(info(q, owner, mask, true));
                }
                continue;
            }
            let lock = info(q, owner, mask, waits);
            let of_table = self.tables.entry(lock.id).or_insert((lock, 0));
            of_table.1 |= mask;
            of_table.0.mode = words(of_table.1);
        }
    }

    fn rows(self) -> Vec<LockInfo> {
        let sets = self.sets.into_iter();
        let sets = sets.filter(|(_, (_, records))| *records != 0);
        let sets = sets.map(|((_, index, mask), (owner, records))| {
            let mode = words(mask);
            LockInfo {
                id: id_of(&owner, index, &[], &[], Kind::Set(mode)),
                txn: owner.txn_id(),
                thread_id: owner.thread_id,
                index,
                key: Vec::new(),
                until: Vec::new(),
                records,
                table: None,
                mode,
                waiting: false,
            }
        });
        let tables = self.tables.into_values().map(|(lock, _)| lock);
        tables.chain(sets).collect()
    }
}

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
        self.each_lock_while(&mut |lock| {
            f(lock);
            true
        });
    }

    /// The same until `f` says false: there may be very many. No lock is held over `f`, and what has been found is
    /// forgotten shard by shard. What waits comes first, and locks of single rows that are granted last: of these
    /// there may be millions.
    pub fn each_lock_while(&self, f: &mut dyn FnMut(&LockInfo) -> bool) {
        if !self.each_but_granted(f) {
            return;
        }
        for cell in self.shards() {
            if cell.count.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut found = Vec::new();
            let shard = cell.lock();
            for q in shard.each().filter(|q| has_own_row(q)) {
                found.extend(q.granted.iter().map(|g| info(q, &g.owner, g.mask, false)));
            }
            drop(shard);
            if !found.iter().all(&mut *f) {
                return;
            }
        }
    }

    /// All but granted locks of single rows, until `f` says false; false, then.
    fn each_but_granted(&self, f: &mut dyn FnMut(&LockInfo) -> bool) -> bool {
        let mut gathered = Gathered::default();
        for cell in self.shards() {
            if cell.count.load(Ordering::Acquire) == 0 {
                continue;
            }
            let mut found = Vec::new();
            let shard = cell.lock();
            for set in shard.sets().iter() {
                let name = (Arc::as_ptr(&set.owner) as usize, set.index, set.mask);
                let sets = gathered.sets.entry(name);
                let size = sets.or_insert_with(|| (set.owner.clone(), 0));
                size.1 += set.len();
            }
            for q in shard.each() {
                gathered.take(q, &mut found);
            }
            drop(shard);
            if !found.iter().all(&mut *f) {
                return false;
            }
        }
        if !gathered.rows().iter().all(&mut *f) {
            return false;
        }
        let mut found = Vec::new();
        self.ranges.each(&mut |index, r, mask| {
            let (owner, mode) = (&r.data.owner, words(mask));
            found.push(LockInfo {
                id: id_of(owner, index, &r.low, &r.high, Kind::Range(mode)),
                txn: owner.txn_id(),
                thread_id: owner.thread_id,
                index,
                key: r.low.clone(),
                until: r.high.clone(),
                records: 0,
                table: None,
                mode,
                waiting: false,
            });
        });
        found.iter().all(f)
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
                each_in_the_way(q, &mut |w, other, waits| {
                    found.push(WaitEdge {
                        wanted: info(q, &w.owner, w.mask, true),
                        since_us: w.owner.waiting_since_us().unwrap_or(0),
                        blocker_txn: other.txn_id(),
                        blocker_thread_id: other.thread_id,
                        blocker_id: id_in(q, other, waits),
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
            each_in_the_way(&q, &mut |w, other, waits| {
                let way = match waits {
                    true => q.waiting.iter().any(|o| Arc::ptr_eq(&o.owner, other)),
                    false => conflicts(w.mask, q.held_by(other)),
                };
                assert!(way, "seed {seed}: it does not stand there");
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
        each_in_the_way(&q, &mut |_, _, _| pairs += 1);
        assert_eq!(pairs, 100_000);
        assert!(
            ferrite_sync::time::now_us() - begun < 5_000_000,
            "a line takes seconds"
        );
    }
}
