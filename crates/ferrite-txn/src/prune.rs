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

use ferrite_types::Result;

use crate::delta::{compose, diff, pack, payload, payload_len, pieces, Packed, Piece};
use crate::segment::Found;
use crate::store::Walk;
use crate::system::TxnSystem;
use crate::version::{NewVersion, VersionAddr, VersionHead, VERSION_FULL, VERSION_PATCH};

/// A whole payload is stored when it is at most so much longer than the difference (bytes).
const FULL_COSTS: usize = 32;

/// Versions kept before it is worth asking for a newer list of snapshots, and how old (us)
/// the list must be: a row updated thousands of times a second grows a tail of versions
/// that are needed only as far as the list can tell.
const LONG_CHAIN: u32 = 3;
const LONG_CHAIN_FRESH_US: u64 = 50;

/// What a prune did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Versions taken out.
    pub dropped: u32,
    /// Versions left in the chain.
    pub kept: u32,
}

struct Dropped {
    head: VersionHead,
    body: Range<usize>,
}

impl Pruned {
    /// What was to go stays, because a scratch file cannot be read.
    fn keep_pending(&mut self, dropped: &mut Vec<Dropped>) {
        self.dropped -= dropped.len() as u32;
        self.kept += dropped.len() as u32;
        dropped.clear();
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
        let mut done = Pruned::default();
        let mut bodies = Vec::new();
        let mut dropped: Vec<Dropped> = Vec::new();
        let mut start = first;
        let mut last_kept: Option<VersionAddr> = None;
        let mut at = first;
        while !at.is_none() {
            let from = bodies.len();
            let head = match self.read(at, &mut bodies) {
                Ok(Some(head)) => head,
                Ok(None) => {
                    // Freed with its segment. What is newer and stays may name it for ever.
                    if last_kept.is_none() && dropped.is_empty() {
                        start = VersionAddr::NONE;
                    }
                    break;
                }
                Err(_) => {
                    // What is older cannot be looked at now: the rest stays as it is.
                    done.keep_pending(&mut dropped);
                    break;
                }
            };
            let body = from..bodies.len();
            at = head.next;
            let one_more = done.kept == 1 && ferrite_sync::mutant!("txn.prune_one_too_many");
            if one_more || !sys.version_needed(head.begin, head.end) {
                dropped.push(Dropped { head, body });
                done.dropped += 1;
                continue;
            }
            if !dropped.is_empty() && !self.can_unlink_after(last_kept) {
                done.keep_pending(&mut dropped);
            }
            done.kept += 1;
            let mut here = head.addr;
            if !dropped.is_empty() {
                if !head.is_full() {
                    let base = last_kept.is_none().then_some(newer);
                    here = self.retell(&dropped, &head, body, &bodies, base);
                }
                self.unlink(&dropped, last_kept, &mut start, here);
                dropped.clear();
            }
            if done.kept == LONG_CHAIN && sys.refresh_if_older(LONG_CHAIN_FRESH_US) {
                done.kept = 0;
                last_kept = None;
                at = start;
                bodies.clear();
                continue;
            }
            bodies.clear();
            last_kept = Some(here);
        }
        if !dropped.is_empty() {
            if self.can_unlink_after(last_kept) {
                self.unlink(&dropped, last_kept, &mut start, VersionAddr::NONE);
            } else {
                done.keep_pending(&mut dropped);
            }
        }
        (start, done)
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
        let mut body = Vec::new();
        let Some(head) = self.read(addr, &mut body)? else {
            return Ok(VersionAddr::NONE);
        };
        if head.is_full() {
            return Ok(addr);
        }
        let (keep_head, keep_tail) = diff(from, to);
        let (h, t) = (usize::from(keep_head), usize::from(keep_tail));
        let step = [
            Piece::Head { at: 0, len: h },
            Piece::Bytes(&from[h..from.len() - t]),
            Piece::Tail { back: t, len: t },
        ];
        let packed = pack(&compose(&step, &pieces(&head, &body)));
        Ok(self.put_back(&head, &packed))
    }

    /// A spilled version has to be read before its `next` can change.
    fn can_unlink_after(&self, before: Option<VersionAddr>) -> bool {
        before.is_none_or(|before| self.make_changeable(before).is_ok())
    }

    fn unlink(
        &self,
        dropped: &[Dropped],
        before: Option<VersionAddr>,
        start: &mut VersionAddr,
        next: VersionAddr,
    ) {
        match before {
            None => *start = next,
            Some(before) => self.set_next(before, next),
        }
        for d in dropped {
            self.drop_version(d.head.addr);
        }
    }

    /// Makes the version a difference to the state before the dropped ones; its new address.
    fn retell(
        &self,
        dropped: &[Dropped],
        head: &VersionHead,
        body: Range<usize>,
        bodies: &[u8],
        base: Option<&[u8]>,
    ) -> VersionAddr {
        let mut all: Vec<Piece<'_>> = Vec::new();
        for (i, d) in dropped.iter().enumerate() {
            let step = pieces(&d.head, &bodies[d.body.clone()]);
            all = if i == 0 { step } else { compose(&all, &step) };
        }
        all = compose(&all, &pieces(head, &bodies[body]));
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
