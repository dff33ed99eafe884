//! How far the versions of a prepared transaction's changes were made again after a restart, by who did not come to the
//! end: a page could not be read, or a KILL or a shutdown was in the way. Who tries again goes on from there. Made from the
//! beginning, each try would add a version of every row, which only the transaction's end lets go of: whether the address in
//! a row is of one that was made a moment ago cannot be told from the address, since each life numbers them from the start.
//!
//! The undo list is walked backwards, and if there is much of it several times, by the hash of the entries: see
//! `transaction::restore_versions`. So of each hash there is a position, down to which all is done.
//!
//! Invariant: what was done stays done, as long as the transaction is prepared: its undo list does not change, and nobody
//! else may change its rows.
//!
//! Locking: none of its own; it is in the transaction's slot while nobody is at it.

use ferrite_types::UndoPosition;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct MadeAgain {
    /// Of a hash, and of those behind it up to the next one: down to where. Before the first one: nothing is done.
    down_to: BTreeMap<u64, UndoPosition>,
    /// Some changes are in tables that are gone.
    pub lacks_tables: bool,
}

impl MadeAgain {
    /// Is that change done, which begins there in the list, of an entry with this hash?
    pub(crate) fn has(&self, hash: u64, at: UndoPosition) -> bool {
        at >= self.down_to(hash)
    }

    fn down_to(&self, hash: u64) -> UndoPosition {
        let before = self.down_to.range(..=hash).next_back();
        before.map_or(UndoPosition::END, |(_, down_to)| *down_to)
    }

    /// Of the entries with these hashes all changes are done that begin there or behind it.
    pub(crate) fn note(&mut self, hashes: RangeInclusive<u64>, down_to: UndoPosition) {
        assert!(!hashes.is_empty(), "nothing is done");
        let (from, to) = hashes.clone().into_inner();
        if let Some(next) = to.checked_add(1) {
            let of_next = self.down_to(next);
            self.down_to.insert(next, of_next);
        }
        let of_first = self.down_to(from);
        self.down_to.insert(from, of_first);
        for (_, of_some) in self.down_to.range_mut(hashes) {
            *of_some = down_to.min(*of_some);
        }
        let mut last = UndoPosition::END;
        (self.down_to).retain(|_, this| std::mem::replace(&mut last, *this) != *this);
        debug_assert!(
            self.has(from, down_to) && self.has(to, down_to),
            "forgotten"
        );
    }

    /// The hashes of which something is left, and perhaps of others behind the first of them.
    pub(crate) fn rest(&self) -> Option<RangeInclusive<u64>> {
        let is_left = |hash: &u64| self.down_to(*hash) > UndoPosition::START;
        let mut begins = std::iter::once(&0).chain(self.down_to.keys());
        let first = begins.find(|hash| is_left(hash))?;
        debug_assert!(!self.has(*first, UndoPosition::START), "it is done");
        Some(*first..=u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;

    /// As a list of all hashes would have it.
    #[test]
    fn what_is_done_is_known_of_each_hash() {
        const FROM: u64 = u64::MAX - 63;
        let mut rng = Rng::new(1);
        for _ in 0..200 {
            let (mut made, mut model) = (MadeAgain::default(), [UndoPosition::END; 64]);
            for _ in 0..20 {
                let (a, b) = (rng.below(64), rng.below(64));
                let (from, to) = (a.min(b), a.max(b));
                let down_to = UndoPosition(rng.below(6));
                made.note(FROM + from..=FROM + to, down_to);
                (from..=to).for_each(|n| model[n as usize] = down_to.min(model[n as usize]));
                for (n, expected) in (0..).zip(model) {
                    assert_eq!(made.down_to(FROM + n), expected);
                }
                assert!(made.down_to.len() <= 65, "{} places", made.down_to.len());
            }
            // Nothing is done of those before.
            assert_eq!(made.rest(), Some(0..=u64::MAX));
            made.note(0..=FROM - 1, UndoPosition::START);
            let first = model.iter().position(|at| *at > UndoPosition::START);
            assert_eq!(made.rest(), first.map(|n| FROM + n as u64..=u64::MAX));
        }
    }

    #[test]
    fn nothing_is_done_at_first_and_nothing_is_left_in_the_end() {
        let mut made = MadeAgain::default();
        assert!(!made.has(0, UndoPosition(7)) && !made.has(u64::MAX, UndoPosition(7)));
        assert_eq!(made.rest(), Some(0..=u64::MAX));
        made.note(0..=u64::MAX, UndoPosition(7));
        assert!(made.has(5, UndoPosition(7)) && !made.has(5, UndoPosition(6)));
        made.note(0..=u64::MAX, UndoPosition::START);
        assert_eq!((made.rest(), made.down_to.len()), (None, 1));
    }
}
