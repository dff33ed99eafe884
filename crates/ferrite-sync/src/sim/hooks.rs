//! What the primitives call (see `crate::hook`): each asks whether this thread is a task,
//! and if so lets the scheduler do the work.

use super::task::{context, is_task};

#[inline]
pub fn simulated() -> bool {
    is_task()
}

#[inline]
pub fn yield_point(what: &'static str) {
    if is_task() {
        if let Some(c) = context() {
            c.step(what, true);
        }
    }
}

#[inline]
pub fn yield_quiet(what: &'static str) {
    if is_task() {
        if let Some(c) = context() {
            c.step(what, false);
        }
    }
}

pub fn block(what: &'static str, key: usize, mask: u32, deadline_us: Option<u64>) -> Option<bool> {
    if !is_task() {
        return None;
    }
    context().map(|c| c.block(what, key, mask, deadline_us))
}

pub fn wake(key: usize, mask: u32, n: usize) -> Option<usize> {
    if !is_task() {
        return None;
    }
    context().map(|c| c.shared.state().wake(key, mask, n))
}

pub fn now_us() -> Option<u64> {
    if !is_task() {
        return None;
    }
    context().map(|c| c.shared.state().clock_us)
}

pub fn random_u64() -> Option<u64> {
    if !is_task() {
        return None;
    }
    context().map(|c| c.shared.state().program_rng.next_u64())
}

pub fn task_number() -> Option<usize> {
    if !is_task() {
        return None;
    }
    context().map(|c| c.id)
}

pub fn fatal(message: &str) {
    if let Some(c) = context() {
        c.fatal(message);
    }
}
