//! One open database: dictionary, tables, rows, commit path, recovery, checkpoint, background
//! threads.
//!
//! # What is where
//! From the bottom up; a module imports only what stands above it in this list.
//! - `log_records`: bodies of this crate's log records.
//! - `catalog`: definitions of tables, the dictionary, tables in use.
//! - `state`: the engine and its passive parts; transactions with their phase.
//! - `transaction`: sessions; commit, prepare, rollback, decisions by XID.
//! - `maintenance`: purge, checkpoint, threads.
//! - `rows`: changes of rows. `cursor`: reading.
//! - `backup`: hot backups, and what is restored from them.
//! - `snapshots`: snapshots that are kept; the way back to one.
//! - `startup`: open, recovery, close. `ddl`: changes of whole tables. `exported`: tables in files
//!   of their own. `introspection`: what users and tests look at. `offline`: a database that nobody
//!   has open, for tools.
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

mod backup;
mod catalog;
mod cursor;
mod ddl;
mod exported;
#[doc(hidden)]
pub mod fuzz;
mod introspection;
mod log_records;
mod maintenance;
pub mod offline;
mod rows;
pub mod snapshots;
mod startup;
mod state;
#[cfg(test)]
mod testing;
mod transaction;

pub use backup::chain::{Chain, ChainSummary, Link as BackupLink};
pub use backup::{BackupLimits, BackupPlace, Manifest as BackupManifest};
pub use catalog::describe;
pub use catalog::dictionary::foreign::{AlterForeign, ForeignRow, NewForeign};
pub use catalog::dictionary::foreign_change::{References, Renaming};
pub use catalog::dictionary::names::{Named, Names};
pub use catalog::foreign::{is_alter_copy, is_alter_original, original_of, whole_table};
pub use catalog::foreign::{Action, ForeignKey};
pub use catalog::links::{Encoding, Levels, Link, LinkPart, Links, Peer, RowEnd};
pub use catalog::matching::Misfit;
pub use catalog::spec::{IndexSpec, TableSpec};
pub use catalog::table::{Table, TableStats};
pub use cursor::{Cursor, ReadMode, Row, SeekMode, WaitMode};
pub use ddl::{DdlCaller, IndexSource, IndexesAfter};
pub use exported::{ExportAbout, ImportFrom};
pub use ferrite_store::{may_create, TierConfig};
pub use ferrite_tree::node::{MAX_KEY_BYTES, MAX_RECORD_BYTES};
pub use ferrite_txn::Status;
pub use ferrite_types::{OverflowRef, OVERFLOW_REF_BYTES};
pub use introspection::account::ValueAccount;
pub use introspection::check_foreign::ForeignFault;
pub use introspection::memory::MemoryPart;
pub use introspection::metric::Metric;
pub use introspection::status::{SnapshotRow, TrxRow};
pub use introspection::wait_report::{DeadlockRow, LongWaitRow, WaitSum};
pub use log_records::xid::Xid;
pub use rows::index_build::IndexBuild;
pub use rows::overflow::MANY_OVERFLOW_REFS;
pub use rows::overflow::{reference_head as overflow_head, references as overflow_references};
pub use rows::reference::Role;
pub use rows::write::{DupInfo, Entry, RowChange};
pub use state::backup::{BackupInfo, BackupPhase};
pub use state::callbacks::{Callbacks, LogLevel, NoCallbacks, SilentCallbacks};
pub use state::config::Config;
pub use state::engine::Engine;
pub use state::slot::Isolation;
pub use state::snapshots::KeptInfo;
pub use transaction::session::Session;
