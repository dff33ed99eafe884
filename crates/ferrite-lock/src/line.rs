//! The line of those who wait for one key.
//!
//! Invariants:
//! - Waiters stand in the order of their arrival numbers, which rise within a line: a waiter is
//!   found by its number, not by a look at all of them.
//! - `kinds` counts the modes waited for, `mixed` the waiters that hold something on the key, too,
//!   `reporting` those whose server wants to know whom they wait for.
//!
//! Locking: under the shard's mutex, as the queue it belongs to.

use std::collections::VecDeque;

use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;

use crate::holders::Counts;
use crate::mode::{conflicts, Mask, CHECKED_MOST, GAP};
use crate::owner::Owner;

pub(crate) struct Waiting {
    pub owner: Arc<Owner>,
    pub mask: Mask,
    pub sequence: u64,
    pub arrival: u64,
    /// The owner has a granted entry on this key.
    pub holds: bool,
    /// The server wants to know whom it waits for, also of those who come later.
    pub reports: bool,
}

#[derive(Default)]
pub(crate) struct Line {
    waiting: VecDeque<Waiting>,
    kinds: Counts,
    mixed: u32,
    reporting: u32,
}

impl Line {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn get(&self, at: usize) -> Option<&Waiting> {
        self.waiting.get(at)
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Waiting> + ExactSizeIterator {
        self.waiting.iter()
    }

    /// The first `before` waiters.
    pub fn first(&self, before: usize) -> impl DoubleEndedIterator<Item = &Waiting> {
        self.waiting.range(..before)
    }

    /// Arrivals rise, nobody waits for nothing, and the counts say what the line says.
    fn is_sound(&self) -> bool {
        let few = self.waiting.len() <= CHECKED_MOST;
        let mixed = || self.waiting.iter().filter(|w| w.holds).count();
        let reporting = || self.waiting.iter().filter(|w| w.reports).count();
        !few || self.waiting.iter().is_sorted_by_key(|w| w.arrival)
            && self.waiting.iter().all(|w| w.mask != 0)
            && self.mixed as usize == mixed()
            && self.reporting as usize == reporting()
    }

    pub fn push(&mut self, w: Waiting) {
        debug_assert!(self.waiting.back().is_none_or(|b| b.arrival < w.arrival));
        self.kinds.add(w.mask);
        self.mixed += u32::from(w.holds);
        self.reporting += u32::from(w.reports);
        debug_assert!(
            self.waiting.len() > CHECKED_MOST
                || !self.iter().any(|other| Arc::ptr_eq(&other.owner, &w.owner)),
            "an owner stands in a line twice"
        );
        self.waiting.push_back(w);
        debug_assert!(self.is_sound(), "a waiter has come");
    }

    pub fn remove(&mut self, at: usize) -> Option<Waiting> {
        let w = self.waiting.remove(at)?;
        self.kinds.sub(w.mask);
        assert!(self.mixed >= u32::from(w.holds), "waiters that hold, too");
        self.mixed -= u32::from(w.holds);
        assert!(
            self.reporting >= u32::from(w.reports),
            "waiters that report"
        );
        self.reporting -= u32::from(w.reports);
        debug_assert!(self.is_sound(), "a waiter has gone");
        debug_assert!(!self.is_empty() || self.kinds.without(0) == 0, "kinds");
        Some(w)
    }

    /// The place of wait number `sequence` of that owner.
    pub fn place_of(&self, owner: &Arc<Owner>, sequence: u64) -> Option<usize> {
        let arrival = owner.arrival.load(Ordering::Relaxed);
        let at = self.waiting.partition_point(|w| w.arrival < arrival);
        let w = self.waiting.get(at)?;
        (w.sequence == sequence && Arc::ptr_eq(&w.owner, owner)).then_some(at)
    }

    /// The owner, who may stand here, has got an entry on this key.
    pub fn now_holds(&mut self, owner: &Arc<Owner>) {
        let found = self
            .waiting
            .iter_mut()
            .find(|w| Arc::ptr_eq(&w.owner, owner));
        if let Some(w) = found.filter(|w| !w.holds) {
            w.holds = true;
            self.mixed += 1;
            debug_assert!(self.mixed as usize <= self.waiting.len());
        }
    }

    /// Those whose server wants to know that `mask` has come to stand in their way.
    pub fn reporting(&self, mask: Mask) -> impl Iterator<Item = &Waiting> {
        let few = if self.reporting == 0 { 0 } else { self.len() };
        let stands = move |w: &&Waiting| w.reports && conflicts(w.mask, mask);
        self.waiting.range(..few).filter(stands)
    }

    /// Do waiters who ask for `blocked` stand in the way of everybody behind them? A gap is never
    /// waited for alone.
    pub fn all_behind(&self, blocked: Mask) -> bool {
        let kinds = self.kinds.without(0) & !GAP;
        self.mixed == 0
            && (0..16).all(|bit| {
                let one = kinds & 1 << bit;
                one == 0 || conflicts(one, blocked)
            })
    }

    pub fn shrink(&mut self) {
        debug_assert!(self.is_empty(), "a line that somebody stands in goes");
        self.waiting.shrink_to(8);
    }
}
