//! The model checker loom, for the models of this crate and of those above.

pub use loom::thread;

/// Runs `f` in every order of its threads that takes a running thread off the processor at most
/// so many times.
pub fn check(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(f);
}
