//! Segments leave the ring; the old generation is swept.
//!
//! Retirement of a segment: (1) seal it. (2) If nothing in it is alive, or everybody sees
//! the `end` of all its versions (then nobody needs them nor anything older in their
//! chains), free it. (3) Else ask of each version whether it is needed; that answer can
//! only change from yes to no, so it is asked without any lock. (4) If nearly all of it is needed
//! and the old generation has no memory left for that, it goes to a scratch file as it is
//! (see `spill`). (5) Else in batches, with walks paused: what is needed moves to the old
//! generation under its own address; what is not needed vanishes if nothing older is left of
//! its chain; if something is, that older version takes its place ("fold"): its content, told
//! as a difference to the newer state, is filed under the address of the version that goes.
//! (6) Free the segment.
//!
//! So an address that some chain names always leads to the next survivor, and an address
//! that leads nowhere means that nothing older is needed. A version whose older neighbour
//! is still young, or cannot be read, stays as a carrier until a later sweep.
//!
//! Locking: `retiring` (one at a time), then walks paused for at most [`BATCH`] versions, or
//! [`FOLD_BATCH`] where each may have to be read from a scratch file.

use ferrite_sync::atomic::Ordering;
use ferrite_types::{Csn, VersionAddr};

use crate::delta::{compose, pack, pieces};
use crate::prune::repacked;
use crate::seen::SeenByAll;
use crate::segment::Found;
use crate::store::VersionStore;
use crate::system::TxnSystem;
use crate::version::{record_bytes, AddressParts, VersionHead};

/// A segment is written as it is if all but one of so many parts of it are needed. What is not
/// needed would lie in the file until its row changes again, and could not be folded.
const WHOLE_NEEDED: usize = 8;
/// Versions handled per pause of walks.
const BATCH: usize = 128;
const FOLD_BATCH: usize = 32;

/// What a call of `retire` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetireStats {
    /// Segments freed.
    pub segments: u64,
    /// Of these, those freed without looking at their versions.
    pub unread: u64,
    /// Versions moved to the old generation.
    pub moved: u64,
    /// Versions whose place an older one took.
    pub folded: u64,
    /// Versions gone with nothing older left.
    pub vanished: u64,
    /// Versions written to a scratch file.
    pub spilled: u64,
}

/// What a sweep of the old generation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepStats {
    /// Versions looked at.
    pub seen: u64,
    /// Versions gone.
    pub freed: u64,
}

enum Fold {
    Folded,
    Vanished,
    /// What is older is still young: kept as it is.
    Kept,
}

impl VersionStore {
    /// The process ends, and history with it: retiring and sweeping, which may take seconds, stop
    /// where they are. What is there stays readable.
    pub fn wind_up(&self) {
        self.winding_up.store(true, Ordering::Relaxed);
    }

    fn is_winding_up(&self) -> bool {
        self.winding_up.load(Ordering::Relaxed)
    }

    /// Frees the oldest segments until the ring is within its budget, or all that are there now have
    /// been looked at: those that writers fill meanwhile are left to the next call. Call it from a
    /// background thread when [`needs_retire`](Self::needs_retire); returns at once if
    /// another thread is at it. No page latch may be held.
    pub fn retire(&self, sys: &TxnSystem) -> RetireStats {
        self.retire_down_to(sys, self.ring_budget_bytes())
    }

    /// As [`retire`](Self::retire), with another budget (bytes; 0 = everything).
    pub fn retire_down_to(&self, sys: &TxnSystem, budget: usize) -> RetireStats {
        self.retire_while(sys, budget, u64::MAX)
    }

    /// As [`retire`](Self::retire), but as soon as a write to a scratch file has failed the rest waits
    /// while more than `most_stuck` (bytes) [cannot leave memory](Self::stuck_bytes): then it is more
    /// urgent that the caller does something about who makes the versions.
    pub fn retire_unless_stuck(&self, sys: &TxnSystem, most_stuck: u64) -> RetireStats {
        self.retire_while(sys, self.ring_budget_bytes(), most_stuck)
    }

    fn retire_while(&self, sys: &TxnSystem, budget: usize, most_stuck: u64) -> RetireStats {
        let mut stats = RetireStats::default();
        let Some(_alone) = self.retiring.try_lock() else {
            return stats;
        };
        sys.refresh_if_stale();
        let seen = sys.seen_by_all();
        // Writers may be as fast as this loop, above all where each segment costs a write that
        // fails: without an end, nobody would look at how much there is.
        let newest = self.young.newest();
        let failures = self.count.spill_failures.get();
        while self.young.bytes() > budget && !self.is_winding_up() {
            let Some(number) = self.young.oldest().filter(|n| Some(*n) <= newest) else {
                break;
            };
            self.retire_segment(sys, number, &seen, &mut stats);
            if self.old_is_far_over() {
                stats.spilled += self.spill_old(false);
            }
            if self.count.spill_failures.get() > failures && self.stuck_bytes() > most_stuck {
                break;
            }
        }
        self.free_ended(&seen);
        // Updates leave extents sparse even while memory is within its budget.
        stats.spilled += self.spill_old(true);
        self.free_given_back();
        self.count.moved.add(stats.moved);
        self.count.folded.add(stats.folded);
        self.count.vanished.add(stats.vanished);
        stats
    }

