//! The server's callbacks behind the engine's trait. Pointers are set once at open and live
//! as long as the process (the plugin is never unloaded).

use crate::abi::{fe_callbacks, CurrentConnection, FE_LOG_ERROR, FE_LOG_NOTE, FE_LOG_WARNING};
use crate::boundary::c_text;
use ferrite_engine::{Callbacks, LogLevel};
use ferrite_sync::waits::{self, Who};
use ferrite_sync::OnceLock;
use std::ffi::{c_int, c_void};

pub(crate) struct Server(pub(crate) fe_callbacks);

// SAFETY: function pointers; the header says which may be called from any thread, and the
// engine calls the others from the connection's own.
unsafe impl Send for Server {}
// SAFETY: as above.
unsafe impl Sync for Server {}

fn ptr(thd: usize) -> *mut c_void {
    thd as *mut c_void
}

/// Bytes of a query that the journal of long waits keeps.
const QUERY_ROOM: usize = 1024;

static CURRENT_CONNECTION: OnceLock<CurrentConnection> = OnceLock::new();

/// The journal of long waits asks the server from here on.
pub(crate) fn tell_connections(ask: Option<CurrentConnection>) {
    if let Some(ask) = ask {
        let _ = CURRENT_CONNECTION.set(ask);
        waits::set_connection(current_connection);
    }
}

fn current_connection() -> Option<Who> {
    let ask = CURRENT_CONNECTION.get()?;
    // SAFETY: the header allows any thread; both places live during the call.
    connection(|thread_id, query| unsafe { ask(thread_id, query.as_mut_ptr().cast(), query.len()) })
}

/// A connection as `ask` tells it: its id, its statement and how long that is (negative: there is none).
fn connection(ask: impl FnOnce(&mut u64, &mut [u8]) -> i64) -> Option<Who> {
    let mut thread_id = 0;
    let mut query = vec![0u8; QUERY_ROOM];
    let len = usize::try_from(ask(&mut thread_id, &mut query)).ok()?;
    query.truncate(len);
    Some(Who {
        thread_id,
        thread: String::new(),
        query,
    })
}

impl Callbacks for Server {
    fn log(&self, level: LogLevel, text: &str) {
        let level: c_int = match level {
            LogLevel::Note => FE_LOG_NOTE,
            LogLevel::Warning => FE_LOG_WARNING,
            LogLevel::Error => FE_LOG_ERROR,
        };
        if let Some(f) = self.0.log {
            // SAFETY: the header allows any thread; the text lives during the call.
            unsafe { f(level, c_text(text).as_ptr()) }
        }
    }

    fn is_killed(&self, thd: usize) -> bool {
        match self.0.is_killed {
            // SAFETY: called by the connection's own thread with its own handle.
            Some(f) if thd != 0 => unsafe { f(ptr(thd)) != 0 },
            _ => false,
        }
    }

    fn is_shutting_down(&self) -> bool {
        // SAFETY: the header allows any thread.
        self.0.is_shutting_down.is_some_and(|f| unsafe { f() } != 0)
    }

    fn progress(&self, thd: usize, done: u64, total: u64) {
        if let (Some(f), true) = (self.0.progress, thd != 0) {
            // SAFETY: as in `is_killed`.
            unsafe { f(ptr(thd), done, total) }
        }
    }

    fn lock_wait_begin(&self, thd: usize) {
        if let (Some(f), true) = (self.0.lock_wait_begin, thd != 0) {
            // SAFETY: as in `is_killed`.
            unsafe { f(ptr(thd)) }
        }
    }

    fn lock_wait_end(&self, thd: usize, waited_us: u64) {
        if let (Some(f), true) = (self.0.lock_wait_end, thd != 0) {
            // SAFETY: as in `is_killed`.
            unsafe { f(ptr(thd), waited_us) }
        }
    }

    fn wants_wait_reports(&self, thd: usize) -> bool {
        match self.0.wants_wait_reports {
            // SAFETY: as in `is_killed`.
            Some(f) if thd != 0 => unsafe { f(ptr(thd)) != 0 },
            _ => false,
        }
    }

    fn report_wait_for(&self, waiter: usize, holder: usize) {
        if let (Some(f), true) = (self.0.report_wait_for, waiter != 0 && holder != 0) {
            // SAFETY: the waiter's own thread; the holder is a connection with an active
            // transaction, which its end would have to release first.
            unsafe { f(ptr(waiter), ptr(holder)) }
        }
    }

    fn async_begin(&self, thd: usize) -> Option<usize> {
        match self.0.async_begin {
            Some(f) if thd != 0 => {
                // SAFETY: as in `is_killed`.
                let token = unsafe { f(ptr(thd)) };
                (!token.is_null()).then_some(token as usize)
            }
            _ => None,
        }
    }

    fn deferred_by(&self, token: usize) -> Option<Who> {
        let ask = self.0.connection_of_token?;
        // SAFETY: the header allows any thread; the token came from `async_begin` and is not done,
        // so its connection is there; both places live during the call.
        connection(|thread_id, query| unsafe {
            ask(
                ptr(token),
                thread_id,
                query.as_mut_ptr().cast(),
                query.len(),
            )
        })
    }

    fn async_done(&self, token: usize) {
        if let Some(f) = self.0.async_done {
            // SAFETY: the header allows any thread; the token came from `async_begin`.
            unsafe { f(ptr(token)) }
        }
    }

    fn checkpoint_notify(&self, cookie: usize) {
        if let Some(f) = self.0.checkpoint_notify {
            // SAFETY: the header allows any thread; the cookie came from the request.
            unsafe { f(ptr(cookie)) }
        }
    }

    fn query_of(&self, thd: usize) -> Vec<u8> {
        let Some(f) = self.0.query_of_waiter.filter(|_| thd != 0) else {
            return Vec::new();
        };
        let mut query = [0u8; QUERY_ROOM];
        // SAFETY: the header allows a connection's own thread that holds no latch; the handle is
        // that of a connection that goes on waiting until the call is over, and the place lives
        // as long.
        let len = unsafe { f(ptr(thd), query.as_mut_ptr().cast(), query.len()) };
        query[..len.min(query.len())].to_vec()
    }

    fn prefer_victim(&self, a: usize, b: usize) -> i32 {
        match self.0.prefer_victim {
            // SAFETY: as in `query_of`, for both.
            Some(f) if a != 0 && b != 0 => unsafe { f(ptr(a), ptr(b)) },
            _ => 0,
        }
    }

    fn fatal(&self, text: &str) {
        if let Some(f) = self.0.fatal {
            // SAFETY: any thread; does not return.
            unsafe { f(c_text(text).as_ptr()) }
        }
        std::process::abort();
    }
}
