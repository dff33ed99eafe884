//! Named places between the steps of a protocol, where a test can stop or kill.
//!
//! Without the feature `stop-points` a place is nothing. With it, a place looks its name up
//! in a registry that a test arms, and in `FERRITE_KILL_POINT=name[:nth]`, which ends the
//! process there at once (as a power cut of the process, nothing is flushed or unwound).
//! In a simulation a place is also a point where the scheduler may switch.
//!
//! Names are `room.step`, for example `checkpoint.after_map`. The registry is global to the
//! process: tests that arm the same name must not run at the same time.

#[cfg(feature = "stop-points")]
pub use armed::*;

/// Marks a place; see the module. Costs nothing without the features.
#[cfg(not(feature = "stop-points"))]
#[inline(always)]
pub fn point(name: &'static str) {
    crate::hook::yield_point(name);
}

/// Marks a place where a test or the crash loop may stop, block or kill.
#[macro_export]
macro_rules! kill_point {
    ($name:expr) => {
        $crate::stop::point($name)
    };
}

/// The core must not go on (a sync failed, a log block is bad): says why on the standard
/// error stream and ends the process at once. In a simulation the program crashes there.
pub fn fatal(message: &str) -> ! {
    crate::hook::fatal(message);
    eprintln!("ferrite: FATAL: {message}");
    std::process::abort()
}

#[cfg(feature = "stop-points")]
mod armed {
    use std::collections::HashMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::OnceLock;

    use std::sync::{Condvar, Mutex, MutexGuard};

    use crate::{hook, thread, Arc};

    /// What happens at an armed place.
    #[derive(Clone)]
    pub enum Action {
        /// Panic there.
        Panic,
        /// End the process at once (exit code [`KILLED`]); nothing is flushed or unwound.
        Abort,
        /// Block until [`release`] or [`disarm`].
        Block,
        /// Call this; it may block.
        Callback(Arc<dyn Fn() + Send + Sync>),
    }

    impl Action {
        /// An action that calls `f`.
        pub fn callback(f: impl Fn() + Send + Sync + 'static) -> Action {
            Action::Callback(Arc::new(f))
        }
    }

    /// The exit code of a process that was ended at a kill point.
    pub const KILLED: i32 = 137;

    struct Armed {
        action: Action,
        /// Passes left until it acts (1 = the next one); it then acts at every pass.
        countdown: u64,
        /// How many threads came to the place and acted.
        hits: u64,
    }

    #[derive(Default)]
    struct Registry {
        armed: HashMap<String, Armed>,
        seen: Option<HashMap<&'static str, u64>>,
    }

    // Real locks even in a simulation: the registry belongs to the process, and it is never
    // held over a yield point.
    struct Stops {
        registry: Mutex<Registry>,
        changed: Condvar,
        /// Armed names, plus one while recording: 0 lets every place pass at one load.
        active: AtomicUsize,
    }

