//! The granted locks of one key.
//!
//! Invariant: an owner has at most one entry (a set of modes). A key that many share, as the row of
//! a parent table, has a place for each owner and a count for each mode besides, so that asking,
//! adding and removing cost the same however many there are.
//!
//! Locking: under the shard's mutex, as the queue it belongs to.

use std::collections::HashMap;

use ferrite_sync::Arc;

use crate::mode::{conflicts, Mask, CHECKED_MOST, GAP, INSERT, TAB_X};
use crate::owner::Owner;

/// Entries from which on there are places and counts.
const CROWD: usize = 16;
/// Bits of a [`Mask`].
pub(crate) const MODES: usize = 9;
const _: () = assert!(TAB_X == 1 << (MODES - 1), "each mode has a count");

pub(crate) struct Granted {
    pub owner: Arc<Owner>,
    pub mask: Mask,
}

/// What `add` changed, for the counters.
#[derive(Clone, Copy, Default)]
pub(crate) struct Added {
    pub new_entry: bool,
    pub new_gap: bool,
}

/// How many have each mode.
#[derive(Clone, Default)]
pub(crate) struct Counts([u32; MODES]);

impl Counts {
    pub fn add(&mut self, mask: Mask) {
        for (bit, count) in self.0.iter_mut().enumerate() {
            *count += u32::from(mask >> bit & 1);
        }
    }

    pub fn sub(&mut self, mask: Mask) {
        for (bit, count) in self.0.iter_mut().enumerate() {
            let one = u32::from(mask >> bit & 1);
            assert!(*count >= one, "mode {bit} goes that nobody had");
            *count -= one;
        }
    }

    /// The modes that somebody has, not counting one who has `own`.
    pub fn without(&self, own: Mask) -> Mask {
        let mut all = 0;
        for (bit, count) in self.0.iter().enumerate() {
            if *count > u32::from(own >> bit & 1) {
                all |= 1 << bit;
            }
        }
        all
    }
}

struct Crowd {
    places: HashMap<usize, u32, foldhash::fast::FixedState>,
    counts: Counts,
}

#[derive(Default)]
pub(crate) struct Holders {
    list: Vec<Granted>,
    crowd: Option<Box<Crowd>>,
}

fn name(owner: &Arc<Owner>) -> usize {
    Arc::as_ptr(owner) as usize
}

impl Holders {
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Granted> {
        self.list.iter()
    }

    /// After a burst.
    pub fn shrink(&mut self) {
        debug_assert!(self.list.is_empty(), "places of granted locks go");
        self.list.shrink_to(8);
        self.crowd = None;
    }

    /// Each owner is here once, with something; places and counts say what the list says.
    fn is_sound(&self) -> bool {
        if self.list.len() > CHECKED_MOST {
            return true;
        }
        let mut counts = Counts::default();
        let is_once = |(at, g): (usize, &Granted)| {
            counts.add(g.mask);
            g.mask != 0 && g.mask & INSERT == 0 && self.place_of(&g.owner) == Some(at)
        };
        self.list.iter().enumerate().all(is_once)
            && self.crowd.as_ref().is_none_or(|crowd| {
                crowd.places.len() == self.list.len() && crowd.counts.0 == counts.0
            })
    }

    fn place_of(&self, owner: &Arc<Owner>) -> Option<usize> {
        debug_assert!(self.list.len() <= CROWD || self.crowd.is_some());
        match &self.crowd {
            Some(crowd) => crowd.places.get(&name(owner)).map(|at| *at as usize),
            None => self.list.iter().position(|g| Arc::ptr_eq(&g.owner, owner)),
        }
    }

    /// What that owner has.
    pub fn mask_of(&self, owner: &Arc<Owner>) -> Mask {
        self.place_of(owner).map_or(0, |at| self.list[at].mask)
    }

    /// Is a request in conflict with what others than `owner`, who has `own`, have?
    pub fn block(&self, owner: &Arc<Owner>, own: Mask, asked: Mask) -> bool {
        match &self.crowd {
            Some(crowd) => conflicts(asked, crowd.counts.without(own)),
            None => self
                .list
                .iter()
                .any(|g| conflicts(asked, g.mask) && !Arc::ptr_eq(&g.owner, owner)),
        }
    }

    pub fn add(&mut self, owner: &Arc<Owner>, mask: Mask) -> Added {
        debug_assert!(mask != 0 && mask & INSERT == 0, "{mask:#x} is granted");
        if let Some(at) = self.place_of(owner) {
            let g = &mut self.list[at];
            let before = g.mask;
            g.mask |= mask;
            if let Some(crowd) = &mut self.crowd {
                crowd.counts.add(mask & !before);
            }
            return Added {
                new_entry: false,
                new_gap: before & GAP == 0 && mask & GAP != 0,
            };
        }
        self.list.push(Granted {
            owner: owner.clone(),
            mask,
        });
        match &mut self.crowd {
            Some(crowd) => {
                crowd
                    .places
                    .insert(name(owner), (self.list.len() - 1) as u32);
                crowd.counts.add(mask);
            }
            None if self.list.len() > CROWD => self.gather(),
            None => {}
        }
        debug_assert!(self.is_sound(), "after {mask:#x} was granted");
        Added {
            new_entry: true,
            new_gap: mask & GAP != 0,
        }
    }

    #[cold]
    fn gather(&mut self) {
        let mut crowd = Crowd {
            places: HashMap::default(),
            counts: Counts::default(),
        };
        for (at, g) in self.list.iter().enumerate() {
            crowd.places.insert(name(&g.owner), at as u32);
            crowd.counts.add(g.mask);
        }
        assert_eq!(
            crowd.places.len(),
            self.list.len(),
            "an owner is here twice"
        );
        self.crowd = Some(Box::new(crowd));
    }

    /// Takes modes away from an owner. Returns what it had before and has now.
    pub fn remove(&mut self, owner: &Arc<Owner>, mask: Mask) -> (Mask, Mask) {
        let Some(at) = self.place_of(owner) else {
            return (0, 0);
        };
        let before = self.list[at].mask;
        let after = before & !mask;
        if let Some(crowd) = &mut self.crowd {
            crowd.counts.sub(before & mask);
        }
        if after != 0 {
            self.list[at].mask = after;
            debug_assert!(self.is_sound(), "{after:#x} of {before:#x} stays");
            return (before, after);
        }
        self.list.swap_remove(at);
        if let Some(crowd) = &mut self.crowd {
            crowd.places.remove(&name(owner));
            if let Some(moved) = self.list.get(at) {
                crowd.places.insert(name(&moved.owner), at as u32);
            }
        }
        debug_assert!(self.is_sound(), "after {before:#x} has gone");
        debug_assert_eq!(self.mask_of(owner), 0, "nothing is left");
        (before, 0)
    }
}
