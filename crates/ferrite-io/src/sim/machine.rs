//! Power, lives and the beginning of every call on a simulated disk.
//!
//! Locking: `state` is the one mutex; it is held within a call only, never while a hook
//! runs.

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{Arc, Mutex, MutexGuard};
use ferrite_types::{Error, Result};

use super::disk::Disk;
use super::faults::{Fault, IoEvent, IoOp, Plan};
use crate::IoStats;

/// Called before each I/O, outside of all locks: it may sleep (latency), crash the
/// simulation, or refuse the call with an error.
pub type Hook = Arc<dyn Fn(&IoEvent<'_>) -> Result<()> + Send + Sync>;

pub type OffHook = Arc<dyn Fn() + Send + Sync>;

pub struct State {
    pub disk: Disk,
    pub rng: Rng,
    pub plan: Plan,
    pub powered: bool,
    pub locked: bool,
    /// No file more can be opened.
    pub opens_refused: bool,
    /// Number of the call at which the power goes.
    pub off_at: Option<u64>,
    pub hook: Option<Hook>,
    pub off_hook: Option<OffHook>,
    /// Which life of the machine it is.
    pub life: u64,
}

pub struct Machine {
    state: Mutex<State>,
    /// I/O calls so far, in all lives.
    pub calls: AtomicU64,
    pub stats: IoStats,
}

/// What is to happen at a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// What was asked for.
    Nothing,
    /// This fault.
    Fault(Fault),
    /// This, and then the power goes before the call returns.
    PowerOff,
}

pub fn dead() -> Error {
    Error::Io("the simulated machine has no power".to_owned())
}

impl Machine {
    pub fn new(seed: u64) -> Machine {
        Machine {
            state: Mutex::new(State {
                disk: Disk::default(),
                rng: Rng::new(seed),
                plan: Plan::default(),
                powered: true,
                locked: false,
                opens_refused: false,
                off_at: None,
                hook: None,
                off_hook: None,
                life: 1,
            }),
            calls: AtomicU64::new(0),
            stats: IoStats::new(),
        }
    }

    /// The state, whoever asks.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The state, for a program of that life (`None`: of any life).
    pub fn live(&self, life: Option<u64>) -> Result<MutexGuard<'_, State>> {
        let state = self.state.lock();
        if state.powered && life.is_none_or(|l| l == state.life) {
            Ok(state)
        } else {
            Err(dead())
        }
    }

    /// The beginning of every call: hook, power, planned fault.
    pub fn begin(
        &self,
        life: Option<u64>,
        event: &IoEvent<'_>,
    ) -> Result<(MutexGuard<'_, State>, Due)> {
        let hook = self.live(life)?.hook.clone();
        if let Some(hook) = hook {
            hook(event)?;
        }
        let mut state = self.live(life)?;
        let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        if state.off_at.is_some_and(|n| call >= n) {
            state.off_at = None;
            let happens = state.rng.chance(1, 2);
            if happens && matches!(event.op, IoOp::Write | IoOp::Sync) {
                return Ok((state, Due::PowerOff));
            }
            self.cut_power(state);
            return Err(dead());
        }
        let fault = state.plan.next(event);
        Ok((state, fault.map_or(Due::Nothing, Due::Fault)))
    }

    pub fn power_off(&self) {
        self.cut_power(self.state.lock());
    }

    /// The power goes in the life that the caller has looked at: without the guard another might
    /// have begun.
    pub fn cut_power(&self, mut state: MutexGuard<'_, State>) {
        if !state.powered {
            return;
        }
        state.powered = false;
        state.off_at = None;
        let hook = state.off_hook.clone();
        drop(state);
        if let Some(hook) = hook {
            hook();
        }
    }

    /// A new life begins on this disk.
    pub fn power_on(state: &mut State) {
        state.life += 1;
        state.powered = true;
        state.locked = false;
        state.off_at = None;
    }
}