    fn stops() -> &'static Stops {
        static STOPS: OnceLock<Stops> = OnceLock::new();
        STOPS.get_or_init(|| {
            let mut registry = Registry::default();
            if let Ok(text) = std::env::var("FERRITE_KILL_POINT") {
                let (name, nth) = match text.rsplit_once(':') {
                    Some((name, n)) => match n.parse::<u64>() {
                        Ok(n) => (name.to_owned(), n),
                        Err(_) => (text.clone(), 1),
                    },
                    None => (text.clone(), 1),
                };
                let armed = Armed {
                    action: Action::Abort,
                    countdown: nth.max(1),
                    hits: 0,
                };
                registry.armed.insert(name, armed);
            }
            let active = AtomicUsize::new(registry.armed.len());
            Stops {
                registry: Mutex::new(registry),
                changed: Condvar::new(),
                active,
            }
        })
    }

    impl Stops {
        fn registry(&self) -> MutexGuard<'_, Registry> {
            self.registry.lock().unwrap_or_else(|e| e.into_inner())
        }

        /// Waits for a change, or for at most so long; a simulated thread polls.
        fn wait<'a>(
            &'a self,
            registry: MutexGuard<'a, Registry>,
            us: u64,
        ) -> MutexGuard<'a, Registry> {
            if hook::simulated() {
                drop(registry);
                thread::sleep_us(us.min(100));
                return self.registry();
            }
            let time = std::time::Duration::from_micros(us);
            self.changed
                .wait_timeout(registry, time)
                .unwrap_or_else(|e| e.into_inner())
                .0
        }

        fn count(&self, r: &Registry) {
            self.active.store(
                r.armed.len() + usize::from(r.seen.is_some()),
                Ordering::SeqCst,
            );
        }
    }

    /// From the `nth` pass on (1 = the next), `action` happens at that place.
    pub fn arm_nth(name: &str, nth: u64, action: Action) {
        let s = stops();
        let mut r = s.registry();
        r.armed.insert(
            name.to_owned(),
            Armed {
                action,
                countdown: nth.max(1),
                hits: 0,
            },
        );
        s.count(&r);
    }

    /// At each pass, `action` happens at that place.
    pub fn arm(name: &str, action: Action) {
        arm_nth(name, 1, action);
    }

    /// Nothing happens at that place any more; whoever is blocked there goes on.
    pub fn disarm(name: &str) {
        let s = stops();
        let mut r = s.registry();
        r.armed.remove(name);
        s.count(&r);
        s.changed.notify_all();
    }

    /// Disarms every place.
    pub fn disarm_all() {
        let s = stops();
        let mut r = s.registry();
        r.armed.clear();
        s.count(&r);
        s.changed.notify_all();
    }

    /// Lets those go on that are blocked at that place, and disarms it.
    pub fn release(name: &str) {
        disarm(name);
    }

    /// How often the armed place has acted.
    pub fn hits(name: &str) -> u64 {
        stops().registry().armed.get(name).map_or(0, |a| a.hits)
    }

    /// Waits until the armed place has acted `n` times; false after `ms` milliseconds.
    pub fn wait_hits(name: &str, n: u64, ms: u64) -> bool {
        let s = stops();
        let deadline = crate::time::now_us() + ms * 1000;
        let mut r = s.registry();
        while r.armed.get(name).is_none_or(|a| a.hits < n) {
            let now = crate::time::now_us();
            if now >= deadline {
                return false;
            }
            r = s.wait(r, deadline - now);
        }
        true
    }

    /// Starts counting which places are passed (for a list of what a test reaches).
    pub fn record() {
        let s = stops();
        let mut r = s.registry();
        r.seen = Some(HashMap::new());
        s.count(&r);
    }

    /// Ends counting; the places passed and how often, by name.
    pub fn recorded() -> Vec<(&'static str, u64)> {
        let s = stops();
        let mut r = s.registry();
        let mut list: Vec<_> = r.seen.take().unwrap_or_default().into_iter().collect();
        s.count(&r);
        list.sort_unstable();
        list
    }

    /// Marks a place; see the module.
    pub fn point(name: &'static str) {
        hook::yield_point(name);
        let s = stops();
        if s.active.load(Ordering::Relaxed) != 0 {
            armed_point(s, name);
        }
    }

    #[cold]
    fn armed_point(s: &Stops, name: &'static str) {
        let mut r = s.registry();
        if let Some(seen) = &mut r.seen {
            *seen.entry(name).or_default() += 1;
        }
        let Some(armed) = r.armed.get_mut(name) else {
            return;
        };
        if armed.countdown > 1 {
            armed.countdown -= 1;
            return;
        }
        armed.hits += 1;
        let action = armed.action.clone();
        s.changed.notify_all();
        match action {
            Action::Panic => {
                drop(r);
                panic!("stop point {name}");
            }
            Action::Abort => {
                // SAFETY: _exit ends the process and has no preconditions.
                unsafe { libc::_exit(KILLED) }
            }
            Action::Block => {
                while matches!(
                    r.armed.get(name),
                    Some(Armed {
                        action: Action::Block,
                        ..
                    })
                ) {
                    r = s.wait(r, 1_000_000);
                }
            }
            Action::Callback(f) => {
                drop(r);
                f();
            }
        }
    }
}

#[cfg(all(test, feature = "stop-points", not(loom)))]
mod tests {
    use super::*;
    use crate::{atomic::*, thread, Arc};

    #[test]
    fn blocks_until_released() {
        arm("test.block", Action::Block);
        let done = Arc::new(AtomicBool::new(false));
        let d = done.clone();
        let h = thread::spawn("stopped", move || {
            kill_point!("test.block");
            d.store(true, Ordering::SeqCst);
        });
        assert!(wait_hits("test.block", 1, 10_000));
        assert!(!done.load(Ordering::SeqCst));
        release("test.block");
        h.join().unwrap();
        assert!(done.load(Ordering::SeqCst));
    }

    #[test]
    fn acts_from_the_nth_pass_on() {
        let n = Arc::new(AtomicU32::new(0));
        let m = n.clone();
        arm_nth(
            "test.nth",
            3,
            Action::callback(move || {
                m.fetch_add(1, Ordering::SeqCst);
            }),
        );
        (0..5).for_each(|_| point("test.nth"));
        assert_eq!((n.load(Ordering::SeqCst), hits("test.nth")), (3, 3));
        disarm("test.nth");
        point("test.nth");
        assert_eq!(n.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn panics_when_told() {
        arm("test.panic", Action::Panic);
        assert!(thread::spawn("p", || point("test.panic")).join().is_err());
        disarm("test.panic");
    }
}
