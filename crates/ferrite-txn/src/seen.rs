//! Which ids every live and future snapshot sees, those above an id that has not ended included.
//!
//! `all_visible_below` stops at the oldest id that has not ended: an idle or prepared transaction holds
//! it for days. A *sample* says more: `next`, the next id to be given out; the ids below it that may not
//! have ended; and `last`, the last commit number. Once the purge floor has come to `last`, all ids below
//! `next` but those are seen by everybody, or were rolled back.
//!
//! Why the order matters in which a sample is read:
//! - `next` first: of an id that is given out later the sample says nothing, so it need not be looked at.
//! - `last` after the ids: who has ended when it is looked at had its number before its word said so, and
//!   that is at most `last`. Were `last` read before, one could commit in between: the floor comes to
//!   `last` while a snapshot is open that does not see it.
//! - An id that has no word yet (`begin` is between two instructions), or is committing, may not have
//!   ended. One below the ring's floor has ended or is in the side table; its word, read before, said so.
//! - `low` before the side table: each id below that has not ended is there by then. Of one that the ring gives up
//!   later the list of it need not tell.
//!
//! A sample looks at the side table's ids, of which there may be many (prepared ones), with one lock of it; and in
//! the ring at those that the sample before has left, and those given out since: a step for each transaction.
//!
//! Locking: `samples`, then the side table.

use ferrite_sync::Arc;
use ferrite_types::TxnId;

use crate::long_running::LongRunningState;
use crate::status::Word;
use crate::system::TxnSystem;

/// The ids by which the versions of a segment ended: all of them are among these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    first: TxnId,
    last: TxnId,
}

impl Default for Ends {
    /// Of no version.
    fn default() -> Ends {
        Ends {
            first: TxnId::MAX,
            last: TxnId(0),
        }
    }
}

impl Ends {
    pub fn add(&mut self, end: TxnId) {
        self.first = self.first.min(end);
        self.last = self.last.max(end);
        debug_assert!(self.has(end), "{self:?} without {end}");
    }

    pub fn extend(&mut self, other: Ends) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    pub fn has(&self, end: TxnId) -> bool {
        (self.first..=self.last).contains(&end)
    }
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
struct Sample {
    next: u64,
    /// Ascending, all below `next`.
    active: Arc<[u64]>,
    last: u64,
}

/// What everybody sees.
#[derive(Clone, Debug)]
pub(crate) struct SeenByAll {
    /// All ids below.
    below: TxnId,
    /// And all below this one, but for the active ones.
    next: u64,
    active: Arc<[u64]>,
}

impl SeenByAll {
    /// Everybody sees each of these ids, as far as it was not rolled back.
    pub fn has_all(&self, ends: Ends) -> bool {
        if ends.last < self.below {
            return true;
        }
        debug_assert!(ends.first <= ends.last, "{ends:?}");
        let from = self.active.partition_point(|id| *id < ends.first.get());
        let mut active = self.active[from..].iter();
        ends.last.get() < self.next && active.next().is_none_or(|id| *id > ends.last.get())
    }
}

/// The sample that waits for the floor, and the last one for which it has come far enough.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    waiting: Sample,
    seen: Sample,
    /// Ids of an earlier life that have not ended, and are in none of the two yet: there may be many of them, and each
    /// list is made once. In no order.
    restored: Vec<u64>,
}

impl Samples {
    /// Every id below `next` has ended, with a number up to `last`, but those
    /// [`restored`](Samples::restored).
    pub fn new(next: TxnId, last: u64) -> Samples {
        let waiting = Sample {
            next: next.get(),
            active: Arc::default(),
            last,
        };
        Samples {
            waiting,
            seen: Sample::default(),
            restored: Vec::new(),
        }
    }

    /// An id of an earlier life has not ended.
    pub fn restored(&mut self, txn: TxnId) {
        debug_assert!(!txn.is_frozen(), "no transaction's id");
        self.restored.push(txn.get());
    }

    /// The samples have the ids that were restored.
    fn add_restored(&mut self) {
        let restored = core::mem::take(&mut self.restored);
        if restored.is_empty() {
            return;
        }
        for sample in [&mut self.waiting, &mut self.seen] {
            let below = restored.iter().copied().filter(|id| *id < sample.next);
            let mut active: Vec<u64> = sample.active.iter().copied().chain(below).collect();
            active.sort_unstable();
            assert!(active.is_sorted_by(|a, b| a < b), "an id is active twice");
            sample.active = active.into();
        }
    }
}

