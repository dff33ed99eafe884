//! One key: its granted locks and the line of those who wait.
//!
//! Invariants:
//! - An owner has at most one granted entry in a queue (a set of modes), and at most one
//!   waiting entry anywhere.
//! - A waiter has an obstacle: a conflicting granted entry of another owner, or an earlier
//!   conflicting waiter. An earlier waiter that itself waits for the asking owner is no
//!   obstacle: it could not go before the owner ends (otherwise an owner that strengthens
//!   its own lock would be in a deadlock at once).
//! - An insert intention is never kept once granted.
//!
//! Locking: everything here is under the shard's mutex. Owners to be woken are collected
//! and woken after it is released.

use ferrite_sync::Arc;
use ferrite_types::IndexId;

use crate::mode::{conflicts, missing, Mask, GAP, INSERT};
use crate::owner::{Owner, GRANTED, GRANTED_NEW};

pub(crate) struct Granted {
    pub owner: Arc<Owner>,
    pub mask: Mask,
}

pub(crate) struct Waiting {
    pub owner: Arc<Owner>,
    pub mask: Mask,
    pub sequence: u64,
}

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

/// What `add` changed, for the counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Added {
    pub new_entry: bool,
    pub new_gap: bool,
}

#[derive(Default)]
pub(crate) struct Queue {
    pub hash: u64,
    pub index: IndexId,
    pub key: Vec<u8>,
    /// Next slot of the same bucket, or of the free list.
    pub next: u32,
    pub granted: Vec<Granted>,
    pub waiting: Vec<Waiting>,
}

impl Queue {
    pub fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    /// What that owner holds here.
    pub fn held_by(&self, owner: &Arc<Owner>) -> Mask {
        self.granted
            .iter()
            .find(|g| Arc::ptr_eq(&g.owner, owner))
            .map_or(0, |g| g.mask)
    }

    /// Must the request wait, looking at all granted entries and the first `before` waiters?
    pub fn has_obstacle(&self, owner: &Arc<Owner>, asked: Mask, before: usize) -> bool {
        let mut found = false;
        self.obstacles(owner, asked, before, &mut |_| {
            found = true;
            false
        });
        found
    }

    /// Calls `f` with each owner that the request would wait for, until it says false.
    pub fn obstacles(
        &self,
        owner: &Arc<Owner>,
        asked: Mask,
        before: usize,
        f: &mut dyn FnMut(&Arc<Owner>) -> bool,
    ) {
        let mut own = 0;
        for g in &self.granted {
            if Arc::ptr_eq(&g.owner, owner) {
                own = g.mask;
            } else if conflicts(asked, g.mask) && !f(&g.owner) {
                return;
            }
        }
        for w in &self.waiting[..before] {
            let in_the_way = !Arc::ptr_eq(&w.owner, owner)
                && conflicts(asked, w.mask)
                && !conflicts(w.mask, own);
            if in_the_way && !f(&w.owner) {
                return;
            }
        }
    }

    /// Grants modes without asking. Waiters that it newly stands in the way of are told.
    pub fn add(&mut self, owner: &Arc<Owner>, mask: Mask, wakes: &mut Wakes) -> Added {
        debug_assert!(mask & INSERT == 0);
        for w in &self.waiting {
            if conflicts(w.mask, mask) && !Arc::ptr_eq(&w.owner, owner) {
                wakes.recheck.push(w.owner.clone());
            }
        }
        self.merge(owner, mask)
    }

    fn merge(&mut self, owner: &Arc<Owner>, mask: Mask) -> Added {
        if let Some(g) = self
            .granted
            .iter_mut()
            .find(|g| Arc::ptr_eq(&g.owner, owner))
        {
            let new_gap = g.mask & GAP == 0 && mask & GAP != 0;
            g.mask |= mask;
            return Added {
                new_entry: false,
                new_gap,
            };
        }
        self.granted.push(Granted {
            owner: owner.clone(),
            mask,
        });
        Added {
            new_entry: true,
            new_gap: mask & GAP != 0,
        }
    }

    /// Takes modes away from an owner. Returns what it held before and holds now.
    pub fn remove(&mut self, owner: &Arc<Owner>, mask: Mask) -> (Mask, Mask) {
        let Some(at) = self
            .granted
            .iter()
            .position(|g| Arc::ptr_eq(&g.owner, owner))
        else {
            return (0, 0);
        };
        let before = self.granted[at].mask;
        let after = before & !mask;
        if after == 0 {
            self.granted.swap_remove(at);
        } else {
            self.granted[at].mask = after;
        }
        (before, after)
    }

    /// The place in the line of wait number `sequence` of that owner.
    pub fn place_of(&self, owner: &Arc<Owner>, sequence: u64) -> Option<usize> {
        self.waiting
            .iter()
            .position(|w| w.sequence == sequence && Arc::ptr_eq(&w.owner, owner))
    }

    /// Grants every waiter that has no obstacle left, first come first served. `tally`
    /// gets (modes the waiter asked for, what was added) of each that left the line.
    pub fn grant_waiters(&mut self, wakes: &mut Wakes, tally: &mut dyn FnMut(Mask, Added)) {
        let mut at = 0;
        while at < self.waiting.len() {
            let w = &self.waiting[at];
            if self.has_obstacle(&w.owner, w.mask, at) {
                at += 1;
                continue;
            }
            let (owner, mask, sequence) = (w.owner.clone(), w.mask, w.sequence);
            let kept = mask & !INSERT;
            let new = kept != 0 && self.held_by(&owner) == 0;
            let state = if new { GRANTED_NEW } else { GRANTED };
            self.waiting.remove(at);
            if !owner.end_wait(sequence, state) {
                // It gave up a moment ago and will find itself gone.
                tally(mask, Added::default());
                continue;
            }
            // Later waiters had it before them already; for earlier ones it is new.
            for w in &self.waiting[..at] {
                if conflicts(w.mask, kept) {
                    wakes.recheck.push(w.owner.clone());
                }
            }
            let added = if kept == 0 {
                Added::default()
            } else {
                self.merge(&owner, kept)
            };
            debug_assert_eq!(added.new_entry, new);
            tally(mask, added);
            wakes.granted.push(owner);
        }
    }

    /// What of a request is not covered by what the owner holds.
    pub fn missing(&self, owner: &Arc<Owner>, asked: Mask) -> Mask {
        missing(asked, self.held_by(owner))
    }
}
