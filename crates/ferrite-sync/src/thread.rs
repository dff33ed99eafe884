//! Threads: named, with a modest explicit stack, deaf to the server's signals.
//!
//! Invariant: a thread from here never handles SIGINT, SIGQUIT, SIGHUP, SIGTERM, SIGTSTP or
//! SIGPIPE (the server's signal thread must get them): they are blocked before it exists.

use crate::hook;
#[cfg(not(loom))]
use crate::observed;

/// Stack of every spawned thread, in bytes.
pub const STACK_BYTES: usize = 1 << 20;

/// A running thread; dropping it lets the thread go on alone.
pub struct JoinHandle<T>(Inner<T>);

enum Inner<T> {
    #[cfg(not(loom))]
    Real(std::thread::JoinHandle<T>),
    #[cfg(loom)]
    Real(loom::thread::JoinHandle<T>),
    #[cfg(all(feature = "sim", not(loom)))]
    Simulated(crate::sim::TaskHandle<T>),
}

impl<T> JoinHandle<T> {
    /// Waits for the end. An error carries what the thread panicked with.
    pub fn join(self) -> std::thread::Result<T> {
        match self.0 {
            Inner::Real(h) => h.join(),
            #[cfg(all(feature = "sim", not(loom)))]
            Inner::Simulated(h) => h.join(),
        }
    }

    /// True once the thread's function has ended.
    #[cfg(not(loom))]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Inner::Real(h) => h.is_finished(),
            #[cfg(feature = "sim")]
            Inner::Simulated(h) => h.is_finished(),
        }
    }

    #[cfg(all(feature = "sim", not(loom)))]
    pub(crate) fn simulated(h: crate::sim::TaskHandle<T>) -> JoinHandle<T> {
        JoinHandle(Inner::Simulated(h))
    }
}

/// Starts a thread. `name` is shown by the system (its first 15 bytes). Panics when the
/// system refuses a thread.
pub fn spawn<T, F>(name: &str, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    try_spawn(name, f).unwrap_or_else(|| panic!("the system refuses a thread, {name}"))
}

/// Starts a thread, for work that goes on without it, too. None when the system refuses one.
pub fn try_spawn<T, F>(name: &str, f: F) -> Option<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    #[cfg(all(feature = "sim", not(loom)))]
    if hook::simulated() {
        return Some(crate::sim::spawn(name, f));
    }
    #[cfg(loom)]
    {
        let _ = name;
        Some(JoinHandle(Inner::Real(loom::thread::spawn(f))))
    }
    #[cfg(not(loom))]
    {
        let _masked = MaskSignals::new();
        let builder = std::thread::Builder::new().name(name.to_owned());
        let name = name.to_owned();
        let run = move || observed::thread(&name, f);
        let h = builder.stack_size(STACK_BYTES).spawn(run).ok()?;
        Some(JoinHandle(Inner::Real(h)))
    }
}

/// Sleeps at least that many milliseconds.
pub fn sleep_ms(ms: u64) {
    sleep_us(ms.saturating_mul(1000));
}

/// Sleeps at least that many microseconds.
pub fn sleep_us(us: u64) {
    crate::may_wait("sleep");
    if hook::simulated() {
        let deadline = crate::time::now_us().saturating_add(us);
        hook::block("sleep", 0, 0, Some(deadline));
        return;
    }
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::sleep(std::time::Duration::from_micros(us));
}

/// Lets another thread run.
pub fn yield_now() {
    if hook::simulated() {
        hook::yield_point("yield");
        return;
    }
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::thread::yield_now();
}

/// How many processors this process may use; at least 1.
pub fn processors() -> usize {
    if hook::simulated() {
        return 2;
    }
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// Blocks the server's signals in this thread until dropped; a thread started meanwhile
/// inherits the mask for good.
#[cfg(not(loom))]
struct MaskSignals {
    before: libc::sigset_t,
}

#[cfg(not(loom))]
impl MaskSignals {
    fn new() -> MaskSignals {
        const BLOCKED: [libc::c_int; 6] = [
            libc::SIGINT,
            libc::SIGQUIT,
            libc::SIGHUP,
            libc::SIGTERM,
            libc::SIGTSTP,
            libc::SIGPIPE,
        ];
        // SAFETY: both sets are local; a zeroed sigset_t is a valid (empty) one, and every
        // call gets a valid pointer to it. Masks concern the calling thread alone.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in BLOCKED {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            MaskSignals { before }
        }
    }
}

#[cfg(not(loom))]
impl Drop for MaskSignals {
    fn drop(&mut self) {
        // SAFETY: `before` was filled by pthread_sigmask.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut());
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn blocked(signal: libc::c_int) -> bool {
        // SAFETY: a zeroed set is valid and filled by the call; a null new set only reads.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
            libc::sigismember(&set, signal) == 1
        }
    }

    #[test]
    fn signals_are_masked_in_the_child_only() {
        let before = blocked(libc::SIGTERM);
        let h = spawn("child", || {
            let name = std::thread::current().name().map(str::to_owned);
            (
                blocked(libc::SIGTERM),
                blocked(libc::SIGPIPE),
                blocked(libc::SIGSEGV),
                name,
            )
        });
        assert_eq!(h.join().unwrap(), (true, true, false, Some("child".into())));
        assert_eq!(blocked(libc::SIGTERM), before);
    }
}
