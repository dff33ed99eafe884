//! The faults that jobs on all processors find: the first in the order of the jobs, whichever is done first.
//!
//! Invariant: no more texts are kept than will be shown. Locking: one mutex, a leaf.

use ferrite_sync::Mutex;
use ferrite_types::Faults;
use std::collections::BTreeMap;

/// Faults by job.
#[derive(Default)]
pub(crate) struct InOrder {
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    count: u64,
    /// By job, and by number in it.
    first: BTreeMap<(usize, usize), String>,
}

impl InOrder {
    /// What a job has found.
    pub(crate) fn add(&self, job: usize, faults: Faults) {
        if faults.is_empty() {
            return;
        }
        let mut found = self.found.lock();
        found.count += faults.count();
        for (number, text) in faults.texts().iter().enumerate() {
            let twin = found.first.insert((job, number), text.clone());
            debug_assert!(twin.is_none(), "job {job} is done twice");
        }
        while found.first.len() > Faults::KEPT {
            found.first.pop_last();
        }
    }

    /// What all have found.
    pub(crate) fn take(&self) -> Faults {
        let found = std::mem::take(&mut *self.found.lock());
        let mut faults: Faults = found.first.into_values().collect();
        faults.push_unnamed(found.count - faults.count());
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_jobs_count_whoever_comes_first() {
        let faults = |job: usize| (0..7).map(|n| format!("{job} {n}")).collect::<Faults>();
        let forwards = InOrder::default();
        (0..50).for_each(|job| forwards.add(job, faults(job)));
        let backwards = InOrder::default();
        (0..50)
            .rev()
            .for_each(|job| backwards.add(job, faults(job)));
        let (forwards, backwards) = (forwards.take(), backwards.take());
        assert_eq!(forwards, backwards);
        assert_eq!((forwards.count(), forwards.unnamed()), (350, 250));
        assert_eq!(forwards.texts()[99], "14 1");
        assert!(InOrder::default().take().is_empty());
    }
}