impl TxnSystem {
    /// What everybody sees, as of the list published last and, at most, of the call before.
    pub(crate) fn seen_by_all(&self) -> SeenByAll {
        let mut samples = self.samples.lock();
        samples.add_restored();
        // The second time it is the sample just taken, if no snapshot is older.
        for _ in 0..2 {
            if self.purge_floor().get() < samples.waiting.last {
                break;
            }
            let next = self.sample(&samples.waiting);
            debug_assert!(samples.seen.next <= samples.waiting.next);
            samples.seen = core::mem::replace(&mut samples.waiting, next);
        }
        let seen = &samples.seen;
        SeenByAll {
            below: self.all_visible_below(),
            next: seen.next,
            active: seen.active.clone(),
        }
    }

    /// A sample after `before`.
    fn sample(&self, before: &Sample) -> Sample {
        let too_early = ferrite_sync::mutant!("txn.sample_number_first").then(|| {
            let last = self.last_csn();
            ferrite_sync::thread::yield_now();
            last
        });
        let next = self.next_txn().get();
        let low = self.low().get();
        let side = self.long_running.unended();
        debug_assert!(
            side.below(low.min(before.next))
                .all(|id| before.active.binary_search(&id).is_ok()),
            "one that had ended has not"
        );
        let from = before.active.partition_point(|id| *id < low);
        let in_ring = before.active[from..].iter().copied();
        let in_ring = in_ring.chain(low.clamp(before.next, next)..next);
        let active: Arc<[u64]> = side
            .below(low.min(next))
            .chain(in_ring.filter(|id| self.may_not_have_ended(TxnId(*id))))
            .collect();
        let last = too_early.unwrap_or_else(|| self.last_csn()).get();
        debug_assert!(active.is_sorted_by(|a, b| a < b), "{active:?}");
        debug_assert!(before.next <= next && active.last().is_none_or(|id| *id < next));
        assert!(
            before.last <= last,
            "commit number {last} after {}",
            before.last
        );
        Sample { next, active, last }
    }

