//! A transaction from its first change to its end.
//!
//! `session`: one connection with its transaction, statement and savepoints. `visible`: which state
//! of an entry it sees. `snapshot_isolation`: what it may not change any more. `row_values`: values
//! out of line of a row change. `row_changes`: whether what a scan has copied is outdated. `commit`, `rollback`: its end, by stages. `decide`: prepared ones
//! without a session; `restore_versions`: what others see of them after a restart. `table_locks`: locks that are not of rows.
//!
//! Locking: see each file.

pub(crate) mod commit;
pub(crate) mod decide;
mod decide_at_start;
pub(crate) mod last_leaf;
pub(crate) mod restore_versions;
pub(crate) mod rollback;
mod row_changes;
pub(crate) mod row_values;
pub(crate) mod session;
mod snapshot_isolation;
mod table_locks;
mod undo_ahead;
pub(crate) mod visible;
