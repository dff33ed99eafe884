//! Opening and closing a database.
//!
//! `lifecycle`: create, open, close. `recovery`: what the log says since the last checkpoint.
//! `loser_rollback`: large transactions that a crash cut off, rolled back beside the sessions.
//!
//! Locking: see each file.

pub(crate) mod lifecycle;
pub(crate) mod loser_rollback;
pub(crate) mod recovery;
