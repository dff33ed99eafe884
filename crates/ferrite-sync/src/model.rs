//! The model checker loom, for the models of this crate and of those above.

pub use loom::thread;

use crate::futex;

/// Runs `f` in every order of its threads that takes a running thread off the processor at most
/// so many times.
pub fn check(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(f);
}

/// Time goes on, by so many microseconds; otherwise it stands still in a model. Who sleeps on a
/// futex, as in [`Event::wait_timeout_us`](crate::Event::wait_timeout_us), and has a deadline
/// before that, wakes.
pub fn pass_us(us: u64) {
    futex::pass_us(us);
}
