//! Sessions of tasks that a crash unwinds.
//!
//! Locking: none.

use ferrite_engine::{Engine, Session};
use ferrite_sync::Arc;

/// A session that is let go without a rollback when its machine dies.
pub struct Guarded(Option<Session>);

impl Guarded {
    /// A new session.
    pub fn new(engine: &Arc<Engine>, thd: usize) -> Guarded {
        Guarded(Some(Session::new(engine, thd, thd as u64)))
    }

    /// The session.
    pub fn get(&mut self) -> &mut Session {
        self.0.as_mut().expect("it is there until the end")
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if std::thread::panicking() {
            if let Some(session) = self.0.take() {
                session.abandon();
            }
        }
    }
}