    fn retire_segment(
        &self,
        sys: &TxnSystem,
        number: u64,
        seen: &SeenByAll,
        stats: &mut RetireStats,
    ) {
        let Some(sealed) = self.young.seal(number) else {
            return;
        };
        stats.segments += 1;
        if sealed.live == 0 || seen.has_all(sealed.ends) {
            stats.unread += 1;
            stats.vanished += u64::from(sealed.live);
            self.young.free(number);
            return;
        }
        let heads = self.young.heads(number);
        debug_assert!(heads.iter().all(|h| sealed.ends.has(h.end)), "{number}");
        let needed: Vec<bool> = heads
            .iter()
            .map(|h| {
                sys.version_needed(h.begin, h.end)
                    && !ferrite_sync::mutant!("txn.retire_needed_versions")
            })
            .collect();
        let needed_bytes = heads.iter().zip(&needed).filter(|(_, needed)| **needed);
        let needed_bytes: usize = needed_bytes.map(|(h, _)| record_bytes(h.body_len)).sum();
        if WHOLE_NEEDED * needed_bytes >= (WHOLE_NEEDED - 1) * sealed.used
            && !self.old_has_room(needed_bytes)
        {
            let spilled = self.spill_young(number);
            stats.spilled += spilled;
            if spilled > 0 {
                return;
            }
        }
        // Needed ones first, so that folds find them in the old generation.
        let (stay, go): (Vec<_>, Vec<_>) =
            heads.iter().zip(needed).partition(|(_, needed)| *needed);
        for batch in stay.chunks(BATCH) {
            let _paused = self.pause_walks();
            for (head, _) in batch {
                if self.move_to_old(head.addr) {
                    stats.moved += 1;
                }
            }
        }
        ferrite_sync::kill_point!("retire.needed_moved");
        for batch in go.chunks(FOLD_BATCH) {
            if self.is_winding_up() {
                return;
            }
            let _paused = self.pause_walks();
            for (head, _) in batch {
                self.retire_unneeded(sys, head.addr, number, stats);
            }
        }
        let left = self.young.free(number);
        assert_eq!(left, 0, "versions lost with segment {number}");
    }

    /// False if the version was dropped meanwhile.
    fn move_to_old(&self, addr: VersionAddr) -> bool {
        let Found::Here(record) = self.young.mark_moved(addr) else {
            return false;
        };
        self.old.put(addr, &record);
        true
    }

    fn retire_unneeded(
        &self,
        sys: &TxnSystem,
        addr: VersionAddr,
        segment: u64,
        stats: &mut RetireStats,
    ) {
        let mut body = Vec::new();
        let Found::Here(head) = self.young.read(addr, &mut body) else {
            return;
        };
        match self.fold(sys, &head, &body, Some(segment)) {
            Fold::Folded => {
                // The older version is filed under this address now.
                let moved = self.young.mark_moved(addr);
                debug_assert!(matches!(moved, Found::Here(_)), "{addr:?} went by itself");
                stats.folded += 1;
            }
            Fold::Vanished => {
                let gone = self.young.kill(addr);
                debug_assert!(matches!(gone, Found::Here(_)), "{addr:?} went by itself");
                stats.vanished += 1;
            }
            Fold::Kept => {
                if self.move_to_old(addr) {
                    stats.moved += 1;
                }
            }
        }
    }

    /// Looks for what is older than a version that nobody needs. Walks are paused. If it is
    /// found in the old generation, files it under the version's address, retold.
    /// `retiring`: the segment being retired, whose versions left over are not needed
    /// either and are passed through.
    fn fold(
        &self,
        sys: &TxnSystem,
        head: &VersionHead,
        body: &[u8],
        retiring: Option<u64>,
    ) -> Fold {
        debug_assert_ne!(head.next, head.addr, "a version in a circle");
        if head.end < sys.all_visible_below() {
            // Nothing older is needed either.
            return Fold::Vanished;
        }
        let mut bodies: Vec<(VersionHead, Vec<u8>)> = vec![(*head, body.to_vec())];
        let mut at = head.next;
        loop {
            if at.is_none() {
                return Fold::Vanished;
            }
            let mut body = Vec::new();
            match self.young.read(at, &mut body) {
                Found::Dead => return Fold::Vanished,
                Found::Here(next) if retiring == Some(at.segment()) => {
                    at = next.next;
                    bodies.push((next, body));
                }
                Found::Here(_) => return Fold::Kept,
                Found::Elsewhere => break,
            }
        }
        let mut last = Vec::new();
        let survivor = match self.get(at, &mut last) {
            Ok(Some(survivor)) => survivor,
            Ok(None) => return Fold::Vanished,
            Err(_) => return Fold::Kept,
        };
        let mut all = pieces(&bodies[0].0, &bodies[0].1);
        for (head, body) in &bodies[1..] {
            all = compose(&all, &pieces(head, body));
        }
        all = compose(&all, &pieces(&survivor, &last));
        let packed = pack(&all);
        assert_ne!(survivor.addr, head.addr, "folded into itself");
        debug_assert_eq!(survivor.index, head.index, "another row's past");
        self.old
            .put_version(head.addr, &repacked(&survivor, &packed));
        let was_there = self.old.remove(survivor.addr);
        debug_assert!(was_there, "{:?} was folded twice", survivor.addr);
        Fold::Folded
    }

