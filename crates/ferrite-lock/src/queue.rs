//! One key: its granted locks and the line of those who wait.
//!
//! Invariants:
//! - An owner has at most one granted entry in a queue (a set of modes), and at most one
//!   waiting entry anywhere.
//! - While somebody waits, all who hold something here are marked as wanted.
//! - A waiter has an obstacle: a conflicting granted entry of another owner, or an earlier
//!   conflicting waiter. An earlier waiter that itself waits for the asking owner is no
//!   obstacle: it could not go before the owner ends (otherwise an owner that strengthens
//!   its own lock would be in a deadlock at once).
//! - An insert intention is never kept once granted.
//!
//! Locking: everything here is under the shard's mutex. Owners to be woken are collected
//! and woken after it is released.

use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_types::IndexId;

use crate::holders::Granted;
pub(crate) use crate::holders::{Added, Holders};
pub(crate) use crate::line::{Line, Waiting};
use crate::mode::{conflicts, missing, Mask, CHECKED_MOST, INSERT};
use crate::owner::{Owner, GRANTED, GRANTED_NEW};

/// What has to be done once the shard's mutex is released.
#[derive(Default)]
pub(crate) struct Wakes {
    pub granted: Vec<Arc<Owner>>,
    pub recheck: Vec<Arc<Owner>>,
}

