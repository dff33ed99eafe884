//! Opening and closing a database.
//!
//! `lifecycle`: create, open, close. `assemble`: an engine of its parts, and its threads. `crash_recovery`: the stages
//! of a start that finds a database. `recovery`: what the log says since the last checkpoint; `page_fates` of pages as a
//! whole, `page_changes` of what is in them, taken apart by the thread of `collector`. `page_redo`: the redo of pages,
//! in parallel. `progress`: how far it is. `settle`: large transactions of before a crash, rolled back beside the sessions,
//! or, if they are prepared, given their versions again.
//!
//! Locking: see each file.

mod assemble;
pub(crate) mod collector;
mod crash_recovery;
pub(crate) mod lifecycle;
pub(crate) mod page_changes;
pub(crate) mod page_fates;
pub(crate) mod page_redo;
pub(crate) mod progress;
pub(crate) mod recovery;
pub(crate) mod settle;
