//! Segments leave the ring; the old generation is swept.
//!
//! Retirement of a segment: (1) seal it. (2) If nothing in it is alive, or everybody sees
//! the `end` of all its versions (then nobody needs them nor anything older in their
//! chains), free it. (3) Else ask of each version whether it is needed; that answer can
//! only change from yes to no, so it is asked without any lock. (4) In batches, with walks
//! paused: what is needed moves to the old generation under its own address; what is not
//! needed vanishes if nothing older is left of its chain; if something is, that older
//! version takes its place ("fold"): its content, told as a difference to the newer state,
//! is filed under the address of the version that goes. (5) Free the segment.
//!
//! So an address that some chain names always leads to the next survivor, and an address
//! that leads nowhere means that nothing older is needed. A version whose older neighbour
//! is still young stays as a carrier until a later sweep.
//!
//! Locking: `retiring` (one at a time), then walks paused for at most [`BATCH`] versions.

use ferrite_types::TxnId;

use crate::delta::{compose, pack, pieces};
use crate::prune::repacked;
use crate::segment::Found;
use crate::store::VersionStore;
use crate::system::TxnSystem;
use crate::version::{VersionAddr, VersionHead};

/// Versions handled per pause of walks.
const BATCH: usize = 128;

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
    /// Frees the oldest segments until the ring is within its budget. Call it from a
    /// background thread when [`needs_retire`](Self::needs_retire); returns at once if
    /// another thread is at it. No page latch may be held.
    pub fn retire(&self, sys: &TxnSystem) -> RetireStats {
        self.retire_down_to(sys, self.budget)
    }

    /// As [`retire`](Self::retire), with another budget (bytes; 0 = everything).
    pub fn retire_down_to(&self, sys: &TxnSystem, budget: usize) -> RetireStats {
        let mut stats = RetireStats::default();
        let Some(_alone) = self.retiring.try_lock() else {
            return stats;
        };
        sys.refresh_if_stale();
        while self.young.bytes() > budget {
            let Some(number) = self.young.oldest() else {
                break;
            };
            self.retire_segment(sys, number, &mut stats);
        }
        self.count.moved.add(stats.moved);
        self.count.folded.add(stats.folded);
        self.count.vanished.add(stats.vanished);
        stats
    }

    fn retire_segment(&self, sys: &TxnSystem, number: u64, stats: &mut RetireStats) {
        let Some(sealed) = self.young.seal(number) else {
            return;
        };
        stats.segments += 1;
        if sealed.live == 0 || sealed.max_end < sys.all_visible_below() {
            stats.unread += 1;
            stats.vanished += u64::from(sealed.live);
            self.young.free(number);
            return;
        }
        let heads = self.young.heads(number);
        let needed: Vec<bool> = heads
            .iter()
            .map(|h| {
                sys.version_needed(h.begin, h.end)
                    && !ferrite_sync::mutant!("txn.retire_needed_versions")
            })
            .collect();
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
        for batch in go.chunks(BATCH) {
            let _paused = self.pause_walks();
            for (head, _) in batch {
                self.retire_unneeded(head.addr, number, stats);
            }
        }
        self.young.free(number);
    }

    /// False if the version was dropped meanwhile.
    fn move_to_old(&self, addr: VersionAddr) -> bool {
        let Found::Here(record) = self.young.mark_moved(addr) else {
            return false;
        };
        self.old.put(addr, &record);
        true
    }

    fn retire_unneeded(&self, addr: VersionAddr, segment: u64, stats: &mut RetireStats) {
        let mut body = Vec::new();
        let Found::Here(head) = self.young.read(addr, &mut body) else {
            return;
        };
        match self.fold(&head, &body, Some(segment)) {
            Fold::Folded => {
                // The older version is filed under this address now.
                let _ = self.young.mark_moved(addr);
                stats.folded += 1;
            }
            Fold::Vanished => {
                let _ = self.young.kill(addr);
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
    fn fold(&self, head: &VersionHead, body: &[u8], retiring: Option<u64>) -> Fold {
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
        let Some(survivor) = self.get(at, &mut last) else {
            return Fold::Vanished;
        };
        let mut all = pieces(&bodies[0].0, &bodies[0].1);
        for (head, body) in &bodies[1..] {
            all = compose(&all, &pieces(head, body));
        }
        all = compose(&all, &pieces(&survivor, &last));
        let packed = pack(&all);
        self.put_old(head.addr, &repacked(&survivor, &packed));
        self.old.remove(survivor.addr);
        Fold::Folded
    }

    /// Frees what no snapshot needs any more in the old generation. Call it once a second or
    /// so, and after an old snapshot was closed. No page latch may be held.
    pub fn sweep_old(&self, sys: &TxnSystem) -> SweepStats {
        let mut stats = SweepStats::default();
        if self.old.len() == 0 {
            return stats;
        }
        sys.refresh();
        for shard in 0..self.old.shards() {
            self.sweep_shard(sys, shard, &mut stats);
        }
        self.count.vanished.add(stats.freed);
        stats
    }

    fn sweep_shard(&self, sys: &TxnSystem, shard: usize, stats: &mut SweepStats) {
        // What everybody sees the end of is not needed, nor anything older in its chain.
        let all_see_below: TxnId = sys.all_visible_below();
        stats.freed += self.old.remove_if(shard, &mut |h| h.end < all_see_below);
        let heads = self.old.heads(shard);
        stats.seen += heads.len() as u64;
        let go: Vec<VersionAddr> = heads
            .iter()
            .filter(|h| !sys.version_needed(h.begin, h.end))
            .map(|h| h.addr)
            .collect();
        for batch in go.chunks(BATCH) {
            let _paused = self.pause_walks();
            for addr in batch {
                let mut body = Vec::new();
                // It may be gone, or have been folded into: then it is another version now.
                let Some(head) = self.get(*addr, &mut body) else {
                    continue;
                };
                if sys.version_needed(head.begin, head.end) {
                    continue;
                }
                match self.fold(&head, &body, None) {
                    Fold::Folded => stats.freed += 1,
                    Fold::Vanished => {
                        self.old.remove(*addr);
                        stats.freed += 1;
                    }
                    Fold::Kept => {}
                }
            }
        }
    }
}
