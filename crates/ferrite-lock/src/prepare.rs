//! What an owner gives back when its transaction is prepared, as InnoDB does: locks that guard
//! what it has read, not what it has changed. Nothing can be read any more, and the decision may
//! be long in coming.
//!
//! | held | [`AtPrepare::Reads`] | [`AtPrepare::AllButChanges`] |
//! | --- | --- | --- |
//! | record, exclusive; with its gap or without | stays | goes |
//! | record, shared; with its gap or without | goes | goes |
//! | gap alone, also behind the last record | goes | goes |
//! | range of shared next-key locks, set of shared record locks | goes | goes |
//! | range or set of exclusive ones | stays | goes |
//! | tables | stay | stay |
//!
//! A changed record bears the transaction's id: it is locked as after a restart, and whoever is
//! given its explicit lock meets the id and waits on (`LockTable::wait_for_implicit`).
//!
//! Locking: owner's list, then one shard or one stripe of ranges; each for some locks at a time.

use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_types::IndexId;

use crate::mode::{AtPrepare, Mask, GAP, REC, REC_S, REC_X};
use crate::owner::{Handle, Owner};
use crate::queue::Wakes;
use crate::table::LockTable;
use crate::table_locks::TABLES;

/// Locks looked at under one hold of the owner's list.
const AT_ONCE: usize = 128;

/// The part of a lock that a prepared transaction does not need.
fn not_needed(index: IndexId, held: Mask, goes: AtPrepare) -> Mask {
    match index == TABLES || held & REC_X != 0 && goes == AtPrepare::Reads {
        true => 0,
        false => held & (REC | GAP),
    }
}

impl LockTable {
    /// Gives back what a prepared transaction does not need, and hands it to those who wait. By
    /// the owner's thread.
    pub fn release_at_prepare(&self, owner: &Arc<Owner>, goes: AtPrepare) {
        if owner.locks_held() == 0 {
            return;
        }
        let indexes: Vec<IndexId> = {
            let mut list = owner.list.lock();
            list.own_gaps.clear();
            list.ranges.iter().copied().collect()
        };
        for index in indexes {
            loop {
                // Who comes in between may still unfold a range that is left.
                let _list = owner.list.lock();
                if !self
                    .ranges
                    .release_at_prepare(owner, index, goes, &self.tally)
                {
                    break;
                }
            }
        }
        let modes = match goes {
            AtPrepare::Reads => REC_S,
            AtPrepare::AllButChanges => REC,
        };
        self.release_sets_of(owner, modes);
        let mut at = 0;
        while self.release_some_at_prepare(owner, goes, &mut at) {}
    }

    /// False when all have been looked at.
    fn release_some_at_prepare(&self, owner: &Arc<Owner>, goes: AtPrepare, at: &mut usize) -> bool {
        let mut wakes = Wakes::default();
        let mut list = owner.list.lock();
        for _ in 0..AT_ONCE {
            let Some(&lock) = list.locks.get(*at) else {
                break;
            };
            match self.shrink_at_prepare(owner, lock, goes, &mut wakes) {
                true => {
                    list.locks.swap_remove(*at);
                    let before = owner.lock_count.fetch_sub(1, Ordering::Relaxed);
                    debug_assert!(before > 0, "{owner:?} gives back more than it had");
                }
                false => *at += 1,
            }
        }
        let more = *at < list.locks.len();
        drop(list);
        wakes.send();
        more
    }