impl Wakes {
    pub fn send(self) {
        for owner in self.granted {
            owner.event.set();
        }
        for owner in self.recheck {
            owner.wake_to_recheck();
        }
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    pub hash: u64,
    pub index: IndexId,
    pub key: Vec<u8>,
    /// Next slot of the same bucket, or of the free list.
    pub next: u32,
    pub granted: Holders,
    pub waiting: Line,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    /// What that owner holds here.
    pub fn held_by(&self, owner: &Arc<Owner>) -> Mask {
        self.granted.mask_of(owner)
    }

    /// Must the request wait, looking at all granted entries and the first `before` waiters?
    pub fn has_obstacle(&self, owner: &Arc<Owner>, asked: Mask, before: usize) -> bool {
        let own = self.granted.mask_of(owner);
        self.granted.block(owner, own, asked) || self.is_behind(owner, own, asked, before)
    }

    /// Must the request, of an owner that holds `own` here, wait for one of the first waiters?
    fn is_behind(&self, owner: &Arc<Owner>, own: Mask, asked: Mask, before: usize) -> bool {
        self.waiting.first(before).any(|w| {
            conflicts(asked, w.mask) && !conflicts(w.mask, own) && !Arc::ptr_eq(&w.owner, owner)
        })
    }

    /// Calls `f` with each owner that the request would wait for, until it says false.
    pub fn obstacles(
        &self,
        owner: &Arc<Owner>,
        asked: Mask,
        before: usize,
        f: &mut dyn FnMut(&Arc<Owner>) -> bool,
    ) {
        let own = self.granted.mask_of(owner);
        for g in self.granted.iter() {
            if conflicts(asked, g.mask) && !Arc::ptr_eq(&g.owner, owner) && !f(&g.owner) {
                return;
            }
        }
        // Those who stand nearest come first.
        for w in self.waiting.first(before).rev() {
            let in_the_way = !Arc::ptr_eq(&w.owner, owner)
                && conflicts(asked, w.mask)
                && !conflicts(w.mask, own);
            if in_the_way && !f(&w.owner) {
                return;
            }
        }
    }

    /// Grants modes without asking. If it newly stands in the way of waiters and waits itself, it
    /// looks for cycles again: they all go through it.
    pub fn add(&mut self, owner: &Arc<Owner>, mask: Mask, wakes: &mut Wakes) -> Added {
        debug_assert!(mask & INSERT == 0);
        if !self.waiting.is_empty() && mask & !self.held_by(owner) != 0 {
            // Marked before the look: an owner that begins to wait now sees the mark itself.
            owner.wanted.store(true, Ordering::SeqCst);
            if owner.is_waiting() {
                wakes.recheck.push(owner.clone());
            }
        }
        let added = self.merge(owner, mask, wakes);
        debug_assert_eq!(self.missing(owner, mask), 0, "granted and not held");
        added
    }

    fn merge(&mut self, owner: &Arc<Owner>, mask: Mask, wakes: &mut Wakes) -> Added {
        if self.waiting.is_empty() {
            return self.granted.add(owner, mask);
        }
        let new = mask & !self.held_by(owner);
        let added = self.granted.add(owner, mask);
        owner.wanted.store(true, Ordering::SeqCst);
        // Locks on gaps are granted whoever waits to insert there: a parallel replica must hear of it,
        // for they may be of a transaction that is to commit later and waits for its turn.
        let others = self.waiting.reporting(new);
        let others = others.filter(|w| !Arc::ptr_eq(&w.owner, owner));
        wakes.recheck.extend(others.map(|w| w.owner.clone()));
        if added.new_entry && owner.is_waiting() {
            self.waiting.now_holds(owner);
        }
        added
    }

    /// Puts a waiter at the end of the line. Who holds something here is waited for, from now on.
    pub fn enqueue(&mut self, w: Waiting) {
        if self.waiting.is_empty() {
            for g in self.granted.iter() {
                g.owner.wanted.store(true, Ordering::SeqCst);
            }
        }
        debug_assert!(
            self.has_obstacle(&w.owner, w.mask, self.waiting.len()),
            "{:?} waits for nobody",
            w.owner
        );
        debug_assert_eq!(w.holds, self.held_by(&w.owner) != 0);
        debug_assert!(self.holders_are_wanted());
        self.waiting.push(w);
    }

    /// Takes modes away from an owner. Returns what it held before and holds now.
    pub fn remove(&mut self, owner: &Arc<Owner>, mask: Mask) -> (Mask, Mask) {
        let (before, after) = self.granted.remove(owner, mask);
        debug_assert!(after & !before == 0 && after & mask == 0, "{before:#x}");
        (before, after)
    }

    /// The place in the line of wait number `sequence` of that owner.
    pub fn place_of(&self, owner: &Arc<Owner>, sequence: u64) -> Option<usize> {
        self.waiting.place_of(owner, sequence)
    }

    /// Has the waiter at that place an obstacle? `blocked`: what those before it wait for.
    fn is_blocked(&self, w: &Waiting, at: usize, blocked: Mask) -> bool {
        if w.holds {
            return self.has_obstacle(&w.owner, w.mask, at);
        }
        conflicts(w.mask, blocked) || self.granted.block(&w.owner, 0, w.mask)
    }

    /// Grants every waiter that has no obstacle left, first come first served. `tally`
    /// gets (modes the waiter asked for, what was added) of each that left the line. It ends
    /// where those who go on waiting stand in everybody's way, so that handing a key on in a long
    /// line costs the same as in a short one.
    pub fn grant_waiters(&mut self, wakes: &mut Wakes, tally: &mut dyn FnMut(Mask, Added)) {
        let mut at = 0;
        let mut blocked = 0;
        while let Some(w) = self.waiting.get(at) {
            if self.is_blocked(w, at, blocked) {
                blocked |= w.mask;
                at += 1;
                if self.waiting.all_behind(blocked) {
                    return;
                }
                continue;
            }
            let kept = w.mask & !INSERT;
            let new = kept != 0 && !w.holds;
            let state = if new { GRANTED_NEW } else { GRANTED };
            let Some(w) = self.waiting.remove(at) else {
                return;
            };
            if !w.owner.end_wait(w.sequence, state) {
                // It gave up a moment ago and will find itself gone.
                tally(w.mask, Added::default());
                continue;
            }
            debug_assert!(
                !self.granted.block(&w.owner, self.held_by(&w.owner), w.mask),
                "{:?} is granted {:#x} beside a lock in conflict",
                w.owner,
                w.mask
            );
            // Who still waits and is newly behind it will look for cycles when it waits itself.
            let added = match kept {
                0 => Added::default(),
                kept => self.merge(&w.owner, kept, wakes),
            };
            debug_assert_eq!(added.new_entry, new);
            debug_assert_eq!(missing(kept, self.held_by(&w.owner)), 0, "handed on");
            tally(w.mask, added);
            wakes.granted.push(w.owner);
        }
    }

    /// Who still stands in line has a reason; one that has given up a moment ago needs none.
    pub fn waiters_have_reasons(&self) -> bool {
        self.waiting
            .iter()
            .take(CHECKED_MOST)
            .enumerate()
            .all(|(at, w)| {
                w.owner.wait_sequence() != Some(w.sequence)
                    || self.has_obstacle(&w.owner, w.mask, at)
            })
    }

    /// Who holds something here knows that it is waited for.
    fn holders_are_wanted(&self) -> bool {
        let is_wanted = |g: &Granted| g.owner.wanted.load(Ordering::SeqCst);
        self.granted.iter().take(CHECKED_MOST).all(is_wanted)
    }

    /// What of a request is not covered by what the owner holds.
    pub fn missing(&self, owner: &Arc<Owner>, asked: Mask) -> Mask {
        missing(asked, self.held_by(owner))
    }
}
