//! Pruning at every update: versions that no snapshot needs leave the chain at once,
//! wherever they stand in it.
//!
//! When a version in the middle goes, the next older one that stays was a difference to it
//! and becomes a difference to the newer state: composed from both, or the whole payload
//! where that costs hardly more (then nothing has to be composed the next time).
//!
//! Invariant: for each live snapshot, the payload it would read through the chain is the
//! same before and after.

use core::ops::Range;

use ferrite_types::{Result, VersionAddr};

use crate::delta::{compose, diff, pack, payload, payload_len, pieces, Packed, Piece};
use crate::pruned::{Pruned, LOOK_AT, PAST_SETTLED_EVERY};
use crate::published::Need;
use crate::segment::Found;
use crate::store::Walk;
use crate::system::TxnSystem;
use crate::version::{NewVersion, VersionHead, VERSION_FULL, VERSION_PATCH};

/// A whole payload is stored when it is at most so much longer than the difference (bytes).
const FULL_COSTS: usize = 32;

/// Versions kept before it is worth asking for a newer list of snapshots (or one more than
/// the list names, if that is more), and how old (us) the list must be: a row updated
/// thousands of times a second grows a tail of versions that are needed only as far as the
/// list can tell.
const LONG_CHAIN: u32 = 3;
const LONG_CHAIN_FRESH_US: u64 = 50;

const LOOK_TWICE_MOST: u32 = 24;

/// How far a prune looks.
#[derive(Clone, Copy)]
struct Look {
    /// It ends when so many versions are left.
    most: u32,
    past_settled: bool,
}

impl Look {
    const AT_ALL: Look = Look {
        most: u32::MAX,
        past_settled: true,
    };

    /// For an update of the row whose chain begins at `first`.
    fn for_update(first: VersionAddr) -> Look {
        // Each update's version has another address: good enough as a random number.
        let random = (first.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        Look {
            most: LOOK_AT << random.trailing_zeros().min(LOOK_TWICE_MOST),
            past_settled: random >> (32 - PAST_SETTLED_EVERY.ilog2()) == 0,
        }
    }
}

struct Dropped {
    head: VersionHead,
    body: Range<usize>,
}

/// A chain on the way through it.
struct Cut {
    start: VersionAddr,
    last_kept: Option<VersionAddr>,
    /// What goes, between `last_kept` and the next version that stays.
    dropped: Vec<Dropped>,
    done: Pruned,
}

impl Cut {
    fn at(start: VersionAddr) -> Cut {
        Cut {
            start,
            last_kept: None,
            dropped: Vec::new(),
            done: Pruned::default(),
        }
    }

    /// What was to go stays, because a scratch file cannot be read.
    fn keep_pending(&mut self) {
        debug_assert!(self.done.dropped as usize >= self.dropped.len());
        self.done.dropped -= self.dropped.len() as u32;
        self.done.kept += self.dropped.len() as u32;
        self.dropped.clear();
    }
}

impl Walk<'_> {
    /// Takes every version that no snapshot needs out of the chain that begins at `first`,
    /// and returns its new beginning. `newer` is the payload that the first version is a
    /// difference to: the record's present payload. Under the record's exclusive page latch,
    /// before the new version (which gets the result as its `next`) is added, or when a
    /// page is being cleaned (then the record's header gets the result).
    pub fn prune(
        &self,
        sys: &TxnSystem,
        first: VersionAddr,
        newer: &[u8],
    ) -> (VersionAddr, Pruned) {
        self.prune_as_far(sys, first, newer, Look::AT_ALL)
    }

    /// As [`prune`](Self::prune), for an update of the row: mostly it stops at a version that
    /// stays, so that the update does not cost as many steps as there are snapshots. What it
    /// leaves goes with a later update, or with its segment.
    pub fn prune_for_update(
        &self,
        sys: &TxnSystem,
        first: VersionAddr,
        newer: &[u8],
    ) -> (VersionAddr, Pruned) {
        self.prune_as_far(sys, first, newer, Look::for_update(first))
    }