    /// True when nothing is left of the lock.
    fn shrink_at_prepare(
        &self,
        owner: &Arc<Owner>,
        h: Handle,
        goes: AtPrepare,
        wakes: &mut Wakes,
    ) -> bool {
        let mut shard = self.shard(h.shard).lock();
        let Some(queue) = shard.queue(h.slot) else {
            return false;
        };
        let mask = not_needed(queue.index, queue.held_by(owner), goes);
        assert!(
            mask & REC_X == 0 || goes == AtPrepare::AllButChanges,
            "the lock on a changed row goes at prepare"
        );
        mask != 0 && shard.remove(h.slot, owner, mask, &self.tally, wakes)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::tests::{ask_in_thread, is_clean, owners, table, IX, LONG};
    use crate::{AtPrepare, Attempt, LockRequest, Mode, NoHooks, Span, TableMode};
    use ferrite_types::TableId;
    use Mode::{Exclusive, Shared};
    use Span::{Gap, InsertIntention, NextKey, Record};

    #[test]
    fn reads_are_let_go_of_and_changes_are_not() {
        let t = table();
        let [a, b] = owners();
        let keys: Vec<[u8; 2]> = (0..300u16).map(u16::to_be_bytes).collect();
        for (n, key) in keys.iter().enumerate() {
            let (mode, span) = match n % 6 {
                0 => (Shared, Record),
                1 => (Exclusive, Record),
                2 => (Shared, NextKey),
                3 => (Exclusive, NextKey),
                4 => (Shared, Gap),
                _ => (Exclusive, Gap),
            };
            t.try_lock(&a, LockRequest::new(IX, key, mode, span))
                .unwrap();
        }
        t.table_lock(&a, TableId(9), TableMode::IntentExclusive, LONG, &NoHooks)
            .unwrap();
        // Both: what is stronger counts.
        t.try_lock(&a, LockRequest::new(IX, &keys[0], Exclusive, Record))
            .unwrap();
        let waiter = ask_in_thread(&t, &b, b"\0\x06", Exclusive, Record, LONG);
        t.release_at_prepare(&a, AtPrepare::Reads);
        waiter.join().unwrap().unwrap();
        for (n, key) in keys.iter().enumerate() {
            let stays = n == 0 || n % 6 == 1 || n % 6 == 3;
            let record = t
                .try_lock(&b, LockRequest::new(IX, key, Exclusive, Record))
                .unwrap();
            assert_eq!(record == Attempt::Blocked, stays, "record {n}");
            let gap = t
                .try_lock(&b, LockRequest::new(IX, key, Exclusive, InsertIntention))
                .unwrap();
            assert_eq!(gap == Attempt::Blocked, n % 6 == 3, "gap {n}");
        }
        assert_eq!(a.locks_held(), 1 + 50 + 50 + 1);
        t.release_all(&a);
        t.release_all(&b);
        is_clean(&t);
    }

    #[test]
    fn shared_ranges_go_and_exclusive_ones_stay() {
        let t = table();
        let [a, b] = owners();
        let key = |n: u16| n.to_be_bytes();
        let mut range = None;
        for n in 0..50 {
            t.try_lock_in_range(&a, IX, &key(n), Shared, &mut range)
                .unwrap();
        }
        range = None;
        for n in 100..150 {
            t.try_lock_in_range(&a, IX, &key(n), Exclusive, &mut range)
                .unwrap();
        }
        t.release_at_prepare(&a, AtPrepare::Reads);
        let free = |n| {
            t.try_lock(&b, LockRequest::new(IX, &key(n), Exclusive, NextKey))
                .unwrap()
        };
        assert_eq!(free(20), Attempt::Granted);
        assert_eq!(free(120), Attempt::Blocked);
        t.release_all(&a);
        assert_eq!(free(120), Attempt::Granted);
        t.release_all(&b);
        is_clean(&t);
    }

    /// A range that grows over a key is a lock in the key's line, where somebody stands there: the line
    /// would be handed on under the range.
    #[test]
    fn who_stands_in_line_before_a_range_comes_waits_for_it() {
        for (first, span) in [(Shared, Record), (Shared, NextKey), (Shared, Gap)] {
            let t = table();
            let [a, b] = owners();
            let keys: Vec<[u8; 2]> = (0..200u16).map(u16::to_be_bytes).collect();
            t.try_lock(&a, LockRequest::new(IX, &keys[100], first, span))
                .unwrap();
            let waits_for = match span {
                Gap => InsertIntention,
                _ => Record,
            };
            let waiter = ask_in_thread(&t, &b, b"\0\x64", Exclusive, waits_for, LONG);
            let mut range = None;
            for key in &keys {
                let got = t.try_lock_in_range(&a, IX, key, Exclusive, &mut range);
                assert!(got.unwrap().is_granted());
            }
            t.release_at_prepare(&a, AtPrepare::Reads);
            assert!(b.is_waiting(), "{span:?}: granted under the range");
            let asked = LockRequest::new(IX, &keys[100], Exclusive, waits_for);
            assert!(t.conflicts(&b, asked));
            t.release_all(&a);
            waiter.join().unwrap().unwrap();
            assert!(!t.conflicts(&b, asked));
            t.release_all(&b);
            is_clean(&t);
        }
    }

    #[test]
    fn a_replica_keeps_tables_alone() {
        let t = table();
        let [a, b] = owners();
        let keys: Vec<[u8; 2]> = (0..300u16).map(u16::to_be_bytes).collect();
        for (n, key) in keys.iter().enumerate() {
            let mode = if n % 2 == 0 { Shared } else { Exclusive };
            let span = [Record, NextKey, Gap][n % 3];
            t.try_lock(&a, LockRequest::new(IX, key, mode, span))
                .unwrap();
        }
        t.table_lock(&a, TableId(9), TableMode::IntentExclusive, LONG, &NoHooks)
            .unwrap();
        let waiter = ask_in_thread(&t, &b, b"\0\x01", Exclusive, Record, LONG);
        t.release_at_prepare(&a, AtPrepare::AllButChanges);
        waiter.join().unwrap().unwrap();
        assert_eq!(a.locks_held(), 1);
        t.release_all(&a);
        t.release_all(&b);
        is_clean(&t);
    }
}
