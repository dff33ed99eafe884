//! What the core asks of the server around it. Handed down at start-up.

use ferrite_sync::waits::Who;

/// How loud a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogLevel {
    /// Worth knowing.
    Note,
    /// Something is not as it should be; the server goes on.
    Warning,
    /// A human must look.
    Error,
}

/// The server, as the core sees it. `thd` is its handle of a connection.
///
/// None of these may call back into the core. The wait hooks are called by the connection's
/// own thread with no latch held.
pub trait Callbacks: Send + Sync {
    /// A line for the server's error log; any thread.
    fn log(&self, level: LogLevel, text: &str);
    /// Was the connection or its statement killed?
    fn is_killed(&self, _thd: usize) -> bool {
        false
    }
    /// Is the server shutting down? Any thread; does not wait.
    fn is_shutting_down(&self) -> bool {
        false
    }
    /// Of what the connection's statement has to do, so much is done: for its process list. By its
    /// own thread, which holds latches perhaps.
    fn progress(&self, _thd: usize, _done: u64, _total: u64) {}
    /// A wait for a row lock begins.
    fn lock_wait_begin(&self, _thd: usize) {}
    /// It ended after so many microseconds.
    fn lock_wait_end(&self, _thd: usize, _waited_us: u64) {}
    /// Does the server want to know whom that connection waits for?
    fn wants_wait_reports(&self, _thd: usize) -> bool {
        true
    }
    /// `waiter` is about to wait for `holder` (parallel replication).
    fn report_wait_for(&self, _waiter: usize, _holder: usize) {}
    /// The commit's answer to the client will be held back; None: this connection cannot.
    fn async_begin(&self, _thd: usize) -> Option<usize> {
        None
    }
    /// Whose answer is held back, with what it runs; None: not known. Any thread; does not wait.
    fn deferred_by(&self, _token: usize) -> Option<Who> {
        None
    }
    /// Releases an answer held back; any thread.
    fn async_done(&self, _token: usize) {}
    /// Everything committed before the request with this cookie is durable; any thread.
    fn checkpoint_notify(&self, _cookie: usize) {}
    /// What a connection runs that waits for a lock. No latch is held.
    fn query_of(&self, _thd: usize) -> Vec<u8> {
        Vec::new()
    }
    /// Which of two connections that wait for locks should rather give way in a deadlock: negative
    /// the first, positive the second, 0 no preference. No latch is held.
    fn prefer_victim(&self, _a: usize, _b: usize) -> i32 {
        0
    }
    /// Durability is in doubt: does not return in production.
    fn fatal(&self, text: &str);
}

/// Callbacks for tests and tools: messages are dropped, `fatal` panics.
pub struct NoCallbacks;

impl Callbacks for NoCallbacks {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

/// As [`NoCallbacks`] for tests whose machine may lose power: `fatal` is dropped, too, and the
/// thread that called it goes on to its own end.
pub struct SilentCallbacks;

impl Callbacks for SilentCallbacks {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn fatal(&self, _text: &str) {}
}