    fn prune_as_far(
        &self,
        sys: &TxnSystem,
        first: VersionAddr,
        newer: &[u8],
        look: Look,
    ) -> (VersionAddr, Pruned) {
        let mut patience = LONG_CHAIN;
        let mut cut = Cut::at(first);
        cut.done.past_settled = look.past_settled;
        let mut bodies = Vec::new();
        let mut at = first;
        while !at.is_none() {
            let from = bodies.len();
            let head = match self.read(at, &mut bodies) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    // Freed with its segment. What is newer and stays may name it for ever.
                    if cut.last_kept.is_none() && cut.dropped.is_empty() {
                        cut.start = VersionAddr::NONE;
                    }
                    break;
                }
                Err(_) => {
                    // What is older cannot be looked at now: the rest stays as it is.
                    cut.keep_pending();
                    break;
                }
            };
            let body = from..bodies.len();
            at = head.next;
            let one_more = cut.done.kept == 1 && ferrite_sync::mutant!("txn.prune_one_too_many");
            let need = sys.need(head.begin, head.end);
            if one_more || need == Need::No {
                cut.dropped.push(Dropped { head, body });
                cut.done.dropped += 1;
                continue;
            }
            self.keep(&mut cut, &head, body, &bodies, newer);
            bodies.clear();
            if cut.done.kept == LONG_CHAIN {
                patience = patience.max(sys.listed_snapshots() as u32 + 1);
            }
            if cut.done.kept == patience && sys.refresh_if_older(LONG_CHAIN_FRESH_US) {
                debug_assert!(cut.dropped.is_empty(), "a version is forgotten");
                cut.done.kept = 0;
                cut.last_kept = None;
                at = cut.start;
                continue;
            }
            if cut.done.kept == look.most || (need == Need::Settled && !look.past_settled) {
                cut.done.partly = !at.is_none();
                break;
            }
        }
        if !cut.dropped.is_empty() {
            if self.can_unlink_after(cut.last_kept) {
                self.unlink(&mut cut, VersionAddr::NONE);
            } else {
                cut.keep_pending();
            }
        }
        debug_assert!(cut.dropped.is_empty(), "a version left in between");
        debug_assert!(cut.done.kept == 0 || !cut.start.is_none());
        (cut.start, cut.done)
    }

    /// A version that stays: what goes before it is taken out of the chain.
    fn keep(
        &self,
        cut: &mut Cut,
        head: &VersionHead,
        body: Range<usize>,
        bodies: &[u8],
        newer: &[u8],
    ) {
        if !cut.dropped.is_empty() && !self.can_unlink_after(cut.last_kept) {
            cut.keep_pending();
        }
        cut.done.kept += 1;
        let mut here = head.addr;
        if !cut.dropped.is_empty() {
            if !head.is_full() {
                let base = cut.last_kept.is_none().then_some(newer);
                here = self.rebase_delta(&cut.dropped, head, body, bodies, base);
            }
            self.unlink(cut, here);
        }
        cut.last_kept = Some(here);
    }

    /// The version at `addr` is a difference to payload `from`; makes it a difference to
    /// `to`, and returns its address. With this a transaction that changes a record again
    /// needs no second version (and a rollback to between the two changes calls it the
    /// other way round). Under the record's exclusive page latch; the record's header gets
    /// the result.
    ///
    /// # Errors
    /// As [`Walk::read`]; nothing changed.
    pub fn rebase(&self, addr: VersionAddr, from: &[u8], to: &[u8]) -> Result<VersionAddr> {
        let put_back = |head: &VersionHead, packed: &Packed| self.put_back(head, packed);
        self.told_from(addr, (from, to), put_back)
    }

    /// The same, but the version stays as it is beside its new form, if that is another: for a
    /// record that may be read once more as it was, with payload `from`.
    ///
    /// # Errors
    /// As [`Walk::read`]; nothing changed.
    pub fn rebased_copy(&self, addr: VersionAddr, from: &[u8], to: &[u8]) -> Result<VersionAddr> {
        let add = |head: &VersionHead, packed: &Packed| self.store.add(repacked(head, packed));
        self.told_from(addr, (from, to), add)
    }

    fn told_from(
        &self,
        addr: VersionAddr,
        (from, to): (&[u8], &[u8]),
        place: impl FnOnce(&VersionHead, &Packed) -> VersionAddr,
    ) -> Result<VersionAddr> {
        let mut body = Vec::new();
        let Some(head) = self.read(addr, &mut body)? else {
            return Ok(VersionAddr::NONE);
        };
        if head.is_full() {
            return Ok(addr);
        }
        let (keep_head, keep_tail) = diff(from, to);
        let (h, t) = (usize::from(keep_head), usize::from(keep_tail));
        debug_assert!(h + t <= from.len() && from[..h] == to[..h]);
        debug_assert_eq!(from[from.len() - t..], to[to.len() - t..]);
        let step = [
            Piece::Head { at: 0, len: h },
            Piece::Bytes(&from[h..from.len() - t]),
            Piece::Tail { back: t, len: t },
        ];
        let packed = pack(&compose(&step, &pieces(&head, &body)));
        Ok(place(&head, &packed))
    }

    /// A spilled version has to be read before its `next` can change.
    fn can_unlink_after(&self, before: Option<VersionAddr>) -> bool {
        before.is_none_or(|before| self.make_changeable(before).is_ok())
    }

    /// The dropped versions leave the chain; `next` follows what stands before them.
    fn unlink(&self, cut: &mut Cut, next: VersionAddr) {
        debug_assert!(
            next.is_none() || cut.dropped.iter().all(|d| d.head.addr != next),
            "{next:?} stays and goes"
        );
        match cut.last_kept {
            None => cut.start = next,
            Some(before) => self.set_next(before, next),
        }
        for d in cut.dropped.drain(..) {
            self.drop_version(d.head.addr);
        }
    }

    /// Makes the version a difference to the state before the dropped ones; its new address.
    fn rebase_delta(
        &self,
        dropped: &[Dropped],
        head: &VersionHead,
        body: Range<usize>,
        bodies: &[u8],
        base: Option<&[u8]>,
    ) -> VersionAddr {
        debug_assert!(
            dropped
                .iter()
                .zip(dropped[1..].iter().map(|d| &d.head).chain([head]))
                .all(|(d, older)| d.head.next == older.addr),
            "differences to other states than the next"
        );
        let mut all: Vec<Piece<'_>> = Vec::new();
        for (i, d) in dropped.iter().enumerate() {
            let step = pieces(&d.head, &bodies[d.body.clone()]);
            all = if i == 0 { step } else { compose(&all, &step) };
        }
        all = compose(&all, &pieces(head, &bodies[body]));
        debug_assert!(!dropped.is_empty() && !head.is_full());
        let mut packed = pack(&all);
        if let Some(newer) = base {
            if payload_len(&all) <= packed.body.len() + FULL_COSTS {
                packed = Packed {
                    flags: VERSION_FULL,
                    keep_head: 0,
                    keep_tail: 0,
                    body: payload(&all, newer),
                };
            }
        }
        self.put_back(head, &packed)
    }

    /// Gives a version another body, in its place if it fits; its address.
    fn put_back(&self, head: &VersionHead, packed: &Packed) -> VersionAddr {
        let v = repacked(head, packed);
        match self.store.young.rewrite(head.addr, &v) {
            Found::Here(true) => head.addr,
            Found::Elsewhere if self.store.old.replace(head.addr, &v) => head.addr,
            // No room, or spilled: it becomes a young version again.
            Found::Here(false) | Found::Dead | Found::Elsewhere => {
                let addr = self.store.add(v);
                self.drop_version(head.addr);
                addr
            }
        }
    }
}

/// The version with another body.
pub(crate) fn repacked<'a>(head: &VersionHead, packed: &'a Packed) -> NewVersion<'a> {
    debug_assert!(
        packed.flags & !(VERSION_FULL | VERSION_PATCH) == 0,
        "packing changes what the state was"
    );
    NewVersion {
        begin: head.begin,
        end: head.end,
        next: head.next,
        flags: head.flags & !(VERSION_FULL | VERSION_PATCH) | packed.flags,
        keep_head: packed.keep_head,
        keep_tail: packed.keep_tail,
        body: &packed.body,
        index: head.index,
    }
}
