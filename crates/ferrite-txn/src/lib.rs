//! Transactions: ids, status, snapshots, and the versions of rows that snapshots read.
//!
//! | file | room |
//! | --- | --- |
//! | `system` | ids, commit order, visibility, reuse of the status ring |
//! | `status` | the ring: one word per recent id |
//! | `long_running` | those that outlived their word |
//! | `snapshot` | snapshots and their register |
//! | `published` | the list of live snapshots; what nobody needs any more |
//! | `seen` | which ids everybody sees, above one that has not ended too |
//! | `delta` | how an older row is told as a difference to a newer one |
//! | `version` | addresses and heads of versions |
//! | `segment` | young versions: segments of 256 KiB in a ring |
//! | `old_generation` | the old generation: what survives its segment |
//! | `scratch`, `extent` | the scratch files: where versions are that do not fit memory |
//! | `spill` | versions leave memory for a scratch file |
//! | `store` | the version store: adding, reading, walking, pruning |
//! | `prune` | updaters take out what nobody needs |
//! | `retire` | segments leave the ring; the old generation is swept |
//!
//! Nothing here is durable or logged: snapshots die with the process.

#![forbid(unsafe_code)]

mod delta;
mod extent;
mod long_running;
#[cfg(all(test, loom))]
mod loom_tests;
mod old_generation;
mod prune;
mod pruned;
mod published;
mod retire;
mod scratch;
mod seen;
mod segment;
mod snapshot;
mod spill;
mod status;
mod store;
mod system;
mod version;

#[cfg(test)]
mod spill_tests;
#[cfg(test)]
mod system_tests;
#[cfg(test)]
mod version_tests;

pub use delta::{apply, diff};
pub use pruned::Pruned;
pub use retire::{RetireStats, SweepStats};
pub use snapshot::{Snapshot, SnapshotInfo, SnapshotView};
pub use store::{VersionConfig, VersionStats, VersionStore, Walk};
pub use system::{ActiveTxn, Status, TxnSystem};
pub use version::{
    NewVersion, VersionHead, SEGMENT_BYTES, VERSION_DELETED, VERSION_FULL, VERSION_HEADER_BYTES,
    VERSION_PATCH,
};
