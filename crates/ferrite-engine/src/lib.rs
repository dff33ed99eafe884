//! One open database: dictionary, tables, rows, commit path, recovery, checkpoint, background
//! threads.
//!
//! # What is where
//! - `engine`: owns every other part; sessions and settings. `lifecycle`: open, recover, close.
//! - `config`, `callbacks`: what the outside says and answers.
//! - `dict`: tables by name and id, kept in a tree of their own; `spec`: their definitions.
//!   `ddl`: changes of whole tables, beside prepared transactions; `touched`: what those changed.
//!   `changed`: the tables a transaction has changed, for the time of their last change.
//! - `session`: one SQL connection: statement, savepoints, snapshot.
//! - `write`: insert, update, delete across the indexes of a table; `entry`: the same for one
//!   index entry, with locks, versions and undo.
//! - `load`: filling a table that nobody else can see.
//! - `cursor`, `visible`: reading.
//! - `undo`: the undo entry; `undo_list`: a transaction's; `rollback`: applying it.
//! - `commit`: the commit path, by stages; `values`: what the log tells of values out of line
//!   that a transaction lets go of; `prepared`: transactions that wait for their xid's decision.
//! - `purge`: cleaning up after commits; `graveyard`: deleted entries old snapshots need;
//!   `history_limit`: what history may take of memory.
//!   `overflow`: values out of line.
//! - `recovery`, `checkpoint`: start and restart; `losers`: what is rolled back after it.
//!   `background`: every thread.
//! - `status`: counters and views. `inspect`: what tests look at; `account`: of the pages of
//!   values out of line.
//!   `offline`: a database that nobody has open, for tools.
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

mod account;
mod background;
mod callbacks;
mod changed;
mod check;
mod checkpoint;
mod commit;
mod config;
mod cursor;
mod ddl;
mod dict;
mod engine;
mod entry;
mod explain;
#[doc(hidden)]
pub mod fuzz;
mod graveyard;
mod history_limit;
mod inspect;
mod lifecycle;
mod load;
mod losers;
pub mod offline;
mod overflow;
mod prepared;
mod purge;
mod purge_queue;
mod recovery;
mod rollback;
mod scrub;
mod session;
mod spec;
mod status;
mod table;
#[cfg(test)]
mod testing;
mod touched;
mod undo;
mod undo_list;
mod values;
mod visible;
mod write;

pub use account::ValueAccount;
pub use callbacks::{Callbacks, LogLevel, NoCallbacks, SilentCallbacks};
pub use config::Config;
pub use cursor::{Cursor, ReadMode, Row, SeekMode, WaitMode};
pub use ddl::DdlCaller;
pub use engine::Engine;
pub use explain::{DeadlockRow, LongWaitRow, WaitSum};
pub use ferrite_tree::node::{MAX_KEY_BYTES, MAX_RECORD_BYTES};
pub use ferrite_txn::Status;
pub use overflow::{
    length as overflow_length, reference_head as overflow_head, references as overflow_references,
};
pub use overflow::{MANY_OVERFLOW_REFS, OVERFLOW_REF_BYTES};
pub use session::{Isolation, Session, Xid};
pub use spec::{IndexSpec, TableSpec};
pub use status::{Metric, SnapshotRow, TrxRow};
pub use table::{Table, TableStats};
pub use write::{DupInfo, Entry};
