//! Commits of prepared transactions by their xids that go on: not prepared any more, perhaps, and not yet seen by everybody.
//!
//! Who has to see what they did looks again and again whether those have ended that had begun when it looked first; one
//! that begins later is not waited for. Nobody sleeps on a lock for them: such a commit may wait for room in the log, and who
//! waits for it is to hear KILL.
//!
//! Invariant: `going_on` has numbers below `next`, each of a commit that has not ended.
//! Locking: `state`, a leaf held for moments.

use ferrite_sync::Mutex;
use std::collections::BTreeSet;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Deciding {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    going_on: BTreeSet<u64>,
}

/// As long as it lives, that commit goes on.
pub(crate) struct GoingOn<'a> {
    of: &'a Deciding,
    number: u64,
}

impl Deciding {
    /// A commit begins.
    pub(crate) fn begin(&self) -> GoingOn<'_> {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        let is_new = state.going_on.insert(number);
        assert!(is_new, "commit {number} twice");
        GoingOn { of: self, number }
    }

    /// Commits that have begun so far, for [`Deciding::have_ended`].
    pub(crate) fn begun(&self) -> u64 {
        self.state.lock().next
    }

    /// Have these ended?
    pub(crate) fn have_ended(&self, begun: u64) -> bool {
        let state = self.state.lock();
        debug_assert!(begun <= state.next, "{begun} of {}", state.next);
        state.going_on.first().is_none_or(|first| *first >= begun)
    }
}

impl Drop for GoingOn<'_> {
    fn drop(&mut self) {
        let was_there = self.of.state.lock().going_on.remove(&self.number);
        debug_assert!(was_there, "commit {} ends twice", self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_begin_later_are_not_waited_for() {
        let deciding = Deciding::default();
        assert!(deciding.have_ended(deciding.begun()));
        let (first, second) = (deciding.begin(), deciding.begin());
        let begun = deciding.begun();
        let later = deciding.begin();
        drop(first);
        assert!(!deciding.have_ended(begun), "one goes on");
        drop(second);
        assert!(deciding.have_ended(begun));
        assert!(!deciding.have_ended(deciding.begun()));
        drop(later);
        assert!(deciding.have_ended(deciding.begun()));
    }
}
