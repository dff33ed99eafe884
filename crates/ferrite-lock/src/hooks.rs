//! What a caller says of a wait: how long it may be, and what the server wants to know of it.
//!
//! Locking: none.

use ferrite_types::Error;

/// How long, and whether, to wait.
#[derive(Clone, Copy, Debug)]
pub struct WaitPolicy {
    /// Milliseconds before [`Error::LockTimeout`].
    pub timeout_ms: u64,
    /// Do not wait: [`Error::LockTimeout`] at once.
    pub nowait: bool,
    /// Do not wait: [`Error::Skipped`] at once.
    pub skip_locked: bool,
}

impl WaitPolicy {
    /// Waits up to so many milliseconds. 0 = does not wait.
    pub const fn for_ms(timeout_ms: u64) -> WaitPolicy {
        WaitPolicy {
            timeout_ms,
            nowait: false,
            skip_locked: false,
        }
    }

    pub(crate) fn may_wait(&self) -> bool {
        !self.nowait && !self.skip_locked && self.timeout_ms > 0
    }

    pub(crate) fn refusal(&self) -> Error {
        if self.skip_locked {
            Error::Skipped
        } else {
            Error::LockTimeout
        }
    }
}

/// What the server wants to know and say about a wait. Called by the waiting thread, with
/// no mutex and no latch held; must not ask for locks.
pub trait WaitHooks {
    /// A wait begins (thread pool, stage).
    fn begin(&self) {}
    /// It ended after so many microseconds.
    fn end(&self, _us: u64) {}
    /// Has the statement been killed?
    fn is_killed(&self) -> bool {
        false
    }
    /// Does it want to know whom this waits for? Asked once for each wait.
    fn wants_reports(&self) -> bool {
        true
    }
    /// Told once for each transaction waited for (parallel replication).
    fn waiting_for(&self, _holder_thd: usize) {}
    /// What a connection runs. It waits, and goes on waiting until this returns.
    fn query_of(&self, _thd: usize) -> Vec<u8> {
        Vec::new()
    }
    /// Which of two connections, which wait as well, should rather give way in a deadlock: negative the first,
    /// positive the second, 0 no preference.
    fn prefer_victim(&self, _a_thd: usize, _b_thd: usize) -> i32 {
        0
    }
}

/// Hooks that do nothing.
pub struct NoHooks;
impl WaitHooks for NoHooks {}