    /// Calls `f` for the versions kept for old snapshots: commit number of the oldest that needs
    /// them, bytes, versions. What lies in scratch files is not read for this: it goes to the
    /// oldest snapshot of all.
    pub fn each_held(&self, sys: &TxnSystem, f: &mut dyn FnMut(Csn, u64, u64)) {
        for shard in 0..self.old.shards() {
            for head in self.old.heads(shard) {
                if let Some(csn) = sys.oldest_needing(head.begin, head.end) {
                    f(csn, record_bytes(head.body_len) as u64, 1);
                }
            }
        }
        let (bytes, versions) = self.old.spilled();
        let mut oldest: Option<Csn> = None;
        sys.each_snapshot(&mut |view| {
            oldest = Some(oldest.map_or(view.csn, |o| o.min(view.csn)));
        });
        if let (Some(csn), 1..) = (oldest, versions) {
            f(csn, bytes, versions);
        }
    }

    /// Frees what no snapshot needs any more in the old generation, as far as it is in memory,
    /// and the segments that everybody has seen the end of, wherever they are. Call it after
    /// an old snapshot was closed, and once in a while. No page latch may be held.
    pub fn sweep_old(&self, sys: &TxnSystem) -> SweepStats {
        let mut stats = SweepStats::default();
        if self.old.len() == 0 {
            return stats;
        }
        sys.refresh();
        let _alone = self.retiring.lock();
        let ended = self.free_ended(&sys.seen_by_all());
        for shard in 0..self.old.shards() {
            if self.is_winding_up() {
                break;
            }
            self.sweep_shard(sys, shard, &mut stats);
        }
        self.count.vanished.add(stats.freed);
        stats.freed += ended;
        self.spill_old(true);
        self.free_given_back();
        stats
    }

    /// Frees the segments of the old generation that everybody has seen the end of, without
    /// looking at their versions; how many versions went. It costs little: call it often.
    pub fn free_seen(&self, sys: &TxnSystem) -> u64 {
        if self.old.len() == 0 {
            return 0;
        }
        let Some(_alone) = self.retiring.try_lock() else {
            return 0;
        };
        sys.refresh_if_stale();
        let freed = self.free_ended(&sys.seen_by_all());
        self.free_given_back();
        freed
    }

    /// `retiring` is held.
    fn free_ended(&self, seen: &SeenByAll) -> u64 {
        let mut freed = 0;
        for shard in 0..self.old.shards() {
            if !self.old.has_ended(shard, seen) {
                continue;
            }
            // Memory is given back after the pause.
            let mut gone = Vec::new();
            let paused = self.pause_walks();
            freed += self.old.take_ended(shard, seen, &mut gone);
            drop(paused);
        }
        self.count.vanished.add(freed);
        freed
    }

    fn sweep_shard(&self, sys: &TxnSystem, shard: usize, stats: &mut SweepStats) {
        let heads = self.old.heads(shard);
        stats.seen += heads.len() as u64;
        let go: Vec<VersionAddr> = heads
            .iter()
            .filter(|h| !sys.version_needed(h.begin, h.end))
            .map(|h| h.addr)
            .collect();
        for batch in go.chunks(FOLD_BATCH) {
            let _paused = self.pause_walks();
            for addr in batch {
                let mut body = Vec::new();
                // It may be gone, or have been folded into: then it is another version now.
                let Ok(Some(head)) = self.get(*addr, &mut body) else {
                    continue;
                };
                if sys.version_needed(head.begin, head.end) {
                    continue;
                }
                match self.fold(sys, &head, &body, None) {
                    Fold::Folded => stats.freed += 1,
                    Fold::Vanished => {
                        let was_there = self.old.remove(*addr);
                        debug_assert!(was_there, "{addr:?} went by itself");
                        stats.freed += 1;
                    }
                    Fold::Kept => {}
                }
            }
        }
    }
}