    fn may_not_have_ended(&self, txn: TxnId) -> bool {
        if txn.get() >= self.ring.floor() {
            match self.ring.get(txn) {
                Word::Moved => {}
                word => return !word.is_ended(),
            }
        }
        let state = self.long_running.get(txn);
        matches!(
            state,
            Some(LongRunningState::Active | LongRunningState::Prepared)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SnapshotInfo;
    use ferrite_lock::Owner;
    use ferrite_sync::random::Rng;
    use ferrite_types::Csn;
    use std::collections::HashSet;

    fn begin(sys: &TxnSystem) -> TxnId {
        sys.begin(Owner::new(1, 0))
    }

    fn has_all(seen: &SeenByAll, first: TxnId, last: TxnId) -> bool {
        let mut ends = Ends::default();
        ends.add(first);
        ends.add(last);
        seen.has_all(ends)
    }

    #[test]
    fn an_active_id_holds_back_itself_alone() {
        let sys = TxnSystem::with_ring_bits(TxnId(1), Csn(1), 6);
        let idle = begin(&sys);
        let (a, b) = (begin(&sys), begin(&sys));
        sys.commit(a);
        sys.refresh();
        let seen = sys.seen_by_all();
        assert!(has_all(&seen, a, a) && !has_all(&seen, idle, a) && !has_all(&seen, a, b));
        sys.commit(b);
        // The words are given to others: the idle one goes to the side table.
        for _ in 0..200 {
            sys.commit(begin(&sys));
        }
        sys.refresh();
        let seen = sys.seen_by_all();
        let newest = TxnId(sys.next_txn().get() - 1);
        assert!(has_all(&seen, a, newest) && !has_all(&seen, idle, idle));
        sys.prepare(idle);
        assert!(!has_all(&sys.seen_by_all(), idle, newest));
        sys.commit(idle);
        sys.refresh();
        assert!(has_all(&sys.seen_by_all(), idle, newest));
    }

    #[test]
    fn what_a_snapshot_does_not_see_is_not_seen_by_all() {
        let sys = TxnSystem::new(TxnId(1), Csn(1));
        let idle = begin(&sys);
        let (before, after) = (begin(&sys), begin(&sys));
        sys.commit(before);
        let old = sys.open_snapshot(SnapshotInfo::default());
        sys.commit(after);
        for _ in 0..3 {
            sys.refresh();
            let seen = sys.seen_by_all();
            assert!(!has_all(&seen, after, after), "{seen:?}");
        }
        drop(old);
        sys.refresh();
        let seen = sys.seen_by_all();
        assert!(has_all(&seen, before, after) && !has_all(&seen, idle, after));
    }

    #[test]
    fn an_id_of_an_earlier_life_is_active_until_it_ends() {
        let sys = TxnSystem::new(TxnId(100), Csn(50));
        for id in [70, 40] {
            sys.restore(TxnId(id), Owner::new(1, 0), id == 40);
        }
        sys.refresh();
        let seen = sys.seen_by_all();
        assert!(has_all(&seen, TxnId(41), TxnId(69)) && has_all(&seen, TxnId(71), TxnId(99)));
        assert!(!has_all(&seen, TxnId(41), TxnId(70)) && !has_all(&seen, TxnId(40), TxnId(40)));
        sys.rolled_back(TxnId(70));
        sys.commit(TxnId(40));
        sys.refresh();
        assert!(has_all(&sys.seen_by_all(), TxnId(1), TxnId(99)));
    }

    /// A restart with that many prepared transactions, and 20 looks; how long all of it takes, in us.
    fn many_prepared(many: u64) -> u64 {
        let sys = TxnSystem::new(TxnId(10 * many), Csn(50));
        let begun_us = ferrite_sync::time::now_us();
        // The youngest first, as recovery restores them: each goes before the others.
        for n in (1..=many).rev() {
            sys.restore(TxnId(9 * n), Owner::new(1, 0), true);
        }
        for _ in 0..20 {
            sys.commit(begin(&sys));
            sys.refresh();
            let seen = sys.seen_by_all();
            assert!(has_all(&seen, TxnId(10), TxnId(17)) && !has_all(&seen, TxnId(10), TxnId(18)));
        }
        let took_us = ferrite_sync::time::now_us() - begun_us;
        for n in [3, many] {
            sys.commit(TxnId(9 * n));
        }
        sys.refresh();
        let seen = sys.seen_by_all();
        assert!(has_all(&seen, TxnId(19), TxnId(35)) && !has_all(&seen, TxnId(19), TxnId(36)));
        let (last, next) = (TxnId(9 * many - 8), TxnId(10 * many - 1));
        assert!(has_all(&seen, last, next) && !has_all(&seen, TxnId(9 * many - 9), next));
        took_us
    }

    #[test]
    fn each_of_many_prepared_ids_costs_the_same() {
        let best = |many| (0..3).map(|_| many_prepared(many)).min().unwrap_or(0);
        let (few, many) = (best(4_000), best(40_000));
        assert!(
            many < 30 * (few + 1000),
            "{few} us for n, {many} us for 10 n"
        );
    }

    /// Whatever is open: what is said to be seen by all is seen by each snapshot, and has ended.
    #[test]
    fn each_snapshot_sees_what_all_see() {
        let mut said = 0;
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let sys = TxnSystem::with_ring_bits(TxnId(1), Csn(1), 6);
            let (mut active, mut snapshots) = (Vec::new(), Vec::new());
            let mut undone = HashSet::new();
            for _ in 0..2000 {
                match rng.below(9) {
                    0..3 => active.push(begin(&sys)),
                    3..6 if active.len() > 2 => {
                        let txn = active.swap_remove(rng.below(active.len() as u64) as usize);
                        match rng.below(4) {
                            0 => {
                                sys.rolled_back(txn);
                                undone.insert(txn);
                            }
                            _ => drop(sys.commit(txn)),
                        }
                    }
                    6 => snapshots.push(sys.open_snapshot(SnapshotInfo::default())),
                    7.. if !snapshots.is_empty() => {
                        snapshots.swap_remove(rng.below(snapshots.len() as u64) as usize);
                    }
                    _ => {}
                }
                if rng.chance(1, 3) {
                    sys.refresh();
                }
                let seen = sys.seen_by_all();
                let recent = sys.next_txn().get().saturating_sub(100).max(1)..sys.next_txn().get();
                for txn in recent.map(TxnId).filter(|txn| has_all(&seen, *txn, *txn)) {
                    said += 1;
                    assert!(!active.contains(&txn), "seed {seed}: {txn} is active");
                    let sees = |s| sys.sees(s, txn, TxnId::FROZEN);
                    let all_do = undone.contains(&txn) || snapshots.iter().all(sees);
                    assert!(all_do, "seed {seed}: {txn}");
                }
            }
        }
        assert!(said > 100_000, "{said}");
    }
}
