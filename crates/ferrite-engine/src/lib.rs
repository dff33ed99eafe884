//! One open database: dictionary, tables, rows, commit path, recovery, checkpoint, background
//! threads.
//!
//! # What is where
//! From the bottom up; a module calls only what stands above it in this list, or beside it.
//! - State without behaviour of its own. `config`, `callbacks`: what the outside says and answers.
//!   `counters`. `undo`: the undo entry; `undo_list`: a transaction's. `touched`: the indexes it has
//!   changed. `spec`: definitions of tables.
//! - `graveyard`: deleted entries that old snapshots need; `load_buffer`: what a table that is
//!   being filled has gathered; `table`: one table in use; `purge_queue`: what is to be purged;
//!   `row_values`: out-of-line values of a row change; `slot`: what others see of a transaction;
//!   `prepared`, `losers`: lists of transactions without a session.
//! - `dict`: tables by name and id, kept in a tree of their own.
//! - `engine`: owns every part above; settings, admission.
//! - `visible`: which state of an entry a reader sees, and whether one is needed. `changed`: the
//!   tables a transaction has changed, for the time of their last change. `explain`: waits and
//!   deadlocks. `history_limit`: what history may take of memory. `scrub`. `ddl`: changes of whole
//!   tables, beside prepared transactions.
//! - `session`: one SQL connection: statement, savepoints, snapshot.
//! - `purge`: entries and values that nobody needs after commits. `entry`: insert, update, delete of
//!   one index entry, with locks, versions and undo. `overflow`: values out of line. `write`: rows,
//!   across the indexes of a table. `load`: filling a table that nobody else can see.
//! - `cursor`: reading. `check`, `account`: checking.
//! - `values`: what the log tells of values out of line that a transaction lets go of. `commit`: the
//!   commit path, by stages; `rollback`: applying undo; `decide`: of prepared transactions;
//!   `loser_rollback`: of what a crash cut off.
//! - `checkpoint`, `recovery`: restart. `status`, `inspect`: what users and tests look at.
//! - `background`: every thread. `lifecycle`: open, recover, close. `offline`: a database that
//!   nobody has open, for tools.
//!
//! # Invariants
//! 1. A change of a row is: log record with undo, then the page, both under the leaf's
//!    exclusive latch, with the transaction's undo list extended under its own mutex around
//!    the append (so that a checkpoint's copy of that list is exact at one log position).
//! 2. No latch is held across a wait for a lock, a call back into the server, or a wait for
//!    the log to be durable. (One call is: the journal of long waits asks who it was that
//!    waited, which cannot wait.)
//! 3. A transaction is visible (commit number) before its locks go, and acknowledged only
//!    when its commit record is durable.

mod catalog;
mod cursor;
mod ddl;
#[doc(hidden)]
pub mod fuzz;
mod introspection;
mod log_records;
mod maintenance;
pub mod offline;
mod rows;
mod startup;
mod state;
#[cfg(test)]
mod testing;
mod transaction;

pub use catalog::spec::{IndexSpec, TableSpec};
pub use catalog::table::{Table, TableStats};
pub use cursor::{Cursor, ReadMode, Row, SeekMode, WaitMode};
pub use ddl::DdlCaller;
pub use ferrite_tree::node::{MAX_KEY_BYTES, MAX_RECORD_BYTES};
pub use ferrite_txn::Status;
pub use introspection::account::ValueAccount;
pub use introspection::status::{Metric, SnapshotRow, TrxRow};
pub use introspection::wait_report::{DeadlockRow, LongWaitRow, WaitSum};
pub use log_records::xid::Xid;
pub use rows::overflow::{
    length as overflow_length, reference_head as overflow_head, references as overflow_references,
};
pub use rows::overflow::{MANY_OVERFLOW_REFS, OVERFLOW_REF_BYTES};
pub use rows::write::{DupInfo, Entry};
pub use state::callbacks::{Callbacks, LogLevel, NoCallbacks, SilentCallbacks};
pub use state::config::Config;
pub use state::engine::Engine;
pub use state::slot::Isolation;
pub use transaction::session::Session;
