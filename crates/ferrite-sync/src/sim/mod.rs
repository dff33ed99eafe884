//! A deterministic scheduler: one seed, one interleaving, one history.
//!
//! [`Simulation::run`] calls a closure as the main task. Threads started from simulated
//! threads are tasks. Each task is an OS thread, but exactly one runs at a time; at every
//! operation of this crate (lock, wait, wake, sleep, time-out, kill point ...) the scheduler
//! may hand the baton to another. Time is virtual: it moves by one microsecond a step, and
//! jumps to the next deadline when nobody can run. Plain atomics are not yield points.
//!
//! Main is the operator: it survives crashes, as does what it starts with
//! [`spawn_outside`]. Everything else belongs to the program under test, and [`crash`]
//! ends all of it: each of its tasks unwinds, by a private panic payload and without a
//! message, from its next yield point, so that its memory is given back; a yield point
//! inside of that unwinding acts normally but never unwinds again. A destructor that waits
//! for something which cannot happen any more is woken for no reason, and a task that has
//! not ended after [`UNWIND_STEPS`] more steps is parked and leaked. Where panics abort,
//! all of them are leaked. In both cases the disk must be cut off first, so that
//! destructors do no harm: see [`set_crash_hook`].
//!
//! Invariants:
//! - Whoever reads or changes the scheduler's state holds its mutex; only the task named
//!   `current` runs program code.
//! - No address, OS thread id or real time reaches a decision or the trace.

pub(crate) mod hooks;
mod sched;
mod task;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::random::Rng;
use crate::thread::JoinHandle;
use sched::Shared;
pub use sched::{Failure, Schedule, Stall, ANYWHERE, UNWIND_STEPS};
pub use task::TaskHandle;
use task::{context, Kind};

/// A run that is about to be made.
pub struct Simulation {
    seed: u64,
    schedule: Schedule,
    max_steps: u64,
    keep_trace: bool,
}

/// What a run that went well leaves.
#[derive(Debug)]
pub struct Outcome<T> {
    /// What the main closure returned.
    pub value: T,
    /// How it went.
    pub report: Report,
}

/// A run that did not go well.
#[derive(Debug, thiserror::Error)]
#[error("{failure} (after {} steps)", .report.steps)]
pub struct Failed {
    /// Why.
    pub failure: Failure,
    /// How it went until then.
    pub report: Report,
}

/// How a run went.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The same for two runs that took the same steps in the same order.
    pub trace_hash: u64,
    /// Yield points passed.
    pub steps: u64,
    /// Virtual time passed, in microseconds.
    pub virtual_us: u64,
    /// Tasks that could not be unwound; their threads and memory are lost.
    pub leaked: usize,
    /// What the program said when it stopped itself (`stop::fatal`).
    pub fatal: Vec<String>,
    /// Each step as text, if asked for.
    pub trace: Vec<String>,
}

impl Simulation {
    /// A run whose schedule, its kind included, comes from the seed.
    pub fn new(seed: u64) -> Simulation {
        let mut rng = Rng::new(seed ^ 0x5eed_0001);
        let schedule = if rng.chance(1, 2) {
            Schedule::Random {
                switch_one_in: [1, 2, 4, 12, 40][rng.below(5) as usize],
            }
        } else {
            Schedule::Priority {
                change_every: [10, 50, 300, 2000][rng.below(4) as usize],
            }
        };
        Simulation {
            seed,
            schedule,
            max_steps: 20_000_000,
            keep_trace: false,
        }
    }

    /// Sets the kind of schedule.
    pub fn schedule(mut self, schedule: Schedule) -> Simulation {
        self.schedule = schedule;
        self
    }

    /// Sets the number of steps after which the run fails (it does not end by itself).
    pub fn max_steps(mut self, steps: u64) -> Simulation {
        self.max_steps = steps;
        self
    }

    /// Keeps each step as text in the report.
    pub fn keep_trace(mut self) -> Simulation {
        self.keep_trace = true;
        self
    }

