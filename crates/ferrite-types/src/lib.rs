//! The words every other room uses: identities as newtypes, the error type, the numbers that
//! are part of the on-disk format, and the reader that every decoder takes bytes apart with.
//!
//! Invariants: nothing here touches memory, disk or time; a number below that is written
//! to disk never changes its meaning (a new meaning gets a new number).

mod error;
mod faults;
pub mod format;
mod hash;
mod ids;
mod overflow_ref;
mod reader;

pub use error::{Error, ForeignMisfit, Result};
pub use faults::Faults;
pub use hash::{fnv1a, FNV_BASIS};
pub use ids::{Csn, IndexId, Lsn, PageId, TableId, TxnId, UndoPosition, VersionAddr};
pub use overflow_ref::{OverflowRef, OVERFLOW_REF_BYTES};
pub use reader::{put_text16, ByteReader};

/// Size of a logical page, in bytes.
pub const PAGE_BYTES: usize = 16384;
