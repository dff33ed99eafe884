//! Explicit row and table locks, in memory only.
//!
//! An uncontended write never comes here: the transaction id in a record's header is its
//! lock ("implicit"), known to the caller. Here are the locks that need more: shared ones,
//! locks on gaps, locks of reads, and the queue of those who wait. Locks belong to
//! (index, key), not to a place on a page: splits and merges move nothing.
//!
//! | module | holds |
//! | --- | --- |
//! | `mode` | modes, the compatibility matrix |
//! | `owner` | who holds and waits: a session's list of locks, its wait word, its event |
//! | `queue` | one key: who is granted when somebody goes |
//! | `holders`, `line` | its granted locks, the line of waiters |
//! | `shard` | keys of one shard: a chained hash over reusable slots |
//! | `table` | the lock table: asking, releasing, implicit locks made explicit |
//! | `hooks` | what a caller says of a wait |
//! | `wait` | the wait itself: enqueue, sleep, time out, abort as victim |
//! | `deadlock`, `journal` | walking the wait-for graph, choosing a victim; the latest deadlocks |
//! | `ranges`, `fold` | what a long locking scan holds, told once; from locks to ranges and back |
//! | `lock_set` | the record locks of an owner of thousands, as fingerprints |
//! | `index_ranges`, `interval` | ranges of one index; by key |
//! | `prepare` | what a prepared transaction gives back |
//! | `gaps` | gap locks that move when records come and go |
//! | `table_locks` | IS, IX, S, X on whole tables |
//! | `tally` | what all shards count together; a key with its hash |
//! | `info`, `counters` | what `information_schema` shows |
//!
//! Invariants:
//! - Two granted locks of different owners on one key are compatible, except where an
//!   implicit lock was made explicit on a key that somebody had locked too early
//!   (see [`LockTable::wait_for_implicit`]).
//! - A waiter is granted by whoever removes the last obstacle, in the order of arrival.
//! - Each entry an owner has in a queue stands exactly once in that owner's list, or is
//!   about to be put there by the owner's own thread.
//!
//! Locking order: owner's list, then one shard at a time, then a stripe of ranges. Events are set
//! after the shard's mutex is released. No mutex is held across a call of [`WaitHooks`], but the
//! handle of the connection that it names (see `owner`).

#![forbid(unsafe_code)]

mod counters;
mod deadlock;
mod fold;
mod gaps;
mod holders;
mod hooks;
mod index_ranges;
mod info;
mod interval;
mod journal;
mod line;
mod lock_set;
mod mode;
mod owner;
mod prepare;
mod queue;
mod ranges;
mod shard;
mod table;
mod table_locks;
mod tally;
mod wait;

#[cfg(all(test, not(loom)))]
mod cycle_tests;
#[cfg(all(test, not(loom)))]
mod lock_set_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod range_tests;
#[cfg(all(test, not(loom)))]
mod scale_tests;
#[cfg(all(test, not(loom)))]
mod stress_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use hooks::{NoHooks, WaitHooks, WaitPolicy};
pub use info::{LockInfo, LockStats, WaitEdge};
pub use journal::{Deadlock, DeadlockMember};
pub use mode::{AtPrepare, LockRequest, Mode, Span, TableMode};
pub use owner::{Owner, RangeId};
pub use table::{Attempt, Implicit, LockConfig, LockTable};