    /// Runs `f` as the main task and, when it has returned, ends what still runs as a crash
    /// would. Fails when any task panics, when all tasks wait for ever, or at the limit of
    /// steps; the tasks are then ended, main included.
    pub fn run<T, F>(self, f: F) -> Result<Outcome<T>, Box<Failed>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let shared = Arc::new(Shared::new(
            self.seed,
            self.schedule,
            self.max_steps,
            self.keep_trace,
        ));
        let main = task::start(&shared, "main", Kind::Main, f);
        shared.run_to_end();
        let (failure, report) = shared.finish();
        match (failure, main.take_result()) {
            (None, Some(Ok(value))) => Ok(Outcome { value, report }),
            (failure, _) => {
                let failure = failure.unwrap_or(Failure::Ended);
                Err(Box::new(Failed { failure, report }))
            }
        }
    }
}

/// Starts a task of the program under test. Only in a simulation.
pub fn spawn<T, F>(name: &str, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_kind(name, Kind::Inside, f)
}

/// Starts a task of the operator: it survives [`crash`]. Only in a simulation.
pub fn spawn_outside<T, F>(name: &str, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    spawn_kind(name, Kind::Outside, f)
}

fn spawn_kind<T, F>(name: &str, kind: Kind, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let c = context().expect("only in a simulation");
    let h = task::start(&c.shared, name, kind, f);
    c.step("spawn", true);
    JoinHandle::simulated(h)
}

/// True in a simulated thread.
pub fn active() -> bool {
    hooks::simulated()
}

/// Ends the program under test here and now: the crash hook is called, then every task of
/// it unwinds. Called by the operator, returns when all of them have ended. Called by a
/// task of the program, does not return (it returns at once when that task is unwinding
/// already). A crash that was still to come by [`crash_after_steps`] or
/// [`crash_at_point`] is forgotten. The joins of ended tasks give errors for which [`is_crash`] is true.
///
/// Does nothing outside of a simulation and within a crash hook.
pub fn crash() {
    if let Some(c) = context() {
        c.crash();
    }
}

/// What the program said when it stopped itself ([`fatal`](crate::stop::fatal)), so far.
pub fn fatal_messages() -> Vec<String> {
    let c = context().expect("only in a simulation");
    let s = c.shared.state();
    s.fatal.clone()
}

/// Waits until all tasks of crashed programs have ended. For the operator.
pub fn reap() {
    let c = context().expect("only in a simulation");
    c.reap();
}

/// Crashes the program when that many more steps have been taken (by anybody); `None`
/// takes it back.
pub fn crash_after_steps(steps: Option<u64>) {
    let c = context().expect("only in a simulation");
    let mut s = c.shared.state();
    s.crash_at_step = steps.map(|n| s.steps() + n.max(1));
}

/// Crashes the program at the `nth` pass (1 = the next) of a kill point; `None` takes it
/// back. Any operation's name as in the trace will do.
pub fn crash_at_point(point: Option<(&str, u64)>) {
    let c = context().expect("only in a simulation");
    c.shared.state().crash_at_point = point.map(|(n, nth)| (n.to_owned(), nth.max(1)));
}

/// From here on tasks of the program stand still for a while at these places, instead of those
/// named before.
pub fn stall_at(stalls: Vec<Stall>) {
    let c = context().expect("only in a simulation");
    c.shared.state().stalls = stalls;
}

/// Called at the instant of each crash, before any task unwinds: the place to cut the
/// power of the simulated disk. Must not wait.
pub fn set_crash_hook(hook: impl Fn() + Send + Sync + 'static) {
    let c = context().expect("only in a simulation");
    c.shared.state().crash_hook = Some(Arc::new(hook));
}

/// How many crashes there were.
pub fn crashes() -> u64 {
    let c = context().expect("only in a simulation");
    let s = c.shared.state();
    s.crashes
}

/// True if a join's error means that the task was ended by a crash.
pub fn is_crash(payload: &(dyn std::any::Any + Send)) -> bool {
    payload.is::<task::Crashed>()
}

/// Yield points passed so far.
pub fn steps() -> u64 {
    let c = context().expect("only in a simulation");
    let s = c.shared.state();
    s.steps()
}

/// A point where the scheduler may switch; `what` goes into the trace.
pub fn yield_point(what: &'static str) {
    hooks::yield_point(what);
}

/// Puts a fact into the trace (and its hash), so that replays compare it.
pub fn note(text: &str) {
    if let Some(c) = context() {
        c.shared.state().fact(c.id, text);
    }
}
