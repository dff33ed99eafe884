//! Leaves on which committed transactions have left delete-marks without a piece of their own, until
//! purge has been there: each of them once, whatever the number of its marks.
//!
//! Invariant: a leaf is in its sweep's set, or counted in `working`. A sweep without either is gone.
//!
//! Locking: none of its own; the purge queue's `lists`.

use crate::state::page_set::PageSet;
use ferrite_types::{PageId, TxnId};
use std::collections::VecDeque;

/// What one transaction has left.
struct Sweep {
    id: u64,
    txn: TxnId,
    leaves: PageSet,
    /// Leaves that somebody has taken.
    working: usize,
    /// When they were left, us, as far as the queue knows the time.
    left_us: u64,
}

/// Leaves taken out of a sweep, to be visited and given back.
pub(crate) struct Taken {
    id: u64,
    pub txn: TxnId,
    pub leaves: Vec<PageId>,
    pub left_us: u64,
}

/// All of them, oldest first.
#[derive(Default)]
pub(crate) struct Sweeps {
    all: VecDeque<Sweep>,
    last_id: u64,
}

impl Sweeps {
    pub(crate) fn add(&mut self, txn: TxnId, leaves: PageSet, left_us: u64) {
        assert!(!leaves.is_empty(), "{txn} has left no leaf");
        self.last_id += 1;
        self.all.push_back(Sweep {
            id: self.last_id,
            txn,
            leaves,
            working: 0,
            left_us,
        });
    }

    /// Takes up to `most` leaves of the oldest sweep that has some.
    pub(crate) fn take(&mut self, most: usize) -> Option<Taken> {
        assert!(most > 0, "no leaf is taken");
        let mut all = self.all.iter_mut();
        let sweep = all.find(|sweep| !sweep.leaves.is_empty())?;
        let leaves = sweep.leaves.take(most);
        debug_assert!((1..=most).contains(&leaves.len()), "{}", leaves.len());
        sweep.working += leaves.len();
        Some(Taken {
            id: sweep.id,
            txn: sweep.txn,
            leaves,
            left_us: sweep.left_us,
        })
    }

    /// Those taken were visited, but for some. True: that was the end of their sweep.
    pub(crate) fn put_back(&mut self, taken: Taken, unvisited: &[PageId]) -> bool {
        let at = self.all.iter().position(|sweep| sweep.id == taken.id);
        let at = at.expect("a sweep stays while somebody works on it");
        let sweep = &mut self.all[at];
        assert!(
            unvisited.len() <= taken.leaves.len() && taken.leaves.len() <= sweep.working,
            "{} of {} of {} leaves come back",
            unvisited.len(),
            taken.leaves.len(),
            sweep.working
        );
        sweep.working -= taken.leaves.len();
        unvisited.iter().for_each(|page| sweep.leaves.insert(*page));
        let ended = sweep.working == 0 && sweep.leaves.is_empty();
        if ended {
            self.all.remove(at);
        }
        ended
    }

    /// When what is here longest was left, us.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        self.all.front().map(|sweep| sweep.left_us)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.all.iter().map(|sweep| sweep.leaves.bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_ends_when_all_of_its_leaves_were_visited() {
        let mut sweeps = Sweeps::default();
        for (txn, pages) in [(5, 1..8), (6, 20..22)] {
            let mut set = PageSet::default();
            pages.for_each(|page| set.insert(PageId(page)));
            sweeps.add(TxnId(txn), set, txn * 10);
        }
        assert_eq!(sweeps.oldest_us(), Some(50));
        let (one, two) = (sweeps.take(4).unwrap(), sweeps.take(4).unwrap());
        assert_eq!((one.leaves.len(), two.leaves.len()), (4, 3));
        let three = sweeps.take(4).unwrap();
        assert_eq!((three.txn, three.leaves.len()), (TxnId(6), 2));
        assert!(sweeps.take(1).is_none());
        assert!(!sweeps.put_back(two, &[]) && sweeps.put_back(three, &[]));
        assert!(!sweeps.put_back(one, &[PageId(3)]), "one was not visited");
        let again = sweeps.take(4).unwrap();
        assert_eq!((again.txn, &again.leaves[..]), (TxnId(5), &[PageId(3)][..]));
        assert!(sweeps.put_back(again, &[]));
        assert_eq!((sweeps.oldest_us(), sweeps.bytes()), (None, 0));
    }
}
