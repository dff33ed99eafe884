//! Transactions: ids, status, snapshots, and the versions of rows that snapshots read.
//!
//! | file | room |
//! | --- | --- |
//! | `system` | ids, commit order, visibility, reuse of the status ring |
//! | `status` | the ring: one word per recent id |
//! | `side` | those that outlived their word |
//! | `snapshot` | snapshots and their register |
//! | `published` | the list of live snapshots; what nobody needs any more |
//! | `delta` | how an older row is told as a difference to a newer one |
//! | `version` | addresses and heads of versions |
//! | `segment` | young versions: segments of 256 KiB in a ring |
//! | `old` | the old generation: what survives its segment |
//! | `store` | the version store: adding, reading, walking, pruning |
//! | `retire` | segments leave the ring; the old generation is swept |
//!
//! Nothing here is written to disk or logged: snapshots die with the process.

#![forbid(unsafe_code)]

mod published;
mod side;
mod snapshot;
mod status;
mod system;

#[cfg(test)]
mod system_tests;

pub use snapshot::{Snapshot, SnapshotInfo, SnapshotView};
pub use system::{ActiveTxn, Status, TxnSystem};
