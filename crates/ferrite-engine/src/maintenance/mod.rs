//! What goes on beside the sessions.
//!
//! `background`: every thread. `purge`: entries and values that nobody needs after a commit;
//! `purge_leaves`: those of large transactions; `cleaner`: what both leave to the log.
//! `checkpoint`. `history_limit`: what history may take of memory. `memory_budget`: what the buffer
//! pool may. `index_ids`: how many are left. `scrub`: what was deleted is overwritten in the files.
//! `trouble`: what is said of work that fails again and again.
//!
//! Locking: see each file.

pub(crate) mod background;
pub(crate) mod checkpoint;
pub(crate) mod cleaner;
pub(crate) mod history_limit;
mod index_ids;
pub(crate) mod memory_budget;
mod merges;
pub(crate) mod purge;
mod purge_leaves;
pub(crate) mod scrub;
mod trouble;
pub(crate) mod warm;
