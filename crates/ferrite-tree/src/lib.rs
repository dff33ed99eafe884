//! B+trees over pages.
//!
//! # Modules
//! - `node`: every byte of a node page; searching and editing one page.
//! - `record`: the record header (delete mark, transaction id, version address).
//! - `op`: changes of one page as log operations.
//! - `apply`: applying them at redo, or when a page is read. `by_key`: those that name no slot.
//! - `tree`: the way down, latched leaves, edits that are logged.
//! - `split`, `merge`: structure changes.
//! - `check`: the structural verifier.
//! - `ahead`: which leaves a scan will come to.
//! - `estimate`: records in a range, a sample of the keys, for the optimizer.
//!
//! # Invariants
//! 1. Every node carries its low and high fence: it holds exactly the keys in `[low, high)`.
//!    A thread that finds its key at or above the high fence follows the right link.
//! 2. Inner nodes are immutable: a change is a new image in another frame (see
//!    `ferrite_buffer`). Leaves change under their exclusive latch.
//! 3. One structure lock per tree serialises splits and merges. It is taken about once in a
//!    hundred inserts; everything a structure change touches is one log record, so no tree is
//!    ever half split on disk or after a crash.
//! 4. The root's page id never changes.
//!
//! The tree knows of transactions only that a record has a header.

mod ahead;
pub mod apply;
mod away;
pub mod by_key;
pub mod check;
mod estimate;
mod leaf;
mod merge;
pub mod node;
pub mod op;
pub mod record;
mod split;
mod tree;

pub use ahead::{ReadAhead, Way};
pub use away::{KeptLeaf, LeafAway, LeafKept};
pub use ferrite_buffer::Keep;
pub use leaf::{LeafMut, LeafRef, Scratch};
pub use merge::is_worth_merging;
pub use tree::Tree;
